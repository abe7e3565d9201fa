#pragma once
// What the predictors of a bundle say of a step's scalars, as a plane_lanes group wants it. Where
// every block's lanes lie in one row, means come straight from memory and what depends on the
// channel alone (slope, affine map) from tiles that are made once, or callables are asked for runs
// of scalars; elsewhere (the ends of rows that are no multiple of the lanes, the last step) lanes
// are collected one by one, but computed with together. Scales, where there are any, are one per
// run of eight lanes or collected.

#include "block_job.hpp"
#include "integer_lanes.hpp"
#include "plane_sigmas.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

template <class Predictor>
constexpr bool is_array_predictor_v = std::is_same_v<Predictor, array_predictor>;

// Fp8 codes -> the upper halves of their fp32 values.
template <class V>
struct fp8_values {
    typename V::small_table subnormals;
    uint32_t scale, rebias, normal, largest;
    bool has_negative_zero;

    explicit fp8_values(scalar_type type) : fp8_values(format_of(type)) {}

    NORMANS_INLINE typename V::words operator()(const typename V::words& codes) const
    {
        const auto magnitude = V::both(codes, V::set(0x7f));
        const auto scaled = V::add(V::mul_low(magnitude, V::set(scale)), V::set(rebias));
        auto value = V::select(V::less_signed(magnitude, V::set(normal)), subnormals(magnitude),
                               scaled);
        // What is no number counts as infinite: far, hence left to the exact model.
        value = V::select(V::less(V::set(largest), magnitude), V::set(0x7f80), value);
        if (!has_negative_zero) value = V::select(V::equal(codes, V::set(0x80)), V::set(0x7f80),
                                                  value);
        return V::either(value, V::both(V::template shl<8>(codes), V::set(0x8000)));
    }

private:
    explicit fp8_values(scalar_format format)
        : subnormals(table(format).word), scale(1u << (7 - format.mantissa_bits)),
          rebias(uint32_t(127 - format.bias) << 7), normal(1u << format.mantissa_bits),
          largest(format.largest_finite), has_negative_zero(format.has_negative_zero)
    {
    }

    struct table_words {
        uint16_t word[16];
    };

    static table_words table(scalar_format format)
    {
        table_words words{};
        for (uint32_t i = 0; i < 16; ++i) words.word[i] = uint16_t(value_bits(format, i) >> 16);
        return words;
    }
};

template <class Lanes, class Model, class Job>
class plane_inputs {
    using V = typename Lanes::planes;
    using floats = typename V::floats;
    using words = typename V::words;
    using predictor = typename Job::predictor_type;
    static constexpr uint32_t N = V::planes;
    static constexpr bool from_arrays = is_array_predictor_v<predictor>;
    static constexpr bool decoding = !std::is_const_v<typename Job::code_type>;
    static constexpr bool scaled = Model::format.is_integer;

public:
    using models = typename Lanes::models;

    /// guess_unit: the deviations' unit.
    plane_inputs(const typename V::float_mode& mode, const block_spec& spec, const Model& model,
                 const Job* jobs, uint32_t present, uint32_t lanes, float guess_unit)
        : mode_(mode), spec_(spec), model_(model), jobs_(jobs), present_(present),
          lanes_(lanes), guess_unit_(guess_unit), fp8_(fp8_type(jobs[0])),
          bytes_(means<uint8_t>()), words_(means<uint16_t>()), floats_(means<float>())
    {
        while (lanes >> shift_ > 1 && (spec.dim >> shift_) % 2 == 0) ++shift_;
        if constexpr (from_arrays) {
            const uint64_t tiles = uint64_t(spec.heads) * (spec.dim >> shift_);
            tiled_ = jobs[0].predictor.sigmas.scalar_stride == 0 && tiles <= capacity;
        }
        for (uint32_t& bits : ready_) bits = 0;
        if constexpr (!from_arrays) {
            for (tile& one : tiles_) set_no_affine(one);
        }
        if constexpr (scaled) {
            const uint32_t group = jobs[0].scales.group;
            by_runs_ = group % 8 == 0;
            while (group_shift_ < 31 && uint32_t(1) << group_shift_ < group) ++group_shift_;
            shifted_ = group == uint32_t(1) << group_shift_;
        }
    }

