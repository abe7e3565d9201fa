#pragma once
// Calibration of corrections: tensor by tensor which sources pay on tokens that were held out.

#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include <normans/fit/calibration.hpp>
#include <normans/fit/cross_layer_fit.hpp>

#include "corrections.hpp"

namespace kv_file {

/// A source must save this much a scalar, or it is not worth its products.
constexpr double least_gain_bits = 0.003;

class correction_fitter {
public:
    /// `allowed`: sources that may be chosen, as bits.
    correction_fitter(unsigned allowed, unsigned threads) : allowed_(allowed), threads_(threads) {}

    /// The next tensor of a target, layers ascending, k before v. `means` in units of the codes,
    /// as the coder gets them; `row(token)` gives its samples.
    template <class Rows>
    void add(normans::tensor_profile& entry, const std::vector<normans::channel_fit>& fits,
             const geometry& shape, const std::vector<float>& means, Rows& rows)
    {
        const cache_key key{entry.layer, entry.kind};
        const auto channels = uint32_t(shape.channels());
        const normans::tensor_statistics statistics(rows.type(), rows.scale(), rows.residuals(),
                                                    fits);
        job next{&entry, fits, {}, {}, {}, {}};
        std::vector<const feature_rows*> sources;
        const auto take = [&](normans::cross_layer_source source,
                              const std::vector<const feature_rows*>& tensors) {
            if ((allowed_ & source) == 0) return;
            uint32_t width = 0;
            for (const feature_rows* one : tensors) {
                if (one == nullptr || one->values.size() != size_t(shape.tokens) * one->width)
                    return;
                width += one->width;
            }
            sources.insert(sources.end(), tensors.begin(), tensors.end());
            next.sources.push_back(source);
            next.widths.push_back(width);
        };
        residual_history& history = history_[entry.dtype == scalar_type::bf16 ? 1 : 0];
        take(normans::source_below, history.of(normans::source_below, key));
        if (key.second == kv_kind::v)
            take(normans::source_k, history.of(normans::source_k, key));
        normans::cross_layer_profile own_part;
        set_own_grid(own_part, shape, means);
        const feature_rows own = own_rows(own_part, shape, means);
        take(normans::source_own, {&own});

        next.own = std::move(own_part);
        next.samples.emplace(next.widths, channels);
        std::vector<int8_t> features;
        std::vector<float> residuals(channels);
        std::vector<uint32_t> codes(size_t(shape.tokens) * channels);
        for (uint32_t t = 0; t < shape.tokens; ++t) {
            const normans::calibration_sample* row = rows.row(t);
            features.clear();
            for (const feature_rows* one : sources)
                features.insert(features.end(), one->row(t), one->row(t) + one->width);
            for (uint32_t c = 0; c < channels; ++c) {
                const size_t i = size_t(t) * channels + c;
                codes[i] = row[c].code;
                residuals[c] = float(row[c].value - double(means[i]));
            }
            next.samples->add_token(features.data(), residuals.data(), 1 / statistics.spread(row));
        }
        history.keep(key, residual_rows(entry, shape, means, codes));
        jobs_.push_back(std::move(next));
        if (jobs_.size() >= 4 * size_t(threads_)) run();
    }

    /// Fits what is left, and prints a line for each tensor.
    void finish()
    {
        run();
        double bits = 0, scalars = 0, products = 0;
        std::printf("%-6s %-7s %-14s %8s %8s %10s\n", "tensor", "target", "corrected by",
                    "features", "ridge", "bits saved");
        for (const found& one : found_) {
            std::string sources;
            for (const auto& [source, name] :
                 {std::pair(normans::source_below, "below"), std::pair(normans::source_k, "k"),
                  std::pair(normans::source_own, "own")})
                if (one.sources & source)
                    sources += (sources.empty() ? "" : "+") + std::string(name);
            const std::string name =
                std::to_string(one.layer) + (one.kind == kv_kind::k ? ".k" : ".v");
            std::printf("%-6s %-7s %-14s %8u %8.3g %10.4f\n", name.c_str(),
                        normans::scalar_name(one.dtype),
                        sources.empty() ? "nothing" : sources.c_str(), one.features, one.ridge,
                        one.bits);
            bits += one.bits * one.channels;
            scalars += one.channels;
            products += double(one.features) * one.channels;
        }
        std::printf("corrections save %.4f bits a scalar on tokens held out, for %.0f products a "
                    "scalar\n",
                    scalars == 0 ? 0 : bits / scalars, scalars == 0 ? 0 : products / scalars);
    }

private:
    struct job {
        normans::tensor_profile* entry;
        std::vector<normans::channel_fit> fits;
        std::vector<normans::cross_layer_source> sources;
        std::vector<uint32_t> widths;
        std::optional<normans::cross_layer_samples> samples;
        normans::cross_layer_profile own;  // the grid of the means
    };

