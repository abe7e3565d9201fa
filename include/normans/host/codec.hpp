#pragma once
// Blocks: encode() and decode() over the caller's memory, one block or many in a call. Nothing
// allocates, throws or asserts. Same input, same bytes, whichever backend runs. What a decoder
// writes before it finds damage is unspecified, but stays inside the box.
// Blocks are independent, so a call with many of them keeps several in flight on one thread: give
// pages of one geometry next to each other, and at least 4 (32 lanes) or 16 (8 lanes) at a time.

#include "block_decoder.hpp"
#include "block_encoder.hpp"
#include "executor.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// One block to encode. Every block has its own status, in `result`.
template <class Code, class Predictor>
struct encode_task {
    block_spec spec;
    box_view<const Code> codes;
    Predictor predictor;
    uint8_t* out;
    size_t capacity;
    encode_result result{};
};

/// One block to decode.
template <class Code, class Predictor>
struct decode_task {
    block_spec spec;
    const uint8_t* block;
    size_t bytes;
    Predictor predictor;
    box_view<Code> out;
    decode_result result{};
};

namespace detail {

template <class Code, class Predictor>
struct encode_call {
    using predictor_type = Predictor;
    const block_spec& spec;
    box_view<const Code> codes;
    const Predictor& predictor;
    uint8_t* out;
    size_t capacity;
    encode_result& result;
};

template <class Code, class Predictor>
struct decode_call {
    using predictor_type = Predictor;
    const block_spec& spec;
    const uint8_t* block;
    size_t bytes;
    const Predictor& predictor;
    box_view<Code> out;
    decode_result& result;
};

template <class Code, class Predictor>
constexpr bool codable()
{
    static_assert(sizeof(Code) <= 2 && std::is_unsigned_v<Code> && !std::is_const_v<Code>,
                  "codes are uint8_t (fp8, raw8) or uint16_t (bf16, fp16)");
    static_assert(is_predictor_v<Predictor>, "see block/predictor.hpp");
    return true;
}

// Tasks of one job for the executor: enough to fill a bundle twice.
template <class Backend>
constexpr size_t tasks_per_job = Backend::planes * 8;

}  // namespace detail

/// Encodes a box of codes into `out`. Bytes used: result.bytes <= max_encoded_bytes(spec).
/// bad_argument: null pointers, an impossible spec, codes of another width than dtype.
/// output_too_small: the block needs more than `capacity`; result.bytes is always enough.
/// `out` must not overlap the codes or what the predictor reads.
template <class Backend = default_backend, class Code, class Predictor>
encode_result encode(const block_spec& spec, box_view<Code> codes, const Predictor& predictor,
                     uint8_t* out, size_t capacity) noexcept
{
    using code = std::remove_const_t<Code>;
    static_assert(detail::codable<code, Predictor>());
    encode_result result;
    const box_view<const code> from{codes.data, codes.head_stride, codes.token_stride};
    detail::encode_all<Backend, code>(1, [&](size_t) {
        return detail::encode_call<code, Predictor>{spec, from, predictor, out, capacity, result};
    });
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
    static_assert(detail::codable<Code, Predictor>());
    decode_result result;
    detail::decode_all<Backend, Code>(1, [&](size_t) {
        return detail::decode_call<Code, Predictor>{spec, block, bytes, predictor, out, result};
    });
    return result;
}

/// encode() for `count` tasks; outputs must not overlap. The executor gets jobs that are
/// independent of each other (see executor.hpp); without one all run here.
template <class Backend = default_backend, class Code, class Predictor, class Executor = run_here>
void encode_blocks(encode_task<Code, Predictor>* tasks, size_t count,
                   const Executor& executor = {})
{
    static_assert(detail::codable<Code, Predictor>());
    detail::in_pieces(count, detail::tasks_per_job<Backend>, executor, [=](size_t first, size_t n) {
        detail::encode_all<Backend, Code>(n, [=](size_t i) {
            encode_task<Code, Predictor>& task = tasks[first + i];
            return detail::encode_call<Code, Predictor>{task.spec, task.codes,    task.predictor,
                                                        task.out,  task.capacity, task.result};
        });
    });
}

/// decode() for `count` tasks; boxes must not overlap.
template <class Backend = default_backend, class Code, class Predictor, class Executor = run_here>
void decode_blocks(decode_task<Code, Predictor>* tasks, size_t count,
                   const Executor& executor = {})
{
    static_assert(detail::codable<Code, Predictor>());
    detail::in_pieces(count, detail::tasks_per_job<Backend>, executor, [=](size_t first, size_t n) {
        detail::decode_all<Backend, Code>(n, [=](size_t i) {
            decode_task<Code, Predictor>& task = tasks[first + i];
            return detail::decode_call<Code, Predictor>{task.spec,      task.block, task.bytes,
                                                        task.predictor, task.out,   task.result};
        });
    });
}

/// The row step of a token of a coded block (0 where there is none). For reports.
inline int row_step_of(const block_spec& spec, const uint8_t* block, size_t bytes, uint32_t token)
{
    block_header header;
    if (read_block_header(block, bytes, header) != status::ok || token >= spec.tokens) return 0;
    const block_layout at = layout_of(header, spec.tokens);
    return at.end > bytes ? 0 : detail::row_steps_of(block, header, at)(token);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
