// normans_kv calibrate: a cache and its means in, a profile out.

#include <cstdio>

#include <normans/host/calibration.hpp>
#include <normans/host/marginal.hpp>

#include "commands.hpp"
#include "plane_coder.hpp"
#include "report.hpp"

namespace kv_file {
namespace {

// A tensor of one target as rows of samples.
class sample_rows {
public:
    sample_rows(const safetensors_file& file, const mean_tensor& means, cache_key key, target what)
        : means_(means), type_(scalar_of(file, key, what))
    {
        const std::string name = tensor_name(key, target_name(what));
        if (!(geometry_of(file, name) == means.shape))
            fail(file.path(), ": ", name, " has shape ", to_text(geometry_of(file, name)),
                 ", its means ", to_text(means.shape));
        if (what == target::bf16) {
            bf16_ = load_codes<uint16_t>(file, name);
        } else {
            fp8_ = load_codes<uint8_t>(file, name);
            scale_ = load_scale(file, key);
            load_unrounded(file, key);
        }
        row_.resize(size_t(means.shape.channels()));
    }

    scalar_type type() const { return type_; }
    float scale() const { return scale_; }

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
            row_[c].mean = means_.at(i);
            row_[c].value = unrounded_
                                ? value_of(normans::format_of(scalar_type::bf16), bf16_[i]) / scale_
                                : value_of(coded, code);
        }
        return row_.data();
    }

    template <class Statistics>
    void feed(Statistics& statistics)
    {
        for (uint32_t token = 0; token < means_.shape.tokens; ++token)
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
        if (tensor == nullptr || tensor->dtype != "BF16" || tensor->shape != means_.shape.shape())
            return;
        bf16_ = load_codes<uint16_t>(file, name);
        unrounded_ = true;
    }

    const mean_tensor& means_;
    scalar_type type_;
    std::vector<uint8_t> fp8_;
    std::vector<uint16_t> bf16_;
    bool unrounded_ = false;
    float scale_ = 1;
    std::vector<normans::calibration_sample> row_;
};

struct fitted_tensor {
    normans::tensor_profile profile;
    std::vector<normans::channel_fit> fits;
};

// Counts of the byte that an escape spells under the marginal.
std::vector<uint16_t> marginal_of(sample_rows& rows, const geometry& shape)
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

fitted_tensor fit_tensor(sample_rows& rows, const geometry& shape, cache_key key,
                         normans::shape_id shape_id)
{
    fitted_tensor result;
    result.profile.dtype = rows.type();
    result.profile.layer = key.first;
    result.profile.kind = key.second;
    result.profile.shape = shape_id;
    result.profile.heads = shape.heads;
    result.profile.dim = shape.dim;
    result.profile.scale = rows.scale();

    normans::tensor_statistics alone(rows.type(), rows.scale(), rows.residuals(),
                                     size_t(shape.channels()));
    rows.feed(alone);
    normans::tensor_statistics weighed(rows.type(), rows.scale(), rows.residuals(), alone.fit());
    rows.feed(weighed);
    result.fits = weighed.fit();

    const bool rounded_fp8 = normans::code_bytes(rows.type()) == 1 &&
                             rows.residuals() == normans::residual_kind::of_codes;
    if (rounded_fp8 || shape_id != normans::shape_id::gaussian) {
        normans::sigma_likelihood likelihood(rows.type(), shape_id, rows.scale(), weighed,
                                             result.fits);
        rows.feed(likelihood);
        result.fits = likelihood.fit();
    }
    if (shape_id == normans::shape_id::mixture_marginal)
        result.profile.marginal = marginal_of(rows, shape);
    return result;
}

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

}  // namespace

int calibrate(const calibrate_options& options)
{
    const safetensors_file file(options.input);
    const mean_source means(options.means, &file);
    const std::vector<cache_key> keys = keys_of(file, options.targets);
    if (keys.empty()) fail(options.input, ": holds no tensors of the target");

    normans::profile profile;
    profile.model = file.metadata("model");
    profile.predictor = means.file().metadata("predictor");
    std::vector<fitted_tensor> fitted;
    normans::sigma_range ranges[3];  // fp8, bf16, fp16
    const auto range_of = [](scalar_type type) {
        return type == scalar_type::bf16 ? 1 : type == scalar_type::fp16 ? 2 : 0;
    };
    const auto add = [&](fitted_tensor tensor) {
        ranges[range_of(tensor.profile.dtype)].add(tensor.fits);
        fitted.push_back(std::move(tensor));
    };
    {
        progress_bar progress(double(keys.size()));
        for (const cache_key& key : keys) {
            const mean_tensor mean = load_means(means.file(), key);
            for (const target what : {target::fp8, target::bf16}) {
                // int8 and int4 are calibrated on the bf16 tensor.
                const bool wanted = options.targets.has(what) ||
                                    (what == target::bf16 && options.targets.has_quantised());
                if (!wanted || !has_target(file, key, what)) continue;
                sample_rows rows(file, mean, key, what);
                add(fit_tensor(rows, mean.shape, key, options.shape));
            }
            if (options.targets.has_quantised()) {
                required(file, tensor_name(key, "bf16"));
                add(fit_maxima(load_finite(file, key, mean.shape), mean, fitted.back()));
            }
            progress.advance(1);
        }
    }
    for (fitted_tensor& tensor : fitted) {
        tensor.profile.sigma_offset = normans::choose_sigma_offset(
            tensor.profile.dtype, ranges[range_of(tensor.profile.dtype)]);
        normans::set_channels(tensor.profile, tensor.fits);
        profile.tensors.push_back(std::move(tensor.profile));
    }
    const normans::profile_bytes bytes = normans::serialize_profile(profile);
    if (bytes.code != normans::status::ok)
        fail(options.profile, ": cannot be made (", normans::status_name(bytes.code), ")");
    output_file out(options.profile);
    out.write(bytes.bytes.data(), bytes.bytes.size());
    out.commit();
    std::printf("%s: %zu tensors, %zu bytes, fingerprint %016llx\n", options.profile.c_str(),
                profile.tensors.size(), bytes.bytes.size(),
                static_cast<unsigned long long>(bytes.fingerprint));
    return 0;
}

}  // namespace kv_file
