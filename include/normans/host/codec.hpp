#pragma once
// Blocks: encode() and decode() over the caller's memory. Nothing allocates, throws or asserts.
// Same input, same bytes, whichever backend runs. What a decoder writes before it finds damage is
// unspecified, but stays inside the box.

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

// True if every code is the one nearest to its mean; then `hash` is over the predictions.
template <class Model, class Predictor, class Code>
bool all_predicted(const block_spec& spec, const Predictor& predictor, uint32_t lanes,
                   const box_view<Code>& codes, uint32_t& hash)
{
    const uint32_t count = uint32_t(count_of(spec));
    check_sums sums;
    box_walker walker(spec, 0);
    for (uint32_t i = 0; i < count; ++i, walker.next()) {
        const prediction p = predict_at(predictor, walker.position());
        const uint32_t mean = clean_mean(p);
        if (element(codes, walker.position()) != nearest_code(Model::format, mean)) return false;
        sums.lane[i % lanes].add(parameter_word(mean, p.sigma_index, 0));
    }
    hash = sums.total(lanes);
    return true;
}

// Row steps of a block by the backend's widest group.
template <class Backend, class Model, class Predictor, class Code>
bool choose_row_steps(const block_spec& spec, const Model& model, const Predictor& predictor,
                      const box_view<Code>& codes, uint8_t* nibbles)
{
    bool pays = false;
    with_lanes<Backend>(max_lanes, model, spec.shape, [&](auto group, const auto& context) {
        pays = choose_steps<decltype(group)>(spec, context.model, predictor, codes, nibbles);
    });
    return pays;
}

inline bool all_zero(const uint8_t* bytes, uint64_t from, uint64_t to)
{
    uint8_t any = 0;
    for (uint64_t i = from; i < to; ++i) any = uint8_t(any | bytes[i]);
    return any == 0;
}

}  // namespace detail

