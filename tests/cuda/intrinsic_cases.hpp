#pragma once
// What the device headers take from a GPU, each by its definition: votes, shuffles and sums under
// every width of a logical warp, together and in branches that others do not take. Whatever plays a
// device must give the same. The includer has given device_array, launch and shared_variable.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace device_test {

constexpr std::uint32_t intrinsic_threads = 64, intrinsic_words = 32;

inline __host__ __device__ std::uint32_t intrinsic_value(std::uint32_t thread)
{
    std::uint32_t x = thread * 2654435761u + 12345;
    x = (x ^ x >> 15) * 0x7feb352du;
    return x ^ x >> 13;
}

struct every_intrinsic {
    std::uint32_t* out;  // intrinsic_words a thread

    struct shared_words {
        std::uint32_t values[intrinsic_threads];
        unsigned sum;
    };

    __device__ void operator()() const
    {
        auto& shared = shared_variable<shared_words>();
        const std::uint32_t thread = threadIdx.x, lane = thread % 32;
        const std::uint32_t x = intrinsic_value(thread);
        std::uint32_t* to = out + thread * intrinsic_words;
        for (std::uint32_t width = 1; width <= 32; width *= width == 1 ? 8 : 2) {
            const std::uint32_t mask = (width == 32 ? ~0u : (1u << width) - 1)
                                       << lane / width * width;
            *to++ = __ballot_sync(mask, int(x & 1));
            *to++ = std::uint32_t(__any_sync(mask, x % 64 == 0) != 0);
            *to++ = std::uint32_t(__all_sync(mask, x % 16 != 0) != 0);
            *to++ = __shfl_sync(mask, x, int(x % width), int(width));
            for (int distance = 1; distance < 32; distance *= 4)
                *to++ = __shfl_xor_sync(~0u, x, distance, int(width));
        }  // 28 words

        // Groups of 8 lanes, each in a branch of its own.
        const std::uint32_t group = lane / 8, mask = 0xffu << 8 * group;
        std::uint32_t seen = x;
        if (group == 0) {
            seen = __ballot_sync(mask, int(x & 2));
        } else if (group == 1) {
            for (int i = 0; i < 3; ++i) seen = __shfl_sync(mask, seen, 7, 8) + 1;
        } else if (group == 2) {
            __syncwarp(mask);
        }
        *to++ = seen;

        if (thread == 0) shared.sum = 0;
        shared.values[thread] = x;
        __syncthreads();
        atomicAdd(&shared.sum, x % 1000);
        *to++ = shared.values[intrinsic_threads - 1 - thread];
        __syncthreads();
        *to++ = shared.sum;
        *to++ = std::uint32_t(__popc(x));
    }
};

/// The same words from the definitions.
inline std::vector<std::uint32_t> intrinsics_by_definition()
{
    std::vector<std::uint32_t> words;
    std::uint32_t sum = 0;
    for (std::uint32_t thread = 0; thread < intrinsic_threads; ++thread)
        sum += intrinsic_value(thread) % 1000;
    for (std::uint32_t thread = 0; thread < intrinsic_threads; ++thread) {
        const std::uint32_t lane = thread % 32, warp = thread - lane;
        const std::uint32_t x = intrinsic_value(thread);
        for (const std::uint32_t width : {1u, 8u, 16u, 32u}) {
            const std::uint32_t first = lane / width * width;
            std::uint32_t ballot = 0, any = 0, all = 1;
            for (std::uint32_t i = first; i < first + width; ++i) {
                const std::uint32_t other = intrinsic_value(warp + i);
                ballot |= (other & 1) << i;
                any |= std::uint32_t(other % 64 == 0);
                all &= std::uint32_t(other % 16 != 0);
            }
            words.insert(words.end(),
                         {ballot, any, all, intrinsic_value(warp + first + x % width)});
            // Lanes of later segments give nothing, those of earlier ones do.
            for (const std::uint32_t distance : {1u, 4u, 16u}) {
                const std::uint32_t from = lane ^ distance;
                words.push_back(intrinsic_value(warp + (from >= first + width ? lane : from)));
            }
        }
        const std::uint32_t group = lane / 8;
        std::uint32_t seen = x;
        if (group == 0) {
            seen = 0;
            for (std::uint32_t i = 0; i < 8; ++i)
                seen |= (intrinsic_value(warp + i) >> 1 & 1) << i;
        } else if (group == 1) {
            seen = intrinsic_value(warp + 15) + 3;
        }
        words.insert(words.end(), {seen, intrinsic_value(intrinsic_threads - 1 - thread), sum});
        std::uint32_t bits = 0;
        for (std::uint32_t left = x; left != 0; left >>= 1) bits += left & 1;
        words.push_back(bits);
    }
    return words;
}

/// 0 if the device does as defined.
inline int compare_intrinsics()
{
    const device_array<std::uint32_t> out(intrinsic_threads * intrinsic_words);
    const std::string error = launch(every_intrinsic{out.data()}, 1, intrinsic_threads);
    const std::vector<std::uint32_t> expected = intrinsics_by_definition();
    const bool right = error.empty() && out.copy() == expected;
    std::printf("intrinsics %s%s\n", right ? "as defined" : "DIFFER ", error.c_str());
    return right ? 0 : 1;
}

}  // namespace device_test
