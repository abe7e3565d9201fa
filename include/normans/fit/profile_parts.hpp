#pragma once
// Optional parts of a profile's tensor: what lowrank/cross_layer.hpp and lowrank/rotary_means.hpp
// need to correct or to make its means. Each is checked by the same rule where it is written and
// where it is read, and every length against the bytes left before memory is taken.

#include <cstring>
#include <vector>

#include "../lowrank/cross_layer.hpp"
#include "../lowrank/rotary_means.hpp"
#include "../status.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// What a correction is made from, in the order of the features. Each tensor's are filled up with
/// zeros to a multiple of 4.
enum cross_layer_source : uint8_t {
    source_below = 1,  // residuals of the layer below, k and v
    source_k = 2,      // of a v: residuals of this layer's k
    source_own = 4,    // this tensor's means themselves
};

/// Corrections of one tensor's means, in units of its codes, after the affine map. Residuals are
/// about the means before their correction, on the grid of residual_exponent(affine_sigma).
struct cross_layer_profile {
    uint8_t sources = 0;               // 0: no correction, all else is empty
    uint32_t features = 0;
    std::vector<uint8_t> sigma;        // of the residual about the corrected mean
    std::vector<float> scale;          // see cross_layer_map
    std::vector<int8_t> own_exponent;  // with source_own: the grid of the means
    std::vector<int32_t> own_centre;
    std::vector<int8_t> weights;

    cross_layer_map map() const
    {
        return {weights.data(), scale.data(), features, uint32_t(scale.size())};
    }
};

/// Means before rotation, in units of the values.
struct rotary_profile {
    rotary_pairing pairing = rotary_pairing::half_split;
    uint32_t rotary_dim = 0;
    int exponent = 0;
    std::vector<uint64_t> step;
    std::vector<int32_t> mean;  // empty: there are none

    rotary_means means(uint32_t dim) const
    {
        return {mean.data(), step.data(), dim, rotary_dim, exponent, pairing, 0};
    }
};

namespace detail {

// Appends little-endian fields.
struct byte_writer {
    std::vector<uint8_t>& to;

    void u8(uint32_t value) { to.push_back(uint8_t(value)); }
    void u16(uint32_t value)
    {
        u8(value);
        u8(value >> 8);
    }
    void u32(uint32_t value)
    {
        u16(value);
        u16(value >> 16);
    }
    void f32(float value) { u32(float_to_bits(value)); }
    void u64(uint64_t value)
    {
        u32(uint32_t(value));
        u32(uint32_t(value >> 32));
    }
    void bytes(const void* data, size_t count)
    {
        const uint8_t* first = static_cast<const uint8_t*>(data);
        to.insert(to.end(), first, first + count);
    }
};

// Reads little-endian fields. Only after holds().
struct byte_reader {
    const uint8_t* next;
    const uint8_t* end;

