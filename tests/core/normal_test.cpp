// core/normal.hpp: the rules one by one, each against the text of the format in plain arithmetic.
// All codes under all means is normal_exhaustive.cpp's.

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <normans/core/normal.hpp>

#include "support/exact_float.hpp"
#include "support/random_scalars.hpp"

using namespace normans;
using namespace normans_test;

namespace {

constexpr shape_id shapes[] = {shape_id::gaussian, shape_id::mixture, shape_id::mixture_marginal};

// floor of log2 of the scaled sigma, plus 127: 2^(offset + k/8 + j/4), an exact rational exponent.
int sigma_field_of(int offset, int k, int j)
{
    return int(std::floor((8 * offset + k + 2 * j) / 8.0)) + 127;
}

// A normal mean with this exponent field, or a zero.
uint32_t mean_of(test_rng& rng, int field)
{
    const uint32_t sign = rng.bits(1) << 31;
    return field <= 1 ? sign : sign | uint32_t(field) << 23 | rng.bits(23);
}

// The boundary's value: the midpoint of two neighbouring values, from the textbook.
uint32_t boundary_bits(const scalar_format& format, uint32_t magnitude)
{
    const auto value = [&](uint32_t m) {
        const uint32_t field = m >> format.mantissa_bits;
        const uint32_t fraction = m & ((1u << format.mantissa_bits) - 1);
        const double significand =
            fraction + (field ? std::ldexp(1.0, int(format.mantissa_bits)) : 0);
        return std::ldexp(significand,
                          int(field ? field : 1) - format.bias - int(format.mantissa_bits));
    };
    return magnitude == 0 ? 0 : float_to_bits(float((value(magnitude - 1) + value(magnitude)) / 2));
}

template <scalar_type Type>
scalar_model random_model(test_rng& rng, const normal_model<Type>& model)
{
    const uint32_t k = rng.below(255);
    const int j = rng.below(2) ? 0 : rng.between(min_row_step, max_row_step);
    const int field = sigma_field_of(model.sigma_offset, int(k), j) + rng.between(-10, 16);
    const int clamped = field < 0 ? 0 : field > 254 ? 254 : field;
    return model.prepare(mean_of(rng, clamped), k, j);
}

template <class Function>
void for_all_types(Function f)
{
    f(std::integral_constant<scalar_type, scalar_type::e4m3fn>{});
    f(std::integral_constant<scalar_type, scalar_type::e5m2>{});
    f(std::integral_constant<scalar_type, scalar_type::e4m3fnuz>{});
    f(std::integral_constant<scalar_type, scalar_type::e5m2fnuz>{});
    f(std::integral_constant<scalar_type, scalar_type::bf16>{});
    f(std::integral_constant<scalar_type, scalar_type::fp16>{});
}

}  // namespace

TEST_CASE("row_slope is fl32(2^(-j/4)), j = -6..9")
{
    const uint32_t bits[16] = {0x403504f3, 0x401837f0, 0x40000000, 0x3fd744fd,
                               0x3fb504f3, 0x3f9837f0, 0x3f800000, 0x3f5744fd,
                               0x3f3504f3, 0x3f1837f0, 0x3f000000, 0x3ed744fd,
                               0x3eb504f3, 0x3e9837f0, 0x3e800000, 0x3e5744fd};
    for (int j = min_row_step; j <= max_row_step; ++j) {
        CAPTURE(j);
        CHECK(row_slope(j) == bits[j + 6]);
        CHECK(row_slope(j) == float_to_bits(float(std::exp2(-j / 4.0L))));
    }
}

