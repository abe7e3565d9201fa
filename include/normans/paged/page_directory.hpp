#pragma once
// Where records of any size lie in an arena: a place for each, and lists of the gaps between them.
// Knows nothing of what records hold, and never touches the arena: what must move there is moved by
// the caller, so it may be memory of a device. The directory lies in memory of the caller too, has
// no pointers and means the same at another address, in a file or in another process; its bytes are
// drawn in record_ring.hpp. They are believed in nothing: whatever they hold, calls end, and give
// places inside the arena or a status.
// One caller at a time may change a directory; while nobody does, any number may read it.

#include "record_ring.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// For max_waste: records never move unless compact() is called.
constexpr uint64_t never_move = ~uint64_t(0);

struct directory_config {
    uint32_t records = 0;      // that there can be, 0 .. records - 1
    uint64_t arena_bytes = 0;  // a multiple of arena_unit
    uint64_t max_waste = never_move;
};

/// Where a record lies.
struct [[nodiscard]] record_place {
    status code = status::bad_argument;
    bool stored = false;   // ok, and false: there is none at present
    bool in_slot = false;  // in its slot, wherever that is; else in the arena
    uint64_t offset = 0;   // from the arena's begin
    uint32_t bytes = 0;
    uint32_t note = 0;  // the caller's
};

/// live <= used <= arena_bytes; used <= live + max_waste after every call that changed something.
struct arena_use {
    uint64_t live = 0;   // rooms of all records in the arena
    uint64_t used = 0;   // where the last of them ends
    uint64_t moves = 0;  // compactions so far: places found before may be out of date
};

class page_directory {
    using ring = detail::record_ring;

public:
    static constexpr uint32_t max_records = 0xfffffff0u;
    static constexpr uint32_t max_record_bytes = ring::max_record_bytes;

    static constexpr uint64_t bytes_for(uint32_t records)
    {
        return ring::head_bytes + (uint64_t(records) + 1) * ring::entry_bytes;
    }

    /// Makes an empty directory at `memory`, which has at least bytes_for(records) bytes.
    status create(uint8_t* memory, uint64_t bytes, const directory_config& config) noexcept
    {
        if (memory == nullptr || !possible(config) || bytes < bytes_for(config.records))
            return status::bad_argument;
        for (uint64_t i = 0; i < ring::head_bytes; ++i) memory[i] = 0;
        detail::store_u64(memory, ring::magic);
        detail::store_u32(memory + 12, config.records);
        detail::store_u64(memory + 16, config.arena_bytes);
        detail::store_u64(memory + 24, config.max_waste);
        take(memory, config);
        for (uint32_t i = 0; i < config.records; ++i) clear(i);
        const uint32_t anchor = ring_.anchor();
        ring_.store(anchor, ring::sealed(anchor, {0, 0, 0, anchor, anchor, ring::none, ring::none,
                                                  0}));
        ring_.clear_gaps();
        return status::ok;
    }

    /// Takes over a directory that create() made with this config; bad_header if it is another.
    /// Entries are looked at when they are used, or all at once by check().
    status open(uint8_t* memory, uint64_t bytes, const directory_config& config) noexcept
    {
        if (memory == nullptr || !possible(config)) return status::bad_argument;
        if (bytes < bytes_for(config.records)) return status::truncated;
        if (detail::load_u64(memory) != ring::magic) return status::bad_header;
        if (detail::load_u32(memory + 8) != 0) return status::unsupported_version;
        if (detail::load_u32(memory + 12) != config.records ||
            detail::load_u64(memory + 16) != config.arena_bytes ||
            detail::load_u64(memory + 24) != config.max_waste)
            return status::bad_header;
        take(memory, config);
        return status::ok;
    }

    const directory_config& config() const { return config_; }

    /// bad_argument: no such record is possible. corrupt_stream: the entry is damaged.
    record_place find(uint32_t record) const noexcept
    {
        record_place place;
        if (record >= config_.records) return place;
        const ring::entry e = ring_.load(record);
        const bool in_slot = e.offset == ring::in_slot;
        place.code = ring::intact(record, e) ? status::ok : status::corrupt_stream;
        if (place.code != status::ok || e.offset == ring::no_record) return place;
        if (in_slot ? e.bytes == 0 || e.bytes > max_record_bytes : !ring_.inside(e)) {
            place.code = status::corrupt_stream;
            return place;
        }
        return {status::ok, true, in_slot, in_slot ? 0 : e.offset, e.bytes, e.note};
    }

    /// Gives the record room for 1 .. max_record_bytes bytes, in its slot where that is so large.
    /// What it held is gone then, so the new bytes must not lie in the arena. output_too_small:
    /// no gap is large enough, all is as it was; with max_waste other than never_move that is so
    /// only if live, less what the record had, plus arena_room(bytes) exceeds arena_bytes.
    /// move(to, from, bytes) moves bytes of the arena to a lower offset; the two may overlap.
    template <class Move>
    record_place put(uint32_t record, uint32_t bytes, uint32_t note, uint32_t slot_bytes,
                     const Move& move) noexcept
    {
        record_place place = find(record);
        if (place.code != status::ok) return place;
        if (bytes == 0 || bytes > max_record_bytes) return {};
        const bool in_arena = place.stored && !place.in_slot;
        if (bytes <= slot_bytes) {
            place.code = in_arena ? ring_.unlink(record) : status::ok;
            if (place.code != status::ok) return place;
            ring::entry e = nothing();
            e.offset = ring::in_slot;
            e.bytes = bytes;
            e.note = note;
            ring_.store(record, ring::sealed(record, e));
        } else {
            place.code = put_in_arena(record, bytes, note, in_arena, move);
            if (place.code != status::ok) return place;
        }
        place.code = bound_waste(move);
        return place.code == status::ok ? find(record) : place;
    }

