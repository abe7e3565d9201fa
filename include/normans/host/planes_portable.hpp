#pragma once
// Planes of 32 lanes in 128-bit registers: those of plane_registers.hpp, so that this serves every
// machine that has no planes of its own. Operations only; what they are used for is
// plane_lanes.hpp's business. Lanes are ascending everywhere.
// No flag of the compiler may change a result: estimates in double decide, and doubtful lanes go to
// the integers of core/float_bits.hpp and core/z_map.hpp.

#include <cstring>

#include "../core/stream.hpp"
#include "../core/z_map.hpp"
#include "lane_places.hpp"
#include "plane_registers.hpp"
#include "register_pack.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// R: the registers.
template <uint32_t N, class R>
struct register_planes {
    static constexpr uint32_t planes = N;
    static constexpr uint32_t lanes = 32 * N;
    static constexpr bool fast_tables = false;
    static constexpr bool few_registers = true;
    using float_mode = native_float_mode;
    using lane_set = lane_bits<N>;
    using word8 = typename R::word8;
    using int4 = typename R::int4;
    using float4 = typename R::float4;
    struct word_register {
        using type = typename R::word8;
    };
    struct int_register {
        using type = typename R::int4;
    };
    struct float_register {
        using type = typename R::float4;
    };
    using words = register_pack<word_register, 4 * N>;
    using ints = register_pack<int_register, 8 * N>;
    using floats = register_pack<float_register, 8 * N>;
    using mask = words;  // all ones or zero per lane

    // Memory. Places say where each run of eight lanes lies.

