// expect: narrowing|cannot be narrowed
// A prediction holds an index on the log grid, not a float.
#include <normans/normans.hpp>

normans::prediction use(float mean, float sigma)
{
#if defined(VALID)
    return normans::prediction{mean, normans::sigma_index(normans::deviation{sigma}, -16)};
#else
    return normans::prediction{mean, sigma};
#endif
}
