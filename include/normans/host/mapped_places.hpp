#pragma once
// Places (tans_rows.hpp) of means behind an affine map per channel, in integers. fp32 fma in
// integers is slow, and what a row is found by is coarse: so mu * a + b is computed in fixed point,
// whose unit follows the scales, and only where a row might change by what was rounded (one scalar
// in a thousand) the exact way is gone.

#include "../block/predictor.hpp"
#include "tans_rows.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

/// map_mean() without the host's floats.
inline uint32_t map_mean_exact(uint32_t mean, uint32_t a, uint32_t b)
{
    const uint32_t field = exponent_field(mean), product_sign = (mean ^ a) & sign_bit;
    if (field == 255) {
        if (is_nan(mean) || (a & ~sign_bit) == 0) return quiet_nan_bits;
        return infinity_bits | product_sign;
    }
    uint32_t mapped;
    if (field == 0 || (a & ~sign_bit) == 0) mapped = (b & ~sign_bit) != 0 ? b : product_sign & b;
    else if (a == one_bits && b == minus_zero_bits) mapped = mean;
    else mapped = fma_exact(mean, a, b);
    return exponent_field(mapped) <= 1 ? mapped & sign_bit : mapped;
}

/// The maps of one row's channels in a fixed point of 2^-unit.
class mapped_channels {
public:
    struct channel {
        int64_t a;    // the significand with its sign
        int64_t b;    // in 2^-unit
        int32_t drop;  // bits of mean * a below 2^-unit, but for the mean's exponent field
    };

    /// `dim`: of the block. The map's own is only how far heads are apart, 0 where they share one.
    explicit mapped_channels(uint32_t dim) : dim_(dim) {}

    /// Those of n channels from `first` of a head on, ready for means under `scale`; n <=
    /// tans_batch, all in one row.
    const channel* of(const channel_affine& map, uint32_t head, uint32_t first, uint32_t n,
                      const code_scale& scale)
    {
        const int unit = int(exponent_field(scale.inverse)) - 95;
        const bool known = head == head_ && first >= first_ && first + n <= first_ + count_;
        if (!known || unit < unit_ || unit - unit_ > 2 * slack) {
            first_ = dim_ <= tans_batch ? 0 : first;
            count_ = dim_ - first_ < tans_batch ? dim_ - first_ : tans_batch;
            head_ = head;
            unit_ = unit - slack;
            for (uint32_t i = 0; i < count_; ++i) {
                const size_t from = size_t(head) * map.dim + first_ + i;
                uint32_t a, b;
                std::memcpy(&a, map.a + from, sizeof a);
                std::memcpy(&b, map.b + from, sizeof b);
                channel_[i] = make(a, b);
            }
        }
        return channel_ + (first - first_);
    }

    int unit() const { return unit_; }

    static constexpr int slack = 6;  // octaves around the scale that the unit was made for

private:
    static int64_t with_sign(uint64_t magnitude, uint32_t bits)
    {
        return bits >> 31 != 0 ? -int64_t(magnitude) : int64_t(magnitude);
    }

    channel make(uint32_t a, uint32_t b) const
    {
        constexpr channel never{0, 0, -1};
        const int a_field = int(exponent_field(a)), b_field = int(exponent_field(b));
        const int up = b_field - 150 + unit_, drop = 300 - unit_ - a_field;
        // Infinite means must be seen, and nothing may come of those that count as 0 (their field
        // is 0, whatever their significand); what might fail there, and large b, go the exact way.
        if (a_field == 255 || b_field == 255 || up > 22 || drop >= 255 || drop < 48) return never;
        const uint64_t significand = (b & 0x7fffff) | 0x800000u;
        const uint64_t at_unit = up >= 0 ? significand << up : up < -24 ? 0 : significand >> -up;
        return {a_field == 0 ? 0 : with_sign((a & 0x7fffff) | 0x800000u, a),
                b_field == 0 ? 0 : with_sign(at_unit, b), drop};
    }

    uint32_t dim_;
    channel channel_[tans_batch];
    uint32_t head_ = ~uint32_t(0), first_ = 0, count_ = 0;
    int unit_ = 0;
};

/// Those of means under one scale that counts.
template <class Mean>
struct mapped_places {
    const Mean* mean;
    const mapped_channels::channel* channel;
    const float* a;
    const float* b;
    fixed_scale exact;
    uint64_t inverse;  // of the scale, so that a product's unit is 2^-47 of 1/256 code
    uint64_t middle;   // 0, the half that rounds, and the most that all roundings change
    uint64_t most;     // products below 2^63
    uint64_t end;      // what lies there or beyond is clamped

    mapped_places(const Mean* from, mapped_channels& channels, const channel_affine& map,
                  uint32_t head, uint32_t first, uint32_t n, scalar_format format,
                  const code_scale& scale)
        : mean(from),
          channel(channels.of(map, head, first, n, scale)),
          a(map.a + size_t(head) * map.dim + first),
          b(map.b + size_t(head) * map.dim + first),
          exact(format, scale),
          middle((uint64_t(exact.zero) << 47) + (uint64_t(1) << 46) + doubt / 2),
          end(uint64_t(exact.last + 8) << 47)
    {
        const int up = int(exponent_field(scale.inverse)) - 95 - channels.unit();  // 0 .. 12
        inverse = exact.significand << up;
        most = uint64_t(1) << (39 - up);
    }

    NORMANS_INLINE uint64_t operator()(size_t i) const
    {
        const int64_t wide = load_mean(mean + i);
        const uint32_t bits = uint32_t(wide);
        const mapped_channels::channel& map = channel[i];
        uint32_t drop = uint32_t(map.drop) - (2 * bits >> 24);
        if (NORMANS_RARE(drop > 63)) {
            if (int32_t(drop) < 0) return exactly(i);
            drop = 63;  // next to b the product is nothing
        }
        const int64_t product = int64_t((bits & 0x7fffff) | 0x800000u) * map.a;
        const uint64_t mapped = uint64_t(((product >> drop) ^ (wide >> 63)) + map.b);
        if (NORMANS_RARE(mapped + most >= 2 * most)) return clamped(mapped);
        const uint64_t place = mapped * inverse + middle;
        if (NORMANS_RARE((place & (row - doubt)) == 0)) return exactly(i);
        if (NORMANS_RARE(place >= end)) return clamped(mapped);
        return place + place_of(0);
    }

private:
    // In 2^-47 of 1/256 code: 1/32 code, and 1/256 of that unit. As far as codes reach fp32 rounds
    // by at most 1/512; the fixed point by three units of at most 1/2048.
    static constexpr uint64_t row = uint64_t(1) << place_bits, doubt = uint64_t(1) << 40;

    uint64_t clamped(uint64_t mapped) const
    {
        return place_of(mapped >> 63 != 0 ? 0 : exact.last);
    }

    NORMANS_NOINLINE uint64_t exactly(size_t i) const
    {
        uint32_t by, plus;
        std::memcpy(&by, a + i, sizeof by);
        std::memcpy(&plus, b + i, sizeof plus);
        return place_of(exact(map_mean_exact(uint32_t(load_mean(mean + i)), by, plus)));
    }
};

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
