#pragma once
// Fits a profile from samples of (code, mean). Statistics stream and merge: feed tokens in any
// pieces, merge, fit. Two passes pay: the first fits each channel alone, the second weighs every
// token by how far off it was as a whole, since the coder stores a row step per token. A third,
// sigma_likelihood, is for codes whose values before rounding nobody knows, and for shapes other
// than the Gaussian. Doubles and libm are fine here: a profile is data, both sides of the coder
// read the same one. Values and means that are NaN or infinite are left out.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "profile.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// One scalar of a calibration set.
struct calibration_sample {
    double value;   // in units of the codes: before rounding if known, else the code's own value
    float mean;     // as the predictor says it, in units of the values (scale is not applied)
    uint32_t code;  // what will be coded
};

/// What a channel's samples say. Real numbers, in units of the codes.
struct channel_fit {
    double a = 1;  // value is about a * mean / scale + b
    double b = 0;
    double plain_sigma = 0;  // about mean / scale
    double affine_sigma = 0;
    bool plain_exact = false;   // each code was the one nearest to its mean, or that one's negative
    bool affine_exact = false;
};

/// The map of a fit as the coder uses it: zero or normal floats, 1 / scale folded in. A map that
/// changes nothing, or that floats cannot hold, is {fl32(1 / scale), -0.0f}.
struct folded_map {
    float a;
    float b;
};

inline folded_map fold_scale(const channel_fit& fit, float scale) noexcept
{
    const folded_map plain{inverse_scale(scale), -0.0f};
    const folded_map map{float(fit.a / double(scale)), fit.b == 0 ? -0.0f : float(fit.b)};
    if (fit.a == 1 && fit.b == 0) return plain;
    return detail::zero_or_normal(map.a) && detail::zero_or_normal(map.b) ? map : plain;
}

/// How the residuals of a tensor were rounded: fp8 codes whose bf16 values are known are not.
enum class residual_kind : uint8_t { before_rounding, of_codes };

namespace detail {

inline bool usable(const calibration_sample& sample) noexcept
{
    return std::isfinite(sample.value) && std::isfinite(sample.mean);
}

// Width of the cell of the code at `value`.
inline double cell_width(scalar_format format, double value) noexcept
{
    int exponent = 0;
    std::frexp(value, &exponent);
    const int lowest = 1 - format.bias;
    if (value == 0 || exponent - 1 < lowest) exponent = lowest + 1;
    return std::ldexp(1.0, exponent - 1 - int(format.mantissa_bits));
}

struct channel_sums {
    double count = 0;
    double weight = 0;
    double mean = 0;
    double residual = 0;  // value - mean
    double mean_mean = 0;
    double residual_mean = 0;
    double residual_residual = 0;
    uint64_t misses = 0;  // codes that were neither the nearest to the mean nor its negative

    void add(double value, double mu, double w)
    {
        const double d = value - mu;
        count += 1;
        weight += w;
        mean += w * mu;
        residual += w * d;
        mean_mean += w * mu * mu;
        residual_mean += w * d * mu;
        residual_residual += w * d * d;
    }

    void merge(const channel_sums& other)
    {
        count += other.count;
        weight += other.weight;
        mean += other.mean;
        residual += other.residual;
        mean_mean += other.mean_mean;
        residual_mean += other.residual_mean;
        residual_residual += other.residual_residual;
        misses += other.misses;
    }
};

// Of an estimate and its variance: the part that is likely to hold on other data. Residuals of
// neighbouring tokens are alike, so four tokens count as one.
inline double shrunk(double estimate, double variance)
{
    constexpr double tokens_per_independent = 4;
    const double square = estimate * estimate;
    const double doubt = tokens_per_independent * variance;
    return square > doubt ? estimate * (1 - doubt / square) : 0;
}

}  // namespace detail

/// The first and second pass over one tensor. Without a reference every token weighs the same;
/// with the fits of a first pass tokens weigh as the row steps that the coder will give them.
class tensor_statistics {
public:
    tensor_statistics(scalar_type dtype, float scale, residual_kind kind, size_t channels)
        : format_(format_of(dtype)),
          scale_(scale),
          kind_(kind),
          channels_(channels),
          maps_(channels, fold_scale({}, scale))
    {
    }

