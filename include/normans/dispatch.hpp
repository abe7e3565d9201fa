#pragma once
// The codec compiled in advance for several instruction sets, the best one chosen at run time: link
// the optional target normans::dispatch. Same bytes as encode() and decode(). Takes array_predictor
// only, since a callable cannot be compiled in advance.

#include "host/codec.hpp"

// Outside the namespace that is named after the unit's target: both sides of the link see the same.
// Structs cross as bytes; their layout does not depend on the target.
namespace normans_dispatch {

struct arguments {
    void* tasks;  // encode_task or decode_task <uint8_t or uint16_t, array_predictor>
    std::size_t count;
    std::size_t code_bytes;
};

constexpr std::size_t tasks_per_job = 32;  // fills every backend's bundles

/// backend: a backend_id, or best. False if this machine cannot run it; then nothing is done.
constexpr int best = -1;
bool encode(int backend, const arguments& call) noexcept;
bool decode(int backend, const arguments& call) noexcept;

}  // namespace normans_dispatch

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace dispatch {

/// As normans::encode_blocks. `backend` forces one, for tests: every result stays bad_argument
/// where it cannot run.
template <class Code, class Executor = run_here>
void encode_blocks(encode_task<Code, array_predictor>* tasks, size_t count,
                   int backend = normans_dispatch::best, const Executor& executor = {})
{
    constexpr size_t each = normans_dispatch::tasks_per_job;
    detail::in_pieces(count, each, executor, [=](size_t first, size_t n) {
        normans_dispatch::encode(backend, {tasks + first, n, sizeof(Code)});
    });
}

/// As normans::decode_blocks.
template <class Code, class Executor = run_here>
void decode_blocks(decode_task<Code, array_predictor>* tasks, size_t count,
                   int backend = normans_dispatch::best, const Executor& executor = {})
{
    constexpr size_t each = normans_dispatch::tasks_per_job;
    detail::in_pieces(count, each, executor, [=](size_t first, size_t n) {
        normans_dispatch::decode(backend, {tasks + first, n, sizeof(Code)});
    });
}

/// As normans::encode.
template <class Code>
encode_result encode(const block_spec& spec, box_view<Code> codes, const array_predictor& predictor,
                     uint8_t* out, size_t capacity, int backend = normans_dispatch::best) noexcept
{
    using code = std::remove_const_t<Code>;
    encode_task<code, array_predictor> task{
        spec, {codes.data, codes.head_stride, codes.token_stride}, predictor, out, capacity, {}};
    encode_blocks(&task, 1, backend);
    return task.result;
}

/// As normans::decode.
template <class Code>
decode_result decode(const block_spec& spec, const uint8_t* block, size_t bytes,
                     const array_predictor& predictor, box_view<Code> out,
                     int backend = normans_dispatch::best) noexcept
{
    decode_task<Code, array_predictor> task{spec, block, bytes, predictor, out, {}};
    decode_blocks(&task, 1, backend);
    return task.result;
}

/// For basic_paged_store.
struct coder {
    int backend = normans_dispatch::best;

    template <class Code>
    void encode(encode_task<Code, array_predictor>* tasks, size_t count) const
    {
        encode_blocks(tasks, count, backend);
    }
    template <class Code>
    void decode(decode_task<Code, array_predictor>* tasks, size_t count) const
    {
        decode_blocks(tasks, count, backend);
    }
};

}  // namespace dispatch
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
