#pragma once
// array_lanes with what the block loop (block_steps.hpp) asks of a group beside the step: moving
// numbers in and out, means, and the models of a step's scalars.

#include "../core/lanes.hpp"
#include "row_scale.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template <uint32_t Width>
struct portable_lanes : array_lanes<Width> {
    using base = array_lanes<Width>;
    using typename base::mask;
    using typename base::models;
    using typename base::values;
    using base::each;

    static values zero() { return {}; }
    static values broadcast(uint32_t x)
    {
        return each([&](uint32_t) { return x; });
    }

    template <class Code>
    static values load_codes(const Code* from)
    {
        return each([&](uint32_t i) { return uint32_t(from[i]); });
    }

    template <class Code>
    static void store_codes(Code* to, const values& x)
    {
        for (uint32_t i = 0; i < Width; ++i) to[i] = Code(x[i]);
    }

    static values load(const uint32_t* from)
    {
        return each([&](uint32_t i) { return from[i]; });
    }

    static void store(uint32_t* to, const values& x)
    {
        for (uint32_t i = 0; i < Width; ++i) to[i] = x[i];
    }

    static values add(const values& x, const values& y)
    {
        return each([&](uint32_t i) { return x[i] + y[i]; });
    }

    static uint32_t count(mask m)
    {
        uint32_t set = 0;
        for (; m != 0; m &= m - 1) ++set;
        return set;
    }

    static values clean_means(const values& mean)
    {
        return each([&](uint32_t i) { return map_mean(mean[i], one_bits, minus_zero_bits); });
    }

    static values map_means(const values& mean, const values& a, const values& b)
    {
        return each([&](uint32_t i) { return map_mean(mean[i], a[i], b[i]); });
    }

    /// row_slope: fp32 bits, see normal_model.
    template <class Model>
    static models prepare(const Model& model, const values& mean, const values& sigma_index,
                          const values& row_slope)
    {
        models out;
        for (uint32_t i = 0; i < Width; ++i)
            out[i] = model.prepare_sloped(mean[i], sigma_index[i], row_slope[i]);
        return out;
    }

    /// row_statistics::add over the active lanes.
    template <class Model>
    static void add_row(row_statistics& row, const Model& model, const models& m,
                        const values& sigma_index, const values& codes, mask active)
    {
        for (uint32_t i = 0; i < Width; ++i)
            if (active >> i & 1) row.add(model, m[i], sigma_index[i], codes[i]);
    }

    static values means(const models& m)
    {
        return each([&](uint32_t i) { return m[i].mean; });
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
