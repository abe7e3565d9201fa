// Cases from public bug reports on a device.  usage: cuda_field_test CASE

#include "device.cuh"

#include "batch_cases.hpp"

#include <algorithm>
#include <cstring>

using namespace device_test;

namespace {

using fp8_encode = encode_entry<std::uint8_t, predictor>;

template <class T>
void upload(const device_array<T>& to, const std::vector<T>& from)
{
    check(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
          "upload");
    check(cudaDeviceSynchronize(), "upload");
}

// Encode, pack and decode captured once, replayed 100 times with other contents and counts.
void G01()
{
    constexpr std::uint32_t count = 5;
    std::vector<fp8_pages> batches;
    for (std::uint64_t seed = 0; seed < 4; ++seed) batches.emplace_back(200 + seed, count);
    const arrays_on_device<fp8_pages, std::uint8_t> on(batches[0]);
    const std::size_t room = max_encoded_bytes(batches[0].spec);
    const device_array<std::uint8_t> slots(count * room), back(count * fp8_pages::page);
    const device_array<fp8_encode> to_encode(count);
    const device_array<fp8_decode> to_decode(count);
    const device_array<encode_result> encoded(count);
    const device_array<decode_result> decoded(count);
    const device_array<std::uint32_t> valid(1);
    const device_array<std::uint64_t> directory(count + 1);
    const std::size_t packed_size = count * (room + packed_alignment);
    const device_array<std::uint8_t> packed(packed_size);

    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t run;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    expect_ok(fp8_pages::codec::encode(batches[0].spec, to_encode.data(), count, valid.data(),
                                       encoded.data(), stream),
              "captured encode");
    expect_ok(fp8_pages::codec::pack(to_encode.data(), encoded.data(), count, valid.data(),
                                     directory.data(), packed.data(), packed_size, stream),
              "captured pack");
    expect_ok(fp8_pages::codec::decode(batches[0].spec, to_decode.data(), count, valid.data(),
                                       decoded.data(), stream),
              "captured decode");
    check(cudaStreamEndCapture(stream, &graph), "end of capture");
    check(cudaGraphInstantiate(&run, graph, 0), "instantiate");

    for (std::uint32_t round = 0; round < 100; ++round) {
        const fp8_pages& now = batches[round % 4];
        const std::uint32_t here = round % (count + 1);
        std::vector<fp8_encode> encode_entries;
        std::vector<fp8_decode> decode_entries;
        for (std::uint32_t i = 0; i < count; ++i) {
            const predictor with = now.predict_on(on, i);
            std::uint8_t* slot = slots.data() + i * room;
            encode_entries.push_back(
                {slot, room, now.filled[i], with,
                 fp8_pages::view(static_cast<const std::uint8_t*>(on.codes.data()), i)});
            decode_entries.push_back(
                {slot, room, now.filled[i], with, fp8_pages::view(back.data(), i)});
        }
        upload(on.codes, now.codes);
        upload(on.means, now.means);
        upload(on.sigmas, now.sigmas);
        upload(on.a, now.a);
        upload(on.b, now.b);
        upload(to_encode, encode_entries);
        upload(to_decode, decode_entries);
        upload(valid, std::vector<std::uint32_t>(1, here));
        check(cudaMemset(slots.data(), 0xa5, count * room), "slots");
        check(cudaMemset(back.data(), 0x5a, count * fp8_pages::page), "back");
        check(cudaMemset(decoded.data(), 0xff, count * sizeof(decode_result)), "decoded");
        check(cudaMemset(encoded.data(), 0xff, count * sizeof(encode_result)), "encoded");
        check(cudaMemset(directory.data(), 0, (count + 1) * sizeof(std::uint64_t)), "directory");
        check(cudaMemset(packed.data(), 0xa5, packed_size), "packed");
        check(cudaDeviceSynchronize(), "set up");
        check(cudaGraphLaunch(run, stream), "replay");
        check(cudaStreamSynchronize(stream), "replay");
        const auto blocks = slots.copy(), codes = back.copy(), behind = packed.copy();
        const auto said = decoded.copy();
        const auto said_before = encoded.copy();
        const auto at = directory.copy();
        expect(at[0] == 0 && at[here] < packed_size &&
                   std::all_of(behind.begin() + ptrdiff_t(at[here]), behind.end(),
                               [](std::uint8_t byte) { return byte == 0xa5; }),
               "the directory begins at 0 and ends where the packed blocks do");
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::vector<std::uint8_t>& block = now.blocks[i];
            const auto slot = blocks.begin() + ptrdiff_t(i * room);
            if (i >= here) {
                expect(*slot == 0xa5 && codes[i * fp8_pages::page] == 0x5a &&
                           unsigned(said[i].code) == 0xff &&
                           unsigned(said_before[i].code) == 0xff && at[i + 1] == 0,
                       "pages that are not valid stay as they are");
                continue;
            }
            expect(std::equal(block.begin(), block.end(), slot), "the host's bytes in a replay");
            expect(std::equal(block.begin(), block.end(), behind.begin() + ptrdiff_t(at[i])) &&
                       at[i + 1] - at[i] == (block.size() + 15) / 16 * 16,
                   "a packed block in a replay");
            expect(said[i].code == status::ok &&
                       filled_part_equal(codes, now.codes, i, fp8_pages::page,
                                         now.filled[i] * fp8_pages::heads * fp8_pages::dim),
                   "the codes in a replay");
        }
    }
    check(cudaGraphExecDestroy(run), "destroy");
    check(cudaGraphDestroy(graph), "destroy");
    check(cudaStreamDestroy(stream), "destroy");
}

