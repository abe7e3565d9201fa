// NEON lanes, those of planes and those for static tables, against the scalar definition: the same
// bytes, and each reads the other's. Cross compiled and run under qemu where the machine is another,
// hence no test library.

#include <algorithm>
#include <cfenv>
#include <cstdio>
#include <memory>
#include <vector>

#include <normans/core/uniform_model.hpp>
#include <normans/normans.hpp>

#include "support/guarded_memory.hpp"
#include "support/random_scalars.hpp"

using namespace normans;
using namespace normans_test;

namespace {

using neon = neon_backend;
static_assert(default_backend::id == backend_id::neon);

constexpr scalar_type types[] = {scalar_type::e4m3fn,   scalar_type::e5m2, scalar_type::e4m3fnuz,
                                 scalar_type::e5m2fnuz, scalar_type::bf16, scalar_type::fp16};

struct totals {
    uint64_t blocks = 0, coded = 0, row_scaled = 0, escapes = 0, scalars = 0, damaged = 0;
    uint64_t fitting = 0, too_small = 0;
    uint64_t wrong = 0, other_modes = 0;

    void expect(bool good, const block_spec& spec, const char* what)
    {
        if (good) return;
        if (++wrong <= 20)
            std::printf("%s: %s, %u x %u x %u, %u lanes\n", what, scalar_name(spec.dtype),
                        spec.heads, spec.tokens, spec.dim, spec.lanes);
    }
} all;

/// Some rounding mode, which neither the bytes nor the host's callables may notice.
class host_rounding {
public:
    explicit host_rounding(test_rng& rng)
    {
        constexpr int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
        std::fesetround(now = modes[rng.below(4)]);
    }
    bool ends() const
    {
        const bool kept = std::fegetround() == now;
        std::fesetround(now = FE_TONEAREST);
        return kept;
    }

    static inline int now = FE_TONEAREST;
};

/// A box with gaps between its rows, and all that may predict it.
template <class Code>
struct page {
    std::vector<Code> codes;
    std::vector<float> mean, a, b;
    std::vector<uint16_t> bf16_mean;
    std::vector<uint8_t> fp8_mean, sigma;
    std::vector<float> scales;  // of integers
    ptrdiff_t head_stride, token_stride;

