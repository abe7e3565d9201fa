#pragma once
// device_codec.cuh's batches for int8, int4 and e2m1, by either coder, and for fp8 by tANS: what is
// said there holds, and entries bring their pages' scales, which nobody reads of fp8.

#include "device_codec.cuh"
#include "warp_scaled.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// One page to decode; see decode_entry. `scales` take the place of the spec's, which need not be
/// there. Boxes of 4-bit codes must not share a byte.
template <class Predictor>
struct scaled_decode_entry {
    const uint8_t* block;  // a multiple of 4
    uint64_t bytes;        // of the block, at least
    uint32_t tokens;
    Predictor predictor;
    box_view<uint8_t> out;
    scale_view scales;
};

/// One page to encode.
template <class Predictor>
struct scaled_encode_entry {
    uint8_t* out;  // a multiple of 4
    uint64_t capacity;
    uint32_t tokens;
    Predictor predictor;
    box_view<const uint8_t> codes;
    scale_view scales;
};

/// A block of threads takes at most so much shared memory for a bank.
constexpr uint32_t largest_shared_bank = 96 * 1024;

namespace detail {

// Blocks of threads that copy a bank: each codes as many pages as it takes.
constexpr uint32_t most_bank_copies = 1024;

template <class Codec, class Predictor>
__device__ decode_result run_scaled_entry(const Codec& codec, const block_spec& spec,
                                          const scaled_decode_entry<Predictor>& entry)
{
    return codec.decode(spec, entry.block, size_t(entry.bytes), entry.predictor,
                        box_reference_sink<uint8_t>{entry.out});
}
template <class Codec, class Predictor>
__device__ encode_result run_scaled_entry(const Codec& codec, const block_spec& spec,
                                          const scaled_encode_entry<Predictor>& entry)
{
    return codec.encode(spec, box_source<uint8_t>{entry.codes}, entry.predictor, entry.out,
                        size_t(entry.capacity));
}

template <class Predictor>
__device__ const uint8_t* codes_of(const scaled_decode_entry<Predictor>& entry)
{
    return entry.out.data;
}
template <class Predictor>
__device__ const uint8_t* codes_of(const scaled_encode_entry<Predictor>& entry)
{
    return entry.codes.data;
}

// What the launch made room for; where the device is played by a host compiler, nothing.
__device__ inline void* launched_room()
{
#if defined(__CUDA_ARCH__)
    extern __shared__ uint32_t normans_bank_room[];
    return normans_bank_room;
#else
    return nullptr;
#endif
}

template <class Result>
constexpr bank_use use_of =
    std::is_same_v<Result, encode_result> ? bank_use::encode : bank_use::decode;

template <class Codec, uint32_t Width, class Entry, class Result>
static __global__ void NORMANS_LAUNCH_BOUNDS(codec_threads, 4)  // registers enough, no spills
    run_scaled_entries(block_spec spec, const Entry* entries, uint32_t count,
                       const uint32_t* valid, uint32_t bank_bytes, Result* results)
{
    __shared__ typename Codec::TempStorage tables;
    Codec::prepare(tables, spec, threadIdx.x, blockDim.x, launched_room(), bank_bytes,
                   use_of<Result>);
    __syncthreads();
    constexpr uint32_t warps = codec_threads / Width;
    if (valid != nullptr && *valid < count) count = *valid;
    for (uint64_t i = uint64_t(blockIdx.x) * warps + threadIdx.x / Width; i < count;
         i += uint64_t(gridDim.x) * warps) {
        const Entry& entry = entries[i];
        Result result;
        result.code = entry_error(spec, entry.tokens, codes_of(entry));
        if (result.code == status::ok) {
            block_spec mine = spec;
            mine.tokens = entry.tokens;
            mine.scales = entry.scales;
            result = run_scaled_entry(Codec(tables), mine, entry);
        }
        if (threadIdx.x % Width == 0) results[i] = result;
    }
}

/// Batches of types with a scale or a bank.
template <scalar_type Type, uint32_t Width, coder_id Coder>
struct device_scaled_codec {
    /// Whether batches of this spec can be coded, and if not, why. Needs no device: what spec.bank
    /// points to is the device's, and a bank that is none is each entry's bad_argument.
    static device_support supports(const block_spec& spec)
    {
        if (spec.dtype != Type) return {false, "another scalar type than this codec's"};
        if (spec.coder != Coder) return {false, "another coder than this codec's"};
        if (spec.lanes != 0 && spec.lanes != Width) return {false, "other lanes than this codec's"};
        if (Coder == coder_id::tans && spec.bank == nullptr) return {false, "tANS without a bank"};
        if (spec.shape == shape_id::mixture_marginal)
            return {false, "neither scales nor banks go with a marginal"};
        static constexpr float some_scale = 0;
        block_spec plain = spec;
        plain.coder = coder_id::rans;
        plain.bank = nullptr;
        plain.scales.data = &some_scale;
        if (check_spec(plain) != status::ok) return {false, "an impossible spec"};
        return {true, ""};
    }

