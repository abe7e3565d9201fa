// fit/marginal.hpp: counts to frequencies.

#include <doctest/doctest.h>

#include <vector>

#include <normans/fit/marginal.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

TEST_CASE("normalize_counts always gives a table, in proportion")
{
    test_rng rng(42);
    for (int round = 0; round < 300; ++round) {
        std::vector<uint64_t> counts(256);
        const unsigned width = 1 + rng.below(32);
        uint64_t sum = 0;
        for (uint64_t& count : counts) {
            count = rng.below(4) == 0 ? 0 : rng.bits(width);
            sum += count;
        }
        std::vector<uint16_t> freq(256);
        normalize_counts(counts.data(), freq.data());
        marginal_table table;
        REQUIRE(make_marginal(freq.data(), table) == status::ok);
        uint32_t wrong = 0, largest = 0;
        for (uint32_t symbol = 1; symbol < 256; ++symbol)
            if (counts[symbol] > counts[largest]) largest = symbol;
        for (uint32_t symbol = 0; symbol < 256 && sum != 0; ++symbol) {
            const double share = double(counts[symbol]) * (rans_format::total - 256) / double(sum);
            if (symbol != largest) wrong += freq[symbol] < share || freq[symbol] > share + 1;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("normalize_counts at its edges")
{
    std::vector<uint64_t> counts(256, 0);
    std::vector<uint16_t> freq(256);
    marginal_table table;
    normalize_counts(counts.data(), freq.data());
    CHECK(make_marginal(freq.data(), table) == status::ok);
    for (const uint16_t one : freq) CHECK(one == 128);
    counts[200] = uint64_t(1) << 48;
    normalize_counts(counts.data(), freq.data());
    CHECK(make_marginal(freq.data(), table) == status::ok);
    CHECK(freq[200] == rans_format::total - 255);
}
