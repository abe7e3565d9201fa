#pragma once
// The floating-point mode that SIMD planes compute in, whatever the host has set: nearest even, no
// traps, subnormals as zeros. Restored at the end of the scope.

#include "../config.hpp"

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// For planes that need no mode.
struct no_float_mode {
    struct suspended {
        explicit suspended(const no_float_mode&) {}
        ~suspended() {}  // not trivial: a variable of it is no unused one
    };
};

#if defined(__x86_64__) || defined(_M_X64)

class x86_float_mode {
public:
    x86_float_mode() : host_(_mm_getcsr()) { _mm_setcsr(coding); }
    ~x86_float_mode() { _mm_setcsr(host_); }
    x86_float_mode(const x86_float_mode&) = delete;
    x86_float_mode& operator=(const x86_float_mode&) = delete;

    /// The host's mode again, for the scope.
    class suspended {
    public:
        explicit suspended(const x86_float_mode& mode) { _mm_setcsr(mode.host_); }
        ~suspended() { _mm_setcsr(coding); }
        suspended(const suspended&) = delete;
        suspended& operator=(const suspended&) = delete;
    };

private:
    static constexpr unsigned coding = 0x9fc0;  // flush, subnormals as zeros, all traps masked
    unsigned host_;
};

#endif

#if defined(__aarch64__)

class arm_float_mode {
public:
    arm_float_mode() : host_(get()) { set(coding); }
    ~arm_float_mode() { set(host_); }
    arm_float_mode(const arm_float_mode&) = delete;
    arm_float_mode& operator=(const arm_float_mode&) = delete;

    /// The host's mode again, for the scope.
    class suspended {
    public:
        explicit suspended(const arm_float_mode& mode) { set(mode.host_); }
        ~suspended() { set(coding); }
        suspended(const suspended&) = delete;
        suspended& operator=(const suspended&) = delete;
    };

private:
    static constexpr uint64_t coding = 1 << 24;  // flush, subnormals as zeros, no trap enabled

    static uint64_t get()
    {
        uint64_t mode;
        __asm__ volatile("mrs %0, fpcr" : "=r"(mode) : : "memory");
        return mode;
    }
    static void set(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }

    uint64_t host_;
};

#endif

/// What this machine has.
#if defined(__x86_64__) || defined(_M_X64)
using native_float_mode = x86_float_mode;
#elif defined(__aarch64__)
using native_float_mode = arm_float_mode;
#else
using native_float_mode = no_float_mode;
#endif

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
