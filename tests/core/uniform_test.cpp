// core/uniform_scalar.hpp and uniform_model.hpp: scales, means in code units, and the intervals of
// int8, int4 and e2m1, each against plain arithmetic; every code and every slot under each model;
// streams against the reference coder; the rate against the Gaussian's cross-entropy.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <normans/core/rans_step.hpp>
#include <normans/core/uniform_model.hpp>

#include "support/exact_float.hpp"
#include "support/ordered_codes.hpp"
#include "support/reference_rans.hpp"
#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

constexpr shape_id shapes[] = {shape_id::gaussian, shape_id::mixture};

// Value of a code in code units.
double units_of(const scalar_format& format, uint32_t code)
{
    if (!format.is_integer) return widen(value_bits(format, code));
    const int half = int(format.code_sign());
    return int(code) - (int(code) >= half ? 2 * half : 0);
}

// The lower edge of the cell of ordered index i, 1 .. last, in code units.
double edge_of(const scalar_format& format, uint32_t i)
{
    return (units_of(format, code_at(format, i - 1)) + units_of(format, code_at(format, i))) / 2;
}

uint32_t random_scale(test_rng& rng)
{
    return uint32_t(rng.between(127 - 24, 127 + 23)) << 23 | rng.bits(23);
}

struct drawn_model {
    uint32_t mean, sigma;
    int row_step;
    uint32_t scale;
};

// Means within and beyond the codes' range, sigmas around a cell.
drawn_model draw_model(test_rng& rng, const scalar_format& format, int offset)
{
    drawn_model d{};
    d.scale = random_scale(rng);
    const double scale = widen(d.scale);
    const double reach = format.is_integer ? format.largest_finite : 6;
    const double mean = (rng.noise() / 65536.0) * reach / 2 * scale;
    d.mean = map_mean(float_to_bits(float(mean)), one_bits, minus_zero_bits);
    const double octave = std::log2(scale) + rng.noise() / 65536.0 * 2;
    const int k = int(std::lround(8 * (octave - offset)));
    d.sigma = rng.below(50) == 0 ? 255u : uint32_t(k < 0 ? 0 : k > 254 ? 254 : k);
    d.row_step = rng.below(2) ? 0 : rng.between(min_row_step, max_row_step);
    return d;
}

// Everything that a model promises, for all codes and slots.
template <class Model>
void check_intervals(const Model& model, const scalar_model& m)
{
    const uint32_t codes = 2 * Model::format.code_sign();
    std::vector<uint32_t> owner(rans_format::total, codes);  // codes: nobody
    uint32_t wrong = 0, escapes = 0;
    for (uint32_t code = 0; code < codes; ++code) {
        const interval found = model.find(m, code);
        if (found.escaped) {
            wrong += found.start != 0 || found.freq != model.shape.escape_slots ||
                     found.raw_bits != Model::format.code_bits;
            ++escapes;
            continue;
        }
        wrong += found.freq == 0 || found.start < model.shape.escape_slots ||
                 found.start + found.freq > rans_format::total || found.code != code ||
                 found.raw_bits != 0;
        for (uint32_t i = 0; i < found.freq; ++i) {
            wrong += owner[found.start + i] != codes;
            owner[found.start + i] = code;
        }
    }
    for (uint32_t slot = model.shape.escape_slots; slot < rans_format::total; slot += thin) {
        const interval at =
            m.is_far ? model.locate_far(m, slot)
                     : model.locate(m, slot, int(slot % 3) - 1);
        wrong += at.corrupt != (owner[slot] == codes);
        wrong += !at.corrupt && at.code != owner[slot];
    }
    CHECK(wrong == 0);
    CHECK(escapes < codes);
}

