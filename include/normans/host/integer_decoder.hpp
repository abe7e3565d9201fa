#pragma once
// decode() of int8 and int4 tANS blocks in integer instructions alone, for processors without
// floating point (or whose floating point is somebody else's): views of means are read as fp32 bit
// patterns and never computed with. Bytes, statuses and checks are those of decode(); one block at
// a time, lane after lane, the models of a step first.

#include "scaled_block.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

/// mean_in_codes() without the host's multiply.
inline uint32_t mean_in_codes_exact(uint32_t mean, const code_scale& scale)
{
    const uint32_t sign = mean & sign_bit, field = exponent_field(mean);
    if (scale.scale == 0) return 0;
    if (is_nan(mean)) return quiet_nan_bits;
    if (field == 0 || field == 255) return field == 0 ? sign : mean;
    const uint32_t product = fma_exact(mean, scale.inverse, minus_zero_bits);
    return exponent_field(product) <= 1 ? sign : product;
}

// What bank_model::prepare finds for each eighth of an octave and part of a cell, once per block.
class bank_levels {
public:
    struct level {
        uint16_t first_place;  // of its parts, all of a cell
        uint8_t shift;         // 256ths of a cell -> part
        uint8_t group_bits;
    };
    struct place {
        uint32_t first_cell;
        int16_t away;  // of symbol 0 from the mean's group
        int16_t flip;  // -1: mirrored
    };

    bank_levels(scalar_format format, const tans_bank& bank)
    {
        const bank_plan& plan = bank.plan;
        uint32_t first[8 * bank_octaves], used = 0;
        for (uint32_t at = 0; at < 8 * bank_octaves; ++at) {
            const uint32_t octave = at >> 3, all = uint32_t(1) << log_parts(plan, octave);
            first[at] = used;
            if (at != 0 && (at & 7) % (8u >> plan.log_steps) != 0) {
                first[at] = first[at - 1];  // the same step
                continue;
            }
            const uint32_t row = first_bank_row(plan, octave) +
                                 ((at & 7) >> (3 - plan.log_steps)) * stored_parts(plan, octave);
            for (uint32_t part = 0; part < all; ++part, ++used) {
                const bool mirrored = 2 * part + 1 < all;
                const uint32_t here = row + (mirrored ? all - 1 - part : part) - all / 2;
                const int reach = 1 + int(bank.reach[here]);
                place_[used] = {here << plan.table_bits, int16_t(mirrored ? reach : -reach),
                                int16_t(mirrored ? -1 : 0)};
            }
        }
        const uint32_t top = 8 * bank_octaves - 1, most_raw = format.code_bits - 2;
        for (uint32_t above = 0; above < uint32_t(count); ++above) {
            const uint32_t raw = above > top ? (above - top + 7) / 8 : 0;
            const uint32_t at = raw > most_raw ? top : above - 8 * raw;
            level_[above] = {uint16_t(first[at]), uint8_t(8 - log_parts(plan, at >> 3)),
                             uint8_t(raw > most_raw ? most_raw : raw)};
        }
    }

    const level& at(int above) const
    {
        return level_[above < 0 ? 0 : above >= count ? count - 1 : above];
    }
    const place& part(const level& from, uint32_t fraction) const
    {
        return place_[from.first_place + (fraction >> from.shift)];
    }

private:
    static constexpr int count = 8 * int(bank_octaves + 7);
    static constexpr int most_places = 8 * (3 * 32 + 16 + 8 + 4);
    level level_[count];
    place place_[most_places];
};

// A scalar's row as the lanes' loop wants it: group = origin + symbol, or - symbol where mirrored.
struct integer_model {
    uint32_t first_cell;
    int32_t origin;
    int32_t flip;  // -1: mirrored
    uint32_t group_bits;
};

// map_mean() of the identity.
inline uint32_t cleaned(uint32_t mean)
{
    if (exponent_field(mean) <= 1) return mean & sign_bit;
    return is_nan(mean) ? quiet_nan_bits : mean;
}

