#pragma once
// Encoding block by block up to the point where steps run, bundles of blocks through the steps, and
// block by block to the end: which mode a block gets, and its bytes.

#include "block_bundle.hpp"
#include "order0_encoder.hpp"
#include "scaled_block.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// True if every code is the one nearest to its mean; then `hash` is over the predictions.
template <class Job>
bool all_predicted(const block_spec& spec, const Job& job, uint32_t lanes, uint32_t& hash)
{
    const scalar_format format = format_of(spec.dtype);
    const uint32_t count = uint32_t(count_of(spec));
    check_sums sums;
    box_walker walker(spec, 0);
    for (uint32_t i = 0; i < count; ++i, walker.next()) {
        const prediction p = job.predictor(walker.position());
        const uint32_t mean = clean_mean(p);
        if (element(job.codes, walker.position()) != nearest_code(format, mean)) return false;
        sums.lane[i % lanes].add(parameter_word(mean, p.sigma_index, 0));
    }
    hash = sums.total(lanes);
    return true;
}

// One block on its way from codes to bytes.
template <class Job>
struct block_encoder {
    using job_type = Job;
    using code = std::remove_const_t<typename Job::code_type>;

    const block_spec* spec;
    Job job;
    uint8_t* out;
    size_t capacity;
    encode_result* result;
    block_header header;
    uint64_t room;         // for the coded form
    bool fits = false;     // header, row steps and states do
    bool checked = false;  // the steps have summed up the codes

    template <bool ScaledByPlanes, class Call>
    block_stage begin(const Call& call)
    {
        spec = &call.spec;
        out = call.out;
        capacity = call.capacity;
        result = &call.result;
        *result = encode_result{};
        if (check_spec(*spec) != status::ok || code_bytes(spec->dtype) != sizeof(code) ||
            (spec->coder == coder_id::tans && spec->bank->next == nullptr))
            return block_stage::ended;
        const uint32_t count = uint32_t(count_of(*spec));
        if (out == nullptr || (count != 0 && call.codes.data == nullptr)) {
            result->bytes = max_encoded_bytes(*spec);
            return block_stage::ended;
        }
        job.predictor = source_of(call.predictor, *spec);
        job.codes = call.codes;
        if constexpr (sizeof(code) == 1) {
            if (has_scale(spec->dtype) || spec->coder == coder_id::tans)
                return begin_scaled<ScaledByPlanes>();
        }
        return choose_mode(count) ? block_stage::steps : block_stage::plain;
    }

    // The steps of `size` blocks at once; `jobs` are theirs.
    template <class Lanes, class Context, class Inputs>
    static void run(block_encoder* blocks, uint32_t size, const Context& context, Inputs& inputs,
                    Job* jobs)
    {
        const block_spec& spec = *blocks[0].spec;
        const uint32_t lanes = blocks[0].header.lanes;
        row_step_writer writers[Lanes::blocks];
        uint8_t no_states[4 * max_lanes];  // of blocks that have no room
        if (spec.row_scale) {
            for (uint32_t i = 0; i < size; ++i)
                writers[i] = {blocks[i].header, spec.tokens, blocks[i].out, blocks[i].room};
            for (bool again = true; again;) {
                choose_steps<Lanes>(spec, context.model, inputs, jobs, size, lanes, writers);
                again = false;
                for (row_step_writer& one : writers) again |= one.again(shape_of(spec.shape));
            }
        }
        bool room = false;
        for (uint32_t i = 0; i < size; ++i) {
            blocks[i].begin_steps(jobs[i], no_states);
            room |= blocks[i].fits;
        }
        if constexpr (takes_tans)
            if (spec.coder == coder_id::tans) {
                for (uint32_t i = 0; i < size; ++i) blocks[i].encode_tans(jobs[i]);
                return;
            }
        if (room) encode_bundle<Lanes>(spec, context.model, inputs, jobs, size, lanes);
    }

    // Without room the block runs along without writing a word.
    void begin_steps(Job& running, uint8_t* no_states)
    {
        const block_layout at = layout_of(header, spec->tokens);
        fits = at.words <= room;
        running.row_steps = fits ? row_steps_of(out, header, at) : row_steps_view{};
        running.states_out = fits ? out + at.states : no_states;
        running.writer = {out, out};
        if (fits) running.writer = {out + at.words, end_of_room(at)};
    }

    void end_steps(backend_id backend, uint32_t repairs)
    {
        const block_layout at = layout_of(header, spec->tokens);
        if (!fits || job.writer.overrun) return set_raw();
        header.payload_words = uint32_t((end_of_room(at) - job.writer.next) / 2);
        if (layout_of(header, spec->tokens).end > room) return set_raw();
        std::memmove(out + at.words, job.writer.next, 2 * size_t(header.payload_words));
        result->escapes = job.escapes;
        result->repairs = repairs;
        result->backend =
            spec->coder == coder_id::tans ? tans_backend(spec->dtype, header.lanes) : backend;
        checked = true;
    }

    void set_raw()
    {
        header.mode = block_mode::raw;
        header.flags = base_flags();
        header.payload_words = uint32_t((raw_bytes(spec->dtype, count_of(*spec)) + 1) / 2);
    }

