// Arbitrary bytes as a stream header and as a block header: a status, or fields that write the very
// same bytes.

#include "fuzz/input.hpp"

using namespace fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    std::vector<uint8_t> bytes(data, data + size);
    stream_header stream;
    if (read_stream_header(bytes.data(), bytes.size(), stream) == status::ok) {
        uint8_t written[stream_header_bytes];
        write_stream_header(stream, written);
        require(std::memcmp(written, bytes.data(), sizeof written) == 0,
                "a stream header is written otherwise than read");
    }
    // Behind the check: the fields alone.
    if (bytes.size() >= stream_header_bytes) {
        detail::store_u64(bytes.data() + 32, fingerprint_of(bytes.data(), 32));
        if (read_stream_header(bytes.data(), bytes.size(), stream) == status::ok) {
            uint8_t written[stream_header_bytes];
            write_stream_header(stream, written);
            require(std::memcmp(written, bytes.data(), sizeof written) == 0,
                    "a resealed stream header is written otherwise than read");
            block_spec spec;
            spec.dtype = stream.dtype;
            spec.heads = stream.heads;
            spec.tokens = stream.tokens;
            spec.dim = stream.dim;
            require(count_of(spec) <= 0x7fffffff || max_encoded_bytes(spec) == 0,
                    "a box that does not exist has a bound");
        }
    }
    block_header block;
    if (read_block_header(data, size, block) == status::ok) {
        uint8_t written[block_header_bytes];
        write_block_header(block, written);
        require(std::memcmp(written, data, sizeof written) == 0,
                "a block header is written otherwise than read");
        const block_layout at = layout_of(block, 1000);
        require(at.fingerprint <= at.parameter_hash && at.parameter_hash <= at.row_steps &&
                    at.row_steps <= at.states && at.states <= at.words && at.words <= at.end &&
                    at.end % 4 == 0,
                "a block's parts are out of order");
    }
    return 0;
}
