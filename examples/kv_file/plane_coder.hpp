#pragma once
// How an int8 or int4 tensor is coded under its means: plane by plane, each a tensor of its own
// with means and sigmas, page by page like page_coder.
//   - scales: fp16 under the largest magnitude of a group of means, mapped per group (the
//     profile's fp16 entry, in units of that magnitude), / 127 or / 8. int4: magnitudes only.
//   - signs of int4's scales: a sign says which end of a group is the larger one. It is an int4
//     code at either end of the range (those two take nearly all probability, since sigma is
//     4,096 codes or more), and its mean is how much the means' upper end exceeds the lower.
//   - codes: under the means in value units, sigmas per channel (the profile's bf16 entry). Scales
//     below zero are made positive by negating their group's means.
// All of it is exactly rounded fp32, so that both sides get the same bits.

#include <vector>

#include <normans/host/float_bank.hpp>

#include "model_bits.hpp"
#include "page_coder.hpp"
#include "quantised.hpp"

namespace kv_file {

/// A type's bank with its memory.
class loaded_bank {
public:
    loaded_bank(scalar_type type, const normans::bank_plan& plan, bool encodes)
        : cells_(normans::bank_cells(type, plan)), reach_(normans::bank_rows(type, plan))
    {
        if (encodes) {
            next_.resize(cells_.size());
            symbols_.resize(reach_.size() * normans::bank_symbols);
        }
        const normans::bank_memory memory{cells_.data(), reach_.data(),
                                          encodes ? next_.data() : nullptr,
                                          encodes ? symbols_.data() : nullptr};
        if (make_bank(type, plan, memory, bank_) != normans::status::ok)
            fail("a bank cannot be built");
    }
    loaded_bank(const loaded_bank&) = delete;  // bank_ points into the rest
    loaded_bank& operator=(const loaded_bank&) = delete;

    const normans::tans_bank* get() const { return &bank_; }
    bool serves(scalar_type type, normans::shape_id shape) const
    {
        return bank_.grid == bank_grid(type) && bank_.plan.shape == shape;
    }

private:
    std::vector<normans::tans_cell> cells_;
    std::vector<uint8_t> reach_;
    std::vector<uint16_t> next_;
    std::vector<normans::tans_symbol> symbols_;
    normans::tans_bank bank_{};
};

/// One plane: a tensor [tokens, heads, dim] with a mean per scalar and a sigma index per channel.
class plane_coder {
public:
    normans::block_spec common;  // dtype, model, coder and lanes of all pages
    std::vector<float> means;
    std::vector<uint8_t> sigmas;
    std::vector<float> scales;   // per token, head and group; or one for all
    uint32_t group = 0;          // channels that share a scale; 0: one scale

    explicit plane_coder(const plane_shape& plane) : plane_(plane)
    {
        common.dtype = plane.dtype;
        common.heads = plane.shape.heads;
        common.dim = plane.shape.dim;
    }

    uint64_t pages() const { return pages_of(plane_.shape, plane_.page_tokens); }
    size_t start(uint64_t page) const
    {
        return size_t(page * plane_.page_tokens * plane_.shape.channels());
    }
    /// Elements of `Code` in memory.
    size_t memory() const { return memory_of(plane_.shape.tokens); }

    normans::block_spec spec(uint64_t page) const
    {
        normans::block_spec spec = common;
        spec.tokens = tokens_of_page(plane_.shape, plane_.page_tokens, page);
        if (normans::has_scale(spec.dtype)) {
            const auto groups = std::ptrdiff_t(scales_of(plane_.shape).dim);
            if (group == 0) spec.scales = {scales.data(), 0, 0, 0, 0};
            else spec.scales = {&scales[first_scale(page)], groups, groups * spec.heads, 1, group};
        }
        return spec;
    }

    template <class Code>
    encode_task<Code> encoding(const normans::block_spec& spec, const Code* codes, uint64_t page,
                               uint8_t* out, size_t capacity) const
    {
        return {spec, box(codes, page), predictor(page), out, capacity, {}};
    }

    template <class Code>
    decode_task<Code> decoding(const uint8_t* block, size_t bytes, Code* codes,
                               uint64_t page) const
    {
        return {spec(page), block, bytes, predictor(page), box(codes, page), {}};
    }

