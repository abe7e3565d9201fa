#pragma once
// What a batch of pages must have come to, whatever codes them. `expect(bool, what)` takes notice.

#include <algorithm>
#include <deque>
#include <vector>

#include "page_case.hpp"

namespace device_test {

using host_blocks = std::vector<std::vector<std::uint8_t>>;

/// All pages but the damaged one are exact, and that one has the host's status.
template <class Cases, class Arrays, class Expect>
void expect_decoded(const std::vector<decode_result>& said, const host_blocks& blocks,
                    const Cases& cases, const Arrays& outs, std::uint32_t hurt, status hosts,
                    Expect expect)
{
    for (std::uint32_t i = 0; i < said.size(); ++i) {
        if (i == hurt)
            expect(said[i].code == hosts && hosts != status::ok,
                   "the damaged page has the host's status");
        else
            expect(said[i].code == status::ok && said[i].bytes == blocks[i].size() &&
                       outs[i].copy() == cases[i].memory,
                   "a whole page beside a damaged one");
    }
}

/// The host's bytes, one block behind the other. wanted(i) is the status of an entry, and where
/// that is an error it takes no room.
template <class Wanted, class Expect>
void expect_packed(const std::vector<encode_result>& said, const std::vector<std::uint64_t>& at,
                   const std::vector<std::uint8_t>& bytes, const host_blocks& blocks,
                   Wanted wanted, Expect expect)
{
    for (std::uint32_t i = 0; i < said.size(); ++i) {
        if (wanted(i) != status::ok) {
            expect(said[i].code == wanted(i) && at[i + 1] == at[i],
                   "odd entries have their status and take no room");
            continue;
        }
        const std::vector<std::uint8_t>& host = blocks[i];
        expect(said[i].code == status::ok && said[i].bytes == host.size() &&
                   std::equal(host.begin(), host.end(), bytes.begin() + std::ptrdiff_t(at[i])),
               "a packed block is the host's");
    }
}

}  // namespace device_test
