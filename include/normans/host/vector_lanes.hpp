#pragma once
// A lane group over SIMD registers of 32-bit lanes: the same names as array_lanes (core/lanes.hpp)
// and the same integers. V supplies the registers (vec_avx2.hpp), this file what the model needs of
// them. Locating takes two CDF evaluations, at the boundary nearest to a guess and at its neighbour
// on the slot's side; lanes that are far or guessed badly go to the scalar definition in
// core/normal.hpp, one by one.

#include <cstring>

#include "../core/lanes.hpp"
#include "gather_guess.hpp"
#include "row_scale.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// A normal_model together with its constants as registers want them.
template <class V, class Model>
struct vector_model {
    static constexpr scalar_format format = Model::format;
    Model scalar;
    const marginal_table* marginal;
    uint32_t piece[32];  // first slot | rise << 16
    uint32_t slope[8];   // the sigma offset folded in

    explicit vector_model(const Model& model) : scalar(model), marginal(model.marginal)
    {
        const normal_shape& shape = model.shape;
        for (int i = 0; i < 32; ++i)
            piece[i] = (shape.base[i] + shape.escape_slots) |
                       (uint32_t(shape.base[i + 1]) - shape.base[i]) << 16;
        for (int i = 0; i < 8; ++i)
            slope[i] = shape.slope[i] - (uint32_t(model.sigma_offset) << 23);
    }
};

template <class V, uint32_t Width>
struct vector_lanes {
    static constexpr uint32_t width = Width;
    static constexpr uint32_t vectors = Width / V::width;
    static_assert(vectors * V::width == Width && valid_lanes(Width));

    using u = typename V::u;
    using f = typename V::f;
    using lane_mask = typename V::mask;

    struct values {
        u v[vectors];
    };
    using state = values;

    struct mask {
        lane_mask v[vectors];
        friend mask operator|(const mask& x, const mask& y)
        {
            mask out;
            for (uint32_t i = 0; i < vectors; ++i) out.v[i] = V::join(x.v[i], y.v[i]);
            return out;
        }
    };

    struct models {
        values mean, slope, bias, group_bits, last_group;
        mask is_far;
    };

    struct intervals {
        values start, freq, code, raw_bits;
        mask raw, escaped, corrupt;
    };

    static mask first_lanes(uint32_t count)
    {
        mask out;
        for (uint32_t i = 0; i < vectors; ++i) {
            const uint32_t before = i * V::width;
            const uint32_t mine = count <= before ? 0 : count - before;
            out.v[i] = V::from_bits(mine >= V::width ? (1u << V::width) - 1 : (1u << mine) - 1);
        }
        return out;
    }

    static bool any(const mask& m)
    {
        lane_mask all = m.v[0];
        for (uint32_t i = 1; i < vectors; ++i) all = V::join(all, m.v[i]);
        return V::bits(all) != 0;
    }

    static uint32_t count(const mask& m)
    {
        uint32_t set = 0;
        for (uint32_t i = 0; i < vectors; ++i) set += V::count(V::bits(m.v[i]));
        return set;
    }

    static values zero()
    {
        return each([&](uint32_t) { return V::set(0); });
    }

    static values means(const models& m) { return m.mean; }

    static values load(const uint32_t* from)
    {
        return each([&](uint32_t i) { return V::load(from + i * V::width); });
    }

    static values broadcast(uint32_t x)
    {
        return each([&](uint32_t) { return V::set(x); });
    }

    template <class Code>
    static values load_codes(const Code* from)
    {
        return each([&](uint32_t i) { return V::load_codes(from + i * V::width); });
    }

    template <class Code>
    static void store_codes(Code* to, const values& x)
    {
        for (uint32_t i = 0; i < vectors; ++i) V::store_codes(to + i * V::width, x.v[i]);
    }

    static void store(uint32_t* to, const values& x)
    {
        for (uint32_t i = 0; i < vectors; ++i) V::store(to + i * V::width, x.v[i]);
    }

    /// map_mean with the identity: zeros and NaN cleaned.
    static values clean_means(const values& mean)
    {
        return each([&](uint32_t i) {
            const u magnitude = V::both(mean.v[i], V::set(~sign_bit));
            const u real = V::where(V::less(V::set(0x00ffffff), magnitude), magnitude);
            const lane_mask nan = V::less(V::set(infinity_bits), magnitude);
            return V::select(nan, V::set(quiet_nan_bits),
                             V::either(real, V::both(mean.v[i], V::set(sign_bit))));
        });
    }

