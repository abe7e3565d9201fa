#pragma once
// What examples/05_paged_attention.cu has instead of an engine: queries, a block table, and outputs
// to compare.

#include <cstring>

#include <normans/cuda/decode_attention.cuh>

#include "paged_cache.cuh"

namespace example {

/// What a step left, and how long it took.
struct step_outcome {
    std::vector<float> out;
    bool ok;
    double seconds;
};

/// Sequences of equal length, each with pages of its own, one behind the other.
class decoding_step {
    std::size_t outputs_;
    device_memory<std::uint16_t> queries_;
    device_memory<std::int32_t> table_;
    device_memory<std::uint32_t> lengths_;
    device_memory<float> out_;
    device_memory<normans::attention_result> results_;

public:
    normans::attention_batch batch;

    decoding_step(std::uint32_t sequences, std::uint32_t tokens, std::uint32_t kv_heads,
                  std::uint32_t group, std::uint32_t dim, std::uint32_t page_tokens)
        : outputs_(std::size_t(sequences) * kv_heads * group * dim),
          queries_(copy_to_device(some_queries(outputs_))),
          table_(copy_to_device(counted(sequences * pages_of(tokens, page_tokens)))),
          lengths_(copy_to_device(std::vector<std::uint32_t>(sequences, tokens))),
          out_(on_device<float>(outputs_)),
          results_(on_device<normans::attention_result>(sequences * kv_heads)),
          batch{queries_.get(), out_.get(), results_.get(), table_.get(), lengths_.get(),
                sequences, kv_heads, group, pages_of(tokens, page_tokens),
                sequences * pages_of(tokens, page_tokens), 0.125f, 1.0f}
    {
    }

    /// Runs `launch`, which takes `batch`.
    template <class Launch>
    step_outcome run(const Launch& launch) const
    {
        check(cudaMemset(out_.get(), 0xff, outputs_ * sizeof(float)));
        const double time = seconds(launch);
        step_outcome outcome{copy_from_device(out_.get(), outputs_), true, time};
        for (const normans::attention_result& one :
             copy_from_device(results_.get(), batch.sequences * batch.kv_heads))
            outcome.ok = outcome.ok && one.code == normans::status::ok;
        return outcome;
    }

private:
    static std::uint32_t pages_of(std::uint32_t tokens, std::uint32_t page_tokens)
    {
        return (tokens + page_tokens - 1) / page_tokens;
    }
    static std::vector<std::int32_t> counted(std::uint32_t count)
    {
        std::vector<std::int32_t> numbers(count);
        for (std::uint32_t i = 0; i < count; ++i) numbers[i] = std::int32_t(i);
        return numbers;
    }
    static std::vector<std::uint16_t> some_queries(std::size_t count)
    {
        std::vector<std::uint16_t> queries(count);
        for (std::size_t i = 0; i < count; ++i)  // bf16 of +-[1, 2)
            queries[i] = std::uint16_t(0x3f80u | (i * 40503u >> 3 & 0x7fu) | (i * 7u & 8u) << 12);
        return queries;
    }
};

/// Says whether both steps had the same outcome, and on a GPU how long they took. main's result.
inline int report(const step_outcome& coded, const step_outcome& plain)
{
    const bool equal =
        coded.ok && plain.ok &&
        std::memcmp(coded.out.data(), plain.out.data(), plain.out.size() * sizeof(float)) == 0;
    std::printf("%zu outputs, %s\n", plain.out.size(), equal ? "equal bit by bit" : "NOT EQUAL");
    if (is_hardware())
        std::printf("%.1f us on compressed pages, %.1f us on plain ones\n", coded.seconds * 1e6,
                    plain.seconds * 1e6);
    else
        std::printf("not measured, since this is no GPU: the time of either\n");
    return equal ? 0 : 1;
}

}  // namespace example
