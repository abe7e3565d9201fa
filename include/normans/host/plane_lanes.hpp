#pragma once
// A lane group over planes of 16-bit words: the same names as array_lanes (core/lanes.hpp) and the
// same integers. A state is held as two planes, so that a vector carries twice the lanes that
// 32-bit states would need; slots, freqs and codes are words anyway, and only the edges of cells
// become floats. V supplies the registers (planes_*.hpp), 32 lanes a plane; several planes side by
// side let the stages of independent blocks overlap.
// Lanes that the fast path does not know (far scalars, a code at the end of the range, a bad first
// guess) go to the scalar definition in core/normal.hpp, one by one.

#include <cstring>

#include "../core/lanes.hpp"
#include "fp8_model.hpp"
#include "lane_places.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

namespace detail {

/// C as pieces over signed z.
struct cdf_pieces {
    uint16_t base[32], rise[32];
};

constexpr cdf_pieces make_cdf_pieces(shape_id id)
{
    const normal_shape shape = shape_of(id);
    cdf_pieces out{};
    for (uint32_t i = 0; i < 32; ++i) {
        const uint32_t piece = (i + 16) & 31;
        out.base[i] = uint16_t(shape.base[piece] + shape.escape_slots);
        out.rise[i] = uint16_t(shape.base[piece + 1] - shape.base[piece]);
    }
    return out;
}

template <shape_id Id>
inline constexpr cdf_pieces cdf_pieces_of = make_cdf_pieces(Id);

inline const cdf_pieces& cdf_pieces_at(shape_id id)
{
    switch (id) {
    case shape_id::mixture: return cdf_pieces_of<shape_id::mixture>;
    case shape_id::mixture_marginal: return cdf_pieces_of<shape_id::mixture_marginal>;
    case shape_id::gaussian: break;
    }
    return cdf_pieces_of<shape_id::gaussian>;
}

/// Of 8-bit types, *plain* magnitudes are no subnormals, not the end of the range, and not so large
/// that z could leave the range of the conversion to integers (2^31).
constexpr uint32_t lowest_plain(const scalar_format& format)
{
    return (1u << format.mantissa_bits) + 1;
}

/// Slopes by sigma index, and which of them are too large.
struct plane_slopes {
    uint32_t slope[8];        // the sigma offset folded in
    uint32_t smallest_index;  // sigmas below it have slopes that the fast path leaves

    plane_slopes(const normal_shape& shape, int sigma_offset, int largest_exponent)
    {
        for (int i = 0; i < 8; ++i) slope[i] = shape.slope[i] - (uint32_t(sigma_offset) << 23);
        const int octave =
            int(shape.unit_slope >> 23) - 127 - sigma_offset + 2 - largest_exponent;
        smallest_index = uint32_t(octave < 0 ? 0 : octave > 31 ? 255 : 8 * octave);
    }
};

}  // namespace detail

/// What 16-bit types know at compile time.
template <class V, class Model>
struct plane_constants {
    explicit plane_constants(const Model&) {}
    static constexpr scalar_format codes() { return Model::format; }
    static NORMANS_INLINE typename V::words past_finite()
    {
        return V::set(Model::format.largest_finite + 1);
    }
    static NORMANS_INLINE typename V::words narrowest_cell()
    {
        return V::set(detail::smallest_cell<Model>);
    }
    static constexpr uint32_t smallest_normal = 1u << Model::format.mantissa_bits;
};

/// The same of an fp8 type, p mantissa bits, as registers want it. There magnitudes are kept times
/// 2^(7 - p): floats' upper halves but for the exponent's bias.
template <class V>
struct plane_constants<V, any_fp8_model> {
    typename V::small_table low_edges;  // edges of subnormals, high halves of fp32
    typename V::byte_table low_codes;   // see plane_lanes::first_boundary
    typename V::small_table low_values;
    scalar_format format;
    typename V::words one, per_one;        // 1 as a magnitude; 2^16 / that
    typename V::words end;                 // of the finite ones
    typename V::words rebias, below_edge;  // a normal's upper half; its lower edge's
    // See plane_lanes::first_boundary.
    typename V::words mask, lowest, normal, normal_end, first_code;
    typename V::words smallest_cell, smallest_normal_code;
    typename V::words lowest_plain;  // see plane_lanes::slope_limits
    uint32_t next_edge;              // from a normal's edge to the next, as fp32 bits
    static constexpr uint32_t smallest_normal = 128;

    explicit plane_constants(const any_fp8_model& model)
        : plane_constants(model.codes(), tables_of(model))
    {
    }
    const scalar_format& codes() const { return format; }
    const typename V::words& past_finite() const { return end; }
    const typename V::words& narrowest_cell() const { return smallest_cell; }

private:
    struct table_words {
        uint16_t low_edges[16], low_values[16];
        uint8_t low_codes[32];
    };

    plane_constants(const scalar_format& type, const table_words& words)
        : low_edges(words.low_edges), low_codes(words.low_codes), low_values(words.low_values),
          format(type)
    {
        const uint32_t p = format.mantissa_bits;
        const uint32_t unit = 1u << (7 - p), zero = uint32_t(127 - format.bias) << 7;
        one = V::set(unit);
        per_one = V::set(1u << (9 + p));
        end = V::set((format.largest_finite + 1) * unit);
        rebias = V::set(zero);
        below_edge = V::set(zero - unit / 2);
        mask = V::set(0x8000 - unit);
        lowest = V::set(zero - (p << 7));
        normal = V::set((p + 1) << 7);
        normal_end = V::set(((p + 1) << 7) + 1);
        first_code = V::set((p << 7) - unit);
        smallest_cell = V::set(zero + 128);
        smallest_normal_code = V::set(1u << p);
        lowest_plain = V::set(detail::lowest_plain(format));
        next_edge = unit << 16;
    }

    // The upper half of n * 2^exponent as fp32, n < 256.
    static constexpr uint16_t high_half(uint32_t n, int exponent)
    {
        if (n == 0) return 0;
        int top = 0;
        while (n >> (top + 1) != 0) ++top;
        return uint16_t(uint32_t(127 + exponent + top) << 7 | ((n << (7 - top)) & 127));
    }

