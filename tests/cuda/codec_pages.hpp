#pragma once
// The warp codec beside the host's: the same bytes and results from both encoders at every
// capacity, the same statuses and codes from both decoders for whole and for damaged blocks.
// The includer has given device_array, launch and shared_variable.

#include <cstdio>
#include <deque>

#include <normans/cuda/warp_codec.cuh>

#include "page_case.hpp"
#include "support/golden_case.hpp"
#include "tally.hpp"

namespace device_test {

template <class Code>
struct decode_page {
    block_spec spec;
    const std::uint8_t* block;
    std::size_t bytes;
    array_predictor predictor;
    box_view<Code> out;
    decode_result result;
};

template <class Code>
struct encode_page {
    block_spec spec;
    box_view<const Code> codes;
    array_predictor predictor;
    std::uint8_t* out;
    std::size_t capacity;
    encode_result result;
};

/// Every logical warp takes the pages that are its own.
template <scalar_type Type, std::uint32_t Width, class Page>
struct run_pages {
    using codec = warp_codec<Type, Width>;
    Page* pages;
    std::uint32_t count;

    __device__ void operator()() const
    {
        auto& tables = shared_variable<typename codec::TempStorage>();
        codec::prepare(tables, pages[0].spec, threadIdx.x, blockDim.x);
        __syncthreads();
        const std::uint32_t warps = blockDim.x / Width;
        for (std::uint32_t i = blockIdx.x * warps + threadIdx.x / Width; i < count;
             i += gridDim.x * warps)
            run(codec(tables), pages[i]);
    }

private:
    template <class Code>
    __device__ static void run(const codec& with, decode_page<Code>& page)
    {
        const decode_result result = with.decode(page.spec, page.block, page.bytes,
                                                 page.predictor, box_sink<Code>{page.out});
        if (threadIdx.x % Width == 0) page.result = result;
    }
    template <class Code>
    __device__ static void run(const codec& with, encode_page<Code>& page)
    {
        const encode_result result = with.encode(page.spec, box_source<Code>{page.codes},
                                                 page.predictor, page.out, page.capacity);
        if (threadIdx.x % Width == 0) page.result = result;
    }
};

/// A page's arrays on the device.
template <class Code>
struct page_on_device {
    device_array<float> mean, a, b;
    device_array<std::uint16_t> half_mean;
    device_array<std::uint8_t> sigma;
    device_array<Code> codes;
    device_array<marginal_table> marginal;
    block_spec spec;
    array_predictor predictor;

