// bench_codec CACHE.safetensors PROFILE: measures all rows and writes them as JSON (bench/run
// prints the table). Exit status 1 if a row fails: coding failed, other bytes came back, or another
// backend ran than the row names.

#include <fstream>

#include <CLI/CLI.hpp>

#include "constriction.hpp"
#include "measure.hpp"
#include "rows.hpp"

// What the emulator counts: found by its name.
extern "C" __attribute__((noinline)) void bench_counted(const bench::pass& runs) { runs.run(); }

namespace {

using namespace bench;

std::string cpu_name()
{
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.compare(0, 10, "model name") == 0) return line.substr(line.find(':') + 2);
    return "unknown";
}

// Once each under an emulator that counts in bench_counted. Prints "NAME SCALARS" per row.
void count_rows(const real_cache& cache)
{
    catalogue rows;
    add_rows_to_count(rows, cache);
    for (const job& row : rows.jobs()) {
        if (row.name.find("/rans/") == std::string::npos) continue;
        row.passes.front().prepare();
        bench_counted(row.passes.front());
        std::printf("%s %zu\n", row.name.c_str(), row.scalars);
    }
}

struct options {
    std::string cache;
    std::string profile;
    std::string json;
    std::string symbols;
    bool quick = false;
    bool count = false;
    int repetitions = 9;
    double seconds = 0.02;
};

void run(const options& wanted)
{
    const real_cache cache(wanted.cache, wanted.profile);
    if (wanted.count) return count_rows(cache);
    if (!wanted.symbols.empty())
        write_line_symbols(wanted.symbols, make_real<uint8_t>(cache, "real", 256, 32), 2);
    catalogue rows;
    add_rows(rows, cache, wanted.quick);
    std::fprintf(stderr, "measuring %zu rows, %d repetitions each\n", rows.jobs().size(),
                 wanted.repetitions);
    const auto measured = measure(rows.jobs(), wanted.repetitions, wanted.seconds);
    std::ofstream out(wanted.json);
    out << to_json(rows.jobs(), measured, cpu_name()).dump(1) << '\n';
    if (!out.flush()) throw std::runtime_error(wanted.json + ": cannot be written");
}

}  // namespace

int main(int argc, char** argv)
{
    options wanted;
    CLI::App app{"Benchmarks of encode and decode"};
    app.add_option("CACHE", wanted.cache, "cache, .safetensors")->required();
    app.add_option("PROFILE", wanted.profile, "profile of predictor A")->required();
    app.add_option("--json", wanted.json, "rows to write");
    app.add_option("--symbols", wanted.symbols, "pages to write for constriction_peer.py");
    app.add_option("--repetitions", wanted.repetitions, "of every row (9)")
        ->check(CLI::Range(9, 999));
    app.add_option("--seconds", wanted.seconds, "at least, per repetition (0.02)");
    app.add_flag("--quick", wanted.quick, "only what has a bar, and the peers");
    app.add_flag("--count", wanted.count, "run some rows once, to count instructions");
    CLI11_PARSE(app, argc, argv);
    try {
        run(wanted);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_codec: %s\n", error.what());
        return 1;
    }
}
