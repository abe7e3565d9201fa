#pragma once
// A block's row steps on their way into its bytes: in full first, where the block keeps row steps,
// then packed there as the window that pays most.

#include "../block/block.hpp"
#include "../block/row_scale.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

class row_step_writer {
public:
    row_step_writer() = default;

    /// For a block whose coded form may take `room` bytes from `out` on. `header` becomes that of
    /// one with row steps.
    row_step_writer(block_header& header, uint32_t tokens, uint8_t* out, uint64_t room)
        : header_(&header), tokens_(tokens), out_(out), room_(room)
    {
        header.flags |= has_row_steps;
        header.rows = full_window;
    }

    /// All tokens in order, once or until again() says that it is enough.
    void add(const normal_shape& shape, uint32_t token, const row_statistics& row)
    {
        const uint32_t nibble = uint32_t(choose_row_step(shape, row) - min_row_step);
        rows_[nibble].add(row);
        eight_ |= nibble << token % 8 * 4;
        if (token % 8 != 7 && token + 1 != tokens_) return;
        const block_layout at = layout_of(*header_, tokens_);
        if (at.states <= room_)
            store_row_steps(eight_, header_->rows, token / 8, tokens_, out_ + at.row_steps);
        eight_ = 0;
    }

    /// Says in the header what is stored: nothing where that does not pay. True where the steps in
    /// full had no room, but those of the window have: then all tokens once more. What it says then
    /// stays, also where tokens come again because of another block.
    bool again(const normal_shape& shape)
    {
        if (header_ == nullptr || chosen_) return false;
        chosen_ = true;
        const row_window_choice best = choose_row_window(shape, rows_, tokens_);
        const bool had_room = layout_of(*header_, tokens_).states <= room_;
        header_->rows = best.window;
        if (best.gain == 0) header_->flags = uint8_t(header_->flags & ~has_row_steps);
        const block_layout at = layout_of(*header_, tokens_);
        if (!had_room) return best.gain != 0 && at.states <= room_;
        uint8_t* const to = out_ + at.row_steps;
        for (uint32_t i = 0; best.window.bits != 0 && i < (tokens_ - 1) / 8 + 1; ++i)
            store_row_steps(load_u32(to + size_t(i) * 4), best.window, i, tokens_, to);
        return false;
    }

private:
    block_header* header_ = nullptr;
    uint32_t tokens_ = 0, eight_ = 0;
    uint8_t* out_ = nullptr;
    uint64_t room_ = 0;
    bool chosen_ = false;
    row_statistics rows_[16];  // by best step
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