    /// map_mean: the hardware's fma rounds once, with IEEE's rules for zeros.
    static values map_means(const values& mean, const values& a, const values& b)
    {
        return clean_means(each([&](uint32_t i) {
            const u magnitude = V::both(mean.v[i], V::set(~sign_bit));
            const u real = V::where(V::less(V::set(0x007fffff), magnitude), magnitude);
            const u normal = V::either(real, V::both(mean.v[i], V::set(sign_bit)));
            return V::as_bits(
                V::fma(V::as_float(normal), V::as_float(a.v[i]), V::as_float(b.v[i])));
        }));
    }

    /// normal_model::prepare for a group; row_slope is fp32 bits, 1.0 where there is no row step.
    template <class Model>
    static models prepare(const Model& model, const values& mean, const values& sigma_index,
                          const values& row_slope)
    {
        constexpr scalar_format format = Model::format;
        constexpr int p = int(format.mantissa_bits);
        models m;
        m.mean = mean;
        for (uint32_t i = 0; i < vectors; ++i) {
            const u k = sigma_index.v[i];
            const u grid = V::sub(V::lookup_8(model.slope, V::both(k, V::set(7))),
                                  V::shl(V::shr(k, 3), 23));
            const u slope = V::as_bits(V::mul(V::as_float(grid), V::as_float(row_slope.v[i])));
            const u sigma_field =
                V::shr(V::sub(V::set(one_bits + model.scalar.shape.unit_slope), slope), 23);
            const u mean_field = V::both(V::shr(mean.v[i], 23), V::set(255));
            m.is_far.v[i] = V::join(V::less(V::add(sigma_field, V::set(15)), mean_field),
                                    V::equal(k, V::set(sigma_zero)));
            m.slope.v[i] = slope;
            m.bias.v[i] = V::differ(V::as_bits(V::mul(V::as_float(mean.v[i]), V::as_float(slope))),
                                    V::set(sign_bit));
            u g = V::set(0);
            if constexpr (p > 3) {
                g = V::smaller(V::sub(sigma_field, mean_field), V::set(0));
                g = V::smaller(g, V::sub(sigma_field, V::set(uint32_t(128 - format.bias))));
                g = V::larger(V::add(g, V::set(uint32_t(p - 3))), V::set(0));
            }
            constexpr uint32_t binades = 1u << (format.code_bits - 1 - format.mantissa_bits);
            u limit = V::add(sigma_field, V::set(uint32_t(17 - 127 + format.bias)));
            limit = V::smaller(V::larger(limit, V::set(1)), V::set(binades));
            const u last = V::smaller(V::sub(V::shl(limit, p), V::set(1)),
                                      V::set(format.largest_finite));
            m.group_bits.v[i] = g;
            m.last_group.v[i] = shift_right<p>(last, g);
        }
        return m;
    }

    /// row_statistics::add over the active lanes.
    template <class Model>
    static void add_row(row_statistics& row, const Model& model, const models& m,
                        const values& sigma_index, const values& codes, const mask& active)
    {
        constexpr scalar_format format = Model::format;
        constexpr int p = int(format.mantissa_bits);
        constexpr uint32_t eighth = uint32_t(3) << 23;
        for (uint32_t i = 0; i < vectors; ++i) {
            const u code = codes.v[i];
            const u magnitude = V::both(code, V::set(format.code_sign() - 1));
            u value = V::shl(magnitude, 23 - p);
            if constexpr (format.bias != 127) {
                const uint32_t step = uint32_t(128 - format.bias - p) << 23;
                const u subnormal =
                    V::as_bits(V::mul(V::to_float(magnitude), V::as_float(V::set(step))));
                value = V::add(value, V::set(uint32_t(127 - format.bias) << 23));
                value = V::select(V::less(magnitude, V::set(1u << p)), subnormal, value);
            }
            value = V::either(value, V::shl(V::without(code, V::set(format.code_sign() - 1)),
                                            32 - int(format.code_bits)));
            const u field = V::both(V::shr(m.bias.v[i], 23), V::set(255));
            const u bias = V::where(V::less(V::set(3), field), V::sub(m.bias.v[i], V::set(eighth)));
            const f real =
                V::fma(V::as_float(value), V::as_float(V::sub(m.slope.v[i], V::set(eighth))),
                       V::as_float(bias));
            lane_mask used = V::minus(active.v[i], V::join(m.is_far.v[i],
                                      V::less(V::set(format.largest_finite), magnitude)));
            if constexpr (!format.has_negative_zero)
                used = V::minus(used, V::equal(code, V::set(format.code_sign())));
            const u z = V::where(used, V::round(clamp_z(real)));
            const u mean_field = V::both(V::shr(m.mean.v[i], 23), V::set(255));
            const u cell = V::larger(mean_field, V::set(uint32_t(128 - format.bias)));
            const uint32_t shift = uint32_t(32 - 8 * (127 + p + model.scalar.sigma_offset));
            u ratio = V::add(V::sub(V::shl(cell, 3), sigma_index.v[i]), V::set(shift));
            ratio = V::smaller(V::larger(ratio, V::set(0)), V::set(127));
            row.sum += V::sum_of_products_256(V::mul(z, z),
                                              V::gather(detail::row_weight_table.weight, ratio));
            row.count += V::count(V::bits(used));
        }
    }

