// Arbitrary bytes as a block, under an arbitrary spec and predictions; or a valid block with a few
// bytes changed, to get behind the header. Nothing may be read or written outside, the outcome is
// a status and the same for all lane groups, and what decodes can be encoded and decoded again.

#include "fuzz/input.hpp"

using namespace fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    input from{data, data + size};
    const uint32_t kind = from.u8();
    const uint64_t seed = from.u8();
    const block_spec spec = read_spec(from);
    page like;
    like.spec = spec;
    if (possible(spec))
        like = kind & 1 && !format_of(spec.dtype).is_integer ? field::make_page(seed, spec)
                                                             : field::make_random_page(seed, spec);

    std::vector<uint8_t> block(from.next, from.end);
    if (kind & 2 && possible(spec)) {
        block.resize(max_encoded_bytes(spec));
        const encode_result made = encode_any(like, block.data(), block.size());
        require(made.code == status::ok, "a valid page was not encoded");
        block.resize(made.bytes);
        while (from.left() >= 3) {
            const uint32_t at = from.u16(), change = from.u8();
            if (at == 0xffff) block.resize(block.size() * change / 256);
            else if (!block.empty()) block[at % block.size()] ^= uint8_t(change);
        }
    }

    std::vector<uint16_t> codes, again;
    const decode_result result = decode_any(like, block.data(), block.size(), codes);
    const decode_result second =
        decode_any<scalar_backend>(like, block.data(), block.size(), again);
    require(result.code <= status::content_mismatch, "an unknown status");
    require(result.code == second.code && result.bytes == second.bytes, "lane groups differ");
    if (!result) return 0;
    require(codes == again, "lane groups decode other codes");
    require(result.bytes <= block.size(), "more bytes were used than there are");

    like.codes = codes;
    std::vector<uint8_t> encoded(max_encoded_bytes(spec));
    const encode_result made = encode_any(like, encoded.data(), encoded.size());
    require(made.code == status::ok, "what was decoded cannot be encoded");
    const decode_result back = decode_any(like, encoded.data(), made.bytes, again);
    require(back.code == status::ok && again == codes, "a second round trip is not exact");
    return 0;
}
