// Drafts: bytes as they must be, whatever bytes come, factors close to what they were made of.

#include <doctest/doctest.h>

#include <limits>

#include <normans/lowrank/factors.hpp>

#include "support/random_source.hpp"

using namespace normans;
using field::random_source;

namespace {

// Memory for a draft, each array just as large as it must be.
struct loaded_draft {
    std::vector<int8_t> u, v;
    std::vector<uint8_t> shift;
    draft_view view{};

    status read(const std::vector<uint8_t>& bytes, uint32_t tokens, uint32_t channels,
                uint32_t rank)
    {
        u.assign(size_t(tokens) * padded_rank(rank), 99);
        v.assign(size_t(channels) * padded_rank(rank), 99);
        shift.assign(padded_rank(rank) / 4, 99);
        const draft_memory memory{u.data(), u.size(), v.data(), v.size(),
                                  shift.data(), shift.size()};
        return read_draft(bytes.data(), bytes.size(), tokens, channels, memory, view);
    }
};

block_components random_components(random_source& random, uint32_t tokens, uint32_t channels,
                                   uint32_t rank)
{
    block_components made;
    made.tokens = tokens;
    made.channels = channels;
    for (uint32_t k = 0; k < rank; ++k) {
        made.singular.push_back(std::ldexp(1 + random.below(64) / 64.0, int(rank - k) / 2));
        made.left.emplace_back();
        made.right.emplace_back();
        for (uint32_t t = 0; t < tokens; ++t) made.left.back().push_back(random.normal());
        for (uint32_t c = 0; c < channels; ++c) made.right.back().push_back(random.normal());
    }
    return made;
}

std::vector<uint8_t> bytes_of(const draft_view& view)
{
    std::vector<uint8_t> bytes(
        size_t(draft_bytes(view.rank, view.factors.tokens, view.factors.channels)));
    REQUIRE(write_draft(view, bytes.data(), bytes.size()) == status::ok);
    return bytes;
}

// With a right check again, so that only the fields can be wrong.
status read_rechecked(std::vector<uint8_t> bytes, uint32_t tokens, uint32_t channels, uint32_t rank)
{
    detail::store_u32(&bytes[4], detail::draft_check(bytes.data(), bytes.size(), tokens, channels));
    return loaded_draft{}.read(bytes, tokens, channels, rank);
}

}  // namespace

TEST_CASE("a draft's bytes are these")
{
    // Rank 5: two groups in memory. u 2 x 8, v 3 x 8.
    const std::vector<int8_t> u = {1, 2, 3, 4, 5, 0, 0, 0, -1, -2, -3, -4, -128, 0, 0, 0};
    const std::vector<int8_t> v = {10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33,
                                   14, 0,  0,  0,  24, 0,  0,  0,  34, 0,  0,  0};
    const std::vector<uint8_t> shift = {3, 0};
    const draft_view made{{u.data(), v.data(), shift.data(), 2, 3, 8}, 5, -7};
    const std::vector<uint8_t> bytes = bytes_of(made);
    std::vector<uint8_t> expected = {0,  0xf9, 5,  0,  bytes[4], bytes[5], bytes[6], bytes[7],
                                     3,  0,    1,  2,  3,        4,        5,        0xff,
                                     0xfe, 0xfd, 0xfc, 0x80, 10, 11, 12, 13, 14, 20, 21, 22,
                                     23, 24,   30, 31, 32,       33,       34,       0};
    CHECK(bytes == expected);
    CHECK(detail::load_u32(&bytes[4]) == 0x4e34fbdbu);

    loaded_draft back;
    REQUIRE(back.read(bytes, 2, 3, 5) == status::ok);
    CHECK(back.u == u);
    CHECK(back.v == v);
    CHECK(back.shift == shift);
    CHECK(back.view.rank == 5);
    CHECK(back.view.exponent == -7);
    CHECK(back.view.factors.rank == 8);

    const std::vector<uint8_t> none = bytes_of({{nullptr, nullptr, nullptr, 2, 3, 0}, 0, 0});
    CHECK(none.size() == draft_header_bytes);
    CHECK(back.read(none, 2, 3, 0) == status::ok);
}

