#pragma once
// Planes of 32 lanes in AVX-512 registers (F, BW, DQ, VL, VBMI2). Operations only; what they are
// used for is plane_lanes.hpp's business. Include it only where the compiler targets all of them.
// Lanes are ascending in `words`, a register a plane. `floats` and `ints` hold two registers a
// plane, as unpacking gives them: the lower four of every eight lanes, then the upper four.

#include <immintrin.h>

#include <cstring>

#include "../core/stream.hpp"
#include "float_mode.hpp"
#include "lane_places.hpp"
#include "register_pack.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template <uint32_t N>
struct avx512_planes {
    static constexpr uint32_t planes = N;
    static constexpr uint32_t lanes = 32 * N;
    static constexpr bool fast_tables = true;
    static constexpr bool few_registers = false;
    using float_mode = x86_float_mode;
    using lane_set = lane_bits<N>;
    struct integer_register {
        using type = __m512i;
    };
    struct float_register {
        using type = __m512;
    };
    struct mask_register {
        using type = __mmask32;
    };
    using words = register_pack<integer_register, N>;
    using floats = register_pack<float_register, 2 * N>;
    using ints = register_pack<integer_register, 2 * N>;
    using mask = register_pack<mask_register, N>;
    // Every lane by a mask: the plain forms start from an undefined register, which gcc's own
    // headers (12) make a warning of. Same instructions.
    static constexpr __mmask16 every = 0xffff;
    static constexpr __mmask8 every_8 = 0xff;

    // Memory. Places say where each run of eight lanes lies.

