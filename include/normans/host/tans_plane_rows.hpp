#pragma once
// Rows of a bank for 32 scalars at a time (tans_rows.hpp has them one by one): scales of eight
// pieces at once, means and sigmas under them, and rows by byte shuffles, multiplies and shifts. A
// decoder's rows need nothing of the bank but its plan. Include it only where the compiler targets
// AVX2; floats under native_float_mode.

#include "../core/sigma.hpp"
#include "tans_registers.hpp"
#include "tans_rows.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

/// tans_rows, whose parts are registers'.
struct tans_plane_rows {
    static constexpr bool unrolled = false;  // few steps are left for tans_decoding

    alignas(64) uint16_t row[tans_batch + tans_slack];
    alignas(64) uint8_t group[tans_batch + tans_slack];  // the mean's
    alignas(64) int8_t direction[tans_batch + tans_slack];  // -1: mirrored, else 1
    alignas(64) uint8_t raw[tans_batch + tans_slack];
    uint32_t table_bits;
    bool grouped = false;  // else `raw` is not there

    void end(uint32_t n) { std::memset(row + n, 0, tans_slack * sizeof(uint16_t)); }

    struct rest {
        const tans_plane_rows& rows;
        uint32_t first;

        tans_place operator[](uint32_t i) const
        {
            const uint32_t at = first + i;
            const int flip = rows.direction[at] >> 7, middle = rows.group[at];
            const int origin = flip < 0 ? middle + cell_middle + 1 : middle - cell_middle;
            return {uint32_t(rows.row[at]) << rows.table_bits, int8_t(flip),
                    uint8_t(rows.grouped ? rows.raw[at] : 0), uint16_t(origin)};
        }
    };
    rest from(uint32_t scalar) const { return {*this, scalar}; }
};

/// A batch cut where the scale or the row step changes.
struct tans_pieces {
    uint32_t count = 0;
    uint32_t end[tans_batch];  // scalars before it and in it
    alignas(64) uint32_t scale[tans_batch + 8] = {};  // fp32 bits
    // Eighths of an octave from the lowest row to sigma index 0 under a scale of 1; under its own
    // that is what is added to an index, 255 at most, and then taken off.
    alignas(64) int32_t origin[tans_batch + 8] = {};
    alignas(64) uint32_t up[tans_batch + 8], down[tans_batch + 8];
    alignas(64) float inverse[tans_batch + 8];  // 32 / scale; 0: it does not count

    void add(uint32_t last, uint32_t scale_bits, int origin_at_1)
    {
        end[count] = last;
        scale[count] = scale_bits;
        origin[count++] = origin_at_1;
    }
};

/// tans_levels in registers.
class tans_plane_levels : tans_avx2 {
public:
    tans_plane_levels(scalar_format format, const tans_bank& bank)
        : last_(tans_levels::top + 8 * (format.code_bits - 2)), drop_(3 - bank.plan.log_steps),
          table_bits_(bank.plan.table_bits), none_(format.code_sign() << 5)
    {
        for (uint32_t octave = 0; octave < bank_octaves; ++octave) {
            const uint32_t first = first_bank_row(bank.plan, octave);
            const uint32_t log = log_parts(bank.plan, octave);
            first_low_[octave] = uint8_t(first);
            first_high_[octave] = uint8_t(first >> 8);
            stored_[octave] = uint8_t(stored_parts(bank.plan, octave));
            parts_[octave] = uint8_t(log == 0 ? 0 : 1u << log);
        }
    }

    /// What is known of a batch's scalars before their rows.
    struct scalars {
        alignas(64) uint16_t place[tans_batch + tans_slack] = {};  // of means, in 1/32 code
        alignas(64) uint8_t above[tans_batch + tans_slack] = {};   // levels: see uniform_bank.hpp
    };

    /// Both of a batch, whose pieces are made ready.
    void under_scales(const tans_predictions& from, tans_pieces& pieces, scalars& x) const
    {
        for (uint32_t i = 0; i < pieces.count; i += 8) make_scales(pieces, i);
        const mean_range range(none_);
        const __m256i last = all_bytes(last_);
        uint32_t first = 0;
        for (uint32_t i = 0; i < pieces.count; ++i) {
            const uint32_t end = pieces.end[i];
            const __m256i up = all_bytes(pieces.up[i]), down = all_bytes(pieces.down[i]);
            for (uint32_t at = first; at < end; at += 32) {
                const __m256i k = load(from.sigma + at);
                const __m256i level =
                    _mm256_min_epu8(_mm256_subs_epu8(_mm256_adds_epu8(k, up), down), last);
                store(x.above + at,
                      _mm256_andnot_si256(_mm256_cmpeq_epi8(k, all_bytes(sigma_zero)), level));
            }
            if (pieces.inverse[i] > 0) {
                const __m256 by = _mm256_set1_ps(pieces.inverse[i]);
                for (uint32_t at = first; at < end; at += 16)
                    store(x.place + at, narrow(range.places(load(from.mean + at), by),
                                               range.places(load(from.mean + at + 8), by)));
            } else {
                for (uint32_t at = first; at < end; at += 16)
                    store(x.place + at, all_words(none_));
            }
            first = end;
        }
    }

