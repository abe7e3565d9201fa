// Compiled once per instruction set, with NORMANS_DISPATCH_NAME naming the functions.

#include <cstring>

#include <normans/dispatch.hpp>

namespace normans_dispatch {
namespace NORMANS_DISPATCH_NAME {

void encode(const arguments& call) noexcept;
void decode(const arguments& call) noexcept;

namespace {

// The caller's tasks are of another target's type with the same layout: they are copied in, and
// their results back, as bytes.
template <class Task, class Function>
void with_tasks(const arguments& call, Function run)
{
    constexpr std::size_t each = tasks_per_job;
    Task tasks[each];
    auto* const all = static_cast<unsigned char*>(call.tasks);
    for (std::size_t first = 0; first < call.count; first += each) {
        const std::size_t count = call.count - first < each ? call.count - first : each;
        unsigned char* const from = all + first * sizeof(Task);
        std::memcpy(static_cast<void*>(tasks), from, count * sizeof(Task));
        run(tasks, count);
        for (std::size_t i = 0; i < count; ++i)
            std::memcpy(from + i * sizeof(Task) + offsetof(Task, result), &tasks[i].result,
                        sizeof tasks[i].result);
    }
}

template <class Code>
void encode_as(const arguments& call)
{
    using task = normans::encode_task<Code, normans::array_predictor>;
    with_tasks<task>(call, [](task* tasks, std::size_t n) { normans::encode_blocks(tasks, n); });
}

template <class Code>
void decode_as(const arguments& call)
{
    using task = normans::decode_task<Code, normans::array_predictor>;
    with_tasks<task>(call, [](task* tasks, std::size_t n) { normans::decode_blocks(tasks, n); });
}

}  // namespace

void encode(const arguments& call) noexcept
{
    if (call.code_bytes == 1) encode_as<std::uint8_t>(call);
    else encode_as<std::uint16_t>(call);
}

void decode(const arguments& call) noexcept
{
    if (call.code_bytes == 1) decode_as<std::uint8_t>(call);
    else decode_as<std::uint16_t>(call);
}

}  // namespace NORMANS_DISPATCH_NAME
}  // namespace normans_dispatch
