#pragma once
// What is coded: pages of codes with what is known about them, and how many go into one call.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "blocks.hpp"

namespace bench {

/// One block. Its codes fill `count` adjacent places from box.data on (4-bit codes lie two to a
/// byte), whatever the box's strides.
template <class Code>
struct page {
    normans::block_spec spec;  // as an encoder needs it
    normans::box_view<const Code> box;
    normans::array_predictor predictor;
    size_t count;

    size_t bytes() const { return size_t(normans::raw_bytes(spec.dtype, count)); }  // of codes
};

template <class Code>
struct workload {
    std::string type;  // the name of the scalar type
    std::string name;  // the last part of its rows' names
    std::vector<page<Code>> pages;
    size_t pages_per_call;
    bool all_coded;  // a block in another mode is an error
    std::vector<std::shared_ptr<const void>> owners;  // of what the pages point to
    double entropy = 0;  // bits per scalar that static tables cannot go below; 0: not asked for
    std::optional<double> ideal_bits{};  // per scalar, of the drawn codes under their Gaussians

    size_t scalars() const
    {
        size_t sum = 0;
        for (const page<Code>& one : pages) sum += one.count;
        return sum;
    }
    size_t bytes() const
    {
        size_t sum = 0;
        for (const page<Code>& one : pages) sum += one.bytes();
        return sum;
    }
    double bytes_per_scalar() const { return double(bytes()) / double(scalars()); }
};

}  // namespace bench
