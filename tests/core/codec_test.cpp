// host/codec.hpp: blocks. Round trips over types, lanes, flags, lengths and layouts; coded bytes
// against a block put together in tests/support; bounds, modes, statuses.

#include <doctest/doctest.h>

#include <algorithm>

#include "codec/codec.hpp"
#include "support/block_data.hpp"

using namespace normans;
using namespace normans_test;

namespace {

constexpr scalar_type types[] = {scalar_type::e4m3fn,   scalar_type::e5m2, scalar_type::e4m3fnuz,
                                 scalar_type::e5m2fnuz, scalar_type::bf16, scalar_type::fp16,
                                 scalar_type::raw8};
constexpr uint32_t lane_counts[] = {1, 8, 16, 32};

block_spec spec_of(scalar_type type, uint32_t heads, uint32_t tokens, uint32_t dim, uint32_t lanes)
{
    block_spec spec;
    spec.dtype = type;
    spec.heads = heads;
    spec.tokens = tokens;
    spec.dim = dim;
    spec.lanes = lanes;
    return spec;
}

block_spec line_of(scalar_type type, uint32_t count, uint32_t lanes)
{
    return spec_of(type, 1, 1, count, lanes);
}

void set_flags(block_spec& spec, unsigned flags)
{
    spec.row_scale = (flags & 1) != 0;
    spec.content_check = (flags & 2) != 0;
    spec.parameter_hash = (flags & 4) != 0;
    spec.has_fingerprint = (flags & 8) != 0;
    spec.fingerprint = spec.has_fingerprint ? 0xfeedfacecafebeefu : 0;
}

test_scalars data_for(const block_spec& spec, data_style style, uint64_t seed)
{
    if (has_model(spec.dtype))
        return draw_scalars(seed, spec.dtype, style, spec.sigma_offset, count_of(spec));
    test_scalars data = draw_scalars(seed, scalar_type::e4m3fn, style, -16, count_of(spec));
    test_rng rng(seed);
    for (uint16_t& code : data.code) code = uint16_t(rng.bits(8));
    return data;
}

// Each token has its own scale of sigma, 2^(step / 4).
test_scalars row_data(const block_spec& spec, uint64_t seed, const std::vector<int>& steps)
{
    constexpr int64_t root[4] = {256, 304, 362, 431};
    test_rng rng(seed);
    test_scalars data;
    for (uint32_t i = 0; i < count_of(spec); ++i) {
        const int step = steps[i / spec.dim % spec.tokens] + 8;
        const uint32_t index = 8 * uint32_t(-5 - spec.sigma_offset) + rng.below(8);
        const int64_t sigma = fixed_sigma(int(index), spec.sigma_offset);
        const int64_t mean = int64_t(rng.next() >> 21) - (int64_t(1) << 42);
        const int64_t away = rng.noise() * (sigma >> 16) * root[step & 3] / 256;
        const int64_t value = mean + away * (int64_t(1) << step / 4) / 4;
        data.mean.push_back(float_of(mean, -40));
        data.sigma.push_back(uint8_t(index));
        data.code.push_back(uint16_t(code_of_fixed(format_of(spec.dtype), value)));
    }
    return data;
}

// Encodes, checks what must always hold, decodes.
coded_block round_trip(const block_spec& spec, const test_scalars& data)
{
    const coded_block coded = encode_block(spec, data);
    REQUIRE(coded.result.code == status::ok);
    CHECK(coded.canaries_intact);
    REQUIRE(coded.bytes.size() == coded.result.bytes);
    CHECK(coded.bytes.size() <= max_encoded_bytes(spec));
    CHECK(coded.bytes.size() % 4 == 0);
    const decoded_block back = decode_block(spec, coded.bytes, data);
    CHECK(back.result.code == status::ok);
    CHECK(back.result.bytes == coded.bytes.size());
    CHECK(back.result.mode == coded.result.mode);
    CHECK(back.result.lanes == coded.result.lanes);
    CHECK(back.result.row_scaled == coded.result.row_scaled);
    CHECK(back.codes == data.code);
    return coded;
}

}  // namespace

