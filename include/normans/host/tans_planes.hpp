#pragma once
// tANS of int8 and int4 in AVX2 registers: rows for 32 scalars at a time, and whole steps of 8, 16
// or 32 lanes as registers of eight. Words, order and arithmetic are tans_step.hpp's; what is left
// of a batch (the last step, steps near the end of the words) is tans_loop.hpp's, on the same
// state. Include it only where the compiler targets AVX2. Eight cells are fetched one by one and
// put together: on Zen 3 that is faster than a gather, by about 5 % of a decoder (elsewhere: not
// measured).

#include <immintrin.h>

#include "tans_loop.hpp"
#include "word_shuffles.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

struct tans_registers {
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
    /// Numbers of 32 bits, by index.
    static NORMANS_INLINE __m256i fetch(const void* table, __m256i index)
    {
        const char* const from = static_cast<const char*>(table);
        return _mm256_inserti128_si256(
            _mm256_castsi128_si256(four(from, _mm256_castsi256_si128(index))),
            four(from, _mm256_extracti128_si256(index, 1)), 1);
    }

private:
    static NORMANS_INLINE int one(const char* from, uint64_t index)
    {
        int value;
        std::memcpy(&value, from + 4 * index, sizeof value);
        return value;
    }
    static NORMANS_INLINE __m128i four(const char* from, __m128i index)
    {
        const uint64_t first = uint64_t(_mm_cvtsi128_si64(index));
        const uint64_t second = uint64_t(_mm_extract_epi64(index, 1));
        const __m128i low = _mm_insert_epi32(_mm_cvtsi32_si128(one(from, first & 0xffffffff)),
                                             one(from, first >> 32), 1);
        const __m128i high = _mm_insert_epi32(_mm_cvtsi32_si128(one(from, second & 0xffffffff)),
                                              one(from, second >> 32), 1);
        return _mm_unpacklo_epi64(low, high);
    }
};

/// tans_rows, whose parts are registers'.
struct tans_plane_rows {
    static constexpr bool unrolled = false;  // few steps are left for tans_decoding

    alignas(64) uint32_t first[tans_batch + tans_slack];  // cells
    alignas(64) int16_t base[tans_batch + tans_slack];    // origins
    alignas(64) int16_t flips[tans_batch + tans_slack];
    alignas(64) uint8_t raw[tans_batch + tans_slack];
    bool grouped = false;  // else `raw` is not there

    void end(uint32_t n) { std::memset(first + n, 0, tans_slack * sizeof(uint32_t)); }

    struct rest {
        const tans_plane_rows& rows;
        uint32_t first;

        tans_place operator[](uint32_t i) const
        {
            const uint32_t at = first + i;
            return {rows.first[at], int8_t(rows.flips[at]),
                    uint8_t(rows.grouped ? rows.raw[at] : 0), uint16_t(rows.base[at])};
        }
    };
    rest from(uint32_t scalar) const { return {*this, scalar}; }
};

/// tans_levels in registers.
class tans_plane_levels : tans_registers {
public:
    tans_plane_levels(scalar_format format, const tans_bank& bank)
        : last_(tans_levels::top + 8 * (format.code_bits - 2)), drop_(3 - bank.plan.log_steps)
    {
        uint32_t used = 0;
        for (uint32_t octave = 0; octave < bank_octaves; ++octave) {
            const uint32_t parts = uint32_t(1) << log_parts(bank.plan, octave);
            first_low_[octave] = uint8_t(used);
            first_high_[octave] = uint8_t(used >> 8);
            parts_[octave] = uint8_t(parts);
            for (uint32_t step = 0; step < uint32_t(1) << bank.plan.log_steps; ++step)
                for (uint32_t part = 0; part < parts; ++part)
                    place_[used++] = place_of(bank, octave, step, part);
        }
    }

    /// What is known of a batch's scalars before their rows.
    struct scalars {
        alignas(64) uint16_t fixed[tans_batch + tans_slack] = {};  // fixed_mean()
        alignas(64) uint8_t above[tans_batch + tans_slack] = {};   // levels: see uniform_bank.hpp
    };

