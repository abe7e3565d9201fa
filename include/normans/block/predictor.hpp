#pragma once
// Who predicts: a callable that says (mean, sigma index) of one scalar, evaluated in the coding
// loop; and ready-made views over arrays. Encoder and decoder must get the same bits from it, so it
// should read memory or compute with integers; float arithmetic that two compilers may round
// differently ends in content_mismatch.
// Views nest as mean x sigma x affine map:  predict(bf16_means{...}, channel_sigmas{...}, affine).

#include <cstring>
#include <type_traits>
#include <utility>

#include "../core/scalar.hpp"
#include "../core/sigma.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// mean in units of the coded scalar's values; any float is allowed.
struct prediction {
    float mean;
    uint8_t sigma_index;  // see core/sigma.hpp; 255: sigma 0
};

/// A scalar of a box (heads, tokens, dim): index = (head * tokens + token) * dim + channel.
struct scalar_position {
    uint32_t index;
    uint32_t head;
    uint32_t token;
    uint32_t channel;
};

/// True for what encode() and decode() take: callable with a scalar_position or an index.
template <class Predictor>
constexpr bool is_predictor_v =
    std::is_invocable_r_v<prediction, const Predictor&, const scalar_position&> ||
    std::is_invocable_r_v<prediction, const Predictor&, uint32_t>;

namespace detail {

NORMANS_HD inline ptrdiff_t offset_of(const scalar_position& at, ptrdiff_t head_stride,
                                      ptrdiff_t token_stride)
{
    return ptrdiff_t(at.head) * head_stride + ptrdiff_t(at.token) * token_stride +
           ptrdiff_t(at.channel);
}

}  // namespace detail

// Views may have run(position, n, out) beside operator(): the values (means as fp32 bits) of n
// adjacent channels of one row at once. Lane groups of SIMD registers are fed that way.

/// Means in scalar order.
struct scalar_means {
    const float* data;
    NORMANS_HD float operator()(const scalar_position& at) const { return data[at.index]; }
    NORMANS_HD void run(const scalar_position& at, uint32_t n, uint32_t* bits) const
    {
        std::memcpy(bits, data + at.index, n * sizeof(float));
    }
};

/// Means in memory. Strides in elements, between heads and between tokens; channels are adjacent.
struct fp32_means {
    const float* data;
    ptrdiff_t head_stride;
    ptrdiff_t token_stride;

    NORMANS_HD float operator()(const scalar_position& at) const
    {
        return data[detail::offset_of(at, head_stride, token_stride)];
    }
    NORMANS_HD void run(const scalar_position& at, uint32_t n, uint32_t* bits) const
    {
        std::memcpy(bits, data + detail::offset_of(at, head_stride, token_stride),
                    n * sizeof(float));
    }
};

struct bf16_means {
    const uint16_t* data;
    ptrdiff_t head_stride;
    ptrdiff_t token_stride;

    NORMANS_HD float operator()(const scalar_position& at) const
    {
        return bits_to_float(uint32_t(data[detail::offset_of(at, head_stride, token_stride)])
                             << 16);
    }
    NORMANS_HD void run(const scalar_position& at, uint32_t n, uint32_t* bits) const
    {
        const uint16_t* from = data + detail::offset_of(at, head_stride, token_stride);
        for (uint32_t i = 0; i < n; ++i) bits[i] = uint32_t(from[i]) << 16;
    }
};

/// Codes of any fp8 type.
struct fp8_means {
    const uint8_t* data;
    ptrdiff_t head_stride;
    ptrdiff_t token_stride;
    scalar_type type;

    NORMANS_HD float operator()(const scalar_position& at) const
    {
        const scalar_format format = format_of(type);
        const uint32_t code = data[detail::offset_of(at, head_stride, token_stride)];
        if (!is_special(format, code)) return bits_to_float(value_bits(format, code));
        const bool infinite = (code & 0x7f) == format.largest_finite + 1 && format.has_infinity;
        return bits_to_float((infinite ? infinity_bits : quiet_nan_bits) | (code & 0x80) << 24);
    }
    NORMANS_HD void run(scalar_position at, uint32_t n, uint32_t* bits) const
    {
        for (uint32_t i = 0; i < n; ++i, ++at.channel) bits[i] = float_to_bits((*this)(at));
    }
};

/// Means of a type that is known at run time only: bf16, any fp8 type, or fp32.
struct any_means {
    static constexpr scalar_type fp32 = scalar_type::raw8;  // no code is that wide

    const void* data;
    ptrdiff_t head_stride;
    ptrdiff_t token_stride;
    scalar_type type;

    NORMANS_HD float operator()(const scalar_position& at) const
    {
        uint32_t bits;
        run(at, 1, &bits);
        return bits_to_float(bits);
    }
    NORMANS_HD void run(const scalar_position& at, uint32_t n, uint32_t* bits) const
    {
        if (type == fp32)
            fp32_means{static_cast<const float*>(data), head_stride, token_stride}.run(at, n, bits);
        else if (type == scalar_type::bf16)
            bf16_means{static_cast<const uint16_t*>(data), head_stride, token_stride}.run(at, n,
                                                                                          bits);
        else
            fp8_means{static_cast<const uint8_t*>(data), head_stride, token_stride, type}.run(at, n,
                                                                                              bits);
    }
};

/// One sigma index for all.
struct one_sigma {
    uint8_t index;
    NORMANS_HD uint8_t operator()(const scalar_position&) const { return index; }
};

