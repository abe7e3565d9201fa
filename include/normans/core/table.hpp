#pragma once
// A static table over 256 symbols: the empirical marginal under which escaped codes are coded (fp8
// codes, or the high bytes of 16-bit codes). Plain data that both sides read; it travels in the
// profile. Every freq is at least 1, so that every code stays codable.

#include "../status.hpp"
#include "format.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

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

/// The symbol whose interval holds `slot` (< total).
NORMANS_HD inline uint32_t symbol_at(const marginal_table& table, uint32_t slot)
{
    uint32_t symbol = 0;
    for (uint32_t step = 128; step != 0; step /= 2)
        if (table.start[symbol + step] <= slot) symbol += step;
    return symbol;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
