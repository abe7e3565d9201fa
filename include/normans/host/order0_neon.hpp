#pragma once
// Eight lanes of a group for static tables in two NEON registers. Operations only; what they are
// used for is order0_group.hpp's business. Include it only where the compiler targets aarch64,
// little-endian.

#include <arm_neon.h>

#include "float_mode.hpp"
#include "words_neon.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

struct order0_neon {
    using float_mode = arm_float_mode;
    struct eight {
        uint32x4_t v[2];
    };
    using spread = uint32x4_t;  // one value in all lanes
    using left_shift = int32x4_t;
    using right_shift = int32x4_t;  // a negative one to the left
    struct masks {
        eight v[4];
    };

    static NORMANS_INLINE eight load(const uint32_t* from)
    {
        return each([&](int i) NORMANS_LAMBDA { return vld1q_u32(from + 4 * i); });
    }
    static NORMANS_INLINE void store(uint32_t* to, const eight& x)
    {
        vst1q_u32(to, x.v[0]);
        vst1q_u32(to + 4, x.v[1]);
    }
    static NORMANS_INLINE eight load_bytes(const uint8_t* from)
    {
        const uint16x8_t words = vmovl_u8(vld1_u8(from));
        return each([&](int i) NORMANS_LAMBDA {
            return i == 0 ? vmovl_u16(vget_low_u16(words)) : vmovl_high_u16(words);
        });
    }
    /// A byte per lane, each block's to its own place.
    template <uint32_t Blocks>
    static NORMANS_INLINE void store_bytes(uint8_t* const* to, const eight (&x)[4])
    {
        NORMANS_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
            const uint8x16_t both = low_bytes(x[2 * half], x[2 * half + 1]);
            if constexpr (Blocks == 4) {
                vst1_u8(to[2 * half], vget_low_u8(both));
                vst1_u8(to[2 * half + 1], vget_high_u8(both));
            } else {
                vst1q_u8(Blocks == 2 ? to[half] : to[0] + 16 * half, both);
            }
        }
    }

    static NORMANS_INLINE eight set(uint32_t x)
    {
        return each([&](int) NORMANS_LAMBDA { return vdupq_n_u32(x); });
    }
    static NORMANS_INLINE spread same(uint32_t x) { return vdupq_n_u32(x); }
    static NORMANS_INLINE left_shift left(unsigned bits) { return vdupq_n_s32(int(bits)); }
    static NORMANS_INLINE right_shift right(unsigned bits) { return vdupq_n_s32(-int(bits)); }
    static NORMANS_INLINE eight shl(const eight& x, left_shift bits)
    {
        return each([&](int i) NORMANS_LAMBDA { return vshlq_u32(x.v[i], bits); });
    }
    static NORMANS_INLINE eight shr(const eight& x, right_shift bits) { return shl(x, bits); }
    template <int Bits>
    static NORMANS_INLINE eight shl(const eight& x)
    {
        return each([&](int i) NORMANS_LAMBDA { return vshlq_n_u32(x.v[i], Bits); });
    }
    template <int Bits>
    static NORMANS_INLINE eight shr(const eight& x)
    {
        return each([&](int i) NORMANS_LAMBDA { return vshrq_n_u32(x.v[i], Bits); });
    }
    static NORMANS_INLINE eight both(const eight& x, const eight& y)
    {
        return each([&](int i) NORMANS_LAMBDA { return vandq_u32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE eight both(const eight& x, spread y)
    {
        return each([&](int i) NORMANS_LAMBDA { return vandq_u32(x.v[i], y); });
    }
    static NORMANS_INLINE eight add(const eight& x, const eight& y)
    {
        return each([&](int i) NORMANS_LAMBDA { return vaddq_u32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE eight sub(const eight& x, const eight& y)
    {
        return each([&](int i) NORMANS_LAMBDA { return vsubq_u32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE eight add_product(const eight& x, const eight& y, const eight& z)
    {
        return each([&](int i) NORMANS_LAMBDA { return vmlaq_u32(x.v[i], y.v[i], z.v[i]); });
    }
    static NORMANS_INLINE eight sub_product(const eight& x, const eight& y, const eight& z)
    {
        return each([&](int i) NORMANS_LAMBDA { return vmlsq_u32(x.v[i], y.v[i], z.v[i]); });
    }
    static NORMANS_INLINE eight smaller(const eight& x, const eight& y)
    {
        return each([&](int i) NORMANS_LAMBDA { return vminq_u32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE eight less(const eight& x, const eight& y)
    {
        return each([&](int i) NORMANS_LAMBDA { return vcltq_u32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE eight select(const eight& m, const eight& yes, const eight& no)
    {
        return each([&](int i) NORMANS_LAMBDA { return vbslq_u32(m.v[i], yes.v[i], no.v[i]); });
    }
    static NORMANS_INLINE eight where_not(const eight& m, const eight& x)
    {
        return each([&](int i) NORMANS_LAMBDA { return vbicq_u32(x.v[i], m.v[i]); });
    }

    /// x / freq or one less, of x < freq * 2^19. The quotient is aimed low by 2^-20, more than its
    /// three roundings, in whatever mode, can make up for.
    static NORMANS_INLINE eight quotient(const eight& x, const eight& freq)
    {
        return each([&](int i) NORMANS_LAMBDA {
            const float32x4_t low = vmulq_n_f32(vcvtq_f32_u32(x.v[i]), 1.0f - 0x1p-20f);
            return vcvtq_u32_f32(vdivq_f32(low, vcvtq_f32_u32(freq.v[i])));
        });
    }

    static NORMANS_INLINE eight lookup(const uint32_t* table, const eight& index)
    {
        return each([&](int i) NORMANS_LAMBDA {
            const uint64x2_t at = vreinterpretq_u64_u32(index.v[i]);
            return vreinterpretq_u32_u64(vcombine_u64(lookup(table, vgetq_lane_u64(at, 0)),
                                                      lookup(table, vgetq_lane_u64(at, 1))));
        });
    }

    // Words of the stream, for the set or the clear lanes of masks.

    static NORMANS_INLINE neon_moves moves_of_set(const masks& m)
    {
        return {low_bytes(m.v[0], m.v[1]), low_bytes(m.v[2], m.v[3])};
    }
    static NORMANS_INLINE neon_moves moves_of_clear(const masks& m)
    {
        return {vmvnq_u8(low_bytes(m.v[0], m.v[1])), vmvnq_u8(low_bytes(m.v[2], m.v[3]))};
    }

    /// The next words, for those of the i-th eight.
    static NORMANS_INLINE uint16x8_t expand(const uint8_t*& next, const neon_moves& wanted,
                                            uint32_t i)
    {
        uint16x8_t run;
        next = wanted.expand(next, i, run);
        return run;
    }
    /// x << 16 | word
    static NORMANS_INLINE eight push(const eight& x, uint16x8_t words)
    {
        const uint16x8_t low = low_words(x);
        return each([&](int i) NORMANS_LAMBDA {
            return vreinterpretq_u32_u16(i == 0 ? vzip1q_u16(words, low) : vzip2q_u16(words, low));
        });
    }
    /// Writes low words below `next`.
    static NORMANS_INLINE void compress(uint8_t*& next, const neon_moves& given, uint32_t i,
                                        const eight& x)
    {
        next = given.compress(next, i, low_words(x));
    }

private:
    template <class Function>
    static NORMANS_INLINE eight each(const Function& f)
    {
        return {{f(0), f(1)}};
    }
    static NORMANS_INLINE uint16x8_t low_words(const eight& x)
    {
        return vuzp1q_u16(vreinterpretq_u16_u32(x.v[0]), vreinterpretq_u16_u32(x.v[1]));
    }
    static NORMANS_INLINE uint8x16_t low_bytes(const eight& x, const eight& y)
    {
        return vuzp1q_u8(vreinterpretq_u8_u16(low_words(x)), vreinterpretq_u8_u16(low_words(y)));
    }
    // Of two indices.
    static NORMANS_INLINE uint64x1_t lookup(const uint32_t* table, uint64_t index)
    {
        return vcreate_u64(table[uint32_t(index)] | uint64_t(table[index >> 32]) << 32);
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
