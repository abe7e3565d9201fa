#pragma once
// What examples/04_offload.cu has instead of an engine: pages of an fp8 cache on the device with
// bf16 predictions, made up and always the same; memory that frees itself; a clock.

#include <normans/cuda/device_codec.cuh>
#include <normans/normans.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <cuda_runtime.h>

namespace example {

inline void check(cudaError_t error)
{
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    std::exit(1);
}

/// True if there is a device; else says so.
inline bool there_is_a_device()
{
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return true;
    std::printf("skipped: no device\n");
    return false;
}

/// Whether the clock means anything: a device without a UUID is no hardware.
inline bool is_hardware()
{
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0));
    for (const char byte : properties.uuid.bytes)
        if (byte != 0) return true;
    return false;
}

struct free_device {
    void operator()(void* p) const { check(cudaFree(p)); }
};
struct free_pinned {
    void operator()(void* p) const { check(cudaFreeHost(p)); }
};
template <class T>
using device_memory = std::unique_ptr<T, free_device>;
template <class T>
using pinned_memory = std::unique_ptr<T, free_pinned>;

template <class T>
device_memory<T> on_device(std::size_t count)
{
    void* p = nullptr;
    check(cudaMalloc(&p, count * sizeof(T)));
    check(cudaMemset(p, 0, count * sizeof(T)));  // results have padding, which is copied too
    check(cudaDeviceSynchronize());
    return device_memory<T>(static_cast<T*>(p));
}
template <class T>
pinned_memory<T> pinned(std::size_t count)
{
    void* p = nullptr;
    check(cudaMallocHost(&p, count * sizeof(T)));
    return pinned_memory<T>(static_cast<T*>(p));
}
template <class T>
device_memory<T> copy_to_device(const std::vector<T>& from)
{
    device_memory<T> to = on_device<T>(from.size());
    check(cudaMemcpy(to.get(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
    return to;
}
template <class T>
std::vector<T> copy_from_device(const T* from, std::size_t count)
{
    std::vector<T> to(count);
    check(cudaMemcpy(to.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
}
template <class T>
void copy(T* to, const T* from, std::size_t count, cudaStream_t stream)
{
    check(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDefault, stream));
}

/// Seconds that the device needs for what f() submits, f() having run once before.
template <class Function>
double seconds(const Function& f)
{
    f();
    check(cudaDeviceSynchronize());
    const auto begin = std::chrono::steady_clock::now();
    f();
    check(cudaDeviceSynchronize());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

using predictor = normans::view_predictor<normans::bf16_means, normans::channel_sigmas,
                                          normans::no_affine>;

using encode_entry = normans::encode_entry<std::uint8_t, predictor>;
using decode_entry = normans::decode_entry<std::uint8_t, predictor>;

/// [pages][tokens][heads][dim], as engines lay caches out.
class paged_cache {
public:
    normans::block_spec spec;
    const std::size_t pages;

    explicit paged_cache(std::size_t count) : pages(count)
    {
        spec.dtype = normans::scalar_type::e4m3fn;
        spec.heads = 4;
        spec.tokens = 16;
        spec.dim = 64;
        spec.lanes = 32;
        std::vector<std::uint8_t> sigma;
        for (std::uint32_t c = 0; c < spec.heads * spec.dim; ++c)
            sigma.push_back(normans::sigma_index(
                normans::deviation{0.125f * float(1 + c % 3)}, spec.sigma_offset));
        std::vector<std::uint16_t> mean(bytes());
        std::uint32_t random = 1;
        const auto uniform = [&] {  // in [-1, 1)
            random = random * 1664525u + 1013904223u;
            return float(std::int32_t(random)) * 0x1p-31f;
        };
        codes_.resize(bytes());
        for (std::size_t i = 0; i < codes_.size(); ++i) {
            const float value = 4 * uniform();
            const float noise = 0.125f * float(1 + i % 3) * (uniform() + uniform() + uniform());
            mean[i] = std::uint16_t(normans::float_to_bits(value) >> 16);
            codes_[i] = std::uint8_t(normans::nearest_code(
                normans::format_of(spec.dtype), normans::float_to_bits(value + noise)));
        }
        sigmas_ = copy_to_device(sigma);
        means_ = copy_to_device(mean);
        there_ = copy_to_device(codes_);
    }

    std::size_t page_bytes() const { return std::size_t(normans::count_of(spec)); }
    std::size_t bytes() const { return pages * page_bytes(); }
    std::uint8_t* data() const { return there_.get(); }

    normans::box_view<std::uint8_t> box(std::size_t page) const
    {
        return {there_.get() + page * page_bytes(), spec.dim, spec.heads * spec.dim};
    }
    predictor predictor_of(std::size_t page) const
    {
        return {{means_.get() + page * page_bytes(), spec.dim, spec.heads * spec.dim},
                {sigmas_.get(), spec.dim},
                {}};
    }

    /// Whether every bit is as it was at first.
    bool is_whole() const
    {
        return copy_from_device(there_.get(), bytes()) == codes_;
    }

private:
    std::vector<std::uint8_t> codes_;
    device_memory<std::uint8_t> there_, sigmas_;
    device_memory<std::uint16_t> means_;
};

/// A stream, and what it needs to code one batch of pages.
struct coding_stream {
    std::size_t slot_bytes;
    cudaStream_t stream = nullptr;
    device_memory<std::uint8_t> slots, blocks;
    device_memory<std::uint64_t> directory;
    device_memory<normans::encode_result> encoded;

    coding_stream(const normans::block_spec& spec, std::size_t batch)
        : slot_bytes((normans::max_encoded_bytes(spec) + 15) / 16 * 16),
          slots(on_device<std::uint8_t>(batch * slot_bytes)),
          blocks(on_device<std::uint8_t>(batch * slot_bytes)),
          directory(on_device<std::uint64_t>(batch + 1)),
          encoded(on_device<normans::encode_result>(batch))
    {
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    coding_stream(const coding_stream&) = delete;
    coding_stream& operator=(const coding_stream&) = delete;
    ~coding_stream() { check(cudaStreamDestroy(stream)); }
    operator cudaStream_t() const { return stream; }
};

/// Batches take turns on the two sides.
inline device_memory<encode_entry> encode_entries(const paged_cache& cache,
                                                  const coding_stream (&sides)[2],
                                                  std::size_t batch)
{
    std::vector<encode_entry> entries;
    for (std::size_t i = 0; i < cache.pages; ++i) {
        const coding_stream& side = sides[i / batch % 2];
        const normans::box_view<std::uint8_t> box = cache.box(i);
        entries.push_back({side.slots.get() + i % batch * side.slot_bytes, side.slot_bytes,
                           cache.spec.tokens, cache.predictor_of(i),
                           {box.data, box.head_stride, box.token_stride}});
    }
    return copy_to_device(entries);
}

/// `directories` has batch + 1 elements a batch, as pack() made them.
inline device_memory<decode_entry> decode_entries(const paged_cache& cache,
                                                  const coding_stream (&sides)[2],
                                                  std::size_t batch,
                                                  const std::uint64_t* directories)
{
    std::vector<decode_entry> entries;
    for (std::size_t i = 0; i < cache.pages; ++i) {
        const std::uint64_t* block = directories + i / batch * (batch + 1) + i % batch;
        entries.push_back({sides[i / batch % 2].blocks.get() + block[0], block[1] - block[0],
                           cache.spec.tokens, cache.predictor_of(i), cache.box(i)});
    }
    return copy_to_device(entries);
}

struct speeds {  // seconds for the whole cache
    double offload, restore, plain_copy, decode;
};

/// Checks every page; prints what was measured, or that nothing could be. main's result.
inline int report(const paged_cache& cache, std::size_t coded_bytes,
                  const normans::decode_result* results, const speeds& measured)
{
    bool exact = cache.is_whole();
    for (const normans::decode_result& one : copy_from_device(results, cache.pages))
        exact = exact && bool(one);
    const double raw = double(cache.bytes()), ratio = raw / double(coded_bytes);
    std::printf("%zu pages, %zu codes in %zu bytes (%.2f to 1), %s\n", cache.pages, cache.bytes(),
                coded_bytes, ratio, exact ? "exact" : "NOT EXACT");
    if (!is_hardware()) {
        std::printf("not measured, since this is no GPU: offload, restore, plain copy, decoding, "
                    "and the break-even link speed that follows from them\n");
        return exact ? 0 : 1;
    }
    const auto rate = [&](double time) { return raw / time * 1e-9; };
    std::printf("GB/s of codes: offload %.1f, restore %.1f, plain copy to the device %.1f, "
                "decoding alone %.1f\n",
                rate(measured.offload), rate(measured.restore), rate(measured.plain_copy),
                rate(measured.decode));
    // A page costs the larger of (copying its block, decoding it), against copying its codes.
    std::printf("break-even: blocks come back faster than plain codes over links below %.1f GB/s, "
                "%.2f times as fast below %.1f GB/s\n",
                rate(measured.decode), ratio, rate(measured.decode) / ratio);
    return exact ? 0 : 1;
}

}  // namespace example
