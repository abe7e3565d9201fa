// planes.cpp, the same loops with threads, and those of callables.

#include "threads.hpp"

#include "planes.cpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

NORMANS_TEST_BLOCKS(template, uint8_t, thread_executor)
namespace detail {
NORMANS_TEST_LOOPS(template, uint8_t, any_callable)
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
