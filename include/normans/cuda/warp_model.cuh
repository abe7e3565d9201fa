#pragma once
// The model as a warp computes it: the same integers as normal_model, which stays the definition
// and takes what the fast way leaves over (escapes, far scalars, the largest codes, missed
// guesses). What makes it fast:
//   Code space. A magnitude shifted up to where fp32 keeps its fraction is an fp32 number: the
//   code's value times a power of two, subnormal codes being subnormal floats. So one exact
//   multiplication turns any edge, subnormal or not, into its value.
//   Tables in shared memory: G in two times 32 words, a bank each; a guess for every 16 slots.

#include <math.h>

#include "../host/block.hpp"
#include "../host/row_scale.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

__device__ inline const normal_shape& shape_table(shape_id id)
{
    static constexpr normal_shape shapes[3] = {shape_of(shape_id::gaussian),
                                               shape_of(shape_id::mixture),
                                               shape_of(shape_id::mixture_marginal)};
    return shapes[valid_shape(id) ? uint32_t(id) : 0];
}

// An exact product, where one factor may be subnormal: -use_fast_math must not flush it.
__device__ inline float scale_exactly(float x, float power_of_two)
{
#if defined(__CUDA_ARCH__)
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(x), "f"(power_of_two));
    return product;
#else
    return x * power_of_two;
#endif
}

__device__ inline float fused(float x, float y, float z)
{
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(x, y, z);
#else
    return x * y + z;  // a guess only
#endif
}

// About 1 / x by Newton's steps, for the guess: a division would be a call.
__device__ inline float inverse_of(uint32_t bits)
{
    float inverse = bits_to_float(0x7ef311c7u - bits);
    for (int i = 0; i < 3; ++i)
        inverse = fused(inverse, fused(-bits_to_float(bits), inverse, 1.0f), inverse);
    return inverse;
}

}  // namespace detail

/// One scalar's distribution, as far as the fast way needs it.
struct warp_scalar {
    uint32_t mean;       // mu', cleaned
    uint32_t slope;      // as in scalar_model
    uint32_t bias;
    float deviation;     // about 1 / slope, for the guess
    uint32_t two;        // the distance of two boundaries in code space
    uint32_t sigma_index;
    uint32_t row_slope;
    bool is_far;         // or may be: the definition decides
};

/// An interval with its flags as numbers, 0 or 1: bytes would be widened in every step.
struct warp_interval {
    uint32_t start, freq, code, raw_bits, escaped, corrupt;
};

/// The tables of one (scalar type, shape, sigma offset), for shared memory. Plain data: filled by
/// fill(), then read by any number of warps.
template <scalar_type Type>
struct warp_model {
    static constexpr scalar_format format = format_of(Type);
    static constexpr bool grouped = format.mantissa_bits > 3;
    static constexpr uint32_t slots_per_guess = 16;

    struct factor {
        uint32_t slope;
        float deviation;
    };

    normal_model<Type> exact;
    const marginal_table* marginal;
    uint32_t base[32];   // escape_slots + G where a piece begins; pieces from z = 0 on, then from
    uint32_t rise[32];   // -32768
    factor sigma[256];   // by index; {0, 0} for sigma 0
    factor row[16];      // by nibble
    float guess[rans_format::total / slots_per_guess];  // z

