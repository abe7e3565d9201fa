#pragma once
// A bundle: blocks of one geometry that are coded together, step by step. What the loops know of
// each block is a job.

#include "../block/block.hpp"

#if NORMANS_AVX2
#include <immintrin.h>
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

struct block_sums {
    uint32_t content_check = 0;
    uint32_t parameter_hash = 0;
};

/// Codes of a byte each, or of half a byte: element 2 i in the low nibble of byte i.
template <class Byte>
struct packed_codes {
    box_view<Byte> box;
    bool nibbles;

    ptrdiff_t element(const scalar_position& at) const
    {
        return offset_of(at, box.head_stride, box.token_stride);
    }
    uint32_t load(const scalar_position& at) const
    {
        const ptrdiff_t i = element(at);
        return nibbles ? box.data[i >> 1] >> (i & 1) * 4 & 15u : box.data[i];
    }
    void store(const scalar_position& at, uint32_t code) const
    {
        const ptrdiff_t i = element(at);
        Byte& to = box.data[nibbles ? i >> 1 : i];
        if (!nibbles) to = uint8_t(code);
        else to = uint8_t(i & 1 ? (to & 15u) | code << 4 : (to & 0xf0u) | (code & 15u));
    }

    // n codes of one row.
    void load_run(scalar_position at, uint32_t n, uint8_t* to) const
    {
        if (!nibbles) {
            std::memcpy(to, box.data + element(at), n);
            return;
        }
        uint32_t i = 0;
        if ((element(at) & 1) == 0) {
            const Byte* from = box.data + (element(at) >> 1);
            for (; i + 8 <= n; i += 8, from += 4) store_u64(to + i, from_nibbles(load_u32(from)));
            at.channel += i;
        }
        for (; i < n; ++i, ++at.channel) to[i] = uint8_t(load(at));
    }
    void store_run(scalar_position at, uint32_t n, const uint8_t* from) const
    {
        if (!nibbles) {
            std::memcpy(box.data + element(at), from, n);
            return;
        }
        uint32_t i = 0;
        if ((element(at) & 1) != 0 && n != 0) {  // the other half of the byte is somebody's
            store(at, from[0]);
            ++at.channel;
            i = 1;
        }
        uint8_t* to = box.data + (element(at) >> 1);
#if NORMANS_AVX2
        for (; i + 16 <= n; i += 16, at.channel += 16, to += 8) {
            const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
            const __m128i pairs = _mm_maddubs_epi16(codes, _mm_set1_epi16(0x1001));
            _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(pairs, pairs));
        }
#endif
        for (; i + 8 <= n; i += 8, at.channel += 8, to += 4)
            store_u32(to, to_nibbles(load_u64(from + i)));
        for (; i + 2 <= n; i += 2, at.channel += 2) *to++ = uint8_t(from[i] | from[i + 1] << 4);
        if (i < n) store(at, from[i]);
    }

private:
    // Eight codes at once.
    static uint32_t to_nibbles(uint64_t x)
    {
        x = (x | x >> 4) & 0x00ff00ff00ff00ffu;
        x = (x | x >> 8) & 0x0000ffff0000ffffu;
        return uint32_t(x | x >> 16);
    }
    static uint64_t from_nibbles(uint64_t x)
    {
        x = (x | x << 16) & 0x0000ffff0000ffffu;
        x = (x | x << 8) & 0x00ff00ff00ff00ffu;
        return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
    }
};

/// Code is const when encoding. Predictor: array_predictor or any_callable.
template <class Code, class Predictor>
struct block_job {
    using code_type = Code;
    using predictor_type = Predictor;

    Predictor predictor;
    box_view<Code> codes;
    scale_view scales{};  // of types that have one, else without data
    row_steps_view row_steps{};
    const uint8_t* states_in = nullptr;  // decoding
    uint8_t* states_out = nullptr;       // encoding
    word_reader reader{};
    word_writer writer{};
    block_sums sums{};
    uint32_t escapes = 0;
    bool damaged = false;

    /// fp32 bits of a scalar's scale; 0 where there are none.
    uint32_t scale_bits(const scalar_position& at) const
    {
        return scales.data == nullptr ? 0 : float_to_bits(scales(at));
    }
};

/// A callable by reference, its type forgotten: the loops are compiled once for all callables, and
/// ask for a run of scalars at a time.
class any_callable {
public:
    any_callable() = default;

    template <class Predictor, class = std::enable_if_t<is_predictor_v<Predictor>>>
    explicit any_callable(const Predictor& predictor)
        : predictor_(&predictor), ask_(&any_callable::ask<Predictor>)
    {
    }

    prediction operator()(const scalar_position& at) const
    {
        uint32_t mean;
        uint16_t index;
        ask_(predictor_, at, 1, &mean, &index);
        return {bits_to_float(mean), uint8_t(index)};
    }

