#pragma once
// Blocks as files keep them whose reader has the spec of each: without what the spec says and
// without padding, 8 to 14 bytes less. That counts where pages are small or predicted well.
//
//    u8      block_mode | lanes << 2 | block_flags << 4      as in the header
//    u8      the window of row steps         if flagged
//    varint  payload_words                   coded blocks; others' follow from mode and count.
//                                            7 bits a byte, low ones first, as few bytes as do
//    u32     content_check                   if flagged
//    then the header's optional parts, row steps, states and words, of raw blocks the codes, each
//    in as many bytes as it has
//
// expand_block() gives back the block, bit for bit; only blocks are decoded.

#include "block.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// What a reader knows of a block beforehand.
struct compact_spec {
    scalar_type dtype;
    coder_id coder;
    uint64_t count;
    uint32_t tokens;  // of row steps
};

constexpr compact_spec compact_spec_of(const block_spec& spec)
{
    return {spec.dtype, spec.coder, count_of(spec), spec.tokens};
}

/// Sizes of the two forms of a block, in bytes.
struct [[nodiscard]] compact_result {
    status code = status::bad_argument;
    size_t compact_bytes = 0;
    size_t block_bytes = 0;
    block_header header{};
    constexpr explicit operator bool() const { return code == status::ok; }
};

namespace detail {

// A compact block: its own header, then what the block has from its fingerprint on, its row steps
// (`steps` bytes) and all behind them (`rest`).
struct compact_layout {
    size_t head;
    block_layout at;
    uint64_t before, steps, rest;

    compact_layout(const compact_spec& spec, const block_header& header, size_t head_bytes)
        : head(head_bytes),
          at(layout_of(header, spec.tokens)),
          before(at.row_steps - at.fingerprint),
          steps(header.flags & has_row_steps ? (uint64_t(spec.tokens) * header.rows.bits + 7) / 8
                                             : 0),
          rest(at.words - at.states + (header.mode == block_mode::raw
                                           ? raw_bytes(header.dtype, header.count)
                                           : 2 * uint64_t(header.payload_words)))
    {
    }

    uint64_t end() const { return head + before + steps + rest; }
};

constexpr size_t max_compact_head = 1 + 1 + 5 + 4;

inline size_t write_compact_head(const block_header& header, const uint8_t* block, uint8_t* to)
{
    size_t n = 0;
    to[n++] = block[2];
    if (header.flags & has_row_steps) to[n++] = block[3];
    if (header.mode == block_mode::coded) {
        uint32_t words = header.payload_words;
        for (; words >= 128; words >>= 7) to[n++] = uint8_t(words | 128);
        to[n++] = uint8_t(words);
    }
    if (!(header.flags & has_content_check)) return n;
    store_u32(to + n, header.content_check);
    return n + 4;
}

// The block's 16 bytes from a compact one's head, and how long that is.
inline status read_compact_head(const compact_spec& spec, const uint8_t* from, size_t bytes,
                                uint8_t* fixed, size_t& head)
{
    bool ended = false;
    head = 0;
    const auto take = [&]() -> uint8_t {
        ended |= head == bytes;
        return ended ? uint8_t(0) : from[head++];
    };
    const uint32_t tag = take(), flags = tag >> 4;
    fixed[0] = format_version;
    fixed[1] = uint8_t(uint32_t(spec.dtype) | uint32_t(spec.coder) << 4);
    fixed[2] = uint8_t(tag);
    fixed[3] = flags & has_row_steps ? take() : uint8_t(0);
    uint64_t words = 0;
    bool canonical = true;
    switch (block_mode(tag & 3)) {
    case block_mode::coded:
        for (unsigned shift = 0; canonical; shift += 7) {
            const uint32_t byte = take();
            words |= uint64_t(byte & 127) << shift;
            canonical = (byte != 0 || shift == 0) && (byte < 16 || shift < 28);
            if (byte < 128) break;
        }
        break;
    case block_mode::raw: words = (raw_bytes(spec.dtype, spec.count) + 1) / 2; break;
    case block_mode::constant: words = 1; break;
    case block_mode::predicted: break;
    }
    store_u32(fixed + 4, uint32_t(spec.count));
    store_u32(fixed + 8, uint32_t(words));
    store_u32(fixed + 12, 0);
    for (int i = 12; i < 16 && flags & has_content_check; ++i) fixed[i] = take();
    if (ended) return status::truncated;
    return canonical ? status::ok : status::bad_header;
}

inline bool valid(const compact_spec& spec)
{
    return valid_scalar(spec.dtype) && can_code(spec.coder, spec.dtype) &&
           spec.count <= 0x7fffffff;
}

// What a spec says of its blocks' headers.
inline status check_implied(const compact_spec& spec, const block_header& header)
{
    if (header.dtype != spec.dtype) return status::wrong_dtype;
    if (header.coder != spec.coder) return status::wrong_model;
    return header.count == spec.count ? status::ok : status::wrong_count;
}

}  // namespace detail

