// block/predictor.hpp: every view reads the place it is told to.

#include <doctest/doctest.h>

#include <vector>

#include <normans/block/predictor.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

struct by_position {
    prediction operator()(const scalar_position& at) const { return {1.0f, uint8_t(at.channel)}; }
};
struct by_index {
    prediction operator()(uint32_t index) const { return {2.0f, uint8_t(index)}; }
};
struct neither {
    int operator()(const char*) const { return 0; }
};

static_assert(is_predictor_v<by_position> && is_predictor_v<by_index>);
static_assert(!is_predictor_v<neither> && !is_predictor_v<int>);
static_assert(is_predictor_v<view_predictor<scalar_means, one_sigma>>);
static_assert(is_predictor_v<view_predictor<bf16_means, channel_sigmas, channel_affine>>);

// A box of 2 heads, 3 tokens, 5 channels, padded in memory.
constexpr uint32_t heads = 2, tokens = 3, dim = 5;
constexpr ptrdiff_t head_stride = 29, token_stride = 7;

template <class Function>
void for_all_positions(Function f)
{
    uint32_t index = 0;
    for (uint32_t h = 0; h < heads; ++h)
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t d = 0; d < dim; ++d) f(scalar_position{index++, h, t, d});
}

size_t place(const scalar_position& at)
{
    return size_t(at.head) * size_t(head_stride) + size_t(at.token) * size_t(token_stride) +
           at.channel;
}

}  // namespace

TEST_CASE("callables by position and by index")
{
    const scalar_position at{77, 1, 2, 3};
    CHECK(normans::detail::predict_at(by_position{}, at).sigma_index == 3);
    CHECK(normans::detail::predict_at(by_index{}, at).sigma_index == 77);
    const auto lambda = [](uint32_t i) { return prediction{float(i), 9}; };
    CHECK(normans::detail::predict_at(lambda, at).mean == 77.0f);
}

TEST_CASE("means in memory, by strides")
{
    std::vector<float> floats(100);
    std::vector<uint16_t> halves(100);
    std::vector<uint8_t> bytes(100);
    for (size_t i = 0; i < 100; ++i) {
        floats[i] = float(i) + 0.5f;
        halves[i] = uint16_t(0x3f00 + i);
        bytes[i] = uint8_t(i);
    }
    for_all_positions([&](const scalar_position& at) {
        CHECK(scalar_means{floats.data()}(at) == floats[at.index]);
        CHECK(fp32_means{floats.data(), head_stride, token_stride}(at) == floats[place(at)]);
        CHECK(float_to_bits(bf16_means{halves.data(), head_stride, token_stride}(at)) ==
              uint32_t(halves[place(at)]) << 16);
        CHECK(float_to_bits(fp8_means{bytes.data(), head_stride, token_stride,
                                      scalar_type::e4m3fn}(at)) ==
              value_bits(format_of(scalar_type::e4m3fn), bytes[place(at)]));
    });
    // Strides may be negative, the data pointer inside.
    const fp32_means backward{floats.data() + 60, -head_stride, -token_stride};
    CHECK(backward({0, 1, 2, 3}) == floats[60 - 29 - 14 + 3]);
}

TEST_CASE("fp8 means of every code, specials included")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::e5m2, scalar_type::e4m3fnuz,
                                   scalar_type::e5m2fnuz}) {
        const scalar_format format = format_of(type);
        CAPTURE(doctest::String(scalar_name(type)));
        for (uint32_t code = 0; code < 256; ++code) {
            const auto byte = uint8_t(code);
            const uint32_t bits = float_to_bits(fp8_means{&byte, 0, 0, type}({0, 0, 0, 0}));
            CAPTURE(code);
            if (!is_special(format, code)) CHECK(bits == value_bits(format, code));
            else if (type == scalar_type::e5m2 && (code & 0x7f) == 0x7c)
                CHECK(bits == (infinity_bits | (code & 0x80) << 24));
            else CHECK(is_nan(bits));
        }
    }
}

TEST_CASE("sigmas: one, per channel, per scalar, from deviations and variances")
{
    std::vector<uint8_t> indices(64);
    std::vector<float> sigma(64), squared(64);
    for (size_t i = 0; i < 64; ++i) {
        indices[i] = uint8_t(200 - i);
        sigma[i] = 0.01f * float(i + 1);
        squared[i] = sigma[i] * sigma[i];
    }
    for_all_positions([&](const scalar_position& at) {
        CHECK(one_sigma{17}(at) == 17);
        CHECK(channel_sigmas{indices.data(), dim}(at) == indices[at.head * dim + at.channel]);
        CHECK(scalar_sigmas{indices.data()}(at) == indices[at.index]);
        CHECK(deviations{sigma.data(), -12}(at) == sigma_index(deviation{sigma[at.index]}, -12));
        CHECK(variances{squared.data(), -12}(at) == sigma_index(variance{squared[at.index]}, -12));
    });
}

TEST_CASE("predict joins a mean, a sigma and a map")
{
    std::vector<float> means(30), a(10), b(10);
    test_rng rng(111);
    for (float& mean : means) mean = bits_to_float(0x3f000000 + rng.bits(24));
    for (float& one : a) one = bits_to_float(0x3f700000 + rng.bits(20));
    for (float& one : b) one = bits_to_float(0x3c000000 + rng.bits(24));
    const auto plain = predict(scalar_means{means.data()}, one_sigma{99});
    const auto mapped = predict(scalar_means{means.data()}, one_sigma{99},
                                channel_affine{a.data(), b.data(), dim});
    for_all_positions([&](const scalar_position& at) {
        const size_t channel = at.head * dim + at.channel;
        CHECK(plain(at).mean == means[at.index]);
        CHECK(plain(at).sigma_index == 99);
        CHECK(mapped(at).sigma_index == 99);
        CHECK(float_to_bits(mapped(at).mean) == map_mean(float_to_bits(means[at.index]),
                                                         float_to_bits(a[channel]),
                                                         float_to_bits(b[channel])));
    });
    CHECK(float_to_bits(no_affine{}({0, 0, 0, 0}, -0.0f)) == minus_zero_bits);
}
