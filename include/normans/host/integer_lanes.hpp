#pragma once
// plane_lanes for int8, int4 and e2m1: one group for all, compiled once; which it is, is a number
// at run time. What differs from fp8: a lane has a scale, folded into its mean and slope
// (plane_inputs); and the codes at the ends of the range, which caches with a scale per row are
// full of, take the fast path too.
// In registers a code is its index u in numeric order, 0 .. 2 sign - 1, boundary u its lower edge:
// u - sign - 1/2 of integers, by table of e2m1. Four times that, a word w, becomes a float by
// w * 2^16: so slopes are kept times 2^-18 and means times 2^18, exactly.

#include "../core/uniform_model.hpp"
#include "plane_lanes.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// scaled_model of int8, int4 or e2m1, whichever is wanted. For the lanes that leave the fast path.
class any_scaled_model {
    template <class Function>
    auto by(Function f) const
    {
        if (type == scalar_type::e2m1)
            return f(scaled_model<scalar_type::e2m1>{shape, sigma_offset, nullptr});
        if (type == scalar_type::int4)
            return f(scaled_model<scalar_type::int4>{shape, sigma_offset, nullptr});
        return f(scaled_model<scalar_type::int8>{shape, sigma_offset, nullptr});
    }

public:
    static constexpr scalar_format format = format_of(scalar_type::int8);  // in a byte or less

    normal_shape shape;
    int sigma_offset;
    scalar_type type;

    template <class Spec>
    explicit any_scaled_model(const Spec& spec)
        : shape(shape_of(spec.shape)), sigma_offset(spec.sigma_offset), type(spec.dtype)
    {
    }

    scalar_format narrow() const { return format_of(type); }

    interval find(const scalar_model& m, uint32_t code) const
    {
        return by([&](const auto& model) { return model.find(m, code); });
    }
    interval locate(const scalar_model& m, uint32_t slot, int) const
    {
        return by([&](const auto& model) { return model.locate(m, slot, 0); });
    }
    interval locate_far(const scalar_model& m, uint32_t slot) const
    {
        return by([&](const auto& model) { return model.locate_far(m, slot); });
    }
    // Devices' prepare_in_codes calls models of devices only.
    friend scalar_model prepare_in_codes(const any_scaled_model& model, uint32_t mean,
                                         uint32_t sigma_index, uint32_t slope,
                                         const code_scale& scale)
    {
        return model.by([&](const auto& one) {
            return normans::prepare_in_codes(one, mean, sigma_index, slope, scale);
        });
    }
    friend void add_exact(row_statistics& row, const any_scaled_model& model,
                          const scalar_model& m, uint32_t code)
    {
        model.by([&](const auto& one) { row.add(one, m, code); });
    }
};

namespace detail {

/// What registers look up of e2m1, edges and values as words w.
struct e2m1_words {
    uint16_t edge[16], value[16];  // by index
    uint16_t cell[16];             // by index: what the cell's width adds to a row weight's ratio
    uint8_t nearest[32];           // by magnitude of w: the nearest boundary above the middle
};

inline e2m1_words make_e2m1_words()
{
    constexpr scalar_format format = format_of(scalar_type::e2m1);
    const auto quarters = [](uint32_t bits) { return int(4 * bits_to_float(bits)); };
    e2m1_words out{};
    for (uint32_t u = 0; u < 16; ++u) {
        const uint32_t code = u < 8 ? u ^ 15 : u ^ 8, above = u < 8 ? 8 - u : u - 8;
        const int edge = quarters(edge_bits(format, above));
        const uint32_t field = value_bits(format, code) >> 16 & 0x7f80;
        out.edge[u] = uint16_t(u < 8 ? -edge : edge);
        out.value[u] = uint16_t(quarters(value_bits(format, code)));
        out.cell[u] = uint16_t(field > one_bits >> 16 ? field - (one_bits >> 16) : 0);
    }
    for (int w = 0, boundary = 0; w < 32; ++w) {
        while (boundary < 7 && out.edge[9 + boundary] - w <= w - out.edge[8 + boundary]) ++boundary;
        out.nearest[w] = uint8_t(boundary);
    }
    return out;
}

}  // namespace detail

/// The model together with its constants as registers want them.
template <class V>
struct plane_model<V, any_scaled_model> : detail::plane_slopes {
    static constexpr scalar_format format = any_scaled_model::format;
    static constexpr scalar_format codes() { return format; }
    static constexpr int unit_bits = 18;  // see above
    static constexpr uint32_t centre = 1 << 14;

    any_scaled_model scalar;
    const marginal_table* marginal = nullptr;
    typename V::pieces cdf;
    typename V::word_table weight;  // row_weights
    typename V::small_table edge, value, cell;  // e2m1_words
    typename V::byte_table nearest;
    uint32_t weight_origin;  // less what a slope kept times 2^-18 lacks
    bool is_integer;
    uint32_t sign;
    uint32_t first, last;  // C of the first and the last boundary
    uint32_t escape_bits;
    // The decoder's guess: a boundary + centre of integers, w of e2m1. Of a deviation that is
    // z / slope as kept, and of a mean as kept; and what is taken off.
    float guess_deviation, guess_mean, guess_origin;

