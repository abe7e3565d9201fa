#pragma once
// Pages of a real KV cache, as normans_kv codes them: predictor A's means, the profile's sigmas and
// affine map, row steps, content check.

#include "../examples/kv_file/page_coder.hpp"
#include "workload.hpp"

namespace bench {

struct real_cache {
    kv_file::safetensors_file file;
    kv_file::loaded_profile profile;

    real_cache(const std::string& cache, const std::string& profile_path)
        : file(cache), profile(kv_file::load_profile(profile_path))
    {
    }
};

/// One tensor with what its pages point to.
template <class Code>
struct real_tensor {
    const normans::tensor_profile& entry;
    kv_file::staged_means staged;
    std::vector<Code> codes;

    normans::array_predictor predictor(size_t start) const
    {
        const kv_file::mean_tensor& means = staged.values;
        const ptrdiff_t head = ptrdiff_t(entry.dim), token = ptrdiff_t(entry.heads) * head;
        normans::any_means view{means.bf16.data() + start, head, token,
                                normans::scalar_type::bf16};
        if (means.bf16.empty())
            view = {means.fp32.data() + start, head, token, normans::any_means::fp32};
        return {view,
                {staged.sigma.data(), entry.dim, 0, 1},
                {staged.a.data(), staged.b.data(), entry.dim}};
    }
};

/// All tensors of one target; fp8 for 8-bit codes, bf16 for 16-bit ones.
template <class Code>
workload<Code> make_real(const real_cache& cache, const std::string& name, uint32_t page_tokens,
                         uint32_t lanes)
{
    using namespace kv_file;
    constexpr target what = sizeof(Code) == 1 ? target::fp8 : target::bf16;
    workload<Code> work{"", name, {}, 0, false, {}};
    for (const cache_key& key : keys_of(cache.file, {what == target::fp8, what == target::bf16})) {
        const mean_tensor means = load_means(cache.file, key);
        const scalar_type type = scalar_of(cache.file, key, what);
        const normans::tensor_profile& entry =
            profile_entry(cache.profile.value, "profile", key, type, means.shape);
        const auto tensor = std::make_shared<const real_tensor<Code>>(real_tensor<Code>{
            entry, under_map(means, entry, true),
            load_codes<Code>(cache.file, tensor_name(key, target_name(what)))});
        const auto coder = std::make_shared<const page_coder>(entry, tensor->staged, page_tokens);
        for (uint64_t p = 0; p < coder->pages(); ++p) {
            normans::block_spec spec = coder->spec(p);
            spec.lanes = lanes;
            work.pages.push_back({spec, coder->box(tensor->codes.data(), p),
                                  tensor->predictor(coder->start(p)),
                                  size_t(normans::count_of(spec))});
        }
        work.type = normans::scalar_name(type);
        work.owners.insert(work.owners.end(), {tensor, coder});
    }
    if (work.pages.empty()) fail(cache.file.path(), ": holds no ", target_name(what), " tensors");
    work.pages_per_call = work.pages.size();
    return work;
}

}  // namespace bench
