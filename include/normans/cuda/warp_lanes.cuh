#pragma once
// The lane group of a GPU: one lane per thread of a logical warp, that is of 1, 8, 16 or 32
// neighbouring threads of a warp. Votes live here and nowhere else.
// Convergence: every call of one of these functions is made by all threads of the logical warp, in
// the same order; other logical warps of the same warp may be anywhere. Blocks of threads may have
// any shape; a logical warp starts at a multiple of its width in the warp.
// A mask is each thread's own bit, and a vote is for the rare: whether any lane has to search, and
// who takes words. What only a search can find is nowhere else asked for.

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

// A mask of the places below this thread's.
__device__ inline uint32_t lower_places()
{
#if defined(__CUDA_ARCH__)
    uint32_t places;  // volatile: taken once and kept
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(places));
    return places;
#else
    return (uint32_t(1) << place_in_warp()) - 1;
#endif
}

__device__ inline bool is_starved(uint32_t x)
{
#if defined(__CUDA_ARCH__)
    uint32_t flag;  // one comparison, where nvcc makes one each for yes and no
    asm("{.reg .pred below; setp.lt.u32 below, %1, %2; selp.u32 %0, 1, 0, below;}"
        : "=r"(flag)
        : "r"(x), "n"(rans_format::lower_bound));
    return flag != 0;
#else
    return x < rans_format::lower_bound;
#endif
}

