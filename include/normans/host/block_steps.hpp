#pragma once
// The loops over a block's steps, once for all lane groups: fetch what the predictor says of a
// step's scalars, let the group step, move codes, sum up checks.

#include "../core/rans_step.hpp"
#include "block.hpp"
#include "row_scale.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

struct block_sums {
    uint32_t content_check;
    uint32_t parameter_hash;
};

// running_sums of all lanes, in the group's registers.
template <class Lanes>
struct lane_sums {
    typename Lanes::values a, b;

    lane_sums() : a(Lanes::zero()), b(Lanes::zero()) {}

    void add(const typename Lanes::values& x, const typename Lanes::mask& active)
    {
        a = Lanes::add(a, Lanes::where(active, x));
        b = Lanes::add(b, Lanes::where(active, a));
    }

    check_sums lanes() const
    {
        check_sums sums;
        uint32_t all_a[Lanes::width], all_b[Lanes::width];
        Lanes::store(all_a, a);
        Lanes::store(all_b, b);
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            sums.lane[i].a = all_a[i];
            sums.lane[i].b = all_b[i];
        }
        return sums;
    }
};

// What the predictor says of one step's scalars.
template <uint32_t Width>
struct step_inputs {
    uint32_t mean[Width] = {};
    uint32_t sigma_index[Width] = {};
    uint32_t a[Width] = {}, b[Width] = {};  // affine map of the means
    uint32_t row_step[Width] = {};
};

template <class Predictor>
constexpr bool has_affine_v = false;
template <class Means, class Sigmas>
constexpr bool has_affine_v<view_predictor<Means, Sigmas, channel_affine>> = true;

// n predictions along a row, the means before their affine map.
template <class Means, class Sigmas, class Affine, uint32_t Width>
void fetch(const view_predictor<Means, Sigmas, Affine>& predictor, const scalar_position& at,
           uint32_t offset, uint32_t n, step_inputs<Width>& in)
{
    run_of(predictor.means, at, n, in.mean + offset);
    run_of(predictor.sigmas, at, n, in.sigma_index + offset);
    if constexpr (std::is_same_v<Affine, channel_affine>) {
        if (predictor.affine.a == nullptr) {
            for (uint32_t i = offset; i < offset + n; ++i) {
                in.a[i] = one_bits;
                in.b[i] = minus_zero_bits;
            }
            return;
        }
        const size_t channel = size_t(at.head) * predictor.affine.dim + at.channel;
        std::memcpy(in.a + offset, predictor.affine.a + channel, n * sizeof(float));
        std::memcpy(in.b + offset, predictor.affine.b + channel, n * sizeof(float));
    }
}

template <class Predictor, uint32_t Width>
void fetch(const Predictor& predictor, scalar_position at, uint32_t offset, uint32_t n,
           step_inputs<Width>& in)
{
    for (uint32_t i = 0; i < n; ++i, ++at.index, ++at.channel) {
        const prediction p = predict_at(predictor, at);
        in.mean[offset + i] = float_to_bits(p.mean);
        in.sigma_index[offset + i] = p.sigma_index;
    }
}

// Distributions of one step's scalars. Shared by both directions, so that they cannot differ.
template <class Lanes, class Model, class Predictor>
typename Lanes::models models_at(const box_walker& walker, uint32_t active, const Model& model,
                                 const Predictor& predictor, const uint8_t* row_steps,
                                 step_inputs<Lanes::width>& in)
{
    constexpr uint32_t width = Lanes::width;
    auto slope = Lanes::broadcast(row_slope(0));
    if (active == width && walker.left() >= width) {  // one row: everything is one vector
        const scalar_position& at = walker.position();
        fetch(predictor, at, 0, width, in);
        const int step = row_step_at(row_steps, at.token);
        slope = Lanes::broadcast(row_slope(step));
        for (uint32_t i = 0; i < width; ++i) in.row_step[i] = uint32_t(step);
    } else {
        uint32_t slopes[width] = {};
        for_runs(walker, active, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
            fetch(predictor, at, offset, n, in);
            const int step = row_step_at(row_steps, at.token);
            for (uint32_t i = offset; i < offset + n; ++i) {
                in.row_step[i] = uint32_t(step);
                slopes[i] = row_slope(step);
            }
        });
        slope = Lanes::load(slopes);
    }
    auto mean = Lanes::load(in.mean);
    if constexpr (has_affine_v<Predictor>)
        mean = Lanes::map_means(mean, Lanes::load(in.a), Lanes::load(in.b));
    else
        mean = Lanes::clean_means(mean);
    return Lanes::prepare(model, mean, Lanes::load(in.sigma_index), slope);
}

// A step's codes, 0 where there is no scalar.
template <class Lanes, class Code>
typename Lanes::values codes_at(const box_walker& walker, uint32_t active,
                                const box_view<Code>& codes)
{
    if (active == Lanes::width && walker.left() >= active)
        return Lanes::load_codes(&element(codes, walker.position()));
    uint32_t lane[Lanes::width] = {};
    for_runs(walker, active, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
        const Code* from = &element(codes, at);
        for (uint32_t i = 0; i < n; ++i) lane[offset + i] = from[i];
    });
    return Lanes::load(lane);
}

template <class Lanes, class Code>
void put_codes(const box_walker& walker, uint32_t active, const box_view<Code>& out,
               const typename Lanes::values& codes)
{
    if (active == Lanes::width && walker.left() >= active)
        return Lanes::store_codes(&element(out, walker.position()), codes);
    uint32_t lane[Lanes::width];
    Lanes::store(lane, codes);
    for_runs(walker, active, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
        Code* to = &element(out, at);
        for (uint32_t i = 0; i < n; ++i) to[i] = Code(lane[offset + i]);
    });
}

