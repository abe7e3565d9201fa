#pragma once
// One block, decoded or encoded by one logical warp (1, 8, 16 or 32 threads), in anybody's kernel:
//
//     using codec = normans::warp_codec<normans::scalar_type::e4m3fn, 32>;
//     __shared__ codec::TempStorage tables;           // one for all warps of the block of threads
//     codec::prepare(tables, spec, thread, threads);  // together
//     __syncthreads();
//     result = codec(tables).decode(spec, block, bytes, predictor, sink);
//
// Convergence: all threads of a logical warp make the call, with the same arguments; everybody else
// may be anywhere, so calls in divergent code are fine. Every thread gets the result.
// Nothing launches, allocates or waits for others. Reads and writes are bounded by the spec and the
// sizes given, whatever the block holds. Blocks start at multiples of 4 bytes, else bad_argument;
// apart from that statuses, codes and bytes are those of decode() and encode() on the host with
// spec.lanes set to Width. spec.marginal points to device memory.

#include "../block/check.hpp"
#include "row_views.cuh"
#include "warp_lanes.cuh"
#include "warp_model.cuh"
#include "warp_rows.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {

namespace detail {

// One lane's way through a box, a step of the group at a time.
struct lane_walker {
    uint32_t tokens, dim;
    scalar_position at;

    __device__ lane_walker(const block_spec& spec, uint32_t index)
        : tokens(spec.tokens), dim(spec.dim)
    {
        go_to(index);
    }

    __device__ void go_to(uint32_t index)
    {
        const uint32_t row = index / dim;
        at = {index, row / tokens, row % tokens, index % dim};
    }

    __device__ bool before(uint32_t end) const { return at.index < end; }

    /// Of lanes on `Width` neighbours, this being lane `rank`: the steps, at least 1, until the
    /// first of them leaves its row. The same in all.
    template <uint32_t Width>
    __device__ uint32_t steps_in_row(uint32_t rank) const
    {
        const uint32_t first = at.channel - rank + (at.channel < rank ? dim : 0);
        return dim < Width || dim - first < Width ? 1 : (dim - first) / Width;
    }

    /// The same backward.
    template <uint32_t Width>
    __device__ uint32_t steps_back_in_row(uint32_t rank) const
    {
        const uint32_t first = at.channel - rank + (at.channel < rank ? dim : 0);
        return dim < Width || dim - first < Width ? 1 : first / Width + 1;
    }

    /// Within a row.
    __device__ void retreat(uint32_t scalars)
    {
        at.index -= scalars;
        at.channel -= scalars;
    }

    /// Within a row.
    __device__ void advance(uint32_t scalars)
    {
        at.index += scalars;
        at.channel += scalars;
    }

    /// Far jumps divide, so no box makes a walk long.
    __device__ void forward(uint32_t scalars)
    {
        advance(scalars);
        if (at.channel < dim) return;
        uint32_t rows = 1;
        at.channel -= dim;
        if (at.channel >= dim) {
            rows += at.channel / dim;
            at.channel %= dim;
        }
        at.token += rows;
        if (at.token >= tokens) {
            at.head += at.token / tokens;
            at.token %= tokens;
        }
    }

    __device__ void back(uint32_t scalars)
    {
        const bool same_row = at.channel >= scalars;
        if (!same_row && at.channel + dim < scalars) return go_to(at.index - scalars);
        retreat(scalars);
        if (same_row) return;
        at.channel += dim;
        if (at.token == 0) {
            at.token = tokens;
            --at.head;
        }
        --at.token;
    }
};

struct no_guess {};  // the warp's model brings its own

}  // namespace detail

/// Blocks of one scalar type and lane count. See the head of this file; codes with a scale, by
/// either coder: cuda/warp_scaled.cuh; static tables: cuda/warp_order0.cuh.
template <scalar_type Type, uint32_t Width, coder_id Coder = coder_id::rans>
class warp_codec {
    static_assert(!has_scale(Type), "include cuda/warp_scaled.cuh");
    static_assert(Coder == coder_id::rans, "include the coder's own header");
    using lanes = warp_lanes<Width>;
    using threads = warp_threads<Width>;
    struct no_model {};
    template <scalar_type T, bool Modelled = has_model(T)>
    struct model_of {
        using type = warp_model<T>;
    };
    template <scalar_type T>
    struct model_of<T, false> {
        using type = no_model;
    };

public:
    /// Tables of (Type, shape, sigma_offset, marginal): shared by all that agree on these. They
    /// lie in shared memory, nowhere else.
    using TempStorage = typename model_of<Type>::type;

