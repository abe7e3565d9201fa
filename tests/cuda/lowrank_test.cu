// Low-rank sums by dp4a and by tensor cores against 64-bit sums on the host, on the extremes too.

#include <cstdint>

#include <normans/cuda/lowrank_tile.cuh>

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

int failures = 0;

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
    std::fprintf(stderr, "%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
