#pragma once
// What the field cases share: seeded pages of scalars with predictions, the codec for one predictor
// type over arrays.

#include <cstring>
#include <vector>

#include "codec/codec.hpp"
#include "support/guarded_memory.hpp"
#include "support/random_source.hpp"

namespace field {

using namespace normans;

inline constexpr scalar_type modelled_types[] = {scalar_type::e4m3fn,   scalar_type::e5m2,
                                                 scalar_type::e4m3fnuz, scalar_type::e5m2fnuz,
                                                 scalar_type::bf16,     scalar_type::fp16};
inline constexpr scalar_type all_types[] = {
    scalar_type::e4m3fn, scalar_type::e5m2, scalar_type::e4m3fnuz, scalar_type::e5m2fnuz,
    scalar_type::bf16,   scalar_type::fp16, scalar_type::raw8};
inline constexpr uint32_t lane_counts[] = {1, 8, 16, 32};
inline constexpr shape_id all_shapes[] = {shape_id::gaussian, shape_id::mixture,
                                          shape_id::mixture_marginal};

using normans_test::page_predictor;

/// A box of scalars with what predicts them. Codes of 8-bit types use the low byte.
struct page {
    block_spec spec;
    std::vector<uint16_t> codes;
    std::vector<float> mean;
    std::vector<uint8_t> sigma;

    page_predictor predictor() const { return {{mean.data()}, {sigma.data()}, {}}; }
};

/// Codes drawn from their own model: means over a few binades, sigma indices over two octaves.
page make_page(uint64_t seed, const block_spec& spec);

/// Codes that have nothing to do with their model: random bits everywhere.
page make_random_page(uint64_t seed, const block_spec& spec);

/// A spec for a box of one row.
block_spec row_spec(scalar_type type, uint32_t count, uint32_t lanes);

std::vector<uint8_t> encode_page(const page& from, encode_result* result = nullptr);

struct decoded_page {
    decode_result result;
    std::vector<uint16_t> codes;
};

/// The output is filled with ones before; result.code may be any status.
decoded_page decode_page(const page& like, const uint8_t* block, size_t bytes);
inline decoded_page decode_page(const page& like, const std::vector<uint8_t>& block)
{
    return decode_page(like, block.data(), block.size());
}

/// Codes as the bytes that the codec takes.
inline std::vector<uint8_t> narrow(const std::vector<uint16_t>& codes)
{
    return std::vector<uint8_t>(codes.begin(), codes.end());
}

using normans_test::guarded_memory;

}  // namespace field
