#pragma once
// Seeded test data from integers alone: every compiler, flag and C library sees the same numbers.
// The generator is splitmix64 (Steele, Lea, Flood 2014): a counter through a mixing function, so
// a seed is any number and two seeds that differ by one share nothing.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace normans_test {

class test_rng {
public:
    explicit test_rng(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next()
    {
        std::uint64_t x = state_ += 0x9E3779B97F4A7C15u;
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
        x = (x ^ x >> 27) * 0x94D049BB133111EBu;
        return x ^ x >> 31;
    }

    /// `count` random bits, 1..32.
    std::uint32_t bits(unsigned count) { return std::uint32_t(next() >> (64 - count)); }

    /// 0 .. limit - 1. The bias is below limit / 2^32.
    std::uint32_t below(std::uint32_t limit)
    {
        return std::uint32_t(std::uint64_t(bits(32)) * limit >> 32);
    }

    /// low .. high, both included.
    int between(int low, int high) { return low + int(below(std::uint32_t(high - low + 1))); }

    /// Gaussian-like, deviation 2^16, within +-6 deviations: a sum of 12 uniform numbers.
    std::int32_t noise()
    {
        std::int32_t sum = -6 * 65536;
        for (int i = 0; i < 12; ++i) sum += std::int32_t(bits(16));
        return sum;
    }

private:
    std::uint64_t state_;
};

/// fp32 bits of n * 2^exponent: rounded toward zero, 0 below the normal numbers, at most the
/// largest finite. No float takes part.
inline std::uint32_t float_of(std::int64_t n, int exponent)
{
    if (n == 0) return 0;
    const std::uint32_t sign = n < 0 ? 0x80000000u : 0;
    std::uint64_t magnitude = n < 0 ? 0 - std::uint64_t(n) : std::uint64_t(n);
    int field = exponent + 150;
    for (; magnitude >> 24 != 0; magnitude >>= 1) ++field;
    for (; magnitude >> 23 == 0; magnitude <<= 1) --field;
    if (field < 1) return sign;
    if (field > 254) return sign | 0x7f7fffffu;
    return sign | std::uint32_t(field) << 23 | (std::uint32_t(magnitude) & 0x7fffffu);
}

/// A 64-bit hash over a sequence of numbers; order matters.
class running_hash {
public:
    void add(std::uint64_t value)
    {
        hash_ = (hash_ ^ value) * 0xD6E8FEB86659FD93u;
        hash_ ^= hash_ >> 32;
    }
    std::uint64_t value() const { return hash_; }

private:
    std::uint64_t hash_ = 0x9E3779B97F4A7C15u;
};

// Sanitizers slow the exhaustive loops down some twenty times and look for something else in them,
// so there every `thin`-th point is enough.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::uint32_t thin = 61;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr std::uint32_t thin = 61;
#else
constexpr std::uint32_t thin = 1;
#endif
#else
constexpr std::uint32_t thin = 1;
#endif

}  // namespace normans_test
