#pragma once
// tANS of fp8 and e2m1 in AVX2 registers: rows for 32 scalars at a time, and whole steps of 8, 16
// or 32 lanes. Words, order and arithmetic are tans_step.hpp's; what is left of a batch (the last
// step, steps near the end of the words) is float_loop.hpp's, on the same state. Include it only
// where the compiler targets AVX2.

#include <immintrin.h>

#include "float_loop.hpp"
#include "tans_registers.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

struct float_registers : tans_avx2 {
    /// Numbers of 32 bits, by index; `Each` is as far as one is from the next.
    template <class Each>
    static NORMANS_INLINE __m256i fetch(const Each* from, __m256i index)
    {
        const auto two = [&](uint64_t indices) NORMANS_LAMBDA {
            return _mm_insert_epi32(_mm_cvtsi32_si128(one(from + uint32_t(indices))),
                                    one(from + (indices >> 32)), 1);
        };
        const auto four = [&](__m128i indices) NORMANS_LAMBDA {
            return _mm_unpacklo_epi64(two(uint64_t(_mm_cvtsi128_si64(indices))),
                                      two(uint64_t(_mm_extract_epi64(indices, 1))));
        };
        return _mm256_inserti128_si256(_mm256_castsi128_si256(four(_mm256_castsi256_si128(index))),
                                       four(_mm256_extracti128_si256(index, 1)), 1);
    }
    /// Numbers of 16 bits; nothing beside them is read.
    static NORMANS_INLINE __m256i fetch_words(const uint16_t* from, __m256i index)
    {
        const auto four = [&](__m128i indices) NORMANS_LAMBDA {
            const uint64_t a = uint64_t(_mm_cvtsi128_si64(indices));
            const uint64_t b = uint64_t(_mm_extract_epi64(indices, 1));
            const auto word = [&](uint64_t i) NORMANS_LAMBDA { return int16_t(from[i]); };
            __m128i x = _mm_cvtsi32_si128(word(uint32_t(a)));
            x = _mm_insert_epi16(x, word(a >> 32), 1);
            x = _mm_insert_epi16(x, word(uint32_t(b)), 2);
            return _mm_insert_epi16(x, word(b >> 32), 3);
        };
        return _mm256_cvtepu16_epi32(_mm_unpacklo_epi64(
            four(_mm256_castsi256_si128(index)), four(_mm256_extracti128_si256(index, 1))));
    }

    /// A step's lanes.
    template <int Octets>
    struct lanes {
        __m256i v[uint32_t(Octets)];

        lanes() = default;
        explicit NORMANS_INLINE lanes(const uint32_t* from)
        {
            NORMANS_UNROLL
            for (int k = 0; k < Octets; ++k) v[k] = load(from + 8 * k);
        }
        NORMANS_INLINE void store_to(uint32_t* to) const
        {
            NORMANS_UNROLL
            for (int k = 0; k < Octets; ++k) store(to + 8 * k, v[k]);
        }
    };

    /// Numbers below 256 as bytes, in order; 0 behind them.
    template <int Octets>
    static NORMANS_INLINE __m256i bytes_of(const lanes<Octets>& x)
    {
        if constexpr (Octets == 4) {
            const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            return _mm256_permutevar8x32_epi32(
                _mm256_packus_epi16(_mm256_packus_epi32(x.v[0], x.v[1]),
                                    _mm256_packus_epi32(x.v[2], x.v[3])),
                order);
        } else {
            const __m128i low = words_of(x.v[0]);
            const __m128i high = Octets == 2 ? words_of(x.v[Octets - 1]) : _mm_setzero_si128();
            return _mm256_zextsi128_si256(_mm_packus_epi16(low, high));
        }
    }
    template <int Octets>
    static NORMANS_INLINE void store_bytes(uint8_t* to, __m256i bytes)
    {
        const __m128i low = _mm256_castsi256_si128(bytes);
        if constexpr (Octets == 4) store(to, bytes);
        else if constexpr (Octets == 2) _mm_storeu_si128(reinterpret_cast<__m128i*>(to), low);
        else _mm_storel_epi64(reinterpret_cast<__m128i*>(to), low);
    }
    static NORMANS_INLINE __m256i octet(__m256i bytes, int k)
    {
        const __m128i half =
            k < 2 ? _mm256_castsi256_si128(bytes) : _mm256_extracti128_si256(bytes, 1);
        return _mm256_cvtepu8_epi32(k % 2 == 0 ? half : _mm_unpackhi_epi64(half, half));
    }

