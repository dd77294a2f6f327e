#!/usr/bin/env python3
"""Odd lists of passes: each pass of the pipeline left out in its place, each pair of neighbours swapped.

    pass_lists.py TILEC SOURCE [REGEX]      REGEX: only the cases whose command matches

For each of some examples and targets the program passes its test on the emulator, or there is a diagnostic that says
what the list lacks: no internal error, no IR that the verifier refuses, no crash.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TARGETS = "sm_80", "sm_90a", "sm_120a"
# Examples, each with a test that takes milliseconds.
TESTS = {
    "attention": "(B = 1, H = 1, S = 70, T = 70, D = 128, BM = 128, BN = 64, scale = 0.0883883) tolerance 2e-2;",
    "cumulative_sum": "(M = 2, N = 1001) tolerance 1e-5;",
    "gemm": "(M = 70, N = 72, K = 200, BM = 64, BN = 64, BK = 64, STAGES = 3) tolerance 1e-2;",
    "softmax": "(M = 3, N = 1000) tolerance 1e-2;",
    "transpose": "(M = 100, N = 37) tolerance 0;",
}
BUG = re.compile(r".*error\[T(?:9901|0503|0510)\].*")   # internal error, a pass broke the IR, a stale analysis


def lists(source):
    names = re.findall(r"^STEP\((\w+)\)", (source / "passes/passes.def").read_text(), re.M)
    steps = [name.replace("_", "-") for name in names]
    for i in range(len(steps)):
        yield steps[:i] + steps[i + 1:]
        yield steps[:i] + steps[i:i + 2][::-1] + steps[i + 2:]


def with_test(source, folder, name):
    """The example with this test in place of its own."""
    text = (source / f"examples/{name}.tile").read_text()
    for imported in re.findall(r'(?m)^import "(.*)";', text):
        shutil.copy(source / "examples" / imported, folder)
    path = folder / f"{name}.tile"
    path.write_text(re.split(r"(?m)^test ", text)[0] + f"test {name} {TESTS[name]}\n")
    return path


def problem(command):
    """What is wrong with a run, or None. It may end with 1, a test that fails, or with 2, a list in the wrong order."""
    done = subprocess.run(command, capture_output=True, text=True)
    said = BUG.search(done.stderr)
    if said or done.returncode not in (0, 1, 2):
        return f"{' '.join(map(str, command))}\n    {said.group(0) if said else f'exit {done.returncode}'}"
    return None


def main():
    tilec, source = sys.argv[1], pathlib.Path(sys.argv[2])
    wanted = re.compile(sys.argv[3] if len(sys.argv) > 3 else "")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        files = [with_test(source, pathlib.Path(folder), name) for name in TESTS]
        commands = [[tilec, "test", "--verify-each", f"--target={target}", f"--passes={','.join(steps)}", file]
                    for file in files for target in TARGETS for steps in lists(source)]
        commands = [command for command in commands if wanted.search(" ".join(map(str, command)))]
        wrong = [text for text in pool.map(problem, commands) if text]
    print(*wrong, f"{len(commands)} lists of passes, {len(wrong)} wrong", sep="\n")
    return 1 if wrong or not commands else 0


if __name__ == "__main__":
    sys.exit(main())
