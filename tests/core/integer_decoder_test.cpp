// host/integer_decoder.hpp against decode(): codes, statuses and results, over lanes, flags, modes
// and damage; means in code units; and what it costs, printed.

#include <doctest/doctest.h>

#include <chrono>
#include <initializer_list>
#include <vector>

#include "core/integer_unit.hpp"
#include "support/scaled_page.hpp"

using namespace normans;
using namespace normans_test;

namespace {

constexpr scaled_kind tans_kinds[] = {{scalar_type::int8, coder_id::tans},
                                      {scalar_type::int4, coder_id::tans}};

decoded_scaled decode_integer_page(const scaled_page& page, const std::vector<uint8_t>& block)
{
    const size_t count = page.codes.size();
    std::vector<uint8_t> out(raw_bytes(page.spec.dtype, count) + 1, 0xff);
    decoded_scaled back;
    back.result = decode_bits(page.spec, block.data(), block.size(), page.mean.data(),
                              page.sigma.data(), out.data());
    back.codes = unpacked(out, page.code_bits(), count);
    return back;
}

// True if both decoders say the same.
bool alike(const scaled_page& page, const std::vector<uint8_t>& block)
{
    const decoded_scaled one = decode_integer_page(page, block);
    const decoded_scaled other = decode_scaled_page(page, block.data(), block.size());
    return one.result.code == other.result.code && one.result.bytes == other.result.bytes &&
           one.result.mode == other.result.mode && one.result.lanes == other.result.lanes &&
           one.result.row_scaled == other.result.row_scaled &&
           (!one.result || one.codes == other.codes);
}

}  // namespace

TEST_CASE("the integer decoder equals decode(): lanes x flags x lengths")
{
    uint64_t seed = 400;
    for (const scaled_kind kind : tans_kinds)
        for (const uint32_t lanes : {1u, 8u, 16u, 32u})
            for (unsigned flags = 0; flags < 16; ++flags)
                for (const uint32_t dim : {1u, 61u, 256u}) {
                    block_spec spec = scaled_spec(kind.type, kind.coder, 2, 5, dim, lanes);
                    spec.shape = flags % 3 == 0 ? shape_id::mixture : shape_id::gaussian;
                    spec.row_scale = (flags & 1) != 0;
                    spec.content_check = (flags & 2) != 0;
                    spec.parameter_hash = (flags & 4) != 0;
                    spec.has_fingerprint = (flags & 8) != 0;
                    scaled_page page = make_scaled_page(++seed, spec, flags % 2 ? 50 : 5);
                    if (flags == 5) page.sigma.assign(page.sigma.size(), uint8_t(flags * 50));
                    const std::vector<uint8_t> block = encode_scaled_page(page);
                    CHECK(alike(page, block));
                    CHECK(decode_integer_page(page, block).codes == page.codes);
                }
}

TEST_CASE("the integer decoder equals decode(): odd predictions and scales, all modes")
{
    for (const scaled_kind kind : tans_kinds) {
        test_rng rng(41);
        for (int round = 0; round < 300; ++round) {
            scaled_page page = make_scaled_page(
                rng.next(), scaled_spec(kind.type, kind.coder, 1, 3, 40, round % 2 ? 8 : 32), 9);
            page.spec.parameter_hash = round % 3 == 0;
            for (float& mean : page.mean)
                if (rng.below(4) == 0) mean = bits_to_float(rng.bits(32));
            for (uint8_t& sigma : page.sigma)
                if (rng.below(4) == 0) sigma = uint8_t(rng.bits(8));
            for (float& scale : page.scales)
                if (rng.below(3) == 0) scale = bits_to_float(rng.bits(32));
            if (round % 5 == 1) page.codes.assign(page.codes.size(), 6);
            if (round % 5 == 2)
                for (uint32_t i = 0; i < page.codes.size(); ++i) {
                    const float scale = page.scales[i / 40 * 2 + i % 40 / 32];
                    page.codes[i] = uint8_t(expected_code(
                        format_of(kind.type),
                        mean_in_codes(map_mean(float_to_bits(page.mean[i]), one_bits,
                                               minus_zero_bits),
                                      make_scale(float_to_bits(scale)))));
                }
            const std::vector<uint8_t> block = encode_scaled_page(page);
            CHECK(alike(page, block));
            CHECK(decode_integer_page(page, block).codes == page.codes);
        }
    }
}

