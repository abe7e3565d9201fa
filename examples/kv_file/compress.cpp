// normans_kv compress: codes a cache, decodes it again in memory, checks every bit, reports.
// Only the library's calls are timed.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include <normans/host/codec.hpp>

#include "baselines.hpp"
#include "commands.hpp"
#include "model_bits.hpp"
#include "page_coder.hpp"
#include "report.hpp"

namespace kv_file {
namespace {

using seconds = std::chrono::duration<double>;

struct tensor_report {
    cache_key key;
    target what;
    measurement measured;
};

// The model's bits for one page that was just coded.
template <class Code>
double page_model_bits(const model_cost& cost, const page_coder& coder,
                       const normans::block_spec& spec, const mean_tensor& means,
                       const std::vector<Code>& codes, uint64_t page, const uint8_t* block,
                       size_t block_bytes)
{
    double bits = 0;
    const size_t channels = size_t(spec.heads) * spec.dim;
    for (uint32_t token = 0; token < spec.tokens; ++token) {
        const int step = normans::row_step_of(spec, block, block_bytes, token);
        for (size_t c = 0; c < channels; ++c) {
            const size_t i = coder.start(page) + token * channels + c;
            const double mean = double(coder.a(c)) * double(means.at(i)) + double(coder.b(c));
            bits += cost.bits(codes[i], mean, coder.sigma_index(c), step);
        }
    }
    return bits;
}

class compressor {
public:
    explicit compressor(const compress_options& options)
        : options_(options),
          file_(options.input),
          means_(options.means, &file_),
          profile_(load_profile(options.profile))
    {
        check_same(options.input, "model", file_.metadata("model"), profile_.value.model);
        check_same(means_.file().path(), "predictor", means_.file().metadata("predictor"),
                   profile_.value.predictor);
    }

    void run()
    {
        const std::vector<cache_key> keys = keys_of(file_, options_.targets);
        if (keys.empty()) fail(options_.input, ": holds no tensors of the target");
        head_.page_tokens = options_.page_tokens;
        head_.affine = options_.affine;
        head_.profile_fingerprint = profile_.fingerprint;
        progress_bar progress(double(keys.size()));
        for (const cache_key& key : keys) {
            add_tensor(key);
            progress.advance(1);
        }
    }

    void write_file()
    {
        const std::vector<uint8_t> head = head_bytes(head_);
        head_size_ = head.size();
        output_file out(options_.output);
        out.write(head.data(), head.size());
        out.write(blocks_.data(), blocks_.size());
        std::optional<output_file> report;
        sum_up();
        if (!options_.report.empty()) {
            report.emplace(options_.report);
            const std::string text = report_json().dump(2, ' ', false, replace_bad_text) + "\n";
            report->write(text.data(), text.size());
        }
        out.commit();
        if (report) report->commit();
    }

    void print() const
    {
        print_table_head();
        for (const tensor_report& tensor : tensors_)
            print_row(short_name(tensor.key), target_name(tensor.what), tensor.measured);
        for (const target what : targets_) print_row("all", target_name(what), sum(what));
        print_row("total", "", total_);
        std::printf("\n%s: %zu bytes, of which %zu are the head, shared evenly by the targets; the "
                    "profile (%zu bytes) is not counted\n",
                    options_.output.c_str(), head_size_ + blocks_.size(), head_size_,
                    profile_.bytes);
        if (options_.baselines) print_baselines();
    }

private:
    static constexpr auto replace_bad_text = nlohmann::json::error_handler_t::replace;

    static void check_same(const std::string& path, const char* what, const std::string& here,
                           const std::string& there)
    {
        if (!here.empty() && !there.empty() && here != there)
            fail(path, ": ", what, " is \"", here, "\", the profile's is \"", there, "\"");
    }

    static std::string short_name(cache_key key)
    {
        return std::to_string(key.first) + (key.second == kv_kind::k ? ".k" : ".v");
    }

    const measurement& sum(target what) const { return sums_[size_t(what)]; }