    /// Means, as fp32 bits, and sigma indices of n adjacent channels of one row.
    void run(const scalar_position& at, uint32_t n, uint32_t* means, uint16_t* indices) const
    {
        ask_(predictor_, at, n, means, indices);
    }

private:
    template <class Predictor>
    static void ask(const void* predictor, scalar_position at, uint32_t n, uint32_t* means,
                    uint16_t* indices)
    {
        for (uint32_t i = 0; i < n; ++i, ++at.index, ++at.channel) {
            const prediction one = predict_at(*static_cast<const Predictor*>(predictor), at);
            means[i] = float_to_bits(one.mean);
            indices[i] = one.sigma_index;
        }
    }

    const void* predictor_ = nullptr;
    void (*ask_)(const void*, scalar_position, uint32_t, uint32_t*, uint16_t*) = nullptr;
};

inline any_means as_any(const scalar_means& m, const block_spec& spec)
{
    return {m.data, ptrdiff_t(uint64_t(spec.tokens) * spec.dim), ptrdiff_t(spec.dim),
            any_means::fp32};
}
inline any_means as_any(const fp32_means& m, const block_spec&)
{
    return {m.data, m.head_stride, m.token_stride, any_means::fp32};
}
inline any_means as_any(const bf16_means& m, const block_spec&)
{
    return {m.data, m.head_stride, m.token_stride, scalar_type::bf16};
}
inline any_means as_any(const fp8_means& m, const block_spec&)
{
    return {m.data, m.head_stride, m.token_stride, m.type};
}
inline any_means as_any(const any_means& m, const block_spec&) { return m; }
inline any_sigmas as_any(const one_sigma& s, const block_spec&) { return {&s.index, 0, 0, 0}; }
inline any_sigmas as_any(const channel_sigmas& s, const block_spec&)
{
    return {s.index, s.dim, 0, 1};
}
inline any_sigmas as_any(const scalar_sigmas& s, const block_spec&) { return {s.index, 0, 1, 0}; }
inline any_sigmas as_any(const deviations& s, const block_spec&)
{
    return {s.data, 0, 1, 0, any_sigmas::kind::deviation, s.offset};
}
inline any_sigmas as_any(const variances& s, const block_spec&)
{
    return {s.data, 0, 1, 0, any_sigmas::kind::variance, s.offset};
}
inline any_sigmas as_any(const any_sigmas& s, const block_spec&) { return s; }
inline channel_affine as_any(const no_affine&, const block_spec&) { return {nullptr, nullptr, 0}; }
inline channel_affine as_any(const channel_affine& a, const block_spec&) { return a; }

template <class Predictor, class = void>
constexpr bool is_array_view_v = false;
template <class Means, class Sigmas, class Affine>
constexpr bool is_array_view_v<
    view_predictor<Means, Sigmas, Affine>,
    std::void_t<decltype(as_any(std::declval<const Means&>(), std::declval<const block_spec&>())),
                decltype(as_any(std::declval<const Sigmas&>(), std::declval<const block_spec&>())),
                decltype(as_any(std::declval<const Affine&>(),
                                std::declval<const block_spec&>()))>> = true;

/// Ready-made views become one type, and callables another.
template <class Predictor>
auto source_of(const Predictor& predictor, const block_spec& spec)
{
    if constexpr (is_array_view_v<Predictor>)
        return array_predictor{as_any(predictor.means, spec), as_any(predictor.sigmas, spec),
                               as_any(predictor.affine, spec)};
    else
        return any_callable(predictor);
}

inline bool alike(const scale_view& x, const scale_view& y)
{
    return x.head_stride == y.head_stride && x.token_stride == y.token_stride &&
           x.group_stride == y.group_stride && x.group == y.group;
}

/// True if two jobs' inputs lie alike in memory, so that one walk serves both.
template <class Code>
bool alike(const block_job<Code, array_predictor>& x, const block_job<Code, array_predictor>& y)
{
    const auto& a = x.predictor;
    const auto& b = y.predictor;
    return x.codes.head_stride == y.codes.head_stride &&
           x.codes.token_stride == y.codes.token_stride && a.means.type == b.means.type &&
           a.means.head_stride == b.means.head_stride &&
           a.means.token_stride == b.means.token_stride && a.sigmas.dim == b.sigmas.dim &&
           a.sigmas.scalar_stride == b.sigmas.scalar_stride &&
           a.sigmas.channel_stride == b.sigmas.channel_stride &&
           a.sigmas.type == b.sigmas.type && a.sigmas.offset == b.sigmas.offset &&
           (a.affine.a == nullptr) == (b.affine.a == nullptr) &&
           a.affine.dim == b.affine.dim && alike(x.scales, y.scales);
}

template <class Code, class Predictor>
bool alike(const block_job<Code, Predictor>& x, const block_job<Code, Predictor>& y)
{
    return x.codes.head_stride == y.codes.head_stride &&
           x.codes.token_stride == y.codes.token_stride && alike(x.scales, y.scales);
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
