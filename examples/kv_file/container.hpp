#pragma once
// The .nkv file: a small head that says which tensors follow, then their blocks, nothing between.
// No table of lengths: a block's header says its own. README.md draws every byte.
// The head is believed only as a whole: its hash must be right, and writing what was read must give
// the same bytes again, so every head has one form. No length in it sizes memory: what a decoder
// allocates is checked against the means' file first.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <normans/wire/header.hpp>

#include "cache.hpp"

namespace kv_file {

using normans::coder_id;

/// One k or v tensor of one layer. All targets share it: they have one geometry and one mean.
struct tensor_record {
    cache_key key;
    std::optional<scalar_type> fp8;
    bool bf16 = false;
    std::optional<coder_id> int8;  // how its codes are coded
    std::optional<coder_id> int4;
    coder_id fp8_coder = coder_id::rans;
    geometry shape;
    uint32_t mean_hash = 0;       // of a file with a model's means
    bool drafts[2] = {};          // fp8, bf16: a draft per page lies before the blocks

    bool drafted(target what) const { return !is_quantised(what) && drafts[size_t(what)]; }
    bool has(target what) const
    {
        switch (what) {
        case target::fp8: return fp8.has_value();
        case target::bf16: return bf16;
        case target::int8: return int8.has_value();
        default: return int4.has_value();
        }
    }
    scalar_type dtype(target what) const
    {
        switch (what) {
        case target::fp8: return *fp8;
        case target::bf16: return scalar_type::bf16;
        case target::int8: return scalar_type::int8;
        default: return scalar_type::int4;
        }
    }
    coder_id coder(target what) const
    {
        switch (what) {
        case target::fp8: return fp8_coder;
        case target::bf16: return coder_id::rans;
        case target::int8: return *int8;
        default: return *int4;
        }
    }
};

struct container_head {
    uint32_t page_tokens = 64;
    bool affine = true;
    predictor_choice predictor = predictor_choice::model;
    uint64_t profile_fingerprint = 0;
    uint16_t int8_plan = 0;  // of the banks, packed; 0: no tensor is coded by tANS
    uint16_t int4_plan = 0;
    uint16_t fp8_plan = 0;
    std::vector<tensor_record> tensors;

