#include "attention_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "codec/codec.hpp"
#include "support/test_rng.hpp"
#if defined(NORMANS_TEST_REAL_CACHE)
#include "../../bench/gpu/data.hpp"
#endif

namespace attention_test {

namespace {

using normans_test::test_rng;

double value_of(scalar_type type, uint32_t code)
{
    const scalar_format format = format_of(type);
    if (is_special(format, code)) {
        const uint32_t magnitude = code & (format.code_sign() - 1);
        const bool infinite = format.has_infinity && magnitude == format.largest_finite + 1;
        const double value = infinite ? HUGE_VAL : std::nan("");
        return (code & format.code_sign()) != 0 ? -value : value;
    }
    return double(bits_to_float(value_bits(format, code)));
}

// Which tokens a page holds: (sequence, first token, tokens), by the first sequence that has it.
struct page_owner {
    uint32_t sequence, first, tokens;
};

std::vector<page_owner> owners_of(const attention_case& c)
{
    std::vector<page_owner> owners(c.pool_pages, {0, 0, 0});
    const uint32_t page_tokens = c.spec.tokens;
    for (uint32_t s = 0; s < c.lengths.size(); ++s)
        for (uint32_t first = 0; first < c.lengths[s]; first += page_tokens) {
            page_owner& owner =
                owners[uint32_t(c.table[s * c.table_stride + first / page_tokens])];
            if (owner.tokens == 0)
                owner = {s, first, std::min(page_tokens, c.lengths[s] - first)};
        }
    return owners;
}

template <class Code>
void encode_pages(attention_case& c)
{
    const std::size_t blocks = c.block_of(c.pool_pages, 0, 0);
    c.offset.assign(blocks, 0);
    c.bytes.assign(blocks, 0);
    const std::vector<page_owner> owners = owners_of(c);
    const uint32_t dim = c.spec.dim;
    for (uint32_t page = 0; page < c.pool_pages; ++page)
        for (uint32_t i = 0; i < 2 * c.kv_heads; ++i) {
            const uint32_t head = i / 2, side = i % 2;
            const page_owner owner = owners[page];
            block_spec spec = c.spec;
            spec.tokens = owner.tokens;
            std::vector<Code> codes;
            std::vector<uint16_t> means;
            for (uint32_t t = 0; t < owner.tokens; ++t) {
                const std::size_t at = ((owner.first + t) * c.kv_heads + head) * dim;
                for (uint32_t k = 0; k < dim; ++k) {
                    codes.push_back(Code(c.content.codes[side][owner.sequence][at + k]));
                    means.push_back(c.content.means[side][owner.sequence][at + k]);
                }
            }
            array_predictor predictor{};
            predictor.means = {means.data(), 0, ptrdiff_t(dim), scalar_type::bf16};
            predictor.sigmas = {c.content.sigmas[side].data() + head * dim, dim, 0, 1};
            predictor.affine = {c.content.a[side].data() + head * dim,
                                c.content.b[side].data() + head * dim, dim};
            const std::size_t begin = (c.arena.size() + 15) / 16 * 16;
            c.arena.resize(begin + max_encoded_bytes(spec));
            const encode_result done = encode<scalar_backend>(
                spec, dense(spec, static_cast<const Code*>(codes.data())), predictor,
                c.arena.data() + begin, c.arena.size() - begin);
            if (!done) std::abort();
            c.arena.resize(begin + done.bytes);
            c.offset[c.block_of(page, head, side)] = begin;
            c.bytes[c.block_of(page, head, side)] = done.bytes;
            c.largest = std::max(c.largest, uint32_t(done.bytes));
        }
}

void encode_all(attention_case& c)
{
    if (code_bytes(c.spec.dtype) == 1) encode_pages<uint8_t>(c);
    else encode_pages<uint16_t>(c);
}

block_spec spec_of(scalar_type type, uint32_t dim, uint32_t page_tokens, uint32_t lanes)
{
    block_spec spec;
    spec.dtype = type;
    spec.tokens = page_tokens;
    spec.dim = dim;
    spec.lanes = lanes;
    spec.row_scale = true;
    return spec;
}

template <class Code>
status decode_one(const attention_case& c, const block_spec& spec, std::size_t block,
                  const array_predictor& predictor)
{
    std::vector<Code> codes(spec.tokens * spec.dim);
    return decode<scalar_backend>(spec, c.arena.data() + c.offset[block], c.bytes[block],
                                  predictor, dense(spec, codes.data()))
        .code;
}

}  // namespace

attention_case drawn_case(uint64_t seed, scalar_type type, uint32_t dim, uint32_t page_tokens,
                          uint32_t lanes)
{
    test_rng rng(seed);
    attention_case c;
    c.spec = spec_of(type, dim, page_tokens, lanes);
    c.kv_heads = 2;
    c.lengths = {2 * page_tokens + 5, 0, 1, 2 * page_tokens, 3 * page_tokens + page_tokens / 2};
    c.table_stride = 5;
    c.table.assign(c.lengths.size() * c.table_stride, -1);
    std::vector<int32_t> free_pages(16);
    for (int32_t i = 0; i < 16; ++i) free_pages[size_t(i)] = i;
    for (uint32_t i = 16; i > 1; --i) std::swap(free_pages[i - 1], free_pages[rng.below(i)]);
    c.pool_pages = 16;
    for (uint32_t s = 0; s < c.lengths.size(); ++s)
        for (uint32_t i = 0; i * page_tokens < c.lengths[s]; ++i) {
            int32_t& entry = c.table[s * c.table_stride + i];
            if (s == 4 && i < 2) {
                entry = c.table[i];
                continue;
            }
            entry = free_pages.back();
            free_pages.pop_back();
        }
    const uint32_t channels = c.kv_heads * dim;
    for (uint32_t side = 0; side < 2; ++side) {
        for (uint32_t k = 0; k < channels; ++k) {
            c.content.sigmas[side].push_back(
                sigma_index(deviation{0.0625f * float(1 + k % 3)}, c.spec.sigma_offset));
            c.content.a[side].push_back(1.0f - float(k % 7) / 64);
            c.content.b[side].push_back(float(k % 5) / 32);
        }
        for (uint32_t s = 0; s < c.lengths.size(); ++s) {
            std::vector<uint16_t> codes, means;
            for (uint32_t i = 0; i < c.lengths[s] * channels; ++i) {
                const uint32_t k = i % channels;
                const float value = float(rng.noise()) * 0x1p-16f;
                const float noise =
                    float(rng.noise()) * 0x1p-16f * 0.0625f * float(1 + k % 3);
                const float mean = (value - c.content.b[side][k]) / c.content.a[side][k];
                means.push_back(uint16_t(float_to_bits(mean) >> 16));
                codes.push_back(uint16_t(
                    nearest_code(format_of(type), float_to_bits(value + noise))));
            }
            if (s == 4) {  // shared pages
                const auto shared = ptrdiff_t(2 * page_tokens * channels);
                std::copy_n(c.content.codes[side][0].begin(), shared, codes.begin());
                std::copy_n(c.content.means[side][0].begin(), shared, means.begin());
            }
            c.content.codes[side].push_back(codes);
            c.content.means[side].push_back(means);
        }
    }
    // Everybody's bits: a NaN among the values of one channel, a far key.
    c.content.codes[1][3][channels + 7] = uint16_t(format_of(type).quiet_nan);
    c.content.codes[0][3][2 * channels + 9] =
        uint16_t(nearest_code(format_of(type), float_to_bits(0x1p60f)));
    encode_all(c);
    return c;
}

void attention_case::lay_out(bool heads_first, uint32_t heads_per_group)
{
    by_head = heads_first;
    group = heads_per_group;
    const uint32_t dim = spec.dim, page_tokens = spec.tokens;
    const std::size_t size = std::size_t(pool_pages) * kv_heads * page_tokens * dim;
    const uint32_t width = code_bytes(spec.dtype);
    const std::vector<page_owner> owners = owners_of(*this);
    for (uint32_t side = 0; side < 2; ++side) {
        pool[side].assign(size * width, 0xff);
        mean_pool[side].assign(size, 0x7fff);
        for (uint32_t page = 0; page < pool_pages; ++page)
            for (uint32_t i = 0; i < owners[page].tokens * kv_heads * dim; ++i) {
                const uint32_t k = i % dim, head = i / dim % kv_heads, t = i / dim / kv_heads;
                const uint32_t row = by_head ? head * page_tokens + t : t * kv_heads + head;
                const std::size_t at =
                    (std::size_t(page) * kv_heads * page_tokens + row) * dim + k;
                const std::size_t from = std::size_t(owners[page].first) * kv_heads * dim + i;
                const uint16_t code = content.codes[side][owners[page].sequence][from];
                for (uint32_t b = 0; b < width; ++b)
                    pool[side][at * width + b] = uint8_t(code >> 8 * b);
                mean_pool[side][at] = content.means[side][owners[page].sequence][from];
            }
    }
    test_rng rng(group);
    queries.clear();
    for (std::size_t i = 0; i < outputs(); ++i)
        queries.push_back(uint16_t(float_to_bits(float(rng.noise()) * 0x1p-16f) >> 16));
}

status host_status(const attention_case& c, uint32_t page, uint32_t head, uint32_t side,
                   uint32_t tokens)
{
    block_spec spec = c.spec;
    spec.tokens = tokens;
    const uint32_t dim = c.spec.dim;
    const ptrdiff_t token_stride = ptrdiff_t(c.by_head ? dim : dim * c.kv_heads);
    const ptrdiff_t head_stride = ptrdiff_t(c.by_head ? dim * c.spec.tokens : dim);
    array_predictor predictor{};
    predictor.means = {c.mean_pool[side].data() +
                           std::size_t(page) * c.kv_heads * c.spec.tokens * dim +
                           ptrdiff_t(head) * head_stride,
                       0, token_stride, scalar_type::bf16};
    predictor.sigmas = {c.content.sigmas[side].data() + head * dim, dim, 0, 1};
    predictor.affine = {c.content.a[side].data() + head * dim, c.content.b[side].data() + head * dim,
                        dim};
    const std::size_t block = c.block_of(page, head, side);
    return code_bytes(c.spec.dtype) == 1 ? decode_one<uint8_t>(c, spec, block, predictor)
                                         : decode_one<uint16_t>(c, spec, block, predictor);
}

void reference(const attention_case& c, float score_scale, float value_scale, double weight_error,
               std::vector<double>& out, std::vector<double>& margin)
{
    out.assign(c.outputs(), 0.0);
    margin.assign(c.outputs(), 0.0);
    const uint32_t dim = c.spec.dim;
    for (std::size_t i = 0; i < c.query_heads(); ++i) {
        const std::size_t s = i / c.group / c.kv_heads, head = i / c.group % c.kv_heads;
        std::vector<double> weight;
        double largest = -HUGE_VAL, sum = 0, size = 0;
        for (uint32_t t = 0; t < c.lengths[s]; ++t) {
            double score = 0, sizes = 0;
            for (uint32_t k = 0; k < dim; ++k) {
                const double product =
                    double(bits_to_float(uint32_t(c.queries[i * dim + k]) << 16)) *
                    value_of(c.spec.dtype,
                             c.content.codes[0][s][(t * c.kv_heads + head) * dim + k]);
                score += product;
                sizes += std::fabs(product);
            }
            weight.push_back(score * double(score_scale));
            largest = std::max(largest, weight.back());
            size = std::max(size, sizes * double(score_scale));
        }
        for (double& one : weight) sum += one = std::exp(one - largest);
        for (uint32_t k = 0; k < dim; ++k) {
            double total = 0, sizes = 0;
            for (uint32_t t = 0; t < c.lengths[s]; ++t) {
                const double product =
                    weight[t] / sum *
                    value_of(c.spec.dtype,
                             c.content.codes[1][s][(t * c.kv_heads + head) * dim + k]);
                total += product;
                sizes += std::fabs(product);
            }
            out[i * dim + k] = total * double(value_scale);
            // Scores are off by a share of their products, weights and sums of theirs.
            margin[i * dim + k] =
                sizes * double(value_scale) * ((size + 16) * 0x1p-22 + 2 * weight_error);
        }
    }
}

#if defined(NORMANS_TEST_REAL_CACHE)
std::vector<attention_case> real_layers(scalar_type type, const char* cache, const char* profile,
                                        uint32_t page_tokens, uint32_t lanes)
{
    // Layer by layer, K before V, each cut into pages.
    const bench::gpu_pages pages = bench::real_pages(type, cache, profile);
    const uint32_t heads = pages.spec.heads, dim = pages.spec.dim;
    const std::size_t channels = pages.channels(), width = code_bytes(type);
    const std::size_t tensor_tokens = 128, scalars = tensor_tokens * channels;
    const std::size_t tensor_pages = tensor_tokens / pages.spec.tokens;
    if (pages.pages == 0 || pages.pages % (2 * tensor_pages) != 0) std::abort();
    std::vector<attention_case> layers;
    for (std::size_t layer = 0; layer < pages.pages / tensor_pages / 2; ++layer) {
        attention_case c;
        c.spec = spec_of(type, dim, page_tokens, lanes);
        c.spec.shape = pages.spec.shape;
        c.spec.sigma_offset = pages.spec.sigma_offset;
        c.kv_heads = heads;
        c.lengths = {uint32_t(tensor_tokens), uint32_t(tensor_tokens) / 4 - 3};
        c.table_stride = uint32_t(tensor_tokens + page_tokens - 1) / page_tokens;
        c.pool_pages = 2 * c.table_stride;
        for (uint32_t i = 0; i < c.pool_pages; ++i)
            c.table.push_back(int32_t(c.pool_pages - 1 - i));
        for (uint32_t side = 0; side < 2; ++side) {
            const std::size_t tensor = 2 * layer + side, first = tensor * tensor_pages;
            std::vector<uint16_t> codes(scalars);
            for (std::size_t i = 0; i < scalars; ++i)
                for (std::size_t b = 0; b < width; ++b)
                    codes[i] = uint16_t(
                        codes[i] | pages.codes[(tensor * scalars + i) * width + b] << 8 * b);
            const auto means = pages.means.begin() + ptrdiff_t(tensor * scalars);
            for (int sequence = 0; sequence < 2; ++sequence) {
                c.content.codes[side].push_back(codes);
                c.content.means[side].emplace_back(means, means + ptrdiff_t(scalars));
            }
            const auto of_channels = [&](const auto& from, auto& to) {
                const auto begin = from.begin() + ptrdiff_t(first * channels);
                to.assign(begin, begin + ptrdiff_t(channels));
            };
            of_channels(pages.sigmas, c.content.sigmas[side]);
            of_channels(pages.a, c.content.a[side]);
            of_channels(pages.b, c.content.b[side]);
        }
        encode_all(c);
        layers.push_back(c);
    }
    return layers;
}
#else
std::vector<attention_case> real_layers(scalar_type, const char*, const char*, uint32_t, uint32_t)
{
    return {};
}
#endif

}  // namespace attention_test
