// The directory and its arena, without the codec: against a naive store, within its bounds, and
// over bytes that make no sense.

#include <doctest/doctest.h>

#include <normans/paged/page_directory.hpp>

#include <cstring>
#include <map>
#include <vector>

#include "support/test_rng.hpp"

using namespace normans;
using normans_test::test_rng;

namespace {

/// An arena of real bytes with a slot for every record, and what each record holds.
struct checked_arena {
    directory_config config;
    uint32_t slot_bytes;
    std::vector<uint8_t> memory, directory, slots;
    page_directory places;
    std::map<uint32_t, std::vector<uint8_t>> naive;

    checked_arena(const directory_config& c, uint32_t slot)
        : config(c), slot_bytes(slot), memory(c.arena_bytes),
          directory(page_directory::bytes_for(c.records)), slots(size_t(c.records) * slot)
    {
        REQUIRE(places.create(directory.data(), directory.size(), c) == status::ok);
    }

    auto mover()
    {
        return [this](uint64_t to, uint64_t from, uint64_t bytes) {
            REQUIRE(to < from);
            REQUIRE(from + bytes <= memory.size());
            std::memmove(memory.data() + to, memory.data() + from, bytes);
        };
    }

    uint64_t live() const
    {
        uint64_t sum = 0;
        for (const auto& [record, bytes] : naive)
            sum += bytes.size() > slot_bytes ? arena_room(bytes.size()) : 0;
        return sum;
    }

    status put(uint32_t record, const std::vector<uint8_t>& bytes, uint32_t note)
    {
        const auto place =
            places.put(record, uint32_t(bytes.size()), note, slot_bytes, mover());
        if (place.code != status::ok) return place.code;
        REQUIRE(place.bytes == bytes.size());
        REQUIRE(place.note == note);
        REQUIRE(place.in_slot == (bytes.size() <= slot_bytes));
        uint8_t* to = place.in_slot ? slots.data() + size_t(record) * slot_bytes
                                    : memory.data() + place.offset;
        std::memcpy(to, bytes.data(), bytes.size());
        naive[record] = bytes;
        return status::ok;
    }

    bool holds_all() const
    {
        for (uint32_t i = 0; i < config.records; ++i) {
            const record_place place = places.find(i);
            const auto found = naive.find(i);
            if (place.code != status::ok || place.stored != (found != naive.end())) return false;
            if (!place.stored) continue;
            const uint8_t* from = place.in_slot ? slots.data() + size_t(i) * slot_bytes
                                                : memory.data() + place.offset;
            if (place.bytes != found->second.size() ||
                std::memcmp(from, found->second.data(), place.bytes) != 0)
                return false;
        }
        return true;
    }

    void check_bounds() const
    {
        const arena_use use = places.use();
        REQUIRE(use.live == live());
        REQUIRE(use.live <= use.used);
        REQUIRE(use.used <= config.arena_bytes);
        if (config.max_waste != never_move) REQUIRE(use.used - use.live <= config.max_waste);
    }
};

}  // namespace

