// host/scaled_block.hpp: blocks of int8, int4 and e2m1 under both coders, of fp8
// under tANS. Round trips over lanes,
// flags and layouts; bytes against a block put together from the text with the plain coder of
// tests/support; modes and statuses.

#include <doctest/doctest.h>

#include <functional>
#include <initializer_list>

#include <normans/core/uniform_model.hpp>

#include "support/reference_rans.hpp"
#include "support/scaled_page.hpp"

using namespace normans;
using namespace normans_test;

namespace {

constexpr uint32_t lane_counts[] = {1, 8, 16, 32};

void set_flags(block_spec& spec, unsigned flags)
{
    spec.row_scale = (flags & 1) != 0;
    spec.content_check = (flags & 2) != 0;
    spec.parameter_hash = (flags & 4) != 0;
    spec.has_fingerprint = (flags & 8) != 0;
    spec.fingerprint = spec.has_fingerprint ? 0xfeedfacecafebeefu : 0;
}

encode_result round_trip(const scaled_page& page)
{
    encode_result result;
    const std::vector<uint8_t> block = encode_scaled_page(page, &result);
    REQUIRE(result.code == status::ok);
    backend_id expected = backend_id::scalar;
    if (result.mode == block_mode::coded && result.lanes != 1) {
        expected = default_backend::id;
        if (page.spec.coder == coder_id::tans && expected != backend_id::scalar)
            expected = detail::tans_backend(page.spec.dtype, result.lanes);
    }
    CHECK(result.backend == expected);
    CHECK(block.size() <= max_encoded_bytes(page.spec));
    const decoded_scaled back = decode_scaled_page(page, block.data(), block.size());
    CHECK(back.result.code == status::ok);
    CHECK(back.result.bytes == block.size());
    CHECK(back.result.mode == result.mode);
    CHECK(back.result.lanes == result.lanes);
    CHECK(back.result.row_scaled == result.row_scaled);
    CHECK(back.result.backend == expected);
    CHECK(back.codes == page.codes);
    block_header header;
    REQUIRE(read_block_header(block.data(), block.size(), header) == status::ok);
    CHECK(header.dtype == page.spec.dtype);
    CHECK(header.coder == page.spec.coder);
    return result;
}

void put(std::vector<uint8_t>& to, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; ++i) to.push_back(uint8_t(value >> 8 * i));
}

template <class ValueAt>
uint32_t plain_check(size_t count, uint32_t lanes, ValueAt value_at)
{
    uint32_t check = 0;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
        uint32_t a = 0, b = 0;
        for (size_t i = lane; i < count; i += lanes) b += a += value_at(i);
        check += (a + (b << 16 | b >> 16)) * ((2 * lane + 1) * 0x9E3779B1u);
    }
    return check;
}

rans_event raw_event(uint32_t value, unsigned bits)
{
    rans_event event;
    if (bits != 0) event.kind = rans_event::raw;
    event.bits = bits;
    event.value = value & ((1u << bits) - 1);
    return event;
}

template <scalar_type Type>
rans_scalar rans_events(const scaled_page& page, uint32_t i, const code_scale& scale)
{
    const scaled_model<Type> model{shape_of(page.spec.shape), page.spec.sigma_offset, nullptr};
    const uint32_t mean = map_mean(float_to_bits(page.mean[i]), one_bits, minus_zero_bits);
    const interval found =
        model.find(prepare_scaled(model, mean, page.sigma[i], 0, scale), page.codes[i]);
    rans_scalar event;
    event.phase[0].kind = rans_event::interval;
    event.phase[0].start = found.start;
    event.phase[0].freq = found.freq;
    if (found.escaped) event.phase[1] = raw_event(page.codes[i], page.code_bits());
    return event;
}

