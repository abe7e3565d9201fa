#pragma once
// The products of decode_attention.cuh over a tile in shared memory: by fused multiply-adds, which
// round exactly and in fixed order, or by tensor cores.

#include <type_traits>

#include "../config.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Who multiplies. tensor: bf16 mma where the architecture has it (sm_80 on), weights rounded to
/// bf16; elsewhere the same as fused.
enum class attention_math { fused, tensor };

namespace detail {

// Sums in an order of their own, as nobody's flags change it.
__device__ inline float exact_product(float x, float y)
{
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(x), "f"(y));
    return product;
}
__device__ inline float exact_sum(float x, float y)
{
    float sum;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(x), "f"(y));
    return sum;
}
__device__ inline float exact_fused(float x, float y, float z)
{
    float sum;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(x), "f"(y), "f"(z));
    return sum;
}
__device__ inline float exact_quotient(float x, float y)
{
    float quotient;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(quotient) : "f"(x), "f"(y));
    return quotient;
}
__device__ inline float larger(float x, float y)  // a NaN loses
{
    float larger;
    asm("max.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
    return larger;
}

// 2^x for x <= 0, within 2 units of the last place; 0 below 2^-126. NaN stays NaN.
__device__ inline float power_of_two(float x)
{
    constexpr float shifter = 12582912.0f;  // 1.5 2^23: the integer nearest to x, in its low bits
    const float shifted = exact_sum(x, shifter);
    const float f = exact_sum(x, -exact_sum(shifted, -shifter));
    float p = 1.54035304e-4f;  // ln(2)^k / k!
    p = exact_fused(p, f, 1.33335581e-3f);
    p = exact_fused(p, f, 9.61812911e-3f);
    p = exact_fused(p, f, 5.55041087e-2f);
    p = exact_fused(p, f, 2.40226507e-1f);
    p = exact_fused(p, f, 6.93147181e-1f);
    p = exact_fused(p, f, 1.0f);
    const float power =
        __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
    return x < -126.0f ? 0.0f : x == x ? power : x;
}

// A code's value, exact.
__device__ inline float value_of(uint8_t code)
{
    const uint32_t magnitude = uint32_t(code) & 0x7f;
    // The fraction and exponent of e4m3 where fp32 has its own; subnormal codes are subnormal.
    const float value = exact_product(
        __uint_as_float(magnitude << 20 | (uint32_t(code) & 0x80) << 24), 0x1p120f);
    return magnitude == 0x7f ? __uint_as_float(0x7fffffff) : value;
}
__device__ inline float value_of(uint16_t code) { return __uint_as_float(uint32_t(code) << 16); }

// The codes in a piece of a row of `Bytes` bytes that lies at a multiple of that.
template <class Code, uint32_t Bytes>
__device__ inline void load_values(const uint8_t* from, float (&values)[Bytes / sizeof(Code)])
{
    uint32_t words[Bytes / 4];
    if constexpr (Bytes == 16) {
        const uint4 four = *reinterpret_cast<const uint4*>(from);
        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    } else if constexpr (Bytes == 8) {
        const uint2 two = *reinterpret_cast<const uint2*>(from);
        words[0] = two.x, words[1] = two.y;
    } else {
        words[0] = *reinterpret_cast<const uint32_t*>(from);
    }
    constexpr uint32_t in_word = 4 / sizeof(Code);
    for (uint32_t i = 0; i < Bytes / sizeof(Code); ++i)
        values[i] = value_of(Code(words[i / in_word] >> (i % in_word * 8 * sizeof(Code))));
}

NORMANS_HD constexpr uint32_t up_to_16(uint32_t bytes) { return (bytes + 15) / 16 * 16; }

// A block's shared memory; the source's comes behind, from `bytes` on.
template <class Shape>
struct attention_memory {
    static constexpr uint32_t score_stride = Shape::tile_tokens + 1;
    // For P V each thread has four channels of some heads; where heads are few, `parts` threads
    // share a head's tokens.
    static constexpr uint32_t quads = Shape::dim / 4;
    static constexpr uint32_t ranks = Shape::threads / quads;
    static constexpr uint32_t parts = ranks > Shape::group ? ranks / Shape::group : 1;
    static constexpr uint32_t heads = ranks > Shape::group ? 1 : Shape::group / ranks;

    // The gap as between rows; the tensor cores' side reads 8 or 16 heads.
    static constexpr uint32_t query_stride = Shape::dim + 8;
    static constexpr uint32_t query_rows =
        Shape::math == attention_math::fused || Shape::group > 8 ? Shape::group : 8;

    static constexpr uint32_t query = 0;
    static constexpr uint32_t score = query + query_rows * query_stride * 4;
    static constexpr uint32_t maximum = score + Shape::group * score_stride * 4;
    static constexpr uint32_t sum = maximum + Shape::group * 4;
    static constexpr uint32_t factor = sum + Shape::group * 4;
    static constexpr uint32_t slots = up_to_16(factor + Shape::group * 4);
    static constexpr uint32_t shares = up_to_16(slots + 2 * Shape::slots * Shape::slot_bytes);
    static constexpr uint32_t bytes =
        shares + (parts > 1 ? parts * Shape::group * Shape::dim * 4 : 0);

    static __device__ float* floats(uint8_t* shared, uint32_t at)
    {
        return reinterpret_cast<float*>(shared + at);
    }
    static __device__ float* queries(uint8_t* shared, uint32_t g)
    {
        return floats(shared, query) + g * query_stride;
    }
    static __device__ float* scores(uint8_t* shared, uint32_t g)
    {
        return floats(shared, score) + g * score_stride;
    }
    static __device__ float* factors(uint8_t* shared) { return floats(shared, factor); }
};

// Each thread's share of Q K and P V by fused multiply-adds.
template <class Shape>
class fused_products {
    using code = typename Shape::code;
    using memory = attention_memory<Shape>;
    static constexpr uint32_t threads = Shape::threads;

public:
    /// Weights are kept as they are.
    static __device__ float weight(float x) { return x; }

    /// Scores of all heads and tokens. Teams of threads take a row of K together, 16 bytes each.
    __device__ void keys(uint8_t* shared, const uint8_t* rows, uint32_t tokens,
                         uint32_t group, float scale) const
    {
        constexpr uint32_t team = Shape::row_bytes / 16, each = 16 / sizeof(code);
        const uint32_t member = threadIdx.x % team;
        for (uint32_t first = 0; first < tokens; first += threads / team) {
            const uint32_t token = first + threadIdx.x / team;
            const bool is_there = token < tokens;
            float key[each] = {};
            if (is_there)
                load_values<code, 16>(rows + token * Shape::row_stride + member * 16, key);
            for (uint32_t g = 0; g < group; ++g) {
                const float4* query = reinterpret_cast<const float4*>(
                    memory::queries(shared, g) + member * each);
                float sum = 0.0f;
                for (uint32_t i = 0; i < each; i += 4) {
                    const float4 four = query[i / 4];
                    sum = exact_fused(four.x, key[i], sum);
                    sum = exact_fused(four.y, key[i + 1], sum);
                    sum = exact_fused(four.z, key[i + 2], sum);
                    sum = exact_fused(four.w, key[i + 3], sum);
                }
                for (uint32_t distance = team / 2; distance != 0; distance /= 2)
                    sum = exact_sum(sum, __shfl_xor_sync(~0u, sum, int(distance)));
                if (is_there && member == 0)
                    memory::scores(shared, g)[token] = exact_product(sum, scale);
            }
        }
    }

    /// Adds weights times values to the sums, these times the heads' factors. Each thread has four
    /// channels of some heads; where heads are few, threads share a head's tokens.
    __device__ void values(uint8_t* shared, const uint8_t* rows, uint32_t tokens,
                           uint32_t group)
    {
        constexpr uint32_t piece = 4 * sizeof(code);
        const uint32_t quad = threadIdx.x % memory::quads, rank = threadIdx.x / memory::quads;
        const uint32_t head = rank % Shape::group, part = rank / Shape::group;
        for (uint32_t n = 0; n < memory::heads; ++n) {
            const uint32_t g = head + n * memory::ranks;
            const float factor = g < group ? memory::factors(shared)[g] : 0.0f;
            for (float& sum : sums_[n]) sum = exact_product(sum, factor);
        }
        for (uint32_t t = part; t < tokens; t += memory::parts) {
            float value[4];
            load_values<code, piece>(rows + t * Shape::row_stride + quad * piece, value);
            for (uint32_t n = 0; n < memory::heads; ++n) {
                const uint32_t g = head + n * memory::ranks;
                if (g >= group) continue;
                const float weight = memory::scores(shared, g)[t];
                for (uint32_t i = 0; i < 4; ++i)
                    sums_[n][i] = exact_fused(weight, value[i], sums_[n][i]);
            }
        }
    }

    /// store(head, channel, sum), by all threads, for all.
    template <class Store>
    __device__ void finish(uint8_t* shared, uint32_t group, const Store& store)
    {
        const uint32_t quad = threadIdx.x % memory::quads, rank = threadIdx.x / memory::quads;
        if constexpr (memory::parts > 1) {
            float* shares = memory::floats(shared, memory::shares);
            for (uint32_t i = 0; i < 4; ++i)
                shares[rank * Shape::dim + 4 * quad + i] = sums_[0][i];
            __syncthreads();
            if (rank >= Shape::group) return;
            for (uint32_t part = 1; part < memory::parts; ++part)
                for (uint32_t i = 0; i < 4; ++i)
                    sums_[0][i] = exact_sum(
                        sums_[0][i],
                        shares[(part * Shape::group + rank) * Shape::dim + 4 * quad + i]);
        }
        for (uint32_t n = 0; n < memory::heads; ++n) {
            const uint32_t g = rank + n * memory::ranks;
            if (g >= group) return;
            for (uint32_t i = 0; i < 4; ++i) store(g, 4 * quad + i, sums_[n][i]);
        }
    }

private:
    float sums_[memory::heads][4] = {};
};

// The same by tensor cores: bf16 products of 16 heads, 8 columns and a depth of 16. Codes and
// queries are bf16 already, weights are rounded. How a GPU rounds such a sum is its own matter.
template <class Shape>
class tensor_products {
    using code = typename Shape::code;
    using memory = attention_memory<Shape>;
    static constexpr uint32_t warps = Shape::threads / 32;
    static constexpr bool low_half = Shape::group > 8;  // else heads 8 .. 15 are zeros
    static constexpr uint32_t columns = Shape::dim / warps / 8;

public:
    /// So the sum is that of the weights that are multiplied.
    static __device__ float weight(float x) { return __uint_as_float(rounded(x) << 16); }

    /// A warp takes eight tokens at a time.
    __device__ void keys(uint8_t* shared, const uint8_t* rows, uint32_t tokens,
                         uint32_t group, float scale) const
    {
        const uint32_t row = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
        for (uint32_t first = threadIdx.x / 32 * 8; first < tokens; first += warps * 8) {
            float scores[4] = {};
            const uint8_t* key = rows + (first + row) * Shape::row_stride;
            for (uint32_t k = pair; k < Shape::dim; k += 16) {
                const bool is_there = first + row < tokens;
                const auto queries = [&](uint32_t g, uint32_t channel) {
                    const float2 two = *reinterpret_cast<const float2*>(
                        memory::queries(shared, g) + channel);
                    return __byte_perm(__float_as_uint(two.x), __float_as_uint(two.y), 0x7632);
                };
                multiply(scores, queries(row, k), low_half ? queries(row + 8, k) : 0,
                         queries(row, k + 8), low_half ? queries(row + 8, k + 8) : 0,
                         is_there ? two_codes(key + k * sizeof(code)) : 0,
                         is_there ? two_codes(key + (k + 8) * sizeof(code)) : 0);
            }
            for (uint32_t i = 0; i < 4; ++i) {
                const uint32_t g = row + i / 2 * 8, token = first + pair + i % 2;
                if (g < group && token < tokens)
                    memory::scores(shared, g)[token] = exact_product(scores[i], scale);
            }
        }
    }

    /// A warp has a share of the channels.
    __device__ void values(uint8_t* shared, const uint8_t* rows, uint32_t tokens,
                           uint32_t group)
    {
        const uint32_t row = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
        for (uint32_t half = 0; half < 2; ++half) {
            const uint32_t g = row + half * 8;
            const float factor = g < group ? memory::factors(shared)[g] : 0.0f;
            for (auto& sums : sums_) {
                sums[2 * half] = exact_product(sums[2 * half], factor);
                sums[2 * half + 1] = exact_product(sums[2 * half + 1], factor);
            }
        }
        for (uint32_t t = pair; t < tokens + pair; t += 16) {
            const auto weights = [&](uint32_t g, uint32_t token) {
                const float* from = memory::scores(shared, g) + token;
                const uint32_t low = g < group && token < tokens ? __float_as_uint(from[0]) : 0;
                const uint32_t high =
                    g < group && token + 1 < tokens ? __float_as_uint(from[1]) : 0;
                return __byte_perm(low, high, 0x7632);
            };
            const uint32_t a[4] = {weights(row, t), low_half ? weights(row + 8, t) : 0,
                                   weights(row, t + 8), low_half ? weights(row + 8, t + 8) : 0};
            for (uint32_t n = 0; n < columns; ++n) {
                const uint8_t* column = rows + column_of(n, row) * sizeof(code);
                const auto values = [&](uint32_t token) {
                    const uint32_t low = token < tokens ? one_code(column, token) : 0;
                    return low | (token + 1 < tokens ? one_code(column, token + 1) : 0) << 16;
                };
                multiply(sums_[n], a[0], a[1], a[2], a[3], values(t), values(t + 8));
            }
        }
    }

    template <class Store>
    __device__ void finish(uint8_t*, uint32_t group, const Store& store)
    {
        const uint32_t row = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
        for (uint32_t n = 0; n < columns; ++n)
            for (uint32_t i = 0; i < 4; ++i)
                if (row + i / 2 * 8 < group)
                    store(row + i / 2 * 8, column_of(n, pair + i % 2), sums_[n][i]);
    }

private:
    static __device__ uint32_t column_of(uint32_t n, uint32_t of_eight)
    {
        return (threadIdx.x / 32 * columns + n) * 8 + of_eight;
    }

    // bf16 nearest to a number.
    static __device__ uint32_t rounded([[maybe_unused]] float x)
    {
        uint32_t bits = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        asm("{.reg .b16 half; cvt.rn.bf16.f32 half, %1; cvt.u32.u16 %0, half;}"
            : "=r"(bits)
            : "f"(x));
#endif
        return bits;
    }

    // bf16 of adjacent codes, and of a code of a column.
    static __device__ uint32_t two_codes(const uint8_t* at)
    {
        if constexpr (sizeof(code) == 2) {
            return *reinterpret_cast<const uint32_t*>(at);
        } else {
            const uint32_t two = *reinterpret_cast<const uint16_t*>(at);
            return __byte_perm(__float_as_uint(value_of(code(two))),
                               __float_as_uint(value_of(code(two >> 8))), 0x7632);
        }
    }
    static __device__ uint32_t one_code(const uint8_t* column, uint32_t token)
    {
        const code one = *reinterpret_cast<const code*>(column + token * Shape::row_stride);
        return __float_as_uint(value_of(one)) >> 16;
    }

    static __device__ void multiply([[maybe_unused]] float (&sums)[4],
                                    [[maybe_unused]] uint32_t a0, [[maybe_unused]] uint32_t a1,
                                    [[maybe_unused]] uint32_t a2, [[maybe_unused]] uint32_t a3,
                                    [[maybe_unused]] uint32_t b0, [[maybe_unused]] uint32_t b1)
    {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
    }

    float sums_[columns][4] = {};
};

__device__ constexpr bool has_tensor_cores()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return true;
#else
    return false;
#endif
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
