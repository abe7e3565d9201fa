// core/float_bank.hpp and host/float_bank.hpp: the row of a scalar against plain arithmetic, its
// groups, and a plan's loss against what its rows lose elsewhere.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include <normans/host/float_bank.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

constexpr int offset = -20;
constexpr code_scale no_scale{one_bits, one_bits, 0};

struct hand_key {
    int row = 0, anchor = 0, row_class = 0;
};

// From the text of float_bank_rows.hpp, in real numbers.
hand_key key_by_hand(scalar_type type, const bank_plan& plan, double mean, int sigma_eighths)
{
    const scalar_format format = format_of(type);
    const int p = int(format.mantissa_bits), first = 1 << p;
    const int top = int(format.largest_finite >> p) - format.bias;
    const bool absolute = type == scalar_type::e2m1;
    const double largest = double(bits_to_float(value_bits(format, format.largest_finite)));
    mean = std::min(std::fabs(mean), largest);
    int binade = std::min(int(std::floor(sigma_eighths / 8.0)), top);
    if (mean > 0) binade = std::max(binade, int(std::floor(std::log2(mean))));
    binade = std::max(binade, 1 - format.bias);
    hand_key key;
    key.anchor = binade + format.bias;
    const double place = mean / std::exp2(binade - p);
    const int eighths = std::clamp(sigma_eighths - 8 * (binade - p) + 24, 0, 8 * (p + 4) - 1);
    const auto depth = [&](int octave) {
        return absolute ? 3 : octave < 2 ? 1 : std::max(1, octave - p + 3);
    };
    const auto parts = [&](int octave) {
        return std::exp2(std::min(int(plan.log_positions) + 1,
                                  int(plan.log_positions) + 3 - octave));
    };
    const auto rows_of = [&](int octave, int d) {
        if (!absolute && octave < 2) return d == 1 ? int(4 * parts(octave)) : 0;
        return int((d == 1 || octave == p + 3 ? 2 * first : first) * parts(octave));
    };
    const int octave = eighths / 8, step = eighths % 8 / (8 >> plan.log_steps);
    const int classes = depth(octave) + (absolute ? 0 : 1);
    key.row_class = std::min(key.anchor, classes);
    const bool shared = !absolute && octave < 2;
    for (int o = 0; o <= octave; ++o)
        for (int d = 1; d <= (absolute ? 3 : depth(o) + 1); ++d)
            if (o < octave || (!shared && d < key.row_class))
                key.row += rows_of(o, d) << plan.log_steps;
    const double part = std::floor(place * parts(octave));
    if (!shared) {
        const bool from_zero = key.row_class == 1 || octave == p + 3;
        key.row += step * rows_of(octave, key.row_class) +
                   int(part - (from_zero ? 0 : first * parts(octave)));
        return key;
    }
    const int unit = int(place);
    int kind = unit == 2 * first - 1 ? 3 : 2;
    if (key.row_class == 1 && unit == 0) kind = 0;
    if (key.row_class != 1 && unit == first) kind = 1;
    key.row += int(step * 4 * parts(octave) + kind * parts(octave) + part - unit * parts(octave));
    return key;
}

}  // namespace

TEST_CASE("Float banks: the row of a scalar, from the text")
{
    test_rng rng(61);
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::e5m2, scalar_type::e4m3fnuz,
                                   scalar_type::e5m2fnuz, scalar_type::e2m1})
        for (const bank_plan& plan : {bank_plan{shape_id::gaussian, 6, 0, 0},
                                      bank_plan{shape_id::gaussian, 6, 2, 1},
                                      bank_plan{shape_id::gaussian, 6, 3, 3}}) {
            const float_bank_model model(type, {plan, nullptr, nullptr, nullptr, nullptr}, offset);
            uint32_t wrong = 0, lifted = 0;
            for (int round = 0; round < 20000; ++round) {
                const float mean = std::ldexp(float(rng.noise()) / 65536, rng.between(-14, 10));
                const int sigma = rng.between(0, 254), step = rng.between(-6, 9);
                const hand_key hand =
                    key_by_hand(type, plan, double(mean), 8 * offset + sigma + 2 * step);
                const auto m =
                    model.prepare(float_to_bits(mean), uint32_t(sigma), step, no_scale);
                wrong += m.row != uint32_t(hand.row) || m.mirrored != std::signbit(mean) ||
                         int(m.lift >> model.format.mantissa_bits) !=
                             hand.anchor - hand.row_class;
                lifted += m.lift != 0;
            }
            CHECK(wrong == 0);
            if (type != scalar_type::e2m1) CHECK(lifted > 1000);
            // Odd inputs have a row each.
            for (const uint32_t mean : {0u, sign_bit, infinity_bits, infinity_bits | sign_bit,
                                        quiet_nan_bits, 0x7f7fffffu, 0xff7fffffu, 0x00800000u})
                for (const uint32_t sigma : {0u, 128u, 254u, 255u})
                    for (const uint32_t scale : {0u, 103u << 23, one_bits, 150u << 23})
                        CHECK(model.prepare(mean, sigma, 0, make_scale(scale)).row <
                              model.layout.rows());
        }
}

