// Compact forms of all golden blocks: the block comes back bit for bit, no byte more is read or
// written than there is, damage is a status. Prints a hash over the compact bytes.
// usage: compact_test --expect HASH_FILE CASE...

#include <algorithm>

#include <normans/block/compact_block.hpp>

#include "../support/golden_case.hpp"
#include "../support/test_rng.hpp"

using namespace normans_test;
using normans::status;

namespace {

using bytes = std::vector<std::uint8_t>;

struct report {
    const std::string& name;
    int failed = 0;

    void check(bool good, const char* what)
    {
        if (good) return;
        ++failed;
        std::fprintf(stderr, "%s: %s\n", name.c_str(), what);
    }
};

normans::compact_result compacted(const normans::block_spec& spec, const bytes& block, bytes& to)
{
    return normans::compact_block(normans::compact_spec_of(spec), block.data(), block.size(),
                                  to.data(), to.size());
}

// Into a room of exactly that size, from a copy of exactly that size: sanitizers see the rest.
normans::compact_result expanded(const normans::block_spec& spec, const bytes& from, bytes& to)
{
    return normans::expand_block(normans::compact_spec_of(spec), from.data(), from.size(),
                                 to.data(), to.size());
}

void check_room(const normans::block_spec& spec, const bytes& block, const bytes& compact,
                report& out)
{
    bytes room(compact.size() - 1, 0xcc);
    const auto small = compacted(spec, block, room);
    out.check(small.code == status::output_too_small && small.compact_bytes == compact.size() &&
                  room == bytes(room.size(), 0xcc),
              "compact_block in too little room");
    room.assign(block.size() - 1, 0xcc);
    const auto tight = expanded(spec, compact, room);
    out.check(tight.code == status::output_too_small && tight.block_bytes == block.size() &&
                  room == bytes(room.size(), 0xcc),
              "expand_block in too little room");
    for (std::size_t length = 0; length < block.size(); ++length) {
        room.assign(block.size(), 0);
        const bytes part(block.begin(), block.begin() + std::ptrdiff_t(length));
        out.check(compacted(spec, part, room).code == status::truncated, "a truncated block");
    }
    for (std::size_t length = 0; length < compact.size(); ++length) {
        const bytes part(compact.begin(), compact.begin() + std::ptrdiff_t(length));
        out.check(expanded(spec, part, room).code == status::truncated, "a truncated compact one");
    }
}

// Whatever is expanded is a block whose compact form are the bytes that were read.
void check_damage(const normans::block_spec& spec, const bytes& compact, report& out)
{
    bytes room(normans::max_encoded_bytes(spec));
    const std::size_t bits = 8 * std::min<std::size_t>(compact.size(), 24);
    int refused = 0;
    for (std::size_t i = 0; i < bits; ++i) {
        bytes damaged = compact;
        damaged[i / 8] = std::uint8_t(damaged[i / 8] ^ 1u << i % 8);
        const auto result = expanded(spec, damaged, room);
        if (!result) {
            ++refused;
            out.check(result.code == status::truncated || result.code == status::bad_header ||
                          result.code == status::output_too_small ||
                          result.code == status::corrupt_stream,
                      "an unexpected status");
            continue;
        }
        bytes again(result.compact_bytes);
        const bytes block(room.begin(), room.begin() + std::ptrdiff_t(result.block_bytes));
        const auto back = compacted(spec, block, again);
        out.check(back.code == status::ok && back.compact_bytes == result.compact_bytes &&
                      std::equal(again.begin(), again.end(), damaged.begin()),
                  "a damaged one that is not canonical was expanded");
    }
    out.check(refused > 0, "no damage was seen");
}

// What has a compact form comes back, damage and all; padding that is not 0 has none.
void check_damaged_blocks(const normans::block_spec& spec, const bytes& block, report& out)
{
    bytes room(normans::max_compact_bytes(block.size()));
    for (std::size_t i = 0; i < block.size(); ++i) {
        bytes damaged = block;
        damaged[i] = std::uint8_t(damaged[i] ^ 1u << i % 8);
        const auto made = compacted(spec, damaged, room);
        if (!made) continue;
        const bytes compact(room.begin(), room.begin() + std::ptrdiff_t(made.compact_bytes));
        bytes back(made.block_bytes);
        out.check(bool(expanded(spec, compact, back)) &&
                      std::equal(back.begin(), back.end(), damaged.begin()),
                  "a damaged block comes back as another");
    }
}

// The longest states, and those that no encoder stores.
void check_states(const normans::block_spec& spec, const bytes& block, report& out)
{
    normans::block_header header;
    if (read_block_header(block.data(), block.size(), header) != status::ok ||
        header.mode != normans::block_mode::coded)
        return;
    const bool banked = spec.coder == normans::coder_id::tans;
    const auto at = std::size_t(layout_of(header, spec.tokens).states);
    bytes largest = block, back(block.size());
    bytes compact(normans::max_compact_bytes(block.size()));
    for (std::uint32_t i = 0; i < header.lanes; ++i)
        normans::detail::store_u32(&largest[at + 4 * i], banked ? 0x0fffffff : 0x7fffffff);
    const auto made = compacted(spec, largest, compact);
    compact.resize(made.compact_bytes);
    out.check(made && expanded(spec, compact, back) && back == largest, "the longest states");
    for (const std::uint32_t none : {0u, banked ? 0x10008000u : 0x7fffu,
                                     banked ? 0x00010000u : 0x80000000u}) {
        bytes damaged = block;
        normans::detail::store_u32(&damaged[at + 4 * (header.lanes - 1)], none);
        compact.resize(normans::max_compact_bytes(block.size()));
        out.check(compacted(spec, damaged, compact).code == status::corrupt_stream,
                  "a state that is none");
    }
}

void check_other_specs(normans::block_spec spec, const bytes& block, report& out)
{
    bytes room(block.size());
    normans::block_spec other = spec;
    ++other.tokens;
    if (normans::count_of(spec) == 0) return;
    out.check(compacted(other, block, room).code == status::wrong_count, "another count");
    other = spec;
    other.heads = 0x80000000u;
    other.dim = 0x80000000u;
    out.check(compacted(other, block, room).code == status::bad_argument, "an impossible spec");
    out.check(expanded(other, block, room).code == status::bad_argument, "an impossible spec");
    other = spec;
    other.dtype = spec.dtype == normans::scalar_type::bf16 ? normans::scalar_type::fp16
                                                           : normans::scalar_type::bf16;
    other.coder = normans::coder_id::rans;
    out.check(compacted(other, block, room).code == status::wrong_dtype, "another type");
    other = spec;
    other.coder = normans::coder_id::order0;
    other.parameter_hash = false;
    other.tables = nullptr;
    if (other.coder != spec.coder)
        out.check(compacted(other, block, room).code == status::wrong_model, "another coder");
}

void check(const golden_case& c, running_hash& hash, report& out)
{
    with_prediction(c, [&](const normans::block_spec& spec, const auto&) {
        bytes compact(normans::max_compact_bytes(c.block.size()), 0xcc);
        bytes block(c.block.size(), 0xcc);
        const auto made = compacted(spec, c.block, compact);
        out.check(made.code == status::ok && made.block_bytes == c.block.size(), "compact_block");
        // States have 19 to 34 bits of 32; those of tANS 16 to 31.
        const std::size_t lanes = c.block.size() < 32 ? 0 : spec.lanes == 0 ? 32 : spec.lanes;
        const std::size_t most = (spec.content_check ? 14 : 18) + 2 * lanes;
        out.check(made.compact_bytes <= compact.size() &&
                      made.compact_bytes + most >= c.block.size(),
                  "another size than it should have");
        if (out.failed != 0) return 0;
        compact.resize(made.compact_bytes);
        const auto back = expanded(spec, compact, block);
        out.check(back.code == status::ok && back.block_bytes == block.size() &&
                      back.compact_bytes == compact.size() && block == c.block,
                  "expand_block gives another block");
        bytes more = compact;
        more.resize(more.size() + 5, 0x77);
        out.check(expanded(spec, more, block).compact_bytes == compact.size() && block == c.block,
                  "bytes behind it change what is read");
        check_room(spec, c.block, compact, out);
        check_damage(spec, compact, out);
        check_damaged_blocks(spec, c.block, out);
        check_states(spec, c.block, out);
        check_other_specs(spec, c.block, out);
        hash.add(compact.size());
        for (const std::uint8_t byte : compact) hash.add(byte);
        return 0;
    });
}

}  // namespace

int main(int count, char** arguments)
{
    if (count < 4 || std::strcmp(arguments[1], "--expect") != 0) return 2;
    int failed = 0;
    running_hash hash;
    for (int i = 3; i < count; ++i) {
        golden_case c;
        if (!read_case(arguments[i], c)) {
            ++failed;
            continue;
        }
        report out{c.name};
        check(c, hash, out);
        failed += out.failed;
    }
    char text[17] = {}, expected[17] = {};
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash.value()));
    std::ifstream(arguments[2]).read(expected, 16);
    std::printf("%s %d cases, %d failed, recorded %s\n", text, count - 3, failed, expected);
    return failed != 0 || std::strcmp(text, expected) != 0 ? 1 : 0;
}
