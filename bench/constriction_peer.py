"""constriction on pages that bench_codec wrote: a Gaussian per symbol, as close to our job as it
comes. Adds its rows to the JSON file of rows.

    python3 constriction_peer.py SYMBOLS ROWS.json
"""

import json
import statistics
import sys
import time

import constriction
import numpy

REPETITIONS = 9
LOWEST, HIGHEST = -128, 127  # ordered 8-bit codes about zero


def main():
    symbols_path, rows_path = sys.argv[1:]
    data = numpy.fromfile(symbols_path, [("symbol", "<i4"), ("mean", "<f4"), ("sigma", "<f4")])
    symbols = numpy.ascontiguousarray(data["symbol"])
    means = data["mean"].astype(numpy.float64)
    sigmas = data["sigma"].astype(numpy.float64)
    family = constriction.stream.model.QuantizedGaussian(LOWEST, HIGHEST)

    seconds = {"encode": [], "decode": []}
    for _ in range(REPETITIONS):
        coder = constriction.stream.stack.AnsCoder()
        begin = time.perf_counter()
        coder.encode_reverse(symbols, family, means, sigmas)
        middle = time.perf_counter()
        bits = coder.num_bits()
        before = time.perf_counter()
        back = coder.decode(family, means, sigmas)
        end = time.perf_counter()
        if not numpy.array_equal(back, symbols):
            sys.exit("constriction: other symbols came back")
        seconds["encode"].append(middle - begin)
        seconds["decode"].append(end - before)

    with open(rows_path, encoding="utf-8") as file:
        rows = json.load(file)
    clock = statistics.median(row["clock_ghz"] for row in rows)
    for direction, taken in seconds.items():
        rate = len(symbols) / statistics.median(taken)
        row = dict.fromkeys(rows[0])  # the same keys, unknown unless said
        row.update(name=f"{direction}/constriction/e4m3fn/real", mb_s=rate / 1e6,
                   scalars_per_cycle=rate / clock / 1e9, bits_per_scalar=bits / len(symbols),
                   clock_ghz=clock, cpu=rows[0]["cpu"])
        rows.append(row)
    with open(rows_path, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