/// Writes the compact form of a block. output_too_small where that takes more than `capacity`
/// bytes (those of the block always do); for what is no block of this spec the statuses of
/// decode(). Nothing was written then.
inline compact_result compact_block(const compact_spec& spec, const uint8_t* block, size_t bytes,
                                    uint8_t* to, size_t capacity) noexcept
{
    compact_result result;
    if (!detail::valid(spec) || (to == nullptr && capacity != 0)) return result;
    result.code = read_block_header(block, bytes, result.header);
    if (result.code == status::ok) result.code = detail::check_implied(spec, result.header);
    if (result.code != status::ok) return result;
    uint8_t head[detail::max_compact_head];
    const detail::compact_layout compact(
        spec, result.header, detail::write_compact_head(result.header, block, head));
    if (compact.at.end > bytes) {
        result.code = status::truncated;
        return result;
    }
    result.compact_bytes = size_t(compact.end());
    result.block_bytes = size_t(compact.at.end);
    if (result.compact_bytes > capacity) {
        result.code = status::output_too_small;
        return result;
    }
    const auto put = [&](const uint8_t* from, uint64_t n) {
        std::memcpy(to, from, size_t(n));
        to += n;
    };
    put(head, compact.head);
    put(block + compact.at.fingerprint, compact.before);
    put(block + compact.at.row_steps, compact.steps);
    put(block + compact.at.states, compact.rest);
    return result;
}

/// What a compact block says of itself. `bytes` may go on behind it. truncated or bad_header where
/// there is none.
inline compact_result read_compact(const compact_spec& spec, const uint8_t* from,
                                   size_t bytes) noexcept
{
    compact_result result;
    if (!detail::valid(spec) || (from == nullptr && bytes != 0)) return result;
    uint8_t fixed[block_header_bytes];
    size_t head;
    result.code = detail::read_compact_head(spec, from, bytes, fixed, head);
    if (result.code == status::ok)
        result.code = read_block_header(fixed, sizeof fixed, result.header);
    if (result.code != status::ok) return result;
    const detail::compact_layout compact(spec, result.header, head);
    if (compact.end() > bytes) {
        result.code = status::truncated;
        return result;
    }
    result.compact_bytes = size_t(compact.end());
    result.block_bytes = size_t(compact.at.end);
    return result;
}

/// Writes the block that a compact one stands for; decode() sees what damage is left in it.
/// Statuses as read_compact(), and output_too_small where block_bytes are more than `capacity`;
/// nothing was written then. max_encoded_bytes() are always enough.
inline compact_result expand_block(const compact_spec& spec, const uint8_t* from, size_t bytes,
                                   uint8_t* block, size_t capacity) noexcept
{
    compact_result result = read_compact(spec, from, bytes);
    if (!result) return result;
    if (result.block_bytes > capacity || block == nullptr) {
        result.code = block == nullptr ? status::bad_argument : status::output_too_small;
        return result;
    }
    size_t head;
    static_cast<void>(detail::read_compact_head(spec, from, bytes, block, head));
    const detail::compact_layout compact(spec, result.header, head);
    from += head;
    const auto put = [&](uint64_t first, uint64_t n, uint64_t end) {
        std::memcpy(block + first, from, size_t(n));
        std::memset(block + first + n, 0, size_t(end - first - n));
        from += n;
    };
    put(compact.at.fingerprint, compact.before, compact.at.row_steps);
    put(compact.at.row_steps, compact.steps, compact.at.states);
    put(compact.at.states, compact.rest, compact.at.end);
    return result;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
