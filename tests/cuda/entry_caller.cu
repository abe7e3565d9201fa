// A unit that knows normans_decode_e4m3fn by its name alone, to be linked with the cubin.

extern "C" __device__ int normans_decode_e4m3fn(
    const unsigned char* block, unsigned long long bytes, unsigned heads, unsigned tokens,
    unsigned dim, const unsigned short* means, const unsigned char* sigmas, long long head_stride,
    long long token_stride, unsigned char* out);

extern "C" __global__ void foreign_kernel(const unsigned char* block, unsigned long long bytes,
                                          const unsigned short* means,
                                          const unsigned char* sigmas, unsigned char* out,
                                          int* status)
{
    *status = normans_decode_e4m3fn(block, bytes, 1, 16, 64, means, sigmas, 0, 64, out);
}
