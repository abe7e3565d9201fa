"""Runs the program of wavefronts.cu through a launcher that counts wavefronts of shared memory, and
prints how many a table's access takes. Fails above the budget file, whose numbers are only ever
lowered.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--program", required=True)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--budget", default=os.path.join(here, "budget.txt"))
    args = parser.parse_args()
    budget = dict(line.split() for line in open(args.budget) if line.strip()
                  and not line.startswith("#"))
    with tempfile.TemporaryDirectory() as folder:
        stats = os.path.join(folder, "stats.json")
        said = subprocess.run([args.launcher, "--order", "up", "--stats", stats, args.program],
                              capture_output=True, text=True, check=True).stdout
        launches = json.load(open(stats))["launches"]
    lookups = int(re.match(r"(\d+) lookups a warp", said)[1]) * 4  # warps
    complaints = []
    for first, table, loads in ((0, "guess", 2), (2, "G", 2)):
        same, spread = launches[first], launches[first + 1]
        if same["shared_requests"] != spread["shared_requests"]:
            sys.exit(f"{table}: other requests when lanes differ")
        more = spread["shared_wavefronts"] - same["shared_wavefronts"]
        wavefronts = 1 + more / (lookups * loads)
        print(f"{table}: {wavefronts:.3f} wavefronts an access")
        if wavefronts > float(budget[f"{table}/wavefronts"]):
            complaints.append(f"{table}: {wavefronts:.3f} wavefronts of "
                              f"{budget[f'{table}/wavefronts']}")
    print("\n".join(complaints))
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