/// Encodes a box of codes into `out`. Bytes used: result.bytes <= max_encoded_bytes(spec).
/// bad_argument: null pointers, an impossible spec, codes of another width than dtype.
/// output_too_small: the block needs more than `capacity`; result.bytes is always enough.
/// `out` must not overlap the codes or what the predictor reads.
template <class Backend = default_backend, class Code, class Predictor>
encode_result encode(const block_spec& spec, box_view<Code> codes, const Predictor& predictor,
                     uint8_t* out, size_t capacity) noexcept
{
    static_assert(sizeof(Code) <= 2 && std::is_unsigned_v<Code>,
                  "codes are uint8_t (fp8, raw8) or uint16_t (bf16, fp16)");
    static_assert(is_predictor_v<Predictor>, "see host/predictor.hpp");
    using namespace detail;
    encode_result result;
    if (check_spec(spec) != status::ok || code_bytes(spec.dtype) != sizeof(Code)) return result;
    const uint32_t count = uint32_t(count_of(spec));
    if (out == nullptr || (count != 0 && codes.data == nullptr)) {
        result.bytes = max_encoded_bytes(spec);
        return result;
    }
    const uint32_t lanes = spec.lanes != 0 ? spec.lanes : default_lanes(count);
    const uint64_t code_total = uint64_t(count) * sizeof(Code);
    block_header header{
        spec.dtype, block_mode::raw, 0, lanes, count, uint32_t((code_total + 1) / 2), 0};
    if (spec.content_check) header.flags |= has_content_check;
    if (spec.has_fingerprint) header.flags |= has_fingerprint;
    const uint64_t raw_bytes = layout_of(header, 0).end;

    block_sums sums{};
    bool constant = count != 0, checked = false;
    if (count != 0) {
        const Code first_code = codes.data[0];
        box_walker walker(spec, 0);
        for (uint32_t i = 0; i < count && constant; ++i, walker.next())
            constant = element(codes, walker.position()) == first_code;
    }
    if (constant) {
        header.mode = block_mode::constant;
        header.payload_words = 1;
    }
    if (count != 0 && has_model(spec.dtype)) {
        with_scalar<Code>(spec.dtype, [&](auto type) {
            using model_type = normal_model<decltype(type)::value>;
            if (all_predicted<model_type>(spec, predictor, lanes, codes, sums.parameter_hash)) {
                header.mode = block_mode::predicted;
                header.payload_words = 0;
                if (spec.parameter_hash) header.flags |= has_parameter_hash;
                return;
            }
            if (constant) return;
            const model_type model{shape_of(spec.shape), spec.sigma_offset, spec.marginal};
            block_header coded = header;
            coded.mode = block_mode::coded;
            coded.payload_words = 0;
            if (spec.parameter_hash) coded.flags |= has_parameter_hash;
            // A coded block must save at least 1/64 of the raw codes.
            const uint64_t raw_total = raw_bytes, limit = raw_total - code_total / 64;
            const uint64_t room = capacity < limit ? capacity : limit;
            uint8_t* nibbles = nullptr;
            if (spec.row_scale) {
                coded.flags |= has_row_steps;
                const block_layout at = layout_of(coded, spec.tokens);
                if (at.states <= room) {
                    nibbles = out + at.row_steps;
                    std::memset(nibbles, 0, size_t(at.states - at.row_steps));
                }
                if (!choose_row_steps<Backend>(spec, model, predictor, codes, nibbles)) {
                    coded.flags = uint8_t(coded.flags & ~has_row_steps);
                    nibbles = nullptr;
                }
            }
            const block_layout at = layout_of(coded, spec.tokens);
            if (at.words > room) return;
            word_writer words{out + at.words, out + at.words + (room - at.words) / 2 * 2};
            const uint8_t* const end = words.next;
            result.backend = with_lanes<Backend>(
                lanes, model, spec.shape, [&](auto group, const auto& context) {
                    result.escapes =
                        encode_steps<decltype(group)>(spec, context.model, predictor, nibbles,
                                                      out + at.states, words, codes, sums);
                });
            coded.payload_words = uint32_t((end - words.next) / 2);
            if (words.overrun || layout_of(coded, spec.tokens).end > room) return;
            std::memmove(out + at.words, words.next, size_t(end - words.next));
            header = coded;
            checked = true;
        });
    }

    const block_layout at = layout_of(header, spec.tokens);
    result.mode = header.mode;
    result.lanes = lanes;
    result.bytes = size_t(at.end);
    result.row_scaled = (header.flags & has_row_steps) != 0;
    if (at.end > capacity) {
        result.code = status::output_too_small;
        result.bytes = max_encoded_bytes(spec);
        return result;
    }
    if (header.mode != block_mode::coded) {  // what was tried does not count
        result.escapes = 0;
        result.backend = backend_id::portable;
    }
    // An empty box has no first scalar to walk from (its dim or tokens may be 0).
    if (count != 0 && (header.mode == block_mode::raw || header.mode == block_mode::constant)) {
        uint8_t* to = out + at.words;
        box_walker walker(spec, 0);
        const uint32_t stored = header.mode == block_mode::constant ? 1 : count;
        for (uint32_t i = 0; i < stored; ++i, walker.next()) {
            const uint32_t code = element(codes, walker.position());
            *to++ = uint8_t(code);
            if (sizeof(Code) == 2) *to++ = uint8_t(code >> 8);
        }
        std::memset(to, 0, size_t(out + at.end - to));
    } else {
        const uint64_t used = at.words + 2 * uint64_t(header.payload_words);
        std::memset(out + used, 0, size_t(at.end - used));
    }
    if (!checked && count != 0) {  // no step has summed up the codes
        check_sums content;
        box_walker walker(spec, 0);
        for (uint32_t i = 0; i < count; ++i, walker.next())
            content.lane[i % lanes].add(element(codes, walker.position()));
        sums.content_check = content.total(lanes);
    }
    header.content_check = spec.content_check ? sums.content_check : 0;
    write_block_header(header, out);
    if (header.flags & has_fingerprint) store_u64(out + at.fingerprint, spec.fingerprint);
    if (header.flags & has_parameter_hash) store_u32(out + at.parameter_hash, sums.parameter_hash);
    result.code = status::ok;
    return result;
}

