// Arbitrary bytes as a profile, as they are and with the checks at both ends made right. What is
// read is written as the very same bytes.

#include <normans/fit/profile.hpp>

#include "fuzz/input.hpp"

using namespace fuzz;

namespace {

void check_profile(const std::vector<uint8_t>& bytes)
{
    const parsed_profile read = parse_profile(bytes.data(), bytes.size());
    require(read.code <= status::content_mismatch, "an unknown status");
    if (read.code != status::ok) {
        require(read.value.tensors.empty(), "a refused profile has contents");
        return;
    }
    const profile_bytes written = serialize_profile(read.value);
    require(written.code == status::ok, "what was read cannot be written");
    require(written.bytes == bytes, "a profile is written otherwise than read");
    require(written.fingerprint == read.fingerprint, "fingerprints differ");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    std::vector<uint8_t> bytes(data, data + size);
    check_profile(bytes);
    constexpr size_t head = 16, tail = 8;
    if (size < head + tail) return 0;
    std::memcpy(bytes.data(), detail::profile_magic, sizeof detail::profile_magic);
    detail::store_u32(bytes.data() + 8, profile_version);
    detail::store_u32(bytes.data() + 12, uint32_t(size));
    detail::store_u64(bytes.data() + size - tail, fingerprint_of(bytes.data(), size - tail));
    check_profile(bytes);
    return 0;
}
