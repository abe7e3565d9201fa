// Arbitrary codes under arbitrary bits of mean and sigma, into any capacity: exact, within the
// bound, the same bytes whatever was in memory and whichever lane groups ran.

#include "fuzz/input.hpp"

using namespace fuzz;

namespace {

template <class Backend>
std::vector<uint8_t> encode_by(const page& from)
{
    std::vector<uint8_t> block(max_encoded_bytes(from.spec), 0xcc);
    encode_result made;
    if (code_bytes(from.spec.dtype) == 1) {
        const std::vector<uint8_t> codes = field::narrow(from.codes);
        made = encode<Backend>(from.spec, dense(from.spec, codes.data()), from.predictor(),
                               block.data(), block.size());
    } else {
        made = encode<Backend>(from.spec, dense(from.spec, from.codes.data()), from.predictor(),
                               block.data(), block.size());
    }
    block.resize(made ? made.bytes : 0);
    return block;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    input from{data, data + size};
    page any;
    any.spec = read_spec(from);
    const uint32_t tight = from.u8();
    // The rest is repeated over all scalars, 7 bytes each: code, mean, sigma index.
    const size_t count = size_t(any.spec.heads) * any.spec.tokens * any.spec.dim;
    const uint8_t* const rest = from.next;
    for (size_t i = 0; i < count; ++i) {
        if (from.left() < 7) from.next = rest;
        const uint32_t code = from.u16();
        any.codes.push_back(uint16_t(code_bytes(any.spec.dtype) == 1 ? code & 0xff : code));
        any.mean.push_back(bits_to_float(from.u32()));
        any.sigma.push_back(uint8_t(from.u8()));
    }

    if (!possible(any.spec)) {
        uint8_t byte = 0;
        require(encode_any(any, &byte, 1).code == status::bad_argument, "an impossible spec");
        require(byte == 0, "an impossible spec wrote a byte");
        return 0;
    }
    const size_t bound = max_encoded_bytes(any.spec);
    const size_t capacity = tight == 0 ? bound : bound * tight / 256;
    std::vector<uint8_t> memory(capacity + 32, 0x5a);
    uint8_t* const out = memory.data() + 16;
    const encode_result made = encode_any(any, out, capacity);
    for (size_t i = 0; i < 16; ++i)
        require(memory[i] == 0x5a && memory[memory.size() - 1 - i] == 0x5a,
                "the encoder wrote outside its output");
    const std::vector<uint8_t> whole = encode_by<default_backend>(any);
    require(!whole.empty() && whole.size() <= bound, "the bound does not hold");
    require(whole == encode_by<scalar_backend>(any), "lane groups differ");
    if (capacity < whole.size()) {
        require(made.code == status::output_too_small && made.bytes >= whole.size(),
                "too small an output was not reported");
    } else {
        require(made.code == status::ok && made.bytes == whole.size() &&
                    std::memcmp(out, whole.data(), whole.size()) == 0,
                "bytes depend on the capacity, the strides or on what was in memory");
    }
    std::vector<uint16_t> codes;
    const decode_result read = decode_any(any, whole.data(), whole.size(), codes);
    require(read.code == status::ok && read.bytes == whole.size(), "a valid block is refused");
    require(codes == any.codes, "a round trip is not exact");
    return 0;
}