template <class Lanes>
void add_parameters(lane_sums<Lanes>& sums, const typename Lanes::models& models,
                    const step_inputs<Lanes::width>& in, const typename Lanes::mask& active)
{
    uint32_t word[Lanes::width];
    Lanes::store(word, Lanes::means(models));
    for (uint32_t i = 0; i < Lanes::width; ++i)
        word[i] = parameter_word(word[i], in.sigma_index[i], int(in.row_step[i]));
    sums.add(Lanes::load(word), active);
}

// Chooses a row step per token and writes the nibbles, if they have a place; true if they save more
// than they cost.
template <class Lanes, class Model, class Predictor, class Code>
bool choose_steps(const block_spec& spec, const Model& model, const Predictor& predictor,
                  const box_view<Code>& codes, uint8_t* nibbles)
{
    constexpr uint32_t width = Lanes::width;
    const normal_shape shape = shape_of(spec.shape);
    int64_t gain = 0;
    step_inputs<width> in;
    for (uint32_t token = 0; token < spec.tokens; ++token) {
        row_statistics row;
        for (uint32_t head = 0; head < spec.heads; ++head) {
            box_walker walker(spec, (head * spec.tokens + token) * spec.dim);
            for (uint32_t done = 0; done < spec.dim;) {
                const uint32_t here = spec.dim - done < width ? spec.dim - done : width;
                const auto models = models_at<Lanes>(walker, here, model, predictor, nullptr, in);
                Lanes::add_row(row, model, models, Lanes::load(in.sigma_index),
                               codes_at<Lanes>(walker, here, codes), Lanes::first_lanes(here));
                walker.skip(here);
                done += here;
            }
        }
        const row_choice choice = choose_row_step(shape, row);
        gain += choice.gain - 4 * 65536;
        if (nibbles == nullptr) continue;
        const uint32_t nibble = uint32_t(choice.step - min_row_step) << (token % 2 * 4);
        nibbles[token / 2] = uint8_t(token % 2 == 0 ? nibble : nibbles[token / 2] | nibble);
    }
    return gain > 0;
}

template <class Lanes, class Model, class Guess, class Predictor, class Code>
status decode_steps(const block_spec& spec, const Model& model, const Guess& guess,
                    const Predictor& predictor, const uint8_t* row_steps, const uint8_t* states,
                    word_reader words, const box_view<Code>& out, block_sums& sums)
{
    constexpr uint32_t width = Lanes::width;
    const uint32_t count = uint32_t(count_of(spec));
    uint32_t lane[width];
    for (uint32_t i = 0; i < width; ++i) lane[i] = load_u32(states + 4 * i);
    typename Lanes::state state = Lanes::load(lane);
    lane_sums<Lanes> content, parameters;
    typename Lanes::mask corrupt = Lanes::first_lanes(0), active = Lanes::first_lanes(width);
    step_inputs<width> in;
    box_walker walker(spec, 0);
    for (uint32_t first = 0; first < count; first += width) {
        const uint32_t here = count - first < width ? count - first : width;
        if (here != width) active = Lanes::first_lanes(here);
        const auto models = models_at<Lanes>(walker, here, model, predictor, row_steps, in);
        const auto codes = decode_step<Lanes>(state, model, guess, models, active, words, corrupt);
        content.add(codes, active);
        if (spec.parameter_hash) add_parameters<Lanes>(parameters, models, in, active);
        put_codes<Lanes>(walker, here, out, codes);
        walker.forward(here);
    }
    sums = {content.lanes().total(width), parameters.lanes().total(width)};
    bool damaged = Lanes::any(corrupt) || words.overrun || words.next != words.end;
    Lanes::store(lane, state);
    for (uint32_t i = 0; i < width; ++i) damaged |= lane[i] != rans_format::lower_bound;
    return damaged ? status::corrupt_stream : status::ok;
}

// Returns how many scalars escaped. Stops early when the words run out of room.
template <class Lanes, class Model, class Predictor, class Code>
uint32_t encode_steps(const block_spec& spec, const Model& model, const Predictor& predictor,
                      const uint8_t* row_steps, uint8_t* states, word_writer& words,
                      const box_view<Code>& codes, block_sums& sums)
{
    constexpr uint32_t width = Lanes::width;
    const uint32_t count = uint32_t(count_of(spec));
    uint32_t lane[width];
    for (uint32_t i = 0; i < width; ++i) lane[i] = rans_format::lower_bound;
    typename Lanes::state state = Lanes::load(lane);
    lane_sums<Lanes> content, parameters;
    step_inputs<width> in;
    uint32_t escapes = 0, here = count % width != 0 ? count % width : width;
    typename Lanes::mask active = Lanes::first_lanes(here);
    box_walker walker(spec, count - here);
    for (;;) {
        const auto models = models_at<Lanes>(walker, here, model, predictor, row_steps, in);
        const auto now = codes_at<Lanes>(walker, here, codes);
        content.add(now, active);
        if (spec.parameter_hash) add_parameters<Lanes>(parameters, models, in, active);
        escapes += Lanes::count(encode_step<Lanes>(state, model, models, now, active, words));
        if (walker.position().index == 0 || words.overrun) break;
        walker.back(width);
        here = width;
        active = Lanes::first_lanes(width);
    }
    Lanes::store(lane, state);
    for (uint32_t i = 0; i < width; ++i) store_u32(states + 4 * i, lane[i]);
    check_sums forward_content = content.lanes(), forward_parameters = parameters.lanes();
    forward_content.reverse(width, count);
    forward_parameters.reverse(width, count);
    sums = {forward_content.total(width), forward_parameters.total(width)};
    return escapes;
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
