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
    alignas(64) uint32_t bits[max_lanes];
    uint32_t lanes;

    explicit tans_state(uint32_t count) : lanes(count)
    {
        for (uint32_t i = 0; i < max_lanes; ++i) {
            cell[i] = tans_format::first_cell;
            bits[i] = tans_format::lower_bound;
        }
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

    /// The same from scalar `first` on, step by step. The codes are counted from the lowest.
    bool run(const tans_rows& rows, uint32_t first, uint32_t count, tans_state& x,
             word_reader& words, uint8_t* codes) const
    {
        bool good = true;
        for (; first < count; first += x.lanes) {
            const uint32_t left = count - first;
            if (x.lanes == 32 && left >= 32) good &= step(rows, first, 32, x, words, codes);
            else good &= step(rows, first, left < x.lanes ? left : x.lanes, x, words, codes);
        }
        return good;
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
    // The rest of a step that has raw bits or a symbol without a code.
    template <bool Roomy>
    NORMANS_NOINLINE bool take_raw(const tans_rows& rows, uint32_t first, uint32_t here,
                                   tans_state& x, word_reader& words, uint8_t* codes) const
    {
        uint32_t outside = 0;
        const uint32_t escape_bits = code_bits, escape_sign = sign;
        for (uint32_t i = 0; i < here; ++i) {
            const int origin = rows.origin[first + i], flip = rows.flip[first + i];
            const uint32_t symbol = uint8_t((codes[first + i] - origin) ^ flip);
            const uint32_t group_bits = rows.grouped ? rows.group_bits[first + i] : 0;
            const uint32_t group = uint32_t(origin + (int(symbol) ^ flip));
            const uint32_t count = symbol == 0 ? escape_bits : group_bits;
            uint32_t bits = x.bits[i];
            const uint32_t raw = bits & low_bits[count];
            const uint32_t index = symbol == 0 ? raw ^ escape_sign : group << group_bits | raw;
            bits >>= count;
            if (Roomy) refill(bits, words);
            else tans_state::refill(bits, words);
            x.bits[i] = bits;
            outside |= index;
            codes[first + i] = uint8_t(index);
        }
        return (outside & above) == 0;
    }

    NORMANS_INLINE bool step(const tans_rows& rows, uint32_t first, uint32_t here, tans_state& x,
                             word_reader& words, uint8_t* codes) const
    {
        return words.holds(2 * here) ? step<true>(rows, first, here, x, words, codes)
                                     : step<false>(rows, first, here, x, words, codes);
    }
    template <bool Roomy>
    NORMANS_INLINE bool step(const tans_rows& rows, uint32_t first, uint32_t here, tans_state& x,
                             word_reader& words, uint8_t* codes) const
    {
        const bool plain = move<Roomy>(rows, first, here, x, words, codes);
        return (plain && !rows.grouped) || take_raw<Roomy>(rows, first, here, x, words, codes);
    }

    // Cells, reservoirs and groups of a step; false if a lane escaped, or may have no code. Roomy:
    // there are two words for each lane.
    template <bool Roomy>
    NORMANS_INLINE bool move(const tans_rows& rows, uint32_t first, uint32_t here, tans_state& x,
                             word_reader& words, uint8_t* codes) const
    {
        const tans_cell* const all = cells;
        word_reader reader = words;
        const uint32_t* const first_cell = rows.first_cell + first;
        const int16_t* const origin = rows.origin + first;
        const int16_t* const flip = rows.flip + first;
        uint8_t* const to = codes + first;
        uint32_t escapes = 0, outside = 0;
        for (uint32_t i = 0; i < here; ++i) {
            const uint32_t at = load(all + first_cell[i] + x.cell[i]);
            const uint32_t count = cell_of(at).bit_count, symbol = cell_of(at).symbol;
            uint32_t bits = x.bits[i];
            x.cell[i] = cell_of(at).next_base + (bits & low_bits[count]);
            bits >>= count;
            if (Roomy) refill(bits, reader);
            else tans_state::refill(bits, reader);
            x.bits[i] = bits;
            const uint32_t group = uint32_t(origin[i] + (int(symbol) ^ flip[i]));
            escapes |= symbol - 1;  // negative for symbol 0
            outside |= group;
            to[i] = uint8_t(group);
        }
        words = reader;
        return (outside & above) == 0 && escapes >> 31 == 0;
    }

    // No branch, which would be a guess: compilers make one of a choice.
    static NORMANS_INLINE void refill(uint32_t& bits, word_reader& words)
    {
        const uint32_t starved = 0 - ((bits - tans_format::lower_bound) >> 31);
        const uint32_t more = bits << tans_format::word_bits | load_word(words.next);
        bits ^= (bits ^ more) & starved;
        words.next += starved & 2;
    }

    // In one load: of a struct's parts compilers make three.
    static NORMANS_INLINE uint32_t load(const tans_cell* from)
    {
        uint32_t all;
        std::memcpy(&all, from, sizeof all);
        return all;
    }
    static NORMANS_INLINE tans_cell cell_of(uint32_t all)
    {
        tans_cell cell;
        std::memcpy(&cell, &all, sizeof cell);
        return cell;
    }

    static constexpr uint32_t low_bits[16] = {0,     1,     3,     7,      15,     31,
                                              63,    127,   255,   511,    1023,   2047,
                                              4095,  8191,  16383, 32767};
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
    uint32_t run(const tans_rows& rows, uint32_t count, const uint8_t* codes, tans_state& x,
                 word_writer& words) const
    {
        uint32_t escapes = 0, here = count % x.lanes != 0 ? count % x.lanes : x.lanes;
        for (uint32_t first = count; first != 0; here = x.lanes) {
            first -= here;
            escapes += words.holds(2 * here) ? step<true>(rows, first, here, codes, x, words)
                                             : step<false>(rows, first, here, codes, x, words);
        }
        return escapes;
    }

private:
    template <bool Roomy>
    NORMANS_INLINE uint32_t step(const tans_rows& rows, uint32_t first, uint32_t here,
                                 const uint8_t* codes, tans_state& x, word_writer& words) const
    {
        const unsigned table_bits = bank.plan.table_bits;
        tans_symbol entries[max_lanes];
        uint8_t raw_bits[max_lanes];
        uint32_t escapes = 0, raw = 0;
        for (uint32_t i = 0; i < here; ++i) {
            const uint32_t row = rows.first_cell[first + i] >> table_bits;
            const uint32_t group_bits = rows.grouped ? rows.group_bits[first + i] : 0;
            const int group = int((codes[first + i] ^ sign) >> group_bits);
            const uint32_t symbol =
                uint32_t((group - rows.origin[first + i]) ^ rows.flip[first + i]);
            const bool within = symbol - 1 <= 2 * uint32_t(bank.reach[row]);
            const tans_symbol* const of_row = bank.symbols + row * bank_symbols;
            tans_symbol entry = of_row[within ? symbol : 0];
            const bool escaped = !within || entry.freq == 0;
            if (escaped) entry = of_row[0];
            entries[i] = entry;
            raw_bits[i] = uint8_t(escaped ? code_bits : group_bits);
            escapes += escaped;
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
                bank.next[rows.first_cell[first + i] + entries[i].start + (state >> count) - freq];
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
