#pragma once
// The views along a row (cuda/row_views.cuh) beside the views themselves, each kind of mean with
// each kind of sigma and of affine map. The includer has given device_array and launch.

#include <normans/cuda/row_views.cuh>

#include <cstdio>
#include <string>
#include <vector>

#include "support/test_rng.hpp"

namespace device_test {

using namespace normans;
namespace row_detail = normans::detail;

/// How many predictions of a box differ; a thread takes every threads-th row.
template <class Predictor>
struct differing_rows {
    Predictor predictor;
    std::uint32_t heads, tokens, dim;
    std::uint32_t* differing;  // one a thread

    __device__ void operator()() const
    {
        row_detail::predictor_rows<Predictor> rows(predictor);
        std::uint32_t wrong = 0;
        for (std::uint32_t row = threadIdx.x; row < heads * tokens; row += blockDim.x) {
            scalar_position at{row * dim, row / tokens, row % tokens, 0};
            rows.move(at);
            for (; at.channel < dim; ++at.channel, ++at.index) {
                const prediction one = predictor(at);
                const std::uint32_t mean =
                    map_mean(float_to_bits(one.mean), one_bits, minus_zero_bits);
                const row_detail::mapped_prediction found = rows(at);
                wrong += row_detail::canonical(found.mean) != row_detail::canonical(mean) ||
                         found.sigma_index != one.sigma_index;
            }
        }
        differing[threadIdx.x] = wrong;
    }
};

/// How many kinds of view give other predictions along rows.
inline int compare_rows(std::uint64_t seed)
{
    constexpr std::uint32_t heads = 3, tokens = 5, dim = 21, count = heads * tokens * dim;
    constexpr unsigned threads = 32;
    normans_test::test_rng rng(seed);
    std::vector<float> means, a, b;
    std::vector<std::uint16_t> halves;
    std::vector<std::uint8_t> sigmas;
    for (std::uint32_t i = 0; i < count; ++i) {
        // Any bits: NaN, infinite, subnormal.
        means.push_back(bits_to_float(rng.bits(32)));
        halves.push_back(std::uint16_t(rng.bits(16)));
        sigmas.push_back(std::uint8_t(rng.bits(8)));
        a.push_back(1.0f - float(rng.below(64)) / 512);
        b.push_back(float(rng.below(64)) / 256 - 0.125f);
    }
    const device_array<float> means_there(means), a_there(a), b_there(b);
    const device_array<std::uint16_t> halves_there(halves);
    const device_array<std::uint8_t> sigmas_there(sigmas);
    const device_array<std::uint32_t> differing(threads);
    int bad = 0, kinds = 0;

    const auto check_kind = [&](auto mean, auto sigma, auto affine) {
        using view = view_predictor<decltype(mean), decltype(sigma), decltype(affine)>;
        static_assert(std::is_void_v<std::void_t<row_detail::row_t<decltype(mean)>,
                                                 row_detail::row_t<decltype(sigma)>,
                                                 row_detail::row_t<decltype(affine)>>>);
        const std::string error = launch(
            differing_rows<view>{{mean, sigma, affine}, heads, tokens, dim, differing.data()},
            1, threads);
        std::uint32_t wrong = 0;
        for (const std::uint32_t one : differing.copy()) wrong += one;
        ++kinds;
        if (error.empty() && wrong == 0) return;
        ++bad;
        std::fprintf(stderr, "rows of kind %d: %u of %u differ %s\n", kinds, wrong, count,
                     error.c_str());
    };
    const auto with_affine = [&](auto mean, auto sigma) {
        check_kind(mean, sigma, no_affine{});
        check_kind(mean, sigma, channel_affine{a_there.data(), b_there.data(), dim});
        check_kind(mean, sigma, channel_affine{nullptr, nullptr, dim});
    };
    const auto with_sigma = [&](auto mean) {
        with_affine(mean, one_sigma{77});
        with_affine(mean, channel_sigmas{sigmas_there.data(), dim});
        with_affine(mean, scalar_sigmas{sigmas_there.data()});
    };
    with_sigma(scalar_means{means_there.data()});
    with_sigma(fp32_means{means_there.data(), dim, heads * dim});  // tokens outermost
    with_sigma(bf16_means{halves_there.data(), dim, heads * dim});
    std::printf("%d kinds of rows, %d failures\n", kinds, bad);
    return bad;
}

}  // namespace device_test