    static NORMANS_INLINE words load_words(const lane_places<const uint16_t>& from)
    {
        return words([&](int i) NORMANS_LAMBDA { return loaded<word8>(from[i]); });
    }
    static NORMANS_INLINE words load_words(const lane_places<const uint8_t>& from)
    {
        return words([&](int i) NORMANS_LAMBDA { return R::widened_bytes(from[i]); });
    }
    static NORMANS_INLINE floats load_floats(const lane_places<const float>& from)
    {
        return floats([&](int i)
                          NORMANS_LAMBDA { return loaded<float4>(from[i / 2] + i % 2 * 4); });
    }
    /// The first `runs` runs of eight lanes.
    static NORMANS_INLINE void store_words(const lane_places<uint16_t>& to, const words& x,
                                           uint32_t runs)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(4 * N); ++i) {
            if (uint32_t(i) < runs) std::memcpy(to[i], &x.v[i], sizeof x.v[i]);
        }
    }
    static NORMANS_INLINE void store_words(const lane_places<uint8_t>& to, const words& x,
                                           uint32_t runs)
    {
        NORMANS_UNROLL
        for (int i = 0; i < int(4 * N); ++i) {
            if (uint32_t(i) < runs) R::store_bytes(to[i], x.v[i]);
        }
    }
    static NORMANS_INLINE words load(const uint16_t* from)
    {
        return words([&](int i) NORMANS_LAMBDA { return loaded<word8>(from + 8 * i); });
    }
    static NORMANS_INLINE void store(uint16_t* to, const words& x) { put_all(to, x); }
    static NORMANS_INLINE floats load(const float* from)
    {
        return floats([&](int i) NORMANS_LAMBDA { return loaded<float4>(from + 4 * i); });
    }
    static NORMANS_INLINE ints load(const uint32_t* from)
    {
        return ints([&](int i) NORMANS_LAMBDA { return loaded<int4>(from + 4 * i); });
    }
    static NORMANS_INLINE void store(uint32_t* to, const ints& x) { put_all(to, x); }
    /// What keep() left, loaded where it is used: there are few registers.
    struct kept {
        const float* from;
        NORMANS_INLINE operator floats() const { return load(from); }
    };
    static NORMANS_INLINE kept load_kept(const float* from) { return {from}; }
    static NORMANS_INLINE void keep(float* to, const floats& x) { put_all(to, x); }

    // Words.

    static NORMANS_INLINE words set(uint32_t x)
    {
        return words([&](int) NORMANS_LAMBDA { return R::words_of(x); });
    }
    static NORMANS_INLINE words add(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return x.v[i] + y.v[i]; });
    }
    static NORMANS_INLINE words sub(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return x.v[i] - y.v[i]; });
    }
    static NORMANS_INLINE words sub_saturated(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return R::sub_saturated(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words mul_low(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return R::mul_low(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words mul_high(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return R::mul_high(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE words both(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return x.v[i] & y.v[i]; });
    }
    static NORMANS_INLINE words either(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return x.v[i] | y.v[i]; });
    }
    static NORMANS_INLINE words differ(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return x.v[i] ^ y.v[i]; });
    }
    static NORMANS_INLINE words without(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return x.v[i] & ~y.v[i]; });
    }
    template <int Bits>
    static NORMANS_INLINE words shl(const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA { return R::template shl<Bits>(x.v[i]); });
    }
    template <int Bits>
    static NORMANS_INLINE words shr(const words& x)
    {
        return words([&](int i) NORMANS_LAMBDA { return R::template shr<Bits>(x.v[i]); });
    }
    static NORMANS_INLINE words smaller(const words& x, const words& y)
    {
        return sub(x, sub_saturated(x, y));
    }
    static NORMANS_INLINE words larger(const words& x, const words& y)
    {
        return add(y, sub_saturated(x, y));
    }
    /// (x * y + 2^14) >> 15, signed.
    static NORMANS_INLINE words mul_rounded(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return R::mul_rounded(x.v[i], y.v[i]); });
    }
    /// (high << 1) | (low >> 15)
    static NORMANS_INLINE words join_shifted(const words& high, const words& low)
    {
        return either(shl<1>(high), shr<15>(low));
    }
    /// 1 << bits, bits < 16: as a float's exponent.
    static NORMANS_INLINE words power(const words& bits)
    {
        return narrow(truncate(floats_from_high(add(shl<7>(bits), set(one_bits >> 16)))));
    }
    /// x << bits and x >> bits; `power` is power(bits), bits < 16.
    static NORMANS_INLINE words shl(const words& x, const words&, const words& power)
    {
        return mul_low(x, power);
    }
    static NORMANS_INLINE words shr(const words& x, const words& bits, const words&)
    {
        // 2^16 / 2^bits is no word where bits is 0: those lanes stay as they are.
        const words none = equal(bits, set(0));
        return select(none, x, mul_high(x, register_planes::power(sub(set(16), bits))));
    }

    // Masks.

    static NORMANS_INLINE mask less(const words& x, const words& y)  // unsigned
    {
        return differ(not_less(x, y), set(0xffff));
    }
    static NORMANS_INLINE mask less_signed(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return R::less_signed(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE mask not_less(const words& x, const words& y)  // unsigned
    {
        return equal(sub_saturated(y, x), set(0));
    }
    static NORMANS_INLINE mask equal(const words& x, const words& y)
    {
        return words([&](int i) NORMANS_LAMBDA { return R::equal(x.v[i], y.v[i]); });
    }
    static NORMANS_INLINE mask negative(const words& x) { return less_signed(x, set(0)); }
    static NORMANS_INLINE words negate_where(const mask& m, const words& x)
    {
        return sub(differ(x, m), m);
    }
    static NORMANS_INLINE words minus_or_plus_one(const mask& minus)
    {
        return either(minus, set(1));
    }
    static NORMANS_INLINE mask join(const mask& x, const mask& y) { return either(x, y); }
    static NORMANS_INLINE mask differ_masks(const mask& x, const mask& y) { return differ(x, y); }
    static NORMANS_INLINE words select(const mask& m, const words& yes, const words& no)
    {
        return either(both(m, yes), without(no, m));
    }
    static NORMANS_INLINE words where(const mask& m, const words& x) { return both(m, x); }
    static NORMANS_INLINE words where_not(const mask& m, const words& x) { return without(x, m); }
    static NORMANS_INLINE lane_set to_bits(const mask& m)
    {
        lane_set out;
        NORMANS_UNROLL
        for (int n = 0; n < int(N); ++n)
            out.plane[n] = R::mask_bits(m.v[4 * n], m.v[4 * n + 1]) |
                           R::mask_bits(m.v[4 * n + 2], m.v[4 * n + 3]) << 16;
        return out;
    }
    static NORMANS_INLINE mask from_bits(const lane_set& bits)
    {
        const word8 one = {1, 2, 4, 8, 16, 32, 64, 128};
        return words([&](int i) NORMANS_LAMBDA {
            return R::equal(R::words_of(bits.plane[i / 4] >> (i % 4 * 8) & 255) & one, one);
        });
    }
    static NORMANS_INLINE bool any(const mask& m) { return R::any(joined(m)); }
    static NORMANS_INLINE bool any_zero(const words& x) { return any(equal(x, set(0))); }
    static NORMANS_INLINE bool any_above(const words& x, uint32_t limit)
    {
        // Nothing may be left of what lies above.
        return R::any(~R::equal(joined(sub_saturated(x, set(limit))), R::words_of(0)));
    }
    /// Of magnitudes: limit is positive.
    static NORMANS_INLINE bool any_above(const floats& x, float limit)
    {
        const ints magnitude = both(bits(x), set_int(~sign_bit));
        const int4 bound = R::ints_of(float_to_bits(limit));
        const ints above([&](int i)
                             NORMANS_LAMBDA { return R::less_signed(bound, magnitude.v[i]); });
        return R::any(joined(above));
    }

    // Tables.

    /// 16 words, looked up by index & 15.
    struct small_table {
        uint16_t word[16];
        explicit small_table(const uint16_t* from) { std::memcpy(word, from, sizeof word); }
        NORMANS_INLINE words operator()(const words& index) const
        {
            return looked_up(word, both(index, set(15)));
        }
    };

    /// 32 bytes, looked up by index & 31.
    struct byte_table {
        uint16_t word[32];
        explicit byte_table(const uint8_t* from)
        {
            for (int i = 0; i < 32; ++i) word[i] = from[i];
        }
        NORMANS_INLINE words operator()(const words& index) const
        {
            return looked_up(word, both(index, set(31)));
        }
    };

    /// 32 words, looked up by an index below 32.
    struct word_table {
        uint16_t word[32];
        explicit word_table(const uint16_t* from) { std::memcpy(word, from, sizeof word); }
        NORMANS_INLINE words operator()(const words& index) const
        {
            return looked_up(word, both(index, set(31)));
        }
    };

    /// A function of 32 straight pieces over signed words x, first piece at x = 0:
    /// base[x >> 11] + (low 11 bits of x) * rise[x >> 11] / 2^11. Rises are below 2^15.
    struct pieces {
        uint32_t piece[32];  // base | rise << 16
        pieces(const uint16_t* base, const uint16_t* rise)
        {
            for (uint32_t i = 0; i < 32; ++i) piece[i] = base[i] | uint32_t(rise[i]) << 16;
        }
        NORMANS_INLINE words operator()(const words& x) const
        {
            return words([&](int i) NORMANS_LAMBDA {
                const indices at(R::template shr<11>(x.v[i]));
                const word8 one = R::words_of(1 << 11);
                const word8 low = x.v[i] & R::words_of((1 << 11) - 1);
                return R::high_words(piece_at(at.first(piece), R::join_first(one, low)),
                                     piece_at(at.last(piece), R::join_last(one, low)));
            });
        }

    private:
        // base * 2^11 + low * rise is a sum of two products; its bits 11 to 26 are wanted.
        static NORMANS_INLINE int4 piece_at(const int4& base_and_rise, const int4& factors)
        {
            return R::template shl<5>(R::pair_sums(as<word8>(base_and_rise), as<word8>(factors)));
        }
    };

    // Floats and what lies between them and words.

    static NORMANS_INLINE floats set_float(float x)
    {
        return floats([&](int) NORMANS_LAMBDA { return R::floats_of(x); });
    }
    /// One value for each run of eight lanes.
    static NORMANS_INLINE floats spread(const float* value)
    {
        return floats([&](int i) NORMANS_LAMBDA { return R::floats_of(value[i / 2]); });
    }
    /// Rounded once; what is below 2^-126 is a zero of its sign.
    static NORMANS_INLINE floats mul(const floats& x, const floats& y)
    {
        return floats([&](int i) NORMANS_LAMBDA { return R::multiply(x.v[i], y.v[i]); });
    }
    /// Of what keep() left.
    static NORMANS_INLINE floats mul(const float* x, const float* y)
    {
        return mul(load(x), load(y));
    }
    /// For guesses only: rounded in any way.
    static NORMANS_INLINE floats fma(const floats& x, const floats& y, const floats& z)
    {
        return floats([&](int i) NORMANS_LAMBDA { return R::fma(x.v[i], y.v[i], z.v[i]); });
    }
    static NORMANS_INLINE floats reciprocal(const floats& x)
    {
        return floats([&](int i) NORMANS_LAMBDA { return R::floats_of(1.0f) / x.v[i]; });
    }
    static NORMANS_INLINE ints bits(const floats& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return as<int4>(x.v[i]); });
    }
    static NORMANS_INLINE floats as_floats(const ints& x)
    {
        return floats([&](int i) NORMANS_LAMBDA { return as<float4>(x.v[i]); });
    }
    static NORMANS_INLINE floats to_floats(const ints& x)  // signed
    {
        return floats([&](int i) NORMANS_LAMBDA { return R::to_floats(x.v[i]); });
    }
    static NORMANS_INLINE ints truncate(const floats& x)  // beyond 2^31: anything
    {
        return ints([&](int i) NORMANS_LAMBDA { return R::truncate(x.v[i]); });
    }
    static NORMANS_INLINE ints set_int(uint32_t x)
    {
        return ints([&](int) NORMANS_LAMBDA { return R::ints_of(x); });
    }
    static NORMANS_INLINE ints add(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return x.v[i] + y.v[i]; });
    }
    static NORMANS_INLINE ints sub(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return x.v[i] - y.v[i]; });
    }
    static NORMANS_INLINE ints both(const ints& x, const ints& y)
    {
        return ints([&](int i) NORMANS_LAMBDA { return x.v[i] & y.v[i]; });
    }
    static NORMANS_INLINE ints select(const ints& m, const ints& yes, const ints& no)
    {
        return ints([&](int i)
                        NORMANS_LAMBDA { return (m.v[i] & yes.v[i]) | (no.v[i] & ~m.v[i]); });
    }
    template <int Bits>
    static NORMANS_INLINE ints shl(const ints& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return R::template shl<Bits>(x.v[i]); });
    }
    template <int Bits>
    static NORMANS_INLINE ints shr(const ints& x)
    {
        return ints([&](int i) NORMANS_LAMBDA { return R::template shr<Bits>(x.v[i]); });
    }
    /// Words above `low`.
    static NORMANS_INLINE floats floats_from_high(const words& x, uint32_t low = 0)
    {
        return as_floats(interleave(set(low), x));
    }
    static NORMANS_INLINE ints widen(const words& x) { return interleave(x, set(0)); }
    static NORMANS_INLINE ints interleave(const words& low, const words& high)
    {
        return ints([&](int i) NORMANS_LAMBDA {
            return i % 2 == 0 ? R::join_first(low.v[i / 2], high.v[i / 2])
                              : R::join_last(low.v[i / 2], high.v[i / 2]);
        });
    }
    static NORMANS_INLINE ints widen_mask(const mask& m) { return interleave(m, m); }
    /// The high half of each int.
    static NORMANS_INLINE words high_words(const ints& x)
    {
        return words([&](int i)
                         NORMANS_LAMBDA { return R::high_words(x.v[2 * i], x.v[2 * i + 1]); });
    }
    static NORMANS_INLINE words high_words(const floats& x) { return high_words(bits(x)); }
    /// Ints below 2^16.
    static NORMANS_INLINE words narrow(const ints& x)
    {
        return words([&](int i)
                         NORMANS_LAMBDA { return R::low_words(x.v[2 * i], x.v[2 * i + 1]); });
    }

    // The model's arithmetic.

    /// map_mean. A sum in double is right unless it was rounded itself and lies within an ulp of a
    /// tie; those lanes, and whatever is zero, huge or no number, go to the integers.
    static NORMANS_INLINE floats map_means(const floats& mean, const float* a, const float* b)
    {
        floats out;
        const ints doubt([&](int i) NORMANS_LAMBDA {
            int4 low;
            out.v[i] = R::sum_in_double(in_double(mean, i), in_double(kept{a}, i),
                                        in_double(kept{b}, i), low);
            return near_half(low) | unusual(mean.v[i]) | unusual(out.v[i]);
        });
        if (R::any(joined(doubt))) {  // on copies: what a call may touch cannot stay in registers
            cold_means cold{mean, doubt, out};
            mend_means(cold, a, b);
            out = cold.out;
        }
        return out;
    }
    /// z_of for all lanes (always clamped): a double estimate in units of 2^-15, integers where it
    /// lies near a tie. Slope and product are floats or kept ones.
    template <bool, class Slope, class Product>
    static NORMANS_INLINE words round_z(const floats& edge, const Slope& slope,
                                        const Product& product)
    {
        const ints z([&](int i) NORMANS_LAMBDA {
            return R::z_in_double(in_double(edge, i), in_double(slope, i), in_double(product, i));
        });
        words out([&](int i) NORMANS_LAMBDA { return R::rounded(z.v[2 * i], z.v[2 * i + 1]); });
        const ints doubt([&](int i) NORMANS_LAMBDA { return near_tie(z.v[i]); });
        if (R::any(joined(doubt))) {
            cold_z cold{edge, slope, product, doubt, out};
            mend_z(cold);
            out = cold.out;
        }
        return out;
    }
    /// slope8[index & 7] - ((index >> 3) << 23), as floats.
    static NORMANS_INLINE floats slopes(const words& index, const uint32_t* slope8)
    {
        return as_floats(sub(ints_looked_up(slope8, both(index, set(7))),
                             shl<23>(widen(shr<3>(index)))));
    }
    static NORMANS_INLINE floats gather(const float* table, const words& index)
    {
        return as_floats(ints_looked_up(table, index));
    }
    /// high << 16 | low divided by freq: the quotient or one less. The dividend is below
    /// freq * 2^16, freq in [1, 2^15]. Aimed low by 2^-20; conversion, quotient and product round
    /// by 2^-24 each, or 2^-22 where a compiler is allowed to divide by reciprocals. Never above
    /// the quotient, and below it by less than 2^16 * 2^-19 = 2^-3.
    static NORMANS_INLINE words quotient(const words& high, const words& low, const words& freq)
    {
        const auto at = [](const int4& dividend, const int4& divisor) NORMANS_LAMBDA {
            const float4 below = R::floats_of(1.0f - 0x1p-20f) / R::to_floats(divisor);
            return R::truncate(R::multiply(R::to_floats(dividend), below));
        };
        const word8 zero = R::words_of(0);
        return words([&](int i) NORMANS_LAMBDA {
            return R::low_words(
                at(R::join_first(low.v[i], high.v[i]), R::join_first(freq.v[i], zero)),
                at(R::join_last(low.v[i], high.v[i]), R::join_last(freq.v[i], zero)));
        });
    }
    /// Sums over pairs of neighbouring lanes.
    using squares = register_pack<int_register, 4 * N>;
    static NORMANS_INLINE squares no_squares()
    {
        return squares([](int) NORMANS_LAMBDA { return R::ints_of(0); });
    }
    /// |x| <= 2^13
    static NORMANS_INLINE squares add_squares(const squares& sum, const words& x)
    {
        return squares([&](int i)
                           NORMANS_LAMBDA { return sum.v[i] + R::pair_sums(x.v[i], x.v[i]); });
    }
    static NORMANS_INLINE void store_squares(uint32_t* to, const squares& x) { put_all(to, x); }

    // Words of the stream: a reader or writer for every `each` lanes.

    /// The next words of the readers, one for each set lane in ascending order, 0 elsewhere. Every
    /// reader holds `each` words.
    static NORMANS_INLINE words take(word_reader* readers, uint32_t each, const mask& m)
    {
        const lane_set wanted = to_bits(m);
        words out;
        NORMANS_UNROLL
        for (uint32_t i = 0; i < 4 * N; ++i) {
            const uint32_t run = wanted.plane[i / 4] >> (8 * (i % 4)) & 255;
            const uint8_t*& from = readers[8 * i / each].next;
            const uint8_t* const at = detail::run_moves_of.expand[run];
            const auto word = [&](int lane) NORMANS_LAMBDA {
                return uint16_t(detail::load_word(from + 2 * at[lane]));
            };
            out.v[i] = m.v[i] & word8{word(0), word(1), word(2), word(3),
                                      word(4), word(5), word(6), word(7)};
            from += detail::run_moves_of.bytes[run];
        }
        return out;
    }
    /// Writes the set lanes, so that they ascend in memory. Every writer holds `each` words; what
    /// lies below them is free.
    static NORMANS_INLINE void put(word_writer* writers, uint32_t each, const mask& m,
                                   const words& x)
    {
        const lane_set given = to_bits(m);
        uint16_t word[lanes];
        store(word, x);
        NORMANS_UNROLL
        for (uint32_t n = 0; n < 4 * N; ++n) {
            const uint32_t i = 4 * N - 1 - n;
            const uint32_t run = given.plane[i / 4] >> (8 * (i % 4)) & 255;
            uint8_t*& to = writers[8 * i / each].next;
            const uint8_t* const at = detail::run_moves_of.compress[run];
            for (uint32_t lane = 0; lane < 8; ++lane)
                detail::store_word(to - 16 + 2 * lane, word[8 * i + at[lane]]);
            to -= detail::run_moves_of.bytes[run];
        }
    }