TEST_CASE("round trips: type x lanes x flags x style")
{
    uint64_t seed = 1;
    uint32_t seen[4] = {};
    for (const scalar_type type : types)
        for (const uint32_t lanes : lane_counts)
            for (unsigned flags = 0; flags < 16; ++flags)
                for (const data_style style :
                     {data_style::typical, data_style::mixed, data_style::adversarial}) {
                    CAPTURE(doctest::String(scalar_name(type)));
                    CAPTURE(lanes);
                    CAPTURE(flags);
                    CAPTURE(int(style));
                    block_spec spec = spec_of(type, 2, 5, 61, lanes);
                    set_flags(spec, flags);
                    const coded_block coded = round_trip(spec, data_for(spec, style, ++seed));
                    ++seen[unsigned(coded.result.mode)];
                    CHECK(coded.result.lanes == lanes);
                    block_header header;
                    REQUIRE(read_block_header(coded.bytes.data(), coded.bytes.size(), header) ==
                            status::ok);
                    CHECK(header.dtype == type);
                    CHECK(header.count == 610);
                    CHECK(((header.flags & has_content_check) != 0) == spec.content_check);
                    CHECK(((header.flags & has_fingerprint) != 0) == spec.has_fingerprint);
                    CHECK(((header.flags & has_parameter_hash) != 0) ==
                          (spec.parameter_hash && header.mode == block_mode::coded));
                }
    CHECK(seen[unsigned(block_mode::coded)] > 600);
    CHECK(seen[unsigned(block_mode::raw)] > 300);
}

TEST_CASE("coded blocks have the bytes of the plain reference")
{
    uint64_t seed = 5000;
    uint32_t with_escapes = 0;
    for (const scalar_type type : types) {
        if (!has_model(type)) continue;
        for (const uint32_t lanes : lane_counts)
            for (const shape_id shape :
                 {shape_id::gaussian, shape_id::mixture, shape_id::mixture_marginal})
                for (const data_style style : {data_style::typical, data_style::sharp,
                                               data_style::tails, data_style::mixed}) {
                    CAPTURE(doctest::String(scalar_name(type)));
                    CAPTURE(lanes);
                    CAPTURE(int(shape));
                    CAPTURE(int(style));
                    block_spec spec = spec_of(type, 3, 7, 53, lanes);
                    spec.shape = shape;
                    set_flags(spec, 2 + 4 * unsigned(seed & 3));
                    const std::vector<uint16_t> freq = random_marginal(++seed);
                    marginal_table table;
                    if (shape == shape_id::mixture_marginal) {
                        REQUIRE(make_marginal(freq.data(), table) == status::ok);
                        spec.marginal = &table;
                    }
                    test_scalars data = data_for(spec, style, seed);
                    data.code[100] = uint16_t(data.code[100] ^ 1);  // so that not all are predicted
                    const coded_block coded = round_trip(spec, data);
                    const expected_block expected = expect_coded(spec, data);
                    // "At least 1/64 of the raw codes saved", or raw.
                    const size_t code_total = data.code.size() * code_bytes(type);
                    const size_t raw = max_encoded_bytes(spec) - (spec.parameter_hash ? 4 : 0);
                    const bool pays = expected.bytes.size() + code_total / 64 <= raw;
                    CHECK((coded.result.mode == block_mode::coded) == pays);
                    if (!pays) continue;
                    CHECK(coded.bytes == expected.bytes);
                    CHECK(coded.result.escapes == expected.escapes);
                    with_escapes += expected.escapes != 0;
                }
    }
    CHECK(with_escapes > 50);
}

TEST_CASE("the choice between coded and raw, around its limit")
{
    // Ever more scalars that nobody predicted.
    uint32_t raw_blocks = 0, coded_blocks = 0;
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16})
        for (uint32_t wild = 0; wild < 400; ++wild) {
            const block_spec spec = line_of(type, 641, 8);
            test_scalars data = data_for(spec, data_style::typical, 7000);
            test_rng rng(wild);
            const uint32_t share = wild + 200;
            for (uint32_t i = 0; i < share; ++i)
                data.code[rng.below(641)] = uint16_t(rng.bits(format_of(type).code_bits));
            const coded_block coded = encode_block(spec, data);
            REQUIRE(coded.result);
            const size_t code_total = 641 * code_bytes(type), raw = max_encoded_bytes(spec);
            const bool pays = expect_coded(spec, data).bytes.size() + code_total / 64 <= raw;
            CHECK((coded.result.mode == block_mode::coded) == pays);
            ++(pays ? coded_blocks : raw_blocks);
        }
    CHECK(coded_blocks > 100);
    CHECK(raw_blocks > 100);
}

