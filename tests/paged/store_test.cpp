// The paged store: layouts, page sizes, growing pages, block tables, damage, and a naive store
// beside it.

#include <doctest/doctest.h>

#include <sys/mman.h>

#include <normans/paged/coded_pages.hpp>

#include "paged/small_cache.hpp"

using namespace paged;

namespace {

/// K and V of one cache in memory, as some engine keeps them.
struct layout_case {
    const char* name;
    page_layout k, v;
    bool shared;  // one pool for both
};

std::vector<layout_case> layouts(uint32_t tokens, uint32_t heads, uint32_t k_dim, uint32_t v_dim)
{
    const uint32_t both = k_dim + v_dim;
    std::vector<layout_case> all;
    for (const page_order order : {page_order::nhd, page_order::hnd}) {
        const bool nhd = order == page_order::nhd;
        const auto of = [&](uint32_t row) { return layout_of_pages(order, tokens, heads, row); };
        all.push_back({nhd ? "NHD, split" : "HND, split", of(k_dim), of(v_dim), false});
        layout_case padded{nhd ? "NHD, padded" : "HND, padded", of(k_dim + 3), of(v_dim + 5),
                           false};
        padded.k.page_stride += 7;
        padded.v.page_stride += 1;
        all.push_back(padded);
        layout_case beside{nhd ? "NHD, fused" : "HND, fused", of(k_dim), of(v_dim), true};
        beside.v.offset = beside.k.page_stride;
        beside.k.page_stride += beside.v.page_stride;
        beside.v.page_stride = beside.k.page_stride;
        all.push_back(beside);
        layout_case in_row{nhd ? "NHD, one row" : "HND, one row", of(both), of(both), true};
        in_row.v.offset = k_dim;
        all.push_back(in_row);
    }
    return all;
}

/// Pools of a layout for some pages.
template <class Code>
struct pools {
    std::vector<Code> k, v;
    bool shared;

    pools(const layout_case& l, uint32_t pages, Code fill) : shared(l.shared)
    {
        k.assign(size_t(l.k.page_stride) * pages, fill);
        if (!shared) v.assign(size_t(l.v.page_stride) * pages, fill);
    }
    Code* data(bool is_v) { return is_v && !shared ? v.data() : k.data(); }
    size_t size() const { return k.size() + v.size(); }
    size_t count(Code value) const
    {
        size_t n = 0;
        for (const Code c : k) n += c == value;
        for (const Code c : v) n += c == value;
        return n;
    }
};

template <class Code>
Code& at(const box_view<Code>& box, uint32_t head, uint32_t token, uint32_t channel)
{
    return box.data[ptrdiff_t(head) * box.head_stride + ptrdiff_t(token) * box.token_stride +
                    ptrdiff_t(channel)];
}

template <class Code>
page_view<const Code> constant(const box_view<Code>& box)
{
    page_view<const Code> view;
    view.codes = {box.data, box.head_stride, box.token_stride};
    return view;
}

// Every layout into every other, logically equal; blocks do not know where their codes lay.
template <class Code>
void check_layouts(scalar_type type, uint32_t page_tokens, uint32_t group, uint32_t heads,
                   uint32_t k_dim, uint32_t v_dim)
{
    const page_part parts[] = {part_of(type, heads, k_dim), part_of(type, heads, v_dim)};
    paged_geometry g{parts, 2, 3, page_tokens, group};
    g.arena_bytes = arena_room(12 * uint64_t(page_tokens) * heads * (k_dim + v_dim)) + 65536;
    small_store s(g);
    REQUIRE(s.created == status::ok);
    const auto predictors = s.predicted.callable();
    test_rng rng(page_tokens);
    constexpr int32_t page = 1;
    const tokens_of_part drawn[] = {s.predicted.draw(rng, 0, page, 0, page_tokens, 0),
                                    s.predicted.draw(rng, 1, page, 0, page_tokens, 0)};
    const auto all = layouts(page_tokens, heads, k_dim, v_dim);
    const auto fill = [&](const layout_case& l, pools<Code>& into) {
        for (uint32_t part = 0; part < 2; ++part) {
            const auto box = page_box(into.data(part == 1), part == 1 ? l.v : l.k, page);
            const uint16_t* from = drawn[part].codes.data();
            for (uint32_t t = 0; t < page_tokens; ++t)
                for (uint32_t h = 0; h < heads; ++h)
                    for (uint32_t c = 0; c < parts[part].spec.dim; ++c)
                        at(box, h, t, c) = Code(*from++);
        }
    };
    uint64_t bytes = 0, hash = 0;
    for (const layout_case& from : all) {
        pools<Code> source(from, 3, Code(0xffff));
        fill(from, source);
        normans_test::running_hash blocks;
        for (uint32_t part = 0; part < 2; ++part) {
            const auto box = page_box(source.data(part == 1), part == 1 ? from.v : from.k, page);
            const append_result made = s.store.write(part, page, constant(box), page_tokens,
                                                     predictors, s.workspace.data());
            REQUIRE(made.code == status::ok);
            for (uint32_t i = 0; i < s.store.groups(); ++i) {
                const group_place place = s.store.find(part, page, i);
                REQUIRE(place.at % 16 == 0);
                for (uint64_t b = 0; b < place.bytes; ++b)
                    blocks.add(s.store.memory()[place.at + b]);
            }
        }
        const uint64_t live = s.store.directory().use().live;
        if (bytes == 0) {
            bytes = live;
            hash = blocks.value();
        }
        const bool same = live == bytes && blocks.value() == hash;
        REQUIRE(same);
        for (const layout_case& to : all) {
            pools<Code> target(to, 3, Code(0xabab)), expected(to, 3, Code(0xabab));
            fill(to, expected);
            for (uint32_t part = 0; part < 2; ++part) {
                page_view<Code> view;
                view.codes = page_box(target.data(part == 1), part == 1 ? to.v : to.k, page);
                const page_result read =
                    s.store.read_page(part, page, 0, page_tokens, view, predictors,
                                      s.workspace.data());
                const bool whole = bool(read) && read.tokens == page_tokens;
                REQUIRE(whole);
            }
            CAPTURE(from.name);
            CAPTURE(to.name);
            const bool equal = target.k == expected.k && target.v == expected.v;
            REQUIRE(equal);
        }
    }
}

std::vector<uint16_t> slice(const std::vector<uint16_t>& from, size_t begin, size_t end)
{
    return {from.begin() + ptrdiff_t(begin), from.begin() + ptrdiff_t(end)};
}

}  // namespace