    bool holds(uint64_t bytes) const { return uint64_t(end - next) >= bytes; }
    uint32_t u8() { return *next++; }
    uint32_t u16()
    {
        const uint32_t low = u8();
        return low | u8() << 8;
    }
    uint32_t u32()
    {
        const uint32_t low = u16();
        return low | u16() << 16;
    }
    float f32() { return bits_to_float(u32()); }
    uint64_t u64()
    {
        const uint64_t low = u32();
        return low | uint64_t(u32()) << 32;
    }
    template <class Byte>
    void bytes(std::vector<Byte>& to, size_t count)
    {
        static_assert(sizeof(Byte) == 1);
        to.resize(count);
        if (count != 0) std::memcpy(to.data(), next, count);
        next += count;
    }
};

// A correction: u8 sources, u32 features, u8 sigma[channels], f32 scale[channels]; with source_own
// i8 own_exponent[channels], i32 own_centre[channels]; i8 weights[features * channels].
inline status check_part(const cross_layer_profile& part, uint64_t channels) noexcept
{
    const bool own = (part.sources & source_own) != 0;
    const uint64_t count = part.sources == 0 ? 0 : channels;
    if (part.sources > (source_below | source_k | source_own) ||
        (part.sources == 0 && part.features != 0) || part.features > max_features ||
        part.sigma.size() != count || part.scale.size() != count ||
        part.own_exponent.size() != (own ? count : 0) ||
        part.own_centre.size() != (own ? count : 0) ||
        part.weights.size() != part.features * count)
        return status::bad_header;
    const residual_grid grid{part.own_exponent.data(), part.own_centre.data(),
                             uint32_t(part.own_exponent.size())};
    return check_cross_layer(part.map()) == status::ok && check_grid(grid) == status::ok
               ? status::ok
               : status::bad_header;
}

inline void write_part(byte_writer& out, const cross_layer_profile& part)
{
    out.u8(part.sources);
    out.u32(part.features);
    out.bytes(part.sigma.data(), part.sigma.size());
    for (const float scale : part.scale) out.f32(scale);
    out.bytes(part.own_exponent.data(), part.own_exponent.size());
    for (const int32_t centre : part.own_centre) out.u32(uint32_t(centre));
    out.bytes(part.weights.data(), part.weights.size());
}

// `channels` fits in the bytes that were read before.
inline status read_part(byte_reader& from, uint64_t channels, cross_layer_profile& part)
{
    if (!from.holds(5)) return status::truncated;
    part.sources = uint8_t(from.u8());
    part.features = from.u32();
    if (part.sources == 0 || part.features > max_features) return status::bad_header;
    const bool own = (part.sources & source_own) != 0;
    if (!from.holds(channels * (5 + (own ? 5 : 0) + part.features))) return status::truncated;
    const auto count = size_t(channels);
    from.bytes(part.sigma, count);
    part.scale.resize(count);
    for (float& scale : part.scale) scale = from.f32();
    if (own) {
        from.bytes(part.own_exponent, count);
        part.own_centre.resize(count);
        for (int32_t& centre : part.own_centre) centre = int32_t(from.u32());
    }
    from.bytes(part.weights, count * part.features);
    return check_part(part, channels);
}

// Rotary means: u8 pairing, u32 rotary_dim, i32 exponent, u64 step[rotary_dim / 2],
// i32 mean[channels].
inline status check_part(const rotary_profile& part, uint32_t heads, uint32_t dim) noexcept
{
    const uint64_t channels = uint64_t(heads) * dim;
    if (part.mean.empty())
        return part.rotary_dim == 0 && part.step.empty() ? status::ok : status::bad_header;
    if (part.mean.size() != channels || part.step.size() != part.rotary_dim / 2 ||
        check_rotary(part.means(dim), heads) != status::ok)
        return status::bad_header;
    return status::ok;
}

inline void write_part(byte_writer& out, const rotary_profile& part)
{
    out.u8(uint32_t(part.pairing));
    out.u32(part.rotary_dim);
    out.u32(uint32_t(part.exponent));
    for (const uint64_t step : part.step) out.u64(step);
    for (const int32_t mean : part.mean) out.u32(uint32_t(mean));
}

inline status read_part(byte_reader& from, uint32_t heads, uint32_t dim, rotary_profile& part)
{
    if (!from.holds(9)) return status::truncated;
    part.pairing = rotary_pairing(from.u8());
    part.rotary_dim = from.u32();
    part.exponent = int32_t(from.u32());
    const uint64_t channels = uint64_t(heads) * dim;
    if (part.rotary_dim > dim || channels == 0) return status::bad_header;
    if (!from.holds(channels * 4 + uint64_t(part.rotary_dim / 2) * 8)) return status::truncated;
    part.step.resize(part.rotary_dim / 2);
    for (uint64_t& step : part.step) step = from.u64();
    part.mean.resize(size_t(channels));
    for (int32_t& mean : part.mean) mean = int32_t(from.u32());
    return check_part(part, heads, dim);
}

}  // namespace detail

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