TEST_CASE("every length from 0 to past two steps, and the tails of longer blocks")
{
    for (const scalar_type type : types)
        for (const uint32_t lanes : lane_counts) {
            CAPTURE(doctest::String(scalar_name(type)));
            CAPTURE(lanes);
            for (uint32_t count = 0; count <= 2 * lanes + 1; ++count)
                for (const data_style style : {data_style::sharp, data_style::mixed}) {
                    CAPTURE(count);
                    block_spec spec = line_of(type, count, lanes);
                    set_flags(spec, 2 + 4 * (count & 1));
                    round_trip(spec, data_for(spec, style, count));
                }
            for (uint32_t count = 12 * lanes; count <= 13 * lanes + 1; ++count) {
                CAPTURE(count);
                block_spec spec = line_of(type, count, lanes);
                set_flags(spec, 6);
                test_scalars data = data_for(spec, data_style::sharp, count);
                data.code[count / 2] = uint16_t(data.code[count / 2] ^ 1);  // never quite predicted
                const coded_block coded = round_trip(spec, data);
                if (has_model(type) && lanes > 1) CHECK(coded.result.mode == block_mode::coded);
            }
        }
}

TEST_CASE("empty boxes of any shape, null pointers")
{
    const test_scalars none;
    for (const scalar_type type : types) {
        for (const block_spec& spec : {spec_of(type, 0, 0, 0, 8), spec_of(type, 0, 4, 5, 1),
                                       spec_of(type, 3, 0, 5, 16), spec_of(type, 3, 4, 0, 0)}) {
            const coded_block coded = round_trip(spec, none);
            CHECK(coded.bytes.size() == 16);
            CHECK(coded.result.mode == block_mode::raw);
            CHECK(max_encoded_bytes(spec) == 16);
            // A check of nothing is 0; anything else is damage.
            std::vector<uint8_t> damaged = coded.bytes;
            damaged[12] = 1;
            CHECK(decode_block(spec, damaged, none).result.code == status::content_mismatch);
        }
    }
}

TEST_CASE("all codes in one block")
{
    for (const scalar_type type : types) {
        CAPTURE(doctest::String(scalar_name(type)));
        const uint32_t codes = code_bytes(type) == 1 ? 256 : 65536;
        // Diluted by predicted scalars, so that the block is coded and each code goes through it.
        const uint32_t count = has_model(type) ? 6 * codes : codes;
        for (const uint32_t lanes : {8u, 32u}) {
            if (thin > 1 && codes > 256 && lanes == 32) continue;
            const block_spec spec = line_of(type, count, lanes);
            test_scalars data = data_for(spec, data_style::sharp, lanes);
            for (uint32_t code = 0; code < codes; ++code)
                data.code[has_model(type) ? 6 * code + code % 5 : code] = uint16_t(code);
            const coded_block coded = round_trip(spec, data);
            if (has_model(type)) CHECK(coded.result.mode == block_mode::coded);
        }
    }
}

TEST_CASE("constant and predicted blocks")
{
    for (const scalar_type type : types) {
        CAPTURE(doctest::String(scalar_name(type)));
        const scalar_format format = format_of(type);
        for (const uint32_t lanes : lane_counts)
            for (unsigned flags = 0; flags < 16; ++flags) {
                block_spec spec = spec_of(type, 2, 3, 17, lanes);
                set_flags(spec, flags);
                const size_t extras = spec.has_fingerprint ? 8 : 0;
                test_scalars data = data_for(spec, data_style::adversarial, lanes + flags);

                for (const uint32_t code :
                     {0u, 1u, format.code_sign(), 2 * format.code_sign() - 1}) {
                    test_scalars same = data;
                    for (uint16_t& one : same.code) one = uint16_t(code);
                    const coded_block coded = round_trip(spec, same);
                    CHECK(coded.result.mode == block_mode::constant);
                    CHECK(coded.bytes.size() == 20 + extras);
                }
                if (!has_model(type)) continue;
                for (size_t i = 0; i < data.code.size(); ++i)
                    data.code[i] = uint16_t(
                        nearest_code(format, map_mean(data.mean[i], one_bits, minus_zero_bits)));
                const coded_block coded = round_trip(spec, data);
                CHECK(coded.result.mode == block_mode::predicted);
                CHECK(coded.bytes.size() == 16 + extras + (spec.parameter_hash ? 4 : 0));
                CHECK(coded.result.escapes == 0);
            }
    }
    // Predicted comes first where both would do.
    block_spec spec = line_of(scalar_type::bf16, 100, 8);
    test_scalars zeros;
    zeros.mean.assign(100, 0);
    zeros.sigma.assign(100, 255);
    zeros.code.assign(100, 0);
    CHECK(round_trip(spec, zeros).result.mode == block_mode::predicted);
    zeros.mean[0] = minus_zero_bits;
    CHECK(round_trip(spec, zeros).result.mode == block_mode::constant);
}

