#pragma once
// One decoding step's attention over compressed pages, and over plain ones through the same
// arithmetic. Rows are named attention/TYPE/PAGES/MATH/group-N/sequences-N/SIDE; a row's GB/s are of
// plain K and V.

#include <cstring>

#include <normans/cuda/device_codec.cuh>
#include <normans/cuda/paged_attention.cuh>
#include <normans/cuda/raw_pool.cuh>

#include "data.hpp"
#include "timing.cuh"

namespace bench {

/// Pages' predictors, where only some pages are distinct. V's pages lie behind K's.
struct step_predictors {
    const std::uint16_t* means;
    const std::uint8_t* sigmas;
    const float* a;
    const float* b;
    std::uint32_t side_pages, distinct, tokens, heads, dim;

    __host__ __device__ normans::view_predictor<normans::bf16_means, normans::channel_sigmas,
                                                normans::channel_affine>
    operator()(const normans::block_place& at) const
    {
        const std::size_t page = at.page + (at.is_value ? side_pages : 0);
        const std::size_t channels = std::size_t(heads) * dim, first = at.kv_head * dim;
        const std::size_t of_page = page % distinct * channels + first;
        return {{means + page * tokens * channels + first, dim, std::ptrdiff_t(channels)},
                {sigmas + of_page, dim},
                {a + of_page, b + of_page, dim}};
    }
};

template <normans::scalar_type Type>
class attention_step {
    using code = std::conditional_t<normans::code_bytes(Type) == 1, std::uint8_t, std::uint16_t>;
    using predictor = decltype(step_predictors{}(normans::block_place{}));
    using encode_entry = normans::encode_entry<code, predictor>;
    static constexpr std::uint32_t width = 32, dim = 128, page_tokens = 16, most_heads = 8;

    const gpu_pages& from_;
    const std::uint32_t sequences_, each_, pages_, heads_;
    device_memory<code> codes_;
    device_memory<std::uint16_t> means_, queries_;
    device_memory<std::uint8_t> sigmas_, slots_;
    device_memory<float> a_, b_, out_;
    device_memory<normans::attention_result> results_;
    device_memory<std::int32_t> table_;
    device_memory<std::uint32_t> lengths_;
    normans::block_spec spec_;
    std::size_t room_, bytes_ = 0, largest_ = 0;
    std::vector<normans::coded_block> blocks_;

public:
    attention_step(const gpu_pages& from, std::uint32_t sequences, std::uint32_t each,
                   const conditions& with)
        : from_(from), sequences_(sequences), each_(each), pages_(sequences * each),
          heads_(from.spec.heads), codes_(as_codes(from), 2 * pages_ * from.page_scalars()),
          means_(from.means, 2 * pages_ * from.page_scalars()),
          queries_(std::vector<std::uint16_t>{0x3f80, 0xbf00, 0x3e80, 0xbf8c, 0x3f23},
                   outputs(most_heads)),
          sigmas_(from.sigmas), slots_(room_of(from) * 2 * pages_ * heads_), a_(from.a),
          b_(from.b), out_(outputs(most_heads)), results_(sequences * heads_),
          table_(counted(pages_)), lengths_(std::vector<std::uint32_t>(sequences,
                                                                       each * page_tokens)),
          spec_(from.spec), room_(room_of(from))
    {
        spec_.heads = 1;
        spec_.lanes = width;
        encode(with);
    }

