// Pages of all types, coders and shapes, some of their scalars under the floats that guards are
// written for, there and back. Inputs are made from integers: no flag moves them. Prints a hash over
// all blocks.  usage: streams_test [--flush-to-zero]

#include <cstdio>

#include "field/page.hpp"
#include "support/float_mode.hpp"
#include "support/scaled_page.hpp"
#include "support/test_rng.hpp"

using namespace field;

namespace {

constexpr uint32_t count = 4096;

// Every 16th scalar is one of the floats that guards are written for.
constexpr uint32_t odd_means[] = {0x7fc00000, 0xff800001, 0x7f800000, 0xff800000, 0x80000000, 0,
                                  0x7f7fffff, 0xff7fffff, 0x00000001, 0x807fffff, 0x00800000};
constexpr uint32_t odd_variances[] = {0, 0x80000000, 1, 0x00800000, 0xbf800000,
                                      0x7f800000, 0x7fc00000, 0x7f800001};

// Floats are bits here, so that -ffast-math has no NaN to reason about.
page stream_page(uint32_t number, scalar_type type, shape_id shape, const marginal_table* table)
{
    random_source random{number};
    page made;
    made.spec.dtype = type;
    made.spec.heads = 2;
    made.spec.tokens = 16;
    made.spec.dim = count / 32;
    made.spec.shape = shape;
    made.spec.marginal = shape == shape_id::mixture_marginal ? table : nullptr;
    made.spec.lanes = number % 4 == 0 ? 1 : 4u << number % 4;
    made.spec.row_scale = number % 2 == 0;
    made.spec.parameter_hash = true;
    const scalar_format format = format_of(type);
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t field = 127 - 6 + random.bits() % 10;  // 2^-6 .. 2^3
        uint32_t mean = (random.bits() & 1) << 31 | field << 23 | (random.bits() & 0x7fffff);
        // Sigma from a quarter of the mean to the mean.
        uint32_t variance = (2 * field - 127 - 4 + random.bits() % 5) << 23 |
                            (random.bits() & 0x7fffff);
        uint32_t code = nearest_code(format, mean);
        // A few places away from the mean, more for the finer types.
        const uint32_t reach = format.mantissa_bits > 3 ? 1u << (format.mantissa_bits - 3) : 1;
        code ^= random.bits() % (4 * reach);
        if (i % 16 == 0) mean = odd_means[random.bits() % (sizeof odd_means / 4)];
        if (i % 16 == 8) variance = odd_variances[random.bits() % (sizeof odd_variances / 4)];
        if (i % 64 == 33) code = random.bits();
        made.mean.push_back(bits_to_float(mean));
        made.sigma.push_back(sigma_index(normans::variance{bits_to_float(variance)},
                                         made.spec.sigma_offset));
        made.codes.push_back(uint16_t(code & (format.code_sign() * 2 - 1)));
    }
    return made;
}

// The block, empty where it does not decode to the page.
template <class Code>
std::vector<uint8_t> round_trip(const page& from)
{
    const std::vector<Code> codes(from.codes.begin(), from.codes.end());
    std::vector<uint8_t> block(max_encoded_bytes(from.spec));
    const encode_result made = encode(from.spec, dense(from.spec, codes.data()), from.predictor(),
                                      block.data(), block.size());
    if (!made || (made.mode != block_mode::coded && !codes.empty())) return {};
    block.resize(made.bytes);
    std::vector<Code> back(codes.size());
    const decode_result read = decode(from.spec, block.data(), block.size(), from.predictor(),
                                      dense(from.spec, back.data()));
    return read && read.bytes == made.bytes && back == codes ? block : std::vector<uint8_t>{};
}

std::vector<page> make_pages(const marginal_table& table)
{
    std::vector<page> pages;
    for (const shape_id shape : all_shapes)
        for (const scalar_type type : modelled_types)
            pages.push_back(stream_page(uint32_t(pages.size()), type, shape, &table));
    pages.push_back({});  // no scalars: B01 where nothing is optimised away
    return pages;
}

// Types with a scale by either coder, and fp8 by tANS.
normans_test::scaled_page scaled_stream_page(uint32_t number)
{
    const normans_test::scaled_kind kind = normans_test::scaled_kinds[number % 8];
    block_spec spec = normans_test::scaled_spec(kind.type, kind.coder, 2, 16, count / 32,
                                                lane_counts[number / 8 % 4]);
    spec.shape = number / 32 % 2 == 0 ? shape_id::gaussian : shape_id::mixture;
    spec.row_scale = number % 3 == 0;
    spec.parameter_hash = true;
    normans_test::scaled_page made = normans_test::make_scaled_page(number, spec, 400);
    random_source random{number};
    for (uint32_t i = 0; i < count; i += 16)
        made.mean[i + random.bits() % 16] =
            bits_to_float(odd_means[random.bits() % (sizeof odd_means / 4)]);
    if (has_scale(kind.type))
        for (size_t i = 0; i < made.scales.size(); i += 16)
            made.scales[i] = bits_to_float(odd_means[random.bits() % (sizeof odd_means / 4)]);
    return made;
}

constexpr uint32_t scaled_pages = 64;

std::vector<uint8_t> scaled_round_trip(const normans_test::scaled_page& from)
{
    encode_result made;
    const std::vector<uint8_t> block = normans_test::encode_scaled_page(from, &made);
    if (!made || made.mode != block_mode::coded) return {};
    const normans_test::decoded_scaled back =
        normans_test::decode_scaled_page(from, block.data(), block.size());
    return back.result && back.codes == from.codes ? block : std::vector<uint8_t>{};
}

}  // namespace

int main(int argc, char** argv)
{
    if (argc == 2 && std::strcmp(argv[1], "--flush-to-zero") == 0) normans_test::flush_to_zero();
    const marginal_table table = some_marginal(1);
    normans_test::running_hash hash;
    int failed = 0;
    for (const page& one : make_pages(table)) {
        const std::vector<uint8_t> block = code_bytes(one.spec.dtype) == 1
                                               ? round_trip<uint8_t>(one)
                                               : round_trip<uint16_t>(one);
        failed += block.empty();
        for (const uint8_t byte : block) hash.add(byte);
    }
    for (uint32_t number = 0; number < scaled_pages; ++number) {
        const std::vector<uint8_t> block = scaled_round_trip(scaled_stream_page(number));
        failed += block.empty();
        for (const uint8_t byte : block) hash.add(byte);
    }
    std::printf("%016llx streams, %d failed\n", static_cast<unsigned long long>(hash.value()),
                failed);
    return failed == 0 ? 0 : 1;
}
