#pragma once
// A correction of means by what was decoded before: residuals of the layer below, of K for V, or
// the predictor's own means, as int8 features times an int8 matrix:
//     mean'(t, c) = fma(float(sum_k feature(t, k) weight(k, c)), scale_c, mean(t, c)).
// A residual is the difference of two integers on a grid of powers of two, so both sides of a coder
// get the same; the sum is an integer below 2^24, exact in fp32 too; the fma rounds once.
// Features lie in [-63, 63]: two products of a byte each then fit 16 bits in AVX2's pairs.
//     features[token * map.features + k]    weights[(k / 4 * channels + channel) * 4 + k % 4]

#include <cstring>

#include "../block/predictor.hpp"
#include "../core/float_bits.hpp"
#include "../status.hpp"

#if NORMANS_AVX2 || NORMANS_AVX512
#include <immintrin.h>
#elif NORMANS_SSE2
#include <emmintrin.h>
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {

using std::int8_t;

constexpr int32_t largest_feature = 63;
constexpr int32_t largest_weight = 127;
constexpr uint32_t max_features = 8192;
constexpr int32_t grid_limit = 1 << 24;  // grid values are clamped to it
constexpr int min_grid_exponent = -100;
constexpr int max_grid_exponent = 60;

/// A float in units of 2^exponent, halves away from zero, clamped to +-grid_limit. NaN: 0.
NORMANS_HD constexpr int32_t grid_value(uint32_t bits, int exponent)
{
    const uint32_t field = exponent_field(bits);
    if (is_nan(bits)) return 0;
    const uint32_t significand = (bits & 0x7fffff) | (field != 0 ? 0x800000u : 0);
    const int shift = int(field) - 150 - exponent;
    uint32_t magnitude = uint32_t(grid_limit);
    if (field == 0 || shift < -24) magnitude = 0;
    else if (shift < 0) magnitude = ((significand >> (-shift - 1)) + 1) >> 1;
    else if (shift == 0) magnitude = significand;
    return bits >> 31 != 0 ? -int32_t(magnitude) : int32_t(magnitude);
}

/// value - mean on the grid, less the centre, clamped to a feature. NaN in either: 0.
NORMANS_HD constexpr int8_t residual_feature(uint32_t value, uint32_t mean, int exponent,
                                             int32_t centre)
{
    if (is_nan(value) || is_nan(mean)) return 0;
    const int32_t r = grid_value(value, exponent) - grid_value(mean, exponent) - centre;
    return int8_t(r < -largest_feature ? -largest_feature
                                       : r > largest_feature ? largest_feature : r);
}

/// The exponent of the step for residuals of a deviation of 2^(sigma_offset + index / 8): an eighth
/// of it, so that features reach about 8 deviations. Sigma 0: no residual below 2^59 is seen.
NORMANS_HD constexpr int8_t residual_exponent(uint32_t sigma_index, int sigma_offset)
{
    if (sigma_index == sigma_zero) return int8_t(max_grid_exponent);
    const int exponent = sigma_offset + int((sigma_index + 4) / 8) - 3;
    return int8_t(exponent < min_grid_exponent ? min_grid_exponent
                                               : exponent > max_grid_exponent ? max_grid_exponent
                                                                              : exponent);
}

/// The grid of a tensor's channels (head * dim + channel).
struct residual_grid {
    const int8_t* exponent;  // of a channel's step
    const int32_t* centre;   // the usual residual in steps; null: all 0
    uint32_t channels;
};

/// bad_argument: an exponent or a centre that no fit makes.
NORMANS_HD inline status check_grid(const residual_grid& grid)
{
    for (uint32_t c = 0; c < grid.channels; ++c)
        if (grid.exponent[c] < min_grid_exponent || grid.exponent[c] > max_grid_exponent ||
            (grid.centre != nullptr &&
             (grid.centre[c] < -grid_limit || grid.centre[c] > grid_limit)))
            return status::bad_argument;
    return status::ok;
}

/// The features of a token's row. `means` null: all 0, for features of the values themselves.
NORMANS_HD inline void residual_features(const residual_grid& grid, const float* values,
                                         const float* means, int8_t* out)
{
    for (uint32_t c = 0; c < grid.channels; ++c)
        out[c] = residual_feature(float_to_bits(values[c]),
                                  means == nullptr ? 0 : float_to_bits(means[c]), grid.exponent[c],
                                  grid.centre == nullptr ? 0 : grid.centre[c]);
}

struct cross_layer_map {
    const int8_t* weights;
    const float* scale;  // a channel; zero or normal; 0: its mean stays
    uint32_t features;   // a multiple of 4, filled up with zero weights
    uint32_t channels;
};

/// bad_argument: a count of features that is none, a weight of -128, a scale that is not zero or
/// normal, or weights of a channel whose magnitudes add up to 2^24 / 63 or more (that takes more
/// than 2,096 features).
NORMANS_HD inline status check_cross_layer(const cross_layer_map& map)
{
    if (map.features % 4 != 0 || map.features > max_features) return status::bad_argument;
    for (uint32_t c = 0; c < map.channels; ++c) {
        const uint32_t scale = float_to_bits(map.scale[c]);
        if (exponent_field(scale) == 255 || (exponent_field(scale) == 0 && scale << 1 != 0))
            return status::bad_argument;
        int32_t sum = 0;
        for (uint32_t k = 0; k < map.features; ++k) {
            const int32_t w = map.weights[(size_t(k / 4) * map.channels + c) * 4 + k % 4];
            if (w < -largest_weight) return status::bad_argument;
            sum += w < 0 ? -w : w;
        }
        if (sum * int64_t(largest_feature) >= 1 << 24) return status::bad_argument;
    }
    return status::ok;
}

/// One sum. On a GPU a __dp4a for four features; both arrays must then lie at multiples of 4 bytes.
NORMANS_HD inline int32_t cross_layer_sum(const cross_layer_map& map, const int8_t* features,
                                          uint32_t channel)
{
    int32_t sum = 0;
    for (uint32_t k = 0; k < map.features; k += 4) {
        const int8_t* weights = map.weights + (size_t(k / 4) * map.channels + channel) * 4;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
        int left, right;
        std::memcpy(&left, NORMANS_ALIGNED(features + k, 4), 4);
        std::memcpy(&right, NORMANS_ALIGNED(weights, 4), 4);
        sum = __dp4a(left, right, sum);
#else
        for (uint32_t i = 0; i < 4; ++i) sum += int32_t(features[k + i]) * weights[i];
#endif
    }
    return sum;
}

/// mean' as bits. A sum or a scale of 0 and a mean that is NaN or infinite leave the mean as it is;
/// other means are taken and given as map_mean does (exponent field 0, of the result also 1: zero).
NORMANS_HD inline uint32_t corrected_mean(float sum, uint32_t scale, uint32_t mean)
{
    if (sum == 0 || scale << 1 == 0 || exponent_field(mean) == 255) return mean;
    if (exponent_field(mean) == 0) mean &= sign_bit;
    return map_mean(float_to_bits(sum), scale, mean);
}

namespace detail {

#if NORMANS_AVX2 || NORMANS_AVX512

// Features + 64 are unsigned, as the products of bytes want one side; sums start at -64 times the
// weights' own, which `ones` in place of features give.
constexpr int32_t feature_bias = 64;

#if NORMANS_AVX512
struct sum_register {
    static constexpr uint32_t channels = 16;
    __m512i value = _mm512_setzero_si512();

    NORMANS_TARGET("avx512vnni") NORMANS_INLINE void add(uint32_t four, const int8_t* weights)
    {
        value = _mm512_dpbusd_epi32(value, _mm512_set1_epi32(int32_t(four)),
                                    _mm512_loadu_si512(weights));
    }
    NORMANS_INLINE void take_bias(const sum_register& of_weights)
    {
        value = _mm512_sub_epi32(value, _mm512_maskz_slli_epi32(0xffff, of_weights.value, 6));
    }
    NORMANS_INLINE void store(float* to) const
    {
        _mm512_storeu_ps(to, _mm512_maskz_cvtepi32_ps(0xffff, value));
    }
};
#else
struct sum_register {
    static constexpr uint32_t channels = 8;
    __m256i value = _mm256_setzero_si256();

    NORMANS_INLINE void add(uint32_t four, const int8_t* weights)
    {
        __m256i right;
        std::memcpy(&right, weights, sizeof right);
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi32(int32_t(four)), right);
        value = _mm256_add_epi32(value, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    NORMANS_INLINE void take_bias(const sum_register& of_weights)
    {
        value = _mm256_sub_epi32(value, _mm256_slli_epi32(of_weights.value, 6));
    }
    NORMANS_INLINE void store(float* to) const { _mm256_storeu_ps(to, _mm256_cvtepi32_ps(value)); }
};
#endif

// Sums of `Tokens` tokens for the channels of two registers; `raised`: their features + 64.
template <uint32_t Tokens>
#if NORMANS_AVX512
NORMANS_TARGET("avx512vnni")
#endif
inline void sum_features(const cross_layer_map& map, const uint8_t* raised, uint32_t channel,
                         float* out)
{
    constexpr uint32_t wide = sum_register::channels;
    sum_register low[Tokens], high[Tokens], weights_low, weights_high;
    for (uint32_t k = 0; k < map.features; k += 4) {
        const int8_t* weights = map.weights + (size_t(k / 4) * map.channels + channel) * 4;
        NORMANS_UNROLL
        for (uint32_t t = 0; t < Tokens; ++t) {
            uint32_t four;
            std::memcpy(&four, raised + size_t(t) * map.features + k, 4);
            low[t].add(four, weights);
            high[t].add(four, weights + wide * 4);
        }
        weights_low.add(0x01010101, weights);
        weights_high.add(0x01010101, weights + wide * 4);
    }
    NORMANS_UNROLL
    for (uint32_t t = 0; t < Tokens; ++t) {
        low[t].take_bias(weights_low);
        high[t].take_bias(weights_high);
        low[t].store(out + size_t(t) * map.channels + channel);
        high[t].store(out + size_t(t) * map.channels + channel + wide);
    }
}
#endif

#if NORMANS_SSE2 && !NORMANS_AVX2 && !NORMANS_AVX512
// The same for 4 channels with 16-bit products. `wide`: features as 16 bits.
template <uint32_t Tokens>
inline void sum_features(const cross_layer_map& map, const int16_t* wide, uint32_t channel,
                         float* out)
{
    const __m128i zero = _mm_setzero_si128();
    __m128i low[Tokens], high[Tokens];  // two channels each, two sums a channel
    for (uint32_t t = 0; t < Tokens; ++t) low[t] = high[t] = zero;
    for (uint32_t k = 0; k < map.features; k += 4) {
        const int8_t* weights = map.weights + (size_t(k / 4) * map.channels + channel) * 4;
        __m128i four;
        std::memcpy(&four, weights, sizeof four);
        const __m128i a = _mm_srai_epi16(_mm_unpacklo_epi8(zero, four), 8);
        const __m128i b = _mm_srai_epi16(_mm_unpackhi_epi8(zero, four), 8);
        NORMANS_UNROLL
        for (uint32_t t = 0; t < Tokens; ++t) {
            int64_t features;
            std::memcpy(&features, wide + size_t(t) * map.features + k, 8);
            const __m128i twice = _mm_set1_epi64x(features);
            low[t] = _mm_add_epi32(low[t], _mm_madd_epi16(a, twice));
            high[t] = _mm_add_epi32(high[t], _mm_madd_epi16(b, twice));
        }
    }
    for (uint32_t t = 0; t < Tokens; ++t) {
        const __m128 x = _mm_castsi128_ps(low[t]), y = _mm_castsi128_ps(high[t]);
        const __m128i even = _mm_castps_si128(_mm_shuffle_ps(x, y, 0x88));
        const __m128i odd = _mm_castps_si128(_mm_shuffle_ps(x, y, 0xdd));
        _mm_storeu_ps(out + size_t(t) * map.channels + channel,
                      _mm_cvtepi32_ps(_mm_add_epi32(even, odd)));
    }
}
#endif

// Sums of Tokens adjacent tokens as floats, exact: out[token * channels + channel].
template <uint32_t Tokens>
inline void sum_rows(const cross_layer_map& map, const int8_t* features, float* out)
{
    if (map.features == 0) {
        for (size_t i = 0; i < size_t(Tokens) * map.channels; ++i) out[i] = 0;
        return;
    }
    uint32_t channel = 0;
#if NORMANS_AVX2 || NORMANS_AVX512
    uint8_t raised[Tokens * max_features];
    for (uint32_t i = 0; i < Tokens * map.features; ++i)
        raised[i] = uint8_t(features[i] + feature_bias);
    for (; channel + 2 * sum_register::channels <= map.channels;
         channel += 2 * sum_register::channels)
        sum_features<Tokens>(map, raised, channel, out);
#elif NORMANS_SSE2
    int16_t wide[Tokens * max_features];
    for (uint32_t i = 0; i < Tokens * map.features; ++i) wide[i] = features[i];
    for (; channel + 4 <= map.channels; channel += 4)
        sum_features<Tokens>(map, wide, channel, out);
#endif
    for (uint32_t t = 0; t < Tokens; ++t)
        for (uint32_t c = channel; c < map.channels; ++c)
            out[size_t(t) * map.channels + c] =
                float(cross_layer_sum(map, features + size_t(t) * map.features, c));
}

}  // namespace detail

/// The sums of `tokens` tokens as floats: sums[token * channels + channel]. The map must have
/// passed check_cross_layer, features lie in +-largest_feature.
inline void cross_layer_sums(const cross_layer_map& map, const int8_t* features, uint32_t tokens,
                             float* sums) noexcept
{
    uint32_t done = 0;
    for (; done + 4 <= tokens; done += 4)
        detail::sum_rows<4>(map, features + size_t(done) * map.features,
                            sums + size_t(done) * map.channels);
    for (; done < tokens; ++done)
        detail::sum_rows<1>(map, features + size_t(done) * map.features,
                            sums + size_t(done) * map.channels);
}

/// Means [tokens, channels] corrected in place. `sums`: what cross_layer_sums gave.
inline void correct_means(const cross_layer_map& map, const float* sums, uint32_t tokens,
                          float* means) noexcept
{
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t c = 0; c < map.channels; ++c) {
            const size_t i = size_t(t) * map.channels + c;
            means[i] = bits_to_float(
                corrected_mean(sums[i], float_to_bits(map.scale[c]), float_to_bits(means[i])));
        }
}

/// The same as a view over other means, for a predictor: every scalar costs `features` products.
/// Features of a page's tokens; channels of a box lie head by head.
template <class Means>
struct cross_layer_means {
    Means means;
    cross_layer_map map;
    const int8_t* features;
    uint32_t dim;

    NORMANS_HD float operator()(const scalar_position& at) const
    {
        const uint32_t channel = at.head * dim + at.channel;
        const int32_t sum =
            cross_layer_sum(map, features + size_t(at.token) * map.features, channel);
        return bits_to_float(corrected_mean(float(sum), float_to_bits(map.scale[channel]),
                                            float_to_bits(means(at))));
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
