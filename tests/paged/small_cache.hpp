#pragma once
// A small paged cache for the store's tests: parts of any type with predictions that belong to
// physical pages, a store with memory of its own, and pools in every layout.

#include <normans/paged/paged_store.hpp>

#include <cstring>
#include <memory>
#include <vector>

#include "codec/codec.hpp"
#include "support/test_rng.hpp"

namespace paged {

using namespace normans;
using normans_test::test_rng;

inline constexpr scalar_type fp8 = scalar_type::e4m3fn, bf16 = scalar_type::bf16;

inline page_part part_of(scalar_type type, uint32_t heads, uint32_t dim, uint32_t row_bytes = 0,
                         uint32_t slot_bytes = 0)
{
    page_part part;
    part.spec.dtype = type;
    part.spec.heads = heads;
    part.spec.dim = dim;
    part.spec.row_scale = true;
    part.row_bytes = row_bytes;
    part.slot_bytes = slot_bytes;
    return part;
}

/// Tokens of one part, dense: codes[(token * heads + head) * dim + channel], rows likewise.
struct tokens_of_part {
    std::vector<uint16_t> codes;
    std::vector<uint8_t> rows;
};

/// Means of every physical page of every part, and codes drawn around them.
class predictions {
public:
    predictions(const paged_geometry& g, uint64_t seed)
    {
        test_rng rng(seed);
        for (uint32_t i = 0; i < g.part_count; ++i) {
            const block_spec& spec = g.parts[i].spec;
            part one{spec, g.page_tokens, {}, {}};
            one.mean.resize(size_t(g.pages) * g.page_tokens * spec.heads * spec.dim);
            for (uint16_t& mean : one.mean)
                mean = uint16_t(normans_test::float_of(rng.noise(), -16) >> 16);
            for (uint32_t c = 0; c < spec.heads * spec.dim; ++c)
                one.sigma.push_back(uint8_t(-8 * spec.sigma_offset - 24 + int(rng.below(16))));
            parts_.push_back(one);
        }
    }

    auto callable() const
    {
        return [this](uint32_t i, int32_t page, uint32_t token, uint32_t) {
            const part& p = parts_[i];
            const ptrdiff_t head = p.spec.dim, row = ptrdiff_t(p.spec.heads) * head;
            return array_predictor{{p.mean.data() + start_of(p, page, token), head, row, bf16},
                                   {p.sigma.data(), p.spec.dim, 0, 1},
                                   {nullptr, nullptr, 0}};
        };
    }

    /// `quality` 0: as predicted; 1: anything.
    tokens_of_part draw(test_rng& rng, uint32_t i, int32_t page, uint32_t token, uint32_t tokens,
                        uint32_t row_bytes, int quality = 0) const
    {
        const part& p = parts_[i];
        const size_t width = size_t(p.spec.heads) * p.spec.dim;
        tokens_of_part made;
        for (size_t k = 0; k < tokens * width; ++k) {
            const float mean =
                bits_to_float(uint32_t(p.mean[start_of(p, page, token) + k]) << 16);
            const float off = 0.1f * bits_to_float(normans_test::float_of(rng.noise(), -16));
            const uint32_t any = rng.bits(code_bytes(p.spec.dtype) == 1 ? 8 : 16);
            made.codes.push_back(uint16_t(
                quality == 1 || !has_model(p.spec.dtype)
                    ? any
                    : nearest_code(format_of(p.spec.dtype), float_to_bits(mean + off))));
        }
        for (size_t k = 0; k < size_t(tokens) * p.spec.heads * row_bytes; ++k)
            made.rows.push_back(uint8_t(rng.bits(8)));
        return made;
    }

private:
    struct part {
        block_spec spec;
        uint32_t page_tokens;
        std::vector<uint16_t> mean;  // bf16: [page][token][head][channel]
        std::vector<uint8_t> sigma;
    };

    static size_t start_of(const part& p, int32_t page, uint32_t token)
    {
        return (size_t(page) * p.page_tokens + token) * p.spec.heads * p.spec.dim;
    }

