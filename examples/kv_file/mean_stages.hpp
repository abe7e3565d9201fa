#pragma once
// Where the means of a tensor come from, stage by stage: the same calls in the same order on both
// sides of a file, so that a decoder gets the bits that the encoder had.
//     begin(layer, k or v)    loads what was predicted, zeros where nobody does
//     before(target)          the means of that target's codes, before it is coded or decoded
//     draft(drafts)           their correction by the low-rank drafts of the target's pages
//     after(target, codes)    tells the codes, for stages that learn from what was decoded before
// All arithmetic is single fp32 operations, rounded once.

#include <vector>

#include <normans/lowrank/draft.hpp>

#include "container.hpp"
#include "corrections.hpp"

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
    std::vector<uint8_t> draft_sigma;  // of pages with a draft: is_drafted[page]
    std::vector<uint8_t> is_drafted;   // empty: no page has one
    std::vector<float> uncorrected = {};  // where a correction was made: the values before it

    const std::vector<uint8_t>& sigma_of(uint64_t page) const
    {
        return !is_drafted.empty() && is_drafted[size_t(page)] != 0 ? draft_sigma : sigma;
    }

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

/// What was predicted, under the profile's affine map or none.
inline staged_means under_map(const mean_tensor& predicted, const normans::tensor_profile& entry,
                              bool affine)
{
    if (affine) return {predicted, entry.affine_sigma, entry.affine_a, entry.affine_b, {}, {}};
    const size_t channels = entry.plain_sigma.size();
    return {predicted, entry.plain_sigma,
            std::vector<float>(channels, normans::inverse_scale(entry.scale)),
            std::vector<float>(channels, -0.0f), {}, {}};
}

/// One draft in the bytes of a file: what it says, and where it ends.
class page_draft {
public:
    /// The status of read_draft.
    normans::status read(const uint8_t* from, size_t bytes, uint32_t tokens, uint32_t channels)
    {
        normans::draft_header header{};
        const normans::status code =
            normans::read_draft_header(from, bytes, tokens, channels, header);
        if (code != normans::status::ok) return code;
        const uint32_t rank = normans::padded_rank(header.rank);
        // At most four times `bytes`, which hold these factors.
        u_.resize(size_t(tokens) * rank);
        v_.resize(size_t(channels) * rank);
        shift_.resize(rank / 4);
        return normans::read_draft(
            from, bytes, tokens, channels,
            {u_.data(), u_.size(), v_.data(), v_.size(), shift_.data(), shift_.size()}, view_);
    }

    const normans::draft_view& view() const { return view_; }
    size_t bytes() const
    {
        const normans::lowrank_factors& f = view_.factors;
        return size_t(normans::draft_bytes(view_.rank, f.tokens, f.channels));
    }

private:
    std::vector<int8_t> u_;
    std::vector<int8_t> v_;
    std::vector<uint8_t> shift_;
    normans::draft_view view_{};
};

/// Means before rotation, turned by their tokens' positions; in units of the values.
inline mean_tensor rotary_tensor(const normans::rotary_profile& rotary, const geometry& shape)
{
    mean_tensor means{shape, {}, std::vector<float>(size_t(shape.scalars())), 0};
    normans::expand_rotary(rotary.means(shape.dim), shape.heads, 0, shape.tokens,
                           means.fp32.data());
    return means;
}

class mean_stages {
public:
    mean_stages(predictor_choice predictor, const normans::profile& profile, bool affine,
                unsigned threads)
        : predictor_(predictor), affine_(affine), threads_(threads)
    {
        for (const normans::tensor_profile& entry : profile.tensors)
            if (entry.cross_layer.sources != 0)
                corrects_[entry.dtype == scalar_type::bf16 ? 1 : 0] = true;
    }

    /// The prediction of a (layer, k or v), in units of the values; it lasts until the next.
    /// `source` with a model, `shape` without.
    const mean_tensor& begin(cache_key key, const safetensors_file* source, const geometry& shape)
    {
        predicted_ = has_model(predictor_) ? load_means(*source, key) : no_means(shape);
        return predicted_;
    }

    /// Of the tensor that began; `entry` is the profile's for this target.
    staged_means before(target what, const normans::tensor_profile& entry) const
    {
        const bool rotary = !has_model(predictor_) && !entry.rotary.mean.empty();
        staged_means staged = under_map(
            rotary ? rotary_tensor(entry.rotary, predicted_.shape) : predicted_, entry, affine_);
        if (!corrects(what)) return staged;
        staged.flatten();
        if (entry.cross_layer.sources == 0) return staged;
        staged.uncorrected = staged.values.fp32;
        staged.sigma = entry.cross_layer.sigma;
        correct(entry.cross_layer, {entry.layer, entry.kind}, staged.values.shape,
                history_[size_t(what)], staged.values.fp32, threads_);
        return staged;
    }

    /// Reads the drafts of all pages of a target from bytes[at...] and corrects its means by them.
    /// The status of the first that is damaged, with `page` its number.
    static normans::status draft(staged_means& means, const normans::tensor_profile& entry,
                                 uint32_t page_tokens, const std::vector<uint8_t>& bytes,
                                 size_t& at, uint64_t& page)
    {
        means.flatten();
        means.draft_sigma = entry.draft_sigma;
        const geometry& shape = means.values.shape;
        const auto channels = uint32_t(shape.channels());
        std::vector<float> rows(4 * size_t(channels));
        page_draft now;
        for (page = 0; page < pages_of(shape, page_tokens); ++page) {
            const uint32_t tokens = tokens_of_page(shape, page_tokens, page);
            const normans::status code =
                now.read(bytes.data() + at, bytes.size() - at, tokens, channels);
            if (code != normans::status::ok) return code;
            at += now.bytes();
            means.is_drafted.push_back(now.view().rank != 0);
            if (now.view().rank != 0)
                normans::add_draft(now.view(), entry.draft_scale.data(),
                                   &means.values.fp32[size_t(page * page_tokens) * channels],
                                   std::ptrdiff_t(channels), rows.data());
        }
        return normans::status::ok;
    }

    /// All codes of a target, coded or decoded under `means`: later tensors' corrections need them.
    template <class Code>
    void after(target what, const normans::tensor_profile& entry, const staged_means& means,
               const std::vector<Code>& codes)
    {
        if (!corrects(what)) return;
        const std::vector<float>& about =
            means.uncorrected.empty() ? means.values.fp32 : means.uncorrected;
        history_[size_t(what)].keep({entry.layer, entry.kind},
                                    residual_rows(entry, means.values.shape, about, codes));
    }

private:
    // A correction starts from mapped means.
    bool corrects(target what) const
    {
        return affine_ && !is_quantised(what) && corrects_[size_t(what)];
    }

    predictor_choice predictor_;
    bool affine_;
    unsigned threads_;
    bool corrects_[2] = {};  // fp8, bf16: whether any tensor is corrected
    residual_history history_[2];
    mean_tensor predicted_;
};

}  // namespace kv_file
