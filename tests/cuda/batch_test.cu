// Batches on a stream: results and bytes as the host's, one damaged page of 128, odd entries, graphs,
// packing, pending errors.

#include "device.cuh"

#include <algorithm>
#include <deque>

#include <normans/cuda/device_codec.cuh>

#include "page_case.hpp"

using namespace device_test;

namespace {

int failures = 0;

void expect(bool right, const char* what)
{
    if (right) return;
    ++failures;
    std::fprintf(stderr, "wrong: %s\n", what);
}

void expect_ok(cudaError_t error, const char* what)
{
    if (error == cudaSuccess) return;
    ++failures;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
}

using predictor = view_predictor<bf16_means, channel_sigmas, channel_affine>;

// Pages of one spec: random contents, a partly filled page now and then.
template <scalar_type Type, std::uint32_t Width, class Code>
struct batch {
    using codec = device_codec<Type, Width>;
    static constexpr std::uint32_t heads = 2, tokens = 6, dim = 32, page = heads * tokens * dim;

    block_spec spec;
    std::uint32_t count;
    std::vector<std::uint32_t> filled;
    std::vector<Code> codes;
    std::vector<std::uint16_t> means;
    std::vector<std::uint8_t> sigmas;
    std::vector<float> a, b;
    std::vector<std::vector<std::uint8_t>> blocks;  // the host's

    batch(std::uint64_t seed, std::uint32_t pages) : count(pages)
    {
        test_rng rng(seed);
        spec.dtype = Type;
        spec.heads = heads;
        spec.tokens = tokens;
        spec.dim = dim;
        spec.lanes = Width;
        spec.row_scale = true;
        spec.parameter_hash = true;
        for (std::uint32_t i = 0; i < heads * dim; ++i) {
            sigmas.push_back(std::uint8_t(100 + rng.below(40)));
            a.push_back(1.0f - float(rng.below(32)) / 512);
            b.push_back(float(rng.below(32)) / 256);
        }
        for (std::uint32_t i = 0; i < count; ++i) {
            filled.push_back(rng.below(8) ? tokens : rng.below(tokens));
            for (std::uint32_t k = 0; k < page; ++k) {
                const auto one = normans_test::draw_scalar(rng, format_of(Type),
                                                           data_style::typical, spec.sigma_offset);
                codes.push_back(Code(one.code));
                means.push_back(std::uint16_t(one.mean >> 16));
            }
        }
        for (std::uint32_t i = 0; i < count; ++i) {
            const block_spec one = spec_of(i);
            blocks.emplace_back(max_encoded_bytes(one));
            const encode_result result =
                encode<scalar_backend>(one, view(codes.data(), i), predict_on(*this, i),
                                       blocks[i].data(), blocks[i].size());
            expect(result.code == status::ok, "the host encodes");
            blocks[i].resize(result.bytes);
        }
    }

    block_spec spec_of(std::uint32_t i) const
    {
        block_spec one = spec;
        one.tokens = filled[i];
        return one;
    }
    // Tokens outermost, as engines lay out pages.
    template <class T>
    static box_view<T> view(T* pool, std::uint32_t i)
    {
        return {pool + std::size_t(i) * page, dim, heads * dim};
    }
    template <class Arrays>
    static predictor predict_on(const Arrays& from, std::uint32_t i)
    {
        return {{from.means.data() + std::size_t(i) * page, dim, heads * dim},
                {from.sigmas.data(), dim},
                {from.a.data(), from.b.data(), dim}};
    }
};

template <class Batch, class Code>
struct arrays_on_device {
    device_array<Code> codes;
    device_array<std::uint16_t> means;
    device_array<std::uint8_t> sigmas;
    device_array<float> a, b;

