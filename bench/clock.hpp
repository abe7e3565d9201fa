#pragma once
// The core's clock while a benchmark runs, from a chain of dependent 64-bit multiplies: their
// latency is 3 cycles on Intel since Nehalem and on Zen. Rates per cycle then say the same under
// any boost, and a machine without performance counters is enough.

#include <chrono>
#include <cstdint>

namespace bench {

/// Cycles per second of this core, now. Takes about half a millisecond.
inline double clock_hz()
{
    constexpr int multiplies = 1 << 16, tries = 5, latency = 3;
    using clock = std::chrono::steady_clock;
    double best = 0;
    for (int t = 0; t < tries; ++t) {  // an interrupted try only looks slower
        std::uint64_t x = 1;
        const clock::time_point begin = clock::now();
        for (int i = 0; i < multiplies; ++i) {
            x *= 0x9e3779b97f4a7c15u;
            asm volatile("" : "+r"(x));  // else two multiplies by constants become one
        }
        const std::chrono::duration<double> taken = clock::now() - begin;
        const double hz = multiplies * latency / taken.count();
        if (hz > best) best = hz;
    }
    return best;
}

}  // namespace bench
