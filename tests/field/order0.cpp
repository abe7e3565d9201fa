// Field cases N02, B01, B03, B08, M01, M03, M04 and M05 for blocks of order 0, and that all lane
// groups write the same bytes.

#include <doctest/doctest.h>

#include <memory>

#include "field/page.hpp"
#include "support/test_rng.hpp"

using namespace field;
using normans_test::test_rng;
using normans_test::thin;

namespace {

constexpr uint32_t pages_at_once = 5;  // one more than run together

constexpr scalar_type order0_types[] = {scalar_type::e4m3fn, scalar_type::raw8, scalar_type::bf16,
                                        scalar_type::int8, scalar_type::int4, scalar_type::e2m1};

uint32_t bits_of(scalar_type type) { return format_of(type).code_bits; }

block_spec order0_spec(scalar_type type, uint32_t heads, uint32_t tokens, uint32_t dim,
                       uint32_t lanes)
{
    block_spec spec;
    spec.dtype = type;
    spec.heads = heads;
    spec.tokens = tokens;
    spec.dim = dim;
    spec.lanes = lanes;
    spec.coder = coder_id::order0;
    return spec;
}

enum class kind { random, bell, few, almost_constant, constant };

std::vector<uint16_t> make_codes(uint64_t seed, const block_spec& spec, kind what)
{
    test_rng rng(seed);
    const uint32_t most = (1u << bits_of(spec.dtype)) - 1;
    std::vector<uint16_t> codes(size_t(count_of(spec)));
    for (uint16_t& code : codes) {
        uint32_t now = rng.bits(16);
        if (what == kind::bell)
            now = uint32_t(int(most / 2) + rng.noise() / int(1 + 0x70000 / most));
        if (what == kind::few) now = rng.below(10) != 0 ? 3 : rng.below(most);
        if (what == kind::almost_constant) now = rng.below(200) != 0 ? 5 : rng.below(4);
        if (what == kind::constant) now = 9;
        code = uint16_t(now & most);
    }
    return codes;
}

// Tables for a spec's channels, with or without a slot for every symbol.
struct shared_tables {
    std::unique_ptr<order0_table[]> memory;
    order0_tables view;

    shared_tables(uint64_t seed, const block_spec& spec, uint32_t group, bool complete = true)
    {
        const uint32_t planes = code_bytes(spec.dtype);
        view.group = group;
        view.count = uint32_t(
            order0_tables_needed(uint64_t(spec.heads) * spec.dim, group, planes));
        memory.reset(new order0_table[view.count]);
        view.table = memory.get();
        test_rng rng(seed);
        for (uint32_t t = 0; t < view.count; ++t) {
            uint32_t counts[256] = {};
            for (uint32_t s = 0; s < (bits_of(spec.dtype) == 4 ? 16 : 256); ++s)
                counts[s] = (complete ? 1 : 0) + rng.below(s % 7 == 3 ? 900 : 9);
            counts[3] += 50;
            uint16_t freq[256];
            REQUIRE(order0_normalize(counts, freq, 12 + t % 2) == status::ok);
            REQUIRE(make_order0_table(freq, memory[t]) == status::ok);
        }
    }
};

// Codes in memory with gaps between rows: what lies between must stay.
template <class Code>
struct gapped {
    const block_spec& spec;
    ptrdiff_t token_stride, head_stride;
    std::vector<Code> memory;