    template <std::uint32_t Group, normans::attention_math Math>
    void measure(std::uint32_t group, conditions& with, gpu_table& table) const
    {
        using shape = normans::attention_shape<code, dim, Group, page_tokens, 2, Math>;
        const std::string name = std::string("attention/") + normans::scalar_name(Type) + "/" +
                                 from_.name +
                                 (Math == normans::attention_math::fused ? "/fused" : "/tensor") +
                                 "/group-" + std::to_string(group) + "/sequences-" +
                                 std::to_string(sequences_) + "/";
        if (with.over()) return table.leave_out(name + "*", "no time was left");
        const normans::attention_batch batch{
            queries_.get(), out_.get(), results_.get(), table_.get(), lengths_.get(), sequences_,
            heads_, group, each_, pages_, 0.0883883f, 1.0f};
        const device_memory<normans::coded_block> blocks(blocks_);
        const normans::coded_pool<width, step_predictors> coded{
            spec_, blocks.get(), std::uint32_t(largest_), predictors()};
        const normans::raw_pool<code> plain{
            codes_.get(), codes_.get() + pages_ * from_.page_scalars(),
            normans::page_strides::nhd(page_tokens, heads_, dim)};
        std::vector<float> seen[2];
        const auto run = [&](int side, const auto& pages) {
            gpu_row row;
            row.name = name + (side == 0 ? "coded" : "plain");
            row.scalars = 2.0 * double(pages_) * double(from_.page_scalars());
            row.bits = side == 0 ? 8 * double(bytes_) / row.scalars : 0;
            row.microseconds = microseconds(with, [&] {
                check(normans::decode_attention<shape>(batch, pages, with.stream));
            });
            if (with.hardware) row.gb_s = row.scalars * sizeof(code) / row.microseconds * 1e-3;
            seen[side] = out_.copy(outputs(group));
            for (const auto& one : results_.copy(sequences_ * heads_))
                if (one.code != normans::status::ok)
                    throw std::runtime_error(row.name + ": " + normans::status_name(one.code));
            table.add(row);
        };
        run(0, coded);
        run(1, plain);
        if (std::memcmp(seen[0].data(), seen[1].data(), seen[0].size() * sizeof(float)) != 0)
            throw std::runtime_error(name + ": other outputs than on plain pages");
    }

private:
    static std::vector<code> as_codes(const gpu_pages& from)
    {
        std::vector<code> codes(from.codes.size() / sizeof(code));
        std::memcpy(codes.data(), from.codes.data(), from.codes.size());
        return codes;
    }
    static std::vector<std::int32_t> counted(std::uint32_t count)
    {
        std::vector<std::int32_t> numbers;
        for (std::uint32_t i = 0; i < count; ++i) numbers.push_back(std::int32_t(i));
        return numbers;
    }
    static std::size_t room_of(const gpu_pages& from)
    {
        normans::block_spec spec = from.spec;
        spec.heads = 1;
        return (normans::max_encoded_bytes(spec) + 15) / 16 * 16;
    }
    std::size_t outputs(std::uint32_t group) const
    {
        return std::size_t(sequences_) * heads_ * group * dim;
    }
    step_predictors predictors() const
    {
        return {means_.get(), sigmas_.get(), a_.get(), b_.get(), pages_,
                std::uint32_t(from_.pages), page_tokens, heads_, dim};
    }

    // K and V of every head and page, a block each.
    void encode(const conditions& with)
    {
        const std::uint32_t count = 2 * pages_ * heads_;
        std::vector<encode_entry> entries;
        for (std::uint32_t i = 0; i < count; ++i) {
            const normans::block_place at{i / 2 / heads_, i / 2 % heads_, i % 2 != 0, 0, 0};
            const std::size_t page = at.page + (at.is_value ? pages_ : 0);
            entries.push_back({slots_.get() + i * room_, room_, page_tokens, predictors()(at),
                               {codes_.get() + page * from_.page_scalars() + at.kv_head * dim,
                                dim, std::ptrdiff_t(heads_) * dim}});
        }
        const device_memory<encode_entry> there(entries);
        const device_memory<normans::encode_result> encoded(count);
        check(normans::device_codec<Type, width>::encode(spec_, there.get(), count, nullptr,
                                                         encoded.get(), with.stream));
        check(cudaStreamSynchronize(with.stream));
        for (const normans::encode_result& one : encoded.copy(count)) {
            if (!one) throw std::runtime_error("attention: a page was not encoded");
            blocks_.push_back({slots_.get() + blocks_.size() * room_, one.bytes});
            bytes_ += one.bytes;
            largest_ = std::max(largest_, one.bytes);
        }
    }
};

template <normans::scalar_type Type>
void measure_attention(conditions& with, gpu_table& table)
{
    const std::uint32_t sequences = with.hardware ? 64 : 1, each = with.hardware ? 64 : 1;
    const gpu_pages pages = drawn_pages(Type, 2.5, with.hardware ? 64 : 2, 16);
    const attention_step<Type> step(pages, sequences, each, with);
    step.template measure<1, normans::attention_math::fused>(1, with, table);
    step.template measure<8, normans::attention_math::tensor>(4, with, table);
    step.template measure<8, normans::attention_math::tensor>(8, with, table);
}

}  // namespace bench
