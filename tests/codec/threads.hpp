#pragma once
// The codec with threads. Apart, since planes.cpp alone must import nothing (case N05).

#include <normans/host/thread_executor.hpp>

#include "codec.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

NORMANS_TEST_BLOCKS(extern template, uint8_t, thread_executor)

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
