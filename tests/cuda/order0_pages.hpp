#pragma once
// The warp codec of order 0 beside the host's: the same bytes and results from both encoders at
// several capacities, the same statuses and memory from both decoders for whole and for damaged
// blocks, under tables of the block and of the caller. The includer has given device_array, launch
// and shared_variable.

#include <cstdio>
#include <deque>

#include <normans/cuda/warp_order0.cuh>

#include "page_case.hpp"
#include "support/golden_case.hpp"
#include "tally.hpp"

namespace device_test {

struct order0_tally : tally {
    int own = 0, shared = 0;
};

template <class Code>
struct order0_decode {
    block_spec spec;
    const std::uint8_t* block;
    std::size_t bytes;
    box_view<Code> out;
    decode_result result;
};

template <class Code>
struct order0_encode {
    block_spec spec;
    box_view<const Code> codes;
    std::uint8_t* out;
    std::size_t capacity;
    encode_result result;
};

template <class Storage, std::uint32_t Warps>
struct order0_rooms {
    Storage room[Warps];
};
template <class Codec, class Code>
typename Codec::DecodeStorage order0_storage(const order0_decode<Code>&);
template <class Codec, class Code>
typename Codec::TempStorage order0_storage(const order0_encode<Code>&);

constexpr std::uint32_t order0_test_threads = 64;

/// Every logical warp takes the pages that are its own.
template <scalar_type Type, std::uint32_t Width, class Page>
struct run_order0 {
    using codec = warp_codec<Type, Width, coder_id::order0>;
    Page* pages;
    std::uint32_t count;

    __device__ void operator()() const
    {
        constexpr std::uint32_t warps = order0_test_threads / Width;
        using storage = decltype(order0_storage<codec>(std::declval<const Page&>()));
        auto& rooms = shared_variable<order0_rooms<storage, warps>>();
        const std::uint32_t warp = threadIdx.x / Width;
        for (std::uint32_t i = blockIdx.x * warps + warp; i < count; i += gridDim.x * warps) {
            const auto result = run(codec(rooms.room[warp]), pages[i]);
            if (threadIdx.x % Width == 0) pages[i].result = result;
        }
    }

private:
    template <class Code>
    __device__ static decode_result run(const codec& with, const order0_decode<Code>& page)
    {
        return with.decode(page.spec, page.block, page.bytes, 0, box_sink<Code>{page.out});
    }
    template <class Code>
    __device__ static encode_result run(const codec& with, const order0_encode<Code>& page)
    {
        return with.encode(page.spec, box_source<Code>{page.codes}, 0, page.out, page.capacity);
    }
};

/// A page, its place in memory (0xa5 between rows) and its tables on the host.
template <class Code>
struct order0_case {
    block_spec spec;
    std::ptrdiff_t head, token;  // strides, in codes
    std::vector<Code> memory;
    std::vector<order0_table> table;
    std::uint32_t group = 0;
    order0_tables tables{};

    order0_case(const block_spec& from, const std::vector<std::uint16_t>& codes, bool by_token,
                unsigned gap)
        : spec(from)
    {
        const auto row = std::ptrdiff_t(spec.dim + gap);
        row_ = spec.dim + gap;
        head = by_token ? row : row * std::ptrdiff_t(spec.tokens);
        token = by_token ? row * std::ptrdiff_t(spec.heads) : row;
        memory = empty();
        const bool half = format_of(spec.dtype).code_bits == 4;
        for (std::uint32_t i = 0; i < codes.size(); ++i) {
            const std::uint32_t line = i / spec.dim;
            const auto at = std::size_t(std::ptrdiff_t(line / spec.tokens) * head +
                                        std::ptrdiff_t(line % spec.tokens) * token +
                                        std::ptrdiff_t(i % spec.dim));
            Code& to = memory[half ? at / 2 : at];
            const auto code = std::uint32_t(codes[i]);
            to = Code(!half ? code : at % 2 != 0 ? (to & 15u) | code << 4 : (to & 0xf0u) | code);
        }
    }
    order0_case(const order0_case&) = delete;