template <scalar_type Type>
void check_model(uint64_t seed)
{
    constexpr scalar_format format = format_of(Type);
    CAPTURE(doctest::String(scalar_name(Type)));
    test_rng rng(seed);
    uint32_t far = 0, near = 0;
    for (int round = 0; round < (thin == 1 ? 300 : 20); ++round) {
        const int offset = rng.between(-24, -8);
        const scaled_model<Type> model{shape_of(shapes[round % 2]), offset, nullptr};
        const drawn_model d = draw_model(rng, format, offset);
        const code_scale scale = make_scale(d.scale);
        const scalar_model m = prepare_scaled(model, d.mean, d.sigma, d.row_step, scale);
        check_intervals(model, m);
        ++(m.is_far ? far : near);
        const uint32_t in_codes = mean_in_codes(d.mean, scale);
        if (m.is_far) {
            const uint32_t code = expected_code(format, in_codes);
            CHECK(model.find(m, code).freq > 30000);
            continue;
        }
        // The boundaries from the text, each product and fma rounded once.
        const uint32_t row = multiply(row_slope(d.row_step), d.scale);
        const uint32_t k = d.sigma;
        const uint32_t unscaled =
            model.shape.slope[k & 7] - (uint32_t(offset + int(k >> 3)) << 23);
        const uint32_t slope = exact_sum(unscaled, row, 0).to_fp32();
        const uint32_t bias = exact_sum(in_codes, slope, 0).to_fp32() ^ sign_bit;
        CHECK(m.slope == slope);
        CHECK((m.bias == bias || (bias & ~sign_bit) == 0));
        uint32_t wrong = 0;
        for (uint32_t i = 0; i + 1 < 2 * format.code_sign(); ++i) {
            const interval found = model.find(m, code_at(format, i));
            const auto boundary = [&](uint32_t at) {
                int z = at == 0 ? -32768 : 32767;
                if (at > 0 && at < 2 * format.code_sign()) {
                    const float edge = float(edge_of(format, at));
                    z = nearest_integer(
                        exact_sum(float_to_bits(edge), slope, bias).to_fp32());
                }
                return model.shape.escape_slots + gaussian_cdf(model.shape, z);
            };
            const uint32_t start = boundary(i), freq = boundary(i + 1) - start;
            if (freq == 0) wrong += !found.escaped;
            else if (!found.escaped) wrong += found.start != start || found.freq != freq;
            else wrong += format.is_integer;  // small floats also escape beyond 2^17 sigma
        }
        CHECK(wrong == 0);
    }
    CHECK(near > far);
}

template <scalar_type Type>
void check_streams(uint64_t seed)
{
    constexpr scalar_format format = format_of(Type);
    using lanes = array_lanes<8>;
    test_rng rng(seed);
    const scaled_model<Type> model{shape_of(shape_id::gaussian), -20, nullptr};
    std::vector<scalar_model> models;
    std::vector<uint32_t> codes;
    std::vector<rans_scalar> events;
    for (int i = 0; i < 1003; ++i) {
        const drawn_model d = draw_model(rng, format, -20);
        models.push_back(
            prepare_scaled(model, d.mean, d.sigma, d.row_step, make_scale(d.scale)));
        const uint32_t slot = rng.bits(15);
        uint32_t code = rng.bits(format.code_bits);
        if (slot >= 32 && rng.below(20) != 0) {
            const interval at = models.back().is_far ? model.locate_far(models.back(), slot)
                                                     : model.locate(models.back(), slot, 0);
            if (!at.corrupt) code = at.code;
        }
        codes.push_back(code);
        const interval found = model.find(models.back(), code);
        rans_scalar event;
        event.phase[0].kind = rans_event::interval;
        event.phase[0].start = found.start;
        event.phase[0].freq = found.freq;
        if (found.escaped) {
            event.phase[1].kind = rans_event::raw;
            event.phase[1].bits = format.code_bits;
            event.phase[1].value = code;
        }
        events.push_back(event);
    }
    const auto models_at = [&](size_t first) {
        lanes::models out{};
        for (uint32_t i = 0; i < 8 && first + i < codes.size(); ++i) out[i] = models[first + i];
        return out;
    };
    std::vector<uint8_t> room(6 * codes.size());
    word_writer out{room.data(), room.data() + room.size()};
    lanes::state state;
    for (uint32_t i = 0; i < 8; ++i) state[i] = rans_format::lower_bound;
    for (size_t first = (codes.size() - 1) / 8 * 8;; first -= 8) {
        lanes::values now{};
        uint32_t active = 0;
        for (uint32_t i = 0; i < 8 && first + i < codes.size(); ++i) {
            now[i] = codes[first + i];
            active |= 1u << i;
        }
        encode_step<lanes>(state, model, models_at(first), now, active, out);
        if (first == 0) break;
    }
    const rans_stream plain = reference_encode(events, 8);
    std::vector<uint8_t> bytes;
    for (const uint16_t word : plain.words) {
        bytes.push_back(uint8_t(word));
        bytes.push_back(uint8_t(word >> 8));
    }
    CHECK(bytes == std::vector<uint8_t>(out.next, room.data() + room.size()));
    for (uint32_t i = 0; i < 8; ++i) CHECK(state[i] == plain.states[i]);
    word_reader in{bytes.data(), bytes.data() + bytes.size()};
    uint32_t corrupt = 0, wrong = 0;
    const auto no_guess = [](const auto&, const scalar_model&, uint32_t) { return 0; };
    for (size_t first = 0; first < codes.size(); first += 8) {
        const uint32_t here = codes.size() - first < 8 ? uint32_t(codes.size() - first) : 8;
        const auto back = decode_step<lanes>(state, model, no_guess, models_at(first),
                                             lanes::first_lanes(here), in, corrupt);
        for (uint32_t i = 0; i < here; ++i) wrong += back[i] != codes[first + i];
    }
    CHECK(wrong == 0);
    CHECK(corrupt == 0);
    CHECK(in.next == in.end);
}