TEST_CASE("E01 every layout and page size into every other")
{
    if (normans_test::thin == 1) check_layouts<uint8_t>(fp8, 16, 0, 2, 128, 128);
    else check_layouts<uint8_t>(fp8, 4, 0, 2, 16, 16);  // two layouts have one shape
    for (const uint32_t tokens : {1u, 16u, 32u, 64u, 128u, 256u}) {
        CAPTURE(tokens);
        if (normans_test::thin != 1 && tokens > 32) continue;
        check_layouts<uint8_t>(fp8, tokens, 0, 2, 8, 4);
        check_layouts<uint16_t>(bf16, tokens, 5, 3, 4, 6);
    }
}

TEST_CASE("K alone, layers of different width, rows with bytes of their own")
{
    const page_part parts[] = {part_of(fp8, 1, 40, 16), part_of(bf16, 2, 16),
                               part_of(scalar_type::raw8, 4, 8, 3), part_of(fp8, 3, 8, 4, 512)};
    paged_geometry g{parts, 4, 2, 16, 8, 1 << 16, 1 << 14};
    small_store s(g);
    REQUIRE(s.created == status::ok);
    test_rng rng(3);
    std::vector<tokens_of_part> drawn;
    for (uint32_t i = 0; i < 4; ++i) {
        drawn.push_back(s.predicted.draw(rng, i, 1, 0, 13, parts[i].row_bytes));
        REQUIRE(s.append(i, 1, drawn[i], 13).code == status::ok);
    }
    for (uint32_t i = 0; i < 4; ++i) {
        const auto back = s.read(i, {1}, 0, 16);
        CHECK(back.results[0].code == status::ok);
        CHECK(back.results[0].tokens == 13);
        const size_t width = drawn[i].codes.size() / 13, rows = drawn[i].rows.size() / 13;
        CHECK(slice(back.tokens.codes, 0, 13 * width) == drawn[i].codes);
        std::vector<uint8_t> expected = drawn[i].rows;
        expected.resize(16 * rows, 0xee);
        CHECK(back.tokens.rows == expected);
    }
    const group_place odd = s.store.find(2, 1, 0);  // 4 heads * 8 tokens * 3 bytes, check, padding
    REQUIRE(odd.at == odd.rows_at + 112);
    for (uint64_t i = 100; i < 112; ++i) CHECK(s.store.memory()[odd.rows_at + i] == 0);
    CHECK(s.store.find(2, 1, 1).at == s.store.find(2, 1, 1).rows_at + 64);
    CHECK(s.store.free_page(1) == status::ok);
    CHECK(s.store.directory().use().live == 0);
    CHECK(s.store.tokens(3, 1).tokens == 0);
}

TEST_CASE("E02 the tail of a page is neither read nor written")
{
    for (const scalar_type type : {fp8, bf16}) {
        const page_part parts[] = {part_of(type, 2, 16)};
        paged_geometry g{parts, 1, 1, 16, 0, 1 << 14};
        std::vector<std::vector<uint8_t>> blocks;
        for (const uint16_t tail : {uint16_t(0xffff), uint16_t(0x7fc0), uint16_t(0)}) {
            small_store s(g);
            test_rng rng(4);
            tokens_of_part drawn = s.predicted.draw(rng, 0, 0, 0, 16, 0);
            for (size_t k = 5 * 32; k < drawn.codes.size(); ++k) drawn.codes[k] = tail;
            REQUIRE(s.append(0, 0, drawn, 5).code == status::ok);
            const group_place place = s.store.find(0, 0, 0);
            REQUIRE(place.tokens == 5);
            blocks.emplace_back(s.store.memory() + place.at,
                                s.store.memory() + place.at + place.bytes);
            const auto back = s.read(0, {0}, 0, 16);
            CHECK(back.results[0].tokens == 5);
            CHECK(slice(back.tokens.codes, 0, 5 * 32) == slice(drawn.codes, 0, 5 * 32));
            const uint16_t untouched = type == fp8 ? 0xee : 0xeeee;
            CHECK(slice(back.tokens.codes, 5 * 32, 16 * 32) ==
                  std::vector<uint16_t>(11 * 32, untouched));
        }
        CHECK(blocks[0] == blocks[1]);
        CHECK(blocks[0] == blocks[2]);
    }
}

