#pragma once
// Blocks of int8, int4 and e2m1 by one logical warp, by rANS and by tANS; and of fp8 by tANS:
// warp_codec for types with a scale or a bank:
//
//     using codec = normans::warp_codec<normans::scalar_type::int4, 32, normans::coder_id::tans>;
//
// As warp_codec.cuh says, and:
//   spec.scales.data (not read for fp8) points to device memory; so do spec.bank and all that it
//   points to (encoders need all of the bank). The bank is read through L2, or from `room`, shared
//   memory that prepare() was given, if warp_bank_bytes(type, plan, use) fit there.
//   Boxes of 4-bit codes hold two to a byte (see box_view); sinks and sources of the caller's own
//   get and give one code a call, sinks from several threads at once.

#include "scaled_coders.cuh"
#include "warp_codec.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

template <scalar_type Type, uint32_t Width, coder_id Coder>
class warp_scaled_codec {
    static_assert(can_code(Coder, Type), "tANS has banks for types of at most 8 bits");
    using threads = warp_threads<Width>;
    using sums = warp_sums<Width>;
    using coder = std::conditional_t<Coder == coder_id::tans, warp_tans<Type, Width>,
                                     warp_rans<Type, Width>>;
    using mask = typename coder::lanes::mask;
    static constexpr scalar_format format = format_of(Type);
    static constexpr bool nibbles = format.code_bits == 4;
    template <class Predictor>
    using input_rows = scaled_rows<Predictor, has_scale(Type)>;

public:
    /// Tables of (Type, Coder, shape, sigma_offset, bank). They lie in shared memory.
    using TempStorage = typename coder::storage;

    /// Fills the tables, and `room` (a multiple of 4) with what is used of the bank if it fits. See
    /// warp_codec.
    static __device__ void prepare(TempStorage& storage, const block_spec& spec, uint32_t thread,
                                   uint32_t count, void* room = nullptr, size_t room_bytes = 0,
                                   bank_use use = bank_use::decode)
    {
        storage.fill(spec, thread, count, room, room_bytes, use);
    }

    __device__ explicit warp_scaled_codec(const TempStorage& storage) : storage_(storage) {}

    template <class Predictor, class Sink>
    __device__ decode_result decode(const block_spec& agreed, const uint8_t* block, size_t bytes,
                                    const Predictor& predictor, const Sink& sink) const
    {
        if (!acceptable(agreed, block)) return {};
        block_spec spec = agreed;
        spec.lanes = Width;
        decode_result result;
        block_header header{};
        block_layout at{};
        result.code = check_block(spec, block, bytes, header, at, result);
        if (result.code != status::ok) return result;
        sums content;
        status decoded = status::ok;
        if (header.mode == block_mode::coded) {
            result.backend = backend_id::warp;
            decoded = decode_steps(spec, block, header, at, predictor, sink, content);
        } else if (header.count != 0) {
            sums parameters;
            decoded = copy(spec, block + at.words, header, predictor, sink, content, parameters);
            if (wants_hash(spec, header) &&
                load_u32(block + at.parameter_hash) != parameters.total())
                decoded = status::wrong_prediction;
        }
        if (decoded != status::ok)
            result.code = decoded;
        else if (spec.content_check && header.content_check != content.total())
            result.code = status::content_mismatch;
        return result;
    }

    template <class Predictor, class Source>
    __device__ encode_result encode(const block_spec& agreed, const Source& source,
                                    const Predictor& predictor, uint8_t* out,
                                    size_t capacity) const
    {
        encode_result result;
        if (!acceptable(agreed, out) || !coder::encodes(storage_)) return result;
        if (out == nullptr) {
            result.bytes = max_encoded_bytes(agreed);
            return result;
        }
        block_spec spec = agreed;
        spec.lanes = Width;
        const uint32_t count = uint32_t(count_of(spec));
        block_header header{Type, block_mode::raw, 0, Width, count, 0, 0, Coder};
        set_raw(spec, header);
        sums content, parameters;
        if (count != 0) {
            const sameness same = compare(spec, source, predictor, parameters);
            if (same.predicted) {
                header.mode = block_mode::predicted;
                header.payload_words = 0;
                if (spec.parameter_hash) header.flags |= has_parameter_hash;
            } else if (same.constant) {
                header.mode = block_mode::constant;
                header.payload_words = 1;
            } else {
                parameters = {};
                if (encode_steps(spec, source, predictor, out, capacity, header, content,
                                 parameters, result.escapes)) {
                    result.backend = backend_id::warp;
                } else {
                    set_raw(spec, header);
                    content = {};
                }
            }
        }
        finish(spec, source, out, capacity, header, content, parameters, result);
        return result;
    }

private:
    struct sameness {
        bool constant, predicted;
    };

