#pragma once
// First guesses for planes: the z that each lane's slot stands for, times `unit`^-1. Two kinds, for
// machines with fast gathers and without. No part of the format (see guess.hpp).

#include "../core/shape.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

namespace detail {

// Inverts the pieces of G: z at a slot, which may be fractional.
constexpr double z_at_slot(const normal_shape& shape, double slot)
{
    uint32_t piece = 0;
    while (piece < 31 && double(shape.escape_slots + shape.base[piece + 1]) <= slot) ++piece;
    const double first = double(shape.escape_slots) + shape.base[piece];
    const double rise = double(shape.base[piece + 1]) - double(shape.base[piece]);
    const double z = 2048.0 * (piece + (slot - first) / rise) - 32768.0;
    return z < -32768.0 ? -32768.0 : z > 32767.0 ? 32767.0 : z;
}

struct gather_table {
    static constexpr int shift = 4;  // slots an entry stands for: 16
    float z[rans_format::total >> shift];
};

constexpr gather_table make_gather_table(shape_id id)
{
    gather_table table{};
    for (uint32_t i = 0; i < rans_format::total >> gather_table::shift; ++i)
        table.z[i] = float(z_at_slot(shape_of(id), double(i << gather_table::shift) + 8.0));
    return table;
}

// z over the distance from the middle slot: 32 pieces of 512 slots, and 32 of 16 for the last 512.
struct register_table {
    static constexpr uint32_t tail = 15872;
    uint32_t middle;
    uint16_t base[32], rise[32], tail_base[32], tail_rise[32];
};

constexpr register_table make_register_table(shape_id id)
{
    const normal_shape shape = shape_of(id);
    register_table table{};
    table.middle = (rans_format::total + shape.escape_slots) / 2;
    const double middle = double(table.middle) + 0.5;
    const auto fill = [&](uint16_t* base, uint16_t* rise, double first, double step) {
        double z = z_at_slot(shape, middle + first);
        for (int i = 0; i < 32; ++i) {
            const double next = z_at_slot(shape, middle + first + step * (i + 1));
            base[i] = uint16_t(z < 0 ? 0.0 : z + 0.5);
            rise[i] = uint16_t(next - z + 0.5);
            z = next;
        }
    };
    fill(table.base, table.rise, 0, 512);
    fill(table.tail_base, table.tail_rise, register_table::tail, 16);
    return table;
}

template <shape_id Id>
inline constexpr gather_table gather_table_of = make_gather_table(Id);
template <shape_id Id>
inline constexpr register_table register_table_of = make_register_table(Id);

}  // namespace detail

/// By table in memory, 16 slots an entry.
template <class V>
struct gather_guess {
    static constexpr float unit = 1.0f;
    const float* z;

    explicit gather_guess(shape_id id) : z(table_of(id).z) {}

    NORMANS_INLINE typename V::floats operator()(const typename V::words& slot) const
    {
        return V::gather(z, V::template shr<detail::gather_table::shift>(slot));
    }

private:
    static const detail::gather_table& table_of(shape_id id)
    {
        switch (id) {
        case shape_id::mixture: return detail::gather_table_of<shape_id::mixture>;
        case shape_id::mixture_marginal: return detail::gather_table_of<shape_id::mixture_marginal>;
        case shape_id::gaussian: break;
        }
        return detail::gather_table_of<shape_id::gaussian>;
    }
};

/// By straight pieces in registers.
template <class V>
struct register_guess {
    static constexpr float unit = 1.0f / 65536.0f;
    uint32_t middle;
    typename V::pieces body, tail;

    explicit register_guess(shape_id id) : register_guess(table_of(id)) {}

    NORMANS_INLINE typename V::floats operator()(const typename V::words& slot) const
    {
        const auto offset = V::sub(slot, V::set(middle));
        const auto below = V::negative(offset);
        const auto distance = V::negate_where(below, offset);
        const auto outer = V::sub(distance, V::set(detail::register_table::tail));
        const auto z = V::select(V::less_signed(outer, V::set(0)),
                                 body(V::template shl<2>(distance)),
                                 tail(V::template shl<7>(outer)));
        return V::to_floats(V::bits(V::floats_from_high(V::negate_where(below, z))));
    }

private:
    explicit register_guess(const detail::register_table& table)
        : middle(table.middle), body(table.base, table.rise),
          tail(table.tail_base, table.tail_rise)
    {
    }

    static const detail::register_table& table_of(shape_id id)
    {
        switch (id) {
        case shape_id::mixture: return detail::register_table_of<shape_id::mixture>;
        case shape_id::mixture_marginal:
            return detail::register_table_of<shape_id::mixture_marginal>;
        case shape_id::gaussian: break;
        }
        return detail::register_table_of<shape_id::gaussian>;
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
