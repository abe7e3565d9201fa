#pragma once
// Static tables of codes (order 0): counts -> frequencies -> what a step looks up, and back to few
// bytes. Integers only, so that the same counts give the same table everywhere. A table has 2^13
// slots, or 2^12 where some code would fill half of 2^13: then 12 bits hold any freq and any
// distance from a start, and a slot's entry is one 32-bit load.

#include "../status.hpp"
#include "stream.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

struct order0_format {
    static constexpr unsigned fine_bits = 13;
    static constexpr unsigned coarse_bits = 12;
    static constexpr uint32_t max_freq = (uint32_t(1) << 12) - 1;
    static_assert(fine_bits <= rans_format::precision_bits, "renormalisation is one word");
};

constexpr uint32_t order0_symbols = 256;

/// What an encoder looks up. Symbols are codes, or the bytes of 16-bit codes.
struct order0_intervals {
    unsigned precision_bits;            // 12 or 13
    uint32_t interval[order0_symbols];  // start | freq << 16; 0: has no slot
};

/// And a decoder.
struct order0_table : order0_intervals {
    uint32_t slot[(1 << order0_format::fine_bits) + 8];  // symbol | freq << 8 | offset << 20
};

namespace detail {
constexpr unsigned order0_scale_bits = 40;

// count * scale, to nearest, but what occurs gets a slot.
NORMANS_HD constexpr uint32_t order0_share(uint32_t count, uint64_t scale)
{
    const uint64_t half = uint64_t(1) << (order0_scale_bits - 1);
    const uint64_t share = (count * scale + half) >> order0_scale_bits;
    return share == 0 && count != 0 ? 1 : uint32_t(share);
}

// The largest scale whose shares do not exceed `total`, bit by bit. sum(scale) is that of the
// shares of counts that sum to `all`; `missing`: what the shares lack.
NORMANS_EITHER_SIDE template <class Sum>
NORMANS_HD uint64_t order0_scale(uint64_t all, uint32_t total, Sum sum, uint32_t& missing)
{
    uint64_t scale = 0, step = uint64_t(1) << 54;
    for (uint64_t n = all; n > 1; n >>= 1) step >>= 1;
    missing = total;
    for (; step != 0 && missing != 0; step >>= 1) {
        const uint32_t shares = sum(scale + step);
        if (shares > total) continue;
        scale += step;
        missing = total - shares;
    }
    return scale;
}
}  // namespace detail

/// Frequencies that sum to 2^12 or 2^13, at least 1 for each symbol that occurs and 0 for others:
/// shares by Webster's method (each to nearest under one divisor), within a slot of the least code
/// length. `most_bits`: 12 or 13. Where one symbol is alone, another takes the slot that it must
/// not have. bad_argument where none occurs or the counts sum to 2^32 or more.
[[nodiscard]] NORMANS_HD inline status order0_normalize(const uint32_t* counts, uint16_t* freq,
                                                        unsigned most_bits = 13)
{
    uint32_t some[order0_symbols], used = 0;
    uint64_t all = 0;
    for (uint32_t s = 0; s < order0_symbols; ++s) {
        if (counts[s] != 0) some[used++] = counts[s];
        all += counts[s];
    }
    if (used == 0 || all >> 32 != 0) return status::bad_argument;
    if (used == 1) {
        for (uint32_t s = 0; s < order0_symbols; ++s)
            freq[s] = uint16_t(counts[s] != 0 ? order0_format::max_freq : 0);
        freq[counts[0] != 0 ? 1 : 0] = 1;
        return status::ok;
    }
    for (unsigned bits = most_bits; bits >= order0_format::coarse_bits; --bits) {
        uint32_t missing = 0, most = 0;
        const auto shares = [&](uint64_t at) {
            uint32_t sum = 0;
            for (uint32_t i = 0; i < used; ++i) sum += detail::order0_share(some[i], at);
            return sum;
        };
        const uint64_t scale = detail::order0_scale(all, uint32_t(1) << bits, shares, missing);
        for (uint32_t s = 0; s < order0_symbols; ++s) {
            uint32_t share = detail::order0_share(counts[s], scale);
            // Of those that the next scale would raise, all alike, the first ones.
            if (missing != 0 && detail::order0_share(counts[s], scale + 1) > share) {
                ++share;
                --missing;
            }
            freq[s] = uint16_t(share);
            most = share > most ? share : most;
        }
        if (most <= order0_format::max_freq) return status::ok;
    }
    return status::bad_argument;
}

