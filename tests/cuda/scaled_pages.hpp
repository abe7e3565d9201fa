#pragma once
// The warp codec of int8, int4 and e2m1, and of fp8 by tANS, beside the host's: the same bytes and
// results from both encoders at several capacities, the same statuses and memory from both decoders
// for whole and for damaged blocks. The includer has given device_array, launch and
// shared_variable.

#include <cstdio>
#include <deque>
#include <map>

#include <normans/cuda/warp_scaled.cuh>

#include "page_case.hpp"
#include "support/golden_case.hpp"
#include "support/scaled_page.hpp"
#include "tally.hpp"

namespace device_test {

using normans_test::mapped_predictor;
using normans_test::scaled_page;

struct scaled_decode {
    block_spec spec;
    const std::uint8_t* block;
    std::size_t bytes;
    mapped_predictor predictor;
    box_view<std::uint8_t> out;
    decode_result result;
};

struct scaled_encode {
    block_spec spec;
    box_view<const std::uint8_t> codes;
    mapped_predictor predictor;
    std::uint8_t* out;
    std::size_t capacity;
    encode_result result;
};

/// Small banks, each built once: of every type the gaussian one fits into bank_room, the mixture's
/// does not.
inline const tans_bank* small_bank(scalar_type type, shape_id shape)
{
    static std::map<std::pair<scalar_type, shape_id>, normans_test::bank_rows_of> banks;
    const bool wide = shape == shape_id::mixture;
    bank_plan plan{shape, std::uint8_t(wide ? 7 : 6), 0, 0};
    if (format_of(type).is_integer) plan = {shape, std::uint8_t(wide ? 9 : 8), 2, 1};
    return &banks.try_emplace({bank_grid(type), shape}, bank_grid(type), plan).first->second.bank;
}
constexpr std::size_t bank_room = 44 * 1024;

template <class Codec, coder_id Coder>
struct block_memory {
    typename Codec::TempStorage tables;
    alignas(4) unsigned char room[Coder == coder_id::tans ? bank_room : 4];
};

/// Every logical warp takes the pages that are its own.
template <scalar_type Type, std::uint32_t Width, coder_id Coder, class Page>
struct run_scaled {
    using codec = warp_codec<Type, Width, Coder>;
    Page* pages;
    std::uint32_t count;
    bool with_room;

    __device__ void operator()() const
    {
        auto& memory = shared_variable<block_memory<codec, Coder>>();
        codec::prepare(memory.tables, pages[0].spec, threadIdx.x, blockDim.x,
                       with_room ? memory.room : nullptr, sizeof memory.room,
                       std::is_same_v<Page, scaled_encode> ? bank_use::encode : bank_use::decode);
        __syncthreads();
        const std::uint32_t warps = blockDim.x / Width;
        for (std::uint32_t i = blockIdx.x * warps + threadIdx.x / Width; i < count;
             i += gridDim.x * warps) {
            const auto result = run(codec(memory.tables), pages[i]);
            if (threadIdx.x % Width == 0) pages[i].result = result;
        }
    }

private:
    __device__ static decode_result run(const codec& with, const scaled_decode& page)
    {
        return with.decode(page.spec, page.block, page.bytes, page.predictor,
                           box_sink<std::uint8_t>{page.out});
    }
    __device__ static encode_result run(const codec& with, const scaled_encode& page)
    {
        return with.encode(page.spec, box_source<std::uint8_t>{page.codes}, page.predictor,
                           page.out, page.capacity);
    }
};

struct scaled_tally : tally {
    int row_scaled = 0, escapes = 0;
};

/// A bank's arrays on the device.
struct bank_on_device {
    device_array<tans_cell> cells;
    device_array<std::uint8_t> reach;
    device_array<std::uint16_t> next;
    device_array<tans_symbol> symbols;
    device_array<tans_bank> bank;

    explicit bank_on_device(const tans_bank& b)
        : cells(std::vector<tans_cell>(b.cells, b.cells + bank_cells(b.grid, b.plan))),
          reach(std::vector<std::uint8_t>(b.reach, b.reach + bank_rows(b.grid, b.plan))),
          next(std::vector<std::uint16_t>(b.next, b.next + bank_cells(b.grid, b.plan))),
          symbols(std::vector<tans_symbol>(b.symbols,
                                           b.symbols + bank_rows(b.grid, b.plan) * bank_symbols)),
          bank(std::vector<tans_bank>(1, {b.plan, cells.data(), reach.data(), next.data(),
                                          symbols.data(), b.grid}))
    {
    }
};

/// small_bank() there, each copied once.
class banks_on_device {
public:
    const bank_on_device& operator()(scalar_type type, shape_id shape)
    {
        return banks_.try_emplace({bank_grid(type), shape}, *small_bank(type, shape)).first->second;
    }

private:
    std::map<std::pair<scalar_type, shape_id>, bank_on_device> banks_;
};

/// Where a page's codes lie: strides in elements, which may be odd.
struct page_layout {
    std::ptrdiff_t head, token;
    std::size_t elements;

