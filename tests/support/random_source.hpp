#pragma once
// Seeded numbers from integers only, and what tests make of them.

#include <normans/fit/marginal.hpp>
#include <normans/normans.hpp>

#include <cmath>
#include <cstdlib>

namespace field {

using namespace normans;

// Sizes are scaled down where every access is checked.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// splitmix64: the same numbers everywhere.
struct random_source {
    uint64_t state;

    uint64_t next()
    {
        uint64_t z = state += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }
    uint32_t bits() { return uint32_t(next() >> 32); }
    uint32_t below(uint32_t limit) { return uint32_t((next() >> 32) * limit >> 32); }
    /// About normal, sd 1: twelve uniform numbers.
    double normal()
    {
        double sum = -6;
        for (int i = 0; i < 12; ++i) sum += double(bits()) / 4294967296.0;
        return sum;
    }
};

/// 2^(offset + index / 8), the deviation that a sigma index stands for; 0 for sigma_zero.
inline double sigma_value(uint32_t index, int offset)
{
    return index == sigma_zero ? 0 : std::exp2(double(offset) + double(index) / 8);
}

/// A frequency table that no symbol dominates, from a seed.
inline marginal_table some_marginal(uint64_t seed)
{
    random_source random{seed};
    uint64_t counts[256];
    for (uint64_t& count : counts) count = random.below(1000);
    uint16_t freq[256];
    normalize_counts(counts, freq);
    marginal_table table{};
    if (make_marginal(freq, table) != status::ok) std::abort();
    return table;
}

}  // namespace field
