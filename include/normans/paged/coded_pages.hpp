#pragma once
// The pages of a paged store as attend() of paged_attention.hpp asks for them: some pages at a time
// are decoded into a buffer, which should fit the L1 or L2 cache, and used at once.

#include "page_places.hpp"
#include "paged_attention.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// K and V of one layer of one sequence. K and V are parts of a store; Store and Predictors as for
/// its read(). wrong_count: a page holds fewer tokens than the sequence has there, or is padding.
template <class Code, class Store, class Predictors>
class coded_pages {
public:
    static constexpr uint32_t most_ahead = 16;

    static constexpr uint32_t pages_ahead(uint32_t wanted)
    {
        return wanted == 0 ? 1 : wanted < most_ahead ? wanted : most_ahead;
    }
    /// Elements of the buffer for `ahead` pages at a time.
    static size_t buffer_elements(const Store& store, uint32_t k_part, uint32_t v_part,
                                  uint32_t ahead)
    {
        return pages_ahead(ahead) * (page_elements(store, k_part) + page_elements(store, v_part));
    }

    /// The table covers `tokens` tokens. `ahead`: pages decoded in one call, 1 .. most_ahead; 4
    /// with blocks of 32 lanes, 16 with 8 lanes keep a processor busy. Everything given is used as
    /// long as this is; the workspace as in read().
    coded_pages(const Store& store, uint32_t k_part, uint32_t v_part, const int32_t* table,
                uint64_t tokens, const Predictors& predictors, Code* buffer, uint32_t ahead,
                uint8_t* workspace)
        : store_(store), predictors_(predictors), table_(table), tokens_(tokens), buffer_(buffer),
          workspace_(workspace), k_part_(k_part), v_part_(v_part),
          ahead_(pages_ahead(ahead))
    {
    }

    status operator()(uint32_t i, kv_page<Code>& page)
    {
        if (i < first_ || i - first_ >= count_) {
            const status code = fill(i);
            if (code != status::ok) return code;
        }
        const box_view<Code> k = k_box(i - first_), v = v_box(i - first_);
        page = {k.data, v.data, k.head_stride, k.token_stride, v.head_stride, v.token_stride};
        return status::ok;
    }

private:
    static size_t page_elements(const Store& store, uint32_t part)
    {
        return size_t(count_of(store.spec_of(part, store.geometry().page_tokens)));
    }

    box_view<Code> k_box(uint32_t n) const
    {
        return dense(store_.spec_of(k_part_, store_.geometry().page_tokens),
                     buffer_ + n * page_elements(store_, k_part_));
    }
    box_view<Code> v_box(uint32_t n) const
    {
        return dense(store_.spec_of(v_part_, store_.geometry().page_tokens),
                     buffer_ + ahead_ * page_elements(store_, k_part_) +
                         n * page_elements(store_, v_part_));
    }

    status fill(uint32_t i)
    {
        const uint64_t each = store_.geometry().page_tokens, begin = i * each;
        count_ = 0;
        if (begin >= tokens_) return status::bad_argument;
        const uint64_t left = tokens_ - begin, pages = (left + each - 1) / each;
        const uint32_t now = pages < ahead_ ? uint32_t(pages) : ahead_;
        for (const bool is_v : {false, true}) {
            page_result results[most_ahead];
            store_.template read<Code>(
                is_v ? v_part_ : k_part_, table_ + i, now, 0, left,
                [&](uint32_t n) {
                    page_view<Code> view;
                    view.codes = is_v ? v_box(n) : k_box(n);
                    return view;
                },
                predictors_, workspace_, results);
            for (uint32_t n = 0; n < now; ++n) {
                const uint64_t wanted = left - n * each < each ? left - n * each : each;
                if (!results[n]) return results[n].code;
                if (results[n].tokens != wanted) return status::wrong_count;
            }
        }
        first_ = i;
        count_ = now;
        return status::ok;
    }

    const Store& store_;
    const Predictors& predictors_;
    const int32_t* table_;
    uint64_t tokens_;
    Code* buffer_;
    uint8_t* workspace_;
    uint32_t k_part_, v_part_, ahead_;
    uint32_t first_ = 0, count_ = 0;
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