    static constexpr table_words make_tables(scalar_format type)
    {
        table_words out{};
        const int p = int(type.mantissa_bits), half_step = -(type.bias + p);
        for (uint32_t i = 0; i < 16; ++i) {  // see edge_bits, value_bits
            out.low_edges[i] = high_half(i == 0 ? 0 : 2 * i - 1, half_step);
            out.low_values[i] = high_half(2 * i, half_step);
        }
        for (uint32_t i = 0; i < 32; ++i) {
            const uint32_t octave = i >> p, significand = (1u << p) + (i & ((1u << p) - 1));
            out.low_codes[i] = uint8_t(significand << octave >> (p + 1));
        }
        return out;
    }

    static const table_words& tables_of(const any_fp8_model& model)
    {
        return model.by([](const auto& exact) -> const table_words& {
            static constexpr table_words words =
                make_tables(std::decay_t<decltype(exact)>::format);
            return words;
        });
    }
};

/// A model together with its constants as registers want them.
template <class V, class Model>
struct plane_model : detail::plane_slopes, plane_constants<V, Model> {
    static constexpr auto format = Model::format;
    static constexpr bool grouped = format.code_bits == 16;

    Model scalar;
    const marginal_table* marginal;
    typename V::pieces cdf;  // C over z
    typename V::word_table weight;  // row_weights
    uint32_t weight_origin;
    uint32_t unit;         // unit - slope: sigma as fp32 bits, see normal_model
    uint32_t escape_bits;  // raw bits of an escape

    plane_model(const Model& model, shape_id id) : plane_model(model, detail::cdf_pieces_at(id)) {}

    /// Slopes beyond 2^36 could carry an edge out of the range of the integer conversion; of 8-bit
    /// types those that leave no code plain are left to the exact model too.
    static int largest_slope_exponent(const scalar_format& codes)
    {
        return !grouped && codes.bias + 28 < 36 ? codes.bias + 28 : 36;
    }

private:
    plane_model(const Model& model, const detail::cdf_pieces& pieces)
        : detail::plane_slopes(model.shape, model.sigma_offset,
                               largest_slope_exponent(detail::codes_of(model))),
          plane_constants<V, Model>(model), scalar(model), marginal(model.marginal),
          cdf(pieces.base, pieces.rise), weight(row_weights().weight),
          weight_origin(detail::weight_origin_of(model)),
          unit(one_bits + model.shape.unit_slope),
          escape_bits(model.marginal == nullptr ? raw_bits_limit : 0)
    {
    }
};

/// Of a lane outside the fast path.
template <class Model>
void add_exact(row_statistics& row, const Model& model, const scalar_model& m, uint32_t code)
{
    row.add(model, m, code);
}

template <class V>
struct plane_lanes {
    using planes = V;
    using float_mode = typename V::float_mode;
    using words = typename V::words;
    using floats = typename V::floats;
    static constexpr uint32_t width = V::lanes;
    static constexpr uint32_t blocks = width / 8;  // at most: with 8 lanes each

    using values = words;

    /// Between steps of the decoder: state = high * 2^15 + low; of the encoder: high * 2^16 + low.
    /// In memory for the reason that models are.
    template <int LowBits>
    struct state_planes {
        alignas(64) uint16_t high[width];
        uint16_t low[width];
    };
    using state = state_planes<15>;
    using encoder_state = state_planes<16>;

    using mask = typename V::lane_set;

    struct vector_mask {
        typename V::mask lanes;
        friend NORMANS_INLINE vector_mask operator|(const vector_mask& x, const vector_mask& y)
        {
            return {V::join(x.lanes, y.lanes)};
        }
    };

    /// The exact model of any lane of a step, for what leaves the fast path.
    struct exact_models {
        const void* source;
        uint32_t index;  // of the step's first scalar
        scalar_model (*of)(const void* source, uint32_t index, uint32_t lane);

        scalar_model operator()(uint32_t lane) const { return of(source, index, lane); }
    };

    /// What the largest slope of a step allows under any row step.
    struct slope_limits {
        float mean;           // means up to this one are not far
        uint32_t plain_span;  // of 8-bit types: so many magnitudes from lowest_plain on are plain
    };

    /// What the coder needs to know of a step's distributions. In memory, as V::keep leaves it:
    /// registers could not hold it, and the compiler would move it about.
    struct models {
        alignas(64) float mean[width];
        float slope[width];
        float product[width];  // mean * slope (encoders of small floats do without)
        float deviation[width];                  // for the first guess: 1 / slope, in its unit
        uint16_t group_bits[width], group_size[width];  // 16-bit types: g and 2^g
        // Of encoders of floats: the slope without its row step, and what a step's slopes allow.
        const float* channel_slope;
        slope_limits limits;
        const uint16_t* weight_origin;  // for row statistics: see weight_origins
        bool has_outside;  // some lanes are outside the fast path ...
        mask outside;      // ... these
        exact_models exact;
    };

    struct intervals {
        values start, freq, code, raw_bits;
        mask raw, escaped, corrupt;
    };

    static NORMANS_INLINE bool any(const mask& m) { return m.any(); }

    static mask no_lanes() { return mask{}; }

    /// Lanes of one block, from bit 0 up.
    static uint32_t lanes_of(const mask& m, uint32_t block, uint32_t lanes)
    {
        return m.plane[block * lanes / 32] >> block * lanes % 32 & (~uint32_t(0) >> (32 - lanes));
    }

    /// The first `here` of each block's `lanes` lanes.
    static NORMANS_INLINE mask active_lanes(uint32_t lanes, uint32_t here)
    {
        uint32_t bits = every_lane >> (32 - here);
        for (uint32_t i = lanes; i < 32; i *= 2) bits |= bits << i;
        return lanes_all(bits);
    }

    /// The step's words: a reader or writer for every block of `lanes` lanes.
    template <class Cursor>
    class cursors {
    public:
        Cursor* const block;
        const uint32_t lanes;
        const uint32_t count = width / lanes;

        /// Those from `present` on serve blocks that are not there.
        cursors(Cursor* cursor, uint32_t lanes_each, uint32_t present)
            : block(cursor), lanes(lanes_each), present_(present)
        {
        }

        /// Whether every cursor holds a word for each lane: the room is counted, and looked for
        /// only when the count is used up.
        NORMANS_INLINE bool roomy()
        {
            if (room_ == 0) look();
            if (room_ == 0) return false;
            --room_;
            return true;
        }

    private:
        static size_t left(const word_reader& x) { return size_t(x.end - x.next); }
        static size_t left(const word_writer& x) { return size_t(x.next - x.begin); }
        static void rewind(word_reader&) {}
        static void rewind(word_writer& x) { x.next = x.begin + idle_bytes; }

