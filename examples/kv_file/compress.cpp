// normans_kv compress: codes a cache, decodes it again in memory, checks every bit, reports.
// Only the library's calls are timed.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include <normans/host/codec.hpp>

#include "baselines.hpp"
#include "commands.hpp"
#include "drafts.hpp"
#include "model_bits.hpp"
#include "plane_coder.hpp"
#include "report.hpp"
#include "static_tables.hpp"

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
                       const normans::block_spec& spec, const staged_means& means,
                       const std::vector<Code>& codes, uint64_t page, const uint8_t* block,
                       size_t block_bytes)
{
    double bits = 0;
    const size_t channels = size_t(spec.heads) * spec.dim;
    for (uint32_t token = 0; token < spec.tokens; ++token) {
        const int step = normans::row_step_of(spec, block, block_bytes, token);
        for (size_t c = 0; c < channels; ++c) {
            const size_t i = coder.start(page) + token * channels + c;
            bits += cost.bits(codes[i], means.real_mean(i, c), means.sigma_of(page)[c], step);
        }
    }
    return bits;
}

// What a compact block's row steps take.
double row_step_bits(const normans::block_spec& spec, const normans::block_header& header)
{
    return 8.0 * double((uint64_t(spec.tokens) * header.rows.bits + 7) / 8);
}

class compressor {
public:
    explicit compressor(const compress_options& options)
        : options_(options),
          file_(options.input),
          profile_(load_profile(options.profile)),
          stages_(options.predictor, profile_.value, options.affine, options.threads)
    {
        check_same(options.input, "model", file_.metadata("model"), profile_.value.model);
        check_predictor(options.predictor, options.profile, profile_.value);
        if (has_drafts(options.predictor) && options.targets.has_quantised())
            fail("--predictor ", predictor_name(options.predictor),
                 " is for fp8 and bf16: drafts are not made of int8 and int4");
        if (has_drafts(options.predictor) && !options.affine)
            fail("--no-affine has no drafts: a profile's are about mapped means");
        if (!has_model(options.predictor)) return;
        means_.emplace(options.means, &file_);
        check_same(means_->file().path(), "predictor", means_->file().metadata("predictor"),
                   profile_.value.predictor);
    }

