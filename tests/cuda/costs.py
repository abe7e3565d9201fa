"""Compiles gate.cu, or UNIT, and prints what its kernels cost: registers, local memory, shared memory, and
SASS instructions per scalar on the common path, by pipe, where nvdisasm is there.

The common path is the shortest way round the loop over steps: every rare event lengthens it.
Fails on spills, local memory, and costs above the budget file, whose numbers are only ever lowered.
"""

import argparse
import collections
import heapq
import os
import re
import shutil
import subprocess
import sys
import tempfile

FMA = re.compile(r"^(FFMA|FMUL|FADD|IMAD)")
MEMORY = re.compile(r"^(LD|ST|S2|CS2R|LDC|ULDC|ATOM|RED)")
CONTROL = re.compile(r"^(BRA|BSSY|BSYNC|EXIT|CALL|RET|WARPSYNC|NOP|JMP|BREAK|VOTE|YIELD|MATCH)")
SLOW = re.compile(r"^(F2I|I2F|MUFU|POPC|FLO|F2F)")


KERNELS = {"gate.cu": 4, "scaled_gate.cu": 10}
TYPES = {"0": "e4m3fn", "4": "bf16", "7": "int8", "8": "int4", "9": "e2m1"}


def kernel_name(mangled):
    way = "decode" if "decode_entry" in mangled else "encode" if "encode_entry" in mangled else None
    found = re.search(r"scalar_typeE(\d+)ELj(\d+)E\w*?coder_idE(\d)", mangled)
    if way is None or not found or not re.search("run_(scaled_)?entries", mangled):
        return None
    return f"{way}_{TYPES[found[1]]}_{found[2]}" + ("_tans" if found[3] == "1" else "")


def blocks_of(lines):
    """Basic blocks: (instructions, successors)."""
    code, labels, label_at = [], {}, {}
    for line in lines:
        label = re.match(r"^(\.L_x_\d+):", line)
        if label:
            label_at[label[1]] = len(code)
        found = re.match(r"^\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", line)
        if found:
            code.append(found[1])
    starts = {0} | set(label_at.values())
    for i, text in enumerate(code):
        if re.search(r"\b(BRA|EXIT|RET|BREAK|JMP)\b", text):
            starts.add(i + 1)
    starts = sorted(s for s in starts if s < len(code))
    blocks = {}
    for begin, end in zip(starts, starts[1:] + [len(code)]):
        last = code[end - 1]
        follows = []
        target = re.search(r"\b(?:BRA|JMP)\b.*`\((\.L_x_\d+)\)", last)
        if target and target[1] in label_at and "BRA.DIV" not in last:
            follows.append(label_at[target[1]])
        always = re.match(r"^(BRA|EXIT|RET|JMP)\b", last) and not re.match(r"^BRA\s+!?U?P\d", last)
        if not (always and "BRA.DIV" not in last):
            follows.append(end)
        blocks[begin] = (code[begin:end], follows)
    return blocks


def shortest_loop(blocks, home):
    best, queue, came = {}, [(len(blocks[home][0]), n, home) for n in blocks[home][1]], {}
    while queue:
        cost, at, previous = heapq.heappop(queue)
        if at in best or at not in blocks:
            continue
        best[at], came[at] = cost, previous
        if at == home:
            path = [home]
            while came[path[-1]] != home:
                path.append(came[path[-1]])
            return [text for b in path for text in blocks[b][0]]
        for follow in blocks[at][1]:
            heapq.heappush(queue, (cost + len(blocks[at][0]), follow, at))
    return None


def common_path(lines, tans):
    """The loop over steps: it votes, counts bits and, but for tANS, rounds to z twice."""
    blocks = blocks_of(lines)
    loops = []
    for begin, (code, _) in blocks.items():
        if tans or any("F2I.S16" in text for text in code):
            path = shortest_loop(blocks, begin) or []
            if sum("VOTE" in t for t in path) >= (2 if tans else 1) and \
                    sum("F2I.S16" in t for t in path) == (0 if tans else 2) and \
                    any("POPC" in t for t in path):
                loops.append(path)
    return min(loops, key=len) if loops else None


def pipes(path):
    count = collections.Counter()
    for text in path:
        op = re.sub(r"^@!?U?P\d\s+", "", text).split()[0]
        kind = ("fma" if FMA.match(op) else "memory" if MEMORY.match(op) else
                "control" if CONTROL.match(op) else "slow" if SLOW.match(op) else "integer")
        count[kind] += 1
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--unit", default="gate.cu", choices=KERNELS)
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm"))
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--budget", default=os.path.join(here, "budget.txt"))
    args = parser.parse_args()
    budget = dict(line.split() for line in open(args.budget) if line.strip()
                  and not line.startswith("#"))
    complaints = []
    with tempfile.TemporaryDirectory() as folder:
        cubin = os.path.join(folder, "gate.cubin")
        done = subprocess.run([args.nvcc, "-std=c++17", f"-arch={args.arch}", "-Xptxas", "-v",
                               "-Werror", "all-warnings", "-cubin", f"-I{args.include}", "-o",
                               cubin, os.path.join(here, args.unit)],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        sass = {}
        if args.nvdisasm:
            text = subprocess.run([args.nvdisasm, "-c", cubin], capture_output=True, text=True,
                                  check=True).stdout
            for part in re.split(r"\n\.text\.", text)[1:]:
                name = kernel_name(part.split(":")[0])
                if name:
                    sass[name] = common_path(part.splitlines(), name.endswith("tans"))
        else:
            print("no nvdisasm: instructions are not counted")
        entries = re.findall(r"Compiling entry function '(\w+)'.*?\n(.*?)Used (\d+) registers(.*?)\n",
                             done.stderr, re.S)
        seen = 0
        for mangled, properties, registers, rest in entries:
            name = kernel_name(mangled)
            if not name:
                continue
            seen += 1
            spills = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill", properties)
            shared = re.search(r"(\d+) bytes smem", rest)
            print(f"{args.arch} {name}: {registers} registers, {spills[1]} bytes stack, "
                  f"{shared[1] if shared else 0} bytes shared")
            if spills[1] != "0" or spills[2] != "0":
                complaints.append(f"{name} spills or has a stack")
            limit = budget.get(f"{args.arch}/{name}/registers")
            if limit and int(registers) > int(limit):
                complaints.append(f"{name}: {registers} registers of {limit}")
            if name in sass and sass[name] is None:
                complaints.append(f"{name}: its loop was not found")
            elif name in sass:
                by_pipe = pipes(sass[name])
                total = sum(by_pipe.values())
                print("    instructions per scalar:", total, dict(by_pipe))
                limit = budget.get(f"{args.arch}/{name}/instructions")
                if limit and total > int(limit):
                    complaints.append(f"{name}: {total} instructions of {limit}")
        if seen != KERNELS[args.unit]:
            complaints.append(f"{seen} kernels of {KERNELS[args.unit]} were found")
    print("\n".join(complaints))
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
