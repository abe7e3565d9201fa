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
#include "float_mode.hpp"
#if NORMANS_AVX2
#include "order0_avx2.hpp"
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

// Codes in memory, whatever their width. Byte is const when encoding.
template <class Byte>
struct order0_codes {
    Byte* data;
    ptrdiff_t head_stride, token_stride;  // in codes
    uint32_t bits;                        // 4, 8 or 16

    uint32_t planes() const { return bits == 16 ? 2 : 1; }
    uint32_t load(ptrdiff_t i) const
    {
        if (bits == 4) return uint32_t(data[i >> 1]) >> (i & 1) * 4 & 15u;
        if (bits == 8) return data[i];
        uint16_t code;
        std::memcpy(&code, data + 2 * i, 2);
        return code;
    }
    void store(ptrdiff_t i, uint32_t code) const
    {
        if (bits == 4) {
            Byte& to = data[i >> 1];
            to = uint8_t(i & 1 ? (to & 15u) | code << 4 : (to & 0xf0u) | code);
        } else if (bits == 8) {
            data[i] = uint8_t(code);
        } else {
            const auto wide = uint16_t(code);
            std::memcpy(data + 2 * i, &wide, 2);
        }
    }
    ptrdiff_t place(const scalar_position& at) const
    {
        return offset_of(at, head_stride, token_stride);
    }
};

// Runs f(i, place) for `count` scalars from the walker's on.
template <class Byte, class Function>
void for_codes(const box_walker& walker, uint32_t count, const order0_codes<Byte>& codes,
               Function f)
{
    for_runs(walker, count, [&](uint32_t done, const scalar_position& at, uint32_t length) {
        const ptrdiff_t place = codes.place(at);
        for (uint32_t i = 0; i < length; ++i) f(done + i, place + ptrdiff_t(i));
    });
}

constexpr uint32_t order0_chunk_steps = 128;  // that are worked on at once, in memory

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

// Blocks of one geometry, 32 lanes at most between them, and a chunk of their symbols.
template <class Block>
struct order0_bundle {
    Block* block[4];
    uint32_t size;
    typename Block::byte* symbols[4];  // of the chunk: in the box itself, or in memory
    bool in_place;
    uint8_t memory[2 * order0_chunk_steps * max_lanes];

    // Scalars of a chunk.
    uint32_t chunk(uint32_t count)
    {
        in_place = true;
        for (uint32_t k = 0; k < size; ++k) in_place &= block[k]->in_place();
        return in_place ? count : order0_chunk_steps * lanes();
    }
    uint8_t* copy_of(uint32_t k) { return memory + k * 2 * order0_chunk_steps * lanes(); }
    const block_spec& spec() const { return *block[0]->spec; }
    uint32_t lanes() const { return block[0]->lanes(); }
    uint32_t planes() const { return block[0]->codes.planes(); }
    bool one_table() const { return block[0]->own[0] != nullptr || spec().tables->group == 0; }
    // Of a group for `blocks`, which repeats the first where there are fewer.
    Block& at(uint32_t k) const { return *block[k < size ? k : 0]; }

    template <class Tables>
    void look_up(const scalar_position& where, Tables* tables, uint32_t blocks) const
    {
        for (uint32_t plane = 0; plane < planes(); ++plane)
            for (uint32_t k = 0; k < blocks; ++k)
                tables[plane].set(k, at(k).table(where, plane));
    }
};

#if NORMANS_AVX2

// What a group's registers hold of its blocks, in and out.
template <uint32_t Blocks>
struct order0_registers {
    using group = order0_avx2_lanes<Blocks>;
    static constexpr uint32_t lanes = group::width / Blocks;
    uint32_t states[group::width], a[group::width], b[group::width];

    template <class Block>
    explicit order0_registers(const order0_bundle<Block>& bundle)
    {
        for (uint32_t i = 0; i < group::width; ++i) {
            const Block& from = bundle.at(i / lanes);
            states[i] = from.state[i % lanes];
            a[i] = from.sums.lane[i % lanes].a;
            b[i] = from.sums.lane[i % lanes].b;
        }
    }
    template <class Block>
    void put(const order0_bundle<Block>& bundle, const typename group::state& state,
             const typename group::sums& sums)
    {
        group::store(states, state);
        group::store(a, sums.a);
        group::store(b, sums.b);
        for (uint32_t i = 0; i < bundle.size * lanes; ++i) {
            Block& to = *bundle.block[i / lanes];
            to.state[i % lanes] = states[i];
            if (bundle.planes() == 1) to.sums.lane[i % lanes] = {a[i], b[i]};
        }
    }
};

