"""bench/gpu_run where no GPU is: a folder as `pack` makes it, but the programs behind the benchmark
are scripts that pass, fail, hang or are skipped. The benchmark is the real one, run by the launcher.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# What a script that stands for a program does, else it passes at once.
ODD = {
    "cuda_batch_test": "exit 3",
    "cuda_entry_test": "echo 'skipped: one device only'",
    "cuda_example_03": "sleep 60",
}
SANITIZER = '[ "$2" = synccheck ] && exit 9; shift 4; exec "$@"'
complaints = []


def expect(right, what):
    if not right:
        complaints.append(what)


def script(path, log, body=""):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/bash\necho "$(basename "$0") $*" >> {log}\n{body}\n')
    os.chmod(path, 0o755)


def make_folder(args, folder, odd):
    """Everything that gpu_run names."""
    os.makedirs(os.path.join(folder, "golden"))
    log = os.path.join(folder, "log")
    with open(args.script, encoding="utf-8") as file:
        names = set(re.findall(r"\b(?:lib)?cuda_[a-z0-9_-]+(?:\.so)?", file.read()))
    for name in names - {"cuda_nvrtc_test", "cuda_tests", "cuda_"}:
        script(os.path.join(folder, name), log, odd.get(name, ""))
    here = os.path.dirname(os.path.abspath(__file__))
    script(os.path.join(folder, "trace_check"), log)
    for path in (args.script, os.path.join(here, "on_device")):
        shutil.copy(path, folder)
    for name in ("test-slice.safetensors", "smollm2-135m.profile"):
        shutil.copy(os.path.join(args.data, name), folder)
    return names


def gpu_run(folder, launcher, seconds, path=""):
    """Exit status, {what: outcome} in the order of tests.md, seconds."""
    begin = time.monotonic()
    done = subprocess.run(
        ["bash", os.path.join(folder, "gpu_run"), os.path.join(folder, "results")],
        env={"PATH": path + "/usr/bin:/bin", "GPU_RUN_LAUNCHER": launcher,
             "GPU_RUN_SECONDS": seconds}, capture_output=True, text=True)
    with open(os.path.join(folder, "results", "tests.md"), encoding="utf-8") as file:
        rows = re.findall(r"^\| (\S+) \| (.*) \| \d+ s \|$", file.read(), re.M)
    return done.returncode, dict(rows), time.monotonic() - begin


def rows_of(folder):
    """Of the table as it is now, which is whole at any time."""
    try:
        with open(os.path.join(folder, "table.json"), encoding="utf-8") as file:
            return len(json.load(file)["rows"])
    except FileNotFoundError:
        return 0


def check_table(folder, least):
    with open(os.path.join(folder, "table.json"), encoding="utf-8") as file:
        table = json.load(file)
    with open(os.path.join(folder, "table.md"), encoding="utf-8") as file:
        text = file.read()
    expect(len(table["rows"]) >= least, f"{least} rows, not {len(table['rows'])}")
    expect(not table["measured"] and all(row["gb_s"] is None for row in table["rows"]),
           "no speed where no GPU is")
    expect(all(f"| {row['name']} |" in text for row in table["rows"]), "the same rows in Markdown")
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--script", required=True)
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--data", required=True)
    args = parser.parse_args()
    launcher = f"{args.launcher} --seed 1"
    with tempfile.TemporaryDirectory() as work:
        # A benchmark that is cut loses no row that it had.
        cut = os.path.join(work, "cut")
        names = make_folder(args, cut, {})
        expect(len(names) > 12, "gpu_run names its programs")
        data = [os.path.join(cut, name)
                for name in ("test-slice.safetensors", "smollm2-135m.profile")]
        bench = subprocess.Popen(launcher.split() + [args.bench] + data + [cut, "no date"],
                                 stdout=subprocess.DEVNULL, start_new_session=True)
        while bench.poll() is None and rows_of(cut) < 5:
            time.sleep(0.01)
        expect(bench.poll() is None, "the benchmark writes its table while it runs")
        os.killpg(bench.pid, signal.SIGKILL)
        bench.wait()
        check_table(cut, 5)

        # All of it with what can go wrong: no profile, so that the real rows fail, little time, a
        # test that fails and one that hangs, no trace of compute-sanitizer or of -rdc.
        bad = os.path.join(work, "bad")
        make_folder(args, bad, ODD)
        os.remove(os.path.join(bad, "smollm2-135m.profile"))
        os.remove(os.path.join(bad, "cuda_field_test_separate"))
        shutil.copy(args.bench, os.path.join(bad, "bench_gpu"))
        status, rows, _ = gpu_run(bad, launcher, "150 100 8 2")
        table = check_table(os.path.join(bad, "results"), 6)
        print(f"{len(table['rows'])} rows, not run: {table['not_run']}")
        for name, outcome in rows.items():
            print(f"    {name}: {outcome}")
        expect(status == 1, "what failed is in the status")
        expect(rows["bench"].startswith("FAILED"), "the benchmark that failed")
        expect(sum("real: FAILED" in one for one in table["not_run"]) == 2 and
               any(row["name"].startswith("decode/bf16") for row in table["rows"]),
               "rows that fail cost only themselves")
        expect(rows["codec"] == "ok" and rows["batch"] == "FAILED, status 3" and
               rows["A03_entry"] == "skipped: one device only" and
               rows["G03_separate"] == "skipped: not packed" and
               rows["example_03"] == "stopped after its time" and
               rows["example_05"] == "not run: no time was left", "outcomes of tests")
        if not shutil.which("compute-sanitizer", path="/usr/bin:/bin"):
            expect([rows[tool] for tool in ("memcheck", "racecheck", "initcheck", "synccheck")] ==
                   ["skipped: no compute-sanitizer"] * 4, "no compute-sanitizer")

        # All in order, with compute-sanitizer, whose last tool fails; then in too little time.
        good = os.path.join(work, "good")
        make_folder(args, good, {})
        script(os.path.join(good, "bench_gpu"), os.path.join(good, "log"))
        tools = os.path.join(work, "tools")
        os.mkdir(tools)
        script(os.path.join(tools, "compute-sanitizer"), os.path.join(good, "log"), SANITIZER)
        status, rows, _ = gpu_run(good, "env", "60 9 20 5", tools + ":")
        wrong = {name: outcome for name, outcome in rows.items() if outcome != "ok"}
        expect(status == 1 and set(wrong) == {f"synccheck-{what}"
                                              for what in ("batch", "entry", "codec")},
               f"a tool that fails: {wrong}")
        with open(os.path.join(good, "log"), encoding="utf-8") as file:
            ran = [line.split()[0] for line in file]
        expect(ran[0] == "bench_gpu" and ran.count("compute-sanitizer") == 12 and
               ran.index("cuda_example_05") < ran.index("compute-sanitizer"), "the order of stages")
        missed = names - {"cuda_nvrtc_test", "cuda_tests", "cuda_"} - set(ran)
        expect({name for name in missed if not name.startswith("cuda_trace") and
                not name.startswith("lib")} == set(), f"programs that never ran: {missed}")
        script(os.path.join(good, "bench_gpu"), os.path.join(good, "log"), "sleep 60")
        status, rows, took = gpu_run(good, "env", "3 3 9 9", tools + ":")
        expect(status == 1 and took < 9 and rows["bench"] == "stopped after its time" and
               rows["codec"] == rows["synccheck-codec"] == "not run: no time was left",
               "the limit of all")
        # By the limits, all ends within 9 minutes.
        with open(args.script, encoding="utf-8") as file:
            limits = re.search(r"GPU_RUN_SECONDS:-(\d+) (\d+) (\d+) (\d+)\}", file.read())
        total, bench_s, tests, tool = map(int, limits.groups())
        expect(bench_s + tests + 4 * tool <= total <= 530, "9 minutes")
    print("\n".join(complaints))
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