    /// For row statistics: slopes at 1/32 of their size, no row steps.
    void measure(bool on)
    {
        measuring_ = on;
        token_ = no_token;
    }

    /// Makes ready the step of `here` scalars of every block at `walker` and, where all lie in one
    /// row, the steps beside it: those that follow, or the preceding ones if the steps run
    /// backward. Returns how many; step(i) is the i-th of them in memory's order.
    NORMANS_INLINE uint32_t prepare(const box_walker& walker, uint32_t here)
    {
        // One by one: loaded together, as copies are, they would wait for their stores to end.
        const scalar_position& at = walker.position();
        at_.index = at.index;
        at_.head = at.head;
        NORMANS_OPAQUE(at_.head);
        at_.token = at.token;
        at_.channel = at.channel;
        NORMANS_OPAQUE(at_.channel);
        return prepare_here(walker, here);
    }

    NORMANS_INLINE const models& step(uint32_t i) const { return steps_[i]; }

    /// What a job's predictor says, in the host's floating-point mode if it is a callable.
    NORMANS_NOINLINE prediction predicted(const Job& job, const scalar_position& at) const
    {
        if constexpr (from_arrays) return job.predictor(at);
        const typename V::float_mode::suspended host(mode_);
        return job.predictor(at);
    }

    /// Scalars of a block that the scalar definition coded.
    uint32_t repairs(uint32_t block) const { return repairs_[block]; }

private:
    static constexpr uint32_t width = Lanes::width;
    static constexpr uint32_t capacity = 128 / N;  // 76 KB in all
    static constexpr uint32_t no_token = ~uint32_t(0);
    static constexpr uint32_t at_once = N < 4 ? 16 / N : 4;
    struct alignas(64) tile {  // else half of its loads would cross cache lines
        float slope[width], deviation[width], a[width], b[width];
        uint16_t weight_origin[width];
        typename Lanes::slope_limits limits;
        typename Lanes::mask outside;
    };

    static scalar_type fp8_type(const Job& job)
    {
        if constexpr (from_arrays)
            if (code_bytes(job.predictor.means.type) == 1 &&
                job.predictor.means.type != any_means::fp32)
                return job.predictor.means.type;
        return scalar_type::e4m3fn;
    }

    // prepare() at at_.
    NORMANS_NOINLINE uint32_t prepare_here(const box_walker& walker, uint32_t here)
    {
        if (here != lanes_ || walker.left() < lanes_ ||
            (scaled && (!by_runs_ || (jobs_[0].scales.group != 0 && at_.channel % 8 != 0)))) {
            collect(walker, here, steps_[0]);
            return 1;
        }
        const bool backward = !decoding && !measuring_;
        const uint32_t room = backward ? at_.channel + lanes_ : walker.left();
        const uint32_t steps = room / lanes_ < at_once ? room / lanes_ : at_once;
        if (backward) {
            at_.index -= (steps - 1) * lanes_;
            at_.channel -= (steps - 1) * lanes_;
        }
        if constexpr (scaled) {
            if (token_ != at_.token || head_ != at_.head) set_scaled_row();
        } else {
            if (token_ != at_.token && (token_ == no_token || !measuring_)) set_row(at_.token);
        }
        if constexpr (from_arrays) {
            const any_means& first = jobs_[0].predictor.means;
            const ptrdiff_t offset = offset_of(at_, first.head_stride, first.token_stride);
            if (first.type == scalar_type::bf16)
                load(steps, offset, [&](ptrdiff_t at) NORMANS_LAMBDA {
                    return V::floats_from_high(V::load_words(words_.at(at)));
                });
            else if (first.type == any_means::fp32)
                load(steps, offset, [&](ptrdiff_t at) NORMANS_LAMBDA {
                    return V::load_floats(floats_.at(at));
                });
            else
                load(steps, offset, [&](ptrdiff_t at) NORMANS_LAMBDA {
                    return V::floats_from_high(fp8_(V::load_words(bytes_.at(at))));
                });
        } else {
            ask(steps);
        }
        return steps;
    }

    const Job& job_of(uint32_t block) const { return jobs_[block < present_ ? block : 0]; }

