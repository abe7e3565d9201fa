#pragma once
// Planes of 32 lanes in AVX2 + FMA registers. Operations only; what they are used for is
// plane_lanes.hpp's business. Include it only where the compiler targets AVX2 and FMA.
// Lanes are ascending in `words`. `floats` and `ints` hold four registers a plane, as unpacking
// gives them: lanes 0-3 and 8-11, then 4-7 and 12-15, then the same from lane 16 on.

#include <immintrin.h>

#include <cstring>

#include "../core/stream.hpp"
#include "float_mode.hpp"
#include "lane_places.hpp"
#include "register_pack.hpp"
#include "word_shuffles.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template <uint32_t N>
struct avx2_planes {
    static constexpr uint32_t planes = N;
    static constexpr uint32_t lanes = 32 * N;
    static constexpr bool fast_tables = false;  // lookups take a dozen instructions
    static constexpr bool few_registers = true;
    using float_mode = x86_float_mode;
    using lane_set = lane_bits<N>;
    struct integer_register {
        using type = __m256i;
    };
    struct float_register {
        using type = __m256;
    };
    using words = register_pack<integer_register, 2 * N>;
    using floats = register_pack<float_register, 4 * N>;
    using ints = register_pack<integer_register, 4 * N>;
    using mask = words;  // all ones or zero per lane

    // Memory. Places say where each run of eight lanes lies.

