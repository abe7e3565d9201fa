// Attention over compressed pages beside its twin over plain ones: equal bits, whatever the shape,
// layout and head group; near to what double precision says; a page that does not decode costs its
// sequence's head and nobody else anything.
// usage: attention_test drawn SHAPE... | real CACHE PROFILE | stores

#include <algorithm>
#include <cmath>

#include <normans/cuda/paged_attention.cuh>

#include "attention_case.hpp"
#include "attention_shapes.cuh"
#include "device.cuh"

NORMANS_TEST_TWINS(extern template)

namespace {

using namespace attention_test;
using device_test::check;
using device_test::device_array;

int failures = 0;

void expect(bool right, const attention_case& c, const char* what)
{
    if (right || ++failures > 20) return;
    std::fprintf(stderr, "wrong: %s x %u, %u tokens a page, group %u, %s: %s\n",
                 scalar_name(c.spec.dtype), c.spec.dim, c.spec.tokens, c.group,
                 c.by_head ? "HND" : "NHD", what);
}

// What a launch needs is known when it is compiled.
static_assert(attention_shared_bytes<fp8_64>(raw_pool<uint8_t>{}) < 48 * 1024);

constexpr float score_scale = 0.125f, value_scale = 0.5f;

/// What a call left behind: outputs as bits, with a margin at the end that is nobody's.
struct outcome {
    std::vector<uint32_t> out;
    std::vector<attention_result> results;
};

constexpr std::size_t behind = 64;
constexpr int untouched = 0x5a;

/// A case's arrays on the device.
template <class Code>
struct on_device {
    device_array<uint16_t> queries, key_means, value_means;
    device_array<uint8_t> keys, values, arena, key_sigmas, value_sigmas;
    device_array<float> key_a, key_b, value_a, value_b;
    device_array<int32_t> table;
    device_array<uint32_t> lengths;
    std::vector<coded_block> host_blocks;
    device_array<float> out;
    device_array<attention_result> results;

    explicit on_device(const attention_case& c)
        : queries(c.queries), key_means(c.mean_pool[0]), value_means(c.mean_pool[1]),
          keys(c.pool[0]), values(c.pool[1]), arena(c.arena), key_sigmas(c.content.sigmas[0]),
          value_sigmas(c.content.sigmas[1]), key_a(c.content.a[0]), key_b(c.content.b[0]),
          value_a(c.content.a[1]), value_b(c.content.b[1]), table(c.table), lengths(c.lengths),
          out(c.outputs() + behind, untouched), results(c.lengths.size() * c.kv_heads)
    {
        for (std::size_t i = 0; i < c.offset.size(); ++i)
            host_blocks.push_back({arena.data() + c.offset[i], c.bytes[i]});
    }

