// core/table.hpp: the marginal.

#include <doctest/doctest.h>

#include <vector>

#include <normans/core/table.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

std::vector<uint16_t> random_frequencies(test_rng& rng)
{
    std::vector<uint16_t> freq(256, 1);
    const uint32_t peaks = 1 + rng.below(40);
    uint32_t left = rans_format::total - 256;
    for (uint32_t i = 0; i < peaks; ++i) {
        const uint32_t share = i + 1 == peaks ? left : rng.below(left + 1);
        uint16_t& peak = freq[rng.below(256)];
        peak = uint16_t(peak + share);
        left -= share;
    }
    return freq;
}

}  // namespace

TEST_CASE("symbol_at is the inverse of the intervals, for every slot")
{
    test_rng rng(41);
    for (int round = 0; round < 50; ++round) {
        const std::vector<uint16_t> freq = random_frequencies(rng);
        marginal_table table;
        REQUIRE(make_marginal(freq.data(), table) == status::ok);
        CHECK(table.start[0] == 0);
        CHECK(table.start[256] == rans_format::total);
        uint32_t slot = 0, wrong = 0;
        for (uint32_t symbol = 0; symbol < 256; ++symbol) {
            wrong += table.start[symbol] != slot;
            for (uint32_t i = 0; i < freq[symbol]; ++i) wrong += symbol_at(table, slot++) != symbol;
        }
        CHECK(wrong == 0);
        CHECK(slot == rans_format::total);
    }
}

TEST_CASE("make_marginal refuses what is no table")
{
    marginal_table table;
    std::vector<uint16_t> freq(256, 128);
    CHECK(make_marginal(freq.data(), table) == status::ok);
    freq[255] = 127;  // one too few
    CHECK(make_marginal(freq.data(), table) == status::bad_argument);
    freq[255] = 129;  // one too many
    CHECK(make_marginal(freq.data(), table) == status::bad_argument);
    freq[255] = 128;
    for (const unsigned symbol : {0u, 17u, 255u}) {
        std::vector<uint16_t> zero = freq;
        zero[symbol] = 0;
        zero[symbol ^ 1] = 256;
        CHECK(make_marginal(zero.data(), table) == status::bad_argument);
    }
    // Sums that would come round to the total in 16 bits.
    std::vector<uint16_t> large(256, 65535);
    CHECK(make_marginal(large.data(), table) == status::bad_argument);
    std::vector<uint16_t> wrapped(256, 384);  // 3 * 2^15
    CHECK(make_marginal(wrapped.data(), table) == status::bad_argument);
}
