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

/// A batch's rows as the lanes' loop wants them: group = origin + (symbol ^ flip).
struct tans_rows {
    alignas(64) uint32_t first_cell[tans_batch + tans_slack];
    alignas(64) int16_t origin[tans_batch + tans_slack];
    alignas(64) int16_t flip[tans_batch + tans_slack];  // -1: mirrored
    alignas(64) uint8_t group_bits[tans_batch + tans_slack];
    bool grouped = false;  // some group_bits are not 0; else they are not there
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

/// A bank's levels and places.
class tans_levels {
public:
    static constexpr uint32_t top = 8 * bank_octaves - 1;  // of levels without groups
    static constexpr uint32_t most_places = 8 * (3 * 32 + 16 + 8 + 4);
    static constexpr int none = -0x10000;  // origin of a scale that does not count

    struct place {
        uint32_t first_cell;
        int16_t away;  // of symbol 0 from the mean's group; mirrored: of symbol -1
        int16_t flip;
    };

    tans_levels(scalar_format format, const tans_bank& bank)
        : last_(top + 8 * (format.code_bits - 2))
    {
        const bank_plan& plan = bank.plan;
        uint32_t first = 0, used = 0;
        for (uint32_t above = 0; above <= top; ++above) {
            const uint32_t octave = above >> 3;
            if ((above & 7) % (8u >> plan.log_steps) == 0) {
                first = used;
                add_step(bank, octave, (above & 7) >> (3 - plan.log_steps), used);
            }
            level_[before + above] = first | (8 - log_parts(plan, octave)) << 16;
        }
        for (uint32_t above = top + 1; above <= last_; ++above)
            level_[before + above] = level_[before + above - 8] + (1u << 24);
        for (uint32_t i = 0; i < before; ++i) level_[i] = level_[before];
        for (uint32_t i = before + last_; i < before + last_ + 256; ++i)
            level_[i] = level_[before + last_];
    }

    /// Rows of n scalars under one scale: means as fp32 bits, or in 1/256 codes as they are.
    /// Eighths of an octave from the lowest row to a sigma are origin + its index.
    template <bool Fixed>
    void find_rows(const tans_predictions& from, uint32_t first, uint32_t n, int origin,
                   const fixed_scale& scale, tans_rows& to) const
    {
        const int lowest = -int(before), highest = int(last_);
        const uint32_t* const levels =
            level_ + (int(before) + (origin < lowest ? lowest : origin > highest ? highest
                                                                                   : origin));
        if (!to.grouped && find_rows<Fixed, false>(from, first, n, levels, scale, to)) return;
        if (!to.grouped) std::memset(to.group_bits, 0, sizeof to.group_bits);
        to.grouped = true;
        find_rows<Fixed, true>(from, first, n, levels, scale, to);
    }

private:
    // False if there are groups, and it was taken that there are none.
    template <bool Fixed, bool Grouped>
    bool find_rows(const tans_predictions& in, uint32_t first, uint32_t n, const uint32_t* levels,
                   const fixed_scale scale, tans_rows& to) const
    {
        uint32_t any = 0;
        for (uint32_t i = first; i < first + n; ++i) {
            const uint32_t k = in.sigma[i];
            const uint32_t level = *(k == sigma_zero ? level_ : levels + k);
            const uint32_t fixed = (Fixed ? in.mean[i] : scale(in.mean[i])) + 128;
            const uint32_t at = Grouped ? fixed >> (level >> 24) : fixed;
            const place& from = place_[(level & 0xffff) + ((at & 255) >> (level >> 16 & 15))];
            to.first_cell[i] = from.first_cell;
            to.flip[i] = from.flip;
            to.origin[i] = int16_t(int(at >> 8) + from.away);
            if (Grouped) to.group_bits[i] = uint8_t(level >> 24);
            any |= level;
        }
        return Grouped || any >> 24 == 0;
    }

    // The parts of a cell for one step of sigma.
    void add_step(const tans_bank& bank, uint32_t octave, uint32_t step, uint32_t& used)
    {
        const bank_plan& plan = bank.plan;
        const uint32_t all = uint32_t(1) << log_parts(plan, octave);
        const uint32_t row = first_bank_row(plan, octave) + step * stored_parts(plan, octave);
        for (uint32_t part = 0; part < all; ++part, ++used) {
            const bool mirrored = 2 * part + 1 < all;
            const uint32_t here = row + (mirrored ? all - 1 - part : part) - all / 2;
            const int reach = 1 + int(bank.reach[here]);
            place_[used] = {here << plan.table_bits, int16_t(mirrored ? reach + 1 : -reach),
                            int16_t(mirrored ? -1 : 0)};
        }
    }

    // By level, which is a sigma index + origin. Below and above the levels there is room for any
    // index: bits 0..15 the first of a cell's places, 16..23 256ths of a cell -> place, 24..: g
    static constexpr uint32_t before = 256;
    uint32_t level_[before + top + 8 * 6 + 1 + 256];
    place place_[most_places];
    uint32_t last_;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
