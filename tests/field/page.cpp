#include "field/page.hpp"

#include <cmath>

namespace field {

block_spec row_spec(scalar_type type, uint32_t count, uint32_t lanes)
{
    block_spec spec;
    spec.dtype = type;
    spec.dim = count;
    spec.lanes = lanes;
    return spec;
}

page make_page(uint64_t seed, const block_spec& spec)
{
    random_source random{seed};
    const size_t count = size_t(count_of(spec));
    const scalar_format format = format_of(spec.dtype);
    page made{spec, std::vector<uint16_t>(count), std::vector<float>(count),
              std::vector<uint8_t>(count)};
    const int middle = -8 * spec.sigma_offset - 16;  // sigma about a quarter
    for (size_t i = 0; i < count; ++i) {
        const int index = middle + int(random.below(16));
        made.sigma[i] = uint8_t(index < 0 ? 0 : index > 254 ? 254 : index);
        made.mean[i] = float(2 * random.normal());
        const double value =
            double(made.mean[i]) + sigma_value(made.sigma[i], spec.sigma_offset) * random.normal();
        made.codes[i] = has_model(spec.dtype)
                            ? uint16_t(nearest_code(format, float_to_bits(float(value))))
                            : uint16_t(random.below(256));
    }
    return made;
}

page make_random_page(uint64_t seed, const block_spec& spec)
{
    random_source random{seed};
    const size_t count = size_t(count_of(spec));
    page made{spec, std::vector<uint16_t>(count), std::vector<float>(count),
              std::vector<uint8_t>(count)};
    for (size_t i = 0; i < count; ++i) {
        made.codes[i] = uint16_t(random.below(code_bytes(spec.dtype) == 1 ? 256 : 65536));
        made.mean[i] = bits_to_float(random.bits());
        made.sigma[i] = uint8_t(random.below(256));
    }
    return made;
}

std::vector<uint8_t> encode_page(const page& from, encode_result* result)
{
    std::vector<uint8_t> block(max_encoded_bytes(from.spec));
    encode_result made;
    if (code_bytes(from.spec.dtype) == 1) {
        const std::vector<uint8_t> bytes = narrow(from.codes);
        made = encode(from.spec, dense(from.spec, bytes.data()), from.predictor(), block.data(),
                      block.size());
    } else {
        made = encode(from.spec, dense(from.spec, from.codes.data()), from.predictor(),
                      block.data(), block.size());
    }
    block.resize(made ? made.bytes : 0);
    if (result != nullptr) *result = made;
    return block;
}

decoded_page decode_page(const page& like, const uint8_t* block, size_t bytes)
{
    decoded_page made{{}, std::vector<uint16_t>(like.codes.size(), 0xffff)};
    if (code_bytes(like.spec.dtype) == 1) {
        std::vector<uint8_t> out(like.codes.size(), 0xff);
        made.result =
            decode(like.spec, block, bytes, like.predictor(), dense(like.spec, out.data()));
        made.codes.assign(out.begin(), out.end());
    } else {
        made.result = decode(like.spec, block, bytes, like.predictor(),
                             dense(like.spec, made.codes.data()));
    }
    return made;
}

}  // namespace field
