// Compiled once per instruction set, with BENCH_BACKEND naming the backend; defines that one's
// callable_coder.

#include "callable.hpp"

#include <cstring>

#include <normans/normans.hpp>

#include "blocks.hpp"

namespace bench {
namespace {

// As an engine would write it.
auto predictor_of(const normans::array_predictor& views)
{
    const auto* means = static_cast<const float*>(views.means.data);
    const auto* sigmas = static_cast<const uint8_t*>(views.sigmas.data);
    return [=](const normans::scalar_position& at) {
        return normans::prediction{means[at.index], sigmas[at.channel]};
    };
}

template <class Task, class Function>
void for_tasks(void* tasks, std::size_t count, Function code)
{
    auto* bytes = static_cast<unsigned char*>(tasks);
    for (std::size_t i = 0; i < count; ++i, bytes += sizeof(Task)) {
        Task task;
        std::memcpy(static_cast<void*>(&task), bytes, sizeof task);
        task.result = code(task);
        std::memcpy(bytes, &task, sizeof task);
    }
}

}  // namespace

template <int Backend>
void callable_coder<Backend>::encode(void* tasks, std::size_t count)
{
    for_tasks<encode_task<uint8_t>>(tasks, count, [](const encode_task<uint8_t>& task) {
        return normans::encode<BENCH_BACKEND>(task.spec, task.codes, predictor_of(task.predictor),
                                              task.out, task.capacity);
    });
}

template <int Backend>
void callable_coder<Backend>::decode(void* tasks, std::size_t count)
{
    for_tasks<decode_task<uint8_t>>(tasks, count, [](const decode_task<uint8_t>& task) {
        return normans::decode<BENCH_BACKEND>(task.spec, task.block, task.bytes,
                                              predictor_of(task.predictor), task.out);
    });
}

template struct callable_coder<int(BENCH_BACKEND::id)>;

}  // namespace bench
