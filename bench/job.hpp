#pragma once
// A row of the table before it is measured: what to repeat, and how to see that it did its work.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "blocks.hpp"

namespace bench {

/// What one thread repeats. Only `run` is timed; `check` says what went wrong, or nothing.
struct pass {
    std::function<void()> prepare;
    std::function<void()> run;
    std::function<std::string()> check;
};

struct job {
    std::string name;
    size_t scalars;  // that one pass codes
    double code_bytes;  // of a scalar
    double bits_per_scalar;
    std::optional<double> escapes_per_scalar;
    std::optional<double> repairs_per_scalar;
    std::optional<double> over_entropy;  // size over the order-0 entropy, less 1
    std::string htscodecs;   // name of the job to compare with, if any
    std::string one_thread;  // likewise
    std::vector<pass> passes;  // one per thread
    std::optional<double> ideal_bits{};  // cross-entropy of a scalar, where the codes were drawn
};

}  // namespace bench