    static values slot(const state& x)
    {
        return each([&](uint32_t i) { return V::both(x.v[i], V::set(rans_format::total - 1)); });
    }

    template <class Model>
    static intervals locate(const Model& model, const gather_guess& guess, const models& m,
                            const values& slots, const mask& active)
    {
        intervals out;
        for (uint32_t i = 0; i < vectors; ++i) {
            const u slot = slots.v[i];
            const f z = V::gather(guess.z, V::shr(slot, gather_guess::shift));
            const u first = nearest_boundary<Model::format.mantissa_bits>(
                Model::format, m, i,
                V::fma(z, V::reciprocal(V::as_float(m.slope.v[i])), V::as_float(m.mean.v[i])));
            const u c1 = cdf(model, m, i, first);
            const u second = V::add(first, V::either(V::less(slot, c1), V::set(1)));
            const u c2 = cdf(model, m, i, second);
            const u start = V::smaller(c1, c2), end = V::larger(c1, c2);
            const lane_mask escaped = V::less(slot, V::set(model.scalar.shape.escape_slots));
            const lane_mask good = V::minus(
                V::less(slot, end), V::join(V::join(V::less(slot, start), escaped), m.is_far.v[i]));
            const u group = V::smaller(first, second);
            set_coded<Model>(m, i, start, V::sub(end, start), group, out);
            if (V::bits(V::meet(good, active.v[i])) == all_bits) continue;
            finish(model, m, i, escaped, active.v[i], out);
            const uint32_t bad = V::bits(V::minus(active.v[i], V::join(good, escaped)));
            if (bad != 0) {
                repair(out, i, bad, [&](uint32_t lane, const scalar_model& one) {
                    const uint32_t mine = lane_of(slots, i, lane);
                    return one.is_far ? model.scalar.locate_far(one, mine)
                                      : model.scalar.locate(one, mine, int(lane_of(first, lane)));
                }, m);
            }
        }
        return out;
    }

    template <class Model>
    static intervals find(const Model& model, const models& m, const values& codes,
                          const mask& active)
    {
        constexpr scalar_format format = Model::format;
        intervals out;
        for (uint32_t i = 0; i < vectors; ++i) {
            const u magnitude = V::both(codes.v[i], V::set(format.code_sign() - 1));
            const lane_mask negative = V::sign(V::shl(codes.v[i], 32 - int(format.code_bits)));
            const u group = shift_right<int(format.mantissa_bits)>(magnitude, m.group_bits.v[i]);
            const u signed_group = V::differ(group, V::where(negative, V::set(~0u)));
            const u start = cdf(model, m, i, signed_group);
            const u freq = V::sub(cdf(model, m, i, V::add(signed_group, V::set(1))), start);
            const lane_mask escaped =
                V::join(V::less(freq, V::set(1)),
                        V::join(V::less(m.last_group.v[i], group),
                                V::less(V::set(format.largest_finite), magnitude)));
            set_coded<Model>(m, i, start, freq, signed_group, out);
            const lane_mask good = V::minus(active.v[i], V::join(escaped, m.is_far.v[i]));
            if (V::bits(good) == all_bits) continue;
            finish(model, m, i, escaped, active.v[i], out);
            const uint32_t bad = V::bits(V::meet(active.v[i], m.is_far.v[i]));
            if (bad != 0)
                repair(out, i, bad, [&](uint32_t lane, const scalar_model& one) {
                    return model.scalar.find(one, lane_of(codes, i, lane));
                }, m);
        }
        return out;
    }

    static intervals locate(const marginal_table& table, const values& slots, const mask& on)
    {
        return by_table(table, slots, on,
                        [&](uint32_t slot) { return interval_of(table, symbol_at(table, slot)); });
    }