private:
    template <class Register>
    static NORMANS_INLINE Register loaded(const void* from)
    {
        Register out;
        std::memcpy(&out, from, sizeof out);
        return out;
    }
    template <class Pack>
    static NORMANS_INLINE void put_all(void* to, const Pack& x)
    {
        NORMANS_UNROLL
        for (int i = 0; i < Pack::Count; ++i)
            std::memcpy(static_cast<char*>(to) + 16 * i, &x.v[i], sizeof x.v[i]);
    }
    template <class To, class From>
    static NORMANS_INLINE To as(const From& x)
    {
        return loaded<To>(&x);
    }
    // All registers of a pack, or-ed.
    template <class Pack>
    static NORMANS_INLINE typename Pack::type joined(const Pack& x)
    {
        return joined(x, std::make_integer_sequence<int, Pack::Count - 1>{});
    }
    template <class Pack, int... I>
    static NORMANS_INLINE typename Pack::type joined(const Pack& x,
                                                     std::integer_sequence<int, I...>)
    {
        typename Pack::type all = x.v[0];
        ((all = all | x.v[I + 1]), ...);
        return all;
    }
    // Eight lanes' places in a table.
    struct indices {
        uint16_t at[8];

        explicit NORMANS_INLINE indices(const word8& index)
        {
            std::memcpy(at, &index, sizeof at);
            NORMANS_OPAQUE(at);  // one load each is cheaper than taking a register apart
        }
        NORMANS_INLINE word8 words_of(const uint16_t* table) const
        {
            return word8{table[at[0]], table[at[1]], table[at[2]], table[at[3]],
                         table[at[4]], table[at[5]], table[at[6]], table[at[7]]};
        }
        // Of a table of four bytes each.
        template <class T>
        NORMANS_INLINE int4 first(const T* table) const
        {
            static_assert(sizeof(T) == sizeof(uint32_t));
            return int4{loaded<uint32_t>(table + at[0]), loaded<uint32_t>(table + at[1]),
                        loaded<uint32_t>(table + at[2]), loaded<uint32_t>(table + at[3])};
        }
        template <class T>
        NORMANS_INLINE int4 last(const T* table) const
        {
            return int4{loaded<uint32_t>(table + at[4]), loaded<uint32_t>(table + at[5]),
                        loaded<uint32_t>(table + at[6]), loaded<uint32_t>(table + at[7])};
        }
    };
    static NORMANS_INLINE words looked_up(const uint16_t* table, const words& index)
    {
        return words([&](int i) NORMANS_LAMBDA { return indices(index.v[i]).words_of(table); });
    }
    template <class T>
    static NORMANS_INLINE ints ints_looked_up(const T* table, const words& index)
    {
        indices at(index.v[0]);
        return ints([&](int i) NORMANS_LAMBDA {
            if (i % 2 == 0) at = indices(index.v[i / 2]);
            return i % 2 == 0 ? at.first(table) : at.last(table);
        });
    }

    // One register's lanes.
    static NORMANS_INLINE auto in_double(const floats& x, int i) { return R::in_double(x.v[i]); }
    static NORMANS_INLINE auto in_double(const kept& x, int i)
    {
        return R::in_double(x.from + 4 * i);
    }
    // x - first < count, unsigned; count > 0.
    static NORMANS_INLINE int4 within(const int4& x, uint32_t first, uint32_t count)
    {
        return R::less_signed(x - R::ints_of(first + sign_bit), R::ints_of(count + sign_bit));
    }
    // The bits of a double that fp32 has not lie within one of a half.
    static NORMANS_INLINE int4 near_half(const int4& low)
    {
        return within(R::template shl<3>(low), 0x0fffffff << 3, 3 << 3);
    }
    // Anything but normal numbers well inside the range.
    static NORMANS_INLINE int4 unusual(const float4& x)
    {
        constexpr uint32_t field = 1u << 24;  // the sign shifted out
        const int4 bits = as<int4>(x);
        return within(bits + bits, 254 * field, 4 * field);
    }
    // z within 2^-10 of a tie, by which the rounding to fp32 moves it at most (beyond 2^15, where
    // that is not so, both sides of a tie are clamped), and two roundings of the estimate.
    static NORMANS_INLINE int4 near_tie(const int4& z)
    {
        return within(R::template shl<17>(z), uint32_t(16384 - 34) << 17, 69u << 17);
    }

    // Steps with doubtful lanes.
    struct cold_means {
        floats mean;
        ints doubt;
        floats out;
    };
    struct cold_z {
        floats edge, slope, product;
        ints doubt;
        words out;
    };
    NORMANS_NOINLINE static void mend_means(cold_means& step, const float* a, const float* b)
    {
        for (int i = 0; i < floats::Count; ++i) {
            if (!R::any(step.doubt.v[i])) continue;
            const float4 x = step.mean.v[i];
            const int4 left = step.doubt.v[i] & (unusual(x) | unusual(step.out.v[i]) |
                                                 R::sum_is_inexact(in_double(step.mean, i),
                                                                   in_double(kept{a}, i),
                                                                   in_double(kept{b}, i)));
            for (int k = 0; k < 4; ++k)
                if (left[k] != 0)
                    step.out.v[i][k] = bits_to_float(
                        map_mean(float_to_bits(x[k]), float_to_bits(a[4 * i + k]),
                                 float_to_bits(b[4 * i + k])));
        }
    }
    NORMANS_NOINLINE static void mend_z(cold_z& step)
    {
        for (int i = 0; i < floats::Count; ++i) {
            if (!R::any(step.doubt.v[i])) continue;
            for (int k = 0; k < 4; ++k)
                if (step.doubt.v[i][k] != 0)
                    step.out.v[i / 2][i % 2 * 4 + k] = uint16_t(z_exact(
                        float_to_bits(step.edge.v[i][k]), float_to_bits(step.slope.v[i][k]),
                        float_to_bits(step.product.v[i][k]) ^ sign_bit));
        }
    }
};

/// Registers as the machine has them.
template <uint32_t N>
using portable_planes = register_planes<N, native_registers>;

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