    /// Fills the tables. Made by `count` threads together, numbered `thread` = 0 .. count - 1; a
    /// barrier among them and the users must follow.
    static __device__ void prepare(TempStorage& storage, const block_spec& spec, uint32_t thread,
                                   uint32_t count)
    {
        if constexpr (has_model(Type)) storage.fill(spec, thread, count);
    }

    __device__ explicit warp_codec(const TempStorage& storage) : model_(storage) {}

    /// Decodes the block of at most `bytes` bytes at `block`. sink(scalar_position, code) is called
    /// once per scalar, by the thread whose lane it is; what it gets before damage is found is
    /// unspecified. Errors as decode()'s.
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
        sums content;
        status decoded = status::ok;
        result.code = detail::check_block(spec, block, bytes, header, at, result);
        if (result.code != status::ok) return result;
        if (header.mode == block_mode::coded) {
            if constexpr (has_model(Type)) {
                decoded = decode_steps(spec, block, header, at, predictor, sink, content);
                header = coded_header(block);
                result.bytes = size_t(layout_of(header, spec.tokens).end);
                result.mode = block_mode::coded;
                result.lanes = Width;
                result.row_scaled = (header.flags & has_row_steps) != 0;
                result.backend = backend_id::warp;
            }
        } else if (header.count != 0) {
            sums parameters;
            decoded = copy(spec, block + at.words, header, predictor, sink, content, parameters);
            if (detail::wants_hash(spec, header) &&
                detail::load_u32(block + at.parameter_hash) != parameters.total())
                decoded = status::wrong_prediction;
        }
        if (decoded != status::ok)
            result.code = decoded;
        else if (spec.content_check && header.content_check != content.total())
            result.code = status::content_mismatch;
        return result;
    }

    /// Encodes a box into `out`. source(scalar_position) -> code is called by the thread whose lane
    /// the scalar is, several times. result.bytes <= max_encoded_bytes(spec); errors as encode()'s.
    template <class Predictor, class Source>
    __device__ encode_result encode(const block_spec& agreed, const Source& source,
                                    const Predictor& predictor, uint8_t* out,
                                    size_t capacity) const
    {
        encode_result result;
        // One after the other, and the spec first: else nvcc takes more registers than it needs.
        if (agreed.dtype != Type || agreed.coder != coder_id::rans) return result;
        if (detail::check_spec(agreed) != status::ok || !acceptable(agreed, out)) return result;
        if (out == nullptr) {
            result.bytes = max_encoded_bytes(agreed);
            return result;
        }
        block_spec spec = agreed;
        spec.lanes = Width;
        const uint32_t count = uint32_t(count_of(spec));
        block_header header{Type, block_mode::raw, 0, Width, count, 0, 0};
        set_raw(spec, header);
        sums content, parameters;
        bool summed_up = false;
        if (count != 0) {
            const sameness same = compare(spec, source, predictor, parameters);
            if (same.constant) {
                header.mode = block_mode::constant;
                header.payload_words = 1;
            }
            if constexpr (has_model(Type)) {
                if (same.predicted) {
                    header.mode = block_mode::predicted;
                    header.payload_words = 0;
                    if (spec.parameter_hash) header.flags |= has_parameter_hash;
                } else if (!same.constant) {
                    parameters = {};
                    summed_up = encode_steps(spec, source, predictor, out, capacity, header,
                                             content, parameters, result.escapes);
                    if (summed_up) {
                        result.backend = backend_id::warp;
                    } else {
                        set_raw(spec, header);
                        content = {};
                    }
                }
            }
        }
        finish(spec, source, out, capacity, header, summed_up, content, parameters, result);
        return result;
    }

