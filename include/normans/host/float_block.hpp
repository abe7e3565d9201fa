#pragma once
// The steps of tANS blocks of fp8 and e2m1 whose predictions are arrays, as tans_block.hpp has
// those of integers: a batch of rows of the bank, then the lanes. By AVX2 (float_planes.hpp) where
// the unit is compiled for it, else lane after lane (float_loop.hpp).

#include "float_loop.hpp"
#include "tans_block.hpp"

#if NORMANS_AVX2
#include "float_planes.hpp"
#else
#include "planes_portable.hpp"
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

/// Rows of a float bank, batch by batch.
class float_source {
public:
    float_source(const block_spec& spec, const array_predictor& predictor,
                 const row_steps_view& row_steps)
        : spec_(spec),
          affine_(predictor.affine),
          plain_{predictor.means, predictor.sigmas, {}},
          views_(NORMANS_AVX2 ? predictor : plain_),
          row_steps_(row_steps),
          scaled_(has_scale(spec.dtype)),
          scale_(make_scale(scaled_ ? 0 : one_bits)),
          levels_(format_of(spec.dtype), spec.bank->plan)
    {
    }

    /// As tans_source has it.
    template <class Rows>
    void find_rows(const box_walker& walker, uint32_t n, Rows& rows, uint32_t* hashed)
    {
        for_runs(walker, n, [&](uint32_t offset, const scalar_position& at, uint32_t length) {
            views_.load(at, length, in_.mean + offset, in_.sigma + offset);
            if (!NORMANS_AVX2 && affine_.a != nullptr) map_means(at, length, in_.mean + offset);
            const int step = row_steps_(at.token);
            const auto under_scale = [&](uint32_t from, uint32_t here, uint32_t bits) {
                const uint32_t first = offset + from;
                if (scaled_) take_scale(bits);
                if (spec_.parameter_hash) add_words(first, here, step, hashed);
                if (scaled_) divide(first, here);
                const int origin =
                    scale_.scale == 0
                        ? float_keys::none
                        : levels_.keys().origin(spec_.sigma_offset, step, scale_);
#if NORMANS_AVX2
                levels_.under_origin(in_, first, here, origin);
#else
                levels_.find_rows(in_, first, here, origin, rows);
#endif
            };
            if (scaled_) for_scales(spec_.scales, at, length, under_scale);
            else under_scale(0, length, 0);
        });
#if NORMANS_AVX2
        levels_.find_rows(in_, n, rows);
#endif
    }

private:
    void take_scale(uint32_t bits)
    {
        if (bits == last_bits_) return;
        scale_ = make_scale(bits);
        last_bits_ = bits;
    }

    void map_means(const scalar_position& at, uint32_t n, uint32_t* mean) const
    {
        const size_t channel = size_t(at.head) * affine_.dim + at.channel;
        const float* const a = affine_.a + channel;
        const float* const b = affine_.b + channel;
        uint32_t i = 0;
#if !NORMANS_AVX2
        using planes = portable_planes<1>;
        constexpr uint32_t width = 32;
        for (; i + width <= n; i += width) {
            float* const at_once = reinterpret_cast<float*>(mean + i);
            planes::keep(at_once, planes::map_means(planes::load(at_once), a + i, b + i));
        }
#endif
        for (; i < n; ++i)
            mean[i] = map_mean(mean[i], float_to_bits(a[i]), float_to_bits(b[i]));
    }

    // Means in code units.
    void divide(uint32_t first, uint32_t n)
    {
        uint32_t i = first;
#if NORMANS_AVX2
        const __m256 inverse = _mm256_castsi256_ps(_mm256_set1_epi32(int(scale_.inverse)));
        for (; i + 8 <= first + n && scale_.scale != 0; i += 8) {
            float* const at = reinterpret_cast<float*>(in_.mean + i);
            _mm256_storeu_ps(at, _mm256_mul_ps(_mm256_loadu_ps(at), inverse));
        }
#endif
        for (; i < first + n; ++i) in_.mean[i] = mean_in_codes(in_.mean[i], scale_);
    }

    void add_words(uint32_t first, uint32_t n, int step, uint32_t* hashed) const
    {
        for (uint32_t i = first; i < first + n; ++i)
            hashed[i] = parameter_word(map_mean(in_.mean[i], one_bits, minus_zero_bits),
                                       in_.sigma[i], step) ^
                        last_bits_;
    }

    const block_spec& spec_;
    channel_affine affine_;
    array_predictor plain_;  // without the map, which portable planes compute faster
    tans_views views_;
    row_steps_view row_steps_;
    tans_predictions in_;
    bool scaled_;
    uint32_t last_bits_ = 0;
    code_scale scale_;
#if NORMANS_AVX2
    const x86_float_mode mode_;  // of affine maps and scales
    float_plane_levels levels_;
#else
    const portable_planes<1>::float_mode mode_;
    float_levels levels_;
#endif
};

#if NORMANS_AVX2
using float_decoder = float_plane_decoding;
using float_encoder = float_plane_encoding;
#else
using float_decoder = float_decoding;
using float_encoder = float_encoding;
#endif

/// decode_tans_steps() for any type.
inline status decode_array_steps(const block_spec& spec, const array_predictor& predictor,
                                 const packed_codes<uint8_t>& to, const row_steps_view& row_steps,
                                 uint32_t lanes, word_reader& words, const uint8_t* states,
                                 block_sums& sums, bool& opened)
{
    if (format_of(spec.dtype).is_integer)
        return decode_tans_steps(spec, predictor, to, row_steps, lanes, words, states, sums,
                                 opened);
    float_source source(spec, predictor, row_steps);
    return decode_tans_batches<float_decoder>(
        spec, lanes,
        [&](const box_walker& walker, uint32_t batch, auto& rows, uint32_t* hashed) {
            source.find_rows(walker, batch, rows, hashed);
        },
        add_codes, to, states, words, sums, opened);
}

/// encode_tans_steps() for any type. A template as encode_scaled() is.
template <class Code>
bool encode_array_steps(const block_spec& spec, const array_predictor& predictor,
                        const packed_codes<const Code>& from, const row_steps_view& row_steps,
                        uint32_t lanes, word_writer& words, uint32_t* stored, block_sums& sums,
                        uint32_t& escapes)
{
    if (format_of(spec.dtype).is_integer)
        return encode_tans_steps(spec, predictor, from, row_steps, lanes, words, stored, sums,
                                 escapes);
    float_source source(spec, predictor, row_steps);
    return encode_tans_batches<float_decoder::rows_type, float_encoder>(
        spec, lanes,
        [&](const box_walker& walker, uint32_t batch, auto& rows, uint32_t* hashed) {
            source.find_rows(walker, batch, rows, hashed);
        },
        from, words, stored, sums, escapes);
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
