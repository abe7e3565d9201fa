#pragma once
// Golden case files: a prediction, codes, and the block that they must give. Text, so that a diff
// says what changed and any language can read it; one "key value" per line, hex in lower case:
//     name NAME
//     dtype e4m3fn | e5m2 | e4m3fnuz | e5m2fnuz | bf16 | fp16 | raw8 | int8 | int4 | e2m1
//     shape gaussian | mixture | mixture_marginal
//     offset N                      sigma offset
//     box HEADS TOKENS DIM
//     lanes N
//     flags H                       what the encoder is asked for: 1 row steps (where they pay),
//                                   2 content check, 4 parameter hash, 8 fingerprint
//     affine_a HEX, affine_b HEX    optional; fp32 bits per channel (head * dim + d)
//     marginal HEX                  with mixture_marginal; 256 frequencies of 4 digits
//     mu HEX                        fp32 bits per scalar, in scalar order
//     sigma HEX                     sigma index per scalar, 2 digits
//     codes HEX                     per scalar, 2 or 4 digits
//     fingerprint HEX               with flag 8; 16 digits
//     bank HEX                      tANS only: the bank's plan (pack_plan), 4 digits
//     scales HEX, group N           int8, int4, e2m1: fp32 bits per head, token, N channels
//     order0 GROUP                  order 0; then mu and sigma are empty, and there are no scales
//     tables HEX                    with order0, optional: tables of 256 frequencies of 4 digits
//     block HEX                     the block's bytes
// No floating point and no test framework here: this is compiled under every flag of the matrix.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "scaled_page.hpp"

namespace normans_test {

struct golden_case {
    std::string name;
    normans::block_spec spec;
    std::vector<std::uint32_t> affine_a, affine_b;  // empty: no map
    std::vector<std::uint16_t> marginal;            // empty: none
    std::vector<std::uint32_t> mu;
    std::vector<std::uint8_t> sigma;
    std::vector<std::uint16_t> codes;
    std::vector<std::uint8_t> block;
    std::vector<std::uint16_t> bank;  // empty: rANS
    std::vector<std::uint32_t> scales;
    std::vector<std::uint16_t> tables;  // of order 0, if blocks share some
    std::uint32_t table_group = 0;

