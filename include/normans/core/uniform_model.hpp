#pragma once
// rANS intervals of scalars with a scale: normal.hpp's rules in code units. e2m1 is one more small
// float; integers have their own grid, below. In place of mu' and a row's slope go
//     mu' * (1 / scale), cleaned as mu' is,   and   row slope * scale;
// the inverse and each product are rounded once. Escaped codes follow raw, 8 or 4 bits. The shapes
// are those without a marginal.

#include "normal.hpp"
#include "uniform_scalar.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// The rules for int8 and int4. Boundary i, lowest..highest + 1, is the lower edge i - 1/2 of code
/// i; the first and the last boundary take all that lies beyond. A far mean's code has all slots
/// but the escape's.
template <scalar_type Type>
struct integer_model {
    static constexpr scalar_format format = format_of(Type);
    static constexpr int highest = int(format.largest_finite), lowest = -1 - highest;
    static_assert(format.is_integer, "int8 or int4");

    normal_shape shape;
    int sigma_offset;
    const marginal_table* marginal;  // null

    NORMANS_HD interval escape() const
    {
        return {0, shape.escape_slots, 0, format.code_bits, true, false};
    }

    NORMANS_HD static int value_of(uint32_t c) { return int(c ^ format.code_sign()) + lowest; }

    NORMANS_HD scalar_model prepare_sloped(uint32_t mean, uint32_t sigma_index,
                                           uint32_t slope) const
    {
        scalar_model m{mean, 0, 0, 0, highest, true};
        if (sigma_index == sigma_zero) return m;
        const uint32_t unscaled = shape.slope[sigma_index & 7] -
                                  (uint32_t(sigma_offset + int(sigma_index >> 3)) << 23);
        m.slope = multiply(unscaled, slope);
        const int sigma_field = int((one_bits + shape.unit_slope - m.slope) >> 23);
        m.is_far = int(exponent_field(mean)) >= sigma_field + 16;
        if (!m.is_far) m.bias = multiply(mean, m.slope) ^ sign_bit;
        return m;
    }

    /// C of boundary i, lowest <= i <= highest + 1.
    NORMANS_HD uint32_t cdf(const scalar_model& m, int i) const
    {
        int z = i <= lowest ? lowest_z : highest_z;
        if (i > lowest && i <= highest) {
            const uint32_t doubled = float_to_bits(float(2 * i - 1));  // odd: never zero
            z = z_of(doubled - (uint32_t(1) << 23), m.slope, m.bias);
        }
        return shape.escape_slots + gaussian_cdf(shape, z);
    }

    NORMANS_HD interval find(const scalar_model& m, uint32_t code) const
    {
        if (m.is_far) {
            const interval whole = locate_far(m, shape.escape_slots);
            return code == whole.code ? whole : escape();
        }
        const int i = value_of(code);
        const uint32_t start = cdf(m, i), freq = cdf(m, i + 1) - start;
        if (freq == 0) return escape();
        return {start, freq, code, 0, false, false};
    }

    /// By halves, whatever the guess.
    NORMANS_HD interval locate(const scalar_model& m, uint32_t slot, int) const
    {
        int low = lowest, high = highest + 1;
        uint32_t start = cdf(m, low), end = cdf(m, high);
        if (slot < start || slot >= end) {
            interval none = idle_interval();
            none.corrupt = true;
            return none;
        }
        while (high - low > 1) {
            const int middle = low + (high - low) / 2;
            const uint32_t c = cdf(m, middle);
            if (c <= slot) low = middle, start = c;
            else high = middle, end = c;
        }
        return {start, end - start, uint32_t(low - lowest) ^ format.code_sign(), 0, false, false};
    }

    NORMANS_HD interval locate_far(const scalar_model& m, uint32_t) const
    {
        const uint32_t start = shape.escape_slots;
        return {start, rans_format::total - start, nearest_integer_code(format, m.mean), 0, false,
                false};
    }
};

namespace detail {

template <scalar_type Type, bool Integer = format_of(Type).is_integer>
struct scaled_model_of {
    using type = integer_model<Type>;
};
template <scalar_type Type>
struct scaled_model_of<Type, false> {
    using type = normal_model<Type>;
};

}  // namespace detail

/// The model of int8, int4 or e2m1.
template <scalar_type Type>
using scaled_model = typename detail::scaled_model_of<Type>::type;

/// `mean` is what mean_in_codes returned, `slope` a row's.
template <class Model>
NORMANS_HD scalar_model prepare_in_codes(const Model& model, uint32_t mean, uint32_t sigma_index,
                                         uint32_t slope, const code_scale& scale)
{
    const bool known = scale.scale != 0 && exponent_field(mean) != 255;
    return model.prepare_sloped(mean, known ? sigma_index : sigma_zero,
                                known ? multiply(slope, scale.scale) : one_bits);
}

/// `mean` is what map_mean returned, in units of values; sigma_index 0..255, row_step in -6..9.
template <class Model>
NORMANS_HD scalar_model prepare_scaled(const Model& model, uint32_t mean, uint32_t sigma_index,
                                       int row_step, const code_scale& scale)
{
    return prepare_in_codes(model, mean_in_codes(mean, scale), sigma_index, row_slope(row_step),
                            scale);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