// Means as the inputs want them: run() in 1/256 codes, bits() as mu'.
template <class Means>
struct bit_means {
    const Means& view;

    void run(const scalar_position& at, uint32_t n, scalar_format format, const code_scale& scale,
             uint32_t* fixed) const
    {
        run_of(view, at, n, fixed);
        for (uint32_t i = 0; i < n; ++i) fixed[i] = fixed_mean(format, cleaned(fixed[i]), scale);
    }
    uint32_t bits(const scalar_position& at, scalar_format, const code_scale&) const
    {
        uint32_t mean;
        run_of(view, at, 1, &mean);
        return cleaned(mean);
    }
};

constexpr uint32_t integer_batch = 256;  // scalars prepared at a time: whole steps of any lanes

// Predictions and scales along rows.
template <class Means, class Sigmas>
class integer_inputs {
public:
    integer_inputs(const block_spec& spec, const Means& means, const Sigmas& sigmas,
                   const uint8_t* row_steps)
        : spec_(spec),
          means_(means),
          sigmas_(sigmas),
          row_steps_(row_steps),
          format_(format_of(spec.dtype)),
          levels_(format_, *spec.bank)
    {
    }

    // The models, and where it is wanted the words for the parameter hash, of n scalars of one row.
    void prepare(scalar_position at, uint32_t n, integer_model* models, uint32_t* hashed)
    {
        const int step = row_step_at(row_steps_, at.token);
        while (n != 0) {
            const uint32_t group = spec_.scales.group;
            const uint32_t left = group == 0 ? n : group - at.channel % group;
            const uint32_t here = left < n ? left : n;
            uint32_t fixed[integer_batch], sigma[integer_batch];
            const uint32_t bits = take_scale(at);
            means_.run(at, here, format_, scale_, fixed);
            run_of(sigmas_, at, here, sigma);
            const int origin =
                8 * (spec_.sigma_offset - lowest_bank_octave) + 2 * step - scale_.eighths;
            make_models(scale_.scale == 0 ? never : origin, fixed, sigma, here, models);
            scalar_position one = at;
            for (uint32_t i = 0; i < here && spec_.parameter_hash; ++i, ++one.index, ++one.channel)
                hashed[i] =
                    parameter_word(means_.bits(one, format_, scale_), sigma[i], step) ^ bits;
            models += here, hashed += here, n -= here;
            at.index += here, at.channel += here;
        }
    }

    /// The code that a predicted block holds, and its word for the hash.
    uint32_t expected(const scalar_position& at, uint32_t& hashed)
    {
        uint32_t sigma;
        const uint32_t bits = take_scale(at), mean = means_.bits(at, format_, scale_);
        run_of(sigmas_, at, 1, &sigma);
        hashed = parameter_word(mean, sigma, 0) ^ bits;
        return nearest_integer_code(format_, mean_in_codes_exact(mean, scale_));
    }

private:
    // A scale's bits, made ready if they are new.
    uint32_t take_scale(const scalar_position& at)
    {
        const scale_view& view = spec_.scales;
        const ptrdiff_t group = view.group == 0 ? 0 : ptrdiff_t(at.channel / view.group);
        uint32_t bits;
        std::memcpy(&bits,
                    view.data + ptrdiff_t(at.head) * view.head_stride +
                        ptrdiff_t(at.token) * view.token_stride + group * view.group_stride,
                    sizeof bits);
        if (bits != last_bits_) {
            scale_ = make_scale(bits);
            last_bits_ = bits;
        }
        return bits;
    }

    static constexpr int never = -1024;  // the lowest level, whatever the sigma