// Bits per scalar of the model and of a Gaussian in real arithmetic, over means within a cell.
template <scalar_type Type>
void check_rate(int eighths, double& loss)
{
    constexpr scalar_format format = format_of(Type);
    const scaled_model<Type> model{shape_of(shape_id::gaussian), -16, nullptr};
    const code_scale scale = make_scale(float_to_bits(0.037f));
    const double sigma = std::exp2(eighths / 8.0) / widen(scale.scale);
    double ours = 0, best = 0;
    for (int j = 0; j < 16; ++j) {
        const double mean = ((2 * j + 1) / 32.0 - 0.5 + (format.is_integer ? 1 : 1.2)) *
                            widen(scale.scale);
        const scalar_model m = prepare_scaled(model, float_to_bits(float(mean)),
                                              uint32_t(eighths + 128), 0, scale);
        const double center = widen(float_to_bits(float(mean))) / widen(scale.scale);
        const uint32_t all = 2 * format.code_sign();
        for (uint32_t i = 0; i < all; ++i) {
            const auto phi = [&](uint32_t at) {
                if (at == 0) return 0.0;
                if (at == all) return 1.0;
                return std::erfc(-(edge_of(format, at) - center) / sigma / std::sqrt(2.0)) / 2;
            };
            const double p = phi(i + 1) - phi(i);
            if (p < 1e-12) continue;
            const interval found = model.find(m, code_at(format, i));
            best -= p * std::log2(p) / 16;
            ours += p * (15 - std::log2(found.freq) + found.raw_bits) / 16;
        }
    }
    loss = ours / best - 1;
    CAPTURE(doctest::String(scalar_name(Type)));
    CAPTURE(sigma);
    CHECK(ours >= best);
    CHECK(ours <= best * 1.003 + 0.003);
}

}  // namespace

TEST_CASE("A scale's inverse is 1 / scale rounded once; its eighths are the nearest")
{
    const auto check = [](uint32_t bits) {
        const code_scale scale = make_scale(bits);
        const double s = widen(bits), inverse = widen(scale.inverse);
        const double half_ulp =
            std::ldexp(0.5, int(exponent_field(scale.inverse)) - 127 - 23);
        return scale.scale == bits && std::fabs(inverse * s - 1) <= s * half_ulp &&
               std::fabs(8 * std::log2(s) - scale.eighths) <= 0.5 + 1e-5;
    };
    uint32_t wrong = 0;
    for (uint32_t fraction = 0; fraction < 1u << 23; fraction += thin)
        wrong += !check(uint32_t(103 + fraction % 48) << 23 | fraction);
    for (uint32_t field = 103; field < 151; ++field)
        for (const uint32_t fraction : {0u, 1u, 0x400000u, 0x7fffffu})
            wrong += !check(field << 23 | fraction);
    CHECK(wrong == 0);
    CHECK(make_scale(one_bits).inverse == one_bits);
    for (const uint32_t none : {0u, 1u, 0x007fffffu, 102u << 23, 151u << 23, infinity_bits,
                                quiet_nan_bits, one_bits | sign_bit, sign_bit, 0xffffffffu})
        CHECK(make_scale(none).scale == 0);
}