    static intervals find(const marginal_table& table, const values& symbols, const mask& on)
    {
        return by_table(table, symbols, on,
                        [&](uint32_t symbol) { return interval_of(table, symbol); });
    }

    static void advance(state& x, const values& freq, const values& offset)
    {
        for (uint32_t i = 0; i < vectors; ++i)
            x.v[i] = V::add(V::mul(freq.v[i], V::shr(x.v[i], int(rans_format::precision_bits))),
                            offset.v[i]);
    }

    /// The quotient is below 2^16 (after a spill), so a float quotient, wrong by at most 2^-6, is
    /// off by one at most, either way; two compares mend that. Exact for any division or reciprocal
    /// with a relative error below 2^-18.
    static void divide(state& x, const values& freq, const values& start)
    {
        for (uint32_t i = 0; i < vectors; ++i) {
            const u d = freq.v[i];
            u quotient = V::truncate(V::divide(V::to_float(x.v[i]), V::to_float(d)));
            u rest = V::sub(x.v[i], V::mul(quotient, d));
            const lane_mask high = V::sign(rest);
            quotient = V::add(quotient, V::where(high, V::set(~0u)));
            rest = V::add(rest, V::where(high, d));
            const lane_mask low = V::less(V::sub(d, V::set(1)), rest);
            quotient = V::add(quotient, V::where(low, V::set(1)));
            rest = V::sub(rest, V::where(low, d));
            x.v[i] = V::add(V::shl(quotient, int(rans_format::precision_bits)),
                            V::add(rest, start.v[i]));
        }
    }

    static mask full_for(const state& x, const values& freq)
    {
        return masks([&](uint32_t i) {
            return V::less(V::sub(freq.v[i], V::set(1)),
                           V::shr(x.v[i], int(rans_format::word_bits)));
        });
    }

    static mask full_for_bits(const state& x, const values& bits)
    {
        return masks([&](uint32_t i) {
            return V::less(V::set(0), V::shr(x.v[i], V::sub(V::set(31), bits.v[i])));
        });
    }

    static values pop(values& x, const values& bits)
    {
        values taken;
        for (uint32_t i = 0; i < vectors; ++i) {
            const u low = V::sub(V::shl(V::set(1), bits.v[i]), V::set(1));
            taken.v[i] = V::both(x.v[i], low);
            x.v[i] = V::shr(x.v[i], bits.v[i]);
        }
        return taken;
    }

    static void push(values& x, const values& bits, const values& value)
    {
        for (uint32_t i = 0; i < vectors; ++i)
            x.v[i] = V::either(V::shl(x.v[i], bits.v[i]), value.v[i]);
    }

    template <class Reader>
    static void refill(state& x, Reader& words)
    {
        for (uint32_t i = 0; i < vectors; ++i) {
            const lane_mask starved = V::less(x.v[i], V::set(rans_format::lower_bound));
            const u filled = V::either(V::shl(x.v[i], int(rans_format::word_bits)),
                                       V::take(words, starved));
            x.v[i] = V::select(starved, filled, x.v[i]);
        }
    }

    template <class Writer>
    static void spill(state& x, const mask& full, Writer& words)
    {
        for (uint32_t i = vectors; i-- > 0;) {
            V::put(words, full.v[i], x.v[i]);
            x.v[i] = V::select(full.v[i], V::shr(x.v[i], int(rans_format::word_bits)), x.v[i]);
        }
    }

    static values subtract(const values& x, const values& y)
    {
        return each([&](uint32_t i) { return V::sub(x.v[i], y.v[i]); });
    }

    static values add(const values& x, const values& y)
    {
        return each([&](uint32_t i) { return V::add(x.v[i], y.v[i]); });
    }

    static values combine(const values& x, const values& y)
    {
        return each([&](uint32_t i) { return V::either(x.v[i], y.v[i]); });
    }

    static values where(const mask& m, const values& x)
    {
        return each([&](uint32_t i) { return V::where(m.v[i], x.v[i]); });
    }

    static values where(const mask& m, uint32_t value)
    {
        return each([&](uint32_t i) { return V::where(m.v[i], V::set(value)); });
    }

    static values where_not(const mask& m, const values& x)
    {
        return each([&](uint32_t i) { return V::select(m.v[i], V::set(0), x.v[i]); });
    }

private:
    template <class Function>
    static values each(Function function)
    {
        values out;
        for (uint32_t i = 0; i < vectors; ++i) out.v[i] = function(i);
        return out;
    }

