// normans_kv calibrate: a cache and its means in, a profile out.

#include <cstdio>

#include <normans/host/calibration.hpp>
#include <normans/host/marginal.hpp>

#include "commands.hpp"
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
    normans::sigma_range ranges[2];
    {
        progress_bar progress(double(keys.size()));
        for (const cache_key& key : keys) {
            const mean_tensor mean = load_means(means.file(), key);
            for (const target what : {target::fp8, target::bf16}) {
                if (!options.targets.has(what) || !has_target(file, key, what)) continue;
                sample_rows rows(file, mean, key, what);
                fitted.push_back(fit_tensor(rows, mean.shape, key, options.shape));
                ranges[size_t(what)].add(fitted.back().fits);
            }
            progress.advance(1);
        }
    }
    for (fitted_tensor& tensor : fitted) {
        const bool wide = tensor.profile.dtype == scalar_type::bf16;
        tensor.profile.sigma_offset =
            normans::choose_sigma_offset(tensor.profile.dtype, ranges[wide ? 1 : 0]);
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
