// core/z_map.hpp: z_exact against the wide integers, z_of against z_exact, on edges and slopes as
// the model has them and as close to ties as floats allow.

#include <doctest/doctest.h>

#include <normans/core/normal.hpp>

#include "support/exact_float.hpp"
#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

constexpr scalar_type modelled[] = {scalar_type::e4m3fn,   scalar_type::e5m2, scalar_type::e4m3fnuz,
                                    scalar_type::e5m2fnuz, scalar_type::bf16, scalar_type::fp16};

struct operands {
    uint32_t edge, slope, bias;
};

uint32_t random_slope(test_rng& rng)
{
    const normal_shape shape = shape_of(shape_id(rng.below(3)));
    const int octave = rng.between(-80, 99);
    const uint32_t slope = shape.slope[rng.below(8)] - (uint32_t(octave) << 23);
    return multiply(slope, row_slope(rng.between(min_row_step, max_row_step)));
}

// Finite, as large as a z within range needs it.
uint32_t random_edge(test_rng& rng, uint32_t slope)
{
    if (rng.bits(1)) {
        const scalar_format format = format_of(modelled[rng.below(6)]);
        return edge_bits(format, rng.below(format.largest_finite + 1)) | rng.bits(1) << 31;
    }
    const int field = 127 + 15 + 127 - int(exponent_field(slope)) - rng.between(0, 24);
    const int clamped = field < 1 ? 1 : field > 254 ? 254 : field;
    return rng.bits(1) << 31 | uint32_t(clamped) << 23 | rng.bits(23);
}

// bias = -(mean * slope) of some mean near the edge.
operands as_the_model(test_rng& rng)
{
    operands x{0, random_slope(rng), 0};
    x.edge = random_edge(rng, x.slope);
    const uint32_t mean = x.edge + (rng.bits(20) - (1u << 19));
    x.bias = exponent_field(mean) == 255 ? 0 : multiply(mean, x.slope) ^ sign_bit;
    if (exponent_field(x.bias) == 255) x.bias = 0;
    return x;
}

// edge * slope + bias within a few places of n + 1/2: bias = n + 1/2 - edge * slope, rounded.
operands beside_tie(test_rng& rng)
{
    operands x = as_the_model(rng);
    const uint32_t half = float_of(2 * rng.between(lowest_z - 2, highest_z + 2) + 1, -1);
    const uint32_t bias = exact_sum(x.edge ^ sign_bit, x.slope, half).to_fp32();
    if (exponent_field(bias) != 255) x.bias = bias;
    x.bias += uint32_t(rng.between(-2, 2));
    if (exponent_field(x.bias) == 255) x.bias = 0;
    return x;
}

// Products that are small beside a bias at a tie: the sum rounded to fp32 falls on the tie itself.
operands tie_by_rounding(test_rng& rng)
{
    operands x{0, random_slope(rng), 0};
    x.bias = float_of(2 * rng.between(lowest_z, highest_z) + 1, -1);
    const int product = int(exponent_field(x.bias)) - rng.between(0, 60);
    const int field = product + 127 - int(exponent_field(x.slope));
    const int clamped = field < 1 ? 1 : field > 254 ? 254 : field;
    const uint32_t mantissa = rng.bits(1) ? rng.bits(23) : rng.bits(3);
    x.edge = rng.bits(1) << 31 | uint32_t(clamped) << 23 | mantissa;
    return x;
}

uint64_t count_wrong(operands (*draw)(test_rng&), uint32_t rounds, uint64_t seed)
{
    test_rng rng(seed);
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < rounds / thin; ++i) {
        const operands x = draw(rng);
        const uint32_t sum = exact_sum(x.edge, x.slope, x.bias).to_fp32();
        const int expected = exponent_field(sum) == 255 ? (sum >> 31 ? lowest_z : highest_z)
                                                        : nearest_integer(sum);
        const int exact = z_exact(x.edge, x.slope, x.bias), fast = z_of(x.edge, x.slope, x.bias);
        if ((exact != expected || fast != expected) && wrong++ < 3) {
            CAPTURE(x.edge);
            CAPTURE(x.slope);
            CAPTURE(x.bias);
            CHECK(exact == expected);
            CHECK(fast == expected);
        }
    }
    return wrong;
}

}  // namespace

TEST_CASE("round_to_z: every half and its neighbours, nearest even, clamped")
{
    uint64_t wrong = 0;
    for (int half = 2 * lowest_z - 8; half <= 2 * highest_z + 8; ++half) {
        const uint32_t bits = float_of(half, -1);
        for (const uint32_t near_by : {bits - 1, bits, bits + 1}) {
            if (half == 0 && near_by != 0) continue;
            wrong += normans::detail::round_to_z(near_by) != nearest_integer(near_by);
        }
    }
    test_rng rng(51);
    for (uint32_t i = 0; i < 2000000 / thin; ++i) {
        const uint32_t bits = rng.bits(32);
        if (exponent_field(bits) != 255)
            wrong += normans::detail::round_to_z(bits) != nearest_integer(bits);
    }
    CHECK(wrong == 0);
    CHECK(normans::detail::round_to_z(float_of(5, -1)) == 2);
    CHECK(normans::detail::round_to_z(float_of(-7, -1)) == -4);
    CHECK(normans::detail::round_to_z(infinity_bits) == highest_z);
    CHECK(normans::detail::round_to_z(infinity_bits | sign_bit) == lowest_z);
}

TEST_CASE("z_of is z_exact is the definition")
{
    CHECK(count_wrong(as_the_model, 4000000, 52) == 0);
    CHECK(count_wrong(beside_tie, 10000000, 53) == 0);
    CHECK(count_wrong(tie_by_rounding, 10000000, 54) == 0);
}

TEST_CASE("z at the ends and far beyond them")
{
    const uint32_t slope = shape_of(shape_id::gaussian).unit_slope;
    CHECK(z_of(0, slope, 0) == 0);
    CHECK(z_of(0, slope, minus_zero_bits) == 0);
    CHECK(z_of(one_bits, slope, 0) == 8192);
    CHECK(z_of(float_to_bits(4.0f), slope, 0) == highest_z);
    CHECK(z_of(float_to_bits(-4.0f), slope, 0) == lowest_z);
    for (const uint32_t huge : {0x7f7fffffu, 0x60000000u, 0x4f000000u}) {
        CHECK(z_of(huge, slope, 0) == highest_z);
        CHECK(z_of(huge | sign_bit, slope, 0) == lowest_z);
        CHECK(z_exact(huge, slope, 0) == highest_z);
        CHECK(z_exact(huge | sign_bit, slope, 0) == lowest_z);
    }
    const uint32_t steep = slope + (80u << 23);
    CHECK(z_of(0x7f7fffff, steep, 0) == highest_z);
    CHECK(z_exact(0x7f7fffff, steep, 0) == highest_z);
    CHECK(z_of(0xff7fffff, steep, 0) == lowest_z);
    CHECK(z_exact(0xff7fffff, steep, 0) == lowest_z);
    // A subnormal edge: 0.5 and a hair rounds to 0.5 in fp32, and that to 0.
    CHECK(z_of(1, steep, float_of(1, -1)) == 0);
}
