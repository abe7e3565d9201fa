// Batches through device_codec.cuh: its kernels on fibers, each registered, since no compiler does
// it here. Then branches, intrinsics and the views along rows.
// usage: simt_batch_test up|down|random

#include <cuda_runtime_api.h>

#include "cuda/batch_cases.hpp"
#include "cuda/intrinsic_cases.hpp"
#include "cuda/row_cases.hpp"

using namespace device_test;

int main(int count, char** arguments)
{
    const std::string order = count > 1 ? arguments[1] : "";
    how().which = order == "up"     ? simt::order::up
                  : order == "down" ? simt::order::down
                                    : simt::order::random;
    using codec = warp_codec<scalar_type::e4m3fn, 8>;
    using to_encode = encode_entry<std::uint8_t, predictor>;
    namespace kernels = normans::detail;
    simt::register_kernel(kernels::run_entries<codec, 8, fp8_decode, decode_result>);
    simt::register_kernel(kernels::run_entries<codec, 8, to_encode, encode_result>);
    simt::register_kernel(kernels::pack_entries<to_encode>);
    simt::register_kernel(kernels::offsets_of);
    expect(cudaLaunchKernel(nullptr, dim3(1), dim3(1), nullptr, 0, nullptr) != cudaSuccess,
           "a kernel that nobody registered is none");

    one_damaged_page<scalar_type::e4m3fn, 8, std::uint8_t>(nullptr, false);
    encode_and_pack<scalar_type::e4m3fn, 8, std::uint8_t>(nullptr, true);
    large_directory(nullptr);
    padded_batch();
    divergent_warps();
    failures += compare_intrinsics();
    failures += compare_rows(2);
    std::printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