    static __device__ bool acceptable(const block_spec& spec, const uint8_t* block)
    {
        return check_spec(spec) == status::ok && spec.dtype == Type && spec.coder == Coder &&
               (spec.lanes == 0 || spec.lanes == Width) &&
               reinterpret_cast<std::uintptr_t>(block) % 4 == 0;
    }

    static __device__ uint32_t hashed(scaled_input in, int row_step)
    {
        in.mean = canonical(in.mean);
        return scaled_word(in, row_step);
    }

    static __device__ uint32_t expected(const scaled_input& in)
    {
        return expected_code(format, fast_mean_in_codes(in));
    }

    // The parameter hash of a coded block.
    template <class Predictor>
    static __device__ sums hash_of(const block_spec& spec, uint32_t count,
                                   const lane_row_steps& row_steps, const Predictor& predictor)
    {
        sums parameters;
        lane_walker walker(spec, threads::rank());
        input_rows<Predictor> inputs(spec, predictor);
        for (; walker.before(count); walker.forward(Width)) {
            inputs.move(walker.at);
            inputs.regroup(walker.at);
            const int step = int(row_steps.nibble(walker.at.token)) + min_row_step;
            parameters.add(hashed(inputs(walker.at), step));
        }
        return parameters;
    }

    template <class Predictor, class Sink>
    __device__ status decode_steps(const block_spec& spec, const uint8_t* block,
                                   const block_header& header, const block_layout& at,
                                   const Predictor& predictor, const Sink& sink,
                                   sums& content) const
    {
        const uint32_t rank = threads::rank(), count = header.count;
        const uint32_t members = threads::counted();
        const coder steps(storage_, members);
        const uint32_t stored = reinterpret_cast<const uint32_t*>(block + at.states)[rank];
        if (threads::any(!steps.valid(stored))) return status::corrupt_stream;
        const lane_row_steps row_steps(block, header, at);
        if (spec.parameter_hash && load_u32(block + at.parameter_hash) !=
                                       hash_of(spec, count, row_steps, predictor).total())
            return status::wrong_prediction;
        warp_reader words(reinterpret_cast<const uint16_t*>(block + at.words),
                          header.payload_words, members);
        typename coder::state x = steps.open(stored, words);
        mask corrupt{false};
        input_rows<Predictor> inputs(spec, predictor);
        any_sink<Width, nibbles, Sink> to(sink, spec.dim);
        lane_walker walker(spec, rank < count ? rank : count - 1);
        uint32_t nibble = 0;
        typename coder::factors factors{};
        const auto move = [&] {
            inputs.move(walker.at);
            to.move(walker.at);
            nibble = row_steps.nibble(walker.at.token);
        };
        const auto step = [&](uint32_t here) {
            const bool active = rank < here;
            if (inputs.regroup(walker.at)) factors = steps.factors_of(nibble, inputs.scale());
            const auto scalar = steps.prepare(inputs(walker.at), factors);
            const uint32_t code = steps.decode(x, scalar, active, words, corrupt);
            if (active) content.add(code);
            to(walker.at, code, here);
        };
        for (uint32_t left = count / Width; left != 0;) {
            move();
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
            move();
            step(count % Width);
        }
        const bool damaged = corrupt.set != 0 || !words.at_end() || !steps.ended(x);
        return threads::any(damaged) ? status::corrupt_stream : status::ok;
    }