TEST_CASE("dead channels cost next to nothing")
{
    const block_spec spec = line_of(scalar_type::bf16, 8000, 8);
    const test_scalars data = data_for(spec, data_style::dead, 3);
    const coded_block coded = round_trip(spec, data);
    CHECK(coded.result.mode == block_mode::coded);
    CHECK(coded.result.escapes == 0);
    // One in eight has the wrong sign: 6 bits and a bit for it, 0.02 for each other.
    CHECK(coded.bytes.size() < 8000 * 0.8 / 8 + 16 + 32);
}

TEST_CASE("row steps: chosen where they pay, close to the truth, in the bytes of the reference")
{
    for (const scalar_type type : {scalar_type::bf16, scalar_type::fp16, scalar_type::e4m3fn})
        for (const uint32_t tokens : {1u, 2u, 15u, 16u, 17u})
            for (const uint32_t lanes : {8u, 32u}) {
                CAPTURE(doctest::String(scalar_name(type)));
                CAPTURE(tokens);
                CAPTURE(lanes);
                block_spec spec = spec_of(type, 2, tokens, 96, lanes);
                spec.row_scale = true;
                std::vector<int> truth;
                for (uint32_t t = 0; t < tokens; ++t) truth.push_back(int(t * 5 % 16) - 6);
                const test_scalars data = row_data(spec, tokens + lanes, truth);
                const coded_block coded = round_trip(spec, data);
                CHECK(coded.result.row_scaled);
                std::vector<int> steps;
                for (uint32_t t = 0; t < tokens; ++t) {
                    steps.push_back(row_step_of(spec, coded.bytes.data(), coded.bytes.size(), t));
                    // Where cells are as wide as sigma the step says less.
                    if (type != scalar_type::e4m3fn) CHECK(std::abs(steps[t] - truth[t]) <= 1);
                }
                CHECK(coded.bytes == expect_coded(spec, data, steps).bytes);
                CHECK(row_step_of(spec, coded.bytes.data(), coded.bytes.size(), tokens) == 0);
                CHECK(row_step_of(spec, coded.bytes.data(), coded.bytes.size() - 1, 0) == 0);

                block_spec without = spec;
                without.row_scale = false;
                const coded_block plain = round_trip(without, data);
                CHECK_FALSE(plain.result.row_scaled);
                // Estimated, so a block of few tokens may lose its four bytes of row steps.
                CHECK(coded.bytes.size() <= plain.bytes.size() + 4);
                if (tokens > 2) CHECK(coded.bytes.size() < plain.bytes.size());
                CHECK(decode_block(without, coded.bytes, data).result.code == status::wrong_model);
                CHECK(decode_block(spec, plain.bytes, data).result.code == status::ok);

                // What pads them is zero, or it is damage.
                const uint32_t bits = coded.bytes[3] >> 4;
                const size_t states = 16 + size_t(row_step_bytes(tokens, bits));
                if (tokens * bits % 32 != 0) {
                    std::vector<uint8_t> damaged = coded.bytes;
                    damaged[states - 1] = uint8_t(damaged[states - 1] | 0x80);
                    CHECK(decode_block(spec, damaged, data).result.code == status::corrupt_stream);
                }
            }
}

TEST_CASE("row steps are left out where they do not pay")
{
    block_spec spec = spec_of(scalar_type::bf16, 1, 40, 32, 8);
    const test_scalars data = row_data(spec, 9, std::vector<int>(40, 0));
    const coded_block plain = round_trip(spec, data);
    spec.row_scale = true;
    const coded_block coded = round_trip(spec, data);
    CHECK_FALSE(coded.result.row_scaled);
    CHECK(coded.bytes == plain.bytes);
}

