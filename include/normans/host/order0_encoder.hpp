#pragma once
// encode() for order 0.

#include "order0_bundle.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

struct order0_encode_call {
    const block_spec* spec;
    order0_codes<const uint8_t> codes;
    uint8_t* out;
    size_t capacity;
    encode_result* result;
};

// One block on its way to bytes.
struct order0_attempt {
    order0_writing block;
    const order0_encode_call* call;
    uint64_t limit;  // of the coded form
    uint64_t room;   // for it: no more than that
    uint32_t table_words;

    const block_spec& spec() const { return *block.spec; }
    uint8_t base_flags() const
    {
        return uint8_t((spec().content_check ? has_content_check : 0) |
                       (spec().has_fingerprint ? has_fingerprint : 0));
    }
    void set_mode(block_mode mode, uint64_t words)
    {
        block.header.mode = mode;
        block.header.flags = base_flags();
        block.header.payload_words = uint32_t(words);
        block.layout = layout_of(block.header, 0);
    }
    void set_raw()
    {
        set_mode(block_mode::raw, (raw_bytes(spec().dtype, block.header.count) + 1) / 2);
    }
    uint8_t* words() const { return call->out + block.layout.words; }
    uint8_t* end_of_room() const
    {
        return words() + (room - block.layout.words) / 2 * 2;
    }

    // Raw or constant; true if it may become a coded block.
    bool begin(const order0_encode_call& from)
    {
        call = &from;
        block = order0_writing{};
        block.spec = from.spec;
        block.codes = from.codes;
        const uint32_t count = uint32_t(count_of(spec()));
        block.header.dtype = spec().dtype;
        block.header.coder = coder_id::order0;
        block.header.lanes = spec().lanes != 0 ? spec().lanes : default_lanes(count);
        block.header.count = count;
        set_raw();
        if (count == 0) return false;
        const uint64_t raw = raw_bytes(spec().dtype, count), raw_end = block.layout.end;
        const uint32_t code = block.codes.load(block.codes.place({0, 0, 0, 0}));
        bool constant = true;
        for (box_walker at(spec(), 0); constant && at.position().index != count;) {
            const uint32_t length = at.left();
            const ptrdiff_t place = block.codes.place(at.position());
            for (uint32_t i = 0; i < length && constant; ++i)
                constant = block.codes.load(place + ptrdiff_t(i)) == code;
            at.skip(length);
        }
        // A coded block must save at least 1/64 of the raw codes.
        limit = raw_end - raw / 64;
        room = call->capacity < limit ? call->capacity : limit;
        if (constant) set_mode(block_mode::constant, 1);
        return !constant;
    }

    // Ready for steps under the spec's tables, or under the block's own, which go to `own`. False
    // if there is no room for what stands before the words.
    bool begin_steps(order0_intervals* own)
    {
        set_mode(block_mode::coded, 0);
        block.missing = false;
        block.sums = check_sums{};
        for (uint32_t& state : block.state) state = rans_format::lower_bound;
        block.own[0] = block.own[1] = nullptr;
        table_words = 0;
        uint8_t stored[2][2 * order0_table_words];
        uint32_t sizes[2] = {0, 0};
        if (own != nullptr) {
            uint32_t counts[2][order0_symbols] = {};
            count_symbols(counts);
            for (uint32_t plane = 0; plane < block.codes.planes(); ++plane) {
                uint16_t freq[order0_symbols];
                const unsigned bits = block.header.count < many_scalars ? 12 : 13;
                if (order0_normalize(counts[plane], freq, bits) != status::ok ||
                    make_order0_intervals(freq, own[plane]) != status::ok)
                    return false;
                sizes[plane] =
                    write_order0_freqs(freq, block.codes.bits == 4 ? 16 : 256, stored[plane]);
                table_words += sizes[plane];
                block.own[plane] = &own[plane];
            }
        }
        if (block.layout.words + 2 + 2 * uint64_t(table_words) > room) return false;
        store_word(words(), table_words);
        std::memcpy(words() + 2, stored[0], 2 * size_t(sizes[0]));
        std::memcpy(words() + 2 + 2 * size_t(sizes[0]), stored[1], 2 * size_t(sizes[1]));
        block.writer = {words() + 2 + 2 * size_t(table_words), end_of_room()};
        return true;
    }