    bool order0() const { return spec.coder == normans::coder_id::order0; }
};

template <class Number>
std::string to_hex(const std::vector<Number>& numbers, unsigned digits)
{
    std::string text;
    for (const Number number : numbers)
        for (unsigned i = digits; i-- > 0;)
            text += "0123456789abcdef"[std::uint64_t(number) >> 4 * i & 15];
    return text;
}

template <class Number>
bool from_hex(const std::string& text, unsigned digits, std::vector<Number>& numbers)
{
    if (text.size() % digits != 0) return false;
    for (std::size_t at = 0; at < text.size(); at += digits) {
        std::uint64_t number = 0;
        for (unsigned i = 0; i < digits; ++i) {
            const char c = text[at + i];
            if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
            number = number << 4 | std::uint64_t(c <= '9' ? c - '0' : c - 'a' + 10);
        }
        numbers.push_back(Number(number));
    }
    return true;
}

inline unsigned code_digits(normans::scalar_type type) { return 2 * normans::code_bytes(type); }

inline const char* shape_name(normans::shape_id shape)
{
    constexpr const char* names[] = {"gaussian", "mixture", "mixture_marginal"};
    return names[unsigned(shape)];
}

inline unsigned wanted_flags(const normans::block_spec& spec)
{
    return (spec.row_scale ? 1u : 0) | (spec.content_check ? 2u : 0) |
           (spec.parameter_hash ? 4u : 0) | (spec.has_fingerprint ? 8u : 0);
}

inline std::string format_case(const golden_case& c)
{
    const normans::block_spec& spec = c.spec;
    std::string text = "name " + c.name + "\ndtype " + normans::scalar_name(spec.dtype) +
                       "\nshape " + shape_name(spec.shape) + "\noffset " +
                       std::to_string(spec.sigma_offset) + "\nbox " + std::to_string(spec.heads) +
                       " " + std::to_string(spec.tokens) + " " + std::to_string(spec.dim) +
                       "\nlanes " + std::to_string(spec.lanes) + "\nflags " +
                       to_hex(std::vector<unsigned>{wanted_flags(spec)}, 1) + "\n";
    if (!c.affine_a.empty())
        text += "affine_a " + to_hex(c.affine_a, 8) + "\naffine_b " + to_hex(c.affine_b, 8) + "\n";
    if (!c.marginal.empty()) text += "marginal " + to_hex(c.marginal, 4) + "\n";
    text += "mu " + to_hex(c.mu, 8) + "\nsigma " + to_hex(c.sigma, 2) + "\ncodes " +
            to_hex(c.codes, code_digits(spec.dtype)) + "\n";
    if (spec.has_fingerprint)
        text += "fingerprint " + to_hex(std::vector<std::uint64_t>{spec.fingerprint}, 16) + "\n";
    if (!c.bank.empty()) text += "bank " + to_hex(c.bank, 4) + "\n";
    if (c.order0()) text += "order0 " + std::to_string(c.table_group) + "\n";
    if (!c.tables.empty()) text += "tables " + to_hex(c.tables, 4) + "\n";
    if (normans::has_scale(spec.dtype) && !c.order0())
        text += "scales " + to_hex(c.scales, 8) + "\ngroup " + std::to_string(spec.scales.group) +
                "\n";
    return text + "block " + to_hex(c.block, 2) + "\n";
}

/// False, with the reason on stderr, where the file is no case.
inline bool read_case(const char* path, golden_case& c)
{
    std::ifstream file(path);
    std::map<std::string, std::string> field;
    for (std::string line; std::getline(file, line);) {
        const std::size_t space = line.find(' ');
        field[line.substr(0, space)] = space == std::string::npos ? "" : line.substr(space + 1);
    }
    const auto fail = [&](const char* what) {
        std::fprintf(stderr, "%s: no golden case: %s\n", path, what);
        return false;
    };
    normans::block_spec& spec = c.spec;
    c.name = field["name"];
    unsigned known = 0;
    for (unsigned id = 0; id < 10; ++id)
        if (field["dtype"] == normans::scalar_name(normans::scalar_type(id)))
            spec.dtype = normans::scalar_type(id), ++known;
    for (unsigned id = 0; id < 3; ++id)
        if (field["shape"] == shape_name(normans::shape_id(id)))
            spec.shape = normans::shape_id(id), ++known;
    if (c.name.empty() || known != 2) return fail("name, dtype or shape");
    spec.sigma_offset = std::atoi(field["offset"].c_str());
    spec.lanes = std::uint32_t(std::atoi(field["lanes"].c_str()));
    if (std::sscanf(field["box"].c_str(), "%u %u %u", &spec.heads, &spec.tokens, &spec.dim) != 3)
        return fail("box");
    std::vector<unsigned> flags;
    std::vector<std::uint64_t> fingerprint;
    if (!from_hex(field["flags"], 1, flags) || flags.size() != 1 ||
        !from_hex(field["fingerprint"], 16, fingerprint) ||
        !from_hex(field["affine_a"], 8, c.affine_a) ||
        !from_hex(field["affine_b"], 8, c.affine_b) ||
        !from_hex(field["marginal"], 4, c.marginal) || !from_hex(field["mu"], 8, c.mu) ||
        !from_hex(field["sigma"], 2, c.sigma) || !from_hex(field["block"], 2, c.block) ||
        !from_hex(field["tables"], 4, c.tables) ||
        !from_hex(field["bank"], 4, c.bank) || !from_hex(field["scales"], 8, c.scales) ||
        !from_hex(field["codes"], code_digits(spec.dtype), c.codes))
        return fail("hex");
    spec.row_scale = (flags[0] & 1) != 0;
    spec.content_check = (flags[0] & 2) != 0;
    spec.parameter_hash = (flags[0] & 4) != 0;
    spec.has_fingerprint = (flags[0] & 8) != 0;
    if (fingerprint.size() != (spec.has_fingerprint ? 1u : 0u)) return fail("fingerprint");
    if (spec.has_fingerprint) spec.fingerprint = fingerprint[0];
    spec.coder = c.bank.empty() ? normans::coder_id::rans : normans::coder_id::tans;
    if (field.count("order0") != 0) {
        spec.coder = normans::coder_id::order0;
        c.table_group = std::uint32_t(std::atoi(field["order0"].c_str()));
    }
    const std::uint64_t count = normans::count_of(spec), predicted = c.order0() ? 0 : count;
    const std::size_t channels = std::size_t(spec.heads) * spec.dim;
    if (c.mu.size() != predicted || c.sigma.size() != predicted || c.tables.size() % 256 != 0 ||
        c.codes.size() != count || c.affine_a.size() != c.affine_b.size() ||
        (!c.affine_a.empty() && c.affine_a.size() != channels) ||
        (!c.marginal.empty() && c.marginal.size() != 256))
        return fail("lengths");
    if (normans::has_scale(spec.dtype) && !c.order0()) {
        const int group = std::atoi(field["group"].c_str());
        if (group <= 0) return fail("group");
        spec.scales.group = std::uint32_t(group);
        const std::size_t groups = (spec.dim + spec.scales.group - 1) / spec.scales.group;
        if (c.scales.size() != groups * spec.heads * spec.tokens || c.bank.size() > 1)
            return fail("scales or bank");
    }
    return true;
}

// Bits into floats without touching them.
inline std::vector<float> as_floats(const std::vector<std::uint32_t>& bits)
{
    std::vector<float> floats(bits.size());
    if (!bits.empty()) std::memcpy(floats.data(), bits.data(), bits.size() * sizeof(float));
    return floats;
}

/// Runs f(spec, predictor) with the case's prediction as the library's views give it. A case
/// without a map takes the identity: one instantiation serves all.
template <class Function>
auto with_prediction(const golden_case& c, Function f)
{
    std::vector<std::uint32_t> a_bits = c.affine_a, b_bits = c.affine_b;
    if (a_bits.empty()) {
        const std::size_t channels = std::size_t(c.spec.heads) * c.spec.dim;
        a_bits.assign(channels, normans::one_bits);
        b_bits.assign(channels, normans::minus_zero_bits);
    }
    const std::vector<float> mu = as_floats(c.mu), a = as_floats(a_bits), b = as_floats(b_bits);
    normans::block_spec spec = c.spec;
    normans::marginal_table table;
    if (!c.marginal.empty() &&
        normans::make_marginal(c.marginal.data(), table) == normans::status::ok)
        spec.marginal = &table;
    const std::vector<float> scales = as_floats(c.scales);
    if (!scales.empty()) {
        const std::size_t groups = scales.size() / spec.heads / spec.tokens;
        spec.scales.data = scales.data();
        spec.scales.head_stride = std::ptrdiff_t(groups * spec.tokens);
        spec.scales.token_stride = std::ptrdiff_t(groups);
        spec.scales.group_stride = 1;
    }
    const normans::bank_plan plan =
        normans::unpack_plan(spec.shape, c.bank.empty() ? 6u : c.bank[0]);
    const bank_rows_of rows(c.bank.empty() ? normans::scalar_type::int8 : spec.dtype, plan);
    spec.bank = &rows.bank;
    std::vector<normans::order0_table> tables(c.tables.size() / 256);
    for (std::size_t i = 0; i < tables.size(); ++i)
        if (normans::make_order0_table(&c.tables[256 * i], tables[i]) != normans::status::ok)
            std::fprintf(stderr, "%s: no table\n", c.name.c_str());
    const normans::order0_tables shared{tables.data(), std::uint32_t(tables.size()),
                                        c.table_group};
    if (!tables.empty()) spec.tables = &shared;
    return f(spec, mapped_predictor{{mu.data()}, {c.sigma.data()}, {a.data(), b.data(), spec.dim}});
}

struct coded_case {
    normans::encode_result result;
    std::vector<std::uint8_t> block;
    std::vector<std::uint16_t> bank;  // empty: rANS
    std::vector<std::uint32_t> scales;
};

/// Codes as they lie in memory: those of 4 bits two to a byte.
template <class Code>
std::vector<Code> in_memory(const golden_case& c, const std::vector<Code>& codes)
{
    if (normans::format_of(c.spec.dtype).code_bits != 4) return codes;
    std::vector<Code> bytes((codes.size() + 1) / 2);
    for (std::size_t i = 0; i < codes.size(); ++i)
        bytes[i / 2] = Code(bytes[i / 2] | codes[i] << 4 * (i % 2));
    return bytes;
}

template <class Code>
std::uint16_t code_in(const golden_case& c, const std::vector<Code>& memory, std::size_t i)
{
    if (normans::format_of(c.spec.dtype).code_bits != 4) return memory[i];
    return std::uint16_t(memory[i / 2] >> 4 * (i % 2) & 15);
}

template <class Code>
coded_case encode_codes(const golden_case& c)
{
    const std::vector<Code> codes =
        in_memory(c, std::vector<Code>(c.codes.begin(), c.codes.end()));
    return with_prediction(c, [&](const normans::block_spec& spec, const auto& predictor) {
        coded_case out;
        out.block.resize(normans::max_encoded_bytes(spec));
        out.result = normans::encode(spec, normans::dense(spec, codes.data()), predictor,
                                     out.block.data(), out.block.size());
        out.block.resize(out.result ? out.result.bytes : 0);
        return out;
    });
}

template <class Code>
normans::decode_result decode_codes(const golden_case& c, std::vector<std::uint16_t>& back)
{
    return with_prediction(c, [&](const normans::block_spec& spec, const auto& predictor) {
        std::vector<Code> codes(c.codes.size() + 1);  // 4-bit codes take half
        const normans::decode_result result =
            normans::decode(spec, c.block.data(), c.block.size(), predictor,
                            normans::dense(spec, codes.data()));
        for (std::size_t i = 0; i < c.codes.size(); ++i) back.push_back(code_in(c, codes, i));
        return result;
    });
}

inline coded_case encode_case(const golden_case& c)
{
    return normans::code_bytes(c.spec.dtype) == 1 ? encode_codes<std::uint8_t>(c)
                                                  : encode_codes<std::uint16_t>(c);
}

inline normans::decode_result decode_case(const golden_case& c, std::vector<std::uint16_t>& back)
{
    return normans::code_bytes(c.spec.dtype) == 1 ? decode_codes<std::uint8_t>(c, back)
                                                  : decode_codes<std::uint16_t>(c, back);
}

}  // namespace normans_test
