// core/shape.hpp: where its numbers come from, and what must hold of G.

#include <doctest/doctest.h>

#include <cmath>

#include <normans/core/float_bits.hpp>
#include <normans/core/shape.hpp>

using namespace normans;

namespace {

constexpr shape_id shapes[] = {shape_id::gaussian, shape_id::mixture, shape_id::mixture_marginal};

long double normal_cdf(long double t) { return 0.5L * std::erfc(-t / std::sqrt(2.0L)); }

// F of the shape, in units of sigma.
long double cdf(shape_id id, long double t)
{
    switch (id) {
    case shape_id::mixture: return 0.95L * normal_cdf(t) + 0.05L * normal_cdf(t / 2);
    case shape_id::mixture_marginal:
        return (0.95L * normal_cdf(t) + 0.03L * normal_cdf(t / 3)) / 0.98L;
    case shape_id::gaussian: break;
    }
    return normal_cdf(t);
}

}  // namespace

TEST_CASE("base[q] is the rounded CDF")
{
    for (const shape_id id : shapes) {
        const normal_shape shape = shape_of(id);
        CAPTURE(int(id));
        const long double range = shape.range;
        const long double low = cdf(id, -range), high = cdf(id, range);
        for (int q = 0; q <= 32; ++q) {
            CAPTURE(q);
            const long double mass = rans_format::total - shape.escape_slots;
            const long double share = mass * (cdf(id, range * (q - 16) / 16) - low) / (high - low);
            // The middle of an odd mass is a tie and goes to even.
            const long double expected =
                q == 16 ? 2 * std::round(mass / 4) : std::round(share);
            CHECK(shape.base[q] == uint32_t(expected));
            if (q != 16) CHECK(std::fabs(share - std::floor(share) - 0.5L) > 1e-3L);
        }
    }
}

TEST_CASE("slopes are 2^15 / range * 2^(-i/8), rounded once")
{
    for (const shape_id id : shapes) {
        const normal_shape shape = shape_of(id);
        CAPTURE(int(id));
        CHECK(shape.unit_slope == shape.slope[0]);
        for (int i = 0; i < 8; ++i) {
            const long double slope = 32768.0L / shape.range * std::exp2(-i / 8.0L);
            CHECK(shape.slope[i] == float_to_bits(float(slope)));
        }
    }
    CHECK(shape_of(shape_id::gaussian).range == 4);
    CHECK(shape_of(shape_id::mixture).range == 6);
    CHECK(shape_of(shape_id::mixture_marginal).range == 6);
    CHECK(shape_of(shape_id::gaussian).escape_slots == 32);
    CHECK(shape_of(shape_id::mixture).escape_slots == 32);
    CHECK(shape_of(shape_id::mixture_marginal).escape_slots == 655);
}

TEST_CASE("G is monotone over all its 65,536 points, and its ends are right")
{
    for (const shape_id id : shapes) {
        const normal_shape shape = shape_of(id);
        CAPTURE(int(id));
        const uint32_t mass = rans_format::total - shape.escape_slots;
        CHECK(shape.base[0] == 0);
        CHECK(shape.base[32] == mass);
        CHECK(gaussian_cdf(shape, lowest_z) == 0);
        CHECK(gaussian_cdf(shape, highest_z) < mass);
        CHECK(gaussian_cdf(shape, highest_z) + 3 >= mass);  // few slots above the last C
        CHECK(gaussian_cdf(shape, 0) == shape.base[16]);
        uint32_t falls = 0, leaps = 0, pieces = 0;
        for (int z = lowest_z; z < highest_z; ++z) {
            const uint32_t here = gaussian_cdf(shape, z), above = gaussian_cdf(shape, z + 1);
            falls += above < here;
            leaps += above > here + 3;  // no step of z holds more slots than that
        }
        for (int q = 0; q < 32; ++q)
            pieces += gaussian_cdf(shape, q * 2048 - 32768) == shape.base[q];
        CHECK(falls == 0);
        CHECK(leaps == 0);
        CHECK(pieces == 32);
    }
}

TEST_CASE("G is the straight line between two bases, rounded down")
{
    for (const shape_id id : shapes) {
        const normal_shape shape = shape_of(id);
        CAPTURE(int(id));
        uint32_t wrong = 0;
        for (int z = lowest_z; z <= highest_z; ++z) {
            const int q = int(std::floor((z + 32768) / 2048.0));
            const double share = (z + 32768) / 2048.0 - q;
            const double line = shape.base[q] + share * (shape.base[q + 1] - shape.base[q]);
            wrong += gaussian_cdf(shape, z) != uint32_t(std::floor(line));
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("shape ids")
{
    for (uint32_t id = 0; id < 256; ++id) CHECK(valid_shape(shape_id(id)) == (id < 3));
}
