#pragma once
// How a KV cache lies in a safetensors file: layers.{l}.{k|v}.{bf16|fp8|mu}, each of shape [tokens,
// heads, head_dim], and layers.{l}.{k|v}.scale with one number; quantised.hpp adds int8 and int4.
// Tensors of other names are ignored.

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <normans/fit/profile.hpp>

#include "safetensors.hpp"

namespace kv_file {

using normans::kv_kind;
using normans::scalar_type;
using std::size_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

/// What is coded. int8 and int4 have a scale per 32 channels.
enum class target : uint8_t { fp8, bf16, int8, int4 };

constexpr target all_targets[] = {target::fp8, target::bf16, target::int8, target::int4};

constexpr const char* target_name(target what)
{
    constexpr const char* names[] = {"fp8", "bf16", "int8", "int4"};
    return names[size_t(what)];
}

constexpr bool is_quantised(target what) { return what >= target::int8; }

/// The targets a user asks for; of these the ones that are there are taken.
struct target_choice {
    bool chosen[4] = {true, true, false, false};
    bool has(target what) const { return chosen[size_t(what)]; }
    bool has_quantised() const { return has(target::int8) || has(target::int4); }
};

/// Where means come from: the mu of a model or each channel's mean, drafts on top of it or not.
enum class predictor_choice : uint8_t { model, none, lowrank, both };

constexpr const char* predictor_name(predictor_choice choice)
{
    constexpr const char* names[] = {"model", "none", "lowrank", "both"};
    return names[size_t(choice)];
}
constexpr bool has_model(predictor_choice choice)
{
    return choice == predictor_choice::model || choice == predictor_choice::both;
}
constexpr bool has_drafts(predictor_choice choice) { return choice >= predictor_choice::lowrank; }

using cache_key = std::pair<uint32_t, kv_kind>;  // (layer, k or v), in the order of coding

inline std::string tensor_name(cache_key key, const char* what)
{
    const char* kind = key.second == kv_kind::k ? ".k." : ".v.";
    return "layers." + std::to_string(key.first) + kind + what;
}

struct geometry {
    uint32_t tokens = 0;
    uint32_t heads = 0;
    uint32_t dim = 0;

    uint64_t channels() const { return uint64_t(heads) * dim; }
    uint64_t scalars() const { return channels() * tokens; }
    std::vector<uint64_t> shape() const { return {tokens, heads, dim}; }
    bool operator==(const geometry& other) const
    {
        return tokens == other.tokens && heads == other.heads && dim == other.dim;
    }
};

inline std::string to_text(const geometry& g)
{
    return "[" + std::to_string(g.tokens) + ", " + std::to_string(g.heads) + ", " +
           std::to_string(g.dim) + "]";
}

/// The (layer, k or v) pairs of which the file has one of the chosen targets.
inline std::vector<cache_key> keys_of(const safetensors_file& file, target_choice targets)
{
    std::set<cache_key> keys;
    for (const auto& [name, tensor] : file.tensors()) {
        constexpr size_t prefix = 7;
        if (name.compare(0, prefix, "layers.") != 0) continue;
        const size_t digits = name.find_first_not_of("0123456789", prefix) - prefix;
        if (digits == 0 || digits > 9) continue;
        const auto layer = uint32_t(std::stoul(name.substr(prefix, digits)));
        for (const kv_kind kind : {kv_kind::k, kv_kind::v})
            for (const target what : all_targets)
                if (targets.has(what) && (name == tensor_name({layer, kind}, target_name(what)) ||
                                          (is_quantised(what) &&
                                           name == tensor_name({layer, kind}, "bf16"))))
                    keys.insert({layer, kind});
    }
    return {keys.begin(), keys.end()};
}

/// A quantised target can be made of the bf16 tensor.
inline bool has_target(const safetensors_file& file, const cache_key& key, target what)
{
    return file.find(tensor_name(key, target_name(what))) != nullptr ||
           (is_quantised(what) && file.find(tensor_name(key, "bf16")) != nullptr);
}

inline const tensor_info& required(const safetensors_file& file, const std::string& name)
{
    const tensor_info* tensor = file.find(name);
    if (tensor == nullptr) fail(file.path(), ": ", name, " is missing");
    return *tensor;
}

inline geometry geometry_of(const safetensors_file& file, const std::string& name)
{
    const tensor_info& tensor = required(file, name);
    bool good = tensor.shape.size() == 3;
    for (const uint64_t extent : tensor.shape) good &= extent <= 0x7fffffff;
    if (!good) fail(file.path(), ": ", name, " is not of shape [tokens, heads, head_dim]");
    return {uint32_t(tensor.shape[0]), uint32_t(tensor.shape[1]), uint32_t(tensor.shape[2])};
}

/// The scalar type of a target tensor.
inline scalar_type scalar_of(const safetensors_file& file, cache_key key, target what)
{
    const std::string name = tensor_name(key, target_name(what));
    const std::string& dtype = required(file, name).dtype;
    if (what == target::bf16) {
        if (dtype == "BF16") return scalar_type::bf16;
        fail(file.path(), ": ", name, " has dtype ", dtype, ", not BF16");
    }
    if (dtype == "F8_E4M3") return scalar_type::e4m3fn;
    if (dtype == "F8_E5M2") return scalar_type::e5m2;
    if (dtype == "F8_E4M3FNUZ") return scalar_type::e4m3fnuz;
    if (dtype == "F8_E5M2FNUZ") return scalar_type::e5m2fnuz;
    fail(file.path(), ": ", name, " has dtype ", dtype, ", not one of the F8 types");
}

inline const char* safetensors_dtype(scalar_type type)
{
    switch (type) {
    case scalar_type::e4m3fn: return "F8_E4M3";
    case scalar_type::e5m2: return "F8_E5M2";
    case scalar_type::e4m3fnuz: return "F8_E4M3FNUZ";
    case scalar_type::e5m2fnuz: return "F8_E5M2FNUZ";
    case scalar_type::fp16: return "F16";
    case scalar_type::int8: return "I8";
    case scalar_type::int4: return "U8";
    default: return "BF16";
    }
}

/// Little-endian bytes as codes, at any address.
template <class Code>
std::vector<Code> read_codes(const uint8_t* from, uint64_t count)
{
    std::vector<Code> codes(static_cast<size_t>(count));
    for (size_t i = 0; i < codes.size(); ++i) {
        if constexpr (sizeof(Code) == 1) codes[i] = from[i];
        else codes[i] = Code(from[2 * i] | from[2 * i + 1] << 8);
    }
    return codes;
}

template <class Code>
std::vector<uint8_t> to_bytes(const std::vector<Code>& codes)
{
    std::vector<uint8_t> bytes;
    bytes.reserve(codes.size() * sizeof(Code));
    for (const Code code : codes) {
        bytes.push_back(uint8_t(code));
        if (sizeof(Code) == 2) bytes.push_back(uint8_t(code >> 8));
    }
    return bytes;
}

template <class Code>
std::vector<Code> load_codes(const safetensors_file& file, const std::string& name)
{
    return read_codes<Code>(file.data(required(file, name)), geometry_of(file, name).scalars());
}

/// The means of one tensor: one of the two vectors is filled.
struct mean_tensor {
    geometry shape;
    std::vector<uint16_t> bf16;
    std::vector<float> fp32;
    uint32_t hash = 0;  // of the bytes in the file: says which means a file was coded under

