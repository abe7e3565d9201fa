#pragma once
// CUDA threads on a CPU, for tests: each is a fiber, and one of them runs at a time, up to its next
// vote, shuffle or barrier. Which one runs next is the order's choice (up, down, or random by
// seed). What a GPU leaves undefined ends the launch with a message instead:
//     a lane that calls with a mask that does not name it; lanes that wait for each other at
//     different operations or under different masks; a shuffle from a lane outside of the mask; a mask that
//     names a lane that has returned; a block barrier that some threads never reach; deadlock.
// Shared variables, declared by __shared__ or got from shared_variable(), are filled with a pattern
// before a block begins. Only the latter have bounds that a sanitizer knows. Under TSan only __syncwarp and
// __syncthreads order memory, so it reports races that votes happen to hide.
// Include this before any .cuh: it gives the names that nvcc knows by itself.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// One block runs at a time, so its shared variables may be everybody's; simt.cpp finds all of them.
#define __shared__ static __attribute__((section("simt_shared")))

namespace simt {

struct index3 {
    unsigned x = 1, y = 1, z = 1;
};

enum class order { up, down, random };

struct options {
    order which = order::random;
    std::uint64_t seed = 1;
};

/// Runs body() in every thread of the grid, block after block. What went wrong, or "".
std::string launch(index3 grid, index3 block, const options& how,
                   const std::function<void()>& body);

/// This block's shared variable number `id`, the same for all its threads.
void* shared_bytes(unsigned id, std::size_t bytes);

template <class T, unsigned Id = 0>
T& shared_variable()
{
    return *static_cast<T*>(shared_bytes(Id, sizeof(T)));
}

const index3& thread_index();
const index3& block_index();
const index3& block_size();
const index3& grid_size();

enum class operation { none, ballot, any, all, shuffle, sync_warp, sync_block };

/// What the calling lane gets of the operation once all lanes of the mask are there.
std::uint64_t collective(operation kind, std::uint32_t mask, std::uint64_t value,
                         std::uint32_t source_lane);
std::uint32_t lane();

}  // namespace simt

#define threadIdx (simt::thread_index())
#define blockIdx (simt::block_index())
#define blockDim (simt::block_size())
#define gridDim (simt::grid_size())

inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return unsigned(simt::collective(simt::operation::ballot, mask, predicate != 0, 0));
}
inline int __any_sync(unsigned mask, int predicate)
{
    return int(simt::collective(simt::operation::any, mask, predicate != 0, 0));
}
inline int __all_sync(unsigned mask, int predicate)
{
    return int(simt::collective(simt::operation::all, mask, predicate != 0, 0));
}
inline unsigned __shfl_sync(unsigned mask, unsigned value, int from, int width = 32)
{
    const unsigned first = simt::lane() / unsigned(width) * unsigned(width);
    return unsigned(simt::collective(simt::operation::shuffle, mask, value,
                                     first + unsigned(from) % unsigned(width)));
}
// A lane above this one's segment gives this lane its own value back; one below is read.
inline unsigned __shfl_xor_sync(unsigned mask, unsigned value, int distance, int width = 32)
{
    const unsigned segment = ~(unsigned(width) - 1) & 31, own = simt::lane();
    const unsigned other = own ^ unsigned(distance);
    const bool above = other > ((own & segment) | (~segment & 31));
    return unsigned(simt::collective(simt::operation::shuffle, mask, value, above ? own : other));
}
inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    simt::collective(simt::operation::sync_warp, mask, 0, 0);
}
inline void __syncthreads() { simt::collective(simt::operation::sync_block, 0, 0, 0); }
inline int __popc(unsigned x)
{
    int count = 0;
    for (; x != 0; x &= x - 1) ++count;
    return count;
}
inline unsigned atomicAdd(unsigned* at, unsigned value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
