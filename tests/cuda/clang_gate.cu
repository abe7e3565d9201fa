// P11: the warp codec in kernels, for clang++ as CUDA compiler. See gate_clang.

#include <normans/cuda/warp_scaled.cuh>

namespace {

using namespace normans;
using predictor = view_predictor<bf16_means, channel_sigmas, channel_affine>;

template <scalar_type Type, uint32_t Width, class Code, coder_id Coder = coder_id::rans>
__device__ void both_ways(const block_spec& spec, uint8_t* block, size_t bytes,
                          const predictor& with, Code* codes, decode_result* decoded)
{
    using codec = warp_codec<Type, Width, Coder>;
    __shared__ typename codec::TempStorage tables;
    codec::prepare(tables, spec, threadIdx.x, blockDim.x);
    __syncthreads();
    const box_view<const Code> from = dense(spec, static_cast<const Code*>(codes));
    const encode_result encoded =
        codec(tables).encode(spec, box_source<Code>{from}, with, block, bytes);
    *decoded = codec(tables).decode(spec, block, encoded.bytes, with,
                                    box_sink<Code>{dense(spec, codes)});
}

}  // namespace

__global__ void e4m3fn_32(block_spec spec, uint8_t* block, size_t bytes, predictor with,
                          uint8_t* codes, decode_result* decoded)
{
    both_ways<scalar_type::e4m3fn, 32>(spec, block, bytes, with, codes, decoded);
}

__global__ void bf16_8(block_spec spec, uint8_t* block, size_t bytes, predictor with,
                       uint16_t* codes, decode_result* decoded)
{
    both_ways<scalar_type::bf16, 8>(spec, block, bytes, with, codes, decoded);
}

__global__ void int4_tans_32(block_spec spec, uint8_t* block, size_t bytes, predictor with,
                             uint8_t* codes, decode_result* decoded)
{
    both_ways<scalar_type::int4, 32, uint8_t, coder_id::tans>(spec, block, bytes, with, codes,
                                                              decoded);
}

__global__ void int8_8(block_spec spec, uint8_t* block, size_t bytes, predictor with,
                       uint8_t* codes, decode_result* decoded)
{
    both_ways<scalar_type::int8, 8>(spec, block, bytes, with, codes, decoded);
}
