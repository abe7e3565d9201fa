#pragma once
// Which lane groups run: chosen by what the unit is compiled for, or named by the caller as
// encode's and decode's first template argument. All give the same bytes.

#include "block.hpp"
#include "guess.hpp"
#include "portable_lanes.hpp"
#include "vector_lanes.hpp"

#if NORMANS_AVX2
#include "vec_avx2.hpp"
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// Plain C++: the definition.
struct portable_backend {
    static constexpr backend_id id = backend_id::portable;

    template <uint32_t Lanes>
    using group = portable_lanes<Lanes>;

    template <class Model>
    struct context {
        Model model;
        piecewise_guess guess;
        context(const Model& m, shape_id) : model(m), guess(m.shape) {}
    };
};

/// SIMD registers of V; one lane alone stays scalar.
template <class V, backend_id Id>
struct vector_backend {
    static constexpr backend_id id = Id;

    template <uint32_t Lanes>
    using group = vector_lanes<V, Lanes>;

    template <class Model>
    struct context {
        vector_model<V, Model> model;
        const gather_guess& guess;
        context(const Model& m, shape_id shape) : model(m), guess(gather_guess_of(shape)) {}
    };
};

#if NORMANS_AVX2
using avx2_backend = vector_backend<avx2_vec, backend_id::avx2>;
using default_backend = avx2_backend;
#else
using default_backend = portable_backend;
#endif

namespace detail {

// Runs f(group, context) for the block's lane count; returns the backend that f ran on.
template <class Backend, class Model, class Function>
backend_id with_lanes(uint32_t lanes, const Model& model, shape_id shape, Function f)
{
    if (lanes == 1) {
        f(portable_lanes<1>{}, typename portable_backend::context<Model>(model, shape));
        return backend_id::portable;
    }
    const typename Backend::template context<Model> context(model, shape);
    switch (lanes) {
    case 8: f(typename Backend::template group<8>{}, context); break;
    case 16: f(typename Backend::template group<16>{}, context); break;
    default: f(typename Backend::template group<32>{}, context); break;
    }
    return Backend::id;
}

}  // namespace detail

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
