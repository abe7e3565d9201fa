// normans_kv calibrate: a cache and its means in, a profile out.

#include <cmath>
#include <cstdio>

#include <normans/fit/rotary_fit.hpp>

#include "commands.hpp"
#include "corrections_fit.hpp"
#include "fitting.hpp"
#include "plane_coder.hpp"
#include "report.hpp"

namespace kv_file {
namespace {

// The largest magnitude of each group of channels that share a scale, about that of its means.
class maxima_rows {
public:
    maxima_rows(const std::vector<uint16_t>& bf16, const mean_tensor& means)
        : bf16_(bf16), means_(means), row_(size_t(scales_of(means.shape).channels()))
    {
    }

    template <class Statistics>
    void feed(Statistics& statistics, const std::vector<normans::folded_map>& maps)
    {
        const geometry& shape = means_.shape;
        const size_t channels = size_t(shape.channels());
        for (size_t first = 0; first < channels * shape.tokens; first += channels) {
            std::vector<group_ends> said(row_.size()), seen(row_.size());
            for (size_t c = 0; c < channels; ++c) {
                const size_t g = c / shape.dim * scales_of(shape).dim +
                                 c % shape.dim / group_channels;
                said[g].add(mapped(means_.at(first + c), maps[c].a, maps[c].b));
                seen[g].add(normans::bits_to_float(uint32_t(bf16_[first + c]) << 16));
            }
            for (size_t g = 0; g < row_.size(); ++g)
                row_[g] = {double(seen[g].largest()), said[g].largest(),
                           normans::nearest_code(normans::format_of(scalar_type::fp16),
                                                 normans::float_to_bits(seen[g].largest()))};
            statistics.add_token(row_.data());
        }
    }

private:
    const std::vector<uint16_t>& bf16_;
    const mean_tensor& means_;
    std::vector<normans::calibration_sample> row_;
};

// The scales of int8 and int4, in units of the largest magnitude. `values`: the bf16 tensor's.
fitted_tensor fit_maxima(const std::vector<uint16_t>& bf16, const mean_tensor& means,
                         const fitted_tensor& values)
{
    const geometry groups = scales_of(means.shape);
    fitted_tensor result;
    result.profile = values.profile;
    result.profile.dtype = scalar_type::fp16;
    result.profile.shape = normans::shape_id::gaussian;
    result.profile.dim = groups.dim;
    result.profile.marginal.clear();
    maxima_rows rows(bf16, means);
    const auto statistics = [&] {
        return normans::tensor_statistics(scalar_type::fp16, 1,
                                          normans::residual_kind::before_rounding,
                                          size_t(groups.channels()));
    };
    std::vector<normans::folded_map> plain, folded;
    for (const normans::channel_fit& fit : values.fits) {
        plain.push_back(normans::fold_scale({}, 1));
        folded.push_back(normans::fold_scale(fit, 1));
    }
    normans::tensor_statistics about_means = statistics(), about_mapped = statistics();
    rows.feed(about_means, plain);
    rows.feed(about_mapped, folded);
    result.fits = about_mapped.fit();
    const std::vector<normans::channel_fit> unmapped = about_means.fit();
    for (size_t g = 0; g < result.fits.size(); ++g) {
        result.fits[g].plain_sigma = unmapped[g].plain_sigma;
        result.fits[g].plain_exact = unmapped[g].plain_exact;
    }
    return result;
}

// The mean of K before rotation, of values that are known as exactly as the file says them.
normans::rotary_profile fit_rotary(const calibrate_options& options, sample_rows& rows,
                                   const geometry& shape)
{
    normans::rotary_profile rotary;
    rotary.rotary_dim = options.rotary_dim == 0 ? shape.dim : options.rotary_dim;
    if (rotary.rotary_dim > shape.dim || rotary.rotary_dim % 2 != 0)
        fail(rotary.rotary_dim, " channels of a head of ", shape.dim, " cannot turn in pairs");
    rotary.pairing = options.pairing;
    rotary.step = normans::rotary_steps(options.rotary_theta, rotary.rotary_dim);
    normans::rotary_statistics statistics(rotary.means(shape.dim), shape.heads);
    std::vector<float> values(size_t(shape.channels()));
    for (uint32_t token = 0; token < shape.tokens; ++token) {
        const normans::calibration_sample* row = rows.row(token);
        for (size_t c = 0; c < values.size(); ++c)
            values[c] = float(row[c].value * double(rows.scale()));
        statistics.add_token(token, values.data());
    }
    statistics.fit(rotary.mean, rotary.exponent);
    return rotary;
}

// Without a model: zeros, and the channels' means are in the map; or rotated means.
mean_tensor means_without_model(const safetensors_file& file,
                                const normans::tensor_profile& entry, cache_key key)
{
    const geometry shape = shape_without_means(file, key);
    return entry.rotary.mean.empty() ? no_means(shape) : rotary_tensor(entry.rotary, shape);
}

fitted_tensor fit_rotated(const calibrate_options& options, const safetensors_file& file,
                          const mean_tensor& no_mean, cache_key key, target what)
{
    const geometry& shape = no_mean.shape;
    sample_rows unpredicted(file, no_mean, key, what);
    normans::rotary_profile rotary = fit_rotary(options, unpredicted, shape);
    const mean_tensor means = rotary_tensor(rotary, shape);
    sample_rows rows(file, means, key, what);
    fitted_tensor fitted = fit_tensor(rows, shape, key, options.shape, false);
    fitted.profile.rotary = std::move(rotary);
    return fitted;
}

// Target by target, since the tensors of one correct each other.
void fit_corrections(const calibrate_options& options, const safetensors_file& file,
                     const safetensors_file* source, const std::vector<fitted_tensor>& fitted,
                     normans::profile& profile)
{
    correction_fitter fitter(options.corrections, options.threads);
    progress_bar progress(double(fitted.size()));
    for (size_t i = 0; i < fitted.size(); ++i) {
        normans::tensor_profile& entry = profile.tensors[i];
        if (entry.dtype == scalar_type::fp16) continue;  // scales of int8 and int4
        const cache_key key{entry.layer, entry.kind};
        const target what = entry.dtype == scalar_type::bf16 ? target::bf16 : target::fp8;
        const mean_tensor mean = source != nullptr ? load_means(*source, key)
                                                   : means_without_model(file, entry, key);
        staged_means staged = under_map(mean, entry, true);
        staged.flatten();
        sample_rows rows(file, mean, key, what);
        fitter.add(entry, fitted[i].fits, mean.shape, staged.values.fp32, rows);
        progress.advance(1);
    }
    fitter.finish();
}

}  // namespace

int calibrate(const calibrate_options& options)
{
    const safetensors_file file(options.input);
    const mean_source means(options.means, &file);
    const std::vector<cache_key> keys = keys_of(file, options.targets);
    if (keys.empty()) fail(options.input, ": holds no tensors of the target");

    normans::profile profile;
    profile.model = file.metadata("model");
    const bool model = has_model(options.predictor);
    if (std::isnan(options.rotary_theta)) fail("--rotary-theta is no number");
    if (options.rotary_theta > 0 && (model || options.targets.has_quantised()))
        fail("--rotary-theta is for --predictor none, fp8 and bf16");
    if (model) profile.predictor = means.file().metadata("predictor");
    std::vector<fitted_tensor> fitted;
    {
        progress_bar progress(double(keys.size()));
        for (const cache_key& key : keys) {
            const mean_tensor mean = model ? load_means(means.file(), key)
                                           : no_means(shape_without_means(file, key));
            for (const target what : {target::fp8, target::bf16}) {
                // int8 and int4 are calibrated on the bf16 tensor.
                const bool wanted = options.targets.has(what) ||
                                    (what == target::bf16 && options.targets.has_quantised());
                if (!wanted || !has_target(file, key, what)) continue;
                if (options.rotary_theta > 0 && key.second == kv_kind::k) {
                    fitted.push_back(fit_rotated(options, file, mean, key, what));
                    continue;
                }
                sample_rows rows(file, mean, key, what);
                fitted.push_back(fit_tensor(rows, mean.shape, key, options.shape, model));
            }
            if (options.targets.has_quantised()) {
                required(file, tensor_name(key, "bf16"));
                fitted.push_back(
                    fit_maxima(load_finite(file, key, mean.shape), mean, fitted.back()));
            }
            progress.advance(1);
        }
    }
    set_all_channels(fitted);
    for (fitted_tensor& tensor : fitted) profile.tensors.push_back(std::move(tensor.profile));
    if (options.corrections != 0)
        fit_corrections(options, file, model ? &means.file() : nullptr, fitted, profile);
    write_profile(profile, options.profile);
    return 0;
}

}  // namespace kv_file
