// normans_kv profile-rank: which rank of drafts pays, by trying them. For every tensor, block
// length and rank the total is what the drafts' bytes and the codes under them (real arithmetic,
// row steps included) take on the calibration cache.

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include <normans/host/thread_executor.hpp>

#include "commands.hpp"
#include "drafts.hpp"
#include "fitting.hpp"
#include "report.hpp"

namespace kv_file {
namespace {

// What one block length gives for one tensor. `bits` by rank; a rank is left out where its factors
// alone take more than all of the best so far.
struct length_result {
    std::map<uint32_t, double> bits;
    std::map<uint32_t, double> decay;  // the k-th singular value over the first, mean of pages
    uint32_t rank = 0;
    std::vector<normans::channel_fit> fits;  // of that rank, if it is not 0

    double best() const { return bits.at(rank); }
};

struct tensor_result {
    cache_key key;
    target what;
    double scalars = 0;
    std::map<uint32_t, length_result> lengths;
    fitted_tensor fitted;
};

class rank_search {
public:
    explicit rank_search(const profile_rank_options& options)
        : options_(options), file_(options.input), ranks_(options.ranks),
          lengths_(options.page_tokens)
    {
        if (options.targets.has_quantised()) fail("profile-rank is for fp8 and bf16");
        ranks_.push_back(0);  // always a choice
        sort_once(ranks_);
        sort_once(lengths_);
        if (has_model(options.predictor)) means_.emplace(options.means, &file_);
        else if (!options.means.empty()) fail("--mu is for --predictor both");
    }

    void run()
    {
        const std::vector<cache_key> keys = keys_of(file_, options_.targets);
        if (keys.empty()) fail(options_.input, ": holds no tensors of the target");
        progress_bar progress(double(keys.size()));
        for (const cache_key& key : keys) {
            const mean_tensor means = means_ ? load_means(means_->file(), key)
                                             : no_means(shape_without_means(file_, key));
            for (const target what : {target::fp8, target::bf16}) {
                if (!options_.targets.has(what) || !has_target(file_, key, what)) continue;
                const std::string name = tensor_name(key, target_name(what));
                if (what == target::fp8) search(key, what, means, load_codes<uint8_t>(file_, name));
                else search(key, what, means, load_codes<uint16_t>(file_, name));
            }
            progress.advance(1);
        }
        choose_length();
    }

    void write()
    {
        normans::profile profile;
        profile.model = file_.metadata("model");
        if (means_) profile.predictor = means_->file().metadata("predictor");
        std::vector<fitted_tensor> fitted;
        for (const tensor_result& tensor : tensors_) {
            const length_result& chosen = tensor.lengths.at(length_);
            fitted.push_back(tensor.fitted);
            normans::tensor_profile& entry = fitted.back().profile;
            entry.rank = chosen.rank;
            entry.draft_tokens = chosen.rank == 0 ? 0 : length_;
            fitted.back().draft_fits = chosen.fits;
            if (chosen.rank == 0) entry.draft_scale.clear();
        }
        set_all_channels(fitted);
        for (fitted_tensor& tensor : fitted) profile.tensors.push_back(std::move(tensor.profile));
        std::optional<output_file> report;
        if (!options_.report.empty()) {
            report.emplace(options_.report);
            const std::string text = to_json().dump(2) + "\n";
            report->write(text.data(), text.size());
        }
        write_profile(profile, options_.profile);
        if (report) report->commit();
    }

    void print() const
    {
        for (const target what : {target::fp8, target::bf16}) {
            if (!options_.targets.has(what)) continue;
            print_target(what);
        }
    }

private:
    static void sort_once(std::vector<uint32_t>& numbers)
    {
        std::sort(numbers.begin(), numbers.end());
        numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    }

    template <class Code>
    void search(cache_key key, target what, const mean_tensor& means,
                const std::vector<Code>& codes)
    {
        sample_rows rows(file_, means, key, what);
        tensor_result result{key, what, double(codes.size()), {}, {}};
        result.fitted = fit_tensor(rows, means.shape, key, normans::shape_id::gaussian,
                                   has_model(options_.predictor));
        normans::tensor_profile entry = result.fitted.profile;
        normans::sigma_range range;
        range.add(result.fitted.fits);
        entry.sigma_offset = normans::choose_sigma_offset(entry.dtype, range);
        normans::set_channels(entry, result.fitted.fits);
        for (const normans::channel_fit& fit : result.fitted.fits) {
            const auto scale = float(fit.affine_sigma);
            entry.draft_scale.push_back(normans::detail::zero_or_normal(scale) ? scale : 0);
        }
        result.fitted.profile.draft_scale = entry.draft_scale;

        staged_means staged = under_map(means, entry, true);
        staged.flatten();
        const double alone = bits_of(entry, codes, staged.values, entry.affine_sigma, 256);
        for (const uint32_t length : lengths_) {
            length_result& now = result.lengths[length];
            now.bits[0] = alone;
            if (ranks_.back() != 0) try_ranks(entry, codes, staged.values, rows, length, now);
        }
        tensors_.push_back(std::move(result));
    }

