#pragma once
// Blocks as files keep them whose reader has the spec of each: without what the spec says, without
// padding, states in the bits that they have. With 8 lanes that is about 15 bytes less, with 32
// about 30, which counts where pages are small or predicted well.
//
//    u8      block_mode | lanes << 2 | block_flags << 4      as in the header
//    u8      the window of row steps         if flagged
//    varint  payload_words                   coded blocks; others' follow from mode and count.
//                                            7 bits a byte, low ones first, as few bytes as do
//    u32     content_check                   if flagged
//    the header's optional parts; row steps, in as many bytes as they have
//    states                                  coded blocks: lane by lane 4 bits e, then 15 + e low
//                                            bits of a state in [2^15, 2^31); tANS: e low bits of
//                                            the reservoir, which has e + 1, and 12 of the cell.
//                                            Low bits first; zeros to the end of a byte
//    words; of raw blocks the codes          in as many bytes as they have
//
// States are as likely to have any length, so that e has no shorter form. expand_block() gives back
// the block, bit for bit; only blocks are decoded.

#include "check.hpp"

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

// Bits into bytes, low ones first.
class bit_writer {
public:
    explicit bit_writer(uint8_t* to) : to_(to) {}

    void put(uint32_t value, unsigned count)
    {
        kept_ |= uint64_t(value) << filled_;
        for (filled_ += count; filled_ >= 8; filled_ -= 8, kept_ >>= 8) *to_++ = uint8_t(kept_);
    }
    /// Behind the last bits.
    uint8_t* end()
    {
        if (filled_ != 0) put(0, 8 - filled_);
        return to_;
    }

private:
    uint8_t* to_;
    uint64_t kept_ = 0;
    unsigned filled_ = 0;
};

class bit_reader {
public:
    bit_reader(const uint8_t* from, size_t bytes) : next_(from), end_(from + bytes) {}

    uint32_t take(unsigned count)
    {
        for (; filled_ < count; filled_ += 8) {
            truncated |= next_ == end_;
            kept_ |= uint64_t(truncated ? 0 : *next_++) << filled_;
        }
        const uint32_t value = uint32_t(kept_ & ((uint64_t(1) << count) - 1));
        kept_ >>= count;
        filled_ -= count;
        return value;
    }
    bool only_zeros_left() const { return kept_ == 0; }  // of the last byte
    const uint8_t* next() const { return next_; }

    bool truncated = false;

private:
    const uint8_t* next_;
    const uint8_t* end_;
    uint64_t kept_ = 0;
    unsigned filled_ = 0;
};

// A coder's stored states: `fixed` bits that every one has, then those up to a highest one.
struct packed_states {
    unsigned fixed;  // of a rANS state; tANS: 0, and the cell's follow
    unsigned cell;

    explicit packed_states(coder_id coder)
        : fixed(coder == coder_id::tans ? 0 : rans_format::precision_bits),
          cell(coder == coder_id::tans ? tans_format::max_table_bits : 0)
    {
    }

    // False if it is none that an encoder stores.
    bool put(uint32_t state, bit_writer& to) const
    {
        const uint32_t low = cell != 0 ? state & 0xffff : state, high = cell != 0 ? state >> 16 : 0;
        if (low >> fixed == 0 || low >> (fixed + 16) != 0 || high >> cell != 0) return false;
        const unsigned more = log2_floor(low >> fixed);
        to.put(more, 4);
        to.put(low - (uint32_t(1) << (fixed + more)), fixed + more);
        to.put(high, cell);
        return true;
    }
    uint32_t take(bit_reader& from) const
    {
        const unsigned bits = fixed + from.take(4);
        const uint32_t low = (uint32_t(1) << bits) + from.take(bits);
        return low | from.take(cell) << 16;
    }
};

constexpr size_t max_packed_states = (4 + 30) * max_lanes / 8;

// A compact block: its own header, then what the block has from its fingerprint on, its row steps
// (`steps` bytes), states, and all behind them (`rest`).
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
          rest(header.mode == block_mode::raw ? raw_bytes(header.dtype, header.count)
                                              : 2 * uint64_t(header.payload_words))
    {
    }

    uint64_t states() const { return head + before + steps; }
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

/// Bytes that always suffice for the compact form of a block of that many: 32 states can take 8
/// more than in the block, a header takes at least 5 less.
constexpr size_t max_compact_bytes(size_t block_bytes) { return block_bytes + 3; }

