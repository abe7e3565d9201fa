#pragma once
// What calibration leaves behind: per (target, layer, k or v) sigma indices, the affine map and,
// for the mixture with a marginal, its table. Bytes in, bytes out; files are the caller's business.
// The bytes end in a 64-bit hash of all before it: the check against damage and the profile's
// fingerprint at once. Tensors ascend by (layer, kind, type), so a profile has one form.
// Every length is checked against the bytes left before memory is taken.

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../core/float_bits.hpp"
#include "../core/scalar.hpp"
#include "../core/shape.hpp"
#include "../core/sigma.hpp"
#include "../core/table.hpp"
#include "../lowrank/int8_product.hpp"
#include "../status.hpp"
#include "../wire/header.hpp"
#include "profile_parts.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

constexpr uint32_t profile_version = 0;

enum class kv_kind : uint8_t { k, v };

/// One tensor of one target. Channels in the order head * dim + channel.
struct tensor_profile {
    scalar_type dtype = scalar_type::e4m3fn;
    kv_kind kind = kv_kind::k;
    shape_id shape = shape_id::gaussian;
    uint32_t layer = 0;
    uint32_t heads = 0;
    uint32_t dim = 0;
    int sigma_offset = default_sigma_offset;
    float scale = 1;                    // value = code's value * scale; 1 for 16-bit targets
    std::vector<uint8_t> plain_sigma;   // of the residual about mu / scale
    std::vector<uint8_t> affine_sigma;  // of the residual about fma(mu, a, b)
    std::vector<float> affine_a;        // 1 / scale folded in; fl32(1 / scale) and -0.0f where the
    std::vector<float> affine_b;        // map does not pay
    std::vector<uint16_t> marginal;     // 256 frequencies with shape mixture_marginal, else empty
    bool has_model = true;              // false: all means are 0 or rotary's; affine_b is the mean
    uint32_t rank = 0;                  // of drafts (lowrank/draft.hpp), and with a rank above 0:
    uint32_t draft_tokens = 0;          // the block length that the rank was chosen for
    std::vector<uint8_t> draft_sigma;   // of the residual about drafted means
    std::vector<float> draft_scale;     // of the factors' sums, in units of the codes
    cross_layer_profile cross_layer;    // a correction of the means, if any
    rotary_profile rotary;              // the means themselves, if no model gives them
};

struct profile {
    std::string model;
    std::string predictor;
    std::vector<tensor_profile> tensors;
};

/// The order of tensors in a profile.
inline bool precedes(const tensor_profile& a, const tensor_profile& b) noexcept
{
    return std::tie(a.layer, a.kind, a.dtype) < std::tie(b.layer, b.kind, b.dtype);
}

/// The entry of a tensor, or null.
inline const tensor_profile* find_tensor(const profile& from, uint32_t layer, kv_kind kind,
                                         scalar_type dtype) noexcept
{
    for (const tensor_profile& tensor : from.tensors)
        if (tensor.layer == layer && tensor.kind == kind && tensor.dtype == dtype) return &tensor;
    return nullptr;
}

/// fl32(1 / scale): the map of a mean in units of the values to units of the codes.
inline float inverse_scale(float scale) noexcept { return float(1.0 / double(scale)); }

