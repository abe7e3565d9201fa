#pragma once
// Where the means of a tensor come from, stage by stage: the same calls in the same order on both
// sides of a file, so that a decoder gets the bits that the encoder had.
//     begin(layer, k or v)    loads what was predicted
//     before(target)          the means of that target's codes, before it is coded or decoded
//     after(target, codes)    tells the codes, for stages that learn from what was decoded before
// All arithmetic is single fp32 operations, rounded once.

#include <vector>

#include "cache.hpp"

namespace kv_file {

/// fma(mean, a, b) by the library's rules.
inline float mapped(float mean, float a, float b)
{
    return normans::bits_to_float(normans::map_mean(
        normans::float_to_bits(mean), normans::float_to_bits(a), normans::float_to_bits(b)));
}

/// The means and sigmas of one target as its coder reads them.
struct staged_means {
    mean_tensor values;
    std::vector<uint8_t> sigma;  // index by channel
    std::vector<float> a;        // by channel: the coder takes fma(value, a, b);
    std::vector<float> b;        // both empty: values are in units of the codes

    /// In real arithmetic, for reports; units of the codes.
    double real_mean(size_t index, size_t channel) const
    {
        const double value = double(values.at(index));
        return a.empty() ? value : double(a[channel]) * value + double(b[channel]);
    }

    /// Applies the map: fp32 values in units of the codes, which a further stage can correct.
    void flatten()
    {
        if (a.empty()) return;
        std::vector<float> flat(size_t(values.shape.scalars()));
        for (size_t i = 0; i < flat.size(); ++i)
            flat[i] = mapped(values.at(i), a[i % a.size()], b[i % a.size()]);
        values.fp32 = std::move(flat);
        values.bf16.clear();
        a.clear();
        b.clear();
    }
};

class mean_stages {
public:
    mean_stages(const mean_source& source, bool affine) : source_(source), affine_(affine) {}

    /// The prediction of a (layer, k or v), in units of the values; it lasts until the next.
    const mean_tensor& begin(cache_key key)
    {
        predicted_ = load_means(source_.file(), key);
        return predicted_;
    }

    /// Of the tensor that began; `entry` is the profile's for this target.
    staged_means before(target, const normans::tensor_profile& entry) const
    {
        if (affine_) return {predicted_, entry.affine_sigma, entry.affine_a, entry.affine_b};
        const size_t channels = entry.plain_sigma.size();
        return {predicted_, entry.plain_sigma,
                std::vector<float>(channels, normans::inverse_scale(entry.scale)),
                std::vector<float>(channels, -0.0f)};
    }

    /// All codes of a target, coded or decoded under `means`. No stage learns from them yet.
    template <class Code>
    void after(target, const normans::tensor_profile& /*entry*/, const staged_means& /*means*/,
               const std::vector<Code>& /*codes*/)
    {
    }

private:
    const mean_source& source_;
    bool affine_;
    mean_tensor predicted_;
};

}  // namespace kv_file
