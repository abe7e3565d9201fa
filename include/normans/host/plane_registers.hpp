#pragma once
// The registers of the portable planes: 128 bits, hence eight words, four ints or four floats,
// lanes ascending. plain_registers are arrays, for any compiler, and say what each operation means;
// sse2_registers are the vectors of GCC and Clang, with intrinsics where the language has no
// operator. Which word of a run goes where is no register's business and stands at the end.
// Floats are rounded once at most between two barriers (settle), so that no flag changes a result.

#include <cstring>
#include <type_traits>

#include "../core/float_bits.hpp"
#include "float_mode.hpp"

#if NORMANS_SSE2
#include <emmintrin.h>
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {

namespace detail {

constexpr double z_limit = 40000.0;
constexpr double z_shift = 206158430208.0;  // 1.5 * 2^37: the last place is 2^-15

}  // namespace detail

/// A register as an array, with the operators that vectors have.
template <class T, uint32_t Count>
struct lane_array {
    T lane[Count];

    NORMANS_INLINE T& operator[](int i) { return lane[i]; }
    NORMANS_INLINE const T& operator[](int i) const { return lane[i]; }

    friend NORMANS_INLINE lane_array operator+(const lane_array& x, const lane_array& y)
    {
        return of([&](int i) NORMANS_LAMBDA { return x[i] + y[i]; });
    }
    friend NORMANS_INLINE lane_array operator-(const lane_array& x, const lane_array& y)
    {
        return of([&](int i) NORMANS_LAMBDA { return x[i] - y[i]; });
    }
    friend NORMANS_INLINE lane_array operator/(const lane_array& x, const lane_array& y)
    {
        return of([&](int i) NORMANS_LAMBDA { return x[i] / y[i]; });
    }
    friend NORMANS_INLINE lane_array operator&(const lane_array& x, const lane_array& y)
    {
        return of([&](int i) NORMANS_LAMBDA { return x[i] & y[i]; });
    }
    friend NORMANS_INLINE lane_array operator|(const lane_array& x, const lane_array& y)
    {
        return of([&](int i) NORMANS_LAMBDA { return x[i] | y[i]; });
    }
    friend NORMANS_INLINE lane_array operator^(const lane_array& x, const lane_array& y)
    {
        return of([&](int i) NORMANS_LAMBDA { return x[i] ^ y[i]; });
    }
    friend NORMANS_INLINE lane_array operator~(const lane_array& x)
    {
        return of([&](int i) NORMANS_LAMBDA { return ~x[i]; });
    }

    template <class Function>
    static NORMANS_INLINE lane_array of(Function f)
    {
        lane_array out;
        for (int i = 0; i < int(Count); ++i) out.lane[i] = T(f(i));
        return out;
    }
};

/// Masks are all ones or zero per lane.
struct plain_registers {
    using word8 = lane_array<uint16_t, 8>;
    using int4 = lane_array<uint32_t, 4>;
    using float4 = lane_array<float, 4>;

    static NORMANS_INLINE word8 words_of(uint32_t x)
    {
        return word8::of([&](int) NORMANS_LAMBDA { return x; });
    }
    static NORMANS_INLINE int4 ints_of(uint32_t x)
    {
        return int4::of([&](int) NORMANS_LAMBDA { return x; });
    }
    static NORMANS_INLINE float4 floats_of(float x)
    {
        return float4::of([&](int) NORMANS_LAMBDA { return x; });
    }
    static NORMANS_INLINE word8 widened_bytes(const uint8_t* from)
    {
        return word8::of([&](int i) NORMANS_LAMBDA { return from[i]; });
    }
    static NORMANS_INLINE void store_bytes(uint8_t* to, const word8& x)
    {
        for (int i = 0; i < 8; ++i) to[i] = uint8_t(x[i]);
    }

    template <int Bits>
    static NORMANS_INLINE word8 shl(const word8& x)
    {
        return word8::of([&](int i) NORMANS_LAMBDA { return x[i] << Bits; });
    }
    template <int Bits>
    static NORMANS_INLINE word8 shr(const word8& x)
    {
        return word8::of([&](int i) NORMANS_LAMBDA { return x[i] >> Bits; });
    }
    static NORMANS_INLINE word8 sub_saturated(const word8& x, const word8& y)
    {
        return word8::of([&](int i) NORMANS_LAMBDA { return x[i] > y[i] ? x[i] - y[i] : 0; });
    }
    static NORMANS_INLINE word8 mul_low(const word8& x, const word8& y)
    {
        return word8::of([&](int i) NORMANS_LAMBDA { return uint32_t(x[i]) * y[i]; });
    }
    static NORMANS_INLINE word8 mul_high(const word8& x, const word8& y)
    {
        return word8::of([&](int i) NORMANS_LAMBDA { return uint32_t(x[i]) * y[i] >> 16; });
    }
    /// (x * y + 2^14) >> 15, signed.
    static NORMANS_INLINE word8 mul_rounded(const word8& x, const word8& y)
    {
        return word8::of([&](int i) NORMANS_LAMBDA {
            return (int32_t(int16_t(x[i])) * int16_t(y[i]) + (1 << 14)) >> 15;
        });
    }
    /// x * y signed, summed over pairs of neighbours.
    static NORMANS_INLINE int4 pair_sums(const word8& x, const word8& y)
    {
        const auto product = [&](int i) NORMANS_LAMBDA {
            return uint32_t(int32_t(int16_t(x[i])) * int16_t(y[i]));
        };
        return int4::of([&](int i)
                            NORMANS_LAMBDA { return product(2 * i) + product(2 * i + 1); });
    }
    static NORMANS_INLINE word8 equal(const word8& x, const word8& y)
    {
        return word8::of([&](int i) NORMANS_LAMBDA { return x[i] == y[i] ? ~0u : 0; });
    }
    static NORMANS_INLINE word8 less_signed(const word8& x, const word8& y)
    {
        return word8::of([&](int i) NORMANS_LAMBDA {
            return int16_t(x[i]) < int16_t(y[i]) ? ~0u : 0;
        });
    }
    static NORMANS_INLINE uint32_t mask_bits(const word8& low, const word8& high)
    {
        uint32_t bits = 0;
        for (int i = 0; i < 8; ++i)
            bits |= (low[i] & 1u) << i | (high[i] & 1u) << (i + 8);
        return bits;
    }
    template <class T, uint32_t Count>
    static NORMANS_INLINE bool any(const lane_array<T, Count>& mask)
    {
        T all = 0;
        for (int i = 0; i < int(Count); ++i) all = T(all | mask[i]);
        return all != 0;
    }

    template <int Bits>
    static NORMANS_INLINE int4 shl(const int4& x)
    {
        return int4::of([&](int i) NORMANS_LAMBDA { return x[i] << Bits; });
    }
    template <int Bits>
    static NORMANS_INLINE int4 shr(const int4& x)
    {
        return int4::of([&](int i) NORMANS_LAMBDA { return x[i] >> Bits; });
    }
    static NORMANS_INLINE int4 less_signed(const int4& x, const int4& y)
    {
        return int4::of([&](int i) NORMANS_LAMBDA {
            return int32_t(x[i]) < int32_t(y[i]) ? ~0u : 0;
        });
    }
    /// low | high << 16 of the first and of the last four lanes.
    static NORMANS_INLINE int4 join_first(const word8& low, const word8& high)
    {
        return int4::of([&](int i) NORMANS_LAMBDA { return low[i] | uint32_t(high[i]) << 16; });
    }
    static NORMANS_INLINE int4 join_last(const word8& low, const word8& high)
    {
        return int4::of([&](int i)
                            NORMANS_LAMBDA { return low[i + 4] | uint32_t(high[i + 4]) << 16; });
    }
    static NORMANS_INLINE word8 low_words(const int4& first, const int4& last)
    {
        word8 out;
        for (int i = 0; i < 4; ++i) {
            out[i] = uint16_t(first[i]);
            out[i + 4] = uint16_t(last[i]);
        }
        return out;
    }
    static NORMANS_INLINE word8 high_words(const int4& first, const int4& last)
    {
        return low_words(shr<16>(first), shr<16>(last));
    }
    /// Two z, in units of 2^-15, as rounded and clamped words.
    static NORMANS_INLINE word8 rounded(const int4& first, const int4& last)
    {
        const auto word = [](uint32_t z) NORMANS_LAMBDA {
            const int32_t whole = (int32_t(z) + 16384) >> 15;
            return uint32_t(whole > 32767 ? 32767 : whole < -32768 ? -32768 : whole);
        };
        return low_words(int4::of([&](int i) NORMANS_LAMBDA { return word(first[i]); }),
                         int4::of([&](int i) NORMANS_LAMBDA { return word(last[i]); }));
    }

    /// Rounded once; what is below 2^-126 is a zero of its sign.
    static NORMANS_INLINE float4 multiply(const float4& x, const float4& y)
    {
        float4 product = float4::of([&](int i) NORMANS_LAMBDA { return x[i] * y[i]; });
        NORMANS_OPAQUE(product);
        return float4::of([&](int i) NORMANS_LAMBDA {
            const uint32_t bits = float_to_bits(product[i]);
            return bits_to_float(exponent_field(bits) == 0 ? bits & sign_bit : bits);
        });
    }
    /// x * y + z, rounded in any way.
    static NORMANS_INLINE float4 fma(const float4& x, const float4& y, const float4& z)
    {
        return float4::of([&](int i) NORMANS_LAMBDA { return x[i] * y[i] + z[i]; });
    }
    static NORMANS_INLINE float4 to_floats(const int4& x)  // signed
    {
        return float4::of([&](int i) NORMANS_LAMBDA { return float(int32_t(x[i])); });
    }
    static NORMANS_INLINE int4 truncate(const float4& x)  // beyond 2^31: anything
    {
        return int4::of([&](int i) NORMANS_LAMBDA {
            return x[i] > 2147483000.0f || !(x[i] > -2147483000.0f) ? 0u
                                                                    : uint32_t(int32_t(x[i]));
        });
    }

    using doubles = lane_array<double, 4>;
    static NORMANS_INLINE doubles in_double(const float4& x)
    {
        return doubles::of([&](int i) NORMANS_LAMBDA { return double(x[i]); });
    }
    static NORMANS_INLINE doubles in_double(const float* from)
    {
        return doubles::of([&](int i) NORMANS_LAMBDA { return double(from[i]); });
    }
    /// x * y + z, rounded to double and then to fp32, and the low half of the double.
    static NORMANS_INLINE float4 sum_in_double(const doubles& x, const doubles& y, const doubles& z,
                                               int4& low)
    {
        doubles sum = doubles::of([&](int i) NORMANS_LAMBDA { return x[i] * y[i] + z[i]; });
        NORMANS_OPAQUE(sum);
        low = int4::of([&](int i) NORMANS_LAMBDA { return uint32_t(double_to_bits(sum[i])); });
        float4 out = float4::of([&](int i) NORMANS_LAMBDA { return float(sum[i]); });
        NORMANS_OPAQUE(out);
        return out;
    }
    /// Where that double is not x * y + z itself; may say so wrongly.
    static NORMANS_INLINE int4 sum_is_inexact(const doubles&, const doubles&, const doubles&)
    {
        return ints_of(~0u);
    }
    /// x * y - z in units of 2^-15, clamped to +-40000.
    static NORMANS_INLINE int4 z_in_double(const doubles& x, const doubles& y, const doubles& z)
    {
        doubles sum = doubles::of([&](int i) NORMANS_LAMBDA {
            const double exact = x[i] * y[i] - z[i];
            const double high = exact < detail::z_limit ? exact : detail::z_limit;
            return high > -detail::z_limit ? high : -detail::z_limit;
        });
        NORMANS_OPAQUE(sum);
        for (int i = 0; i < 4; ++i) sum[i] += detail::z_shift;
        NORMANS_OPAQUE(sum);
        return int4::of([&](int i) NORMANS_LAMBDA { return uint32_t(double_to_bits(sum[i])); });
    }
};

#if NORMANS_SSE2

struct sse2_registers {
    using word8 = uint16_t NORMANS_VECTOR_16;
    using int4 = uint32_t NORMANS_VECTOR_16;
    using float4 = float NORMANS_VECTOR_16;

    static NORMANS_INLINE word8 words_of(uint32_t x) { return word8(_mm_set1_epi16(short(x))); }
    static NORMANS_INLINE int4 ints_of(uint32_t x) { return int4(_mm_set1_epi32(int(x))); }
    static NORMANS_INLINE float4 floats_of(float x) { return _mm_set1_ps(x); }
    static NORMANS_INLINE word8 widened_bytes(const uint8_t* from)
    {
        return word8(_mm_unpacklo_epi8(_mm_loadl_epi64(as_128(from)), _mm_setzero_si128()));
    }
    static NORMANS_INLINE void store_bytes(uint8_t* to, word8 x)
    {
        const __m128i bytes = _mm_and_si128(all(x), _mm_set1_epi16(255));
        _mm_storel_epi64(static_cast<__m128i*>(static_cast<void*>(to)),
                         _mm_packus_epi16(bytes, bytes));
    }

    template <int Bits>
    static NORMANS_INLINE word8 shl(word8 x)
    {
        return word8(_mm_slli_epi16(all(x), Bits));
    }
    template <int Bits>
    static NORMANS_INLINE word8 shr(word8 x)
    {
        return word8(_mm_srli_epi16(all(x), Bits));
    }
    static NORMANS_INLINE word8 sub_saturated(word8 x, word8 y)
    {
        return word8(_mm_subs_epu16(all(x), all(y)));
    }
    static NORMANS_INLINE word8 mul_low(word8 x, word8 y) { return x * y; }
    static NORMANS_INLINE word8 mul_high(word8 x, word8 y)
    {
        return word8(_mm_mulhi_epu16(all(x), all(y)));
    }
    static NORMANS_INLINE word8 mul_rounded(word8 x, word8 y)
    {
        const word8 carry = shr<1>(shr<14>(x * y) + words_of(1));
        return shl<1>(word8(_mm_mulhi_epi16(all(x), all(y)))) + carry;
    }
    static NORMANS_INLINE int4 pair_sums(word8 x, word8 y)
    {
        return int4(_mm_madd_epi16(all(x), all(y)));
    }
    static NORMANS_INLINE word8 equal(word8 x, word8 y)
    {
        return word8(_mm_cmpeq_epi16(all(x), all(y)));
    }
    static NORMANS_INLINE word8 less_signed(word8 x, word8 y)
    {
        return word8(_mm_cmplt_epi16(all(x), all(y)));
    }
    static NORMANS_INLINE uint32_t mask_bits(word8 low, word8 high)
    {
        return uint32_t(_mm_movemask_epi8(_mm_packs_epi16(all(low), all(high))));
    }
    template <class Register>
    static NORMANS_INLINE bool any(Register mask)
    {
        return _mm_movemask_epi8(all(mask)) != 0;
    }

    template <int Bits>
    static NORMANS_INLINE int4 shl(int4 x)
    {
        return int4(_mm_slli_epi32(all(x), Bits));
    }
    template <int Bits>
    static NORMANS_INLINE int4 shr(int4 x)
    {
        return int4(_mm_srli_epi32(all(x), Bits));
    }
    static NORMANS_INLINE int4 less_signed(int4 x, int4 y)
    {
        return int4(_mm_cmplt_epi32(all(x), all(y)));
    }
    static NORMANS_INLINE int4 join_first(word8 low, word8 high)
    {
        return int4(_mm_unpacklo_epi16(all(low), all(high)));
    }
    static NORMANS_INLINE int4 join_last(word8 low, word8 high)
    {
        return int4(_mm_unpackhi_epi16(all(low), all(high)));
    }
    static NORMANS_INLINE word8 high_words(int4 first, int4 last)
    {
        return word8(
            _mm_packs_epi32(_mm_srai_epi32(all(first), 16), _mm_srai_epi32(all(last), 16)));
    }
    static NORMANS_INLINE word8 low_words(int4 first, int4 last)
    {
        return high_words(shl<16>(first), shl<16>(last));
    }
    static NORMANS_INLINE word8 rounded(int4 first, int4 last)
    {
        const __m128i half = _mm_set1_epi32(16384);
        return word8(_mm_packs_epi32(_mm_srai_epi32(_mm_add_epi32(all(first), half), 15),
                                     _mm_srai_epi32(_mm_add_epi32(all(last), half), 15)));
    }

    static NORMANS_INLINE float4 multiply(float4 x, float4 y)
    {
        float4 product = x * y;
        settle(product);
        // Elsewhere the mode makes zeros.
        if constexpr (std::is_same_v<native_float_mode, no_float_mode>) {
            const __m128i bits = all(product), field = _mm_set1_epi32(int(infinity_bits));
            const __m128i tiny = _mm_cmpeq_epi32(_mm_and_si128(bits, field), _mm_setzero_si128());
            return float4(_mm_andnot_si128(_mm_srli_epi32(tiny, 1), bits));
        }
        return product;
    }
    static NORMANS_INLINE float4 fma(float4 x, float4 y, float4 z) { return x * y + z; }
    static NORMANS_INLINE float4 to_floats(int4 x) { return _mm_cvtepi32_ps(all(x)); }
    static NORMANS_INLINE int4 truncate(float4 x) { return int4(_mm_cvttps_epi32(x)); }

    struct doubles {
        __m128d first, last;
    };
    static NORMANS_INLINE doubles in_double(float4 x)
    {
        return {_mm_cvtps_pd(x), _mm_cvtps_pd(_mm_movehl_ps(x, x))};
    }
    static NORMANS_INLINE doubles in_double(const float* from)
    {
        return {two_in_double(from), two_in_double(from + 2)};
    }
    static NORMANS_INLINE float4 sum_in_double(const doubles& x, const doubles& y, const doubles& z,
                                               int4& low)
    {
        __m128d first = x.first * y.first + z.first, last = x.last * y.last + z.last;
        settle(first);
        settle(last);
        low = low_halves(first, last);
        float4 out = _mm_movelh_ps(_mm_cvtpd_ps(first), _mm_cvtpd_ps(last));
        settle(out);
        return out;
    }
    static NORMANS_INLINE int4 sum_is_inexact(const doubles& x, const doubles& y, const doubles& z)
    {
        return low_halves(is_rounded(x.first * y.first, z.first),
                          is_rounded(x.last * y.last, z.last));
    }
    static NORMANS_INLINE int4 z_in_double(const doubles& x, const doubles& y, const doubles& z)
    {
        return low_halves(shifted(x.first * y.first - z.first), shifted(x.last * y.last - z.last));
    }

private:
    static NORMANS_INLINE const __m128i* as_128(const void* from)
    {
        return static_cast<const __m128i*>(from);
    }
    template <class Register>
    static NORMANS_INLINE __m128i all(Register x)
    {
        return __m128i(x);
    }
    // NORMANS_OPAQUE, in registers.
    template <class Register>
    static NORMANS_INLINE void settle(Register& x)
    {
        asm("" : "+x"(x));
    }
    static NORMANS_INLINE __m128d two_in_double(const float* from)
    {
        return _mm_cvtps_pd(__m128(_mm_loadl_epi64(as_128(from))));
    }
    // Whether x + y is no double. The larger term's difference from the rounded sum is exact
    // (Dekker), so that both differences are the other term only if nothing was lost.
    static NORMANS_INLINE __m128d is_rounded(__m128d x, __m128d y)
    {
        __m128d sum = x + y;
        settle(sum);
        __m128d y_part = sum - x, x_part = sum - y;
        settle(y_part);
        settle(x_part);
        return _mm_or_pd(_mm_cmpneq_pd(y_part, y), _mm_cmpneq_pd(x_part, x));
    }
    static NORMANS_INLINE int4 low_halves(__m128d first, __m128d last)
    {
        return int4(_mm_shuffle_ps(__m128(first), __m128(last), 0x88));
    }
    static NORMANS_INLINE __m128d shifted(__m128d z)
    {
        const __m128d limit = _mm_set1_pd(detail::z_limit);
        z = _mm_max_pd(_mm_min_pd(z, limit), _mm_set1_pd(-detail::z_limit));
        settle(z);
        z = z + _mm_set1_pd(detail::z_shift);
        settle(z);
        return z;
    }
};

using native_registers = sse2_registers;
#else
using native_registers = plain_registers;
#endif

namespace detail {

// Where eight words go that spread over the set lanes of a mask, or come from those lanes.
struct run_moves {
    uint8_t expand[256][8];    // which word the lane gets
    uint8_t compress[256][8];  // which lane comes there: the set ones last, in order
    uint8_t bytes[256];        // of the words that move
};

constexpr run_moves make_run_moves()
{
    run_moves moves{};
    for (uint32_t m = 0; m < 256; ++m) {
        uint32_t count = 0, below = 0;
        for (uint32_t lane = 0; lane < 8; ++lane) count += m >> lane & 1;
        for (uint32_t lane = 0; lane < 8; ++lane) {
            if (!(m >> lane & 1)) continue;
            moves.expand[m][lane] = uint8_t(below);
            moves.compress[m][8 - count + below] = uint8_t(lane);
            ++below;
        }
        moves.bytes[m] = uint8_t(2 * count);
    }
    return moves;
}

inline constexpr run_moves run_moves_of = make_run_moves();

}  // namespace detail

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
