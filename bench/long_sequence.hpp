#pragma once
// One sequence as long as wanted, for attention: the layers of a real cache one behind the other,
// over and over, in pages: raw, and coded in a paged store. Every page has its own memory, raw,
// coded and predicted, so what is read is as large as it would be.

#include <normans/paged/coded_pages.hpp>
#include <normans/paged/paged_store.hpp>

#include "real.hpp"

namespace bench {

using dispatched_store = normans::basic_paged_store<normans::dispatch::coder>;

template <class Code>
class long_sequence {
public:
    static constexpr uint32_t page_tokens = 64, dim = 64, ahead = 4;

    /// `raw_bytes`: of K and V, about; at least those of the cache.
    long_sequence(const real_cache& cache, size_t raw_bytes, int backend)
        : store_(normans::dispatch::coder{backend})
    {
        using namespace kv_file;
        constexpr target what = sizeof(Code) == 1 ? target::fp8 : target::bf16;
        for (const cache_key& key : keys_of(cache.file, {sizeof(Code) == 1, sizeof(Code) == 2})) {
            const mean_tensor means = load_means(cache.file, key);
            const scalar_type type = scalar_of(cache.file, key, what);
            add_source(key.second == kv_kind::v, means,
                       profile_entry(cache.profile.value, "profile", key, type, means.shape),
                       load_codes<Code>(cache.file, tensor_name(key, target_name(what))));
        }
        const uint32_t source_pages = uint32_t(sides_[0].entries.size());
        if (source_pages == 0 || sides_[1].entries.size() != source_pages)
            fail(cache.file.path(), ": no K and V in whole pages of ", page_tokens, " tokens");
        const size_t once = 2 * source_pages * page_elements() * sizeof(Code);
        pages_ = source_pages * uint32_t(raw_bytes / once + (raw_bytes < once));
        for (side& s : sides_) {
            const std::vector<Code> codes = s.codes;
            const std::vector<uint16_t> means = s.means;
            while (s.codes.size() < pages_ * page_elements()) {
                s.codes.insert(s.codes.end(), codes.begin(), codes.end());
                s.means.insert(s.means.end(), means.begin(), means.end());
            }
        }
        for (uint32_t i = 0; i < pages_; ++i) table_.push_back(int32_t(i));
        build_store();
    }
    long_sequence(const long_sequence&) = delete;
    long_sequence& operator=(const long_sequence&) = delete;

    uint64_t tokens() const { return uint64_t(pages_) * page_tokens; }
    uint32_t kv_heads() const { return parts_[0].spec.heads; }
    size_t scalars() const { return 2 * pages_ * page_elements(); }
    double bits_per_scalar() const
    {
        return 8.0 * double(store_.directory().use().live) / double(scalars());
    }

    auto raw_pages() const { return pages_in(sides_[0].codes.data(), sides_[1].codes.data()); }

    /// Coded pages; with `few_means` all are predicted from the first ones' memory, which stays in
    /// the cache, as means made on the fly would.
    auto predictors(bool few_means) const
    {
        const uint32_t period = uint32_t(sides_[0].entries.size());
        return [this, few_means, period](uint32_t part, int32_t page, uint32_t token, uint32_t) {
            const side& s = sides_[part];
            const uint32_t i = uint32_t(page), from = few_means ? i % period : i;
            const normans::tensor_profile& entry = *s.entries[i % period];
            const ptrdiff_t row = ptrdiff_t(kv_heads() * dim);
            return normans::array_predictor{
                {s.means.data() + from * page_elements() + token * kv_heads() * dim, dim, row,
                 normans::scalar_type::bf16},
                {entry.affine_sigma.data(), dim, 0, 1},
                {entry.affine_a.data(), entry.affine_b.data(), dim}};
        };
    }

    template <class Predictors>
    auto coded_pages(const Predictors& predictors)
    {
        using pages = normans::coded_pages<Code, dispatched_store, Predictors>;
        buffer_.resize(pages::buffer_elements(store_, 0, 1, ahead));
        return pages(store_, 0, 1, table_.data(), tokens(), predictors, buffer_.data(), ahead,
                     workspace_.data());
    }