/// index[head * dim + channel].
struct channel_sigmas {
    const uint8_t* index;
    uint32_t dim;
    NORMANS_HD uint8_t operator()(const scalar_position& at) const
    {
        return index[size_t(at.head) * dim + at.channel];
    }
    NORMANS_HD void run(const scalar_position& at, uint32_t n, uint32_t* out) const
    {
        const uint8_t* from = index + size_t(at.head) * dim + at.channel;
        for (uint32_t i = 0; i < n; ++i) out[i] = from[i];
    }
};

/// index[scalar].
struct scalar_sigmas {
    const uint8_t* index;
    NORMANS_HD uint8_t operator()(const scalar_position& at) const { return index[at.index]; }
    NORMANS_HD void run(const scalar_position& at, uint32_t n, uint32_t* out) const
    {
        for (uint32_t i = 0; i < n; ++i) out[i] = index[at.index + i];
    }
};

/// Standard deviations per scalar, as floats; `offset` is the spec's sigma_offset.
struct deviations {
    const float* data;
    int offset;
    NORMANS_HD uint8_t operator()(const scalar_position& at) const
    {
        return sigma_index(deviation{data[at.index]}, offset);
    }
};

/// Variances per scalar, as floats.
struct variances {
    const float* data;
    int offset;
    NORMANS_HD uint8_t operator()(const scalar_position& at) const
    {
        return sigma_index(variance{data[at.index]}, offset);
    }
};

/// Sigmas whose kind is known at run time only: indices, or deviations or variances as floats, per
/// scalar, per channel or one for all (strides 0 where they do not change):
/// data[scalar * scalar_stride + (head * dim + channel) * channel_stride].
struct any_sigmas {
    enum class kind : uint8_t { index, deviation, variance };

    const void* data;
    uint32_t dim;
    uint32_t scalar_stride;
    uint32_t channel_stride;
    kind type = kind::index;
    int offset = 0;  // the spec's sigma_offset; of deviations and variances

    NORMANS_HD size_t place_of(const scalar_position& at) const
    {
        return size_t(at.index) * scalar_stride +
               (size_t(at.head) * dim + at.channel) * channel_stride;
    }

    NORMANS_HD uint8_t operator()(const scalar_position& at) const
    {
        const size_t place = place_of(at);
        if (type == kind::index) return static_cast<const uint8_t*>(data)[place];
        const float value = static_cast<const float*>(data)[place];
        return type == kind::variance ? sigma_index(variance{value}, offset)
                                      : sigma_index(deviation{value}, offset);
    }
    NORMANS_HD void run(scalar_position at, uint32_t n, uint32_t* out) const
    {
        for (uint32_t i = 0; i < n; ++i, ++at.index, ++at.channel) out[i] = (*this)(at);
    }
};

/// mu' = fma(mu, a, b) per channel, rounded once: a[head * dim + channel]. The scale of an fp8
/// cache is folded in (a / scale, b / scale). a and b are zero or normal; identity: 1 and -0.0,
/// or null pointers.
struct channel_affine {
    const float* a;
    const float* b;
    uint32_t dim;

    NORMANS_HD float operator()(const scalar_position& at, float mean) const
    {
        if (a == nullptr) return mean;
        const size_t channel = size_t(at.head) * dim + at.channel;
        return bits_to_float(map_mean(float_to_bits(mean), float_to_bits(a[channel]),
                                      float_to_bits(b[channel])));
    }
};

struct no_affine {
    NORMANS_HD float operator()(const scalar_position&, float mean) const { return mean; }
};

template <class Means, class Sigmas, class Affine = no_affine>
struct view_predictor {
    Means means;
    Sigmas sigmas;
    Affine affine;

    NORMANS_HD prediction operator()(const scalar_position& at) const
    {
        return {affine(at, means(at)), sigmas(at)};
    }
};

template <class Means, class Sigmas>
NORMANS_HD view_predictor<Means, Sigmas> predict(Means means, Sigmas sigmas)
{
    return {means, sigmas, {}};
}

template <class Means, class Sigmas, class Affine>
NORMANS_HD view_predictor<Means, Sigmas, Affine> predict(Means means, Sigmas sigmas, Affine affine)
{
    return {means, sigmas, affine};
}

/// Views whose kinds are known at run time only: one type, compiled once (see dispatch.hpp).
using array_predictor = view_predictor<any_means, any_sigmas, channel_affine>;

/// For coders that read no predictions.
inline constexpr array_predictor no_predictor{
    {nullptr, 0, 0, any_means::fp32}, {nullptr, 0, 0, 0}, {nullptr, nullptr, 0}};

namespace detail {

template <class View, class = void>
constexpr bool has_run_v = false;
template <class View>
constexpr bool has_run_v<View, std::void_t<decltype(std::declval<const View&>().run(
                                   std::declval<const scalar_position&>(), uint32_t(0),
                                   static_cast<uint32_t*>(nullptr)))>> = true;

// n values of a view along a row.
template <class View>
void run_of(const View& view, scalar_position at, uint32_t n, uint32_t* out)
{
    if constexpr (has_run_v<View>) {
        view.run(at, n, out);
    } else {
        for (uint32_t i = 0; i < n; ++i, ++at.index, ++at.channel) {
            const auto value = view(at);
            if constexpr (std::is_same_v<decltype(view(at)), float>) out[i] = float_to_bits(value);
            else out[i] = value;
        }
    }
}

template <class Predictor>
prediction predict_at(const Predictor& predictor, const scalar_position& at)
{
    static_assert(is_predictor_v<Predictor>,
                  "a predictor is callable as (scalar_position) or (uint32_t index) -> prediction");
    if constexpr (std::is_invocable_r_v<prediction, const Predictor&, const scalar_position&>)
        return predictor(at);
    else
        return predictor(at.index);
}

}  // namespace detail

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
