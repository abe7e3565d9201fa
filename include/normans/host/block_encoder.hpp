#pragma once
// Encoding block by block up to the point where steps run, bundles of blocks through the steps, and
// block by block to the end: which mode a block gets, and its bytes.

#include "backend.hpp"
#include "block_steps.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// Runs f with the scalar type as a constant, among the modelled types of Code's width.
template <class Code, class Function>
auto with_scalar(scalar_type type, Function f)
{
    using scalar = scalar_type;
    if constexpr (sizeof(Code) == 1) {
        switch (type) {
        case scalar::e5m2: return f(std::integral_constant<scalar, scalar::e5m2>{});
        case scalar::e4m3fnuz: return f(std::integral_constant<scalar, scalar::e4m3fnuz>{});
        case scalar::e5m2fnuz: return f(std::integral_constant<scalar, scalar::e5m2fnuz>{});
        default: return f(std::integral_constant<scalar, scalar::e4m3fn>{});
        }
    } else {
        if (type == scalar::fp16) return f(std::integral_constant<scalar, scalar::fp16>{});
        return f(std::integral_constant<scalar, scalar::bf16>{});
    }
}

// True if two blocks' steps may run together.
inline bool same_steps(const block_spec& x, uint32_t x_lanes, const block_spec& y, uint32_t y_lanes)
{
    return x_lanes == y_lanes && x.dtype == y.dtype && x.heads == y.heads &&
           x.tokens == y.tokens && x.dim == y.dim && x.sigma_offset == y.sigma_offset &&
           x.shape == y.shape && x.marginal == y.marginal &&
           x.parameter_hash == y.parameter_hash && x.row_scale == y.row_scale;
}

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
    using code = std::remove_const_t<typename Job::code_type>;

    const block_spec* spec;
    Job job;
    uint8_t* out;
    size_t capacity;
    encode_result* result;
    block_header header;
    uint64_t room;  // for the coded form
    bool checked = false;

    // False if the block is done with (an error). `coded`: steps have to run.
    template <class Predictor>
    static bool begin(const block_spec& spec, const box_view<const code>& codes,
                      const Predictor& predictor, uint8_t* out, size_t capacity,
                      encode_result& result, block_encoder& self, bool& coded)
    {
        result = encode_result{};
        coded = false;
        if (check_spec(spec) != status::ok || code_bytes(spec.dtype) != sizeof(code)) return false;
        const uint32_t count = uint32_t(count_of(spec));
        if (out == nullptr || (count != 0 && codes.data == nullptr)) {
            result.bytes = max_encoded_bytes(spec);
            return false;
        }
        self.spec = &spec;
        self.job.predictor = source_of(predictor, spec);
        self.job.codes = codes;
        self.out = out;
        self.capacity = capacity;
        self.result = &result;
        self.checked = false;
        coded = self.choose_mode(count);
        return true;
    }

    // Room for row steps, as far as they may be stored.
    uint8_t* row_steps_place()
    {
        header.flags |= has_row_steps;
        const block_layout at = layout_of(header, spec->tokens);
        if (at.states > room) return nullptr;
        std::memset(out + at.row_steps, 0, size_t(at.states - at.row_steps));
        return out + at.row_steps;
    }

    // False if there is no room for coding.
    bool begin_steps(bool row_scaled, const uint8_t* nibbles)
    {
        if (!row_scaled) header.flags = uint8_t(header.flags & ~has_row_steps);
        job.row_steps = row_scaled ? nibbles : nullptr;
        const block_layout at = layout_of(header, spec->tokens);
        if (at.words > room) return false;
        job.states_out = out + at.states;
        job.writer = {out + at.words, out + at.words + (room - at.words) / 2 * 2};
        return true;
    }

    void end_steps(backend_id backend)
    {
        const block_layout at = layout_of(header, spec->tokens);
        const uint8_t* const end = out + at.words + (room - at.words) / 2 * 2;
        header.payload_words = uint32_t((end - job.writer.next) / 2);
        if (job.writer.overrun || layout_of(header, spec->tokens).end > room) return set_raw();
        std::memmove(out + at.words, job.writer.next, size_t(end - job.writer.next));
        result->escapes = job.escapes;
        result->repairs = job.repairs;
        result->backend = backend;
        checked = true;
    }

    void set_raw()
    {
        header.mode = block_mode::raw;
        header.flags = base_flags();
        header.payload_words = uint32_t((count_of(*spec) * sizeof(code) + 1) / 2);
    }

    void finish()
    {
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

// Blocks whose steps run together, begun and not yet coded.
template <class Backend, class Job>
struct encoder_bundle {
    // A callable is evaluated lane by lane: planes side by side would gain nothing.
    static constexpr bool wide = is_array_predictor_v<typename Job::predictor_type>;
    static constexpr uint32_t capacity = Backend::planes * 32 / 8;
    block_encoder<Job> block[capacity];
    uint32_t size = 0;

    static constexpr uint32_t most(uint32_t lanes)
    {
        const uint32_t all = Backend::blocks_at_once(lanes), plane = 32 / lanes;
        return wide || all < plane ? all : plane;
    }

    bool takes(const block_encoder<Job>& next) const
    {
        return size == 0 ||
               (size < most(next.header.lanes) &&
                same_steps(*block[0].spec, block[0].header.lanes, *next.spec, next.header.lanes) &&
                alike(block[0].job, next.job));
    }

    void flush()
    {
        if (size == 0) return;
        const block_spec& spec = *block[0].spec;
        with_scalar<typename block_encoder<Job>::code>(spec.dtype, [&](auto type) {
            const normal_model<decltype(type)::value> model{shape_of(spec.shape), spec.sigma_offset,
                                                            spec.marginal};
            with_lanes<Backend, wide>(block[0].header.lanes, size, model, spec.shape,
                                [&](auto group, const auto& context, backend_id id) {
                                    run<decltype(group)>(spec, context, id);
                                });
        });
        for (uint32_t i = 0; i < size; ++i) block[i].finish();
        size = 0;
    }

private:
    template <class Lanes, class Context>
    void run(const block_spec& spec, const Context& context, backend_id id)
    {
        const typename Lanes::float_mode mode;
        Job jobs[Lanes::blocks];
        uint8_t* nibbles[Lanes::blocks] = {};
        bool row_scaled[Lanes::blocks] = {};
        for (uint32_t i = 0; i < size; ++i) jobs[i] = block[i].job;
        using model_type = std::remove_const_t<std::remove_reference_t<decltype(context.model)>>;
        inputs_t<Lanes, model_type, Job> inputs(mode, spec, context.model, jobs, size,
                                                block[0].header.lanes, 0.0f);
        if (spec.row_scale) {
            for (uint32_t i = 0; i < size; ++i) nibbles[i] = block[i].row_steps_place();
            choose_steps<Lanes>(spec, context.model, inputs, jobs, size,
                                block[0].header.lanes, nibbles, row_scaled);
        }
        bool room = true;
        for (uint32_t i = 0; i < size; ++i) {
            room &= block[i].begin_steps(row_scaled[i] && nibbles[i] != nullptr, nibbles[i]);
            jobs[i] = block[i].job;
        }
        if (room) encode_bundle<Lanes>(spec, context.model, inputs, jobs, size,
                                            block[0].header.lanes);
        for (uint32_t i = 0; i < size; ++i) {
            block[i].job = jobs[i];
            block[i].job.repairs = inputs.repairs(i);
            if (room) block[i].end_steps(id);
            else block[i].set_raw();
        }
    }
};

// call(i) is the i-th of `count` blocks: its spec, codes, predictor, out, capacity, result.
template <class Backend, class Code, class Call>
void encode_all(size_t count, Call call) noexcept
{
    using first_call = decltype(call(size_t(0)));
    using source = decltype(source_of(std::declval<const typename first_call::predictor_type&>(),
                                      std::declval<const block_spec&>()));
    using job = block_job<const Code, source>;
    encoder_bundle<Backend, job> bundle;
    for (size_t i = 0; i < count; ++i) {
        const auto now = call(i);
        block_encoder<job> next;
        bool coded = false;
        if (!block_encoder<job>::begin(now.spec, now.codes, now.predictor, now.out, now.capacity,
                                       now.result, next, coded))
            continue;
        if (!coded) {
            next.finish();
            continue;
        }
        if (!bundle.takes(next)) bundle.flush();
        bundle.block[bundle.size++] = next;
    }
    bundle.flush();
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
