#pragma once
// Batches of pages on the caller's stream: an array of descriptors in device memory, a result per
// page in device memory. Calls only launch kernels: they never allocate, copy, synchronise, or need
// a workspace, so they can be captured in a graph; a replay reads descriptors, contents and the
// number of valid pages as they are then. Host arguments are free when a call returns.
// The stream's device must be the current one; calls keep nothing on the host, so any will do. They
// return the error of their own launch, and where an error of others was pending one still is.

#include <cuda_runtime_api.h>

#include "warp_codec.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// One page to decode. Pages may hold fewer tokens than the spec's: `tokens`, of the box as well as
/// of the block. Predictor: see block/predictor.hpp, callable on the device, pointers its own.
/// Codes lie at multiples of their size, else bad_argument, as predictors' arrays must.
template <class Code, class Predictor>
struct decode_entry {
    const uint8_t* block;  // a multiple of 4
    uint64_t bytes;        // of the block, at least
    uint32_t tokens;
    Predictor predictor;
    box_view<Code> out;
};

/// One page to encode. max_encoded_bytes(spec) is always enough.
template <class Code, class Predictor>
struct encode_entry {
    uint8_t* out;  // a multiple of 4
    uint64_t capacity;
    uint32_t tokens;
    Predictor predictor;
    box_view<const Code> codes;
};

/// Where packed blocks lie: multiples of this.
constexpr uint32_t packed_alignment = 16;

struct device_support {
    bool ok;
    const char* reason;  // why not; "" if ok
};

namespace detail {

constexpr uint32_t codec_threads = 128;

template <class Entry>
constexpr uint32_t decoded_bytes = 0;  // of a code
template <class Code, class Predictor>
constexpr uint32_t decoded_bytes<decode_entry<Code, Predictor>> = sizeof(Code);

// Blocks per multiprocessor, hence registers per thread: as few as do without spills.
template <class Entry>
NORMANS_HD constexpr uint32_t codec_blocks()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 1000
    if (decoded_bytes<Entry> == 1) return 10;
#endif
    return decoded_bytes<Entry> != 0 ? 8 : 5;
}

template <class Code>
__device__ status entry_error(const block_spec& spec, uint32_t tokens, const Code* data)
{
    const bool empty = tokens == 0 || spec.heads == 0 || spec.dim == 0;
    const bool misplaced = reinterpret_cast<std::uintptr_t>(data) % sizeof(Code) != 0;
    return tokens > spec.tokens || misplaced || (data == nullptr && !empty) ? status::bad_argument
                                                                            : status::ok;
}

template <class Codec, class Code, class Predictor>
__device__ decode_result run_entry(const Codec& codec, block_spec spec,
                                   const decode_entry<Code, Predictor>& entry)
{
    decode_result failed;
    failed.code = entry_error(spec, entry.tokens, entry.out.data);
    if (failed.code != status::ok) return failed;
    spec.tokens = entry.tokens;
    return codec.decode(spec, entry.block, size_t(entry.bytes), entry.predictor,
                        box_reference_sink<Code>{entry.out});
}

template <class Codec, class Code, class Predictor>
__device__ encode_result run_entry(const Codec& codec, block_spec spec,
                                   const encode_entry<Code, Predictor>& entry)
{
    encode_result failed;
    failed.code = entry_error(spec, entry.tokens, entry.codes.data);
    if (failed.code != status::ok) return failed;
    spec.tokens = entry.tokens;
    return codec.encode(spec, box_source<Code>{entry.codes}, entry.predictor, entry.out,
                        size_t(entry.capacity));
}

template <class Codec, uint32_t Width, class Entry, class Result>
static __global__ void NORMANS_LAUNCH_BOUNDS(codec_threads, codec_blocks<Entry>())
    run_entries(block_spec spec, const Entry* entries, uint32_t count, const uint32_t* valid,
                Result* results)
{
    __shared__ typename Codec::TempStorage tables;
    Codec::prepare(tables, spec, threadIdx.x, blockDim.x);
    __syncthreads();
    constexpr uint32_t warps = codec_threads / Width;
    if (valid != nullptr && *valid < count) count = *valid;
    // No grid has so many blocks that this wraps.
    const uint32_t i = blockIdx.x * warps + threadIdx.x / Width;
    if (i >= count) return;
    const Result result = run_entry(Codec(tables), spec, entries[i]);
    if (threadIdx.x % Width == 0) results[i] = result;
}

