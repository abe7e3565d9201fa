// core/tans_step.hpp: lanes, reservoirs and words against the plain 64-bit reservoirs of
// tests/support (a rANS state that takes raw bits only), which have their own interleaving rule;
// the rate against the exact entropy; streams that are damaged.

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <normans/core/tans_step.hpp>
#include <normans/core/tans_table.hpp>

#include "support/reference_rans.hpp"
#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

// Some rows of one size. Symbol 0 is an escape, symbol s stands for 2^raw codes, (s - 1) 2^raw on.
struct row_model {
    struct scalar {
        uint32_t row, raw_bits;
    };

    unsigned table_bits;
    uint32_t symbols;
    std::vector<std::vector<uint16_t>> freq;
    std::vector<std::vector<tans_cell>> cells;
    std::vector<std::vector<uint16_t>> next;
    std::vector<std::vector<tans_symbol>> entries;

    row_model(unsigned bits, uint32_t symbol_count, uint32_t rows, uint64_t seed)
        : table_bits(bits), symbols(symbol_count)
    {
        test_rng rng(seed);
        for (uint32_t r = 0; r < rows; ++r) {
            std::vector<uint32_t> weights(symbols);
            const int center = rng.between(1, int(symbols) - 1), width = rng.between(1, 12);
            for (int s = 0; s < int(symbols); ++s) {
                const int d = (s - center) * 8 / width;
                const uint32_t bell = d * d > 400 ? 0 : uint32_t(40000 / (8 + d * d));
                weights[uint32_t(s)] = s == 0 ? 40 : bell;
            }
            freq.emplace_back(symbols);
            cells.emplace_back(1u << bits);
            next.emplace_back(1u << bits);
            entries.emplace_back(symbols);
            REQUIRE(normalize_weights(weights.data(), symbols, bits, freq[r].data()) == status::ok);
            REQUIRE(make_tans_row(freq[r].data(), symbols, bits, cells[r].data(), next[r].data(),
                                  entries[r].data()) == status::ok);
        }
    }

    uint32_t symbol_of(const scalar& m, uint32_t code) const
    {
        const uint32_t symbol = (code >> m.raw_bits) + 1;
        return symbol < symbols && freq[m.row][symbol] != 0 ? symbol : 0;
    }

    tans_transition leave(const scalar& m, uint32_t cell) const
    {
        const tans_cell& here = cells[m.row][cell];
        tans_transition step = leave_cell(here);
        step.escaped = here.symbol == 0;
        step.raw_bits = step.escaped ? 8 : m.raw_bits;
        step.code = step.escaped ? 0 : uint32_t(here.symbol - 1) << m.raw_bits;
        return step;
    }

    tans_transition enter(const scalar& m, uint32_t code, uint32_t cell) const
    {
        const uint32_t symbol = symbol_of(m, code);
        const tans_row row{cells[m.row].data(), next[m.row].data(), entries[m.row].data()};
        tans_transition step = enter_symbol(row, table_bits, symbol, cell);
        step.escaped = symbol == 0;
        step.raw_bits = step.escaped ? 8 : m.raw_bits;
        return step;
    }

    // A code as the row has them; some escape.
    uint32_t draw(test_rng& rng, const scalar& m) const
    {
        const uint32_t symbol = cells[m.row][rng.bits(table_bits)].symbol;
        if (symbol == 0) return rng.bits(8);
        const uint32_t low = m.raw_bits == 0 ? 0 : rng.bits(m.raw_bits);
        return ((symbol - 1) << m.raw_bits | low) & 255;
    }
};

struct coded {
    std::vector<uint8_t> bytes;
    std::vector<uint32_t> lanes;
};

template <class Lanes>
typename Lanes::template models<row_model> models_at(const std::vector<row_model::scalar>& all,
                                                     size_t first)
{
    typename Lanes::template models<row_model> models{};
    for (uint32_t i = 0; i < Lanes::width && first + i < all.size(); ++i)
        models[i] = all[first + i];
    return models;
}

template <class Lanes>
coded encode_all(const row_model& model, const std::vector<row_model::scalar>& scalars,
                 const std::vector<uint8_t>& codes, uint64_t& mixed_steps)
{
    std::vector<uint8_t> room(4 * codes.size() + 256);
    word_writer words{room.data(), room.data() + room.size()};
    typename Lanes::state state;
    for (uint32_t i = 0; i < Lanes::width; ++i) {
        state.cell[i] = tans_format::first_cell;
        state.bits[i] = tans_format::lower_bound;
    }
    uint32_t wrong = 0;
    for (size_t step = (codes.size() + Lanes::width - 1) / Lanes::width; step-- > 0;) {
        const size_t first = step * Lanes::width;
        typename Lanes::values now{};
        uint32_t active = 0;
        for (uint32_t i = 0; i < Lanes::width && first + i < codes.size(); ++i) {
            now[i] = codes[first + i];
            active |= 1u << i;
        }
        const uint32_t escaped =
            encode_step<Lanes>(state, model, models_at<Lanes>(scalars, first), now, active, words);
        mixed_steps += escaped != 0 && escaped != active;
        for (uint32_t i = 0; i < Lanes::width; ++i)
            wrong += state.bits[i] < tans_format::lower_bound || state.bits[i] >> 31 != 0 ||
                     state.cell[i] >> model.table_bits != 0;
    }
    CHECK(wrong == 0);
    coded out;
    out.lanes.resize(Lanes::width);
    close_lanes<Lanes>(state, out.lanes.data(), words);
    CHECK_FALSE(words.overrun);
    out.bytes.assign(words.next, room.data() + room.size());
    return out;
}

