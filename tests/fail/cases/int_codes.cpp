// expect: codes are uint8_t \(fp8, raw8\) or uint16_t \(bf16, fp16\)
#include <normans/normans.hpp>

#if defined(VALID)
using code = std::uint8_t;
#else
using code = int;
#endif

bool use(const normans::block_spec& spec, const code* codes, std::uint8_t* out)
{
    const auto predictor = [](std::uint32_t) { return normans::prediction{0, 128}; };
    return bool(normans::encode(spec, normans::dense(spec, codes), predictor, out, 100));
}
