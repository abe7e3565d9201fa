#pragma once
// Rows of tANS cells from frequencies: integers only, the same everywhere.
//   - normalize_weights: each symbol with a weight gets a frequency, the sum is 2^table_bits.
//   - The k-th of a symbol's f cells belongs in the middle of the k-th of f equal parts of the row:
//     cells are sorted by that place, (2 k + 1) cells / (2 f) rounded down, then by symbol. What
//     this loses against the frequencies is too small to see (tests/core/tans_table_test.cpp).
//   - The n-th cell of a symbol, in the row's order, has counter c = f + n and stands for the cells
//     [c << b, (c + 1) << b) - 2^table_bits, with the one b that lands there. For each symbol these
//     ranges tile the row once: that is what makes encoding and decoding inverse.

#include "../status.hpp"
#include "tans_format.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

namespace detail {

constexpr unsigned log2_floor(uint32_t x)
{
    unsigned bits = 0;
    for (; x > 1; x >>= 1) ++bits;
    return bits;
}

// The symbol whose frequency should change by one: `better(a, b)` compares two of them.
template <class Allowed, class Better>
uint32_t best_symbol(uint32_t symbols, Allowed allowed, Better better)
{
    uint32_t best = symbols;
    for (uint32_t s = 0; s < symbols; ++s)
        if (allowed(s) && (best == symbols || better(s, best))) best = s;
    return best;
}

}  // namespace detail

/// Weights -> frequencies that sum to 2^table_bits; 0 stays 0, all else gets at least 1. From the
/// shares, rounded down, one cell at a time goes where it saves most bits (or is taken where it
/// costs least): by weight / (freq +- 1/2), the first of equals. bad_argument: no weight, more
/// symbols than cells or than max_symbols.
[[nodiscard]] inline status normalize_weights(const uint32_t* weights, uint32_t symbols,
                                              unsigned table_bits, uint16_t* freq)
{
    if (symbols > tans_format::max_symbols || !valid_table_bits(table_bits))
        return status::bad_argument;
    const uint32_t cells = uint32_t(1) << table_bits;
    uint64_t sum = 0;
    uint32_t used = 0, given = 0;
    for (uint32_t s = 0; s < symbols; ++s) {
        sum += weights[s];
        used += weights[s] != 0;
    }
    if (used == 0 || used > cells) return status::bad_argument;
    for (uint32_t s = 0; s < symbols; ++s) {
        const uint32_t share = uint32_t(uint64_t(weights[s]) * cells / sum);
        freq[s] = uint16_t(weights[s] == 0 ? 0 : share == 0 ? 1 : share);
        given += freq[s];
    }
    const auto load = [&](uint32_t s, uint32_t other, int half) {  // compares without dividing
        return uint64_t(weights[s]) * uint64_t(2 * int(freq[other]) + half);
    };
    for (; given < cells; ++given)
        ++freq[detail::best_symbol(
            symbols, [&](uint32_t s) { return weights[s] != 0; },
            [&](uint32_t a, uint32_t b) { return load(a, b, 1) > load(b, a, 1); })];
    for (; given > cells; --given)
        --freq[detail::best_symbol(
            symbols, [&](uint32_t s) { return freq[s] > 1; },
            [&](uint32_t a, uint32_t b) { return load(a, b, -1) < load(b, a, -1); })];
    return status::ok;
}

/// Builds one row: `cells` [2^table_bits] for decoders; for encoders also `next` [2^table_bits] and
/// `entries` [symbols] (both null: not wanted). bad_argument unless the frequencies sum to
/// 2^table_bits; then nothing was written.
[[nodiscard]] inline status make_tans_row(const uint16_t* freq, uint32_t symbols,
                                          unsigned table_bits, tans_cell* cells, uint16_t* next,
                                          tans_symbol* entries)
{
    if (symbols > tans_format::max_symbols || !valid_table_bits(table_bits))
        return status::bad_argument;
    const uint32_t size = uint32_t(1) << table_bits;
    uint32_t sum = 0;
    for (uint32_t s = 0; s < symbols; ++s) sum += freq[s];
    if (sum != size) return status::bad_argument;

    uint16_t place[tans_format::max_cells] = {};  // how many cells belong before or at a place
    const auto place_of = [&](uint32_t s, uint32_t k) {
        return (2 * k + 1) * size / (2 * freq[s]);
    };
    for (uint32_t s = 0; s < symbols; ++s)
        for (uint32_t k = 0; k < freq[s]; ++k) ++place[place_of(s, k)];
    for (uint32_t i = 1; i < size; ++i) place[i] = uint16_t(place[i] + place[i - 1]);
    uint32_t start = size;
    for (uint32_t s = symbols; s-- > 0;) {
        start -= freq[s];
        for (uint32_t k = freq[s]; k-- > 0;) {
            const uint32_t counter = freq[s] + k, at = --place[place_of(s, k)];
            const unsigned bits = table_bits - detail::log2_floor(counter);
            cells[at] = {uint16_t((counter << bits) - size), uint8_t(bits), uint8_t(s)};
            if (next != nullptr) next[start + k] = uint16_t(at);
        }
        if (entries != nullptr)
            entries[s] = {uint16_t(start), freq[s],
                          uint16_t(freq[s] == 0 ? 0 : table_bits - detail::log2_floor(freq[s]))};
    }
    return status::ok;
}

/// How a decoder goes on from `cell`; the caller turns the cell's symbol into a code.
NORMANS_HD inline tans_transition leave_cell(const tans_cell& cell)
{
    return {cell.next_base, cell.bit_count, 0, 0, false, false};
}

/// How an encoder in `cell` gets to one of the symbol's cells (freq > 0).
NORMANS_HD inline tans_transition enter_symbol(const tans_row& row, unsigned table_bits,
                                               uint32_t symbol, uint32_t cell)
{
    const tans_symbol& entry = row.symbols[symbol];
    const uint32_t state = (uint32_t(1) << table_bits) + cell, freq = entry.freq;
    uint32_t bits = entry.bit_count;
    bits -= state >> bits < freq ? 1u : 0u;
    return {row.next[entry.start + (state >> bits) - freq], bits, 0, 0, false, false};
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