    /// By `threads` threads together, each its share; a barrier must follow.
    __device__ void fill(const block_spec& spec, uint32_t thread, uint32_t threads)
    {
        const normal_shape& shape = detail::shape_table(spec.shape);
        if (thread == 0) {
            exact.shape = shape;
            exact.sigma_offset = spec.sigma_offset;
            exact.marginal = marginal = spec.marginal;
        }
        for (uint32_t i = thread; i < 32; i += threads) {
            base[i ^ 16] = shape.escape_slots + shape.base[i];
            rise[i ^ 16] = uint32_t(shape.base[i + 1]) - shape.base[i];
        }
        for (uint32_t i = thread; i < 255; i += threads) {
            const uint32_t octaves = uint32_t(spec.sigma_offset + int(i >> 3)) << 23;
            const uint32_t slope = shape.slope[i & 7] - octaves;
            sigma[i] = {slope, detail::inverse_of(slope)};
        }
        if (thread == 0) sigma[sigma_zero] = {0, 0.0f};
        for (uint32_t i = thread; i < 16; i += threads) {
            static constexpr row_slope_table slopes = row_slopes();
            const uint32_t slope = slopes.bits[i];
            row[i] = {slope, detail::inverse_of(slope)};
        }
        for (uint32_t i = thread; i < rans_format::total / slots_per_guess; i += threads)
            guess[i] = z_at(shape, i * slots_per_guess + slots_per_guess / 2);
    }

    /// `mean` is what map_mean returned. `steps` is row[nibble].
    __device__ warp_scalar prepare(uint32_t mean, uint32_t sigma_index, const factor& steps) const
    {
        warp_scalar s;
        s.mean = mean;
        s.sigma_index = sigma_index;
        s.row_slope = steps.slope;
        const factor of_sigma = sigma[sigma_index];
        s.slope = multiply(of_sigma.slope, steps.slope);
        s.deviation = bits_to_float(
            multiply(float_to_bits(of_sigma.deviation), float_to_bits(steps.deviation)));
        s.bias = multiply(float_to_bits(-bits_to_float(mean)), s.slope);
        // Far scalars are more than 2^15 sigma from zero, even with sigma's exponent an eighth of
        // an octave off, so more than 2^27 in z under every shape. NaN is far, too.
        s.is_far = !(fabsf(bits_to_float(s.bias)) < 134217728.0f);
#if !defined(__CUDA_ARCH__)
        if (s.is_far) s.bias = 0;  // z_of takes finite numbers; the device's takes any
#endif
        s.two = uint32_t(1) << shift;
        constexpr int p = int(format.mantissa_bits), subnormal_field = 128 - format.bias;
        if (grouped) {
            const int sigma_field = int((one_bits + exact.shape.unit_slope - s.slope) >> 23);
            const int mean_field = int(exponent_field(mean));
            int field = mean_field > sigma_field ? mean_field : sigma_field;
            field = field > subnormal_field ? field : subnormal_field;
            const int g = sigma_field - field + p - 3;
            s.two <<= g > 0 ? g : 0;
        }
        return s;
    }

    /// As normal_model's, the first guess included.
    __device__ warp_interval locate(const warp_scalar& s, uint32_t slot) const
    {
        const float value = detail::fused(guess[slot / slots_per_guess], s.deviation,
                                          bits_to_float(s.mean));
        const uint32_t bits = float_to_bits(
            detail::scale_exactly(value, bits_to_float(uint32_t(format.bias) << 23)));
        // Boundary k of a sign is at k * two - half_code, boundary 0 at 0.
        const uint32_t two = distance(s);
        uint32_t near = (bits & ~sign_bit) + half_code + two / 2;
        near = (near < last_boundary ? near : last_boundary) & ~(two - 1);
        uint32_t sign = bits & sign_bit;
        const uint32_t near_cdf = cdf(s, near, sign);
        if (grouped && near == 0) sign = slot < near_cdf ? sign_bit : 0;
        const bool inward = (slot < near_cdf) != (int32_t(sign) < 0);
        const uint32_t other = inward ? near - two : near + two;
        const uint32_t other_cdf = cdf(s, other, sign);
        const uint32_t start = near_cdf < other_cdf ? near_cdf : other_cdf;
        const uint32_t freq = (near_cdf < other_cdf ? other_cdf : near_cdf) - start;
        const uint32_t inner = inward ? other : near;
        if (slot - start >= freq || inner + two > last_boundary || s.is_far)
            return search(s, slot, near, sign);
        return {start, freq, code_of(inner, sign), group_bits(s), 0, 0};
    }

