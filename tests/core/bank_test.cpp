// core/uniform_bank.hpp and host/bank.hpp: the key of a scalar against plain arithmetic, every row
// in every cell, the predicted loss against what is measured, and the rate against a real Gaussian.

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>
#include <vector>

#include <normans/core/tans_step.hpp>
#include <normans/core/uniform_model.hpp>
#include <normans/host/bank.hpp>

#include "support/test_rng.hpp"

using namespace normans;
using namespace normans_test;

namespace {

using built_bank = bank_in<std::vector>;

bank_plan plan_of(unsigned bits, unsigned steps, unsigned positions,
                  shape_id shape = shape_id::gaussian)
{
    return {shape, uint8_t(bits), uint8_t(steps), uint8_t(positions)};
}

constexpr int offset = -16;

// Leaving is the inverse of entering, from the given cell, for every code.
template <class Model>
uint32_t wrong_steps(const Model& model, const typename Model::scalar& m, uint32_t cell)
{
    uint32_t wrong = 0;
    for (uint32_t code = 0; code < 2 * Model::format.code_sign(); ++code) {
        const tans_transition in = model.enter(m, code, cell);
        if (in.next_base >> model.bank.plan.table_bits != 0) return 1;
        const tans_transition out = model.leave(m, in.next_base);
        const uint32_t low = cell & ((1u << in.bit_count) - 1);
        const uint32_t raw = code & ((1u << in.raw_bits) - 1);
        wrong += out.bit_count != in.bit_count || out.raw_bits != in.raw_bits ||
                 out.escaped != in.escaped || out.corrupt || (out.code | raw) != code ||
                 (out.next_base | low) != cell;
        wrong += in.escaped && in.raw_bits != Model::format.code_bits;
    }
    return wrong;
}

template <scalar_type Type>
void check_rows(const bank_plan& plan)
{
    const built_bank built(plan);
    const bank_model<Type> model{built.bank, offset};
    constexpr uint32_t codes = 2 * format_of(Type).code_sign();
    test_rng rng(51);
    uint32_t wrong = 0, corrupt = 0, left = 0;
    for (uint32_t row = 0; row < bank_rows(plan); ++row) {
        for (uint32_t round = 0; round < (thin == 1 ? 12u : 2u); ++round) {
            const uint32_t raw = round % 4 == 3 ? rng.below(format_of(Type).code_bits - 1) : 0;
            const uint32_t groups = codes >> raw;
            // Means at the ends too, where half of a row stands for no code.
            const uint32_t group = round == 0 ? 0 : round == 1 ? groups - 1 : rng.below(groups);
            const typename bank_model<Type>::scalar m{row, int32_t(group), raw, rng.bits(1) != 0};
            for (uint32_t i = 0; i < 8; ++i)
                wrong += wrong_steps(model, m, rng.bits(plan.table_bits));
            for (uint32_t cell = 0; cell < 1u << plan.table_bits; ++cell, ++left) {
                const tans_transition step = model.leave(m, cell);
                corrupt += step.corrupt;
                wrong += step.code >= codes || step.raw_bits > 8;
                if (step.corrupt || step.escaped) continue;
                wrong += model.enter(m, step.code, 0).escaped;
            }
        }
    }
    CHECK(wrong == 0);
    CHECK(corrupt > 0);
    CHECK(corrupt < left / 2);
}

// The row from the text, in real numbers; false where rounding may decide.
template <scalar_type Type>
bool key_by_hand(const bank_plan& plan, double mean, double sigma_eighths,
                 typename bank_model<Type>::scalar& m)
{
    constexpr int bits = int(format_of(Type).code_bits), half = 1 << (bits - 1);
    int eighths = int(std::lround(sigma_eighths)) + 24;
    int raw = 0;
    if (eighths < 0) eighths = 0;
    for (; eighths >= 48 && raw < bits - 2; ++raw) eighths -= 8;
    if (eighths >= 48) eighths = 47;
    const int octave = eighths / 8 - 3, step = (eighths % 8) / (8 >> plan.log_steps);
    double parts = std::exp2(plan.log_positions - (octave < -1 ? -1 : octave));
    if (parts < 1) parts = 1;
    mean = std::round(mean * 256) / 256;
    if (mean < -half) mean = -half;
    if (mean > half - 1) mean = half - 1;
    const double place = (mean + half + 0.5) / (1 << raw);
    m.group = int(std::floor(place));
    const double within = (place - std::floor(place)) * parts;
    const int part = int(within);
    m.mirrored = 2 * part + 1 < parts;
    const int mirror = m.mirrored ? int(parts) - 1 - part : part;
    m.group_bits = uint32_t(raw);
    uint32_t row = 0;
    for (int o = -3; o < octave; ++o) {
        const double p = std::exp2(plan.log_positions - (o < -1 ? -1 : o));
        row += uint32_t((p < 2 ? 1 : p / 2) * (1 << plan.log_steps));
    }
    const uint32_t stored = parts < 2 ? 1 : uint32_t(parts / 2);
    m.row = row + uint32_t(step) * stored + (parts < 2 ? 0 : uint32_t(mirror) - stored);
    // A group of 2^g codes cuts the mean's 256ths off.
    return raw == 0 || std::fabs(within - std::floor(within)) > parts / 128;
}

template <scalar_type Type>
void check_keys(const bank_plan& plan)
{
    const built_bank built(plan);
    const bank_model<Type> model{built.bank, offset};
    constexpr int half = int(format_of(Type).code_sign());
    test_rng rng(52);
    uint32_t wrong = 0, compared = 0, mirrored = 0, grouped = 0;
    for (int round = 0; round < 20000; ++round) {
        const code_scale scale = make_scale(uint32_t(rng.between(110, 140)) << 23 | rng.bits(23));
        const double s = widen(scale.scale);
        const double in_codes = (rng.noise() / 65536.0) * half / 2;
        const float mean = float(in_codes * s);
        const double exact = double(mean) / s;
        const double tie = std::fabs(exact * 256 - std::floor(exact * 256) - 0.5);
        const int sigma = rng.between(0, 254), step = rng.between(-6, 9);
        const double eighths = 8 * offset + sigma + 2 * step - 8 * std::log2(s);
        const double sigma_tie = std::fabs(eighths - std::floor(eighths) - 0.5);
        if (tie < 1e-3 || sigma_tie < 1e-3) continue;
        typename bank_model<Type>::scalar hand{};
        if (!key_by_hand<Type>(plan, exact, eighths, hand)) continue;
        const auto m = model.prepare(float_to_bits(mean), uint32_t(sigma), step, scale);
        wrong += m.row != hand.row || m.group != hand.group || m.mirrored != hand.mirrored ||
                 m.group_bits != hand.group_bits;
        ++compared;
        mirrored += m.mirrored;
        grouped += m.group_bits != 0;
    }
    CHECK(wrong == 0);
    CHECK(compared > 14000);
    CHECK(mirrored > 1000);
    CHECK(grouped > 1000);
    // Odd inputs: an outcome each, within the rows.
    for (const uint32_t mean : {0u, sign_bit, infinity_bits, infinity_bits | sign_bit,
                                quiet_nan_bits, 0x7f7fffffu, 0xff7fffffu, 0x00800000u})
        for (const uint32_t sigma : {0u, 128u, 254u, 255u})
            for (const uint32_t scale : {0u, 103u << 23, one_bits, 150u << 23, infinity_bits}) {
                const auto m = model.prepare(mean, sigma, 0, make_scale(scale));
                CHECK(m.row < bank_rows(plan));
                CHECK(m.group >= 0);
                CHECK(m.group < 2 * half >> m.group_bits);
                if (sigma == sigma_zero || make_scale(scale).scale == 0) CHECK(m.group_bits == 0);
                if (mean == infinity_bits && scale == one_bits && m.group_bits == 0)
                    CHECK(m.group == 2 * half - 1);
                if (mean == quiet_nan_bits && m.group_bits == 0) CHECK(m.group == half);
            }
}

// Bits that a code costs under a row, by its frequency.
template <class Model>
double row_bits(const Model& model, const typename Model::scalar& m, uint32_t code)
{
    const int group = int((code ^ Model::format.code_sign()) >> m.group_bits);
    const int away = m.mirrored ? m.group - group : group - m.group;
    const int reach = model.bank.reach[m.row], symbol = away + int(bank_symbols) / 2;
    const tans_symbol* symbols = model.bank.symbols + m.row * bank_symbols;
    const bool in = std::abs(away) <= reach && symbols[symbol].freq != 0;
    return model.bank.plan.table_bits - std::log2(symbols[in ? symbol : 0].freq) +
           (in ? m.group_bits : Model::format.code_bits);
}

// The expected loss against the integer Gaussian of the very sigma and mean.
template <scalar_type Type>
double measured_loss(const built_bank& built, bank_range range)
{
    const bank_model<Type> model{built.bank, offset};
    const integer_model<Type> truth{shape_of(built.bank.plan.shape), offset, nullptr};
    const code_scale scale = make_scale(one_bits);
    test_rng rng(53);
    double loss = 0;
    const int rounds = thin == 1 ? 6000 : 1500;
    for (int round = 0; round < rounds; ++round) {
        const int eighths = range.lowest + round % (range.highest - range.lowest + 1);
        const uint32_t mean = float_to_bits(float(rng.between(-32768, 32767)) / 65536);
        const uint32_t sigma = uint32_t(eighths - 8 * offset);
        const scalar_model exact = prepare_scaled(truth, mean, sigma, 0, scale);
        const auto m = model.prepare(mean, sigma, 0, scale);
        const double all = truth.shape.base[32];
        for (uint32_t code = 0; code < 2 * format_of(Type).code_sign(); ++code) {
            const interval at = truth.find(exact, code);
            if (at.escaped) continue;
            loss += at.freq / all * (row_bits(model, m, code) - std::log2(all / at.freq));
        }
    }
    return loss / rounds;
}

struct rate {
    double bits, entropy;
};

// Samples of real Gaussians of `sigma` codes, means anywhere in the cells, scales anywhere.
template <scalar_type Type>
rate coded_rate(const built_bank& built, double sigma)
{
    using lanes = tans_array_lanes<8>;
    const bank_model<Type> model{built.bank, offset};
    constexpr scalar_format format = format_of(Type);
    constexpr int half = int(format.code_sign());
    test_rng rng(54);
    const size_t count = thin == 1 ? 160000 : 8000;
    std::vector<typename bank_model<Type>::scalar> models;
    std::vector<uint32_t> codes;
    rate out{0, 0};
    for (size_t i = 0; i < count; ++i) {
        const code_scale scale = make_scale(uint32_t(rng.between(118, 128)) << 23 | rng.bits(23));
        const double s = widen(scale.scale);
        // Sigma in values is on the codec's grid.
        const int step = rng.between(-2, 2);
        const int index = int(std::lround(8 * (std::log2(sigma * s) - offset))) - 2 * step;
        const double real = std::exp2(offset + (index + 2 * step) / 8.0) / s;
        const float mean = float((rng.bits(16) / 65536.0 * 6 - 3) * s);
        const double center = double(mean) / s;
        const double u1 = (rng.bits(32) + 0.5) / 4294967296.0, u2 = rng.bits(32) / 4294967296.0;
        const double x = center + real * std::sqrt(-2 * std::log(u1)) * std::cos(6.283185307 * u2);
        const int code = x < -half ? -half : x > half - 1 ? half - 1 : int(std::lround(x));
        const auto phi = [&](double edge) {
            return std::erfc(-(edge - center) / real / std::sqrt(2.0)) / 2;
        };
        const double below = code == -half ? 0 : phi(code - 0.5);
        const double above = code == half - 1 ? 1 : phi(code + 0.5);
        out.entropy -= std::log2(above - below > 1e-30 ? above - below : 1e-30) / double(count);
        models.push_back(model.prepare(float_to_bits(mean), uint32_t(index), step, scale));
        codes.push_back(uint32_t(code) & (2 * format.code_sign() - 1));
    }
    std::vector<uint8_t> room(4 * count + 64);
    word_writer words{room.data(), room.data() + room.size()};
    lanes::state state;
    for (uint32_t i = 0; i < 8; ++i) {
        state.cell[i] = tans_format::first_cell;
        state.bits[i] = tans_format::lower_bound;
    }
    typename lanes::template models<bank_model<Type>> at{};
    lanes::values now{};
    for (size_t first = count; first != 0;) {
        first -= 8;
        for (uint32_t i = 0; i < 8; ++i) at[i] = models[first + i], now[i] = codes[first + i];
        encode_step<lanes>(state, model, at, now, lanes::first_lanes(8), words);
    }
    uint32_t stored[8];
    close_lanes<lanes>(state, stored, words);
    out.bits = 8.0 * double(room.data() + room.size() - words.next) / double(count);

    word_reader reader{words.next, room.data() + room.size()};
    uint32_t wrong = !open_lanes<lanes>(state, stored, model.bank.plan.table_bits, reader);
    uint32_t corrupt = 0;
    for (size_t first = 0; first < count; first += 8) {
        for (uint32_t i = 0; i < 8; ++i) at[i] = models[first + i];
        const auto back =
            decode_step<lanes>(state, model, at, lanes::first_lanes(8), reader, corrupt);
        for (uint32_t i = 0; i < 8; ++i) wrong += back[i] != codes[first + i];
    }
    CHECK(wrong == 0);
    CHECK(corrupt == 0);
    CHECK(reader.next == reader.end);
    return out;
}

}  // namespace

