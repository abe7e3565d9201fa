// bench_attention CACHE.safetensors PROFILE: decode-phase attention on one thread over coded pages,
// against the same over raw pages, and against decoding all of them first. Heads of 64 channels;
// 1, 4 and 8 query heads per KV head; fp8 and bf16; a sequence as large as the L2 cache, the L3
// cache, and much larger. Exit status 1 if any two outputs differ in a bit.

#include <cstring>

#include "attention_kernel.hpp"
#include "long_sequence.hpp"
#include "measure.hpp"
#include "synthetic.hpp"

namespace {

using namespace bench;

struct backend_calls {
    int id;
    attention_calls<uint8_t> (*fp8)(uint32_t);
    attention_calls<uint16_t> (*bf16)(uint32_t);

    auto calls(uint32_t group, uint8_t) const { return fp8(group); }
    auto calls(uint32_t group, uint16_t) const { return bf16(group); }
};

/// The last of the list that runs here: they ascend.
template <normans::backend_id... Ids>
backend_calls best_of()
{
    backend_calls best{};
    for (const backend_calls& one :
         {backend_calls{int(Ids), attention_kernel<int(Ids)>::fp8,
                        attention_kernel<int(Ids)>::bf16}...})
        if (runs_here(one.id)) best = one;
    return best;
}

/// A head whose code was compiled for some instruction set.
template <class Code>
struct foreign_head {
    const attention_calls<Code>* calls;
    void* head;

    void add(const Code* k, ptrdiff_t k_token, const Code* v, ptrdiff_t v_token, uint32_t tokens)
    {
        calls->add(head, k, k_token, v, v_token, tokens);
    }
};

/// Attention of `group` query heads per KV head over a sequence.
template <class Code>
class attention {
public:
    attention(std::shared_ptr<long_sequence<Code>> sequence, const backend_calls& backend,
              uint32_t group)
        : sequence_(std::move(sequence)), calls_(backend.calls(group, Code(0))), group_(group)
    {
        const size_t heads = sequence_->kv_heads();
        memory_.resize((calls_.head_bytes + 63) / 64 * 8 * heads);  // doubles: aligned
        for (size_t h = 0; h < heads; ++h)
            heads_.push_back({&calls_, memory_.data() + h * ((calls_.head_bytes + 63) / 64 * 8)});
        random_numbers random(1);
        for (size_t i = 0; i < heads * group * attention_dim; ++i)
            queries_.push_back(float(random.gaussian()));
        out_.resize(queries_.size());
    }

    template <class Pages>
    void run(Pages&& pages)
    {
        const size_t each = group_ * attention_dim;
        for (size_t h = 0; h < heads_.size(); ++h)
            calls_.begin(heads_[h].head, queries_.data() + h * each, 0.01f);
        if (normans::attend<Code>(heads_.data(), sequence_->kv_heads(), sequence_->tokens(),
                                  sequence_->page_tokens, pages) != normans::status::ok)
            kv_file::fail("attention failed");
        for (size_t h = 0; h < heads_.size(); ++h)
            calls_.finish(heads_[h].head, 1, out_.data() + h * each);
    }

    void run_raw() { run(sequence_->raw_pages()); }
    void run_coded(bool few_means)
    {
        const auto predictors = sequence_->predictors(few_means);
        run(sequence_->coded_pages(predictors));
    }
    void run_decoded()
    {
        const auto predictors = sequence_->predictors(false);
        run(sequence_->decoded_pages(predictors));
    }

    void keep() { expected_ = out_; }
    std::string complaint() const
    {
        const bool same = out_.size() == expected_.size() && out_[0] == out_[0] &&
                          std::memcmp(out_.data(), expected_.data(),
                                      out_.size() * sizeof(float)) == 0;
        return same ? "" : "the output is not that of raw pages";
    }

private:
    std::shared_ptr<long_sequence<Code>> sequence_;
    attention_calls<Code> calls_;
    uint32_t group_;
    std::vector<double> memory_;
    std::vector<foreign_head<Code>> heads_;
    std::vector<float> queries_, out_, expected_;
};

constexpr const char* legend = R"(rows: type/size of the cache/query heads per KV head
MB/s: of raw K and V; /cycle: their scalars per core cycle over raw pages; coded: decoded four
pages at a time as attention goes, means in bf16 from memory; few means: from the processor's
cache; decode 1st: all pages decoded to memory, then attention. :raw: speed against raw pages.
Bars, where there is AVX-512, for fp8/RAM: coded:raw at least 0.5 at 8 query heads, 0.25 at 1.
)";