    /// What the model asks for in real arithmetic for one page that was just coded.
    template <class Code>
    double model_bits(const model_cost& cost, const std::vector<Code>& codes, uint64_t page,
                      const uint8_t* block, size_t bytes) const
    {
        const normans::block_spec now = spec(page);
        double bits = 0;
        for (uint32_t token = 0; token < now.tokens; ++token) {
            const int step = normans::row_step_of(now, block, bytes, token);
            for (uint32_t head = 0; head < now.heads; ++head) {
                for (uint32_t channel = 0; channel < now.dim; ++channel) {
                    const size_t row = (page * plane_.page_tokens + token) * now.heads + head;
                    const double mean = double(means[row * now.dim + channel]);
                    const unsigned sigma = sigmas[size_t(head) * now.dim + channel];
                    const uint32_t code = code_at(codes, row, channel);
                    if (normans::has_scale(now.dtype))
                        bits += cost.scaled_bits(code, mean,
                                                 double(now.scales({0, head, token, channel})),
                                                 sigma, step);
                    else bits += cost.bits(code, mean, sigma, step);
                }
            }
        }
        return bits;
    }

private:
    size_t row_elements() const { return size_t(padded_row(plane_.dtype, plane_.shape.dim)); }
    size_t memory_of(uint64_t tokens) const
    {
        const size_t elements = size_t(tokens * plane_.shape.heads * row_elements());
        return plane_.dtype == scalar_type::int4 ? elements / 2 : elements;
    }
    size_t first_scale(uint64_t page) const
    {
        const geometry groups = scales_of(plane_.shape);
        return size_t(page * plane_.page_tokens * groups.channels());
    }

    template <class Code>
    uint32_t code_at(const std::vector<Code>& codes, size_t row, uint32_t channel) const
    {
        const size_t i = row * row_elements() + channel;
        if constexpr (sizeof(Code) == 1)
            if (plane_.dtype == scalar_type::int4) return nibble(codes, i);
        return codes[i];
    }

    template <class Code>
    normans::box_view<Code> box(Code* codes, uint64_t page) const
    {
        const auto row = std::ptrdiff_t(row_elements());
        return {codes + memory_of(page * plane_.page_tokens), row, row * common.heads};
    }

    normans::array_predictor predictor(uint64_t page) const
    {
        const auto dim = std::ptrdiff_t(common.dim);
        return {{means.data() + start(page), dim, dim * common.heads, normans::any_means::fp32},
                {sigmas.data(), common.dim, 0, 1},
                {nullptr, nullptr, 0}};
    }

    plane_shape plane_;
};

/// The largest of some means and the largest of their negatives, both at least 0.
struct group_ends {
    float above = 0;
    float below = 0;

    void add(float mean)
    {
        above = mean > above ? mean : above;
        below = -mean > below ? -mean : below;
    }
    float largest() const { return above > below ? above : below; }
};

/// The planes of one quantised tensor. `set_scales` comes between scales and codes.
class quantised_coder {
public:
    plane_coder scales;
    plane_coder signs;  // of int4
    plane_coder codes;

    quantised_coder(target what, const normans::tensor_profile& values,
                    const normans::tensor_profile& maxima, const mean_tensor& means,
                    const geometry& shape, uint32_t page_tokens, bool affine)
        : scales(planes_of(what, type_of(what), shape, page_tokens).front()),
          signs(planes_of(target::int4, scalar_type::int4, shape, page_tokens)[1]),
          codes(planes_of(what, type_of(what), shape, page_tokens).back()),
          shape_(shape)
    {
        const size_t channels = size_t(shape_.channels());
        const geometry groups = scales_of(shape_);
        scales.sigmas = affine ? maxima.affine_sigma : maxima.plain_sigma;
        codes.sigmas = affine ? values.affine_sigma : values.plain_sigma;
        // An fp16 entry says sigmas of magnitudes: 2^7 and 2^3 above those of the scales.
        scales.common.sigma_offset =
            std::max(maxima.sigma_offset - (what == target::int8 ? 7 : 3),
                     normans::min_sigma_offset);
        scales.common.shape = maxima.shape;
        codes.common.sigma_offset = values.sigma_offset;
        codes.common.shape = shape_of_banks(values);
        codes.common.row_scale = true;
        codes.group = group_channels;
        scales.common.lanes = signs.common.lanes = 1;  // few scalars
        signs.common.sigma_offset = 0;
        signs.scales = {0x1p-12f};

        codes.means.resize(size_t(shape_.scalars()));
        for (size_t i = 0; i < codes.means.size(); ++i) {
            const size_t c = i % channels;
            codes.means[i] = affine ? mapped(means.at(i), values.affine_a[c], values.affine_b[c])
                                    : mapped(means.at(i), 1, -0.0f);
        }
        std::vector<float> units;  // 1 / sigma but for less than an octave, by group
        for (const uint8_t index : scales.sigmas) {
            // The difference of two ends: sigma * sqrt(2).
            const int eighths = 8 * maxima.sigma_offset + int(index) + 4;
            const int octave = index == normans::sigma_zero ? -20 : (eighths + 1024) / 8 - 128;
            signs.sigmas.push_back(uint8_t(eighths + 1024) % 8);
            units.push_back(std::ldexp(1.0f, -octave));
        }
        const float divisor = what == target::int8 ? 127.0f : 8.0f;
        for (size_t row = 0; row < size_t(shape_.tokens) * shape_.heads; ++row) {
            for (uint32_t g = 0; g < groups.dim; ++g) {
                const size_t first = row * shape_.dim + size_t(g) * group_channels;
                const size_t count =
                    std::min(group_channels, shape_.dim - g * group_channels);
                group_ends ends;
                for (size_t i = 0; i < count; ++i) ends.add(codes.means[first + i]);
                const size_t c = row % shape_.heads * groups.dim + g;
                const float largest =
                    affine ? mapped(ends.largest(), maxima.affine_a[c], maxima.affine_b[c])
                           : ends.largest();
                scales.means.push_back(largest / divisor);
                if (what == target::int4)
                    signs.means.push_back((ends.above - ends.below) * units[c]);
            }
        }
    }

