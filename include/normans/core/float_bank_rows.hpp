#pragma once
// How the tANS rows for fp8 and e2m1 are keyed (float_bank.hpp has the model). Codes look the same
// from every binade, so a row is keyed in units of the anchor's cells. The *anchor* is the binade
// of the mean or of sigma, the larger one, at least the lowest with normal codes, at most the
// highest; `ulp` is its codes' distance.
//   - Octaves of sigma in ulp, -3..mantissa_bits, have 2^log_steps steps, in eighths as in
//     uniform_bank.hpp; sigmas beyond use the lowest and the highest. The mean's sign is set aside
//     (such a row is mirrored); its place is floor(|mean| / ulp 2^log), at most the largest code's.
//   - The class says how much of the number line below the anchor a row sees: class d < depth + 1
//     is anchor d, whose rows know where the subnormals are; the last class is all anchors above,
//     whose codes more than `depth` binades below are escaped. e2m1 has a class for each anchor.
//   - Octaves -3 and -2 of fp8 see little of the line: all units (ulp to ulp) but the first above
//     zero, the first and the last of a binade share one unit's rows, for all classes.
//   - Codes that lie closer than sigma / 8 or so are coded in groups of 2^g, g <= mantissa_bits,
//     their low g bits raw. Groups are counted from 0 away from zero, -1 - i mirrors i.
//   - Symbol 0 is an escape: the code follows raw. Symbol 1 is the group reach - 128; cells say the
//     group + cell_middle.

#include "uniform_bank.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

NORMANS_HD constexpr bool has_float_bank(scalar_type type)
{
    return has_model(type) && !format_of(type).is_integer && format_of(type).code_bits <= 8;
}

constexpr uint32_t max_bank_mib = 16;  // of cells: what a header may ask for

/// How the rows of one type lie.
struct float_bank_layout {
    scalar_format format;
    bank_plan plan;

    static constexpr uint32_t max_octaves = 7, max_classes = 7;

    NORMANS_HD constexpr uint32_t mantissa_bits() const { return format.mantissa_bits; }
    NORMANS_HD constexpr uint32_t octaves() const { return mantissa_bits() + 4; }
    NORMANS_HD constexpr uint32_t largest_anchor() const
    {
        return format.largest_finite >> mantissa_bits();
    }
    NORMANS_HD constexpr bool absolute() const { return largest_anchor() < 4; }

    /// Binades that rows see below the anchor. `octave` counts from the lowest.
    NORMANS_HD constexpr uint32_t depth(uint32_t octave) const
    {
        if (absolute()) return largest_anchor();
        const uint32_t below = octaves() - 1 - octave;
        return below < 5 && !shares(octave) ? 6 - below : 1;
    }
    NORMANS_HD constexpr uint32_t classes(uint32_t octave) const
    {
        return depth(octave) + (absolute() ? 0 : 1);
    }
    NORMANS_HD constexpr bool shares(uint32_t octave) const { return !absolute() && octave < 2; }

    /// Places per ulp, as a power of 2.
    NORMANS_HD constexpr int log_parts(uint32_t octave) const
    {
        const int most = plan.log_positions + 1, parts = plan.log_positions + 3 - int(octave);
        return parts > most ? most : parts;
    }
    /// The first unit of a class's rows.
    NORMANS_HD constexpr uint32_t first_unit(uint32_t octave, uint32_t d) const
    {
        return d == 1 || octave == octaves() - 1 ? 0 : uint32_t(1) << mantissa_bits();
    }
    /// Rows per step of sigma.
    NORMANS_HD constexpr uint32_t places(uint32_t octave, uint32_t d) const
    {
        if (shares(octave)) return d == 1 ? uint32_t(4) << log_parts(octave) : 0;
        const uint32_t units = (uint32_t(2) << mantissa_bits()) - first_unit(octave, d);
        return log_parts(octave) < 0 ? units >> -log_parts(octave) : units << log_parts(octave);
    }
    NORMANS_HD constexpr uint32_t rows() const
    {
        uint32_t all = 0;
        for (uint32_t o = 0; o < octaves(); ++o)
            for (uint32_t d = 1; d <= classes(o); ++d) all += places(o, d) << plan.log_steps;
        return all;
    }
    /// Of units under shared rows: 0 the first above zero, 1 and 3 the first and the last of a
    /// binade, 2 all others; and the unit that stands for each.
    NORMANS_HD constexpr uint32_t shared_unit(uint32_t unit, uint32_t d) const
    {
        if (d == 1 && unit == 0) return 0;
        if (d != 1 && unit == uint32_t(1) << mantissa_bits()) return 1;
        return unit == (uint32_t(2) << mantissa_bits()) - 1 ? 3 : 2;
    }
    NORMANS_HD constexpr uint32_t unit_of_shared(uint32_t shared) const
    {
        const uint32_t first = uint32_t(1) << mantissa_bits();
        return shared == 0 ? 0 : shared == 3 ? 2 * first - 1 : first + (shared == 1 ? 0 : 1);
    }
};

/// A plan whose bank is not too large to be built for a stranger's header.
NORMANS_HD constexpr bool valid_plan(scalar_type type, const bank_plan& plan)
{
    if (!valid_plan(plan) || !has_float_bank(type))
        return valid_plan(plan) && format_of(type).is_integer;
    return float_bank_layout{format_of(type), plan}.rows() <=
           (max_bank_mib << 18) >> plan.table_bits;
}

/// The groups of one octave and class: group <-> magnitude above `lowest`, anchor d.
struct float_groups {
    uint32_t mantissa_bits;
    int top;          // g = top - binade
    uint32_t lowest;  // binade: 0, or 1 where those below are escaped

    NORMANS_HD constexpr uint32_t bits(uint32_t binade) const
    {
        const int g = top - int(binade == 0 ? 1 : binade), most = int(mantissa_bits);
        return uint32_t(g < 0 ? 0 : g > most ? most : g);
    }
    NORMANS_HD constexpr uint32_t group_of(uint32_t magnitude) const
    {
        uint32_t group = 0, binade = lowest;
        for (; binade < magnitude >> mantissa_bits && bits(binade) != 0; ++binade)
            group += uint32_t(1) << (mantissa_bits - bits(binade));
        return group + ((magnitude - (binade << mantissa_bits)) >> bits(binade));
    }
    /// The first magnitude of a group; `g` of its codes.
    NORMANS_HD constexpr uint32_t magnitude_of(uint32_t group, uint32_t& g) const
    {
        uint32_t binade = lowest;
        for (; (g = bits(binade)) != 0 && group >> (mantissa_bits - g) != 0; ++binade)
            group -= uint32_t(1) << (mantissa_bits - g);
        return (binade << mantissa_bits) + (group << g);
    }
};

NORMANS_HD constexpr float_groups groups_of(const float_bank_layout& layout, uint32_t octave,
                                            uint32_t d)
{
    return {layout.mantissa_bits(), int(octave) - 6 + int(d),
            !layout.absolute() && d == layout.depth(octave) + 1 ? 1u : 0u};
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
