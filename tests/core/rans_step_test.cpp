// core/rans_step.hpp: states and words against the plain 64-bit rANS of tests/support, which has
// its own interleaving rule; every type, lane count, with and without a marginal, with steps in
// which only some lanes escape.

#include <doctest/doctest.h>

#include <vector>

#include <normans/core/rans_step.hpp>
#include <normans/host/guess.hpp>

#include "support/block_data.hpp"

using namespace normans;
using namespace normans_test;

namespace {

// A guess of no value: locate must find its way from anywhere.
struct first_boundary {
    template <class Model>
    int operator()(const Model&, const scalar_model& m, uint32_t slot) const
    {
        return slot % 2 ? -1 - m.last_group : m.last_group + 1;
    }
};

struct coded {
    std::vector<uint8_t> bytes;
    std::vector<uint32_t> states;
};

struct tally {
    uint64_t escapes = 0, mixed_steps = 0, raw_groups = 0, scalars = 0;
};

template <class Lanes, class Model>
typename Lanes::models models_at(const std::vector<scalar_model>& all, size_t first)
{
    typename Lanes::models models{};
    for (uint32_t i = 0; i < Lanes::width && first + i < all.size(); ++i)
        models[i] = all[first + i];
    return models;
}

template <class Lanes, class Model>
coded encode_all(const Model& model, const std::vector<scalar_model>& models,
                 const std::vector<uint16_t>& codes, tally& seen)
{
    // Three words a scalar at most.
    std::vector<uint8_t> room(6 * codes.size() + 64);
    word_writer words{room.data(), room.data() + room.size()};
    typename Lanes::state state;
    for (uint32_t i = 0; i < Lanes::width; ++i) state[i] = rans_format::lower_bound;
    for (size_t step = (codes.size() + Lanes::width - 1) / Lanes::width; step-- > 0;) {
        const size_t first = step * Lanes::width;
        typename Lanes::values now{};
        uint32_t active = 0, escapes = 0;
        for (uint32_t i = 0; i < Lanes::width && first + i < codes.size(); ++i) {
            now[i] = codes[first + i];
            active |= 1u << i;
            escapes |= uint32_t(model.find(models[first + i], codes[first + i]).escaped) << i;
        }
        const uint32_t escaped = encode_step<Lanes>(
            state, model, models_at<Lanes, Model>(models, first), now, active, words);
        CHECK(escaped == escapes);
        seen.mixed_steps += escaped != 0 && escaped != active;
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            const bool normal = state[i] >= rans_format::lower_bound && state[i] >> 31 == 0;
            CHECK(normal);
        }
    }
    CHECK_FALSE(words.overrun);
    coded out;
    out.bytes.assign(words.next, room.data() + room.size());
    for (uint32_t i = 0; i < Lanes::width; ++i) out.states.push_back(state[i]);
    return out;
}

template <class Lanes, class Model, class Guess>
std::vector<uint16_t> decode_all(const Model& model, const Guess& guess,
                                 const std::vector<scalar_model>& models, const coded& from,
                                 bool& clean)
{
    word_reader words{from.bytes.data(), from.bytes.data() + from.bytes.size()};
    typename Lanes::state state;
    for (uint32_t i = 0; i < Lanes::width; ++i) state[i] = from.states[i];
    typename Lanes::mask corrupt = 0;
    std::vector<uint16_t> codes;
    for (size_t first = 0; first < models.size(); first += Lanes::width) {
        const size_t left = models.size() - first;
        const uint32_t active = left < Lanes::width ? uint32_t(left) : Lanes::width;
        const auto now =
            decode_step<Lanes>(state, model, guess, models_at<Lanes, Model>(models, first),
                               Lanes::first_lanes(active), words, corrupt);
        for (uint32_t i = 0; i < active; ++i) codes.push_back(uint16_t(now[i]));
        for (uint32_t i = active; i < Lanes::width; ++i) CHECK(now[i] == 0);
    }
    clean = corrupt == 0 && !words.overrun && words.next == words.end;
    for (uint32_t i = 0; i < Lanes::width; ++i) clean &= state[i] == rans_format::lower_bound;
    return codes;
}