namespace detail {

//      0  u64  magic "NORMPROF"           20  u16  bytes of `model`
//      8  u32  profile_version            22  u16  bytes of `predictor`
//     12  u32  bytes of the whole profile 24  the two texts, then per tensor:
//     16  u32  tensors
//          0  u8   scalar_type             8  u32  heads
//          1  u8   kind: 0 k, 1 v         12  u32  dim
//          2  u8   shape_id               16  i32  sigma_offset
//          3  u8   tensor_flags           20  f32  scale
//          4  u32  layer                  24  u8   plain_sigma[heads * dim]
//             u8   affine_sigma[...]          f32  affine_a[...]
//             f32  affine_b[...]              u16  marginal[256] if flagged
//             if flagged: u32 rank, u32 draft_tokens, u8 draft_sigma[...], f32 draft_scale[...]
//             rotary means and a correction if flagged: see profile_parts.hpp
//     and behind the last tensor u64 fingerprint. Nothing is aligned.
constexpr size_t profile_head_bytes = 24;
constexpr size_t tensor_head_bytes = 24;
constexpr size_t bytes_per_channel = 10;
constexpr size_t marginal_bytes = 512;
constexpr size_t draft_part_bytes = 8;
constexpr size_t draft_bytes_per_channel = 5;
constexpr uint32_t with_marginal = 1, without_model = 2, with_draft = 4, with_cross_layer = 8,
                   with_rotary = 16;  // tensor_flags
constexpr size_t profile_tail_bytes = 8;
constexpr uint8_t profile_magic[8] = {'N', 'O', 'R', 'M', 'P', 'R', 'O', 'F'};

inline bool zero_or_normal(float value) noexcept
{
    const uint32_t bits = float_to_bits(value), field = exponent_field(bits);
    return field != 255 && (field != 0 || (bits & ~sign_bit) == 0);
}

// Above 0, and normal like its inverse: 2^-126 to 2^126. By bits, as fast math flushes inverses.
inline bool usable_scale(float scale) noexcept
{
    const uint32_t bits = float_to_bits(scale);
    return bits >= 1u << 23 && bits <= 253u << 23;
}

// The same rule for what is written and what is read.
inline status check_tensor(const tensor_profile& tensor) noexcept
{
    if (!has_model(tensor.dtype) || has_scale(tensor.dtype)) return status::wrong_dtype;
    if (!valid_shape(tensor.shape) || tensor.sigma_offset < min_sigma_offset ||
        tensor.sigma_offset > max_sigma_offset)
        return status::wrong_model;
    const uint64_t channels = uint64_t(tensor.heads) * tensor.dim;
    if (tensor.kind > kv_kind::v || !usable_scale(tensor.scale) ||
        tensor.plain_sigma.size() != channels || tensor.affine_sigma.size() != channels ||
        tensor.affine_a.size() != channels || tensor.affine_b.size() != channels)
        return status::bad_header;
    for (const float a : tensor.affine_a)
        if (!zero_or_normal(a)) return status::bad_header;
    for (const float b : tensor.affine_b)
        if (!zero_or_normal(b)) return status::bad_header;
    if (tensor.marginal.size() != (tensor.shape == shape_id::mixture_marginal ? 256u : 0u))
        return status::bad_header;
    const uint64_t drafted = tensor.rank == 0 ? 0 : channels;
    if (tensor.rank > max_rank || (tensor.rank == 0) != (tensor.draft_tokens == 0) ||
        tensor.draft_sigma.size() != drafted || tensor.draft_scale.size() != drafted)
        return status::bad_header;
    for (const float scale : tensor.draft_scale)
        if (!zero_or_normal(scale)) return status::bad_header;
    marginal_table table;
    if (!tensor.marginal.empty() && make_marginal(tensor.marginal.data(), table) != status::ok)
        return status::bad_header;
    // Rotary means take the place of a model's. Drafts and corrections are not made of each other.
    if ((tensor.has_model && !tensor.rotary.mean.empty()) ||
        (tensor.rank != 0 && tensor.cross_layer.sources != 0))
        return status::bad_header;
    const status code = check_part(tensor.rotary, tensor.heads, tensor.dim);
    return code == status::ok ? check_part(tensor.cross_layer, channels) : code;
}

inline status read_tensor(byte_reader& from, tensor_profile& tensor)
{
    if (!from.holds(tensor_head_bytes)) return status::truncated;
    tensor.dtype = scalar_type(from.u8());
    tensor.kind = kv_kind(from.u8());
    tensor.shape = shape_id(from.u8());
    const uint32_t flags = from.u8();
    tensor.layer = from.u32();
    tensor.heads = from.u32();
    tensor.dim = from.u32();
    tensor.sigma_offset = int32_t(from.u32());
    tensor.scale = bits_to_float(from.u32());
    if (flags >= 2 * with_rotary) return status::bad_header;
    const uint32_t has_marginal = flags & with_marginal ? 1 : 0;
    const uint32_t has_draft = flags & with_draft ? 1 : 0;
    tensor.has_model = (flags & without_model) == 0;

    const uint64_t channels = uint64_t(tensor.heads) * tensor.dim;
    if (!from.holds(channels) ||  // keeps the product below from wrapping around
        !from.holds(channels * (bytes_per_channel + has_draft * draft_bytes_per_channel) +
                    has_marginal * marginal_bytes + has_draft * draft_part_bytes))
        return status::truncated;
    const auto count = size_t(channels);
    tensor.plain_sigma.assign(from.next, from.next + count);
    from.next += count;
    tensor.affine_sigma.assign(from.next, from.next + count);
    from.next += count;
    tensor.affine_a.resize(count);
    tensor.affine_b.resize(count);
    for (float& a : tensor.affine_a) a = bits_to_float(from.u32());
    for (float& b : tensor.affine_b) b = bits_to_float(from.u32());
    tensor.marginal.resize(has_marginal * 256);
    for (uint16_t& freq : tensor.marginal) freq = uint16_t(from.u16());
    if (has_draft) {
        tensor.rank = from.u32();
        tensor.draft_tokens = from.u32();
        tensor.draft_sigma.assign(from.next, from.next + count);
        from.next += count;
        tensor.draft_scale.resize(count);
        for (float& scale : tensor.draft_scale) scale = bits_to_float(from.u32());
        if (tensor.rank == 0) return status::bad_header;
    }
    status code = status::ok;
    if (flags & with_rotary) code = read_part(from, tensor.heads, tensor.dim, tensor.rotary);
    if (code == status::ok && (flags & with_cross_layer))
        code = read_part(from, channels, tensor.cross_layer);
    return code == status::ok ? check_tensor(tensor) : code;
}

}  // namespace detail

