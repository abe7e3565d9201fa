// Field cases B01, B03, B04, B06, B08: degenerate sizes, models that are as wrong as can be, every
// bit pattern, lane counts that do not divide, and outputs of every capacity.

#include <doctest/doctest.h>

#include "field/page.hpp"

using namespace field;

namespace {

void check_exact(const page& data)
{
    encode_result made;
    const std::vector<uint8_t> block = encode_page(data, &made);
    REQUIRE(made.code == status::ok);
    REQUIRE(made.bytes <= max_encoded_bytes(data.spec));
    const decoded_page back = decode_page(data, block);
    REQUIRE(back.result.code == status::ok);
    REQUIRE(back.result.bytes == block.size());
    REQUIRE(back.codes == data.codes);
}

// Of 1,024 scalars: more than 100 million in all.
constexpr uint32_t many_rows = sanitized ? 9'766 : 97'657;

}  // namespace

TEST_CASE("B01 no scalars: a valid empty block, null pointers allowed")
{
    for (const scalar_type type : all_types) {
        for (int which = 0; which < 4; ++which) {
            CAPTURE(scalar_name(type));
            CAPTURE(which);
            block_spec spec;
            spec.dtype = type;
            spec.heads = which == 0 ? 0 : 1;
            spec.tokens = which == 1 ? 0 : 1;
            spec.dim = which == 2 || which == 3 ? 0 : 1;
            spec.tokens = which == 3 ? 0 : spec.tokens;
            spec.row_scale = true;
            spec.parameter_hash = true;
            spec.has_fingerprint = true;
            const page_predictor nobody{{nullptr}, {nullptr}, {}};
            std::vector<uint8_t> block(max_encoded_bytes(spec));
            REQUIRE(block.size() >= 16);
            encode_result made;
            decode_result back;
            if (code_bytes(type) == 1) {
                made = encode(spec, box_view<const uint8_t>{nullptr, 0, 0}, nobody, block.data(),
                              block.size());
                back = decode(spec, block.data(), made.bytes, nobody,
                              box_view<uint8_t>{nullptr, 0, 0});
            } else {
                made = encode(spec, box_view<const uint16_t>{nullptr, 0, 0}, nobody, block.data(),
                              block.size());
                back = decode(spec, block.data(), made.bytes, nobody,
                              box_view<uint16_t>{nullptr, 0, 0});
            }
            CHECK(made.code == status::ok);
            CHECK(made.mode == block_mode::raw);
            CHECK(made.bytes == 24);
            CHECK(back.code == status::ok);
            CHECK(back.bytes == made.bytes);
        }
    }
}

TEST_CASE("B01 one scalar, one symbol, every symbol once")
{
    for (const scalar_type type : all_types) {
        CAPTURE(scalar_name(type));
        for (const uint32_t lanes : lane_counts) {
            for (uint64_t seed = 0; seed < 50; ++seed) {
                check_exact(make_page(seed, row_spec(type, 1, lanes)));
                check_exact(make_random_page(seed, row_spec(type, 1, lanes)));
            }
            for (const uint32_t count : {2u, 31u, 1000u}) {
                page equal = make_page(count, row_spec(type, count, lanes));
                for (uint16_t& code : equal.codes) code = 0x35;
                check_exact(equal);
                encode_result made;
                encode_page(equal, &made);
                CHECK(made.mode == block_mode::constant);
                CHECK(made.bytes == 20);
            }
            const uint32_t all = code_bytes(type) == 1 ? 256 : 65536;
            page each = make_page(1, row_spec(type, all, lanes));
            for (uint32_t i = 0; i < all; ++i) each.codes[i] = uint16_t(i);
            check_exact(each);
        }
    }
}

