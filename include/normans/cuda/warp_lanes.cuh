#pragma once
// The lane group of a GPU: one lane per thread of a logical warp, that is of 1, 8, 16 or 32
// neighbouring threads of a warp. Votes live here and nowhere else.
// Convergence: every call of one of these functions is made by all threads of the logical warp, in
// the same order; other logical warps of the same warp may be anywhere. Blocks of threads may have
// any shape; a logical warp starts at a multiple of its width in the warp.
// A mask is each thread's own bit. As a ballot it would cost three votes a step; so it costs one
// where somebody asks any(), and one for the words that move.

#include "../core/rans_step.hpp"
#include "warp_model.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// This thread's place in its warp.
__device__ inline uint32_t place_in_warp()
{
#if defined(__CUDA_ARCH__)
    uint32_t place;
    asm("mov.u32 %0, %%laneid;" : "=r"(place));
    return place;
#else  // where the device is played by a host compiler
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
#endif
}

}  // namespace detail

/// Who takes part: votes and sums over a logical warp.
template <uint32_t Width>
struct warp_threads {
    static_assert(valid_lanes(Width), "logical warps have 1, 8, 16 or 32 threads");

    /// 0 .. Width - 1.
    static __device__ uint32_t rank() { return detail::place_in_warp() % Width; }
    static __device__ uint32_t members()
    {
        constexpr uint32_t all = Width == 32 ? ~uint32_t(0) : (uint32_t(1) << Width % 32) - 1;
        return Width == 32 ? all : all << (detail::place_in_warp() - rank());
    }
    /// The members of lower rank, in the whole warp's bits.
    static __device__ uint32_t below()
    {
        return (uint32_t(1) << detail::place_in_warp()) - 1;
    }

    static __device__ uint32_t ballot(bool mine) { return __ballot_sync(members(), mine); }
    static __device__ bool any(bool mine) { return __any_sync(members(), mine) != 0; }
    static __device__ bool all(bool mine) { return __all_sync(members(), mine) != 0; }
    /// Orders memory among the members.
    static __device__ void barrier() { __syncwarp(members()); }

    static __device__ uint32_t sum(uint32_t mine)
    {
        for (int distance = Width / 2; distance > 0; distance /= 2)
            mine += __shfl_xor_sync(members(), mine, distance, Width);
        return mine;
    }
    static __device__ uint64_t sum(uint64_t mine)
    {
        for (int distance = Width / 2; distance > 0; distance /= 2) {
            const uint32_t low =
                __shfl_xor_sync(members(), uint32_t(mine), distance, Width);
            const uint32_t high =
                __shfl_xor_sync(members(), uint32_t(mine >> 32), distance, Width);
            mine += uint64_t(high) << 32 | low;
        }
        return mine;
    }
};

/// Words of one block, read by all its lanes: the cursor is the same in every thread. Never past
/// `count`: then words are 0 and `next` stays at `past`.
struct warp_reader {
    const uint16_t* words;
    uint32_t next;
    uint32_t count;
    uint32_t past;  // count + 1
};

/// Words written downward from `next`. Never below 0: then `overrun` is set.
struct warp_writer {
    uint16_t* words;
    uint32_t next;
    bool overrun;
};

/// See array_lanes. Model is a warp_model; nothing here knows the order of events. Idle lanes need
/// some scalar, too; what becomes of it is the idle interval.
template <uint32_t Width>
struct warp_lanes {
    static constexpr uint32_t width = Width;
    using threads = warp_threads<Width>;

    struct mask {
        uint32_t set;  // 0 or 1: as a bool it would be widened and narrowed in every step
        __device__ constexpr mask(bool mine) : set(mine ? 1 : 0) {}
        friend __device__ mask operator|(mask x, mask y)
        {
            x.set |= y.set;
            return x;
        }
    };
    using values = uint32_t;
    using models = warp_scalar;
    using state = uint32_t;
    using encoder_state = uint32_t;

    struct intervals {
        uint32_t start, freq, code, raw_bits;
        mask raw, escaped, corrupt;
    };

    static __device__ bool any(mask m) { return threads::any(m.set != 0); }

    static __device__ uint32_t slot(uint32_t x) { return x & (rans_format::total - 1); }

