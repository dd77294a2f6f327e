#!/usr/bin/env python3
"""Wavefronts of shared memory that conversions are said to take, against the counters of a device.

    conversion_wavefronts.py prepare TILEC FOLDER [--count 30] [--seed 1]    programs of tests/random/random_conversions.py that go through
                                                                             shared memory, their code, and what is expected; 77:
                                                                             there is no ptxas
    conversion_wavefronts.py run TILEC-GPU FOLDER [--ncu ncu]                Nsight Compute counts them; 2: it cannot

Expected are the numbers of tests/random/random_conversions.py, which enumerates the words of each access: those that tilec prints.
The counters are l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{ld,st}.sum of the one CTA of each kernel.
"""
import argparse
import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "random"))

COUNTER = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_"


def expected(conversions, conversion, decision):
    """[stores, loads] of the CTA; None: another way, or one without a price."""
    way, layout, mechanisms, _, note = decision
    printed = re.search(r"(\d+) wavefronts of shared memory a warp", note)
    if way != "shared" or not printed:
        return None
    memory = conversions.Memory(layout, conversion.bytes)
    sides = (conversion.source, True, mechanisms[0]), (conversion.destination, False, mechanisms[1])
    warps = [[conversions.wavefronts(side, memory, first, store, via in conversions.MATRICES) for side, store, via in sides]
             for first in range(0, conversion.count, conversions.LANES)]
    if max(map(sum, warps)) != int(printed.group(1)):
        raise RuntimeError(f"{conversion.name()}: {warps} and not {printed.group(1)} wavefronts: {note}")
    return [sum(warp[side] for warp in warps) for side in (0, 1)]


def prepare(options):
    import random_conversions as conversions
    if not shutil.which("ptxas", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin"):
        print("no ptxas")
        return 77
    options.folder.mkdir(parents=True, exist_ok=True)
    wanted, seed = {}, options.seed
    while len(wanted) < options.count:
        conversion = conversions.Conversion(seed)
        seed += 1
        path = options.folder / f"{conversion.name()}.tile"
        rows, columns = conversion.shape   # a copy would be staged in shared memory, where that makes it faster
        path.write_text(conversion.text(f"parallel (i in {rows}, j in {columns}) y[i, j] = w[i, j];"))
        found = expected(conversions, conversion, conversions.decisions(options, path)[conversion.name()])
        text = subprocess.run([str(options.tilec), "opt", f"--target={options.target}", "--stop-after=swizzle-allocation", str(path)],
                              capture_output=True, text=True, check=True).stdout
        alone = all(len(re.findall(r"^ *shared ", block, re.M)) == 1 for block in re.split(r"(?m)^(?=kernel )", text)[1:])
        if not found or not alone:   # other accesses of shared memory would be counted
            path.unlink()
            continue
        wanted[conversion.name()] = found
        subprocess.run([str(options.tilec), "test", "--device=gpu", f"--target={options.target}", f"--compile-only={options.folder / 'cubin'}", str(path)],
                       check=True)
    (options.folder / "expected.json").write_text(json.dumps(wanted, indent=1))
    print(f"{len(wanted)} conversions, seeds {options.seed} to {seed - 1}")
    return 0


def counted(options, name):
    """[stores, loads] of the kernel, or what Nsight Compute says."""
    command = [options.ncu, "--csv", "--metrics", f"{COUNTER}st.sum,{COUNTER}ld.sum", str(options.tilec), "test", "--device=gpu",
               f"--compiled={options.folder / 'cubin'}", str(options.folder / f"{name}.tile")]
    done = subprocess.run(command, capture_output=True, text=True)
    rows = [line for line in done.stdout.split("\n") if line.startswith('"')]
    values = {}
    for row in csv.DictReader(rows):
        if name in row["Kernel Name"]:
            values[row["Metric Name"]] = int(float(row["Metric Value"].replace(",", "")))
    if len(values) != 2:
        return (done.stdout + done.stderr)[-1500:]
    return [values[f"{COUNTER}st.sum"], values[f"{COUNTER}ld.sum"]]


def run(options):
    wrong = 0
    for name, wanted in json.loads((options.folder / "expected.json").read_text()).items():
        try:
            found = counted(options, name)
        except FileNotFoundError:
            found = f"no {options.ncu}"
        if isinstance(found, str):
            print(f"{name}: the counters cannot be read: {found}")
            return 2
        wrong += found != wanted
        print(f"{name}: {found[0]} stores and {found[1]} loads counted, {wanted[0]} and {wanted[1]} expected{'' if found == wanted else '   DIFFERS'}",
              flush=True)
    print(f"{wrong} differ")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("tilec", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("folder", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--ncu", default="ncu")
    options = parser.parse_args()
    return (prepare if options.what == "prepare" else run)(options)


if __name__ == "__main__":
    sys.exit(main())
