// Encode fp8 codes under per-scalar means and deviations, decode them, check every bit.

#include <normans/normans.hpp>

#include <cstdio>
#include <vector>

static std::uint8_t nearest_e4m3fn(float value)
{
    return std::uint8_t(normans::nearest_code(normans::format_of(normans::scalar_type::e4m3fn),
                                              normans::float_to_bits(value)));
}

int main()
{
    // What a host engine has: the codes of a tensor, and a prediction of every scalar.
    const std::uint32_t count = 4096;
    std::vector<std::uint8_t> codes(count);
    std::vector<float> mean(count), sigma(count, 0.3f);
    for (std::uint32_t i = 0; i < count; ++i) {
        const float noise = float(i * 2654435761u >> 16 & 0xffff) / 65536.0f - 0.5f;
        mean[i] = 0.25f * float(i % 97) - 12.0f;
        codes[i] = nearest_e4m3fn(mean[i] + noise);
    }

    normans::block_spec spec;  // what both sides agree on
    spec.dtype = normans::scalar_type::e4m3fn;
    spec.dim = count;
    const auto predictor =
        normans::predict(normans::scalar_means{mean.data()},
                         normans::deviations{sigma.data(), spec.sigma_offset});

    std::vector<std::uint8_t> block(normans::max_encoded_bytes(spec));
    const auto encoded = normans::encode(spec, normans::dense(spec, codes.data()), predictor,
                                         block.data(), block.size());

    std::vector<std::uint8_t> back(count);
    const auto decoded = normans::decode(spec, block.data(), encoded.bytes, predictor,
                                         normans::dense(spec, back.data()));

    std::printf("encode: %s, decode: %s, %u codes in %zu bytes, %s\n",
                normans::status_name(encoded.code), normans::status_name(decoded.code), count,
                encoded.bytes, codes == back ? "exact" : "NOT EXACT");
    return encoded && decoded && codes == back ? 0 : 1;
}
