// A kernel of your own decodes a page that the CPU encoded, one warp a page: the prediction is
// computed in registers, the codes are used where they arrive.

#include <normans/cuda/warp_codec.cuh>
#include <normans/normans.hpp>

#include <cstdio>
#include <vector>

using codec = normans::warp_codec<normans::scalar_type::e4m3fn, 32>;

struct ramp {  // integers and exact floats only: host and device must get the same bits
    NORMANS_HD normans::prediction operator()(std::uint32_t i) const
    {
        return {0.25f * float(int(i % 97) - 48), 14 * 8};
    }
};

struct answer { normans::status code; unsigned sum; };

__global__ void sum_codes(normans::block_spec spec, std::uint8_t* block, size_t bytes, answer* to)
{
    __shared__ codec::TempStorage tables;  // one for all warps of the block
    codec::prepare(tables, spec, threadIdx.x, blockDim.x);
    __syncthreads();
    const auto add = [=](auto&, std::uint32_t code) { atomicAdd(&to->sum, code); };
    const auto result = codec(tables).decode(spec, block, bytes, ramp{}, add);
    if (threadIdx.x == 0) to->code = result.code;
}

int main()
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("skipped: no device\n") < 0;
    normans::block_spec spec;
    spec.dim = 4096;
    spec.lanes = 32;
    std::vector<std::uint8_t> codes(spec.dim), block(normans::max_encoded_bytes(spec));
    unsigned expected = 0;
    for (std::uint32_t i = 0; i < spec.dim; ++i) {
        const auto value = normans::float_to_bits(ramp{}(i).mean + float(i % 31) / 64.0f);
        codes[i] = std::uint8_t(normans::nearest_code(normans::format_of(spec.dtype), value));
        expected += codes[i];
    }
    const auto from = normans::dense(spec, codes.data());
    const auto encoded = normans::encode(spec, from, ramp{}, block.data(), block.size());
    std::uint8_t* there = nullptr;  // the block, and behind it the answer
    const std::size_t behind = (encoded.bytes + 15) / 16 * 16;
    answer found{normans::status::bad_argument, 0};
    cudaMalloc(&there, behind + sizeof found);
    cudaMemcpy(there, block.data(), encoded.bytes, cudaMemcpyHostToDevice);
    cudaMemset(there + behind, 0, sizeof found);
    sum_codes<<<1, 32>>>(spec, there, encoded.bytes, reinterpret_cast<answer*>(there + behind));
    cudaMemcpy(&found, there + behind, sizeof found, cudaMemcpyDeviceToHost);
    cudaFree(there);
    std::printf("%zu bytes for %u codes, %s, the sum is %s\n", encoded.bytes, spec.dim,
                normans::status_name(found.code), found.sum == expected ? "right" : "WRONG");
    return found.code == normans::status::ok && found.sum == expected ? 0 : 1;
}
