#pragma once
// Blocks of order 0 by one logical warp: rANS under static tables, any type, no predictions.
//
//     using codec =
//         normans::warp_codec<normans::scalar_type::bf16, 32, normans::coder_id::order0>;
//     __shared__ codec::TempStorage rooms[threads / 32];  // or DecodeStorage
//     result = codec(rooms[warp]).decode(spec, block, bytes, predictor, sink);
//
// As warp_codec.cuh says, but for these: each logical warp has a TempStorage of its own, which
// needs no prepare() and keeps nothing between calls; predictors are not looked at and may be of
// any type; spec.tables and all that it points to lie in device memory. Boxes of 4-bit codes: see
// warp_scaled.cuh.

#include "order0_tables.cuh"
#include "packed_rows.cuh"
#include "warp_codec.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// The codec for all types of a width.
template <uint32_t Bits, uint32_t Width>
class warp_order0 {
    using threads = warp_threads<Width>;
    using sums = warp_sums<Width>;
    using own = own_tables<Bits, Width>;
    static constexpr bool nibbles = Bits == 4;
    static constexpr uint32_t planes = own::planes;
    template <class Tables>
    using lanes_of = order0_warp_lanes<
        Width, decltype(std::declval<const Tables&>()(std::declval<const scalar_position&>(), 0))>;

public:
    using TempStorage = making_room<planes>;
    using DecodeStorage = own_room<planes>;

    template <class Storage>
    __device__ explicit warp_order0(Storage& storage) : own_(storage)
    {
    }
    __device__ bool encodes() const { return own_.can_make(); }

    template <class Sink>
    __device__ decode_result decode(const block_spec& spec, const uint8_t* block, size_t bytes,
                                    const Sink& sink) const
    {
        decode_result result;
        block_header header{};
        block_layout at{};
        result.code = check_block(spec, block, bytes, header, at, result);
        if (result.code != status::ok) return result;
        sums content;
        status decoded = status::ok;
        if (header.mode == block_mode::coded) {
            result.backend = backend_id::warp;
            decoded = decode_coded(spec, block, header, at, sink, content);
        } else if (header.count != 0) {
            decoded = copy(spec, block + at.words, header, sink, content);
        }
        if (decoded != status::ok)
            result.code = decoded;
        else if (spec.content_check && header.content_check != content.total())
            result.code = status::content_mismatch;
        return result;
    }

    template <class Source>
    __device__ encode_result encode(const block_spec& spec, const Source& source, uint8_t* out,
                                    size_t capacity) const
    {
        encode_result result;
        const uint32_t count = uint32_t(count_of(spec));
        block_header header{spec.dtype, block_mode::raw, 0, Width, count, 0, 0, coder_id::order0};
        header.flags = uint8_t((spec.content_check ? has_content_check : 0) |
                               (spec.has_fingerprint ? has_fingerprint : 0));
        set_raw(header);
        sums content;
        if (count != 0 && is_constant(spec, source)) {
            header.mode = block_mode::constant;
            header.payload_words = 1;
        } else if (count != 0) {
            if (encode_coded(spec, source, out, capacity, header, content)) {
                result.backend = backend_id::warp;
            } else {
                set_raw(header);
                content = {};
            }
        }
        finish(spec, source, out, capacity, header, content, result);
        return result;
    }

private:
    static __device__ void set_raw(block_header& header)
    {
        header.mode = block_mode::raw;
        header.payload_words = uint32_t((raw_bytes(header.dtype, header.count) + 1) / 2);
    }

    template <class Sink>
    __device__ status decode_coded(const block_spec& spec, const uint8_t* block,
                                   const block_header& header, const block_layout& at,
                                   const Sink& sink, sums& content) const
    {
        if (header.payload_words == 0) return status::corrupt_stream;
        const uint8_t* const words = block + at.words;
        const uint32_t table_words = load_word(words), left = header.payload_words - 1;
        if (table_words == 0 && spec.tables == nullptr) return status::wrong_model;
        const uint32_t x = reinterpret_cast<const uint32_t*>(block + at.states)[threads::rank()];
        if (table_words > left || threads::any(!valid_state(x))) return status::corrupt_stream;
        if (table_words != 0 && !own_.read(words + 2, table_words)) return status::corrupt_stream;
        warp_reader reader(reinterpret_cast<const uint16_t*>(words) + 1 + table_words,
                           left - table_words, threads::counted());
        const bool whole =
            table_words != 0
                ? decode_steps(spec, own_, header.count, x, reader, sink, content)
                : decode_steps(spec, shared_tables(spec), header.count, x, reader, sink, content);
        return whole ? status::ok : status::corrupt_stream;
    }