struct [[nodiscard]] profile_bytes {
    status code = status::ok;
    std::vector<uint8_t> bytes;
    uint64_t fingerprint = 0;
};

/// bad_argument where tensors do not ascend, or a text or the whole is too long; otherwise what
/// check_tensor finds. Equal profiles give equal bytes.
inline profile_bytes serialize_profile(const profile& from)
{
    profile_bytes result;
    if (from.model.size() > 0xffff || from.predictor.size() > 0xffff) {
        result.code = status::bad_argument;
        return result;
    }
    detail::byte_writer out{result.bytes};
    out.bytes(detail::profile_magic, sizeof detail::profile_magic);
    out.u32(profile_version);
    out.u32(0);  // the size, known at the end
    out.u32(uint32_t(from.tensors.size()));
    out.u16(uint32_t(from.model.size()));
    out.u16(uint32_t(from.predictor.size()));
    out.bytes(from.model.data(), from.model.size());
    out.bytes(from.predictor.data(), from.predictor.size());
    const tensor_profile* previous = nullptr;
    for (const tensor_profile& tensor : from.tensors) {
        result.code = detail::check_tensor(tensor);
        if (previous != nullptr && !precedes(*previous, tensor)) result.code = status::bad_argument;
        previous = &tensor;
        if (result.code != status::ok) return result;
        out.u8(uint32_t(tensor.dtype));
        out.u8(uint32_t(tensor.kind));
        out.u8(uint32_t(tensor.shape));
        const bool rotary = !tensor.rotary.mean.empty();
        const bool corrected = tensor.cross_layer.sources != 0;
        out.u8((tensor.marginal.empty() ? 0 : detail::with_marginal) |
               (tensor.has_model ? 0 : detail::without_model) |
               (tensor.rank == 0 ? 0 : detail::with_draft) |
               (corrected ? detail::with_cross_layer : 0) | (rotary ? detail::with_rotary : 0));
        out.u32(tensor.layer);
        out.u32(tensor.heads);
        out.u32(tensor.dim);
        out.u32(uint32_t(tensor.sigma_offset));
        out.u32(float_to_bits(tensor.scale));
        out.bytes(tensor.plain_sigma.data(), tensor.plain_sigma.size());
        out.bytes(tensor.affine_sigma.data(), tensor.affine_sigma.size());
        for (const float a : tensor.affine_a) out.u32(float_to_bits(a));
        for (const float b : tensor.affine_b) out.u32(float_to_bits(b));
        for (const uint16_t freq : tensor.marginal) out.u16(freq);
        if (tensor.rank != 0) {
            out.u32(tensor.rank);
            out.u32(tensor.draft_tokens);
            out.bytes(tensor.draft_sigma.data(), tensor.draft_sigma.size());
            for (const float scale : tensor.draft_scale) out.f32(scale);
        }
        if (rotary) detail::write_part(out, tensor.rotary);
        if (corrected) detail::write_part(out, tensor.cross_layer);
    }
    const uint64_t size = result.bytes.size() + detail::profile_tail_bytes;
    if (size > 0xffffffff) {
        result.code = status::bad_argument;
        return result;
    }
    detail::store_u32(result.bytes.data() + 12, uint32_t(size));
    result.fingerprint = fingerprint_of(result.bytes.data(), result.bytes.size());
    out.u32(uint32_t(result.fingerprint));
    out.u32(uint32_t(result.fingerprint >> 32));
    return result;
}

