#pragma once
// The coder's constants. Invariant of every state between two steps:
//     lower_bound <= state < lower_bound << word_bits. All are part of the format.

#include "../config.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

struct rans_format {
    static constexpr unsigned word_bits = 16;
    // The total is 2^15, not 2^16: then no freq exceeds 2^15, a remainder fits 16 bits and the
    // encoder's quotient needs one compare. 2^16 would save 0.04 % on bf16.
    static constexpr unsigned precision_bits = 15;
    static constexpr uint32_t total = uint32_t(1) << precision_bits;
    // One spare state bit: signed compares work, and a float reciprocal divides exactly.
    static constexpr uint32_t lower_bound = uint32_t(1) << 15;

    static_assert(total <= lower_bound, "renormalisation is one word, never a loop");
    static_assert(lower_bound <= uint32_t(1) << word_bits, "one word restores the invariant");
};

// The sign-flip slots of a scalar that is taken to equal its mean (see normal.hpp, far).
constexpr uint32_t flip_slots = 512;

// Raw bits move at most 8 at a time: a state below lower_bound >> 8 would need a second word.
constexpr unsigned raw_bits_limit = 8;

// 8 lanes suit pages (32 x 4 bytes of states are 4 % of a 12,288-scalar block at 2 bits),
// 32 suit long streams and one warp.
constexpr uint32_t max_lanes = 32;
constexpr uint32_t many_scalars = 32768;

NORMANS_HD constexpr bool valid_lanes(uint32_t lanes)
{
    return lanes == 1 || lanes == 8 || lanes == 16 || lanes == 32;
}

/// The lane count of a block of `count` scalars when the caller names none.
NORMANS_HD constexpr uint32_t default_lanes(uint32_t count)
{
    return count < many_scalars ? 8 : 32;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
