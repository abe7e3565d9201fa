"""Rules of the house that a program can check. Each check prints what offends and fails."""

import argparse
import os
import re
import sys

CORE_FILE_LINES = 200
# By how names begin: who reads rANS needs neither tANS, nor scalars with a scale, nor static tables.
CORE_LINES = {"": 1200, "tans_": 400, "uniform_": 420, "float_bank": 300, "order0_": 350}
STEP_LINES = 100
COLUMNS = 100
EXAMPLE_LINES = 60

# Folder -> folders that its files may include. Top level files are named.
MAY_INCLUDE = {
    "version.hpp": set(),
    "config.hpp": set(),
    "status.hpp": {"config.hpp"},
    "core": {"core", "config.hpp", "status.hpp"},
    "wire": {"wire", "core", "config.hpp", "status.hpp"},
    "block": {"block", "wire", "core", "config.hpp", "status.hpp"},
    "lowrank": {"lowrank", "block", "wire", "core", "config.hpp", "status.hpp"},
    "host": {"host", "lowrank", "block", "wire", "core", "config.hpp", "status.hpp"},
    "fit": {"fit", "lowrank", "block", "wire", "core", "config.hpp", "status.hpp"},
    "paged": {"paged", "host", "block", "wire", "core", "config.hpp", "status.hpp"},
    "cuda": {"cuda", "lowrank", "block", "wire", "core", "config.hpp", "status.hpp"},
}

KNOWN_TO_ATTENTION = {"paged/paged_attention.hpp", "paged/float_vector.hpp", "core/float_bits.hpp",
                      "status.hpp", "config.hpp"}
CORE_STANDARD = {"cstddef", "cstdint", "cstring"}
HEAVY = {"iostream", "istream", "ostream", "sstream", "fstream", "regex", "vector", "string", "map",
         "memory", "functional", "algorithm", "cmath", "stdexcept"}


def read(path):
    return open(path, encoding="utf-8").read()


def headers_of(include):
    root = os.path.join(include, "normans")
    return sorted(os.path.relpath(os.path.join(folder, name), root)
                  for folder, _, names in os.walk(root) for name in names)


def includes_of(include, header):
    text = read(os.path.join(include, "normans", header))
    folder = os.path.dirname(header)
    return ([os.path.normpath(os.path.join(folder, q))
             for q in re.findall(r'^\s*#\s*include "([^"]+)"', text, re.M)],
            re.findall(r"^\s*#\s*include <([^>]+)>", text, re.M))


def closure(include, header):
    seen, todo = [], [header]
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.append(one)
            todo += includes_of(include, one)[0]
    return seen


def key_of(header):
    return os.path.dirname(header) or header


def check_arrows(include):
    """Includes only point down, and never in a circle; the umbrella never pulls cuda/."""
    for header in headers_of(include):
        quoted, angled = includes_of(include, header)
        for target in quoted:
            if not os.path.exists(os.path.join(include, "normans", target)):
                yield f"{header} includes {target}, which does not exist"
                continue
            allowed = MAY_INCLUDE.get(key_of(header))
            if allowed is None:  # the umbrella and its like
                if target.startswith("cuda/"):
                    yield f"{header} includes {target}"
            elif key_of(target) not in allowed:
                yield f"{header} includes {target}: arrows point down"
            if header in closure(include, target):
                yield f"{header} and {target} include each other"
        if key_of(header) == "core":
            for name in angled:
                if name not in CORE_STANDARD:
                    yield f"{header} includes <{name}>: the core has no library"
    for header in headers_of(include):
        for name in includes_of(include, header)[1]:
            if "Eigen" in name and header != "lowrank/decompose.hpp":
                yield f"{header} includes <{name}>: only lowrank/decompose.hpp may"
    # Attention is the same over raw and coded pages because it cannot tell them apart.
    for header in closure(include, "paged/paged_attention.hpp"):
        if header not in KNOWN_TO_ATTENTION:
            yield f"paged/paged_attention.hpp pulls {header}"
    for start in ("normans.hpp", "host/codec.hpp"):
        for header in closure(include, start):
            if header == "lowrank/decompose.hpp":
                yield f"{start} pulls {header}"
            if header.startswith("cuda/"):
                yield f"{start} pulls {header}"
            for name in includes_of(include, header)[1]:
                if name in HEAVY:
                    yield f"{start} pulls <{name}> through {header}"


