#pragma once
// decode() of int8 and int4 tANS blocks in integer instructions alone, for processors without
// floating point (or whose floating point is somebody else's): views of means are read as fp32 bit
// patterns and never computed with. Bytes, statuses and checks are those of decode(); one block at
// a time, lane after lane (tans_loop.hpp), the rows of a batch first (tans_rows.hpp).

#include "mapped_places.hpp"
#include "scaled_block.hpp"
#include "tans_loop.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

/// mean_in_codes() without the host's multiply.
inline uint32_t mean_in_codes_exact(uint32_t mean, const code_scale& scale)
{
    const uint32_t sign = mean & sign_bit, field = exponent_field(mean);
    if (scale.scale == 0) return 0;
    if (is_nan(mean)) return quiet_nan_bits;
    if (field == 0 || field == 255) return field == 0 ? sign : mean;
    const uint32_t product = fma_exact(mean, scale.inverse, minus_zero_bits);
    return exponent_field(product) <= 1 ? sign : product;
}

// map_mean() of the identity.
inline uint32_t cleaned(uint32_t mean)
{
    if (exponent_field(mean) <= 1) return mean & sign_bit;
    return is_nan(mean) ? quiet_nan_bits : mean;
}

// n means along a row; `room` is for those that do not lie in memory as they are.
template <class Means>
const uint32_t* means_of(const Means& view, const scalar_position& at, uint32_t n, uint32_t* room)
{
    run_of(view, at, n, room);
    return room;
}
inline const float* means_of(const scalar_means& view, const scalar_position& at, uint32_t,
                             uint32_t*)
{
    return view.data + at.index;
}
inline const float* means_of(const fp32_means& view, const scalar_position& at, uint32_t, uint32_t*)
{
    return view.data + offset_of(at, view.head_stride, view.token_stride);
}
inline const uint16_t* means_of(const bf16_means& view, const scalar_position& at, uint32_t,
                                uint32_t*)
{
    return view.data + offset_of(at, view.head_stride, view.token_stride);
}

// Means as the inputs want them: a row's by of(); places() of n of these, which are at `from`, as
// tans_levels does; bits() as mu'.
template <class Means>
struct bit_means {
    const Means& view;

    auto of(const scalar_position& at, uint32_t n, uint32_t* room) const
    {
        return means_of(view, at, n, room);
    }
    template <class Mean>
    auto places(const Mean* from, const scalar_position&, uint32_t, const scalar_format& format,
                const code_scale& scale) const
    {
        return mean_places<Mean>(from, format, scale);
    }
    uint32_t bits(const scalar_position& at, scalar_format, const code_scale&) const
    {
        uint32_t mean;
        run_of(view, at, 1, &mean);
        return cleaned(mean);
    }
};

// The same behind an affine map.
template <class Means>
struct mapped_means {
    const Means& view;
    channel_affine map;
    mapped_channels channels;

    auto of(const scalar_position& at, uint32_t n, uint32_t* room) const
    {
        return means_of(view, at, n, room);
    }
    template <class Mean>
    auto places(const Mean* from, const scalar_position& at, uint32_t n, scalar_format format,
                const code_scale& scale)
    {
        return mapped_places<Mean>(from, channels, map, at.head, at.channel, n, format, scale);
    }
    uint32_t bits(const scalar_position& at, scalar_format, const code_scale&) const
    {
        const size_t channel = size_t(at.head) * map.dim + at.channel;
        uint32_t mean, a, b;
        run_of(view, at, 1, &mean);
        std::memcpy(&a, map.a + channel, sizeof a);
        std::memcpy(&b, map.b + channel, sizeof b);
        return map_mean_exact(mean, a, b);
    }
};

// n sigmas along a row; `room` is for those that do not lie in memory as they are.
template <class Sigmas>
const uint8_t* sigmas_of(const Sigmas& view, scalar_position at, uint32_t n, uint8_t* room)
{
    for (uint32_t i = 0; i < n; ++i, ++at.index, ++at.channel) room[i] = view(at);
    return room;
}
inline const uint8_t* sigmas_of(const scalar_sigmas& view, const scalar_position& at, uint32_t,
                                uint8_t*)
{
    return view.index + at.index;
}
inline const uint8_t* sigmas_of(const channel_sigmas& view, const scalar_position& at, uint32_t,
                                uint8_t*)
{
    return view.index + size_t(at.head) * view.dim + at.channel;
}

