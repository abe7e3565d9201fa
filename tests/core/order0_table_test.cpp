// core/order0_table.hpp and order0_step.hpp: shares of slots, the stored form, and steps that are
// inverse in every state that matters. Nothing but a table becomes one.

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <normans/core/order0_step.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

using frequencies = std::vector<uint16_t>;

std::vector<uint32_t> random_counts(test_rng& rng)
{
    std::vector<uint32_t> counts(256);
    const uint32_t used = 2 + rng.below(255);
    const unsigned skew = rng.below(19);
    for (uint32_t i = 0; i < used; ++i)
        counts[rng.below(256)] += rng.below(1 + (uint32_t(1) << rng.below(skew + 1)));
    counts[rng.below(128)] += 1;
    counts[128 + rng.below(128)] += 1;
    return counts;
}

frequencies normalized(const std::vector<uint32_t>& counts, unsigned bits = 13)
{
    frequencies freq(256);
    REQUIRE(order0_normalize(counts.data(), freq.data(), bits) == status::ok);
    return freq;
}

// Bits for all counts under frequencies, and under their own shares.
double bits_under(const std::vector<uint32_t>& counts, const frequencies& freq)
{
    double sum = 0, bits = 0;
    for (const uint16_t f : freq) sum += f;
    for (uint32_t s = 0; s < 256; ++s)
        if (counts[s] != 0) bits -= counts[s] * std::log2(freq[s] / sum);
    return bits;
}

double entropy(const std::vector<uint32_t>& counts)
{
    double sum = 0, bits = 0;
    for (const uint32_t c : counts) sum += c;
    for (const uint32_t c : counts)
        if (c != 0) bits -= c * std::log2(c / sum);
    return bits;
}

}  // namespace

TEST_CASE("N02 normalisation: what occurs has a slot, the sum is exact, no freq is over 12 bits")
{
    test_rng rng(1);
    for (uint32_t round = 0; round < 400; round += thin == 1 ? 1 : 9) {
        const std::vector<uint32_t> counts = random_counts(rng);
        for (const unsigned bits : {12u, 13u}) {
            const frequencies freq = normalized(counts, bits);
            uint32_t sum = 0, wrong = 0;
            for (uint32_t s = 0; s < 256; ++s) {
                sum += freq[s];
                wrong += (counts[s] != 0) != (freq[s] != 0) || freq[s] > order0_format::max_freq;
                for (uint32_t t = 0; t < s; ++t)  // more often never means fewer slots
                    wrong += counts[s] > counts[t] ? freq[s] < freq[t]
                                                   : counts[s] < counts[t] && freq[s] > freq[t];
            }
            CHECK(wrong == 0);
            CHECK((sum == 4096 || (sum == 8192 && bits == 13)));
            order0_table table;
            CHECK(make_order0_table(freq.data(), table) == status::ok);
        }
    }
}

TEST_CASE("normalisation: no single slot is better elsewhere, and little is lost")
{
    test_rng rng(2);
    for (int round = 0; round < 60; ++round) {
        const std::vector<uint32_t> counts = random_counts(rng);
        const frequencies freq = normalized(counts);
        // Moving a slot from a to b loses counts[a] log(f / (f - 1)) and gains
        // counts[b] log((f + 1) / f). Webster's divisor is 2 / (2 f + 1) in place of the logs.
        double least_loss = 1e300, most_gain = 0;
        for (uint32_t s = 0; s < 256; ++s) {
            if (freq[s] > 1) least_loss = std::fmin(least_loss, counts[s] / (freq[s] - 0.5));
            if (freq[s] != 0 && freq[s] < order0_format::max_freq)
                most_gain = std::fmax(most_gain, counts[s] / (freq[s] + 0.5));
        }
        CHECK(most_gain <= least_loss * (1 + 1e-9));
        CHECK(bits_under(counts, freq) >= entropy(counts) - 1e-6);
    }
    // The shape of fp8 codes: two bells over 256 symbols.
    std::vector<uint32_t> counts(256);
    for (int s = 0; s < 256; ++s) {
        const double x = (s % 128 - 70) / 12.0;
        counts[size_t(s)] = uint32_t(30000 * std::exp(-x * x / 2)) + 60;
    }
    CHECK(bits_under(counts, normalized(counts)) < entropy(counts) * 1.001);
    CHECK(bits_under(counts, normalized(counts, 12)) < entropy(counts) * 1.004);
}

