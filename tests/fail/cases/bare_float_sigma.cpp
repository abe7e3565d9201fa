// expect: no matching function for call to .sigma_index
// A float that does not say whether it is sigma or sigma^2.
#include <normans/normans.hpp>

std::uint8_t use(float sigma)
{
#if defined(VALID)
    return normans::sigma_index(normans::deviation{sigma}, -16);
#else
    return normans::sigma_index(sigma, -16);
#endif
}
