#pragma once
// The decoder's first guess: which boundary lies nearest to the value that a slot stands for. No
// part of the format, only of the speed: whatever it returns, locate() finds the same interval. So
// plain floating point is allowed here; its result is used only after clamping, as an integer.

#include "../core/normal.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Inverts the 32 pieces of G, not the smooth Gaussian: then only rounding is left to be wrong.
struct piecewise_guess {
    double low[32];        // z at the start of a piece ...
    double per_slot[32];   // ... and z per slot on it
    uint8_t first[256];    // slot >> 7 -> the first piece that may hold it
    uint16_t start[33];    // the pieces' first slots

    NORMANS_HD explicit piecewise_guess(const normal_shape& shape)
    {
        uint32_t piece = 0;
        for (uint32_t i = 0; i <= 32; ++i) start[i] = uint16_t(shape.escape_slots + shape.base[i]);
        for (uint32_t i = 0; i < 32; ++i) {
            const uint32_t rise = uint32_t(start[i + 1]) - start[i];
            per_slot[i] = 2048.0 / double(rise);
            low[i] = 2048.0 * i - 32768.0 + per_slot[i] * (0.5 - double(start[i]));
        }
        for (uint32_t i = 0; i < 256; ++i) {
            while (piece < 31 && start[piece + 1] <= i << 7) ++piece;
            first[i] = uint8_t(piece);
        }
    }

    /// A boundary in [-1 - last_group, last_group + 1].
    template <class Model>
    NORMANS_HD int operator()(const Model&, const scalar_model& m, uint32_t slot) const
    {
        constexpr scalar_format format = Model::format;
        uint32_t piece = first[slot >> 7 & 255];
        while (piece < 31 && start[piece + 1] <= slot) ++piece;
        const double z = low[piece] + per_slot[piece] * double(slot);
        const float value = float((z - widen(m.bias)) / widen(m.slope));
        const uint32_t bits = float_to_bits(value);
        // The code just below the magnitude, then the nearest boundary of its groups.
        constexpr unsigned shift = 23 - format.mantissa_bits;
        constexpr uint32_t rebias = uint32_t(127 - format.bias) << 23;
        const uint32_t magnitude = bits & ~sign_bit;
        uint32_t code = 0;
        if (format.bias == 127 || magnitude >= rebias + (1u << 23)) {
            code = (magnitude - rebias) >> shift;
        } else {
            const uint32_t drop = (rebias >> 23) + 1 + shift - exponent_field(bits);
            code = drop < 24 ? ((bits & 0x7fffff) | 0x800000u) >> drop : 0;
        }
        const uint32_t last = uint32_t(m.last_group) + 1;
        uint32_t boundary = (code + 1 + ((1u << m.group_bits) >> 1)) >> m.group_bits;
        if (boundary > last) boundary = last;
        return bits & sign_bit ? -int(boundary) : int(boundary);
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
