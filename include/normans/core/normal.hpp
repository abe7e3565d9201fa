#pragma once
// The model: one scalar's (mu', sigma index, row step) -> intervals of the 2^15 slots.
//     [0, escape_slots) escape: the code itself follows; above that, C(i) = escape_slots + G(z(i)),
//     z = round(fma(edge, slope, -(mu' slope))), each product and fma rounded once, z clamped.
// Codes of 16 bits are coded in groups of 2^g neighbours that span sigma/16 .. sigma/8, their low g
// bits raw. Boundary i is the lower edge of group i; group -1 - i is group i with the other sign. A
// code without a slot of its own is escaped, so every code has exactly one form under every model.
// *Far*: the mean is so many sigmas away from zero that sigma is no more than a rounding error of
// it (or sigma is 0, or mu' is no number): then the code of mu' has nearly all slots.

#include "scalar.hpp"
#include "shape.hpp"
#include "sigma.hpp"
#include "table.hpp"
#include "z_map.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

// Row steps multiply sigma by 2^(j/4), j in -6..9, hence slopes by 2^(-j/4): fp32 bits of those.
constexpr int min_row_step = -6;
constexpr int max_row_step = 9;
NORMANS_HD constexpr uint32_t row_slope(int step)
{
    constexpr uint32_t quarter[4] = {0x3f800000, 0x3f5744fd, 0x3f3504f3, 0x3f1837f0};
    return quarter[step & 3] - (uint32_t((step + 8) / 4 - 2) << 23);
}

/// Where a code lies: slots [start, start + freq), then `raw_bits` low bits of it raw. An escaped
/// code has the escape slots and follows whole.
struct interval {
    uint32_t start;
    uint32_t freq;
    uint32_t code;  // low raw_bits are 0; 0 for an escape
    uint32_t raw_bits;
    bool escaped;
    bool corrupt;  // the slot belongs to no code
};

// The interval of a lane without a scalar: coding it changes nothing.
NORMANS_HD constexpr interval idle_interval()
{
    return {0, rans_format::total, 0, 0, false, false};
}

/// The interval of an escaped byte under the marginal.
NORMANS_HD inline interval interval_of(const marginal_table& table, uint32_t symbol)
{
    const uint32_t start = table.start[symbol];
    return {start, uint32_t(table.start[symbol + 1]) - start, symbol, 0, false, false};
}

/// What the coder needs to know of one scalar's distribution.
struct scalar_model {
    uint32_t mean;       // mu', fp32 bits, cleaned by map_mean
    uint32_t slope;      // z per unit of value, fp32 bits
    uint32_t bias;       // -(mu' slope), fp32 bits
    uint32_t group_bits; // g
    int32_t last_group;  // the highest group with slots; the lowest is -1 - last_group
    bool is_far;
};

/// The rules for one scalar type, shape and sigma offset.
template <scalar_type Type>
struct normal_model {
    static constexpr scalar_format format = format_of(Type);
    static_assert(has_model(Type) && !format.is_integer, "raw8 has no model, integers another");

    normal_shape shape;
    int sigma_offset;
    const marginal_table* marginal;  // null: escaped codes follow raw

    NORMANS_HD interval escape() const
    {
        constexpr uint32_t raw = format.code_bits < 8 ? format.code_bits : raw_bits_limit;
        return {0, shape.escape_slots, 0, marginal == nullptr ? raw : 0, true, false};
    }

    /// `mean` is what map_mean returned, sigma_index 0..255, row_step in -6..9.
    NORMANS_HD scalar_model prepare(uint32_t mean, uint32_t sigma_index, int row_step) const
    {
        return prepare_sloped(mean, sigma_index, row_slope(row_step));
    }

