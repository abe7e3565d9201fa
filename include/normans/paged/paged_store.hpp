#pragma once
// A paged KV cache, coded: pages of tokens of several tensors, in memory of the caller. Pages grow
// by append(); read() decodes pages, layers or ranges of tokens by a block table. What lies where
// is page_places.hpp's, blocks are those of codec.hpp.
// The store has no policy: it evicts nothing, allocates nothing, locks nothing. One caller at a
// time may change a store; while nobody does, any number may read it.

#include <new>

#include "../host/codec.hpp"
#include "page_places.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

struct [[nodiscard]] append_result {
    status code = status::bad_argument;
    uint32_t tokens = 0;     // stored; on an error those that still fitted
    uint32_t coded = 0;      // tokens coded, earlier ones of an open group included
    uint32_t raw = 0;        // groups that coding would not have made smaller
    uint32_t overflows = 0;  // groups that did not fit their slots
    uint64_t bytes = 0;      // of the groups written, row bytes included
    constexpr explicit operator bool() const { return code == status::ok; }
};

/// Who codes a store's blocks: codec.hpp, compiled into the unit. dispatch.hpp has another one.
struct unit_coder {
    template <class Task>
    void encode(Task* tasks, size_t count) const
    {
        encode_blocks(tasks, count);
    }
    template <class Task>
    void decode(Task* tasks, size_t count) const
    {
        decode_blocks(tasks, count);
    }
};

namespace detail {

// Up to 16 blocks to decode in one call: several are in flight at a time.
template <class Code, class Predictor>
class decode_batch {
public:
    using task = decode_task<Code, Predictor>;
    static constexpr uint32_t most = 16;

    decode_batch() = default;
    decode_batch(const decode_batch&) = delete;
    decode_batch& operator=(const decode_batch&) = delete;
    ~decode_batch() { clear(); }

    bool full() const { return count_ == most; }

    void add(const task& one, uint32_t owner)
    {
        ::new (static_cast<void*>(memory_ + count_ * sizeof(task))) task(one);
        owner_[count_++] = owner;
    }

    /// done(task, owner) for each.
    template <class Coder, class Done>
    void run(const Coder& coder, const Done& done)
    {
        if (count_ == 0) return;
        task* const tasks = std::launder(reinterpret_cast<task*>(memory_));
        coder.decode(tasks, count_);
        for (uint32_t i = 0; i < count_; ++i) done(tasks[i], owner_[i]);
        clear();
    }

private:
    void clear()
    {
        for (; count_ != 0; --count_)
            std::launder(reinterpret_cast<task*>(memory_ + (count_ - 1) * sizeof(task)))->~task();
    }

    alignas(task) uint8_t memory_[most * sizeof(task)];
    uint32_t owner_[most];
    uint32_t count_ = 0;
};

}  // namespace detail

template <class Coder = unit_coder>
class basic_paged_store : public page_places {
public:
    basic_paged_store() = default;
    explicit basic_paged_store(const Coder& coder) : coder_(coder) {}

    /// Adds tokens behind those that the page holds: `from` begins with the first new one.
    /// predictors(part, page, token, tokens) predicts the block of `tokens` tokens of the page that
    /// begins with `token`: the same at every call. bad_argument: no such page, tokens behind its
    /// end, misplaced memory; output_too_small: the arena is full (compact() may help).
    /// Groups are coded one by one: each is whole in the store, or as it was.
    template <class Code, class Predictors>
    append_result append(uint32_t part, int32_t page, const page_view<const Code>& from,
                         uint32_t tokens, const Predictors& predictors, uint8_t* workspace) noexcept
    {
        append_result result;
        const page_result old = this->tokens(part, page);
        result.code = old.code;
        if (result.code == status::ok) result.code = check_source(part, from, tokens, workspace);
        if (result.code == status::ok && tokens > geometry().page_tokens - old.tokens)
            result.code = status::bad_argument;
        while (result.code == status::ok && result.tokens < tokens) {
            const uint32_t at = old.tokens + result.tokens, held = at % group_tokens();
            const uint32_t added = min_of(group_tokens() - held, tokens - result.tokens);
            result.code = grow(part, page, at - held, held, from.from(result.tokens), added,
                               predictors, workspace, result);
            if (result.code == status::ok) result.tokens += added;
        }
        return result;
    }

    /// append() to an emptied page.
    template <class Code, class Predictors>
    append_result write(uint32_t part, int32_t page, const page_view<const Code>& from,
                        uint32_t tokens, const Predictors& predictors, uint8_t* workspace) noexcept
    {
        append_result result;
        if (!has(part, page) || tokens > geometry().page_tokens) return result;
        result.code = check_source(part, from, tokens, workspace);
        if (result.code == status::ok) result.code = erase(part, page);
        if (result.code != status::ok) return result;
        return append(part, page, from, tokens, predictors, workspace);
    }