    void add_tensor(cache_key key)
    {
        const mean_tensor means = load_means(means_.file(), key);
        tensor_record record;
        record.key = key;
        record.shape = means.shape;
        record.mean_hash = means.hash;
        for (const target what : {target::fp8, target::bf16}) {
            const std::string name = tensor_name(key, target_name(what));
            if (!options_.targets.has(what) || !has_target(file_, key, what)) continue;
            const scalar_type type = scalar_of(file_, key, what);
            if (!(geometry_of(file_, name) == means.shape))
                fail(file_.path(), ": ", name, " has shape ", to_text(geometry_of(file_, name)),
                     ", its means ", to_text(means.shape));
            if (what == target::fp8) record.fp8 = type;
            else record.bf16 = true;
            const normans::tensor_profile& entry =
                profile_entry(profile_.value, options_.profile, key, type, means.shape);
            tensor_report report{key, what, {}};
            if (what == target::fp8) code_tensor<uint8_t>(entry, means, name, report.measured);
            else code_tensor<uint16_t>(entry, means, name, report.measured);
            tensors_.push_back(report);
        }
        head_.tensors.push_back(record);
    }

    template <class Code>
    void code_tensor(const normans::tensor_profile& entry, const mean_tensor& means,
                     const std::string& name, measurement& m)
    {
        const std::vector<Code> codes = load_codes<Code>(file_, name);
        std::vector<Code> back(codes.size());
        const page_coder coder(entry, means, options_.page_tokens, options_.affine);
        const model_cost cost(entry.dtype, entry.shape, entry.sigma_offset, entry.marginal);
        for (uint64_t first = 0; first < coder.pages(); first += pages_per_call) {
            const auto count = size_t(std::min<uint64_t>(coder.pages() - first, pages_per_call));
            const auto coded = encode_pages(coder, codes, name, first, count, m);
            decode_pages(coder, back, name, first, coded, m);
            for (size_t i = 0; i < count; ++i) {
                const normans::encode_result& result = coded[i].result;
                m.coded_bytes += double(result.bytes);
                m.escapes += result.escapes;
                m.blocks[size_t(result.mode)] += 1;
                m.row_scaled_blocks += result.row_scaled ? 1 : 0;
                m.model_bits += page_model_bits(cost, coder, coded[i].spec, means, codes, first + i,
                                                coded[i].out, result.bytes);
                blocks_.insert(blocks_.end(), coded[i].out, coded[i].out + result.bytes);
            }
        }
        m.scalars = double(codes.size());
        m.raw_bytes = double(codes.size() * sizeof(Code));
        m.exact = codes == back;
        if (!m.exact) fail(file_.path(), ": ", name, " decodes to other bits than were coded");
        if (options_.baselines) {
            const uint8_t* raw = file_.data(required(file_, name));
            const std::vector<uint8_t> bytes(raw, raw + codes.size() * sizeof(Code));
            m.bytewise_bits = bytewise_bits(bytes, sizeof(Code));
            m.zstd19_bytes = double(zstd19_bytes(bytes));
        }
    }

    // Blocks lie in scratch_ until the next call.
    template <class Code>
    std::vector<encode_task<Code>> encode_pages(const page_coder& coder,
                                                const std::vector<Code>& codes,
                                                const std::string& name, uint64_t first,
                                                size_t count, measurement& m)
    {
        const size_t room = normans::max_encoded_bytes(coder.spec(first));  // no page is larger
        if (room == 0)
            fail(file_.path(), ": a page of ", name, " is too large; take fewer page tokens");
        scratch_.resize(count * room);
        std::vector<encode_task<Code>> tasks;
        for (size_t i = 0; i < count; ++i) {
            normans::block_spec spec = coder.spec(first + i);
            spec.lanes = options_.lanes;
            spec.row_scale = options_.row_scale;
            tasks.push_back(
                coder.encoding(spec, codes.data(), first + i, scratch_.data() + i * room, room));
        }
        m.encode_seconds += timed_code_pages(tasks);
        for (size_t i = 0; i < count; ++i)
            if (!tasks[i].result)
                fail(file_.path(), ": ", name, ", page ", first + i, " cannot be coded (",
                     normans::status_name(tasks[i].result.code), ")");
        return tasks;
    }

