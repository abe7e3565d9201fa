#pragma once
// The encoder's choice of row steps: per token of a block one of 16 multipliers 2^(j/4) of sigma.
// A decoder only reads them, so this is policy, but "same input, same bytes" makes it integers.
// Closed form of the best j:  j = round(2 log2 mean(r^2 / (sigma^2 + cell^2 / 12))), where r is the
// residual and cell the width of the code at mu. Without the cell's term, sigmas below a cell
// inflate j and the gain is lost. tests/rates/row_scale prints its loss against trying all 16.

#include "../core/normal.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

namespace detail {

// 2^16 / (1 + 2^(m/4) / 12) for m = 8 log2(cell / sigma) in [-32, 95].
struct row_weights {
    uint32_t weight[128];
};

constexpr row_weights make_row_weights()
{
    constexpr uint64_t quarter[4] = {1073741824, 1276901417, 1518500250, 1805811301};  // 2^(30+i/4)
    row_weights table{};
    for (int i = 0; i < 128; ++i) {
        const int octave = i / 4 - 8;
        const uint64_t power = octave < 0 ? (quarter[i % 4] << 8) >> -octave
                                          : quarter[i % 4] << 8 << octave;  // 2^(38 + m/4)
        const uint64_t twelve = uint64_t(12) << 38;
        table.weight[i] = uint32_t((twelve / 256 * 65536) / ((twelve + power) / 256));
    }
    return table;
}

inline constexpr row_weights row_weight_table = make_row_weights();

}  // namespace detail

/// Sums over one token's scalars.
struct row_statistics {
    uint64_t sum = 0;  // (r / sigma)^2, weighted, in units of row_unit
    uint32_t count = 0;

    /// `m` is prepared with row step 0. Special codes and far scalars say nothing.
    template <class Model>
    void add(const Model& model, const scalar_model& m, uint32_t sigma_index, uint32_t code)
    {
        constexpr scalar_format format = Model::format;
        if (m.is_far || is_special(format, code)) return;
        // z at an eighth of the usual scale: up to 32 sigma (range 4).
        constexpr uint32_t eighth = uint32_t(3) << 23;
        const uint32_t bias = exponent_field(m.bias) > 3 ? m.bias - eighth : 0;
        const int z = z_of(value_bits(format, code), m.slope - eighth, bias);
        constexpr int subnormal_field = 128 - format.bias;
        const int field = int(exponent_field(m.mean));
        const int cell = (field > subnormal_field ? field : subnormal_field) - 127 -
                         int(format.mantissa_bits);
        int ratio = 8 * (cell - model.sigma_offset) - int(sigma_index) + 32;
        ratio = ratio < 0 ? 0 : ratio > 127 ? 127 : ratio;
        sum += uint64_t(uint32_t(z * z)) * detail::row_weight_table.weight[ratio] >> 8;
        ++count;
    }
};

struct row_choice {
    int step;
    int64_t gain;  // bits saved, estimated, in 1/65536
};

/// The step for one token.
inline row_choice choose_row_step(const normal_shape& shape, const row_statistics& row)
{
    // 2^((2 j - 1) / 4) in 1/65536, j = -5 .. 9: where step j begins.
    constexpr uint32_t begins[15] = {9742,   13777,  19484,  27554,  38968,  55109,  77936,  110218,
                                     155872, 220436, 311744, 440872, 623487, 881744, 1246974};
    // (1 - 2^(-j/2)) / (2 ln 2) in 1/65536, j = -6 .. 9.
    constexpr int32_t saved[16] = {-330920, -220149, -141823, -86437, -47274, -19582, 0,     13846,
                                   23637,   30560,   35456,   38917,  41365,  43096,  44320, 45185};
    if (row.count == 0) return {0, 0};
    const uint64_t unit = (uint64_t(1) << 32) / (shape.range * shape.range);  // one sigma^2
    const uint64_t mean = row.sum / row.count;
    int index = 0;
    for (const uint32_t begin : begins) index += mean >= (unit * begin >> 16);
    const int step = index + min_row_step;
    const int64_t ratio = int64_t((mean << 16) / unit);
    const int64_t each = (ratio * saved[index] >> 16) - int64_t(step) * 16384;
    return {step, each * row.count};
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
