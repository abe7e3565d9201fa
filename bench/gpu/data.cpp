#include "data.hpp"

#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "../real.hpp"
#include "../synthetic.hpp"

namespace bench {

namespace {

template <class Code>
gpu_pages flat(const std::string& name, const std::vector<page<Code>>& pages)
{
    gpu_pages out;
    out.name = name;
    out.spec = pages.front().spec;
    for (const page<Code>& one : pages) {
        if (one.count != out.page_scalars()) continue;  // a last page of fewer tokens
        const auto* codes = reinterpret_cast<const std::uint8_t*>(one.box.data);
        const auto& with = one.predictor;
        if (with.means.type != normans::scalar_type::bf16 ||
            one.spec.sigma_offset != out.spec.sigma_offset || one.spec.shape != out.spec.shape)
            throw std::runtime_error(name + ": pages of more than one kind");
        const auto* means = static_cast<const std::uint16_t*>(with.means.data);
        ++out.pages;
        out.codes.insert(out.codes.end(), codes, codes + one.count * sizeof(Code));
        out.means.insert(out.means.end(), means, means + one.count);
        const auto* sigmas = static_cast<const std::uint8_t*>(with.sigmas.data);
        out.sigmas.insert(out.sigmas.end(), sigmas, sigmas + out.channels());
        out.a.insert(out.a.end(), with.affine.a, with.affine.a + out.channels());
        out.b.insert(out.b.end(), with.affine.b, with.affine.b + out.channels());
    }
    return out;
}

synthetic engine_page(normans::scalar_type type, std::size_t pages, std::uint32_t tokens)
{
    synthetic wanted;
    wanted.type = type;
    wanted.heads = 8;
    wanted.tokens = tokens;
    wanted.dim = 128;
    wanted.pages = wanted.pages_per_call = pages;
    return wanted;
}

}  // namespace

gpu_pages drawn_pages(normans::scalar_type type, double bits, std::size_t pages,
                      std::uint32_t tokens)
{
    synthetic wanted = engine_page(type, pages, tokens);
    wanted.bits = bits;
    char name[32];
    std::snprintf(name, sizeof name, "bits-%.1f", bits);
    return normans::code_bytes(type) == 1
               ? flat(name, make_synthetic<std::uint8_t>(wanted).pages)
               : flat(name, make_synthetic<std::uint16_t>(wanted).pages);
}

gpu_pages register_pages(normans::scalar_type type, std::uint8_t sigma, std::size_t pages,
                         std::uint32_t tokens)
{
    const synthetic shape = engine_page(type, pages, tokens);
    gpu_pages out;
    out.name = "drawn";
    out.spec.dtype = type;
    out.spec.heads = shape.heads;
    out.spec.tokens = shape.tokens;
    out.spec.dim = shape.dim;
    out.spec.row_scale = true;
    out.pages = pages;
    random_numbers random(2);
    const register_means means{sigma};
    const double deviation = std::exp2(out.spec.sigma_offset + sigma / 8.0);
    for (std::size_t p = 0; p < pages; ++p)
        for (std::uint32_t place = 0; place < out.page_scalars(); ++place) {
            // In memory tokens lie outermost; a scalar's index counts heads outermost.
            const std::uint32_t channel = place % shape.dim, row = place / shape.dim;
            const std::uint32_t head = row % shape.heads, token = row / shape.heads;
            const std::uint32_t index = (head * shape.tokens + token) * shape.dim + channel;
            const double value = double(means(index).mean) + deviation * random.gaussian();
            const std::uint32_t code = normans::nearest_code(
                normans::format_of(type), normans::float_to_bits(float(value)));
            out.codes.push_back(std::uint8_t(code));
            if (normans::code_bytes(type) == 2) out.codes.push_back(std::uint8_t(code >> 8));
        }
    return out;
}

gpu_pages scaled_pages(double bits, std::size_t pages, std::uint32_t tokens)
{
    constexpr double unit_entropy = 2.05;  // of a Gaussian of deviation 1, in cells of width 1
    gpu_pages out = register_pages(normans::scalar_type::int8, 0, 0, tokens);
    char name[32];
    std::snprintf(name, sizeof name, "bits-%.1f", bits);
    out.name = name;
    out.pages = pages;
    const double octave = bits - unit_entropy;
    const std::size_t channels = pages * out.channels();
    out.sigmas.assign(channels, std::uint8_t(std::lround(8 * (octave - out.spec.sigma_offset))));
    out.a.assign(channels, 1.0f);
    out.b.assign(channels, 0.0f);
    random_numbers random(3);
    for (std::size_t i = 0; i < pages * out.page_scalars(); ++i) {
        // 32 to 63.75 either way, in quarters: exact in bf16
        const std::uint32_t drawn = std::uint32_t(std::abs(random.gaussian()) * 4096);
        const float mean = (32.0f + float(drawn % 128) / 4) * (drawn & 128 ? -1.0f : 1.0f);
        const double value = double(mean) + std::exp2(octave) * random.gaussian();
        out.means.push_back(std::uint16_t(normans::float_to_bits(mean) >> 16));
        out.codes.push_back(std::uint8_t(std::lround(value)));
    }
    return out;
}

gpu_pages real_pages(normans::scalar_type type, const std::string& cache,
                     const std::string& profile)
{
    const real_cache from(cache, profile);
    return normans::code_bytes(type) == 1
               ? flat("real", make_real<std::uint8_t>(from, "real", 16, 0).pages)
               : flat("real", make_real<std::uint16_t>(from, "real", 16, 0).pages);
}

}  // namespace bench
