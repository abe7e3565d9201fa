// core/lanes.hpp: the operations of array_lanes, which are the definition for every other backend,
// against plain arithmetic. Division is checked at every quotient boundary of every frequency.

#include <doctest/doctest.h>

#include <vector>

#include <normans/core/lanes.hpp>
#include <normans/host/guess.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

template <class Lanes>
typename Lanes::state random_states(test_rng& rng)
{
    typename Lanes::state x;
    for (uint32_t i = 0; i < Lanes::width; ++i) x[i] = rng.bits(rng.below(2) ? 31 : 16);
    return x;
}

template <class Lanes>
void check_moves(uint64_t seed)
{
    CAPTURE(Lanes::width);
    test_rng rng(seed);
    for (int round = 0; round < 3000; ++round) {
        // From no room at all to more than all lanes need: every bounds path.
        const size_t words = rng.below(2 * Lanes::width + 3);
        std::vector<uint8_t> bytes(2 * words);
        for (uint8_t& byte : bytes) byte = uint8_t(rng.bits(8));

        typename Lanes::state x = random_states<Lanes>(rng), expected = x;
        word_reader reader{bytes.data(), bytes.data() + bytes.size()};
        Lanes::refill(x, reader);
        size_t taken = 0;
        bool short_of = false;
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            if (expected[i] >= 32768) continue;
            uint32_t word = 0;
            if (taken < words) word = bytes[2 * taken] + 256u * bytes[2 * taken + 1], ++taken;
            else short_of = true;
            expected[i] = expected[i] * 65536 + word;
        }
        bool same = reader.overrun == short_of && reader.next == bytes.data() + 2 * taken;
        for (uint32_t i = 0; i < Lanes::width; ++i) same &= x[i] == expected[i];
        REQUIRE(same);

        x = random_states<Lanes>(rng), expected = x;
        std::vector<uint8_t> out(2 * words), wanted(2 * words);
        word_writer writer{out.data(), out.data() + out.size()};
        const uint32_t full = rng.bits(32) & Lanes::first_lanes(Lanes::width);
        Lanes::spill(x, full, writer);
        size_t left = words;
        short_of = false;
        for (uint32_t i = Lanes::width; i-- > 0;) {
            if ((full >> i & 1) == 0) continue;
            if (left == 0) {
                short_of = true;
            } else {
                --left;
                wanted[2 * left] = uint8_t(expected[i] % 256);
                wanted[2 * left + 1] = uint8_t(expected[i] / 256 % 256);
            }
            expected[i] /= 65536;
        }
        same = writer.overrun == short_of && writer.next == out.data() + 2 * left;
        for (uint32_t i = 0; i < Lanes::width; ++i) same &= x[i] == expected[i];
        for (size_t i = 2 * left; i < out.size(); ++i) same &= out[i] == wanted[i];
        REQUIRE(same);
    }
}

template <class Lanes>
void check_arithmetic(uint64_t seed)
{
    CAPTURE(Lanes::width);
    test_rng rng(seed);
    uint64_t wrong = 0;
    for (int round = 0; round < 20000; ++round) {
        typename Lanes::values freq, start, bits, eight, value;
        typename Lanes::state x, by_freq, by_bits;
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            freq[i] = rng.below(8) == 0 ? rans_format::total : 1 + rng.below(rans_format::total);
            if (rng.below(4) == 0) freq[i] = 1 + rng.below(40);
            start[i] = rng.below(rans_format::total - freq[i] + 1);
            bits[i] = rng.below(9);
            value[i] = rng.bits(8) & ((1u << bits[i]) - 1);
            eight[i] = 8;
            by_freq[i] = (freq[i] << 16) - 2 + rng.below(4);
            by_bits[i] = (1u << (31 - bits[i])) - 2 + rng.below(4);
            x[i] = rng.bits(31) % (freq[i] << 16);
        }
        // One word is due exactly where the push would leave 31 bits.
        const uint32_t full = Lanes::full_for(by_freq, freq);
        const uint32_t full_bits = Lanes::full_for_bits(by_bits, bits);
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            wrong += (full >> i & 1) != (by_freq[i] >= uint64_t(freq[i]) * 65536);
            wrong += (full_bits >> i & 1) != (uint64_t(by_bits[i]) << bits[i] >= 0x80000000u);
        }
        // advance undoes divide, pop undoes push.
        typename Lanes::state y = x;
        Lanes::divide(y, freq, start);
        const auto slots = Lanes::slot(y);
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            wrong += y[i] != (uint64_t(x[i]) / freq[i] << 15) + x[i] % freq[i] + start[i];
            wrong += slots[i] != y[i] % 32768;
            wrong += slots[i] < start[i] || slots[i] >= start[i] + freq[i];
        }
        Lanes::advance(y, freq, Lanes::subtract(slots, start));
        for (uint32_t i = 0; i < Lanes::width; ++i) wrong += y[i] != x[i];
        typename Lanes::values z;
        for (uint32_t i = 0; i < Lanes::width; ++i) z[i] = x[i] >> 8;
        const typename Lanes::values kept = z;
        Lanes::push(z, bits, value);
        for (uint32_t i = 0; i < Lanes::width; ++i)
            wrong += z[i] != kept[i] * (1u << bits[i]) + value[i];
        const auto popped = Lanes::pop(z, bits);
        for (uint32_t i = 0; i < Lanes::width; ++i)
            wrong += z[i] != kept[i] || popped[i] != value[i];
        // The masked and lanewise helpers.
        const uint32_t set = rng.bits(32) & Lanes::first_lanes(Lanes::width);
        const auto some = Lanes::where(set, value);
        const auto same = Lanes::where(set, 8u);
        const auto both = Lanes::combine(some, eight);
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            const bool mine = set >> i & 1;
            wrong += some[i] != (mine ? value[i] : 0) || same[i] != (mine ? 8u : 0u);
            wrong += both[i] != (some[i] | 8u);
        }
    }
    CHECK(wrong == 0);
}

