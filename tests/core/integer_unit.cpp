#include "integer_unit.hpp"

namespace normans_test {

using namespace normans;

decode_result decode_bits(const block_spec& spec, const std::uint8_t* block, std::size_t bytes,
                          const float* means, const std::uint8_t* sigmas, std::uint8_t* out)
{
    return decode_integers(spec, block, bytes, scalar_means{means}, scalar_sigmas{sigmas},
                           dense(spec, out));
}

decode_result decode_fixed(const block_spec& spec, const std::uint8_t* block, std::size_t bytes,
                           const std::uint16_t* means, const std::uint8_t* sigmas,
                           std::uint8_t* out)
{
    return decode_integers(spec, block, bytes, fixed_means{means}, scalar_sigmas{sigmas},
                           dense(spec, out));
}

decode_result decode_mapped(const block_spec& spec, const std::uint8_t* block, std::size_t bytes,
                            const std::uint16_t* means, const std::uint8_t* sigmas,
                            const channel_affine& map, std::uint8_t* out)
{
    const std::ptrdiff_t token = std::ptrdiff_t(spec.dim);
    return decode_integers(spec, block, bytes,
                           bf16_means{means, token * std::ptrdiff_t(spec.tokens), token},
                           scalar_sigmas{sigmas}, map, dense(spec, out));
}

}  // namespace normans_test