/// Decodes the block at `block` into a box of the spec's geometry. Bytes behind the block are
/// allowed; result.bytes says where it ends. Work and writes are bounded by the spec, never by the
/// block. Errors: bad_argument, truncated, unsupported_version, bad_header, wrong_dtype,
/// wrong_count, wrong_lanes, wrong_model (check, hash or fingerprint present or absent other than
/// asked for), wrong_fingerprint, wrong_prediction, corrupt_stream, content_mismatch.
template <class Backend = default_backend, class Code, class Predictor>
decode_result decode(const block_spec& spec, const uint8_t* block, size_t bytes,
                     const Predictor& predictor, box_view<Code> out) noexcept
{
    static_assert(sizeof(Code) <= 2 && std::is_unsigned_v<Code> && !std::is_const_v<Code>,
                  "codes are uint8_t (fp8, raw8) or uint16_t (bf16, fp16)");
    static_assert(is_predictor_v<Predictor>, "see host/predictor.hpp");
    using namespace detail;
    decode_result result;
    if (check_spec(spec) != status::ok || code_bytes(spec.dtype) != sizeof(Code)) return result;
    const uint32_t count = uint32_t(count_of(spec));
    if (count != 0 && out.data == nullptr) return result;
    const auto fail = [&](status why) {
        result.code = why;
        return result;
    };

    block_header header;
    const status parsed = read_block_header(block, bytes, header);
    if (parsed != status::ok) return fail(parsed);
    result.mode = header.mode;
    result.lanes = header.lanes;
    result.row_scaled = (header.flags & has_row_steps) != 0;
    if (header.dtype != spec.dtype) return fail(status::wrong_dtype);
    if (header.count != count) return fail(status::wrong_count);
    if (spec.lanes != 0 && header.lanes != spec.lanes) return fail(status::wrong_lanes);
    const bool modelled = header.mode == block_mode::coded || header.mode == block_mode::predicted;
    const bool wants_hash = spec.parameter_hash && modelled;
    if (spec.content_check != ((header.flags & has_content_check) != 0) ||
        wants_hash != ((header.flags & has_parameter_hash) != 0) ||
        spec.has_fingerprint != ((header.flags & has_fingerprint) != 0) ||
        (result.row_scaled && !spec.row_scale))
        return fail(status::wrong_model);
    const block_layout at = layout_of(header, spec.tokens);
    if (at.end > bytes) return fail(status::truncated);
    result.bytes = size_t(at.end);
    if (spec.has_fingerprint && load_u64(block + at.fingerprint) != spec.fingerprint)
        return fail(status::wrong_fingerprint);
    const uint64_t stored_end = header.mode == block_mode::raw
                                    ? at.words + uint64_t(count) * sizeof(Code)
                                    : at.words + 2 * uint64_t(header.payload_words);
    if (!all_zero(block, stored_end, at.end)) return fail(status::corrupt_stream);

    status decoded = status::ok;
    block_sums sums{};
    if (header.mode == block_mode::coded) {
        const uint8_t* row_steps = nullptr;
        if (result.row_scaled) {
            row_steps = block + at.row_steps;
            const uint64_t used = at.row_steps + spec.tokens / 2;
            const uint64_t odd = spec.tokens % 2;
            if ((odd != 0 && block[used] >> 4 != 0) || !all_zero(block, used + odd, at.states))
                return fail(status::corrupt_stream);
        }
        // Before the scalars: of a damaged state the parameter hash could not say anything.
        for (uint32_t i = 0; i < header.lanes; ++i) {
            const uint32_t state = load_u32(block + at.states + 4 * i);
            if (state < rans_format::lower_bound || state >> 31 != 0)
                return fail(status::corrupt_stream);
        }
        const word_reader words{block + at.words, block + stored_end};
        with_scalar<Code>(spec.dtype, [&](auto type) {
            const normal_model<decltype(type)::value> model{shape_of(spec.shape), spec.sigma_offset,
                                                            spec.marginal};
            result.backend = with_lanes<Backend>(
                header.lanes, model, spec.shape, [&](auto group, const auto& context) {
                    decoded = decode_steps<decltype(group)>(
                        spec, context.model, context.guess, predictor, row_steps,
                        block + at.states, words, out, sums);
                });
        });
    } else if (count != 0) {
        const uint8_t* from = block + at.words;
        check_sums content, parameters;
        box_walker walker(spec, 0);
        for (uint32_t i = 0; i < count; ++i, walker.next()) {
            uint32_t code = 0;
            if (header.mode == block_mode::predicted) {
                const prediction p = predict_at(predictor, walker.position());
                const uint32_t mean = clean_mean(p);
                code = nearest_code(format_of(spec.dtype), mean);
                parameters.lane[i % header.lanes].add(parameter_word(mean, p.sigma_index, 0));
            } else {
                code = sizeof(Code) == 2 ? load_word(from) : *from;
                if (header.mode == block_mode::raw) from += sizeof(Code);
            }
            element(out, walker.position()) = Code(code);
            content.lane[i % header.lanes].add(code);
        }
        if (header.mode == block_mode::constant && sizeof(Code) == 1 && from[1] != 0)
            decoded = status::corrupt_stream;
        sums = {content.total(header.lanes), parameters.total(header.lanes)};
    }
    if (wants_hash && load_u32(block + at.parameter_hash) != sums.parameter_hash)
        return fail(status::wrong_prediction);
    if (decoded != status::ok) return fail(decoded);
    if (spec.content_check && header.content_check != sums.content_check)
        return fail(status::content_mismatch);
    return fail(status::ok);
}

/// The row step of a token of a coded block (0 where there is none). For reports.
inline int row_step_of(const block_spec& spec, const uint8_t* block, size_t bytes, uint32_t token)
{
    block_header header;
    if (read_block_header(block, bytes, header) != status::ok || token >= spec.tokens) return 0;
    const block_layout at = layout_of(header, spec.tokens);
    if (!(header.flags & has_row_steps) || at.end > bytes) return 0;
    return detail::row_step_at(block + at.row_steps, token);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
