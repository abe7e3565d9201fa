// What the closed form of the row step costs against trying all 16 per token: exact code lengths
// under the integer model, row steps not counted (they are the same).
//     row_scale CACHE.safetensors PROFILE [MU.safetensors]
// Exit status 1 if the loss exceeds 0.2 %.

#include <cmath>
#include <cstdio>
#include <exception>

#include <normans/block/row_scale.hpp>

#include "../../examples/kv_file/page_coder.hpp"

namespace {

using namespace kv_file;

struct totals {
    double none = 0, closed = 0, best = 0;
    uint64_t scalars = 0;
};

template <scalar_type Type, class Code>
void add_tensor(totals& sum, const normans::tensor_profile& entry, const mean_tensor& means,
                const std::vector<Code>& codes)
{
    using model_type = normans::normal_model<Type>;
    const model_type model{normans::shape_of(entry.shape), entry.sigma_offset, nullptr};
    const staged_means staged = under_map(means, entry, true);
    const size_t channels = size_t(means.shape.channels());
    const double escape_bits = 8.0 * sizeof(Code);
    for (size_t token = 0; token < means.shape.tokens; ++token) {
        normans::row_statistics row;
        double bits[16] = {};
        for (size_t c = 0; c < channels; ++c) {
            const size_t i = token * channels + c;
            const uint32_t mean = normans::map_mean(normans::float_to_bits(means.at(i)),
                                                    normans::float_to_bits(staged.a[c]),
                                                    normans::float_to_bits(staged.b[c]));
            row.add(model, model.prepare_sloped(mean, staged.sigma[c], normans::statistics_scale),
                    codes[i]);
            for (int j = 0; j < 16; ++j) {
                const auto m = model.prepare(mean, staged.sigma[c], j + normans::min_row_step);
                const normans::interval at = model.find(m, codes[i]);
                bits[j] += std::log2(double(normans::rans_format::total) / at.freq) +
                           (at.escaped ? escape_bits : double(at.raw_bits));
            }
        }
        const int step = normans::choose_row_step(model.shape, row);
        double best = bits[0];
        for (const double one : bits) best = one < best ? one : best;
        sum.none += bits[-normans::min_row_step];
        sum.closed += bits[step - normans::min_row_step];
        sum.best += best;
        sum.scalars += channels;
    }
}

int run(int argc, char** argv)
{
    if (argc < 3) fail("usage: row_scale CACHE.safetensors PROFILE [MU.safetensors]");
    const safetensors_file cache(argv[1]);
    const loaded_profile profile = load_profile(argv[2]);
    const mean_source source(argc > 3 ? argv[3] : "", &cache);
    std::printf("%-6s %12s %12s %12s %12s\n", "target", "no row step", "closed form", "best of 16",
                "loss");
    bool good = true;
    for (const target what : {target::fp8, target::bf16}) {
        totals sum;
        const target_choice only{what == target::fp8, what == target::bf16};
        for (const cache_key& key : keys_of(cache, only)) {
            const std::string name = tensor_name(key, target_name(what));
            const scalar_type type = scalar_of(cache, key, what);
            const mean_tensor means = load_means(source.file(), key);
            const auto& entry = profile_entry(profile.value, argv[2], key, type, means.shape);
            if (type == scalar_type::bf16)
                add_tensor<scalar_type::bf16>(sum, entry, means, load_codes<uint16_t>(cache, name));
            else if (type == scalar_type::e4m3fn)
                add_tensor<scalar_type::e4m3fn>(sum, entry, means, load_codes<uint8_t>(cache, name));
            else
                fail(name, ": only e4m3fn and bf16 are measured here");
        }
        if (sum.scalars == 0) continue;
        const double n = double(sum.scalars), loss = sum.closed / sum.best - 1;
        good &= loss <= 0.002;
        std::printf("%-6s %12.4f %12.4f %12.4f %11.2f%%\n", target_name(what), sum.none / n,
                    sum.closed / n, sum.best / n, 100 * loss);
    }
    return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv)
{
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "row_scale: %s\n", error.what());
        return 2;
    }
}
