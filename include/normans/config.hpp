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

// Named after what the unit is compiled for: units built for different targets can then be linked
// into one program, and each keeps its own copy of the inline functions.
#if defined(__AVX2__) && defined(__FMA__) && !defined(__CUDACC__)
#define NORMANS_AVX2 1
#define NORMANS_NAMESPACE v0_avx2
#else
#define NORMANS_AVX2 0
#define NORMANS_NAMESPACE v0
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
