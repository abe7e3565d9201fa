// Threads that read one store at the same time, and one that changes it between. Built for the
// thread sanitizer, which reports a store that writes where it should only read; the codec's own
// loops are G07's.

#include <atomic>
#include <cstdio>
#include <thread>

#include "paged/small_cache.hpp"

using namespace paged;

int main()
{
    constexpr uint32_t readers = 4, pages = 6, rounds = 3;
    const page_part parts[] = {part_of(fp8, 2, 8, 4), part_of(bf16, 1, 12, 0, 64)};
    const paged_geometry g{parts, 2, pages, 10, 4, 1 << 14, 1 << 10};
    small_store s(g);
    test_rng rng(1);
    std::atomic<uint32_t> failures{s.created != status::ok};
    std::vector<int32_t> table;
    for (uint32_t i = 0; i < pages; ++i) table.push_back(int32_t(pages - 1 - i));
    for (uint32_t round = 0; round < rounds; ++round) {
        std::vector<uint16_t> expected[2];
        for (uint32_t part = 0; part < 2; ++part)
            for (const int32_t page : table) {
                const auto drawn =
                    s.predicted.draw(rng, part, page, 0, 10, parts[part].row_bytes);
                failures += !s.append(part, page, drawn, 10, true);
                expected[part].insert(expected[part].end(), drawn.codes.begin(),
                                      drawn.codes.end());
            }
        std::vector<std::thread> threads;
        for (uint32_t mine = 0; mine < readers; ++mine)
            threads.emplace_back([&, mine] {
                aligned_bytes workspace(paged_store::workspace_bytes(g));
                for (uint32_t k = 0; k < 8; ++k) {
                    const uint32_t part = (mine + k) % 2, first = mine * k;
                    const auto back = s.read(part, table, first, 999, workspace.data());
                    const size_t at = first * expected[part].size() / (pages * 10);
                    for (const page_result& r : back.results) failures += !r;
                    for (size_t i = at; i < expected[part].size(); ++i)
                        failures += back.tokens.codes[i] != expected[part][i];
                    failures += s.store.directory().check() != status::ok;
                }
            });
        for (std::thread& one : threads) one.join();
        failures += s.store.compact() != status::ok;
    }
    std::printf("%u readers, %u failures\n", readers, failures.load());
    return failures == 0 ? 0 : 1;
}
