#pragma once
// A bank of tANS rows for int8 and int4: one row per (step of sigma in codes, place of the mean in
// its cell), so that a scalar costs a look-up and no arithmetic on floats.
//   - Sigma in codes is 8 offset + k + 2 j - (eighths of the scale) eighths of an octave. Octaves
//     -3..2 have 2^log_steps steps. Above, groups of 2^g neighbours, g <= code_bits - 2, are coded
//     under the rows of octave 2 (4 to 8 groups per sigma), their low g bits raw. Sigmas beyond use
//     the lowest and the highest row; sigma 0, and a scale that does not count, the lowest.
//   - The mean is mu' times the scale's inverse, exact, rounded to 1/256 code (halves away from 0)
//     and clamped to the codes' range; a NaN is 0. Its place in its group's cell, in 1/256, is
//     rounded down. Groups are counted from the lowest code, whose cell begins 1/2 below it.
//   - A cell has 2^log_positions equal parts in octave 0, half as many an octave up (at least 1),
//     at most twice as many below. Left of the middle the mirrored row of the other side is used.
//   - Symbol 0 is an escape: the code follows raw. Symbol s is the group s - 1 - reach groups away
//     from the mean's (towards smaller codes in a mirrored row); one beyond the codes is corrupt.
//   - A bank's cells do not say the symbol but that distance + cell_middle, and encoders find a
//     symbol at the distance + bank_symbols / 2, so that no coder needs a reach; 0 is the escape.

#include "shape.hpp"
#include "sigma.hpp"
#include "tans_table.hpp"
#include "uniform_scalar.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

constexpr int lowest_bank_octave = -3;
constexpr uint32_t bank_octaves = 6;
constexpr uint32_t bank_symbols = 100;  // of a row, at most: 6 sigma of 8 codes on both sides
constexpr int cell_middle = 128;

/// How a bank is split: with the shape all that it takes to rebuild it.
struct bank_plan {
    shape_id shape = shape_id::gaussian;  // gaussian or mixture
    uint8_t table_bits = 9;               // 6..12
    uint8_t log_steps = 2;                // 0..3
    uint8_t log_positions = 2;            // 0..4
};

NORMANS_HD constexpr bool valid_plan(const bank_plan& plan)
{
    return plan.shape <= shape_id::mixture && plan.table_bits >= 6 &&
           plan.table_bits <= tans_format::max_table_bits && plan.log_steps <= 3 &&
           plan.log_positions <= 4;
}

/// A plan but for its shape in 16 bits; never 0.
NORMANS_HD constexpr uint16_t pack_plan(const bank_plan& plan)
{
    return uint16_t(plan.table_bits | plan.log_steps << 4 | plan.log_positions << 6);
}

/// The inverse; check with valid_plan and against pack_plan: bits 9..15 must be 0.
NORMANS_HD constexpr bank_plan unpack_plan(shape_id shape, uint32_t packed)
{
    return {shape, uint8_t(packed & 15), uint8_t(packed >> 4 & 3), uint8_t(packed >> 6 & 7)};
}

/// Parts of a cell in an octave (0 is the lowest), as a power of 2.
NORMANS_HD constexpr uint32_t log_parts(const bank_plan& plan, uint32_t octave)
{
    const int most = plan.log_positions + 1, parts = most - 1 - int(octave) - lowest_bank_octave;
    return uint32_t(parts < 0 ? 0 : parts > most ? most : parts);
}

/// Rows per step of sigma in an octave.
NORMANS_HD constexpr uint32_t stored_parts(const bank_plan& plan, uint32_t octave)
{
    return (uint32_t(1) << log_parts(plan, octave)) / 2 + (log_parts(plan, octave) == 0 ? 1 : 0);
}

/// The first row of an octave; of bank_octaves: how many rows there are.
NORMANS_HD constexpr uint32_t first_bank_row(const bank_plan& plan, uint32_t octave)
{
    uint32_t row = (octave < 3 ? octave : 3) * stored_parts(plan, 0);  // three have as many
    for (uint32_t o = 3; o < octave; ++o) row += stored_parts(plan, o);
    return row << plan.log_steps;
}

/// Rows as both sides read them; `next` and `symbols` are null for decoders.
struct tans_bank {
    bank_plan plan;
    const tans_cell* cells;      // [rows][2^table_bits]
    const uint8_t* reach;        // [rows]; of integers no coder reads it
    const uint16_t* next;        // [rows][2^table_bits]
    const tans_symbol* symbols;  // [rows][bank_symbols]
    scalar_type grid = scalar_type::int8;  // bank_grid() of the types that it serves
};

/// The type whose rows serve `type`.
NORMANS_HD constexpr scalar_type bank_grid(scalar_type type)
{
    switch (type) {
    case scalar_type::int4: return scalar_type::int8;
    case scalar_type::e4m3fnuz: return scalar_type::e4m3fn;
    case scalar_type::e5m2fnuz: return scalar_type::e5m2;
    default: return type;
    }
}

