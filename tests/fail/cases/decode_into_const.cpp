// expect: codes are uint8_t \(fp8, raw8\) or uint16_t \(bf16, fp16\)
#include <normans/normans.hpp>

#if defined(VALID)
using code = std::uint16_t;
#else
using code = const std::uint16_t;
#endif

bool use(const normans::block_spec& spec, const std::uint8_t* block, code* codes)
{
    const auto predictor = [](std::uint32_t) { return normans::prediction{0, 128}; };
    return bool(normans::decode(spec, block, 100, predictor, normans::dense(spec, codes)));
}