    /// fixed and above of n scalars under one scale, from `first` on.
    void under_scale(const tans_predictions& from, uint32_t first, uint32_t n, int origin,
                     const fixed_scale& scale, scalars& x) const
    {
        const int up = origin < 0 ? 0 : origin > 255 ? 255 : origin;
        const int down = origin > 0 ? 0 : origin < -255 ? 255 : -origin;
        for (uint32_t i = first; i < first + n; i += 32) {
            const __m256i k = load(from.sigma + i);
            const __m256i sum = _mm256_subs_epu8(_mm256_adds_epu8(k, all_bytes(uint32_t(up))),
                                                 all_bytes(uint32_t(down)));
            store(x.above + i, _mm256_andnot_si256(_mm256_cmpeq_epi8(k, all_bytes(sigma_zero)),
                                                   _mm256_min_epu8(sum, all_bytes(last_))));
        }
        for (uint32_t i = first; i < first + n; i += 16)
            store(x.fixed + i, scale.counts ? narrow(fixed(load(from.mean + i), scale),
                                                     fixed(load(from.mean + i + 8), scale))
                                            : all_words(scale.zero));
    }

    void find_rows(const scalars& x, uint32_t n, tans_plane_rows& to) const
    {
        __m256i groups = _mm256_setzero_si256();
        for (uint32_t i = 0; i < n; i += 32)
            groups = _mm256_or_si256(groups, _mm256_subs_epu8(load(x.above + i),
                                                              all_bytes(tans_levels::top)));
        to.grouped = !_mm256_testz_si256(groups, groups);
        if (to.grouped) find_rows<true>(x, n, to);
        else find_rows<false>(x, n, to);
    }

private:
    static uint32_t place_of(const tans_bank& bank, uint32_t octave, uint32_t step, uint32_t part)
    {
        const bank_plan& plan = bank.plan;
        const uint32_t all = uint32_t(1) << log_parts(plan, octave);
        const bool mirrored = 2 * part + 1 < all;
        const uint32_t row = first_bank_row(plan, octave) + step * stored_parts(plan, octave) +
                             (mirrored ? all - 1 - part : part) - all / 2;
        return row << plan.table_bits | uint32_t(mirrored) << 31;
    }

    static NORMANS_INLINE __m256i fixed(__m256i mean, const fixed_scale& scale)
    {
        const __m256i low_half = _mm256_set1_epi64x(0xffffffff);
        const __m256i inverse = _mm256_set1_epi64x(int64_t(scale.significand));
        const __m256i significand = _mm256_or_si256(_mm256_and_si256(mean, all(0x7fffff)),
                                                    all(0x800000));
        const __m256i field = _mm256_srli_epi32(_mm256_slli_epi32(mean, 1), 24);
        const __m256i by = _mm256_sub_epi32(all(uint32_t(scale.shift)), field);
        const __m256i even = _mm256_srlv_epi64(_mm256_mul_epu32(significand, inverse),
                                               _mm256_and_si256(by, low_half));
        const __m256i odd = _mm256_srlv_epi64(
            _mm256_mul_epu32(_mm256_srli_epi64(significand, 32), inverse),
            _mm256_srli_epi64(by, 32));
        const __m256i doubled = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
        __m256i magnitude = _mm256_srli_epi32(_mm256_add_epi32(doubled, all(1)), 1);
        // Shifts below the least: larger than all, but for a NaN.
        magnitude = _mm256_or_si256(
            magnitude, _mm256_cmpgt_epi32(all(fixed_scale::least), by));
        magnitude = _mm256_min_epu32(magnitude, all(scale.zero));
        const __m256i no_number = _mm256_cmpgt_epi32(
            _mm256_and_si256(mean, all(0x7fffffff)), all(infinity_bits));
        magnitude = _mm256_andnot_si256(no_number, magnitude);
        const __m256i sign = _mm256_srai_epi32(mean, 31);
        const __m256i distance = _mm256_sub_epi32(_mm256_xor_si256(magnitude, sign), sign);
        return _mm256_min_epi32(_mm256_add_epi32(distance, all(scale.zero)), all(scale.last));
    }

