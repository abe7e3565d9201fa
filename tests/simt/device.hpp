#pragma once
// The device of tests/cuda, played by tests/simt: memory of exact size on the heap, launches with
// the orders and seeds that main() asks for.

#include "simt.hpp"

#include <cstring>
#include <vector>

namespace device_test {

inline simt::options& how()
{
    static simt::options options;
    return options;
}

/// Memory of the device. `pattern` where nothing was copied to it.
template <class T>
class device_array {
public:
    explicit device_array(std::size_t count, int pattern = 0x5a)
        : data_(new unsigned char[count * sizeof(T)]), count_(count)
    {
        std::memset(data_, pattern, count * sizeof(T));
    }
    explicit device_array(const std::vector<T>& from) : device_array(from.size())
    {
        if (!from.empty())
            std::memcpy(data_, static_cast<const void*>(from.data()), from.size() * sizeof(T));
    }
    device_array(const device_array&) = delete;
    device_array& operator=(const device_array&) = delete;
    ~device_array() { delete[] data_; }

    T* data() const { return reinterpret_cast<T*>(data_); }
    std::vector<T> copy() const { return std::vector<T>(data(), data() + count_); }

private:
    unsigned char* data_;
    std::size_t count_;
};

/// Runs f() in blocks x threads threads. What went wrong, or "".
template <class Function>
std::string launch(const Function& f, unsigned blocks, unsigned threads)
{
    return simt::launch({blocks, 1, 1}, {threads, 1, 1}, how(), f);
}

template <class T>
T& shared_variable()
{
    return simt::shared_variable<T>();
}

}  // namespace device_test
