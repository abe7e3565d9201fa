#pragma once
// Blocks of int8, int4 and e2m1, by rANS or tANS, and of fp8 by tANS: one lane after the other, by
// the definition (the results' backend says so). Two kinds of steps run faster elsewhere: rANS's by
// planes, between choose_scaled_mode() and finish_scaled() when encoding (block_encoder.hpp), and
// those of tANS with views in tans_block.hpp and float_block.hpp. Modes, checks, statuses and bytes
// are those of the other blocks; what differs: all but fp8 have a scale, 4-bit codes lie two to a
// byte in memory and in raw blocks, and the parameter hash sums up parameter_word(mu', sigma, row
// step) ^ the scale's fp32 bits (0 of fp8).

#include "../block/check.hpp"
#include "../block/scaled_input.hpp"
#include "../core/float_bank.hpp"
#include "../core/rans_step.hpp"
#include "../core/tans_step.hpp"
#include "block_job.hpp"
#include "float_block.hpp"
#include "row_steps.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// Predictions and scales; a scale is made ready once for its neighbours. The predictor's type is
// forgotten: what follows is compiled once for all.
class scaled_source {
public:
    template <class Predictor>
    scaled_source(const block_spec& spec, const Predictor& predictor)
        : scales_(has_scale(spec.dtype) ? spec.scales : scale_view{}),
          predictor_(&predictor),
          ask_([](const void* p, const scalar_position& at) {
              return (*static_cast<const Predictor*>(p))(at);
          })
    {
        if (!has_scale(spec.dtype)) last_ = make_scale(one_bits);
    }

    scaled_input operator()(const scalar_position& at)
    {
        const prediction one = ask_(predictor_, at);
        if (scales_.data == nullptr) return {clean_mean(one), one.sigma_index, 0, last_};
        const uint32_t bits = float_to_bits(scales_(at));
        if (bits != last_bits_) {
            last_ = make_scale(bits);
            last_bits_ = bits;
        }
        return {clean_mean(one), one.sigma_index, bits, last_};
    }

private:
    scale_view scales_;
    const void* predictor_;
    prediction (*ask_)(const void*, const scalar_position&);
    uint32_t last_bits_ = 0;
    code_scale last_{};  // of 0
};

// What a decoded block comes to. Another prediction explains all other faults, so it goes first.
inline status outcome_of(const block_spec& spec, const block_header& header, const uint8_t* hash,
                         const block_sums& sums, status decoded)
{
    if (wants_hash(spec, header) && load_u32(hash) != sums.parameter_hash)
        return status::wrong_prediction;
    if (decoded != status::ok) return decoded;
    return spec.content_check && header.content_check != sums.content_check
               ? status::content_mismatch
               : status::ok;
}

// The two coders with one face. `stored` has Width numbers.
template <scalar_type Type, uint32_t Width>
struct rans_lanes {
    static constexpr scalar_format format = format_of(Type);
    using lanes = array_lanes<Width>;
    using state = typename lanes::state;
    using models = typename lanes::models;
    static constexpr uint32_t idle_lane = rans_format::lower_bound;

    scaled_model<Type> model;

    explicit rans_lanes(const block_spec& spec)
        : model{shape_of(spec.shape), spec.sigma_offset, nullptr}
    {
    }
    scalar_model prepare(const scaled_input& in, int row_step) const
    {
        return prepare_scaled(model, in.mean, in.sigma_index, row_step, in.scale);
    }
    static void begin(state& x)
    {
        x = lanes::each([](uint32_t) { return rans_format::lower_bound; });
    }
    static void close(state& x, uint32_t* stored, word_writer&)
    {
        for (uint32_t i = 0; i < Width; ++i) stored[i] = x[i];
    }
    bool open(state& x, const uint32_t* stored, word_reader&) const
    {
        bool good = true;
        for (uint32_t i = 0; i < Width; ++i) {
            x[i] = stored[i];
            good &= valid_state(stored[i]);
        }
        return good;
    }
    static bool ended(const state& x)
    {
        bool all = true;
        for (uint32_t i = 0; i < Width; ++i) all &= x[i] == rans_format::lower_bound;
        return all;
    }
    uint32_t encode(state& x, const models& m, const typename lanes::values& codes, uint32_t active,
                    word_writer& words) const
    {
        return encode_step<lanes>(x, model, m, codes, active, words);
    }
    typename lanes::values decode(state& x, const models& m, uint32_t active, word_reader& words,
                                  uint32_t& corrupt) const
    {
        return decode_step<lanes>(x, model, no_guess{}, m, active, words, corrupt);
    }

private:
    struct no_guess {
        template <class Model>
        NORMANS_HD int operator()(const Model&, const scalar_model&, uint32_t) const
        {
            return 0;
        }
    };
};

