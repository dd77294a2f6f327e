#!/usr/bin/env python3
"""Programs that do not end: the emulator's default limit of steps ends each within MOST seconds, at every stage.

    tests/endless.py TILEC
"""
import os
import resource
import subprocess
import sys
import tempfile

LOOP = "var i: i32 = 0; while (i >= 0) { %s i = (i + 1) %% 7; } "
KERNEL = "kernel k(x: f32[N], y: out f32[N]) { grid (b in 1) threads 128 { %s } }\n"
REFERENCE = "reference k { for (i in N) y[i] = 1; }\n"
TEST = "test k (N = 128) tolerance 0;\n"
PROGRAMS = {
    "gemm": KERNEL % ("shared a: f16[64, 512]; fragment c: f32[64, 64]; fill(a, 1); fill(c, 0); " + LOOP % "gemm(a, a.T, c);"
                      + "y[0] = c[0, 0];") + REFERENCE + TEST,
    "copy": KERNEL % ("shared a: f32[128]; " + LOOP % "copy(x, a);" + "copy(a, y);") + REFERENCE + TEST,
    "stores": KERNEL % "thread (t in 128) { for (i in 9223372036854775807) y[t] = x[t]; }" + REFERENCE + TEST,
    "barriers": KERNEL % "thread (t in 128) { for (i in 9223372036854775807) barrier(); y[t] = 1; }" + REFERENCE + TEST,
    "reference": KERNEL % "thread (t in 128) { y[t] = 1; }"
                 + "reference k { for (i in N) { var s: f32 = 0; for (q in 9223372036854775807) s = exp(s) - x[i]; y[i] = s; } }\n" + TEST,
}
STAGES = {"gemm": ["--passes=none", "--target=sm_80", "--target=sm_90a"], "copy": ["--passes=none", "--target=sm_90a"]}
MOST = 150   # seconds of CPU: a minute on an idle machine


def main():
    failed = 0
    for name, text in PROGRAMS.items():
        for stage in STAGES.get(name, ["--target=sm_80"]):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, name + ".tile")
                with open(path, "w") as file:
                    file.write(text)
                run = subprocess.run([sys.argv[1], "test", stage, path], capture_output=True, text=True, check=False,
                                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (MOST, MOST)))
            ends = "T0715" in run.stdout + run.stderr
            failed += not ends
            print(f"{'ok  ' if ends else 'FAIL'} {name} {stage}: exit {run.returncode}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