    void find_rows(const scalars& x, uint32_t n, tans_plane_rows& to) const
    {
        __m256i groups = _mm256_setzero_si256();
        for (uint32_t i = 0; i < n; i += 32)
            groups = _mm256_or_si256(groups, _mm256_subs_epu8(load(x.above + i),
                                                              all_bytes(tans_levels::top)));
        to.table_bits = table_bits_;
        to.grouped = !_mm256_testz_si256(groups, groups);
        if (to.grouped) find_rows<true>(x, n, to);
        else find_rows<false>(x, n, to);
    }

private:
    static NORMANS_INLINE __m256i quotients(__m128i significand)
    {
        // 2^48 / significand is at least 2^-24 away from whole numbers, or is one: far more than a
        // double's rounding.
        return _mm256_castsi128_si256(_mm256_cvttpd_epi32(_mm256_div_pd(
            _mm256_set1_pd(281474976710656.0), _mm256_cvtepi32_pd(significand))));
    }

    // make_scale() of eight pieces.
    static NORMANS_INLINE void make_scales(tans_pieces& pieces, uint32_t i)
    {
        static constexpr sigma_grid grid = sigma_grid_of(false);
        const __m256i scale = load(pieces.scale + i), field = _mm256_srli_epi32(scale, 23);
        const __m256i fraction = _mm256_and_si256(scale, all(0x7fffff));
        const __m256i counts = _mm256_and_si256(_mm256_cmpgt_epi32(field, all(127 - 24 - 1)),
                                                _mm256_cmpgt_epi32(all(127 + 24), field));
        const __m256i significand = _mm256_or_si256(fraction, all(0x800000));
        const __m256i doubled = _mm256_inserti128_si256(
            quotients(_mm256_castsi256_si128(significand)),
            _mm256_castsi256_si128(quotients(_mm256_extracti128_si256(significand, 1))), 1);
        const __m256i inverse = _mm256_add_epi32(
            _mm256_slli_epi32(_mm256_sub_epi32(all(252 + 5), field), 23),
            _mm256_srli_epi32(_mm256_add_epi32(doubled, all(1)), 1));
        store(pieces.inverse + i, _mm256_and_si256(inverse, counts));
        __m256i eighths = _mm256_add_epi32(
            _mm256_slli_epi32(_mm256_sub_epi32(field, all(127)), 3), all(8));
        NORMANS_UNROLL
        for (int k = 0; k < 8; ++k)
            eighths = _mm256_add_epi32(eighths, _mm256_cmpgt_epi32(all(grid.middle[k]), fraction));
        const __m256i origin = _mm256_sub_epi32(load(pieces.origin + i), eighths);
        const __m256i none = _mm256_setzero_si256(), most = all(255);
        store(pieces.up + i,
              _mm256_and_si256(_mm256_min_epi32(_mm256_max_epi32(origin, none), most), counts));
        store(pieces.down + i,
              _mm256_min_epi32(_mm256_blendv_epi8(
                                   most, _mm256_max_epi32(_mm256_sub_epi32(none, origin), none),
                                   counts),
                               most));
    }

    // fixed_mean() >> 3 of means: floor(mean * inverse + none + 1/16), and where that is whole one
    // less for means below 0. The product is exact twice: once rounded onto the sum, plus 2^14 so
    // that a last place is 2^-9; and once for what was lost there.
    struct mean_range {
        __m256 least, zero, most;

