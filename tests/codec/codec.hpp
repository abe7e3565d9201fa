#pragma once
// The codec, compiled once for each set of flags (see CMakeLists.txt) and linked by the tests that
// need it: its loops are most of what tests take to compile. All of it under two ready-made views;
// the loops alone under the others, and for callables of 8-bit codes.

#include <normans/normans.hpp>

namespace normans_test {

using page_predictor = normans::view_predictor<normans::scalar_means, normans::scalar_sigmas>;
using mapped_predictor = normans::view_predictor<normans::scalar_means, normans::scalar_sigmas,
                                                 normans::channel_affine>;

}  // namespace normans_test

// What there is: each PREFIX is "template" where it is compiled, "extern template" elsewhere.
#define NORMANS_TEST_BLOCK(PREFIX, BACKEND, CODE, PREDICTOR)                            \
    PREFIX encode_result encode<BACKEND>(const block_spec&, box_view<const CODE>,       \
                                         const PREDICTOR&, uint8_t*, size_t) noexcept;  \
    PREFIX decode_result decode<BACKEND>(const block_spec&, const uint8_t*, size_t,     \
                                         const PREDICTOR&, box_view<CODE>) noexcept;
#define NORMANS_TEST_BLOCKS(PREFIX, CODE, EXECUTOR)                                         \
    PREFIX void encode_blocks(encode_task<CODE, array_predictor>*, size_t, const EXECUTOR&); \
    PREFIX void decode_blocks(decode_task<CODE, array_predictor>*, size_t, const EXECUTOR&);
#define NORMANS_TEST_PLANES(PREFIX, CODE)                                            \
    NORMANS_TEST_BLOCK(PREFIX, default_backend, CODE, normans_test::page_predictor)   \
    NORMANS_TEST_BLOCK(PREFIX, default_backend, CODE, normans_test::mapped_predictor) \
    NORMANS_TEST_BLOCKS(PREFIX, CODE, run_here)
#define NORMANS_TEST_LOOPS(PREFIX, CODE, PREDICTOR)                                     \
    PREFIX void block_bundle<default_backend,                                           \
                             block_encoder<block_job<const CODE, PREDICTOR>>>::flush(); \
    PREFIX void block_bundle<default_backend,                                           \
                             block_decoder<block_job<CODE, PREDICTOR>>>::flush();
// What all of them need for types with a scale and for static tables.
#define NORMANS_TEST_DEFINITION(PREFIX)                                                           \
    PREFIX encode_result encode_scaled(const block_spec&, const packed_codes<const uint8_t>&,     \
                                       scaled_source, const array_predictor*, uint8_t*, size_t);  \
    PREFIX decode_result decode_scaled(const block_spec&, const uint8_t*, size_t, scaled_source,  \
                                       const array_predictor*, box_view<uint8_t>);                \
    PREFIX bool encode_array_steps(const block_spec&, const array_predictor&,                     \
                                   const packed_codes<const uint8_t>&, const row_steps_view&,     \
                                   uint32_t, word_writer&, uint32_t*, block_sums&, uint32_t&);
#define NORMANS_TEST_ORDER0(PREFIX, BACKEND)                                            \
    PREFIX void encode_order0<order0_registers_t<BACKEND>>(const order0_encode_call*,   \
                                                           uint32_t, backend_id);       \
    PREFIX void decode_order0<order0_registers_t<BACKEND>>(const order0_decode_call*,   \
                                                           uint32_t, backend_id);
#if defined(NORMANS_SCALAR_ONLY)  // then the scalar backend is the default one
#define NORMANS_TEST_SCALAR(PREFIX, CODE) \
    NORMANS_TEST_BLOCK(PREFIX, scalar_backend, CODE, array_predictor)
#else
#define NORMANS_TEST_SCALAR(PREFIX, CODE)                                         \
    NORMANS_TEST_BLOCK(PREFIX, scalar_backend, CODE, normans_test::page_predictor) \
    NORMANS_TEST_BLOCK(PREFIX, scalar_backend, CODE, array_predictor)
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {

NORMANS_TEST_PLANES(extern template, uint8_t)
NORMANS_TEST_PLANES(extern template, uint16_t)
NORMANS_TEST_SCALAR(extern template, uint8_t)
NORMANS_TEST_SCALAR(extern template, uint16_t)
namespace detail {
NORMANS_TEST_LOOPS(extern template, uint8_t, array_predictor)
NORMANS_TEST_LOOPS(extern template, uint16_t, array_predictor)
NORMANS_TEST_LOOPS(extern template, uint8_t, any_callable)
NORMANS_TEST_DEFINITION(extern template)
NORMANS_TEST_ORDER0(extern template, default_backend)
NORMANS_TEST_ORDER0(extern template, scalar_backend)
}

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