    /// The low bits of each lane, taken off it.
    static NORMANS_INLINE __m256i take(__m256i& bits, __m256i by)
    {
        const __m256i low = low_bits(bits, by);
        bits = _mm256_srlv_epi32(bits, by);
        return low;
    }
    template <int Octets>
    static NORMANS_INLINE void refill(lanes<Octets>& bits, word_reader& words)
    {
        const uint8_t* from = words.next;
        NORMANS_UNROLL
        for (int k = 0; k < Octets; ++k) tans_avx2::refill(bits.v[k], from);
        words.next = from;
    }
    /// The low bits of each lane's value to its reservoir; full ones give a word before.
    template <int Octets>
    static NORMANS_INLINE void give(lanes<Octets>& bits, const lanes<Octets>& by,
                                    const lanes<Octets>& value, word_writer& words)
    {
        uint8_t* to = words.next;
        NORMANS_UNROLL
        for (int k = Octets - 1; k >= 0; --k) {
            spill(bits.v[k], by.v[k], to);
            bits.v[k] = either(shl(bits.v[k], by.v[k]), low_bits(value.v[k], by.v[k]));
        }
        words.next = to;
    }

private:
    template <class Each>
    static NORMANS_INLINE int one(const Each* from)
    {
        static_assert(sizeof(Each) >= 4, "all four bytes are there");
        int value;
        std::memcpy(&value, from, sizeof value);
        return value;
    }
    static NORMANS_INLINE __m128i words_of(__m256i x)
    {
        return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    }
};

/// float_rows, whose parts are registers'.
struct float_plane_rows {
    alignas(64) uint32_t first[tans_batch + tans_slack];  // cells
    alignas(64) int8_t origin[tans_batch + tans_slack];
    alignas(64) uint8_t lift[tans_batch + tans_slack];
    alignas(64) uint8_t under_top[tans_batch + tans_slack];
    alignas(64) int8_t away[tans_batch + tans_slack];
    bool grouped = false;  // else all under_top are 0

    void end(uint32_t n) { std::memset(first + n, 0, tans_slack * sizeof(uint32_t)); }

    struct rest {
        const float_plane_rows& rows;
        uint32_t first;

        float_place operator[](uint32_t i) const
        {
            const uint32_t at = first + i;
            return {rows.first[at], rows.origin[at], rows.lift[at],
                    float_place::start_of(rows.under_top[at], rows.away[at])};
        }
    };
    rest from(uint32_t scalar) const { return {*this, scalar}; }
};

/// float_levels in registers.
class float_plane_levels : float_registers {
public:
    float_plane_levels(scalar_format format, const bank_plan& plan)
        : keys_(format), drop_(3 - plan.log_steps), table_bits_(plan.table_bits)
    {
        const float_bank_layout layout{format, plan};
        float_bank_starts starts;
        starts.fill(layout);
        log_parts_ = uint32_t(layout.log_parts(0));
        for (uint32_t octave = 0; octave < layout.octaves(); ++octave) {
            classes_[octave] = layout.classes(octave);
            for (uint32_t d = 1; d <= layout.classes(octave); ++d) {
                const float_class one(layout, starts, octave, d);
                shift_[octave] = uint32_t(one.shift);
                // Units of shared rows are moved by their table's number - 1.
                const uint32_t start = one.start + (one.shared ? 1u << log_parts_ : 0);
                class_[8 * octave + d] = (start & 0xffff) | one.log_places << 16 |
                                         (one.shared ? 0 : 1u << 20) |
                                         (one.shared && d != 1 ? 1u << 21 : 0) |
                                         uint32_t(one.away) << 24;
            }
        }
        for (uint32_t unit = 0; unit < 2u << format.mantissa_bits && layout.shares(0); ++unit) {
            const shared_shift shift(layout, unit, 1);
            units_[unit] = uint8_t(1 - shift.units);
            groups_[unit] = uint8_t(shift.groups);
        }
    }

