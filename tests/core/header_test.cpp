// wire/header.hpp: every byte, and what a reader refuses.

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include <normans/wire/header.hpp>

using namespace normans;

namespace {

using bytes_of_block = std::vector<uint8_t>;

bytes_of_block written(const block_header& header)
{
    bytes_of_block bytes(block_header_bytes);
    write_block_header(header, bytes.data());
    return bytes;
}

status read(const bytes_of_block& bytes)
{
    block_header header;
    return read_block_header(bytes.data(), bytes.size(), header);
}

constexpr block_header sample{scalar_type::bf16, block_mode::coded,
                              has_row_steps | has_content_check | has_fingerprint,
                              16, 0x01020304, 0x00a0b0c0, 0x55667788, coder_id::rans, {5, 3}};

}  // namespace

TEST_CASE("the 16 bytes of a block header")
{
    const bytes_of_block expected = {0,    4,    0xb8, 0x35, 0x04, 0x03, 0x02, 0x01,
                                     0xc0, 0xb0, 0xa0, 0x00, 0x88, 0x77, 0x66, 0x55};
    CHECK(written(sample) == expected);
    block_header back{};
    REQUIRE(read_block_header(expected.data(), expected.size(), back) == status::ok);
    CHECK(back.dtype == sample.dtype);
    CHECK(back.mode == sample.mode);
    CHECK(back.flags == sample.flags);
    CHECK(back.lanes == sample.lanes);
    CHECK(back.count == sample.count);
    CHECK(back.payload_words == sample.payload_words);
    CHECK(back.content_check == sample.content_check);
    CHECK(back.rows.lowest == 5);
    CHECK(back.rows.bits == 3);
    uint8_t code = 0;
    for (const uint32_t lanes : {1u, 8u, 16u, 32u}) {
        block_header header = sample;
        header.lanes = lanes;
        CHECK(written(header)[2] == (0xb0 | code++ << 2));
        REQUIRE(read_block_header(written(header).data(), block_header_bytes, back) == status::ok);
        CHECK(back.lanes == lanes);
    }
}

