// normans_kv decompress and verify: both decode a .nkv file tensor by tensor.

#include <algorithm>
#include <cstdio>
#include <optional>

#include "commands.hpp"
#include "plane_coder.hpp"
#include "report.hpp"

namespace kv_file {
namespace {

// All that decoding needs, checked against each other before anything is decoded.
class decoder {
public:
    decoder(const decode_options& options, const safetensors_file* cache)
        : options_(options),
          bytes_(read_file(options.coded)),
          head_(read_head(options.coded, bytes_)),
          profile_(load_profile(options.profile)),
          stages_(head_.predictor, profile_.value, head_.affine, options.threads)
    {
        if (head_.profile_fingerprint != profile_.fingerprint)
            fail(options.coded, ": was coded under another profile than ", options.profile);
        check_predictor(head_.predictor, options.profile, profile_.value);
        if (!has_model(head_.predictor)) {
            for (const tensor_record& record : head_.tensors) check_shape(record);
            return;
        }
        if (options.means.empty() && cache == nullptr)
            fail(options.coded, ": was coded under a model's means: --mu, the file with them, is "
                                "needed");
        means_.emplace(options.means, cache);
        const std::string predictor = means_->file().metadata("predictor");
        if (!predictor.empty() && !profile_.value.predictor.empty() &&
            predictor != profile_.value.predictor)
            fail(means_->file().path(), ": predictor is \"", predictor, "\", the profile's is \"",
                 profile_.value.predictor, "\"");
    }

    const container_head& head() const { return head_; }
    const normans::profile& profile() const { return profile_.value; }

    /// visit(record, target, codes) for every tensor; false ends it early.
    template <class Visitor>
    void for_each_tensor(Visitor&& visit)
    {
        size_t at = head_bytes(head_).size();
        progress_bar progress(double(head_.tensors.size()));
        for (const tensor_record& record : head_.tensors) {
            const mean_tensor& means = stages_.begin(
                record.key, means_ ? &means_->file() : nullptr, record.shape);
            if (means_) check_means(record, means);
            for (const target what : all_targets)
                if (record.has(what) && !decode_target(record, what, means, at, visit)) return;
            progress.advance(1);
        }
        if (at != bytes_.size()) fail(options_.coded, ": damaged: bytes behind the last block");
    }

private:
    void check_means(const tensor_record& record, const mean_tensor& means) const
    {
        const std::string name = tensor_name(record.key, "mu"), path = means_->file().path();
        if (!(means.shape == record.shape))
            fail(path, ": ", name, " has shape ", to_text(means.shape), ", but ",
                 to_text(record.shape), " was coded");
        if (means.hash != record.mean_hash)
            fail(path, ": ", name, " is not the one that ", options_.coded, " was coded under");
    }

    // Without means nothing but this bounds what is decoded: channels by the profile, tokens by
    // the caller.
    void check_shape(const tensor_record& record) const
    {
        if (record.shape.tokens > options_.max_tokens)
            fail(options_.coded, ": ", tensor_name(record.key, "*"), " has ", record.shape.tokens,
                 " tokens, more than --max-tokens ", options_.max_tokens);
        for (const target what : all_targets)
            if (record.has(what))
                profile_entry(profile_.value, options_.profile, record.key,
                              is_quantised(what) ? scalar_type::bf16 : record.dtype(what),
                              record.shape);
    }

    template <class Visitor>
    bool decode_target(const tensor_record& record, target what, const mean_tensor& means,
                       size_t& at, Visitor& visit)
    {
        switch (what) {
        case target::fp8:
            return visit(record, what, decode_floats<uint8_t>(record, what, at));
        case target::bf16:
            return visit(record, what, decode_floats<uint16_t>(record, what, at));
        default: return visit(record, what, decode_quantised(record, what, means, at));
        }
    }

    template <class Code>
    std::vector<Code> decode_floats(const tensor_record& record, target what, size_t& at)
    {
        const normans::tensor_profile& entry = profile_entry(
            profile_.value, options_.profile, record.key, record.dtype(what), record.shape);
        const std::string name = tensor_name(record.key, target_name(what));
        staged_means means = stages_.before(what, entry);
        if (record.drafted(what)) read_drafts(means, entry, name, at);
        page_coder coder(entry, means, head_.page_tokens);
        if (record.coder(what) == coder_id::tans)
            coder.set_bank(bank_of(what, entry.dtype, shape_of_banks(entry)));
        std::vector<Code> codes(size_t(record.shape.scalars()));
        decode_plane(coder, codes, name, at);
        stages_.after(what, entry, means, codes);
        return codes;
    }

