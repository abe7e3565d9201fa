#pragma once
// What tANS computes with in registers: numbers of 32 bits, eight in AVX2's and 16 in AVX-512's.
// Include it only where the compiler targets AVX2. Eight cells are loaded one by one and blended:
// on Zen 3 that is a little faster than a gather (elsewhere: not measured).

#include <immintrin.h>

#include <cstring>

#include "../core/tans_format.hpp"
#include "word_shuffles.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

struct tans_avx2 {
    using type = __m256i;
    static constexpr uint32_t width = 8;

    static NORMANS_INLINE __m256i load(const void* from)
    {
        return _mm256_loadu_si256(static_cast<const __m256i*>(from));
    }
    static NORMANS_INLINE void store(void* to, __m256i x)
    {
        _mm256_storeu_si256(static_cast<__m256i*>(to), x);
    }
    static NORMANS_INLINE __m128i load_128(const void* from)
    {
        return _mm_loadu_si128(static_cast<const __m128i*>(from));
    }
    static NORMANS_INLINE __m256i all(uint32_t x) { return _mm256_set1_epi32(int(x)); }
    static NORMANS_INLINE __m256i all_words(uint32_t x) { return _mm256_set1_epi16(short(x)); }
    static NORMANS_INLINE __m256i all_bytes(uint32_t x) { return _mm256_set1_epi8(char(x)); }
    /// 16 bytes for pshufb.
    static NORMANS_INLINE __m256i table(const uint8_t* bytes)
    {
        return _mm256_broadcastsi128_si256(load_128(bytes));
    }
    /// Numbers below 2^16, in order, as words.
    static NORMANS_INLINE __m256i narrow(__m256i low, __m256i high)
    {
        return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    }