    static NORMANS_INLINE words load_words(const lane_places<const uint16_t>& from)
    {
        if (from.whole)
            return words([&](int i)
                             NORMANS_LAMBDA { return _mm256_loadu_si256(as_256(from[2 * i])); });
        return words([&](int i) NORMANS_LAMBDA {
            return _mm256_inserti128_si256(
                _mm256_castsi128_si256(load_128(from[2 * i])), load_128(from[2 * i + 1]),
                1);
        });
    }
    static NORMANS_INLINE words load_words(const lane_places<const uint8_t>& from)
    {
        if (from.whole)
            return words([&](int i) NORMANS_LAMBDA {
                return _mm256_cvtepu8_epi16(load_128(from[2 * i]));
            });
        return words([&](int i) NORMANS_LAMBDA {
            return _mm256_cvtepu8_epi16(
                _mm_unpacklo_epi64(_mm_loadl_epi64(as_128(from[2 * i])),
                                   _mm_loadl_epi64(as_128(from[2 * i + 1]))));
        });
    }
    static NORMANS_INLINE floats load_floats(const lane_places<const float>& from)
    {
        return floats([&](int i) NORMANS_LAMBDA {
            const int first = i / 2 * 2, offset = i % 2 * 4;
            return _mm256_insertf128_ps(
                _mm256_castps128_ps256(_mm_loadu_ps(from[first] + offset)),
                _mm_loadu_ps(from[first + 1] + offset), 1);
        });
    }
    /// The first `runs` runs of eight lanes.
    static NORMANS_INLINE void store_words(const lane_places<uint16_t>& to, const words& x,
                                           uint32_t runs)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(4 * N); ++i) {
            if (uint32_t(i) >= runs) return;
            const __m256i half = x.v[i / 2];
            _mm_storeu_si128(as_128(to[i]), i % 2 == 0 ? _mm256_castsi256_si128(half)
                                                      : _mm256_extracti128_si256(half, 1));
        }
    }
    static NORMANS_INLINE void store_words(const lane_places<uint8_t>& to, const words& x,
                                           uint32_t runs)
    {
        NORMANS_UNROLL
        for (int n = 0; n < int(N); ++n) {
            if (uint32_t(4 * n) >= runs) return;
            const __m256i bytes = _mm256_permute4x64_epi64(packed(x, n), 0xd8);
            if (to.whole) {
                _mm256_storeu_si256(as_256(to[4 * n]), bytes);
            } else {
                const uint32_t mine = runs - uint32_t(4 * n);
                const __m128i low = _mm256_castsi256_si128(bytes);
                const __m128i high = _mm256_extracti128_si256(bytes, 1);
                _mm_storel_epi64(as_128(to[4 * n]), low);
                if (mine > 1) _mm_storeh_pd(as_double(to[4 * n + 1]), _mm_castsi128_pd(low));
                if (mine > 2) _mm_storel_epi64(as_128(to[4 * n + 2]), high);
                if (mine > 3) _mm_storeh_pd(as_double(to[4 * n + 3]), _mm_castsi128_pd(high));
            }
        }
    }
    static NORMANS_INLINE words load(const uint16_t* from)
    {
        return words([&](int i)
                         NORMANS_LAMBDA { return _mm256_loadu_si256(as_256(from + 16 * i)); });
    }
    static NORMANS_INLINE void store(uint16_t* to, const words& x)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(2 * N); ++i) _mm256_storeu_si256(as_256(to + 16 * i), x.v[i]);
    }
    static NORMANS_INLINE floats load(const float* from)
    {
        return floats([&](int i) NORMANS_LAMBDA {
            const float* const first = from + i / 2 * 16 + i % 2 * 4;
            return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(first)),
                                        _mm_loadu_ps(first + 8), 1);
        });
    }
    static NORMANS_INLINE void store(uint32_t* to, const ints& x)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(4 * N); ++i) {
            const int lane = i / 2 * 16 + i % 2 * 4;
            _mm_storeu_si128(as_128(to + lane), _mm256_castsi256_si128(x.v[i]));
            _mm_storeu_si128(as_128(to + lane + 8), _mm256_extracti128_si256(x.v[i], 1));
        }
    }
    static NORMANS_INLINE ints load(const uint32_t* from)
    {
        return bits(load(reinterpret_cast<const float*>(from)));
    }
    /// What load() made, kept in its own order: 32 floats.
    static NORMANS_INLINE floats load_kept(const float* from)
    {
        return floats([&](int i) NORMANS_LAMBDA { return _mm256_loadu_ps(from + 8 * i); });
    }
    static NORMANS_INLINE void keep(float* to, const floats& x)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(4 * N); ++i) _mm256_storeu_ps(to + 8 * i, x.v[i]);
    }

    // Words.

    static NORMANS_INLINE words set(uint32_t x)
    {
        return words([&](int) NORMANS_LAMBDA { return _mm256_set1_epi16(short(x)); });
    }
    static NORMANS_INLINE words add(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_add_epi16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words sub(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_sub_epi16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words sub_saturated(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_subs_epu16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words mul_low(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_mullo_epi16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words mul_high(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_mulhi_epu16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words both(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_and_si256(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words either(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_or_si256(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words differ(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_xor_si256(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words without(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_andnot_si256(y.v[i], x.v[i]); });
    }
    template <int Bits>
    static NORMANS_INLINE words shl(const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_slli_epi16(x.v[i], Bits); });
    }
    template <int Bits>
    static NORMANS_INLINE words shr(const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_srli_epi16(x.v[i], Bits); });
    }
    static NORMANS_INLINE words smaller(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_min_epu16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words larger(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_max_epu16(x.v[i], y.v[i]); });
    }
    /// (x * y + 2^14) >> 15, signed.
    static NORMANS_INLINE words mul_rounded(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_mulhrs_epi16(x.v[i], y.v[i]); });
    }
    /// (high << 1) | (low >> 15)
    static NORMANS_INLINE words join_shifted(const words& high, const words& low)
    {
        return either(shl<1>(high), shr<15>(low));
    }
    /// 1 << bits, bits < 16.
    static NORMANS_INLINE words power(const words& bits)
    {
        const __m256i low = twice(_mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0,
                                                0));
        const __m256i high = twice(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64,
                                                 -128));
        return words([&](int i) NORMANS_LAMBDA {
            const __m256i in_low = _mm256_or_si256(bits.v[i], _mm256_set1_epi16(short(0x8000)));
            const __m256i in_high =
                _mm256_or_si256(_mm256_slli_epi16(bits.v[i], 8), _mm256_set1_epi16(0x80));
            return _mm256_or_si256(_mm256_shuffle_epi8(low, in_low),
                                   _mm256_shuffle_epi8(high, in_high));
        });
    }
    /// x << bits and x >> bits; `power` is power(bits), bits < 9.
    static NORMANS_INLINE words shl(const words& x, const words&, const words& power)
    {
        return mul_low(x, power);
    }
    static NORMANS_INLINE words shr(const words& x, const words& bits, const words&)
    {
        // 2^16 / 2^bits is no word where bits is 0: those lanes stay as they are.
        const words none = equal(bits, set(0));
        return select(none, x, mul_high(x, avx2_planes::power(sub(set(16), bits))));
    }

    // Masks.

    static NORMANS_INLINE mask less(const words& x, const words& y)  // unsigned
    {
        return words([&](int i) NORMANS_LAMBDA {
            const __m256i least = _mm256_min_epu16(x.v[i], y.v[i]);
            return _mm256_andnot_si256(_mm256_cmpeq_epi16(x.v[i], y.v[i]),
                                       _mm256_cmpeq_epi16(least, x.v[i]));
        });
    }
    static NORMANS_INLINE mask less_signed(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_cmpgt_epi16(y.v[i], x.v[i]); });
    }
    static NORMANS_INLINE mask not_less(const words& x, const words& y)  // unsigned
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm256_cmpeq_epi16(_mm256_max_epu16(x.v[i], y.v[i]), x.v[i]);
        });
    }
    static NORMANS_INLINE mask equal(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_cmpeq_epi16(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE mask negative(const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA { return _mm256_srai_epi16(x.v[i], 15); });
    }
    static NORMANS_INLINE words negate_where(const mask& m, const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm256_sub_epi16(_mm256_xor_si256(x.v[i], m.v[i]), m.v[i]);
        });
    }
    static NORMANS_INLINE words minus_or_plus_one(const mask& minus)
    {
        return either(minus, set(1));
    }
    static NORMANS_INLINE mask join(const mask& x, const mask& y) { return either(x, y); }
    static NORMANS_INLINE mask differ_masks(const mask& x, const mask& y) { return differ(x, y); }
    static NORMANS_INLINE words select(const mask& m, const words& yes, const words& no)
    {
        // Not by a blend: for a mask that it has seen packed, gcc makes a slow one of it.
        return either(both(m, yes), without(no, m));
    }
    static NORMANS_INLINE words where(const mask& m, const words& x) { return both(m, x); }
    static NORMANS_INLINE words where_not(const mask& m, const words& x) { return without(x, m); }
    static NORMANS_INLINE lane_set to_bits(const mask& m)
    {
        lane_set out;
        NORMANS_UNROLL
        for (int n = 0; n < int(N); ++n) {
            const __m256i bytes = _mm256_packs_epi16(m.v[2 * n], m.v[2 * n + 1]);
            out.plane[n] = uint32_t(_mm256_movemask_epi8(_mm256_permute4x64_epi64(bytes, 0xd8)));
        }
        return out;
    }
    static NORMANS_INLINE mask from_bits(const lane_set& bits)
    {
        const __m256i one = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048,
                                              4096, 8192, 16384, short(0x8000));
        return words([&](int i) NORMANS_LAMBDA {
            return _mm256_cmpeq_epi16(
                _mm256_and_si256(_mm256_set1_epi16(short(bits.plane[i / 2] >> (i % 2 * 16))), one),
                one);
        });
    }
    static NORMANS_INLINE bool any(const mask& m)
    {
        const __m256i all = reduce(m, [](__m256i x, __m256i y) NORMANS_LAMBDA {
            return _mm256_or_si256(x, y);
        });
        return !_mm256_testz_si256(all, all);
    }
    static NORMANS_INLINE bool any_zero(const words& x)
    {
        const __m256i least = reduce(x, [](__m256i a, __m256i b) NORMANS_LAMBDA {
            return _mm256_min_epu16(a, b);
        });
        return _mm256_movemask_epi8(_mm256_cmpeq_epi16(least, _mm256_setzero_si256())) != 0;
    }
    static NORMANS_INLINE bool any_above(const words& x, uint32_t limit)
    {
        const __m256i most = reduce(x, [](__m256i a, __m256i b) NORMANS_LAMBDA {
            return _mm256_max_epu16(a, b);
        });
        const __m256i over = _mm256_subs_epu16(most, _mm256_set1_epi16(short(limit)));
        return !_mm256_testz_si256(over, over);
    }
    /// Of magnitudes: limit is positive.
    static NORMANS_INLINE bool any_above(const floats& x, float limit)
    {
        const ints magnitude = both(bits(x), set_int(0x7fffffff));
        const __m256i most = reduce(magnitude, [](__m256i a, __m256i b) NORMANS_LAMBDA {
            return _mm256_max_epi32(a, b);
        });
        const __m256i bound = _mm256_castps_si256(_mm256_set1_ps(limit));
        const __m256i over = _mm256_cmpgt_epi32(most, bound);
        return !_mm256_testz_si256(over, over);
    }

    // Tables.

    /// 16 words, looked up by index & 15 (index < 128).
    struct small_table {
        __m256i low, high;
        explicit small_table(const uint16_t* word)
        {
            split_16(word, low, high);
        }
        NORMANS_INLINE words operator()(const words& index) const
        {
            return by_plane([&](int plane) NORMANS_LAMBDA {
                const __m256i at = packed(index, plane);
                return joined(_mm256_shuffle_epi8(low, at), _mm256_shuffle_epi8(high, at));
            });
        }
    };

    /// 32 bytes, looked up by an index below 32.
    struct byte_table {
        __m256i half[2];
        explicit byte_table(const uint8_t* byte)
            : half{twice(load_128(byte)), twice(load_128(byte + 16))}
        {
        }
        NORMANS_INLINE words operator()(const words& index) const
        {
            return by_plane([&](int plane) NORMANS_LAMBDA {
                return joined(look_up(half, packed(index, plane)), _mm256_setzero_si256());
            });
        }
    };

    /// 32 words, looked up by an index below 32.
    struct word_table {
        __m256i low[2], high[2];
        explicit word_table(const uint16_t* word) { split_32(word, low, high); }
        NORMANS_INLINE words operator()(const words& index) const
        {
            return by_plane([&](int plane) NORMANS_LAMBDA {
                const __m256i at = packed(index, plane);
                return joined(look_up(low, at), look_up(high, at));
            });
        }
    };

    /// A function of 32 straight pieces over signed words x, first piece at x = 0:
    /// base[x >> 11] + (low 11 bits of x) * rise[x >> 11] / 2^11.
    struct pieces {
        __m256i base_low[2], base_high[2], rise_low[2], rise_high[2];
        pieces(const uint16_t* base, const uint16_t* rise)
        {
            split_32(base, base_low, base_high);
            split_32(rise, rise_low, rise_high);
        }
        NORMANS_INLINE words operator()(const words& x) const
        {
            const words index = shr<11>(x), low = shl<5>(x);
            return by_plane([&](int plane) NORMANS_LAMBDA {
                const __m256i at = packed(index, plane);
                const two first = joined(look_up(base_low, at), look_up(base_high, at));
                const two rise = joined(look_up(rise_low, at), look_up(rise_high, at));
                const __m256i step_low = _mm256_mulhi_epu16(low.v[2 * plane], rise.low);
                const __m256i step_high = _mm256_mulhi_epu16(low.v[2 * plane + 1], rise.high);
                return two{_mm256_add_epi16(first.low, step_low),
                           _mm256_add_epi16(first.high, step_high)};
            });
        }
    };

    // Floats and what lies between them and words.

    static NORMANS_INLINE floats set_float(float x)
    {
        return floats([&](int) NORMANS_LAMBDA { return _mm256_set1_ps(x); });
    }
    /// One value for each run of eight lanes.
    static NORMANS_INLINE floats spread(const float* value)
    {
        return floats([&](int i) NORMANS_LAMBDA {
            return _mm256_insertf128_ps(_mm256_set1_ps(value[i / 2 * 2]),
                                        _mm_set1_ps(value[i / 2 * 2 + 1]), 1);
        });
    }
    static NORMANS_INLINE floats mul(const floats& x, const floats& y)
    {
        return floats([&](int i) NORMANS_LAMBDA { return _mm256_mul_ps(x.v[i], y.v[i]); });
    }
    /// Of what keep() left.
    static NORMANS_INLINE floats mul(const float* x, const float* y)
    {
        return floats([&](int i) NORMANS_LAMBDA {
            return _mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_loadu_ps(y + 8 * i));
        });
    }
    static NORMANS_INLINE floats fma(const floats& x, const floats& y, const floats& z)
    {
        return floats([&](int i)
                          NORMANS_LAMBDA { return _mm256_fmadd_ps(x.v[i], y.v[i], z.v[i]); });
    }
    static NORMANS_INLINE floats reciprocal(const floats& x)  // 12 bits
    {
        return floats([&](int i) NORMANS_LAMBDA { return _mm256_rcp_ps(x.v[i]); });
    }
    static NORMANS_INLINE ints bits(const floats& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm256_castps_si256(x.v[i]); });
    }
    static NORMANS_INLINE floats as_floats(const ints& x)
    {
        return floats([&](int i) NORMANS_LAMBDA { return _mm256_castsi256_ps(x.v[i]); });
    }
    static NORMANS_INLINE floats to_floats(const ints& x)
    {
        return floats([&](int i) NORMANS_LAMBDA { return _mm256_cvtepi32_ps(x.v[i]); });
    }
    static NORMANS_INLINE ints truncate(const floats& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm256_cvttps_epi32(x.v[i]); });
    }
    static NORMANS_INLINE ints set_int(uint32_t x)
    {
        return ints([&](int) NORMANS_LAMBDA { return _mm256_set1_epi32(int(x)); });
    }
    static NORMANS_INLINE ints add(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm256_add_epi32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE ints sub(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm256_sub_epi32(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE ints both(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm256_and_si256(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE ints select(const ints& m, const ints& yes, const ints& no)
    {
        return ints([&](int i)
                        NORMANS_LAMBDA { return _mm256_blendv_epi8(no.v[i], yes.v[i], m.v[i]); });
    }
    template <int Bits>
    static NORMANS_INLINE ints shl(const ints& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm256_slli_epi32(x.v[i], Bits); });
    }
    template <int Bits>
    static NORMANS_INLINE ints shr(const ints& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return _mm256_srli_epi32(x.v[i], Bits); });
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
            return i % 2 == 0 ? _mm256_unpacklo_epi16(low.v[i / 2], high.v[i / 2])
                              : _mm256_unpackhi_epi16(low.v[i / 2], high.v[i / 2]);
        });
    }
    static NORMANS_INLINE ints widen_mask(const mask& m) { return interleave(m, m); }
    /// The high half of each int.
    static NORMANS_INLINE words high_words(const ints& x)
    {
        const ints high = shr<16>(x);
        return words([&](int i) NORMANS_LAMBDA {
            return _mm256_packus_epi32(high.v[2 * i], high.v[2 * i + 1]);
        });
    }
    static NORMANS_INLINE words high_words(const floats& x) { return high_words(bits(x)); }
    /// Ints below 2^16.
    static NORMANS_INLINE words narrow(const ints& x)
    {
        return words(
            [&](int i) NORMANS_LAMBDA { return _mm256_packus_epi32(x.v[2 * i], x.v[2 * i + 1]); });
    }

    // The model's arithmetic.

    /// fma(mean, a, b), rounded once.
    static NORMANS_INLINE floats map_means(const floats& mean, const float* a, const float* b)
    {
        return floats([&](int i) NORMANS_LAMBDA {
            return _mm256_fmadd_ps(mean.v[i], _mm256_loadu_ps(a + 8 * i),
                                   _mm256_loadu_ps(b + 8 * i));
        });
    }
    /// fma(edge, slope, -product), rounded once and then to an integer, clamped to 16 bits signed.
    /// What lies beyond 2^31 must be clamped first: the conversion does not saturate upward.
    template <bool Clamp>
    static NORMANS_INLINE words round_z(const floats& edge, const floats& slope,
                                        const floats& product)
    {
        const auto at = [&](int i) NORMANS_LAMBDA {
            const __m256 z = _mm256_fmsub_ps(edge.v[i], slope.v[i], product.v[i]);
            return _mm256_cvtps_epi32(Clamp ? _mm256_min_ps(z, _mm256_set1_ps(32767.0f)) : z);
        };
        return words([&](int i)
                         NORMANS_LAMBDA { return _mm256_packs_epi32(at(2 * i), at(2 * i + 1)); });
    }
    /// slope8[index & 7] - ((index >> 3) << 23), as floats.
    static NORMANS_INLINE floats slopes(const words& index, const uint32_t* slope8)
    {
        const __m256i table = _mm256_loadu_si256(as_256(slope8));
        const ints k = widen(index);
        return as_floats(ints([&](int i) NORMANS_LAMBDA {
            return _mm256_sub_epi32(
                _mm256_permutevar8x32_epi32(table, k.v[i]),
                _mm256_slli_epi32(_mm256_srli_epi32(k.v[i], 3), 23));
        }));
    }
    static NORMANS_INLINE floats gather(const float* table, const words& index)
    {
        const ints at = widen(index);
        return floats([&](int i) NORMANS_LAMBDA { return _mm256_i32gather_ps(table, at.v[i], 4); });
    }
    /// high << 16 | low divided by freq: the quotient or one less. The dividend is below
    /// freq * 2^16, freq in [1, 2^15]. rcpps is within 1.5 * 2^-12 (the instruction's bound), so
    /// one Newton step leaves 2^-22.8, aimed low by 2^-21; conversion, product and step round by
    /// 2^-24 each. Never above the quotient, and below it by less than 2^16 * 2^-20 = 2^-4.
    static NORMANS_INLINE words quotient(const words& high, const words& low, const words& freq)
    {
        const floats divisor = to_floats(widen(freq)), dividend = to_floats(interleave(low, high));
        return narrow(ints([&](int i) NORMANS_LAMBDA {
            return _mm256_cvttps_epi32(
                _mm256_mul_ps(dividend.v[i], below_reciprocal(divisor.v[i],
                                                              _mm256_rcp_ps(divisor.v[i]))));
        }));
    }
    /// The Newton step of quotient(): apart for the test that disturbs the estimate.
    static NORMANS_INLINE __m256 below_reciprocal(__m256 divisor, __m256 estimate)
    {
        const __m256 one = _mm256_set1_ps(1.0f - 0x1p-21f);
        return _mm256_fmadd_ps(estimate, _mm256_fnmadd_ps(divisor, estimate, one), estimate);
    }
    /// Sums over pairs of neighbouring lanes.
    using squares = words;
    static NORMANS_INLINE squares no_squares() { return set(0); }
    /// |x| <= 2^13
    static NORMANS_INLINE squares add_squares(const squares& sum, const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA {
            return _mm256_add_epi32(sum.v[i], _mm256_madd_epi16(x.v[i], x.v[i]));
        });
    }
    static NORMANS_INLINE void store_squares(uint32_t* to, const squares& x)  // lanes / 2 of them
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(2 * N); ++i) _mm256_storeu_si256(as_256(to + 8 * i), x.v[i]);
    }

    // Words of the stream: a reader or writer for every `each` lanes.

    /// The next words of the readers, one for each set lane in ascending order, 0 elsewhere. Every
    /// reader holds `each` words.
    static NORMANS_INLINE words take(word_reader* readers, uint32_t each, const mask& m)
    {
        const lane_set wanted = to_bits(m);
        __m128i run[4 * N];
        NORMANS_UNROLL
        for (uint32_t n = 0; n < N; ++n) {
            if (each == 32) {
                const uint8_t* from = readers[n].next;
                NORMANS_UNROLL
                for (uint32_t i = 0; i < 4; ++i)
                    from = expand(from, row_of(wanted.plane[n], i), run[4 * n + i]);
                readers[n].next = from;
            } else {
                NORMANS_UNROLL
                for (uint32_t i = 0; i < 4; ++i) {
                    const uint8_t*& from = readers[(32 * n + 8 * i) / each].next;
                    from = expand(from, row_of(wanted.plane[n], i), run[4 * n + i]);
                }
            }
        }
        return words([&](int i) NORMANS_LAMBDA {
            return _mm256_inserti128_si256(_mm256_castsi128_si256(run[2 * i]), run[2 * i + 1], 1);
        });
    }
    /// Writes the set lanes, so that they ascend in memory. Every writer holds `each` words; what
    /// lies below them is free.
    static NORMANS_INLINE void put(word_writer* writers, uint32_t each, const mask& m,
                                   const words& x)
    {
        const lane_set given = to_bits(m);
        NORMANS_UNROLL
        for (uint32_t n = 0; n < N; ++n) {
            const __m128i run[4] = {_mm256_castsi256_si128(x.v[2 * n]),
                                    _mm256_extracti128_si256(x.v[2 * n], 1),
                                    _mm256_castsi256_si128(x.v[2 * n + 1]),
                                    _mm256_extracti128_si256(x.v[2 * n + 1], 1)};
            if (each == 32) {
                uint8_t* to = writers[n].next;
                NORMANS_UNROLL
                for (uint32_t i = 0; i < 4; ++i)
                    to = compress(to, row_of(given.plane[n], 3 - i), run[3 - i]);
                writers[n].next = to;
            } else {
                NORMANS_UNROLL
                for (uint32_t i = 0; i < 4; ++i) {
                    uint8_t*& to = writers[(32 * n + 24 - 8 * i) / each].next;
                    to = compress(to, row_of(given.plane[n], 3 - i), run[3 - i]);
                }
            }
        }
    }