    box_view<const Code> view() const { return {codes.data(), head_stride, token_stride}; }
};

template <class Code>
page<Code> make_page(test_rng& rng, const block_spec& spec, data_style style, uint32_t gap)
{
    page<Code> made;
    made.token_stride = ptrdiff_t(spec.dim + gap);
    made.head_stride = made.token_stride * ptrdiff_t(spec.tokens) + ptrdiff_t(gap);
    const size_t size = size_t(made.head_stride) * spec.heads;
    for (size_t i = 0; i < size; ++i) {
        test_scalar one = draw_scalar(rng, format_of(spec.dtype), style, spec.sigma_offset);
        if (rng.below(64) == 0) one.mean &= 0x81ffffff;  // around the smallest normal floats
        made.codes.push_back(Code(one.code));
        made.mean.push_back(bits_to_float(one.mean));
        made.bf16_mean.push_back(uint16_t(one.mean >> 16));
        made.fp8_mean.push_back(uint8_t(nearest_code(format_of(scalar_type::e4m3fn), one.mean)));
        made.sigma.push_back(one.sigma);
        const bool odd = rng.below(16) == 0;
        made.a.push_back(!odd ? 1.0f + float(rng.bits(8)) / 4096.0f
                              : bits_to_float(rng.bits(1) << 31 | (1 + rng.below(254)) << 23));
        made.b.push_back(!odd ? float(rng.bits(8)) / 65536.0f : rng.bits(1) ? 0.0f : -0.0f);
    }
    return made;
}

/// Means, sigmas and map of `kind`, the same for all pages of a call.
template <class Code>
array_predictor predictor_of(uint32_t kind, const block_spec& spec, const page<Code>& from)
{
    array_predictor out{};
    const scalar_type fp8[] = {scalar_type::e4m3fn, scalar_type::e5m2, scalar_type::e4m3fnuz,
                               scalar_type::e5m2fnuz};
    out.means = {from.mean.data(), from.head_stride, from.token_stride, any_means::fp32};
    if (kind % 4 == 1) out.means.data = from.bf16_mean.data(), out.means.type = scalar_type::bf16;
    if (kind % 4 == 2) out.means.data = from.fp8_mean.data(), out.means.type = fp8[kind / 4 % 4];
    out.sigmas = {from.sigma.data(), spec.dim, 0, 0};
    if (kind / 16 % 4 == 0) out.sigmas.channel_stride = 1;
    if (kind / 16 % 4 >= 2) out.sigmas.scalar_stride = 1;
    if (kind / 64 % 2 == 1) out.affine = {from.a.data(), from.b.data(), spec.dim};
    return out;
}

template <class Code>
block_spec spec_of(block_spec spec, const page<Code>& from)
{
    if (!from.scales.empty()) spec.scales.data = from.scales.data();
    return spec;
}

/// Encodes and decodes some blocks of one spec in one call each, with both backends.
template <class Code, class Source>
void check_blocks(test_rng& rng, const block_spec& spec, const std::vector<page<Code>>& pages,
                  Source source)
{
    using predictor = decltype(source(pages[0]));
    const size_t bytes = max_encoded_bytes(spec), count = pages.size();
    std::vector<std::vector<uint8_t>> coded(count, std::vector<uint8_t>(bytes)), expected = coded;
    std::vector<encode_task<Code, predictor>> encoding;
    for (size_t i = 0; i < count; ++i)
        encoding.push_back(
            {spec_of(spec, pages[i]), pages[i].view(), source(pages[i]), coded[i].data(), bytes,
             encode_result{}});
    const host_rounding encode_rounding(rng);
    encode_blocks<neon>(encoding.data(), count);
    all.expect(encode_rounding.ends(), spec, "rounding mode");
    std::vector<std::vector<Code>> back;
    for (size_t i = 0; i < count; ++i) {
        const encode_result& made = encoding[i].result;
        const encode_result scalar = encode<scalar_backend>(
            spec_of(spec, pages[i]), pages[i].view(), source(pages[i]), expected[i].data(), bytes);
        all.expect(made && scalar && made.bytes == scalar.bytes, spec, "encode");
        expected[i].resize(scalar.bytes);
        coded[i].resize(made.bytes);
        all.expect(coded[i] == expected[i], spec, "bytes");
        const bool steps = made.mode == block_mode::coded;
        const bool by_planes = steps && made.lanes != 1;
        all.expect(made.escapes == scalar.escapes, spec, "escapes");
        all.expect(made.backend == (by_planes ? neon::id : backend_id::scalar), spec,
                   "backend");
        all.blocks += 1;
        all.coded += steps;
        all.row_scaled += made.row_scaled;
        all.escapes += made.escapes;
        all.scalars += count_of(spec);
        // Some blocks are damaged before they are decoded.
        if (rng.below(4) == 0 && expected[i].size() > block_header_bytes) {
            const uint32_t at = rng.below(uint32_t(expected[i].size() - block_header_bytes));
            expected[i][block_header_bytes + at] ^= uint8_t(1 << rng.below(8));
            if (rng.below(4) == 0) expected[i].resize(block_header_bytes + at);
            const size_t rest = rng.below(4) == 0 ? block_header_bytes + at : expected[i].size();
            for (size_t k = rest; k < expected[i].size(); ++k)
                expected[i][k] = uint8_t(rng.bits(8));
            ++all.damaged;
        }
        back.push_back(std::vector<Code>(pages[i].codes.size()));
    }
    std::vector<decode_task<Code, predictor>> decoding;
    std::vector<std::unique_ptr<guarded_memory>> memory;  // no word behind the last is read
    for (size_t i = 0; i < count; ++i) {
        memory.push_back(std::make_unique<guarded_memory>(bytes));
        decoding.push_back({spec_of(spec, pages[i]),
                            memory[i]->put_last(expected[i].data(), expected[i].size()),
                            expected[i].size(),
                            source(pages[i]),
                            {back[i].data(), pages[i].head_stride, pages[i].token_stride},
                            decode_result{}});
    }
    const host_rounding decode_rounding(rng);
    decode_blocks<neon>(decoding.data(), count);
    all.expect(decode_rounding.ends(), spec, "rounding mode");
    for (size_t i = 0; i < count; ++i) {
        std::vector<Code> by_scalar(back[i].size());
        const decode_result read = decode<scalar_backend>(
            spec_of(spec, pages[i]), expected[i].data(), expected[i].size(), source(pages[i]),
            box_view<Code>{by_scalar.data(), pages[i].head_stride, pages[i].token_stride});
        const decode_result& mine = decoding[i].result;
        all.expect(mine.code == read.code, spec, "status");
        if (read) all.expect(back[i] == by_scalar, spec, "codes");
        if (expected[i] == coded[i]) {
            all.expect(bool(read), spec, "decode");
            if (has_scale(spec.dtype)) {  // dense: all bytes are codes
                all.expect(back[i] == pages[i].codes, spec, "round trip");
                continue;
            }
            for (uint32_t k = 0; k < count_of(spec); ++k) {
                const detail::box_walker walker(spec, k);
                const ptrdiff_t at = detail::offset_of(walker.position(), pages[i].head_stride,
                                                       pages[i].token_stride);
                if (back[i][size_t(at)] != pages[i].codes[size_t(at)])
                    return all.expect(false, spec, "round trip");
            }
        }
    }
}

template <class Code>
void check_random(test_rng& rng, scalar_type type, const marginal_table& table)
{
    block_spec spec;
    spec.dtype = type;
    spec.heads = 1 + rng.below(3);
    spec.tokens = 1 + rng.below(9);
    spec.dim = rng.bits(1) ? 8 * (1 + rng.below(20)) : 1 + rng.below(150);
    spec.lanes = 8u << rng.below(3);
    spec.sigma_offset = rng.below(4) != 0 ? default_sigma_offset
                                          : rng.between(min_sigma_offset, max_sigma_offset);
    spec.shape = shape_id(rng.below(3));
    if (spec.shape == shape_id::mixture_marginal) spec.marginal = &table;
    spec.row_scale = rng.bits(1);
    spec.parameter_hash = rng.below(4) == 0;
    const data_style style = rng.bits(1) ? data_style::mixed : data_style(rng.below(6));
    const uint32_t kind = rng.bits(7), gap = rng.below(3) * rng.below(20);
    std::vector<page<Code>> pages;
    for (uint32_t count = 1 + rng.below(9); pages.size() < count;)
        pages.push_back(make_page<Code>(rng, spec, style, gap));
    check_blocks(rng, spec, pages, [&](const page<Code>& from) {
        return predictor_of(kind, spec, from);
    });
}

/// Pages of int8 or int4 in scalar order, a scale per row or per 8, 16 or 32 channels; some scales,
/// means, sigmas and codes are any.
page<uint8_t> make_integers(test_rng& rng, const block_spec& spec, uint32_t wild)
{
    const scalar_format format = format_of(spec.dtype);
    const uint32_t count = uint32_t(count_of(spec)), reach = format.largest_finite;
    const uint32_t groups = spec.scales.group == 0 ? 1 : (spec.dim - 1) / spec.scales.group + 1;
    page<uint8_t> made;
    made.token_stride = ptrdiff_t(spec.dim);
    made.head_stride = ptrdiff_t(spec.dim) * ptrdiff_t(spec.tokens);
    made.codes.resize(size_t(raw_bytes(spec.dtype, count)));
    for (uint32_t i = 0; i < spec.heads * spec.tokens * groups; ++i)
        made.scales.push_back(bits_to_float(rng.below(wild) == 0 ? rng.bits(32)
                                                                 : 120 << 23 | rng.bits(10) << 13));
    for (uint32_t i = 0; i < count; ++i) {
        const scalar_position at{i, i / spec.dim / spec.tokens, i / spec.dim % spec.tokens,
                                 i % spec.dim};
        block_spec local = spec;
        local.scales.data = made.scales.data();
        const code_scale scale = make_scale(float_to_bits(local.scales(at)));
        // In 1/65536 codes.
        const int mean = rng.between(-int(reach) * 70000, int(reach) * 70000);
        const uint32_t octave = rng.below(format.code_bits);
        const int value = mean + int((int64_t(rng.noise()) << octave) / 4);
        uint32_t code = nearest_integer_code(format, float_of(value, -16));
        uint32_t bits = scale.scale == 0 ? 0 : multiply(float_of(mean, -16), scale.scale);
        int index = scale.eighths + 8 * (int(octave) - 2 - spec.sigma_offset);
        if (rng.below(wild) == 0) bits = rng.bits(32);
        if (rng.below(wild) == 0) index = int(rng.bits(8));
        if (rng.below(wild) == 0) code = rng.bits(format.code_bits);
        made.mean.push_back(bits_to_float(bits));
        made.bf16_mean.push_back(uint16_t(bits >> 16));
        made.fp8_mean.push_back(uint8_t(nearest_code(format_of(scalar_type::e4m3fn), bits)));
        made.sigma.push_back(uint8_t(index < 0 ? 0 : index > 254 ? 254 : index));
        made.a.push_back(1.0f + float(rng.bits(8)) / 4096.0f);
        made.b.push_back(0.0f);
        const detail::packed_codes<uint8_t> to{
            {made.codes.data(), made.head_stride, made.token_stride}, format.code_bits == 4};
        to.store(at, code);
    }
    return made;
}

void check_integers(scalar_type type, uint32_t rounds)
{
    test_rng rng(500 + uint64_t(type));
    for (uint32_t i = 0; i < rounds; ++i) {
        block_spec spec;
        spec.dtype = type;
        spec.heads = 1 + rng.below(3);
        spec.tokens = 1 + rng.below(9);
        spec.dim = rng.bits(1) ? 8 * (1 + rng.below(20)) : 1 + rng.below(150);
        spec.lanes = 8u << rng.below(3);
        spec.shape = shape_id(rng.below(2));
        spec.row_scale = rng.bits(1);
        spec.parameter_hash = rng.below(4) == 0;
        spec.scales.group = rng.below(4) == 0 ? 0 : 4u << rng.below(4);
        const uint32_t groups = spec.scales.group == 0 ? 1 : (spec.dim - 1) / spec.scales.group + 1;
        spec.scales.token_stride = ptrdiff_t(groups);
        spec.scales.head_stride = ptrdiff_t(groups * spec.tokens);
        spec.scales.group_stride = 1;
        const uint32_t kind = rng.bits(7), wild = rng.bits(1) ? 300 : 12;
        std::vector<page<uint8_t>> pages;
        for (uint32_t count = 1 + rng.below(9); pages.size() < count;)
            pages.push_back(make_integers(rng, spec, wild));
        check_blocks(rng, spec, pages, [&](const page<uint8_t>& from) {
            return predictor_of(kind, spec, from);
        });
    }
}

/// Tables for order 0; those that are not complete lack slots for some codes.
struct static_tables {
    std::vector<order0_table> memory;
    order0_tables view;

