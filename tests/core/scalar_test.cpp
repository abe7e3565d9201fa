// core/scalar.hpp: every code of every type, against values computed in plain doubles here.

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include <normans/core/scalar.hpp>

#include "support/ordered_codes.hpp"
#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

constexpr scalar_type modelled[] = {scalar_type::e4m3fn,   scalar_type::e5m2, scalar_type::e4m3fnuz,
                                    scalar_type::e5m2fnuz, scalar_type::bf16, scalar_type::fp16};

uint32_t codes_of(const scalar_format& format) { return 2 * format.code_sign(); }

// The value of a magnitude by the textbook, one past the largest finite included.
double value_of(const scalar_format& format, uint32_t magnitude)
{
    const uint32_t field = magnitude >> format.mantissa_bits;
    const uint32_t fraction = magnitude & ((uint32_t(1) << format.mantissa_bits) - 1);
    const double one = std::ldexp(1.0, int(format.mantissa_bits));
    const double significand = field == 0 ? double(fraction) : one + double(fraction);
    return std::ldexp(significand, int(field == 0 ? 1 : field) - format.bias -
                                       int(format.mantissa_bits));
}

// Nearest, ties to the even code, by looking at all values: `values` ascends and ends one past the
// largest finite, whose place is infinity's or out of range.
uint32_t brute_nearest(const scalar_format& format, const std::vector<double>& values,
                       uint32_t bits)
{
    if (is_nan(bits)) return format.quiet_nan;
    const uint32_t limit = format.largest_finite + (format.has_infinity ? 1 : 0);
    uint32_t magnitude = limit;
    if ((bits & ~sign_bit) < infinity_bits) {
        const double value = widen(bits & ~sign_bit);
        uint32_t low = 0, high = format.largest_finite + 1;
        while (high - low > 1) {
            const uint32_t middle = (low + high) / 2;
            if (values[middle] <= value) low = middle;
            else high = middle;
        }
        const double down = value - values[low], up = values[high] - value;
        magnitude = down < up || (down == up && low % 2 == 0) ? low : high;
        if (magnitude > limit) magnitude = limit;
    }
    if (magnitude == 0 && !format.has_negative_zero) return 0;
    return magnitude | (bits & sign_bit ? format.code_sign() : 0);
}

}  // namespace

TEST_CASE("the types are what their names say")
{
    const scalar_format e4m3fn = format_of(scalar_type::e4m3fn);
    CHECK(value_bits(e4m3fn, 0x40) == float_to_bits(2.0f));
    CHECK(value_bits(e4m3fn, 0x7e) == float_to_bits(448.0f));
    CHECK(value_bits(e4m3fn, 0x01) == float_to_bits(0.001953125f));
    CHECK(value_bits(format_of(scalar_type::e4m3fnuz), 0x40) == one_bits);
    CHECK(value_bits(format_of(scalar_type::e4m3fnuz), 0x7f) == float_to_bits(240.0f));
    CHECK(value_bits(format_of(scalar_type::e5m2), 0x7b) == float_to_bits(57344.0f));
    CHECK(value_bits(format_of(scalar_type::e5m2fnuz), 0x7f) == float_to_bits(57344.0f));
    CHECK(value_bits(format_of(scalar_type::bf16), 0xc049) == 0xc0490000);
    CHECK(value_bits(format_of(scalar_type::fp16), 0x7bff) == float_to_bits(65504.0f));
    CHECK(value_bits(format_of(scalar_type::fp16), 0x8001) == 0xb3800000);

    const char* names[] = {"e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "bf16",
                           "fp16",   "raw8", "int8",     "int4",     "e2m1"};
    for (uint32_t id = 0; id < 16; ++id) {
        const scalar_type type = scalar_type(id);
        CHECK(valid_scalar(type) == (id < 10));
        CHECK(has_model(type) == (id != 6 && id < 10));
        CHECK(std::string(scalar_name(type)) == (id < 10 ? names[id] : "unknown type"));
        CHECK(code_bytes(type) == (id == 4 || id == 5 ? 2 : 1));
    }
}

TEST_CASE("special codes")
{
    for (const scalar_type type : modelled) {
        const scalar_format format = format_of(type);
        uint32_t specials = 0;
        for (uint32_t code = 0; code < codes_of(format); ++code)
            specials += is_special(format, code);
        CAPTURE(doctest::String(scalar_name(type)));
        CHECK(specials == (type == scalar_type::e4m3fn ? 2u
                           : type == scalar_type::e5m2 ? 8u
                           : type == scalar_type::bf16 ? 256u
                           : type == scalar_type::fp16 ? 2048u
                                                       : 1u));
        CHECK(is_special(format, format.quiet_nan));
    }
    CHECK_FALSE(is_special(format_of(scalar_type::bf16), 0x8000));
    CHECK(is_special(format_of(scalar_type::e4m3fnuz), 0x80));
}

TEST_CASE("ordered_index and code_at are one bijection, in numeric order")
{
    for (const scalar_type type : modelled) {
        const scalar_format format = format_of(type);
        CAPTURE(doctest::String(scalar_name(type)));
        std::vector<bool> seen(codes_of(format));
        uint64_t wrong = 0;
        for (uint32_t code = 0; code < codes_of(format); ++code) {
            const uint32_t index = ordered_index(format, code);
            REQUIRE(index < codes_of(format));
            wrong += seen[index] || code_at(format, index) != code;
            seen[index] = true;
        }
        for (uint32_t index = 0; index + 1 < codes_of(format); ++index) {
            const uint32_t code = code_at(format, index), above = code_at(format, index + 1);
            if (is_special(format, code) || is_special(format, above)) continue;
            const double low = widen(value_bits(format, code));
            const double high = widen(value_bits(format, above));
            wrong += !(low < high) && !(low == 0 && high == 0);  // -0, then +0
        }
        CHECK(wrong == 0);
        CHECK(code_at(format, format.code_sign()) == 0);
        CHECK(code_at(format, format.code_sign() - 1) == format.code_sign());
    }
}

