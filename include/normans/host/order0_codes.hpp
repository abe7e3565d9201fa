#pragma once
// Codes of a box as order 0 takes them: 4, 8 or 16 bits wide.

#include "../block/block.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// Codes in memory, whatever their width. Byte is const when encoding.
template <class Byte>
struct order0_codes {
    Byte* data;
    ptrdiff_t head_stride, token_stride;  // in codes
    uint32_t bits;                        // 4, 8 or 16

    uint32_t planes() const { return bits == 16 ? 2 : 1; }
    uint32_t load(ptrdiff_t i) const
    {
        if (bits == 4) return uint32_t(data[i >> 1]) >> (i & 1) * 4 & 15u;
        if (bits == 8) return data[i];
        uint16_t code;
        std::memcpy(&code, data + 2 * i, 2);
        return code;
    }
    void store(ptrdiff_t i, uint32_t code) const
    {
        if (bits == 4) {
            Byte& to = data[i >> 1];
            to = uint8_t(i & 1 ? (to & 15u) | code << 4 : (to & 0xf0u) | (code & 15u));
        } else if (bits == 8) {
            data[i] = uint8_t(code);
        } else {
            const auto wide = uint16_t(code);
            std::memcpy(data + 2 * i, &wide, 2);
        }
    }
    // Codes of 4 bits, from code i on, a byte each.
    void load_halves(ptrdiff_t i, uint32_t count, uint8_t* to) const
    {
        for (; count != 0 && (i & 1) != 0; --count) *to++ = uint8_t(load(i++));
        for (; count >= 8; count -= 8, i += 8, to += 8) {
            uint64_t eight = load_u32(data + (i >> 1));
            eight = (eight | eight << 16) & 0x0000ffff0000ffff;
            eight = (eight | eight << 8) & 0x00ff00ff00ff00ff;
            store_u64(to, (eight | eight << 4) & 0x0f0f0f0f0f0f0f0f);
        }
        for (; count != 0; --count) *to++ = uint8_t(load(i++));
    }
    void store_halves(ptrdiff_t i, uint32_t count, const uint8_t* from) const
    {
        for (; count != 0 && (i & 1) != 0; --count) store(i++, *from++);
        for (; count >= 8; count -= 8, i += 8, from += 8) {
            uint64_t eight = load_u64(from) & 0x0f0f0f0f0f0f0f0f;
            eight = (eight | eight >> 4) & 0x00ff00ff00ff00ff;
            eight = (eight | eight >> 8) & 0x0000ffff0000ffff;
            store_u32(data + (i >> 1), uint32_t(eight | eight >> 16));
        }
        for (; count != 0; --count) store(i++, *from++);
    }
    // Codes of 16 bits, the bytes of each apart. By eights, which compilers put into registers.
    void load_bytes(ptrdiff_t i, uint32_t count, uint8_t* high, uint8_t* low) const
    {
        for (; count >= 8; count -= 8, i += 8, high += 8, low += 8) {
            uint16_t codes[8];
            uint8_t bytes[2][8];
            std::memcpy(codes, data + 2 * i, sizeof codes);
            for (uint32_t k = 0; k < 8; ++k) bytes[0][k] = uint8_t(codes[k] >> 8);
            for (uint32_t k = 0; k < 8; ++k) bytes[1][k] = uint8_t(codes[k]);
            std::memcpy(high, bytes[0], 8);
            std::memcpy(low, bytes[1], 8);
        }
        for (; count != 0; --count) {
            const uint32_t code = load(i++);
            *high++ = uint8_t(code >> 8);
            *low++ = uint8_t(code);
        }
    }
    void store_bytes(ptrdiff_t i, uint32_t count, const uint8_t* high, const uint8_t* low) const
    {
        for (; count >= 8; count -= 8, i += 8, high += 8, low += 8) {
            uint16_t codes[8];
            uint8_t bytes[2][8];
            std::memcpy(bytes[0], high, 8);
            std::memcpy(bytes[1], low, 8);
            for (uint32_t k = 0; k < 8; ++k)
                codes[k] = uint16_t(uint32_t(bytes[0][k]) << 8 | bytes[1][k]);
            std::memcpy(data + 2 * i, codes, sizeof codes);
        }
        for (; count != 0; --count) store(i++, uint32_t(*high++) << 8 | *low++);
    }
    ptrdiff_t place(const scalar_position& at) const
    {
        return offset_of(at, head_stride, token_stride);
    }
};

// Runs f(i, place) for `count` scalars from the walker's on.
template <class Byte, class Function>
void for_codes(const box_walker& walker, uint32_t count, const order0_codes<Byte>& codes,
               Function f)
{
    for_runs(walker, count, [&](uint32_t done, const scalar_position& at, uint32_t length) {
        const ptrdiff_t place = codes.place(at);
        for (uint32_t i = 0; i < length; ++i) f(done + i, place + ptrdiff_t(i));
    });
}

// Codes of raw and constant blocks: packed as in memory.
template <class Byte>
order0_codes<Byte> order0_packed(Byte* data, uint32_t bits)
{
    return {data, 0, 0, bits};
}

inline uint32_t load_packed(const uint8_t* from, uint32_t bits, uint32_t i)
{
    if (bits == 16) return load_word(from + 2 * size_t(i));
    return order0_packed(from, bits).load(ptrdiff_t(i));
}

inline uint32_t order0_bits(scalar_type type) { return format_of(type).code_bits; }

}  // namespace detail

/// Adds a block's symbols to `counts`: an array for each of the order0_tables_needed() tables that
/// the spec's channels take in groups of `group`. From there order0_normalize and make_order0_table
/// make tables. `spec` must be one that encode() takes.
template <class Code>
void add_order0_counts(const block_spec& spec, box_view<const Code> box, uint32_t group,
                       uint32_t (*counts)[order0_symbols])
{
    if (count_of(spec) == 0) return;
    const void* const data = box.data;
    const detail::order0_codes<const uint8_t> codes{static_cast<const uint8_t*>(data),
                                                    box.head_stride, box.token_stride,
                                                    detail::order0_bits(spec.dtype)};
    const uint32_t planes = codes.planes();
    detail::for_runs(
        detail::box_walker(spec, 0), uint32_t(count_of(spec)),
        [&](uint32_t, const scalar_position& at, uint32_t length) {
            const uint64_t channel = uint64_t(at.head) * spec.dim + at.channel;
            for (uint32_t i = 0; i < length; ++i) {
                const uint32_t code = codes.load(codes.place(at) + ptrdiff_t(i));
                const uint64_t table = group == 0 ? 0 : (channel + i) / group * planes;
                if (planes == 2) ++counts[table][code >> 8];
                ++counts[table + planes - 1][code & 0xff];
            }
        });
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
