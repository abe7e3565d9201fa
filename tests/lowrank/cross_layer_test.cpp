// Corrections by what was decoded before: features against exact arithmetic on every kind of float,
// sums of every instruction set against 64-bit sums, the rules for means, and a hash of all of it.

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <normans/lowrank/cross_layer.hpp>
#include <normans/wire/header.hpp>

#include "support/random_source.hpp"

using namespace normans;
using field::random_source;

namespace {

int8_t feature_of(float value, float mean, int exponent, int32_t centre = 0)
{
    return residual_feature(float_to_bits(value), float_to_bits(mean), exponent, centre);
}

struct drawn_map {
    std::vector<int8_t> weights;
    std::vector<float> scale;
    std::vector<int8_t> features;
    cross_layer_map map;

    drawn_map(random_source& random, uint32_t tokens, uint32_t channels, uint32_t features_each,
              bool extreme)
        : weights(size_t(channels) * features_each + 1),
          scale(channels + 1),
          features(size_t(tokens) * features_each + 1)
    {
        const bool negative = random.below(2) != 0;
        const auto any = [&](int32_t limit) {
            return int8_t(int32_t(random.below(uint32_t(2 * limit + 1))) - limit);
        };
        for (int8_t& w : weights) w = extreme ? int8_t(negative ? -127 : 127) : any(127);
        for (int8_t& f : features) f = extreme ? int8_t(random.below(2) ? -63 : 63) : any(63);
        if (extreme)
            for (size_t k = 0; k < features_each; ++k) features[k] = 63;  // the largest sum
        for (float& s : scale) s = std::ldexp(float(random.below(1u << 20)), -30);
        map = {weights.data(), scale.data(), features_each, channels};
    }

    int64_t sum(uint32_t token, uint32_t channel) const
    {
        int64_t all = 0;
        for (uint32_t k = 0; k < map.features; ++k)
            all += int64_t(features[size_t(token) * map.features + k]) *
                   weights[(size_t(k / 4) * map.channels + channel) * 4 + k % 4];
        return all;
    }
};

}  // namespace

TEST_CASE("a float's place on a grid: halves away from zero, clamped, NaN 0")
{
    random_source random{7};
    for (int i = 0; i < 200000; ++i) {
        const auto bits = random.bits();
        const int exponent = int(random.below(161)) - 100;
        const int32_t place = grid_value(bits, exponent);
        const double limit = double(grid_limit);
        double steps = 0;  // NaN and subnormal
        if (exponent_field(bits) == 255)
            steps = is_nan(bits) ? 0 : bits >> 31 != 0 ? -limit : limit;
        else if (exponent_field(bits) != 0)
            steps = std::ldexp(double(bits_to_float(bits)), -exponent);
        steps = steps > limit ? limit : steps < -limit ? -limit : std::round(steps);
        REQUIRE(double(place) == steps);
    }
    CHECK(grid_value(float_to_bits(2.5f), 0) == 3);
    CHECK(grid_value(float_to_bits(-2.5f), 0) == -3);
    CHECK(grid_value(float_to_bits(0.49999997f), 0) == 0);
    CHECK(grid_value(float_to_bits(16777215.0f), 0) == 16777215);
    CHECK(grid_value(infinity_bits | sign_bit, 60) == -grid_limit);
    CHECK(grid_value(1, -100) == 0);  // subnormal
}

TEST_CASE("residuals of a deviation are given in steps of about an eighth")
{
    for (uint32_t index = 0; index < 255; ++index) {
        const double steps = std::exp2(-16 + index / 8.0 - residual_exponent(index, -16));
        CHECK(steps > 5.65);
        CHECK(steps < 11.32);
    }
    CHECK(residual_exponent(255, -16) == max_grid_exponent);
    CHECK(residual_exponent(254, 68) == max_grid_exponent);
    CHECK(residual_exponent(0, -80) == -83);
}

TEST_CASE("features of every value and mean are defined")
{
    const float infinity = bits_to_float(infinity_bits), nan = bits_to_float(quiet_nan_bits);
    CHECK(feature_of(1.0f, 0.5f, -4) == 8);
    CHECK(feature_of(0.5f, 1.0f, -4) == -8);
    CHECK(feature_of(1.0f, 0.5f, -4, 3) == 5);
    CHECK(feature_of(1.0f, 0.5f, -10) == 63);
    CHECK(feature_of(-1.0f, 0.5f, -10) == -63);
    CHECK(feature_of(-0.0f, 0.0f, -4) == 0);
    CHECK(feature_of(infinity, 0, -4) == 63);
    CHECK(feature_of(-infinity, 0, -4) == -63);
    CHECK(feature_of(infinity, infinity, -4) == 0);
    CHECK(feature_of(infinity, -infinity, -4, -grid_limit) == 63);
    CHECK(feature_of(nan, 0, -4, 5) == 0);
    CHECK(feature_of(0, nan, -4, 5) == 0);
}

TEST_CASE("sums of features are exact, on every instruction set")
{
    random_source random{43};
    for (const uint32_t features : {0u, 4u, 8u, 32u, 100u, 2096u})
        for (const uint32_t channels : {1u, 4u, 7u, 16u, 17u, 32u, 51u, 64u})
            for (const bool extreme : {false, true}) {
                const uint32_t tokens = 1 + random.below(9);
                const drawn_map drawn(random, tokens, channels, features, extreme);
                REQUIRE(check_cross_layer(drawn.map) == status::ok);
                std::vector<float> sums(size_t(channels) * tokens + 1, -0.5f);
                cross_layer_sums(drawn.map, drawn.features.data(), tokens, sums.data());
                for (uint32_t t = 0; t < tokens; ++t)
                    for (uint32_t c = 0; c < channels; ++c)
                        REQUIRE(int64_t(sums[size_t(t) * channels + c]) == drawn.sum(t, c));
                REQUIRE(sums.back() == -0.5f);
            }
    std::vector<float> sums(5 * 33, -0.5f);
    cross_layer_sums({nullptr, nullptr, 0, 33}, nullptr, 5, sums.data());  // no features, no arrays
    CHECK(sums == std::vector<float>(sums.size()));
}

