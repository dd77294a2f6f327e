#!/usr/bin/env python3
"""fuzz.py with a small fuzzer in the place of `npy`: what it finds is kept and named, and it ends in time.

The fuzzer fails on seeds of its corpus, which only the merge runs, and hangs on others. Skipped without clang's libFuzzer.

Usage: driver_test.py SOURCE_DIR
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(sys.argv[1]).resolve()
SKIPPED = 77
CRASHES, HANGS = 3, 4   # the first byte of an input, as npy_seeds numbers them
MINUTES, HANG = 3, 2
FUZZER = f"""
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {{
    if (size > 20 && data[0] == {CRASHES} && data[7] == 1) __builtin_trap();
    if (size > 20 && data[0] == {HANGS} && data[7] == 1) sleep(600);
    return 0;
}}
"""


def make_fuzzer(folder):
    clang = next(filter(None, map(shutil.which, ["clang", "clang-14"])), None)
    if not clang:
        return False
    (folder / "tests").mkdir()
    done = subprocess.run([clang, "-fsanitize=fuzzer", "-x", "c", "-", "-o", folder / "tests" / "fuzz_npy"], input=FUZZER, text=True,
                          stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        build, cwd = pathlib.Path(folder, "build"), pathlib.Path(folder, "cwd")
        build.mkdir()
        cwd.mkdir()
        if not make_fuzzer(build):
            return SKIPPED
        started = time.monotonic()
        done = subprocess.run([sys.executable, ROOT / "tests/fuzz/fuzz.py", build, "npy", f"--minutes={MINUTES}", f"--hang={HANG}"],
                              cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        seconds = time.monotonic() - started
        findings = build / "findings" / "npy"
        found = {path.name.split("-")[0]: path.read_bytes()[0] for path in findings.iterdir()}
        faults = [text for fault, text in [
            (not {"crash": CRASHES, "timeout": HANGS}.items() <= found.items(), f"findings: {found}"),   # and slow inputs, on a busy machine
            (done.returncode != 1, f"exit code {done.returncode}"),
            (str(findings) not in done.stdout, "the folder of the findings is not named"),
            (list(cwd.iterdir()), f"in the current folder: {list(cwd.iterdir())}"),
            (list(build.glob("tmp*")), "left in the build folder"),
            (not list((build / "corpus" / "npy").iterdir()), "no corpus"),
            (seconds > MINUTES * 60 + 30, f"{seconds:.0f} seconds"),
        ] if fault]
        if faults:
            print(done.stdout, *faults, sep="\n")
        return 1 if faults else 0


sys.exit(main())
