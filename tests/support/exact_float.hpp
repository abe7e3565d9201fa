#pragma once
// a * b + c of three fp32 numbers as one wide integer, and its roundings. Fixed point in units of
// 2^-298, the smallest product: any finite sum fits 576 bits of two's complement. It shares nothing
// with include/ and uses no floating point.

#include <cstdint>

namespace normans_test {

class exact_sum {
public:
    /// a * b + c of finite fp32 bit patterns.
    exact_sum(std::uint32_t a, std::uint32_t b, std::uint32_t c)
    {
        const parts x = split(a), y = split(b), z = split(c);
        add(x.significand * y.significand, x.place + y.place, x.negative != y.negative);
        add(z.significand, z.place + 149, z.negative);
        negative_ = word_[words - 1] >> 63 != 0;
        if (negative_) negate();
        for (top_ = 64 * words - 1; top_ >= 0 && !bit(top_); --top_)
            if (word_[top_ / 64] == 0) top_ -= top_ % 64;
        // IEEE 754: a zero sum is positive unless both addends are negative zeros.
        if (top_ < 0)
            negative_ = x.significand * y.significand == 0 && z.significand == 0 &&
                        x.negative != y.negative && z.negative;
    }

    bool zero() const { return top_ < 0; }

    /// Rounded to fp32, nearest even. Below 2^-126 before rounding: a zero of its sign.
    std::uint32_t to_fp32() const
    {
        const std::uint32_t sign = negative_ ? 0x80000000u : 0;
        if (top_ < 298 - 126) return sign;
        std::uint32_t mantissa = std::uint32_t(from(top_ - 23));
        if (rounds_up(top_ - 23)) ++mantissa;
        const int field = top_ - 298 + 127;
        // A mantissa that became 2^24 carries into the field, as it must.
        const std::uint64_t bits = (std::uint64_t(unsigned(field - 1)) << 23) + mantissa;
        return sign | (bits < 0x7f800000u ? std::uint32_t(bits) : 0x7f800000u);
    }

private:
    static constexpr int words = 9;

    struct parts {
        std::uint64_t significand;
        int place;  // of the significand's lowest bit, in units of 2^-149
        bool negative;
    };

    static parts split(std::uint32_t bits)
    {
        const std::uint32_t field = bits >> 23 & 255, fraction = bits & 0x7fffff;
        if (field == 0) return {fraction, 0, bits >> 31 != 0};
        return {fraction | 0x800000u, int(field) - 1, bits >> 31 != 0};
    }

    void negate()
    {
        std::uint64_t carry = 1;
        for (std::uint64_t& word : word_) {
            word = ~word + carry;
            carry = carry != 0 && word == 0 ? 1 : 0;
        }
    }

    // Adds or subtracts value << place, a word at a time.
    void add(std::uint64_t value, int place, bool subtract)
    {
        const int first = place / 64, shift = place % 64;
        const std::uint64_t part[2] = {value << shift, shift == 0 ? 0 : value >> (64 - shift)};
        std::uint64_t carry = 0;
        for (int i = first; i < words; ++i) {
            const std::uint64_t term = i - first < 2 ? part[i - first] : 0;
            const std::uint64_t old = word_[i];
            if (subtract) {
                word_[i] = old - term - carry;
                carry = old < term || (old == term && carry != 0) ? 1 : 0;
            } else {
                word_[i] = old + term + carry;
                carry = word_[i] < old || (word_[i] == old && carry != 0) ? 1 : 0;
            }
        }
    }

    bool bit(int place) const { return word_[place / 64] >> (place % 64) & 1; }

    // The bits from `place` up; they fit 64.
    std::uint64_t from(int place) const
    {
        const int first = place / 64, shift = place % 64;
        std::uint64_t value = word_[first] >> shift;
        if (shift != 0 && first + 1 < words) value |= word_[first + 1] << (64 - shift);
        return value;
    }

    // Whether what lies below `place` rounds the integer above it up: over half, or half and odd.
    bool rounds_up(int place) const
    {
        if (!bit(place - 1)) return false;
        if (bit(place)) return true;
        const int whole = (place - 1) / 64, rest = (place - 1) % 64;
        for (int i = 0; i < whole; ++i)
            if (word_[i] != 0) return true;
        return (word_[whole] & ((std::uint64_t(1) << rest) - 1)) != 0;
    }

    std::uint64_t word_[words] = {};
    bool negative_ = false;
    int top_ = -1;
};

/// A finite fp32 rounded to an integer, nearest even, clamped to 16 bits: by halves, from the text.
inline int nearest_integer(std::uint32_t bits)
{
    const int field = int(bits >> 23 & 255);
    const std::int64_t significand = std::int64_t((bits & 0x7fffff) | (field != 0 ? 0x800000u : 0));
    std::int64_t doubled = 0;  // floor(2 |value|), and whether something was cut off
    bool cut = false;
    const int shift = 149 - (field != 0 ? field : 1);  // |value| = significand * 2^-(shift + 1)
    if (shift <= -24) {
        doubled = std::int64_t(1) << 40;
    } else if (shift <= 0) {
        doubled = significand << -shift;
    } else {
        doubled = shift > 40 ? 0 : significand >> shift;
        cut = significand != (shift > 40 ? 0 : doubled << shift);
    }
    std::int64_t whole = doubled / 2;
    if (doubled % 2 != 0 && (cut || whole % 2 != 0)) ++whole;
    if (bits >> 31 != 0) whole = -whole;
    return int(whole < -32768 ? -32768 : whole > 32767 ? 32767 : whole);
}

}  // namespace normans_test