    template <class Tables, class Sink>
    static __device__ bool decode_steps(const block_spec& spec, const Tables& tables,
                                        uint32_t count, uint32_t x, warp_reader& words,
                                        const Sink& sink, sums& content)
    {
        using lanes = lanes_of<Tables>;
        const uint32_t rank = threads::rank();
        any_sink<Width, nibbles, Sink> to(sink, spec.dim);
        lane_walker walker(spec, rank < count ? rank : count - 1);
        const auto step = [&](uint32_t here) {
            const bool active = rank < here;
            uint32_t code = 0;
            for (uint32_t plane = 0; plane < planes; ++plane)
                code = code << 8 |
                       decode_order0_step<lanes>(x, tables(walker.at, plane), active, words);
            if (active) content.add(code);
            to(walker.at, nibbles ? code & 15 : code, here);  // tables may hold more symbols
        };
        for (uint32_t left = count / Width; left != 0;) {
            to.move(walker.at);
            uint32_t run = walker.template steps_in_row<Width>(rank);
            run = run < left ? run : left;
            left -= run;
            for (;; walker.advance(Width)) {
                step(Width);
                if (--run == 0) break;
            }
            walker.forward(Width);
        }
        if (count % Width != 0) {
            if (rank >= count % Width) walker.go_to(count - 1);  // idle lanes take one that is
            to.move(walker.at);
            step(count % Width);
        }
        return !threads::any(!words.at_end() || x != rans_format::lower_bound);
    }

    // Raw and constant blocks; `from` is where their words lie.
    template <class Sink>
    static __device__ status copy(const block_spec& spec, const uint8_t* from,
                                  const block_header& header, const Sink& sink, sums& content)
    {
        const uint32_t count = header.count;
        const bool raw = header.mode == block_mode::raw;
        lane_walker walker(spec, threads::rank());
        any_sink<Width, nibbles, Sink> to(sink, spec.dim);
        for (uint32_t done = 0; done < count; done += Width, walker.forward(Width)) {
            uint32_t code = 0;
            if (walker.before(count)) {
                const size_t i = raw ? walker.at.index : 0;
                code = nibbles      ? uint32_t(from[i / 2]) >> i % 2 * 4 & 15
                       : Bits == 16 ? load_word(from + 2 * i)
                                    : from[i];
                content.add(code);
                to.move(walker.at);
            }
            to(walker.at, code, count - done < Width ? count - done : Width);
        }
        // What a byte or word has beyond its codes is 0.
        if (!raw) return load_word(from) >> Bits == 0 ? status::ok : status::corrupt_stream;
        const bool half = nibbles && count % 2 != 0;
        return half && from[count / 2] >> 4 != 0 ? status::corrupt_stream : status::ok;
    }

    template <class Source>
    static __device__ bool is_constant(const block_spec& spec, const Source& source)
    {
        const uint32_t count = uint32_t(count_of(spec));
        lane_walker walker(spec, 0);
        any_source<nibbles, Source> codes(source);
        codes.move(walker.at);
        const uint32_t code = codes(walker.at);
        walker.go_to(threads::rank());
        for (uint32_t done = 0; done < count; done += Width, walker.forward(Width)) {
            bool other = false;
            if (walker.before(count)) {
                codes.move(walker.at);
                other = codes(walker.at) != code;
            }
            if (threads::any(other)) return false;
        }
        return true;
    }

