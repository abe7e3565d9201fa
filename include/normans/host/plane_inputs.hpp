#pragma once
// What the predictors of a bundle say of a step's scalars, as a plane_lanes group wants it. Where
// every block's lanes lie in one row, means come straight from memory and what depends on the
// channel alone (slope, affine map) from tiles that are made once; elsewhere (the ends of rows that
// are no multiple of the lanes, the last step, callables) lanes are collected one by one, but
// computed with together.

#include "block_job.hpp"
#include "plane_lanes.hpp"

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
    }

    /// For row statistics: slopes at 1/32 of their size, no row steps.
    void measure(bool on)
    {
        measuring_ = on;
        token_ = ~uint32_t(0);
    }

    /// The distributions of the next `here` scalars of every block.
    NORMANS_INLINE models at(const box_walker& walker, uint32_t here)
    {
        at_ = walker.position();
        models m;
        m.source = this;
        m.of_lane = of_lane;
        if (!from_arrays || here != lanes_ || walker.left() < lanes_) {
            models cold;
            collect(walker, here, cold);
            copy(cold, m);
        } else if constexpr (from_arrays) {
            load(m);
        }
        Lanes::complete(model_, m);
        return m;
    }

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
    static constexpr uint32_t capacity = 128 / N;  // 64 KB in all
    struct tile {
        float slope[width], deviation[width], a[width], b[width];
    };

    static scalar_type fp8_type(const Job& job)
    {
        if constexpr (from_arrays)
            if (code_bytes(job.predictor.means.type) == 1 &&
                job.predictor.means.type != any_means::fp32)
                return job.predictor.means.type;
        return scalar_type::e4m3fn;
    }

    const Job& job_of(uint32_t block) const { return jobs_[block < present_ ? block : 0]; }

    static scalar_model of_lane(const void* self, uint32_t lane)
    {
        const plane_inputs& in = *static_cast<const plane_inputs*>(self);
        const Job& job = in.job_of(lane / in.lanes_);
        if (!in.measuring_) ++in.repairs_[lane / in.lanes_];
        const box_walker walker(in.spec_, in.at_.index + lane % in.lanes_);
        const prediction one = in.predicted(job, walker.position());
        const uint32_t mean = clean_mean(one);
        const uint32_t factor =
            in.measuring_ ? statistics_scale
                          : row_slope(row_step_at(job.row_steps, walker.position().token));
        return in.model_.scalar.prepare_sloped(mean, one.sigma_index, factor);
    }

    NORMANS_NOINLINE void set_row(uint32_t token)
    {
        token_ = token;
        float slope[4 * N], deviation[4 * N];  // per run of eight lanes
        const uint32_t each = lanes_ / 8;
        for (uint32_t i = 0, block = 0; i < 4 * N; i += each, ++block) {
            static constexpr row_slope_table slopes = row_slopes();
            static constexpr row_deviation_table deviations = row_deviations();
            const uint32_t at = uint32_t(row_step_at(job_of(block).row_steps, token) -
                                         min_row_step);
            const float by = bits_to_float(measuring_ ? statistics_scale : slopes.bits[at]);
            for (uint32_t run = i; run < i + each; ++run) {
                slope[run] = by;
                deviation[run] = deviations.value[at];
            }
        }
        row_slope_ = V::spread(slope);
        row_deviation_ = V::spread(deviation);
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

    static NORMANS_INLINE void copy(const models& from, models& to)
    {
        to.mean = from.mean;
        to.slope = from.slope;
        to.deviation = from.deviation;
        to.outside = from.outside;
    }

    NORMANS_INLINE floats load_means() const
    {
        const any_means& first = jobs_[0].predictor.means;
        const ptrdiff_t offset = offset_of(at_, first.head_stride, first.token_stride);
        if (first.type == scalar_type::bf16)
            return V::floats_from_high(V::load_words(words_.at(offset)));
        if (first.type == any_means::fp32) return V::load_floats(floats_.at(offset));
        return V::floats_from_high(fp8_(V::load_words(bytes_.at(offset))));
    }

    // One row in every block.
    NORMANS_INLINE void load(models& m)
    {
        m.mean = load_means();
        if (at_.token != token_) set_row(at_.token);
        if (!tiled_) {
            models cold = m;
            load_parameters(cold);
            copy(cold, m);
            return;
        }
        const uint32_t index = at_.head * (spec_.dim >> shift_) + (at_.channel >> shift_);
        const tile& from = tiles_[index];
        if (!(ready_[index / 32] >> index % 32 & 1)) make_tile(index);
        m.mean = V::map_means(m.mean, V::load_kept(from.a), V::load_kept(from.b));
        m.slope = V::mul(V::load_kept(from.slope), row_slope_);
        m.deviation = V::mul(V::load_kept(from.deviation), row_deviation_);
        m.outside = outside_[index];
    }

    NORMANS_NOINLINE void make_tile(uint32_t tile_index)
    {
        float slope[width], deviation[width], a[width], b[width];
        tile& to = tiles_[tile_index];
        ready_[tile_index / 32] |= uint32_t(1) << tile_index % 32;
        typename Lanes::mask& left = outside_[tile_index];
        left = {};
        for (uint32_t i = 0; i < width; ++i) {
            const array_predictor& from = job_of(i / lanes_).predictor;
            scalar_position at = at_;
            at.channel += i % lanes_;
            const uint32_t index = from.sigmas(at);
            const bool outside = index == sigma_zero || index < model_.smallest_index;
            if (outside) left.set(i, true);
            slope[i] = outside ? 1.0f
                               : bits_to_float(model_.slope[index & 7] - (index >> 3 << 23));
            deviation[i] = guess_unit_ / slope[i];
            const size_t channel = size_t(at.head) * from.affine.dim + at.channel;
            a[i] = from.affine.a == nullptr ? 1.0f : from.affine.a[channel];
            b[i] = from.affine.a == nullptr ? -0.0f : from.affine.b[channel];
        }
        V::keep(to.slope, V::load(slope));
        V::keep(to.deviation, V::load(deviation));
        V::keep(to.a, V::load(a));
        V::keep(to.b, V::load(b));
    }

    NORMANS_INLINE void set_slopes(models& m, const words& index)
    {
        const auto outside = V::join(V::less(index, V::set(model_.smallest_index)),
                                     V::equal(index, V::set(sigma_zero)));
        m.outside = V::to_bits(outside);
        const words safe = V::select(outside, V::set(128), index);
        m.slope = V::mul(V::slopes(safe, model_.slope), row_slope_);
        m.deviation = V::mul(V::reciprocal(m.slope), V::set_float(guess_unit_));
    }

    // One row in every block, too many channels for tiles or a sigma for every scalar.
    NORMANS_NOINLINE void load_parameters(models& m)
    {
        const any_sigmas& sigmas = jobs_[0].predictor.sigmas;
        const channel_affine& affine = jobs_[0].predictor.affine;
        const size_t offset = size_t(at_.index) * sigmas.scalar_stride +
                              (size_t(at_.head) * sigmas.dim + at_.channel) *
                                  sigmas.channel_stride;
        const size_t channel = size_t(at_.head) * affine.dim + at_.channel;
        if (sigmas.scalar_stride + sigmas.channel_stride == 0) {
            uint16_t one[width];
            for (uint32_t i = 0; i < width; ++i)
                one[i] = *job_of(i / lanes_).predictor.sigmas.index;
            set_slopes(m, V::load(one));
        } else {
            const places<uint8_t> index(lanes_, [&](uint32_t block) {
                return job_of(block).predictor.sigmas.index + offset;
            });
            set_slopes(m, V::load_words(index.at(0)));
        }
        if (affine.a == nullptr) {
            m.mean = V::map_means(m.mean, V::set_float(1.0f), V::set_float(-0.0f));
            return;
        }
        const places<float> a(lanes_, [&](uint32_t block) {
            return job_of(block).predictor.affine.a + channel;
        });
        const places<float> b(lanes_, [&](uint32_t block) {
            return job_of(block).predictor.affine.b + channel;
        });
        m.mean = V::map_means(m.mean, V::load_floats(a.at(0)), V::load_floats(b.at(0)));
    }

    // Lane by lane.
    struct collected {
        uint32_t mean[Lanes::width];
        uint16_t index[Lanes::width];
        float a[Lanes::width], b[Lanes::width], row[Lanes::width];
    };

    NORMANS_NOINLINE void collect(const box_walker& walker, uint32_t here, models& m)
    {
        collected lanes;
        for (uint32_t i = 0; i < Lanes::width; ++i) {
            lanes.mean[i] = 0;
            lanes.index[i] = 128;
            lanes.a[i] = lanes.row[i] = 1.0f;
            lanes.b[i] = -0.0f;
        }
        token_ = ~uint32_t(0);
        for_runs(walker, here, [&](uint32_t offset, const scalar_position& at, uint32_t n) {
            for (uint32_t block = 0; block < present_; ++block) {
                const uint32_t first = block * lanes_ + offset;
                const int step = row_step_at(jobs_[block].row_steps, at.token);
                const uint32_t row = measuring_ ? statistics_scale : row_slope(step);
                for (uint32_t i = first; i < first + n; ++i) lanes.row[i] = bits_to_float(row);
                collect_run(jobs_[block].predictor, at, n, first, lanes);
            }
        });
        row_slope_ = V::load(lanes.row);
        m.mean = V::map_means(V::as_floats(V::load(lanes.mean)), V::load(lanes.a),
                              V::load(lanes.b));
        set_slopes(m, V::load(lanes.index));
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

    // A callable may compute with floats: in its host's mode.
    template <class Callable>
    void collect_run(const Callable& from, scalar_position at, uint32_t n, uint32_t first,
                     collected& lanes) const
    {
        const typename V::float_mode::suspended host(mode_);
        for (uint32_t i = first; i < first + n; ++i, ++at.index, ++at.channel) {
            const prediction one = from(at);
            lanes.mean[i] = clean_mean(one);
            lanes.index[i] = one.sigma_index;
        }
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
    uint32_t token_ = ~uint32_t(0);
    uint32_t shift_ = 0;  // tiles start at multiples of 2^shift_ channels
    bool tiled_ = false, measuring_ = false;
    mutable uint32_t repairs_[Lanes::blocks] = {};
    floats row_slope_, row_deviation_;
    uint32_t ready_[(capacity + 31) / 32];
    typename Lanes::mask outside_[from_arrays ? capacity : 1];
    alignas(64) tile tiles_[from_arrays ? capacity : 1];
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
