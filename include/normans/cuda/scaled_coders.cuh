#pragma once
// The two coders of scalars with a scale, tANS of fp8 too, each with the same face: tables in
// shared memory, and a lane's state. The models are the definition's own (core/uniform_model.hpp,
// uniform_bank.hpp, float_bank.hpp).

#include "../block/check.hpp"
#include "../core/float_bank.hpp"
#include "../core/tans_step.hpp"
#include "packed_rows.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {

namespace detail {
NORMANS_HD constexpr uint32_t rows_of_bank(scalar_type type, const bank_plan& plan)
{
    return has_float_bank(type) ? float_bank_layout{format_of(type), plan}.rows()
                                : first_bank_row(plan, bank_octaves);
}
}  // namespace detail

/// What is done with a bank: decoders and encoders read different parts of it.
enum class bank_use : uint8_t { decode, encode };

/// Bytes of the parts that decoders, or encoders, read of a type's bank.
NORMANS_HD constexpr size_t warp_bank_bytes(scalar_type type, const bank_plan& plan,
                                            bank_use use = bank_use::decode)
{
    const size_t cell = use == bank_use::decode ? sizeof(tans_cell) : sizeof(uint16_t);
    const size_t symbols = use == bank_use::decode ? 0 : bank_symbols * sizeof(tans_symbol);
    return detail::rows_of_bank(type, plan) * ((cell << plan.table_bits) + symbols + 1);
}

namespace detail {

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

// The definition's model where the device reads it.
template <scalar_type Type>
struct exact_tables {
    scaled_model<Type> exact;

    __device__ void fill(const block_spec& spec, uint32_t thread, uint32_t count)
    {
        const normal_shape& shape = shape_table(spec.shape);
        for (uint32_t i = 4 * thread; i < sizeof shape; i += 4 * count)
            std::memcpy(reinterpret_cast<char*>(&exact.shape) + i,
                        reinterpret_cast<const char*>(&shape) + i, 4);
        if (thread != 0) return;
        exact.sigma_offset = spec.sigma_offset;
        exact.marginal = nullptr;
    }
};

// integer_model as a warp computes it, with the tables of warp_model, which no type enters: a guess
// of the nearest boundary and the one on its other side. See warp_view.
template <scalar_type Type>
class integer_view {
public:
    using tables = warp_model<scalar_type::e4m3fn>;
    struct storage : exact_tables<Type> {
        tables shaped;

        __device__ void fill(const block_spec& spec, uint32_t thread, uint32_t count)
        {
            exact_tables<Type>::fill(spec, thread, count);
            shaped.fill(spec, thread, count);
        }
        __device__ const tables& factors() const { return shaped; }
    };

    static constexpr scalar_format format = format_of(Type);
    static constexpr bool grouped = false;

    const integer_model<Type>& exact;
    const marginal_table* const& marginal;
    const uint32_t members;

    __device__ integer_view(const storage& in, uint32_t users)
        : exact(in.exact), marginal(in.exact.marginal), members(users), shaped_(in.shaped, users)
    {
    }

    /// Where sigma is 0 or the mean no number, the bias is none.
    __device__ warp_scalar prepare(uint32_t mean, uint32_t sigma_index,
                                   const tables::factor& steps) const
    {
        warp_scalar s = shaped_.prepare(mean, sigma_index, steps);
        if (sigma_index == sigma_zero) s.bias = quiet_nan_bits;
        return s;
    }

    __device__ bool locate(const warp_scalar& s, uint32_t slot, warp_interval& found) const
    {
        constexpr float low = float(lowest + 1), high = float(highest);
        // Boundary i lies at i - 1/2. The nearest, but for the first and the last ...
        float near = fused(shaped_.guessed_z(slot), s.deviation, bits_to_float(s.mean)) + 0.5f;
        near = near > low ? near : low;
        near = near < high ? near : high;
        const float shifted = near + rounding;
        near = shifted - rounding;
        const uint32_t near_cdf = inner_cdf(s, near - 0.5f);
        // ... and the one on its other side.
        const bool below = slot < near_cdf;
        const float other = below ? near - 1.0f : near + 1.0f;
        const uint32_t code = float_to_bits(shifted) - float_to_bits(rounding) - (below ? 1 : 0);
        const bool known = between(s, code, near_cdf, cdf(s, other), found);
        return known & (slot - found.start < found.freq);
    }

