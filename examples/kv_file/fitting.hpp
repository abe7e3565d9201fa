#pragma once
// From a cache to the entries of a profile: what calibrate and profile-rank share.

#include <cstdio>
#include <limits>
#include <vector>

#include <normans/fit/calibration.hpp>
#include <normans/fit/marginal.hpp>

#include "cache.hpp"

namespace kv_file {

// A tensor of one target as rows of samples.
class sample_rows {
public:
    sample_rows(const safetensors_file& file, const mean_tensor& means, cache_key key, target what)
        : means_(&means), type_(scalar_of(file, key, what))
    {
        const std::string name = tensor_name(key, target_name(what));
        if (!(geometry_of(file, name) == means.shape))
            fail(file.path(), ": ", name, " has shape ", to_text(geometry_of(file, name)),
                 ", its means ", to_text(means.shape));
        if (what == target::bf16) {
            bf16_ = load_codes<uint16_t>(file, name);
        } else {
            fp8_ = load_codes<uint8_t>(file, name);
            scale_ = mean_scale_ = load_scale(file, key);
            load_unrounded(file, key);
        }
        row_.resize(size_t(means.shape.channels()));
    }

    scalar_type type() const { return type_; }
    /// value = code's value * scale.
    float scale() const { return scale_; }

    /// Of the means; 1 with means in units of the codes.
    float mean_scale() const { return mean_scale_; }

    /// Takes other means from here on, in units of the codes.
    void set_means(const mean_tensor& means)
    {
        means_ = &means;
        mean_scale_ = 1;
    }

    /// An fp8 target's values before rounding are known if the file holds them as bf16.
    normans::residual_kind residuals() const
    {
        return unrounded_ ? normans::residual_kind::before_rounding
                          : normans::residual_kind::of_codes;
    }

    const normans::calibration_sample* row(uint32_t token)
    {
        const normans::scalar_format coded = normans::format_of(type_);
        for (size_t c = 0; c < row_.size(); ++c) {
            const size_t i = token * row_.size() + c;
            const uint32_t code = type_ == scalar_type::bf16 ? bf16_[i] : fp8_[i];
            row_[c].code = code;
            row_[c].mean = means_->at(i);
            row_[c].value = unrounded_
                                ? value_of(normans::format_of(scalar_type::bf16), bf16_[i]) / scale_
                                : value_of(coded, code);
        }
        return row_.data();
    }

    template <class Statistics>
    void feed(Statistics& statistics)
    {
        for (uint32_t token = 0; token < means_->shape.tokens; ++token)
            statistics.add_token(row(token));
    }

private:
    static double value_of(normans::scalar_format format, uint32_t code)
    {
        if (normans::is_special(format, code)) return std::numeric_limits<double>::quiet_NaN();
        return double(normans::bits_to_float(normans::value_bits(format, code)));
    }

    void load_unrounded(const safetensors_file& file, cache_key key)
    {
        const std::string name = tensor_name(key, target_name(target::bf16));
        const tensor_info* tensor = file.find(name);
        if (tensor == nullptr || tensor->dtype != "BF16" || tensor->shape != means_->shape.shape())
            return;
        bf16_ = load_codes<uint16_t>(file, name);
        unrounded_ = true;
    }

