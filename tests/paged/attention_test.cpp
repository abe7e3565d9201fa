// Attention over pages against double precision, without the codec: every head size, group and
// type, tokens that end anywhere, strides of any layout.

#include <doctest/doctest.h>

#include <normans/paged/paged_attention.hpp>

#include <cmath>
#include <vector>

#include "support/test_rng.hpp"

using namespace normans;
using normans_test::test_rng;

namespace {

double value_of(uint16_t code) { return double(bits_to_float(uint32_t(code) << 16)); }
double value_of(uint8_t code)
{
    const int e = code >> 3 & 15, m = code & 7;
    const double mag = e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10);
    return code & 0x80 ? -mag : mag;
}

template <class Code>
Code draw(test_rng& rng)
{
    if (sizeof(Code) == 1) {
        const uint32_t code = rng.bits(8);
        return Code((code & 0x7f) < 0x48 ? code : code & 0xbf);  // below 4, subnormals included
    }
    return Code(normans_test::float_of(rng.noise(), -16) >> 16);
}

template <class Code, uint32_t Dim, uint32_t Group>
void check(uint32_t kv_heads, uint32_t tokens, uint32_t page_tokens)
{
    test_rng rng(Dim + Group + tokens);
    const uint32_t pages = (tokens + page_tokens - 1) / page_tokens;
    const ptrdiff_t row = Dim + 24, k_page = ptrdiff_t(page_tokens * kv_heads) * row;
    const ptrdiff_t v_page = ptrdiff_t(page_tokens * kv_heads * Dim);  // K is NHD, V is HND
    std::vector<Code> k(size_t(k_page) * pages), v(size_t(v_page) * pages);
    for (Code& c : k) c = draw<Code>(rng);
    for (Code& c : v) c = draw<Code>(rng);
    std::vector<float> queries(kv_heads * Group * Dim), out(queries.size());
    for (float& q : queries) q = bits_to_float(normans_test::float_of(rng.noise(), -16));
    std::vector<uint32_t> table(pages);
    for (uint32_t i = 0; i < pages; ++i) table[i] = pages - 1 - i;

    const float scale = 0.5f / std::sqrt(float(Dim)), v_scale = 0.75f;
    std::vector<attention_head<Dim, Group>> heads(kv_heads);
    for (uint32_t h = 0; h < kv_heads; ++h)
        heads[h].begin(queries.data() + size_t(h) * Group * Dim, scale);
    const auto of = [&](uint32_t i, kv_page<Code>& page) {
        page = {k.data() + table[i] * k_page, v.data() + table[i] * v_page, row,
                ptrdiff_t(kv_heads) * row, ptrdiff_t(page_tokens * Dim), ptrdiff_t(Dim)};
        return status::ok;
    };
    REQUIRE(attend<Code>(heads.data(), kv_heads, tokens, page_tokens, of) == status::ok);
    for (uint32_t h = 0; h < kv_heads; ++h)
        heads[h].finish(v_scale, out.data() + size_t(h) * Group * Dim);

    double worst = 0;
    std::vector<double> score(tokens), sum(Dim);
    for (uint32_t q = 0; q < kv_heads * Group; ++q) {
        const uint32_t h = q / Group;
        double largest = -1e300, total = 0;
        const auto at = [&](uint32_t t) {
            kv_page<Code> page;
            static_cast<void>(of(t / page_tokens, page));
            page.k += ptrdiff_t(h) * page.k_head + ptrdiff_t(t % page_tokens) * page.k_token;
            page.v += ptrdiff_t(h) * page.v_head + ptrdiff_t(t % page_tokens) * page.v_token;
            return page;
        };
        for (uint32_t t = 0; t < tokens; ++t) {
            score[t] = 0;
            for (uint32_t d = 0; d < Dim; ++d)
                score[t] += double(queries[q * Dim + d]) * value_of(at(t).k[d]);
            score[t] *= double(scale);
            largest = score[t] > largest ? score[t] : largest;
        }
        sum.assign(Dim, 0);
        for (uint32_t t = 0; t < tokens; ++t) {
            const double weight = std::exp(score[t] - largest);
            total += weight;
            for (uint32_t d = 0; d < Dim; ++d) sum[d] += weight * value_of(at(t).v[d]);
        }
        for (uint32_t d = 0; d < Dim; ++d) {
            const double exact = sum[d] / total * double(v_scale);
            worst = std::fmax(worst, std::fabs(double(out[q * Dim + d]) - exact));
        }
    }
    CHECK(worst < 1e-5);
}

template <class Code>
void check_all()
{
    for (const uint32_t tokens : {1u, 7u, 64u, 65u, 150u}) {
        check<Code, 64, 1>(3, tokens, 16);
        check<Code, 128, 4>(2, tokens, 32);
        if constexpr (normans_test::thin == 1) {
            check<Code, 64, 4>(1, tokens, 64);
            check<Code, 64, 8>(2, tokens, 256);
            check<Code, 128, 1>(1, tokens, 1);
            check<Code, 128, 8>(1, tokens, 128);
        }
    }
}

}  // namespace

TEST_CASE("attention over bf16 pages") { check_all<uint16_t>(); }
TEST_CASE("attention over e4m3fn pages") { check_all<uint8_t>(); }

TEST_CASE("every e4m3fn code has its value")
{
    constexpr uint32_t width = detail::float_vector::width;
    for (uint32_t first = 0; first < 256; first += width) {
        uint8_t codes[width];
        float values[width];
        for (uint32_t i = 0; i < width; ++i) codes[i] = uint8_t(first + i);
        detail::float_vector::from_codes(codes).store(values);
        for (uint32_t i = 0; i < width; ++i) {
            if ((codes[i] & 0x7f) == 0x7f) CHECK(is_nan(float_to_bits(values[i])));
            else CHECK(double(values[i]) == value_of(codes[i]));
        }
    }
}

TEST_CASE("powers of two")
{
    constexpr uint32_t width = detail::float_vector::width;
    double worst = 0;
    for (float x = -126.0f; x <= 0.0f; x += 0.01f) {
        float value[width];
        detail::exp2_of(detail::float_vector::all(x)).store(value);
        worst = std::fmax(worst, std::fabs(double(value[0]) / std::exp2(double(x)) - 1));
    }
    CHECK(worst < 4e-7);
    float value[width];
    detail::exp2_of(detail::float_vector::all(-1e30f)).store(value);
    CHECK(value[0] == 0.0f);
    detail::exp2_of(detail::float_vector::all(bits_to_float(quiet_nan_bits))).store(value);
    CHECK(is_nan(float_to_bits(value[0])));
}

TEST_CASE("a page that cannot be had ends attention with its status")
{
    std::vector<attention_head<64, 1>> heads(1);
    const std::vector<uint8_t> codes(64 * 4);
    const std::vector<float> query(64, 1.0f);
    heads[0].begin(query.data(), 1);
    uint32_t asked = 0;
    const auto pages = [&](uint32_t i, kv_page<uint8_t>& page) {
        ++asked;
        page = {codes.data(), codes.data(), 0, 64, 0, 64};
        return i == 2 ? status::content_mismatch : status::ok;
    };
    CHECK(attend<uint8_t>(heads.data(), 1, 20, 4, pages) == status::content_mismatch);
    CHECK(asked == 3);
    CHECK(attend<uint8_t>(heads.data(), 1, 0, 4, pages) == status::ok);
    CHECK(attend<uint8_t>(heads.data(), 1, 5, 0, pages) == status::bad_argument);
}