// A reader's words for a group, which loads more than it takes: the last ones with zeros behind
// them, as a reader gives.
struct order0_words {
    const uint8_t* end;
    uint8_t last[8 * max_lanes];
    uint32_t kept = 0;  // bytes of `last` that are the block's
    bool padded = false;

    // True if `need` bytes can be loaded from `next` on; false where even the zeros are used up.
    bool roomy(const uint8_t*& next, uint32_t need)
    {
        if (size_t(end - next) >= need) return true;
        if (padded) return false;
        padded = true;
        kept = uint32_t(end - next);
        std::memset(last, 0, 2 * size_t(need));
        std::memcpy(last, next, kept);
        next = last;
        end = last + 2 * size_t(need);
        return true;
    }
    void put(word_reader& reader, const uint8_t* next) const
    {
        const uint32_t taken = padded ? uint32_t(next - last) : 0;
        reader.overrun |= taken > kept;
        if (!padded) reader.next = next;
        else reader.next = reader.end - (taken > kept ? 0 : kept - taken);
    }
};

// Whole steps with the same tables in all lanes, from scalar `first` on. Returns the steps done:
// all but for blocks whose words ran out. Sums are taken where a symbol is a code.
template <uint32_t Blocks>
uint32_t decode_order0_group(order0_bundle<order0_reading>& bundle, uint32_t first, uint32_t steps)
{
    using group = order0_avx2_lanes<Blocks>;
    constexpr uint32_t lanes = group::width / Blocks;
    const uint32_t planes = bundle.planes();
    order0_registers<Blocks> kept(bundle);
    auto state = group::load(kept.states);
    typename group::sums sums{group::load(kept.a), group::load(kept.b)};
    typename group::readers words;
    order0_words behind[Blocks];
    uint8_t unused[lanes];
    uint8_t* to[Blocks];
    for (uint32_t k = 0; k < Blocks; ++k) {
        words.next[k] = bundle.at(k).reader.next;
        behind[k].end = bundle.at(k).reader.end;
        to[k] = k < bundle.size ? bundle.symbols[k] : unused;
    }
    const bool one_table = bundle.one_table();
    typename group::decode_tables tables[2];
    box_walker walker(bundle.spec(), first);
    bundle.look_up(walker.position(), tables, Blocks);
    uint32_t step = 0;
    for (; step < steps; ++step) {
        bool roomy = true;
        for (uint32_t k = 0; k < Blocks; ++k)
            roomy &= behind[k].roomy(words.next[k], 2 * lanes * planes);
        if (!roomy) break;
        if (!one_table && step != 0) {
            walker.forward(lanes);
            bundle.look_up(walker.position(), tables, Blocks);
        }
        for (uint32_t plane = 0; plane < planes; ++plane) {
            const auto symbols = decode_order0_step<group>(state, tables[plane], {}, words);
            group::store_symbols(to, 0, symbols);
            sums.add(symbols);
            for (uint32_t k = 0; k < bundle.size; ++k) to[k] += lanes;
        }
    }
    kept.put(bundle, state, sums);
    for (uint32_t k = 0; k < bundle.size; ++k)
        behind[k].put(bundle.block[k]->reader, words.next[k]);
    return step;
}

