// normans_kv info: what a .nkv file says about itself, without profile or means.

#include <cstdio>

#include <normans/block/compact_block.hpp>
#include <normans/lowrank/draft.hpp>

#include "commands.hpp"
#include "container.hpp"

namespace kv_file {
namespace {

struct block_counts {
    uint64_t modes[4] = {};
    uint64_t row_scaled = 0;
    uint64_t bytes = 0;

    void add(const block_counts& other)
    {
        for (int mode = 0; mode < 4; ++mode) modes[mode] += other.modes[mode];
        row_scaled += other.row_scaled;
        bytes += other.bytes;
    }
};

void print_counts(const std::string& name, const char* what, const block_counts& counts)
{
    const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf("%-24s %-8s %12llu %7llu %6llu %9llu %10llu %11llu\n", name.c_str(), what,
                number(counts.bytes), number(counts.modes[0]), number(counts.modes[1]),
                number(counts.modes[2]), number(counts.modes[3]), number(counts.row_scaled));
}

// Walks a plane's blocks by what they say of their length.
block_counts count_blocks(const std::string& path, const std::vector<uint8_t>& bytes,
                          const plane_shape& plane, coder_id coder, const std::string& name,
                          size_t& at)
{
    block_counts counts;
    for (uint64_t page = 0; page < pages_of(plane.shape, plane.page_tokens); ++page) {
        const uint32_t tokens = tokens_of_page(plane.shape, plane.page_tokens, page);
        const normans::compact_spec spec{plane.dtype, coder, plane.shape.channels() * tokens,
                                         tokens};
        const normans::compact_result found =
            read_compact(spec, bytes.data() + at, bytes.size() - at);
        if (!found)
            fail(path, ": damaged: ", name, ", page ", page, " (",
                 normans::status_name(found.code), ")");
        ++counts.modes[size_t(found.header.mode)];
        counts.row_scaled += (found.header.flags & normans::has_row_steps) != 0 ? 1 : 0;
        counts.bytes += found.compact_bytes;
        at += found.compact_bytes;
    }
    return counts;
}

// Walks the drafts before a target's blocks; how many bytes they have.
uint64_t count_drafts(const std::string& path, const std::vector<uint8_t>& bytes,
                      const tensor_record& record, uint32_t page_tokens, const std::string& name,
                      size_t& at)
{
    const size_t first = at;
    for (uint64_t page = 0; page < pages_of(record.shape, page_tokens); ++page) {
        const uint32_t tokens = tokens_of_page(record.shape, page_tokens, page);
        const auto channels = uint32_t(record.shape.channels());
        normans::draft_header header{};
        const normans::status code = normans::read_draft_header(
            bytes.data() + at, bytes.size() - at, tokens, channels, header);
        if (code != normans::status::ok)
            fail(path, ": damaged: the draft of ", name, ", page ", page, " (",
                 normans::status_name(code), ")");
        at += size_t(normans::draft_bytes(header.rank, tokens, channels));
    }
    return at - first;
}

}  // namespace

int info(const std::string& path)
{
    const std::vector<uint8_t> bytes = read_file(path);
    const container_head head = read_head(path, bytes);
    size_t at = head_bytes(head).size();
    std::printf("%s: %zu bytes, head %zu bytes, pages of %u tokens, predictor %s, affine map %s, "
                "profile %016llx\n",
                path.c_str(), bytes.size(), at, head.page_tokens, predictor_name(head.predictor),
                head.affine ? "on" : "off",
                static_cast<unsigned long long>(head.profile_fingerprint));
    std::printf("%-24s %-8s %12s %7s %6s %9s %10s %11s\n", "tensor", "type", "bytes", "coded",
                "raw", "constant", "predicted", "row-scaled");
    block_counts total, layer;
    for (size_t i = 0; i < head.tensors.size(); ++i) {
        const tensor_record& record = head.tensors[i];
        for (const target what : all_targets) {
            if (!record.has(what)) continue;
            if (record.drafted(what)) {
                const std::string name = tensor_name(record.key, target_name(what));
                block_counts drafts;
                drafts.bytes = count_drafts(path, bytes, record, head.page_tokens, name, at);
                print_counts(name + "_drafts", "", drafts);
                layer.add(drafts);
            }
            for (const plane_shape& plane : planes_of(what, record.dtype(what), record.shape,
                                                       head.page_tokens)) {
                const std::string name = tensor_name(record.key, target_name(what)) + plane.suffix;
                const bool is_codes = plane.suffix[0] == 0;
                const coder_id coder = is_codes ? record.coder(what) : coder_id::rans;
                const block_counts counts =
                    count_blocks(path, bytes, plane, coder, name, at);
                print_counts(name, normans::scalar_name(plane.dtype), counts);
                layer.add(counts);
            }
        }
        if (i + 1 < head.tensors.size() && head.tensors[i + 1].key.first == record.key.first)
            continue;
        print_counts("layer " + std::to_string(record.key.first), "", layer);
        total.add(layer);
        layer = {};
    }
    if (at != bytes.size()) fail(path, ": damaged: bytes behind the last block");
    print_counts("total", "", total);
    return 0;
}

}  // namespace kv_file