TEST_CASE("the integer decoder equals decode(): every flipped bit, every length")
{
    for (const scaled_kind kind : tans_kinds) {
        block_spec spec = scaled_spec(kind.type, kind.coder, 1, 4, 67, 8);
        spec.row_scale = spec.parameter_hash = true;
        const scaled_page page = make_scaled_page(42, spec);
        std::vector<uint8_t> block = encode_scaled_page(page);
        for (size_t bit = 0; bit < 8 * block.size(); ++bit) {
            block[bit / 8] = uint8_t(block[bit / 8] ^ 1 << bit % 8);
            CHECK(alike(page, block));
            block[bit / 8] = uint8_t(block[bit / 8] ^ 1 << bit % 8);
        }
        for (size_t size = 0; size < block.size(); ++size)
            CHECK(alike(page, {block.begin(), block.begin() + ptrdiff_t(size)}));
    }
    scaled_page other =
        make_scaled_page(43, scaled_spec(scalar_type::int8, coder_id::rans, 1, 4, 67, 8));
    const std::vector<uint8_t> block = encode_scaled_page(other);
    CHECK(decode_integer_page(other, block).result.code == status::bad_argument);
}

TEST_CASE("means in code units: each comes back, and blocks decode under them")
{
    test_rng rng(44);
    for (const scaled_kind kind : tans_kinds) {
        const scalar_format format = format_of(kind.type);
        const uint32_t last = (2 * format.code_sign() - 1) << 8;
        uint32_t wrong = 0;
        for (uint32_t fixed = 0; fixed <= last; fixed += thin == 1 ? 1 : 31) {
            const uint32_t bits = uint32_t(rng.between(103, 150)) << 23 | rng.bits(23);
            wrong += fixed_mean(format, mean_of_fixed(format, fixed, bits), make_scale(bits)) !=
                     fixed;
        }
        CHECK(wrong == 0);
        for (int round = 0; round < 20; ++round) {
            block_spec spec = scaled_spec(kind.type, kind.coder, 1, 6, 64, 8);
            spec.parameter_hash = round % 2 != 0;
            scaled_page page = make_scaled_page(rng.next(), spec);
            std::vector<uint16_t> fixed(page.mean.size());
            for (uint32_t i = 0; i < fixed.size(); ++i) {
                const uint32_t scale = float_to_bits(page.scales[i / 64 * 2 + i % 64 / 32]);
                const uint32_t unit = round == 3 ? 128 : 1;  // ties
                fixed[i] = uint16_t(rng.below(last / unit + 1) * unit);
                page.mean[i] = bits_to_float(
                    make_scale(scale).scale == 0 ? 0 : mean_of_fixed(format, fixed[i], scale));
                page.codes[i] = uint8_t(expected_code(
                    format, mean_in_codes(float_to_bits(page.mean[i]), make_scale(scale))));
            }
            if (round % 4 != 3) page.codes[7] ^= 1;  // else predicted
            const std::vector<uint8_t> block = encode_scaled_page(page);
            std::vector<uint8_t> out(raw_bytes(kind.type, fixed.size()));
            const decode_result got = decode_fixed(page.spec, block.data(), block.size(),
                                                   fixed.data(), page.sigma.data(), out.data());
            CHECK(got.code == status::ok);
            CHECK(unpacked(out, format.code_bits, fixed.size()) == page.codes);
        }
    }
}