TEST_CASE("The nearest integer code")
{
    for (const scalar_type type : {scalar_type::int8, scalar_type::int4}) {
        const scalar_format format = format_of(type);
        const int highest = int(format.largest_finite), lowest = -1 - highest;
        uint32_t wrong = 0;
        const auto check = [&](float mean) {
            const double nearest = std::nearbyint(double(mean));
            const int code = nearest < lowest ? lowest : nearest > highest ? highest : int(nearest);
            const uint32_t got = nearest_integer_code(format, float_to_bits(mean));
            wrong += got != (uint32_t(code) & (2 * format.code_sign() - 1));
        };
        for (int quarter = -1200; quarter <= 1200; ++quarter) {
            const float mean = float(quarter) / 4;
            check(mean);
            check(std::nextafter(mean, 1000.0f));
            check(std::nextafter(mean, -1000.0f));
        }
        check(1e30f);
        check(-1e30f);
        check(std::numeric_limits<float>::infinity());
        check(-std::numeric_limits<float>::infinity());
        CHECK(wrong == 0);
        CHECK(nearest_integer_code(format, quiet_nan_bits) == 0);
    }
}

TEST_CASE("N02 int8, int4, e2m1: every code and every slot, boundaries from the text")
{
    check_model<scalar_type::int8>(21);
    check_model<scalar_type::int4>(22);
    check_model<scalar_type::e2m1>(23);
}

TEST_CASE("int8, int4, e2m1: odd means, sigmas and scales have an outcome each")
{
    const auto check = [](auto model) {
        constexpr scalar_format format = decltype(model)::format;
        for (const uint32_t mean :
             {0u, sign_bit, infinity_bits, infinity_bits | sign_bit, quiet_nan_bits, 0x7f7fffffu,
              0xff7fffffu, 0x01000000u, one_bits})
            for (const uint32_t sigma : {0u, 7u, 100u, 128u, 254u, 255u})
                for (const uint32_t scale :
                     {0u, sign_bit, infinity_bits, quiet_nan_bits, 103u << 23, one_bits,
                      150u << 23 | 0x7fffffu})
                    for (const int step : {-6, 0, 9}) {
                        const code_scale s = make_scale(scale);
                        const scalar_model m = prepare_scaled(model, mean, sigma, step, s);
                        check_intervals(model, m);
                        if (s.scale == 0) CHECK(model.find(m, 0).freq > 30000);
                        if (s.scale != 0 && (mean & ~sign_bit) == infinity_bits) {
                            const uint32_t last = mean >> 31 ? format.is_integer
                                                                   ? format.code_sign()
                                                                   : 2 * format.code_sign() - 1
                                                             : format.largest_finite;
                            CHECK(model.find(m, last).freq > 30000);
                        }
                    }
    };
    if (thin != 1) return;  // all slots of 3,402 models
    check(scaled_model<scalar_type::int8>{shape_of(shape_id::gaussian), -80, nullptr});
    check(scaled_model<scalar_type::int4>{shape_of(shape_id::mixture), 68, nullptr});
    check(scaled_model<scalar_type::e2m1>{shape_of(shape_id::gaussian), -16, nullptr});
}

TEST_CASE("int8, int4, e2m1: streams equal the reference coder's")
{
    check_streams<scalar_type::int8>(31);
    check_streams<scalar_type::int4>(32);
    check_streams<scalar_type::e2m1>(33);
}

TEST_CASE("int8, int4, e2m1: within 0.3 % of the Gaussian's cross-entropy")
{
    double loss = 0;
    for (int octave = -1; octave <= 4; ++octave) {
        check_rate<scalar_type::int8>(8 * octave - 37, loss);  // about 2^octave codes
        MESSAGE("int8, sigma about ", std::exp2(octave), " codes: ", 100 * loss, " % over");
    }
    for (int octave = -1; octave <= 1; ++octave) {
        check_rate<scalar_type::int4>(8 * octave - 37, loss);
        check_rate<scalar_type::e2m1>(8 * octave - 37, loss);
    }
}
