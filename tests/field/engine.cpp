// Field cases A02, D02, E04, E09, G03: one page out of many, results that say what happened, types
// that are never mixed up, caches that others wrote, bytes at any address.

#include <doctest/doctest.h>

#include "field/page.hpp"

using namespace field;

TEST_CASE("A02 one page alone: its own bytes, nothing else, in natural order")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16}) {
        for (const uint32_t lanes : lane_counts) {
            block_spec spec;
            spec.dtype = type;
            spec.heads = 2;
            spec.tokens = 16;
            spec.dim = 40;  // no multiple of 16 or 32 lanes
            spec.lanes = lanes;
            spec.row_scale = true;
            std::vector<page> pages;
            std::vector<uint8_t> all;
            std::vector<size_t> directory{0};
            for (uint64_t i = 0; i < 5; ++i) {
                pages.push_back(i == 3 ? make_random_page(i, spec) : make_page(i, spec));
                encode_result made;
                const auto block = encode_page(pages.back(), &made);
                REQUIRE(made.code == status::ok);
                REQUIRE(made.bytes == block.size());
                all.insert(all.end(), block.begin(), block.end());
                directory.push_back(all.size());
            }
            for (size_t k = 0; k < pages.size(); ++k) {
                const size_t size = directory[k + 1] - directory[k];
                guarded_memory memory(size);
                const uint8_t* const alone[] = {memory.put_first(all.data() + directory[k], size),
                                                memory.put_last(all.data() + directory[k], size)};
                for (const uint8_t* block : alone) {
                    const decoded_page back = decode_page(pages[k], block, size);
                    CHECK(back.result.code == status::ok);
                    CHECK(back.result.bytes == size);
                    CHECK(back.codes == pages[k].codes);
                }
                // In place, with the other pages behind it: the same, and it says where it ends.
                const decoded_page back =
                    decode_page(pages[k], all.data() + directory[k], all.size() - directory[k]);
                CHECK(back.result.code == status::ok);
                CHECK(back.result.bytes == size);
                CHECK(back.codes == pages[k].codes);
            }
        }
    }
}

TEST_CASE("G03 blocks, codes and sigmas at any address")
{
    for (const uint32_t lanes : lane_counts) {
        block_spec spec;
        spec.tokens = 5;
        spec.dim = 40;
        spec.lanes = lanes;
        spec.row_scale = true;
        const page whole = make_page(11, spec);
        const std::vector<uint8_t> block = encode_page(whole), codes = narrow(whole.codes);
        const size_t count = codes.size(), room = max_encoded_bytes(spec);
        for (const size_t by : {0u, 1u, 2u, 4u, 8u}) {
            std::vector<uint8_t> from(count + 16), to(count + 16, 0xee), sigma(count + 16);
            std::vector<uint8_t> made(room + 16), given(block.size() + 16);
            std::memcpy(from.data() + by, codes.data(), count);
            std::memcpy(sigma.data() + by, whole.sigma.data(), count);
            std::memcpy(given.data() + by, block.data(), block.size());
            const page_predictor with{{whole.mean.data()}, {sigma.data() + by}, {}};
            const uint8_t* const first = from.data() + by;
            const auto encoded =
                encode(spec, dense(spec, first), with, made.data() + by, room);
            CHECK(encoded.code == status::ok);
            CHECK(encoded.bytes == block.size());
            CHECK(std::memcmp(made.data() + by, block.data(), block.size()) == 0);
            const auto decoded = decode(spec, given.data() + by, block.size(), with,
                                        dense(spec, to.data() + by));
            CHECK(decoded.code == status::ok);
            CHECK(std::memcmp(to.data() + by, codes.data(), count) == 0);
            CHECK(to[by + count] == 0xee);
        }
    }
}

TEST_CASE("A02 part of a block is an error")
{
    block_spec spec;
    spec.tokens = 16;
    spec.dim = 64;
    const page data = make_page(1, spec);
    const auto block = encode_page(data);
    page part = data;
    part.spec.tokens = 8;
    part.codes.resize(512);
    const decoded_page back = decode_page(part, block);
    CHECK(back.result.code == status::wrong_count);
    CHECK(back.codes == std::vector<uint16_t>(512, 0xff));
}

