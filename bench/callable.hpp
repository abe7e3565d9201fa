#pragma once
// A predictor that is the caller's own code cannot be compiled in advance, so callable.cpp is
// compiled once per instruction set, as dispatch/ does it with the views.

#include <cstddef>

namespace bench {

/// `tasks`: encode_task<uint8_t> or decode_task<uint8_t> with means in fp32, sigmas per channel and
/// no affine map. They cross as bytes: their types are named after the target of the unit.
template <int Backend>
struct callable_coder {
    static void encode(void* tasks, std::size_t count);
    static void decode(void* tasks, std::size_t count);
};

}  // namespace bench