    /// Decodes tokens [first, first + tokens) of a sequence whose block table has `entries`
    /// physical pages. targets(i) is the page_view of the table's page i, all of it; of that the
    /// tokens in the range are written that the store holds, and nothing else. Row bytes: where a
    /// target has room for them. results[i] for every entry; one page's error stays its own. -1 is
    /// skipped, other pages that there are not get bad_argument; repeated ones are read repeatedly.
    template <class Code, class Targets, class Predictors>
    void read(uint32_t part, const int32_t* table, uint32_t entries, uint64_t first,
              uint64_t tokens, const Targets& targets, const Predictors& predictors,
              uint8_t* workspace, page_result* results) const noexcept
    {
        using predictor = std::decay_t<decltype(predictors(part, int32_t(0), 0u, 0u))>;
        const uint64_t each = geometry().page_tokens;
        const uint64_t end = tokens > ~uint64_t(0) - first ? ~uint64_t(0) : first + tokens;
        const bool good = part < geometry().part_count && !misplaced(workspace) &&
                          sizeof(Code) == code_bytes(geometry().parts[part].spec.dtype);
        detail::decode_batch<Code, predictor> batch;
        const auto flush = [&] {
            batch.run(coder_, [&](const decode_task<Code, predictor>& task, uint32_t i) {
                if (task.result.code == status::ok) results[i].tokens += task.spec.tokens;
                else if (results[i]) results[i].code = task.result.code;
            });
        };
        for (uint32_t i = 0; i < entries; ++i) {
            results[i] = {};
            results[i].skipped = table[i] == -1;
            if (!good || (table[i] != -1 && !has(part, table[i])))
                results[i].code = status::bad_argument;
            const uint64_t begin = i * each;
            if (!results[i] || results[i].skipped || end <= begin || first >= begin + each)
                continue;
            const uint32_t from = first > begin ? uint32_t(first - begin) : 0;
            const uint32_t to = end < begin + each ? uint32_t(end - begin) : uint32_t(each);
            const page_view<Code> target = targets(i);
            if (from < to && target.codes.data == nullptr) results[i].code = status::bad_argument;
            for (uint32_t at = from; at < to && results[i];) {
                const uint32_t group = at / group_tokens(), start = group * group_tokens();
                const group_place place = find(part, table[i], group);
                if (place.code != status::ok) results[i].code = place.code;
                const uint32_t stop = min_of(to, start + place.tokens);
                if (place.code != status::ok || at >= stop) break;
                results[i].code = copy_rows(part, place, at - start, stop - at, target.from(at));
                if (!results[i]) break;
                decode_task<Code, predictor> task{
                    spec_of(part, place.tokens), memory() + place.at, size_t(place.bytes),
                    predictors(part, table[i], start, place.tokens), target.from(start).codes};
                if (at == start && stop - start == place.tokens) {
                    batch.add(task, i);
                    if (batch.full()) flush();
                } else {
                    const status code =
                        decode_some(task, workspace, at - start, stop - at, target.from(at).codes);
                    if (code == status::ok) results[i].tokens += stop - at;
                    else results[i].code = code;
                }
                at = place.tokens == group_tokens() ? stop : to;
            }
        }
        flush();
    }

    /// Decodes tokens [first, first + tokens) of one page, as far as it holds them.
    template <class Code, class Predictors>
    page_result read_page(uint32_t part, int32_t page, uint32_t first, uint32_t tokens,
                          const page_view<Code>& target, const Predictors& predictors,
                          uint8_t* workspace) const noexcept
    {
        page_result result;
        read<Code>(part, &page, 1, first, tokens, [&](uint32_t) { return target; }, predictors,
                   workspace, &result);
        return result;
    }

private:
    template <class Code>
    status check_source(uint32_t part, const page_view<const Code>& from, uint32_t tokens,
                        const uint8_t* workspace) const
    {
        const page_part& p = geometry().parts[part];
        const bool good = sizeof(Code) == code_bytes(p.spec.dtype) && !misplaced(workspace) &&
                          (tokens == 0 || (from.codes.data != nullptr &&
                                           (p.row_bytes != 0) == (from.rows.data != nullptr)));
        return good ? status::ok : status::bad_argument;
    }