    template <class Code>
    void decode_pages(const page_coder& coder, std::vector<Code>& back, const std::string& name,
                      uint64_t first, const std::vector<encode_task<Code>>& coded, measurement& m)
    {
        std::vector<decode_task<Code>> tasks;
        for (size_t i = 0; i < coded.size(); ++i)
            tasks.push_back(
                coder.decoding(coded[i].out, coded[i].result.bytes, back.data(), first + i));
        m.decode_seconds += timed_code_pages(tasks);
        for (size_t i = 0; i < coded.size(); ++i)
            if (!tasks[i].result || tasks[i].result.bytes != coded[i].result.bytes)
                fail(file_.path(), ": ", name, ", page ", first + i, " does not decode (",
                     normans::status_name(tasks[i].result.code), ")");
    }

    template <class Task>
    double timed_code_pages(std::vector<Task>& tasks) const
    {
        const auto begin = std::chrono::steady_clock::now();
        code_pages(tasks, options_.threads);
        return seconds(std::chrono::steady_clock::now() - begin).count();
    }

    // Per target and in total. The head belongs to the targets evenly, an odd byte to the first.
    void sum_up()
    {
        for (const tensor_report& tensor : tensors_)
            sums_[size_t(tensor.what)].add(tensor.measured);
        for (const target what : {target::fp8, target::bf16})
            for (const tensor_report& tensor : tensors_)
                if (tensor.what == what) {
                    targets_.push_back(what);
                    break;
                }
        for (size_t i = 0; i < targets_.size(); ++i) {
            const size_t odd = i == 0 ? head_size_ % targets_.size() : 0;
            const size_t share = head_size_ / targets_.size() + odd;
            sums_[size_t(targets_[i])].coded_bytes += double(share);
            total_.add(sum(targets_[i]));
        }
    }

    nlohmann::ordered_json report_json() const
    {
        nlohmann::ordered_json json;
        json["input"] = options_.input;
        json["output"] = options_.output;
        json["model"] = profile_.value.model;
        json["predictor"] = profile_.value.predictor;
        json["page_tokens"] = options_.page_tokens;
        json["lanes"] = options_.lanes;
        json["affine"] = options_.affine;
        json["row_scale"] = options_.row_scale;
        json["threads"] = options_.threads;
        json["file_bytes"] = head_size_ + blocks_.size();
        json["head_bytes"] = head_size_;
        json["profile_bytes"] = profile_.bytes;
        for (const target what : targets_)
            json["targets"][target_name(what)] = sum(what).to_json(options_.baselines);
        json["total"] = total_.to_json(options_.baselines);
        json["tensors"] = nlohmann::ordered_json::array();
        for (const tensor_report& tensor : tensors_) {
            nlohmann::ordered_json one = {{"layer", tensor.key.first},
                                          {"kind", tensor.key.second == kv_kind::k ? "k" : "v"},
                                          {"target", target_name(tensor.what)}};
            one.update(tensor.measured.to_json(options_.baselines));
            json["tensors"].push_back(one);
        }
        return json;
    }

    void print_baselines() const
    {
        std::printf("\n%-34s", "ratio over the raw bytes");
        for (const target what : targets_) std::printf(" %8s", target_name(what));
        const auto line = [&](const char* name, auto ratio) {
            std::printf("\n%-34s", name);
            for (const target what : targets_) std::printf(" %7.2fx", ratio(sum(what)));
        };
        line("normans", [](const measurement& m) { return m.ratio(); });
        line("entropy of single bytes", [](const measurement& m) {
            return measurement::over(m.raw_bytes, m.bytewise_bits / 8);
        });
        line("zstd -19, tensor by tensor", [](const measurement& m) {
            return measurement::over(m.raw_bytes, m.zstd19_bytes);
        });
        std::printf("\n");
    }

    const compress_options& options_;
    safetensors_file file_;
    mean_source means_;
    loaded_profile profile_;
    container_head head_;
    std::vector<uint8_t> blocks_;
    std::vector<uint8_t> scratch_;
    std::vector<tensor_report> tensors_;
    std::vector<target> targets_;
    measurement sums_[2];  // by target
    measurement total_;
    size_t head_size_ = 0;
};

}  // namespace

int compress(const compress_options& options)
{
    compressor job(options);
    job.run();
    job.write_file();
    job.print();
    return 0;
}

}  // namespace kv_file
