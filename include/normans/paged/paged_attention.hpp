#pragma once
// Decode-phase attention on a CPU over a paged KV cache: one query token per sequence, a group of
// query heads per KV head, softmax as pages come (the running maximum and sum of FlashAttention).
// It takes K and V as codes, e4m3fn (uint8_t) or bf16 (uint16_t), from wherever they are: a raw
// page, or one just decoded into a buffer (coded_pages.hpp). Both go through the same compiled
// function, which knows nothing of the codec: same codes, same bits out.

#include "../status.hpp"
#include "float_vector.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// K and V of a page. Strides in elements; channels are adjacent.
template <class Code>
struct kv_page {
    const Code* k = nullptr;
    const Code* v = nullptr;
    ptrdiff_t k_head = 0, k_token = 0;
    ptrdiff_t v_head = 0, v_token = 0;
};

/// One KV head under `Group` query heads, Dim channels each. No memory but its own: 8 KB for 8
/// heads of 128.
template <uint32_t Dim, uint32_t Group>
class attention_head {
    using vector = detail::float_vector;
    static_assert(Dim % 64 == 0, "heads are a multiple of 64 channels wide");
    static constexpr uint32_t piece = 64;  // tokens whose scores are kept
    static constexpr uint32_t width = vector::width;
    // Columns of V at a time: additions to one column wait for each other.
    static constexpr uint32_t columns = Group < 4 ? 64 / width : 1;

public:
    /// queries[g * Dim + channel]; scores are scale * (query . k), k in units of its codes (fold
    /// the scale of an fp8 cache in).
    void begin(const float* queries, float scale) noexcept
    {
        constexpr float log2_e = 1.44269504f;
        for (uint32_t g = 0; g < Group; ++g) {
            for (uint32_t d = 0; d < Dim; ++d) query_[g][d] = queries[g * Dim + d] * scale * log2_e;
            for (uint32_t d = 0; d < Dim; ++d) sum_[g][d] = 0;
            largest_[g] = -bits_to_float(infinity_bits);
            weight_[g] = 0;
        }
    }

    /// The next tokens: rows of K and V, `*_token` elements from one to the next.
    template <class Code>
    NORMANS_NOINLINE void add(const Code* k, ptrdiff_t k_token, const Code* v, ptrdiff_t v_token,
                              uint32_t tokens) noexcept
    {
        for (uint32_t first = 0; first < tokens; first += piece) {
            const uint32_t now = tokens - first < piece ? tokens - first : piece;
            float scores[Group][piece];
            score(k + ptrdiff_t(first) * k_token, k_token, now, scores);
            weigh(now, scores);
            collect(v + ptrdiff_t(first) * v_token, v_token, now, scores);
        }
    }

    /// out[g * Dim + channel], in units of V's codes times v_scale. NaN if no token was added.
    void finish(float v_scale, float* out) const noexcept
    {
        for (uint32_t g = 0; g < Group; ++g)
            for (uint32_t d = 0; d < Dim; ++d)
                out[g * Dim + d] = sum_[g][d] / weight_[g] * v_scale;
    }

private:
    template <class Code>
    void score(const Code* k, ptrdiff_t row, uint32_t tokens, float (&scores)[Group][piece]) const
    {
        for (uint32_t t = 0; t < tokens; ++t) {
            const Code* const at = k + ptrdiff_t(t) * row;
            vector sum[Group];
            NORMANS_UNROLL
            for (uint32_t g = 0; g < Group; ++g) sum[g] = vector::all(0);
            for (uint32_t d = 0; d < Dim; d += width) {
                const vector key = vector::from_codes(at + d);
                NORMANS_UNROLL
                for (uint32_t g = 0; g < Group; ++g)
                    sum[g] = vector::fma(vector::load(query_[g] + d), key, sum[g]);
            }
            NORMANS_UNROLL
            for (uint32_t g = 0; g < Group; ++g) scores[g][t] = sum[g].sum();
        }
        const uint32_t end = (tokens + width - 1) / width * width;
        for (uint32_t g = 0; g < Group; ++g)
            for (uint32_t t = tokens; t < end; ++t) scores[g][t] = -bits_to_float(infinity_bits);
    }

    // Scores to weights under the new maximum; what was summed before is brought down to it.
    void weigh(uint32_t tokens, float (&scores)[Group][piece])
    {
        for (uint32_t g = 0; g < Group; ++g) {
            float* const row = scores[g];
            float largest = largest_[g];
            for (uint32_t t = 0; t < tokens; ++t) largest = row[t] > largest ? row[t] : largest;
            const vector shrink = detail::exp2_of(vector::all(largest_[g] - largest));
            vector total = vector::all(0);
            for (uint32_t t = 0; t < tokens; t += width) {
                const vector weight =
                    detail::exp2_of(vector::load(row + t) - vector::all(largest));
                weight.store(row + t);
                total = total + weight;
            }
            float factor[width];
            shrink.store(factor);
            weight_[g] = weight_[g] * factor[0] + total.sum();
            largest_[g] = largest;
            for (uint32_t d = 0; d < Dim; d += width)
                (vector::load(sum_[g] + d) * shrink).store(sum_[g] + d);
        }
    }

    template <class Code>
    void collect(const Code* v, ptrdiff_t row, uint32_t tokens,
                 const float (&weights)[Group][piece])
    {
        for (uint32_t d = 0; d < Dim; d += columns * width) {
            vector sum[Group * columns];
            NORMANS_UNROLL
            for (uint32_t i = 0; i < Group * columns; ++i)
                sum[i] = vector::load(sum_[i / columns] + d + i % columns * width);
            for (uint32_t t = 0; t < tokens; ++t) {
                const Code* const at = v + ptrdiff_t(t) * row + d;
                vector value[columns];
                NORMANS_UNROLL
                for (uint32_t c = 0; c < columns; ++c)
                    value[c] = vector::from_codes(at + c * width);
                NORMANS_UNROLL
                for (uint32_t i = 0; i < Group * columns; ++i)
                    sum[i] = vector::fma(vector::all(weights[i / columns][t]),
                                         value[i % columns], sum[i]);
            }
            NORMANS_UNROLL
            for (uint32_t i = 0; i < Group * columns; ++i)
                sum[i].store(sum_[i / columns] + d + i % columns * width);
        }
    }

    float query_[Group][Dim], sum_[Group][Dim];
    float largest_[Group], weight_[Group];
};

/// All KV heads, attention_head each or what has the like of its add(), over the first `tokens`
/// tokens of a sequence. pages(i, page) fills in the kv_page of the block table's page i and says
/// ok, or why not: then attention ends with that status. Pages are asked for one by one in order,
/// and used until the next.
template <class Code, class Head, class Pages>
status attend(Head* heads, uint32_t kv_heads, uint64_t tokens, uint32_t page_tokens,
              Pages&& pages) noexcept
{
    if (heads == nullptr || page_tokens == 0) return status::bad_argument;
    for (uint64_t first = 0; first < tokens; first += page_tokens) {
        kv_page<Code> page;
        const status code = pages(uint32_t(first / page_tokens), page);
        if (code != status::ok) return code;
        const uint64_t left = tokens - first;
        const uint32_t now = left < page_tokens ? uint32_t(left) : page_tokens;
        for (uint32_t h = 0; h < kv_heads; ++h)
            heads[h].add(page.k + ptrdiff_t(h) * page.k_head, page.k_token,
                         page.v + ptrdiff_t(h) * page.v_head, page.v_token, now);
    }
    return status::ok;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
