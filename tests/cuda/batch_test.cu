// Batches on a stream: results and bytes as the host's, one damaged page of 128, odd entries,
// graphs, packing, refusals.

#include "batch_pages.hpp"

#include <algorithm>
#include <deque>

using namespace device_test;

namespace {

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

// Refusals before any launch.
void refusals()
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
    refusals();
    check(cudaStreamDestroy(stream), "destroy");
    std::printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
