#pragma once
// Sums of lowrank/int8_product.hpp by tensor cores: a warp takes 16 tokens by 8 channels. Integers
// below 2^24, so the numbers are those of lowrank_sum() on whatever processor.

#include "../lowrank/int8_product.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// A warp's 16 x 8 products of depth 32: registers hold four neighbours in depth, as factors do.
__device__ inline void multiply_int8([[maybe_unused]] int32_t (&sums)[4],
                                     [[maybe_unused]] const uint32_t (&a)[4],
                                     [[maybe_unused]] const uint32_t (&b)[2])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

__device__ inline uint32_t four_factors(const int8_t* at)
{
    uint32_t four;
    std::memcpy(&four, NORMANS_ALIGNED(at, 4), 4);
    return four;
}

}  // namespace detail

/// Where a thread's sums of a tile lie, i = 0 .. 3.
__device__ inline uint32_t lowrank_tile_token(uint32_t lane, uint32_t i)
{
    return lane / 4 + i / 2 * 8;
}
__device__ inline uint32_t lowrank_tile_channel(uint32_t lane, uint32_t i)
{
    return lane % 4 * 2 + i % 2;
}

/// The sums of tokens from first_token on and channels from first_channel on, by all 32 threads of
/// a warp, `lane` 0 .. 31; 0 where there is no such token or channel. f must have exact_factors(),
/// u and v lie at multiples of 4. On an architecture without such tensor cores (below sm_80), by
/// dp4a.
__device__ inline void lowrank_tile(const lowrank_factors& f, uint32_t first_token,
                                    uint32_t first_channel, uint32_t lane, int32_t (&sums)[4])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const uint32_t low = first_token + lane / 4, high = low + 8;
    const uint32_t channel = first_channel + lane / 4, groups = f.rank / 4;
    for (int32_t& sum : sums) sum = 0;
    for (uint32_t first = 0; first < groups; first += 8) {
        uint32_t u[4], v[2], shift[2];
        for (uint32_t i = 0; i < 2; ++i) {
            const uint32_t group = first + lane % 4 + 4 * i;
            const bool is_there = group < groups;
            const size_t at = size_t(group) * 4;
            u[2 * i] = is_there && low < f.tokens
                           ? detail::four_factors(f.u + size_t(low) * f.rank + at)
                           : 0;
            u[2 * i + 1] = is_there && high < f.tokens
                               ? detail::four_factors(f.u + size_t(high) * f.rank + at)
                               : 0;
            v[i] = is_there && channel < f.channels
                       ? detail::four_factors(f.v + (size_t(group) * f.channels + channel) * 4)
                       : 0;
            shift[i] = is_there ? f.shift[group] : 0;
        }
        // One product for each shift that occurs, of the groups that have it: mostly one.
        uint32_t left =
            __reduce_or_sync(~uint32_t(0), uint32_t(1) << shift[0] | uint32_t(1) << shift[1]);
        for (; left != 0; left &= left - 1) {
            const uint32_t now = uint32_t(__ffs(int(left)) - 1);
            const bool has[2] = {shift[0] == now, shift[1] == now};
            const uint32_t a[4] = {has[0] ? u[0] : 0, has[0] ? u[1] : 0, has[1] ? u[2] : 0,
                                   has[1] ? u[3] : 0};
            int32_t products[4] = {};
            detail::multiply_int8(products, a, v);
            for (uint32_t i = 0; i < 4; ++i) sums[i] += products[i] * (int32_t(1) << now);
        }
    }
#else
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t token = first_token + lowrank_tile_token(lane, i);
        const uint32_t channel = first_channel + lowrank_tile_channel(lane, i);
        sums[i] = token < f.tokens && channel < f.channels ? lowrank_sum(f, token, channel) : 0;
    }
#endif
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
