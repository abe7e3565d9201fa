#pragma once
// The one function that Eigen is compiled for, once, for the tool and its tests.

#include <normans/lowrank/factors.hpp>

namespace kv_file {

/// normans::decompose_block.
normans::block_components decompose(const double* values, std::uint32_t tokens,
                                    std::uint32_t channels, std::uint32_t most);

}  // namespace kv_file