    gapped(const block_spec& s, uint32_t gap)
        : spec(s), token_stride(ptrdiff_t(s.dim + gap)),
          head_stride(token_stride * ptrdiff_t(s.tokens) + ptrdiff_t(gap)),
          memory(size_t(head_stride) * s.heads + 64, Code(0xe7e7))
    {
    }
    box_view<Code> view() { return {memory.data() + 8, head_stride, token_stride}; }
    template <class Function>
    void for_each(Function f)
    {
        const bool half = bits_of(spec.dtype) == 4;
        size_t i = 0;
        for (uint32_t h = 0; h < spec.heads; ++h)
            for (uint32_t t = 0; t < spec.tokens; ++t)
                for (uint32_t d = 0; d < spec.dim; ++d, ++i) {
                    const size_t at = size_t(ptrdiff_t(h) * head_stride +
                                             ptrdiff_t(t) * token_stride + ptrdiff_t(d));
                    f(memory[8 + (half ? at / 2 : at)], half ? at % 2 * 4 : 0u, i);
                }
    }
    void put(const std::vector<uint16_t>& codes)
    {
        const bool half = bits_of(spec.dtype) == 4;
        for_each([&](Code& to, size_t shift, size_t i) {
            to = half ? Code((to & ~(15u << shift)) | unsigned(codes[i]) << shift) : Code(codes[i]);
        });
    }
    std::vector<uint16_t> take()
    {
        const uint32_t bits = bits_of(spec.dtype);
        std::vector<uint16_t> codes;
        for_each([&](Code& from, size_t shift, size_t) {
            codes.push_back(uint16_t(uint32_t(from) >> shift & ((1u << bits) - 1)));
        });
        return codes;
    }
    bool only_gaps_are_left()
    {
        const uint32_t bits = bits_of(spec.dtype);
        put(std::vector<uint16_t>(size_t(count_of(spec)), 0xe7e7 & ((1u << bits) - 1)));
        if (bits == 4) return true;  // a gap may share its byte
        for (const Code code : memory)
            if (code != Code(0xe7e7)) return false;
        return true;
    }
};

template <class Code>
using encoding = encode_task<Code, array_predictor>;
template <class Code>
using decoding = decode_task<Code, array_predictor>;

struct block_of {
    encode_result result;
    std::vector<uint8_t> bytes;
};

template <class Code>
std::vector<block_of> encode_as(const block_spec& spec,
                                const std::vector<std::vector<uint16_t>>& pages, uint32_t gap)
{
    std::vector<gapped<Code>> boxes(pages.size(), gapped<Code>(spec, gap));
    std::vector<block_of> blocks(pages.size());
    std::vector<encoding<Code>> tasks;
    for (size_t i = 0; i < pages.size(); ++i) {
        boxes[i].put(pages[i]);
        blocks[i].bytes.assign(max_encoded_bytes(spec), 0xcc);
        const box_view<Code> view = boxes[i].view();
        tasks.push_back({spec, {view.data, view.head_stride, view.token_stride}, no_predictor,
                         blocks[i].bytes.data(), blocks[i].bytes.size(), {}});
    }
    encode_blocks(tasks.data(), tasks.size());
    for (size_t i = 0; i < pages.size(); ++i) {
        // The same by the definition, and over other memory.
        std::vector<uint8_t> again(max_encoded_bytes(spec), 0x33);
        const encode_result alone = encode<scalar_backend>(spec, tasks[i].codes, no_predictor,
                                                           again.data(), again.size());
        blocks[i].result = tasks[i].result;
        blocks[i].bytes.resize(blocks[i].result.bytes);
        again.resize(alone.bytes);
        CHECK(alone.code == status::ok);
        CHECK(blocks[i].result.code == status::ok);
        CHECK(again == blocks[i].bytes);
    }
    return blocks;
}

std::vector<block_of> encode_pages(const block_spec& spec,
                                   const std::vector<std::vector<uint16_t>>& pages,
                                   uint32_t gap = 0)
{
    return code_bytes(spec.dtype) == 1 ? encode_as<uint8_t>(spec, pages, gap)
                                       : encode_as<uint16_t>(spec, pages, gap);
}

struct page_back {
    status code;
    std::vector<uint16_t> codes;
};

template <class Code>
std::vector<page_back> decode_as(const block_spec& spec, const std::vector<block_of>& blocks,
                                 uint32_t gap)
{
    std::vector<gapped<Code>> boxes(blocks.size(), gapped<Code>(spec, gap));
    std::vector<decoding<Code>> tasks;
    for (size_t i = 0; i < blocks.size(); ++i)
        tasks.push_back({spec, blocks[i].bytes.data(), blocks[i].bytes.size(), no_predictor,
                         boxes[i].view(), {}});
    decode_blocks(tasks.data(), tasks.size());
    std::vector<page_back> pages;
    for (size_t i = 0; i < blocks.size(); ++i) {
        gapped<Code> other(spec, gap + 1);
        const decode_result alone = decode<scalar_backend>(
            spec, tasks[i].block, tasks[i].bytes, no_predictor, other.view());
        CHECK(alone.code == tasks[i].result.code);
        CHECK(alone.bytes == tasks[i].result.bytes);
        if (alone) CHECK(alone.bytes == blocks[i].bytes.size());
        pages.push_back({tasks[i].result.code, boxes[i].take()});
        if (alone) CHECK(other.take() == pages.back().codes);
        CHECK(boxes[i].only_gaps_are_left());
    }
    return pages;
}

std::vector<page_back> decode_pages(const block_spec& spec, const std::vector<block_of>& blocks,
                                    uint32_t gap = 0)
{
    return code_bytes(spec.dtype) == 1 ? decode_as<uint8_t>(spec, blocks, gap)
                                       : decode_as<uint16_t>(spec, blocks, gap);
}

// How many blocks became coded; every page must come back.
uint32_t coded_of(const block_spec& spec, const std::vector<std::vector<uint16_t>>& pages,
                  uint32_t gap = 0)
{
    const std::vector<block_of> blocks = encode_pages(spec, pages, gap);
    const std::vector<page_back> back = decode_pages(spec, blocks, gap);
    uint32_t coded = 0;
    for (size_t i = 0; i < pages.size(); ++i) {
        CHECK(blocks[i].bytes.size() <= max_encoded_bytes(spec));
        CHECK(back[i].code == status::ok);
        CHECK(back[i].codes == pages[i]);
        coded += blocks[i].result.mode == block_mode::coded;
    }
    return coded;
}

// A coded block with all that it may hold.
block_of sample(const block_spec& spec, kind what = kind::few)
{
    return encode_pages(spec, {make_codes(7, spec, what)})[0];
}

status decoded(const block_spec& spec, const std::vector<uint8_t>& bytes)
{
    return decode_pages(spec, {{{}, bytes}})[0].code;
}

}  // namespace