    attention_batch batch(const attention_case& c) const
    {
        return {queries.data(), out.data(), results.data(), table.data(), lengths.data(),
                uint32_t(c.lengths.size()), c.kv_heads, c.group, c.table_stride, c.pool_pages,
                score_scale, value_scale};
    }
    static page_strides strides(const attention_case& c)
    {
        return c.by_head ? page_strides::hnd(c.spec.tokens, c.kv_heads, c.spec.dim)
                         : page_strides::nhd(c.spec.tokens, c.kv_heads, c.spec.dim);
    }
    paged_means means(const attention_case& c) const
    {
        return {{key_means.data(), key_sigmas.data(), key_a.data(), key_b.data()},
                {value_means.data(), value_sigmas.data(), value_a.data(), value_b.data()},
                strides(c), c.spec.dim};
    }
    raw_pool<Code> raw(const attention_case& c) const
    {
        return {reinterpret_cast<const Code*>(keys.data()),
                reinterpret_cast<const Code*>(values.data()), strides(c)};
    }
    outcome now() const
    {
        check(cudaDeviceSynchronize(), "attention");
        outcome seen;
        for (const float one : out.copy()) seen.out.push_back(float_to_bits(one));
        seen.results = results.copy();
        return seen;
    }
};

template <class Shape, uint32_t Width>
outcome attend_coded(const attention_case& c, const on_device<typename Shape::code>& on)
{
    const device_array<coded_block> blocks(on.host_blocks);
    const coded_pool<Width, paged_means> pages{c.spec, blocks.data(), c.largest, on.means(c)};
    check(decode_attention<Shape>(on.batch(c), pages, nullptr), "coded pages");
    return on.now();
}

template <class Shape>
outcome attend_raw(const attention_case& c, const on_device<typename Shape::code>& on)
{
    check(decode_attention<Shape>(on.batch(c), on.raw(c), nullptr), "raw pages");
    return on.now();
}

bool all_ok(const outcome& seen)
{
    bool ok = true;
    for (const attention_result& one : seen.results)
        ok = ok && one.code == status::ok && one.page == 0;
    return ok;
}

bool nothing_behind(const attention_case& c, const outcome& seen)
{
    bool clean = true;
    for (std::size_t i = 0; i < behind; ++i)
        clean = clean && seen.out[c.outputs() + i] == 0x5a5a5a5au;
    return clean;
}

void expect_near_reference(const attention_case& c, const outcome& seen, attention_math math)
{
    std::vector<double> right, margin;
    // Tensor cores take weights of 8 bits.
    reference(c, score_scale, value_scale, math == attention_math::tensor ? 0x1p-9 : 0, right,
              margin);
    double worst = 0;
    std::size_t nans = 0, misplaced = 0;
    for (std::size_t i = 0; i < right.size(); ++i) {
        const double out = double(bits_to_float(seen.out[i]));
        if (std::isnan(right[i]) || std::isnan(out)) {
            ++nans;
            if (!std::isnan(right[i]) || !std::isnan(out)) ++misplaced;
            continue;
        }
        const double off = std::fabs(out - right[i]);
        worst = std::max(worst, off == 0 ? 0 : off / margin[i]);
    }
    expect(worst <= 1, c, "outputs near those in double");
    expect(misplaced == 0 && nans < right.size() / 4, c, "a NaN where it belongs");
}

template <class Shape, uint32_t Width>
void compare(const attention_case& c)
{
    const on_device<typename Shape::code> coded(c), plain(c);
    const outcome x = attend_coded<Shape, Width>(c, coded), y = attend_raw<Shape>(c, plain);
    expect(all_ok(x) && all_ok(y), c, "all decode");
    expect(x.out == y.out, c, "bits equal the twin's");
    expect(nothing_behind(c, x) && nothing_behind(c, y), c, "nothing is written behind outputs");
    expect_near_reference(c, x, Shape::math);
}

// Everything that can be wrong with a page, one at a time; then all at once, where what is whole
// must be as it was.
template <class Shape, uint32_t Width>
void damage(attention_case c)
{
    const on_device<typename Shape::code> whole(c);
    const outcome good = attend_coded<Shape, Width>(c, whole);
    const auto page_of = [&](uint32_t sequence, uint32_t i) {
        return uint32_t(c.table[sequence * c.table_stride + i]);
    };
    std::vector<attention_result> expected(good.results);
    const auto fails = [&](uint32_t sequence, uint32_t head, status code, uint32_t page) {
        expected[sequence * c.kv_heads + head] = {code, page};
    };
    // Sequence 0, head 1: a bit of V's block of page 1, after the header. The page is sequence 4's,
    // too.
    const std::size_t hurt = c.block_of(page_of(0, 1), 1, 1);
    c.arena[c.offset[hurt] + c.bytes[hurt] / 2] ^= 0x10;
    const status said = host_status(c, page_of(0, 1), 1, 1, c.spec.tokens);
    expect(said == status::corrupt_stream || said == status::content_mismatch, c, "damage shows");
    fails(0, 1, said, 1);
    fails(4, 1, said, 1);
    // Sequence 2: one token's K cut short in head 0, V of another length in head 1.
    const std::size_t cut = c.block_of(page_of(2, 0), 0, 0);
    c.bytes[cut] -= 4;
    fails(2, 0, status::truncated, 0);
    const std::size_t longer = c.block_of(page_of(2, 0), 1, 1);
    c.offset[longer] = c.offset[c.block_of(page_of(3, 0), 1, 1)];
    c.bytes[longer] = c.bytes[c.block_of(page_of(3, 0), 1, 1)];
    fails(2, 1, status::wrong_count, 0);
    on_device<typename Shape::code> on(c);
    const auto expect_outcome = [&](const outcome& seen, const char* what) {
        bool statuses = true, outputs = true;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            statuses = statuses && seen.results[i].code == expected[i].code &&
                       seen.results[i].page == expected[i].page;
            const std::size_t each = c.group * c.spec.dim;
            for (std::size_t k = i * each; k < (i + 1) * each; ++k)
                outputs = outputs && seen.out[k] == (expected[i].code == status::ok
                                                         ? good.out[k]
                                                         : 0x7fffffffu);
        }
        expect(statuses, c, what);
        expect(outputs && nothing_behind(c, seen), c, what);
    };
    expect_outcome(attend_coded<Shape, Width>(c, on), "damaged blocks");

