#pragma once
// What the warp codec uses of CUDA, declared for a clang++ that cannot read the toolkit: enough for
// its CUDA front end to judge the headers and for its back end to make PTX.

#include <math.h>
#include <string.h>

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))

struct uint3 {
    unsigned x, y, z;
};
extern const __device__ uint3 threadIdx, blockIdx, blockDim, gridDim;

static __device__ inline void* memcpy(void* to, const void* from, size_t bytes)
{
    return __builtin_memcpy(to, from, bytes);
}
static __device__ inline float fabsf(float x) { return __builtin_fabsf(x); }
static __device__ inline float __fmaf_rn(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}
static __device__ inline int __popc(unsigned x) { return __builtin_popcount(x); }
static __device__ inline unsigned __umulhi(unsigned x, unsigned y)
{
    return unsigned((unsigned long long)x * y >> 32);
}
extern __device__ unsigned __ballot_sync(unsigned members, int mine);
extern __device__ int __any_sync(unsigned members, int mine);
extern __device__ int __all_sync(unsigned members, int mine);
extern __device__ void __syncwarp(unsigned members);
extern __device__ void __syncthreads();
extern __device__ unsigned __shfl_sync(unsigned members, unsigned mine, int from, int width);
extern __device__ unsigned __shfl_xor_sync(unsigned members, unsigned mine, int mask, int width);
extern __device__ size_t __cvta_generic_to_shared(const void* at);
extern __device__ unsigned __byte_perm(unsigned x, unsigned y, unsigned selector);