    // Raw, constant and predicted blocks; `from` is where their words lie.
    template <class Predictor, class Sink>
    static __device__ status copy(const block_spec& spec, const uint8_t* from,
                                  const block_header& header, const Predictor& predictor,
                                  const Sink& sink, sums& content, sums& parameters)
    {
        const uint32_t count = header.count;
        lane_walker walker(spec, threads::rank());
        input_rows<Predictor> inputs(spec, predictor);
        any_sink<Width, nibbles, Sink> to(sink, spec.dim);
        for (uint32_t done = 0; done < count; done += Width, walker.forward(Width)) {
            const uint32_t here = count - done < Width ? count - done : Width;
            uint32_t code = 0;
            if (walker.before(count)) {
                to.move(walker.at);
                if (header.mode == block_mode::predicted) {
                    inputs.move(walker.at);
                    inputs.regroup(walker.at);
                    const scaled_input in = inputs(walker.at);
                    code = expected(in);
                    parameters.add(hashed(in, 0));
                } else {
                    const uint32_t i = header.mode == block_mode::raw ? walker.at.index : 0;
                    code = nibbles ? uint32_t(from[i / 2]) >> i % 2 * 4 & 15 : from[i];
                }
                content.add(code);
            }
            to(walker.at, code, here);
        }
        // What a byte or word has beyond its codes is 0.
        if (header.mode == block_mode::constant)
            return load_word(from) < 2 * format.code_sign() ? status::ok : status::corrupt_stream;
        const bool half = nibbles && header.mode == block_mode::raw && count % 2 != 0;
        return half && from[count / 2] >> 4 != 0 ? status::corrupt_stream : status::ok;
    }

    static __device__ void set_raw(const block_spec& spec, block_header& header)
    {
        header.mode = block_mode::raw;
        header.flags = uint8_t((spec.content_check ? has_content_check : 0) |
                               (spec.has_fingerprint ? has_fingerprint : 0));
        header.payload_words = uint32_t((raw_bytes(Type, header.count) + 1) / 2);
    }

    // Whether all codes are equal, and whether each is the one expected; then `parameters` is over
    // the predictions.
    template <class Predictor, class Source>
    static __device__ sameness compare(const block_spec& spec, const Source& source,
                                       const Predictor& predictor, sums& parameters)
    {
        const uint32_t count = uint32_t(count_of(spec));
        const uint32_t first_code = code_from<nibbles>(source, scalar_position{0, 0, 0, 0});
        sameness mine{true, true};
        lane_walker walker(spec, threads::rank());
        input_rows<Predictor> inputs(spec, predictor);
        for (uint32_t done = 0; done < count; done += Width, walker.forward(Width)) {
            if (walker.before(count)) {
                const uint32_t code = code_from<nibbles>(source, walker.at);
                mine.constant = mine.constant && code == first_code;
                if (mine.predicted) {
                    inputs.move(walker.at);
                    inputs.regroup(walker.at);
                    const scaled_input in = inputs(walker.at);
                    mine.predicted = code == expected(in);
                    parameters.add(hashed(in, 0));
                }
            }
            if (threads::any(!mine.constant) && threads::any(!mine.predicted))
                return {false, false};
        }
        return {threads::all(mine.constant), threads::all(mine.predicted)};
    }