    void make_models(int origin, const uint32_t* fixed, const uint32_t* sigma, uint32_t n,
                     integer_model* models) const
    {
        for (uint32_t i = 0; i < n; ++i) {
            const bank_levels::level level =
                levels_.at(sigma[i] == sigma_zero ? 0 : origin + int(sigma[i]));
            const uint32_t at = (fixed[i] + 128) >> level.group_bits;
            const bank_levels::place place = levels_.part(level, at & 255);
            models[i].first_cell = place.first_cell;
            models[i].origin = int(at >> 8) + place.away;
            models[i].flip = place.flip;
            models[i].group_bits = level.group_bits;
        }
    }

    const block_spec& spec_;
    const Means& means_;
    const Sigmas& sigmas_;
    const uint8_t* row_steps_;
    scalar_format format_;
    bank_levels levels_;
    uint32_t last_bits_ = 0;
    code_scale scale_{};
};

// The lanes of a block, one after the other; where a step has raw bits, in two rounds.
template <uint32_t Lanes>
class integer_lanes {
public:
    integer_lanes(const tans_bank& bank, scalar_format format)
        : cells_(bank.cells), table_bits_(bank.plan.table_bits), format_(format)
    {
    }

    bool open(const uint8_t* states, word_reader& words)
    {
        for (uint32_t i = 0; i < Lanes; ++i) {
            const uint32_t stored = load_u32(states + 4 * i);
            bits_[i] = stored & 0xffff;
            cell_[i] = stored >> 16;
            if (bits_[i] == 0 || cell_[i] >> table_bits_ != 0) return false;
        }
        for (uint32_t i = 0; i < Lanes; ++i) refill(bits_[i], words);
        return true;
    }

    bool ended() const
    {
        bool all = true;
        for (uint32_t i = 0; i < Lanes; ++i)
            all &= cell_[i] == tans_format::first_cell && bits_[i] == tans_format::lower_bound;
        return all;
    }

    // `here` scalars of one step; false if a symbol stands for no code.
    NORMANS_INLINE bool step(const integer_model* models, uint32_t here, word_reader& words,
                             uint32_t* codes)
    {
        return words.holds(Lanes) ? step<true>(models, here, words, codes)
                                  : step<false>(models, here, words, codes);
    }

private:
    NORMANS_NOINLINE void take_raw(const integer_model* models, uint32_t here, word_reader& words,
                                   const uint32_t* symbols, uint32_t* codes)
    {
        for (uint32_t i = 0; i < here; ++i) {
            if (symbols[i] == 0) codes[i] = 0;
            const uint32_t count = symbols[i] == 0 ? format_.code_bits : models[i].group_bits;
            codes[i] |= bits_[i] & ((uint32_t(1) << count) - 1);
            bits_[i] >>= count;
            refill(bits_[i], words);
        }
    }

    // Roomy: there is a word for each lane.
    template <bool Roomy>
    NORMANS_INLINE bool step(const integer_model* models, uint32_t here, word_reader& words,
                             uint32_t* codes)
    {
        uint32_t symbols[Lanes], raw = 0, outside = 0, escapes = 0;
        const uint32_t sign = format_.code_sign(), above = ~(2 * sign - 1);
        const tans_cell* const cells = cells_;
        word_reader reader = words;
        for (uint32_t i = 0; i < here; ++i) {
            const tans_cell at = cells[models[i].first_cell + cell_[i]];
            const uint32_t group_bits = models[i].group_bits, symbol = at.symbol;
            const int flip = models[i].flip;
            uint32_t bits = bits_[i];
            cell_[i] = at.next_base + (bits & ((uint32_t(1) << at.bit_count) - 1));
            bits >>= at.bit_count;
            if (Roomy) {
                const bool starved = bits < tans_format::lower_bound;
                const uint32_t word = reader.take_where_unchecked(starved);
                bits = starved ? bits << tans_format::word_bits | word : bits;
            } else {
                refill(bits, reader);
            }
            bits_[i] = bits;
            const uint32_t index = uint32_t(models[i].origin + ((int(symbol) ^ flip) - flip))
                                   << group_bits;
            symbols[i] = symbol;
            raw |= group_bits;
            escapes |= symbol - 1;  // negative for symbol 0
            outside |= index;
            codes[i] = index ^ sign;
        }
        words = reader;
        bool good = (outside & above) == 0;
        if (!good) {  // a symbol 0 has no group
            good = true;
            for (uint32_t i = 0; i < here; ++i)
                good &= symbols[i] == 0 || ((codes[i] ^ sign) & above) == 0;
        }
        if ((raw | escapes >> 31) != 0) take_raw(models, here, words, symbols, codes);
        return good;
    }

