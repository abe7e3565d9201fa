#pragma once
// What others make of the same bytes: the order-0 entropy of bytes, and zstd at level 19. Neither
// knows the means.

#include <array>
#include <cmath>
#include <vector>

#include <zstd.h>

#include "cache.hpp"

namespace kv_file {

/// Bits of an ideal order-0 coder for every `stride`-th byte from `first` on, its table free.
inline double byte_entropy_bits(const std::vector<uint8_t>& bytes, size_t first, size_t stride)
{
    std::array<double, 256> counts{};
    double total = 0;
    for (size_t i = first; i < bytes.size(); i += stride) {
        counts[bytes[i]] += 1;
        total += 1;
    }
    double bits = 0;
    for (const double count : counts)
        if (count > 0) bits += count * std::log2(total / count);
    return bits;
}

/// fp8: one table; 16 bits: one for the low bytes, one for the high bytes.
inline double bytewise_bits(const std::vector<uint8_t>& bytes, size_t code_bytes)
{
    double bits = 0;
    for (size_t i = 0; i < code_bytes; ++i) bits += byte_entropy_bits(bytes, i, code_bytes);
    return bits;
}

inline size_t zstd19_bytes(const std::vector<uint8_t>& bytes)
{
    std::vector<uint8_t> out(ZSTD_compressBound(bytes.size()));
    const size_t written = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 19);
    if (ZSTD_isError(written)) fail("zstd: ", ZSTD_getErrorName(written));
    return written;
}

}  // namespace kv_file