TEST_CASE("order 0: every type, lane count and width comes back, the same bytes in all lane groups")
{
    uint32_t coded = 0, seed = 0;
    for (const scalar_type type : order0_types)
        for (const uint32_t lanes : lane_counts)
            for (const uint32_t dim : {1u, 7u, 32u, 96u})
                for (const uint32_t tokens : {3u, 71u}) {
                    const block_spec spec =
                        order0_spec(type, 1 + seed % 3, thin == 1 ? tokens : 9, dim, lanes);
                    std::vector<std::vector<uint16_t>> pages;
                    for (uint32_t i = 0; i < pages_at_once; ++i)
                        pages.push_back(make_codes(++seed, spec, kind(i % 5)));
                    coded += coded_of(spec, pages, seed % 4);
                    for (const uint32_t group : {0u, 32u, 5u}) {
                        ++seed;
                        const shared_tables tables(seed, spec, group, seed % 2 != 0);
                        block_spec sharing = spec;
                        sharing.tables = &tables.view;
                        coded += coded_of(sharing, pages, seed % 4);
                    }
                    if (thin != 1) seed += 3;
                }
    CHECK(coded > 300);
}

TEST_CASE("order 0: tables made of what add_order0_counts counts fit their blocks")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16, scalar_type::int4})
        for (const uint32_t group : {0u, 32u, 7u}) {
            block_spec spec = order0_spec(type, 2, 40, 64, 8);
            const std::vector<uint16_t> codes = make_codes(group, spec, kind::few);
            const uint32_t planes = code_bytes(type);
            shared_tables tables(1, spec, group);  // for the memory
            std::vector<uint32_t> counts(256 * size_t(tables.view.count));
            auto* const rows = reinterpret_cast<uint32_t (*)[256]>(counts.data());
            if (planes == 1) {
                gapped<uint8_t> box(spec, 3);
                box.put(codes);
                const box_view<uint8_t> view = box.view();
                add_order0_counts(
                    spec, box_view<const uint8_t>{view.data, view.head_stride, view.token_stride},
                    group, rows);
            } else {
                add_order0_counts(spec, dense(spec, codes.data()), group, rows);
            }
            uint64_t sum = 0;
            for (const uint32_t n : counts) sum += n;
            CHECK(sum == planes * codes.size());
            for (uint32_t t = 0; t < tables.view.count; ++t) {
                uint16_t freq[256];
                REQUIRE(order0_normalize(rows[t], freq) == status::ok);
                REQUIRE(make_order0_table(freq, tables.memory[t]) == status::ok);
            }
            const block_of own = encode_pages(spec, {codes})[0];
            spec.tables = &tables.view;
            const block_of shared = encode_pages(spec, {codes})[0];
            CHECK(decode_pages(spec, {shared})[0].codes == codes);
            const size_t words = 16 + 4 * 8;
            CHECK(shared.bytes[words] + shared.bytes[words + 1] == 0);
            CHECK(shared.bytes.size() < own.bytes.size());
        }
}

