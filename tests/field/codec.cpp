// The codec, instantiated once for the field cases. N05 also looks at what its object imports.

#include "field/page.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

template encode_result encode(const block_spec&, box_view<const uint8_t>,
                              const field::page_predictor&, uint8_t*, size_t) noexcept;
template encode_result encode(const block_spec&, box_view<const uint16_t>,
                              const field::page_predictor&, uint8_t*, size_t) noexcept;
template decode_result decode(const block_spec&, const uint8_t*, size_t,
                              const field::page_predictor&, box_view<uint8_t>) noexcept;
template decode_result decode(const block_spec&, const uint8_t*, size_t,
                              const field::page_predictor&, box_view<uint16_t>) noexcept;

template encode_result encode<scalar_backend>(const block_spec&, box_view<const uint8_t>,
                                              const field::page_predictor&, uint8_t*,
                                              size_t) noexcept;
template encode_result encode<scalar_backend>(const block_spec&, box_view<const uint16_t>,
                                              const field::page_predictor&, uint8_t*,
                                              size_t) noexcept;
template decode_result decode<scalar_backend>(const block_spec&, const uint8_t*, size_t,
                                              const field::page_predictor&,
                                              box_view<uint8_t>) noexcept;
template decode_result decode<scalar_backend>(const block_spec&, const uint8_t*, size_t,
                                              const field::page_predictor&,
                                              box_view<uint16_t>) noexcept;

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