TEST_CASE("growing pages, page by page and group by group, end in the same tokens")
{
    for (const uint32_t group : {0u, 1u, 4u, 6u, 16u}) {
        CAPTURE(group);
        const page_part parts[] = {part_of(fp8, 2, 8, 4)};
        paged_geometry g{parts, 1, 2, 16, group, 1 << 14, 1 << 12};
        small_store s(g), whole(g);
        test_rng rng(5);
        const tokens_of_part all = s.predicted.draw(rng, 0, 1, 0, 16, 4);
        uint32_t coded = 0;
        for (uint32_t at = 0, step = 1; at < 16; at += step, step = step % 4 + 1) {
            const uint32_t now = step < 16 - at ? step : 16 - at;
            const tokens_of_part part{slice(all.codes, at * 16, (at + now) * 16),
                                      {all.rows.begin() + at * 8,
                                       all.rows.begin() + (at + now) * 8}};
            const append_result made = s.append(0, 1, part, now);
            REQUIRE(made.code == status::ok);
            CHECK(made.tokens == now);
            coded += made.coded;
            CHECK(s.store.tokens(0, 1).tokens == at + now);
        }
        CHECK((group == 1 ? coded == 16 : coded > 16));
        REQUIRE(whole.append(0, 1, all, 16).code == status::ok);
        const auto grown = s.read(0, {1}, 0, 16), at_once = whole.read(0, {1}, 0, 16);
        CHECK(grown.tokens.codes == all.codes);
        CHECK(grown.tokens.rows == all.rows);
        for (uint32_t i = 0; i < s.store.groups(); ++i) {  // and in the same bytes
            const group_place a = s.store.find(0, 1, i), b = whole.store.find(0, 1, i);
            REQUIRE(a.bytes == b.bytes);
            CHECK(std::memcmp(s.store.memory() + a.at, whole.store.memory() + b.at,
                              size_t(a.bytes)) == 0);
        }
        CHECK(s.append(0, 1, all, 1).code == status::bad_argument);  // full
    }
}

TEST_CASE("E07 block tables with padding, repeats and pages that there are not")
{
    const page_part parts[] = {part_of(fp8, 2, 8)};
    paged_geometry g{parts, 1, 3, 4, 0, 1 << 14};
    small_store s(g);
    test_rng rng(6);
    const tokens_of_part a = s.predicted.draw(rng, 0, 0, 0, 4, 0);
    const tokens_of_part b = s.predicted.draw(rng, 0, 2, 0, 4, 0);
    REQUIRE(s.append(0, 0, a, 4).code == status::ok);
    REQUIRE(s.append(0, 2, b, 3).code == status::ok);
    const auto before = s.directory;

    CHECK(s.append(0, 0, a, 1).code == status::bad_argument);  // a last page longer than a page
    CHECK(s.append(0, 1, a, 5).code == status::bad_argument);
    CHECK(s.append(0, 1, a, 0).code == status::ok);
    for (const int32_t page : {-1, 3, -2147483647, 2147483647})
        CHECK(s.append(0, page, a, 1).code == status::bad_argument);
    CHECK(s.append(0, 1, a, 5, true).code == status::bad_argument);
    CHECK(s.store.erase(0, 3) == status::bad_argument);
    CHECK(s.store.free_page(-1) == status::bad_argument);
    CHECK(s.store.find(1, 0, 0).code == status::bad_argument);
    CHECK(s.store.find(0, 0, 1).code == status::bad_argument);
    CHECK(s.directory == before);

    const std::vector<int32_t> table = {-1, 0, 3, 2, 0, -2, 1, 2147483647};
    const auto back = s.read(0, table, 0, ~uint64_t(0));
    const uint32_t tokens[] = {0, 4, 0, 3, 4, 0, 0, 0};
    for (uint32_t i = 0; i < 8; ++i) {
        CAPTURE(i);
        const page_result& r = back.results[i];
        CHECK(r.tokens == tokens[i]);
        CHECK(r.skipped == (i == 0));
        const bool absent = i == 2 || i == 5 || i == 7;
        CHECK(r.code == (absent ? status::bad_argument : status::ok));
        const tokens_of_part& from = i == 3 ? b : a;
        std::vector<uint16_t> expected = slice(from.codes, 0, tokens[i] * 16);
        expected.resize(64, 0xee);
        CHECK(slice(back.tokens.codes, i * 64, (i + 1) * 64) == expected);
    }
    for (const page_result& r : s.read(0, table, 8, 0).results) CHECK(r.tokens == 0);
    CHECK(s.read(0, {}, 0, 99).results.empty());
}

TEST_CASE("A02 any range of tokens, and a page alone")
{
    const page_part parts[] = {part_of(fp8, 2, 8, 2)};
    paged_geometry g{parts, 1, 3, 10, 4, 1 << 14};
    small_store s(g);
    test_rng rng(7);
    std::vector<uint16_t> codes;
    std::vector<uint8_t> rows;
    const std::vector<int32_t> table = {2, 0, 1};
    for (const int32_t page : table) {
        const uint32_t tokens = page == 1 ? 7 : 10;
        const tokens_of_part drawn = s.predicted.draw(rng, 0, page, 0, tokens, 2);
        REQUIRE(s.append(0, page, drawn, tokens).code == status::ok);
        codes.insert(codes.end(), drawn.codes.begin(), drawn.codes.end());
        rows.insert(rows.end(), drawn.rows.begin(), drawn.rows.end());
    }
    bool exact = true;
    for (uint32_t first = 0; first <= 30; ++first) {
        for (uint32_t end = first; end <= 31; ++end) {
            const auto back = s.read(0, table, first, end - first);
            uint32_t tokens = 0;
            for (const page_result& r : back.results) {
                exact &= r.code == status::ok;
                tokens += r.tokens;
            }
            const uint32_t held = end < 27 ? end : 27;
            exact &= tokens == (held > first ? held - first : 0);
            for (uint32_t t = 0; t < 30; ++t) {
                const bool inside = t >= first && t < held;
                for (uint32_t k = 0; k < 16; ++k)
                    exact &= back.tokens.codes[t * 16 + k] == (inside ? codes[t * 16 + k] : 0xee);
                for (uint32_t k = 0; k < 4; ++k)
                    exact &= back.tokens.rows[t * 4 + k] == (inside ? rows[t * 4 + k] : 0xee);
            }
        }
    }
    CHECK(exact);
}