    template <bool Grouped>
    void find_rows(const scalars& x, uint32_t n, tans_plane_rows& to) const
    {
        const __m256i zero = _mm256_setzero_si256();
        const __m256i parts = table(parts_), low = table(first_low_), high = table(first_high_);
        const __m128i drop = _mm_cvtsi32_si128(int(drop_));
        for (uint32_t i = 0; i < n; i += 32) {
            // Unpacked, the halves are lanes 0-15 and 16-31.
            const __m256i above = _mm256_permute4x64_epi64(load(x.above + i), 0xd8);
            const __m256i over = _mm256_and_si256(
                _mm256_subs_epu8(above, all_bytes(tans_levels::top - 7)), all_bytes(0xf8));
            const __m256i at = _mm256_sub_epi8(above, over);
            const __m256i octave =
                _mm256_srli_epi16(_mm256_and_si256(at, all_bytes(0xf8)), 3);
            const __m256i step = _mm256_and_si256(
                _mm256_srl_epi16(_mm256_and_si256(at, all_bytes(7)), drop), all_bytes(7u >> drop_));
            const __m256i count = _mm256_shuffle_epi8(parts, octave);
            const __m256i first_low = _mm256_shuffle_epi8(low, octave);
            const __m256i first_high = _mm256_shuffle_epi8(high, octave);
            const __m256i raw = _mm256_srli_epi16(over, 3);
            half<Grouped>(x.fixed + i, _mm256_unpacklo_epi8(count, zero),
                          _mm256_unpacklo_epi8(step, zero),
                          _mm256_unpacklo_epi8(first_low, first_high),
                          _mm256_unpacklo_epi8(raw, zero), i, to);
            half<Grouped>(x.fixed + i + 16, _mm256_unpackhi_epi8(count, zero),
                          _mm256_unpackhi_epi8(step, zero),
                          _mm256_unpackhi_epi8(first_low, first_high),
                          _mm256_unpackhi_epi8(raw, zero), i + 16, to);
            if (Grouped) store(to.raw + i, _mm256_permute4x64_epi64(raw, 0xd8));
        }
    }

    // 16 scalars; all in words.
    template <bool Grouped>
    NORMANS_INLINE void half(const uint16_t* fixed, __m256i count, __m256i step, __m256i first,
                             __m256i raw, uint32_t i, tans_plane_rows& to) const
    {
        __m256i place = _mm256_add_epi16(load(fixed), all_words(128));
        if (Grouped) {  // place >> raw
            alignas(16) static constexpr uint8_t power[16] = {0, 128, 64, 32, 16, 8, 4};
            const __m256i by = _mm256_slli_epi16(_mm256_shuffle_epi8(table(power), raw), 8);
            const __m256i none = _mm256_cmpeq_epi16(raw, _mm256_setzero_si256());
            place = _mm256_or_si256(_mm256_mulhi_epu16(place, by), _mm256_and_si256(place, none));
        }
        const __m256i part = _mm256_srli_epi16(
            _mm256_mullo_epi16(_mm256_and_si256(place, all_words(255)), count), 8);
        const __m256i index =
            _mm256_add_epi16(_mm256_add_epi16(first, part), _mm256_mullo_epi16(step, count));
        const __m256i a = fetch(place_, _mm256_cvtepu16_epi32(_mm256_castsi256_si128(index)));
        const __m256i b = fetch(place_, _mm256_cvtepu16_epi32(_mm256_extracti128_si256(index, 1)));
        store(to.first + i, _mm256_and_si256(a, all(0xffffff)));
        store(to.first + i + 8, _mm256_and_si256(b, all(0xffffff)));
        const __m256i top = narrow(_mm256_srli_epi32(a, 24), _mm256_srli_epi32(b, 24));
        const __m256i flip = _mm256_srai_epi16(_mm256_slli_epi16(top, 8), 15);
        const __m256i away = _mm256_xor_si256(all_words(cell_middle), flip);
        store(to.flips + i, flip);
        store(to.base + i, _mm256_sub_epi16(_mm256_srli_epi16(place, 8), away));
    }

