#pragma once
// Random blocks with every kind of view: what the tests of the lane groups compare on.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "codec/threads.hpp"
#include "support/random_source.hpp"

namespace planes_test {

using namespace normans;
using field::random_source;

struct box {
    uint32_t heads, tokens, dim;
};

template <class Code>
class random_block {
public:
    block_spec spec;

    random_block(random_source& random, const box& shape, uint32_t lanes, bool scaled = false)
        : random_block(random, shape, lanes, random.next(), scaled)
    {
    }

    // `kinds`: which views; equal for blocks that should run together. Scaled: int8, int4 or
    // e2m1.
    random_block(random_source& random, const box& shape, uint32_t lanes, uint64_t kinds,
                 bool scaled)
    {
        random_source choice{kinds};
        constexpr scalar_type bytes[] = {scalar_type::e4m3fn, scalar_type::e5m2,
                                         scalar_type::e4m3fnuz, scalar_type::e5m2fnuz};
        constexpr scalar_type scaled_types[] = {scalar_type::int8, scalar_type::int4,
                                                scalar_type::e2m1};
        spec.dtype = scaled              ? scaled_types[choice.below(3)]
                     : sizeof(Code) == 1 ? bytes[choice.below(4)]
                     : choice.below(2)   ? scalar_type::bf16
                                         : scalar_type::fp16;
        spec.heads = shape.heads;
        spec.tokens = shape.tokens;
        spec.dim = shape.dim;
        spec.lanes = lanes;
        spec.row_scale = choice.below(2) == 0;
        spec.parameter_hash = choice.below(8) == 0;
        spec.shape = choice.below(4) == 0 ? shape_id::mixture : shape_id::gaussian;
        if (choice.below(8) == 0 && !scaled) {
            spec.shape = shape_id::mixture_marginal;
            marginal_ = field::some_marginal(7);
            spec.marginal = &marginal_;
        }
        mean_type_ = choice.below(3) == 0   ? any_means::fp32
                     : choice.below(2) == 0 ? scalar_type::bf16
                                            : bytes[choice.below(4)];
        sigma_kind_ = choice.below(3);
        sigma_type_ = any_sigmas::kind(choice.below(2) * choice.below(3));
        affine_ = choice.below(2) == 0;
        gap_ = scaled ? choice.below(2) * choice.below(10) : 0;
        if (scaled) set_scales(random, choice);
        fill(random);
    }
    random_block(const random_block&) = delete;
    random_block& operator=(const random_block&) = delete;

    array_predictor predictor() const
    {
        const ptrdiff_t head = ptrdiff_t(spec.tokens) * spec.dim, token = ptrdiff_t(spec.dim);
        const void* means = mean_type_ == any_means::fp32 ? static_cast<const void*>(wide_.data())
                            : mean_type_ == scalar_type::bf16
                                ? static_cast<const void*>(half_.data())
                                : byte_.data();
        return {{means, head, token, mean_type_},
                {sigma_type_ == any_sigmas::kind::index ? static_cast<const void*>(sigma_.data())
                                                        : real_sigma_.data(),
                 spec.dim, sigma_kind_ == 2 ? 1u : 0u, sigma_kind_ == 1 ? 1u : 0u, sigma_type_,
                 spec.sigma_offset},
                {affine_ ? a_.data() : nullptr, affine_ ? b_.data() : nullptr, spec.dim}};
    }

    encode_task<Code, array_predictor> encoding()
    {
        return {spec, box_of(static_cast<const Code*>(codes_.data())), predictor(), out_.data(),
                out_.size(), {}};
    }

    decode_task<Code, array_predictor> decoding(const std::vector<uint8_t>& block)
    {
        forget();
        return {spec, block.data(), block.size(), predictor(), box_of(back_.data()), {}};
    }

    std::vector<uint8_t> encoded_by_scalars() const
    {
        std::vector<uint8_t> out(max_encoded_bytes(spec));
        const encode_result made = encoded_by<scalar_backend>(out, out.size());
        out.resize(made ? made.bytes : 0);
        return out;
    }

    template <class Backend>
    encode_result encoded_by(std::vector<uint8_t>& out, size_t capacity) const
    {
        return encode<Backend>(spec, box_of(codes_.data()), predictor(), out.data(), capacity);
    }

    template <class Backend>
    decode_result decoded_by(const std::vector<uint8_t>& block)
    {
        return decode<Backend>(spec, block.data(), block.size(), predictor(),
                               box_of(back_.data()));
    }

    /// All codes are back, and what lies between rows of codes (0x5a) is as it was.
    bool exact() const { return codes_ == back_; }
    void forget() { back_.assign(codes_.size(), Code(0x5a)); }

