#pragma once
// Random blocks with every flag, shape, layout and kind of view, and what the host makes of them.

#include <vector>

#include "codec/codec.hpp"
#include "support/random_scalars.hpp"

namespace device_test {

using namespace normans;
using normans_test::data_style;
using normans_test::test_rng;

template <class Code>
struct page_case {
    block_spec spec;
    marginal_table marginal{};
    std::vector<float> mean;  // in scalar order, fp32 or bf16
    std::vector<std::uint16_t> half_mean;
    std::vector<std::uint8_t> sigma;  // per scalar or per channel
    std::vector<float> a, b;          // empty: no map
    std::vector<Code> codes;          // laid out as `box` says
    bool by_token = false;            // tokens outermost in memory, else heads

    template <class T>
    box_view<T> box(T* data) const
    {
        const ptrdiff_t dim = ptrdiff_t(spec.dim);
        return by_token ? box_view<T>{data, dim, dim * ptrdiff_t(spec.heads)} : dense(spec, data);
    }

    array_predictor predictor(const float* means, const std::uint16_t* half_means,
                              const std::uint8_t* sigmas, const float* as, const float* bs) const
    {
        const ptrdiff_t token = ptrdiff_t(spec.dim), head = token * ptrdiff_t(spec.tokens);
        const bool per_scalar = sigma.size() == codes.size();
        array_predictor out{};
        out.means = half_mean.empty() ? any_means{means, head, token, any_means::fp32}
                                      : any_means{half_means, head, token, scalar_type::bf16};
        out.sigmas = {sigmas, spec.dim, per_scalar ? 1u : 0u, per_scalar ? 0u : 1u};
        if (!a.empty()) out.affine = {as, bs, spec.dim};
        return out;
    }
    array_predictor host_predictor() const
    {
        return predictor(mean.data(), half_mean.data(), sigma.data(), a.data(), b.data());
    }
};

struct box_size {
    std::uint32_t heads, tokens, dim;
};

enum class page_kind { drawn, constant, predicted, empty };

template <class Code>
page_case<Code> draw_page(test_rng& rng, scalar_type type, std::uint32_t lanes, box_size box,
                          data_style style, page_kind kind)
{
    page_case<Code> c;
    block_spec& spec = c.spec;
    spec.dtype = type;
    spec.heads = box.heads;
    spec.tokens = kind == page_kind::empty ? 0 : box.tokens;
    spec.dim = box.dim;
    spec.lanes = lanes;
    spec.sigma_offset = rng.below(3) ? default_sigma_offset : rng.between(-20, -8);
    spec.row_scale = rng.below(2) != 0;
    spec.content_check = rng.below(8) != 0;
    spec.parameter_hash = rng.below(3) == 0;
    spec.has_fingerprint = rng.below(3) == 0;
    spec.fingerprint = rng.next();
    spec.shape = shape_id(rng.below(3));
    if (spec.shape == shape_id::mixture_marginal) {
        const auto freq = normans_test::random_marginal(rng.next());
        if (make_marginal(freq.data(), c.marginal) == status::ok) spec.marginal = &c.marginal;
    }
    c.by_token = rng.below(2) != 0;

    const std::size_t count = std::size_t(count_of(spec)), channels = box.heads * box.dim;
    const scalar_format format = format_of(has_model(type) ? type : scalar_type::e4m3fn);
    const bool affine = rng.below(2) != 0, halves = rng.below(2) != 0, by_channel = rng.below(2);
    c.codes.resize(count);
    if (by_channel) c.sigma.resize(channels);
    for (std::size_t i = 0; affine && i < channels; ++i) {
        c.a.push_back(rng.below(8) ? 1.0f - float(rng.below(64)) / 512 : 0.0f);
        c.b.push_back(rng.below(8) ? float(rng.below(64)) / 256 - 0.125f : -0.0f);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        auto one = normans_test::draw_scalar(rng, format, style, spec.sigma_offset);
        const std::uint32_t channel = i % box.dim, row = i / box.dim;
        const std::uint32_t head = row / spec.tokens, token = row % spec.tokens;
        if (halves) one.mean &= 0xffff0000u;
        c.mean.push_back(bits_to_float(one.mean));
        if (halves) c.half_mean.push_back(std::uint16_t(one.mean >> 16));
        if (by_channel) c.sigma[head * box.dim + channel] = one.sigma;
        else c.sigma.push_back(one.sigma);
        c.box(c.codes.data())
            .data[ptrdiff_t(head) * c.box(c.codes.data()).head_stride +
                  ptrdiff_t(token) * c.box(c.codes.data()).token_stride + ptrdiff_t(channel)] =
            Code(kind == page_kind::constant ? 0x37 : one.code);
    }
    if (kind == page_kind::predicted) {
        const array_predictor predictor = c.host_predictor();
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::uint32_t row = i / box.dim;
            const scalar_position at{i, row / spec.tokens, row % spec.tokens, i % box.dim};
            normans::detail::element(c.box(c.codes.data()), at) =
                Code(nearest_code(format, normans::detail::clean_mean(predictor(at))));
        }
    }
    return c;
}

/// Ways to hurt a block: bits flipped anywhere or in the head, cut off, words exchanged, zeros.
inline std::vector<std::uint8_t> damaged(test_rng& rng, std::vector<std::uint8_t> block)
{
    const std::uint32_t bytes = std::uint32_t(block.size());
    const auto flip = [&](std::uint32_t limit) {
        block[rng.below(limit)] ^= std::uint8_t(1u << rng.below(8));
    };
    switch (rng.below(6)) {
    case 0: block.resize(rng.below(bytes)); break;
    case 1: flip(bytes < 16 ? bytes : 16); break;
    case 2: flip(bytes < 160 ? bytes : 160); break;
    case 3:
        for (int i = 0; i < 4; ++i) flip(bytes);
        break;
    case 4:
        for (std::uint32_t i = bytes / 2; i < bytes; ++i) block[i] = 0;
        break;
    default: flip(bytes); break;
    }
    return block;
}

}  // namespace device_test
