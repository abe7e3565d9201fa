#pragma once
// Batches of pages through device_scaled.cuh, each page with its own scales (of fp8 none): one
// damaged page of 128, the bank in shared memory or not, odd entries, packing, refusals.

#include <normans/cuda/device_scaled.cuh>

#include "batch_results.hpp"
#include "scaled_pages.hpp"

namespace device_test {

template <scalar_type Type, std::uint32_t Width, coder_id Coder>
class scaled_batch {
    using codec = device_codec<Type, Width, Coder>;
    using to_decode = scaled_decode_entry<mapped_predictor>;
    using to_encode = scaled_encode_entry<mapped_predictor>;
    static constexpr std::uint32_t heads = 2, tokens = 5, dim = 33, count = 128;

public:
    scaled_batch(cudaStream_t stream, scaled_tally& counts)
        : counts_(counts), stream_(stream),
          bank_(*small_bank(Type, shape_id::gaussian))
    {
        spec_ = normans_test::scaled_spec(Type, Coder, heads, tokens, dim, Width);
        spec_.row_scale = true;
        spec_.parameter_hash = true;
        if (Coder == coder_id::tans) spec_.bank = bank_.bank.data();
        test_rng rng(5);
        for (std::uint32_t i = 0; i < count; ++i) {
            block_spec spec = spec_;
            spec.tokens = rng.below(8) ? tokens : rng.below(tokens);
            spec.coder = coder_id::rans;
            scaled_page page = normans_test::make_scaled_page(rng.next(), spec);
            page.spec.coder = Coder;
            page.spec.bank = small_bank(Type, shape_id::gaussian);
            cases_.emplace_back(std::move(page), false, 0);
            on_.emplace_back(cases_[i], &bank_);
            const scaled_case& c = cases_[i];
            blocks_.emplace_back(max_encoded_bytes(c.page.spec));
            const encode_result made = encode<scalar_backend>(
                c.page.spec, c.layout.box(bytes_of(c)), c.predictor(), blocks_[i].data(),
                blocks_[i].size());
            expect(made.code == status::ok, "the host encodes");
            blocks_[i].resize(made.bytes);
        }
    }

    /// 127 pages are exact, the damaged one has the host's status.
    void decode_all(std::uint32_t bank_bytes)
    {
        std::uint32_t hurt = 77;
        while (cases_[hurt].page.spec.tokens != tokens) ++hurt;
        std::vector<std::uint8_t> damaged_block = blocks_[hurt];
        damaged_block[damaged_block.size() - 9] ^= 16;
        std::vector<std::uint8_t> somewhere = cases_[hurt].empty();
        const decode_result hosts = decode<scalar_backend>(
            cases_[hurt].page.spec, damaged_block.data(), damaged_block.size(),
            cases_[hurt].predictor(), cases_[hurt].layout.box(somewhere.data()));
        std::vector<to_decode> entries;
        std::deque<device_array<std::uint8_t>> ins, outs;
        for (std::uint32_t i = 0; i < count; ++i) {
            ins.emplace_back(i == hurt ? damaged_block : blocks_[i]);
            outs.emplace_back(cases_[i].empty());
            entries.push_back({ins[i].data(), blocks_[i].size(), cases_[i].page.spec.tokens,
                               on_[i].predictor, cases_[i].layout.box(outs[i].data()),
                               on_[i].spec.scales});
        }
        const device_array<to_decode> there(entries);
        const device_array<decode_result> results(count);
        expect(codec::decode(spec_, there.data(), count, nullptr, results.data(), stream_,
                             bank_bytes) == cudaSuccess &&
                   cudaStreamSynchronize(stream_) == cudaSuccess,
               "decode");
        expect_decoded(results.copy(), blocks_, cases_, outs, hurt, hosts.code,
                       [&](bool right, const char* what) { expect(right, what); });
    }

