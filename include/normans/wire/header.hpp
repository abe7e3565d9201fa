#pragma once
// Every byte that is not a state, a row step or a word. Little-endian by rule, at any address.
//
// A block:   0  u8   format_version
//            1  u8   scalar_type | coder << 4
//            2  u8   block_mode | lanes << 2 | block_flags << 4      lanes: 0, 1, 2, 3 are
//                                             1, 8, 16, 32
//            3  u8   lowest row step + 6 | bits << 4      if flagged; else 0
//            4  u32  count                    scalars
//            8  u32  payload_words            16-bit words behind the states (or of raw codes)
//           12  u32  content_check            0 where block_flags says there is none
//           16  u64  fingerprint              if flagged
//               u32  parameter_hash           if flagged; coded and predicted blocks only
//               row steps                     if flagged; coded only; per token `bits` (0 .. 4)
//                                             bits, lowest first: its step less the lowest one;
//                                             zero-padded to 4 bytes
//               u32  states[lanes]            coded only; tANS: see core/tans_format.hpp
//               u16  words[payload_words]     ascending in the decoder's order, zero-padded to 4;
//                                             order 0: see host/order0_block.hpp
// A block says its own type, lanes and count, so that a mix-up is an error. The geometry, offset
// and shape, equal for thousands of blocks, stand once in the stream header or the caller's spec.

#include "../core/float_bank_rows.hpp"
#include "../core/format.hpp"
#include "../core/scalar.hpp"
#include "../core/shape.hpp"
#include "../core/sigma.hpp"
#include "../status.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// 0 until the CUDA decoder reads it; any change of bytes after that is a new version.
constexpr uint8_t format_version = 0;

enum class block_mode : uint8_t {
    coded,      // by the header's coder
    raw,        // the codes in scalar order
    constant,   // one code, as one word
    predicted,  // every scalar is the code nearest to its mean: nothing is stored
};

/// Where a block's row steps lie: from nibble `lowest` (step + 6) on, 2^bits of them.
struct row_step_window {
    uint8_t lowest = 6;  // step 0: that of blocks without row steps
    uint8_t bits = 0;
};

NORMANS_HD constexpr bool valid_window(const row_step_window& window)
{
    return window.bits <= 4 && window.lowest + (1u << window.bits) <= 16;
}

enum class coder_id : uint8_t { rans, tans, order0 };

enum block_flags : uint8_t {
    has_row_steps = 1,
    has_content_check = 2,
    has_parameter_hash = 4,
    has_fingerprint = 8,
};

/// tANS has banks for types of at most 8 bits; order 0, rANS under static tables, takes all types.
NORMANS_HD constexpr bool can_code(coder_id coder, scalar_type dtype)
{
    return coder == coder_id::rans || coder == coder_id::order0 ||
           (coder == coder_id::tans && (format_of(dtype).is_integer || has_float_bank(dtype)));
}

constexpr size_t block_header_bytes = 16;

struct block_header {
    scalar_type dtype;
    block_mode mode;
    uint8_t flags;
    uint32_t lanes;
    uint32_t count;
    uint32_t payload_words;
    uint32_t content_check;
    coder_id coder = coder_id::rans;
    row_step_window rows{};
};

namespace detail {

NORMANS_HD inline uint32_t load_u32(const uint8_t* from)
{
    return uint32_t(from[0]) | uint32_t(from[1]) << 8 | uint32_t(from[2]) << 16 |
           uint32_t(from[3]) << 24;
}

NORMANS_HD inline void store_u32(uint8_t* to, uint32_t value)
{
    for (int i = 0; i < 4; ++i) to[i] = uint8_t(value >> 8 * i);
}

NORMANS_HD inline uint64_t load_u64(const uint8_t* from)
{
    return load_u32(from) | uint64_t(load_u32(from + 4)) << 32;
}

NORMANS_HD inline void store_u64(uint8_t* to, uint64_t value)
{
    store_u32(to, uint32_t(value));
    store_u32(to + 4, uint32_t(value >> 32));
}

NORMANS_HD constexpr uint64_t round_up_4(uint64_t bytes) { return (bytes + 3) & ~uint64_t(3); }

// 1, 8, 16, 32 as 0 .. 3, and back.
NORMANS_HD constexpr uint32_t pack_lanes(uint32_t lanes) { return lanes / 16 + (lanes >= 8); }
NORMANS_HD constexpr uint32_t unpack_lanes(uint32_t code) { return code == 0 ? 1 : 4u << code; }

}  // namespace detail

