#pragma once
// What the fuzz bodies share: an input read as numbers, a spec made of it. A body is
//     extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
// linked with libFuzzer, or with replay.cpp, which runs the corpus and seeded mutations of it.

#include <cstdio>
#include <cstdlib>

#include "field/page.hpp"

namespace fuzz {

using namespace normans;
using field::page;

/// Ends the program with a message; the driver keeps the input.
inline void require(bool condition, const char* message)
{
    if (condition) return;
    std::fprintf(stderr, "fuzz: %s\n", message);
    std::abort();
}

/// Reads numbers off the front; zeros when there is nothing left.
struct input {
    const uint8_t* next;
    const uint8_t* end;

    size_t left() const { return size_t(end - next); }
    uint32_t u8() { return left() != 0 ? *next++ : 0; }
    uint32_t u16()
    {
        const uint32_t low = u8();
        return low | u8() << 8;
    }
    uint32_t u32()
    {
        const uint32_t low = u16();
        return low | u16() << 16;
    }
};

inline const marginal_table& shared_marginal()
{
    static const marginal_table table = field::some_marginal(5);
    return table;
}

/// Tables for any spec of one: two, of which the first lacks symbols.
inline const order0_tables& shared_order0_tables()
{
    static order0_table memory[2];
    static const order0_tables tables = [] {
        for (uint32_t t = 0; t < 2; ++t) {
            uint32_t counts[256] = {};
            for (uint32_t s = 0; s < 256; ++s) counts[s] = t + (s % 16 < 9 ? 20 * (s % 5) : 0);
            uint16_t freq[256];
            require(order0_normalize(counts, freq) == status::ok &&
                        make_order0_table(freq, memory[t]) == status::ok,
                    "no table");
        }
        return order0_tables{memory, 2, 0};
    }();
    return tables;
}

/// Any spec, most of them possible, with at most 2,160 scalars.
inline block_spec read_spec(input& from)
{
    block_spec spec;
    spec.dtype = scalar_type(from.u8() % 8);
    const uint32_t size = from.u8();
    spec.heads = size % 4;
    spec.tokens = size / 4 % 16;
    spec.dim = from.u8() % 49;
    constexpr uint32_t lanes[] = {0, 1, 8, 16, 32, 8, 32, 7};
    spec.lanes = lanes[from.u8() % 8];
    spec.sigma_offset = from.u8() % 16 != 0 ? default_sigma_offset : int(from.u8()) - 128;
    const uint32_t flags = from.u8();
    spec.shape = shape_id(flags & 3);
    spec.marginal = spec.shape == shape_id::mixture_marginal ? &shared_marginal() : nullptr;
    spec.row_scale = (flags & 4) != 0;
    spec.content_check = (flags & 8) != 0;
    spec.parameter_hash = (flags & 16) != 0;
    spec.has_fingerprint = (flags & 32) != 0;
    spec.fingerprint = 0x4142434445464748;
    if ((flags & 64) != 0) {
        spec.coder = coder_id::order0;
        spec.parameter_hash = spec.parameter_hash && (flags & 3) == 3;  // impossible then
        if ((flags & 128) != 0) spec.tables = &shared_order0_tables();
    }
    return spec;
}

inline bool possible(const block_spec& spec)
{
    return detail::check_spec(spec) == status::ok;
}

/// A box in a larger piece of memory, rows and heads apart, the gaps filled with a known byte.
template <class Code>
struct gapped_box {
    static constexpr uint32_t gap = 3;
    static constexpr uint8_t filler = 0xe7;
    const block_spec& spec;
    ptrdiff_t token_stride, head_stride;
    std::vector<Code> memory;

    explicit gapped_box(const block_spec& s)
        : spec(s), token_stride(ptrdiff_t(s.dim) + gap),
          head_stride(token_stride * ptrdiff_t(s.tokens) + gap),
          memory(size_t(head_stride) * s.heads + 2 * gap, Code(filler * 0x0101u))
    {
    }

    box_view<Code> view() { return {memory.data() + gap, head_stride, token_stride}; }
    box_view<const Code> const_view() { return {memory.data() + gap, head_stride, token_stride}; }

    template <class Function>
    void for_each(Function f)
    {
        size_t i = 0;
        for (uint32_t h = 0; h < spec.heads; ++h) {
            for (uint32_t t = 0; t < spec.tokens; ++t) {
                const ptrdiff_t row = ptrdiff_t(h) * head_stride + ptrdiff_t(t) * token_stride;
                for (uint32_t d = 0; d < spec.dim; ++d, ++i) f(memory[gap + size_t(row) + d], i);
            }
        }
    }

    /// The codes; then the box is filled like the gaps, and all of it must be filler.
    std::vector<uint16_t> take()
    {
        std::vector<uint16_t> codes;
        for_each([&](Code& code, size_t) {
            codes.push_back(code);
            code = Code(filler * 0x0101u);
        });
        for (const Code code : memory)
            require(code == Code(filler * 0x0101u), "a code was written outside the box");
        return codes;
    }
};

template <class Backend = default_backend>
decode_result decode_any(const page& like, const uint8_t* block, size_t bytes,
                                std::vector<uint16_t>& codes)
{
    decode_result result;
    if (code_bytes(like.spec.dtype) == 1) {
        gapped_box<uint8_t> box(like.spec);
        result = decode<Backend>(like.spec, block, bytes, like.predictor(), box.view());
        codes = box.take();
    } else {
        gapped_box<uint16_t> box(like.spec);
        result = decode<Backend>(like.spec, block, bytes, like.predictor(), box.view());
        codes = box.take();
    }
    return result;
}

inline encode_result encode_any(const page& from, uint8_t* out, size_t capacity)
{
    if (code_bytes(from.spec.dtype) == 1) {
        gapped_box<uint8_t> box(from.spec);
        box.for_each([&](uint8_t& code, size_t i) { code = uint8_t(from.codes[i]); });
        return encode(from.spec, box.const_view(), from.predictor(), out, capacity);
    }
    gapped_box<uint16_t> box(from.spec);
    box.for_each([&](uint16_t& code, size_t i) { code = from.codes[i]; });
    return encode(from.spec, box.const_view(), from.predictor(), out, capacity);
}

}  // namespace fuzz
