#pragma once
// Banks of tANS rows for int8 and int4 (core/uniform_bank.hpp): what a row holds, how a bank is
// built into the caller's memory, and which plan loses least within a budget of bytes. Integers
// only: every decoder builds the same rows from a plan's few bytes. A row:
//   - Its sigma is the middle of its eighths: the slope of the middle one or, where they are even,
//     that of the one below the middle times fl32(2^(-1/16)), rounded once. Its mean is the middle
//     of its part of the cell; 0 where the cell is one part.
//   - The groups up to 49 away have the weights G(z of the upper edge) - G(z of the lower edge),
//     z = round(fl32((edge - mean) * slope)); the two last take all that lies beyond.
//   - A group of less than a quarter of a cell, weight / 2^15 < 2^-table_bits / 4, has no symbol of
//     its own: weight 0. The reach is the largest distance of one that has. The escape's weight is
//     what is left of 2^15. Frequencies and cells: core/tans_table.hpp.

#include "../core/uniform_bank.hpp"
#include "../core/z_map.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

constexpr uint32_t bank_rows(const bank_plan& plan) { return first_bank_row(plan, bank_octaves); }

/// Cells of a bank; an encoder's `next` has as many.
constexpr size_t bank_cells(const bank_plan& plan)
{
    return size_t(bank_rows(plan)) << plan.table_bits;
}

/// What a decoder's bank takes: cells and reaches.
constexpr size_t bank_bytes(const bank_plan& plan)
{
    return sizeof(tans_cell) * bank_cells(plan) + bank_rows(plan);
}

/// Where a bank is built: cells [bank_cells], reach [bank_rows]; for encoders also next
/// [bank_cells] and symbols [bank_rows * bank_symbols], both null otherwise.
struct bank_memory {
    tans_cell* cells;
    uint8_t* reach;
    uint16_t* next;
    tans_symbol* symbols;
};

namespace detail {

constexpr int largest_reach = (int(bank_symbols) - 2) / 2;

// The integer Gaussian over the groups -largest_reach .. largest_reach around a mean that lies
// `center` / 2^(log_scale + 1) right of the middle of group 0. weight[i] is group i -
// largest_reach; sums to base[32].
struct group_weights {
    uint32_t weight[2 * largest_reach + 1];

    group_weights(const normal_shape& shape, uint32_t slope, int center, uint32_t log_scale)
    {
        uint32_t below = 0;
        for (int i = 0; i <= 2 * largest_reach; ++i) {
            uint32_t above = shape.base[32];
            if (i < 2 * largest_reach) {
                const int edge = (2 * (i - largest_reach) + 1) * (1 << log_scale) - center;
                const uint32_t bits =
                    edge == 0 ? 0 : float_to_bits(float(edge)) - ((log_scale + 1) << 23);
                above = gaussian_cdf(shape, z_exact(bits, slope, 0));
            }
            weight[i] = above - below;
            below = above;
        }
    }
};

// z per code at a sigma of 2^(eighths / 8) codes, lowest_bank_octave on.
inline uint32_t bank_slope(const normal_shape& shape, int eighths)
{
    const int above = eighths - 8 * lowest_bank_octave;
    return shape.slope[above & 7] - (uint32_t(lowest_bank_octave + (above >> 3)) << 23);
}

struct bank_row {
    uint32_t octave, step, half;  // half: the part, counted from the middle of the cell
    int first_eighth;             // of sigma; there are 8 >> log_steps
    uint32_t log_scale;           // of the mean's place
    int center;

    bank_row(const bank_plan& plan, uint32_t o, uint32_t s, uint32_t h)
        : octave(o),
          step(s),
          half(h),
          first_eighth(8 * (int(o) + lowest_bank_octave) + int(s << (3 - plan.log_steps))),
          log_scale(log_parts(plan, o)),
          center(log_scale == 0 ? 0 : 2 * int(h) + 1)
    {
    }

    // The row's sigma is the middle of its eighths.
    group_weights weights(const bank_plan& plan, const normal_shape& shape) const
    {
        constexpr uint32_t half_eighth = 0x3f75257d;  // 2^(-1/16)
        const int width = 8 >> plan.log_steps;
        uint32_t slope = bank_slope(shape, first_eighth + (width - 1) / 2);
        if (width > 1) slope = multiply(slope, half_eighth);
        return {shape, slope, center, log_scale};
    }
};

struct row_freqs {
    uint16_t freq[bank_symbols];  // 0: escape
    uint32_t symbols, reach;

