#pragma once
// Where words and checks live. Three surprises of a rANS stream: the encoder runs from the last
// scalar to the first; it writes its words downward, so that the decoder reads them upward; and all
// lanes share one run of words, a step's words in ascending lane order. Little-endian everywhere,
// at any address.

#include "format.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

namespace detail {

NORMANS_HD inline uint32_t load_word(const uint8_t* from)
{
    return uint32_t(from[0]) | uint32_t(from[1]) << 8;
}

NORMANS_HD inline void store_word(uint8_t* to, uint32_t word)
{
    to[0] = uint8_t(word);
    to[1] = uint8_t(word >> 8);
}

}  // namespace detail

/// Reads words upward. Never past `end`: then words are 0 and `overrun` is set.
struct word_reader {
    const uint8_t* next;
    const uint8_t* end;
    bool overrun = false;

    NORMANS_HD bool holds(uint32_t words) const { return size_t(end - next) >= 2 * size_t(words); }

    /// One word if `wanted`. Unchecked: only after holds().
    NORMANS_HD uint32_t take_where_unchecked(bool wanted)
    {
        const uint32_t word = detail::load_word(next);
        next += wanted ? 2 : 0;
        return word;
    }

    NORMANS_HD uint32_t take()
    {
        if (holds(1)) return take_where_unchecked(true);
        overrun = true;
        return 0;
    }
};

/// Writes words downward from `next`. Never below `begin`: then `overrun` is set.
struct word_writer {
    uint8_t* begin;
    uint8_t* next;
    bool overrun = false;

    NORMANS_HD bool holds(uint32_t words) const
    {
        return size_t(next - begin) >= 2 * size_t(words);
    }

    /// One word if `wanted`. Unchecked: only after holds(); writes below `next` either way.
    NORMANS_HD void put_where_unchecked(bool wanted, uint32_t word)
    {
        detail::store_word(next - 2, word);
        next -= wanted ? 2 : 0;
    }

    NORMANS_HD void put(uint32_t word)
    {
        if (!holds(1)) overrun = true;
        else put_where_unchecked(true, word);
    }
};

/// Content check of one lane: two running sums over its codes in order. 16-bit sums are not enough
/// (pairs of sign flips in bf16 cancel); damage passes with a chance of about 2^-32.
struct running_sums {
    uint32_t a = 0;
    uint32_t b = 0;

    NORMANS_HD void add(uint32_t value)
    {
        a += value;
        b += a;
    }

    /// Turns the sums of `count` values taken last to first into those taken first to last.
    NORMANS_HD void reverse(uint32_t count) { b = (count + 1) * a - b; }

    /// This lane's share of the block's check; the block's is the sum over lanes, mod 2^32.
    NORMANS_HD uint32_t share(uint32_t lane) const
    {
        return (a + (b << 16 | b >> 16)) * ((2 * lane + 1) * 0x9E3779B1u);
    }
};

/// What the parameter hash sums up for one scalar, in running_sums like the content check's.
NORMANS_HD constexpr uint32_t parameter_word(uint32_t mean, uint32_t sigma_index, int row_step)
{
    return mean ^ 0x9E3779B1u * (1 + sigma_index + 256 * uint32_t(row_step + 6));
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