template <class Model, uint32_t Width>
struct tans_lanes {
    using lanes = tans_array_lanes<Width>;
    using state = typename lanes::state;
    using models = typename lanes::template models<Model>;
    static constexpr uint32_t idle_lane = tans_format::lower_bound | tans_format::first_cell << 16;

    Model model;

    typename Model::scalar prepare(const scaled_input& in, int row_step) const
    {
        return model.prepare(in.mean, in.sigma_index, row_step, in.scale);
    }
    static void begin(state& x)
    {
        x.cell = lanes::each([](uint32_t) { return tans_format::first_cell; });
        x.bits = lanes::each([](uint32_t) { return tans_format::lower_bound; });
    }
    static void close(state& x, uint32_t* stored, word_writer& words)
    {
        close_lanes<lanes>(x, stored, words);
    }
    bool open(state& x, const uint32_t* stored, word_reader& words) const
    {
        return open_lanes<lanes>(x, stored, model.bank.plan.table_bits, words);
    }
    static bool ended(const state& x)
    {
        bool all = true;
        for (uint32_t i = 0; i < Width; ++i)
            all &= x.cell[i] == tans_format::first_cell && x.bits[i] == tans_format::lower_bound;
        return all;
    }
    uint32_t encode(state& x, const models& m, const typename lanes::values& codes, uint32_t active,
                    word_writer& words) const
    {
        return encode_step<lanes>(x, model, m, codes, active, words);
    }
    typename lanes::values decode(state& x, const models& m, uint32_t active, word_reader& words,
                                  uint32_t& corrupt) const
    {
        return decode_step<lanes>(x, model, m, active, words, corrupt);
    }
};

// Runs f(coder) for the spec's coder and type; blocks of 16 lanes leave 16 idle.
template <class Function>
auto with_scaled_coder(const block_spec& spec, uint32_t lanes, Function f)
{
    const auto sized = [&](auto type, auto width) {
        constexpr scalar_type t = decltype(type)::value;
        if constexpr (format_of(t).is_integer)
            if (spec.coder == coder_id::tans)
                return f(tans_lanes<bank_model<t>, decltype(width)::value>{
                    {*spec.bank, spec.sigma_offset}});
        return f(rans_lanes<t, decltype(width)::value>(spec));
    };
    const auto with_width = [&](auto run) {
        if (lanes == 1) return run(std::integral_constant<uint32_t, 1>{});
        return lanes <= 8 ? run(std::integral_constant<uint32_t, 8>{})
                          : run(std::integral_constant<uint32_t, 32>{});
    };
    const auto typed = [&](auto type) {
        return with_width([&](auto width) { return sized(type, width); });
    };
    if (has_float_bank(spec.dtype) && spec.coder == coder_id::tans) {
        const float_bank_model model(spec.dtype, *spec.bank, spec.sigma_offset);
        return with_width([&](auto width) {
            return f(tans_lanes<float_bank_model, decltype(width)::value>{model});
        });
    }
    if (spec.dtype == scalar_type::int4)
        return typed(std::integral_constant<scalar_type, scalar_type::int4>{});
    if (spec.dtype == scalar_type::e2m1)
        return typed(std::integral_constant<scalar_type, scalar_type::e2m1>{});
    return typed(std::integral_constant<scalar_type, scalar_type::int8>{});
}