// Predictions and scales along rows.
template <class Means, class Sigmas>
class integer_inputs {
public:
    integer_inputs(const block_spec& spec, Means& means, const Sigmas& sigmas,
                   const row_steps_view& row_steps)
        : spec_(spec),
          means_(means),
          sigmas_(sigmas),
          row_steps_(row_steps),
          format_(format_of(spec.dtype)),
          levels_(format_, *spec.bank)
    {
    }

    // The rows, and where it is wanted the words for the parameter hash, of n scalars of one row of
    // channels, from `offset` of a batch on.
    void prepare(scalar_position at, uint32_t n, uint32_t offset, tans_rows& rows, uint32_t* hashed)
    {
        const int step = row_steps_(at.token);
        const int offset_eighths = 8 * (spec_.sigma_offset - lowest_bank_octave) + 2 * step;
        const uint8_t* sigma = sigmas_of(sigmas_, at, n, sigma_);
        auto mean = means_.of(at, n, mean_);
        const uint32_t end = offset + n, group = spec_.scales.group;
        const float* scale = scale_of(at, group == 0 ? 0 : at.channel / group);
        uint32_t here = group == 0 ? n : group - at.channel % group;
        for (; offset != end; here = group, scale += spec_.scales.group_stride) {
            if (here > end - offset) here = end - offset;
            take_scale(scale);
            if (scale_.scale != 0)
                levels_.find_rows(sigma, offset, here, offset_eighths - scale_.eighths,
                                  means_.places(mean, at, here, format_, scale_), rows);
            else
                levels_.find_rows(sigma, offset, here, tans_levels::none,
                                  zero_places{format_.code_sign() << 8}, rows);
            if (spec_.parameter_hash) add_words(at, here, sigma, step, hashed + offset);
            offset += here, sigma += here, mean += here;
            at.index += here, at.channel += here;
        }
    }

    /// The code that a predicted block holds, and its word for the hash.
    uint32_t expected(const scalar_position& at, uint32_t& hashed)
    {
        uint32_t sigma;
        const uint32_t group = spec_.scales.group;
        take_scale(scale_of(at, group == 0 ? 0 : at.channel / group));
        const uint32_t mean = means_.bits(at, format_, scale_);
        run_of(sigmas_, at, 1, &sigma);
        hashed = parameter_word(mean, sigma, 0) ^ last_bits_;
        return nearest_integer_code(format_, mean_in_codes_exact(mean, scale_));
    }

private:
    const float* scale_of(const scalar_position& at, uint32_t group) const
    {
        const scale_view& view = spec_.scales;
        return view.data + ptrdiff_t(at.head) * view.head_stride +
               ptrdiff_t(at.token) * view.token_stride + ptrdiff_t(group) * view.group_stride;
    }

    // Made ready if it is new.
    void take_scale(const float* from)
    {
        uint32_t bits;
        std::memcpy(&bits, from, sizeof bits);
        if (bits == last_bits_) return;
        scale_ = make_scale(bits);
        last_bits_ = bits;
    }

    // What the parameter hash sums up for n scalars under one scale.
    void add_words(scalar_position at, uint32_t n, const uint8_t* sigma, int step,
                   uint32_t* hashed) const
    {
        for (uint32_t i = 0; i < n; ++i, ++at.index, ++at.channel)
            hashed[i] =
                parameter_word(means_.bits(at, format_, scale_), sigma[i], step) ^ last_bits_;
    }

    const block_spec& spec_;
    Means& means_;
    const Sigmas& sigmas_;
    row_steps_view row_steps_;
    scalar_format format_;
    tans_levels levels_;
    uint32_t mean_[tans_batch];
    uint8_t sigma_[tans_batch];
    uint32_t last_bits_ = 0;
    code_scale scale_{};
};

template <class Inputs>
status decode_integer_steps(const block_spec& spec, uint32_t lanes, Inputs& inputs,
                            const packed_codes<uint8_t>& out, const uint8_t* states,
                            word_reader words, block_sums& sums, bool& opened)
{
    return decode_tans_batches<tans_decoding>(
        spec, lanes,
        [&](const box_walker& walker, uint32_t batch, tans_rows& rows, uint32_t* hashed) {
            for_runs(walker, batch, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
                inputs.prepare(at, n, offset, rows, hashed);
            });
        },
        add_to_sums, out, states, words, sums, opened);
}

