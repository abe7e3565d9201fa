// Means rotated by their token's position: sines against libm, rotations against doubles, both
// pairings, the two ways to ask for them, and a hash.

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <normans/lowrank/rotary_means.hpp>
#include <normans/wire/header.hpp>

#include "support/random_source.hpp"

using namespace normans;
using field::random_source;

namespace {

constexpr double pi = 3.14159265358979323846;

struct drawn_means {
    std::vector<int32_t> mean;
    std::vector<uint64_t> step;
    rotary_means means;

    drawn_means(random_source& random, uint32_t heads, uint32_t dim, uint32_t rotary_dim,
                rotary_pairing pairing)
        : mean(size_t(heads) * dim), step(rotary_dim / 2 + 1)
    {
        for (int32_t& m : mean)
            m = int32_t(random.below(2 * uint32_t(largest_rotary_mean) + 1)) - largest_rotary_mean;
        for (uint64_t& s : step) s = random.next();
        mean[0] = largest_rotary_mean;
        means = {mean.data(), step.data(), dim, rotary_dim, -19, pairing, 1000};
    }

    double expected(uint32_t token, uint32_t head, uint32_t channel) const
    {
        const auto at = [&](uint32_t c) {
            return std::ldexp(double(mean[head * means.dim + c]), -19);
        };
        if (channel >= means.rotary_dim) return at(channel);
        const bool half = means.pairing == rotary_pairing::half_split;
        const uint32_t apart = half ? means.rotary_dim / 2 : 1;
        const uint32_t pair = half ? channel % apart : channel / 2;
        const uint32_t first = half ? pair : 2 * pair;
        const uint64_t turn = step[pair] * (means.first_position + token);
        const double angle = std::ldexp(double(turn), -64) * 2 * pi;
        if (channel == first)
            return at(first) * std::cos(angle) - at(first + apart) * std::sin(angle);
        return at(first) * std::sin(angle) + at(first + apart) * std::cos(angle);
    }
};

}  // namespace

TEST_CASE("sine and cosine are off by less than 2^-28")
{
    double worst = 0;
    const auto check = [&](uint32_t turn) {
        const rotation r = rotation_of(turn);
        const double angle = std::ldexp(double(turn), -32) * 2 * pi;
        worst = std::fmax(worst, std::fabs(std::ldexp(double(r.cosine), -30) - std::cos(angle)));
        worst = std::fmax(worst, std::fabs(std::ldexp(double(r.sine), -30) - std::sin(angle)));
    };
    for (uint64_t turn = 0; turn < uint64_t(1) << 32; turn += 9973) check(uint32_t(turn));
    for (uint32_t eighth = 0; eighth < 8; ++eighth)
        for (uint32_t near = 0; near < 5; ++near) check((eighth << 29) + near - 2);
    CHECK(worst < std::ldexp(1.0, -28));
    CHECK(rotation_of(0).cosine == 1 << 30);
    CHECK(rotation_of(0).sine == 0);
    CHECK(rotation_of(1u << 30).sine == 1 << 30);
}

TEST_CASE("rotated means against real arithmetic, in both pairings")
{
    random_source random{51};
    for (const rotary_pairing pairing : {rotary_pairing::half_split, rotary_pairing::interleaved})
        for (const uint32_t rotary_dim : {0u, 2u, 10u, 16u}) {
            constexpr uint32_t heads = 3, dim = 16, tokens = 40, first = 5;
            const drawn_means drawn(random, heads, dim, rotary_dim, pairing);
            REQUIRE(check_rotary(drawn.means, heads) == status::ok);
            std::vector<float> out(heads * dim * tokens + 1, -0.5f);
            expand_rotary(drawn.means, heads, first, tokens, out.data());
            CHECK(out.back() == -0.5f);
            for (uint32_t t = 0; t < tokens; ++t)
                for (uint32_t h = 0; h < heads; ++h)
                    for (uint32_t c = 0; c < dim; ++c) {
                        const float one = out[(t * heads + h) * dim + c];
                        // half a unit, and 2^-27 of a mean of up to 8
                        const double off = double(one) - drawn.expected(first + t, h, c);
                        REQUIRE(std::fabs(off) < 0x1p-20 + 0x1p-24);
                        REQUIRE(float_to_bits(one) ==
                                float_to_bits(drawn.means({0, h, first + t, c})));
                    }
        }
}

TEST_CASE("tables that no fit makes are refused")
{
    random_source random{52};
    drawn_means drawn(random, 2, 8, 4, rotary_pairing::half_split);
    const auto with = [&](auto change) {
        rotary_means means = drawn.means;
        change(means);
        return check_rotary(means, 2);
    };
    CHECK(with([](rotary_means&) {}) == status::ok);
    CHECK(with([](rotary_means& m) { m.rotary_dim = 3; }) == status::bad_argument);
    CHECK(with([](rotary_means& m) { m.rotary_dim = 10; }) == status::bad_argument);
    CHECK(with([](rotary_means& m) { m.exponent = 61; }) == status::bad_argument);
    CHECK(with([](rotary_means& m) { m.exponent = -101; }) == status::bad_argument);
    CHECK(with([](rotary_means& m) { m.pairing = rotary_pairing(2); }) == status::bad_argument);
    drawn.mean[15] = -largest_rotary_mean - 1;
    CHECK(with([](rotary_means&) {}) == status::bad_argument);
}

TEST_CASE("the same rotations everywhere")
{
    random_source random{53};
    const drawn_means drawn(random, 2, 12, 10, rotary_pairing::half_split);
    std::vector<float> out(2 * 12 * 50);
    expand_rotary(drawn.means, 2, 0, 50, out.data());
    std::vector<uint8_t> bytes;
    for (const float m : out)
        for (unsigned i = 0; i < 32; i += 8) bytes.push_back(uint8_t(float_to_bits(m) >> i));
    CHECK(fingerprint_of(bytes.data(), bytes.size()) == 17841761988577097362u);
}
