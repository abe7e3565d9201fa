// Compiled once per instruction set, with NORMANS_DISPATCH_NAME naming the functions.

#include <cstring>

#include <normans/dispatch.hpp>
#include <normans/normans.hpp>

namespace normans_dispatch {
namespace NORMANS_DISPATCH_NAME {

void encode(const arguments& call) noexcept;
void decode(const arguments& call) noexcept;

namespace {

struct inputs {
    normans::block_spec spec;
    normans::array_predictor predictor;

    explicit inputs(const arguments& call)
    {
        std::memcpy(&spec, call.spec, sizeof spec);
        std::memcpy(&predictor, call.predictor, sizeof predictor);
    }
};

template <class Code>
normans::box_view<Code> box_of(const arguments& call)
{
    return {static_cast<Code*>(call.codes), call.head_stride, call.token_stride};
}

}  // namespace

void encode(const arguments& call) noexcept
{
    const inputs in(call);
    const normans::encode_result result =
        call.code_bytes == 1
            ? normans::encode(in.spec, box_of<const std::uint8_t>(call), in.predictor, call.block,
                              call.bytes)
            : normans::encode(in.spec, box_of<const std::uint16_t>(call), in.predictor, call.block,
                              call.bytes);
    std::memcpy(call.result, &result, sizeof result);
}

void decode(const arguments& call) noexcept
{
    const inputs in(call);
    const normans::decode_result result =
        call.code_bytes == 1 ? normans::decode(in.spec, call.block, call.bytes, in.predictor,
                                               box_of<std::uint8_t>(call))
                             : normans::decode(in.spec, call.block, call.bytes, in.predictor,
                                               box_of<std::uint16_t>(call));
    std::memcpy(call.result, &result, sizeof result);
}

}  // namespace NORMANS_DISPATCH_NAME
}  // namespace normans_dispatch