    void run()
    {
        const std::vector<cache_key> keys = keys_of(file_, options_.targets);
        if (keys.empty()) fail(options_.input, ": holds no tensors of the target");
        head_.page_tokens = options_.page_tokens != 0 ? options_.page_tokens : usual_page_tokens();
        head_.affine = options_.affine;
        head_.predictor = options_.predictor;
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
        for (const target what : targets_) {
            print_row("all", target_name(what), sum(what));
            if (is_quantised(what)) print_scales(sum(what));
        }
        print_row("total", "", total_);
        for (const target what : targets_) print_ideal(target_name(what), sum(what));
        if (targets_.size() > 1) print_ideal("total", total_);
        std::printf("\n%s: %zu bytes, of which %zu are the head, shared evenly by the targets; the "
                    "profile (%zu bytes) is not counted\n",
                    options_.output.c_str(), head_size_ + blocks_.size(), head_size_,
                    profile_.bytes);
        if (options_.coder == coder_choice::both) print_coders();
        if (options_.statics) print_statics();
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

    // The length that the profile's ranks were chosen for.
    uint32_t usual_page_tokens() const
    {
        for (const normans::tensor_profile& entry : profile_.value.tensors)
            if (has_drafts(options_.predictor) && entry.rank != 0) return entry.draft_tokens;
        return 64;
    }

    static std::string short_name(cache_key key)
    {
        return std::to_string(key.first) + (key.second == kv_kind::k ? ".k" : ".v");
    }

    const measurement& sum(target what) const { return sums_[size_t(what)]; }

    void add_tensor(cache_key key)
    {
        const mean_tensor& means =
            has_model(options_.predictor)
                ? stages_.begin(key, &means_->file(), {})
                : stages_.begin(key, nullptr, shape_without_means(file_, key));
        tensor_record record;
        record.key = key;
        record.shape = means.shape;
        record.mean_hash = means.hash;
        for (const target what : all_targets) {
            if (!options_.targets.has(what) || !has_target(file_, key, what)) continue;
            tensor_report report{key, what, {}};
            if (is_quantised(what)) code_quantised(what, means, record, report.measured);
            else code_floats(what, means.shape, record, report.measured);
            tensors_.push_back(report);
        }
        head_.tensors.push_back(record);
    }

    void code_floats(target what, const geometry& shape, tensor_record& record, measurement& m)
    {
        const std::string name = tensor_name(record.key, target_name(what));
        const scalar_type type = scalar_of(file_, record.key, what);
        if (!(geometry_of(file_, name) == shape))
            fail(file_.path(), ": ", name, " has shape ", to_text(geometry_of(file_, name)),
                 ", its means ", to_text(shape));
        if (what == target::fp8) record.fp8 = type;
        else record.bf16 = true;
        const normans::tensor_profile& entry =
            profile_entry(profile_.value, options_.profile, record.key, type, shape);
        if (what == target::fp8) code_tensor<uint8_t>(what, entry, name, record, m);
        else code_tensor<uint16_t>(what, entry, name, record, m);
    }

    template <class Code>
    void code_tensor(target what, const normans::tensor_profile& entry, const std::string& name,
                     tensor_record& record, measurement& m)
    {
        const std::vector<Code> codes = load_codes<Code>(file_, name);
        staged_means means = stages_.before(what, entry);
        if (has_drafts(options_.predictor) && entry.rank != 0)
            record.drafts[size_t(what)] = add_drafts(means, entry, codes, m);
        page_coder coder(entry, means, head_.page_tokens);
        const auto code = [&](measurement& to, std::vector<uint8_t>& blocks) {
            const model_cost cost(entry.dtype, coder.shape_of_model(), entry.sigma_offset,
                                  entry.marginal);
            const auto bits = [&](const encode_task<Code>& done, uint64_t page) {
                return page_model_bits(cost, coder, done.spec, means, codes, page, done.out,
                                       done.result.bytes);
            };
            code_plane(coder, codes, name, bits, to, blocks);
        };
        if (what == target::fp8 && options_.coder != coder_choice::rans)
            record.fp8_coder = code_by_choice(what, entry.dtype, shape_of_banks(entry), coder,
                                              code, m);
        else code(m, blocks_);
        stages_.after(what, entry, means, codes);
        m.scalars = double(codes.size());
        m.raw_bytes = double(codes.size() * sizeof(Code));
        if (options_.statics)
            m.statics = code_statically(coder, codes, name, options_.lanes, options_.threads);
        if (options_.baselines) {
            const uint8_t* raw = file_.data(required(file_, name));
            add_baselines({raw, raw + codes.size() * sizeof(Code)}, sizeof(Code), m);
        }
    }

    // Makes drafts and takes the means that a decoder will read from them. False: none pays.
    template <class Code>
    bool add_drafts(staged_means& means, const normans::tensor_profile& entry,
                    const std::vector<Code>& codes, measurement& m)
    {
        const std::vector<uint8_t> drafts = make_drafts(means, entry, head_.page_tokens, codes);
        if (drafts.empty()) return false;
        size_t at = 0;
        uint64_t page = 0;
        const normans::status code =
            mean_stages::draft(means, entry, head_.page_tokens, drafts, at, page);
        if (code != normans::status::ok || at != drafts.size())
            fail("a draft that was written is not read (", normans::status_name(code), ")");
        for (const uint8_t drafted : means.is_drafted) m.drafted_pages += drafted;
        m.draft_bytes += double(drafts.size());
        m.coded_bytes += double(drafts.size());
        blocks_.insert(blocks_.end(), drafts.begin(), drafts.end());
        return true;
    }

    static void add_baselines(const std::vector<uint8_t>& bytes, size_t code_bytes, measurement& m)
    {
        m.bytewise_bits += bytewise_bits(bytes, code_bytes);
        m.zstd19_bytes += double(zstd19_bytes(bytes));
    }

    void code_quantised(target what, const mean_tensor& means, tensor_record& record,
                        measurement& m)
    {
        const std::string name = tensor_name(record.key, target_name(what));
        const quantised_tensor tensor = load_quantised(file_, record.key, what, means.shape);
        const normans::tensor_profile& values = profile_entry(
            profile_.value, options_.profile, record.key, scalar_type::bf16, means.shape);
        const normans::tensor_profile& maxima =
            maxima_entry(profile_.value, options_.profile, record.key, what, means.shape);
        quantised_coder coder(what, values, maxima, means, record.shape, head_.page_tokens,
                              options_.affine);
        const auto code = [&](const plane_coder& plane, const auto& codes, const std::string& of,
                              measurement& to, std::vector<uint8_t>& blocks) {
            const model_cost cost(plane.common.dtype, plane.common.shape,
                                  plane.common.sigma_offset, maxima.marginal);
            const auto bits = [&](const auto& done, uint64_t page) {
                return plane.model_bits(cost, codes, page, done.out, done.result.bytes);
            };
            code_plane(plane, codes, of, bits, to, blocks);
        };

        measurement scales;
        std::vector<uint16_t> magnitudes = tensor.scales;
        if (what == target::int4) {
            std::vector<uint8_t> signs;
            split_signs(tensor.scales, scales_of(means.shape).dim, magnitudes, signs);
            code(coder.scales, magnitudes, name + "_scale", scales, blocks_);
            code(coder.signs, signs, name + "_sign", scales, blocks_);
        } else {
            code(coder.scales, magnitudes, name + "_scale", scales, blocks_);
        }
        coder.set_scales(tensor.scales);

        (what == target::int8 ? record.int8 : record.int4) = code_by_choice(
            what, coder.codes.common.dtype, coder.codes.common.shape, coder,
            [&](measurement& to, std::vector<uint8_t>& blocks) {
                code(coder.codes, tensor.codes, name, to, blocks);
            },
            m);
        m.add(scales);
        m.scalars = double(means.shape.scalars());
        m.scales.coded_bytes = scales.coded_bytes;
        m.scales.model_bits = scales.model_bits;
        m.scales.raw_bytes = double(2 * tensor.scales.size());
        m.raw_bytes = double(tensor.codes.size()) + m.scales.raw_bytes;
        if (options_.statics) {
            m.statics = code_statically(coder.codes, tensor.codes, name, options_.lanes,
                                        options_.threads);
            m.statics.coded_bytes += m.scales.raw_bytes;
        }
        if (options_.baselines) {
            add_baselines(tensor.codes, 1, m);
            add_baselines(to_bytes(tensor.scales), 2, m);
        }
    }

    // Codes by either coder, or by both; then the one that decodes faster, if it is not 1 % larger
    // than the other. By what coder.set_bank() got last, code(measurement, blocks) codes.
    template <class Coder, class Function>
    coder_id code_by_choice(target what, scalar_type type, normans::shape_id shape, Coder& coder,
                            const Function& code, measurement& m)
    {
        struct candidate {
            coder_id id;
            measurement measured;
            std::vector<uint8_t> blocks;
        };
        std::vector<candidate> candidates;
        if (options_.coder != coder_choice::tans) candidates.push_back({coder_id::rans, {}, {}});
        if (options_.coder != coder_choice::rans) candidates.push_back({coder_id::tans, {}, {}});
        size_t best = 0;
        for (size_t i = 0; i < candidates.size(); ++i) {
            candidate& now = candidates[i];
            coder.set_bank(now.id == coder_id::tans ? bank_of(what, type, shape) : nullptr);
            code(now.measured, now.blocks);
            const bool faster =
                now.measured.decode_seconds < candidates[best].measured.decode_seconds;
            const size_t fast = faster ? i : best, slow = faster ? best : i;
            best = candidates[fast].measured.coded_bytes <=
                           1.01 * candidates[slow].measured.coded_bytes
                       ? fast
                       : slow;
        }
        const candidate& chosen = candidates[best];
        blocks_.insert(blocks_.end(), chosen.blocks.begin(), chosen.blocks.end());
        if (chosen.id == coder_id::tans)
            head_.plan(what) = normans::pack_plan(bank_of(what, type, shape)->plan);
        m.add(chosen.measured);
        for (const candidate& one : candidates)
            m.coders[size_t(one.id)] = {one.measured.coded_bytes, one.measured.encode_seconds,
                                        one.measured.decode_seconds,
                                        one.id == chosen.id ? 1.0 : 0.0};
        return chosen.id;
    }

    // One bank per target: all its tensors have the type and the shape of the first.
    const normans::tans_bank* bank_of(target what, scalar_type type, normans::shape_id shape)
    {
        std::optional<loaded_bank>& bank = banks_[size_t(what)];
        if (!bank) {
            const normans::bank_choice choice =
                normans::plan_type_bank(type, size_t(options_.bank_kib) * 1024, shape);
            if (!choice.fits)
                fail("no bank for ", target_name(what), " fits in ", options_.bank_kib, " KiB");
            bank.emplace(type, choice.plan, true);
        }
        if (!bank->serves(type, shape))
            fail(options_.profile, ": tensors of several types or shapes do not share a bank");
        return bank->get();
    }

    // Codes all pages of a plane, decodes and compares them. bits(task, page): the model's.
    template <class Coder, class Code, class Bits>
    void code_plane(const Coder& coder, const std::vector<Code>& codes, const std::string& name,
                    const Bits& bits, measurement& m, std::vector<uint8_t>& blocks)
    {
        std::vector<Code> back(codes.size());
        for (uint64_t first = 0; first < coder.pages(); first += pages_per_call) {
            const auto count = size_t(std::min<uint64_t>(coder.pages() - first, pages_per_call));
            const auto coded = encode_pages(coder, codes, name, first, count, m);
            decode_pages(coder, back, name, first, coded, m);
            for (size_t i = 0; i < count; ++i) {
                const normans::encode_result& result = coded[i].result;
                const normans::compact_result kept = append_compact(coded[i], blocks);
                if (!kept)
                    fail(file_.path(), ": ", name, ", page ", first + i, " cannot be kept (",
                         normans::status_name(kept.code), ")");
                m.coded_bytes += double(kept.compact_bytes);
                m.escapes += result.escapes;
                m.blocks[size_t(result.mode)] += 1;
                m.row_scaled_blocks += result.row_scaled ? 1 : 0;
                m.row_step_bits += row_step_bits(coded[i].spec, kept.header);
                m.model_bits += bits(coded[i], first + i);
            }
        }
        m.exact = codes == back;
        if (!m.exact) fail(file_.path(), ": ", name, " decodes to other bits than were coded");
    }

    // What the file keeps of a block, after a look at what a reader makes of it.
    template <class Code>
    normans::compact_result append_compact(const encode_task<Code>& task,
                                           std::vector<uint8_t>& blocks)
    {
        const normans::compact_spec what = compact_spec_of(task.spec);
        const size_t length = task.result.bytes, at = blocks.size();
        const size_t room = normans::max_compact_bytes(length);
        blocks.resize(at + room);
        const normans::compact_result kept =
            compact_block(what, task.out, length, &blocks[at], room);
        blocks.resize(at + kept.compact_bytes);
        if (!kept) return kept;
        expanded_.resize(length);
        normans::compact_result back =
            expand_block(what, &blocks[at], kept.compact_bytes, expanded_.data(), length);
        if (back && !std::equal(expanded_.begin(), expanded_.end(), task.out))
            back.code = normans::status::corrupt_stream;
        return back;
    }

    // Blocks lie in scratch_ until the next call.
    template <class Coder, class Code>
    std::vector<encode_task<Code>> encode_pages(const Coder& coder,
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
            if (spec.lanes == 0) spec.lanes = options_.lanes;
            spec.row_scale = spec.row_scale && options_.row_scale;
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

    template <class Coder, class Code>
    void decode_pages(const Coder& coder, std::vector<Code>& back, const std::string& name,
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
        for (const target what : all_targets)
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
        json["means"] = predictor_name(options_.predictor);
        json["page_tokens"] = head_.page_tokens;
        json["lanes"] = options_.lanes;
        json["affine"] = options_.affine;
        json["row_scale"] = options_.row_scale;
        json["threads"] = options_.threads;
        json["coder"] = coder_name(options_.coder);
        json["bank_kib"] = options_.bank_kib;
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

    // The codes alone, without the scales.
    void print_coders() const
    {
        std::printf("\n%-11s %-6s %11s %8s %9s %9s %8s %10s\n", "codes by", "target",
                    "coded bytes", "bits", "enc MB/s", "dec MB/s", "tensors", "bank bytes");
        for (const target what : targets_) {
            const measurement& m = sum(what);
            for (const coder_id id : {coder_id::rans, coder_id::tans}) {
                const auto& part = m.coders[size_t(id)];
                if (!(part.coded_bytes > 0)) continue;
                const double raw = (m.raw_bytes - m.scales.raw_bytes) / 1e6;
                const auto& bank = banks_[size_t(what)];
                std::printf("%-11s %-6s %11.0f %8.4f %9.1f %9.1f %8.0f %10zu\n",
                            id == coder_id::rans ? "rANS" : "tANS", target_name(what),
                            part.coded_bytes, measurement::over(8 * part.coded_bytes, m.scalars),
                            measurement::over(raw, part.encode_seconds),
                            measurement::over(raw, part.decode_seconds), part.chosen,
                            id == coder_id::rans ? size_t(0)
                                                 : normans::bank_bytes(bank->get()->grid,
                                                                       bank->get()->plan));
            }
        }
    }

    // No predictions: what a table per tensor comes to on the same codes and pages.
    void print_statics() const
    {
        std::printf("\n%-13s %-6s %11s %8s %8s %9s %9s\n", "static tables", "target",
                    "coded bytes", "bits", "ratio", "enc MB/s", "dec MB/s");
        for (const target what : targets_) {
            const measurement& m = sum(what);
            std::printf("%-13s %-6s %11.0f %8.4f %7.2fx %9.1f %9.1f\n", "order 0",
                        target_name(what), m.statics.coded_bytes,
                        measurement::over(8 * m.statics.coded_bytes, m.scalars),
                        measurement::over(m.raw_bytes, m.statics.coded_bytes),
                        measurement::over(m.raw_bytes / 1e6, m.statics.encode_seconds),
                        measurement::over(m.raw_bytes / 1e6, m.statics.decode_seconds));
        }
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
    std::optional<mean_source> means_;  // with a model
    loaded_profile profile_;
    mean_stages stages_;
    container_head head_;
    std::vector<uint8_t> blocks_;  // compact
    std::vector<uint8_t> scratch_, expanded_;
    std::vector<tensor_report> tensors_;
    std::vector<target> targets_;
    measurement sums_[4];  // by target
    std::optional<loaded_bank> banks_[4];  // by target
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
