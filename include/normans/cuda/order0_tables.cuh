#pragma once
// What warp_order0.cuh looks symbols up in. A table in a block is kept as the first slots of its
// symbols, 516 bytes, and a slot's symbol is found by halving (8 loads, of 4-bit codes 4). All
// slots would be 16 KiB of shared memory for each logical warp, and a store for every third code of
// a page of 12,288. Of the caller's tables, which many blocks share, slots are looked up through
// L1.

#include "../block/block.hpp"
#include "../core/order0_step.hpp"
#include "warp_lanes.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// A table's first slots; before they are summed up, its freqs. Both coders look into it.
struct order0_starts {
    uint16_t start[order0_symbols + 1];
    uint16_t precision_bits;
};

struct order0_freq {
    uint32_t freq, bits;  // of 2^bits
};
struct order0_interval {
    order0_freq freq;
    uint32_t start, offset, code;  // start: of find; offset: of locate
};

// What a lane looks into in one step: its block's table, or one of the caller's. The lane stays as
// it is where it is not `on`.
template <uint32_t Symbols>
struct own_table {
    const order0_starts& table;

    __device__ order0_interval locate(uint32_t x, bool on) const
    {
        const uint32_t bits = table.precision_bits, total = uint32_t(1) << bits;
        const uint32_t slot = x & (total - 1);
        if (!on) return {{total, bits}, 0, slot, 0};
        uint32_t symbol = 0, start = 0, end = total;
        for (uint32_t step = Symbols / 2; step != 0; step /= 2) {
            const uint32_t middle = table.start[symbol + step];
            const bool above = middle <= slot;
            symbol += above ? step : 0;
            start = above ? middle : start;
            end = above ? end : middle;
        }
        return {{end - start, bits}, 0, slot - start, symbol};
    }
    __device__ order0_interval find(uint32_t symbol, bool on, bool&) const
    {
        const uint32_t bits = table.precision_bits;
        if (!on) return {{uint32_t(1) << bits, bits}, 0, 0, 0};
        const uint32_t start = table.start[symbol], end = table.start[symbol + 1];
        return {{end - start, bits}, start, 0, 0};
    }
};

struct shared_table {
    const order0_table* table;

    __device__ order0_interval locate(uint32_t x, bool on) const
    {
        const uint32_t bits = on ? table->precision_bits : order0_format::coarse_bits;
        const uint32_t slot = x & ((uint32_t(1) << bits) - 1);
        if (!on) return {{uint32_t(1) << bits, bits}, 0, slot, 0};
        const uint32_t entry = table->slot[slot];
        return {{entry >> 8 & order0_format::max_freq, bits}, 0, entry >> 20, entry & 0xff};
    }
    __device__ order0_interval find(uint32_t symbol, bool on, bool& missing) const
    {
        constexpr unsigned idle = order0_format::coarse_bits;
        const uint32_t found = on ? table->interval[symbol] : 0;
        missing |= on && found == 0;
        if (found == 0) return {{uint32_t(1) << idle, idle}, 0, 0, 0};
        return {{found >> 16, table->precision_bits}, found & 0xffff, 0, 0};
    }
};

// A writer that only counts.
struct word_counter {
    uint32_t members;
    uint64_t words = 0;
    static constexpr bool overrun = false;
};

// order0_array_lanes, a lane a thread.
template <uint32_t Width, class Table>
struct order0_warp_lanes : warp_lanes<Width> {
    using typename warp_lanes<Width>::mask;
    using decode_tables = Table;
    using encode_tables = Table;

    static __device__ order0_interval locate(const Table& table, uint32_t x, mask active)
    {
        return table.locate(x, active.set != 0);
    }
    static __device__ order0_interval find(const Table& table, uint32_t symbol, mask active,
                                           bool& missing)
    {
        return table.find(symbol, active.set != 0, missing);
    }
    static __device__ void advance(uint32_t& x, const order0_freq& f, uint32_t offset)
    {
        x = f.freq * (x >> f.bits) + offset;
    }
    static __device__ void divide(uint32_t& x, const order0_freq& f, uint32_t start)
    {
        const uint32_t quotient = x / f.freq, rest = x - quotient * f.freq;
        x = (quotient << f.bits) + rest + start;
    }
    static __device__ mask full_for(uint32_t x, const order0_freq& f)
    {
        return x >> (31 - f.bits) >= f.freq;
    }
    using warp_lanes<Width>::spill;
    static __device__ void spill(uint32_t& x, mask full, word_counter& to)
    {
        to.words += uint32_t(
            __popc(warp_threads<Width>::ballot(full.set != 0, to.members)));
        x >>= full.set != 0 ? rans_format::word_bits : 0;
    }
};

// Room for a block's tables, and for what it takes to make them.
template <uint32_t Planes>
struct own_room {
    order0_starts table[Planes];
};
template <uint32_t Planes>
struct making_room : own_room<Planes> {
    union {
        uint32_t count[order0_symbols];
        uint8_t stored[2 * order0_table_words];
    };
};

// The tables of one block, made or read by its logical warp in shared memory.
template <uint32_t Bits, uint32_t Width>
class own_tables {
    using threads = warp_threads<Width>;
    static constexpr uint32_t each = order0_symbols / Width;

public:
    static constexpr uint32_t planes = Bits == 16 ? 2 : 1;
    static constexpr uint32_t symbols = Bits == 4 ? 16 : order0_symbols;

    __device__ explicit own_tables(own_room<planes>& room) : room_(room), making_(nullptr) {}
    __device__ explicit own_tables(making_room<planes>& room) : room_(room), making_(&room) {}
    __device__ bool can_make() const { return making_ != nullptr; }

