// Writes blocks to a file, or reads another build's file back: the same source under other flags
// must give the same bytes and read them. Inputs are made from integers: no flag moves them.

#include <cstdio>

#include "field/page.hpp"

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

template <class Code>
std::vector<uint8_t> write_block(const page& from)
{
    const std::vector<Code> codes(from.codes.begin(), from.codes.end());
    std::vector<uint8_t> block(max_encoded_bytes(from.spec));
    const encode_result made = encode(from.spec, dense(from.spec, codes.data()), from.predictor(),
                                      block.data(), block.size());
    if (!made || (made.mode != block_mode::coded && !codes.empty())) std::abort();
    block.resize(made.bytes);
    return block;
}

// The block's size, 0 where it does not decode to the page.
template <class Code>
size_t read_block(const page& like, const uint8_t* block, size_t bytes)
{
    const std::vector<Code> codes(like.codes.begin(), like.codes.end());
    std::vector<Code> back(codes.size());
    const decode_result read =
        decode(like.spec, block, bytes, like.predictor(), dense(like.spec, back.data()));
    if (!read) std::printf("%s\n", status_name(read.code));
    return read && back == codes ? read.bytes : 0;
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

}  // namespace

int main(int argc, char** argv)
{
    if (argc != 3) return 2;
    const marginal_table table = some_marginal(1);
    const std::vector<page> pages = make_pages(table);

    const bool writes = std::strcmp(argv[1], "write") == 0;
    std::FILE* const file = std::fopen(argv[2], writes ? "wb" : "rb");
    if (file == nullptr) return 2;
    std::vector<uint8_t> bytes;
    if (!writes) {
        bytes.resize(1 << 20);
        bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
    }
    size_t at = 0;
    for (const page& one : pages) {
        const bool is_narrow = code_bytes(one.spec.dtype) == 1;
        if (writes) {
            const auto block = is_narrow ? write_block<uint8_t>(one) : write_block<uint16_t>(one);
            bytes.insert(bytes.end(), block.begin(), block.end());
        } else {
            const uint8_t* const from = bytes.data() + at;
            const size_t size = is_narrow ? read_block<uint8_t>(one, from, bytes.size() - at)
                                       : read_block<uint16_t>(one, from, bytes.size() - at);
            if (size == 0) return 1;
            at += size;
        }
    }
    if (writes && std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) return 2;
    std::fclose(file);
    return writes || at == bytes.size() ? 0 : 1;
}