// A tANS scalar's bits: the cell is found among the decoder's cells.
template <class Model>
rans_scalar tans_events(const scaled_page& page, const Model& model, uint32_t i,
                        const code_scale& scale, uint32_t& cell)
{
    const uint32_t mean = map_mean(float_to_bits(page.mean[i]), one_bits, minus_zero_bits);
    const auto m = model.prepare(mean, page.sigma[i], 0, scale);
    rans_scalar event;
    for (const bool escape : {false, true}) {
        for (uint32_t at = 0; at < 1u << page.spec.bank->plan.table_bits; ++at) {
            const tans_transition step = model.leave(m, at);
            const uint32_t low = cell - step.next_base;
            if (step.corrupt || step.escaped != escape || cell < step.next_base ||
                low >> step.bit_count != 0 || page.codes[i] >> step.raw_bits << step.raw_bits !=
                                                  int(step.code))
                continue;
            event.phase[0] = raw_event(low, step.bit_count);
            event.phase[1] = raw_event(page.codes[i], step.raw_bits);
            cell = at;
            return event;
        }
    }
    FAIL("no cell");
    return event;
}

// The coded block of a page without row steps, from the text of the format.
std::vector<uint8_t> expect_block(const scaled_page& page)
{
    const block_spec& spec = page.spec;
    const uint32_t count = uint32_t(page.codes.size()), lanes = spec.lanes;
    const bool tans = spec.coder == coder_id::tans;
    const tans_bank bank = tans ? *spec.bank : tans_bank{};
    const float_bank_model floats(spec.dtype, bank, spec.sigma_offset);
    const bank_model<scalar_type::int8> wide{bank, spec.sigma_offset};
    const bank_model<scalar_type::int4> narrow{bank, spec.sigma_offset};
    std::vector<rans_scalar> events(count);
    std::vector<uint32_t> cells(lanes), words_of_input(count);
    for (uint32_t i = count; i-- > 0;) {
        const uint32_t groups = (spec.dim + 31) / 32, row = i / spec.dim, d = i % spec.dim;
        const uint32_t bits = float_to_bits(page.scales[row * groups + d / 32]);
        const code_scale scale = make_scale(bits);
        uint32_t& cell = cells[i % lanes];
        if (has_float_bank(spec.dtype))
            events[i] = tans ? tans_events(page, floats, i, scale, cell)
                             : rans_events<scalar_type::e2m1>(page, i, scale);
        else if (spec.dtype == scalar_type::int8)
            events[i] = tans ? tans_events(page, wide, i, scale, cell)
                             : rans_events<scalar_type::int8>(page, i, scale);
        else
            events[i] = tans ? tans_events(page, narrow, i, scale, cell)
                             : rans_events<scalar_type::int4>(page, i, scale);
        const uint32_t mean = map_mean(float_to_bits(page.mean[i]), one_bits, minus_zero_bits);
        words_of_input[i] = mean ^ 0x9E3779B1u * (1u + page.sigma[i] + 256u * 6u) ^
                            (has_scale(spec.dtype) ? bits : 0);
    }
    const rans_stream stream = reference_encode(events, lanes);
    std::vector<uint16_t> words;
    std::vector<uint32_t> states;
    for (uint32_t i = 0; i < lanes; ++i) {
        const uint32_t state = uint32_t(stream.states[i]);
        if (tans && state >= 65536) words.push_back(uint16_t(state));
        const uint32_t rest = state >= 65536 ? state / 65536 : state;
        states.push_back(!tans ? state : rest + 65536 * cells[i]);
    }
    words.insert(words.end(), stream.words.begin(), stream.words.end());
    std::vector<uint8_t> block;
    const unsigned flags = (spec.content_check ? 2u : 0) | (spec.parameter_hash ? 4u : 0) |
                           (spec.has_fingerprint ? 8u : 0);
    put(block, 0, 1);
    put(block, unsigned(spec.dtype) | (tans ? 16u : 0), 1);
    put(block, (lanes == 1 ? 0u : lanes == 8 ? 4u : lanes == 16 ? 8u : 12u) | flags << 4, 1);
    put(block, 0, 1);
    put(block, count, 4);
    put(block, words.size(), 4);
    put(block,
        spec.content_check ? plain_check(count, lanes, [&](size_t i) { return page.codes[i]; }) : 0,
        4);
    if (spec.has_fingerprint) put(block, spec.fingerprint, 8);
    if (spec.parameter_hash)
        put(block, plain_check(count, lanes, [&](size_t i) { return words_of_input[i]; }), 4);
    for (const uint32_t state : states) put(block, state, 4);
    for (const uint16_t word : words) put(block, word, 2);
    while (block.size() % 4 != 0) block.push_back(0);
    return block;
}

}  // namespace