// The same from the last of `steps` down, while there is room. Returns the steps left.
template <uint32_t Blocks>
uint32_t encode_order0_group(order0_bundle<order0_writing>& bundle, uint32_t first, uint32_t steps)
{
    using group = order0_avx2_lanes<Blocks>;
    constexpr uint32_t lanes = group::width / Blocks;
    const uint32_t planes = bundle.planes();
    const x86_float_mode mode;
    order0_registers<Blocks> kept(bundle);
    auto state = group::load(kept.states);
    typename group::sums sums{group::load(kept.a), group::load(kept.b)};
    typename group::values missing = group::zeros();
    typename group::writers words;
    uint8_t unused[4 * lanes];  // the words of blocks that are not there
    const uint8_t* begin[Blocks];
    const uint8_t* from[Blocks];
    for (uint32_t k = 0; k < Blocks; ++k) {
        words.next[k] = bundle.at(k).writer.next;
        begin[k] = bundle.at(k).writer.begin;
        from[k] = bundle.symbols[k < bundle.size ? k : 0] + size_t(steps) * planes * lanes;
    }
    const bool one_table = bundle.one_table();
    typename group::encode_tables tables[2];
    box_walker walker(bundle.spec(), first + (steps - 1) * lanes);
    bundle.look_up(walker.position(), tables, Blocks);
    for (const uint32_t last = steps; steps != 0; --steps) {
        bool roomy = true;
        for (uint32_t k = 0; k < bundle.size; ++k)
            roomy &= size_t(words.next[k] - begin[k]) >= size_t(2 * lanes) * planes;
        if (!roomy) break;
        for (uint32_t k = bundle.size; k < Blocks; ++k) words.next[k] = unused + sizeof unused;
        if (!one_table && steps != last) {
            walker.back(lanes);
            bundle.look_up(walker.position(), tables, Blocks);
        }
        for (uint32_t plane = planes; plane-- > 0;) {
            for (uint32_t k = 0; k < Blocks; ++k) from[k] -= lanes;
            const auto symbols = group::load_symbols(from, 0);
            encode_order0_step<group>(state, tables[plane], symbols, {}, missing, words);
            sums.add(symbols);
        }
    }
    kept.put(bundle, state, sums);
    group::store(kept.states, missing);
    for (uint32_t i = 0; i < bundle.size * lanes; ++i)
        bundle.block[i / lanes]->missing |= kept.states[i] != 0;
    for (uint32_t k = 0; k < bundle.size; ++k) bundle.block[k]->writer.next = words.next[k];
    return steps;
}

#endif

// All steps of a bundle. Simd: in registers where the lanes of a step have the same tables; what is
// left over runs by the definition.
template <bool Simd>
void decode_order0_bundle(order0_bundle<order0_reading>& bundle)
{
    const uint32_t lanes = bundle.lanes(), planes = bundle.planes();
    const uint32_t count = bundle.block[0]->header.count, chunk = bundle.chunk(count);
    for (uint32_t first = 0; first < count; first += chunk) {
        const uint32_t scalars = count - first < chunk ? count - first : chunk;
        for (uint32_t k = 0; k < bundle.size; ++k)
            bundle.symbols[k] =
                bundle.in_place ? bundle.block[k]->codes.data + first : bundle.copy_of(k);
        uint32_t done = 0;
        if constexpr (Simd) {
#if NORMANS_AVX2
            if (lanes != 1 && scalars >= lanes && bundle.block[0]->same_tables())
                done = lanes == 8    ? decode_order0_group<4>(bundle, first, scalars / lanes)
                       : lanes == 16 ? decode_order0_group<2>(bundle, first, scalars / lanes)
                                     : decode_order0_group<1>(bundle, first, scalars / lanes);
#endif
        }
        for (uint32_t k = 0; k < bundle.size; ++k) {
            order0_reading& block = *bundle.block[k];
            for (uint32_t step = planes == 1 ? done : 0; step * lanes < scalars; ++step) {
                const uint32_t left = scalars - step * lanes, here = left < lanes ? left : lanes;
                uint8_t* const symbols = bundle.symbols[k] + size_t(step) * planes * lanes;
                if (step >= done) {
                    const box_walker at(block.spec[0], first + step * lanes);
                    if (lanes <= 8) decode_order0_scalars<8>(block, at, here, symbols);
                    else decode_order0_scalars<max_lanes>(block, at, here, symbols);
                }
                block.add_sums(bundle.symbols[k], step, here);
            }
            if (!bundle.in_place) block.write(first, scalars, bundle.symbols[k]);
        }
    }
}

