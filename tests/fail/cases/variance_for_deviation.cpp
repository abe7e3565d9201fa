// expect: could not convert|no viable conversion|no known conversion|cannot convert
// A predictor's sigma^2 where a deviation is asked for.
#include <normans/normans.hpp>

std::uint8_t index_of(normans::deviation sigma) { return normans::sigma_index(sigma, -16); }

std::uint8_t use(float predicted_variance)
{
#if defined(VALID)
    return index_of(normans::deviation{predicted_variance});
#else
    return index_of(normans::variance{predicted_variance});
#endif
}
