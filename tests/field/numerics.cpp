// Field cases N01, N02, N03, N09: predictions that differ between the two sides, distributions that
// lose a symbol, floats from outside the sensible range, and bytes that depend on the weather.

#include <doctest/doctest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "field/page.hpp"
#include "support/ordered_codes.hpp"

using namespace field;

namespace {

float next_up(float value) { return std::nextafter(value, std::numeric_limits<float>::infinity()); }

struct drifting_page {
    page data;
    std::vector<float> variance;

    void quantise()
    {
        const variances view{variance.data(), data.spec.sigma_offset};
        for (uint32_t i = 0; i < variance.size(); ++i) data.sigma[i] = view({i, 0, 0, i});
    }
};

drifting_page make_drifting(uint64_t seed, block_spec spec)
{
    drifting_page made{make_page(seed, spec), {}};
    random_source random{seed + 1};
    for (const uint8_t index : made.data.sigma) {
        const double sigma = sigma_value(index, spec.sigma_offset) * (1 + 0.04 * random.normal());
        made.variance.push_back(float(sigma * sigma));
    }
    made.quantise();
    return made;
}

template <class T>
void rotate(std::vector<T>& values)
{
    const T first = values.front();
    values.erase(values.begin());
    values.push_back(first);
}

// What may happen when a decoder's predictions are those of `other`.
void check_drift(const page& mine, const std::vector<uint8_t>& block, const page& other,
                 bool is_gross)
{
    const bool same = mine.sigma == other.sigma && mine.mean == other.mean;
    const decoded_page back = decode_page(other, block);
    if (same) {
        CHECK(back.result.code == status::ok);
    } else if (mine.spec.parameter_hash) {
        CHECK(back.result.code == status::wrong_prediction);
    } else {
        CHECK(((back.result.code == status::ok && !is_gross) ||
               back.result.code == status::content_mismatch ||
               back.result.code == status::corrupt_stream));
    }
    if (back.result) CHECK(back.codes == mine.codes);
}

}  // namespace

namespace {

struct drift {
    const char* name;
    bool is_gross;  // then it must be noticed
    void (*apply)(drifting_page&, random_source&);
};

const drift drifts[] = {
    {"none", false, [](drifting_page&, random_source&) {}},
    {"one variance an ulp up", false,
     [](drifting_page& p, random_source& random) {
         float& moved = p.variance[random.below(uint32_t(p.variance.size()))];
         moved = next_up(moved);
         p.quantise();
     }},
    {"every variance an ulp up", false,
     [](drifting_page& p, random_source&) {
         for (float& value : p.variance) value = next_up(value);
         p.quantise();
     }},
    {"one percent of the means an ulp off", false,
     [](drifting_page& p, random_source& random) {
         for (uint32_t i = 0; i + 100 <= p.data.mean.size(); i += 100) {
             float& moved = p.data.mean[i + random.below(100)];
             moved = next_up(moved);
         }
     }},
    {"every mean a bf16 ulp off", false,
     [](drifting_page& p, random_source&) {
         for (float& mean : p.data.mean) mean = bits_to_float(float_to_bits(mean) + 0x10000);
     }},
    {"one sigma a bin off", false,
     [](drifting_page& p, random_source& random) {
         ++p.data.sigma[random.below(uint32_t(p.data.sigma.size()))];
     }},
    {"variances shifted by one scalar", true,
     [](drifting_page& p, random_source&) {
         rotate(p.variance);
         p.quantise();
     }},
    {"means shifted by one scalar", true,
     [](drifting_page& p, random_source&) { rotate(p.data.mean); }},
    {"every sigma a bin off", true,
     [](drifting_page& p, random_source&) {
         for (uint8_t& index : p.data.sigma) ++index;
     }},
};

}  // namespace

TEST_CASE("N01 a drifted predictor is an error or changes nothing")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16}) {
        for (const bool hash : {false, true}) {
            block_spec spec;
            spec.dtype = type;
            spec.heads = 2;
            spec.tokens = 8;
            spec.dim = 128;
            spec.parameter_hash = hash;
            for (uint64_t seed = 1; seed <= 20; ++seed) {
                const drifting_page original = make_drifting(seed, spec);
                encode_result made;
                const std::vector<uint8_t> block = encode_page(original.data, &made);
                REQUIRE(made.code == status::ok);
                REQUIRE(made.mode == block_mode::coded);
                for (const drift& one : drifts) {
                    CAPTURE(scalar_name(type));
                    CAPTURE(hash);
                    CAPTURE(seed);
                    CAPTURE(one.name);
                    random_source random{seed};
                    drifting_page other = original;
                    one.apply(other, random);
                    check_drift(original.data, block, other.data, one.is_gross);
                }
            }
        }
    }
}

