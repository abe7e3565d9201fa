#pragma once
// Means from a low-rank draft:
//     mean(t, c) = fma(float(sum_k u(t, k) v(k, c) 2^shift), scale_c, base_c).
// The factors are int8 and the sum is an int32 below 2^24, exact in fp32 too: the same on every
// processor, in any order, whatever multiplies. Scale and base are the affine map that predictors
// have anyway (channel_affine), so that nothing here rounds.
// How they lie in memory: ranks in groups of four, each group with one shift.
//     u[token * rank + k]    v[(k / 4 * channels + channel) * 4 + k % 4]    shift[k / 4]
// Four products are then one 32-bit load for dp4a, and a run of channels is one for SIMD.

#include <cstring>

#include "../block/predictor.hpp"
#include "../core/float_bits.hpp"

#if NORMANS_AVX2 || NORMANS_AVX512
#include <immintrin.h>
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {

using std::int8_t;

constexpr uint32_t max_rank = 1024;
constexpr uint32_t max_rank_shift = 7;  // then u 2^shift fits 16 bits

struct lowrank_factors {
    const int8_t* u;
    const int8_t* v;
    const uint8_t* shift;
    uint32_t tokens;
    uint32_t channels;
    uint32_t rank;  // a multiple of 4, filled up with zeros; 0: all sums are 0, u and v may be null
};

/// Whether every sum is exact: |u v| <= 2^14, so the 2^shift of all ranks may add up to 2^10.
NORMANS_HD constexpr bool exact_factors(const lowrank_factors& f)
{
    if (f.rank % 4 != 0 || f.rank > max_rank) return false;
    uint32_t weight = 0;
    for (uint32_t group = 0; group < f.rank / 4; ++group) {
        if (f.shift[group] > max_rank_shift) return false;
        weight += uint32_t(4) << f.shift[group];
    }
    return weight <= 1024;
}

/// One sum. On a GPU a __dp4a for each group; u and v must then lie at multiples of 4 bytes. (By
/// tensor cores: cuda/lowrank_tile.cuh.)
NORMANS_HD inline int32_t lowrank_sum(const lowrank_factors& f, uint32_t token, uint32_t channel)
{
    const int8_t* u = f.u + size_t(token) * f.rank;
    int32_t sum = 0;
    for (uint32_t k = 0; k < f.rank; k += 4) {
        const int8_t* v = f.v + (size_t(k / 4) * f.channels + channel) * 4;
        const int32_t scale = int32_t(1) << f.shift[k / 4];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
        int left, right;
        std::memcpy(&left, NORMANS_ALIGNED(u + k, 4), 4);
        std::memcpy(&right, NORMANS_ALIGNED(v, 4), 4);
        sum += __dp4a(left, right, 0) * scale;
#else
        int32_t four = 0;
        for (uint32_t i = 0; i < 4; ++i) four += int32_t(u[k + i]) * v[i];
        sum += four * scale;
#endif
    }
    return sum;
}

namespace detail {

#if NORMANS_AVX512
// Every processor with VBMI2 has VNNI. vpdpbusd wants one unsigned side: u + 128, so 128 times the
// sum of v is taken off in the end. 16 channels of a token.
NORMANS_TARGET("avx512vnni") inline void add_groups(
    const lowrank_factors& f, uint32_t token, uint32_t channel, __m512i& sum)
{
    const int8_t* u = f.u + size_t(token) * f.rank;
    const __m512i ones = _mm512_set1_epi8(1);
    constexpr __mmask16 all = 0xffff;  // plain forms start from an undefined register: g++ 12 warns
    for (uint32_t group = 0; group < f.rank / 4; ++group) {
        const int8_t* v = f.v + (size_t(group) * f.channels + channel) * 4;
        uint32_t four;
        std::memcpy(&four, u + group * 4, 4);
        const __m512i left = _mm512_set1_epi32(int32_t(four ^ 0x80808080u));
        const __m512i right = _mm512_loadu_si512(v);
        const __m512i raised = _mm512_dpbusd_epi32(_mm512_setzero_si512(), left, right);
        const __m512i column = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, right);
        const __m512i product = _mm512_sub_epi32(raised, _mm512_maskz_slli_epi32(all, column, 7));
        sum = _mm512_add_epi32(
            sum, _mm512_maskz_sll_epi32(all, product, _mm_cvtsi32_si128(f.shift[group])));
    }
}
#elif NORMANS_AVX2
// 8 channels of `Tokens` tokens; `wide`: their u with shifts, a run of f.rank numbers each.
template <uint32_t Tokens>
inline void sum_groups(const lowrank_factors& f, const int16_t* wide, uint32_t channel,
                       __m256i* sums)
{
    __m256i low[Tokens], high[Tokens];  // channels 0..3 and 4..7, two sums each
    for (uint32_t t = 0; t < Tokens; ++t) low[t] = high[t] = _mm256_setzero_si256();
    for (uint32_t k = 0; k < f.rank; k += 4) {
        const int8_t* v = f.v + (size_t(k / 4) * f.channels + channel) * 4;
        __m128i first, second;
        std::memcpy(&first, v, 16);
        std::memcpy(&second, v + 16, 16);
        const __m256i a = _mm256_cvtepi8_epi16(first), b = _mm256_cvtepi8_epi16(second);
        NORMANS_UNROLL
        for (uint32_t t = 0; t < Tokens; ++t) {
            int64_t four;
            std::memcpy(&four, wide + t * f.rank + k, 8);
            const __m256i u = _mm256_set1_epi64x(four);
            low[t] = _mm256_add_epi32(low[t], _mm256_madd_epi16(a, u));
            high[t] = _mm256_add_epi32(high[t], _mm256_madd_epi16(b, u));
        }
    }
    for (uint32_t t = 0; t < Tokens; ++t)
        sums[t] = _mm256_permute4x64_epi64(_mm256_hadd_epi32(low[t], high[t]), 0xd8);
}
#endif

// Rows [first, first + Tokens) of the sums, as floats.
template <uint32_t Tokens>
inline void expand_rows(const lowrank_factors& f, uint32_t first, float* out, ptrdiff_t stride)
{
    uint32_t channel = 0;
#if NORMANS_AVX512
    for (; channel + 16 <= f.channels; channel += 16) {
        for (uint32_t t = 0; t < Tokens; ++t) {
            __m512i sum = _mm512_setzero_si512();
            add_groups(f, first + t, channel, sum);
            _mm512_storeu_ps(out + ptrdiff_t(t) * stride + channel,
                             _mm512_maskz_cvtepi32_ps(0xffff, sum));
        }
    }
#elif NORMANS_AVX2
    int16_t wide[Tokens * max_rank];
    for (uint32_t t = 0; t < Tokens; ++t)
        for (uint32_t k = 0; k < f.rank; ++k)
            wide[t * f.rank + k] = int16_t(f.u[size_t(first + t) * f.rank + k] *
                                           (1 << f.shift[k / 4]));
    for (; channel + 8 <= f.channels; channel += 8) {
        __m256i sums[Tokens];
        sum_groups<Tokens>(f, wide, channel, sums);
        for (uint32_t t = 0; t < Tokens; ++t)
            _mm256_storeu_ps(out + ptrdiff_t(t) * stride + channel, _mm256_cvtepi32_ps(sums[t]));
    }
#endif
    for (uint32_t t = 0; t < Tokens; ++t)
        for (uint32_t c = channel; c < f.channels; ++c)
            out[ptrdiff_t(t) * stride + c] = float(lowrank_sum(f, first + t, c));
}

}  // namespace detail

/// The sums of tokens [first, first + count) as floats, exact: out[(t - first) * stride + channel].
/// Read them as fp32_means, with scale and base as the affine map. f must have exact_factors().
inline void expand_lowrank(const lowrank_factors& f, uint32_t first, uint32_t count, float* out,
                           ptrdiff_t stride) noexcept
{
    uint32_t done = 0;
    for (; done + 4 <= count; done += 4)
        detail::expand_rows<4>(f, first + done, out + ptrdiff_t(done) * stride, stride);
    for (; done < count; ++done)
        detail::expand_rows<1>(f, first + done, out + ptrdiff_t(done) * stride, stride);
}

/// The same as a view: nothing is expanded, every scalar costs `rank` products. Channels of a box
/// lie head by head.
struct lowrank_means {
    lowrank_factors factors;
    uint32_t dim;

    NORMANS_HD float operator()(const scalar_position& at) const
    {
        return float(lowrank_sum(factors, at.token, at.head * dim + at.channel));
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
