#pragma once
// Codes by their place in numeric order.

#include <normans/core/scalar.hpp>

namespace normans_test {

/// The inverse of ordered_index.
constexpr uint32_t code_at(normans::scalar_format format, uint32_t index)
{
    const uint32_t sign = format.code_sign();
    return format.is_integer || index >= sign ? index ^ sign : sign | (sign - 1 - index);
}

}  // namespace normans_test