TEST_CASE("prepare: slope, bias, far, group size")
{
    test_rng rng(81);
    for_all_types([&](auto type) {
        constexpr scalar_type scalar = decltype(type)::value;
        constexpr scalar_format format = format_of(scalar);
        CAPTURE(doctest::String(scalar_name(scalar)));
        uint64_t wrong = 0;
        for (const shape_id id : shapes)
            for (const int offset : {min_sigma_offset, -31, -16, 3, max_sigma_offset})
                for (uint32_t k = 0; k < 255; k += 1 + rng.below(2))
                    for (int j = min_row_step; j <= max_row_step; ++j) {
                        const normal_model<scalar> model{shape_of(id), offset, nullptr};
                        const normal_shape& shape = model.shape;
                        const int es = sigma_field_of(offset, int(k), j);
                        const auto table = [&](int index) {
                            return float(32768.0L / shape.range * std::exp2(-index / 8.0L));
                        };
                        const float plain = std::ldexp(table(k & 7), -(offset + int(k >> 3)));
                        const uint32_t slope = exact_sum(
                            float_to_bits(plain), float_to_bits(float(std::exp2(-j / 4.0L))), 0)
                                                   .to_fp32();
                        for (const int field : {0, es - 30, es - 1, es, es + 1, es + 7, es + 15,
                                                es + 16, es + 17, 254}) {
                            if (field < 0 || field > 254) continue;
                            const uint32_t mean = mean_of(rng, field);
                            const int mu = int(exponent_field(mean));
                            const scalar_model m = model.prepare(mean, k, j);
                            const bool far = mu >= es + 16;
                            wrong += m.is_far != far || m.mean != mean;
                            if (far || m.is_far) continue;
                            wrong += m.slope != slope;
                            const uint32_t zero = (mean ^ slope) & sign_bit;
                            wrong += m.bias != (exact_sum(mean, slope, zero).to_fp32() ^ sign_bit);
                            const int p = int(format.mantissa_bits);
                            int er = mu > es ? mu : es;
                            if (er < 128 - format.bias) er = 128 - format.bias;
                            int g = es - er + p - 3;
                            const int most = p > 3 ? p - 3 : 0;
                            g = g < 0 ? 0 : g > most ? most : g;
                            wrong += m.group_bits != uint32_t(g);
                            // At the larger of the two, a group spans sigma/16 .. sigma/8.
                            if (g > 0) {
                                const double width = std::ldexp(1.0, er - 127 - p + g);
                                const double sigma = std::exp2(offset + k / 8.0 + j / 4.0);
                                wrong += width > sigma / 8 * 1.0000001 || width < sigma / 16;
                            }
                        }
                        for (const uint32_t mean : {infinity_bits, infinity_bits | sign_bit,
                                                    quiet_nan_bits})
                            wrong += !model.prepare(mean, k, j).is_far;
                    }
        CHECK(wrong == 0);
        const normal_model<scalar> model{shape_of(shape_id::gaussian), -16, nullptr};
        for (const uint32_t mean : {0u, minus_zero_bits, one_bits, infinity_bits})
            CHECK(model.prepare(mean, sigma_zero, 0).is_far);
    });
}

TEST_CASE("cdf: C of a boundary from the midpoint, one fma and one rounding")
{
    test_rng rng(82);
    for_all_types([&](auto type) {
        constexpr scalar_type scalar = decltype(type)::value;
        constexpr scalar_format format = format_of(scalar);
        CAPTURE(doctest::String(scalar_name(scalar)));
        uint64_t wrong = 0, models = 0;
        while (models < 4000 / thin) {
            const normal_model<scalar> model{shape_of(shapes[rng.below(3)]),
                                             rng.between(-40, 8), nullptr};
            const scalar_model m = random_model(rng, model);
            if (m.is_far) continue;
            ++models;
            const int top = int(format.largest_finite >> m.group_bits);
            REQUIRE(m.last_group <= top);
            for (int i = 0; i < 60; ++i) {
                // Near the mean half of the time, else anywhere.
                const uint32_t code = nearest_code(format, m.mean);
                const uint32_t magnitude = code & (format.code_sign() - 1);
                int n = rng.below(2) ? rng.between(-1 - m.last_group, m.last_group + 1)
                                     : int(magnitude >> m.group_bits) + rng.between(-20, 20);
                if (n > m.last_group + 1) n = m.last_group + 1;
                if (code & format.code_sign()) n = -n;
                const uint32_t past = uint32_t(n < 0 ? -n : n) << m.group_bits;
                int z = n < 0 ? lowest_z : highest_z;
                if (past <= format.largest_finite) {
                    const uint32_t edge = boundary_bits(format, past) | (n < 0 ? sign_bit : 0);
                    z = nearest_integer(exact_sum(edge, m.slope, m.bias).to_fp32());
                }
                wrong += model.cdf(m, n) != model.shape.escape_slots + gaussian_cdf(model.shape, z);
            }
        }
        CHECK(wrong == 0);
    });
}

