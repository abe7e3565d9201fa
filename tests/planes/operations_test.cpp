// Every operation of the default backend's planes against plain arrays, lane by lane, those where
// estimates decide against the definition, and the encoder's division for every estimate that its
// instruction may return.

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "operations.hpp"

using namespace normans;
using namespace normans_test;

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
static_assert(simd::lanes == lanes, "two planes");

}  // namespace

TEST_CASE("operations on words equal the plain ones")
{
    random_source random{11};
    for (int round = 0; round < 200; ++round) {
        const word_lanes a(random), b(random);
        const auto got = word_results<simd>(a, b), expected = plain_word_results(a, b);
        REQUIRE(got.size() == expected.size());
        for (size_t i = 0; i < got.size(); ++i) {
            CAPTURE(i);
            REQUIRE(got[i] == expected[i]);
        }
        for (const uint32_t each : {8u, 16u, 32u})
            REQUIRE(stream_results<simd>(a, b, each) == plain_stream_results(a, b, each));
    }
}

TEST_CASE("operations on floats equal the plain ones")
{
    random_source random{12};
    for (int round = 0; round < 200; ++round) {
        const float_lanes a(random), b(random), c(random);
        const word_lanes words(random);
        const auto got = float_results<simd>(a, b, c, words);
        const auto expected = plain_float_results(a, b, c, words);
        REQUIRE(got.size() == expected.size());
        for (size_t i = 0; i < got.size(); ++i) {
            CAPTURE(i);
            REQUIRE(got[i] == expected[i]);
        }
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
