#pragma once
// The only tANS arithmetic: one step of a lane group, decoding and encoding. As with rANS encoding
// runs backwards, words are written downward, and the lanes share one run of words.
// The order of events is the format (one step of the decoder):
//   1. cell -> symbol, next_base, bit_count     2. cell = next_base + bit_count bits off the lane
//   3. starved lanes take a word, lane 0 first
//   4. raw bits: a group's low bits or an escape's code (at most 8); starved lanes take a word
// Lanes without a scalar change nothing.

#include "tans_lanes.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Reads a lane group from its stored form, a u32 per lane, and the words it begins with. False if
/// a lane is none that an encoder writes: an empty reservoir, or a cell that no row has.
NORMANS_EITHER_SIDE template <class Lanes, class Reader>
NORMANS_HD NORMANS_INLINE bool open_lanes(typename Lanes::state& state, const uint32_t* stored,
                                          unsigned table_bits, Reader& words)
{
    bool good = true;
    for (uint32_t i = 0; i < Lanes::width; ++i) {
        state.bits[i] = stored[i] & 0xffff;
        state.cell[i] = stored[i] >> 16;
        good &= state.bits[i] != 0 && state.cell[i] >> table_bits == 0;
    }
    if (good) Lanes::refill(state.bits, words);
    return good;
}

/// The inverse: the encoder's last words and the stored form.
NORMANS_EITHER_SIDE template <class Lanes, class Writer>
NORMANS_HD NORMANS_INLINE void close_lanes(typename Lanes::state& state, uint32_t* stored,
                                           Writer& words)
{
    const auto most = Lanes::where(Lanes::first_lanes(Lanes::width), 31 - tans_format::word_bits);
    Lanes::spill(state.bits, Lanes::full_for_bits(state.bits, most), words);
    for (uint32_t i = 0; i < Lanes::width; ++i) stored[i] = state.bits[i] | state.cell[i] << 16;
}

/// Decodes one scalar per active lane; returns the codes (0 where inactive). A lane whose symbol
/// stands for no code is set in `corrupt`. `words` says in the end whether they ran out.
NORMANS_EITHER_SIDE template <class Lanes, class Model, class Reader>
NORMANS_HD NORMANS_INLINE typename Lanes::values
decode_step(typename Lanes::state& state, const Model& model,
            const typename Lanes::template models<Model>& models, typename Lanes::mask active,
            Reader& words, typename Lanes::mask& corrupt)
{
    const auto found = Lanes::leave(model, models, state.cell, active);
    corrupt = corrupt | found.corrupt;
    state.cell = Lanes::combine(found.next_base, Lanes::pop(state.bits, found.bit_count));
    Lanes::refill(state.bits, words);
    if (!Lanes::any(found.raw)) return found.code;
    const auto codes = Lanes::combine(found.code, Lanes::pop(state.bits, found.raw_bits));
    Lanes::refill(state.bits, words);
    return codes;
}

/// Encodes one scalar per active lane: decode_step's events in reverse. Steps come last to first.
/// Returns the lanes that escaped.
NORMANS_EITHER_SIDE template <class Lanes, class Model, class Writer>
NORMANS_HD NORMANS_INLINE typename Lanes::mask
encode_step(typename Lanes::state& state, const Model& model,
            const typename Lanes::template models<Model>& models,
            const typename Lanes::values& codes, typename Lanes::mask active, Writer& words)
{
    const auto found = Lanes::enter(model, models, codes, state.cell, active);
    if (Lanes::any(found.raw)) {
        auto rest = codes;
        const auto raw = Lanes::pop(rest, found.raw_bits);
        Lanes::spill(state.bits, Lanes::full_for_bits(state.bits, found.raw_bits), words);
        Lanes::push(state.bits, found.raw_bits, raw);
    }
    const auto given = Lanes::pop(state.cell, found.bit_count);
    Lanes::spill(state.bits, Lanes::full_for_bits(state.bits, found.bit_count), words);
    Lanes::push(state.bits, found.bit_count, given);
    state.cell = found.next_base;
    return found.escaped;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
