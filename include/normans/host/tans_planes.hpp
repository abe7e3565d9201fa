#pragma once
// tANS of int8 and int4 in registers, of AVX2 or AVX-512: whole steps of 8, 16 or 32 lanes. Words,
// order and arithmetic are tans_step.hpp's; what is left of a batch (the last step, steps near the
// end of the words) is tans_loop.hpp's, on the same state. Include it only where the compiler
// targets AVX2.

#include "tans_loop.hpp"
#include "tans_plane_rows.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

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

/// The lanes of a step in registers.
template <class V, uint32_t Lanes>
struct tans_plane_lanes {
    static constexpr uint32_t count = Lanes / V::width;
    using type = typename V::type;

    type v[count];

    template <class Function>
    static NORMANS_INLINE tans_plane_lanes each(Function f)
    {
        tans_plane_lanes x;
        NORMANS_UNROLL
        for (uint32_t k = 0; k < count; ++k) x.v[k] = f(k, k * V::width);
        return x;
    }
    static NORMANS_INLINE tans_plane_lanes load(const uint32_t* from)
    {
        return each([&](uint32_t, uint32_t lane) NORMANS_LAMBDA { return V::load(from + lane); });
    }
    NORMANS_INLINE void store(uint32_t* to) const
    {
        NORMANS_UNROLL
        for (uint32_t k = 0; k < count; ++k) V::store(to + k * V::width, v[k]);
    }
    /// Reads Lanes words at most.
    NORMANS_INLINE void refill(word_reader& words)
    {
        const uint8_t* from = words.next;
        NORMANS_UNROLL
        for (uint32_t k = 0; k < count; ++k) V::refill(v[k], from);
        words.next = from;
    }
    /// Low bits to the reservoirs, which give a word before if they must.
    NORMANS_INLINE void give(const tans_plane_lanes& by, const tans_plane_lanes& value,
                             uint8_t*& to)
    {
        NORMANS_UNROLL
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t k = count - 1 - i;
            V::spill(v[k], by.v[k], to);
            v[k] = V::either(V::shl(v[k], by.v[k]), value.v[k]);
        }
    }
};

/// f(V, lanes) for as many lanes as registers are good for.
template <class Function>
NORMANS_INLINE void with_tans_registers(uint32_t lanes, Function f)
{
    using std::integral_constant;
#if NORMANS_AVX512
    using most = tans_avx512;
#else
    using most = tans_avx2;
#endif
    if (lanes == 32) f(most{}, integral_constant<uint32_t, 32>{});
    else if (lanes == 16) f(most{}, integral_constant<uint32_t, 16>{});
    else if (lanes == 8) f(tans_avx2{}, integral_constant<uint32_t, 8>{});
}

/// tans_decoding, whole steps in registers.
class tans_plane_decoding : tans_avx2 {
public:
    using rows_type = tans_plane_rows;

    tans_plane_decoding(const tans_bank& bank, scalar_format format) : rest_(bank, format) {}