TEST_CASE("a block header that contradicts itself is refused")
{
    const auto changed = [](const std::function<void(block_header&)>& change) {
        block_header header = sample;
        change(header);
        return read(written(header));
    };
    CHECK(changed([](block_header&) {}) == status::ok);
    CHECK(changed([](block_header& h) { h.dtype = scalar_type(10); }) == status::bad_header);
    int windows = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const unsigned lowest = byte & 15, bits = byte >> 4;
        const bool good = bits <= 4 && lowest + (1u << bits) <= 16;
        windows += good;
        CHECK(changed([&](block_header& h) { h.rows = {uint8_t(lowest), uint8_t(bits)}; }) ==
              (good ? status::ok : status::bad_header));
    }
    CHECK(windows == 16 + 15 + 13 + 9 + 1);
    CHECK(changed([](block_header& h) { h.count = 0; }) == status::bad_header);
    CHECK(changed([](block_header& h) { h.dtype = scalar_type::raw8; }) == status::bad_header);
    CHECK(changed([](block_header& h) { h.payload_words = h.count + 1; }) == status::bad_header);
    CHECK(changed([](block_header& h) { h.payload_words = h.count; }) == status::ok);
    // A check value without its flag.
    CHECK(changed([](block_header& h) { h.flags = 0; }) == status::bad_header);
    CHECK(changed([](block_header& h) { h.flags = 0, h.content_check = 0; }) == status::ok);
    CHECK(changed([](block_header& h) { h.flags = 15; }) == status::ok);

    const auto plain = [](block_mode mode, uint8_t flags, uint32_t count, uint32_t words) {
        return read(written({scalar_type::e4m3fn, mode, flags, 8, count, words, 0}));
    };
    CHECK(plain(block_mode::raw, 0, 5, 3) == status::ok);
    CHECK(plain(block_mode::raw, 0, 5, 2) == status::bad_header);
    CHECK(plain(block_mode::raw, 0, 5, 4) == status::bad_header);
    CHECK(plain(block_mode::raw, 0, 0, 0) == status::ok);
    CHECK(plain(block_mode::raw, has_row_steps, 5, 3) == status::bad_header);
    CHECK(plain(block_mode::raw, has_parameter_hash, 5, 3) == status::bad_header);
    CHECK(plain(block_mode::raw, 0, 0xffffffffu, 0x80000000u) == status::ok);
    CHECK(plain(block_mode::constant, 0, 5, 1) == status::ok);
    CHECK(plain(block_mode::constant, 0, 5, 0) == status::bad_header);
    CHECK(plain(block_mode::constant, 0, 5, 2) == status::bad_header);
    CHECK(plain(block_mode::constant, 0, 0, 1) == status::bad_header);
    CHECK(plain(block_mode::constant, has_row_steps, 5, 1) == status::bad_header);
    CHECK(plain(block_mode::constant, has_parameter_hash, 5, 1) == status::bad_header);
    CHECK(plain(block_mode::predicted, has_parameter_hash, 5, 0) == status::ok);
    CHECK(plain(block_mode::predicted, 0, 5, 1) == status::bad_header);
    CHECK(plain(block_mode::predicted, 0, 0, 0) == status::bad_header);
    CHECK(plain(block_mode::predicted, has_row_steps, 5, 0) == status::bad_header);

    bytes_of_block bytes = written(sample);
    bytes[0] = 1;
    CHECK(read(bytes) == status::unsupported_version);
    bytes[0] = 0;
    bytes[2] = uint8_t(bytes[2] & ~(has_row_steps << 4));  // a window without its flag
    CHECK(read(bytes) == status::bad_header);
    bytes[3] = 0;
    CHECK(read(bytes) == status::ok);
    bytes[1] |= 0x10;  // tANS cannot code it
    CHECK(read(bytes) == status::bad_header);
    for (size_t cut = 0; cut < block_header_bytes; ++cut) {
        block_header header;
        const bytes_of_block shorter(bytes.begin(), bytes.begin() + ptrdiff_t(cut));
        CHECK(read_block_header(shorter.data(), cut, header) == status::truncated);
    }
    block_header header;
    CHECK(read_block_header(nullptr, 0, header) == status::truncated);
    CHECK(read_block_header(nullptr, 100, header) == status::truncated);
}

TEST_CASE("where the parts of a block lie")
{
    block_header header{scalar_type::e4m3fn, block_mode::coded, 0, 8, 100, 31, 0};
    block_layout at = layout_of(header, 10);
    CHECK(at.states == 16);
    CHECK(at.words == 48);
    CHECK(at.end == 112);  // 48 + 62, padded to 4
    header.flags = has_row_steps | has_parameter_hash | has_fingerprint;
    header.rows = {0, 4};
    at = layout_of(header, 10);
    CHECK(at.fingerprint == 16);
    CHECK(at.parameter_hash == 24);
    CHECK(at.row_steps == 28);
    CHECK(at.states == 36);  // 5 bytes, padded to 8
    CHECK(at.words == 68);
    CHECK(layout_of(header, 1).states == 32);
    CHECK(layout_of(header, 8).states == 32);
    CHECK(layout_of(header, 9).states == 36);
    header.rows = {0, 3};
    CHECK(layout_of(header, 10).states == 32);  // 30 bits
    CHECK(layout_of(header, 11).states == 36);
    header.rows = {0, 0};
    CHECK(layout_of(header, 11).states == 28);
    header.rows = {0, 4};
    header.mode = block_mode::raw;
    header.flags = has_fingerprint;
    header.payload_words = 50;
    at = layout_of(header, 10);
    CHECK(at.words == 24);
    CHECK(at.end == 124);
    // No 32-bit wrap anywhere.
    header.payload_words = 0xffffffffu;
    header.mode = block_mode::coded;
    header.flags = 15;
    header.lanes = 32;
    CHECK(layout_of(header, 0xffffffffu).end ==
          16 + 8 + 4 + uint64_t(0x80000000u) + 128 + 2 * uint64_t(0xffffffffu) + 2);
}

