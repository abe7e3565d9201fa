// How often the warp model's fast way has to search: the guess is no part of the format, so nothing
// but this and the clock would notice a bad one.

#include "device.hpp"

#include <cstdio>

#include <normans/cuda/warp_codec.cuh>

#include "support/random_scalars.hpp"

namespace {

using namespace normans;
using namespace normans_test;

/// Missed slots of 100,000 that some code owns; the scalars are typical ones.
template <scalar_type Type>
std::uint32_t misses(shape_id shape)
{
    static warp_model<Type> tables;
    static marginal_table marginal;
    block_spec spec;
    spec.dtype = Type;
    spec.shape = shape;
    if (shape == shape_id::mixture_marginal) spec.marginal = &marginal;
    tables.fill(spec, 0, 1);
    const warp_view<Type> model(tables, 1);
    test_rng rng(1 + unsigned(shape));
    std::uint32_t missed = 0;
    for (std::uint32_t i = 0; i < 100000;) {
        const test_scalar one = draw_scalar(rng, format_of(Type), data_style::typical,
                                            spec.sigma_offset);
        const warp_scalar scalar = model.prepare(map_mean(one.mean, one_bits, minus_zero_bits),
                                                 one.sigma, tables.row[rng.below(16)]);
        const std::uint32_t slot = rng.below(rans_format::total);
        if (model.search(scalar, slot).escaped() || model.search(scalar, slot).corrupt()) continue;
        warp_interval found{};
        missed += !model.locate(scalar, slot, found);
        ++i;
    }
    return missed;
}

template <scalar_type Type>
bool within(const char* name, std::uint32_t limit)
{
    bool good = true;
    for (const shape_id shape :
         {shape_id::gaussian, shape_id::mixture, shape_id::mixture_marginal}) {
        const std::uint32_t missed = misses<Type>(shape);
        std::printf("%s, shape %u: %u of 100000 missed, %u allowed\n", name, unsigned(shape),
                    missed, limit);
        good = good && missed <= limit;
    }
    return good;
}

}  // namespace

int main()
{
    const bool e4m3fn = within<scalar_type::e4m3fn>("e4m3fn", 50);
    const bool bf16 = within<scalar_type::bf16>("bf16", 150);
    return e4m3fn && bf16 ? 0 : 1;
}
