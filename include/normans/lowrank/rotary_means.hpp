#pragma once
// Means of K without a model: the mean of K before its rotary embedding, rotated by the token's
// position. Angles, sines and the rotation are integers, so every processor gets the same floats.
// A pair of channels turns by `step` a token, in 2^-64 turns: any table of frequencies, and theta
// needs no library at decode. Channels behind rotary_dim have the same mean everywhere.

#include "../block/predictor.hpp"
#include "../core/float_bits.hpp"
#include "../status.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// In units of 2^-30, off by less than 2^-28; the angle by less than 2^-32 turns.
struct rotation {
    int32_t cosine;
    int32_t sine;
};

namespace detail {

// Of x = t pi / 4 with -1 <= t <= 1: Taylor's, in units of 2^-31.
NORMANS_HD constexpr int64_t sine_of(int64_t t, int64_t square)
{
    int64_t sum = -4;
    sum = 673 + (sum * square >> 31);
    sum = -78547 + (sum * square >> 31);
    sum = 5348082 + (sum * square >> 31);
    sum = -173399667 + (sum * square >> 31);
    sum = 1686629713 + (sum * square >> 31);
    return sum * t >> 31;
}

NORMANS_HD constexpr int64_t cosine_of(int64_t square)
{
    int64_t sum = -53;
    sum = 7711 + (sum * square >> 31);
    sum = -700062 + (sum * square >> 31);
    sum = 34046945 + (sum * square >> 31);
    sum = -662337939 + (sum * square >> 31);
    return (int64_t(1) << 31) + (sum * square >> 31);
}

}  // namespace detail

/// By `turn` * 2^-32 turns.
NORMANS_HD constexpr rotation rotation_of(uint32_t turn)
{
    const uint32_t quarter = (turn + (uint32_t(1) << 29)) >> 30;  // the nearest one
    const uint32_t rest = turn - (quarter << 30) + (uint32_t(1) << 29);
    const int64_t t = (int64_t(rest) - (int64_t(1) << 29)) * 4;
    const int64_t square = t * t >> 31;
    const int32_t sine = int32_t(detail::sine_of(t, square) >> 1);
    const int32_t cosine = int32_t(detail::cosine_of(square) >> 1);
    switch (quarter) {
    case 0: return {cosine, sine};
    case 1: return {-sine, cosine};
    case 2: return {-cosine, -sine};
    default: return {sine, -cosine};
    }
}

/// Of a token: all angles wrap around by themselves.
NORMANS_HD constexpr rotation rotation_at(uint64_t step, uint64_t position)
{
    return rotation_of(uint32_t(step * position >> 32));
}

/// Which channels turn together: (i, i + rotary_dim / 2) or (2 i, 2 i + 1).
enum class rotary_pairing : uint8_t { half_split, interleaved };

constexpr int32_t largest_rotary_mean = 1 << 22;  // rotated below 2^24: exact in fp32
constexpr int min_rotary_exponent = -100;
constexpr int max_rotary_exponent = 60;

struct rotary_means {
    const int32_t* mean;   // before rotation, [head * dim + channel], in units of 2^exponent
    const uint64_t* step;  // of a pair, rotary_dim / 2
    uint32_t dim;
    uint32_t rotary_dim;
    int exponent;
    rotary_pairing pairing;
    uint64_t first_position;  // of token 0

    /// The pair that a channel below rotary_dim belongs to, and its two channels.
    struct pair {
        uint32_t index;
        uint32_t first;
        uint32_t second;
    };

    NORMANS_HD constexpr pair pair_of(uint32_t channel) const
    {
        if (pairing == rotary_pairing::interleaved)
            return {channel / 2, channel & ~1u, channel | 1};
        const uint32_t half = rotary_dim / 2, i = channel < half ? channel : channel - half;
        return {i, i, i + half};
    }

    NORMANS_HD float operator()(const scalar_position& at) const
    {
        const int32_t* head = mean + size_t(at.head) * dim;
        if (at.channel >= rotary_dim) return to_float(head[at.channel]);
        const pair p = pair_of(at.channel);
        const rotation by = rotation_at(step[p.index], first_position + at.token);
        return to_float(at.channel == p.first ? real(head, p, by) : imaginary(head, p, by));
    }

    static NORMANS_HD int32_t real(const int32_t* head, pair p, rotation by)
    {
        return shifted(int64_t(head[p.first]) * by.cosine - int64_t(head[p.second]) * by.sine);
    }
    static NORMANS_HD int32_t imaginary(const int32_t* head, pair p, rotation by)
    {
        return shifted(int64_t(head[p.first]) * by.sine + int64_t(head[p.second]) * by.cosine);
    }

    NORMANS_HD float to_float(int32_t value) const
    {
        if (value == 0) return 0;
        return bits_to_float(float_to_bits(float(value)) + (uint32_t(exponent) << 23));
    }

private:
    static NORMANS_HD int32_t shifted(int64_t sum)
    {
        return int32_t((sum + (int64_t(1) << 29)) >> 30);
    }
};

/// bad_argument: an odd or too large rotary_dim, an unknown pairing, an exponent or a mean out of
/// range.
NORMANS_HD inline status check_rotary(const rotary_means& means, uint32_t heads)
{
    if (means.rotary_dim % 2 != 0 || means.rotary_dim > means.dim ||
        means.pairing > rotary_pairing::interleaved || means.exponent < min_rotary_exponent ||
        means.exponent > max_rotary_exponent)
        return status::bad_argument;
    for (size_t c = 0; c < size_t(heads) * means.dim; ++c)
        if (means.mean[c] < -largest_rotary_mean || means.mean[c] > largest_rotary_mean)
            return status::bad_argument;
    return status::ok;
}

/// The means of tokens [first, first + count): out[((t - first) * heads + head) * dim + channel].
/// Heads share the sines.
inline void expand_rotary(const rotary_means& means, uint32_t heads, uint32_t first, uint32_t count,
                          float* out) noexcept
{
    for (uint32_t t = 0; t < count; ++t, out += size_t(heads) * means.dim) {
        for (uint32_t i = 0; i < means.rotary_dim / 2; ++i) {
            const rotation by =
                rotation_at(means.step[i], means.first_position + first + t);
            const bool half = means.pairing == rotary_pairing::half_split;
            const rotary_means::pair p = means.pair_of(half ? i : 2 * i);
            for (uint32_t h = 0; h < heads; ++h) {
                const int32_t* head = means.mean + size_t(h) * means.dim;
                float* to = out + size_t(h) * means.dim;
                to[p.first] = means.to_float(rotary_means::real(head, p, by));
                to[p.second] = means.to_float(rotary_means::imaginary(head, p, by));
            }
        }
        for (uint32_t h = 0; h < heads; ++h)
            for (uint32_t c = means.rotary_dim; c < means.dim; ++c)
                out[size_t(h) * means.dim + c] =
                    means.to_float(means.mean[size_t(h) * means.dim + c]);
    }
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