    __device__ warp_interval search(const warp_scalar& s, uint32_t slot) const
    {
        if (slot < exact.shape.escape_slots) return warp_interval::of(exact.escape());
        const scalar_model m = full(s);
        return warp_interval::of(m.is_far ? exact.locate_far(m, slot) : exact.locate(m, slot, 0));
    }

    __device__ bool find(const warp_scalar& s, uint32_t code, warp_interval& found) const
    {
        const float i = float(int(code ^ format.code_sign()) + lowest);
        return between(s, code, cdf(s, i), cdf(s, i + 1.0f), found) & (found.freq != 0);
    }

    __device__ warp_interval search_code(const warp_scalar& s, uint32_t code) const
    {
        return warp_interval::of(exact.find(full(s), code));
    }

private:
    static constexpr int lowest = integer_model<Type>::lowest;
    static constexpr int highest = integer_model<Type>::highest;

    static constexpr float rounding = 12582912.0f;  // added to a small number: to an integer

    // `code`: all bits above its own are ignored. False where the scalar may be far: see warp_view.
    __device__ static bool between(const warp_scalar& s, uint32_t code, uint32_t one,
                                   uint32_t other, warp_interval& found)
    {
        const uint32_t start = one < other ? one : other;
        found = {start, (one < other ? other : one) - start, code & (2 * format.code_sign() - 1),
                 0};
        return fabsf(bits_to_float(s.bias)) < 134217728.0f;
    }

    // C at an edge between two codes.
    __device__ uint32_t inner_cdf(const warp_scalar& s, float edge) const
    {
#if !defined(__CUDA_ARCH__)
        if (exponent_field(s.bias) == 255) return 0;  // the host's z_of takes finite numbers only
#endif
        return shaped_.slots_below(z_of(float_to_bits(edge), s.slope, s.bias));
    }

    // C of boundary i, lowest .. highest + 1 = -lowest.
    __device__ uint32_t cdf(const warp_scalar& s, float i) const
    {
        if (fabsf(i) < float(-lowest)) return inner_cdf(s, i - 0.5f);
        return shaped_.slots_below(i < 0 ? lowest_z : highest_z);
    }

    __device__ scalar_model full(const warp_scalar& s) const
    {
        return exact.prepare_sloped(s.mean, s.sigma_index, s.row_slope);
    }

    const warp_view<scalar_type::e4m3fn> shaped_;
};

// warp_view for e2m1, which is a small float.
template <scalar_type Type>
class small_float_view : public warp_view<Type> {
public:
    using tables = warp_model<Type>;
    struct storage : tables {
        __device__ const tables& factors() const { return *this; }
    };

    __device__ small_float_view(const storage& in, uint32_t users) : warp_view<Type>(in, users) {}
};

template <scalar_type Type, uint32_t Width>
class warp_rans {
    using view = std::conditional_t<format_of(Type).is_integer, integer_view<Type>,
                                    small_float_view<Type>>;

public:
    using lanes = warp_lanes<Width>;
    using state = uint32_t;

    struct storage : view::storage {
        /// By `count` threads together; a barrier must follow.
        __device__ void fill(const block_spec& spec, uint32_t thread, uint32_t count, void*,
                             size_t, bank_use)
        {
            view::storage::fill(spec, thread, count);
        }
    };

    static __device__ bool encodes(const storage&) { return true; }
    __device__ warp_rans(const storage& tables, uint32_t members)
        : tables_(tables), view_(tables, members)
    {
    }

    /// What the scalars of a row's group share. A scale that does not count: means are 0, sigmas 0.
    struct factors {
        typename view::tables::factor steps;
        uint32_t inverse, mean, sigma;  // means times one plus the other, sigma's index or this
    };

    __device__ factors factors_of(uint32_t nibble, const code_scale& scale) const
    {
        factors f{tables_.factors().row[nibble], scale.inverse, minus_zero_bits, 0};
        f.steps.slope = multiply(f.steps.slope, scale.scale);
        f.steps.deviation *= bits_to_float(scale.inverse);
        if (scale.scale == 0) f = {f.steps, 0, 0, sigma_zero};
        return f;
    }
    __device__ warp_scalar prepare(const scaled_input& in, const factors& f) const
    {
        // A mean that is no number is far from all, whatever sigma: no need to ask.
        const uint32_t mean = map_mean_fast(in.mean, f.inverse, f.mean);
        return view_.prepare(mean, in.sigma_index | f.sigma, f.steps);
    }
    static __device__ state first() { return rans_format::lower_bound; }
    static __device__ bool ended(state x) { return x == first(); }
    __device__ bool valid(uint32_t stored) const { return valid_state(stored); }
    static __device__ state open(uint32_t stored, warp_reader&) { return stored; }
    static __device__ uint32_t close(state x, warp_writer&) { return x; }

