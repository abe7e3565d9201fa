"""Compiles the public headers, syntax only, in the ways that users have complained about.

alone      each header first in a file, and twice; then all                 (P05, P07)
all        in two orders, one for each standard                             (P05)
pairs      every header behind each other that does not include it           (P07)
platform   after macros that platforms define: min, max, near, far, ...      (P06)
names      the headers define no macro but NORMANS_..., use no extension     (P06)
cuda       in .cu files, by nvcc: those of cuda/ one by one, and all          (P05)
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

# Needs what the compiler must be told to target.
TARGET_FLAGS = {
    "host/float_planes.hpp": ["-mavx2", "-mfma"],
    "host/order0_avx2.hpp": ["-mavx2", "-mfma"],
    "host/planes_avx2.hpp": ["-mavx2", "-mfma"],
    "host/tans_plane_rows.hpp": ["-mavx2", "-mfma"],
    "host/tans_planes.hpp": ["-mavx2", "-mfma"],
    "host/tans_registers.hpp": ["-mavx2", "-mfma"],
    "host/planes_avx512.hpp": ["-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq",
                               "-mavx512vl", "-mavx512vbmi2"],
}
# Only aarch64 compilers can read them; tests/neon does.
OTHER_MACHINES = {"host/order0_neon.hpp", "host/planes_neon.hpp", "host/words_neon.hpp"}
# Needs Eigen, whose own text takes longer to read than all of ours. That it stands alone shows where
# it is compiled: examples/kv_file/decompose.cpp includes it first.
OTHER_LIBRARIES = {"lowrank/decompose.hpp"}

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow",
            "-Wold-style-cast", "-Werror"]

PLATFORM_MACROS = """
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define near
#define far
#define small char
#define ERROR 0
#define IN
#define OUT
#define interface struct
#define DELETE (0x00010000L)
#define STRICT 1
"""

# What MSVC has not, and tests for it that go wrong.
EXTENSIONS = re.compile(r"__builtin_|__int128|__attribute__|__typeof__|\b_?WIN32\b|__GNUC__|"
                        r"\bassert\s*\(|__restrict|\balloca\b")


def public_headers(include):
    root = os.path.join(include, "normans")
    found = []
    for folder, _, names in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root)
                  for name in names if name.endswith(".hpp")]
    return sorted(set(found) - OTHER_MACHINES - OTHER_LIBRARIES)


def includes_of(include, header):
    text = open(os.path.join(include, "normans", header)).read()
    quoted = re.findall(r'^#include "([^"]+)"', text, re.M)
    folder = os.path.dirname(header)
    return ([os.path.normpath(os.path.join(folder, q)) for q in quoted],
            re.findall(r"^#include <([^>]+)>", text, re.M))


def closure(include, header):
    seen, todo = set(), [header]
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += includes_of(include, one)[0]
    return seen


def flags_for(include, headers):
    needed = set().union(*(closure(include, h) for h in headers))
    return sorted({flag for h, flags in TARGET_FLAGS.items() if h in needed for flag in flags})


class Job:
    def __init__(self, name, text, command):
        self.name, self.text, self.command = name, text, command


def run(job, folder, suffix):
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=suffix, delete=False) as file:
        file.write(job.text)  # names of jobs can be longer than names of files
    done = subprocess.run(job.command + [file.name], capture_output=True, text=True)
    complaint = done.stdout + done.stderr
    return None if done.returncode == 0 and not complaint.strip() else f"{job.name}\n{complaint}"


def run_all(jobs, suffix=".cpp"):
    if not jobs:
        sys.exit("nothing to compile")
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [c for c in pool.map(lambda j: run(j, folder, suffix), jobs) if c]
    for complaint in complaints[:5]:
        print(complaint[:3000])
    print(f"{len(jobs)} files compiled, {len(complaints)} with complaints")
    sys.exit(1 if complaints else 0)


def text_of(headers):
    return "".join(f"#include <normans/{h}>\n" for h in headers) + "int main() { return 0; }\n"


def compile_command(args, standard, extra):
    return [args.compiler, f"-std={standard}", "-fsyntax-only", f"-I{args.include}"] + extra


def jobs_of_all(args):
    jobs, everything = [], public_headers(args.include)
    for standard, name, order in (("c++17", "forward", everything),
                                  ("c++20", "backward", everything[::-1])):
        jobs.append(Job(f"all {name} {standard}", text_of(order),
                        compile_command(args, standard, WARNINGS +
                                        flags_for(args.include, everything))))
    return jobs


def check_alone(args):
    jobs = []
    # Each as those compile who have neither exceptions nor RTTI, all as everybody does.
    lean = ["-fno-exceptions", "-fno-rtti"]
    for header in public_headers(args.include):
        jobs.append(Job(f"{header} x2", text_of([header] * 2),
                        compile_command(args, "c++17", WARNINGS + lean +
                                        flags_for(args.include, [header]))))
    run_all(jobs + jobs_of_all(args))


def check_all(args):
    run_all(jobs_of_all(args))


def orders_of_all_pairs(headers, includes):
    """Orders of all headers, each behind what it includes, so that every header comes behind every
    other that does not include it in one of them."""
    number = {h: i for i, h in enumerate(headers)}
    below = [sum(1 << number[x] for x in includes[h] if x != h) for h in headers]
    open_pairs = {(a, b) for a in range(len(headers)) for b in range(len(headers))
                  if a != b and not below[a] >> b & 1 and not below[b] >> a & 1}
    orders = []
    while open_pairs:
        behind = list(below)  # as bits: what each comes behind in this order
        for a, b in sorted(open_pairs):
            if behind[a] >> b & 1:
                continue
            gained = behind[a] | 1 << a
            for i in range(len(headers)):
                if i == b or behind[i] >> b & 1:
                    behind[i] |= gained
        order = sorted(range(len(headers)), key=lambda i: bin(behind[i]).count("1"))
        open_pairs -= {(a, b) for i, a in enumerate(order) for b in order[i + 1:]}
        orders.append([headers[i] for i in order])
    return orders


def check_pairs(args):
    # With `alone`, where each stands first, that is every ordered pair: what a header lacks shows
    # there, what another one spoils for it shows here.
    # The standard's headers come first and read once: what they lack is their own business.
    headers = public_headers(args.include)
    pulls = {h: closure(args.include, h) & set(headers) for h in headers}
    jobs = [(f"order {number}", text_of(order))
            for number, order in enumerate(orders_of_all_pairs(headers, pulls))]
    flags = ["-Wall", "-Wextra", "-Werror"] + flags_for(args.include, headers)
    with tempfile.TemporaryDirectory() as folder:
        system = os.path.join(folder, "system.hpp")
        with open(system, "w") as file:
            file.write("".join(f"#include <{n}>\n" for n in standard_includes(args.include)))
        compiled = system + (".gch" if "clang" not in args.compiler else ".pch")
        subprocess.run([args.compiler, "-std=c++17", "-x", "c++-header", system, "-o", compiled] +
                       flags, check=True)
        use = ["-include", system] if compiled.endswith(".gch") else ["-include-pch", compiled]
        run_all([Job(name, text, compile_command(args, "c++17", flags + use))
                 for name, text in jobs])


def standard_includes(include):
    names = set()
    for header in public_headers(include):
        names.update(includes_of(include, header)[1])
    return sorted(names)


def check_platform(args):
    headers = public_headers(args.include)
    system = "".join(f"#include <{n}>\n" for n in standard_includes(args.include)
                     if n != "immintrin.h")
    jobs = []
    for name, extra in (("all", flags_for(args.include, headers)), ("plain", [])):
        chosen = [h for h in headers if extra or not flags_for(args.include, [h])]
        jobs.append(Job(name, system + PLATFORM_MACROS + text_of(chosen),
                        compile_command(args, "c++17", ["-Wall", "-Wextra", "-Werror"] + extra)))
    # Headers that are not compiled here are read: none of their words is such a macro.
    macros = re.findall(r"#define (\w+)(\(?)", PLATFORM_MACROS)
    used = re.compile("|".join(rf"\b{name}\b" + (r"\s*\(" if opened else "")
                               for name, opened in macros))
    for name in sorted(OTHER_LIBRARIES):
        with open(os.path.join(args.include, "normans", name)) as file:
            found = used.search(re.sub(r"//.*", "", file.read()))
        if found:
            sys.exit(f"{name}: {found.group()} is a macro of some platform")
    run_all(jobs)


def macros_of(args, text, extra):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "macros.cpp")
        with open(path, "w") as file:
            file.write(text)
        command = [args.compiler, "-std=c++17", "-dM", "-E", f"-I{args.include}"] + extra + [path]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^#define (\w+)", out, re.M))


def check_names(args):
    headers = public_headers(args.include)
    extra = flags_for(args.include, headers)
    system = "".join(f"#include <{n}>\n" for n in standard_includes(args.include))
    ours = macros_of(args, system + text_of(headers), extra) - macros_of(args, system, extra)
    print("macros:", " ".join(sorted(ours)))
    bad = sorted(name for name in ours if not name.startswith("NORMANS_"))
    complaints = [f"macro {name}" for name in bad]
    if not ours:
        complaints.append("no macro was found at all")
    for header in headers:
        path = os.path.join(args.include, "normans", header)
        for number, line in enumerate(open(path), 1):
            code = line.split("//")[0].replace("static_assert", "")
            if header != "config.hpp" and re.search(r"\b_MSC\w*|__clang__", code):
                complaints.append(f"{header}:{number}: compiler inspected outside config.hpp")
            if header != "config.hpp" and EXTENSIONS.search(code):
                complaints.append(f"{header}:{number}: {line.strip()}")
    print("\n".join(complaints))
    sys.exit(1 if complaints else 0)


def check_cuda(args):
    jobs = []
    headers = public_headers(args.include)
    # -Wpedantic and -Wold-style-cast would judge nvcc's own generated code.
    host = "-Xcompiler=-Wall,-Wextra,-Wconversion,-Wsign-conversion,-Wshadow"
    kernels = sorted(os.listdir(os.path.join(args.include, "normans", "cuda")))
    device = [[f"cuda/{name}"] for name in kernels]
    headers = headers + [f"cuda/{name}" for name in kernels]
    for group in device + [headers]:  # in C++20: tests/cuda/build_cases.py
        target = ["-Xcompiler=" + ",".join(flags_for(args.include, group))] \
            if flags_for(args.include, group) else []
        # One alone is read, which shows what it lacks; all of them are compiled.
        form = "-ptx" if len(group) == 1 else "-c"
        jobs.append(Job(group[0] if len(group) == 1 else "all", text_of(group),
                        [args.compiler, "-std=c++17", "-arch=sm_90", form, "-o", os.devnull,
                         "-Werror", "all-warnings", host, f"-I{args.include}"] + target))
    run_all(jobs, ".cu")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    checks = {"alone": check_alone, "all": check_all, "pairs": check_pairs,
              "platform": check_platform, "names": check_names, "cuda": check_cuda}
    parser.add_argument("check", choices=checks)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", required=True)
    args = parser.parse_args()
    checks[args.check](args)


if __name__ == "__main__":
    main()