    std::string text() const
    {
        return std::string(scalar_name(spec.dtype)) + " " + std::to_string(spec.heads) + "x" +
               std::to_string(spec.tokens) + "x" + std::to_string(spec.dim) + " lanes " +
               std::to_string(spec.lanes) + " means " + std::to_string(int(mean_type_)) +
               " sigmas " + std::to_string(sigma_kind_) + " as " +
               std::to_string(int(sigma_type_)) + (affine_ ? " affine" : "") +
               (spec.row_scale ? " rows" : "") + " gap " + std::to_string(gap_) + " group " +
               std::to_string(spec.scales.group) + " shape " + std::to_string(int(spec.shape));
    }

private:
    bool scaled() const { return has_scale(spec.dtype); }

    template <class T>
    box_view<T> box_of(T* data) const
    {
        const ptrdiff_t token = ptrdiff_t(spec.dim + gap_);
        return {data, token * ptrdiff_t(spec.tokens) + ptrdiff_t(gap_), token};
    }

    void put(const scalar_position& at, uint32_t code)
    {
        if constexpr (sizeof(Code) == 1)
            detail::packed_codes<Code>{box_of(codes_.data()), format_of(spec.dtype).code_bits == 4}
                .store(at, code);
        else codes_[at.index] = Code(code);
    }

    // One for all, per row, or per group; some that do not count.
    void set_scales(random_source& random, random_source& choice)
    {
        constexpr uint32_t sizes[] = {0, 0, 32, 32, 16, 8, 64, 24, 5, 1};
        scale_view& view = spec.scales;
        view.group = sizes[choice.below(10)];
        const uint32_t groups = view.group == 0 ? 1 : (spec.dim + view.group - 1) / view.group;
        const bool one = view.group == 0 && choice.below(3) == 0;
        if (!one) {
            view.head_stride = ptrdiff_t(spec.tokens * groups);
            view.token_stride = ptrdiff_t(groups);
            view.group_stride = 1;
        }
        scale_level_ = int(choice.below(12)) - 9;
        if (choice.below(4) == 0) {
            scale_level_ = int(choice.below(47)) - 24;
            spec.sigma_offset = min_sigma_offset + int(choice.below(149));
        }
        const uint32_t odd = choice.below(3) == 0 ? 2 + choice.below(40) : 0;
        for (uint32_t i = 0; i < (one ? 1 : spec.heads * spec.tokens * groups); ++i) {
            constexpr uint32_t special[] = {0, 0x80000000, 0xbf800000, 0x7fc00000, 0x7f800000,
                                            0x00000001, 0x33800000, 0x337fffff, 0x4b7fffff,
                                            0x4b800000, 0x3f800000, 0x7f7fffff};
            scales_.push_back(float(std::ldexp(1 + random.below(1024) / 1024.0, scale_level_)));
            if (odd != 0 && random.below(odd) == 0)
                scales_[i] = bits_to_float(random.below(2) ? special[random.below(12)]
                                                           : random.bits());
        }
        view.data = scales_.data();
    }

