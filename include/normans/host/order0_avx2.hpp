#pragma once
// Eight lanes of a group for static tables in an AVX2 register. Operations only; what they are used
// for is order0_group.hpp's business. Include it only where the compiler targets AVX2.

#include <immintrin.h>

#include "../config.hpp"
#include "float_mode.hpp"
#include "word_shuffles.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

struct order0_avx2 {
    using float_mode = x86_float_mode;
    using eight = __m256i;
    using spread = __m256i;  // one value in all lanes
    using left_shift = __m128i;
    using right_shift = __m128i;
    struct masks {
        eight v[4];
    };

    static NORMANS_INLINE eight load(const uint32_t* from)
    {
        return _mm256_loadu_si256(static_cast<const __m256i*>(as_void(from)));
    }
    static NORMANS_INLINE void store(uint32_t* to, eight x)
    {
        _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to)), x);
    }
    static NORMANS_INLINE eight load_bytes(const uint8_t* from)
    {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(as_void(from))));
    }
    /// A byte per lane, each block's to its own place.
    template <uint32_t Blocks>
    static NORMANS_INLINE void store_bytes(uint8_t* const* to, const eight (&x)[4])
    {
        const __m256i bytes = _mm256_permutevar8x32_epi32(
            _mm256_packus_epi16(_mm256_packus_epi32(x[0], x[1]), _mm256_packus_epi32(x[2], x[3])),
            _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        if constexpr (Blocks == 1) {
            _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to[0])), bytes);
        } else {
            NORMANS_UNROLL
            for (uint32_t half = 0; half < 2; ++half) {
                const __m128i both = half == 0 ? _mm256_castsi256_si128(bytes)
                                               : _mm256_extracti128_si256(bytes, 1);
                if constexpr (Blocks == 2) {
                    store_128(to[half], both);
                } else {
                    store_64(to[2 * half], both);
                    store_64(to[2 * half + 1], _mm_srli_si128(both, 8));
                }
            }
        }
    }

    static NORMANS_INLINE eight set(uint32_t x) { return _mm256_set1_epi32(int(x)); }
    static NORMANS_INLINE spread same(uint32_t x) { return set(x); }
    static NORMANS_INLINE left_shift left(unsigned bits) { return _mm_cvtsi32_si128(int(bits)); }
    static NORMANS_INLINE right_shift right(unsigned bits) { return left(bits); }
    static NORMANS_INLINE eight shl(eight x, left_shift bits) { return _mm256_sll_epi32(x, bits); }
    static NORMANS_INLINE eight shr(eight x, right_shift bits) { return _mm256_srl_epi32(x, bits); }
    template <int Bits>
    static NORMANS_INLINE eight shl(eight x)
    {
        return _mm256_slli_epi32(x, Bits);
    }
    template <int Bits>
    static NORMANS_INLINE eight shr(eight x)
    {
        return _mm256_srli_epi32(x, Bits);
    }
    static NORMANS_INLINE eight both(eight x, eight y) { return _mm256_and_si256(x, y); }
    static NORMANS_INLINE eight add(eight x, eight y) { return _mm256_add_epi32(x, y); }
    static NORMANS_INLINE eight sub(eight x, eight y) { return _mm256_sub_epi32(x, y); }
    static NORMANS_INLINE eight add_product(eight x, eight y, eight z)
    {
        return add(x, _mm256_mullo_epi32(y, z));
    }
    static NORMANS_INLINE eight sub_product(eight x, eight y, eight z)
    {
        return sub(x, _mm256_mullo_epi32(y, z));
    }
    static NORMANS_INLINE eight smaller(eight x, eight y) { return _mm256_min_epu32(x, y); }
    /// Below 2^31.
    static NORMANS_INLINE eight less(eight x, eight y) { return _mm256_cmpgt_epi32(y, x); }
    static NORMANS_INLINE eight select(eight m, eight yes, eight no)
    {
        return _mm256_blendv_epi8(no, yes, m);
    }
    static NORMANS_INLINE eight where_not(eight m, eight x) { return _mm256_andnot_si256(m, x); }

    /// x / freq or one less, of x < freq * 2^19. The quotient is aimed low by 2^-20, more than its
    /// three roundings, in whatever mode, and a reciprocal's error under fast math can make up for.
    static NORMANS_INLINE eight quotient(eight x, eight freq)
    {
        const __m256 low =
            _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(1.0f - 0x1p-20f));
        return _mm256_cvttps_epi32(_mm256_div_ps(low, _mm256_cvtepi32_ps(freq)));
    }

    static NORMANS_INLINE eight lookup(const uint32_t* table, eight index)
    {
        const __m128i low = _mm256_castsi256_si128(index);
        const __m128i high = _mm256_extracti128_si256(index, 1);
        return _mm256_inserti128_si256(_mm256_castsi128_si256(lookup(table, low)),
                                       lookup(table, high), 1);
    }

    // Words of the stream, for the set or the clear lanes of masks.

    struct moves {
        const masks& m;
        uint32_t invert;
        NORMANS_INLINE uint32_t lanes(uint32_t i) const
        {
            return uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(m.v[i]))) ^ invert;
        }
    };
    static NORMANS_INLINE moves moves_of_set(const masks& m) { return {m, 0}; }
    static NORMANS_INLINE moves moves_of_clear(const masks& m) { return {m, 0xff}; }

    /// The next words, for those of the i-th eight.
    static NORMANS_INLINE __m128i expand(const uint8_t*& next, const moves& wanted, uint32_t i)
    {
        const uint32_t lanes = wanted.lanes(i);
        const __m128i run =
            _mm_shuffle_epi8(load_128(next), load_128(word_shuffles.expand[lanes]));
        next += 2 * _mm_popcnt_u32(lanes);
        return run;
    }
    /// x << 16 | word
    static NORMANS_INLINE eight push(eight x, __m128i words)
    {
        return _mm256_or_si256(_mm256_slli_epi32(x, 16), _mm256_cvtepu16_epi32(words));
    }
    /// Writes low words below `next`.
    static NORMANS_INLINE void compress(uint8_t*& next, const moves& given, uint32_t i, eight x)
    {
        const uint32_t lanes = given.lanes(i);
        const __m256i low = _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
        const __m128i packed =
            _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
        store_128(next - 16, _mm_shuffle_epi8(packed, load_128(word_shuffles.compress[lanes])));
        next -= 2 * _mm_popcnt_u32(lanes);
    }

private:
    static const void* as_void(const void* from) { return from; }
    static NORMANS_INLINE __m128i load_128(const void* from)
    {
        return _mm_loadu_si128(static_cast<const __m128i*>(from));
    }
    static NORMANS_INLINE void store_128(void* to, __m128i x)
    {
        _mm_storeu_si128(static_cast<__m128i*>(to), x);
    }
    static NORMANS_INLINE void store_64(void* to, __m128i x)
    {
        _mm_storel_epi64(static_cast<__m128i*>(to), x);
    }
    static NORMANS_INLINE __m128i lookup(const uint32_t* table, __m128i index)
    {
        const auto two = uint64_t(_mm_cvtsi128_si64(index));
        const auto next = uint64_t(_mm_extract_epi64(index, 1));
        return _mm_setr_epi32(int(table[uint32_t(two)]), int(table[two >> 32]),
                              int(table[uint32_t(next)]), int(table[next >> 32]));
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