/// Checks 256 frequencies (each at most 4095, sum 2^12 or 2^13) and sums them up.
/// bad_argument if they are no table's; `table` is then unspecified.
[[nodiscard]] NORMANS_HD inline status make_order0_intervals(const uint16_t* freq,
                                                             order0_intervals& table)
{
    uint32_t start = 0;
    for (uint32_t s = 0; s < order0_symbols; start += freq[s++]) {
        if (freq[s] > order0_format::max_freq) return status::bad_argument;
        table.interval[s] = freq[s] == 0 ? 0 : start | uint32_t(freq[s]) << 16;
    }
    table.precision_bits = start >> order0_format::fine_bits ? order0_format::fine_bits
                                                             : order0_format::coarse_bits;
    return start == uint32_t(1) << table.precision_bits ? status::ok : status::bad_argument;
}

/// And the slots.
[[nodiscard]] NORMANS_HD inline status make_order0_table(const uint16_t* freq, order0_table& table)
{
    if (make_order0_intervals(freq, table) != status::ok) return status::bad_argument;
    uint32_t start = 0;
    for (uint32_t s = 0; s < order0_symbols; start += freq[s++]) {
        const uint32_t entry = s | uint32_t(freq[s]) << 8;
        // By eights; what goes too far is overwritten, or lies behind the last slot.
        for (uint32_t o = 0; o < freq[s]; o += 8)
            for (uint32_t i = 0; i < 8; ++i) table.slot[start + o + i] = entry + ((o + i) << 20);
    }
    return status::ok;
}

/// Words that always suffice for a table of `symbols` <= 256: 36 bits a symbol.
constexpr uint32_t order0_table_words = 256 * 36 / 16;

/// The stored form of freq[0 .. symbols), from the low bits of 16-bit words on. A freq has a length
/// in bits, 0 for 0. Each: the step from the length before it (first from 0), 0 -1 1 -2 2 .. as a
/// number of zeros that a one ends; then the freq without its top bit. Returns the words.
NORMANS_HD inline uint32_t write_order0_freqs(const uint16_t* freq, uint32_t symbols, uint8_t* to)
{
    uint64_t held = 0;
    uint32_t words = 0;
    unsigned count = 0, last = 0;
    for (uint32_t s = 0; s < symbols; ++s) {
        unsigned length = 0;
        while (freq[s] >> length != 0) ++length;
        const unsigned zeros = length < last ? 2 * (last - length) - 1 : 2 * (length - last);
        const unsigned low = length == 0 ? 0 : length - 1;
        last = length;
        held |= (uint64_t(1) | uint64_t(freq[s] - (length == 0 ? 0 : 1 << low)) << 1)
                << (count + zeros);
        for (count += zeros + 1 + low; count >= 16; count -= 16, held >>= 16)
            detail::store_word(to + 2 * words++, uint32_t(held) & 0xffff);
    }
    if (count != 0) detail::store_word(to + 2 * words++, uint32_t(held));
    return words;
}

/// The inverse, from at most `words` words; `used` says how many. freq[symbols .. 256) are 0.
/// corrupt_stream where it is no such form: too short, a length over 12, a bit behind the last.
/// What the frequencies sum to is left to make_order0_table.
[[nodiscard]] NORMANS_HD inline status read_order0_freqs(const uint8_t* from, uint32_t words,
                                                         uint32_t symbols, uint16_t* freq,
                                                         uint32_t& used)
{
    uint64_t held = 0;
    uint32_t next = 0;
    int count = 0, length = 0;  // bits held, the last freq's length
    const auto drop = [&](int bits) {
        held >>= bits;
        count -= bits;
    };
    for (uint32_t s = 0; s < order0_symbols; ++s) {
        freq[s] = 0;
        if (s >= symbols) continue;
        for (; count < 48 && next < words; count += 16)
            held |= uint64_t(detail::load_word(from + 2 * next++)) << count;
        int zeros = 0;
        while (zeros < 25 && (held >> zeros & 1) == 0) ++zeros;
        drop(zeros + 1);
        length += zeros % 2 != 0 ? -(zeros + 1) / 2 : zeros / 2;
        if (count < 0 || length < 0 || length > 12) return status::corrupt_stream;
        if (length == 0) continue;
        const uint32_t top = uint32_t(1) << (length - 1);
        freq[s] = uint16_t(top | (uint32_t(held) & (top - 1)));
        drop(length - 1);
        if (count < 0) return status::corrupt_stream;
    }
    used = next - uint32_t(count) / 16;
    const uint64_t behind = held & ((uint64_t(1) << count % 16) - 1);
    return behind == 0 ? status::ok : status::corrupt_stream;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