    uint32_t last_, drop_;
    alignas(16) uint8_t parts_[16] = {}, first_low_[16] = {}, first_high_[16] = {};  // by octave
    // first cell: bits 0..23, mirrored: 31
    uint32_t place_[tans_levels::most_places];
};

/// make_scale()
inline code_scale plane_scale(uint32_t scale)
{
    const uint32_t field = scale >> 23, fraction = scale & 0x7fffff;
    if (field < 127 - 24 || field >= 127 + 24) return {0, 0, 0};
    // 2^48 / significand is at least 2^-24 away from whole numbers, or is one: far more than a
    // double's rounding.
    const __m128d divisor = _mm_set_sd(double(fraction | 0x800000u));
    const uint32_t doubled =
        uint32_t(_mm_cvttsd_si32(_mm_div_sd(_mm_set_sd(281474976710656.0), divisor)));
    static constexpr sigma_grid grid = sigma_grid_of(false);
    const __m256i middle = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(grid.middle));
    const __m256i below = _mm256_cmpgt_epi32(middle, _mm256_set1_epi32(int(fraction)));
    const int not_reached =
        _mm_popcnt_u32(uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(below))));
    return {scale, ((252 - field) << 23) + ((doubled + 1) >> 1),
            8 * (int(field) - 127) + 8 - not_reached};
}

/// add_to_sums() for any lanes: those of 32 in registers.
inline void add_to_plane_sums(const uint8_t* codes, uint32_t count, uint32_t lanes,
                              check_sums& sums)
{
    constexpr uint32_t most_steps = 16;  // see add_to_sums()
    if (lanes != 32) return add_to_sums(codes, count, lanes, sums);
    for (uint32_t whole = count / 32; whole != 0;) {
        const uint32_t steps = whole < most_steps ? whole : most_steps;
        __m256i a[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, b[2] = {a[0], a[1]};
        for (uint32_t step = 0; step < steps; ++step, codes += 32) {
            for (int half = 0; half < 2; ++half) {
                a[half] = _mm256_add_epi16(
                    a[half], _mm256_cvtepu8_epi16(_mm_loadu_si128(
                                 reinterpret_cast<const __m128i*>(codes + 16 * half))));
                b[half] = _mm256_add_epi16(b[half], a[half]);
            }
        }
        uint16_t more_a[32], more_b[32];
        for (int half = 0; half < 2; ++half) {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(more_a + 16 * half), a[half]);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(more_b + 16 * half), b[half]);
        }
        for (uint32_t i = 0; i < 32; ++i) {
            running_sums& sum = sums.lane[i];
            sum.b += steps * sum.a + more_b[i];
            sum.a += more_a[i];
        }
        count -= 32 * steps;
        whole -= steps;
    }
    for (uint32_t i = 0; i < count; ++i) sums.lane[i].add(codes[i]);
}

/// Whole steps.
class tans_plane_decoding : tans_registers {
public:
    using rows_type = tans_plane_rows;

    tans_plane_decoding(const tans_bank& bank, scalar_format format) : rest_(bank, format) {}

    /// tans_decoding::run() and signed_codes() for a batch.
    bool run(const tans_plane_rows& rows, uint32_t count, tans_state& x, word_reader& words,
             uint8_t* codes) const
    {
        symbols found;
        uint32_t done = 0;
        if (x.lanes == 32) done = steps<4>(rows, count, x, words, found);
        else if (x.lanes == 16) done = steps<2>(rows, count, x, words, found);
        else if (x.lanes == 8) done = steps<1>(rows, count, x, words, found);
        bool good = finish(rows, found, done, codes);
        good &= rest_.run(rows, done, count, x, words, codes);
        rest_.signed_codes(codes + done, count - done);
        return good;
    }

private:
    struct symbols {
        alignas(64) uint8_t symbol[tans_batch + tans_slack];
        alignas(64) uint8_t raw[tans_batch + tans_slack];  // where any_raw
        bool any_raw = false;
    };