    // A group that would have less than a quarter of a cell is escaped.
    row_freqs(const bank_plan& plan, const group_weights& groups)
    {
        uint32_t weight[bank_symbols] = {rans_format::total};
        const auto kept = [&](int away) {
            const uint32_t w = groups.weight[away + largest_reach];
            return uint64_t(w) << (plan.table_bits + 2) >= rans_format::total ? w : 0;
        };
        reach = uint32_t(largest_reach);
        while (reach > 0 && kept(int(reach)) == 0 && kept(-int(reach)) == 0) --reach;
        symbols = 2 * reach + 2;
        for (uint32_t s = 1; s < symbols; ++s) {
            weight[s] = kept(int(s) - 1 - int(reach));
            weight[0] -= weight[s];
        }
        static_cast<void>(normalize_weights(weight, symbols, plan.table_bits, freq));
    }
};

// Cells from symbols to distances: see uniform_bank.hpp. `first`: of symbol 1.
inline void say_distances(tans_cell* cells, uint32_t count, int first)
{
    for (uint32_t i = 0; i < count; ++i)
        if (cells[i].symbol != 0)
            cells[i].symbol = uint8_t(int(cells[i].symbol) - 1 + first + cell_middle);
}

// f(row, index) for all rows in order.
template <class Function>
void for_bank_rows(const bank_plan& plan, Function f)
{
    uint32_t index = 0;
    for (uint32_t octave = 0; octave < bank_octaves; ++octave)
        for (uint32_t step = 0; step < uint32_t(1) << plan.log_steps; ++step)
            for (uint32_t half = 0; half < stored_parts(plan, octave); ++half)
                f(bank_row(plan, octave, step, half), index++);
}

// log2(x) in 1/65536, rounded down. x > 0.
inline uint32_t log2_fixed(uint32_t x)
{
    const unsigned whole = log2_floor(x);
    uint64_t fraction = uint64_t(x) << (31 - whole);  // 1.31
    uint32_t bits = whole;
    for (int i = 0; i < 16; ++i) {
        fraction = fraction * fraction >> 31;
        bits = bits << 1 | uint32_t(fraction >> 32);
        fraction >>= fraction >> 32;
    }
    return bits;
}

// What a row loses against the Gaussian of one sigma and place, in 1/65536 bits.
inline int64_t row_loss(const bank_plan& plan, const row_freqs& row, const group_weights& truth,
                        uint32_t total, uint32_t escape_bits)
{
    int64_t loss = 0;
    for (int away = -largest_reach; away <= largest_reach; ++away) {
        const uint32_t w = truth.weight[away + largest_reach];
        if (w == 0) continue;
        const uint32_t distance = uint32_t(away < 0 ? -away : away);
        const uint32_t symbol = distance > row.reach ? 0 : uint32_t(away + int(row.reach) + 1);
        const bool escaped = symbol == 0 || row.freq[symbol] == 0;
        int64_t bits = int64_t(plan.table_bits) * 65536 -
                       int64_t(log2_fixed(row.freq[escaped ? 0 : symbol]));
        if (escaped) bits += int64_t(escape_bits) * 65536;
        loss += int64_t(w) * (bits + int64_t(log2_fixed(w)) - int64_t(log2_fixed(total)));
    }
    return loss / int64_t(total);
}

}  // namespace detail

/// Builds a bank. bad_argument: a plan that is none (then nothing was written), or null memory.
[[nodiscard]] inline status make_bank(const bank_plan& plan, const bank_memory& to, tans_bank& bank)
{
    if (!valid_plan(plan) || to.cells == nullptr || to.reach == nullptr ||
        (to.next == nullptr) != (to.symbols == nullptr))
        return status::bad_argument;
    const normal_shape shape = shape_of(plan.shape);
    status outcome = status::ok;
    detail::for_bank_rows(plan, [&](const detail::bank_row& row, uint32_t index) {
        const detail::row_freqs freqs(plan, row.weights(plan, shape));
        const size_t first = size_t(index) << plan.table_bits;
        to.reach[index] = uint8_t(freqs.reach);
        tans_symbol entries[bank_symbols] = {};
        const status made =
            make_tans_row(freqs.freq, freqs.symbols, plan.table_bits, to.cells + first,
                          to.next == nullptr ? nullptr : to.next + first,
                          to.symbols == nullptr ? nullptr : entries);
        if (made != status::ok) outcome = made;
        else detail::say_distances(to.cells + first, 1u << plan.table_bits, -int(freqs.reach));
        for (uint32_t i = 0; i < bank_symbols && to.symbols != nullptr; ++i) {
            const uint32_t symbol = i + freqs.reach + 1 - bank_symbols / 2;
            const bool known = symbol - 1 <= 2 * freqs.reach;
            to.symbols[size_t(index) * bank_symbols + i] =
                i == 0 ? entries[0] : known ? entries[symbol] : tans_symbol{};
        }
    });
    bank = {plan, to.cells, to.reach, to.next, to.symbols};
    return outcome;
}