TEST_CASE("normalisation: pinned, and what has no table")
{
    std::vector<uint32_t> counts(256);
    frequencies freq(256);
    CHECK(order0_normalize(counts.data(), freq.data()) == status::bad_argument);
    counts[7] = 100;  // alone
    freq = normalized(counts);
    CHECK((freq[7] == 4095 && freq[0] == 1));
    std::swap(counts[7], counts[0]);
    freq = normalized(counts);
    CHECK((freq[0] == 4095 && freq[1] == 1));
    std::swap(counts[7], counts[0]);
    counts[9] = 1;  // half of 2^13 slots or more: 2^12 then
    freq = normalized(counts);
    CHECK((freq[7] == 4055 && freq[9] == 41));
    counts[9] = 100;
    freq = normalized(counts);
    CHECK((freq[7] == 2048 && freq[9] == 2048));
    counts[11] = 100;  // the first ones get what is left
    freq = normalized(counts);
    CHECK((freq[7] == 2731 && freq[9] == 2731 && freq[11] == 2730));
    counts[7] = 0xffffff00u;
    CHECK(order0_normalize(counts.data(), freq.data()) == status::ok);
    CHECK((freq[7] == 4094 && freq[9] == 1 && freq[11] == 1));
    counts[9] = 0xff;
    counts[11] = 2;
    CHECK(order0_normalize(counts.data(), freq.data()) == status::bad_argument);  // 2^32 and more
}

TEST_CASE("hostile tables: sums, sizes and single symbols that are none")
{
    order0_table table;
    frequencies freq(256);
    CHECK(make_order0_table(freq.data(), table) == status::bad_argument);
    freq[0] = 4096;
    CHECK(make_order0_table(freq.data(), table) == status::bad_argument);
    freq[0] = 4095;
    CHECK(make_order0_table(freq.data(), table) == status::bad_argument);
    freq[255] = 1;
    CHECK(make_order0_table(freq.data(), table) == status::ok);
    freq[1] = 1;
    CHECK(make_order0_table(freq.data(), table) == status::bad_argument);
    freq[1] = 4095;
    CHECK(make_order0_table(freq.data(), table) == status::bad_argument);
    freq[2] = 1;
    CHECK(make_order0_table(freq.data(), table) == status::ok);
    CHECK(table.precision_bits == 13);
    freq.assign(256, 65535);
    CHECK(make_order0_table(freq.data(), table) == status::bad_argument);
}

TEST_CASE("the stored form of frequencies comes back, and nothing else is one")
{
    test_rng rng(3);
    std::vector<uint8_t> bytes(2 * order0_table_words + 2);
    for (uint32_t round = 0; round < 300; round += thin == 1 ? 1 : 9) {
        const uint32_t symbols = rng.below(2) ? 256 : 16;
        frequencies freq(256), back(256);
        if (round % 3 == 0) {  // any at all: the bound holds for these too
            for (uint32_t s = 0; s < symbols; ++s)
                freq[s] = uint16_t(rng.bits(12) & (rng.below(3) ? 4095u : 0u));
        } else {
            std::vector<uint32_t> counts = random_counts(rng);
            if (symbols == 16) {
                counts[0] = counts[1] = 5;
                for (uint32_t s = 16; s < 256; ++s) counts[s] = 0;
            }
            freq = normalized(counts);
        }
        const uint32_t words = write_order0_freqs(freq.data(), symbols, bytes.data());
        REQUIRE(words <= order0_table_words);
        uint32_t used = 0;
        REQUIRE(read_order0_freqs(bytes.data(), order0_table_words, symbols, back.data(), used) ==
                status::ok);
        CHECK(used == words);
        CHECK(back == freq);
        for (uint32_t less = 0; less < words; less += 1 + less / 4)
            CHECK(read_order0_freqs(bytes.data(), less, symbols, back.data(), used) ==
                  status::corrupt_stream);
    }
    // The worst for length: 12 bits and none in turn.
    frequencies worst(256);
    for (uint32_t s = 0; s < 256; s += 2) worst[s] = 4095;
    CHECK(write_order0_freqs(worst.data(), 256, bytes.data()) <= order0_table_words);

    // Random bits: a status, never more words than given, and what is read can be written again.
    uint32_t tables = 0;
    for (uint32_t round = 0; round < 20000; round += thin == 1 ? 1 : 9) {
        for (uint8_t& byte : bytes) byte = uint8_t(rng.bits(8) | rng.bits(8));
        const uint32_t words = rng.below(200);
        frequencies freq(256);
        uint32_t used = 0;
        if (read_order0_freqs(bytes.data(), words, 16, freq.data(), used) != status::ok) continue;
        ++tables;
        CHECK(used <= words);
        std::vector<uint8_t> again(2 * order0_table_words);
        CHECK(write_order0_freqs(freq.data(), 16, again.data()) == used);
        CHECK(std::equal(again.begin(), again.begin() + ptrdiff_t(2 * used), bytes.begin()));
    }
    CHECK(tables > 0);
}

