#pragma once
// Registers of floats for paged_attention.hpp: 16 by AVX-512, 8 by AVX2, else an array of 8 that
// compilers may put into registers. What each function computes is the same in a unit wherever it
// is called; other widths add in another order.

#include "../core/float_bits.hpp"

#if NORMANS_AVX2 || NORMANS_AVX512
#include <immintrin.h>
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// An e4m3fn code as float bits. Subnormals are what is left of a sum: no float is subnormal, so no
// processor is slow and flushing to zero does not matter.
constexpr uint32_t e4m3_normal = 120u << 23, e4m3_subnormal = 121u << 23;

#if NORMANS_AVX512

struct float_vector {
    static constexpr uint32_t width = 16;
    static constexpr __mmask16 every = 0xffff;  // g++ 12 warns of forms without a mask
    __m512 v;

    static float_vector load(const float* from) { return {_mm512_loadu_ps(from)}; }
    static float_vector all(float x) { return {_mm512_set1_ps(x)}; }
    void store(float* to) const { _mm512_storeu_ps(to, v); }

    static float_vector from_codes(const uint16_t* codes)  // bf16
    {
        const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
        const __m512i wide = _mm512_maskz_cvtepu16_epi32(every, c);
        return {_mm512_castsi512_ps(_mm512_maskz_slli_epi32(every, wide, 16))};
    }
    static float_vector from_codes(const uint8_t* codes)  // e4m3fn
    {
        const __m128i c8 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
        const __m512i c = _mm512_maskz_cvtepi8_epi32(every, c8);
        const __m512i sign = _mm512_set1_epi32(int(sign_bit));
        const __m512i mag = _mm512_and_si512(_mm512_maskz_slli_epi32(every, c, 20),
                                             _mm512_set1_epi32(0x07f00000));
        const __m512i normal = _mm512_add_epi32(mag, _mm512_set1_epi32(int(e4m3_normal)));
        const __m512i raised = _mm512_add_epi32(mag, _mm512_set1_epi32(int(e4m3_subnormal)));
        const __m512i base = _mm512_set1_epi32(int(e4m3_subnormal));
        const __m512 subnormal =
            _mm512_sub_ps(_mm512_castsi512_ps(raised), _mm512_castsi512_ps(base));
        const __mmask16 is_subnormal = _mm512_cmplt_epi32_mask(mag, _mm512_set1_epi32(1 << 23));
        __m512i bits = _mm512_mask_mov_epi32(normal, is_subnormal, _mm512_castps_si512(subnormal));
        const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(mag, _mm512_set1_epi32(0x07f00000));
        bits = _mm512_mask_mov_epi32(bits, is_nan, _mm512_set1_epi32(int(quiet_nan_bits)));
        return {_mm512_castsi512_ps(_mm512_or_si512(bits, _mm512_and_si512(c, sign)))};
    }

    friend float_vector operator+(float_vector a, float_vector b)
    {
        return {_mm512_add_ps(a.v, b.v)};
    }
    friend float_vector operator-(float_vector a, float_vector b)
    {
        return {_mm512_sub_ps(a.v, b.v)};
    }
    friend float_vector operator*(float_vector a, float_vector b)
    {
        return {_mm512_mul_ps(a.v, b.v)};
    }
    static float_vector fma(float_vector a, float_vector b, float_vector c)
    {
        return {_mm512_fmadd_ps(a.v, b.v, c.v)};
    }
    // b where one of them is a NaN.
    static float_vector larger(float_vector a, float_vector b)
    {
        return {_mm512_maskz_max_ps(every, a.v, b.v)};
    }

    // Of numbers that are small enough for an int. (GCC's roundscale does not compile cleanly.)
    float_vector nearest() const
    {
        return {_mm512_maskz_cvtepi32_ps(every, _mm512_maskz_cvtps_epi32(every, v))};
    }
    // 2^x of whole numbers, -127 .. 127; 0 for -127.
    float_vector power() const
    {
        const __m512i whole = _mm512_maskz_cvtps_epi32(every, v);
        const __m512i field = _mm512_add_epi32(whole, _mm512_set1_epi32(127));
        return {_mm512_castsi512_ps(_mm512_maskz_slli_epi32(every, field, 23))};
    }
    float sum() const
    {
        const __m256 s = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, v, 0),
                                       _mm512_maskz_extractf32x8_ps(0xff, v, 1));
        const __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
        const __m128 h = _mm_add_ps(q, _mm_movehl_ps(q, q));
        return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
    }
};

#elif NORMANS_AVX2

struct float_vector {
    static constexpr uint32_t width = 8;
    __m256 v;

    static float_vector load(const float* from) { return {_mm256_loadu_ps(from)}; }
    static float_vector all(float x) { return {_mm256_set1_ps(x)}; }
    void store(float* to) const { _mm256_storeu_ps(to, v); }

