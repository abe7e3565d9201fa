// The warp codec, run by fibers (tests/simt), on arbitrary bytes as a block, or on a valid block with
// a few bytes changed, under an arbitrary spec and predictions: its results, codes and bytes are the
// scalar definition's, nothing outside is touched, and every thread returns.

#include "simt/simt.hpp"

#include <normans/cuda/warp_codec.cuh>

#include "fuzz/input.hpp"

using namespace fuzz;

namespace {

template <scalar_type Type, uint32_t Width>
struct on_warps {
    using codec = warp_codec<Type, Width>;
    using code = std::conditional_t<code_bytes(Type) == 1, uint8_t, uint16_t>;

    const page& like;
    simt::options how;

    // f(codec) in all threads of a block; the result that every logical warp has.
    template <class Result, class Function>
    Result run(Function f) const
    {
        Result results[2];
        const std::string error = simt::launch({}, {2 * Width, 1, 1}, how, [&] {
            auto& tables = simt::shared_variable<typename codec::TempStorage>();
            codec::prepare(tables, like.spec, threadIdx.x, blockDim.x);
            __syncthreads();
            const uint32_t warp = threadIdx.x / Width;
            const Result mine = f(codec(tables), warp);
            if (threadIdx.x % Width == 0) results[warp] = mine;
        });
        if (!error.empty()) std::fprintf(stderr, "%s\n", error.c_str());
        require(error.empty(), "the launch failed");
        require(results[0].code == results[1].code && results[0].bytes == results[1].bytes,
                "warps differ");
        return results[0];
    }

    void check_decoder(const std::vector<uint8_t>& block) const
    {
        std::vector<uint16_t> expected;
        const decode_result host =
            decode_any<scalar_backend>(like, block.data(), block.size(), expected);
        gapped_box<code> box(like.spec), other(like.spec);
        const auto device = run<decode_result>([&](const codec& with, uint32_t warp) {
            return with.decode(like.spec, block.data(), block.size(), like.predictor(),
                               box_sink<code>{(warp == 0 ? box : other).view()});
        });
        require(host.code == device.code && host.bytes == device.bytes &&
                    host.mode == device.mode && host.lanes == device.lanes &&
                    host.row_scaled == device.row_scaled,
                "decoders' results differ");
        const std::vector<uint16_t> codes = box.take(), others = other.take();
        if (host) require(codes == expected && others == expected, "decoders' codes differ");
    }

    void check_encoder(size_t capacity) const
    {
        gapped_box<code> box(like.spec);
        box.for_each([&](code& to, size_t i) { to = code(like.codes[i]); });
        std::vector<uint8_t> expected(capacity), made[2] = {expected, expected};
        const encode_result host = encode<scalar_backend>(
            like.spec, box.const_view(), like.predictor(), expected.data(), capacity);
        const auto device = run<encode_result>([&](const codec& with, uint32_t warp) {
            return with.encode(like.spec, box_source<code>{box.const_view()}, like.predictor(),
                               made[warp].data(), capacity);
        });
        require(host.code == device.code && host.bytes == device.bytes &&
                    host.mode == device.mode && host.lanes == device.lanes &&
                    host.escapes == device.escapes && host.row_scaled == device.row_scaled,
                "encoders' results differ");
        if (!host) return;
        for (const std::vector<uint8_t>& one : made)
            require(std::equal(one.begin(), one.begin() + ptrdiff_t(host.bytes), expected.begin()),
                    "encoders' bytes differ");
    }
};

template <scalar_type Type, uint32_t Width>
void check(input& from, block_spec spec)
{
    const uint32_t kind = from.u8(), seed = from.u8();
    spec.dtype = Type;
    spec.lanes = Width;
    spec.coder = coder_id::rans;  // what devices have
    spec.tables = nullptr;
    page like;
    like.spec = spec;
    if (possible(spec))
        like = kind & 1 ? field::make_page(seed, spec) : field::make_random_page(seed, spec);
    const simt::options how{simt::order(seed % 3), seed};
    const on_warps<Type, Width> warps{like, how};

    std::vector<uint8_t> block(from.next, from.end);
    if (kind & 2 && possible(spec)) {
        const size_t bound = max_encoded_bytes(spec);
        warps.check_encoder(kind & 4 ? bound * (kind >> 3) / 32 : bound);
        block.resize(bound);
        const encode_result made = encode_any(like, block.data(), block.size());
        require(made.code == status::ok, "a valid page was not encoded");
        block.resize(made.bytes);
        while (from.left() >= 3) {
            const uint32_t at = from.u16(), change = from.u8();
            if (at == 0xffff) block.resize(block.size() * change / 256);
            else if (!block.empty()) block[at % block.size()] ^= uint8_t(change);
        }
    }
    warps.check_decoder(block);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    input from{data, data + size};
    const uint32_t which = from.u8();
    const block_spec spec = read_spec(from);
    switch (which % 6) {
    case 0: check<scalar_type::e4m3fn, 8>(from, spec); break;
    case 1: check<scalar_type::e4m3fn, 32>(from, spec); break;
    case 2: check<scalar_type::bf16, 8>(from, spec); break;
    case 3: check<scalar_type::bf16, 32>(from, spec); break;
    case 4: check<scalar_type::e5m2fnuz, 16>(from, spec); break;
    default: check<scalar_type::raw8, 8>(from, spec); break;
    }
    return 0;
}