    std::vector<Code> empty() const
    {
        const std::size_t all = spec.heads * row_ * spec.tokens;
        return std::vector<Code>(format_of(spec.dtype).code_bits == 4 ? (all + 1) / 2 : all,
                                 Code(0xa5a5));
    }
    template <class T>
    box_view<T> box(T* data) const
    {
        return {data, head, token};
    }
    /// Tables that fit codes like these, each of `channels` adjacent channels (0: all).
    void share(const order0_case& like, std::uint32_t channels)
    {
        const std::uint32_t planes = code_bytes(spec.dtype);
        const auto needed = std::size_t(
            order0_tables_needed(std::uint64_t(spec.heads) * spec.dim, channels, planes));
        std::vector<std::uint32_t> counts(needed * order0_symbols);
        const auto rows = reinterpret_cast<std::uint32_t(*)[order0_symbols]>(counts.data());
        add_order0_counts(like.spec, like.box(like.memory.data()), channels, rows);
        table.resize(needed);
        for (std::size_t t = 0; t < needed; ++t) {
            std::uint16_t freq[order0_symbols];
            if (order0_normalize(rows[t], freq) != status::ok ||
                make_order0_table(freq, table[t]) != status::ok)
                std::abort();
        }
        group = channels;
        use_tables();
    }
    void use_tables()
    {
        tables = {table.data(), std::uint32_t(table.size()), group};
        spec.tables = &tables;
    }

private:
    std::size_t row_;
};

template <class Code>
struct order0_on_device {
    device_array<Code> memory;
    device_array<order0_table> table;
    device_array<order0_tables> tables;
    block_spec spec;