    static_tables(test_rng& rng, const block_spec& spec, uint32_t group)
    {
        const uint32_t planes = code_bytes(spec.dtype), bits = format_of(spec.dtype).code_bits;
        memory.resize(order0_tables_needed(uint64_t(spec.heads) * spec.dim, group, planes));
        const uint32_t wild = rng.below(3);
        for (order0_table& table : memory) {
            uint32_t counts[256] = {};
            uint16_t freq[256];
            for (uint32_t s = 0; s < (bits == 4 ? 16u : 256u); ++s)
                counts[s] = (wild == 0 ? 0 : 1) + rng.below(s % 7 == 3 ? 900 : 9);
            counts[3] += wild == 2 ? 1000000 : 50;
            if (order0_normalize(counts, freq, 12 + rng.bits(1)) != status::ok ||
                make_order0_table(freq, table) != status::ok)
                ++all.wrong;
        }
        view = {memory.data(), uint32_t(memory.size()), group};
    }
};

/// Blocks under static tables, their own or shared ones; outputs that are too small as well.
template <class Code>
void check_order0(scalar_type type, uint32_t rounds)
{
    test_rng rng(900 + uint64_t(type));
    const uint32_t most = (1u << format_of(type).code_bits) - 1;
    const bool half = most == 15;
    for (uint32_t i = 0; i < rounds; ++i) {
        block_spec spec;
        spec.dtype = type;
        spec.coder = coder_id::order0;
        spec.heads = 1 + rng.below(3);
        spec.tokens = 1 + rng.below(rng.below(8) == 0 ? 90 : 9);
        spec.dim = rng.bits(1) ? 32 * (1 + rng.below(6)) : 1 + rng.below(150);
        spec.lanes = rng.below(8) == 0 ? 1 : 8u << rng.below(3);
        constexpr uint32_t groups[] = {0, 0, 32, 8, 5};
        const static_tables tables(rng, spec, groups[rng.below(5)]);
        if (rng.below(3) != 0) spec.tables = &tables.view;
        const uint32_t gap = has_scale(type) ? 0 : rng.below(2) * rng.below(20);
        std::vector<page<Code>> pages;
        for (uint32_t count = 1 + rng.below(6); pages.size() < count;) {
            page<Code> made;
            made.token_stride = ptrdiff_t(spec.dim + gap);
            made.head_stride = made.token_stride * ptrdiff_t(spec.tokens) + ptrdiff_t(gap);
            const size_t size = size_t(made.head_stride) * spec.heads;
            made.codes.resize(half ? (size + 1) / 2 : size);
            const uint32_t kind = rng.below(8);
            for (size_t k = 0; k < size; ++k) {
                uint32_t code = 3;
                if (kind == 0) code = rng.bits(16);
                else if (kind == 1) code = 9;
                else if (kind <= 3 || rng.below(10) == 0)
                    code = uint32_t(int(most / 2) + rng.noise() / int(1 + 300000 / most));
                code &= most;
                if (half) made.codes[k / 2] = Code(made.codes[k / 2] | code << k % 2 * 4);
                else made.codes[k] = Code(code);
            }
            pages.push_back(std::move(made));
        }
        check_blocks(rng, spec, pages, [](const page<Code>&) { return no_predictor; });

        const size_t bytes = max_encoded_bytes(spec);
        std::vector<uint8_t> mine(bytes, 1), theirs(bytes, 1);
        const size_t room = rng.below(uint32_t(bytes) + 1);
        encode_task<Code, array_predictor> task{
            spec, pages[0].view(), no_predictor, mine.data(), room, encode_result{}};
        encode_blocks<neon>(&task, 1);
        const encode_result scalar = encode<scalar_backend>(spec, pages[0].view(), no_predictor,
                                                            theirs.data(), room);
        all.expect(task.result.code == scalar.code && task.result.bytes == scalar.bytes, spec,
                   "room");
        const std::vector<uint8_t> behind(bytes - room, 1);
        all.expect(std::equal(behind.begin(), behind.end(), mine.begin() + ptrdiff_t(room)), spec,
                   "behind the room");
        ++(scalar ? all.fitting : all.too_small);
    }
}

/// Every code beside scalars that cost little, so that the block is coded.
template <class Code>
void check_all_codes(test_rng& rng, scalar_type type, uint32_t lanes, shape_id shape)
{
    block_spec spec;
    spec.dtype = type;
    spec.dim = 16 * format_of(type).code_sign();
    spec.lanes = lanes;
    spec.shape = shape;
    std::vector<page<Code>> pages = {make_page<Code>(rng, spec, data_style::sharp, 0)};
    for (uint32_t i = 0; i < spec.dim; i += 8) pages[0].codes[i + i / 8 % 8] = Code(i / 8);
    check_blocks(rng, spec, pages, [&](const page<Code>& from) {
        return predictor_of(32, spec, from);
    });
}

template <class Code>
struct callable {
    const page<Code>* from;
    prediction operator()(const scalar_position& at) const
    {
        const size_t i = size_t(detail::offset_of(at, from->head_stride, from->token_stride));
        if (std::fegetround() != host_rounding::now) ++all.other_modes;
        return {from->mean[i], from->sigma[i]};
    }
};

template <class Code>
void check_callable(test_rng& rng, scalar_type type)
{
    block_spec spec;
    spec.dtype = type;
    spec.heads = 2;
    spec.tokens = 1 + rng.below(4);
    spec.dim = 1 + rng.below(100);
    spec.lanes = 8u << rng.below(3);
    spec.row_scale = true;
    std::vector<page<Code>> pages;
    for (uint32_t count = 1 + rng.below(5); pages.size() < count;)
        pages.push_back(make_page<Code>(rng, spec, data_style::mixed, rng.below(2)));
    check_blocks(rng, spec, pages, [](const page<Code>& from) {
        return callable<Code>{&from};
    });
}

template <class Code>
void check_type(scalar_type type, uint32_t rounds)
{
    test_rng rng(500 + uint64_t(type));
    marginal_table table;
    if (make_marginal(random_marginal(7).data(), table) != status::ok) ++all.wrong;
    for (uint32_t i = 0; i < rounds; ++i) {
        check_random<Code>(rng, type, table);
        if (i % 16 == 0) check_callable<Code>(rng, type);
    }
    check_all_codes<Code>(rng, type, 8, shape_id::gaussian);
    check_all_codes<Code>(rng, type, 32, shape_id::mixture);
}

}  // namespace