template <bool Simd>
void encode_order0_bundle(order0_bundle<order0_writing>& bundle)
{
    const uint32_t lanes = bundle.lanes(), planes = bundle.planes();
    const uint32_t count = bundle.block[0]->header.count, chunk = bundle.chunk(count);
    for (uint32_t end = count; end != 0;) {
        const uint32_t scalars = end % chunk != 0 ? end % chunk : chunk;
        const uint32_t first = end - scalars;
        const uint32_t all = (scalars + lanes - 1) / lanes;
        uint32_t left = all;
        for (uint32_t k = 0; k < bundle.size; ++k) {
            uint8_t* const copy = bundle.copy_of(k);
            if (!bundle.in_place) bundle.block[k]->read(first, scalars, copy);
            bundle.symbols[k] = bundle.in_place ? bundle.block[k]->codes.data + first : copy;
        }
        // A short step, then the whole ones, then what they had no room for.
        const auto by_definition = [&](uint32_t from, uint32_t to) {
            for (uint32_t k = 0; k < bundle.size; ++k) {
                order0_writing& block = *bundle.block[k];
                for (uint32_t step = from; step-- > to;) {
                    const uint32_t rest = scalars - step * lanes;
                    const uint32_t here = rest < lanes ? rest : lanes;
                    const uint8_t* const symbols =
                        bundle.symbols[k] + size_t(step) * planes * lanes;
                    const box_walker at(block.spec[0], first + step * lanes);
                    if (lanes <= 8) encode_order0_scalars<8>(block, at, here, symbols);
                    else encode_order0_scalars<max_lanes>(block, at, here, symbols);
                    block.add_sums(bundle.symbols[k], step, here);
                }
            }
        };
        if constexpr (Simd) {
#if NORMANS_AVX2
            const uint32_t whole = scalars / lanes;
            if (lanes != 1 && whole != 0 && bundle.block[0]->same_tables()) {
                by_definition(all, whole);
                left = lanes == 8    ? encode_order0_group<4>(bundle, first, whole)
                       : lanes == 16 ? encode_order0_group<2>(bundle, first, whole)
                                     : encode_order0_group<1>(bundle, first, whole);
                if (planes == 2)
                    for (uint32_t k = 0; k < bundle.size; ++k)
                        for (uint32_t step = whole; step-- > left;)
                            bundle.block[k]->add_sums(bundle.symbols[k], step, lanes);
            }
#endif
        }
        by_definition(left, 0);
        end = first;
    }
}

// Blocks of a call: what a decoder gets of each. `codes` has the spec's bits.
struct order0_decode_call {
    const block_spec* spec;
    const uint8_t* block;
    size_t bytes;
    order0_codes<uint8_t> codes;
    decode_result* result;
};

struct order0_encode_call {
    const block_spec* spec;
    order0_codes<const uint8_t> codes;
    uint8_t* out;
    size_t capacity;
    encode_result* result;
};

constexpr uint32_t order0_calls = 4;  // at once

// True if the steps of two blocks may run together.
template <class Block>
bool order0_alike(const Block& x, const Block& y)
{
    const block_spec &a = *x.spec, &b = *y.spec;
    return x.lanes() == y.lanes() && x.codes.bits == y.codes.bits && a.heads == b.heads &&
           a.tokens == b.tokens && a.dim == b.dim && a.tables == b.tables &&
           (x.own[0] == nullptr) == (y.own[0] == nullptr);
}

template <bool Simd>
constexpr uint32_t order0_bundle_size(uint32_t lanes)
{
    return Simd && lanes != 1 ? max_lanes / lanes : 1;
}

// Codes of raw and constant blocks: packed as in memory.
template <class Byte>
order0_codes<Byte> order0_packed(Byte* data, uint32_t bits)
{
    return {data, 0, 0, bits};
}

inline uint32_t load_packed(const uint8_t* from, uint32_t bits, uint32_t i)
{
    if (bits == 16) return load_word(from + 2 * size_t(i));
    return order0_packed(from, bits).load(ptrdiff_t(i));
}

inline status copy_order0(const order0_reading& block, const uint8_t* from, uint32_t& check)
{
    const uint32_t bits = block.codes.bits, count = block.header.count;
    const bool raw = block.header.mode == block_mode::raw;
    check_sums sums;
    for_codes(box_walker(*block.spec, 0), count, block.codes, [&](uint32_t i, ptrdiff_t place) {
        const uint32_t code = load_packed(from, bits, raw ? i : 0);
        block.codes.store(place, code);
        sums.lane[i % block.lanes()].add(code);
    });
    check = sums.total(block.lanes());
    // What a byte or word has beyond its codes is 0.
    if (!raw) return load_word(from) >> bits == 0 ? status::ok : status::corrupt_stream;
    const bool half = bits == 4 && count % 2 != 0;
    return half && from[count / 2] >> 4 != 0 ? status::corrupt_stream : status::ok;
}

// States and words of a coded block; its own tables, if it has some, into `tables`.
inline status open_order0(order0_reading& block, const uint8_t* bytes, order0_table* tables)
{
    for (uint32_t i = 0; i < max_lanes; ++i)
        block.state[i] = i < block.lanes() ? load_u32(bytes + block.layout.states + 4 * i)
                                           : rans_format::lower_bound;
    for (const uint32_t state : block.state)
        if (!valid_state(state)) return status::corrupt_stream;
    const uint8_t* const words = bytes + block.layout.words;
    uint32_t left = block.header.payload_words - 1;
    const uint32_t table_words = load_word(words);
    if (table_words > left) return status::corrupt_stream;
    block.reader = {words + 2 + 2 * size_t(table_words), words + 2 + 2 * size_t(left)};
    if (table_words == 0) return status::ok;
    left = table_words;
    for (uint32_t plane = 0; plane < block.codes.planes(); ++plane) {
        uint16_t freq[order0_symbols];
        uint32_t used = 0;
        const status read = read_order0_freqs(words + 2 + 2 * size_t(table_words - left), left,
                                              block.codes.bits == 4 ? 16 : 256, freq, used);
        if (read != status::ok || make_order0_table(freq, tables[plane]) != status::ok)
            return status::corrupt_stream;
        left -= used;
        block.own[plane] = &tables[plane];
    }
    return left == 0 ? status::ok : status::corrupt_stream;
}

