// Operations of planes that are plain arrays, and of those that the unit would take without further
// flags, against the definition.

#include <doctest/doctest.h>

#include "operations.hpp"

using namespace normans;
using namespace normans_test;

namespace {

using plain = register_planes<2, plain_registers>;

}  // namespace

namespace normans_test {

std::vector<std::vector<uint16_t>> plain_word_results(const word_lanes& a, const word_lanes& b)
{
    return word_results<plain>(a, b);
}

std::vector<std::vector<uint32_t>> plain_float_results(const float_lanes& a, const float_lanes& b,
                                                       const float_lanes& c,
                                                       const word_lanes& words)
{
    return float_results<plain>(a, b, c, words);
}

std::vector<uint32_t> plain_stream_results(const word_lanes& a, const word_lanes& b, uint32_t each)
{
    return stream_results<plain>(a, b, each);
}

}  // namespace normans_test

namespace {

// Sums that end in the middle of two floats, and next to it, and what is no ordinary number.
template <class V>
void check_means(random_source& random)
{
    constexpr uint32_t odd[] = {0, sign_bit, 1, 0x80000001, 0x007fffff, 0x00800000, 0x01000000,
                                0x7f7fffff, infinity_bits, 0xff800000, 0x7fc00001, 0xffffffff};
    float mean[V::lanes], a[V::lanes], b[V::lanes], kept_a[V::lanes], kept_b[V::lanes];
    for (uint32_t i = 0; i < V::lanes; ++i) {
        // 13 and 12 bits make 25: one more than a float has.
        mean[i] = float(int32_t(4097 + 2 * random.below(2048))) * (random.below(2) ? 1.0f : -1.0f);
        a[i] = float(int32_t(2049 + 2 * random.below(1024))) * 0x1p-12f;
        b[i] = bits_to_float((random.bits() & 0x807fffff) | (20 + random.below(140)) << 23);
        if (random.below(4) == 0) b[i] = random.below(2) ? 0.0f : -0.0f;
        if (random.below(8) == 0) b[i] = -mean[i] * a[i];
        if (random.below(8) == 0) a[i] = random.below(2) ? 0.0f : 1.0f;
        if (random.below(16) == 0) mean[i] = bits_to_float(odd[random.below(12)]);
    }
    V::keep(kept_a, V::load(a));
    V::keep(kept_b, V::load(b));
    const auto got = stored_ints<V>(V::bits(V::map_means(V::load(mean), kept_a, kept_b)));
    for (uint32_t i = 0; i < V::lanes; ++i) {
        CAPTURE(float_to_bits(mean[i]));
        CAPTURE(float_to_bits(a[i]));
        CAPTURE(float_to_bits(b[i]));
        REQUIRE(got[i] ==
                map_mean(float_to_bits(mean[i]), float_to_bits(a[i]), float_to_bits(b[i])));
    }
}

// z on ties and as near to them as products allow.
template <class V>
void check_z(random_source& random)
{
    float edge[V::lanes], slope[V::lanes], product[V::lanes];
    for (uint32_t i = 0; i < V::lanes; ++i) {
        const uint32_t bits = random.below(2) ? 0xffffffff : 0xfff80000;
        edge[i] = bits_to_float(((random.bits() & 0x807fffff) | (117 + random.below(16)) << 23) &
                                bits);
        slope[i] = bits_to_float((random.bits() & 0x7fffff) | (122 + random.below(20)) << 23);
        const double tie = double(int32_t(random.below(66000))) - 33000.5;
        const double steps = random.below(2) ? 0.0 : double(int32_t(random.below(129)) - 64);
        const double off = steps * 0x1p-14;
        product[i] = float(double(edge[i]) * double(slope[i]) - tie - off);
        if (random.below(4) == 0) {  // small products end in more bits
            slope[i] = float((tie + off) / double(edge[i]));
            product[i] = float(double(edge[i]) * double(slope[i]) - tie - off);
        }
    }
    const auto got = stored<V>(
        V::template round_z<true>(V::load(edge), V::load(slope), V::load(product)));
    for (uint32_t i = 0; i < V::lanes; ++i) {
        CAPTURE(float_to_bits(edge[i]));
        CAPTURE(float_to_bits(slope[i]));
        CAPTURE(float_to_bits(product[i]));
        REQUIRE(int16_t(got[i]) == z_exact(float_to_bits(edge[i]), float_to_bits(slope[i]),
                                           float_to_bits(product[i]) ^ sign_bit));
    }
}

}  // namespace

TEST_CASE("means and z without an fma are the definition's, on ties too")
{
    random_source random{14};
    [[maybe_unused]] const plain::float_mode mode;
    for (int round = 0; round < 4000; ++round) {
        check_means<portable_planes<2>>(random);
        check_means<plain>(random);
        check_z<portable_planes<2>>(random);
        check_z<plain>(random);
    }
}
