// planes.cpp, and the same loops with threads.

#include "threads.hpp"

#include "planes.cpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

NORMANS_TEST_BLOCKS(template, uint8_t, thread_executor)

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
