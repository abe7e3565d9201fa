// Every special mean under every special deviation and variance, through the views that take
// floats: one documented outcome each, lossless, and the same bytes under every compiler and flag.
// So are means drafted, corrected or rotated. Prints a hash over all blocks and such means.
//     special_test [--flush-to-zero]

#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include <normans/fit/profile.hpp>
#include <normans/lowrank/draft.hpp>
#include <normans/normans.hpp>

#include "codec/codec.hpp"
#include "support/float_mode.hpp"
#include "support/test_rng.hpp"

using namespace normans;
using normans_test::running_hash;
using normans_test::test_rng;

namespace {

int failed = 0;

void expect(bool good, const char* what, uint32_t detail)
{
    if (good) return;
    ++failed;
    std::fprintf(stderr, "%s (%08x)\n", what, detail);
}

// Floats as bits: under -ffast-math a compiler may assume that NaN and infinities do not occur.
constexpr uint32_t special_means[] = {
    0,          minus_zero_bits,          1,          0x807fffff,     0x00800000,
    0x80ffffff, 0x01000000,               0x3f800000, 0xc2f00000,     0x43e00000,
    0xc3e80000, 0x477fe000,               0x7f7fffff, 0xff7fffff,     infinity_bits,
    0x7f800001, infinity_bits | sign_bit, 0xffc00001, quiet_nan_bits};

struct special_sigma {
    uint32_t bits;
    int index;  // under the default offset; -1: on the grid, not special
};
constexpr special_sigma special_sigmas[] = {
    {0, 255},          {minus_zero_bits, 255}, {1, 0},            {0x007fffff, 0},
    {0x00800000, 0},   {0x80000001, 255},      {0xbf800000, 255}, {0xff7fffff, 255},
    {infinity_bits, 254}, {infinity_bits | sign_bit, 255}, {quiet_nan_bits, 255}, {0x7f800001, 255},
    {0xffc00000, 255}, {0x7f7fffff, 254},      {0x3f800000, -1},  {0x3d000000, -1}};

std::vector<float> floats_of(const std::vector<uint32_t>& bits)
{
    std::vector<float> floats(bits.size());
    std::memcpy(floats.data(), bits.data(), bits.size() * sizeof(float));
    return floats;
}

// Sigmas: deviations or variances.
template <class Sigmas>
void run(scalar_type type, const std::vector<uint32_t>& means, const std::vector<uint32_t>& sigmas,
         running_hash& hash)
{
    constexpr bool squared = std::is_same_v<Sigmas, variances>;
    block_spec spec;
    spec.dtype = type;
    spec.dim = uint32_t(means.size());
    spec.lanes = squared ? 8 : 32;
    spec.parameter_hash = true;
    const std::vector<float> mean = floats_of(means), sigma = floats_of(sigmas);
    const auto predictor = predict(scalar_means{mean.data()},
                                   Sigmas{sigma.data(), default_sigma_offset});
    const scalar_format format = format_of(type);
    test_rng rng{uint64_t(type)};
    std::vector<uint16_t> codes(means.size()), back(means.size());
    for (size_t i = 0; i < codes.size(); ++i) {
        const uint32_t own = nearest_code(format, map_mean(means[i], one_bits, minus_zero_bits));
        const uint32_t choice = rng.below(32);
        codes[i] = uint16_t(choice == 0   ? rng.bits(format.code_bits)
                            : choice == 1 ? own ^ format.code_sign()
                                          : own);
    }
    std::vector<uint8_t> block(max_encoded_bytes(spec));
    const encode_result coded =
        encode(spec, dense(spec, codes.data()), predictor, block.data(), block.size());
    expect(coded.code == status::ok && coded.mode == block_mode::coded, "encode", squared);
    block.resize(coded.bytes);
    const decode_result decoded =
        decode(spec, block.data(), block.size(), predictor, dense(spec, back.data()));
    expect(decoded.code == status::ok && back == codes, "decode", squared);
    for (const uint8_t byte : block) hash.add(byte);
}

void run_type(scalar_type type, running_hash& hash)
{
    // All pairs, four times over, so that most scalars being their mean's own code pays.
    std::vector<uint32_t> means, sigmas;
    for (int round = 0; round < 4; ++round)
        for (const uint32_t mean : special_means)
            for (const special_sigma& sigma : special_sigmas) {
                means.push_back(mean);
                sigmas.push_back(sigma.bits);
            }
    run<deviations>(type, means, sigmas, hash);
    run<variances>(type, means, sigmas, hash);
}

// Special and random means, as they are and corrected or drafted by any sums and scales.
void run_means(running_hash& hash)
{
    test_rng rng{7};
    constexpr uint32_t tokens = 5, channels = 19, rank = 4, dim = 18;
    const auto add = [&](const std::vector<float>& means) {
        for (const float mean : means) hash.add(float_to_bits(mean));
    };
    const auto fill = [&](std::vector<int8_t>& bytes, int limit) {
        for (int8_t& byte : bytes) byte = int8_t(rng.between(-limit, limit));
    };
    for (int round = 0; round < 400; ++round) {
        std::vector<uint32_t> bits(tokens * channels), scales(channels);
        for (uint32_t& mean : bits) {
            const uint32_t choice = rng.below(4), any = rng.bits(32);
            mean = choice == 0   ? special_means[any % std::size(special_means)]
                   : choice == 1 ? any & 0x81ffffff  // small, or no normal number at all
                                 : any;
        }
        for (uint32_t& scale : scales)
            scale = (rng.bits(32) & 0x807fffff) | (1 + rng.below(254)) << 23;
        std::vector<float> drafted = floats_of(bits), corrected = drafted;
        const std::vector<float> scale = floats_of(scales);
        std::vector<float> rows(4 * channels), sums(tokens * channels);
        std::vector<int8_t> u(tokens * rank), v(channels * rank);
        fill(u, 127);
        fill(v, 127);
        const uint8_t shift = uint8_t(rng.below(8));
        const int exponent = rng.between(-max_draft_exponent, max_draft_exponent);
        add_draft({{u.data(), v.data(), &shift, tokens, channels, rank}, rank, exponent},
                  scale.data(), drafted.data(), channels, rows.data());
        add(drafted);

        fill(u, largest_feature);
        const cross_layer_map map{v.data(), scale.data(), rank, channels};
        cross_layer_sums(map, u.data(), tokens, sums.data());
        correct_means(map, sums.data(), tokens, corrected.data());
        add(corrected);
        std::vector<int8_t> grid(channels, int8_t(rng.between(-100, 60))), features(channels);
        residual_features({grid.data(), nullptr, channels}, drafted.data(), corrected.data(),
                          features.data());
        for (const int8_t feature : features) hash.add(uint8_t(feature));

        std::vector<int32_t> mean(dim);
        for (int32_t& m : mean) m = rng.between(-largest_rotary_mean, largest_rotary_mean);
        std::vector<uint64_t> step(dim / 2);
        for (uint64_t& s : step) s = rng.next();
        std::vector<float> rotated(tokens * dim);
        expand_rotary({mean.data(), step.data(), dim, 10, rng.between(-100, 60),
                       rotary_pairing(round % 2), rng.next()},
                      1, 0, tokens, rotated.data());
        add(rotated);
    }
    // Which scales a profile may have: not where the inverse is no normal number.
    for (const uint32_t bits : {0x00800000u, 0x7e800000u})
        expect(normans::detail::usable_scale(floats_of({bits})[0]), "a usable scale", bits);
    for (const uint32_t bits : {0u, 1u, 0x007fffffu, 0x7e800001u, 0x7f7fffffu, infinity_bits,
                                quiet_nan_bits, 0xbf800000u})
        expect(!normans::detail::usable_scale(floats_of({bits})[0]), "no usable scale", bits);
}

}  // namespace

int main(int count, char** arguments)
{
    if (count == 2 && std::strcmp(arguments[1], "--flush-to-zero") == 0)
        normans_test::flush_to_zero();
    for (const special_sigma& sigma : special_sigmas) {
        if (sigma.index < 0) continue;
        const std::vector<float> value = floats_of({sigma.bits});
        expect(sigma_index(deviation{value[0]}, default_sigma_offset) == sigma.index, "deviation",
               sigma.bits);
        expect(sigma_index(variance{value[0]}, default_sigma_offset) == sigma.index, "variance",
               sigma.bits);
    }
    running_hash hash;
    run_type(scalar_type::bf16, hash);
    run_type(scalar_type::fp16, hash);
    run_means(hash);
    std::printf("%016llx special, %d failed\n", static_cast<unsigned long long>(hash.value()),
                failed);
    return failed == 0 ? 0 : 1;
}