    // True if the block is coded now, but for its header; then `header` says how.
    template <class Source>
    __device__ bool encode_coded(const block_spec& spec, const Source& source, uint8_t* out,
                                 size_t capacity, block_header& header, sums& content) const
    {
        // A coded block must save at least 1/64 of the raw codes.
        const uint64_t limit =
            layout_of(header, 0).end - raw_bytes(header.dtype, header.count) / 64;
        const uint64_t room = capacity < limit ? capacity : limit;
        header.mode = block_mode::coded;
        header.payload_words = 0;
        const block_layout at = layout_of(header, 0);
        if (at.words + 2 > room) return false;
        uint16_t* const words = reinterpret_cast<uint16_t*>(out + at.words);
        const uint32_t most = uint32_t((room - at.words) / 2) - 1, members = threads::counted();
        uint32_t x = 0, table_words = 0;
        warp_writer writer{words + 1, most, false, members};
        bool kept = false;
        if (spec.tables != nullptr) {
            const shared_tables tables(spec);
            const bool missing = !encode_steps(spec, tables, source, x, content, writer);
            kept = !missing && !writer.overrun &&
                   fits(header, uint64_t(most - writer.next) + 1, room);
            // The block must not become another because the output is small.
            if (!kept && !missing && room != limit) {
                word_counter counter{members};
                if (encode_steps(spec, tables, source, x, content, counter) &&
                    fits(header, counter.words + 1, limit))
                    return false;
            }
        }
        if (!kept) {
            table_words = make_tables(spec, source, out + at.words + 2, most);
            if (table_words == 0) return false;
            writer = {words + 1 + table_words, most - table_words, false, members};
            encode_steps(spec, own_, source, x, content, writer);
            const uint32_t left = most - table_words - writer.next;
            if (writer.overrun || !fits(header, uint64_t(left) + 1 + table_words, room))
                return false;
        }
        content.turn(header.count);
        if (threads::rank() == 0) words[0] = uint16_t(table_words);
        reinterpret_cast<uint32_t*>(out + at.states)[threads::rank()] = x;
        move_to_front<Width>(writer.words, writer.next, header.payload_words - 1 - table_words);
        return true;
    }

    static __device__ bool fits(block_header& header, uint64_t words, uint64_t room)
    {
        header.payload_words = uint32_t(words);
        return layout_of(header, 0).end <= room;
    }

    // Returns the words that the tables take; 0 where there is no room for them.
    template <class Source>
    __device__ uint32_t make_tables(const block_spec& spec, const Source& source, uint8_t* to,
                                    uint32_t room) const
    {
        const uint32_t count = uint32_t(count_of(spec));
        uint32_t words = 0;
        for (uint32_t plane = 0; plane < planes; ++plane) {
            const uint32_t used = own_.make(
                plane, count, count < many_scalars ? 12 : 13, to + 2 * size_t(words), room - words,
                [&](auto add) {
                    any_source<nibbles, Source> codes(source);
                    lane_walker walker(spec, threads::rank());
                    for (; walker.before(count); walker.forward(Width)) {
                        codes.move(walker.at);
                        add(symbol_of(codes(walker.at), plane));
                    }
                });
            if (used == 0) return 0;
            words += used;
        }
        return words;
    }

    // A source may say more than a code, signed ones for example: no table is that long.
    static __device__ uint32_t symbol_of(uint32_t code, uint32_t plane)
    {
        return (planes == 2 && plane == 0 ? code >> 8 : code) & (own::symbols - 1);
    }

    // From the first state on; false where a symbol has no slot, which is known only if all words
    // had room.
    template <class Tables, class Source, class Writer>
    static __device__ bool encode_steps(const block_spec& spec, const Tables& tables,
                                        const Source& source, uint32_t& state, sums& content,
                                        Writer& words)
    {
        using lanes = lanes_of<Tables>;
        const uint32_t count = uint32_t(count_of(spec)), rank = threads::rank();
        const uint32_t tail = count % Width;
        uint32_t x = rans_format::lower_bound;
        bool missing = false;
        content = {};
        any_source<nibbles, Source> codes(source);
        lane_walker walker(spec, rank < tail ? count - tail + rank : count - 1);
        const auto step = [&](bool active) {
            const uint32_t code = codes(walker.at);
            if (active) content.add(code);
            for (uint32_t plane = planes; plane-- > 0;)
                encode_order0_step<lanes>(x, tables(walker.at, plane), symbol_of(code, plane),
                                          active, missing, words);
        };
        if (tail != 0) {
            codes.move(walker.at);
            step(rank < tail);  // idle lanes take a scalar that is there
        }
        uint32_t left = count / Width;
        if (left != 0) walker.go_to((left - 1) * Width + rank);
        while (left != 0 && !words.overrun) {
            codes.move(walker.at);
            uint32_t run = walker.template steps_back_in_row<Width>(rank);
            run = run < left ? run : left;
            left -= run;
            for (;; walker.retreat(Width)) {
                step(true);
                if (--run == 0) break;
            }
            if (left != 0) walker.back(Width);
        }
        state = x;
        return !threads::any(missing);
    }