        NORMANS_NOINLINE void look()
        {
            for (uint32_t i = present_; i < count; ++i) rewind(block[i]);
            size_t least = left(block[0]);
            for (uint32_t i = 1; i < count; ++i)
                least = left(block[i]) < least ? left(block[i]) : least;
            room_ = uint32_t(least / (2 * lanes));
        }

        uint32_t present_, room_ = 0;
    };

    /// Where a block that is not there writes.
    static constexpr uint32_t idle_bytes = 2048;

    /// Where a bundle's lanes lie, up to an offset that all blocks share.
    template <class T>
    struct places {
        T* run[width / 8];
        bool whole;

        /// `first(block)`: the place of the first lane of a block of `lanes` lanes.
        template <class Function>
        places(uint32_t lanes, Function first) : whole(lanes == 32)
        {
            for (uint32_t i = 0; i < width / 8; ++i) {
                T* const block = first(8 * i / lanes);
                run[i] = block == nullptr ? block : block + 8 * i % lanes;
            }
        }

        NORMANS_INLINE lane_places<T> at(ptrdiff_t offset) const { return {run, offset, whole}; }
    };

    static values load(const uint32_t* lane)
    {
        uint16_t word[width];
        for (uint32_t i = 0; i < width; ++i) word[i] = uint16_t(lane[i]);
        return V::load(word);
    }

    static void store(uint32_t* lane, const values& x)
    {
        uint16_t word[width];
        V::store(word, x);
        for (uint32_t i = 0; i < width; ++i) lane[i] = word[i];
    }

    template <int LowBits>
    static void load_state(state_planes<LowBits>& x, const uint32_t* lane)
    {
        for (uint32_t i = 0; i < width; ++i) {
            x.high[i] = uint16_t(lane[i] >> LowBits);
            x.low[i] = uint16_t(lane[i] & ((uint32_t(1) << LowBits) - 1));
        }
        NORMANS_OPAQUE(x);
    }

    template <int LowBits>
    static void store_state(uint32_t* lane, const state_planes<LowBits>& x)
    {
        for (uint32_t i = 0; i < width; ++i) lane[i] = uint32_t(x.high[i]) << LowBits | x.low[i];
    }

    template <class Code>
    static NORMANS_INLINE values load_codes(const places<Code>& from, ptrdiff_t offset)
    {
        return V::load_words(from.at(offset));
    }

    /// The first `lanes` lanes of the group.
    template <class Code>
    static NORMANS_INLINE void store_codes(const places<Code>& to, ptrdiff_t offset,
                                           const values& x, uint32_t lanes)
    {
        V::store_words(to.at(offset), x, lanes / 8);
    }

    /// Per lane running_sums over codes: of a few steps in words, a byte of the code each, ...
    template <class Code>
    class sums {
        static constexpr uint32_t parts = sizeof(Code);

    public:
        NORMANS_INLINE void add(const values& codes, const mask& active)
        {
            if (!active.all()) return add_some(codes, active);
            if constexpr (parts == 1) {
                add(0, codes);
            } else {
                add(0, V::both(codes, V::set(255)));
                add(1, V::template shr<8>(codes));
            }
            if (++pending_ == limit) flush();
        }

        void store(uint32_t* all_a, uint32_t* all_b)
        {
            flush();
            std::memcpy(all_a, a_, sizeof a_);
            std::memcpy(all_b, b_, sizeof b_);
        }

    private:
        static constexpr uint32_t limit = 22;  // 255 * 22 * 23 / 2 < 2^16

        NORMANS_INLINE void add(uint32_t part, const words& bytes)
        {
            sum_[part] = V::add(sum_[part], bytes);
            sum_of_sums_[part] = V::add(sum_of_sums_[part], sum_[part]);
        }

        // ... then in full.
        NORMANS_NOINLINE void flush()
        {
            for (uint32_t part = 0; part < parts; ++part) {
                uint16_t sum[width], sum_of_sums[width];
                V::store(sum, sum_[part]);
                V::store(sum_of_sums, sum_of_sums_[part]);
                for (uint32_t i = 0; i < width; ++i) {
                    if (part == 0) b_[i] += pending_ * a_[i];
                    a_[i] += uint32_t(sum[i]) << 8 * part;
                    b_[i] += uint32_t(sum_of_sums[i]) << 8 * part;
                }
                sum_[part] = sum_of_sums_[part] = V::set(0);
            }
            pending_ = 0;
        }

        NORMANS_NOINLINE void add_some(values codes, mask active)
        {
            uint16_t code[width];
            V::store(code, codes);
            flush();
            active.for_each([&](uint32_t i) {
                a_[i] += code[i];
                b_[i] += a_[i];
            });
        }

        words sum_[parts] = {V::set(0)}, sum_of_sums_[parts] = {V::set(0)};
        uint32_t pending_ = 0;
        uint32_t a_[width] = {}, b_[width] = {};
    };

    /// Where row_weights begins for each lane: row_weight_origin less the slope's share.
    template <class Model>
    static NORMANS_INLINE words weight_origins(const Model& model, const floats& slope)
    {
        return V::sub(V::set(model.weight_origin), V::high_words(slope));
    }

    template <class Model>
    static NORMANS_INLINE slope_limits limits_of(const Model& model, const floats& slope)
    {
        uint16_t high[width];
        V::store(high, V::high_words(slope));
        uint16_t most = 0;
        for (uint32_t i = 0; i < width; ++i) most = high[i] > most ? high[i] : most;
        const int past = (most >> 7) + 3 - 127;  // with a row step slopes are below 2^past
        const int field = 127 + 27 - past;
        slope_limits limits{bits_to_float(uint32_t(field < 254 ? field : 254) << 23), 0};
        if constexpr (!Model::grouped) {
            // Values below 2^(octave + 1 - bias) give less than 2^30, a product less than 2^27.
            const scalar_format& format = model.codes();
            const int octave = 29 + format.bias - past;
            const uint32_t end = uint32_t((octave < 1 ? 1 : octave < 32 ? octave : 32) + 1)
                                 << format.mantissa_bits;
            const uint32_t last = (end < format.largest_finite ? end : format.largest_finite) - 1;
            limits.plain_span = last - detail::lowest_plain(format);
        }
        return limits;
    }

