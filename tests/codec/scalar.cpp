// The definition, one lane after the other.

#include "codec.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

NORMANS_TEST_SCALAR(template, uint8_t)
NORMANS_TEST_SCALAR(template, uint16_t)

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