TEST_CASE("places of means are those of the definition, also behind a map")
{
    test_rng rng(46);
    const auto around = [&](uint32_t field, uint32_t spread) {
        return (field - spread / 2 + rng.below(spread)) << 23 | rng.bits(23) | rng.bits(1) << 31;
    };
    uint32_t wrong = 0, plain_wrong = 0;
    detail::mapped_channels channels(32);
    for (uint32_t round = 0; round < 20000 / thin; ++round) {
        const scalar_format format = format_of(tans_kinds[round % 2].type);
        const uint32_t spread = round % 4 == 0 ? 60 : 8;
        const code_scale scale = make_scale((round % 4 == 0 ? 103 + rng.below(48)
                                                            : 122 + rng.below(8)) << 23 |
                                            rng.bits(23));
        uint32_t mean[32], a[32], b[32];
        float a_value[32], b_value[32];
        for (uint32_t i = 0; i < 32; ++i) {
            mean[i] = rng.below(20) == 0 ? rng.bits(32) : around(130, spread);
            a[i] = rng.below(30) == 0 ? sign_bit : around(127, spread);
            b[i] = rng.below(10) == 0 ? 0 : around(125, spread);
            if (rng.below(40) == 0) mean[i] = rng.bits(1) << 31 | (rng.bits(1) * rng.bits(23));
            if (rng.below(20) == 0) a[i] = around(230, 40);
            if (rng.below(4) == 0) {  // where 1/32 of a code ends, or near it
                const int fixed = 8 * rng.between(-16 * 128, 16 * 128) * 2 - 1;
                const uint32_t at =
                    multiply(multiply(float_to_bits(float(fixed)), 0x3b000000u), scale.scale);
                if (rng.bits(1) != 0) a[i] = one_bits, b[i] = minus_zero_bits;
                mean[i] = fma_exact(b[i] ^ sign_bit, one_bits, at) + rng.below(3) - 1;
            }
            a_value[i] = bits_to_float(a[i]);
            b_value[i] = bits_to_float(b[i]);
        }
        channels = detail::mapped_channels(32);
        const channel_affine map{a_value, b_value, 32};
        const uint32_t other = scale.scale + (rng.below(13) << 23) - (6u << 23);
        if (round % 4 != 0) channels.of(map, 0, 0, 32, make_scale(other));  // serves this one too
        const detail::mapped_places<uint32_t> places(mean, channels, map, 0, 0, 32, format, scale);
        const detail::mean_places<uint32_t> plain(mean, format, scale);
        for (uint32_t i = 0; i < 32; ++i) {
            const auto found = [](std::uint64_t place) {
                return uint32_t(place >> detail::place_bits) - 16;
            };
            wrong +=
                found(places(i)) != fixed_mean(format, map_mean(mean[i], a[i], b[i]), scale) >> 3;
            plain_wrong +=
                found(plain(i)) !=
                fixed_mean(format, map_mean(mean[i], one_bits, minus_zero_bits), scale) >> 3;
        }
    }
    CHECK(wrong == 0);
    CHECK(plain_wrong == 0);
}

