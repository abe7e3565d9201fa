#pragma once
// The lanes of a tANS block of int8 or int4, a batch at a time, lane after lane without branches:
// tans_step.hpp's events, in both directions, with what they cost at one lane taken apart from what
// a whole step shares. Integers only. tans_planes.hpp runs whole steps in registers on the same
// state.

#include "../block/block.hpp"
#include "tans_rows.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

/// The lanes of one block between two batches.
struct tans_state {
    alignas(64) uint32_t cell[max_lanes];
    alignas(64) uint32_t bits[max_lanes + 1];  // the last one is no lane's
    uint32_t lanes;

    explicit tans_state(uint32_t count) : lanes(count)
    {
        for (uint32_t i = 0; i < max_lanes; ++i) {
            cell[i] = tans_format::first_cell;
            bits[i] = tans_format::lower_bound;
        }
        bits[max_lanes] = 0;
    }

    static NORMANS_INLINE void refill(uint32_t& bits, word_reader& words)
    {
        if (bits < tans_format::lower_bound) bits = bits << tans_format::word_bits | words.take();
    }

    /// open_lanes(); `stored` little-endian.
    bool open(const uint8_t* stored, unsigned table_bits, word_reader& words)
    {
        for (uint32_t i = 0; i < lanes; ++i) {
            const uint32_t one = load_u32(stored + 4 * i);
            bits[i] = one & 0xffff;
            cell[i] = one >> 16;
            if (bits[i] == 0 || cell[i] >> table_bits != 0) return false;
        }
        for (uint32_t i = 0; i < lanes; ++i) refill(bits[i], words);
        return true;
    }

    /// close_lanes()
    void close(uint32_t* stored, word_writer& words)
    {
        for (uint32_t i = lanes; i-- > 0;) {
            if (bits[i] >> tans_format::word_bits == 0) continue;
            words.put(bits[i]);
            bits[i] >>= tans_format::word_bits;
        }
        for (uint32_t i = 0; i < lanes; ++i) stored[i] = bits[i] | cell[i] << 16;
    }

    bool ended() const
    {
        uint32_t other = 0;
        for (uint32_t i = 0; i < lanes; ++i)
            other |= (cell[i] ^ tans_format::first_cell) | (bits[i] ^ tans_format::lower_bound);
        return other == 0;
    }
};

/// What decoding needs beside rows and lanes.
struct tans_decoding {
    using rows_type = tans_rows;

    const tans_cell* cells;
    uint32_t sign, above;  // of the codes: code_sign(), and the bits that no code has
    uint32_t code_bits;

    tans_decoding(const tans_bank& bank, scalar_format format)
        : cells(bank.cells),
          sign(format.code_sign()),
          above(~(2 * format.code_sign() - 1)),
          code_bits(format.code_bits)
    {
    }

    /// A batch to codes; false if a symbol stands for none. `codes` has room for whole registers.
    bool run(const tans_rows& rows, uint32_t count, tans_state& x, word_reader& words,
             uint8_t* codes) const
    {
        const bool good = run(rows, 0, count, x, words, codes);
        signed_codes(codes, count);
        return good;
    }

    /// The same from scalar `first` on, step by step. The codes are counted from the lowest. Steps
    /// without groups, which cost less, run together.
    template <class Rows>
    bool run(const Rows& rows, uint32_t first, uint32_t count, tans_state& x,
             word_reader& words, uint8_t* codes) const
    {
        uint32_t outside = 0;
        tans_cell next[max_lanes];  // of the lanes, under the rows of the step
        const auto place = rows.from(first);
        for (uint32_t i = 0; i < x.lanes && first + i < count; ++i)
            next[i] = cells[place[i].first_cell + x.cell[i]];
        while (first < count) {
            const bool grouped = grouped_at(rows, first);
            uint32_t end = first + x.lanes;
            while (end < count && grouped_at(rows, end) == grouped) end += x.lanes;
            outside |= grouped ? steps<true>(rows, first, end, count, x, next, words, codes)
                               : steps<false>(rows, first, end, count, x, next, words, codes);
            first = end;
        }
        return (outside & above) == 0;
    }