TEST_CASE("no bytes do harm")
{
    random_source random{7};
    const block_factors made = quantise_factors(random_components(random, 5, 7, 6), 6);
    const std::vector<uint8_t> good = bytes_of(made.view());
    REQUIRE(loaded_draft{}.read(good, 5, 7, 6) == status::ok);
    CHECK(loaded_draft{}.read(good, 7, 5, 6) == status::content_mismatch);
    CHECK(loaded_draft{}.read(good, 4, 8, 6) == status::content_mismatch);
    CHECK(loaded_draft{}.read(good, 6, 7, 6) == status::truncated);
    CHECK(loaded_draft{}.read(good, 0xffffffff, 0xffffffff, 0) == status::truncated);
    for (size_t length = 0; length < good.size(); ++length) {
        const std::vector<uint8_t> part(good.begin(), good.begin() + std::ptrdiff_t(length));
        CHECK(loaded_draft{}.read(part, 5, 7, 6) == status::truncated);
    }
    for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
        std::vector<uint8_t> flipped = good;
        flipped[bit / 8] = uint8_t(flipped[bit / 8] ^ 1u << bit % 8);
        CHECK(loaded_draft{}.read(flipped, 5, 7, 6) != status::ok);
    }
    const auto changed = [&](size_t at, uint8_t value) {
        std::vector<uint8_t> bytes = good;
        bytes[at] = value;
        return read_rechecked(bytes, 5, 7, 6);
    };
    CHECK(changed(0, 1) == status::unsupported_version);
    CHECK(changed(1, 101) == status::bad_header);
    CHECK(changed(1, uint8_t(-101)) == status::bad_header);
    CHECK(changed(3, 5) == status::bad_header);
    CHECK(changed(2, 7) == status::truncated);
    CHECK(changed(8, 8) == status::bad_header);  // a shift above 7
    CHECK(changed(good.size() - 1, 1) == status::bad_header);
    CHECK(changed(good.size() / 2, uint8_t(good[good.size() / 2] ^ 1)) == status::ok);

    // Memory that is too small in any of the three arrays is left alone.
    for (int which = 0; which < 3; ++which) {
        int8_t u = 42, v = 42;
        uint8_t shift = 42;
        draft_memory memory{&u, 5 * 8, &v, 7 * 8, &shift, 2};
        (which == 0 ? memory.u_size : which == 1 ? memory.v_size : memory.shift_size) -= 1;
        draft_view view{};
        CHECK(read_draft(good.data(), good.size(), 5, 7, memory, view) ==
              status::output_too_small);
        CHECK((u == 42 && v == 42 && shift == 42));
    }
    draft_view view = made.view();
    std::vector<uint8_t> out(good.size());
    CHECK(write_draft(view, out.data(), out.size() - 1) == status::output_too_small);
    view.exponent = 101;
    CHECK(write_draft(view, out.data(), out.size()) == status::bad_argument);
    view = made.view();
    view.rank = 9;
    CHECK(write_draft(view, out.data(), out.size()) == status::bad_argument);
    CHECK(write_draft(made.view(), nullptr, 0) == status::bad_argument);
}

TEST_CASE("random bytes with a right check are read or refused, within their memory")
{
    random_source random{17};
    size_t read = 0;
    for (int i = 0; i < 3000; ++i) {
        const uint32_t tokens = random.below(9), channels = random.below(9);
        const uint32_t rank = random.below(10);
        std::vector<uint8_t> bytes(size_t(draft_bytes(rank, tokens, channels)));
        for (uint8_t& byte : bytes) byte = uint8_t(random.bits());
        if (random.below(8) != 0) bytes[0] = 0;
        bytes[1] = uint8_t(random.below(210) - 105);
        bytes[2] = uint8_t(random.below(4) == 0 ? random.below(12) : rank);
        bytes[3] = 0;
        for (uint32_t g = 0; g < padded_rank(rank) / 4; ++g)
            bytes[8 + g] = uint8_t(random.below(9));
        for (size_t end = bytes.size() - random.below(4); end < bytes.size(); ++end)
            if (end >= 8 + size_t(tokens + channels) * rank) bytes[end] = 0;
        detail::store_u32(&bytes[4],
                          detail::draft_check(bytes.data(), bytes.size(), tokens, channels));
        loaded_draft draft;
        if (draft.read(bytes, tokens, channels, rank) != status::ok) continue;
        ++read;
        REQUIRE(draft.view.rank <= rank + 3);
        REQUIRE(exact_factors(draft.view.factors));
        std::vector<float> scale(channels, 0.5f), means(size_t(tokens) * channels, 1.0f);
        std::vector<float> rows(4 * size_t(channels));
        add_draft(draft.view, scale.data(), means.data(), channels, rows.data());
    }
    CHECK(read > 100);
    CHECK(read < 2900);
}

