#pragma once
// The views of block/predictor.hpp along one row of a box: what does not change from channel to
// channel is computed where a row begins, and a scalar costs an address and a load. Predictors and
// sinks without rows are called scalar by scalar; nothing but the speed differs.

#include "../block/block.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Codes into a box in memory that the device can write.
template <class Code>
struct box_sink {
    box_view<Code> box;
    __device__ void operator()(const scalar_position& at, uint32_t code) const
    {
        detail::element(box, at) = Code(code);
    }
};

namespace detail {

// The same where the box itself lies in memory: it is read where a row begins.
template <class Code>
struct box_reference_sink {
    const box_view<Code>& box;
    __device__ void operator()(const scalar_position& at, uint32_t code) const
    {
        element(box, at) = Code(code);
    }
};

}  // namespace detail

/// Codes out of a box in memory.
template <class Code>
struct box_source {
    box_view<const Code> box;
    __device__ uint32_t operator()(const scalar_position& at) const
    {
        return detail::element(box, at);
    }
};

namespace detail {

/// A scalar's prediction with its mean mapped; a NaN may have any payload (see canonical).
struct mapped_prediction {
    uint32_t mean;
    uint32_t sigma_index;
};

__device__ inline uint32_t canonical(uint32_t mean) { return is_nan(mean) ? quiet_nan_bits : mean; }

// map_mean but for NaN payloads. The ftz of the instruction is the model's own rule.
__device__ inline uint32_t map_mean_fast(uint32_t mean, uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__)
    uint32_t mapped;
    asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=r"(mapped) : "r"(mean), "r"(a), "r"(b));
    return (mapped & ~sign_bit) < 2u << 23 ? mapped & sign_bit : mapped;
#else
    return map_mean(mean, a, b);
#endif
}

// A value as it is: a compiler that knows what it is made of makes it again for every scalar.
template <class T>
__device__ inline T kept(T value)
{
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 8)
        asm volatile("" : "+l"(value));
    else
        asm volatile("" : "+r"(value));
#endif
    return value;
}

struct fp32_row {
    const float* data;
    __device__ uint32_t operator()(uint32_t channel) const { return float_to_bits(data[channel]); }
};
struct bf16_row {
    const uint16_t* data;
    __device__ uint32_t operator()(uint32_t channel) const { return uint32_t(data[channel]) << 16; }
};
struct byte_row {
    const uint8_t* data;
    __device__ uint32_t operator()(uint32_t channel) const { return data[channel]; }
};
struct constant_row {
    uint8_t value;
    __device__ uint32_t operator()(uint32_t) const { return value; }
};
struct affine_row {
    const float* a;
    const float* b;
    uint32_t stride;  // 0 where one map serves all, else 1
    __device__ uint32_t operator()(uint32_t channel, uint32_t mean) const
    {
        const uint32_t at = channel * stride;
        return map_mean_fast(mean, float_to_bits(a[at]), float_to_bits(b[at]));
    }
};
struct clean_row {
    __device__ uint32_t operator()(uint32_t, uint32_t mean) const
    {
        return map_mean_fast(mean, one_bits, minus_zero_bits);
    }
};

__device__ inline ptrdiff_t row_offset(const scalar_position& at, ptrdiff_t head_stride,
                                       ptrdiff_t token_stride)
{
    return ptrdiff_t(at.head) * head_stride + ptrdiff_t(at.token) * token_stride;
}

__device__ inline fp32_row row_of(const scalar_means& m, const scalar_position& at)
{
    return {kept(m.data + (at.index - at.channel))};
}
__device__ inline fp32_row row_of(const fp32_means& m, const scalar_position& at)
{
    return {kept(m.data + row_offset(at, m.head_stride, m.token_stride))};
}
__device__ inline bf16_row row_of(const bf16_means& m, const scalar_position& at)
{
    return {kept(m.data + row_offset(at, m.head_stride, m.token_stride))};
}
__device__ inline constant_row row_of(const one_sigma& s, const scalar_position&)
{
    return {s.index};
}
__device__ inline byte_row row_of(const channel_sigmas& s, const scalar_position& at)
{
    return {kept(s.index + size_t(at.head) * s.dim)};
}
__device__ inline byte_row row_of(const scalar_sigmas& s, const scalar_position& at)
{
    return {kept(s.index + (at.index - at.channel))};
}
__device__ inline clean_row row_of(const no_affine&, const scalar_position&) { return {}; }
__device__ inline affine_row row_of(const channel_affine& f, const scalar_position& at)
{
    static constexpr float identity[2] = {1.0f, -0.0f};
    const bool maps = f.a != nullptr;
    const size_t first = maps ? size_t(at.head) * f.dim : 0;
    return {kept((maps ? f.a : identity) + first), kept((maps ? f.b : identity + 1) + first),
            kept(uint32_t(maps ? 1 : 0))};
}