    explicit order0_on_device(const order0_case<Code>& c)
        : memory(c.memory), table(c.table),
          tables(std::vector<order0_tables>{
              {table.data(), std::uint32_t(c.table.size()), c.group}}),
          spec(c.spec)
    {
        if (spec.tables != nullptr) spec.tables = tables.data();
    }
};

template <class Result>
std::string order0_words(const Result& r)
{
    return std::string(status_name(r.code)) + ", " + std::to_string(r.bytes) + " bytes, mode " +
           std::to_string(unsigned(r.mode));
}

template <class Result>
bool order0_alike(const Result& host, const Result& device)
{
    return host.code == device.code && host.bytes == device.bytes && host.mode == device.mode &&
           host.lanes == device.lanes && host.row_scaled == device.row_scaled;
}

template <scalar_type Type, std::uint32_t Width, class Page>
bool run_order0_pages(std::vector<Page>& pages, order0_tally& counts)
{
    const device_array<Page> there(pages);
    const std::string error =
        launch(run_order0<Type, Width, Page>{there.data(), std::uint32_t(pages.size())}, 2,
               order0_test_threads);
    if (!error.empty()) counts.fail(pages[0].spec, "launch", error);
    else pages = there.copy();
    return error.empty();
}

/// Encodes at several capacities on both sides; returns the host's block.
template <scalar_type Type, std::uint32_t Width, class Code>
std::vector<std::uint8_t> compare_order0_encoders(const order0_case<Code>& c,
                                                  const order0_on_device<Code>& on,
                                                  order0_tally& counts)
{
    const auto encode_here = [&](std::vector<std::uint8_t>& out) {
        static const Code nothing = 0;
        const auto result = encode<scalar_backend>(
            c.spec, c.box(c.memory.empty() ? &nothing : c.memory.data()), no_predictor,
            out.empty() ? nullptr : out.data(), out.size());
        out.resize(result ? result.bytes : 0);
        return result;
    };
    const std::size_t enough = max_encoded_bytes(c.spec);
    std::vector<std::uint8_t> block(enough);
    const std::size_t made = encode_here(block).bytes;
    const std::size_t capacities[] = {enough, made, made - 1, made * 7 / 8, made / 2, 60, 16, 0};
    std::vector<order0_encode<Code>> pages;
    std::deque<device_array<std::uint8_t>> outs;
    for (const std::size_t capacity : capacities) {
        outs.emplace_back(capacity + 1);
        const Code* const codes = on.memory.data();
        std::uint8_t* const out = capacity == 0 ? nullptr : outs.back().data();
        pages.push_back({on.spec, c.box(codes), out, capacity, {}});
    }
    if (!run_order0_pages<Type, Width>(pages, counts)) return block;
    for (std::size_t i = 0; i < pages.size(); ++i) {
        std::vector<std::uint8_t> expected(capacities[i]);
        const encode_result host = encode_here(expected), device = pages[i].result;
        ++counts.blocks;
        if (!order0_alike(host, device))
            counts.fail(c.spec, "encoders' results",
                        order0_words(host) + " / " + order0_words(device) + " at capacity " +
                            std::to_string(capacities[i]));
        if (!host || !order0_alike(host, device)) continue;
        ++counts.modes[unsigned(host.mode)];
        if (host.mode == block_mode::coded) {
            const std::size_t words = 16 + (c.spec.has_fingerprint ? 8 : 0) + 4 * host.lanes;
            ++(expected[words] == 0 && expected[words + 1] == 0 ? counts.shared : counts.own);
        }
        std::vector<std::uint8_t> bytes = outs[i].copy();
        bytes.resize(host.bytes);
        if (bytes != expected) counts.fail(c.spec, "encoders' bytes", order0_words(host));
    }
    return block;
}

/// Blocks with wrong lengths of tables and bits where none belong, as no flip makes them.
inline std::vector<std::vector<std::uint8_t>> forged(const block_spec& spec,
                                                     const std::vector<std::uint8_t>& block)
{
    std::vector<std::vector<std::uint8_t>> all;
    const auto change = [&](auto f) {
        all.push_back(block);
        f(all.back());
    };
    block_header header;
    if (read_block_header(block.data(), block.size(), header) != status::ok) return all;
    const bool coded = header.mode == block_mode::coded;
    const auto words = std::size_t(layout_of(header, 0).words);
    if (words + 1 >= block.size()) return all;
    change([&](auto& b) { b[words + 1] ^= 0x80; });
    change([&](auto& b) { b[words] ^= 0x10; });
    change([&](auto& b) { b.back() ^= 0x80; });
    const std::size_t codes = std::size_t(raw_bytes(spec.dtype, count_of(spec)));
    if (!coded && words + codes <= block.size())
        change([&](auto& b) { b[words + codes - 1] ^= 0x80; });
    if (!coded) return all;
    const std::uint32_t tables = normans::detail::load_word(&block[words]);
    const std::uint32_t payload = header.payload_words;
    for (const std::uint32_t other : {0u, 1u, tables - 1, tables + 1, payload - 1, payload})
        change([&](auto& b) { normans::detail::store_word(&b[words], other); });
    change([&](auto& b) {  // a word behind the tables that nobody needs
        b.insert(b.begin() + std::ptrdiff_t(words + 2 + 2 * tables), 2, std::uint8_t(0));
        normans::detail::store_word(&b[words], tables + 1);
        normans::detail::store_u32(&b[8], payload + 1);
        b.resize(words + 2 * ((payload + 2) / 2 * 2));
    });
    change([&](auto& b) {  // no words at all
        normans::detail::store_u32(&b[8], 0);
        b.resize(words);
    });
    return all;
}

/// Decodes the block, forged ones and `hurt` damaged ones on both sides.
template <scalar_type Type, std::uint32_t Width, class Code>
void compare_order0_decoders(const order0_case<Code>& c, const order0_on_device<Code>& on,
                             order0_tally& counts, test_rng& rng,
                             const std::vector<std::uint8_t>& block, int hurt)
{
    std::vector<std::vector<std::uint8_t>> blocks(2, block);
    for (auto& one : forged(c.spec, block)) blocks.push_back(std::move(one));
    for (int i = 0; i < hurt; ++i) blocks.push_back(damaged(rng, block));
    std::vector<order0_decode<Code>> pages;
    std::deque<device_array<std::uint8_t>> ins;
    std::deque<device_array<Code>> outs;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        ins.emplace_back(blocks[i]);
        outs.emplace_back(c.empty());
        pages.push_back({on.spec, ins.back().data(), blocks[i].size(), c.box(outs.back().data()),
                         {}});
        if (i == 1) pages.back().spec.tables = nullptr;  // which some blocks need
    }
    if (!run_order0_pages<Type, Width>(pages, counts)) return;
    for (std::size_t i = 0; i < pages.size(); ++i) {
        std::vector<Code> memory = c.empty();
        memory.resize(memory.size() + 1);  // never null
        block_spec spec = c.spec;
        if (i == 1) spec.tables = nullptr;
        const decode_result device = pages[i].result;
        const decode_result host = decode<scalar_backend>(
            spec, blocks[i].data(), blocks[i].size(), no_predictor, c.box(memory.data()));
        memory.pop_back();
        ++counts.blocks;
        ++counts.statuses[unsigned(host.code) % 16];
        if (!order0_alike(host, device))
            counts.fail(spec, "decoders' results", order0_words(host) + " / " +
                                                       order0_words(device));
        else if (i == 0 && (!host || memory != c.memory))
            counts.fail(spec, "the host's own block", order0_words(host));
        else if (host && outs[i].copy() != memory)
            counts.fail(spec, "decoders' memory", order0_words(host));
    }
}