TEST_CASE("D02 the result says mode, lanes and bytes")
{
    const block_spec spec = row_spec(scalar_type::e4m3fn, 2048, 0);
    page coded = make_page(1, spec);
    const page raw = make_random_page(1, spec);
    page constant = coded, predicted = coded;
    for (uint16_t& code : constant.codes) code = 0x20;
    for (uint32_t i = 0; i < 2048; ++i)
        predicted.codes[i] = uint16_t(
            nearest_code(format_of(spec.dtype), float_to_bits(predicted.mean[i])));
    const struct {
        const page& data;
        block_mode mode;
        size_t least, most;
    } cases[] = {{coded, block_mode::coded, 200, 1500},
                 {raw, block_mode::raw, 16 + 2048, 16 + 2048},
                 {constant, block_mode::constant, 20, 20},
                 {predicted, block_mode::predicted, 16, 16}};
    for (const auto& one : cases) {
        encode_result made;
        const auto block = encode_page(one.data, &made);
        CHECK(made.code == status::ok);
        CHECK(bool(made));
        CHECK(made.mode == one.mode);
        CHECK(made.bytes >= one.least);
        CHECK(made.bytes <= one.most);
        CHECK(made.lanes == 8);
        CHECK((made.mode != block_mode::coded || made.backend == default_backend::id));
        CHECK(!made.row_scaled);
        CHECK((made.escapes == 0 || made.mode == block_mode::coded));
        const decoded_page back = decode_page(one.data, block);
        CHECK(back.result.code == status::ok);
        CHECK(back.result.mode == one.mode);
        CHECK(back.result.bytes == made.bytes);
        CHECK(back.result.lanes == 8);
        CHECK(back.result.backend == made.backend);
    }
    coded.mean[3] = 3e38f;  // far: its code has no slot of its own
    coded.codes[3] = 0x10;
    encode_result made;
    encode_page(coded, &made);
    CHECK(made.mode == block_mode::coded);
    CHECK(made.escapes >= 1);
}

TEST_CASE("D02 a failure is never reported as success")
{
    const page data = make_page(1, row_spec(scalar_type::e4m3fn, 256, 8));
    const auto codes = narrow(data.codes);
    uint8_t out[8];
    const encode_result made =
        encode(data.spec, dense(data.spec, codes.data()), data.predictor(), out, sizeof out);
    CHECK(made.code == status::output_too_small);
    CHECK(!made);
    CHECK(!encode_result{});
    CHECK(!decode_result{});
    std::vector<uint8_t> room(1000);
    const auto refused = [&](auto change) {
        block_spec wrong = data.spec;
        change(wrong);
        return encode(wrong, dense(wrong, codes.data()), data.predictor(), room.data(),
                      room.size()).code == status::bad_argument;
    };
    CHECK(!refused([](block_spec&) {}));
    CHECK(refused([](block_spec& s) { s.lanes = 7; }));
    CHECK(refused([](block_spec& s) { s.shape = shape_id::mixture_marginal; }));  // no table
    CHECK(refused([](block_spec& s) { s.shape = shape_id(3); }));
    CHECK(refused([](block_spec& s) { s.sigma_offset = max_sigma_offset + 1; }));
    CHECK(refused([](block_spec& s) { s.sigma_offset = min_sigma_offset - 1; }));
    CHECK(refused([](block_spec& s) { s.dtype = scalar_type(10); }));
    for (int i = 0; i <= int(status::content_mismatch); ++i)
        CHECK(std::strcmp(status_name(status(i)), "unknown status") != 0);
}

