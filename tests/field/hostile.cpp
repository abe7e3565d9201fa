// Field cases M01, M03, M04, M05, M07: cut, forged, empty and flipped streams.

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdio>

#include <normans/fit/profile.hpp>

#include "field/allocations.hpp"
#include "field/page.hpp"

using namespace field;

namespace {

// Four pages of one tensor behind a stream header: a coded, a raw, a constant and a predicted one
// (or four coded ones), and where each begins.
struct stream {
    std::vector<page> pages;
    std::vector<uint8_t> bytes;
    std::vector<size_t> begins;  // and the end
};

block_spec page_spec(scalar_type type, uint32_t tokens, uint32_t dim)
{
    block_spec spec;
    spec.dtype = type;
    spec.heads = 2;
    spec.tokens = tokens;
    spec.dim = dim;
    spec.has_fingerprint = true;
    spec.fingerprint = 0x0123456789abcdef;
    return spec;
}

stream make_stream(const block_spec& spec, bool every_mode)
{
    stream made;
    for (uint64_t i = 0; i < 4; ++i) made.pages.push_back(make_page(20 + i, spec));
    if (every_mode) {
        made.pages[1] = make_random_page(21, spec);
        page& predicted = made.pages[3];
        for (uint16_t& code : made.pages[2].codes) code = 0x33;
        for (size_t i = 0; i < predicted.codes.size(); ++i)
            predicted.codes[i] =
                uint16_t(nearest_code(format_of(spec.dtype), float_to_bits(predicted.mean[i])));
    }
    stream_header header;
    header.dtype = spec.dtype;
    header.shape = spec.shape;
    header.sigma_offset = spec.sigma_offset;
    header.heads = spec.heads;
    header.tokens = spec.tokens;
    header.dim = spec.dim;
    header.fingerprint = spec.fingerprint;
    made.bytes.resize(stream_header_bytes);
    write_stream_header(header, made.bytes.data());
    const block_mode modes[] = {block_mode::coded, block_mode::raw, block_mode::constant,
                                block_mode::predicted};
    for (size_t i = 0; i < 4; ++i) {
        encode_result result;
        const std::vector<uint8_t> block = encode_page(made.pages[i], &result);
        REQUIRE(result.code == status::ok);
        REQUIRE(result.mode == (every_mode ? modes[i] : block_mode::coded));
        made.begins.push_back(made.bytes.size());
        made.bytes.insert(made.bytes.end(), block.begin(), block.end());
    }
    made.begins.push_back(made.bytes.size());
    return made;
}

// Reads as a user would who has no directory: the header, then block after block.
status read_pages(const stream& like, const uint8_t* bytes, size_t size, size_t* exact_pages)
{
    *exact_pages = 0;
    stream_header header;
    const status parsed = read_stream_header(bytes, size, header);
    if (parsed != status::ok) return parsed;
    size_t at = stream_header_bytes;
    for (const page& one : like.pages) {
        const decoded_page back = decode_page(one, bytes + at, size - at);
        if (!back.result) return back.result.code;
        *exact_pages += back.codes == one.codes;
        at += back.result.bytes;
    }
    return at == size ? status::ok : status::corrupt_stream;
}

block_spec rich_spec(scalar_type type, const marginal_table* marginal)
{
    block_spec spec = page_spec(type, 5, 32);
    spec.row_scale = true;
    spec.parameter_hash = true;
    if (marginal != nullptr) spec.shape = shape_id::mixture_marginal;
    spec.marginal = marginal;
    return spec;
}

}  // namespace

TEST_CASE("M01 a stream cut anywhere is an error and reads nothing behind the cut")
{
    const marginal_table marginal = some_marginal(1);
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16, scalar_type::fp16}) {
        const bool with_marginal = type == scalar_type::fp16;
        const stream whole =
            make_stream(rich_spec(type, with_marginal ? &marginal : nullptr), true);
        guarded_memory memory(whole.bytes.size());
        for (size_t size = 0; size <= whole.bytes.size(); ++size) {
            size_t complete = 0;
            for (size_t i = 1; i < whole.begins.size(); ++i) complete += whole.begins[i] <= size;
            for (const bool at_the_end : {true, false}) {
                const uint8_t* const bytes =
                    at_the_end ? memory.put_last(whole.bytes.data(), size)
                               : memory.put_first(whole.bytes.data(), size);
                size_t exact = 0;
                const status outcome = read_pages(whole, bytes, size, &exact);
                CAPTURE(size);
                CHECK(exact == complete);
                if (size == whole.bytes.size()) CHECK(outcome == status::ok);
                else CHECK(outcome == status::truncated);
            }
        }
    }
}

