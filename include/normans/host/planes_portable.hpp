#pragma once
// Planes of 32 lanes as plain arrays: every operation is a short loop, most of which any compiler
// turns into whatever SIMD it is allowed to use; the long ones are calls. Also what the operations
// of the other planes mean.
// Floats are rounded once at most between two barriers, and doubtful cases go to the integers of
// core/float_bits.hpp, so that no flag changes a result.

#include <cstring>

#include "../core/stream.hpp"
#include "../core/z_map.hpp"
#include "float_mode.hpp"
#include "lane_places.hpp"
#include "register_pack.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template <uint32_t N>
struct portable_planes {
    static constexpr uint32_t planes = N;
    static constexpr uint32_t lanes = 32 * N;
    static constexpr bool fast_tables = false;
    static constexpr bool few_registers = false;
    using float_mode = native_float_mode;
    using lane_set = lane_bits<N>;

    struct words {
        uint16_t lane[lanes];
    };
    struct floats {
        float lane[lanes];
    };
    struct ints {
        uint32_t lane[lanes];
    };
    using mask = words;  // all ones or zero per lane

    // Memory. Places say where each run of eight lanes lies.

    template <class Code>
    static NORMANS_INLINE words load_words(const lane_places<const Code>& from)
    {
        words out;
        for (uint32_t run = 0; run < lanes / 8; ++run)
            for (uint32_t i = 0; i < 8; ++i) out.lane[8 * run + i] = from[int(run)][i];
        return out;
    }
    static NORMANS_INLINE floats load_floats(const lane_places<const float>& from)
    {
        floats out;
        for (uint32_t run = 0; run < lanes / 8; ++run)
            std::memcpy(out.lane + 8 * run, from[int(run)], 8 * sizeof(float));
        return out;
    }
    /// The first `runs` runs of eight lanes.
    template <class Code>
    static NORMANS_INLINE void store_words(const lane_places<Code>& to, const words& x,
                                           uint32_t runs)
    {
        for (uint32_t run = 0; run < runs; ++run)
            for (uint32_t i = 0; i < 8; ++i) to[int(run)][i] = Code(x.lane[8 * run + i]);
    }
    static NORMANS_INLINE words load(const uint16_t* from) { return copied<words>(from); }
    static NORMANS_INLINE void store(uint16_t* to, const words& x)
    {
        std::memcpy(to, &x, sizeof x);
    }
    static NORMANS_INLINE floats load(const float* from) { return copied<floats>(from); }
    static NORMANS_INLINE ints load(const uint32_t* from) { return copied<ints>(from); }
    static NORMANS_INLINE void store(uint32_t* to, const ints& x) { std::memcpy(to, &x, sizeof x); }
    static NORMANS_INLINE floats load_kept(const float* from) { return load(from); }
    static NORMANS_INLINE void keep(float* to, const floats& x) { std::memcpy(to, &x, sizeof x); }

    // Words.