TEST_CASE("10,000 random operations lose nothing and keep the arena's bound")
{
    struct setting {
        uint64_t arena, waste;
        uint32_t slot;
    };
    // Roomy and so tight that it is full most of the time; with and without moves; with slots.
    for (const setting& s : {setting{1 << 20, never_move, 0}, setting{24 << 10, never_move, 0},
                             setting{24 << 10, 24 << 10, 0}, setting{24 << 10, 4 << 10, 0},
                             setting{24 << 10, 0, 0}, setting{12 << 10, 4 << 10, 256}}) {
        CAPTURE(s.arena);
        CAPTURE(s.waste);
        checked_arena arena({100, s.arena, s.waste}, s.slot);
        test_rng rng(s.arena + s.waste);
        uint32_t refused = 0;
        for (int step = 0; step < 10000; ++step) {
            const uint32_t record = rng.below(100), what = rng.below(100);
            if (what < 60) {
                std::vector<uint8_t> bytes(1 + rng.below(rng.below(4) == 0 ? 2000 : 400));
                for (uint8_t& b : bytes) b = uint8_t(rng.bits(8));
                const uint64_t others =
                    arena.live() - (arena.naive.count(record) != 0 &&
                                            arena.naive[record].size() > s.slot
                                        ? arena_room(arena.naive[record].size())
                                        : 0);
                const bool fits = bytes.size() <= s.slot ||
                                  others + arena_room(bytes.size()) <= s.arena;
                const status code = arena.put(record, bytes, uint32_t(step));
                refused += code != status::ok;
                if (s.waste != never_move || !fits)
                    REQUIRE(code == (fits ? status::ok : status::output_too_small));
            } else if (what < 99) {
                REQUIRE(arena.places.erase(record, arena.mover()) == status::ok);
                arena.naive.erase(record);
            } else {
                REQUIRE(arena.places.compact(arena.mover()) == status::ok);
                REQUIRE(arena.places.use().used == arena.places.use().live);
            }
            arena.check_bounds();
            if (step % 16 == 0) REQUIRE(arena.holds_all());
            if (step % 16 == 0) REQUIRE(arena.places.check() == status::ok);
        }
        CHECK(arena.holds_all());
        CHECK((refused > 0) == (s.arena < 1 << 20));
    }
}

TEST_CASE("a record grows in place, moves within its own gaps, or is refused with all as it was")
{
    checked_arena arena({4, 1024, never_move}, 0);
    const auto bytes = [](size_t count, int value) {
        return std::vector<uint8_t>(count, uint8_t(value));
    };
    for (uint32_t i = 0; i < 4; ++i) REQUIRE(arena.put(i, bytes(256, int(i)), i) == status::ok);
    CHECK(arena.put(0, bytes(257, 9), 0) == status::output_too_small);
    CHECK(arena.holds_all());
    REQUIRE(arena.places.erase(1, arena.mover()) == status::ok);
    arena.naive.erase(1);
    CHECK(arena.put(0, bytes(512, 5), 0) == status::ok);  // into the gap behind
    CHECK(arena.places.find(0).offset == 0);
    CHECK(arena.put(0, bytes(10, 6), 0) == status::ok);
    CHECK(arena.put(2, bytes(700, 7), 0) == status::ok);  // before itself, and over itself
    CHECK(arena.places.find(2).offset == 16);
    CHECK(arena.holds_all());
    CHECK(arena.places.check() == status::ok);
}

TEST_CASE("a directory is found again in a copy of its memory, and under its own config only")
{
    const directory_config config{10, 4096, 512};
    checked_arena arena(config, 0);
    for (uint32_t i = 0; i < 10; i += 2)
        REQUIRE(arena.put(i, std::vector<uint8_t>(100 + i, uint8_t(i)), i) == status::ok);
    std::vector<uint8_t> copy(arena.directory.size() + 1);
    std::memcpy(copy.data() + 1, arena.directory.data(), arena.directory.size());  // any address
    page_directory again;
    REQUIRE(again.open(copy.data() + 1, copy.size() - 1, config) == status::ok);
    CHECK(again.check() == status::ok);
    for (uint32_t i = 0; i < 10; ++i) CHECK(again.find(i).offset == arena.places.find(i).offset);
    for (uint32_t i = 0; i < 10; ++i) CHECK(again.find(i).stored == (i % 2 == 0));

    page_directory other;
    CHECK(other.find(0).code == status::bad_argument);
    CHECK(other.check() == status::bad_argument);
    CHECK(other.open(nullptr, 9999, config) == status::bad_argument);
    CHECK(other.open(copy.data() + 1, copy.size() - 2, config) == status::truncated);
    CHECK(other.open(copy.data() + 1, copy.size() - 1, {9, 4096, 512}) == status::bad_header);
    CHECK(other.open(copy.data() + 1, copy.size() - 1, {10, 4112, 512}) == status::bad_header);
    CHECK(other.open(copy.data() + 1, copy.size() - 1, {10, 4096, 0}) == status::bad_header);
    CHECK(other.create(copy.data(), 100, config) == status::bad_argument);
    CHECK(other.create(copy.data(), copy.size(), {10, 4095, 0}) == status::bad_argument);
    copy[9] = 1;
    CHECK(other.open(copy.data() + 1, copy.size() - 1, config) == status::unsupported_version);
    copy[1] ^= 1;
    CHECK(other.open(copy.data() + 1, copy.size() - 1, config) == status::bad_header);
    CHECK(again.find(10).code == status::bad_argument);
}