// Offsets of packed blocks: one block of threads, each thread a run of neighbours. Not CUB's scan:
// that of a device needs a workspace, and its headers have moved between toolkits (P09). There is
// little to win: 3000 sizes take 7,900 instructions of warps, as 500 of their pages' scalars do.
[[maybe_unused]] static __global__ void __launch_bounds__(1024)
    offsets_of(const encode_result* results, uint32_t count, const uint32_t* valid,
               uint64_t* directory)
{
    __shared__ uint64_t sum[1024];
    if (valid != nullptr && *valid < count) count = *valid;
    const uint32_t each = (count + 1023) / 1024;
    const uint64_t first = uint64_t(threadIdx.x) * each;
    const uint64_t end = first + each < count ? first + each : count;
    constexpr uint64_t unit = packed_alignment;
    const auto room = [&](uint64_t i) {
        return results[i].code == status::ok ? (results[i].bytes + unit - 1) / unit * unit : 0;
    };
    uint64_t mine = 0;
    for (uint64_t i = first; i < end; ++i) mine += room(i);
    sum[threadIdx.x] = mine;
    __syncthreads();
    for (uint32_t distance = 1; distance < 1024; distance *= 2) {
        const uint64_t before = threadIdx.x >= distance ? sum[threadIdx.x - distance] : 0;
        __syncthreads();
        sum[threadIdx.x] += before;
        __syncthreads();
    }
    uint64_t at = sum[threadIdx.x] - mine;
    for (uint64_t i = first; i < end; ++i) {
        directory[i] = at;
        at += room(i);
    }
    if (threadIdx.x == 1023) directory[count] = sum[1023];
}

template <class Entry>
static __global__ void __launch_bounds__(codec_threads)
    pack_entries(const Entry* entries, const encode_result* results, uint32_t count,
                 const uint32_t* valid, const uint64_t* directory, uint8_t* to, uint64_t capacity)
{
    if (valid != nullptr && *valid < count) count = *valid;
    for (uint32_t i = blockIdx.x; i < count; i += gridDim.x) {
        const uint64_t begin = directory[i], end = directory[i + 1];
        if (end > capacity) continue;
        const uint32_t* from = reinterpret_cast<const uint32_t*>(entries[i].out);
        uint32_t* words = reinterpret_cast<uint32_t*>(to + begin);
        const uint64_t stored = results[i].code == status::ok ? results[i].bytes / 4 : 0;
        for (uint64_t k = threadIdx.x; k < (end - begin) / 4; k += codec_threads)
            words[k] = k < stored ? from[k] : 0;
    }
}

// With `shared` bytes of shared memory beside the kernel's own.
template <class... Parameters, class... Arguments>
cudaError_t launch_with(size_t shared, void (*kernel)(Parameters...), uint32_t blocks,
                        uint32_t threads, cudaStream_t stream, Arguments... arguments)
{
    void* pointers[] = {static_cast<void*>(&arguments)...};
    const bool pending = cudaPeekAtLastError() != cudaSuccess;
    const cudaError_t error = cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks),
                                               dim3(threads), pointers, shared, stream);
    // What is returned must not wait for the caller's next check, too. But the runtime keeps one
    // error only: where ours took the place of another, that check must still fail.
    if (error != cudaSuccess && !pending) static_cast<void>(cudaGetLastError());
    return error;
}

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), uint32_t blocks, uint32_t threads,
                   cudaStream_t stream, Arguments... arguments)
{
    return launch_with(0, kernel, blocks, threads, stream, arguments...);
}