TEST_CASE("value_bits is the exact value, edge_bits the exact midpoint")
{
    for (const scalar_type type : modelled) {
        const scalar_format format = format_of(type);
        CAPTURE(doctest::String(scalar_name(type)));
        uint64_t wrong = 0;
        for (uint32_t magnitude = 0; magnitude <= format.largest_finite; ++magnitude) {
            const double value = value_of(format, magnitude);
            const uint32_t bits = value_bits(format, magnitude);
            wrong += widen(bits) != value || bits >> 31 != 0;
            wrong += value_bits(format, magnitude | format.code_sign()) != (bits | sign_bit);
            const double below = magnitude == 0 ? 0 : value_of(format, magnitude - 1);
            wrong += widen(edge_bits(format, magnitude)) != (below + value) / 2;
        }
        const uint32_t past = format.largest_finite + 1;
        if (format.bias != 127)  // bf16's value there would be 2^128
            wrong += widen(edge_bits(format, past)) !=
                     (value_of(format, past - 1) + value_of(format, past)) / 2;
        CHECK(wrong == 0);
        CHECK(edge_bits(format, 0) == 0);
    }
    CHECK(edge_bits(format_of(scalar_type::bf16), 0x7f80) == 0x7f7f8000);
}

TEST_CASE("nearest_code against a search over all values")
{
    test_rng rng(21);
    for (const scalar_type type : modelled) {
        const scalar_format format = format_of(type);
        CAPTURE(doctest::String(scalar_name(type)));
        std::vector<double> values;
        for (uint32_t magnitude = 0; magnitude <= format.largest_finite + 1; ++magnitude)
            values.push_back(value_of(format, magnitude));

        uint64_t wrong = 0;
        uint32_t first_wrong = 0;
        const auto check = [&](uint32_t bits) {
            if (nearest_code(format, bits) == brute_nearest(format, values, bits)) return;
            if (wrong++ == 0) first_wrong = bits;
        };
        // All values and midpoints, and their neighbours among the floats.
        for (uint32_t magnitude = 0; magnitude <= format.largest_finite + 1; ++magnitude) {
            const uint32_t value = magnitude > format.largest_finite
                                       ? float_to_bits(float(values[magnitude]))
                                       : value_bits(format, magnitude);
            for (const uint32_t middle : {value, edge_bits(format, magnitude)})
                for (uint32_t near_by = 0; near_by < 5; ++near_by)
                    if (middle + near_by >= 2)
                        for (const uint32_t sign : {0u, sign_bit})
                            check(((middle + near_by - 2) & ~sign_bit) | sign);
        }
        // A grid over all floats: every upper half with several lower ones, and random ones.
        for (uint32_t upper = 0; upper < 65536; ++upper)
            for (const uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
                check(upper << 16 | lower);
        for (uint32_t i = 0; i < 2000000 / thin; ++i) check(rng.bits(32));
        CAPTURE(first_wrong);
        CHECK(wrong == 0);
    }
}

TEST_CASE("nearest_code: a code's own value gives it back")
{
    for (const scalar_type type : modelled) {
        const scalar_format format = format_of(type);
        CAPTURE(doctest::String(scalar_name(type)));
        uint64_t wrong = 0;
        for (uint32_t code = 0; code < codes_of(format); ++code)
            if (!is_special(format, code))
                wrong += nearest_code(format, value_bits(format, code)) != code;
        CHECK(wrong == 0);
    }
}

TEST_CASE("nearest_code: overflow, infinities, NaN, signed zero")
{
    const auto code = [](scalar_type type, uint32_t bits) {
        return nearest_code(format_of(type), bits);
    };
    using scalar = scalar_type;
    CHECK(code(scalar::e4m3fn, float_to_bits(464.0f)) == 0x7e);
    CHECK(code(scalar::e4m3fn, float_to_bits(1000.0f)) == 0x7e);
    CHECK(code(scalar::e4m3fn, infinity_bits | sign_bit) == 0xfe);
    CHECK(code(scalar::e5m2, float_to_bits(61439.0f)) == 0x7b);
    CHECK(code(scalar::e5m2, float_to_bits(61440.0f)) == 0x7c);
    CHECK(code(scalar::e5m2, infinity_bits | sign_bit) == 0xfc);
    CHECK(code(scalar::e4m3fnuz, infinity_bits) == 0x7f);
    CHECK(code(scalar::e5m2fnuz, infinity_bits | sign_bit) == 0xff);
    CHECK(code(scalar::bf16, 0x7f7fffff) == 0x7f80);
    CHECK(code(scalar::bf16, 0x7f7f7fff) == 0x7f7f);
    CHECK(code(scalar::fp16, float_to_bits(65520.0f)) == 0x7c00);
    for (const scalar_type type : modelled)
        for (const uint32_t nan : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu})
            CHECK(code(type, nan) == format_of(type).quiet_nan);
    for (const uint32_t tiny :
         {sign_bit, sign_bit | 1, sign_bit | 0x7fffff, sign_bit | 0x0a000000}) {
        CHECK(code(scalar::e4m3fn, tiny) == 0x80);
        CHECK(code(scalar::e4m3fnuz, tiny) == 0);
        CHECK(code(scalar::e5m2fnuz, tiny) == 0);
        CHECK(code(scalar::fp16, tiny) == 0x8000);
    }
}
