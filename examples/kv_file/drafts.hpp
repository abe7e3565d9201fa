#pragma once
// The encoder's side of drafts: factors of a page, and what coding a page would cost with them.
// What is decided here a decoder only reads, so it may compute with reals.

#include <algorithm>
#include <cmath>
#include <vector>

#include <normans/fit/calibration.hpp>

#include "decompose.hpp"
#include "mean_stages.hpp"
#include "model_bits.hpp"

namespace kv_file {

/// The tokens of a page, in a tensor of `channels` a token.
struct page_range {
    size_t first;  // scalar of the tensor
    uint32_t tokens;
    size_t channels;

    size_t scalars() const { return tokens * channels; }
};

inline page_range range_of(const geometry& shape, uint32_t page_tokens, uint64_t page)
{
    return {size_t(page * page_tokens * shape.channels()), tokens_of_page(shape, page_tokens, page),
            size_t(shape.channels())};
}

/// The components of (code - mean) / scale of a page; a channel without a scale has none, and
/// neither have codes or means that are no numbers. Tokens weigh as their row steps will weigh them
/// (2^(j/2), j = -6 .. 9): the attention sink, say, takes no component for itself.
template <class Code>
normans::block_components page_components(scalar_type type, const std::vector<Code>& codes,
                                          const std::vector<float>& means,
                                          const std::vector<float>& scale, page_range page,
                                          uint32_t most)
{
    const normans::scalar_format format = normans::format_of(type);
    std::vector<double> values(page.scalars());
    for (size_t i = 0; i < values.size(); ++i) {
        const uint32_t code = codes[page.first + i];
        const float mean = means[page.first + i], unit = scale[i % page.channels];
        if (normans::is_special(format, code) || !std::isfinite(mean) || !(unit > 0)) continue;
        const double value = double(normans::bits_to_float(normans::value_bits(format, code)));
        // Far beyond what a draft can say; kept small enough to be squared.
        values[i] = std::clamp((value - double(mean)) / double(unit), -0x1p60, 0x1p60);
    }
    std::vector<double> spread(page.tokens);
    for (size_t t = 0; t < page.tokens; ++t) {
        double* row = &values[t * page.channels];
        double sum = 0;
        for (size_t c = 0; c < page.channels; ++c) sum += row[c] * row[c];
        spread[t] = std::sqrt(std::clamp(sum / double(page.channels), 0.125, 22.627416998));
        for (size_t c = 0; c < page.channels; ++c) row[c] /= spread[t];
    }
    normans::block_components made =
        decompose(values.data(), page.tokens, uint32_t(page.channels), most);
    for (std::vector<double>& left : made.left)
        for (size_t t = 0; t < page.tokens; ++t) left[t] *= spread[t];
    return made;
}

/// The bits of a page in real arithmetic, row steps included, each the one of row_scale.hpp's closed
/// form (4 bits a token, the most they take).
template <class Code>
double page_bits(const model_cost& cost, scalar_type type, int sigma_offset,
                 const std::vector<Code>& codes, const std::vector<float>& means,
                 const std::vector<uint8_t>& sigma, page_range page)
{
    const normans::scalar_format format = normans::format_of(type);
    double bits = 4.0 * page.tokens;
    for (uint32_t token = 0; token < page.tokens; ++token) {
        const size_t row = page.first + token * page.channels;
        double sum = 0, count = 0;
        for (size_t c = 0; c < page.channels; ++c) {
            const uint32_t code = codes[row + c];
            const double mean = double(means[row + c]);
            if (sigma[c] == normans::sigma_zero || normans::is_special(format, code) ||
                !std::isfinite(mean))
                continue;
            const double value = double(normans::bits_to_float(normans::value_bits(format, code)));
            const double s = std::exp2(sigma_offset + sigma[c] / 8.0);
            const double cell = normans::detail::cell_width(format, value);
            sum += (value - mean) * (value - mean) / (s * s + cell * cell / 12);
            count += 1;
        }
        const double step = count > 0 && sum > 0 ? std::round(2 * std::log2(sum / count)) : 0;
        const int row_step = int(std::clamp(step, -6.0, 9.0));
        for (size_t c = 0; c < page.channels; ++c)
            bits += cost.bits(codes[row + c], double(means[row + c]), sigma[c], row_step);
    }
    return bits;
}

/// Adds a draft to the means of its page.
inline void add_page_draft(const normans::draft_view& view, const std::vector<float>& scale,
                           std::vector<float>& means, page_range page)
{
    std::vector<float> rows(4 * page.channels);
    normans::add_draft(view, scale.data(), &means[page.first], std::ptrdiff_t(page.channels),
                       rows.data());
}

/// The drafts of all pages of a target; rank 0 where a draft of the profile's rank does not pay.
/// Empty where it pays on no page.
template <class Code>
std::vector<uint8_t> make_drafts(const staged_means& staged, const normans::tensor_profile& entry,
                                 uint32_t page_tokens, const std::vector<Code>& codes)
{
    staged_means flat = staged;
    flat.flatten();
    const geometry& shape = flat.values.shape;
    const model_cost cost(entry.dtype, entry.shape, entry.sigma_offset, entry.marginal);
    std::vector<uint8_t> bytes;
    bool pays = false;
    for (uint64_t page = 0; page < pages_of(shape, page_tokens); ++page) {
        const page_range range = range_of(shape, page_tokens, page);
        std::vector<float>& means = flat.values.fp32;
        const auto bits = [&](const std::vector<uint8_t>& sigma) {
            return page_bits(cost, entry.dtype, entry.sigma_offset, codes, means, sigma, range);
        };
        const auto size = [&](uint32_t rank) {
            return size_t(normans::draft_bytes(rank, range.tokens, uint32_t(range.channels)));
        };
        normans::block_factors factors;
        factors.tokens = range.tokens;
        factors.channels = uint32_t(range.channels);
        const double alone = bits(flat.sigma) + 8.0 * double(size(0));
        if (8.0 * double(size(entry.rank)) < alone) {
            const normans::block_factors drafted = normans::quantise_factors(
                page_components(entry.dtype, codes, means, entry.draft_scale, range, entry.rank),
                entry.rank);
            add_page_draft(drafted.view(), entry.draft_scale, means, range);
            if (drafted.rank != 0 &&
                bits(entry.draft_sigma) + 8.0 * double(size(drafted.rank)) < alone) {
                factors = drafted;
                pays = true;
            }
        }
        const size_t at = bytes.size();
        bytes.resize(at + size(factors.rank));
        if (normans::write_draft(factors.view(), bytes.data() + at, bytes.size() - at) !=
            normans::status::ok)
            fail("a draft cannot be written");
    }
    if (!pays) bytes.clear();
    return bytes;
}

}  // namespace kv_file