    // True if the block is coded now, but for its header; then `header` says how.
    template <class Predictor, class Source>
    __device__ bool encode_steps(const block_spec& spec, const Source& source,
                                 const Predictor& predictor, uint8_t* out, size_t capacity,
                                 block_header& header, sums& content, sums& parameters,
                                 uint32_t& escapes) const
    {
        const uint32_t count = header.count, rank = threads::rank(), tail = count % Width;
        // A coded block must save at least 1/64 of the raw codes.
        const uint64_t limit = layout_of(header, 0).end - raw_bytes(Type, count) / 64;
        // No box is so large that this takes 33 bits.
        const uint32_t room = uint32_t(capacity < limit ? capacity : limit);
        header.mode = block_mode::coded;
        header.payload_words = 0;
        if (spec.parameter_hash) header.flags |= has_parameter_hash;
        if (spec.row_scale) choose_steps(spec, source, predictor, out, room, header);
        const block_layout at = layout_of(header, spec.tokens);
        if (at.words > room) return false;
        const lane_row_steps row_steps(out, header, at);
        const uint32_t words_room = uint32_t((room - at.words) / 2);
        const uint32_t members = threads::counted();
        warp_writer words{reinterpret_cast<uint16_t*>(out + at.words), words_room, false, members};
        const coder steps(storage_, members);
        typename coder::state x = steps.first();
        uint32_t escaped = 0, nibble = 0;
        typename coder::factors factors{};
        input_rows<Predictor> inputs(spec, predictor);
        lane_walker walker(spec, rank < tail ? count - tail + rank : count - 1);
        const auto move = [&] {
            inputs.move(walker.at);
            nibble = row_steps.nibble(walker.at.token);
        };
        const auto step = [&](bool active) {
            const uint32_t code = active ? code_from<nibbles>(source, walker.at) : 0;
            if (active) content.add(code);
            if (inputs.regroup(walker.at)) factors = steps.factors_of(nibble, inputs.scale());
            const auto scalar = steps.prepare(inputs(walker.at), factors);
            const mask lost = steps.encode(x, scalar, code, active, words);
            if (lost.possible != 0) escaped += lost.set;
        };
        if (tail != 0) {
            move();
            step(rank < tail);  // idle lanes take a scalar that is there
        }
        uint32_t left = count / Width;
        if (left != 0) walker.go_to((left - 1) * Width + rank);
        while (left != 0 && !words.overrun) {
            move();
            uint32_t run = walker.template steps_back_in_row<Width>(rank);
            run = run < left ? run : left;
            left -= run;
            for (;; walker.retreat(Width)) {
                step(true);
                if (--run == 0) break;
            }
            if (left != 0) walker.back(Width);
        }
        if (words.overrun) return false;
        const uint32_t stored = steps.close(x, words);
        header.payload_words = words_room - words.next;
        header.rows = row_steps.window();
        if (words.overrun || layout_of(header, spec.tokens).end > room) return false;
        content.turn(count);
        if (spec.parameter_hash) parameters = hash_of(spec, count, row_steps, predictor);
        escapes = threads::sum(escaped);
        reinterpret_cast<uint32_t*>(out + at.states)[rank] = stored;
        move_to_front<Width>(words.words, words.next, header.payload_words);
        return true;
    }

    // Row steps for all tokens, where they pay; then `header` says so.
    template <class Predictor, class Source>
    __device__ void choose_steps(const block_spec& spec, const Source& source,
                                 const Predictor& predictor, uint8_t* out, uint32_t room,
                                 block_header& header) const
    {
        const scaled_model<Type>& model = storage_.exact;
        warp_row_writer<Width> writer;
        writer.begin(header);
        input_rows<Predictor> inputs(spec, predictor);
        do {
            for (uint32_t token = 0; token < spec.tokens; ++token) {
                row_statistics row;
                for (uint32_t head = 0; head < spec.heads; ++head) {
                    const uint32_t first = (head * spec.tokens + token) * spec.dim;
                    scalar_position here{first, head, token, 0};
                    inputs.move(here);
                    for (uint32_t channel = threads::rank(); channel < spec.dim; channel += Width) {
                        here.index = first + channel;
                        here.channel = channel;
                        inputs.regroup(here);
                        const scaled_input in = inputs(here);
                        add_to_row<Type>(row, model, in, fast_mean_in_codes(in),
                                         code_from<nibbles>(source, here));
                    }
                }
                writer.add(model.shape, row, token, spec.tokens, header, out, room);
            }
        } while (writer.again(model.shape, spec.tokens, header, out, room));
    }