    /// Everything that follows from mean and slope, unless only row statistics are wanted. A
    /// product beyond the limit says that the scalar may be far (a far one's is at least
    /// 2^30 / range): the exact model decides.
    template <bool Decoding, class Model>
    static NORMANS_INLINE void complete(const Model& model, bool measuring, const floats& mean,
                                        models& m)
    {
        constexpr float limit = 0x1p27f;
        const models* stored = &m;
        NORMANS_HIDE(stored);
        const auto product = [&]() NORMANS_LAMBDA {
            return V::mul(mean,
                          V::load_kept(measuring ? stored->channel_slope : stored->slope));
        };
        bool outside = m.outside.any();
        if constexpr (Decoding) {
            const floats all = product();
            V::keep(m.product, all);
            outside |= V::any_above(all, limit);
        } else if (V::any_above(mean, m.limits.mean)) {
            outside |= V::any_above(product(), limit);
        }
        if constexpr (Model::grouped) {
            const words high = V::both(V::high_words(mean), V::set(0x7fff));
            if (!measuring) {
                const floats slope = V::load_kept(stored->slope);
                const words sigma_field = V::template shr<7>(
                    V::high_words(V::sub(V::set_int(model.unit), V::bits(slope))));
                const words largest = V::larger(V::larger(V::template shr<7>(high), sigma_field),
                                                V::set(uint32_t(128 - Model::format.bias)));
                const words bits = V::sub_saturated(
                    V::add(sigma_field, V::set(Model::format.mantissa_bits - 3)), largest);
                V::store(m.group_bits, bits);
                V::store(m.group_size, V::power(bits));
            }
            // Means that the model takes for zeros, and are none: |mean| in (0, 2^-125).
            outside |= V::any_above(V::sub_saturated(V::set(0xff), V::sub(high, V::set(1))), 0);
        }
        m.has_outside = outside;
        if (outside)
            m.outside = m.outside | far_lanes<Model>(product(), V::load_kept(m.mean), limit);
    }

    /// row_statistics of every block.
    class row_sums {
    public:
        explicit row_sums(uint32_t lanes) : shift_(lanes == 32 ? 5 : lanes == 16 ? 4 : 3) {}

        const row_statistics& of(uint32_t block)
        {
            if (pending_ != 0 || !started_) flush();
            return block_[block];
        }

        row_statistics& of_lane(uint32_t lane)
        {
            if (!started_) flush();
            return block_[lane >> shift_];
        }

        NORMANS_INLINE void add(const words& weighted, bool plain)
        {
            squares_ = V::add_squares(squares_, weighted);
            plain_ += plain;
            if (++pending_ == 1024) flush();  // more than 8,191 could overflow
        }

    private:
        NORMANS_NOINLINE void flush()
        {
            uint32_t pair[width / 2];
            V::store_squares(pair, squares_);
            const uint32_t* next = pair;
            for (uint32_t i = 0; i < width >> shift_; ++i) {
                row_statistics all = started_ ? block_[i] : row_statistics{};
                for (uint32_t run = 1u << shift_; run != 0; run -= 8, next += 4)
                    all.sum += (uint64_t(next[0]) + next[1]) + (uint64_t(next[2]) + next[3]);
                all.count += plain_ << shift_;
                block_[i] = all;
            }
            squares_ = V::no_squares();
            pending_ = plain_ = 0;
            started_ = true;
        }

        uint32_t shift_;        // lanes of a block: 2^shift_
        bool started_ = false;  // there is something in block_, ...
        union {                 // ... which nothing sets before
            row_statistics block_[blocks];
        };
        typename V::squares squares_ = V::no_squares();
        uint32_t pending_ = 0, plain_ = 0;
    };

    /// row_statistics::add for all active lanes; `m` is prepared with statistics_scale.
    template <class Model>
    static NORMANS_INLINE void add_row(row_sums& sums, const Model& model, const models& m,
                                       const values& codes, const mask& active)
    {
        const words magnitude = V::both(codes, V::set(Model::format.code_sign() - 1));
        const bool careful = is_careful(model, m, magnitude);
        const models* step = &m;
        NORMANS_HIDE(step);
        const floats slope = V::mul(V::load_kept(step->channel_slope),
                                    V::set_float(bits_to_float(statistics_scale)));
        const floats product = V::mul(V::load_kept(step->mean), slope);
        words field{}, z;
        if (Model::grouped || careful) {
            const floats value = code_values<true>(model, codes, magnitude, field);
            z = V::template round_z<true>(value, slope, product);
            field = V::larger(V::both(field, V::set(0x7f80)), model.narrowest_cell());
        } else {
            const floats value = code_values<false>(model, codes, magnitude, field);
            z = V::template round_z<false>(value, slope, product);
            field = V::both(field, V::set(0x7f80));
        }
        words weighted = weigh(model, z, V::sub_saturated(field, V::load(m.weight_origin)));
        bool plain = !m.has_outside && active.all();
        if (careful) {
            const auto& format = model.codes();
            plain &= !V::any_above(magnitude, format.largest_finite);
            if (!format.has_negative_zero)
                plain &= !V::any(V::equal(codes, V::set(Model::format.code_sign())));
        }
        if (!plain) {
            cold_row cold{m.outside, m.exact, codes, active, weighted};
            count_row(sums, model, cold);
            weighted = cold.weighted;
        }
        sums.add(weighted, plain);
    }

    static NORMANS_INLINE values slot(const state& x) { return V::load(x.low); }

    template <class Model, class Guess>
    static NORMANS_INLINE intervals locate(const Model& model, const Guess& guess, const models& m,
                                           const values& slots, const mask& active)
    {
        const floats value = V::fma(guess(slots), V::load_kept(m.deviation), V::load_kept(m.mean));
        const words high = V::high_words(value), sign = V::both(high, V::set(0x8000));
        const words size = size_of(model, m);
        bool low = true;
        const words first = first_boundary(model, m, value, high, low);
        const words c1 = cdf<false>(model, m, first, sign, low);
        // The neighbour on the side where the slot lies.
        const auto toward_zero =
            V::differ_masks(V::less_signed(slots, c1), V::negative(high));
        const words second = V::sub(V::add(first, size),
                                    V::where(toward_zero, V::add(size, size)));
        const words c2 = cdf<false>(model, m, second, sign, low);
        const words start = V::smaller(c1, c2), freq = V::sub(V::larger(c1, c2), start);
        intervals out;
        set_coded(model, m, start, freq, V::smaller(first, second), sign, out);
        const words inside = V::sub_saturated(freq, V::sub(slots, start));
        const words in_range = V::sub_saturated(model.past_finite(),
                                                V::larger(first, second));
        const bool plain =
            !V::any_zero(V::smaller(inside, in_range)) && !m.has_outside && active.all();
        if (!plain) {  // on copies: what a call may touch could not stay in registers
            cold_step cold{m.outside, m.exact, slots, active, out, in_range};
            mend_located(model, cold);
            out = cold.out;
        }
        return out;
    }

