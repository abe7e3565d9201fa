// Field cases N02, B01, B03, B08, M01, M03, M04 and M05 for blocks of int8, int4 and e2m1, by tANS
// and by rANS, and of fp8 by tANS.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <type_traits>

#include <normans/core/uniform_model.hpp>

#include "field/allocations.hpp"
#include "field/page.hpp"
#include "support/scaled_page.hpp"

using namespace field;
using namespace normans_test;

namespace {

scaled_page page_of(uint64_t seed, scaled_kind kind, uint32_t tokens, uint32_t dim, uint32_t lanes,
                    uint32_t outliers = 50)
{
    return make_scaled_page(seed, scaled_spec(kind.type, kind.coder, 1, tokens, dim, lanes),
                            outliers);
}

bool comes_back(const scaled_page& page, encode_result* made = nullptr)
{
    encode_result result;
    const std::vector<uint8_t> block = encode_scaled_page(page, &result);
    if (made != nullptr) *made = result;
    if (result.code != status::ok || block.size() > max_encoded_bytes(page.spec)) return false;
    const decoded_scaled back = decode_scaled_page(page, block.data(), block.size());
    return back.result.code == status::ok && back.result.bytes == block.size() &&
           back.codes == page.codes;
}

// Every mode, with all that a block may hold.
scaled_page page_in_mode(scaled_kind kind, block_mode mode)
{
    block_spec spec = scaled_spec(kind.type, kind.coder, 1, 5, 59, 8);
    spec.row_scale = true;
    spec.parameter_hash = true;
    spec.has_fingerprint = true;
    spec.fingerprint = 0x0123456789abcdef;
    scaled_page page = make_scaled_page(3, spec, 0);
    test_rng rng(4);
    for (uint32_t i = 0; i < page.codes.size(); ++i) {
        if (mode == block_mode::raw) page.codes[i] = uint8_t(rng.bits(page.code_bits()));
        if (mode == block_mode::constant) page.codes[i] = 3;
        if (mode == block_mode::predicted) {
            const uint32_t scale = float_to_bits(page.scales[i / 59 * 2 + i % 59 / 32]);
            page.codes[i] = uint8_t(
                expected_code(format_of(kind.type),
                              mean_in_codes(float_to_bits(page.mean[i]), make_scale(scale))));
        }
    }
    return page;
}

constexpr block_mode all_modes[] = {block_mode::coded, block_mode::raw, block_mode::constant,
                                    block_mode::predicted};

}  // namespace

TEST_CASE("N02 every code of int8 and int4 has a way through every row of a bank")
{
    uint64_t wrong = 0, cells = 0;
    const auto check = [&](const auto& model) {
        using model_type = std::remove_cv_t<std::remove_reference_t<decltype(model)>>;
        const uint32_t codes = 2 * model_type::format.code_sign();
        const uint32_t size = 1u << model.bank.plan.table_bits;
        for (uint32_t row = 0; row < bank_rows(model.bank.plan); row += thin == 1 ? 1 : 7)
            for (const uint32_t raw : {0u, 1u, 2u})
                for (const bool mirrored : {false, true})
                    for (uint32_t group = 0; group < codes >> raw; group += thin == 1 ? 5 : 13) {
                        const typename model_type::scalar m{row, int32_t(group), raw, mirrored};
                        for (uint32_t code = 0; code < codes; ++code, ++cells) {
                            const uint32_t from = (code * 37 + group) % size;
                            const tans_transition in = model.enter(m, code, from);
                            const tans_transition out = model.leave(m, in.next_base);
                            const uint32_t low = from & ((1u << in.bit_count) - 1);
                            const uint32_t rest = code & ((1u << in.raw_bits) - 1);
                            wrong += (out.code | rest) != code || (out.next_base | low) != from ||
                                     out.corrupt || out.bit_count != in.bit_count ||
                                     out.raw_bits != in.raw_bits;
                        }
                    }
    };
    const tans_bank* const gaussian = test_bank(scalar_type::int8, shape_id::gaussian);
    check(bank_model<scalar_type::int8>{*gaussian, -16});
    check(bank_model<scalar_type::int4>{*gaussian, -16});
    check(bank_model<scalar_type::int4>{*test_bank(scalar_type::int4, shape_id::mixture), -16});
    CHECK(wrong == 0);
    CHECK(cells > 10000);
}

