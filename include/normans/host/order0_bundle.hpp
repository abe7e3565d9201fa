#pragma once
// Steps of blocks of order 0 that run together: in registers where the lanes of a step have the
// same tables, else by the definition.

#include <type_traits>

#include "order0_block.hpp"
#include "order0_group.hpp"
#if NORMANS_AVX2
#include "order0_avx2.hpp"
#elif NORMANS_NEON
#include "order0_neon.hpp"
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

constexpr uint32_t order0_chunk_steps = 128;  // that are worked on at once, in memory

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

// What a group's registers hold of its blocks, in and out.
template <class Group>
struct order0_registers {
    using group = Group;
    static constexpr uint32_t lanes = group::width / group::blocks;
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
            to.sums.lane[i % lanes] = {a[i], b[i]};
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
// all but for blocks whose words ran out.
template <class Group>
uint32_t decode_order0_group(order0_bundle<order0_reading>& bundle, uint32_t first, uint32_t steps)
{
    using group = Group;
    constexpr uint32_t blocks = group::blocks, lanes = group::width / blocks;
    const uint32_t planes = bundle.planes();
    order0_registers<group> kept(bundle);
    auto state = group::load(kept.states);
    typename group::sums sums{group::load(kept.a), group::load(kept.b)};
    typename group::readers words;
    order0_words behind[blocks];
    uint8_t unused[lanes];
    uint8_t* to[blocks];
    for (uint32_t k = 0; k < blocks; ++k) {
        words.next[k] = bundle.at(k).reader.next;
        behind[k].end = bundle.at(k).reader.end;
        to[k] = k < bundle.size ? bundle.symbols[k] : unused;
    }
    const bool one_table = bundle.one_table();
    typename group::decode_tables tables[2];
    box_walker walker(bundle.spec(), first);
    bundle.look_up(walker.position(), tables, blocks);
    uint32_t step = 0;
    for (; step < steps; ++step) {
        bool roomy = true;
        for (uint32_t k = 0; k < blocks; ++k)
            roomy &= behind[k].roomy(words.next[k], 2 * lanes * planes);
        if (!roomy) break;
        if (!one_table && step != 0) {
            walker.forward(lanes);
            bundle.look_up(walker.position(), tables, blocks);
        }
        auto codes = decode_order0_step<group>(state, tables[0], {}, words);
        group::store_symbols(to, codes);
        for (uint32_t k = 0; k < bundle.size; ++k) to[k] += lanes;
        if (planes == 2) {
            const auto low = decode_order0_step<group>(state, tables[1], {}, words);
            group::store_symbols(to, low);
            for (uint32_t k = 0; k < bundle.size; ++k) to[k] += lanes;
            codes = group::join(codes, low);
        }
        sums.add(codes);
    }
    kept.put(bundle, state, sums);
    for (uint32_t k = 0; k < bundle.size; ++k)
        behind[k].put(bundle.block[k]->reader, words.next[k]);
    return step;
}

// The same from the last of `steps` down, while there is room. Returns the steps left.
template <class Group>
uint32_t encode_order0_group(order0_bundle<order0_writing>& bundle, uint32_t first, uint32_t steps)
{
    using group = Group;
    constexpr uint32_t blocks = group::blocks, lanes = group::width / blocks;
    const uint32_t planes = bundle.planes();
    const typename group::float_mode mode;
    order0_registers<group> kept(bundle);
    auto state = group::load(kept.states);
    typename group::sums sums{group::load(kept.a), group::load(kept.b)};
    typename group::values missing = group::set(~uint32_t(0));
    typename group::writers words;
    uint8_t unused[4 * lanes];  // the words of blocks that are not there
    const uint8_t* begin[blocks];
    const uint8_t* from[blocks];
    for (uint32_t k = 0; k < blocks; ++k) {
        words.next[k] = bundle.at(k).writer.next;
        begin[k] = bundle.at(k).writer.begin;
        from[k] = bundle.symbols[k < bundle.size ? k : 0] + size_t(steps) * planes * lanes;
    }
    const bool one_table = bundle.one_table();
    typename group::encode_tables tables[2];
    box_walker walker(bundle.spec(), first + (steps - 1) * lanes);
    bundle.look_up(walker.position(), tables, blocks);
    for (const uint32_t last = steps; steps != 0; --steps) {
        bool roomy = true;
        for (uint32_t k = 0; k < bundle.size; ++k)
            roomy &= size_t(words.next[k] - begin[k]) >= size_t(2 * lanes) * planes;
        if (!roomy) break;
        for (uint32_t k = bundle.size; k < blocks; ++k) words.next[k] = unused + sizeof unused;
        if (!one_table && steps != last) {
            walker.back(lanes);
            bundle.look_up(walker.position(), tables, blocks);
        }
        for (uint32_t k = 0; k < blocks; ++k) from[k] -= lanes;
        auto codes = group::load_symbols(from);
        encode_order0_step<group>(state, tables[planes - 1], codes, {}, missing, words);
        if (planes == 2) {
            for (uint32_t k = 0; k < blocks; ++k) from[k] -= lanes;
            const auto high = group::load_symbols(from);
            encode_order0_step<group>(state, tables[0], high, {}, missing, words);
            codes = group::join(high, codes);
        }
        sums.add(codes);
    }
    kept.put(bundle, state, sums);
    group::store(kept.states, missing);
    for (uint32_t i = 0; i < bundle.size * lanes; ++i)
        bundle.block[i / lanes]->missing |= kept.states[i] == 0;
    for (uint32_t k = 0; k < bundle.size; ++k) bundle.block[k]->writer.next = words.next[k];
    return steps;
}

// f(group) with V's lanes of 32 / lanes blocks.
template <class V, class Function>
uint32_t with_order0_group(uint32_t lanes, Function f)
{
    if (lanes == 8) return f(order0_group<V, 4>{});
    if (lanes == 16) return f(order0_group<V, 2>{});
    return f(order0_group<V, 1>{});
}

// All steps of a bundle. In V's registers where the lanes of a step have the same tables; what is
// left over, or everything if V is void, runs by the definition.
template <class V>
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
        if constexpr (!std::is_void_v<V>) {
            if (lanes != 1 && scalars >= lanes && bundle.block[0]->same_tables())
                done = with_order0_group<V>(lanes, [&](auto group) {
                    return decode_order0_group<decltype(group)>(bundle, first, scalars / lanes);
                });
        }
        for (uint32_t k = 0; k < bundle.size; ++k) {
            order0_reading& block = *bundle.block[k];
            for (uint32_t step = done; step * lanes < scalars; ++step) {
                const uint32_t left = scalars - step * lanes, here = left < lanes ? left : lanes;
                uint8_t* const symbols = bundle.symbols[k] + size_t(step) * planes * lanes;
                const box_walker at(block.spec[0], first + step * lanes);
                if (lanes <= 8) decode_order0_scalars<8>(block, at, here, symbols);
                else decode_order0_scalars<max_lanes>(block, at, here, symbols);
                block.add_sums(bundle.symbols[k], step, here);
            }
            if (!bundle.in_place) block.write(first, scalars, bundle.symbols[k]);
        }
    }
}