// See device_codec::pack.
template <class Entry>
cudaError_t pack_blocks(const Entry* entries, const encode_result* results, uint32_t count,
                        const uint32_t* valid, uint64_t* directory, uint8_t* to, uint64_t capacity,
                        cudaStream_t stream) noexcept
{
    if (count == 0) return cudaSuccess;
    if (entries == nullptr || results == nullptr || directory == nullptr || to == nullptr ||
        reinterpret_cast<std::uintptr_t>(to) % packed_alignment != 0)
        return cudaErrorInvalidValue;
    const cudaError_t error =
        launch(offsets_of, 1, 1024, stream, results, count, valid, directory);
    if (error != cudaSuccess) return error;
    return launch(pack_entries<Entry>, count < 65536 ? count : 65536, codec_threads, stream,
                  entries, results, count, valid, static_cast<const uint64_t*>(directory), to,
                  capacity);
}

}  // namespace detail

/// Pages of one scalar type and lane count; of types with a scale, by either coder:
/// cuda/device_scaled.cuh; under static tables: cuda/device_order0.cuh.
template <scalar_type Type, uint32_t Width, coder_id Coder = coder_id::rans>
struct device_codec {
    static_assert(!has_scale(Type), "include cuda/device_scaled.cuh");
    static_assert(Coder == coder_id::rans, "include the coder's own header");

    /// Whether batches of this spec can be coded, and if not, why. Needs no device.
    static device_support supports(const block_spec& spec)
    {
        if (spec.dtype != Type) return {false, "another scalar type than this codec's"};
        if (spec.coder != Coder) return {false, "another coder than this codec's"};
        if (spec.lanes != 0 && spec.lanes != Width) return {false, "other lanes than this codec's"};
        if (detail::check_spec(spec) != status::ok) return {false, "an impossible spec"};
        return {true, ""};
    }

    /// Device memory that a call needs beside its arguments, in bytes.
    static constexpr size_t workspace_bytes(const block_spec&, uint32_t /*pages*/) { return 0; }

    /// results[i] = outcome of entries[i], i < min(count, *valid); `valid` may be null. What lies
    /// behind is not touched. All pointers, spec.marginal too, are the device's. Pages may share
    /// blocks and predictors, not outputs.
    template <class Code, class Predictor>
    static cudaError_t decode(const block_spec& spec, const decode_entry<Code, Predictor>* entries,
                              uint32_t count, const uint32_t* valid, decode_result* results,
                              cudaStream_t stream) noexcept
    {
        return run(spec, entries, count, valid, results, stream);
    }

    /// Likewise. A page that does not fit its capacity gets output_too_small.
    template <class Code, class Predictor>
    static cudaError_t encode(const block_spec& spec, const encode_entry<Code, Predictor>* entries,
                              uint32_t count, const uint32_t* valid, encode_result* results,
                              cudaStream_t stream) noexcept
    {
        return run(spec, entries, count, valid, results, stream);
    }

    /// Blocks that encode() made, one behind the other: block i at to + directory[i], and
    /// directory[count or *valid] is their size. `to` is a multiple of packed_alignment, directory
    /// has count + 1 elements. Blocks that would end behind `capacity` are left out; pages that
    /// failed take no room.
    template <class Code, class Predictor>
    static cudaError_t pack(const encode_entry<Code, Predictor>* entries,
                            const encode_result* results, uint32_t count, const uint32_t* valid,
                            uint64_t* directory, uint8_t* to, uint64_t capacity,
                            cudaStream_t stream) noexcept
    {
        return detail::pack_blocks(entries, results, count, valid, directory, to, capacity, stream);
    }

private:
    template <class Entry, class Result>
    static cudaError_t run(const block_spec& spec, const Entry* entries, uint32_t count,
                           const uint32_t* valid, Result* results, cudaStream_t stream) noexcept
    {
        if (count == 0) return cudaSuccess;
        if (entries == nullptr || results == nullptr || !supports(spec).ok)
            return cudaErrorInvalidValue;
        constexpr uint32_t warps = detail::codec_threads / Width;
        return detail::launch(
            detail::run_entries<warp_codec<Type, Width>, Width, Entry, Result>,
            count / warps + (count % warps != 0 ? 1 : 0), detail::codec_threads, stream, spec,
            entries, count, valid, results);
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
