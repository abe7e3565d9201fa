// The backend of the unit's flags, under ready-made views.

#include "codec.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

NORMANS_TEST_PLANES(template, uint8_t)
NORMANS_TEST_PLANES(template, uint16_t)
namespace detail {
NORMANS_TEST_LOOPS(template, uint8_t, array_predictor)
NORMANS_TEST_LOOPS(template, uint16_t, array_predictor)
#if (NORMANS_AVX2 || NORMANS_NEON) && !defined(NORMANS_SCALAR_ONLY)
NORMANS_TEST_ORDER0(template, default_backend)
#endif
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