    uint16_t& plan(target what)
    {
        return what == target::fp8 ? fp8_plan : what == target::int8 ? int8_plan : int4_plan;
    }
};

/// Pages of a tensor; the last may be shorter.
inline uint64_t pages_of(const geometry& shape, uint32_t page_tokens)
{
    if (shape.channels() == 0) return 0;
    return (uint64_t(shape.tokens) + page_tokens - 1) / page_tokens;
}

inline uint32_t tokens_of_page(const geometry& shape, uint32_t page_tokens, uint64_t page)
{
    const uint64_t first = page * page_tokens, left = shape.tokens - first;
    return uint32_t(left < page_tokens ? left : page_tokens);
}

/// What is coded of a target, in the order of the blocks: its codes; before those of a quantised
/// one the scales, and for int4 their signs.
struct plane_shape {
    scalar_type dtype;
    geometry shape;
    uint32_t page_tokens;
    const char* suffix;  // of the tensor's name
};

/// Channels that share a scale; the last group of a head may be smaller.
constexpr uint32_t group_channels = 32;

inline geometry scales_of(const geometry& shape)
{
    return {shape.tokens, shape.heads, uint32_t((uint64_t(shape.dim) + group_channels - 1) /
                                                group_channels)};
}

/// Scales are few: their blocks hold more tokens.
constexpr uint32_t scale_page_tokens = 1024;

inline std::vector<plane_shape> planes_of(target what, scalar_type dtype, const geometry& shape,
                                          uint32_t page_tokens)
{
    std::vector<plane_shape> planes;
    if (is_quantised(what)) {
        const geometry scales = scales_of(shape);
        const uint32_t tokens = std::max(page_tokens, scale_page_tokens);
        planes.push_back({scalar_type::fp16, scales, tokens, "_scale"});
        if (what == target::int4) planes.push_back({scalar_type::int4, scales, tokens, "_sign"});
    }
    planes.push_back({dtype, shape, page_tokens, ""});
    return planes;
}

namespace detail {

constexpr uint8_t container_magic[4] = {0x89, 'N', 'K', 'V'};
constexpr uint8_t container_version = 1;
constexpr size_t fixed_head_bytes = 28;

// Fields of a record's first byte.
constexpr uint32_t kind_bit = 1, fp8_shift = 1, fp8_mask = 7, bf16_bit = 16;
constexpr uint32_t layer_bit = 32, shape_bit = 64, quantised_bit = 128;
// Of its byte of quantised targets and coders, which follows where quantised_bit is set.
constexpr uint32_t int8_bit = 1, int4_bit = 2, int8_tans_bit = 4, int4_tans_bit = 8;
constexpr uint32_t fp8_tans_bit = 16;
// Of the head's byte 5.
constexpr uint8_t affine_flag = 1, plans_flag = 2, no_model_flag = 4, drafts_flag = 8;
constexpr uint8_t fp8_plan_flag = 16;
// Of a record's byte of drafts, there with drafts_flag.
constexpr uint32_t fp8_draft_bit = 1, bf16_draft_bit = 2;

constexpr predictor_choice predictor_of(uint8_t flags)
{
    const bool drafts = (flags & drafts_flag) != 0;
    if (flags & no_model_flag) return drafts ? predictor_choice::lowrank : predictor_choice::none;
    return drafts ? predictor_choice::both : predictor_choice::model;
}

inline void put_varint(std::vector<uint8_t>& to, uint32_t value)
{
    for (; value >= 128; value >>= 7) to.push_back(uint8_t(value | 128));
    to.push_back(uint8_t(value));
}

inline void put_u32(std::vector<uint8_t>& to, uint32_t value)
{
    to.resize(to.size() + 4);
    normans::detail::store_u32(to.data() + to.size() - 4, value);
}

// What a record need not say, because it follows from the records before it.
class record_context {
public:
    /// A v behind a k is of the same layer, all else of the next.
    cache_key expected_key(kv_kind kind) const
    {
        if (!previous_) return {0, kind};
        const bool same = kind == kv_kind::v && previous_->key.second == kv_kind::k;
        return {previous_->key.first + (same ? 0 : 1), kind};
    }

    /// That of the last of its kind, else that of the record before.
    geometry expected_shape(kv_kind kind) const
    {
        const std::optional<geometry>& last = shapes_[uint32_t(kind)];
        if (last) return *last;
        return previous_ ? previous_->shape : geometry{};
    }

    uint32_t quantised() const { return quantised_; }
    void set_quantised(uint32_t byte) { quantised_ = byte; }

    bool ascends(const cache_key& key) const { return !previous_ || previous_->key < key; }