inline void finish_order0(const order0_reading& block, decode_result& result, backend_id backend)
{
    bool clean = !block.reader.overrun && block.reader.next == block.reader.end;
    for (const uint32_t state : block.state) clean &= state == rans_format::lower_bound;
    result.backend = backend;
    if (!clean)
        result.code = status::corrupt_stream;
    else if (block.spec->content_check &&
             block.header.content_check != block.sums.total(block.lanes()))
        result.code = status::content_mismatch;
}

/// decode() for order 0. Specs passed check_spec, pointers are there. Tables of blocks take 70 KiB
/// of stack.
template <bool Simd>
NORMANS_NOINLINE void decode_order0(const order0_decode_call* calls, uint32_t n, backend_id id)
{
    order0_table tables[2];
    order0_reading blocks[order0_calls];
    decode_result* results[order0_calls];
    order0_bundle<order0_reading> bundle;
    bundle.size = 0;
    uint32_t tables_used = 0;
    const auto flush = [&] {
        if (bundle.size != 0) decode_order0_bundle<Simd>(bundle);
        for (uint32_t k = 0; k < bundle.size; ++k)
            finish_order0(*bundle.block[k], *results[k],
                          blocks[k].lanes() == 1 ? backend_id::scalar : id);
        bundle.size = tables_used = 0;
    };
    for (uint32_t i = 0; i < n; ++i) {
        const order0_decode_call& call = calls[i];
        decode_result& result = *call.result;
        order0_reading next{};
        next.spec = call.spec;
        next.codes = call.codes;
        result.code = check_block(*call.spec, call.block, call.bytes, next.header, next.layout,
                                  result);
        if (result.code != status::ok) continue;
        if (next.header.mode != block_mode::coded) {
            uint32_t check = 0;
            if (next.header.count != 0)
                result.code = copy_order0(next, call.block + next.layout.words, check);
            if (result.code == status::ok && call.spec->content_check &&
                next.header.content_check != check)
                result.code = status::content_mismatch;
            continue;
        }
        const uint32_t planes = next.codes.planes();
        const bool shared = next.header.payload_words != 0 &&
                            load_word(call.block + next.layout.words) == 0;
        if (next.header.payload_words == 0) result.code = status::corrupt_stream;
        else if (shared && call.spec->tables == nullptr) result.code = status::wrong_model;
        if (result.code != status::ok) continue;
        next.own[0] = shared ? nullptr : tables;
        if (bundle.size != 0 && (bundle.size == order0_bundle_size<Simd>(next.lanes()) ||
                                 !order0_alike(*bundle.block[0], next) ||
                                 (!shared && tables_used + planes > 2)))
            flush();
        result.code = open_order0(next, call.block, tables + tables_used);
        if (result.code != status::ok) continue;
        if (!shared) tables_used += planes;
        blocks[bundle.size] = next;
        results[bundle.size] = &result;
        bundle.block[bundle.size] = &blocks[bundle.size];
        ++bundle.size;
    }
    flush();
}

// One block on its way to bytes.
struct order0_attempt {
    order0_writing block;
    const order0_encode_call* call;
    uint64_t limit;  // of the coded form
    uint64_t room;   // for it: no more than that
    uint32_t table_words;

    const block_spec& spec() const { return *block.spec; }
    uint8_t base_flags() const
    {
        return uint8_t((spec().content_check ? has_content_check : 0) |
                       (spec().has_fingerprint ? has_fingerprint : 0));
    }
    void set_mode(block_mode mode, uint64_t words)
    {
        block.header.mode = mode;
        block.header.flags = base_flags();
        block.header.payload_words = uint32_t(words);
        block.layout = layout_of(block.header, 0);
    }
    void set_raw()
    {
        set_mode(block_mode::raw, (raw_bytes(spec().dtype, block.header.count) + 1) / 2);
    }
    uint8_t* words() const { return call->out + block.layout.words; }
    uint8_t* end_of_room() const
    {
        return words() + (room - block.layout.words) / 2 * 2;
    }