TEST_CASE("D02 a page out of a strided cache and into another layout")
{
    // Source: NHD, tokens outermost, K and V fused per token. Target: HND, heads outermost, padded.
    constexpr uint32_t heads = 2, tokens = 16, dim = 64;
    constexpr ptrdiff_t fused = 2 * heads * dim, padded = dim + 8;
    block_spec spec;
    spec.heads = heads;
    spec.tokens = tokens;
    spec.dim = dim;
    const page data = make_page(1, spec);
    std::vector<uint8_t> cache(tokens * fused, 0xaa), target(heads * (tokens + 1) * padded, 0xaa);
    const auto in_cache = [&](uint32_t h, uint32_t t, uint32_t d) -> uint8_t& {
        return cache[size_t(ptrdiff_t(t) * fused + ptrdiff_t(h * dim + d))];
    };
    for (uint32_t h = 0, i = 0; h < heads; ++h)
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t d = 0; d < dim; ++d, ++i) in_cache(h, t, d) = uint8_t(data.codes[i]);

    std::vector<uint8_t> block(max_encoded_bytes(spec));
    const box_view<const uint8_t> from{cache.data(), dim, fused};
    const box_view<uint8_t> to{target.data(), (tokens + 1) * padded, padded};
    const encode_result out = encode(spec, from, data.predictor(), block.data(), block.size());
    REQUIRE(out.code == status::ok);
    block.resize(out.bytes);
    CHECK(block == encode_page(data));  // the stream does not know the layout
    const decode_result in = decode(spec, block.data(), out.bytes, data.predictor(), to);
    REQUIRE(in.code == status::ok);
    bool exact = true;
    size_t untouched = target.size();
    for (uint32_t h = 0; h < heads; ++h) {
        for (uint32_t t = 0; t < tokens; ++t) {
            for (uint32_t d = 0; d < dim; ++d, --untouched) {
                uint8_t& code = target[size_t((h * (tokens + 1) + t) * padded + d)];
                exact &= code == in_cache(h, t, d);
                code = 0xaa;
            }
        }
    }
    CHECK(exact);
    CHECK(target == std::vector<uint8_t>(target.size(), 0xaa));
}

TEST_CASE("E04 a block is decoded as the type it was written as, or not at all")
{
    for (const scalar_type type : all_types) {
        const page data = make_page(1, row_spec(type, 300, 8));
        const auto block = encode_page(data);
        for (const scalar_type other : all_types) {
            CAPTURE(scalar_name(type));
            CAPTURE(scalar_name(other));
            page asked = data;
            asked.spec.dtype = other;
            const decoded_page back = decode_page(asked, block);
            if (other == type) {
                CHECK(back.result.code == status::ok);
                CHECK(back.codes == data.codes);
            } else {
                CHECK(back.result.code == status::wrong_dtype);
                const uint16_t untouched = code_bytes(other) == 1 ? 0xff : 0xffff;
                CHECK(back.codes == std::vector<uint16_t>(300, untouched));
            }
        }
    }
}

TEST_CASE("E04 a wrong type at encode time costs bytes, never a bit")
{
    for (const scalar_type type : all_types) {
        for (const scalar_type tagged : all_types) {
            if (code_bytes(type) != code_bytes(tagged)) continue;
            page data = make_page(2, row_spec(type, 2048, 8));
            data.spec.dtype = tagged;
            const auto block = encode_page(data);
            const decoded_page back = decode_page(data, block);
            CHECK(back.result.code == status::ok);
            CHECK(back.codes == data.codes);
        }
    }
}

namespace {

// The header with one byte changed; `resealed`: its own check is made right again.
status read_changed(const stream_header& header, size_t at, uint8_t value, bool resealed,
                    stream_header* read)
{
    uint8_t bytes[stream_header_bytes];
    write_stream_header(header, bytes);
    bytes[at] = value;
    if (resealed) detail::store_u64(bytes + 32, fingerprint_of(bytes, 32));
    return read_stream_header(bytes, sizeof bytes, *read);
}

}  // namespace

TEST_CASE("E09 each field of a stream header has its own error")
{
    stream_header header, read;
    header.tokens = 64;
    header.dim = 128;
    header.fingerprint = 42;
    uint8_t bytes[stream_header_bytes];
    write_stream_header(header, bytes);
    REQUIRE(read_stream_header(bytes, sizeof bytes, read) == status::ok);
    CHECK(read.tokens == 64);
    CHECK(read.fingerprint == 42);
    for (const bool resealed : {false, true}) {
        CAPTURE(resealed);
        CHECK(read_changed(header, 0, 'X', resealed, &read) == status::bad_header);
        CHECK(read_changed(header, 4, format_version + 1, resealed, &read) ==
              status::unsupported_version);
        CHECK(read_changed(header, 5, 10, resealed, &read) == status::wrong_dtype);
        CHECK(read_changed(header, 5, 3 << 4, resealed, &read) == status::bad_header);  // coder
        CHECK(read_changed(header, 5, 1 << 4, resealed, &read) == status::wrong_model);  // no plan
        CHECK(read_changed(header, 6, 16, resealed, &read) == status::wrong_model);     // 2^16
        CHECK(read_changed(header, 7, 3, resealed, &read) == status::wrong_model);      // shape
        CHECK(read_changed(header, 8, max_sigma_offset + 1, resealed, &read) ==
              status::wrong_model);
        CHECK(read_changed(header, 9, 7, resealed, &read) == status::wrong_lanes);
        CHECK(read_changed(header, 10, 1, resealed, &read) == status::bad_header);
        CHECK(read_changed(header, 11, 1, resealed, &read) == status::bad_header);
    }
    // A field that is possible but not what was written: the header's own check.
    for (const size_t at : {5u, 7u, 8u, 12u, 16u, 20u, 24u, 31u})
        CHECK(read_changed(header, at, 2, false, &read) == status::bad_header);
    CHECK(read_changed(header, 39, 0, false, &read) == status::bad_header);
}

