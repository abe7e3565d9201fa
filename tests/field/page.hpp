#pragma once
// What the field cases share: seeded pages of scalars with predictions, the codec for one predictor
// type over arrays, and memory between guard pages.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "codec/codec.hpp"
#include "support/random_source.hpp"

namespace field {

using namespace normans;

inline constexpr scalar_type modelled_types[] = {scalar_type::e4m3fn,   scalar_type::e5m2,
                                                 scalar_type::e4m3fnuz, scalar_type::e5m2fnuz,
                                                 scalar_type::bf16,     scalar_type::fp16};
inline constexpr scalar_type all_types[] = {
    scalar_type::e4m3fn, scalar_type::e5m2, scalar_type::e4m3fnuz, scalar_type::e5m2fnuz,
    scalar_type::bf16,   scalar_type::fp16, scalar_type::raw8};
inline constexpr uint32_t lane_counts[] = {1, 8, 16, 32};
inline constexpr shape_id all_shapes[] = {shape_id::gaussian, shape_id::mixture,
                                          shape_id::mixture_marginal};

using normans_test::page_predictor;

/// A box of scalars with what predicts them. Codes of 8-bit types use the low byte.
struct page {
    block_spec spec;
    std::vector<uint16_t> codes;
    std::vector<float> mean;
    std::vector<uint8_t> sigma;

    page_predictor predictor() const { return {{mean.data()}, {sigma.data()}, {}}; }
};

/// Codes drawn from their own model: means over a few binades, sigma indices over two octaves.
page make_page(uint64_t seed, const block_spec& spec);

/// Codes that have nothing to do with their model: random bits everywhere.
page make_random_page(uint64_t seed, const block_spec& spec);

/// A spec for a box of one row.
block_spec row_spec(scalar_type type, uint32_t count, uint32_t lanes);

std::vector<uint8_t> encode_page(const page& from, encode_result* result = nullptr);

struct decoded_page {
    decode_result result;
    std::vector<uint16_t> codes;
};

/// The output is filled with ones before; result.code may be any status.
decoded_page decode_page(const page& like, const uint8_t* block, size_t bytes);
inline decoded_page decode_page(const page& like, const std::vector<uint8_t>& block)
{
    return decode_page(like, block.data(), block.size());
}

/// Codes as the bytes that the codec takes.
inline std::vector<uint8_t> narrow(const std::vector<uint16_t>& codes)
{
    return std::vector<uint8_t>(codes.begin(), codes.end());
}

/// Memory with an unreadable page on both sides. A block of `size` bytes can touch either one.
class guarded_memory {
public:
    explicit guarded_memory(size_t capacity)
        : page_(size_t(sysconf(_SC_PAGESIZE))),
          inside_((capacity + page_ - 1) / page_ * page_ + page_)
    {
        void* const all =
            mmap(nullptr, inside_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) std::abort();
        base_ = static_cast<uint8_t*>(all);
        if (mprotect(base_ + page_, inside_, PROT_READ | PROT_WRITE) != 0) std::abort();
    }
    guarded_memory(const guarded_memory&) = delete;
    guarded_memory& operator=(const guarded_memory&) = delete;
    ~guarded_memory() { munmap(base_, inside_ + 2 * page_); }

    /// The first byte behind the guard page in front.
    uint8_t* first() { return base_ + page_; }
    /// `size` bytes that end where the guard page behind begins.
    uint8_t* last(size_t size) { return base_ + page_ + inside_ - size; }

    uint8_t* put_first(const void* data, size_t size) { return copy(first(), data, size); }
    uint8_t* put_last(const void* data, size_t size) { return copy(last(size), data, size); }

private:
    static uint8_t* copy(uint8_t* to, const void* data, size_t size)
    {
        if (size != 0) std::memcpy(to, data, size);
        return to;
    }

    size_t page_;
    size_t inside_;
    uint8_t* base_;
};

}  // namespace field
