#pragma once
// Decoding: what a block says of itself against what the caller expects, bundles of coded blocks
// through the steps, the other modes, and the checks at the end.

#include "block_bundle.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

inline bool all_zero(const uint8_t* bytes, uint64_t from, uint64_t to)
{
    uint8_t any = 0;
    for (uint64_t i = from; i < to; ++i) any = uint8_t(any | bytes[i]);
    return any == 0;
}

// One block on its way from bytes to codes.
template <class Job>
struct block_decoder {
    using job_type = Job;
    using code = typename Job::code_type;

    const block_spec* spec;
    Job job;
    const uint8_t* block;
    decode_result* result;
    block_header header;
    block_layout layout;

    template <class Call>
    block_stage begin(const Call& call)
    {
        spec = &call.spec;
        block = call.block;
        result = &call.result;
        *result = decode_result{};
        if (check_spec(*spec) != status::ok || code_bytes(spec->dtype) != sizeof(code) ||
            (count_of(*spec) != 0 && call.out.data == nullptr))
            return block_stage::ended;
        job.predictor = source_of(call.predictor, *spec);
        job.codes = call.out;
        result->code = read(call.bytes);
        if (result->code != status::ok) return block_stage::ended;
        return header.mode == block_mode::coded ? block_stage::steps : block_stage::plain;
    }

    // The steps of `size` blocks at once; `jobs` are theirs.
    template <class Lanes, class Context, class Inputs>
    static void run(block_decoder* blocks, uint32_t size, const Context& context, Inputs& inputs,
                    Job* jobs)
    {
        decode_bundle<Lanes>(*blocks[0].spec, context.model, context.guess, inputs, jobs, size,
                             blocks[0].header.lanes);
    }

    void end_steps(backend_id backend, uint32_t repairs)
    {
        result->backend = backend;
        result->repairs = repairs;
    }

    void finish()
    {
        status decoded = status::ok;
        if (header.mode == block_mode::coded) {
            if (job.damaged) decoded = status::corrupt_stream;
        } else if (header.count != 0) {
            decoded = copy();
        }
        if (wants_hash() && load_u32(block + layout.parameter_hash) != job.sums.parameter_hash)
            result->code = status::wrong_prediction;
        else if (decoded != status::ok)
            result->code = decoded;
        else if (spec->content_check && header.content_check != job.sums.content_check)
            result->code = status::content_mismatch;
    }

private:
    bool wants_hash() const
    {
        return spec->parameter_hash &&
               (header.mode == block_mode::coded || header.mode == block_mode::predicted);
    }

    status read(size_t bytes)
    {
        const status parsed = read_block_header(block, bytes, header);
        if (parsed != status::ok) return parsed;
        result->mode = header.mode;
        result->lanes = header.lanes;
        result->row_scaled = (header.flags & has_row_steps) != 0;
        const uint32_t count = uint32_t(count_of(*spec));
        if (header.dtype != spec->dtype) return status::wrong_dtype;
        if (header.count != count) return status::wrong_count;
        if (spec->lanes != 0 && header.lanes != spec->lanes) return status::wrong_lanes;
        if (spec->content_check != ((header.flags & has_content_check) != 0) ||
            wants_hash() != ((header.flags & has_parameter_hash) != 0) ||
            spec->has_fingerprint != ((header.flags & has_fingerprint) != 0) ||
            (result->row_scaled && !spec->row_scale))
            return status::wrong_model;
        layout = layout_of(header, spec->tokens);
        if (layout.end > bytes) return status::truncated;
        result->bytes = size_t(layout.end);
        if (spec->has_fingerprint && load_u64(block + layout.fingerprint) != spec->fingerprint)
            return status::wrong_fingerprint;
        const uint64_t stored_end = header.mode == block_mode::raw
                                        ? layout.words + uint64_t(count) * sizeof(code)
                                        : layout.words + 2 * uint64_t(header.payload_words);
        if (!all_zero(block, stored_end, layout.end)) return status::corrupt_stream;
        return header.mode == block_mode::coded ? begin_steps(stored_end) : status::ok;
    }

    status begin_steps(uint64_t stored_end)
    {
        if (result->row_scaled) {
            job.row_steps = block + layout.row_steps;
            const uint64_t used = layout.row_steps + spec->tokens / 2, odd = spec->tokens % 2;
            if ((odd != 0 && block[used] >> 4 != 0) || !all_zero(block, used + odd, layout.states))
                return status::corrupt_stream;
        }
        // Before the scalars: of a damaged state the parameter hash could not say anything.
        for (uint32_t i = 0; i < header.lanes; ++i) {
            const uint32_t state = load_u32(block + layout.states + 4 * i);
            if (state < rans_format::lower_bound || state >> 31 != 0) return status::corrupt_stream;
        }
        job.states_in = block + layout.states;
        job.reader = {block + layout.words, block + stored_end};
        return status::ok;
    }

    // Raw, constant and predicted blocks.
    status copy()
    {
        const uint8_t* from = block + layout.words;
        check_sums content, parameters;
        box_walker walker(*spec, 0);
        for (uint32_t i = 0; i < header.count; ++i, walker.next()) {
            uint32_t now = 0;
            if (header.mode == block_mode::predicted) {
                const prediction p = job.predictor(walker.position());
                const uint32_t mean = clean_mean(p);
                now = nearest_code(format_of(spec->dtype), mean);
                parameters.lane[i % header.lanes].add(parameter_word(mean, p.sigma_index, 0));
            } else {
                now = sizeof(code) == 2 ? load_word(from) : *from;
                if (header.mode == block_mode::raw) from += sizeof(code);
            }
            element(job.codes, walker.position()) = code(now);
            content.lane[i % header.lanes].add(now);
        }
        job.sums = {content.total(header.lanes), parameters.total(header.lanes)};
        const bool wide = header.mode == block_mode::constant && sizeof(code) == 1 && from[1] != 0;
        return wide ? status::corrupt_stream : status::ok;
    }
};

// call(i) is the i-th of `count` blocks: its spec, block, bytes, predictor, out, result.
template <class Backend, class Code, class Call>
void decode_all(size_t count, Call call) noexcept
{
    using job = block_job<Code, source_t<typename decltype(call(0))::predictor_type>>;
    code_all<Backend, block_decoder<job>>(count, call);
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
