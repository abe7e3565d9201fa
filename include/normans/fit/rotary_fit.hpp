#pragma once
// The tables of lowrank/rotary_means.hpp: steps from theta, and means of K before its rotation,
// by turning every row back. Doubles and libm are fine here: a profile is data.

#include <cmath>
#include <vector>

#include "../lowrank/rotary_means.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Steps of the pairs i: theta^(-2 i / rotary_dim) radians a token, in 2^-64 turns. Theta > 1.
inline std::vector<uint64_t> rotary_steps(double theta, uint32_t rotary_dim)
{
    std::vector<uint64_t> steps(rotary_dim / 2);
    for (size_t i = 0; i < steps.size(); ++i) {
        const double radians = std::pow(theta, -2.0 * double(i) / double(rotary_dim));
        steps[i] = uint64_t(std::ldexp(radians / 6.283185307179586477, 64));
    }
    return steps;
}

/// Sums of rows that were turned back.
class rotary_statistics {
public:
    /// Means of `layout` are not read. It must have passed check_rotary but for them.
    rotary_statistics(const rotary_means& layout, uint32_t heads)
        : layout_(layout), sums_(size_t(heads) * layout.dim), counts_(sums_.size())
    {
    }

    /// A row [head * dim + channel] of the token at first_position + `token`. Pairs of which a
    /// value is not finite are left out.
    void add_token(uint32_t token, const float* row, double weight = 1)
    {
        const uint32_t dim = layout_.dim;
        for (size_t head = 0; head < sums_.size(); head += dim) {
            const bool half = layout_.pairing == rotary_pairing::half_split;
            for (uint32_t i = 0; i < layout_.rotary_dim / 2; ++i) {
                const rotary_means::pair p = layout_.pair_of(half ? i : 2 * i);
                const rotation by = rotation_at(layout_.step[i], layout_.first_position + token);
                const double x = double(row[head + p.first]), y = double(row[head + p.second]);
                if (!std::isfinite(x) || !std::isfinite(y)) continue;
                const double c = std::ldexp(double(by.cosine), -30);
                const double s = std::ldexp(double(by.sine), -30);
                add(head + p.first, c * x + s * y, weight);
                add(head + p.second, c * y - s * x, weight);
            }
            for (uint32_t c = layout_.rotary_dim; c < dim; ++c)
                if (std::isfinite(row[head + c])) add(head + c, double(row[head + c]), weight);
        }
    }

    /// Fills `mean` and the exponent of its units.
    void fit(std::vector<int32_t>& mean, int& exponent) const
    {
        double largest = 0;
        std::vector<double> means(sums_.size());
        for (size_t c = 0; c < means.size(); ++c) {
            means[c] = counts_[c] > 0 ? sums_[c] / counts_[c] : 0;
            largest = std::fmax(largest, std::fabs(means[c]));
        }
        exponent = min_rotary_exponent;
        if (largest > 0) exponent = std::ilogb(largest) - 21;  // largest < 2^22 units
        exponent = exponent < min_rotary_exponent ? min_rotary_exponent
                                                  : exponent > max_rotary_exponent
                                                        ? max_rotary_exponent
                                                        : exponent;
        mean.clear();
        for (const double m : means) {
            const double units = std::nearbyint(std::ldexp(m, -exponent));
            const double limit = largest_rotary_mean;
            mean.push_back(int32_t(std::fmin(std::fmax(units, -limit), limit)));
        }
    }

private:
    void add(size_t channel, double value, double weight)
    {
        sums_[channel] += weight * value;
        counts_[channel] += weight;
    }

    rotary_means layout_;
    std::vector<double> sums_;
    std::vector<double> counts_;
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
