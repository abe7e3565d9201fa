#pragma once
// Pages of int8, int4 and e2m1 codes as quantised caches have them: every row of 32 channels is
// divided by a scale of its own, its largest magnitude over the largest code, rounded to fp16.
// Means in bf16, sigmas per channel, an affine map, no row factors; the same numbers in every run.
// Sigmas are scaled until the codes' ideal length under their own Gaussians is the bits asked for.

#include "synthetic.hpp"

namespace bench {

struct quantised {
    std::string name;
    normans::scalar_type type = normans::scalar_type::int8;  // or int4, e2m1
    double bits = 3;  // ideal, per scalar; of 4-bit codes at most 3.5
    uint32_t heads = 3;
    uint32_t tokens = 256;
    uint32_t dim = 64;
    uint32_t lanes = 32;
    uint32_t group = 32;  // channels of one scale; divides dim
    bool plain = false;   // means in fp32, no affine map
    size_t pages = 4;
    size_t pages_per_call = 4;

    uint32_t channels() const { return heads * dim; }
    size_t page_scalars() const { return size_t(channels()) * tokens; }
    size_t page_bytes() const { return size_t(normans::raw_bytes(type, page_scalars())); }
    size_t page_scales() const { return page_scalars() / group; }
};

class quantised_pages {
public:
    quantised_pages(const quantised& wanted, size_t pages, double factor)
        : wanted_(wanted), random_(1)
    {
        for (uint32_t c = 0; c < wanted.channels(); ++c) {
            size_.push_back(std::exp2(random_.between(0, 3)));
            a_.push_back(wanted.plain ? 1.0f : float(random_.between(0.9, 1.1)));
            b_.push_back(wanted.plain ? -0.0f : float(0.05 * size_[c] * random_.gaussian()));
            const double sigma = factor * size_[c] * std::exp2(random_.between(-0.5, 0.5));
            sigma_.push_back(normans::sigma_index(normans::deviation{float(sigma)}, offset));
        }
        for (size_t p = 0; p < pages; ++p) {
            draw_page();
            codes_.resize((p + 1) * wanted.page_bytes());
            pack(codes_.data() + p * wanted.page_bytes());
        }
        bits_ /= double(pages * wanted.page_scalars());
    }

    double bits() const { return bits_; }

    /// By rANS; a row of another coder sets the spec's coder and bank.
    page<uint8_t> operator[](size_t p) const
    {
        const ptrdiff_t head = ptrdiff_t(wanted_.dim), token = ptrdiff_t(wanted_.channels());
        const ptrdiff_t each = ptrdiff_t(wanted_.group);
        page<uint8_t> one{};
        one.spec.dtype = wanted_.type;
        one.spec.heads = wanted_.heads;
        one.spec.tokens = wanted_.tokens;
        one.spec.dim = wanted_.dim;
        one.spec.lanes = wanted_.lanes;
        one.spec.row_scale = true;
        one.spec.scales = {scales_.data() + p * wanted_.page_scales(), head / each, token / each, 1,
                           wanted_.group};
        one.box = {codes_.data() + p * wanted_.page_bytes(), head, token};
        const size_t first = p * wanted_.page_scalars();
        if (wanted_.plain)
            one.predictor.means = {wide_.data() + first, head, token, normans::any_means::fp32};
        else
            one.predictor.means = {means_.data() + first, head, token, normans::scalar_type::bf16};
        one.predictor.sigmas = {sigma_.data(), wanted_.dim, 0, 1};
        if (wanted_.plain) one.predictor.affine = {nullptr, nullptr, wanted_.dim};
        else one.predictor.affine = {a_.data(), b_.data(), wanted_.dim};
        one.count = wanted_.page_scalars();
        return one;
    }

private:
    static constexpr int offset = normans::default_sigma_offset;

    static float rounded(normans::scalar_type type, double value, uint32_t& code)
    {
        const normans::scalar_format format = normans::format_of(type);
        code = normans::nearest_code(format, normans::float_to_bits(float(value)));
        return normans::bits_to_float(normans::value_bits(format, code));
    }

    // The lower edge of a code's cell, in units of codes; `index` counts codes upward from 0, and
    // beyond the last there is one more edge.
    double edge_below(uint32_t index) const
    {
        const normans::scalar_format format = normans::format_of(wanted_.type);
        const int from_zero = int(index) - int(format.code_sign());
        if (format.is_integer) return from_zero - 0.5;
        const uint32_t magnitude = uint32_t(std::abs(from_zero));
        const double edge = double(normans::bits_to_float(normans::edge_bits(format, magnitude)));
        return from_zero < 0 ? -edge : edge;
    }