    // Raw or constant; true if it may become a coded block.
    bool begin(const order0_encode_call& from)
    {
        call = &from;
        block = order0_writing{};
        block.spec = from.spec;
        block.codes = from.codes;
        const uint32_t count = uint32_t(count_of(spec()));
        block.header.dtype = spec().dtype;
        block.header.coder = coder_id::order0;
        block.header.lanes = spec().lanes != 0 ? spec().lanes : default_lanes(count);
        block.header.count = count;
        set_raw();
        if (count == 0) return false;
        const uint64_t raw = raw_bytes(spec().dtype, count), raw_end = block.layout.end;
        const uint32_t code = block.codes.load(block.codes.place({0, 0, 0, 0}));
        bool constant = true;
        for (box_walker at(spec(), 0); constant && at.position().index != count;) {
            const uint32_t length = at.left();
            const ptrdiff_t place = block.codes.place(at.position());
            for (uint32_t i = 0; i < length && constant; ++i)
                constant = block.codes.load(place + ptrdiff_t(i)) == code;
            at.skip(length);
        }
        // A coded block must save at least 1/64 of the raw codes.
        limit = raw_end - raw / 64;
        room = call->capacity < limit ? call->capacity : limit;
        if (constant) set_mode(block_mode::constant, 1);
        return !constant;
    }

    // Ready for steps under the spec's tables, or under the block's own, which go to `own`. False
    // if there is no room for what stands before the words.
    bool begin_steps(order0_intervals* own)
    {
        set_mode(block_mode::coded, 0);
        block.missing = false;
        block.sums = check_sums{};
        for (uint32_t& state : block.state) state = rans_format::lower_bound;
        block.own[0] = block.own[1] = nullptr;
        table_words = 0;
        uint8_t stored[2][2 * order0_table_words];
        uint32_t sizes[2] = {0, 0};
        if (own != nullptr) {
            uint32_t counts[2][order0_symbols] = {};
            count_symbols(counts);
            for (uint32_t plane = 0; plane < block.codes.planes(); ++plane) {
                uint16_t freq[order0_symbols];
                const unsigned bits = block.header.count < many_scalars ? 12 : 13;
                if (order0_normalize(counts[plane], freq, bits) != status::ok ||
                    make_order0_intervals(freq, own[plane]) != status::ok)
                    return false;
                sizes[plane] =
                    write_order0_freqs(freq, block.codes.bits == 4 ? 16 : 256, stored[plane]);
                table_words += sizes[plane];
                block.own[plane] = &own[plane];
            }
        }
        if (block.layout.words + 2 + 2 * uint64_t(table_words) > room) return false;
        store_word(words(), table_words);
        std::memcpy(words() + 2, stored[0], 2 * size_t(sizes[0]));
        std::memcpy(words() + 2 + 2 * size_t(sizes[0]), stored[1], 2 * size_t(sizes[1]));
        block.writer = {words() + 2 + 2 * size_t(table_words), end_of_room()};
        return true;
    }

    // After steps under the spec's tables that had no room: true if more room would be enough. The
    // block must not become another because the output is small.
    bool lacks_only_room()
    {
        if (block.missing || room == limit) return false;
        for (uint32_t& state : block.state) state = rans_format::lower_bound;
        const uint32_t count = block.header.count, lanes = block.lanes();
        uint64_t words = 1;
        uint32_t here = count % lanes != 0 ? count % lanes : lanes;
        for (uint32_t end = count; end != 0; end -= here, here = lanes) {
            uint8_t symbols[2 * max_lanes], given[4 * max_lanes];
            block.writer = {given, given + sizeof given};
            block.read(end - here, here, symbols);
            const box_walker at(spec(), end - here);
            if (lanes <= 8) encode_order0_scalars<8>(block, at, here, symbols);
            else encode_order0_scalars<max_lanes>(block, at, here, symbols);
            words += uint64_t(given + sizeof given - block.writer.next) / 2;
        }
        set_mode(block_mode::coded, words);
        return block.layout.end <= limit;
    }

    // True if the coded form is kept.
    bool end_steps()
    {
        if (block.missing || block.writer.overrun) return false;
        const auto coded = uint32_t((end_of_room() - block.writer.next) / 2);
        set_mode(block_mode::coded, uint64_t(coded) + 1 + table_words);
        if (block.layout.end > room) return false;
        std::memmove(block.writer.begin, block.writer.next, 2 * size_t(coded));
        for (uint32_t i = 0; i < block.lanes(); ++i)
            store_u32(call->out + block.layout.states + 4 * i, block.state[i]);
        block.sums.reverse(block.lanes(), block.header.count);
        return true;
    }

