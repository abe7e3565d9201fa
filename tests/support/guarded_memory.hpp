#pragma once
// Memory between guard pages, for reads and writes that go too far.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace normans_test {

/// Memory with an unreadable page on both sides. A block of `size` bytes can touch either one.
class guarded_memory {
public:
    explicit guarded_memory(std::size_t capacity)
        : page_(std::size_t(sysconf(_SC_PAGESIZE))),
          inside_((capacity + page_ - 1) / page_ * page_ + page_)
    {
        void* const all =
            mmap(nullptr, inside_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) std::abort();
        base_ = static_cast<std::uint8_t*>(all);
        if (mprotect(base_ + page_, inside_, PROT_READ | PROT_WRITE) != 0) std::abort();
    }
    guarded_memory(const guarded_memory&) = delete;
    guarded_memory& operator=(const guarded_memory&) = delete;
    ~guarded_memory() { munmap(base_, inside_ + 2 * page_); }

    /// The first byte behind the guard page in front.
    std::uint8_t* first() { return base_ + page_; }
    /// `size` bytes that end where the guard page behind begins.
    std::uint8_t* last(std::size_t size) { return base_ + page_ + inside_ - size; }

    std::uint8_t* put_first(const void* data, std::size_t size)
    {
        return copy(first(), data, size);
    }
    std::uint8_t* put_last(const void* data, std::size_t size)
    {
        return copy(last(size), data, size);
    }

private:
    static std::uint8_t* copy(std::uint8_t* to, const void* data, std::size_t size)
    {
        if (size != 0) std::memcpy(to, data, size);
        return to;
    }

    std::size_t page_;
    std::size_t inside_;
    std::uint8_t* base_;
};

}  // namespace normans_test
