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

// Under tables with more symbols than there are codes: the host's bytes, also beside the box.
bool keeps_what_is_beside()
{
    using namespace device_test;
    using codec = warp_codec<scalar_type::int4, 8, coder_id::order0>;
    constexpr std::uint32_t tokens = 9, dim = 31, stride = dim + 5;
    std::vector<order0_table> tables(2);
    std::uint32_t counts[2][order0_symbols] = {{1, 1, 1, 50}, {1}};
    counts[1][16 + 3] = 4000;  // most steps end there
    bool good = true;
    for (std::uint32_t i = 0; i < 2; ++i) {
        std::uint16_t freq[order0_symbols];
        good &= order0_normalize(counts[i], freq) == status::ok &&
                make_order0_table(freq, tables[i]) == status::ok;
    }
    const order0_tables fitting{&tables[0], 1, 0}, wide{&tables[1], 1, 0};
    block_spec spec;
    spec.dtype = scalar_type::int4;
    spec.coder = coder_id::order0;
    spec.tokens = tokens;
    spec.dim = dim;
    spec.lanes = 8;
    spec.tables = &fitting;
    std::vector<std::uint8_t> codes((tokens * dim + 1) / 2, 0x33), block(max_encoded_bytes(spec));
    codes[3] = 0x12;
    const encode_result made = encode<scalar_backend>(spec, dense(spec, codes.data()),
                                                      no_predictor, block.data(), block.size());
    spec.tables = &wide;
    std::vector<std::uint8_t> expected(tokens * stride / 2, 0xe7), out = expected;
    const decode_result here = decode<scalar_backend>(
        spec, block.data(), made.bytes, no_predictor,
        box_view<std::uint8_t>{expected.data(), 0, std::ptrdiff_t(stride)});
    decode_result there;
    const std::string error = launch([&] {
        auto& room = shared_variable<codec::TempStorage>();
        const decode_result one =
            codec(room).decode(spec, block.data(), made.bytes, 0,
                               box_sink<std::uint8_t>{{out.data(), 0, std::ptrdiff_t(stride)}});
        if (threadIdx.x == 0) there = one;
    }, 1, 8);
    return good && error.empty() && made.mode == block_mode::coded && expected[0] == 0x33 &&
           here.code == status::corrupt_stream && there.code == here.code && expected == out;
}

}  // namespace

int main(int count, char** arguments)
{
    if (!takes_signed_codes()) {
        std::fprintf(stderr, "a source of signed codes: not the host's block\n");
        return 1;
    }
    if (!keeps_what_is_beside()) {
        std::fprintf(stderr, "tables with too many symbols: not what the host decodes\n");
        return 1;
    }
    return device_test::run_order0_test(count, arguments, [](unsigned seed) {
        device_test::how().seed = seed;
        device_test::how().which = seed % 3 == 1   ? simt::order::random
                                   : seed % 3 == 2 ? simt::order::down
                                                   : simt::order::up;
    });
}
