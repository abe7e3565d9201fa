#include <normans/lowrank/decompose.hpp>

#include "decompose.hpp"

namespace kv_file {

normans::block_components decompose(const double* values, std::uint32_t tokens,
                                    std::uint32_t channels, std::uint32_t most)
{
    return normans::decompose_block(values, tokens, channels, most);
}

}  // namespace kv_file
