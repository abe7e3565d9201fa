// expect: call of overloaded .sigma_index|call to .sigma_index. is ambiguous
// Braces must not choose between sigma and sigma^2 either.
#include <normans/normans.hpp>

std::uint8_t use(float sigma)
{
#if defined(VALID)
    return normans::sigma_index(normans::variance{sigma}, -16);
#else
    return normans::sigma_index({sigma}, -16);
#endif
}
