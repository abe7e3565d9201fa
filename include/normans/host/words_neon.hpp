#pragma once
// Words of the stream in NEON registers: which of 32 lanes take or give one, and eight lanes' words
// to and from memory. Include it only where the compiler targets aarch64, little-endian.

#include <arm_neon.h>

#include "word_shuffles.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Words of 32 lanes that move, and by how many bytes that moves the cursor: byte i is the i-th
/// eight's.
struct neon_moves {
    uint32_t bits, bytes;

    /// A byte per lane, all ones or zero.
    NORMANS_INLINE neon_moves(uint8x16_t low, uint8x16_t high)
    {
        const uint8x8_t all = packed(vandq_u8(low, lane_bit()), vandq_u8(high, lane_bit()));
        bits = as_uint(all);
        bytes = as_uint(vshl_n_u8(vcnt_u8(all), 1));
    }
    /// A bit per lane.
    static NORMANS_INLINE uint32_t bits_of(uint8x16_t low, uint8x16_t high)
    {
        return as_uint(packed(vandq_u8(low, lane_bit()), vandq_u8(high, lane_bit())));
    }

    NORMANS_INLINE const uint8_t* expand(const uint8_t* from, uint32_t i, uint16x8_t& run) const
    {
        const uint8_t* const shuffle = word_shuffles.expand[bits >> (8 * i) & 255];
        run = vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(from), vld1q_u8(shuffle)));
        return from + (bytes >> (8 * i) & 255);
    }
    NORMANS_INLINE uint8_t* compress(uint8_t* to, uint32_t i, uint16x8_t run) const
    {
        const uint8_t* const shuffle = word_shuffles.compress[bits >> (8 * i) & 255];
        vst1q_u8(to - 16, vqtbl1q_u8(vreinterpretq_u8_u16(run), vld1q_u8(shuffle)));
        return to - (bytes >> (8 * i) & 255);
    }

private:
    static NORMANS_INLINE uint8x16_t lane_bit()
    {
        return vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    }
    static NORMANS_INLINE uint8x8_t packed(uint8x16_t low, uint8x16_t high)
    {
        const uint8x16_t half = vpaddq_u8(low, high), quarter = vpaddq_u8(half, half);
        return vget_low_u8(vpaddq_u8(quarter, quarter));
    }
    static NORMANS_INLINE uint32_t as_uint(uint8x8_t x)
    {
        return vget_lane_u32(vreinterpret_u32_u8(x), 0);
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
