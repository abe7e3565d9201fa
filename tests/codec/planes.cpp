// The backend of the unit's flags, under ready-made views.

#include "codec.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

NORMANS_TEST_PLANES(template, uint8_t)
NORMANS_TEST_PLANES(template, uint16_t)

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
