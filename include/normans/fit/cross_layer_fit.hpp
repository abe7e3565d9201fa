#pragma once
// The int8 matrix of lowrank/cross_layer.hpp, by ridge regression of residuals on features. What is
// kept of the samples is small (a byte a feature, a float a residual), so they stay. How strong the
// ridge is, which groups of features pay and for which channels is read off tokens that were held
// out: with as many features as tokens the fit's own residuals say nothing.
// Doubles and libm are fine here: a profile is data.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "../lowrank/cross_layer.hpp"

#if NORMANS_SSE2
#include <emmintrin.h>
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {

namespace detail {

// Dot products of x with `Rows` rows y, y + stride, ... Two sums a row, for even and odd terms, on
// every machine.
template <size_t Rows>
inline void dot_rows(const double* x, const double* y, size_t stride, size_t n, double* sums)
{
    size_t i = 0;
#if NORMANS_SSE2
    __m128d pairs[Rows];
    for (size_t r = 0; r < Rows; ++r) pairs[r] = _mm_setzero_pd();
    for (; i + 2 <= n; i += 2) {
        const __m128d left = _mm_loadu_pd(x + i);
        NORMANS_UNROLL
        for (size_t r = 0; r < Rows; ++r)
            pairs[r] = _mm_add_pd(pairs[r], _mm_mul_pd(left, _mm_loadu_pd(y + r * stride + i)));
    }
    double even[Rows], odd[Rows];
    for (size_t r = 0; r < Rows; ++r) {
        even[r] = _mm_cvtsd_f64(pairs[r]);
        odd[r] = _mm_cvtsd_f64(_mm_unpackhi_pd(pairs[r], pairs[r]));
    }
#else
    double even[Rows] = {}, odd[Rows] = {};
    for (; i + 2 <= n; i += 2) {
        for (size_t r = 0; r < Rows; ++r) {
            even[r] += x[i] * y[r * stride + i];
            odd[r] += x[i + 1] * y[r * stride + i + 1];
        }
    }
#endif
    for (size_t r = 0; r < Rows; ++r) {
        sums[r] = even[r] + odd[r];
        if (i < n) sums[r] += x[i] * y[r * stride + i];
    }
}

inline double dot_one(const double* x, const double* y, size_t n)
{
    double sum;
    dot_rows<1>(x, y, 0, n, &sum);
    return sum;
}

}  // namespace detail

/// A symmetric positive definite system, solved for many right sides by Cholesky's factors.
class spd_solver {
public:
    /// `matrix`: n x n, of which the lower triangle is read; `ridge` is added to the diagonal.
    spd_solver(std::vector<double> matrix, size_t n, double ridge)
        : n_(n), lower_(std::move(matrix)), upper_(n * n)
    {
        for (size_t i = 0; i < n && solvable_; ++i) {
            double* row = &lower_[i * n];
            row[i] += ridge;
            size_t j = 0;
            for (; j + 4 <= i; j += 4) {
                double sums[4];
                detail::dot_rows<4>(row, &lower_[j * n], n, j, sums);
                for (size_t k = 0; k < 4; ++k) {
                    const double* other = &lower_[(j + k) * n];
                    const double rest = sums[k] + detail::dot_one(row + j, other + j, k);
                    row[j + k] = (row[j + k] - rest) / other[j + k];
                }
            }
            for (; j < i; ++j)
                row[j] = (row[j] - detail::dot_one(row, &lower_[j * n], j)) / lower_[j * n + j];
            const double square = row[i] - detail::dot_one(row, row, i);
            solvable_ = square > 0;
            row[i] = std::sqrt(solvable_ ? square : 1);
        }
        for (size_t i = 0; i < n; ++i)
            for (size_t j = 0; j <= i; ++j) upper_[j * n + i] = lower_[i * n + j];
    }

    /// Whether the matrix was positive definite.
    bool solvable() const noexcept { return solvable_; }

    /// sides[side * n ...]: right sides in, solutions out. A multiple of 4 is fastest.
    void solve(double* sides, size_t count) const
    {
        for (; count >= 4; count -= 4, sides += 4 * n_) solve_some<4>(sides);
        for (; count > 0; --count, sides += n_) solve_some<1>(sides);
    }

private:
    template <size_t Count>
    void solve_some(double* sides) const
    {
        double sums[4];
        const auto dots = [&](const double* row, size_t from, size_t n) {
            detail::dot_rows<Count>(row, sides + from, n_, n, sums);
        };
        for (size_t i = 0; i < n_; ++i) {
            dots(lower_.data() + i * n_, 0, i);
            for (size_t s = 0; s < Count; ++s)
                sides[s * n_ + i] = (sides[s * n_ + i] - sums[s]) / lower_[i * n_ + i];
        }
        for (size_t i = n_; i-- > 0;) {
            dots(upper_.data() + i * n_ + i + 1, i + 1, n_ - i - 1);
            for (size_t s = 0; s < Count; ++s)
                sides[s * n_ + i] = (sides[s * n_ + i] - sums[s]) / upper_[i * n_ + i];
        }
    }

    size_t n_;
    std::vector<double> lower_;
    std::vector<double> upper_;
    bool solvable_ = true;
};

/// A matrix in the layout of cross_layer_map.
struct cross_layer_matrix {
    std::vector<int8_t> weights;
    std::vector<float> scale;
    uint32_t features = 0;

    cross_layer_matrix() = default;
    cross_layer_matrix(uint32_t features_each, uint32_t channels)
        : weights(size_t(features_each) * channels), scale(channels), features(features_each)
    {
    }

    /// Rounds the weights of a channel to its largest / 127, or coarser where the bound of
    /// check_cross_layer asks for it.
    void set_channel(uint32_t channel, const double* solution)
    {
        double largest = 0, sum = 0;
        for (size_t k = 0; k < features; ++k) {
            largest = (std::max)(largest, std::fabs(solution[k]));
            sum += std::fabs(solution[k]);
        }
        // All magnitudes may be rounded up by half a step.
        const double bound = double(1 << 24) / largest_feature - double(features);
        const auto step = float((std::max)(largest / largest_weight, sum / bound));
        const uint32_t field = exponent_field(float_to_bits(step));
        if (field == 0 || field == 255) return;
        scale[channel] = step;
        for (size_t k = 0; k < features; ++k) {
            const double weight = std::nearbyint(solution[k] / double(step));
            const double limit = largest_weight;
            weights[(k / 4 * scale.size() + channel) * 4 + k % 4] =
                int8_t((std::min)((std::max)(weight, -limit), limit));
        }
    }
};

/// What a choice of features promises.
struct cross_layer_gain {
    double ridge = 0;             // in units of the mean square of a feature
    double bits = 0;              // saved a scalar on tokens held out, a Gaussian's
    std::vector<double> squares;  // of the residual held out, after / before, by channel; <= 1:
                                  // channels that gain nothing are left alone
};

/// Tokens of one tensor: all features it could be corrected by, and its residuals. Features come in
/// groups (a source each); a choice is a mask of groups, bit g of group g.
class cross_layer_samples {
public:
    /// Sizes of the groups, each a multiple of 4.
    cross_layer_samples(std::vector<uint32_t> groups, uint32_t channels)
        : groups_(std::move(groups)), channels_(channels)
    {
        for (const uint32_t size : groups_) features_ += size;
    }

    /// A row of all groups' features, residuals by channel, and what the token weighs: the inverse
    /// of its squared row scale. Residuals that are not finite count as 0.
    void add_token(const int8_t* features, const float* residuals, double weight)
    {
        rows_.insert(rows_.end(), features, features + features_);
        for (uint32_t c = 0; c < channels_; ++c)
            residuals_.push_back(std::isfinite(residuals[c]) ? residuals[c] : 0.0f);
        weights_.push_back(weight);
        parts_.clear();
    }

    uint32_t tokens() const noexcept { return uint32_t(weights_.size()); }

    /// Features of a choice.
    uint32_t features_of(uint32_t choice) const
    {
        uint32_t sum = 0;
        for (size_t g = 0; g < groups_.size(); ++g)
            if (choice >> g & 1) sum += groups_[g];
        return sum;
    }

    /// Fits on three quarters of the tokens, tries on the fourth: the first quarter and the last.
    /// The search for the best ridge starts at `ridge`.
    cross_layer_gain try_choice(uint32_t choice, double ridge = 1)
    {
        cross_layer_gain best = try_ridge(choice, ridge);
        for (const double factor : {3.0, 1 / 3.0}) {
            if (best.ridge != ridge) break;  // it was better that way
            cross_layer_gain next = try_ridge(choice, best.ridge * factor);
            while (next.bits > best.bits && next.ridge > 0.005 && next.ridge < 500) {
                best = std::move(next);
                next = try_ridge(choice, best.ridge * factor);
            }
        }
        return best;
    }

    /// The matrix from all tokens, for the channels that gain.
    cross_layer_matrix fit(uint32_t choice, const cross_layer_gain& gain)
    {
        const std::vector<uint32_t> index = columns(choice);
        const size_t n = index.size();
        const std::vector<double> solution = solve(index, parts, gain.ridge);
        cross_layer_matrix matrix(uint32_t(n), channels_);
        for (uint32_t c = 0; c < channels_ && !solution.empty(); ++c)
            if (gain.squares[c] < 1) matrix.set_channel(c, solution.data() + c * n);
        return matrix;
    }

private:
    static constexpr uint32_t parts = 4;  // also: none is held out

    // X^T W X (lower triangle) and X^T W Y (a row per channel) of a quarter of the tokens.
    struct part_sums {
        std::vector<double> square;
        std::vector<double> mixed;
    };

    uint32_t begin_of(uint32_t part) const { return uint32_t(uint64_t(tokens()) * part / parts); }

    std::vector<uint32_t> columns(uint32_t choice) const
    {
        std::vector<uint32_t> index;
        uint32_t first = 0;
        for (size_t g = 0; g < groups_.size(); first += groups_[g], ++g)
            for (uint32_t k = 0; k < groups_[g] && (choice >> g & 1); ++k)
                index.push_back(first + k);
        return index;
    }

    void sum_up()
    {
        parts_.assign(parts, {});
        for (uint32_t p = 0; p < parts; ++p) {
            const size_t first = begin_of(p), count = begin_of(p + 1) - first;
            // Columns as rows: products of tokens are then dot products.
            std::vector<double> left(features_ * count), right((features_ + channels_) * count);
            for (size_t t = 0; t < count; ++t) {
                const double weight = weights_[first + t];
                for (size_t k = 0; k < features_; ++k) {
                    right[k * count + t] = double(rows_[(first + t) * features_ + k]);
                    left[k * count + t] = weight * right[k * count + t];
                }
                for (size_t c = 0; c < channels_; ++c)
                    right[(features_ + c) * count + t] =
                        double(residuals_[(first + t) * channels_ + c]);
            }
            part_sums& sums = parts_[p];
            sums.square.resize(size_t(features_) * features_);
            sums.mixed.resize(size_t(features_) * channels_);
            if (count == 0) continue;
            for (size_t k = 0; k < features_; ++k) {
                const double* row = &left[k * count];
                for (size_t j = 0; j <= k; j += 4)  // a multiple of 4 features: rows are there
                    detail::dot_rows<4>(row, &right[j * count], count, count,
                                        &sums.square[k * features_ + j]);
                for (size_t c = 0; c < channels_; ++c)
                    sums.mixed[c * features_ + k] =
                        detail::dot_one(row, &right[(features_ + c) * count], count);
            }
        }
    }

    // Solutions by channel from all quarters but one; empty where there is none.
    std::vector<double> solve(const std::vector<uint32_t>& index, uint32_t held_out, double ridge)
    {
        if (parts_.empty()) sum_up();
        const size_t n = index.size();
        if (n == 0) return {};
        std::vector<double> square(n * n), sides(n * channels_);
        double trace = 0;
        for (uint32_t p = 0; p < parts; ++p) {
            if (p == held_out) continue;
            for (size_t i = 0; i < n; ++i) {
                const double* from = &parts_[p].square[size_t(index[i]) * features_];
                for (size_t j = 0; j <= i; ++j) square[i * n + j] += from[index[j]];
                trace += from[index[i]];
            }
            for (size_t c = 0; c < channels_; ++c)
                for (size_t i = 0; i < n; ++i)
                    sides[c * n + i] += parts_[p].mixed[c * features_ + index[i]];
        }
        if (!(trace > 0)) return {};
        const spd_solver solver(std::move(square), n, ridge * trace / double(n));
        if (!solver.solvable()) return {};
        solver.solve(sides.data(), channels_);
        return sides;
    }

    cross_layer_gain try_ridge(uint32_t choice, double ridge)
    {
        const std::vector<uint32_t> index = columns(choice);
        const size_t n = index.size();
        cross_layer_gain gain;
        gain.ridge = ridge;
        gain.squares.assign(channels_, 1);
        if (n == 0) return gain;
        std::vector<double> before(channels_), after(channels_), row(n);
        for (const uint32_t held_out : {0u, parts - 1}) {
            const std::vector<double> solution = solve(index, held_out, ridge);
            if (solution.empty()) continue;
            for (uint32_t t = begin_of(held_out); t < begin_of(held_out + 1); ++t) {
                const int8_t* features = &rows_[size_t(t) * features_];
                for (size_t i = 0; i < n; ++i) row[i] = double(features[index[i]]);
                for (size_t c = 0; c < channels_; ++c) {
                    const double residual = double(residuals_[size_t(t) * channels_ + c]);
                    const double rest = residual - detail::dot_one(row.data(), &solution[c * n], n);
                    before[c] += weights_[t] * residual * residual;
                    after[c] += weights_[t] * rest * rest;
                }
            }
        }
        for (size_t c = 0; c < channels_; ++c) {
            if (!(after[c] < before[c])) continue;
            gain.squares[c] = (std::max)(after[c] / before[c], 1e-6);
            gain.bits -= 0.5 * std::log2(gain.squares[c]) / double(channels_);
        }
        return gain;
    }

    std::vector<uint32_t> groups_;
    uint32_t channels_;
    uint32_t features_ = 0;
    std::vector<int8_t> rows_;
    std::vector<float> residuals_;
    std::vector<double> weights_;
    std::vector<part_sums> parts_;
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
