// core/float_bits.hpp against a computation on 576-bit integers (tests/support/exact_float.hpp),
// and against the fused multiply-add of the machine where it has one. (A libm's fma may be emulated
// or dispatched; a wrong version can agree with it, so the wide integers are the judge.)

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include <normans/core/float_bits.hpp>

#include "support/exact_float.hpp"
#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

#if defined(__x86_64__) && defined(__GNUC__)
[[gnu::target("fma")]] uint32_t machine_fma(uint32_t a, uint32_t b, uint32_t c)
{
    return float_to_bits(
        __builtin_fmaf(bits_to_float(a), bits_to_float(b), bits_to_float(c)));
}
bool has_machine_fma() { return __builtin_cpu_supports("fma") != 0; }
#else
uint32_t machine_fma(uint32_t, uint32_t, uint32_t) { return 0; }
bool has_machine_fma() { return false; }
#endif

struct operands {
    uint32_t a, b, c;
};

// A finite float whose exponent field lies in low..high.
uint32_t random_float(test_rng& rng, int low, int high)
{
    return rng.bits(1) << 31 | uint32_t(rng.between(low, high)) << 23 | rng.bits(23);
}

uint32_t with_field(uint32_t mantissa, int field, uint32_t sign)
{
    return sign << 31 | uint32_t(field) << 23 | (mantissa & 0x7fffff);
}

int clamp_field(int field) { return field < 0 ? 0 : field > 254 ? 254 : field; }

// The odd numbers' inverse modulo 2^24.
uint32_t inverse_24(uint32_t odd)
{
    uint32_t x = odd;  // right in 3 bits; each round doubles them
    for (int i = 0; i < 4; ++i) x *= 2 - odd * x;
    return x & 0xffffff;
}

// Pairs of 24-bit significands whose product is 2^47 and a little: less than 2^10 more.
const std::vector<std::pair<uint32_t, uint32_t>>& bare_products()
{
    static const std::vector<std::pair<uint32_t, uint32_t>> pairs = [] {
        std::vector<std::pair<uint32_t, uint32_t>> found;
        for (uint64_t a = 0x800001; a < 0x1000000; a += 2) {
            const uint64_t b = (uint64_t(1) << 47) / a + 1;
            if (a * b - (uint64_t(1) << 47) < 1024) found.emplace_back(uint32_t(a), uint32_t(b));
        }
        return found;
    }();
    return pairs;
}

