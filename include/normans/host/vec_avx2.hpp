#pragma once
// AVX2 + FMA: eight 32-bit lanes a register. Operations only; what they are used for is
// vector_lanes.hpp's business. Include it only where the compiler targets AVX2 and FMA.

#include <immintrin.h>

#include <cstring>

#include "../core/stream.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

struct avx2_vec {
    static constexpr uint32_t width = 8;
    using u = __m256i;     // 32-bit integers
    using f = __m256;      // fp32
    using mask = __m256i;  // all ones or zero per lane

    static u load(const uint32_t* from)
    {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    }
    static void store(uint32_t* to, u x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x); }
    static u load_codes(const uint8_t* from)
    {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    }
    static u load_codes(const uint16_t* from)
    {
        return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
    static void store_codes(uint16_t* to, u x)
    {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), pack_16(x));
    }
    static void store_codes(uint8_t* to, u x)
    {
        const __m128i codes = pack_16(x);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(codes, codes));
    }
    static u set(uint32_t x) { return _mm256_set1_epi32(int(x)); }
    static f set_float(float x) { return _mm256_set1_ps(x); }

    static u add(u x, u y) { return _mm256_add_epi32(x, y); }
    static u sub(u x, u y) { return _mm256_sub_epi32(x, y); }
    static u mul(u x, u y) { return _mm256_mullo_epi32(x, y); }
    static u mul_small(u x, u y) { return _mm256_madd_epi16(x, y); }  // both below 2^15
    static u both(u x, u y) { return _mm256_and_si256(x, y); }
    static u either(u x, u y) { return _mm256_or_si256(x, y); }
    static u differ(u x, u y) { return _mm256_xor_si256(x, y); }
    static u without(u x, u y) { return _mm256_andnot_si256(y, x); }
    static u shl(u x, int bits) { return _mm256_slli_epi32(x, bits); }
    static u shr(u x, int bits) { return _mm256_srli_epi32(x, bits); }
    static u shl(u x, u bits) { return _mm256_sllv_epi32(x, bits); }
    static u shr(u x, u bits) { return _mm256_srlv_epi32(x, bits); }
    static u smaller(u x, u y) { return _mm256_min_epi32(x, y); }  // signed, as all compares here
    static u larger(u x, u y) { return _mm256_max_epi32(x, y); }
    static u negate_where(mask m, u x) { return _mm256_sub_epi32(_mm256_xor_si256(x, m), m); }

    static mask less(u x, u y) { return _mm256_cmpgt_epi32(y, x); }
    static mask equal(u x, u y) { return _mm256_cmpeq_epi32(x, y); }
    static mask sign(u x) { return _mm256_srai_epi32(x, 31); }
    static mask none() { return _mm256_setzero_si256(); }
    static mask join(mask x, mask y) { return _mm256_or_si256(x, y); }
    static mask meet(mask x, mask y) { return _mm256_and_si256(x, y); }
    static mask minus(mask x, mask y) { return _mm256_andnot_si256(y, x); }
    static u select(mask m, u yes, u no) { return _mm256_blendv_epi8(no, yes, m); }
    static u where(mask m, u x) { return _mm256_and_si256(m, x); }
    static uint32_t bits(mask m) { return uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(m))); }
    static uint32_t count(uint32_t bits) { return uint32_t(_mm_popcnt_u32(bits)); }
    static mask from_bits(uint32_t bits)
    {
        const u one = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        return equal(both(set(bits), one), one);
    }

    static f as_float(u x) { return _mm256_castsi256_ps(x); }
    static u as_bits(f x) { return _mm256_castps_si256(x); }
    static f to_float(u x) { return _mm256_cvtepi32_ps(x); }
    static u truncate(f x) { return _mm256_cvttps_epi32(x); }
    static u round(f x) { return _mm256_cvtps_epi32(x); }
    static f mul(f x, f y) { return _mm256_mul_ps(x, y); }
    static f fma(f x, f y, f z) { return _mm256_fmadd_ps(x, y, z); }
    static f divide(f x, f y) { return _mm256_div_ps(x, y); }
    static f reciprocal(f x) { return _mm256_rcp_ps(x); }  // 12 bits
    static f smaller(f x, f y) { return _mm256_min_ps(x, y); }
    static f larger(f x, f y) { return _mm256_max_ps(x, y); }

    static u lookup_8(const uint32_t* table, u index)
    {
        return _mm256_permutevar8x32_epi32(load(table), index);
    }

    static u lookup_32(const uint32_t* table, u index)
    {
        const u q0 = lookup_8(table, index), q1 = lookup_8(table + 8, index);
        const u q2 = lookup_8(table + 16, index), q3 = lookup_8(table + 24, index);
        const f bit3 = as_float(shl(index, 28)), bit4 = as_float(shl(index, 27));
        const f low = _mm256_blendv_ps(as_float(q0), as_float(q1), bit3);
        const f high = _mm256_blendv_ps(as_float(q2), as_float(q3), bit3);
        return as_bits(_mm256_blendv_ps(low, high, bit4));
    }

    static u gather(const uint32_t* table, u index)
    {
        return _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), index, 4);
    }

    /// Sum over the lanes of (x * y) >> 8, in 64 bits. Unsigned.
    static uint64_t sum_of_products_256(u x, u y)
    {
        const u even = _mm256_srli_epi64(_mm256_mul_epu32(x, y), 8);
        const u odd = _mm256_srli_epi64(
            _mm256_mul_epu32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(y, 32)), 8);
        const u pairs = _mm256_add_epi64(even, odd);
        const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(pairs),
                                          _mm256_extracti128_si256(pairs, 1));
        return uint64_t(_mm_extract_epi64(two, 0)) + uint64_t(_mm_extract_epi64(two, 1));
    }

    static f gather(const float* table, u index) { return _mm256_i32gather_ps(table, index, 4); }

    /// The next words of `words`, one for each set lane in ascending order, 0 elsewhere.
    static u take(word_reader& words, mask m)
    {
        const uint32_t wanted = bits(m);
        const uint32_t count = uint32_t(_mm_popcnt_u32(wanted));
        __m128i raw;
        if (words.holds(8)) {
            raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words.next));
        } else {
            uint8_t last[16] = {};
            const bool enough = words.holds(count);
            words.overrun |= !enough;
            if (!enough) words.next = words.end;
            else std::memcpy(last, words.next, 2 * count);
            raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(last));
            if (!enough) return _mm256_setzero_si256();
        }
        words.next += 2 * count;
        const u order = _mm256_cvtepu8_epi32(
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&tables.expand[wanted])));
        return where(m, _mm256_permutevar8x32_epi32(_mm256_cvtepu16_epi32(raw), order));
    }

    /// Writes the low 16 bits of the set lanes, so that they ascend in memory.
    static void put(word_writer& words, mask m, u x)
    {
        const uint32_t given = bits(m);
        const uint32_t count = uint32_t(_mm_popcnt_u32(given));
        const u order = _mm256_cvtepu8_epi32(
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&tables.compress[given])));
        const __m128i packed = pack_16(both(_mm256_permutevar8x32_epi32(x, order), set(0xffff)));
        if (words.holds(8)) {  // what lies below the words is free
            _mm_storeu_si128(reinterpret_cast<__m128i*>(words.next - 16), packed);
        } else {
            if (!words.holds(count)) {
                words.overrun = true;
                return;
            }
            uint8_t last[16];
            _mm_storeu_si128(reinterpret_cast<__m128i*>(last), packed);
            std::memcpy(words.next - 2 * count, last + 16 - 2 * count, 2 * count);
        }
        words.next -= 2 * count;
    }

private:
    // Lanes below 2^16 as words.
    static __m128i pack_16(u x)
    {
        return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    }

    struct permutations {
        uint8_t expand[256][8];    // lane -> how many set lanes lie below it
        uint8_t compress[256][8];  // set lanes moved up to the end, in order
    };

    static constexpr permutations make_permutations()
    {
        permutations p{};
        for (uint32_t m = 0; m < 256; ++m) {
            uint32_t below = 0, count = 0;
            for (uint32_t i = 0; i < 8; ++i) count += m >> i & 1;
            for (uint32_t i = 0; i < 8; ++i) {
                p.expand[m][i] = uint8_t(below);
                if (m >> i & 1) p.compress[m][8 - count + below++] = uint8_t(i);
            }
        }
        return p;
    }

    static const permutations tables;
};

inline constexpr avx2_vec::permutations avx2_vec::tables = avx2_vec::make_permutations();

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
