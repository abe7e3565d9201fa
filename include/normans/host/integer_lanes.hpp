#pragma once
// plane_lanes for int8 and int4: one group for both, whose range is a number at run time. What
// differs from small floats: cells are 1 wide, so that edges are integers and a half; a lane has a
// scale, folded into its mean and slope (plane_inputs); and the codes at the ends of the range,
// which caches with a scale per row are full of, take the fast path too.
// In registers a code is its index u = code ^ sign, 0 .. 2 sign - 1, boundary u its lower edge
// u - sign - 1/2. Twice that, an odd word w, becomes a float by w * 2^16: so slopes are kept times
// 2^-17 and means times 2^17, exactly.

#include "../core/uniform_model.hpp"
#include "plane_lanes.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// integer_model of int8 or int4, whichever is wanted. For the lanes that leave the fast path.
class any_integer_model {
    template <class Function>
    auto by(Function f) const
    {
        if (is_int4) return f(integer_model<scalar_type::int4>{shape, sigma_offset, nullptr});
        return f(integer_model<scalar_type::int8>{shape, sigma_offset, nullptr});
    }

public:
    static constexpr scalar_format format = format_of(scalar_type::int8);  // in a byte or less

    normal_shape shape;
    int sigma_offset;
    bool is_int4;

    template <class Spec>
    explicit any_integer_model(const Spec& spec)
        : shape(shape_of(spec.shape)), sigma_offset(spec.sigma_offset),
          is_int4(spec.dtype == scalar_type::int4)
    {
    }

    scalar_format narrow() const
    {
        return format_of(is_int4 ? scalar_type::int4 : scalar_type::int8);
    }
    int value_of(uint32_t code) const
    {
        const int sign = int(narrow().code_sign());
        return (int(code) ^ sign) - sign;
    }
    scalar_model prepare_sloped(uint32_t mean, uint32_t sigma_index, uint32_t slope) const
    {
        return by([&](const auto& model) {
            return model.prepare_sloped(mean, sigma_index, slope);
        });
    }
    interval find(const scalar_model& m, uint32_t code) const
    {
        return by([&](const auto& model) { return model.find(m, code); });
    }
    interval locate(const scalar_model& m, uint32_t slot, int guess) const
    {
        return by([&](const auto& model) { return model.locate(m, slot, guess); });
    }
    interval locate_far(const scalar_model& m, uint32_t slot) const
    {
        return by([&](const auto& model) { return model.locate_far(m, slot); });
    }
};

/// The model together with its constants as registers want them.
template <class V>
struct plane_model<V, any_integer_model> : detail::plane_slopes {
    static constexpr scalar_format format = any_integer_model::format;

    any_integer_model scalar;
    const marginal_table* marginal = nullptr;
    typename V::pieces cdf;
    typename V::word_table weight;  // row_weights
    uint32_t weight_origin;         // less what a slope kept times 2^-17 lacks
    uint32_t sign;
    uint32_t first, last;  // C of the first and the last boundary
    uint32_t escape_bits;

    plane_model(const any_integer_model& model, shape_id id)
        : plane_model(model, detail::cdf_pieces_at(id))
    {
    }

private:
    // Scales multiply slopes, so which ones are too large is seen later: see complete().
    static constexpr int largest_slope_exponent = 52;

    plane_model(const any_integer_model& model, const detail::cdf_pieces& pieces)
        : detail::plane_slopes(model.shape, model.sigma_offset, largest_slope_exponent),
          scalar(model), cdf(pieces.base, pieces.rise), weight(row_weights().weight),
          weight_origin(detail::row_weight_origin<any_integer_model>(model.shape) -
                        (one_bits >> 16) - 17 * 128),
          sign(model.narrow().code_sign()),
          first(model.shape.escape_slots + gaussian_cdf(model.shape, lowest_z)),
          last(model.shape.escape_slots + gaussian_cdf(model.shape, highest_z)),
          escape_bits(model.narrow().code_bits)
    {
    }
};

template <class V>
struct integer_lanes : plane_lanes<V> {
    using base = plane_lanes<V>;
    using typename base::floats;
    using typename base::intervals;
    using typename base::mask;
    using typename base::models;
    using typename base::row_sums;
    using typename base::values;
    using typename base::words;
    using base::find;  // under a marginal, which integers have not
    using base::locate;
    using base::width;

    /// Everything that follows from mean and slope. Outside the fast path: a mean that may be far
    /// or is so small that it could be taken for zero, and slopes that leave the range of integers
    /// (2^27) or floats (2^-40). What is left in m.mean is for the decoder's guess: z times the
    /// deviation less it is a boundary + 2^14.
    template <class Model>
    static NORMANS_INLINE void complete(const Model& model, bool measuring, models& m)
    {
        const models* stored = &m;
        NORMANS_HIDE(stored);
        const floats product = V::mul(stored->mean, stored->slope);
        V::keep(m.product, product);
        const floats mean = V::load_kept(stored->mean), slope = V::load_kept(stored->slope);
        const auto from_lowest = V::sub(V::bits(slope), V::set_int(lowest_slope));
        const words high = V::both(V::high_words(mean), V::set(0x7fff));
        const bool outside =
            V::any_above(product, largest_product) ||
            V::any_above(V::as_floats(from_lowest), bits_to_float(slope_range)) ||
            V::any_above(V::sub_saturated(V::set(smallest_mean), V::sub(high, V::set(1))), 0) ||
            m.outside.any();
        m.has_outside = outside;
        if (outside) m.outside = m.outside | lanes_outside(product, slope, mean);
        if (!measuring)
            V::keep(m.mean, V::fma(mean, V::set_float(-0x1p-17f),
                                   V::set_float(-float(centre + model.sign) - 0.5f)));
    }

