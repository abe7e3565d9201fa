#pragma once
// Compressed pages for decode_attention.cuh, decoded where they are used:
//
//     using shape = normans::attention_shape<uint8_t, 64, 8, 16>;   // e4m3fn, head size 64, ...
//     using pages = normans::coded_pool<32, normans::paged_means>;
//     normans::decode_attention<shape>(batch, pages{spec, blocks, largest, means}, stream);
//
// While a tile is multiplied, the blocks of the next one are copied into shared memory; then
// logical warps decode them from there into shared memory. What is decoded never reaches global
// memory. A block that does not decode ends its sequence's KV head with the decoder's status.

#include "decode_attention.cuh"
#include "warp_codec.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// K or V of one KV head of one page. A multiple of 16; null or elsewhere: bad_argument.
struct coded_block {
    const uint8_t* data;
    uint64_t bytes;
};

/// What a predictor is asked for: one block.
struct block_place {
    uint32_t page;  // in the pool
    uint32_t kv_head;
    bool is_value;
    uint32_t sequence;
    uint32_t first_token;  // of the sequence
};

/// Means in pools like the cache's own, a sigma and, unless null, an affine map per channel of a
/// head: [kv_head][channel].
struct paged_means {
    struct side {
        const uint16_t* means;  // bf16
        const uint8_t* sigmas;
        const float* a;
        const float* b;
    };
    side keys, values;
    page_strides strides;
    uint32_t dim;

    __device__ view_predictor<bf16_means, channel_sigmas, channel_affine> operator()(
        const block_place& at) const
    {
        const side& from = at.is_value ? values : keys;
        const size_t channel = size_t(at.kv_head) * dim;
        return {{from.means + ptrdiff_t(at.page) * strides.page +
                     ptrdiff_t(at.kv_head) * strides.head,
                 strides.head, strides.token},
                {from.sigmas + channel, dim},
                {from.a == nullptr ? nullptr : from.a + channel,
                 from.a == nullptr ? nullptr : from.b + channel, dim}};
    }
};

/// A pool of compressed pages. Width: lanes of a block. Predictors: (block_place) -> predictor of
/// that block, on the device; positions it is asked for have head 0.
template <uint32_t Width, class Predictors>
struct coded_pool {
    /// Of a full page: heads 1, tokens and dim those of the attention_shape, its scalar type. The
    /// block of a page that is partly filled holds just the sequence's tokens.
    block_spec spec;
    const coded_block* blocks;  // [pool_pages][kv_heads][2]: K, V
    /// Shared memory for a block, at least the size of the largest; what is larger gets
    /// output_too_small. max_encoded_bytes(spec) is always enough.
    uint32_t largest;
    Predictors predictors;

    template <class Shape>
    class source {
        using code = typename Shape::code;
        static constexpr scalar_type type =
            sizeof(code) == 1 ? scalar_type::e4m3fn : scalar_type::bf16;
        using codec = warp_codec<type, Width>;
        using group = warp_threads<Width>;

    public:
        using tables = typename codec::TempStorage;
        static constexpr uint32_t shared_bytes(const coded_pool& pages)
        {
            return Shape::tile_bytes + 2 * Shape::slots * detail::up_to_16(pages.largest);
        }

        static bool accepts(const coded_pool& pages)
        {
            const block_spec& spec = pages.spec;
            return detail::check_spec(spec) == status::ok &&
                   spec.dtype == type && spec.coder == coder_id::rans && spec.heads == 1 &&
                   spec.tokens == Shape::page_tokens && spec.dim == Shape::dim &&
                   (spec.lanes == 0 || spec.lanes == Width) &&
                   pages.blocks != nullptr && pages.largest >= block_header_bytes &&
                   pages.largest <= max_encoded_bytes(spec) + 15;
        }

        __device__ source(const coded_pool& pages, const detail::attention_walk<Shape>& walk,
                          tables& storage, uint8_t* shared)
            : pages_(pages), walk_(walk), tables_(storage), shared_(shared)
        {
            codec::prepare(storage, pages.spec, threadIdx.x, Shape::threads);
        }

        /// Begins to copy the blocks of a tile, by all threads.
        __device__ void fetch(uint32_t tile)
        {
            for (uint32_t slot = threadIdx.x / Width; slot < Shape::slots;
                 slot += Shape::threads / Width) {
                page_slot page = walk_.look_up(tile, slot);
                const uint8_t* block = nullptr;
                if (page.code == status::ok && page.tokens != 0) {
                    const coded_block from =
                        pages_.blocks[(size_t(page.page) * walk_.batch.kv_heads + walk_.kv_head) *
                                          2 + slot % 2];
                    block = from.data;
                    page.bytes = uint32_t(from.bytes);
                    if (block == nullptr || reinterpret_cast<std::uintptr_t>(block) % 16 != 0)
                        page.code = status::bad_argument;
                    else if (from.bytes > pages_.largest)
                        page.code = status::output_too_small;
                }
                if (group::rank() == 0) walk_.slot_of(tile, slot) = page;
                if (page.code != status::ok) continue;
                uint8_t* to = payload(tile, slot);
                for (uint32_t at = group::rank() * 16; at < page.bytes; at += Width * 16) {
                    const uint32_t left = (page.bytes - at) & ~3u;  // a block is so many words
                    detail::copy_async(to + at, block + at, left < 16 ? left : 16);
                }
            }
        }

        /// Decodes a tile whose blocks have come; a barrier must follow.
        __device__ const uint8_t* ready(uint32_t tile) const
        {
            group::barrier();  // a block's threads have copied it together
            for (uint32_t slot = threadIdx.x / Width; slot < Shape::slots;
                 slot += Shape::threads / Width) {
                page_slot& page = walk_.slot_of(tile, slot);
                if (page.code != status::ok || page.tokens == 0) continue;
                block_spec spec = pages_.spec;
                spec.tokens = page.tokens;
                const auto predictor = pages_.predictors(block_place{
                    page.page, walk_.kv_head, slot % 2 != 0, walk_.sequence,
                    (tile * Shape::tile_pages + slot / 2) * Shape::page_tokens});
                const box_sink<code> sink{
                    {reinterpret_cast<code*>(shared_ + Shape::page_place(slot)), 0,
                     ptrdiff_t(Shape::row_stride / sizeof(code))}};
                const status decoded = codec(tables_).decode(spec, payload(tile, slot), page.bytes,
                                                             predictor, sink).code;
                group::barrier();  // all have read the slot
                if (group::rank() == 0) page.code = decoded;
            }
            return shared_;
        }

    private:
        __device__ uint8_t* payload(uint32_t tile, uint32_t slot) const
        {
            return shared_ + Shape::tile_bytes +
                   (tile % 2 * Shape::slots + slot) * detail::up_to_16(pages_.largest);
        }

        const coded_pool& pages_;
        const detail::attention_walk<Shape>& walk_;
        const tables& tables_;
        uint8_t* shared_;
    };
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
