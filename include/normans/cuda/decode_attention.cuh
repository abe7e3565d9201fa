#pragma once
// Attention of one query token per sequence over a paged cache, grouped heads, softmax online. The
// arithmetic alone: where pages come from is another template (raw_pool.cuh, paged_attention.cuh),
// and nothing here knows of coding. Two sources that give equal codes give equal bits.
//
// A block of threads takes one KV head of one sequence. It goes through the pages a tile at a time:
//     while tile t is multiplied, the source copies tile t + 1 into the other half of its memory.
// Scores, maxima and sums are fp32, 2^x is a polynomial: exactly rounded operations in fixed order,
// which no compiler flag changes. With attention_math::fused that is all there is, so the bits are
// the same on every device.
//
// A page that cannot be read (a table entry that is no page, or what the source says) ends its
// sequence's KV head: its result names the first such page and why, the outputs of its query heads
// are all NaN. Everybody else's are exact. A sequence of no tokens gets zeros.

#include <cuda_runtime_api.h>

#include "../status.hpp"
#include "attention_products.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Where pages lie in a pool, in elements; channels are adjacent. Whether K and V are fused is a
/// matter of where they begin.
struct page_strides {
    ptrdiff_t page, token, head;

    /// [page][token][head][channel].
    static constexpr page_strides nhd(uint32_t tokens, uint32_t heads, uint32_t dim)
    {
        return {ptrdiff_t(tokens) * heads * dim, ptrdiff_t(heads) * dim, ptrdiff_t(dim)};
    }
    /// [page][head][token][channel].
    static constexpr page_strides hnd(uint32_t tokens, uint32_t heads, uint32_t dim)
    {
        return {ptrdiff_t(tokens) * heads * dim, ptrdiff_t(dim), ptrdiff_t(tokens) * dim};
    }
};

/// Why a sequence's KV head has no output, and at which of the sequence's pages; {ok, 0} otherwise.
struct attention_result {
    status code;
    uint32_t page;
};

/// One call's sequences. Everything pointed to is the device's.
struct attention_batch {
    const uint16_t* queries;    // bf16 [sequences][kv_heads][group][dim]
    float* out;                 // likewise
    attention_result* results;  // [sequences][kv_heads]
    const int32_t* table;       // [sequences][table_stride]: pages in order; any other number is
                                // no page: bad_argument, if the sequence gets that far
    const uint32_t* lengths;    // [sequences], tokens; more than the table holds: bad_argument
    uint32_t sequences;
    uint32_t kv_heads;
    uint32_t group;        // query heads per KV head
    uint32_t table_stride;
    uint32_t pool_pages;
    float score_scale;     // of softmax, times the scale of K's codes
    float value_scale;     // of V's codes
};

/// Of one page in one tile: what the source has to say.
struct page_slot {
    uint32_t page;    // in the pool
    uint32_t bytes;   // that were copied
    uint32_t tokens;  // 0: behind the sequence's end
    status code;
};

/// What a kernel is compiled for. Code: uint8_t is e4m3fn, uint16_t is bf16. Group: at most so many
/// query heads per KV head. Both sides of a comparison must have the same.
template <class Code, uint32_t Dim, uint32_t Group, uint32_t PageTokens, uint32_t TilePages = 2,
          attention_math Math = attention_math::fused>
struct attention_shape {
    static_assert(std::is_same_v<Code, uint8_t> || std::is_same_v<Code, uint16_t>);
    static_assert(Dim == 64 || Dim == 128, "head sizes");
    static_assert(Group == 1 || Group == 2 || Group == 4 || Group == 8 || Group == 16);
    static_assert(PageTokens != 0 && TilePages != 0);

    using code = Code;
    static constexpr attention_math math = Math;
    static constexpr uint32_t threads = 128;
    static constexpr uint32_t dim = Dim, group = Group;
    static constexpr uint32_t page_tokens = PageTokens, tile_pages = TilePages;
    static constexpr uint32_t tile_tokens = PageTokens * TilePages;
    static constexpr uint32_t slots = 2 * TilePages;  // K and V of a page: slots 2 i and 2 i + 1
    static constexpr uint32_t slot_bytes = sizeof(page_slot);

    // A tile in shared memory: K's rows, then V's. The gap between rows keeps readers of several
    // rows out of each other's banks.
    static constexpr uint32_t row_bytes = Dim * sizeof(Code);
    static constexpr uint32_t row_stride = row_bytes + 16;
    static constexpr uint32_t tile_bytes = 2 * tile_tokens * row_stride;
    NORMANS_HD static constexpr uint32_t page_place(uint32_t slot)
    {
        return (slot % 2 * tile_tokens + slot / 2 * PageTokens) * row_stride;
    }
};