    static float_vector from_codes(const uint16_t* codes)
    {
        const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
        return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(c), 16))};
    }
    static float_vector from_codes(const uint8_t* codes)
    {
        const __m128i c8 = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
        const __m256i c = _mm256_cvtepi8_epi32(c8), sign = _mm256_set1_epi32(int(sign_bit));
        const __m256i mag = _mm256_and_si256(_mm256_slli_epi32(c, 20),
                                             _mm256_set1_epi32(0x07f00000));
        const __m256 normal = _mm256_castsi256_ps(
            _mm256_add_epi32(mag, _mm256_set1_epi32(int(e4m3_normal))));
        const __m256i base = _mm256_set1_epi32(int(e4m3_subnormal));
        const __m256 subnormal = _mm256_sub_ps(_mm256_castsi256_ps(_mm256_add_epi32(mag, base)),
                                               _mm256_castsi256_ps(base));
        const __m256i is_normal = _mm256_cmpgt_epi32(mag, _mm256_set1_epi32((1 << 23) - 1));
        const __m256i is_nan = _mm256_cmpeq_epi32(mag, _mm256_set1_epi32(0x07f00000));
        const __m256 value = _mm256_blendv_ps(subnormal, normal, _mm256_castsi256_ps(is_normal));
        const __m256i extra = _mm256_or_si256(_mm256_and_si256(c, sign), is_nan);
        return {_mm256_or_ps(value, _mm256_castsi256_ps(extra))};
    }

    friend float_vector operator+(float_vector a, float_vector b)
    {
        return {_mm256_add_ps(a.v, b.v)};
    }
    friend float_vector operator-(float_vector a, float_vector b)
    {
        return {_mm256_sub_ps(a.v, b.v)};
    }
    friend float_vector operator*(float_vector a, float_vector b)
    {
        return {_mm256_mul_ps(a.v, b.v)};
    }
    static float_vector fma(float_vector a, float_vector b, float_vector c)
    {
        return {_mm256_fmadd_ps(a.v, b.v, c.v)};
    }
    static float_vector larger(float_vector a, float_vector b) { return {_mm256_max_ps(a.v, b.v)}; }

    float_vector nearest() const
    {
        return {_mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
    }
    float_vector power() const
    {
        const __m256i field = _mm256_add_epi32(_mm256_cvtps_epi32(v), _mm256_set1_epi32(127));
        return {_mm256_castsi256_ps(_mm256_slli_epi32(field, 23))};
    }
    float sum() const
    {
        const __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        const __m128 h = _mm_add_ps(q, _mm_movehl_ps(q, q));
        return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
    }
};

#else

struct float_vector {
    static constexpr uint32_t width = 8;
    float v[width];

    template <class Function>
    static float_vector each(Function f)
    {
        float_vector r;
        NORMANS_UNROLL
        for (uint32_t i = 0; i < width; ++i) r.v[i] = f(i);
        return r;
    }

    static float_vector load(const float* from)
    {
        return each([=](uint32_t i) { return from[i]; });
    }
    static float_vector all(float x)
    {
        return each([=](uint32_t) { return x; });
    }
    void store(float* to) const
    {
        for (uint32_t i = 0; i < width; ++i) to[i] = v[i];
    }

    static float_vector from_codes(const uint16_t* codes)
    {
        return each([=](uint32_t i) { return bits_to_float(uint32_t(codes[i]) << 16); });
    }
    static float_vector from_codes(const uint8_t* codes)
    {
        return each([=](uint32_t i) {
            const uint32_t c = codes[i], mag = (c & 0x7f) << 20, sign = (c & 0x80) << 24;
            const float subnormal =
                bits_to_float(mag + e4m3_subnormal) - bits_to_float(e4m3_subnormal);
            const uint32_t bits = mag == 0x07f00000   ? quiet_nan_bits
                                  : mag < 1u << 23 ? float_to_bits(subnormal)
                                                   : mag + e4m3_normal;
            return bits_to_float(bits | sign);
        });
    }

    friend float_vector operator+(const float_vector& a, const float_vector& b)
    {
        return each([&](uint32_t i) { return a.v[i] + b.v[i]; });
    }
    friend float_vector operator-(const float_vector& a, const float_vector& b)
    {
        return each([&](uint32_t i) { return a.v[i] - b.v[i]; });
    }
    friend float_vector operator*(const float_vector& a, const float_vector& b)
    {
        return each([&](uint32_t i) { return a.v[i] * b.v[i]; });
    }
    static float_vector fma(const float_vector& a, const float_vector& b, const float_vector& c)
    {
        return each([&](uint32_t i) { return a.v[i] * b.v[i] + c.v[i]; });
    }
    static float_vector larger(const float_vector& a, const float_vector& b)
    {
        return each([&](uint32_t i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
    }

    // -127 .. 127, or NaN.
    static int whole(float x) { return x >= -127.0f ? int(x) : 0; }

    float_vector nearest() const
    {
        return each([&](uint32_t i) {
            const int near_zero = whole(v[i]);
            const float rest = v[i] - float(near_zero);
            return float(near_zero + (rest > 0.5f) - (rest < -0.5f));
        });
    }
    float_vector power() const
    {
        return each([&](uint32_t i) { return bits_to_float(uint32_t(whole(v[i]) + 127) << 23); });
    }
    float sum() const
    {
        const float s[4] = {v[0] + v[4], v[1] + v[5], v[2] + v[6], v[3] + v[7]};
        return (s[0] + s[2]) + (s[1] + s[3]);
    }
};

#endif

// 2^x for x <= 0, to about 2e-7; 0 below -127.
inline float_vector exp2_of(const float_vector& x)
{
    // ln(2)^k / k!
    constexpr float series[] = {1.5252734e-5f, 1.5403530e-4f, 1.3333558e-3f, 9.6181291e-3f,
                                5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.0f};
    const float_vector at = float_vector::larger(float_vector::all(-127.0f), x);
    const float_vector whole = at.nearest(), rest = at - whole;
    float_vector sum = float_vector::all(series[0]);
    for (int k = 1; k < 8; ++k)
        sum = float_vector::fma(sum, rest, float_vector::all(series[k]));
    return sum * whole.power();
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
