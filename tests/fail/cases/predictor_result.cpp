// expect: see block/predictor.hpp
// A predictor that says the mean alone.
#include <normans/normans.hpp>

bool use(const normans::block_spec& spec, const std::uint8_t* block, std::uint8_t* codes)
{
#if defined(VALID)
    const auto predictor = [](std::uint32_t) { return normans::prediction{0, 128}; };
#else
    const auto predictor = [](std::uint32_t) { return 0.0f; };
#endif
    return bool(normans::decode(spec, block, 100, predictor, normans::dense(spec, codes)));
}
