// Encode and decode pages of a real KV cache, on the blocks that the tool writes by default: affine
// map, row steps, content check and bounds checks on. Names are paths:
//     decode/rans/e4m3fn/avx2/page-64
// Counters: bytes/s of decoded data, bits per scalar. A benchmark whose fallback ran fails.
//     bench_codec CACHE.safetensors PROFILE [Google Benchmark's options]

#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "../examples/kv_file/page_coder.hpp"

namespace {

using namespace kv_file;

template <class Code>
struct tensor {
    normans::tensor_profile entry;
    mean_tensor means;
    std::vector<Code> codes;
};

template <class Code>
std::vector<tensor<Code>> load(const safetensors_file& cache, const loaded_profile& profile)
{
    constexpr target what = sizeof(Code) == 1 ? target::fp8 : target::bf16;
    std::vector<tensor<Code>> all;
    for (const cache_key& key : keys_of(cache, {what == target::fp8, what == target::bf16})) {
        tensor<Code> one;
        one.means = load_means(cache, key);
        one.entry = profile_entry(profile.value, "profile", key, scalar_of(cache, key, what),
                                  one.means.shape);
        one.codes = load_codes<Code>(cache, tensor_name(key, target_name(what)));
        all.push_back(std::move(one));
    }
    return all;
}

// All pages of all tensors, once per iteration.
template <class Code, bool Encode>
void run(benchmark::State& state, const std::vector<tensor<Code>>& tensors, uint32_t page_tokens,
         normans::backend_id backend)
{
    struct page {
        std::unique_ptr<page_coder> coder;
        const tensor<Code>* from;
        uint64_t index;
        std::vector<uint8_t> block;
        size_t bytes = 0;
    };
    std::vector<page> pages;
    uint64_t scalars = 0, bytes = 0;
    for (const tensor<Code>& one : tensors) {
        const page_coder probe(one.entry, one.means, page_tokens, true);
        for (uint64_t p = 0; p < probe.pages(); ++p) {
            page next{std::make_unique<page_coder>(one.entry, one.means, page_tokens, true),
                      &one, p, {}, 0};
            next.block.resize(normans::max_encoded_bytes(probe.spec(p)));
            const auto done = next.coder->encode(probe.spec(p), one.codes.data(), p,
                                                 next.block.data(), next.block.size(), int(backend));
            if (!done) return state.SkipWithError("the backend cannot run here, or encode failed");
            if (done.mode == normans::block_mode::coded && done.backend != backend)
                return state.SkipWithError("a fallback ran");
            next.bytes = done.bytes;
            scalars += normans::count_of(probe.spec(p));
            bytes += done.bytes;
            pages.push_back(std::move(next));
        }
    }
    std::vector<Code> back(tensors.empty() ? 0 : tensors.front().codes.size());
    for (auto _ : state) {
        for (page& now : pages) {
            bool good = false;
            if constexpr (Encode) {
                good = bool(now.coder->encode(now.coder->spec(now.index), now.from->codes.data(),
                                              now.index, now.block.data(), now.block.size(),
                                              int(backend)));
            } else {
                back.resize(now.from->codes.size());
                good = bool(now.coder->decode(now.block.data(), now.bytes, back.data(), now.index,
                                              int(backend)));
            }
            if (!good) return state.SkipWithError("coding failed");
        }
    }
    state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(scalars * sizeof(Code)));
    state.counters["bits_per_scalar"] = 8.0 * double(bytes) / double(scalars);
}

template <class Code>
void add(const std::vector<tensor<Code>>& tensors)
{
    if (tensors.empty()) return;
    const std::string type = normans::scalar_name(tensors.front().entry.dtype);
    for (const normans::backend_id backend : {normans::backend_id::portable,
                                              normans::backend_id::avx2}) {
        for (const uint32_t tokens : {16u, 64u, 128u}) {
            const std::string name = "/rans/" + type + "/" + normans::backend_name(backend) +
                                     "/page-" + std::to_string(tokens);
            benchmark::RegisterBenchmark(("decode" + name).c_str(), run<Code, false>, tensors,
                                         tokens, backend);
            benchmark::RegisterBenchmark(("encode" + name).c_str(), run<Code, true>, tensors,
                                         tokens, backend);
        }
    }
}

}  // namespace

int main(int argc, char** argv)
{
    try {
        benchmark::Initialize(&argc, argv);
        if (argc != 3) fail("usage: CACHE.safetensors PROFILE [options of Google Benchmark]");
        const safetensors_file cache(argv[1]);
        const loaded_profile profile = load_profile(argv[2]);
        add(load<uint8_t>(cache, profile));
        add(load<uint16_t>(cache, profile));
        benchmark::RunSpecifiedBenchmarks();
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench: %s\n", error.what());
        return 2;
    }
}
