// core/sigma.hpp: the nearest point of the log grid, by long double logarithms; and the proof that
// a deviation cannot pass for a variance.

#include <doctest/doctest.h>

#include <cmath>
#include <type_traits>

#include <normans/core/sigma.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

template <class Argument, class = void>
struct takes : std::false_type {};
template <class Argument>
struct takes<Argument, std::void_t<decltype(sigma_index(std::declval<Argument>(), 0))>>
    : std::true_type {};

static_assert(takes<deviation>::value && takes<variance>::value);
static_assert(!takes<float>::value && !takes<double>::value && !takes<int>::value,
              "a bare number says neither deviation nor variance");
static_assert(!std::is_convertible_v<deviation, variance>);
static_assert(!std::is_convertible_v<variance, deviation>);
static_assert(!std::is_convertible_v<float, deviation> && !std::is_convertible_v<float, variance>);
static_assert(!std::is_constructible_v<deviation, variance> &&
              !std::is_constructible_v<variance, deviation>);

// The documented outcome; `halves` is 1 for a deviation, 2 for a variance.
int expected_index(uint32_t bits, int offset, int halves)
{
    if ((bits & sign_bit) != 0 || bits == 0 || is_nan(bits)) return 255;
    if (bits == infinity_bits) return 254;
    if (exponent_field(bits) == 0) return 0;
    const long double logarithm = std::log2(static_cast<long double>(bits_to_float(bits))) / halves;
    const long double index = std::floor(8 * (logarithm - offset) + 0.5L);
    return index < 0 ? 0 : index > 254 ? 254 : int(index);
}

bool agrees(uint32_t bits, int offset)
{
    return sigma_index(deviation{bits_to_float(bits)}, offset) == expected_index(bits, offset, 1) &&
           sigma_index(variance{bits_to_float(bits)}, offset) == expected_index(bits, offset, 2);
}

}  // namespace

TEST_CASE("sigma_index is the nearest grid point, at every exponent and around every threshold")
{
    const int offsets[] = {min_sigma_offset, -31, default_sigma_offset, 0, max_sigma_offset};
    uint64_t wrong = 0;
    for (uint32_t field = 1; field < 255; ++field) {
        for (int step = 0; step < 16; ++step) {
            // Middles of the deviation's grid lie at odd 16ths of an octave, of the variance's at
            // odd 8ths; the even ones are grid points.
            const double middle = std::exp2(step / 16.0);
            const auto mantissa = int(std::floor((middle - 1) * 8388608.0));
            for (int near_by = -3; near_by <= 4; ++near_by) {
                const int moved = mantissa + near_by;
                if (moved < 0 || moved > 0x7fffff) continue;
                for (const int offset : offsets)
                    wrong += !agrees(field << 23 | uint32_t(moved), offset);
            }
        }
    }
    test_rng rng(31);
    for (uint32_t i = 0; i < 1000000 / thin; ++i)
        wrong += !agrees(rng.bits(32), rng.between(min_sigma_offset, max_sigma_offset));
    CHECK(wrong == 0);
}

TEST_CASE("every special input has its documented outcome")
{
    struct outcome {
        uint32_t bits;
        int index;
    };
    const outcome outcomes[] = {{0, 255},          {sign_bit, 255},   {0xbf800000, 255},
                                {0x7fc00000, 255}, {0x7f800001, 255}, {0xffc00000, 255},
                                {0xff800000, 255}, {0x7f800000, 254}, {0x7f7fffff, 254},
                                {1, 0},            {0x007fffff, 0},   {0x00800000, 0},
                                {0x80000001, 255}};
    for (const outcome& o : outcomes) {
        CAPTURE(o.bits);
        CHECK(sigma_index(deviation{bits_to_float(o.bits)}, default_sigma_offset) == o.index);
        CHECK(sigma_index(variance{bits_to_float(o.bits)}, default_sigma_offset) == o.index);
    }
    CHECK(sigma_index(deviation{1.0f}, default_sigma_offset) == 128);
    CHECK(sigma_index(variance{4.0f}, default_sigma_offset) == 136);
}

TEST_CASE("a variance gets the index of its deviation")
{
    test_rng rng(32);
    uint64_t differ = 0, far_apart = 0;
    const uint32_t rounds = 1000000 / thin;
    for (uint32_t i = 0; i < rounds; ++i) {
        const uint32_t bits = uint32_t(rng.between(70, 180)) << 23 | rng.bits(23);
        const float sigma = bits_to_float(bits);
        const int one = sigma_index(deviation{sigma}, -60);
        const int other = sigma_index(variance{sigma * sigma}, -60);
        differ += one != other;
        far_apart += one - other > 1 || other - one > 1;
    }
    // Only the rounding of sigma * sigma can tell them apart, at a threshold.
    CHECK(differ * 100000 <= rounds);
    CHECK(far_apart == 0);
    for (int octave = -40; octave <= 40; ++octave) {
        const float sigma = std::ldexp(1.0f, octave);
        CHECK(sigma_index(deviation{sigma}, -40) == sigma_index(variance{sigma * sigma}, -40));
    }
}

TEST_CASE("the offsets keep every sigma in [2^-80, 2^100]")
{
    CHECK(min_sigma_offset == -80);
    CHECK(max_sigma_offset + 254 / 8.0 <= 100);
    CHECK(largest_sigma_index == 254);
    CHECK(sigma_zero == 255);
}