    static NORMANS_INLINE words set(uint32_t x)
    {
        return each([&](uint32_t) NORMANS_LAMBDA { return x; });
    }
    static NORMANS_INLINE words add(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] + y.lane[i]; });
    }
    static NORMANS_INLINE words sub(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] - y.lane[i]; });
    }
    static NORMANS_INLINE words sub_saturated(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA {
            return x.lane[i] > y.lane[i] ? x.lane[i] - y.lane[i] : 0;
        });
    }
    static NORMANS_INLINE words mul_low(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return uint32_t(x.lane[i]) * y.lane[i]; });
    }
    static NORMANS_INLINE words mul_high(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA {
            return uint32_t(x.lane[i]) * y.lane[i] >> 16;
        });
    }
    static NORMANS_INLINE words both(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] & y.lane[i]; });
    }
    static NORMANS_INLINE words either(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] | y.lane[i]; });
    }
    static NORMANS_INLINE words differ(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] ^ y.lane[i]; });
    }
    static NORMANS_INLINE words without(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] & ~y.lane[i]; });
    }
    template <int Bits>
    static NORMANS_INLINE words shl(const words& x)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] << Bits; });
    }
    template <int Bits>
    static NORMANS_INLINE words shr(const words& x)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] >> Bits; });
    }
    static NORMANS_INLINE words smaller(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA {
            return x.lane[i] < y.lane[i] ? x.lane[i] : y.lane[i];
        });
    }
    static NORMANS_INLINE words larger(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA {
            return x.lane[i] > y.lane[i] ? x.lane[i] : y.lane[i];
        });
    }
    /// (x * y + 2^14) >> 15, signed.
    static NORMANS_INLINE words mul_rounded(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA {
            return (int32_t(int16_t(x.lane[i])) * int16_t(y.lane[i]) + (1 << 14)) >> 15;
        });
    }
    /// (high << 1) | (low >> 15)
    static NORMANS_INLINE words join_shifted(const words& high, const words& low)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA {
            return high.lane[i] << 1 | low.lane[i] >> 15;
        });
    }
    /// 1 << bits, bits < 16.
    NORMANS_NOINLINE static words power(const words& bits)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return 1u << bits.lane[i]; });
    }
    /// x << bits and x >> bits; `power` is power(bits).
    static NORMANS_INLINE words shl(const words& x, const words& bits, const words&)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return uint32_t(x.lane[i]) << bits.lane[i]; });
    }
    static NORMANS_INLINE words shr(const words& x, const words& bits, const words&)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] >> bits.lane[i]; });
    }

    // Masks.

    static NORMANS_INLINE mask less(const words& x, const words& y)  // unsigned
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] < y.lane[i] ? ~0u : 0; });
    }
    static NORMANS_INLINE mask less_signed(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA {
            return int16_t(x.lane[i]) < int16_t(y.lane[i]) ? ~0u : 0;
        });
    }
    static NORMANS_INLINE mask not_less(const words& x, const words& y)  // unsigned
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] >= y.lane[i] ? ~0u : 0; });
    }
    static NORMANS_INLINE mask equal(const words& x, const words& y)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] == y.lane[i] ? ~0u : 0; });
    }
    static NORMANS_INLINE mask negative(const words& x)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] >> 15 != 0 ? ~0u : 0; });
    }
    static NORMANS_INLINE words negate_where(const mask& m, const words& x)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return (x.lane[i] ^ m.lane[i]) - m.lane[i]; });
    }
    static NORMANS_INLINE words minus_or_plus_one(const mask& minus)
    {
        return either(minus, set(1));
    }
    static NORMANS_INLINE mask join(const mask& x, const mask& y) { return either(x, y); }
    static NORMANS_INLINE mask differ_masks(const mask& x, const mask& y) { return differ(x, y); }
    static NORMANS_INLINE words select(const mask& m, const words& yes, const words& no)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA {
            return (yes.lane[i] & m.lane[i]) | (no.lane[i] & ~m.lane[i]);
        });
    }
    static NORMANS_INLINE words where(const mask& m, const words& x) { return both(m, x); }
    static NORMANS_INLINE words where_not(const mask& m, const words& x) { return without(x, m); }
    NORMANS_NOINLINE static lane_set to_bits(const mask& m)
    {
        lane_set out{};
        for (uint32_t i = 0; i < lanes; ++i) out.plane[i / 32] |= uint32_t(m.lane[i] & 1) << i % 32;
        return out;
    }
    NORMANS_NOINLINE static mask from_bits(const lane_set& bits)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA {
            return bits.plane[i / 32] >> i % 32 & 1 ? ~0u : 0;
        });
    }
    static NORMANS_INLINE bool any(const mask& m)
    {
        uint32_t all = 0;
        for (uint32_t i = 0; i < lanes; ++i) all |= m.lane[i];
        return all != 0;
    }
    static NORMANS_INLINE bool any_zero(const words& x) { return any(equal(x, set(0))); }
    static NORMANS_INLINE bool any_above(const words& x, uint32_t limit)
    {
        return any(less(set(limit), x));
    }
    /// Of magnitudes: limit is positive.
    NORMANS_NOINLINE static bool any_above(const floats& x, float limit)
    {
        const uint32_t bound = float_to_bits(limit);
        const ints all = bits(x);
        uint32_t above = 0;
        for (uint32_t i = 0; i < lanes; ++i) above |= (all.lane[i] & ~sign_bit) > bound;
        return above != 0;
    }

    // Tables.

    /// 16 words, looked up by index & 15.
    struct small_table {
        uint16_t word[16];
        explicit small_table(const uint16_t* from) { std::memcpy(word, from, sizeof word); }
        NORMANS_INLINE words operator()(const words& index) const
        {
            return each([&](uint32_t i) NORMANS_LAMBDA { return word[index.lane[i] & 15]; });
        }
    };

    /// 32 bytes, looked up by an index below 32.
    struct byte_table {
        uint8_t byte[32];
        explicit byte_table(const uint8_t* from) { std::memcpy(byte, from, sizeof byte); }
        NORMANS_INLINE words operator()(const words& index) const
        {
            return each([&](uint32_t i) NORMANS_LAMBDA { return byte[index.lane[i] & 31]; });
        }
    };

    /// 32 words, looked up by an index below 32.
    struct word_table {
        uint16_t word[32];
        explicit word_table(const uint16_t* from) { std::memcpy(word, from, sizeof word); }
        NORMANS_INLINE words operator()(const words& index) const
        {
            return each([&](uint32_t i) NORMANS_LAMBDA { return word[index.lane[i] & 31]; });
        }
    };

    /// A function of 32 straight pieces over signed words x, first piece at x = 0:
    /// base[x >> 11] + (low 11 bits of x) * rise[x >> 11] / 2^11.
    struct pieces {
        uint32_t piece[32];  // base | rise << 16
        pieces(const uint16_t* base, const uint16_t* rise)
        {
            for (uint32_t i = 0; i < 32; ++i) piece[i] = base[i] | uint32_t(rise[i]) << 16;
        }
        NORMANS_NOINLINE words operator()(const words& x) const
        {
            return each([&](uint32_t i) NORMANS_LAMBDA {
                const uint32_t at = piece[x.lane[i] >> 11];
                return at + ((x.lane[i] & 2047u) * (at >> 16) >> 11);
            });
        }
    };

    // Floats and what lies between them and words.

    static NORMANS_INLINE floats set_float(float x)
    {
        return each_float([&](uint32_t) NORMANS_LAMBDA { return x; });
    }
    /// One value for each run of eight lanes.
    static NORMANS_INLINE floats spread(const float* value)
    {
        return each_float([&](uint32_t i) NORMANS_LAMBDA { return value[i / 8]; });
    }
    /// Rounded once; what is below 2^-126 is a zero of its sign.
    NORMANS_NOINLINE static floats mul(const floats& x, const floats& y)
    {
        floats out = each_float([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] * y.lane[i]; });
        NORMANS_OPAQUE(out);
        const ints all = bits(out);
        return as_floats(each_int([&](uint32_t i) NORMANS_LAMBDA {
            return exponent_field(all.lane[i]) == 0 ? all.lane[i] & sign_bit : all.lane[i];
        }));
    }
    /// For guesses only: rounded in any way.
    /// Of what keep() left.
    static NORMANS_INLINE floats mul(const float* x, const float* y)
    {
        return mul(load(x), load(y));
    }
    static NORMANS_INLINE floats fma(const floats& x, const floats& y, const floats& z)
    {
        return each_float([&](uint32_t i) NORMANS_LAMBDA {
            return x.lane[i] * y.lane[i] + z.lane[i];
        });
    }
    static NORMANS_INLINE floats reciprocal(const floats& x)
    {
        return each_float([&](uint32_t i) NORMANS_LAMBDA { return 1.0f / x.lane[i]; });
    }
    static NORMANS_INLINE ints bits(const floats& x) { return copied<ints>(&x); }
    static NORMANS_INLINE floats as_floats(const ints& x) { return copied<floats>(&x); }
    static NORMANS_INLINE floats to_floats(const ints& x)
    {
        return each_float([&](uint32_t i) NORMANS_LAMBDA { return float(int32_t(x.lane[i])); });
    }
    static NORMANS_INLINE ints truncate(const floats& x)  // beyond 2^31: anything
    {
        return each_int([&](uint32_t i) NORMANS_LAMBDA {
            const float value = x.lane[i];
            return value > 2147483000.0f || !(value > -2147483000.0f) ? 0u
                                                                      : uint32_t(int32_t(value));
        });
    }
    static NORMANS_INLINE ints set_int(uint32_t x)
    {
        return each_int([&](uint32_t) NORMANS_LAMBDA { return x; });
    }
    static NORMANS_INLINE ints add(const ints& x, const ints& y)
    {
        return each_int([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] + y.lane[i]; });
    }
    static NORMANS_INLINE ints sub(const ints& x, const ints& y)
    {
        return each_int([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] - y.lane[i]; });
    }
    static NORMANS_INLINE ints both(const ints& x, const ints& y)
    {
        return each_int([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] & y.lane[i]; });
    }
    static NORMANS_INLINE ints select(const ints& m, const ints& yes, const ints& no)
    {
        return each_int([&](uint32_t i) NORMANS_LAMBDA {
            return (yes.lane[i] & m.lane[i]) | (no.lane[i] & ~m.lane[i]);
        });
    }
    template <int Bits>
    static NORMANS_INLINE ints shl(const ints& x)
    {
        return each_int([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] << Bits; });
    }
    template <int Bits>
    static NORMANS_INLINE ints shr(const ints& x)
    {
        return each_int([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] >> Bits; });
    }
    /// Words above `low`.
    static NORMANS_INLINE floats floats_from_high(const words& x, uint32_t low = 0)
    {
        return as_floats(each_int([&](uint32_t i) NORMANS_LAMBDA {
            return uint32_t(x.lane[i]) << 16 | low;
        }));
    }
    static NORMANS_INLINE ints widen(const words& x)
    {
        return each_int([&](uint32_t i) NORMANS_LAMBDA { return uint32_t(x.lane[i]); });
    }
    static NORMANS_INLINE ints widen_mask(const mask& m)
    {
        return each_int([&](uint32_t i) NORMANS_LAMBDA {
            return uint32_t(m.lane[i]) << 16 | m.lane[i];
        });
    }
    /// The high half of each int.
    static NORMANS_INLINE words high_words(const ints& x)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i] >> 16; });
    }
    static NORMANS_INLINE words high_words(const floats& x) { return high_words(bits(x)); }
    /// Ints below 2^16.
    static NORMANS_INLINE words narrow(const ints& x)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA { return x.lane[i]; });
    }

    // The model's arithmetic.

    /// map_mean. A sum in double is right unless it lies within an ulp of a tie; those lanes, and
    /// whatever is zero, huge or no number, go to the integers.
    NORMANS_NOINLINE static floats map_means(const floats& mean, const float* a, const float* b)
    {
        struct {
            double lane[lanes];
        } sum;
        for (uint32_t i = 0; i < lanes; ++i)
            sum.lane[i] = double(mean.lane[i]) * double(a[i]) + double(b[i]);
        NORMANS_OPAQUE(sum);
        floats out = each_float([&](uint32_t i) NORMANS_LAMBDA { return float(sum.lane[i]); });
        NORMANS_OPAQUE(out);
        const ints from = bits(mean), scale = bits(load(a)), to = bits(out);
        uint32_t doubt[lanes], any_doubt = 0;
        for (uint32_t i = 0; i < lanes; ++i) {
            const uint32_t below = uint32_t(double_to_bits(sum.lane[i])) & 0x1fffffff;
            doubt[i] = uint32_t(below - 0x0fffffffu <= 2) | uint32_t(ordinary(from.lane[i]) == 0) |
                       uint32_t(ordinary(scale.lane[i]) == 0) |
                       uint32_t(ordinary(to.lane[i]) == 0);
            any_doubt |= doubt[i];
        }
        if (any_doubt != 0) {
            for (uint32_t i = 0; i < lanes; ++i)
                if (doubt[i] != 0)
                    out.lane[i] = bits_to_float(
                        map_mean(from.lane[i], scale.lane[i], float_to_bits(b[i])));
        }
        return out;
    }
    /// z_of for all lanes (always clamped): a double estimate in units of 2^-15, integers where it
    /// lies near a tie.
    template <bool>
    NORMANS_NOINLINE static words round_z(const floats& edge, const floats& slope,
                                        const floats& product)
    {
        constexpr double shift = 206158430208.0;  // 1.5 * 2^37: the last place is 2^-15
        struct {
            double lane[lanes];
        } z;
        for (uint32_t i = 0; i < lanes; ++i) {
            const double exact =
                double(edge.lane[i]) * double(slope.lane[i]) - double(product.lane[i]);
            const double high = exact < 40000.0 ? exact : 40000.0;
            z.lane[i] = high > -40000.0 ? high : -40000.0;
        }
        NORMANS_OPAQUE(z);
        for (uint32_t i = 0; i < lanes; ++i) z.lane[i] += shift;
        NORMANS_OPAQUE(z);
        int32_t fixed[lanes];
        uint32_t doubt = 0;
        for (uint32_t i = 0; i < lanes; ++i) {
            fixed[i] = int32_t(uint32_t(double_to_bits(z.lane[i])));
            doubt |= near_tie(fixed[i]);
        }
        words out = each([&](uint32_t i) NORMANS_LAMBDA {
            const int32_t rounded = (fixed[i] + 16384) >> 15;
            const int32_t low = rounded < highest_z ? rounded : highest_z;
            return low > lowest_z ? low : lowest_z;
        });
        if (doubt != 0) {
            for (uint32_t i = 0; i < lanes; ++i)
                if (near_tie(fixed[i]))
                    out.lane[i] = uint16_t(z_exact(float_to_bits(edge.lane[i]),
                                                   float_to_bits(slope.lane[i]),
                                                   float_to_bits(product.lane[i]) ^ sign_bit));
        }
        return out;
    }
    /// slope8[index & 7] - ((index >> 3) << 23), as floats.
    NORMANS_NOINLINE static floats slopes(const words& index, const uint32_t* slope8)
    {
        return as_floats(each_int([&](uint32_t i) NORMANS_LAMBDA {
            return slope8[index.lane[i] & 7] - (uint32_t(index.lane[i]) >> 3 << 23);
        }));
    }
    NORMANS_NOINLINE static floats gather(const float* table, const words& index)
    {
        return each_float([&](uint32_t i) NORMANS_LAMBDA { return table[index.lane[i]]; });
    }
    /// high << 16 | low divided by freq: the quotient or one less. The dividend is below
    /// freq * 2^16, freq in [1, 2^15]. Aimed low by 2^-20; conversion, quotient and product round
    /// by 2^-24 each, or 2^-22 where a compiler is allowed to divide by reciprocals. Never above
    /// the quotient, and below it by less than 2^16 * 2^-19 = 2^-3.
    NORMANS_NOINLINE static words quotient(const words& high, const words& low, const words& freq)
    {
        return each([&](uint32_t i) NORMANS_LAMBDA {
            const uint32_t dividend = uint32_t(high.lane[i]) << 16 | low.lane[i];
            const float below = (1.0f - 0x1p-20f) / float(int32_t(freq.lane[i]));
            return uint32_t(int32_t(float(int32_t(dividend)) * below));
        });
    }
    /// Sums over pairs of neighbouring lanes.
    struct squares {
        uint32_t pair[lanes / 2];
    };
    static NORMANS_INLINE squares no_squares() { return {}; }
    /// |x| <= 2^13
    static NORMANS_INLINE squares add_squares(const squares& sum, const words& x)
    {
        squares out;
        for (uint32_t i = 0; i < lanes / 2; ++i) {
            const int32_t a = int16_t(x.lane[2 * i]), b = int16_t(x.lane[2 * i + 1]);
            out.pair[i] = sum.pair[i] + uint32_t(a * a + b * b);
        }
        return out;
    }
    static NORMANS_INLINE void store_squares(uint32_t* to, const squares& x)
    {
        std::memcpy(to, &x, sizeof x);
    }

    // Words of the stream: a reader or writer for every `each` lanes.

    /// The next words of the readers, one for each set lane in ascending order, 0 elsewhere. Every
    /// reader holds `each` words.
    NORMANS_NOINLINE static words take(word_reader* readers, uint32_t each_lanes, const mask& m)
    {
        words out;
        for (uint32_t first = 0; first < lanes; first += each_lanes) {
            word_reader& reader = readers[first / each_lanes];
            const uint8_t* from = reader.next;
            for (uint32_t i = first; i < first + each_lanes; ++i) {
                out.lane[i] = uint16_t(detail::load_word(from) & m.lane[i]);
                from += m.lane[i] & 2;
            }
            reader.next = from;
        }
        return out;
    }
    /// Writes the set lanes, so that they ascend in memory. Every writer holds `each` words; what
    /// lies below them is free.
    NORMANS_NOINLINE static void put(word_writer* writers, uint32_t each_lanes, const mask& m,
                                   const words& x)
    {
        for (uint32_t first = 0; first < lanes; first += each_lanes) {
            word_writer& writer = writers[first / each_lanes];
            uint8_t* to = writer.next;
            for (uint32_t i = first + each_lanes; i-- > first;) {
                detail::store_word(to - 2, x.lane[i]);
                to -= m.lane[i] & 2;
            }
            writer.next = to;
        }
    }

