#pragma once
// attention_head of include/normans/paged/paged_attention.hpp, compiled once per instruction set, as
// dispatch/ does it with the codec.

#include <cstddef>
#include <cstdint>

namespace bench {

constexpr std::uint32_t attention_dim = 64;

/// The functions of attention_head<attention_dim, group>; `head` is memory for one.
template <class Code>
struct attention_calls {
    std::size_t head_bytes;
    void (*begin)(void* head, const float* queries, float scale);
    void (*add)(void* head, const Code* k, std::ptrdiff_t k_token, const Code* v,
                std::ptrdiff_t v_token, std::uint32_t tokens);
    void (*finish)(const void* head, float v_scale, float* out);
};

/// Backend: a backend_id as a number. group: 1, 4 or 8.
template <int Backend>
struct attention_kernel {
    static attention_calls<std::uint8_t> fp8(std::uint32_t group);
    static attention_calls<std::uint16_t> bf16(std::uint32_t group);
};

}  // namespace bench
