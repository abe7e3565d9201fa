#pragma once
// The backends that were built (bench/CMakeLists.txt lists them in BENCH_BACKENDS) and of these the
// ones that run here.

#include <cstdio>
#include <vector>

#include "block_coder.hpp"
#include "callable.hpp"

namespace bench {

struct backend {
    int id;
    const char* name;
    void (*encode_callable)(void*, size_t);
    void (*decode_callable)(void*, size_t);

    template <class Code>
    engine<Code> views() const
    {
        const int which = id;
        return {which,
                [=](encode_task<Code>* tasks, size_t n) { encode_blocks(tasks, n, which); },
                [=](decode_task<Code>* tasks, size_t n) { decode_blocks(tasks, n, which); }};
    }

    engine<uint8_t> callable() const { return {id, encode_callable, decode_callable}; }
};

template <normans::backend_id... Ids>
std::vector<backend> backends_of()
{
    std::vector<backend> here;
    for (const backend& one : {backend{int(Ids), normans::backend_name(Ids),
                                       callable_coder<int(Ids)>::encode,
                                       callable_coder<int(Ids)>::decode}...}) {
        if (runs_here(one.id)) here.push_back(one);
        else std::fprintf(stderr, "skipped: %s rows: not on this machine\n", one.name);
    }
    return here;
}

inline std::vector<backend> backends_here() { return backends_of<BENCH_BACKENDS>(); }

}  // namespace bench