// An array that begins `offset` bytes behind a multiple of 256.
template <class T>
struct shifted {
    device_array<std::uint8_t> bytes;
    std::size_t offset, count;

    shifted(const std::vector<T>& from, std::size_t by)
        : bytes(from.size() * sizeof(T) + by), offset(by), count(from.size())
    {
        check(cudaMemcpy(bytes.data() + by, from.data(), count * sizeof(T),
                         cudaMemcpyHostToDevice),
              "shifted");
    }
    T* data() const { return reinterpret_cast<T*>(bytes.data() + offset); }
    std::vector<T> copy() const
    {
        std::vector<T> to(count);
        const std::vector<std::uint8_t> from = bytes.copy();
        std::memcpy(to.data(), from.data() + offset, count * sizeof(T));
        return to;
    }
};

// A page with codes and parameters `by` bytes off, or off as far as their type can be, and blocks
// `block_by`.
template <scalar_type Type, class Code>
void shifted_page(std::size_t by, std::size_t block_by)
{
    using pages = batch<Type, 32, Code>;
    const pages one(302, 1);
    const struct {
        shifted<std::uint16_t> means;
        shifted<std::uint8_t> sigmas;
        shifted<float> a, b;
    } on{{one.means, by / 2 * 2}, {one.sigmas, by}, {one.a, by / 4 * 4}, {one.b, by / 4 * 4}};
    const std::size_t room = max_encoded_bytes(one.spec);
    const shifted<Code> codes(one.codes, by), back(std::vector<Code>(one.codes.size()), by);
    const shifted<std::uint8_t> slot(std::vector<std::uint8_t>(room), block_by);
    const shifted<std::uint8_t> block(one.blocks[0], block_by);
    const predictor with = one.predict_on(on, 0);
    const device_array<encode_entry<Code, predictor>> to_encode(
        std::vector<encode_entry<Code, predictor>>{
            {slot.data(), room, one.filled[0], with,
             pages::view(static_cast<const Code*>(codes.data()), 0)}});
    const device_array<decode_entry<Code, predictor>> to_decode(
        std::vector<decode_entry<Code, predictor>>{
            {block.data(), one.blocks[0].size(), one.filled[0], with,
             pages::view(back.data(), 0)}});
    const device_array<encode_result> encoded(1);
    const device_array<decode_result> decoded(1);
    expect_ok(pages::codec::encode(one.spec, to_encode.data(), 1, nullptr, encoded.data(), nullptr),
              "encode");
    expect_ok(pages::codec::decode(one.spec, to_decode.data(), 1, nullptr, decoded.data(), nullptr),
              "decode");
    expect_ok(cudaDeviceSynchronize(), "a shifted page");
    const status documented = block_by % 4 == 0 && by % sizeof(Code) == 0 ? status::ok
                                                                          : status::bad_argument;
    expect(encoded.copy()[0].code == documented && decoded.copy()[0].code == documented,
           "blocks lie at multiples of 4, codes at multiples of their size");
    if (documented != status::ok) return;
    std::vector<std::uint8_t> made = slot.copy();
    made.resize(one.blocks[0].size());
    const std::uint32_t scalars = one.filled[0] * pages::heads * pages::dim;
    expect(scalars != 0 && made == one.blocks[0] &&
               filled_part_equal(back.copy(), one.codes, 0, pages::page, scalars),
           "a shifted page is exact");
}

void G03()
{
    for (const std::size_t by : {0u, 1u, 2u, 4u, 8u})
        for (const std::size_t block_by : {std::size_t(0), by}) {
            shifted_page<scalar_type::e4m3fn, std::uint8_t>(by, block_by);
            shifted_page<scalar_type::bf16, std::uint16_t>(by, block_by);
        }
}