        explicit mean_range(uint32_t none)
            : least(_mm256_set1_ps(16384.0625f)),
              zero(_mm256_set1_ps(16384.0625f + float(none))),
              most(_mm256_set1_ps(16384.0625f + float(2 * none - 32)))
        {
        }
        NORMANS_INLINE __m256i places(__m256i bits, __m256 inverse) const
        {
            // Compilers that take floats for real numbers must not see what they could simplify.
            const __m256i no_number = _mm256_cmpgt_epi32(
                _mm256_and_si256(bits, all(~sign_bit)), all(infinity_bits));
            const __m256 mean = _mm256_castsi256_ps(_mm256_andnot_si256(no_number, bits));
            __m256 place =
                _mm256_min_ps(_mm256_max_ps(_mm256_fmadd_ps(mean, inverse, zero), least), most);
            NORMANS_FORGET(place);
            const __m256 lost = _mm256_fmsub_ps(mean, inverse, _mm256_sub_ps(place, zero));
            const __m256i less =
                _mm256_cmpgt_epi32(_mm256_srli_epi32(bits, 31), _mm256_castps_si256(lost));
            const __m256i whole =
                _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(place), less), 9);
            return _mm256_and_si256(whole, all(0x3fff));
        }
    };

    template <bool Grouped>
    void find_rows(const scalars& x, uint32_t n, tans_plane_rows& to) const
    {
        const __m256i zero = _mm256_setzero_si256(), one = all_bytes(1);
        const __m256i parts = table(parts_), stored = table(stored_);
        const __m256i low = table(first_low_), high = table(first_high_);
        const __m128i drop = _mm_cvtsi32_si128(int(drop_));
        for (uint32_t i = 0; i < n; i += 32) {
            // Unpacked, the halves are scalars 0-15 and 16-31.
            const __m256i above = _mm256_permute4x64_epi64(load(x.above + i), 0xd8);
            __m256i at = above, raw = zero;
            if (Grouped) {
                const __m256i over = _mm256_and_si256(
                    _mm256_subs_epu8(above, all_bytes(tans_levels::top - 7)), all_bytes(0xf8));
                at = _mm256_sub_epi8(above, over);
                raw = _mm256_srli_epi16(over, 3);
            }
            const __m256i octave =
                _mm256_and_si256(_mm256_srli_epi16(at, 3), all_bytes(31));
            const __m256i step = _mm256_and_si256(
                _mm256_srl_epi16(_mm256_and_si256(at, all_bytes(7)), drop), all_bytes(7u >> drop_));
            const __m256i count = _mm256_shuffle_epi8(parts, octave);
            const __m256i each = _mm256_shuffle_epi8(stored, octave);
            const __m256i first_low = _mm256_shuffle_epi8(low, octave);
            const __m256i first_high = _mm256_shuffle_epi8(high, octave);
            // first + step * each
            const __m256i a = _mm256_add_epi16(
                _mm256_maddubs_epi16(_mm256_unpacklo_epi8(each, first_low),
                                     _mm256_unpacklo_epi8(step, one)),
                _mm256_unpacklo_epi8(zero, first_high));
            const __m256i b = _mm256_add_epi16(
                _mm256_maddubs_epi16(_mm256_unpackhi_epi8(each, first_low),
                                     _mm256_unpackhi_epi8(step, one)),
                _mm256_unpackhi_epi8(zero, first_high));
            half here[2];
            here[0] = rows_of<Grouped>(x.place + i, _mm256_unpacklo_epi8(count, zero), a,
                                       _mm256_unpacklo_epi8(raw, zero));
            here[1] = rows_of<Grouped>(x.place + i + 16, _mm256_unpackhi_epi8(count, zero), b,
                                       _mm256_unpackhi_epi8(raw, zero));
            store(to.row + i, here[0].row);
            store(to.row + i + 16, here[1].row);
            store(to.group + i, _mm256_permute4x64_epi64(
                                    _mm256_packus_epi16(here[0].group, here[1].group), 0xd8));
            store(to.direction + i, _mm256_or_si256(one, _mm256_permute4x64_epi64(
                                        _mm256_packs_epi16(here[0].flip, here[1].flip), 0xd8)));
            if (Grouped) store(to.raw + i, _mm256_permute4x64_epi64(raw, 0xd8));
        }
    }

    // 16 scalars; all in words.
    struct half {
        __m256i row, group, flip;
    };
    template <bool Grouped>
    static NORMANS_INLINE half rows_of(const uint16_t* places, __m256i parts, __m256i first,
                                       __m256i raw)
    {
        // From the cell's lower end.
        __m256i place = _mm256_add_epi16(load(places), all_words(16));
        if (Grouped) {  // place >> raw
            alignas(16) static constexpr uint8_t power[16] = {0, 128, 64, 32, 16, 8, 4};
            const __m256i by = _mm256_slli_epi16(_mm256_shuffle_epi8(table(power), raw), 8);
            const __m256i none = _mm256_cmpeq_epi16(raw, _mm256_setzero_si256());
            place = _mm256_or_si256(_mm256_mulhi_epu16(place, by), _mm256_and_si256(place, none));
        }
        // From its middle, of one part always upward.
        const __m256i part = _mm256_mulhi_epi16(
            _mm256_xor_si256(_mm256_slli_epi16(place, 11), all_words(0x8000)), parts);
        const __m256i flip = _mm256_srai_epi16(part, 15);
        return {_mm256_add_epi16(first, _mm256_xor_si256(part, flip)), _mm256_srli_epi16(place, 5),
                flip};
    }

    uint32_t last_, drop_, table_bits_, none_;  // none_: the place of a mean that is 0
    // By octave.
    alignas(16) uint8_t parts_[16] = {}, stored_[16] = {};
    alignas(16) uint8_t first_low_[16] = {}, first_high_[16] = {};
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
