#pragma once
// The steps of tANS blocks of int8 and int4 whose predictions are arrays: means, sigmas and scales
// along rows of channels, a batch of rows of the bank, then the lanes. By AVX2 or AVX-512
// (tans_planes.hpp) where the unit is compiled for it, else lane after lane (tans_loop.hpp). Bytes
// and statuses are those of the definition in scaled_block.hpp, which serves callables.
// By AVX2 tANS decodes faster than rANS's planes and encodes a little slower, at more bits and with
// a bank in the cache (bench/run: int8 and int4 by both). Processors without floating point have
// host/integer_decoder.hpp.

#include "block_job.hpp"
#include "float_mode.hpp"
#include "tans_loop.hpp"

#if NORMANS_AVX2
#include "tans_planes.hpp"
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

/// What a result says of blocks that were coded here, or (fp8 and e2m1) in float_block.hpp.
constexpr backend_id tans_backend(scalar_type type, uint32_t lanes)
{
    if (lanes == 1) return backend_id::scalar;
    if (NORMANS_AVX512 && format_of(type).is_integer) return backend_id::avx512;
    return NORMANS_AVX2 ? backend_id::avx2 : backend_id::portable;
}

/// Means and sigma indices of array views along a row.
class tans_views {
public:
    tans_views(const array_predictor& from) : from_(from)
    {
        const scalar_type type = from.means.type;
        if (type == any_means::fp32 || type == scalar_type::bf16) return;
        for (uint32_t code = 0; code < 256; ++code) {
            const uint8_t byte = uint8_t(code);
            fp8_means{&byte, 0, 0, type}.run({}, 1, fp8_ + code);
        }
    }

    void load(const scalar_position& at, uint32_t n, uint32_t* mean, uint8_t* sigma) const
    {
        const any_means& means = from_.means;
        const ptrdiff_t first = offset_of(at, means.head_stride, means.token_stride);
        affine map{};
        if (from_.affine.a != nullptr) {
            const size_t channel = size_t(at.head) * from_.affine.dim + at.channel;
            map = {from_.affine.a + channel, from_.affine.b + channel};
        }
        if (means.type == any_means::fp32)
            load_means(static_cast<const float*>(means.data) + first, map, n, mean);
        else if (means.type == scalar_type::bf16)
            load_means(static_cast<const uint16_t*>(means.data) + first, map, n, mean);
        else load_means(static_cast<const uint8_t*>(means.data) + first, map, n, mean);
        load_sigmas(at, n, sigma);
    }

private:
    struct affine {
        const float* a;
        const float* b;
    };

    // map_mean(), but for what cleaning would change.
    template <class Mean>
    void load_means(const Mean* from, affine map, uint32_t n, uint32_t* to) const
    {
        uint32_t i = 0;
#if NORMANS_AVX2
        const auto put = [&](__m256 mean) NORMANS_LAMBDA {
            _mm256_storeu_ps(reinterpret_cast<float*>(to + i), mean);
        };
        if (map.a == nullptr) {
            for (; i + 8 <= n; i += 8) put(eight(from + i));
        } else {
            NORMANS_UNROLL_SOME
            for (; i + 8 <= n; i += 8)
                put(_mm256_fmadd_ps(eight(from + i), _mm256_loadu_ps(map.a + i),
                                    _mm256_loadu_ps(map.b + i)));
        }
#endif
        for (; i < n; ++i) {
            const uint32_t mean = bits_of(from[i]);
            to[i] = map.a == nullptr
                        ? mean
                        : map_mean(mean, float_to_bits(map.a[i]), float_to_bits(map.b[i]));
        }
    }

    // memcpy, but for the call.
    static void copy_bytes(const uint8_t* from, uint32_t n, uint8_t* to)
    {
        uint32_t i = 0;
#if NORMANS_AVX2
        for (; i + 32 <= n; i += 32) tans_avx2::store(to + i, tans_avx2::load(from + i));
#endif
        if (i < n) std::memcpy(to + i, from + i, n - i);
    }

    static uint32_t bits_of(float mean) { return float_to_bits(mean); }
    static uint32_t bits_of(uint16_t mean) { return uint32_t(mean) << 16; }
    uint32_t bits_of(uint8_t mean) const { return fp8_[mean]; }
#if NORMANS_AVX2
    static NORMANS_INLINE __m256 eight(const float* from) { return _mm256_loadu_ps(from); }
    static NORMANS_INLINE __m256 eight(const uint16_t* from)
    {
        return _mm256_castsi256_ps(_mm256_slli_epi32(
            _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))), 16));
    }
    NORMANS_INLINE __m256 eight(const uint8_t* from) const
    {
        uint32_t bits[8];
        for (uint32_t i = 0; i < 8; ++i) bits[i] = fp8_[from[i]];
        return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bits)));
    }