void decode_a_batch(cudaStream_t stream)
{
    const fp8_pages pages(400, 3);
    const arrays_on_device<fp8_pages, std::uint8_t> on(pages);
    const device_array<std::uint8_t> back(pages.codes.size()), first(pages.blocks[0]),
        second(pages.blocks[1]), third(pages.blocks[2]);
    const std::uint8_t* blocks[] = {first.data(), second.data(), third.data()};
    std::vector<fp8_decode> entries;
    for (std::uint32_t i = 0; i < 3; ++i)
        entries.push_back({blocks[i], pages.blocks[i].size(), pages.filled[i],
                           pages.predict_on(on, i), fp8_pages::view(back.data(), i)});
    const device_array<fp8_decode> there(entries);
    const device_array<decode_result> results(3);
    expect_ok(fp8_pages::codec::decode(pages.spec, there.data(), 3, nullptr, results.data(),
                                       stream),
              "decode");
    expect_ok(cudaStreamSynchronize(stream), "decode");
    const auto codes = back.copy();
    const auto said = results.copy();
    for (std::uint32_t i = 0; i < 3; ++i)
        expect(said[i].code == status::ok &&
                   filled_part_equal(codes, pages.codes, i, fp8_pages::page,
                                     pages.filled[i] * fp8_pages::heads * fp8_pages::dim),
               "a page of a batch");
}

// Errors that others left are neither taken nor added to; the device stays the current one; a reset
// device is as good as new.
void G06()
{
    int device = -1, count = 0, still = -1;
    check(cudaGetDevice(&device), "current device");
    check(cudaGetDeviceCount(&count), "devices");
    decode_a_batch(nullptr);
    expect(cudaMemset(nullptr, 0, std::size_t(1) << 60) != cudaSuccess, "an error of others");
    const cudaError_t theirs = cudaPeekAtLastError();
    const device_array<fp8_decode> entries(1);
    const device_array<decode_result> results(1);
    const device_array<std::uint32_t> none(std::vector<std::uint32_t>(1, 0));
    block_spec spec;
    spec.dim = 32;
    expect_ok(fp8_pages::codec::decode(spec, entries.data(), 1, none.data(), results.data(),
                                       nullptr),
              "decode beside a pending error");
    spec.lanes = 32;
    expect(fp8_pages::codec::decode(spec, entries.data(), 1, none.data(), results.data(),
                                    nullptr) == cudaErrorInvalidValue,
           "a refusal");
    expect(theirs != cudaSuccess && cudaGetLastError() == theirs, "the pending error is kept");
    expect(cudaPeekAtLastError() == cudaSuccess, "and ours does not follow it");

    // A launch that fails: the legacy stream while another one is captured.
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    check(cudaStreamCreate(&stream), "stream");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    spec.lanes = 8;
    expect(fp8_pages::codec::decode(spec, entries.data(), 1, none.data(), results.data(),
                                    nullptr) == cudaErrorStreamCaptureImplicit,
           "a launch that fails says so");
    expect(cudaPeekAtLastError() == cudaSuccess, "and leaves nothing behind");
    expect(cudaSetDevice(count) != cudaSuccess, "another error of others");
    expect(fp8_pages::codec::decode(spec, entries.data(), 1, none.data(), results.data(),
                                    nullptr) == cudaErrorStreamCaptureImplicit,
           "a launch that fails beside a pending error");
    expect(cudaGetLastError() != cudaSuccess, "the caller's check still fails");
    static_cast<void>(cudaStreamEndCapture(stream, &graph));
    static_cast<void>(cudaGetLastError());
    check(cudaStreamDestroy(stream), "destroy");
    check(cudaGetDevice(&still), "current device");
    expect(still == device, "the current device is unchanged");
    expect_ok(cudaDeviceSynchronize(), "synchronise");
}

void after_reset()
{
    check(cudaDeviceReset(), "reset");
    decode_a_batch(nullptr);
}

// True if it ran.
bool on_second_device()
{
    int count = 0, now = -1;
    check(cudaGetDeviceCount(&count), "devices");
    if (count < 2) return false;
    decode_a_batch(nullptr);  // the first device first
    check(cudaSetDevice(1), "the second device");
    decode_a_batch(nullptr);
    check(cudaGetDevice(&now), "current device");
    expect(now == 1, "the current device is unchanged");
    return true;
}

// What lies around the pages of a large pool: `part` bytes from each of the places on.
__global__ void fill_parts(std::uint8_t* pool, const std::size_t* places, std::uint32_t part)
{
    for (std::uint32_t i = threadIdx.x; i < part; i += blockDim.x)
        pool[places[blockIdx.x] + i] = 0x5a;
}
__global__ void read_parts(const std::uint8_t* pool, const std::size_t* places, std::uint32_t part,
                           std::uint8_t* to)
{
    for (std::uint32_t i = threadIdx.x; i < part; i += blockDim.x)
        to[blockIdx.x * part + i] = pool[places[blockIdx.x] + i];
}