TEST_CASE("N02 order 0: every code has a way through, whatever the tables")
{
    for (const scalar_type type : order0_types) {
        const uint32_t all = 1u << bits_of(type);
        const block_spec spec = order0_spec(type, 1, thin == 1 ? 2 : 1, all, 32);
        std::vector<uint16_t> once(size_t(count_of(spec)));
        for (size_t i = 0; i < once.size(); ++i) once[i] = uint16_t(i % all);
        for (const bool complete : {false, true}) {
            const shared_tables tables(5, spec, 0, complete);
            block_spec sharing = spec;
            sharing.tables = &tables.view;
            coded_of(sharing, {once});
        }
        coded_of(spec, {once});
    }
}

TEST_CASE("B01 order 0: no scalar, one, all equal, almost all equal")
{
    for (const scalar_type type : order0_types)
        for (const uint32_t lanes : lane_counts) {
            coded_of(order0_spec(type, 1, 0, 7, lanes), {{}});
            coded_of(order0_spec(type, 1, 1, 0, lanes), {{}, {}});
            coded_of(order0_spec(type, 1, 1, 1, lanes), {{3}, {0}});
            const block_spec spec = order0_spec(type, 1, 3, 50, lanes);
            std::vector<uint16_t> equal(150, 7);
            const block_of constant = encode_pages(spec, {equal})[0];
            CHECK(constant.result.mode == block_mode::constant);
            CHECK(constant.bytes.size() == 20);
            equal.back() = 8;
            coded_of(spec, {equal});
        }
    const block_spec none = order0_spec(scalar_type::e4m3fn, 1, 0, 0, 0);
    uint8_t bytes[32];
    encode_task<uint8_t, array_predictor> task{none, {nullptr, 0, 0}, no_predictor, bytes, 32, {}};
    encode_blocks(&task, 1);
    CHECK(task.result.bytes == 16);
    // Many alike, but for one.
    const block_spec spec = order0_spec(scalar_type::e4m3fn, 1, 1, thin == 1 ? 1000000 : 40000, 32);
    std::vector<uint16_t> alike(size_t(count_of(spec)), 5);
    alike[77] = 6;
    const block_of cheap = encode_pages(spec, {alike})[0];
    CHECK(cheap.result.mode == block_mode::coded);
    CHECK(cheap.bytes.size() < 16 + 128 + 140 + alike.size() / 8 / 2000);
    CHECK(decode_pages(spec, {cheap})[0].codes == alike);
}

