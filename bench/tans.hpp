#pragma once
// Workloads of int8 and int4 under tANS: the pages of rANS's rows with a bank of 256 KiB, and for
// the integer-only decoder also with means that need no affine map.

#include <memory>

#include <normans/host/bank.hpp>

#include "catalogue.hpp"
#include "integer_only.hpp"

namespace bench {

inline workload<uint8_t> under_tans(const workload<uint8_t>& from)
{
    using bank = normans::bank_in<std::vector>;
    constexpr size_t budget = size_t(256) << 10;
    workload<uint8_t> work = from;
    const auto rows = std::make_shared<const bank>(
        normans::plan_bank(work.pages.front().spec.dtype, budget).plan);
    for (page<uint8_t>& one : work.pages) {
        one.spec.coder = normans::coder_id::tans;
        one.spec.bank = &rows->bank;
    }
    work.owners.push_back(rows);
    return work;
}

/// The same predictions: mu' as fp32, in scalar order.
inline workload<uint8_t> with_plain_means(const workload<uint8_t>& from)
{
    workload<uint8_t> work = from;
    for (page<uint8_t>& one : work.pages) {
        const normans::block_spec& spec = one.spec;
        const auto means = std::make_shared<std::vector<float>>();
        for (uint32_t head = 0; head < spec.heads; ++head)
            for (uint32_t token = 0; token < spec.tokens; ++token)
                for (uint32_t channel = 0; channel < spec.dim; ++channel)
                    means->push_back(
                        one.predictor({uint32_t(means->size()), head, token, channel}).mean);
        one.predictor.means = {means->data(), ptrdiff_t(uint64_t(spec.tokens) * spec.dim),
                               ptrdiff_t(spec.dim), normans::any_means::fp32};
        one.predictor.affine = {nullptr, nullptr, 0};
        work.owners.push_back(means);
    }
    return work;
}

/// Rows of tANS: by every backend, and by the integer-only decoder.
inline void add_tans(catalogue& rows, const workload<uint8_t>& rans, bool integer_only)
{
    const workload<uint8_t> work = under_tans(rans);
    rows.add_on(work, {"portable", "avx2", "avx512", "neon"});
    if (!integer_only) return;
    rows.add_decoder(work, "integer-only", decode_integer_only);
    rows.add_decoder(with_plain_means(work), "integer-only-plain", decode_integer_only);
}

}  // namespace bench