TEST_CASE("N02 every code of fp8 and e2m1 has a way through every row of a bank")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::e5m2, scalar_type::e4m3fnuz,
                                   scalar_type::e5m2fnuz, scalar_type::e2m1})
        for (const shape_id shape : {shape_id::gaussian, shape_id::mixture}) {
            const scalar_format format = format_of(type);
            const float_bank_model model(type, *test_bank(type, shape), -20);
            const uint32_t size = 1u << model.bank.plan.table_bits;
            std::vector<bool> seen(model.layout.rows());
            uint32_t wrong = 0, rows = 0;
            // Sigmas of all octaves and means in every 16th of a cell.
            for (uint32_t sigma = 0; sigma < 255; sigma += 2)
                for (uint32_t at = 0; at < 16 * (format.largest_finite + 1); ++at) {
                    const float low = bits_to_float(edge_bits(format, at / 16));
                    const float high = bits_to_float(edge_bits(format, at / 16 + 1));
                    const float mean = low + (high - low) * float(2 * (at % 16) + 1) / 32;
                    const auto m = model.prepare(float_to_bits(at * 37 & 64 ? -mean : mean), sigma,
                                                 0, {one_bits, one_bits, 0});
                    REQUIRE(m.row < seen.size());
                    if (seen[m.row]) continue;
                    seen[m.row] = true;
                    if (rows++ % (thin == 1 ? 1 : 9) != 0) continue;
                    for (uint32_t code = 0; code < 2 * format.code_sign(); ++code) {
                        const uint32_t from = code * 37 % size;
                        const tans_transition in = model.enter(m, code, from);
                        const tans_transition out = model.leave(m, in.next_base);
                        const uint32_t given = from & ((1u << in.bit_count) - 1);
                        const uint32_t rest = code & ((1u << in.raw_bits) - 1);
                        wrong += (out.code | rest) != code || (out.next_base | given) != from ||
                                 out.corrupt || out.bit_count != in.bit_count ||
                                 out.raw_bits != in.raw_bits || out.escaped != in.escaped;
                    }
                    for (uint32_t cell = 0; cell < size; ++cell) {
                        const tans_transition out = model.leave(m, cell);
                        wrong += out.code >= 2 * format.code_sign() || out.raw_bits > 8;
                        if (out.corrupt || out.escaped) continue;
                        wrong += model.enter(m, out.code, 0).escaped;
                    }
                }
            CHECK(wrong == 0);
            CAPTURE(doctest::String(scalar_name(type)));
            CAPTURE(seen.size());
            // e2m1's means end at 6, in the middle of a binade.
            CHECK(rows >= (type == scalar_type::e2m1 ? seen.size() * 7 / 8 : seen.size()));
        }
}

TEST_CASE("B01 scaled blocks: no scalar, one, all equal, every code once, many alike")
{
    for (const scaled_kind kind : scaled_kinds) {
        for (const uint32_t lanes : lane_counts) {
            CHECK(comes_back(page_of(1, kind, 1, 0, lanes)));
            CHECK(comes_back(page_of(2, kind, 0, 7, lanes)));
            CHECK(comes_back(page_of(3, kind, 1, 1, lanes)));
            scaled_page once = page_of(4, kind, 1, 256, lanes);
            for (uint32_t i = 0; i < 256; ++i)
                once.codes[i] = uint8_t(i & ((1u << once.code_bits()) - 1));
            CHECK(comes_back(once));
            for (const uint32_t code : {0u, 1u, 7u, 15u}) {
                scaled_page equal = page_of(5, kind, 3, 50, lanes);
                equal.codes.assign(equal.codes.size(), uint8_t(code));
                encode_result made;
                CHECK(comes_back(equal, &made));
                CHECK(made.bytes <= 20);
                equal.codes.back() ^= 1;
                CHECK(comes_back(equal));
            }
        }
        scaled_page none = page_of(6, kind, 0, 0, 8);
        none.spec.scales.data = nullptr;
        uint8_t bytes[32];
        const encode_result made = encode(none.spec, box_view<const uint8_t>{nullptr, 0, 0},
                                          none.predictor(), bytes, sizeof bytes);
        CHECK(made.code == status::ok);
        CHECK(decode(none.spec, bytes, made.bytes, none.predictor(),
                     box_view<uint8_t>{nullptr, 0, 0}).code == status::ok);
        // Exact predictions, but for one: every scalar costs next to nothing.
        scaled_page alike = page_of(7, kind, 1, thin == 1 ? 200000 : 5000, 32, 0);
        alike.scales.assign(alike.scales.size(), 0.5f);
        alike.mean.assign(alike.mean.size(), 1.0f);
        alike.sigma.assign(alike.sigma.size(), uint8_t(sigma_zero));
        const code_scale scale = make_scale(float_to_bits(has_scale(kind.type) ? 0.5f : 1.0f));
        alike.codes.assign(
            alike.codes.size(),
            uint8_t(expected_code(format_of(kind.type), mean_in_codes(one_bits, scale))));
        alike.codes[77] ^= 1;
        encode_result cheap;
        CHECK(comes_back(alike, &cheap));
        CHECK(cheap.mode == block_mode::coded);
        CHECK(double(cheap.bytes - 144) * 8 < 0.03 * double(alike.codes.size()) + 16 * 32 + 64);
    }
}

