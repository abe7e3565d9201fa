#pragma once
// What examples/05_cpu_attention.cpp has instead of an engine: layers of a real cache in pages, raw
// and coded, whose physical order is not their logical one; and queries, made up.

#include <normans/paged/coded_pages.hpp>
#include <normans/paged/paged_store.hpp>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kv_file/page_coder.hpp"

namespace example {

using kv_file::kv_kind;
using store = normans::basic_paged_store<normans::dispatch::coder>;

constexpr std::uint32_t dim = 64;

/// The cache files to run over: arguments, or the slice in the repository and, with NORMANS_DATA,
/// the full file.
inline std::vector<std::string> cache_files(int argc, char** argv)
{
    std::vector<std::string> files(argv + 1, argv + argc);
    if (!files.empty()) return files;
    files.push_back("examples/data/test-slice.safetensors");
    if (const char* folder = std::getenv("NORMANS_DATA"))
        files.push_back(std::string(folder) + "/test.safetensors");
    return files;
}

/// Layers that a file has, with K and V.
inline std::vector<std::uint32_t> layers_of(const kv_file::safetensors_file& file)
{
    std::vector<std::uint32_t> layers;
    for (const kv_file::cache_key& key : kv_file::keys_of(file, {}))
        if (key.second == kv_kind::k) layers.push_back(key.first);
    return layers;
}

/// One layer of one target: fp8 for 8-bit codes, bf16 for 16-bit ones.
template <class Code>
class paged_layer {
public:
    const std::uint32_t page_tokens;
    std::vector<std::int32_t> table;

    paged_layer(const kv_file::safetensors_file& file, const normans::profile& profile,
                std::uint32_t layer, std::uint32_t tokens_of_a_page)
        : page_tokens(tokens_of_a_page)
    {
        constexpr auto what = sizeof(Code) == 1 ? kv_file::target::fp8 : kv_file::target::bf16;
        for (const kv_kind kind : {kv_kind::k, kv_kind::v}) {
            const kv_file::cache_key key{layer, kind};
            tensor& t = tensors_[kind == kv_kind::v];
            t.means = kv_file::load_means(file, key);
            t.entry = &kv_file::profile_entry(profile, "profile", key,
                                              kv_file::scalar_of(file, key, what), t.means.shape);
            if (t.means.shape.dim != dim || t.means.bf16.empty() || !t.entry->marginal.empty())
                kv_file::fail("this example is for heads of 64 channels and means in bf16");
            if (what == kv_file::target::fp8) t.scale = kv_file::load_scale(file, key);
            t.part.spec.dtype = t.entry->dtype;
            t.part.spec.heads = t.means.shape.heads;
            t.part.spec.dim = dim;
            t.part.spec.sigma_offset = t.entry->sigma_offset;
            t.part.spec.shape = t.entry->shape;
            t.part.spec.row_scale = true;
            t.part.spec.lanes = 32;
            parts_[kind == kv_kind::v] = t.part;
        }
        // Physical pages: the odd ones first.
        const std::uint32_t pages = (tokens() + page_tokens - 1) / page_tokens;
        table.resize(pages);
        logical_.resize(pages);
        for (std::uint32_t i = 0; i < pages; ++i) {
            table[i] = std::int32_t(i % 2 == 1 ? i / 2 : pages / 2 + i / 2);
            logical_[std::size_t(table[i])] = i;
        }
        for (const bool v : {false, true}) {
            const auto codes = kv_file::load_codes<Code>(
                file, kv_file::tensor_name({layer, v ? kv_kind::v : kv_kind::k},
                                           kv_file::target_name(what)));
            tensors_[v].raw.assign(pages * page_elements(), Code(-1));  // NaN in the tail
            for (std::size_t i = 0; i < codes.size(); ++i)
                tensors_[v].raw[std::size_t(table[i / page_elements()]) * page_elements() +
                                i % page_elements()] = codes[i];
        }
        build_store();
    }
    paged_layer(const paged_layer&) = delete;
    paged_layer& operator=(const paged_layer&) = delete;

    std::uint32_t tokens() const { return tensors_[0].means.shape.tokens; }
    std::uint32_t kv_heads() const { return tensors_[0].means.shape.heads; }
    std::size_t raw_bytes() const { return std::size_t(2) * tokens() * row() * sizeof(Code); }
    std::uint64_t coded_bytes() const { return store_.directory().use().live; }
    float k_scale() const { return tensors_[0].scale; }
    float v_scale() const { return tensors_[1].scale; }
    const store& pages() const { return store_; }
    std::uint8_t* workspace() const { return aligned(workspace_.get()); }

