#!/usr/bin/env python3
"""Own compile time (source to PTX) of every example beside the assembler's (ptxas on that PTX), and where it goes.

    compile_time.py TILEC [--target sm_90a] [--runs 9] [--limit 50]      TILEC: a release build

Milliseconds, medians. `own` and its parts are what `tilec build -v` reports; `process` is the wall time of the whole process
up to PTX (with the loading of LLVM); `ptxas` that of the assembler alone. Exit 1 when own time per kernel is above the limit,
or the process takes longer than ptxas.
"""
import argparse
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

EXAMPLES = [   # with values for the names that every build must fix
    ("attention", ["D=128"]), ("center_columns", ["M=64"]), ("gemm", []), ("gemm_bias_gelu", []), ("gemm_split_k", []),
    ("rmsnorm", ["N=4096"]), ("softmax", ["N=4096"]), ("transpose", []), ("vector_add", []),
]
PARTS = ["parse", "elaborate", "passes", "LLVM build", "optimize", "emit"]
REPORT = re.compile(r"([\d.]+) ms from source to PTX for (\d+) kernel")


def timed(command):
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return 1e3 * (time.perf_counter() - start), done.stdout + done.stderr


def medians(rows):
    return [statistics.median(column) for column in zip(*rows)]


def measure(tilec, ptxas, example, defines, options, folder):
    """[own, process, ptxas, own parts...] in ms, and the number of kernels."""
    source = pathlib.Path(__file__).parent.parent / "examples" / f"{example}.tile"
    ptx = folder / f"{example}.ptx"
    build = [tilec, "build", str(source), f"--target={options.target}", "--emit=ptx", "-v", "-o", str(ptx)]
    for define in defines:
        build += ["-D", define]
    rows, kernels = [], 0
    for run in range(options.runs + 1):
        process, text = timed(build)
        report = REPORT.search(text)
        if not report:
            raise SystemExit(f"no report of times from {' '.join(build)}\n{text[-1000:]}")
        kernels = int(report.group(2))
        parts = [float(re.search(rf"{part} ([\d.]+)", text[report.start():]).group(1)) for part in PARTS]
        assembler, _ = timed([ptxas, f"-arch={options.target}", "-lineinfo", str(ptx), "-o", str(folder / "out.cubin")])
        if run > 0:   # the first warms the file cache
            rows.append([float(report.group(1)), process, assembler] + parts)
    return medians(rows), kernels


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("tilec")
    arguments.add_argument("--target", default="sm_90a")
    arguments.add_argument("--runs", type=int, default=9)
    arguments.add_argument("--limit", type=float, default=50, help="milliseconds per kernel")
    options = arguments.parse_args()
    ptxas = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"

    slow = []
    print("| example | kernels | own | own / kernel | process | ptxas | " + " | ".join(PARTS) + " |")
    print("|---|" + "---:|" * (5 + len(PARTS)))
    with tempfile.TemporaryDirectory() as folder:
        for example, defines in EXAMPLES:
            (own, process, assembler, *parts), kernels = measure(options.tilec, ptxas, example, defines, options,
                                                                 pathlib.Path(folder))
            cells = [own, own / kernels, process, assembler] + parts
            print(f"| {example} | {kernels} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |", flush=True)
            if own / kernels > options.limit:
                slow.append(f"{example}: {own / kernels:.1f} ms per kernel")
            if process > assembler:
                slow.append(f"{example}: the process takes {process:.0f} ms, ptxas {assembler:.0f} ms")
    print("\n".join(slow), file=sys.stderr)
    return 1 if slow else 0


sys.exit(main())
