// block/row_scale.hpp: the integer tables against their formulas, and the choice against the closed
// form in floating point.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <normans/block/block.hpp>
#include <normans/block/row_scale.hpp>
#include <normans/host/row_steps.hpp>

#include "support/random_scalars.hpp"

using namespace normans;
using namespace normans_test;

namespace {

// One sigma^2 in the units of row_statistics::sum.
double unit_of(const normal_shape& shape) { return std::exp2(16) / (shape.range * shape.range); }

row_statistics row_with(const normal_shape& shape, double ratio, uint32_t count)
{
    row_statistics row;
    row.sum = uint64_t(ratio * unit_of(shape) * count);
    row.count = count;
    return row;
}

}  // namespace

TEST_CASE("weights are 2^13 / sqrt(1 + cell^2 / (12 sigma^2))")
{
    for (int i = 0; i < 32; ++i) {
        const double square = std::exp2(i - 7.5);  // (cell / sigma)^2
        const double expected = 8192 / std::sqrt(1 + square / 12);
        CHECK(std::fabs(row_weights().weight[i] - expected) <= 0.501);
    }
}

TEST_CASE("the step is round(2 log2(mean square)), clamped; the gain is what it saves")
{
    for (const shape_id id : {shape_id::gaussian, shape_id::mixture, shape_id::mixture_marginal}) {
        const normal_shape shape = shape_of(id);
        CAPTURE(int(id));
        uint32_t wrong = 0;
        for (double exponent = -6; exponent < 8; exponent += 0.01) {
            const double ratio = std::exp2(exponent);
            const row_statistics row = row_with(shape, ratio, 1000);
            const int chosen = choose_row_step(shape, row);
            const double gain = double(row_step_gain(shape, row, chosen)) / 65536;
            double step = std::floor(2 * exponent + 0.5);
            step = step < min_row_step ? min_row_step : step > max_row_step ? max_row_step : step;
            if (std::fabs(2 * exponent - std::floor(2 * exponent) - 0.5) > 0.002)
                wrong += chosen != int(step);
            // Bits saved by sigma 2^(j/4): (ratio (1 - 2^(-j/2)) / (2 ln 2) - j / 4) per scalar.
            const double saved =
                1000 * (ratio * (1 - std::exp2(-chosen / 2.0)) / (2 * std::log(2.0)) -
                        chosen / 4.0);
            wrong += std::fabs(gain - saved) > 0.2 + 0.0005 * std::fabs(saved);
            wrong += gain < -2;  // near a border the neighbour may be a hair better
        }
        CHECK(wrong == 0);
        CHECK(choose_row_step(shape, {}) == 0);
        CHECK(row_step_gain(shape, {}, 3) == 0);
        CHECK(choose_row_step(shape, row_with(shape, 0, 10)) == min_row_step);
    }
}

TEST_CASE("the window is the best of all, each tried token by token")
{
    test_rng rng(102);
    const normal_shape shape = shape_of(shape_id::gaussian);
    uint32_t of_bits[5] = {}, none = 0, wrong = 0;
    for (int round = 0; round < 2000; ++round) {
        const uint32_t tokens = 1 + uint32_t(rng.below(200)), count = 1u << rng.below(10);
        const double middle = double(rng.below(60)) / 10 - 2.5, spread = double(rng.below(30)) / 10;
        std::vector<row_statistics> rows;
        row_statistics by_step[16];
        for (uint32_t t = 0; t < tokens; ++t) {
            const double exponent = middle + spread * (double(rng.below(1001)) / 500 - 1);
            rows.push_back(row_with(shape, std::exp2(exponent), count));
            by_step[choose_row_step(shape, rows.back()) - min_row_step].add(rows.back());
        }
        double best = 0;
        for (int bits = 0; bits <= 4; ++bits) {
            for (int lowest = 0; lowest + (1 << bits) <= 16; ++lowest) {
                double gain = -8.0 * double(row_step_bytes(tokens, uint32_t(bits)));
                for (const row_statistics& row : rows) {
                    const int step = choose_row_step(shape, row) - min_row_step;
                    const int stored =
                        (std::max)(lowest, (std::min)(step, lowest + (1 << bits) - 1));
                    gain += double(row_step_gain(shape, row, stored + min_row_step)) / 65536;
                }
                best = (std::max)(best, gain);
            }
        }
        const row_window_choice choice = choose_row_window(shape, by_step, tokens);
        wrong += std::fabs(double(choice.gain) / 65536 - best) > 0.01;
        wrong += !valid_window(choice.window);
        ++(choice.gain == 0 ? none : of_bits[choice.window.bits]);
    }
    CHECK(wrong == 0);
    CHECK(none > 50);
    for (const uint32_t found : of_bits) CHECK(found > 50);
}

TEST_CASE("row steps packed are read back, those outside as the window's nearest end")
{
    test_rng rng(103);
    uint32_t wrong = 0;
    for (uint8_t bits = 0; bits <= 4; ++bits) {
        for (uint8_t lowest = 0; lowest + (1 << bits) <= 16; ++lowest) {
            const uint32_t nibbles = uint32_t(rng.next()), highest = lowest + (1u << bits) - 1;
            uint8_t packed[4];
            detail::store_u32(packed, pack_row_steps(nibbles, {lowest, bits}));
            wrong += bits < 4 && packed[bits] != 0;
            const detail::row_steps_view view{packed, {lowest, bits}};
            for (uint32_t i = 0; i < 8; ++i) {
                const uint32_t nibble = nibbles >> 4 * i & 15;
                wrong += view.nibble(i) !=
                         (nibble < lowest ? lowest : (std::min)(nibble, highest));
            }
        }
    }
    CHECK(wrong == 0);
    CHECK(detail::row_steps_view{}(1000) == 0);
}

