#pragma once
// The pages of a paged KV cache as records: which block of which page of which tensor lies where,
// in memory of the caller. The directory is page_directory.hpp's; what blocks hold is not looked
// at, so this serves what codes on a device too. paged_store.hpp adds coding on the host.
// Capacity is tight (an arena with compaction) or fixed (a slot for every group of tokens, and the
// arena for those that do not fit), tensor by tensor.

#include "page_directory.hpp"
#include "page_layout.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// One tensor of a paged cache: K or V of a layer, say, or of one head of it. Parts of a store may
/// differ in everything. Types without a scale only (fp8, bf16, fp16, raw8).
struct page_part {
    block_spec spec;          // of its blocks; the store sets the tokens
    uint32_t row_bytes = 0;   // that every row (a token of a head) carries beside its codes; stored
                              // as they are, with a check of 4 bytes a group
    uint32_t slot_bytes = 0;  // fixed capacity of a group, a multiple of 16; 0: tight
};

struct paged_geometry {
    const page_part* parts = nullptr;  // read as long as the store is used
    uint32_t part_count = 0;
    uint32_t pages = 0;         // physical
    uint32_t page_tokens = 0;   // 1, 16, 256: any number
    uint32_t group_tokens = 0;  // tokens of a block; 0: a page. append() codes the last one anew
    uint64_t arena_bytes = 0;   // a multiple of 16, behind the slots
    uint64_t max_waste = never_move;  // see page_directory.hpp
};

/// A group of tokens as it is stored. `at` and `rows_at` are offsets in the store's memory, valid
/// until the next call that changes the store. A decode_entry of cuda/device_codec.cuh for a store
/// whose memory was copied to the device, or lies there:
///     {device_memory + place.at, place.bytes, place.tokens, predictor, box}
struct [[nodiscard]] group_place {
    status code = status::bad_argument;
    uint32_t tokens = 0;  // 0: nothing is stored
    uint64_t at = 0;      // of the block, a multiple of 16
    uint64_t bytes = 0;   // of the block
    uint64_t rows_at = 0;  // of the row bytes: row h * tokens + t
    bool overflow = false;  // does not fit its slot, lies in the arena
};

/// What became of a page. -1 in a block table is padding: skipped, nothing is touched.
struct [[nodiscard]] page_result {
    status code = status::ok;
    uint32_t tokens = 0;  // read: written to the target
    bool skipped = false;
    constexpr explicit operator bool() const { return code == status::ok; }
};

class page_places {
public:
    /// 0 if the geometry is impossible.
    static uint64_t directory_bytes(const paged_geometry& g)
    {
        return possible(g) ? page_directory::bytes_for(uint32_t(records_of(g))) : 0;
    }
    static uint64_t memory_bytes(const paged_geometry& g)
    {
        return possible(g) ? slots_before(g, g.part_count) + g.arena_bytes : 0;
    }
    /// That append(), write() and read() need, the largest of all parts. Contents do not matter,
    /// but concurrent calls need one each.
    static size_t workspace_bytes(const paged_geometry& g)
    {
        uint64_t most = 0;
        for (uint32_t i = 0; possible(g) && i < g.part_count; ++i) {
            const uint64_t one = codes_room(g, i) + record_room(g, i);
            most = one > most ? one : most;
        }
        return size_t(most);
    }

    /// An empty store. `memory` (memory_bytes) and `workspace` of later calls lie at multiples of
    /// 16; `directory` (directory_bytes) at any address.
    status create(const paged_geometry& g, uint8_t* directory, uint8_t* memory) noexcept
    {
        return take(g, memory, [&](const directory_config& config) {
            return directory_.create(directory, page_directory::bytes_for(config.records), config);
        });
    }

    /// A store whose directory and memory create() made for this geometry, at other addresses too.
    /// The directory is looked at as it is used; directory().check() looks at all of it.
    status open(const paged_geometry& g, uint8_t* directory, uint8_t* memory) noexcept
    {
        return take(g, memory, [&](const directory_config& config) {
            return directory_.open(directory, page_directory::bytes_for(config.records), config);
        });
    }

    const paged_geometry& geometry() const { return g_; }
    const page_directory& directory() const { return directory_; }
    const uint8_t* memory() const { return memory_; }

    uint32_t group_tokens() const { return group_tokens_of(g_); }
    uint32_t groups() const { return groups_of(g_); }

    /// The spec of a group's block.
    block_spec spec_of(uint32_t part, uint32_t tokens) const
    {
        block_spec spec = g_.parts[part].spec;
        spec.tokens = tokens;
        return spec;
    }

