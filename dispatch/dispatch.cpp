// Which of the compiled instruction sets runs.

#include <normans/dispatch.hpp>

namespace normans_dispatch {

namespace portable {
void encode(const arguments& call) noexcept;
void decode(const arguments& call) noexcept;
}  // namespace portable

#if NORMANS_DISPATCH_AVX2
namespace avx2 {
void encode(const arguments& call) noexcept;
void decode(const arguments& call) noexcept;
}  // namespace avx2
#endif

namespace {

struct functions {
    void (*encode)(const arguments&) noexcept;
    void (*decode)(const arguments&) noexcept;
};

// Asked at every call: cheap beside a block, and nothing to initialise.
bool has_avx2()
{
#if NORMANS_DISPATCH_AVX2
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

functions functions_for(int backend)
{
    if (backend == best)
        backend = int(has_avx2() ? normans::backend_id::avx2 : normans::backend_id::portable);
#if NORMANS_DISPATCH_AVX2
    if (backend == int(normans::backend_id::avx2) && has_avx2())
        return {avx2::encode, avx2::decode};
#endif
    if (backend == int(normans::backend_id::portable)) return {portable::encode, portable::decode};
    return {nullptr, nullptr};
}

}  // namespace

bool encode(int backend, const arguments& call) noexcept
{
    const functions run = functions_for(backend);
    if (run.encode != nullptr) run.encode(call);
    return run.encode != nullptr;
}

bool decode(int backend, const arguments& call) noexcept
{
    const functions run = functions_for(backend);
    if (run.decode != nullptr) run.decode(call);
    return run.decode != nullptr;
}

}  // namespace normans_dispatch
