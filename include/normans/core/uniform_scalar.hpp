#pragma once
// Scalars with a scale: int8, int4 and e2m1 (fp4), value = code * scale, where the scale of a row
// or group is the caller's. They are coded in code units: the mean is divided by the scale and
// sigma too, then the rules of the other types hold. 4-bit codes lie two to a byte, the first in
// the low nibble.
//   - The scale is an fp32. It counts if it is in [2^-24, 2^24): then every number below stays
//     normal. Else (zero, as in an empty Q8_0 block; negative, NaN) the mean is 0 and sigma 0.
//   - Integers saturate: a mean beyond the range is expected at its end, and the last codes take
//     all that lies beyond them. NaN is a mean of 0.

#include "scalar.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

NORMANS_HD constexpr bool has_scale(scalar_type type)
{
    return type == scalar_type::int8 || type == scalar_type::int4 || type == scalar_type::e2m1;
}

/// Bytes of `count` codes in memory.
NORMANS_HD constexpr uint64_t raw_bytes(scalar_type type, uint64_t count)
{
    return (count * format_of(type).code_bits + 7) / 8;
}

/// A scale as the coder needs it.
struct code_scale {
    uint32_t scale;    // fp32 bits; 0 if it does not count
    uint32_t inverse;  // 1 / scale, rounded once
    int eighths;       // 8 log2(scale), rounded to the grid of sigma indices
};

NORMANS_HD inline code_scale make_scale(uint32_t scale)
{
    const uint32_t field = scale >> 23;  // with the sign
    if (field < 127 - 24 || field >= 127 + 24) return {0, 0, 0};
#if defined(__CUDA_ARCH__)
    uint32_t inverse;
    asm("rcp.rn.f32 %0, %1;" : "=r"(inverse) : "r"(scale));
#else
    const uint64_t significand = (scale & 0x7fffff) | 0x800000u;
    // 2^47 / significand has 24 bits, or is 2^24; never a tie.
    const uint32_t quotient = uint32_t(((uint64_t(1) << 48) / significand + 1) / 2);
    const uint32_t inverse = ((252 - field) << 23) + quotient;
#endif
    // The middles between 2^(i / 8) on a log scale, as in sigma_index().
    static constexpr uint32_t middle[8] = {0x05aac4, 0x11c3d4, 0x1ef533, 0x2d583f,
                                           0x3d08a4, 0x4e248d, 0x60ccdf, 0x75257e};
    const uint32_t fraction = scale & 0x7fffff;
    uint32_t above = fraction >= middle[3] ? 4 : 0;
    above += fraction >= middle[above + 1] ? 2 : 0;
    above += fraction >= middle[above] ? 1 : 0;
    above += fraction >= middle[7] ? 1 : 0;
    return {scale, inverse, 8 * (int(field) - 127) + int(above)};
}

/// The nearest integer code to a mean in code units (fp32 bits, cleaned), ties to even.
NORMANS_HD inline uint32_t nearest_integer_code(scalar_format format, uint32_t mean)
{
    const uint32_t largest = format.largest_finite, field = exponent_field(mean);
    const bool negative = mean >> 31 != 0;
    uint32_t magnitude = largest + 1;
    if (is_nan(mean) || field < 126) {
        magnitude = 0;
    } else if (field < 127 + 8) {
        const uint32_t shift = 150 - field, significand = (mean & 0x7fffff) | 0x800000u;
        const uint32_t even = significand >> shift & 1;
        magnitude = (significand + (uint32_t(1) << (shift - 1)) - 1 + even) >> shift;
    }
    if (magnitude > largest) magnitude = negative ? largest + 1 : largest;
    return (negative ? 0 - magnitude : magnitude) & (2 * format.code_sign() - 1);
}

/// The mean in code units: fp32 bits, cleaned like mu' (see map_mean).
NORMANS_HD inline uint32_t mean_in_codes(uint32_t mean, const code_scale& scale)
{
    return scale.scale == 0 ? 0 : map_mean(mean, scale.inverse, minus_zero_bits);
}

/// The code that a mean in code units says; what predicted blocks hold.
NORMANS_HD inline uint32_t expected_code(scalar_format format, uint32_t mean)
{
    return format.is_integer ? nearest_integer_code(format, mean) : nearest_code(format, mean);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
