// core/tans_table.hpp: frequencies and rows. Encoding and decoding are inverse in every cell for
// every symbol, every cell is reached, bit counts are what the counters say, nothing but a table
// becomes one.

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <normans/core/tans_table.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

struct built_row {
    unsigned table_bits;
    std::vector<uint16_t> freq;
    std::vector<tans_cell> cells;
    std::vector<uint16_t> next;
    std::vector<tans_symbol> entries;

    built_row(unsigned bits, std::vector<uint16_t> f)
        : table_bits(bits), freq(std::move(f)), cells(size()), next(size()), entries(freq.size())
    {
        REQUIRE(make_tans_row(freq.data(), uint32_t(freq.size()), bits, cells.data(), next.data(),
                              entries.data()) == status::ok);
    }

    uint32_t size() const { return 1u << table_bits; }
    tans_row row() const { return {cells.data(), next.data(), entries.data()}; }
};

std::vector<uint16_t> random_frequencies(test_rng& rng, unsigned table_bits)
{
    const uint32_t size = 1u << table_bits;
    const uint32_t limit = size < 256 ? size : 256;
    const uint32_t symbols = 2 + rng.below(limit - 1);
    std::vector<uint32_t> weights(symbols);
    const unsigned skew = 1 + rng.below(24);
    for (uint32_t& w : weights) w = rng.below(8) == 0 ? 0 : 1 + rng.bits(1 + rng.below(skew));
    weights[rng.below(symbols)] = 1;
    std::vector<uint16_t> freq(symbols);
    REQUIRE(normalize_weights(weights.data(), symbols, table_bits, freq.data()) == status::ok);
    return freq;
}

// Everything that a row promises.
void check_row(const built_row& built)
{
    const uint32_t size = built.size();
    const tans_row row = built.row();
    std::vector<uint32_t> seen(built.freq.size());
    uint32_t wrong = 0;
    for (uint32_t at = 0; at < size; ++at) {
        const tans_cell& cell = row.cells[at];
        REQUIRE(cell.symbol < built.freq.size());
        // Counters go up along the row; a cell stands for 2^bits cells, counter * 2^bits on.
        const uint32_t counter = built.freq[cell.symbol] + seen[cell.symbol]++;
        const uint32_t first = size + cell.next_base, count = 1u << cell.bit_count;
        wrong += first != counter * count;
        wrong += first + count > 2 * size;
    }
    for (uint32_t s = 0; s < built.freq.size(); ++s) wrong += seen[s] != built.freq[s];

    // From any cell to any symbol and back.
    std::vector<uint8_t> reached(size), entered(size);
    std::vector<uint32_t> todo{tans_format::first_cell};
    reached[tans_format::first_cell] = 1;
    const auto check_steps = [&](uint32_t from, std::vector<uint8_t>& marks) {
        for (uint32_t s = 0; s < built.freq.size(); ++s) {
            if (built.freq[s] == 0) continue;
            const tans_transition step = enter_symbol(row, built.table_bits, s, from);
            REQUIRE(step.next_base < size);
            const tans_cell& cell = row.cells[step.next_base];
            const tans_transition back = leave_cell(cell);
            const uint32_t low = from & ((1u << step.bit_count) - 1);
            wrong += cell.symbol != s || back.bit_count != step.bit_count ||
                     (back.next_base | low) != from || back.next_base + low != from;
            if (!marks[step.next_base]) todo.push_back(step.next_base);
            marks[step.next_base] = 1;
        }
    };
    while (!todo.empty()) {
        const uint32_t from = todo.back();
        todo.pop_back();
        check_steps(from, reached);
    }
    for (uint32_t from = 0; from < size; ++from) check_steps(from, entered);
    uint32_t cells_reached = 0, cells_entered = 0;
    bool whole_bits = true;  // then a row is closed in less: only whole bits ever move
    for (const uint8_t r : reached) cells_reached += r;
    for (const uint8_t e : entered) cells_entered += e;
    for (const uint16_t f : built.freq) whole_bits &= (f & (f - 1)) == 0;
    CHECK(wrong == 0);
    CHECK(cells_entered == size);
    CHECK((cells_reached == size || whole_bits));
}

double cost(const std::vector<uint32_t>& weights, const std::vector<uint16_t>& freq, double cells)
{
    double sum = 0, bits = 0;
    for (const uint32_t w : weights) sum += w;
    for (size_t s = 0; s < weights.size(); ++s)
        if (weights[s] != 0) bits += weights[s] / sum * std::log2(cells / freq[s]);
    return bits;
}

// The best frequencies: one cell for all, then each cell where it saves most, in real numbers.
std::vector<uint16_t> best_frequencies(const std::vector<uint32_t>& weights, uint32_t cells)
{
    std::vector<uint16_t> freq(weights.size());
    uint32_t given = 0;
    for (size_t s = 0; s < weights.size(); ++s) given += freq[s] = weights[s] != 0;
    for (; given < cells; ++given) {
        size_t best = 0;
        double most = -1;
        for (size_t s = 0; s < weights.size(); ++s) {
            if (weights[s] == 0) continue;
            const double gain = weights[s] * std::log2((freq[s] + 1.0) / freq[s]);
            if (gain > most) most = gain, best = s;
        }
        ++freq[best];
    }
    return freq;
}

}  // namespace