TEST_CASE("slots: find and locate agree on every slot, and the intervals tile the total")
{
    test_rng rng(83);
    for_all_types([&](auto type) {
        constexpr scalar_type scalar = decltype(type)::value;
        constexpr scalar_format format = format_of(scalar);
        CAPTURE(doctest::String(scalar_name(scalar)));
        uint64_t wrong = 0;
        for (int round = 0; round < (thin == 1 ? 60 : 3); ++round) {
            const normal_model<scalar> model{shape_of(shapes[round % 3]), rng.between(-24, 0),
                                             nullptr};
            const scalar_model m = random_model(rng, model);
            const uint32_t escape_slots = model.shape.escape_slots;
            uint32_t expected = escape_slots;  // the slot where the next interval must begin
            for (uint32_t slot = escape_slots; slot < rans_format::total; ++slot) {
                const int guess = rng.between(-1 - m.last_group, m.last_group + 1);
                const interval at =
                    m.is_far ? model.locate_far(m, slot) : model.locate(m, slot, guess);
                if (at.corrupt) {
                    wrong += slot < model.cdf(m, m.last_group + 1);
                    continue;
                }
                wrong += slot < at.start || slot >= at.start + at.freq || at.escaped;
                if (slot == at.start) {
                    wrong += slot != expected;
                    expected = at.start + at.freq;
                    for (const uint32_t low : {0u, (1u << at.raw_bits) - 1}) {
                        const interval found = model.find(m, at.code | low);
                        wrong += found.start != at.start || found.freq != at.freq ||
                                 found.code != at.code || found.raw_bits != at.raw_bits ||
                                 found.escaped || found.corrupt;
                    }
                }
            }
            wrong += expected + 3 < rans_format::total;
            wrong += !m.is_far && m.group_bits > format.mantissa_bits - 3;
        }
        CHECK(wrong == 0);
    });
}

TEST_CASE("every code is codable under every model, and belongs to the interval it is given")
{
    test_rng rng(84);
    for_all_types([&](auto type) {
        constexpr scalar_type scalar = decltype(type)::value;
        constexpr scalar_format format = format_of(scalar);
        CAPTURE(doctest::String(scalar_name(scalar)));
        uint64_t wrong = 0;
        const int rounds = format.code_bits == 8 ? 4000 : 60;
        for (int round = 0; round < rounds / int(thin) + 1; ++round) {
            const normal_model<scalar> model{shape_of(shapes[round % 3]),
                                             rng.between(min_sigma_offset, max_sigma_offset),
                                             nullptr};
            const scalar_model m =
                round % 2 ? random_model(rng, model)
                          : model.prepare(map_mean(rng.bits(32), one_bits, minus_zero_bits),
                                          rng.bits(8), rng.between(min_row_step, max_row_step));
            for (uint32_t code = 0; code < 2 * format.code_sign(); ++code) {
                const interval found = model.find(m, code);
                wrong += found.freq == 0 || found.start + found.freq > rans_format::total;
                if (found.escaped) {
                    wrong += found.start != 0 || found.freq != model.shape.escape_slots ||
                             found.code != 0 || found.raw_bits != 8;
                } else {
                    wrong += found.start < model.shape.escape_slots;
                    wrong += found.code >> found.raw_bits != code >> found.raw_bits ||
                             (found.code & ((1u << found.raw_bits) - 1)) != 0;
                    // Special codes have no place; only a far mean can expect one.
                    wrong += (code & (format.code_sign() - 1)) > format.largest_finite && !m.is_far;
                }
            }
        }
        CHECK(wrong == 0);
    });
}

