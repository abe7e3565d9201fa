#pragma once
// The encoder's choice of row steps: per token of a block one of 16 multipliers 2^(j/4) of sigma,
// and per block the window of them that is stored: tokens outside take its nearest end.
// A decoder only reads them, so this is policy, but "same input, same bytes" makes it integers.
// Closed form of the best j:  j = round(2 log2 mean(r^2 / (sigma^2 + cell^2 / 12))), where r is the
// residual and cell the width of the code's cell. Without the cell's term, sigmas below a cell
// inflate j and the gain is lost. tests/rates/row_scale prints its loss against trying all 16.

#include "../core/normal.hpp"
#include "../wire/header.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Statistics take z at 1/32 of its scale: up to 128 sigma (range 4). fp32 bits.
constexpr uint32_t statistics_scale = 0x3d000000;
/// A residual counts as at most 8 of its units sqrt(sigma^2 + cell^2 / 12) (range 4; 12 at range
/// 6): a scalar that far out escapes under any step, for about as many bits, and gains nothing by a
/// wider one. Without this limit one outlier would widen its whole row. In units of y below.
constexpr int largest_weighted = 512;

/// 2^13 / sqrt(1 + c^2 / 12) where c = cell / sigma, in steps of half an octave around 2^-3.75.
struct row_weight_table {
    uint16_t weight[32];
};

NORMANS_HD constexpr row_weight_table row_weights()
{
    return {{8190, 8188, 8184, 8177, 8162, 8132, 8074, 7961, 7748, 7369, 6753,
             5877, 4822, 3750, 2803, 2043, 1467, 1046, 743,  526,  372,  264,
             186,  132,  93,   66,   47,   33,   23,   16,   12,   8}};
}

namespace detail {

// The upper halves of two floats, added, are a logarithm of their product, 128 an octave:
// (value of the code) * slope - this = 64 * the table's index.
template <class Model>
NORMANS_HD constexpr uint32_t row_weight_origin(const normal_shape& shape)
{
    constexpr uint32_t cell = 127 + Model::format.mantissa_bits, scale = 5, lowest = 4;
    return (shape.unit_slope >> 16) + 128 * (cell - scale - lowest);
}

template <class Model>
constexpr uint32_t smallest_cell = uint32_t(128 - Model::format.bias) << 7;

}  // namespace detail

/// Sums over the scalars of one or more tokens.
struct row_statistics {
    uint64_t sum = 0;  // (r / sigma)^2, weighted, 2^16 / range^2 for one sigma^2
    uint32_t count = 0;

    /// `m` is prepared with statistics_scale. Special codes and far scalars say nothing.
    template <class Model>
    NORMANS_HD void add(const Model& model, const scalar_model& m, uint32_t code)
    {
        if (m.is_far || is_special(Model::format, code)) return;
        uint32_t value = 0, field = one_bits >> 16;  // cells of integers are 1 wide
        if constexpr (Model::format.is_integer) {
            value = float_to_bits(float(model.value_of(code)));
        } else {
            value = value_bits(Model::format, code);
            field = value >> 16 & 0x7f80;
            if (field < detail::smallest_cell<Model>) field = detail::smallest_cell<Model>;
        }
        add(z_of(value, m.slope, m.bias), field + (m.slope >> 16),
            detail::row_weight_origin<Model>(model.shape));
    }

    /// z under statistics_scale; `ratio` less `origin`: 64 times the index of the cell's weight.
    NORMANS_HD void add(int z, uint32_t ratio, uint32_t origin)
    {
        uint32_t index = ratio > origin ? (ratio - origin) >> 6 : 0;
        index = index > 31 ? 31 : index;
        static constexpr row_weight_table weights = row_weights();
        int y = (z * int(weights.weight[index]) + (1 << 14)) >> 15;
        y = y < 0 ? -y : y;
        y = y > largest_weighted ? largest_weighted : y;
        sum += uint64_t(uint32_t(y * y));
        ++count;
    }

    NORMANS_HD void add(const row_statistics& other)
    {
        sum += other.sum;
        count += other.count;
    }
    NORMANS_HD void subtract(const row_statistics& other)
    {
        sum -= other.sum;
        count -= other.count;
    }
};

/// 2^(step / 4) as floats, by step - min_row_step: row_slope's inverses, near enough for a guess.
struct row_deviation_table {
    float value[16];
};

NORMANS_HD constexpr row_deviation_table row_deviations()
{
    return {{0.35355339f, 0.42044821f, 0.5f, 0.59460356f, 0.70710678f, 0.84089642f, 1.0f,
             1.1892071f, 1.4142136f, 1.6817928f, 2.0f, 2.3784142f, 2.8284271f, 3.3635857f, 4.0f,
             4.7568285f}};
}

/// row_slope by step - min_row_step.
struct row_slope_table {
    uint32_t bits[16];
};

NORMANS_HD constexpr row_slope_table row_slopes()
{
    row_slope_table table{};
    for (int i = 0; i < 16; ++i) table.bits[i] = row_slope(i + min_row_step);
    return table;
}