constexpr const char* variants[] = {"raw", "coded", "coded, few means", "decode, then attend"};

struct table_line {
    std::string name;  // rows are NAME/VARIANT
    double megabytes, bits;
};

template <class Code>
void add_rows(std::vector<job>& jobs, std::vector<table_line>& lines, const real_cache& cache,
              const backend_calls& backend, size_t raw_bytes, const std::string& size)
{
    const auto sequence =
        std::make_shared<long_sequence<Code>>(cache, raw_bytes, backend.id);
    for (const uint32_t group : {1u, 4u, 8u}) {
        const auto work = std::make_shared<attention<Code>>(sequence, backend, group);
        work->run_raw();
        work->keep();
        const std::string name = std::string(sizeof(Code) == 1 ? "fp8" : "bf16") + "/" + size +
                                 "/" + std::to_string(group);
        const std::function<void()> runs[] = {[=] { work->run_raw(); },
                                              [=] { work->run_coded(false); },
                                              [=] { work->run_coded(true); },
                                              [=] { work->run_decoded(); }};
        for (size_t v = 0; v < 4; ++v)
            jobs.push_back({name + "/" + variants[v], sequence->scalars(), sizeof(Code), 0, {}, {},
                            {}, {}, {}, {{runs[v], runs[v], [=] { return work->complaint(); }}}});
        lines.push_back({name, double(sequence->scalars() * sizeof(Code)) * 1e-6,
                         sequence->bits_per_scalar()});
    }
}

void print(const std::vector<table_line>& lines, const std::map<std::string, samples>& rows,
           const std::string& backend)
{
    std::printf("\nattention on one thread, %s, outputs bit for bit the same\n", backend.c_str());
    std::printf("%-14s%8s%7s%12s%8s%12s%11s%15s%16s\n", "", "raw MB", "bits", "raw MB/s", "/cycle",
                "coded MB/s", "coded:raw", "few means:raw", "decode 1st:raw");
    for (const table_line& line : lines) {
        const auto rate = [&](size_t v) {
            return median(rows.at(line.name + "/" + variants[v]).per_second);
        };
        const double bytes = line.name.compare(0, 3, "fp8") == 0 ? 1 : 2;
        std::printf("%-14s%8.1f%7.2f%12.0f%8.2f%12.0f%11.3f%15.3f%16.3f\n", line.name.c_str(),
                    line.megabytes, line.bits, rate(0) * bytes * 1e-6,
                    median(rows.at(line.name + "/" + variants[0]).per_cycle),
                    rate(1) * bytes * 1e-6, rate(1) / rate(0), rate(2) / rate(0),
                    rate(3) / rate(0));
    }
    std::printf("%s", legend);
}

}  // namespace

int main(int argc, char** argv)
{
    if (argc != 3 && argc != 4) {
        std::fprintf(stderr, "usage: bench_attention CACHE PROFILE [REPETITIONS]\n");
        return 2;
    }
    try {
        const real_cache cache(argv[1], argv[2]);
        const int repetitions = argc == 4 ? std::max(1, std::atoi(argv[3])) : 5;
        const backend_calls backend = best_of<BENCH_BACKENDS>();
        std::map<std::string, samples> rows;
        std::vector<table_line> lines;
        for (const auto& [size, bytes] : {std::pair<const char*, size_t>{"L2", 400'000},
                                          {"L3", 8'000'000}, {"RAM", 150'000'000}}) {
            std::vector<job> jobs;
            add_rows<uint8_t>(jobs, lines, cache, backend, bytes, size);
            add_rows<uint16_t>(jobs, lines, cache, backend, bytes, size);
            for (auto& row : measure(jobs, repetitions, 0.02)) rows.insert(std::move(row));
            benchmark::ClearRegisteredBenchmarks();
        }
        print(lines, rows, normans::backend_name(normans::backend_id(backend.id)));
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_attention: %s\n", error.what());
        return 1;
    }
}
