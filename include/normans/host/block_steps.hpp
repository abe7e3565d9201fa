#pragma once
// The loops over the steps of a bundle of blocks, once for all lane groups: ask the predictors, let
// the group step, move codes, sum up checks.

#include "../block/row_scale.hpp"
#include "../core/rans_step.hpp"
#include "block_job.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// Codes of a bundle's blocks: straight from memory where each block's lanes lie in one row.
template <class Lanes, class Job>
class bundle_codes {
    using code = typename Job::code_type;
    using bare = std::remove_const_t<code>;

public:
    bundle_codes(const Job* jobs, uint32_t present, uint32_t lanes)
        : jobs_(jobs), present_(present), lanes_(lanes), places_(lanes, [&](uint32_t block) {
              return jobs[block < present ? block : 0].codes.data;
          })
    {
    }

    /// Where steps of `here` lanes a block begin.
    struct place {
        const box_walker& walker;
        uint32_t here;
        bool one_row;      // each block's lanes lie in one row (else there is one step) ...
        ptrdiff_t offset;  // ... this far from the block's first scalar
    };

    NORMANS_INLINE place at(const box_walker& walker, uint32_t here) const
    {
        const box_view<code>& first = jobs_[0].codes;
        return {walker, here, here == lanes_ && walker.left() >= lanes_,
                offset_of(walker.position(), first.head_stride, first.token_stride)};
    }

    NORMANS_INLINE typename Lanes::values load(const place& from, uint32_t step) const
    {
        if (from.one_row) return Lanes::load_codes(places_, from.offset + step * lanes_);
        return collect(from.walker, from.here);
    }

    NORMANS_INLINE void store(const place& to, uint32_t step,
                              const typename Lanes::values& codes) const
    {
        if (to.one_row)
            Lanes::store_codes(places_, to.offset + step * lanes_, codes, present_ * lanes_);
        else
            scatter(to.walker, to.here, codes);
    }

private:
    NORMANS_NOINLINE typename Lanes::values collect(const box_walker& walker, uint32_t here) const
    {
        uint32_t lane[Lanes::width] = {};
        for_runs(walker, here, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
            for (uint32_t block = 0; block < present_; ++block) {
                const code* from = &element(jobs_[block].codes, at);
                for (uint32_t i = 0; i < n; ++i) lane[block * lanes_ + offset + i] = from[i];
            }
        });
        return Lanes::load(lane);
    }

    NORMANS_NOINLINE void scatter(const box_walker& walker, uint32_t here,
                                  const typename Lanes::values& codes) const
    {
        uint32_t lane[Lanes::width];
        Lanes::store(lane, codes);
        for_runs(walker, here, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
            for (uint32_t block = 0; block < present_; ++block) {
                code* to = &element(jobs_[block].codes, at);
                for (uint32_t i = 0; i < n; ++i) to[i] = bare(lane[block * lanes_ + offset + i]);
            }
        });
    }

    const Job* jobs_;
    uint32_t present_, lanes_;
    typename Lanes::template places<code> places_;
};

// The parameter hash is rarely asked for: lane by lane, from the predictors themselves.
template <class Lanes, class Job>
struct parameter_sums {
    running_sums lane[Lanes::width];

    template <class Inputs>
    NORMANS_NOINLINE void add(const Inputs& inputs, box_walker walker, uint32_t here,
                              const Job* jobs, uint32_t present, uint32_t lanes)
    {
        for (uint32_t i = 0; i < here; ++i, walker.next()) {
            for (uint32_t block = 0; block < present; ++block) {
                const prediction one = inputs.predicted(jobs[block], walker.position());
                const int step = row_step_at(jobs[block].row_steps, walker.position().token);
                lane[block * lanes + i].add(
                    parameter_word(clean_mean(one), one.sigma_index, step));
            }
        }
    }
};

// The sums of one block's lanes as its check; `backward`: taken last to first.
inline uint32_t check_of(const running_sums* lane, uint32_t lanes, uint32_t count, bool backward)
{
    check_sums sums;
    for (uint32_t i = 0; i < lanes; ++i) sums.lane[i] = lane[i];
    if (backward) sums.reverse(lanes, count);
    return sums.total(lanes);
}

