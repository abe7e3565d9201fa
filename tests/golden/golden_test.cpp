// Encodes every golden case again and compares the bytes, decodes it and compares the codes; prints
// a hash over all blocks.  usage: golden_test [--flush-to-zero] [--expect HASH_FILE] CASE...
//
// What it pins: the bytes of a block for given codes and predictions, that is format.md's model and
// layout, and the encoder's choices (mode, row steps), which "same input, same bytes" includes.
// Red means one of two things. With an unchanged library: this compiler or flag computes something
// else, so caches written elsewhere would not decode; find the operation, do not re-record. After a
// change to the library: the change altered the format or a choice. While format_version is 0 that
// may be meant: then run make_golden, look at which cases changed and why, and commit cases, hash
// and reason together. Once format_version is frozen, its cases are never re-recorded: new bytes
// are a new version with a new folder, and the old folder must still decode.
//
// A plain program without a test framework: tests/matrix compiles it under many flags.

#include "../support/float_mode.hpp"
#include "../support/golden_case.hpp"
#include "../support/test_rng.hpp"

using namespace normans_test;

namespace {

bool check(const golden_case& c)
{
    const coded_case coded = encode_case(c);
    if (!coded.result) {
        std::fprintf(stderr, "%s: encode says %s\n", c.name.c_str(),
                     normans::status_name(coded.result.code));
        return false;
    }
    if (coded.block != c.block) {
        std::size_t at = 0;
        while (at < coded.block.size() && at < c.block.size() && coded.block[at] == c.block[at])
            ++at;
        std::fprintf(stderr, "%s: bytes differ from offset %zu on (%zu bytes, golden %zu)\n",
                     c.name.c_str(), at, coded.block.size(), c.block.size());
        return false;
    }
    std::vector<std::uint16_t> back;
    const normans::decode_result decoded = decode_case(c, back);
    if (!decoded || decoded.bytes != c.block.size() || back != c.codes) {
        std::fprintf(stderr, "%s: decode says %s, the codes are %s\n", c.name.c_str(),
                     normans::status_name(decoded.code), back == c.codes ? "right" : "wrong");
        return false;
    }
    return true;
}

bool same_as_file(const char* path, std::uint64_t hash)
{
    std::ifstream file(path);
    std::string text;
    std::vector<std::uint64_t> expected;
    if (file >> text && from_hex(text, 16, expected) && expected.size() == 1 && expected[0] == hash)
        return true;
    std::fprintf(stderr, "%s: the recorded hash is '%s'\n", path, text.c_str());
    return false;
}

}  // namespace

int main(int count, char** arguments)
{
    int first = 1;
    const char* hash_file = nullptr;
    if (first < count && std::strcmp(arguments[first], "--flush-to-zero") == 0) {
        ++first;
        flush_to_zero();
    }
    if (first + 1 < count && std::strcmp(arguments[first], "--expect") == 0) {
        hash_file = arguments[first + 1];
        first += 2;
    }
    int cases = 0, failed = 0;
    running_hash hash;
    for (int i = first; i < count; ++i) {
        golden_case c;
        ++cases;
        if (!read_case(arguments[i], c) || !check(c)) {
            ++failed;
            continue;
        }
        hash.add(c.block.size());
        for (const std::uint8_t byte : c.block) hash.add(byte);
    }
    std::printf("%016llx %d cases, %d failed\n", static_cast<unsigned long long>(hash.value()),
                cases, failed);
    if (hash_file != nullptr && !same_as_file(hash_file, hash.value())) ++failed;
    return cases == 0 || failed != 0 ? 1 : 0;
}
