#pragma once
// The lane group for static tables: array_lanes with a table for each lane, and with it the
// precision. Everything that moves words is the rANS group's own.
//     locate / find       slot / symbol -> interval under the lanes' tables, idle if not active

#include "lanes.hpp"
#include "order0_table.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template <uint32_t Width>
struct order0_array_lanes : array_lanes<Width> {
    using base = array_lanes<Width>;
    using typename base::mask;
    using typename base::state;
    using typename base::values;
    using decode_tables = typename base::template array<const order0_table*>;
    using encode_tables = typename base::template array<const order0_intervals*>;

    struct freqs {
        values freq, bits;  // of 2^bits
    };
    struct intervals {
        freqs freq;
        values start, offset, code;  // start: of find; offset: of locate
    };

    NORMANS_HD static intervals locate(const decode_tables& table, const state& x, mask active)
    {
        intervals all{};
        for (uint32_t i = 0; i < Width; ++i) {
            const bool on = active >> i & 1;
            const unsigned bits = on ? table[i]->precision_bits : order0_format::coarse_bits;
            const uint32_t slot = x[i] & ((uint32_t(1) << bits) - 1);
            const uint32_t entry = on ? table[i]->slot[slot] : 0;
            all.freq.bits[i] = bits;
            all.freq.freq[i] = on ? entry >> 8 & order0_format::max_freq : uint32_t(1) << bits;
            all.offset[i] = on ? entry >> 20 : slot;
            all.code[i] = entry & 0xff;
        }
        return all;
    }

    /// `missing`: set where a symbol has no slot; its lane stays idle.
    NORMANS_HD static intervals find(const encode_tables& table, const values& symbols, mask active,
                                     bool& missing)
    {
        intervals all{};
        for (uint32_t i = 0; i < Width; ++i) {
            const bool on = active >> i & 1;
            const uint32_t found = on ? table[i]->interval[symbols[i]] : 0;
            missing |= on && found == 0;
            all.freq.bits[i] = found != 0 ? table[i]->precision_bits : order0_format::coarse_bits;
            all.freq.freq[i] = found != 0 ? found >> 16 : uint32_t(1) << order0_format::coarse_bits;
            all.start[i] = found & 0xffff;
        }
        return all;
    }

    NORMANS_HD static void advance(state& x, const freqs& f, const values& offset)
    {
        for (uint32_t i = 0; i < Width; ++i)
            x[i] = f.freq[i] * (x[i] >> f.bits[i]) + offset[i];
    }

    NORMANS_HD static void divide(state& x, const freqs& f, const values& start)
    {
        for (uint32_t i = 0; i < Width; ++i) {
            const uint32_t quotient = x[i] / f.freq[i], rest = x[i] - quotient * f.freq[i];
            x[i] = (quotient << f.bits[i]) + rest + start[i];
        }
    }

    NORMANS_HD static mask full_for(const state& x, const freqs& f)
    {
        mask full = 0;
        for (uint32_t i = 0; i < Width; ++i)
            full |= mask(x[i] >> (31 - f.bits[i]) >= f.freq[i]) << i;
        return full;
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