TEST_CASE("B01 a hundred million identical scalars")
{
    block_spec spec = row_spec(scalar_type::e4m3fn, 1024, 0);
    spec.tokens = many_rows;
    const page row = make_random_page(1, row_spec(spec.dtype, 1024, 0));
    const std::vector<uint8_t> codes(1024, 0x29);
    const float mean = 100;  // the first scalar refutes "predicted"; nobody asks again
    const uint8_t sigma = 128;
    const page_predictor predictor{{&mean}, {&sigma}, {}};
    uint8_t block[32];
    // Every row is the same memory.
    const encode_result made =
        encode(spec, box_view<const uint8_t>{codes.data(), 0, 0}, predictor, block, sizeof block);
    REQUIRE(made.code == status::ok);
    CHECK(made.mode == block_mode::constant);
    CHECK(made.bytes == 20);
    CHECK(made.lanes == 32);
    std::vector<uint8_t> back(1024);
    const decode_result decoded =
        decode(spec, block, made.bytes, predictor, box_view<uint8_t>{back.data(), 0, 0});
    CHECK(decoded.code == status::ok);
    CHECK(back == codes);
}

namespace {

// Codes through the coder alone, whatever the block's encoder would have chosen.
template <scalar_type Type>
bool coder_is_exact(const normal_model<Type>& model, const std::vector<scalar_model>& models,
                    const std::vector<uint32_t>& codes)
{
    using lanes = array_lanes<8>;
    std::vector<uint8_t> bytes(codes.size() * 8 + 64);
    word_writer writer{bytes.data(), bytes.data() + bytes.size()};
    lanes::state state;
    for (uint32_t i = 0; i < 8; ++i) state[i] = rans_format::lower_bound;
    const auto group_at = [&](size_t first, lanes::models& m, lanes::values& now) {
        const uint32_t active = uint32_t(codes.size() - first < 8 ? codes.size() - first : 8);
        for (uint32_t i = 0; i < active; ++i) {
            m[i] = models[first + i];
            now[i] = codes[first + i];
        }
        return lanes::first_lanes(active);
    };
    for (size_t step = (codes.size() + 7) / 8; step-- > 0;) {
        lanes::models m{};
        lanes::values now{};
        const lanes::mask active = group_at(step * 8, m, now);
        encode_step<lanes>(state, model, m, now, active, writer);
    }
    if (writer.overrun) return false;
    word_reader reader{writer.next, bytes.data() + bytes.size()};
    lanes::mask corrupt = 0;
    const auto guess = [](const auto&, const scalar_model&, uint32_t) { return 0; };
    bool exact = true;
    for (size_t step = 0; step < (codes.size() + 7) / 8; ++step) {
        lanes::models m{};
        lanes::values now{};
        const lanes::mask active = group_at(step * 8, m, now);
        const lanes::values back =
            decode_step<lanes>(state, model, guess, m, active, reader, corrupt);
        for (uint32_t i = 0; i < 8; ++i) exact &= back[i] == now[i];
    }
    for (uint32_t i = 0; i < 8; ++i) exact &= state[i] == rans_format::lower_bound;
    return exact && corrupt == 0 && !reader.overrun && reader.next == reader.end;
}

// True if an interval and what follows it cost at most `bits` bits: 2^15 / freq <= 2^bits.
bool costs_at_most(const interval& one, uint32_t more_bits, uint32_t bits)
{
    const uint64_t weight = uint64_t(one.freq) << bits;
    return weight >= uint64_t(rans_format::total) << (one.raw_bits + more_bits);
}

template <scalar_type Type>
void check_hopeless_models(shape_id shape)
{
    CAPTURE(scalar_name(Type));
    constexpr scalar_format format = format_of(Type);
    constexpr uint32_t codes = uint32_t(1) << format.code_bits;
    // Published: 18 bits per 8-bit scalar, 26 per 16-bit scalar, of which 8 or 16 are the code.
    constexpr uint32_t worst = 10 + format.code_bits;
    const float means[] = {448.0f, -448.0f, 464.0f, 465.0f, 1000.0f, 57344.0f, -61440.0f, 1e-30f,
                           3.39e38f, -3.39e38f, 0.0f, 1.5f};
    const marginal_table marginal = some_marginal(3);
    random_source random{9};
    for (const int offset : {min_sigma_offset, default_sigma_offset, max_sigma_offset}) {
        const normal_model<Type> model{shape_of(shape), offset,
                                       shape == shape_id::mixture_marginal ? &marginal : nullptr};
        for (const float mean : means) {
            for (const uint32_t k : {0u, 1u, 64u, 128u, 200u, 254u, 255u}) {
                const int row_step = int(random.below(16)) - 6;
                const scalar_model m = model.prepare(
                    map_mean(float_to_bits(mean), one_bits, minus_zero_bits), k, row_step);
                std::vector<uint32_t> all;
                uint32_t dear = 0;
                for (uint32_t code = 0; code < codes; code += codes == 256 ? 1 : 37) {
                    all.push_back(code);
                    const interval one = model.find(m, code);
                    dear += !costs_at_most(one, one.escaped ? format.code_bits - one.raw_bits : 0,
                                           worst);
                }
                all.push_back(codes - 1);
                CAPTURE(offset);
                CAPTURE(mean);
                CAPTURE(k);
                if (shape != shape_id::mixture_marginal) CHECK(dear == 0);
                CHECK(coder_is_exact(model, std::vector<scalar_model>(all.size(), m), all));
            }
        }
    }
}

}  // namespace

