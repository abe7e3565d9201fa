#pragma once
// The bytes of a page directory (page_directory.hpp), and what keeps them in order: the ring of
// records by offset and the lists of gaps between them. Every function looks at what it follows
// before it follows it: false or corrupt_stream where the bytes make no sense.

#include "../status.hpp"
#include "../wire/header.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Records lie at multiples of this many bytes.
constexpr uint64_t arena_unit = 16;
constexpr uint64_t max_arena_bytes = uint64_t(1) << 56;

/// Bytes that a record takes in the arena.
constexpr uint64_t arena_room(uint64_t bytes)
{
    return (bytes + arena_unit - 1) / arena_unit * arena_unit;
}

namespace detail {

// A check over words. Each step can be undone, so that no change of one word goes unnoticed.
inline uint32_t check_with(uint32_t check, uint32_t word)
{
    check = (check ^ word) * 0x9E3779B1u;
    return check ^ check >> 15;
}

// The bytes of a directory, little-endian:
//   0 u64 magic "NORMPDIR"      24 u64 max_waste          48 u32 records in the arena
//   8 u32 version 0             32 u64 live               52 u32 0
//  12 u32 records               40 u64 moves              56 u64 0
//  16 u64 arena_bytes           64 u32 first_gap[64], by log2 of the gap in units; ~0: none
// 320 entries[records + 1] of 36 bytes; the last is the anchor, a record of no bytes at offset 0:
//   0 u64 offset; ~0: no record, ~0 - 1: in its slot
//   8 u32 bytes                 16 u32 previous   neighbours by offset, in a ring that the
//  12 u32 note                  20 u32 next       anchor closes
//                               24 u32 previous_gap   others whose gap behind them is of the
//                               28 u32 next_gap       same class; the last record has no gap
//  32 u32 check of which record lies where: a damaged entry must not lead to another's bytes, which
//         are a good block too
class record_ring {
public:
    static constexpr uint64_t magic = 0x5249'4450'4d52'4f4eu;  // "NORMPDIR"
    static constexpr uint32_t classes = 64, none = 0xffffffffu;
    static constexpr uint64_t head_bytes = 64 + 4 * classes, entry_bytes = 36;
    static constexpr uint64_t no_record = ~uint64_t(0), in_slot = no_record - 1;
    static constexpr uint32_t max_record_bytes = 0xfffffff0u;

    struct entry {
        uint64_t offset;
        uint32_t bytes, note, previous, next, previous_gap, next_gap, check;
    };

    record_ring() = default;
    record_ring(uint8_t* memory, uint32_t records, uint64_t arena_bytes)
        : memory_(memory), records_(records), arena_bytes_(arena_bytes)
    {
    }

    uint8_t* memory() const { return memory_; }
    uint32_t anchor() const { return records_; }
    uint64_t live() const { return load_u64(memory_ + 32); }
    uint32_t count() const { return load_u32(memory_ + 48); }

    void clear_gaps()
    {
        for (uint32_t c = 0; c < classes; ++c) set_first_gap(c, none);
    }

    entry load(uint32_t i) const
    {
        const uint8_t* from = memory_ + head_bytes + uint64_t(i) * entry_bytes;
        return {load_u64(from),      load_u32(from + 8),
                load_u32(from + 12), load_u32(from + 16),
                load_u32(from + 20), load_u32(from + 24),
                load_u32(from + 28), load_u32(from + 32)};
    }
    // The check is stored as it is, so that an entry that is damaged stays so.
    void store(uint32_t i, const entry& e)
    {
        uint8_t* to = memory_ + head_bytes + uint64_t(i) * entry_bytes;
        store_u64(to, e.offset);
        const uint32_t fields[] = {e.bytes, e.note,         e.previous, e.next,
                                   e.previous_gap, e.next_gap, e.check};
        for (uint32_t k = 0; k < 7; ++k) store_u32(to + 8 + 4 * k, fields[k]);
    }