// One block's steps, last to first. False where the words ran out of room; else they begin at
// words.next and the lanes' stored form is in `stored`.
template <class Coder>
bool encode_scaled_steps(const block_spec& spec, const Coder& coder, scaled_source& source,
                         const packed_codes<const uint8_t>& codes, const row_steps_view& row_steps,
                         uint32_t lanes, word_writer& words, uint32_t* stored, block_sums& sums,
                         uint32_t& escapes)
{
    const uint32_t count = uint32_t(count_of(spec));
    typename Coder::state state;
    Coder::begin(state);
    check_sums content, parameters;
    uint32_t here = count % lanes != 0 ? count % lanes : lanes;
    for (box_walker walker(spec, count); walker.position().index != 0; here = lanes) {
        walker.back(here);
        typename Coder::models models{};
        typename Coder::lanes::values now{};
        box_walker at = walker;
        for (uint32_t i = 0; i < here; ++i, at.next()) {
            const scaled_input in = source(at.position());
            const int step = row_steps(at.position().token);
            models[i] = coder.prepare(in, step);
            now[i] = codes.load(at.position());
            content.lane[i].add(now[i]);
            if (spec.parameter_hash) parameters.lane[i].add(scaled_word(in, step));
        }
        const uint32_t active = Coder::lanes::first_lanes(here);
        uint32_t escaped = coder.encode(state, models, now, active, words);
        for (; escaped != 0; escaped &= escaped - 1) ++escapes;
        if (words.overrun) return false;
    }
    Coder::close(state, stored, words);
    content.reverse(lanes, count);
    parameters.reverse(lanes, count);
    sums = {content.total(lanes), parameters.total(lanes)};
    return !words.overrun;
}

// The same, decoded. corrupt_stream where words, slots or ends are damaged; `opened` says whether
// the lanes' stored form was one, so that anything was decoded.
template <class Coder>
status decode_scaled_steps(const block_spec& spec, const Coder& coder, scaled_source& source,
                         const packed_codes<uint8_t>& codes, const row_steps_view& row_steps,
                         uint32_t lanes, word_reader& words, const uint32_t* stored,
                         block_sums& sums, bool& opened)
{
    const uint32_t count = uint32_t(count_of(spec));
    typename Coder::state state;
    opened = coder.open(state, stored, words);
    if (!opened) return status::corrupt_stream;
    check_sums content, parameters;
    uint32_t corrupt = 0;
    for (box_walker walker(spec, 0); walker.position().index != count;) {
        const uint32_t left = count - walker.position().index, here = left < lanes ? left : lanes;
        typename Coder::models models{};
        box_walker at = walker;
        for (uint32_t i = 0; i < here; ++i, at.next()) {
            const scaled_input in = source(at.position());
            const int step = row_steps(at.position().token);
            models[i] = coder.prepare(in, step);
            if (spec.parameter_hash) parameters.lane[i].add(scaled_word(in, step));
        }
        const auto now =
            coder.decode(state, models, Coder::lanes::first_lanes(here), words, corrupt);
        for (uint32_t i = 0; i < here; ++i, walker.next()) {
            codes.store(walker.position(), now[i]);
            content.lane[i].add(now[i]);
        }
    }
    sums = {content.total(lanes), parameters.total(lanes)};
    const bool clean =
        corrupt == 0 && !words.overrun && words.next == words.end && Coder::ended(state);
    return clean ? status::ok : status::corrupt_stream;
}

// Gives the writer the sums over all tokens.
template <scalar_type Type>
void choose_scaled_steps(const block_spec& spec, scaled_source& source,
                         const packed_codes<const uint8_t>& codes, row_step_writer& writer)
{
    const scaled_model<Type> model{shape_of(spec.shape), spec.sigma_offset, nullptr};
    for (uint32_t token = 0; token < spec.tokens; ++token) {
        row_statistics row;
        for (uint32_t head = 0; head < spec.heads; ++head) {
            box_walker walker(spec, (head * spec.tokens + token) * spec.dim);
            for (uint32_t i = 0; i < spec.dim; ++i, walker.next()) {
                const scaled_input in = source(walker.position());
                add_to_row<Type>(row, model, in, mean_in_codes(in.mean, in.scale),
                                 codes.load(walker.position()));
            }
        }
        writer.add(model.shape, token, row);
    }
}

