#pragma once
// What batches do on any device, be it played by a GPU or by fibers.

#include "batch_pages.hpp"

#include <algorithm>
#include <deque>

namespace device_test {

using fp8_pages = batch<scalar_type::e4m3fn, 8, std::uint8_t>;
using fp8_decode = decode_entry<std::uint8_t, predictor>;

/// 127 pages are exact, the damaged one has the host's status.
template <scalar_type Type, std::uint32_t Width, class Code>
void one_damaged_page(cudaStream_t stream, bool mapped)
{
    using pages = batch<Type, Width, Code>;
    const pages batch(Width + unsigned(Type), 128, mapped);
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
                                           batch.host_predictor(i),
                                           pages::view(somewhere.data(), i));
        }
        blocks.emplace_back(block);
        entries.push_back({blocks[i].data(), block.size(), batch.filled[i],
                           batch.predict_on(on, i), pages::view(out.data(), i)});
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

/// The host's bytes, one block behind the other; entries that cannot be encoded have their status.
template <scalar_type Type, std::uint32_t Width, class Code>
void encode_and_pack(cudaStream_t stream, bool mapped)
{
    using pages = batch<Type, Width, Code>;
    const pages batch(1000 + Width + unsigned(Type), 40, mapped);
    const arrays_on_device<pages, Code> on(batch);
    std::deque<device_array<std::uint8_t>> outs;
    std::vector<encode_entry<Code, predictor>> entries;
    for (std::uint32_t i = 0; i < batch.count; ++i) {
        outs.emplace_back(i == 5 ? 20 : max_encoded_bytes(batch.spec));
        entries.push_back({outs[i].data(), i == 5 ? 20u : max_encoded_bytes(batch.spec),
                           i == 7 ? pages::tokens + 1 : batch.filled[i],
                           batch.predict_on(on, i),
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

// Logical warps of 8 in branches of their own: some encode, some decode, some have left.
struct either_way {
    using codec = warp_codec<scalar_type::e4m3fn, 8>;
    block_spec spec;
    const encode_entry<std::uint8_t, predictor>* to_encode;
    const fp8_decode* to_decode;
    std::uint32_t count;
    encode_result* encoded;
    decode_result* decoded;

    __device__ void operator()() const
    {
        auto& tables = shared_variable<codec::TempStorage>();
        codec::prepare(tables, spec, threadIdx.x, blockDim.x);
        __syncthreads();
        const std::uint32_t i = threadIdx.x / 8;
        if (i >= count) return;
        block_spec mine = spec;
        if (i % 2 == 0) {
            mine.tokens = to_encode[i].tokens;
            const encode_result result = codec(tables).encode(
                mine, box_source<std::uint8_t>{to_encode[i].codes}, to_encode[i].predictor,
                to_encode[i].out, std::size_t(to_encode[i].capacity));
            if (threadIdx.x % 8 == 0) encoded[i] = result;
        } else {
            mine.tokens = to_decode[i].tokens;
            const decode_result result = codec(tables).decode(
                mine, to_decode[i].block, std::size_t(to_decode[i].bytes), to_decode[i].predictor,
                box_sink<std::uint8_t>{to_decode[i].out});
            if (threadIdx.x % 8 == 0) decoded[i] = result;
        }
    }
};

/// Encoders and decoders side by side in one warp.
inline void divergent_warps()
{
    constexpr std::uint32_t count = 12, threads = 8 * 13;  // the last CUDA warp is no whole one
    const fp8_pages pages(800, count);
    const arrays_on_device<fp8_pages, std::uint8_t> on(pages);
    const std::size_t room = max_encoded_bytes(pages.spec);
    const device_array<std::uint8_t> slots(count * room), back(pages.codes.size());
    std::deque<device_array<std::uint8_t>> blocks;
    std::vector<encode_entry<std::uint8_t, predictor>> to_encode;
    std::vector<fp8_decode> to_decode;
    for (std::uint32_t i = 0; i < count; ++i) {
        blocks.emplace_back(pages.blocks[i]);
        to_encode.push_back(
            {slots.data() + i * room, room, pages.filled[i], pages.predict_on(on, i),
             fp8_pages::view(static_cast<const std::uint8_t*>(on.codes.data()), i)});
        to_decode.push_back({blocks[i].data(), pages.blocks[i].size(), pages.filled[i],
                             pages.predict_on(on, i), fp8_pages::view(back.data(), i)});
    }
    const device_array<encode_entry<std::uint8_t, predictor>> encode_there(to_encode);
    const device_array<fp8_decode> decode_there(to_decode);
    const device_array<encode_result> encoded(count);
    const device_array<decode_result> decoded(count);
    const std::string error = launch(either_way{pages.spec, encode_there.data(),
                                                decode_there.data(), count, encoded.data(),
                                                decoded.data()},
                                     1, threads);
    expect(error.empty(), error.c_str());
    const auto made = slots.copy(), codes = back.copy();
    const auto encoded_there = encoded.copy();
    const auto decoded_there = decoded.copy();
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::vector<std::uint8_t>& block = pages.blocks[i];
        if (i % 2 == 0)
            expect(encoded_there[i].code == status::ok &&
                       std::equal(block.begin(), block.end(),
                                  made.begin() + ptrdiff_t(i * room)),
                   "a block encoded beside decoders");
        else
            expect(decoded_there[i].code == status::ok &&
                       filled_part_equal(codes, pages.codes, i, fp8_pages::page,
                                         pages.filled[i] * fp8_pages::heads * fp8_pages::dim),
                   "a page decoded beside encoders");
    }
}

/// Offsets behind 2^32, and more pages than the scan has threads.
inline void large_directory(cudaStream_t stream)
{
    constexpr std::uint32_t count = 3000;
    std::vector<encode_result> results(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        results[i].code = i % 7 == 3 ? status::output_too_small : status::ok;
        results[i].bytes = (std::size_t(1) << 31) + i * 4;
    }
    const device_array<encode_result> there(results);
    const device_array<std::uint64_t> directory(count + 1);
    expect_ok(normans::detail::launch(normans::detail::offsets_of, 1, 1024, stream,
                                      static_cast<const encode_result*>(there.data()), count,
                                      static_cast<const std::uint32_t*>(nullptr),
                                      directory.data()),
              "offsets");
    expect_ok(cudaStreamSynchronize(stream), "a large directory");
    const auto at = directory.copy();
    std::uint64_t should = 0;
    bool right = true;
    for (std::uint32_t i = 0; i < count; ++i) {
        right = right && at[i] == should;
        if (results[i].code == status::ok) should += (results[i].bytes + 15) / 16 * 16;
    }
    expect(right && at[count] == should, "offsets of blocks");
}

/// Entries as a padded batch has them: no page, no block, no tokens, too many, one page twice.
inline void padded_batch()
{
    constexpr std::uint32_t count = 9;
    fp8_pages pages(500, count);
    const arrays_on_device<fp8_pages, std::uint8_t> on(pages);
    const std::size_t room = max_encoded_bytes(pages.spec);
    std::vector<std::uint8_t> all(count * room);
    for (std::uint32_t i = 0; i < count; ++i)
        std::copy(pages.blocks[i].begin(), pages.blocks[i].end(),
                  all.begin() + ptrdiff_t(i * room));
    const device_array<std::uint8_t> blocks(all), back(pages.codes.size());
    std::vector<fp8_decode> entries;
    for (std::uint32_t i = 0; i < count; ++i)
        entries.push_back({blocks.data() + i * room, room, pages.filled[i],
                           pages.predict_on(on, i), fp8_pages::view(back.data(), i)});
    entries[0].out.data = nullptr;               // no page
    entries[1].block = nullptr;                  // no block
    entries[2].tokens = fp8_pages::tokens + 1;   // more than a page
    entries[3].tokens = 0;                       // empty, and the block is not
    entries[4].bytes = 0;
    entries[6].block = entries[5].block;         // a block twice, to two pages
    entries[6].predictor = entries[5].predictor;
    entries[6].tokens = entries[5].tokens;
    entries[7] = {nullptr, 0, 0, entries[7].predictor, {nullptr, 0, 0}};  // nothing at all
    const device_array<fp8_decode> there(entries);
    const device_array<decode_result> results(count);
    expect_ok(fp8_pages::codec::decode(pages.spec, there.data(), count, nullptr, results.data(),
                                       nullptr),
              "decode");
    expect_ok(cudaDeviceSynchronize(), "a padded batch");
    const auto said = results.copy();
    const auto codes = back.copy();
    const status expected[count] = {
        pages.filled[0] == 0 ? status::ok : status::bad_argument, status::truncated,
        status::bad_argument, pages.filled[3] == 0 ? status::ok : status::wrong_count,
        status::truncated, status::ok, status::ok, status::truncated, status::ok};
    std::vector<std::uint8_t> should(pages.codes.size(), 0x5a);
    for (std::uint32_t i = 0; i < count; ++i) {
        expect(said[i].code == expected[i], "each entry has its own status");
        if (expected[i] != status::ok || entries[i].out.data == nullptr) continue;
        const std::uint32_t from = i == 6 ? 5 : i;
        std::copy_n(pages.codes.begin() + ptrdiff_t(from * fp8_pages::page),
                    entries[i].tokens * fp8_pages::heads * fp8_pages::dim,
                    should.begin() + ptrdiff_t(i * fp8_pages::page));
    }
    expect(codes == should, "nothing but the named pages is touched");

    const device_array<fp8_decode> empty(1);
    expect_ok(fp8_pages::codec::decode(pages.spec, empty.data(), 0, nullptr, results.data(),
                                       nullptr),
              "an empty batch");
}

}  // namespace device_test
