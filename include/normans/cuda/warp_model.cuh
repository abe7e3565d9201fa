#pragma once
// The model as a warp computes it: the same integers as normal_model, which stays the definition
// and takes what the fast way leaves over (escapes, far scalars, the largest codes, missed
// guesses). What makes it fast:
//   Code space. A magnitude shifted up to where fp32 keeps its fraction is an fp32 number: the
//   code's value times a power of two, subnormal codes being subnormal floats. So one exact
//   multiplication turns any edge, subnormal or not, into its value.
//   Tables in shared memory that never or seldom meet in a bank: G in two times 32 words, a guess
//   in two times 128, of which most slots take 32 neighbours.
//   The fast way only says whether it found something: what is rare is computed anew behind a vote.

#include <math.h>

#include "../block/block.hpp"
#include "../block/row_scale.hpp"

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

// Where something lies in shared memory.
__device__ inline uint32_t shared_address([[maybe_unused]] const void* at)
{
#if defined(__CUDA_ARCH__)
    return uint32_t(__cvta_generic_to_shared(at));
#else
    return 0;
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
};

/// Slots and the code they say. Where neither is left: a start of 0 says escape, as no code's
/// slots begin below escape_slots; a freq of all slots says that the slot belongs to no code.
struct warp_interval {
    uint32_t start, freq, code, raw_bits;

    static __device__ warp_interval of(const interval& one)
    {
        return {one.start, one.freq, one.code, one.raw_bits};
    }
    __device__ bool escaped() const { return start == 0 && freq != rans_format::total; }
    __device__ bool corrupt() const { return freq == rans_format::total; }
};

/// The tables of one (scalar type, shape, sigma offset). They must lie in shared memory. Plain
/// data: filled by fill(), then read by any number of warps. Aligned so that `or` puts an index
/// into an address.
template <scalar_type Type>
struct alignas(1024) warp_model {
    struct factor {
        uint32_t slope;
        float deviation;
        uint32_t one_sigma;  // bits of a sigma and its slope, added: the same in all
    };

    // Guesses: with f the slot's distance from the middle, z / f = line + d incline, by the
    // distance d = reach - |f| from the ends as a float, eight lines an octave.
    float line[128];
    float incline[128];
    // In a piece of G, escape_slots + G = (origin + z rise) / 2048. Pieces from z = 0 on, then from
    // -32768.
    uint32_t origin[32];
    uint32_t rise[32];
    uint32_t slope[256];  // by sigma's index; 0 for sigma 0
    float deviation[256];
    factor row[16];  // by nibble
    alignas(8) float middle;  // of the slots, with float_slot_offset; loaded with what follows
    float reach;
    uint32_t here;  // this storage's address in shared memory
    normal_model<Type> exact;

    /// By `threads` threads together, each its share; a barrier must follow.
    __device__ void fill(const block_spec& spec, uint32_t thread, uint32_t threads)
    {
        const normal_shape& shape = detail::shape_table(spec.shape);
        for (uint32_t i = 4 * thread; i < sizeof shape; i += 4 * threads)
            std::memcpy(reinterpret_cast<char*>(&exact.shape) + i,
                        reinterpret_cast<const char*>(&shape) + i, 4);
        if (thread == 0) {
            exact.sigma_offset = spec.sigma_offset;
            exact.marginal = spec.marginal;
            here = detail::shared_address(this);
            middle = float_slot_offset + float(rans_format::total + shape.escape_slots - 1) / 2;
            reach = float(reach_of(shape)) / 2;
        }
        for (uint32_t i = thread; i < 32; i += threads) {
            const uint32_t piece = i ^ 16, begin = shape.base[piece];
            rise[i] = shape.base[piece + 1] - begin;
            origin[i] = 2048 * (shape.escape_slots + begin - (piece - 16) * rise[i]);
        }
        for (uint32_t i = thread; i < 256; i += threads) {
            const uint32_t octaves = uint32_t(spec.sigma_offset + int(i >> 3)) << 23;
            slope[i] = i == sigma_zero ? 0 : shape.slope[i & 7] - octaves;
            deviation[i] = i == sigma_zero ? 0.0f : detail::inverse_of(slope[i]);
        }
        for (uint32_t i = thread; i < 16; i += threads) {
            static constexpr row_slope_table slopes = row_slopes();
            row[i] = {slopes.bits[i], detail::inverse_of(slopes.bits[i]),
                      one_bits + shape.unit_slope};
        }
        for (uint32_t i = thread; i < 128; i += threads) {
            const uint32_t bits = (1024 + i) << 20;  // of the d where line i begins
            const float begin = bits_to_float(bits), end = bits_to_float(bits + (1 << 20));
            const float low = z_by_f(shape, begin), high = z_by_f(shape, end);
            incline[i] = detail::fused(low, -1.0f, high) * eight_by(bits & infinity_bits);
            line[i] = detail::fused(-begin, incline[i], low);
        }
    }