TEST_CASE("steps: encoding and decoding are inverse at every quotient's edge")
{
    using lanes = order0_array_lanes<8>;
    test_rng rng(4);
    for (uint32_t round = 0; round < 40; round += thin == 1 ? 1 : 5) {
        std::vector<uint32_t> counts = random_counts(rng);
        if (round == 0) {
            counts.assign(256, 0);
            counts[0] = 1, counts[255] = 1000000;
        }
        order0_table table;
        REQUIRE(make_order0_table(normalized(counts, 12 + round % 2).data(), table) == status::ok);
        lanes::decode_tables decoding{};
        lanes::encode_tables encoding{};
        for (uint32_t i = 0; i < 8; ++i) {
            decoding[i] = &table;
            encoding[i] = &table;
        }
        uint64_t wrong = 0;
        for (uint32_t step = 0; step < 2000; ++step) {
            lanes::state state{};
            lanes::values symbols{};
            for (uint32_t i = 0; i < 8; ++i) {
                do symbols[i] = rng.bits(8);
                while (table.interval[symbols[i]] == 0);
                const uint32_t freq = table.interval[symbols[i]] >> 16;
                // Ends of the invariant, edges of a quotient, the edge of a word.
                const uint32_t most = freq << (31 - table.precision_bits);
                const uint32_t quotient = 1 + rng.below(0x7fffffffu / freq);
                const uint32_t edges[] = {32768, 0x7fffffff, most, most - 1, quotient * freq,
                                          quotient * freq - 1, rng.bits(31)};
                const uint32_t x = edges[rng.below(7)];
                state[i] = x < 32768 ? 32768 : x > 0x7fffffff ? 0x7fffffff : x;
            }
            const uint32_t active = rng.below(4) == 0 ? rng.bits(8) : 255;
            const lanes::state before = state;
            uint8_t bytes[32];
            word_writer writer{bytes, bytes + 32};
            bool missing = false;
            encode_order0_step<lanes>(state, encoding, symbols, active, missing, writer);
            for (uint32_t i = 0; i < 8; ++i) wrong += state[i] < 32768 || state[i] >> 31 != 0;
            word_reader reader{writer.next, bytes + 32};
            const auto back = decode_order0_step<lanes>(state, decoding, active, reader);
            wrong += missing || writer.overrun || reader.overrun || reader.next != reader.end;
            for (uint32_t i = 0; i < 8; ++i)
                wrong += state[i] != before[i] || back[i] != (active >> i & 1 ? symbols[i] : 0);
        }
        CHECK(wrong == 0);
        // A symbol without a slot is said to be one, and moves nothing.
        for (uint32_t s = 0; s < 256; ++s) {
            if (table.interval[s] != 0) continue;
            lanes::state state = lanes::each([](uint32_t) { return 40000u; });
            lanes::values symbols = lanes::each([&](uint32_t) { return s; });
            uint8_t bytes[32];
            word_writer writer{bytes, bytes + 32};
            bool missing = false;
            encode_order0_step<lanes>(state, encoding, symbols, 4, missing, writer);
            CHECK((missing && state[2] == 40000 && writer.next == bytes + 32));
            break;
        }
    }
}
