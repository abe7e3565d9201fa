// A decoder with a C name for hosts that have no C++ on the device (Triton, Numba, a JIT of your
// own): build it for your architecture and link it into your module, with nvlink or nvJitLink.
//
//     nvcc -std=c++17 -rdc=true -arch=sm_90 -cubin -I include examples/device_entry.cu

#include <normans/cuda/warp_codec.cuh>

/// Decodes one block of e4m3fn codes per warp. All threads of a thread block call it together, 32
/// neighbours each with the same arguments, any number of times. Takes 4 KB of shared memory.
/// block       a multiple of 4, `bytes` readable bytes; made with spec.lanes = 32, sigma_offset and
///             shape as by default, with a content check, with or without row steps
/// means       bf16, sigmas: sigma indices, one a channel: [heads][dim]
/// means, out  the box's first scalar; dim scalars are adjacent, a head begins each head_stride
///             scalars, a token each token_stride. Any memory, shared too.
/// Returns normans::status: 0 if every code is exact, the same in all threads of the warp.
extern "C" __device__ int normans_decode_e4m3fn(
    const unsigned char* block, unsigned long long bytes, unsigned heads, unsigned tokens,
    unsigned dim, const unsigned short* means, const unsigned char* sigmas, long long head_stride,
    long long token_stride, unsigned char* out)
{
    using codec = normans::warp_codec<normans::scalar_type::e4m3fn, 32>;
    __shared__ codec::TempStorage tables;
    normans::block_spec spec;
    spec.heads = heads;
    spec.tokens = tokens;
    spec.dim = dim;
    spec.row_scale = true;
    const unsigned row = threadIdx.y + blockDim.y * threadIdx.z;
    __syncthreads();  // another call may still read the tables
    codec::prepare(tables, spec, threadIdx.x + blockDim.x * row,
                   blockDim.x * blockDim.y * blockDim.z);
    __syncthreads();
    const normans::view_predictor<normans::bf16_means, normans::channel_sigmas, normans::no_affine>
        predictor{{means, head_stride, token_stride}, {sigmas, dim}, {}};
    const normans::box_sink<unsigned char> sink{{out, head_stride, token_stride}};
    return int(codec(tables).decode(spec, block, bytes, predictor, sink).code);
}
