#pragma once
// What the makers of golden cases share: a list of recipes becomes files and their hash.

#include "../support/golden_case.hpp"

namespace normans_test {

/// One file per recipe, coded as `make(recipe, seed)` says, and `hash` over all blocks. False, with
/// a message, where an encoder refuses. Each folder's seeds are its own.
template <class Recipe, std::size_t N>
bool write_cases(const std::string& folder, const Recipe (&list)[N], std::uint64_t seed)
{
    std::map<std::string, std::vector<std::uint8_t>> blocks;  // by file name, as a shell lists them
    for (const Recipe& r : list) {
        golden_case c = make(r, ++seed);
        const coded_case coded = encode_case(c);
        if (!coded.result) {
            std::fprintf(stderr, "%s: %s\n", r.name, normans::status_name(coded.result.code));
            return false;
        }
        c.block = coded.block;
        blocks[c.name + ".txt"] = c.block;
        std::ofstream(folder + "/" + c.name + ".txt") << format_case(c);
        constexpr const char* modes[] = {"coded", "raw", "constant", "predicted"};
        std::printf("%-34s %-9s %s%5zu scalars %5zu bytes %4u escapes\n", r.name,
                    modes[unsigned(coded.result.mode)], coded.result.row_scaled ? "rows " : "     ",
                    c.codes.size(), c.block.size(), coded.result.escapes);
    }
    running_hash hash;
    for (const auto& [name, block] : blocks) {
        hash.add(block.size());
        for (const std::uint8_t byte : block) hash.add(byte);
    }
    std::ofstream(folder + "/hash") << to_hex(std::vector<std::uint64_t>{hash.value()}, 16) << "\n";
    return true;
}

}  // namespace normans_test