TEST_CASE("N01 blocks that store no model do not depend on it, predicted ones do")
{
    for (const bool hash : {false, true}) {
        block_spec spec = row_spec(scalar_type::e4m3fn, 512, 8);
        spec.parameter_hash = hash;
        page raw = make_random_page(3, spec), constant = raw, predicted = raw;
        for (uint32_t i = 0; i < 512; ++i) {
            constant.codes[i] = 0x31;
            predicted.mean[i] = float(i) / 32;
            predicted.codes[i] = uint16_t(
                nearest_code(format_of(spec.dtype), float_to_bits(predicted.mean[i])));
        }
        encode_result made;
        const auto raw_block = encode_page(raw, &made);
        CHECK(made.mode == block_mode::raw);
        const auto constant_block = encode_page(constant, &made);
        CHECK(made.mode == block_mode::constant);
        const auto predicted_block = encode_page(predicted, &made);
        CHECK(made.mode == block_mode::predicted);

        page other = raw;
        rotate(other.mean);
        CHECK(decode_page(other, raw_block).codes == raw.codes);
        CHECK(decode_page(other, raw_block).result.code == status::ok);
        CHECK(decode_page(other, constant_block).codes == constant.codes);
        CHECK(decode_page(other, constant_block).result.code == status::ok);

        other = predicted;
        other.mean[100] = 400;
        CHECK(decode_page(other, predicted_block).result.code ==
              (hash ? status::wrong_prediction : status::content_mismatch));
        other = predicted;
        ++other.sigma[7];  // predicted blocks do not use sigma, but the hash names it
        CHECK(decode_page(other, predicted_block).result.code ==
              (hash ? status::wrong_prediction : status::ok));
    }
}

TEST_CASE("N01 a damaged state is not blamed on the predictor")
{
    block_spec spec = row_spec(scalar_type::e4m3fn, 512, 8);
    spec.parameter_hash = true;
    const page mine = make_page(5, spec);
    encode_result made;
    std::vector<uint8_t> block = encode_page(mine, &made);
    REQUIRE(made.mode == block_mode::coded);
    const size_t states = block_header_bytes + 4;
    block[states + 3] |= 0x80;  // no state reaches 2^31
    CHECK(decode_page(mine, block).result.code == status::corrupt_stream);
}