TEST_CASE("scaled blocks: round trips over type x coder x lanes x flags x shape")
{
    uint64_t seed = 100;
    uint32_t coded = 0, all = 0;
    for (const scaled_kind kind : scaled_kinds)
        for (const uint32_t lanes : lane_counts)
            for (unsigned flags = 0; flags < 16; ++flags)
                for (const shape_id shape : {shape_id::gaussian, shape_id::mixture}) {
                    block_spec spec = scaled_spec(kind.type, kind.coder, 2, 5, 61, lanes);
                    spec.shape = shape;
                    set_flags(spec, flags);
                    const encode_result got = round_trip(make_scaled_page(++seed, spec));
                    CHECK(got.lanes == lanes);
                    ++all;
                    coded += got.mode == block_mode::coded;
                }
    CHECK(coded > all * 3 / 4);
}

TEST_CASE("scaled blocks: the bytes that the text says")
{
    uint64_t seed = 200;
    uint32_t compared = 0;
    for (const scaled_kind kind : scaled_kinds)
        for (const uint32_t lanes : lane_counts)
            for (const unsigned flags : {2u, 12u})
                for (const uint32_t tokens : {1u, 9u}) {
                    block_spec spec = scaled_spec(kind.type, kind.coder, 1, tokens, 149, lanes);
                    set_flags(spec, flags);
                    const scaled_page page = make_scaled_page(++seed, spec);
                    encode_result result;
                    const std::vector<uint8_t> block = encode_scaled_page(page, &result);
                    if (result.mode != block_mode::coded) continue;
                    CHECK(block == expect_block(page));
                    ++compared;
                }
    CHECK(compared > 60);
}

TEST_CASE("scaled blocks: every length, two to a byte")
{
    for (const scaled_kind kind : scaled_kinds)
        for (const uint32_t lanes : lane_counts)
            for (uint32_t count = 0; count <= 2 * lanes + 1; ++count)
                CHECK(round_trip(make_scaled_page(count + 300, scaled_spec(kind.type, kind.coder, 1,
                                                                           1, count, lanes)))
                          .lanes == lanes);
}

