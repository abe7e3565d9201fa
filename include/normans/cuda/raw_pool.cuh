#pragma once
// Uncompressed pages for decode_attention.cuh: codes as an engine's cache holds them.

#include "decode_attention.cuh"

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// A pool of pages in device memory. Pointers and strides are multiples of 16 bytes.
template <class Code>
struct raw_pool {
    const Code* keys;
    const Code* values;
    page_strides strides;

    template <class Shape>
    class source {
        static constexpr uint32_t width = 32;

    public:
        struct tables {};
        static constexpr uint32_t shared_bytes(const raw_pool&) { return 2 * Shape::tile_bytes; }

        static bool accepts(const raw_pool& pages)
        {
            static_assert(std::is_same_v<Code, typename Shape::code>);
            const auto even = [](ptrdiff_t elements) {
                return elements * ptrdiff_t(sizeof(Code)) % 16 == 0;
            };
            const auto placed = [](const Code* at) {
                return at != nullptr && reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
            };
            return placed(pages.keys) && placed(pages.values) && even(pages.strides.page) &&
                   even(pages.strides.token) && even(pages.strides.head);
        }

        __device__ source(const raw_pool& pages, const detail::attention_walk<Shape>& walk,
                          tables&, uint8_t* shared)
            : pages_(pages), walk_(walk), shared_(shared)
        {
        }

        /// Begins to copy a tile, by all threads.
        __device__ void fetch(uint32_t tile)
        {
            const uint32_t lane = threadIdx.x % width;
            for (uint32_t slot = threadIdx.x / width; slot < Shape::slots;
                 slot += Shape::threads / width) {
                const page_slot page = walk_.look_up(tile, slot);
                if (lane == 0) walk_.slot_of(tile, slot) = page;
                if (page.code != status::ok || page.tokens == 0) continue;
                const Code* from = (slot % 2 == 0 ? pages_.keys : pages_.values) +
                                   ptrdiff_t(page.page) * pages_.strides.page +
                                   ptrdiff_t(walk_.kv_head) * pages_.strides.head;
                uint8_t* to = rows(tile) + Shape::page_place(slot);
                constexpr uint32_t pieces = Shape::row_bytes / 16;
                for (uint32_t i = lane; i < page.tokens * pieces; i += width) {
                    const uint32_t token = i / pieces, at = i % pieces * 16;
                    detail::copy_async(to + token * Shape::row_stride + at,
                                       reinterpret_cast<const uint8_t*>(
                                           from + ptrdiff_t(token) * pages_.strides.token) + at,
                                       16);
                }
            }
        }

        /// The rows of a tile whose copies have come; a barrier must follow.
        __device__ const uint8_t* ready(uint32_t tile) const { return rows(tile); }

    private:
        __device__ uint8_t* rows(uint32_t tile) const
        {
            return shared_ + tile % 2 * Shape::tile_bytes;
        }

        const raw_pool& pages_;
        const detail::attention_walk<Shape>& walk_;
        uint8_t* shared_;
    };
};

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
