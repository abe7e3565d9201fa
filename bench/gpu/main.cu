// bench_gpu CACHE.safetensors PROFILE FOLDER DATE [SECONDS]: measures encoding and decoding on the
// GPU and writes FOLDER/table.json and table.md. Every row is verified first: all codes must come
// back. On a device that is no GPU rows are tiny and have no speeds. Rows that would begin after
// SECONDS are left out, and named.

#include <cstring>

#include <normans/cuda/device_scaled.cuh>

#include "attention.cuh"
#include "data.hpp"
#include "nvcomp_peer.cuh"
#include "timing.cuh"

namespace {

using namespace bench;
using namespace normans;

/// Where means come from: as they are in memory, or nowhere.
enum class mean_kind { bf16, fp32, in_register };

template <mean_kind Kind>
struct means_on_device {
    using element = std::conditional_t<Kind == mean_kind::fp32, float, std::uint16_t>;
    using view = std::conditional_t<Kind == mean_kind::fp32, fp32_means, bf16_means>;
    using predictor = view_predictor<view, channel_sigmas, channel_affine>;
    static constexpr const char* name = Kind == mean_kind::fp32 ? "mu-fp32" : "mu-bf16";
    static constexpr std::size_t bytes = sizeof(element);

    device_memory<element> means;
    device_memory<std::uint8_t> sigmas;
    device_memory<float> a, b;
    std::size_t scalars, channels, distinct;

