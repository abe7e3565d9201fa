#pragma once
// Rows of a float bank for a batch of scalars: float_bank_model::prepare() (core/float_bank.hpp)
// cut into what is constant for a block, for a row of channels, and for a scalar; the five types
// are numbers. A scalar's groups as a formula instead of a walk through binades: with
//     top = octave - 6 + d, at least 1      v = the group's number + away
//     raw = min(top - 1, mantissa_bits - (how often v can be halved, at most mantissa_bits))
// the group begins at magnitude lift + ((top - 1 - raw) << mantissa_bits) + (v << raw).
// Integers only; float_planes.hpp does the same in registers.

#include "../core/float_bank.hpp"
#include "tans_rows.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

/// Where a scalar is in a bank: a cell's symbol says its group, less origin + cell_middle; groups
/// below zero are -1 - group on the other side.
struct alignas(8) float_place {
    uint32_t first_cell;
    int8_t origin;
    uint8_t lift;    // magnitude of the row's 0; bit 7: mirrored
    uint16_t start;  // of a group's entry in float_groups_table, but for the group

    static constexpr uint16_t start_of(uint32_t under_top, int away)
    {
        return uint16_t(int(under_top << 7) + away);
    }
    uint32_t under_top() const { return (start + 16u) >> 7; }
    int away() const { return int(start) - int(under_top() << 7); }
};

/// A batch's rows as the lanes' loop wants them.
struct float_rows {
    alignas(64) float_place place[tans_batch + tans_slack];

    void end(uint32_t n)
    {
        for (uint32_t i = 0; i < tans_slack; ++i) place[n + i].first_cell = 0;
    }
    const float_place* from(uint32_t first) const { return place + first; }
};

/// Magnitudes above lift, and raw bits, of groups: [top - 1][v], v from 0 on or, where top - 1 is
/// more than mantissa_bits, from that much below 0.
struct float_groups_table {
    struct entry {
        uint8_t magnitude;
        uint8_t raw_bits;
    };
    entry group[8 << 7];

    constexpr explicit float_groups_table(uint32_t mantissa_bits) : group{}
    {
        const int p = int(mantissa_bits);
        for (int under = 0; under < 7; ++under)
            for (int v = under > p ? p - under : 0; v < 112; ++v) {
                int raw = p - (v >= 2) - (p > 1 && v >= 4) - (p > 2 && v >= 8);
                raw = raw < under ? raw : under;
                const int magnitude = (under - raw) * (1 << p) + v * (1 << raw);
                // What no type has is as good as any other such magnitude.
                group[under * 128 + v] = {uint8_t(magnitude < 255 ? magnitude : 255), uint8_t(raw)};
            }
    }
};

inline constexpr float_groups_table float_groups_tables[3] = {
    float_groups_table(1), float_groups_table(2), float_groups_table(3)};

/// What is known of a bank's octaves and classes.
struct float_class {
    uint32_t start;       // row of place 0 of step 0, which may be none of the bank's; mod 2^32
    uint32_t log_places;  // rows per step, as a power of 2
    int shift;            // place >> shift counts rows
    uint32_t under_top;
    int away;
    bool shared;

    float_class(const float_bank_layout& layout, const float_bank_starts& starts, uint32_t octave,
                uint32_t d)
        : shift(8 - layout.log_parts(octave)), shared(layout.shares(octave))
    {
        const float_groups groups = groups_of(layout, octave, d);
        const int p = int(layout.mantissa_bits());
        under_top = uint32_t(groups.top > 1 ? groups.top - 1 : 0);
        const int over = int(under_top) - p, low = int(groups.bits(1));
        away = (groups.lowest != 0 ? 1 << (p - low) : 0) - (over > 0 ? over : 0);
        const uint32_t places = layout.places(octave, shared ? 1 : d);
        log_places = log2_floor(places);
        start = shared ? starts[octave][0]
                       : starts[octave][d - 1] - (layout.first_unit(octave, d) << 8 >> shift);
    }
};

/// Of units under shared rows: what moves the row, in units, and the groups.
struct shared_shift {
    int8_t units;
    int8_t groups;

    shared_shift(const float_bank_layout& layout, uint32_t unit, uint32_t d)
        : units(int8_t(int(layout.shared_unit(unit, d)) - int(unit))),
          groups(int8_t(int(unit) - int(layout.unit_of_shared(layout.shared_unit(unit, d)))))
    {
    }
};

/// The numbers of a type that rows are found by. Eighths of an octave of sigma are counted from
/// the largest below the lowest anchor's binade.
struct float_keys {
    scalar_format format;
    int low, high;       // eighths that matter
    uint32_t most;       // fp32 bits of the largest mean
    int to_anchor;       // of an exponent field
    int to_shift;        // anchor - field + this: of a significand, to 1/256 ulp
    int to_above;        // eighths - 8 anchor + this: above the lowest row

    explicit float_keys(scalar_format f)
        : format(f),
          low(-8 * int(f.mantissa_bits + 2)),
          high(8 * int(f.largest_finite >> f.mantissa_bits) + 7),
          most(value_bits(f, f.largest_finite)),
          to_anchor(f.bias - 127),
          to_shift(142 - f.bias - int(f.mantissa_bits)),
          to_above(8 * int(f.mantissa_bits + 3))
    {
    }

