#pragma once
// tANS: the second coder. A lane is a pair: `cell`, an index into a row of 2^table_bits cells, and
// `bits`, a reservoir whose highest set bit marks its fill, so that it is used like a rANS state
// that takes raw bits only: the same words, in the same order, under the same invariant
//     lower_bound <= bits < lower_bound << word_bits    between two steps.
// All rows of a bank have one size, so a lane may use another row for every scalar.
//
// Stored, a lane is a u32 like a rANS state:  bits 0..15 reservoir, 16..31 cell. The reservoir is
// what is left after a last word was spilled where it had more than 16 bits, so that a decoder
// begins with a refill. A lane starts (for the encoder) and ends (for the decoder) at
// {first_cell, lower_bound}: a free check.

#include "format.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

struct tans_format {
    static constexpr unsigned word_bits = rans_format::word_bits;
    static constexpr uint32_t lower_bound = rans_format::lower_bound;
    static constexpr unsigned min_table_bits = 4;
    static constexpr unsigned max_table_bits = 12;
    static constexpr uint32_t max_cells = uint32_t(1) << max_table_bits;
    static constexpr uint32_t max_symbols = 256;
    static constexpr uint32_t first_cell = 0;

    static_assert(max_table_bits < word_bits, "one word refills a reservoir that gave its bits");
    static_assert(uint32_t(1) << max_table_bits <= lower_bound, "a reservoir holds a cell's bits");
};

NORMANS_HD constexpr bool valid_table_bits(uint32_t bits)
{
    return bits >= tans_format::min_table_bits && bits <= tans_format::max_table_bits;
}

/// What a decoder knows of a cell: the symbol (in banks what it stands for: uniform_bank.hpp), and
/// the next cell, next_base + bit_count bits.
struct tans_cell {
    uint16_t next_base;
    uint8_t bit_count;
    uint8_t symbol;
};
static_assert(sizeof(tans_cell) == 4, "banks are sized by it");

/// What an encoder knows of a symbol. freq 0: the row has no such symbol.
struct tans_symbol {
    uint16_t start;  // of its run in the row's `next`
    uint16_t freq;   // cells
    uint16_t bit_count;  // the larger of the two that occur
};

/// One quantised distribution as both sides read it; `next` and `symbols` are null for decoders.
/// next[start + k]: the cell that an encoder goes to from counter freq + k.
struct tans_row {
    const tans_cell* cells;
    const uint16_t* next;
    const tans_symbol* symbols;
};

/// A step of one lane: decoding, cell = next_base + bit_count bits; encoding, bit_count low bits of
/// the cell are given away and next_base is the new cell. Then raw_bits low bits of the code.
struct tans_transition {
    uint32_t next_base;
    uint32_t bit_count;
    uint32_t code;  // low raw_bits are 0; 0 for an escape
    uint32_t raw_bits;
    bool escaped;  // the whole code follows raw
    bool corrupt;  // the symbol stands for no code
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