TEST_CASE("strides: encode from any layout, decode into any other")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16, scalar_type::raw8}) {
        const auto run = [&](auto zero) {
            using code_type = decltype(zero);
            const block_spec spec = spec_of(type, 3, 10, 24, 8);
            const test_scalars data = data_for(spec, data_style::typical, 11);
            const coded_block dense_block = encode_block(spec, data);
            REQUIRE(dense_block.result);
            struct layout {
                ptrdiff_t origin, head_stride, token_stride;
            };
            // HND; NHD; padded rows; fused K and V; tokens and heads backward.
            const layout layouts[] = {{0, 240, 24}, {0, 24, 72}, {5, 400, 31}, {24, 48, 144},
                                      {2400, -800, -33}};
            const auto place = [&](const layout& l, uint32_t i) {
                const uint32_t row = i / 24;
                return size_t(l.origin + ptrdiff_t(row / 10) * l.head_stride +
                              ptrdiff_t(row % 10) * l.token_stride + ptrdiff_t(i % 24));
            };
            for (const layout& l : layouts) {
                std::vector<code_type> memory(4096, code_type(0x3c));
                for (uint32_t i = 0; i < 720; ++i) memory[place(l, i)] = code_type(data.code[i]);
                const box_view<code_type> box{memory.data() + l.origin, l.head_stride,
                                              l.token_stride};
                std::vector<uint8_t> out(max_encoded_bytes(spec));
                const encode_result coded =
                    encode(spec, box, predictor_of(data), out.data(), out.size());
                REQUIRE(coded);
                out.resize(coded.bytes);
                CHECK(out == dense_block.bytes);

                std::vector<code_type> back(4096, code_type(0x3c));
                const box_view<code_type> into{back.data() + l.origin, l.head_stride,
                                               l.token_stride};
                REQUIRE(decode(spec, out.data(), out.size(), predictor_of(data), into));
                CHECK(back == memory);  // nothing beside the box is touched
            }
        };
        if (code_bytes(type) == 1) run(uint8_t(0));
        else run(uint16_t(0));
    }
}

TEST_CASE("same input, same bytes, whatever lay in the buffer, at any address")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16}) {
        block_spec spec = spec_of(type, 2, 9, 41, 16);
        set_flags(spec, 15);
        const test_scalars data = data_for(spec, data_style::mixed, 12);
        const coded_block first = round_trip(spec, data);
        for (const uint8_t fill : {uint8_t(0), uint8_t(0xcc), uint8_t(0xff)})
            CHECK(encode_block(spec, data, max_encoded_bytes(spec), fill).bytes == first.bytes);
        CHECK(encode_block(spec, data, first.bytes.size() + 1000).bytes == first.bytes);
        for (size_t shift = 1; shift < 8; ++shift) {
            std::vector<uint8_t> moved(first.bytes.size() + shift);
            std::copy(first.bytes.begin(), first.bytes.end(), moved.begin() + ptrdiff_t(shift));
            std::vector<uint16_t> halves(data.code.size());
            std::vector<uint8_t> bytes(data.code.size());
            const uint8_t* at = moved.data() + shift;
            const size_t size = first.bytes.size();
            if (type == scalar_type::bf16)
                CHECK(decode(spec, at, size, predictor_of(data), dense(spec, halves.data())));
            else
                CHECK(decode(spec, at, size, predictor_of(data), dense(spec, bytes.data())));
        }
    }
}

