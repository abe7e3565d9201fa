// Compiles a kernel with warp_codec.cuh at run time, as engines do, with headers from a folder, and
// others with warp_scaled.cuh and warp_order0.cuh, as one string that holds them all. None of them
// is the host's: core/, wire/, block/ and cuda/ are all that they lie in.
// usage: cuda_nvrtc_test INCLUDE CCCL

#include <nvrtc.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

// What the headers want of the standard library comes from the toolkit's device library.
const std::string names[] = {"cstddef", "cstdint", "cstring", "type_traits", "utility", "math.h"};

std::string replacement(const std::string& name)
{
    if (name == "math.h") return "";  // built in
    return "#include <cuda/std/" + name + ">\nnamespace std { using namespace cuda::std; }\n";
}

const char* const kernel = R"(
using codec = normans::warp_codec<normans::scalar_type::e4m3fn, 32>;

extern "C" __global__ void decode(normans::block_spec spec, const unsigned char* block,
                                  unsigned long long bytes, const unsigned short* mean,
                                  const unsigned char* sigma, unsigned char* out, int* status)
{
    __shared__ codec::TempStorage tables;
    codec::prepare(tables, spec, threadIdx.x, blockDim.x);
    __syncthreads();
    const auto predictor =
        normans::predict(normans::bf16_means{mean, 0, spec.dim},
                         normans::channel_sigmas{sigma, spec.dim});
    const auto result = codec(tables).decode(
        spec, block, bytes, predictor,
        normans::box_sink<unsigned char>{normans::dense(spec, out)});
    if (threadIdx.x == 0) *status = int(result.code);
}
)";

const char* const scaled_kernel = R"(
using codec = normans::warp_codec<normans::scalar_type::int4, 8, normans::coder_id::tans>;

extern "C" __global__ void decode(normans::block_spec spec, const unsigned char* block,
                                  unsigned long long bytes, const unsigned short* mean,
                                  const unsigned char* sigma, unsigned char* out, int* status)
{
    __shared__ codec::TempStorage tables;
    extern __shared__ unsigned room[];
    codec::prepare(tables, spec, threadIdx.x, blockDim.x, room, 65536);
    __syncthreads();
    const auto predictor =
        normans::predict(normans::bf16_means{mean, 0, spec.dim},
                         normans::channel_sigmas{sigma, spec.dim});
    const auto result = codec(tables).decode(
        spec, block, bytes, predictor,
        normans::box_sink<unsigned char>{normans::dense(spec, out)});
    if (threadIdx.x == 0) *status = int(result.code);
}
)";

const char* const order0_kernel = R"(
using static_codec =
    normans::warp_codec<normans::scalar_type::int8, 32, normans::coder_id::order0>;

extern "C" __global__ void decode_order0(normans::block_spec spec, const unsigned char* block,
                                         unsigned long long bytes, unsigned char* out, int* status)
{
    __shared__ static_codec::TempStorage room;
    const auto result = static_codec(room).decode(
        spec, block, bytes, 0, normans::box_sink<unsigned char>{normans::dense(spec, out)});
    if (threadIdx.x == 0) *status = int(result.code);
}
)";

std::string text_of(const std::filesystem::path& path)
{
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

// The header with those that it includes by "" in their places, each once.
std::string flat(const std::filesystem::path& path, std::set<std::filesystem::path>& seen)
{
    if (!seen.insert(path.lexically_normal()).second) return "";
    std::istringstream lines(text_of(path));
    std::string text;
    const std::string include = "#include \"";
    for (std::string line; std::getline(lines, line); text += line + "\n") {
        const std::string name = line.substr(0, line.rfind('"'));
        if (line.rfind(include, 0) == 0)
            line = flat(path.parent_path() / name.substr(include.size()), seen);
        else if (line == "#pragma once")
            line.clear();
    }
    return text;
}

// Whether headers lie in the folders for devices, or in none.
bool for_devices(const std::set<std::filesystem::path>& headers,
                 const std::filesystem::path& folder)
{
    const std::set<std::string> allowed = {"core", "wire", "block", "cuda"};
    bool good = !headers.empty();
    for (const auto& header : headers) {
        const auto name = header.lexically_relative(folder.lexically_normal());
        if (!name.has_parent_path() || allowed.count(name.begin()->string()) != 0) continue;
        std::printf("%s is no header for devices\n", name.string().c_str());
        good = false;
    }
    return good;
}

bool compiles(const std::string& source, const std::vector<std::string>& options)
{
    std::vector<std::string> replacements;
    for (const std::string& name : names) replacements.push_back(replacement(name));
    std::vector<const char*> name_pointers, text_pointers, pointers;
    for (const std::string& name : names) name_pointers.push_back(name.c_str());
    for (const std::string& text : replacements) text_pointers.push_back(text.c_str());
    for (const std::string& option : options) pointers.push_back(option.c_str());
    nvrtcProgram program;
    if (nvrtcCreateProgram(&program, source.c_str(), "kernel.cu", int(std::size(names)),
                           text_pointers.data(), name_pointers.data()) != NVRTC_SUCCESS)
        return false;
    const nvrtcResult result = nvrtcCompileProgram(program, int(options.size()), pointers.data());
    std::size_t log_bytes = 0, cubin_bytes = 0;
    nvrtcGetProgramLogSize(program, &log_bytes);
    std::string log(log_bytes, '\0');
    nvrtcGetProgramLog(program, log.data());
    nvrtcGetCUBINSize(program, &cubin_bytes);
    std::printf("%s: %s, %zu bytes of cubin\n%s\n", options[0].c_str(),
                nvrtcGetErrorString(result), cubin_bytes, log.c_str());
    nvrtcDestroyProgram(&program);
    return result == NVRTC_SUCCESS && cubin_bytes != 0;
}

}  // namespace

int main(int count, char** arguments)
{
    if (count != 3) return 2;
    const std::filesystem::path include = arguments[1];
    const std::string cccl = std::string("-I") + arguments[2];
    std::set<std::filesystem::path> seen;
    std::string headers = flat(include / "normans/cuda/warp_scaled.cuh", seen);
    headers += flat(include / "normans/cuda/warp_order0.cuh", seen);
    const bool folder = compiles("#include <normans/cuda/warp_codec.cuh>\n" + std::string(kernel),
                                 {"-arch=sm_75", "-std=c++17", "-default-device", cccl,
                                  "-I" + include.string()});
    const bool string =
        compiles(headers + scaled_kernel + order0_kernel,
                 {"-arch=sm_90", "-std=c++20", "-default-device", cccl});
    return folder && string && for_devices(seen, include / "normans") ? 0 : 1;
}