    struct found {
        uint32_t layer;
        kv_kind kind;
        scalar_type dtype;
        double channels;
        unsigned sources;
        uint32_t features;
        double ridge;
        double bits;
    };

    static void set_own_grid(normans::cross_layer_profile& part, const geometry& shape,
                             const std::vector<float>& means)
    {
        const auto channels = size_t(shape.channels());
        for (size_t c = 0; c < channels; ++c) {
            double sum = 0, squares = 0, count = 0;
            for (size_t i = c; i < means.size(); i += channels) {
                const auto mean = double(means[i]);
                if (!std::isfinite(mean)) continue;
                count += 1;
                sum += mean;
                squares += mean * mean;
            }
            const double middle = count > 0 ? sum / count : 0;
            const double spread =
                count > 0 ? std::sqrt(std::fmax(squares / count - middle * middle, 0)) : 0;
            const bool moves = spread > 1e-6 * std::fabs(middle) && spread > 1e-25;
            const int exponent = moves ? std::ilogb(spread * 1.4142) - 3 : 60;
            part.own_exponent.push_back(int8_t(exponent < 60 ? exponent : 60));
            const double steps = std::ldexp(middle, -part.own_exponent.back());
            part.own_centre.push_back(
                int32_t(std::fmax(-0x1p24, std::fmin(0x1p24, std::nearbyint(steps)))));
        }
    }

    void run()
    {
        const size_t first = found_.size();
        found_.resize(first + jobs_.size());
        normans::thread_executor{threads_}(
            jobs_.size(), [&](size_t i) { found_[first + i] = choose(jobs_[i]); });
        jobs_.clear();
    }

    // Adds the source that helps most as long as one helps.
    static found choose(job& from)
    {
        normans::tensor_profile& entry = *from.entry;
        uint32_t chosen = 0;
        normans::cross_layer_gain best = from.samples->try_choice(0);
        for (bool better = true; better;) {
            better = false;
            const uint32_t before = chosen;
            const double bar = best.bits + least_gain_bits, start = best.ridge;
            for (uint32_t g = 0; g < from.sources.size(); ++g) {
                const uint32_t choice = before | 1u << g;
                if (choice == before) continue;
                if (from.samples->features_of(choice) > normans::max_features) continue;
                normans::cross_layer_gain gain =
                    from.samples->try_choice(choice, before == 0 ? 1 : start);
                if (gain.bits < bar || gain.bits < best.bits) continue;
                best = std::move(gain);
                chosen = choice;
                better = true;
            }
        }
        if (chosen != 0) write(from, chosen, best, entry.cross_layer);
        return {entry.layer, entry.kind, entry.dtype, double(entry.affine_sigma.size()),
                entry.cross_layer.sources, entry.cross_layer.features,
                chosen == 0 ? 0 : best.ridge, best.bits};
    }

    static void write(job& from, uint32_t chosen, const normans::cross_layer_gain& gain,
                      normans::cross_layer_profile& part)
    {
        const normans::tensor_profile& entry = *from.entry;
        for (uint32_t g = 0; g < from.sources.size(); ++g)
            if (chosen >> g & 1) part.sources = uint8_t(part.sources | from.sources[g]);
        normans::cross_layer_matrix matrix = from.samples->fit(chosen, gain);
        part.features = matrix.features;
        part.weights = std::move(matrix.weights);
        part.scale = std::move(matrix.scale);
        if (part.sources & normans::source_own) {
            part.own_exponent = std::move(from.own.own_exponent);
            part.own_centre = std::move(from.own.own_centre);
        }
        part.sigma = entry.affine_sigma;
        for (size_t c = 0; c < part.sigma.size(); ++c) {
            const bool exact = part.sigma[c] == normans::sigma_zero;
            if (exact) part.scale[c] = 0;
            if (exact || part.scale[c] == 0) continue;
            const double sigma = from.fits[c].affine_sigma * std::sqrt(gain.squares[c]);
            part.sigma[c] =
                normans::sigma_index(normans::deviation{float(sigma)}, entry.sigma_offset);
        }
    }

    unsigned allowed_;
    unsigned threads_;
    residual_history history_[2];  // 8 bits, 16 bits
    std::vector<job> jobs_;
    std::vector<found> found_;
};

}  // namespace kv_file