namespace {

/// Address space that takes memory only where it is touched.
class sparse_bytes {
public:
    explicit sparse_bytes(size_t bytes) : bytes_(bytes)
    {
        void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        data_ = at == MAP_FAILED ? nullptr : static_cast<uint8_t*>(at);
    }
    sparse_bytes(const sparse_bytes&) = delete;
    sparse_bytes& operator=(const sparse_bytes&) = delete;
    ~sparse_bytes()
    {
        if (data_ != nullptr) munmap(data_, bytes_);
    }
    uint8_t* data() const { return data_; }

private:
    size_t bytes_;
    uint8_t* data_;
};

}  // namespace

TEST_CASE("A02 a page is read from the directory and its own bytes alone")
{
    constexpr uint32_t unit = 4096;
    const page_part parts[] = {part_of(scalar_type::raw8, 1, 64, 0, 3 * unit)};
    const paged_geometry g{parts, 1, 5, 128};
    small_store s(g);
    sparse_bytes memory(size_t(paged_store::memory_bytes(g)));
    REQUIRE(memory.data() != nullptr);
    REQUIRE(s.store.create(g, s.directory.data(), memory.data()) == status::ok);
    test_rng rng(8);
    std::vector<tokens_of_part> drawn;
    for (int32_t page = 0; page < 5; ++page) {
        drawn.push_back(s.predicted.draw(rng, 0, page, 0, 128, 0));
        REQUIRE(s.append(0, page, drawn.back(), 128).code == status::ok);
    }
    for (int32_t page = 0; page < 5; ++page) {
        mprotect(memory.data(), 15 * unit, PROT_NONE);
        mprotect(memory.data() + page * 3 * ptrdiff_t(unit), 3 * unit, PROT_READ);
        const auto back = s.read(0, {page}, 0, 128);
        CHECK(back.results[0].tokens == 128);
        CHECK(back.tokens.codes == drawn[size_t(page)].codes);
    }
}

TEST_CASE("E06 pools and stores beyond 2^31 and 2^32")
{
    const page_part parts[] = {part_of(fp8, 2, 64, 0, 1 << 24)};
    const paged_geometry g{parts, 1, 400, 16};
    predictions predicted({parts, 1, 1, 16}, 9);  // one page's means for all
    const auto one = predicted.callable();
    const auto predictors = [&](uint32_t part, int32_t, uint32_t token, uint32_t tokens) {
        return one(part, 0, token, tokens);
    };
    constexpr size_t pool_bytes = size_t(5) << 30;
    sparse_bytes pool(pool_bytes), memory(size_t(paged_store::memory_bytes(g)));
    REQUIRE(pool.data() != nullptr);
    REQUIRE(memory.data() != nullptr);
    std::vector<uint8_t> directory(paged_store::directory_bytes(g));
    aligned_bytes workspace(paged_store::workspace_bytes(g));
    paged_store store;
    REQUIRE(store.create(g, directory.data(), memory.data()) == status::ok);

    page_layout layout = layout_of_pages(page_order::nhd, 16, 2, 64);
    constexpr uint64_t page_size = 16 * 2 * 64, last = pool_bytes / page_size - 1;
    layout.offset = ptrdiff_t(page_size) / 2;  // so that one page crosses 2^31
    const uint64_t crossing = ((uint64_t(1) << 31) - page_size / 2) / page_size;
    page_view<uint8_t> tall;
    tall.codes = {pool.data(), 1, 1 << 30};
    CHECK(tall.from(4).codes.data == pool.data() + (uint64_t(1) << 32));
    test_rng rng(10);
    int32_t number = 0;
    for (const uint64_t page : {uint64_t(0), crossing, last - 1}) {
        const tokens_of_part drawn = predicted.draw(rng, 0, 0, 0, 16, 0);
        const box_view<uint8_t> box = page_box(pool.data(), layout, page);
        CHECK(box.data == pool.data() + page_size / 2 + page * page_size);
        for (size_t k = 0; k < page_size; ++k) box.data[k] = uint8_t(drawn.codes[k]);
        const int32_t physical = number++ == 0 ? 0 : number == 2 ? 128 : 399;
        REQUIRE(store.append(0, physical, constant(box), 16, predictors, workspace.data()).code ==
                status::ok);
        const uint64_t where = store.find(0, physical, 0).at;
        CHECK(where == uint64_t(physical) << 24);
        std::memset(box.data - 64, 0x5a, page_size + 128);
        page_view<uint8_t> to;
        to.codes = box;
        CHECK(store.read_page(0, physical, 0, 16, to, predictors, workspace.data()).tokens == 16);
        bool exact = true;
        for (size_t k = 0; k < page_size; ++k) exact &= box.data[k] == drawn.codes[k];
        for (size_t k = 1; k <= 64; ++k)
            exact &= box.data[-ptrdiff_t(k)] == 0x5a && box.data[page_size + k - 1] == 0x5a;
        CHECK(exact);
    }
}