private:
    // A word value made plane by plane: `f(plane)` gives its two registers.
    struct two {
        __m256i low, high;
    };
    template <class Function, int... P>
    static NORMANS_INLINE words by_plane(const Function& f, std::integer_sequence<int, P...>)
    {
        const two plane[] = {f(P)...};
        return words([&](int i) NORMANS_LAMBDA {
            return i % 2 == 0 ? plane[i / 2].low : plane[i / 2].high;
        });
    }
    template <class Function>
    static NORMANS_INLINE words by_plane(const Function& f)
    {
        return by_plane(f, std::make_integer_sequence<int, int(N)>{});
    }
    template <class Pack, class Function>
    static NORMANS_INLINE __m256i reduce(const Pack& x, const Function& f)
    {
        return reduce(x, f, std::make_integer_sequence<int, Pack::Count - 1>{});
    }
    template <class Pack, class Function, int... I>
    static NORMANS_INLINE __m256i reduce(const Pack& x, const Function& f,
                                         std::integer_sequence<int, I...>)
    {
        __m256i all = x.v[0];
        ((all = f(all, x.v[I + 1])), ...);
        return all;
    }
    // The index words of a plane, packed to bytes.
    static NORMANS_INLINE __m256i packed(const words& x, int plane)
    {
        return _mm256_packus_epi16(x.v[2 * plane], x.v[2 * plane + 1]);
    }
    static NORMANS_INLINE const __m128i* as_128(const void* from)
    {
        return static_cast<const __m128i*>(from);
    }
    static __m128i* as_128(void* to) { return static_cast<__m128i*>(to); }
    static NORMANS_INLINE const __m256i* as_256(const void* from)
    {
        return static_cast<const __m256i*>(from);
    }
    static NORMANS_INLINE __m256i* as_256(void* to) { return static_cast<__m256i*>(to); }
    static NORMANS_INLINE double* as_double(void* to) { return static_cast<double*>(to); }
    static NORMANS_INLINE __m128i load_128(const void* from)
    {
        return _mm_loadu_si128(as_128(from));
    }
    static NORMANS_INLINE __m256i twice(__m128i x) { return _mm256_broadcastsi128_si256(x); }

    // Where a table of 16 bytes for each byte has that of byte `i` of `bits`; as many bits are set.
    static NORMANS_INLINE uint32_t row_of(uint32_t bits, uint32_t i)
    {
        return (i == 0 ? bits << 4 : bits >> (8 * i - 4)) & 0xff0;
    }
    static NORMANS_INLINE const uint8_t* expand(const uint8_t* from, uint32_t wanted, __m128i& run)
    {
        run = _mm_shuffle_epi8(load_128(from), load_128(word_shuffles.expand[0] + wanted));
        return from + 2 * size_t(uint32_t(_mm_popcnt_u32(wanted)));
    }
    static NORMANS_INLINE uint8_t* compress(uint8_t* to, uint32_t given, __m128i run)
    {
        _mm_storeu_si128(as_128(to - 16),
                         _mm_shuffle_epi8(run, load_128(word_shuffles.compress[0] + given)));
        return to - 2 * size_t(uint32_t(_mm_popcnt_u32(given)));
    }

    // The low and the high bytes of 16 words.
    static NORMANS_INLINE void split_16(const uint16_t* word, __m256i& low, __m256i& high)
    {
        const __m128i first = load_128(word), second = load_128(word + 8);
        const __m128i byte = _mm_set1_epi16(255);
        low = twice(_mm_packus_epi16(_mm_and_si128(first, byte), _mm_and_si128(second, byte)));
        high = twice(_mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8)));
    }

    static NORMANS_INLINE void split_32(const uint16_t* word, __m256i* low, __m256i* high)
    {
        for (int i = 0; i < 2; ++i) split_16(word + 16 * i, low[i], high[i]);
    }

    // pshufb zeroes where the index has its top bit set.
    static NORMANS_INLINE __m256i look_up(const __m256i* half, __m256i index)
    {
        const __m256i first = _mm256_add_epi8(index, _mm256_set1_epi8(0x70));
        const __m256i second = _mm256_sub_epi8(index, _mm256_set1_epi8(16));
        return _mm256_or_si256(_mm256_shuffle_epi8(half[0], first),
                               _mm256_shuffle_epi8(half[1], second));
    }
    // Packed bytes back to words.
    static NORMANS_INLINE two joined(__m256i low, __m256i high)
    {
        return {_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)};
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