TEST_CASE("A plan in 16 bits")
{
    uint32_t valid = 0;
    for (uint32_t packed = 0; packed < 65536; ++packed) {
        const bank_plan plan = unpack_plan(shape_id::gaussian, packed);
        if (!valid_plan(plan) || pack_plan(plan) != packed) continue;
        ++valid;
        const uint32_t rows = bank_rows(plan);
        CHECK(rows >= 6);
        CHECK(rows <= 496);
        CHECK(bank_cells(plan) == size_t(rows) << plan.table_bits);
    }
    CHECK(valid == 7 * 4 * 5);
    CHECK(pack_plan(plan_of(9, 2, 3)) == (9 | 2 << 4 | 3 << 6));
}

TEST_CASE("Rows of a bank: entering and leaving are inverse, for every code")
{
    check_rows<scalar_type::int8>(plan_of(6, 0, 0));
    check_rows<scalar_type::int8>(plan_of(9, 2, 3));
    check_rows<scalar_type::int8>(plan_of(10, 1, 1, shape_id::mixture));
    check_rows<scalar_type::int4>(plan_of(7, 2, 2));
    check_rows<scalar_type::int4>(plan_of(12, 0, 1));
}

TEST_CASE("The row of a scalar, from the text")
{
    check_keys<scalar_type::int8>(plan_of(6, 3, 2));
    check_keys<scalar_type::int8>(plan_of(6, 0, 0));
    check_keys<scalar_type::int4>(plan_of(6, 2, 4));
}

