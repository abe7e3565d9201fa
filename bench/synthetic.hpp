#pragma once
// Pages that are drawn: a mean for every scalar, sigmas, and codes drawn from the Gaussian that
// these say. The same numbers in every run. Sigmas are scaled until the codes' ideal length under
// their own Gaussians is the bits asked for.

#include <cmath>

#include "workload.hpp"

namespace bench {

enum class sigma_kind { channel, scalar, one };

struct synthetic {
    std::string name;
    normans::scalar_type type = normans::scalar_type::e4m3fn;
    double bits = 2.5;       // ideal, per scalar
    double sigma_cells = 0;  // instead of bits: sigma in cells, all means in one binade
    uint32_t heads = 1;
    uint32_t tokens = 512;
    uint32_t dim = 64;
    uint32_t lanes = 0;
    size_t pages = 8;
    size_t pages_per_call = 8;
    normans::scalar_type means = normans::scalar_type::bf16;  // or any_means::fp32, or fp8
    sigma_kind sigmas = sigma_kind::channel;
    normans::any_sigmas::kind sigma_type = normans::any_sigmas::kind::index;  // else per scalar
    bool affine = true;
    bool row_scale = true;    // the encoder may store row steps
    bool row_factors = true;  // tokens differ in scale, so that steps pay

    uint32_t channels() const { return heads * dim; }
    size_t page_scalars() const { return size_t(channels()) * tokens; }
};

/// splitmix64, and Gaussians of it.
class random_numbers {
public:
    explicit random_numbers(uint64_t seed) : state_(seed) {}

    /// In (0, 1).
    double uniform()
    {
        uint64_t x = state_ += 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        return (double((x ^ x >> 31) >> 12) + 0.5) * 0x1p-52;
    }
    double between(double low, double high) { return low + (high - low) * uniform(); }
    double gaussian()
    {
        const double radius = std::sqrt(-2 * std::log(uniform()));
        return radius * std::cos(6.283185307179586 * uniform());
    }

private:
    uint64_t state_;
};

/// Bits of a code under a Gaussian that is integrated over the code's cell.
inline double ideal_bits(normans::scalar_format format, uint32_t code, double mean, double sigma)
{
    const uint32_t magnitude = code & (format.code_sign() - 1);
    const double sign = code & format.code_sign() ? -1 : 1;
    const auto scaled_edge = [&](uint32_t m) {
        const double edge = double(normans::bits_to_float(normans::edge_bits(format, m)));
        return (edge - sign * mean) / (sigma * std::sqrt(2.0));
    };
    const double low = scaled_edge(magnitude);
    const double high = magnitude >= format.largest_finite ? 1e9 : scaled_edge(magnitude + 1);
    // Differences of the small tail, on whichever side the cell lies.
    const double mass = low > 0 ? std::erfc(low) - std::erfc(high)
                                : std::erfc(-high) - std::erfc(-low);
    return -std::log2(std::fmax(mass / 2, 1e-5));
}

template <class Code>
class synthetic_pages {
public:
    synthetic_pages(const synthetic& wanted, size_t pages, double factor)
        : wanted_(wanted), pages_(pages), random_(1)
    {
        draw_channels(factor);
        for (size_t p = 0; p < pages; ++p) draw_page(p, factor);
    }

    double bits() const { return bits_ / double(codes_.size()); }

    page<Code> operator[](size_t p) const
    {
        const size_t first = p * wanted_.page_scalars();
        const ptrdiff_t head = ptrdiff_t(wanted_.dim), token = ptrdiff_t(wanted_.channels());
        const void* means = fp8_.data() + first;
        if (wanted_.means == normans::scalar_type::bf16) means = bf16_.data() + first;
        if (wanted_.means == normans::any_means::fp32) means = fp32_.data() + first;
        const bool each = wanted_.sigmas == sigma_kind::scalar;
        page<Code> one{};
        one.spec.dtype = wanted_.type;
        one.spec.heads = wanted_.heads;
        one.spec.tokens = wanted_.tokens;
        one.spec.dim = wanted_.dim;
        one.spec.lanes = wanted_.lanes;
        one.spec.row_scale = wanted_.row_scale;
        one.box = {codes_.data() + first, head, token};
        one.predictor.means = {means, head, token, wanted_.means};
        const bool floats = wanted_.sigma_type != normans::any_sigmas::kind::index;
        const void* sigmas = sigma_.data() + (each ? first : 0);
        if (floats) sigmas = real_sigma_.data() + first;
        one.predictor.sigmas = {sigmas, wanted_.dim, each ? 1u : 0u,
                                wanted_.sigmas == sigma_kind::channel ? 1u : 0u,
                                wanted_.sigma_type, offset};
        if (wanted_.affine) one.predictor.affine = {a_.data(), b_.data(), wanted_.dim};
        one.count = wanted_.page_scalars();
        return one;
    }

private:
    static constexpr int offset = normans::default_sigma_offset;

