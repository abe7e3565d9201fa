#pragma once
// The integer-only decoder of tANS in a unit that is compiled for general registers, where the
// compiler can be told so.

#include "blocks.hpp"

namespace bench {

/// Means in bf16 or fp32, sigmas per channel.
void decode_integer_only(decode_task<uint8_t>* tasks, size_t count);

/// Means as normans::fixed_means, a uint16_t each, behind a float each.
void decode_integer_only_fixed(decode_task<uint8_t>* tasks, size_t count);

}  // namespace bench