TEST_CASE("the stream header: round trip, and each field changed alone")
{
    stream_header header;
    header.dtype = scalar_type::fp16;
    header.shape = shape_id::mixture;
    header.sigma_offset = -31;
    header.lanes = 16;
    header.heads = 8;
    header.tokens = 64;
    header.dim = 128;
    header.fingerprint = 0x0123456789abcdefu;
    std::vector<uint8_t> bytes(stream_header_bytes);
    write_stream_header(header, bytes.data());
    CHECK(bytes[0] == 'N');
    CHECK(bytes[3] == 'S');
    CHECK(bytes[8] == 0xe1);
    stream_header back;
    REQUIRE(read_stream_header(bytes.data(), bytes.size(), back) == status::ok);
    CHECK(back.dtype == header.dtype);
    CHECK(back.shape == header.shape);
    CHECK(back.sigma_offset == header.sigma_offset);
    CHECK(back.lanes == header.lanes);
    CHECK(back.heads == header.heads);
    CHECK(back.tokens == header.tokens);
    CHECK(back.dim == header.dim);
    CHECK(back.fingerprint == header.fingerprint);

    const auto with = [&](size_t at, uint8_t value) {
        std::vector<uint8_t> changed = bytes;
        changed[at] = value;
        stream_header ignored;
        return read_stream_header(changed.data(), changed.size(), ignored);
    };
    CHECK(with(0, 'n') == status::bad_header);
    CHECK(with(4, 1) == status::unsupported_version);
    CHECK(with(5, 10) == status::wrong_dtype);
    CHECK(with(6, 16) == status::wrong_model);
    CHECK(with(7, 3) == status::wrong_model);
    CHECK(with(8, uint8_t(-81)) == status::wrong_model);
    CHECK(with(8, 69) == status::wrong_model);
    CHECK(with(9, 5) == status::wrong_lanes);
    // What is a legal value by itself is still caught by the check over the bytes.
    for (size_t at = 5; at < stream_header_bytes; ++at)
        for (unsigned bit = 0; bit < 8; ++bit)
            CHECK(with(at, uint8_t(bytes[at] ^ 1u << bit)) != status::ok);
    for (size_t cut = 0; cut < stream_header_bytes; ++cut)
        CHECK(read_stream_header(bytes.data(), cut, back) == status::truncated);
    CHECK(read_stream_header(nullptr, 40, back) == status::truncated);
}

TEST_CASE("the stream header of a tANS stream holds the plan of its bank")
{
    stream_header header;
    header.dtype = scalar_type::int4;
    header.coder = coder_id::tans;
    header.shape = shape_id::mixture;
    header.plan = {shape_id::mixture, 10, 3, 1};
    std::vector<uint8_t> bytes(stream_header_bytes);
    write_stream_header(header, bytes.data());
    CHECK(bytes[5] == (uint8_t(scalar_type::int4) | 16));
    CHECK(bytes[10] == (10 | 3 << 4 | 1 << 6));
    CHECK(bytes[11] == 0);
    stream_header back;
    REQUIRE(read_stream_header(bytes.data(), bytes.size(), back) == status::ok);
    CHECK(back.coder == coder_id::tans);
    CHECK(back.plan.shape == shape_id::mixture);
    CHECK(pack_plan(back.plan) == pack_plan(header.plan));
    // With the check over the bytes made right again, each field has its own error.
    const auto with = [&](size_t at, uint8_t value) {
        std::vector<uint8_t> changed = bytes;
        changed[at] = value;
        detail::store_u64(changed.data() + 32, fingerprint_of(changed.data(), 32));
        return read_stream_header(changed.data(), changed.size(), back);
    };
    CHECK(with(10, 9 | 2 << 4 | 2 << 6) == status::ok);
    CHECK(with(10, 0) == status::wrong_model);
    CHECK(with(10, 5) == status::wrong_model);
    CHECK(with(10, 13) == status::wrong_model);
    CHECK(with(11, 2) == status::wrong_model);
    CHECK(with(7, 2) == status::wrong_model);              // no bank for a marginal
    CHECK(with(5, 7) == status::bad_header);               // rANS with a plan
    CHECK(with(5, 8 | 32) == status::bad_header);          // order 0 with a plan
    CHECK(with(5, 8 | 48) == status::bad_header);          // a fourth coder
    CHECK(with(5, 9 | 16) == status::ok);                  // e2m1
    CHECK(with(5, 0 | 16) == status::ok);                  // e4m3fn
    CHECK(with(5, 4 | 16) == status::bad_header);          // bf16 has no bank
    CHECK(with(5, 6 | 16) == status::bad_header);          // nor has raw8
    header.dtype = scalar_type::e4m3fn;
    header.plan = {shape_id::mixture, 12, 3, 4};
    write_stream_header(header, bytes.data());
    // A bank of more than max_bank_mib.
    CHECK(read_stream_header(bytes.data(), bytes.size(), back) == status::wrong_model);
    CHECK(with(10, 9 | 2 << 4 | 1 << 6) == status::wrong_model);
    CHECK(bytes[11] == 1);
}

