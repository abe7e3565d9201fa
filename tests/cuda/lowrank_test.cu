// Low-rank sums by dp4a and by tensor cores against 64-bit sums on the host, on the extremes too;
// residuals and means corrected by them (cross_layer.hpp) against the host's, bit for bit.

#include <cstdint>
#include <cstring>

#include <normans/cuda/lowrank_tile.cuh>
#include <normans/lowrank/cross_layer.hpp>

#include "device.cuh"
#include "support/test_rng.hpp"

namespace {

using namespace normans;
using device_test::check;
using device_test::device_array;
using normans_test::test_rng;

enum class way { dp4a, tile };

// A warp a tile; what lies outside of the box stays as it was.
__global__ void sums_of(lowrank_factors f, way how, int32_t* out)
{
    const uint32_t lane = threadIdx.x, token = blockIdx.x * 16, channel = blockIdx.y * 8;
    int32_t sums[4];
    if (how == way::tile) lowrank_tile(f, token, channel, lane, sums);
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t t = token + lowrank_tile_token(lane, i);
        const uint32_t c = channel + lowrank_tile_channel(lane, i);
        if (t >= f.tokens || c >= f.channels) {
            if (how == way::tile && sums[i] != 0) out[0] = -1;
            continue;
        }
        out[t * f.channels + c] = how == way::tile ? sums[i] : lowrank_sum(f, t, c);
    }
}

// A row of features a token of the layer below, then the means of this one.
__global__ void correct(residual_grid grid, const float* below, const float* below_means,
                        int8_t* features, cross_layer_means<scalar_means> with, float* out)
{
    const uint32_t token = blockIdx.x;
    if (threadIdx.x == 0)
        residual_features(grid, below + token * grid.channels, below_means + token * grid.channels,
                          features + token * grid.channels);
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < with.map.channels; c += blockDim.x) {
        const uint32_t i = token * with.map.channels + c;
        out[i] = with(scalar_position{i, 0, token, c});
    }
}

int failures = 0;

// Any bits now and then, else a normal number.
std::vector<float> drawn_floats(test_rng& rng, std::size_t count)
{
    std::vector<float> out(count);
    for (float& x : out) {
        const uint32_t bits = rng.bits(32);
        x = bits_to_float(rng.below(8) == 0 ? bits : (bits & 0x80ffffffu) + 0x3f000000u);
    }
    return out;
}

void compare_corrections(uint32_t tokens, uint32_t channels, uint32_t features)
{
    test_rng rng(features);
    const std::vector<float> below = drawn_floats(rng, std::size_t(tokens) * features);
    std::vector<float> below_means = drawn_floats(rng, below.size());
    for (std::size_t i = 0; i < below.size(); ++i)  // most residuals are small
        if (rng.below(4) != 0) below_means[i] = below[i] * 1.03125f;
    const std::vector<float> means = drawn_floats(rng, std::size_t(tokens) * channels);
    std::vector<int8_t> exponents(features), weights(std::size_t(features) * channels);
    std::vector<int32_t> centres(features);
    for (int8_t& x : exponents) x = int8_t(-8 + int(rng.below(4)));
    for (int32_t& x : centres) x = int32_t(rng.below(9)) - 4;
    for (int8_t& x : weights) x = int8_t(int(rng.below(255)) - largest_weight);
    std::vector<float> scale(channels);
    for (float& x : scale) x = rng.below(8) == 0 ? 0.0f : bits_to_float(0x37000000u + rng.bits(24));

    const residual_grid grid{exponents.data(), centres.data(), features};
    const cross_layer_map map{weights.data(), scale.data(), features, channels};
    if (check_grid(grid) != status::ok || check_cross_layer(map) != status::ok) ++failures;
    std::vector<int8_t> rows(below.size());
    for (uint32_t t = 0; t < tokens; ++t)
        residual_features(grid, &below[t * features], &below_means[t * features],
                          &rows[t * features]);
    std::vector<float> sums(means.size()), right = means;
    cross_layer_sums(map, rows.data(), tokens, sums.data());
    correct_means(map, sums.data(), tokens, right.data());
    if (std::memcmp(right.data(), means.data(), right.size() * sizeof(float)) == 0) ++failures;

    const device_array<float> there_below(below), there_below_means(below_means),
        there_means(means), there_scale(scale), out(means.size());
    const device_array<int8_t> there_exponents(exponents), there_weights(weights),
        there_rows(rows.size());
    const device_array<int32_t> there_centres(centres);
    correct<<<tokens, 64>>>(
        {there_exponents.data(), there_centres.data(), features}, there_below.data(),
        there_below_means.data(), there_rows.data(),
        {{there_means.data()},
         {there_weights.data(), there_scale.data(), features, channels},
         there_rows.data(),
         channels},
        out.data());
    check(cudaGetLastError(), "launch");
    const std::vector<float> seen = out.copy();
    if (there_rows.copy() == rows &&
        std::memcmp(seen.data(), right.data(), right.size() * sizeof(float)) == 0)
        return;
    ++failures;
    std::fprintf(stderr, "wrong: corrections of %u x %u by %u features\n", tokens, channels,
                 features);
}