    static NORMANS_INLINE words load_words(const lane_places<const uint16_t>& from)
    {
        if (from.whole)
            return words([&](int i) NORMANS_LAMBDA { return _mm512_loadu_si512(from[4 * i]); });
        return words([&](int i) NORMANS_LAMBDA {
            return four(load_128(from[4 * i]), load_128(from[4 * i + 1]), load_128(from[4 * i + 2]),
                        load_128(from[4 * i + 3]));
        });
    }
    static NORMANS_INLINE words load_words(const lane_places<const uint8_t>& from)
    {
        if (from.whole)
            return words([&](int i) NORMANS_LAMBDA {
                return _mm512_cvtepu8_epi16(load_256(from[4 * i]));
            });
        return words([&](int i) NORMANS_LAMBDA {
            const __m128i low = _mm_unpacklo_epi64(load_64(from[4 * i]), load_64(from[4 * i + 1]));
            const __m128i high =
                _mm_unpacklo_epi64(load_64(from[4 * i + 2]), load_64(from[4 * i + 3]));
            return _mm512_cvtepu8_epi16(
                _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
        });
    }
    static NORMANS_INLINE floats load_floats(const lane_places<const float>& from)
    {
        if (from.whole)
            return floats([&](int i) NORMANS_LAMBDA { return half_of(from[i / 2 * 4], i % 2); });
        return floats([&](int i) NORMANS_LAMBDA {
            const int first = i / 2 * 4, offset = i % 2 * 4;
            return _mm512_castsi512_ps(
                four(load_128(from[first] + offset), load_128(from[first + 1] + offset),
                     load_128(from[first + 2] + offset), load_128(from[first + 3] + offset)));
        });
    }
    /// The first `runs` runs of eight lanes.
    static NORMANS_INLINE void store_words(const lane_places<uint16_t>& to, const words& x,
                                           uint32_t runs)
    {
        NORMANS_UNROLL
        for (int n = 0; n < int(N); ++n) {
            if (uint32_t(4 * n) >= runs) return;
            if (to.whole) {
                _mm512_storeu_si512(to[4 * n], x.v[n]);
            } else {
                const uint32_t mine = runs - uint32_t(4 * n);
                store_128(to[4 * n], quarter<0>(x.v[n]));
                if (mine > 1) store_128(to[4 * n + 1], quarter<1>(x.v[n]));
                if (mine > 2) store_128(to[4 * n + 2], quarter<2>(x.v[n]));
                if (mine > 3) store_128(to[4 * n + 3], quarter<3>(x.v[n]));
            }
        }
    }
    static NORMANS_INLINE void store_words(const lane_places<uint8_t>& to, const words& x,
                                           uint32_t runs)
    {
        NORMANS_UNROLL
        for (int n = 0; n < int(N); ++n) {
            if (uint32_t(4 * n) >= runs) return;
            const __m256i bytes = _mm512_maskz_cvtepi16_epi8(~__mmask32(0), x.v[n]);
            if (to.whole) {
                _mm256_storeu_si256(static_cast<__m256i*>(untyped(to[4 * n])), bytes);
            } else {
                const uint32_t mine = runs - uint32_t(4 * n);
                const __m128i low = _mm256_castsi256_si128(bytes);
                const __m128i high = _mm256_extracti128_si256(bytes, 1);
                store_64(to[4 * n], low);
                if (mine > 1) store_64(to[4 * n + 1], _mm_unpackhi_epi64(low, low));
                if (mine > 2) store_64(to[4 * n + 2], high);
                if (mine > 3) store_64(to[4 * n + 3], _mm_unpackhi_epi64(high, high));
            }
        }
    }
    static NORMANS_INLINE words load(const uint16_t* from)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_loadu_si512(from + 32 * i); });
    }
    static NORMANS_INLINE void store(uint16_t* to, const words& x)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(N); ++i) _mm512_storeu_si512(to + 32 * i, x.v[i]);
    }
    static NORMANS_INLINE floats load(const float* from)
    {
        return floats([&](int i) NORMANS_LAMBDA { return half_of(from + i / 2 * 32, i % 2); });
    }
    static NORMANS_INLINE void store(uint32_t* to, const ints& x)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(2 * N); ++i) {
            const __m512i low = x.v[i / 2 * 2], high = x.v[i / 2 * 2 + 1];
            const __m512i both = i % 2 == 0 ? _mm512_maskz_shuffle_i32x4(every, low, high, 0x44)
                                            : _mm512_maskz_shuffle_i32x4(every, low, high, 0xee);
            _mm512_storeu_si512(to + 16 * i, _mm512_maskz_shuffle_i32x4(every, both, both, 0xd8));
        }
    }
    static NORMANS_INLINE ints load(const uint32_t* from)
    {
        return bits(load(reinterpret_cast<const float*>(from)));
    }
    /// What load() made, kept in its own order: `lanes` floats.
    static NORMANS_INLINE floats load_kept(const float* from)
    {
        return floats([&](int i) NORMANS_LAMBDA { return _mm512_loadu_ps(from + 16 * i); });
    }
    static NORMANS_INLINE void keep(float* to, const floats& x)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(2 * N); ++i) _mm512_storeu_ps(to + 16 * i, x.v[i]);
    }

    // Words.

    static NORMANS_INLINE words set(uint32_t x)
    {
        return words([&](int) NORMANS_LAMBDA { return _mm512_set1_epi16(short(x)); });
    }
    static NORMANS_INLINE words add(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_add_epi16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words sub(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_sub_epi16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words sub_saturated(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_subs_epu16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words mul_low(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_mullo_epi16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words mul_high(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_mulhi_epu16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words both(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_and_si512(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words either(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_or_si512(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words differ(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_xor_si512(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words without(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm512_maskz_andnot_epi32(every, y.v[i], x.v[i]);
        });
    }
    template <int Bits>
    static NORMANS_INLINE words shl(const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_slli_epi16(x.v[i], Bits); });
    }
    template <int Bits>
    static NORMANS_INLINE words shr(const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_srli_epi16(x.v[i], Bits); });
    }
    static NORMANS_INLINE words smaller(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_min_epu16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words larger(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_max_epu16(x.v[i], y.v[i]); });
    }
    /// (x * y + 2^14) >> 15, signed.
    static NORMANS_INLINE words mul_rounded(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_mulhrs_epi16(x.v[i], y.v[i]); });
    }
    /// (high << 1) | (low >> 15)
    static NORMANS_INLINE words join_shifted(const words& high, const words& low)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm512_shldi_epi16(high.v[i], low.v[i], 1);
        });
    }
    /// 1 << bits, bits < 16.
    static NORMANS_INLINE words power(const words& bits)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm512_sllv_epi16(_mm512_set1_epi16(1), bits.v[i]);
        });
    }
    /// x << bits and x >> bits; `power` is power(bits).
    static NORMANS_INLINE words shl(const words& x, const words& bits, const words&)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_sllv_epi16(x.v[i], bits.v[i]); });
    }
    static NORMANS_INLINE words shr(const words& x, const words& bits, const words&)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_srlv_epi16(x.v[i], bits.v[i]); });
    }

    // Masks.

    static NORMANS_INLINE mask less(const words& x, const words& y)  // unsigned
    {
        return mask([&](int i) NORMANS_LAMBDA { return _mm512_cmplt_epu16_mask(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE mask less_signed(const words& x, const words& y)
    {
        return mask([&](int i) NORMANS_LAMBDA { return _mm512_cmplt_epi16_mask(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE mask not_less(const words& x, const words& y)  // unsigned
    {
        return mask([&](int i) NORMANS_LAMBDA { return _mm512_cmpge_epu16_mask(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE mask equal(const words& x, const words& y)
    {
        return mask([&](int i) NORMANS_LAMBDA { return _mm512_cmpeq_epi16_mask(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE mask negative(const words& x)
    {
        return mask([&](int i) NORMANS_LAMBDA { return _mm512_movepi16_mask(x.v[i]); });
    }
    static NORMANS_INLINE words negate_where(const mask& m, const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm512_mask_sub_epi16(x.v[i], m.v[i], _mm512_setzero_si512(), x.v[i]);
        });
    }
    static NORMANS_INLINE words minus_or_plus_one(const mask& minus)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm512_mask_blend_epi16(minus.v[i], _mm512_set1_epi16(1),
                                           _mm512_set1_epi16(-1));
        });
    }
    static NORMANS_INLINE mask join(const mask& x, const mask& y)
    {
        return mask([&](int i) NORMANS_LAMBDA { return __mmask32(x.v[i] | y.v[i]); });
    }
    static NORMANS_INLINE mask differ_masks(const mask& x, const mask& y)
    {
        return mask([&](int i) NORMANS_LAMBDA { return __mmask32(x.v[i] ^ y.v[i]); });
    }
    static NORMANS_INLINE words select(const mask& m, const words& yes, const words& no)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm512_mask_blend_epi16(m.v[i], no.v[i], yes.v[i]);
        });
    }
    static NORMANS_INLINE words where(const mask& m, const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm512_maskz_mov_epi16(m.v[i], x.v[i]); });
    }
    static NORMANS_INLINE words where_not(const mask& m, const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm512_maskz_mov_epi16(__mmask32(~m.v[i]), x.v[i]);
        });
    }
    static NORMANS_INLINE lane_set to_bits(const mask& m)
    {
        lane_set out;
        NORMANS_UNROLL
        for (uint32_t n = 0; n < N; ++n) out.plane[n] = m.v[n];
        return out;
    }
    static NORMANS_INLINE mask from_bits(const lane_set& bits)
    {
        return mask([&](int i) NORMANS_LAMBDA { return __mmask32(bits.plane[i]); });
    }
    static NORMANS_INLINE bool any(const mask& m) { return to_bits(m).any(); }
    static NORMANS_INLINE bool any_zero(const words& x)
    {
        const __m512i least = reduce(x, [](__m512i a, __m512i b) NORMANS_LAMBDA {
            return _mm512_min_epu16(a, b);
        });
        return _mm512_testn_epi16_mask(least, least) != 0;
    }
    static NORMANS_INLINE bool any_above(const words& x, uint32_t limit)
    {
        const __m512i most = reduce(x, [](__m512i a, __m512i b) NORMANS_LAMBDA {
            return _mm512_max_epu16(a, b);
        });
        return _mm512_cmpgt_epu16_mask(most, _mm512_set1_epi16(short(limit))) != 0;
    }
    /// Of magnitudes: limit is positive.
    static NORMANS_INLINE bool any_above(const floats& x, float limit)
    {
        const ints magnitude = both(bits(x), set_int(0x7fffffff));
        const __m512i most = reduce(magnitude, [](__m512i a, __m512i b) NORMANS_LAMBDA {
            return _mm512_maskz_max_epi32(every, a, b);
        });
        const __m512i bound = _mm512_castps_si512(_mm512_set1_ps(limit));
        return _mm512_cmpgt_epi32_mask(most, bound) != 0;
    }

    // Tables.

    /// 16 words, looked up by index & 15.
    struct small_table {
        __m512i word;
        explicit small_table(const uint16_t* from)
            : word(_mm512_maskz_broadcast_i64x4(every_8, load_256(from)))
        {
        }
        NORMANS_INLINE words operator()(const words& index) const
        {
            return words([&](int i) NORMANS_LAMBDA {
                return _mm512_permutexvar_epi16(index.v[i], word);
            });
        }
    };

    /// 32 bytes, looked up by an index below 32.
    struct byte_table {
        __m512i word;
        explicit byte_table(const uint8_t* from) : word(_mm512_cvtepu8_epi16(load_256(from))) {}
        NORMANS_INLINE words operator()(const words& index) const
        {
            return words([&](int i) NORMANS_LAMBDA {
                return _mm512_permutexvar_epi16(index.v[i], word);
            });
        }
    };

    /// 32 words, looked up by an index below 32.
    struct word_table {
        __m512i word;
        explicit word_table(const uint16_t* from) : word(_mm512_loadu_si512(from)) {}
        NORMANS_INLINE words operator()(const words& index) const
        {
            return words([&](int i) NORMANS_LAMBDA {
                return _mm512_permutexvar_epi16(index.v[i], word);
            });
        }
    };

    /// A function of 32 straight pieces over signed words x, first piece at x = 0:
    /// base[x >> 11] + (low 11 bits of x) * rise[x >> 11] / 2^11.
    struct pieces {
        __m512i base, rise;
        pieces(const uint16_t* base_from, const uint16_t* rise_from)
            : base(_mm512_loadu_si512(base_from)), rise(_mm512_loadu_si512(rise_from))
        {
        }
        NORMANS_INLINE words operator()(const words& x) const
        {
            return words([&](int i) NORMANS_LAMBDA {
                const __m512i index = _mm512_srli_epi16(x.v[i], 11);
                const __m512i step = _mm512_mulhi_epu16(_mm512_slli_epi16(x.v[i], 5),
                                                        _mm512_permutexvar_epi16(index, rise));
                return _mm512_add_epi16(_mm512_permutexvar_epi16(index, base), step);
            });
        }
    };

    // Floats and what lies between them and words.

    static NORMANS_INLINE floats set_float(float x)
    {
        return floats([&](int) NORMANS_LAMBDA { return _mm512_set1_ps(x); });
    }
    /// One value for each run of eight lanes.
    static NORMANS_INLINE floats spread(const float* value)
    {
        const __m512i run = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        return floats([&](int i) NORMANS_LAMBDA {
            return _mm512_maskz_permutexvar_ps(every,
                run, _mm512_castps128_ps512(_mm_loadu_ps(value + i / 2 * 4)));
        });
    }
    static NORMANS_INLINE floats mul(const floats& x, const floats& y)
    {
        return floats([&](int i) NORMANS_LAMBDA { return _mm512_mul_ps(x.v[i], y.v[i]); });
    }
    /// Of what keep() left.
    static NORMANS_INLINE floats mul(const float* x, const float* y)
    {
        return floats([&](int i) NORMANS_LAMBDA {
            return _mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), _mm512_loadu_ps(y + 16 * i));
        });
    }
    static NORMANS_INLINE floats fma(const floats& x, const floats& y, const floats& z)
    {
        return floats([&](int i) NORMANS_LAMBDA {
            return _mm512_fmadd_ps(x.v[i], y.v[i], z.v[i]);
        });
    }
    static NORMANS_INLINE floats reciprocal(const floats& x)  // 14 bits
    {
        return floats([&](int i) NORMANS_LAMBDA { return _mm512_maskz_rcp14_ps(every, x.v[i]); });
    }
    static NORMANS_INLINE ints bits(const floats& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm512_castps_si512(x.v[i]); });
    }
    static NORMANS_INLINE floats as_floats(const ints& x)
    {
        return floats([&](int i) NORMANS_LAMBDA { return _mm512_castsi512_ps(x.v[i]); });
    }
    static NORMANS_INLINE floats to_floats(const ints& x)
    {
        return floats([&](int i) NORMANS_LAMBDA {
            return _mm512_maskz_cvtepi32_ps(every, x.v[i]);
        });
    }
    static NORMANS_INLINE ints truncate(const floats& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm512_maskz_cvttps_epi32(every, x.v[i]); });
    }
    static NORMANS_INLINE ints set_int(uint32_t x)
    {
        return ints([&](int) NORMANS_LAMBDA { return _mm512_set1_epi32(int(x)); });
    }
    static NORMANS_INLINE ints add(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm512_add_epi32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE ints sub(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm512_sub_epi32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE ints both(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm512_and_si512(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE ints select(const ints& m, const ints& yes, const ints& no)
    {
        return ints([&](int i) NORMANS_LAMBDA {
            return _mm512_ternarylogic_epi32(m.v[i], yes.v[i], no.v[i], 0xca);
        });
    }
    template <int Bits>
    static NORMANS_INLINE ints shl(const ints& x)
    {
        return ints([&](int i) NORMANS_LAMBDA {
            return _mm512_maskz_slli_epi32(every, x.v[i], Bits);
        });
    }
    template <int Bits>
    static NORMANS_INLINE ints shr(const ints& x)
    {
        return ints([&](int i) NORMANS_LAMBDA {
            return _mm512_maskz_srli_epi32(every, x.v[i], Bits);
        });
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
            return i % 2 == 0 ? _mm512_unpacklo_epi16(low.v[i / 2], high.v[i / 2])
                              : _mm512_unpackhi_epi16(low.v[i / 2], high.v[i / 2]);
        });
    }
    static NORMANS_INLINE ints widen_mask(const mask& m)
    {
        const words all =
            words([&](int i) NORMANS_LAMBDA { return _mm512_movm_epi16(m.v[i]); });
        return interleave(all, all);
    }
    /// The high half of each int.
    static NORMANS_INLINE words high_words(const ints& x) { return narrow(shr<16>(x)); }
    static NORMANS_INLINE words high_words(const floats& x) { return high_words(bits(x)); }
    /// Ints below 2^16.
    static NORMANS_INLINE words narrow(const ints& x)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm512_packus_epi32(x.v[2 * i], x.v[2 * i + 1]);
        });
    }

    // The model's arithmetic.

    /// fma(mean, a, b), rounded once.
    static NORMANS_INLINE floats map_means(const floats& mean, const float* a, const float* b)
    {
        return floats([&](int i) NORMANS_LAMBDA {
            return _mm512_fmadd_ps(mean.v[i], _mm512_loadu_ps(a + 16 * i),
                                   _mm512_loadu_ps(b + 16 * i));
        });
    }
    /// fma(edge, slope, -product), rounded once and then to an integer, clamped to 16 bits signed.
    /// What lies beyond 2^31 must be clamped first: the conversion does not saturate upward.
    template <bool Clamp>
    static NORMANS_INLINE words round_z(const floats& edge, const floats& slope,
                                        const floats& product)
    {
        const auto at = [&](int i) NORMANS_LAMBDA {
            const __m512 z = _mm512_fmsub_ps(edge.v[i], slope.v[i], product.v[i]);
            if constexpr (!Clamp) return _mm512_maskz_cvtps_epi32(every, z);
            const __m512 most = _mm512_set1_ps(32767.0f);
            return _mm512_maskz_cvtps_epi32(every, _mm512_maskz_min_ps(every, z, most));
        };
        return words([&](int i) NORMANS_LAMBDA {
            return _mm512_packs_epi32(at(2 * i), at(2 * i + 1));
        });
    }
    /// slope8[index & 7] - ((index >> 3) << 23), as floats.
    static NORMANS_INLINE floats slopes(const words& index, const uint32_t* slope8)
    {
        const __m512i table = _mm512_maskz_broadcast_i64x4(every_8, load_256(slope8));
        const ints k = widen(index);
        return as_floats(ints([&](int i) NORMANS_LAMBDA {
            const __m512i octave = _mm512_maskz_srli_epi32(every, k.v[i], 3);
            return _mm512_sub_epi32(_mm512_maskz_permutexvar_epi32(every, k.v[i], table),
                                    _mm512_maskz_slli_epi32(every, octave, 23));
        }));
    }
