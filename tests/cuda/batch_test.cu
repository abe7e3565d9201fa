// Batches on a stream: results and bytes as the host's, one damaged page of 128, odd entries,
// graphs, packing, pages of a store, refusals, branches, intrinsics, views along rows.

#include "device.cuh"

#include <normans/paged/page_places.hpp>

#include <algorithm>

#include "batch_cases.hpp"
#include "intrinsic_cases.hpp"
#include "row_cases.hpp"

using namespace device_test;

namespace {

// Blocks in a paged store of the host, its memory copied to the device as it is: what find() says is
// an entry.
void pages_of_a_store(cudaStream_t stream)
{
    using pages = batch<scalar_type::e4m3fn, 32, std::uint8_t>;
    const pages batch(9, 20);
    const arrays_on_device<pages, std::uint8_t> on(batch);
    page_part part;
    part.spec = batch.spec;
    part.row_bytes = 4;
    std::vector<std::size_t> sizes;
    for (const auto& block : batch.blocks) sizes.push_back(block.size());
    std::sort(sizes.begin(), sizes.end());
    part.slot_bytes = std::uint32_t(arena_room(sizes[sizes.size() / 2] + 48));  // with row bytes
    paged_geometry g;
    g.parts = &part;
    g.part_count = 1;
    g.pages = batch.count;
    g.page_tokens = pages::tokens;
    g.arena_bytes = 1 << 14;
    std::vector<std::uint8_t> directory(page_places::directory_bytes(g));
    std::vector<std::uint8_t> memory(page_places::memory_bytes(g));
    const std::vector<std::uint8_t> rows(pages::heads * pages::tokens * part.row_bytes, 0xff);
    page_places store;
    expect(store.create(g, directory.data(), memory.data()) == status::ok, "a store");
    const auto physical = [&](std::uint32_t i) { return std::int32_t(batch.count - 1 - i); };
    for (std::uint32_t i = 0; i < batch.count; ++i)
        if (batch.filled[i] != 0)
            expect(store.put(0, physical(i), 0, batch.filled[i], batch.blocks[i].data(),
                             batch.blocks[i].size(), rows.data()) == status::ok,
                   "the store takes a block");

    const device_array<std::uint8_t> there(memory), out(batch.codes.size());
    std::vector<decode_entry<std::uint8_t, predictor>> entries;
    std::vector<std::uint32_t> logical;
    std::uint32_t overflows = 0;
    for (std::uint32_t i = 0; i < batch.count; ++i) {
        const group_place place = store.find(0, physical(i), 0);
        expect(place.code == status::ok && place.tokens == batch.filled[i], "a place");
        if (place.tokens == 0) continue;
        overflows += place.overflow;
        logical.push_back(i);
        entries.push_back({there.data() + place.at, place.bytes, place.tokens,
                           batch.predict_on(on, i), pages::view(out.data(), i)});
    }
    expect(overflows != 0 && overflows != logical.size(), "some in slots, some not");
    const device_array<decode_entry<std::uint8_t, predictor>> on_device(entries);
    const device_array<decode_result> results(entries.size());
    expect_ok(pages::codec::decode(batch.spec, on_device.data(), std::uint32_t(entries.size()),
                                   nullptr, results.data(), stream),
              "decode from a store");
    expect_ok(cudaStreamSynchronize(stream), "decode from a store");
    const auto said = results.copy();
    const auto codes = out.copy();
    for (std::size_t k = 0; k < said.size(); ++k) {
        const std::uint32_t i = logical[k];
        expect(said[k].code == status::ok && said[k].bytes == entries[k].bytes &&
                   filled_part_equal(codes, batch.codes, i, pages::page,
                                     batch.filled[i] * pages::heads * pages::dim),
               "a page of a store");
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
                               batch.predict_on(on, i), pages::view(out.data(), i)});
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
    block_spec other = spec, impossible = spec;
    other.dtype = scalar_type::bf16;
    impossible.lanes = 0;
    impossible.tokens = impossible.heads = impossible.dim = 1u << 16;
    expect(!codec::supports(other).ok && !codec::supports(impossible).ok &&
               codec::supports(other).reason != codec::supports(spec).reason &&
               codec::supports(impossible).reason != codec::supports(spec).reason,
           "each for its own reason");
    expect(codec::decode(spec, entries.data(), 1, nullptr, results.data(), nullptr) ==
               cudaErrorInvalidValue,
           "an unsupported spec is refused");
    spec.lanes = 8;
    const tans_bank bank{{}, nullptr, nullptr, nullptr, nullptr, scalar_type::e4m3fn};
    spec.bank = &bank;
    expect(codec::supports(spec).ok, "a bank that nobody uses");
    spec.coder = coder_id::tans;
    expect(detail::check_spec(spec) == status::ok && !codec::supports(spec).ok,
           "tANS is the host's");
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
    one_damaged_page<scalar_type::e4m3fn, 32, std::uint8_t>(stream, false);
    one_damaged_page<scalar_type::bf16, 8, std::uint16_t>(stream, true);
    encode_and_pack<scalar_type::e4m3fn, 8, std::uint8_t>(stream, true);
    encode_and_pack<scalar_type::bf16, 32, std::uint16_t>(stream, false);
    large_directory(stream);
    divergent_warps();
    failures += compare_intrinsics();
    failures += compare_rows(1);
    pages_of_a_store(stream);
    graph_replay();
    refusals();
    check(cudaStreamDestroy(stream), "destroy");
    std::printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
