// expect: one word restores the invariant
// alter: core/format.hpp | lower_bound = uint32_t(1) << 15; | lower_bound = uint32_t(1) << 17;
#include <normans/core/format.hpp>
