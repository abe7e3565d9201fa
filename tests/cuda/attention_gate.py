"""What the attention kernels cost and what they must not do.

costs   compiles attention_gate.cu, prints registers and static shared memory; fails on spills,
        local memory or a stack
stores  runs attention_test through a launcher that counts: global memory gets the outputs and the
        results and nothing else, shared memory is what attention_shared_bytes says
twin    the unit with the uncompressed side must see no header of the codec
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TWIN_MAY_SEE = {"config.hpp", "status.hpp", "cuda/attention_products.cuh",
                "cuda/decode_attention.cuh", "cuda/raw_pool.cuh"}
MATH = ("fused", "tensor")


def kernel_name(mangled):
    shape = re.search(r"attention_shapeI([ht])Lj(\d+)ELj(\d+)ELj\d+ELj\d+E"
                      r"LNS\w*?attention_mathE(\d)E", mangled)
    if not shape or "6attend" not in mangled:
        return None
    lanes = re.search(r"coded_poolILj(\d+)E", mangled)
    code = "e4m3fn" if shape[1] == "h" else "bf16"
    side = f"coded, {lanes[1]} lanes" if lanes else "plain"
    return f"{code} x {shape[2]}, {shape[3]} query heads, {MATH[int(shape[4])]}, {side}"


def costs(args):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([args.nvcc, "-std=c++17", f"-arch={args.arch}", "-Xptxas", "-v",
                               "-cubin", f"-I{args.include}", "-o",
                               os.path.join(folder, "gate.cubin"),
                               os.path.join(HERE, "attention_gate.cu")],
                              capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    seen = 0
    for mangled, properties, registers, rest in re.findall(
            r"Compiling entry function '(\w+)'.*?\n(.*?)Used (\d+) registers(.*?)\n",
            done.stderr, re.S):
        name = kernel_name(mangled)
        if not name:
            continue
        seen += 1
        memory = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                           r"(\d+) bytes spill loads", properties)
        shared = re.search(r"(\d+) bytes smem", rest)
        print(f"{args.arch} {name}: {registers} registers, {memory[1]} bytes stack, "
              f"{shared[1] if shared else 0} bytes static shared memory")
        if memory.groups() != ("0", "0", "0"):
            yield f"{name} spills or has a stack"
        if "lmem" in rest:
            yield f"{name} has local memory"
    if seen != 6:
        yield f"{seen} kernels of 6 were found"


def stores(args):
    with tempfile.TemporaryDirectory() as folder:
        stats = os.path.join(folder, "stats.json")
        said = subprocess.run([args.launcher, "--order", "up", "--stats", stats, args.program,
                               "stores"], capture_output=True, text=True, check=True).stdout
        launches = json.load(open(stats))["launches"]
    shapes = re.findall(r"^(.*): (\d+) bytes stored, shared memory (\d+) coded (\d+) plain, "
                        r"at most (\d+)$", said, re.M)
    print(said, end="")
    if len(shapes) != 4 or len(launches) != 8:
        yield f"{len(shapes)} shapes and {len(launches)} launches"
        return
    for i, (name, stored, coded, plain, _) in enumerate(shapes):
        for side, launch, shared in (("coded", launches[2 * i], coded),
                                     ("plain", launches[2 * i + 1], plain)):
            if launch["global_store_bytes"] != int(stored):
                yield f"{name}, {side}: {launch['global_store_bytes']} bytes of {stored} stored"
            if launch["local_bytes"] != 0 or launch["atomics"] != 0:
                yield f"{name}, {side}: local memory or atomics"
            # An empty struct takes no memory but has a size.
            if not 0 <= int(shared) - launch["static_shared"] - launch["dynamic_shared"] <= 1:
                yield f"{name}, {side}: other shared memory than {shared}"
            if launch["opcodes"].get("cp.async.shared.global", [0])[0] == 0:
                yield f"{name}, {side}: nothing is copied asynchronously"


def twin(args):
    out = subprocess.run([args.nvcc, "-std=c++17", "-M", f"-I{args.include}",
                          os.path.join(HERE, "attention_twin.cu")],
                         capture_output=True, text=True, check=True).stdout
    seen = {os.path.normpath(name) for name in re.findall(r"include/normans/(\S+)", out)}
    print("the twin sees", *sorted(seen))
    for header in sorted(seen - TWIN_MAY_SEE):
        yield f"the twin sees {header}"
    if "cuda/raw_pool.cuh" not in seen:
        yield "the twin's headers were not found"


CHECKS = {"costs": costs, "stores": stores, "twin": twin}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=CHECKS)
    for option in ("--nvcc", "--include", "--arch", "--launcher", "--program"):
        parser.add_argument(option)
    args = parser.parse_args()
    complaints = list(CHECKS[args.check](args))
    print("\n".join(complaints))
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
