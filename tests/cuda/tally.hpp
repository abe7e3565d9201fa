#pragma once
// What tests that compare device and host count and say, and their main loop.

#include <cstdio>
#include <cstdlib>
#include <string>

#include <normans/block/block.hpp>

namespace device_test {

using namespace normans;

struct tally {
    int blocks = 0, failures = 0, not_here = 0;
    int statuses[16] = {};
    int modes[4] = {};

    void fail(const block_spec& spec, const char* what, const std::string& more)
    {
        if (++failures > 20) return;
        constexpr const char* coders[] = {"rANS", "tANS", "order 0"};
        std::fprintf(stderr, "%s %s %ux%ux%u, %u lanes, shape %u%s: %s: %s\n",
                     scalar_name(spec.dtype), coders[unsigned(spec.coder)], spec.heads,
                     spec.tokens, spec.dim, spec.lanes, unsigned(spec.shape),
                     spec.tables != nullptr ? ", shared tables" : "", what, more.c_str());
    }

    bool saw(status s) const { return statuses[unsigned(s)] != 0; }
    bool saw(block_mode mode) const { return modes[unsigned(mode)] != 0; }
    bool saw_all_modes() const
    {
        return saw(block_mode::coded) && saw(block_mode::raw) && saw(block_mode::constant) &&
               saw(block_mode::predicted);
    }

    /// Says what was compared, after what a test says of its own; main()'s result: 0 if all was
    /// equal and what should occur has.
    int report(bool occurred) const
    {
        std::printf("%d blocks, %d failures, %d golden ones of other widths; modes:", blocks,
                    failures, not_here);
        for (const int mode : modes) std::printf(" %d", mode);
        std::printf("; decoded:");
        for (int i = 0; i < 14; ++i)
            if (statuses[i] != 0) std::printf(" %s %d", status_name(status(i)), statuses[i]);
        std::printf("\n");
        if (!occurred) std::fprintf(stderr, "not everything occurred\n");
        return failures == 0 && occurred ? 0 : 1;
    }
};

/// random(seed) for seeds 1 .. argument 1, then golden(path) for the other arguments. `before` is
/// called with each seed.
template <class Before, class Random, class Golden>
void run_cases(int count, char** arguments, Before before, Random random, Golden golden)
{
    const int seeds = count > 1 ? std::atoi(arguments[1]) : 1;
    for (int seed = 1; seed <= seeds; ++seed) {
        before(unsigned(seed));
        random(unsigned(seed));
    }
    for (int i = 2; i < count; ++i) golden(arguments[i]);
}

}  // namespace device_test