    // Fills `now` for all ranks above 0.
    template <class Code>
    void try_ranks(normans::tensor_profile entry, const std::vector<Code>& codes,
                   const mean_tensor& base, sample_rows& rows, uint32_t length,
                   length_result& now) const
    {
        const geometry& shape = base.shape;
        const auto pages = size_t(pages_of(shape, length));
        std::vector<normans::block_components> components(pages);
        for_pages(pages, [&](size_t page) {
            components[page] =
                page_components(entry.dtype, codes, base.fp32, entry.draft_scale,
                                range_of(shape, length, page), ranks_.back());
        });
        for (const uint32_t rank : ranks_) {
            if (rank == 0) continue;
            add_decay(components, rank, now);
            double factor_bits = 0;
            for (const normans::block_components& page : components)
                factor_bits += 8.0 * double(normans::draft_bytes(
                                         uint32_t(std::min<size_t>(rank, page.singular.size())),
                                         page.tokens, page.channels));
            if (factor_bits >= now.best()) continue;
            mean_tensor drafted = base;
            for_pages(pages, [&](size_t page) {
                const normans::block_factors factors =
                    normans::quantise_factors(components[page], rank);
                add_page_draft(factors.view(), entry.draft_scale, drafted.fp32,
                               range_of(shape, length, page));
            });
            rows.set_means(drafted);
            const std::vector<normans::channel_fit> fits =
                fit_channels(rows, shape, normans::shape_id::gaussian);
            normans::set_channels(entry, fits);
            now.bits[rank] =
                factor_bits + bits_of(entry, codes, drafted, entry.affine_sigma, length);
            if (now.bits[rank] < now.best()) {
                now.rank = rank;
                now.fits = fits;
            }
        }
    }

    static void add_decay(const std::vector<normans::block_components>& components, uint32_t rank,
                          length_result& now)
    {
        double sum = 0;
        for (const normans::block_components& page : components)
            if (rank <= page.singular.size())
                sum += page.singular[rank - 1] / page.singular.front();
        now.decay[rank] = components.empty() ? 0 : sum / double(components.size());
    }

    template <class Code>
    double bits_of(const normans::tensor_profile& entry, const std::vector<Code>& codes,
                   const mean_tensor& means, const std::vector<uint8_t>& sigma,
                   uint32_t length) const
    {
        const model_cost cost(entry.dtype, entry.shape, entry.sigma_offset, entry.marginal);
        std::vector<double> bits(size_t(pages_of(means.shape, length)));
        for_pages(bits.size(), [&](size_t page) {
            bits[page] = page_bits(cost, entry.dtype, entry.sigma_offset, codes, means.fp32, sigma,
                                   range_of(means.shape, length, page));
        });
        double sum = 0;
        for (const double page : bits) sum += page;
        return sum;
    }

    template <class Function>
    void for_pages(size_t pages, Function f) const
    {
        normans::thread_executor{options_.threads}(pages, f);
    }

    // One length for all, since a file has one: the one with the least sum, blocks' headers and
    // lanes included; of equals the longest.
    void choose_length()
    {
        double least = 0;
        for (const uint32_t length : lengths_) {
            double now = sum(length, [](const length_result& r) { return r.best(); });
            for (const tensor_result& tensor : tensors_) now += block_bits(tensor, length);
            if (length_ != 0 && now > least) continue;
            least = now;
            length_ = length;
        }
    }

