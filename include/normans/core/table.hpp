#pragma once
// A static table over 256 symbols: the empirical marginal under which escaped codes are coded (fp8
// codes, or the high bytes of 16-bit codes). Plain data that both sides read; it travels in the
// profile. Every freq is at least 1, so that every code stays codable.

#include "../status.hpp"
#include "format.hpp"

namespace normans {
inline namespace v0 {

struct marginal_table {
    uint16_t start[257];  // start[0] = 0, start[256] = total
};

/// Checks 256 frequencies (each >= 1, sum = rans_format::total) and sums them up.
/// bad_argument if they are no such table; `table` is then unspecified.
[[nodiscard]] NORMANS_HD inline status make_marginal(const uint16_t* freq, marginal_table& table)
{
    uint32_t sum = 0;
    for (unsigned symbol = 0; symbol < 256; ++symbol) {
        table.start[symbol] = uint16_t(sum);
        sum += freq[symbol];
        if (freq[symbol] == 0 || sum > rans_format::total) return status::bad_argument;
    }
    table.start[256] = uint16_t(sum);
    return sum == rans_format::total ? status::ok : status::bad_argument;
}

/// Counts -> frequencies that sum to the total, each >= 1. Integers only: the same everywhere. What
/// rounding leaves over goes to the largest. The counts' sum is at most 2^48.
NORMANS_HD inline void normalize_counts(const uint64_t* counts, uint16_t* freq)
{
    uint64_t sum = 0;
    unsigned largest = 0;
    for (unsigned symbol = 0; symbol < 256; ++symbol) {
        sum += counts[symbol];
        if (counts[symbol] > counts[largest]) largest = symbol;
    }
    uint32_t given = 0;
    for (unsigned symbol = 0; symbol < 256; ++symbol) {
        const uint32_t share = rans_format::total - 256;
        freq[symbol] = uint16_t(1 + (sum == 0 ? share / 256 : counts[symbol] * share / sum));
        given += freq[symbol];
    }
    freq[largest] = uint16_t(freq[largest] + (rans_format::total - given));
}

/// The symbol whose interval holds `slot` (< total).
NORMANS_HD inline uint32_t symbol_at(const marginal_table& table, uint32_t slot)
{
    uint32_t symbol = 0;
    for (uint32_t step = 128; step != 0; step /= 2)
        if (table.start[symbol + step] <= slot) symbol += step;
    return symbol;
}

}  // namespace v0
}  // namespace normans