    // A number whose fraction counts halves: a slot is put there by adding twice the slot.
    static constexpr float float_slot_offset = 4194304.0f;

private:
    // Twice the largest d, so that the outermost slots are at 16.5.
    __device__ static uint32_t reach_of(const normal_shape& shape)
    {
        return rans_format::total - shape.escape_slots + 32;
    }

    // 8 / x, x a power of two.
    __device__ static float eight_by(uint32_t x) { return bits_to_float((257u << 23) - x); }

    // z / f at a distance from the ends.
    __device__ static float z_by_f(const normal_shape& shape, float d)
    {
        const int doubled = int(2 * d), from_middle = int(reach_of(shape)) - doubled;
        if (doubled < 33) return 0.0f;  // among the escape's slots
        // In halves. About the middle G is straight, so all f there are as good as 512.
        const int f = from_middle < 1024 ? 1024 : from_middle;
        // Twice the slots above the escape's, of the lower half.
        const int above = int(rans_format::total - shape.escape_slots) - f;
        uint32_t at = 0;
        for (uint32_t step = 8; step != 0; step /= 2)
            if (2 * int(shape.base[at + step]) <= above) at += step;
        const int step = shape.base[at + 1] - shape.base[at], over = above - 2 * shape.base[at];
        const int z = 32768 - int(2048 * at) - 1024 * over / step;
        return float((uint32_t(z) << 16) / uint32_t(f)) * (1.0f / 32768);
    }
};

/// A model as one warp uses it: a register holds where the tables lie, which would be computed anew
/// in every step. Made behind the barrier.
template <scalar_type Type>
class warp_view {
    using tables = warp_model<Type>;

public:
    static constexpr scalar_format format = format_of(Type);
    static constexpr bool grouped = format.mantissa_bits > 3;

    const normal_model<Type>& exact;
    const marginal_table* const& marginal;
    const uint32_t members;  // of the logical warp

    __device__ warp_view(const tables& in, uint32_t users)
        : exact(in.exact), marginal(in.exact.marginal), members(users), tables_(in), here_(in.here)
    {
    }

    /// `mean` is what map_mean returned. `steps` is row[nibble].
    __device__ warp_scalar prepare(uint32_t mean, uint32_t sigma_index,
                                   const typename tables::factor& steps) const
    {
        warp_scalar s;
        s.mean = mean;
        s.sigma_index = sigma_index;
        s.row_slope = steps.slope;
        s.slope = multiply(word(tables_.slope, sigma_index), steps.slope);
        s.deviation = bits_to_float(
            multiply(word(tables_.deviation, sigma_index), float_to_bits(steps.deviation)));
        s.bias = multiply(float_to_bits(-bits_to_float(mean)), s.slope);
        s.two = uint32_t(1) << shift;
        constexpr int p = int(format.mantissa_bits), subnormal_field = 128 - format.bias;
        if (grouped) {
            const int sigma_field = int((steps.one_sigma - s.slope) >> 23);
            const int mean_field = int(exponent_field(mean));
            int field = mean_field > sigma_field ? mean_field : sigma_field;
            field = field > subnormal_field ? field : subnormal_field;
            const int g = sigma_field - field + p - 3;
            s.two <<= g > 0 ? g : 0;
        }
        return s;
    }

    /// True with the slot's interval, as normal_model finds it; false if it takes search().
    __device__ bool locate(const warp_scalar& s, uint32_t slot, warp_interval& found) const
    {
        const float value = guessed_value(s, slot);
        uint32_t sign = float_to_bits(value) & sign_bit;
        const int two = int(distance(s)), near = near_boundary(s, value);
        const uint32_t near_cdf = cdf(s, grouped && near < 0 ? 0 : near, sign);
        if (grouped && near < 0) sign = slot < near_cdf ? sign_bit : 0;
        const bool inward = (slot < near_cdf) != (bits_to_float(scale | sign) < 0);
        const int inner = near - two;
        const int beyond = int(uint32_t(near) + uint32_t(two));  // of NaNs it wraps
        const int other = inward ? inner > 0 ? inner : 0 : beyond;
        const uint32_t other_cdf = cdf(s, other, sign);
        const uint32_t start = near_cdf < other_cdf ? near_cdf : other_cdf;
        const uint32_t freq = (near_cdf < other_cdf ? other_cdf : near_cdf) - start;
        const int outer = inward ? near : other;
        found = {start, freq, code_below(s, uint32_t(outer), sign), group_bits(s)};
        return (slot - start < freq) & (outer <= last_edge) & !may_be_far(s);
    }

