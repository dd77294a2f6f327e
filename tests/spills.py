#!/usr/bin/env python3
"""The examples assemble without a spill, a stack frame or a note about serialised matrix instructions.

    spills.py TILEC EXAMPLES TARGET [-j JOBS]

Files that are said not to fit the target before they are compiled are left out. Without ptxas there is nothing to see.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

WARNING = re.compile(r"warning\[T0(918|815)\]: '(\w+)'.*")
DOES_NOT_FIT = re.compile(r"error\[T0(601|801)\]")   # not T0602: what fits is known before
# (target, kernel): what it is worth.
KNOWN = {
    ("sm_120a", "gemm_fp8_blocks__1"): "two values wait for the store beside the loop; without, one block of two would be left",
}


def build(tilec, path, target):
    """What is wrong with a file: lines of text."""
    done = subprocess.run([tilec, "build", str(path), f"--target={target}", "--record=none", "-o", os.devnull],
                          capture_output=True, text=True)
    if done.returncode and DOES_NOT_FIT.search(done.stderr):
        return []
    if done.returncode:
        return [f"{path.name}: exit {done.returncode}\n{done.stderr[-2000:]}"]
    return [f"{path.name}: {found.group(0)}" for found in WARNING.finditer(done.stderr)
            if (target, found.group(2)) not in KNOWN]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tilec")
    parser.add_argument("examples", type=pathlib.Path)
    parser.add_argument("target")
    parser.add_argument("-j", type=int, default=2)
    args = parser.parse_args()
    if not shutil.which("ptxas", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin"):
        print("no ptxas: skipped")
        return 0
    paths = sorted(args.examples.glob("*.tile"))
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        wrong = sum(pool.map(lambda path: build(args.tilec, path, args.target), paths), [])
    print(*wrong, f"{len(paths)} files for {args.target}, {len(wrong)} warnings", sep="\n")
    return 1 if wrong or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
