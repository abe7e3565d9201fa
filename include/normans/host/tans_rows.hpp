#pragma once
// Rows of a bank for a batch of scalars: bank_model::prepare() (core/uniform_bank.hpp) cut into
// what is constant for a block, for a scale, and for a scalar. A block's tables: for each eighth of
// an octave that sigma lies above the lowest row its level, for each part of a cell its place.
// Integers only; tans_planes.hpp does the same in registers.

#include "../core/uniform_bank.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

constexpr uint32_t tans_batch = 512;  // scalars at a time: whole steps of any lanes
constexpr uint32_t tans_slack = 32;   // registers read and write so far beyond a batch

/// A batch's predictions as they come. Registers compute with the slack too.
struct tans_predictions {
    alignas(64) uint32_t mean[tans_batch + tans_slack] = {};  // fp32 bits, or in 1/256 codes
    alignas(64) uint8_t sigma[tans_batch + tans_slack] = {};  // indices
};

/// Where a scalar is in a bank: group = origin + (symbol ^ flip), counted from the lowest.
struct alignas(8) tans_place {
    uint32_t first_cell;
    int8_t flip;  // -1: mirrored
    uint8_t group_bits;
    uint16_t origin;  // signed, mod 2^16
};

/// A batch's rows as the lanes' loop wants them.
struct tans_rows {
    static constexpr bool unrolled = true;  // whole steps are worth it

    alignas(64) tans_place place[tans_batch + tans_slack];
    uint32_t grouped = 0;  // bit i: some group_bits of the 32 scalars from 32 i on are not 0

    /// Some row for what lies beyond n scalars.
    void end(uint32_t n)
    {
        for (uint32_t i = 0; i < tans_slack; ++i) place[n + i].first_cell = 0;
    }
    /// Those from `first` on.
    const tans_place* from(uint32_t first) const { return place + first; }
    /// If the step from `first` on may have such.
    bool grouped_at(uint32_t first) const { return (grouped >> first / 32 & 1) != 0; }
};

/// A scale as fixed_mean() needs it.
struct fixed_scale {
    uint64_t significand;  // of 1 / scale
    int32_t shift;         // of the product, less 1, but for the mean's exponent field
    uint32_t zero, last;   // 0 and the largest mean, in 1/256 codes
    bool counts;           // else all means are 0

    fixed_scale(scalar_format format, const code_scale& scale)
        : significand((scale.inverse & 0x7fffff) | 0x800000u),
          shift(300 - 8 - 1 - int(exponent_field(scale.inverse))),
          zero(format.code_sign() << 8),
          last(2 * zero - 256),
          counts(scale.scale != 0)
    {
    }

    /// fixed_mean() under a scale that counts; the mean need not be clean. What lies beyond the
    /// codes, or near 0, is rare and goes another way.
    NORMANS_INLINE uint32_t operator()(uint32_t mean) const
    {
        const uint64_t product = ((mean & 0x7fffff) | 0x800000u) * significand;
        const uint32_t by = uint32_t(shift) - exponent_field(mean);
        if (by - least > most - least) return unusual(mean, by);
        const uint32_t magnitude = (uint32_t(product >> by) + 1) >> 1, sign = 0 - (mean >> 31);
        const uint32_t fixed = (magnitude ^ sign) + (zero - sign);
        return fixed <= last ? fixed : end(mean);
    }

    // Shifts at which a magnitude may be neither 0 nor beyond all codes (and fits 31 bits).
    static constexpr uint32_t least = 20, most = 47;

private:
    NORMANS_NOINLINE uint32_t unusual(uint32_t mean, uint32_t by) const
    {
        return is_nan(mean) || int32_t(by) > int32_t(most) ? zero : end(mean);
    }
    uint32_t end(uint32_t mean) const { return mean >> 31 != 0 ? 0 : last; }
};

/// The bits of a mean that is fp32, these bits, or their upper 16.
template <class Mean>
NORMANS_INLINE int32_t load_mean(const Mean* from)
{
    if constexpr (sizeof(Mean) == 2) {
        return int32_t(uint32_t(*from) << 16);
    } else {
        int32_t bits;
        std::memcpy(&bits, from, sizeof bits);
        return bits;
    }
}

