// lowrank/decompose.hpp: components of blocks whose singular values are known, and that quantised
// factors of the right rank leave nothing but noise.

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "decompose.hpp"
#include "support/random_source.hpp"

using namespace normans;
using field::random_source;

namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b)
{
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// `rank` orthonormal vectors (Gram-Schmidt).
std::vector<std::vector<double>> orthonormal(random_source& random, uint32_t rank, uint32_t length)
{
    std::vector<std::vector<double>> made;
    while (made.size() < rank) {
        std::vector<double> v(length);
        for (double& x : v) x = random.normal();
        for (const auto& other : made) {
            const double along = dot(v, other);
            for (uint32_t i = 0; i < length; ++i) v[i] -= along * other[i];
        }
        const double size = std::sqrt(dot(v, v));
        for (double& x : v) x /= size;
        made.push_back(v);
    }
    return made;
}

}  // namespace

TEST_CASE("singular values and vectors are those that a block was made of")
{
    random_source random{3};
    for (const auto& [tokens, channels] : {std::pair{12u, 30u}, std::pair{30u, 12u}}) {
        const uint32_t rank = 5;
        const auto left = orthonormal(random, rank, tokens);
        const auto right = orthonormal(random, rank, channels);
        const double singular[rank] = {100, 40, 39, 1, 0.01};
        std::vector<double> values(size_t(tokens) * channels);
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t c = 0; c < channels; ++c)
                for (uint32_t k = 0; k < rank; ++k)
                    values[t * channels + c] += singular[k] * left[k][t] * right[k][c];
        const block_components found = kv_file::decompose(values.data(), tokens, channels, 1024);
        REQUIRE(found.singular.size() >= rank);
        for (uint32_t k = 0; k < rank; ++k) {
            CHECK(found.singular[k] == doctest::Approx(singular[k]).epsilon(1e-6));
            const double same = dot(found.left[k], left[k]) * dot(found.right[k], right[k]);
            CHECK(same == doctest::Approx(1).epsilon(1e-6));
        }
        for (size_t k = rank; k < found.singular.size(); ++k) CHECK(found.singular[k] < 1e-4);
        CHECK(kv_file::decompose(values.data(), tokens, channels, 2).singular.size() == 2);
    }
}

TEST_CASE("blocks without components, and of one token or channel")
{
    const std::vector<double> zeros(24);
    CHECK(kv_file::decompose(zeros.data(), 4, 6, 9).singular.empty());
    CHECK(kv_file::decompose(zeros.data(), 0, 6, 9).singular.empty());
    CHECK(kv_file::decompose(zeros.data(), 4, 0, 9).singular.empty());
    const double row[3] = {2, -3, 6};
    for (const auto& [tokens, channels] : {std::pair{1u, 3u}, std::pair{3u, 1u}}) {
        const block_components found = kv_file::decompose(row, tokens, channels, 9);
        REQUIRE(found.singular.size() == 1);
        CHECK(found.singular[0] == doctest::Approx(7));
        const block_factors made = quantise_factors(found, 4);
        CHECK(made.rank == 1);
        for (uint32_t i = 0; i < 3; ++i) {
            const uint32_t t = tokens == 1 ? 0 : i, c = tokens == 1 ? i : 0;
            CHECK(std::ldexp(double(lowrank_sum(made.view().factors, t, c)), made.exponent) ==
                  doctest::Approx(row[i]).epsilon(0.03));
        }
    }
}

TEST_CASE("factors of the rank that a block has leave its noise, fewer do not")
{
    random_source random{5};
    const uint32_t tokens = 64, channels = 48, rank = 6;
    const auto left = orthonormal(random, rank, tokens);
    const auto right = orthonormal(random, rank, channels);
    std::vector<double> values(size_t(tokens) * channels);
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t c = 0; c < channels; ++c) {
            double& value = values[t * channels + c];
            for (uint32_t k = 0; k < rank; ++k) value += 400 * left[k][t] * right[k][c];
            value += random.normal();
        }
    const block_components found = kv_file::decompose(values.data(), tokens, channels, 16);
    double previous = 1e9;
    for (uint32_t r = 0; r <= 8; ++r) {
        const block_factors made = quantise_factors(found, r);
        double square = 0;
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t c = 0; c < channels; ++c) {
                const double said =
                    std::ldexp(double(lowrank_sum(made.view().factors, t, c)), made.exponent);
                square += std::pow(values[t * channels + c] - said, 2);
            }
        const double rms = std::sqrt(square / double(values.size()));
        CHECK(rms < previous);
        previous = rms;
        if (r < rank) CHECK(rms > 5);
        else CHECK(rms < 1.1);
    }
}