    template <class Model>
    static NORMANS_INLINE intervals find(const Model& model, const models& m, const values& codes,
                                         const mask& active)
    {
        constexpr int to_sign = 16 - int(Model::format.code_bits);
        const words sign = V::both(V::template shl<to_sign>(codes), V::set(0x8000));
        const words magnitude = V::both(codes, V::set(Model::format.code_sign() - 1));
        const words size = size_of(model, m);
        words inner;
        if constexpr (Model::grouped) inner = V::without(magnitude, V::sub(size, V::set(1)));
        else inner = V::mul_low(magnitude, size);
        const bool careful = is_careful(model, m, magnitude);
        words z1, z2;
        cell_edges(model, m, inner, sign, careful, z1, z2);
        const Model* tables = &model;
        if constexpr (V::few_registers) NORMANS_HIDE(tables);
        const words c1 = tables->cdf(z1), c2 = tables->cdf(z2);
        const words start = V::smaller(c1, c2), freq = V::sub(V::larger(c1, c2), start);
        intervals out;
        set_coded(model, m, start, freq, inner, sign, out);
        bool plain = !V::any_zero(freq) && !m.has_outside && active.all();
        const auto in_range = [&]() NORMANS_LAMBDA {
            return V::sub_saturated(model.past_finite(), V::add(inner, size_of(model, m)));
        };
        if (careful) plain &= !V::any_zero(in_range());
        if (!plain) {
            cold_step cold{m.outside, m.exact, codes, active, out, in_range()};
            mend_found(model, cold);
            out = cold.out;
        }
        return out;
    }

    static intervals locate(const marginal_table& table, const values& slots, const mask& on)
    {
        return by_table(slots, on,
                        [&](uint32_t slot) { return interval_of(table, symbol_at(table, slot)); });
    }

    static intervals find(const marginal_table& table, const values& symbols, const mask& on)
    {
        return by_table(symbols, on,
                        [&](uint32_t symbol) { return interval_of(table, symbol); });
    }

    /// freq * high + offset < 2^31, freq up to 2^15 (an idle lane: nothing changes).
    static NORMANS_INLINE void advance(state& x, const values& freq, const values& offset)
    {
        const words low_bits = V::set(0x7fff), high = V::load(x.high);
        const words low = V::mul_low(freq, high);
        const words sum = V::add(V::both(low, low_bits), offset);
        V::store(x.high, V::add(V::join_shifted(V::mul_high(freq, high), low),
                                V::template shr<15>(sum)));
        V::store(x.low, V::both(sum, low_bits));
    }

    /// V's quotient is right or one too small; freq <= 2^15, so that the rest is a word.
    static NORMANS_INLINE void divide(encoder_state& x, const values& freq, const values& start)
    {
        const words low = V::load(x.low);
        words quotient = V::quotient(V::load(x.high), low, freq);
        words rest = V::sub(low, V::mul_low(quotient, freq));
        const auto one_more = V::not_less(rest, freq);
        rest = V::sub(rest, V::where(one_more, freq));
        quotient = V::add(quotient, V::where(one_more, V::set(1)));
        V::store(x.high, V::template shr<1>(quotient));
        V::store(x.low, V::add(V::template shl<15>(quotient), V::add(rest, start)));
    }

    static NORMANS_INLINE vector_mask full_for(const encoder_state& x, const values& freq)
    {
        return {V::not_less(V::load(x.high), freq)};
    }

    static NORMANS_INLINE vector_mask full_for_bits(const encoder_state& x, const values& bits)
    {
        return {V::not_less(V::load(x.high), V::power(V::sub(V::set(15), bits)))};
    }

    static NORMANS_INLINE values pop(state& x, const values& bits)
    {
        const words power = V::power(bits), rest = V::sub(V::set(15), bits);
        const words high = V::load(x.high), low = V::load(x.low);
        const words down = V::shl(high, rest, V::power(rest));
        V::store(x.low, V::either(V::shr(low, bits, power), V::both(down, V::set(0x7fff))));
        V::store(x.high, V::shr(high, bits, power));
        return V::both(low, V::sub(power, V::set(1)));
    }

    static NORMANS_INLINE values pop(values& x, const values& bits)
    {
        const words power = V::power(bits);
        const words taken = V::both(x, V::sub(power, V::set(1)));
        x = V::shr(x, bits, power);
        return taken;
    }

    static NORMANS_INLINE void push(encoder_state& x, const values& bits, const values& value)
    {
        const words power = V::power(bits), high = V::load(x.high), low = V::load(x.low);
        V::store(x.high, V::either(V::shl(high, bits, power), V::mul_high(low, power)));
        V::store(x.low, V::either(V::shl(low, bits, power), value));
    }

    static NORMANS_INLINE void push(values& x, const values& bits, const values& value)
    {
        x = V::either(V::shl(x, bits, V::power(bits)), value);
    }

    static NORMANS_INLINE void refill(state& x, cursors<word_reader>& from)
    {
        const words high = V::load(x.high), low = V::load(x.low);
        const auto starved = V::equal(high, V::set(0));
        const words word = take(from, starved);
        V::store(x.high, V::select(starved, V::join_shifted(low, word), high));
        V::store(x.low, V::select(starved, V::both(word, V::set(0x7fff)), low));
    }

    static NORMANS_INLINE void spill(encoder_state& x, const vector_mask& full,
                                     cursors<word_writer>& to)
    {
        const words high = V::load(x.high), low = V::load(x.low);
        put(to, full.lanes, low);
        V::store(x.low, V::select(full.lanes, high, low));
        V::store(x.high, V::where_not(full.lanes, high));
    }

