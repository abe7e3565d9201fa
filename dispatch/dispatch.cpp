// Which of the compiled instruction sets runs.

#include <normans/dispatch.hpp>

namespace normans_dispatch {

namespace portable {
void encode(const arguments& call) noexcept;
void decode(const arguments& call) noexcept;
}  // namespace portable

#if NORMANS_DISPATCH_X86
namespace avx2 {
void encode(const arguments& call) noexcept;
void decode(const arguments& call) noexcept;
}  // namespace avx2

namespace avx512 {
void encode(const arguments& call) noexcept;
void decode(const arguments& call) noexcept;
}  // namespace avx512
#endif

namespace {

struct functions {
    void (*encode)(const arguments&) noexcept = nullptr;
    void (*decode)(const arguments&) noexcept = nullptr;
};

// What this machine can run, best first. Asked at every call: cheap beside a block, and nothing to
// initialise.
functions functions_for(int backend)
{
    using normans::backend_id;
    const auto wanted = [&](backend_id id) { return backend == best || backend == int(id); };
#if NORMANS_DISPATCH_X86
    if (wanted(backend_id::avx512) && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi2"))
        return {avx512::encode, avx512::decode};
    if (wanted(backend_id::avx2) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return {avx2::encode, avx2::decode};
#endif
    // Compiled for what every machine of this kind has: NEON on aarch64.
    if (wanted(normans::default_backend::id)) return {portable::encode, portable::decode};
    return {};
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
