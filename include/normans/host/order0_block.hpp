#pragma once
// Blocks of order 0: rANS under static tables, no predictions. Modes, checks, statuses and bytes
// are those of the other blocks; there are no row steps, no parameter hash and no predicted mode.
// The words of a coded block begin with a u16: how many words of tables follow. 0: the spec's
// tables serve. Else the block has its own, one for all channels (16-bit codes: that of the high
// bytes, then that of the low bytes), each in whole words (write_order0_freqs). Then come the
// coder's words.
// Symbols are codes, those of 4 bits too; a 16-bit code is two, and takes two steps.

#include "../block/check.hpp"
#include "../core/order0_step.hpp"
#include "order0_codes.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// One block and where it stands.
template <class Byte, class Table>
struct order0_block {
    using byte = Byte;

    const block_spec* spec;
    order0_codes<Byte> codes;
    block_header header;
    block_layout layout;
    const Table* own[2];  // null: the spec's tables
    uint32_t state[max_lanes];
    word_reader reader;
    word_writer writer;
    check_sums sums;
    bool missing;  // a symbol without a slot

    uint32_t count() const { return header.count; }
    uint32_t lanes() const { return header.lanes; }

    const Table* table(const scalar_position& at, uint32_t plane) const
    {
        if (own[0] != nullptr) return own[plane];
        const order0_tables& all = *spec->tables;
        const uint64_t channel = uint64_t(at.head) * spec->dim + at.channel;
        const uint64_t group = all.group == 0 ? 0 : channel / all.group;
        return all.table + group * codes.planes() + plane;
    }
    // True if all lanes of a step have the same table.
    bool same_tables() const
    {
        if (own[0] != nullptr || spec->tables->group == 0) return true;
        return spec->tables->group % lanes() == 0 && spec->dim % lanes() == 0;
    }

    // True if the codes lie in memory as symbols do.
    bool in_place() const
    {
        return codes.bits == 8 && codes.token_stride == ptrdiff_t(spec->dim) &&
               (spec->heads == 1 ||
                codes.head_stride == ptrdiff_t(spec->dim) * ptrdiff_t(spec->tokens));
    }

    // Symbols of `scalars` scalars from `first`, where a step begins: per step a row of `lanes`
    // symbols for each plane.
    void read(uint32_t first, uint32_t scalars, uint8_t* symbols) const
    {
        for_parts(first, scalars, [&](ptrdiff_t place, uint32_t n, uint32_t at) {
            uint8_t* const to = symbols + at;
            if (codes.bits == 8) std::memcpy(to, codes.data + place, n);
            else if (codes.bits == 4) codes.load_halves(place, n, to);
            else codes.load_bytes(place, n, to, to + lanes());
        });
    }
    void write(uint32_t first, uint32_t scalars, const uint8_t* symbols) const
    {
        for_parts(first, scalars, [&](ptrdiff_t place, uint32_t n, uint32_t at) {
            const uint8_t* const from = symbols + at;
            if (codes.bits == 8) std::memcpy(codes.data + place, from, n);
            else if (codes.bits == 4) codes.store_halves(place, n, from);
            else codes.store_bytes(place, n, from, from + lanes());
        });
    }

    // The codes of step `step` of the symbols, for the content check.
    void add_sums(const uint8_t* symbols, uint32_t step, uint32_t here)
    {
        const uint32_t width = lanes(), planes = codes.planes();
        const uint8_t* const from = symbols + size_t(step) * planes * width;
        for (uint32_t i = 0; i < here; ++i)
            sums.lane[i].add(planes == 1 ? from[i] : uint32_t(from[i]) << 8 | from[width + i]);
    }

private:
    // f(place, n, at) for codes that lie next to each other, in memory and (from `at` on) among the
    // symbols.
    template <class Function>
    void for_parts(uint32_t first, uint32_t scalars, Function f) const
    {
        const uint32_t width = lanes();
        for_runs(box_walker(*spec, first), scalars,
                 [&](uint32_t done, const scalar_position& at, uint32_t length) {
                     const ptrdiff_t place = codes.place(at);
                     if (codes.planes() == 1) return f(place, length, done);
                     for (uint32_t i = 0; i < length;) {
                         const uint32_t lane = (done + i) % width, left = width - lane;
                         const uint32_t n = length - i < left ? length - i : left;
                         f(place + ptrdiff_t(i), n, 2 * (done + i - lane) + lane);
                         i += n;
                     }
                 });
    }
};

using order0_reading = order0_block<uint8_t, order0_table>;
using order0_writing = order0_block<const uint8_t, order0_intervals>;

// One step of one block by the definition: `here` scalars from `at` on.
template <uint32_t Width>
void decode_order0_scalars(order0_reading& block, box_walker at, uint32_t here, uint8_t* symbols)
{
    using lanes = order0_array_lanes<Width>;
    typename lanes::state state;
    for (uint32_t i = 0; i < Width; ++i) state[i] = block.state[i];
    const uint32_t active = lanes::first_lanes(here);
    for (uint32_t plane = 0; plane < block.codes.planes(); ++plane) {
        typename lanes::decode_tables tables{};
        box_walker walker = at;
        for (uint32_t i = 0; i < here; ++i, walker.next())
            tables[i] = block.table(walker.position(), plane);
        const auto found = decode_order0_step<lanes>(state, tables, active, block.reader);
        for (uint32_t i = 0; i < here; ++i)
            symbols[plane * block.lanes() + i] = uint8_t(found[i]);
    }
    for (uint32_t i = 0; i < Width; ++i) block.state[i] = state[i];
}

template <uint32_t Width>
void encode_order0_scalars(order0_writing& block, box_walker at, uint32_t here,
                           const uint8_t* symbols)
{
    using lanes = order0_array_lanes<Width>;
    typename lanes::state state;
    for (uint32_t i = 0; i < Width; ++i) state[i] = block.state[i];
    const uint32_t active = lanes::first_lanes(here);
    for (uint32_t plane = block.codes.planes(); plane-- > 0;) {
        typename lanes::encode_tables tables{};
        typename lanes::values now{};
        box_walker walker = at;
        for (uint32_t i = 0; i < here; ++i, walker.next()) {
            tables[i] = block.table(walker.position(), plane);
            now[i] = symbols[plane * block.lanes() + i];
        }
        encode_order0_step<lanes>(state, tables, now, active, block.missing, block.writer);
    }
    for (uint32_t i = 0; i < Width; ++i) block.state[i] = state[i];
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
