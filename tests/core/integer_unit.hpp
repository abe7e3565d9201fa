#pragma once
// decode_integers() behind plain functions, in a unit of its own that is compiled for general
// registers only.

#include <normans/host/integer_decoder.hpp>

namespace normans_test {

normans::decode_result decode_bits(const normans::block_spec& spec, const std::uint8_t* block,
                                   std::size_t bytes, const float* means,
                                   const std::uint8_t* sigmas, std::uint8_t* out);
normans::decode_result decode_fixed(const normans::block_spec& spec, const std::uint8_t* block,
                                    std::size_t bytes, const std::uint16_t* means,
                                    const std::uint8_t* sigmas, std::uint8_t* out);

/// The upper halves of means, behind a map.
normans::decode_result decode_mapped(const normans::block_spec& spec, const std::uint8_t* block,
                                     std::size_t bytes, const std::uint16_t* means,
                                     const std::uint8_t* sigmas,
                                     const normans::channel_affine& map, std::uint8_t* out);

}  // namespace normans_test
