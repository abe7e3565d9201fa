// The core inside kernels: a thread per block, with one lane or with eight. Compiled only.

#include <normans/core/rans_step.hpp>
#include <normans/host/guess.hpp>

namespace {

using namespace normans;

template <scalar_type Type, std::uint32_t Width, class Code>
__global__ void decode_kernel(const std::uint8_t* bytes, const std::uint32_t* begins,
                              const float* mean, const std::uint8_t* sigma, std::uint32_t count,
                              const marginal_table* marginal, Code* out, status* outcome)
{
    using lanes = array_lanes<Width>;
    const normal_model<Type> model{shape_of(shape_id::gaussian), -16, marginal};
    const piecewise_guess guess(model.shape);
    const std::uint32_t block = blockIdx.x * blockDim.x + threadIdx.x;
    word_reader words{bytes + begins[block], bytes + begins[block + 1]};
    typename lanes::state state;
    for (std::uint32_t i = 0; i < Width; ++i) state[i] = rans_format::lower_bound;
    typename lanes::mask corrupt = 0;
    for (std::uint32_t first = 0; first < count; first += Width) {
        const std::uint32_t active = count - first < Width ? count - first : Width;
        typename lanes::models models{};
        for (std::uint32_t i = 0; i < active; ++i) {
            const std::uint32_t mapped =
                map_mean(float_to_bits(mean[first + i]), one_bits, minus_zero_bits);
            models[i] = model.prepare(mapped, sigma[first + i], 0);
        }
        const auto codes = decode_step<lanes>(state, model, guess, models,
                                              lanes::first_lanes(active), words, corrupt);
        for (std::uint32_t i = 0; i < active; ++i) out[first + i] = Code(codes[i]);
    }
    outcome[block] = corrupt != 0 || words.overrun ? status::corrupt_stream : status::ok;
}

template <scalar_type Type>
__global__ void interval_kernel(const float* mean, const float* s2, const std::uint32_t* codes,
                                interval* found, std::uint32_t* located)
{
    const normal_model<Type> model{shape_of(shape_id::mixture), -16, nullptr};
    const std::uint32_t i = threadIdx.x;
    const std::uint32_t mapped = map_mean(float_to_bits(mean[i]), one_bits, minus_zero_bits);
    const scalar_model m =
        model.prepare(mapped, sigma_index(variance{s2[i]}, -16), int(i % 16) - 6);
    found[i] = model.find(m, codes[i]);
    located[i] = m.is_far ? model.locate_far(m, found[i].start).code
                          : model.locate(m, found[i].start, 0).code;
}

}  // namespace

void launch(const std::uint8_t* bytes, const std::uint32_t* begins, const float* mean,
            const std::uint8_t* sigma, const marginal_table* marginal, std::uint8_t* narrow,
            std::uint16_t* wide, std::uint32_t* numbers, interval* found, status* outcome)
{
    decode_kernel<scalar_type::e4m3fn, 1>
        <<<1, 32>>>(bytes, begins, mean, sigma, 100, nullptr, narrow, outcome);
    decode_kernel<scalar_type::bf16, 8>
        <<<1, 32>>>(bytes, begins, mean, sigma, 100, marginal, wide, outcome);
    interval_kernel<scalar_type::fp16><<<1, 32>>>(mean, mean, numbers, found, numbers);
}
