// Counts every operator new of the program. A file of its own, so that no compiler sees both the
// malloc here and a delete elsewhere.

#include "field/allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

static std::atomic<std::size_t> allocations{0};

std::size_t field::allocation_count() { return allocations; }

void* operator new(std::size_t bytes)
{
    ++allocations;
    if (void* const memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