namespace {

// Walks all codes in numeric order: intervals must tile the slots above the escape, and what has no
// interval must be an escape. Returns the slots that belong to nobody.
template <scalar_type Type>
uint32_t check_tiling(const normal_model<Type>& model, const scalar_model& m)
{
    constexpr scalar_format format = normal_model<Type>::format;
    constexpr uint32_t codes = uint32_t(1) << format.code_bits;
    const uint32_t escape_slots = model.shape.escape_slots;
    uint32_t end = escape_slots, flaws = 0;
    const auto take = [&](uint32_t code) {
        const interval one = model.find(m, code);
        if (one.escaped) {
            flaws += one.start != 0 || one.freq != escape_slots || one.code != 0;
            return;
        }
        flaws += one.freq == 0 || one.start != end || one.corrupt ||
                 one.code != (code & ~((uint32_t(1) << one.raw_bits) - 1));
        end = one.start + one.freq;
    };
    if (m.is_far) {  // the code of the mean and its negative
        const uint32_t expected = nearest_code(format, m.mean);
        take(expected);
        take(expected ^ format.code_sign());
        for (uint32_t code = 0; code < codes; ++code)
            if ((code & ~format.code_sign()) != (expected & ~format.code_sign()))
                flaws += !model.find(m, code).escaped;
        flaws += end != rans_format::total;
    } else {
        const uint32_t step = uint32_t(1) << m.group_bits;
        for (uint32_t index = 0; index < codes; index += step)
            take(normans_test::code_at(format, index));
        // A group's codes share its interval.
        if (step > 1) {
            for (uint32_t code = 1; code < codes; code += 97) {
                const interval one = model.find(m, code), first = model.find(m, code & ~(step - 1));
                flaws += one.start != first.start || one.escaped != first.escaped;
            }
        }
    }
    CHECK(flaws == 0);
    return rans_format::total - end;
}

template <scalar_type Type>
void check_all_models(shape_id id, const std::vector<uint32_t>& means, int offset, uint32_t stride)
{
    const marginal_table marginal = some_marginal(1);
    const normal_model<Type> model{shape_of(id), offset,
                                   id == shape_id::mixture_marginal ? &marginal : nullptr};
    for (const uint32_t bits : means) {
        for (uint32_t k = 0; k < 256; k += k + stride > 255 && k < 255 ? 255 - k : stride) {
            const scalar_model m = model.prepare(map_mean(bits, one_bits, minus_zero_bits), k, 0);
            const uint32_t unowned = check_tiling(model, m);
            if (unowned > 2 || (unowned != 0 && m.is_far)) {
                CAPTURE(bits);
                CAPTURE(k);
                FAIL_CHECK("slots without an owner: " << unowned);
            }
            for (uint32_t slot = rans_format::total - unowned; slot < rans_format::total; ++slot)
                CHECK(model.locate(m, slot, 0).corrupt);
        }
    }
}

template <scalar_type Type>
std::vector<uint32_t> fp8_means()
{
    std::vector<uint32_t> means;
    for (uint32_t code = 0; code < 256; ++code)
        if (!is_special(format_of(Type), code)) means.push_back(value_bits(format_of(Type), code));
    for (const uint32_t special : {0x7fc00000u, 0xff800000u, 0x7f7fffffu, 0x00000001u, 0x80800000u})
        means.push_back(special);
    return means;
}

std::vector<uint32_t> wide_means()
{
    std::vector<uint32_t> means;
    random_source random{7};
    for (uint32_t field = 0; field < 256; field += 5)
        means.push_back((random.bits() & 0x807fffff) | field << 23);
    return means;
}

template <scalar_type Type>
void check_fp8_models()
{
    CAPTURE(scalar_name(Type));
    std::vector<uint32_t> means = fp8_means<Type>();
    check_all_models<Type>(shape_id::gaussian, means, default_sigma_offset, sanitized ? 8 : 1);
    check_all_models<Type>(shape_id::mixture, means, default_sigma_offset, 8);
    check_all_models<Type>(shape_id::mixture_marginal, means, default_sigma_offset, 8);
}

template <scalar_type Type>
void check_wide_models()
{
    CAPTURE(scalar_name(Type));
    for (const int offset : {default_sigma_offset, min_sigma_offset, max_sigma_offset}) {
        check_all_models<Type>(shape_id::gaussian, wide_means(), offset, 25);
        check_all_models<Type>(shape_id::mixture_marginal, wide_means(), offset, 120);
    }
}

}  // namespace

TEST_CASE("N02 under every model every code has slots or escapes, and slots have one owner")
{
    check_fp8_models<scalar_type::e4m3fn>();
    check_fp8_models<scalar_type::e5m2>();
    check_fp8_models<scalar_type::e4m3fnuz>();
    check_fp8_models<scalar_type::e5m2fnuz>();
    check_wide_models<scalar_type::bf16>();
    check_wide_models<scalar_type::fp16>();
}

namespace {

struct sigma_outcome {
    uint32_t bits;
    uint32_t index;  // of a deviation, at offset -16
};

constexpr sigma_outcome sigma_outcomes[] = {
    {0x00000000, 255},  // +0
    {0x80000000, 255},  // -0
    {0x00000001, 0},    // 1e-45
    {0x007fffff, 0},    // the largest subnormal
    {0x00800000, 0},    // FLT_MIN
    {0xbf800000, 255},  // -1
    {0xff800000, 255},  // -infinity
    {0x7f800000, 254},  // +infinity
    {0x7f7fffff, 254},  // FLT_MAX
    {0x7fc00000, 255},  // quiet NaN
    {0xffc00000, 255},
    {0x7f800001, 255},  // signalling NaN
    {0x3f800000, 128},  // 1
};

}  // namespace

TEST_CASE("N03 every float deviation and variance has its documented outcome")
{
    for (const sigma_outcome& one : sigma_outcomes) {
        CAPTURE(one.bits);
        CHECK(sigma_index(deviation{bits_to_float(one.bits)}, -16) == one.index);
        CHECK(sigma_index(variance{bits_to_float(one.bits)}, -16) == one.index);
    }
    CHECK(sigma_index(deviation{2.0f}, -16) == 136);
    CHECK(sigma_index(variance{4.0f}, -16) == 136);
    CHECK(sigma_index(deviation{1.0f}, 0) == 0);
    CHECK(sigma_index(deviation{0.5f}, 0) == 0);
    CHECK(sigma_index(deviation{1.0f}, -80) == 254);
}

