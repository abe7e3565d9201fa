#pragma once
// nvCOMP's ANS on the same pages, a chunk each, where its library was given to the build
// (-DNORMANS_NVCOMP=FOLDER: include/ and lib64/ of its wheel). It has no predictions to code under.

#include <cstring>
#include <string>

#include "data.hpp"
#include "timing.cuh"

#if defined(NORMANS_BENCH_NVCOMP)
#include <nvcomp/ans.h>
#endif

namespace bench {

#if defined(NORMANS_BENCH_NVCOMP)

inline void check(nvcompStatus_t status)
{
    if (status != nvcompSuccess)
        throw std::runtime_error("status " + std::to_string(int(status)));
}

struct nvcomp_chunks {
    nvcompBatchedANSCompressOpts_t to = nvcompBatchedANSCompressDefaultOpts;
    nvcompBatchedANSDecompressOpts_t back = nvcompBatchedANSDecompressDefaultOpts;

    std::size_t count, bytes, slot = 0, temporary = 0;
    cudaStream_t stream;
    device_memory<void*> raw_at, coded_at, back_at;
    device_memory<std::size_t> raw_bytes, coded_bytes, back_bytes;
    device_memory<nvcompStatus_t> outcomes;

    nvcomp_chunks(std::size_t chunks, std::size_t chunk_bytes, cudaStream_t on)
        : count(chunks), bytes(chunk_bytes), stream(on), raw_at(chunks), coded_at(chunks),
          back_at(chunks), raw_bytes(std::vector<std::size_t>(chunks, chunk_bytes)),
          coded_bytes(chunks), back_bytes(chunks), outcomes(chunks)
    {
        std::size_t encoding = 0, decoding = 0;
        check(nvcompBatchedANSCompressGetMaxOutputChunkSize(bytes, to, &slot));
        slot = (slot + 255) / 256 * 256;
        check(nvcompBatchedANSCompressGetTempSize(count, bytes, to, &encoding, count * bytes,
                                                  stream));
        check(nvcompBatchedANSDecompressGetTempSize(count, bytes, back, &decoding, count * bytes,
                                                    stream));
        temporary = std::max(encoding, decoding);
    }
    void place(const device_memory<void*>& at, std::uint8_t* first, std::size_t step) const
    {
        std::vector<void*> all;
        for (std::size_t i = 0; i < count; ++i) all.push_back(first + i * step);
        check(cudaMemcpy(at.get(), all.data(), count * sizeof(void*), cudaMemcpyHostToDevice));
    }
    void encode(void* work) const
    {
        check(nvcompBatchedANSCompressAsync(raw_at.get(), raw_bytes.get(), bytes, count, work,
                                            temporary, coded_at.get(), coded_bytes.get(), to,
                                            outcomes.get(), stream));
    }
    void decode(void* work) const
    {
        check(nvcompBatchedANSDecompressAsync(coded_at.get(), coded_bytes.get(), raw_bytes.get(),
                                              back_bytes.get(), count, work, temporary,
                                              back_at.get(), back, outcomes.get(), stream));
    }
};

inline void add_nvcomp_rows(const gpu_pages& from, std::size_t pages, const conditions& with,
                            const std::string& tail, gpu_table& table)
{
    const std::size_t bytes = from.codes.size() / from.pages;
    const nvcomp_chunks chunks(pages, bytes, with.stream);
    const device_memory<std::uint8_t> raw(from.codes, pages * bytes), back(pages * bytes);
    const device_memory<std::uint8_t> coded(pages * chunks.slot), work(chunks.temporary + 1);
    chunks.place(chunks.raw_at, raw.get(), bytes);
    chunks.place(chunks.back_at, back.get(), bytes);
    chunks.place(chunks.coded_at, coded.get(), chunks.slot);
    chunks.encode(work.get());
    chunks.decode(work.get());
    check(cudaStreamSynchronize(with.stream));
    for (const nvcompStatus_t outcome : chunks.outcomes.copy(pages)) check(outcome);
    if (raw.copy(pages * bytes) != back.copy(pages * bytes))
        throw std::runtime_error("other codes came back");
    double coded_bytes = 0;
    for (const std::size_t one : chunks.coded_bytes.copy(pages)) coded_bytes += double(one);

    for (const bool decodes : {false, true}) {
        gpu_row row;
        row.name = (decodes ? "decode" : "encode") + tail;
        row.scalars = double(pages * from.page_scalars());
        row.bits = 8 * coded_bytes / row.scalars;
        row.microseconds = microseconds(
            with, [&] { decodes ? chunks.decode(work.get()) : chunks.encode(work.get()); });
        row.gb_s = double(pages * bytes) / row.microseconds * 1e-3;
        row.traffic = (double(pages * bytes) + coded_bytes) / (row.microseconds * 1e-6) /
                      with.copy_bytes_per_second;
        table.add(row);
    }
}

#endif

/// A peer that fails costs its own rows only.
inline void measure_nvcomp(const gpu_pages& from, std::size_t pages, const conditions& with,
                           gpu_table& table)
{
    const std::string tail = std::string("/nvcomp-ans/") +
                             normans::scalar_name(from.spec.dtype) + "/" + from.name + "/pages-" +
                             std::to_string(pages);
#if defined(NORMANS_BENCH_NVCOMP)
    if (!with.hardware || with.over())
        return table.leave_out("*" + tail, with.hardware ? "no time was left" : "no GPU");
    try {
        add_nvcomp_rows(from, pages, with, tail, table);
    } catch (const std::exception& error) {
        table.leave_out("*" + tail, error.what());
    }
#else
    static_cast<void>(with);
    table.leave_out("*" + tail, "its library was not given to the build");
#endif
}

}  // namespace bench