    template <class T>
    box_view<T> box(T* data) const
    {
        return {data, head, token};
    }
};

/// Heads or tokens outermost, `gap` unused elements behind each row.
inline page_layout lay_out(const block_spec& spec, bool by_token, unsigned gap)
{
    const auto row = std::ptrdiff_t(spec.dim + gap);
    const std::size_t elements = std::size_t(row) * spec.heads * spec.tokens;
    return by_token ? page_layout{row, row * std::ptrdiff_t(spec.heads), elements}
                    : page_layout{row * std::ptrdiff_t(spec.tokens), row, elements};
}

/// A page with all that both sides read; what lies between rows is 0xa5.
struct scaled_case {
    scaled_page page;
    std::vector<float> a, b;  // empty: no map
    page_layout layout;
    std::vector<std::uint8_t> memory;

    scaled_case(scaled_page&& from, bool by_token, unsigned gap)
        : page(std::move(from)), layout(lay_out(page.spec, by_token, gap)), memory(empty())
    {
        const block_spec& spec = page.spec;
        for (std::uint32_t i = 0; i < page.codes.size(); ++i) {
            const std::uint32_t row = i / spec.dim;
            const std::ptrdiff_t at = std::ptrdiff_t(row / spec.tokens) * layout.head +
                                      std::ptrdiff_t(row % spec.tokens) * layout.token +
                                      std::ptrdiff_t(i % spec.dim);
            if (page.code_bits() == 8) {
                memory[std::size_t(at)] = page.codes[i];
                continue;
            }
            std::uint8_t& byte = memory[std::size_t(at) / 2];
            byte = std::uint8_t(at & 1 ? (byte & 15) | page.codes[i] << 4
                                       : (byte & 0xf0) | page.codes[i]);
        }
    }
    std::vector<std::uint8_t> empty() const
    {
        const std::size_t bytes = page.code_bits() == 8 ? layout.elements
                                                        : (layout.elements + 1) / 2;
        return std::vector<std::uint8_t>(bytes, 0xa5);
    }
    array_predictor predictor() const  // the host's: what is compiled there
    {
        const auto row = std::ptrdiff_t(page.spec.dim);
        array_predictor out{};
        out.means = {page.mean.data(), row * std::ptrdiff_t(page.spec.tokens), row,
                     any_means::fp32};
        out.sigmas = {page.sigma.data(), page.spec.dim, 1, 0};
        if (!a.empty()) out.affine = {a.data(), b.data(), page.spec.dim};
        return out;
    }
};

struct case_on_device {
    device_array<float> mean, a, b, scales;
    device_array<std::uint8_t> sigma, memory;
    block_spec spec;
    mapped_predictor predictor;

