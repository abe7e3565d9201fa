// tANS of arrays (host/tans_block.hpp) against the scalar definition: bytes, statuses and codes,
// over types, lanes, tails, kinds of views, scales and banks; what is damaged is refused alike, and
// nothing is read or written beyond its memory.

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "field/page.hpp"
#include "support/ordered_codes.hpp"
#include "support/scaled_page.hpp"

using namespace normans;
using namespace normans_test;

namespace {

constexpr scalar_type types[] = {scalar_type::int8,     scalar_type::int4,
                                 scalar_type::e4m3fn,   scalar_type::e5m2,
                                 scalar_type::e4m3fnuz, scalar_type::e5m2fnuz,
                                 scalar_type::e2m1};

const tans_bank* bank_of(scalar_type type, uint32_t choice)
{
    static const bank_rows_of largest(scalar_type::int8, {shape_id::gaussian, 9, 3, 4});
    static const bank_rows_of smallest(scalar_type::int8, {shape_id::mixture, 6, 0, 0});
    static const bank_rows_of large_e4m3(scalar_type::e4m3fn, {shape_id::gaussian, 6, 3, 2});
    static const bank_rows_of large_e5m2(scalar_type::e5m2, {shape_id::gaussian, 6, 3, 2});
    if (choice < 2 || type == scalar_type::e2m1) return test_bank(type, shape_id(choice % 2));
    if (bank_grid(type) == scalar_type::e4m3fn) return &large_e4m3.bank;
    if (bank_grid(type) == scalar_type::e5m2) return &large_e5m2.bank;
    return choice == 2 ? &largest.bank : &smallest.bank;
}

// A page and another way to say its predictions; everything in memory that ends at a guard page.
class tans_case {
public:
    scaled_page page;
    array_predictor predictor{};

    tans_case(uint64_t seed, block_spec spec, uint32_t views)
        : page(make_scaled_page(seed, with_bank(spec, views), 9 + 40 * (views % 3))), rng_(seed)
    {
        page.spec.bank = bank_of(spec.dtype, views % 4);
        if (has_scale(spec.dtype)) page.spec.scales.data = keep(page.scales);
        if (views & 4) wild();
        if (views & 8) widen();
        const ptrdiff_t token = ptrdiff_t(spec.dim), head = token * ptrdiff_t(spec.tokens);
        const auto view = [&](const void* data, scalar_type type) {
            return any_means{data, head, token, type};
        };
        std::vector<uint16_t> words;
        std::vector<uint8_t> bytes;
        for (const float mean : page.mean) {
            words.push_back(uint16_t(float_to_bits(mean) >> 16));
            bytes.push_back(uint8_t(rng_.bits(8)));
        }
        switch (views % 5) {
        case 0: predictor.means = view(keep(words), scalar_type::bf16); break;
        case 1: predictor.means = view(keep(bytes), scalar_type::e4m3fn); break;
        default: predictor.means = view(keep(page.mean), any_means::fp32);
        }
        std::vector<float> a, b, deviation;
        for (uint32_t i = 0; i < spec.heads * spec.dim; ++i) {
            a.push_back(bits_to_float((120 + rng_.below(14)) << 23 | rng_.bits(23) |
                                      rng_.bits(1) << 31));
            b.push_back(rng_.below(3) == 0 ? -0.0f : bits_to_float((100 + rng_.below(28)) << 23));
        }
        if (views & 16) predictor.affine = {keep(a), keep(b), spec.dim};
        const auto* const sigma = keep(page.sigma);
        for (const uint8_t index : page.sigma)
            deviation.push_back(index == 255 ? 0.0f : bits_to_float((64 + index / 2u) << 23));
        using kind = any_sigmas::kind;
        switch (views % 7) {
        case 0: predictor.sigmas = {sigma, spec.dim, 0, 1}; break;  // per channel
        case 1: predictor.sigmas = {sigma, spec.dim, 0, 0}; break;
        case 2: predictor.sigmas = {keep(deviation), 0, 1, 0, kind::deviation, -30}; break;
        case 3: predictor.sigmas = {keep(deviation), 0, 1, 0, kind::variance, -16}; break;
        case 4: predictor.sigmas = {keep(apart(page.sigma)), spec.dim, 0, 2}; break;
        default: predictor.sigmas = {sigma, 0, 1, 0};
        }
        if (!(views & 4)) follow();
    }