/// Places, by which rows are found: means in 2^-place_bits of 1/32 code, counted from half a code
/// below the lowest. Only whole 1/32 codes count, those of fixed_mean().
constexpr uint32_t place_bits = 50;
constexpr uint64_t place_of(uint32_t fixed)
{
    return uint64_t((fixed >> 3) + 16) << place_bits;
}

/// Powers of 2 for significands of means, by 9 bits of sign and exponent field + a shift that
/// follows the scale: one factor instead of a shift and a change of sign.
struct mean_powers {
    static constexpr uint32_t lowest_field = 103, shifts = 49;  // of a scale's inverse
    static constexpr uint32_t first = 246 - lowest_field, last = first + 14;  // 2^0 .. 2^14
    static constexpr uint64_t unusual = uint64_t(1) << 63;  // odd numbers come to 2^63

    uint64_t of[512 + shifts];

    constexpr mean_powers() : of{}
    {
        for (uint32_t i = 0; i < 512 + shifts; ++i)  // where both signs meet neither is usual
            of[i] = i < 256 ? power(i) : i < 256 + shifts ? unusual : 0 - power(i - 256);
    }

private:
    // Means below half a 1/256 code count as 0.
    static constexpr uint64_t power(uint32_t i)
    {
        return i + 2 < first ? 0 : i < first || i > last ? unusual : uint64_t(1) << (i - first);
    }
};
inline constexpr mean_powers mean_power;

/// Places of means under one scale that counts. What is beyond the codes, or unusual, is rare and
/// goes another way.
template <class Mean>
struct mean_places {
    const Mean* mean;  // need not be clean
    const scalar_format& format;
    const code_scale& scale;
    const uint64_t* power;  // by a mean's upper 9 bits
    uint64_t twice;         // the significand of the scale's inverse
    uint64_t middle;        // a mean of 0, and the half that rounds
    uint64_t end;           // what lies there or beyond, also below 0, is clamped

    mean_places(const Mean* from, const scalar_format& of, const code_scale& under)
        : mean(from),
          format(of),
          scale(under),
          power(mean_power.of + (exponent_field(scale.inverse) - mean_powers::lowest_field)),
          twice(2 * ((scale.inverse & 0x7fffff) | 0x800000u)),
          middle((uint64_t(format.code_sign()) << 55) + (uint64_t(1) << 46)),
          end(uint64_t((format.code_sign() << 9) - 256 + 8) << 47)
    {
    }

    NORMANS_INLINE uint64_t operator()(size_t i) const
    {
        const uint32_t bits = uint32_t(load_mean(mean + i));
        // A little farther from 0 than the mean: halves are rounded away from it.
        const uint64_t product = uint64_t((bits & 0x7fffff) | 0x800000u) * twice + 1;
        const uint64_t place = product * power[bits >> 23] + middle;
        if (NORMANS_RARE(place >= end)) return exactly(i);
        return place + place_of(0);
    }

private:
    NORMANS_NOINLINE uint64_t exactly(size_t i) const
    {
        return place_of(fixed_scale(format, scale)(uint32_t(load_mean(mean + i))));
    }
};

/// Those of means in 1/256 codes.
struct fixed_places {
    const uint16_t* fixed;
    uint32_t last;

    NORMANS_INLINE uint64_t operator()(size_t i) const
    {
        return place_of(fixed[i] < last ? fixed[i] : last);
    }
};

/// Those of means that are 0, or whose scale does not count.
struct zero_places {
    uint32_t zero;

    NORMANS_INLINE uint64_t operator()(size_t) const { return place_of(zero); }
};

/// A bank's levels and places.
class tans_levels {
public:
    static constexpr uint32_t top = 8 * bank_octaves - 1;  // of levels without groups
    static constexpr uint32_t most_places = 8 * (3 * 32 + 16 + 8 + 4);  // of all cells' parts
    static constexpr int none = -0x10000;  // origin of a scale that does not count

