#pragma once
// The two coders of scalars with a scale, each with the same face: tables in shared memory, and a
// lane's state. The models are the definition's own (core/uniform_model.hpp, uniform_bank.hpp).

#include "../block/check.hpp"
#include "../core/tans_step.hpp"
#include "packed_rows.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Bytes of a bank's cells and reaches, all that decoders read.
NORMANS_HD constexpr size_t warp_bank_bytes(const bank_plan& plan)
{
    const size_t rows = first_bank_row(plan, bank_octaves);
    return (rows * sizeof(tans_cell) << plan.table_bits) + rows;
}

namespace detail {

// warp_lanes under plain models.
template <uint32_t Width>
struct plain_warp_lanes : warp_lanes<Width> {
    using base = warp_lanes<Width>;
    using typename base::mask;
    using models = scalar_model;

    struct intervals {
        uint32_t start, freq, code, raw_bits;
        mask raw, escaped, corrupt;
    };
    using base::find;
    using base::locate;

    template <class Model, class Guess>
    static __device__ intervals locate(const Model& model, const Guess&, const scalar_model& m,
                                       uint32_t slot, mask active)
    {
        if (active.set == 0) return all_of(idle_interval());
        if (slot < model.shape.escape_slots) return all_of(model.escape());
        return all_of(m.is_far ? model.locate_far(m, slot) : model.locate(m, slot, 0));
    }

    template <class Model>
    static __device__ intervals find(const Model& model, const scalar_model& m, uint32_t code,
                                     mask active)
    {
        return all_of(active.set != 0 ? model.find(m, code) : idle_interval());
    }

private:
    static __device__ intervals all_of(const interval& one)
    {
        return {one.start, one.freq, one.code, one.raw_bits, {one.raw_bits != 0}, {one.escaped},
                {one.corrupt}};
    }
};

// tans_array_lanes, a lane a thread.
template <uint32_t Width>
struct tans_warp_lanes : warp_lanes<Width> {
    using typename warp_lanes<Width>::mask;

    struct state {
        uint32_t cell, bits;
    };
    template <class Model>
    using models = typename Model::scalar;

    struct transitions {
        uint32_t next_base, bit_count, code, raw_bits;
        mask raw, escaped, corrupt;
    };

    template <class Model>
    static __device__ transitions leave(const Model& model, const models<Model>& m, uint32_t cell,
                                        mask active)
    {
        return all_of(active.set != 0 ? model.leave(m, cell) : stay(cell));
    }

    template <class Model>
    static __device__ transitions enter(const Model& model, const models<Model>& m, uint32_t code,
                                        uint32_t cell, mask active)
    {
        return all_of(active.set != 0 ? model.enter(m, code, cell) : stay(cell));
    }

private:
    static __device__ tans_transition stay(uint32_t cell)
    {
        return {cell, 0, 0, 0, false, false};
    }
    static __device__ transitions all_of(const tans_transition& one)
    {
        return {one.next_base, one.bit_count, one.code, one.raw_bits, {one.raw_bits != 0},
                {one.escaped}, {one.corrupt}};
    }
};

template <scalar_type Type, uint32_t Width>
class warp_rans {
public:
    using lanes = plain_warp_lanes<Width>;
    using state = uint32_t;

    struct storage {
        scaled_model<Type> exact;
        uint32_t slope[16];  // by nibble

        /// By `count` threads together; a barrier must follow.
        __device__ void fill(const block_spec& spec, uint32_t thread, uint32_t count, void*,
                             size_t)
        {
            const normal_shape& shape = shape_table(spec.shape);
            for (uint32_t i = 4 * thread; i < sizeof shape; i += 4 * count)
                std::memcpy(reinterpret_cast<char*>(&exact.shape) + i,
                            reinterpret_cast<const char*>(&shape) + i, 4);
            static constexpr row_slope_table slopes = row_slopes();
            for (uint32_t i = thread; i < 16; i += count) slope[i] = slopes.bits[i];
            if (thread != 0) return;
            exact.sigma_offset = spec.sigma_offset;
            exact.marginal = nullptr;
        }
    };

    __device__ explicit warp_rans(const storage& tables) : tables_(tables) {}

    __device__ bool encodes() const { return true; }
    __device__ scalar_model prepare(const scaled_input& in, uint32_t nibble) const
    {
        return prepare_in_codes(tables_.exact, fast_mean_in_codes(in), in.sigma_index,
                                tables_.slope[nibble], in.scale);
    }
    static __device__ state first() { return rans_format::lower_bound; }
    static __device__ bool ended(state x) { return x == first(); }
    __device__ bool valid(uint32_t stored) const { return valid_state(stored); }
    static __device__ state open(uint32_t stored, warp_reader&) { return stored; }
    static __device__ uint32_t close(state x, warp_writer&) { return x; }

