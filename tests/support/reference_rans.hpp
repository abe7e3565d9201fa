#pragma once
// rANS from the textbook, for comparison: 64-bit states, plain division, one loop per
// renormalisation and a plain list of words. It shares nothing with include/. What a scalar does to
// its lane is a list of events, one per phase of a step; the interleaving rule is all in encode()
// and decode():
//     decoder: for each step, for each phase: all lanes pop, then starved lanes take words, 0 first
//     encoder: the same backwards, a lane giving a word before the push that would overflow it

#include <cstddef>
#include <cstdint>
#include <vector>

namespace normans_test {

struct rans_event {
    enum kind_type { nothing, interval, raw } kind = nothing;
    std::uint32_t start = 0;
    std::uint32_t freq = 0;
    unsigned bits = 0;
    std::uint32_t value = 0;
};

/// One scalar: its interval; its raw bits or an escape's byte; a 16-bit escape's low byte.
struct rans_scalar {
    rans_event phase[3];
};

struct rans_stream {
    std::vector<std::uint64_t> states;
    std::vector<std::uint16_t> words;  // in the decoder's order
};

constexpr std::uint64_t reference_lower_bound = 32768;
constexpr std::uint64_t reference_total = 32768;

inline void reference_push(std::uint64_t& state, const rans_event& event,
                           std::vector<std::uint16_t>& reversed)
{
    if (event.kind == rans_event::nothing) return;
    // A push multiplies by total / freq or by 2^bits; the state must stay below 2^31.
    const std::uint64_t limit = event.kind == rans_event::interval
                                    ? std::uint64_t(event.freq) * 65536
                                    : (std::uint64_t(1) << 31) >> event.bits;
    while (state >= limit) {
        reversed.push_back(std::uint16_t(state % 65536));
        state /= 65536;
    }
    if (event.kind == rans_event::interval)
        state = state / event.freq * reference_total + event.start + state % event.freq;
    else
        state = state * (std::uint64_t(1) << event.bits) + event.value;
}

/// scalars[i] goes to lane i mod lanes.
inline rans_stream reference_encode(const std::vector<rans_scalar>& scalars, std::size_t lanes)
{
    rans_stream out{std::vector<std::uint64_t>(lanes, reference_lower_bound), {}};
    std::vector<std::uint16_t> reversed;
    const std::size_t steps = (scalars.size() + lanes - 1) / lanes;
    for (std::size_t step = steps; step-- > 0;)
        for (int phase = 2; phase >= 0; --phase)
            for (std::size_t lane = lanes; lane-- > 0;)
                if (step * lanes + lane < scalars.size())
                    reference_push(out.states[lane], scalars[step * lanes + lane].phase[phase],
                                   reversed);
    out.words.assign(reversed.rbegin(), reversed.rend());
    return out;
}

/// Walks a stream with the scalars known, and says whether each pop gives what was pushed, every
/// lane ends at the lower bound, and the words are used up.
inline bool reference_decodes(rans_stream stream, const std::vector<rans_scalar>& scalars)
{
    const std::size_t lanes = stream.states.size();
    std::size_t cursor = 0;
    for (std::size_t first = 0; first < scalars.size(); first += lanes) {
        for (int phase = 0; phase < 3; ++phase) {
            for (std::size_t i = first; i < first + lanes && i < scalars.size(); ++i) {
                std::uint64_t& state = stream.states[i - first];
                const rans_event& event = scalars[i].phase[phase];
                if (event.kind == rans_event::interval) {
                    const std::uint64_t slot = state % reference_total;
                    if (slot < event.start || slot >= event.start + event.freq) return false;
                    state = event.freq * (state / reference_total) + slot - event.start;
                } else if (event.kind == rans_event::raw) {
                    const std::uint64_t scale = std::uint64_t(1) << event.bits;
                    if (state % scale != event.value) return false;
                    state /= scale;
                }
                while (state < reference_lower_bound) {
                    if (cursor == stream.words.size()) return false;
                    state = state * 65536 + stream.words[cursor++];
                }
            }
        }
    }
    for (const std::uint64_t state : stream.states)
        if (state != reference_lower_bound) return false;
    return cursor == stream.words.size();
}

}  // namespace normans_test
