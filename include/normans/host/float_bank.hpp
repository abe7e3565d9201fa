#pragma once
// Banks of tANS rows for fp8 and e2m1 (core/float_bank_rows.hpp): what a row holds, how they are
// built, and which plan loses least within a budget. Integers only, as in bank.hpp. A row:
//   - Its sigma is the middle of its eighths, as for integers; its mean the middle of its place.
//   - A group has the weight G(z of the upper edge) - G(z of the lower edge), with
//     z = round(fl32((edge - mean) * slope)) and all in ulp. The largest code, where a row knows it
//     (all classes but the last), takes all that lies beyond.
//   - Groups of less than a quarter of a cell have no symbol, as for integers; symbol 1 is the
//     first that has one.

#include "../core/float_bank.hpp"
#include "../core/normal.hpp"
#include "bank.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// A row of a float bank and its weights.
struct float_row {
    static constexpr int groups = 128;  // counted from -64

    uint32_t weight[groups] = {};

    float_row(const float_bank_layout& layout, uint32_t octave, uint32_t d, uint32_t step,
              uint32_t within)
    {
        const uint32_t p = layout.mantissa_bits();
        const int log_parts = layout.log_parts(octave);
        uint32_t place = within;
        if (layout.shares(octave)) {
            const uint32_t shared = within >> log_parts;
            d = shared == 0 ? 1 : layout.classes(octave);
            place = (layout.unit_of_shared(shared) << log_parts) +
                    (within & ((uint32_t(1) << log_parts) - 1));
        } else {
            const uint32_t first = layout.first_unit(octave, d);
            place += log_parts < 0 ? first >> -log_parts : first << log_parts;
        }
        const normal_shape shape = shape_of(layout.plan.shape);
        const int width = 8 >> layout.plan.log_steps;
        uint32_t slope = bank_slope(shape, 8 * (int(octave) + lowest_bank_octave) +
                                               int(step) * width + (width - 1) / 2);
        if (width > 1) slope = multiply(slope, 0x3f75257d);  // 2^(-1/16)
        const float_groups kinds = groups_of(layout, octave, d);
        const int center = int((2 * place + 1) << (11 - log_parts));
        // G at an edge, lower or mirrored, of a magnitude.
        const auto below = [&](uint32_t magnitude, bool mirrored) {
            const int edge = edge_of(kinds, p, d, magnitude);
            const int from = (mirrored ? -edge : edge) - center;
            const uint32_t bits = from == 0 ? 0 : float_to_bits(float(from)) - (12u << 23);
            return gaussian_cdf(shape, z_exact(bits, slope, 0));
        };
        const bool knows_all = d <= layout.depth(octave);
        for (uint32_t group = 0; group < groups / 2; ++group) {
            uint32_t g = 0;
            const uint32_t first = kinds.magnitude_of(group, g), next = first + (1u << g);
            if (first >> p > d + 4 || (knows_all && first > layout.format.largest_finite)) break;
            const bool last = knows_all && next > layout.format.largest_finite;
            weight[groups / 2 + group] =
                (last ? shape.base[32] : below(next, false)) - below(first, false);
            weight[groups / 2 - 1 - group] = below(first, true) - (last ? 0 : below(next, true));
        }
    }

private:
    // Twice the value of a magnitude in 2^-d ulp.
    static int value_of(const float_groups& kinds, uint32_t p, uint32_t magnitude)
    {
        const uint32_t binade = magnitude >> p, low = magnitude & ((1u << p) - 1);
        return int(binade == 0 && kinds.lowest == 0 ? low << 1 : (low + (1u << p)) << binade);
    }
    // The lower edge of a magnitude's cell in 2^-12 ulp.
    static int edge_of(const float_groups& kinds, uint32_t p, uint32_t d, uint32_t magnitude)
    {
        if (magnitude == 0) return 0;
        return (value_of(kinds, p, magnitude) + value_of(kinds, p, magnitude - 1)) << (11 - d);
    }
};

struct float_row_freqs {
    uint16_t freq[bank_symbols];
    int first;  // group of symbol 1

    float_row_freqs(const bank_plan& plan, const float_row& row)
    {
        uint32_t weight[bank_symbols] = {rans_format::total};
        const auto kept = [&](int i) {
            return uint64_t(row.weight[i]) << (plan.table_bits + 2) >= rans_format::total;
        };
        int low = 0;
        while (low < float_row::groups - 1 && !kept(low)) ++low;
        for (int i = low; i < float_row::groups && i - low < int(bank_symbols) - 1; ++i) {
            weight[1 + i - low] = kept(i) ? row.weight[i] : 0;
            weight[0] -= weight[1 + i - low];
        }
        first = low - float_row::groups / 2;
        static_cast<void>(normalize_weights(weight, bank_symbols, plan.table_bits, freq));
    }
};