    void read_drafts(staged_means& means, const normans::tensor_profile& entry,
                     const std::string& name, size_t& at) const
    {
        if (entry.rank == 0) fail(options_.coded, ": damaged: ", name, " has drafts of rank 0");
        uint64_t page = 0;
        const normans::status code =
            mean_stages::draft(means, entry, head_.page_tokens, bytes_, at, page);
        if (code != normans::status::ok)
            fail(options_.coded, ": damaged: the draft of ", name, ", page ", page, " (",
                 normans::status_name(code), ")");
    }

    quantised_tensor decode_quantised(const tensor_record& record, target what,
                                      const mean_tensor& means, size_t& at)
    {
        const std::string name = tensor_name(record.key, target_name(what));
        const normans::tensor_profile& values = profile_entry(
            profile_.value, options_.profile, record.key, scalar_type::bf16, record.shape);
        const normans::tensor_profile& maxima =
            maxima_entry(profile_.value, options_.profile, record.key, what, record.shape);
        quantised_coder coder(what, values, maxima, means, record.shape, head_.page_tokens,
                              head_.affine);
        const geometry groups = scales_of(record.shape);
        quantised_tensor tensor;
        tensor.scales.resize(coder.scales.memory());
        decode_plane(coder.scales, tensor.scales, name + "_scale", at);
        if (what == target::int4) {
            std::vector<uint8_t> signs(coder.signs.memory());
            decode_plane(coder.signs, signs, name + "_sign", at);
            if (!join_signs(tensor.scales, signs, groups.dim))
                fail(options_.coded, ": damaged: ", name, "_sign holds no signs");
        }
        coder.set_scales(tensor.scales);
        if (record.coder(what) == coder_id::tans)
            coder.set_bank(bank_of(what, coder.codes.common.dtype, coder.codes.common.shape));
        tensor.codes.resize(coder.codes.memory());
        decode_plane(coder.codes, tensor.codes, name, at);
        return tensor;
    }

    // Of the head's plan, which read_head has checked.
    const normans::tans_bank* bank_of(target what, scalar_type type, normans::shape_id shape)
    {
        std::optional<loaded_bank>& bank = banks_[size_t(what)];
        if (!bank || !bank->serves(type, shape))
            bank.emplace(type, normans::unpack_plan(shape, head_.plan(what)), false);
        return bank->get();
    }

    template <class Coder, class Code>
    void decode_plane(const Coder& coder, std::vector<Code>& codes, const std::string& name,
                      size_t& at)
    {
        std::vector<decode_task<Code>> tasks;
        std::vector<size_t> ends;  // of blocks in blocks_
        for (uint64_t page = 0; page < coder.pages();) {
            const uint64_t count = std::min<uint64_t>(coder.pages() - page, pages_per_call);
            normans::status next = normans::status::ok;
            tasks.clear();
            ends.clear();
            blocks_.clear();
            while (ends.size() < count) {
                next = expand_next(coder.spec(page + ends.size()), at);
                if (next != normans::status::ok) break;
                ends.push_back(blocks_.size());
            }
            for (size_t i = 0; i < ends.size(); ++i) {
                const size_t first = i == 0 ? 0 : ends[i - 1];
                tasks.push_back(coder.decoding(blocks_.data() + first, ends[i] - first,
                                               codes.data(), page + i));
            }
            if (!tasks.empty()) code_pages(tasks, options_.threads);
            for (const decode_task<Code>& task : tasks) {
                if (!task.result) damaged(name, page, task.result.code);
                ++page;
            }
            if (next != normans::status::ok) damaged(name, page, next);
        }
    }

    [[noreturn]] void damaged(const std::string& name, uint64_t page, normans::status code) const
    {
        fail(options_.coded, ": damaged: ", name, ", page ", page, " (",
             normans::status_name(code), ")");
    }

    // Appends the file's block at `at` to blocks_ and goes behind it.
    normans::status expand_next(const normans::block_spec& spec, size_t& at)
    {
        const normans::compact_spec what = compact_spec_of(spec);
        const uint8_t* const from = bytes_.data() + at;
        const size_t rest = bytes_.size() - at, first = blocks_.size();
        const normans::compact_result found = read_compact(what, from, rest);
        if (!found) return found.code;
        blocks_.resize(first + found.block_bytes);
        at += found.compact_bytes;
        return expand_block(what, from, rest, &blocks_[first], found.block_bytes).code;
    }

