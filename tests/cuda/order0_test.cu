// The warp codec of order 0 on a device, beside the host's; then batches.
// usage: cuda_order0_test SEEDS GOLDEN...

#include "device.cuh"

#include "order0_batch.hpp"

int main(int count, char** arguments)
{
    using namespace device_test;
    if (!there_is_a_device()) return 0;
    order0_tally batches;
    compare_order0_batch(batches);
    const int others = run_order0_test(count, arguments, [](unsigned) {});
    return batches.failures != 0 ? 1 : others;
}
