#pragma once
// Pages of int8, int4, e2m1 and fp8 scalars with predictions, scales (all 1 and not the spec's for
// fp8) and, for tANS, a bank: what the tests of scaled blocks share. Integers and the codec's own
// rounding only: the same everywhere.

#include <vector>

#include <normans/host/float_bank.hpp>

#include "../codec/codec.hpp"
#include "test_rng.hpp"

namespace normans_test {

using bank_rows_of = normans::type_bank_in<std::vector>;

/// Banks that tests use; small, so that tests build them quickly.
inline const normans::tans_bank* test_bank(normans::scalar_type type, normans::shape_id shape)
{
    using normans::scalar_type;
    constexpr normans::bank_plan plans[2] = {{normans::shape_id::gaussian, 8, 2, 1},
                                             {normans::shape_id::mixture, 9, 1, 2}};
    static const bank_rows_of integers[2] = {{scalar_type::int8, plans[0]},
                                             {scalar_type::int8, plans[1]}};
    static const bank_rows_of e4m3[2] = {{scalar_type::e4m3fn, plans[0]},
                                         {scalar_type::e4m3fn, plans[1]}};
    static const bank_rows_of e5m2[2] = {{scalar_type::e5m2, plans[0]},
                                         {scalar_type::e5m2, plans[1]}};
    static const bank_rows_of e2m1[2] = {{scalar_type::e2m1, plans[0]},
                                         {scalar_type::e2m1, plans[1]}};
    const int i = shape == normans::shape_id::gaussian ? 0 : 1;
    switch (bank_grid(type)) {
    case scalar_type::e4m3fn: return &e4m3[i].bank;
    case scalar_type::e5m2: return &e5m2[i].bank;
    case scalar_type::e2m1: return &e2m1[i].bank;
    default: return &integers[i].bank;
    }
}

struct scaled_page {
    normans::block_spec spec;  // spec.scales points into `scales` of this page: do not copy pages
    std::vector<std::uint8_t> codes;  // one each
    std::vector<float> mean;
    std::vector<std::uint8_t> sigma;
    std::vector<float> scales;  // per head, token and group

    scaled_page() = default;
    scaled_page(scaled_page&&) = default;
    scaled_page(const scaled_page&) = delete;