    means_on_device(const gpu_pages& from, std::size_t pages)
        : means(converted(from.means), pages * from.page_scalars()), sigmas(from.sigmas),
          a(from.a), b(from.b), scalars(from.page_scalars()), channels(from.channels()),
          distinct(from.pages)
    {
    }
    static std::vector<element> converted(const std::vector<std::uint16_t>& from)
    {
        std::vector<element> to;
        for (const std::uint16_t mean : from)
            if constexpr (Kind == mean_kind::fp32)
                to.push_back(bits_to_float(std::uint32_t(mean) << 16));
            else
                to.push_back(mean);
        return to;
    }
    predictor operator()(const block_spec& spec, std::size_t page) const
    {
        const std::size_t first = page % distinct * channels;
        return {{means.get() + page * scalars, ptrdiff_t(spec.dim), ptrdiff_t(channels)},
                {sigmas.get() + first, spec.dim},
                {a.get() + first, b.get() + first, spec.dim}};
    }
};

constexpr std::uint8_t register_sigma = 8 * 14 + 4;

template <>
struct means_on_device<mean_kind::in_register> {
    using predictor = register_means;
    static constexpr const char* name = "mu-register";
    static constexpr std::size_t bytes = 0;
    means_on_device(const gpu_pages&, std::size_t) {}
    predictor operator()(const block_spec&, std::size_t) const { return {register_sigma}; }
};

template <scalar_type Type, mean_kind Kind, bool Scaled = has_scale(Type)>
struct entries_of {
    using code = std::conditional_t<code_bytes(Type) == 1, std::uint8_t, std::uint16_t>;
    using predictor = typename means_on_device<Kind>::predictor;
    using encode = encode_entry<code, predictor>;
    using decode = decode_entry<code, predictor>;
};
template <scalar_type Type, mean_kind Kind>
struct entries_of<Type, Kind, true> {
    using encode = scaled_encode_entry<typename means_on_device<Kind>::predictor>;
    using decode = scaled_decode_entry<typename means_on_device<Kind>::predictor>;
};

template <scalar_type Type, std::uint32_t Width, mean_kind Kind>
void measure_rows(const gpu_pages& from, const std::vector<std::size_t>& batches, conditions& with,
                  gpu_table& table, const std::string& tail)
{
    using code = std::conditional_t<code_bytes(Type) == 1, std::uint8_t, std::uint16_t>;
    using codec = device_codec<Type, Width>;
    using encode_type = typename entries_of<Type, Kind>::encode;
    using decode_type = typename entries_of<Type, Kind>::decode;
    using means_type = means_on_device<Kind>;
    const std::size_t pages = *std::max_element(batches.begin(), batches.end());
    const std::size_t scalars = from.page_scalars();
    const std::size_t room = (max_encoded_bytes(from.spec) + 15) / 16 * 16;
    block_spec spec = from.spec;
    spec.lanes = Width;
    std::vector<code> distinct(from.codes.size() / sizeof(code));
    std::memcpy(distinct.data(), from.codes.data(), from.codes.size());
    const device_memory<code> codes(distinct, pages * scalars), back(pages * scalars);
    const device_memory<std::uint8_t> slots(pages * room);
    const means_type means(from, pages);
    std::vector<encode_type> to_encode(pages);
    std::vector<decode_type> to_decode(pages);
    const std::size_t groups = from.channels() / 32;
    const device_memory<float> scales(std::vector<float>(groups * spec.tokens, 1.0f));
    const ptrdiff_t head = ptrdiff_t(spec.dim), token = ptrdiff_t(from.channels());
    for (std::size_t p = 0; p < pages; ++p) {
        encode_type& in = to_encode[p];
        decode_type& out = to_decode[p];
        out.block = in.out = slots.get() + p * room;
        out.bytes = in.capacity = room;
        out.tokens = in.tokens = spec.tokens;
        out.predictor = in.predictor = means(spec, p);
        in.codes = box_view<const code>{codes.get() + p * scalars, head, token};
        out.out = box_view<code>{back.get() + p * scalars, head, token};
        if constexpr (has_scale(Type))
            out.scales = in.scales = scale_view{scales.get(), ptrdiff_t(spec.dim / 32),
                                                ptrdiff_t(groups), 1, 32};
    }
    const device_memory<encode_type> encode_there(to_encode);
    const device_memory<decode_type> decode_there(to_decode);
    const device_memory<encode_result> encoded(pages);
    const device_memory<decode_result> decoded(pages);
    const auto encode = [&](std::size_t count) {
        check(codec::encode(spec, encode_there.get(), std::uint32_t(count), nullptr, encoded.get(),
                            with.stream));
    };
    const auto decode = [&](std::size_t count) {
        check(codec::decode(spec, decode_there.get(), std::uint32_t(count), nullptr, decoded.get(),
                            with.stream));
    };

    encode(pages);
    decode(pages);
    check(cudaStreamSynchronize(with.stream));
    std::vector<std::size_t> bytes;  // of the first pages
    for (const encode_result& one : encoded.copy(pages)) {
        if (!one) throw std::runtime_error("encode" + tail + ": " + status_name(one.code));
        bytes.push_back(one.bytes + (bytes.empty() ? 0 : bytes.back()));
    }
    for (const decode_result& one : decoded.copy(pages))
        if (!one) throw std::runtime_error("decode" + tail + ": " + status_name(one.code));
    const std::vector<code> seen = back.copy(pages * scalars);
    for (std::size_t at = 0; at < seen.size(); at += distinct.size())
        if (std::memcmp(&seen[at], distinct.data(),
                        std::min(distinct.size(), seen.size() - at) * sizeof(code)) != 0)
            throw std::runtime_error("decode" + tail + ": other codes came back");

    for (const std::size_t count : batches)
        for (const bool decodes : {false, true}) {
            const std::string name =
                (decodes ? "decode" : "encode") + tail + std::to_string(count);
            if (with.over()) {
                table.leave_out(name, "no time was left");
                continue;
            }
            gpu_row row;
            row.name = name;
            row.scalars = double(count * scalars);
            row.bits = 8 * double(bytes[count - 1]) / row.scalars;
            row.microseconds = microseconds(with, [&] { decodes ? decode(count) : encode(count); });
            if (with.hardware) {
                const double moved =
                    row.scalars * (sizeof(code) + means_type::bytes + row.bits / 8);
                row.gb_s = row.scalars * sizeof(code) / row.microseconds * 1e-3;
                row.traffic = moved / (row.microseconds * 1e-6) / with.copy_bytes_per_second;
            }
            table.add(row);
        }
}

template <scalar_type Type, std::uint32_t Width, mean_kind Kind>
void measure(const gpu_pages& from, const std::vector<std::size_t>& batches, conditions& with,
             gpu_table& table)
{
    const std::string tail = std::string("/") + scalar_name(Type) + "/" + from.name + "/lanes-" +
                             std::to_string(Width) + "/" + means_on_device<Kind>::name + "/pages-";
    if (with.over()) return table.leave_out("*" + tail + "*", "no time was left");
    table.part("*" + tail + "*",
               [&] { measure_rows<Type, Width, Kind>(from, batches, with, table, tail); });
}

void measure_copies(conditions& with, gpu_table& table)
{
    const std::size_t bytes = with.hardware ? std::size_t(1) << 28 : 4096;
    const device_memory<std::uint8_t> from(bytes), to(bytes);
    void* host = nullptr;
    check(cudaMallocHost(&host, bytes));
    std::memset(host, 0, bytes);
    for (const bool from_host : {false, true}) {
        gpu_row row;
        row.name = from_host ? "copy/pinned-to-device" : "copy/device-to-device";
        row.microseconds = microseconds(with, [&] {
            check(cudaMemcpyAsync(to.get(), from_host ? host : from.get(), bytes,
                                  cudaMemcpyDefault, with.stream));
        });
        if (with.hardware) row.gb_s = double(bytes) / row.microseconds * 1e-3;
        if (with.hardware && !from_host)
            with.copy_bytes_per_second = 2 * double(bytes) / (row.microseconds * 1e-6);
        table.add(row);
    }
    check(cudaFreeHost(host));
}

template <scalar_type Type>
void measure_type(const std::string& cache, const std::string& profile, conditions& with,
                  gpu_table& table)
{
    const std::size_t most = with.hardware ? 4096 : 2, distinct = with.hardware ? 64 : 2;
    const std::uint32_t tokens = with.hardware ? 16 : 1;
    const std::vector<std::size_t> all = with.hardware
                                             ? std::vector<std::size_t>{1, 8, 64, 512, 4096}
                                             : std::vector<std::size_t>{1, 2};
    for (const double bits : {2.5, 1.7, 3.5, 6.0}) {
        const gpu_pages drawn = drawn_pages(Type, bits, distinct, tokens);
        const std::vector<std::size_t> large(1, most);
        measure<Type, 32, mean_kind::bf16>(drawn, bits < 2 || bits > 3 ? large : all, with, table);
        if (bits < 2 || bits > 3) continue;
        measure<Type, 16, mean_kind::bf16>(drawn, large, with, table);
        measure<Type, 8, mean_kind::bf16>(drawn, large, with, table);
        measure<Type, 32, mean_kind::fp32>(drawn, large, with, table);
        measure<Type, 32, mean_kind::in_register>(
            register_pages(Type, register_sigma, distinct, tokens), large, with, table);
    }
    table.part(std::string("*/") + scalar_name(Type) + "/real", [&] {
        const gpu_pages real = real_pages(Type, cache, profile);
        const std::size_t real_pages_in_call = with.hardware ? 16384 : 4;
        measure<Type, 32, mean_kind::bf16>(real, {real_pages_in_call}, with, table);
        measure_nvcomp(real, real_pages_in_call, with, table);
    });
}

// A new scale at every step, as engines with groups of 32 have it.
void measure_scaled(conditions& with, gpu_table& table)
{
    const std::size_t most = with.hardware ? 4096 : 2, distinct = with.hardware ? 64 : 2;
    const gpu_pages pages = scaled_pages(2.5, distinct, with.hardware ? 16 : 1);
    measure<scalar_type::int8, 32, mean_kind::bf16>(pages, {most}, with, table);
}

}  // namespace