TEST_CASE("max_encoded_bytes is a bound, and less than a block needs is an error that says enough")
{
    test_rng rng(13);
    for (const scalar_type type : types)
        for (int round = 0; round < 250; round += thin > 1 ? 3 : 1) {
            CAPTURE(doctest::String(scalar_name(type)));
            CAPTURE(round);
            const uint32_t count = round < 100 ? uint32_t(round) : 1 + rng.below(4096);
            block_spec spec = line_of(type, count, lane_counts[rng.below(4)]);
            set_flags(spec, rng.below(16));
            const data_style styles[] = {data_style::adversarial, data_style::mixed,
                                         data_style::typical, data_style::sharp};
            const test_scalars data = data_for(spec, styles[rng.below(4)], rng.next());
            const size_t bound = max_encoded_bytes(spec);
            CHECK(bound == 16 + (spec.has_fingerprint ? 8u : 0) + (spec.parameter_hash ? 4u : 0) +
                               (size_t(count) * code_bytes(type) + 3) / 4 * 4);
            const coded_block coded = encode_block(spec, data, bound);
            REQUIRE(coded.result);
            CHECK(coded.canaries_intact);
            const size_t exact = coded.bytes.size();
            REQUIRE(exact <= bound);
            const coded_block again = encode_block(spec, data, exact);
            CHECK(again.bytes == coded.bytes);
            CHECK(again.canaries_intact);
            for (const size_t capacity : {exact - 1, exact - 4, exact / 2, size_t(1), size_t(0)}) {
                const coded_block small = encode_block(spec, data, capacity);
                CHECK(small.result.code == status::output_too_small);
                CHECK(small.result.bytes == bound);
                CHECK(small.canaries_intact);
            }
        }
}

TEST_CASE("default lanes")
{
    for (const uint32_t count : {32767u, 32768u}) {
        block_spec spec = line_of(scalar_type::e4m3fn, count, 0);
        const test_scalars data = data_for(spec, data_style::typical, 14);
        const coded_block coded = round_trip(spec, data);
        CHECK(coded.result.lanes == (count == 32767 ? 8 : 32));
        spec.lanes = coded.result.lanes;
        CHECK(encode_block(spec, data).bytes == coded.bytes);
        spec.lanes = 16;
        CHECK(decode_block(spec, coded.bytes, data).result.code == status::wrong_lanes);
    }
}

TEST_CASE("overhead: 16 bytes, 3.1 bytes a lane and the row steps beyond the model's bits")
{
    // To which come one byte of padding, on average, and what a quotient of few bits costs the
    // coder: up to 0.006 bits per scalar.
    constexpr double scalars = 2 * 9 * 64, allowance = 1 + 0.006 / 8 * scalars;
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16, scalar_type::fp16})
        for (const uint32_t lanes : lane_counts) {
            double over = 0;
            const int blocks = thin == 1 ? 300 : 30;
            for (int i = 0; i < blocks; ++i) {
                block_spec spec = spec_of(type, 2, 9, 64, lanes);
                spec.row_scale = i % 2 != 0;
                std::vector<int> steps(9);
                for (int& step : steps) step = spec.row_scale ? i % 13 - 5 : 0;
                const test_scalars data = spec.row_scale
                                              ? row_data(spec, uint64_t(i), steps)
                                              : data_for(spec, data_style::typical, uint64_t(i));
                const coded_block coded = encode_block(spec, data);
                REQUIRE(coded.result.mode == block_mode::coded);
                if (coded.result.row_scaled)
                    for (uint32_t t = 0; t < 9; ++t)
                        steps[t] = row_step_of(spec, coded.bytes.data(), coded.bytes.size(), t);
                const expected_block expected =
                    expect_coded(spec, data, coded.result.row_scaled ? steps : std::vector<int>{});
                over += double(coded.bytes.size()) - expected.model_bits / 8 -
                        double(row_step_bytes(9, coded.bytes[3] >> 4));
            }
            CAPTURE(doctest::String(scalar_name(type)));
            CAPTURE(lanes);
            MESSAGE("overhead in bytes: " << over / blocks);
            CHECK(over / blocks <= 16 + 3.1 * lanes + allowance);
            CHECK(over / blocks >= 16 + 2.9 * lanes);
        }
}