    template <class Source>
    static __device__ void finish(const block_spec& spec, const Source& source, uint8_t* out,
                                  size_t capacity, block_header& header, sums& content,
                                  encode_result& result)
    {
        const uint32_t count = header.count;
        const block_layout at = layout_of(header, 0);
        result.mode = header.mode;
        result.lanes = Width;
        result.bytes = size_t(at.end);
        if (at.end > capacity) {
            result.code = status::output_too_small;
            result.bytes = max_encoded_bytes(spec);
            return;
        }
        threads::barrier();  // others may have written words where this thread writes now
        uint64_t used = at.words + 2 * uint64_t(header.payload_words);
        if (header.mode != block_mode::coded && count != 0) {
            const uint32_t stored = header.mode == block_mode::raw ? count : 1;
            used = at.words + raw_bytes(header.dtype, stored);
            any_source<nibbles, Source> codes(source);
            lane_walker walker(spec, threads::rank());
            for (; walker.before(count); walker.forward(Width)) {
                codes.move(walker.at);
                uint32_t code = codes(walker.at);
                const uint32_t i = walker.at.index;
                content.add(code);
                if (i >= stored || (nibbles && i % 2 != 0)) continue;
                if (nibbles && i + 1 < stored) {
                    const lane_walker next(spec, i + 1);
                    codes.move(next.at);
                    code |= codes(next.at) << 4;
                }
                uint8_t* const to = out + at.words + (nibbles ? i / 2 : i * size_t(Bits / 8));
                to[0] = uint8_t(code);
                if (Bits == 16) to[1] = uint8_t(code >> 8);
            }
        }
        header.content_check = spec.content_check ? content.total() : 0;
        result.code = status::ok;
        if (threads::rank() != 0) return;
        for (uint64_t i = used; i < at.end; ++i) out[i] = 0;
        write_block_header(header, out);
        if (header.flags & has_fingerprint) store_u64(out + at.fingerprint, spec.fingerprint);
    }

    own own_;
};

// Types of one width are one codec, but for what is asked for.
template <scalar_type Type, uint32_t Width>
class warp_order0_codec {
    using coder = warp_order0<format_of(Type).code_bits, Width>;

public:
    using TempStorage = typename coder::TempStorage;
    /// A third of it is enough for decoders; encode() then says bad_argument.
    using DecodeStorage = typename coder::DecodeStorage;

    __device__ explicit warp_order0_codec(TempStorage& storage) : coder_(storage) {}
    __device__ explicit warp_order0_codec(DecodeStorage& storage) : coder_(storage) {}

    template <class Predictor, class Sink>
    __device__ decode_result decode(const block_spec& agreed, const uint8_t* block, size_t bytes,
                                    const Predictor&, const Sink& sink) const
    {
        if (!acceptable(agreed, block)) return {};
        block_spec spec = agreed;
        spec.lanes = Width;
        return coder_.decode(spec, block, bytes, sink);
    }

    template <class Predictor, class Source>
    __device__ encode_result encode(const block_spec& agreed, const Source& source,
                                    const Predictor&, uint8_t* out, size_t capacity) const
    {
        encode_result result;
        if (!acceptable(agreed, out) || !coder_.encodes()) return result;
        if (out == nullptr) {
            result.bytes = max_encoded_bytes(agreed);
            return result;
        }
        block_spec spec = agreed;
        spec.lanes = Width;
        return coder_.encode(spec, source, out, capacity);
    }

private:
    static __device__ bool acceptable(const block_spec& spec, const uint8_t* block)
    {
        return spec.dtype == Type && spec.coder == coder_id::order0 &&
               (spec.lanes == 0 || spec.lanes == Width) &&
               reinterpret_cast<std::uintptr_t>(block) % 4 == 0 && check_spec(spec) == status::ok;
    }

    coder coder_;
};

}  // namespace detail

template <scalar_type Type, uint32_t Width>
class warp_codec<Type, Width, coder_id::order0> : public detail::warp_order0_codec<Type, Width> {
    using detail::warp_order0_codec<Type, Width>::warp_order0_codec;
};

// Types with a scale, of which warp_scaled.cuh has codecs, too.
template <uint32_t Width>
class warp_codec<scalar_type::int8, Width, coder_id::order0>
    : public detail::warp_order0_codec<scalar_type::int8, Width> {
    using detail::warp_order0_codec<scalar_type::int8, Width>::warp_order0_codec;
};

template <uint32_t Width>
class warp_codec<scalar_type::int4, Width, coder_id::order0>
    : public detail::warp_order0_codec<scalar_type::int4, Width> {
    using detail::warp_order0_codec<scalar_type::int4, Width>::warp_order0_codec;
};

template <uint32_t Width>
class warp_codec<scalar_type::e2m1, Width, coder_id::order0>
    : public detail::warp_order0_codec<scalar_type::e2m1, Width> {
    using detail::warp_order0_codec<scalar_type::e2m1, Width>::warp_order0_codec;
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
