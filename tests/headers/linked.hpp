#pragma once
// P01: every public header in several units of one program. Each unit makes a block; they must be
// the same, also where the units were compiled for different processors.

#include <vector>

#include "everything.hpp"

std::vector<std::uint8_t> block_of_unit_one();
std::vector<std::uint8_t> block_of_unit_two();

namespace {  // each unit's own

std::vector<std::uint8_t> make_block()
{
    normans::block_spec spec;
    spec.dim = 1000;
    std::vector<std::uint8_t> codes(1000), block(normans::max_encoded_bytes(spec));
    for (std::uint32_t i = 0; i < 1000; ++i) codes[i] = std::uint8_t(0x30 + i * i % 11);
    const auto predictor = [](std::uint32_t) { return normans::prediction{0.8f, 112}; };
    const auto made = normans::encode(spec, normans::dense(spec, codes.data()), predictor,
                                      block.data(), block.size());
    block.resize(made ? made.bytes : 0);
    return block;
}

}  // namespace