    /// Eight at a time: `codes` has room for a batch.
    void signed_codes(uint8_t* codes, uint32_t count) const
    {
        const uint64_t signs = 0x0101010101010101u * sign;
        for (uint32_t i = 0; i < count; i += 8) {
            uint64_t eight;
            std::memcpy(&eight, codes + i, 8);
            eight ^= signs;
            std::memcpy(codes + i, &eight, 8);
        }
    }

private:
    static bool grouped_at(const tans_rows& rows, uint32_t first)
    {
        return rows.grouped_at(first);
    }
    template <class Rows>
    static bool grouped_at(const Rows& rows, uint32_t)
    {
        return rows.grouped;
    }

    // The steps [first, end) of [first, count).
    template <bool Grouped, class Rows>
    NORMANS_NOINLINE uint32_t steps(const Rows& rows, uint32_t first, uint32_t end, uint32_t count,
                                    tans_state& x, tans_cell* next, word_reader& words,
                                    uint8_t* codes) const
    {
        uint32_t outside = 0;
        for (; first < end; first += x.lanes) {
            const uint32_t left = count - first, here = left < x.lanes ? left : x.lanes;
            if (!words.holds(2 * here + 8))
                outside |= step<false, false, Grouped>(rows, first, here, x, next, words, codes);
            else if (rows.unrolled && here == 32 && here != left)
                outside |= step<true, true, Grouped>(rows, first, here, x, next, words, codes);
            else outside |= step<false, true, Grouped>(rows, first, here, x, next, words, codes);
        }
        return outside;
    }

    // Returns all codes' bits. Whole: of 32 lanes, and not the last one, which leaves the cells.
    // Roomy: there are two words for each lane, and eight more. `next`: the lanes' cells under the
    // rows of the step, afterwards of the next one.
    template <bool Whole, bool Roomy, bool Grouped, class Rows>
    NORMANS_INLINE uint32_t step(const Rows& rows, uint32_t first, uint32_t here,
                                 tans_state& x, tans_cell* next, word_reader& words,
                                 uint8_t* codes) const
    {
        const tans_cell* const all = cells;
        const uint32_t escape_bits = code_bits, escape_index = sign;
        word_reader reader = words;
        const uint8_t* const from = words.next;
        size_t taken = 0, starved = 0;
        uint32_t outside = 0, bound = tans_format::lower_bound;
        NORMANS_HIDE(bound);
        uint8_t which[max_lanes + 8];  // starved after their raw bits
        const auto place = rows.from(first);
        uint8_t* to = codes + first;
        NORMANS_HIDE(to);
        const auto one = [&](uint32_t i) NORMANS_LAMBDA {
            const int symbol = next[i].symbol;
            uint32_t bits = x.bits[i];
            const uint32_t cell = take_onto(bits, next[i].bit_count, next[i].next_base);
            if (!Whole) x.cell[i] = cell;
            next[i] = all[place[here + i].first_cell + cell];  // long before it is wanted
            if (Roomy) refill(bits, bound, from, taken);
            else tans_state::refill(bits, reader);
            uint32_t index = uint32_t(int16_t(place[i].origin) + (symbol ^ place[i].flip));
            const bool escaped = NORMANS_RARE(symbol == 0);
            if (Grouped || escaped) {
                index = NORMANS_RARE(escaped) ? escape_index ^ take_onto(bits, escape_bits, 0)
                                              : take_below(bits, place[i].group_bits, index);
                which[starved] = uint8_t(i);
                starved += bits < bound;
            }
            x.bits[i] = bits;
            outside |= index;
            NORMANS_HIDE(outside);
            to[i] = uint8_t(index);
        };
        if constexpr (Whole) {
            NORMANS_UNROLL_LANES
            for (uint32_t i = 0; i < 32; ++i) one(i);
        } else {
            for (uint32_t i = 0; i < here; ++i) one(i);
        }
        if (Roomy) {
            reader.next += 2 * taken;
            // By fours, which is rarely a surprise; the last of them to no lane.
            std::memset(which + starved, int(max_lanes), 4);
            for (size_t done = 0; done < starved; done += 4) {
                NORMANS_UNROLL
                for (uint32_t i = 0; i < 4; ++i) {
                    uint32_t& bits = x.bits[which[done + i]];
                    uint32_t word = load_word(reader.next + 2 * (done + i));
                    NORMANS_HIDE(word);
                    bits = bits << tans_format::word_bits | word;
                }
            }
            reader.next += 2 * starved;
        } else {
            for (size_t i = 0; i < starved; ++i) {
                uint32_t& bits = x.bits[which[i]];
                bits = bits << tans_format::word_bits | reader.take();
            }
        }
        words = reader;
        return outside;
    }

