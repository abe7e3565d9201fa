// All pages of a tensor in one call: several blocks are in flight on each thread, an executor
// brings the threads, and every block has a status of its own.

#include <normans/host/thread_executor.hpp>
#include <normans/normans.hpp>

#include <cstdio>
#include <vector>

using std::size_t;
using std::uint16_t;
using std::uint8_t;

int main()
{
    // Codes of [pages, tokens, channels], predictions in bf16, a deviation per channel.
    const size_t pages = 16, page_size = 64 * 128;
    std::vector<uint8_t> codes(pages * page_size), back(codes.size()), sigma(128, 8 * 16);
    std::vector<uint16_t> mean(codes.size());
    for (size_t i = 0; i < codes.size(); ++i) {
        const std::uint32_t random = std::uint32_t(i) * 2654435761u;
        const float value = float(int(random >> 20) - 2048) / 128.0f;
        const float noise = float(random >> 8 & 0xfff) / 2048.0f - 1.0f;
        mean[i] = uint16_t(normans::float_to_bits(value) >> 16);
        codes[i] = uint8_t(normans::nearest_code(normans::format_of(normans::scalar_type::e4m3fn),
                                                 normans::float_to_bits(value + noise)));
    }

    normans::block_spec spec;
    spec.dtype = normans::scalar_type::e4m3fn;
    spec.tokens = 64;
    spec.dim = 128;
    const size_t room = normans::max_encoded_bytes(spec);
    std::vector<uint8_t> blocks(pages * room);
    const auto predictor_of = [&](size_t page) {
        return normans::predict(normans::bf16_means{mean.data() + page * page_size, 0, 128},
                                normans::channel_sigmas{sigma.data(), spec.dim});
    };
    using predictor = decltype(predictor_of(0));

    const normans::thread_executor threads{2};  // or a callable over a pool of your own
    std::vector<normans::encode_task<uint8_t, predictor>> encoding;
    std::vector<normans::decode_task<uint8_t, predictor>> decoding;
    for (size_t i = 0; i < pages; ++i)
        encoding.push_back({spec, {codes.data() + i * page_size, 0, 128}, predictor_of(i),
                            blocks.data() + i * room, room});
    normans::encode_blocks(encoding.data(), pages, threads);
    for (size_t i = 0; i < pages; ++i)
        decoding.push_back({spec, encoding[i].out, encoding[i].result.bytes, predictor_of(i),
                            {back.data() + i * page_size, 0, 128}});
    normans::decode_blocks(decoding.data(), pages, threads);

    size_t bytes = 0;
    for (const auto& task : encoding) bytes += task.result.bytes;
    std::printf("%zu pages, %zu codes in %zu bytes, %s, backend %s\n", pages, codes.size(), bytes,
                back == codes ? "exact" : "NOT EXACT",
                normans::backend_name(decoding[0].result.backend));
    return back == codes ? 0 : 1;
}