// Sums that lie at a tie of fp32 or a hair beside it, where rounding to double first goes wrong, or
// forgetting a bit that was shifted out.
operands near_tie(test_rng& rng)
{
    switch (rng.below(6)) {
    case 4: {  // the upper bits of c fill the product's low bits up to a tie, its last bits pass it
        const unsigned bits = 1 + rng.below(6), low = 24 - bits;
        const uint32_t upper = 1u << (bits - 1) | (rng.bits(6) & ((1u << (bits - 1)) - 1));
        const int place = rng.between(0, 16 - int(bits));
        const uint32_t a = rng.bits(24) | 0x800001;
        const uint32_t dropped = rng.below(2) ? 23 : 24;  // a product of 47 or 48 bits
        const bool minus = rng.bits(1) != 0;
        const uint32_t half = 1u << (dropped - 1), filled = upper << place;
        const uint32_t b = (minus ? half + filled : half - filled) * inverse_24(a) & 0xffffff;
        const int left = rng.between(60, 190), right = rng.between(100, 150);
        const int field = left + right - 150 + place - int(low);
        return {with_field(a, left, 0), with_field(b, right, 0),
                with_field(upper << low | rng.bits(3), clamp_field(field), minus ? 1 : 0)};
    }
    case 5: {  // c minus half its last place and a little more
        const auto& [a, b] = bare_products()[rng.below(uint32_t(bare_products().size()))];
        const int left = rng.between(60, 190), right = rng.between(100, 150);
        const uint32_t sign = rng.bits(1);
        return {with_field(a, left, sign), with_field(b, right, 0),
                with_field(rng.bits(23), clamp_field(left + right - 126 + rng.between(23, 25)),
                           rng.below(4) ? 1 - sign : sign)};
    }
    case 0: {  // the product is a tie by itself: odd * 2^23 of 48 bits; c decides, far below it
        const uint32_t a = (rng.bits(12) | 0x801u) << 12, b = (rng.bits(12) | 0x1801u) << 11;
        const int field = rng.between(20, 230), other = rng.between(100, 150);
        const int tiny = clamp_field(field + other - 127 - rng.between(20, 120));
        const uint32_t c = rng.below(4) == 0 ? rng.bits(1) << 31 : random_float(rng, tiny, tiny);
        return {with_field(a, field, rng.bits(1)), with_field(b, other, rng.bits(1)), c};
    }
    case 1: {  // c plus half its last place, times (1 + x)(1 - x) with x = 2^-23: just below a tie
        const int field = rng.between(60, 200), split = rng.between(100, 150);
        const uint32_t up = rng.below(4), down = rng.below(4);
        const uint32_t a = with_field(up, split, rng.bits(1));
        // down in last places below a power of two, or above
        const uint32_t b = with_field(0, clamp_field(field - 24 + 127 - split + 1), rng.bits(1)) -
                           (rng.bits(1) ? 2 * down : 0u - down);
        return {a, b, random_float(rng, field, field)};
    }
    case 2: {  // near cancellation: c = -(a b) rounded, then moved a few last places
        const uint32_t a = random_float(rng, 1, 254), b = random_float(rng, 1, 254);
        const uint32_t product = exact_sum(a, b, 0).to_fp32();
        if (exponent_field(product) == 255) return {a, b, 0};
        const uint32_t moved = product + uint32_t(rng.between(-2, 2));
        return {a, b, (exponent_field(moved) == 255 ? product : moved) ^ sign_bit};
    }
    default: {  // a carry through the whole mantissa
        const int field = rng.between(30, 220);
        const uint32_t c = with_field(0x7fffffu - rng.below(2), field, rng.bits(1));
        const int below = field - rng.between(20, 30);
        const int split = rng.between(90, 160);
        return {with_field(rng.below(3), split, rng.bits(1)),
                with_field(rng.bits(1) * 0x7fffff, clamp_field(below + 127 - split), rng.bits(1)),
                c};
    }
    }
}

operands anywhere(test_rng& rng)
{
    const uint32_t a = random_float(rng, 0, 254), b = random_float(rng, 0, 254);
    return {a, b, random_float(rng, 0, 254)};
}

// Addends within a few places of each other, so that every alignment occurs.
operands alike(test_rng& rng)
{
    const int a = rng.between(1, 254), b = rng.between(1, 254);
    const int sum = clamp_field(a + b - 127 + rng.between(-60, 60));
    return {random_float(rng, a, a), random_float(rng, b, b), random_float(rng, sum, sum)};
}

uint64_t count_wrong(operands (*draw)(test_rng&), uint32_t rounds, uint64_t seed)
{
    test_rng rng(seed);
    uint64_t wrong = 0;
    const bool machine = has_machine_fma();
    for (uint32_t i = 0; i < rounds / thin; ++i) {
        const operands x = draw(rng);
        const uint32_t expected = exact_sum(x.a, x.b, x.c).to_fp32();
        const uint32_t got = fma_exact(x.a, x.b, x.c);
        bool good = got == expected;
        // What the machine rounds into the subnormals is a zero here.
        if (machine) {
            const uint32_t fused = machine_fma(x.a, x.b, x.c);
            good &= exponent_field(fused) == 0 || exponent_field(expected) == 0 ? true
                                                                                : got == fused;
        }
        if (!good && wrong++ < 3) {
            CAPTURE(x.a);
            CAPTURE(x.b);
            CAPTURE(x.c);
            CHECK(got == expected);
        }
    }
    return wrong;
}

