// 64 pages encoded, packed and decoded between cudaProfilerStart and cudaProfilerStop; trace_check
// counts what was called there. With an argument, mistakes that it must count are made as well.

#include "device.cuh"

#include <cuda_profiler_api.h>
#include <normans/cuda/device_codec.cuh>

#include "page_case.hpp"

using namespace device_test;

namespace {

using codec = device_codec<scalar_type::e4m3fn, 32>;
using predictor = view_predictor<bf16_means, channel_sigmas, no_affine>;
constexpr std::uint32_t pages = 64, dim = 32, tokens = 4, page = tokens * dim;

// For every spec, however large; more pages never need less.
bool workspace_is_small()
{
    block_spec spec;
    std::size_t before = 0;
    for (spec.dim = 1; spec.dim <= 1u << 20; spec.dim *= 4) {
        const std::size_t one = codec::workspace_bytes(spec, 1);
        if (one > 4096 || one < before || codec::workspace_bytes(spec, 4096) < one) return false;
        before = one;
    }
    return true;
}

}  // namespace

int main(int count, char**)
{
    if (!there_is_a_device()) return 0;
    test_rng rng(3);
    block_spec spec;
    spec.tokens = tokens;
    spec.dim = dim;
    spec.lanes = 32;
    std::vector<std::uint8_t> codes, sigmas(dim);
    std::vector<std::uint16_t> means;
    for (auto& sigma : sigmas) sigma = std::uint8_t(100 + rng.below(40));
    for (std::uint32_t i = 0; i < pages * page; ++i) {
        const auto one = normans_test::draw_scalar(rng, format_of(spec.dtype), data_style::typical,
                                                   spec.sigma_offset);
        codes.push_back(std::uint8_t(one.code));
        means.push_back(std::uint16_t(one.mean >> 16));
    }
    const std::size_t room = (max_encoded_bytes(spec) + 3) / 4 * 4;
    const device_array<std::uint8_t> from(codes), sigmas_there(sigmas), back(codes.size());
    const device_array<std::uint8_t> slots(pages * room), packed(pages * (room + packed_alignment));
    const device_array<std::uint16_t> means_there(means);
    const device_array<std::uint64_t> directory(pages + 1);
    const device_array<encode_result> encoded(pages);
    const device_array<decode_result> decoded(pages);
    std::vector<encode_entry<std::uint8_t, predictor>> to_encode;
    std::vector<decode_entry<std::uint8_t, predictor>> to_decode;
    for (std::uint32_t i = 0; i < pages; ++i) {
        const predictor with{
            {means_there.data() + i * page, 0, dim}, {sigmas_there.data(), dim}, {}};
        to_encode.push_back({slots.data() + i * room, room, tokens, with,
                             {from.data() + i * page, 0, dim}});
        to_decode.push_back({slots.data() + i * room, room, tokens, with,
                             {back.data() + i * page, 0, dim}});
    }
    const device_array<encode_entry<std::uint8_t, predictor>> encode_there(to_encode);
    const device_array<decode_entry<std::uint8_t, predictor>> decode_there(to_decode);
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    check(cudaDeviceSynchronize(), "set up");

    cudaProfilerStart();
    check(codec::encode(spec, encode_there.data(), pages, nullptr, encoded.data(), stream),
          "encode");
    check(codec::pack(encode_there.data(), encoded.data(), pages, nullptr, directory.data(),
                      packed.data(), pages * (room + packed_alignment), stream),
          "pack");
    check(codec::decode(spec, decode_there.data(), pages, nullptr, decoded.data(), stream),
          "decode");
    if (count > 1) {
        check(cudaStreamSynchronize(stream), "a mistake");
        const device_array<int> mistake(1);
        mistake.copy();
    }
    cudaProfilerStop();

    check(cudaStreamSynchronize(stream), "64 pages");
    bool exact = back.copy() == codes;
    for (const decode_result& one : decoded.copy()) exact = exact && one.code == status::ok;
    check(cudaStreamDestroy(stream), "destroy");
    const bool small = workspace_is_small();
    std::printf("%u pages %s, workspace for one: %zu bytes%s\n", pages,
                exact ? "exact" : "NOT EXACT", codec::workspace_bytes(spec, 1),
                small ? "" : ", NOT SMALL");
    return exact && small ? 0 : 1;
}
