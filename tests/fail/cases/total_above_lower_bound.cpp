// expect: renormalisation is one word, never a loop
// alter: core/format.hpp | precision_bits = 15; | precision_bits = 16;
#include <normans/core/format.hpp>