    static NORMANS_INLINE values subtract(const values& x, const values& y) { return V::sub(x, y); }
    static NORMANS_INLINE values combine(const values& x, const values& y)
    {
        return V::either(x, y);
    }
    static NORMANS_INLINE values where(const mask& m, const values& x)
    {
        return V::where(V::from_bits(m), x);
    }
    static NORMANS_INLINE values where(const mask& m, uint32_t value)
    {
        return V::where(V::from_bits(m), V::set(value));
    }
    static NORMANS_INLINE values where_not(const mask& m, const values& x)
    {
        return V::where_not(V::from_bits(m), x);
    }

protected:
    static constexpr uint32_t every_lane = ~uint32_t(0);

    static constexpr mask lanes_all(uint32_t bits)
    {
        mask out{};
        for (uint32_t n = 0; n < width / 32; ++n) out.plane[n] = bits;
        return out;
    }

    // A residual's z by its weight, 64 units of `ratio` a step; within +-largest_weighted. What is
    // below comes out positive, which its square is anyway.
    template <class Model>
    static NORMANS_INLINE words weigh(const Model& model, const words& z, const words& ratio)
    {
        const words index = V::smaller(V::template shr<6>(ratio), V::set(31));
        const words limit = V::set(largest_weighted);
        const words weighted = V::mul_rounded(z, model.weight(index));
        return V::sub(V::smaller(V::add(weighted, limit), V::set(2 * largest_weighted)), limit);
    }

    template <class Model>
    static NORMANS_INLINE words size_of(const Model& model, const models& m)
    {
        if constexpr (Model::grouped) return V::load(m.group_size);
        else return model.one;
    }

    template <class Model>
    static NORMANS_INLINE words in_ones(const Model& model, const words& magnitude)
    {
        return V::mul_high(magnitude, model.per_one);
    }

    // The edge below magnitude h with a sign (0x8000 or 0), as floats; see edge_bits.
    template <class Model>
    static NORMANS_INLINE floats edges(const Model& model, const words& h, const words& sign,
                                       bool low)
    {
        if constexpr (!Model::grouped) {
            words edge = V::add(h, model.below_edge);
            if (low) {
                const auto is_low = V::less_signed(h, V::set(Model::smallest_normal + 1));
                edge = V::select(is_low, model.low_edges(in_ones(model, h)), edge);
            }
            return V::floats_from_high(V::either(edge, sign));
        } else if constexpr (Model::codes().bias == 127) {
            // The low half of an edge of fp32's subnormals cannot change z (nor can all of it).
            return V::floats_from_high(V::either(V::sub_saturated(h, V::set(1)), sign), 0x8000);
        } else {
            constexpr scalar_format format = Model::codes();
            constexpr int p = int(format.mantissa_bits);
            constexpr uint32_t rebias = (uint32_t(127 - format.bias) << 23) - (1u << (22 - p));
            auto edge = V::add(V::template shl<23 - p>(V::widen(h)), V::set_int(rebias));
            if (low) {
                const auto is_low = V::less_signed(h, V::set((1u << p) + 1));
                const words odd = V::sub_saturated(V::add(h, h), V::set(1));
                const uint32_t half_step = uint32_t(127 - format.bias - p) << 23;
                const auto steps = V::bits(V::mul(V::to_floats(V::widen(odd)),
                                                  V::set_float(bits_to_float(half_step))));
                edge = V::select(V::widen_mask(is_low), steps, edge);
            }
            return V::as_floats(V::add(edge, V::bits(V::floats_from_high(sign))));
        }
    }

    template <bool Clamp, class Model>
    static NORMANS_INLINE words cdf(const Model& model, const models& m, const words& h,
                                    const words& sign, bool low)
    {
        const models* step = &m;
        const Model* tables = &model;
        NORMANS_HIDE(step);
        if constexpr (V::few_registers) NORMANS_HIDE(tables);
        const floats edge = edges(model, h, sign, low);
        return tables->cdf(V::template round_z<Clamp>(edge, V::load_kept(step->slope),
                                                      V::load_kept(step->product)));
    }

    // Whether a code of a step is not plain (see slope_limits).
    template <class Model>
    static NORMANS_INLINE bool is_careful(const Model& model, const models& m,
                                          const words& magnitude)
    {
        if constexpr (Model::grouped) return true;
        else return V::any_above(V::sub(magnitude, model.lowest_plain), m.limits.plain_span);
    }

    // z at both edges of codes (or of groups): the inner, nearer to zero, and the outer.
    template <class Model>
    static NORMANS_INLINE void cell_edges(const Model& model, const models& m, const words& inner,
                                          const words& sign, bool careful, words& z1, words& z2)
    {
        if constexpr (!Model::grouped) {
            if (!careful) {
                const floats edge = edges(model, inner, sign, false);
                const floats slope = V::load_kept(m.slope), product = V::mul(m.mean, m.slope);
                z1 = V::template round_z<false>(edge, slope, product);
                z2 = V::template round_z<false>(V::as_floats(V::add(V::bits(edge),
                                                                    V::set_int(model.next_edge))),
                                                slope, product);
                return;
            }
        }
        const models* step = &m;
        NORMANS_HIDE(step);
        const words outer = V::add(inner, size_of(model, m));
        const bool low = may_be_low<Model>(inner, V::set(Model::smallest_normal + 1));
        z1 = V::template round_z<true>(edges(model, inner, sign, low), V::load_kept(step->slope),
                                       V::mul(step->mean, step->slope));
        NORMANS_HIDE(step);
        z2 = V::template round_z<true>(edges(model, outer, sign, low), V::load_kept(step->slope),
                                       V::mul(step->mean, step->slope));
    }

    // Whether any magnitude is small enough for subnormals to matter: rare in real data, so that
    // one branch is cheaper than their tables. (bf16 has fp32's own subnormals.)
    template <class Model>
    static NORMANS_INLINE bool may_be_low(const words& magnitude, const words& end)
    {
        if constexpr (!Model::grouped) {
            if constexpr (V::fast_tables) return true;
        } else if constexpr (Model::codes().bias == 127) {
            return false;
        }
        return V::any(V::less_signed(magnitude, end));
    }

