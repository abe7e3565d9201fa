// The scheduler. Compiled without TSan, whose view of the fibers it tells by hand: switching orders
// nothing, barriers do.

#include "simt.hpp"

#include <map>
#include <memory>
#include <vector>

#include <ucontext.h>

#if defined(SIMT_TSAN)
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void* __tsan_get_current_fiber();
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#if defined(SIMT_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

// Where the linker puts what __shared__ declares; null if nothing does.
extern "C" {
extern unsigned char __start_simt_shared[] __attribute__((weak));
extern unsigned char __stop_simt_shared[] __attribute__((weak));
}

namespace simt {
namespace {

// What lies in shared memory before a block writes to it.
void fill_with_pattern(unsigned char* bytes, std::size_t count)
{
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(0xa5 ^ i * 37);
}

constexpr std::size_t stack_bytes = std::size_t(1) << 18;
constexpr unsigned warp = 32;

struct request {
    operation kind = operation::none;
    std::uint32_t mask = 0;
    std::uint64_t value = 0;
    std::uint32_t source = 0;
};

enum class stage { ready, waiting, returned };

struct fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
    index3 index;
    stage now = stage::ready;
    request wish;
    std::uint64_t answer = 0;
    void* tsan = nullptr;
};

const char* name_of(operation kind)
{
    constexpr const char* names[] = {"nothing",      "__ballot_sync", "__any_sync", "__all_sync",
                                     "__shfl_sync",  "__syncwarp",    "__syncthreads"};
    return names[unsigned(kind)];
}

// Shared variables may ask for any alignment up to this.
constexpr std::align_val_t shared_alignment{1024};

struct aligned_delete {
    void operator()(unsigned char* bytes) const { ::operator delete[](bytes, shared_alignment); }
};

struct machine {
    std::vector<fiber> threads;
    ucontext_t scheduler{};
    unsigned current = 0;
    index3 block, grid, size;
    std::map<unsigned, std::unique_ptr<unsigned char[], aligned_delete>> shared;
    const std::function<void()>* body = nullptr;
    std::string fault;
    std::uint64_t random = 0;
    void* tsan = nullptr;
    // Addresses that stand for barriers: two a group, by turns, so that nobody who leaves one
    // barrier takes the order of the next from those who are already there. A group has the place
    // of its first thread, the block the last.
    std::vector<char> barriers;
    std::vector<unsigned> passed;
    const void* stack_bottom = nullptr;
    std::size_t stack_size = 0;
};

machine* running = nullptr;

void leave(bool for_good)
{
    machine& m = *running;
    fiber& me = m.threads[m.current];
#if defined(SIMT_TSAN)
    __tsan_switch_to_fiber(m.tsan, 1);
#endif
#if defined(SIMT_ASAN)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake, m.stack_bottom, m.stack_size);
#endif
    if (for_good) setcontext(&m.scheduler);
    swapcontext(&me.context, &m.scheduler);
#if defined(SIMT_ASAN)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void enter(unsigned thread)
{
    machine& m = *running;
    m.current = thread;
    fiber& next = m.threads[thread];
#if defined(SIMT_TSAN)
    __tsan_switch_to_fiber(next.tsan, 1);
#endif
#if defined(SIMT_ASAN)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, next.stack.get(), stack_bytes);
#endif
    swapcontext(&m.scheduler, &next.context);
#if defined(SIMT_ASAN)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void begin_thread()
{
#if defined(SIMT_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, &running->stack_bottom, &running->stack_size);
#endif
    (*running->body)();
    running->threads[running->current].now = stage::returned;
#if defined(SIMT_TSAN)
    __tsan_release(running);
#endif
    leave(true);
}

std::string who(unsigned thread)
{
    const request& wish = running->threads[thread].wish;
    std::string text = "thread " + std::to_string(thread);
    if (running->threads[thread].now == stage::returned) return text + " has returned";
    text += " waits at " + std::string(name_of(wish.kind));
    if (wish.kind == operation::sync_block) return text;
    constexpr const char* digits = "0123456789abcdef";
    text += " with mask ";
    for (int shift = 28; shift >= 0; shift -= 4) text += digits[wish.mask >> shift & 15];
    return text;
}

void fail(const std::string& what)
{
    if (running->fault.empty()) running->fault = what;
}

// The place of the threads that a mask names in the warp that begins with thread `first`.
std::size_t group_of(unsigned first, std::uint32_t mask)
{
    for (; mask != 0 && (mask & 1) == 0; mask >>= 1) ++first;
    return first;
}

// Answers the wish of `thread` if everybody it names is there. Who waits elsewhere, under a smaller
// mask say, may still come, unless all are stuck.
void try_warp(unsigned thread, bool stuck)
{
    machine& m = *running;
    const request wish = m.threads[thread].wish;
    const unsigned first = thread / warp * warp;
    for (unsigned lane = 0; lane < warp; ++lane) {
        if (!(wish.mask >> lane & 1)) continue;
        const unsigned other = first + lane;
        if (other >= m.threads.size()) return fail(who(thread) + ", which names no thread");
        const fiber& there = m.threads[other];
        if (there.now == stage::returned) return fail(who(thread) + ", but " + who(other));
        if (there.now == stage::ready) return;  // on its way
        if (there.wish.kind == wish.kind && there.wish.mask == wish.mask) continue;
        if (!stuck) return;
        return fail(who(thread) + ", but " + who(other));
    }
    if (wish.kind == operation::sync_warp) ++m.passed[group_of(first, wish.mask)];
    std::uint32_t votes = 0;
    for (unsigned lane = 0; lane < warp; ++lane)
        if (wish.mask >> lane & 1)
            votes |= std::uint32_t(m.threads[first + lane].wish.value & 1) << lane;
    for (unsigned lane = 0; lane < warp; ++lane) {
        if (!(wish.mask >> lane & 1)) continue;
        fiber& one = m.threads[first + lane];
        switch (wish.kind) {
        case operation::ballot: one.answer = votes; break;
        case operation::any: one.answer = votes != 0; break;
        case operation::all: one.answer = votes == wish.mask; break;
        case operation::shuffle:
            if (!(wish.mask >> one.wish.source & 1))
                return fail(who(first + lane) + " and reads lane " +
                            std::to_string(one.wish.source) + ", which the mask does not name");
            one.answer = m.threads[first + one.wish.source].wish.value;
            break;
        default: break;
        }
        one.now = stage::ready;
    }
}

void try_block()
{
    machine& m = *running;
    for (const fiber& one : m.threads)
        if (one.now != stage::waiting || one.wish.kind != operation::sync_block) return;
    for (fiber& one : m.threads) one.now = stage::ready;
    ++m.passed.back();
}

// The next thread to run, or none.
unsigned choose(const options& how)
{
    machine& m = *running;
    const unsigned count = unsigned(m.threads.size());
    m.random = m.random * 6364136223846793005u + 1442695040888963407u;
    const unsigned start = how.which == order::random ? unsigned(m.random >> 33) % count : 0;
    for (unsigned i = 0; i < count; ++i) {
        const unsigned step = how.which == order::down ? count - 1 - i : (start + i) % count;
        if (m.threads[step].now == stage::ready) return step;
    }
    return count;
}

void run_block(const options& how)
{
    machine& m = *running;
    m.shared.clear();
    fill_with_pattern(__start_simt_shared, std::size_t(__stop_simt_shared - __start_simt_shared));
    const unsigned count = unsigned(m.threads.size());
    for (unsigned i = 0; i < count; ++i) {
        fiber& one = m.threads[i];
        one.index = {i % m.size.x, i / m.size.x % m.size.y, i / m.size.x / m.size.y};
        one.now = stage::ready;
        getcontext(&one.context);
        one.context.uc_stack.ss_sp = one.stack.get();
        one.context.uc_stack.ss_size = stack_bytes;
        one.context.uc_link = nullptr;
        makecontext(&one.context, begin_thread, 0);
#if defined(SIMT_TSAN)
        one.tsan = __tsan_create_fiber(0);
#endif
    }
    for (unsigned next = choose(how); next < count && m.fault.empty(); next = choose(how)) {
        enter(next);
        const fiber& one = m.threads[next];
        if (one.now != stage::waiting) continue;
        if (one.wish.kind == operation::sync_block) try_block();
        else try_warp(next, false);
    }
    for (unsigned i = 0; i < count && m.fault.empty(); ++i) {
        if (m.threads[i].now == stage::returned) continue;
        if (m.threads[i].wish.kind != operation::sync_block) try_warp(i, true);
        fail("deadlock: " + who(i));
    }
#if defined(SIMT_TSAN)
    __tsan_acquire(running);
    for (fiber& one : m.threads) __tsan_destroy_fiber(one.tsan);
#endif
}

}  // namespace

std::string launch(index3 grid, index3 block, const options& how,
                   const std::function<void()>& body)
{
    machine m;
    running = &m;
    m.grid = grid;
    m.size = block;
    m.body = &body;
    m.random = how.seed;
    m.threads.resize(std::size_t(block.x) * block.y * block.z);
    m.passed.resize((m.threads.size() + warp - 1) / warp * warp + 1);
    m.barriers.resize(2 * m.passed.size());
    for (fiber& one : m.threads) one.stack.reset(new char[stack_bytes]);
#if defined(SIMT_TSAN)
    m.tsan = __tsan_get_current_fiber();
#endif
    for (m.block.z = 0; m.block.z < grid.z; ++m.block.z)
        for (m.block.y = 0; m.block.y < grid.y; ++m.block.y)
            for (m.block.x = 0; m.block.x < grid.x && m.fault.empty(); ++m.block.x) run_block(how);
    running = nullptr;
    return m.fault;
}

void* shared_bytes(unsigned id, std::size_t bytes)
{
    machine& m = *running;
    std::unique_ptr<unsigned char[], aligned_delete>& room = m.shared[id];
    if (!room) {
        room.reset(new (shared_alignment) unsigned char[bytes]);
        fill_with_pattern(room.get(), bytes);
#if defined(SIMT_TSAN)
        __tsan_release(&m.shared);
#endif
    }
#if defined(SIMT_TSAN)
    __tsan_acquire(&m.shared);  // it was there before the block began
#endif
    return room.get();
}

const index3& thread_index() { return running->threads[running->current].index; }
const index3& block_index() { return running->block; }
const index3& block_size() { return running->size; }
const index3& grid_size() { return running->grid; }
std::uint32_t lane() { return running->current % warp; }

std::uint64_t collective(operation kind, std::uint32_t mask, std::uint64_t value,
                         std::uint32_t source_lane)
{
    machine& m = *running;
    fiber& me = m.threads[m.current];
    me.wish = {kind, mask, value, source_lane};
    me.now = stage::waiting;
    if (kind != operation::sync_block && !(mask >> lane() & 1))
        fail(who(m.current) + ", which does not name it");
#if defined(SIMT_TSAN)
    char* order = nullptr;
    if (kind == operation::sync_block || kind == operation::sync_warp) {
        const std::size_t group = kind == operation::sync_block
                                      ? m.passed.size() - 1
                                      : group_of(m.current / warp * warp, mask);
        order = &m.barriers[2 * group + m.passed[group] % 2];
    }
    if (order != nullptr) __tsan_release(order);
#endif
    leave(false);
#if defined(SIMT_TSAN)
    if (order != nullptr) __tsan_acquire(order);
#endif
    return me.answer;
}

}  // namespace simt