    tensor_statistics(scalar_type dtype, float scale, residual_kind kind,
                      const std::vector<channel_fit>& reference)
        : tensor_statistics(dtype, scale, kind, reference.size())
    {
        reference_ = reference;
        for (size_t c = 0; c < reference.size(); ++c) maps_[c] = fold_scale(reference[c], scale);
    }

    /// One token: a sample per channel, in the order head * dim + channel.
    void add_token(const calibration_sample* row)
    {
        const double weight = reference_.empty() ? 1 : 1 / spread(row);
        for (size_t c = 0; c < channels_.size(); ++c) {
            const calibration_sample& sample = row[c];
            if (!detail::usable(sample)) continue;
            channels_[c].add(sample.value, double(sample.mean) / double(scale_), weight);
            const uint32_t nearest = nearest_code(
                format_, map_mean(float_to_bits(sample.mean), float_to_bits(maps_[c].a),
                                  float_to_bits(maps_[c].b)));
            if (sample.code != nearest && sample.code != (nearest ^ format_.code_sign()))
                ++channels_[c].misses;
        }
    }

    /// Mean square of a token's residuals in units of the reference's sigmas, within what the row
    /// steps can say (2^(j/2), j = -6 .. 9). 1 without a reference.
    double spread(const calibration_sample* row) const
    {
        double sum = 0, count = 0;
        for (size_t c = 0; c < reference_.size(); ++c) {
            const channel_fit& fit = reference_[c];
            const double mean = fit.a * double(row[c].mean) / double(scale_) + fit.b;
            const double cell =
                kind_ == residual_kind::of_codes ? detail::cell_width(format_, mean) : 0;
            const double square = fit.affine_sigma * fit.affine_sigma + cell * cell / 12;
            if (!detail::usable(row[c]) || !(fit.affine_sigma > 0)) continue;
            sum += (row[c].value - mean) * (row[c].value - mean) / square;
            count += 1;
        }
        if (count == 0) return 1;
        return (std::min)((std::max)(sum / count, 0.125), 22.627416998);
    }

    residual_kind kind() const noexcept { return kind_; }

    /// bad_argument unless both are of the same tensor and pass.
    [[nodiscard]] status merge(const tensor_statistics& other)
    {
        if (other.channels_.size() != channels_.size() || other.scale_ != scale_ ||
            other.reference_.size() != reference_.size())
            return status::bad_argument;
        for (size_t c = 0; c < channels_.size(); ++c) channels_[c].merge(other.channels_[c]);
        return status::ok;
    }

    /// Least squares per channel, shrunk towards the identity where the samples leave doubt.
    /// With a reference only the affine part is new; plain sigmas stay the reference's.
    std::vector<channel_fit> fit() const
    {
        std::vector<channel_fit> fits(channels_.size());
        for (size_t c = 0; c < channels_.size(); ++c) {
            fits[c] = fit_channel(channels_[c]);
            if (reference_.empty()) continue;
            fits[c].plain_sigma = reference_[c].plain_sigma;
            fits[c].plain_exact = reference_[c].plain_exact;
        }
        return fits;
    }

private:
    static channel_fit fit_channel(const detail::channel_sums& sums)
    {
        channel_fit fit;
        if (!(sums.weight > 0)) return fit;
        const double mean = sums.mean / sums.weight, residual = sums.residual / sums.weight;
        const double mean_spread = (std::max)(sums.mean_mean - sums.weight * mean * mean, 0.0);
        const double covariance = sums.residual_mean - sums.weight * residual * mean;
        const double total =
            (std::max)(sums.residual_residual - sums.weight * residual * residual, 0.0);

        // A mean that hardly moves says nothing about a slope.
        const bool moves = mean_spread > 1e-12 * sums.mean_mean;
        double slope = moves ? covariance / mean_spread : 0;
        const double noise = (std::max)(total - slope * covariance, 0.0) / sums.count;
        slope = moves ? detail::shrunk(slope, noise / mean_spread) : 0;
        const double shift = detail::shrunk(residual, noise / sums.weight);

        // Squares about the plain and about the mapped mean, the latter at the shrunk values.
        const double left = total - 2 * slope * covariance + slope * slope * mean_spread +
                            sums.weight * (residual - shift) * (residual - shift);
        fit.a = 1 + slope;
        fit.b = shift - slope * mean;
        fit.plain_sigma = std::sqrt(sums.residual_residual / sums.count);
        fit.affine_sigma = std::sqrt((std::max)(left, 0.0) / sums.count);
        fit.plain_exact = fit.plain_sigma == 0 && sums.misses == 0;
        fit.affine_exact = fit.affine_sigma == 0 && sums.misses == 0;
        return fit;
    }