    static scalar_model of_lane(const void* self, uint32_t index, uint32_t lane)
    {
        const plane_inputs& in = *static_cast<const plane_inputs*>(self);
        const Job& job = in.job_of(lane / in.lanes_);
        if (!in.measuring_) ++in.repairs_[lane / in.lanes_];
        const box_walker walker(in.spec_, index + lane % in.lanes_);
        const prediction one = in.predicted(job, walker.position());
        const uint32_t mean = clean_mean(one);
        const uint32_t factor = in.row_factor(job, walker.position().token);
        if constexpr (scaled) {
            const code_scale scale = make_scale(job.scale_bits(walker.position()));
            return prepare_in_codes(in.model_.scalar, mean_in_codes(mean, scale), one.sigma_index,
                                    factor, scale);
        } else {
            return in.model_.scalar.prepare_sloped(mean, one.sigma_index, factor);
        }
    }

    // What a row multiplies slopes with, as fp32 bits.
    uint32_t row_factor(const Job& job, uint32_t token) const
    {
        return measuring_ ? statistics_scale : row_slope(job.row_steps(token));
    }

    // A scale as lanes need it, times 2^-18 and 2^18 (see integer_lanes). Those that do not count
    // are left to the exact model.
    struct lane_scale {
        float slope, inverse;
        bool outside;
    };

    static lane_scale scale_of(uint32_t scale, uint32_t row)
    {
        constexpr uint32_t shift = 18 << 23;
        const uint32_t field = scale >> 23;  // with the sign
        if (field < 127 - 24 || field >= 127 + 24)
            return {bits_to_float(one_bits - shift), bits_to_float(one_bits + shift), true};
        // The quotient is no tie of fp32's, nor so near to one that a double would hide it.
        const uint32_t inverse = round_to_fp32(double_to_bits(1.0 / widen(scale)));
        const bool exact = (row & 0x7fffff) == 0;  // a power of two, as without row steps
        const uint32_t slope = exact ? scale + row - one_bits : multiply(row, scale);
        return {bits_to_float(slope - shift), bits_to_float(inverse + shift), false};
    }

    // Another row of every block: where its scales begin, and what goes with them.
    NORMANS_NOINLINE void set_scaled_row()
    {
        token_ = at_.token;
        head_ = at_.head;
        for (uint32_t block = 0; block < width / lanes_; ++block) {
            const Job& job = job_of(block);
            scales_[block] = job.scales.data + ptrdiff_t(at_.head) * job.scales.head_stride +
                             ptrdiff_t(at_.token) * job.scales.token_stride;
            row_factors_[block] = row_factor(job, at_.token);
        }
        if (jobs_[0].scales.group == 0) set_scales(0);
    }

    // The scales of the step `ahead` channels from at_.
    NORMANS_NOINLINE void set_scales(uint32_t ahead)
    {
        const scale_view& view = jobs_[0].scales;
        const uint32_t each = lanes_ / 8;
        ptrdiff_t place[4];  // of a block's runs
        for (uint32_t run = 0; run < each; ++run) {
            const uint32_t channel = at_.channel + ahead + 8 * run;
            const uint32_t group = view.group == 0 ? 0
                                   : shifted_      ? channel >> group_shift_
                                                   : channel / view.group;
            place[run] = ptrdiff_t(group) * view.group_stride;
        }
        float slope[4 * N], inverse[4 * N];
        uint32_t last_bits = 0;
        lane_scale last = scale_of(0, one_bits);
        typename Lanes::mask outside{};
        for (uint32_t i = 0, block = 0; i < 4 * N; i += each, ++block) {
            for (uint32_t run = 0; run < each; ++run) {
                const uint32_t bits = float_to_bits(scales_[block][place[run]]);
                if (run == 0 || bits != last_bits) last = scale_of(bits, row_factors_[block]);
                last_bits = bits;
                slope[i + run] = last.slope;
                inverse[i + run] = last.inverse;
                if (last.outside)
                    outside.plane[(i + run) / 4] |= uint32_t(255) << (i + run) % 4 * 8;
            }
        }
        keep_scales(V::spread(slope), V::spread(inverse), outside);
    }

    NORMANS_INLINE void keep_scales(const floats& slope, const floats& inverse,
                                    const typename Lanes::mask& outside)
    {
        row_slope_ = slope;
        if (decoding)
            row_deviation_ = V::mul(V::reciprocal(slope), V::set_float(model_.guess_deviation));
        V::keep(inverse_, inverse);
        scale_outside_ = outside;
    }