TEST_CASE("scaled blocks: strides, and what lies between rows stays as it was")
{
    for (const scaled_kind kind : scaled_kinds) {
        const block_spec spec = scaled_spec(kind.type, kind.coder, 3, 4, 37, 8);
        const scaled_page page = make_scaled_page(7, spec);
        const bool nibbles = page.code_bits() == 4;
        // Odd strides: rows of nibbles begin in the middle of a byte.
        const ptrdiff_t token_stride = 41, head_stride = 4 * 41 + 3;
        const size_t elements = size_t(3 * head_stride);
        const auto get = [&](const std::vector<uint8_t>& bytes, size_t i) {
            return nibbles ? bytes[i / 2] >> 4 * (i % 2) & 15 : bytes[i];
        };
        std::vector<uint8_t> memory(elements, 0xa5), out(elements, 0x5a);
        std::vector<bool> inside(elements);
        for (uint32_t i = 0; i < page.codes.size(); ++i) {
            const size_t at = size_t(ptrdiff_t(i / 148) * head_stride +
                                     ptrdiff_t(i / 37 % 4) * token_stride + i % 37);
            inside[at] = true;
            if (!nibbles) memory[at] = page.codes[i];
            else if (at % 2) memory[at / 2] = uint8_t((memory[at / 2] & 15) | page.codes[i] << 4);
            else memory[at / 2] = uint8_t((memory[at / 2] & 0xf0) | page.codes[i]);
        }
        std::vector<uint8_t> block(max_encoded_bytes(spec));
        const encode_result made =
            encode(page.spec, box_view<const uint8_t>{memory.data(), head_stride, token_stride},
                   page.predictor(), block.data(), block.size());
        REQUIRE(made.code == status::ok);
        block.resize(made.bytes);
        CHECK(block == encode_scaled_page(page));
        REQUIRE(decode(page.spec, block.data(), block.size(), page.predictor(),
                       box_view<uint8_t>{out.data(), head_stride, token_stride}));
        uint32_t wrong = 0;
        for (size_t i = 0; i < elements; ++i) {
            const int untouched = nibbles ? (i % 2 ? 5 : 10) : 0x5a;
            wrong += get(out, i) != (inside[i] ? get(memory, i) : untouched);
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("scaled blocks: modes")
{
    for (const scaled_kind kind : scaled_kinds) {
        const block_spec spec = scaled_spec(kind.type, kind.coder, 1, 6, 63, 8);
        test_rng rng(9);
        scaled_page page = make_scaled_page(8, spec, 0);
        CHECK(round_trip(page).mode == block_mode::coded);
        for (uint8_t& code : page.codes) code = uint8_t(rng.bits(page.code_bits()));
        encode_result raw;
        const std::vector<uint8_t> bytes = encode_scaled_page(page, &raw);
        CHECK(round_trip(page).mode == block_mode::raw);
        CHECK(raw.bytes == 16 + (378 * page.code_bits() / 8 + 3) / 4 * 4);
        const std::vector<uint8_t> codes = packed(page);
        CHECK(std::vector<uint8_t>(bytes.begin() + 16, bytes.begin() + 16 +
                                                           ptrdiff_t(codes.size())) == codes);
        page.codes.assign(page.codes.size(), 5);
        CHECK(round_trip(page).mode == block_mode::constant);
        for (uint32_t i = 0; i < page.codes.size(); ++i) {
            const uint32_t scale = float_to_bits(page.scales[i / 63 * 2 + i % 63 / 32]);
            page.codes[i] = uint8_t(
                expected_code(format_of(kind.type),
                              mean_in_codes(float_to_bits(page.mean[i]), make_scale(scale))));
        }
        CHECK(round_trip(page).mode == block_mode::predicted);
        page.spec.parameter_hash = true;
        CHECK(round_trip(page).mode == block_mode::predicted);
    }
}

TEST_CASE("scaled blocks: row steps pay where tokens differ in scale")
{
    for (const scaled_kind kind : scaled_kinds) {
        block_spec spec = scaled_spec(kind.type, kind.coder, 2, 12, 128, 8);
        scaled_page page = make_scaled_page(10, spec, 0);
        // The prediction of sigma is wrong by a factor per token.
        for (uint32_t i = 0; i < page.sigma.size(); ++i) {
            const int away = int(i / 128 % 12) % 4 * 4 - 4;
            page.sigma[i] = uint8_t(page.sigma[i] + away < 0 ? 0 : page.sigma[i] + away);
        }
        const size_t plain = encode_scaled_page(page).size();
        page.spec.row_scale = true;
        const encode_result scaled = round_trip(page);
        CHECK(scaled.row_scaled);
        CAPTURE(doctest::String(scalar_name(kind.type)));
        MESSAGE("row steps: ", plain, " -> ", scaled.bytes, " bytes");
        CHECK(scaled.bytes < plain);
    }
}

TEST_CASE("scaled blocks: what specs are refused, and what a decoder says of another's block")
{
    const auto code_of = [](const scaled_page& page, const std::function<void(block_spec&)>& f) {
        scaled_page changed = make_scaled_page(11, page.spec);
        f(changed.spec);
        encode_result result;
        encode_scaled_page(changed, &result);
        return result.code;
    };
    const scaled_page page =
        make_scaled_page(11, scaled_spec(scalar_type::int8, coder_id::tans, 1, 3, 64, 8));
    CHECK(code_of(page, [](block_spec&) {}) == status::ok);
    CHECK(code_of(page, [](block_spec& s) { s.scales.data = nullptr; }) == status::bad_argument);
    CHECK(code_of(page, [](block_spec& s) { s.bank = nullptr; }) == status::bad_argument);
    CHECK(code_of(page, [](block_spec& s) { s.shape = shape_id::mixture; }) ==
          status::bad_argument);
    CHECK(code_of(page, [](block_spec& s) { s.coder = coder_id(3); }) == status::bad_argument);
    CHECK(code_of(page, [](block_spec& s) { s.dtype = scalar_type::e4m3fn; }) ==
          status::bad_argument);  // another type's bank
    CHECK(code_of(page, [](block_spec& s) {
              s.bank = test_bank(scalar_type::e5m2, s.shape);
          }) == status::bad_argument);
    CHECK(code_of(page, [](block_spec& s) { s.dtype = scalar_type::bf16; }) ==
          status::bad_argument);
    CHECK(code_of(page, [](block_spec& s) { s.dtype = scalar_type::raw8; }) ==
          status::bad_argument);
    static marginal_table marginal;
    CHECK(code_of(page, [](block_spec& s) {
              s.coder = coder_id::rans;
              s.shape = shape_id::mixture_marginal;
              s.marginal = &marginal;
          }) == status::bad_argument);
    tans_bank halved = *page.spec.bank;
    halved.next = nullptr;  // a decoder's
    CHECK(code_of(page, [&](block_spec& s) { s.bank = &halved; }) == status::bad_argument);
    const std::vector<uint8_t> block = encode_scaled_page(page);
    scaled_page like = make_scaled_page(11, page.spec);
    like.spec.bank = &halved;
    halved.symbols = nullptr;
    CHECK(decode_scaled_page(like, block.data(), block.size()).codes == page.codes);

    like.spec.coder = coder_id::rans;
    CHECK(decode_scaled_page(like, block.data(), block.size()).result.code == status::wrong_model);
    like.spec.coder = coder_id::tans;
    like.spec.dtype = scalar_type::int4;
    CHECK(decode_scaled_page(like, block.data(), block.size()).result.code == status::wrong_dtype);
    like.spec.dtype = scalar_type::int8;
    const bank_rows_of other(scalar_type::int8, bank_plan{shape_id::gaussian, 8, 2, 2});
    like.spec.bank = &other.bank;
    CHECK(decode_scaled_page(like, block.data(), block.size()).result.code != status::ok);
    // tANS contradicts what is wider than a byte, and what has no model.
    for (const uint8_t type : {uint8_t(scalar_type::bf16), uint8_t(scalar_type::raw8)}) {
        std::vector<uint8_t> forged = block;
        forged[1] = uint8_t(type | 16);
        block_header header;
        CHECK(read_block_header(forged.data(), forged.size(), header) == status::bad_header);
    }
    // A drifted scale or mean is named by the parameter hash.
    scaled_page hashed = make_scaled_page(12, page.spec);
    hashed.spec.parameter_hash = true;
    const std::vector<uint8_t> named = encode_scaled_page(hashed);
    CHECK(decode_scaled_page(hashed, named.data(), named.size()).result.code == status::ok);
    const float kept = hashed.scales[1];
    hashed.scales[1] = kept * 1.001f + 1e-6f;
    CHECK(decode_scaled_page(hashed, named.data(), named.size()).result.code ==
          status::wrong_prediction);
    hashed.scales[1] = kept;
    hashed.mean[5] += 0.01f;
    CHECK(decode_scaled_page(hashed, named.data(), named.size()).result.code ==
          status::wrong_prediction);
}