template <class Lanes, class Job, class Sums>
void finish_sums(Job* jobs, uint32_t present, uint32_t lanes, Sums& content,
                 const parameter_sums<Lanes, Job>& parameters, uint32_t count, bool backward)
{
    uint32_t a[Lanes::width], b[Lanes::width];
    content.store(a, b);
    running_sums lane[Lanes::width];
    for (uint32_t i = 0; i < Lanes::width; ++i) {
        lane[i].a = a[i];
        lane[i].b = b[i];
    }
    for (uint32_t i = 0; i < present; ++i) {
        const uint32_t first = i * lanes;
        jobs[i].sums.content_check = check_of(lane + first, lanes, count, backward);
        jobs[i].sums.parameter_hash =
            check_of(parameters.lane + first, lanes, count, backward);
    }
}

template <class Lanes, class Job>
NORMANS_NOINLINE void count_escapes(typename Lanes::mask escaped, Job* jobs, uint32_t present,
                                    uint32_t lanes)
{
    for (uint32_t i = 0; i < present; ++i)
        for (uint32_t set = Lanes::lanes_of(escaped, i, lanes); set != 0; set &= set - 1)
            ++jobs[i].escapes;
}

// Decodes `present` blocks of one geometry and L lanes each. Lanes beyond them repeat the first
// block, so that all are alike. Apart from its caller, which sets the floating-point mode: no
// operation may move out.
template <class Lanes, class Model, class Guess, class Inputs, class Job>
NORMANS_NOINLINE void decode_bundle(const block_spec& spec, const Model& model, const Guess& guess,
                                    Inputs& inputs, Job* jobs, uint32_t present, uint32_t L)
{
    using code = typename Job::code_type;
    const uint32_t count = uint32_t(count_of(spec));
    uint32_t lane[Lanes::width];
    word_reader readers[Lanes::blocks];
    for (uint32_t i = 0; i < Lanes::width; ++i)
        lane[i] = load_u32(jobs[i / L < present ? i / L : 0].states_in + 4 * (i % L));
    for (uint32_t i = 0; i < Lanes::blocks; ++i) readers[i] = jobs[i < present ? i : 0].reader;
    typename Lanes::state state;
    Lanes::load_state(state, lane);
    typename Lanes::template sums<code> content;
    parameter_sums<Lanes, Job> parameters;
    auto corrupt = Lanes::no_lanes();
    const bundle_codes<Lanes, Job> out(jobs, present, L);
    typename Lanes::template cursors<word_reader> words(readers, L, present);
    for (box_walker walker(spec, 0); walker.position().index != count;) {
        const uint32_t first = walker.position().index;
        const uint32_t here = count - first < L ? count - first : L;
        const auto active = Lanes::active_lanes(L, here);
        const uint32_t steps = inputs.prepare(walker, here);
        const auto place = out.at(walker, here);
        for (uint32_t i = 0; i < steps; ++i) {
            const auto codes = decode_step<Lanes>(state, model, guess, inputs.step(i), active,
                                                  words, corrupt);
            content.add(codes, active);
            if (spec.parameter_hash)
                parameters.add(inputs, {spec, first + i * L}, here, jobs, present, L);
            out.store(place, i, codes);
        }
        walker.forward(here == L ? steps * L : here);
    }
    Lanes::store_state(lane, state);
    for (uint32_t i = 0; i < present; ++i) {
        bool damaged = Lanes::lanes_of(corrupt, i, L) != 0 || readers[i].overrun ||
                       readers[i].next != readers[i].end;
        for (uint32_t k = 0; k < L; ++k) damaged |= lane[i * L + k] != rans_format::lower_bound;
        jobs[i].damaged = damaged;
    }
    finish_sums<Lanes>(jobs, present, L, content, parameters, count, false);
}

