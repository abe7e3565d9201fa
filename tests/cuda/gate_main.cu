// A second unit with the same headers, linked with gate.cu.

#include <normans/cuda/device_codec.cuh>

int main()
{
    using codec = normans::device_codec<normans::scalar_type::e4m3fn, 32>;
    normans::block_spec spec;
    spec.dim = 32;
    return codec::supports(spec).ok ? 0 : 1;
}