TEST_CASE("tANS rows of 16 cells, all of two, three and four symbols")
{
    uint32_t rows = 0;
    for (uint16_t a = 0; a <= 16; ++a)
        for (uint16_t b = 0; a + b <= 16; ++b)
            for (uint16_t c = 0; a + b + c <= 16; ++c, ++rows)
                check_row(built_row(4, {a, b, c, uint16_t(16 - a - b - c)}));
    CHECK(rows == 969);
}

TEST_CASE("tANS rows of every size: inverse, complete, reached")
{
    test_rng rng(71);
    for (unsigned bits = tans_format::min_table_bits; bits <= tans_format::max_table_bits; ++bits) {
        const uint32_t size = 1u << bits, most = size < 256 ? size : 256;
        for (uint32_t round = 0; round < (thin == 1 ? 24u : 3u); ++round)
            check_row(built_row(bits, random_frequencies(rng, bits)));
        check_row(built_row(bits, {uint16_t(size)}));  // one symbol: nothing moves
        check_row(built_row(bits, {1, uint16_t(size - 1)}));
        check_row(built_row(bits, {uint16_t(size - 1), 0, 1}));
        check_row(built_row(bits, std::vector<uint16_t>(most, uint16_t(size / most))));
    }
}

TEST_CASE("normalize_weights: sums, floors, and near the best there is")
{
    test_rng rng(72);
    for (int round = 0; round < 60; ++round) {
        const unsigned bits = 4 + rng.below(9);
        const uint32_t cells = 1u << bits, symbols = 1 + rng.below(cells < 200 ? cells : 200);
        std::vector<uint32_t> weights(symbols);
        for (uint32_t& w : weights) w = rng.below(5) == 0 ? 0 : rng.bits(1 + rng.below(32));
        weights[0] |= 1;
        std::vector<uint16_t> freq(symbols);
        REQUIRE(normalize_weights(weights.data(), symbols, bits, freq.data()) == status::ok);
        uint32_t sum = 0, wrong = 0;
        for (uint32_t s = 0; s < symbols; ++s) {
            sum += freq[s];
            wrong += (weights[s] != 0) != (freq[s] != 0);
        }
        CHECK(sum == cells);
        CHECK(wrong == 0);
        const double ours = cost(weights, freq, cells);
        const double best = cost(weights, best_frequencies(weights, cells), cells);
        CHECK(ours <= best + 0.001);
        CHECK(ours >= best - 1e-9);
    }
}

TEST_CASE("What is no table is refused and nothing is written")
{
    std::vector<uint32_t> weights(300, 1);
    std::vector<uint16_t> freq(300, 7);
    CHECK(normalize_weights(weights.data(), 0, 8, freq.data()) == status::bad_argument);
    CHECK(normalize_weights(weights.data(), 257, 12, freq.data()) == status::bad_argument);
    CHECK(normalize_weights(weights.data(), 17, 4, freq.data()) == status::bad_argument);
    CHECK(normalize_weights(weights.data(), 8, 3, freq.data()) == status::bad_argument);
    CHECK(normalize_weights(weights.data(), 8, 13, freq.data()) == status::bad_argument);
    CHECK(normalize_weights(weights.data(), 16, 4, freq.data()) == status::ok);
    weights.assign(300, 0);
    CHECK(normalize_weights(weights.data(), 16, 4, freq.data()) == status::bad_argument);
    weights.assign(300, 0xffffffffu);
    CHECK(normalize_weights(weights.data(), 256, 12, freq.data()) == status::ok);

    const tans_cell mark{0x1234, 0x56, 0x78};
    std::vector<tans_cell> cells(4096, mark);
    const auto refuses = [&](std::vector<uint16_t> f, unsigned bits) {
        f.resize(300);
        return [&, f, bits](uint32_t symbols) {
            const status got =
                make_tans_row(f.data(), symbols, bits, cells.data(), nullptr, nullptr);
            uint32_t written = 0;
            for (const tans_cell& c : cells)
                written += c.next_base != mark.next_base || c.symbol != mark.symbol;
            return got == status::bad_argument && written == 0;
        };
    };
    CHECK(refuses({}, 8)(0));
    CHECK(refuses({}, 8)(3));
    CHECK(refuses({128, 127}, 8)(2));
    CHECK(refuses({128, 129}, 8)(2));
    CHECK(refuses({65535, 65535}, 12)(2));
    CHECK(refuses(std::vector<uint16_t>(300, 16), 12)(257));
    CHECK(refuses({4, 4}, 3)(2));
    CHECK(refuses({4096, 4096}, 13)(2));
    CHECK(refuses({65535, 65535, 65535, 65535, 8, 65535}, 12)(6));
    // The sum as 16 bits would be right.
    CHECK(refuses({65535, 4096, 1}, 12)(3));
}

TEST_CASE("Rows stay what they are: golden hash")
{
    // Every decoder must build these. It may change only before version 1 of the format.
    test_rng rng(73);
    running_hash hash;
    for (unsigned bits = 4; bits <= 12; ++bits) {
        for (int round = 0; round < 4; ++round) {
            const built_row built(bits, random_frequencies(rng, bits));
            for (const tans_cell& c : built.cells)
                hash.add(c.next_base | uint64_t(c.bit_count) << 16 | uint64_t(c.symbol) << 32);
            for (const uint16_t n : built.next) hash.add(n);
        }
    }
    CHECK(hash.value() == 11344811509174320207u);
}