TEST_CASE("E04 a store written as one type is not read as another")
{
    const page_part as_fn[] = {part_of(fp8, 2, 8)};
    paged_geometry g{as_fn, 1, 1, 8, 0, 1 << 12};
    small_store s(g);
    test_rng rng(11);
    const tokens_of_part drawn = s.predicted.draw(rng, 0, 0, 0, 8, 0);
    REQUIRE(s.append(0, 0, drawn, 8).code == status::ok);
    for (const scalar_type other : {scalar_type::e5m2, scalar_type::e4m3fnuz, scalar_type::raw8}) {
        const page_part as_other[] = {part_of(other, 2, 8)};
        g.parts = s.geometry.parts = as_other;
        REQUIRE(s.store.open(g, s.directory.data(), s.memory.data()) == status::ok);
        const auto back = s.read(0, {0}, 0, 8);
        CHECK(back.results[0].code == status::wrong_dtype);
        CHECK(back.results[0].tokens == 0);
        CHECK(back.tokens.codes == std::vector<uint16_t>(128, 0xee));
    }
    const page_part as_bf16[] = {part_of(bf16, 2, 8)};
    g.parts = s.geometry.parts = as_bf16;
    REQUIRE(s.store.open(g, s.directory.data(), s.memory.data()) == status::ok);
    std::vector<uint8_t> narrow;
    const auto view = s.view<uint8_t>(0, drawn, narrow);
    CHECK(s.store
              .append(0, 0, view, 0, s.predicted.callable(), s.workspace.data())
              .code == status::bad_argument);  // codes of another width than the type
}

TEST_CASE("S01 S03 what coding does not make smaller is stored raw, and the results say so")
{
    const page_part parts[] = {part_of(fp8, 2, 64, 0, 1008), part_of(fp8, 2, 64)};
    paged_geometry g{parts, 2, 4, 16, 0, 1 << 14};
    small_store s(g);
    test_rng rng(12);
    for (uint32_t part = 0; part < 2; ++part) {
        const append_result good =
            s.append(part, 0, s.predicted.draw(rng, part, 0, 0, 16, 0), 16);
        CHECK(good.raw == 0);
        CHECK(good.overflows == 0);
        CHECK(good.bytes < 2048 / 2);
        const append_result bad =
            s.append(part, 1, s.predicted.draw(rng, part, 1, 0, 16, 0, 1), 16);
        CHECK(bad.raw == 1);
        CHECK(bad.overflows == (part == 0 ? 1 : 0));
        CHECK(bad.bytes == 2048 + 16);
        CHECK(s.store.find(part, 1, 0).overflow == (part == 0));
    }
    CHECK(s.store.find(0, 0, 0).at == 0);
    CHECK(s.store.find(0, 0, 0).at + 1008 * 4 <= s.store.find(0, 1, 0).at);
}

TEST_CASE("a full arena refuses, keeps what it has, and goes on after pages are freed")
{
    const page_part parts[] = {part_of(scalar_type::raw8, 1, 16)};
    for (const uint64_t waste : {never_move, uint64_t(1) << 12}) {
        paged_geometry g{parts, 1, 8, 8, 2, 8 * 48, waste};  // eight groups of 2 * 16 + 16 bytes
        small_store s(g);
        test_rng rng(13);
        const tokens_of_part drawn = s.predicted.draw(rng, 0, 0, 0, 8, 0);
        CHECK(s.append(0, 0, drawn, 8).tokens == 8);
        CHECK(s.append(0, 1, drawn, 6).tokens == 6);
        const append_result refused = s.append(0, 2, drawn, 8);
        CHECK(refused.code == status::output_too_small);
        CHECK(refused.tokens == 2);  // the group that still fitted
        CHECK(s.store.tokens(0, 2).tokens == 2);
        CHECK(s.store.erase(0, 0) == status::ok);
        CHECK(s.append(0, 3, drawn, 8).tokens == 8);
        const auto back = s.read(0, {1, 2, 3}, 0, 24);
        CHECK(slice(back.tokens.codes, 0, 96) == slice(drawn.codes, 0, 96));
        CHECK(slice(back.tokens.codes, 256, 384) == drawn.codes);
        CHECK(s.store.directory().check() == status::ok);
    }
}

TEST_CASE("blocks coded elsewhere are taken in as they are")
{
    const page_part parts[] = {part_of(fp8, 2, 8, 4)};
    paged_geometry g{parts, 1, 1, 8, 4, 1 << 12};
    small_store a(g), b(g);
    test_rng rng(14);
    const tokens_of_part drawn = a.predicted.draw(rng, 0, 0, 0, 7, 4);
    REQUIRE(a.append(0, 0, drawn, 7).code == status::ok);
    for (uint32_t i = 0; i < 2; ++i) {
        const group_place from = a.store.find(0, 0, i);
        const uint8_t* at = a.store.memory();
        CHECK(b.store.put(0, 0, i, from.tokens, at + from.at, from.bytes, at + from.rows_at) ==
              status::ok);
        CHECK(b.store.put(0, 0, i, 5, at + from.at, from.bytes, at + from.rows_at) ==
              status::bad_argument);
        CHECK(b.store.put(0, 0, i, 1, at + from.at, from.bytes, nullptr) == status::bad_argument);
    }
    const auto back = b.read(0, {0}, 0, 7);
    CHECK(slice(back.tokens.codes, 0, 7 * 16) == drawn.codes);
    CHECK(std::memcmp(back.tokens.rows.data(), drawn.rows.data(), drawn.rows.size()) == 0);
}