    /// For attend(): the raw pages where they lie.
    auto raw_pages() const
    {
        return [this](std::uint32_t i, normans::kv_page<Code>& page) {
            const std::size_t at = std::size_t(table[i]) * page_elements();
            const std::ptrdiff_t token = std::ptrdiff_t(row());
            page = {tensors_[0].raw.data() + at, tensors_[1].raw.data() + at, dim, token, dim,
                    token};
            return normans::status::ok;
        };
    }

    auto predictors() const
    {
        return [this](std::uint32_t part, std::int32_t page, std::uint32_t token, std::uint32_t) {
            const tensor& t = tensors_[part];
            const std::size_t i = logical_[std::size_t(page)];
            const std::size_t first = i * page_tokens + token;
            return normans::array_predictor{
                {t.means.bf16.data() + first * row(), dim, std::ptrdiff_t(row()),
                 normans::scalar_type::bf16},
                {t.entry->affine_sigma.data(), dim, 0, 1},
                {t.entry->affine_a.data(), t.entry->affine_b.data(), dim}};
        };
    }

private:
    struct tensor {
        kv_file::mean_tensor means;
        const normans::tensor_profile* entry = nullptr;
        normans::page_part part;
        std::vector<Code> raw;  // [physical page][token][head][channel]
        float scale = 1;
    };

    static std::uint8_t* aligned(std::uint8_t* at)
    {
        return at + (16 - reinterpret_cast<std::uintptr_t>(at) % 16) % 16;
    }

    std::size_t row() const { return std::size_t(kv_heads()) * dim; }
    std::size_t page_elements() const { return page_tokens * row(); }

    // Every page is appended as its tokens come: 3, then the rest.
    void build_store()
    {
        normans::paged_geometry g;
        g.parts = parts_;
        g.part_count = 2;
        g.pages = std::uint32_t(table.size());
        g.page_tokens = page_tokens;
        g.arena_bytes = 2 * g.pages * (page_elements() * sizeof(Code) + 48) / 16 * 16;
        directory_.resize(store::directory_bytes(g));
        memory_.reset(new std::uint8_t[store::memory_bytes(g) + 15]);
        workspace_.reset(new std::uint8_t[store::workspace_bytes(g) + 15]);
        if (store_.create(g, directory_.data(), aligned(memory_.get())) != normans::status::ok)
            kv_file::fail("the store cannot be made");
        for (std::uint32_t part = 0; part < 2; ++part) {
            for (std::uint32_t i = 0; i < g.pages; ++i) {
                const std::uint32_t left = tokens() - i * page_tokens;
                const std::uint32_t all = left < page_tokens ? left : page_tokens;
                normans::page_view<const Code> from;
                from.codes = {tensors_[part].raw.data() + std::size_t(table[i]) * page_elements(),
                              dim, std::ptrdiff_t(row())};
                const std::uint32_t few = all < 3 ? all : 3;
                const auto predict = predictors();
                if (!store_.append(part, table[i], from, few, predict, workspace()) ||
                    !store_.append(part, table[i], from.from(few), all - few, predict, workspace()))
                    kv_file::fail("a page cannot be stored");
            }
        }
    }

    tensor tensors_[2];
    normans::page_part parts_[2];
    std::vector<std::uint32_t> logical_;  // of physical pages
    std::vector<std::uint8_t> directory_;
    std::unique_ptr<std::uint8_t[]> memory_, workspace_;
    store store_;
};

/// Queries of `count` channels, between -2 and 2, always the same.
inline std::vector<float> queries(std::size_t count)
{
    std::vector<float> made;
    std::uint32_t random = 1;
    for (std::size_t i = 0; i < count; ++i) {
        random = random * 1664525u + 1013904223u;
        made.push_back(float(std::int32_t(random)) * 0x1p-30f);
    }
    return made;
}

/// Attention of all query heads over one layer, by pages(i, page) of attend().
template <class Code, std::uint32_t Group, class Pages>
std::vector<float> attention(const paged_layer<Code>& layer, Pages&& pages)
{
    const std::vector<float> query = queries(layer.kv_heads() * std::size_t(Group) * dim);
    std::vector<normans::attention_head<dim, Group>> heads(layer.kv_heads());
    std::vector<float> out(query.size());
    for (std::uint32_t h = 0; h < layer.kv_heads(); ++h)
        heads[h].begin(query.data() + h * Group * dim, layer.k_scale() / 8);
    const normans::status code = normans::attend<Code>(heads.data(), layer.kv_heads(),
                                                       layer.tokens(), layer.page_tokens, pages);
    if (code != normans::status::ok) kv_file::fail("attention: ", normans::status_name(code));
    for (std::uint32_t h = 0; h < layer.kv_heads(); ++h)
        heads[h].finish(layer.v_scale(), out.data() + h * Group * dim);
    return out;
}

}  // namespace example
