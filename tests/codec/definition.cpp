// What blocks share that are coded by any unit's flags and under any predictor.

#include "codec.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

NORMANS_TEST_DEFINITION(template)
NORMANS_TEST_ORDER0(template, scalar_backend)

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