int main(int count, char** arguments)
{
    if (count < 5) {
        std::fprintf(stderr, "usage: bench_gpu CACHE.safetensors PROFILE FOLDER DATE [SECONDS]\n");
        return 2;
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("skipped: no device\n");
        return 0;
    }
    try {
        cudaDeviceProp device;
        check(cudaGetDeviceProperties(&device, 0));
        conditions with{};
        with.hardware = std::any_of(std::begin(device.uuid.bytes), std::end(device.uuid.bytes),
                                    [](char byte) { return byte != 0; });
        with.end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(count > 5 ? std::atoi(arguments[5]) : 3600);
        check(cudaStreamCreateWithFlags(&with.stream, cudaStreamNonBlocking));
        check(cudaEventCreate(&with.begin));
        check(cudaEventCreate(&with.stop));
        gpu_table table(arguments[3], device.name, arguments[4], with.hardware);
        measure_copies(with, table);
        measure_type<scalar_type::e4m3fn>(arguments[1], arguments[2], with, table);
        measure_type<scalar_type::bf16>(arguments[1], arguments[2], with, table);
        measure_scaled(with, table);
        table.part("attention/e4m3fn", [&] { measure_attention<scalar_type::e4m3fn>(with, table); });
        table.part("attention/bf16", [&] { measure_attention<scalar_type::bf16>(with, table); });
        check(cudaEventDestroy(with.begin));
        check(cudaEventDestroy(with.stop));
        check(cudaStreamDestroy(with.stream));
        if (table.failed()) return 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