    template <class Model>
    static NORMANS_INLINE void add_row(row_sums& sums, const Model& model, const models& m,
                                       const values& codes, const mask& active)
    {
        const words value = V::sub(V::differ(codes, V::set(model.sign)), V::set(model.sign));
        const words z = V::template round_z<true>(as_edges(V::add(value, value)),
                                                  V::load_kept(m.slope), V::load_kept(m.product));
        const words high = V::high_words(V::load_kept(m.slope));
        words weighted =
            base::weigh(model, z, V::sub_saturated(high, V::set(model.weight_origin)));
        const bool plain = !m.has_outside && active.all();
        if (!plain) {
            typename base::cold_row cold{m.outside, m.exact, codes, active, weighted};
            base::count_row(sums, model, cold);
            weighted = cold.weighted;
        }
        sums.add(weighted, plain);
    }

    template <class Model, class Guess>
    static NORMANS_INLINE intervals locate(const Model& model, const Guess& guess, const models& m,
                                           const values& slots, const mask& active)
    {
        const words end = V::set(2 * model.sign), one = V::set(1);
        const words nearest = V::template round_z<false>(guess(slots), V::load_kept(m.deviation),
                                                         V::load_kept(m.mean));
        const words first = V::smaller(
            V::larger(V::sub_saturated(nearest, V::set(centre)), one), V::sub(end, one));
        const words c1 = cdf<false>(model, m, first);
        // The neighbour on the side where the slot lies.
        const words second = V::add(first, V::minus_or_plus_one(V::less_signed(slots, c1)));
        const words c2 = with_last(model, second, with_first(model, second,
                                                             cdf<false>(model, m, second)));
        const words start = V::smaller(c1, c2), freq = V::sub(V::larger(c1, c2), start);
        intervals out = coded(start, freq, V::differ(V::smaller(first, second),
                                                     V::set(model.sign)));
        const bool plain = !V::any_zero(V::sub_saturated(freq, V::sub(slots, start))) &&
                           !m.has_outside && active.all();
        if (!plain) {
            typename base::cold_step cold{m.outside, m.exact, slots, active, out, one};
            base::mend_located(model, cold);
            out = cold.out;
        }
        return out;
    }

    template <class Model>
    static NORMANS_INLINE intervals find(const Model& model, const models& m, const values& codes,
                                         const mask& active)
    {
        const words lower = V::differ(codes, V::set(model.sign)), one = V::set(1);
        const words upper = V::add(lower, one);
        const words start = with_first(model, lower, cdf<true>(model, m, lower));
        const words freq = V::sub(with_last(model, upper, cdf<true>(model, m, upper)), start);
        intervals out = coded(start, freq, codes);
        const bool plain = !V::any_zero(freq) && !m.has_outside && active.all();
        if (!plain) {
            typename base::cold_step cold{m.outside, m.exact, codes, active, out, one};
            base::mend_found(model, cold);
            out = cold.out;
        }
        return out;
    }

private:
    static constexpr float largest_product = 0x1p27f;
    // Of slopes times 2^-17: from 2^-57 to 2^10.
    static constexpr uint32_t lowest_slope = (127 - 57) << 23, slope_range = (57 + 10) << 23;
    // Of means times 2^17: their product with a slope is no subnormal.
    static constexpr uint32_t smallest_mean = (127 - 63) << 7;  // 2^-63, the upper half
    static constexpr uint32_t centre = 1 << 14;

    static NORMANS_INLINE floats as_edges(const words& w)
    {
        return V::to_floats(V::bits(V::floats_from_high(w)));
    }

    // C of boundaries, whose ends are none.
    template <bool Clamp, class Model>
    static NORMANS_INLINE words cdf(const Model& model, const models& m, const words& boundary)
    {
        const models* step = &m;
        const Model* tables = &model;
        NORMANS_HIDE(step);
        if constexpr (V::few_registers) NORMANS_HIDE(tables);
        const words odd = V::sub(V::add(boundary, boundary), V::set(2 * model.sign + 1));
        return tables->cdf(V::template round_z<Clamp>(as_edges(odd), V::load_kept(step->slope),
                                                      V::load_kept(step->product)));
    }

    template <class Model>
    static NORMANS_INLINE words with_first(const Model& model, const words& boundary,
                                           const words& c)
    {
        return V::larger(V::where_not(V::equal(boundary, V::set(0)), c), V::set(model.first));
    }
    template <class Model>
    static NORMANS_INLINE words with_last(const Model& model, const words& boundary,
                                          const words& c)
    {
        return V::select(V::equal(boundary, V::set(2 * model.sign)), V::set(model.last), c);
    }

    static NORMANS_INLINE intervals coded(const words& start, const words& freq, const words& code)
    {
        intervals out;
        out.start = start;
        out.freq = freq;
        out.code = code;
        out.raw_bits = V::set(0);
        out.raw = out.escaped = out.corrupt = base::lanes_all(0);
        return out;
    }

    // Which lanes made complete() say that some are outside.
    NORMANS_NOINLINE static mask lanes_outside(floats products, floats slopes, floats means)
    {
        uint32_t product[width], slope[width], mean[width];
        V::store(product, V::bits(products));
        V::store(slope, V::bits(slopes));
        V::store(mean, V::bits(means));
        mask out{};
        for (uint32_t i = 0; i < width; ++i) {
            const uint32_t high = mean[i] >> 16 & 0x7fff;
            out.set(i, (product[i] & ~sign_bit) > float_to_bits(largest_product) ||
                           slope[i] - lowest_slope > slope_range ||
                           (high != 0 && high <= smallest_mean));
        }
        return out;
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
