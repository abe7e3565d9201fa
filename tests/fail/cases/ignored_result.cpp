// expect: ignoring return
// A status that nobody looks at.
#include <normans/normans.hpp>

void use(const normans::block_spec& spec, const std::uint8_t* block, std::uint8_t* codes)
{
    const auto predictor = [](std::uint32_t) { return normans::prediction{0, 128}; };
#if defined(VALID)
    const auto result =
#endif
        normans::decode(spec, block, 100, predictor, normans::dense(spec, codes));
#if defined(VALID)
    static_cast<void>(result.code);
#endif
}