TEST_CASE("B03 every code under every model, however wrong, at the published worst cost")
{
    for (const shape_id shape : all_shapes) {
        check_hopeless_models<scalar_type::e4m3fn>(shape);
        check_hopeless_models<scalar_type::e5m2>(shape);
        check_hopeless_models<scalar_type::e4m3fnuz>(shape);
        check_hopeless_models<scalar_type::e5m2fnuz>(shape);
        check_hopeless_models<scalar_type::bf16>(shape);
        check_hopeless_models<scalar_type::fp16>(shape);
    }
}

TEST_CASE("B03 a few scalars a million sigmas off in a page that is otherwise well predicted")
{
    for (const scalar_type type : modelled_types) {
        for (const shape_id shape : all_shapes) {
            for (const uint32_t lanes : lane_counts) {
                CAPTURE(scalar_name(type));
                const marginal_table marginal = some_marginal(4);
                block_spec spec = row_spec(type, 4096, lanes);
                spec.shape = shape;
                spec.marginal = shape == shape_id::mixture_marginal ? &marginal : nullptr;
                page data = make_page(lanes, spec);
                random_source random{lanes};
                uint32_t moved = 0;
                for (uint32_t i = 0; i < 4096; ++i) {
                    if (random.below(16) != 0) continue;
                    ++moved;
                    const uint32_t all_codes = code_bytes(type) == 1 ? 0xff : 0xffff;
                    switch (random.below(3)) {
                    case 0: data.mean[i] = 3.39e38f; break;                   // far
                    case 1: data.sigma[i] = uint8_t(random.below(20)); break;  // 2^-14
                    default: data.codes[i] = uint16_t(random.bits() & all_codes);
                    }
                }
                encode_result made;
                encode_page(data, &made);
                CHECK(made.mode == block_mode::coded);
                CHECK(made.escapes > moved / 4);
                check_exact(data);
            }
        }
    }
}

TEST_CASE("B03 a page whose every scalar is at the other end of the range")
{
    for (const float mean : {448.0f, 464.0f, 465.0f, 1000.0f}) {
        page data = make_page(1, row_spec(scalar_type::e4m3fn, 512, 8));
        for (uint32_t i = 0; i < 512; ++i) {
            data.mean[i] = mean;
            data.codes[i] = uint16_t(i % 2 != 0 ? 0xfe : 0xff);
        }
        check_exact(data);
    }
    page data = make_page(1, row_spec(scalar_type::bf16, 512, 8));
    for (uint32_t i = 0; i < 512; ++i) {
        data.mean[i] = -3.39e38f;
        data.codes[i] = uint16_t(0x7f7f - i % 2);
    }
    check_exact(data);
}

