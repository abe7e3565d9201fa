#pragma once
// The four fp8 types as one: planes take what tells them apart as numbers at run time, so that a
// unit compiles their steps once.

#include <type_traits>

#include "../block/row_scale.hpp"

namespace normans {
inline namespace NORMANS_NAMESPACE {

namespace detail {
// What is the same for all.
struct fp8_codes {
    unsigned code_bits;
    bool is_integer;
    constexpr uint32_t code_sign() const { return 0x80; }
};
}  // namespace detail

/// normal_model of whichever fp8 type is wanted, for the lanes that leave the fast path.
class any_fp8_model {
public:
    static constexpr detail::fp8_codes format{8, false};

    normal_shape shape;
    int sigma_offset;
    const marginal_table* marginal;
    scalar_type type;

    /// f(the normal_model)
    template <class Function>
    decltype(auto) by(Function f) const
    {
        switch (type) {
        case scalar_type::e5m2: return f(as<scalar_type::e5m2>());
        case scalar_type::e4m3fnuz: return f(as<scalar_type::e4m3fnuz>());
        case scalar_type::e5m2fnuz: return f(as<scalar_type::e5m2fnuz>());
        default: return f(as<scalar_type::e4m3fn>());
        }
    }

    scalar_format codes() const { return format_of(type); }

    NORMANS_NOINLINE scalar_model prepare_sloped(uint32_t mean, uint32_t sigma_index,
                                                 uint32_t slope) const
    {
        return by([&](const auto& model) {
            return model.prepare_sloped(mean, sigma_index, slope);
        });
    }
    NORMANS_NOINLINE interval find(const scalar_model& m, uint32_t code) const
    {
        return by([&](const auto& model) { return model.find(m, code); });
    }
    NORMANS_NOINLINE interval locate(const scalar_model& m, uint32_t slot, int guess) const
    {
        return by([&](const auto& model) { return model.locate(m, slot, guess); });
    }
    interval locate_far(const scalar_model& m, uint32_t slot) const
    {
        return by([&](const auto& model) { return model.locate_far(m, slot); });
    }
    friend void add_exact(row_statistics& row, const any_fp8_model& model, const scalar_model& m,
                          uint32_t code)
    {
        model.by([&](const auto& one) { row.add(one, m, code); });
    }

private:
    template <scalar_type Type>
    normal_model<Type> as() const
    {
        return {shape, sigma_offset, marginal};
    }
};

namespace detail {

template <class Model>
scalar_format codes_of(const Model&)
{
    return Model::format;
}
inline scalar_format codes_of(const any_fp8_model& model) { return model.codes(); }

template <class Model>
uint32_t weight_origin_of(const Model& model)
{
    return row_weight_origin<Model>(model.shape);
}
inline uint32_t weight_origin_of(const any_fp8_model& model)
{
    return model.by([](const auto& one) {
        return row_weight_origin<std::decay_t<decltype(one)>>(one.shape);
    });
}

}  // namespace detail
}  // namespace NORMANS_NAMESPACE
}  // namespace normans