    // Bits of a code under a Gaussian, in units of codes, that is integrated over the code's cell.
    double ideal_bits(uint32_t code, double mean, double sigma) const
    {
        const normans::scalar_format format = normans::format_of(wanted_.type);
        const uint32_t index = normans::ordered_index(format, code);
        const auto at = [&](double edge) { return (edge - mean) / (sigma * std::sqrt(2.0)); };
        const bool first = index == 0, last = index == 2 * format.code_sign() - 1;
        const double below = first ? -1e9 : at(edge_below(index));
        const double above = last ? 1e9 : at(edge_below(index + 1));
        const double mass = below > 0 ? std::erfc(below) - std::erfc(above)
                                      : std::erfc(-above) - std::erfc(-below);
        return -std::log2(std::fmax(mass / 2, 1e-5));
    }

    void draw_page()
    {
        page_.clear();
        std::vector<double> mean(wanted_.group), value(wanted_.group);
        for (uint32_t row = 0; row < wanted_.tokens * wanted_.channels() / wanted_.group; ++row) {
            const uint32_t first = row * wanted_.group % wanted_.channels();
            double largest = 0;
            for (uint32_t i = 0; i < wanted_.group; ++i) {
                const uint32_t c = first + i;
                uint32_t code = 0;
                mean[i] = double(rounded(normans::scalar_type::bf16,
                                         size_[c] * random_.gaussian(), code)) * double(a_[c]) +
                          double(b_[c]);
                means_.push_back(uint16_t(code));
                wide_.push_back(normans::bits_to_float(code << 16));
                value[i] = mean[i] + sigma_of(c) * random_.gaussian();
                largest = std::fmax(largest, std::fabs(value[i]));
            }
            quantise(first, largest, mean, value);
        }
    }

    double sigma_of(uint32_t channel) const { return std::exp2(offset + sigma_[channel] / 8.0); }

    void quantise(uint32_t first, double largest, const std::vector<double>& mean,
                  const std::vector<double>& value)
    {
        const normans::scalar_format format = normans::format_of(wanted_.type);
        const double last = !format.is_integer ? 6 : format.code_bits == 4 ? 8 : 127;
        uint32_t unused = 0;
        scales_.push_back(rounded(normans::scalar_type::fp16, largest / last, unused));
        const double scale = double(scales_.back());
        for (uint32_t i = 0; i < wanted_.group; ++i) {
            const uint32_t code = normans::expected_code(
                format, normans::float_to_bits(float(value[i] / scale)));
            page_.push_back(uint8_t(code));
            bits_ += ideal_bits(code, mean[i] / scale, sigma_of(first + i) / scale);
        }
    }

    void pack(uint8_t* to) const
    {
        const bool nibbles = normans::format_of(wanted_.type).code_bits == 4;
        for (size_t i = 0; i < page_.size(); ++i) {
            if (!nibbles) to[i] = page_[i];
            else to[i / 2] = uint8_t(to[i / 2] | page_[i] << i % 2 * 4);
        }
    }

    quantised wanted_;
    random_numbers random_;
    std::vector<double> size_;
    std::vector<float> a_, b_, scales_, wide_;
    std::vector<uint16_t> means_;
    std::vector<uint8_t> sigma_, page_, codes_;
    double bits_ = 0;
};

inline workload<uint8_t> make_quantised(const quantised& wanted)
{
    quantised few = wanted;
    few.tokens = (8192 + wanted.channels() - 1) / wanted.channels();
    double low = -16, high = 4;  // log2
    for (int i = 0; i < 12; ++i) {
        const double middle = (low + high) / 2;
        (quantised_pages(few, 1, std::exp2(middle)).bits() < wanted.bits ? low : high) = middle;
    }
    const auto drawn =
        std::make_shared<const quantised_pages>(wanted, wanted.pages, std::exp2(low));
    workload<uint8_t> work{normans::scalar_name(wanted.type), wanted.name, {},
                           wanted.pages_per_call, true, {drawn}};
    work.ideal_bits = drawn->bits();
    for (size_t p = 0; p < wanted.pages; ++p) work.pages.push_back((*drawn)[p]);
    return work;
}

/// int8 at 3 bits, with means in fp32 as callables of the benchmark read them.
inline workload<uint8_t> quantised_plain(const std::string& name)
{
    quantised wanted;
    wanted.name = name;
    wanted.heads = 1;
    wanted.dim = 192;
    wanted.plain = true;
    return make_quantised(wanted);
}

/// Pages at a number of bits, named as those of the other types.
inline workload<uint8_t> quantised_at(normans::scalar_type type, const std::string& bits)
{
    quantised wanted;
    wanted.name = "synthetic-" + bits;
    wanted.type = type;
    wanted.bits = std::stod(bits);
    return make_quantised(wanted);
}

}  // namespace bench