    const uint8_t* codes() { return keep(packed(page)); }

    template <class T>
    const T* keep(const std::vector<T>& values)
    {
        const size_t size = values.size() * sizeof(T);
        kept_.push_back(std::make_unique<field::guarded_memory>(size));
        return reinterpret_cast<const T*>(kept_.back()->put_last(values.data(), size));
    }

private:
    // Each with a byte of something else behind it.
    static std::vector<uint8_t> apart(const std::vector<uint8_t>& bytes)
    {
        std::vector<uint8_t> all;
        for (const uint8_t byte : bytes) {
            all.push_back(byte);
            all.push_back(uint8_t(byte / 2));
        }
        return all;
    }

    static block_spec with_bank(block_spec spec, uint32_t views)
    {
        spec.shape = bank_of(spec.dtype, views % 4)->plan.shape;
        return spec;
    }

    // Anything where numbers are expected.
    void wild()
    {
        for (float& mean : page.mean)
            if (rng_.below(5) == 0) mean = bits_to_float(rng_.bits(32));
        for (uint8_t& sigma : page.sigma)
            if (rng_.below(5) == 0) sigma = uint8_t(rng_.bits(8));
        std::vector<float> scales = page.scales;
        for (float& scale : scales)
            if (rng_.below(6) == 0) scale = bits_to_float(rng_.bits(32));
        if (has_scale(page.spec.dtype)) page.spec.scales.data = keep(scales);
    }

    // Codes near what is predicted in the end, and some anywhere.
    void follow()
    {
        const scalar_format format = format_of(page.spec.dtype);
        const bool scaled = has_scale(page.spec.dtype);
        const int sign = int(format.code_sign());
        if (page.codes.empty()) return;
        detail::box_walker walk(page.spec, 0);
        for (uint8_t& code : page.codes) {
            const uint32_t mean = mean_in_codes(
                detail::clean_mean(predictor(walk.position())),
                make_scale(scaled ? float_to_bits(page.spec.scales(walk.position())) : one_bits));
            int near = int(ordered_index(format, expected_code(format, mean)));
            if (rng_.below(3) == 0) near += rng_.between(-2, 2);
            near = near < 0 ? 0 : near > 2 * sign - 1 ? 2 * sign - 1 : near;
            code = uint8_t(rng_.below(40) == 0 ? rng_.bits(format.code_bits)
                                               : code_at(format, uint32_t(near)));
            walk.next();
        }
    }

    // Sigmas for which groups of codes share a cell.
    void widen()
    {
        for (uint8_t& sigma : page.sigma)
            if (sigma < 200) sigma = uint8_t(sigma + rng_.below(50));
    }