    /// From words and from bytes.
    static NORMANS_INLINE __m256i widen(const uint16_t* from)
    {
        return _mm256_cvtepu16_epi32(load_128(from));
    }
    static NORMANS_INLINE __m256i widen(const uint8_t* from)
    {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    }
    static NORMANS_INLINE __m256i add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
    static NORMANS_INLINE __m256i sub(__m256i a, __m256i b) { return _mm256_sub_epi32(a, b); }
    static NORMANS_INLINE __m256i both(__m256i a, __m256i b) { return _mm256_and_si256(a, b); }
    static NORMANS_INLINE __m256i either(__m256i a, __m256i b) { return _mm256_or_si256(a, b); }
    template <int By>
    static NORMANS_INLINE __m256i shr(__m256i x)
    {
        return _mm256_srli_epi32(x, By);
    }
    static NORMANS_INLINE __m256i shl(__m256i x, uint32_t by)
    {
        return _mm256_sll_epi32(x, _mm_cvtsi32_si128(int(by)));
    }
    static NORMANS_INLINE __m256i shl(__m256i x, __m256i by) { return _mm256_sllv_epi32(x, by); }
    static NORMANS_INLINE __m256i shr(__m256i x, __m256i by) { return _mm256_srlv_epi32(x, by); }
    /// The low `by` bits.
    static NORMANS_INLINE __m256i low_bits(__m256i x, __m256i by)
    {
        return _mm256_andnot_si256(_mm256_sllv_epi32(all(~uint32_t(0)), by), x);
    }
    /// Bits 16..23.
    static NORMANS_INLINE __m256i third_byte(__m256i x)
    {
        const __m128i which =
            _mm_setr_epi8(2, -1, -1, -1, 6, -1, -1, -1, 10, -1, -1, -1, 14, -1, -1, -1);
        return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(which));
    }
    /// The exponent field of numbers that floats hold exactly.
    static NORMANS_INLINE __m256i float_field(__m256i x)
    {
        return _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(x)), 23);
    }
    /// x, less 1 where a < b. Both below 2^31.
    static NORMANS_INLINE __m256i less_where_below(__m256i x, __m256i a, __m256i b)
    {
        return _mm256_add_epi32(x, _mm256_cmpgt_epi32(b, a));
    }

    /// 32 bits each, every `Bytes` bytes of a table, by index.
    template <int Bytes>
    static NORMANS_INLINE __m256i fetch(const void* table, __m256i index)
    {
        const auto one = [&](uint64_t i) NORMANS_LAMBDA {
            int value;
            std::memcpy(&value, static_cast<const char*>(table) + Bytes * i, sizeof value);
            return _mm256_set1_epi32(value);
        };
        const auto two = [&](uint64_t indices) NORMANS_LAMBDA {
            return _mm256_blend_epi32(one(uint32_t(indices)), one(indices >> 32), 0xaa);
        };
        const __m128i low = _mm256_castsi256_si128(index);
        const __m128i high = _mm256_extracti128_si256(index, 1);
        const __m256i a = _mm256_blend_epi32(two(uint64_t(_mm_cvtsi128_si64(low))),
                                             two(uint64_t(_mm_extract_epi64(low, 1))), 0xcc);
        const __m256i b = _mm256_blend_epi32(two(uint64_t(_mm_cvtsi128_si64(high))),
                                             two(uint64_t(_mm_extract_epi64(high, 1))), 0xcc);
        return _mm256_blend_epi32(a, b, 0xf0);
    }

    /// Starved reservoirs take a word each; reads 16 bytes.
    static NORMANS_INLINE void refill(__m256i& bits, const uint8_t*& from)
    {
        // Below 0: starved.
        const __m256 over =
            _mm256_castsi256_ps(_mm256_sub_epi32(bits, all(tans_format::lower_bound)));
        const uint32_t wanted = uint32_t(_mm256_movemask_ps(over));
        const __m128i word =
            _mm_shuffle_epi8(load_128(from), load_128(word_shuffles.expand[wanted]));
        const __m256i more = _mm256_or_si256(_mm256_slli_epi32(bits, tans_format::word_bits),
                                             _mm256_cvtepu16_epi32(word));
        bits = _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(bits),
                                                    _mm256_castsi256_ps(more), over));
        from += 2 * size_t(uint32_t(_mm_popcnt_u32(wanted)));
    }
    /// The inverse: reservoirs without room for `by` bits give a word each, downward; writes 16
    /// bytes.
    static NORMANS_INLINE void spill(__m256i& bits, __m256i by, uint8_t*& to)
    {
        const __m256i full =
            _mm256_cmpgt_epi32(bits, _mm256_srlv_epi32(all(0x7fffffff), by));
        const uint32_t which = uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(full)));
        const __m256i low = _mm256_and_si256(bits, all(0xffff));
        const __m128i word =
            _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to - 16),
                         _mm_shuffle_epi8(word, load_128(word_shuffles.compress[which])));
        to -= 2 * size_t(uint32_t(_mm_popcnt_u32(which)));
        bits = _mm256_srlv_epi32(bits, _mm256_and_si256(full, all(tans_format::word_bits)));
    }

    /// Numbers below 2^8 of N registers as bytes.
    template <uint32_t N>
    static NORMANS_INLINE void store_bytes(uint8_t* to, const __m256i (&x)[N])
    {
        if constexpr (N == 4) {
            const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            store(to, _mm256_permutevar8x32_epi32(
                          _mm256_packus_epi16(_mm256_packus_epi32(x[0], x[1]),
                                              _mm256_packus_epi32(x[2], x[3])),
                          order));
        } else {
            NORMANS_UNROLL
            for (uint32_t k = 0; k < N; ++k) {
                const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(x[k]),
                                                       _mm256_extracti128_si256(x[k], 1));
                _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 8 * k),
                                 _mm_packus_epi16(words, words));
            }
        }
    }
};

#if NORMANS_AVX512
/// The same in registers of 16. All by a mask: see planes_avx512.hpp.
struct tans_avx512 {
    using type = __m512i;
    static constexpr uint32_t width = 16;
    static constexpr __mmask16 every = 0xffff;