    const float_keys& keys() const { return keys_; }

    /// Eighths of sigma of n scalars under one origin, from `first` of a batch on.
    void under_origin(const tans_predictions& from, uint32_t first, uint32_t n, int origin)
    {
        const __m256i low = all_words(uint32_t(keys_.low));
        const __m256i high = all_words(uint32_t(keys_.high));
        const __m256i to_above = all_words(uint32_t(keys_.to_above));
        const __m256i by = all_words(uint32_t(origin < -1000 ? -1000 : origin > 1000 ? 1000
                                                                                        : origin));
        for (uint32_t i = first; i < first + n; i += 16) {
            const __m256i k = _mm256_cvtepu8_epi16(load_128(from.sigma + i));
            __m256i sum = _mm256_min_epi16(_mm256_max_epi16(_mm256_add_epi16(k, by), low), high);
            sum = _mm256_blendv_epi8(sum, low, _mm256_cmpeq_epi16(k, all_words(sigma_zero)));
            store(eighths_ + i, _mm256_add_epi16(sum, to_above));
        }
    }

    /// The rows of a batch whose eighths are there. Means need not be clean.
    void find_rows(const tans_predictions& from, uint32_t n, float_plane_rows& to)
    {
        const __m256i parts_of_each = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        __m256i grouped = _mm256_setzero_si256();
        for (uint32_t i = 0; i < n; i += 32) {
            __m256i part[4];
            NORMANS_UNROLL
            for (uint32_t k = 0; k < 4; ++k) {
                part[k] = _mm256_shuffle_epi8(
                    eight(from.mean + i + 8 * k, eighths_ + i + 8 * k, to.first + i + 8 * k),
                    parts_of_each);
            }
            const __m256i low_01 = _mm256_unpacklo_epi32(part[0], part[1]);
            const __m256i low_23 = _mm256_unpacklo_epi32(part[2], part[3]);
            const __m256i high_01 = _mm256_unpackhi_epi32(part[0], part[1]);
            const __m256i high_23 = _mm256_unpackhi_epi32(part[2], part[3]);
            const auto ordered = [&](__m256i x) NORMANS_LAMBDA {
                return _mm256_permutevar8x32_epi32(x, order);
            };
            const __m256i away = ordered(_mm256_unpackhi_epi64(low_01, low_23));
            const __m256i under = ordered(_mm256_unpacklo_epi64(high_01, high_23));
            const __m256i lift = ordered(_mm256_unpackhi_epi64(high_01, high_23));
            store(to.origin + i, ordered(_mm256_unpacklo_epi64(low_01, low_23)));
            store(to.away + i, away);
            store(to.under_top + i, under);
            store(to.lift + i, lift);
            grouped = _mm256_or_si256(grouped, under);
        }
        to.grouped = !_mm256_testz_si256(grouped, grouped);
    }

private:
    // Eight scalars' first cells; in bytes: shared_shift::groups, away, under_top, lift and sign.
    NORMANS_INLINE __m256i eight(const uint32_t* means, const int16_t* eighths,
                                 uint32_t* first_cell) const
    {
        const int p = int(keys_.format.mantissa_bits);
        const __m128i by_p = _mm_cvtsi32_si128(p);
        __m256i mean = load(means);
        const __m256i bare = _mm256_and_si256(mean, all(~sign_bit));
        const __m256i no_number = _mm256_cmpgt_epi32(bare, all(infinity_bits));
        mean = _mm256_andnot_si256(no_number, mean);
        const __m256i size =
            _mm256_andnot_si256(no_number, _mm256_min_epi32(bare, all(keys_.most)));
        const __m256i field = _mm256_srli_epi32(size, 23);
        const __m256i sigma = _mm256_cvtepi16_epi32(load_128(eighths));
        const __m256i of_sigma =
            _mm256_sub_epi32(_mm256_srli_epi32(sigma, 3), all(uint32_t(p + 3)));
        const __m256i anchor =
            _mm256_max_epi32(_mm256_max_epi32(of_sigma, all(1)),
                             _mm256_add_epi32(field, all(uint32_t(keys_.to_anchor))));
        const __m256i above = _mm256_max_epi32(
            _mm256_sub_epi32(sigma, _mm256_slli_epi32(anchor, 3)), _mm256_setzero_si256());
        const __m256i octave = _mm256_srli_epi32(above, 3);
        const __m256i d =
            _mm256_min_epi32(anchor, _mm256_permutevar8x32_epi32(load(classes_), octave));
        const __m256i one = fetch(class_, _mm256_add_epi32(_mm256_slli_epi32(octave, 3), d));
        const __m256i significand =
            _mm256_or_si256(_mm256_and_si256(size, all(0x7fffff)), all(0x800000));
        const __m256i place = _mm256_srlv_epi32(
            significand, _mm256_add_epi32(_mm256_sub_epi32(anchor, field),
                                          all(uint32_t(keys_.to_shift))));
        const __m256i unit = _mm256_srli_epi32(place, 8);
        // 0x80 picks nothing: rows that are not shared.
        const __m256i picked = _mm256_or_si256(
            _mm256_or_si256(unit, all(0x80808000)),
            _mm256_and_si256(_mm256_srli_epi32(one, 13), all(0x80)));
        const __m256i first = _mm256_and_si256(
            _mm256_cmpeq_epi32(unit, all(1u << p)),
            _mm256_srai_epi32(_mm256_slli_epi32(one, 10), 31));
        const __m256i units = _mm256_sub_epi32(_mm256_shuffle_epi8(table(units_), picked), first);
        const __m256i groups = _mm256_sub_epi8(_mm256_shuffle_epi8(table(groups_), picked), first);
        const __m256i step = _mm256_srl_epi32(_mm256_and_si256(above, all(7)),
                                              _mm_cvtsi32_si128(int(drop_)));
        __m256i at = _mm256_add_epi32(
            one, _mm256_sllv_epi32(step, _mm256_and_si256(_mm256_srli_epi32(one, 16), all(15))));
        at = _mm256_add_epi32(
            at, _mm256_srlv_epi32(place, _mm256_permutevar8x32_epi32(load(shift_), octave)));
        at = _mm256_sub_epi32(at, _mm256_sll_epi32(units, _mm_cvtsi32_si128(int(log_parts_))));
        store(first_cell, _mm256_sll_epi32(_mm256_and_si256(at, all(0xffff)),
                                           _mm_cvtsi32_si128(int(table_bits_))));
        const __m256i under = _mm256_max_epi32(
            _mm256_sub_epi32(_mm256_add_epi32(octave, d), all(7)), _mm256_setzero_si256());
        const __m256i lift = _mm256_or_si256(
            _mm256_slli_epi32(_mm256_sll_epi32(_mm256_sub_epi32(anchor, d), by_p), 24),
            _mm256_and_si256(mean, all(sign_bit)));
        return _mm256_or_si256(
            _mm256_or_si256(_mm256_and_si256(groups, all(255)),
                            _mm256_and_si256(_mm256_srli_epi32(one, 16), all(0xff00))),
            _mm256_or_si256(_mm256_slli_epi32(under, 16), lift));
    }

