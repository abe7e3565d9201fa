"""Instructions per scalar, counted by callgrind on the slice in the repository, and added to the
JSON file of rows. Rows on instruction sets that valgrind does not know stay without.

    python3 instructions.py BENCH_CODEC CACHE PROFILE ROWS.json
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile


def count(command):
    """Row name -> instructions per scalar. Callgrind dumps once per counted call, in order."""
    with tempfile.TemporaryDirectory() as work:
        out = pathlib.Path(work) / "out"
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--collect-atstart=no",
             "--toggle-collect=bench_counted", "--dump-after=bench_counted",
             f"--callgrind-out-file={out}", *command],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        counts = {}
        for number, line in enumerate(done.stdout.splitlines(), 1):
            name, scalars = line.split()
            dump = pathlib.Path(f"{out}.{number}").read_text(encoding="utf-8")
            total = int(re.search(r"^totals: (\d+)", dump, re.M).group(1))
            counts[name] = total / int(scalars)
        return counts


def main():
    *command, rows_path = sys.argv[1:]
    counts = count([*command, "--count"])
    with open(rows_path, encoding="utf-8") as file:
        rows = json.load(file)
    for row in rows:
        row["instructions_per_scalar"] = counts.get(row["name"])
    with open(rows_path, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
