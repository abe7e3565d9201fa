#pragma once
// One step under static tables: the rANS step without raw bits and escapes, over a lane group whose
// intervals come from tables. 16-bit codes take two steps, the high bytes' first. Lanes without a
// scalar change nothing.

#include "order0_lanes.hpp"
#include "rans_step.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Decodes one symbol per active lane; returns them. Every slot belongs to a symbol; `words` says
/// in the end whether they ran out.
NORMANS_EITHER_SIDE template <class Lanes, class Reader>
NORMANS_HD NORMANS_INLINE typename Lanes::values
decode_order0_step(typename Lanes::state& state, const typename Lanes::decode_tables& tables,
                   typename Lanes::mask active, Reader& words)
{
    const auto found = Lanes::locate(tables, state, active);
    leave_interval<Lanes>(state, found.freq, found.offset, words);
    return found.code;
}

/// Encodes one symbol per active lane; steps come last to first. `missing` is set where a symbol
/// has no slot; then the words are worth nothing.
NORMANS_EITHER_SIDE template <class Lanes, class Missing, class Writer>
NORMANS_HD NORMANS_INLINE void
encode_order0_step(typename Lanes::encoder_state& state,
                   const typename Lanes::encode_tables& tables,
                   const typename Lanes::values& symbols, typename Lanes::mask active,
                   Missing& missing, Writer& words)
{
    const auto found = Lanes::find(tables, symbols, active, missing);
    enter_interval<Lanes>(state, found.freq, found.start, words);
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
