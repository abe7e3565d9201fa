// Low-rank sums of every instruction set against 64-bit sums, on the extremes too; nothing behind
// the last channel of a row is written.

#include <doctest/doctest.h>

#include <vector>

#include <normans/lowrank/int8_product.hpp>

#include "support/random_source.hpp"

using namespace normans;
using field::random_source;

namespace {

struct drawn_factors {
    std::vector<int8_t> u, v;
    std::vector<uint8_t> shift;
    lowrank_factors factors;

    drawn_factors(random_source& random, uint32_t tokens, uint32_t channels, uint32_t rank,
                  bool extreme)
        : u(size_t(tokens) * rank + 1), v(size_t(channels) * rank + 1), shift(rank / 4 + 1)
    {
        uint32_t left = 1024 - rank;
        for (uint32_t group = 0; group < rank / 4; ++group) {
            const uint32_t wanted = random.below(8), more = (4u << wanted) - 4;
            if (more > left) continue;
            left -= more;
            shift[group] = uint8_t(wanted);
        }
        const bool negative = random.below(2) != 0;
        for (int8_t& x : u) x = extreme ? int8_t(-128) : int8_t(random.bits());
        for (int8_t& x : v) x = extreme ? int8_t(negative ? -128 : 127) : int8_t(random.bits());
        factors = {u.data(), v.data(), shift.data(), tokens, channels, rank};
    }

    int64_t sum(uint32_t token, uint32_t channel) const
    {
        int64_t all = 0;
        for (uint32_t k = 0; k < factors.rank; ++k)
            all += int64_t(u[size_t(token) * factors.rank + k]) *
                   v[(size_t(k / 4) * factors.channels + channel) * 4 + k % 4] *
                   (int64_t(1) << shift[k / 4]);
        return all;
    }
};

}  // namespace

TEST_CASE("low-rank sums are exact, on every instruction set")
{
    random_source random{41};
    for (const uint32_t rank : {0u, 4u, 8u, 12u, 32u, 100u, 1024u})
        for (const uint32_t channels : {1u, 7u, 8u, 15u, 16u, 17u, 33u, 64u})
            for (const bool extreme : {false, true}) {
                const uint32_t tokens = 1 + random.below(9);
                const drawn_factors drawn(random, tokens, channels, rank, extreme);
                REQUIRE(exact_factors(drawn.factors));
                const ptrdiff_t stride = ptrdiff_t(channels) + 3;
                std::vector<float> out(size_t(stride) * tokens, -0.5f);
                const uint32_t first = random.below(tokens);
                expand_lowrank(drawn.factors, first, tokens - first, out.data(), stride);
                const lowrank_means means{drawn.factors, channels};
                for (uint32_t t = first; t < tokens; ++t) {
                    const float* row = out.data() + ptrdiff_t(t - first) * stride;
                    for (uint32_t c = 0; c < channels; ++c) {
                        const int64_t expected = drawn.sum(t, c);
                        REQUIRE(int64_t(row[c]) == expected);
                        REQUIRE(int64_t(means({0, 0, t, c})) == expected);
                    }
                    for (ptrdiff_t c = channels; c < stride; ++c) REQUIRE(row[c] == -0.5f);
                }
            }
}

TEST_CASE("factors whose sums could pass 2^24 are refused")
{
    std::vector<uint8_t> shift(257, 0);
    const auto exact = [&](uint32_t rank) {
        return exact_factors({nullptr, nullptr, shift.data(), 1, 1, rank});
    };
    CHECK(exact(0));
    CHECK(exact(1024));
    CHECK(!exact(1028));
    CHECK(!exact(2));
    shift[0] = 1;
    CHECK(!exact(1024));
    CHECK(exact(1020));
    shift[0] = 7;
    CHECK(exact(4));
    CHECK(exact(516));
    CHECK(!exact(520));
    shift[0] = 8;
    CHECK(!exact(4));
}