    static void refill(uint32_t& bits, word_reader& words)
    {
        if (bits < tans_format::lower_bound) bits = bits << tans_format::word_bits | words.take();
    }

    const tans_cell* cells_;
    unsigned table_bits_;
    scalar_format format_;
    uint32_t cell_[Lanes], bits_[Lanes];
};

template <uint32_t Lanes, class Inputs>
status decode_integer_steps(const block_spec& spec, Inputs& inputs,
                            const packed_codes<uint8_t>& out, const uint8_t* states,
                            word_reader words, block_sums& sums, bool& opened)
{
    integer_lanes<Lanes> lanes(*spec.bank, format_of(spec.dtype));
    opened = lanes.open(states, words);
    if (!opened) return status::corrupt_stream;
    const uint32_t count = uint32_t(count_of(spec));
    check_sums content, parameters;
    bool good = true;
    box_walker walker(spec, 0);
    for (uint32_t done = 0; done < count; done += integer_batch) {
        const uint32_t batch = count - done < integer_batch ? count - done : integer_batch;
        integer_model models[integer_batch];
        uint32_t codes[integer_batch], hashed[integer_batch];
        for_runs(walker, batch, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
            inputs.prepare(at, n, models + offset, hashed + offset);
        });
        for (uint32_t first = 0; first < batch; first += Lanes) {
            const uint32_t here = batch - first < Lanes ? batch - first : Lanes;
            uint32_t* const now = codes + first;
            good &= here == Lanes ? lanes.step(models + first, Lanes, words, now)
                                  : lanes.step(models + first, here, words, now);
            for (uint32_t i = 0; i < here; ++i) content.lane[i].add(now[i]);
            if (spec.parameter_hash)
                for (uint32_t i = 0; i < here; ++i) parameters.lane[i].add(hashed[first + i]);
        }
        for_runs(walker, batch, [&](uint32_t offset, scalar_position at, uint32_t n) {
            if (!out.nibbles) {
                uint8_t* const to = &element(out.box, at);
                for (uint32_t i = 0; i < n; ++i) to[i] = uint8_t(codes[offset + i]);
                return;
            }
            for (uint32_t i = 0; i < n; ++i, ++at.channel) out.store(at, codes[offset + i]);
        });
        walker.forward(batch);
    }
    sums = {content.total(Lanes), parameters.total(Lanes)};
    const bool clean = good && !words.overrun && words.next == words.end && lanes.ended();
    return clean ? status::ok : status::corrupt_stream;
}

