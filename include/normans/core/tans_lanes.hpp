#pragma once
// The lane group for tANS: array_lanes with what a row's cells ask for. Everything that moves words
// or bits is the rANS group's own.
//     leave / enter       cell (and code) -> transition under a model, idle if not active
// A model has two functions: leave(m, cell) and enter(m, code, cell), both -> tans_transition, and
// the type of m as `scalar`.

#include "lanes.hpp"
#include "tans_format.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template <uint32_t Width>
struct tans_array_lanes : array_lanes<Width> {
    using base = array_lanes<Width>;
    using typename base::mask;
    using typename base::values;

    struct state {
        values cell, bits;
    };
    template <class Model>
    using models = typename base::template array<typename Model::scalar>;

    struct transitions {
        values next_base, bit_count, code, raw_bits;
        mask raw, escaped, corrupt;  // raw: lanes with raw_bits > 0
    };

    template <class Model>
    NORMANS_HD static transitions leave(const Model& model, const models<Model>& m,
                                        const values& cells, mask active)
    {
        return collect(active, cells, [&](uint32_t i) { return model.leave(m[i], cells[i]); });
    }

    template <class Model>
    NORMANS_HD static transitions enter(const Model& model, const models<Model>& m,
                                        const values& codes, const values& cells, mask active)
    {
        return collect(active, cells,
                       [&](uint32_t i) { return model.enter(m[i], codes[i], cells[i]); });
    }

private:
    template <class Function>
    NORMANS_HD static transitions collect(mask active, const values& cells, Function f)
    {
        transitions all{};
        for (uint32_t i = 0; i < Width; ++i) {
            // A lane without a scalar stays where it is.
            const tans_transition one =
                active >> i & 1 ? f(i) : tans_transition{cells[i], 0, 0, 0, false, false};
            all.next_base[i] = one.next_base;
            all.bit_count[i] = one.bit_count;
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