    template <class Function>
    static mask masks(Function function)
    {
        mask out;
        for (uint32_t i = 0; i < vectors; ++i) out.v[i] = function(i);
        return out;
    }

    // Types of 8 bits have no groups: no shifts then.
    template <int MantissaBits>
    static u shift_right(u x, u group_bits)
    {
        if constexpr (MantissaBits > 3) return V::shr(x, group_bits);
        else return x;
    }

    template <int MantissaBits>
    static u shift_left(u x, u group_bits)
    {
        if constexpr (MantissaBits > 3) return V::shl(x, group_bits);
        else return x;
    }

    template <int MantissaBits>
    static u code_of(scalar_format format, const models& m, uint32_t i, u group)
    {
        const lane_mask negative = V::sign(group);
        const u magnitude = V::differ(group, V::where(negative, V::set(~0u)));
        return V::either(shift_left<MantissaBits>(magnitude, m.group_bits.v[i]),
                         V::where(negative, V::set(format.code_sign())));
    }

    static f clamp_z(f z)
    {
        return V::smaller(V::larger(z, V::set_float(float(lowest_z))),
                          V::set_float(float(highest_z)));
    }

    // normal_model::cdf
    template <class Model>
    static u cdf(const Model& model, const models& m, uint32_t i, u boundary)
    {
        constexpr scalar_format format = Model::format;
        constexpr int p = int(format.mantissa_bits);
        const lane_mask negative = V::sign(boundary);
        const u magnitude =
            shift_left<p>(V::negate_where(negative, boundary), m.group_bits.v[i]);
        const u odd = V::larger(V::sub(V::shl(magnitude, 1), V::set(1)), V::set(0));
        u edge = V::shl(odd, 22 - p);
        if constexpr (format.bias != 127) {
            const uint32_t half_step = uint32_t(127 - format.bias - p) << 23;
            const u subnormal =
                V::as_bits(V::mul(V::to_float(odd), V::as_float(V::set(half_step))));
            edge = V::add(edge, V::set(uint32_t(127 - format.bias) << 23));
            edge = V::select(V::less(magnitude, V::set((1u << p) + 1)), subnormal, edge);
        }
        edge = V::either(edge, V::where(negative, V::set(sign_bit)));
        const f real =
            V::fma(V::as_float(edge), V::as_float(m.slope.v[i]), V::as_float(m.bias.v[i]));
        const u outermost = V::differ(V::where(negative, V::set(~0u)), V::set(uint32_t(highest_z)));
        const u z = V::select(V::less(V::set(format.largest_finite), magnitude), outermost,
                              V::round(clamp_z(real)));
        const u position = V::add(z, V::set(32768));
        const u piece = V::lookup_32(model.piece, V::shr(position, 11));
        const u rise = V::mul_small(V::both(position, V::set(2047)), V::shr(piece, 16));
        return V::add(V::both(piece, V::set(0xffff)), V::shr(rise, 11));
    }

    // The boundary nearest to a value; any value gives one in range.
    template <int MantissaBits>
    static u nearest_boundary(scalar_format format, const models& m, uint32_t i, f value)
    {
        const u bits = V::as_bits(value);
        const u magnitude = V::both(bits, V::set(~sign_bit));
        const int shift = 23 - MantissaBits;
        u code = V::shr(magnitude, shift);
        if (format.bias != 127) {
            const uint32_t rebias = uint32_t(127 - format.bias) << 23;
            const uint32_t steps = uint32_t(127 + format.bias + MantissaBits - 1) << 23;
            const u subnormal =
                V::truncate(V::mul(V::as_float(magnitude), V::as_float(V::set(steps))));
            code = V::shr(V::sub(magnitude, V::set(rebias)), shift);
            code = V::select(V::less(magnitude, V::set(rebias + (1u << 23))), subnormal, code);
        }
        u boundary = V::add(code, V::set(1));
        if constexpr (MantissaBits > 3) {
            const u half = V::shr(V::shl(V::set(1), m.group_bits.v[i]), 1);
            boundary = V::shr(V::add(boundary, half), m.group_bits.v[i]);
        }
        boundary = V::smaller(boundary, V::add(m.last_group.v[i], V::set(1)));
        return V::negate_where(V::sign(bits), boundary);
    }

    static constexpr uint32_t all_bits = uint32_t((uint64_t(1) << V::width) - 1);