TEST_CASE("M01 a block with too few or too many words is an error between guard pages")
{
    // The header's own word count is forged, so that the length check passes.
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16}) {
        for (const uint32_t lanes : lane_counts) {
            const page data = make_page(1, row_spec(type, 500, lanes));
            encode_result made;
            const std::vector<uint8_t> block = encode_page(data, &made);
            REQUIRE(made.mode == block_mode::coded);
            const size_t words_at = block_header_bytes + 4 * lanes;
            const uint32_t words = detail::load_u32(block.data() + 8);
            guarded_memory memory(block.size() + 8);
            for (uint32_t fewer = 0; fewer <= words + 2; ++fewer) {
                std::vector<uint8_t> cut = block;
                cut.resize(words_at + 2 * size_t(words));
                const uint32_t left = fewer <= words ? words - fewer : fewer;
                cut.resize(words_at + 2 * size_t(left));
                cut.resize((cut.size() + 3) / 4 * 4);
                detail::store_u32(cut.data() + 8, left);
                const uint8_t* const bytes = memory.put_last(cut.data(), cut.size());
                const decoded_page back = decode_page(data, bytes, cut.size());
                CAPTURE(left);
                if (fewer == 0) CHECK(back.result.code == status::ok);
                else CHECK(back.result.code == status::corrupt_stream);
            }
        }
    }
}

namespace {

// Everything that is read or written touches a guard page, behind it or in front.
template <class Code>
void check_between_guards(const page& data, bool at_the_end)
{
    const size_t n = data.codes.size(), bound = max_encoded_bytes(data.spec);
    guarded_memory code_memory(n * sizeof(Code)), mean_memory(4 * n), sigma_memory(n);
    guarded_memory block_memory(bound), back_memory(n * sizeof(Code));
    const auto place = [&](guarded_memory& memory, size_t size) {
        return at_the_end ? memory.last(size) : memory.first();
    };
    auto* const codes = reinterpret_cast<Code*>(place(code_memory, n * sizeof(Code)));
    auto* const back = reinterpret_cast<Code*>(place(back_memory, n * sizeof(Code)));
    auto* const mean = reinterpret_cast<float*>(place(mean_memory, 4 * n));
    uint8_t* const sigma = place(sigma_memory, n);
    for (size_t i = 0; i < n; ++i) {
        codes[i] = Code(data.codes[i]);
        mean[i] = data.mean[i];
        sigma[i] = data.sigma[i];
    }
    const page_predictor predictor{{mean}, {sigma}, {}};
    uint8_t* const out = place(block_memory, bound);
    const Code* const from = codes;
    const encode_result made =
        encode(data.spec, dense(data.spec, from), predictor, out, bound);
    REQUIRE(made.code == status::ok);
    uint8_t* const block = place(block_memory, made.bytes);
    std::memmove(block, out, made.bytes);
    const decode_result read =
        decode(data.spec, block, made.bytes, predictor, dense(data.spec, back));
    CHECK(read.code == status::ok);
    CHECK(std::memcmp(back, codes, n * sizeof(Code)) == 0);
}

}  // namespace

TEST_CASE("M01 encoder and decoder stay inside codes, predictions and outputs")
{
    for (const uint32_t lanes : lane_counts) {
        for (const uint32_t n : {1u, 7u, 33u, 1000u}) {
            for (const bool at_the_end : {true, false}) {
                block_spec spec = row_spec(scalar_type::e4m3fn, n, lanes);
                spec.row_scale = true;
                check_between_guards<uint8_t>(make_page(n, spec), at_the_end);
                spec.dtype = scalar_type::bf16;
                check_between_guards<uint16_t>(make_page(n, spec), at_the_end);
            }
        }
    }
}

