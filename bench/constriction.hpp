#pragma once
// Pages of the real cache for constriction_peer.py, in its terms: symbols on an integer line with a
// Gaussian each. The line is that of the ordered codes, so mean and sigma are taken to units of the
// cell that the mean lies in. Per scalar: i32 symbol, f32 mean, f32 sigma.

#include <cmath>
#include <fstream>

#include "workload.hpp"

namespace bench {

struct line_symbol {
    int32_t symbol;
    float mean;
    float sigma;
};

inline line_symbol on_code_line(normans::scalar_format format, uint32_t code,
                                const normans::prediction& p, int sigma_offset)
{
    const uint32_t nearest = normans::nearest_code(format, normans::float_to_bits(p.mean));
    const uint32_t magnitude = nearest & (format.code_sign() - 1);
    const auto edge = [&](uint32_t m) {
        return normans::bits_to_float(normans::edge_bits(format, m));
    };
    const float cell = edge(magnitude + 1) - edge(magnitude);
    const float value = normans::bits_to_float(normans::value_bits(format, nearest));
    const float inside = std::fmin(std::fmax((p.mean - value) / cell, -0.5f), 0.5f);
    const float sigma = std::exp2(float(sigma_offset) + float(p.sigma_index) / 8) / cell;
    const int centre = int(format.code_sign());
    return {int32_t(normans::ordered_index(format, code)) - centre,
            float(int(normans::ordered_index(format, nearest)) - centre) + inside,
            std::fmax(sigma, 0.05f)};
}

inline void write_line_symbols(const std::string& path, const workload<uint8_t>& work, size_t pages)
{
    std::ofstream out(path, std::ios::binary);
    for (size_t p = 0; p < pages; ++p) {
        const page<uint8_t>& one = work.pages[work.pages.size() * (2 * p + 1) / (2 * pages)];
        const normans::scalar_format format = normans::format_of(one.spec.dtype);
        const uint32_t tokens = one.spec.tokens, dim = one.spec.dim;
        for (uint32_t i = 0; i < one.count; ++i) {
            const uint32_t row = i / dim;
            const normans::scalar_position at{i, row / tokens, row % tokens, i % dim};
            const uint8_t code = one.box.data[ptrdiff_t(at.head) * one.box.head_stride +
                                              ptrdiff_t(at.token) * one.box.token_stride +
                                              ptrdiff_t(at.channel)];
            const line_symbol symbol =
                on_code_line(format, code, one.predictor(at), one.spec.sigma_offset);
            out.write(reinterpret_cast<const char*>(&symbol), sizeof symbol);
        }
    }
    if (!out.flush()) throw std::runtime_error(path + ": cannot be written");
}

}  // namespace bench
