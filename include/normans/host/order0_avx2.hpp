#pragma once
// Static tables in AVX2 registers: 32 lanes in four of them, of `Blocks` = 1, 2 or 4 blocks that
// have tables and words of their own. Include it only where the compiler targets AVX2.
// Lookups load one by one: no slower than the gather instruction where that is fast, and twice as
// fast where it is not.

#include <immintrin.h>

#include "../core/order0_step.hpp"
#include "word_shuffles.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template <uint32_t Blocks>
struct order0_avx2_lanes {
    static constexpr uint32_t width = 32;
    static constexpr uint32_t registers = 4;
    static_assert(Blocks == 1 || Blocks == 2 || Blocks == 4, "blocks have whole registers");

    struct values {
        __m256i v[registers];
    };
    struct mask {};  // all lanes are active
    using state = values;
    using encoder_state = values;
    template <class Table>
    struct tables {
        const Table* block[Blocks];
        __m256i low_bits[Blocks];  // of a state: its slot
        __m128i bits[Blocks];

        void set(uint32_t k, const Table* table)
        {
            block[k] = table;
            low_bits[k] = _mm256_set1_epi32(int(1u << table->precision_bits) - 1);
            bits[k] = _mm_cvtsi32_si128(int(table->precision_bits));
        }
    };
    using decode_tables = tables<order0_table>;
    using encode_tables = tables<order0_intervals>;
    /// Where each block's words are. At least width / Blocks words must be there, or fit.
    struct readers {
        const uint8_t* next[Blocks];
    };
    struct writers {
        uint8_t* next[Blocks];
    };

    struct freqs {
        values freq;
        __m128i bits[Blocks];
    };
    struct located {
        freqs freq;
        values offset, code;
    };
    struct found {
        freqs freq;
        values start;
    };

    static NORMANS_INLINE located locate(const decode_tables& table, const state& x, mask)
    {
        located all;
        load_bits(table, all.freq);
        NORMANS_UNROLL
        for (uint32_t i = 0; i < registers; ++i) {
            const uint32_t k = block_of(i);
            const __m256i entry =
                lookup(table.block[k]->slot, _mm256_and_si256(x.v[i], table.low_bits[k]));
            all.freq.freq.v[i] =
                _mm256_and_si256(_mm256_srli_epi32(entry, 8),
                                 _mm256_set1_epi32(int(order0_format::max_freq)));
            all.offset.v[i] = _mm256_srli_epi32(entry, 20);
            all.code.v[i] = _mm256_and_si256(entry, _mm256_set1_epi32(0xff));
        }
        return all;
    }

    /// `missing`: lanes whose symbol has no slot become nonzero.
    static NORMANS_INLINE found find(const encode_tables& table, const values& symbols, mask,
                                     values& missing)
    {
        found all;
        load_bits(table, all.freq);
        NORMANS_UNROLL
        for (uint32_t i = 0; i < registers; ++i) {
            const __m256i entry = lookup(table.block[block_of(i)]->interval, symbols.v[i]);
            all.freq.freq.v[i] = _mm256_srli_epi32(entry, 16);
            all.start.v[i] = _mm256_and_si256(entry, _mm256_set1_epi32(0xffff));
            missing.v[i] = _mm256_or_si256(
                missing.v[i], _mm256_cmpeq_epi32(entry, _mm256_setzero_si256()));
        }
        return all;
    }

    static NORMANS_INLINE void advance(state& x, const freqs& f, const values& offset)
    {
        NORMANS_UNROLL
        for (uint32_t i = 0; i < registers; ++i) {
            const __m256i high = _mm256_srl_epi32(x.v[i], f.bits[block_of(i)]);
            x.v[i] = _mm256_add_epi32(_mm256_mullo_epi32(f.freq.v[i], high), offset.v[i]);
        }
    }

    /// The dividend is below freq * 2^19 and the quotient is aimed low by 2^-20, more than its
    /// three roundings, in whatever mode, and a reciprocal's error under fast math can make up for:
    /// it comes out exact or one less.
    static NORMANS_INLINE void divide(state& x, const freqs& f, const values& start)
    {
        NORMANS_UNROLL
        for (uint32_t i = 0; i < registers; ++i) {
            const __m256i freq = f.freq.v[i];
            const __m256 low = _mm256_mul_ps(_mm256_cvtepi32_ps(x.v[i]),
                                             _mm256_set1_ps(1.0f - 0x1p-20f));
            const __m256i quotient =
                _mm256_cvttps_epi32(_mm256_div_ps(low, _mm256_cvtepi32_ps(freq)));
            const __m256i rest = _mm256_sub_epi32(x.v[i], _mm256_mullo_epi32(quotient, freq));
            // Adding 2^bits - freq is what one more in the quotient comes to.
            const __m256i whole = _mm256_sll_epi32(_mm256_set1_epi32(1), f.bits[block_of(i)]);
            const __m256i less = _mm256_cmpgt_epi32(freq, rest);
            const __m256i more = _mm256_andnot_si256(less, _mm256_sub_epi32(whole, freq));
            x.v[i] = _mm256_add_epi32(
                _mm256_add_epi32(_mm256_sll_epi32(quotient, f.bits[block_of(i)]), rest),
                _mm256_add_epi32(more, start.v[i]));
        }
    }

