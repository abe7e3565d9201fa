#include "integer_only.hpp"

#include <normans/host/integer_decoder.hpp>

namespace bench {

void decode_integer_only(decode_task<uint8_t>* tasks, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        decode_task<uint8_t>& task = tasks[i];
        const normans::any_means& means = task.predictor.means;
        const normans::any_sigmas& sigmas = task.predictor.sigmas;
        task.result = normans::decode_integers(
            task.spec, task.block, task.bytes,
            normans::fp32_means{static_cast<const float*>(means.data), means.head_stride,
                                means.token_stride},
            normans::channel_sigmas{static_cast<const uint8_t*>(sigmas.data), sigmas.dim},
            task.out);
    }
}

}  // namespace bench
