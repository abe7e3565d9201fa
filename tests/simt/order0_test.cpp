// The warp codec of order 0, compiled for this machine and run by fibers, beside the host's.
// usage: simt_order0_test SEEDS GOLDEN...

#include "device.hpp"

#include "cuda/order0_pages.hpp"

int main(int count, char** arguments)
{
    return device_test::run_order0_test(count, arguments, [](unsigned seed) {
        device_test::how().seed = seed;
        device_test::how().which = seed % 3 == 1   ? simt::order::random
                                   : seed % 3 == 2 ? simt::order::down
                                                   : simt::order::up;
    });
}