TEST_CASE("B03 order 0: tables that are badly wrong, and sizes near the entropy's")
{
    const block_spec spec = order0_spec(scalar_type::e4m3fn, 2, 64, 64, 8);
    const std::vector<uint16_t> bell = make_codes(1, spec, kind::bell);
    const block_of own = encode_pages(spec, {bell})[0];
    CHECK(own.result.mode == block_mode::coded);
    const shared_tables wrong(2, spec, 0);
    block_spec sharing = spec;
    sharing.tables = &wrong.view;
    const block_of fallen = encode_pages(sharing, {bell})[0];  // saves nothing under those
    CHECK(fallen.bytes.size() == own.bytes.size());
    CHECK(decoded(spec, fallen.bytes) == status::ok);  // it holds its table
    CHECK(decoded(sharing, fallen.bytes) == status::ok);
    const block_of random = encode_pages(sharing, {make_codes(3, spec, kind::random)})[0];
    CHECK(random.result.mode == block_mode::raw);
}

TEST_CASE("B08 order 0: the bound holds, and too small an output is said to be")
{
    test_rng rng(1);
    for (uint32_t n = 1; n < 5000; n += 1 + n / (thin == 1 ? 9 : 2)) {
        const scalar_type type = order0_types[n % 6];
        block_spec spec = order0_spec(type, 1, 1, n, lane_counts[n % 4]);
        spec.has_fingerprint = n % 2 != 0;
        const std::vector<uint16_t> codes = make_codes(n, spec, kind(n % 4));
        const shared_tables tables(n, spec, 0, n % 5 != 0);
        if (n % 3 != 0) spec.tables = &tables.view;  // some too bad to be used
        const block_of whole = encode_pages(spec, {codes})[0];
        const size_t bound = max_encoded_bytes(spec);
        CHECK(whole.bytes.size() <= bound);
        const std::vector<uint8_t> narrowed(codes.begin(), codes.end());
        for (const size_t capacity : {bound, whole.bytes.size(), whole.bytes.size() - 1,
                                      whole.bytes.size() / 2, size_t(17), size_t(1), size_t(0)}) {
            std::vector<uint8_t> memory(capacity + 128, 0x5a);
            encode_result made;
            if (code_bytes(type) == 1) {
                gapped<uint8_t> box(spec, 0);
                box.put(codes);
                encode_task<uint8_t, array_predictor> task{
                    spec, {box.view().data, 0, 0}, no_predictor, memory.data() + 64, capacity, {}};
                encode_blocks(&task, 1);
                made = task.result;
            } else {
                encode_task<uint16_t, array_predictor> task{
                    spec, {codes.data(), 0, 0}, no_predictor, memory.data() + 64, capacity, {}};
                encode_blocks(&task, 1);
                made = task.result;
            }
            CHECK(made.code == (capacity >= whole.bytes.size() ? status::ok
                                                               : status::output_too_small));
            CHECK(made.bytes >= whole.bytes.size());
            CHECK(made.bytes <= bound);
            for (size_t i = 0; i < 64; ++i)
                CHECK((memory[i] == 0x5a && memory[memory.size() - 1 - i] == 0x5a));
        }
    }
}

TEST_CASE("M01 order 0: cut at any length, before a guard page")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16, scalar_type::int4})
        for (const uint32_t lanes : {8u, 32u}) {
            const block_spec spec = order0_spec(type, 1, 4, 199, lanes);
            const block_of whole = sample(spec);
            REQUIRE(whole.result.mode == block_mode::coded);
            guarded_memory memory(whole.bytes.size());
            gapped<uint8_t> narrow_box(spec, 0);
            gapped<uint16_t> wide_box(spec, 0);
            const size_t by = thin == 1 ? 1 : 13;
            for (size_t size = whole.bytes.size();; size -= size < by ? size : by) {
                uint8_t* const block = memory.put_last(whole.bytes.data(), size);
                decode_result result;
                if (code_bytes(type) == 1) {
                    decoding<uint8_t> task{spec, block, size, no_predictor, narrow_box.view(), {}};
                    decode_blocks(&task, 1);
                    result = task.result;
                } else {
                    decoding<uint16_t> task{spec, block, size, no_predictor, wide_box.view(), {}};
                    decode_blocks(&task, 1);
                    result = task.result;
                }
                CHECK(result.code == (size == whole.bytes.size() ? status::ok : status::truncated));
                if (size == 0) break;
            }
        }
}

