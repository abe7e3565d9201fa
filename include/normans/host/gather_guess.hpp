#pragma once
// A first guess by table: the z that a slot stands for, 16 slots an entry. For lane groups with a
// gather. Like every guess it is no part of the format.

#include "../core/shape.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

struct gather_guess {
    static constexpr int shift = 4;
    float z[rans_format::total >> shift];
};

namespace detail {

// Inverts the piecewise G at the middle of each entry's slots.
constexpr gather_guess make_gather_guess(shape_id id)
{
    const normal_shape shape = shape_of(id);
    gather_guess guess{};
    uint32_t piece = 0;
    for (uint32_t i = 0; i < rans_format::total >> gather_guess::shift; ++i) {
        const uint32_t slot = (i << gather_guess::shift) + 8;
        while (piece < 31 && shape.escape_slots + shape.base[piece + 1] <= slot) ++piece;
        const double first = double(shape.escape_slots) + shape.base[piece];
        const double rise = double(shape.base[piece + 1]) - double(shape.base[piece]);
        guess.z[i] = float(2048.0 * (piece + (double(slot) - first) / rise) - 32768.0);
    }
    return guess;
}

template <shape_id Id>
inline constexpr gather_guess gather_guess_table = make_gather_guess(Id);

}  // namespace detail

inline const gather_guess& gather_guess_of(shape_id id)
{
    switch (id) {
    case shape_id::mixture: return detail::gather_guess_table<shape_id::mixture>;
    case shape_id::mixture_marginal:
        return detail::gather_guess_table<shape_id::mixture_marginal>;
    case shape_id::gaussian: break;
    }
    return detail::gather_guess_table<shape_id::gaussian>;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
