// core/stream.hpp: word cursors at exact bounds, and the two running sums.

#include <doctest/doctest.h>

#include <vector>

#include <normans/core/stream.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

TEST_CASE("what is written downward is read upward, little-endian, at any address")
{
    test_rng rng(61);
    for (size_t offset = 0; offset < 4; ++offset) {
        std::vector<uint8_t> bytes(offset + 200);
        word_writer writer{bytes.data() + offset, bytes.data() + offset + 200};
        std::vector<uint32_t> words;
        for (int i = 0; i < 100; ++i) {
            CHECK(writer.holds(uint32_t(100 - i)));
            CHECK_FALSE(writer.holds(uint32_t(101 - i)));
            words.push_back(rng.bits(16));
            // The writer keeps the low 16 bits of what it is given.
            if (i % 2) writer.put(words.back() | rng.bits(8) << 16);
            else writer.put_where_unchecked(true, words.back() | rng.bits(8) << 16);
        }
        CHECK(writer.next == bytes.data() + offset);
        CHECK_FALSE(writer.overrun);
        writer.put(7);
        CHECK(writer.overrun);
        CHECK(writer.next == bytes.data() + offset);
        CHECK(bytes[offset] == uint8_t(words.back()));
        CHECK(bytes[offset + 1] == words.back() >> 8);

        word_reader reader{bytes.data() + offset, bytes.data() + offset + 200};
        for (int i = 99; i >= 0; --i)
            CHECK((i % 2 ? reader.take() : reader.take_where_unchecked(true)) == words[size_t(i)]);
        CHECK_FALSE(reader.overrun);
        CHECK(reader.take() == 0);
        CHECK(reader.overrun);
        CHECK(reader.next == reader.end);
    }
}

TEST_CASE("a word not wanted is not taken, an odd byte is no word")
{
    const std::vector<uint8_t> three = {1, 2, 3};
    word_reader reader{three.data(), three.data() + 3};
    reader.take_where_unchecked(false);
    CHECK(reader.next == three.data());
    CHECK(reader.take() == 0x0201);
    CHECK_FALSE(reader.holds(1));
    CHECK(reader.take() == 0);
    CHECK(reader.overrun);

    std::vector<uint8_t> room(3);
    word_writer writer{room.data(), room.data() + 3};
    writer.put_where_unchecked(false, 0x1234);
    CHECK(writer.next == room.data() + 3);
    writer.put(0xabcd);
    CHECK(room == std::vector<uint8_t>{0, 0xcd, 0xab});
    writer.put(1);
    CHECK(writer.overrun);
    CHECK(room[0] == 0);
}

TEST_CASE("running sums: the formula, forward and backward")
{
    test_rng rng(62);
    for (uint32_t count = 0; count < 200; ++count) {
        std::vector<uint32_t> values;
        for (uint32_t i = 0; i < count; ++i) values.push_back(rng.bits(count % 3 ? 16 : 32));
        running_sums forward, backward;
        uint32_t a = 0, b = 0;
        for (uint32_t i = 0; i < count; ++i) {
            forward.add(values[i]);
            backward.add(values[count - 1 - i]);
            a += values[i];
            b += (count - i) * values[i];
        }
        backward.reverse(count);
        CHECK(forward.a == a);
        CHECK(forward.b == b);
        CHECK(backward.a == a);
        CHECK(backward.b == b);
        const uint32_t lane = rng.below(32);
        const uint32_t rotated = b << 16 | b >> 16;
        CHECK(forward.share(lane) == (a + rotated) * (2 * lane + 1) * 0x9E3779B1u);
    }
}

TEST_CASE("two sign flips in bf16 codes do not cancel")
{
    running_sums sums, flipped;
    for (uint32_t i = 0; i < 16; ++i) {
        sums.add(0x3f80);
        flipped.add(i == 3 || i == 11 ? 0xbf80 : 0x3f80);
    }
    CHECK(sums.share(0) != flipped.share(0));
}

TEST_CASE("parameter words")
{
    CHECK(parameter_word(0, 0, -6) == 0x9E3779B1u);
    CHECK(parameter_word(0x3f800000, 127, 0) ==
          (0x3f800000u ^ 0x9E3779B1u * (1 + 127 + 256 * 6)));
    CHECK(parameter_word(1, 255, 9) == (1u ^ 0x9E3779B1u * (256 + 256 * 15)));
}