/// Writes the compact form of a block. output_too_small where that takes more than `capacity`
/// bytes; for what is no block of this spec the statuses of
/// decode(). Nothing was written then.
inline compact_result compact_block(const compact_spec& spec, const uint8_t* block, size_t bytes,
                                    uint8_t* to, size_t capacity) noexcept
{
    compact_result result;
    if (!detail::valid(spec) || (to == nullptr && capacity != 0)) return result;
    block_header& header = result.header;
    result.code = read_block_header(block, bytes, header);
    if (result.code == status::ok) result.code = detail::check_implied(spec, header);
    if (result.code != status::ok) return result;
    uint8_t head[detail::max_compact_head], states[detail::max_packed_states];
    const detail::compact_layout compact(spec, header,
                                         detail::write_compact_head(header, block, head));
    if (compact.at.end > bytes) {
        result.code = status::truncated;
        return result;
    }
    // What is not kept must be what expand_block() puts there.
    if (!detail::all_zero(block, compact.at.row_steps + compact.steps, compact.at.states) ||
        !detail::all_zero(block, compact.at.words + compact.rest, compact.at.end)) {
        result.code = status::corrupt_stream;
        return result;
    }
    const detail::packed_states packed(header.coder);
    detail::bit_writer bits(states);
    for (uint64_t at = compact.at.states; at != compact.at.words; at += 4) {
        if (packed.put(detail::load_u32(block + at), bits)) continue;
        result.code = status::corrupt_stream;
        return result;
    }
    const size_t states_bytes = size_t(bits.end() - states);
    result.compact_bytes = size_t(compact.states() + states_bytes + compact.rest);
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
    put(states, states_bytes);
    put(block + compact.at.words, compact.rest);
    return result;
}

namespace detail {

// Reads a compact block; its states go to `stored` [lanes], little-endian.
struct compact_reading {
    compact_result result;
    uint8_t fixed[block_header_bytes];
    uint8_t stored[4 * max_lanes];
    size_t head = 0, words = 0;  // where its parts begin

    compact_reading(const compact_spec& spec, const uint8_t* from, size_t bytes)
    {
        if (valid(spec) && (from != nullptr || bytes == 0)) result.code = read(spec, from, bytes);
    }

private:
    status read(const compact_spec& spec, const uint8_t* from, size_t bytes)
    {
        block_header& header = result.header;
        status code = read_compact_head(spec, from, bytes, fixed, head);
        if (code == status::ok) code = read_block_header(fixed, sizeof fixed, header);
        if (code != status::ok) return code;
        const compact_layout compact(spec, header, head);
        if (compact.states() + compact.rest > bytes) return status::truncated;
        words = size_t(compact.states());
        if (header.mode == block_mode::coded) {
            const packed_states packed(header.coder);
            bit_reader bits(from + words, bytes - words);
            for (uint32_t i = 0; i < header.lanes; ++i)
                store_u32(stored + 4 * i, packed.take(bits));
            if (bits.truncated) return status::truncated;
            if (!bits.only_zeros_left()) return status::corrupt_stream;
            words = size_t(bits.next() - from);
        }
        if (compact.rest > bytes - words) return status::truncated;
        result.compact_bytes = words + size_t(compact.rest);
        result.block_bytes = size_t(compact.at.end);
        return status::ok;
    }
};

}  // namespace detail

/// What a compact block says of itself. `bytes` may go on behind it. truncated, bad_header or
/// corrupt_stream (of states) where there is none.
inline compact_result read_compact(const compact_spec& spec, const uint8_t* from,
                                   size_t bytes) noexcept
{
    return detail::compact_reading(spec, from, bytes).result;
}

/// Writes the block that a compact one stands for; decode() sees what damage is left in it.
/// Statuses as read_compact(), and output_too_small where block_bytes are more than `capacity`;
/// nothing was written then. max_encoded_bytes() are always enough.
inline compact_result expand_block(const compact_spec& spec, const uint8_t* from, size_t bytes,
                                   uint8_t* block, size_t capacity) noexcept
{
    const detail::compact_reading read(spec, from, bytes);
    compact_result result = read.result;
    if (!result) return result;
    if (block == nullptr && capacity != 0) result.code = status::bad_argument;
    else if (result.block_bytes > capacity) result.code = status::output_too_small;
    if (!result) return result;
    const detail::compact_layout compact(spec, result.header, read.head);
    const auto put = [&](uint64_t first, const uint8_t* data, uint64_t n, uint64_t end) {
        std::memcpy(block + first, data, size_t(n));
        std::memset(block + first + n, 0, size_t(end - first - n));
    };
    const block_layout& at = compact.at;
    from += read.head;
    std::memcpy(block, read.fixed, sizeof read.fixed);
    put(at.fingerprint, from, compact.before, at.row_steps);
    put(at.row_steps, from + compact.before, compact.steps, at.states);
    put(at.states, read.stored, at.words - at.states, at.words);
    put(at.words, from - read.head + read.words, compact.rest, at.end);
    return result;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
