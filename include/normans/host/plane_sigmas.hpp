#pragma once
// Sigma indices of deviations or variances, as core/sigma.hpp defines them, for the lanes of a
// plane_lanes group. A float's mantissa says by its upper four bits which of 16 runs it lies in; no
// run holds two of the grid's middles, so one comparison of the other 19 bits settles the step.

#include "../core/sigma.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

struct sigma_runs {
    uint16_t below[16];  // low 16 bits of the run's middle - 1; all ones: none, nothing exceeds it
    uint16_t bias[16];   // 8 * the step at the run's start + 7 - the upper 3 bits of its middle
};

constexpr sigma_runs sigma_runs_of(sigma_grid grid)
{
    sigma_runs runs{};
    for (uint32_t run = 0; run < 16; ++run) {
        uint32_t steps = 0;
        while (int(steps) < grid.steps && grid.middle[steps] >> 19 < run) ++steps;
        const bool split = int(steps) < grid.steps && grid.middle[steps] >> 19 == run;
        const uint32_t middle = grid.middle[split ? steps : 0];
        runs.below[run] = uint16_t(split ? (middle & 0xffff) - 1 : 0xffff);
        runs.bias[run] = uint16_t(8 * steps + (split ? 7 - (middle >> 16 & 7) : 0));
    }
    return runs;
}

template <class V>
struct plane_sigmas {
    using words = typename V::words;
    typename V::small_table below, bias;
    uint32_t steps, origin;

    plane_sigmas(bool squared, int offset)
        : plane_sigmas(sigma_grid_of(squared).steps, squared ? runs[1] : runs[0], offset)
    {
    }

    NORMANS_INLINE words operator()(const typename V::floats& value) const
    {
        const auto bits = V::bits(value);
        const words high = V::high_words(bits), low = V::high_words(V::template shl<16>(bits));
        const words run = V::both(V::template shr<3>(high), V::set(15));
        const words part = V::both(high, V::set(7));
        const words above = V::where(V::less(below(run), low), V::set(1));
        const words step = V::template shr<3>(V::add(V::add(part, above), bias(run)));
        const words octave = V::mul_low(V::template shr<7>(high), V::set(steps));
        words index = V::sub(V::add(octave, step), V::set(origin));
        index = V::where_not(V::negative(index), index);
        index = V::smaller(index, V::set(largest_sigma_index));
        index = V::where_not(V::less(high, V::set(0x80)), index);  // subnormal
        const auto zero = V::equal(V::either(high, low), V::set(0));
        const auto no_number = V::less(V::set(0x7f7f), high);  // or infinite, or negative
        index = V::select(V::join(zero, no_number), V::set(sigma_zero), index);
        const auto infinite = V::equal(V::either(V::differ(high, V::set(0x7f80)), low), V::set(0));
        return V::select(infinite, V::set(largest_sigma_index), index);
    }

private:
    static constexpr sigma_runs runs[2] = {sigma_runs_of(sigma_grid_of(false)),
                                           sigma_runs_of(sigma_grid_of(true))};

    plane_sigmas(int each, const sigma_runs& from, int offset)
        : below(from.below), bias(from.bias), steps(uint32_t(each)),
          origin(uint32_t(127 * each + 8 * limited(offset)) & 0xffff)
    {
    }

    // Beyond, every index is 0 or the largest anyway, and 16 bits must hold it.
    static int limited(int offset) { return offset < -512 ? -512 : offset > 512 ? 512 : offset; }
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