    bool run(const tans_plane_rows& rows, uint32_t count, tans_state& x, word_reader& words,
             uint8_t* codes) const
    {
        symbols found;
        uint32_t done = 0;
        with_tans_registers(x.lanes, [&](auto registers, auto lanes) NORMANS_LAMBDA {
            done = steps<decltype(registers), decltype(lanes)::value>(rows, count, x, words, found);
        });
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

    // Scalars in as many whole steps as the words surely suffice for.
    template <class V, uint32_t Lanes>
    uint32_t steps(const tans_plane_rows& rows, uint32_t count, tans_state& x, word_reader& words,
                   symbols& to) const
    {
        using set = tans_plane_lanes<V, Lanes>;
        const tans_cell* const cells = rest_.cells;
        const uint32_t table_bits = rows.table_bits;
        set cell = set::load(x.cell), bits = set::load(x.bits);
        word_reader reader = words;
        uint32_t done = 0;
        for (; done + Lanes <= count && reader.holds(2 * Lanes); done += Lanes) {
            set symbol;
            NORMANS_UNROLL
            for (uint32_t k = 0; k < set::count; ++k) {
                const auto row = V::shl(V::widen(rows.row + done + k * V::width), table_bits);
                const auto at = V::template fetch<4>(cells, V::add(row, cell.v[k]));
                const auto by = V::third_byte(at);
                cell.v[k] = V::add(V::both(at, V::all(0xffff)), V::low_bits(bits.v[k], by));
                bits.v[k] = V::shr(bits.v[k], by);
                symbol.v[k] = V::template shr<24>(at);
            }
            bits.refill(reader);
            V::store_bytes(to.symbol + done, symbol.v);
            const bool escaped = any_zero<Lanes>(to.symbol + done);
            if (escaped || (rows.grouped && any_set<Lanes>(rows.raw + done)))
                take_raw<V>(rows, done, escaped, bits, reader, to);
        }
        words = reader;
        cell.store(x.cell);
        bits.store(x.bits);
        return done;
    }

    template <uint32_t Lanes>
    static NORMANS_INLINE uint32_t zeros(const uint8_t* bytes)
    {
        const __m256i none = _mm256_cmpeq_epi8(load(bytes), _mm256_setzero_si256());
        const uint32_t which = uint32_t(_mm256_movemask_epi8(none));
        return which & uint32_t((uint64_t(1) << Lanes) - 1);
    }
    template <uint32_t Lanes>
    static NORMANS_INLINE bool any_zero(const uint8_t* bytes)
    {
        return zeros<Lanes>(bytes) != 0;
    }
    template <uint32_t Lanes>
    static NORMANS_INLINE bool any_set(const uint8_t* bytes)
    {
        return zeros<Lanes>(bytes) != uint32_t((uint64_t(1) << Lanes) - 1);
    }

    // The raw bits of a step.
    template <class V, class Set>
    NORMANS_INLINE void take_raw(const tans_plane_rows& rows, uint32_t done, bool escaped,
                                 Set& bits, word_reader& words, symbols& to) const
    {
        if (!to.any_raw) std::memset(to.raw, 0, sizeof to.raw);
        to.any_raw = true;
        const uint8_t* count = rows.raw + done;
        alignas(32) uint8_t with_escapes[32];
        if (escaped) {
            const __m256i none = _mm256_setzero_si256();
            store(with_escapes,
                  _mm256_blendv_epi8(rows.grouped ? load(count) : none, all_bytes(rest_.code_bits),
                                     _mm256_cmpeq_epi8(load(to.symbol + done), none)));
            count = with_escapes;
        }
        Set raw;
        NORMANS_UNROLL
        for (uint32_t k = 0; k < Set::count; ++k) {
            const auto by = V::widen(count + k * V::width);
            raw.v[k] = V::low_bits(bits.v[k], by);
            bits.v[k] = V::shr(bits.v[k], by);
        }
        bits.refill(words);
        V::store_bytes(to.raw + done, raw.v);
    }

    // Codes of the first `count` symbols; false if one stands for none. Groups are counted from
    // -128, so that a byte that leaves its range saturates.
    bool finish(const tans_plane_rows& rows, const symbols& from, uint32_t count,
                uint8_t* codes) const
    {
        alignas(32) static constexpr uint8_t within[64] = {
            255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
            255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
        const __m256i sign = all_bytes(rest_.sign), lowest = all_bytes(128);
        __m256i highest = all_bytes(2 * rest_.sign - 1), outside = _mm256_setzero_si256();
        for (uint32_t i = 0; i < count; i += 32) {
            const __m256i symbol = load(from.symbol + i);
            const __m256i away =
                _mm256_sign_epi8(_mm256_xor_si256(symbol, lowest), load(rows.direction + i));
            const __m256i group = _mm256_xor_si256(load(rows.group + i), lowest);
            const __m256i sum = _mm256_add_epi8(group, away);
            __m256i index = _mm256_xor_si256(sum, lowest), raw = _mm256_setzero_si256();
            if (from.any_raw) raw = load(from.raw + i);
            if (rows.grouped) highest = highest_group(load(rows.raw + i));
            __m256i wrong = _mm256_or_si256(
                _mm256_xor_si256(sum, _mm256_adds_epi8(group, away)),
                _mm256_subs_epu8(index, highest));
            if (rows.grouped) index = _mm256_or_si256(shifted(index, load(rows.raw + i)), raw);
            __m256i code = _mm256_xor_si256(index, sign);
            if (from.any_raw) {
                const __m256i escaped = _mm256_cmpeq_epi8(symbol, _mm256_setzero_si256());
                code = _mm256_blendv_epi8(code, raw, escaped);
                wrong = _mm256_andnot_si256(escaped, wrong);
            }
            if (i + 32 > count)
                wrong = _mm256_and_si256(wrong, load(within + 32 - (count - i)));
            outside = _mm256_or_si256(outside, wrong);
            store(codes + i, code);
        }
        return _mm256_testz_si256(outside, outside) != 0;
    }

    // The last group that there is, and a group's first code, both counted from the lowest.
    NORMANS_INLINE __m256i highest_group(__m256i group_bits) const
    {
        alignas(16) static constexpr uint8_t most[2][16] = {{15, 7, 3, 1, 0, 0, 0},
                                                            {255, 127, 63, 31, 15, 7, 3}};
        return _mm256_shuffle_epi8(table(most[rest_.code_bits / 8]), group_bits);
    }
    static NORMANS_INLINE __m256i shifted(__m256i index, __m256i group_bits)
    {
        alignas(16) static constexpr uint8_t powers[16] = {1, 2, 4, 8, 16, 32, 64};
        const __m256i by = _mm256_shuffle_epi8(table(powers), group_bits), even = all_words(255);
        return _mm256_or_si256(
            _mm256_and_si256(_mm256_mullo_epi16(index, _mm256_and_si256(by, even)), even),
            _mm256_mullo_epi16(_mm256_srli_epi16(index, 8), _mm256_andnot_si256(even, by)));
    }

    tans_decoding rest_;
};

/// tans_encoding, whole steps in registers.
class tans_plane_encoding : tans_avx2 {
public:
    tans_plane_encoding(const tans_bank& bank, scalar_format format) : rest_(bank, format) {}

    uint32_t run(const tans_plane_rows& rows, uint32_t count, const uint8_t* codes, tans_state& x,
                 word_writer& words) const
    {
        // Where two words a scalar have no room, nothing is done here.
        const uint32_t whole = words.holds(2 * count) && x.lanes >= 8 ? count - count % x.lanes : 0;
        uint32_t escapes = rest_.run(rows, whole, count, codes, x, words);
        if (whole == 0) return escapes;
        prepared found;
        escapes += rows.grouped ? prepare<true>(rows, whole, codes, found)
                                : prepare<false>(rows, whole, codes, found);
        with_tans_registers(x.lanes, [&](auto registers, auto lanes) NORMANS_LAMBDA {
            steps<decltype(registers), decltype(lanes)::value>(rows, whole, found, codes, x, words);
        });
        return escapes;
    }

private:
    // What the lanes' states do not change.
    struct prepared {
        alignas(64) uint32_t entry[tans_batch];  // the symbols' start and freq
        alignas(64) uint8_t raw[tans_batch];     // bits
    };

    // Returns the escapes.
    template <bool Grouped>
    uint32_t prepare(const tans_plane_rows& rows, uint32_t count, const uint8_t* codes,
                     prepared& to) const
    {
        constexpr int middle = int(bank_symbols) / 2;
        const __m256i zero = _mm256_setzero_si256(), lowest = all_bytes(128);
        const __m256i sign = all_bytes(rest_.sign);
        uint32_t escapes = 0;
        for (uint32_t i = 0; i < count; i += 32) {
            __m256i index = _mm256_xor_si256(load(codes + i), sign), raw = zero;
            if (Grouped) {
                raw = load(rows.raw + i);
                index = shifted_down(index, raw);
            }
            // Saturated, which is far away too.
            const __m256i away = _mm256_sign_epi8(
                _mm256_subs_epi8(_mm256_xor_si256(index, lowest),
                                 _mm256_xor_si256(load(rows.group + i), lowest)),
                load(rows.direction + i));
            const __m256i place = _mm256_add_epi8(away, all_bytes(middle - 1));
            const __m256i within =
                _mm256_cmpeq_epi8(_mm256_min_epu8(place, all_bytes(2 * middle - 2)), place);
            const __m256i symbol =
                _mm256_and_si256(_mm256_add_epi8(place, all_bytes(1)), within);
            const __m256i halves = _mm256_permute4x64_epi64(symbol, 0xd8);
            const __m256i each = all_words(bank_symbols);
            const __m256i first[2] = {_mm256_mullo_epi16(load(rows.row + i), each),
                                      _mm256_mullo_epi16(load(rows.row + i + 16), each)};
            const __m256i at[2] = {
                _mm256_add_epi16(first[0], _mm256_unpacklo_epi8(halves, zero)),
                _mm256_add_epi16(first[1], _mm256_unpackhi_epi8(halves, zero))};
            __m256i entry[4], none[4];
            NORMANS_UNROLL
            for (int k = 0; k < 4; ++k) {
                entry[k] = entries(eight_words(at[k / 2], k % 2));
                none[k] = _mm256_cmpgt_epi32(all(0x10000), entry[k]);  // freq 0
            }
            const __m256i escaped = _mm256_or_si256(_mm256_cmpeq_epi8(symbol, zero),
                                                    flags_of(none));
            uint32_t which = uint32_t(_mm256_movemask_epi8(escaped));
            if (count - i < 32) which &= (1u << (count - i)) - 1;
            if (which != 0) {
                escapes += uint32_t(_mm_popcnt_u32(which));
                raw = _mm256_blendv_epi8(raw, all_bytes(rest_.code_bits), escaped);
                NORMANS_UNROLL
                for (int k = 0; k < 4; ++k)
                    entry[k] = _mm256_blendv_epi8(
                        entry[k], entries(eight_words(first[k / 2], k % 2)), none[k]);
            }
            NORMANS_UNROLL
            for (int k = 0; k < 4; ++k) store(to.entry + i + 8 * k, entry[k]);
            store(to.raw + i, raw);
        }
        return escapes;
    }

    NORMANS_INLINE __m256i entries(__m256i index) const
    {
        static_assert(sizeof(tans_symbol) == 6, "start and freq are the first two words");
        return fetch<2>(rest_.bank.symbols,
                        _mm256_add_epi32(index, _mm256_add_epi32(index, index)));
    }
    static NORMANS_INLINE __m256i eight_words(__m256i x, int half)
    {
        return _mm256_cvtepu16_epi32(half == 0 ? _mm256_castsi256_si128(x)
                                               : _mm256_extracti128_si256(x, 1));
    }
    // Masks of 32 bits to masks of 8.
    static NORMANS_INLINE __m256i flags_of(const __m256i (&x)[4])
    {
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        return _mm256_permutevar8x32_epi32(
            _mm256_packs_epi16(_mm256_packs_epi32(x[0], x[1]),
                               _mm256_packs_epi32(x[2], x[3])),
            order);
    }
    static NORMANS_INLINE __m256i shifted_down(__m256i index, __m256i by)
    {
        // Of 16 bits times 2^(8 - by) the upper byte.
        alignas(16) static constexpr uint8_t power[16] = {0, 128, 64, 32, 16, 8, 4};
        const __m256i none = _mm256_cmpeq_epi8(by, _mm256_setzero_si256()), low = all_words(255);
        const __m256i factor = _mm256_shuffle_epi8(table(power), by);
        const __m256i even = _mm256_srli_epi16(
            _mm256_mullo_epi16(_mm256_and_si256(index, low), _mm256_and_si256(factor, low)), 8);
        const __m256i odd =
            _mm256_mullo_epi16(_mm256_srli_epi16(index, 8), _mm256_srli_epi16(factor, 8));
        return _mm256_blendv_epi8(_mm256_or_si256(even, _mm256_andnot_si256(low, odd)), index,
                                  none);
    }

    template <class V, uint32_t Lanes>
    void steps(const tans_plane_rows& rows, uint32_t count, const prepared& found,
               const uint8_t* codes, tans_state& x, word_writer& words) const
    {
        using set = tans_plane_lanes<V, Lanes>;
        const uint32_t table_bits = rows.table_bits;
        set cell = set::load(x.cell), bits = set::load(x.bits);
        uint8_t* to = words.next;
        for (uint32_t first = count; first != 0;) {
            first -= Lanes;
            set by, value;
            if (any_raw<Lanes>(found.raw + first)) {
                NORMANS_UNROLL
                for (uint32_t k = 0; k < set::count; ++k) {
                    by.v[k] = V::widen(found.raw + first + k * V::width);
                    value.v[k] = V::low_bits(V::widen(codes + first + k * V::width), by.v[k]);
                }
                bits.give(by, value, to);
            }
            NORMANS_UNROLL
            for (uint32_t k = 0; k < set::count; ++k) {
                const uint32_t at = first + k * V::width;
                const auto entry = V::load(found.entry + at), freq = V::template shr<16>(entry);
                const auto start = V::both(entry, V::all(0xffff));
                const auto state = V::add(cell.v[k], V::all(1u << table_bits));
                // table_bits - log2(freq), or one less.
                const auto most = V::sub(V::all(table_bits + 127), V::float_field(freq));
                by.v[k] = V::less_where_below(most, V::shr(state, most), freq);
                value.v[k] = V::low_bits(cell.v[k], by.v[k]);
                const auto row = V::shl(V::widen(rows.row + at), table_bits);
                const auto counter = V::sub(V::shr(state, by.v[k]), freq);
                cell.v[k] = next_cells<V>(V::add(V::add(row, start), counter));
            }
            bits.give(by, value, to);
        }
        words.next = to;
        cell.store(x.cell);
        bits.store(x.bits);
    }

    template <uint32_t Lanes>
    static NORMANS_INLINE bool any_raw(const uint8_t* raw)
    {
        uint64_t some = 0;
        NORMANS_UNROLL
        for (uint32_t i = 0; i < Lanes; i += 8) some |= load_u64(raw + i);
        return some != 0;
    }

    // By pairs, so that nothing beyond the last is read.
    template <class V>
    NORMANS_INLINE typename V::type next_cells(typename V::type index) const
    {
        const auto pair = V::template fetch<4>(rest_.bank.next, V::template shr<1>(index));
        const auto odd = V::shl(V::both(index, V::all(1)), 4u);
        return V::both(V::shr(pair, odd), V::all(0xffff));
    }

    tans_encoding rest_;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