TEST_CASE("quantised factors say what their components said")
{
    random_source random{11};
    for (const uint32_t rank : {1u, 2u, 3u, 4u, 9u, 32u}) {
        const uint32_t tokens = 20, channels = 33;
        block_components parts = random_components(random, tokens, channels, rank);
        if (rank == 9) {  // beyond what shifts span: the small ones lose bits, the large ones none
            for (uint32_t k = 0; k < 4; ++k) parts.singular[k] *= 1e9;
        }
        const block_factors made = quantise_factors(parts, rank);
        REQUIRE(made.rank == rank);
        REQUIRE(exact_factors(made.view().factors));
        double square = 0, off = 0;
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t c = 0; c < channels; ++c) {
                double value = 0;
                for (uint32_t k = 0; k < rank; ++k)
                    value += parts.singular[k] * parts.left[k][t] * parts.right[k][c];
                const double said = std::ldexp(double(lowrank_sum(made.view().factors, t, c)),
                                               made.exponent);
                square += value * value;
                off += (said - value) * (said - value);
            }
        CHECK(off < 0.0004 * square);  // 2 % of amplitude
        CHECK(off > 0);
    }
    const block_components some = random_components(random, 4, 4, 2);
    CHECK(quantise_factors(some, 0).rank == 0);
    CHECK(quantise_factors(some, 100).rank == 2);
    block_components vast = some;
    vast.singular[0] = 1e200;  // no exponent says that: no factors
    CHECK(quantise_factors(vast, 2).rank == 0);
}

TEST_CASE("drafted means are one fma, in memory and as a view")
{
    random_source random{13};
    const uint32_t tokens = 11, heads = 3, dim = 7, channels = heads * dim;
    const block_factors made = quantise_factors(random_components(random, tokens, channels, 5), 5);
    std::vector<float> scale(channels), base(channels), rows(4 * channels);
    for (uint32_t c = 0; c < channels; ++c) {
        scale[c] = c % 6 == 0 ? 0.0f : float(random.normal());
        base[c] = c % 5 == 0 ? -0.0f : float(random.normal());
    }
    base[1] = std::numeric_limits<float>::infinity();
    base[2] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> means;
    for (uint32_t t = 0; t < tokens; ++t) means.insert(means.end(), base.begin(), base.end());
    add_draft(made.view(), scale.data(), means.data(), channels, rows.data());
    const drafted_means<channel_means> view{{base.data(), dim}, made.view(), scale.data(), dim};
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t c = 0; c < channels; ++c) {
            const uint32_t got = float_to_bits(means[t * channels + c]);
            REQUIRE(got == float_to_bits(view({0, c / dim, t, c % dim})));
            if (c == 1) REQUIRE(got == infinity_bits);
            if (c == 2) REQUIRE(got == quiet_nan_bits);
            if (c == 1 || c == 2) continue;
            const double sum = std::ldexp(double(lowrank_sum(made.view().factors, t, c)),
                                          made.exponent);
            const float expected = std::fma(float(sum), scale[c], base[c]);
            REQUIRE(bits_to_float(got) == expected);
        }
    // Rank 0 has no factors, and so no arrays.
    const block_factors none = quantise_factors({tokens, channels, {}, {}, {}}, 4);
    CHECK(none.view().factors.v == nullptr);
    std::vector<float> same(size_t(tokens) * channels, 1.5f);
    add_draft(none.view(), scale.data(), same.data(), channels, rows.data());
    CHECK(same == std::vector<float>(same.size(), 1.5f));
    CHECK(float_to_bits(drafted_mean(0, 5, 3, -0.0f)) == 0);
    const float small = std::ldexp(1.0f, -130);  // a subnormal base is 0, whatever flags say of it
    CHECK(drafted_mean(1, -100, std::ldexp(1.0f, -24), small) == std::ldexp(1.0f, -124));
    CHECK(drafted_mean(-16777215.0f, 100, 1, 0) == -std::ldexp(16777215.0f, 100));
    CHECK(drafted_mean(1, -100, 1, 0) == std::ldexp(1.0f, -100));
    CHECK(float_to_bits(drafted_mean(16777215.0f, 100, 1e20f, 0)) == infinity_bits);
}
