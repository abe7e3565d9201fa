// The warp codec on a device, beside the host's.  usage: cuda_codec_test SEEDS GOLDEN...

#include "device.cuh"

#include "codec_pages.hpp"

int main(int count, char** arguments)
{
    if (!device_test::there_is_a_device()) return 0;
    return device_test::run_codec_test(count, arguments, [](unsigned) {});
}
