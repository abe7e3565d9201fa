#pragma once
// What programs around us do to the floating-point unit: flush-to-zero and denormals-are-zero, set
// by -ffast-math start-up code and by audio and machine learning libraries.

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace normans_test {

/// Sets both for the rest of the program, where the machine has them.
inline void flush_to_zero()
{
#if defined(__SSE2__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

}  // namespace normans_test