    static NORMANS_INLINE __m512i load(const void* from) { return _mm512_loadu_si512(from); }
    static NORMANS_INLINE void store(void* to, __m512i x) { _mm512_storeu_si512(to, x); }
    static NORMANS_INLINE __m512i all(uint32_t x) { return _mm512_set1_epi32(int(x)); }
    static NORMANS_INLINE __m512i widen(const uint16_t* from)
    {
        return _mm512_maskz_cvtepu16_epi32(every, tans_avx2::load(from));
    }
    static NORMANS_INLINE __m512i widen(const uint8_t* from)
    {
        return _mm512_maskz_cvtepu8_epi32(every, tans_avx2::load_128(from));
    }
    static NORMANS_INLINE __m512i add(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
    static NORMANS_INLINE __m512i sub(__m512i a, __m512i b) { return _mm512_sub_epi32(a, b); }
    static NORMANS_INLINE __m512i both(__m512i a, __m512i b) { return _mm512_and_si512(a, b); }
    static NORMANS_INLINE __m512i either(__m512i a, __m512i b) { return _mm512_or_si512(a, b); }
    template <int By>
    static NORMANS_INLINE __m512i shr(__m512i x)
    {
        return _mm512_maskz_srli_epi32(every, x, By);
    }
    static NORMANS_INLINE __m512i shl(__m512i x, uint32_t by)
    {
        return _mm512_maskz_sll_epi32(every, x, _mm_cvtsi32_si128(int(by)));
    }
    static NORMANS_INLINE __m512i shl(__m512i x, __m512i by)
    {
        return _mm512_maskz_sllv_epi32(every, x, by);
    }
    static NORMANS_INLINE __m512i shr(__m512i x, __m512i by)
    {
        return _mm512_maskz_srlv_epi32(every, x, by);
    }
    static NORMANS_INLINE __m512i low_bits(__m512i x, __m512i by)
    {
        return _mm512_maskz_andnot_epi32(every, shl(all(~uint32_t(0)), by), x);
    }
    static NORMANS_INLINE __m512i third_byte(__m512i x) { return both(shr<16>(x), all(255)); }
    static NORMANS_INLINE __m512i float_field(__m512i x)
    {
        return shr<23>(_mm512_castps_si512(_mm512_maskz_cvtepi32_ps(every, x)));
    }
    static NORMANS_INLINE __m512i less_where_below(__m512i x, __m512i a, __m512i b)
    {
        return _mm512_mask_sub_epi32(x, _mm512_cmplt_epu32_mask(a, b), x, all(1));
    }
#pragma GCC diagnostic push  // of g++'s own macro at -O0
#pragma GCC diagnostic ignored "-Wsign-conversion"
    template <int Bytes>
    static NORMANS_INLINE __m512i fetch(const void* table, __m512i index)
    {
        return _mm512_mask_i32gather_epi32(all(0), every, index, table, Bytes);
    }
#pragma GCC diagnostic pop
    /// Reads 32 bytes.
    static NORMANS_INLINE void refill(__m512i& bits, const uint8_t*& from)
    {
        const __mmask16 starved =
            _mm512_cmplt_epu32_mask(bits, all(tans_format::lower_bound));
        const __m512i words = _mm512_maskz_cvtepu16_epi32(every, tans_avx2::load(from));
        const __m512i more = _mm512_maskz_expand_epi32(starved, words);
        bits = _mm512_mask_or_epi32(bits, starved, shl(bits, tans_format::word_bits), more);
        from += 2 * size_t(uint32_t(_mm_popcnt_u32(starved)));
    }
    /// Writes what it gives.
    static NORMANS_INLINE void spill(__m512i& bits, __m512i by, uint8_t*& to)
    {
        const __mmask16 full = _mm512_cmpgt_epu32_mask(bits, shr(all(0x7fffffff), by));
        const uint32_t count = uint32_t(_mm_popcnt_u32(full));
        to -= 2 * size_t(count);
        _mm256_mask_storeu_epi16(
            to, __mmask16((1u << count) - 1),
            _mm512_maskz_cvtepi32_epi16(every, _mm512_maskz_compress_epi32(full, bits)));
        bits = _mm512_mask_srli_epi32(bits, full, bits, tans_format::word_bits);
    }
    template <uint32_t N>
    static NORMANS_INLINE void store_bytes(uint8_t* to, const __m512i (&x)[N])
    {
        NORMANS_UNROLL
        for (uint32_t k = 0; k < N; ++k)
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * k),
                             _mm512_maskz_cvtepi32_epi8(every, x[k]));
    }
};
#endif

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
