// fit/profile.hpp: bytes of a profile, whatever they are.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include <normans/fit/profile.hpp>

using namespace normans;

namespace {

tensor_profile make_tensor(uint32_t layer, kv_kind kind, scalar_type dtype, uint32_t heads,
                           uint32_t dim)
{
    tensor_profile tensor;
    tensor.layer = layer;
    tensor.kind = kind;
    tensor.dtype = dtype;
    tensor.heads = heads;
    tensor.dim = dim;
    tensor.sigma_offset = -8;
    tensor.scale = code_bytes(dtype) == 1 ? 0.03f : 1.0f;
    for (uint32_t c = 0; c < heads * dim; ++c) {
        tensor.plain_sigma.push_back(uint8_t(c));
        tensor.affine_sigma.push_back(uint8_t(255 - c));
        tensor.affine_a.push_back(1.0f + float(c) / 64);
        tensor.affine_b.push_back(c % 2 == 0 ? -0.0f : float(c));
    }
    return tensor;
}

profile make_profile()
{
    profile made;
    made.model = "a model";
    made.predictor = "its cheaper copy";
    made.tensors = {make_tensor(0, kv_kind::k, scalar_type::e4m3fn, 2, 5),
                    make_tensor(0, kv_kind::k, scalar_type::bf16, 2, 5),
                    make_tensor(0, kv_kind::v, scalar_type::e4m3fn, 1, 7),
                    make_tensor(9, kv_kind::k, scalar_type::e5m2, 0, 3)};
    made.tensors[1].shape = shape_id::mixture_marginal;
    made.tensors[1].marginal.assign(256, 128);
    made.tensors[2].shape = shape_id::mixture;
    made.tensors[2].has_model = false;
    made.tensors[2].rank = 3;
    made.tensors[2].draft_tokens = 64;
    made.tensors[2].draft_sigma.assign(7, 40);
    made.tensors[2].draft_scale = {1, 0, -0.0f, 2.5f, 1e-30f, 3, 4};
    return made;
}

// The bytes with a right hash again, so that only the fields can be wrong.
status parse_rehashed(std::vector<uint8_t> bytes)
{
    detail::store_u32(bytes.data() + 12, uint32_t(bytes.size()));
    detail::store_u64(bytes.data() + bytes.size() - 8,
                      fingerprint_of(bytes.data(), bytes.size() - 8));
    return parse_profile(bytes.data(), bytes.size()).code;
}

constexpr size_t first_tensor = 24 + 7 + 16;

}  // namespace

TEST_CASE("a profile comes back as it was, and has one form")
{
    const profile made = make_profile();
    const profile_bytes bytes = serialize_profile(made);
    REQUIRE(bytes.code == status::ok);
    const parsed_profile parsed = parse_profile(bytes.bytes.data(), bytes.bytes.size());
    REQUIRE(parsed.code == status::ok);
    CHECK(parsed.fingerprint == bytes.fingerprint);
    CHECK(parsed.value.model == made.model);
    CHECK(parsed.value.predictor == made.predictor);
    CHECK(serialize_profile(parsed.value).bytes == bytes.bytes);

    const tensor_profile* found = find_tensor(parsed.value, 0, kv_kind::v, scalar_type::e4m3fn);
    REQUIRE(found != nullptr);
    CHECK(found->dim == 7);
    CHECK(found->affine_b == made.tensors[2].affine_b);
    CHECK(std::signbit(found->affine_b[0]));
    CHECK_FALSE(found->has_model);
    CHECK((found->rank == 3 && found->draft_tokens == 64));
    CHECK(found->draft_sigma == made.tensors[2].draft_sigma);
    CHECK(found->draft_scale == made.tensors[2].draft_scale);
    CHECK((parsed.value.tensors[1].has_model && parsed.value.tensors[1].rank == 0));
    CHECK(find_tensor(parsed.value, 0, kv_kind::v, scalar_type::bf16) == nullptr);
    CHECK(find_tensor(parsed.value, 1, kv_kind::k, scalar_type::bf16) == nullptr);

    const profile_bytes empty = serialize_profile({});
    CHECK(parse_profile(empty.bytes.data(), empty.bytes.size()).code == status::ok);
    CHECK(empty.fingerprint != bytes.fingerprint);
}

