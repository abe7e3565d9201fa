#pragma once
// The device as CUDA gives it: memory, launches that are waited for, shared variables.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <cuda_runtime.h>

namespace device_test {

inline void check(cudaError_t error, const char* what)
{
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}

/// True if there is a device; else says so in the words that CTest looks for.
inline bool there_is_a_device()
{
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return true;
    std::printf("skipped: no device\n");
    return false;
}

/// Memory of the device. `pattern` where nothing was copied to it.
template <class T>
class device_array {
public:
    explicit device_array(std::size_t count, int pattern = 0x5a) : count_(count)
    {
        check(cudaMalloc(&data_, count * sizeof(T) + (count == 0)), "cudaMalloc");
        check(cudaMemset(data_, pattern, count * sizeof(T)), "cudaMemset");
        check(cudaDeviceSynchronize(), "cudaMemset");  // whatever stream comes next
    }
    explicit device_array(const std::vector<T>& from) : device_array(from.size())
    {
        check(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
              "copy to the device");
    }
    device_array(const device_array&) = delete;
    device_array& operator=(const device_array&) = delete;
    ~device_array() { cudaFree(data_); }

    T* data() const { return data_; }
    std::vector<T> copy() const
    {
        std::vector<T> to(count_);
        check(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              "copy from the device");
        return to;
    }

private:
    T* data_ = nullptr;
    std::size_t count_;
};

template <class Function>
__global__ void run_in_every_thread(Function f)
{
    f();
}

/// Runs f() in blocks x threads threads. What went wrong, or "".
template <class Function>
std::string launch(const Function& f, unsigned blocks, unsigned threads)
{
    run_in_every_thread<<<blocks, threads>>>(f);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

template <class T>
__device__ T& shared_variable()
{
    __shared__ T variable;
    return variable;
}

}  // namespace device_test
