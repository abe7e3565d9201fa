#pragma once
// Counts of escaped bytes -> the frequencies of a marginal_table.

#include "../core/table.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Counts -> frequencies that sum to the total, each >= 1. Integers only: the same everywhere. What
/// rounding leaves over goes to the largest. The counts' sum is at most 2^48.
inline void normalize_counts(const uint64_t* counts, uint16_t* freq)
{
    uint64_t sum = 0;
    unsigned largest = 0;
    for (unsigned symbol = 0; symbol < 256; ++symbol) {
        sum += counts[symbol];
        if (counts[symbol] > counts[largest]) largest = symbol;
    }
    uint32_t given = 0;
    const uint32_t share = rans_format::total - 256;
    for (unsigned symbol = 0; symbol < 256; ++symbol) {
        freq[symbol] = uint16_t(1 + (sum == 0 ? share / 256 : counts[symbol] * share / sum));
        given += freq[symbol];
    }
    freq[largest] = uint16_t(freq[largest] + (rans_format::total - given));
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
