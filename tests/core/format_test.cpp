// core/format.hpp: the constants that everything else leans on.

#include <doctest/doctest.h>

#include <normans/core/format.hpp>

using namespace normans;

TEST_CASE("the coder's constants are those of the format")
{
    CHECK(rans_format::word_bits == 16);
    CHECK(rans_format::precision_bits == 15);
    CHECK(rans_format::total == 32768);
    CHECK(rans_format::lower_bound == 32768);
    CHECK(flip_slots == 512);
    CHECK(raw_bits_limit == 8);
    CHECK(max_lanes == 32);
}

TEST_CASE("one word restores the invariant after every pop")
{
    // The smallest state a pop leaves behind, then one word.
    const uint32_t after_interval = 1 * (rans_format::lower_bound >> rans_format::precision_bits);
    const uint32_t after_raw = rans_format::lower_bound >> raw_bits_limit;
    CHECK((after_interval << rans_format::word_bits) >= rans_format::lower_bound);
    CHECK((after_raw << rans_format::word_bits) >= rans_format::lower_bound);
}

TEST_CASE("lane counts")
{
    for (uint32_t lanes = 0; lanes < 300; ++lanes)
        CHECK(valid_lanes(lanes) == (lanes == 1 || lanes == 8 || lanes == 16 || lanes == 32));
    CHECK(default_lanes(0) == 8);
    CHECK(default_lanes(32767) == 8);
    CHECK(default_lanes(32768) == 32);
    CHECK(default_lanes(0xffffffffu) == 32);
}