template <class View>
using row_t =
    decltype(row_of(std::declval<const View&>(), std::declval<const scalar_position&>()));

// Any predictor, row by row: move() where a row begins, then one call a scalar.
template <class Predictor, class = void>
class predictor_rows {
    static_assert(is_predictor_v<Predictor>,
                  "a predictor is callable as (scalar_position) or (uint32_t index) -> prediction");

public:
    __device__ explicit predictor_rows(const Predictor& predictor) : predictor_(predictor) {}
    __device__ void move(const scalar_position&) {}
    __device__ mapped_prediction operator()(const scalar_position& at) const
    {
        prediction p;
        if constexpr (std::is_invocable_r_v<prediction, const Predictor&, const scalar_position&>)
            p = predictor_(at);
        else
            p = predictor_(at.index);
        return {map_mean_fast(float_to_bits(p.mean), one_bits, minus_zero_bits), p.sigma_index};
    }

private:
    const Predictor& predictor_;
};

template <class Means, class Sigmas, class Affine>
class predictor_rows<view_predictor<Means, Sigmas, Affine>,
                     std::void_t<row_t<Means>, row_t<Sigmas>, row_t<Affine>>> {
    using view = view_predictor<Means, Sigmas, Affine>;

public:
    __device__ explicit predictor_rows(const view& predictor) : predictor_(predictor) {}
    __device__ void move(const scalar_position& at)
    {
        means_ = row_of(predictor_.means, at);
        sigmas_ = row_of(predictor_.sigmas, at);
        affine_ = row_of(predictor_.affine, at);
    }
    __device__ mapped_prediction operator()(const scalar_position& at) const
    {
        return {affine_(at.channel, means_(at.channel)), sigmas_(at.channel)};
    }

private:
    const view& predictor_;
    row_t<Means> means_{};
    row_t<Sigmas> sigmas_{};
    row_t<Affine> affine_{};
};

template <class Sink>
class sink_rows {
public:
    __device__ explicit sink_rows(const Sink& sink) : sink_(sink) {}
    __device__ void move(const scalar_position&) {}
    __device__ void operator()(const scalar_position& at, uint32_t code) const { sink_(at, code); }

private:
    const Sink& sink_;
};

template <class Code>
class box_sink_rows {
public:
    __device__ explicit box_sink_rows(const box_view<Code>& box) : box_(box) {}
    __device__ void move(const scalar_position& at)
    {
        row_ = kept(box_.data + row_offset(at, box_.head_stride, box_.token_stride));
    }
    __device__ void operator()(const scalar_position& at, uint32_t code) const
    {
        row_[at.channel] = Code(code);
    }

private:
    const box_view<Code>& box_;
    Code* row_ = nullptr;
};

template <class Code>
class sink_rows<box_sink<Code>> : public box_sink_rows<Code> {
public:
    __device__ explicit sink_rows(const box_sink<Code>& sink) : box_sink_rows<Code>(sink.box) {}
};
template <class Code>
class sink_rows<box_reference_sink<Code>> : public box_sink_rows<Code> {
public:
    __device__ explicit sink_rows(const box_reference_sink<Code>& sink)
        : box_sink_rows<Code>(sink.box)
    {
    }
};

template <class Source>
class source_rows {
public:
    __device__ explicit source_rows(const Source& source) : source_(source) {}
    __device__ void move(const scalar_position&) {}
    __device__ uint32_t operator()(const scalar_position& at) const { return source_(at); }

private:
    const Source& source_;
};

template <class Code>
class source_rows<box_source<Code>> {
public:
    __device__ explicit source_rows(const box_source<Code>& source) : box_(source.box) {}
    __device__ void move(const scalar_position& at)
    {
        row_ = kept(box_.data + row_offset(at, box_.head_stride, box_.token_stride));
    }
    __device__ uint32_t operator()(const scalar_position& at) const { return row_[at.channel]; }

private:
    const box_view<const Code>& box_;
    const Code* row_ = nullptr;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