    static uint32_t check_of(uint32_t i, const entry& e)
    {
        const uint32_t words[] = {i, uint32_t(e.offset), uint32_t(e.offset >> 32), e.bytes, e.note};
        uint32_t check = 0;
        for (const uint32_t word : words) check = check_with(check, word);
        return check;
    }
    static entry sealed(uint32_t i, entry e)
    {
        e.check = check_of(i, e);
        return e;
    }
    static bool intact(uint32_t i, const entry& e) { return e.check == check_of(i, e); }

    static uint64_t end_of(const entry& e) { return e.offset + arena_room(e.bytes); }

    // A record of the arena, by its own entry.
    bool inside(const entry& e) const
    {
        return e.bytes != 0 && e.bytes <= max_record_bytes && e.offset % arena_unit == 0 &&
               e.offset <= arena_bytes_ && arena_room(e.bytes) <= arena_bytes_ - e.offset;
    }

    // Whether i is linked as its neighbours say, and where the room behind it ends.
    bool linked(uint32_t i, entry& e, uint64_t& limit) const
    {
        if (i > records_) return false;
        e = load(i);
        if (!intact(i, e) || (i == anchor() ? e.offset != 0 || e.bytes != 0 : !inside(e)))
            return false;
        if (e.previous > records_ || e.next > records_) return false;
        const entry before = load(e.previous), after = load(e.next);
        if (before.next != i || after.previous != i) return false;
        if (i != anchor() && e.previous != anchor() &&
            (!inside(before) || end_of(before) > e.offset))
            return false;
        limit = e.next == anchor() ? arena_bytes_ : after.offset;
        return limit <= arena_bytes_ && limit >= end_of(e);
    }

    // Takes a record out of the ring; its entry is to be stored anew.
    status unlink(uint32_t i)
    {
        entry e;
        uint64_t limit;
        if (!linked(i, e, limit) || count() == 0 || !unlist_gap(i) || !unlist_gap(e.previous) ||
            !count_room(0, arena_room(e.bytes)))
            return status::corrupt_stream;
        entry before = load(e.previous);
        before.next = e.next;
        store(e.previous, before);
        entry after = load(e.next);
        after.previous = e.previous;
        store(e.next, after);
        store_u32(memory_ + 48, count() - 1);
        return list_gap(e.previous) ? status::ok : status::corrupt_stream;
    }

    // Links record i right behind `before`, where there is room.
    status link(uint32_t i, uint32_t before, uint32_t bytes, uint32_t note)
    {
        entry b;
        uint64_t limit;
        if (!linked(before, b, limit) || limit - end_of(b) < arena_room(bytes) ||
            !unlist_gap(before) || !count_room(arena_room(bytes), 0))
            return status::corrupt_stream;
        b = load(before);
        store(i, sealed(i, {end_of(b), bytes, note, before, b.next, none, none, 0}));
        entry after = load(b.next);
        after.previous = i;
        store(b.next, after);
        b = load(before);
        b.next = i;
        store(before, b);
        store_u32(memory_ + 48, count() + 1);
        return list_gap(before) && list_gap(i) ? status::ok : status::corrupt_stream;
    }

    // Another size for a record that can stay where it is.
    status resize(uint32_t i, uint32_t bytes, uint32_t note)
    {
        entry e = load(i);
        if (!unlist_gap(i) || !count_room(arena_room(bytes), arena_room(e.bytes)))
            return status::corrupt_stream;
        e = load(i);
        e.bytes = bytes;
        e.note = note;
        store(i, sealed(i, e));
        return list_gap(i) ? status::ok : status::corrupt_stream;
    }

    // Behind which record there is room: a few gaps of the room's own class, any of a larger one,
    // behind the last record, all gaps of the own class.
    status search(uint64_t room, uint32_t& found) const
    {
        constexpr uint32_t few = 8;
        found = none;
        const uint32_t own = class_of(room);
        status code = search(own, room, few, found);
        for (uint32_t c = own + 1; c < classes && code == status::ok && found == none; ++c)
            code = search(c, room, 1, found);
        if (code != status::ok || found != none) return code;
        const uint32_t last = load(anchor()).previous;
        entry e;
        uint64_t limit;
        if (!linked(last, e, limit) || e.next != anchor()) return status::corrupt_stream;
        if (limit - end_of(e) >= room) found = last;
        return found == none ? search(own, room, records_, found) : status::ok;
    }