TEST_CASE("whatever a directory's bytes are, calls end and stay inside the arena")
{
    test_rng rng(7);
    const directory_config config{24, 8192, 1024};
    uint32_t noticed = 0, changed = 0;
    for (int round = 0; round < (normans_test::thin == 1 ? 4000 : 1000); ++round) {
        checked_arena arena(config, round % 2 == 0 ? 0 : 64);
        for (uint32_t i = 0; i < 24; ++i)
            if (rng.below(3) != 0)
                static_cast<void>(
                    arena.put(i, std::vector<uint8_t>(1 + rng.below(500), uint8_t(i)), i));
        const std::vector<uint8_t> before = arena.directory;
        for (uint32_t k = rng.below(6) + 1; k > 0; --k) {
            const size_t at = 32 + rng.below(uint32_t(arena.directory.size() - 32));
            const uint32_t how = rng.below(3);
            arena.directory[at] = uint8_t(how == 0   ? arena.directory[at] ^ 1u << rng.below(8)
                                          : how == 1 ? rng.below(25)
                                                     : rng.bits(8));
        }
        changed += before != arena.directory;
        noticed += arena.places.check() != status::ok;
        const auto move = [](uint64_t to, uint64_t from, uint64_t bytes) {
            REQUIRE(to < from);
            REQUIRE(from <= 8192);
            REQUIRE(bytes <= 8192 - from);
        };
        for (int call = 0; call < 40; ++call) {
            const uint32_t record = rng.below(24), what = rng.below(10);
            record_place place = arena.places.find(record);
            if (what < 5)
                place = arena.places.put(record, 1 + rng.below(600), 0, arena.slot_bytes, move);
            else if (what < 8)
                static_cast<void>(arena.places.erase(record, move));
            else if (what == 8)
                static_cast<void>(arena.places.compact(move));
            if (place.code == status::ok && place.stored && !place.in_slot) {
                REQUIRE(place.offset <= 8192);
                REQUIRE(place.bytes <= 8192 - place.offset);
            }
            static_cast<void>(arena.places.use());
        }
        static_cast<void>(arena.places.check());
    }
    CHECK(noticed > changed / 2);  // the rest: notes, sizes within a unit, slots
}

TEST_CASE("offsets are 64-bit")
{
    constexpr uint64_t arena_bytes = uint64_t(1) << 40;
    std::vector<uint8_t> memory(page_directory::bytes_for(300));
    page_directory places;
    REQUIRE(places.create(memory.data(), memory.size(), {300, arena_bytes, never_move}) ==
            status::ok);
    const auto no_move = [](uint64_t, uint64_t, uint64_t) { FAIL("nothing moves"); };
    constexpr uint32_t large = page_directory::max_record_bytes;
    uint64_t end = 0;
    for (uint32_t i = 0; i < 256; ++i) {
        const record_place place = places.put(i, large, i, 0, no_move);
        REQUIRE(place.code == status::ok);
        CHECK(place.offset == end);
        end += large;
    }
    CHECK(places.use().used == end);
    CHECK(places.put(299, large, 0, 0, no_move).code == status::output_too_small);
    CHECK(places.erase(200, no_move) == status::ok);
    CHECK(places.erase(201, no_move) == status::ok);
    CHECK(places.put(299, 5, 0, 0, no_move).offset == 200 * uint64_t(large));
    CHECK(places.check() == status::ok);
    CHECK(places.put(298, large + 1, 0, 0, no_move).code == status::bad_argument);
    CHECK(places.put(298, 0, 0, 0, no_move).code == status::bad_argument);
    CHECK(places.put(300, 5, 0, 0, no_move).code == status::bad_argument);
}