private:
    using sums = warp_sums<Width>;

    struct sameness {
        bool constant, predicted;
    };

    // What a coded block says of itself, for the result: read again, since to keep it through all
    // steps takes registers.
    static __device__ block_header coded_header(const uint8_t* block)
    {
        return {Type,
                block_mode::coded,
                uint8_t(block[2] >> 4),
                Width,
                0,
                detail::load_u32(block + 8),
                detail::load_u32(block + 12),
                coder_id::rans,
                {0, uint8_t(block[3] >> 4)}};
    }

    // In this order, so that what blocks of other coders need takes no registers.
    static __device__ bool acceptable(const block_spec& spec, const uint8_t* block)
    {
        return spec.dtype == Type && spec.coder == coder_id::rans &&
               (spec.lanes == 0 || spec.lanes == Width) &&
               reinterpret_cast<std::uintptr_t>(block) % 4 == 0 &&
               detail::check_spec(spec) == status::ok;
    }

    // The row step of a lane's row, and the rows of what is read and written along with it.
    template <class Predictor, class Codes>
    struct lane_rows {
        const warp_model<Type>& tables;
        const warp_view<Type>& model;
        detail::lane_row_steps row_steps;
        detail::predictor_rows<Predictor> predictor;
        Codes codes;
        typename TempStorage::factor step{};

        __device__ void move(const scalar_position& at)
        {
            predictor.move(at);
            codes.move(at);
            step = tables.row[row_steps.nibble(at.token)];
        }
        __device__ warp_scalar scalar(const scalar_position& at) const
        {
            const detail::mapped_prediction p = predictor(at);
            return model.prepare(p.mean, p.sigma_index, step);
        }
    };

    // The parameter hash of a coded block: a pass of its own, since it is rarely asked for.
    template <class Predictor>
    __device__ sums hash_of(const block_spec& spec, uint32_t count,
                            const detail::lane_row_steps& row_steps,
                            const Predictor& predictor) const
    {
        sums parameters;
        detail::lane_walker walker(spec, threads::rank());
        detail::predictor_rows<Predictor> rows(predictor);
        for (; walker.before(count); walker.forward(Width)) {
            rows.move(walker.at);
            const detail::mapped_prediction p = rows(walker.at);
            parameters.add(parameter_word(detail::canonical(p.mean), p.sigma_index,
                                          int(row_steps.nibble(walker.at.token)) + min_row_step));
        }
        return parameters;
    }

    template <class Predictor, class Sink>
    __device__ status decode_steps(const block_spec& spec, const uint8_t* block,
                                   const block_header& header, const block_layout& at,
                                   const Predictor& predictor, const Sink& sink,
                                   sums& content) const
    {
        uint32_t x = reinterpret_cast<const uint32_t*>(block + at.states)[threads::rank()];
        if (threads::any(!detail::valid_state(x))) return status::corrupt_stream;
        const detail::lane_row_steps row_steps(block, header, at);
        if (spec.parameter_hash && detail::load_u32(block + at.parameter_hash) !=
                                       hash_of(spec, header.count, row_steps, predictor).total())
            return status::wrong_prediction;
        const uint32_t members = threads::counted();
        warp_reader words(reinterpret_cast<const uint16_t*>(block + at.words),
                          header.payload_words, members);
        typename lanes::mask corrupt{false};
        const uint32_t rank = threads::rank();
        uint32_t count = header.count;
        detail::lane_walker walker(spec, rank < count ? rank : count - 1);
        const warp_view<Type> model(model_, members);
        lane_rows<Predictor, detail::sink_rows<Sink>> rows{
            model_, model, row_steps, detail::predictor_rows<Predictor>(predictor),
            detail::sink_rows<Sink>(sink)};
        const auto step = [&](typename lanes::mask active) {
            const warp_scalar scalar = rows.scalar(walker.at);
            const uint32_t code = decode_step<lanes>(x, model, detail::no_guess{}, scalar, active,
                                                     words, corrupt);
            if (active.set == 0) return;
            content.add(code);
            rows.codes(walker.at, code);
        };
        for (uint32_t left = count / Width; left != 0;) {
            rows.move(walker.at);
            uint32_t run = walker.template steps_in_row<Width>(rank);
            run = run < left ? run : left;
            left -= run;
            const uint32_t end = walker.at.channel + (run - 1) * Width;
            for (;; walker.advance(Width)) {
                step(true);
                if (walker.at.channel == end) break;
            }
            walker.forward(Width);
        }
        // Multiplied again, rather than kept.
        count = detail::kept(spec.tokens) * spec.heads * spec.dim;
        if (count % Width != 0) {
            const bool active = rank < count % Width;
            if (!active) walker.go_to(count - 1);  // idle lanes take a scalar that is there
            rows.move(walker.at);
            step(active);
        }
        const bool damaged =
            corrupt.set != 0 || !words.at_end() || x != rans_format::lower_bound;
        return threads::any(damaged) ? status::corrupt_stream : status::ok;
    }

    // Raw, constant and predicted blocks; `from` is where their words lie.
    template <class Predictor, class Sink>
    __device__ status copy(const block_spec& spec, const uint8_t* from, const block_header& header,
                           const Predictor& predictor, const Sink& sink, sums& content,
                           sums& parameters) const
    {
        constexpr uint32_t bytes = code_bytes(Type);
        detail::lane_walker walker(spec, threads::rank());
        detail::predictor_rows<Predictor> rows(predictor);
        for (; walker.before(header.count); walker.forward(Width)) {
            uint32_t code = 0;
            if (header.mode == block_mode::predicted) {
                rows.move(walker.at);
                const detail::mapped_prediction p = rows(walker.at);
                code = nearest_code(format_of(Type), p.mean);
                parameters.add(parameter_word(detail::canonical(p.mean), p.sigma_index, 0));
            } else {
                const uint8_t* mine =
                    from + (header.mode == block_mode::raw ? size_t(walker.at.index) * bytes : 0);
                code = bytes == 2 ? detail::load_word(mine) : *mine;
            }
            sink(walker.at, code);
            content.add(code);
        }
        const bool wide = header.mode == block_mode::constant && bytes == 1 && from[1] != 0;
        return wide ? status::corrupt_stream : status::ok;
    }

    static __device__ void set_raw(const block_spec& spec, block_header& header)
    {
        header.mode = block_mode::raw;
        header.flags = uint8_t((spec.content_check ? has_content_check : 0) |
                               (spec.has_fingerprint ? has_fingerprint : 0));
        header.payload_words = uint32_t((uint64_t(header.count) * code_bytes(Type) + 1) / 2);
    }

    // Whether all codes are equal, and whether each is the one nearest to its mean; then
    // `parameters` is over the predictions.
    template <class Predictor, class Source>
    __device__ sameness compare(const block_spec& spec, const Source& source,
                                const Predictor& predictor, sums& parameters) const
    {
        const uint32_t count = uint32_t(count_of(spec));
        const uint32_t first_code = source(scalar_position{0, 0, 0, 0});
        sameness mine{true, has_model(Type)};
        detail::lane_walker walker(spec, threads::rank());
        detail::predictor_rows<Predictor> rows(predictor);
        for (uint32_t first = 0; first < count; first += Width) {
            if (walker.before(count)) {
                const uint32_t code = source(walker.at);
                mine.constant = mine.constant && code == first_code;
                if (mine.predicted) {
                    rows.move(walker.at);
                    const detail::mapped_prediction p = rows(walker.at);
                    mine.predicted = code == nearest_code(format_of(Type), p.mean);
                    parameters.add(parameter_word(detail::canonical(p.mean), p.sigma_index, 0));
                }
            }
            if (threads::any(!mine.constant) && threads::any(!mine.predicted))
                return {false, false};
            walker.forward(Width);
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
        const uint32_t count = header.count;
        // A coded block must save at least 1/64 of the raw codes.
        const uint64_t limit =
            layout_of(header, 0).end - uint64_t(count) * code_bytes(Type) / 64;
        // No box is so large that this takes 33 bits.
        const uint32_t room = uint32_t(capacity < limit ? capacity : limit);
        header.mode = block_mode::coded;
        header.payload_words = 0;
        if (spec.parameter_hash) header.flags |= has_parameter_hash;
        if (spec.row_scale) choose_steps(spec, source, predictor, out, room, header);
        const block_layout at = layout_of(header, spec.tokens);
        if (at.words > room) return false;
        const detail::lane_row_steps row_steps(out, header, at);
        const uint32_t words_room = uint32_t((room - at.words) / 2);
        const uint32_t members = threads::counted();
        warp_writer words{reinterpret_cast<uint16_t*>(out + at.words), words_room, false, members};

        uint32_t x = rans_format::lower_bound, escaped = 0;
        const uint32_t rank = threads::rank(), tail = count % Width;
        detail::lane_walker walker(spec, rank < tail ? count - tail + rank : count - 1);
        const warp_view<Type> model(model_, members);
        lane_rows<Predictor, detail::source_rows<Source>> rows{
            model_, model, row_steps, detail::predictor_rows<Predictor>(predictor),
            detail::source_rows<Source>(source)};
        const auto step = [&](typename lanes::mask active) {
            const uint32_t code = active.set != 0 ? rows.codes(walker.at) : 0;
            if (active.set != 0) content.add(code);
            const warp_scalar scalar = rows.scalar(walker.at);
            const auto lost = encode_step<lanes>(x, model, scalar, code, active, words);
            if (lost.possible == 0) return;
            threads::barrier();  // or nvcc adds in every step
            escaped += lost.set;
        };
        if (tail != 0) {
            rows.move(walker.at);
            step(rank < tail);  // idle lanes take a scalar that is there
        }
        uint32_t left = count / Width;
        if (left != 0) walker.go_to((left - 1) * Width + rank);
        while (left != 0 && !words.overrun) {
            rows.move(walker.at);
            uint32_t run = walker.template steps_back_in_row<Width>(rank);
            run = run < left ? run : left;
            left -= run;
            const uint32_t end = walker.at.channel - (run - 1) * Width;
            for (;; walker.retreat(Width)) {
                step(true);
                if (walker.at.channel == end) break;
            }
            if (left != 0) walker.back(Width);
        }
        header.payload_words = words_room - words.next;
        header.rows = row_steps.window();
        if (words.overrun || layout_of(header, spec.tokens).end > room) return false;
        content.turn(count);
        if (spec.parameter_hash) parameters = hash_of(spec, count, row_steps, predictor);
        escapes = threads::sum(escaped);
        reinterpret_cast<uint32_t*>(out + at.states)[threads::rank()] = x;
        detail::move_to_front<Width>(words.words, words.next, header.payload_words);
        return true;
    }

    // Row steps for all tokens, where they pay; then `header` says so.
    template <class Predictor, class Source>
    __device__ void choose_steps(const block_spec& spec, const Source& source,
                                 const Predictor& predictor, uint8_t* out, uint32_t room,
                                 block_header& header) const
    {
        const normal_shape& shape = model_.exact.shape;
        detail::warp_row_writer<Width> writer;
        writer.begin(header);
        detail::predictor_rows<Predictor> predictions(predictor);
        detail::source_rows<Source> codes(source);
        do {
            for (uint32_t token = 0; token < spec.tokens; ++token) {
                row_statistics row;
                for (uint32_t head = 0; head < spec.heads; ++head) {
                    const uint32_t first = (head * spec.tokens + token) * spec.dim;
                    scalar_position here{first, head, token, 0};
                    predictions.move(here);
                    codes.move(here);
                    for (uint32_t channel = threads::rank(); channel < spec.dim; channel += Width) {
                        here.index = first + channel;
                        here.channel = channel;
                        const detail::mapped_prediction p = predictions(here);
                        const scalar_model m = model_.exact.prepare_sloped(p.mean, p.sigma_index,
                                                                           statistics_scale);
                        row.add(model_.exact, m, codes(here));
                    }
                }
                writer.add(shape, row, token, spec.tokens, header, out, room);
            }
        } while (writer.again(shape, spec.tokens, header, out, room));
    }

    template <class Source>
    __device__ void finish(const block_spec& spec, const Source& source, uint8_t* out,
                           size_t capacity, block_header& header, bool summed_up, sums& content,
                           const sums& parameters, encode_result& result) const
    {
        const uint32_t count = header.count;
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
        const bool stores = header.mode == block_mode::raw || header.mode == block_mode::constant;
        if (count != 0 && !summed_up) {
            const uint32_t stored = !stores                              ? 0
                                    : header.mode == block_mode::constant ? 1
                                                                          : count;
            used = stores ? at.words + uint64_t(stored) * code_bytes(Type) : used;
            detail::lane_walker walker(spec, threads::rank());
            for (; walker.before(count); walker.forward(Width)) {
                const uint32_t code = source(walker.at);
                content.add(code);
                if (walker.at.index >= stored) continue;
                uint8_t* to = out + at.words + size_t(walker.at.index) * code_bytes(Type);
                to[0] = uint8_t(code);
                if (code_bytes(Type) == 2) to[1] = uint8_t(code >> 8);
            }
        }
        header.content_check = content.total();
        const uint32_t hash = parameters.total();
        result.code = status::ok;
        if (threads::rank() != 0) return;
        for (uint64_t i = used; i < at.end; ++i) out[i] = 0;
        if (!spec.content_check) header.content_check = 0;
        write_block_header(header, out);
        if (header.flags & has_fingerprint)
            detail::store_u64(out + at.fingerprint, spec.fingerprint);
        if (header.flags & has_parameter_hash) detail::store_u32(out + at.parameter_hash, hash);
    }

    const TempStorage& model_;
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