/// Writes 16 bytes.
NORMANS_HD inline void write_block_header(const block_header& header, uint8_t* to)
{
    to[0] = format_version;
    to[1] = uint8_t(uint32_t(header.dtype) | uint32_t(header.coder) << 4);
    to[2] = uint8_t(uint32_t(header.mode) | detail::pack_lanes(header.lanes) << 2 |
                    uint32_t(header.flags) << 4);
    to[3] = header.flags & has_row_steps ? uint8_t(header.rows.lowest | header.rows.bits << 4)
                                         : uint8_t(0);
    detail::store_u32(to + 4, header.count);
    detail::store_u32(to + 8, header.payload_words);
    detail::store_u32(to + 12, header.content_check);
}

/// truncated, unsupported_version or bad_header where the 16 bytes contradict themselves.
[[nodiscard]] NORMANS_HD inline status read_block_header(const uint8_t* from, size_t bytes,
                                                         block_header& header)
{
    if (from == nullptr || bytes < block_header_bytes) return status::truncated;
    if (from[0] != format_version) return status::unsupported_version;
    header.dtype = scalar_type(from[1] & 15);
    header.coder = coder_id(from[1] >> 4);
    header.mode = block_mode(from[2] & 3);
    header.lanes = detail::unpack_lanes(from[2] >> 2 & 3);
    header.flags = uint8_t(from[2] >> 4);
    header.rows = {};
    if (header.flags & has_row_steps) header.rows = {uint8_t(from[3] & 15), uint8_t(from[3] >> 4)};
    header.count = detail::load_u32(from + 4);
    header.payload_words = detail::load_u32(from + 8);
    header.content_check = detail::load_u32(from + 12);

    if (!valid_scalar(header.dtype) || !can_code(header.coder, header.dtype) ||
        !valid_window(header.rows) || (!(header.flags & has_row_steps) && from[3] != 0))
        return status::bad_header;
    const bool coded = header.mode == block_mode::coded;
    const bool modelled = coded || header.mode == block_mode::predicted;
    const bool predicts = header.coder != coder_id::order0;
    if ((header.flags & has_row_steps && !coded) ||
        (header.flags & has_parameter_hash && !modelled) ||
        (!(header.flags & has_content_check) && header.content_check != 0) ||
        (!predicts && (header.flags & (has_row_steps | has_parameter_hash) ||
                       header.mode == block_mode::predicted)) ||
        (modelled && ((predicts && !has_model(header.dtype)) || header.count == 0)))
        return status::bad_header;
    const uint64_t raw_words = (raw_bytes(header.dtype, header.count) + 1) / 2;
    if ((header.mode == block_mode::raw && header.payload_words != raw_words) ||
        (header.mode == block_mode::constant && (header.payload_words != 1 || header.count == 0)) ||
        (header.mode == block_mode::predicted && header.payload_words != 0) ||
        header.payload_words > raw_words)  // nothing longer than raw is ever written
        return status::bad_header;
    return status::ok;
}

/// Offsets of a block's parts from its first byte, in bytes.
struct block_layout {
    uint64_t fingerprint, parameter_hash, row_steps, states, words, end;
};

/// Bytes of the row steps of a block.
NORMANS_HD constexpr uint64_t row_step_bytes(uint32_t tokens, uint32_t bits)
{
    return detail::round_up_4((uint64_t(tokens) * bits + 7) / 8);
}

/// `tokens`: how many row steps the block holds, if it holds any.
NORMANS_HD constexpr block_layout layout_of(const block_header& header, uint32_t tokens)
{
    block_layout at{};
    at.fingerprint = block_header_bytes;
    at.parameter_hash = at.fingerprint + (header.flags & has_fingerprint ? 8 : 0);
    at.row_steps = at.parameter_hash + (header.flags & has_parameter_hash ? 4 : 0);
    at.states = at.row_steps +
                (header.flags & has_row_steps ? row_step_bytes(tokens, header.rows.bits) : 0);
    at.words = at.states + (header.mode == block_mode::coded ? 4 * header.lanes : 0);
    at.end = detail::round_up_4(at.words + 2 * uint64_t(header.payload_words));
    return at;
}

