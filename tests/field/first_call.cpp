// G07: the program's first calls are made by 16 threads at once, each with a page and a model of
// its own. Built for the thread sanitizer, which reports what is set up on first use without a lock;
// by the definition, since the fast loops take it a minute to compile.

#include <normans/normans.hpp>

#include "support/random_scalars.hpp"

#include <atomic>
#include <cstdio>
#include <thread>

using namespace normans;
using namespace normans_test;

namespace {

struct page {
    block_spec spec;
    std::vector<float> mean;
    std::vector<std::uint8_t> sigma, codes, block;
    bool exact = false;

    explicit page(std::uint32_t number)
    {
        constexpr scalar_type types[] = {scalar_type::e4m3fn, scalar_type::e5m2,
                                         scalar_type::e4m3fnuz, scalar_type::e5m2fnuz};
        test_rng rng(number);
        spec.dtype = types[number % 4];
        spec.tokens = 8;
        spec.dim = 40;
        spec.lanes = number % 8 < 4 ? 8 : 32;
        spec.shape = shape_id(number / 4 % 2);
        spec.row_scale = number % 3 == 0;
        for (std::uint32_t i = 0; i < spec.tokens * spec.dim; ++i) {
            const auto one = draw_scalar(rng, format_of(spec.dtype), data_style::typical,
                                         spec.sigma_offset);
            mean.push_back(bits_to_float(one.mean));
            sigma.push_back(one.sigma);
            codes.push_back(std::uint8_t(one.code));
        }
    }

    void code()
    {
        const auto predictor = predict(scalar_means{mean.data()}, scalar_sigmas{sigma.data()});
        std::vector<std::uint8_t> back(codes.size());
        block.assign(max_encoded_bytes(spec), 0);
        const auto from = dense(spec, static_cast<const std::uint8_t*>(codes.data()));
        const auto made =
            encode<scalar_backend>(spec, from, predictor, block.data(), block.size());
        const auto read = decode<scalar_backend>(spec, block.data(), made.bytes, predictor,
                                                 dense(spec, back.data()));
        block.resize(made.bytes);
        exact = made && read && back == codes;
    }
};

}  // namespace

int main()
{
    constexpr std::uint32_t count = 16;
    std::vector<page> pages;
    for (std::uint32_t i = 0; i < count; ++i) pages.emplace_back(i);
    std::atomic<std::uint32_t> here{0};
    std::vector<std::thread> threads;
    for (page& mine : pages)
        threads.emplace_back([&] {
            ++here;
            while (here != count) std::this_thread::yield();
            mine.code();
        });
    for (std::thread& one : threads) one.join();
    int failures = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        page alone(i);
        alone.code();
        failures += !pages[i].exact || alone.block != pages[i].block;
    }
    std::printf("%u threads, %d failures\n", count, failures);
    return failures == 0 ? 0 : 1;
}