    case_on_device(const scaled_case& c, const bank_on_device* bank)
        : mean(c.page.mean), a(c.a), b(c.b), scales(c.page.scales), sigma(c.page.sigma),
          memory(c.memory), spec(c.page.spec),
          predictor{{mean.data()}, {sigma.data()},
                    {c.a.empty() ? nullptr : a.data(), b.data(), spec.dim}}
    {
        spec.scales.data = has_scale(spec.dtype) ? scales.data() : nullptr;
        spec.bank = bank == nullptr ? nullptr : bank->bank.data();
    }
};

template <class Result>
std::string words_of(const Result& r)
{
    return std::string(status_name(r.code)) + ", " + std::to_string(r.bytes) + " bytes, mode " +
           std::to_string(unsigned(r.mode)) + (r.row_scaled ? ", rows" : "");
}

template <class Result>
bool alike(const Result& host, const Result& device)
{
    return host.code == device.code && host.bytes == device.bytes && host.mode == device.mode &&
           host.lanes == device.lanes && host.row_scaled == device.row_scaled;
}

/// Runs pages, gets their results; false and a failure said where the launch fails.
template <scalar_type Type, std::uint32_t Width, coder_id Coder, class Page>
bool run_all(std::vector<Page>& pages, bool with_room, scaled_tally& counts)
{
    const device_array<Page> there(pages);
    const std::string error = launch(
        run_scaled<Type, Width, Coder, Page>{there.data(), std::uint32_t(pages.size()), with_room},
        2, 64);
    if (!error.empty()) counts.fail(pages[0].spec, "launch", error);
    else pages = there.copy();
    return error.empty();
}

/// Encodes at several capacities on both sides; returns the host's block.
template <scalar_type Type, std::uint32_t Width, coder_id Coder>
std::vector<std::uint8_t> compare_scaled_encoders(const scaled_case& c, const case_on_device& on,
                                                  scaled_tally& counts)
{
    const block_spec& spec = c.page.spec;
    const auto encode_here = [&](std::vector<std::uint8_t>& out) {
        out.resize(out.size() + 1);  // never null
        const auto result =
            encode<scalar_backend>(spec, c.layout.box(c.memory.data()), c.predictor(), out.data(),
                                   out.size() - 1);
        out.resize(result ? result.bytes : 0);
        return result;
    };
    const std::size_t enough = max_encoded_bytes(spec);
    std::vector<std::uint8_t> block(enough);
    const std::size_t made = encode_here(block).bytes;
    const std::size_t capacities[] = {enough, made, made - 1, made * 3 / 4, 16, 0};
    std::vector<scaled_encode> pages;
    std::deque<device_array<std::uint8_t>> outs;
    for (const std::size_t capacity : capacities) {
        outs.emplace_back(capacity + 1);
        pages.push_back({on.spec, c.layout.box(static_cast<const std::uint8_t*>(on.memory.data())),
                         on.predictor, outs.back().data(), capacity, {}});
    }
    if (!run_all<Type, Width, Coder>(pages, spec.tokens % 3 != 0, counts)) return block;
    for (std::size_t i = 0; i < pages.size(); ++i) {
        std::vector<std::uint8_t> expected(capacities[i]);
        const encode_result host = encode_here(expected), device = pages[i].result;
        ++counts.blocks;
        if (!alike(host, device) || host.escapes != device.escapes)
            counts.fail(spec, "encoders' results",
                        words_of(host) + " / " + words_of(device) + " at capacity " +
                            std::to_string(capacities[i]));
        if (!host || !alike(host, device)) continue;
        ++counts.modes[unsigned(host.mode)];
        counts.row_scaled += host.row_scaled;
        counts.escapes += host.escapes != 0;
        std::vector<std::uint8_t> bytes = outs[i].copy();
        bytes.resize(host.bytes);
        if (bytes != expected) counts.fail(spec, "encoders' bytes", words_of(host));
    }
    return block;
}

/// Decodes the block and `hurt` damaged ones on both sides, the bank in shared memory or not.
template <scalar_type Type, std::uint32_t Width, coder_id Coder>
void compare_scaled_decoders(const scaled_case& c, const case_on_device& on, scaled_tally& counts,
                             test_rng& rng, const std::vector<std::uint8_t>& block, int hurt)
{
    std::vector<std::vector<std::uint8_t>> blocks(2, block);
    for (int i = 0; i < hurt; ++i) blocks.push_back(damaged(rng, block));
    std::vector<scaled_decode> pages;
    std::deque<device_array<std::uint8_t>> ins, outs;
    for (const auto& one : blocks) {
        ins.emplace_back(one);
        outs.emplace_back(c.empty());
        pages.push_back({on.spec, ins.back().data(), one.size(), on.predictor,
                         c.layout.box(outs.back().data()), {}});
    }
    if (!run_all<Type, Width, Coder>(pages, rng.below(3) != 0, counts)) return;
    for (std::size_t i = 0; i < pages.size(); ++i) {
        std::vector<std::uint8_t> memory = c.empty();
        const decode_result device = pages[i].result;
        const decode_result host =
            decode<scalar_backend>(c.page.spec, blocks[i].data(), blocks[i].size(), c.predictor(),
                                   c.layout.box(memory.data()));
        ++counts.blocks;
        ++counts.statuses[unsigned(host.code) % 16];
        if (!alike(host, device))
            counts.fail(c.page.spec, "decoders' results",
                        words_of(host) + " / " + words_of(device));
        else if (i == 0 && (!host || memory != c.memory))
            counts.fail(c.page.spec, "the host's own block", words_of(host));
        else if (host && outs[i].copy() != memory)
            counts.fail(c.page.spec, "decoders' memory", words_of(host));
    }
}

template <scalar_type Type>
using scaled_type = std::integral_constant<scalar_type, Type>;
template <std::uint32_t Width>
using scaled_width = std::integral_constant<std::uint32_t, Width>;
template <coder_id Coder>
using scaled_coder = std::integral_constant<coder_id, Coder>;

/// Runs f(type, width, coder) for what is compiled here: each kind by one width, under
/// NORMANS_EVERY_WIDTH by all; under NORMANS_FEW_TYPES int4 alone, whose codes share bytes.
template <class Function>
void for_scaled_codecs(Function f)
{
    const scaled_coder<coder_id::rans> rans;
    const scaled_coder<coder_id::tans> tans;
    const scaled_type<scalar_type::int4> int4;
    f(int4, scaled_width<8>{}, rans);
    f(int4, scaled_width<32>{}, tans);
#if !defined(NORMANS_FEW_TYPES)
    const scaled_type<scalar_type::int8> int8;
    const scaled_type<scalar_type::e2m1> e2m1;
    f(int8, scaled_width<32>{}, rans);
    f(e2m1, scaled_width<8>{}, rans);
    f(int8, scaled_width<8>{}, tans);
    f(e2m1, scaled_width<8>{}, tans);
    f(scaled_type<scalar_type::e4m3fn>{}, scaled_width<32>{}, tans);
#endif
#if defined(NORMANS_EVERY_WIDTH)
    const auto others = [&](auto type, auto coder, auto other) {
        f(type, scaled_width<1>{}, coder);
        f(type, scaled_width<16>{}, coder);
        f(type, other, coder);
    };
    others(int8, rans, scaled_width<8>{});
    others(int4, rans, scaled_width<32>{});
    others(e2m1, rans, scaled_width<32>{});
    others(int8, tans, scaled_width<32>{});
    others(int4, tans, scaled_width<8>{});
    f(scaled_type<scalar_type::e4m3fn>{}, scaled_width<8>{}, tans);
    f(scaled_type<scalar_type::e4m3fnuz>{}, scaled_width<16>{}, tans);
    f(scaled_type<scalar_type::e5m2>{}, scaled_width<1>{}, tans);
    f(scaled_type<scalar_type::e5m2>{}, scaled_width<8>{}, tans);
    f(scaled_type<scalar_type::e5m2fnuz>{}, scaled_width<8>{}, tans);
#endif
}

/// Random flags; with `odd`, means, sigmas and scales of any kind now and then.
inline scaled_case draw_scaled(test_rng& rng, scalar_type type, coder_id coder,
                               std::uint32_t width, box_size box, page_kind kind, bool odd,
                               std::uint32_t outliers)
{
    block_spec spec = normans_test::scaled_spec(
        type, coder_id::rans, box.heads, kind == page_kind::empty ? 0 : box.tokens, box.dim, width);
    spec.row_scale = rng.below(2) != 0;
    spec.content_check = rng.below(8) != 0;
    spec.parameter_hash = rng.below(3) == 0;
    spec.has_fingerprint = rng.below(3) == 0;
    spec.fingerprint = rng.next();
    spec.shape = rng.below(2) != 0 ? shape_id::gaussian : shape_id::mixture;
    scaled_page page = normans_test::make_scaled_page(rng.next(), spec, outliers);
    page.spec.coder = coder;
    if (coder == coder_id::tans) page.spec.bank = small_bank(type, spec.shape);
    static constexpr std::uint32_t specials[] = {0x7fc00001u, 0xff800000u, 0x80000000u, 0x00400000u,
                                                 0x7f7fffffu, 0xbf800000u};
    for (float& scale : page.scales)
        if (odd && rng.below(12) == 0) scale = bits_to_float(specials[rng.below(6)]);
    // One scale for a row, or groups of other lengths: the first ones of those that are there.
    if (has_scale(type) && rng.below(4) == 0)
        page.spec.scales.group = rng.below(2) != 0 ? 0 : 48;
    for (std::uint32_t i = 0; i < page.codes.size(); ++i) {
        if (odd && rng.below(12) == 0) page.mean[i] = bits_to_float(specials[rng.below(6)]);
        if (odd && rng.below(12) == 0)
            page.sigma[i] = std::uint8_t(rng.below(3) ? rng.below(256) : 255);
        if (kind == page_kind::constant) page.codes[i] = 5;
        if (kind != page_kind::predicted) continue;
        const std::uint32_t row = i / box.dim;
        const float scale =
            has_scale(type)
                ? page.spec.scales({i, row / box.tokens, row % box.tokens, i % box.dim})
                : 1.0f;
        const std::uint32_t mean =
            map_mean(float_to_bits(page.mean[i]), one_bits, minus_zero_bits);
        page.codes[i] = std::uint8_t(expected_code(
            format_of(type), mean_in_codes(mean, make_scale(float_to_bits(scale)))));
    }
    const bool by_token = rng.below(2) != 0;
    return {std::move(page), by_token, rng.below(3)};
}

/// Random blocks of every kind.
inline void compare_random_scaled(std::uint64_t seed, int hurt, scaled_tally& counts)
{
    banks_on_device banks;
    for_scaled_codecs([&](auto type, auto width, auto coder) {
        test_rng rng(seed * 1000 + unsigned(type()) * 64 + width() + 7 * unsigned(coder()));
        const auto page = [&](box_size box, page_kind kind, bool odd, std::uint32_t outliers) {
            const scaled_case c =
                draw_scaled(rng, type(), coder(), width(), box, kind, odd, outliers);
            const case_on_device on(c, coder() == coder_id::tans
                                           ? &banks(type(), c.page.spec.shape)
                                           : nullptr);
            const auto block = compare_scaled_encoders<type(), width(), coder()>(c, on, counts);
            compare_scaled_decoders<type(), width(), coder()>(c, on, counts, rng, block, hurt);
        };
        page({1, 1, 1}, page_kind::drawn, false, 0);
        page({2, 3, 33}, page_kind::drawn, false, 50);
        page({1, 20, 5}, page_kind::drawn, true, 20);
        page({2, 5, 64}, page_kind::drawn, false, 0);
        page({3, 4, 16}, page_kind::drawn, true, 50);
        page({1, 4, 96}, page_kind::drawn, false, 100);
        page({2, 6, 75}, page_kind::drawn, false, 80);
        page({1, 3, 37}, page_kind::drawn, false, 1);
        page({2, 3, 25}, page_kind::constant, false, 0);
        page({2, 3, 25}, page_kind::predicted, true, 0);
        page({2, 3, 24}, page_kind::empty, false, 0);
    });
}

/// A golden block: encoded to its bytes, decoded to its codes.
inline void compare_golden_scaled(const char* path, scaled_tally& counts)
{
    normans_test::golden_case golden;
    if (!normans_test::read_case(path, golden)) return counts.fail({}, path, "cannot be read");
    bool ran = false;
    for_scaled_codecs([&](auto type, auto width, auto coder) {
        if (type() != golden.spec.dtype || width() != golden.spec.lanes ||
            coder() != golden.spec.coder)
            return;
        scaled_page page;
        page.spec = golden.spec;
        page.codes.assign(golden.codes.begin(), golden.codes.end());
        page.mean = normans_test::as_floats(golden.mu);
        page.sigma = golden.sigma;
        page.scales = normans_test::as_floats(golden.scales);
        if (has_scale(page.spec.dtype)) {
            const std::uint32_t group = page.spec.scales.group;
            const auto groups = std::ptrdiff_t((page.spec.dim + group - 1) / group);
            page.spec.scales = {page.scales.data(), groups * std::ptrdiff_t(page.spec.tokens),
                                groups, 1, group};
        }
        const std::uint32_t plan = golden.bank.empty() ? pack_plan(bank_plan{}) : golden.bank[0];
        const normans_test::bank_rows_of rows(
            golden.bank.empty() ? scalar_type::int8 : page.spec.dtype,
            unpack_plan(page.spec.shape, plan));
        page.spec.bank = &rows.bank;
        scaled_case c(std::move(page), false, 0);
        c.a = normans_test::as_floats(golden.affine_a);
        c.b = normans_test::as_floats(golden.affine_b);
        const bank_on_device bank(rows.bank);
        const case_on_device on(c, &bank);
        const auto block = compare_scaled_encoders<type(), width(), coder()>(c, on, counts);
        if (block != golden.block) counts.fail(c.page.spec, path, "the host's bytes are others");
        test_rng rng(1);
        compare_scaled_decoders<type(), width(), coder()>(c, on, counts, rng, golden.block, 4);
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
int run_scaled_test(int count, char** arguments, Function before)
{
    scaled_tally counts;
    run_cases(count, arguments, before,
              [&](unsigned seed) { compare_random_scaled(seed, 8, counts); },
              [&](const char* path) { compare_golden_scaled(path, counts); });
    std::printf("%d with row steps, %d with escapes; ", counts.row_scaled, counts.escapes);
    return counts.report(counts.saw(status::corrupt_stream) && counts.saw(status::truncated) &&
                         counts.row_scaled != 0 && counts.escapes != 0 && counts.saw_all_modes());
}

}  // namespace device_test
