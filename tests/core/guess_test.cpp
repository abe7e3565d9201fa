// host/guess.hpp: always a boundary in range, whatever the model; and a good one where models are
// ordinary. (That locate finds the same interval from any guess is normal_test's and
// normal_exhaustive's.)

#include <doctest/doctest.h>

#include <normans/host/guess.hpp>

#include "support/random_scalars.hpp"

using namespace normans;
using namespace normans_test;

namespace {

constexpr shape_id shapes[] = {shape_id::gaussian, shape_id::mixture, shape_id::mixture_marginal};

struct hits {
    uint64_t total = 0, near_by = 0, outside = 0;
};

template <scalar_type Type>
hits count_hits(bool ordinary, uint64_t seed)
{
    hits seen;
    test_rng rng(seed);
    for (int round = 0; round < 3000; ++round) {
        const int offset = ordinary ? -16 : rng.between(min_sigma_offset, max_sigma_offset);
        const normal_model<Type> model{shape_of(shapes[round % 3]), offset, nullptr};
        const piecewise_guess guess(model.shape);
        const test_scalar one =
            draw_scalar(rng, model.format, ordinary ? data_style::typical : data_style::adversarial,
                        offset);
        const uint32_t mean = map_mean(one.mean, one_bits, minus_zero_bits);
        const scalar_model m = model.prepare(mean, one.sigma, 0);
        if (m.is_far) continue;
        for (int i = 0; i < 40; ++i) {
            const uint32_t slot =
                model.shape.escape_slots + rng.below(rans_format::total - model.shape.escape_slots);
            const int boundary = guess(model, m, slot);
            ++seen.total;
            if (boundary < -1 - m.last_group || boundary > m.last_group + 1) {
                ++seen.outside;
                continue;
            }
            const interval at = model.locate(m, slot, boundary);
            if (at.corrupt) continue;
            const uint32_t c = model.cdf(m, boundary);
            // Right if it is one of the interval's two boundaries.
            seen.near_by += c == at.start || c == at.start + at.freq;
        }
    }
    return seen;
}

template <scalar_type Type>
void check_guess(uint64_t seed)
{
    CAPTURE(doctest::String(scalar_name(Type)));
    const hits usual = count_hits<Type>(true, seed), wild = count_hits<Type>(false, seed + 1);
    REQUIRE(usual.total > 50000);
    CHECK(usual.outside == 0);
    CHECK(wild.outside == 0);
    CHECK(usual.near_by * 1000 > usual.total * 985);
}

}  // namespace

TEST_CASE("the guess is in range, and nearly always right")
{
    check_guess<scalar_type::e4m3fn>(91);
    check_guess<scalar_type::e5m2>(92);
    check_guess<scalar_type::e4m3fnuz>(93);
    check_guess<scalar_type::e5m2fnuz>(94);
    check_guess<scalar_type::bf16>(95);
    check_guess<scalar_type::fp16>(96);
}

TEST_CASE("the guess's tables")
{
    for (const shape_id id : shapes) {
        const normal_shape shape = shape_of(id);
        const piecewise_guess guess(shape);
        for (uint32_t slot = shape.escape_slots; slot < rans_format::total; ++slot) {
            uint32_t piece = 0;
            while (piece < 31 && shape.escape_slots + shape.base[piece + 1] <= slot) ++piece;
            CHECK(guess.first[slot >> 7] <= piece);
            if (slot % 128 == 0) CHECK(guess.first[slot >> 7] == piece);
        }
    }
}
