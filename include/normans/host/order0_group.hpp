#pragma once
// The lane group for static tables in SIMD registers: 32 lanes in four values of eight, of `Blocks`
// = 1, 2 or 4 blocks that have tables and words of their own. V has the operations on eight lanes
// (order0_avx2.hpp, order0_neon.hpp); here is what they are used for. Lookups load one by one: no
// slower than a gather instruction where that is fast, and twice as fast where it is not.

#include "../core/order0_step.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template <class V, uint32_t Blocks>
struct order0_group {
    static_assert(Blocks == 1 || Blocks == 2 || Blocks == 4, "blocks have whole values of eight");
    static constexpr uint32_t width = 32;
    static constexpr uint32_t parts = 4;
    static constexpr uint32_t blocks = Blocks;
    using eight = typename V::eight;
    using float_mode = typename V::float_mode;

    struct values {
        eight v[parts];
    };
    struct mask {};  // all lanes are active
    using state = values;
    using encoder_state = values;

    // Of a table of 2^bits slots.
    struct decode_bits {
        typename V::spread low;  // of a state: its slot
        typename V::right_shift bits;
        decode_bits() = default;
        explicit decode_bits(unsigned n) : low(V::same((uint32_t(1) << n) - 1)), bits(V::right(n))
        {
        }
    };
    struct encode_bits {
        typename V::left_shift bits, rest;  // rest: of 31
        encode_bits() = default;
        explicit encode_bits(unsigned n) : bits(V::left(n)), rest(V::left(31 - n)) {}
    };
    template <class Table, class Bits>
    struct tables {
        const Table* block[Blocks];
        Bits bits[Blocks];

        void set(uint32_t k, const Table* table)
        {
            block[k] = table;
            bits[k] = Bits(table->precision_bits);
        }
    };
    using decode_tables = tables<order0_table, decode_bits>;
    using encode_tables = tables<order0_intervals, encode_bits>;
    /// Where each block's words are. At least width / Blocks words must be there, or fit.
    struct readers {
        const uint8_t* next[Blocks];
    };
    struct writers {
        uint8_t* next[Blocks];
    };

    template <class Bits>
    struct freqs {
        values freq;
        const Bits* bits;  // of each block
    };
    struct located {
        freqs<decode_bits> freq;
        values offset, code;
    };
    struct found {
        freqs<encode_bits> freq;
        values start;
    };

    static NORMANS_INLINE located locate(const decode_tables& table, const state& x, mask)
    {
        located all;
        all.freq.bits = table.bits;
        NORMANS_UNROLL
        for (uint32_t i = 0; i < parts; ++i) {
            const uint32_t k = block_of(i);
            const eight entry = V::lookup(table.block[k]->slot, V::both(x.v[i], table.bits[k].low));
            all.freq.freq.v[i] =
                V::both(V::template shr<8>(entry), V::set(order0_format::max_freq));
            all.offset.v[i] = V::template shr<20>(entry);
            all.code.v[i] = V::both(entry, V::set(0xff));
        }
        return all;
    }

    /// `missing`: lanes whose symbol has no slot become 0.
    static NORMANS_INLINE found find(const encode_tables& table, const values& symbols, mask,
                                     values& missing)
    {
        found all;
        all.freq.bits = table.bits;
        NORMANS_UNROLL
        for (uint32_t i = 0; i < parts; ++i) {
            const eight entry = V::lookup(table.block[block_of(i)]->interval, symbols.v[i]);
            all.freq.freq.v[i] = V::template shr<16>(entry);
            all.start.v[i] = V::both(entry, V::set(0xffff));
            missing.v[i] = V::smaller(missing.v[i], entry);
        }
        return all;
    }

    static NORMANS_INLINE void advance(state& x, const freqs<decode_bits>& f, const values& offset)
    {
        NORMANS_UNROLL
        for (uint32_t i = 0; i < parts; ++i)
            x.v[i] = V::add_product(offset.v[i], f.freq.v[i],
                                    V::shr(x.v[i], f.bits[block_of(i)].bits));
    }

