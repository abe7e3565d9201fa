// The warp codec of int8, int4, e2m1 and, by tANS, fp8 on a device, beside the host's; batches.
// usage: cuda_scaled_test SEEDS GOLDEN...

#include "device.cuh"

#include "scaled_batch.hpp"

int main(int count, char** arguments)
{
    using namespace device_test;
    if (!there_is_a_device()) return 0;
    scaled_tally batches;
    compare_scaled_batch<scalar_type::int4, 32, coder_id::tans>(batches);
    compare_scaled_batch<scalar_type::e4m3fn, 32, coder_id::tans>(batches);
    const int others = run_scaled_test(count, arguments, [](unsigned) {});
    return batches.failures != 0 ? 1 : others;
}
