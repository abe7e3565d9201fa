// What calibration finds in samples that were made to hold it: matrices of corrections and means
// before rotation.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include <normans/fit/cross_layer_fit.hpp>
#include <normans/fit/rotary_fit.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using normans_test::test_rng;

TEST_CASE("a positive definite system is solved, others are noticed")
{
    test_rng random{61};
    for (const size_t n : {1u, 3u, 4u, 9u, 22u}) {
        std::vector<double> factor(n * n), matrix(n * n), sides(7 * n), expected(7 * n);
        for (double& x : factor) x = random.between(-9, 9);
        for (double& x : expected) x = random.between(-99, 99);
        for (size_t i = 0; i < n; ++i)
            for (size_t j = 0; j < n; ++j)
                for (size_t k = 0; k < n; ++k)
                    matrix[i * n + j] += factor[i * n + k] * factor[j * n + k];
        for (size_t s = 0; s < 7; ++s)
            for (size_t i = 0; i < n; ++i) {
                for (size_t j = 0; j < n; ++j)
                    sides[s * n + i] += matrix[i * n + j] * expected[s * n + j];
                sides[s * n + i] += 5 * expected[s * n + i];
            }
        const spd_solver solver(matrix, n, 5);
        REQUIRE(solver.solvable());
        solver.solve(sides.data(), 7);
        for (size_t i = 0; i < sides.size(); ++i)
            CHECK(sides[i] == doctest::Approx(expected[i]).epsilon(1e-6));
    }
    CHECK(!spd_solver({1, 0, 2, 1}, 2, 0).solvable());
}

TEST_CASE("a matrix that residuals hold is found, and what holds nothing is left alone")
{
    test_rng random{62};
    constexpr uint32_t tokens = 400, channels = 6;
    cross_layer_samples samples({8, 4, 12}, channels);
    std::vector<float> truth(24 * channels);
    for (float& w : truth) w = 0.01f * float(random.between(-20, 20));
    for (uint32_t k = 0; k < 24; ++k) truth[k * channels + 5] = 0;  // the last: noise alone
    std::vector<std::vector<int8_t>> rows;
    for (uint32_t t = 0; t < tokens; ++t) {
        std::vector<int8_t> row(24);
        for (int8_t& f : row) f = int8_t(random.between(-30, 30));
        float residual[channels];
        for (uint32_t c = 0; c < channels; ++c) {
            residual[c] = float(random.noise()) / 65536;
            for (uint32_t k = 0; k < 24; ++k)
                if (k < 8 || k >= 12) residual[c] += truth[k * channels + c] * float(row[k]);
        }
        if (t == 17) residual[0] = std::numeric_limits<float>::infinity();
        if (t == 18) residual[1] = std::numeric_limits<float>::quiet_NaN();
        samples.add_token(row.data(), residual, 1);
        rows.push_back(row);
    }
    CHECK(samples.features_of(0b111) == 24);
    CHECK(samples.features_of(0b101) == 20);
    CHECK(samples.try_choice(0).bits == 0);
    const cross_layer_gain useless = samples.try_choice(0b010);
    CHECK(useless.bits < 0.02);
    const cross_layer_gain gain = samples.try_choice(0b101);
    CHECK(gain.bits > 1.5);
    CHECK(gain.bits > samples.try_choice(0b001).bits + 0.3);
    CHECK(gain.squares[5] > 0.9);

    const cross_layer_matrix matrix = samples.fit(0b101, gain);
    CHECK(matrix.features == 20);
    const cross_layer_map map{matrix.weights.data(), matrix.scale.data(), 20, channels};
    REQUIRE(check_cross_layer(map) == status::ok);
    for (uint32_t c = 0; c < 5; ++c)
        for (uint32_t k = 0; k < 20; ++k) {
            const double weight = double(matrix.weights[(k / 4 * channels + c) * 4 + k % 4]) *
                                  double(matrix.scale[c]);
            CHECK(std::fabs(weight - double(truth[(k < 8 ? k : k + 4) * channels + c])) < 0.02);
        }
    if (gain.squares[5] == 1) CHECK(matrix.scale[5] == 0);
}

