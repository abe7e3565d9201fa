#pragma once
// Several SIMD registers as one value, worked on register by register without loops: a loop's index
// would keep the value in memory, and plain structs are copied in narrower pieces, which stalls
// every reload.

#include <type_traits>
#include <utility>

#include "../config.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Tag::type is the register (register types lose their attributes as template arguments).
template <class Tag, uint32_t Size>
struct register_pack {
    static constexpr int Count = int(Size);
    using type = typename Tag::type;
    type v[Size];

    register_pack() = default;

    /// v[i] = f(i)
    template <class Function, class = std::enable_if_t<std::is_invocable_v<Function, int>>>
    NORMANS_INLINE explicit register_pack(Function f)
        : register_pack(f, std::make_integer_sequence<int, Count>{})
    {
    }

    NORMANS_INLINE register_pack(const register_pack& x)
        : register_pack(x, std::make_integer_sequence<int, Count>{})
    {
    }

    NORMANS_INLINE register_pack& operator=(const register_pack& x)
    {
        assign(x, std::make_integer_sequence<int, Count>{});
        return *this;
    }

private:
    template <class Function, int... I>
    NORMANS_INLINE register_pack(const Function& f, std::integer_sequence<int, I...>) : v{f(I)...}
    {
    }

    template <int... I>
    NORMANS_INLINE register_pack(const register_pack& x, std::integer_sequence<int, I...>)
        : v{x.v[I]...}
    {
    }

    template <int... I>
    NORMANS_INLINE void assign(const register_pack& x, std::integer_sequence<int, I...>)
    {
        ((v[I] = x.v[I]), ...);
    }
};

/// Bit i of plane n: lane 32 n + i.
template <uint32_t N>
struct lane_bits {
    uint32_t plane[N];

    friend NORMANS_INLINE lane_bits operator|(const lane_bits& x, const lane_bits& y)
    {
        lane_bits out;
        for (uint32_t n = 0; n < N; ++n) out.plane[n] = x.plane[n] | y.plane[n];
        return out;
    }
    friend NORMANS_INLINE lane_bits operator&(const lane_bits& x, const lane_bits& y)
    {
        lane_bits out;
        for (uint32_t n = 0; n < N; ++n) out.plane[n] = x.plane[n] & y.plane[n];
        return out;
    }
    friend NORMANS_INLINE lane_bits operator~(const lane_bits& x)
    {
        lane_bits out;
        for (uint32_t n = 0; n < N; ++n) out.plane[n] = ~x.plane[n];
        return out;
    }
    NORMANS_INLINE bool any() const
    {
        uint32_t all = 0;
        for (uint32_t n = 0; n < N; ++n) all |= plane[n];
        return all != 0;
    }
    NORMANS_INLINE bool all() const
    {
        uint32_t every = ~uint32_t(0);
        for (uint32_t n = 0; n < N; ++n) every &= plane[n];
        return every == ~uint32_t(0);
    }
    /// f(lane) for every set lane.
    template <class Function>
    void for_each(Function f) const
    {
        for (uint32_t n = 0; n < N; ++n) {
            uint32_t i = 32 * n;
            for (uint32_t rest = plane[n]; rest != 0; rest >>= 1, ++i)
                if (rest & 1) f(i);
        }
    }
    bool has(uint32_t lane) const { return plane[lane / 32] >> lane % 32 & 1; }
    void set(uint32_t lane, bool on)
    {
        const uint32_t bit = uint32_t(1) << lane % 32;
        plane[lane / 32] = on ? plane[lane / 32] | bit : plane[lane / 32] & ~bit;
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
