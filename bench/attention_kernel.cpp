// Compiled once per instruction set, with BENCH_BACKEND_ID naming it.

#include "attention_kernel.hpp"

#include <normans/block/block.hpp>
#include <normans/paged/paged_attention.hpp>

namespace bench {
namespace {

template <class Code, std::uint32_t Group>
attention_calls<Code> calls()
{
    using head = normans::attention_head<attention_dim, Group>;
    return {sizeof(head),
            [](void* h, const float* queries, float scale) {
                static_cast<head*>(h)->begin(queries, scale);
            },
            [](void* h, const Code* k, std::ptrdiff_t k_token, const Code* v,
               std::ptrdiff_t v_token, std::uint32_t tokens) {
                static_cast<head*>(h)->add(k, k_token, v, v_token, tokens);
            },
            [](const void* h, float v_scale, float* out) {
                static_cast<const head*>(h)->finish(v_scale, out);
            }};
}

template <class Code>
attention_calls<Code> calls(std::uint32_t group)
{
    return group == 1 ? calls<Code, 1>() : group == 4 ? calls<Code, 4>() : calls<Code, 8>();
}

}  // namespace

template <int Backend>
attention_calls<std::uint8_t> attention_kernel<Backend>::fp8(std::uint32_t group)
{
    return calls<std::uint8_t>(group);
}

template <int Backend>
attention_calls<std::uint16_t> attention_kernel<Backend>::bf16(std::uint32_t group)
{
    return calls<std::uint16_t>(group);
}

template struct attention_kernel<int(normans::backend_id::BENCH_BACKEND_ID)>;

}  // namespace bench
