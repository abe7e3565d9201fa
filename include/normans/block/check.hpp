#pragma once
// What a block says of itself against what the caller expects: once, for host and device. Reads
// nothing behind the bytes that the caller says are there.

#include "block.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

NORMANS_HD inline bool all_zero(const uint8_t* bytes, uint64_t from, uint64_t to)
{
    uint8_t any = 0;
    for (uint64_t i = from; i < to; ++i) any = uint8_t(any | bytes[i]);
    return any == 0;
}

NORMANS_HD constexpr bool valid_state(uint32_t state)
{
    return state >= rans_format::lower_bound && state >> 31 == 0;
}

NORMANS_HD inline bool wants_hash(const block_spec& spec, const block_header& header)
{
    return spec.parameter_hash &&
           (header.mode == block_mode::coded || header.mode == block_mode::predicted);
}

/// Header, geometry, length, fingerprint and padding of a block; all but its states. Fills in
/// header, layout, and what `result` says of the block as far as it got. `spec` passed check_spec.
NORMANS_HD inline status check_block(const block_spec& spec, const uint8_t* block, size_t bytes,
                                     block_header& header, block_layout& layout,
                                     decode_result& result)
{
    const status parsed = read_block_header(block, bytes, header);
    if (parsed != status::ok) return parsed;
    result.mode = header.mode;
    result.lanes = header.lanes;
    result.row_scaled = (header.flags & has_row_steps) != 0;
    if (header.dtype != spec.dtype) return status::wrong_dtype;
    if (header.count != count_of(spec)) return status::wrong_count;
    if (spec.lanes != 0 && header.lanes != spec.lanes) return status::wrong_lanes;
    if (header.coder != spec.coder ||
        spec.content_check != ((header.flags & has_content_check) != 0) ||
        wants_hash(spec, header) != ((header.flags & has_parameter_hash) != 0) ||
        spec.has_fingerprint != ((header.flags & has_fingerprint) != 0) ||
        (result.row_scaled && !spec.row_scale))
        return status::wrong_model;
    layout = layout_of(header, spec.tokens);
    if (layout.end > bytes) return status::truncated;
    result.bytes = size_t(layout.end);
    if (spec.has_fingerprint && load_u64(block + layout.fingerprint) != spec.fingerprint)
        return status::wrong_fingerprint;
    const uint64_t stored_end =
        layout.words + (header.mode == block_mode::raw
                            ? raw_bytes(header.dtype, header.count)
                            : 2 * uint64_t(header.payload_words));
    if (!all_zero(block, stored_end, layout.end)) return status::corrupt_stream;
    const uint64_t step_bits = uint64_t(spec.tokens) * header.rows.bits, part = step_bits % 8;
    const uint64_t used = layout.row_steps + step_bits / 8;
    if ((part != 0 && block[used] >> part != 0) ||
        !all_zero(block, used + (part != 0 ? 1 : 0), layout.states))
        return status::corrupt_stream;
    return status::ok;
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
