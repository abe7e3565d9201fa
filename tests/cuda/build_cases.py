"""Cases from public bug reports that show when somebody builds, not when somebody runs.

P01  two .cpp and two .cu units that include every header make one program: with -rdc=true under -G,
     and optimised in C++20 with the host's warnings; no table is there twice by a strong name
P03  the order of the architectures changes nothing; __CUDA_ARCH__ only inside functions
P08  cuda_fp8.h and cuda_bf16.h before and after, in .cpp and .cu, under the switches that engines
     set; scalars are plain integers
P09  the device headers need nothing but the runtime's own: no CUB, Thrust or cuda/std
S04  what a unit costs that includes the headers, or codes two types: seconds and bytes; no header
     that is known to be heavy
"""

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
GATE = os.path.join(HERE, "gate.cu")

# S04: CPU seconds beyond an empty unit (a slow machine needs thrice what was measured) and bytes.
BUDGET = {
    "normans.hpp": (6, None),
    "warp_codec.cuh": (9, None),
    "gate.cu, sm_90": (30, 330_000),
}

# Decodes into the toolkit's type where it is known.
KERNEL = """#include <normans/cuda/device_codec.cuh>
#if defined(__CUDA_FP8_TYPES_EXIST__)
using code = __nv_fp8_e4m3;
__device__ void store(code& to, unsigned value) { to.__x = __nv_fp8_storage_t(value); }
#else
using code = unsigned char;
__device__ void store(code& to, unsigned value) { to = code(value); }
#endif
using codec = normans::warp_codec<normans::scalar_type::e4m3fn, 32>;
struct ramp {
    __device__ normans::prediction operator()(unsigned) const { return {1.0f, 100}; }
};
__global__ void decode(normans::block_spec spec, const unsigned char* block, size_t bytes,
                       code* out, normans::status* status)
{
    __shared__ codec::TempStorage tables;
    codec::prepare(tables, spec, threadIdx.x, blockDim.x);
    __syncthreads();
    const auto sink = [=](const normans::scalar_position& at, unsigned value) {
        store(out[at.index], value);
    };
    *status = codec(tables).decode(spec, block, bytes, ramp{}, sink).code;
}
"""


def run(command, folder=None):
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        sys.exit(" ".join(command) + "\n" + done.stdout + done.stderr)
    return done.stdout + done.stderr


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def public_headers(include, ending):
    """As they are included, but for what needs Eigen or a processor's instructions."""
    found = []
    for root, _, names in os.walk(os.path.join(include, "normans")):
        found += [os.path.relpath(os.path.join(root, name), include)
                  for name in names if name.endswith(ending)
                  and not re.match(r"(planes|order0|words)_(avx|neon)|decompose\.", name)]
    return "".join(f"#include <{name}>\n" for name in sorted(found))


def check_p01(args, folder):
    everything = public_headers(args.include, ".hpp")
    device = everything + public_headers(args.include, ".cuh")
    if everything.count("#include") < 40 or device.count("#include") < 45:
        return ["headers were not found"]
    objects = []
    for name in ("one", "two"):
        unit = write(folder, name + ".cpp", everything + f"int {name}() {{ return 0; }}\n")
        objects.append(os.path.join(folder, name + ".o"))
        run([args.cxx, "-std=c++17", "-c", "-o", objects[-1], f"-I{args.include}", unit])
    units = [write(folder, name, device + f'#include "{os.path.join(HERE, name)}"\n')
             for name in ("gate.cu", "gate_main.cu")]
    warnings = "-Xcompiler=-Wall,-Wextra,-Wconversion,-Wsign-conversion,-Wshadow"
    complaints = []
    for options in (["-std=c++17", "-G"], ["-std=c++20", warnings]):
        program = os.path.join(folder, "program")
        run([args.nvcc, "-Werror", "all-warnings", "-arch=sm_90", f"-I{args.include}"] + options +
            ["-rdc=true", "-o", program] + units + objects)
        names = run(["nm", "-C", program]).splitlines()
        if not any("offsets_of" in name for name in names):
            complaints.append("the program has none of our symbols")
        complaints += [f"a strong name for data: {name}" for name in names
                       if re.search(r"^\S+ [BDGRS] .*normans::", name)]
    return complaints


def outside_functions(text):
    """Lines with __CUDA_ARCH__ that no function's braces enclose."""
    code = re.sub(r"//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", "", text)
    opened, found, last = [], [], 0
    for token in re.finditer(r"[{}]|\b__CUDA_ARCH__\b", code):
        if token[0] == "{":
            before = code[last:token.start()].rstrip()
            opened.append(bool(re.search(r"\)\s*(const|noexcept|\s)*(:[^{}]*)?$", before)))
        elif token[0] == "}":
            opened.pop()
        elif not any(opened):
            found.append(code.count("\n", 0, token.start()) + 1)
        last = token.end()
    return found