TEST_CASE("What is no plan is no bank")
{
    tans_bank bank;
    tans_cell cell{};
    uint8_t reach = 0;
    uint16_t next = 0;
    const bank_plan good = plan_of(6, 0, 0);
    for (const bank_plan& bad : {plan_of(5, 0, 0), plan_of(13, 0, 0), plan_of(9, 4, 0),
                                 plan_of(9, 0, 5), plan_of(9, 0, 0, shape_id::mixture_marginal)})
        CHECK(make_bank(bad, {&cell, &reach, nullptr, nullptr}, bank) == status::bad_argument);
    CHECK(make_bank(good, {nullptr, &reach, nullptr, nullptr}, bank) == status::bad_argument);
    CHECK(make_bank(good, {&cell, nullptr, nullptr, nullptr}, bank) == status::bad_argument);
    CHECK(make_bank(good, {&cell, &reach, &next, nullptr}, bank) == status::bad_argument);
    CHECK_FALSE(plan_bank(scalar_type::int8, 1000).fits);
    CHECK_FALSE(plan_bank(scalar_type::int8, 0).fits);
    CHECK(bank_in<std::vector>(plan_of(5, 0, 0)).bank.cells == nullptr);
}

TEST_CASE("A plan's loss is what its rows lose; a larger budget never loses more")
{
    for (const scalar_type type : {scalar_type::int8, scalar_type::int4}) {
        uint32_t before = 1 << 20;
        for (size_t kib = 16; kib <= 8192; kib *= 2) {
            const bank_choice choice = plan_bank(type, kib * 1024);
            REQUIRE(choice.fits);
            CHECK(choice.bytes <= kib * 1024);
            CHECK(choice.bytes == bank_bytes(choice.plan));
            CHECK(choice.loss <= before);
            before = choice.loss;
            if (kib > 2048 && thin != 1) continue;
            const built_bank built(choice.plan);
            const double predicted = choice.loss / 65536.0;
            const double measured =
                type == scalar_type::int8
                    ? measured_loss<scalar_type::int8>(built, usual_range(type))
                    : measured_loss<scalar_type::int4>(built, usual_range(type));
            MESSAGE(doctest::String(scalar_name(type)), ", ", kib, " KiB: predicted ", predicted,
                    ", measured ", measured);
            CHECK(measured < 1.1 * predicted + 0.0005);
            CHECK(measured > 0.9 * predicted - 0.0005);
        }
    }
}

