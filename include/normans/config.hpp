#pragma once
// The only file that looks at the compiler: the language floor, host/device decoration, the inline
// namespace, and the integer names that the rest of the library uses without std::.

#include <cstddef>
#include <cstdint>

#if defined(_MSVC_LANG)
static_assert(_MSVC_LANG >= 201703L, "normans needs C++17");
#else
static_assert(__cplusplus >= 201703L, "normans needs C++17");
#endif

#if defined(__CUDACC__)
#define NORMANS_HD __host__ __device__
#else
#define NORMANS_HD
#endif
#if defined(__CUDACC__) && !(defined(__clang__) && defined(__CUDA__))  // clang needs no leave
#define NORMANS_EITHER_SIDE _Pragma("nv_exec_check_disable")  // calls what its arguments offer
#else
#define NORMANS_EITHER_SIDE
#endif

// Loops over a group's registers must vanish, also where the compiler does not unroll by itself.
#if defined(__CUDACC__)
#define NORMANS_UNROLL
#elif defined(__clang__)
#define NORMANS_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define NORMANS_UNROLL _Pragma("GCC unroll 8")
#else
#define NORMANS_UNROLL
#endif
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define NORMANS_UNROLL_LANES _Pragma("GCC unroll 32")  // of a whole step
#define NORMANS_UNROLL_SOME _Pragma("GCC unroll 8")     // where the length is not known
#else
#define NORMANS_UNROLL_LANES NORMANS_UNROLL
#define NORMANS_UNROLL_SOME
#endif

// And others must not, where a GPU's registers are few.
#if defined(__CUDACC__)
#define NORMANS_NO_UNROLL _Pragma("unroll 1")
#else
#define NORMANS_NO_UNROLL
#endif

// A kernel's threads, and how many of its blocks a multiprocessor should hold. Not the latter under
// -G, where functions are called: together with -rdc=true the linker refuses those that need more
// registers than the kernel's share.
#if defined(__CUDACC_DEBUG__)
#define NORMANS_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads)
#else
#define NORMANS_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#endif

// What runs for every step must be inlined, what rarely runs must stay out of its way.
#if defined(__GNUC__)
#define NORMANS_INLINE inline __attribute__((always_inline))
#define NORMANS_LAMBDA __attribute__((always_inline))  // behind a lambda's parameters
#define NORMANS_NOINLINE __attribute__((noinline))
#define NORMANS_OPAQUE(value) asm volatile("" : "+m"(value))  // the optimiser forgets it
#define NORMANS_HIDE(pointer) asm("" : "+r"(pointer))  // what lies there is loaded anew
#define NORMANS_FORGET(x) asm("" : "+x"(x))  // where an SSE or AVX register came from
#define NORMANS_TARGET(features) __attribute__((target(features)))  // of a function
#define NORMANS_ALIGNED(pointer, bytes) __builtin_assume_aligned(pointer, bytes)
#define NORMANS_RARE(condition) __builtin_expect(condition, false)
#else
#define NORMANS_INLINE inline
#define NORMANS_LAMBDA
#define NORMANS_NOINLINE
#define NORMANS_OPAQUE(value) static_cast<void>(0)
#define NORMANS_HIDE(pointer) static_cast<void>(0)
#define NORMANS_FORGET(x) static_cast<void>(0)
#define NORMANS_TARGET(features)
#define NORMANS_ALIGNED(pointer, bytes) (pointer)
#define NORMANS_RARE(condition) (condition)
#endif

#if defined(__SSE2__) && defined(__GNUC__)
#define NORMANS_SSE2 1
#define NORMANS_VECTOR_16 __attribute__((vector_size(16)))  // a type's register of 16 bytes
#else
#define NORMANS_SSE2 0
#endif

// Named after what the unit is compiled for: units built for different targets can then be linked
// into one program, and each keeps its own copy of the inline functions.
#if defined(__CUDACC__)
#define NORMANS_AVX512 0
#define NORMANS_AVX2 0
#define NORMANS_NEON 0
#define NORMANS_NAMESPACE v0
#else
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__AVX512VBMI2__)
#define NORMANS_AVX512 1
#define NORMANS_NAMESPACE v0_avx512
#else
#define NORMANS_AVX512 0
#endif
#if defined(__AVX2__) && defined(__FMA__)
#define NORMANS_AVX2 1
#else
#define NORMANS_AVX2 0
#endif
#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
#define NORMANS_NEON 1
#else
#define NORMANS_NEON 0
#endif
#if NORMANS_AVX2 && !NORMANS_AVX512
#define NORMANS_NAMESPACE v0_avx2
#elif !NORMANS_AVX512
#define NORMANS_NAMESPACE v0
#endif
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {

using std::int16_t;
using std::int32_t;
using std::int64_t;
using std::ptrdiff_t;
using std::size_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