TEST_CASE("attention over coded pages: raw pages' bits, or a status")
{
    const page_part parts[] = {part_of(fp8, 2, 64), part_of(fp8, 2, 64)};
    paged_geometry g{parts, 2, 8, 10, 4, 1 << 16};
    small_store s(g);
    test_rng rng(16);
    const std::vector<int32_t> table = {5, 0, 7, 2, 4};
    constexpr uint32_t tokens = 47, page = 10 * 128;
    std::vector<uint8_t> raw[2] = {std::vector<uint8_t>(8 * page, 0xff),
                                   std::vector<uint8_t>(8 * page, 0xff)};
    for (uint32_t i = 0; i < 5; ++i) {
        for (uint32_t part = 0; part < 2; ++part) {
            const uint32_t held = i == 4 ? 7 : 10;
            const tokens_of_part drawn = s.predicted.draw(rng, part, table[i], 0, held, 0);
            REQUIRE(s.append(part, table[i], drawn, held).code == status::ok);
            for (size_t k = 0; k < drawn.codes.size(); ++k)
                raw[part][size_t(table[i]) * page + k] = uint8_t(drawn.codes[k]);
        }
    }
    const std::vector<float> query(2 * 64, 0.125f);
    const auto run = [&](auto&& pages, std::vector<float>& out) {
        std::vector<attention_head<64, 1>> heads(2);
        for (uint32_t h = 0; h < 2; ++h) heads[h].begin(query.data() + h * 64, 1);
        const status code = attend<uint8_t>(heads.data(), 2, tokens, 10, pages);
        out.resize(2 * 64);
        for (uint32_t h = 0; h < 2; ++h) heads[h].finish(1, out.data() + h * 64);
        return code;
    };
    std::vector<float> expected, out;
    const auto in_memory = [&](uint32_t i, kv_page<uint8_t>& to) {
        const size_t at = size_t(table[i]) * page;
        to = {raw[0].data() + at, raw[1].data() + at, 64, 128, 64, 128};
        return status::ok;
    };
    REQUIRE(run(in_memory, expected) == status::ok);
    const auto predictors = s.predicted.callable();
    using coded = coded_pages<uint8_t, paged_store, decltype(predictors)>;
    const auto run_coded = [&](const std::vector<int32_t>& by, uint32_t ahead) {
        std::vector<uint8_t> buffer(coded::buffer_elements(s.store, 0, 1, ahead), 0xff);
        coded pages(s.store, 0, 1, by.data(), tokens, predictors, buffer.data(), ahead,
                    s.workspace.data());
        return run(pages, out);
    };
    for (const uint32_t ahead : {1u, 2u, 3u, 16u}) {
        CHECK(run_coded(table, ahead) == status::ok);
        CHECK(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0);
    }
    CHECK(run_coded({5, 0, 7, 2, 1}, 2) == status::wrong_count);   // nothing is stored there
    CHECK(run_coded({5, 4, 7, 2, 4}, 2) == status::wrong_count);   // not full
    CHECK(run_coded({5, -1, 7, 2, 4}, 4) == status::wrong_count);  // padding
    CHECK(run_coded({5, 8, 7, 2, 4}, 4) == status::bad_argument);
    const group_place hurt = s.store.find(1, 7, 1);
    s.memory.data()[hurt.at + hurt.bytes - 6] ^= 1;
    const status damaged = run_coded(table, 4);
    CHECK((damaged == status::content_mismatch || damaged == status::corrupt_stream));
}

TEST_CASE("impossible geometries and misplaced memory")
{
    page_part parts[] = {part_of(fp8, 2, 8)};
    paged_geometry g{parts, 1, 1, 8, 4, 1 << 12};
    small_store s(g);
    paged_store store;
    CHECK(store.create(g, s.directory.data(), s.memory.data() + 8) == status::bad_argument);
    CHECK(store.create(g, nullptr, s.memory.data()) == status::bad_argument);
    CHECK(store.find(0, 0, 0).code == status::bad_argument);
    CHECK(store.free_page(0) == status::bad_argument);
    CHECK(store.compact() == status::bad_argument);
    const auto refused = [&](auto change) {
        page_part other[] = {parts[0]};
        paged_geometry changed = g;
        changed.parts = other;
        change(changed, other[0]);
        return paged_store::directory_bytes(changed) == 0 &&
               paged_store::memory_bytes(changed) == 0 &&
               store.create(changed, s.directory.data(), s.memory.data()) == status::bad_argument;
    };
    CHECK(refused([](paged_geometry& c, page_part&) { c.page_tokens = 0; }));
    CHECK(refused([](paged_geometry& c, page_part&) { c.parts = nullptr; }));
    CHECK(refused([](paged_geometry& c, page_part&) { c.pages = 0x80000000u; }));
    CHECK(refused([](paged_geometry& c, page_part&) { c.pages = c.page_tokens = 1 << 30; }));
    CHECK(refused([](paged_geometry&, page_part& p) { p.spec.dim = 0; }));
    CHECK(refused([](paged_geometry&, page_part& p) { p.spec.lanes = 7; }));
    CHECK(refused([](paged_geometry&, page_part& p) { p.slot_bytes = 8; }));
    CHECK(refused([](paged_geometry&, page_part& p) { p.spec.dtype = scalar_type::int8; }));
    CHECK(refused([](paged_geometry&, page_part& p) { p.spec.dim = 0x40000000; }));
    CHECK(refused([](paged_geometry& c, page_part&) { c.arena_bytes = 8; }));
    CHECK(refused([](paged_geometry& c, page_part&) { c.arena_bytes = ~uint64_t(15); }));
    CHECK(refused([](paged_geometry& c, page_part& p) {  // slots of 2^63 bytes
        c.pages = 1u << 30;
        p.slot_bytes = 0xfffffff0u;
    }));
}