    void finish(backend_id id)
    {
        block_header& header = block.header;
        encode_result& result = *call->result;
        const bool coded = header.mode == block_mode::coded;
        result.mode = header.mode;
        result.lanes = header.lanes;
        result.bytes = size_t(block.layout.end);
        if (coded && header.lanes != 1) result.backend = id;
        if (block.layout.end > call->capacity) {
            result.code = status::output_too_small;
            result.bytes = max_encoded_bytes(spec());
            return;
        }
        uint64_t used = block.layout.words + 2 * uint64_t(header.payload_words);
        if (header.count != 0 && !coded) {
            const uint32_t stored = header.mode == block_mode::constant ? 1 : header.count;
            used = block.layout.words + raw_bytes(spec().dtype, stored);
            store_plain(stored, size_t(used - block.layout.words));
        }
        std::memset(call->out + used, 0, size_t(block.layout.end - used));
        header.content_check = spec().content_check ? block.sums.total(header.lanes) : 0;
        write_block_header(header, call->out);
        if (header.flags & has_fingerprint)
            store_u64(call->out + block.layout.fingerprint, spec().fingerprint);
        result.code = status::ok;
    }

private:
    // The first `stored` codes, as in memory, and the sums over all.
    void store_plain(uint32_t stored, size_t bytes)
    {
        uint8_t* const to = words();
        std::memset(to, 0, bytes);
        block.sums = check_sums{};
        const auto packed = order0_packed(to, block.codes.bits);
        for_codes(box_walker(spec(), 0), block.header.count, block.codes,
                  [&](uint32_t i, ptrdiff_t place) {
                      const uint32_t code = block.codes.load(place);
                      block.sums.lane[i % block.lanes()].add(code);
                      if (i >= stored) return;
                      if (packed.bits == 16) store_word(to + 2 * size_t(i), code);
                      else packed.store(ptrdiff_t(i), code);
                  });
    }

    void count_symbols(uint32_t (*counts)[order0_symbols]) const
    {
        // Two of each, so that a run of one symbol does not wait for itself.
        uint32_t some[2][2][order0_symbols] = {};
        const order0_codes<const uint8_t> codes = block.codes;
        if (codes.bits == 8) {
            for_runs(box_walker(spec(), 0), block.header.count,
                     [&](uint32_t, const scalar_position& at, uint32_t length) {
                         const uint8_t* const from = codes.data + codes.place(at);
                         for (uint32_t i = 0; i < length; ++i) ++some[0][i % 2][from[i]];
                     });
        } else {
            for_codes(box_walker(spec(), 0), block.header.count, codes,
                      [&](uint32_t i, ptrdiff_t place) {
                          const uint32_t code = codes.load(place);
                          if (codes.bits == 16) ++some[0][i % 2][code >> 8];
                          ++some[codes.planes() - 1][i % 2][code & 0xff];
                      });
        }
        for (uint32_t plane = 0; plane < 2; ++plane)
            for (uint32_t s = 0; s < order0_symbols; ++s)
                counts[plane][s] = some[plane][0][s] + some[plane][1][s];
    }
};

/// encode() for order 0. Specs passed check_spec, pointers are there. A block takes its own tables
/// where the spec has none, or where they lack a symbol or save nothing.
template <bool Simd>
NORMANS_NOINLINE void encode_order0(const order0_encode_call* calls, uint32_t n, backend_id id)
{
    order0_intervals own[order0_calls][2];
    order0_attempt attempts[order0_calls];
    bool waits[order0_calls] = {};
    for (uint32_t i = 0; i < n; ++i) waits[i] = attempts[i].begin(calls[i]);
    for (const bool shared : {true, false}) {
        order0_bundle<order0_writing> bundle;
        bundle.size = 0;
        const auto flush = [&] {
            if (bundle.size != 0) encode_order0_bundle<Simd>(bundle);
            bundle.size = 0;
        };
        bool runs[order0_calls] = {};
        for (uint32_t i = 0; i < n; ++i) {
            order0_attempt& next = attempts[i];
            if (!waits[i] || (shared && next.spec().tables == nullptr)) continue;
            runs[i] = next.begin_steps(shared ? nullptr : own[i]);
            if (!runs[i]) continue;
            if (bundle.size == order0_bundle_size<Simd>(next.block.lanes()) ||
                (bundle.size != 0 && !order0_alike(*bundle.block[0], next.block)))
                flush();
            bundle.block[bundle.size++] = &next.block;
        }
        flush();
        for (uint32_t i = 0; i < n; ++i) {
            if (!runs[i]) continue;
            if (attempts[i].end_steps()) {
                waits[i] = false;
            } else if (shared && attempts[i].lacks_only_room()) {
                attempts[i].set_raw();  // which has no room either
                waits[i] = false;
            }
        }
    }
    for (uint32_t i = 0; i < n; ++i) {
        if (waits[i]) attempts[i].set_raw();
        attempts[i].finish(id);
    }
}

