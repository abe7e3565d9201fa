// A03, and examples/device_entry.cu: pages that the CPU encoded are decoded inside a kernel that is
// no library's, a warp a page, into shared memory, through the function with a C name.

#include "../../examples/device_entry.cu"

#include "device.cuh"
#include "page_case.hpp"

using namespace device_test;

namespace {

constexpr std::uint32_t heads = 2, tokens = 4, dim = 24, page = heads * tokens * dim;
constexpr std::uint32_t warps = 3, rounds = 2, pages = warps * rounds;

struct arguments {
    const std::uint8_t* blocks;
    const std::uint32_t* bytes;
    std::uint32_t room;
    const std::uint16_t* means;
    const std::uint8_t* sigmas;
    std::uint8_t* out;
    int* status;
};

// Tokens outermost. The threads are a box, as in other people's kernels.
__global__ void users_kernel(arguments a)
{
    __shared__ std::uint8_t staged[warps][page];
    const std::uint32_t thread = threadIdx.x + blockDim.x * threadIdx.y;
    const std::uint32_t warp = thread / 32, lane = thread % 32;
    for (std::uint32_t i = warp; i < pages; i += warps) {
        const int status = normans_decode_e4m3fn(
            a.blocks + i * a.room, a.bytes[i], heads, tokens, dim, a.means + i * page, a.sigmas,
            dim, heads * dim, staged[warp]);
        __syncwarp();
        for (std::uint32_t k = lane; k < page; k += 32) a.out[i * page + k] = staged[warp][k];
        if (lane == 0) a.status[i] = status;
        __syncwarp();
    }
}

}  // namespace

int main()
{
    if (!there_is_a_device()) return 0;
    test_rng rng(7);
    block_spec spec;
    spec.heads = heads;
    spec.tokens = tokens;
    spec.dim = dim;
    spec.lanes = 32;
    spec.row_scale = true;
    std::vector<std::uint8_t> sigmas(heads * dim), codes;
    std::vector<std::uint16_t> means;
    for (auto& sigma : sigmas) sigma = std::uint8_t(100 + rng.below(40));
    for (std::uint32_t i = 0; i < pages * page; ++i) {
        const auto one = normans_test::draw_scalar(rng, format_of(spec.dtype), data_style::typical,
                                                   spec.sigma_offset);
        codes.push_back(std::uint8_t(one.code));
        means.push_back(std::uint16_t(one.mean >> 16));
    }
    const std::uint32_t room = std::uint32_t(max_encoded_bytes(spec) + 3) / 4 * 4, hurt = 4;
    std::vector<std::uint8_t> blocks(pages * room);
    std::vector<std::uint32_t> bytes(pages);
    for (std::uint32_t i = 0; i < pages; ++i) {
        const box_view<const std::uint8_t> from{codes.data() + i * page, dim, heads * dim};
        const auto encoded = encode<scalar_backend>(
            spec, from,
            predict(bf16_means{means.data() + i * page, dim, heads * dim},
                    channel_sigmas{sigmas.data(), dim}),
            blocks.data() + i * room, room);
        if (!encoded) return std::printf("the host cannot encode\n"), 1;
        bytes[i] = std::uint32_t(encoded.bytes);
    }
    blocks[hurt * room + bytes[hurt] - 9] ^= 16;

    const device_array<std::uint8_t> blocks_there(blocks), sigmas_there(sigmas), out(codes.size());
    const device_array<std::uint32_t> bytes_there(bytes);
    const device_array<std::uint16_t> means_there(means);
    const device_array<int> status(pages);
    users_kernel<<<1, dim3(8, 4 * warps)>>>({blocks_there.data(), bytes_there.data(), room,
                                             means_there.data(), sigmas_there.data(), out.data(),
                                             status.data()});
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "decode");
    const auto back = out.copy();
    const auto said = status.copy();
    int failures = 0;
    for (std::uint32_t i = 0; i < pages; ++i) {
        bool exact = true;
        for (std::uint32_t k = 0; k < page; ++k)
            exact = exact && back[i * page + k] == codes[i * page + k];
        const bool right = i == hurt ? said[i] != 0 : said[i] == 0 && exact;
        if (right) continue;
        ++failures;
        std::printf("page %u: status %d, %s\n", i, said[i], exact ? "exact" : "not exact");
    }
    std::printf("%u pages, %d failures\n", pages, failures);
    return failures == 0 ? 0 : 1;
}
