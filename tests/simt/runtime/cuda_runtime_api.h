#pragma once
// As much of the CUDA runtime as device_codec.cuh and its tests need, over fibers: whatever is
// launched runs at once. A launch knows a kernel by its address alone, so kernels are registered
// first, as nvcc has its programs do.

#include <cstdio>
#include <map>
#include <utility>

#include "../device.hpp"

enum cudaError_t { cudaSuccess, cudaErrorInvalidValue, cudaErrorLaunchFailure, cudaErrorNoKernel };
using cudaStream_t = struct simt_stream*;

struct dim3 {
    unsigned x;
    explicit dim3(unsigned in) : x(in) {}
};

namespace simt {

inline std::map<const void*, std::function<void(void**)>>& kernels()
{
    static std::map<const void*, std::function<void(void**)>> all;
    return all;
}

template <class... Parameters, std::size_t... Number>
void call_kernel(void (*kernel)(Parameters...), void** arguments, std::index_sequence<Number...>)
{
    kernel(*static_cast<Parameters*>(arguments[Number])...);
}

template <class... Parameters>
void register_kernel(void (*kernel)(Parameters...))
{
    kernels()[reinterpret_cast<const void*>(kernel)] = [kernel](void** arguments) {
        call_kernel(kernel, arguments, std::index_sequence_for<Parameters...>());
    };
}

inline cudaError_t& pending()
{
    static cudaError_t error = cudaSuccess;
    return error;
}

}  // namespace simt

inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                    std::size_t, cudaStream_t)
{
    const auto found = simt::kernels().find(kernel);
    if (found == simt::kernels().end()) return cudaErrorNoKernel;
    const std::string fault = simt::launch({grid.x, 1, 1}, {block.x, 1, 1}, device_test::how(),
                                           [&] { found->second(arguments); });
    if (fault.empty()) return cudaSuccess;
    std::fprintf(stderr, "%s\n", fault.c_str());
    simt::pending() = cudaErrorLaunchFailure;
    return cudaSuccess;  // a stream tells later
}

// None is kept: see pending().
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return std::exchange(simt::pending(), cudaSuccess); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }

inline const char* cudaGetErrorString(cudaError_t error)
{
    constexpr const char* names[] = {"no error", "invalid value", "launch failure",
                                     "a kernel that is not registered"};
    return names[error];
}