    plane_model(const any_scaled_model& model, shape_id id)
        : plane_model(model, detail::cdf_pieces_at(id), detail::make_e2m1_words())
    {
    }

private:
    // Scales multiply slopes, so which ones are too large is seen later: see complete().
    static constexpr int largest_slope_exponent = 52;

    plane_model(const any_scaled_model& model, const detail::cdf_pieces& pieces,
                const detail::e2m1_words& words)
        : detail::plane_slopes(model.shape, model.sigma_offset, largest_slope_exponent),
          scalar(model), cdf(pieces.base, pieces.rise), weight(row_weights().weight),
          edge(words.edge), value(words.value), cell(words.cell), nearest(words.nearest),
          weight_origin(detail::row_weight_origin<any_scaled_model>(model.shape) -
                        (one_bits >> 16) - unit_bits * 128 +
                        128 * model.narrow().mantissa_bits),
          is_integer(model.narrow().is_integer), sign(model.narrow().code_sign()),
          first(model.shape.escape_slots + gaussian_cdf(model.shape, lowest_z)),
          last(model.shape.escape_slots + gaussian_cdf(model.shape, highest_z)),
          escape_bits(model.narrow().code_bits),
          guess_deviation(is_integer ? 0x1p-18f : 0x1p-16f), guess_mean(-guess_deviation),
          guess_origin(is_integer ? -float(centre + sign) - 0.5f : 0.0f)
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
    /// (2^27) or floats (2^-39). What is left in m.mean is for the decoder's guess: z times the
    /// deviation less it is that.
    template <bool, class Model>
    static NORMANS_INLINE void complete(const Model& model, bool measuring, const floats&,
                                        models& m)
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
            V::keep(m.mean, V::fma(mean, V::set_float(model.guess_mean),
                                   V::set_float(model.guess_origin)));
    }

    template <class Model>
    static NORMANS_INLINE void add_row(row_sums& sums, const Model& model, const models& m,
                                       const values& codes, const mask& active)
    {
        words ratio = V::high_words(V::load_kept(m.slope));  // and the cell's width
        words value;
        if (model.is_integer) {
            value = V::sub(V::differ(codes, V::set(model.sign)), V::set(model.sign));
            value = V::template shl<2>(value);
        } else {
            const words index = index_of(model, codes);
            value = model.value(index);
            ratio = V::add(ratio, model.cell(index));
        }
        const words z = V::template round_z<true>(as_edges(value), V::load_kept(m.slope),
                                                  V::load_kept(m.product));
        words weighted =
            base::weigh(model, z, V::sub_saturated(ratio, V::set(model.weight_origin)));
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
        const words first = V::smaller(V::larger(boundary_near(model, nearest), one),
                                       V::sub(end, one));
        const words c1 = cdf<false>(model, m, first);
        // The neighbour on the side where the slot lies.
        const words second = V::add(first, V::minus_or_plus_one(V::less_signed(slots, c1)));
        const words c2 = with_last(model, second, with_first(model, second,
                                                             cdf<false>(model, m, second)));
        const words start = V::smaller(c1, c2), freq = V::sub(V::larger(c1, c2), start);
        intervals out = coded(start, freq, code_of(model, V::smaller(first, second)));
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
        const words lower = index_of(model, codes), one = V::set(1);
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
    // Of slopes times 2^-18: from 2^-57 to 2^9.
    static constexpr uint32_t lowest_slope = (127 - 57) << 23, slope_range = (57 + 9) << 23;
    // Of means times 2^18: their product with a slope is no subnormal.
    static constexpr uint32_t smallest_mean = (127 - 63) << 7;  // 2^-63, the upper half

    // The codes of e2m1 below zero count the other way.
    template <class Model>
    static NORMANS_INLINE words flipped(const Model& model, const words& index)
    {
        if (model.is_integer) return index;
        return V::differ(index, V::where(V::less_signed(index, V::set(8)), V::set(7)));
    }
    template <class Model>
    static NORMANS_INLINE words index_of(const Model& model, const words& codes)
    {
        return flipped(model, V::differ(codes, V::set(model.sign)));
    }
    template <class Model>
    static NORMANS_INLINE words code_of(const Model& model, const words& index)
    {
        return V::differ(flipped(model, index), V::set(model.sign));
    }

    // The boundary that a guess says, for integers that it is far out: one beyond the ends.
    template <class Model>
    static NORMANS_INLINE words boundary_near(const Model& model, const words& guess)
    {
        if (model.is_integer) return V::sub_saturated(guess, V::set(Model::centre));
        const auto below = V::negative(guess);
        const words magnitude = V::smaller(V::negate_where(below, guess), V::set(31));
        return V::add(V::negate_where(below, model.nearest(magnitude)), V::set(8));
    }

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
        words edge;
        if (model.is_integer)
            edge = V::sub(V::template shl<2>(boundary), V::set(4 * model.sign + 2));
        else
            edge = tables->edge(boundary);
        return tables->cdf(V::template round_z<Clamp>(as_edges(edge), V::load_kept(step->slope),
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
