// The warp codec of int8, int4 and e2m1 on a device, beside the host's.
// usage: cuda_scaled_test SEEDS GOLDEN...

#include "device.cuh"

#include "scaled_pages.hpp"

int main(int count, char** arguments)
{
    if (!device_test::there_is_a_device()) return 0;
    return device_test::run_scaled_test(count, arguments, [](unsigned) {});
}
