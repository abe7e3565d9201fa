// Places of means and levels of sigmas in registers against the definition; also compiled with
// -ffast-math, under which compilers take floats for real numbers.

#include <doctest/doctest.h>

#include <cstdlib>
#include <vector>

#include <normans/host/bank.hpp>
#include <normans/host/tans_block.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

#if NORMANS_AVX2
TEST_CASE("tANS by AVX2: places of means and levels are the definition's, about every tie too")
{
    using detail::tans_batch;
    const bank_in<std::vector> bank({shape_id::gaussian, 8, 2, 1});
    test_rng rng(505);
    detail::tans_predictions in;
    detail::tans_pieces pieces;
    detail::tans_plane_levels::scalars found;
    uint32_t wrong = 0, ties = 0;
    for (uint32_t round = 0; round < 600 / (std::getenv("NORMANS_TEST_ROUNDS") != nullptr ? 11 : 1); ++round) {
        const scalar_format format = format_of(round % 2 ? scalar_type::int4 : scalar_type::int8);
        const detail::tans_plane_levels levels(format, bank.bank);
        const int zero = int(format.code_sign()) << 5, last = 8 * (6 + int(format.code_bits) - 2);
        code_scale scale[tans_batch];
        int origin[tans_batch];
        pieces.count = 0;
        for (uint32_t i = 0; i < tans_batch;) {
            uint32_t bits = rng.bits(23) | (100 + rng.below(54)) << 23;
            if (rng.below(4) == 0) bits = (103 + rng.below(48)) << 23;  // where ties are
            if (rng.below(20) == 0) bits = rng.bits(32);
            const int step = rng.between(-300, 300);
            const uint32_t end = i + 1 + rng.below(tans_batch - i < 70 ? tans_batch - i : 70);
            pieces.add(end, bits, step);
            for (; i < end; ++i) {
                scale[i] = make_scale(bits);
                origin[i] = scale[i].scale == 0 ? detail::tans_levels::none
                                                : step - scale[i].eighths;
                in.sigma[i] = uint8_t(rng.bits(8));
                // A tie, or a float next to it.
                const float tie = (float(rng.between(-zero - 4, zero + 4)) - 0.0625f) / 32;
                const float value = tie * (scale[i].scale == 0 ? 1 : bits_to_float(bits));
                in.mean[i] = float_to_bits(value) + rng.below(3) - 1;
                if (rng.below(9) == 0) in.mean[i] = rng.bits(32);
            }
        }
        levels.under_scales(in, pieces, found);
        for (uint32_t i = 0; i < tans_batch; ++i) {
            // A subnormal counts as 0, as the float mode has it.
            const uint32_t fixed = fixed_mean(format, in.mean[i], scale[i]);
            int above = in.sigma[i] == sigma_zero ? 0 : origin[i] + int(in.sigma[i]);
            above = above < 0 ? 0 : above > last - 1 ? last - 1 : above;
            wrong += found.place[i] != fixed >> 3 || int(found.above[i]) != above;
            ties += fixed % 8 == 0;
        }
    }
    CHECK(wrong == 0);
    CHECK(ties > 1000);
}
#endif
