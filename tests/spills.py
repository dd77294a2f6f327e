#!/usr/bin/env python3
"""The examples assemble without a warning: no spill, no stack frame, no serialised matrix instructions.

    spills.py TILEC TARGET FILE...      exit 0: none; 77: there is no ptxas to ask

Files that are said not to fit the target before they are compiled are left out.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

WARNING = re.compile(r"warning\[T\d+\]: (?:'(\w+)')?.*")
DOES_NOT_FIT = re.compile(r"error\[T0(601|801)\]")   # not T0602: what fits is known before
AMPERE = ("sm_80", "sm_86", "sm_89")
# (target, kernel): what it is worth.
KNOWN = {
    ("sm_120a", "gemm_fp8_blocks__1"): "two values wait for the store in the loop; without them, one of two CTAs per SM would be left",
    **{(target, f"moe_down__K_{k}__1"): "not mended: what smaller tiles would cost without TMA is not measured"
       for target in AMPERE for k in (1, 2, 3)},
    **{(target, "attend__D_128__BM_192__tiles"): "2 of 168 registers, of a tile for wgmma, which the target lacks" for target in ("sm_90", "sm_100a")},
    ("sm_80", "delta_chunks__N_128__P_72__COLUMNS_64"): "not mended: 3 of 255 registers, of a tile that is not a multiple of 16 columns",
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
            if (target, found.group(1)) not in KNOWN]


def main():
    tilec, target, *files = sys.argv[1:]
    if not shutil.which("ptxas", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin"):
        print("no ptxas")
        return 77
    wrong = sum((build(tilec, pathlib.Path(file), target) for file in files), [])
    print(*wrong, f"{len(files)} files for {target}, {len(wrong)} warnings", sep="\n")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