    void fill(random_source& random)
    {
        const size_t count = size_t(count_of(spec)), channels = size_t(spec.heads) * spec.dim;
        const scalar_format format = format_of(spec.dtype);
        const box_view<Code> all = box_of(static_cast<Code*>(nullptr));
        codes_.resize(gap_ == 0 ? size_t(raw_bytes(spec.dtype, count)) / sizeof(Code)
                                : size_t(all.head_stride) * spec.heads);
        codes_.assign(codes_.size(), Code(0x5a));
        back_.resize(codes_.size());
        out_.resize(max_encoded_bytes(spec));
        wide_.resize(count);
        half_.resize(count);
        byte_.resize(count);
        sigma_.resize(sigma_kind_ == 2 ? count : sigma_kind_ == 1 ? channels : 1);
        a_.resize(channels);
        b_.resize(channels);
        // 0..5: drawn from the model; else one thing is off, or everything.
        const uint32_t regime = random.below(12);
        const int level = 8 * (scale_level_ - spec.sigma_offset - 2);
        const uint32_t middle =
            scaled() ? uint32_t(level < 0 ? 0 : level > 200 ? 200 : level) + random.below(24)
                         : 90 + random.below(100);
        for (uint8_t& index : sigma_) {
            index = uint8_t(middle + random.below(24));
            if (regime == 6 || (regime == 7 && random.below(8) == 0))
                index = uint8_t(random.bits());
            if (regime == 8 && random.below(4) == 0) index = uint8_t(sigma_zero);
            if (regime == 9) index = uint8_t(random.below(30));
        }
        for (const uint8_t index : sigma_) {
            const bool squared = sigma_type_ == any_sigmas::kind::variance;
            const double value = index == sigma_zero
                                     ? 0
                                     : field::sigma_value(index, spec.sigma_offset) *
                                           std::exp2((random.below(64) - 31.5) / 512);
            real_sigma_.push_back(float(squared ? value * value : value));
            if (regime == 6 && random.below(8) == 0)
                real_sigma_.back() = bits_to_float(random.bits());
        }
        for (float& a : a_)
            a = regime == 10 ? normal_bits(random) : 1 + float(random.normal()) / 16;
        for (float& b : b_) b = regime == 10 ? normal_bits(random) : float(random.normal()) / 16;
        const double spread =
            scaled() ? std::ldexp(double(format.largest_finite),
                                      scale_level_ - int(random.below(3)))
                         : std::ldexp(1.0, int(random.below(12)) - 4);
        for (size_t i = 0; i < count; ++i) {
            wide_[i] = random.below(16) == 0 ? 0.0f : float(random.normal() * spread);
            if (regime == 7 || regime == 11) {
                const uint32_t special[] = {0x7fc00000, 0xff800000, 0x7f800000, 0x80000000,
                                            0x00000001, 0x00800000, 0x80ffffff, 0x7f7fffff};
                if (random.below(8) == 0) wide_[i] = bits_to_float(special[random.below(8)]);
                if (regime == 11) wide_[i] = bits_to_float(random.bits());
            }
            half_[i] = uint16_t(float_to_bits(wide_[i]) >> 16);
            byte_[i] = mean_type_ == scalar_type::bf16 || mean_type_ == any_means::fp32 ||
                               regime == 11
                           ? uint8_t(random.bits())
                           : uint8_t(nearest_code(format_of(mean_type_), float_to_bits(wide_[i])));
        }
        const array_predictor says = predictor();
        box_of_positions([&](const scalar_position& at) {
            const prediction one = says(at);
            const double row = std::ldexp(1.0, int(at.token % 5) - 2);
            const double value = double(one.mean) +
                                 random.normal() * row * field::sigma_value(one.sigma_index,
                                                                            spec.sigma_offset);
            uint32_t code = 0;
            if (!scaled()) {
                code = nearest_code(format, float_to_bits(float(value)));
            } else if (make_scale(float_to_bits(spec.scales(at))).scale != 0) {
                const double in_codes = value / double(spec.scales(at));
                code = expected_code(format, float_to_bits(float(in_codes)));
            }
            if (regime == 9 || regime == 11 || random.below(64) == 0)
                code = random.bits() & (2 * format.code_sign() - 1);
            put(at, code);
        });
    }

    template <class Function>
    void box_of_positions(Function f) const
    {
        scalar_position at{0, 0, 0, 0};
        for (at.head = 0; at.head < spec.heads; ++at.head)
            for (at.token = 0; at.token < spec.tokens; ++at.token)
                for (at.channel = 0; at.channel < spec.dim; ++at.channel, ++at.index) f(at);
    }

    // Any normal float, or zero.
    static float normal_bits(random_source& random)
    {
        const uint32_t bits = random.bits(), field = exponent_field(bits);
        return field == 0 || field == 255 ? 0.0f : bits_to_float(bits);
    }

    marginal_table marginal_{};
    scalar_type mean_type_;
    uint32_t sigma_kind_;  // one, per channel, per scalar
    any_sigmas::kind sigma_type_;
    bool affine_;
    uint32_t gap_ = 0;  // elements between rows and between heads
    int scale_level_ = 0;
    std::vector<float> scales_;
    std::vector<Code> codes_, back_;
    std::vector<uint8_t> out_, byte_, sigma_;
    std::vector<uint16_t> half_;
    std::vector<float> wide_, real_sigma_, a_, b_;
};

/// 1 to 24 blocks: runs of one geometry and of one kind, and changes between them.
template <class Code>
std::vector<std::unique_ptr<random_block<Code>>> random_batch(random_source& random,
                                                               bool scaled = false)
{
    constexpr uint32_t widths[] = {64, 80, 96, 128, 192, 576, 8, 1, 7, 31, 33, 100};
    constexpr uint32_t lane_counts[] = {8, 32, 8, 32, 16, 1};
    std::vector<std::unique_ptr<random_block<Code>>> out;
    const uint32_t total = 1 + random.below(24);
    while (out.size() < total) {
        box shape{1 + random.below(3), 1 + random.below(5), widths[random.below(12)]};
        const uint32_t lanes = lane_counts[random.below(6)];
        const uint64_t kinds = random.next();
        const uint32_t run = 1 + random.below(20);
        for (uint32_t i = 0; i < run && out.size() < total; ++i)
            out.push_back(std::make_unique<random_block<Code>>(random, shape, lanes, kinds,
                                                               scaled));
    }
    return out;
}

}  // namespace planes_test