    NORMANS_NOINLINE void set_row(uint32_t token)
    {
        static constexpr row_slope_table slopes = row_slopes();
        static constexpr row_deviation_table deviations = row_deviations();
        token_ = token;
        if (measuring_) return;
        float slope[4 * N + 3], deviation[4 * N + 3];  // per run of eight lanes
        const uint32_t each = lanes_ / 8;
        for (uint32_t i = 0, block = 0; i < 4 * N; i += each, ++block) {
            const uint32_t at = job_of(block).row_steps.nibble(token);
            spread_run(bits_to_float(slopes.bits[at]), slope + i);
            if (decoding) spread_run(deviations.value[at], deviation + i);
        }
        row_slope_ = V::spread(slope);
        if (decoding) row_deviation_ = V::spread(deviation);
    }

    // To a block's runs, four at most: those of the next block go over what is too many.
    static NORMANS_INLINE void spread_run(float value, float* run)
    {
        run[0] = run[1] = run[2] = run[3] = value;
    }

    template <class T>
    using places = typename Lanes::template places<const T>;

    // Where the means lie, if they are of type T.
    template <class T>
    places<T> means() const
    {
        return places<T>(lanes_, [&](uint32_t block) -> const T* {
            if constexpr (from_arrays)
                return static_cast<const T*>(job_of(block).predictor.means.data);
            else
                return nullptr;
        });
    }

    // Steps from at_ on, in one row of every block; `means(offset)` loads a step's means.
    template <class Means>
    NORMANS_INLINE void load(uint32_t steps, ptrdiff_t offset, Means means)
    {
        uint32_t index = tiled_ ? at_.head * (spec_.dim >> shift_) + (at_.channel >> shift_) : 0;
        for (uint32_t i = 0; i < steps; ++i) {
            tile& from = tiles_[index];
            if (!tiled_ || !(ready_[index / 32] >> index % 32 & 1)) {
                ready_[index / 32] |= uint32_t(1) << index % 32;
                make_tile(i * lanes_, from);
            }
            if constexpr (scaled)
                if (jobs_[0].scales.group != 0) set_scales(i * lanes_);
            steps_[i].exact = {this, at_.index + i * lanes_, of_lane};
            complete(from, means(offset), steps_[i]);
            index += tiled_ ? lanes_ >> shift_ : 1;
            offset += lanes_;
        }
    }

    // The same from callables.
    NORMANS_NOINLINE void ask(uint32_t steps)
    {
        alignas(64) uint32_t mean[at_once][width];
        uint16_t index[at_once][width];
        {  // a callable may compute with floats: in its host's mode
            const typename V::float_mode::suspended host(mode_);
            scalar_position at = at_;
            for (uint32_t i = 0; i < steps; ++i, at.index += lanes_, at.channel += lanes_)
                for (uint32_t lane = 0; lane < present_ * lanes_; lane += lanes_)
                    jobs_[lane / lanes_].predictor.run(at, lanes_, mean[i] + lane,
                                                       index[i] + lane);
        }
        for (uint32_t i = 0; i < steps; ++i) {
            for (uint32_t lane = present_ * lanes_; lane < width; ++lane) {
                mean[i][lane] = mean[i][lane % lanes_];
                index[i][lane] = index[i][lane % lanes_];
            }
            set_sigmas(V::load(index[i]), tiles_[i]);
            if constexpr (scaled)
                if (jobs_[0].scales.group != 0) set_scales(i * lanes_);
            steps_[i].exact = {this, at_.index + i * lanes_, of_lane};
            complete(tiles_[i], V::as_floats(V::load(mean[i])), steps_[i]);
        }
    }

    NORMANS_INLINE void complete(const tile& from, const floats& mean, models& m) const
    {
        m.outside = from.outside;
        if (decoding)
            V::keep(m.deviation, V::mul(V::load_kept(from.deviation), row_deviation_));
        if constexpr (!decoding && !scaled) {
            m.weight_origin = from.weight_origin;
            m.channel_slope = from.slope;
            m.limits = from.limits;
        }
        if (decoding || scaled || !measuring_)
            V::keep(m.slope, V::mul(V::load_kept(from.slope), row_slope_));
        const floats mapped = V::map_means(mean, from.a, from.b);
        V::keep(m.mean, mapped);
        if constexpr (scaled) {
            m.outside = m.outside | scale_outside_;
            const models* stored = &m;
            NORMANS_HIDE(stored);  // two roundings, whatever a compiler thinks of it
            V::keep(m.mean, V::mul(stored->mean, inverse_));
        }
        Lanes::template complete<decoding>(model_, measuring_, mapped, m);
    }