    void advance(const tensor_record& record)
    {
        previous_ = record;
        shapes_[uint32_t(record.key.second)] = record.shape;
    }

private:
    std::optional<tensor_record> previous_;
    std::optional<geometry> shapes_[2];
    uint32_t quantised_ = 0;
};

inline void put_record(std::vector<uint8_t>& to, const tensor_record& record,
                       predictor_choice predictor, record_context& context)
{
    const kv_kind kind = record.key.second;
    const bool says_layer = context.expected_key(kind) != record.key;
    const bool says_shape = !(context.expected_shape(kind) == record.shape);
    uint32_t tag = uint32_t(kind) | (record.bf16 ? bf16_bit : 0);
    if (record.fp8) tag |= (uint32_t(*record.fp8) + 1) << fp8_shift;
    if (says_layer) tag |= layer_bit;
    if (says_shape) tag |= shape_bit;
    uint32_t quantised = 0;
    if (record.int8) quantised |= int8_bit | (*record.int8 == coder_id::tans ? int8_tans_bit : 0);
    if (record.int4) quantised |= int4_bit | (*record.int4 == coder_id::tans ? int4_tans_bit : 0);
    if (record.fp8 && record.fp8_coder == coder_id::tans) quantised |= fp8_tans_bit;
    if (quantised != context.quantised()) tag |= quantised_bit;
    to.push_back(uint8_t(tag));
    if (tag & quantised_bit) to.push_back(uint8_t(quantised));
    context.set_quantised(quantised);
    if (has_drafts(predictor))
        to.push_back(uint8_t((record.drafts[0] ? fp8_draft_bit : 0) |
                             (record.drafts[1] ? bf16_draft_bit : 0)));
    if (says_layer) put_varint(to, record.key.first);
    if (says_shape) {
        put_varint(to, record.shape.tokens);
        put_varint(to, record.shape.heads);
        put_varint(to, record.shape.dim);
    }
    if (has_model(predictor)) put_u32(to, record.mean_hash);
    context.advance(record);
}

}  // namespace detail

/// The head's bytes, padded to 4: the blocks follow at once.
inline std::vector<uint8_t> head_bytes(const container_head& head)
{
    using namespace detail;
    std::vector<uint8_t> bytes(fixed_head_bytes);
    const bool has_plans = head.int8_plan != 0 || head.int4_plan != 0;
    if (has_plans) put_u32(bytes, uint32_t(head.int8_plan) | uint32_t(head.int4_plan) << 16);
    if (head.fp8_plan != 0) {
        bytes.push_back(uint8_t(head.fp8_plan));
        bytes.push_back(uint8_t(head.fp8_plan >> 8));
    }
    record_context context;
    for (const tensor_record& record : head.tensors)
        put_record(bytes, record, head.predictor, context);
    const auto length = uint32_t(bytes.size());
    bytes.resize((bytes.size() + 3) / 4 * 4);
    std::memcpy(bytes.data(), container_magic, sizeof container_magic);
    bytes[4] = container_version;
    bytes[5] = uint8_t((head.affine ? affine_flag : 0) | (has_plans ? plans_flag : 0) |
                       (head.fp8_plan != 0 ? fp8_plan_flag : 0) |
                       (has_model(head.predictor) ? 0 : no_model_flag) |
                       (has_drafts(head.predictor) ? drafts_flag : 0));
    normans::detail::store_u32(&bytes[8], head.page_tokens);
    normans::detail::store_u32(&bytes[12], length);
    normans::detail::store_u64(&bytes[16], head.profile_fingerprint);
    const uint64_t hash = normans::fingerprint_of(bytes.data(), bytes.size());
    normans::detail::store_u32(&bytes[24], uint32_t(hash));
    return bytes;
}

namespace detail {

class head_reader {
public:
    head_reader(const std::string& path, const std::vector<uint8_t>& file)
        : path_(path), file_(file)
    {
    }

    container_head read()
    {
        if (file_.size() < fixed_head_bytes) broken("shorter than its head");
        if (std::memcmp(file_.data(), container_magic, sizeof container_magic) != 0)
            fail(path_, ": not a .nkv file");
        if (file_[4] != container_version)
            fail(path_, ": written by version ", unsigned(file_[4]), " of the format, not ",
                 unsigned(container_version));
        container_head head;
        head.affine = (file_[5] & affine_flag) != 0;
        head.predictor = predictor_of(file_[5]);
        head.page_tokens = normans::detail::load_u32(&file_[8]);
        end_ = normans::detail::load_u32(&file_[12]);
        head.profile_fingerprint = normans::detail::load_u64(&file_[16]);
        if (head.page_tokens == 0 || end_ < fixed_head_bytes || end_ > file_.size())
            broken("an impossible head");

        // The hash first, so that damage is called damage.
        const size_t padded = std::min((end_ + 3) / 4 * 4, file_.size());
        std::vector<uint8_t> bytes(file_.begin(), file_.begin() + std::ptrdiff_t(padded));
        const uint32_t check = normans::detail::load_u32(&bytes[24]);
        normans::detail::store_u32(&bytes[24], 0);
        if (uint32_t(normans::fingerprint_of(bytes.data(), bytes.size())) != check)
            broken("its head is damaged");

        if (file_[5] & plans_flag) {
            head.int8_plan = take_u16();
            head.int4_plan = take_u16();
        }
        if (file_[5] & fp8_plan_flag) head.fp8_plan = take_u16();
        record_context context;
        while (next_ < end_) head.tensors.push_back(read_record(head.predictor, context));
        bytes = head_bytes(head);
        if (bytes.size() > file_.size() || !std::equal(bytes.begin(), bytes.end(), file_.begin()))
            broken("an impossible head");
        check_plan(head, target::int8, head.int8_plan);
        check_plan(head, target::int4, head.int4_plan);
        check_plan(head, target::fp8, head.fp8_plan);
        return head;
    }

private:
    [[noreturn]] void broken(const char* why) const { fail(path_, ": damaged: ", why); }

