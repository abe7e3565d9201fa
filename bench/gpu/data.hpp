#pragma once
// Pages for the benchmark on a GPU, as flat arrays: made by the host's compiler, so that nvcc sees
// no reader of files.

#include <cstdint>
#include <string>
#include <vector>

#include <normans/block/block.hpp>

namespace bench {

/// Pages of one spec, [tokens][heads][dim] each, one behind the other.
struct gpu_pages {
    std::string name;
    normans::block_spec spec;
    std::size_t pages = 0;
    std::vector<std::uint8_t> codes;   // code_bytes(spec.dtype) a scalar
    std::vector<std::uint16_t> means;  // bf16
    std::vector<std::uint8_t> sigmas;  // [pages][heads][dim]
    std::vector<float> a, b;           // likewise

    std::size_t page_scalars() const { return std::size_t(normans::count_of(spec)); }
    std::size_t channels() const { return std::size_t(spec.heads) * spec.dim; }
};

/// A predictor that reads no memory: what it says of a page is the same for all pages.
struct register_means {
    std::uint8_t sigma;
    NORMANS_HD normans::prediction operator()(std::uint32_t i) const
    {
        const std::uint32_t mixed = i * 2654435761u;
        return {float(int(mixed >> 20) - 2048) * 0x1p-8f, sigma};
    }
};

/// Codes drawn from Gaussians that cost `bits` each.
gpu_pages drawn_pages(normans::scalar_type type, double bits, std::size_t pages,
                      std::uint32_t tokens);
/// Codes drawn around register_means{sigma}; means and sigmas are left empty.
gpu_pages register_pages(normans::scalar_type type, std::uint8_t sigma, std::size_t pages,
                         std::uint32_t tokens);
/// int8 codes in code units, groups of 32 channels under a scale of 1 each, that cost `bits` each.
gpu_pages scaled_pages(double bits, std::size_t pages, std::uint32_t tokens);
/// A real cache, cut into pages of 16 tokens.
gpu_pages real_pages(normans::scalar_type type, const std::string& cache,
                     const std::string& profile);

}  // namespace bench
