#pragma once
// Boxes of codes that may lie two to a byte, and predictions with scales along a row: what
// warp_scaled.cuh reads and writes. A box's views (box_sink, box_source) take 4-bit codes as
// nibbles; callables get them one by one.

#include "../block/scaled_input.hpp"
#include "row_views.cuh"
#include "warp_lanes.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

template <class View>
constexpr bool is_box_v = false;
template <class Code>
constexpr bool is_box_v<box_sink<Code>> = true;
template <class Code>
constexpr bool is_box_v<box_reference_sink<Code>> = true;
template <class Code>
constexpr bool is_box_v<box_source<Code>> = true;

// A scalar's code from any source.
template <bool Nibbles, class Source>
__device__ uint32_t code_from(const Source& source, const scalar_position& at)
{
    if constexpr (Nibbles && is_box_v<Source>) {
        const ptrdiff_t i = offset_of(at, source.box.head_stride, source.box.token_stride);
        return uint32_t(source.box.data[i >> 1]) >> (i & 1) * 4 & 15;
    } else {
        return source(at);
    }
}

// A box of 4-bit codes, for one logical warp. Neighbours in a row that share a byte write it
// together. Others that share one (rows of odd lengths, or at odd places) take turns: of two that
// do, one is even.
template <uint32_t Width, class Sink>
class packed_sink {
    using threads = warp_threads<Width>;

public:
    __device__ packed_sink(const Sink& sink, uint32_t dim) : sink_(sink), dim_(dim)
    {
        all_pairs_ = Width > 1 && ((ptrdiff_t(dim) | sink.box.head_stride |
                                    sink.box.token_stride) & 1) == 0;
    }

    __device__ void move(const scalar_position& at)
    {
        const ptrdiff_t i = row_offset(at, sink_.box.head_stride, sink_.box.token_stride);
        row_ = kept(sink_.box.data + (i >> 1));
        odd_ = uint32_t(i & 1);
    }
    /// By all threads together; the first `here` have a scalar.
    __device__ void operator()(const scalar_position& at, uint32_t code, uint32_t here) const
    {
        const uint32_t rank = threads::rank();
        const uint32_t next = threads::of_next(code);
        const uint32_t i = at.channel + odd_;
        const bool odd = (i & 1) != 0;
        const bool first = !odd && rank + 1 < here && at.channel + 1 < dim_;
        if (first) row_[i >> 1] = uint8_t(code | next << 4);
        if (all_pairs_) return;
        const bool alone = rank < here && !first && !(odd && rank != 0 && at.channel != 0);
        if (!threads::any(alone)) return;
        for (uint32_t turn = 0; turn < 2; ++turn) {
            threads::barrier();
            if (!alone || odd != (turn != 0)) continue;
            const uint32_t there = row_[i >> 1];
            row_[i >> 1] = uint8_t(odd ? (there & 15) | code << 4 : (there & 0xf0) | code);
        }
        threads::barrier();
    }

private:
    const Sink& sink_;
    uint32_t dim_, odd_ = 0;
    uint8_t* row_ = nullptr;
    bool all_pairs_ = false;
};

// Any sink or source: boxes of 4-bit codes code by code, all others row by row.
template <uint32_t Width, bool Nibbles, class Sink>
class any_sink {
    static constexpr bool packs = Nibbles && is_box_v<Sink>;
    using inner = std::conditional_t<packs, packed_sink<Width, Sink>, sink_rows<Sink>>;

public:
    __device__ any_sink(const Sink& sink, uint32_t dim) : to_(made(sink, dim)) {}
    /// Where a row begins, before its scalars.
    __device__ void move(const scalar_position& at) { to_.move(at); }
    /// By all threads together; the first `here` have a scalar.
    __device__ void operator()(const scalar_position& at, uint32_t code, uint32_t here) const
    {
        if constexpr (packs) to_(at, code, here);
        else if (warp_threads<Width>::rank() < here) to_(at, code);
    }

private:
    static __device__ inner made(const Sink& sink, [[maybe_unused]] uint32_t dim)
    {
        if constexpr (packs) return inner(sink, dim);
        else return inner(sink);
    }

    inner to_;
};

template <bool Nibbles, class Source>
class any_source {
    static constexpr bool packed = Nibbles && is_box_v<Source>;

public:
    __device__ explicit any_source(const Source& source) : source_(source), rows_(source) {}
    __device__ void move([[maybe_unused]] const scalar_position& at)
    {
        if constexpr (!packed) rows_.move(at);
    }
    __device__ uint32_t operator()(const scalar_position& at) const
    {
        if constexpr (packed) return code_from<true>(source_, at);
        else return rows_(at);
    }

private:
    const Source& source_;
    source_rows<Source> rows_;
};

// Any predictor and the spec's scales, row by row (see predictor_rows); types without have 1.
template <class Predictor, bool Scaled = true>
class scaled_rows {
public:
    __device__ scaled_rows(const block_spec& spec, const Predictor& predictor)
        : scales_(spec.scales), predictor_(predictor)
    {
        if (!Scaled || scales_.group == 0) return;
        shift_ = __popc(scales_.group) == 1 ? uint32_t(__popc(scales_.group - 1)) : no_shift;
        length_ = scales_.group < longest ? scales_.group : longest;
    }
    __device__ void move(const scalar_position& at)
    {
        predictor_.move(at);
        if (Scaled)
            row_ = kept(scales_.data + row_offset(at, scales_.head_stride, scales_.token_stride));
        first_ = longest;
    }
    /// Finds the scale, if it is another one than the scalar before had. True in a new row.
    __device__ bool regroup(const scalar_position& at)
    {
        if (at.channel - first_ < length_) return false;
        const uint32_t group =
            shift_ != no_shift ? at.channel >> shift_ : at.channel / scales_.group;
        first_ = group * length_;
        if (Scaled) {
            bits_ = float_to_bits(row_[ptrdiff_t(group) * scales_.group_stride]);
            scale_ = make_scale(bits_);
        }
        return true;
    }
    __device__ const code_scale& scale() const { return scale_; }
    /// After regroup(). The mean is map_mean's but for NaN payloads.
    __device__ scaled_input operator()(const scalar_position& at) const
    {
        const mapped_prediction p = predictor_(at);
        return {p.mean, p.sigma_index, bits_, scale_};
    }

private:
    static constexpr uint32_t no_shift = 32;  // groups of another length than a power of 2
    static constexpr uint32_t longest = uint32_t(1) << 31;

    const scale_view& scales_;
    uint32_t shift_ = 31;  // from a channel to its group; one group in all
    predictor_rows<Predictor> predictor_;
    const float* row_ = nullptr;
    uint32_t length_ = longest, first_ = longest;  // of the group; where it begins, or `longest`
    uint32_t bits_ = 0;
    code_scale scale_{one_bits, one_bits, 0};
};

__device__ inline uint32_t fast_mean_in_codes(const scaled_input& in)
{
    return in.scale.scale == 0 ? 0 : map_mean_fast(in.mean, in.scale.inverse, minus_zero_bits);
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