TEST_CASE("N03 every float mean and deviation leaves every code exact")
{
    const uint32_t means[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7f800000,
                              0xff800000, 0x80000000, 0x00000000, 0x7f7fffff, 0xff7fffff,
                              0x00000001, 0x80000001, 0x00800000, 0x80ffffff};
    for (const scalar_type type : modelled_types) {
        CAPTURE(scalar_name(type));
        block_spec spec = row_spec(type, 512, 8);
        spec.parameter_hash = true;
        for (const uint32_t mean : means) {
            for (const sigma_outcome& sigma : sigma_outcomes) {
                CAPTURE(mean);
                CAPTURE(sigma.bits);
                page one = make_page(1, spec);
                const float deviation_value = bits_to_float(sigma.bits);
                const deviations view{&deviation_value, spec.sigma_offset};
                for (uint32_t i = 0; i < 512; ++i) {
                    one.mean[i] = bits_to_float(mean);
                    one.sigma[i] = view({0, 0, 0, 0});
                    if (i < 256) continue;
                    one.codes[i] = uint16_t(code_bytes(type) == 1 ? i - 256 : i * 257);
                }
                encode_result made;
                const auto block = encode_page(one, &made);
                REQUIRE(made.code == status::ok);
                const decoded_page back = decode_page(one, block);
                CHECK(back.result.code == status::ok);
                CHECK(back.codes == one.codes);
            }
        }
    }
}

TEST_CASE("N03 a NaN is a NaN, whatever its sign and payload")
{
    const block_spec spec = row_spec(scalar_type::bf16, 256, 8);
    page quiet = make_page(2, spec);
    for (float& mean : quiet.mean) mean = bits_to_float(0x7fc00000);
    page other = quiet;
    for (float& mean : other.mean) mean = bits_to_float(0xff812345);
    const auto block = encode_page(quiet);
    CHECK(block == encode_page(other));
    CHECK(decode_page(other, block).codes == quiet.codes);
}

TEST_CASE("N09 the same page gives the same bytes, whatever was in memory before")
{
    for (const scalar_type type : {scalar_type::e4m3fn, scalar_type::bf16}) {
        for (const bool row_scale : {false, true}) {
            block_spec spec;
            spec.dtype = type;
            spec.heads = 2;
            spec.tokens = 13;  // an odd number of nibbles, padded
            spec.dim = 64;
            spec.row_scale = row_scale;
            page mine = make_page(11, spec);
            random_source random{11};
            for (uint32_t i = 0; i < mine.sigma.size(); ++i)  // rows far off their sigma
                if (i / 64 % 13 % 3 == 0) mine.sigma[i] = uint8_t(mine.sigma[i] - 10);
            const page different = make_page(12, spec);
            const std::vector<uint8_t> expected = encode_page(mine);
            REQUIRE(expected.size() > 16);

            const std::vector<uint8_t> bytes = narrow(mine.codes), other = narrow(different.codes);
            std::vector<uint8_t> out(max_encoded_bytes(spec) + random.below(64));
            const auto encode_into = [&](std::vector<uint8_t>& to, const page& from,
                                         const std::vector<uint8_t>& from_bytes) {
                const encode_result made =
                    code_bytes(type) == 1
                        ? encode(spec, dense(spec, from_bytes.data()), from.predictor(), to.data(),
                                 to.size())
                        : encode(spec, dense(spec, from.codes.data()), from.predictor(), to.data(),
                                 to.size());
                REQUIRE(made.code == status::ok);
                REQUIRE(made.row_scaled == (row_scale && &from == &mine));
                return std::vector<uint8_t>(to.begin(), to.begin() + ptrdiff_t(made.bytes));
            };
            for (int round = 0; round < 100; ++round) {
                if (round % 4 == 0) std::memset(out.data(), 0, out.size());
                if (round % 4 == 1) std::memset(out.data(), 0xcc, out.size());
                if (round % 4 == 2) encode_into(out, different, other);
                CHECK(encode_into(out, mine, bytes) == expected);
            }

            std::vector<std::vector<uint8_t>> results(8);
            std::vector<std::thread> threads;
            for (auto& result : results)
                threads.emplace_back([&result, &mine] { result = encode_page(mine); });
            for (std::thread& thread : threads) thread.join();
            for (const auto& result : results) CHECK(result == expected);
        }
    }
}