namespace {

// Runs `body` in a child that may map only 64 MB more than it has. True if it returns true.
template <class Body>
bool under_memory_limit(Body body)
{
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        long pages = 0;
        if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
            if (std::fscanf(file, "%ld", &pages) != 1) pages = 0;
            std::fclose(file);
        }
        const rlim_t most = rlim_t(pages) * rlim_t(sysconf(_SC_PAGESIZE)) + (rlim_t(64) << 20);
        const rlimit limit{most, most};
        const bool limited = pages != 0 && setrlimit(RLIMIT_AS, &limit) == 0;
        _exit(limited && body() ? 0 : 1);
    }
    int outcome = 1;
    return child > 0 && waitpid(child, &outcome, 0) == child && WIFEXITED(outcome) &&
           WEXITSTATUS(outcome) == 0;
}

// Forged sizes, each with the status it must give; true if all do.
bool forged_sizes_are_errors()
{
    const page data = make_page(1, row_spec(scalar_type::e4m3fn, 1000, 8));
    const std::vector<uint8_t> block = encode_page(data);
    bool good = true;
    for (const uint32_t huge : {0x40000000u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
        std::vector<uint8_t> forged = block;
        detail::store_u32(forged.data() + 4, huge);  // count
        good &= decode_page(data, forged).result.code == status::wrong_count;
        forged = block;
        detail::store_u32(forged.data() + 8, huge);  // payload words
        good &= decode_page(data, forged).result.code == status::bad_header;
        detail::store_u32(forged.data() + 4, huge);  // both, in agreement
        detail::store_u32(forged.data() + 8, huge / 4);
        good &= decode_page(data, forged).result.code == status::wrong_count;

        // A stream header whose box no memory holds: what is made of it is refused.
        stream_header header;
        header.heads = huge;
        header.tokens = huge;
        header.dim = huge;
        uint8_t bytes[stream_header_bytes];
        write_stream_header(header, bytes);
        stream_header read;
        good &= read_stream_header(bytes, sizeof bytes, read) == status::ok;
        block_spec spec;
        spec.heads = read.heads;
        spec.tokens = read.tokens;
        spec.dim = read.dim;
        good &= count_of(spec) == ~uint64_t(0) && max_encoded_bytes(spec) == 0;
        uint8_t small[4] = {0, 0, 0, 0};
        const page_predictor predictor = data.predictor();
        good &= encode(spec, box_view<const uint8_t>{small, 0, 0}, predictor, small, 4).code ==
                status::bad_argument;
        good &= decode(spec, block.data(), block.size(), predictor, box_view<uint8_t>{small, 0, 0})
                    .code == status::bad_argument;
    }
    return good;
}

// Profiles are read into memory of their own: sizes are compared with what there is before.
bool forged_profiles_are_errors()
{
    profile one;
    one.model = "model";
    tensor_profile tensor;
    tensor.heads = 2;
    tensor.dim = 8;
    tensor.plain_sigma.assign(16, 100);
    tensor.affine_sigma.assign(16, 100);
    tensor.affine_a.assign(16, 1.0f);
    tensor.affine_b.assign(16, -0.0f);
    one.tensors.push_back(tensor);
    const profile_bytes good_one = serialize_profile(one);
    bool good = good_one.code == status::ok &&
                parse_profile(good_one.bytes.data(), good_one.bytes.size()).code == status::ok;
    const size_t tensors = 16, model = 20, heads = 24 + one.model.size() + 8, dim = heads + 4;
    for (const uint32_t huge : {0x10000000u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
        for (const size_t at : {tensors, model, heads, dim, size_t(0)}) {
            std::vector<uint8_t> forged = good_one.bytes;
            detail::store_u32(forged.data() + (at != 0 ? at : heads), huge);
            if (at == 0) detail::store_u32(forged.data() + dim, huge);  // both: up to 2^64 channels
            const size_t hashed = forged.size() - 8;
            detail::store_u64(forged.data() + hashed, fingerprint_of(forged.data(), hashed));
            const status code = parse_profile(forged.data(), forged.size()).code;
            good &= code == status::truncated || code == status::bad_header;
        }
    }
    return good;
}

}  // namespace

TEST_CASE("M03 sizes from a header are compared, never believed")
{
    CHECK(forged_sizes_are_errors());
    CHECK(forged_profiles_are_errors());
#if defined(__SANITIZE_ADDRESS__)
    MESSAGE("skipped: the memory limit, which the address sanitizer cannot run under");
#else
    CHECK(!under_memory_limit([] { return std::malloc(size_t(128) << 20) != nullptr; }));
    CHECK(under_memory_limit([] { return std::malloc(size_t(1) << 20) != nullptr; }));
    CHECK(under_memory_limit(forged_sizes_are_errors));
    CHECK(under_memory_limit(forged_profiles_are_errors));
#endif
}

TEST_CASE("M03 nothing is allocated inside encode and decode")
{
    const marginal_table marginal = some_marginal(1);
    for (const bool every_mode : {false, true}) {
        const stream whole = make_stream(rich_spec(scalar_type::e4m3fn, &marginal), every_mode);
        for (size_t i = 0; i < 4; ++i) {
            const page& one = whole.pages[i];
            const std::vector<uint8_t> codes = narrow(one.codes);
            std::vector<uint8_t> block(max_encoded_bytes(one.spec)), back(codes.size());
            const size_t before = allocation_count();
            const encode_result made = encode(one.spec, dense(one.spec, codes.data()),
                                              one.predictor(), block.data(), block.size());
            const decode_result read = decode(one.spec, block.data(), made.bytes, one.predictor(),
                                              dense(one.spec, back.data()));
            const size_t after = allocation_count();
            CHECK(after == before);
            CHECK(read.code == status::ok);
        }
    }
    const size_t before = allocation_count();
    ::operator delete(::operator new(1));  // a plain new and delete may be optimised away
    CHECK(allocation_count() == before + 1);
}

TEST_CASE("M03 the output never exceeds the caller's box")
{
    // Every bit of a small block flipped, decoded into a box with strides: the gaps stay.
    block_spec spec;
    spec.heads = 2;
    spec.tokens = 3;
    spec.dim = 20;
    spec.content_check = false;
    const page data = make_page(1, spec);
    const std::vector<uint8_t> block = encode_page(data);
    std::vector<uint8_t> out(2 * 100 + 64);
    for (size_t bit = 0; bit < 8 * block.size(); ++bit) {
        std::vector<uint8_t> flipped = block;
        flipped[bit / 8] = uint8_t(flipped[bit / 8] ^ 1 << bit % 8);
        std::memset(out.data(), 0xee, out.size());
        // NaN codes, which a flip may give, are not 0xee.
        (void)decode(spec, flipped.data(), flipped.size(), data.predictor(),
                     box_view<uint8_t>{out.data() + 16, 100, 30});
        bool intact = true;
        for (size_t i = 0; i < out.size(); ++i) {
            const ptrdiff_t at = ptrdiff_t(i) - 16;
            const bool inside = at >= 0 && at < 200 && at % 100 < 90 && at % 100 % 30 < 20;
            intact &= inside || out[i] == 0xee;
        }
        CHECK(intact);
    }
}

namespace {

// In a buffer of its own, so that valgrind knows where it ends.
status decode_copy(const page& like, const uint8_t* bytes, size_t size)
{
    uint8_t* const copy = size != 0 ? static_cast<uint8_t*>(std::malloc(size)) : nullptr;
    if (size != 0) std::memcpy(copy, bytes, size);
    const decoded_page back = decode_page(like, copy, size);
    if (back.result) CHECK(back.result.bytes <= size);
    std::free(copy);
    return back.result.code;
}

}  // namespace

TEST_CASE("M04 a header without its payload")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16}) {
        const stream whole = make_stream(rich_spec(type, nullptr), true);
        for (size_t i = 0; i < 4; ++i) {
            const page& one = whole.pages[i];
            const uint8_t* const block = whole.bytes.data() + whole.begins[i];
            CHECK(decode_copy(one, nullptr, 0) == status::truncated);
            CHECK(decode_copy(one, block, block_header_bytes) == status::truncated);
            CHECK(decode_copy(one, block, block_header_bytes + 1) == status::truncated);
            block_header header;
            CHECK(read_block_header(nullptr, 0, header) == status::truncated);
            CHECK(read_block_header(nullptr, 1000, header) == status::truncated);
            CHECK(read_block_header(block, 0, header) == status::truncated);
            CHECK(row_step_of(one.spec, block, 15, 0) == 0);
            CHECK(row_step_of(one.spec, block, block_header_bytes, 0) == 0);

            uint8_t empty[block_header_bytes];  // count > 0, no words
            std::memcpy(empty, block, sizeof empty);
            detail::store_u32(empty + 8, 0);
            const status outcome = decode_copy(one, empty, sizeof empty);
            CHECK((outcome == status::truncated || outcome == status::bad_header));
        }
        stream_header header;
        CHECK(read_stream_header(nullptr, 0, header) == status::truncated);
        CHECK(read_stream_header(whole.bytes.data(), stream_header_bytes - 1, header) ==
              status::truncated);
    }
}