    page_predictor predictor() const { return {{mean.data()}, {sigma.data()}, {}}; }
    unsigned code_bits() const { return normans::format_of(spec.dtype).code_bits; }
};

/// Codes as they lie in memory, dense.
inline std::vector<std::uint8_t> packed(const scaled_page& page)
{
    if (page.code_bits() == 8) return page.codes;
    std::vector<std::uint8_t> bytes((page.codes.size() + 1) / 2);
    for (std::size_t i = 0; i < page.codes.size(); ++i)
        bytes[i / 2] = std::uint8_t(bytes[i / 2] | page.codes[i] << 4 * (i % 2));
    return bytes;
}

inline std::vector<std::uint8_t> unpacked(const std::vector<std::uint8_t>& bytes, unsigned bits,
                                          std::size_t count)
{
    if (bits == 8) return {bytes.begin(), bytes.begin() + std::ptrdiff_t(count)};
    std::vector<std::uint8_t> codes(count);
    for (std::size_t i = 0; i < count; ++i)
        codes[i] = std::uint8_t(bytes[i / 2] >> 4 * (i % 2) & 15);
    return codes;
}

/// Groups of 32 channels with a scale each; sigmas of 1/4 to 4 codes, codes around the means, one
/// in `outliers` anywhere (0: none). An empty group now and then: scale 0, codes 0.
inline scaled_page make_scaled_page(std::uint64_t seed, const normans::block_spec& spec,
                                    std::uint32_t outliers = 50)
{
    using namespace normans;
    test_rng rng(seed);
    scaled_page page;
    page.spec = spec;
    const scalar_format format = format_of(spec.dtype);
    const std::uint32_t groups = (spec.dim + 31) / 32, rows = spec.heads * spec.tokens;
    for (std::uint32_t i = 0; i < rows * groups; ++i) {
        const std::uint32_t bits = (118 + rng.below(8)) << 23 | rng.bits(10) << 13;  // as fp16
        const bool empty = rng.below(40) == 0;
        page.scales.push_back(!has_scale(spec.dtype) ? 1.0f : empty ? 0.0f : bits_to_float(bits));
    }
    if (has_scale(spec.dtype))
        page.spec.scales = {page.scales.data(), std::ptrdiff_t(spec.tokens * groups),
                            std::ptrdiff_t(groups), 1, 32};
    if (spec.coder == coder_id::tans) page.spec.bank = test_bank(spec.dtype, spec.shape);
    for (std::uint32_t i = 0; i < rows * spec.dim; ++i) {
        const std::uint32_t row = i / spec.dim, channel = i % spec.dim;
        const code_scale scale =
            make_scale(float_to_bits(page.scales[row * groups + channel / 32]));
        // In 1/65536 codes.
        const int reach = format.is_integer ? int(format.largest_finite) : 4;
        const int mean = rng.between(-reach * 40000, reach * 40000);
        const bool small = format.code_bits == 8 && !format.is_integer;  // fp8: codes lie closer
        const int eighths = rng.between(-16, format.code_bits == 8 ? 16 : 4) - (small ? 32 : 0);
        const int sigma = int(256 * (1u << (eighths + 48) / 8)) * 4;  // floor of the octave
        const int value = mean + int(std::int64_t(rng.noise()) * sigma / 65536);
        std::uint32_t code = 0;
        if (scale.scale == 0) {
            page.mean.push_back(0.25f);
            page.sigma.push_back(200);
        } else {
            page.mean.push_back(
                bits_to_float(multiply(float_of(mean, -16), scale.scale)));
            const int index = eighths + scale.eighths - 8 * spec.sigma_offset;
            page.sigma.push_back(std::uint8_t(index < 0 ? 0 : index > 254 ? 254 : index));
            code = expected_code(format, float_of(value, -16));
        }
        if (outliers != 0 && rng.below(outliers) == 0) code = rng.bits(format.code_bits);
        page.codes.push_back(std::uint8_t(code));
    }
    return page;
}

inline normans::block_spec scaled_spec(normans::scalar_type type, normans::coder_id coder,
                                       std::uint32_t heads, std::uint32_t tokens, std::uint32_t dim,
                                       std::uint32_t lanes)
{
    normans::block_spec spec;
    spec.dtype = type;
    spec.coder = coder;
    spec.heads = heads;
    spec.tokens = tokens;
    spec.dim = dim;
    spec.lanes = lanes;
    return spec;
}

/// Every (type, coder) that there is.
struct scaled_kind {
    normans::scalar_type type;
    normans::coder_id coder;
};
inline constexpr scaled_kind scaled_kinds[] = {
    {normans::scalar_type::int8, normans::coder_id::tans},
    {normans::scalar_type::int4, normans::coder_id::tans},
    {normans::scalar_type::int8, normans::coder_id::rans},
    {normans::scalar_type::int4, normans::coder_id::rans},
    {normans::scalar_type::e2m1, normans::coder_id::rans},
    {normans::scalar_type::e2m1, normans::coder_id::tans},
    {normans::scalar_type::e4m3fn, normans::coder_id::tans},
    {normans::scalar_type::e5m2fnuz, normans::coder_id::tans}};

inline std::vector<std::uint8_t> encode_scaled_page(const scaled_page& page,
                                                    normans::encode_result* result = nullptr)
{
    const std::vector<std::uint8_t> codes = packed(page);
    std::vector<std::uint8_t> block(max_encoded_bytes(page.spec));
    const normans::encode_result got = encode(page.spec, dense(page.spec, codes.data()),
                                              page.predictor(), block.data(), block.size());
    if (result != nullptr) *result = got;
    block.resize(got.code == normans::status::ok ? got.bytes : 0);
    return block;
}

struct decoded_scaled {
    normans::decode_result result;
    std::vector<std::uint8_t> codes;
};

/// The output is filled with ones before.
inline decoded_scaled decode_scaled_page(const scaled_page& like, const std::uint8_t* block,
                                         std::size_t bytes)
{
    const std::size_t count = like.codes.size();
    std::vector<std::uint8_t> out(raw_bytes(like.spec.dtype, count) + 1, 0xff);
    decoded_scaled back;
    back.result = decode(like.spec, block, bytes, like.predictor(), dense(like.spec, out.data()));
    back.codes = unpacked(out, like.code_bits(), count);
    return back;
}

}  // namespace normans_test