// x << 16 | word.
__device__ inline uint32_t join(uint32_t x, uint16_t word)
{
#if defined(__CUDA_ARCH__)
    return __byte_perm(x, word, 0x1054);
#else
    return x << rans_format::word_bits | word;
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

    static __device__ uint32_t ballot(bool mine) { return __ballot_sync(members(), mine); }
    /// Where the members are known: to work them out takes four instructions.
    static __device__ uint32_t ballot(bool mine, uint32_t among)
    {
        return __ballot_sync(Width == 32 ? ~uint32_t(0) : among, mine);
    }
    static __device__ bool any(bool mine) { return __any_sync(members(), mine) != 0; }
    static __device__ bool all(bool mine) { return __all_sync(members(), mine) != 0; }
    /// Orders memory among the members.
    static __device__ void barrier() { __syncwarp(members()); }
    /// The members, known from now on.
    static __device__ uint32_t counted() { return Width == 32 ? members() : ballot(true); }

    /// What the thread of the next rank has; the last one gets the first one's.
    static __device__ uint32_t of_next(uint32_t mine)
    {
        return __shfl_sync(members(), mine, int(rank() + 1), Width);
    }

    /// The sum over the ranks below this thread's.
    static __device__ uint32_t sum_below(uint32_t mine)
    {
        uint32_t sum = mine;
        for (uint32_t distance = 1; distance < Width; distance *= 2) {
            const uint32_t lower =
                __shfl_sync(members(), sum, int((rank() - distance) % Width), Width);
            sum += rank() >= distance ? lower : 0;
        }
        return sum - mine;
    }

    /// What the thread of a rank has; ranks wrap round.
    static __device__ uint32_t of(uint32_t mine, uint32_t other)
    {
        return __shfl_sync(members(), mine, int(other), Width);
    }
    static __device__ uint64_t of(uint64_t mine, uint32_t other)
    {
        const uint32_t low = of(uint32_t(mine), other), high = of(uint32_t(mine >> 32), other);
        return uint64_t(high) << 32 | low;
    }

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

/// One lane's share of a check, and the total, the same in all threads.
template <uint32_t Width>
struct warp_sums : running_sums {
    __device__ uint32_t total() const
    {
        return warp_threads<Width>::sum(share(warp_threads<Width>::rank()));
    }
    /// After a pass from the last scalar to the first.
    __device__ void turn(uint32_t count)
    {
        reverse(count / Width + (warp_threads<Width>::rank() < count % Width ? 1u : 0u));
    }
};

/// Words of one block, read by all its lanes: the cursor is the same in every thread. Behind the
/// last word that word is read again, or where there is none what lies in front of the words, which
/// is the block's, too; the cursor moves on and tells.
class warp_reader {
public:
    const uint32_t members;
    const uint32_t lower_ranks = detail::lower_places();  // of the whole warp

    __device__ warp_reader(const uint16_t* words, uint32_t count, uint32_t readers)
        : members(readers), before_(words - 1), count_(count)
    {
#if defined(__CUDA_ARCH__)
        asm volatile("" : "+l"(before_));  // or it stays a sum, and takes more registers
#endif
    }
    /// The word `ahead` words from the cursor.
    __device__ uint16_t peek(uint32_t ahead) const
    {
        const uint32_t at = next_ + ahead;
        return before_[at < count_ ? at : count_];
    }
    __device__ void skip(uint32_t words)
    {
        const uint32_t at = next_ + words;
        next_ = at < no_return ? at : no_return;
    }
    /// True if all words were taken, and no more.
    __device__ bool at_end() const { return next_ - 1 == count_ && next_ != no_return; }

private:
    static constexpr uint32_t no_return = 0xffffff00u;  // longer blocks have no end

    const uint16_t* before_;  // words count from 1
    uint32_t next_ = 1, count_;
};

/// Words written downward from `next`. Never below 0: then `overrun` is set.
struct warp_writer {
    uint16_t* words;
    uint32_t next;
    bool overrun;
    uint32_t members;
    uint32_t lower_ranks = detail::lower_places();  // of the whole warp
};

namespace detail {

// An encoder's words to where the decoder's begin: `count` words from `first` on to the front.
template <uint32_t Width>
__device__ void move_to_front(uint16_t* words, uint32_t first, uint32_t count)
{
    using threads = warp_threads<Width>;
    threads::barrier();  // all words lie there
    for (uint32_t done = 0; done < count; done += Width) {
        const uint32_t to = done + threads::rank();
        const uint16_t word = to < count ? words[first + to] : 0;
        threads::barrier();  // nobody's word is overwritten
        if (to < count) words[to] = word;
    }
}

}  // namespace detail

/// See array_lanes. Model is a warp_view; nothing here knows the order of events. Idle lanes need
/// some scalar, too; what becomes of it is the idle interval.
template <uint32_t Width>
struct warp_lanes {
    static constexpr uint32_t width = Width;
    using threads = warp_threads<Width>;

    struct mask {
        uint32_t set;       // 0 or 1: as a bool it would be widened and narrowed in every step
        uint32_t possible;  // 0: set is 0 in every lane
        __device__ constexpr mask(bool mine) : set(mine ? 1 : 0), possible(1) {}
        __device__ constexpr mask(bool mine, uint32_t anybody)
            : set(mine ? 1 : 0), possible(anybody)
        {
        }
        friend __device__ mask operator|(mask x, mask y)
        {
            x.set |= y.set;
            x.possible |= y.possible;
            return x;
        }
    };
    using values = uint32_t;
    using models = warp_scalar;
    using state = uint32_t;
    using encoder_state = uint32_t;

    // What one vote has shown to be possible: worked out by those who ask, and where it is not, by
    // nobody. Raw bits are asked for as possible only.
    struct rare_mask {
        uint32_t possible;
        warp_interval found;
        bool active, escapes, corrupts;

        __device__ operator mask() const
        {
            return {active && ((escapes && found.escaped()) || (corrupts && found.corrupt())),
                    possible};
        }
        friend __device__ rare_mask operator|(rare_mask x, rare_mask y)
        {
            return {x.possible | y.possible, y.found, y.active, x.escapes || y.escapes,
                    x.corrupts || y.corrupts};
        }
    };

    struct intervals {
        uint32_t start, freq, code, raw_bits;
        rare_mask raw, escaped, corrupt;
    };
    struct marginal_intervals {
        uint32_t start, freq, code;
    };

    static __device__ bool any(mask m) { return m.possible != 0 && threads::any(m.set != 0); }
    /// Or may be: a vote would cost every step, and what is done for nobody changes nothing.
    static __device__ bool any(rare_mask m) { return m.possible != 0; }

    static __device__ uint32_t slot(uint32_t x) { return x & (rans_format::total - 1); }

    template <class Model, class Guess>
    static __device__ intervals locate(const Model& model, const Guess&, const warp_scalar& scalar,
                                       uint32_t slots, mask active)
    {
        warp_interval found{};
        const bool missed = !model.locate(scalar, slots, found) & (active.set != 0);
        const uint32_t rare = threads::ballot(missed, model.members);
        if (rare != 0) {
            if (missed) found = model.search(scalar, slots);
            threads::barrier();
        }
        return all_of<Model>(found, active, rare, model.members);
    }

    template <class Model>
    static __device__ intervals find(const Model& model, const warp_scalar& scalar, uint32_t code,
                                     mask active)
    {
        warp_interval found{};
        const bool missed = !model.find(scalar, code, found) & (active.set != 0);
        const uint32_t rare = threads::ballot(missed, model.members);
        if (rare != 0) {
            if (missed) found = model.search_code(scalar, code);
            threads::barrier();
        }
        return all_of<Model>(found, active, rare, model.members);
    }

    static __device__ marginal_intervals locate(const marginal_table& table, uint32_t slots,
                                                mask on)
    {
        return find(table, on.set != 0 ? symbol_at(table, slots) : 0, on);
    }

    static __device__ marginal_intervals find(const marginal_table& table, uint32_t symbol, mask on)
    {
        const interval one = on.set != 0 ? interval_of(table, symbol) : idle_interval();
        return {one.start, one.freq, one.code};
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
        const bool starved = detail::is_starved(x);
        const uint32_t ballot = threads::ballot(starved, from.members);
        const uint16_t word = from.peek(uint32_t(__popc(ballot & from.lower_ranks)));
        x = starved ? detail::join(x, word) : x;
        from.skip(uint32_t(__popc(ballot)));
    }

    /// Full lanes give a word each; the highest rank's lies at the highest address.
    static __device__ void spill(uint32_t& x, mask full, warp_writer& to)
    {
        const uint32_t ballot = threads::ballot(full.set != 0, to.members);
        const uint32_t taken = uint32_t(__popc(ballot));
        to.overrun = to.overrun || taken > to.next;
        if (to.overrun) return;
        to.next -= taken;
        if (full.set == 0) return;
        const uint32_t mine = to.next + uint32_t(__popc(ballot & to.lower_ranks));
        to.words[mine] = uint16_t(x);
        x >>= rans_format::word_bits;
    }

    static __device__ uint32_t subtract(uint32_t x, uint32_t y) { return x - y; }
    static __device__ uint32_t combine(uint32_t x, uint32_t y) { return x | y; }
    static __device__ uint32_t where(mask m, uint32_t x) { return m.set != 0 ? x : 0; }
    static __device__ uint32_t where_not(mask m, uint32_t x) { return m.set != 0 ? 0 : x; }

private:
    // Idle lanes have computed something too: a branch around it would cost the others more. No
    // lane escapes or is corrupt unless `rare`. Only escapes have raw bits where codes are not
    // grouped.
    template <class Model>
    static __device__ intervals all_of(const warp_interval& one, mask active, uint32_t rare,
                                       uint32_t members)
    {
#if defined(__CUDA_ARCH__)
        asm volatile("" : "+r"(rare));  // else it becomes a flag to be carried, and set twice
#endif
        const interval idle = idle_interval();
        const bool on = active.set != 0;
        // Escapes under a marginal have no raw bits, and more slots.
        constexpr uint32_t few = shape_of(shape_id::gaussian).escape_slots;
        constexpr uint32_t whole = Model::format.code_bits < raw_bits_limit
                                       ? Model::format.code_bits
                                       : raw_bits_limit;
        const uint32_t escape_bits = on && one.start == 0 && one.freq == few ? whole : 0;
        const uint32_t raw_bits = Model::grouped && on ? one.raw_bits : escape_bits;
        const uint32_t raw = Model::grouped ? threads::ballot(raw_bits != 0, members) : 0;
        rare_mask escaped{rare, one, on, true, false}, corrupt{rare, one, on, false, true};
        return {on ? one.start : idle.start, on ? one.freq : idle.freq,
                on ? one.code : idle.code, raw_bits, {raw, one, false, false, false},
                escaped, corrupt};
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