    explicit page_on_device(const page_case<Code>& c)
        : mean(c.mean), a(c.a), b(c.b), half_mean(c.half_mean), sigma(c.sigma), codes(c.codes),
          marginal(std::vector<marginal_table>(1, c.marginal)), spec(c.spec),
          predictor(c.predictor(mean.data(), half_mean.data(), sigma.data(), a.data(), b.data()))
    {
        if (spec.marginal != nullptr) spec.marginal = marginal.data();
    }
};

template <class Result>
std::string text_of(const Result& r)
{
    return std::string(status_name(r.code)) + ", " + std::to_string(r.bytes) + " bytes, mode " +
           std::to_string(unsigned(r.mode)) + (r.row_scaled ? ", rows" : "");
}

template <class Result>
bool same(const Result& x, const Result& y)
{
    return x.code == y.code && x.bytes == y.bytes && x.mode == y.mode && x.lanes == y.lanes &&
           x.row_scaled == y.row_scaled;
}

/// By the definition: it is compared with the other backends elsewhere, and compiles fast.
template <class Code>
encode_result encode_here(const page_case<Code>& c, std::uint8_t* out, std::size_t capacity)
{
    return encode<scalar_backend>(c.spec, c.box(c.codes.data()), c.host_predictor(), out, capacity);
}

/// Encodes at several capacities on both sides.
template <scalar_type Type, std::uint32_t Width, class Code>
void compare_encoders(const page_case<Code>& c, const page_on_device<Code>& on, tally& counts,
                      std::vector<std::uint8_t>& block)
{
    const std::size_t enough = max_encoded_bytes(c.spec);
    block.resize(enough);
    const encode_result whole = encode_here(c, block.data(), enough);
    block.resize(whole.bytes);
    const std::size_t capacities[] = {enough, whole.bytes, whole.bytes - 1, whole.bytes * 3 / 4,
                                      16, 0};
    std::vector<encode_page<Code>> pages;
    std::deque<device_array<std::uint8_t>> outs;
    for (const std::size_t capacity : capacities) {
        outs.emplace_back(capacity);
        pages.push_back({on.spec, c.box(static_cast<const Code*>(on.codes.data())), on.predictor,
                         outs.back().data(), capacity, {}});
    }
    const device_array<encode_page<Code>> there(pages);
    const std::string error = launch(
        run_pages<Type, Width, encode_page<Code>>{there.data(), std::uint32_t(pages.size())}, 1,
        64);
    if (!error.empty()) return counts.fail(c.spec, "encode", error);
    pages = there.copy();
    for (std::size_t i = 0; i < pages.size(); ++i) {
        std::vector<std::uint8_t> expected(capacities[i] + 1);
        const encode_result host = encode_here(c, expected.data(), capacities[i]);
        const encode_result device = pages[i].result;
        ++counts.blocks;
        if (!same(host, device) || host.escapes != device.escapes) {
            counts.fail(c.spec, "encoders' results",
                        text_of(host) + " / " + text_of(device) + " at capacity " +
                            std::to_string(capacities[i]));
            continue;
        }
        if (!host) continue;
        ++counts.modes[unsigned(host.mode)];
        expected.resize(host.bytes);
        std::vector<std::uint8_t> made = outs[i].copy();
        made.resize(host.bytes);
        if (made != expected) counts.fail(c.spec, "encoders' bytes", text_of(host));
    }
}

/// Decodes the block and `hurt` damaged ones on both sides.
template <scalar_type Type, std::uint32_t Width, class Code>
void compare_decoders(const page_case<Code>& c, const page_on_device<Code>& on, tally& counts,
                      test_rng& rng, const std::vector<std::uint8_t>& block, int hurt)
{
    std::vector<std::vector<std::uint8_t>> blocks(1, block);
    for (int i = 0; i < hurt; ++i) blocks.push_back(damaged(rng, block));
    std::vector<decode_page<Code>> pages;
    std::deque<device_array<std::uint8_t>> ins;
    std::deque<device_array<Code>> outs;
    for (const auto& one : blocks) {
        ins.emplace_back(one);
        outs.emplace_back(c.codes.size());
        pages.push_back({on.spec, ins.back().data(), one.size(), on.predictor,
                         c.box(outs.back().data()), {}});
    }
    const device_array<decode_page<Code>> there(pages);
    const std::string error = launch(
        run_pages<Type, Width, decode_page<Code>>{there.data(), std::uint32_t(pages.size())}, 2,
        64);
    if (!error.empty()) return counts.fail(c.spec, "decode", error);
    pages = there.copy();
    for (std::size_t i = 0; i < pages.size(); ++i) {
        std::vector<Code> codes(c.codes.size());
        const decode_result host = decode<scalar_backend>(
            c.spec, blocks[i].data(), blocks[i].size(), c.host_predictor(), c.box(codes.data()));
        const decode_result device = pages[i].result;
        ++counts.blocks;
        ++counts.statuses[unsigned(host.code) % 16];
        if (!same(host, device))
            counts.fail(c.spec, "decoders' results", text_of(host) + " / " + text_of(device));
        else if (i == 0 && (!host || codes != c.codes))
            counts.fail(c.spec, "the host's own block", text_of(host));
        else if (host && outs[i].copy() != codes)
            counts.fail(c.spec, "decoders' codes", text_of(host));
    }
}

template <scalar_type Type, std::uint32_t Width, class Code>
void compare_page(test_rng& rng, box_size box, data_style style, page_kind kind, int hurt,
                  tally& counts)
{
    const page_case<Code> c = draw_page<Code>(rng, Type, Width, box, style, kind);
    const page_on_device<Code> on(c);
    std::vector<std::uint8_t> block;
    compare_encoders<Type, Width>(c, on, counts, block);
    compare_decoders<Type, Width>(c, on, counts, rng, block, hurt);
}

template <scalar_type Type>
using type_c = std::integral_constant<scalar_type, Type>;
template <std::uint32_t Width>
using width_c = std::integral_constant<std::uint32_t, Width>;

/// Runs f(type, width) for all types by all lane counts; in what nvcc compiles, which takes long,
/// two types by all and the others by those that golden blocks have; under NORMANS_FEW_TYPES two
/// types by 8 and 32, for the sanitizers; under NORMANS_TWO_CODECS one of each.
template <class Function>
void for_codecs(Function f)
{
#if defined(NORMANS_TWO_CODECS)
    f(type_c<scalar_type::e4m3fn>{}, width_c<32>{});
    f(type_c<scalar_type::bf16>{}, width_c<8>{});
#else
    const auto widths = [&](auto type, auto by_1, auto by_16) {
        f(type, width_c<8>{});
        f(type, width_c<32>{});
        if constexpr (by_1()) f(type, width_c<1>{});
        if constexpr (by_16()) f(type, width_c<16>{});
    };
#if defined(NORMANS_FEW_TYPES)
    const std::false_type no;
    widths(type_c<scalar_type::e4m3fn>{}, no, no);
    widths(type_c<scalar_type::bf16>{}, no, no);
#else
#if defined(__CUDACC__)
    const std::false_type unless_nvcc;
#else
    const std::true_type unless_nvcc;
#endif
    const std::true_type yes;
    widths(type_c<scalar_type::e4m3fn>{}, yes, yes);
    widths(type_c<scalar_type::bf16>{}, yes, yes);
    widths(type_c<scalar_type::e5m2>{}, yes, unless_nvcc);
    widths(type_c<scalar_type::e4m3fnuz>{}, unless_nvcc, yes);
    widths(type_c<scalar_type::e5m2fnuz>{}, unless_nvcc, unless_nvcc);
    widths(type_c<scalar_type::fp16>{}, unless_nvcc, yes);
    widths(type_c<scalar_type::raw8>{}, unless_nvcc, unless_nvcc);
#endif
#endif
}

template <scalar_type Type>
using code_of = std::conditional_t<code_bytes(Type) == 1, std::uint8_t, std::uint16_t>;

/// Random blocks of every kind.
inline void compare_random(std::uint64_t seed, int hurt, tally& counts)
{
    for_codecs([&](auto type, auto width) {
        test_rng rng(seed * 1000 + unsigned(type()) * 64 + width());
        const auto page = [&](box_size box, data_style style, page_kind kind) {
            compare_page<type(), width(), code_of<type()>>(rng, box, style, kind, hurt, counts);
        };
        page({1, 1, 1}, data_style::typical, page_kind::drawn);
        page({2, 3, 33}, data_style::typical, page_kind::drawn);
        page({1, 40, 5}, data_style::tails, page_kind::drawn);
        page({2, 4, 64}, data_style::typical, page_kind::drawn);
        page({3, 7, 16}, data_style::sharp, page_kind::drawn);
        page({1, 5, 48}, data_style::mixed, page_kind::drawn);
        page({1, 3, 80}, data_style::dead, page_kind::drawn);
        page({1, 2, 96}, data_style::adversarial, page_kind::drawn);
        page({2, 3, 24}, data_style::typical, page_kind::constant);
        page({2, 3, 24}, data_style::typical, page_kind::predicted);
        page({2, 3, 24}, data_style::typical, page_kind::empty);
    });
}

/// A golden block: encoded to its bytes, decoded to its codes.
inline void compare_golden(const char* path, tally& counts)
{
    normans_test::golden_case golden;
    if (!normans_test::read_case(path, golden)) return counts.fail({}, path, "cannot be read");
    bool ran = false;
    for_codecs([&](auto type, auto width) {
        if (type() != golden.spec.dtype || width() != golden.spec.lanes) return;
        using code = code_of<type()>;
        page_case<code> c;
        c.spec = golden.spec;
        if (!golden.marginal.empty() &&
            make_marginal(golden.marginal.data(), c.marginal) == status::ok)
            c.spec.marginal = &c.marginal;
        c.mean = normans_test::as_floats(golden.mu);
        c.sigma = golden.sigma;
        c.a = normans_test::as_floats(golden.affine_a);
        c.b = normans_test::as_floats(golden.affine_b);
        c.codes.assign(golden.codes.begin(), golden.codes.end());
        const page_on_device<code> on(c);
        std::vector<std::uint8_t> block;
        compare_encoders<type(), width(), code>(c, on, counts, block);
        if (block != golden.block) counts.fail(c.spec, path, "the host's bytes are others");
        test_rng rng(1);
        compare_decoders<type(), width(), code>(c, on, counts, rng, golden.block, 4);
        ran = true;
    });
    if (!ran) counts.fail(golden.spec, path, "its codec is not compiled here");
}

/// Seeds 1 .. argument 1, then golden files. `before` is called with each seed. 0 if all was equal
/// and every mode and the common statuses occurred.
template <class Function>
int run_codec_test(int count, char** arguments, Function before)
{
    tally counts;
    run_cases(count, arguments, before,
              [&](unsigned seed) { compare_random(seed, 8, counts); },
              [&](const char* path) { compare_golden(path, counts); });
    return counts.report(counts.saw(status::corrupt_stream) && counts.saw(status::truncated) &&
                         counts.saw_all_modes());
}

}  // namespace device_test