    std::vector<part> parts_;
};

/// Memory at a multiple of 16.
class aligned_bytes {
public:
    explicit aligned_bytes(size_t bytes, uint8_t fill = 0xcc)
        : bytes_(bytes), room_(new uint8_t[bytes + 16])
    {
        const auto at = reinterpret_cast<std::uintptr_t>(room_.get());
        first_ = room_.get() + (16 - at % 16) % 16;
        std::memset(first_, fill, bytes);
    }
    uint8_t* data() const { return first_; }
    size_t size() const { return bytes_; }

private:
    size_t bytes_;
    std::unique_ptr<uint8_t[]> room_;
    uint8_t* first_;
};

/// A store with what it needs.
struct small_store {
    paged_geometry geometry;
    predictions predicted;
    std::vector<uint8_t> directory;
    aligned_bytes memory, workspace;
    paged_store store;
    status created;

    explicit small_store(const paged_geometry& g, uint64_t seed = 1)
        : geometry(g), predicted(g, seed), directory(paged_store::directory_bytes(g)),
          memory(size_t(paged_store::memory_bytes(g))),
          workspace(paged_store::workspace_bytes(g)),
          created(store.create(g, directory.data(), memory.data()))
    {
    }

    const page_part& part(uint32_t i) const { return geometry.parts[i]; }
    bool wide(uint32_t i) const { return code_bytes(part(i).spec.dtype) == 2; }

    /// Dense tokens as append() takes them; 8-bit codes are narrowed into `bytes`.
    template <class Code>
    page_view<const Code> view(uint32_t i, const tokens_of_part& from,
                               std::vector<Code>& codes) const
    {
        const ptrdiff_t head = part(i).spec.dim, heads = part(i).spec.heads;
        const ptrdiff_t row = part(i).row_bytes;
        codes.assign(from.codes.begin(), from.codes.end());
        page_view<const Code> made;
        made.codes = {codes.data(), head, heads * head};
        if (row != 0) made.rows = {from.rows.data(), row, heads * row};
        return made;
    }

    append_result append(uint32_t i, int32_t page, const tokens_of_part& from, uint32_t tokens,
                         bool anew = false)
    {
        const auto predictors = predicted.callable();
        const auto run = [&](auto view) {
            return anew ? store.write(i, page, view, tokens, predictors, workspace.data())
                        : store.append(i, page, view, tokens, predictors, workspace.data());
        };
        std::vector<uint8_t> narrow;
        std::vector<uint16_t> wide_codes;
        if (wide(i)) return run(view<uint16_t>(i, from, wide_codes));
        return run(view<uint8_t>(i, from, narrow));
    }

    struct read_tokens {
        std::vector<page_result> results;
        tokens_of_part tokens;  // of the whole table, 0xee.. where nothing was written
    };

    read_tokens read(uint32_t i, const std::vector<int32_t>& table, uint64_t first,
                     uint64_t count, uint8_t* scratch = nullptr) const
    {
        read_tokens made;
        made.results.resize(table.size());
        if (wide(i)) read_as<uint16_t>(i, table, first, count, scratch, made);
        else read_as<uint8_t>(i, table, first, count, scratch, made);
        return made;
    }

private:
    template <class Code>
    void read_as(uint32_t i, const std::vector<int32_t>& table, uint64_t first, uint64_t count,
                 uint8_t* scratch, read_tokens& made) const
    {
        const ptrdiff_t head = part(i).spec.dim, heads = part(i).spec.heads;
        const ptrdiff_t row = part(i).row_bytes, page = geometry.page_tokens;
        std::vector<Code> codes(table.size() * size_t(page * heads * head), Code(0xeeee));
        made.tokens.rows.assign(table.size() * size_t(page * heads * row), 0xee);
        const auto targets = [&](uint32_t k) {
            page_view<Code> to;
            to.codes = {codes.data() + ptrdiff_t(k) * page * heads * head, head, heads * head};
            if (row != 0)
                to.rows = {made.tokens.rows.data() + ptrdiff_t(k) * page * heads * row, row,
                           heads * row};
            return to;
        };
        store.read<Code>(i, table.data(), uint32_t(table.size()), first, count, targets,
                         predicted.callable(), scratch != nullptr ? scratch : workspace.data(),
                         made.results.data());
        made.tokens.codes.assign(codes.begin(), codes.end());
    }
};

}  // namespace paged