/// The step for one token.
NORMANS_HD inline int choose_row_step(const normal_shape& shape, const row_statistics& row)
{
    // 2^((2 j - 1) / 4) in 1/65536, j = -5 .. 9: where step j begins.
    static constexpr uint32_t begins[15] = {9742,   13777,  19484,  27554,  38968,
                                            55109,  77936,  110218, 155872, 220436,
                                            311744, 440872, 623487, 881744, 1246974};
    if (row.count == 0) return 0;
    const uint64_t squares = row.sum * (shape.range * shape.range);  // in 1/65536 sigma^2
    uint32_t index = 0;
    for (uint32_t probe = 8; probe != 0; probe /= 2)
        index += squares >= uint64_t(begins[index + probe - 1]) * row.count ? probe : 0;
    return int(index) + min_row_step;
}

/// Bits that a step saves, estimated, in 1/65536. Of several tokens: that step for all of them.
NORMANS_HD inline int64_t row_step_gain(const normal_shape& shape, const row_statistics& rows,
                                        int step)
{
    // (1 - 2^(-j/2)) / (2 ln 2) in 1/65536, j = -6 .. 9.
    static constexpr int32_t saved[16] = {-330920, -220149, -141823, -86437, -47274, -19582,
                                          0,       13846,   23637,   30560,  35456,  38917,
                                          41365,   43096,   44320,   45185};
    constexpr uint64_t plenty = uint64_t(1) << 44;  // the product must not overflow
    const uint64_t squares = rows.sum * (shape.range * shape.range);
    const int64_t all = int64_t(squares < plenty ? squares : plenty);
    return (all * saved[step - min_row_step] >> 16) - int64_t(step) * 16384 * rows.count;
}

/// What a window of steps saves is a sum of two terms, one for each end: tokens below the lower one
/// take it, those above the upper one take that.
struct row_window_ends {
    int64_t lower;
    int64_t upper;
};

/// The ends' terms at `step`. `own`: gain of the tokens whose best step it is; the sums: of those
/// with a lower or the same best step, of those with a higher or the same, of own gains below.
NORMANS_HD inline row_window_ends window_ends_at(const normal_shape& shape, int step, int64_t own,
                                                 const row_statistics& up_to,
                                                 const row_statistics& from, int64_t own_below)
{
    return {row_step_gain(shape, up_to, step) - own_below - own,
            row_step_gain(shape, from, step) + own_below};
}

/// What storing takes, in 1/65536 bit.
NORMANS_HD constexpr int64_t row_step_cost(uint32_t tokens, uint32_t bits)
{
    return int64_t(row_step_bytes(tokens, bits)) * 8 * 65536;
}

/// All steps.
constexpr row_step_window full_window{0, 4};

struct row_window_choice {
    row_step_window window{};
    int64_t gain = 0;  // after what is stored; 0: no window pays
};

/// The window for a block; `rows`: sums over its tokens by their best step - min_row_step. Of equal
/// ones that of the fewest bits, then the lowest.
NORMANS_HD inline row_window_choice choose_row_window(const normal_shape& shape,
                                                      const row_statistics (&rows)[16],
                                                      uint32_t tokens)
{
    row_statistics up_to, from;
    for (const row_statistics& one : rows) from.add(one);
    row_window_ends ends[16];
    int64_t own_below = 0;
    for (int i = 0; i < 16; ++i) {
        const int64_t own = row_step_gain(shape, rows[i], i + min_row_step);
        up_to.add(rows[i]);
        ends[i] = window_ends_at(shape, i + min_row_step, own, up_to, from, own_below);
        from.subtract(rows[i]);
        own_below += own;
    }
    row_window_choice best;
    for (uint32_t bits = 0; bits <= 4; ++bits) {
        for (uint32_t lowest = 0; lowest + (1u << bits) <= 16; ++lowest) {
            const int64_t gain = ends[lowest].lower + ends[lowest + (1u << bits) - 1].upper -
                                 row_step_cost(tokens, bits);
            if (gain > best.gain) best = {{uint8_t(lowest), uint8_t(bits)}, gain};
        }
    }
    return best;
}

/// The steps + 6 of eight tokens, a nibble each, as a block holds them: `bits` bytes.
NORMANS_HD inline uint32_t pack_row_steps(uint32_t nibbles, const row_step_window& window)
{
    const uint32_t highest = (1u << window.bits) - 1, lowest = window.lowest;
    uint32_t packed = 0;
    for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t nibble = nibbles >> 4 * i & 15;
        const uint32_t above = nibble > lowest ? nibble - lowest : 0;
        packed |= (above < highest ? above : highest) << window.bits * i;
    }
    return packed;
}

/// Writes the `group`-th eight tokens of a block's row steps, which begin at `to`; with the last
/// ones what pads them.
NORMANS_HD inline void store_row_steps(uint32_t nibbles, const row_step_window& window,
                                       uint32_t group, uint32_t tokens, uint8_t* to)
{
    uint32_t packed = pack_row_steps(nibbles, window);
    const uint32_t first = group * window.bits;
    const uint32_t end = group == (tokens - 1) / 8 ? uint32_t(row_step_bytes(tokens, window.bits))
                                                   : first + window.bits;
    for (uint32_t i = first; i != end; ++i, packed >>= 8) to[i] = uint8_t(packed);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
