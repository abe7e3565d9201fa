#pragma once
// Every operation of planes on given lanes, its results in lists: what operations_test.cpp compares.

#include <vector>

#include <normans/normans.hpp>

#include "support/random_source.hpp"

namespace normans_test {

using namespace normans;
using field::random_source;

constexpr uint32_t lanes = 64;  // of two planes

struct word_lanes {
    uint16_t lane[lanes];

    explicit word_lanes(random_source& random)
    {
        constexpr uint16_t corners[] = {0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xffff, 0xfffe, 0x00ff};
        const bool close = random.below(4) == 0;
        for (uint16_t& word : lane)
            word = random.below(4) == 0 ? corners[random.below(9)]
                                        : uint16_t(close ? random.below(40) : random.bits());
    }
};

struct float_lanes {
    float lane[lanes];

    // Ordinary numbers: |x| in 2^-20 .. 2^20.
    explicit float_lanes(random_source& random)
    {
        for (float& x : lane)
            x = bits_to_float((random.bits() & 0x807fffff) | (107 + random.below(40)) << 23);
    }
};

template <class V>
std::vector<uint16_t> stored(const typename V::words& x)
{
    std::vector<uint16_t> out(lanes);
    V::store(out.data(), x);
    return out;
}

template <class V>
std::vector<uint32_t> stored_ints(const typename V::ints& x)
{
    std::vector<uint32_t> out(lanes);
    V::store(out.data(), x);
    return out;
}

// The results of all operations on words, in one list.
template <class V>
std::vector<std::vector<uint16_t>> word_results(const word_lanes& a, const word_lanes& b)
{
    using W = typename V::words;
    const W x = V::load(a.lane), y = V::load(b.lane);
    const W small = V::both(y, V::set(7)), eight = V::smaller(small, V::set(8));
    std::vector<std::vector<uint16_t>> out;
    const auto add = [&](const W& w) { out.push_back(stored<V>(w)); };
    add(V::add(x, y));
    add(V::sub(x, y));
    add(V::sub_saturated(x, y));
    add(V::mul_low(x, y));
    add(V::mul_high(x, y));
    add(V::both(x, y));
    add(V::either(x, y));
    add(V::differ(x, y));
    add(V::without(x, y));
    add(V::template shl<5>(x));
    add(V::template shr<11>(x));
    add(V::smaller(x, y));
    add(V::larger(x, y));
    add(V::mul_rounded(V::template shr<1>(x), y));
    add(V::join_shifted(x, y));
    add(V::power(V::both(y, V::set(15))));
    add(V::shl(x, eight, V::power(eight)));
    add(V::shr(x, eight, V::power(eight)));
    const typename V::mask less = V::less(x, y), equal = V::equal(x, y);
    for (const auto& m : {less, V::less_signed(x, y), V::not_less(x, y), equal, V::negative(x),
                          V::join(less, equal), V::differ_masks(less, V::negative(y))}) {
        add(V::select(m, x, y));
        add(V::where(m, x));
        add(V::where_not(m, x));
        add(V::negate_where(m, x));
        add(V::minus_or_plus_one(m));
        add(V::where(V::from_bits(V::to_bits(m)), x));
        out.push_back({uint16_t(V::any(m)), uint16_t(V::to_bits(m).any())});
    }
    out.push_back({uint16_t(V::any_zero(x)), uint16_t(V::any_above(x, 0x8000)),
                   uint16_t(V::any_above(x, 0xfffe))});
    uint16_t table[32];
    uint8_t bytes[32];
    for (uint32_t i = 0; i < 32; ++i) {
        table[i] = uint16_t(i * 0x0821 + 77);
        bytes[i] = uint8_t(i * 37 + 1);
    }
    const typename V::small_table low(table);
    const typename V::byte_table byte(bytes);
    const typename V::word_table word(table);
    uint16_t rise[32];
    for (uint32_t i = 0; i < 32; ++i) rise[i] = uint16_t(3231 * (i + 1) / 32);
    const typename V::pieces pieces(table, rise);
    add(low(V::both(x, V::set(15))));
    add(byte(V::both(x, V::set(31))));
    add(word(V::both(x, V::set(31))));
    add(pieces(x));
    add(V::high_words(V::floats_from_high(x)));
    add(V::high_words(V::floats_from_high(x, 0x8000)));
    add(V::narrow(V::widen(x)));
    for (const auto& ints :
         {V::widen(x), V::bits(V::floats_from_high(x, 0x8000)), V::widen_mask(less),
          V::template shl<13>(V::widen(x)), V::template shr<3>(V::bits(V::floats_from_high(x))),
          V::add(V::widen(x), V::set_int(0x12345678)), V::sub(V::widen(x), V::set_int(99)),
          V::select(V::widen_mask(less), V::widen(x), V::widen(y)),
          V::bits(V::to_floats(V::widen(x)))}) {
        const std::vector<uint32_t> all = stored_ints<V>(ints);
        out.emplace_back(all.begin(), all.end());
        out.emplace_back();
        for (const uint32_t one : all) out.back().push_back(uint16_t(one >> 16));
    }
    uint32_t pairs[lanes / 2];
    const W thirteen = V::both(x, V::set(0x1fff));
    V::store_squares(pairs, V::add_squares(V::add_squares(V::no_squares(), thirteen), thirteen));
    out.emplace_back();
    for (const uint32_t pair : pairs) {
        out.back().push_back(uint16_t(pair));
        out.back().push_back(uint16_t(pair >> 16));
    }
    return out;
}

// z, products and mapped means.
template <class V>
std::vector<std::vector<uint32_t>> float_results(const float_lanes& a, const float_lanes& b,
                                                 const float_lanes& c, const word_lanes& words)
{
    [[maybe_unused]] const typename V::float_mode mode;
    const auto x = V::load(a.lane), y = V::load(b.lane), z = V::load(c.lane);
    std::vector<std::vector<uint32_t>> out;
    out.push_back(stored_ints<V>(V::bits(V::mul(x, y))));
    float kept_y[V::lanes], kept_z[V::lanes];
    V::keep(kept_y, y);
    V::keep(kept_z, z);
    out.push_back(stored_ints<V>(V::bits(V::map_means(x, kept_y, kept_z))));
    out.push_back(stored_ints<V>(V::bits(V::mul(kept_y, kept_z))));
    const auto less = V::mul(y, V::set_float(0x1p-12f));  // unclamped: below 2^31
    for (const auto& w :
         {V::template round_z<true>(x, y, z), V::template round_z<false>(x, less, z)}) {
        const auto all = stored<V>(w);
        out.emplace_back(all.begin(), all.end());
    }
    uint32_t slope[8];
    for (uint32_t i = 0; i < 8; ++i) slope[i] = 0x46000000 - i * 0x12345;
    out.push_back(stored_ints<V>(
        V::bits(V::slopes(V::both(V::load(words.lane), V::set(255)), slope))));
    out.push_back({V::any_above(x, 1.0f), V::any_above(x, 0x1p19f), V::any_above(x, 0x1p30f)});
    float kept[lanes];
    V::keep(kept, x);
    out.push_back(stored_ints<V>(V::bits(V::load_kept(kept))));
    const float spread[] = {1, 2, 3, 4, 5, 6, 7, 8};
    out.push_back(stored_ints<V>(V::bits(V::spread(spread))));
    std::vector<float> table(1 << 12);
    for (size_t i = 0; i < table.size(); ++i) table[i] = float(i) * 0.5f;
    out.push_back(stored_ints<V>(
        V::bits(V::gather(table.data(), V::template shr<4>(V::load(words.lane))))));
    return out;
}

// Words taken from and put to streams, with the cursors.
template <class V>
std::vector<uint32_t> stream_results(const word_lanes& a, const word_lanes& b, uint32_t each)
{
    std::vector<uint8_t> bytes(2 * lanes * 2);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * 7 + 3);
    word_reader readers[lanes / 8];
    for (uint32_t i = 0; i < lanes / each; ++i)
        readers[i] = {bytes.data() + 2 * each * i, bytes.data() + 2 * each * (i + 1)};
    const auto m = V::less(V::load(a.lane), V::load(b.lane));
    const auto taken = stored<V>(V::take(readers, each, m));
    std::vector<uint32_t> out(taken.begin(), taken.end());
    std::vector<uint8_t> room(2 * lanes, 0);
    word_writer writers[lanes / 8];
    for (uint32_t i = 0; i < lanes / each; ++i)
        writers[i] = {room.data() + 2 * each * i, room.data() + 2 * each * (i + 1)};
    V::put(writers, each, m, V::load(a.lane));
    for (uint32_t i = 0; i < lanes / each; ++i) {
        out.push_back(uint32_t(readers[i].next - bytes.data()));
        out.push_back(uint32_t(writers[i].next - room.data()));
        for (const uint8_t* at = writers[i].next; at != room.data() + 2 * each * (i + 1); ++at)
            out.push_back(*at);
    }
    return out;
}

// Of plain arrays, compiled once for all sets of flags.
std::vector<std::vector<uint16_t>> plain_word_results(const word_lanes& a, const word_lanes& b);
std::vector<std::vector<uint32_t>> plain_float_results(const float_lanes& a, const float_lanes& b,
                                                       const float_lanes& c,
                                                       const word_lanes& words);
std::vector<uint32_t> plain_stream_results(const word_lanes& a, const word_lanes& b, uint32_t each);

}  // namespace normans_test