TEST_CASE("impossible specs and null pointers")
{
    const test_scalars data = draw_scalars(15, scalar_type::e4m3fn, data_style::typical, -16, 100);
    const block_spec good = line_of(scalar_type::e4m3fn, 100, 8);
    std::vector<uint8_t> codes(100), out(1000);
    const auto encodes = [&](const block_spec& spec) {
        return encode(spec, dense(spec, codes.data()), predictor_of(data), out.data(), out.size())
            .code;
    };
    const auto decodes = [&](const block_spec& spec) {
        return decode(spec, out.data(), out.size(), predictor_of(data), dense(spec, codes.data()))
            .code;
    };
    const auto refused = [&](const block_spec& spec) {
        return encodes(spec) == status::bad_argument && decodes(spec) == status::bad_argument;
    };
    REQUIRE(encodes(good) == status::ok);
    REQUIRE(decodes(good) == status::ok);
    marginal_table table{};
    block_spec bad = good;
    bad.dtype = scalar_type(10);
    CHECK(refused(bad));
    CHECK(max_encoded_bytes(bad) == 0);
    bad = good, bad.dtype = scalar_type::bf16;  // codes of another width
    CHECK(refused(bad));
    bad = good, bad.lanes = 4;
    CHECK(refused(bad));
    bad = good, bad.shape = shape_id(3);
    CHECK(refused(bad));
    bad = good, bad.shape = shape_id::mixture_marginal;
    CHECK(refused(bad));
    bad = good, bad.marginal = &table;
    CHECK(refused(bad));
    bad = good, bad.sigma_offset = min_sigma_offset - 1;
    CHECK(refused(bad));
    bad = good, bad.sigma_offset = max_sigma_offset + 1;
    CHECK(refused(bad));
    for (const block_spec& huge :
         {spec_of(scalar_type::e4m3fn, 1, 1, 0x80000000u, 8),
          spec_of(scalar_type::e4m3fn, 65536, 65536, 1, 8),
          spec_of(scalar_type::e4m3fn, 0xffffffffu, 0xffffffffu, 0xffffffffu, 8),
          spec_of(scalar_type::e4m3fn, 2048, 1024, 1024, 8)}) {
        CHECK(refused(huge));
        CHECK(max_encoded_bytes(huge) == 0);
    }
    const auto null_out =
        encode(good, dense(good, codes.data()), predictor_of(data), nullptr, 1000);
    CHECK(null_out.code == status::bad_argument);
    CHECK(null_out.bytes == max_encoded_bytes(good));
    uint8_t* no_codes = nullptr;
    CHECK(encode(good, dense(good, no_codes), predictor_of(data), out.data(), 1000).code ==
          status::bad_argument);
    CHECK(decode(good, out.data(), out.size(), predictor_of(data), dense(good, no_codes)).code ==
          status::bad_argument);
    CHECK(decode(good, nullptr, 0, predictor_of(data), dense(good, codes.data())).code ==
          status::truncated);
}

TEST_CASE("each mismatch has its own status, given before anything is written")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::fp16}) {
        block_spec spec = spec_of(type, 2, 6, 30, 8);
        set_flags(spec, 15);
        const test_scalars data = row_data(spec, 16, {-6, 9, 0, 3, -2, 5});
        const coded_block coded = round_trip(spec, data);
        REQUIRE(coded.result.mode == block_mode::coded);
        const auto asked = [&](const block_spec& other) {
            const decoded_block back = decode_block(other, coded.bytes, data);
            for (const uint16_t code : back.codes)
                CHECK(code == (code_bytes(type) == 1 ? 0x5a : 0x5a5a));
            return back.result.code;
        };
        block_spec other = spec;
        other.dtype = type == scalar_type::fp16 ? scalar_type::bf16 : scalar_type::e4m3fnuz;
        CHECK(asked(other) == status::wrong_dtype);
        other = spec, other.tokens = 5;
        CHECK(asked(other) == status::wrong_count);
        other = spec, other.lanes = 32;
        CHECK(asked(other) == status::wrong_lanes);
        other = spec, other.fingerprint ^= 1;
        CHECK(asked(other) == status::wrong_fingerprint);
        other = spec, other.has_fingerprint = false;
        CHECK(asked(other) == status::wrong_model);
        other = spec, other.content_check = false;
        CHECK(asked(other) == status::wrong_model);
        other = spec, other.parameter_hash = false;
        CHECK(asked(other) == status::wrong_model);
        other = spec, other.row_scale = false;
        CHECK(asked(other) == status::wrong_model);
    }
}