// kind 0: random; 1: all products -128 * -128; 2: -128 * 127.
void compare(uint32_t tokens, uint32_t channels, uint32_t rank, int kind)
{
    test_rng rng(rank * 8 + unsigned(kind));
    std::vector<int8_t> u(tokens * rank), v(channels * rank);
    for (int8_t& x : u) x = kind == 0 ? int8_t(rng.bits(8)) : int8_t(-128);
    for (int8_t& x : v) x = kind == 0 ? int8_t(rng.bits(8)) : int8_t(kind == 1 ? -128 : 127);
    std::vector<uint8_t> shift(rank / 4);
    uint32_t left = 1024 - rank;  // of the weight that keeps sums exact
    for (uint8_t& one : shift) {
        const uint32_t wanted = rng.below(8), more = (4u << wanted) - 4;
        if (more > left) continue;
        left -= more;
        one = uint8_t(wanted);
    }
    const device_array<int8_t> there_u(u), there_v(v);
    const device_array<uint8_t> there_shift(shift);
    const lowrank_factors f{there_u.data(), there_v.data(), there_shift.data(),
                            tokens, channels, rank};
    if (!exact_factors({u.data(), v.data(), shift.data(), tokens, channels, rank})) ++failures;
    std::vector<int32_t> right(tokens * channels);
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t c = 0; c < channels; ++c) {
            int64_t sum = 0;
            for (uint32_t k = 0; k < rank; ++k)
                sum += int64_t(u[t * rank + k]) * v[(k / 4 * channels + c) * 4 + k % 4] *
                       (int64_t(1) << shift[k / 4]);
            right[t * channels + c] = int32_t(sum);
        }
    for (const way how : {way::dp4a, way::tile}) {
        const device_array<int32_t> out(right.size());
        sums_of<<<dim3((tokens + 15) / 16, (channels + 7) / 8), 32>>>(f, how, out.data());
        check(cudaGetLastError(), "launch");
        if (out.copy() == right) continue;
        ++failures;
        std::fprintf(stderr, "wrong: %u x %u, rank %u, kind %d, %s\n", tokens, channels, rank,
                     kind, how == way::tile ? "tile" : "dp4a");
    }
}

}  // namespace

int main()
{
    if (!device_test::there_is_a_device()) return 0;
    for (const uint32_t rank : {0u, 4u, 12u, 32u, 100u, 1024u})
        for (const int kind : {0, 1, 2}) {
            compare(19, 21, rank, kind);
            compare(16, 8, rank, kind);
        }
    for (const uint32_t features : {4u, 64u, 580u}) compare_corrections(7, 40, features);
    std::fprintf(stderr, "%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