    /// All pages decoded to memory, and then these.
    template <class Predictors>
    auto decoded_pages(const Predictors& predictors)
    {
        std::vector<normans::page_result> results(pages_);
        for (uint32_t part = 0; part < 2; ++part) {
            whole_[part].resize(pages_ * page_elements());
            const auto targets = [&](uint32_t i) {
                const ptrdiff_t row = ptrdiff_t(kv_heads() * dim);
                normans::page_view<Code> view;
                view.codes = {whole_[part].data() + i * page_elements(), dim, row};
                return view;
            };
            store_.template read<Code>(part, table_.data(), pages_, 0, tokens(), targets,
                                       predictors, workspace_.data(), results.data());
            for (const normans::page_result& r : results)
                if (!r) kv_file::fail("a page does not decode");
        }
        return pages_in(whole_[0].data(), whole_[1].data());
    }

private:
    struct side {  // K or V
        std::vector<Code> codes;  // [page][token][head][channel]
        std::vector<uint16_t> means;
        std::vector<const normans::tensor_profile*> entries;  // of the source's pages
    };

    size_t page_elements() const { return size_t(page_tokens) * kv_heads() * dim; }

    auto pages_in(const Code* k, const Code* v) const
    {
        const ptrdiff_t row = ptrdiff_t(kv_heads() * dim);
        const size_t each = page_elements();
        return [=](uint32_t i, normans::kv_page<Code>& page) {
            page = {k + i * each, v + i * each, dim, row, dim, row};
            return normans::status::ok;
        };
    }

    void add_source(bool is_v, const kv_file::mean_tensor& means,
                    const normans::tensor_profile& entry, const std::vector<Code>& codes)
    {
        normans::block_spec& spec = parts_[is_v].spec;
        if (means.shape.dim != dim || means.bf16.empty() || !entry.marginal.empty())
            kv_file::fail("attention rows are for heads of 64 channels and means in bf16");
        spec.dtype = entry.dtype;
        spec.heads = means.shape.heads;
        spec.dim = dim;
        spec.lanes = 32;
        spec.sigma_offset = entry.sigma_offset;
        spec.shape = entry.shape;
        spec.row_scale = true;
        const size_t whole = means.shape.tokens / page_tokens;
        const auto end = ptrdiff_t(whole * page_elements_of(spec));
        side& s = sides_[is_v];
        s.codes.insert(s.codes.end(), codes.begin(), codes.begin() + end);
        s.means.insert(s.means.end(), means.bf16.begin(), means.bf16.begin() + end);
        s.entries.insert(s.entries.end(), whole, &entry);
    }

    static size_t page_elements_of(const normans::block_spec& spec)
    {
        return size_t(page_tokens) * spec.heads * dim;
    }

    void build_store()
    {
        normans::paged_geometry g;
        g.parts = parts_;
        g.part_count = 2;
        g.pages = pages_;
        g.page_tokens = page_tokens;
        g.arena_bytes = 2 * uint64_t(pages_) * (page_elements() * sizeof(Code) + 16);
        directory_.resize(size_t(dispatched_store::directory_bytes(g)));
        memory_.resize(size_t(dispatched_store::memory_bytes(g)));
        workspace_.resize(dispatched_store::workspace_bytes(g));
        if (store_.create(g, directory_.data(), memory_.data()) != normans::status::ok)
            kv_file::fail("the store cannot be made");
        const auto predict = predictors(false);
        for (uint32_t part = 0; part < 2; ++part) {
            for (uint32_t i = 0; i < pages_; ++i) {
                const ptrdiff_t row = ptrdiff_t(kv_heads() * dim);
                normans::page_view<const Code> from;
                from.codes = {sides_[part].codes.data() + i * page_elements(), dim, row};
                const normans::append_result made = store_.append(
                    part, int32_t(i), from, page_tokens, predict, workspace_.data());
                if (!made) kv_file::fail("storing a page: ", normans::status_name(made.code));
            }
        }
    }

    side sides_[2];
    normans::page_part parts_[2];
    uint32_t pages_ = 0;
    std::vector<int32_t> table_;
    std::vector<uint8_t> directory_, memory_, workspace_;  // new[] gives multiples of 16
    std::vector<Code> buffer_, whole_[2];
    dispatched_store store_;
};

}  // namespace bench