template <class V>
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
        if constexpr (!std::is_void_v<V>) {
            const uint32_t whole = scalars / lanes;
            if (lanes != 1 && whole != 0 && bundle.block[0]->same_tables()) {
                by_definition(all, whole);
                left = with_order0_group<V>(lanes, [&](auto group) {
                    return encode_order0_group<decltype(group)>(bundle, first, whole);
                });
            }
        }
        by_definition(left, 0);
        end = first;
    }
}

constexpr uint32_t order0_calls = 4;  // blocks at once

// True if the steps of two blocks may run together.
template <class Block>
bool order0_alike(const Block& x, const Block& y)
{
    const block_spec &a = *x.spec, &b = *y.spec;
    return x.lanes() == y.lanes() && x.codes.bits == y.codes.bits && a.heads == b.heads &&
           a.tokens == b.tokens && a.dim == b.dim && a.tables == b.tables &&
           (x.own[0] == nullptr) == (y.own[0] == nullptr);
}

template <class V>
constexpr uint32_t order0_bundle_size(uint32_t lanes)
{
    return !std::is_void_v<V> && lanes != 1 ? max_lanes / lanes : 1;
}

// The registers of a backend, void where it has none.
#if NORMANS_AVX2
using order0_registers_of_target = order0_avx2;
#elif NORMANS_NEON
using order0_registers_of_target = order0_neon;
#else
using order0_registers_of_target = void;
#endif
template <class Backend>
using order0_registers_t = std::conditional_t<Backend::id == backend_id::scalar ||
                                                  Backend::id == backend_id::portable,
                                              void, order0_registers_of_target>;

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
