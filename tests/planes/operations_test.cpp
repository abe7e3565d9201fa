// Every operation of the default backend's planes against plain arrays, lane by lane, those where
// estimates decide against the definition, and the encoder's division for every estimate that its
// instruction may return.

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "support/random_source.hpp"

using namespace normans;
using field::random_source;

namespace {

#if NORMANS_AVX512
using simd = avx512_planes<2>;
#elif NORMANS_AVX2
using simd = avx2_planes<2>;
#elif NORMANS_NEON
using simd = neon_planes<2>;
#else
using simd = portable_planes<2>;
#endif
using plain = register_planes<2, plain_registers>;
constexpr uint32_t lanes = simd::lanes;

struct word_lanes {
    uint16_t lane[lanes];

    explicit word_lanes(random_source& random)
    {
        constexpr uint16_t corners[] = {0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xffff, 0xfffe, 0x00ff};
        const bool close = random.below(4) == 0;
        for (uint16_t& word : lane)
            word = random.below(4) == 0 ? corners[random.below(9)]
                                        : uint16_t(close ? random.below(40) : random.bits());
    }
};

struct float_lanes {
    float lane[lanes];

    // Ordinary numbers: |x| in 2^-20 .. 2^20.
    explicit float_lanes(random_source& random)
    {
        for (float& x : lane)
            x = bits_to_float((random.bits() & 0x807fffff) | (107 + random.below(40)) << 23);
    }
};

template <class V>
std::vector<uint16_t> stored(const typename V::words& x)
{
    std::vector<uint16_t> out(lanes);
    V::store(out.data(), x);
    return out;
}

template <class V>
std::vector<uint32_t> stored_ints(const typename V::ints& x)
{
    std::vector<uint32_t> out(lanes);
    V::store(out.data(), x);
    return out;
}

// The results of all operations on words, in one list.
template <class V>
std::vector<std::vector<uint16_t>> word_results(const word_lanes& a, const word_lanes& b)
{
    using W = typename V::words;
    const W x = V::load(a.lane), y = V::load(b.lane);
    const W small = V::both(y, V::set(7)), eight = V::smaller(small, V::set(8));
    std::vector<std::vector<uint16_t>> out;
    const auto add = [&](const W& w) { out.push_back(stored<V>(w)); };
    add(V::add(x, y));
    add(V::sub(x, y));
    add(V::sub_saturated(x, y));
    add(V::mul_low(x, y));
    add(V::mul_high(x, y));
    add(V::both(x, y));
    add(V::either(x, y));
    add(V::differ(x, y));
    add(V::without(x, y));
    add(V::template shl<5>(x));
    add(V::template shr<11>(x));
    add(V::smaller(x, y));
    add(V::larger(x, y));
    add(V::mul_rounded(V::template shr<1>(x), y));
    add(V::join_shifted(x, y));
    add(V::power(V::both(y, V::set(15))));
    add(V::shl(x, eight, V::power(eight)));
    add(V::shr(x, eight, V::power(eight)));
    const typename V::mask less = V::less(x, y), equal = V::equal(x, y);
    for (const auto& m : {less, V::less_signed(x, y), V::not_less(x, y), equal, V::negative(x),
                          V::join(less, equal), V::differ_masks(less, V::negative(y))}) {
        add(V::select(m, x, y));
        add(V::where(m, x));
        add(V::where_not(m, x));
        add(V::negate_where(m, x));
        add(V::minus_or_plus_one(m));
        add(V::where(V::from_bits(V::to_bits(m)), x));
        out.push_back({uint16_t(V::any(m)), uint16_t(V::to_bits(m).any())});
    }
    out.push_back({uint16_t(V::any_zero(x)), uint16_t(V::any_above(x, 0x8000)),
                   uint16_t(V::any_above(x, 0xfffe))});
    uint16_t table[32];
    uint8_t bytes[32];
    for (uint32_t i = 0; i < 32; ++i) {
        table[i] = uint16_t(i * 0x0821 + 77);
        bytes[i] = uint8_t(i * 37 + 1);
    }
    const typename V::small_table low(table);
    const typename V::byte_table byte(bytes);
    const typename V::word_table word(table);
    uint16_t rise[32];
    for (uint32_t i = 0; i < 32; ++i) rise[i] = uint16_t(3231 * (i + 1) / 32);
    const typename V::pieces pieces(table, rise);
    add(low(V::both(x, V::set(15))));
    add(byte(V::both(x, V::set(31))));
    add(word(V::both(x, V::set(31))));
    add(pieces(x));
    add(V::high_words(V::floats_from_high(x)));
    add(V::high_words(V::floats_from_high(x, 0x8000)));
    add(V::narrow(V::widen(x)));
    for (const auto& ints :
         {V::widen(x), V::bits(V::floats_from_high(x, 0x8000)), V::widen_mask(less),
          V::template shl<13>(V::widen(x)), V::template shr<3>(V::bits(V::floats_from_high(x))),
          V::add(V::widen(x), V::set_int(0x12345678)), V::sub(V::widen(x), V::set_int(99)),
          V::select(V::widen_mask(less), V::widen(x), V::widen(y)),
          V::bits(V::to_floats(V::widen(x)))}) {
        const std::vector<uint32_t> all = stored_ints<V>(ints);
        out.emplace_back(all.begin(), all.end());
        out.emplace_back();
        for (const uint32_t one : all) out.back().push_back(uint16_t(one >> 16));
    }
    uint32_t pairs[lanes / 2];
    const W thirteen = V::both(x, V::set(0x1fff));
    V::store_squares(pairs, V::add_squares(V::add_squares(V::no_squares(), thirteen), thirteen));
    out.emplace_back();
    for (const uint32_t pair : pairs) {
        out.back().push_back(uint16_t(pair));
        out.back().push_back(uint16_t(pair >> 16));
    }
    return out;
}

// z, products and mapped means.
template <class V>
std::vector<std::vector<uint32_t>> float_results(const float_lanes& a, const float_lanes& b,
                                                 const float_lanes& c, const word_lanes& words)
{
    [[maybe_unused]] const typename V::float_mode mode;
    const auto x = V::load(a.lane), y = V::load(b.lane), z = V::load(c.lane);
    std::vector<std::vector<uint32_t>> out;
    out.push_back(stored_ints<V>(V::bits(V::mul(x, y))));
    float kept_y[V::lanes], kept_z[V::lanes];
    V::keep(kept_y, y);
    V::keep(kept_z, z);
    out.push_back(stored_ints<V>(V::bits(V::map_means(x, kept_y, kept_z))));
    out.push_back(stored_ints<V>(V::bits(V::mul(kept_y, kept_z))));
    const auto less = V::mul(y, V::set_float(0x1p-12f));  // unclamped: below 2^31
    for (const auto& w :
         {V::template round_z<true>(x, y, z), V::template round_z<false>(x, less, z)}) {
        const auto all = stored<V>(w);
        out.emplace_back(all.begin(), all.end());
    }
    uint32_t slope[8];
    for (uint32_t i = 0; i < 8; ++i) slope[i] = 0x46000000 - i * 0x12345;
    out.push_back(stored_ints<V>(
        V::bits(V::slopes(V::both(V::load(words.lane), V::set(255)), slope))));
    out.push_back({V::any_above(x, 1.0f), V::any_above(x, 0x1p19f), V::any_above(x, 0x1p30f)});
    float kept[lanes];
    V::keep(kept, x);
    out.push_back(stored_ints<V>(V::bits(V::load_kept(kept))));
    const float spread[] = {1, 2, 3, 4, 5, 6, 7, 8};
    out.push_back(stored_ints<V>(V::bits(V::spread(spread))));
    std::vector<float> table(1 << 12);
    for (size_t i = 0; i < table.size(); ++i) table[i] = float(i) * 0.5f;
    out.push_back(stored_ints<V>(
        V::bits(V::gather(table.data(), V::template shr<4>(V::load(words.lane))))));
    return out;
}

// Words taken from and put to streams, with the cursors.
template <class V>
std::vector<uint32_t> stream_results(const word_lanes& a, const word_lanes& b, uint32_t each)
{
    std::vector<uint8_t> bytes(2 * lanes * 2);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * 7 + 3);
    word_reader readers[lanes / 8];
    for (uint32_t i = 0; i < lanes / each; ++i)
        readers[i] = {bytes.data() + 2 * each * i, bytes.data() + 2 * each * (i + 1)};
    const auto m = V::less(V::load(a.lane), V::load(b.lane));
    const auto taken = stored<V>(V::take(readers, each, m));
    std::vector<uint32_t> out(taken.begin(), taken.end());
    std::vector<uint8_t> room(2 * lanes, 0);
    word_writer writers[lanes / 8];
    for (uint32_t i = 0; i < lanes / each; ++i)
        writers[i] = {room.data() + 2 * each * i, room.data() + 2 * each * (i + 1)};
    V::put(writers, each, m, V::load(a.lane));
    for (uint32_t i = 0; i < lanes / each; ++i) {
        out.push_back(uint32_t(readers[i].next - bytes.data()));
        out.push_back(uint32_t(writers[i].next - room.data()));
        for (const uint8_t* at = writers[i].next; at != room.data() + 2 * each * (i + 1); ++at)
            out.push_back(*at);
    }
    return out;
}

}  // namespace

