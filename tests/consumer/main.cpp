// What a user's program does: a round trip through the headers that the build system found.

#include <normans/normans.hpp>

int main()
{
    normans::block_spec spec;
    spec.dim = 1000;
    std::uint8_t codes[1000], back[1000], block[1100];
    for (int i = 0; i < 1000; ++i) codes[i] = std::uint8_t(0x38 + i % 3);
    const auto predictor = [](std::uint32_t) { return normans::prediction{1.0f, 112}; };
    const auto made =
        normans::encode(spec, normans::dense(spec, &codes[0]), predictor, block, sizeof block);
    const auto read = normans::decode(spec, block, made.bytes, predictor,
                                      normans::dense(spec, &back[0]));
    bool same = made && read && made.bytes < 500;
    for (int i = 0; i < 1000; ++i) same = same && codes[i] == back[i];
    return same ? 0 : 1;
}