inline void choose_scaled_steps(const block_spec& spec, scaled_source& source,
                                const packed_codes<const uint8_t>& codes, row_step_writer& writer)
{
    using type = scalar_type;
    switch (spec.dtype) {
    case type::int4: return choose_scaled_steps<type::int4>(spec, source, codes, writer);
    case type::e2m1: return choose_scaled_steps<type::e2m1>(spec, source, codes, writer);
    case type::e4m3fn: return choose_scaled_steps<type::e4m3fn>(spec, source, codes, writer);
    case type::e5m2: return choose_scaled_steps<type::e5m2>(spec, source, codes, writer);
    case type::e4m3fnuz: return choose_scaled_steps<type::e4m3fnuz>(spec, source, codes, writer);
    case type::e5m2fnuz: return choose_scaled_steps<type::e5m2fnuz>(spec, source, codes, writer);
    default: return choose_scaled_steps<type::int8>(spec, source, codes, writer);
    }
}

// Tries the coded form; true if it is kept: then all but the 16 bytes, the fingerprint and the hash
// is in place.
inline bool encode_scaled_coded(const block_spec& spec, scaled_source& source,
                                const array_predictor* arrays,
                                const packed_codes<const uint8_t>& codes, uint8_t* out,
                                uint64_t room, block_header& header, block_sums& sums,
                                uint32_t& escapes)
{
    if (spec.row_scale) {
        row_step_writer writer(header, spec.tokens, out, room);
        do choose_scaled_steps(spec, source, codes, writer);
        while (writer.again(shape_of(spec.shape)));
    }
    const block_layout at = layout_of(header, spec.tokens);
    if (at.words > room) return false;
    const row_steps_view row_steps = row_steps_of(out, header, at);
    uint8_t* const end = out + at.words + (room - at.words) / 2 * 2;
    word_writer words{out + at.words, end};
    uint32_t stored[max_lanes];
    const bool fits =
        arrays != nullptr
            ? encode_array_steps(spec, *arrays, codes, row_steps, header.lanes, words, stored, sums,
                                escapes)
            : with_scaled_coder(spec, header.lanes, [&](const auto& coder) {
                  return encode_scaled_steps(spec, coder, source, codes, row_steps, header.lanes,
                                             words, stored, sums, escapes);
              });
    if (!fits) return false;
    header.payload_words = uint32_t((end - words.next) / 2);
    if (layout_of(header, spec.tokens).end > room) return false;
    for (uint32_t i = 0; i < header.lanes; ++i) store_u32(out + at.states + 4 * i, stored[i]);
    std::memmove(out + at.words, words.next, 2 * size_t(header.payload_words));
    return true;
}

// As what a block starts: raw.
inline void set_scaled_raw(const block_spec& spec, block_header& header)
{
    header.mode = block_mode::raw;
    header.flags = uint8_t((spec.content_check ? has_content_check : 0) |
                           (spec.has_fingerprint ? has_fingerprint : 0));
    header.payload_words = uint32_t((raw_bytes(spec.dtype, count_of(spec)) + 1) / 2);
}