#endif

    void load_sigmas(scalar_position at, uint32_t n, uint8_t* to) const
    {
        const any_sigmas& sigmas = from_.sigmas;
        if (sigmas.type == any_sigmas::kind::index) {
            const uint8_t* const from = static_cast<const uint8_t*>(sigmas.data) +
                                        sigmas.place_of(at);
            const uint32_t stride = sigmas.scalar_stride + sigmas.channel_stride;
            if (stride == 0) std::memset(to, *from, n);
            else if (stride == 1) copy_bytes(from, n, to);
            else for (uint32_t i = 0; i < n; ++i) to[i] = from[size_t(i) * stride];
        } else {
            for (uint32_t i = 0; i < n; ++i, ++at.index, ++at.channel) to[i] = sigmas(at);
        }
    }

    const array_predictor& from_;
    uint32_t fp8_[256];
};

/// Runs f(offset, channels, bits) over the parts of a run that share a scale, whose bits they are.
template <class Function>
void for_scales(const scale_view& scales, const scalar_position& at, uint32_t length, Function f)
{
    const uint32_t size = scales.group, group = size == 0 ? 0 : at.channel / size;
    const float* scale = scales.data + (ptrdiff_t(at.head) * scales.head_stride +
                                        ptrdiff_t(at.token) * scales.token_stride +
                                        ptrdiff_t(group) * scales.group_stride);
    uint32_t left = size == 0 ? length : size - (at.channel - group * size);
    for (uint32_t offset = 0; offset != length; left = size) {
        const uint32_t here = left < length - offset ? left : length - offset;
        f(offset, here, float_to_bits(*scale));
        offset += here;
        if (offset != length) scale += scales.group_stride;
    }
}

/// Rows of a bank, batch by batch.
class tans_source {
public:
    tans_source(const block_spec& spec, const array_predictor& predictor,
                const row_steps_view& row_steps)
        : spec_(spec),
          views_(predictor),
          row_steps_(row_steps),
          levels_(format_of(spec.dtype), *spec.bank)
    {
    }

    /// The next n scalars from `walker` on, which begin a batch; where it is wanted also their
    /// words for the parameter hash.
    template <class Rows>
    void find_rows(const box_walker& walker, uint32_t n, Rows& rows, uint32_t* hashed)
    {
        rows.grouped = false;
#if NORMANS_AVX2
        pieces_.count = 0;
#endif
        for_runs(walker, n, [&](uint32_t offset, const scalar_position& at, uint32_t length) {
            views_.load(at, length, in_.mean + offset, in_.sigma + offset);
            const int step = row_steps_(at.token);
            for_scales(spec_.scales, at, length, [&](uint32_t from, uint32_t here, uint32_t bits) {
                const uint32_t first = offset + from;
                under_scale(first, here, bits, step, rows);
                if (spec_.parameter_hash) add_words(first, here, step, bits, hashed);
            });
        });
#if NORMANS_AVX2
        levels_.under_scales(in_, pieces_, scalars_);
        levels_.find_rows(scalars_, n, rows);
#endif
    }

private:
    template <class Rows>
    void under_scale(uint32_t first, uint32_t n, uint32_t scale_bits, int step, Rows& rows)
    {
        const int origin = 8 * (spec_.sigma_offset - lowest_bank_octave) + 2 * step;
#if NORMANS_AVX2
        static_cast<void>(rows);
        pieces_.add(first + n, scale_bits, origin);
#else
        const scalar_format format = format_of(spec_.dtype);
        if (scale_bits != last_bits_) {
            scale_ = make_scale(scale_bits);
            last_bits_ = scale_bits;
        }
        if (scale_.scale != 0)
            levels_.find_rows(in_.sigma + first, first, n, origin - scale_.eighths,
                              mean_places(in_.mean + first, format, scale_), rows);
        else levels_.find_rows(in_.sigma + first, first, n, tans_levels::none,
                               zero_places{format.code_sign() << 8}, rows);
#endif
    }

    void add_words(uint32_t first, uint32_t n, int step, uint32_t scale_bits,
                   uint32_t* hashed) const
    {
        for (uint32_t i = first; i < first + n; ++i)
            hashed[i] = parameter_word(map_mean(in_.mean[i], one_bits, minus_zero_bits),
                                       in_.sigma[i], step) ^
                        scale_bits;
    }

    const block_spec& spec_;
    tans_views views_;
    row_steps_view row_steps_;
    tans_predictions in_;
#if NORMANS_AVX2
    const x86_float_mode mode_;  // of affine maps
    tans_plane_levels levels_;
    tans_plane_levels::scalars scalars_;
    tans_pieces pieces_;
#else
    uint32_t last_bits_ = 0;
    code_scale scale_{};  // of 0
    tans_levels levels_;
#endif
};

#if NORMANS_AVX2
using tans_decoder = tans_plane_decoding;
using tans_encoder = tans_plane_encoding;
inline void add_codes(const uint8_t* codes, uint32_t count, uint32_t lanes, check_sums& sums)
{
    add_to_plane_sums(codes, count, lanes, sums);
}
#else
using tans_decoder = tans_decoding;
using tans_encoder = tans_encoding;
inline void add_codes(const uint8_t* codes, uint32_t count, uint32_t lanes, check_sums& sums)
{
    add_to_sums(codes, count, lanes, sums);
}
#endif

