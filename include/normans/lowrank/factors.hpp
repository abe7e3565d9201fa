#pragma once
// Factors of a block of tokens x channels, from its singular values and vectors (decompose.hpp
// finds them, or anybody else): quantised to int8 with one power of two per four ranks. For
// encoders; decoders read drafts with draft.hpp alone. Floating point is free here: what a decoder
// computes with are the quantised factors.

#include <algorithm>
#include <cmath>
#include <vector>

#include "draft.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// A block as a sum of components singular[k] * left[k][token] * right[k][channel], the largest
/// first, none of them 0. Vectors need not have length 1.
struct block_components {
    uint32_t tokens = 0;
    uint32_t channels = 0;
    std::vector<double> singular;
    std::vector<std::vector<double>> left;
    std::vector<std::vector<double>> right;
};

/// Quantised factors with their memory.
struct block_factors {
    std::vector<int8_t> u;
    std::vector<int8_t> v;
    std::vector<uint8_t> shift;
    uint32_t tokens = 0;
    uint32_t channels = 0;
    uint32_t rank = 0;
    int exponent = 0;

    /// Lasts as long as this does.
    draft_view view() const
    {
        return {{u.data(), v.data(), shift.data(), tokens, channels, padded_rank(rank)},
                rank,
                exponent};
    }
};

namespace detail {

inline double largest_magnitude(const std::vector<double>& of)
{
    double largest = 0;
    for (const double x : of) largest = (std::max)(largest, std::fabs(x));
    return largest;
}

// Each group's shift above the exponent, units being exponents too. False where a shift or the sums
// would be too large: the exponent must rise, and small components lose bits.
inline bool set_shifts(block_factors& made, const std::vector<int>& units)
{
    for (size_t g = 0; g < units.size(); ++g) {
        const int shift = (std::max)(units[g] - made.exponent, 0);
        if (shift > int(max_rank_shift)) return false;
        made.shift[g] = uint8_t(shift);
    }
    return exact_factors(made.view().factors);
}

}  // namespace detail

/// The first `rank` components, at most as many as there are and max_rank: result.rank.
inline block_factors quantise_factors(const block_components& from, uint32_t rank)
{
    block_factors made;
    made.tokens = from.tokens;
    made.channels = from.channels;
    made.rank = uint32_t((std::min)({size_t(rank), from.singular.size(), size_t(max_rank)}));
    if (made.rank == 0) return made;
    const uint32_t padded = padded_rank(made.rank), groups = padded / 4;
    made.u.assign(size_t(from.tokens) * padded, 0);
    made.v.assign(size_t(from.channels) * padded, 0);
    made.shift.assign(groups, 0);

    // 127^2 units of a group hold the peaks s * max|u| * max|v| of its components.
    constexpr double most = 127.0 * 127.0;
    std::vector<double> peaks(made.rank);
    std::vector<int> units(groups, -max_draft_exponent);
    for (uint32_t k = 0; k < made.rank; ++k) {
        peaks[k] = from.singular[k] * detail::largest_magnitude(from.left[k]) *
                   detail::largest_magnitude(from.right[k]);
        const double unit = std::ceil(std::log2(peaks[k] / most));
        units[k / 4] = (std::max)(units[k / 4], int((std::min)(unit, 2.0 * max_draft_exponent)));
    }
    made.exponent = *std::min_element(units.begin(), units.end());
    made.exponent = (std::min)(made.exponent, max_draft_exponent);
    while (!detail::set_shifts(made, units)) {
        if (made.exponent == max_draft_exponent) return {{}, {}, {}, from.tokens, from.channels};
        ++made.exponent;
    }

    const lowrank_factors f = made.view().factors;
    for (uint32_t k = 0; k < made.rank; ++k) {
        // Both vectors get the same largest level; together they make `peak` units.
        const double unit = std::ldexp(1.0, made.exponent + made.shift[k / 4]);
        const double level = std::sqrt((std::min)(peaks[k] / unit, most));
        const double to_u = level / detail::largest_magnitude(from.left[k]);
        const double to_v = level / detail::largest_magnitude(from.right[k]);
        for (uint32_t t = 0; t < from.tokens; ++t)
            made.u[detail::u_place(f, t, k)] = int8_t(std::lround(from.left[k][t] * to_u));
        for (uint32_t c = 0; c < from.channels; ++c)
            made.v[detail::v_place(f, c, k)] = int8_t(std::lround(from.right[k][c] * to_v));
    }
    return made;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