TEST_CASE("B03 scaled blocks: a prediction that is wrong by any amount")
{
    const float infinity = bits_to_float(infinity_bits), nan = bits_to_float(quiet_nan_bits);
    for (const scaled_kind kind : scaled_kinds)
        for (const float mean : {0.0f, -0.0f, 1e-38f, -1e-45f, 1.0f, -7.5f, 127.0f, -128.0f, 464.0f,
                                 1e6f, -1e30f, 3.39e38f, infinity, -infinity, nan})
            for (const uint32_t sigma : {0u, 60u, 128u, 160u, 254u, 255u})
                for (const float scale :
                     {1.0f, 0.0f, -1.0f, 6e-8f, 1e7f, 1e-30f, 3e38f, infinity, nan}) {
                    scaled_page page = page_of(1, kind, 1, 256, 8);
                    page.mean.assign(256, mean);
                    page.sigma.assign(256, uint8_t(sigma));
                    page.scales.assign(page.scales.size(), scale);
                    for (uint32_t i = 0; i < 256; ++i)
                        page.codes[i] = uint8_t(i & ((1u << page.code_bits()) - 1));
                    if (!comes_back(page)) {
                        CAPTURE(mean);
                        CAPTURE(sigma);
                        CAPTURE(scale);
                        FAIL_CHECK("lost");
                    }
                }
    // Most codes right, so that the block is coded, and each wrong one in turn.
    for (const scaled_kind kind : scaled_kinds) {
        scaled_page page = page_of(2, kind, 1, 2000, 8, 0);
        page.scales.assign(page.scales.size(), 0.25f);
        const float mean = kind.type == scalar_type::e2m1 ? 0.5f : 0.75f;
        page.mean.assign(2000, mean);
        page.sigma.assign(2000, 70);  // a sixtieth of a code
        const code_scale scale = make_scale(float_to_bits(has_scale(kind.type) ? 0.25f : 1.0f));
        const uint8_t right = uint8_t(expected_code(
            format_of(kind.type), mean_in_codes(float_to_bits(mean), scale)));
        for (uint32_t code = 0; code < 1u << page.code_bits(); ++code) {
            page.codes.assign(2000, right);
            page.codes[1000] = uint8_t(code);
            page.codes[1999] = uint8_t(right ^ 1);
            encode_result made;
            CHECK(comes_back(page, &made));
            CHECK(made.mode == block_mode::coded);
            CHECK(made.bytes < 120);
        }
    }
}

TEST_CASE("B08 scaled blocks: the bound holds, and capacity is kept to")
{
    constexpr uint8_t canary = 0xa5;
    for (const scaled_kind kind : scaled_kinds) {
        for (uint32_t n = 1; n <= 4096; n += n < 70 ? 1 : sanitized ? 511 : 97) {
            scaled_page page = page_of(n, kind, 1, n, n % 3 == 0 ? 32 : 8);
            test_rng rng(n);
            if (n % 2 != 0)
                for (uint32_t i = 0; i < n; ++i) {
                    page.codes[i] = uint8_t(rng.bits(page.code_bits()));
                    page.mean[i] = bits_to_float(rng.bits(31));
                }
            const std::vector<uint8_t> whole = encode_scaled_page(page), codes = packed(page);
            REQUIRE(!whole.empty());
            const size_t bound = max_encoded_bytes(page.spec);
            CHECK(bound == 16 + (codes.size() + 3) / 4 * 4);
            for (const size_t capacity : {bound, whole.size(), whole.size() - 1, bound - 1,
                                          size_t(1), size_t(0), size_t(17)}) {
                std::vector<uint8_t> memory(capacity + 128, canary);
                const encode_result made =
                    encode(page.spec, dense(page.spec, codes.data()), page.predictor(),
                           memory.data() + 64, capacity);
                bool intact = true;
                for (size_t i = 0; i < 64; ++i)
                    intact &= memory[i] == canary && memory[memory.size() - 1 - i] == canary;
                CHECK(intact);
                if (capacity >= whole.size()) {
                    CHECK(made.code == status::ok);
                    CHECK(std::equal(whole.begin(), whole.end(), memory.begin() + 64));
                } else {
                    CHECK(made.code == status::output_too_small);
                    CHECK(made.bytes >= whole.size());
                    CHECK(made.bytes <= bound);
                }
            }
        }
    }
}