    scalar_format format_;
    float scale_;
    residual_kind kind_;
    std::vector<detail::channel_sums> channels_;
    std::vector<folded_map> maps_;  // the reference's, to see whether codes are the nearest
    std::vector<channel_fit> reference_;
};

namespace detail {

// P(Z > z), Z the shape's variable in units of sigma.
inline double upper_tail(shape_id shape, double z)
{
    const auto tail = [](double t) { return 0.5 * std::erfc(t * 0.70710678118654752); };
    switch (shape) {
    case shape_id::mixture: return 0.95 * tail(z) + 0.05 * tail(z / 2);
    case shape_id::mixture_marginal: return (0.95 * tail(z) + 0.03 * tail(z / 3)) / 0.98;
    case shape_id::gaussian: break;
    }
    return tail(z);
}

inline double share_between(shape_id shape, double lower, double upper)
{
    if (lower < 0 && upper > 0) return 1 - upper_tail(shape, -lower) - upper_tail(shape, upper);
    if (upper <= 0) return upper_tail(shape, -upper) - upper_tail(shape, -lower);
    return upper_tail(shape, lower) - upper_tail(shape, upper);
}

struct code_cell {
    double lower;
    double upper;
};

// The outermost finite codes take all that lies beyond them. Finite codes only.
inline code_cell cell_of(scalar_format format, uint32_t code)
{
    const uint32_t magnitude = code & (format.code_sign() - 1);
    const double lower = widen(edge_bits(format, magnitude));
    const double upper = magnitude == format.largest_finite
                             ? std::numeric_limits<double>::infinity()
                             : widen(edge_bits(format, magnitude + 1));
    if (code & format.code_sign()) return {-upper, -lower};
    return {lower, upper};
}

}  // namespace detail

/// Maximum likelihood: the log-likelihood of each code's whole cell, for a grid of sigmas a quarter
/// octave apart around each fit's own. Streaming and mergeable like the sums above.
class sigma_likelihood {
public:
    /// `rows`: the statistics whose reference gives each token's spread.
    sigma_likelihood(scalar_type dtype, shape_id shape, float scale, const tensor_statistics& rows,
                     const std::vector<channel_fit>& fits)
        : format_(format_of(dtype)),
          shape_(shape),
          scale_(scale),
          rows_(rows),
          fits_(fits),
          lowest_(rows.kind() == residual_kind::of_codes && code_bytes(dtype) == 1 ? -16 : -6),
          candidates_(size_t(highest - lowest_ + 1)),
          plain_(fits.size() * candidates_),
          affine_(fits.size() * candidates_)
    {
    }

    void add_token(const calibration_sample* row)
    {
        const double spread = std::sqrt(rows_.spread(row));
        for (size_t c = 0; c < fits_.size(); ++c) {
            if (!detail::usable(row[c]) || is_special(format_, row[c].code)) continue;
            const channel_fit& fit = fits_[c];
            const double mean = double(row[c].mean) / double(scale_);
            add(&plain_[c * candidates_], row[c].code, mean, fit.plain_sigma);
            add(&affine_[c * candidates_], row[c].code, fit.a * mean + fit.b,
                fit.affine_sigma * spread);
        }
    }

    [[nodiscard]] status merge(const sigma_likelihood& other)
    {
        if (other.plain_.size() != plain_.size()) return status::bad_argument;
        for (size_t i = 0; i < plain_.size(); ++i) plain_[i] += other.plain_[i];
        for (size_t i = 0; i < affine_.size(); ++i) affine_[i] += other.affine_[i];
        return status::ok;
    }