namespace detail {

// 16 bytes to shared memory at once or later: `bytes` of them (a multiple of 4) from global memory,
// then zeros. Both places are multiples of 16.
__device__ inline void copy_async(uint8_t* to, const uint8_t* from, uint32_t bytes)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(uint32_t(__cvta_generic_to_shared(to))),
                   "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
#else
    for (uint32_t i = 0; i < 4; ++i)
        reinterpret_cast<uint32_t*>(to)[i] =
            4 * i < bytes ? reinterpret_cast<const uint32_t*>(from)[i] : 0;
#endif
}
// Ends a group of this thread's copies, which may be empty.
__device__ inline void close_copies()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}
// Until all of this thread's groups but the last `Groups` are there: for this thread alone.
template <int Groups>
__device__ inline void await_copies()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(Groups) : "memory");
#endif
}

// A sequence's way through its pages, as sources see it.
template <class Shape>
struct attention_walk {
    const attention_batch& batch;
    uint32_t sequence, kv_head, length;
    page_slot* pages;  // [2][slots], by halves

    __device__ page_slot& slot_of(uint32_t tile, uint32_t slot) const
    {
        return pages[tile % 2 * Shape::slots + slot];
    }

    /// What the table says of a slot.
    __device__ page_slot look_up(uint32_t tile, uint32_t slot) const
    {
        const uint32_t index = tile * Shape::tile_pages + slot / 2;
        const uint64_t before = uint64_t(index) * Shape::page_tokens;
        if (before >= length) return {0, 0, 0, status::ok};
        const uint32_t left = length - uint32_t(before);
        const uint32_t tokens = left < Shape::page_tokens ? left : Shape::page_tokens;
        const int32_t page = batch.table[size_t(sequence) * batch.table_stride + index];
        const bool is_page = page >= 0 && uint32_t(page) < batch.pool_pages;
        return {uint32_t(page), 0, tokens, is_page ? status::ok : status::bad_argument};
    }
};

// The kernel's work on one KV head of one sequence.
template <class Shape, class Products>
class head_attention {
    using memory = attention_memory<Shape>;
    static constexpr uint32_t threads = Shape::threads;

public:
    __device__ head_attention(const attention_batch& batch, uint8_t* shared, size_t first_row)
        : batch_(batch), shared_(shared), first_row_(first_row)
    {
        for (uint32_t i = threadIdx.x; i < memory::query_rows * Shape::dim; i += threads)
            memory::queries(shared, i / Shape::dim)[i % Shape::dim] =
                i < batch.group * Shape::dim
                    ? value_of(batch.queries[first_row * Shape::dim + i])
                    : 0.0f;
        for (uint32_t g = threadIdx.x; g < Shape::group; g += threads) {
            maxima()[g] = -infinity();
            sums()[g] = 0.0f;
        }
    }

    /// A tile's part, by all threads. `rows` as attention_shape says.
    __device__ void add(const uint8_t* rows, uint32_t tokens)
    {
        // Scores are exponents of 2.
        products_.keys(shared_, rows, tokens, batch_.group,
                       exact_product(batch_.score_scale, 1.44269504f));
        __syncthreads();
        weigh(tokens);
        __syncthreads();
        products_.values(shared_, rows + Shape::tile_tokens * Shape::row_stride, tokens,
                         batch_.group);
    }

    __device__ void finish()
    {
        products_.finish(shared_, batch_.group, [&](uint32_t g, uint32_t channel, float sum) {
            batch_.out[(first_row_ + g) * Shape::dim + channel] =
                exact_quotient(exact_product(sum, batch_.value_scale), sums()[g]);
        });
    }

    /// Where there is nothing to attend to.
    __device__ void fill(float value)
    {
        for (uint32_t i = threadIdx.x; i < batch_.group * Shape::dim; i += threads)
            batch_.out[first_row_ * Shape::dim + i] = value;
    }

private:
    __device__ static float infinity() { return __uint_as_float(0x7f800000); }
    __device__ float* maxima() const { return memory::floats(shared_, memory::maximum); }
    __device__ float* sums() const { return memory::floats(shared_, memory::sum); }

    // Scores become weights, relative to the largest so far. A warp takes a head.
    __device__ void weigh(uint32_t tokens)
    {
        const uint32_t lane = threadIdx.x % 32;
        for (uint32_t g = threadIdx.x / 32; g < batch_.group; g += threads / 32) {
            float* score = memory::scores(shared_, g);
            const float before = maxima()[g];
            float largest = before;
            for (uint32_t t = lane; t < tokens; t += 32) largest = larger(largest, score[t]);
            for (int distance = 16; distance != 0; distance /= 2)
                largest = larger(largest, __shfl_xor_sync(~0u, largest, distance));
            const float base = largest == -infinity() ? 0.0f : largest;
            float sum = 0.0f;
            for (uint32_t t = lane; t < tokens; t += 32) {
                const float weight =
                    Products::weight(power_of_two(exact_sum(score[t], -base)));
                score[t] = weight;
                sum = exact_sum(sum, weight);
            }
            for (int distance = 16; distance != 0; distance /= 2)
                sum = exact_sum(sum, __shfl_xor_sync(~0u, sum, distance));
            __syncwarp();  // all have read the largest
            if (lane != 0) continue;
            const float factor = power_of_two(exact_sum(before, -base));
            maxima()[g] = largest;
            memory::factors(shared_)[g] = factor;
            sums()[g] = exact_fused(sums()[g], factor, sum);
        }
    }