TEST_CASE("no profile is written that would not be read")
{
    const auto code_of = [](auto change) {
        profile changed = make_profile();
        change(changed);
        return serialize_profile(changed).code;
    };
    CHECK(code_of([](profile& p) { std::swap(p.tensors[0], p.tensors[1]); }) ==
          status::bad_argument);
    CHECK(code_of([](profile& p) { p.tensors[1] = p.tensors[0]; }) == status::bad_argument);
    CHECK(code_of([](profile& p) { p.model.assign(65536, 'x'); }) == status::bad_argument);
    CHECK(code_of([](profile& p) { p.tensors[0].dtype = scalar_type::raw8; }) ==
          status::wrong_dtype);
    CHECK(code_of([](profile& p) { p.tensors[0].sigma_offset = 69; }) == status::wrong_model);
    CHECK(code_of([](profile& p) { p.tensors[0].plain_sigma.pop_back(); }) == status::bad_header);
    CHECK(code_of([](profile& p) { p.tensors[0].affine_b.push_back(0); }) == status::bad_header);
    CHECK(code_of([](profile& p) { p.tensors[0].marginal.assign(256, 128); }) ==
          status::bad_header);
    CHECK(code_of([](profile& p) { p.tensors[1].marginal[3] = 0; }) == status::bad_header);
    CHECK(code_of([](profile& p) { p.tensors[2].rank = 0; }) == status::bad_header);
    CHECK(code_of([](profile& p) { p.tensors[2].rank = 1025; }) == status::bad_header);
    CHECK(code_of([](profile& p) { p.tensors[0].rank = 1; }) == status::bad_header);
    CHECK(code_of([](profile& p) { p.tensors[2].draft_tokens = 0; }) == status::bad_header);
    CHECK(code_of([](profile& p) { p.tensors[2].draft_sigma.pop_back(); }) == status::bad_header);
    CHECK(code_of([](profile& p) { p.tensors[2].draft_scale[3] = 1e-42f; }) == status::bad_header);
    for (const float bad : {0.0f, -1.0f, 1e-45f, 1e-42f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()})
        CHECK(code_of([&](profile& p) { p.tensors[0].scale = bad; }) == status::bad_header);
    CHECK(code_of([](profile& p) { p.tensors[0].scale = 0x1p126f; }) == status::ok);
    CHECK(code_of([](profile& p) { p.tensors[0].scale = 0x1.000002p126f; }) == status::bad_header);
    for (const float bad : {1e-42f, -std::numeric_limits<float>::infinity()}) {
        CHECK(code_of([&](profile& p) { p.tensors[0].affine_a[1] = bad; }) == status::bad_header);
        CHECK(code_of([&](profile& p) { p.tensors[0].affine_b[1] = bad; }) == status::bad_header);
    }
}

TEST_CASE("every truncation and every changed byte is an error")
{
    const std::vector<uint8_t> bytes = serialize_profile(make_profile()).bytes;
    size_t wrong = 0;
    for (size_t length = 0; length < bytes.size(); ++length) {
        const std::vector<uint8_t> part(bytes.begin(), bytes.begin() + ptrdiff_t(length));
        wrong += parse_profile(part.data(), part.size()).code == status::ok;
    }
    for (size_t at = 0; at < bytes.size(); ++at) {
        for (int bit = 0; bit < 8; ++bit) {
            std::vector<uint8_t> changed = bytes;
            changed[at] ^= uint8_t(1 << bit);
            wrong += parse_profile(changed.data(), changed.size()).code == status::ok;
        }
    }
    CHECK(wrong == 0);
    std::vector<uint8_t> longer = bytes;
    longer.push_back(0);
    CHECK(parse_profile(longer.data(), longer.size()).code == status::bad_header);
    CHECK(parse_profile(nullptr, 100).code == status::bad_argument);
    CHECK(parse_profile(longer.data(), 0).code == status::truncated);
}

TEST_CASE("fields that lie are found before memory is taken for them")
{
    const std::vector<uint8_t> bytes = serialize_profile(make_profile()).bytes;
    CHECK(parse_rehashed(bytes) == status::ok);
    const auto with_u32 = [&](size_t at, uint32_t value) {
        std::vector<uint8_t> changed = bytes;
        detail::store_u32(changed.data() + at, value);
        return parse_rehashed(changed);
    };
    for (const uint32_t huge : {0x7fffffffu, 0xffffffffu, 0x10000u}) {
        CHECK(with_u32(16, huge) != status::ok);                // tensors
        CHECK(with_u32(20, huge) != status::ok);                // bytes of the texts
        CHECK(with_u32(first_tensor + 8, huge) != status::ok);  // heads
        CHECK(with_u32(first_tensor + 12, huge) != status::ok);
    }
    CHECK(with_u32(first_tensor + 16, 69) == status::wrong_model);  // sigma offset
    CHECK(with_u32(first_tensor + 16, 0x80000000u) == status::wrong_model);
    CHECK(with_u32(16, 3) == status::bad_header);
    CHECK(with_u32(16, 5) == status::truncated);
    CHECK(with_u32(8, 1) == status::unsupported_version);
    CHECK(with_u32(first_tensor + 4, 10) == status::bad_header);  // out of order
    std::vector<uint8_t> changed = bytes;
    changed[first_tensor + 3] = 8;
    CHECK(parse_rehashed(changed) == status::bad_header);
    changed[first_tensor + 3] = 2;  // no model: needs no further bytes
    CHECK(parse_rehashed(changed) == status::ok);
    for (const uint8_t flags : {uint8_t(1), uint8_t(4)}) {
        changed[first_tensor + 3] = flags;
        CHECK(parse_rehashed(changed) != status::ok);
    }
}

