#pragma once
// The deviation as a small index on a log grid, 8 steps per octave (costs under 0.001 bits):
//     sigma = 2^(offset + k / 8), k in 0..254; k = 255 says sigma = 0.
// The offset is one integer per stream or profile. Nearest on the log grid, by integer operations
// on the float's bits. Every input has one outcome:
//     zero, negative, NaN -> 255 (sigma 0); +infinity -> 254; subnormal and below the grid -> 0.
// Deviation and variance are distinct types: predictors emit either, and a mix-up must not compile.

#include "float_bits.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

constexpr uint32_t sigma_zero = 255;
constexpr uint32_t largest_sigma_index = 254;

// All sigmas lie in [2^-80, 2^100], so that slopes stay normal floats.
constexpr int min_sigma_offset = -80;
constexpr int max_sigma_offset = 68;
constexpr int default_sigma_offset = -16;

struct deviation {
    float value;
};
struct variance {
    float value;
};

namespace detail {
struct sigma_grid {
    int steps;  // in an octave of the float, and where each begins:
    uint32_t middle[8];
};

// The middles between grid points, on a log scale, as mantissas: of deviations
// ceil(2^((2 i + 1) / 16) 2^23) - 2^23, of variances the same with / 8.
NORMANS_HD constexpr sigma_grid sigma_grid_of(bool squared)
{
    if (squared) return {4, {0x0b95c2, 0x25fed7, 0x45672b, 0x6ac0c7}};
    return {8, {0x05aac4, 0x11c3d4, 0x1ef533, 0x2d583f, 0x3d08a4, 0x4e248d, 0x60ccdf, 0x75257e}};
}

NORMANS_HD constexpr uint8_t sigma_on(sigma_grid grid, uint32_t bits, int offset)
{
    if (bits == 0 || bits > infinity_bits) return uint8_t(sigma_zero);
    if (bits == infinity_bits) return uint8_t(largest_sigma_index);
    if (exponent_field(bits) == 0) return 0;
    int index = (int(exponent_field(bits)) - 127) * grid.steps - offset * 8;
    for (int i = 0; i < grid.steps; ++i) index += (bits & 0x7fffff) >= grid.middle[i];
    if (index > int(largest_sigma_index)) index = int(largest_sigma_index);
    return uint8_t(index < 0 ? 0 : index);
}

}  // namespace detail

/// Sigma index of a standard deviation.
NORMANS_HD inline uint8_t sigma_index(deviation sigma, int offset)
{
    return detail::sigma_on(detail::sigma_grid_of(false), float_to_bits(sigma.value), offset);
}

/// Sigma index of a variance.
NORMANS_HD inline uint8_t sigma_index(variance squared, int offset)
{
    return detail::sigma_on(detail::sigma_grid_of(true), float_to_bits(squared.value), offset);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