TEST_CASE("weights of very many features keep the sum's bound")
{
    cross_layer_matrix matrix(max_features, 3);
    std::vector<double> solution(max_features);
    for (size_t k = 0; k < solution.size(); ++k) solution[k] = k % 2 ? 3.0 : -2.9;
    matrix.set_channel(1, solution.data());
    for (double& x : solution) x = 1e-60;  // no float
    matrix.set_channel(2, solution.data());
    CHECK(check_cross_layer({matrix.weights.data(), matrix.scale.data(), max_features, 3}) ==
          status::ok);
    CHECK(matrix.scale[0] == 0);
    CHECK(matrix.scale[2] == 0);
    const double weight = double(matrix.weights[4 + 1]) * double(matrix.scale[1]);
    CHECK(std::fabs(weight - 3) < 0.1);
}

TEST_CASE("nothing to learn from: no tokens, one token, features of 0")
{
    cross_layer_samples none({4}, 2);
    CHECK(none.try_choice(1).bits == 0);
    CHECK(none.fit(0, none.try_choice(0)).features == 0);
    CHECK(none.fit(1, none.try_choice(1)).scale == std::vector<float>(2, 0.0f));
    const int8_t zeros[4] = {};
    const float residuals[2] = {1, 2};
    for (int i = 0; i < 9; ++i) {
        none.add_token(zeros, residuals, 1);
        CHECK(none.try_choice(1).bits == 0);
        CHECK(none.fit(1, none.try_choice(1)).scale == std::vector<float>(2, 0.0f));
    }
}

TEST_CASE("steps of theta, in 2^-64 turns")
{
    const std::vector<uint64_t> steps = rotary_steps(10000, 4);
    REQUIRE(steps.size() == 2);
    const double turn = 6.283185307179586477;
    CHECK(std::ldexp(double(steps[0]), -64) * turn == doctest::Approx(1).epsilon(1e-12));
    CHECK(std::ldexp(double(steps[1]), -64) * turn == doctest::Approx(0.01).epsilon(1e-12));
    CHECK(rotary_steps(10000, 0).empty());
}

TEST_CASE("means before rotation are found again")
{
    test_rng random{64};
    constexpr uint32_t heads = 2, dim = 10, rotary_dim = 8, tokens = 3000;
    const std::vector<uint64_t> steps = rotary_steps(500, rotary_dim);
    for (const rotary_pairing pairing : {rotary_pairing::half_split, rotary_pairing::interleaved}) {
        std::vector<int32_t> truth(heads * dim), mean;
        for (int32_t& m : truth) m = random.between(-largest_rotary_mean, largest_rotary_mean);
        rotary_means means{truth.data(), steps.data(), dim, rotary_dim, -20, pairing, 3};
        std::vector<float> rows(size_t(tokens) * heads * dim);
        expand_rotary(means, heads, 0, tokens, rows.data());
        rotary_statistics statistics(means, heads);
        for (uint32_t t = 0; t < tokens; ++t) {
            float* row = &rows[size_t(t) * heads * dim];
            for (uint32_t c = 0; c < heads * dim; ++c)
                row[c] += float(random.noise()) / 65536 / 16;
            if (t == 5) row[1] = std::numeric_limits<float>::quiet_NaN();
            statistics.add_token(t, row);
        }
        int exponent = 0;
        statistics.fit(mean, exponent);
        REQUIRE(mean.size() == truth.size());
        for (size_t c = 0; c < mean.size(); ++c)
            CHECK(std::fabs(std::ldexp(double(mean[c]), exponent) -
                            std::ldexp(double(truth[c]), -20)) < 6.0 / 16 / std::sqrt(tokens));
        means.mean = mean.data();
        means.exponent = exponent;
        CHECK(check_rotary(means, heads) == status::ok);
    }
    std::vector<int32_t> mean;
    int exponent = 0;
    rotary_statistics({nullptr, steps.data(), dim, 8, 0, rotary_pairing::half_split, 0}, 1)
        .fit(mean, exponent);
    CHECK(mean == std::vector<int32_t>(dim));
}
