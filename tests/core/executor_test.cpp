// Executors run every job once, whatever the system grants.

#include <normans/host/thread_executor.hpp>

#include <doctest/doctest.h>

#include <cerrno>
#include <numeric>

#if defined(__GLIBC__)
// In place of the system's: no thread is granted to this program.
extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)
{
    return EAGAIN;
}
#endif

using namespace normans;

TEST_CASE("every job runs once, with no thread but the caller's too")
{
    for (const unsigned threads : {0u, 1u, 2u, 16u})
        for (const size_t jobs : {0u, 1u, 5u, 100u}) {
            std::vector<int> runs(jobs, 0);
            thread_executor{threads}(jobs, [&](size_t i) { ++runs[i]; });
            CHECK(std::accumulate(runs.begin(), runs.end(), size_t(0)) == jobs);
            for (const int run : runs) CHECK(run == 1);
        }
}