    // Descriptors: K's and V's are both wrong where K's is told.
    on.host_blocks[c.block_of(page_of(3, 1), 0, 0)].data = nullptr;
    fails(3, 0, status::bad_argument, 1);
    on.host_blocks[c.block_of(page_of(3, 1), 1, 0)].data += 4;
    on.host_blocks[c.block_of(page_of(3, 1), 1, 1)].bytes = 1;
    fails(3, 1, status::bad_argument, 1);
    on.host_blocks[c.block_of(page_of(0, 0), 0, 1)].bytes = uint64_t(1) << 32;
    fails(0, 0, status::output_too_small, 0);
    fails(4, 0, status::output_too_small, 0);
    expect_outcome(attend_coded<Shape, Width>(c, on), "descriptors");

    // Tables, on both sides. Sequence 4's third page is behind its damaged second one, if that is.
    attention_case b = c;
    b.table[0 * b.table_stride + 1] = -1;
    b.table[2 * b.table_stride] = int32_t(b.pool_pages);
    b.table[3 * b.table_stride + 1] = int32_t(0x80000000u);
    b.lengths[1] = b.table_stride * b.spec.tokens + 1;
    std::fill_n(b.table.begin() + b.table_stride, b.table_stride, b.table[3 * b.table_stride]);
    for (uint32_t head = 0; head < b.kv_heads; ++head) {
        for (const uint32_t sequence : {0u, 3u}) fails(sequence, head, status::bad_argument, 1);
        for (const uint32_t sequence : {1u, 2u}) fails(sequence, head, status::bad_argument, 0);
        expected[4 * c.kv_heads + head] = good.results[4 * c.kv_heads + head];
    }
    const on_device<typename Shape::code> other(b);
    expect_outcome(attend_raw<Shape>(b, other), "the twin's table");
    fails(4, 1, said, 1);
    expect_outcome(attend_coded<Shape, Width>(b, other), "a table");
    b.table.swap(c.table);  // as if nothing had been
    b.lengths[1] = 0;
    const on_device<typename Shape::code> again(b);
    expect(attend_raw<Shape>(b, again).out == good.out, b, "the context is alive");
}

// What the host can see to be wrong is refused; a captured call does when replayed what it does.
template <class Shape, uint32_t Width>
void refusals_and_capture(const attention_case& c)
{
    using code = typename Shape::code;
    const on_device<code> on(c), later(c);
    const outcome right = attend_coded<Shape, Width>(c, on);
    const device_array<coded_block> blocks(later.host_blocks);
    const coded_pool<Width, paged_means> good{c.spec, blocks.data(), c.largest, later.means(c)};
    const auto refused = [&](const attention_batch& batch, const auto& pages) {
        expect(decode_attention<Shape>(batch, pages, nullptr) == cudaErrorInvalidValue, c,
               "a refusal");
    };
    attention_batch batch = later.batch(c);
    batch.group = Shape::group + 1;
    refused(batch, good);
    batch.group = 0;
    refused(batch, good);
    batch = later.batch(c);
    batch.table = nullptr;
    refused(batch, good);
    batch = later.batch(c);
    coded_pool<Width, paged_means> pages = good;
    pages.spec.heads = 2;
    refused(batch, pages);
    pages = good;
    pages.spec.tokens += 1;
    refused(batch, pages);
    pages = good;
    pages.largest = 4;
    refused(batch, pages);
    raw_pool<code> plain = later.raw(c);
    plain.strides.token += 1;
    refused(batch, plain);
    plain = later.raw(c);
    plain.values += 1;
    refused(batch, plain);
    if constexpr (std::is_same_v<Shape, fp8_64>) {  // more shared memory than any device has
        using huge = attention_shape<code, Shape::dim, 8, 256, 8>;
        expect(decode_attention<huge>(later.batch(c), later.raw(c), nullptr) != cudaSuccess, c,
               "too much");
        expect(cudaPeekAtLastError() == cudaSuccess, c, "what was returned is not pending");
    }
    batch.sequences = 0;
    expect(decode_attention<Shape>(batch, good, nullptr) == cudaSuccess, c, "nothing to do");
    check(cudaDeviceSynchronize(), "nothing was launched");
    expect(later.now().out == std::vector<uint32_t>(right.out.size(), 0x5a5a5a5au), c,
           "nothing was written");

    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t instance;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    check(decode_attention<Shape>(later.batch(c), good, stream), "captured");
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&instance, graph, 0), "graph");
    check(cudaGraphLaunch(instance, stream), "replay");
    check(cudaStreamSynchronize(stream), "replay");
    expect(later.now().out == right.out, c, "a replay is equal");
    check(cudaGraphExecDestroy(instance), "graph");
    check(cudaGraphDestroy(graph), "graph");
    check(cudaStreamDestroy(stream), "stream");
}