TEST_CASE("a block says its coder")
{
    block_header header{scalar_type::int8, block_mode::coded, 0, 8, 100, 31, 0, coder_id::tans};
    CHECK(written(header)[1] == 0x17);
    block_header back{};
    REQUIRE(read_block_header(written(header).data(), block_header_bytes, back) == status::ok);
    CHECK(back.coder == coder_id::tans);
    for (const scalar_type type : {scalar_type::fp16, scalar_type::bf16, scalar_type::raw8}) {
        header.dtype = type;
        CHECK(read(written(header)) == status::bad_header);
    }
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::e5m2fnuz}) {
        header.dtype = type;
        CHECK(read(written(header)) == status::ok);
    }
    header.dtype = scalar_type::int4;
    CHECK(read(written(header)) == status::bad_header);  // more words than raw codes would have
    header.payload_words = 25;
    CHECK(read(written(header)) == status::ok);
    header.mode = block_mode::raw;
    CHECK(read(written(header)) == status::ok);
    header.coder = coder_id(3);
    CHECK(read(written(header)) == status::bad_header);
}

TEST_CASE("a block of order 0 has no predictions, and any type")
{
    block_header header{scalar_type::raw8, block_mode::coded, has_content_check, 8, 100, 31, 5,
                        coder_id::order0};
    CHECK(written(header)[1] == 0x26);
    for (unsigned type = 0; type < 10; ++type) {
        header.dtype = scalar_type(type);
        header.payload_words = 25;
        CHECK(read(written(header)) == status::ok);
    }
    for (const uint8_t flag : {has_row_steps, has_parameter_hash}) {
        header.flags = uint8_t(has_content_check | flag);
        CHECK(read(written(header)) == status::bad_header);
    }
    header.flags = has_content_check;
    header.mode = block_mode::predicted;
    header.payload_words = 0;
    CHECK(read(written(header)) == status::bad_header);

    stream_header stream;
    stream.coder = coder_id::order0;
    stream.dtype = scalar_type::raw8;
    std::vector<uint8_t> bytes(stream_header_bytes);
    write_stream_header(stream, bytes.data());
    stream_header back;
    REQUIRE(read_stream_header(bytes.data(), bytes.size(), back) == status::ok);
    CHECK(back.coder == coder_id::order0);
}

TEST_CASE("fingerprint_of: pinned, since files hold it")
{
    const uint8_t text[] = {'n', 'o', 'r', 'm', 'a', 'n', 's'};
    CHECK(fingerprint_of(text, 7) == 0xe7505d3b3d8a8ce6u);
    CHECK(fingerprint_of(text, 6) != fingerprint_of(text, 7));
    CHECK(fingerprint_of(nullptr, 0) == 0x9E3779B97F4A7C15u);
}

TEST_CASE("status names")
{
    for (uint32_t code = 0; code < 256; ++code) CHECK(status_name(status(code)) != nullptr);
    CHECK(std::string(status_name(status::ok)) == "ok");
    CHECK(std::string(status_name(status::content_mismatch)) == "content_mismatch");
    CHECK(std::string(status_name(status(200))) == "unknown status");
}
