#pragma once
// The loops over the steps of a bundle of blocks, once for all lane groups: ask the predictors, let
// the group step, move codes, sum up checks.

#include "../core/rans_step.hpp"
#include "block_job.hpp"
#include "row_steps.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// Eight codes of half a byte each as bytes, the first lowest, and back.
inline uint64_t spread_nibbles(uint32_t codes)
{
    uint64_t x = codes;
    x = (x | x << 16) & 0x0000ffff0000ffffu;
    x = (x | x << 8) & 0x00ff00ff00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}
inline uint32_t join_nibbles(uint64_t x)
{
    x = (x | x >> 4) & 0x00ff00ff00ff00ffu;
    x = (x | x >> 8) & 0x0000ffff0000ffffu;
    return uint32_t(x | x >> 16);
}

// 4-bit codes on their way between memory and a group that knows bytes.
template <class Lanes, class Code>
class nibble_room {
public:
    nibble_room() : places_(8, [&](uint32_t run) { return byte_ + 8 * run; }) {}

    /// Runs of eight lanes, `offset` bytes from from[run] on.
    NORMANS_INLINE typename Lanes::values load(const uint8_t* const* from, ptrdiff_t offset)
    {
        for (uint32_t run = 0; run < Lanes::width / 8; ++run) {
            const uint64_t codes = spread_nibbles(load_u32(from[run] + offset));
            store_u64(byte_ + 8 * run, codes);
        }
        return Lanes::load_codes(places_, 0);
    }
    NORMANS_INLINE void store(uint8_t* const* to, ptrdiff_t offset, uint32_t runs,
                              const typename Lanes::values& codes)
    {
        Lanes::store_codes(places_, 0, codes, Lanes::width);
        for (uint32_t run = 0; run < runs; ++run)
            store_u32(to[run] + offset, join_nibbles(load_u64(byte_ + 8 * run)));
    }

private:
    uint8_t byte_[Lanes::width];
    typename Lanes::template places<Code> places_;
};

// Codes of a bundle's blocks: straight from memory where each block's lanes lie in one row.
// Integers: they may be 4-bit codes.
template <class Lanes, class Job, bool Integers>
class bundle_codes {
    using code = typename Job::code_type;
    using bare = std::remove_const_t<code>;

public:
    bundle_codes(const block_spec& spec, const Job* jobs, uint32_t present, uint32_t lanes)
        : jobs_(jobs), present_(present), lanes_(lanes),
          nibbles_(Integers && format_of(spec.dtype).code_bits == 4),
          places_(lanes, [&](uint32_t block) {
              return jobs[block < present ? block : 0].codes.data;
          })
    {
        for (uint32_t run = 0; Integers && run < Lanes::width / 8; ++run) {
            const uint32_t block = 8 * run / lanes;
            nibble_run_[run] = jobs[block < present ? block : 0].codes.data + 8 * run % lanes / 2;
        }
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
        const ptrdiff_t offset = offset_of(walker.position(), first.head_stride,
                                           first.token_stride);
        const bool whole_bytes = !nibbles_ || offset % 2 == 0;
        return {walker, here, here == lanes_ && walker.left() >= lanes_ && whole_bytes, offset};
    }

    NORMANS_INLINE typename Lanes::values load(const place& from, uint32_t step)
    {
        if constexpr (Integers)
            if (from.one_row && nibbles_)
                return room_.load(nibble_run_, (from.offset + step * lanes_) / 2);
        if (from.one_row) return Lanes::load_codes(places_, from.offset + step * lanes_);
        return collect(from.walker, step * lanes_, from.here);
    }

    NORMANS_INLINE void store(const place& to, uint32_t step, const typename Lanes::values& codes)
    {
        if constexpr (Integers)
            if (to.one_row && nibbles_)
                return room_.store(nibble_run_, (to.offset + step * lanes_) / 2,
                                   present_ * lanes_ / 8, codes);
        if (to.one_row)
            Lanes::store_codes(places_, to.offset + step * lanes_, codes, present_ * lanes_);
        else
            scatter(to.walker, step * lanes_, to.here, codes);
    }

private:
    NORMANS_NOINLINE typename Lanes::values collect(box_walker walker, uint32_t ahead,
                                                    uint32_t here) const
    {
        uint32_t lane[Lanes::width] = {};
        walker.forward(ahead);
        for_runs(walker, here, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
            for (uint32_t block = 0; block < present_; ++block) {
                uint32_t* const to = lane + block * lanes_ + offset;
                if constexpr (Integers) {
                    scalar_position one = at;
                    for (uint32_t i = 0; i < n; ++i, ++one.channel) to[i] = packed(block).load(one);
                } else {
                    const code* from = &element(jobs_[block].codes, at);
                    for (uint32_t i = 0; i < n; ++i) to[i] = from[i];
                }
            }
        });
        return Lanes::load(lane);
    }

    NORMANS_NOINLINE void scatter(box_walker walker, uint32_t ahead, uint32_t here,
                                  const typename Lanes::values& codes) const
    {
        uint32_t lane[Lanes::width];
        Lanes::store(lane, codes);
        walker.forward(ahead);
        for_runs(walker, here, [&](uint32_t offset, const scalar_position& at, uint32_t length) {
            // Never more; a compiler that unrolls this warns where it does not see that.
            const uint32_t n = length < Lanes::width ? length : Lanes::width;
            for (uint32_t block = 0; block < present_; ++block) {
                const uint32_t* const from = lane + block * lanes_ + offset;
                if constexpr (Integers) {
                    scalar_position one = at;
                    for (uint32_t i = 0; i < n; ++i, ++one.channel)
                        packed(block).store(one, from[i]);
                } else {
                    code* to = &element(jobs_[block].codes, at);
                    for (uint32_t i = 0; i < n; ++i) to[i] = bare(from[i]);
                }
            }
        });
    }

    packed_codes<code> packed(uint32_t block) const { return {jobs_[block].codes, nibbles_}; }

    struct no_room {};

    const Job* jobs_;
    uint32_t present_, lanes_;
    bool nibbles_;
    typename Lanes::template places<code> places_;
    std::conditional_t<Integers, nibble_room<Lanes, code>, no_room> room_;
    code* nibble_run_[Integers ? Lanes::width / 8 : 1] = {};  // where runs of 4-bit codes begin
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
                const int step = jobs[block].row_steps(walker.position().token);
                lane[block * lanes + i].add(
                    parameter_word(clean_mean(one), one.sigma_index, step) ^
                    jobs[block].scale_bits(walker.position()));
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
    bundle_codes<Lanes, Job, Model::format.is_integer> out(spec, jobs, present, L);
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
    bundle_codes<Lanes, Job, Model::format.is_integer> codes(spec, jobs, present, L);
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

// Gives every block's writer the sums over its tokens.
template <class Lanes, class Model, class Inputs, class Job>
NORMANS_NOINLINE void choose_steps(const block_spec& spec, const Model& model, Inputs& inputs,
                                   const Job* jobs, uint32_t present, uint32_t L,
                                   row_step_writer* writers)
{
    const normal_shape shape = shape_of(spec.shape);
    bundle_codes<Lanes, Job, Model::format.is_integer> codes(spec, jobs, present, L);
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
        for (uint32_t i = 0; i < present; ++i) writers[i].add(shape, token, rows.of(i));
    }
    inputs.measure(false);
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