    float_keys keys_;
    uint32_t drop_, table_bits_, log_parts_;
    alignas(32) uint32_t classes_[8] = {}, shift_[8] = {};       // by octave
    alignas(16) uint8_t units_[16] = {}, groups_[16] = {};       // see shared_shift
    // By octave and class: start: bits 0..15, log_places: 16..19, not shared: 20, shared and not
    // the lowest class: 21, away: 24..31.
    uint32_t class_[8 * float_bank_layout::max_octaves + 8] = {};
    alignas(64) int16_t eighths_[tans_batch + tans_slack] = {};
};

/// Whole steps.
class float_plane_decoding : float_registers {
public:
    using rows_type = float_plane_rows;

    float_plane_decoding(const tans_bank& bank, scalar_format format)
        : rest_(bank, format), p_(format.mantissa_bits)
    {
    }

    /// float_decoding::run() for a batch; `codes` has room for whole registers.
    bool run(const float_plane_rows& rows, uint32_t count, tans_state& x, word_reader& words,
             uint8_t* codes) const
    {
        symbols found;
        uint32_t done = 0;
        if (x.lanes == 32) done = steps<4>(rows, count, x, words, found);
        else if (x.lanes == 16) done = steps<2>(rows, count, x, words, found);
        else if (x.lanes == 8) done = steps<1>(rows, count, x, words, found);
        const bool good = finish(rows, found, done, codes);
        return rest_.run(rows, done, count, x, words, codes) && good;
    }

private:
    struct symbols {
        alignas(64) uint8_t symbol[tans_batch + tans_slack];
        alignas(64) uint8_t raw[tans_batch + tans_slack];  // where any_raw
        bool any_raw = false;
    };