TEST_CASE("the integer decoder equals decode(): behind a map, rows longer than it keeps ready")
{
    test_rng rng(47);
    for (const scaled_kind kind : tans_kinds)
        for (uint32_t round = 0; round < 60; ++round) {
            const uint32_t dims[] = {64, 61, 600, 1300};
            block_spec spec = scaled_spec(kind.type, kind.coder, 2, 4, dims[round % 4],
                                          round % 3 == 0 ? 8 : 32);
            spec.row_scale = round % 2 != 0;
            spec.parameter_hash = round % 5 == 0;
            scaled_page page = make_scaled_page(rng.next(), spec, 30);
            const uint32_t map_dim = round % 8 < 4 ? spec.dim : 0;  // 0: heads share a map
            const uint32_t channels = map_dim + spec.dim, count = uint32_t(page.codes.size());
            std::vector<float> a, b;
            for (uint32_t i = 0; i < channels; ++i) {
                a.push_back(bits_to_float(rng.below(30) == 0 ? 0 : 0x3f000000u | rng.bits(23)));
                b.push_back(bits_to_float((110 + rng.below(16)) << 23 | rng.bits(23)));
            }
            if (round % 7 == 0)  // scales far apart
                for (float& scale : page.scales)
                    if (rng.below(2) == 0) scale = bits_to_float((105 + rng.below(40)) << 23);
            std::vector<uint16_t> upper;
            for (uint32_t i = 0; i < count; ++i) {
                upper.push_back(uint16_t(float_to_bits(page.mean[i]) >> 16));
                page.mean[i] = bits_to_float(uint32_t(upper[i]) << 16);
                const uint32_t channel = i / (4 * spec.dim) * map_dim + i % spec.dim;
                const uint32_t groups = (spec.dim + 31) / 32;
                const uint32_t scale =
                    float_to_bits(page.scales[i / spec.dim * groups + i % spec.dim / 32]);
                const uint32_t mapped =
                    map_mean(float_to_bits(page.mean[i]), float_to_bits(a[channel]),
                             float_to_bits(b[channel]));
                if (rng.below(3) != 0)
                    page.codes[i] = uint8_t(expected_code(
                        format_of(kind.type), mean_in_codes(mapped, make_scale(scale))));
            }
            const mapped_predictor predictor{
                {page.mean.data()}, {page.sigma.data()}, {a.data(), b.data(), map_dim}};
            const std::vector<uint8_t> codes = packed(page);
            std::vector<uint8_t> block(max_encoded_bytes(page.spec));
            const encode_result made = encode(page.spec, dense(page.spec, codes.data()),
                                              predictor, block.data(), block.size());
            REQUIRE(made.code == status::ok);
            std::vector<uint8_t> out(codes.size(), 0xff);
            const decode_result got =
                decode_mapped(page.spec, block.data(), made.bytes, upper.data(),
                              page.sigma.data(), {a.data(), b.data(), map_dim}, out.data());
            CHECK(got.code == status::ok);
            CHECK(unpacked(out, page.code_bits(), count) == page.codes);
        }
}

TEST_CASE("what the integer decoder costs here")
{
    const scaled_page page =
        make_scaled_page(45, scaled_spec(scalar_type::int8, coder_id::tans, 1, 512, 128, 8), 0);
    encode_result made;
    const std::vector<uint8_t> block = encode_scaled_page(page, &made);
    REQUIRE(made.mode == block_mode::coded);
    std::vector<uint8_t> out(page.codes.size());
    std::vector<uint16_t> fixed(page.codes.size());
    for (uint32_t i = 0; i < fixed.size(); ++i)
        fixed[i] = uint16_t(fixed_mean(format_of(page.spec.dtype), float_to_bits(page.mean[i]),
                                       make_scale(float_to_bits(page.scales[i / 32]))));
    const auto speed = [&](const auto& run) {
        using clock = std::chrono::steady_clock;
        double best = 0;
        for (int i = 0; i < 20; ++i) {
            const clock::time_point begin = clock::now();
            const bool good = bool(run());
            const std::chrono::duration<double> taken = clock::now() - begin;
            if (good && double(out.size()) / taken.count() > best)
                best = double(out.size()) / taken.count();
        }
        CHECK(best > 0);
        return best / 1e6;
    };
    MESSAGE("M scalars/s at this unit's flags: fp32 bits ", speed([&] {
                return decode_bits(page.spec, block.data(), block.size(), page.mean.data(),
                                   page.sigma.data(), out.data());
            }));
    MESSAGE("M scalars/s at this unit's flags: code units ", speed([&] {
                return decode_fixed(page.spec, block.data(), block.size(), fixed.data(),
                                    page.sigma.data(), out.data());
            }));
}
