#include "integer_only.hpp"

#include <normans/host/integer_decoder.hpp>

namespace bench {

template <class Means>
void decode_one(decode_task<uint8_t>& task, const Means& means)
{
    const normans::any_sigmas& sigmas = task.predictor.sigmas;
    task.result = normans::decode_integers(
        task.spec, task.block, task.bytes, means,
        normans::channel_sigmas{static_cast<const uint8_t*>(sigmas.data), sigmas.dim},
        task.predictor.affine, task.out);
}

void decode_integer_only(decode_task<uint8_t>* tasks, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        const normans::any_means& means = tasks[i].predictor.means;
        if (means.type == normans::scalar_type::bf16)
            decode_one(tasks[i], normans::bf16_means{static_cast<const uint16_t*>(means.data),
                                                     means.head_stride, means.token_stride});
        else
            decode_one(tasks[i], normans::fp32_means{static_cast<const float*>(means.data),
                                                     means.head_stride, means.token_stride});
    }
}

void decode_integer_only_fixed(decode_task<uint8_t>* tasks, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        decode_task<uint8_t>& task = tasks[i];
        const normans::any_sigmas& sigmas = task.predictor.sigmas;
        const float* const behind = static_cast<const float*>(task.predictor.means.data) +
                                    normans::count_of(task.spec);
        task.result = normans::decode_integers(
            task.spec, task.block, task.bytes,
            normans::fixed_means{reinterpret_cast<const uint16_t*>(behind)},
            normans::channel_sigmas{static_cast<const uint8_t*>(sigmas.data), sigmas.dim},
            task.out);
    }
}

}  // namespace bench