    template <class Model, class Guess>
    static __device__ intervals locate(const Model& model, const Guess&, const warp_scalar& scalar,
                                       uint32_t slots, mask active)
    {
        return all_of<Model::grouped>(model.locate(scalar, slots), active);
    }

    template <class Model>
    static __device__ intervals find(const Model& model, const warp_scalar& scalar, uint32_t code,
                                     mask active)
    {
        return all_of<Model::grouped>(model.find(scalar, code), active);
    }

    static __device__ intervals locate(const marginal_table& table, uint32_t slots, mask on)
    {
        return find(table, on.set != 0 ? symbol_at(table, slots) : 0, on);
    }

    static __device__ intervals find(const marginal_table& table, uint32_t symbol, mask on)
    {
        const interval one = on.set != 0 ? interval_of(table, symbol) : idle_interval();
        return {one.start, one.freq, one.code, 0, false, false, false};
    }

    static __device__ void advance(uint32_t& x, uint32_t freq, uint32_t offset)
    {
        x = freq * (x >> rans_format::precision_bits) + offset;
    }

    static __device__ void divide(uint32_t& x, uint32_t freq, uint32_t start)
    {
        const uint32_t quotient = x / freq, rest = x - quotient * freq;
        x = (quotient << rans_format::precision_bits) + rest + start;
    }

    static __device__ mask full_for(uint32_t x, uint32_t freq)
    {
        return x >> rans_format::word_bits >= freq;
    }

    static __device__ mask full_for_bits(uint32_t x, uint32_t bits)
    {
        return x >> (31 - bits) != 0;
    }

    static __device__ uint32_t pop(uint32_t& x, uint32_t bits)
    {
        const uint32_t taken = x & ((uint32_t(1) << bits) - 1);
        x >>= bits;
        return taken;
    }

    static __device__ void push(uint32_t& x, uint32_t bits, uint32_t value)
    {
        x = x << bits | value;
    }

    /// Starved lanes take a word each, in rank order.
    static __device__ void refill(uint32_t& x, warp_reader& from)
    {
        const bool starved = x < rans_format::lower_bound;
        const uint32_t ballot = threads::ballot(starved);
        const uint32_t mine = from.next + uint32_t(__popc(ballot & threads::below()));
        const uint32_t end = from.next + uint32_t(__popc(ballot));
        uint32_t word = 0;
        if (starved && mine < from.count) word = from.words[mine];
        x = starved ? x << rans_format::word_bits | word : x;
        from.next = end < from.past ? end : from.past;
    }

    /// Full lanes give a word each; the highest rank's lies at the highest address.
    static __device__ void spill(uint32_t& x, mask full, warp_writer& to)
    {
        const uint32_t ballot = threads::ballot(full.set != 0);
        const uint32_t taken = uint32_t(__popc(ballot));
        to.overrun = to.overrun || taken > to.next;
        if (to.overrun) return;
        to.next -= taken;
        if (full.set == 0) return;
        const uint32_t mine = to.next + uint32_t(__popc(ballot & threads::below()));
        to.words[mine] = uint16_t(x);
        x >>= rans_format::word_bits;
    }

    static __device__ uint32_t subtract(uint32_t x, uint32_t y) { return x - y; }
    static __device__ uint32_t combine(uint32_t x, uint32_t y) { return x | y; }
    static __device__ uint32_t where(mask m, uint32_t x) { return m.set != 0 ? x : 0; }
    static __device__ uint32_t where_not(mask m, uint32_t x) { return m.set != 0 ? 0 : x; }

private:
    static __device__ mask flag(uint32_t zero_or_one)
    {
        mask m = false;
        m.set = zero_or_one;
        return m;
    }

    // Idle lanes have computed something too: a branch around it would cost the others more.
    // Only escapes have raw bits where codes are not grouped.
    template <bool Grouped>
    static __device__ intervals all_of(const warp_interval& one, mask active)
    {
        const interval idle = idle_interval();
        const bool on = active.set != 0;
        return {on ? one.start : idle.start,
                on ? one.freq : idle.freq,
                on ? one.code : idle.code,
                on ? one.raw_bits : idle.raw_bits,
                Grouped && on && one.raw_bits != 0,
                flag(on ? one.escaped : 0),
                flag(on ? one.corrupt : 0)};
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