    const decode_options& options_;
    std::vector<uint8_t> bytes_;
    std::vector<uint8_t> blocks_;  // of some pages, no longer compact
    container_head head_;
    loaded_profile profile_;
    std::optional<mean_source> means_;  // with a model
    mean_stages stages_;
    std::optional<loaded_bank> banks_[4];  // by target
};

template <class Codes>
constexpr bool is_quantised_v = std::is_same_v<std::decay_t<Codes>, quantised_tensor>;

// Compares with the cache a tensor that was decoded; prints the first difference.
class comparison {
public:
    explicit comparison(const safetensors_file& cache) : cache_(cache) {}

    bool operator()(const tensor_record& record, target what, const quantised_tensor& decoded)
    {
        const std::string name = tensor_name(record.key, target_name(what));
        const quantised_tensor expected = load_quantised(cache_, record.key, what, record.shape);
        const geometry groups = scales_of(record.shape);
        const size_t row = size_t(padded_row(record.dtype(what), record.shape.dim));
        const auto scale = [](const quantised_tensor& of, size_t i) { return of.scales[i]; };
        const auto code = [&](const quantised_tensor& of, size_t i) {
            const size_t at = i / record.shape.dim * row + i % record.shape.dim;
            return what == target::int8 ? uint32_t(of.codes[at]) : nibble(of.codes, at);
        };
        return same(name + "_scale", groups, "group", 4, expected, decoded, scale) &&
               same(name, record.shape, "channel", what == target::int8 ? 2 : 1, expected, decoded,
                    code);
    }

    template <class Code>
    bool operator()(const tensor_record& record, target what, const std::vector<Code>& decoded)
    {
        const std::string name = tensor_name(record.key, target_name(what));
        if (scalar_of(cache_, record.key, what) != record.dtype(what))
            fail(cache_.path(), ": ", name, " has another dtype than was coded");
        if (!(geometry_of(cache_, name) == record.shape))
            fail(cache_.path(), ": ", name, " has shape ", to_text(geometry_of(cache_, name)),
                 ", but ", to_text(record.shape), " was coded");
        return same(name, record.shape, "channel", int(2 * sizeof(Code)),
                    load_codes<Code>(cache_, name), decoded,
                    [](const std::vector<Code>& of, size_t i) { return of[i]; });
    }

    bool equal() const { return equal_; }
    uint64_t compared() const { return compared_; }

private:
    template <class Tensor, class At>
    bool same(const std::string& name, const geometry& shape, const char* what, int digits,
              const Tensor& expected, const Tensor& decoded, At at)
    {
        compared_ += shape.scalars();
        for (size_t i = 0; i < shape.scalars(); ++i) {
            if (at(expected, i) == at(decoded, i)) continue;
            const size_t row = i / shape.dim;
            std::printf("%s differs first at token %zu, head %zu, %s %zu: 0x%0*x in %s, 0x%0*x "
                        "decoded\n",
                        name.c_str(), row / shape.heads, row % shape.heads, what, i % shape.dim,
                        digits, unsigned(at(expected, i)), cache_.path().c_str(), digits,
                        unsigned(at(decoded, i)));
            equal_ = false;
            return false;
        }
        return true;
    }

    const safetensors_file& cache_;
    bool equal_ = true;
    uint64_t compared_ = 0;
};

}  // namespace

int decompress(const decode_options& options)
{
    decoder job(options, nullptr);
    std::vector<tensor_bytes> tensors;
    job.for_each_tensor([&](const tensor_record& record, target what, const auto& codes) {
        const std::string name = tensor_name(record.key, target_name(what));
        const char* dtype = safetensors_dtype(record.dtype(what));
        if constexpr (is_quantised_v<decltype(codes)>) {
            tensors.push_back({name, dtype, packed_shape(record.shape, what), codes.codes});
            tensors.push_back({name + "_scale", safetensors_dtype(scalar_type::fp16),
                               scales_of(record.shape).shape(), to_bytes(codes.scales)});
        } else {
            tensors.push_back({name, dtype, record.shape.shape(), to_bytes(codes)});
        }
        return true;
    });
    std::map<std::string, std::string> metadata;
    if (!job.profile().model.empty()) metadata["model"] = job.profile().model;
    const size_t count = tensors.size();
    write_safetensors(options.cache, std::move(tensors), metadata);
    std::printf("%s: %zu tensors\n", options.cache.c_str(), count);
    return 0;
}

int verify(const decode_options& options)
{
    const safetensors_file cache(options.cache);
    decoder job(options, &cache);
    comparison compare(cache);
    job.for_each_tensor(compare);
    if (!compare.equal()) return 1;
    std::printf("%s: all %llu scalars equal\n", options.coded.c_str(),
                static_cast<unsigned long long>(compare.compared()));
    return 0;
}

}  // namespace kv_file
