#pragma once
// The codes of a workload under static tables, without predictions.

#include <cmath>

#include "workload.hpp"

namespace bench {

enum class table_use { own, shared };

inline double entropy_of(const std::vector<uint32_t>& counts)
{
    double all = 0, bits = 0;
    for (const uint32_t n : counts) all += n;
    for (const uint32_t n : counts)
        if (n != 0) bits -= n * std::log2(n / all);
    return bits;
}

/// One table a page, or one for all.
inline workload<uint8_t> with_tables(workload<uint8_t> work, const std::string& name, table_use use)
{
    std::vector<uint32_t> all(256);
    double bits = 0;
    for (const page<uint8_t>& one : work.pages) {
        std::vector<uint32_t> counts(256);
        for (size_t i = 0; i < one.count; ++i) {
            ++counts[one.box.data[i]];
            ++all[one.box.data[i]];
        }
        bits += entropy_of(counts);
    }
    struct table {
        normans::order0_table memory;
        normans::order0_tables view;
    };
    const auto made = std::make_shared<table>();
    made->view = {&made->memory, 1, 0};
    uint16_t freq[256];
    if (normans::order0_normalize(all.data(), freq) != normans::status::ok ||
        normans::make_order0_table(freq, made->memory) != normans::status::ok)
        throw std::runtime_error("no table for " + name);
    for (page<uint8_t>& one : work.pages) {
        one.spec.coder = normans::coder_id::order0;
        one.spec.row_scale = false;
        one.predictor = normans::no_predictor;
        if (use == table_use::shared) one.spec.tables = &made->view;
    }
    work.name = name;
    work.entropy = (use == table_use::shared ? entropy_of(all) : bits) / double(work.scalars());
    work.owners.push_back(made);
    return work;
}

/// All codes in one block, over and over up to 4 M, which static tables cannot tell.
inline workload<uint8_t> in_one_block(workload<uint8_t> work, const std::string& name)
{
    const auto codes = std::make_shared<std::vector<uint8_t>>();
    for (const page<uint8_t>& one : work.pages)
        codes->insert(codes->end(), one.box.data, one.box.data + one.count);
    const std::vector<uint8_t> once = *codes;
    while (codes->size() < (size_t(1) << 22))
        codes->insert(codes->end(), once.begin(), once.end());
    page<uint8_t> whole = work.pages.front();
    whole.spec.heads = 1;
    whole.spec.tokens = uint32_t(codes->size() / whole.spec.dim);
    whole.count = codes->size();
    whole.box = normans::dense(whole.spec, static_cast<const uint8_t*>(codes->data()));
    work.name = name;
    work.pages = {whole};
    work.pages_per_call = 1;
    work.owners.push_back(codes);
    return work;
}

}  // namespace bench
