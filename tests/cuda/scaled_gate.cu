// What the kernels of types with a scale cost: means in bf16, a sigma and an affine map per
// channel, a scale per group of a row, row steps, content check, bounds. See costs.py.

#include <normans/cuda/device_scaled.cuh>

namespace {

using namespace normans;
using predictor = view_predictor<bf16_means, channel_sigmas, channel_affine>;

template <scalar_type Type, coder_id Coder>
cudaError_t both(const block_spec& spec, const scaled_decode_entry<predictor>* in,
                 const scaled_encode_entry<predictor>* out, decode_result* decoded,
                 encode_result* encoded, std::uint32_t count, cudaStream_t stream)
{
    using codec = device_codec<Type, 32, Coder>;
    const cudaError_t error = codec::decode(spec, in, count, nullptr, decoded, stream);
    if (error != cudaSuccess) return error;
    return codec::encode(spec, out, count, nullptr, encoded, stream);
}

}  // namespace

cudaError_t gate_scaled(const block_spec& spec, const scaled_decode_entry<predictor>* in,
                        const scaled_encode_entry<predictor>* out, decode_result* decoded,
                        encode_result* encoded, std::uint32_t count, cudaStream_t stream)
{
    const auto run = [&](auto code) {
        return code(spec, in, out, decoded, encoded, count, stream);
    };
    if (spec.coder == coder_id::tans)
        return spec.dtype == scalar_type::int8
                   ? run(both<scalar_type::int8, coder_id::tans>)
                   : run(both<scalar_type::int4, coder_id::tans>);
    if (spec.dtype == scalar_type::e2m1) return run(both<scalar_type::e2m1, coder_id::rans>);
    return spec.dtype == scalar_type::int8 ? run(both<scalar_type::int8, coder_id::rans>)
                                           : run(both<scalar_type::int4, coder_id::rans>);
}