    __device__ uint32_t decode(state& x, const scalar_model& m, typename lanes::mask active,
                               warp_reader& words, typename lanes::mask& corrupt) const
    {
        return decode_step<lanes>(x, tables_.exact, nothing{}, m, active, words, corrupt);
    }
    __device__ typename lanes::mask encode(state& x, const scalar_model& m, uint32_t code,
                                           typename lanes::mask active, warp_writer& words) const
    {
        return encode_step<lanes>(x, tables_.exact, m, code, active, words);
    }

private:
    struct nothing {};

    const storage& tables_;
};

// A tans_bank as shared memory takes it: without initial values. The steps need no shape.
struct bank_parts {
    const tans_cell* cells;
    const uint8_t* reach;
    const uint16_t* next;
    const tans_symbol* symbols;
    uint32_t plan;

    __device__ tans_bank whole() const
    {
        return {unpack_plan(shape_id::gaussian, plan), cells, reach, next, symbols};
    }
};

template <scalar_type Type, uint32_t Width>
class warp_tans {
public:
    using lanes = tans_warp_lanes<Width>;
    using state = typename lanes::state;
    using scalar = typename bank_model<Type>::scalar;

    struct storage : warp_rans<Type, Width>::storage {
        bank_parts bank;

        /// A decoder's part of the bank goes to `room`, shared memory too, if it fits there.
        __device__ void fill(const block_spec& spec, uint32_t thread, uint32_t count, void* room,
                             size_t room_bytes)
        {
            warp_rans<Type, Width>::storage::fill(spec, thread, count, nullptr, 0);
            tans_bank from{};
            if (spec.bank != nullptr && valid_plan(spec.bank->plan)) from = *spec.bank;
            if (from.cells != nullptr && room != nullptr &&
                warp_bank_bytes(from.plan) <= room_bytes)
                from = copied(from, thread, count, room);
            if (thread == 0)
                bank = {from.cells, from.reach, from.next, from.symbols, pack_plan(from.plan)};
        }

    private:
        static __device__ tans_bank copied(tans_bank bank, uint32_t thread, uint32_t count,
                                           void* room)
        {
            const uint32_t all = first_bank_row(bank.plan, bank_octaves);
            const uint32_t cells = all << bank.plan.table_bits;
            auto* const to = static_cast<tans_cell*>(room);
            auto* const reach = reinterpret_cast<uint8_t*>(to + cells);
            for (uint32_t i = thread; i < cells; i += count) to[i] = bank.cells[i];
            for (uint32_t i = thread; i < all; i += count) reach[i] = bank.reach[i];
            bank.cells = to;
            bank.reach = reach;
            return bank;
        }
    };

    __device__ explicit warp_tans(const storage& tables)
        : rows_{tables.bank.whole(), tables.exact.sigma_offset}
    {
    }

    __device__ bool encodes() const { return rows_.bank.next != nullptr; }
    __device__ scalar prepare(const scaled_input& in, uint32_t nibble) const
    {
        return rows_.prepare(in.mean, in.sigma_index, int(nibble) + min_row_step, in.scale);
    }
    static __device__ state first()
    {
        return {tans_format::first_cell, tans_format::lower_bound};
    }
    static __device__ bool ended(state x)
    {
        return x.cell == tans_format::first_cell && x.bits == tans_format::lower_bound;
    }
    /// See open_lanes, close_lanes.
    __device__ bool valid(uint32_t stored) const
    {
        return (stored & 0xffff) != 0 && stored >> 16 >> rows_.bank.plan.table_bits == 0;
    }
    static __device__ state open(uint32_t stored, warp_reader& words)
    {
        state x{stored >> 16, stored & 0xffff};
        lanes::refill(x.bits, words);
        return x;
    }
    static __device__ uint32_t close(state x, warp_writer& words)
    {
        lanes::spill(x.bits, lanes::full_for_bits(x.bits, 31 - tans_format::word_bits), words);
        return x.bits | x.cell << 16;
    }

    __device__ uint32_t decode(state& x, const scalar& m, typename lanes::mask active,
                               warp_reader& words, typename lanes::mask& corrupt) const
    {
        return decode_step<lanes>(x, rows_, m, active, words, corrupt);
    }
    __device__ typename lanes::mask encode(state& x, const scalar& m, uint32_t code,
                                           typename lanes::mask active, warp_writer& words) const
    {
        return encode_step<lanes>(x, rows_, m, code, active, words);
    }

private:
    bank_model<Type> rows_;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
