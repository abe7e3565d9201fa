#pragma once
// An executor over std::thread, for tools without a pool of their own.

#include <atomic>
#include <thread>
#include <vector>

#include "executor.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Starts `threads` - 1 threads for each call; the calling thread works too. Where the system gives
/// fewer threads, fewer do the work.
struct thread_executor {
    unsigned threads = std::thread::hardware_concurrency();

    template <class Job>
    void operator()(size_t jobs, const Job& job) const
    {
        std::atomic<size_t> next{0};
        const auto work = [&] {
            for (size_t i = next++; i < jobs; i = next++) job(i);
        };
        std::vector<std::thread> others;
        for (unsigned i = 1; i < threads && i < jobs; ++i)
            if (!start(others, work)) break;
        work();
        for (std::thread& other : others) other.join();
    }

private:
    template <class Work>
    static bool start(std::vector<std::thread>& others, const Work& work)
    {
#if defined(__cpp_exceptions)
        try {
            others.emplace_back(work);
        } catch (...) {
            return false;
        }
#else
        others.emplace_back(work);
#endif
        return true;
    }
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