TEST_CASE("a block's window stays what it is when tokens come again because of another block")
{
    test_rng rng(104);
    const normal_shape shape = shape_of(shape_id::gaussian);
    uint32_t wrong = 0, full = 0;
    for (int round = 0; round < 2000; ++round) {
        const uint32_t tokens = 1 + uint32_t(rng.below(24));
        std::vector<row_statistics> rows(tokens);
        for (row_statistics& row : rows) {
            row.count = 1 + uint32_t(rng.below(round % 2 == 0 ? 4 : 4000000));
            row.sum = uint64_t(row.count) * rng.below(rng.bits(1) != 0 ? 1 << 18 : 1 << 15);
        }
        block_header header[2]{};
        uint8_t out[2][64] = {};
        for (int passes = 1; passes <= 2; ++passes) {
            detail::row_step_writer writer(header[passes - 1], tokens, out[passes - 1], 64);
            for (int pass = 0; pass < passes; ++pass) {
                for (uint32_t t = 0; t < tokens; ++t) writer.add(shape, t, rows[t]);
                wrong += writer.again(shape);
            }
        }
        const block_header& once = header[0];
        const block_header& twice = header[1];
        wrong += once.flags != twice.flags || once.rows.lowest != twice.rows.lowest ||
                 once.rows.bits != twice.rows.bits;
        const size_t begin = size_t(layout_of(once, tokens).row_steps);
        const size_t size = size_t(layout_of(once, tokens).states) - begin;
        wrong += std::memcmp(out[0] + begin, out[1] + begin, size) != 0;
        full += once.rows.bits == full_window.bits;
    }
    CHECK(wrong == 0);
    CHECK(full > 100);
}

TEST_CASE("the statistics are the mean of r^2 / (sigma^2 + cell^2 / 12), which counts up to 64")
{
    test_rng rng(101);
    const normal_shape shape = shape_of(shape_id::gaussian);
    const normal_model<scalar_type::bf16> fine{shape, -16, nullptr};
    const normal_model<scalar_type::e4m3fn> coarse{shape, -16, nullptr};
    const auto check = [&](const auto& model) {
        constexpr scalar_format format = std::decay_t<decltype(model)>::format;
        CAPTURE(format.code_bits);
        for (int round = 0; round < 200; ++round) {
            row_statistics row;
            double least = 0, most = 0;
            for (int i = 0; i < 200; ++i) {
                const test_scalar one =
                    draw_scalar(rng, format, data_style::typical, model.sigma_offset);
                const uint32_t mean = map_mean(one.mean, one_bits, minus_zero_bits);
                const double sigma = std::exp2(model.sigma_offset + one.sigma / 8.0);
                const double away = widen(value_bits(format, one.code)) - widen(mean);
                if (std::fabs(away) > 31 * sigma) continue;
                row.add(model, model.prepare_sloped(mean, one.sigma, statistics_scale), one.code);
                // The cell's width at the mean, of the code's own binade.
                const int field = int(exponent_field(mean));
                const int lowest = 128 - format.bias;
                const double cell = std::exp2((field > lowest ? field : lowest) - 127 -
                                              int(format.mantissa_bits));
                // A weight stands for half an octave of cell / sigma, found to 0.09 octaves.
                const double wide = cell * 1.27, narrow = cell / 1.27;
                least += (std::min)(64.0, away * away / (sigma * sigma + wide * wide / 12));
                most += (std::min)(64.0, away * away / (sigma * sigma + narrow * narrow / 12));
            }
            const double sum = double(row.sum) / unit_of(shape);
            CHECK(sum > 0.98 * least - 0.1);
            CHECK(sum < 1.02 * most + 0.1);
        }
    };
    check(fine);
    check(coarse);
}

TEST_CASE("special codes and far scalars say nothing")
{
    const normal_model<scalar_type::bf16> model{shape_of(shape_id::gaussian), -16, nullptr};
    row_statistics row;
    const auto prepared = [&](uint32_t sigma) {
        return model.prepare_sloped(one_bits, sigma, statistics_scale);
    };
    row.add(model, prepared(sigma_zero), 0x4000);
    row.add(model, prepared(100), 0x7fc0);
    row.add(model, prepared(100), 0xff80);
    CHECK(row.count == 0);
    CHECK(row.sum == 0);
    row.add(model, prepared(128), 0x4000);  // one sigma
    CHECK(row.count == 1);
    const uint64_t before = row.sum;
    row.add(model, prepared(128), 0x4380);  // 256 sigma, its cell two: clamped, not wrapped
    CHECK(row.count == 2);
    CHECK(row.sum - before == uint64_t(largest_weighted) * largest_weighted);
}

TEST_CASE("an outlier does not widen its row")
{
    const normal_model<scalar_type::bf16> model{shape_of(shape_id::gaussian), -16, nullptr};
    const scalar_model prepared = model.prepare_sloped(one_bits, 128, statistics_scale);
    row_statistics row;
    for (int i = 0; i < 127; ++i) row.add(model, prepared, i % 2 != 0 ? 0x4000u : 0x0000u);
    CHECK(choose_row_step(model.shape, row) == 0);
    for (const uint32_t far_away : {0x42c8u, 0xc2c8u}) {  // +-100 sigma
        row_statistics with = row;
        with.add(model, prepared, far_away);
        CHECK(choose_row_step(model.shape, with) <= 1);
    }
}