/// round(256 mean / scale), 256 * code_sign() standing for 0, clamped to the codes' range. `mean`
/// as map_mean returned it.
NORMANS_HD inline uint32_t fixed_mean(scalar_format format, uint32_t mean, const code_scale& scale)
{
    const uint32_t zero = format.code_sign() << 8, last = 2 * zero - 256;
    const uint32_t field = exponent_field(mean);
    if (scale.scale == 0 || is_nan(mean) || field == 0) return zero;
    const uint64_t product = uint64_t((mean & 0x7fffff) | 0x800000u) *
                             ((scale.inverse & 0x7fffff) | 0x800000u);
    const int shift = 300 - 8 - int(field) - int(exponent_field(scale.inverse));
    uint64_t magnitude = zero;
    if (shift > 0) magnitude = shift > 48 ? 0 : ((product >> (shift - 1)) + 1) >> 1;
    if (magnitude > zero) magnitude = zero;
    const uint32_t distance = uint32_t(magnitude);
    if (mean >> 31 != 0) return zero - distance;
    return zero + distance > last ? last : zero + distance;
}

/// The model of int8 or int4 over a bank, for tans_step.hpp.
template <scalar_type Type>
struct bank_model {
    static constexpr scalar_format format = format_of(Type);
    static_assert(format.is_integer, "banks are for uniform grids");

    struct scalar {
        uint32_t row;
        int32_t group;  // the mean's, counted from the lowest code
        uint32_t group_bits;
        bool mirrored;
    };

    tans_bank bank;
    int sigma_offset;

    NORMANS_HD scalar prepare(uint32_t mean, uint32_t sigma_index, int row_step,
                              const code_scale& scale) const
    {
        constexpr uint32_t top = 8 * bank_octaves - 1, most_raw = format.code_bits - 2;
        int above = 0;  // eighths of an octave above the lowest row
        if (scale.scale != 0 && sigma_index != sigma_zero)
            above = 8 * (sigma_offset - lowest_bank_octave) + int(sigma_index) + 2 * row_step -
                    scale.eighths;
        uint32_t at = above < 0 ? 0 : uint32_t(above);
        const uint32_t raw = at > top ? (at - top + 7) / 8 : 0;
        at = raw > most_raw ? top : at - 8 * raw;
        scalar m{0, 0, raw > most_raw ? most_raw : raw, false};
        const uint32_t octave = at >> 3, parts = log_parts(bank.plan, octave);
        const uint32_t place = (fixed_mean(format, mean, scale) + 128) >> m.group_bits;
        m.group = int32_t(place >> 8);
        uint32_t part = (place & 255) << parts >> 8;
        m.mirrored = 2 * part + 1 < uint32_t(1) << parts;
        if (m.mirrored) part = (uint32_t(1) << parts) - 1 - part;
        m.row = first_bank_row(bank.plan, octave) +
                ((at & 7) >> (3 - bank.plan.log_steps)) * stored_parts(bank.plan, octave) + part -
                (uint32_t(1) << parts) / 2;
        return m;
    }

    NORMANS_HD tans_transition leave(const scalar& m, uint32_t cell) const
    {
        const tans_cell& here = bank.cells[(m.row << bank.plan.table_bits) + cell];
        tans_transition step = leave_cell(here);
        if (here.symbol == 0) return escape(step);
        const int away = int(here.symbol) - cell_middle;
        const int group = m.group + (m.mirrored ? -away : away);
        step.raw_bits = m.group_bits;
        step.corrupt = group < 0 || uint32_t(group) >= 2 * format.code_sign() >> m.group_bits;
        if (!step.corrupt) step.code = (uint32_t(group) << m.group_bits) ^ format.code_sign();
        return step;
    }

    NORMANS_HD tans_transition enter(const scalar& m, uint32_t code, uint32_t cell) const
    {
        const tans_row row{nullptr, bank.next + (m.row << bank.plan.table_bits),
                           bank.symbols + m.row * bank_symbols};
        const int group = int((code ^ format.code_sign()) >> m.group_bits);
        const int away = m.mirrored ? m.group - group : group - m.group;
        constexpr int middle = int(bank_symbols) / 2;
        const uint32_t symbol = away <= -middle || away >= middle ? 0 : uint32_t(away + middle);
        if (symbol == 0 || row.symbols[symbol].freq == 0)
            return escape(enter_symbol(row, bank.plan.table_bits, 0, cell));
        tans_transition step = enter_symbol(row, bank.plan.table_bits, symbol, cell);
        step.raw_bits = m.group_bits;
        return step;
    }

private:
    NORMANS_HD static tans_transition escape(tans_transition step)
    {
        step.escaped = true;
        step.raw_bits = format.code_bits;
        return step;
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