/// What the blocks of a file or batch have in common. 40 bytes:
///     0 u32 magic  4 u8 format_version  5 u8 scalar_type | coder << 4  6 u8 precision_bits
///     7 u8 shape  8 i8 sigma_offset  9 u8 lanes (0: each block's own)
///    10 u16 tANS: the bank's plan (pack_plan); else zero
///    12 u32 heads  16 u32 tokens per block  20 u32 dim  24 u64 fingerprint  32 u64 check
struct stream_header {
    scalar_type dtype = scalar_type::e4m3fn;
    shape_id shape = shape_id::gaussian;
    int sigma_offset = default_sigma_offset;
    uint32_t lanes = 0;
    uint32_t heads = 1;
    uint32_t tokens = 0;
    uint32_t dim = 1;
    uint64_t fingerprint = 0;
    coder_id coder = coder_id::rans;
    bank_plan plan{};  // tANS only; its shape is `shape`
};

constexpr size_t stream_header_bytes = 40;
constexpr uint32_t stream_magic = 0x534d524e;  // "NRMS"

/// 64 bits over bytes (multiply, xor-shift): a name for contents, no protection against intent.
NORMANS_HD inline uint64_t fingerprint_of(const uint8_t* data, size_t bytes)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ bytes;
    for (size_t i = 0; i < bytes; ++i) {
        hash = (hash ^ data[i]) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    return hash;
}

/// Writes 40 bytes.
NORMANS_HD inline void write_stream_header(const stream_header& header, uint8_t* to)
{
    detail::store_u32(to, stream_magic);
    to[4] = format_version;
    to[5] = uint8_t(uint32_t(header.dtype) | uint32_t(header.coder) << 4);
    to[6] = uint8_t(rans_format::precision_bits);
    to[7] = uint8_t(header.shape);
    to[8] = uint8_t(header.sigma_offset);
    to[9] = uint8_t(header.lanes);
    const uint16_t plan = header.coder == coder_id::tans ? pack_plan(header.plan) : uint16_t(0);
    to[10] = uint8_t(plan);
    to[11] = uint8_t(plan >> 8);
    detail::store_u32(to + 12, header.heads);
    detail::store_u32(to + 16, header.tokens);
    detail::store_u32(to + 20, header.dim);
    detail::store_u64(to + 24, header.fingerprint);
    detail::store_u64(to + 32, fingerprint_of(to, 32));
}

/// Each field has its own error, given before anything is decoded: bad_header (magic, check, an
/// impossible field), unsupported_version, wrong_dtype (no such type), wrong_model (precision,
/// shape, offset, plan), wrong_lanes.
[[nodiscard]] NORMANS_HD inline status read_stream_header(const uint8_t* from, size_t bytes,
                                                          stream_header& header)
{
    if (from == nullptr || bytes < stream_header_bytes) return status::truncated;
    if (detail::load_u32(from) != stream_magic) return status::bad_header;
    if (from[4] != format_version) return status::unsupported_version;
    header.dtype = scalar_type(from[5] & 15);
    if (!valid_scalar(header.dtype)) return status::wrong_dtype;
    header.shape = shape_id(from[7]);
    header.sigma_offset = from[8] < 128 ? from[8] : int(from[8]) - 256;
    if (from[6] != rans_format::precision_bits || !valid_shape(header.shape) ||
        header.sigma_offset < min_sigma_offset || header.sigma_offset > max_sigma_offset)
        return status::wrong_model;
    header.lanes = from[9];
    if (header.lanes != 0 && !valid_lanes(header.lanes)) return status::wrong_lanes;
    header.heads = detail::load_u32(from + 12);
    header.tokens = detail::load_u32(from + 16);
    header.dim = detail::load_u32(from + 20);
    header.fingerprint = detail::load_u64(from + 24);
    const uint32_t plan = uint32_t(from[10]) | uint32_t(from[11]) << 8;
    header.coder = coder_id(from[5] >> 4);
    header.plan = {};
    if (!can_code(header.coder, header.dtype)) return status::bad_header;
    if (header.coder == coder_id::tans) {
        header.plan = unpack_plan(header.shape, plan);
        if (!valid_plan(header.dtype, header.plan) || pack_plan(header.plan) != plan)
            return status::wrong_model;
    }
    if ((header.coder != coder_id::tans && plan != 0) ||
        detail::load_u64(from + 32) != fingerprint_of(from, 32))
        return status::bad_header;
    return status::ok;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
