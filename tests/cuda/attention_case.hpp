#pragma once
// Sequences over a paged cache, on the host: codes, means, tables, blocks, and what attention over
// them is, in double. Compiled by the host's compiler.

#include <vector>

#include <normans/block/block.hpp>

namespace attention_test {

using namespace normans;

/// K and V of sequences, token by token: [sequence][token][kv_head][channel].
struct cache_content {
    std::vector<std::vector<uint16_t>> codes[2], means[2];
    std::vector<uint8_t> sigmas[2];  // [kv_head][channel]
    std::vector<float> a[2], b[2];   // likewise
};

struct attention_case {
    block_spec spec;  // of one head of a full page
    uint32_t kv_heads = 0, group = 0, table_stride = 0, pool_pages = 0;
    bool by_head = false;  // pools are [page][head][token], else [page][token][head]
    cache_content content;
    std::vector<uint32_t> lengths;
    std::vector<int32_t> table;
    std::vector<uint16_t> queries;

    // Pools of pages: codes in so many bytes each.
    std::vector<uint8_t> pool[2];
    std::vector<uint16_t> mean_pool[2];
    // [pool_pages][kv_heads][2]: blocks, at multiples of 16.
    std::vector<uint8_t> arena;
    std::vector<std::size_t> offset, bytes;
    uint32_t largest = 0;

    std::size_t query_heads() const { return lengths.size() * kv_heads * group; }
    std::size_t outputs() const { return query_heads() * spec.dim; }
    std::size_t block_of(uint32_t page, uint32_t head, uint32_t side) const
    {
        return (std::size_t(page) * kv_heads + head) * 2 + side;
    }
    /// Sets layout and query heads, and fills pools and queries. What no token fills is NaN.
    void lay_out(bool heads_first, uint32_t heads_per_group);
};

/// Five sequences of made-up contents, of 0 tokens, one, whole pages, and more, the last of which
/// shares its first two pages with the first. Pages lie in no order.
attention_case drawn_case(uint64_t seed, scalar_type type, uint32_t dim, uint32_t page_tokens,
                          uint32_t lanes);

/// A cache's layers, one case each: sequences are the layer's whole length and a part of it.
/// Empty if nothing here reads files.
std::vector<attention_case> real_layers(scalar_type type, const char* cache, const char* profile,
                                        uint32_t page_tokens, uint32_t lanes);

/// What a decoder on the host says of a block.
status host_status(const attention_case& c, uint32_t page, uint32_t head, uint32_t side,
                   uint32_t tokens);

/// Outputs in double, and how far off each fp32 may be with weights that are off by such a share.
void reference(const attention_case& c, float score_scale, float value_scale, double weight_error,
               std::vector<double>& out, std::vector<double>& margin);

}  // namespace attention_test