    const attention_batch& batch_;
    uint8_t* shared_;
    size_t first_row_;
    Products products_;
};

// Room for five blocks on a multiprocessor, no more: then the decoder has registers enough.
template <class Shape, class Pages>
static __global__ void NORMANS_LAUNCH_BOUNDS(Shape::threads, 5)
    attend(const __grid_constant__ attention_batch batch, const __grid_constant__ Pages pages)
{
    using source = typename Pages::template source<Shape>;
    using memory = attention_memory<Shape>;
    extern __shared__ __align__(16) uint8_t normans_attention_memory[];
    __shared__ typename source::tables tables;
    uint8_t* const shared = normans_attention_memory;
    const uint32_t sequence = blockIdx.x / batch.kv_heads, kv_head = blockIdx.x % batch.kv_heads;
    const attention_walk<Shape> walk{batch, sequence, kv_head, batch.lengths[sequence],
                                     reinterpret_cast<page_slot*>(shared + memory::slots)};
    using products = std::conditional_t<
        Shape::math == attention_math::tensor && has_tensor_cores(), tensor_products<Shape>,
        fused_products<Shape>>;
    head_attention<Shape, products> head(batch, shared, size_t(blockIdx.x) * batch.group);
    attention_result result{status::ok, 0};
    if (walk.length > uint64_t(batch.table_stride) * Shape::page_tokens) {
        result.code = status::bad_argument;
    } else if (walk.length != 0) {
        source from(pages, walk, tables, shared + memory::bytes);
        const uint32_t tiles = (walk.length - 1) / Shape::tile_tokens + 1;
        from.fetch(0);
        close_copies();
        for (uint32_t tile = 0; tile < tiles; ++tile) {
            __syncthreads();  // the tile before was multiplied: its half is free
            if (tile + 1 < tiles) from.fetch(tile + 1);
            close_copies();
            await_copies<1>();
            const uint8_t* rows = from.ready(tile);
            __syncthreads();
            for (uint32_t slot = 0; slot < Shape::slots && result.code == status::ok; ++slot)
                result = {walk.slot_of(tile, slot).code, tile * Shape::tile_pages + slot / 2};
            if (result.code != status::ok) break;
            const uint32_t left = walk.length - tile * Shape::tile_tokens;
            head.add(rows, left < Shape::tile_tokens ? left : Shape::tile_tokens);
        }
        await_copies<0>();
    }
    if (result.code != status::ok) {
        head.fill(__uint_as_float(0x7fffffff));
    } else {
        result.page = 0;
        if (walk.length == 0) head.fill(0.0f);
        else head.finish();
    }
    if (threadIdx.x == 0) batch.results[blockIdx.x] = result;
}

}  // namespace detail

/// Shared memory of one block of threads, in bytes. Above 48 KiB a device needs leave, which
/// decode_attention() asks for.
template <class Shape, class Pages>
constexpr uint32_t attention_shared_bytes(const Pages& pages)
{
    using source = typename Pages::template source<Shape>;
    return uint32_t(sizeof(typename source::tables)) + detail::attention_memory<Shape>::bytes +
           source::shared_bytes(pages);
}

/// Launches the kernel on `stream` and returns the launch's error, which is no pending one then.
/// Nothing is allocated or waited for, so calls can be captured.
template <class Shape, class Pages>
cudaError_t decode_attention(const attention_batch& batch, const Pages& pages,
                             cudaStream_t stream) noexcept
{
    using source = typename Pages::template source<Shape>;
    const uint64_t blocks = uint64_t(batch.sequences) * batch.kv_heads;
    if (blocks == 0) return cudaSuccess;
    if (batch.queries == nullptr || batch.out == nullptr || batch.results == nullptr ||
        batch.table == nullptr || batch.lengths == nullptr || blocks > 0x7fffffffu ||
        batch.group == 0 || batch.group > Shape::group || !source::accepts(pages))
        return cudaErrorInvalidValue;
    void (*const kernel)(attention_batch, Pages) = detail::attend<Shape, Pages>;
    const void* const function = reinterpret_cast<const void*>(kernel);
    const uint32_t dynamic =
        detail::attention_memory<Shape>::bytes + source::shared_bytes(pages);
    attention_batch what = batch;
    Pages from = pages;
    void* arguments[] = {&what, &from};
    cudaError_t error = cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize, int(dynamic));
    if (error == cudaSuccess)
        error = cudaLaunchKernel(function, dim3(uint32_t(blocks)), dim3(Shape::threads), arguments,
                                 dynamic, stream);
    // What is returned must not wait for the caller's next check, too.
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    return error;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