template <class Backend>
constexpr bool order0_simd =
    NORMANS_AVX2 && (Backend::id == backend_id::avx2 || Backend::id == backend_id::avx512);

inline uint32_t order0_bits(scalar_type type) { return format_of(type).code_bits; }

// Blocks of order 0 among those of a call, waiting for company. take() is false for all others.
template <class Backend, class Code>
class order0_decoder {
public:
    template <class Call>
    bool take(const Call& call)
    {
        const block_spec& spec = call.spec;
        if (spec.coder != coder_id::order0) return false;
        call.result = decode_result{};
        if (check_spec(spec) != status::ok || code_bytes(spec.dtype) != sizeof(Code) ||
            (count_of(spec) != 0 && call.out.data == nullptr))
            return true;
        void* const data = call.out.data;
        calls_[size_++] = {&spec, call.block, call.bytes,
                           {static_cast<uint8_t*>(data), call.out.head_stride,
                            call.out.token_stride, order0_bits(spec.dtype)},
                           &call.result};
        if (size_ == order0_calls) flush();
        return true;
    }
    void flush()
    {
        constexpr bool simd = order0_simd<Backend>;
        if (size_ != 0)
            decode_order0<simd>(calls_, size_, simd ? Backend::id : backend_id::scalar);
        size_ = 0;
    }

private:
    order0_decode_call calls_[order0_calls];
    uint32_t size_ = 0;
};

template <class Backend, class Code>
class order0_encoder {
public:
    template <class Call>
    bool take(const Call& call)
    {
        const block_spec& spec = call.spec;
        if (spec.coder != coder_id::order0) return false;
        call.result = encode_result{};
        if (check_spec(spec) != status::ok || code_bytes(spec.dtype) != sizeof(Code)) return true;
        if (call.out == nullptr || (count_of(spec) != 0 && call.codes.data == nullptr)) {
            call.result.bytes = max_encoded_bytes(spec);
            return true;
        }
        const void* const data = call.codes.data;
        calls_[size_++] = {&spec,
                           {static_cast<const uint8_t*>(data), call.codes.head_stride,
                            call.codes.token_stride, order0_bits(spec.dtype)},
                           call.out, call.capacity, &call.result};
        if (size_ == order0_calls) flush();
        return true;
    }
    void flush()
    {
        constexpr bool simd = order0_simd<Backend>;
        if (size_ != 0)
            encode_order0<simd>(calls_, size_, simd ? Backend::id : backend_id::scalar);
        size_ = 0;
    }

private:
    order0_encode_call calls_[order0_calls];
    uint32_t size_ = 0;
};

}  // namespace detail

/// Adds a block's symbols to `counts`: an array for each of the order0_tables_needed() tables that
/// the spec's channels take in groups of `group`. From there order0_normalize and make_order0_table
/// make tables. `spec` must be one that encode() takes.
template <class Code>
void add_order0_counts(const block_spec& spec, box_view<const Code> box, uint32_t group,
                       uint32_t (*counts)[order0_symbols])
{
    if (count_of(spec) == 0) return;
    const void* const data = box.data;
    const detail::order0_codes<const uint8_t> codes{static_cast<const uint8_t*>(data),
                                                    box.head_stride, box.token_stride,
                                                    detail::order0_bits(spec.dtype)};
    const uint32_t planes = codes.planes();
    detail::for_runs(
        detail::box_walker(spec, 0), uint32_t(count_of(spec)),
        [&](uint32_t, const scalar_position& at, uint32_t length) {
            const uint64_t channel = uint64_t(at.head) * spec.dim + at.channel;
            for (uint32_t i = 0; i < length; ++i) {
                const uint32_t code = codes.load(codes.place(at) + ptrdiff_t(i));
                const uint64_t table = group == 0 ? 0 : (channel + i) / group * planes;
                if (planes == 2) ++counts[table][code >> 8];
                ++counts[table + planes - 1][code & 0xff];
            }
        });
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