def check_budget(include):
    """The core can be read in an hour."""
    total = dict.fromkeys(CORE_LINES, 0)
    for header in headers_of(include):
        lines = read(os.path.join(include, "normans", header)).splitlines()
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS:
                yield f"{header}:{number} has {len(line)} columns"
        if key_of(header) != "core":
            continue
        total[max((p for p in CORE_LINES if os.path.basename(header).startswith(p)), key=len)] += \
            len(lines)
        limit = STEP_LINES if header.endswith("_step.hpp") else CORE_FILE_LINES
        if len(lines) > limit:
            yield f"{header} has {len(lines)} lines of {limit}"
    for prefix, lines in total.items():
        if lines > CORE_LINES[prefix]:
            yield f"core/{prefix}* has {lines} lines of {CORE_LINES[prefix]}"
        if lines == 0:
            yield f"no core/{prefix}* was found"
        print(f"core/{prefix}*: {lines} lines")


def check_words(include):
    """No float in the coder's step, no class hierarchies, a head on every file, no loose ends."""
    for header in headers_of(include):
        text = read(os.path.join(include, "normans", header))
        code = re.sub(r"//[^\n]*|\"[^\"\n]*\"", "", text)
        if header.endswith("_step.hpp") and re.search(r"\b(float|double)\b", code):
            yield f"{header} computes with floats"
        if not re.match(r"#pragma once\n// ", text):
            yield f"{header} does not open with #pragma once and what it is about"
        for word in ("virtual", "goto", "using namespace std", "reinterpret_cast<volatile"):
            if re.search(rf"\b{re.escape(word)}\b", code):
                yield f"{header} uses {word}"
        for word in ("TO" "DO", "FIX" "ME", "X" "XX", "HA" "CK"):  # this file has none either
            if word in text:
                yield f"{header} has a {word}"
        if "\t" in text or re.search(r"[ \t]+$", text, re.M):
            yield f"{header} has tabs or trailing blanks"


def examples_of(include):
    folder = os.path.join(os.path.dirname(include), "examples")
    names = [n for n in sorted(os.listdir(folder)) if re.match(r"\d\d_.*\.(cpp|cu)$", n)]
    return {name: read(os.path.join(folder, name)) for name in names}


def check_examples(include):
    """Numbered examples stay short."""
    examples = examples_of(include)
    for name, text in examples.items():
        if len(text.splitlines()) > EXAMPLE_LINES:
            yield f"examples/{name} has more than {EXAMPLE_LINES} lines"
    if not examples:
        yield "no numbered example was found"


def check_readme(include):
    """The README shows the examples as they are; "..." on a line of its own leaves lines out."""
    path = os.path.join(os.path.dirname(include), "README.md")
    if not os.path.exists(path):
        print("skipped: there is no README yet")
        return

    def squeeze(text):
        return re.sub(r"\s+", " ", text).strip()

    shown = [squeeze(text) for text in examples_of(include).values()]
    snippets = re.findall(r"```(?:cpp|c\+\+)\n(.*?)```", read(path), re.S)
    if not snippets:
        yield "the README shows no C++"
    for snippet in snippets:
        pieces = [squeeze(p) for p in re.split(r"^\s*(?://\s*)?\.\.\.\s*$", snippet, flags=re.M)]
        for piece in pieces:
            if not any(piece in text for text in shown):
                yield f"the README shows what no example contains:\n{piece}"


CHECKS = {"arrows": check_arrows, "budget": check_budget, "words": check_words,
          "examples": check_examples, "readme": check_readme}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("--include", required=True)
    args = parser.parse_args()
    complaints = list(CHECKS[args.check](os.path.abspath(args.include)))
    print("\n".join(complaints))
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