    NORMANS_HD scalar_model prepare_sloped(uint32_t mean, uint32_t sigma_index,
                                           uint32_t slope) const
    {
        scalar_model m{mean, 0, 0, 0, 0, true};
        if (sigma_index == sigma_zero) return m;
        m.slope = shape.slope[sigma_index & 7] -
                  (uint32_t(sigma_offset + int(sigma_index >> 3)) << 23);
        if (slope != one_bits) m.slope = multiply(m.slope, slope);
        const int sigma_field = int((one_bits + shape.unit_slope - m.slope) >> 23);
        const int mean_field = int(exponent_field(mean));
        if (mean_field >= sigma_field + 16) return m;
        m.is_far = false;
        m.bias = multiply(mean, m.slope) ^ sign_bit;
        constexpr int p = int(format.mantissa_bits), subnormal_field = 128 - format.bias;
        if (p > 3) {
            int g = sigma_field < mean_field ? sigma_field - mean_field : 0;
            if (g > sigma_field - subnormal_field) g = sigma_field - subnormal_field;
            m.group_bits = g + p > 3 ? uint32_t(g + p - 3) : 0;
        }
        // Codes whose edges could leave the range of floats have no slots anyway: 2^17 sigma.
        constexpr int binades = 1 << (int(format.code_bits) - 1 - p);
        int limit = sigma_field + 17 - 127 + format.bias;
        limit = limit < 1 ? 1 : limit > binades ? binades : limit;
        const uint32_t past = uint32_t(limit) << p;
        const uint32_t last = past > format.largest_finite ? format.largest_finite : past - 1;
        m.last_group = int32_t(last >> m.group_bits);
        return m;
    }

    /// C of boundary i, -1 - last_group <= i <= last_group + 1. The last finite codes take all
    /// that lies beyond them.
    NORMANS_HD uint32_t cdf(const scalar_model& m, int i) const
    {
        const uint32_t magnitude = uint32_t(i < 0 ? -i : i) << m.group_bits;
        const uint32_t sign = i < 0 ? sign_bit : 0;
        int z = i < 0 ? lowest_z : highest_z;
        if (magnitude <= format.largest_finite)
            z = z_of(edge_bits(format, magnitude) | sign, m.slope, m.bias);
        return shape.escape_slots + gaussian_cdf(shape, z);
    }

    /// The interval of a code.
    NORMANS_HD interval find(const scalar_model& m, uint32_t code) const
    {
        if (m.is_far) {
            const uint32_t expected = nearest_code(format, m.mean);
            if (code == expected) return far_interval(expected, false);
            if (code == (expected ^ format.code_sign())) return far_interval(expected, true);
            return escape();
        }
        const uint32_t magnitude = code & (format.code_sign() - 1);
        const int group = int(magnitude >> m.group_bits);
        if (group > m.last_group || magnitude > format.largest_finite) return escape();
        const int i = code & format.code_sign() ? -1 - group : group;
        const uint32_t start = cdf(m, i), freq = cdf(m, i + 1) - start;
        if (freq == 0) return escape();
        return {start, freq, code_of(m, i), m.group_bits, false, false};
    }

    /// The interval that holds a slot. `guess` is any boundary in range; a good one saves work.
    NORMANS_HD interval locate(const scalar_model& m, uint32_t slot, int guess) const
    {
        int low = guess, high = guess;
        uint32_t start = cdf(m, guess), end = start;
        const int lowest = -1 - m.last_group, highest = m.last_group + 1;
        interval no_interval = idle_interval();
        no_interval.corrupt = true;
        for (int step = 1; start > slot; step *= 2) {  // gallop to a pair of boundaries around it
            high = low, end = start;
            if (low == lowest) return no_interval;
            low = low - step < lowest ? lowest : low - step;
            start = cdf(m, low);
        }
        for (int step = 1; end <= slot; step *= 2) {
            low = high, start = end;
            if (high == highest) return no_interval;
            high = high + step > highest ? highest : high + step;
            end = cdf(m, high);
        }
        while (high - low > 1) {
            const int middle = low + (high - low) / 2;
            const uint32_t c = cdf(m, middle);
            if (c <= slot) low = middle, start = c;
            else high = middle, end = c;
        }
        return {start, end - start, code_of(m, low), m.group_bits, false, false};
    }

    /// The same of a far scalar.
    NORMANS_HD interval locate_far(const scalar_model& m, uint32_t slot) const
    {
        return far_interval(nearest_code(format, m.mean), slot >= rans_format::total - flip_slots);
    }

private:
    NORMANS_HD interval far_interval(uint32_t code, bool flipped) const
    {
        const uint32_t flip_start = rans_format::total - flip_slots;
        if (flipped) return {flip_start, flip_slots, code ^ format.code_sign(), 0, false, false};
        return {shape.escape_slots, flip_start - shape.escape_slots, code, 0, false, false};
    }

    NORMANS_HD static uint32_t code_of(const scalar_model& m, int group)
    {
        if (group >= 0) return uint32_t(group) << m.group_bits;
        return uint32_t(-1 - group) << m.group_bits | format.code_sign();
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