TEST_CASE("B04 what a code means")
{
    const auto value = [](scalar_type type, uint32_t code) {
        return bits_to_float(value_bits(format_of(type), code));
    };
    const auto special = [](scalar_type type, uint32_t code) {
        return is_special(format_of(type), code);
    };
    CHECK(value(scalar_type::e4m3fn, 0x40) == 2.0f);
    CHECK(value(scalar_type::e4m3fnuz, 0x40) == 1.0f);
    CHECK(value(scalar_type::e4m3fn, 0x7e) == 448.0f);
    CHECK(value(scalar_type::e4m3fnuz, 0x7f) == 240.0f);
    CHECK(value(scalar_type::e4m3fn, 0x01) == 0x1p-9f);
    CHECK(value(scalar_type::e4m3fnuz, 0x01) == 0x1p-10f);
    CHECK(value(scalar_type::e5m2, 0x3c) == 1.0f);
    CHECK(value(scalar_type::e5m2fnuz, 0x40) == 1.0f);
    CHECK(value(scalar_type::e5m2, 0x7b) == 57344.0f);
    CHECK(value(scalar_type::e5m2fnuz, 0x7f) == 57344.0f);
    CHECK(value_bits(format_of(scalar_type::e4m3fn), 0x80) == 0x80000000);
    CHECK(special(scalar_type::e4m3fn, 0x7f));
    CHECK(special(scalar_type::e4m3fn, 0xff));
    CHECK(!special(scalar_type::e4m3fn, 0x80));
    CHECK(special(scalar_type::e4m3fnuz, 0x80));
    CHECK(special(scalar_type::e5m2fnuz, 0x80));
    CHECK(!special(scalar_type::e4m3fnuz, 0xff));
    CHECK(special(scalar_type::e5m2, 0x7c));
    CHECK(special(scalar_type::e5m2, 0xff));
    CHECK(nearest_code(format_of(scalar_type::e4m3fn), 0x7fc00000) == 0x7f);
    CHECK(nearest_code(format_of(scalar_type::e4m3fnuz), 0x7fc00000) == 0x80);
    CHECK(nearest_code(format_of(scalar_type::e4m3fnuz), 0x80000000) == 0x00);
    CHECK(nearest_code(format_of(scalar_type::e4m3fn), 0x80000000) == 0x80);
    CHECK(nearest_code(format_of(scalar_type::e4m3fn), float_to_bits(1000.0f)) == 0x7e);
    CHECK(nearest_code(format_of(scalar_type::e5m2), float_to_bits(1e6f)) == 0x7c);
}

TEST_CASE("B04 all pairs of neighbouring codes, each type, coded")
{
    for (const scalar_type type : modelled_types) {
        if (code_bytes(type) != 1) continue;
        CAPTURE(scalar_name(type));
        const scalar_format format = format_of(type);
        for (const uint32_t lanes : {1u, 8u}) {
            page data = make_page(1, row_spec(type, 131072, lanes));
            for (uint32_t pair = 0; pair < 65536; ++pair) {
                data.codes[2 * pair] = uint16_t(pair >> 8);
                data.codes[2 * pair + 1] = uint16_t(pair & 255);
            }
            for (uint32_t i = 0; i < 131072; ++i) {
                const uint32_t code = data.codes[i];
                data.mean[i] = is_special(format, code) ? 1.0f
                                                        : bits_to_float(value_bits(format, code));
            }
            encode_result made;
            const auto block = encode_page(data, &made);
            CHECK(made.mode == block_mode::coded);
            CHECK(decode_page(data, block).codes == data.codes);
        }
    }
}

TEST_CASE("B06 every small length and those around powers of two, each lane count")
{
    std::vector<uint32_t> counts;
    for (uint32_t n = 0; n <= 257; ++n) counts.push_back(n);
    for (uint32_t k = 9; k <= 16; ++k)
        for (const uint32_t n : {(1u << k) - 1, 1u << k, (1u << k) + 1}) counts.push_back(n);
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16}) {
        for (const uint32_t lanes : lane_counts) {
            for (const uint32_t n : counts) {
                CAPTURE(lanes);
                CAPTURE(n);
                check_exact(make_page(n, row_spec(type, n, lanes)));
            }
        }
    }
    const page data = make_page(1, row_spec(scalar_type::e4m3fn, 257, 0));
    for (const uint32_t lanes : lane_counts) {  // coded from when on?
        page short_page = data;
        short_page.spec.lanes = lanes;
        encode_result made;
        encode_page(short_page, &made);
        CHECK(made.mode == block_mode::coded);
        CHECK(made.lanes == lanes);
    }
}

TEST_CASE("B06 half a code is an error")
{
    const page data = make_random_page(1, row_spec(scalar_type::bf16, 33, 8));
    std::vector<uint8_t> block = encode_page(data);
    REQUIRE(block.size() == 16 + 68);
    CHECK(decode_page(data, block.data(), block.size() - 1).result.code == status::truncated);
    const std::vector<uint8_t> bytes(66);
    std::vector<uint8_t> out(200), back(66);
    CHECK(encode(data.spec, dense(data.spec, bytes.data()), data.predictor(), out.data(),
                 out.size()).code == status::bad_argument);
    CHECK(decode(data.spec, block.data(), block.size(), data.predictor(),
                 dense(data.spec, back.data())).code == status::bad_argument);
}

