#pragma once
// The model of fp8 and e2m1 over a bank of tANS rows (float_bank_rows.hpp: how they are keyed). The
// mean is mu', of e2m1 mu' / scale; a NaN is 0. Sigma 0, and a scale that does not count, take the
// lowest row, with the mean's own binade as the anchor. Integers only.

#include "float_bank_rows.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// The first row of each octave and class: [octave][class - 1].
struct float_bank_starts {
    uint32_t row[float_bank_layout::max_octaves][float_bank_layout::max_classes];

    NORMANS_HD const uint32_t* operator[](uint32_t octave) const { return row[octave]; }
    NORMANS_HD void fill(const float_bank_layout& layout)
    {
        uint32_t next = 0;
        for (uint32_t o = 0; o < layout.octaves(); ++o)
            for (uint32_t d = 1; d <= float_bank_layout::max_classes; ++d) {
                row[o][d - 1] = next;
                if (d <= layout.classes(o)) next += layout.places(o, d) << layout.plan.log_steps;
            }
    }
};

/// The model of any of these types over a bank, for tans_step.hpp; the same face as bank_model.
/// Starts: float_bank_starts, or a reference to those that lie elsewhere.
template <class Starts>
struct float_bank_model_over {
    struct scalar {
        uint32_t row;
        int32_t base;   // group that the row counts from
        uint32_t lift;  // magnitude of a row's 0
        float_groups groups;
        bool mirrored;
    };

    tans_bank bank;
    int sigma_offset;
    float_bank_layout layout;
    scalar_format format;
    bool scaled;
    Starts first_row;

    NORMANS_HD scalar prepare(uint32_t mean, uint32_t sigma_index, int row_step,
                              const code_scale& scale) const
    {
        const int p = int(format.mantissa_bits), octaves = p + 4;
        bool known = sigma_index != sigma_zero;
        int eighths = 8 * sigma_offset + int(sigma_index) + 2 * row_step;
        if (scaled) {
            mean = mean_in_codes(mean, scale);
            known = known && scale.scale != 0;
            eighths -= scale.eighths;
        }
        uint32_t size = mean & ~sign_bit;
        const uint32_t most = value_bits(format, format.largest_finite);
        size = is_nan(size) || exponent_field(size) == 0 ? 0 : size > most ? most : size;
        const int field = int(size >> 23);
        int anchor = known ? (eighths + 8 * 1024) / 8 - 1024 + format.bias : 1;
        if (anchor > int(layout.largest_anchor())) anchor = int(layout.largest_anchor());
        if (anchor < field - 127 + format.bias) anchor = field - 127 + format.bias;
        if (anchor < 1) anchor = 1;
        int above = known ? eighths + 8 * (format.bias + p - anchor - lowest_bank_octave) : 0;
        above = above < 0 ? 0 : above >= 8 * octaves ? 8 * octaves - 1 : above;
        const uint32_t octave = uint32_t(above) >> 3, classes = layout.classes(octave);
        const uint32_t d = uint32_t(anchor) < classes ? uint32_t(anchor) : classes;
        const int shift = 142 + anchor - format.bias - p - field;
        const uint32_t place =  // in 1/256 ulp
            size == 0 || shift > 24 ? 0 : ((size & 0x7fffff) | 0x800000u) >> shift;
        scalar m{first_row[octave][d - 1], 0, (uint32_t(anchor) - d) << p,
                 groups_of(layout, octave, d), mean >> 31 != 0};
        const uint32_t step = (uint32_t(above) & 7) >> (3 - bank.plan.log_steps);
        uint32_t within = place >> (8 - layout.log_parts(octave));
        if (layout.shares(octave)) {
            const uint32_t unit = place >> 8, shared = layout.shared_unit(unit, d);
            const int log_parts = layout.log_parts(octave);
            within = (shared << log_parts) + (within & ((uint32_t(1) << log_parts) - 1));
            m.base = int(unit) - int(layout.unit_of_shared(shared));
            m.row = first_row[octave][0] + step * layout.places(octave, 1) + within;
        } else {
            const uint32_t first = layout.first_unit(octave, d) << 8;
            m.row += step * layout.places(octave, d) +
                     ((place - first) >> (8 - layout.log_parts(octave)));
        }
        return m;
    }

    NORMANS_HD tans_transition leave(const scalar& m, uint32_t cell) const
    {
        const tans_cell& here = bank.cells[(m.row << bank.plan.table_bits) + cell];
        tans_transition step = leave_cell(here);
        if (here.symbol == 0) return escape(step);
        const int group = m.base + int(here.symbol) - cell_middle;
        const uint32_t magnitude =
            m.lift + m.groups.magnitude_of(uint32_t(group < 0 ? -1 - group : group), step.raw_bits);
        step.corrupt = magnitude > format.largest_finite;
        if (!step.corrupt)
            step.code = magnitude | ((group < 0) != m.mirrored ? format.code_sign() : 0);
        return step;
    }

    NORMANS_HD tans_transition enter(const scalar& m, uint32_t code, uint32_t cell) const
    {
        const tans_row row{nullptr, bank.next + (m.row << bank.plan.table_bits),
                           bank.symbols + m.row * bank_symbols};
        const int symbol = symbol_of(m, code, bank.reach[m.row]);
        if (symbol == 0 || row.symbols[symbol].freq == 0)
            return escape(enter_symbol(row, bank.plan.table_bits, 0, cell));
        tans_transition step = enter_symbol(row, bank.plan.table_bits, uint32_t(symbol), cell);
        step.raw_bits = raw_bits_of(m, code);
        return step;
    }

    /// A code's symbol in a row of this reach; 0 for an escape.
    NORMANS_HD int symbol_of(const scalar& m, uint32_t code, int reach) const
    {
        const uint32_t magnitude = code & (format.code_sign() - 1);
        const uint32_t first = m.lift + (m.groups.lowest << format.mantissa_bits);
        if (magnitude < first || magnitude > format.largest_finite) return 0;
        const int group = int(m.groups.group_of(magnitude - m.lift));
        const bool negative = ((code & format.code_sign()) != 0) != m.mirrored;
        const int symbol = (negative ? -1 - group : group) - m.base + 129 - reach;
        return symbol < 1 || symbol >= int(bank_symbols) ? 0 : symbol;
    }

    /// The raw bits behind a code's symbol, unless that is an escape.
    NORMANS_HD uint32_t raw_bits_of(const scalar& m, uint32_t code) const
    {
        const uint32_t magnitude = code & (format.code_sign() - 1);
        return m.groups.bits((magnitude - m.lift) >> format.mantissa_bits);
    }

private:
    NORMANS_HD tans_transition escape(tans_transition step) const
    {
        step.escaped = true;
        step.raw_bits = format.code_bits;
        return step;
    }
};

struct float_bank_model : float_bank_model_over<float_bank_starts> {
    NORMANS_HD float_bank_model(scalar_type type, const tans_bank& rows, int offset)
        : float_bank_model_over{rows, offset, {format_of(type), rows.plan}, format_of(type),
                                has_scale(type), {}}
    {
        first_row.fill(layout);
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