    // What blocks take beside their codes: a compact header of 8 bytes or so, and of each lane's 32
    // bits of state about 8 say something of the codes.
    static double block_bits(const tensor_result& tensor, uint32_t length)
    {
        const normans::tensor_profile& entry = tensor.fitted.profile;
        const uint64_t channels = uint64_t(entry.heads) * entry.dim;
        if (channels == 0) return 0;
        const auto tokens = uint32_t(tensor.scalars / double(channels));
        const geometry shape{tokens, entry.heads, entry.dim};
        double bits = 0;
        for (uint64_t page = 0; page < pages_of(shape, length); ++page) {
            const uint64_t count = tokens_of_page(shape, length, page) * channels;
            const auto capped = uint32_t(std::min<uint64_t>(count, 0xffffffff));
            bits += 8.0 * 8 + 24.0 * normans::default_lanes(capped);
        }
        return bits;
    }

    template <class Part>
    double sum(uint32_t length, Part part, const target* what = nullptr) const
    {
        double total = 0;
        for (const tensor_result& tensor : tensors_)
            if (what == nullptr || tensor.what == *what) total += part(tensor.lengths.at(length));
        return total;
    }

    void print_target(target what) const
    {
        std::printf("%s, pages of %u tokens: singular values over the first, and bits a scalar "
                    "(drafts and codes) by rank\n%-8s",
                    target_name(what), length_, "tensor");
        for (const uint32_t rank : ranks_)
            if (rank > 1) std::printf(" %6s", ("s" + std::to_string(rank)).c_str());
        for (const uint32_t rank : ranks_)
            std::printf(" %8s", ("rank " + std::to_string(rank)).c_str());
        std::printf("  chosen\n");
        double scalars = 0, count = 0, drafted = 0;
        for (const tensor_result& tensor : tensors_) {
            if (tensor.what != what) continue;
            const length_result& now = tensor.lengths.at(length_);
            std::printf("%-8s", (std::to_string(tensor.key.first) +
                                 (tensor.key.second == kv_kind::k ? ".k" : ".v"))
                                    .c_str());
            for (const uint32_t rank : ranks_)
                if (rank > 1) std::printf(" %6.3f", now.decay.at(rank));
            for (const uint32_t rank : ranks_) {
                const auto found = now.bits.find(rank);
                if (found == now.bits.end()) std::printf(" %8s", "-");
                else std::printf(" %8.4f", measurement::over(found->second, tensor.scalars));
            }
            std::printf("  %6u\n", now.rank);
            scalars += tensor.scalars;
            count += 1;
            drafted += now.rank != 0 ? 1 : 0;
        }
        for (const uint32_t length : lengths_) {
            const double best = sum(length, [](const length_result& r) { return r.best(); }, &what);
            const double alone =
                sum(length, [](const length_result& r) { return r.bits.at(0); }, &what);
            std::printf("%s, %u tokens: %.4f bits a scalar, %.2f %% below rank 0 for all "
                        "(%.4f)%s\n",
                        target_name(what), length, measurement::over(best, scalars),
                        alone > 0 ? 100 * (1 - best / alone) : 0.0,
                        measurement::over(alone, scalars), length == length_ ? ", chosen" : "");
        }
        if (drafted == 0)
            std::printf("%s: low rank does not pay on this cache: rank 0 for all %.0f tensors\n\n",
                        target_name(what), count);
        else
            std::printf("%s: low rank pays for %.0f of %.0f tensors\n\n", target_name(what),
                        drafted, count);
    }

    nlohmann::ordered_json to_json() const
    {
        nlohmann::ordered_json json;
        json["predictor"] = predictor_name(options_.predictor);
        json["page_tokens"] = length_;
        json["tensors"] = nlohmann::ordered_json::array();
        for (const tensor_result& tensor : tensors_) {
            nlohmann::ordered_json one = {{"layer", tensor.key.first},
                                          {"kind", tensor.key.second == kv_kind::k ? "k" : "v"},
                                          {"target", target_name(tensor.what)},
                                          {"rank", tensor.lengths.at(length_).rank}};
            for (const auto& [length, result] : tensor.lengths)
                for (const auto& [rank, bits] : result.bits)
                    one["bits"][std::to_string(length)][std::to_string(rank)] = bits;
            json["tensors"].push_back(one);
        }
        return json;
    }

    const profile_rank_options& options_;
    safetensors_file file_;
    std::optional<mean_source> means_;  // of both
    std::vector<uint32_t> ranks_;
    std::vector<uint32_t> lengths_;
    std::vector<tensor_result> tensors_;
    uint32_t length_ = 0;  // chosen
};

}  // namespace

int profile_rank(const profile_rank_options& options)
{
    rank_search job(options);
    job.run();
    job.print();
    job.write();
    return 0;
}

}  // namespace kv_file
