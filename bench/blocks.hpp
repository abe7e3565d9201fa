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

}  // namespace bench