TEST_CASE("operations on words equal the plain ones")
{
    random_source random{11};
    for (int round = 0; round < 200; ++round) {
        const word_lanes a(random), b(random);
        const auto got = word_results<simd>(a, b), expected = word_results<plain>(a, b);
        REQUIRE(got.size() == expected.size());
        for (size_t i = 0; i < got.size(); ++i) {
            CAPTURE(i);
            REQUIRE(got[i] == expected[i]);
        }
        for (const uint32_t each : {8u, 16u, 32u})
            REQUIRE(stream_results<simd>(a, b, each) == stream_results<plain>(a, b, each));
    }
}

TEST_CASE("operations on floats equal the plain ones")
{
    random_source random{12};
    for (int round = 0; round < 200; ++round) {
        const float_lanes a(random), b(random), c(random);
        const word_lanes words(random);
        const auto got = float_results<simd>(a, b, c, words);
        const auto expected = float_results<plain>(a, b, c, words);
        REQUIRE(got.size() == expected.size());
        for (size_t i = 0; i < got.size(); ++i) {
            CAPTURE(i);
            REQUIRE(got[i] == expected[i]);
        }
    }
}

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

TEST_CASE("the quotient is right or one too small, for every freq")
{
    random_source random{13};
    [[maybe_unused]] const typename simd::float_mode mode;
    for (uint32_t freq = 1; freq <= 1u << 15; freq += freq < 4096 ? 1 : 3) {
        uint16_t high[lanes], low[lanes], divisor[lanes];
        for (uint32_t i = 0; i < lanes; ++i) {
            // Next to multiples of freq, most of them large, where errors are largest.
            const uint32_t most = freq << 16 > 0x7fffffff || freq == 1u << 15 ? 0x7fffffff / freq
                                                                             : 65535;
            const uint32_t quotient = i < 32 ? most - i : 1 + random.below(most);
            const uint32_t rest = i % 3 == 0 ? 0 : i % 3 == 1 ? freq - 1 : random.below(freq);
            uint32_t x = quotient * freq + rest;
            if (x >> 31 != 0) x = 0x7fffffff;
            high[i] = uint16_t(x >> 16);
            low[i] = uint16_t(x);
            divisor[i] = uint16_t(freq);
        }
        const auto got = stored<simd>(
            simd::quotient(simd::load(high), simd::load(low), simd::load(divisor)));
        for (uint32_t i = 0; i < lanes; ++i) {
            const uint32_t x = uint32_t(high[i]) << 16 | low[i], exact = x / freq;
            if (got[i] != exact && got[i] + 1u != exact) {
                CAPTURE(freq);
                CAPTURE(x);
                REQUIRE(got[i] == exact);
            }
        }
    }
}

