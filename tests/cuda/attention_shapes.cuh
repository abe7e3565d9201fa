#pragma once
// What the attention test is compiled for, on both sides of its comparison.

#include <normans/cuda/raw_pool.cuh>

namespace attention_test {

using fp8_64 = normans::attention_shape<std::uint8_t, 64, 8, 16>;
using fp8_128 = normans::attention_shape<std::uint8_t, 128, 8, 16, 4>;
using bf16_64 = normans::attention_shape<std::uint16_t, 64, 4, 16>;
using bf16_128 = normans::attention_shape<std::uint16_t, 128, 1, 8, 1>;
constexpr auto tensor = normans::attention_math::tensor;
using fp8_64_tensor = normans::attention_shape<std::uint8_t, 64, 8, 16, 2, tensor>;
using bf16_128_tensor = normans::attention_shape<std::uint16_t, 128, 16, 16, 2, tensor>;

}  // namespace attention_test

#define NORMANS_TEST_TWIN(PREFIX, SHAPE)                                                \
    PREFIX cudaError_t normans::decode_attention<SHAPE>(                                \
        const attention_batch&, const normans::raw_pool<SHAPE::code>&, cudaStream_t) noexcept;
#define NORMANS_TEST_TWINS(PREFIX)                                                      \
    NORMANS_TEST_TWIN(PREFIX, attention_test::fp8_64)                                   \
    NORMANS_TEST_TWIN(PREFIX, attention_test::fp8_128)                                  \
    NORMANS_TEST_TWIN(PREFIX, attention_test::bf16_64)                                  \
    NORMANS_TEST_TWIN(PREFIX, attention_test::bf16_128)                                 \
    NORMANS_TEST_TWIN(PREFIX, attention_test::fp8_64_tensor)                            \
    NORMANS_TEST_TWIN(PREFIX, attention_test::bf16_128_tensor)
