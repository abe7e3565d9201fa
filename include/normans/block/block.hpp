#pragma once
// What a block is to its caller: the spec, boxes of codes in memory, results, and the walk through
// a box in scalar order: index = (head * tokens + token) * dim + channel, whatever the strides.

#include <cstring>

#include "../core/normal.hpp"
#include "../core/order0_table.hpp"
#include "../core/stream.hpp"
#include "../wire/header.hpp"
#include "predictor.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Scales of int8, int4 and e2m1 codes, one per `group` adjacent channels of a row (0: per row), at
/// data[head * head_stride + token * token_stride + channel / group * group_stride]. Strides of 0
/// serve one scale for all.
struct scale_view {
    const float* data = nullptr;
    ptrdiff_t head_stride = 0;
    ptrdiff_t token_stride = 0;
    ptrdiff_t group_stride = 0;
    uint32_t group = 0;

    NORMANS_HD float operator()(const scalar_position& at) const
    {
        const ptrdiff_t index = group == 0 ? 0 : ptrdiff_t(at.channel / group);
        return data[ptrdiff_t(at.head) * head_stride + ptrdiff_t(at.token) * token_stride +
                    index * group_stride];
    }
};

/// Tables that many blocks share, the caller's. Channels count through all heads: that of (head,
/// channel) is head * dim + channel, and `group` adjacent ones share a table (0: all). Types of 16
/// bits take two tables per group, that of the high bytes first.
struct order0_tables {
    const order0_table* table = nullptr;
    uint32_t count = 0;
    uint32_t group = 0;
};

/// Tables for `channels` = heads * dim channels of a type with `planes` = 1 or 2 bytes.
NORMANS_HD constexpr uint64_t order0_tables_needed(uint64_t channels, uint32_t group,
                                                   uint32_t planes)
{
    return planes * (group == 0 ? 1 : (channels + group - 1) / group);
}

/// What both sides agree on about a block. The decoder checks all of it that the block states.
struct block_spec {
    scalar_type dtype = scalar_type::e4m3fn;
    uint32_t heads = 1;
    uint32_t tokens = 1;
    uint32_t dim = 0;
    uint32_t lanes = 0;  // 1, 8, 16, 32; 0: default_lanes(count) when encoding, any when decoding
    int sigma_offset = default_sigma_offset;
    shape_id shape = shape_id::gaussian;
    const marginal_table* marginal = nullptr;  // for shape_id::mixture_marginal only
    coder_id coder = coder_id::rans;  // tans: types of at most 8 bits, with a bank; order0: no
                                      // predictions
    const tans_bank* bank = nullptr;  // of the type, with `shape`; encoders need all of it
    const order0_tables* tables = nullptr;  // of order 0, if blocks share some
    scale_view scales{};              // of int8, int4 and e2m1 (order 0 needs none)
    bool row_scale = false;        // the encoder may store row steps, and does where they pay
    bool content_check = true;     // off: damage can pass; the decoder insists on what is set here
    bool parameter_hash = false;   // explains a failed content check: "your predictor drifted"
    bool has_fingerprint = false;  // `fingerprint` is the caller's name for predictor + profile
    uint64_t fingerprint = 0;
};

/// Scalars in a spec's box.
NORMANS_HD constexpr uint64_t count_of(const block_spec& spec)
{
    const uint64_t rows = uint64_t(spec.heads) * spec.tokens;
    return rows > 0xffffffffu || rows * spec.dim > 0x7fffffffu ? ~uint64_t(0) : rows * spec.dim;
}

/// Codes in memory: strides in elements between heads and between tokens, channels adjacent. 4-bit
/// codes lie two to a byte, element 2 i in the low nibble of data[i]; boxes must not share a byte.
template <class Code>
struct box_view {
    Code* data;
    ptrdiff_t head_stride;
    ptrdiff_t token_stride;
};

/// A box whose codes lie in scalar order.
template <class Code>
NORMANS_HD constexpr box_view<Code> dense(const block_spec& spec, Code* data)
{
    return {data, ptrdiff_t(uint64_t(spec.tokens) * spec.dim), ptrdiff_t(spec.dim)};
}