TEST_CASE("M04 null pointers")
{
    const page data = make_page(1, row_spec(scalar_type::e4m3fn, 40, 8));
    const std::vector<uint8_t> block = encode_page(data), codes = narrow(data.codes);
    std::vector<uint8_t> out(max_encoded_bytes(data.spec)), back(40);
    const box_view<const uint8_t> no_codes{nullptr, 0, 0};
    CHECK(encode(data.spec, no_codes, data.predictor(), out.data(), out.size()).code ==
          status::bad_argument);
    CHECK(encode(data.spec, dense(data.spec, codes.data()), data.predictor(), nullptr, 1000).code ==
          status::bad_argument);
    CHECK(decode(data.spec, block.data(), block.size(), data.predictor(),
                 box_view<uint8_t>{nullptr, 0, 0}).code == status::bad_argument);
    CHECK(decode(data.spec, nullptr, block.size(), data.predictor(),
                 dense(data.spec, back.data())).code == status::truncated);
}

TEST_CASE("M04 every failure path over initialised memory")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16}) {
        const stream whole = make_stream(rich_spec(type, nullptr), true);
        for (size_t i = 0; i < 4; ++i) {
            const uint8_t* const block = whole.bytes.data() + whole.begins[i];
            const size_t size = whole.begins[i + 1] - whole.begins[i];
            for (size_t cut = 0; cut < size; cut += cut < 60 ? 1 : 7)
                CHECK(decode_copy(whole.pages[i], block, cut) == status::truncated);
            std::vector<uint8_t> forged(block, block + size);
            for (size_t at = 0; at < size; at += at < 60 ? 1 : 7) {
                for (const uint32_t change : {0x01u, 0x80u, 0xffu}) {
                    forged[at] = uint8_t(forged[at] ^ change);
                    CHECK(decode_copy(whole.pages[i], forged.data(), size) != status::ok);
                    forged[at] = uint8_t(forged[at] ^ change);
                }
            }
        }
    }
}