    /// The same for every slot.
    __device__ warp_interval search(const warp_scalar& s, uint32_t slot) const
    {
        if (slot < exact.shape.escape_slots) return warp_interval::of(exact.escape());
        const scalar_model m = full(s);
        if (m.is_far) return warp_interval::of(exact.locate_far(m, slot));
        // As locate(): the last boundary whose C is not above the slot. By halves, since anything
        // cleverer takes more registers, of which the common path has to do without.
        int high = m.last_group + 2, low = 0 - high;
        uint32_t start = 0;
        while (high - low > 1) {
            const int middle = (low + high) >> 1;
            const uint32_t c = boundary_cdf(s, m.group_bits, middle);
            if (c <= slot) low = middle, start = c;
            else high = middle;
        }
        if (low < -1 - m.last_group || high > m.last_group + 1)
            return {0, rans_format::total, 0, 0};
        const uint32_t end = boundary_cdf(s, m.group_bits, high);
        const uint32_t code = low < 0 ? uint32_t(-1 - low) << m.group_bits | format.code_sign()
                                      : uint32_t(low) << m.group_bits;
        return {start, end - start, code, m.group_bits};
    }

    /// True with the code's interval, as normal_model finds it; false if it takes search_code().
    __device__ bool find(const warp_scalar& s, uint32_t code, warp_interval& found) const
    {
        const uint32_t sign = code << (32 - format.code_bits) & sign_bit;
        const int two = int(distance(s));
        const int outer =
            int(((code & (format.code_sign() - 1)) << shift & ~uint32_t(two - 1)) + uint32_t(two) -
                half_code);
        const int inner = outer - two;
        const uint32_t inner_cdf = cdf(s, inner > 0 ? inner : 0, sign);
        const uint32_t outer_cdf = cdf(s, outer, sign);
        const uint32_t start = inner_cdf < outer_cdf ? inner_cdf : outer_cdf;
        const uint32_t freq = (inner_cdf < outer_cdf ? outer_cdf : inner_cdf) - start;
        found = {start, freq, code_below(s, uint32_t(outer), sign), group_bits(s)};
        return (freq != 0) & (outer <= last_edge) & !may_be_far(s);
    }

    /// The same for every code.
    __device__ warp_interval search_code(const warp_scalar& s, uint32_t code) const
    {
        return warp_interval::of(exact.find(full(s), code));
    }

    /// The z that locate() begins with.
    __device__ float guessed_z(uint32_t slot) const
    {
        float middle, reach;
        load_middle(middle, reach);
        const float f = float_slot(slot) - middle;
        const float d = reach - fabsf(f);
        const uint32_t i = float_to_bits(d) >> 20 & 127;
        return f * detail::fused(d, bits_to_float(word(tables_.incline, i)),
                                 bits_to_float(word(tables_.line, i)));
    }

    /// escape_slots + G(z).
    __device__ uint32_t slots_below(int z) const
    {
        const uint32_t piece = uint32_t(z) >> 11 & 31;
        return (word(tables_.origin, piece) + uint32_t(z) * word(tables_.rise, piece)) >> 11;
    }

private:
    static constexpr uint32_t shift = 23 - format.mantissa_bits;
    static constexpr uint32_t scale = uint32_t(254 - format.bias) << 23;  // from code space
    static constexpr uint32_t half_code = uint32_t(1) << (shift - 1);
    // Where boundary k of a sign lies in code space: at k two - half_code, boundary 0 at 0. The
    // last one here is that below the largest finite code: beyond it there is no edge but infinity.
    static constexpr int last_edge = int((format.largest_finite << shift) - half_code);

    // Far scalars are more than 2^15 sigma from zero, even with sigma's exponent an eighth of an
    // octave off, so more than 2^27 in z under every shape. NaN is far, too.
    __device__ static bool may_be_far(const warp_scalar& s)
    {
        return !(fabsf(bits_to_float(s.bias)) < 134217728.0f);
    }

