// What the attention kernels cost: fp8 and bf16, both head sizes, both sides. See attention_gate.py.

#include <normans/cuda/paged_attention.cuh>
#include <normans/cuda/raw_pool.cuh>

using namespace normans;

template <class Code, uint32_t Dim, uint32_t Group, uint32_t Width, attention_math Math>
cudaError_t both(const attention_batch& batch, const coded_pool<Width, paged_means>& coded,
                 const raw_pool<Code>& raw, cudaStream_t stream)
{
    using shape = attention_shape<Code, Dim, Group, 16, 2, Math>;
    const cudaError_t error = decode_attention<shape>(batch, coded, stream);
    return error != cudaSuccess ? error : decode_attention<shape>(batch, raw, stream);
}

// Somebody must name them.
extern const void* const attention_gates[];
const void* const attention_gates[] = {
    reinterpret_cast<const void*>(both<uint8_t, 64, 8, 32, attention_math::fused>),
    reinterpret_cast<const void*>(both<uint8_t, 128, 16, 8, attention_math::tensor>),
    reinterpret_cast<const void*>(both<uint16_t, 128, 16, 8, attention_math::fused>),
};
