// Writes the golden cases and their hash.  usage: make_golden FOLDER
// Run by hand, and only for the reasons that golden_test.cpp gives. Data from integers alone.

#include "../support/random_scalars.hpp"
#include "write_cases.hpp"

using namespace normans_test;
using normans::scalar_type;
using normans::shape_id;

namespace {

enum class source {
    drawn,       // random_scalars' style
    rows,        // typical, but each token has its own scale
    from_model,  // any mean and sigma, as extreme as floats are; codes drawn from the model's slots
    grid,        // means over all binades x sigmas over all octaves, codes 0 to 4.5 sigma away
    predicted,   // each code its mean's own
    constant,
    every_code,  // each once under one mean, then the mean's own
};

struct recipe {
    const char* name;
    scalar_type type;
    source from;
    data_style style;
    std::uint32_t heads, tokens, dim, lanes;
    shape_id shape = shape_id::gaussian;
    int offset = -16;
    unsigned flags = 2;
    bool affine = false;
};

// Any mean with a sigma anywhere from 2^-20 to 2^10 of it, and a code that the model likes.
template <scalar_type Type>
test_scalar from_model(test_rng& rng, shape_id shape, int offset)
{
    const normans::marginal_table unused{};
    const normans::normal_model<Type> model{normans::shape_of(shape), offset, &unused};
    std::uint32_t mean = rng.bits(32);
    if (rng.below(4) != 0) {  // within the type's own range
        const int range = Type == scalar_type::bf16 ? 250 : model.format.bias + 4;
        mean = rng.bits(1) << 31 |
               std::uint32_t(127 - range / 2 + int(rng.below(unsigned(range)))) << 23 |
               rng.bits(23);
    }
    const int field = int(normans::exponent_field(mean));
    int index = 8 * (field - 127 - offset + rng.between(-20, 4)) + int(rng.below(8));
    if (rng.below(16) == 0) index = int(rng.bits(8));
    index = index < 0 ? 0 : index > 254 ? 254 : index;
    if (rng.below(32) == 0) index = 255;
    const normans::scalar_model m =
        model.prepare(normans::map_mean(mean, normans::one_bits, normans::minus_zero_bits),
                      std::uint32_t(index), 0);
    const std::uint32_t slot = rng.bits(15);
    std::uint32_t code = rng.bits(model.format.code_bits);
    if (slot >= model.shape.escape_slots) {
        const normans::interval at =
            m.is_far ? model.locate_far(m, slot) : model.locate(m, slot, 0);
        if (!at.corrupt) code = at.code | (rng.bits(8) & ((1u << at.raw_bits) - 1));
    }
    return {mean, std::uint8_t(index), std::uint16_t(code), 0};
}

test_scalar from_model(test_rng& rng, const recipe& r)
{
    switch (r.type) {
    case scalar_type::e5m2: return from_model<scalar_type::e5m2>(rng, r.shape, r.offset);
    case scalar_type::e4m3fnuz: return from_model<scalar_type::e4m3fnuz>(rng, r.shape, r.offset);
    case scalar_type::e5m2fnuz: return from_model<scalar_type::e5m2fnuz>(rng, r.shape, r.offset);
    case scalar_type::bf16: return from_model<scalar_type::bf16>(rng, r.shape, r.offset);
    case scalar_type::fp16: return from_model<scalar_type::fp16>(rng, r.shape, r.offset);
    default: return from_model<scalar_type::e4m3fn>(rng, r.shape, r.offset);
    }
}

// Means and sigmas in octaves over 2^-16 .. 2^8, the codes where the Gaussian's flanks are.
test_scalar from_grid(test_rng& rng, const recipe& r, std::uint32_t i)
{
    const normans::scalar_format format = normans::format_of(r.type);
    const int index = 8 * (-14 - r.offset) + int(i * 5 % 140);
    const std::int64_t sigma = fixed_sigma(index, r.offset);
    const int octave = int(i * 7 % 22) - 14;
    const std::int64_t mean = (std::int64_t(1) << (40 + octave)) +
                              std::int64_t(rng.next() >> (24 - octave));
    const std::int64_t away = std::int64_t(rng.below(9 << 16)) - std::int64_t(9 << 15);
    const std::int64_t value = mean + away * (sigma >> 12) / 16;
    const bool negative = rng.bits(1) != 0;
    return {float_of(negative ? -mean : mean, -40), std::uint8_t(index),
            std::uint16_t(code_of_fixed(format, negative ? -value : value)), 0};
}

test_scalar from_rows(test_rng& rng, const recipe& r, std::uint32_t token)
{
    const normans::scalar_format format = normans::format_of(r.type);
    // Tokens at 2^(t/4) of the expected sigma, from 2^-1.5 to 2^2.25 and some ordinary ones.
    constexpr std::int64_t root[4] = {65536, 77936, 92682, 110218};
    const int quarter = token % 3 == 0 ? 0 : int(token * 7 % 16) - 6;
    const int index = 8 * (-5 - r.offset) + int(rng.below(16));
    const std::int64_t sigma = fixed_sigma(index, r.offset);
    const std::int64_t mean = std::int64_t(rng.next() >> 21) - (std::int64_t(1) << 42);
    std::int64_t away = rng.noise() * (sigma >> 16);
    away = away * (root[quarter & 3] >> 8) / 256;
    const std::int64_t value = mean + away * (std::int64_t(1) << (quarter + 8) / 4) / 4;
    return {float_of(mean, -40), std::uint8_t(index), std::uint16_t(code_of_fixed(format, value)),
            value};
}

golden_case make(const recipe& r, std::uint64_t seed)
{
    golden_case c;
    c.name = r.name;
    c.spec.dtype = r.type;
    c.spec.shape = r.shape;
    c.spec.sigma_offset = r.offset;
    c.spec.heads = r.heads;
    c.spec.tokens = r.tokens;
    c.spec.dim = r.dim;
    c.spec.lanes = r.lanes;
    c.spec.row_scale = (r.flags & 1) != 0;
    c.spec.content_check = (r.flags & 2) != 0;
    c.spec.parameter_hash = (r.flags & 4) != 0;
    c.spec.has_fingerprint = (r.flags & 8) != 0;
    if (c.spec.has_fingerprint) c.spec.fingerprint = 0x0123456789abcdefu;
    if (r.shape == shape_id::mixture_marginal) c.marginal = random_marginal(seed);

    test_rng rng(seed);
    const normans::scalar_format format = normans::format_of(r.type);
    if (r.affine) {
        for (std::uint32_t i = 0; i < r.heads * r.dim; ++i) {
            c.affine_a.push_back(0x3f600000u + rng.bits(22));  // 0.875 .. 1.375
            c.affine_b.push_back(rng.bits(1) << 31 | (0x3c000000u + rng.bits(24)));
        }
        c.affine_a[0] = 0;  // a channel without a map of its mean, and the identity
        c.affine_a[1] = normans::one_bits;
        c.affine_b[1] = normans::minus_zero_bits;
    }
    const std::uint32_t count = r.heads * r.tokens * r.dim;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t channel = i / (r.tokens * r.dim) * r.dim + i % r.dim;
        test_scalar one{};
        switch (r.from) {
        case source::drawn: one = draw_scalar(rng, format, r.style, r.offset); break;
        case source::rows: one = from_rows(rng, r, i / r.dim % r.tokens); break;
        case source::from_model: one = from_model(rng, r); break;
        case source::grid: one = from_grid(rng, r, i); break;
        case source::every_code:
            one = {0x3e99999a, 100, std::uint16_t(i < 256 ? i : 0x2a), 0};
            break;
        case source::constant:
            one = draw_scalar(rng, format, r.style, r.offset);
            one.code = 0x5a;
            break;
        case source::predicted:
            one = draw_scalar(rng, format, data_style::adversarial, r.offset);
            const std::uint32_t clean =
                r.affine ? normans::map_mean(one.mean, c.affine_a[channel], c.affine_b[channel])
                         : normans::map_mean(one.mean, normans::one_bits, normans::minus_zero_bits);
            one.code = std::uint16_t(normans::nearest_code(format, clean));
            break;
        }
        if (r.affine && one.value != 0) {  // the code follows its mean through the map
            const std::uint32_t mapped =
                normans::map_mean(one.mean, c.affine_a[channel], c.affine_b[channel]);
            one.code = std::uint16_t(
                code_of_fixed(format, one.value + fixed_of(mapped) - fixed_of(one.mean)));
        }
        if (r.type == scalar_type::raw8 && r.from != source::constant)
            one.code = std::uint16_t(rng.bits(8));
        c.mu.push_back(one.mean);
        c.sigma.push_back(one.sigma);
        c.codes.push_back(one.code);
    }
    return c;
}