    // base + the low `count` bits; or these below it.
    static NORMANS_INLINE uint32_t take_onto(uint32_t& bits, uint32_t count, uint32_t base)
    {
        const uint32_t all = bits + base;
        bits >>= count;
        return all - (bits << count);
    }
    static NORMANS_INLINE uint32_t take_below(uint32_t& bits, uint32_t count, uint32_t above)
    {
        const uint32_t all = bits;
        bits >>= count;
        return ((above - bits) << count) + all;
    }

    // No branch, which would be a guess: what hides the values makes compilers choose between
    // them, and count by the carry of the same comparison.
    static NORMANS_INLINE void refill(uint32_t& bits, uint32_t bound, const uint8_t* words,
                                      size_t& taken)
    {
        uint32_t word = load_word(words + 2 * taken);
        NORMANS_HIDE(word);
        uint32_t more = bits << tans_format::word_bits | word;
        NORMANS_HIDE(more);
        const uint32_t before = bits;
        bits = before < bound ? more : before;
        taken += before < bound;
    }
};

/// What encoding needs.
struct tans_encoding {
    const tans_bank& bank;
    uint32_t sign, code_bits;

    tans_encoding(const tans_bank& from, scalar_format format)
        : bank(from), sign(format.code_sign()), code_bits(format.code_bits)
    {
    }

    /// Scalars [0, count) of a batch, last to first; returns the escapes. `codes` as they are.
    template <class Rows>
    uint32_t run(const Rows& rows, uint32_t count, const uint8_t* codes, tans_state& x,
                 word_writer& words) const
    {
        return run(rows, 0, count, codes, x, words);
    }

    /// The same of [end, count), which begin with a step.
    template <class Rows>
    uint32_t run(const Rows& rows, uint32_t end, uint32_t count, const uint8_t* codes,
                 tans_state& x, word_writer& words) const
    {
        const auto find_entry = [&](const tans_place& place, uint32_t code) {
            const uint32_t row = place.first_cell >> bank.plan.table_bits;
            const int group = int((code ^ sign) >> place.group_bits);
            const uint32_t symbol = uint32_t((group - int16_t(place.origin)) ^ place.flip) -
                                    uint32_t(cell_middle) + bank_symbols / 2;
            return find(row, symbol - 1 < bank_symbols - 1 ? symbol : 0, place.group_bits);
        };
        return steps(rows, end, count, codes, x, words, find_entry);
    }

protected:
    /// How a code is encoded: its symbol, or the escape's, and the raw bits behind it.
    struct found {
        tans_symbol entry;
        uint8_t raw_bits;
        bool escaped;
    };

    NORMANS_INLINE found find(uint32_t row, uint32_t symbol, uint32_t raw_bits) const
    {
        const tans_symbol* const of_row = bank.symbols + row * bank_symbols;
        const tans_symbol entry = of_row[symbol];
        const bool escaped = symbol == 0 || entry.freq == 0;
        return {escaped ? of_row[0] : entry, uint8_t(escaped ? code_bits : raw_bits), escaped};
    }

