#pragma once
// The tool reports an error as one line and exit status 2: whoever finds it throws `failure`, and
// main() prints it. Nothing else in the tool writes to stderr but the progress bar.

#include <sstream>
#include <stdexcept>

namespace kv_file {

struct failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts)
{
    std::ostringstream line;
    (line << ... << parts);
    throw failure(line.str());
}

}  // namespace kv_file
