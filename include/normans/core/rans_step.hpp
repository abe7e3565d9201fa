#pragma once
// The only rANS arithmetic: one step of a lane group, both ways. stream.hpp has the surprises.
// Between two steps lower_bound <= state < lower_bound << word_bits in every lane. A decoder's
// advance breaks that downward, refill restores it; an encoder does before each push, by one word.
// The order of events is the format (one step of the decoder):
//   1. slot = low bits of the state -> interval      2. state = freq (state >> 15) + slot - start
//   3. starved lanes take a word, lane 0 first
//   4. raw bits: a group's low bits, or an escape's byte (under the marginal, if there is one);
//      then starved lanes take a word                5. 16-bit escapes: the low byte, likewise
// 16 raw bits at once would need a second word, hence 5. Lanes without a scalar change nothing.

#include "lanes.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Events 2 and 3 of every rANS decoder; enter_interval is the inverse.
NORMANS_EITHER_SIDE template <class Lanes, class State, class Freq, class Offset, class Reader>
NORMANS_HD NORMANS_INLINE void leave_interval(State& x, const Freq& f, const Offset& o, Reader& in)
{
    Lanes::advance(x, f, o);
    Lanes::refill(x, in);
}

NORMANS_EITHER_SIDE template <class Lanes, class State, class Freq, class Start, class Writer>
NORMANS_HD NORMANS_INLINE void enter_interval(State& x, const Freq& f, const Start& s, Writer& out)
{
    Lanes::spill(x, Lanes::full_for(x, f), out);
    Lanes::divide(x, f, s);
}

/// Decodes one scalar per active lane; returns the codes (0 where inactive). A lane whose slot
/// belongs to no code is set in `corrupt`. `words` says in the end whether they ran out.
NORMANS_EITHER_SIDE template <class Lanes, class Model, class Guess, class Reader>
NORMANS_HD NORMANS_INLINE typename Lanes::values
decode_step(typename Lanes::state& state, const Model& model, const Guess& guess,
            const typename Lanes::models& models, typename Lanes::mask active, Reader& words,
            typename Lanes::mask& corrupt)
{
    const auto slots = Lanes::slot(state);
    const auto found = Lanes::locate(model, guess, models, slots, active);
    leave_interval<Lanes>(state, found.freq, Lanes::subtract(slots, found.start), words);
    if (!Lanes::any(found.raw | found.escaped | found.corrupt)) return found.code;
    corrupt = corrupt | found.corrupt;
    auto bits = Lanes::pop(state, found.raw_bits);
    if (model.marginal != nullptr && Lanes::any(found.escaped)) {
        const auto inner = Lanes::slot(state);
        const auto byte = Lanes::locate(*model.marginal, inner, found.escaped);
        Lanes::advance(state, byte.freq, Lanes::subtract(inner, byte.start));
        bits = Lanes::combine(bits, byte.code);
    }
    Lanes::refill(state, words);
    auto codes = Lanes::combine(found.code, bits);
    if constexpr (Model::format.code_bits == 16) {
        if (Lanes::any(found.escaped)) {
            const auto eight = Lanes::where(found.escaped, raw_bits_limit);
            const auto low = Lanes::pop(state, eight);
            Lanes::refill(state, words);
            Lanes::push(codes, eight, low);
        }
    }
    return codes;
}

/// Encodes one scalar per active lane: decode_step's events in reverse. Steps come last to first.
/// Returns the lanes that escaped.
NORMANS_EITHER_SIDE template <class Lanes, class Model, class Writer>
NORMANS_HD NORMANS_INLINE typename Lanes::mask
encode_step(typename Lanes::encoder_state& state, const Model& model,
            const typename Lanes::models& models, const typename Lanes::values& codes,
            typename Lanes::mask active, Writer& words)
{
    const auto found = Lanes::find(model, models, codes, active);
    if (Lanes::any(found.raw | found.escaped)) {
        auto rest = Lanes::subtract(codes, found.code);  // an escape's whole code
        if constexpr (Model::format.code_bits == 16) {
            if (Lanes::any(found.escaped)) {
                const auto eight = Lanes::where(found.escaped, raw_bits_limit);
                const auto low = Lanes::pop(rest, eight);
                Lanes::spill(state, Lanes::full_for_bits(state, eight), words);
                Lanes::push(state, eight, low);
            }
        }
        const auto full = Lanes::full_for_bits(state, found.raw_bits);
        if (model.marginal != nullptr && Lanes::any(found.escaped)) {
            const auto byte = Lanes::find(*model.marginal, rest, found.escaped);
            Lanes::spill(state, full | Lanes::full_for(state, byte.freq), words);
            Lanes::divide(state, byte.freq, byte.start);
            rest = Lanes::where_not(found.escaped, rest);
        } else {
            Lanes::spill(state, full, words);
        }
        Lanes::push(state, found.raw_bits, rest);
    }
    enter_interval<Lanes>(state, found.freq, found.start, words);
    return found.escaped;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