TEST_CASE("M01 scaled blocks: cut anywhere, between guard pages")
{
    for (const scaled_kind kind : scaled_kinds)
        for (const block_mode mode : all_modes) {
            const scaled_page page = page_in_mode(kind, mode);
            encode_result made;
            const std::vector<uint8_t> block = encode_scaled_page(page, &made);
            REQUIRE(made.mode == mode);
            guarded_memory memory(block.size());
            for (size_t size = 0; size <= block.size(); ++size)
                for (const bool at_the_end : {true, false}) {
                    const uint8_t* const bytes = at_the_end ? memory.put_last(block.data(), size)
                                                            : memory.put_first(block.data(), size);
                    const decoded_scaled back = decode_scaled_page(page, bytes, size);
                    if (size == block.size()) CHECK(back.codes == page.codes);
                    else CHECK(back.result.code == status::truncated);
                }
        }
}

TEST_CASE("M01 scaled blocks: too few or too many words, between guard pages")
{
    for (const scaled_kind kind : scaled_kinds)
        for (const uint32_t lanes : lane_counts) {
            const scaled_page page = page_of(5, kind, 1, 700, lanes, 0);
            encode_result made;
            const std::vector<uint8_t> block = encode_scaled_page(page, &made);
            REQUIRE(made.mode == block_mode::coded);
            const size_t words_at = block_header_bytes + 4 * lanes;
            const uint32_t words = detail::load_u32(block.data() + 8);
            guarded_memory memory(block.size() + 8);
            for (uint32_t left = 0; left <= words + 2; ++left) {
                std::vector<uint8_t> cut = block;
                cut.resize(words_at + 2 * size_t(words));
                cut.resize(words_at + 2 * size_t(left));
                cut.resize((cut.size() + 3) / 4 * 4);
                detail::store_u32(cut.data() + 8, left);
                const uint8_t* const bytes = memory.put_last(cut.data(), cut.size());
                const decoded_scaled back = decode_scaled_page(page, bytes, cut.size());
                CHECK(back.result.code == (left == words ? status::ok : status::corrupt_stream));
            }
        }
}

TEST_CASE("M01 scaled blocks: codes, predictions, scales and blocks touch guard pages")
{
    for (const scaled_kind kind : scaled_kinds)
        for (const uint32_t n : {1u, 2u, 7u, 33u, 999u})
            for (const bool at_the_end : {true, false}) {
                const scaled_page page = page_of(n, kind, 1, n, 8);
                const std::vector<uint8_t> codes = packed(page);
                const size_t bound = max_encoded_bytes(page.spec);
                guarded_memory code_memory(codes.size()), mean_memory(4 * n), sigma_memory(n);
                guarded_memory scale_memory(4 * page.scales.size()), block_memory(bound);
                guarded_memory back_memory(codes.size());
                const auto put = [&](guarded_memory& memory, const void* data, size_t size) {
                    return at_the_end ? memory.put_last(data, size) : memory.put_first(data, size);
                };
                const uint8_t* const from = put(code_memory, codes.data(), codes.size());
                block_spec spec = page.spec;
                spec.scales.data = reinterpret_cast<const float*>(
                    put(scale_memory, page.scales.data(), 4 * page.scales.size()));
                const page_predictor predictor{
                    {reinterpret_cast<const float*>(put(mean_memory, page.mean.data(), 4 * n))},
                    {put(sigma_memory, page.sigma.data(), n)},
                    {}};
                uint8_t* const out = at_the_end ? block_memory.last(bound) : block_memory.first();
                const encode_result made = encode(spec, dense(spec, from), predictor, out, bound);
                REQUIRE(made.code == status::ok);
                const std::vector<uint8_t> copy(out, out + made.bytes);
                const uint8_t* const block = put(block_memory, copy.data(), copy.size());
                uint8_t* const back =
                    at_the_end ? back_memory.last(codes.size()) : back_memory.first();
                CHECK(decode(spec, block, made.bytes, predictor, dense(spec, back)).code ==
                      status::ok);
                if (n % 2 == 0 || page.code_bits() == 8)
                    CHECK(std::equal(codes.begin(), codes.end(), back));
            }
}