namespace {

/// What a paged cache is, without a store.
struct naive_cache {
    struct page {
        std::vector<uint16_t> codes;
        std::vector<uint8_t> rows;
        uint32_t tokens = 0;
    };
    std::vector<std::vector<page>> parts;  // [part][page]
};

bool holds(const small_store& s, const naive_cache& naive, uint32_t part, int32_t page)
{
    const naive_cache::page& expected = naive.parts[part][size_t(page)];
    const auto back = s.read(part, {page}, 0, s.geometry.page_tokens);
    const size_t codes = expected.codes.size(), rows = expected.rows.size();
    return back.results[0].code == status::ok && back.results[0].tokens == expected.tokens &&
           slice(back.tokens.codes, 0, codes) == expected.codes &&
           std::vector<uint8_t>(back.tokens.rows.begin(),
                                back.tokens.rows.begin() + ptrdiff_t(rows)) == expected.rows;
}

}  // namespace

TEST_CASE("10,000 random operations against a naive cache")
{
    const page_part tight[] = {part_of(fp8, 2, 4, 4), part_of(bf16, 1, 6)};
    const page_part fixed[] = {part_of(fp8, 2, 4, 4, 80), part_of(bf16, 1, 6, 0, 48)};
    struct setting {
        const page_part* parts;
        uint32_t group;
        uint64_t arena, waste;
    };
    for (const setting& what : {setting{tight, 0, 2 << 10, 1 << 10},
                                setting{tight, 3, 3 << 10, never_move},
                                setting{fixed, 4, 384, 128}}) {
        paged_geometry g{what.parts, 2, 12, 8, what.group, what.arena, what.waste};
        small_store s(g);
        REQUIRE(s.created == status::ok);
        naive_cache naive;
        naive.parts.assign(2, std::vector<naive_cache::page>(12));
        test_rng rng(what.arena);
        uint32_t refused = 0, compacted = 0;
        for (int step = 0; step < 3334; ++step) {
            const uint32_t part = rng.below(2), op = rng.below(20);
            const int32_t page = int32_t(rng.below(12));
            naive_cache::page& mine = naive.parts[part][size_t(page)];
            const size_t width = part == 0 ? 8 : 6, rows = part == 0 ? 8 : 0;
            bool good = true;
            if (op < 14) {
                const bool anew = op < 3;
                const uint32_t held = anew ? 0 : mine.tokens, room = 8 - held;
                const uint32_t tokens = rng.below(room + 1);
                const auto drawn = s.predicted.draw(rng, part, page, held, tokens,
                                                    what.parts[part].row_bytes, rng.below(4) == 0);
                const append_result made = s.append(part, page, drawn, tokens, anew);
                if (anew) mine = {};
                mine.tokens += made.tokens;
                mine.codes.insert(mine.codes.end(), drawn.codes.begin(),
                                  drawn.codes.begin() + ptrdiff_t(made.tokens * width));
                mine.rows.insert(mine.rows.end(), drawn.rows.begin(),
                                 drawn.rows.begin() + ptrdiff_t(made.tokens * rows));
                refused += !made;
                good = made ? made.tokens == tokens : made.code == status::output_too_small;
            } else if (op < 16) {
                good = s.store.erase(part, page) == status::ok;
                mine = {};
            } else if (op < 17) {
                good = s.store.free_page(page) == status::ok;
                naive.parts[0][size_t(page)] = naive.parts[1][size_t(page)] = {};
            } else if (op < 18) {
                good = s.store.compact() == status::ok;
                ++compacted;
            }
            const arena_use use = s.store.directory().use();
            good = good && use.live <= use.used && use.used <= what.arena &&
                   (what.waste == never_move || use.used - use.live <= what.waste);
            good = good && holds(s, naive, part, page);
            if (step % 64 == 0) {
                good = good && s.store.directory().check() == status::ok;
                for (uint32_t i = 0; i < 24; ++i)
                    good = good && holds(s, naive, i / 12, int32_t(i % 12));
            }
            REQUIRE(good);
        }
        CHECK(refused > 0);
        CHECK(compacted > 0);
    }
}

TEST_CASE("a directory that says more tokens than the page's last group can hold is damaged")
{
    const page_part parts[] = {part_of(fp8, 2, 4)};
    const paged_geometry g{parts, 1, 1, 10, 4, 1 << 10};
    small_store s(g);
    const std::vector<uint8_t> block(32, 7);
    for (uint32_t group = 0; group < 3; ++group)
        REQUIRE(s.store.put(0, 0, group, group == 2 ? 2 : 4, block.data(), 32, nullptr) ==
                status::ok);
    CHECK(s.store.tokens(0, 0).tokens == 10);
    const size_t note = 320 + 2 * 36 + 12;  // of the last group's record
    REQUIRE(s.directory[note] == 2);
    s.directory[note] = 4;
    CHECK(s.store.find(0, 0, 2).code == status::corrupt_stream);
    CHECK(s.store.tokens(0, 0).code == status::corrupt_stream);
}

