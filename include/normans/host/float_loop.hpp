#pragma once
// The lanes of a tANS block of fp8 or e2m1, a batch at a time, lane after lane without branches:
// tans_step.hpp's events, in both directions. Integers only. float_planes.hpp runs whole steps in
// registers on the same state.

#include "float_rows.hpp"
#include "tans_loop.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

/// What decoding needs beside rows and lanes.
struct float_decoding {
    using rows_type = float_rows;

    const tans_cell* cells;
    const float_groups_table& groups;
    uint32_t sign, largest, code_bits;

    float_decoding(const tans_bank& bank, scalar_format format)
        : cells(bank.cells),
          groups(float_groups_tables[format.mantissa_bits - 1]),
          sign(format.code_sign()),
          largest(format.largest_finite),
          code_bits(format.code_bits)
    {
    }

    /// A batch to codes; false if a symbol stands for none.
    bool run(const float_rows& rows, uint32_t count, tans_state& x, word_reader& words,
             uint8_t* codes) const
    {
        return run(rows, 0, count, x, words, codes);
    }

    /// The same from scalar `first` on, step by step.
    template <class Rows>
    bool run(const Rows& rows, uint32_t first, uint32_t count, tans_state& x, word_reader& words,
             uint8_t* codes) const
    {
        bool good = true;
        tans_cell next[max_lanes];  // of the lanes, under the rows of the step
        const auto place = rows.from(first);
        for (uint32_t i = 0; i < x.lanes && first + i < count; ++i)
            next[i] = cells[place[i].first_cell + x.cell[i]];
        for (; first < count; first += x.lanes) {
            const uint32_t left = count - first, here = left < x.lanes ? left : x.lanes;
            good &= words.holds(2 * here + 1)
                        ? step<true>(rows, first, here, x, next, words, codes + first)
                        : step<false>(rows, first, here, x, next, words, codes + first);
        }
        return good;
    }

private:
    // Roomy: there are two words for each lane, and one more to look at. `next`: the lanes' cells
    // under the rows of the step, afterwards of the next one.
    template <bool Roomy, class Rows>
    NORMANS_INLINE bool step(const Rows& rows, uint32_t first, uint32_t here, tans_state& x,
                             tans_cell* next, word_reader& words, uint8_t* codes) const
    {
        const tans_cell* const all = cells;
        word_reader reader = words;
        uint8_t symbols[max_lanes];
        const auto place = rows.from(first);
        for (uint32_t i = 0; i < here; ++i) {
            const tans_cell at = next[i];
            uint32_t bits = x.bits[i];
            const uint32_t cell = at.next_base + take(bits, at.bit_count);
            symbols[i] = at.symbol;
            x.cell[i] = cell;
            next[i] = all[place[here + i].first_cell + cell];  // long before it is wanted
            refill<Roomy>(bits, reader);
            x.bits[i] = bits;
        }
        uint32_t beyond = 0;
        for (uint32_t i = 0; i < here; ++i) {
            const float_place mine = place[i];
            const int symbol = symbols[i];
            uint32_t bits = x.bits[i];
            const int group = mine.origin + symbol - cell_middle, negative = group >> 31;
            const float_groups_table::entry entry =
                groups.group[(mine.start + uint32_t(group ^ negative)) & 1023];
            uint32_t raw_bits = entry.raw_bits;
            uint32_t magnitude = (mine.lift & 127u) + entry.magnitude;
            const uint32_t turned = uint32_t(negative) ^ (0 - (mine.lift >> 7 & 1u));
            uint32_t code = magnitude | (turned & sign);
            if (NORMANS_RARE(symbol == 0)) {
                magnitude = code = 0;
                raw_bits = code_bits;
            }
            beyond |= largest - magnitude;
            codes[i] = uint8_t(code | take(bits, raw_bits));
            refill<Roomy>(bits, reader);
            x.bits[i] = bits;
        }
        words = reader;
        return beyond >> 31 == 0;
    }

    static NORMANS_INLINE uint32_t take(uint32_t& bits, uint32_t count)
    {
        const uint32_t all = bits;
        bits >>= count;
        return all - (bits << count);
    }

    // No branch, which would be a guess.
    template <bool Roomy>
    static NORMANS_INLINE void refill(uint32_t& bits, word_reader& words)
    {
        if (!Roomy) return tans_state::refill(bits, words);
        const uint32_t starved = 0 - ((bits - tans_format::lower_bound) >> 31);
        bits = bits << (starved & tans_format::word_bits) | (load_word(words.next) & starved);
        words.next += starved & 2;
    }
};

/// What encoding needs.
struct float_encoding : private tans_encoding {
    scalar_format format;

    float_encoding(const tans_bank& from, scalar_format f) : tans_encoding(from, f), format(f) {}

    /// Scalars [0, count) of a batch, last to first; returns the escapes.
    uint32_t run(const float_rows& rows, uint32_t count, const uint8_t* codes, tans_state& x,
                 word_writer& words) const
    {
        return run(rows, 0, count, codes, x, words);
    }

    /// The same down to scalar `end`, which begins a step.
    template <class Rows>
    uint32_t run(const Rows& rows, uint32_t end, uint32_t count, const uint8_t* codes,
                 tans_state& x, word_writer& words) const
    {
        const int p = int(format.mantissa_bits), half = int(sign);
        return steps(rows, end, count, codes, x, words, [&](const float_place& place, int code) {
            const int magnitude = code & (half - 1);
            const int under = int(place.under_top()), m = magnitude - (place.lift & 127);
            int low = under - (m >> p) + 1;  // as in float_groups::bits()
            low = low > under ? under : low < 0 ? 0 : low;
            low = low > p ? p : low;
            const int v = (m - ((under - low) << p)) >> low, from_zero = v - place.away();
            const bool negative = ((code & half) != 0) != (place.lift >> 7 != 0);
            const uint32_t row = place.first_cell >> bank.plan.table_bits;
            const uint32_t symbol = uint32_t((negative ? -1 - from_zero : from_zero) -
                                             place.origin + 129 - int(bank.reach[row]));
            const bool within = from_zero >= 0 && magnitude <= int(format.largest_finite) &&
                                symbol < bank_symbols;
            return find(row, within ? symbol : 0, uint32_t(low));
        });
    }
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