constexpr data_style typical = data_style::typical;
using scalar = scalar_type;

const recipe recipes[] = {
    {"e4m3fn_page", scalar::e4m3fn, source::drawn, typical, 2, 8, 64, 8},
    {"e4m3fn_1_lane", scalar::e4m3fn, source::drawn, typical, 1, 5, 77, 1},
    {"e4m3fn_16_lanes", scalar::e4m3fn, source::drawn, typical, 3, 5, 37, 16},
    {"e4m3fn_32_lanes", scalar::e4m3fn, source::drawn, typical, 2, 16, 48, 32},
    {"e4m3fn_rows", scalar::e4m3fn, source::rows, typical, 2, 15, 48, 8, shape_id::gaussian,
     -16, 3},
    {"e4m3fn_rows_affine_all_flags", scalar::e4m3fn, source::rows, typical, 2, 16, 40, 16,
     shape_id::gaussian, -20, 15, true},
    {"e4m3fn_affine", scalar::e4m3fn, source::drawn, typical, 2, 10, 60, 32, shape_id::gaussian,
     -16, 2, true},
    {"e4m3fn_any_model", scalar::e4m3fn, source::from_model, typical, 1, 30, 50, 32},
    {"e4m3fn_any_model_low_offset", scalar::e4m3fn, source::from_model, typical, 1, 20, 50, 8,
     shape_id::mixture, -31},
    {"e4m3fn_grid", scalar::e4m3fn, source::grid, typical, 1, 1, 1540, 8},
    {"e4m3fn_mixed", scalar::e4m3fn, source::drawn, data_style::mixed, 2, 9, 70, 32},
    {"e4m3fn_sharp", scalar::e4m3fn, source::drawn, data_style::sharp, 1, 16, 64, 8},
    {"e4m3fn_dead", scalar::e4m3fn, source::drawn, data_style::dead, 1, 16, 64, 8},
    {"e4m3fn_mixture", scalar::e4m3fn, source::drawn, typical, 1, 13, 80, 16, shape_id::mixture},
    {"e4m3fn_marginal", scalar::e4m3fn, source::drawn, data_style::mixed, 2, 8, 64, 8,
     shape_id::mixture_marginal},
    {"e4m3fn_every_code", scalar::e4m3fn, source::every_code, typical, 1, 16, 64, 8,
     shape_id::gaussian, -16, 0},
    {"e4m3fn_one_scalar", scalar::e4m3fn, source::drawn, data_style::tails, 1, 1, 1, 32},
    {"e4m3fn_few_scalars", scalar::e4m3fn, source::drawn, typical, 1, 7, 13, 8, shape_id::gaussian,
     -16, 6},
    {"bf16_few_scalars_32_lanes", scalar::bf16, source::drawn, data_style::sharp, 3, 1, 29, 32,
     shape_id::gaussian, -16, 6},
    {"e4m3fn_empty", scalar::e4m3fn, source::drawn, typical, 2, 0, 64, 8, shape_id::gaussian,
     -16, 10},
    {"e4m3fn_raw", scalar::e4m3fn, source::drawn, data_style::adversarial, 1, 9, 31, 8},
    {"e4m3fn_constant", scalar::e4m3fn, source::constant, typical, 2, 4, 33, 8, shape_id::gaussian,
     -16, 7},
    {"e4m3fn_predicted", scalar::e4m3fn, source::predicted, typical, 2, 5, 33, 16,
     shape_id::gaussian, -16, 15, true},
    {"e5m2_mixed", scalar::e5m2, source::drawn, data_style::mixed, 2, 8, 50, 8},
    {"e5m2_any_model", scalar::e5m2, source::from_model, typical, 1, 16, 60, 32, shape_id::mixture},
    {"e5m2_predicted", scalar::e5m2, source::predicted, typical, 1, 5, 33, 1},
    {"e4m3fnuz_mixed", scalar::e4m3fnuz, source::drawn, data_style::mixed, 2, 8, 50, 8},
    {"e4m3fnuz_any_model", scalar::e4m3fnuz, source::from_model, typical, 1, 16, 60, 16},
    {"e4m3fnuz_predicted", scalar::e4m3fnuz, source::predicted, typical, 1, 5, 33, 32},
    {"e5m2fnuz_mixed", scalar::e5m2fnuz, source::drawn, data_style::mixed, 2, 8, 50, 32,
     shape_id::mixture_marginal},
    {"e5m2fnuz_any_model", scalar::e5m2fnuz, source::from_model, typical, 1, 16, 60, 8},
    {"bf16_page", scalar::bf16, source::drawn, typical, 2, 8, 64, 8},
    {"bf16_32_lanes", scalar::bf16, source::drawn, typical, 2, 16, 40, 32},
    {"bf16_1_lane", scalar::bf16, source::drawn, data_style::mixed, 1, 5, 77, 1},
    {"bf16_rows_affine_all_flags", scalar::bf16, source::rows, typical, 2, 16, 40, 16,
     shape_id::gaussian, -16, 15, true},
    {"bf16_any_model", scalar::bf16, source::from_model, typical, 1, 30, 40, 32},
    {"bf16_any_model_lowest_offset", scalar::bf16, source::from_model, typical, 1, 20, 40, 8,
     shape_id::gaussian, -80},
    {"bf16_any_model_highest_offset", scalar::bf16, source::from_model, typical, 1, 20, 40, 16,
     shape_id::mixture, 68},
    {"bf16_grid", scalar::bf16, source::grid, typical, 1, 1, 1540, 8},
    {"bf16_mixed_marginal", scalar::bf16, source::drawn, data_style::mixed, 2, 9, 70, 32,
     shape_id::mixture_marginal},
    {"bf16_dead", scalar::bf16, source::drawn, data_style::dead, 1, 8, 64, 8},
    {"bf16_predicted", scalar::bf16, source::predicted, typical, 1, 9, 33, 32, shape_id::gaussian,
     -16, 6},
    {"bf16_constant", scalar::bf16, source::constant, typical, 1, 3, 33, 8},
    {"bf16_raw", scalar::bf16, source::drawn, data_style::adversarial, 1, 9, 31, 8,
     shape_id::gaussian, -16, 0},
    {"fp16_page", scalar::fp16, source::drawn, typical, 2, 8, 64, 8},
    {"fp16_rows", scalar::fp16, source::rows, typical, 2, 15, 40, 32, shape_id::mixture, -16, 3},
    {"fp16_any_model", scalar::fp16, source::from_model, typical, 1, 20, 50, 16},
    {"fp16_grid", scalar::fp16, source::grid, typical, 1, 1, 1540, 32, shape_id::mixture_marginal},
    {"raw8_raw", scalar::raw8, source::drawn, typical, 1, 5, 41, 8},
    {"raw8_constant", scalar::raw8, source::constant, typical, 1, 5, 41, 32},
};

}  // namespace

int main(int count, char** arguments)
{
    if (count != 2) {
        std::fprintf(stderr, "usage: make_golden FOLDER\n");
        return 2;
    }
    return write_cases(arguments[1], recipes, 1000) ? 0 : 1;
}