TEST_CASE("another prediction than the encoder's is told from damage by the parameter hash")
{
    for (const bool hashed : {true, false}) {
        block_spec spec = spec_of(scalar_type::bf16, 1, 8, 50, 8);
        spec.parameter_hash = hashed;
        const test_scalars data = data_for(spec, data_style::typical, 17);
        const coded_block coded = round_trip(spec, data);
        REQUIRE(coded.result.mode == block_mode::coded);
        test_rng rng(18);
        for (int round = 0; round < 300; ++round) {
            test_scalars drifted = data;
            const size_t i = rng.below(400);
            if (round % 2) drifted.mean[i] ^= 1u << rng.below(20);
            else drifted.sigma[i] = uint8_t(drifted.sigma[i] + 1);
            const decoded_block back = decode_block(spec, coded.bytes, drifted);
            if (hashed) CHECK(back.result.code == status::wrong_prediction);
            // A mean's last bits may change no interval; then the codes are right.
            else CHECK((back.result.code != status::ok || back.codes == data.code));
        }
        std::vector<uint8_t> damaged = coded.bytes;
        damaged[12] ^= 1;
        CHECK(decode_block(spec, damaged, data).result.code == status::content_mismatch);
    }
}

TEST_CASE("damage: every bit of a block of every mode; every length cut off")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16})
        for (const data_style style :
             {data_style::typical, data_style::mixed, data_style::adversarial, data_style::dead}) {
            block_spec spec = spec_of(type, 2, 5, 21, 8);
            set_flags(spec, 2 + 8);
            const test_scalars data = data_for(spec, style, 19);
            const coded_block coded = round_trip(spec, data);
            uint64_t passed = 0;
            for (size_t bit = 0; bit < 8 * coded.bytes.size(); bit += thin > 1 ? 7 : 1) {
                std::vector<uint8_t> damaged = coded.bytes;
                damaged[bit / 8] = uint8_t(damaged[bit / 8] ^ 1u << bit % 8);
                passed += decode_block(spec, damaged, data).result.code == status::ok;
            }
            CHECK(passed == 0);
            for (size_t bytes = 0; bytes < coded.bytes.size(); ++bytes) {
                const std::vector<uint8_t> cut(coded.bytes.begin(),
                                               coded.bytes.begin() + ptrdiff_t(bytes));
                CHECK(decode_block(spec, cut, data).result.code == status::truncated);
            }
            std::vector<uint8_t> longer = coded.bytes;
            longer.insert(longer.end(), 100, 0xff);
            const decoded_block back = decode_block(spec, longer, data);
            CHECK(back.result.code == status::ok);
            CHECK(back.result.bytes == coded.bytes.size());
        }
}

TEST_CASE("states out of range, words missing or left over, padding: corrupt_stream")
{
    const block_spec spec = line_of(scalar_type::e4m3fn, 500, 8);
    const test_scalars data = data_for(spec, data_style::typical, 20);
    const coded_block coded = round_trip(spec, data);
    REQUIRE(coded.result.mode == block_mode::coded);
    const auto with_u32 = [&](size_t at, uint32_t value) {
        std::vector<uint8_t> changed = coded.bytes;
        for (unsigned i = 0; i < 4; ++i) changed[at + i] = uint8_t(value >> 8 * i);
        changed.insert(changed.end(), 8, 0);
        return decode_block(spec, changed, data);
    };
    for (const auto& damaged :
         {with_u32(16, 0), with_u32(16, 32767), with_u32(16 + 28, 0x80000000u)}) {
        CHECK(damaged.result.code == status::corrupt_stream);
        // Seen before the first scalar.
        CHECK(std::count(damaged.codes.begin(), damaged.codes.end(), 0x5a) == 500);
    }
    uint32_t words = 0;
    for (unsigned i = 0; i < 4; ++i) words |= uint32_t(coded.bytes[8 + i]) << 8 * i;
    CHECK(with_u32(8, words).result.code == status::ok);
    CHECK(with_u32(8, words + 1).result.code == status::corrupt_stream);
    CHECK(with_u32(8, words - 1).result.code == status::corrupt_stream);
    CHECK(with_u32(8, 0).result.code == status::corrupt_stream);
}

TEST_CASE("a block whose words are all there is to it: one lane, certain scalars")
{
    // 3,000 scalars at their most likely code, one not: a few bytes.
    const block_spec spec = line_of(scalar_type::e4m3fn, 3000, 1);
    test_scalars data = data_for(spec, data_style::sharp, 21);
    for (size_t i = 0; i < 3000; ++i) {
        data.mean[i] = float_to_bits(2.0f);
        data.sigma[i] = 40;
        data.code[i] = uint16_t(i == 1500 ? 0x41 : 0x40);
    }
    const coded_block coded = round_trip(spec, data);
    CHECK(coded.result.mode == block_mode::coded);
    CHECK(coded.bytes.size() <= 32);
}