    __device__ static float float_slot(uint32_t slot)
    {
#if defined(__CUDA_ARCH__)
        uint32_t bits;  // which nvcc would compute from what the slot was cut out of
        asm("mad.lo.u32 %0, %1, 2, 0x4a800000;" : "=r"(bits) : "r"(slot));
        return bits_to_float(bits);
#else
        return bits_to_float(0x4a800000u + 2 * slot);
#endif
    }

    __device__ float guessed_value(const warp_scalar& s, uint32_t slot) const
    {
        return detail::fused(guessed_z(slot), s.deviation, bits_to_float(s.mean));
    }

    // The boundary nearest to a value, k two - half_code even for k = 0.
    __device__ static int near_boundary(const warp_scalar& s, float value)
    {
        const uint32_t at = float_to_bits(detail::scale_exactly(
            fabsf(value), bits_to_float(uint32_t(format.bias) << 23)));
        const uint32_t two = distance(s);
        if (!grouped) return int((at & ~(two - 1)) | half_code);
        return int((at + half_code + two / 2) & ~(two - 1)) - int(half_code);
    }

    __device__ static uint32_t distance(const warp_scalar& s)
    {
        return grouped ? s.two : uint32_t(1) << shift;
    }

    __device__ static uint32_t group_bits(const warp_scalar& s)
    {
        return grouped ? uint32_t(__popc(s.two - 1)) - shift : 0;
    }

    // The code or group whose outer boundary is given.
    __device__ static uint32_t code_below(const warp_scalar& s, uint32_t outer, uint32_t sign)
    {
        constexpr unsigned unused = 32 - format.code_bits;
        if (grouped) outer -= s.two - half_code;
        return ((outer << (unused - shift)) + sign) >> unused;
    }

    // C of boundary i of normal_model, when groups have these many bits.
    __device__ uint32_t boundary_cdf(const warp_scalar& s, uint32_t bits, int i) const
    {
        const uint32_t magnitude = uint32_t(i < 0 ? -i : i) << bits;
        if (magnitude > format.largest_finite) return slots_below(i < 0 ? lowest_z : highest_z);
        const int edge = int(magnitude << shift) - int(half_code);
        return cdf(s, edge > 0 ? edge : 0, i < 0 ? sign_bit : 0);
    }

    // C of the boundary at `edge` of a sign.
    __device__ uint32_t cdf(const warp_scalar& s, int edge, uint32_t sign) const
    {
        const float value = detail::scale_exactly(bits_to_float(uint32_t(edge)),
                                                  bits_to_float(scale | sign));
#if !defined(__CUDA_ARCH__)
        // The host's z_of takes finite numbers only, and nobody keeps what others give.
        if (uint32_t(edge) >= infinity_bits || exponent_field(s.bias) == 255) return 0;
#endif
        return slots_below(z_of(float_to_bits(value), s.slope, s.bias));
    }

    // normal_model's view of the same scalar.
    __device__ scalar_model full(const warp_scalar& s) const
    {
        return exact.prepare_sloped(s.mean, s.sigma_index, s.row_slope);
    }

    __device__ void load_middle(float& middle, float& reach) const
    {
#if defined(__CUDA_ARCH__)
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(middle), "=f"(reach)
                     : "r"(here_ + offset_of(&tables_.middle)));
#else
        middle = tables_.middle;
        reach = tables_.reach;
#endif
    }

    __device__ uint32_t offset_of(const void* member) const
    {
        return uint32_t(static_cast<const char*>(member) -
                        reinterpret_cast<const char*>(&tables_));
    }

    // table[i]. Where an index is cut out of something longer, `or` costs nothing; a sum, where it
    // is a number of its own.
    template <class T, size_t Count>
    __device__ uint32_t word(const T (&table)[Count], uint32_t i) const
    {
        static_assert(sizeof(T) == 4 && 4 * Count <= alignof(tables), "i has bits of its own");
#if defined(__CUDA_ARCH__)
        const uint32_t at = (Count == 256 ? here_ + 4 * i : here_ | 4 * i) + offset_of(&table);
        uint32_t bits;  // volatile, as loads are where barriers count
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(bits) : "r"(at));
        return bits;
#else
        uint32_t bits;
        std::memcpy(&bits, &table[i], sizeof bits);
        return bits;
#endif
    }

    const tables& tables_;
    const uint32_t here_;
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
