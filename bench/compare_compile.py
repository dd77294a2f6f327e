#!/usr/bin/env python3
"""Compile time of every example against a baseline: CPU time of the whole process from source to PTX, ABBA.

    compare_compile.py [--from TREE] [--target sm_90a] [--rounds 9] [--only REGEX] [--most 1.03]

--from: a checkout with a release build (default: the tag in bench/BASELINE, which bench/tree.sh builds). Each side compiles
its own examples. A round runs A B B A and gives one ratio, new over old; the table shows the median with its 95 % interval
(order statistics of the binomial distribution). CPU time leaves out what other processes take.
Exit 1 when the interval of an example lies above --most.
"""
import argparse
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys

os.environ["TILEC_CACHE"] = "off"   # it compiles each time

HERE = pathlib.Path(__file__).resolve().parent.parent


def cpu_ms(tree, name):
    """User and system time of one compile, in milliseconds; None: the tree refuses the example."""
    command = [str(tree / "build/release/tilec"), "build", f"examples/{name}.tile", f"--target={options.target}", "--emit=ptx",
               "--record=none", "-o", "/dev/null"]
    process = subprocess.Popen(command, cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return None if process.returncode else 1e3 * (usage.ru_utime + usage.ru_stime)


def interval(ratios):
    """Median and 95 % confidence interval, by order statistics."""
    ordered, n = sorted(ratios), len(ratios)
    below, rank = 0.0, -1
    while rank + 1 < n // 2 and below + math.comb(n, rank + 1) / 2 ** n <= 0.025:
        rank += 1
        below += math.comb(n, rank) / 2 ** n
    rank = max(rank, 0)
    return statistics.median(ordered), ordered[rank], ordered[n - 1 - rank]


def compare(name):
    ratios, old, new = [], [], []
    for round_ in range(options.rounds + 1):
        times = [cpu_ms(tree, name) for tree in (options.old, HERE, HERE, options.old)]
        if None in times:
            return None
        if round_ > 0:   # the first warms the file cache
            ratios.append((times[1] + times[2]) / (times[0] + times[3]))
            old += [times[0], times[3]]
            new += [times[1], times[2]]
    return statistics.median(old), statistics.median(new), interval(ratios)


def main():
    over = []
    print("| example | tag, ms | now, ms | ratio | 95 % interval |\n|---|---:|---:|---:|---:|")
    for path in sorted((HERE / "examples").glob("*.tile")):
        if not re.search(options.only, path.stem) or not (options.old / "examples" / path.name).exists():
            continue
        row = compare(path.stem)
        if row is None:
            print(f"| {path.stem} | refused | | | |")
            continue
        old, new, (median, low, high) = row
        print(f"| {path.stem} | {old:.0f} | {new:.0f} | {median:.3f} | [{low:.3f}, {high:.3f}] |", flush=True)
        if low > options.most:
            over.append(path.stem)
    if over:
        print(f"above {options.most}: {' '.join(over)}", file=sys.stderr)
    return 1 if over else 0


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--from", dest="old", type=pathlib.Path)
parser.add_argument("--target", default="sm_90a")
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--only", default=".")
parser.add_argument("--most", type=float, default=1.03)
options = parser.parse_args()
if not options.old:
    options.old = pathlib.Path(subprocess.run([HERE / "bench/tree.sh"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
sys.exit(main())
