#pragma once

#include <cstddef>

namespace field {

/// Calls of operator new so far.
std::size_t allocation_count();

}  // namespace field