/// A bank in containers of the caller's kind: bank_in<std::vector>(plan). `bank` is for both sides;
/// its cells are null if the plan is none.
template <template <class...> class Vector>
class bank_in {
public:
    tans_bank bank{};

    explicit bank_in(const bank_plan& plan)
    {
        if (!valid_plan(plan)) return;
        cells_.resize(bank_cells(plan));
        next_.resize(bank_cells(plan));
        reach_.resize(bank_rows(plan));
        symbols_.resize(bank_rows(plan) * bank_symbols);
        if (make_bank(plan, {cells_.data(), reach_.data(), next_.data(), symbols_.data()}, bank) !=
            status::ok)
            bank = {};
    }
    bank_in(const bank_in&) = delete;
    bank_in& operator=(const bank_in&) = delete;

private:
    Vector<tans_cell> cells_;
    Vector<uint16_t> next_;
    Vector<uint8_t> reach_;
    Vector<tans_symbol> symbols_;
};

/// Deviations that a bank is planned for, in eighths of an octave of codes, both ends included;
/// each is taken to be as likely, and so is each place of the mean.
struct bank_range {
    int lowest;
    int highest;
};

/// 2 to 5 bits of int8, 1 to 3 of int4.
constexpr bank_range usual_range(scalar_type dtype)
{
    return dtype == scalar_type::int4 ? bank_range{-10, 8} : bank_range{0, 23};
}

/// Bits per scalar that a bank's rows lose against the Gaussian of the very sigma and mean, in
/// 1/65536: the rounding of both and of the frequencies. `range` within 8 * lowest_bank_octave ..
/// 8 * (lowest_bank_octave + bank_octaves) - 1. A row's parts are met at two points (Gauss).
inline uint32_t bank_loss(scalar_type dtype, const bank_plan& plan, bank_range range)
{
    const normal_shape shape = shape_of(plan.shape);
    int64_t all = 0, eighths = 0;
    detail::for_bank_rows(plan, [&](const detail::bank_row& row, uint32_t) {
        const int end = row.first_eighth + (8 >> plan.log_steps);
        if (end <= range.lowest || row.first_eighth > range.highest) return;
        const detail::row_freqs freqs(plan, row.weights(plan, shape));
        int64_t lost = 0;
        for (int e = row.first_eighth; e < end; ++e) {
            if (e < range.lowest || e > range.highest) continue;
            for (int point = -37; point <= 37; point += 74) {  // 64 / sqrt(3) of 64
                const detail::group_weights truth(shape, detail::bank_slope(shape, e),
                                                  64 * row.center + point, row.log_scale + 6);
                lost += detail::row_loss(plan, freqs, truth, shape.base[32],
                                         format_of(dtype).code_bits);
            }
            if (row.half == 0) ++eighths;
        }
        all += lost * 1024 / (2 * int64_t(stored_parts(plan, row.octave)));
    });
    const int64_t mean = eighths == 0 ? 0 : all / (1024 * eighths);
    return mean < 0 ? 0 : uint32_t(mean);
}

/// A plan and what it costs.
struct bank_choice {
    bank_plan plan;
    bool fits = false;  // no plan does below 6 KiB or so
    size_t bytes = 0;   // bank_bytes(plan)
    uint32_t loss = 0;  // bank_loss
};

/// The plan that loses least with bank_bytes(plan) <= budget. Nothing is built.
inline bank_choice plan_bank(scalar_type dtype, size_t budget, shape_id shape, bank_range range)
{
    bank_choice best;
    for (uint32_t steps = 0; steps <= 3; ++steps) {
        for (uint32_t positions = 0; positions <= 4; ++positions) {
            bank_plan plan{shape, 6, uint8_t(steps), uint8_t(positions)};
            if (bank_bytes(plan) > budget) continue;
            for (; plan.table_bits < tans_format::max_table_bits; ++plan.table_bits) {
                bank_plan larger = plan;
                ++larger.table_bits;
                if (bank_bytes(larger) > budget) break;
            }
            const uint32_t loss = bank_loss(dtype, plan, range);
            const size_t bytes = bank_bytes(plan);
            if (!best.fits || loss < best.loss || (loss == best.loss && bytes < best.bytes))
                best = {plan, true, bytes, loss};
        }
    }
    return best;
}

inline bank_choice plan_bank(scalar_type dtype, size_t budget)
{
    return plan_bank(dtype, budget, shape_id::gaussian, usual_range(dtype));
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