enum class outcome { clean, refused, damaged };

template <class Lanes>
outcome decode_all(const row_model& model, const std::vector<row_model::scalar>& scalars,
                   const coded& from, std::vector<uint8_t>& codes)
{
    word_reader words{from.bytes.data(), from.bytes.data() + from.bytes.size()};
    typename Lanes::state state;
    codes.clear();
    if (!open_lanes<Lanes>(state, from.lanes.data(), model.table_bits, words))
        return outcome::refused;
    uint32_t wrong = 0;
    typename Lanes::mask corrupt = 0;
    for (size_t first = 0; first < scalars.size(); first += Lanes::width) {
        const size_t left = scalars.size() - first;
        const uint32_t active = left < Lanes::width ? uint32_t(left) : Lanes::width;
        const auto now = decode_step<Lanes>(state, model, models_at<Lanes>(scalars, first),
                                            Lanes::first_lanes(active), words, corrupt);
        for (uint32_t i = 0; i < active; ++i) codes.push_back(uint8_t(now[i]));
        for (uint32_t i = active; i < Lanes::width; ++i) wrong += now[i] != 0;
        for (uint32_t i = 0; i < Lanes::width; ++i)
            wrong += state.cell[i] >> model.table_bits != 0;
    }
    CHECK(wrong == 0);
    bool clean = corrupt == 0 && !words.overrun && words.next == words.end;
    for (uint32_t i = 0; i < Lanes::width; ++i)
        clean &= state.cell[i] == tans_format::first_cell &&
                 state.bits[i] == tans_format::lower_bound;
    return clean ? outcome::clean : outcome::damaged;
}

// The cells come from the rows' `next`, the reservoirs and words from the reference.
coded reference(const row_model& model, const std::vector<row_model::scalar>& scalars,
                const std::vector<uint8_t>& codes, uint32_t lanes)
{
    std::vector<rans_scalar> events(codes.size());
    std::vector<uint32_t> cell(lanes, 0);
    for (size_t i = codes.size(); i-- > 0;) {
        const row_model::scalar& m = scalars[i];
        const uint32_t symbol = model.symbol_of(m, codes[i]), freq = model.freq[m.row][symbol];
        const uint32_t size = 1u << model.table_bits;
        uint32_t state = size + cell[i % lanes];
        rans_event& bits = events[i].phase[0];
        bits.kind = rans_event::raw;
        for (; state >= 2 * freq; state /= 2) bits.value |= (state & 1) << bits.bits++;
        // The (state - freq)-th cell of the symbol in the row's order.
        uint32_t left = state - freq, at = 0;
        for (;; ++at)
            if (model.cells[m.row][at].symbol == symbol && left-- == 0) break;
        cell[i % lanes] = at;
        rans_event& raw = events[i].phase[1];
        raw.kind = rans_event::raw;
        raw.bits = symbol == 0 ? 8 : m.raw_bits;
        raw.value = codes[i] & ((1u << raw.bits) - 1);
    }
    const rans_stream stream = reference_encode(events, lanes);
    CHECK(reference_decodes(stream, events));
    coded out;
    std::vector<uint16_t> words;
    for (uint32_t i = 0; i < lanes; ++i) {
        const uint64_t reservoir = stream.states[i];
        if (reservoir >= 65536) words.push_back(uint16_t(reservoir));
        out.lanes.push_back(uint32_t(reservoir >= 65536 ? reservoir / 65536 : reservoir) +
                            65536 * cell[i]);
    }
    words.insert(words.end(), stream.words.begin(), stream.words.end());
    for (const uint16_t word : words) {
        out.bytes.push_back(uint8_t(word));
        out.bytes.push_back(uint8_t(word >> 8));
    }
    return out;
}

template <class Lanes>
void check_streams(uint64_t seed)
{
    test_rng rng(seed);
    uint64_t mixed = 0;
    for (const unsigned bits : {4u, 6u, 9u, 12u}) {
        const row_model model(bits, bits == 4 ? 12 : bits == 6 ? 40 : 120, 5, seed + bits);
        for (const size_t count : {size_t(0), size_t(1), size_t(Lanes::width - 1),
                                   size_t(Lanes::width + 1), size_t(3 * Lanes::width),
                                   size_t(1777)}) {
            std::vector<row_model::scalar> scalars;
            std::vector<uint8_t> codes;
            for (size_t i = 0; i < count; ++i) {
                scalars.push_back({rng.below(5), rng.below(3)});
                codes.push_back(uint8_t(rng.below(60) == 0 ? rng.bits(8)
                                                           : model.draw(rng, scalars.back())));
            }
            const coded ours = encode_all<Lanes>(model, scalars, codes, mixed);
            const coded plain = reference(model, scalars, codes, Lanes::width);
            CHECK(ours.bytes == plain.bytes);
            CHECK(ours.lanes == plain.lanes);
            std::vector<uint8_t> back;
            CHECK(decode_all<Lanes>(model, scalars, ours, back) == outcome::clean);
            CHECK(back == codes);
        }
    }
    if (Lanes::width > 1) CHECK(mixed > 50);
}

}  // namespace