    // After steps under the spec's tables that had no room: true if more room would be enough. The
    // block must not become another because the output is small.
    bool lacks_only_room()
    {
        if (block.missing || room == limit) return false;
        for (uint32_t& state : block.state) state = rans_format::lower_bound;
        const uint32_t count = block.header.count, lanes = block.lanes();
        uint64_t words = 1;
        uint32_t here = count % lanes != 0 ? count % lanes : lanes;
        for (uint32_t end = count; end != 0; end -= here, here = lanes) {
            uint8_t symbols[2 * max_lanes], given[4 * max_lanes];
            block.writer = {given, given + sizeof given};
            block.read(end - here, here, symbols);
            const box_walker at(spec(), end - here);
            if (lanes <= 8) encode_order0_scalars<8>(block, at, here, symbols);
            else encode_order0_scalars<max_lanes>(block, at, here, symbols);
            words += uint64_t(given + sizeof given - block.writer.next) / 2;
        }
        set_mode(block_mode::coded, words);
        return block.layout.end <= limit;
    }

    // True if the coded form is kept.
    bool end_steps()
    {
        if (block.missing || block.writer.overrun) return false;
        const auto coded = uint32_t((end_of_room() - block.writer.next) / 2);
        set_mode(block_mode::coded, uint64_t(coded) + 1 + table_words);
        if (block.layout.end > room) return false;
        std::memmove(block.writer.begin, block.writer.next, 2 * size_t(coded));
        for (uint32_t i = 0; i < block.lanes(); ++i)
            store_u32(call->out + block.layout.states + 4 * i, block.state[i]);
        block.sums.reverse(block.lanes(), block.header.count);
        return true;
    }

    void finish(backend_id id)
    {
        block_header& header = block.header;
        encode_result& result = *call->result;
        const bool coded = header.mode == block_mode::coded;
        result.mode = header.mode;
        result.lanes = header.lanes;
        result.bytes = size_t(block.layout.end);
        if (coded && header.lanes != 1) result.backend = id;
        if (block.layout.end > call->capacity) {
            result.code = status::output_too_small;
            result.bytes = max_encoded_bytes(spec());
            return;
        }
        uint64_t used = block.layout.words + 2 * uint64_t(header.payload_words);
        if (header.count != 0 && !coded) {
            const uint32_t stored = header.mode == block_mode::constant ? 1 : header.count;
            used = block.layout.words + raw_bytes(spec().dtype, stored);
            store_plain(stored, size_t(used - block.layout.words));
        }
        std::memset(call->out + used, 0, size_t(block.layout.end - used));
        header.content_check = spec().content_check ? block.sums.total(header.lanes) : 0;
        write_block_header(header, call->out);
        if (header.flags & has_fingerprint)
            store_u64(call->out + block.layout.fingerprint, spec().fingerprint);
        result.code = status::ok;
    }

private:
    // The first `stored` codes, as in memory, and the sums over all.
    void store_plain(uint32_t stored, size_t bytes)
    {
        uint8_t* const to = words();
        std::memset(to, 0, bytes);
        block.sums = check_sums{};
        const auto packed = order0_packed(to, block.codes.bits);
        for_codes(box_walker(spec(), 0), block.header.count, block.codes,
                  [&](uint32_t i, ptrdiff_t place) {
                      const uint32_t code = block.codes.load(place);
                      block.sums.lane[i % block.lanes()].add(code);
                      if (i >= stored) return;
                      if (packed.bits == 16) store_word(to + 2 * size_t(i), code);
                      else packed.store(ptrdiff_t(i), code);
                  });
    }