    static NORMANS_INLINE void divide(state& x, const freqs<encode_bits>& f, const values& start)
    {
        NORMANS_UNROLL
        for (uint32_t i = 0; i < parts; ++i) {
            const encode_bits& bits = f.bits[block_of(i)];
            const eight freq = f.freq.v[i], quotient = V::quotient(x.v[i], freq);
            const eight rest = V::sub_product(x.v[i], quotient, freq);
            // Adding 2^bits - freq is what one more in the quotient comes to.
            const eight whole = V::shl(V::set(1), bits.bits);
            const eight more = V::where_not(V::less(rest, freq), V::sub(whole, freq));
            x.v[i] = V::add(V::add(V::shl(quotient, bits.bits), rest), V::add(more, start.v[i]));
        }
    }

    /// Those that are not full.
    static NORMANS_INLINE typename V::masks full_for(const state& x, const freqs<encode_bits>& f)
    {
        typename V::masks room;
        NORMANS_UNROLL
        for (uint32_t i = 0; i < parts; ++i)
            room.v[i] = V::less(x.v[i], V::shl(f.freq.v[i], f.bits[block_of(i)].rest));
        return room;
    }

    static NORMANS_INLINE void refill(state& x, readers& words)
    {
        typename V::masks starved;
        NORMANS_UNROLL
        for (uint32_t i = 0; i < parts; ++i)
            starved.v[i] = V::less(x.v[i], V::set(rans_format::lower_bound));
        const auto wanted = V::moves_of_set(starved);
        NORMANS_UNROLL
        for (uint32_t i = 0; i < parts; ++i) {
            const auto run = V::expand(words.next[block_of(i)], wanted, i);
            x.v[i] = V::select(starved.v[i], V::push(x.v[i], run), x.v[i]);
        }
    }

    static NORMANS_INLINE void spill(state& x, const typename V::masks& room, writers& words)
    {
        const auto given = V::moves_of_clear(room);
        NORMANS_UNROLL
        for (uint32_t j = 0; j < parts; ++j) {
            const uint32_t i = parts - 1 - j;
            V::compress(words.next[block_of(i)], given, i, x.v[i]);
            x.v[i] = V::select(room.v[i], x.v[i], V::template shr<16>(x.v[i]));
        }
    }

    static NORMANS_INLINE values load(const uint32_t* lanes)
    {
        values x;
        for (uint32_t i = 0; i < parts; ++i) x.v[i] = V::load(lanes + 8 * i);
        return x;
    }
    static NORMANS_INLINE void store(uint32_t* lanes, const values& x)
    {
        for (uint32_t i = 0; i < parts; ++i) V::store(lanes + 8 * i, x.v[i]);
    }
    static NORMANS_INLINE values set(uint32_t value)
    {
        values x;
        for (eight& one : x.v) one = V::set(value);
        return x;
    }

    /// Codes of 16 bits from their bytes.
    static NORMANS_INLINE values join(const values& high, const values& low)
    {
        values x;
        NORMANS_UNROLL
        for (uint32_t i = 0; i < parts; ++i)
            x.v[i] = V::add(V::template shl<8>(high.v[i]), low.v[i]);
        return x;
    }

    /// A byte per lane; each block's at a place of its own.
    static NORMANS_INLINE values load_symbols(const uint8_t* const* from)
    {
        values x;
        NORMANS_UNROLL
        for (uint32_t i = 0; i < parts; ++i)
            x.v[i] = V::load_bytes(from[block_of(i)] + i % (parts / Blocks) * 8);
        return x;
    }
    static NORMANS_INLINE void store_symbols(uint8_t* const* to, const values& x)
    {
        V::template store_bytes<Blocks>(to, x.v);
    }

    /// running_sums of every lane.
    struct sums {
        values a, b;
        NORMANS_INLINE void add(const values& x)
        {
            NORMANS_UNROLL
            for (uint32_t i = 0; i < parts; ++i) {
                a.v[i] = V::add(a.v[i], x.v[i]);
                b.v[i] = V::add(b.v[i], a.v[i]);
            }
        }
    };

private:
    static constexpr uint32_t block_of(uint32_t i) { return i / (parts / Blocks); }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
