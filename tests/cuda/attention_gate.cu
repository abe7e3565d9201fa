// What the attention kernels cost: fp8 and bf16, both head sizes, both sides. See attention_gate.py.

#include <normans/cuda/paged_attention.cuh>
#include <normans/cuda/raw_pages.cuh>

using namespace normans;

template <class Code, uint32_t Dim, uint32_t Group, uint32_t Width>
cudaError_t both(const attention_batch& batch, const coded_pages<Width, paged_means>& coded,
                 const raw_pages<Code>& raw, cudaStream_t stream)
{
    using shape = attention_shape<Code, Dim, Group, 16>;
    const cudaError_t error = decode_attention<shape>(batch, coded, stream);
    return error != cudaSuccess ? error : decode_attention<shape>(batch, raw, stream);
}

template <class Code, uint32_t Dim, uint32_t Group, uint32_t Width>
constexpr auto gate = both<Code, Dim, Group, Width>;

// Somebody must name them.
extern const void* const attention_gates[];
const void* const attention_gates[] = {
    reinterpret_cast<const void*>(gate<uint8_t, 64, 1, 32>),
    reinterpret_cast<const void*>(gate<uint8_t, 128, 8, 32>),
    reinterpret_cast<const void*>(gate<uint16_t, 64, 8, 32>),
    reinterpret_cast<const void*>(gate<uint16_t, 128, 16, 8>),
};