TEST_CASE("tANS steps equal plain reservoirs, for every lane count")
{
    check_streams<tans_array_lanes<1>>(11);
    check_streams<tans_array_lanes<8>>(12);
    check_streams<tans_array_lanes<16>>(13);
    check_streams<tans_array_lanes<32>>(14);
}

TEST_CASE("tANS: within 0.1 % of the entropy of the frequencies")
{
    test_rng rng(15);
    for (const unsigned bits : {9u, 11u}) {
        const row_model model(bits, 64, 6, 90 + bits);
        std::vector<row_model::scalar> scalars;
        std::vector<uint8_t> codes;
        double entropy = 0;
        const size_t count = thin == 1 ? 400000 : 20000;
        for (size_t i = 0; i < count; ++i) {
            scalars.push_back({rng.below(6), 0});
            codes.push_back(uint8_t(model.draw(rng, scalars.back())));
            const uint32_t symbol = model.symbol_of(scalars.back(), codes.back());
            entropy += bits - std::log2(model.freq[scalars.back().row][symbol]);
            entropy += symbol == 0 ? 8 : 0;
        }
        uint64_t mixed = 0;
        const coded stream = encode_all<tans_array_lanes<8>>(model, scalars, codes, mixed);
        const double stored = 8.0 * double(stream.bytes.size()) - 8 * 16;
        MESSAGE("table bits ", bits, ": ", stored / double(count), " bits, entropy ",
                entropy / double(count));
        CHECK(stored < 1.001 * entropy + 8 * 32);
        CHECK(stored > 0.995 * entropy);
    }
}

TEST_CASE("Damaged tANS streams: nothing leaves its bounds")
{
    using lanes = tans_array_lanes<8>;
    test_rng rng(16);
    const row_model model(9, 64, 4, 17);
    std::vector<row_model::scalar> scalars;
    std::vector<uint8_t> codes, back;
    for (size_t i = 0; i < 300; ++i) {
        scalars.push_back({rng.below(4), rng.below(3)});
        codes.push_back(uint8_t(model.draw(rng, scalars.back())));
    }
    uint64_t mixed = 0;
    const coded good = encode_all<lanes>(model, scalars, codes, mixed);
    REQUIRE(decode_all<lanes>(model, scalars, good, back) == outcome::clean);
    for (size_t cut = 0; cut < good.bytes.size(); cut += 2) {
        coded shorter = good;
        shorter.bytes.resize(cut);
        shorter.bytes.shrink_to_fit();
        CHECK(decode_all<lanes>(model, scalars, shorter, back) == outcome::damaged);
    }
    coded longer = good;
    longer.bytes.resize(good.bytes.size() + 2);
    CHECK(decode_all<lanes>(model, scalars, longer, back) == outcome::damaged);
    // Single bits: of raw bits only a content check can know, and cells fall in step again.
    uint32_t passed = 0, wrong = 0;
    for (size_t bit = 0; bit < 8 * good.bytes.size(); ++bit) {
        coded bad = good;
        bad.bytes[bit / 8] = uint8_t(bad.bytes[bit / 8] ^ 1 << bit % 8);
        const outcome seen = decode_all<lanes>(model, scalars, bad, back);
        passed += seen == outcome::clean;
        wrong += seen == outcome::clean && back == codes;
    }
    CHECK(wrong == 0);
    MESSAGE(passed, " of ", 8 * good.bytes.size(), " bit flips passed the lanes' ends");
    CHECK(passed < good.bytes.size() * 8 / 3);
    for (uint32_t i = 0; i < 8; ++i) {
        for (const uint32_t lane : {0u, 0x00010000u, 0x02000001u, 0xffff0001u}) {
            coded bad = good;
            bad.lanes[i] = lane;
            CHECK(decode_all<lanes>(model, scalars, bad, back) == outcome::refused);
        }
        for (int round = 0; round < 200; ++round) {
            coded bad = good;
            bad.lanes[i] = (bad.lanes[i] ^ 1u << rng.below(32)) & 0x01ffffffu;
            const outcome seen = decode_all<lanes>(model, scalars, bad, back);
            CHECK((seen != outcome::clean || back != codes || bad.lanes[i] == good.lanes[i]));
        }
    }
    for (int round = 0; round < 500; ++round) {
        coded noise;
        for (int i = 0; i < 8; ++i) noise.lanes.push_back(rng.bits(25) | 1);
        noise.bytes.resize(2 * rng.below(300));
        for (uint8_t& byte : noise.bytes) byte = uint8_t(rng.bits(8));
        CHECK(decode_all<lanes>(model, scalars, noise, back) == outcome::damaged);
    }
}
