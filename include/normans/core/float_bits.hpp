#pragma once
// IEEE single precision as bit patterns. The model needs a few correctly rounded operations that
// give the same bits under -ffast-math, without FMA hardware and with flush-to-zero set. So floats
// travel as uint32_t; doubles compute only where every possible rounding of theirs is harmless (an
// exact product, or an estimate whose doubtful cases go to the integers of fma_exact), and results
// are read as bits, since a cast to float may be folded away under -ffast-math.
// Results below 2^-126 are zeros of their sign here: no rule of the model can see the difference.

#include <cstring>

#include "../config.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

constexpr uint32_t sign_bit = 0x80000000u;
constexpr uint32_t infinity_bits = 0x7f800000u;
constexpr uint32_t quiet_nan_bits = 0x7fc00000u;
constexpr uint32_t one_bits = 0x3f800000u;
constexpr uint32_t minus_zero_bits = sign_bit;

NORMANS_HD inline uint32_t float_to_bits(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

NORMANS_HD inline float bits_to_float(uint32_t bits)
{
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

NORMANS_HD inline uint64_t double_to_bits(double value)
{
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

NORMANS_HD constexpr uint32_t exponent_field(uint32_t bits) { return bits >> 23 & 255; }
NORMANS_HD constexpr bool is_nan(uint32_t bits) { return (bits & ~sign_bit) > infinity_bits; }
NORMANS_HD inline double widen(uint32_t bits) { return double(bits_to_float(bits)); }

/// The double with these bits, rounded to fp32 (nearest even). Finite input.
NORMANS_HD inline uint32_t round_to_fp32(uint64_t bits)
{
    const uint32_t sign = uint32_t(bits >> 32) & sign_bit;
    uint64_t magnitude = bits & ~(uint64_t(1) << 63);
    if (magnitude < uint64_t(1023 - 126) << 52) return sign;
    magnitude += 0x0fffffff + (magnitude >> 29 & 1);
    const uint64_t rounded = (magnitude >> 29) - (uint64_t(1023 - 127) << 23);
    return sign | (rounded < infinity_bits ? uint32_t(rounded) : infinity_bits);
}

/// a * b, rounded once. Finite operands. (The product of two floats is exact in double.)
NORMANS_HD inline uint32_t multiply(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__)
    uint32_t product;
    asm("mul.rn.ftz.f32 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
#else
    return round_to_fp32(double_to_bits(widen(a) * widen(b)));
#endif
}

namespace detail {

// value = significand * 2^exponent, significand with bit 61 set (or 0).
struct scaled {
    uint64_t significand;
    int exponent;
    bool negative;
};

NORMANS_HD inline void normalize(scaled& x)
{
    if (x.significand == 0) return;
    for (int step = 32; step != 0; step /= 2) {
        if (x.significand >> (62 - step) == 0) {
            x.significand <<= step;
            x.exponent -= step;
        }
    }
}

NORMANS_HD inline scaled unpack(uint32_t bits)
{
    const uint32_t field = exponent_field(bits);
    const uint32_t fraction = bits & 0x7fffff;
    if (field == 0) return {fraction, -149, bits >> 31 != 0};
    return {fraction | 0x800000u, int(field) - 150, bits >> 31 != 0};
}

// x rounded to fp32, nearest even; `significand` bit 0 may be sticky.
NORMANS_HD inline uint32_t pack(scaled x)
{
    const uint32_t sign = x.negative ? sign_bit : 0;
    normalize(x);
    uint64_t mantissa = x.significand >> 38;  // 24 bits
    const uint64_t rest = x.significand & ((uint64_t(1) << 38) - 1), half = uint64_t(1) << 37;
    if (rest > half || (rest == half && (mantissa & 1))) ++mantissa;
    const int field = x.exponent + 61 + 127;
    if (field < 1) return sign;
    const uint32_t bits = (uint32_t(field - 1) << 23) + uint32_t(mantissa);
    return sign | (field < 255 && bits < infinity_bits ? bits : infinity_bits);
}

}  // namespace detail

/// a * b + c in integers, rounded once. Finite operands; an exact cancellation gives +0.
NORMANS_HD inline uint32_t fma_exact(uint32_t a, uint32_t b, uint32_t c)
{
    const detail::scaled left = detail::unpack(a), right = detail::unpack(b);
    detail::scaled x = {left.significand * right.significand, left.exponent + right.exponent,
                        left.negative != right.negative};
    detail::scaled y = detail::unpack(c);
    if (x.significand == 0 && y.significand == 0)
        return x.negative && y.negative ? minus_zero_bits : 0;
    if (x.significand == 0) return detail::pack(y);
    detail::normalize(x);
    detail::normalize(y);
    if (y.significand != 0 && (y.exponent > x.exponent ||
                               (y.exponent == x.exponent && y.significand > x.significand))) {
        const detail::scaled larger = y;
        y = x;
        x = larger;
    }
    if (y.significand != 0) {
        const int distance = x.exponent - y.exponent;  // what is shifted out stays as a sticky bit
        const uint64_t lost = distance > 61 ? ~uint64_t(0) : (uint64_t(1) << distance) - 1;
        const uint64_t sticky = (y.significand & lost) != 0 ? 1 : 0;
        y.significand = distance > 61 ? sticky : y.significand >> distance | sticky;
        x.significand += x.negative == y.negative ? y.significand : ~y.significand + 1;
    }
    if (x.significand == 0) return 0;
    if (x.significand >> 62 != 0) {
        x.significand = x.significand >> 1 | (x.significand & 1);
        ++x.exponent;
    }
    return detail::pack(x);
}

/// mu' = fma(mu, a, b), rounded once, with the model's rules for zeros and NaN: exponent field 0 of
/// mu and exponent fields 0 and 1 of mu' are zeros of their sign, every NaN is the positive quiet
/// one. a and b are zero or normal. The identity is a = 1, b = -0.0 (+0.0 would turn -0 into +0).
NORMANS_HD inline uint32_t map_mean(uint32_t mean, uint32_t a, uint32_t b)
{
    if (exponent_field(mean) == 255) {
        if (is_nan(mean) || (a & ~sign_bit) == 0) return quiet_nan_bits;
        return infinity_bits | ((mean ^ a) & sign_bit);
    }
    if (exponent_field(mean) == 0) mean &= sign_bit;
    uint32_t mapped = mean;
    if (((mean & ~sign_bit) == 0 || (a & ~sign_bit) == 0)) {
        const uint32_t product = (mean ^ a) & sign_bit;
        mapped = (b & ~sign_bit) != 0 ? b : product & b;
    } else if (a != one_bits || b != minus_zero_bits) {
#if defined(__CUDA_ARCH__)
        mapped = float_to_bits(__fmaf_rn(bits_to_float(mean), bits_to_float(a), bits_to_float(b)));
#else
        const uint64_t sum = double_to_bits(widen(mean) * widen(a) + widen(b));
        const uint32_t below = uint32_t(sum) & 0x1fffffff;  // the bits that fp32 has not
        if (below - 0x0fffffffu <= 2)
            mapped = fma_exact(mean, a, b);  // within an ulp of a tie: the sum was rounded before
        else
            mapped = sum << 1 == 0 ? 0 : round_to_fp32(sum);
#endif
    }
    return exponent_field(mapped) <= 1 ? mapped & sign_bit : mapped;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
