#pragma once
// The int8 and int4 targets: llama.cpp's Q8_0 and Q4_0 with codes and scales apart. Made of the
// bf16 tensor, or read as they are where the file holds them:
//     layers.{l}.{k|v}.int8        I8  [tokens, heads, head_dim]
//     layers.{l}.{k|v}.int4        U8  [tokens, heads, ceil(head_dim / 2)], low nibble first,
//                                  two's complement; a last odd nibble is 0
//     layers.{l}.{k|v}.int?_scale  F16 [tokens, heads, ceil(head_dim / 32)]
// value = code * scale. The steps are single fp32 operations, each rounded once, whatever a
// compiler contracts: a product of floats is exact in double.

#include <cmath>
#include <vector>

#include "container.hpp"

namespace kv_file {

struct quantised_tensor {
    std::vector<uint8_t> codes;
    std::vector<uint16_t> scales;  // fp16
};

/// Codes of a row in memory, with what fills its last byte.
inline uint64_t padded_row(scalar_type type, uint32_t dim)
{
    return type == scalar_type::int4 ? (uint64_t(dim) + 1) / 2 * 2 : dim;
}

inline std::vector<uint64_t> packed_shape(const geometry& shape, target what)
{
    const uint64_t row = padded_row(what == target::int8 ? scalar_type::int8 : scalar_type::int4,
                                    shape.dim);
    return {shape.tokens, shape.heads, what == target::int8 ? row : row / 2};
}

inline uint32_t nibble(const std::vector<uint8_t>& bytes, size_t i)
{
    return uint32_t(bytes[i / 2]) >> (i % 2 * 4) & 15u;
}

inline void set_nibble(std::vector<uint8_t>& bytes, size_t i, uint32_t code)
{
    bytes[i / 2] = uint8_t(bytes[i / 2] | code << (i % 2 * 4));
}

/// One group as llama.cpp quantises it (quantize_row_q8_0_ref, quantize_row_q4_0_ref); where 1 / d
/// overflows, and those leave the range of int, codes are 0. Finite x; codes in two's complement.
inline uint16_t quantise_group(target what, const float* x, size_t count, uint8_t* codes)
{
    float largest = 0, signed_largest = 0;  // the first of equal magnitudes
    for (size_t i = 0; i < count; ++i) {
        if (std::fabs(x[i]) <= largest) continue;
        largest = std::fabs(x[i]);
        signed_largest = x[i];
    }
    const float d = what == target::int8 ? largest / 127.0f : signed_largest / -8.0f;
    float inverse = d != 0 ? 1.0f / d : 0.0f;
    if (std::isinf(inverse)) inverse = 0;
    for (size_t i = 0; i < count; ++i) {
        const float y = float(double(x[i]) * double(inverse));
        if (what == target::int8) codes[i] = uint8_t(int(std::round(y)));
        else codes[i] = uint8_t((std::min(15, int(y + 8.5f)) - 8) & 15);
    }
    return uint16_t(normans::nearest_code(normans::format_of(scalar_type::fp16),
                                          normans::float_to_bits(d)));
}

inline quantised_tensor quantise(const std::vector<uint16_t>& bf16, const geometry& shape,
                                 target what)
{
    const uint64_t row =
        padded_row(what == target::int8 ? scalar_type::int8 : scalar_type::int4, shape.dim);
    const uint64_t rows = uint64_t(shape.tokens) * shape.heads;
    quantised_tensor to;
    to.codes.resize(size_t(what == target::int8 ? rows * row : rows * row / 2));
    for (size_t r = 0; r < rows; ++r) {
        for (size_t first = 0; first < shape.dim; first += group_channels) {
            const size_t count = std::min<size_t>(group_channels, shape.dim - first);
            float x[group_channels];
            uint8_t codes[group_channels];
            for (size_t i = 0; i < count; ++i)
                x[i] = normans::bits_to_float(uint32_t(bf16[r * shape.dim + first + i]) << 16);
            to.scales.push_back(quantise_group(what, x, count, codes));
            for (size_t i = 0; i < count; ++i) {
                const size_t at = size_t(r * row + first + i);
                if (what == target::int8) to.codes[at] = codes[i];
                else set_nibble(to.codes, at, codes[i]);
            }
        }
    }
    return to;
}

inline const tensor_info& required_as(const safetensors_file& file, const std::string& name,
                                      const char* dtype, const std::vector<uint64_t>& shape)
{
    const tensor_info& tensor = required(file, name);
    if (tensor.dtype != dtype || tensor.shape != shape)
        fail(file.path(), ": ", name, " is not of the dtype and shape that its means ask for");
    return tensor;
}

/// The bf16 tensor that a quantised one is made of.
inline std::vector<uint16_t> load_finite(const safetensors_file& file, cache_key key,
                                         const geometry& shape)
{
    const std::string name = tensor_name(key, "bf16");
    static_cast<void>(scalar_of(file, key, target::bf16));
    if (!(geometry_of(file, name) == shape))
        fail(file.path(), ": ", name, " has shape ", to_text(geometry_of(file, name)),
             ", its means ", to_text(shape));
    std::vector<uint16_t> codes = load_codes<uint16_t>(file, name);
    for (const uint16_t code : codes)
        if ((code & 0x7f80) == 0x7f80)
            fail(file.path(), ": ", name, " holds a NaN or an infinity: it cannot be quantised");
    return codes;
}

inline quantised_tensor load_quantised(const safetensors_file& file, cache_key key, target what,
                                       const geometry& shape)
{
    const std::string name = tensor_name(key, target_name(what));
    if (file.find(name) == nullptr) return quantise(load_finite(file, key, shape), shape, what);
    const tensor_info& codes =
        required_as(file, name, what == target::int8 ? "I8" : "U8", packed_shape(shape, what));
    const tensor_info& scales =
        required_as(file, name + "_scale", "F16", scales_of(shape).shape());
    const uint8_t* from = file.data(codes);
    quantised_tensor to{{from, from + (codes.end - codes.begin)},
                        read_codes<uint16_t>(file.data(scales), scales_of(shape).scalars())};
    if (what == target::int4 && shape.dim % 2 != 0)
        for (size_t i = shape.dim; i < 2 * to.codes.size(); i += size_t(shape.dim) + 1)
            if (nibble(to.codes, i) != 0) fail(file.path(), ": ", name, ": an odd nibble is not 0");
    return to;
}

}  // namespace kv_file
