#pragma once
// The lane group: `width` rANS states that advance together, one scalar each. A backend is a type
// like array_lanes below, with these names and nothing else; the order in which they are called is
// rans_step.hpp's, once for all backends. array_lanes is the definition that every other backend
// must equal, bit for bit, whatever it holds its states in.
//     locate / find       slot / code -> interval under a model or a marginal, idle if not active
//     advance             state = freq (state >> 15) + offset; divide is its inverse
//     refill              lanes below lower_bound take a word, ascending
//     spill               full lanes give a word, descending
//     pop / push          raw bits

#include "normal.hpp"
#include "stream.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// One state a lane in plain arrays: the oracle, and the portable path.
template <uint32_t Width>
struct array_lanes {
    static constexpr uint32_t width = Width;
    static_assert(valid_lanes(Width), "lane groups have 1, 8, 16 or 32 lanes");

    template <class T>
    struct array {
        T lane[Width];
        NORMANS_HD T& operator[](uint32_t i) { return lane[i]; }
        NORMANS_HD const T& operator[](uint32_t i) const { return lane[i]; }
    };
    using values = array<uint32_t>;
    using state = values;
    using encoder_state = state;
    using models = array<scalar_model>;
    using mask = uint32_t;  // bit i: lane i

    struct intervals {
        values start, freq, code, raw_bits;
        mask raw, escaped, corrupt;  // raw: lanes with raw_bits > 0
    };

    NORMANS_HD static constexpr mask first_lanes(uint32_t count)
    {
        return count >= 32 ? ~uint32_t(0) : (uint32_t(1) << count) - 1;
    }
    NORMANS_HD static bool any(mask m) { return m != 0; }

    NORMANS_HD static values slot(const state& x)
    {
        return each([&](uint32_t i) { return x[i] & (rans_format::total - 1); });
    }

    template <class Model, class Guess>
    NORMANS_HD static intervals locate(const Model& model, const Guess& guess, const models& m,
                                       const values& slots, mask active)
    {
        return collect(active, [&](uint32_t i) {
            if (slots[i] < model.shape.escape_slots) return model.escape();
            if (m[i].is_far) return model.locate_far(m[i], slots[i]);
            return model.locate(m[i], slots[i], guess(model, m[i], slots[i]));
        });
    }

    template <class Model>
    NORMANS_HD static intervals find(const Model& model, const models& m, const values& codes,
                                     mask active)
    {
        return collect(active, [&](uint32_t i) { return model.find(m[i], codes[i]); });
    }

    NORMANS_HD static intervals locate(const marginal_table& table, const values& slots, mask on)
    {
        return find(table, each([&](uint32_t i) { return symbol_at(table, slots[i]); }), on);
    }

    NORMANS_HD static intervals find(const marginal_table& table, const values& symbols, mask on)
    {
        return collect(on, [&](uint32_t i) { return interval_of(table, symbols[i]); });
    }

    NORMANS_HD static void advance(state& x, const values& freq, const values& offset)
    {
        for (uint32_t i = 0; i < Width; ++i)
            x[i] = freq[i] * (x[i] >> rans_format::precision_bits) + offset[i];
    }

    NORMANS_HD static void divide(state& x, const values& freq, const values& start)
    {
        for (uint32_t i = 0; i < Width; ++i) {
            const uint32_t quotient = x[i] / freq[i], rest = x[i] - quotient * freq[i];
            x[i] = (quotient << rans_format::precision_bits) + rest + start[i];
        }
    }

    NORMANS_HD static mask full_for(const state& x, const values& freq)
    {
        return gather([&](uint32_t i) { return x[i] >> rans_format::word_bits >= freq[i]; });
    }

    NORMANS_HD static mask full_for_bits(const state& x, const values& bits)
    {
        return gather([&](uint32_t i) { return x[i] >> (31 - bits[i]) != 0; });
    }

    /// The low `bits` of each lane, taken off it.
    NORMANS_HD static values pop(values& x, const values& bits)
    {
        const values taken =
            each([&](uint32_t i) { return x[i] & ((uint32_t(1) << bits[i]) - 1); });
        x = each([&](uint32_t i) { return x[i] >> bits[i]; });
        return taken;
    }

    NORMANS_HD static void push(values& x, const values& bits, const values& value)
    {
        x = each([&](uint32_t i) { return x[i] << bits[i] | value[i]; });
    }

    template <class Reader>
    NORMANS_HD static void refill(state& x, Reader& words)
    {
        const bool roomy = words.holds(Width);  // then no lane's word needs a check
        for (uint32_t i = 0; i < Width; ++i) {
            const bool starved = x[i] < rans_format::lower_bound;
            const uint32_t word = roomy     ? words.take_where_unchecked(starved)
                                  : starved ? words.take()
                                            : 0;
            x[i] = starved ? x[i] << rans_format::word_bits | word : x[i];
        }
    }

    template <class Writer>
    NORMANS_HD static void spill(state& x, mask full, Writer& words)
    {
        const bool roomy = words.holds(Width);
        for (uint32_t i = Width; i-- > 0;) {
            const bool mine = full >> i & 1;
            if (roomy) words.put_where_unchecked(mine, x[i]);
            else if (mine) words.put(x[i]);
            x[i] = mine ? x[i] >> rans_format::word_bits : x[i];
        }
    }

    NORMANS_HD static values subtract(const values& x, const values& y)
    {
        return each([&](uint32_t i) { return x[i] - y[i]; });
    }

    NORMANS_HD static values combine(const values& x, const values& y)
    {
        return each([&](uint32_t i) { return x[i] | y[i]; });
    }

    /// The value where the mask is set (or is not), else 0.
    NORMANS_HD static values where(mask set, const values& x)
    {
        return each([&](uint32_t i) { return set >> i & 1 ? x[i] : 0; });
    }

    NORMANS_HD static values where_not(mask set, const values& x) { return where(~set, x); }
    NORMANS_HD static values where(mask set, uint32_t value)
    {
        return each([&](uint32_t i) { return set >> i & 1 ? value : 0; });
    }
    NORMANS_EITHER_SIDE template <class Function>
    NORMANS_HD static values each(Function f)
    {
        values out;
        for (uint32_t i = 0; i < Width; ++i) out[i] = f(i);
        return out;
    }

private:
    template <class Predicate>
    NORMANS_HD static mask gather(Predicate f)
    {
        mask out = 0;
        for (uint32_t i = 0; i < Width; ++i) out |= mask(f(i)) << i;
        return out;
    }

    template <class Function>
    NORMANS_HD static intervals collect(mask active, Function f)
    {
        intervals all{};
        for (uint32_t i = 0; i < Width; ++i) {
            const interval one = active >> i & 1 ? f(i) : idle_interval();
            all.start[i] = one.start;
            all.freq[i] = one.freq;
            all.code[i] = one.code;
            all.raw_bits[i] = one.raw_bits;
            all.raw |= mask(one.raw_bits != 0) << i;
            all.escaped |= mask(one.escaped) << i;
            all.corrupt |= mask(one.corrupt) << i;
        }
        return all;
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