    /// run() with find_code(place, code) -> found.
    template <class Rows, class FindCode>
    uint32_t steps(const Rows& rows, uint32_t end, uint32_t count, const uint8_t* codes,
                   tans_state& x, word_writer& words, FindCode find_code) const
    {
        uint32_t escapes = 0, here = count % x.lanes != 0 ? count % x.lanes : x.lanes;
        for (uint32_t first = count; first != end; here = x.lanes) {
            first -= here;
            escapes += words.holds(2 * here)
                           ? step<true>(rows, first, here, codes, x, words, find_code)
                           : step<false>(rows, first, here, codes, x, words, find_code);
        }
        return escapes;
    }

private:
    template <bool Roomy, class Rows, class FindCode>
    NORMANS_INLINE uint32_t step(const Rows& rows, uint32_t first, uint32_t here,
                                 const uint8_t* codes, tans_state& x, word_writer& words,
                                 FindCode& find_code) const
    {
        const unsigned table_bits = bank.plan.table_bits;
        tans_symbol entries[max_lanes];
        uint8_t raw_bits[max_lanes];
        uint32_t escapes = 0, raw = 0;
        const auto at = rows.from(first);
        for (uint32_t i = 0; i < here; ++i) {
            const found one = find_code(at[i], codes[first + i]);
            entries[i] = one.entry;
            raw_bits[i] = one.raw_bits;
            escapes += one.escaped;
            raw |= raw_bits[i];
        }
        if (raw != 0)
            for (uint32_t i = here; i-- > 0;)
                give<Roomy>(x.bits[i], raw_bits[i], codes[first + i], words);
        word_writer writer = words;
        for (uint32_t i = here; i-- > 0;) {
            const uint32_t cell = x.cell[i], state = (uint32_t(1) << table_bits) + cell;
            const uint32_t freq = entries[i].freq;
            uint32_t count = entries[i].bit_count;
            count -= state >> count < freq ? 1u : 0u;
            give<Roomy>(x.bits[i], count, cell, writer);
            x.cell[i] =
                bank.next[at[i].first_cell + entries[i].start + (state >> count) - freq];
        }
        words = writer;
        return escapes;
    }

    // The low `count` bits of a value to a reservoir, which gives a word before if it must.
    template <bool Roomy>
    static NORMANS_INLINE void give(uint32_t& bits, uint32_t count, uint32_t value,
                                    word_writer& words)
    {
        uint32_t kept = bits;
        if (Roomy) {  // no branch: see refill()
            const uint32_t full = 0 - (((0x7fffffffu >> count) - bits) >> 31);
            store_word(words.next - 2, bits);
            words.next -= full & 2;
            kept = bits >> (full & tans_format::word_bits);
        } else if (bits >> (31 - count) != 0) {
            words.put(bits);
            kept = bits >> tans_format::word_bits;
        }
        bits = kept << count | (value & ((uint32_t(1) << count) - 1));
    }
};

/// Sums of what comes before `after` scalars that have been summed up.
inline void put_before(const check_sums& earlier, uint32_t after, uint32_t lanes, check_sums& sums)
{
    for (uint32_t i = 0; i < lanes; ++i) {
        const uint32_t later = after / lanes + (i < after % lanes ? 1 : 0);
        sums.lane[i].b += earlier.lane[i].b + later * earlier.lane[i].a;
        sums.lane[i].a += earlier.lane[i].a;
    }
}

/// running_sums of a batch's codes, which begins with a step; eight lanes at a time, in 16 bits
/// each for as many steps as these hold.
inline void add_to_sums(const uint8_t* codes, uint32_t count, uint32_t lanes, check_sums& sums)
{
    constexpr uint64_t even = 0x00ff00ff00ff00ff;
    constexpr uint32_t most_steps = 16;  // 255 * (1 + .. + 16) < 2^16
    for (uint32_t whole = lanes < 8 ? 0 : count / lanes; whole != 0;) {
        const uint32_t steps = whole < most_steps ? whole : most_steps;
        for (uint32_t lane = 0; lane < lanes; lane += 8) {
            uint64_t a[2] = {}, b[2] = {};
            const uint8_t* from = codes + lane;
            for (uint32_t step = 0; step < steps; ++step, from += lanes) {
                const uint64_t eight = load_u64(from);
                a[0] += eight & even;
                a[1] += eight >> 8 & even;
                b[0] += a[0];
                b[1] += a[1];
            }
            NORMANS_UNROLL
            for (uint32_t i = 0; i < 8; ++i) {
                running_sums& sum = sums.lane[lane + i];
                sum.b += steps * sum.a + uint32_t(b[i % 2] >> i / 2 * 16 & 0xffff);
                sum.a += uint32_t(a[i % 2] >> i / 2 * 16 & 0xffff);
            }
        }
        codes += steps * lanes;
        count -= steps * lanes;
        whole -= steps;
    }
    for (uint32_t i = 0; i < count; ++i) sums.lane[i % lanes].add(codes[i]);
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