    template <class Code>
    status copy_rows(uint32_t part, const group_place& place, uint32_t first, uint32_t tokens,
                     const page_view<Code>& to) const
    {
        const page_part& p = geometry().parts[part];
        if (p.row_bytes == 0 || to.rows.data == nullptr) return status::ok;
        if (!rows_intact(p, place)) return status::content_mismatch;
        const uint8_t* from = memory() + place.rows_at;
        for (uint32_t h = 0; h < p.spec.heads; ++h)
            for (uint32_t t = 0; t < tokens; ++t)
                std::memcpy(to.rows.data + ptrdiff_t(h) * to.rows.head_stride +
                                ptrdiff_t(t) * to.rows.token_stride,
                            from + (uint64_t(h) * place.tokens + first + t) * p.row_bytes,
                            p.row_bytes);
        return status::ok;
    }

    template <class From, class To>
    static void copy_codes(const block_spec& spec, uint32_t tokens, const box_view<From>& from,
                           const box_view<To>& to)
    {
        for (uint32_t h = 0; h < spec.heads; ++h)
            for (uint32_t t = 0; t < tokens; ++t)
                std::memcpy(
                    to.data + ptrdiff_t(h) * to.head_stride + ptrdiff_t(t) * to.token_stride,
                    from.data + ptrdiff_t(h) * from.head_stride + ptrdiff_t(t) * from.token_stride,
                    spec.dim * sizeof(To));
    }

    // Tokens of a block, by way of the workspace.
    template <class Code, class Predictor>
    status decode_some(decode_task<Code, Predictor> task, uint8_t* workspace, uint32_t first,
                       uint32_t tokens, const box_view<Code>& to) const
    {
        box_view<Code> all = dense(task.spec, reinterpret_cast<Code*>(workspace));
        task.out = all;
        coder_.decode(&task, 1);
        if (task.result.code != status::ok) return task.result.code;
        all.data += ptrdiff_t(first) * all.token_stride;
        copy_codes(task.spec, tokens, all, to);
        return status::ok;
    }

    // The group that begins with `token` and holds `held` tokens, coded anew with `added` more.
    template <class Code, class Predictors>
    status grow(uint32_t part, int32_t page, uint32_t token, uint32_t held,
                const page_view<const Code>& from, uint32_t added, const Predictors& predictors,
                uint8_t* workspace, append_result& result) noexcept
    {
        using predictor = std::decay_t<decltype(predictors(part, page, token, held))>;
        const page_part& p = geometry().parts[part];
        const uint32_t group = token / group_tokens(), all = held + added;
        const block_spec spec = spec_of(part, all);
        uint8_t* const rows = workspace + codes_room(geometry(), part);
        uint8_t* const block = rows + rows_room(p, all);
        const ptrdiff_t row = ptrdiff_t(p.row_bytes), head = ptrdiff_t(all) * row;
        box_view<const Code> codes = from.codes;
        if (held != 0) {
            const group_place place = find(part, page, group);
            if (place.code != status::ok || place.tokens != held) return status::corrupt_stream;
            const box_view<Code> both = dense(spec, reinterpret_cast<Code*>(workspace));
            decode_task<Code, predictor> task{
                spec_of(part, held), memory() + place.at, size_t(place.bytes),
                predictors(part, page, token, held), both};
            coder_.decode(&task, 1);
            if (task.result.code != status::ok) return task.result.code;
            box_view<Code> behind = both;
            behind.data += ptrdiff_t(held) * both.token_stride;
            copy_codes(spec, added, from.codes, behind);
            const status copied =
                copy_rows(part, place, 0, held, page_view<Code>{both, {rows, head, row}});
            if (copied != status::ok) return copied;
            codes = {both.data, both.head_stride, both.token_stride};
        }
        if (p.row_bytes != 0)
            for (uint32_t h = 0; h < p.spec.heads; ++h)
                for (uint32_t t = 0; t < added; ++t)
                    std::memcpy(rows + ptrdiff_t(h) * head + ptrdiff_t(held + t) * row,
                                from.rows.data + ptrdiff_t(h) * from.rows.head_stride +
                                    ptrdiff_t(t) * from.rows.token_stride,
                                p.row_bytes);
        encode_task<Code, predictor> task{spec, codes, predictors(part, page, token, all), block,
                                          max_encoded_bytes(spec)};
        coder_.encode(&task, 1);
        if (task.result.code != status::ok) return task.result.code;
        const status stored = put(part, page, group, all, block, task.result.bytes,
                                  p.row_bytes != 0 ? rows : nullptr);
        if (stored != status::ok) return stored;
        result.coded += all;
        result.raw += task.result.mode == block_mode::raw;
        result.overflows += find(part, page, group).overflow;
        result.bytes += rows_room(p, all) + task.result.bytes;
        return status::ok;
    }

    Coder coder_{};
};

using paged_store = basic_paged_store<>;

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
