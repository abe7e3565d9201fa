// Writes the golden cases of int8, int4 and e2m1 and their hash.  usage: make_scaled_golden FOLDER
// Run by hand, and only for the reasons that golden_test.cpp gives. Data from integers alone.

#include "../support/golden_case.hpp"

using namespace normans_test;
using normans::coder_id;
using normans::scalar_type;
using normans::shape_id;

namespace {

struct recipe {
    const char* name;
    scalar_type type;
    std::uint16_t bank;  // 0: rANS
    std::uint32_t heads, tokens, dim, lanes;
    unsigned flags = 2;
    std::uint32_t outliers = 50;
    shape_id shape = shape_id::gaussian;
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
    {"e2m1_rans_rows_all_flags", scalar_type::e2m1, 0, 2, 6, 96, 16, 15},
    {"int8_raw", scalar_type::int8, plan_of(8, 1, 1), 1, 3, 50, 8, 2, 1},
    {"int4_raw", scalar_type::int4, 0, 1, 3, 33, 8, 2, 1},
};

golden_case make(const recipe& r, std::uint64_t seed)
{
    golden_case c;
    normans::block_spec spec = scaled_spec(r.type, r.bank == 0 ? coder_id::rans : coder_id::tans,
                                           r.heads, r.tokens, r.dim, r.lanes);
    spec.shape = r.shape;
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
    return c;
}

}  // namespace

int main(int count, char** arguments)
{
    if (count != 2) return 1;
    const std::string folder = arguments[1];
    std::map<std::string, std::vector<std::uint8_t>> blocks;  // by file name, as a shell lists them
    std::uint64_t seed = 2000;
    for (const recipe& r : recipes) {
        golden_case c = make(r, ++seed);
        const coded_case coded = encode_case(c);
        if (!coded.result) {
            std::fprintf(stderr, "%s: %s\n", r.name, normans::status_name(coded.result.code));
            return 1;
        }
        c.block = coded.block;
        blocks[c.name + ".txt"] = c.block;
        std::ofstream(folder + "/" + c.name + ".txt") << format_case(c);
        constexpr const char* modes[] = {"coded", "raw", "constant", "predicted"};
        std::printf("%-34s %-9s %s%5zu scalars %5zu bytes %4u escapes\n", r.name,
                    modes[unsigned(coded.result.mode)], coded.result.row_scaled ? "rows " : "     ",
                    c.codes.size(), c.block.size(), coded.result.escapes);
    }
    running_hash hash;
    for (const auto& [name, block] : blocks) {
        hash.add(block.size());
        for (const std::uint8_t byte : block) hash.add(byte);
    }
    std::ofstream(folder + "/hash") << to_hex(std::vector<std::uint64_t>{hash.value()}, 16) << "\n";
    return 0;
}
