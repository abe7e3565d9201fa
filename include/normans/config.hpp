#pragma once
// The only file that looks at the compiler: the language floor, host/device decoration, and the
// integer names that the rest of the library uses without std::.

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

namespace normans {
inline namespace v0 {

using std::int16_t;
using std::int32_t;
using std::int64_t;
using std::ptrdiff_t;
using std::size_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

}  // namespace v0
}  // namespace normans
