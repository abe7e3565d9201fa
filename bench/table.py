"""Prints the JSON file of rows as a table, both directions in one line, and the bars with what was
measured where they were set: on Intel CPUs that run the AVX-512 rows.

    python3 table.py ROWS.json
"""

import json
import sys

# Row, key, what it must reach.
BARS = (
    ("decode/rans/e4m3fn/avx512/real", "scalars_per_cycle", 0.42),
    ("decode/rans/e4m3fn/avx512/real", "vs_htscodecs", 0.80),
    ("decode/rans/e4m3fn/avx512/page-64", "scalars_per_cycle", 0.36),
    ("encode/rans/e4m3fn/avx512/real", "scalars_per_cycle", 0.48),
    ("encode/rans/e4m3fn/avx512/real", "vs_htscodecs", 2.2),
    ("decode/rans/bf16/avx512/real", "scalars_per_cycle", 0.30),
    ("encode/rans/bf16/avx512/real", "scalars_per_cycle", 0.38),
    ("decode/rans/e4m3fn/avx2/real", "scalars_per_cycle", 0.20),
    ("encode/rans/e4m3fn/avx2/real", "scalars_per_cycle", 0.27),
    ("decode/rans/e4m3fn/portable/real", "mb_s", 60),
    ("encode/rans/e4m3fn/portable/real", "mb_s", 60),
    ("decode/order0/e4m3fn/avx512/real", "vs_htscodecs", 0.90),
    ("decode/order0/e4m3fn/avx2/real", "vs_htscodecs", 0.90),
    ("decode/rans/e4m3fn/avx512/page-2048", "scalars_per_cycle", 0.15),
    ("encode/rans/e4m3fn/avx512/page-2048", "scalars_per_cycle", 0.30),
    ("decode/rans/e4m3fn/avx512/four-2048", "scalars_per_cycle", 0.15),
    ("encode/rans/e4m3fn/avx512/four-2048", "scalars_per_cycle", 0.30),
    ("decode/rans/e4m3fn/avx512/real-2-threads", "vs_one_thread", 1.8),
    ("encode/rans/e4m3fn/avx512/real-2-threads", "vs_one_thread", 1.8),
)

# Direction, key, title, width, decimals, factor.
COLUMNS = (
    ("decode", "mb_s", "dec MB/s", 10, 1, 1),
    ("decode", "scalars_per_cycle", "/cycle", 8, 3, 1),
    ("decode", "vs_htscodecs", "/htsc.", 7, 2, 1),
    ("decode", "vs_one_thread", "/1 thr.", 8, 2, 1),
    ("decode", "instructions_per_scalar", "instr.", 7, 1, 1),
    ("decode", "repairs_per_scalar", "rep. %", 8, 4, 100),
    ("encode", "mb_s", "enc MB/s", 10, 1, 1),
    ("encode", "scalars_per_cycle", "/cycle", 8, 3, 1),
    ("encode", "vs_htscodecs", "/htsc.", 7, 2, 1),
    ("encode", "vs_one_thread", "/1 thr.", 8, 2, 1),
    ("encode", "instructions_per_scalar", "instr.", 7, 1, 1),
    ("encode", "escapes_per_scalar", "esc. %", 8, 4, 100),
    (None, "bits_per_scalar", "bits", 8, 3, 1),
    ("decode", "over_entropy", "H0 +%", 8, 3, 100),
    (None, "loss", "loss %", 8, 2, 100),
)

LEGEND = """\
MB/s: of decoded data; /cycle: scalars per core cycle; /htsc.: our scalars/s over those of
htscodecs; /1 thr.: two threads over one; instr.: per scalar, on the slice in the repository;
rep.: decoder's guesses repaired, esc.: escapes, in % of the scalars; bits: per scalar, coded;
H0 +%: the coded size over the order-0 entropy of the same codes; loss: over the codes'
cross-entropy under the Gaussians that they were drawn from.
A copy has no direction. -: unknown, or nothing to compare with."""


def print_table(rows):
    lines = {}  # the path behind the direction -> direction -> row
    for row in rows:
        direction, path = row["name"].split("/", 1)
        lines.setdefault(path, {})["decode" if direction == "copy" else direction] = row
    width = max(map(len, lines))
    print(" " * width + "".join(f"{title:>{size}}" for _, _, title, size, _, _ in COLUMNS))
    for path, line in lines.items():
        text = f"{path:<{width}}"
        for direction, key, _, size, decimals, factor in COLUMNS:
            row = line.get(direction, {}) if direction else next(iter(line.values()))
            value = row.get(key)
            cell = "-" if value is None else f"{value * factor:.{decimals}f}"
            text += f"{cell:>{size}}"
        print(text)


def print_bars(rows):
    by_name = {row["name"]: row for row in rows}
    print(f"\n{'bar':<44}{'':<20}{'at least':>9}{'measured':>10}")
    for name, key, bar in BARS:
        value = by_name.get(name, {}).get(key)
        measured = "-" if value is None else f"{value:.3f}"
        verdict = "not run" if value is None else "pass" if value >= bar else "MISSED"
        print(f"{name:<44}{key:<20}{bar:>9.2f}{measured:>10}  {verdict}")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = json.load(file)
    cpu = rows[0]["cpu"]
    print(f"{cpu}; medians of interleaved repetitions\n{LEGEND}\n")
    print_table(rows)
    if "Intel" in cpu and any("/avx512/" in row["name"] for row in rows):
        print_bars(rows)
    else:
        print("\nnot judged: the bars are for Intel CPUs with AVX-512")


if __name__ == "__main__":
    main()