    template <int Octets>
    struct lanes {
        __m256i v[uint32_t(Octets)];
    };

    // Scalars in as many whole steps as the words surely suffice for.
    template <int Octets>
    uint32_t steps(const tans_plane_rows& rows, uint32_t count, tans_state& x, word_reader& words,
                   symbols& to) const
    {
        constexpr uint32_t width = 8 * Octets;
        const __m256i lower_bound = all(tans_format::lower_bound), ones = all(~uint32_t(0));
        const tans_cell* const cells = rest_.cells;
        lanes<Octets> cell, bits;
        NORMANS_UNROLL
        for (int k = 0; k < Octets; ++k) {
            cell.v[k] = load(x.cell + 8 * k);
            bits.v[k] = load(x.bits + 8 * k);
        }
        word_reader reader = words;
        uint32_t done = 0;
        for (; done + width <= count && reader.holds(2 * width); done += width) {
            lanes<Octets> symbol;
            NORMANS_UNROLL
            for (int k = 0; k < Octets; ++k) {
                const __m256i at = fetch(
                    cells, _mm256_add_epi32(load(rows.first + done + 8 * k), cell.v[k]));
                const __m256i by = _mm256_and_si256(_mm256_srli_epi32(at, 16), all(255));
                const __m256i low = _mm256_andnot_si256(_mm256_sllv_epi32(ones, by), bits.v[k]);
                cell.v[k] = _mm256_add_epi32(_mm256_and_si256(at, all(0xffff)), low);
                bits.v[k] = _mm256_srlv_epi32(bits.v[k], by);
                symbol.v[k] = _mm256_srli_epi32(at, 24);
            }
            refill(bits, lower_bound, reader);
            if (store_symbols(to.symbol + done, symbol) || rows.grouped)
                take_raw(rows, done, symbol, bits, lower_bound, reader, to);
        }
        words = reader;
        NORMANS_UNROLL
        for (int k = 0; k < Octets; ++k) {
            store(x.cell + 8 * k, cell.v[k]);
            store(x.bits + 8 * k, bits.v[k]);
        }
        return done;
    }