    // Whether ring, gaps and sums fit together and hold `in_arena` records.
    bool check(uint64_t in_arena) const
    {
        uint64_t records = 0, rooms = 0, gaps = 0, listed = 0;
        for (uint32_t i = anchor();;) {
            entry e;
            uint64_t limit;
            if (!linked(i, e, limit)) return false;
            gaps += e.next != anchor() && limit != end_of(e);
            rooms += arena_room(e.bytes);
            i = e.next;
            if (i == anchor()) break;
            if (++records > records_) return false;
        }
        for (uint32_t c = 0; c < classes; ++c) {
            uint32_t before = none;
            for (uint32_t i = first_gap(c); i != none;) {
                uint64_t size;
                if (++listed > gaps || !gap_behind(i, size) || size == 0 || class_of(size) != c ||
                    load(i).previous_gap != before)
                    return false;
                before = i;
                i = load(i).next_gap;
            }
        }
        return records == in_arena && records == count() && rooms == live() && listed == gaps;
    }

private:
    uint32_t first_gap(uint32_t c) const { return load_u32(memory_ + 64 + 4 * c); }
    void set_first_gap(uint32_t c, uint32_t i) { store_u32(memory_ + 64 + 4 * c, i); }

    static uint32_t class_of(uint64_t size)
    {
        uint32_t c = 0;
        for (uint64_t units = size / arena_unit; units > 1; units /= 2) ++c;
        return c;
    }

    // The gap behind i, which is 0 where no record follows.
    bool gap_behind(uint32_t i, uint64_t& size) const
    {
        entry e;
        uint64_t limit;
        if (!linked(i, e, limit)) return false;
        size = e.next == anchor() ? 0 : limit - end_of(e);
        return true;
    }

    bool list_gap(uint32_t i)
    {
        uint64_t size;
        if (!gap_behind(i, size)) return false;
        if (size == 0) return true;
        const uint32_t c = class_of(size), first = first_gap(c);
        if (first != none) {
            if (first > records_) return false;
            entry other = load(first);
            other.previous_gap = i;
            store(first, other);
        }
        entry e = load(i);
        e.previous_gap = none;
        e.next_gap = first;
        store(i, e);
        set_first_gap(c, i);
        return true;
    }

    bool unlist_gap(uint32_t i)
    {
        uint64_t size;
        if (!gap_behind(i, size)) return false;
        if (size == 0) return true;
        entry e = load(i);
        const uint32_t c = class_of(size);
        if (e.next_gap != none) {
            if (e.next_gap > records_) return false;
            entry other = load(e.next_gap);
            if (other.previous_gap != i) return false;
            other.previous_gap = e.previous_gap;
            store(e.next_gap, other);
        }
        if (e.previous_gap != none) {
            if (e.previous_gap > records_) return false;
            entry other = load(e.previous_gap);
            if (other.next_gap != i) return false;
            other.next_gap = e.next_gap;
            store(e.previous_gap, other);
        } else {
            if (first_gap(c) != i) return false;
            set_first_gap(c, e.next_gap);
        }
        e = load(i);
        e.previous_gap = e.next_gap = none;
        store(i, e);
        return true;
    }

    bool count_room(uint64_t added, uint64_t removed)
    {
        const uint64_t now = live();
        if (now < removed || now - removed > arena_bytes_ ||
            added > arena_bytes_ - (now - removed))
            return false;
        store_u64(memory_ + 32, now - removed + added);
        return true;
    }

    // Room in a list of gaps: ok with `found` none if there is no such gap in it.
    status search(uint32_t c, uint64_t room, uint32_t most, uint32_t& found) const
    {
        uint32_t i = first_gap(c);
        for (uint32_t probes = 0; i != none && probes < most; ++probes) {
            uint64_t size;
            if (!gap_behind(i, size) || size == 0) return status::corrupt_stream;
            if (size >= room) {
                found = i;
                break;
            }
            i = load(i).next_gap;
        }
        return status::ok;
    }

    uint8_t* memory_ = nullptr;
    uint32_t records_ = 0;
    uint64_t arena_bytes_ = 0;
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