// A block before its steps: header and, if it is predicted, its hash. True if the coded form should
// be tried, in `room` bytes.
inline bool choose_scaled_mode(const block_spec& spec, scaled_source& source,
                               const packed_codes<const uint8_t>& codes, size_t capacity,
                               block_header& header, block_sums& sums, uint64_t& room)
{
    const scalar_format format = format_of(spec.dtype);
    const uint32_t count = uint32_t(count_of(spec));
    header = {};
    header.dtype = spec.dtype;
    header.coder = spec.coder;
    header.lanes = spec.lanes != 0 ? spec.lanes : default_lanes(count);
    header.count = count;
    set_scaled_raw(spec, header);
    if (count == 0) return false;
    const uint64_t raw = raw_bytes(spec.dtype, count), raw_end = layout_of(header, 0).end;
    check_sums parameters;
    bool constant = true, predicted = true;
    box_walker walker(spec, 0);
    const uint32_t first = codes.load(walker.position());
    for (uint32_t i = 0; i < count && (constant || predicted); ++i, walker.next()) {
        const uint32_t now = codes.load(walker.position());
        constant &= now == first;
        if (!predicted) continue;
        const scaled_input in = source(walker.position());
        predicted = now == expected_code(format, mean_in_codes(in.mean, in.scale));
        parameters.lane[i % header.lanes].add(scaled_word(in, 0));
    }
    if (constant && !predicted) {
        header.mode = block_mode::constant;
        header.payload_words = 1;
        return false;
    }
    header.mode = predicted ? block_mode::predicted : block_mode::coded;
    header.payload_words = 0;
    if (spec.parameter_hash) header.flags |= has_parameter_hash;
    if (predicted) sums.parameter_hash = parameters.total(header.lanes);
    // A coded block must save at least 1/64 of the raw codes.
    const uint64_t limit = raw_end - raw / 64;
    room = capacity < limit ? capacity : limit;
    return !predicted;
}

// All that is left to write once the mode is settled: of a coded block all but row steps, states
// and words.
inline void finish_scaled(const block_spec& spec, const packed_codes<const uint8_t>& codes,
                          block_header& header, block_sums& sums, uint8_t* out, size_t capacity,
                          encode_result& result)
{
    const uint32_t count = header.count;
    const block_layout at = layout_of(header, spec.tokens);
    result.mode = header.mode;
    result.lanes = header.lanes;
    result.row_scaled = (header.flags & has_row_steps) != 0;
    result.bytes = size_t(at.end);
    if (at.end > capacity) {
        result.code = status::output_too_small;
        result.bytes = max_encoded_bytes(spec);
        return;
    }
    uint64_t used = at.words + 2 * uint64_t(header.payload_words);
    if (count != 0 && (header.mode == block_mode::raw || header.mode == block_mode::constant)) {
        const uint32_t stored = header.mode == block_mode::constant ? 1 : count;
        used = at.words + raw_bytes(spec.dtype, stored);
        std::memset(out + at.words, 0, size_t(used - at.words));
        box_walker walker(spec, 0);
        const packed_codes<uint8_t> to{{out + at.words, 0, 0}, codes.nibbles};
        for (uint32_t i = 0; i < stored; ++i, walker.next())
            to.store({0, 0, 0, i}, codes.load(walker.position()));
    }
    std::memset(out + used, 0, size_t(at.end - used));
    if (count != 0 && header.mode != block_mode::coded) {
        check_sums content;
        box_walker walker(spec, 0);
        for (uint32_t i = 0; i < count; ++i, walker.next())
            content.lane[i % header.lanes].add(codes.load(walker.position()));
        sums.content_check = content.total(header.lanes);
    }
    header.content_check = spec.content_check ? sums.content_check : 0;
    write_block_header(header, out);
    if (header.flags & has_fingerprint) store_u64(out + at.fingerprint, spec.fingerprint);
    if (header.flags & has_parameter_hash) store_u32(out + at.parameter_hash, sums.parameter_hash);
    result.code = status::ok;
}

/// encode() for types with a scale. `spec` passed check_spec, pointers are there. `arrays`: the
/// predictions again, where float_block.hpp codes the steps, else null. Code is uint8_t: a template
/// only so that a program may have it compiled once.
template <class Code>
encode_result encode_scaled(const block_spec& spec, const packed_codes<const Code>& codes,
                            scaled_source source, const array_predictor* arrays, uint8_t* out,
                            size_t capacity)
{
    encode_result result;
    block_header header;
    block_sums sums;
    uint64_t room = 0;
    if (choose_scaled_mode(spec, source, codes, capacity, header, sums, room)) {
        if (encode_scaled_coded(spec, source, arrays, codes, out, room, header, sums,
                                result.escapes)) {
            if (arrays != nullptr) result.backend = tans_backend(spec.dtype, header.lanes);
        } else {
            set_scaled_raw(spec, header);
            result.escapes = 0;
        }
    }
    finish_scaled(spec, codes, header, sums, out, capacity, result);
    return result;
}