template <class Function>
void for_float_rows(const float_bank_layout& layout, Function f)
{
    uint32_t index = 0;
    for (uint32_t o = 0; o < layout.octaves(); ++o)
        for (uint32_t d = 1; d <= layout.classes(o); ++d)
            for (uint32_t step = 0; step < uint32_t(1) << layout.plan.log_steps; ++step)
                for (uint32_t within = 0; within < layout.places(o, d); ++within)
                    f(float_row(layout, o, d, step, within), index++);
}

}  // namespace detail

/// bank_rows, bank_cells and bank_bytes of a type's bank.
constexpr uint32_t bank_rows(scalar_type type, const bank_plan& plan)
{
    return has_float_bank(type) ? float_bank_layout{format_of(type), plan}.rows() : bank_rows(plan);
}
constexpr size_t bank_cells(scalar_type type, const bank_plan& plan)
{
    return size_t(bank_rows(type, plan)) << plan.table_bits;
}
constexpr size_t bank_bytes(scalar_type type, const bank_plan& plan)
{
    return sizeof(tans_cell) * bank_cells(type, plan) + bank_rows(type, plan);
}

/// make_bank for a type's bank. bad_argument too where the plan asks for more than max_bank_mib.
[[nodiscard]] inline status make_bank(scalar_type type, const bank_plan& plan,
                                      const bank_memory& to, tans_bank& bank)
{
    if (format_of(type).is_integer) return make_bank(plan, to, bank);
    if (!valid_plan(type, plan) || to.cells == nullptr || to.reach == nullptr ||
        (to.next == nullptr) != (to.symbols == nullptr))
        return status::bad_argument;
    status outcome = status::ok;
    detail::for_float_rows(
        {format_of(type), plan}, [&](const detail::float_row& row, uint32_t index) {
            const detail::float_row_freqs freqs(plan, row);
            const size_t first = size_t(index) << plan.table_bits;
            to.reach[index] = uint8_t(128 + freqs.first);
            const status made = make_tans_row(
                freqs.freq, bank_symbols, plan.table_bits, to.cells + first,
                to.next == nullptr ? nullptr : to.next + first,
                to.symbols == nullptr ? nullptr : to.symbols + size_t(index) * bank_symbols);
            if (made != status::ok) outcome = made;
            else detail::say_distances(to.cells + first, 1u << plan.table_bits, freqs.first);
        });
    bank = {plan, to.cells, to.reach, to.next, to.symbols, bank_grid(type)};
    return outcome;
}

/// A type's bank in containers of the caller's kind: type_bank_in<std::vector>(type, plan). `bank`
/// is for both sides; its cells are null if the plan is none of the type's.
template <template <class...> class Vector>
class type_bank_in {
public:
    tans_bank bank{};

    type_bank_in(scalar_type type, const bank_plan& plan)
    {
        if (!valid_plan(type, plan)) return;
        cells_.resize(bank_cells(type, plan));
        next_.resize(cells_.size());
        reach_.resize(bank_rows(type, plan));
        symbols_.resize(reach_.size() * bank_symbols);
        const bank_memory memory{cells_.data(), reach_.data(), next_.data(), symbols_.data()};
        if (make_bank(type, plan, memory, bank) != status::ok) bank = {};
    }
    type_bank_in(const type_bank_in&) = delete;
    type_bank_in& operator=(const type_bank_in&) = delete;

private:
    Vector<tans_cell> cells_;
    Vector<uint16_t> next_;
    Vector<uint8_t> reach_;
    Vector<tans_symbol> symbols_;
};

namespace detail {

// The integer Gaussian over a type's codes: weight[code].
struct code_weights {
    uint32_t weight[256] = {};
    uint32_t total;