TEST_CASE("No plan within the budget is better than the chosen one")
{
    const size_t budget = 100000;
    const bank_choice choice = plan_bank(scalar_type::int8, budget);
    for (unsigned bits = 6; bits <= 12; ++bits)
        for (unsigned steps = 0; steps <= 3; ++steps)
            for (unsigned positions = 0; positions <= 4; ++positions) {
                const bank_plan other = plan_of(bits, steps, positions);
                if (bank_bytes(other) > budget) continue;
                CHECK(bank_loss(scalar_type::int8, other, usual_range(scalar_type::int8)) >=
                      choice.loss);
            }
}

TEST_CASE("int8 at 2 to 5 bits: within 1.0 % of a Gaussian's cross-entropy in 256 KiB")
{
    for (const size_t kib : {16u, 64u, 256u, 1024u}) {
        const built_bank built(plan_bank(scalar_type::int8, kib * 1024).plan);
        for (const double sigma : {0.95, 1.4, 2.0, 2.8, 4.0, 5.6, 7.7}) {
            const rate got = coded_rate<scalar_type::int8>(built, sigma);
            MESSAGE(kib, " KiB, ", got.entropy, " bits: ", 100 * (got.bits / got.entropy - 1),
                    " % over");
            if (kib >= 256 && thin == 1) CHECK(got.bits <= 1.010 * got.entropy);
            CHECK(got.bits <= 1.06 * got.entropy);
            CHECK(got.bits >= 0.995 * got.entropy);
        }
    }
}