struct [[nodiscard]] parsed_profile {
    status code = status::ok;
    profile value;
    uint64_t fingerprint = 0;
};

/// truncated (shorter than it says), bad_header (no profile, or a field that no writer writes),
/// unsupported_version, content_mismatch (damaged).
inline parsed_profile parse_profile(const uint8_t* data, size_t bytes)
{
    parsed_profile result;
    const auto fail = [&result](status code) {
        result.value = {};
        result.code = code;
        return result;
    };
    if (data == nullptr) return fail(status::bad_argument);
    if (bytes < detail::profile_head_bytes + detail::profile_tail_bytes)
        return fail(status::truncated);
    for (size_t i = 0; i < sizeof detail::profile_magic; ++i)
        if (data[i] != detail::profile_magic[i]) return fail(status::bad_header);
    detail::byte_reader from{data + sizeof detail::profile_magic,
                             data + bytes - detail::profile_tail_bytes};
    if (from.u32() != profile_version) return fail(status::unsupported_version);
    const uint32_t size = from.u32();
    if (size > bytes) return fail(status::truncated);
    if (size != bytes) return fail(status::bad_header);
    result.fingerprint = fingerprint_of(data, bytes - detail::profile_tail_bytes);
    if (result.fingerprint != detail::load_u64(from.end)) return fail(status::content_mismatch);

    const uint32_t tensors = from.u32(), model = from.u16(), predictor = from.u16();
    if (!from.holds(model + predictor)) return fail(status::truncated);
    result.value.model.assign(from.next, from.next + model);
    from.next += model;
    result.value.predictor.assign(from.next, from.next + predictor);
    from.next += predictor;
    if (!from.holds(uint64_t(tensors) * detail::tensor_head_bytes)) return fail(status::truncated);
    for (uint32_t i = 0; i < tensors; ++i) {
        tensor_profile tensor;
        const status code = detail::read_tensor(from, tensor);
        if (code != status::ok) return fail(code);
        if (i != 0 && !precedes(result.value.tensors.back(), tensor))
            return fail(status::bad_header);
        result.value.tensors.push_back(std::move(tensor));
    }
    if (from.next != from.end) return fail(status::bad_header);
    return result;
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