TEST_CASE("M03 M04 order 0: sizes that lie, tables that are none, words that are not there")
{
    const block_spec spec = order0_spec(scalar_type::e4m3fn, 1, 40, 64, 8);
    const block_of whole = sample(spec);
    REQUIRE(whole.result.mode == block_mode::coded);
    const size_t words = 16 + 4 * 8;
    const auto with = [&](size_t at, uint32_t value, uint32_t size) {
        std::vector<uint8_t> bytes = whole.bytes;
        for (uint32_t i = 0; i < size; ++i) bytes[at + i] = uint8_t(value >> 8 * i);
        return decoded(spec, bytes);
    };
    for (const uint32_t count : {0u, 1u, 2561u, 0x7fffffffu, 0x80000000u, 0xffffffffu})
        CHECK(with(4, count, 4) != status::ok);
    for (const uint32_t payload : {0u, 1u, 2u, 0x7fffffffu, 0xffffffffu})
        CHECK(with(8, payload, 4) != status::ok);
    CHECK(with(words, 0, 2) == status::wrong_model);  // the spec's tables, but it has none
    for (const uint32_t tables : {1u, 2u, 3u, 200u, 0xffffu})
        CHECK(with(words, tables, 2) == status::corrupt_stream);
    for (uint32_t at = 0; at < 12; ++at) CHECK(with(words + 2 + at, 0, 4) != status::ok);
    CHECK(with(16, 0, 4) == status::corrupt_stream);  // a state
    CHECK(with(16, 0x80000000u, 4) == status::corrupt_stream);

    const shared_tables tables(9, spec, 0);
    block_spec sharing = spec;
    sharing.tables = &tables.view;
    const block_of shared = sample(sharing);
    REQUIRE(shared.bytes[words] + shared.bytes[words + 1] == 0);
    CHECK(decoded(sharing, shared.bytes) == status::ok);
    CHECK(decoded(spec, shared.bytes) == status::wrong_model);
    const shared_tables others(10, spec, 0);
    block_spec misled = spec;
    misled.tables = &others.view;
    CHECK(decoded(misled, shared.bytes) >= status::corrupt_stream);

    // What no spec can be.
    block_spec bad = sharing;
    order0_tables few = tables.view;
    bad.tables = &few;
    few.count = 0;
    CHECK(decoded(bad, shared.bytes) == status::bad_argument);
    few = {nullptr, 1, 0};
    CHECK(decoded(bad, shared.bytes) == status::bad_argument);
    few = {tables.view.table, 1, 32};
    CHECK(decoded(bad, shared.bytes) == status::bad_argument);
    bad = spec;
    bad.parameter_hash = true;
    CHECK(decoded(bad, whole.bytes) == status::bad_argument);
    bad = spec;
    bad.coder = coder_id::rans;
    uint8_t codes[2560];
    CHECK(decode<scalar_backend>(bad, whole.bytes.data(), whole.bytes.size(), no_predictor,
                                 dense(bad, codes)).code == status::wrong_model);
    CHECK(decoded(spec, {}) == status::truncated);
}

