// What must compile for every architecture, and what its kernels cost: fp8 and bf16, means in bf16,
// a sigma and an affine map per channel, row steps, content check, bounds. See costs.py.

#include <normans/cuda/device_codec.cuh>

namespace {

using namespace normans;
using predictor = view_predictor<bf16_means, channel_sigmas, channel_affine>;

template <scalar_type Type, std::uint32_t Width, class Code>
cudaError_t both(const block_spec& spec, const decode_entry<Code, predictor>* in,
                 const encode_entry<Code, predictor>* out, decode_result* decoded,
                 encode_result* encoded, std::uint32_t count, cudaStream_t stream)
{
    using codec = device_codec<Type, Width>;
    const cudaError_t error = codec::decode(spec, in, count, nullptr, decoded, stream);
    if (error != cudaSuccess) return error;
    return codec::encode(spec, out, count, nullptr, encoded, stream);
}

}  // namespace

cudaError_t gate_e4m3fn(const block_spec& spec, const decode_entry<std::uint8_t, predictor>* in,
                        const encode_entry<std::uint8_t, predictor>* out, decode_result* decoded,
                        encode_result* encoded, std::uint32_t count, cudaStream_t stream)
{
    return both<scalar_type::e4m3fn, 32>(spec, in, out, decoded, encoded, count, stream);
}

cudaError_t gate_bf16(const block_spec& spec, const decode_entry<std::uint16_t, predictor>* in,
                      const encode_entry<std::uint16_t, predictor>* out, decode_result* decoded,
                      encode_result* encoded, std::uint32_t count, cudaStream_t stream)
{
    return both<scalar_type::bf16, 8>(spec, in, out, decoded, encoded, count, stream);
}
