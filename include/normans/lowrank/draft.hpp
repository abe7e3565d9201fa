#pragma once
// A draft: the low-rank factors of one block as bytes, and the means that they give:
//     mean(t, c) = fma(sum(t, c) * 2^exponent, scale_c, base(t, c))
// where sum is int8_product.hpp's and base a mean per channel or a model's prediction. The sum and
// the shift by the exponent are exact, the fma is rounded once: the same bits on every processor.
// scale and base are the caller's (a profile's); a block's bytes hold what changes with it:
//      0  u8   draft_version
//      1  i8   exponent    -100 .. 100
//      2  u16  rank        0 .. 1,024; 0: no factors follow
//      4  u32  check       over all other bytes, tokens and channels
//      8  u8   shift[(rank + 3) / 4]
//         i8   u[tokens][rank]
//         i8   v[channels][rank]
//         zeros up to a multiple of 4
// Little-endian, at any address. Tokens and channels are the caller's, never read: no field but
// rank changes a size, and nothing is written beyond the caller's memory.

#include "int8_product.hpp"

#include "../status.hpp"
#include "../wire/header.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

constexpr uint8_t draft_version = 0;
constexpr size_t draft_header_bytes = 8;
constexpr int max_draft_exponent = 100;  // sums below 2^24 stay normal floats either way

/// What factors of a rank take in memory: ranks in full groups of four.
constexpr uint32_t padded_rank(uint32_t rank) { return (rank + 3) / 4 * 4; }

/// Bytes of a draft, a multiple of 4. rank <= max_rank.
constexpr uint64_t draft_bytes(uint32_t rank, uint32_t tokens, uint32_t channels)
{
    const uint64_t factors = padded_rank(rank) / 4 + (uint64_t(tokens) + channels) * rank;
    return draft_header_bytes + (factors + 3) / 4 * 4;
}

/// Factors in memory with what belongs to them. `factors.rank` is padded.
struct draft_view {
    lowrank_factors factors;
    uint32_t rank;
    int exponent;
};

/// Where read_draft puts factors. Elements that the arrays have:
/// u tokens * padded_rank, v channels * padded_rank, shift padded_rank / 4.
struct draft_memory {
    int8_t* u;
    uint64_t u_size;
    int8_t* v;
    uint64_t v_size;
    uint8_t* shift;
    uint64_t shift_size;
};

struct draft_header {
    uint32_t rank;
    int exponent;
};

namespace detail {

inline uint32_t draft_check(const uint8_t* draft, uint64_t bytes, uint32_t tokens,
                            uint32_t channels)
{
    uint8_t all[20];
    std::memcpy(all, draft, 4);
    store_u32(all + 4, tokens);
    store_u32(all + 8, channels);
    store_u64(all + 12,
              fingerprint_of(draft + draft_header_bytes, size_t(bytes) - draft_header_bytes));
    return uint32_t(fingerprint_of(all, sizeof all));
}

// Element k of a token's u and of a channel's v in memory.
inline size_t u_place(const lowrank_factors& f, uint32_t token, uint32_t k)
{
    return size_t(token) * f.rank + k;
}
inline size_t v_place(const lowrank_factors& f, uint32_t channel, uint32_t k)
{
    return (size_t(k / 4) * f.channels + channel) * 4 + k % 4;
}

}  // namespace detail

/// The first fields. truncated (also where the draft would end behind `bytes`),
/// unsupported_version, bad_header (a rank or an exponent that no writer writes). The check is not
/// looked at.
[[nodiscard]] inline status read_draft_header(const uint8_t* from, size_t bytes, uint32_t tokens,
                                              uint32_t channels, draft_header& header) noexcept
{
    if (from == nullptr || bytes < draft_header_bytes) return status::truncated;
    if (from[0] != draft_version) return status::unsupported_version;
    header.exponent = from[1] < 128 ? from[1] : int(from[1]) - 256;
    header.rank = uint32_t(from[2]) | uint32_t(from[3]) << 8;
    if (header.rank > max_rank || header.exponent > max_draft_exponent ||
        header.exponent < -max_draft_exponent)
        return status::bad_header;
    return draft_bytes(header.rank, tokens, channels) > bytes ? status::truncated : status::ok;
}