TEST_CASE("Float banks: groups tile the magnitudes")
{
    uint32_t wrong = 0, grouped = 0;
    for (const uint32_t p : {1u, 2u, 3u})
        for (int top = -8; top <= 8; ++top)
            for (const uint32_t lowest : {0u, 1u}) {
                const float_groups groups{p, top, lowest};
                uint32_t next = lowest << p;
                for (uint32_t group = 0; group < 60; ++group) {
                    uint32_t g = 0;
                    wrong += groups.magnitude_of(group, g) != next || g > p;
                    for (uint32_t m = next; m < next + (1u << g); ++m)
                        wrong += groups.group_of(m) != group || groups.bits(m >> p) != g;
                    grouped += g != 0;
                    next += 1u << g;
                }
            }
    CHECK(wrong == 0);
    CHECK(grouped > 200);
}

TEST_CASE("Float banks: what is no plan is no bank")
{
    tans_bank bank;
    tans_cell cell{};
    uint8_t reach = 0;
    const bank_plan good{shape_id::gaussian, 6, 0, 0}, huge{shape_id::gaussian, 12, 3, 4};
    const bank_memory memory{&cell, &reach, nullptr, nullptr};
    CHECK(valid_plan(scalar_type::e4m3fn, good));
    CHECK(make_bank(scalar_type::e4m3fn, huge, memory, bank) == status::bad_argument);
    CHECK(make_bank(scalar_type::bf16, good, memory, bank) == status::bad_argument);
    CHECK(make_bank(scalar_type::e5m2, good, {nullptr, &reach, nullptr, nullptr}, bank) ==
          status::bad_argument);
    CHECK(type_bank_in<std::vector>(scalar_type::bf16, good).bank.cells == nullptr);
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::e5m2, scalar_type::e2m1})
        for (uint32_t packed = 0; packed < 512; ++packed) {
            const bank_plan plan = unpack_plan(shape_id::mixture, packed);
            if (valid_plan(plan) && valid_plan(type, plan))
                CHECK(bank_cells(type, plan) <= size_t(max_bank_mib) << 18);
        }
}

TEST_CASE("Float banks: a plan's loss is that of other scalars too; a larger budget loses less")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::e5m2, scalar_type::e2m1}) {
        uint32_t before = 1u << 20;
        for (const size_t kib : {size_t(64), size_t(1024), size_t(8192)}) {
            const bank_choice choice = plan_type_bank(type, kib * 1024, shape_id::gaussian);
            REQUIRE(choice.fits);
            CHECK(choice.bytes == bank_bytes(type, choice.plan));
            CHECK(choice.bytes <= kib * 1024);
            CHECK(choice.loss < before);
            before = choice.loss;
            if (thin != 1 && kib == 8192) continue;
            // Means and sigmas of the plan's range, drawn.
            const bank_range range = usual_float_range(type);
            const scalar_format format = format_of(type);
            const float_bank_model model(type, {choice.plan, nullptr, nullptr, nullptr, nullptr},
                                         default_sigma_offset);
            const normal_shape shape = shape_of(shape_id::gaussian);
            test_rng rng(62);
            double loss = 0;
            const int rounds = thin == 1 ? 1500 : 200;
            for (int round = 0; round < rounds; ++round) {
                const int binade = format.code_bits == 8 ? rng.between(-3, 0) : rng.between(-1, 1);
                const uint32_t mean = uint32_t(127 + binade) << 23 | rng.bits(23);
                const uint32_t index =
                    uint32_t(rng.between(range.lowest, range.highest) +
                             8 * (binade - int(format.mantissa_bits) - default_sigma_offset));
                const uint32_t slope =
                    shape.slope[index & 7] -
                    (uint32_t(default_sigma_offset + int(index >> 3)) << 23);
                loss += double(detail::float_row_loss(model, mean, index,
                                                      {format, shape, mean, slope})) / rounds;
            }
            MESSAGE(doctest::String(scalar_name(type)), ", ", kib, " KiB: planned ",
                    choice.loss / 65536.0, ", drawn ", loss / 65536);
            CHECK(loss < 1.25 * choice.loss);
            CHECK(loss > 0.8 * choice.loss);
        }
    }
    CHECK_FALSE(plan_type_bank(scalar_type::e4m3fn, 16000, shape_id::gaussian).fits);
    CHECK_FALSE(plan_type_bank(scalar_type::bf16, 1 << 20, shape_id::gaussian).fits);
    CHECK(plan_type_bank(scalar_type::int8, 65536, shape_id::gaussian).loss ==
          plan_bank(scalar_type::int8, 65536).loss);
}