/// Which code ran the steps; all give the same bytes.
enum class backend_id : uint8_t { scalar, portable, avx2, avx512, neon, warp };

constexpr const char* backend_name(backend_id id)
{
    switch (id) {
    case backend_id::scalar: return "scalar";
    case backend_id::portable: return "portable";
    case backend_id::avx2: return "avx2";
    case backend_id::avx512: return "avx512";
    case backend_id::neon: return "neon";
    case backend_id::warp: return "warp";
    }
    return "unknown backend";
}

struct [[nodiscard]] encode_result {
    status code = status::bad_argument;
    size_t bytes = 0;         // written; if output_too_small: always enough
    block_mode mode = block_mode::raw;
    uint32_t lanes = 0;
    bool row_scaled = false;
    uint32_t escapes = 0;  // scalars without a slot of their own
    uint32_t repairs = 0;  // scalars that fell back to the scalar definition (far ones, say)
    backend_id backend = backend_id::scalar;  // what coded the steps; one lane is always scalar
    constexpr explicit operator bool() const { return code == status::ok; }
};

struct [[nodiscard]] decode_result {
    status code = status::bad_argument;
    size_t bytes = 0;  // of the block
    block_mode mode = block_mode::raw;
    uint32_t lanes = 0;
    bool row_scaled = false;
    uint32_t repairs = 0;  // scalars that fell back: far ones, or the first guess missed
    backend_id backend = backend_id::scalar;
    constexpr explicit operator bool() const { return code == status::ok; }
};

/// Bytes that always suffice for a block: 16 + fingerprint 8 + parameter hash 4, if asked for,
/// + the raw codes rounded up to 4. (A coded block is kept only where it is smaller than raw.)
/// 0 if the spec is impossible.
NORMANS_HD constexpr size_t max_encoded_bytes(const block_spec& spec)
{
    const uint64_t count = count_of(spec);
    if (count == ~uint64_t(0) || !valid_scalar(spec.dtype)) return 0;
    return size_t(block_header_bytes + (spec.has_fingerprint ? 8 : 0) +
                  (spec.parameter_hash ? 4 : 0) +
                  detail::round_up_4(raw_bytes(spec.dtype, count)));
}

namespace detail {

NORMANS_HD inline bool enough_tables(const block_spec& spec)
{
    return spec.tables == nullptr ||
           (spec.tables->table != nullptr &&
            spec.tables->count >= order0_tables_needed(uint64_t(spec.heads) * spec.dim,
                                                       spec.tables->group,
                                                       code_bytes(spec.dtype)));
}

NORMANS_HD inline bool is_bank_for(const block_spec& spec)
{
    return spec.bank != nullptr && spec.bank->grid == bank_grid(spec.dtype) &&
           valid_plan(spec.dtype, spec.bank->plan) && spec.bank->plan.shape == spec.shape;
}

NORMANS_HD inline status check_spec(const block_spec& spec)
{
    const bool needs_marginal = spec.shape == shape_id::mixture_marginal;
    const bool banked = spec.coder == coder_id::tans, counted = spec.coder == coder_id::order0;
    const bool scaled = has_scale(spec.dtype) && !counted;
    const bool good = valid_scalar(spec.dtype) && can_code(spec.coder, spec.dtype) &&
                      (!scaled || !needs_marginal) &&
                      (!scaled || spec.scales.data != nullptr || count_of(spec) == 0) &&
                      (!banked || is_bank_for(spec)) &&
                      count_of(spec) != ~uint64_t(0) &&
                      (spec.lanes == 0 || valid_lanes(spec.lanes)) && valid_shape(spec.shape) &&
                      needs_marginal == (spec.marginal != nullptr) &&
                      (!counted || (!spec.parameter_hash && enough_tables(spec))) &&
                      spec.sigma_offset >= min_sigma_offset &&
                      spec.sigma_offset <= max_sigma_offset;
    return good ? status::ok : status::bad_argument;
}

// Walks a box in scalar order from any scalar on.
class box_walker {
public:
    box_walker(const block_spec& spec, uint32_t index)
        : spec_(spec), at_{index, 0, 0, index % spec.dim}
    {
        const uint32_t row = index / spec.dim;
        at_.head = row / spec.tokens;
        at_.token = row % spec.tokens;
    }

