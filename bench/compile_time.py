#!/usr/bin/env python3
"""Compile time of every example: own (source to PTX), and the whole process to cubin compared with ptxas alone on the same PTX.

    compile_time.py TILEC [--target sm_90a] [--runs 9] [--best] [--only REGEX] [--limit 50] [--ratio 1.3] [--levels]

TILEC is a release build. Milliseconds, medians of runs that take turns (--best: minima, for a machine that does other work).
`own` and its parts are what `tilec build -v` reports; `to PTX` and `to cubin` are wall times of whole processes, `ptxas` that of
the assembler on that PTX with the options that tilec gives it but one: tilec has it assemble kernels side by side
(-split-compile). `split` is ptxas with that option too. Exit 1 when own time per kernel is above its limit or `to cubin` above
its ratio to `ptxas`.

--levels compares LLVM's share at -O 0, 1 and 2 instead (1 is the small pipeline of codegen/passes.c), with the most
registers that one of the kernels has after ptxas.
"""
import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TILEC_CACHE"] = "off"   # it compiles each time

FOLDER = pathlib.Path(__file__).parent.parent / "examples"
DEFINES = {   # one value of the names that every build must fix, where the file's tests have several
    "attention": ["D=128"], "center_columns": ["M=64"], "rmsnorm": ["N=4096"], "softmax": ["N=4096"],
}
SHORT = ["attention", "center_columns", "gemm", "gemm_bias_gelu", "gemm_split_k", "rmsnorm", "softmax", "transpose", "vector_add"]
PHASES = ["parse", "elaborate", "passes", "LLVM", "build", "optimize", "emit"]   # the last three: of all threads together
REPORT = re.compile(r"([\d.]+) ms from source to PTX for (\d+) kernel")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def wall_times(commands):
    """Wall time of each command, the commands taking turns."""
    rows = []
    for round_ in range(options.runs + 1):
        row = []
        for command in commands:
            start = time.perf_counter()
            process = os.posix_spawn(command[0], command, os.environ, file_actions=[
                (os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)])
            _, status = os.waitpid(process, 0)
            row.append(1e3 * (time.perf_counter() - start))
            if status:
                raise SystemExit(f"{' '.join(command)}: status {status}")
        if round_ > 0:   # the first warms the file cache
            rows.append(row)
    return summary(rows)


def summary(rows):
    return [(min if options.best else statistics.median)(column) for column in zip(*rows)]


def build_command(name, output, level=1):
    command = [options.tilec, "build", str(FOLDER / f"{name}.tile"), f"--target={options.target}", f"-O{level}", "-o", str(output)]
    for define in DEFINES.get(name, []):
        command += ["-D", define]
    return command


def own_times(name, ptx, level=1):
    """[own, its parts...] in ms as reported, and the number of kernels; leaves the PTX behind."""
    rows, kernels = [], 0
    for _ in range(options.runs):
        text = run(build_command(name, ptx, level) + ["-v"])
        report = REPORT.search(text)
        kernels = int(report.group(2))
        rows.append([float(report.group(1))] +
                    [float(re.search(rf"{phase} ([\d.]+)", text[report.start():]).group(1)) for phase in PHASES])
    return summary(rows), kernels


def compare_levels(ptxas, folder):
    print("| example | -O | own | of it LLVM | optimize | emit | registers | ptxas |")
    print("|---|" + "---:|" * 7)
    for name in SHORT:
        for level in (0, 1, 2):
            ptx = folder / f"{name}.ptx"
            (own, *phases), _ = own_times(name, ptx, level)
            assemble = [ptxas, f"-arch={options.target}", "-lineinfo", "-v", str(ptx), "-o", str(folder / "out.cubin")]
            registers = max(int(used) for used in re.findall(r"Used (\d+) registers", run(assemble)))
            (assembler,) = wall_times([assemble])
            llvm, _, optimize, emit = phases[3:]
            print(f"| {name} | {level} | {own:.1f} | {100 * llvm / own:.0f} % | {optimize:.1f} "
                  f"| {emit:.1f} | {registers} | {assembler:.0f} |", flush=True)


def measure(ptxas, folder, name):
    """Prints a row; what is wrong with it."""
    ptx, cubin = folder / f"{name}.ptx", folder / f"{name}.cubin"
    (own, *phases), kernels = own_times(name, ptx)
    assemble = [ptxas, f"-arch={options.target}", "-lineinfo", "-v", str(ptx), "-o", str(folder / "out.cubin")]
    to_ptx, to_cubin, alone, split = wall_times(
        [build_command(name, folder / "out.ptx"), build_command(name, cubin), assemble,
         assemble + ["-split-compile", "0"]])
    ratio = to_cubin / alone
    cells = [own, own / kernels] + phases + [to_ptx, to_cubin, alone, split]
    print(f"| {name} | {kernels} | " + " | ".join(f"{cell:.1f}" for cell in cells) +
          f" | {ratio:.2f} | {to_cubin / split:.2f} |", flush=True)
    wrong = []
    if own / kernels > options.limit:
        wrong.append(f"{name}: {own / kernels:.1f} ms per kernel")
    if ratio > options.ratio:
        wrong.append(f"{name}: to cubin takes {ratio:.2f} of ptxas alone")
    return wrong


def parse_arguments():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("tilec")
    arguments.add_argument("--target", default="sm_90a")
    arguments.add_argument("--runs", type=int, default=9)
    arguments.add_argument("--best", action="store_true", help="minima, not medians")
    arguments.add_argument("--only", default="", help="examples whose name has this")
    arguments.add_argument("--limit", type=float, default=50, help="milliseconds per kernel")
    arguments.add_argument("--ratio", type=float, default=1.3, help="of the process to ptxas alone")
    arguments.add_argument("--levels", action="store_true", help="compare LLVM's effort 0, 1 and 2 instead")
    return arguments.parse_args()


def main():
    ptxas = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"

    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        if options.levels:
            compare_levels(ptxas, pathlib.Path(folder))
            return 0
        columns = ["example", "kernels", "own", "own / kernel"] + PHASES
        print("| " + " | ".join(columns + ["to PTX", "to cubin", "ptxas", "split", "to cubin / ptxas", "/ split"]) + " |")
        print("|---|" + "---:|" * (len(columns) + 5))
        for path in sorted(FOLDER.glob("*.tile")):
            if re.search(options.only, path.stem):
                wrong += measure(ptxas, pathlib.Path(folder), path.stem)
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


options = parse_arguments()
sys.exit(main())
