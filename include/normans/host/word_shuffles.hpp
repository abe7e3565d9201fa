#pragma once
// Byte shuffles that spread eight words over the set lanes of a mask, or pick the set lanes' words.
// 0x80 asks the shuffle for a zero.

#include "../config.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

struct word_shuffle_tables {
    uint8_t expand[256][16];    // word i of the input -> the i-th set lane
    uint8_t compress[256][16];  // set lanes moved up to the end, in order
};

namespace detail {

constexpr word_shuffle_tables make_word_shuffles()
{
    word_shuffle_tables tables{};
    for (uint32_t m = 0; m < 256; ++m) {
        uint32_t count = 0, below = 0;
        for (uint32_t lane = 0; lane < 8; ++lane) count += m >> lane & 1;
        for (uint32_t i = 0; i < 16; ++i) tables.compress[m][i] = tables.expand[m][i] = 0x80;
        for (uint32_t lane = 0; lane < 8; ++lane) {
            if (!(m >> lane & 1)) continue;
            const uint32_t place = 8 - count + below;
            for (uint32_t i = 0; i < 2; ++i) {
                tables.expand[m][2 * lane + i] = uint8_t(2 * below + i);
                tables.compress[m][2 * place + i] = uint8_t(2 * lane + i);
            }
            ++below;
        }
    }
    return tables;
}

}  // namespace detail

alignas(64) inline constexpr word_shuffle_tables word_shuffles = detail::make_word_shuffles();

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
