#pragma once
// Decoding: what a block says of itself against what the caller expects, bundles of coded blocks
// through the steps, the other modes, and the checks at the end.

#include "../block/check.hpp"
#include "block_bundle.hpp"
#include "order0_decoder.hpp"
#include "scaled_block.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

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

    template <bool ScaledByPlanes, class Call>
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
        if constexpr (sizeof(code) == 1) {
            if (has_scale(spec->dtype) || spec->coder == coder_id::tans)
                return begin_scaled<ScaledByPlanes>(call.bytes);
        }
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
    // int8, int4, e2m1, and fp8 by tANS. Steps are left to do only where planes run them.
    template <bool ByPlanes>
    block_stage begin_scaled(size_t bytes)
    {
        if constexpr (ByPlanes) {
            if (has_scale(spec->dtype) && spec->coder == coder_id::rans) {
                job.scales = spec->scales;
                result->code = read(bytes);
                if (result->code != status::ok) return block_stage::ended;
                if (header.mode == block_mode::coded && header.lanes != 1)
                    return block_stage::steps;
            }
        }
        const array_predictor* arrays = nullptr;
        if constexpr (ByPlanes && is_array_predictor_v<typename Job::predictor_type>)
            if (spec->coder == coder_id::tans) arrays = &job.predictor;
        *result = decode_scaled(*spec, block, bytes, {*spec, job.predictor}, arrays, job.codes);
        return block_stage::ended;
    }

    bool wants_hash() const { return detail::wants_hash(*spec, header); }

    status read(size_t bytes)
    {
        const status checked = check_block(*spec, block, bytes, header, layout, *result);
        return checked == status::ok && header.mode == block_mode::coded ? begin_steps() : checked;
    }

    status begin_steps()
    {
        job.row_steps = row_steps_of(block, header, layout);
        // Before the scalars: of a damaged state the parameter hash could not say anything.
        for (uint32_t i = 0; i < header.lanes; ++i)
            if (!valid_state(load_u32(block + layout.states + 4 * i)))
                return status::corrupt_stream;
        job.states_in = block + layout.states;
        job.reader = {block + layout.words,
                      block + layout.words + 2 * uint64_t(header.payload_words)};
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
    code_all<Backend, block_decoder<job>>(count, order0_decoder<Backend, Code>{}, call);
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