    // The tile `ahead` channels from at_.
    NORMANS_NOINLINE void make_tile(uint32_t ahead, tile& to) const
    {
        const any_sigmas& sigmas = jobs_[0].predictor.sigmas;
        const channel_affine& affine = jobs_[0].predictor.affine;
        scalar_position at = at_;
        at.index += ahead;
        at.channel += ahead;
        if (sigmas.scalar_stride + sigmas.channel_stride != 1) {
            uint16_t one[width];
            for (uint32_t i = 0; i < width; ++i) {
                scalar_position lane = at;
                lane.index += i % lanes_;
                lane.channel += i % lanes_;
                one[i] = job_of(i / lanes_).predictor.sigmas(lane);
            }
            set_sigmas(V::load(one), to);
        } else if (sigmas.type == any_sigmas::kind::index) {
            set_sigmas(V::load_words(sigmas_at<uint8_t>(at).at(0)), to);
        } else {
            const plane_sigmas<V> index(sigmas.type == any_sigmas::kind::variance, sigmas.offset);
            set_sigmas(index(V::load_floats(sigmas_at<float>(at).at(0))), to);
        }
        if (affine.a == nullptr) return set_no_affine(to);
        const size_t channel = size_t(at_.head) * affine.dim + at_.channel + ahead;
        const places<float> a(lanes_, [&](uint32_t block) {
            return job_of(block).predictor.affine.a + channel;
        });
        const places<float> b(lanes_, [&](uint32_t block) {
            return job_of(block).predictor.affine.b + channel;
        });
        V::keep(to.a, V::load_floats(a.at(0)));
        V::keep(to.b, V::load_floats(b.at(0)));
    }

    static void set_no_affine(tile& to)
    {
        V::keep(to.a, V::set_float(1.0f));
        V::keep(to.b, V::set_float(-0.0f));
    }

    template <class T>
    places<T> sigmas_at(const scalar_position& at) const
    {
        const size_t place = jobs_[0].predictor.sigmas.place_of(at);
        return places<T>(lanes_, [&](uint32_t block) {
            return static_cast<const T*>(job_of(block).predictor.sigmas.data) + place;
        });
    }

    NORMANS_INLINE void set_sigmas(const words& index, tile& to) const
    {
        const auto outside = V::join(V::less(index, V::set(model_.smallest_index)),
                                     V::equal(index, V::set(sigma_zero)));
        to.outside = V::to_bits(outside);
        const floats slope = V::slopes(V::select(outside, V::set(128), index), model_.slope);
        V::keep(to.slope, slope);
        if (decoding) {
            V::keep(to.deviation, V::mul(V::reciprocal(slope), V::set_float(guess_unit_)));
        } else if constexpr (!scaled) {
            to.limits = Lanes::limits_of(model_, slope);
            const floats measured = V::mul(slope, V::set_float(bits_to_float(statistics_scale)));
            V::store(to.weight_origin, Lanes::weight_origins(model_, measured));
        }
    }

    // Lane by lane.
    struct collected {
        uint32_t mean[Lanes::width];
        uint16_t index[Lanes::width];
        float a[Lanes::width], b[Lanes::width], row[Lanes::width];
        float inverse[scaled ? Lanes::width : 1];
        typename Lanes::mask outside{};

        void copy(uint32_t to, uint32_t from)
        {
            if (scaled) {
                inverse[to] = inverse[from];
                outside.set(to, outside.has(from));
            }
            mean[to] = mean[from];
            index[to] = index[from];
            a[to] = a[from];
            b[to] = b[from];
            row[to] = row[from];
        }
    };