#if NORMANS_AVX2
namespace {

// What quotient() would make of an estimate, one lane.
uint32_t quotient_from(uint32_t x, uint32_t freq, float estimate)
{
#if NORMANS_AVX512
    const __m512 below = simd::below_reciprocal(_mm512_set1_ps(float(int32_t(freq))),
                                                _mm512_set1_ps(estimate));
    const float low = _mm512_cvtss_f32(below);
#else
    const __m256 below = simd::below_reciprocal(_mm256_set1_ps(float(int32_t(freq))),
                                                _mm256_set1_ps(estimate));
    const float low = _mm256_cvtss_f32(below);
#endif
    return uint32_t(int32_t(float(int32_t(x)) * low));
}

}  // namespace

TEST_CASE("sigma indices of deviations and variances are the definition's, at every step's edges")
{
    // Around every middle and the ends of every octave, and what is no ordinary number.
    std::vector<uint32_t> bits{0, 1, 0x7fffff, 0x7f800000, 0x7f800001, 0x7fffffff};
    for (uint32_t field = 0; field < 256; ++field)
        for (const bool squared : {false, true}) {
            const detail::sigma_grid grid = detail::sigma_grid_of(squared);
            for (int i = 0; i < grid.steps; ++i)
                for (const uint32_t around : {grid.middle[i] - 1, grid.middle[i],
                                              grid.middle[i] ^ 0x10000, grid.middle[i] ^ 0x8000})
                    bits.push_back(field << 23 | around);
            bits.push_back(field << 23);
            bits.push_back(field << 23 | 0x7fffff);
        }
    for (size_t i = bits.size(); i-- > 0;) bits.push_back(bits[i] | sign_bit);
    random_source random{31};
    for (int i = 0; i < 20000; ++i) bits.push_back(random.bits());
    bits.resize((bits.size() + lanes - 1) / lanes * lanes);

    for (const bool squared : {false, true})
        for (const int offset : {min_sigma_offset, -16, 0, max_sigma_offset, -100000, 100000}) {
            const detail::plane_sigmas<simd> index(squared, offset);
            for (size_t i = 0; i < bits.size(); i += lanes) {
                float value[lanes];
                std::memcpy(value, bits.data() + i, sizeof value);
                const std::vector<uint16_t> found = stored<simd>(index(simd::load(value)));
                for (uint32_t k = 0; k < lanes; ++k) {
                    const uint32_t expected = squared ? sigma_index(variance{value[k]}, offset)
                                                      : sigma_index(deviation{value[k]}, offset);
                    if (found[k] != expected) {
                        CAPTURE(bits[i + k]);
                        CAPTURE(squared);
                        CAPTURE(offset);
                        REQUIRE(found[k] == expected);
                    }
                }
            }
        }
}

TEST_CASE("any estimate within the instruction's bound will do, for every freq")
{
    // rcpps promises 1.5 * 2^-12, vrcp14ps 2^-14.
    const double bound = NORMANS_AVX512 ? 0x1p-14 : 1.5 * 0x1p-12;
    uint64_t wrong = 0;
    for (uint32_t freq = 1; freq <= 1u << 15; ++freq) {
        for (const double error : {-bound, -bound / 2, 0.0, bound / 2, bound}) {
            const float estimate = float((1 + error) / freq);
            for (const uint32_t quotient : {65535u, 65534u, 32767u, 21845u, 1u}) {
                for (const uint32_t rest : {0u, freq - 1}) {
                    const uint64_t x = uint64_t(quotient) * freq + rest;
                    if (x >> 31 != 0) continue;
                    const uint32_t got = quotient_from(uint32_t(x), freq, estimate);
                    wrong += got != quotient && got + 1 != quotient;
                }
            }
        }
    }
    CHECK(wrong == 0);
}
#endif