    // The boundary nearest to a value, as a magnitude of at least one group's size; `high` is the
    // value's upper half.
    template <class Model>
    static NORMANS_INLINE words first_boundary(const Model& model, const models& m,
                                               const floats& value, const words& high, bool& low)
    {
        (void)value;
        if constexpr (!Model::grouped) {
            // Values in the order of floats with p bits of mantissa, p + 1 octaves of subnormals.
            const words index = V::sub_saturated(V::both(high, model.mask),
                                                 model.lowest);
            low = may_be_low<Model>(index, model.normal_end);
            const words first = V::sub(index, model.first_code);
            if (!low) return first;
            const words code = V::add(model.low_codes(in_ones(model, index)), V::set(1));
            return V::select(V::less_signed(index, model.normal),
                             V::mul_low(code, model.one), first);
        } else {
            constexpr scalar_format format = Model::codes();
            constexpr int p = int(format.mantissa_bits);
            const words positive = V::both(high, V::set(0x7fff));
            words below = positive;
            low = false;
            if constexpr (format.bias != 127) {
                constexpr uint32_t rebias = uint32_t(127 - format.bias) << 23;
                constexpr uint32_t steps = uint32_t(127 + format.bias + p - 1) << 23;
                const auto magnitude = V::both(V::bits(value), V::set_int(~sign_bit));
                below = V::narrow(V::template shr<23 - p>(V::sub(magnitude, V::set_int(rebias))));
                const auto is_low = V::less_signed(positive, V::set((rebias >> 16) + 128 + 32));
                low = V::any(is_low);  // a little early: the neighbour may be low
                if (low) {
                    const auto scaled = V::mul(V::as_floats(magnitude),
                                               V::set_float(bits_to_float(steps)));
                    below = V::select(is_low, V::narrow(V::truncate(scaled)), below);
                }
            }
            const words size = size_of(model, m), half = V::template shr<1>(size);
            const words nearest = V::without(V::add(V::add(below, V::set(1)), half),
                                             V::sub(size, V::set(1)));
            return V::larger(nearest, size);
        }
    }

    // The values of codes as floats; infinities and NaNs give anything. `field`: their upper halves
    // without the sign, as far as they are normal. Low: some may be subnormal.
    template <bool Low, class Model>
    static NORMANS_INLINE floats code_values(const Model& model, const words& codes,
                                             const words& magnitude, words& field)
    {
        constexpr int to_sign = 16 - int(Model::format.code_bits);
        const words sign = V::both(V::template shl<to_sign>(codes), V::set(0x8000));
        if constexpr (!Model::grouped) {
            field = V::add(V::mul_low(magnitude, model.one), model.rebias);
            if constexpr (!Low) return V::floats_from_high(V::either(field, sign));
            const auto is_low = V::less_signed(magnitude, model.smallest_normal_code);
            return V::floats_from_high(
                V::either(V::select(is_low, model.low_values(magnitude), field), sign));
        } else if constexpr (Model::codes().bias == 127) {
            field = magnitude;
            return V::floats_from_high(codes);
        } else {
            constexpr scalar_format format = Model::codes();
            constexpr int p = int(format.mantissa_bits);
            constexpr uint32_t rebias = uint32_t(127 - format.bias) << 7;
            const auto is_low = V::less_signed(magnitude, V::set(1u << p));
            field = V::add(V::template shr<p - 7>(magnitude), V::set(rebias));
            constexpr uint32_t step = uint32_t(128 - format.bias - p) << 23;
            const auto wide = V::widen(magnitude);
            const auto normal = V::add(V::template shl<23 - p>(wide),
                                       V::set_int(rebias << 16));
            const auto low =
                V::bits(V::mul(V::to_floats(wide), V::set_float(bits_to_float(step))));
            return V::as_floats(V::add(V::select(V::widen_mask(is_low), low, normal),
                                       V::bits(V::floats_from_high(sign))));
        }
    }

    // All lanes as coded in a group with slots of its own.
    template <class Model>
    static NORMANS_INLINE void set_coded(const Model& model, const models& m, const words& start,
                                         const words& freq, const words& magnitude,
                                         const words& sign, intervals& out)
    {
        constexpr int to_sign = 16 - int(Model::format.code_bits);
        out.start = start;
        out.freq = freq;
        words code = magnitude;
        if constexpr (!Model::grouped) code = in_ones(model, magnitude);
        out.code = V::either(code, V::template shr<to_sign>(sign));
        if constexpr (Model::grouped) out.raw_bits = V::load(m.group_bits);
        else out.raw_bits = V::set(0);
        out.raw = lanes_all(Model::grouped ? every_lane : 0);
        out.escaped = out.corrupt = lanes_all(0);
    }

    // Which lanes made complete() say that some are outside.
    template <class Model>
    NORMANS_NOINLINE static mask far_lanes(floats products, floats means, float limit)
    {
        uint32_t product[width], mean[width];
        V::store(product, V::bits(products));
        V::store(mean, V::bits(means));
        mask out{};
        for (uint32_t i = 0; i < width; ++i) {
            bool left = (product[i] & ~sign_bit) > float_to_bits(limit);
            if (Model::grouped) left |= exponent_field(mean[i]) < 2 && (mean[i] & ~sign_bit) != 0;
            out.set(i, left);
        }
        return out;
    }

    struct cold_row {
        mask outside;
        exact_models exact;
        values codes;
        mask active;
        words weighted;
    };

    // Takes the lanes that add_row's plain path does not know out of it.
    template <class Model>
    NORMANS_NOINLINE static void count_row(row_sums& sums, const Model& model, cold_row& row)
    {
        uint16_t code[width], y[width];
        V::store(code, row.codes);
        V::store(y, row.weighted);
        for (uint32_t i = 0; i < width; ++i) {
            row_statistics& to = sums.of_lane(i);
            const bool here = row.active.has(i), outside = row.outside.has(i);
            if (!here || outside || is_special(model.codes(), code[i])) y[i] = 0;
            else ++to.count;
            if (here && outside) add_exact(to, model.scalar, row.exact(i), code[i]);
        }
        row.weighted = V::load(y);
    }

    // An interval's lanes as arrays.
    struct lane_arrays {
        uint16_t start[width], freq[width], code[width], raw_bits[width];

        void load(const intervals& all)
        {
            V::store(start, all.start);
            V::store(freq, all.freq);
            V::store(code, all.code);
            V::store(raw_bits, all.raw_bits);
        }

        void put(uint32_t i, const interval& one)
        {
            start[i] = uint16_t(one.start);
            freq[i] = uint16_t(one.freq);
            code[i] = uint16_t(one.code);
            raw_bits[i] = uint16_t(one.raw_bits);
        }