    uint8_t take()
    {
        if (next_ == end_) broken("its head ends early");
        return file_[next_++];
    }

    uint16_t take_u16()
    {
        const uint32_t low = take();
        return uint16_t(low | uint32_t(take()) << 8);
    }

    // A plan is there where it is needed, only there, and is one.
    void check_plan(const container_head& head, target what, uint16_t packed) const
    {
        const normans::bank_plan plan = normans::unpack_plan(normans::shape_id::gaussian, packed);
        bool used = false, good = normans::pack_plan(plan) == packed;
        for (const tensor_record& record : head.tensors) {
            if (!record.has(what) || record.coder(what) != coder_id::tans) continue;
            used = true;
            good = good && normans::valid_plan(record.dtype(what), plan);
        }
        if (used ? !good : packed != 0) broken("an impossible bank of tables");
    }

    uint32_t take_varint()
    {
        uint64_t value = 0;
        for (unsigned shift = 0; shift < 35; shift += 7) {
            const uint8_t byte = take();
            value |= uint64_t(byte & 127) << shift;
            if (byte < 128) {
                if (value > 0x7fffffff) break;
                return uint32_t(value);
            }
        }
        broken("an impossible number in its head");
    }

    tensor_record read_record(predictor_choice predictor, record_context& context)
    {
        const uint32_t tag = take();
        tensor_record record;
        const auto kind = kv_kind(tag & kind_bit);
        const uint32_t fp8 = tag >> fp8_shift & fp8_mask;
        if (fp8 > uint32_t(scalar_type::e5m2fnuz) + 1) broken("an unknown type");
        if (fp8 != 0) record.fp8 = scalar_type(fp8 - 1);
        record.bf16 = (tag & bf16_bit) != 0;
        const uint32_t quantised = tag & quantised_bit ? take() : context.quantised();
        context.set_quantised(quantised);
        const auto coder = [&](uint32_t bit) {
            return quantised & bit ? coder_id::tans : coder_id::rans;
        };
        if (quantised & int8_bit) record.int8 = coder(int8_tans_bit);
        if (quantised & int4_bit) record.int4 = coder(int4_tans_bit);
        record.fp8_coder = coder(fp8_tans_bit);
        if (has_drafts(predictor)) {
            const uint32_t drafts = take();
            record.drafts[0] = (drafts & fp8_draft_bit) != 0;
            record.drafts[1] = (drafts & bf16_draft_bit) != 0;
        }
        record.key = context.expected_key(kind);
        record.shape = context.expected_shape(kind);
        if (tag & layer_bit) record.key.first = take_varint();
        if (tag & shape_bit) {
            record.shape.tokens = take_varint();
            record.shape.heads = take_varint();
            record.shape.dim = take_varint();
        }
        for (unsigned i = 0; i < 4 && has_model(predictor); ++i)
            record.mean_hash |= uint32_t(take()) << 8 * i;
        if (!context.ascends(record.key)) broken("tensors out of order");
        if (record.shape.channels() > 0x7fffffff) broken("an impossible shape");
        if (!record.fp8 && !record.bf16 && !record.int8 && !record.int4)
            broken("a tensor without a target");
        if ((record.drafts[0] && !record.fp8) || (record.drafts[1] && !record.bf16))
            broken("drafts of what is not there");
        context.advance(record);
        return record;
    }

    const std::string& path_;
    const std::vector<uint8_t>& file_;
    size_t next_ = fixed_head_bytes;
    size_t end_ = 0;
};

}  // namespace detail

/// Throws one line where the head is not exactly what a writer writes.
inline container_head read_head(const std::string& path, const std::vector<uint8_t>& file)
{
    return detail::head_reader(path, file).read();
}

}  // namespace kv_file
