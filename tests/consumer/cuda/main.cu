// P09: a project with kernels. Builds a decoder; asks only what needs no device.

#include <normans/cuda/device_codec.cuh>

using codec = normans::device_codec<normans::scalar_type::e4m3fn, 32>;
using predictor = normans::view_predictor<normans::bf16_means, normans::channel_sigmas>;

cudaError_t decode(const normans::block_spec& spec,
                   const normans::decode_entry<unsigned char, predictor>* entries,
                   unsigned count, normans::decode_result* results, cudaStream_t stream)
{
    return codec::decode(spec, entries, count, nullptr, results, stream);
}

int main()
{
    normans::block_spec spec;
    spec.dim = 64;
    return codec::supports(spec).ok && decode(spec, nullptr, 0, nullptr, nullptr) == cudaSuccess
               ? 0
               : 1;
}
