// G02: codes made late on stream A, encoded on A, decoded and read on B behind an event; the page
// table and the host's arguments overwritten as soon as they may be. Built with either kind of
// default stream.

#include "device.cuh"

#include "batch_pages.hpp"

#include <cstring>

using namespace device_test;

namespace {

using pages_of = batch<scalar_type::e4m3fn, 32, std::uint8_t>;
using encode_page_entry = encode_entry<std::uint8_t, predictor>;
using decode_page_entry = decode_entry<std::uint8_t, predictor>;

__global__ void produce_late(const std::uint8_t* from, std::uint8_t* to, std::uint32_t count)
{
    for (int millisecond = 0; millisecond < 50; ++millisecond) __nanosleep(1000000);
    for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}

template <class T>
struct pinned_array {
    T* data = nullptr;
    std::size_t bytes;
    explicit pinned_array(std::size_t count) : bytes(count * sizeof(T))
    {
        check(cudaMallocHost(&data, bytes), "pinned memory");
    }
    pinned_array(const pinned_array&) = delete;
    pinned_array& operator=(const pinned_array&) = delete;
    ~pinned_array() { cudaFreeHost(data); }
};

void run(cudaStream_t a, cudaStream_t b, std::uint64_t seed)
{
    const pages_of batch(seed, 6);
    const std::uint32_t count = batch.count, size = count * pages_of::page;
    const arrays_on_device<pages_of, std::uint8_t> on(batch);
    const std::size_t room = (max_encoded_bytes(batch.spec) + 15) / 16 * 16;
    const device_array<std::uint8_t> input(size), slots(count * room), back(size);
    const device_array<encode_page_entry> to_encode(count);
    const device_array<decode_page_entry> to_decode(count);
    const device_array<encode_result> encoded(count);
    const device_array<decode_result> decoded(count);
    const pinned_array<encode_page_entry> table(count);
    const pinned_array<std::uint8_t> seen(size);
    std::vector<decode_page_entry> decode_entries;
    for (std::uint32_t i = 0; i < count; ++i) {
        const predictor with = batch.predict_on(on, i);
        table.data[i] = {slots.data() + i * room, room, batch.filled[i], with,
                         pages_of::view(static_cast<const std::uint8_t*>(input.data()), i)};
        decode_entries.push_back({slots.data() + i * room, room, batch.filled[i], with,
                                  pages_of::view(back.data(), i)});
    }
    check(cudaMemcpy(to_decode.data(), decode_entries.data(), count * sizeof decode_entries[0],
                     cudaMemcpyHostToDevice),
          "entries");
    cudaEvent_t copied, done;
    check(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming), "event");
    check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "event");
    check(cudaDeviceSynchronize(), "set up");

    check(cudaMemcpyAsync(to_encode.data(), table.data, table.bytes, cudaMemcpyHostToDevice, a),
          "page table");
    check(cudaEventRecord(copied, a), "event");
    produce_late<<<1, 32, 0, a>>>(on.codes.data(), input.data(), size);
    block_spec spec = batch.spec;
    expect_ok(pages_of::codec::encode(spec, to_encode.data(), count, nullptr, encoded.data(), a),
              "encode");
    spec = block_spec{};  // the call has returned
    spec.dim = 7;
    check(cudaEventSynchronize(copied), "page table");  // and the copy is over
    std::memset(static_cast<void*>(table.data), 0xee, table.bytes);
    check(cudaEventRecord(done, a), "event");
    check(cudaStreamWaitEvent(b, done, 0), "wait");
    spec = batch.spec;
    expect_ok(pages_of::codec::decode(spec, to_decode.data(), count, nullptr, decoded.data(), b),
              "decode");
    spec = block_spec{};
    check(cudaMemcpyAsync(seen.data, back.data(), size, cudaMemcpyDeviceToHost, b), "codes");
    check(cudaStreamSynchronize(b), "all of it");
    const auto said = decoded.copy();
    const std::vector<std::uint8_t> codes(seen.data, seen.data + size);
    for (std::uint32_t i = 0; i < count; ++i)
        expect(said[i].code == status::ok &&
                   filled_part_equal(codes, batch.codes, i, pages_of::page,
                                     batch.filled[i] * pages_of::heads * pages_of::dim),
               "a page made late");
    check(cudaEventDestroy(copied), "destroy");
    check(cudaEventDestroy(done), "destroy");
}

}  // namespace

int main()
{
    if (!there_is_a_device()) return 0;
    cudaStream_t a, b, blocking;
    check(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), "stream");
    check(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), "stream");
    check(cudaStreamCreate(&blocking), "stream");
    run(a, b, 700);
    run(nullptr, b, 701);
    run(a, nullptr, 702);
    run(cudaStreamPerThread, b, 703);
    run(blocking, cudaStreamLegacy, 704);
    for (const cudaStream_t stream : {a, b, blocking}) check(cudaStreamDestroy(stream), "destroy");
    std::printf("G02: %d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