    // Scalars in as many whole steps as the words surely suffice for.
    template <int Octets>
    uint32_t steps(const float_plane_rows& rows, uint32_t count, tans_state& x, word_reader& words,
                   symbols& to) const
    {
        constexpr uint32_t step_lanes = 8 * Octets;
        const tans_cell* const cells = rest_.cells;
        lanes<Octets> cell(x.cell), bits(x.bits);
        to.any_raw = rows.grouped;
        word_reader reader = words;
        uint32_t done = 0;
        for (; done + step_lanes <= count && reader.holds(2 * step_lanes); done += step_lanes) {
            lanes<Octets> symbol;
            NORMANS_UNROLL
            for (int k = 0; k < Octets; ++k) {
                const __m256i at = fetch(
                    cells, _mm256_add_epi32(load(rows.first + done + 8 * k), cell.v[k]));
                const __m256i by = _mm256_and_si256(_mm256_srli_epi32(at, 16), all(255));
                cell.v[k] = _mm256_add_epi32(_mm256_and_si256(at, all(0xffff)),
                                             take(bits.v[k], by));
                symbol.v[k] = _mm256_srli_epi32(at, 24);
            }
            refill(bits, reader);
            const __m256i bytes = bytes_of(symbol);
            store_bytes<Octets>(to.symbol + done, bytes);
            const __m256i escaped = _mm256_cmpeq_epi8(bytes, _mm256_setzero_si256());
            const uint32_t escapes =
                uint32_t(_mm256_movemask_epi8(escaped)) & (~uint32_t(0) >> (32 - step_lanes));
            if (!rows.grouped && escapes == 0) {
                if (to.any_raw) store_bytes<Octets>(to.raw + done, _mm256_setzero_si256());
                continue;
            }
            if (!to.any_raw) std::memset(to.raw, 0, done);
            to.any_raw = true;
            const __m256i by = _mm256_blendv_epi8(raw_bits(rows, done, bytes),
                                                  all_bytes(rest_.code_bits), escaped);
            lanes<Octets> raw;
            NORMANS_UNROLL
            for (int k = 0; k < Octets; ++k) raw.v[k] = take(bits.v[k], octet(by, k));
            refill(bits, reader);
            store_bytes<Octets>(to.raw + done, bytes_of(raw));
        }
        words = reader;
        cell.store_to(x.cell);
        bits.store_to(x.bits);
        return done;
    }