    group_place find(uint32_t part, int32_t page, uint32_t group) const noexcept
    {
        group_place found;
        if (!has(part, page) || group >= groups()) return found;
        const uint64_t index = record_of(part, page, group);
        const record_place place = directory_.find(uint32_t(index));
        found.code = place.code;
        if (place.code != status::ok || !place.stored) return found;
        const page_part& p = g_.parts[part];
        const bool sane = place.note != 0 && place.note <= room_in(group) &&
                          (!place.in_slot || place.bytes <= p.slot_bytes);
        const uint64_t rows = sane ? rows_room(p, place.note) : 0;
        if (!sane || place.bytes <= rows) {
            found.code = status::corrupt_stream;
            return found;
        }
        found.tokens = place.note;
        found.rows_at = place.in_slot ? slots_before(g_, part) +
                                            (index - record_of(part, 0, 0)) * p.slot_bytes
                                      : arena_at_ + place.offset;
        found.at = found.rows_at + rows;
        found.bytes = place.bytes - rows;
        found.overflow = !place.in_slot && p.slot_bytes != 0;
        return found;
    }

    /// Tokens of a part that a page holds. corrupt_stream: its groups do not follow each other.
    page_result tokens(uint32_t part, int32_t page) const noexcept
    {
        page_result result;
        for (uint32_t group = 0; group < groups(); ++group) {
            const group_place place = find(part, page, group);
            result.code = place.code;
            if (place.code == status::ok && place.tokens != 0 &&
                (result.tokens != group * group_tokens() ||
                 result.tokens + place.tokens > g_.page_tokens))
                result.code = status::corrupt_stream;
            if (result.code != status::ok) return result;
            result.tokens += place.tokens;
        }
        if (groups() == 0) result.code = status::bad_argument;
        return result;
    }

    /// Takes in a block of `tokens` tokens as group `group`, coded by a device say: block and row
    /// bytes (row h * tokens + t; null if the part has none) are copied, not looked at, and must
    /// not lie in the store. All groups of a page but its last are full. output_too_small: the
    /// arena is full.
    status put(uint32_t part, int32_t page, uint32_t group, uint32_t tokens, const uint8_t* block,
               uint64_t bytes, const uint8_t* rows) noexcept
    {
        if (!has(part, page) || group >= groups() || tokens == 0 || block == nullptr ||
            tokens > room_in(group) ||
            (g_.parts[part].row_bytes != 0) != (rows != nullptr) || bytes == 0)
            return status::bad_argument;
        const page_part& p = g_.parts[part];
        const uint64_t before = rows_room(p, tokens), all = before + bytes;
        if (all > page_directory::max_record_bytes || all < bytes) return status::bad_argument;
        const record_place made = directory_.put(uint32_t(record_of(part, page, group)),
                                                 uint32_t(all), tokens, p.slot_bytes, mover());
        if (made.code != status::ok) return made.code;
        const group_place place = find(part, page, group);
        if (place.code != status::ok || place.bytes != bytes) return status::corrupt_stream;
        uint8_t* to = memory_ + place.rows_at;
        const uint64_t used = used_by_rows(p, tokens);
        if (used != 0) std::memcpy(to, rows, size_t(used));
        for (uint64_t i = used; i < before; ++i) to[i] = 0;
        if (used != 0) detail::store_u32(to + used, check_of(to, used));
        std::memcpy(memory_ + place.at, block, size_t(bytes));
        return status::ok;
    }

    /// Empties a part of a page; what holds nothing stays so.
    status erase(uint32_t part, int32_t page) noexcept
    {
        if (!has(part, page)) return status::bad_argument;
        for (uint32_t group = 0; group < groups(); ++group) {
            const status code =
                directory_.erase(uint32_t(record_of(part, page, group)), mover());
            if (code != status::ok) return code;
        }
        return status::ok;
    }

    /// All parts of a page.
    status free_page(int32_t page) noexcept
    {
        for (uint32_t part = 0; part < g_.part_count; ++part) {
            const status code = erase(part, page);
            if (code != status::ok) return code;
        }
        return g_.part_count == 0 ? status::bad_argument : status::ok;
    }

    /// Places found before are out of date then.
    status compact() noexcept { return directory_.compact(mover()); }

protected:
    static uint32_t min_of(uint32_t a, uint32_t b) { return a < b ? a : b; }

    static bool misplaced(const void* memory)
    {
        return memory == nullptr || reinterpret_cast<std::uintptr_t>(memory) % arena_unit != 0;
    }

    bool has(uint32_t part, int32_t page) const
    {
        return part < g_.part_count && page >= 0 && uint32_t(page) < g_.pages;
    }