// A pool of more than 2^31 codes: its first page, the one across 2^31, its last, and two whose heads
// lie that far apart, one of them raw; a page's room before and behind each. Then encoded from there.
void E06()
{
    constexpr std::size_t page = fp8_pages::page, border = std::size_t(1) << 31;
    constexpr std::size_t size = border + 64 * page, apart = 8 * page;
    constexpr std::uint32_t count = 5, parts = 3 + 2 * fp8_pages::heads;
    constexpr std::uint32_t part = 3 * page;
    fp8_pages pages(600, count);
    for (std::uint32_t k = 0; k < page; ++k)
        pages.codes[4 * page + k] = std::uint8_t(k * 2654435761u >> 24);
    expect(pages.encode_on_host(4) == block_mode::raw && pages.filled[3] != 0, "pages as meant");
    const arrays_on_device<fp8_pages, std::uint8_t> on(pages);
    std::uint8_t* pool = nullptr;
    check(cudaMalloc(&pool, size), "a large pool");
    const device_array<std::size_t> places(std::vector<std::size_t>{
        0, border - page / 2 - page, size - part, apart - page, border + apart - page,
        2 * apart - page, border + 2 * apart - page});
    const std::size_t begins[] = {page, border - page / 2, size - 2 * page, apart, 2 * apart};
    const std::size_t room = max_encoded_bytes(pages.spec);
    std::vector<std::uint8_t> all(count * room);
    const device_array<std::uint8_t> blocks(all.size()), again(all.size()), seen(parts * part);
    std::vector<fp8_decode> entries;
    std::vector<fp8_encode> back;
    for (std::uint32_t i = 0; i < count; ++i) {
        std::copy(pages.blocks[i].begin(), pages.blocks[i].end(),
                  all.begin() + ptrdiff_t(i * room));
        box_view<std::uint8_t> out{pool + begins[i], fp8_pages::dim,
                                   fp8_pages::heads * fp8_pages::dim};
        if (i >= 3) out = {pool + begins[i], ptrdiff_t(border), fp8_pages::dim};
        entries.push_back({blocks.data() + i * room, room, pages.filled[i],
                           pages.predict_on(on, i), out});
        back.push_back({again.data() + i * room, room, pages.filled[i], pages.predict_on(on, i),
                        {out.data, out.head_stride, out.token_stride}});
    }
    upload(blocks, all);
    const device_array<fp8_decode> there(entries);
    const device_array<fp8_encode> back_there(back);
    const device_array<decode_result> results(count);
    const device_array<encode_result> encoded(count);
    fill_parts<<<parts, 128>>>(pool, places.data(), part);
    expect_ok(fp8_pages::codec::decode(pages.spec, there.data(), count, nullptr, results.data(),
                                       nullptr),
              "decode");
    expect_ok(fp8_pages::codec::encode(pages.spec, back_there.data(), count, nullptr,
                                       encoded.data(), nullptr),
              "encode");
    read_parts<<<parts, 128>>>(pool, places.data(), part, seen.data());
    expect_ok(cudaDeviceSynchronize(), "a large pool");
    for (const decode_result& one : results.copy())
        expect(one.code == status::ok, "a page of a large pool");
    const auto made = again.copy();
    for (std::uint32_t i = 0; i < count; ++i)
        expect(std::equal(pages.blocks[i].begin(), pages.blocks[i].end(),
                          made.begin() + ptrdiff_t(i * room)),
               "a block from a large pool");

    std::vector<std::uint8_t> should(parts * part, 0x5a);
    for (std::uint32_t i = 0; i < count; ++i)
        for (std::uint32_t k = 0; k < pages.filled[i] * fp8_pages::heads * fp8_pages::dim; ++k) {
            const std::uint32_t row = k / fp8_pages::dim, head = row % fp8_pages::heads;
            const std::size_t token = row / fp8_pages::heads, channel = k % fp8_pages::dim;
            const std::size_t far = 3 + (i - 3) * fp8_pages::heads + head;
            const std::size_t at = i < 3 ? i * part + k
                                         : far * part + token * fp8_pages::dim + channel;
            should[page + at] = pages.codes[i * page + k];
        }
    expect(seen.copy() == should, "every page is where it belongs, and nothing else is touched");
    check(cudaFree(pool), "free");
}

}  // namespace

int main(int count, char** arguments)
{
    if (!there_is_a_device()) return 0;
    const std::string wanted = count > 1 ? arguments[1] : "";
    if (wanted == "G01") G01();
    else if (wanted == "G03") G03();
    else if (wanted == "G06") G06(), after_reset();
    else if (wanted == "E06") E06();
    else if (wanted == "E07") padded_batch();
    else if (wanted == "second_device") {
        if (!on_second_device()) return std::printf("skipped: one device only\n") < 0;
    } else return 2;
    std::printf("%s: %d failures\n", wanted.c_str(), failures);
    return failures == 0 ? 0 : 1;
}
