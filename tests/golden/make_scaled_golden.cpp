// Writes the golden cases of int8, int4 and e2m1, those of tANS over floats' banks, and those of
// order 0, each with their hash.
//     make_scaled_golden FOLDER FLOAT_BANKS_FOLDER ORDER0_FOLDER
// Run by hand, and only for the reasons that golden_test.cpp gives. Data from integers alone.

#include "write_cases.hpp"

using namespace normans_test;
using normans::coder_id;
using normans::scalar_type;
using normans::shape_id;

namespace {

enum class source { page, any_model, constant, predicted };

struct recipe {
    const char* name;
    scalar_type type;
    std::uint16_t bank;  // 0: rANS
    std::uint32_t heads, tokens, dim, lanes;
    unsigned flags = 2;
    std::uint32_t outliers = 50;
    shape_id shape = shape_id::gaussian;
    source from = source::page;
    int offset = normans::default_sigma_offset;
};

constexpr std::uint16_t plan_of(unsigned bits, unsigned log_steps, unsigned log_positions)
{
    return std::uint16_t(bits | log_steps << 4 | log_positions << 6);
}

constexpr recipe recipes[] = {
    {"int8_tans_page", scalar_type::int8, plan_of(9, 2, 2), 1, 16, 128, 8},
    {"int8_tans_small_bank", scalar_type::int8, plan_of(6, 0, 0), 1, 4, 64, 8},
    {"int8_tans_large_bank", scalar_type::int8, plan_of(12, 3, 4), 1, 4, 64, 8},
    {"int8_tans_mixture", scalar_type::int8, plan_of(9, 1, 3), 1, 8, 64, 8, 2, 20,
     shape_id::mixture},
    {"int8_tans_1_lane", scalar_type::int8, plan_of(8, 1, 1), 1, 3, 50, 1},
    {"int8_tans_16_lanes", scalar_type::int8, plan_of(8, 1, 1), 2, 3, 65, 16},
    {"int8_tans_32_lanes", scalar_type::int8, plan_of(8, 1, 1), 2, 5, 67, 32},
    {"int8_tans_rows_all_flags", scalar_type::int8, plan_of(9, 2, 2), 2, 6, 96, 8, 15},
    {"int8_tans_outliers", scalar_type::int8, plan_of(9, 2, 2), 1, 4, 128, 8, 2, 4},
    {"int8_tans_one_scalar", scalar_type::int8, plan_of(6, 0, 0), 1, 1, 1, 8},
    {"int8_tans_empty", scalar_type::int8, plan_of(6, 0, 0), 1, 0, 8, 8},
    {"int4_tans_page", scalar_type::int4, plan_of(8, 2, 2), 1, 16, 128, 8},
    {"int4_tans_odd_count", scalar_type::int4, plan_of(8, 2, 2), 1, 5, 61, 8},
    {"int4_tans_rows_all_flags", scalar_type::int4, plan_of(9, 2, 3), 2, 6, 96, 32, 15},
    {"int8_rans_page", scalar_type::int8, 0, 1, 16, 128, 8},
    {"int8_rans_rows_all_flags", scalar_type::int8, 0, 2, 6, 96, 32, 15},
    {"int8_rans_mixture", scalar_type::int8, 0, 1, 8, 64, 8, 2, 20, shape_id::mixture},
    {"int8_rans_1_lane", scalar_type::int8, 0, 1, 3, 50, 1},
    {"int4_rans_page", scalar_type::int4, 0, 1, 16, 128, 8},
    {"int4_rans_odd_count", scalar_type::int4, 0, 1, 5, 61, 8},
    {"e2m1_rans_page", scalar_type::e2m1, 0, 1, 16, 128, 8},
    {"e2m1_rans_rows_all_flags", scalar_type::e2m1, 0, 2, 13, 96, 16, 15},
    {"int8_raw", scalar_type::int8, plan_of(8, 1, 1), 1, 3, 50, 8, 2, 1},
    {"int4_raw", scalar_type::int4, 0, 1, 3, 33, 8, 2, 1},
    {"int8_tans_any_model", scalar_type::int8, plan_of(9, 2, 2), 1, 8, 64, 8, 2, 0,
     shape_id::gaussian, source::any_model},
    {"int8_tans_any_model_mixture", scalar_type::int8, plan_of(7, 3, 0), 2, 4, 65, 16, 14, 0,
     shape_id::mixture, source::any_model, -28},
    {"int4_tans_any_model", scalar_type::int4, plan_of(8, 0, 4), 1, 9, 61, 8, 2, 0,
     shape_id::gaussian, source::any_model},
    {"int8_rans_any_model", scalar_type::int8, 0, 1, 8, 64, 8, 2, 0, shape_id::gaussian,
     source::any_model},
    {"int8_rans_any_model_mixture", scalar_type::int8, 0, 2, 5, 65, 32, 15, 0, shape_id::mixture,
     source::any_model, -28},
    {"int4_rans_any_model", scalar_type::int4, 0, 1, 9, 61, 16, 6, 0, shape_id::gaussian,
     source::any_model},
    {"e2m1_rans_any_model", scalar_type::e2m1, 0, 1, 9, 61, 8, 2, 0, shape_id::gaussian,
     source::any_model},
    {"e2m1_rans_any_model_mixture", scalar_type::e2m1, 0, 1, 9, 61, 1, 7, 0, shape_id::mixture,
     source::any_model, -28},
    {"int8_tans_predicted", scalar_type::int8, plan_of(6, 0, 0), 2, 3, 33, 8, 15, 0,
     shape_id::gaussian, source::predicted},
    {"int4_rans_predicted", scalar_type::int4, 0, 1, 3, 33, 16, 6, 0, shape_id::gaussian,
     source::predicted},
    {"e2m1_rans_predicted", scalar_type::e2m1, 0, 1, 3, 33, 32, 6, 0, shape_id::gaussian,
     source::predicted},
    {"int4_tans_constant", scalar_type::int4, plan_of(6, 0, 0), 1, 3, 33, 8, 15, 0,
     shape_id::gaussian, source::constant},
    {"e2m1_raw", scalar_type::e2m1, 0, 1, 3, 33, 1, 2, 1},
};

constexpr recipe float_recipes[] = {
    {"e4m3fn_page", scalar_type::e4m3fn, plan_of(9, 2, 1), 1, 16, 128, 8},
    {"e4m3fn_small_bank", scalar_type::e4m3fn, plan_of(6, 0, 0), 1, 4, 64, 8},
    {"e4m3fn_large_bank", scalar_type::e4m3fn, plan_of(10, 2, 2), 1, 4, 64, 32},
    {"e4m3fn_rows_all_flags", scalar_type::e4m3fn, plan_of(8, 1, 1), 2, 6, 96, 32, 15},
    {"e4m3fn_any_model", scalar_type::e4m3fn, plan_of(8, 2, 0), 1, 9, 61, 8, 2, 0,
     shape_id::gaussian, source::any_model},
    {"e4m3fnuz_any_model_mixture", scalar_type::e4m3fnuz, plan_of(9, 1, 2), 2, 4, 65, 16, 14, 0,
     shape_id::mixture, source::any_model, -28},
    {"e4m3fn_predicted", scalar_type::e4m3fn, plan_of(6, 0, 0), 2, 3, 33, 8, 15, 0,
     shape_id::gaussian, source::predicted},
    {"e5m2_mixture", scalar_type::e5m2, plan_of(9, 2, 1), 1, 8, 64, 8, 2, 20, shape_id::mixture},
    {"e5m2_any_model", scalar_type::e5m2, plan_of(8, 1, 3), 1, 9, 61, 1, 6, 0,
     shape_id::gaussian, source::any_model},
    {"e5m2fnuz_raw", scalar_type::e5m2fnuz, plan_of(6, 0, 0), 1, 3, 50, 8, 2, 1},
    {"e2m1_page", scalar_type::e2m1, plan_of(8, 2, 2), 1, 16, 128, 8},
    {"e2m1_any_model", scalar_type::e2m1, plan_of(7, 3, 1), 1, 9, 61, 8, 7, 0,
     shape_id::gaussian, source::any_model},
};

template <std::size_t N>
std::uint32_t one_of(test_rng& rng, const std::uint32_t (&values)[N])
{
    return values[rng.below(std::uint32_t(N))];
}

// Scales, means and deviations of all kinds, special and extreme ones among them; the other means
// at or beside a place where a code or a part of a bank's cell begins. Most codes are near them.
void any_model(golden_case& c, std::uint64_t seed)
{
    test_rng rng(seed);
    const normans::scalar_format format = normans::format_of(c.spec.dtype);
    const int reach = format.is_integer ? int(format.largest_finite) + 2 : 8;
    const std::size_t groups = c.scales.size() / (c.spec.heads * c.spec.tokens);
    for (std::uint32_t& bits : c.scales) {
        if (!normans::has_scale(c.spec.dtype)) break;
        if (bits != 0) bits += rng.bits(13);  // no fp16 number any more: products are rounded
        if (rng.below(3) == 0)
            bits = one_of(rng, {0, 0xbf800000, 0x7fc00000, 0x7f800000, 0x337fffff, 0x33800000,
                                0x3f800000, 0x3f800000, 0x4b7fffff, 0x4b800000});
    }
    for (std::size_t i = 0; i < c.mu.size(); ++i) {
        const normans::code_scale scale = normans::make_scale(
            c.scales[i / c.spec.dim * groups + i % c.spec.dim / c.spec.scales.group]);
        const int place = 512 * rng.between(-reach, reach) +
                          int(one_of(rng, {0, 0, 0, 1, 2, 3, 32, 64, 128, 255, 256, 257, 384}));
        const bool wide = rng.below(8) == 0;
        const int eighths = wide ? rng.between(16, 90) : rng.between(-30, 4);
        const int index = eighths + scale.eighths - 8 * c.spec.sigma_offset;
        c.sigma[i] = std::uint8_t(index < 0 ? 0 : index > 254 ? 254 : index);
        if (rng.below(12) == 0) c.sigma[i] = std::uint8_t(one_of(rng, {0, 254, 255, 255, 255}));
        c.mu[i] = normans::multiply(float_of(place, -9),
                                    scale.scale == 0 ? normans::one_bits : scale.scale);
        if (c.mu[i] << 1 != 0) c.mu[i] += rng.below(3) - 1;
        const int sigma = 1 << (12 + (eighths + 32) / 8);  // in 1/65536 codes
        std::uint32_t value =
            float_of(128 * place + std::int64_t(rng.noise()) * sigma / 65536, -16);
        if (scale.scale == 0) value = 0;
        if (rng.below(8) == 0) {
            c.mu[i] = one_of(rng, {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000, 0x00000001,
                                   0x80000000, 0x00ffffff, 0x7f7fffff, 0xff7fffff, 0xc3000000});
            value = normans::mean_in_codes(
                normans::map_mean(c.mu[i], normans::one_bits, normans::minus_zero_bits), scale);
        }
        const bool odd = rng.below(32) == 0;
        c.codes[i] = std::uint16_t(odd ? rng.bits(format.code_bits)
                                       : normans::expected_code(format, value));
    }
}

void make_predicted(golden_case& c)
{
    const std::size_t groups = c.scales.size() / (c.spec.heads * c.spec.tokens);
    for (std::size_t i = 0; i < c.mu.size(); ++i) {
        const std::uint32_t scale =
            c.scales[i / c.spec.dim * groups + i % c.spec.dim / c.spec.scales.group];
        c.codes[i] = std::uint16_t(normans::expected_code(
            normans::format_of(c.spec.dtype),
            normans::mean_in_codes(c.mu[i], normans::make_scale(scale))));
    }
}

golden_case make(const recipe& r, std::uint64_t seed)
{
    golden_case c;
    normans::block_spec spec = scaled_spec(r.type, r.bank == 0 ? coder_id::rans : coder_id::tans,
                                           r.heads, r.tokens, r.dim, r.lanes);
    spec.shape = r.shape;
    spec.sigma_offset = r.offset;
    const scaled_page page = make_scaled_page(seed, spec, r.outliers);
    c.name = r.name;
    c.spec = spec;
    c.spec.scales.group = 32;
    c.spec.row_scale = (r.flags & 1) != 0;
    c.spec.content_check = (r.flags & 2) != 0;
    c.spec.parameter_hash = (r.flags & 4) != 0;
    c.spec.has_fingerprint = (r.flags & 8) != 0;
    if (c.spec.has_fingerprint) c.spec.fingerprint = 0x0123456789abcdefu;
    if (r.bank != 0) c.bank.push_back(r.bank);
    for (const float scale : page.scales) c.scales.push_back(normans::float_to_bits(scale));
    for (const float mean : page.mean) c.mu.push_back(normans::float_to_bits(mean));
    c.sigma = page.sigma;
    c.codes.assign(page.codes.begin(), page.codes.end());
    if (r.from == source::any_model) any_model(c, seed);
    if (r.from == source::predicted) make_predicted(c);
    if (r.from == source::constant) c.codes.assign(c.codes.size(), c.codes[0]);
    if (!normans::has_scale(r.type)) c.scales.clear();
    return c;
}

// Codes like a bell, with rare others; tables of the same codes for `groups` groups of channels, or
// none. A table that lacks a symbol makes the block take one of its own.
struct order0_recipe {
    const char* name;
    scalar_type type;
    std::uint32_t heads, tokens, dim, lanes;
    std::uint32_t tables = 0, group = 0;
    unsigned flags = 2;
    bool lacks = false;
    std::uint32_t spread = 6;  // a step up to it: 0 is a constant, 1000 nearly uniform
};

constexpr order0_recipe order0_recipes[] = {
    {"e4m3fn_page", scalar_type::e4m3fn, 2, 16, 64, 32},
    {"e4m3fn_1_lane", scalar_type::e4m3fn, 1, 9, 61, 1},
    {"e4m3fn_8_lanes", scalar_type::e4m3fn, 1, 33, 61, 8, 0, 0, 10},
    {"e4m3fn_shared", scalar_type::e4m3fn, 2, 9, 61, 16, 1},
    {"e4m3fn_channel_groups", scalar_type::e4m3fn, 2, 9, 64, 32, 4, 32},
    {"e4m3fn_uneven_groups", scalar_type::e4m3fn, 2, 9, 50, 8, 8, 13},
    {"e4m3fn_lacks_a_symbol", scalar_type::e4m3fn, 1, 30, 64, 8, 1, 0, 2, true},
    {"e4m3fn_no_check", scalar_type::e4m3fn, 1, 30, 64, 8, 0, 0, 0},
    {"e4m3fn_fine_table", scalar_type::e4m3fn, 1, 512, 64, 32},
    {"e4m3fn_few_codes", scalar_type::e4m3fn, 1, 30, 64, 8, 0, 0, 2, false, 1},
    {"e4m3fn_constant", scalar_type::e4m3fn, 1, 30, 64, 8, 0, 0, 2, false, 0},
    {"raw8_raw", scalar_type::raw8, 1, 5, 61, 8, 0, 0, 2, false, 1000},
    {"raw8_page", scalar_type::raw8, 1, 30, 61, 8},
    {"bf16_page", scalar_type::bf16, 1, 40, 61, 32},
    {"bf16_shared", scalar_type::bf16, 2, 9, 64, 32, 4, 64},
    {"bf16_one_high_byte", scalar_type::bf16, 1, 30, 64, 8, 0, 0, 2, false, 1},
    {"int8_page", scalar_type::int8, 1, 30, 61, 16},
    {"int4_page", scalar_type::int4, 1, 30, 61, 8, 0, 0, 2, false, 1},
    {"int4_shared", scalar_type::int4, 1, 7, 61, 32, 1, 0, 2, false, 1},
    {"e2m1_raw", scalar_type::e2m1, 1, 3, 33, 8, 0, 0, 2, false, 1000},
    {"empty", scalar_type::e4m3fn, 1, 0, 64, 8},
    {"one_scalar", scalar_type::int4, 1, 1, 1, 8},
};

golden_case make(const order0_recipe& r, std::uint64_t seed)
{
    golden_case c;
    test_rng rng(seed);
    c.name = r.name;
    c.spec.dtype = r.type;
    c.spec.coder = coder_id::order0;
    c.spec.heads = r.heads;
    c.spec.tokens = r.tokens;
    c.spec.dim = r.dim;
    c.spec.lanes = r.lanes;
    c.spec.content_check = (r.flags & 2) != 0;
    c.spec.has_fingerprint = (r.flags & 8) != 0;
    if (c.spec.has_fingerprint) c.spec.fingerprint = 0x0123456789abcdefu;
    c.table_group = r.group;
    const unsigned bits = normans::format_of(r.type).code_bits;
    const unsigned planes = normans::code_bytes(r.type);
    std::vector<std::vector<std::uint32_t>> counts(
        r.tables, std::vector<std::uint32_t>(256, r.lacks ? 0 : 1));
    for (std::uint64_t i = 0; i < normans::count_of(c.spec); ++i) {
        const int center = bits == 4 ? 5 : 60;
        int code = center + rng.noise() * int(r.spread) / 65536;
        if (r.spread >= 6 && rng.below(99) == 0) code = int(rng.bits(16));
        if (bits == 16) code = code * 37 + int(rng.bits(3));
        code &= (1 << bits) - 1;
        c.codes.push_back(std::uint16_t(code));
        if (r.tables == 0 || i == 0) continue;  // the first code may be the one that is lacking
        const std::uint64_t row = i / r.dim, channel = row / r.tokens * r.dim + i % r.dim;
        const std::size_t table = r.group == 0 ? 0 : std::size_t(channel / r.group * planes);
        if (planes == 2) ++counts[table][std::size_t(code >> 8)];
        ++counts[table + planes - 1][std::size_t(code & 255)];
    }
    if (r.lacks) c.codes[0] = 0x7b, counts[0][0x7b] = 0;
    for (std::vector<std::uint32_t>& one : counts) {
        if (bits == 4)
            for (std::size_t s = 16; s < 256; ++s) one[s] = 0;
        c.tables.resize(c.tables.size() + 256);
        if (normans::order0_normalize(one.data(), &c.tables[c.tables.size() - 256]) !=
            normans::status::ok)
            std::fprintf(stderr, "%s: no table\n", r.name);
    }
    return c;
}

}  // namespace

int main(int count, char** arguments)
{
    return count == 4 && write_cases(arguments[1], recipes, 2000) &&
                   write_cases(arguments[2], float_recipes, 2000) &&
                   write_cases(arguments[3], order0_recipes, 5000)
               ? 0
               : 1;
}