#pragma GCC diagnostic push  // of g++'s own macro at -O0
#pragma GCC diagnostic ignored "-Wsign-conversion"
    static NORMANS_INLINE floats gather(const float* table, const words& index)
    {
        const ints at = widen(index);
        return floats([&](int i) NORMANS_LAMBDA {
            return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), every, at.v[i], table, 4);
        });
    }
#pragma GCC diagnostic pop
    /// high << 16 | low divided by freq: the quotient or one less. The dividend is below
    /// freq * 2^16, freq in [1, 2^15]. vrcp14ps is within 2^-14 (the instruction's bound), so one
    /// Newton step leaves 2^-28, aimed low by 2^-21; conversion, product and step round by 2^-24
    /// each. Never above the quotient, and below it by less than 2^16 * 2^-20 = 2^-4.
    static NORMANS_INLINE words quotient(const words& high, const words& low, const words& freq)
    {
        const floats divisor = to_floats(widen(freq)), dividend = to_floats(interleave(low, high));
        return narrow(ints([&](int i) NORMANS_LAMBDA {
            return _mm512_maskz_cvttps_epi32(every, _mm512_mul_ps(
                dividend.v[i],
                below_reciprocal(divisor.v[i], _mm512_maskz_rcp14_ps(every, divisor.v[i]))));
        }));
    }
    /// The Newton step of quotient(): apart for the test that disturbs the estimate.
    static NORMANS_INLINE __m512 below_reciprocal(__m512 divisor, __m512 estimate)
    {
        const __m512 one = _mm512_set1_ps(1.0f - 0x1p-21f);
        return _mm512_fmadd_ps(estimate, _mm512_fnmadd_ps(divisor, estimate, one), estimate);
    }
    /// Sums over pairs of neighbouring lanes.
    using squares = words;
    static NORMANS_INLINE squares no_squares() { return set(0); }
    /// |x| <= 2^13
    static NORMANS_INLINE squares add_squares(const squares& sum, const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm512_add_epi32(sum.v[i], _mm512_madd_epi16(x.v[i], x.v[i]));
        });
    }
    static NORMANS_INLINE void store_squares(uint32_t* to, const squares& x)  // lanes / 2 of them
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(N); ++i) _mm512_storeu_si512(to + 16 * i, x.v[i]);
    }

    // Words of the stream: a reader or writer for every `each` lanes.

    /// The next words of the readers, one for each set lane in ascending order, 0 elsewhere. Every
    /// reader holds `each` words.
    static NORMANS_INLINE words take(word_reader* readers, uint32_t each, const mask& m)
    {
        if (each == 32)
            return words([&](int i) NORMANS_LAMBDA {
                const uint8_t* const from = readers[i].next;
                readers[i].next = from + 2 * _mm_popcnt_u32(m.v[i]);
                return _mm512_maskz_expand_epi16(m.v[i], _mm512_loadu_si512(from));
            });
        if (each == 16)
            return words([&](int i) NORMANS_LAMBDA {
                return _mm512_maskz_inserti64x4(every_8,
                    _mm512_castsi256_si512(expand_16(readers[2 * i], uint32_t(m.v[i]) & 0xffff)),
                    expand_16(readers[2 * i + 1], uint32_t(m.v[i]) >> 16), 1);
            });
        return words([&](int i) NORMANS_LAMBDA {
            const uint32_t wanted = m.v[i];
            return four(expand_8(readers[4 * i], wanted & 255),
                        expand_8(readers[4 * i + 1], wanted >> 8 & 255),
                        expand_8(readers[4 * i + 2], wanted >> 16 & 255),
                        expand_8(readers[4 * i + 3], wanted >> 24));
        });
    }
    /// Writes the set lanes, so that they ascend in memory. Every writer holds `each` words.
    static NORMANS_INLINE void put(word_writer* writers, uint32_t each, const mask& m,
                                   const words& x)
    {
        NORMANS_UNROLL
        for (int n = 0; n < int(N); ++n) {
            const uint32_t given = m.v[n];
            if (each == 32) {
                compress(writers[n], given, x.v[n]);
            } else if (each == 16) {
                compress(writers[2 * n], given & 0xffff, x.v[n]);
                compress(writers[2 * n + 1], given & 0xffff0000u, x.v[n]);
            } else {
                for (int i = 0; i < 4; ++i)
                    compress(writers[4 * n + i], given & (uint32_t(255) << 8 * i), x.v[n]);
            }
        }
    }