// Encodes `present` blocks of one geometry and L lanes each. Stops early when the words of all ran
// out of room.
template <class Lanes, class Model, class Inputs, class Job>
NORMANS_NOINLINE void encode_bundle(const block_spec& spec, const Model& model, Inputs& inputs,
                                    Job* jobs, uint32_t present, uint32_t L)
{
    using code = typename Job::code_type;
    const uint32_t count = uint32_t(count_of(spec));
    uint8_t idle[Lanes::idle_bytes];  // where lanes beyond the blocks write
    uint32_t lane[Lanes::width];
    word_writer writers[Lanes::blocks];
    for (uint32_t i = 0; i < Lanes::width; ++i) lane[i] = rans_format::lower_bound;
    for (uint32_t i = 0; i < Lanes::blocks; ++i)
        writers[i] = i < present ? jobs[i].writer
                                 : word_writer{idle, idle + Lanes::idle_bytes};
    typename Lanes::encoder_state state;
    Lanes::load_state(state, lane);
    typename Lanes::template sums<code> content;
    parameter_sums<Lanes, Job> parameters;
    const bundle_codes<Lanes, Job> codes(jobs, present, L);
    typename Lanes::template cursors<word_writer> words(writers, L, present);
    uint32_t here = count % L != 0 ? count % L : L;
    bool overrun = false;
    for (box_walker walker(spec, count); walker.position().index != 0 && !overrun; here = L) {
        walker.back(here);
        const auto active = Lanes::active_lanes(L, here);
        const uint32_t steps = inputs.prepare(walker, here);
        walker.back((steps - 1) * L);
        const auto place = codes.at(walker, here);
        for (uint32_t i = steps; i-- > 0;) {
            const auto now = codes.load(place, i);
            content.add(now, active);
            if (spec.parameter_hash)
                parameters.add(inputs, {spec, walker.position().index + i * L}, here, jobs,
                               present, L);
            const auto escaped = encode_step<Lanes>(state, model, inputs.step(i), now, active,
                                                    words);
            if (Lanes::any(escaped)) count_escapes<Lanes>(escaped, jobs, present, L);
        }
        overrun = true;
        for (uint32_t i = 0; i < present; ++i) overrun &= writers[i].overrun;
    }
    Lanes::store_state(lane, state);
    for (uint32_t i = 0; i < present; ++i) {
        jobs[i].writer = writers[i];
        for (uint32_t k = 0; k < L; ++k) store_u32(jobs[i].states_out + 4 * k, lane[i * L + k]);
    }
    finish_sums<Lanes>(jobs, present, L, content, parameters, count, true);
}

// Chooses a row step per token of every block and writes the nibbles where they have a place;
// `pays`: whether they save more than they cost, per block.
template <class Lanes, class Model, class Inputs, class Job>
NORMANS_NOINLINE void choose_steps(const block_spec& spec, const Model& model, Inputs& inputs,
                                   const Job* jobs, uint32_t present, uint32_t L,
                                   uint8_t* const* nibbles, bool* pays)
{
    const normal_shape shape = shape_of(spec.shape);
    const bundle_codes<Lanes, Job> codes(jobs, present, L);
    int64_t gain[Lanes::blocks] = {};
    inputs.measure(true);
    for (uint32_t token = 0; token < spec.tokens; ++token) {
        typename Lanes::row_sums rows(L);
        for (uint32_t head = 0; head < spec.heads; ++head) {
            box_walker walker(spec, (head * spec.tokens + token) * spec.dim);
            for (uint32_t done = 0; done < spec.dim;) {
                const uint32_t here = spec.dim - done < L ? spec.dim - done : L;
                const auto active = Lanes::active_lanes(L, here);
                const uint32_t steps = inputs.prepare(walker, here);
                const auto place = codes.at(walker, here);
                for (uint32_t i = 0; i < steps; ++i)
                    Lanes::add_row(rows, model, inputs.step(i), codes.load(place, i), active);
                const uint32_t all = here == L ? steps * L : here;
                walker.skip(all);
                done += all;
            }
        }
        for (uint32_t i = 0; i < present; ++i) {
            const row_choice choice = choose_row_step(shape, rows.of(i));
            gain[i] += choice.gain - 4 * 65536;
            if (nibbles[i] == nullptr) continue;
            const uint32_t nibble = uint32_t(choice.step - min_row_step) << (token % 2 * 4);
            uint8_t& to = nibbles[i][token / 2];
            to = uint8_t(token % 2 == 0 ? nibble : to | nibble);
        }
    }
    inputs.measure(false);
    for (uint32_t i = 0; i < present; ++i) pays[i] = gain[i] > 0;
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
