#pragma once
// Workloads of int8 and int4 under tANS: the pages of rANS's rows with a bank of 256 KiB, and for
// the integer-only decoder also with means that need no affine map, as fp32 and in code units.

#include <cstring>
#include <memory>

#include <normans/host/bank.hpp>
#include <normans/host/integer_decoder.hpp>

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

/// The same predictions to 1/256 of a code, as an engine that computes in integers has them: fp32
/// for the encoder, behind them fixed_means.
inline workload<uint8_t> with_fixed_means(const workload<uint8_t>& plain)
{
    workload<uint8_t> work = plain;
    for (page<uint8_t>& one : work.pages) {
        const normans::block_spec& spec = one.spec;
        const normans::scalar_format format = normans::format_of(spec.dtype);
        const size_t count = size_t(normans::count_of(spec));
        const auto means = std::make_shared<std::vector<float>>(count + (count + 1) / 2);
        std::vector<uint16_t> all;
        for (uint32_t head = 0; head < spec.heads; ++head)
            for (uint32_t token = 0; token < spec.tokens; ++token)
                for (uint32_t channel = 0; channel < spec.dim; ++channel) {
                    const normans::scalar_position at{uint32_t(all.size()), head, token, channel};
                    const uint32_t scale = normans::float_to_bits(spec.scales(at));
                    const uint32_t fixed =
                        normans::fixed_mean(format, normans::float_to_bits(one.predictor(at).mean),
                                            normans::make_scale(scale));
                    (*means)[all.size()] =
                        normans::bits_to_float(normans::mean_of_fixed(format, fixed, scale));
                    all.push_back(uint16_t(fixed));
                }
        std::memcpy(means->data() + count, all.data(), count * sizeof(uint16_t));
        one.predictor.means.data = means->data();
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
    const workload<uint8_t> plain = with_plain_means(work);
    rows.add_decoder(plain, "integer-only-plain", decode_integer_only);
    rows.add_decoder(with_fixed_means(plain), "integer-only-fixed", decode_integer_only_fixed);
}

}  // namespace bench
