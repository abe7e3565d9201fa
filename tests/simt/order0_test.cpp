// The warp codec of order 0, compiled for this machine and run by fibers, beside the host's.
// usage: simt_order0_test SEEDS GOLDEN...

#include "device.hpp"

#include "cuda/order0_pages.hpp"

namespace {

// A source of signed codes: what it says beyond a code's bits changes nothing and touches nothing.
bool takes_signed_codes()
{
    using namespace device_test;
    using codec = warp_codec<scalar_type::int8, 8, coder_id::order0>;
    std::vector<std::uint8_t> codes;
    for (std::uint32_t i = 0; i < 500; ++i) codes.push_back(std::uint8_t(i * i % 23 - 11));
    block_spec spec;
    spec.dtype = scalar_type::int8;
    spec.coder = coder_id::order0;
    spec.dim = 500;
    spec.lanes = 8;
    spec.content_check = false;
    std::vector<std::uint8_t> expected(max_encoded_bytes(spec)), out(expected.size());
    const encode_result here = encode<scalar_backend>(spec, dense(spec, codes.data()),
                                                      no_predictor, expected.data(), out.size());
    encode_result there;
    const std::string error = launch([&] {
        auto& room = shared_variable<codec::TempStorage>();
        const auto source = [&](const scalar_position& at) {
            return std::uint32_t(std::int8_t(codes[at.index]));
        };
        const encode_result one = codec(room).encode(spec, source, 0, out.data(), out.size());
        if (threadIdx.x == 0) there = one;
    }, 1, 8);
    expected.resize(here.bytes);
    out.resize(there.bytes);
    return error.empty() && here && there && here.mode == block_mode::coded && expected == out;
}

}  // namespace

int main(int count, char** arguments)
{
    if (!takes_signed_codes()) {
        std::fprintf(stderr, "a source of signed codes: not the host's block\n");
        return 1;
    }
    return device_test::run_order0_test(count, arguments, [](unsigned seed) {
        device_test::how().seed = seed;
        device_test::how().which = seed % 3 == 1   ? simt::order::random
                                   : seed % 3 == 2 ? simt::order::down
                                                   : simt::order::up;
    });
}
