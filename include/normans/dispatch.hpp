#pragma once
// The codec compiled in advance for several instruction sets, the best one chosen at run time: link
// the optional target normans::dispatch. Same bytes as encode() and decode(). Takes array_predictor
// only, since a callable cannot be compiled in advance.

#include "host/block.hpp"

// Outside the namespace that is named after the unit's target: both sides of the link see the same.
// Structs cross as bytes; their layout does not depend on the target.
namespace normans_dispatch {

struct arguments {
    const void* spec;       // block_spec
    const void* predictor;  // array_predictor
    void* codes;            // uint8_t or uint16_t; only read when encoding
    std::size_t code_bytes;
    std::ptrdiff_t head_stride;
    std::ptrdiff_t token_stride;
    std::uint8_t* block;
    std::size_t bytes;  // capacity, or size of the block
    void* result;       // encode_result or decode_result
};

/// backend: a backend_id, or best. False if this machine cannot run it; then nothing is done.
constexpr int best = -1;
bool encode(int backend, const arguments& call) noexcept;
bool decode(int backend, const arguments& call) noexcept;

}  // namespace normans_dispatch

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace dispatch {

/// As normans::encode. `backend` forces one, for tests: bad_argument where it cannot run.
template <class Code>
encode_result encode(const block_spec& spec, box_view<Code> codes, const array_predictor& predictor,
                     uint8_t* out, size_t capacity, int backend = normans_dispatch::best) noexcept
{
    encode_result result;
    auto* const data = const_cast<std::remove_const_t<Code>*>(codes.data);  // never written to
    normans_dispatch::encode(backend, {&spec, &predictor, data, sizeof(Code), codes.head_stride,
                                       codes.token_stride, out, capacity, &result});
    return result;
}

/// As normans::decode.
template <class Code>
decode_result decode(const block_spec& spec, const uint8_t* block, size_t bytes,
                     const array_predictor& predictor, box_view<Code> out,
                     int backend = normans_dispatch::best) noexcept
{
    decode_result result;
    normans_dispatch::decode(backend, {&spec, &predictor, out.data, sizeof(Code), out.head_stride,
                                       out.token_stride, const_cast<uint8_t*>(block), bytes,
                                       &result});
    return result;
}

}  // namespace dispatch
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
