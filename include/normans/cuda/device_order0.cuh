#pragma once
// device_codec.cuh's batches for order 0, any type: what is said there holds. Entries are
// decode_entry and encode_entry; nobody looks at their predictors.

#include "device_codec.cuh"
#include "warp_order0.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// What may stand in an entry in a predictor's place.
struct nothing_predicted {
};

namespace detail {

// Threads of a block: each logical warp of them has tables in shared memory.
template <uint32_t Width>
constexpr uint32_t order0_threads = Width == 1 ? 16 : codec_threads;

template <class Codec, uint32_t Width, class Entry, class Result>
static __global__ void NORMANS_LAUNCH_BOUNDS(order0_threads<Width>, 6)  // no spills
    run_order0_entries(block_spec spec, const Entry* entries, uint32_t count,
                       const uint32_t* valid, Result* results)
{
    constexpr uint32_t warps = order0_threads<Width> / Width;
    __shared__ std::conditional_t<decoded_bytes<Entry> != 0, typename Codec::DecodeStorage,
                                  typename Codec::TempStorage> rooms[warps];
    if (valid != nullptr && *valid < count) count = *valid;
    const uint32_t i = blockIdx.x * warps + threadIdx.x / Width;
    if (i >= count) return;
    const Result result = run_entry(Codec(rooms[threadIdx.x / Width]), spec, entries[i]);
    if (threadIdx.x % Width == 0) results[i] = result;
}

template <scalar_type Type, uint32_t Width>
struct device_order0_codec {
    /// Whether batches of this spec can be coded, and if not, why. Needs no device: what
    /// spec.tables points to is the device's, and too few tables are each entry's bad_argument.
    static device_support supports(const block_spec& spec)
    {
        if (spec.dtype != Type) return {false, "another scalar type than this codec's"};
        if (spec.coder != coder_id::order0) return {false, "another coder than this codec's"};
        if (spec.lanes != 0 && spec.lanes != Width) return {false, "other lanes than this codec's"};
        if (spec.parameter_hash) return {false, "order 0 has no parameters to hash"};
        block_spec plain = spec;
        plain.tables = nullptr;
        if (check_spec(plain) != status::ok) return {false, "an impossible spec"};
        return {true, ""};
    }

    static constexpr size_t workspace_bytes(const block_spec&, uint32_t /*pages*/) { return 0; }

    /// See device_codec.
    template <class Code, class Predictor>
    static cudaError_t decode(const block_spec& spec, const decode_entry<Code, Predictor>* entries,
                              uint32_t count, const uint32_t* valid, decode_result* results,
                              cudaStream_t stream) noexcept
    {
        static_assert(sizeof(Code) == code_bytes(Type), "codes of another width");
        return run(spec, entries, count, valid, results, stream);
    }

    /// See device_codec.
    template <class Code, class Predictor>
    static cudaError_t encode(const block_spec& spec, const encode_entry<Code, Predictor>* entries,
                              uint32_t count, const uint32_t* valid, encode_result* results,
                              cudaStream_t stream) noexcept
    {
        static_assert(sizeof(Code) == code_bytes(Type), "codes of another width");
        return run(spec, entries, count, valid, results, stream);
    }

    /// See device_codec.
    template <class Code, class Predictor>
    static cudaError_t pack(const encode_entry<Code, Predictor>* entries,
                            const encode_result* results, uint32_t count, const uint32_t* valid,
                            uint64_t* directory, uint8_t* to, uint64_t capacity,
                            cudaStream_t stream) noexcept
    {
        return pack_blocks(entries, results, count, valid, directory, to, capacity, stream);
    }

private:
    template <class Entry, class Result>
    static cudaError_t run(const block_spec& spec, const Entry* entries, uint32_t count,
                           const uint32_t* valid, Result* results, cudaStream_t stream) noexcept
    {
        if (count == 0) return cudaSuccess;
        if (entries == nullptr || results == nullptr || !supports(spec).ok)
            return cudaErrorInvalidValue;
        constexpr uint32_t threads = order0_threads<Width>, warps = threads / Width;
        return launch(run_order0_entries<warp_codec<Type, Width, coder_id::order0>, Width, Entry,
                                         Result>,
                      count / warps + (count % warps != 0 ? 1 : 0), threads, stream, spec, entries,
                      count, valid, results);
    }
};

}  // namespace detail

template <scalar_type Type, uint32_t Width>
struct device_codec<Type, Width, coder_id::order0> : detail::device_order0_codec<Type, Width> {
};

// Types with a scale, of which device_scaled.cuh has codecs, too.
template <uint32_t Width>
struct device_codec<scalar_type::int8, Width, coder_id::order0>
    : detail::device_order0_codec<scalar_type::int8, Width> {
};
template <uint32_t Width>
struct device_codec<scalar_type::int4, Width, coder_id::order0>
    : detail::device_order0_codec<scalar_type::int4, Width> {
};
template <uint32_t Width>
struct device_codec<scalar_type::e2m1, Width, coder_id::order0>
    : detail::device_order0_codec<scalar_type::e2m1, Width> {
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