    const mean_tensor* means_;
    scalar_type type_;
    std::vector<uint8_t> fp8_;
    std::vector<uint16_t> bf16_;
    bool unrounded_ = false;
    float scale_ = 1;
    float mean_scale_ = 1;
    std::vector<normans::calibration_sample> row_;
};

/// A profile's entry and what it is made of.
struct fitted_tensor {
    normans::tensor_profile profile;
    std::vector<normans::channel_fit> fits;
    std::vector<normans::channel_fit> draft_fits;  // about drafted means; with a rank above 0
};

// Counts of the byte that an escape spells under the marginal.
inline std::vector<uint16_t> marginal_of(sample_rows& rows, const geometry& shape)
{
    uint64_t counts[256] = {};
    const unsigned low_bits = 8 * (normans::code_bytes(rows.type()) - 1);
    for (uint32_t token = 0; token < shape.tokens; ++token) {
        const normans::calibration_sample* row = rows.row(token);
        for (size_t c = 0; c < size_t(shape.channels()); ++c) ++counts[row[c].code >> low_bits];
    }
    std::vector<uint16_t> freq(256);
    normans::normalize_counts(counts, freq.data());
    return freq;
}

/// Two passes, and a third where the first two are not enough (see calibration.hpp).
inline std::vector<normans::channel_fit> fit_channels(sample_rows& rows, const geometry& shape,
                                                      normans::shape_id shape_id)
{
    normans::tensor_statistics alone(rows.type(), rows.mean_scale(), rows.residuals(),
                                     size_t(shape.channels()));
    rows.feed(alone);
    normans::tensor_statistics weighed(rows.type(), rows.mean_scale(), rows.residuals(),
                                       alone.fit());
    rows.feed(weighed);
    const bool rounded_fp8 = normans::code_bytes(rows.type()) == 1 &&
                             rows.residuals() == normans::residual_kind::of_codes;
    if (!rounded_fp8 && shape_id == normans::shape_id::gaussian) return weighed.fit();
    normans::sigma_likelihood likelihood(rows.type(), shape_id, rows.mean_scale(), weighed,
                                         weighed.fit());
    rows.feed(likelihood);
    return likelihood.fit();
}

inline fitted_tensor fit_tensor(sample_rows& rows, const geometry& shape, cache_key key,
                                normans::shape_id shape_id, bool has_model)
{
    fitted_tensor result;
    result.profile.dtype = rows.type();
    result.profile.layer = key.first;
    result.profile.kind = key.second;
    result.profile.shape = shape_id;
    result.profile.heads = shape.heads;
    result.profile.dim = shape.dim;
    result.profile.scale = rows.scale();
    result.profile.has_model = has_model;
    result.fits = fit_channels(rows, shape, shape_id);
    if (shape_id == normans::shape_id::mixture_marginal)
        result.profile.marginal = marginal_of(rows, shape);
    return result;
}

/// Sigma offsets that suit all tensors of a type, then each tensor's channels.
inline void set_all_channels(std::vector<fitted_tensor>& fitted)
{
    normans::sigma_range ranges[3];  // fp8, bf16, fp16
    const auto range_of = [&](const fitted_tensor& of) -> normans::sigma_range& {
        const scalar_type type = of.profile.dtype;
        return ranges[type == scalar_type::bf16 ? 1 : type == scalar_type::fp16 ? 2 : 0];
    };
    for (const fitted_tensor& tensor : fitted) {
        range_of(tensor).add(tensor.fits);
        range_of(tensor).add(tensor.draft_fits);
    }
    for (fitted_tensor& tensor : fitted) {
        normans::tensor_profile& profile = tensor.profile;
        profile.sigma_offset =
            normans::choose_sigma_offset(profile.dtype, range_of(tensor));
        if (profile.rank != 0) {
            normans::set_channels(profile, tensor.draft_fits);
            profile.draft_sigma = profile.affine_sigma;
        }
        normans::set_channels(profile, tensor.fits);
    }
}

inline void write_profile(const normans::profile& profile, const std::string& path)
{
    const normans::profile_bytes bytes = normans::serialize_profile(profile);
    if (bytes.code != normans::status::ok)
        fail(path, ": cannot be made (", normans::status_name(bytes.code), ")");
    output_file out(path);
    out.write(bytes.bytes.data(), bytes.bytes.size());
    out.commit();
    std::printf("%s: %zu tensors, %zu bytes, fingerprint %016llx\n", path.c_str(),
                profile.tensors.size(), bytes.bytes.size(),
                static_cast<unsigned long long>(bytes.fingerprint));
}

}  // namespace kv_file