TEST_CASE("parts that correct or make means: one form, every lie an error or a profile of its own")
{
    profile made = make_profile();
    made.tensors[2].rank = made.tensors[2].draft_tokens = 0;  // not together with a correction
    made.tensors[2].draft_sigma.clear();
    made.tensors[2].draft_scale.clear();
    cross_layer_profile& part = made.tensors[2].cross_layer;  // 1 x 7 channels
    part.sources = source_below | source_own;
    part.features = 8;
    part.sigma.assign(7, 9);
    part.scale.assign(7, 0.25f);
    part.own_exponent.assign(7, -3);
    part.own_centre.assign(7, -77);
    for (int i = 0; i < 56; ++i) part.weights.push_back(int8_t(i * 4 - 100));
    rotary_profile& rotary = made.tensors[0].rotary;  // 2 x 5 channels
    made.tensors[0].has_model = false;
    rotary.pairing = rotary_pairing::interleaved;
    rotary.rotary_dim = 4;
    rotary.exponent = -20;
    rotary.step = {uint64_t(1) << 63, 3};
    rotary.mean.assign(10, -4000000);

    const std::vector<uint8_t> bytes = serialize_profile(made).bytes;
    const parsed_profile parsed = parse_profile(bytes.data(), bytes.size());
    REQUIRE(parsed.code == status::ok);
    CHECK(serialize_profile(parsed.value).bytes == bytes);
    CHECK(parsed.value.tensors[2].cross_layer.weights == part.weights);
    CHECK(parsed.value.tensors[2].cross_layer.own_centre == part.own_centre);
    CHECK(parsed.value.tensors[0].rotary.step == rotary.step);
    CHECK(parsed.value.tensors[0].rotary.mean == rotary.mean);

    for (size_t at = 0; at + 8 < bytes.size(); ++at)
        for (const uint32_t change : {1u, 8u, 16u, 64u, 128u}) {
            std::vector<uint8_t> changed = bytes;
            changed[at] = uint8_t(changed[at] ^ change);
            detail::store_u64(changed.data() + bytes.size() - 8,
                              fingerprint_of(changed.data(), bytes.size() - 8));
            const parsed_profile other = parse_profile(changed.data(), changed.size());
            if (other.code == status::ok) REQUIRE(serialize_profile(other.value).bytes == changed);
        }

    const auto code_of = [&](auto change) {
        profile changed = made;
        change(changed.tensors[2].cross_layer, changed.tensors[0].rotary);
        return serialize_profile(changed).code;
    };
    CHECK(code_of([](auto& c, auto&) { c.sources = 8; }) == status::bad_header);
    CHECK(code_of([](auto& c, auto&) { c.sources = 0; }) == status::bad_header);
    CHECK(code_of([](auto& c, auto&) { c.sources = source_k; }) == status::bad_header);
    CHECK(code_of([](auto& c, auto&) { c.features = 4; }) == status::bad_header);
    CHECK(code_of([](auto& c, auto&) { c.weights[5] = -128; }) == status::bad_header);
    CHECK(code_of([](auto& c, auto&) { c.own_exponent[5] = 61; }) == status::bad_header);
    CHECK(code_of([](auto& c, auto&) { c.sigma.pop_back(); }) == status::bad_header);
    CHECK(code_of([](auto& c, auto&) { c.scale[0] = 1e-42f; }) == status::bad_header);
    CHECK(code_of([](auto&, auto& r) { r.mean[3] = 4200000; }) == status::bad_header);
    CHECK(code_of([](auto&, auto& r) { r.rotary_dim = 6; }) == status::bad_header);
    CHECK(code_of([](auto&, auto& r) { r.mean.clear(); }) == status::bad_header);
    CHECK(code_of([](auto&, auto& r) { r.exponent = 99; }) == status::bad_header);
    made.tensors[0].has_model = true;
    CHECK(code_of([](auto&, auto&) {}) == status::bad_header);
    made.tensors[0].rotary = {};
    CHECK(code_of([](auto&, auto&) {}) == status::ok);
    made.tensors[2].rank = made.tensors[2].draft_tokens = 4;
    made.tensors[2].draft_sigma.assign(7, 9);
    made.tensors[2].draft_scale.assign(7, 1);
    CHECK(code_of([](auto&, auto&) {}) == status::bad_header);
    made.tensors[2].cross_layer = {};
    CHECK(serialize_profile(made).code == status::ok);
}
