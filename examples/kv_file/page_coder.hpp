#pragma once
// One tensor of one target, page by page: which spec, which parameters, which slice of memory.
// A page is `page_tokens` tokens of all heads: a box (heads, tokens, dim) in [tokens, heads, dim].

#include <algorithm>
#include <vector>

#include <normans/block/compact_block.hpp>
#include <normans/dispatch.hpp>
#include <normans/host/thread_executor.hpp>

#include "container.hpp"
#include "mean_stages.hpp"

namespace kv_file {

template <class Code>
using encode_task = normans::encode_task<Code, normans::array_predictor>;
template <class Code>
using decode_task = normans::decode_task<Code, normans::array_predictor>;

template <class Code>
void code_blocks(encode_task<Code>* tasks, size_t count)
{
    normans::dispatch::encode_blocks(tasks, count);
}
template <class Code>
void code_blocks(decode_task<Code>* tasks, size_t count)
{
    normans::dispatch::decode_blocks(tasks, count);
}

/// Pages in one call: bounds what a tensor of any length takes beside its codes.
constexpr size_t pages_per_call = 1024;

/// Codes pages, each on one of the threads. A cache of few pages is shared out evenly too: smaller
/// jobs than the library would make.
template <class Task>
void code_pages(std::vector<Task>& tasks, unsigned threads)
{
    const size_t count = tasks.size(), share = (count + threads - 1) / threads;
    const size_t each = std::clamp<size_t>(share, 1, normans_dispatch::tasks_per_job);
    normans::thread_executor{threads}((count + each - 1) / each, [&](size_t job) {
        code_blocks(&tasks[job * each], std::min(each, count - job * each));
    });
}

class page_coder {
public:
    page_coder(const normans::tensor_profile& profile, const staged_means& means,
               uint32_t page_tokens)
        : profile_(profile), means_(means), page_tokens_(page_tokens)
    {
        if (!profile.marginal.empty() &&
            normans::make_marginal(profile.marginal.data(), marginal_) != normans::status::ok)
            fail("the profile holds a marginal that is none");
    }

    /// tANS by a bank; null: rANS.
    void set_bank(const normans::tans_bank* bank) { bank_ = bank; }
    normans::shape_id shape_of_model() const
    {
        return bank_ != nullptr ? bank_->plan.shape : profile_.shape;
    }

    page_coder(const page_coder&) = delete;  // specs point to marginal_
    page_coder& operator=(const page_coder&) = delete;

    uint64_t pages() const { return pages_of(shape(), page_tokens_); }

    /// As a decoder needs it; an encoder adds lanes and says whether rows may be scaled.
    normans::block_spec spec(uint64_t page) const
    {
        normans::block_spec spec;
        spec.dtype = profile_.dtype;
        spec.heads = shape().heads;
        spec.tokens = tokens_of_page(shape(), page_tokens_, page);
        spec.dim = shape().dim;
        spec.sigma_offset = profile_.sigma_offset;
        spec.shape = shape_of_model();
        spec.marginal = bank_ != nullptr || profile_.marginal.empty() ? nullptr : &marginal_;
        if (bank_ != nullptr) spec.coder = normans::coder_id::tans;
        spec.bank = bank_;
        spec.row_scale = true;
        return spec;
    }

    /// Where a page starts, in scalars of the tensor.
    size_t start(uint64_t page) const
    {
        return size_t(page * page_tokens_ * shape().channels());
    }

    template <class Code>
    normans::box_view<Code> box(Code* codes, uint64_t page) const
    {
        return {codes + start(page), head_stride(), token_stride()};
    }

    template <class Code>
    encode_task<Code> encoding(const normans::block_spec& spec, const Code* codes, uint64_t page,
                               uint8_t* out, size_t capacity) const
    {
        return {spec, box(codes, page), predictor(page), out, capacity, {}};
    }

    template <class Code>
    decode_task<Code> decoding(const uint8_t* block, size_t bytes, Code* codes,
                               uint64_t page) const
    {
        return {spec(page), block, bytes, predictor(page), box(codes, page), {}};
    }

private:
    const geometry& shape() const { return means_.values.shape; }
    std::ptrdiff_t head_stride() const { return std::ptrdiff_t(shape().dim); }
    std::ptrdiff_t token_stride() const { return std::ptrdiff_t(shape().channels()); }

    normans::array_predictor predictor(uint64_t page) const
    {
        const mean_tensor& values = means_.values;
        const bool wide = !values.fp32.empty();
        const void* first = wide ? static_cast<const void*>(values.fp32.data() + start(page))
                                 : values.bf16.data() + start(page);
        const scalar_type type = wide ? normans::any_means::fp32 : scalar_type::bf16;
        const bool has_map = !means_.a.empty();
        return {{first, head_stride(), token_stride(), type},
                {means_.sigma_of(page).data(), shape().dim, 0, 1},
                {has_map ? means_.a.data() : nullptr, has_map ? means_.b.data() : nullptr,
                 shape().dim}};
    }

    const normans::tensor_profile& profile_;
    const staged_means& means_;
    uint32_t page_tokens_;
    normans::marginal_table marginal_{};
    const normans::tans_bank* bank_ = nullptr;
};

/// Integers and tANS have no marginal: its mixture goes without.
inline normans::shape_id shape_of_banks(const normans::tensor_profile& values)
{
    return values.shape == normans::shape_id::gaussian ? normans::shape_id::gaussian
                                                       : normans::shape_id::mixture;
}

/// The profile's entry for a tensor, or one line that says what does not fit.
inline const normans::tensor_profile& profile_entry(const normans::profile& profile,
                                                    const std::string& path, cache_key key,
                                                    scalar_type dtype, const geometry& shape)
{
    const char* what = dtype == scalar_type::bf16 ? "bf16" : "fp8";
    const normans::tensor_profile* entry =
        normans::find_tensor(profile, key.first, key.second, dtype);
    if (entry == nullptr)
        fail(path, ": no entry for ", tensor_name(key, what), " as ", normans::scalar_name(dtype));
    if (entry->heads != shape.heads || entry->dim != shape.dim)
        fail(path, ": ", tensor_name(key, what), " has ", entry->heads, " heads of ", entry->dim,
             " in the profile, ", shape.heads, " of ", shape.dim, " in the cache");
    return *entry;
}

/// A profile is for means of a model or for means of 0, not for both.
inline void check_predictor(predictor_choice predictor, const std::string& path,
                            const normans::profile& profile)
{
    for (const normans::tensor_profile& entry : profile.tensors) {
        if (entry.has_model == has_model(predictor)) continue;
        fail(path, entry.has_model ? ": was calibrated on a model's means"
                                   : ": was calibrated without a model",
             "; --predictor ", predictor_name(predictor), " needs one ",
             entry.has_model ? "without" : "with");
    }
}

struct loaded_profile {
    normans::profile value;
    uint64_t fingerprint = 0;
    size_t bytes = 0;
};

inline loaded_profile load_profile(const std::string& path)
{
    const std::vector<uint8_t> bytes = read_file(path);
    normans::parsed_profile parsed = normans::parse_profile(bytes.data(), bytes.size());
    if (parsed.code != normans::status::ok)
        fail(path, ": not a sound profile (", normans::status_name(parsed.code), ")");
    return {std::move(parsed.value), parsed.fingerprint, bytes.size()};
}

}  // namespace kv_file