private:
    template <class Function>
    static NORMANS_INLINE words each(Function f)
    {
        words out;
        for (uint32_t i = 0; i < lanes; ++i) out.lane[i] = uint16_t(f(i));
        return out;
    }
    template <class Function>
    static NORMANS_INLINE floats each_float(Function f)
    {
        floats out;
        for (uint32_t i = 0; i < lanes; ++i) out.lane[i] = f(i);
        return out;
    }
    template <class Function>
    static NORMANS_INLINE ints each_int(Function f)
    {
        ints out;
        for (uint32_t i = 0; i < lanes; ++i) out.lane[i] = f(i);
        return out;
    }
    template <class To>
    static NORMANS_INLINE To copied(const void* from)
    {
        To out;
        std::memcpy(&out, from, sizeof out);
        return out;
    }
    // Normal numbers well inside the range.
    static NORMANS_INLINE uint32_t ordinary(uint32_t bits)
    {
        return uint32_t(exponent_field(bits) - 2 < 252);
    }
    // z within 2^-9 of a tie (and a rounding of the estimate): see core/z_map.hpp.
    static NORMANS_INLINE uint32_t near_tie(int32_t fixed)
    {
        return uint32_t((uint32_t(fixed) & 32767) - (16384 - 66) <= 132);
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