namespace {

struct flip_counts {
    size_t bits = 0;
    size_t detected = 0;
    size_t word_bits = 0;  // of these, in the words of coded blocks and the codes of raw ones
    size_t detected_words = 0;
    size_t harmless = 0;  // decoded to the very same codes
};

// Flips every bit of every block. The other pages must decode exactly each time.
flip_counts flip_every_bit(const stream& whole)
{
    flip_counts counts;
    std::vector<uint8_t> bytes = whole.bytes;
    for (size_t flipped = 0; flipped < 4; ++flipped) {
        block_header header;
        const uint8_t* const block = bytes.data() + whole.begins[flipped];
        REQUIRE(read_block_header(block, block_header_bytes, header) == status::ok);
        const size_t words =
            whole.begins[flipped] +
            size_t(layout_of(header, whole.pages[flipped].spec.tokens).words);
        for (size_t bit = 8 * whole.begins[flipped]; bit < 8 * whole.begins[flipped + 1]; ++bit) {
            bytes[bit / 8] = uint8_t(bytes[bit / 8] ^ 1 << bit % 8);
            for (size_t i = 0; i < 4; ++i) {
                // The neighbours' bytes have not changed; one flip in 64 decodes them all the same.
                if (i != flipped && bit % 64 != 0) continue;
                const decoded_page back =
                    decode_page(whole.pages[i], bytes.data() + whole.begins[i],
                                whole.begins[i + 1] - whole.begins[i]);
                const bool exact = back.codes == whole.pages[i].codes;
                if (i == flipped) {
                    counts.detected += !back.result;
                    counts.detected_words += !back.result && bit >= 8 * words;
                    counts.harmless += back.result && exact;
                } else {
                    REQUIRE(back.result.code == status::ok);
                    REQUIRE(exact);
                }
            }
            ++counts.bits;
            counts.word_bits += bit >= 8 * words;
            bytes[bit / 8] = uint8_t(bytes[bit / 8] ^ 1 << bit % 8);
        }
    }
    return counts;
}

double percent(size_t part, size_t whole) { return 100.0 * double(part) / double(whole); }

}  // namespace