TEST_CASE("M03 order 0: tables with more symbols than there are codes change nothing beside a box")
{
    for (const uint32_t dim : {31u, 64u, 77u}) {
        block_spec spec = order0_spec(scalar_type::int4, 2, 9, dim, 8);
        const shared_tables tables(1, spec, 0);
        const shared_tables wide(1, spec, 0);
        uint32_t counts[256] = {1, 1, 1, 1};
        uint16_t freq[256];
        counts[16 + 3] = 4000;  // most steps end there
        REQUIRE(order0_normalize(counts, freq) == status::ok);
        REQUIRE(make_order0_table(freq, wide.memory[0]) == status::ok);
        spec.tables = &tables.view;
        const block_of made = sample(spec);
        REQUIRE(made.result.mode == block_mode::coded);
        spec.tables = &wide.view;
        const auto beside = [&](bool by_definition) {
            gapped<uint8_t> box(spec, 5);
            decoding<uint8_t> task{spec,         made.bytes.data(), made.bytes.size(),
                                   no_predictor, box.view(),        {}};
            if (by_definition)
                task.result = decode<scalar_backend>(spec, task.block, task.bytes, no_predictor,
                                                     box.view());
            else decode_blocks(&task, 1);
            CHECK(task.result.code >= status::corrupt_stream);
            box.for_each([](uint8_t& code, size_t shift, size_t) {
                code = uint8_t((code & ~(15u << shift)) | (0xe7u & 15u << shift));
            });
            for (const uint8_t byte : box.memory) CHECK(byte == 0xe7);
        };
        beside(true);
        beside(false);
    }
}

TEST_CASE("M05 order 0: every single flipped bit is found, and the neighbours are not touched")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16, scalar_type::int4}) {
        block_spec spec = order0_spec(type, 1, 6, 70, type == scalar_type::int4 ? 8 : 32);
        spec.has_fingerprint = true;
        spec.fingerprint = 0x0123456789abcdef;
        std::vector<std::vector<uint16_t>> pages;
        for (uint64_t seed = 0; seed < 4; ++seed)
            pages.push_back(make_codes(seed, spec, seed == 3 ? kind::random : kind::few));
        std::vector<block_of> blocks = encode_pages(spec, pages);
        block_spec unchecked = spec;
        unchecked.content_check = false;
        uint64_t missed = 0, others = 0;
        for (size_t bit = 0; bit < 8 * blocks[1].bytes.size(); bit += thin == 1 ? 1 : 17) {
            blocks[1].bytes[bit / 8] ^= uint8_t(1u << bit % 8);
            const std::vector<page_back> back = decode_pages(spec, blocks);
            missed += back[1].code == status::ok;
            for (const size_t i : {size_t(0), size_t(2), size_t(3)})
                others += back[i].code != status::ok || back[i].codes != pages[i];
            // Without the check: any outcome, but one.
            std::vector<uint8_t> loose = blocks[1].bytes;
            if (loose.size() > 16) {
                loose[2] &= uint8_t(~(has_content_check << 4));
                std::memset(loose.data() + 12, 0, 4);
                decoded(unchecked, loose);
            }
            blocks[1].bytes[bit / 8] ^= uint8_t(1u << bit % 8);
        }
        CHECK(missed == 0);
        CHECK(others == 0);
    }
    // Random damage to many bytes, of streams and of tables.
    test_rng rng(3);
    for (uint32_t round = 0; round < (thin == 1 ? 600u : 60u); ++round) {
        const block_spec spec =
            order0_spec(order0_types[round % 6], 1, 9, 90, lane_counts[round % 4]);
        const kind what = round % 2 ? kind::few : kind::almost_constant;
        block_of block = sample(spec, what);
        for (uint32_t i = 0; i < 1 + round % 5; ++i)
            block.bytes[16 + rng.below(uint32_t(block.bytes.size() - 16))] ^=
                uint8_t(1 + rng.below(255));
        const std::vector<page_back> back = decode_pages(spec, {block});
        if (back[0].code == status::ok)  // two changes may cancel out
            CHECK(back[0].codes == make_codes(7, spec, what));
    }
}