template <class Lanes>
void check_lookup()
{
    CAPTURE(Lanes::width);
    test_rng rng(73);
    std::vector<uint16_t> freq(256, 128);
    marginal_table table;
    REQUIRE(make_marginal(freq.data(), table) == status::ok);
    const normal_model<scalar_type::bf16> model{shape_of(shape_id::mixture_marginal), -16, &table};
    const piecewise_guess guess(model.shape);
    uint64_t wrong = 0;
    for (int round = 0; round < 400; ++round) {
        typename Lanes::models models{};
        typename Lanes::values codes, slots;
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            const uint32_t mean = rng.bits(1) << 31 | (0x3f000000 + rng.bits(24));
            models[i] = model.prepare(mean, rng.below(8) == 0 ? 255 : 110 + rng.below(30),
                                      rng.between(min_row_step, max_row_step));
            codes[i] = rng.below(3) == 0 ? rng.bits(16) : nearest_code(model.format, mean);
            slots[i] = rng.bits(15);
        }
        const uint32_t active = rng.bits(32) & Lanes::first_lanes(Lanes::width);
        const auto found = Lanes::find(model, models, codes, active);
        const auto located = Lanes::locate(model, guess, models, slots, active);
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            const bool on = active >> i & 1;
            const interval by_code = on ? model.find(models[i], codes[i]) : idle_interval();
            interval by_slot = idle_interval();
            if (on && slots[i] < model.shape.escape_slots) by_slot = model.escape();
            else if (on && models[i].is_far) by_slot = model.locate_far(models[i], slots[i]);
            else if (on) by_slot = model.locate(models[i], slots[i], 0);
            const auto differs = [&](const typename Lanes::intervals& all, const interval& one) {
                return all.start[i] != one.start || all.freq[i] != one.freq ||
                       all.code[i] != one.code || all.raw_bits[i] != one.raw_bits ||
                       (all.raw >> i & 1) != (one.raw_bits != 0) ||
                       (all.escaped >> i & 1) != one.escaped ||
                       (all.corrupt >> i & 1) != one.corrupt;
            };
            wrong += differs(found, by_code) || differs(located, by_slot);
        }
        typename Lanes::values symbols;
        for (uint32_t i = 0; i < Lanes::width; ++i) symbols[i] = rng.bits(8);
        const auto bytes = Lanes::find(table, symbols, active);
        const auto back = Lanes::locate(table, slots, active);
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            const bool on = active >> i & 1;
            wrong += bytes.freq[i] != (on ? 128 : rans_format::total);
            wrong += bytes.start[i] != (on ? 128 * symbols[i] : 0);
            wrong += back.code[i] != (on ? slots[i] / 128 : 0);
            wrong += back.start[i] != (on ? slots[i] / 128 * 128 : 0);
        }
    }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("refill and spill: order, bounds, overrun")
{
    check_moves<array_lanes<1>>(70);
    check_moves<array_lanes<8>>(71);
    check_moves<array_lanes<16>>(72);
    check_moves<array_lanes<32>>(73);
}

TEST_CASE("arithmetic of the lane group")
{
    check_arithmetic<array_lanes<1>>(74);
    check_arithmetic<array_lanes<8>>(75);
    check_arithmetic<array_lanes<32>>(76);
}

TEST_CASE("intervals of lanes, idle where not active")
{
    check_lookup<array_lanes<1>>();
    check_lookup<array_lanes<16>>();
    check_lookup<array_lanes<32>>();
}

TEST_CASE("first_lanes")
{
    using lanes = array_lanes<32>;
    CHECK(lanes::first_lanes(0) == 0);
    CHECK(lanes::first_lanes(1) == 1);
    CHECK(lanes::first_lanes(31) == 0x7fffffffu);
    CHECK(lanes::first_lanes(32) == 0xffffffffu);
}

TEST_CASE("every frequency divides exactly at every quotient boundary")
{
    // States before a push lie in [freq, freq << 16), so quotients in 1..65535: the first and the
    // last state of each, 2^32 divisions, their results known without dividing.
    using lanes = array_lanes<32>;
    uint64_t wrong = 0;
    for (uint32_t freq = 1; freq <= rans_format::total; freq += thin) {
        typename lanes::values freqs, starts;
        const uint32_t start = rans_format::total - freq;
        for (uint32_t i = 0; i < 32; ++i) freqs[i] = freq, starts[i] = start;
        for (uint32_t quotient = 1; quotient < 65536; quotient += 16) {
            const uint32_t first = quotient < 65520 ? quotient : 65520;
            typename lanes::state x;
            for (uint32_t i = 0; i < 16; ++i) {
                x[i] = (first + i) * freq;
                x[i + 16] = x[i] + freq - 1;
            }
            lanes::divide(x, freqs, starts);
            uint32_t difference = 0;
            for (uint32_t i = 0; i < 16; ++i) {
                const uint32_t expected = ((first + i) << 15) + start;
                difference |= (x[i] ^ expected) | (x[i + 16] ^ (expected + freq - 1));
            }
            wrong += difference != 0;
        }
    }
    CHECK(wrong == 0);
}