TEST_CASE("E09 each property of a block has its own error, before any output")
{
    block_spec spec = row_spec(scalar_type::e4m3fn, 512, 8);
    spec.has_fingerprint = true;
    spec.fingerprint = 0x1122334455667788;
    const page data = make_page(1, spec);
    const std::vector<uint8_t> block = encode_page(data);
    const std::vector<uint16_t> untouched(512, 0xff);

    const auto with_spec = [&](auto change) {
        page asked = data;
        change(asked.spec);
        const decoded_page back = decode_page(asked, block);
        CHECK(back.codes == untouched);
        return back.result.code;
    };
    CHECK(with_spec([](block_spec& s) { s.fingerprint ^= uint64_t(1) << 63; }) ==
          status::wrong_fingerprint);
    CHECK(with_spec([](block_spec& s) { s.has_fingerprint = false; }) == status::wrong_model);
    CHECK(with_spec([](block_spec& s) { s.content_check = false; }) == status::wrong_model);
    CHECK(with_spec([](block_spec& s) { s.parameter_hash = true; }) == status::wrong_model);
    CHECK(with_spec([](block_spec& s) { s.dtype = scalar_type::e4m3fnuz; }) == status::wrong_dtype);
    CHECK(with_spec([](block_spec& s) { s.lanes = 16; }) == status::wrong_lanes);
    CHECK(with_spec([](block_spec& s) { s.lanes = 7; }) == status::bad_argument);

    const auto with_byte = [&](size_t at, uint32_t value) {
        std::vector<uint8_t> changed = block;
        changed[at] = uint8_t(value);
        const decoded_page back = decode_page(data, changed);
        CHECK(back.codes == untouched);
        return back.result.code;
    };
    CHECK(with_byte(0, format_version + 1) == status::unsupported_version);
    CHECK(with_byte(1, uint32_t(scalar_type::e5m2)) == status::wrong_dtype);
    CHECK(with_byte(1, 10) == status::bad_header);
    CHECK(with_byte(1, block[1] | 1u << 4) == status::wrong_model);  // another coder
    CHECK(with_byte(1, block[1] | 3u << 4) == status::bad_header);   // none
    CHECK(with_byte(2, block[2] | 2u) == status::bad_header);        // constant
    CHECK(with_byte(2, block[2] ^ 0x0cu) == status::wrong_lanes);
    CHECK(with_byte(3, 6) == status::bad_header);  // a window of row steps without their flag
    CHECK(with_byte(4, block[4] ^ 1u) == status::wrong_count);
    CHECK(with_byte(16, block[16] ^ 1u) == status::wrong_fingerprint);
    CHECK(with_byte(11, 0x80) == status::bad_header);
}

TEST_CASE("E09 rows stored by one setting are not read by another")
{
    block_spec spec;
    spec.tokens = 16;
    spec.dim = 64;
    spec.row_scale = true;
    page data = make_page(1, spec);
    for (uint8_t& index : data.sigma) index = uint8_t(index - 12);
    encode_result made;
    const auto block = encode_page(data, &made);
    REQUIRE(made.row_scaled);
    page asked = data;
    asked.spec.row_scale = false;
    CHECK(decode_page(asked, block).result.code == status::wrong_model);
    CHECK(decode_page(data, block).codes == data.codes);
    CHECK(row_step_of(spec, block.data(), block.size(), 3) > 0);
}
