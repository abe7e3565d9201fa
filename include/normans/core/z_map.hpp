#pragma once
// z of an edge: round(fma(edge, slope, bias)), where the fma rounds once to fp32 and the result
// once more to an integer, nearest even, clamped to 16 bits. The host takes a double estimate,
// right unless the exact value lies within 2^-9 of a tie (the fp32 rounding moves it by at most
// 2^-10 where |z| < 2^15); those go to the integers. So contraction, -ffast-math, flush-to-zero
// and a missing FMA cannot change z. Devices have the fma.

#include "float_bits.hpp"
#include "shape.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

namespace detail {
// fp32 bits -> nearest integer, ties to even, clamped.
NORMANS_HD inline int round_to_z(uint32_t bits)
{
    const uint32_t field = exponent_field(bits);
    const bool negative = bits >> 31 != 0;
    if (field < 126) return 0;
    if (field >= 127 + 15) return negative ? lowest_z : highest_z;
    const uint32_t shift = 150 - field, significand = (bits & 0x7fffff) | 0x800000u;
    const uint32_t even = significand >> shift & 1;
    const int z = int((significand + (uint32_t(1) << (shift - 1)) - 1 + even) >> shift);
    return negative ? -z : z > highest_z ? highest_z : z;
}
}  // namespace detail

/// The definition, in integers. Finite operands.
NORMANS_HD inline int z_exact(uint32_t edge, uint32_t slope, uint32_t bias)
{
    return detail::round_to_z(fma_exact(edge, slope, bias));
}

/// The same integer, faster.
NORMANS_HD inline int z_of(uint32_t edge, uint32_t slope, uint32_t bias)
{
#if defined(__CUDA_ARCH__)
    const float z = __fmaf_rn(bits_to_float(edge), bits_to_float(slope), bits_to_float(bias));
    short nearest;  // to even, and clamped: one instruction
    asm("cvt.rni.s16.f32 %0, %1;" : "=h"(nearest) : "f"(z));
    return nearest;
#else
    double z = widen(edge) * widen(slope) + widen(bias);
    z = z < -40000.0 ? -40000.0 : z > 40000.0 ? 40000.0 : z;
    const int64_t fixed = int64_t((z + 65536.0) * 32768.0);  // positive: truncation is floor
    const uint32_t from_tie = uint32_t(fixed & 32767) - (16384 - 64);
    if (from_tie <= 128) return z_exact(edge, slope, bias);
    const int64_t rounded = ((fixed + 16384) >> 15) - 65536;
    return int(rounded < lowest_z ? lowest_z : rounded > highest_z ? highest_z : rounded);
#endif
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