    float at(size_t index) const
    {
        return fp32.empty() ? normans::bits_to_float(uint32_t(bf16[index]) << 16) : fp32[index];
    }
};

inline mean_tensor load_means(const safetensors_file& file, cache_key key)
{
    const std::string name = tensor_name(key, "mu");
    const tensor_info& tensor = required(file, name);
    mean_tensor means;
    means.shape = geometry_of(file, name);
    const uint8_t* from = file.data(tensor);
    if (tensor.dtype == "BF16") {
        means.bf16 = read_codes<uint16_t>(from, means.shape.scalars());
    } else if (tensor.dtype == "F32") {
        means.fp32.resize(size_t(means.shape.scalars()));
        for (size_t i = 0; i < means.fp32.size(); ++i)
            means.fp32[i] = normans::bits_to_float(normans::detail::load_u32(from + 4 * i));
    } else {
        fail(file.path(), ": ", name, " has dtype ", tensor.dtype, ", not BF16 or F32");
    }
    means.hash = uint32_t(normans::fingerprint_of(from, size_t(tensor.end - tensor.begin)));
    return means;
}

/// Means of a tensor that nobody predicts: zeros.
inline mean_tensor no_means(const geometry& shape)
{
    return {shape, std::vector<uint16_t>(size_t(shape.scalars())), {}, 0};
}

/// The shape of a (layer, k or v), from the first target that says it.
inline geometry shape_without_means(const safetensors_file& file, cache_key key)
{
    for (const char* what : {"bf16", "fp8", "int8"})
        if (file.find(tensor_name(key, what)) != nullptr)
            return geometry_of(file, tensor_name(key, what));
    fail(file.path(), ": ", tensor_name(key, "int4"), " does not say its shape without means; ",
         tensor_name(key, "bf16"), " is missing");
}

/// The fp8 scale of a tensor.
inline float load_scale(const safetensors_file& file, cache_key key)
{
    const std::string name = tensor_name(key, "scale");
    const tensor_info& tensor = required(file, name);
    if (tensor.dtype != "F32" || tensor.end - tensor.begin != 4)
        fail(file.path(), ": ", name, " is not one F32 number");
    const float scale = normans::bits_to_float(normans::detail::load_u32(file.data(tensor)));
    if (!normans::detail::usable_scale(scale)) fail(file.path(), ": ", name, " is no usable scale");
    return scale;
}

/// Where the means come from: a file of their own, or the file with the targets.
class mean_source {
public:
    mean_source(const std::string& path, const safetensors_file* targets)
    {
        if (path.empty() || (targets != nullptr && targets->path() == path)) shared_ = targets;
        else own_.emplace_back(path);
    }

    const safetensors_file& file() const { return shared_ != nullptr ? *shared_ : own_.front(); }

private:
    const safetensors_file* shared_ = nullptr;
    std::vector<safetensors_file> own_;  // none or one
};

}  // namespace kv_file