// map_mean from the text of the format, the sum taken from the wide integers.
uint32_t expected_mean(uint32_t mean, uint32_t a, uint32_t b)
{
    if (is_nan(mean)) return quiet_nan_bits;
    if (exponent_field(mean) == 255)
        return (a & ~sign_bit) == 0 ? quiet_nan_bits : infinity_bits | ((mean ^ a) & sign_bit);
    if (exponent_field(mean) == 0) mean &= sign_bit;
    const uint32_t mapped = exact_sum(mean, a, b).to_fp32();
    return exponent_field(mapped) <= 1 ? mapped & sign_bit : mapped;
}

}  // namespace

TEST_CASE("bit casts and fields")
{
    CHECK(float_to_bits(1.0f) == one_bits);
    CHECK(float_to_bits(-0.0f) == minus_zero_bits);
    CHECK(bits_to_float(0x40490fdb) == 3.14159274f);
    CHECK(double_to_bits(1.0) == 0x3ff0000000000000u);
    CHECK(exponent_field(0xff800000) == 255);
    CHECK(exponent_field(0x807fffff) == 0);
    CHECK(is_nan(0x7f800001));
    CHECK(is_nan(0xffc00000));
    CHECK_FALSE(is_nan(infinity_bits));
    CHECK_FALSE(is_nan(infinity_bits | sign_bit));
    CHECK(widen(0xc0200000) == -2.5);
}

TEST_CASE("round_to_fp32 is the nearest float, ties to even")
{
    test_rng rng(11);
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < 4000000 / thin; ++i) {
        // A double as high + low, exactly (at most 53 bits): the wide sum 1 * high + low judges it.
        const uint32_t high = random_float(rng, 40, 254);
        const int field = int(exponent_field(high)) - rng.between(24, 29);
        uint32_t low = random_float(rng, field, field);
        if (rng.bits(1)) low &= 0xff800000u;  // powers of two: ties among them
        const double sum = widen(high) + widen(low);
        wrong += round_to_fp32(double_to_bits(sum)) != exact_sum(high, one_bits, low).to_fp32();
    }
    CHECK(wrong == 0);
    CHECK(round_to_fp32(double_to_bits(0.0)) == 0);
    CHECK(round_to_fp32(double_to_bits(-0.0)) == minus_zero_bits);
    CHECK(round_to_fp32(double_to_bits(widen(0x7f7fffff))) == 0x7f7fffff);
    // Half a place above the largest float rounds to infinity, less than that does not.
    const uint64_t largest = double_to_bits(widen(0x7f7fffff));
    CHECK(round_to_fp32(largest + 0x0fffffff) == 0x7f7fffff);
    CHECK(round_to_fp32(largest + 0x10000000) == infinity_bits);
    CHECK(round_to_fp32(double_to_bits(-1e300)) == (infinity_bits | sign_bit));
    // The smallest normal stays; what lies below it is a zero of its sign.
    const uint64_t smallest = double_to_bits(widen(0x00800000));
    CHECK(round_to_fp32(smallest) == 0x00800000);
    CHECK(round_to_fp32(smallest - 1) == 0);
    CHECK(round_to_fp32((smallest - 1) | uint64_t(1) << 63) == minus_zero_bits);
}

TEST_CASE("multiply is the nearest float to the product")
{
    test_rng rng(12);
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < 8000000 / thin; ++i) {
        const operands x = i % 4 == 0 ? near_tie(rng) : anywhere(rng);
        const uint32_t zero = (x.a ^ x.b) & sign_bit;  // keeps the product's own sign at 0
        wrong += multiply(x.a, x.b) != exact_sum(x.a, x.b, zero).to_fp32();
    }
    CHECK(wrong == 0);
    CHECK(multiply(minus_zero_bits, one_bits) == minus_zero_bits);
    CHECK(multiply(minus_zero_bits, minus_zero_bits) == 0);
    CHECK(multiply(0x7f7fffff, 0x40000000) == infinity_bits);
    CHECK(multiply(0x00800000, 0x3f000000) == 0);
}

TEST_CASE("fma_exact rounds once, whatever the operands")
{
    CHECK(count_wrong(anywhere, 8000000, 13) == 0);
    CHECK(count_wrong(alike, 12000000, 14) == 0);
    CHECK(count_wrong(near_tie, 16000000, 15) == 0);
    if (!has_machine_fma()) MESSAGE("skipped: this machine has no fused multiply-add to compare");
}