    /// Of a record that is not stored: ok.
    template <class Move>
    status erase(uint32_t record, const Move& move) noexcept
    {
        const record_place place = find(record);
        if (place.code != status::ok || !place.stored) return place.code;
        const status code = place.in_slot ? status::ok : ring_.unlink(record);
        if (code != status::ok) return code;
        clear(record);
        return bound_waste(move);
    }

    /// Moves all records to the arena's begin, in their order: used == live from then on.
    template <class Move>
    status compact(const Move& move) noexcept
    {
        if (ring_.memory() == nullptr) return status::bad_argument;
        ring_.clear_gaps();
        const uint32_t anchor = ring_.anchor();
        uint64_t at = 0;
        uint32_t i = anchor;
        for (uint64_t steps = 0; steps <= config_.records; ++steps) {
            ring::entry e = ring_.load(i);
            e.previous_gap = e.next_gap = ring::none;
            if (!ring::intact(i, e)) return status::corrupt_stream;
            if (i != anchor) {
                if (!ring_.inside(e) || e.offset < at) return status::corrupt_stream;
                if (e.offset > at) move(at, e.offset, e.bytes);
                e.offset = at;
                at += arena_room(e.bytes);
            }
            ring_.store(i, ring::sealed(i, e));
            i = e.next;
            if (i == anchor) break;
            if (i > anchor) return status::corrupt_stream;
        }
        detail::store_u64(ring_.memory() + 40, moves() + 1);
        return i == anchor && at == ring_.live() ? status::ok : status::corrupt_stream;
    }

    arena_use use() const noexcept
    {
        if (ring_.memory() == nullptr) return {};
        const uint32_t last = ring_.load(ring_.anchor()).previous;
        const bool any = last < config_.records;
        return {ring_.live(), any ? ring::end_of(ring_.load(last)) : 0, moves()};
    }

    /// Whether everything fits together: no two records overlap, every gap is in its list.
    status check() const noexcept
    {
        if (ring_.memory() == nullptr) return status::bad_argument;
        uint64_t in_arena = 0;
        for (uint32_t i = 0; i < config_.records; ++i) {
            const record_place place = find(i);
            if (place.code != status::ok) return place.code;
            in_arena += place.stored && !place.in_slot;
        }
        return ring_.check(in_arena) ? status::ok : status::corrupt_stream;
    }

private:
    static bool possible(const directory_config& config)
    {
        return config.records <= max_records && config.arena_bytes <= max_arena_bytes &&
               config.arena_bytes % arena_unit == 0;
    }

    static ring::entry nothing()
    {
        return {ring::no_record, 0, 0, ring::none, ring::none, ring::none, ring::none, 0};
    }
    void clear(uint32_t i) { ring_.store(i, ring::sealed(i, nothing())); }

    void take(uint8_t* memory, const directory_config& config)
    {
        config_ = config;
        ring_ = ring(memory, config.records, config.arena_bytes);
    }

    uint64_t moves() const { return detail::load_u64(ring_.memory() + 40); }

    template <class Move>
    status put_in_arena(uint32_t i, uint32_t bytes, uint32_t note, bool in_arena, const Move& move)
    {
        const uint64_t room = arena_room(bytes);
        ring::entry e = ring_.load(i);
        uint64_t limit = 0;
        if (in_arena) {
            if (!ring_.linked(i, e, limit)) return status::corrupt_stream;
            if (limit - e.offset >= room) return ring_.resize(i, bytes, note);
        }
        uint32_t before = ring::none;
        const status searched = ring_.search(room, before);
        if (searched != status::ok) return searched;
        bool squeeze = false;
        if (before == ring::none) {
            const uint64_t own = in_arena ? arena_room(e.bytes) : 0;
            const uint64_t others = ring_.live() - own;
            if (in_arena && limit - ring::end_of(ring_.load(e.previous)) >= room)
                before = e.previous;
            else if (config_.max_waste != never_move && others <= config_.arena_bytes &&
                     room <= config_.arena_bytes - others)
                squeeze = true;
            else
                return status::output_too_small;
        }
        if (in_arena) {
            const status code = ring_.unlink(i);
            if (code != status::ok) return code;
            clear(i);
        }
        if (squeeze) {
            const status code = compact(move);
            if (code != status::ok) return code;
            before = ring_.load(ring_.anchor()).previous;
        }
        return ring_.link(i, before, bytes, note);
    }

    template <class Move>
    status bound_waste(const Move& move)
    {
        const arena_use now = use();
        const bool fine = config_.max_waste == never_move || now.used <= now.live ||
                          now.used - now.live <= config_.max_waste;
        return fine ? status::ok : compact(move);
    }

    ring ring_;
    directory_config config_{};
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
