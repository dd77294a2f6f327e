#!/usr/bin/env python3
"""Own compile time (source to PTX) of every example beside the assembler's (ptxas on that PTX), and where it goes.

    compile_time.py TILEC [--target sm_90a] [--runs 9] [--limit 50] [--levels]      TILEC: a release build

Milliseconds, medians. `own` and its parts are what `tilec build -v` reports; `process` is the wall time of the whole process
up to PTX (with the loading of LLVM); `ptxas` that of the assembler alone. Exit 1 when own time per kernel is above the limit,
or the process takes longer than ptxas.

--levels compares LLVM's share at -O 0, 1 and 2 instead (1 is the small pipeline of codegen/passes.c), with the most
registers that one of the kernels has after ptxas.
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
    ("gemm_swiglu", []),
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


def measure(tilec, ptxas, example, defines, options, folder, level=1):
    """[own, process, ptxas, own parts...] in ms, the number of kernels, and the most registers of one."""
    source = pathlib.Path(__file__).parent.parent / "examples" / f"{example}.tile"
    ptx = folder / f"{example}.ptx"
    build = [tilec, "build", str(source), f"--target={options.target}", "--emit=ptx", "-v", f"-O{level}", "-o", str(ptx)]
    for define in defines:
        build += ["-D", define]
    rows, kernels, registers = [], 0, 0
    for run in range(options.runs + 1):
        process, text = timed(build)
        report = REPORT.search(text)
        if not report:
            raise SystemExit(f"no report of times from {' '.join(build)}\n{text[-1000:]}")
        kernels = int(report.group(2))
        parts = [float(re.search(rf"{part} ([\d.]+)", text[report.start():]).group(1)) for part in PARTS]
        assembler, said = timed([ptxas, f"-arch={options.target}", "-lineinfo", "-v", str(ptx), "-o", str(folder / "out.cubin")])
        registers = max(int(used) for used in re.findall(r"Used (\d+) registers", said))
        if run > 0:   # the first warms the file cache
            rows.append([float(report.group(1)), process, assembler] + parts)
    return medians(rows), kernels, registers


def compare_levels(ptxas, options, folder):
    print("| example | -O | own | of it LLVM | optimize | emit | registers | ptxas |")
    print("|---|" + "---:|" * 7)
    for example, defines in EXAMPLES:
        for level in (0, 1, 2):
            (own, _, assembler, *parts), _, registers = measure(options.tilec, ptxas, example, defines, options, folder, level)
            build, optimize, emit = parts[3:]
            print(f"| {example} | {level} | {own:.1f} | {100 * (build + optimize + emit) / own:.0f} % | {optimize:.1f} "
                  f"| {emit:.1f} | {registers} | {assembler:.0f} |", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("tilec")
    arguments.add_argument("--target", default="sm_90a")
    arguments.add_argument("--runs", type=int, default=9)
    arguments.add_argument("--limit", type=float, default=50, help="milliseconds per kernel")
    arguments.add_argument("--levels", action="store_true", help="compare LLVM's effort 0, 1 and 2 instead")
    options = arguments.parse_args()
    ptxas = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"

    if options.levels:
        with tempfile.TemporaryDirectory() as folder:
            compare_levels(ptxas, options, pathlib.Path(folder))
        return 0
    slow = []
    print("| example | kernels | own | own / kernel | process | ptxas | " + " | ".join(PARTS) + " |")
    print("|---|" + "---:|" * (5 + len(PARTS)))
    with tempfile.TemporaryDirectory() as folder:
        for example, defines in EXAMPLES:
            (own, process, assembler, *parts), kernels, _ = measure(options.tilec, ptxas, example, defines, options,
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