namespace {

constexpr uint8_t canary = 0xa5;

// Encodes into `capacity` bytes with 64 canaries on both sides.
encode_result encode_between_canaries(const page& data, const std::vector<uint8_t>& codes,
                                      size_t capacity, std::vector<uint8_t>& memory)
{
    memory.assign(capacity + 128, canary);
    uint8_t* const out = memory.data() + 64;
    const encode_result made =
        code_bytes(data.spec.dtype) == 1
            ? encode(data.spec, dense(data.spec, codes.data()), data.predictor(), out, capacity)
            : encode(data.spec, dense(data.spec, data.codes.data()), data.predictor(), out,
                     capacity);
    bool intact = true;
    for (size_t i = 0; i < 64; ++i)
        intact &= memory[i] == canary && memory[memory.size() - 1 - i] == canary;
    REQUIRE(intact);
    return made;
}

void check_capacity(const page& data, size_t capacity)
{
    encode_result whole;
    const std::vector<uint8_t> expected = encode_page(data, &whole), codes = narrow(data.codes);
    std::vector<uint8_t> memory;
    const encode_result made = encode_between_canaries(data, codes, capacity, memory);
    if (capacity >= expected.size()) {
        REQUIRE(made.code == status::ok);
        REQUIRE(made.bytes == expected.size());
        REQUIRE(std::memcmp(memory.data() + 64, expected.data(), expected.size()) == 0);
    } else {
        REQUIRE(made.code == status::output_too_small);
        REQUIRE(made.bytes >= expected.size());
        REQUIRE(made.bytes <= max_encoded_bytes(data.spec));
        REQUIRE(encode_between_canaries(data, codes, made.bytes, memory).code == status::ok);
    }
}

}  // namespace

TEST_CASE("B08 no block is longer than its bound, and no byte is written outside")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16}) {
        std::vector<uint8_t> memory;
        for (uint32_t n = 1; n <= 4096; n += n < 300 ? 1 : sanitized ? 61 : 13) {
            CAPTURE(n);
            const page data = make_random_page(n, row_spec(type, n, n % 2 != 0 ? 32 : 8));
            const size_t bound = max_encoded_bytes(data.spec);
            const std::vector<uint8_t> codes = narrow(data.codes);
            const encode_result made = encode_between_canaries(data, codes, bound, memory);
            REQUIRE(made.code == status::ok);
            REQUIRE(made.bytes <= bound);
            REQUIRE(made.bytes >= 16);
            for (const size_t capacity : {bound - 1, size_t(1), size_t(0)})
                check_capacity(data, capacity);
        }
    }
}

TEST_CASE("B08 every capacity, every mode")
{
    for (const scalar_type type : modelled_types) {
        for (uint32_t n = 1; n <= 320; n = n * 2 + 1) {
            block_spec spec = row_spec(type, n, n % 2 != 0 ? 8 : 16);
            spec.row_scale = true;
            spec.parameter_hash = true;
            spec.has_fingerprint = n % 3 == 0;
            page coded = make_page(n, spec), constant = coded;
            for (uint8_t& index : coded.sigma) index = uint8_t(index - 8);
            for (uint16_t& code : constant.codes) code = 1;
            for (size_t capacity = 0; capacity <= max_encoded_bytes(spec) + 2; ++capacity) {
                check_capacity(coded, capacity);
                check_capacity(constant, capacity);
            }
        }
    }
}

TEST_CASE("B08 the bound covers everything that is asked for")
{
    block_spec spec = row_spec(scalar_type::bf16, 3, 8);
    CHECK(max_encoded_bytes(spec) == 16 + 8);
    spec.parameter_hash = true;
    CHECK(max_encoded_bytes(spec) == 16 + 4 + 8);
    spec.has_fingerprint = true;
    CHECK(max_encoded_bytes(spec) == 16 + 8 + 4 + 8);
    spec.heads = 0x10000;
    spec.tokens = 0x10000;
    CHECK(max_encoded_bytes(spec) == 0);  // no such box
}