    template <int Octets>
    static NORMANS_INLINE void refill(lanes<Octets>& bits, __m256i lower_bound,
                                      word_reader& words)
    {
        const uint8_t* from = words.next;
        NORMANS_UNROLL
        for (int k = 0; k < Octets; ++k) {
            const __m256i starved = _mm256_cmpgt_epi32(lower_bound, bits.v[k]);
            const uint32_t wanted = uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(starved)));
            const __m128i word =
                _mm_shuffle_epi8(load_128(from), load_128(word_shuffles.expand[wanted]));
            const __m256i more = _mm256_or_si256(
                _mm256_slli_epi32(bits.v[k], tans_format::word_bits), _mm256_cvtepu16_epi32(word));
            bits.v[k] = _mm256_blendv_epi8(bits.v[k], more, starved);
            from += 2 * size_t(uint32_t(_mm_popcnt_u32(wanted)));
        }
        words.next = from;
    }

    // True if a symbol is 0.
    template <int Octets>
    static NORMANS_INLINE bool store_symbols(uint8_t* to, const lanes<Octets>& symbol)
    {
        if constexpr (Octets == 4) {
            const __m256i bytes = bytes_of(symbol);
            store(to, bytes);
            return _mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256())) != 0;
        } else {
            int none = 0;
            NORMANS_UNROLL
            for (int k = 0; k < Octets; ++k) {
                const __m128i bytes = bytes_of(symbol.v[k]);
                _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 8 * k), bytes);
                none |= _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128())) & 255;
            }
            return none != 0;
        }
    }
    static NORMANS_INLINE __m256i bytes_of(const lanes<4>& x)
    {
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        return _mm256_permutevar8x32_epi32(
            _mm256_packus_epi16(_mm256_packus_epi32(x.v[0], x.v[1]),
                                _mm256_packus_epi32(x.v[2], x.v[3])),
            order);
    }
    static NORMANS_INLINE __m128i bytes_of(__m256i x)
    {
        const __m128i words =
            _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
        return _mm_packus_epi16(words, words);
    }

    // The raw bits of a step.
    template <int Octets>
    NORMANS_INLINE void take_raw(const tans_plane_rows& rows, uint32_t done,
                                 const lanes<Octets>& symbol, lanes<Octets>& bits,
                                 __m256i lower_bound, word_reader& words, symbols& to) const
    {
        if (!to.any_raw) std::memset(to.raw, 0, sizeof to.raw);
        to.any_raw = true;
        lanes<Octets> raw;
        NORMANS_UNROLL
        for (int k = 0; k < Octets; ++k) {
            __m256i by = _mm256_setzero_si256();
            if (rows.grouped)
                by = _mm256_cvtepu8_epi32(_mm_loadl_epi64(
                    reinterpret_cast<const __m128i*>(rows.raw + done + 8 * k)));
            const __m256i escaped = _mm256_cmpeq_epi32(symbol.v[k], _mm256_setzero_si256());
            by = _mm256_blendv_epi8(by, all(rest_.code_bits), escaped);
            raw.v[k] = _mm256_andnot_si256(_mm256_sllv_epi32(all(~uint32_t(0)), by), bits.v[k]);
            bits.v[k] = _mm256_srlv_epi32(bits.v[k], by);
        }
        refill(bits, lower_bound, words);
        if constexpr (Octets == 4) {
            store(to.raw + done, bytes_of(raw));
        } else {
            NORMANS_UNROLL
            for (int k = 0; k < Octets; ++k)
                _mm_storel_epi64(reinterpret_cast<__m128i*>(to.raw + done + 8 * k),
                                 bytes_of(raw.v[k]));
        }
    }

    // Codes of the first `count` symbols; false if one stands for none.
    bool finish(const tans_plane_rows& rows, const symbols& from, uint32_t count,
                uint8_t* codes) const
    {
        const __m256i sign = all_words(rest_.sign);
        __m256i outside = _mm256_setzero_si256();
        for (uint32_t i = 0; i < count; i += 16) {
            const __m256i symbol = _mm256_cvtepu8_epi16(load_128(from.symbol + i));
            const __m256i moved = _mm256_xor_si256(symbol, load(rows.flips + i));
            __m256i index = _mm256_add_epi16(load(rows.base + i), moved);
            if (from.any_raw) {
                if (rows.grouped) index = _mm256_mullo_epi16(index, power(rows.raw + i));
                const __m256i escaped = _mm256_cmpeq_epi16(symbol, _mm256_setzero_si256());
                const __m256i raw = _mm256_cvtepu8_epi16(load_128(from.raw + i));
                // An escape's code is raw; another's sign is changed below.
                index = _mm256_or_si256(
                    _mm256_andnot_si256(escaped, index),
                    _mm256_xor_si256(raw, _mm256_and_si256(escaped, sign)));
            }
            const __m256i mine =
                i + 16 <= count ? index : _mm256_zextsi128_si256(_mm256_castsi256_si128(index));
            outside = _mm256_or_si256(outside, mine);
            const __m256i code = _mm256_and_si256(_mm256_xor_si256(index, sign), all_words(255));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i),
                             _mm_packus_epi16(_mm256_castsi256_si128(code),
                                              _mm256_extracti128_si256(code, 1)));
        }
        return _mm256_testz_si256(outside, all_words(rest_.above)) != 0;
    }

    static NORMANS_INLINE __m256i power(const uint8_t* group_bits)
    {
        alignas(16) static constexpr uint8_t powers[16] = {1, 2, 4, 8, 16, 32, 64};
        const __m256i by = _mm256_cvtepu8_epi16(load_128(group_bits));
        return _mm256_and_si256(_mm256_shuffle_epi8(table(powers), by), all_words(255));
    }

    tans_decoding rest_;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