/// Runs f(type, width, a code) for what is compiled here: one width for each size of codes, under
/// NORMANS_EVERY_WIDTH all that golden blocks have; under NORMANS_FEW_TYPES two sizes.
template <class Function>
void for_order0_codecs(Function f)
{
    const std::integral_constant<scalar_type, scalar_type::int4> int4;
    const std::integral_constant<scalar_type, scalar_type::bf16> bf16;
    const std::integral_constant<std::uint32_t, 8> eight;
    const std::integral_constant<std::uint32_t, 32> all;
    f(int4, all, std::uint8_t());
    f(bf16, eight, std::uint16_t());
#if !defined(NORMANS_FEW_TYPES)
    const std::integral_constant<scalar_type, scalar_type::e4m3fn> e4m3fn;
    f(e4m3fn, all, std::uint8_t());
#endif
#if defined(NORMANS_EVERY_WIDTH)
    const std::integral_constant<std::uint32_t, 1> one;
    const std::integral_constant<std::uint32_t, 16> sixteen;
    f(e4m3fn, one, std::uint8_t());
    f(e4m3fn, eight, std::uint8_t());
    f(e4m3fn, sixteen, std::uint8_t());
    f(bf16, all, std::uint16_t());
    f(int4, eight, std::uint8_t());
    f(std::integral_constant<scalar_type, scalar_type::e2m1>(), eight, std::uint8_t());
    f(std::integral_constant<scalar_type, scalar_type::int8>(), sixteen, std::uint8_t());
    f(std::integral_constant<scalar_type, scalar_type::raw8>(), eight, std::uint8_t());
#endif
}

/// Codes of 1 to 2^bits values, low ones often.
inline std::vector<std::uint16_t> draw_order0_codes(test_rng& rng, const block_spec& spec,
                                                    std::uint32_t spread)
{
    const unsigned bits = format_of(spec.dtype).code_bits;
    std::vector<std::uint16_t> codes(std::size_t(count_of(spec)));
    for (std::uint16_t& code : codes) {
        std::uint32_t value = 0;
        for (std::uint32_t i = 0; i < spread; ++i) value += rng.below(3) == 0 ? 1u : 0u;
        if (bits == 16) value = value << 6 | rng.bits(7);
        if (spread > 16) value = rng.bits(bits);
        code = std::uint16_t(value & ((1u << bits) - 1));
    }
    return codes;
}

enum class tables_kind { none, good, lacking, poor, grouped };