TEST_CASE("M03 scaled blocks: forged sizes are errors and cost no memory")
{
    for (const scaled_kind kind : scaled_kinds) {
        const scaled_page page = page_of(1, kind, 1, 1000, 8, 0);
        const std::vector<uint8_t> block = encode_scaled_page(page);
        std::vector<uint8_t> out(1000);
        for (const uint32_t huge : {0x40000000u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
            const auto outcome = [&](const std::function<void(uint8_t*)>& forge) {
                std::vector<uint8_t> forged = block;
                forge(forged.data());
                const std::size_t before = allocation_count();
                const status code = decode(page.spec, forged.data(), forged.size(),
                                           page.predictor(), dense(page.spec, out.data())).code;
                CHECK(allocation_count() == before);
                return code;
            };
            CHECK(outcome([&](uint8_t* b) { detail::store_u32(b + 4, huge); }) ==
                  status::wrong_count);
            CHECK(outcome([&](uint8_t* b) { detail::store_u32(b + 8, huge); }) ==
                  status::bad_header);
            CHECK(outcome([&](uint8_t* b) {
                      detail::store_u32(b + 4, huge);
                      detail::store_u32(b + 8, huge / 8);
                  }) == status::wrong_count);
        }
        block_spec spec = page.spec;
        spec.heads = spec.tokens = spec.dim = 0xffffffffu;
        CHECK(max_encoded_bytes(spec) == 0);
        CHECK(decode(spec, block.data(), block.size(), page.predictor(),
                     box_view<uint8_t>{out.data(), 0, 0}).code == status::bad_argument);
    }
}

TEST_CASE("M04 scaled blocks: headers without payload, null pointers, every failure path")
{
    for (const scaled_kind kind : scaled_kinds) {
        for (const block_mode mode : all_modes) {
            const scaled_page page = page_in_mode(kind, mode);
            const std::vector<uint8_t> block = encode_scaled_page(page);
            CHECK(decode_scaled_page(page, nullptr, 0).result.code == status::truncated);
            CHECK(decode_scaled_page(page, nullptr, 99).result.code == status::truncated);
            for (const size_t size : {size_t(16), size_t(17)})
                CHECK(decode_scaled_page(page, block.data(), size).result.code ==
                      status::truncated);
            std::vector<uint8_t> forged(block);
            for (size_t at = 0; at < block.size(); at += at < 60 ? 1 : 5)
                for (const uint32_t change : {0x01u, 0x80u, 0xffu}) {
                    forged[at] = uint8_t(forged[at] ^ change);
                    CHECK(decode_scaled_page(page, forged.data(), forged.size()).result.code !=
                          status::ok);
                    forged[at] = uint8_t(forged[at] ^ change);
                }
        }
        const scaled_page page = page_of(1, kind, 1, 40, 8);
        const std::vector<uint8_t> codes = packed(page), block = encode_scaled_page(page);
        std::vector<uint8_t> out(200);
        CHECK(encode(page.spec, box_view<const uint8_t>{nullptr, 0, 0}, page.predictor(),
                     out.data(), out.size()).code == status::bad_argument);
        CHECK(encode(page.spec, dense(page.spec, codes.data()), page.predictor(), nullptr, 99)
                  .code == status::bad_argument);
        CHECK(decode(page.spec, block.data(), block.size(), page.predictor(),
                     box_view<uint8_t>{nullptr, 0, 0}).code == status::bad_argument);
    }
}

TEST_CASE("M05 scaled blocks: flipped bits are found with the content check, harmless without")
{
    for (const scaled_kind kind : scaled_kinds)
        for (const block_mode mode : all_modes)
            for (const bool checked : {true, false}) {
                scaled_page page = page_in_mode(kind, mode);
                page.spec.content_check = checked;
                page.spec.parameter_hash = false;
                std::vector<uint8_t> block = encode_scaled_page(page);
                size_t found = 0, exact = 0;
                for (size_t bit = 0; bit < 8 * block.size(); ++bit) {
                    block[bit / 8] = uint8_t(block[bit / 8] ^ 1 << bit % 8);
                    const decoded_scaled back =
                        decode_scaled_page(page, block.data(), block.size());
                    found += back.result.code != status::ok;
                    exact += back.result.code == status::ok && back.codes == page.codes;
                    block[bit / 8] = uint8_t(block[bit / 8] ^ 1 << bit % 8);
                }
                CHECK(exact == 0);
                if (checked) CHECK(found == 8 * block.size());
                if (!checked && mode == block_mode::coded) {
                    const double percent = 100.0 * double(found) / double(8 * block.size());
                    MESSAGE(doctest::String(scalar_name(kind.type)),
                            kind.coder == coder_id::tans ? ", tANS" : ", rANS",
                            ", no content check: ", percent, " % found");
                    CHECK(percent > 60);
                }
            }
}