    /// fp16 codes, before the codes are coded: a scale below zero changes its group's means.
    void set_scales(const std::vector<uint16_t>& from)
    {
        const geometry groups = scales_of(shape_);
        codes.scales.resize(from.size());
        for (size_t i = 0; i < from.size(); ++i) {
            const normans::scalar_format fp16 = normans::format_of(scalar_type::fp16);
            const uint32_t magnitude = from[i] & 0x7fffu;
            codes.scales[i] = normans::is_special(fp16, magnitude)
                                  ? 0
                                  : normans::bits_to_float(normans::value_bits(fp16, magnitude));
            if (magnitude == from[i]) continue;
            const size_t row = i / groups.dim, g = i % groups.dim;
            const size_t first = row * shape_.dim + g * group_channels;
            const size_t count = std::min<size_t>(group_channels, shape_.dim - g * group_channels);
            for (size_t k = 0; k < count; ++k) codes.means[first + k] = -codes.means[first + k];
        }
    }

    void set_bank(const normans::tans_bank* bank)
    {
        codes.common.bank = bank;
        codes.common.coder =
            bank != nullptr ? normans::coder_id::tans : normans::coder_id::rans;
    }

private:
    static scalar_type type_of(target what)
    {
        return what == target::int8 ? scalar_type::int8 : scalar_type::int4;
    }

    geometry shape_;
};

constexpr uint32_t positive_sign = 8, negative_sign = 7;  // int4's ends: -8 and 7

/// The planes' codes of int4's scales, and back.
inline void split_signs(const std::vector<uint16_t>& scales, uint32_t groups,
                        std::vector<uint16_t>& magnitudes, std::vector<uint8_t>& signs)
{
    const size_t padded = size_t(padded_row(scalar_type::int4, groups));
    const size_t rows = groups == 0 ? 0 : scales.size() / groups;
    signs.assign(rows * padded / 2, 0);
    magnitudes = scales;
    for (size_t i = 0; i < scales.size(); ++i) {
        magnitudes[i] = uint16_t(scales[i] & 0x7fff);
        set_nibble(signs, i / groups * padded + i % groups,
                   scales[i] >> 15 != 0 ? negative_sign : positive_sign);
    }
}

/// False where a code is neither sign, or a magnitude has one.
[[nodiscard]] inline bool join_signs(std::vector<uint16_t>& scales,
                                     const std::vector<uint8_t>& signs, uint32_t groups)
{
    const size_t padded = size_t(padded_row(scalar_type::int4, groups));
    bool good = true;
    for (size_t i = 0; i < scales.size(); ++i) {
        const uint32_t sign = nibble(signs, i / groups * padded + i % groups);
        good &= (sign == negative_sign || sign == positive_sign) && scales[i] >> 15 == 0;
        if (sign == negative_sign) scales[i] = uint16_t(scales[i] | 0x8000);
    }
    return good;
}

/// The profile's entry for the scales of a quantised tensor; that of its codes is the bf16 one.
inline const normans::tensor_profile& maxima_entry(const normans::profile& profile,
                                                   const std::string& path, cache_key key,
                                                   target what, const geometry& shape)
{
    const normans::tensor_profile* entry =
        normans::find_tensor(profile, key.first, key.second, scalar_type::fp16);
    const geometry groups = scales_of(shape);
    if (entry == nullptr)
        fail(path, ": no entry for the scales of ", tensor_name(key, target_name(what)),
             "; calibrate with --target ", target_name(what));
    if (entry->heads != groups.heads || entry->dim != groups.dim)
        fail(path, ": the scales of ", tensor_name(key, target_name(what)), " are ", entry->heads,
             " x ", entry->dim, " in the profile, ", groups.heads, " x ", groups.dim,
             " in the cache");
    if (entry->shape == normans::shape_id::mixture_marginal)
        fail(path, ": the entry for the scales of ", tensor_name(key, target_name(what)),
             " has a marginal");
    return *entry;
}

}  // namespace kv_file