    /// The host's bytes, one block behind the other; odd entries have their status.
    void encode_and_pack(std::uint32_t bank_bytes)
    {
        std::vector<to_encode> entries;
        std::deque<device_array<std::uint8_t>> outs;
        for (std::uint32_t i = 0; i < count; ++i) {
            outs.emplace_back(max_encoded_bytes(spec_));
            const std::uint8_t* codes = on_[i].memory.data();
            entries.push_back({outs[i].data(), i == 5 ? 12 : max_encoded_bytes(spec_),
                               i == 7 ? tokens + 1 : cases_[i].page.spec.tokens, on_[i].predictor,
                               cases_[i].layout.box(codes), on_[i].spec.scales});
        }
        std::uint32_t blind = 9;
        while (cases_[blind].page.spec.tokens == 0) ++blind;
        entries[blind].scales.data = nullptr;
        const device_array<to_encode> there(entries);
        const device_array<encode_result> results(count);
        const device_array<std::uint64_t> directory(count + 1);
        const std::size_t room = count * (max_encoded_bytes(spec_) + packed_alignment);
        const device_array<std::uint8_t> packed(room);
        expect(codec::encode(spec_, there.data(), count, nullptr, results.data(), stream_,
                             bank_bytes) == cudaSuccess &&
                   codec::pack(there.data(), results.data(), count, nullptr, directory.data(),
                               packed.data(), room, stream_) == cudaSuccess &&
                   cudaStreamSynchronize(stream_) == cudaSuccess,
               "encode and pack");
        const auto wanted = [&](std::uint32_t i) {
            if (i == 5) return status::output_too_small;
            return i == 7 || (i == blind && has_scale(Type)) ? status::bad_argument : status::ok;
        };
        expect_packed(results.copy(), directory.copy(), packed.copy(), blocks_, wanted,
                      [&](bool right, const char* what) { expect(right, what); });
    }

    void refusals()
    {
        const device_array<to_decode> entries(1);
        const device_array<decode_result> results(1);
        const auto refused = [&](const block_spec& spec, std::uint32_t bank_bytes) {
            return codec::decode(spec, entries.data(), 1, nullptr, results.data(), stream_,
                                 bank_bytes) == cudaErrorInvalidValue;
        };
        expect(codec::supports(spec_).ok, "a plain spec is supported");
        block_spec other = spec_;
        other.coder = Coder == coder_id::tans ? coder_id::rans : coder_id::tans;
        expect(!codec::supports(other).ok && codec::supports(other).reason[0] != 0 &&
                   refused(other, 0),
               "another coder is refused");
        other = spec_;
        other.shape = shape_id::mixture_marginal;
        expect(!codec::supports(other).ok && refused(other, 0), "a marginal is refused");
        other = spec_;
        other.bank = nullptr;
        expect((Coder == coder_id::tans) == refused(other, 0), "tANS without a bank is refused");
        expect(refused(spec_, largest_shared_bank + 4), "too much shared memory is refused");
        expect(cudaPeekAtLastError() == cudaSuccess, "our refusals leak nothing");
    }

private:
    static const std::uint8_t* bytes_of(const scaled_case& c)
    {
        static constexpr std::uint8_t none = 0;
        return c.memory.empty() ? &none : c.memory.data();
    }

    void expect(bool right, const char* what)
    {
        if (!right) counts_.fail(spec_, "a batch", what);
    }

    scaled_tally& counts_;
    cudaStream_t stream_;
    bank_on_device bank_;
    block_spec spec_;
    std::deque<scaled_case> cases_;
    std::deque<case_on_device> on_;
    std::vector<std::vector<std::uint8_t>> blocks_;
};

template <scalar_type Type, std::uint32_t Width, coder_id Coder>
void compare_scaled_batch(scaled_tally& counts)
{
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    scaled_batch<Type, Width, Coder> batch(stream, counts);
    batch.decode_all(0);
    batch.decode_all(1024);  // too small for the bank
    batch.decode_all(64 * 1024);
    batch.encode_and_pack(0);
    batch.encode_and_pack(largest_shared_bank);
    batch.refusals();
    check(cudaStreamDestroy(stream), "destroy");
}

}  // namespace device_test
