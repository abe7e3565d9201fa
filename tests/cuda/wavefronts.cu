// Looks things up in a model's tables, for a launcher that counts wavefronts of shared memory: four
// launches, the guess and then G, each by lanes that all want the same and by lanes that want what
// comes. See wavefronts.py.

#include <normans/cuda/warp_codec.cuh>

#include "device.cuh"

namespace {

using namespace normans;
using model = warp_model<scalar_type::e4m3fn>;
using view = warp_view<scalar_type::e4m3fn>;

constexpr unsigned threads = 128, rounds = 256;

struct guesses {
    static __device__ float look_up(const view& in, std::uint32_t slot)
    {
        return in.guessed_z(slot);
    }
};

struct cdf {
    static __device__ float look_up(const view& in, std::uint32_t slot)
    {
        return float(in.slots_below(2 * int(slot) - 32768));
    }
};

__device__ std::uint32_t scrambled(std::uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

template <class Table>
__global__ void look_up(block_spec spec, bool spread, float* out)
{
    __shared__ model tables;
    tables.fill(spec, threadIdx.x, threads);
    __syncthreads();
    const view in(tables, ~0u);
    float sum = 0;
    for (std::uint32_t i = 0; i < rounds; ++i)
        sum += Table::look_up(in, scrambled(i * threads + (spread ? threadIdx.x : 0)) >> 17);
    out[threadIdx.x] = sum;
}

}  // namespace

int main()
{
    if (!device_test::there_is_a_device()) return 0;
    const block_spec spec;
    const device_test::device_array<float> sums(threads);
    for (const bool spread : {false, true})
        look_up<guesses><<<1, threads>>>(spec, spread, sums.data());
    for (const bool spread : {false, true}) look_up<cdf><<<1, threads>>>(spec, spread, sums.data());
    device_test::check(cudaDeviceSynchronize(), "look_up");
    std::printf("%u lookups a warp\n", rounds);
    return 0;
}