    /// Added to a sigma's index.
    int origin(int sigma_offset, int row_step, const code_scale& scale) const
    {
        return 8 * (sigma_offset + format.bias) + 2 * row_step - scale.eighths;
    }
    static constexpr int none = -0x10000;  // origin of a scale that does not count
};

/// A bank's octaves and classes.
class float_levels {
public:
    float_levels(scalar_format format, const bank_plan& plan)
        : keys_(format), table_bits_(plan.table_bits)
    {
        const float_bank_layout layout{format, plan};
        float_bank_starts starts;
        starts.fill(layout);
        for (uint32_t octave = 0; octave < layout.octaves(); ++octave) {
            const uint32_t classes = layout.classes(octave);
            for (uint32_t i = 0; i < 8; ++i) classes_[8 * octave + i] = uint8_t(classes);
            for (uint32_t d = 1; d <= classes; ++d) {
                const float_class one(layout, starts, octave, d);
                for (uint32_t i = 0; i < 8; ++i)
                    level_[8 * octave + i][d] = {
                        int32_t(one.start + (i >> (3 - plan.log_steps) << one.log_places)),
                        float_place::start_of(one.under_top, one.away), uint8_t(one.shift),
                        uint8_t(!one.shared ? 0 : d == 1 ? 16 : 32)};
            }
        }
        for (uint32_t unit = 0; unit < 2u << format.mantissa_bits && layout.shares(0); ++unit)
            for (uint32_t d = 1; d <= 2; ++d) {
                const shared_shift shift(layout, unit, d);
                moved_[16 * d + unit] = {int16_t(shift.units * (1 << layout.log_parts(0))),
                                         shift.groups};
            }
        for (int i = 0; i < int(room); ++i) {
            int eighths = i - before + keys_.low;
            if (eighths < keys_.low) eighths = keys_.low;
            if (eighths > keys_.high) eighths = keys_.high;
            const int anchor = eighths < 8 ? 1 : eighths / 8;
            sigma_[i] = {int16_t(eighths + keys_.to_above), int16_t(anchor)};
        }
    }

    const float_keys& keys() const { return keys_; }

    /// Rows of n scalars under one origin, from `first` of a batch on. Means need not be clean.
    void find_rows(const tans_predictions& from, uint32_t first, uint32_t n, int origin,
                   float_rows& to)
    {
        const int lowest = -before, highest = keys_.high - keys_.low;
        origin -= keys_.low;
        sigma_key* const sigmas =
            sigma_ + (before + (origin < lowest ? lowest : origin > highest ? highest : origin));
        const sigma_key kept = sigmas[sigma_zero];
        sigmas[sigma_zero] = sigma_[0];  // sigma 0; no other index reads this one
        const float_keys keys = keys_;
        const uint32_t mantissa_bits = keys.format.mantissa_bits, table_bits = table_bits_;
        for (uint32_t i = first; i < first + n; ++i) {
            uint32_t mean = from.mean[i], size = mean & ~sign_bit;
            if (NORMANS_RARE(size > keys.most)) {
                if (size > infinity_bits) mean = 0;
                size = size > infinity_bits ? 0 : keys.most;
            }
            const sigma_key sigma = sigmas[from.sigma[i]];
            const int field = int(size >> 23), mine = field + keys.to_anchor;
            const int anchor = sigma.anchor > mine ? sigma.anchor : mine;
            const int over = sigma.eighths - 8 * anchor;
            const uint32_t above = uint32_t(over < 0 ? 0 : over), most = classes_[above];
            const uint32_t d = uint32_t(anchor) < most ? uint32_t(anchor) : most;
            const level here = level_[above][d];
            const int by = anchor - field + keys.to_shift;
            const uint32_t place = ((size & 0x7fffff) | 0x800000u) >> (by < 31 ? by : 31);
            const moved shift = moved_[here.shared + (place >> 8)];
            const uint32_t row = uint32_t(here.start + int(place >> here.shift) + shift.rows);
            const uint32_t lift = (uint32_t(anchor) - d) << mantissa_bits;
            to.place[i] = {row << table_bits, shift.groups,
                           uint8_t(lift | (mean >> 24 & 128)), here.groups};
        }
        sigmas[sigma_zero] = kept;
    }

private:
    struct level {
        int32_t start;    // see float_class; of the step
        uint16_t groups;  // float_place::start
        uint8_t shift, shared;
    };
    struct moved {
        int16_t rows;
        int8_t groups;
    };
    struct sigma_key {
        int16_t eighths, anchor;
    };
    // Below and above the eighths that matter there is room for any index.
    static constexpr int before = 256;
    static constexpr uint32_t room = 256 + 8 * (31 + 5) + 256;

    float_keys keys_;
    uint32_t table_bits_;
    uint8_t classes_[8 * float_bank_layout::max_octaves];
    level level_[8 * float_bank_layout::max_octaves][float_bank_layout::max_classes + 1];
    moved moved_[48] = {};  // by unit: of rows that are not shared, of the lowest class, of others
    sigma_key sigma_[room];
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