    explicit arrays_on_device(const Batch& from)
        : codes(from.codes), means(from.means), sigmas(from.sigmas), a(from.a), b(from.b)
    {
    }
};

template <class Code>
bool filled_part_equal(const std::vector<Code>& x, const std::vector<Code>& y, std::uint32_t i,
                       std::uint32_t page, std::uint32_t filled_scalars)
{
    for (std::uint32_t k = 0; k < filled_scalars; ++k)
        if (x[std::size_t(i) * page + k] != y[std::size_t(i) * page + k]) return false;
    return true;
}

template <scalar_type Type, std::uint32_t Width, class Code>
void one_damaged_page(cudaStream_t stream)
{
    using pages = batch<Type, Width, Code>;
    const pages batch(Width + unsigned(Type), 128);
    const arrays_on_device<pages, Code> on(batch);
    constexpr std::uint32_t page = pages::page;
    std::uint32_t hurt = 77;
    while (batch.filled[hurt] != pages::tokens) ++hurt;
    decode_result hosts;
    std::deque<device_array<std::uint8_t>> blocks;
    const device_array<Code> out(batch.codes.size());
    std::vector<decode_entry<Code, predictor>> entries;
    for (std::uint32_t i = 0; i < batch.count; ++i) {
        std::vector<std::uint8_t> block = batch.blocks[i];
        if (i == hurt) {
            block[block.size() - 9] ^= 16;
            std::vector<Code> somewhere(batch.codes.size());
            hosts = decode<scalar_backend>(batch.spec, block.data(), block.size(),
                                           pages::predict_on(batch, i),
                                           pages::view(somewhere.data(), i));
        }
        blocks.emplace_back(block);
        entries.push_back({blocks[i].data(), block.size(), batch.filled[i],
                           pages::predict_on(on, i), pages::view(out.data(), i)});
    }
    const device_array<decode_entry<Code, predictor>> there(entries);
    const device_array<decode_result> results(batch.count);
    expect_ok(pages::codec::decode(batch.spec, there.data(), batch.count, nullptr, results.data(),
                                   stream),
              "decode");
    expect_ok(cudaStreamSynchronize(stream), "the damaged batch");
    const auto codes = out.copy();
    const auto said = results.copy();
    const Code untouched = Code(0x5a5a);
    for (std::uint32_t i = 0; i < batch.count; ++i) {
        const std::uint32_t scalars = batch.filled[i] * pages::heads * pages::dim;
        if (i == hurt) {
            expect(said[i].code == hosts.code && hosts.code != status::ok,
                   "the damaged page has the host's status");
            continue;
        }
        expect(said[i].code == status::ok && said[i].bytes == batch.blocks[i].size() &&
                   filled_part_equal(codes, batch.codes, i, page, scalars),
               "a whole page beside a damaged one");
        for (std::uint32_t k = scalars; k < page; ++k)
            expect(codes[std::size_t(i) * page + k] == untouched, "the tail is left alone");
    }
}

template <scalar_type Type, std::uint32_t Width, class Code>
void encode_and_pack(cudaStream_t stream)
{
    using pages = batch<Type, Width, Code>;
    const pages batch(1000 + Width + unsigned(Type), 40);
    const arrays_on_device<pages, Code> on(batch);
    std::deque<device_array<std::uint8_t>> outs;
    std::vector<encode_entry<Code, predictor>> entries;
    for (std::uint32_t i = 0; i < batch.count; ++i) {
        outs.emplace_back(i == 5 ? 20 : max_encoded_bytes(batch.spec));
        entries.push_back({outs[i].data(), i == 5 ? 20u : max_encoded_bytes(batch.spec),
                           i == 7 ? pages::tokens + 1 : batch.filled[i],
                           pages::predict_on(on, i),
                           pages::view(static_cast<const Code*>(on.codes.data()), i)});
    }
    entries[9].codes.data = nullptr;
    const device_array<encode_entry<Code, predictor>> there(entries);
    const device_array<encode_result> results(batch.count);
    const device_array<std::uint64_t> directory(batch.count + 1);
    const std::size_t room = batch.count * (max_encoded_bytes(batch.spec) + packed_alignment);
    const device_array<std::uint8_t> packed(room);
    expect_ok(pages::codec::encode(batch.spec, there.data(), batch.count, nullptr, results.data(),
                                   stream),
              "encode");
    expect_ok(pages::codec::pack(there.data(), results.data(), batch.count, nullptr,
                                 directory.data(), packed.data(), room, stream),
              "pack");
    expect_ok(cudaStreamSynchronize(stream), "encode and pack");
    const auto said = results.copy();
    const auto at = directory.copy();
    const auto bytes = packed.copy();
    for (std::uint32_t i = 0; i < batch.count; ++i) {
        const bool too_small = i == 5 && batch.blocks[5].size() > 20;
        if (too_small || i == 7 || (i == 9 && batch.filled[9] != 0)) {
            expect(said[i].code ==
                       (too_small ? status::output_too_small : status::bad_argument),
                   "odd entries have their status");
            expect(at[i + 1] == at[i], "and take no room");
            continue;
        }
        const std::vector<std::uint8_t>& host = batch.blocks[i];
        expect(said[i].code == status::ok && said[i].bytes == host.size(), "size of a block");
        expect(at[i] % packed_alignment == 0 && at[i + 1] - at[i] >= host.size() &&
                   std::equal(host.begin(), host.end(), bytes.begin() + ptrdiff_t(at[i])),
               "a packed block is the host's");
    }
}

// The same graph with other contents and fewer pages.
void graph_replay()
{
    constexpr scalar_type type = scalar_type::e4m3fn;
    using pages = batch<type, 8, std::uint8_t>;
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    const std::uint32_t count = 24, capacity = 1024;
    const device_array<decode_entry<std::uint8_t, predictor>> there(count);
    const device_array<decode_result> results(count);
    const device_array<std::uint32_t> valid(1);
    const device_array<std::uint8_t> out(count * pages::page), pool(count * capacity);
    pages any(1, 1);

    cudaGraph_t graph;
    cudaGraphExec_t run;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    expect_ok(pages::codec::decode(any.spec, there.data(), count, valid.data(), results.data(),
                                   stream),
              "captured decode");
    check(cudaStreamEndCapture(stream, &graph), "end of capture");
    check(cudaGraphInstantiate(&run, graph, 0), "instantiate");
    for (std::uint32_t round = 0; round < 4; ++round) {
        const pages batch(50 + round, count);
        const arrays_on_device<pages, std::uint8_t> on(batch);
        const std::uint32_t now = count - 5 * round;
        std::vector<decode_entry<std::uint8_t, predictor>> entries;
        for (std::uint32_t i = 0; i < count; ++i) {
            expect(batch.blocks[i].size() <= capacity, "room in the pool");
            check(cudaMemcpy(pool.data() + i * capacity, batch.blocks[i].data(),
                             batch.blocks[i].size(), cudaMemcpyHostToDevice),
                  "blocks");
            entries.push_back({pool.data() + i * capacity, capacity, batch.filled[i],
                               pages::predict_on(on, i), pages::view(out.data(), i)});
        }
        check(cudaMemcpy(there.data(), entries.data(), count * sizeof entries[0],
                         cudaMemcpyHostToDevice),
              "entries");
        check(cudaMemcpy(valid.data(), &now, sizeof now, cudaMemcpyHostToDevice), "valid");
        check(cudaMemset(out.data(), 0x5a, count * pages::page), "out");
        check(cudaMemset(results.data(), 0xff, count * sizeof(decode_result)), "results");
        check(cudaDeviceSynchronize(), "set up");
        check(cudaGraphLaunch(run, stream), "replay");
        check(cudaStreamSynchronize(stream), "replay");
        const auto codes = out.copy();
        const auto said = results.copy();
        for (std::uint32_t i = 0; i < count; ++i) {
            if (i >= now) {
                expect(codes[i * pages::page] == 0x5a && unsigned(said[i].code) == 0xff,
                       "behind the valid pages nothing is touched");
                continue;
            }
            expect(said[i].code == status::ok &&
                       filled_part_equal(codes, batch.codes, i, pages::page,
                                         batch.filled[i] * pages::heads * pages::dim),
                   "a page of a replay");
        }
    }
    check(cudaGraphExecDestroy(run), "destroy");
    check(cudaGraphDestroy(graph), "destroy");
    check(cudaStreamDestroy(stream), "destroy");
}

// Errors that others left are neither taken nor added to.
void pending_errors()
{
    using codec = device_codec<scalar_type::e4m3fn, 8>;
    using entry = decode_entry<std::uint8_t, predictor>;
    const device_array<entry> entries(1);
    const device_array<decode_result> results(1);
    block_spec spec;
    spec.dim = 32;
    expect(codec::supports(spec).ok, "a plain spec is supported");
    spec.lanes = 32;
    expect(!codec::supports(spec).ok && codec::supports(spec).reason[0] != 0, "and why not");
    expect(codec::decode(spec, entries.data(), 1, nullptr, results.data(), nullptr) ==
               cudaErrorInvalidValue,
           "an unsupported spec is refused");
    expect(codec::decode(block_spec{}, static_cast<const entry*>(nullptr), 1, nullptr,
                         results.data(), nullptr) == cudaErrorInvalidValue,
           "null entries are refused");
    expect(cudaPeekAtLastError() == cudaSuccess, "our refusals leak nothing");
    expect(codec::workspace_bytes(spec, 1) <= 4096, "workspace");

    spec.lanes = 8;
    const std::uint32_t none = 0;
    const device_array<std::uint32_t> valid(std::vector<std::uint32_t>(1, none));
    expect(cudaMemset(nullptr, 0, std::size_t(1) << 60) != cudaSuccess, "an error of others");
    expect_ok(codec::decode(spec, entries.data(), 1, valid.data(), results.data(), nullptr),
              "decode beside a pending error");
    expect(cudaGetLastError() != cudaSuccess, "the pending error is kept");
    expect_ok(cudaDeviceSynchronize(), "synchronise");
}

}  // namespace

int main()
{
    if (!there_is_a_device()) return 0;
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    one_damaged_page<scalar_type::e4m3fn, 32, std::uint8_t>(stream);
    one_damaged_page<scalar_type::bf16, 8, std::uint16_t>(stream);
    encode_and_pack<scalar_type::e4m3fn, 8, std::uint8_t>(stream);
    encode_and_pack<scalar_type::bf16, 32, std::uint16_t>(stream);
    graph_replay();
    pending_errors();
    check(cudaStreamDestroy(stream), "destroy");
    std::printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