    __device__ own_table<symbols> operator()(const scalar_position&, uint32_t plane) const
    {
        return {room_.table[plane]};
    }

    /// From exactly `words` words. False where they are no tables. See order0_block.hpp.
    __device__ bool read(const uint8_t* from, uint32_t words) const
    {
        bool good = true;
        threads::barrier();  // nobody looks into the tables of another block
        if (threads::rank() == 0) {
            for (uint32_t plane = 0; plane < planes && good; ++plane) {
                uint32_t used = 0;
                good = read_order0_freqs(from, words, symbols, room_.table[plane].start, used) ==
                       status::ok;
                from += 2 * size_t(used);
                words -= used;
            }
            good = good && words == 0;
        }
        if (threads::any(!good)) return false;
        for (uint32_t plane = 0; plane < planes; ++plane)
            if (!sum_up(room_.table[plane])) return false;
        return true;
    }

    /// From counts of a plane's symbols, which for_symbols(f) calls f with: the definition's freqs,
    /// of 2^most_bits or less, and their stored form at `to`, where `room` words are. Returns the
    /// words; 0 where the room is too small.
    template <class Function>
    __device__ uint32_t make(uint32_t plane, uint32_t all, unsigned most_bits, uint8_t* to,
                             uint32_t room, Function for_symbols) const
    {
        threads::barrier();
        for (uint32_t s = threads::rank(); s < order0_symbols; s += Width) making_->count[s] = 0;
        threads::barrier();
        for_symbols([&](uint32_t symbol) { atomicAdd(&making_->count[symbol], 1u); });
        threads::barrier();
        normalize(making_->count, all, most_bits, room_.table[plane]);
        threads::barrier();
        uint32_t words = 0;
        if (threads::rank() == 0)
            words = write_order0_freqs(room_.table[plane].start, symbols, making_->stored);
        words = threads::of(words, 0);
        threads::barrier();
        if (words > room) return 0;
        for (uint32_t i = threads::rank(); i < 2 * words; i += Width) to[i] = making_->stored[i];
        return sum_up(room_.table[plane]) ? words : 0;
    }

private:
    // order0_normalize, by all threads together.
    __device__ static void normalize(const uint32_t* counts, uint32_t all, unsigned most_bits,
                                     order0_starts& table)
    {
        const uint32_t rank = threads::rank();
        uint32_t used = 0;
        for (uint32_t s = rank; s < order0_symbols; s += Width) used += counts[s] != 0 ? 1 : 0;
        if (threads::sum(used) == 1) {
            const uint32_t other = counts[0] != 0 ? 1 : 0;
            for (uint32_t s = rank; s < order0_symbols; s += Width)
                table.start[s] = uint16_t(counts[s] != 0 ? order0_format::max_freq
                                                         : s == other ? 1u
                                                                      : 0u);
            return;
        }
        for (unsigned bits = most_bits; bits >= order0_format::coarse_bits; --bits) {
            const auto shares = [&](uint64_t at) {
                uint32_t mine = 0;
                for (uint32_t s = rank; s < order0_symbols; s += Width)
                    mine += order0_share(counts[s], at);
                return threads::sum(mine);
            };
            uint32_t missing = 0;
            const uint64_t scale = order0_scale(all, uint32_t(1) << bits, shares, missing);
            // Of those that the next scale would raise the first ones.
            const uint32_t first = rank * each;
            uint32_t raised = 0, most = 0;
            for (uint32_t s = first; s < first + each; ++s)
                raised += order0_share(counts[s], scale + 1) - order0_share(counts[s], scale);
            uint32_t place = threads::sum_below(raised);
            for (uint32_t s = first; s < first + each; ++s) {
                uint32_t share = order0_share(counts[s], scale);
                if (order0_share(counts[s], scale + 1) > share && place++ < missing) ++share;
                table.start[s] = uint16_t(share);
                most = share > most ? share : most;
            }
            if (!threads::any(most > order0_format::max_freq)) return;
        }
    }

    // Freqs become first slots. False if they are no table's.
    __device__ static bool sum_up(order0_starts& table)
    {
        threads::barrier();  // all freqs are there
        const uint32_t first = threads::rank() * each;
        uint32_t mine = 0;
        for (uint32_t s = first; s < first + each; ++s) mine += table.start[s];
        const uint32_t total = threads::sum(mine);
        const uint32_t bits = total >> order0_format::fine_bits != 0 ? order0_format::fine_bits
                                                                     : order0_format::coarse_bits;
        uint32_t start = threads::sum_below(mine);
        for (uint32_t s = first; s < first + each; ++s) {
            const uint32_t freq = table.start[s];
            table.start[s] = uint16_t(start);
            start += freq;
        }
        if (threads::rank() == 0) {
            table.start[order0_symbols] = uint16_t(total);
            table.precision_bits = uint16_t(bits);
        }
        threads::barrier();
        return total == uint32_t(1) << bits;
    }

    own_room<planes>& room_;
    making_room<planes>* making_;
};

// The caller's.
class shared_tables {
public:
    __device__ explicit shared_tables(const block_spec& spec)
        : all_(*spec.tables), dim_(spec.dim), planes_(code_bytes(spec.dtype))
    {
    }
    __device__ shared_table operator()(const scalar_position& at, uint32_t plane) const
    {
        const uint32_t group = all_.group == 0 ? 0 : (at.head * dim_ + at.channel) / all_.group;
        return {all_.table + (size_t(group) * planes_ + plane)};
    }

private:
    const order0_tables all_;
    uint32_t dim_, planes_;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