TEST_CASE("fma_exact: zeros, cancellation, overflow, underflow")
{
    const uint32_t zeros[2] = {0, minus_zero_bits};
    for (const uint32_t a : zeros)
        for (const uint32_t b : {one_bits, one_bits | sign_bit, 0u, minus_zero_bits})
            for (const uint32_t c : {0u, minus_zero_bits, one_bits, 0x80800000u, 0x007fffffu})
                CHECK(fma_exact(a, b, c) == exact_sum(a, b, c).to_fp32());
    CHECK(fma_exact(one_bits, one_bits, one_bits | sign_bit) == 0);
    CHECK(fma_exact(one_bits | sign_bit, one_bits, one_bits) == 0);
    CHECK(fma_exact(0x7f7fffff, 0x7f7fffff, 0) == infinity_bits);
    CHECK(fma_exact(0x7f7fffff, 0xff7fffff, 0) == (infinity_bits | sign_bit));
    CHECK(fma_exact(0x00800000, 0x00800000, 0) == 0);
    CHECK(fma_exact(0x80800000, 0x00800000, minus_zero_bits) == minus_zero_bits);
    CHECK(fma_exact(0x00800000, 0x3f000000, 0x00400000) == 0x00800000);  // two halves make a normal
    CHECK(fma_exact(0x00000001, one_bits, 0x007fffff) == 0x00800000);    // subnormals are exact
}

TEST_CASE("map_mean: every class of mean under every class of map")
{
    const uint32_t means[] = {0,          minus_zero_bits, 1,          0x007fffff, 0x807fffff,
                              0x00800000, 0x00ffffff,      0x01000000, one_bits,   0xbf800000,
                              0x7f7fffff, 0xff7fffff,      0x7f800000, 0xff800000, 0x7f800001,
                              0x7fc00000, 0xffc12345,      0xff800001};
    const uint32_t factors[] = {0, minus_zero_bits, one_bits, 0xbf800000, 0x00800000, 0x7f7fffff,
                                0x3f7ffffe, 0xc0400000};
    const uint32_t shifts[] = {0, minus_zero_bits, 0x80800000, 0x00800000, one_bits, 0xff7fffff};
    for (const uint32_t mean : means)
        for (const uint32_t a : factors)
            for (const uint32_t b : shifts) {
                CAPTURE(mean);
                CAPTURE(a);
                CAPTURE(b);
                CHECK(map_mean(mean, a, b) == expected_mean(mean, a, b));
            }
}

TEST_CASE("map_mean: the identity changes only what cleaning says")
{
    test_rng rng(16);
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < 2000000 / thin; ++i) {
        const uint32_t mean = rng.bits(32);
        const uint32_t clean = is_nan(mean)                ? quiet_nan_bits
                               : exponent_field(mean) <= 1 ? mean & sign_bit
                                                           : mean;
        wrong += map_mean(mean, one_bits, minus_zero_bits) != clean;
    }
    CHECK(wrong == 0);
    CHECK(map_mean(minus_zero_bits, one_bits, 0) == 0);  // why the identity's b is -0.0
}

TEST_CASE("map_mean rounds once")
{
    test_rng rng(17);
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < 16000000 / thin; ++i) {
        operands x = i % 8 == 0 ? anywhere(rng) : i % 2 ? near_tie(rng) : alike(rng);
        if (exponent_field(x.b) == 0) x.b &= sign_bit;  // the map's numbers are zero or normal
        if (exponent_field(x.c) == 0) x.c &= sign_bit;
        const bool good = map_mean(x.a, x.b, x.c) == expected_mean(x.a, x.b, x.c);
        if (!good && wrong++ < 3) {
            CAPTURE(x.a);
            CAPTURE(x.b);
            CAPTURE(x.c);
            CHECK(map_mean(x.a, x.b, x.c) == expected_mean(x.a, x.b, x.c));
        }
    }
    CHECK(wrong == 0);
}
