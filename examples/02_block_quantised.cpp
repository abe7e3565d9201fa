// A Q8_0 cache (34 bytes per 32 values: an fp16 scale, then int8 codes) under a predictor, by both
// coders: the scales under the absmax of the predicted rows, the codes straight from the blocks.
#include <normans/host/bank.hpp>
#include <normans/normans.hpp>

#include <cstdio>
#include <vector>
using namespace normans;

int main()
{
    const uint32_t rows = 4096, dim = 32;
    std::vector<uint8_t> cache(rows * 34), back(cache), room(2 * cache.size());
    std::vector<float> mean(rows * dim), nothing(rows * dim), likely(rows), scale(rows);
    std::vector<uint16_t> half(rows), half_back(rows);
    const scalar_format fp16 = format_of(scalar_type::fp16), int8 = format_of(scalar_type::int8);
    uint32_t seed = 1;
    const auto noise = [&] { return float((seed = seed * 69069 + 5) >> 8) / 8388608 - 1; };
    for (uint32_t r = 0; r < rows; ++r) {
        for (uint32_t i = 0; i < dim; ++i) {
            const float m = mean[r * dim + i] = noise() + noise() + noise();
            if ((m < 0 ? -m : m) / 127 > likely[r]) likely[r] = (m < 0 ? -m : m) / 127;
        }
        half[r] = uint16_t(nearest_code(fp16, float_to_bits(likely[r] * (1 + 0.02f * noise()))));
        scale[r] = bits_to_float(value_bits(fp16, half[r]));
        cache[r * 34] = uint8_t(half[r]), cache[r * 34 + 1] = uint8_t(half[r] >> 8);
        for (uint32_t i = 0; i < dim; ++i) {
            const float code = mean[r * dim + i] / scale[r] + 4 * (noise() + noise() + noise());
            cache[r * 34 + 2 + i] = uint8_t(nearest_integer_code(int8, float_to_bits(code)));
        }
    }
    const bank_in<std::vector> bank(plan_bank(scalar_type::int8, 64 * 1024).plan);
    const auto sigma = [](float s) { return one_sigma{sigma_index(deviation{s}, -16)}; };
    block_spec codes, scales;
    scales.dtype = scalar_type::fp16, scales.tokens = rows, scales.dim = 1;
    codes.dtype = scalar_type::int8, codes.tokens = rows, codes.dim = dim;
    codes.scales = {scale.data(), 0, 1}, codes.bank = &bank.bank;  // a scale per row
    const auto by_row = predict(scalar_means{likely.data()}, sigma(0.0002f));
    const encode_result head =
        encode(scales, dense(scales, half.data()), by_row, room.data(), room.size());
    uint8_t* const body = room.data() + head.bytes;
    const auto scales_back = dense(scales, half_back.data());
    bool exact = bool(decode(scales, room.data(), head.bytes, by_row, scales_back));
    for (uint32_t r = 0; r < rows; ++r)
        back[r * 34] = uint8_t(half_back[r]), back[r * 34 + 1] = uint8_t(half_back[r] >> 8);
    for (const bool known : {true, false})
        for (const coder_id coder : {coder_id::rans, coder_id::tans}) {
            codes.coder = coder;
            const auto by = predict(scalar_means{known ? mean.data() : nothing.data()},
                                    sigma(known ? 0.08f : 1.0f));
            const box_view<uint8_t> from{&cache[2], 0, 34}, to{&back[2], 0, 34};
            const encode_result e = encode(codes, from, by, body, room.size() - head.bytes);
            exact &= e && decode(codes, body, e.bytes, by, to) && back == cache;
            std::printf("%s, %s: %.3f bits a value, %.3f of these for scales; raw 8.5\n",
                        known ? "predicted" : "unpredicted",
                        coder == coder_id::tans ? "tANS" : "rANS",
                        double(e.bytes + head.bytes) / (rows * 4), double(head.bytes) / (rows * 4));
        }
    return exact ? 0 : 1;
}
