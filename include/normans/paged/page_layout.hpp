#pragma once
// How a paged cache lies in memory. Engines state it here; nothing is ever guessed from a shape.

#include "../block/block.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Order of tokens and heads in a page; channels are innermost in both.
enum class page_order : uint8_t { nhd, hnd };

/// Strides in elements, of one tensor (K or V of a layer) in a pool of pages.
struct page_layout {
    ptrdiff_t page_stride;
    ptrdiff_t head_stride;
    ptrdiff_t token_stride;
    ptrdiff_t offset = 0;  // of the first scalar
};

/// Pages one behind the other. `row` elements lie between the begins of adjacent rows: dim, or more
/// where rows are padded. To be changed where more is there:
///   K and V side by side in a page   page_stride doubled; V: offset = the former page_stride
///   K and V in one row               row = dim of both; V: offset = dim of K
///   pages padded, or of all layers   page_stride
inline page_layout layout_of_pages(page_order order, uint32_t tokens, uint32_t heads, uint32_t row)
{
    const ptrdiff_t width = ptrdiff_t(row);
    const ptrdiff_t page = ptrdiff_t(tokens) * ptrdiff_t(heads) * width;
    if (order == page_order::nhd) return {page, width, ptrdiff_t(heads) * width};
    return {page, ptrdiff_t(tokens) * width, width};
}

/// One page of a pool. Pools may have more than 2^31 elements.
template <class Code>
box_view<Code> page_box(Code* pool, const page_layout& layout, uint64_t page)
{
    return {pool + layout.offset + ptrdiff_t(page) * layout.page_stride, layout.head_stride,
            layout.token_stride};
}

/// Bytes that rows carry beside their codes, scales say; strides in bytes. data null: none.
template <class Byte>
struct row_view {
    Byte* data = nullptr;
    ptrdiff_t head_stride = 0;
    ptrdiff_t token_stride = 0;
};

/// Codes and row bytes of (a part of) a page, the first token at the front.
template <class Code>
struct page_view {
    using byte = std::conditional_t<std::is_const_v<Code>, const uint8_t, uint8_t>;

    box_view<Code> codes{};
    row_view<byte> rows{};

    /// From a later token on.
    page_view from(uint32_t token) const
    {
        page_view later = *this;
        later.codes.data += ptrdiff_t(token) * codes.token_stride;
        if (rows.data != nullptr) later.rows.data += ptrdiff_t(token) * rows.token_stride;
        return later;
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