    const scalar_position& position() const { return at_; }

    void next() { skip(1); }

    /// Scalars from here to the end of the row.
    uint32_t left() const { return spec_.dim - at_.channel; }

    /// Forward by at most left().
    void skip(uint32_t scalars)
    {
        at_.index += scalars;
        at_.channel += scalars;
        if (at_.channel != spec_.dim) return;
        at_.channel = 0;
        if (++at_.token != spec_.tokens) return;
        at_.token = 0;
        ++at_.head;
    }

    /// Forward by any number that stays in the box (or ends it).
    void forward(uint32_t scalars)
    {
        for (; scalars > left(); skip(left())) scalars -= left();
        skip(scalars);
    }

    /// Backward by any number that stays in the box.
    void back(uint32_t scalars)
    {
        at_.index -= scalars;
        for (; scalars > at_.channel; at_.channel = spec_.dim) {
            scalars -= at_.channel;
            if (at_.token == 0) {
                at_.token = spec_.tokens;
                --at_.head;
            }
            --at_.token;
        }
        at_.channel -= scalars;
    }

private:
    const block_spec& spec_;
    scalar_position at_;
};

template <class Code>
NORMANS_HD Code& element(const box_view<Code>& box, const scalar_position& at)
{
    return box.data[ptrdiff_t(at.head) * box.head_stride +
                    ptrdiff_t(at.token) * box.token_stride + ptrdiff_t(at.channel)];
}

// Runs f(offset, position, length) over the pieces of rows that make up the next `count` scalars.
template <class Function>
void for_runs(box_walker walker, uint32_t count, Function f)
{
    for (uint32_t done = 0; done < count;) {
        const uint32_t length = count - done < walker.left() ? count - done : walker.left();
        f(done, walker.position(), length);
        walker.skip(length);
        done += length;
    }
}

NORMANS_HD inline uint32_t clean_mean(const prediction& p)
{
    return map_mean(float_to_bits(p.mean), one_bits, minus_zero_bits);
}

/// The row steps of a block, 0 everywhere where it has none.
struct row_steps_view {
    const uint8_t* packed = nullptr;  // as blocks hold them
    row_step_window window{};

    /// Step + 6 of a token.
    NORMANS_HD uint32_t nibble(uint32_t token) const
    {
        const uint32_t bits = window.bits;
        if (bits == 0) return window.lowest;
        const uint32_t at = token % 8 * bits, first = token / 8 * bits + at / 8;
        uint32_t value = packed[first];
        if (at % 8 + bits > 8) value |= uint32_t(packed[first + 1]) << 8;
        return window.lowest + (value >> at % 8 & ((1u << bits) - 1));
    }
    NORMANS_HD int operator()(uint32_t token) const { return int(nibble(token)) + min_row_step; }
};

/// Those of a block with this header and layout.
NORMANS_HD inline row_steps_view row_steps_of(const uint8_t* block, const block_header& header,
                                              const block_layout& at)
{
    return {block + at.row_steps, header.rows};
}

// The sums of all lanes, forward over scalars i in order: content checks outside the coder's loop.
struct check_sums {
    running_sums lane[max_lanes];

    uint32_t total(uint32_t lanes) const
    {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < lanes; ++i) sum += lane[i].share(i);
        return sum;
    }

    // After a pass from the last scalar to the first.
    void reverse(uint32_t lanes, uint32_t count)
    {
        for (uint32_t i = 0; i < lanes; ++i)
            lane[i].reverse(count / lanes + (i < count % lanes ? 1 : 0));
    }
};

}  // namespace detail

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