        void store(intervals& all) const
        {
            all.start = V::load(start);
            all.freq = V::load(freq);
            all.code = V::load(code);
            all.raw_bits = V::load(raw_bits);
        }
    };

    // A step that leaves the fast path.
    struct cold_step {
        mask outside;
        exact_models exact;
        values in;  // slots or codes
        mask active;
        intervals out;
        words in_range;  // 0: the group is not
    };

    // Escapes and idle lanes by select, the lanes in `bad` by the scalar definition.
    template <class Model, class Function>
    static void mend(const Model& model, const mask& active, const mask& escaped, const mask& bad,
                     Function interval_at, intervals& out)
    {
        const auto coded = V::from_bits(active & ~escaped);
        const words escape_bits = V::set(model.escape_bits);
        const words other = V::select(V::from_bits(active),
                                      V::set(model.scalar.shape.escape_slots),
                                      V::set(rans_format::total));
        out.start = V::where(coded, out.start);
        out.code = V::where(coded, out.code);
        out.freq = V::select(coded, out.freq, other);
        out.raw_bits = V::either(V::where(coded, out.raw_bits),
                                 V::where(V::from_bits(escaped), escape_bits));
        out.escaped = escaped;
        if (bad.any()) {
            lane_arrays lanes;
            lanes.load(out);
            bad.for_each([&](uint32_t i) {
                const interval one = interval_at(i);
                lanes.put(i, one);
                out.escaped.set(i, one.escaped);
                out.corrupt.set(i, one.corrupt);
            });
            lanes.store(out);
        }
        out.raw = out.raw | out.escaped;
    }

    template <class Model>
    NORMANS_NOINLINE static void mend_located(const Model& model, cold_step& step)
    {
        const words offset = V::sub(step.in, step.out.start);
        const mask escaped =
            V::to_bits(V::less(step.in, V::set(model.scalar.shape.escape_slots))) & step.active;
        const mask beyond = V::to_bits(V::equal(step.in_range, V::set(0)));
        const mask bad = (V::to_bits(V::not_less(offset, step.out.freq)) | beyond |
                          step.outside) & step.active & ~escaped;
        uint16_t slot[width], guess[width];
        V::store(slot, step.in);
        V::store(guess, step.out.code);
        mend(model, step.active, escaped, bad, [&](uint32_t i) {
            const scalar_model one = step.exact(i);
            if (one.is_far) return model.scalar.locate_far(one, slot[i]);
            return model.scalar.locate(one, slot[i], boundary_of<Model>(one, guess[i]));
        }, step.out);
    }

    // A boundary in range near a code.
    template <class Model>
    static int boundary_of(const scalar_model& m, uint32_t code)
    {
        const int group = int((code & (Model::format.code_sign() - 1)) >> m.group_bits);
        const int bound = group < m.last_group ? group : m.last_group;
        return code & Model::format.code_sign() ? -bound : bound;
    }

    template <class Model>
    NORMANS_NOINLINE static void mend_found(const Model& model, cold_step& step)
    {
        const words magnitude = V::both(step.in, V::set(Model::format.code_sign() - 1));
        const mask special = V::to_bits(V::less(V::set(model.codes().largest_finite), magnitude));
        const mask beyond = V::to_bits(V::equal(step.in_range, V::set(0))) & ~special;
        const mask bad = (beyond | step.outside) & step.active;
        const mask none = V::to_bits(V::equal(step.out.freq, V::set(0)));
        uint16_t code[width];
        V::store(code, step.in);
        mend(model, step.active, (none | special) & step.active & ~bad, bad, [&](uint32_t i) {
            return model.scalar.find(step.exact(i), code[i]);
        }, step.out);
    }

    // Escapes under a marginal are rare: lane by lane.
    template <class Function>
    static intervals by_table(const values& keys, const mask& on, Function interval_at)
    {
        intervals out;
        lane_arrays lanes;
        uint16_t key[width];
        V::store(key, keys);
        for (uint32_t i = 0; i < width; ++i)
            lanes.put(i, on.has(i) ? interval_at(key[i]) : idle_interval());
        lanes.store(out);
        out.raw = out.escaped = out.corrupt = mask{};
        return out;
    }

    // Words for the starved lanes. Near the end of a block's words they come from a padded copy.
    static NORMANS_INLINE words take(cursors<word_reader>& from, const typename V::mask& starved)
    {
        if (from.roomy()) return V::take(from.block, from.lanes, starved);
        return take_last(from.block, from.lanes, starved);
    }

    NORMANS_NOINLINE static words take_last(word_reader* readers, uint32_t lanes,
                                            typename V::mask starved)
    {
        uint8_t padded[blocks][64] = {};
        word_reader copies[blocks];
        for (uint32_t i = 0; i < width / lanes; ++i) {
            const size_t rest = size_t(readers[i].end - readers[i].next), most = 2 * lanes;
            if (rest != 0) std::memcpy(padded[i], readers[i].next, rest < most ? rest : most);
            copies[i] = {padded[i], padded[i] + most};
        }
        const words taken = V::take(copies, lanes, starved);
        for (uint32_t i = 0; i < width / lanes; ++i) {
            const size_t used = size_t(copies[i].next - padded[i]);
            if (used > size_t(readers[i].end - readers[i].next)) {
                readers[i].overrun = true;
                readers[i].next = readers[i].end;
            } else {
                readers[i].next += used;
            }
        }
        return taken;
    }

    static NORMANS_INLINE void put(cursors<word_writer>& to, const typename V::mask& full,
                                   const words& x)
    {
        if (to.roomy()) V::put(to.block, to.lanes, full, x);
        else put_last(to.block, to.lanes, full, x);
    }

    NORMANS_NOINLINE static void put_last(word_writer* writers, uint32_t lanes,
                                          typename V::mask full, words x)
    {
        uint8_t room[blocks][64];
        word_writer copies[blocks];
        for (uint32_t i = 0; i < width / lanes; ++i) copies[i] = {room[i], room[i] + 2 * lanes};
        V::put(copies, lanes, full, x);
        for (uint32_t i = 0; i < width / lanes; ++i) {
            const size_t used = size_t(room[i] + 2 * lanes - copies[i].next);
            if (used > size_t(writers[i].next - writers[i].begin)) {
                writers[i].overrun = true;
            } else if (used != 0) {
                writers[i].next -= used;
                std::memcpy(writers[i].next, copies[i].next, used);
            }
        }
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
