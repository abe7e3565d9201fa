// normans_kv decompress and verify: both decode a .nkv file tensor by tensor.

#include <algorithm>
#include <cstdio>

#include "commands.hpp"
#include "page_coder.hpp"
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
          means_(options.means, cache)
    {
        if (head_.profile_fingerprint != profile_.fingerprint)
            fail(options.coded, ": was coded under another profile than ", options.profile);
        const std::string predictor = means_.file().metadata("predictor");
        if (!predictor.empty() && !profile_.value.predictor.empty() &&
            predictor != profile_.value.predictor)
            fail(means_.file().path(), ": predictor is \"", predictor, "\", the profile's is \"",
                 profile_.value.predictor, "\"");
    }

    const container_head& head() const { return head_; }
    const normans::profile& profile() const { return profile_.value; }

    /// visit(record, target, codes) for every tensor; false ends it early.
    template <class Visitor>
    void for_each_tensor(Visitor visit)
    {
        size_t at = head_bytes(head_).size();
        progress_bar progress(double(head_.tensors.size()));
        for (const tensor_record& record : head_.tensors) {
            const mean_tensor means = load_means(means_.file(), record.key);
            const std::string name = tensor_name(record.key, "mu");
            if (!(means.shape == record.shape))
                fail(means_.file().path(), ": ", name, " has shape ", to_text(means.shape),
                     ", but ", to_text(record.shape), " was coded");
            if (means.hash != record.mean_hash)
                fail(means_.file().path(), ": ", name, " is not the one that ", options_.coded,
                     " was coded under");
            const bool goes_on =
                (!record.fp8 || decode_tensor<uint8_t>(record, target::fp8, means, at, visit)) &&
                (!record.bf16 || decode_tensor<uint16_t>(record, target::bf16, means, at, visit));
            if (!goes_on) return;
            progress.advance(1);
        }
        if (at != bytes_.size()) fail(options_.coded, ": damaged: bytes behind the last block");
    }

private:
    template <class Code, class Visitor>
    bool decode_tensor(const tensor_record& record, target what, const mean_tensor& means,
                       size_t& at, Visitor& visit)
    {
        const normans::tensor_profile& entry = profile_entry(
            profile_.value, options_.profile, record.key, record.dtype(what), record.shape);
        const page_coder coder(entry, means, head_.page_tokens, head_.affine);
        std::vector<Code> codes(size_t(record.shape.scalars()));
        std::vector<decode_task<Code>> tasks;
        for (uint64_t page = 0; page < coder.pages();) {
            tasks.clear();
            const uint64_t rest = coder.pages() - page;
            size_t next = at, last = 0;
            do {  // up to a block that does not say where it ends, and so does not decode
                next += last;
                tasks.push_back(coder.decoding(bytes_.data() + next, bytes_.size() - next,
                                               codes.data(), page + tasks.size()));
                last = block_bytes(tasks.back());
            } while (last != 0 && tasks.size() < std::min<uint64_t>(rest, pages_per_call));
            code_pages(tasks, options_.threads);
            for (const decode_task<Code>& task : tasks) {
                if (!task.result)
                    fail(options_.coded, ": damaged: ", tensor_name(record.key, target_name(what)),
                         ", page ", page, " (", normans::status_name(task.result.code), ")");
                at += task.result.bytes;
                ++page;
            }
        }
        return visit(record, what, codes);
    }

    // What a block says of its length; 0 where that cannot be.
    template <class Code>
    static size_t block_bytes(const decode_task<Code>& task)
    {
        normans::block_header header;
        if (normans::read_block_header(task.block, task.bytes, header) != normans::status::ok)
            return 0;
        const uint64_t end = normans::layout_of(header, task.spec.tokens).end;
        return end > task.bytes ? 0 : size_t(end);
    }

    const decode_options& options_;
    std::vector<uint8_t> bytes_;
    container_head head_;
    loaded_profile profile_;
    mean_source means_;
};

template <class Code>
std::vector<uint8_t> to_bytes(const std::vector<Code>& codes)
{
    std::vector<uint8_t> bytes;
    bytes.reserve(codes.size() * sizeof(Code));
    for (const Code code : codes) {
        bytes.push_back(uint8_t(code));
        if (sizeof(Code) == 2) bytes.push_back(uint8_t(code >> 8));
    }
    return bytes;
}

}  // namespace

int decompress(const decode_options& options)
{
    if (options.means.empty()) fail("decompress needs --mu, the file with the means");
    decoder job(options, nullptr);
    std::vector<tensor_bytes> tensors;
    job.for_each_tensor([&](const tensor_record& record, target what, const auto& codes) {
        tensors.push_back({tensor_name(record.key, target_name(what)),
                           safetensors_dtype(record.dtype(what)), record.shape.shape(),
                           to_bytes(codes)});
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
    bool equal = true;
    uint64_t compared = 0;
    job.for_each_tensor([&](const tensor_record& record, target what, const auto& codes) {
        using code = typename std::decay_t<decltype(codes)>::value_type;
        const std::string name = tensor_name(record.key, target_name(what));
        if (scalar_of(cache, record.key, what) != record.dtype(what))
            fail(cache.path(), ": ", name, " has another dtype than was coded");
        if (!(geometry_of(cache, name) == record.shape))
            fail(cache.path(), ": ", name, " has shape ", to_text(geometry_of(cache, name)),
                 ", but ", to_text(record.shape), " was coded");
        const std::vector<code> expected = load_codes<code>(cache, name);
        compared += expected.size();
        for (size_t i = 0; i < codes.size(); ++i) {
            if (codes[i] == expected[i]) continue;
            const size_t channel = i % record.shape.dim, row = i / record.shape.dim;
            const int digits = int(2 * sizeof(code));
            std::printf("%s differs first at token %zu, head %zu, channel %zu: 0x%0*x in %s, "
                        "0x%0*x decoded\n",
                        name.c_str(), row / record.shape.heads, row % record.shape.heads, channel,
                        digits, unsigned(expected[i]), cache.path().c_str(), digits,
                        unsigned(codes[i]));
            equal = false;
            return false;
        }
        return true;
    });
    if (!equal) return 1;
    std::printf("%s: all %llu scalars equal\n", options.coded.c_str(),
                static_cast<unsigned long long>(compared));
    return 0;
}

}  // namespace kv_file