private:
    static NORMANS_INLINE void* untyped(void* to) { return to; }
    static NORMANS_INLINE __m128i load_64(const void* from)
    {
        return _mm_loadl_epi64(static_cast<const __m128i*>(from));
    }
    static NORMANS_INLINE __m128i load_128(const void* from)
    {
        return _mm_loadu_si128(static_cast<const __m128i*>(from));
    }
    static NORMANS_INLINE __m256i load_256(const void* from)
    {
        return _mm256_loadu_si256(static_cast<const __m256i*>(from));
    }
    static NORMANS_INLINE void store_64(void* to, __m128i x)
    {
        _mm_storel_epi64(static_cast<__m128i*>(to), x);
    }
    static NORMANS_INLINE void store_128(void* to, __m128i x)
    {
        _mm_storeu_si128(static_cast<__m128i*>(to), x);
    }
    template <int Index>
    static NORMANS_INLINE __m128i quarter(__m512i x)
    {
        return _mm512_maskz_extracti32x4_epi32(every_8, x, Index);
    }
    static NORMANS_INLINE __m512i four(__m128i a, __m128i b, __m128i c, __m128i d)
    {
        const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
        const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(c), d, 1);
        return _mm512_maskz_inserti64x4(every_8, _mm512_castsi256_si512(low), high, 1);
    }
    // The lower or the upper four of every eight of 32 floats.
    static NORMANS_INLINE __m512 half_of(const float* from, int upper)
    {
        const __m512 first = _mm512_loadu_ps(from), second = _mm512_loadu_ps(from + 16);
        return upper == 0 ? _mm512_maskz_shuffle_f32x4(every, first, second, 0x88)
                          : _mm512_maskz_shuffle_f32x4(every, first, second, 0xdd);
    }
    static NORMANS_INLINE __m256i expand_16(word_reader& reader, uint32_t wanted)
    {
        const uint8_t* const from = reader.next;
        reader.next = from + 2 * _mm_popcnt_u32(wanted);
        return _mm256_maskz_expand_epi16(__mmask16(wanted), load_256(from));
    }
    static NORMANS_INLINE __m128i expand_8(word_reader& reader, uint32_t wanted)
    {
        const uint8_t* const from = reader.next;
        reader.next = from + 2 * _mm_popcnt_u32(wanted);
        return _mm_maskz_expand_epi16(__mmask8(wanted), load_128(from));
    }
    // In a register, then one store: compressing to memory is slow.
    static NORMANS_INLINE void compress(word_writer& writer, uint32_t given, __m512i x)
    {
        const uint32_t count = uint32_t(_mm_popcnt_u32(given));
        writer.next -= 2 * count;
        const uint32_t stored = uint32_t((uint64_t(1) << count) - 1);
        _mm512_mask_storeu_epi16(writer.next, stored, _mm512_mask_compress_epi16(x, given, x));
    }
    template <class Pack, class Function>
    static NORMANS_INLINE __m512i reduce(const Pack& x, const Function& f)
    {
        return reduce(x, f, std::make_integer_sequence<int, Pack::Count - 1>{});
    }
    template <class Pack, class Function, int... I>
    static NORMANS_INLINE __m512i reduce(const Pack& x, const Function& f,
                                         std::integer_sequence<int, I...>)
    {
        __m512i all = x.v[0];
        ((all = f(all, x.v[I + 1])), ...);
        return all;
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
