#pragma once
// Which lane groups run: chosen by what the unit is compiled for, or named by the caller as
// encode's and decode's first template argument. All give the same bytes.

#include "guess.hpp"
#include "integer_lanes.hpp"
#include "plane_guess.hpp"
#include "plane_inputs.hpp"
#include "planes_portable.hpp"
#include "scalar_lanes.hpp"

#if NORMANS_AVX512
#include "planes_avx512.hpp"
#endif
#if NORMANS_AVX2
#include "planes_avx2.hpp"
#endif
#if NORMANS_NEON
#include "planes_neon.hpp"
#endif

namespace normans {
inline namespace NORMANS_NAMESPACE {

/// One lane after the other: the definition.
struct scalar_backend {
    static constexpr backend_id id = backend_id::scalar;
    static constexpr uint32_t planes = 1;
    static constexpr uint32_t blocks_at_once(uint32_t) { return 1; }

    template <class Model>
    struct context {
        Model model;
        struct unitless_guess : piecewise_guess {
            using piecewise_guess::piecewise_guess;
            static constexpr float unit = 0.0f;
        } guess;
        context(const Model& m, shape_id) : model(m), guess(m.shape) {}
    };
};

/// Planes of V, up to `Planes` side by side; blocks of one lane stay scalar.
template <template <uint32_t> class V, template <class> class Guess, uint32_t Planes,
          backend_id Id>
struct plane_backend {
    static constexpr backend_id id = Id;
    static constexpr uint32_t planes = Planes;
    static constexpr uint32_t blocks_at_once(uint32_t lanes)
    {
        return lanes == 1 ? 1 : Planes * 32 / lanes;
    }

    template <class Model, uint32_t N>
    using group = std::conditional_t<Model::format.is_integer, integer_lanes<V<N>>,
                                     plane_lanes<V<N>>>;

    template <class Model, uint32_t N>
    struct context {
        plane_model<V<N>, Model> model;
        Guess<V<N>> guess;
        context(const Model& m, shape_id shape) : model(m, shape), guess(shape) {}
    };
};

// NORMANS_SCALAR_ONLY, for all units of a program: encode() and decode() take no planes unless told
// so. Slow, and compiled fast.
using portable_backend = plane_backend<portable_planes, gather_guess, 1, backend_id::portable>;
#if NORMANS_AVX2
using avx2_backend = plane_backend<avx2_planes, gather_guess, 2, backend_id::avx2>;
#endif
#if NORMANS_AVX512
using avx512_backend = plane_backend<avx512_planes, gather_guess, 4, backend_id::avx512>;
#elif NORMANS_NEON
using neon_backend = plane_backend<neon_planes, register_guess, 1, backend_id::neon>;
#endif
#if defined(NORMANS_SCALAR_ONLY)
using default_backend = scalar_backend;
#elif NORMANS_AVX512
using default_backend = avx512_backend;
#elif NORMANS_AVX2
using default_backend = avx2_backend;
#elif NORMANS_NEON
using default_backend = neon_backend;
#else
using default_backend = portable_backend;
#endif

namespace detail {

template <class Lanes>
struct inputs_for;
template <uint32_t Width>
struct inputs_for<scalar_lanes<Width>> {
    template <class Model, class Job>
    using type = scalar_inputs<scalar_lanes<Width>, Model, Job>;
};
template <class V>
struct inputs_for<plane_lanes<V>> {
    template <class Model, class Job>
    using type = plane_inputs<plane_lanes<V>, Model, Job>;
};

template <class V>
struct inputs_for<integer_lanes<V>> {
    template <class Model, class Job>
    using type = plane_inputs<integer_lanes<V>, Model, Job>;
};

template <class Lanes, class Model, class Job>
using inputs_t = typename inputs_for<Lanes>::template type<Model, Job>;

// Integers, and fp8 types as one, take planes only.
template <class Model>
constexpr bool planes_only_v = Model::format.is_integer || std::is_same_v<Model, any_fp8_model>;

// Runs f(group, context, id) for `blocks` blocks of `lanes` lanes.
template <class Backend, bool Wide, class Model, class Function>
void with_lanes(uint32_t lanes, uint32_t blocks, const Model& model, shape_id shape, Function f)
{
    const auto scalar = [&](auto group) {
        f(group, typename scalar_backend::context<Model>(model, shape), backend_id::scalar);
    };
    if constexpr (!planes_only_v<Model>)
        if (lanes == 1) return scalar(scalar_lanes<1>{});
    if constexpr (std::is_same_v<Backend, scalar_backend>) {
        scalar(scalar_lanes<max_lanes>{});
    } else {
        if constexpr (Wide && Backend::planes > 1) {
            constexpr uint32_t all = Backend::planes;
            if (blocks * lanes > 32)
                return f(typename Backend::template group<Model, all>{},
                         typename Backend::template context<Model, all>(model, shape),
                         Backend::id);
        }
        f(typename Backend::template group<Model, 1>{},
          typename Backend::template context<Model, 1>(model, shape), Backend::id);
    }
}

}  // namespace detail

}  // namespace NORMANS_NAMESPACE
}  // namespace normans
