// expect: see block/predictor.hpp
// A predictor that wants something else than a position or an index.
#include <normans/normans.hpp>

bool use(const normans::block_spec& spec, const std::uint8_t* codes, std::uint8_t* out)
{
#if defined(VALID)
    const auto predictor = [](std::uint32_t) { return normans::prediction{0, 128}; };
#else
    const auto predictor = [](const float*, int) { return normans::prediction{0, 128}; };
#endif
    return bool(normans::encode(spec, normans::dense(spec, codes), predictor, out, 100));
}