    test_rng rng_;
    std::vector<std::unique_ptr<field::guarded_memory>> kept_;
};

template <class Backend>
encode_result encode_by(tans_case& c, std::vector<uint8_t>& block, size_t room)
{
    block.assign(max_encoded_bytes(c.page.spec), 0xcc);
    if (room > block.size()) room = block.size();
    const box_view<const uint8_t> codes = dense(c.page.spec, c.codes());
    if constexpr (std::is_same_v<Backend, scalar_backend>)
        return encode<Backend>(c.page.spec, codes, c.predictor, block.data(), room);
    encode_task<uint8_t, array_predictor> task{c.page.spec, codes, c.predictor, block.data(), room,
                                               {}};
    encode_blocks(&task, 1);
    return task.result;
}

// Block and codes end at guard pages.
template <class Backend>
decode_result decode_by(tans_case& c, const std::vector<uint8_t>& block, std::vector<uint8_t>& back)
{
    const size_t size = raw_bytes(c.page.spec.dtype, c.page.codes.size());
    field::guarded_memory from(block.size()), out(size);
    const uint8_t* const bytes = from.put_last(block.data(), block.size());
    uint8_t* const to = out.last(size);
    decode_task<uint8_t, array_predictor> task{c.page.spec, bytes, block.size(), c.predictor,
                                               dense(c.page.spec, to), {}};
    if constexpr (std::is_same_v<Backend, scalar_backend>)
        task.result = decode<Backend>(task.spec, bytes, block.size(), c.predictor, task.out);
    else decode_blocks(&task, 1);
    back.assign(to, to + size);
    return task.result;
}

bool decoded_alike(tans_case& c, const std::vector<uint8_t>& block)
{
    std::vector<uint8_t> one, other;
    const decode_result x = decode_by<default_backend>(c, block, one);
    const decode_result y = decode_by<scalar_backend>(c, block, other);
    return x.code == y.code && x.bytes == y.bytes && x.mode == y.mode && x.lanes == y.lanes &&
           (!x || one == other);
}

block_spec spec_of(uint32_t i, uint32_t heads, uint32_t tokens, uint32_t dim, uint32_t lanes)
{
    block_spec spec = scaled_spec(types[i % 7], coder_id::tans, heads, tokens, dim, lanes);
    spec.row_scale = i % 3 == 0;
    spec.parameter_hash = i % 5 == 0;
    spec.content_check = i % 11 != 0;
    return spec;
}

// Of the cases below one in so many: fewer where a processor is emulated.
uint32_t every()
{
    return std::getenv("NORMANS_TEST_ROUNDS") != nullptr ? 37 : 1;
}

constexpr size_t all_room = ~size_t(0);
constexpr uint32_t lane_counts[] = {1, 8, 16, 32};

}  // namespace

TEST_CASE("tANS of arrays has the definition's bytes")
{
    test_rng rng(500);
    uint32_t all = 0, coded = 0, escapes = 0;
    constexpr uint32_t dims[] = {1, 8, 31, 32, 33, 61, 64, 128, 600};
    for (uint32_t views = 0; views < 140; views += every())
        for (const uint32_t lanes : lane_counts) {
            const uint32_t dim = dims[rng.below(9)], tokens = 1 + (400 + rng.below(900)) / dim;
            tans_case c(rng.next(), spec_of(rng.bits(8), 1 + rng.below(2), tokens, dim, lanes),
                        views);
            std::vector<uint8_t> block, expected, back;
            const encode_result x = encode_by<default_backend>(c, block, all_room);
            const encode_result y = encode_by<scalar_backend>(c, expected, all_room);
            CAPTURE(views);
            CAPTURE(lanes);
            CHECK(x.code == status::ok);
            CHECK(x.mode == y.mode);
            CHECK(x.bytes == y.bytes);
            CHECK(x.escapes == y.escapes);
            CHECK(x.row_scaled == y.row_scaled);
            block.resize(x.bytes);
            expected.resize(x.bytes);
            CHECK(block == expected);
            const decode_result z = decode_by<default_backend>(c, block, back);
            CHECK(z.code == status::ok);
            CHECK(back == packed(c.page));
            ++all;
            escapes += x.escapes;
            if (x.mode != block_mode::coded) continue;
            ++coded;
            const backend_id ran = detail::tans_backend(c.page.spec.dtype, lanes);
            CHECK(x.backend == ran);
            CHECK(z.backend == ran);
            CHECK(y.backend == backend_id::scalar);
        }
    CHECK(coded * 3 > all);
    CHECK(escapes > all);
}

TEST_CASE("tANS of callables has the definition's bytes, whatever chose the row steps")
{
    test_rng rng(504);
    uint32_t row_scaled = 0;
    for (uint32_t i = 0; i < 24; ++i) {
        block_spec spec = spec_of(i, 1, 40, 64, lane_counts[i % 4]);
        spec.row_scale = true;
        tans_case c(rng.next(), spec, 32 + i % 4);
        const auto callable = [&](const scalar_position& at) { return c.predictor(at); };
        std::vector<uint8_t> expected, block(max_encoded_bytes(spec)), back(packed(c.page));
        const encode_result y = encode_by<scalar_backend>(c, expected, all_room);
        const std::vector<uint8_t> codes = back;
        const encode_result x = encode(c.page.spec, dense(c.page.spec, codes.data()), callable,
                                       block.data(), block.size());
        CAPTURE(i);
        CHECK(x.code == status::ok);
        block.resize(x.bytes);
        expected.resize(y.bytes);
        CHECK(block == expected);
        back.assign(back.size(), 0);
        CHECK(decode(c.page.spec, block.data(), block.size(), callable,
                     dense(c.page.spec, back.data())));
        CHECK(back == codes);
        row_scaled += x.row_scaled;
    }
    CHECK(row_scaled > 6);
}

