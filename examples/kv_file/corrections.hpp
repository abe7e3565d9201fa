#pragma once
// Corrections of means by what was coded before (normans/lowrank/cross_layer.hpp), as both sides of
// a file make them: residuals of a tensor become features of those that follow.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <normans/host/thread_executor.hpp>

#include "cache.hpp"

namespace kv_file {

/// Features of all tokens of a tensor, `width` each: channels, and zeros up to a multiple of 4.
struct feature_rows {
    uint32_t width = 0;
    std::vector<int8_t> values;

    feature_rows() = default;
    explicit feature_rows(const geometry& shape)
        : width(uint32_t((shape.channels() + 3) / 4 * 4)), values(size_t(shape.tokens) * width)
    {
    }

    int8_t* row(uint32_t token) { return values.data() + size_t(token) * width; }
    const int8_t* row(uint32_t token) const { return values.data() + size_t(token) * width; }
};

/// A code's value as fp32, NaN and infinity too.
inline float value_of_code(scalar_type type, uint32_t code)
{
    const normans::scalar_format format = normans::format_of(type);
    if (!normans::is_special(format, code))
        return normans::bits_to_float(normans::value_bits(format, code));
    const uint32_t magnitude = code & (format.code_sign() - 1);
    const bool infinite = format.has_infinity && magnitude == format.largest_finite + 1;
    const uint32_t sign = code & format.code_sign() ? normans::sign_bit : 0;
    return normans::bits_to_float(
        sign | (infinite ? normans::infinity_bits : normans::quiet_nan_bits));
}

/// Residuals of all codes about `means`, in units of the codes.
template <class Code>
feature_rows residual_rows(const normans::tensor_profile& entry, const geometry& shape,
                           const std::vector<float>& means, const std::vector<Code>& codes)
{
    const auto channels = size_t(shape.channels());
    std::vector<int8_t> exponent;
    for (const uint8_t sigma : entry.affine_sigma)
        exponent.push_back(normans::residual_exponent(sigma, entry.sigma_offset));
    const normans::residual_grid grid{exponent.data(), nullptr, uint32_t(channels)};
    feature_rows rows(shape);
    std::vector<float> values(channels);
    for (uint32_t t = 0; t < shape.tokens; ++t) {
        for (size_t c = 0; c < channels; ++c)
            values[c] = value_of_code(entry.dtype, codes[t * channels + c]);
        normans::residual_features(grid, values.data(), means.data() + t * channels, rows.row(t));
    }
    return rows;
}

/// The means themselves, in units of the codes.
inline feature_rows own_rows(const normans::cross_layer_profile& part, const geometry& shape,
                             const std::vector<float>& means)
{
    const auto channels = size_t(shape.channels());
    const normans::residual_grid grid{part.own_exponent.data(), part.own_centre.data(),
                                      uint32_t(channels)};
    feature_rows rows(shape);
    for (uint32_t t = 0; t < shape.tokens; ++t)
        normans::residual_features(grid, means.data() + t * channels, nullptr, rows.row(t));
    return rows;
}

/// Residuals of the tensors of one target that later ones may need.
class residual_history {
public:
    void keep(cache_key key, feature_rows rows)
    {
        while (!rows_.empty() && rows_.begin()->first.first + 1 < key.first)
            rows_.erase(rows_.begin());
        rows_[key] = std::move(rows);
    }

    /// The tensors that a source stands for, in the order of the features. Null: one is missing.
    std::vector<const feature_rows*> of(normans::cross_layer_source source, cache_key key) const
    {
        if (source == normans::source_k) return {find({key.first, kv_kind::k})};
        if (key.first == 0) return {nullptr};
        return {find({key.first - 1, kv_kind::k}), find({key.first - 1, kv_kind::v})};
    }

private:
    const feature_rows* find(cache_key key) const
    {
        const auto found = rows_.find(key);
        return found == rows_.end() ? nullptr : &found->second;
    }

    std::map<cache_key, feature_rows> rows_;
};

/// Corrects the means of a tensor, in units of its codes.
inline void correct(const normans::cross_layer_profile& part, cache_key key, const geometry& shape,
                    const residual_history& history, std::vector<float>& means, unsigned threads)
{
    const std::string name = tensor_name(key, "*");
    std::vector<const feature_rows*> sources;
    for (const auto source : {normans::source_below, normans::source_k})
        if (part.sources & source)
            for (const feature_rows* rows : history.of(source, key)) sources.push_back(rows);
    feature_rows own;
    if (part.sources & normans::source_own) {
        own = own_rows(part, shape, means);
        sources.push_back(&own);
    }
    uint64_t width = 0;
    for (const feature_rows* rows : sources) {
        if (rows == nullptr)
            fail("the profile corrects ", name, " by tensors before it, of which one is missing");
        if (rows->values.size() != size_t(shape.tokens) * rows->width)
            fail(name, " is corrected by a tensor with another number of tokens");
        width += rows->width;
    }
    if (width != part.features)
        fail("the profile corrects ", name, " by ", part.features, " features, not ", width);

    constexpr uint32_t piece = 64;
    const auto channels = size_t(shape.channels());
    normans::thread_executor{threads}((size_t(shape.tokens) + piece - 1) / piece, [&](size_t job) {
        const auto first = uint32_t(job * piece);
        const uint32_t count = std::min(piece, shape.tokens - first);
        std::vector<int8_t> features;
        for (uint32_t t = first; t < first + count; ++t)
            for (const feature_rows* rows : sources)
                features.insert(features.end(), rows->row(t), rows->row(t) + rows->width);
        std::vector<float> sums(count * channels);
        normans::cross_layer_sums(part.map(), features.data(), count, sums.data());
        normans::correct_means(part.map(), sums.data(), count, means.data() + first * channels);
    });
}

}  // namespace kv_file