    /// As normal_model's.
    __device__ warp_interval find(const warp_scalar& s, uint32_t code) const
    {
        const uint32_t sign = code << (32 - format.code_bits) & sign_bit;
        const uint32_t two = distance(s);
        const uint32_t inner = (code & (format.code_sign() - 1)) << shift & ~(two - 1);
        const uint32_t outer = inner + two;
        if (s.is_far || outer > last_boundary) return flat(exact.find(full(s), code));
        const uint32_t inner_cdf = cdf(s, inner, sign), outer_cdf = cdf(s, outer, sign);
        const uint32_t start = inner_cdf < outer_cdf ? inner_cdf : outer_cdf;
        const uint32_t freq = (inner_cdf < outer_cdf ? outer_cdf : inner_cdf) - start;
        if (freq == 0) return flat(exact.find(full(s), code));  // an escape, but for sigma 0
        return {start, freq, code_of(inner, sign), group_bits(s), 0, 0};
    }

    /// normal_model's view of the same scalar.
    __device__ scalar_model full(const warp_scalar& s) const
    {
        return exact.prepare_sloped(s.mean, s.sigma_index, s.row_slope);
    }

private:
    static constexpr uint32_t shift = 23 - format.mantissa_bits;
    static constexpr uint32_t half_code = uint32_t(1) << (shift - 1);
    // The boundary below the largest finite code: beyond it there is no edge but infinity.
    static constexpr uint32_t last_boundary = format.largest_finite << shift;

    __device__ static uint32_t distance(const warp_scalar& s)
    {
        return grouped ? s.two : uint32_t(1) << shift;
    }

    __device__ static uint32_t group_bits(const warp_scalar& s)
    {
        return grouped ? uint32_t(__popc(s.two - 1)) - shift : 0;
    }

    __device__ static uint32_t code_of(uint32_t inner, uint32_t sign)
    {
        constexpr unsigned unused = 32 - format.code_bits;
        return ((inner << (unused - shift)) + sign) >> unused;
    }

    // C of the boundary `at` - half_code (0 for 0) of a sign.
    __device__ uint32_t cdf(const warp_scalar& s, uint32_t at, uint32_t sign) const
    {
        const int code = int(at - half_code);
        const uint32_t scale = uint32_t(254 - format.bias) << 23 | sign;
        const float edge = detail::scale_exactly(bits_to_float(uint32_t(code > 0 ? code : 0)),
                                                 bits_to_float(scale));
        const uint32_t z = uint32_t(z_of(float_to_bits(edge), s.slope, s.bias));
        const uint32_t piece = z >> 11 & 31;
        return base[piece] + ((z & 2047) * rise[piece] >> 11);
    }

    __device__ static warp_interval flat(const interval& one)
    {
        return {one.start,    one.freq,           one.code,
                one.raw_bits, one.escaped ? 1u : 0, one.corrupt ? 1u : 0};
    }

    // What the fast way left over.
    __device__ warp_interval search(const warp_scalar& s, uint32_t slot,
                                                     uint32_t near, uint32_t sign) const
    {
        if (slot < exact.shape.escape_slots) return flat(exact.escape());
        const scalar_model m = full(s);
        if (m.is_far) return flat(exact.locate_far(m, slot));
        const uint32_t k = near >> (shift + m.group_bits), last = uint32_t(m.last_group) + 1;
        const int boundary = int(k < last ? k : last);
        return flat(exact.locate(m, slot, sign != 0 ? -boundary : boundary));
    }

    // The z at which G reaches a slot, or about there.
    __device__ static float z_at(const normal_shape& shape, uint32_t slot)
    {
        const uint32_t above = slot > shape.escape_slots ? slot - shape.escape_slots : 0;
        uint32_t at = 0;
        for (uint32_t step = 16; step != 0; step /= 2)
            if (shape.base[at + step] <= above) at += step;
        const uint32_t rise = uint32_t(shape.base[at + 1]) - shape.base[at];
        const int z = int(2048 * at + 2048 * (above - shape.base[at]) / rise) - 32768;
        return float(z < highest_z ? z : highest_z);
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