    // Raw bits of groups: see float_rows.hpp. In bytes.
    NORMANS_INLINE __m256i raw_bits(const float_plane_rows& rows, uint32_t first,
                                    __m256i symbol) const
    {
        const __m256i group = _mm256_add_epi8(
            load(rows.origin + first), _mm256_xor_si256(symbol, all_bytes(cell_middle)));
        const __m256i negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), group);
        const __m256i v =
            _mm256_add_epi8(_mm256_xor_si256(group, negative), load(rows.away + first));
        const __m256i halved = _mm256_add_epi8(
            _mm256_cmpgt_epi8(v, all_bytes(1)),
            _mm256_add_epi8(_mm256_cmpgt_epi8(v, all_bytes(p_ > 1 ? 3 : 127)),
                            _mm256_cmpgt_epi8(v, all_bytes(p_ > 2 ? 7 : 127))));
        return _mm256_min_epi8(_mm256_add_epi8(halved, all_bytes(p_)),
                               load(rows.under_top + first));
    }

    // Codes of the first `count` symbols; false if one stands for none.
    bool finish(const float_plane_rows& rows, const symbols& from, uint32_t count,
                uint8_t* codes) const
    {
        __m256i beyond = _mm256_setzero_si256();
        for (uint32_t i = 0; i < count; i += 16) {
            const auto wide = [&](const void* part) NORMANS_LAMBDA {
                return _mm256_cvtepi8_epi16(load_128(static_cast<const char*>(part) + i));
            };
            const __m256i symbol = _mm256_cvtepu8_epi16(load_128(from.symbol + i));
            const __m256i group = _mm256_add_epi16(
                wide(rows.origin), _mm256_sub_epi16(symbol, all_words(cell_middle)));
            const __m256i negative = _mm256_srai_epi16(group, 15), lift = wide(rows.lift);
            __m256i v = _mm256_add_epi16(_mm256_xor_si256(group, negative), wide(rows.away));
            __m256i raw = _mm256_setzero_si256();
            if (from.any_raw) {
                raw = _mm256_cvtepu8_epi16(load_128(from.raw + i));
                const __m256i under = wide(rows.under_top);
                const __m256i halved = _mm256_add_epi16(
                    _mm256_cmpgt_epi16(v, all_words(1)),
                    _mm256_add_epi16(_mm256_cmpgt_epi16(v, all_words(p_ > 1 ? 3 : 127)),
                                     _mm256_cmpgt_epi16(v, all_words(p_ > 2 ? 7 : 127))));
                const __m256i bits =
                    _mm256_min_epi16(_mm256_add_epi16(halved, all_words(p_)), under);
                alignas(16) static constexpr uint8_t powers[16] = {1, 2, 4, 8};
                const __m256i power = _mm256_and_si256(_mm256_shuffle_epi8(table(powers), bits),
                                                       all_words(255));
                v = _mm256_add_epi16(_mm256_mullo_epi16(v, power),
                                     _mm256_sll_epi16(_mm256_sub_epi16(under, bits),
                                                      _mm_cvtsi32_si128(int(p_))));
            }
            const __m256i escaped = _mm256_cmpeq_epi16(symbol, _mm256_setzero_si256());
            __m256i magnitude = _mm256_andnot_si256(
                escaped, _mm256_add_epi16(v, _mm256_and_si256(lift, all_words(127))));
            const __m256i sign = _mm256_andnot_si256(
                escaped, _mm256_and_si256(_mm256_xor_si256(negative, _mm256_srai_epi16(lift, 15)),
                                          all_words(rest_.sign)));
            __m256i outside = _mm256_cmpgt_epi16(magnitude, all_words(rest_.largest));
            if (i + 16 > count)
                outside = _mm256_zextsi128_si256(_mm256_castsi256_si128(outside));
            beyond = _mm256_or_si256(beyond, outside);
            const __m256i code =
                _mm256_and_si256(_mm256_or_si256(_mm256_or_si256(magnitude, sign), raw),
                                 all_words(255));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i),
                             _mm_packus_epi16(_mm256_castsi256_si128(code),
                                              _mm256_extracti128_si256(code, 1)));
        }
        return _mm256_testz_si256(beyond, beyond) != 0;
    }

    float_decoding rest_;
    uint32_t p_;
};

/// Whole steps, encoded.
class float_plane_encoding : float_registers {
public:
    float_plane_encoding(const tans_bank& bank, scalar_format format)
        : bank_(bank), format_(format), rest_(bank, format)
    {
    }

