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

NORMANS_HD constexpr uint8_t clamp_sigma(int index)
{
    const int largest = int(largest_sigma_index);
    return uint8_t(index < 0 ? 0 : index > largest ? largest : index);
}

}  // namespace detail

/// Sigma index of a standard deviation.
NORMANS_HD inline uint8_t sigma_index(deviation sigma, int offset)
{
    // ceil(2^((2 i + 1) / 16) 2^23) - 2^23: the middles between grid points, on a log scale.
    constexpr uint32_t middle[8] = {0x05aac4, 0x11c3d4, 0x1ef533, 0x2d583f,
                                    0x3d08a4, 0x4e248d, 0x60ccdf, 0x75257e};
    const uint32_t bits = float_to_bits(sigma.value);
    if (bits == 0 || bits > infinity_bits) return uint8_t(sigma_zero);
    if (bits == infinity_bits) return uint8_t(largest_sigma_index);
    if (exponent_field(bits) == 0) return 0;
    int index = (int(exponent_field(bits)) - 127 - offset) * 8;
    for (const uint32_t limit : middle) index += (bits & 0x7fffff) >= limit;
    return detail::clamp_sigma(index);
}

/// Sigma index of a variance: the same grid, 4 steps per octave of the variance.
NORMANS_HD inline uint8_t sigma_index(variance squared, int offset)
{
    // ceil(2^((2 i + 1) / 8) 2^23) - 2^23.
    constexpr uint32_t middle[4] = {0x0b95c2, 0x25fed7, 0x45672b, 0x6ac0c7};
    const uint32_t bits = float_to_bits(squared.value);
    if (bits == 0 || bits > infinity_bits) return uint8_t(sigma_zero);
    if (bits == infinity_bits) return uint8_t(largest_sigma_index);
    if (exponent_field(bits) == 0) return 0;
    int index = (int(exponent_field(bits)) - 127) * 4 - offset * 8;
    for (const uint32_t limit : middle) index += (bits & 0x7fffff) >= limit;
    return detail::clamp_sigma(index);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
