// A paged fp8 cache leaves the device for pinned host memory, its blocks at their exact sizes, and
// comes back. Batches of pages take turns on two streams: one is coded while another is copied.

#include "paged_cache.cuh"

using namespace example;
using codec = normans::device_codec<normans::scalar_type::e4m3fn, 32>;

int main()
{
    if (!there_is_a_device()) return 0;
    const std::uint32_t batch = is_hardware() ? 4096 : 8, batches = 8;
    const paged_cache cache(batches * batch);
    const coding_stream sides[2] = {{cache.spec, batch}, {cache.spec, batch}};
    const auto to_encode = encode_entries(cache, sides, batch);
    const auto store = pinned<std::uint8_t>(cache.pages * sides[0].slot_bytes);
    const auto directories = pinned<std::uint64_t>(batches * (batch + 1));
    std::vector<std::size_t> at(batches + 1);  // where a batch's blocks lie in the store
    const auto offload = [&] {
        for (std::uint32_t b = 0; b <= batches; ++b) {
            if (b < batches) {
                const coding_stream& s = sides[b % 2];
                const encode_entry* entries = to_encode.get() + b * batch;
                check(codec::encode(cache.spec, entries, batch, nullptr, s.encoded.get(), s));
                check(codec::pack(entries, s.encoded.get(), batch, nullptr, s.directory.get(),
                                  s.blocks.get(), batch * s.slot_bytes, s));
                copy(directories.get() + b * (batch + 1), s.directory.get(), batch + 1, s);
            }
            if (b == 0) continue;
            const coding_stream& s = sides[(b - 1) % 2];  // the batch before: its size is needed
            check(cudaStreamSynchronize(s));
            at[b] = at[b - 1] + directories.get()[b * (batch + 1) - 1];
            copy(store.get() + at[b - 1], s.blocks.get(), at[b] - at[b - 1], s);
        }
    };
    speeds measured;
    measured.offload = seconds(offload);
    measured.plain_copy =  // after which the cache holds something else
        seconds([&] { copy(cache.data(), store.get(), cache.bytes(), sides[0]); });

    const auto to_decode = decode_entries(cache, sides, batch, directories.get());
    const auto decoded = on_device<normans::decode_result>(cache.pages);
    const auto decode = [&](std::uint32_t b) {
        check(codec::decode(cache.spec, to_decode.get() + b * batch, batch, nullptr,
                            decoded.get() + b * batch, sides[b % 2]));
    };
    const auto restore = [&] {
        for (std::uint32_t b = 0; b < batches; ++b) {
            const coding_stream& s = sides[b % 2];
            copy(s.blocks.get(), store.get() + at[b], at[b + 1] - at[b], s);
            decode(b);
        }
    };
    measured.restore = seconds(restore);
    measured.decode =  // of two batches, whose blocks are still there
        seconds([&] { decode(batches - 2), decode(batches - 1); }) * batches / 2;
    return report(cache, at[batches], decoded.get(), measured);
}
