#pragma once
// Predictions and codes for tests: as a host engine has them, and as nobody would wish for. Made of
// integers alone; only the step from a value to its code is the library's.

#include <normans/core/scalar.hpp>
#include <normans/core/sigma.hpp>

#include "test_rng.hpp"

namespace normans_test {

enum class data_style {
    typical,      // mean within +-8, sigma 2^-7 .. 2, codes drawn around the mean
    sharp,        // sigma far below the cells: nearly every code is the mean's own
    tails,        // codes 0 to 6 sigma from the mean, uniformly: many escapes, never all
    dead,         // sigma 0 and means of +-0 and of any size; codes +-0 or the mean's
    adversarial,  // any bits for mean, sigma index and code
    mixed,        // all of these, scalar by scalar
};

struct test_scalar {
    std::uint32_t mean;   // fp32 bits
    std::uint8_t sigma;   // index
    std::uint16_t code;
    std::int64_t value;   // what the code was rounded from, in units of 2^-40; 0 if from nothing
};

struct test_scalars {
    std::vector<std::uint32_t> mean;  // fp32 bits
    std::vector<std::uint8_t> sigma;  // indices
    std::vector<std::uint16_t> code;
};

/// A float of magnitude below 2^20 in units of 2^-40.
inline std::int64_t fixed_of(std::uint32_t bits)
{
    const int shift = int(bits >> 23 & 255) - 110;
    const std::int64_t significand = (bits & 0x7fffff) | 0x800000;
    const std::int64_t magnitude = shift < -24 ? 0 : shift < 0 ? significand >> -shift
                                                               : significand << shift;
    return bits >> 31 ? -magnitude : magnitude;
}

/// n * 2^-40 as the nearest code.
inline std::uint32_t code_of_fixed(const normans::scalar_format& format, std::int64_t n)
{
    return normans::nearest_code(format, float_of(n, -40));
}

// The sigma of an index as an integer in units of 2^-40, for -16 <= log2 sigma < 3.
inline std::int64_t fixed_sigma(int index, int offset)
{
    constexpr std::int64_t root[8] = {65536, 71468,  77936,  84990,
                                      92682, 101070, 110218, 120194};  // 2^(16 + i/8)
    const int shift = offset + (index >> 3) + 24;
    return shift >= 0 ? root[index & 7] << shift : root[index & 7] >> -shift;
}

inline test_scalar draw_scalar(test_rng& rng, const normans::scalar_format& format,
                               data_style style, int offset)
{
    if (style == data_style::mixed) {
        const std::uint32_t choice = rng.below(16);
        style = choice < 8    ? data_style::typical
                : choice < 10 ? data_style::sharp
                : choice < 12 ? data_style::tails
                : choice < 13 ? data_style::dead
                              : data_style::adversarial;
    }
    const std::uint32_t any_code = rng.bits(format.code_bits);
    if (style == data_style::adversarial) {
        const std::uint32_t mean = rng.bits(32);
        const std::uint32_t near_by = normans::nearest_code(format, mean);
        const std::uint32_t mask = 2 * format.code_sign() - 1;
        const std::uint32_t codes[4] = {any_code, near_by, near_by ^ format.code_sign(),
                                        (near_by + rng.bits(4) - 8) & mask};
        return {mean, std::uint8_t(rng.bits(8)), std::uint16_t(codes[rng.below(4)]), 0};
    }
    if (style == data_style::dead) {
        const std::uint32_t mean = rng.below(3) ? rng.bits(1) << 31
                                                : rng.bits(1) << 31 | (0x3c000000u + rng.bits(26));
        const std::uint32_t code = normans::nearest_code(format, mean);
        return {mean, std::uint8_t(normans::sigma_zero),
                std::uint16_t(rng.below(8) ? code : code ^ format.code_sign()), 0};
    }
    const bool sharp = style == data_style::sharp;
    int index = 8 * ((sharp ? -14 : -7) - offset) + int(rng.below(sharp ? 24 : 64));
    index = index < 0 ? 0 : index > 254 ? 254 : index;
    const std::int64_t sigma = fixed_sigma(index, offset);
    const std::int64_t mean = std::int64_t(rng.next() >> 20) - (std::int64_t(1) << 43);  // +-8
    std::int64_t away = rng.noise();
    if (style == data_style::tails) away = std::int64_t(rng.below(12 << 16)) - (6 << 16);
    const std::int64_t value = mean + away * (sigma >> 8) / 256;
    return {float_of(mean, -40), std::uint8_t(index), std::uint16_t(code_of_fixed(format, value)),
            value};
}

inline test_scalars draw_scalars(std::uint64_t seed, normans::scalar_type type, data_style style,
                                 int offset, std::size_t count)
{
    test_rng rng(seed);
    test_scalars out;
    for (std::size_t i = 0; i < count; ++i) {
        const test_scalar one = draw_scalar(rng, normans::format_of(type), style, offset);
        out.mean.push_back(one.mean);
        out.sigma.push_back(one.sigma);
        out.code.push_back(one.code);
    }
    return out;
}

/// 256 frequencies, each >= 1, total 2^15, most of it on a few symbols.
inline std::vector<std::uint16_t> random_marginal(std::uint64_t seed)
{
    test_rng rng(seed);
    std::vector<std::uint16_t> freq(256, 1);
    std::uint32_t left = 32768 - 256;
    while (left != 0) {
        const std::uint32_t share = left < 64 ? left : 1 + rng.below(left / 4);
        std::uint16_t& one = freq[rng.below(256)];
        one = std::uint16_t(one + share);
        left -= share;
    }
    return freq;
}

}  // namespace normans_test
