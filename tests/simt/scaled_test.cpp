// The warp codec of int8, int4, e2m1 and, by tANS, fp8, compiled for this machine and run by
// fibers, beside the host's.  usage: simt_scaled_test SEEDS GOLDEN...

#include "device.hpp"

#include "cuda/scaled_pages.hpp"

using namespace device_test;

namespace {

// Callables instead of boxes: one code a call, even of those that take half a byte.
struct code_array {
    std::uint8_t* codes;

    std::uint32_t operator()(const scalar_position& at) const { return codes[at.index]; }
    void operator()(const scalar_position& at, std::uint32_t code) const
    {
        codes[at.index] = std::uint8_t(code);
    }
};

// What a kernel gets of callables, and where it may not write.
int compare_callables()
{
    using codec = warp_codec<scalar_type::int4, 8>;
    test_rng rng(3);
    const scaled_case c = draw_scaled(rng, scalar_type::int4, coder_id::rans, 8, {2, 3, 33},
                                      page_kind::drawn, false, 50);
    const case_on_device on(c, nullptr);
    std::vector<std::uint8_t> block(max_encoded_bytes(on.spec));
    const encode_result host =
        encode<scalar_backend>(c.page.spec, c.layout.box(c.memory.data()), c.predictor(),
                               block.data(), block.size());
    const device_array<std::uint8_t> from(c.page.codes), made(block.size()),
        back(c.page.codes.size());
    encode_result encoded, nowhere;
    decode_result decoded;
    const std::string error = launch(
        [&] {
            auto& tables = shared_variable<codec::TempStorage>();
            codec::prepare(tables, on.spec, threadIdx.x, blockDim.x);
            __syncthreads();
            const codec with(tables);
            const encode_result first = with.encode(on.spec, code_array{from.data()}, on.predictor,
                                                    made.data(), block.size());
            __syncthreads();
            const decode_result second = with.decode(on.spec, made.data(), first.bytes,
                                                     on.predictor, code_array{back.data()});
            const encode_result third =
                with.encode(on.spec, code_array{from.data()}, on.predictor, nullptr, 0);
            if (threadIdx.x != 0) return;
            encoded = first;
            decoded = second;
            nowhere = third;
        },
        1, 8);
    block.resize(host.bytes);
    std::vector<std::uint8_t> bytes = made.copy();
    bytes.resize(encoded.bytes);
    const bool right = error.empty() && encoded.code == status::ok && bytes == block &&
                       decoded.code == status::ok && back.copy() == c.page.codes &&
                       nowhere.code == status::bad_argument &&
                       nowhere.bytes == max_encoded_bytes(on.spec);
    if (!right) std::fprintf(stderr, "callables: %s\n", error.c_str());
    return right ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments)
{
    const int others = run_scaled_test(count, arguments, [](unsigned seed) {
        how().seed = seed;
        how().which = seed % 3 == 1   ? simt::order::random
                      : seed % 3 == 2 ? simt::order::down
                                      : simt::order::up;
    });
    return compare_callables() != 0 ? 1 : others;
}