    /// The fits with the likeliest sigmas, between grid points by a parabola.
    std::vector<channel_fit> fit() const
    {
        std::vector<channel_fit> fits = fits_;
        for (size_t c = 0; c < fits.size(); ++c) {
            fits[c].plain_sigma *= likeliest(&plain_[c * candidates_]);
            fits[c].affine_sigma *= likeliest(&affine_[c * candidates_]);
        }
        return fits;
    }

private:
    static constexpr int highest = 4;

    static double multiplier(double quarters) { return std::exp2(quarters / 4); }

    void add(double* sums, uint32_t code, double mean, double sigma) const
    {
        if (!(sigma > 0)) return;
        const detail::code_cell cell = detail::cell_of(format_, code);
        // No code costs more than an escape.
        const double least = std::ldexp(1.0, -10 - int(format_.code_bits));
        for (size_t i = 0; i < candidates_; ++i) {
            const double s = sigma * multiplier(lowest_ + int(i));
            const double share =
                detail::share_between(shape_, (cell.lower - mean) / s, (cell.upper - mean) / s);
            sums[i] += std::log2((std::max)(share, least));
        }
    }

    double likeliest(const double* sums) const
    {
        size_t best = size_t(-lowest_);
        for (size_t i = 0; i < candidates_; ++i)
            if (sums[i] > sums[best]) best = i;
        double peak = lowest_ + int(best);
        if (best > 0 && best + 1 < candidates_) {
            const double left = sums[best - 1], right = sums[best + 1];
            const double bend = 2 * sums[best] - left - right;
            if (bend > 0) peak += 0.5 * (right - left) / bend;
        }
        return multiplier(peak);
    }

    scalar_format format_;
    shape_id shape_;
    float scale_;
    const tensor_statistics& rows_;
    std::vector<channel_fit> fits_;
    // The deviation of rounded residuals can be far above the true one, never far below it.
    int lowest_;
    size_t candidates_;
    std::vector<double> plain_;
    std::vector<double> affine_;
};

/// The smallest and largest sigma of many fits, to choose an offset that suits them all.
struct sigma_range {
    double smallest = std::numeric_limits<double>::infinity();
    double largest = 0;

    void add(double sigma)
    {
        if (!(sigma > 0)) return;
        smallest = (std::min)(smallest, sigma);
        largest = (std::max)(largest, sigma);
    }

    void add(const std::vector<channel_fit>& fits)
    {
        for (const channel_fit& fit : fits) {
            add(fit.plain_sigma);
            add(fit.affine_sigma);
        }
    }
};

/// The grid's 31.75 octaves begin at 2^offset. fp8: at the type's smallest sigma that matters (an
/// encoder for e4m3 may then skip a clamp). 16 bits: so that the largest fits, then the smallest.
inline int choose_sigma_offset(scalar_type dtype, const sigma_range& range) noexcept
{
    if (code_bytes(dtype) == 1) return format_of(dtype).mantissa_bits == 3 ? -8 : -16;
    if (!(range.largest > 0)) return default_sigma_offset;
    const int low = int(std::floor(std::log2(range.smallest)));
    const int high = int(std::ceil(std::log2(range.largest) - 31.75));
    return (std::min)((std::max)({low, high, min_sigma_offset}), max_sigma_offset);
}

/// Sigma indices and folded maps of a tensor from its fits. The caller fills the rest, `scale` and
/// `sigma_offset` first. Shapes other than the Gaussian need fits by sigma_likelihood: an rms is no
/// sigma of theirs.
inline void set_channels(tensor_profile& tensor, const std::vector<channel_fit>& fits)
{
    const auto index = [&](double sigma, bool exact) {
        if (exact) return uint8_t(sigma_zero);
        if (!(sigma > 0)) return uint8_t(0);
        return sigma_index(deviation{float(sigma)}, tensor.sigma_offset);
    };
    tensor.plain_sigma.clear();
    tensor.affine_sigma.clear();
    tensor.affine_a.clear();
    tensor.affine_b.clear();
    for (const channel_fit& fit : fits) {
        const folded_map map = fold_scale(fit, tensor.scale);
        tensor.plain_sigma.push_back(index(fit.plain_sigma, fit.plain_exact));
        tensor.affine_sigma.push_back(index(fit.affine_sigma, fit.affine_exact));
        tensor.affine_a.push_back(map.a);
        tensor.affine_b.push_back(map.b);
    }
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