    NORMANS_NOINLINE void collect(const box_walker& walker, uint32_t here, models& m)
    {
        collected lanes;
        m.exact = {this, walker.position().index, of_lane};
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            lanes.mean[i] = 0;
            lanes.index[i] = 128;
            lanes.a[i] = lanes.row[i] = 1.0f;
            lanes.b[i] = -0.0f;
            if constexpr (scaled) {
                const lane_scale one = scale_of(one_bits, one_bits);
                lanes.row[i] = one.slope;
                lanes.inverse[i] = one.inverse;
            }
        }
        token_ = no_token;
        for_runs(walker, here, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
            for (uint32_t block = 0; block < present_; ++block) {
                const uint32_t first = block * lanes_ + offset;
                const uint32_t row = row_factor(jobs_[block], at.token);
                for (uint32_t i = first; i < first + n; ++i) lanes.row[i] = bits_to_float(row);
                if constexpr (scaled) collect_scales(jobs_[block], at, n, row, first, lanes);
                collect_run(jobs_[block].predictor, at, n, first, lanes);
            }
        });
        for (uint32_t i = present_ * lanes_; i < Lanes::width; ++i) lanes.copy(i, i % lanes_);
        if constexpr (scaled) {
            keep_scales(V::load(lanes.row), V::load(lanes.inverse), lanes.outside);
        } else {
            row_slope_ = V::load(lanes.row);
            row_deviation_ = V::reciprocal(row_slope_);
        }
        set_sigmas(V::load(lanes.index), spare_);
        V::keep(spare_.a, V::load(lanes.a));
        V::keep(spare_.b, V::load(lanes.b));
        complete(spare_, V::as_floats(V::load(lanes.mean)), m);
    }

    static void collect_scales(const Job& job, scalar_position at, uint32_t n, uint32_t row,
                               uint32_t first, collected& lanes)
    {
        uint32_t last_bits = 0;
        lane_scale last = scale_of(0, one_bits);
        for (uint32_t i = first; i < first + n; ++i, ++at.channel) {
            const uint32_t bits = job.scale_bits(at);
            if (bits != last_bits) last = scale_of(bits, row);
            last_bits = bits;
            lanes.row[i] = last.slope;
            lanes.inverse[i] = last.inverse;
            lanes.outside.set(i, last.outside);
        }
    }

    void collect_run(const array_predictor& from, const scalar_position& at, uint32_t n,
                     uint32_t first, collected& lanes) const
    {
        uint32_t index[max_lanes];
        from.means.run(at, n, lanes.mean + first);
        from.sigmas.run(at, n, index);
        for (uint32_t i = 0; i < n; ++i) lanes.index[first + i] = uint16_t(index[i]);
        if (from.affine.a == nullptr) return;
        const size_t channel = size_t(at.head) * from.affine.dim + at.channel;
        std::memcpy(lanes.a + first, from.affine.a + channel, n * sizeof(float));
        std::memcpy(lanes.b + first, from.affine.b + channel, n * sizeof(float));
    }

    void collect_run(const any_callable& from, const scalar_position& at, uint32_t n,
                     uint32_t first, collected& lanes) const
    {
        const typename V::float_mode::suspended host(mode_);
        from.run(at, n, lanes.mean + first, lanes.index + first);
    }

    const typename V::float_mode& mode_;
    const block_spec& spec_;
    const Model& model_;
    const Job* jobs_;
    uint32_t present_, lanes_;
    float guess_unit_;
    fp8_values<V> fp8_;
    places<uint8_t> bytes_;  // means of each width
    places<uint16_t> words_;
    places<float> floats_;
    scalar_position at_{};
    uint32_t token_ = no_token;
    uint32_t shift_ = 0;  // tiles start at multiples of 2^shift_ channels
    bool tiled_ = false, measuring_ = false;
    mutable uint32_t repairs_[Lanes::blocks] = {};
    floats row_slope_, row_deviation_;
    // Of scales: per block where the row's begin and what its step says, then per lane.
    const float* scales_[scaled ? Lanes::blocks : 1] = {};
    uint32_t row_factors_[scaled ? Lanes::blocks : 1] = {};
    uint32_t head_ = 0, group_shift_ = 0;
    bool by_runs_ = true, shifted_ = false;
    typename Lanes::mask scale_outside_{};
    alignas(64) float inverse_[scaled ? width : 1];
    uint32_t ready_[(capacity + 31) / 32];
    // Or, if there are too many, and of callables, per step.
    alignas(64) tile tiles_[from_arrays ? capacity : at_once];
    tile spare_;
    models steps_[at_once];
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
