// Decode-phase attention on the CPU straight over the coded pages of a real KV cache, layer by
// layer: four pages at a time are decoded into a buffer of the size of a cache and used at once.
// The same attention over the raw pages has the same output, bit for bit.

#include "paged_attention.hpp"

#include <cstdio>
#include <cstring>

namespace {

template <class Code, std::uint32_t Group>
bool same_bits(const example::paged_layer<Code>& layer)
{
    constexpr std::uint32_t ahead = 4;
    const auto predictors = layer.predictors();
    using coded = normans::coded_pages<Code, example::store, decltype(predictors)>;
    std::vector<Code> buffer(coded::buffer_elements(layer.pages(), 0, 1, ahead));
    coded pages(layer.pages(), 0, 1, layer.table.data(), layer.tokens(), predictors, buffer.data(),
                ahead, layer.workspace());

    const std::vector<float> from_coded = example::attention<Code, Group>(layer, pages);
    const std::vector<float> from_raw = example::attention<Code, Group>(layer, layer.raw_pages());
    return std::memcmp(from_coded.data(), from_raw.data(), from_raw.size() * sizeof(float)) == 0 &&
           from_raw[0] == from_raw[0];
}

// Groups of 1, 4 and 8 query heads per KV head.
template <class Code>
bool run(const kv_file::safetensors_file& file, const normans::profile& profile, std::uint32_t l)
{
    const example::paged_layer<Code> layer(file, profile, l, 48);
    const bool exact =
        same_bits<Code, 1>(layer) && same_bits<Code, 4>(layer) && same_bits<Code, 8>(layer);
    std::printf("layer %2u %s: %7zu bytes raw, %6zu coded, outputs %s\n", l,
                sizeof(Code) == 1 ? "fp8 " : "bf16", layer.raw_bytes(),
                std::size_t(layer.coded_bytes()), exact ? "bit for bit the same" : "DIFFER");
    return exact;
}

}  // namespace

int main(int argc, char** argv)
try {
    bool exact = true;
    const auto profile = kv_file::load_profile("examples/data/smollm2-135m.profile");
    for (const std::string& name : example::cache_files(argc, argv)) {
        const kv_file::safetensors_file file(name);
        for (const std::uint32_t layer : example::layers_of(file)) {
            exact &= run<std::uint8_t>(file, profile.value, layer);
            exact &= run<std::uint16_t>(file, profile.value, layer);
        }
    }
    return exact ? 0 : 1;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
