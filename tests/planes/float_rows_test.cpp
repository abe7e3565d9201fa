// host/float_rows.hpp and float_planes.hpp against float_bank_model::prepare(): every sigma index,
// every row step, means from all binades and from beyond them; and groups by formula against the
// walk through binades.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <normans/host/float_block.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

constexpr scalar_type types[] = {scalar_type::e4m3fn, scalar_type::e5m2, scalar_type::e4m3fnuz,
                                 scalar_type::e5m2fnuz, scalar_type::e2m1};

// Rows of up to a batch of scalars by one of the ways.
struct by_lanes {
    detail::float_levels levels;
    detail::float_rows rows;

    by_lanes(scalar_type type, const bank_plan& plan) : levels(format_of(type), plan) {}

    void find(const detail::tans_predictions& in, uint32_t n, int origin)
    {
        levels.find_rows(in, 0, n, origin, rows);
    }
};
#if NORMANS_AVX2
struct by_planes {
    detail::float_plane_levels levels;
    detail::float_plane_rows rows;

    by_planes(scalar_type type, const bank_plan& plan) : levels(format_of(type), plan) {}

    void find(const detail::tans_predictions& in, uint32_t n, int origin)
    {
        levels.under_origin(in, 0, n, origin);
        levels.find_rows(in, n, rows);
    }
};
#endif

// What float_rows.hpp says of groups, from groups_of()'s numbers.
int away_of(const float_groups& groups, uint32_t under_top)
{
    const int over = int(under_top) - int(groups.mantissa_bits);
    return (groups.lowest != 0 ? 1 << (groups.mantissa_bits - groups.bits(1)) : 0) -
           (over > 0 ? over : 0);
}

// Means of a binade (or none): its ends, places about the edges of parts, others.
uint32_t mean_of(test_rng& rng, uint32_t field)
{
    const uint32_t kind = rng.below(6), part = rng.bits(12) << 11;
    uint32_t low = rng.bits(23);
    if (kind == 0) low = 0;
    if (kind == 1) low = 0x7fffff;
    if (kind == 2) low = part;
    if (kind == 3) low = (part - 1) & 0x7fffff;
    return rng.bits(1) << 31 | field << 23 | low;
}

template <class Way>
uint32_t wrong_rows(scalar_type type, const bank_plan& plan, int offset, int step, bool known,
                    int scale_eighths, test_rng& rng, uint32_t& grouped)
{
    float_bank_model model(type, {plan, nullptr, nullptr, nullptr, nullptr}, offset);
    model.scaled = false;  // means are in code units
    Way way(type, plan);
    detail::tans_predictions in;
    uint32_t wrong = 0;
    const uint32_t fields_each = std::getenv("NORMANS_TEST_ROUNDS") != nullptr ? 16 : 1;
    for (uint32_t field = 0; field < 256; field += field % 64 == 63 ? 1 : fields_each) {
        // All sigmas twice, unless far from the type's binades.
        const bool near = field >= 100 && field <= 146;
        const uint32_t n = near ? 512 : 64;
        for (uint32_t i = 0; i < n; ++i) {
            in.sigma[i] = uint8_t(near ? i : rng.below(8) == 0 ? 255 : rng.bits(8));
            in.mean[i] = mean_of(rng, field);
        }
        way.find(in, n,
                 known ? way.levels.keys().origin(offset, step, {one_bits, one_bits, scale_eighths})
                       : detail::float_keys::none);
        const auto places = way.rows.from(0);
        for (uint32_t i = 0; i < n; ++i) {
            const uint32_t mean = map_mean(in.mean[i], one_bits, minus_zero_bits);
            // A scale of 2^(eighths / 8) is so many row steps less.
            const int steps = step - scale_eighths / 2;
            const auto m =
                model.prepare(mean, known ? in.sigma[i] : sigma_zero, steps, {one_bits, 0, 0});
            const detail::float_place place = places[i];
            const uint32_t under = uint32_t(std::max(m.groups.top, 1) - 1);
            wrong += place.first_cell != m.row << plan.table_bits || place.origin != m.base ||
                     place.under_top() != under || place.away() != away_of(m.groups, under) ||
                     place.lift != (m.lift | uint32_t(m.mirrored) << 7);
            grouped += under != 0;
        }
    }
    return wrong;
}

template <class Way>
void check_rows(uint64_t seed)
{
    test_rng rng(seed);
    uint32_t grouped = 0;
    for (const scalar_type type : types)
        for (const bank_plan& plan : {bank_plan{shape_id::gaussian, 6, 0, 0},
                                      bank_plan{shape_id::gaussian, 7, 2, 1},
                                      bank_plan{shape_id::gaussian, 6, 3, 3}}) {
            CAPTURE(doctest::String(scalar_name(type)));
            for (int step = min_row_step; step < min_row_step + 16; step += 5)
                CHECK(wrong_rows<Way>(type, plan, -20, step, true, 0, rng, grouped) == 0);
            // Sigmas out of every reach, and where all types differ.
            for (const int offset : {int(min_sigma_offset), -40, -3, int(max_sigma_offset)})
                CHECK(wrong_rows<Way>(type, plan, offset, rng.between(-6, 9), true, 0, rng,
                                      grouped) == 0);
            for (const int eighths : {-190, 22, 190})
                CHECK(wrong_rows<Way>(type, plan, -20, 1, true, eighths, rng, grouped) == 0);
            CHECK(wrong_rows<Way>(type, plan, -20, 0, false, 0, rng, grouped) == 0);
        }
    CHECK(grouped > 10000);
}

}  // namespace

TEST_CASE("Float rows: those of the definition")
{
    check_rows<by_lanes>(1);
#if NORMANS_AVX2
    check_rows<by_planes>(2);
#endif
}

TEST_CASE("Float rows: groups by formula")
{
    uint32_t wrong = 0, raw = 0;
    for (const scalar_type type : types) {
        const float_bank_layout layout{format_of(type), {shape_id::gaussian, 6, 0, 0}};
        const auto& all = detail::float_groups_tables[layout.mantissa_bits() - 1];
        for (uint32_t octave = 0; octave < layout.octaves(); ++octave)
            for (uint32_t d = 1; d <= layout.classes(octave); ++d) {
                const float_groups groups = groups_of(layout, octave, d);
                const uint32_t under = uint32_t(std::max(groups.top, 1) - 1);
                const uint32_t start =
                    detail::float_place::start_of(under, away_of(groups, under));
                for (uint32_t group = 0; group < 88; ++group) {
                    uint32_t bits = 0;
                    const uint32_t magnitude = std::min(groups.magnitude_of(group, bits), 255u);
                    const auto entry = all.group[start + group];
                    wrong += entry.magnitude != magnitude || entry.raw_bits != bits;
                    raw += bits != 0;
                }
            }
    }
    CHECK(wrong == 0);
    CHECK(raw > 200);
}