/// A block's steps, decoded a batch at a time: find_rows(walker, batch, rows, hashed) finds the
/// rows of the next scalars, add(codes, batch, lanes, sums) is add_to_sums or does the same.
template <class Decoder, class FindRows, class Add>
status decode_tans_batches(const block_spec& spec, uint32_t lanes, FindRows find_rows, Add add,
                           const packed_codes<uint8_t>& to, const uint8_t* states,
                           word_reader& words, block_sums& sums, bool& opened)
{
    tans_state state(lanes);
    opened = state.open(states, spec.bank->plan.table_bits, words);
    if (!opened) return status::corrupt_stream;
    const uint32_t count = uint32_t(count_of(spec));
    const Decoder decoder(*spec.bank, format_of(spec.dtype));
    check_sums content, parameters;
    bool good = true;
    box_walker walker(spec, 0);
    for (uint32_t done = 0; done < count; done += tans_batch) {
        const uint32_t batch = count - done < tans_batch ? count - done : tans_batch;
        typename Decoder::rows_type rows;
        alignas(64) uint8_t codes[tans_batch + tans_slack];
        uint32_t hashed[tans_batch];
        find_rows(walker, batch, rows, hashed);
        rows.end(batch);
        good &= decoder.run(rows, batch, state, words, codes);
        add(codes, batch, lanes, content);
        for (uint32_t i = 0; i < batch && spec.parameter_hash; ++i)
            parameters.lane[i % lanes].add(hashed[i]);
        for_runs(walker, batch, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
            to.store_run(at, n, codes + offset);
        });
        walker.forward(batch);
    }
    sums = {content.total(lanes), parameters.total(lanes)};
    const bool clean = good && !words.overrun && words.next == words.end && state.ended();
    return clean ? status::ok : status::corrupt_stream;
}

/// decode_scaled_steps() for arrays.
inline status decode_tans_steps(const block_spec& spec, const array_predictor& predictor,
                                const packed_codes<uint8_t>& to, const row_steps_view& row_steps,
                                uint32_t lanes, word_reader& words, const uint8_t* states,
                                block_sums& sums, bool& opened)
{
    tans_source source(spec, predictor, row_steps);
    return decode_tans_batches<tans_decoder>(
        spec, lanes,
        [&](const box_walker& walker, uint32_t batch, auto& rows, uint32_t* hashed) {
            source.find_rows(walker, batch, rows, hashed);
        },
        add_codes, to, states, words, sums, opened);
}

/// A block's steps, encoded a batch at a time, last to first: decode_tans_batches()'s counterpart.
template <class Rows, class Encoder, class FindRows>
bool encode_tans_batches(const block_spec& spec, uint32_t lanes, FindRows find_rows,
                         const packed_codes<const uint8_t>& from, word_writer& words,
                         uint32_t* stored, block_sums& sums, uint32_t& escapes)
{
    const uint32_t count = uint32_t(count_of(spec));
    const Encoder encoder(*spec.bank, format_of(spec.dtype));
    tans_state state(lanes);
    check_sums content, parameters;
    uint32_t batch = count % tans_batch != 0 ? count % tans_batch : tans_batch;
    for (box_walker walker(spec, count); walker.position().index != 0; batch = tans_batch) {
        const uint32_t after = count - walker.position().index;
        walker.back(batch);
        Rows rows;
        alignas(64) uint8_t codes[tans_batch + tans_slack];
        uint32_t hashed[tans_batch];
        for_runs(walker, batch, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
            from.load_run(at, n, codes + offset);
        });
        find_rows(walker, batch, rows, hashed);
        rows.end(batch);
        escapes += encoder.run(rows, batch, codes, state, words);
        if (words.overrun) return false;
        check_sums here, hashes;
        add_codes(codes, batch, lanes, here);
        put_before(here, after, lanes, content);
        if (!spec.parameter_hash) continue;
        for (uint32_t i = 0; i < batch; ++i) hashes.lane[i % lanes].add(hashed[i]);
        put_before(hashes, after, lanes, parameters);
    }
    state.close(stored, words);
    sums = {content.total(lanes), parameters.total(lanes)};
    return !words.overrun;
}

/// encode_scaled_steps() for arrays.
inline bool encode_tans_steps(const block_spec& spec, const array_predictor& predictor,
                              const packed_codes<const uint8_t>& from,
                              const row_steps_view& row_steps, uint32_t lanes, word_writer& words,
                              uint32_t* stored, block_sums& sums, uint32_t& escapes)
{
    tans_source source(spec, predictor, row_steps);
    return encode_tans_batches<tans_decoder::rows_type, tans_encoder>(
        spec, lanes,
        [&](const box_walker& walker, uint32_t batch, auto& rows, uint32_t* hashed) {
            source.find_rows(walker, batch, rows, hashed);
        },
        from, words, stored, sums, escapes);
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
