#pragma once
// Planes of 32 lanes in NEON registers. Operations only; what they are used for is
// plane_lanes.hpp's business. Include it only where the compiler targets aarch64, little-endian.
// Lanes are ascending in all registers.

#include <arm_neon.h>

#include "../core/float_bits.hpp"
#include "../core/stream.hpp"
#include "float_mode.hpp"
#include "lane_places.hpp"
#include "register_pack.hpp"
#include "words_neon.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template <uint32_t N>
struct neon_planes {
    static constexpr uint32_t planes = N;
    static constexpr uint32_t lanes = 32 * N;
    static constexpr bool fast_tables = false;  // a lookup takes about five instructions a register
    static constexpr bool few_registers = false;
    using float_mode = arm_float_mode;
    using lane_set = lane_bits<N>;
    struct word_register {
        using type = uint16x8_t;
    };
    struct float_register {
        using type = float32x4_t;
    };
    struct integer_register {
        using type = uint32x4_t;
    };
    using words = register_pack<word_register, 4 * N>;
    using floats = register_pack<float_register, 8 * N>;
    using ints = register_pack<integer_register, 8 * N>;
    using mask = words;  // all ones or zero per lane

    // Memory. Places say where each run of eight lanes lies.

    static NORMANS_INLINE words load_words(const lane_places<const uint16_t>& from)
    {
        return words([&](int i) NORMANS_LAMBDA { return vld1q_u16(from[i]); });
    }
    static NORMANS_INLINE words load_words(const lane_places<const uint8_t>& from)
    {
        return words([&](int i) NORMANS_LAMBDA { return vmovl_u8(vld1_u8(from[i])); });
    }
    static NORMANS_INLINE floats load_floats(const lane_places<const float>& from)
    {
        return floats([&](int i) NORMANS_LAMBDA { return vld1q_f32(from[i / 2] + i % 2 * 4); });
    }
    /// The first `runs` runs of eight lanes.
    static NORMANS_INLINE void store_words(const lane_places<uint16_t>& to, const words& x,
                                           uint32_t runs)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(4 * N); ++i) {
            if (uint32_t(i) >= runs) return;
            vst1q_u16(to[i], x.v[i]);
        }
    }
    static NORMANS_INLINE void store_words(const lane_places<uint8_t>& to, const words& x,
                                           uint32_t runs)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(4 * N); ++i) {
            if (uint32_t(i) >= runs) return;
            vst1_u8(to[i], vmovn_u16(x.v[i]));
        }
    }
    static NORMANS_INLINE words load(const uint16_t* from)
    {
        return words([&](int i) NORMANS_LAMBDA { return vld1q_u16(from + 8 * i); });
    }
    static NORMANS_INLINE void store(uint16_t* to, const words& x)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(4 * N); ++i) vst1q_u16(to + 8 * i, x.v[i]);
    }
    static NORMANS_INLINE floats load(const float* from)
    {
        return floats([&](int i) NORMANS_LAMBDA { return vld1q_f32(from + 4 * i); });
    }
    static NORMANS_INLINE void store(uint32_t* to, const ints& x)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(8 * N); ++i) vst1q_u32(to + 4 * i, x.v[i]);
    }
    static NORMANS_INLINE ints load(const uint32_t* from)
    {
        return ints([&](int i) NORMANS_LAMBDA { return vld1q_u32(from + 4 * i); });
    }
    /// What load() made, kept in its own order: 32 floats.
    static NORMANS_INLINE floats load_kept(const float* from) { return load(from); }
    static NORMANS_INLINE void keep(float* to, const floats& x)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(8 * N); ++i) vst1q_f32(to + 4 * i, x.v[i]);
    }

    // Words.

    static NORMANS_INLINE words set(uint32_t x)
    {
        return words([&](int) NORMANS_LAMBDA { return vdupq_n_u16(uint16_t(x)); });
    }
    static NORMANS_INLINE words add(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return vaddq_u16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words sub(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return vsubq_u16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words sub_saturated(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return vqsubq_u16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words mul_low(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return vmulq_u16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words mul_high(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return odd_words(vmull_u16(vget_low_u16(x.v[i]), vget_low_u16(y.v[i])),
                             vmull_high_u16(x.v[i], y.v[i]));
        });
    }
    static NORMANS_INLINE words both(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return vandq_u16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words either(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return vorrq_u16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words differ(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return veorq_u16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words without(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return vbicq_u16(x.v[i], y.v[i]); });
    }
    template <int Bits>
    static NORMANS_INLINE words shl(const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA { return vshlq_n_u16(x.v[i], Bits); });
    }
    template <int Bits>
    static NORMANS_INLINE words shr(const words& x)
    {
        if constexpr (Bits == 0) return x;  // the instruction has no such shift
        else return words([&](int i) NORMANS_LAMBDA { return vshrq_n_u16(x.v[i], Bits); });
    }
    static NORMANS_INLINE words smaller(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return vminq_u16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words larger(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return vmaxq_u16(x.v[i], y.v[i]); });
    }
    /// (x * y + 2^14) >> 15, signed; not both -2^15, which would saturate.
    static NORMANS_INLINE words mul_rounded(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return vreinterpretq_u16_s16(vqrdmulhq_s16(as_signed(x.v[i]), as_signed(y.v[i])));
        });
    }
    /// (high << 1) | (low >> 15)
    static NORMANS_INLINE words join_shifted(const words& high, const words& low)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return vsriq_n_u16(vshlq_n_u16(high.v[i], 1), low.v[i], 15);
        });
    }
    /// 1 << bits, bits < 16.
    static NORMANS_INLINE words power(const words& bits)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return vshlq_u16(vdupq_n_u16(1), as_signed(bits.v[i]));
        });
    }
    /// x << bits and x >> bits; `power` is power(bits), bits < 16.
    static NORMANS_INLINE words shl(const words& x, const words& bits, const words&)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return vshlq_u16(x.v[i], as_signed(bits.v[i]));
        });
    }
    static NORMANS_INLINE words shr(const words& x, const words& bits, const words&)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return vshlq_u16(x.v[i], vnegq_s16(as_signed(bits.v[i])));
        });
    }

    // Masks.

    static NORMANS_INLINE mask less(const words& x, const words& y)  // unsigned
    {
        return words([&](int i) NORMANS_LAMBDA { return vcltq_u16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE mask less_signed(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return vcltq_s16(as_signed(x.v[i]), as_signed(y.v[i]));
        });
    }
    static NORMANS_INLINE mask not_less(const words& x, const words& y)  // unsigned
    {
        return words([&](int i) NORMANS_LAMBDA { return vcgeq_u16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE mask equal(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return vceqq_u16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE mask negative(const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA { return vcltzq_s16(as_signed(x.v[i])); });
    }
    static NORMANS_INLINE words negate_where(const mask& m, const words& x)
    {
        return sub(differ(x, m), m);
    }
    static NORMANS_INLINE words minus_or_plus_one(const mask& minus)
    {
        return either(minus, set(1));
    }
    static NORMANS_INLINE mask join(const mask& x, const mask& y) { return either(x, y); }
    static NORMANS_INLINE mask differ_masks(const mask& x, const mask& y) { return differ(x, y); }
    static NORMANS_INLINE words select(const mask& m, const words& yes, const words& no)
    {
        return words([&](int i) NORMANS_LAMBDA { return vbslq_u16(m.v[i], yes.v[i], no.v[i]); });
    }
    static NORMANS_INLINE words where(const mask& m, const words& x) { return both(m, x); }
    static NORMANS_INLINE words where_not(const mask& m, const words& x) { return without(x, m); }
    static NORMANS_INLINE lane_set to_bits(const mask& m)
    {
        lane_set out;
        NORMANS_UNROLL
        for (int n = 0; n < int(N); ++n)
            out.plane[n] = neon_moves::bits_of(packed(m, 2 * n), packed(m, 2 * n + 1));
        return out;
    }
    static NORMANS_INLINE mask from_bits(const lane_set& bits)
    {
        constexpr uint16_t bit[16] = {1,   2,   4,    8,    16,   32,   64,    128,
                                      256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
        const uint16x8_t even = vld1q_u16(bit), odd = vld1q_u16(bit + 8);
        return words([&](int i) NORMANS_LAMBDA {
            return vtstq_u16(vdupq_n_u16(uint16_t(bits.plane[i / 4] >> (i % 4 / 2 * 16))),
                             i % 2 == 0 ? even : odd);
        });
    }
    static NORMANS_INLINE bool any(const mask& m)
    {
        const uint16x8_t all = reduce(
            m, [](uint16x8_t x, uint16x8_t y) NORMANS_LAMBDA { return vorrq_u16(x, y); });
        return vmaxvq_u32(vreinterpretq_u32_u16(all)) != 0;
    }
    static NORMANS_INLINE bool any_zero(const words& x)
    {
        return vminvq_u16(reduce(x, [](uint16x8_t a, uint16x8_t b) NORMANS_LAMBDA {
                   return vminq_u16(a, b);
               })) == 0;
    }
    static NORMANS_INLINE bool any_above(const words& x, uint32_t limit)
    {
        return vmaxvq_u16(reduce(x, [](uint16x8_t a, uint16x8_t b) NORMANS_LAMBDA {
                   return vmaxq_u16(a, b);
               })) > limit;
    }
    /// Of magnitudes: limit is positive.
    static NORMANS_INLINE bool any_above(const floats& x, float limit)
    {
        const ints magnitude = both(bits(x), set_int(0x7fffffff));
        const uint32x4_t most = reduce(magnitude, [](uint32x4_t a, uint32x4_t b) NORMANS_LAMBDA {
            return vmaxq_u32(a, b);
        });
        return vmaxvq_u32(most) > float_to_bits(limit);
    }

    // Tables.

    /// 16 words, looked up by an index below 128; those from 16 on give anything.
    struct small_table {
        uint8x16x2_t bytes;  // the low ones, then the high ones
        explicit small_table(const uint16_t* word) : bytes(split_16(word)) {}
        NORMANS_INLINE words operator()(const words& index) const
        {
            return by_pair([&](int pair) NORMANS_LAMBDA {
                const uint8x16_t at = packed(index, pair);
                return joined(vqtbl1q_u8(bytes.val[0], at), vqtbl1q_u8(bytes.val[1], at));
            });
        }
    };

    /// 32 bytes, looked up by an index below 32.
    struct byte_table {
        uint8x16x2_t bytes;
        explicit byte_table(const uint8_t* byte) : bytes{{vld1q_u8(byte), vld1q_u8(byte + 16)}} {}
        NORMANS_INLINE words operator()(const words& index) const
        {
            return by_pair([&](int pair) NORMANS_LAMBDA {
                return joined(vqtbl2q_u8(bytes, packed(index, pair)), vdupq_n_u8(0));
            });
        }
    };

    /// 32 words, looked up by an index below 32.
    struct word_table {
        uint8x16x2_t low, high;
        explicit word_table(const uint16_t* word) { split_32(word, low, high); }
        NORMANS_INLINE words operator()(const words& index) const
        {
            return by_pair([&](int pair) NORMANS_LAMBDA {
                const uint8x16_t at = packed(index, pair);
                return joined(vqtbl2q_u8(low, at), vqtbl2q_u8(high, at));
            });
        }
    };

    /// A function of 32 straight pieces over signed words x, first piece at x = 0:
    /// base[x >> 11] + (low 11 bits of x) * rise[x >> 11] / 2^11, rises below 2^15.
    struct pieces {
        uint8x16x2_t base_low, base_high, rise_low, rise_high;
        pieces(const uint16_t* base, const uint16_t* rise)
        {
            split_32(base, base_low, base_high);
            split_32(rise, rise_low, rise_high);
        }
        NORMANS_INLINE words operator()(const words& x) const
        {
            const words low = shr<1>(shl<5>(x));  // doubled by the product
            return by_pair([&](int pair) NORMANS_LAMBDA {
                const uint8x16_t at = vshrq_n_u8(
                    vuzp2q_u8(as_bytes(x.v[2 * pair]), as_bytes(x.v[2 * pair + 1])), 3);
                const two first = joined(vqtbl2q_u8(base_low, at), vqtbl2q_u8(base_high, at));
                const two rise = joined(vqtbl2q_u8(rise_low, at), vqtbl2q_u8(rise_high, at));
                return two{vaddq_u16(first.low, scaled(low.v[2 * pair], rise.low)),
                           vaddq_u16(first.high, scaled(low.v[2 * pair + 1], rise.high))};
            });
        }

    private:
        // x * y / 2^15
        static NORMANS_INLINE uint16x8_t scaled(uint16x8_t x, uint16x8_t y)
        {
            return vreinterpretq_u16_s16(vqdmulhq_s16(as_signed(x), as_signed(y)));
        }
    };

    // Floats and what lies between them and words.

    static NORMANS_INLINE floats set_float(float x)
    {
        return floats([&](int) NORMANS_LAMBDA { return vdupq_n_f32(x); });
    }
    /// One value for each run of eight lanes.
    static NORMANS_INLINE floats spread(const float* value)
    {
        return floats([&](int i) NORMANS_LAMBDA { return vdupq_n_f32(value[i / 2]); });
    }
    static NORMANS_INLINE floats mul(const floats& x, const floats& y)
    {
        return floats([&](int i) NORMANS_LAMBDA { return vmulq_f32(x.v[i], y.v[i]); });
    }
    /// Of what keep() left.
    static NORMANS_INLINE floats mul(const float* x, const float* y)
    {
        return floats([&](int i) NORMANS_LAMBDA {
            return vmulq_f32(vld1q_f32(x + 4 * i), vld1q_f32(y + 4 * i));
        });
    }
    static NORMANS_INLINE floats fma(const floats& x, const floats& y, const floats& z)
    {
        return floats([&](int i) NORMANS_LAMBDA { return vfmaq_f32(z.v[i], x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE floats reciprocal(const floats& x)  // 15 bits: 8 and a Newton step
    {
        return floats([&](int i) NORMANS_LAMBDA {
            const float32x4_t estimate = vrecpeq_f32(x.v[i]);
            return vmulq_f32(estimate, vrecpsq_f32(x.v[i], estimate));
        });
    }
    static NORMANS_INLINE ints bits(const floats& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return vreinterpretq_u32_f32(x.v[i]); });
    }
    static NORMANS_INLINE floats as_floats(const ints& x)
    {
        return floats([&](int i) NORMANS_LAMBDA { return vreinterpretq_f32_u32(x.v[i]); });
    }
    static NORMANS_INLINE floats to_floats(const ints& x)  // signed
    {
        return floats([&](int i) NORMANS_LAMBDA {
            return vcvtq_f32_s32(vreinterpretq_s32_u32(x.v[i]));
        });
    }
    static NORMANS_INLINE ints truncate(const floats& x)
    {
        return ints([&](int i) NORMANS_LAMBDA {
            return vreinterpretq_u32_s32(vcvtq_s32_f32(x.v[i]));
        });
    }
    static NORMANS_INLINE ints set_int(uint32_t x)
    {
        return ints([&](int) NORMANS_LAMBDA { return vdupq_n_u32(x); });
    }
    static NORMANS_INLINE ints add(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return vaddq_u32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE ints sub(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return vsubq_u32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE ints both(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return vandq_u32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE ints select(const ints& m, const ints& yes, const ints& no)
    {
        return ints([&](int i) NORMANS_LAMBDA { return vbslq_u32(m.v[i], yes.v[i], no.v[i]); });
    }
    template <int Bits>
    static NORMANS_INLINE ints shl(const ints& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return vshlq_n_u32(x.v[i], Bits); });
    }
    template <int Bits>
    static NORMANS_INLINE ints shr(const ints& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return vshrq_n_u32(x.v[i], Bits); });
    }
    /// Words with a low half of zeros below them.
    static NORMANS_INLINE floats floats_from_high(const words& x)
    {
        return as_floats(interleave(set(0), x));
    }
    /// Words above `low`.
    static NORMANS_INLINE floats floats_from_high(const words& x, uint32_t low)
    {
        return as_floats(interleave(set(low), x));
    }
    static NORMANS_INLINE ints widen(const words& x) { return interleave(x, set(0)); }
    static NORMANS_INLINE ints interleave(const words& low, const words& high)
    {
        return ints([&](int i) NORMANS_LAMBDA {
            return vreinterpretq_u32_u16(i % 2 == 0 ? vzip1q_u16(low.v[i / 2], high.v[i / 2])
                                                    : vzip2q_u16(low.v[i / 2], high.v[i / 2]));
        });
    }
    static NORMANS_INLINE ints widen_mask(const mask& m) { return interleave(m, m); }
    /// The high half of each int.
    static NORMANS_INLINE words high_words(const ints& x)
    {
        return words([&](int i) NORMANS_LAMBDA { return odd_words(x.v[2 * i], x.v[2 * i + 1]); });
    }
    static NORMANS_INLINE words high_words(const floats& x) { return high_words(bits(x)); }
    /// Ints below 2^16.
    static NORMANS_INLINE words narrow(const ints& x)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return vuzp1q_u16(vreinterpretq_u16_u32(x.v[2 * i]),
                              vreinterpretq_u16_u32(x.v[2 * i + 1]));
        });
    }

    // The model's arithmetic.

    /// fma(mean, a, b), rounded once.
    static NORMANS_INLINE floats map_means(const floats& mean, const float* a, const float* b)
    {
        return floats([&](int i) NORMANS_LAMBDA {
            return vfmaq_f32(vld1q_f32(b + 4 * i), mean.v[i], vld1q_f32(a + 4 * i));
        });
    }
    /// fma(edge, slope, -product), rounded once and then to an integer, clamped to 16 bits signed.
    /// Both conversions saturate: nothing needs a clamp before.
    template <bool Clamp>
    static NORMANS_INLINE words round_z(const floats& edge, const floats& slope,
                                        const floats& product)
    {
        const auto at = [&](int i) NORMANS_LAMBDA {
            return vcvtnq_s32_f32(vfmaq_f32(vnegq_f32(product.v[i]), edge.v[i], slope.v[i]));
        };
        return words([&](int i) NORMANS_LAMBDA {
            return vreinterpretq_u16_s16(
                vqmovn_high_s32(vqmovn_s32(at(2 * i)), at(2 * i + 1)));
        });
    }
    /// slope8[index & 7] - ((index >> 3) << 23), as floats.
    static NORMANS_INLINE floats slopes(const words& index, const uint32_t* slope8)
    {
        const uint8x16x2_t table = {{vreinterpretq_u8_u32(vld1q_u32(slope8)),
                                     vreinterpretq_u8_u32(vld1q_u32(slope8 + 4))}};
        const ints k = widen(index);
        return as_floats(ints([&](int i) NORMANS_LAMBDA {
            const uint32x4_t at = vmlaq_u32(vdupq_n_u32(0x03020100),  // bytes of a word
                                            vandq_u32(k.v[i], vdupq_n_u32(7)),
                                            vdupq_n_u32(0x04040404));
            return vsubq_u32(vreinterpretq_u32_u8(vqtbl2q_u8(table, vreinterpretq_u8_u32(at))),
                             vshlq_n_u32(vshrq_n_u32(k.v[i], 3), 23));
        }));
    }
    static NORMANS_INLINE floats gather(const float* table, const words& index)
    {
        uint16_t at[lanes];
        float value[lanes];
        store(at, index);
        for (uint32_t i = 0; i < lanes; ++i) value[i] = table[at[i]];
        return load(value);
    }
    /// high << 16 | low divided by freq: the quotient or one less. The dividend is below
    /// freq * 2^16, freq in [1, 2^15]. The divisor is aimed high by 2^-20; this, the conversion and
    /// the division round by 2^-24 each. Never above the quotient, and below it by less than
    /// 2^16 * 2^-19 = 2^-3.
    static NORMANS_INLINE words quotient(const words& high, const words& low, const words& freq)
    {
        const floats divisor = mul(to_floats(widen(freq)), set_float(1.0f + 0x1p-20f));
        const floats dividend = to_floats(interleave(low, high));
        return narrow(ints([&](int i) NORMANS_LAMBDA {
            return vcvtq_u32_f32(vdivq_f32(dividend.v[i], divisor.v[i]));
        }));
    }
    /// Sums over pairs of lanes, four apart in their run of eight.
    using squares = register_pack<integer_register, 4 * N>;
    static NORMANS_INLINE squares no_squares()
    {
        return squares([](int) NORMANS_LAMBDA { return vdupq_n_u32(0); });
    }
    /// |x| <= 2^13
    static NORMANS_INLINE squares add_squares(const squares& sum, const words& x)
    {
        return squares([&](int i) NORMANS_LAMBDA {
            const int16x8_t y = as_signed(x.v[i]);
            const int32x4_t low = vmlal_s16(vreinterpretq_s32_u32(sum.v[i]), vget_low_s16(y),
                                            vget_low_s16(y));
            return vreinterpretq_u32_s32(vmlal_high_s16(low, y, y));
        });
    }
    static NORMANS_INLINE void store_squares(uint32_t* to, const squares& x)  // lanes / 2 of them
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(4 * N); ++i) vst1q_u32(to + 4 * i, x.v[i]);
    }

    // Words of the stream: a reader or writer for every `share` lanes.

    /// The next words of the readers, one for each set lane in ascending order, 0 elsewhere. Every
    /// reader holds `share` words.
    static NORMANS_INLINE words take(word_reader* readers, uint32_t share, const mask& m)
    {
        uint16x8_t run[4 * N];
        NORMANS_UNROLL
        for (uint32_t n = 0; n < N; ++n) {
            const neon_moves wanted = moves(m, int(n));
            if (share == 32) {
                const uint8_t* from = readers[n].next;
                NORMANS_UNROLL
                for (uint32_t i = 0; i < 4; ++i) from = wanted.expand(from, i, run[4 * n + i]);
                readers[n].next = from;
            } else {
                NORMANS_UNROLL
                for (uint32_t i = 0; i < 4; ++i) {
                    const uint8_t*& from = readers[(32 * n + 8 * i) / share].next;
                    from = wanted.expand(from, i, run[4 * n + i]);
                }
            }
        }
        return words([&](int i) NORMANS_LAMBDA { return run[i]; });
    }
    /// Writes the set lanes, so that they ascend in memory. Every writer holds `share` words; what
    /// lies below them is free.
    static NORMANS_INLINE void put(word_writer* writers, uint32_t share, const mask& m,
                                   const words& x)
    {
        NORMANS_UNROLL
        for (uint32_t n = 0; n < N; ++n) {
            const neon_moves given = moves(m, int(n));
            if (share == 32) {
                uint8_t* to = writers[n].next;
                NORMANS_UNROLL
                for (uint32_t i = 0; i < 4; ++i)
                    to = given.compress(to, 3 - i, x.v[4 * n + 3 - i]);
                writers[n].next = to;
            } else {
                NORMANS_UNROLL
                for (uint32_t i = 0; i < 4; ++i) {
                    uint8_t*& to = writers[(32 * n + 24 - 8 * i) / share].next;
                    to = given.compress(to, 3 - i, x.v[4 * n + 3 - i]);
                }
            }
        }
    }

private:
    // A word value made pair by pair of registers: `f(pair)` gives the two.
    struct two {
        uint16x8_t low, high;
    };
    template <class Function, int... P>
    static NORMANS_INLINE words by_pair(const Function& f, std::integer_sequence<int, P...>)
    {
        const two pair[] = {f(P)...};
        return words([&](int i) NORMANS_LAMBDA {
            return i % 2 == 0 ? pair[i / 2].low : pair[i / 2].high;
        });
    }
    template <class Function>
    static NORMANS_INLINE words by_pair(const Function& f)
    {
        return by_pair(f, std::make_integer_sequence<int, int(2 * N)>{});
    }
    template <class Pack, class Function>
    static NORMANS_INLINE typename Pack::type reduce(const Pack& x, const Function& f)
    {
        return reduce(x, f, std::make_integer_sequence<int, int(sizeof x.v / sizeof x.v[0]) - 1>{});
    }
    template <class Pack, class Function, int... I>
    static NORMANS_INLINE typename Pack::type reduce(const Pack& x, const Function& f,
                                                     std::integer_sequence<int, I...>)
    {
        typename Pack::type all = x.v[0];
        ((all = f(all, x.v[I + 1])), ...);
        return all;
    }
    static NORMANS_INLINE int16x8_t as_signed(uint16x8_t x) { return vreinterpretq_s16_u16(x); }
    static NORMANS_INLINE uint8x16_t as_bytes(uint16x8_t x) { return vreinterpretq_u8_u16(x); }
    // The high halves of eight ints.
    static NORMANS_INLINE uint16x8_t odd_words(uint32x4_t x, uint32x4_t y)
    {
        return vuzp2q_u16(vreinterpretq_u16_u32(x), vreinterpretq_u16_u32(y));
    }
    // The low bytes of a pair's words.
    static NORMANS_INLINE uint8x16_t packed(const words& x, int pair)
    {
        return vuzp1q_u8(as_bytes(x.v[2 * pair]), as_bytes(x.v[2 * pair + 1]));
    }
    // Packed bytes back to words.
    static NORMANS_INLINE two joined(uint8x16_t low, uint8x16_t high)
    {
        return {vreinterpretq_u16_u8(vzip1q_u8(low, high)),
                vreinterpretq_u16_u8(vzip2q_u8(low, high))};
    }
    static NORMANS_INLINE void split_32(const uint16_t* word, uint8x16x2_t& low,
                                        uint8x16x2_t& high)
    {
        const uint8x16x2_t first = split_16(word), second = split_16(word + 16);
        low = {{first.val[0], second.val[0]}};
        high = {{first.val[1], second.val[1]}};
    }
    // The low and the high bytes of 16 words.
    static NORMANS_INLINE uint8x16x2_t split_16(const uint16_t* word)
    {
        return vld2q_u8(reinterpret_cast<const uint8_t*>(word));
    }

    // Which words of a plane's runs move.
    static NORMANS_INLINE neon_moves moves(const mask& m, int plane)
    {
        return {packed(m, 2 * plane), packed(m, 2 * plane + 1)};
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