TEST_CASE("corrected means: one rounding, and what has nothing to add stays as it is")
{
    random_source random{44};
    const drawn_map drawn(random, 3, 20, 64, false);
    const cross_layer_map& map = drawn.map;
    std::vector<float> means(60), sums(60);
    for (float& m : means) m = std::ldexp(float(random.below(1u << 24)) - 8388608.0f, -20);
    const std::vector<float> before = means;
    cross_layer_sums(map, drawn.features.data(), 3, sums.data());
    correct_means(map, sums.data(), 3, means.data());
    const cross_layer_means<scalar_means> view{{before.data()}, map, drawn.features.data(), 5};
    for (uint32_t t = 0; t < 3; ++t)
        for (uint32_t c = 0; c < 20; ++c) {
            const size_t i = t * 20 + c;
            const float expected = std::fma(float(drawn.sum(t, c)), map.scale[c], before[i]);
            CHECK(means[i] == expected);
            const scalar_position at{uint32_t(i), c / 5, t, c % 5};
            CHECK(float_to_bits(view(at)) == float_to_bits(means[i]));
        }

    CHECK(corrected_mean(0, one_bits, minus_zero_bits) == minus_zero_bits);
    CHECK(corrected_mean(5, 0, 0x7f800001) == 0x7f800001);
    CHECK(corrected_mean(5, one_bits, infinity_bits) == infinity_bits);
    CHECK(corrected_mean(5, one_bits, 0x7f812345) == 0x7f812345);
    CHECK(corrected_mean(5, one_bits, minus_zero_bits) == float_to_bits(5));
    CHECK(corrected_mean(5, one_bits, 0x00000123) == float_to_bits(5));  // subnormal
}

TEST_CASE("maps and grids that no fit makes are refused")
{
    random_source random{45};
    drawn_map drawn(random, 1, 2, 4, false);
    CHECK(check_cross_layer(drawn.map) == status::ok);
    drawn.weights[3] = -128;
    CHECK(check_cross_layer(drawn.map) == status::bad_argument);
    drawn.weights[3] = 0;
    drawn.scale[1] = bits_to_float(1);
    CHECK(check_cross_layer(drawn.map) == status::bad_argument);
    drawn.scale[1] = bits_to_float(infinity_bits);
    CHECK(check_cross_layer(drawn.map) == status::bad_argument);
    drawn.scale[1] = -0.0f;
    CHECK(check_cross_layer(drawn.map) == status::ok);
    drawn.map.features = 3;
    CHECK(check_cross_layer(drawn.map) == status::bad_argument);

    const drawn_map wide(random, 1, 1, 2100, true);
    CHECK(check_cross_layer(wide.map) == status::bad_argument);  // 2100 * 127 * 63 > 2^24
    const std::vector<int8_t> small(max_features + 4, 1);
    cross_layer_map long_map{small.data(), drawn.scale.data(), max_features, 1};
    CHECK(check_cross_layer(long_map) == status::ok);
    long_map.features += 4;
    CHECK(check_cross_layer(long_map) == status::bad_argument);

    int8_t exponent[2] = {-100, 60};
    int32_t centre[2] = {grid_limit, -grid_limit};
    CHECK(check_grid({exponent, centre, 2}) == status::ok);
    centre[1] = grid_limit + 1;
    CHECK(check_grid({exponent, centre, 2}) == status::bad_argument);
    centre[1] = 0;
    CHECK(check_grid({exponent, nullptr, 2}) == status::ok);
    exponent[0] = -101;
    CHECK(check_grid({exponent, centre, 2}) == status::bad_argument);
}

TEST_CASE("the same bits everywhere")
{
    random_source random{46};
    constexpr uint32_t tokens = 7, channels = 37, features = 40;
    drawn_map drawn(random, tokens, channels, features, false);
    std::vector<int8_t> exponent(features);
    std::vector<int32_t> centre(features);
    for (uint32_t k = 0; k < features; ++k) {
        exponent[k] = int8_t(int(random.below(20)) - 15);
        centre[k] = int32_t(random.below(9)) - 4;
    }
    std::vector<float> values(features), means(features), out(size_t(tokens) * channels);
    for (uint32_t t = 0; t < tokens; ++t) {
        for (uint32_t k = 0; k < features; ++k) {
            values[k] = bits_to_float((random.bits() & 0x83ffffff) | 0x3c000000);
            means[k] = bits_to_float((random.bits() & 0x83ffffff) | 0x3c000000);
        }
        residual_features({exponent.data(), centre.data(), features}, values.data(),
                          t % 2 ? means.data() : nullptr, &drawn.features[t * features]);
    }
    for (float& m : out) m = bits_to_float(random.bits());
    std::vector<float> sums(out.size());
    cross_layer_sums(drawn.map, drawn.features.data(), tokens, sums.data());
    correct_means(drawn.map, sums.data(), tokens, out.data());
    std::vector<uint8_t> bytes(drawn.features.begin(),
                               drawn.features.begin() + ptrdiff_t(tokens * features));
    for (const float m : out)
        for (unsigned i = 0; i < 32; i += 8) bytes.push_back(uint8_t(float_to_bits(m) >> i));
    CHECK(fingerprint_of(bytes.data(), bytes.size()) == 3602197358086655775u);
}