template <class Means, class Sigmas>
decode_result decode_in_integers(const block_spec& spec, const uint8_t* block, size_t bytes,
                                 Means& means, const Sigmas& sigmas, box_view<uint8_t> box)
{
    decode_result result;
    if (check_spec(spec) != status::ok || spec.coder != coder_id::tans ||
        !format_of(spec.dtype).is_integer || (count_of(spec) != 0 && box.data == nullptr))
        return result;
    block_header header;
    block_layout at;
    result.code = check_block(spec, block, bytes, header, at, result);
    if (result.code != status::ok) return result;
    const packed_codes<uint8_t> out{box, format_of(spec.dtype).code_bits == 4};
    integer_inputs<Means, Sigmas> inputs(spec, means, sigmas, row_steps_of(block, header, at));
    block_sums sums;
    status decoded = status::ok;
    if (header.mode == block_mode::coded) {
        const word_reader words{block + at.words,
                                block + at.words + 2 * uint64_t(header.payload_words)};
        bool opened = false;
        decoded = decode_integer_steps(spec, header.lanes, inputs, out, block + at.states, words,
                                       sums, opened);
        if (!opened) result.code = decoded;  // the hash could not say anything
        if (result.code != status::ok) return result;
    } else if (header.count != 0) {
        const auto expected = [&](const scalar_position& where, uint32_t& hashed) {
            return inputs.expected(where, hashed);
        };
        decoded = copy_scaled(spec, header, expected, block + at.words, out, sums);
    }
    result.code = outcome_of(spec, header, block + at.parameter_hash, sums, decoded);
    return result;
}

}  // namespace detail

/// The mean, fp32 bits, that `fixed` 256ths of a code stand for: (fixed / 256 -
/// 2^(code_bits - 1)) * scale, rounded once. fixed_mean() gives `fixed` back. What an encoder's
/// predictor returns where the decoder has fixed_means.
inline uint32_t mean_of_fixed(scalar_format format, uint32_t fixed, uint32_t scale)
{
    const int from_zero = int(fixed) - int(format.code_sign() << 8);
    if (from_zero == 0) return 0;
    const uint32_t magnitude = uint32_t(from_zero < 0 ? -from_zero : from_zero);
    const unsigned top = detail::log2_floor(magnitude);
    const uint32_t bits = ((127 - 8 + top) << 23 | (magnitude << (23 - top) & 0x7fffff)) |
                          (from_zero < 0 ? sign_bit : 0);
    return fma_exact(bits, scale, minus_zero_bits);
}

/// Means in code units, in scalar order, for predictors that compute in integers: each stands for
/// what mean_of_fixed() says. At most 256 (2^code_bits - 1); what lies above counts as that.
struct fixed_means {
    const uint16_t* data;

    uint32_t at(uint32_t index, scalar_format format) const
    {
        const uint32_t last = (2 * format.code_sign() - 1) << 8;
        return data[index] > last ? last : data[index];
    }
    const uint16_t* of(const scalar_position& where, uint32_t, uint32_t*) const
    {
        return data + where.index;
    }
    detail::fixed_places places(const uint16_t* from, const scalar_position&, uint32_t,
                                scalar_format format, const code_scale&) const
    {
        return {from, (2 * format.code_sign() - 1) << 8};
    }
    uint32_t bits(const scalar_position& where, scalar_format format, const code_scale& scale) const
    {
        return scale.scale == 0 ? 0 : mean_of_fixed(format, at(where.index, format), scale.scale);
    }
};

/// Decodes a tANS block of int8 or int4 like decode(), in integers alone. `means` and `sigmas` are
/// views as predict() takes them: fp32 or bf16 means, sigma indices. bad_argument also for other
/// types and coders.
template <class Means, class Sigmas>
decode_result decode_integers(const block_spec& spec, const uint8_t* block, size_t bytes,
                              const Means& means, const Sigmas& sigmas,
                              box_view<uint8_t> box) noexcept
{
    detail::bit_means<Means> bits{means};
    return detail::decode_in_integers(spec, block, bytes, bits, sigmas, box);
}

/// The same behind an affine map per channel.
template <class Means, class Sigmas>
decode_result decode_integers(const block_spec& spec, const uint8_t* block, size_t bytes,
                              const Means& means, const Sigmas& sigmas,
                              const channel_affine& affine, box_view<uint8_t> box) noexcept
{
    if (affine.a == nullptr) return decode_integers(spec, block, bytes, means, sigmas, box);
    detail::mapped_means<Means> bits{means, affine, detail::mapped_channels(spec.dim)};
    return detail::decode_in_integers(spec, block, bytes, bits, sigmas, box);
}

/// The same with means in code units.
template <class Sigmas>
decode_result decode_integers(const block_spec& spec, const uint8_t* block, size_t bytes,
                              fixed_means means, const Sigmas& sigmas,
                              box_view<uint8_t> box) noexcept
{
    return detail::decode_in_integers(spec, block, bytes, means, sigmas, box);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
