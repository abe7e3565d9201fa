#pragma once
// From single blocks to bundles and back, for both directions: a Block (block_encoder,
// block_decoder) begins alone, its steps run together with those of its neighbours where they are
// alike, and it ends alone.

#include "backend.hpp"
#include "block_steps.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

/// What begin() leaves to do: nothing (an error), all but steps, or steps too.
enum class block_stage { ended, plain, steps };

// Runs f with the scalar type as a constant, among the modelled types of Code's width.
template <class Code, class Function>
auto with_scalar(scalar_type type, Function f)
{
    using scalar = scalar_type;
    if constexpr (sizeof(Code) == 1) {
        switch (type) {
        case scalar::e5m2: return f(std::integral_constant<scalar, scalar::e5m2>{});
        case scalar::e4m3fnuz: return f(std::integral_constant<scalar, scalar::e4m3fnuz>{});
        case scalar::e5m2fnuz: return f(std::integral_constant<scalar, scalar::e5m2fnuz>{});
        default: return f(std::integral_constant<scalar, scalar::e4m3fn>{});
        }
    } else {
        if (type == scalar::fp16) return f(std::integral_constant<scalar, scalar::fp16>{});
        return f(std::integral_constant<scalar, scalar::bf16>{});
    }
}

// True if two blocks' steps may run together.
inline bool same_steps(const block_spec& x, uint32_t x_lanes, const block_spec& y, uint32_t y_lanes)
{
    return x_lanes == y_lanes && x.dtype == y.dtype && x.coder == y.coder && x.heads == y.heads &&
           x.tokens == y.tokens && x.dim == y.dim && x.sigma_offset == y.sigma_offset &&
           x.shape == y.shape && x.marginal == y.marginal &&
           x.parameter_hash == y.parameter_hash && x.row_scale == y.row_scale;
}

// Whether int8, int4 and e2m1 under rANS run by planes.
template <class Backend, class Job>
constexpr bool scaled_by_planes_v =
    sizeof(typename Job::code_type) == 1 && !std::is_same_v<Backend, scalar_backend>;

// Blocks whose steps run together, begun and not yet coded.
template <class Backend, class Block>
class block_bundle {
    using job = typename Block::job_type;

public:
    /// Runs what the block cannot run with.
    void add(const Block& next)
    {
        if (size_ != 0 && !takes(next)) flush();
        block_[size_++] = next;
    }

    void flush();

private:
    // Callables take much of the time themselves: planes side by side would only take longer to
    // compile.
    static constexpr bool wide = is_array_predictor_v<typename job::predictor_type>;

    bool takes(const Block& next) const
    {
        const uint32_t lanes = next.header.lanes, plane = 32 / lanes;
        const uint32_t all = Backend::blocks_at_once(lanes);
        return size_ < (wide || all < plane ? all : plane) &&
               same_steps(*block_[0].spec, block_[0].header.lanes, *next.spec, lanes) &&
               alike(block_[0].job, next.job);
    }

    void run_floats(const block_spec& spec)
    {
        constexpr bool fp8_by_planes =
            sizeof(typename Block::code) == 1 && !std::is_same_v<Backend, scalar_backend>;
        if constexpr (fp8_by_planes)
            if (block_[0].header.lanes != 1)
                return run_with(any_fp8_model{shape_of(spec.shape), spec.sigma_offset,
                                              spec.marginal, spec.dtype});
        with_scalar<typename Block::code>(spec.dtype, [&](auto type) {
            const normal_model<decltype(type)::value> model{shape_of(spec.shape),
                                                            spec.sigma_offset, spec.marginal};
            if constexpr (fp8_by_planes)
                run<scalar_lanes<1>>(scalar_backend::context<decltype(model)>(model, spec.shape),
                                     backend_id::scalar);
            else run_with(model);
        });
    }

    template <class Model>
    void run_with(const Model& model)
    {
        const auto run_on = [&](auto group, const auto& context, backend_id id) {
            run<decltype(group)>(context, id);
        };
        with_lanes<Backend, wide>(block_[0].header.lanes, size_, model, block_[0].spec->shape,
                                  run_on);
    }

    template <class Lanes, class Context>
    void run(const Context& context, backend_id id)
    {
        using model = std::remove_const_t<std::remove_reference_t<decltype(context.model)>>;
        const typename Lanes::float_mode mode;
        job jobs[Lanes::blocks];
        for (uint32_t i = 0; i < size_; ++i) jobs[i] = block_[i].job;
        inputs_t<Lanes, model, job> inputs(mode, *block_[0].spec, context.model, jobs, size_,
                                           block_[0].header.lanes, context.guess.unit);
        Block::template run<Lanes>(block_, size_, context, inputs, jobs);
        for (uint32_t i = 0; i < size_; ++i) {
            block_[i].job = jobs[i];
            block_[i].end_steps(id, inputs.repairs(i));
        }
    }

    Block block_[Backend::planes * 32 / 8];
    uint32_t size_ = 0;
};

// Not inline: a program may have the loops compiled once.
template <class Backend, class Block>
void block_bundle<Backend, Block>::flush()
{
    if (size_ == 0) return;
    const block_spec& spec = *block_[0].spec;
    if (has_scale(spec.dtype)) {
        if constexpr (scaled_by_planes_v<Backend, job>) run_with(any_scaled_model(spec));
    } else {
        run_floats(spec);
    }
    for (uint32_t i = 0; i < size_; ++i) block_[i].finish();
    size_ = 0;
}

template <class Predictor>
using source_t = decltype(source_of(std::declval<const Predictor&>(),
                                    std::declval<const block_spec&>()));

// Order0: who takes blocks of that coder (order0_decoder.hpp, order0_encoder.hpp).
template <class Backend, class Block, class Order0, class Call>
void code_all(size_t count, Order0 order0, Call call)
{
    block_bundle<Backend, Block> bundle;
    for (size_t i = 0; i < count; ++i) {
        if (order0.take(call(i))) continue;
        Block next;
        const block_stage stage =
            next.template begin<scaled_by_planes_v<Backend, typename Block::job_type>>(call(i));
        if (stage == block_stage::steps) bundle.add(next);
        if (stage == block_stage::plain) next.finish();
    }
    bundle.flush();
    order0.flush();
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