TEST_CASE("no flipped bit of a store makes wrong data pass for right")
{
    // Blocks of raw8 and without row steps are good blocks under any page's prediction.
    const page_part parts[] = {part_of(scalar_type::raw8, 1, 3, 0, 48), part_of(fp8, 2, 4, 3)};
    const paged_geometry g{parts, 2, 3, 5, 3, 4 << 10};
    small_store s(g);
    test_rng rng(16);
    std::vector<tokens_of_part> stored;
    for (uint32_t k = 0; k < 6; ++k) {
        const uint32_t part = k / 3;
        stored.push_back(s.predicted.draw(rng, part, int32_t(k % 3), 0, 5, parts[part].row_bytes));
        REQUIRE(s.append(part, int32_t(k % 3), stored.back(), 5));
    }
    uint32_t unnoticed = 0, wrong = 0;
    const auto read_all = [&] {
        bool error = false;
        for (uint32_t part = 0; part < 2; ++part) {
            const auto back = s.read(part, {0, 1, 2}, 0, 15);
            const size_t codes = 5 * parts[part].spec.heads * parts[part].spec.dim;
            const size_t rows = 5 * parts[part].spec.heads * parts[part].row_bytes;
            for (uint32_t page = 0; page < 3; ++page) {
                const tokens_of_part& had = stored[part * 3 + page];
                error |= !back.results[page];
                if (!back.results[page]) continue;
                wrong += back.results[page].tokens != 5 ||
                         !std::equal(had.codes.begin(), had.codes.end(),
                                     back.tokens.codes.begin() + ptrdiff_t(page * codes)) ||
                         !std::equal(had.rows.begin(), had.rows.end(),
                                     back.tokens.rows.begin() + ptrdiff_t(page * rows));
            }
        }
        unnoticed += !error;
    };
    read_all();
    REQUIRE(unnoticed == 1);
    const auto flip_all = [&](uint8_t* bytes, size_t count) {
        for (size_t bit = 0; bit < 8 * count; ++bit) {
            bytes[bit / 8] = uint8_t(bytes[bit / 8] ^ 1u << bit % 8);
            read_all();
            bytes[bit / 8] = uint8_t(bytes[bit / 8] ^ 1u << bit % 8);
        }
    };
    flip_all(s.directory.data() + 320, s.directory.size() - 320);
    const group_place first = s.store.find(1, 0, 0);
    REQUIRE(first.tokens == 3);
    flip_all(s.memory.data() + first.rows_at, 3 * 2 * 3 + 4);
    CHECK(wrong == 0);
    // Links and the anchor are no reader's business.
    CHECK(unnoticed - 1 == 8 * (12 * 16 + 36));

    // Nor does a change of the store make a damaged entry whole again, or damaged row bytes.
    s.memory.data()[first.rows_at] ^= 1;
    const tokens_of_part more = s.predicted.draw(rng, 1, 0, 0, 5, 3);
    CHECK(s.append(1, 0, more, 0));
    CHECK(s.store.free_page(0) == status::ok);
    REQUIRE(s.append(1, 0, stored[3], 1));
    s.memory.data()[s.store.find(1, 0, 0).rows_at] ^= 1;
    CHECK(s.append(1, 0, more, 1).code == status::content_mismatch);
    uint8_t* const entry = s.directory.data() + 320 + 8 * 36;  // of part 1, page 1
    entry[0] ^= 32;
    static_cast<void>(s.store.free_page(0));
    static_cast<void>(s.store.compact());
    static_cast<void>(s.append(1, 2, stored[5], 5, true));
    CHECK(s.store.find(1, 1, 0).code == status::corrupt_stream);
}

TEST_CASE("a damaged directory or damaged blocks give statuses, inside the target alone")
{
    const page_part parts[] = {part_of(fp8, 2, 4, 4), part_of(bf16, 1, 6, 0, 64)};
    paged_geometry g{parts, 2, 4, 10, 4, 4 << 10, 1 << 10};
    test_rng rng(15);
    uint32_t noticed = 0;
    for (int round = 0; round < 200; ++round) {
        small_store s(g);
        for (uint32_t k = 0; k < 8; ++k)
            static_cast<void>(s.append(
                k / 4, int32_t(k % 4),
                s.predicted.draw(rng, k / 4, int32_t(k % 4), 0, 10, parts[k / 4].row_bytes), 10));
        const bool in_directory = round % 2 == 0;
        for (uint32_t k = rng.below(4) + 1; k > 0; --k) {
            if (in_directory)
                s.directory[320 + rng.below(uint32_t(s.directory.size()) - 320)] ^=
                    uint8_t(1u << rng.below(8));
            else
                s.memory.data()[rng.below(uint32_t(s.memory.size()))] ^=
                    uint8_t(1u << rng.below(8));
        }
        bool error = false;
        for (uint32_t k = 0; k < 30; ++k) {
            const uint32_t part = rng.below(2), tokens = rng.below(11);
            const int32_t page = int32_t(rng.below(4));
            const auto back = s.read(part, {page, -1, page}, rng.below(12), 20);
            for (const page_result& r : back.results) error |= !r;
            if (k % 3 == 0)
                static_cast<void>(s.append(
                    part, page, s.predicted.draw(rng, part, page, 0, tokens, parts[part].row_bytes),
                    tokens, true));
            if (k % 7 == 0) static_cast<void>(s.store.free_page(page));
            if (k == 29) static_cast<void>(s.store.compact());
        }
        noticed += error;
    }
    CHECK(noticed > 40);
}
