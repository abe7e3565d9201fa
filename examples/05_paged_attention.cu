// A decoding step's attention on compressed fp8 pages, whose codes exist in shared memory only,
// beside the same arithmetic on plain pages. The outputs are equal, bit by bit.

#include <normans/cuda/paged_attention.cuh>
#include <normans/cuda/raw_pool.cuh>

#include "decoding_step.cuh"

using namespace example;
using shape = normans::attention_shape<std::uint8_t, 64, 8, 16>;  // 8 query heads, 16 tokens a page

int main()
{
    if (!there_is_a_device()) return 0;
    const std::uint32_t sequences = is_hardware() ? 64 : 2, each = is_hardware() ? 64 : 2;
    const std::uint32_t pages = sequences * each, heads = 4, dim = shape::dim;
    const std::uint32_t count = pages * heads * 2;  // of blocks
    const paged_cache cache(2 * pages);  // K's pages, then V's
    normans::block_spec spec = cache.spec;
    spec.heads = 1;  // a block is one head's K or V of one page
    const std::size_t room = (normans::max_encoded_bytes(spec) + 15) / 16 * 16;
    const auto slots = on_device<std::uint8_t>(count * room);
    std::vector<encode_entry> to_encode;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t channel = i / 2 % heads * dim, page = i / 2 / heads + i % 2 * pages;
        predictor with = cache.predictor_of(page);
        with.means.data += channel;
        with.sigmas.index += channel;
        to_encode.push_back({slots.get() + i * room, room, spec.tokens, with,
                             {cache.box(page).data + channel, dim, heads * dim}});
    }
    const auto entries = copy_to_device(to_encode);
    const auto encoded = on_device<normans::encode_result>(count);
    check(normans::device_codec<normans::scalar_type::e4m3fn, 32>::encode(
        spec, entries.get(), count, nullptr, encoded.get(), nullptr));
    std::vector<normans::coded_block> blocks;
    std::size_t largest = 0, bytes = 0;
    for (const normans::encode_result& one : copy_from_device(encoded.get(), count)) {
        blocks.push_back({slots.get() + blocks.size() * room, one.bytes});
        largest = largest < one.bytes ? one.bytes : largest;
        bytes += one.bytes;
    }
    const auto directory = copy_to_device(blocks);
    const predictor k = cache.predictor_of(0), v = cache.predictor_of(pages);
    const auto strides = normans::page_strides::nhd(spec.tokens, heads, dim);
    const normans::coded_pool<32, normans::paged_means> coded{
        spec, directory.get(), std::uint32_t(largest),
        {{k.means.data, k.sigmas.index, nullptr, nullptr},
         {v.means.data, v.sigmas.index, nullptr, nullptr}, strides, dim}};
    const normans::raw_pool<std::uint8_t> plain{cache.data(), cache.box(pages).data, strides};

    const decoding_step step(sequences, each * spec.tokens, heads, 8, dim, spec.tokens);
    const auto attend = [&](const auto& from) {
        check(normans::decode_attention<shape>(step.batch, from, nullptr));
    };
    std::printf("K and V: %zu bytes instead of %zu; shared memory: %u and %u bytes a block\n",
                bytes, cache.bytes(), normans::attention_shared_bytes<shape>(coded),
                normans::attention_shared_bytes<shape>(plain));
    return report(step.run([&] { attend(coded); }), step.run([&] { attend(plain); }));
}
