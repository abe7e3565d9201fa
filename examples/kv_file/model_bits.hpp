#pragma once
// What a scalar should cost: -log2 of the probability that the profile's distribution, in real
// arithmetic, gives the cell of its code. Apart from the decoded parameters (mu', sigma index, row
// step) this shares nothing with the coder's integer model: its own values, edges and tails.

#include <cmath>
#include <limits>
#include <vector>

#include "cache.hpp"

namespace kv_file {

class model_cost {
public:
    /// `marginal`: the 256 frequencies of 2^15 of shape mixture_marginal, else empty.
    model_cost(scalar_type type, normans::shape_id shape, int sigma_offset,
               const std::vector<uint16_t>& marginal)
        : shape_(shape), sigma_offset_(sigma_offset), marginal_(marginal)
    {
        switch (type) {
        case scalar_type::e4m3fn: build(8, 3, 7, 0x7e); break;
        case scalar_type::e5m2: build(8, 2, 15, 0x7b); break;
        case scalar_type::e4m3fnuz: build(8, 3, 8, 0x7f); break;
        case scalar_type::e5m2fnuz: build(8, 2, 16, 0x7f); break;
        case scalar_type::fp16: build(16, 10, 15, 0x7bff); break;
        case scalar_type::int8: build_integers(8); break;
        case scalar_type::int4: build_integers(4); break;
        default: build(16, 7, 127, 0x7f7f); break;
        }
    }

    /// `mean`: a * mu + b in units of the codes. Sigma 0 costs nothing where the code is the one
    /// nearest to the mean; what has no cell or no chance costs an escape.
    double bits(uint32_t code, double mean, unsigned sigma_index, int row_step,
                double log_scale = 0) const
    {
        const double escape = 10 + code_bits_;
        if (sigma_index == 255 || !std::isfinite(mean)) return nearest(code, mean) ? 0 : escape;
        if (lower_[code] >= upper_[code]) return escape;
        const double sigma = std::exp2(sigma_offset_ + sigma_index / 8.0 + row_step / 4.0 -
                                       log_scale);
        const double lower = (lower_[code] - mean) / sigma, upper = (upper_[code] - mean) / sigma;
        double log_share = 0;
        switch (shape_) {
        case normans::shape_id::gaussian: log_share = log_between(lower, upper); break;
        case normans::shape_id::mixture:
            log_share = log_sum(std::log(0.95) + log_between(lower, upper),
                                std::log(0.05) + log_between(lower / 2, upper / 2));
            break;
        case normans::shape_id::mixture_marginal:
            log_share = log_sum(log_sum(std::log(0.95) + log_between(lower, upper),
                                        std::log(0.03) + log_between(lower / 3, upper / 3)),
                                std::log(0.02) + log_marginal(code));
            break;
        }
        return -log_share / std::log(2.0);
    }

    /// Of an integer with a scale; `mean` in units of values. A scale outside [2^-24, 2^24) leaves
    /// mean 0 and sigma 0.
    double scaled_bits(uint32_t code, double mean, double scale, unsigned sigma_index,
                       int row_step) const
    {
        if (!(scale >= 0x1p-24 && scale < 0x1p24)) return bits(code, 0, 255, 0);
        return bits(code, std::isnan(mean) ? 0 : mean / scale, sigma_index, row_step,
                    std::log2(scale));
    }

private:
    void build(unsigned code_bits, int mantissa_bits, int bias, uint32_t largest)
    {
        code_bits_ = code_bits;
        const uint32_t sign = 1u << (code_bits - 1);
        const auto value = [&](uint32_t magnitude) {
            const int field = int(magnitude >> mantissa_bits);
            const uint32_t fraction = magnitude & ((1u << mantissa_bits) - 1);
            const uint32_t hidden = field == 0 ? 0 : 1u << mantissa_bits;
            const int exponent = (field == 0 ? 1 : field) - bias - mantissa_bits;
            return std::ldexp(double(hidden | fraction), exponent);
        };
        lower_.assign(2 * sign, 0);  // codes without a cell keep an empty one
        upper_.assign(2 * sign, 0);
        for (uint32_t m = 0; m <= largest; ++m) {
            const double below = m == 0 ? 0 : (value(m - 1) + value(m)) / 2;
            const double above = m == largest ? std::numeric_limits<double>::infinity()
                                              : (value(m) + value(m + 1)) / 2;
            lower_[m] = below;
            upper_[m] = above;
            lower_[m | sign] = -above;
            upper_[m | sign] = -below;
        }
    }

    // Two's complement; the outermost codes take all beyond them.
    void build_integers(unsigned code_bits)
    {
        is_integer_ = true;
        code_bits_ = code_bits;
        const int end = 1 << (code_bits - 1);
        lower_.assign(size_t(2 * end), 0);
        upper_.assign(size_t(2 * end), 0);
        for (int i = -end; i < end; ++i) {
            const size_t code = size_t(i & (2 * end - 1));
            lower_[code] = i == -end ? -std::numeric_limits<double>::infinity() : i - 0.5;
            upper_[code] = i == end - 1 ? std::numeric_limits<double>::infinity() : i + 0.5;
        }
    }

    bool nearest(uint32_t code, double mean) const
    {
        if (is_integer_) return lower_[code] <= mean && mean <= upper_[code];
        if (std::isnan(mean) || lower_[code] >= upper_[code]) return false;
        const bool negative = std::signbit(mean);
        return negative == (code >> (code_bits_ - 1) != 0) && lower_[code] <= mean &&
               mean <= upper_[code];
    }

    // log P(Z > z).
    static double log_tail(double z)
    {
        if (z < 25) return std::log(0.5 * std::erfc(z * 0.70710678118654752));
        if (std::isinf(z)) return -z;
        const double w = 1 / (z * z);
        return -0.5 * z * z - std::log(z * 2.5066282746310002) + std::log1p(-w + 3 * w * w);
    }

    // log P(lower < Z < upper), lower < upper.
    static double log_between(double lower, double upper)
    {
        if (upper - lower < 1e-5) {  // a difference of tails would cancel
            const double middle = 0.5 * (lower + upper);
            return -0.5 * middle * middle + std::log((upper - lower) * 0.39894228040143268);
        }
        if (upper <= 0) return log_between(-upper, -lower);
        if (lower < 0) return std::log1p(-std::exp(log_tail(-lower)) - std::exp(log_tail(upper)));
        const double near = log_tail(lower);
        if (std::isinf(upper)) return near;
        return near + std::log(-std::expm1(log_tail(upper) - near));
    }

    static double log_sum(double a, double b)
    {
        const double high = a > b ? a : b, low = a > b ? b : a;
        return std::isinf(high) ? high : high + std::log1p(std::exp(low - high));
    }

    double log_marginal(uint32_t code) const
    {
        const uint32_t byte = code >> (code_bits_ - 8);
        return std::log(marginal_[byte] / 32768.0) - (code_bits_ == 16 ? std::log(256.0) : 0);
    }

    unsigned code_bits_ = 8;
    bool is_integer_ = false;
    normans::shape_id shape_;
    int sigma_offset_;
    const std::vector<uint16_t>& marginal_;
    std::vector<double> lower_;
    std::vector<double> upper_;
};

}  // namespace kv_file
