"""Runs a program that was compiled with --coverage and prints, for the device headers, which share
of their lines ran and which did not. A line counts as run if any instance of its template ran it.
Fails below the share that is asked for.
"""

import argparse
import collections
import gzip
import json
import os
import subprocess
import sys
import tempfile


def counts_of(gcov, notes, headers):
    """{header: {line: times}} of one object's notes."""
    lines = collections.defaultdict(lambda: collections.defaultdict(int))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([gcov, "--json-format", notes], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        for name in os.listdir(folder):
            with gzip.open(os.path.join(folder, name), "rt", encoding="utf-8") as file:
                report = json.load(file)
            for one in report["files"]:
                path = os.path.realpath(os.path.join(report["current_working_directory"],
                                                     one["file"]))
                if path in headers:
                    for line in one["lines"]:
                        lines[path][line["line_number"]] += line["count"]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gcov", default="gcov")
    parser.add_argument("--notes", required=True, help="folder of the object's .gcno and .gcda")
    parser.add_argument("--headers", required=True, help="folder of the device headers")
    parser.add_argument("--least", type=float, required=True, help="percent of all lines")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()

    found = [os.path.join(folder, name) for folder, _, names in os.walk(options.notes)
             for name in names]
    for path in found:
        if path.endswith(".gcda"):
            os.remove(path)
    notes = [path for path in found if path.endswith(".gcno")]
    headers = {os.path.realpath(os.path.join(options.headers, name))
               for name in os.listdir(options.headers) if name.endswith(".cuh")}
    subprocess.run(options.command, check=True)

    total = ran = 0
    merged = collections.defaultdict(lambda: collections.defaultdict(int))
    for path in notes:
        for header, lines in counts_of(options.gcov, path, headers).items():
            for line, count in lines.items():
                merged[header][line] += count
    for header in sorted(merged):
        lines = merged[header]
        missed = sorted(line for line, count in lines.items() if count == 0)
        total += len(lines)
        ran += len(lines) - len(missed)
        print(f"{os.path.basename(header)}: {len(lines) - len(missed)} of {len(lines)} lines ran"
              + (f", not {', '.join(map(str, missed))}" if missed else ""))
    share = 100.0 * ran / total if total else 0.0
    print(f"{share:.1f} % of all, at least {options.least} % wanted")
    return share < options.least


sys.exit(main())