template <class Means, class Sigmas>
decode_result decode_in_integers(const block_spec& spec, const uint8_t* block, size_t bytes,
                                 const Means& means, const Sigmas& sigmas, box_view<uint8_t> box)
{
    decode_result result;
    if (check_spec(spec) != status::ok || spec.coder != coder_id::tans ||
        (count_of(spec) != 0 && box.data == nullptr))
        return result;
    block_header header;
    block_layout at;
    result.code = check_block(spec, block, bytes, header, at, result);
    if (result.code != status::ok) return result;
    const packed_codes<uint8_t> out{box, format_of(spec.dtype).code_bits == 4};
    integer_inputs<Means, Sigmas> inputs(spec, means, sigmas,
                                         result.row_scaled ? block + at.row_steps : nullptr);
    block_sums sums;
    status decoded = status::ok;
    if (header.mode == block_mode::coded) {
        const word_reader words{block + at.words,
                                block + at.words + 2 * uint64_t(header.payload_words)};
        const auto run = [&](auto lanes) {
            bool opened = false;
            decoded = decode_integer_steps<decltype(lanes)::value>(
                spec, inputs, out, block + at.states, words, sums, opened);
            if (!opened) result.code = decoded;  // the hash could not say anything
        };
        if (header.lanes == 1) run(std::integral_constant<uint32_t, 1>{});
        else if (header.lanes == 8) run(std::integral_constant<uint32_t, 8>{});
        else if (header.lanes == 16) run(std::integral_constant<uint32_t, 16>{});
        else run(std::integral_constant<uint32_t, 32>{});
        if (result.code != status::ok) return result;
    } else if (header.count != 0) {
        const auto expected = [&](const scalar_position& where, uint32_t& hashed) {
            return inputs.expected(where, hashed);
        };
        decoded = copy_scaled(spec, header, expected, block + at.words, out, sums);
    }
    result.code = outcome_of(spec, header, block + at.parameter_hash, sums, decoded);
    return result;
}

}  // namespace detail

/// The mean, fp32 bits, that `fixed` 256ths of a code stand for: (fixed / 256 -
/// 2^(code_bits - 1)) * scale, rounded once. fixed_mean() gives `fixed` back. What an encoder's
/// predictor returns where the decoder has fixed_means.
inline uint32_t mean_of_fixed(scalar_format format, uint32_t fixed, uint32_t scale)
{
    const int from_zero = int(fixed) - int(format.code_sign() << 8);
    if (from_zero == 0) return 0;
    const uint32_t magnitude = uint32_t(from_zero < 0 ? -from_zero : from_zero);
    const unsigned top = detail::log2_floor(magnitude);
    const uint32_t bits = ((127 - 8 + top) << 23 | (magnitude << (23 - top) & 0x7fffff)) |
                          (from_zero < 0 ? sign_bit : 0);
    return fma_exact(bits, scale, minus_zero_bits);
}

/// Means in code units, in scalar order, for predictors that compute in integers: each stands for
/// what mean_of_fixed() says. At most 256 (2^code_bits - 1); what lies above counts as that.
struct fixed_means {
    const uint16_t* data;

    uint32_t at(uint32_t index, scalar_format format) const
    {
        const uint32_t last = (2 * format.code_sign() - 1) << 8;
        return data[index] > last ? last : data[index];
    }
    void run(const scalar_position& where, uint32_t n, scalar_format format,
             const code_scale& scale, uint32_t* fixed) const
    {
        const uint32_t zero = format.code_sign() << 8;  // of a scale that does not count
        for (uint32_t i = 0; i < n; ++i)
            fixed[i] = scale.scale == 0 ? zero : at(where.index + i, format);
    }
    uint32_t bits(const scalar_position& where, scalar_format format, const code_scale& scale) const
    {
        return scale.scale == 0 ? 0 : mean_of_fixed(format, at(where.index, format), scale.scale);
    }
};

/// Decodes a tANS block of int8 or int4 like decode(), in integers alone. `means` and `sigmas` are
/// views as predict() takes them: fp32 or bf16 means, sigma indices. bad_argument also for other
/// types and coders.
template <class Means, class Sigmas>
decode_result decode_integers(const block_spec& spec, const uint8_t* block, size_t bytes,
                              const Means& means, const Sigmas& sigmas,
                              box_view<uint8_t> box) noexcept
{
    const detail::bit_means<Means> bits{means};
    return detail::decode_in_integers(spec, block, bytes, bits, sigmas, box);
}

/// The same with means in code units.
template <class Sigmas>
decode_result decode_integers(const block_spec& spec, const uint8_t* block, size_t bytes,
                              fixed_means means, const Sigmas& sigmas,
                              box_view<uint8_t> box) noexcept
{
    return detail::decode_in_integers(spec, block, bytes, means, sigmas, box);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