    tans_levels(scalar_format format, const tans_bank& bank)
        : last_(top + 8 * (format.code_bits - 2))
    {
        const bank_plan& plan = bank.plan;
        uint32_t used = 0, first = 0;
        for (uint32_t above = 0; above <= last_; ++above) {
            const uint32_t group_bits = above <= top ? 0 : (above - top + 7) / 8;
            const uint32_t at = above - 8 * group_bits;
            if ((at & 7) % (8u >> plan.log_steps) == 0) {
                first = used;
                add_step(plan, at >> 3, (at & 7) >> (3 - plan.log_steps), uint8_t(group_bits),
                         used);
            }
            level_[before + above] =
                first << 8 | (group_bits != 0 ? grouped : 0) | (place_bits + group_bits);
        }
        for (uint32_t i = 0; i < before; ++i) level_[i] = level_[before];
        for (uint32_t i = before + last_; i < before + last_ + 256; ++i)
            level_[i] = level_[before + last_];
    }

    /// Rows of n scalars under one scale, from `first` of a batch on; places(i): their places.
    /// Eighths of an octave from the lowest row to a sigma are origin + its index.
    template <class Sigma, class Places>
    void find_rows(const Sigma* sigma, uint32_t first, uint32_t n, int origin,
                   const Places& places, tans_rows& to)
    {
        const int lowest = -int(before), highest = int(last_);
        level* const levels =
            level_ + (int(before) + (origin < lowest ? lowest : origin > highest ? highest
                                                                                   : origin));
        const level kept = levels[sigma_zero];
        levels[sigma_zero] = level_[0];  // sigma 0; no other index reads this one
        tans_place* const rows = to.place + first;
        level all = 0;
        const auto one = [&](size_t i) NORMANS_LAMBDA {
            const level here = levels[sigma[i]];
            const uint32_t at = uint32_t(places(i) >> (here & 63));
            tans_place& row = rows[i];
            row = place_[(here >> 8) + (at & 31)];
            row.origin = uint16_t(row.origin + (at >> 5));
            all |= here;
            NORMANS_HIDE(all);
        };
        size_t i = 0;
        for (; n - i >= 8; i += 8) {
            NORMANS_UNROLL
            for (size_t k = 0; k < 8; ++k) one(i + k);
        }
        for (; i < n; ++i) one(i);
        levels[sigma_zero] = kept;
        if ((all & grouped) != 0)
            to.grouped |= ((2u << ((first + n - 1) / 32 - first / 32)) - 1) << first / 32;
    }

private:
    static constexpr uint32_t parts = 32;  // of a cell: as many as a plan can have

    // Bits 0..5: place_bits + a group's bits; 7: there are some; 8..31: the first of a cell's
    // places.
    using level = uint32_t;
    static constexpr level grouped = 0x80;

    // The parts of a cell for one step of sigma.
    void add_step(const bank_plan& plan, uint32_t octave, uint32_t step, uint8_t group_bits,
                  uint32_t& used)
    {
        const uint32_t all = uint32_t(1) << log_parts(plan, octave), each = parts / all;
        const uint32_t row = first_bank_row(plan, octave) + step * stored_parts(plan, octave);
        for (uint32_t part = 0; part < all; ++part) {
            const bool mirrored = 2 * part + 1 < all;
            const uint32_t here = row + (mirrored ? all - 1 - part : part) - all / 2;
            // Away from the mean's group: what 0 says; mirrored, -1.
            const uint32_t away = uint32_t(mirrored ? cell_middle + 1 : -cell_middle);
            for (uint32_t i = 0; i < each; ++i)
                place_[used++] = {here << plan.table_bits, int8_t(mirrored ? -1 : 0), group_bits,
                                  uint16_t(away)};
        }
    }

    // By level, which is a sigma index + origin. Below and above the levels there is room for any
    // index.
    static constexpr uint32_t before = 256, most_levels = top + 8 * 6 + 1;
    level level_[before + most_levels + 256];
    tans_place place_[most_levels * parts];  // their origins: but for the mean's group
    uint32_t last_;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
