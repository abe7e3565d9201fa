#pragma once
// Row steps of a block by one logical warp: as lanes read them, and the encoder's choice, the same
// as host/row_steps.hpp makes.

#include "../block/block.hpp"
#include "row_views.cuh"
#include "warp_lanes.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// A block's row steps: 32 bits more to keep than the block's address.
struct lane_row_steps {
    const uint8_t* block;
    uint32_t place;  // offset | lowest << 8 | bits << 16

    __device__ lane_row_steps(const uint8_t* of, const block_header& header,
                              const block_layout& at)
        : block(of),
          place(uint32_t(at.row_steps) | uint32_t(header.rows.lowest) << 8 |
                uint32_t(header.rows.bits) << 16)
    {
    }
    /// Step + 6 of a token.
    __device__ uint32_t nibble(uint32_t token) const
    {
        const uint32_t now = kept(place), bits = now >> 16;
        if (bits == 0) return now >> 8;
        const uint32_t at = token % 8 * bits;
        const uint32_t first = token / 8 * bits + at / 8 + (now & 255);
        uint32_t value = block[first];
        value |= uint32_t(block[first + (at % 8 + bits > 8 ? 1 : 0)]) << 8;
        return (now >> 8 & 15) + (value >> at % 8 & ((1u << bits) - 1));
    }
    /// Kept here, so that the header needs no registers while steps run.
    __device__ row_step_window window() const { return window_in(kept(place)); }

private:
    static __device__ row_step_window window_in(uint32_t of)
    {
        return {uint8_t(of >> 8), uint8_t(of >> 16)};
    }
};

// Best steps as nibbles where the block keeps row steps, then packed there as the window that pays
// most. Every 16 / Width steps' sums lie in a lane.
template <uint32_t Width>
class warp_row_writer {
    using threads = warp_threads<Width>;
    static constexpr uint32_t owned = Width < 16 ? 16 / Width : 1;

public:
    /// `header` becomes that of a block with row steps.
    static __device__ void begin(block_header& header)
    {
        header.flags |= has_row_steps;
        header.rows = full_window;
    }

    /// All tokens in order, once or until again() says that it is enough; `row` is the calling
    /// lane's part of the sums. The coded form may take `room` bytes from `out` on.
    __device__ void add(const normal_shape& shape, row_statistics row, uint32_t token,
                        uint32_t tokens, const block_header& header, uint8_t* out, uint32_t room)
    {
        row.sum = threads::sum(row.sum);
        row.count = kept(threads::sum(row.count));  // or nvcc runs out of registers, on sm_120
        token = kept(token);
        const uint32_t nibble = uint32_t(choose_row_step(shape, row) - min_row_step);
        for (uint32_t i = 0; i < owned; ++i)
            if (threads::rank() * owned + i == nibble) rows_[i].add(row);
        eight_ |= nibble << token % 8 * 4;
        if (token % 8 != 7 && token + 1 != tokens) return;
        const block_layout at = layout_of(header, tokens);
        if (threads::rank() == 0 && at.states <= room)
            store_row_steps(eight_, header.rows, token / 8, tokens, out + at.row_steps);
        eight_ = 0;
    }

    /// Says in `header` what is stored: nothing where that does not pay. True where the steps in
    /// full had no room, but those of the window have: then all tokens once more.
    __device__ bool again(const normal_shape& shape, uint32_t tokens, block_header& header,
                          uint8_t* out, uint32_t room)
    {
        threads::barrier();  // all that was stored lies there
        if (header.rows.bits != full_window.bits) return false;
        const row_window_choice best = choice(shape, tokens);
        const bool had_room = layout_of(header, tokens).states <= room;
        header.rows = best.window;
        if (best.gain == 0) header.flags = uint8_t(header.flags & ~has_row_steps);
        const block_layout at = layout_of(header, tokens);
        if (!had_room) return best.gain != 0 && at.states <= room;
        if (best.window.bits == 0) return false;
        uint8_t* const to = out + at.row_steps;
        const uint32_t groups = (tokens - 1) / 8 + 1;
        for (uint32_t done = 0; done < groups; done += Width) {
            const uint32_t i = done + threads::rank();
            const uint32_t nibbles = i < groups ? load_u32(to + size_t(i) * 4) : 0;
            threads::barrier();  // nobody's nibbles are overwritten
            if (i < groups) store_row_steps(nibbles, best.window, i, tokens, to);
        }
        threads::barrier();
        return false;
    }

private:
    // choose_row_window(), each lane for its steps as the lowest one.
    __device__ row_window_choice choice(const normal_shape& shape, uint32_t tokens) const
    {
        const uint32_t first = threads::rank() * owned;
        row_statistics mine;
        int64_t own[owned], own_mine = 0;
        for (uint32_t i = 0; i < owned; ++i) {
            own[i] = first + i < 16 ? row_step_gain(shape, rows_[i], step_of(first + i)) : 0;
            own_mine += own[i];
            mine.add(rows_[i]);
        }
        row_statistics up_to{below(mine.sum), uint32_t(below(mine.count))};
        row_statistics from{threads::sum(mine.sum), threads::sum(mine.count)};
        from.subtract(up_to);
        int64_t own_below = int64_t(below(uint64_t(own_mine)));
        row_window_ends ends[owned];
        for (uint32_t i = 0; i < owned; ++i) {
            up_to.add(rows_[i]);
            ends[i] = window_ends_at(shape, step_of(first + i), own[i], up_to, from, own_below);
            from.subtract(rows_[i]);
            own_below += own[i];
        }
        row_window_choice best;
        NORMANS_NO_UNROLL
        for (uint32_t bits = 0; bits <= 4; ++bits) {
            const uint32_t more = (1u << bits) - 1;  // steps above the lowest
            for (uint32_t i = 0; i < owned; ++i) {
                int64_t upper = 0;
                for (uint32_t k = 0; k < owned; ++k)  // all, or they would need an address
                    if (k == (i + more) % owned) upper = ends[k].upper;
                upper = int64_t(threads::of(uint64_t(upper), threads::rank() + (i + more) / owned));
                const int64_t gain = ends[i].lower + upper - row_step_cost(tokens, bits);
                if (first + i + more < 16 && gain > best.gain)
                    best = {{uint8_t(first + i), uint8_t(bits)}, gain};
            }
        }
        NORMANS_NO_UNROLL
        for (uint32_t distance = Width / 2; distance > 0; distance /= 2) {
            const uint32_t other = threads::rank() ^ distance;
            const int64_t gain = int64_t(threads::of(uint64_t(best.gain), other));
            const uint32_t packed =
                threads::of(best.window.lowest | uint32_t(best.window.bits) << 4, other);
            if (gain < best.gain ||
                (gain == best.gain &&
                 packed >= (best.window.lowest | uint32_t(best.window.bits) << 4)))
                continue;
            best = {{uint8_t(packed & 15), uint8_t(packed >> 4)}, gain};
        }
        return best;
    }

    // Ranks beyond the steps ask, too.
    static __device__ int step_of(uint32_t nibble)
    {
        return int(nibble < 16 ? nibble : 15) + min_row_step;
    }

    // The sum over the lanes of lower ranks.
    static __device__ uint64_t below(uint64_t mine)
    {
        uint64_t sum = mine;
        NORMANS_NO_UNROLL
        for (uint32_t distance = 1; distance < Width; distance *= 2) {
            const uint64_t other = threads::of(sum, threads::rank() - distance);
            if (threads::rank() >= distance) sum += other;
        }
        return sum - mine;
    }

    row_statistics rows_[owned];
    uint32_t eight_ = 0;  // nibbles that are not stored yet
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