    void finish()
    {
        if constexpr (sizeof(code) == 1)
            if (has_scale(spec->dtype) || spec->coder == coder_id::tans)
                return finish_scaled(*spec, packed(), header, job.sums, out, capacity, *result);
        const uint32_t count = header.count;
        const block_layout at = layout_of(header, spec->tokens);
        result->mode = header.mode;
        result->lanes = header.lanes;
        result->bytes = size_t(at.end);
        result->row_scaled = (header.flags & has_row_steps) != 0;
        if (at.end > capacity) {
            result->code = status::output_too_small;
            result->bytes = max_encoded_bytes(*spec);
            return;
        }
        // An empty box has no first scalar to walk from (its dim or tokens may be 0).
        if (count != 0 && (header.mode == block_mode::raw || header.mode == block_mode::constant)) {
            uint8_t* to = out + at.words;
            box_walker walker(*spec, 0);
            const uint32_t stored = header.mode == block_mode::constant ? 1 : count;
            for (uint32_t i = 0; i < stored; ++i, walker.next()) {
                const uint32_t now = element(job.codes, walker.position());
                *to++ = uint8_t(now);
                if (sizeof(code) == 2) *to++ = uint8_t(now >> 8);
            }
            std::memset(to, 0, size_t(out + at.end - to));
        } else {
            const uint64_t used = at.words + 2 * uint64_t(header.payload_words);
            std::memset(out + used, 0, size_t(at.end - used));
        }
        if (!checked && count != 0) {  // no step has summed up the codes
            check_sums content;
            box_walker walker(*spec, 0);
            for (uint32_t i = 0; i < count; ++i, walker.next())
                content.lane[i % header.lanes].add(element(job.codes, walker.position()));
            job.sums.content_check = content.total(header.lanes);
        }
        header.content_check = spec->content_check ? job.sums.content_check : 0;
        write_block_header(header, out);
        if (header.flags & has_fingerprint) store_u64(out + at.fingerprint, spec->fingerprint);
        if (header.flags & has_parameter_hash)
            store_u32(out + at.parameter_hash, job.sums.parameter_hash);
        result->code = status::ok;
    }

private:
    static constexpr bool takes_tans =
        sizeof(code) == 1 && std::is_same_v<typename Job::predictor_type, array_predictor>;

    // The steps of a tANS block, whose row steps are chosen.
    void encode_tans(Job& running) const
    {
        if (!fits) return;
        uint32_t stored[max_lanes];
        if (!encode_array_steps(*spec, running.predictor, packed(), running.row_steps,
                                header.lanes, running.writer, stored, running.sums,
                                running.escapes))
            return;
        for (uint32_t i = 0; i < header.lanes; ++i)
            store_u32(running.states_out + 4 * i, stored[i]);
    }

    packed_codes<const code> packed() const
    {
        return {job.codes, format_of(spec->dtype).code_bits == 4};
    }

    // int8, int4, e2m1, and fp8 by tANS. Steps are left to do only where planes run them, or choose
    // the row steps.
    template <bool ByPlanes>
    block_stage begin_scaled()
    {
        scaled_source source(*spec, job.predictor);
        if constexpr (ByPlanes) {
            const bool by_planes =
                spec->coder == coder_id::rans ? has_scale(spec->dtype)
                                              : takes_tans && spec->row_scale;
            if (by_planes) {
                if (has_scale(spec->dtype)) job.scales = spec->scales;
                if (!choose_scaled_mode(*spec, source, packed(), capacity, header, job.sums, room))
                    return block_stage::plain;
                if (header.lanes != 1) return block_stage::steps;
            }
        }
        const array_predictor* arrays = nullptr;
        if constexpr (ByPlanes && is_array_predictor_v<typename Job::predictor_type>)
            if (spec->coder == coder_id::tans) arrays = &job.predictor;
        *result = encode_scaled(*spec, packed(), source, arrays, out, capacity);
        return block_stage::ended;
    }

    // Where words begin to be written, downward.
    uint8_t* end_of_room(const block_layout& at) const
    {
        return out + at.words + (room - at.words) / 2 * 2;
    }

    uint8_t base_flags() const
    {
        return uint8_t((spec->content_check ? has_content_check : 0) |
                       (spec->has_fingerprint ? has_fingerprint : 0));
    }

    bool choose_mode(uint32_t count)
    {
        const uint32_t lanes = spec->lanes != 0 ? spec->lanes : default_lanes(count);
        header = {spec->dtype, block_mode::raw, 0, lanes, count, 0, 0};
        set_raw();
        if (count == 0) return false;
        const uint64_t raw_bytes = layout_of(header, 0).end;
        const code first = job.codes.data[0];
        bool constant = true;
        box_walker walker(*spec, 0);
        for (uint32_t i = 0; i < count && constant; ++i, walker.next())
            constant = element(job.codes, walker.position()) == first;
        if (constant) {
            header.mode = block_mode::constant;
            header.payload_words = 1;
        }
        if (!has_model(spec->dtype)) return false;
        if (all_predicted(*spec, job, lanes, job.sums.parameter_hash)) {
            header.mode = block_mode::predicted;
            header.payload_words = 0;
            if (spec->parameter_hash) header.flags |= has_parameter_hash;
            return false;
        }
        if (constant) return false;
        // A coded block must save at least 1/64 of the raw codes.
        const uint64_t limit = raw_bytes - uint64_t(count) * sizeof(code) / 64;
        room = capacity < limit ? capacity : limit;
        header.mode = block_mode::coded;
        header.payload_words = 0;
        if (spec->parameter_hash) header.flags |= has_parameter_hash;
        return true;
    }
};

// call(i) is the i-th of `count` blocks: its spec, codes, predictor, out, capacity, result.
template <class Backend, class Code, class Call>
void encode_all(size_t count, Call call) noexcept
{
    using job = block_job<const Code, source_t<typename decltype(call(0))::predictor_type>>;
    code_all<Backend, block_encoder<job>>(count, order0_encoder<Backend, Code>{}, call);
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
