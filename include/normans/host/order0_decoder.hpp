#pragma once
// decode() for order 0.

#include "order0_bundle.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// Blocks of a call: what a decoder gets of each. `codes` has the spec's bits.
struct order0_decode_call {
    const block_spec* spec;
    const uint8_t* block;
    size_t bytes;
    order0_codes<uint8_t> codes;
    decode_result* result;
};

inline status copy_order0(const order0_reading& block, const uint8_t* from, uint32_t& check)
{
    const uint32_t bits = block.codes.bits, count = block.header.count;
    const bool raw = block.header.mode == block_mode::raw;
    check_sums sums;
    for_codes(box_walker(*block.spec, 0), count, block.codes, [&](uint32_t i, ptrdiff_t place) {
        const uint32_t code = load_packed(from, bits, raw ? i : 0);
        block.codes.store(place, code);
        sums.lane[i % block.lanes()].add(code);
    });
    check = sums.total(block.lanes());
    // What a byte or word has beyond its codes is 0.
    if (!raw) return load_word(from) >> bits == 0 ? status::ok : status::corrupt_stream;
    const bool half = bits == 4 && count % 2 != 0;
    return half && from[count / 2] >> 4 != 0 ? status::corrupt_stream : status::ok;
}

// States and words of a coded block; its own tables, if it has some, into `tables`.
inline status open_order0(order0_reading& block, const uint8_t* bytes, order0_table* tables)
{
    for (uint32_t i = 0; i < max_lanes; ++i)
        block.state[i] = i < block.lanes() ? load_u32(bytes + block.layout.states + 4 * i)
                                           : rans_format::lower_bound;
    for (const uint32_t state : block.state)
        if (!valid_state(state)) return status::corrupt_stream;
    const uint8_t* const words = bytes + block.layout.words;
    uint32_t left = block.header.payload_words - 1;
    const uint32_t table_words = load_word(words);
    if (table_words > left) return status::corrupt_stream;
    block.reader = {words + 2 + 2 * size_t(table_words), words + 2 + 2 * size_t(left)};
    if (table_words == 0) return status::ok;
    left = table_words;
    for (uint32_t plane = 0; plane < block.codes.planes(); ++plane) {
        uint16_t freq[order0_symbols];
        uint32_t used = 0;
        const status read = read_order0_freqs(words + 2 + 2 * size_t(table_words - left), left,
                                              block.codes.bits == 4 ? 16 : 256, freq, used);
        if (read != status::ok || make_order0_table(freq, tables[plane]) != status::ok)
            return status::corrupt_stream;
        left -= used;
        block.own[plane] = &tables[plane];
    }
    return left == 0 ? status::ok : status::corrupt_stream;
}

inline void finish_order0(const order0_reading& block, decode_result& result, backend_id backend)
{
    bool clean = !block.reader.overrun && block.reader.next == block.reader.end;
    for (const uint32_t state : block.state) clean &= state == rans_format::lower_bound;
    result.backend = backend;
    if (!clean)
        result.code = status::corrupt_stream;
    else if (block.spec->content_check &&
             block.header.content_check != block.sums.total(block.lanes()))
        result.code = status::content_mismatch;
}

/// decode() for order 0. Specs passed check_spec, pointers are there. Tables of blocks take 70 KiB
/// of stack.
template <class V>
NORMANS_NOINLINE void decode_order0(const order0_decode_call* calls, uint32_t n, backend_id id)
{
    order0_table tables[2];
    order0_reading blocks[order0_calls];
    decode_result* results[order0_calls];
    order0_bundle<order0_reading> bundle;
    bundle.size = 0;
    uint32_t tables_used = 0;
    const auto flush = [&] {
        if (bundle.size != 0) decode_order0_bundle<V>(bundle);
        for (uint32_t k = 0; k < bundle.size; ++k)
            finish_order0(*bundle.block[k], *results[k],
                          blocks[k].lanes() == 1 ? backend_id::scalar : id);
        bundle.size = tables_used = 0;
    };
    for (uint32_t i = 0; i < n; ++i) {
        const order0_decode_call& call = calls[i];
        decode_result& result = *call.result;
        order0_reading next{};
        next.spec = call.spec;
        next.codes = call.codes;
        result.code = check_block(*call.spec, call.block, call.bytes, next.header, next.layout,
                                  result);
        if (result.code != status::ok) continue;
        if (next.header.mode != block_mode::coded) {
            uint32_t check = 0;
            if (next.header.count != 0)
                result.code = copy_order0(next, call.block + next.layout.words, check);
            if (result.code == status::ok && call.spec->content_check &&
                next.header.content_check != check)
                result.code = status::content_mismatch;
            continue;
        }
        const uint32_t planes = next.codes.planes();
        const bool shared = next.header.payload_words != 0 &&
                            load_word(call.block + next.layout.words) == 0;
        if (next.header.payload_words == 0) result.code = status::corrupt_stream;
        else if (shared && call.spec->tables == nullptr) result.code = status::wrong_model;
        if (result.code != status::ok) continue;
        next.own[0] = shared ? nullptr : tables;
        if (bundle.size != 0 && (bundle.size == order0_bundle_size<V>(next.lanes()) ||
                                 !order0_alike(*bundle.block[0], next) ||
                                 (!shared && tables_used + planes > 2)))
            flush();
        result.code = open_order0(next, call.block, tables + tables_used);
        if (result.code != status::ok) continue;
        if (!shared) tables_used += planes;
        blocks[bundle.size] = next;
        results[bundle.size] = &result;
        bundle.block[bundle.size] = &blocks[bundle.size];
        ++bundle.size;
    }
    flush();
}

// Blocks of order 0 among those of a call, waiting for company. take() is false for all others.
template <class Backend, class Code>
class order0_decoder {
public:
    template <class Call>
    bool take(const Call& call)
    {
        const block_spec& spec = call.spec;
        if (spec.coder != coder_id::order0) return false;
        call.result = decode_result{};
        if (check_spec(spec) != status::ok || code_bytes(spec.dtype) != sizeof(Code) ||
            (count_of(spec) != 0 && call.out.data == nullptr))
            return true;
        void* const data = call.out.data;
        calls_[size_++] = {&spec, call.block, call.bytes,
                           {static_cast<uint8_t*>(data), call.out.head_stride,
                            call.out.token_stride, order0_bits(spec.dtype)},
                           &call.result};
        if (size_ == order0_calls) flush();
        return true;
    }
    void flush()
    {
        using registers = order0_registers_t<Backend>;
        if (size_ != 0)
            decode_order0<registers>(
                calls_, size_, std::is_void_v<registers> ? backend_id::scalar : Backend::id);
        size_ = 0;
    }

private:
    order0_decode_call calls_[order0_calls];
    uint32_t size_ = 0;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