int main(int argc, char** argv)
{
    uint32_t rounds = 0;  // an argument: how many
    for (const char* digit = argc > 1 ? argv[1] : "100"; *digit != 0; ++digit)
        rounds = 10 * rounds + uint32_t(*digit - '0');
    for (const scalar_type type : types) {
        if (code_bytes(type) == 1) check_type<uint8_t>(type, rounds);
        else check_type<uint16_t>(type, rounds);
    }
    const uint64_t coded = all.coded;
    check_integers(scalar_type::int8, rounds);
    check_integers(scalar_type::int4, rounds);
    if (all.coded - coded < rounds) ++all.wrong;  // most are coded
    const uint64_t modelled = all.coded;
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::int8, scalar_type::int4})
        check_order0<uint8_t>(type, rounds);
    check_order0<uint16_t>(scalar_type::bf16, rounds);
    if (all.coded - modelled < 2 * rounds) ++all.wrong;
    if (all.fitting < rounds / 2 || all.too_small < rounds) ++all.wrong;
    std::printf("%llu blocks, %llu coded, %llu with row steps, %llu damaged, %llu scalars, "
                "%llu escapes: %llu wrong, %llu calls in a mode not the host's\n",
                static_cast<unsigned long long>(all.blocks),
                static_cast<unsigned long long>(all.coded),
                static_cast<unsigned long long>(all.row_scaled),
                static_cast<unsigned long long>(all.damaged),
                static_cast<unsigned long long>(all.scalars),
                static_cast<unsigned long long>(all.escapes),
                static_cast<unsigned long long>(all.wrong),
                static_cast<unsigned long long>(all.other_modes));
    return all.wrong + all.other_modes != 0;
}