    __device__ uint32_t decode(state& x, const warp_scalar& m, typename lanes::mask active,
                               warp_reader& words, typename lanes::mask& corrupt) const
    {
        return decode_step<lanes>(x, view_, nothing{}, m, active, words, corrupt);
    }
    __device__ auto encode(state& x, const warp_scalar& m, uint32_t code,
                           typename lanes::mask active, warp_writer& words) const
    {
        return encode_step<lanes>(x, view_, m, code, active, words);
    }

private:
    struct nothing {};

    const storage& tables_;
    const view view_;
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

// The model over a bank and what it has in shared memory.
template <scalar_type Type, bool Integer = format_of(Type).is_integer>
struct warp_bank_model : bank_model<Type> {
    struct storage {
        __device__ void fill(const bank_plan&) {}
    };
    __device__ warp_bank_model(const storage&, const tans_bank& rows, int offset)
        : bank_model<Type>{rows, offset}
    {
    }
};
template <scalar_type Type>
struct warp_bank_model<Type, false> : float_bank_model_over<const float_bank_starts&> {
    struct storage : float_bank_starts {
        __device__ void fill(const bank_plan& plan)
        {
            float_bank_starts::fill({format_of(Type), plan});
        }
    };
    __device__ warp_bank_model(const storage& starts, const tans_bank& rows, int offset)
        : float_bank_model_over{rows, offset, {format_of(Type), rows.plan}, format_of(Type),
                                has_scale(Type), starts}
    {
    }
};

template <scalar_type Type, uint32_t Width>
class warp_tans {
    using model = warp_bank_model<Type>;

public:
    using lanes = tans_warp_lanes<Width>;
    using state = typename lanes::state;
    using scalar = typename model::scalar;

    struct storage : exact_tables<Type> {
        bank_parts bank;
        typename model::storage starts;

        /// What is used of the bank goes to `room`, shared memory too, if it fits there.
        __device__ void fill(const block_spec& spec, uint32_t thread, uint32_t count, void* room,
                             size_t room_bytes, bank_use use)
        {
            exact_tables<Type>::fill(spec, thread, count);
            tans_bank from{};
            if (spec.bank != nullptr && spec.bank->grid == bank_grid(Type) &&
                valid_plan(Type, spec.bank->plan))
                from = *spec.bank;
            const bool there = use == bank_use::decode
                                   ? from.cells != nullptr
                                   : from.next != nullptr && from.symbols != nullptr;
            if (there && room != nullptr && warp_bank_bytes(Type, from.plan, use) <= room_bytes)
                copy(from, use, thread, count, static_cast<uint8_t*>(room));
            if (thread != 0) return;
            bank = {from.cells, from.reach, from.next, from.symbols, pack_plan(from.plan)};
            starts.fill(from.plan);
        }

    private:
        static __device__ void copy(tans_bank& from, bank_use use, uint32_t thread, uint32_t count,
                                    uint8_t* room)
        {
            const uint32_t rows = rows_of_bank(Type, from.plan);
            const uint32_t cells = rows << from.plan.table_bits;
            const auto part = [&](auto& items, uint32_t n) {
                using item = std::remove_const_t<std::remove_reference_t<decltype(*items)>>;
                auto* const to = reinterpret_cast<item*>(room);
                for (uint32_t i = thread; i < n; i += count) to[i] = items[i];
                items = to;
                room += n * sizeof(item);
            };
            if (use == bank_use::decode) {
                part(from.cells, cells);
            } else {
                part(from.next, cells);
                part(from.symbols, rows * bank_symbols);
            }
            part(from.reach, rows);
        }
    };

    static __device__ bool encodes(const storage& tables) { return tables.bank.next != nullptr; }
    __device__ warp_tans(const storage& tables, uint32_t)
        : rows_(tables.starts, tables.bank.whole(), tables.exact.sigma_offset)
    {
    }

    struct factors {
        int row_step;
        code_scale scale;
    };

    static __device__ factors factors_of(uint32_t nibble, const code_scale& scale)
    {
        return {int(nibble) + min_row_step, scale};
    }
    __device__ scalar prepare(const scaled_input& in, const factors& f) const
    {
        return rows_.prepare(in.mean, in.sigma_index, f.row_step, f.scale);
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
    model rows_;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