TEST_CASE("M05 with the content check every flipped bit is found, and stays in its page")
{
    const marginal_table marginal = some_marginal(1);
    for (const scalar_type type : modelled_types) {
        CAPTURE(scalar_name(type));
        const block_spec spec = page_spec(type, 4, sanitized ? 16 : 32);
        const flip_counts coded = flip_every_bit(make_stream(spec, false));
        CHECK(coded.detected == coded.bits);
        const flip_counts modes = flip_every_bit(make_stream(spec, true));
        CHECK(modes.detected == modes.bits);
        block_spec rich = rich_spec(type, &marginal);
        rich.tokens = sanitized ? 3 : 5;
        const flip_counts extras = flip_every_bit(make_stream(rich, true));
        CHECK(extras.detected == extras.bits);
    }
    const stream whole = make_stream(page_spec(scalar_type::e4m3fn, 4, 48), true);
    std::vector<uint8_t> bytes = whole.bytes;
    for (size_t bit = 0; bit < 8 * stream_header_bytes; ++bit) {
        bytes[bit / 8] = uint8_t(bytes[bit / 8] ^ 1 << bit % 8);
        stream_header header;
        CHECK(read_stream_header(bytes.data(), bytes.size(), header) != status::ok);
        bytes[bit / 8] = uint8_t(bytes[bit / 8] ^ 1 << bit % 8);
    }
}

TEST_CASE("M05 without the content check: memory safe, and this is what states and cursor find")
{
    for (const scalar_type type : modelled_types) {
        block_spec spec = page_spec(type, 4, sanitized ? 24 : 64);
        spec.content_check = false;
        const flip_counts coded = flip_every_bit(make_stream(spec, false));
        std::printf("M05 %-9s no content check, coded blocks: %.2f %% of %zu flips found, "
                    "%.2f %% of those in the words\n",
                    scalar_name(type), percent(coded.detected, coded.bits), coded.bits,
                    percent(coded.detected_words, coded.word_bits));
        CHECK(coded.harmless == 0);
        CHECK(percent(coded.detected, coded.bits) > 50);
        spec.tokens = 1;
        spec.dim = 64;
        const flip_counts modes = flip_every_bit(make_stream(spec, true));
        CHECK(modes.detected > 0);  // raw blocks have nothing to find a flip by
    }
}

TEST_CASE("M07 a stream of another count than the caller's room")
{
    const page data = make_page(1, row_spec(scalar_type::e4m3fn, 100, 8));
    const std::vector<uint8_t> block = encode_page(data);
    REQUIRE(!block.empty());
    for (const uint32_t room : {0u, 99u, 101u, 1u << 30}) {
        block_spec spec = data.spec;
        spec.dim = room;
        std::vector<uint8_t> out(256, 0xee);
        const decode_result back = decode(spec, block.data(), block.size(), data.predictor(),
                                          dense(spec, out.data()));
        CHECK(back.code == status::wrong_count);
        CHECK(out == std::vector<uint8_t>(256, 0xee));
    }
}

TEST_CASE("M07 work is bounded by the caller's box, not by the stream")
{
    // Near-free symbols: a block that could go on for a long time.
    page data = make_page(1, row_spec(scalar_type::e4m3fn, 1000, 8));
    for (uint32_t i = 0; i < 1000; ++i) {
        data.mean[i] = 1;
        data.sigma[i] = uint8_t(sigma_zero);
        data.codes[i] = uint16_t(i == 500 ? 0x39 : 0x38);
    }
    encode_result made;
    std::vector<uint8_t> block = encode_page(data, &made);
    REQUIRE(made.mode == block_mode::coded);
    REQUIRE(block.size() < 100);
    detail::store_u32(block.data() + 4, 1u << 30);
    const decoded_page back = decode_page(data, block);
    CHECK(back.result.code == status::wrong_count);
    CHECK(back.codes == std::vector<uint16_t>(1000, 0xff));
}