    // All lanes as coded in a group with slots of its own.
    template <class Model>
    static void set_coded(const models& m, uint32_t i, u start, u freq, u group, intervals& out)
    {
        constexpr scalar_format format = Model::format;
        out.start.v[i] = start;
        out.freq.v[i] = freq;
        out.code.v[i] = code_of<int(format.mantissa_bits)>(format, m, i, group);
        out.raw_bits.v[i] = m.group_bits.v[i];
        out.raw.v[i] = format.mantissa_bits > 3 ? V::less(V::set(0), m.group_bits.v[i]) : V::none();
        out.escaped.v[i] = V::none();
        out.corrupt.v[i] = V::none();
    }

    // Escapes and idle lanes, by select.
    template <class Model>
    static void finish(const Model& model, const models& m, uint32_t i, lane_mask escaped,
                       lane_mask active, intervals& out)
    {
        escaped = V::meet(escaped, active);
        const u escape_bits = V::set(model.marginal == nullptr ? raw_bits_limit : 0);
        const lane_mask coded = V::minus(active, escaped);
        out.start.v[i] = V::where(coded, out.start.v[i]);
        out.code.v[i] = V::where(coded, out.code.v[i]);
        const u other = V::select(active, V::set(model.scalar.shape.escape_slots),
                                  V::set(rans_format::total));
        out.freq.v[i] = V::select(coded, out.freq.v[i], other);
        out.raw_bits.v[i] =
            V::either(V::where(coded, m.group_bits.v[i]), V::where(escaped, escape_bits));
        out.raw.v[i] = V::less(V::set(0), out.raw_bits.v[i]);
        out.escaped.v[i] = escaped;
    }

    static uint32_t lane_of(u x, uint32_t lane)
    {
        uint32_t all[V::width];
        V::store(all, x);
        return all[lane];
    }

    static uint32_t lane_of(const values& x, uint32_t i, uint32_t lane)
    {
        return lane_of(x.v[i], lane);
    }

    // Overwrites the lanes set in `bad` with what the scalar definition says of them.
    template <class Function>
    static void repair(intervals& out, uint32_t i, uint32_t bad, Function interval_at,
                       const models& m)
    {
        uint32_t start[V::width], freq[V::width], code[V::width], raw_bits[V::width];
        V::store(start, out.start.v[i]);
        V::store(freq, out.freq.v[i]);
        V::store(code, out.code.v[i]);
        V::store(raw_bits, out.raw_bits.v[i]);
        const uint32_t is_far = V::bits(m.is_far.v[i]);
        uint32_t escaped = V::bits(out.escaped.v[i]), corrupt = 0;
        for (uint32_t lane = 0; lane < V::width; ++lane) {
            if (!(bad >> lane & 1)) continue;
            const scalar_model one{lane_of(m.mean, i, lane),       lane_of(m.slope, i, lane),
                                   lane_of(m.bias, i, lane),       lane_of(m.group_bits, i, lane),
                                   int32_t(lane_of(m.last_group, i, lane)),
                                   (is_far >> lane & 1) != 0};
            const interval at = interval_at(lane, one);
            start[lane] = at.start;
            freq[lane] = at.freq;
            code[lane] = at.code;
            raw_bits[lane] = at.raw_bits;
            escaped = (escaped & ~(1u << lane)) | uint32_t(at.escaped) << lane;
            corrupt |= uint32_t(at.corrupt) << lane;
        }
        out.start.v[i] = V::load(start);
        out.freq.v[i] = V::load(freq);
        out.code.v[i] = V::load(code);
        out.raw_bits.v[i] = V::load(raw_bits);
        out.raw.v[i] = V::less(V::set(0), out.raw_bits.v[i]);
        out.escaped.v[i] = V::from_bits(escaped);
        out.corrupt.v[i] = V::from_bits(corrupt);
    }

    // Escapes under a marginal are rare: lane by lane.
    template <class Function>
    static intervals by_table(const marginal_table&, const values& keys, const mask& on,
                              Function interval_at)
    {
        uint32_t start[Width] = {}, freq[Width], code[Width] = {};
        for (uint32_t i = 0; i < Width; ++i) {
            freq[i] = rans_format::total;
            if (!(V::bits(on.v[i / V::width]) >> i % V::width & 1)) continue;
            const interval at = interval_at(lane_of(keys, i / V::width, i % V::width));
            start[i] = at.start;
            freq[i] = at.freq;
            code[i] = at.code;
        }
        intervals out;
        out.start = load(start);
        out.freq = load(freq);
        out.code = load(code);
        return out;
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
