#pragma once
// G, the integer CDF of one Gaussian shape over z in [-32768, 32767], that is +-range sigma: 32
// pieces with straight lines between, so it is monotone by construction. The numbers below are the
// definition; the formula in tests/core/shape_test.cpp only explains them:
//     base[q] = round((total - escape_slots) (F(t) - F(-range)) / (F(range) - F(-range))),
//     t = range (q - 16) / 16, F the CDF in units of sigma.

#include "format.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Stored in stream headers and profiles.
enum class shape_id : uint8_t {
    gaussian,          // N(s), range 4
    mixture,           // 0.95 N(s) + 0.05 N(2s), range 6
    mixture_marginal,  // 0.95 N(s) + 0.03 N(3s) + 0.02 empirical marginal (in the escape), range 6
};

struct normal_shape {
    uint32_t escape_slots;  // slots [0, escape_slots) say that the code itself follows
    uint32_t range;
    uint32_t unit_slope;   // fp32 bits of 2^15 / range: z per sigma
    uint32_t slope[8];     // fp32 bits of 2^15 / range * 2^(-i/8)
    uint16_t base[33];     // base[32] = total - escape_slots
};

NORMANS_HD constexpr bool valid_shape(shape_id id) { return id <= shape_id::mixture_marginal; }

NORMANS_HD constexpr normal_shape shape_of(shape_id id)
{
    switch (id) {
    case shape_id::mixture:
        return {32, 6, 0x45aaaaab,
                {0x45aaaaab, 0x459c8085, 0x458f8353, 0x45839a1c,
                 0x45715bef, 0x455d53c9, 0x454af540, 0x453a1d03},
                {0, 2, 5, 10, 18, 30, 50, 84, 149, 288, 591, 1228, 2447, 4520, 7626, 11700, 16368,
                 21036, 25110, 28216, 30289, 31508, 32145, 32448, 32587, 32652, 32686, 32706, 32718,
                 32726, 32731, 32734, 32736}};
    case shape_id::mixture_marginal:
        return {655, 6, 0x45aaaaab,
                {0x45aaaaab, 0x459c8085, 0x458f8353, 0x45839a1c,
                 0x45715bef, 0x455d53c9, 0x454af540, 0x453a1d03},
                {0, 8, 17, 29, 43, 61, 84, 117, 176, 300, 582, 1187, 2364, 4388, 7437, 11451, 16056,
                 20662, 24676, 27725, 29749, 30926, 31531, 31813, 31937, 31996, 32029, 32052, 32070,
                 32084, 32096, 32105, 32113}};
    case shape_id::gaussian: break;
    }
    return {32, 4, 0x46000000,
            {0x46000000, 0x45eac0c7, 0x45d744fd, 0x45c5672a,
             0x45b504f3, 0x45a5fed7, 0x459837f0, 0x458b95c2},
            {0, 2, 7, 18, 43, 97, 202, 399, 744, 1310, 2186, 3458, 5193, 7418, 10100, 13137, 16368,
             19599, 22636, 25318, 27543, 29278, 30550, 31426, 31992, 32337, 32534, 32639, 32693,
             32718, 32729, 32734, 32736}};
}

constexpr int lowest_z = -32768;
constexpr int highest_z = 32767;

/// G(z), z in [lowest_z, highest_z].
NORMANS_HD constexpr uint32_t gaussian_cdf(const normal_shape& shape, int z)
{
    const uint32_t position = uint32_t(z + 32768);
    const uint32_t piece = position >> 11, low = position & 2047;
    const uint32_t rise = uint32_t(shape.base[piece + 1]) - shape.base[piece];
    return shape.base[piece] + (low * rise >> 11);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