    void count_symbols(uint32_t (*counts)[order0_symbols]) const
    {
        // Two of each, so that a run of one symbol does not wait for itself.
        uint32_t some[2][2][order0_symbols] = {};
        const order0_codes<const uint8_t> codes = block.codes;
        if (codes.bits == 8) {
            for_runs(box_walker(spec(), 0), block.header.count,
                     [&](uint32_t, const scalar_position& at, uint32_t length) {
                         const uint8_t* const from = codes.data + codes.place(at);
                         for (uint32_t i = 0; i < length; ++i) ++some[0][i % 2][from[i]];
                     });
        } else {
            for_codes(box_walker(spec(), 0), block.header.count, codes,
                      [&](uint32_t i, ptrdiff_t place) {
                          const uint32_t code = codes.load(place);
                          if (codes.bits == 16) ++some[0][i % 2][code >> 8];
                          ++some[codes.planes() - 1][i % 2][code & 0xff];
                      });
        }
        for (uint32_t plane = 0; plane < 2; ++plane)
            for (uint32_t s = 0; s < order0_symbols; ++s)
                counts[plane][s] = some[plane][0][s] + some[plane][1][s];
    }
};

/// encode() for order 0. Specs passed check_spec, pointers are there. A block takes its own tables
/// where the spec has none, or where they lack a symbol or save nothing.
template <class V>
NORMANS_NOINLINE void encode_order0(const order0_encode_call* calls, uint32_t n, backend_id id)
{
    order0_intervals own[order0_calls][2];
    order0_attempt attempts[order0_calls];
    bool waits[order0_calls] = {};
    for (uint32_t i = 0; i < n; ++i) waits[i] = attempts[i].begin(calls[i]);
    for (const bool shared : {true, false}) {
        order0_bundle<order0_writing> bundle;
        bundle.size = 0;
        const auto flush = [&] {
            if (bundle.size != 0) encode_order0_bundle<V>(bundle);
            bundle.size = 0;
        };
        bool runs[order0_calls] = {};
        for (uint32_t i = 0; i < n; ++i) {
            order0_attempt& next = attempts[i];
            if (!waits[i] || (shared && next.spec().tables == nullptr)) continue;
            runs[i] = next.begin_steps(shared ? nullptr : own[i]);
            if (!runs[i]) continue;
            if (bundle.size == order0_bundle_size<V>(next.block.lanes()) ||
                (bundle.size != 0 && !order0_alike(*bundle.block[0], next.block)))
                flush();
            bundle.block[bundle.size++] = &next.block;
        }
        flush();
        for (uint32_t i = 0; i < n; ++i) {
            if (!runs[i]) continue;
            if (attempts[i].end_steps()) {
                waits[i] = false;
            } else if (shared && attempts[i].lacks_only_room()) {
                attempts[i].set_raw();  // which has no room either
                waits[i] = false;
            }
        }
    }
    for (uint32_t i = 0; i < n; ++i) {
        if (waits[i]) attempts[i].set_raw();
        attempts[i].finish(id);
    }
}

template <class Backend, class Code>
class order0_encoder {
public:
    template <class Call>
    bool take(const Call& call)
    {
        const block_spec& spec = call.spec;
        if (spec.coder != coder_id::order0) return false;
        call.result = encode_result{};
        if (check_spec(spec) != status::ok || code_bytes(spec.dtype) != sizeof(Code)) return true;
        if (call.out == nullptr || (count_of(spec) != 0 && call.codes.data == nullptr)) {
            call.result.bytes = max_encoded_bytes(spec);
            return true;
        }
        const void* const data = call.codes.data;
        calls_[size_++] = {&spec,
                           {static_cast<const uint8_t*>(data), call.codes.head_stride,
                            call.codes.token_stride, order0_bits(spec.dtype)},
                           call.out, call.capacity, &call.result};
        if (size_ == order0_calls) flush();
        return true;
    }
    void flush()
    {
        using registers = order0_registers_t<Backend>;
        if (size_ != 0)
            encode_order0<registers>(
                calls_, size_, std::is_void_v<registers> ? backend_id::scalar : Backend::id);
        size_ = 0;
    }

private:
    order0_encode_call calls_[order0_calls];
    uint32_t size_ = 0;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