template <class Lanes, scalar_type Type>
void check_stream(const normal_model<Type>& model, data_style style, size_t count, uint64_t seed,
                  tally& seen)
{
    const test_scalars data = draw_scalars(seed, Type, style, model.sigma_offset, count);
    std::vector<scalar_model> models;
    std::vector<rans_scalar> events;
    test_rng rng(seed + 1);
    for (size_t i = 0; i < count; ++i) {
        const uint32_t mean = map_mean(data.mean[i], one_bits, minus_zero_bits);
        const int row_step = rng.below(2) ? 0 : rng.between(min_row_step, max_row_step);
        models.push_back(model.prepare(mean, data.sigma[i], row_step));
        events.push_back(events_of(model, models.back(), data.code[i]));
        const interval found = model.find(models.back(), data.code[i]);
        seen.escapes += found.escaped;
        seen.raw_groups += !found.escaped && found.raw_bits != 0;
    }
    seen.scalars += count;

    const coded ours = encode_all<Lanes>(model, models, data.code, seen);
    const rans_stream reference = reference_encode(events, Lanes::width);
    REQUIRE(reference_decodes(reference, events));
    std::vector<uint8_t> expected;
    for (const uint16_t word : reference.words) {
        expected.push_back(uint8_t(word & 255));
        expected.push_back(uint8_t(word >> 8));
    }
    CHECK(ours.bytes == expected);
    for (uint32_t i = 0; i < Lanes::width; ++i) CHECK(ours.states[i] == reference.states[i]);

    bool clean = false;
    CHECK(decode_all<Lanes>(model, piecewise_guess(model.shape), models, ours, clean) == data.code);
    CHECK(clean);
    if constexpr (Lanes::width == 8) {
        CHECK(decode_all<Lanes>(model, first_boundary{}, models, ours, clean) == data.code);
        CHECK(clean);
    }

    // Cut short, it stays inside its bytes and says so.
    if (ours.bytes.size() >= 2) {
        coded cut = ours;
        cut.bytes.resize(cut.bytes.size() - 2 * (1 + rng.below(uint32_t(cut.bytes.size() / 2))));
        cut.bytes.shrink_to_fit();
        decode_all<Lanes>(model, piecewise_guess(model.shape), models, cut, clean);
        CHECK_FALSE(clean);
    }
}

template <scalar_type Type>
void check_type(uint64_t seed)
{
    CAPTURE(doctest::String(scalar_name(Type)));
    const std::vector<uint16_t> freq = random_marginal(seed);
    marginal_table table;
    REQUIRE(make_marginal(freq.data(), table) == status::ok);
    const normal_model<Type> models[] = {
        {shape_of(shape_id::gaussian), -16, nullptr},
        {shape_of(shape_id::mixture), -20, nullptr},
        {shape_of(shape_id::mixture_marginal), -16, &table},
    };
    tally seen;
    for (const auto& model : models)
        for (const data_style style :
             {data_style::typical, data_style::sharp, data_style::tails, data_style::dead,
              data_style::adversarial, data_style::mixed})
            for (const size_t count : {size_t(1), size_t(7), size_t(33), size_t(500)}) {
                ++seed;
                check_stream<array_lanes<8>>(model, style, count, seed, seen);
                // A type's rules do not depend on the lane count: one type of each width takes all.
                if constexpr (Type == scalar_type::e4m3fn || Type == scalar_type::bf16) {
                    check_stream<array_lanes<1>>(model, style, count, seed, seen);
                    check_stream<array_lanes<16>>(model, style, count, seed, seen);
                    check_stream<array_lanes<32>>(model, style, count, seed, seen);
                }
            }
    // The data must reach what it is there for.
    CHECK(seen.escapes * 50 > seen.scalars);
    CHECK(seen.mixed_steps > 100);
    if (format_of(Type).code_bits == 16) CHECK(seen.raw_groups * 10 > seen.scalars);
}

}  // namespace

TEST_CASE("the step gives the bytes of plain rANS: 8-bit types")
{
    check_type<scalar_type::e4m3fn>(1000);
    check_type<scalar_type::e5m2>(2000);
    check_type<scalar_type::e4m3fnuz>(3000);
    check_type<scalar_type::e5m2fnuz>(4000);
}

TEST_CASE("the step gives the bytes of plain rANS: 16-bit types")
{
    check_type<scalar_type::bf16>(5000);
    check_type<scalar_type::fp16>(6000);
}

TEST_CASE("a step without scalars changes nothing")
{
    using lanes = array_lanes<8>;
    const normal_model<scalar_type::bf16> model{shape_of(shape_id::gaussian), -16, nullptr};
    std::vector<uint8_t> bytes(64);
    lanes::state state;
    for (uint32_t i = 0; i < 8; ++i) state[i] = rans_format::lower_bound + 1234567 * i;
    const lanes::state before = state;
    word_writer writer{bytes.data(), bytes.data() + 64};
    CHECK(encode_step<lanes>(state, model, lanes::models{}, lanes::values{}, 0, writer) == 0);
    CHECK(writer.next == bytes.data() + 64);
    word_reader reader{bytes.data(), bytes.data() + 64};
    uint32_t corrupt = 0;
    decode_step<lanes>(state, model, first_boundary{}, lanes::models{}, 0, reader, corrupt);
    CHECK(reader.next == bytes.data());
    CHECK(corrupt == 0);
    for (uint32_t i = 0; i < 8; ++i) CHECK(state[i] == before[i]);
}

TEST_CASE("a slot that no code owns is corrupt, in its lane alone")
{
    using lanes = array_lanes<8>;
    const normal_model<scalar_type::e4m3fn> model{shape_of(shape_id::gaussian), -16, nullptr};
    lanes::models models{};
    lanes::state state;
    for (uint32_t i = 0; i < 8; ++i) {
        models[i] = model.prepare(one_bits, 128, 0);
        state[i] = 0x10000 + (i == 5 ? rans_format::total - 1 : 10000);
    }
    const std::vector<uint8_t> bytes(64);
    word_reader reader{bytes.data(), bytes.data() + 64};
    uint32_t corrupt = 0;
    decode_step<lanes>(state, model, first_boundary{}, models, 0xff, reader, corrupt);
    CHECK(corrupt == 1u << 5);
}
