#pragma once
// Rows measured by Google Benchmark, their repetitions in random order among each other, and
// written as JSON. Times are CPU time, but wall time where there are two threads.

#include <algorithm>
#include <cstdio>
#include <map>

#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include "clock.hpp"
#include "job.hpp"

namespace bench {

struct samples {
    std::vector<double> per_second;
    std::vector<double> per_cycle;
    std::vector<double> clock;
};

inline double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Keeps every repetition; prints nothing.
class collector : public benchmark::BenchmarkReporter {
public:
    bool ReportContext(const Context&) override { return true; }

    void ReportRuns(const std::vector<Run>& runs) override
    {
        for (const Run& run : runs) {
            const auto value = [&](const char* name) { return run.counters.find(name)->second; };
            if (run.run_type != Run::RT_Iteration || run.counters.count("scalars") == 0) continue;
            samples& row = rows[run.run_name.function_name];
            row.per_second.push_back(value("scalars"));
            row.per_cycle.push_back(value("per_cycle"));
            row.clock.push_back(value("clock"));
        }
    }

    std::map<std::string, samples> rows;
};

/// One repetition. One that fails leaves no counters, so its row lacks a sample.
inline void repeat(benchmark::State& state, const job& row)
{
    const pass& mine = row.passes[size_t(state.thread_index())];
    mine.prepare();
    const double before = clock_hz();
    for (auto _ : state) mine.run();
    const double clock = (before + clock_hz()) / 2;
    if (const std::string wrong = mine.check(); !wrong.empty()) {
        std::fprintf(stderr, "%s: %s\n", row.name.c_str(), wrong.c_str());
        return state.SkipWithError(wrong.c_str());
    }
    using benchmark::Counter;
    const double scalars = double(state.iterations()) * double(row.scalars);
    state.counters["scalars"] = Counter(scalars, Counter::kIsRate);
    state.counters["per_cycle"] = Counter(scalars / clock, Counter::kIsRate);
    state.counters["clock"] = Counter(clock, Counter::kAvgThreads);
}

inline std::map<std::string, samples> measure(const std::vector<job>& jobs, int repetitions,
                                              double seconds)
{
    std::string program = "bench", mix = "--benchmark_enable_random_interleaving=true";
    char* arguments[] = {program.data(), mix.data(), nullptr};
    int count = 2;
    benchmark::Initialize(&count, arguments);
    for (const job& row : jobs) {
        benchmark::internal::Benchmark* one = benchmark::RegisterBenchmark(
            row.name.c_str(), [&row](benchmark::State& state) { repeat(state, row); });
        one->Repetitions(repetitions)->MinTime(seconds);
        if (row.passes.size() > 1) one->Threads(int(row.passes.size()))->UseRealTime();
    }
    collector reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    for (const job& row : jobs)
        if (reporter.rows[row.name].clock.size() != size_t(repetitions))
            throw std::runtime_error(row.name + " failed");
    return std::move(reporter.rows);
}

/// Over what the codes ideally take.
inline std::optional<double> loss_of(const job& row)
{
    if (!row.ideal_bits) return std::nullopt;
    return row.bits_per_scalar / *row.ideal_bits - 1;
}

inline nlohmann::ordered_json to_json(const std::vector<job>& jobs,
                                      const std::map<std::string, samples>& rows,
                                      const std::string& cpu)
{
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    const auto number = [](std::optional<double> value) {
        return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
    };
    for (const job& row : jobs) {
        const samples& mine = rows.at(row.name);
        const double scalars = median(mine.per_second);
        const auto ratio_to = [&](const std::string& other) -> std::optional<double> {
            if (other.empty()) return std::nullopt;
            return scalars / median(rows.at(other).per_second);
        };
        all.push_back({{"name", row.name},
                       {"mb_s", scalars * row.code_bytes / 1e6},
                       {"scalars_per_cycle", median(mine.per_cycle)},
                       {"vs_htscodecs", number(ratio_to(row.htscodecs))},
                       {"vs_one_thread", number(ratio_to(row.one_thread))},
                       {"bits_per_scalar", row.bits_per_scalar},
                       {"loss", number(loss_of(row))},
                       {"instructions_per_scalar", nullptr},
                       {"escapes_per_scalar", number(row.escapes_per_scalar)},
                       {"repairs_per_scalar", number(row.repairs_per_scalar)},
                       {"over_entropy", number(row.over_entropy)},
                       {"clock_ghz", median(mine.clock) / 1e9},
                       {"cpu", cpu}});
    }
    return all;
}

}  // namespace bench