TEST_CASE("tANS of arrays: every length about a batch and a step")
{
    for (const uint32_t lanes : lane_counts)
        for (const uint32_t middle : {0u, 64u, 512u, 1024u})
            for (uint32_t i = 0; i < 2 * lanes + 2; i += (1 + lanes / 16) * every()) {
                const uint32_t count = middle + i < lanes ? i : middle + i - lanes;
                tans_case c(count + 600, spec_of(i, 1, 1, count, lanes), i);
                std::vector<uint8_t> block, expected, back;
                const encode_result x = encode_by<default_backend>(c, block, all_room);
                CAPTURE(count);
                CHECK(encode_by<scalar_backend>(c, expected, all_room).bytes == x.bytes);
                block.resize(x.bytes);
                expected.resize(x.bytes);
                CHECK(block == expected);
                CHECK(decode_by<default_backend>(c, block, back).code == status::ok);
                CHECK(back == packed(c.page));
            }
}

TEST_CASE("tANS of arrays: too little room is what the definition says")
{
    for (uint32_t i = 0; i < 12; ++i) {
        tans_case c(i + 700, spec_of(i, 1, 7, 40, lane_counts[i % 4]), i);
        std::vector<uint8_t> block, expected;
        const size_t most = max_encoded_bytes(c.page.spec);
        for (size_t room = 0; room <= most; room += 7 * every()) {
            const encode_result x = encode_by<default_backend>(c, block, room);
            const encode_result y = encode_by<scalar_backend>(c, expected, room);
            CHECK(x.code == y.code);
            CHECK(x.bytes == y.bytes);
            if (x.code != status::ok) continue;
            block.resize(x.bytes);
            expected.resize(x.bytes);
            CHECK(block == expected);
        }
    }
}

TEST_CASE("tANS of arrays: damage is what the definition says")
{
    test_rng rng(800);
    for (uint32_t i = 0; i < 24; i += every()) {
        tans_case c(i + 800, spec_of(i, 1, 6 + 20 * (i / 12), 67, lane_counts[1 + i % 3]), i * 3);
        std::vector<uint8_t> block;
        block.resize(encode_by<default_backend>(c, block, all_room).bytes);
        uint32_t different = 0;
        for (int round = 0; round < 150; ++round) {
            std::vector<uint8_t> bad = block;
            const uint32_t kind = rng.below(4);
            const size_t at = rng.below(uint32_t(bad.size()));
            if (kind == 0) bad[at] = uint8_t(bad[at] ^ 1u << rng.below(8));
            if (kind == 1) bad.resize(at);
            if (kind == 2)
                for (size_t k = at; k < bad.size(); ++k) bad[k] = uint8_t(rng.bits(8));
            if (kind == 3 && bad.size() > 16)
                for (size_t k = 16 + at % 8; k < bad.size(); ++k) bad[k] = 0xff;
            different += !decoded_alike(c, bad);
        }
        CHECK(different == 0);
    }
}

TEST_CASE("tANS of arrays: a code that is none stays in its nibble")
{
    for (uint32_t n = 1; n < 40; n += 2) {
        std::vector<uint8_t> bytes((n + 1) / 2, 0x55);
        const std::vector<uint8_t> codes(n, 0xff);
        const detail::packed_codes<uint8_t> to{{bytes.data(), 0, 0}, true};
        to.store_run({0, 0, 0, 0}, n, codes.data());
        CHECK(bytes.back() == 0x5f);
    }
}
