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

    // Symbols of `steps` steps (the last may be short) from scalar `first` on: per step one row of
    // `lanes` symbols for each plane.
    void read(uint32_t first, uint32_t scalars, uint8_t* symbols) const
    {
        const uint32_t width = lanes();
        if (codes.bits == 8) {
            for_runs(box_walker(*spec, first), scalars,
                     [&](uint32_t done, const scalar_position& at, uint32_t length) {
                         std::memcpy(symbols + done, codes.data + codes.place(at), length);
                     });
        } else if (codes.bits == 4) {
            for_codes(box_walker(*spec, first), scalars, codes, [&](uint32_t i, ptrdiff_t place) {
                symbols[i] = uint8_t(codes.load(place));
            });
        } else {
            for_codes(box_walker(*spec, first), scalars, codes, [&](uint32_t i, ptrdiff_t place) {
                const uint32_t code = codes.load(place);
                uint8_t* const to = symbols + i / width * 2 * width + i % width;
                to[0] = uint8_t(code >> 8);
                to[width] = uint8_t(code);
            });
        }
    }
    void write(uint32_t first, uint32_t scalars, const uint8_t* symbols) const
    {
        const uint32_t width = lanes();
        if (codes.bits == 8) {
            for_runs(box_walker(*spec, first), scalars,
                     [&](uint32_t done, const scalar_position& at, uint32_t length) {
                         std::memcpy(codes.data + codes.place(at), symbols + done, length);
                     });
        } else if (codes.bits == 4) {
            for_codes(box_walker(*spec, first), scalars, codes, [&](uint32_t i, ptrdiff_t place) {
                codes.store(place, symbols[i]);
            });
        } else {
            for_codes(box_walker(*spec, first), scalars, codes, [&](uint32_t i, ptrdiff_t place) {
                const uint8_t* const from = symbols + i / width * 2 * width + i % width;
                codes.store(place, uint32_t(from[0]) << 8 | from[width]);
            });
        }
    }

    // The codes of step `step` of the symbols, for the content check.
    void add_sums(const uint8_t* symbols, uint32_t step, uint32_t here)
    {
        const uint32_t width = lanes(), planes = codes.planes();
        const uint8_t* const from = symbols + size_t(step) * planes * width;
        for (uint32_t i = 0; i < here; ++i)
            sums.lane[i].add(planes == 1 ? from[i] : uint32_t(from[i]) << 8 | from[width + i]);
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