    static constexpr size_t workspace_bytes(const block_spec&, uint32_t /*pages*/) { return 0; }

    /// See device_codec. `bank_bytes`, at most largest_shared_bank: shared memory for tANS's bank,
    /// which goes there if warp_bank_bytes(Type, plan, bank_use::decode) fit, else it is read
    /// through L2. Above 48 KiB the device must have so much for a block of threads.
    template <class Predictor>
    static cudaError_t decode(const block_spec& spec, const scaled_decode_entry<Predictor>* entries,
                              uint32_t count, const uint32_t* valid, decode_result* results,
                              cudaStream_t stream, uint32_t bank_bytes = 0) noexcept
    {
        return run(spec, entries, count, valid, results, stream, bank_bytes);
    }

    /// Likewise, with bank_use::encode.
    template <class Predictor>
    static cudaError_t encode(const block_spec& spec, const scaled_encode_entry<Predictor>* entries,
                              uint32_t count, const uint32_t* valid, encode_result* results,
                              cudaStream_t stream, uint32_t bank_bytes = 0) noexcept
    {
        return run(spec, entries, count, valid, results, stream, bank_bytes);
    }

    /// See device_codec.
    template <class Predictor>
    static cudaError_t pack(const scaled_encode_entry<Predictor>* entries,
                            const encode_result* results, uint32_t count, const uint32_t* valid,
                            uint64_t* directory, uint8_t* to, uint64_t capacity,
                            cudaStream_t stream) noexcept
    {
        return pack_blocks(entries, results, count, valid, directory, to, capacity, stream);
    }

private:
    template <class Entry, class Result>
    static cudaError_t run(const block_spec& spec, const Entry* entries, uint32_t count,
                           const uint32_t* valid, Result* results, cudaStream_t stream,
                           uint32_t bank_bytes) noexcept
    {
        if (count == 0) return cudaSuccess;
        if (entries == nullptr || results == nullptr || !supports(spec).ok ||
            bank_bytes > largest_shared_bank)
            return cudaErrorInvalidValue;
        constexpr uint32_t warps = codec_threads / Width;
        const auto kernel =
            run_scaled_entries<warp_codec<Type, Width, Coder>, Width, Entry, Result>;
        uint32_t blocks = count / warps + (count % warps != 0 ? 1 : 0);
        if (bank_bytes != 0) {
            const cudaError_t error = cudaFuncSetAttribute(
                reinterpret_cast<const void*>(kernel),
                cudaFuncAttributeMaxDynamicSharedMemorySize, int(bank_bytes));
            if (error != cudaSuccess) {
                static_cast<void>(cudaGetLastError());
                return error;
            }
            if (blocks > most_bank_copies) blocks = most_bank_copies;
        }
        return launch_with(bank_bytes, kernel, blocks, codec_threads, stream, spec, entries, count,
                           valid, bank_bytes, results);
    }
};

}  // namespace detail

template <uint32_t Width, coder_id Coder>
struct device_codec<scalar_type::int8, Width, Coder>
    : detail::device_scaled_codec<scalar_type::int8, Width, Coder> {
};
template <uint32_t Width, coder_id Coder>
struct device_codec<scalar_type::int4, Width, Coder>
    : detail::device_scaled_codec<scalar_type::int4, Width, Coder> {
};
template <uint32_t Width, coder_id Coder>
struct device_codec<scalar_type::e2m1, Width, Coder>
    : detail::device_scaled_codec<scalar_type::e2m1, Width, Coder> {
};

template <uint32_t Width>
struct device_codec<scalar_type::e4m3fn, Width, coder_id::tans>
    : detail::device_scaled_codec<scalar_type::e4m3fn, Width, coder_id::tans> {
};
template <uint32_t Width>
struct device_codec<scalar_type::e5m2, Width, coder_id::tans>
    : detail::device_scaled_codec<scalar_type::e5m2, Width, coder_id::tans> {
};
template <uint32_t Width>
struct device_codec<scalar_type::e4m3fnuz, Width, coder_id::tans>
    : detail::device_scaled_codec<scalar_type::e4m3fnuz, Width, coder_id::tans> {
};
template <uint32_t Width>
struct device_codec<scalar_type::e5m2fnuz, Width, coder_id::tans>
    : detail::device_scaled_codec<scalar_type::e5m2fnuz, Width, coder_id::tans> {
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