    static uint8_t index_of(double sigma)
    {
        return normans::sigma_index(normans::deviation{float(sigma)}, offset);
    }

    void draw_channels(double factor)
    {
        const bool each = wanted_.sigmas == sigma_kind::scalar;
        sigma_.resize(each ? pages_ * wanted_.page_scalars() : wanted_.channels());
        real_sigma_.resize(each ? sigma_.size() : 0);
        for (uint32_t c = 0; c < wanted_.channels(); ++c) {
            const bool binade = wanted_.sigma_cells > 0;
            scale_.push_back(binade ? 8 : std::exp2(random_.between(0, 3)));
            a_.push_back(float(binade ? 1 : random_.between(0.9, 1.1)));
            b_.push_back(float(binade ? 0x1p-20 : 0.05 * scale_[c] * random_.gaussian()));
            const double spread = binade ? 1 : scale_[c] * std::exp2(random_.between(-0.5, 0.5));
            spread_.push_back(wanted_.sigmas == sigma_kind::one ? 2.8 : spread);
            if (!each) sigma_[c] = index_of(factor * spread_[c]);
        }
    }

    float store_mean(double mean)
    {
        const normans::scalar_format format = normans::format_of(wanted_.means);
        const uint32_t bits = normans::float_to_bits(float(mean));
        if (wanted_.means == normans::any_means::fp32) {
            fp32_.push_back(float(mean));
            return fp32_.back();
        }
        const uint32_t code = normans::nearest_code(format, bits);
        if (format.code_bits == 16) bf16_.push_back(uint16_t(code));
        else fp8_.push_back(uint8_t(code));
        return normans::bits_to_float(normans::value_bits(format, code));
    }

    void draw_page(size_t p, double factor)
    {
        const normans::scalar_format format = normans::format_of(wanted_.type);
        for (uint32_t token = 0; token < wanted_.tokens; ++token) {
            const double step = std::round(1.5 * random_.gaussian());
            const double row = wanted_.row_factors
                                   ? std::exp2(std::fmin(std::fmax(step, -6), 9) / 4) : 1;
            for (uint32_t c = 0; c < wanted_.channels(); ++c) {
                const double drawn = wanted_.sigma_cells > 0
                                         ? std::copysign(1 + random_.uniform(), random_.gaussian())
                                         : random_.gaussian();
                double mean = double(store_mean(scale_[c] * drawn));
                if (wanted_.affine) mean = mean * double(a_[c]) + double(b_[c]);
                double sigma = factor * spread_[c];
                if (wanted_.sigmas == sigma_kind::scalar) {
                    sigma *= std::exp2(random_.between(-0.5, 0.5));
                    const size_t in_page = size_t(c / wanted_.dim * wanted_.tokens + token) *
                                               wanted_.dim + c % wanted_.dim;
                    const size_t at = p * wanted_.page_scalars() + in_page;
                    const bool squared = wanted_.sigma_type == normans::any_sigmas::kind::variance;
                    sigma_[at] = index_of(sigma);
                    real_sigma_[at] = float(squared ? sigma * sigma : sigma);
                }
                sigma = row * std::exp2(offset + index_of(sigma) / 8.0);
                const float value = float(mean + sigma * random_.gaussian());
                const uint32_t code = normans::nearest_code(format, normans::float_to_bits(value));
                codes_.push_back(Code(code));
                bits_ += ideal_bits(format, code, mean, sigma);
            }
        }
    }

    synthetic wanted_;
    size_t pages_;
    random_numbers random_;
    std::vector<double> scale_, spread_;
    std::vector<float> a_, b_, fp32_, real_sigma_;
    std::vector<uint16_t> bf16_;
    std::vector<uint8_t> fp8_, sigma_;
    std::vector<Code> codes_;
    double bits_ = 0;
};

/// The factor of all sigmas that gives the bits asked for, on a page of a few thousand scalars.
template <class Code>
double sigma_factor(synthetic wanted)
{
    if (wanted.sigma_cells > 0) return wanted.sigma_cells;
    wanted.tokens = (8192 + wanted.channels() - 1) / wanted.channels();
    double low = -16, high = 4;  // log2
    for (int i = 0; i < 12; ++i) {
        const double middle = (low + high) / 2;
        const bool less = synthetic_pages<Code>(wanted, 1, std::exp2(middle)).bits() < wanted.bits;
        (less ? low : high) = middle;
    }
    return std::exp2(low);
}

template <class Code>
workload<Code> make_synthetic(const synthetic& wanted)
{
    const double factor = sigma_factor<Code>(wanted);
    const auto drawn = std::make_shared<const synthetic_pages<Code>>(wanted, wanted.pages, factor);
    workload<Code> work{normans::scalar_name(wanted.type), wanted.name, {}, wanted.pages_per_call,
                        true, {drawn}};
    for (size_t p = 0; p < wanted.pages; ++p) work.pages.push_back((*drawn)[p]);
    return work;
}

}  // namespace bench
