#pragma once
// The scalar types and their codes: plain uint8_t or uint16_t, sign and magnitude (integers: two's
// complement). Neighbours in value are neighbours in magnitude, and the edges between cells, the
// midpoints of two values, are exact in fp32. The fnuz types have no -0: their code 0x80, the NaN,
// keeps the cell just below zero, so that one form serves all types; a zero costs one bit more.

#include "float_bits.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Stored in every block. raw8 has no model (raw or constant); from int8 on see uniform_scalar.hpp.
enum class scalar_type : uint8_t { e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, bf16, fp16, raw8,
                                   int8, int4, e2m1 };

struct scalar_format {
    unsigned code_bits;
    unsigned mantissa_bits;
    int bias;
    uint32_t largest_finite;  // magnitude
    uint32_t quiet_nan;       // the code that stands for a NaN mean
    bool has_infinity;        // then its magnitude is largest_finite + 1
    bool has_negative_zero;
    bool is_integer = false;

    NORMANS_HD constexpr uint32_t code_sign() const { return uint32_t(1) << (code_bits - 1); }
};

NORMANS_HD constexpr scalar_format format_of(scalar_type type)
{
    switch (type) {
    case scalar_type::e4m3fn: return {8, 3, 7, 0x7e, 0x7f, false, true};
    case scalar_type::e5m2: return {8, 2, 15, 0x7b, 0x7e, true, true};
    case scalar_type::e4m3fnuz: return {8, 3, 8, 0x7f, 0x80, false, false};
    case scalar_type::e5m2fnuz: return {8, 2, 16, 0x7f, 0x80, false, false};
    case scalar_type::bf16: return {16, 7, 127, 0x7f7f, 0x7fc0, true, true};
    case scalar_type::fp16: return {16, 10, 15, 0x7bff, 0x7e00, true, true};
    case scalar_type::int8: return {8, 0, 0, 0x7f, 0, false, true, true};
    case scalar_type::int4: return {4, 0, 0, 0x07, 0, false, true, true};
    case scalar_type::e2m1: return {4, 1, 1, 0x07, 0, false, true};
    case scalar_type::raw8: break;
    }
    return {8, 0, 0, 0, 0, false, false};
}

NORMANS_HD constexpr bool valid_scalar(scalar_type type) { return type <= scalar_type::e2m1; }
NORMANS_HD constexpr bool has_model(scalar_type t)
{
    return valid_scalar(t) && t != scalar_type::raw8;
}

/// Bytes of one code as the coder takes it: 1 or 2.
NORMANS_HD constexpr uint32_t code_bytes(scalar_type type)
{
    return type == scalar_type::bf16 || type == scalar_type::fp16 ? 2 : 1;
}

NORMANS_HD constexpr const char* scalar_name(scalar_type type)
{
    constexpr const char* names[] = {"e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "bf16",
                                     "fp16",   "raw8", "int8",     "int4",     "e2m1"};
    return valid_scalar(type) ? names[uint32_t(type)] : "unknown type";
}

/// Position of a code in numeric order, 0 .. 2^code_bits - 1: negative codes from the largest
/// magnitude down, then -0, +0, and upward. NaNs sit at the ends (0x80 of fnuz where -0 would be).
NORMANS_HD constexpr uint32_t ordered_index(scalar_format format, uint32_t code)
{
    const uint32_t sign = format.code_sign();
    return format.is_integer || code < sign ? code ^ sign : sign - 1 - (code & (sign - 1));
}

namespace detail {
// n * 2^-(bias + mantissa_bits) as fp32 bits: n half-steps of the subnormals. n < 2^24.
NORMANS_HD inline uint32_t half_steps(scalar_format format, uint32_t n)
{
    if (n == 0) return 0;
    return float_to_bits(float(int32_t(n))) -
           (uint32_t(format.bias + int(format.mantissa_bits)) << 23);
}
}  // namespace detail

/// The lower edge of the cell of magnitude `magnitude` as fp32 bits (positive): 0 for 0, else the
/// midpoint to the magnitude below. In bit patterns that is the value below plus half its last
/// place, also across a binade's edge. magnitude <= largest_finite + 1.
NORMANS_HD inline uint32_t edge_bits(scalar_format format, uint32_t magnitude)
{
    if (magnitude == 0) return 0;
    const unsigned half = 22 - format.mantissa_bits;
    const uint32_t odd = 2 * magnitude - 1;
    if (format.bias == 127) return odd << half;  // bf16: fp32's own subnormals
    if (magnitude <= uint32_t(1) << format.mantissa_bits) return detail::half_steps(format, odd);
    return (odd << half) + (uint32_t(127 - format.bias) << 23);
}

/// The exact value of a finite code as fp32 bits.
NORMANS_HD inline uint32_t value_bits(scalar_format format, uint32_t code)
{
    const uint32_t magnitude = code & (format.code_sign() - 1);
    const uint32_t sign = code & format.code_sign() ? sign_bit : 0;
    const unsigned shift = 23 - format.mantissa_bits;
    if (format.bias == 127) return sign | magnitude << shift;
    if (magnitude < uint32_t(1) << format.mantissa_bits)
        return sign | detail::half_steps(format, 2 * magnitude);
    return sign | ((magnitude << shift) + (uint32_t(127 - format.bias) << 23));
}

/// True for the codes that have no place on the number line.
NORMANS_HD constexpr bool is_special(scalar_format format, uint32_t code)
{
    return (code & (format.code_sign() - 1)) > format.largest_finite ||
           (!format.has_negative_zero && code == format.code_sign());
}

/// The code nearest to an fp32 value, ties to even. Beyond the range: infinity where the type has
/// one, else the largest finite code. NaN: quiet_nan. -0 of the fnuz types is 0.
NORMANS_HD inline uint32_t nearest_code(scalar_format format, uint32_t value)
{
    if (is_nan(value)) return format.quiet_nan;
    const uint32_t limit = format.largest_finite + (format.has_infinity ? 1 : 0);
    const uint32_t bits = value & ~sign_bit;
    const unsigned shift = 23 - format.mantissa_bits;
    const uint32_t rebias = uint32_t(127 - format.bias) << 23;
    uint32_t magnitude = 0;
    if (bits >= rebias + (uint32_t(1) << 23) || format.bias == 127) {
        const uint32_t even = bits >> shift & 1;
        magnitude = (bits + (uint32_t(1) << (shift - 1)) - 1 + even - rebias) >> shift;
    } else {  // subnormal: |value| in half-steps, rounded by a right shift of the significand
        const uint32_t drop = (rebias >> 23) + 1 + shift - exponent_field(bits);
        const uint32_t significand = (bits & 0x7fffff) | 0x800000u;
        if (exponent_field(bits) != 0 && drop < 26) {
            const uint32_t even = significand >> drop & 1;
            magnitude = (significand + (uint32_t(1) << (drop - 1)) - 1 + even) >> drop;
        }
    }
    if (magnitude > limit) magnitude = limit;
    if (magnitude == 0 && !format.has_negative_zero) return 0;
    return magnitude | (value & sign_bit ? format.code_sign() : 0);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
