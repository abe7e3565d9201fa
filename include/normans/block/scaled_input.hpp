#pragma once
// One scalar with a scale as the coder takes it, and what it adds to hashes and row steps: once,
// for host and device.

#include "../core/stream.hpp"
#include "../core/uniform_model.hpp"
#include "row_scale.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {
namespace detail {

struct scaled_input {
    uint32_t mean;  // mu', fp32 bits
    uint32_t sigma_index;
    uint32_t scale_bits;
    code_scale scale;
};

NORMANS_HD inline uint32_t scaled_word(const scaled_input& in, int row_step)
{
    return parameter_word(in.mean, in.sigma_index, row_step) ^ in.scale_bits;
}

// `mean` is in code units.
template <scalar_type Type>
NORMANS_HD void add_to_row(row_statistics& row, const scaled_model<Type>& model,
                           const scaled_input& in, uint32_t mean, uint32_t code)
{
    row.add(model, prepare_in_codes(model, mean, in.sigma_index, statistics_scale, in.scale), code);
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