    template <class Source>
    static __device__ void finish(const block_spec& spec, const Source& source, uint8_t* out,
                                  size_t capacity, block_header& header, sums& content,
                                  const sums& parameters, encode_result& result)
    {
        const uint32_t count = header.count, rank = threads::rank();
        const block_layout at = layout_of(header, spec.tokens);
        result.mode = header.mode;
        result.lanes = Width;
        result.bytes = size_t(at.end);
        result.row_scaled = (header.flags & has_row_steps) != 0;
        if (at.end > capacity) {
            result.code = status::output_too_small;
            result.bytes = max_encoded_bytes(spec);
            return;
        }
        threads::barrier();  // others may have written words where this thread writes now
        uint64_t used = at.words + 2 * uint64_t(header.payload_words);
        const bool raw = header.mode == block_mode::raw;
        if (count != 0 && (raw || header.mode == block_mode::constant)) {
            const uint32_t stored = raw ? count : 1, bytes = uint32_t(raw_bytes(Type, stored));
            used = at.words + bytes;
            for (uint32_t i = rank; i < bytes; i += Width)
                out[at.words + i] = uint8_t(raw_byte(spec, source, i, stored));
        }
        if (header.mode != block_mode::coded && count != 0) {
            lane_walker walker(spec, rank);
            for (; walker.before(count); walker.forward(Width))
                content.add(code_from<nibbles>(source, walker.at));
        }
        header.content_check = content.total();
        const uint32_t hash = parameters.total();
        result.code = status::ok;
        if (rank != 0) return;
        for (uint64_t i = used; i < at.end; ++i) out[i] = 0;
        if (!spec.content_check) header.content_check = 0;
        write_block_header(header, out);
        if (header.flags & has_fingerprint) store_u64(out + at.fingerprint, spec.fingerprint);
        if (header.flags & has_parameter_hash) store_u32(out + at.parameter_hash, hash);
    }

    // Byte i of a raw block of `stored` codes.
    template <class Source>
    static __device__ uint32_t raw_byte(const block_spec& spec, const Source& source, uint32_t i,
                                        uint32_t stored)
    {
        const uint32_t first = nibbles ? 2 * i : i;
        const uint32_t code = code_from<nibbles>(source, lane_walker(spec, first).at);
        if (!nibbles || first + 1 >= stored) return code;
        return code | code_from<nibbles>(source, lane_walker(spec, first + 1).at) << 4;
    }

    const TempStorage& storage_;
};

}  // namespace detail

template <uint32_t Width, coder_id Coder>
class warp_codec<scalar_type::int8, Width, Coder>
    : public detail::warp_scaled_codec<scalar_type::int8, Width, Coder> {
    using detail::warp_scaled_codec<scalar_type::int8, Width, Coder>::warp_scaled_codec;
};

template <uint32_t Width, coder_id Coder>
class warp_codec<scalar_type::int4, Width, Coder>
    : public detail::warp_scaled_codec<scalar_type::int4, Width, Coder> {
    using detail::warp_scaled_codec<scalar_type::int4, Width, Coder>::warp_scaled_codec;
};

template <uint32_t Width, coder_id Coder>
class warp_codec<scalar_type::e2m1, Width, Coder>
    : public detail::warp_scaled_codec<scalar_type::e2m1, Width, Coder> {
    using detail::warp_scaled_codec<scalar_type::e2m1, Width, Coder>::warp_scaled_codec;
};

template <uint32_t Width>
class warp_codec<scalar_type::e4m3fn, Width, coder_id::tans>
    : public detail::warp_scaled_codec<scalar_type::e4m3fn, Width, coder_id::tans> {
    using detail::warp_scaled_codec<scalar_type::e4m3fn, Width, coder_id::tans>::warp_scaled_codec;
};

template <uint32_t Width>
class warp_codec<scalar_type::e5m2, Width, coder_id::tans>
    : public detail::warp_scaled_codec<scalar_type::e5m2, Width, coder_id::tans> {
    using detail::warp_scaled_codec<scalar_type::e5m2, Width, coder_id::tans>::warp_scaled_codec;
};

template <uint32_t Width>
class warp_codec<scalar_type::e4m3fnuz, Width, coder_id::tans>
    : public detail::warp_scaled_codec<scalar_type::e4m3fnuz, Width, coder_id::tans> {
    using detail::warp_scaled_codec<scalar_type::e4m3fnuz, Width,
                                    coder_id::tans>::warp_scaled_codec;
};

template <uint32_t Width>
class warp_codec<scalar_type::e5m2fnuz, Width, coder_id::tans>
    : public detail::warp_scaled_codec<scalar_type::e5m2fnuz, Width, coder_id::tans> {
    using detail::warp_scaled_codec<scalar_type::e5m2fnuz, Width,
                                    coder_id::tans>::warp_scaled_codec;
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