// Raw, constant and predicted blocks. expected(position, hashed): the code, and the word for the
// parameter hash, of a scalar of a predicted block.
template <class Expected>
status copy_scaled(const block_spec& spec, const block_header& header, Expected expected,
                   const uint8_t* from, const packed_codes<uint8_t>& to, block_sums& sums)
{
    const scalar_format format = format_of(spec.dtype);
    const packed_codes<const uint8_t> stored{{from, 0, 0}, to.nibbles};
    check_sums content, parameters;
    box_walker walker(spec, 0);
    for (uint32_t i = 0; i < header.count; ++i, walker.next()) {
        uint32_t now = 0;
        if (header.mode == block_mode::predicted) {
            uint32_t hashed = 0;
            now = expected(walker.position(), hashed);
            parameters.lane[i % header.lanes].add(hashed);
        } else {
            now = stored.load({0, 0, 0, header.mode == block_mode::raw ? i : 0});
        }
        to.store(walker.position(), now);
        content.lane[i % header.lanes].add(now);
    }
    sums = {content.total(header.lanes), parameters.total(header.lanes)};
    // What a byte or word has beyond its codes is 0.
    if (header.mode == block_mode::constant)
        return load_word(from) < 2 * format.code_sign() ? status::ok : status::corrupt_stream;
    const bool half = header.mode == block_mode::raw && to.nibbles && header.count % 2 != 0;
    return half && from[header.count / 2] >> 4 != 0 ? status::corrupt_stream : status::ok;
}

/// decode() for types with a scale; `arrays` and Code as for encode_scaled().
template <class Code>
decode_result decode_scaled(const block_spec& spec, const uint8_t* block, size_t bytes,
                            scaled_source source, const array_predictor* arrays,
                            box_view<Code> box)
{
    decode_result result;
    block_header header;
    block_layout at;
    result.code = check_block(spec, block, bytes, header, at, result);
    if (result.code != status::ok || header.count == 0) {
        if (result.code == status::ok && spec.content_check && header.content_check != 0)
            result.code = status::content_mismatch;
        return result;
    }
    const packed_codes<uint8_t> codes{box, format_of(spec.dtype).code_bits == 4};
    block_sums sums;
    status decoded = status::ok;
    if (header.mode == block_mode::coded) {
        const row_steps_view row_steps = row_steps_of(block, header, at);
        word_reader words{block + at.words, block + at.words + 2 * uint64_t(header.payload_words)};
        bool opened = false;
        const auto by_definition = [&](const auto& coder) {
            uint32_t stored[max_lanes];
            for (uint32_t i = 0; i < max_lanes; ++i)
                stored[i] =
                    i < header.lanes ? load_u32(block + at.states + 4 * i) : coder.idle_lane;
            return decode_scaled_steps(spec, coder, source, codes, row_steps, header.lanes, words,
                                       stored, sums, opened);
        };
        if (arrays != nullptr) {
            result.backend = tans_backend(spec.dtype, header.lanes);
            decoded = decode_array_steps(spec, *arrays, codes, row_steps, header.lanes, words,
                                        block + at.states, sums, opened);
        } else {
            decoded = with_scaled_coder(spec, header.lanes, by_definition);
        }
        if (!opened) {  // the hash could not say anything
            result.code = decoded;
            return result;
        }
    } else {
        const auto expected = [&](const scalar_position& where, uint32_t& hashed) {
            const scaled_input in = source(where);
            hashed = scaled_word(in, 0);
            return expected_code(format_of(spec.dtype), mean_in_codes(in.mean, in.scale));
        };
        decoded = copy_scaled(spec, header, expected, block + at.words, codes, sums);
    }
    result.code = outcome_of(spec, header, block + at.parameter_hash, sums, decoded);
    return result;
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
