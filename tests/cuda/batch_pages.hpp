#pragma once
// Batches of random pages on the host and on the device, and what the tests of batches say.
// The includer has given device_array and the CUDA runtime.

#include <normans/cuda/device_codec.cuh>

#include "page_case.hpp"

namespace device_test {

inline int failures = 0;

inline void expect(bool right, const char* what)
{
    if (right) return;
    ++failures;
    std::fprintf(stderr, "wrong: %s\n", what);
}

inline void expect_ok(cudaError_t error, const char* what)
{
    if (error == cudaSuccess) return;
    ++failures;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
}

using predictor = view_predictor<bf16_means, channel_sigmas, channel_affine>;

// Pages of one spec: random contents, a partly filled page now and then.
template <scalar_type Type, std::uint32_t Width, class Code>
struct batch {
    using codec = device_codec<Type, Width>;
    static constexpr std::uint32_t heads = 2, tokens = 6, dim = 32, page = heads * tokens * dim;

    block_spec spec;
    std::uint32_t count;
    bool mapped;  // else the affine map is null
    std::vector<std::uint32_t> filled;
    std::vector<Code> codes;
    std::vector<std::uint16_t> means;
    std::vector<std::uint8_t> sigmas;
    std::vector<float> a, b;
    std::vector<std::vector<std::uint8_t>> blocks;  // the host's

    batch(std::uint64_t seed, std::uint32_t pages, bool maps = true) : count(pages), mapped(maps)
    {
        test_rng rng(seed);
        spec.dtype = Type;
        spec.heads = heads;
        spec.tokens = tokens;
        spec.dim = dim;
        spec.lanes = Width;
        spec.row_scale = true;
        spec.parameter_hash = true;
        for (std::uint32_t i = 0; i < heads * dim; ++i) {
            sigmas.push_back(std::uint8_t(100 + rng.below(40)));
            a.push_back(1.0f - float(rng.below(32)) / 512);
            b.push_back(float(rng.below(32)) / 256);
        }
        for (std::uint32_t i = 0; i < count; ++i) {
            filled.push_back(rng.below(8) ? tokens : rng.below(tokens));
            for (std::uint32_t k = 0; k < page; ++k) {
                const auto one = normans_test::draw_scalar(rng, format_of(Type),
                                                           data_style::typical, spec.sigma_offset);
                codes.push_back(Code(one.code));
                means.push_back(std::uint16_t(one.mean >> 16));
            }
        }
        blocks.resize(count);
        for (std::uint32_t i = 0; i < count; ++i) encode_on_host(i);
    }

    block_mode encode_on_host(std::uint32_t i)
    {
        const block_spec one = spec_of(i);
        blocks[i].resize(max_encoded_bytes(one));
        const encode_result result =
            encode<scalar_backend>(one, view(static_cast<const Code*>(codes.data()), i),
                                   host_predictor(i), blocks[i].data(), blocks[i].size());
        expect(result.code == status::ok, "the host encodes");
        blocks[i].resize(result.bytes);
        return result.mode;
    }

    block_spec spec_of(std::uint32_t i) const
    {
        block_spec one = spec;
        one.tokens = filled[i];
        return one;
    }
    // Tokens outermost, as engines lay out pages.
    template <class T>
    static box_view<T> view(T* pool, std::uint32_t i)
    {
        return {pool + std::size_t(i) * page, dim, heads * dim};
    }
    template <class Arrays>
    predictor predict_on(const Arrays& from, std::uint32_t i) const
    {
        return {{from.means.data() + std::size_t(i) * page, dim, heads * dim},
                {from.sigmas.data(), dim},
                {mapped ? from.a.data() : nullptr, mapped ? from.b.data() : nullptr, dim}};
    }
    array_predictor host_predictor(std::uint32_t i) const
    {
        const predictor same = predict_on(*this, i);
        return {{same.means.data, same.means.head_stride, same.means.token_stride,
                 scalar_type::bf16},
                {same.sigmas.index, dim, 0, 1},
                same.affine};
    }
};

template <class Batch, class Code>
struct arrays_on_device {
    device_array<Code> codes;
    device_array<std::uint16_t> means;
    device_array<std::uint8_t> sigmas;
    device_array<float> a, b;

    explicit arrays_on_device(const Batch& from)
        : codes(from.codes), means(from.means), sigmas(from.sigmas), a(from.a), b(from.b)
    {
    }
};

template <class Code>
bool filled_part_equal(const std::vector<Code>& x, const std::vector<Code>& y, std::uint32_t i,
                       std::uint32_t page, std::uint32_t filled_scalars)
{
    for (std::uint32_t k = 0; k < filled_scalars; ++k)
        if (x[std::size_t(i) * page + k] != y[std::size_t(i) * page + k]) return false;
    return true;
}

}  // namespace device_test