    /// float_encoding::run() for a batch. `codes` may be read a register beyond their end.
    uint32_t run(const float_plane_rows& rows, uint32_t count, const uint8_t* codes, tans_state& x,
                 word_writer& words) const
    {
        const uint32_t tail = count % x.lanes;
        uint32_t escapes = 0;
        if (tail != 0 || x.lanes == 1)
            escapes += rest_.run(rows, x.lanes == 1 ? 0 : count - tail, count, codes, x, words);
        if (x.lanes == 32) escapes += steps<4>(rows, count - tail, codes, x, words);
        else if (x.lanes == 16) escapes += steps<2>(rows, count - tail, codes, x, words);
        else if (x.lanes == 8) escapes += steps<1>(rows, count - tail, codes, x, words);
        return escapes;
    }

private:
    struct found {
        alignas(64) uint8_t symbol[tans_batch + tans_slack];  // 0: escapes
        alignas(64) uint8_t raw_bits[tans_batch + tans_slack];
        alignas(64) uint8_t reach[tans_batch + tans_slack];
    };

    // What rows say of the codes; a symbol may yet be none of its row's.
    void find(const float_plane_rows& rows, uint32_t count, const uint8_t* codes, found& to) const
    {
        const uint32_t p = format_.mantissa_bits, half = format_.code_sign();
        const __m128i by_p = _mm_cvtsi32_si128(int(p));
        alignas(16) static constexpr uint8_t powers[16] = {8, 4, 2, 1};
        for (uint32_t i = 0; i < count; ++i)
            to.reach[i] = bank_.reach[rows.first[i] >> bank_.plan.table_bits];
        for (uint32_t i = 0; i < count; i += 16) {
            const auto wide = [&](const void* part) NORMANS_LAMBDA {
                return _mm256_cvtepi8_epi16(load_128(static_cast<const char*>(part) + i));
            };
            const __m256i code = _mm256_cvtepu8_epi16(load_128(codes + i)), lift = wide(rows.lift);
            const __m256i magnitude = _mm256_and_si256(code, all_words(half - 1));
            const __m256i m =
                _mm256_sub_epi16(magnitude, _mm256_and_si256(lift, all_words(127)));
            __m256i v = m, low = _mm256_setzero_si256();
            if (rows.grouped) {
                const __m256i under = wide(rows.under_top);
                low = _mm256_sub_epi16(_mm256_add_epi16(under, all_words(1)),
                                       _mm256_sra_epi16(m, by_p));
                low = _mm256_min_epi16(
                    _mm256_max_epi16(_mm256_min_epi16(low, under), _mm256_setzero_si256()),
                    all_words(p));
                v = _mm256_sub_epi16(m, _mm256_sll_epi16(_mm256_sub_epi16(under, low), by_p));
                const __m256i power = _mm256_and_si256(_mm256_shuffle_epi8(table(powers), low),
                                                       all_words(255));
                v = _mm256_srai_epi16(_mm256_mullo_epi16(v, power), 3);
            }
            const __m256i from_zero = _mm256_sub_epi16(v, wide(rows.away));
            const __m256i negative = _mm256_xor_si256(
                _mm256_cmpgt_epi16(code, all_words(half - 1)), _mm256_srai_epi16(lift, 15));
            const __m256i symbol =
                _mm256_sub_epi16(_mm256_sub_epi16(_mm256_xor_si256(from_zero, negative),
                                                  wide(rows.origin)),
                                 _mm256_sub_epi16(_mm256_cvtepu8_epi16(load_128(to.reach + i)),
                                                  all_words(129)));
            const __m256i outside = _mm256_or_si256(
                _mm256_or_si256(_mm256_srai_epi16(_mm256_or_si256(from_zero, symbol), 15),
                                _mm256_cmpgt_epi16(magnitude, all_words(format_.largest_finite))),
                _mm256_cmpgt_epi16(symbol, all_words(bank_symbols - 1)));
            const __m256i kept = _mm256_andnot_si256(outside, symbol);
            const __m256i raw =
                _mm256_blendv_epi8(low, all_words(format_.code_bits),
                                   _mm256_cmpeq_epi16(kept, _mm256_setzero_si256()));
            const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi16(kept, raw), 0xd8);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to.symbol + i),
                             _mm256_castsi256_si128(both));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to.raw_bits + i),
                             _mm256_extracti128_si256(both, 1));
        }
    }

    // Whole steps, the last first.
    template <int Octets>
    uint32_t steps(const float_plane_rows& rows, uint32_t count, const uint8_t* codes,
                   tans_state& x, word_writer& words) const
    {
        constexpr uint32_t step_lanes = 8 * Octets;
        const unsigned table_bits = bank_.plan.table_bits;
        found at;
        find(rows, count, codes, at);
        lanes<Octets> cell(x.cell), bits(x.bits);
        word_writer writer = words;
        uint32_t first = count;
        for (; first != 0 && writer.holds(2 * step_lanes + 8); first -= step_lanes) {
            const uint32_t now = first - step_lanes;
            lanes<Octets> start, freq;
            if (NORMANS_RARE(!entries(rows, now, at, start, freq))) {
                escape_absent(rows, now, step_lanes, at);
                entries(rows, now, at, start, freq);
            }
            lanes<Octets> by, given;
            __m256i raw = _mm256_setzero_si256();
            NORMANS_UNROLL
            for (int k = 0; k < Octets; ++k) {
                by.v[k] = widen(at.raw_bits + now + 8 * k);
                given.v[k] = widen(codes + now + 8 * k);
                raw = _mm256_or_si256(raw, by.v[k]);
            }
            if (_mm256_testz_si256(raw, raw) == 0) give(bits, by, given, writer);
            NORMANS_UNROLL
            for (int k = 0; k < Octets; ++k) {
                const __m256i state = _mm256_add_epi32(cell.v[k], all(1u << table_bits));
                // The larger of a symbol's two counts, from its frequency's exponent.
                const __m256i count_of = _mm256_sub_epi32(
                    all(table_bits + 127),
                    _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(freq.v[k])), 23));
                by.v[k] = _mm256_add_epi32(
                    count_of, _mm256_cmpgt_epi32(freq.v[k], _mm256_srlv_epi32(state, count_of)));
                const __m256i rest = _mm256_sub_epi32(_mm256_srlv_epi32(state, by.v[k]), freq.v[k]);
                const __m256i to = _mm256_add_epi32(
                    load(rows.first + now + 8 * k), _mm256_add_epi32(start.v[k], rest));
                given.v[k] = cell.v[k];
                cell.v[k] = fetch_words(bank_.next, to);
            }
            give(bits, by, given, writer);
        }
        words = writer;
        cell.store_to(x.cell);
        bits.store_to(x.bits);
        uint32_t escapes = 0;
        for (uint32_t i = first; i < count; ++i) escapes += at.symbol[i] == 0;
        return first == 0 ? escapes : escapes + rest_.run(rows, 0, first, codes, x, words);
    }

    // False if a row has no such symbol.
    template <int Octets>
    NORMANS_INLINE bool entries(const float_plane_rows& rows, uint32_t first, const found& at,
                                lanes<Octets>& start, lanes<Octets>& freq) const
    {
        __m256i absent = _mm256_setzero_si256();
        NORMANS_UNROLL
        for (int k = 0; k < Octets; ++k) {
            const __m256i row = _mm256_srl_epi32(load(rows.first + first + 8 * k),
                                                 _mm_cvtsi32_si128(int(bank_.plan.table_bits)));
            const __m256i entry =
                fetch(bank_.symbols, _mm256_add_epi32(_mm256_mullo_epi32(row, all(bank_symbols)),
                                                      widen(at.symbol + first + 8 * k)));
            start.v[k] = _mm256_and_si256(entry, all(0xffff));
            freq.v[k] = _mm256_srli_epi32(entry, 16);
            absent =
                _mm256_or_si256(absent, _mm256_cmpeq_epi32(freq.v[k], _mm256_setzero_si256()));
        }
        return _mm256_testz_si256(absent, absent) != 0;
    }

    NORMANS_NOINLINE void escape_absent(const float_plane_rows& rows, uint32_t first, uint32_t n,
                                        found& at) const
    {
        for (uint32_t i = first; i < first + n; ++i) {
            const size_t row = rows.first[i] >> bank_.plan.table_bits;
            if (bank_.symbols[row * bank_symbols + at.symbol[i]].freq != 0) continue;
            at.symbol[i] = 0;
            at.raw_bits[i] = uint8_t(format_.code_bits);
        }
    }

    const tans_bank& bank_;
    scalar_format format_;
    float_encoding rest_;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