    code_weights(scalar_format format, const normal_shape& shape, uint32_t mean, uint32_t slope)
        : total(shape.base[32])
    {
        const uint32_t bias = multiply(mean, slope) ^ sign_bit;
        for (uint32_t sign = 0, side = 0; side < 2; ++side, sign = sign_bit) {
            uint32_t before = gaussian_cdf(shape, z_of(sign, slope, bias));
            for (uint32_t m = 0; m <= format.largest_finite; ++m) {
                uint32_t here = sign == 0 ? total : 0;
                if (m < format.largest_finite)
                    here = gaussian_cdf(shape, z_of(edge_bits(format, m + 1) | sign, slope, bias));
                weight[m | (sign == 0 ? 0 : format.code_sign())] =
                    sign == 0 ? here - before : before - here;
                before = here;
            }
        }
    }
};

// What the row of one mean and sigma loses against their Gaussian, in 1/65536 bits.
inline int64_t float_row_loss(const float_bank_model& model, uint32_t mean, uint32_t sigma_index,
                              const code_weights& truth)
{
    const float_bank_layout& layout = model.layout;
    const float_bank_model::scalar m =
        model.prepare(mean, sigma_index, 0, {one_bits, one_bits, 0});
    uint32_t octave = 0, d = 1;
    for (uint32_t o = 0; o < layout.octaves(); ++o)
        for (uint32_t c = 1; c <= layout.classes(o); ++c)
            if (layout.places(o, c) != 0 && model.first_row[o][c - 1] <= m.row) octave = o, d = c;
    const uint32_t index = m.row - model.first_row[octave][d - 1], each = layout.places(octave, d);
    const float_row_freqs row(layout.plan,
                              float_row(layout, octave, d, index / each, index % each));
    int64_t loss = 0;
    for (uint32_t code = 0; code < 2 * model.format.code_sign(); ++code) {
        const uint32_t w = truth.weight[code];
        if (w == 0) continue;
        const int symbol = model.symbol_of(m, code, row.first + 128);
        const bool escaped = symbol == 0 || row.freq[symbol] == 0;
        const uint32_t raw = escaped ? model.format.code_bits : model.raw_bits_of(m, code);
        const int64_t bits = int64_t(layout.plan.table_bits + raw) * 65536 -
                             int64_t(log2_fixed(row.freq[escaped ? 0 : symbol]));
        loss += int64_t(w) * (bits + int64_t(log2_fixed(w)) - int64_t(log2_fixed(truth.total)));
    }
    return loss / int64_t(truth.total);
}

}  // namespace detail

/// Deviations that a bank is planned for, relative to the codes at the mean: fp8 1.5 to 5.5 bits,
/// e2m1 1 to 3.
constexpr bank_range usual_float_range(scalar_type dtype)
{
    return dtype == scalar_type::e2m1 ? bank_range{-8, 12} : bank_range{-8, 23};
}

/// bank_loss for fp8 and e2m1: the mean over 96 points, sigmas in eighths of an octave of the
/// codes' distance at the mean, means of 1/8 to 2 (fp8), 1/2 to 4 (e2m1), even in their binades.
inline uint32_t float_bank_loss(scalar_type dtype, const bank_plan& plan, bank_range range)
{
    constexpr uint32_t points = 96;
    const scalar_format format = format_of(dtype);
    const normal_shape shape = shape_of(plan.shape);
    const float_bank_model model(dtype, {plan, nullptr, nullptr, nullptr, nullptr},
                                 default_sigma_offset);
    const bool wide = format.code_bits == 8;
    int64_t loss = 0;
    for (uint32_t i = 0; i < points; ++i) {
        const int binade = wide ? int(i & 3) - 3 : int(i % 3) - 1;
        const uint32_t mean = (uint32_t(127 + binade) << 23) | (i * 0x9e3779b1u) >> 9;
        const int width = range.highest - range.lowest + 1;
        const int eighths = range.lowest + int(i * uint32_t(width) / points) +
                            8 * (binade - int(format.mantissa_bits));
        const uint32_t index = uint32_t(eighths - 8 * default_sigma_offset);
        const uint32_t slope = shape.slope[index & 7] -
                               (uint32_t(default_sigma_offset + int(index >> 3)) << 23);
        loss += detail::float_row_loss(model, mean, index, {format, shape, mean, slope});
    }
    return loss < 0 ? 0 : uint32_t(loss / points);
}

/// plan_bank for any type; nothing fits those that have no banks.
inline bank_choice plan_type_bank(scalar_type dtype, size_t budget, shape_id shape)
{
    if (format_of(dtype).is_integer) return plan_bank(dtype, budget, shape, usual_range(dtype));
    bank_choice best;
    for (uint32_t split = 0; split < 20; ++split) {
        bank_plan plan{shape, 6, uint8_t(split & 3), uint8_t(split >> 2)};
        const auto fits = [&] {
            return valid_plan(dtype, plan) && bank_bytes(dtype, plan) <= budget;
        };
        if (!fits()) continue;
        while (fits()) ++plan.table_bits;
        --plan.table_bits;
        const uint32_t loss = float_bank_loss(dtype, plan, usual_float_range(dtype));
        const size_t bytes = bank_bytes(dtype, plan);
        if (!best.fits || loss < best.loss || (loss == best.loss && bytes < best.bytes))
            best = {plan, true, bytes, loss};
    }
    return best;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