TEST_CASE("far: three intervals")
{
    for_all_types([&](auto type) {
        constexpr scalar_type scalar = decltype(type)::value;
        constexpr scalar_format format = format_of(scalar);
        CAPTURE(doctest::String(scalar_name(scalar)));
        for (const shape_id id : shapes) {
            const normal_model<scalar> model{shape_of(id), -16, nullptr};
            const uint32_t escape_slots = model.shape.escape_slots;
            for (const uint32_t mean : {0u, minus_zero_bits, one_bits, 0xbf900000u, infinity_bits,
                                        infinity_bits | sign_bit, quiet_nan_bits}) {
                const scalar_model m = model.prepare(mean, sigma_zero, 0);
                const uint32_t code = nearest_code(format, mean);
                const interval own = model.find(m, code);
                CHECK(own.start == escape_slots);
                CHECK(own.freq == 32768 - 512 - escape_slots);
                CHECK(own.code == code);
                const interval other = model.find(m, code ^ format.code_sign());
                CHECK(other.start == 32768 - 512);
                CHECK(other.freq == 512);
                CHECK(other.code == (code ^ format.code_sign()));
                CHECK(model.find(m, code ^ 1).escaped);
                CHECK(model.locate_far(m, escape_slots).code == code);
                CHECK(model.locate_far(m, 32768 - 513).code == code);
                CHECK(model.locate_far(m, 32768 - 512).code == other.code);
                CHECK(model.locate_far(m, 32767).code == other.code);
                CHECK(own.raw_bits == 0);
                CHECK(other.raw_bits == 0);
            }
        }
    });
    // fnuz: a NaN mean stands for 0x80, whose other sign is 0x00.
    const normal_model<scalar_type::e4m3fnuz> model{shape_of(shape_id::gaussian), -16, nullptr};
    const scalar_model nan = model.prepare(quiet_nan_bits, sigma_zero, 0);
    CHECK(model.find(nan, 0x80).freq == 32768 - 512 - 32);
    CHECK(model.find(nan, 0x00).freq == 512);
}

TEST_CASE("+0 and -0 share the mass around a zero mean, whatever the sign of that zero")
{
    const normal_model<scalar_type::e4m3fn> model{shape_of(shape_id::gaussian), -16, nullptr};
    for (uint32_t k = 0; k <= 136; ++k) {  // above that a zero's cell has no slot of its own
        for (const uint32_t mean : {0u, minus_zero_bits}) {
            const scalar_model m = model.prepare(mean, k, 0);
            const interval plus = model.find(m, 0x00), minus = model.find(m, 0x80);
            REQUIRE_FALSE(plus.escaped);
            REQUIRE_FALSE(minus.escaped);
            CHECK(plus.start == minus.start + minus.freq);
            CHECK(plus.start == 32 + 16368);
        }
    }
}

TEST_CASE("C follows the real Gaussian")
{
    // Straight pieces of a quarter sigma leave at most h^2 / 8 max|phi'| of the mass between them
    // and the curve: 62 slots. z's own rounding adds a few where the mean is 16 sigma from zero.
    test_rng rng(85);
    for_all_types([&](auto type) {
        constexpr scalar_type scalar = decltype(type)::value;
        constexpr scalar_format format = format_of(scalar);
        CAPTURE(doctest::String(scalar_name(scalar)));
        double worst = 0;
        for (int round = 0; round < 20000 / int(thin); ++round) {
            const normal_model<scalar> model{shape_of(shape_id::gaussian), -12, nullptr};
            const uint32_t k = rng.below(120);
            const int j = rng.between(min_row_step, max_row_step);
            const double sigma = std::exp2(-12 + k / 8.0 + j / 4.0);
            const double mean = sigma * (double(rng.below(32001)) / 1000 - 16);
            const uint32_t bits = map_mean(float_to_bits(float(mean)), one_bits, minus_zero_bits);
            const scalar_model m = model.prepare(bits, k, j);
            const uint32_t code =
                nearest_code(format, float_to_bits(float(mean + sigma * (rng.noise() / 65536.0))));
            if (is_special(format, code)) continue;
            const interval found = model.find(m, code);
            if (found.escaped) continue;
            const uint32_t group = (found.code & (format.code_sign() - 1)) >> m.group_bits;
            const bool negative = (found.code & format.code_sign()) != 0;
            const uint32_t near_zero = group << m.group_bits, away = (group + 1) << m.group_bits;
            const double far_edge = away > format.largest_finite ? 1e30
                                                                 : widen(edge_bits(format, away));
            const double low = negative ? -far_edge : widen(edge_bits(format, near_zero));
            const double high = negative ? -widen(edge_bits(format, near_zero)) : far_edge;
            const auto cdf = [&](double x) {
                return 32 + 32736 * 0.5 * std::erfc((mean - x) / sigma / std::sqrt(2.0));
            };
            const double off[2] = {std::fabs(found.start - cdf(low)),
                                   std::fabs(found.start + found.freq - cdf(high))};
            worst = std::fmax(worst, std::fmax(off[0], off[1]));
        }
        CHECK(worst < 72);
    });
}
