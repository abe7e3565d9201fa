#pragma once
// Memory of the device and how long work on it takes.

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <vector>

#include <cuda_runtime.h>

#include "table.hpp"

namespace bench {

inline void check(cudaError_t error)
{
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

template <class T>
class device_memory {
public:
    explicit device_memory(std::size_t count) : count_(count)
    {
        check(cudaMalloc(&data_, count * sizeof(T)));
        check(cudaMemset(data_, 0, count * sizeof(T)));
        check(cudaDeviceSynchronize());
    }
    explicit device_memory(const std::vector<T>& from) : device_memory(from.size())
    {
        check(cudaMemcpy(data_, from.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
    }
    /// `from`, again and again.
    device_memory(const std::vector<T>& from, std::size_t count) : device_memory(count)
    {
        for (std::size_t at = 0; at < count; at += from.size())
            check(cudaMemcpy(data_ + at, from.data(),
                             std::min(from.size(), count - at) * sizeof(T),
                             cudaMemcpyHostToDevice));
    }
    device_memory(const device_memory&) = delete;
    device_memory& operator=(const device_memory&) = delete;
    ~device_memory() { cudaFree(data_); }

    T* get() const { return data_; }
    std::vector<T> copy(std::size_t count) const
    {
        std::vector<T> to(count);
        check(cudaMemcpy(to.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost));
        return to;
    }

private:
    T* data_ = nullptr;
    std::size_t count_;
};

struct conditions {
    bool hardware;
    std::chrono::steady_clock::time_point end;
    cudaStream_t stream;
    cudaEvent_t begin, stop;
    double copy_bytes_per_second = 0;  // read and written, by a device-to-device copy

    bool over() const { return std::chrono::steady_clock::now() > end; }
};

/// Microseconds of one f(), the median of some runs; 0 where there is no GPU.
template <class Function>
double microseconds(const conditions& with, const Function& f)
{
    if (!with.hardware) return f(), check(cudaStreamSynchronize(with.stream)), 0;
    const auto timed = [&](int calls) {
        check(cudaEventRecord(with.begin, with.stream));
        for (int i = 0; i < calls; ++i) f();
        check(cudaEventRecord(with.stop, with.stream));
        check(cudaEventSynchronize(with.stop));
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, with.begin, with.stop));
        return double(milliseconds) * 1e3 / calls;
    };
    timed(2);
    const double first = timed(1);
    const int calls = int(std::min(1000.0, std::max(1.0, 2000 / first)));
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) times.push_back(timed(calls));
    std::nth_element(times.begin(), times.begin() + 4, times.end());
    return times[4];
}

}  // namespace bench
