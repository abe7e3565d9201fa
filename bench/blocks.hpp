#pragma once
// The library as the benchmarks call it: many blocks per call. This is the only place that knows
// how; every row of ours but the callable's goes through the two functions below.

#include <optional>

#include <normans/dispatch.hpp>

namespace bench {

using std::int32_t;
using std::ptrdiff_t;
using std::size_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

template <class Code>
using encode_task = normans::encode_task<Code, normans::array_predictor>;
template <class Code>
using decode_task = normans::decode_task<Code, normans::array_predictor>;

template <class Code>
void encode_blocks(encode_task<Code>* tasks, size_t count, int backend)
{
    normans::dispatch::encode_blocks(tasks, count, backend);
}

template <class Code>
void decode_blocks(decode_task<Code>* tasks, size_t count, int backend)
{
    normans::dispatch::decode_blocks(tasks, count, backend);
}

/// Scalars at which the decoder's first guess was wrong, or that are far.
inline std::optional<uint64_t> repairs_of(const normans::decode_result& result)
{
    return result.repairs;
}

/// True if this machine can code blocks by this backend.
inline bool runs_here(int backend)
{
    const uint8_t code = 0;
    uint8_t out[64];
    normans::block_spec spec;
    spec.dim = 1;
    encode_task<uint8_t> task{spec, normans::dense(spec, &code), {}, out, sizeof out, {}};
    const float mean = 0;
    task.predictor.means = {&mean, 1, 1, normans::any_means::fp32};
    task.predictor.sigmas = {&code, 1, 0, 0};
    encode_blocks(&task, 1, backend);
    return task.result.code != normans::status::bad_argument;
}

}  // namespace bench
