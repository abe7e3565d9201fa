#pragma once
// What static tables would come to: a tensor's pages by order 0, without predictions, one table for
// all of them (two for 16-bit codes). For comparison only: nothing of it is written.

#include <chrono>

#include "page_coder.hpp"
#include "report.hpp"

namespace kv_file {

namespace detail {

template <class Task>
normans::block_spec static_spec(const Task& task, const normans::order0_tables& tables)
{
    normans::block_spec spec = task.spec;
    spec.coder = normans::coder_id::order0;
    spec.tables = &tables;
    spec.row_scale = false;
    spec.parameter_hash = false;
    spec.shape = normans::shape_id::gaussian;
    spec.marginal = nullptr;
    return spec;
}

template <class Task>
double timed(std::vector<Task>& tasks, unsigned threads)
{
    const auto begin = std::chrono::steady_clock::now();
    code_pages(tasks, threads);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace detail

/// Codes all pages of a page_coder or plane_coder and decodes them again; fails where they do not
/// come back. The stored tables count among the coded bytes.
template <class Coder, class Code>
measurement::static_part code_statically(const Coder& coder, const std::vector<Code>& codes,
                                         const std::string& name, uint32_t lanes, unsigned threads)
{
    measurement::static_part part;
    const uint32_t planes = sizeof(Code);
    uint32_t counts[2][normans::order0_symbols] = {};
    for (uint64_t page = 0; page < coder.pages(); ++page) {
        const auto task = coder.encoding(coder.spec(page), codes.data(), page, nullptr, 0);
        normans::add_order0_counts(task.spec, task.codes, 0, counts);
    }
    std::vector<normans::order0_table> tables(planes);
    for (uint32_t plane = 0; plane < planes; ++plane) {
        uint16_t freq[normans::order0_symbols];
        uint8_t stored[2 * normans::order0_table_words];
        if (normans::order0_normalize(counts[plane], freq) != normans::status::ok ||
            normans::make_order0_table(freq, tables[plane]) != normans::status::ok)
            fail(name, ": no table of its codes");
        part.coded_bytes +=
            2.0 * normans::write_order0_freqs(freq, normans::order0_symbols, stored);
    }
    const normans::order0_tables shared{tables.data(), planes, 0};
    std::vector<Code> back(codes.size());
    std::vector<uint8_t> blocks;
    for (uint64_t first = 0; first < coder.pages(); first += pages_per_call) {
        const auto count = size_t(std::min<uint64_t>(coder.pages() - first, pages_per_call));
        const size_t room = normans::max_encoded_bytes(coder.spec(first));
        blocks.resize(count * room);
        std::vector<encode_task<Code>> encoding;
        for (size_t i = 0; i < count; ++i) {
            encoding.push_back(coder.encoding(coder.spec(first + i), codes.data(), first + i,
                                              blocks.data() + i * room, room));
            encoding.back().spec = detail::static_spec(encoding.back(), shared);
            if (lanes != 0) encoding.back().spec.lanes = lanes;
        }
        part.encode_seconds += detail::timed(encoding, threads);
        std::vector<decode_task<Code>> decoding;
        for (size_t i = 0; i < count; ++i) {
            decoding.push_back(coder.decoding(encoding[i].out, encoding[i].result.bytes,
                                              back.data(), first + i));
            decoding.back().spec = detail::static_spec(decoding.back(), shared);
            part.coded_bytes += double(encoding[i].result.bytes);
        }
        part.decode_seconds += detail::timed(decoding, threads);
        for (size_t i = 0; i < count; ++i)
            if (!encoding[i].result || !decoding[i].result)
                fail(name, ", page ", first + i, " under static tables: ",
                     normans::status_name(encoding[i].result ? decoding[i].result.code
                                                             : encoding[i].result.code));
    }
    if (back != codes) fail(name, " decodes to other bits under static tables");
    return part;
}

}  // namespace kv_file
