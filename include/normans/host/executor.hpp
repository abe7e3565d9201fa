#pragma once
// Who runs the jobs of a call with many blocks. An executor is a callable (size_t jobs, job): it
// runs job(0) .. job(jobs - 1), in any order, on any threads, and returns when all are done. Jobs
// do not throw. Engines wrap their own pool; thread_executor.hpp has one over std::thread.

#include "../config.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// On the calling thread.
struct run_here {
    template <class Job>
    void operator()(size_t jobs, const Job& job) const
    {
        for (size_t i = 0; i < jobs; ++i) job(i);
    }
};

namespace detail {

/// Runs f(first, n) over pieces of `each` of `count` things, a piece a job.
template <class Executor, class Function>
void in_pieces(size_t count, size_t each, const Executor& executor, Function f)
{
    executor((count + each - 1) / each, [=](size_t job) {
        const size_t first = job * each, rest = count - first;
        f(first, rest < each ? rest : each);
    });
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
