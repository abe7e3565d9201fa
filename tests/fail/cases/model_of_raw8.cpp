// expect: raw8 has no model
#include <normans/core/normal.hpp>

#if defined(VALID)
constexpr auto type = normans::scalar_type::bf16;
#else
constexpr auto type = normans::scalar_type::raw8;
#endif

normans::normal_model<type> model{normans::shape_of(normans::shape_id::gaussian), -16, nullptr};