/// Random blocks under all kinds of tables.
inline void compare_random_order0(std::uint64_t seed, int hurt, order0_tally& counts)
{
    for_order0_codecs([&](auto type, auto width, auto code) {
        using code_type = decltype(code);
        test_rng rng(seed * 1000 + unsigned(type()) * 64 + width());
        const auto page = [&](box_size box, std::uint32_t spread, tables_kind kind) {
            block_spec spec;
            spec.dtype = type();
            spec.coder = coder_id::order0;
            spec.heads = box.heads;
            spec.tokens = box.tokens;
            spec.dim = box.dim;
            spec.lanes = rng.below(2) != 0 ? width() : 0;
            if (default_lanes(std::uint32_t(count_of(spec))) != width()) spec.lanes = width();
            spec.content_check = rng.below(8) != 0;
            spec.has_fingerprint = rng.below(3) == 0;
            spec.fingerprint = rng.next();
            const bool by_token = rng.below(2) != 0;
            const unsigned gap = rng.below(3);
            order0_case<code_type> c(spec, draw_order0_codes(rng, spec, spread), by_token, gap);
            if (kind != tables_kind::none) {
                const std::uint32_t other = kind == tables_kind::lacking ? spread - 2
                                            : kind == tables_kind::poor  ? spread + 3
                                                                         : spread;
                order0_case<code_type> like(spec, draw_order0_codes(rng, spec, other), false, 0);
                c.share(other == spread ? c : like, kind == tables_kind::grouped ? 13 : 0);
            }
            const order0_on_device<code_type> on(c);
            const auto block = compare_order0_encoders<type(), width()>(c, on, counts);
            compare_order0_decoders<type(), width()>(c, on, counts, rng, block, hurt);
        };
        page({1, 1, 1}, 3, tables_kind::none);
        page({1, 1, 1}, 3, tables_kind::good);
        page({2, 3, 33}, 4, tables_kind::none);
        page({2, 3, 33}, 4, tables_kind::good);
        page({2, 9, 40}, 8, tables_kind::none);
        page({2, 5, 64}, 6, tables_kind::grouped);
        page({1, 40, 25}, 5, tables_kind::lacking);
        page({3, 40, 5}, 4, tables_kind::grouped);
        page({2, 9, 40}, 2, tables_kind::poor);
        page({1, 3, 37}, 17, tables_kind::none);
        page({1, 4, 37}, 17, tables_kind::good);
        page({2, 3, 25}, 0, tables_kind::none);
        page({2, 9, 25}, 1, tables_kind::none);
        page({2, 0, 24}, 4, tables_kind::none);
    });
}

/// A golden block: encoded to its bytes, decoded to its codes.
inline void compare_golden_order0(const char* path, order0_tally& counts)
{
    normans_test::golden_case golden;
    if (!normans_test::read_case(path, golden)) return counts.fail({}, path, "cannot be read");
    bool ran = false;
    for_order0_codecs([&](auto type, auto width, auto code) {
        if (type() != golden.spec.dtype || width() != golden.spec.lanes) return;
        order0_case<decltype(code)> c(golden.spec, golden.codes, false, 0);
        c.table.resize(golden.tables.size() / order0_symbols);
        c.group = golden.table_group;
        for (std::size_t t = 0; t < c.table.size(); ++t)
            if (make_order0_table(&golden.tables[t * order0_symbols], c.table[t]) != status::ok)
                counts.fail(golden.spec, path, "no table");
        if (!c.table.empty()) c.use_tables();
        const order0_on_device<decltype(code)> on(c);
        const auto block = compare_order0_encoders<type(), width()>(c, on, counts);
        if (block != golden.block) counts.fail(c.spec, path, "the host's bytes are others");
        test_rng rng(1);
        compare_order0_decoders<type(), width()>(c, on, counts, rng, golden.block, 4);
        ran = true;
    });
    if (ran) return;
#if defined(NORMANS_EVERY_WIDTH)
    counts.fail(golden.spec, path, "its codec is not compiled here");
#else
    ++counts.not_here;
#endif
}

/// Seeds 1 .. argument 1, then golden files. `before` is called with each seed. 0 if all was equal
/// and everything occurred that should.
template <class Function>
int run_order0_test(int count, char** arguments, Function before)
{
    order0_tally counts;
    run_cases(count, arguments, before,
              [&](unsigned seed) { compare_random_order0(seed, 8, counts); },
              [&](const char* path) { compare_golden_order0(path, counts); });
    std::printf("%d under their own tables, %d under shared ones; ", counts.own, counts.shared);
    return counts.report(counts.saw(status::corrupt_stream) && counts.saw(status::truncated) &&
                         counts.saw(status::wrong_model) && counts.own != 0 &&
                         counts.shared != 0 && counts.saw(block_mode::raw) &&
                         counts.saw(block_mode::constant));
}

}  // namespace device_test