    static NORMANS_INLINE values full_for(const state& x, const freqs& f)
    {
        values full;
        NORMANS_UNROLL
        for (uint32_t i = 0; i < registers; ++i) {
            const __m128i shift =
                _mm_sub_epi32(_mm_cvtsi32_si128(31), f.bits[block_of(i)]);
            const __m256i limit = _mm256_sll_epi32(f.freq.v[i], shift);
            full.v[i] = _mm256_cmpgt_epi32(limit, x.v[i]);  // those that are not
        }
        return full;
    }

    static NORMANS_INLINE void refill(state& x, readers& words)
    {
        NORMANS_UNROLL
        for (uint32_t i = 0; i < registers; ++i) {
            const uint8_t*& next = words.next[block_of(i)];
            const __m256i starved = _mm256_cmpgt_epi32(
                _mm256_set1_epi32(int(rans_format::lower_bound)), x.v[i]);
            const uint32_t lanes = bits_of(starved);
            const __m128i shuffled =
                _mm_shuffle_epi8(load_128(next), load_128(word_shuffles.expand[lanes]));
            next += 2 * _mm_popcnt_u32(lanes);
            const __m256i grown =
                _mm256_or_si256(_mm256_slli_epi32(x.v[i], 16), _mm256_cvtepu16_epi32(shuffled));
            x.v[i] = _mm256_blendv_epi8(x.v[i], grown, starved);
        }
    }

    static NORMANS_INLINE void spill(state& x, const values& not_full, writers& words)
    {
        NORMANS_UNROLL
        for (uint32_t j = 0; j < registers; ++j) {
            const uint32_t i = registers - 1 - j;
            uint8_t*& next = words.next[block_of(i)];
            const uint32_t lanes = bits_of(not_full.v[i]) ^ 0xff;
            const __m256i low = _mm256_and_si256(x.v[i], _mm256_set1_epi32(0xffff));
            const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(low),
                                                    _mm256_extracti128_si256(low, 1));
            store_128(next - 16,
                      _mm_shuffle_epi8(packed, load_128(word_shuffles.compress[lanes])));
            next -= 2 * _mm_popcnt_u32(lanes);
            x.v[i] = _mm256_blendv_epi8(_mm256_srli_epi32(x.v[i], 16), x.v[i], not_full.v[i]);
        }
    }

    static NORMANS_INLINE values load(const uint32_t* lanes)
    {
        values x;
        for (uint32_t i = 0; i < registers; ++i)
            x.v[i] = _mm256_loadu_si256(static_cast<const __m256i*>(as_void(lanes + 8 * i)));
        return x;
    }
    static NORMANS_INLINE values zeros()
    {
        values x;
        for (__m256i& one : x.v) one = _mm256_setzero_si256();
        return x;
    }
    static NORMANS_INLINE void store(uint32_t* lanes, const values& x)
    {
        for (uint32_t i = 0; i < registers; ++i)
            _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(lanes + 8 * i)), x.v[i]);
    }

    /// A byte per lane; each block's at a place of its own.
    static NORMANS_INLINE values load_symbols(const uint8_t* const* from, size_t offset)
    {
        values x;
        NORMANS_UNROLL
        for (uint32_t i = 0; i < registers; ++i)
            x.v[i] = _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(
                as_void(from[block_of(i)] + offset + i % (registers / Blocks) * 8))));
        return x;
    }
    static NORMANS_INLINE void store_symbols(uint8_t* const* to, size_t offset, const values& x)
    {
        const __m256i bytes = _mm256_permutevar8x32_epi32(
            _mm256_packus_epi16(_mm256_packus_epi32(x.v[0], x.v[1]),
                                _mm256_packus_epi32(x.v[2], x.v[3])),
            _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        if constexpr (Blocks == 1) {
            _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to[0] + offset)), bytes);
        } else {
            NORMANS_UNROLL
            for (uint32_t half = 0; half < 2; ++half) {
                const __m128i both = half == 0 ? _mm256_castsi256_si128(bytes)
                                               : _mm256_extracti128_si256(bytes, 1);
                if constexpr (Blocks == 2) {
                    store_128(to[half] + offset, both);
                } else {
                    store_64(to[2 * half] + offset, both);
                    store_64(to[2 * half + 1] + offset, _mm_srli_si128(both, 8));
                }
            }
        }
    }

    /// running_sums of every lane.
    struct sums {
        values a, b;
        NORMANS_INLINE void add(const values& x)
        {
            NORMANS_UNROLL
            for (uint32_t i = 0; i < registers; ++i) {
                a.v[i] = _mm256_add_epi32(a.v[i], x.v[i]);
                b.v[i] = _mm256_add_epi32(b.v[i], a.v[i]);
            }
        }
    };

private:
    static constexpr uint32_t block_of(uint32_t i) { return i / (registers / Blocks); }

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
    static NORMANS_INLINE uint32_t bits_of(__m256i lanes)
    {
        return uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)));
    }

    template <class Table>
    static NORMANS_INLINE void load_bits(const tables<Table>& table, freqs& f)
    {
        NORMANS_UNROLL
        for (uint32_t k = 0; k < Blocks; ++k) f.bits[k] = table.bits[k];
    }

    static NORMANS_INLINE __m256i lookup(const uint32_t* table, __m256i index)
    {
        const __m128i low = _mm256_castsi256_si128(index);
        const __m128i high = _mm256_extracti128_si256(index, 1);
        return _mm256_inserti128_si256(_mm256_castsi128_si256(lookup(table, low)),
                                       lookup(table, high), 1);
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
