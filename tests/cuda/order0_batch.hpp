#pragma once
// Batches of pages through device_order0.cuh, under tables of the blocks and of the caller: one
// damaged page of many, odd entries, packing, refusals.

#include <normans/cuda/device_order0.cuh>

#include "batch_results.hpp"
#include "order0_pages.hpp"

namespace device_test {

class order0_batch {
    static constexpr scalar_type type = scalar_type::e4m3fn;
    static constexpr std::uint32_t heads = 2, tokens = 12, dim = 33, count = 70, width = 32;
    using codec = device_codec<type, width, coder_id::order0>;
    using to_decode = decode_entry<std::uint8_t, nothing_predicted>;
    using to_encode = encode_entry<std::uint8_t, nothing_predicted>;
    using page = order0_case<std::uint8_t>;

public:
    order0_batch(cudaStream_t stream, order0_tally& counts, bool shared)
        : counts_(counts), stream_(stream)
    {
        spec_.dtype = type;
        spec_.coder = coder_id::order0;
        spec_.heads = heads;
        spec_.tokens = tokens;
        spec_.dim = dim;
        test_rng rng(5);
        for (std::uint32_t i = 0; i < count; ++i) {
            block_spec spec = spec_;
            spec.lanes = width;
            spec.tokens = rng.below(8) ? tokens : rng.below(tokens);
            cases_.emplace_back(spec, draw_order0_codes(rng, spec, 5), false, 0);
            if (shared && i == 0) cases_[0].share(cases_[0], 0);
            if (shared) cases_[i].spec.tables = &cases_[0].tables;
            on_.emplace_back(cases_[i]);
            static constexpr std::uint8_t nothing = 0;
            const page& c = cases_[i];
            blocks_.emplace_back(max_encoded_bytes(c.spec));
            const encode_result made = encode<scalar_backend>(
                c.spec, c.box(c.memory.empty() ? &nothing : c.memory.data()), no_predictor,
                blocks_[i].data(), blocks_[i].size());
            expect(made.code == status::ok, "the host encodes");
            blocks_[i].resize(made.bytes);
        }
        spec_.tables = shared ? on_[0].tables.data() : nullptr;
    }

    /// All pages but the damaged one are exact, and that one has the host's status.
    void decode_all()
    {
        std::uint32_t hurt = 40;
        while (cases_[hurt].spec.tokens != tokens) ++hurt;
        std::vector<std::uint8_t> damaged_block = blocks_[hurt];
        damaged_block[damaged_block.size() - 9] ^= 16;
        std::vector<std::uint8_t> somewhere = cases_[hurt].empty();
        const decode_result hosts = decode<scalar_backend>(
            cases_[hurt].spec, damaged_block.data(), damaged_block.size(), no_predictor,
            cases_[hurt].box(somewhere.data()));
        std::vector<to_decode> entries;
        std::deque<device_array<std::uint8_t>> ins, outs;
        for (std::uint32_t i = 0; i < count; ++i) {
            ins.emplace_back(i == hurt ? damaged_block : blocks_[i]);
            outs.emplace_back(cases_[i].empty());
            entries.push_back({ins[i].data(), blocks_[i].size(), cases_[i].spec.tokens, {},
                               cases_[i].box(outs[i].data())});
        }
        const device_array<to_decode> there(entries);
        const device_array<decode_result> results(count);
        expect(codec::decode(spec_, there.data(), count, nullptr, results.data(), stream_) ==
                       cudaSuccess &&
                   cudaStreamSynchronize(stream_) == cudaSuccess,
               "decode");
        expect_decoded(results.copy(), blocks_, cases_, outs, hurt, hosts.code,
                       [&](bool right, const char* what) { expect(right, what); });
    }

    /// The host's bytes, one block behind the other; odd entries have their status.
    void encode_and_pack()
    {
        std::vector<to_encode> entries;
        std::deque<device_array<std::uint8_t>> outs;
        for (std::uint32_t i = 0; i < count; ++i) {
            outs.emplace_back(max_encoded_bytes(spec_));
            const std::uint8_t* codes = on_[i].memory.data();
            entries.push_back({outs[i].data(), i == 5 ? 12 : max_encoded_bytes(spec_),
                               i == 7 ? tokens + 1 : cases_[i].spec.tokens, {},
                               cases_[i].box(codes)});
        }
        const device_array<to_encode> there(entries);
        const device_array<encode_result> results(count);
        const device_array<std::uint64_t> directory(count + 1);
        const std::size_t room = count * (max_encoded_bytes(spec_) + packed_alignment);
        const device_array<std::uint8_t> packed(room);
        expect(codec::encode(spec_, there.data(), count, nullptr, results.data(), stream_) ==
                       cudaSuccess &&
                   codec::pack(there.data(), results.data(), count, nullptr, directory.data(),
                               packed.data(), room, stream_) == cudaSuccess &&
                   cudaStreamSynchronize(stream_) == cudaSuccess,
               "encode and pack");
        const auto wanted = [&](std::uint32_t i) {
            if (i == 5) return status::output_too_small;
            return i == 7 ? status::bad_argument : status::ok;
        };
        expect_packed(results.copy(), directory.copy(), packed.copy(), blocks_, wanted,
                      [&](bool right, const char* what) { expect(right, what); });
    }

    void refusals()
    {
        const device_array<to_decode> entries(1);
        const device_array<decode_result> results(1);
        const auto refused = [&](const block_spec& spec) {
            return !codec::supports(spec).ok && codec::supports(spec).reason[0] != 0 &&
                   codec::decode(spec, entries.data(), 1, nullptr, results.data(), stream_) ==
                       cudaErrorInvalidValue;
        };
        expect(codec::supports(spec_).ok, "a plain spec is supported");
        block_spec other = spec_;
        other.coder = coder_id::rans;
        expect(refused(other), "another coder is refused");
        other = spec_;
        other.parameter_hash = true;
        expect(refused(other), "a hash of nothing is refused");
        other = spec_;
        other.dtype = scalar_type::e5m2;
        expect(refused(other), "another type is refused");
        other = spec_;
        other.lanes = 8;
        expect(refused(other), "other lanes are refused");
        other = spec_;
        other.tokens = other.dim = 0x20000;
        expect(refused(other), "an impossible box is refused");
        expect(cudaPeekAtLastError() == cudaSuccess, "our refusals leak nothing");
    }

private:
    void expect(bool right, const char* what)
    {
        if (!right) counts_.fail(spec_, "a batch", what);
    }

    order0_tally& counts_;
    cudaStream_t stream_;
    block_spec spec_;
    std::deque<page> cases_;
    std::deque<order0_on_device<std::uint8_t>> on_;
    std::vector<std::vector<std::uint8_t>> blocks_;
};

inline void compare_order0_batch(order0_tally& counts)
{
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    for (const bool shared : {false, true}) {
        order0_batch batch(stream, counts, shared);
        batch.decode_all();
        batch.encode_and_pack();
        batch.refusals();
    }
    check(cudaStreamDestroy(stream), "destroy");
}

}  // namespace device_test