/// A draft from its bytes, of which draft_bytes(view.rank, ...) were read. Beside what the header's
/// reader finds: content_mismatch (damage, or other tokens or channels), bad_header (sums that
/// might not be exact, bytes behind the factors that are not 0), output_too_small (`memory`).
[[nodiscard]] inline status read_draft(const uint8_t* from, size_t bytes, uint32_t tokens,
                                       uint32_t channels, const draft_memory& memory,
                                       draft_view& view) noexcept
{
    draft_header header{};
    const status code = read_draft_header(from, bytes, tokens, channels, header);
    if (code != status::ok) return code;
    const uint64_t size = draft_bytes(header.rank, tokens, channels);
    if (detail::load_u32(from + 4) != detail::draft_check(from, size, tokens, channels))
        return status::content_mismatch;
    const uint32_t rank = padded_rank(header.rank), groups = rank / 4;
    if (memory.u_size < uint64_t(tokens) * rank || memory.v_size < uint64_t(channels) * rank ||
        memory.shift_size < groups)
        return status::output_too_small;

    view = {{memory.u, memory.v, memory.shift, tokens, channels, rank}, header.rank,
            header.exponent};
    const uint8_t* next = from + draft_header_bytes;
    for (uint32_t g = 0; g < groups; ++g) memory.shift[g] = *next++;
    if (!exact_factors(view.factors)) return status::bad_header;
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t k = 0; k < rank; ++k)
            memory.u[detail::u_place(view.factors, t, k)] =
                k < header.rank ? int8_t(*next++) : int8_t(0);
    for (uint32_t c = 0; c < channels; ++c)
        for (uint32_t k = 0; k < rank; ++k)
            memory.v[detail::v_place(view.factors, c, k)] =
                k < header.rank ? int8_t(*next++) : int8_t(0);
    for (; next != from + size; ++next)
        if (*next != 0) return status::bad_header;
    return status::ok;
}

/// Writes draft_bytes(view.rank, ...) bytes. bad_argument: a rank that is not the factors', an
/// exponent out of range, sums that might not be exact. output_too_small.
[[nodiscard]] inline status write_draft(const draft_view& view, uint8_t* to,
                                        size_t capacity) noexcept
{
    const lowrank_factors& f = view.factors;
    if (to == nullptr || view.rank > max_rank || padded_rank(view.rank) != f.rank ||
        view.exponent > max_draft_exponent || view.exponent < -max_draft_exponent ||
        !exact_factors(f))
        return status::bad_argument;
    const uint64_t size = draft_bytes(view.rank, f.tokens, f.channels);
    if (size > capacity) return status::output_too_small;
    to[0] = draft_version;
    to[1] = uint8_t(view.exponent);
    to[2] = uint8_t(view.rank);
    to[3] = uint8_t(view.rank >> 8);
    uint8_t* next = to + draft_header_bytes;
    for (uint32_t g = 0; g < f.rank / 4; ++g) *next++ = f.shift[g];
    for (uint32_t t = 0; t < f.tokens; ++t)
        for (uint32_t k = 0; k < view.rank; ++k) *next++ = uint8_t(f.u[detail::u_place(f, t, k)]);
    for (uint32_t c = 0; c < f.channels; ++c)
        for (uint32_t k = 0; k < view.rank; ++k) *next++ = uint8_t(f.v[detail::v_place(f, c, k)]);
    while (next != to + size) *next++ = 0;
    detail::store_u32(to + 4, detail::draft_check(to, size, f.tokens, f.channels));
    return status::ok;
}

/// fma(sum * 2^exponent, scale, base), rounded once, by map_mean's rules for zeros, also of a base
/// with exponent field 0; one that is infinite or NaN stays. `scale` is zero or normal.
NORMANS_HD inline float drafted_mean(float sum, int exponent, float scale, float base)
{
    uint32_t base_bits = float_to_bits(base);
    if (exponent_field(base_bits) == 255)
        return bits_to_float(is_nan(base_bits) ? quiet_nan_bits : base_bits);
    if (exponent_field(base_bits) == 0) base_bits &= sign_bit;
    const uint32_t bits = float_to_bits(sum);
    const uint32_t shifted =
        (bits & ~sign_bit) == 0 ? 0 : bits + (uint32_t(exponent) << 23);
    return bits_to_float(map_mean(shifted, float_to_bits(scale), base_bits));
}

/// Adds a draft to the means of its block: means[t * stride + c], scale[c]. `rows`: memory for
/// 4 * channels floats.
inline void add_draft(const draft_view& view, const float* scale, float* means, ptrdiff_t stride,
                      float* rows) noexcept
{
    const lowrank_factors& f = view.factors;
    for (uint32_t first = 0; first < f.tokens; first += 4) {
        const uint32_t count = f.tokens - first < 4 ? f.tokens - first : 4;
        expand_lowrank(f, first, count, rows, ptrdiff_t(f.channels));
        for (uint32_t t = 0; t < count; ++t) {
            float* row = means + ptrdiff_t(first + t) * stride;
            for (uint32_t c = 0; c < f.channels; ++c)
                row[c] = drafted_mean(rows[size_t(t) * f.channels + c], view.exponent, scale[c],
                                      row[c]);
        }
    }
}

/// One mean per channel for all tokens: what a draft without a model starts from.
struct channel_means {
    const float* mean;  // [head * dim + channel]
    uint32_t dim;
    NORMANS_HD float operator()(const scalar_position& at) const
    {
        return mean[size_t(at.head) * dim + at.channel];
    }
};

/// The same as a view for predict(): nothing is expanded. `Base` is a view of means.
template <class Base>
struct drafted_means {
    Base base;
    draft_view draft;
    const float* scale;  // [head * dim + channel]
    uint32_t dim;

    NORMANS_HD float operator()(const scalar_position& at) const
    {
        const uint32_t channel = at.head * dim + at.channel;
        return drafted_mean(float(lowrank_sum(draft.factors, at.token, channel)), draft.exponent,
                            scale[channel], base(at));
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