def check_p03(args, folder):
    complaints = []
    if outside_functions("#if defined(__CUDA_ARCH__)\nint f();\n#endif\n") != [1] or \
            outside_functions("struct s {\nint f() {\n#if __CUDA_ARCH__\n#endif\n}\n};\n"):
        complaints.append("the search for __CUDA_ARCH__ is wrong")
    uses = 0
    for root, _, names in os.walk(args.include):
        for name in names:
            text = read_bytes(os.path.join(root, name)).decode()
            uses += text.count("__CUDA_ARCH__")
            complaints += [f"{name}:{line}: __CUDA_ARCH__ outside a function"
                           for line in outside_functions(text)]
    if uses == 0:
        complaints.append("no __CUDA_ARCH__ was found at all")
    made = {}
    unit = write(folder, "unit.cu", KERNEL)
    for order in (("80", "90"), ("90", "80")):
        place = os.path.join(folder, "-".join(order))
        os.mkdir(place)
        run([args.nvcc, "-std=c++17", "-fatbin", "--keep", f"-I{args.include}", unit, "-o", "out"] +
            [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in order], place)
        for name in os.listdir(place):
            found = re.search(r"_(\d+)\.cubin$", name)
            if found:
                made.setdefault(found[1], []).append(read_bytes(os.path.join(place, name)))
    print({arch: [len(one) for one in cubins] for arch, cubins in made.items()})
    if [len(made.get(arch, [])) for arch in ("80", "90")] != [2, 2]:
        complaints.append("not every order made its code")
    complaints += [f"sm_{arch} depends on the order" for arch, cubins in made.items()
                   if len(set(cubins)) != 1]
    return complaints


def check_p08(args, folder):
    toolkit = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(args.nvcc))), "include")
    theirs = "#include <cuda_fp8.h>\n#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"
    ours = "#include <normans/normans.hpp>\n"
    kernels = "#include <normans/cuda/device_codec.cuh>\n"
    plain = ("static_assert(normans::code_bytes(normans::scalar_type::e4m3fn) == 1);\n"
             "int main() { return 0; }\n")
    switches = ["-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__",
                "-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__"]
    host = [args.cxx, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
            f"-I{args.include}", "-isystem", toolkit]
    device = [args.nvcc, "-std=c++17", "-arch=sm_89", "-cubin", "-o", os.devnull, "-Werror",
              "all-warnings", f"-I{args.include}"]
    # Without a toolkit: some have its headers where compilers look anyhow.
    made = run([args.cxx, "-std=c++17", "-M", f"-I{args.include}",
                write(folder, "alone.cpp", ours + plain)])
    theirs_too = [name for name in made.replace("\\\n", " ").split()
                  if os.path.exists(os.path.join(toolkit, os.path.basename(name)))]
    if theirs_too or "normans.hpp" not in made:
        return [f"without a toolkit: {theirs_too}"]
    for name, text in (("before", theirs + ours), ("after", ours + theirs)):
        run(host + [write(folder, name + ".cpp", text + plain)])
        run(device + switches + [write(folder, name + ".cu", text + kernels + plain)])
    # Codes of the toolkit's types are decoded as the integers that they are.
    run(device + [write(folder, "types.cu", theirs + KERNEL)])
    return []


def check_p09(args, folder):
    text = "#include <normans/normans.hpp>\n#include <normans/cuda/device_codec.cuh>\n"
    made = run([args.nvcc, "-std=c++17", "-M", f"-I{args.include}",
                write(folder, "all.cu", text)])
    names = made.replace("\\\n", " ").split()
    if not any(name.endswith("device_codec.cuh") for name in names):
        return ["the list of what is included was not made"]
    # What nvcc itself includes before every unit is not ours.
    before = run([args.nvcc, "-std=c++17", "-M", write(folder, "empty.cu", "")]).split()
    return [f"includes {name}" for name in names
            if name not in before and re.search(r"/(cccl|cub|thrust|cuda/std)/", name)]


def seconds(command):
    def used():
        times = resource.getrusage(resource.RUSAGE_CHILDREN)
        return times.ru_utime + times.ru_stime
    begin = used()
    run(command)
    return used() - begin


def check_s04(args, folder):
    made = run([args.cxx, "-std=c++17", "-M", f"-I{args.include}",
                write(folder, "core.cpp", "#include <normans/normans.hpp>\n")])
    heavy = re.findall(r"\S+/(?:iostream|fstream|sstream|regex|filesystem|random|future)\s", made)
    if heavy or "normans.hpp" not in made:
        return [f"normans.hpp includes {heavy}"]
    host = [args.cxx, "-std=c++17", "-O2", "-c", "-o", os.devnull, f"-I{args.include}"]
    out = os.path.join(folder, "out.cubin")

    def cubin(arch):
        return [args.nvcc, "-std=c++17", f"-arch={arch}", "-cubin", "-o", out, f"-I{args.include}"]
    empty_host = seconds(host + [write(folder, "empty.cpp", "")])
    empty_device = seconds(cubin("sm_90") + [write(folder, "empty.cu", "")])
    complaints = []

    def hold(name, took, size=None):
        most, bytes_most = BUDGET[name]
        print(f"{name}: {took:.2f} s of {most}",
              f", {size} bytes of {bytes_most}" if size else "")
        if took > most or (size or 0) > (bytes_most or 0):
            complaints.append(f"{name} is over its budget")
    hold("normans.hpp", seconds(
        host + [write(folder, "all.cpp", "#include <normans/normans.hpp>\n")]) - empty_host)
    hold("warp_codec.cuh", seconds(
        cubin("sm_90") +
        [write(folder, "all.cu", "#include <normans/cuda/warp_codec.cuh>\n")]) - empty_device)
    took = seconds(cubin("sm_90") + [GATE]) - empty_device
    hold("gate.cu, sm_90", took, os.path.getsize(out))
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    checks = {"P01": check_p01, "P03": check_p03, "P08": check_p08, "P09": check_p09,
              "S04": check_s04}
    parser.add_argument("check", choices=checks)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--cxx", required=True)
    parser.add_argument("--include", required=True)
    args = parser.parse_args()
    args.nvcc = shutil.which(args.nvcc)
    with tempfile.TemporaryDirectory() as folder:
        complaints = checks[args.check](args, folder)
    print("\n".join(complaints))
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