    // Tokens that a group of a page can hold: fewer in the last one, maybe.
    uint32_t room_in(uint32_t group) const
    {
        return min_of(group_tokens(), g_.page_tokens - group * group_tokens());
    }

    static uint64_t rows_room(const page_part& p, uint32_t tokens)
    {
        return p.row_bytes == 0 ? 0 : arena_room(used_by_rows(p, tokens) + 4);
    }
    static uint64_t used_by_rows(const page_part& p, uint32_t tokens)
    {
        return uint64_t(p.spec.heads) * tokens * p.row_bytes;
    }
    // Whether the row bytes of a stored group are what put() took in.
    bool rows_intact(const page_part& p, const group_place& place) const
    {
        const uint8_t* const rows = memory_ + place.rows_at;
        const uint64_t used = used_by_rows(p, place.tokens);
        return used == 0 || detail::load_u32(rows + used) == check_of(rows, used);
    }
    static uint64_t codes_room(const paged_geometry& g, uint32_t part)
    {
        return arena_room(count_of(group_spec(g, part)) * code_bytes(g.parts[part].spec.dtype));
    }

private:
    static uint32_t check_of(const uint8_t* rows, uint64_t bytes)
    {
        uint32_t check = 0;
        for (uint64_t i = 0; i < bytes; ++i) check = detail::check_with(check, rows[i]);
        return check;
    }

    static uint32_t group_tokens_of(const paged_geometry& g)
    {
        const bool whole = g.group_tokens == 0 || g.group_tokens > g.page_tokens;
        return whole ? g.page_tokens : g.group_tokens;
    }
    static uint32_t groups_of(const paged_geometry& g)
    {
        const uint32_t each = group_tokens_of(g);
        return each == 0 ? 0 : g.page_tokens / each + (g.page_tokens % each != 0);
    }
    static uint64_t records_of(const paged_geometry& g)
    {
        return uint64_t(g.part_count) * g.pages * groups_of(g);
    }

    static block_spec group_spec(const paged_geometry& g, uint32_t part)
    {
        block_spec spec = g.parts[part].spec;
        spec.tokens = group_tokens_of(g);
        return spec;
    }
    static uint64_t record_room(const paged_geometry& g, uint32_t part)
    {
        return rows_room(g.parts[part], group_tokens_of(g)) +
               arena_room(max_encoded_bytes(group_spec(g, part)));
    }

    static bool possible(const paged_geometry& g)
    {
        constexpr uint64_t most = page_directory::max_records;
        const uint64_t pages = uint64_t(g.pages) * groups_of(g);
        if (g.parts == nullptr || g.page_tokens == 0 || g.pages > 0x7fffffffu || pages > most ||
            (pages != 0 && g.part_count > most / pages) || g.arena_bytes % arena_unit != 0 ||
            g.arena_bytes > max_arena_bytes)
            return false;
        for (uint32_t i = 0; i < g.part_count; ++i) {
            const page_part& p = g.parts[i];
            const block_spec spec = group_spec(g, i);
            if (has_scale(spec.dtype) || spec.coder != coder_id::rans ||
                p.slot_bytes % arena_unit != 0 || p.row_bytes > 0xffff ||
                detail::check_spec(spec) != status::ok || count_of(spec) == 0 ||
                record_room(g, i) > page_directory::max_record_bytes)
                return false;
        }
        return slots_before(g, g.part_count) <= max_arena_bytes;
    }

    // Below 2^64: fewer than 2^32 slots of fewer than 2^32 bytes.
    static uint64_t slots_before(const paged_geometry& g, uint32_t part)
    {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < part; ++i) sum += g.parts[i].slot_bytes;
        return sum * g.pages * groups_of(g);
    }

    template <class Begin>
    status take(const paged_geometry& g, uint8_t* memory, const Begin& begin)
    {
        *this = page_places();
        if (!possible(g) || misplaced(memory)) return status::bad_argument;
        const status code = begin({uint32_t(records_of(g)), g.arena_bytes, g.max_waste});
        if (code != status::ok) return code;
        g_ = g;
        memory_ = memory;
        arena_at_ = slots_before(g, g.part_count);
        return status::ok;
    }

    uint64_t record_of(uint32_t part, int32_t page, uint32_t group) const
    {
        return (uint64_t(part) * g_.pages + uint32_t(page)) * groups() + group;
    }

    struct shift {
        uint8_t* arena;
        void operator()(uint64_t to, uint64_t from, uint64_t bytes) const
        {
            std::memmove(arena + to, arena + from, size_t(bytes));
        }
    };
    shift mover() { return {memory_ + arena_at_}; }

    paged_geometry g_{};
    page_directory directory_;
    uint8_t* memory_ = nullptr;
    uint64_t arena_at_ = 0;
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