template <class Shape, uint32_t Width>
void drawn(scalar_type type, uint64_t seed)
{
    attention_case c = drawn_case(seed, type, Shape::dim, Shape::page_tokens, Width);
    bool by_head = false;
    for (const uint32_t group : {1u, 3u, 4u, 8u, 16u}) {
        if (group > Shape::group || (group == 3 && Shape::dim == 128)) continue;
        c.lay_out(by_head, group);
        by_head = !by_head;
        compare<Shape, Width>(c);
    }
    damage<Shape, Width>(c);
    refusals_and_capture<Shape, Width>(c);
}

template <class Shape, uint32_t Width>
int real(scalar_type type, char** files)
{
    int layers = 0;
    for (attention_case& c : real_layers(type, files[0], files[1], Shape::page_tokens, Width)) {
        c.lay_out(layers % 2 != 0, 3);
        compare<Shape, Width>(c);
        ++layers;
    }
    std::printf("%s: outputs of %d layers equal the twin's\n", scalar_name(type), layers);
    return layers;
}

// A compressed and a plain launch whose stores somebody counts. Says how many bytes each may store
// in global memory, and how many of shared memory its blocks have.
template <class Shape, uint32_t Width>
void stores(scalar_type type)
{
    attention_case c = drawn_case(5, type, Shape::dim, Shape::page_tokens, Width);
    c.lay_out(false, Shape::group);
    const on_device<typename Shape::code> on(c);
    expect(all_ok(attend_coded<Shape, Width>(c, on)) && all_ok(attend_raw<Shape>(c, on)), c,
           "all decode");
    coded_pool<Width, paged_means> pages{c.spec, nullptr, c.largest, {}};
    std::printf("%s x %u, %u query heads, %u pages of %u tokens a tile, %u lanes: %zu bytes "
                "stored, shared memory %u coded %u plain",
                scalar_name(type), c.spec.dim, c.group, Shape::tile_pages, c.spec.tokens, Width,
                c.outputs() * 4 + c.lengths.size() * c.kv_heads * 5,
                attention_shared_bytes<Shape>(pages), attention_shared_bytes<Shape>(on.raw(c)));
    pages.largest = uint32_t(max_encoded_bytes(c.spec));
    std::printf(", at most %u\n", attention_shared_bytes<Shape>(pages));
}

}  // namespace

int main(int count, char** arguments)
{
    if (!device_test::there_is_a_device()) return 0;
    const std::string what = count > 1 ? arguments[1] : "";
    if (what == "drawn" && count > 2) {
        for (int i = 2; i < count; ++i) {
            const std::string shape = arguments[i];
            if (shape == "fp8_64") drawn<fp8_64, 32>(scalar_type::e4m3fn, 1);
            else if (shape == "fp8_128") drawn<fp8_128, 8>(scalar_type::e4m3fn, 2);
            else if (shape == "bf16_64") drawn<bf16_64, 32>(scalar_type::bf16, 3);
            else if (shape == "bf16_128") drawn<bf16_128, 8>(scalar_type::bf16, 4);
            else if (shape == "fp8_64_tensor") drawn<fp8_64_tensor, 32>(scalar_type::e4m3fn, 5);
            else if (shape == "bf16_128_tensor") drawn<bf16_128_tensor, 8>(scalar_type::bf16, 6);
            else return 2;
        }
    } else if (what == "real" && count > 3) {
        const int layers = real<fp8_64, 32>(scalar_type::e4m3fn, arguments + 2) +
                           real<bf16_64, 32>(scalar_type::bf16, arguments + 2);
        if (layers == 0) return std::printf("skipped: no reader of files\n") < 0;
    } else if (what == "stores") {
        stores<fp8_64, 32>(scalar_type::e4m3fn);
        stores<fp8_128, 8>(scalar_type::e4m3fn);
        stores<bf16_64, 32>(scalar_type::bf16);
        stores<bf16_128, 8>(scalar_type::bf16);
    } else return 2;
    std::fprintf(stderr, "%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