TEST_CASE("Outside of the range that a bank is planned for: what it costs")
{
    const built_bank built(plan_bank(scalar_type::int8, 256 * 1024).plan);
    for (const double sigma : {0.1, 0.25, 0.5, 11.0, 22.0, 30.0}) {
        const rate got = coded_rate<scalar_type::int8>(built, sigma);
        MESSAGE("sigma ", sigma, " codes, ", got.entropy, " bits: ", got.bits);
        CHECK(got.bits <= 1.02 * got.entropy + 0.05);
    }
    const built_bank small(plan_bank(scalar_type::int4, 64 * 1024).plan);
    for (const double sigma : {0.3, 0.6, 1.2}) {
        const rate got = coded_rate<scalar_type::int4>(small, sigma);
        MESSAGE("int4, 64 KiB, sigma ", sigma, " codes, ", got.entropy, " bits: ", got.bits);
        CHECK(got.bits <= 1.02 * got.entropy + 0.02);
    }
}

TEST_CASE("Banks stay what they are: golden hash")
{
    // Every decoder must build these. It may change only before version 1 of the format.
    running_hash hash;
    for (const bank_plan& plan :
         {plan_of(6, 0, 0), plan_of(9, 2, 2), plan_of(11, 1, 3, shape_id::mixture)}) {
        const built_bank built(plan);
        for (size_t i = 0; i < bank_cells(plan); ++i) {
            const tans_cell& c = built.bank.cells[i];
            const uint32_t reach = built.bank.reach[i >> plan.table_bits];
            const uint32_t symbol = c.symbol == 0 ? 0 : c.symbol - cell_middle + reach + 1;
            hash.add(c.next_base | uint64_t(c.bit_count) << 16 | uint64_t(symbol) << 32);
        }
        for (uint32_t i = 0; i < bank_rows(plan); ++i) hash.add(built.bank.reach[i]);
        for (size_t i = 0; i < bank_cells(plan); ++i) hash.add(built.bank.next[i]);
    }
    CHECK(hash.value() == 9596082252354019796u);
}
