#pragma once
// The .nkv file: a small head that says which tensors follow, then their blocks, nothing between.
// No table of lengths: a block's header says its own. README.md draws every byte.
// The head is believed only as a whole: its hash must be right, and writing what was read must give
// the same bytes again, so every head has one form. No length in it sizes memory: what a decoder
// allocates is checked against the means' file first.

#include <optional>
#include <string>
#include <vector>

#include "cache.hpp"

namespace kv_file {

/// One k or v tensor of one layer. Both targets share it: they have one geometry and one mean.
struct tensor_record {
    cache_key key;
    std::optional<scalar_type> fp8;
    bool bf16 = false;
    geometry shape;
    uint32_t mean_hash = 0;

    bool has(target what) const { return what == target::fp8 ? fp8.has_value() : bf16; }
    scalar_type dtype(target what) const { return what == target::fp8 ? *fp8 : scalar_type::bf16; }
};

struct container_head {
    uint32_t page_tokens = 64;
    bool affine = true;
    uint64_t profile_fingerprint = 0;
    std::vector<tensor_record> tensors;
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

namespace detail {

constexpr uint8_t container_magic[4] = {0x89, 'N', 'K', 'V'};
constexpr uint8_t container_version = 0;
constexpr size_t fixed_head_bytes = 28;

// Fields of a record's first byte.
constexpr uint32_t kind_bit = 1, fp8_shift = 1, fp8_mask = 7, bf16_bit = 16;
constexpr uint32_t layer_bit = 32, shape_bit = 64;

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

    bool ascends(const cache_key& key) const { return !previous_ || previous_->key < key; }

    void advance(const tensor_record& record)
    {
        previous_ = record;
        shapes_[uint32_t(record.key.second)] = record.shape;
    }

private:
    std::optional<tensor_record> previous_;
    std::optional<geometry> shapes_[2];
};

inline void put_record(std::vector<uint8_t>& to, const tensor_record& record,
                       record_context& context)
{
    const kv_kind kind = record.key.second;
    const bool says_layer = context.expected_key(kind) != record.key;
    const bool says_shape = !(context.expected_shape(kind) == record.shape);
    uint32_t tag = uint32_t(kind) | (record.bf16 ? bf16_bit : 0);
    if (record.fp8) tag |= (uint32_t(*record.fp8) + 1) << fp8_shift;
    if (says_layer) tag |= layer_bit;
    if (says_shape) tag |= shape_bit;
    to.push_back(uint8_t(tag));
    if (says_layer) put_varint(to, record.key.first);
    if (says_shape) {
        put_varint(to, record.shape.tokens);
        put_varint(to, record.shape.heads);
        put_varint(to, record.shape.dim);
    }
    put_u32(to, record.mean_hash);
    context.advance(record);
}

}  // namespace detail

/// The head's bytes, padded to 4: the blocks follow at once.
inline std::vector<uint8_t> head_bytes(const container_head& head)
{
    using namespace detail;
    std::vector<uint8_t> bytes(fixed_head_bytes);
    record_context context;
    for (const tensor_record& record : head.tensors) put_record(bytes, record, context);
    const auto length = uint32_t(bytes.size());
    bytes.resize((bytes.size() + 3) / 4 * 4);
    std::memcpy(bytes.data(), container_magic, sizeof container_magic);
    bytes[4] = container_version;
    bytes[5] = head.affine ? 1 : 0;
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
        head.affine = file_[5] != 0;
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

        record_context context;
        while (next_ < end_) head.tensors.push_back(read_record(context));
        bytes = head_bytes(head);
        if (bytes.size() > file_.size() || !std::equal(bytes.begin(), bytes.end(), file_.begin()))
            broken("an impossible head");
        return head;
    }

private:
    [[noreturn]] void broken(const char* why) const { fail(path_, ": damaged: ", why); }

    uint8_t take()
    {
        if (next_ == end_) broken("its head ends early");
        return file_[next_++];
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

    tensor_record read_record(record_context& context)
    {
        const uint32_t tag = take();
        tensor_record record;
        const auto kind = kv_kind(tag & kind_bit);
        const uint32_t fp8 = tag >> fp8_shift & fp8_mask;
        if (fp8 > uint32_t(scalar_type::e5m2fnuz) + 1) broken("an unknown type");
        if (fp8 != 0) record.fp8 = scalar_type(fp8 - 1);
        record.bf16 = (tag & bf16_bit) != 0;
        record.key = context.expected_key(kind);
        record.shape = context.expected_shape(kind);
        if (tag & layer_bit) record.key.first = take_varint();
        if (tag & shape_bit) {
            record.shape.tokens = take_varint();
            record.shape.heads = take_varint();
            record.shape.dim = take_varint();
        }
        for (unsigned i = 0; i < 4; ++i) record.mean_hash |= uint32_t(take()) << 8 * i;
        if (!context.ascends(record.key)) broken("tensors out of order");
        if (record.shape.channels() > 0x7fffffff) broken("an impossible shape");
        if (!record.fp8 && !record.bf16) broken("a tensor without a target");
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
