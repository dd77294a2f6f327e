"""Examples with random shapes in place of their tests: odd, prime, 1, smaller than a tile, multiples of vectors.

Usage: random_shapes.py FOLDER [COUNT [SEED]]    writes FOLDER/random_<example>.tile with COUNT (50) tests each

The files run anywhere: `tilec test FOLDER/*.tile` on the emulator, tests/gpu/run.sh on a device.
"""

import pathlib
import random
import re
import sys

examples = pathlib.Path(__file__).parent.parent.parent / "examples"
folder = pathlib.Path(sys.argv[1])
count = int(sys.argv[2]) if len(sys.argv) > 2 else 50
rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)

TEST = re.compile(r"^test [^{;]*(\{(?:[^{}]|\{[^{}]*\})*\}[^;]*)?;\n?", re.M)   # a block may have blocks in it
PRIMES = [2, 3, 5, 7, 13, 31, 61, 67, 97, 127, 131, 191, 251, 257, 293]
DIMS = {   # example -> its dims, and the tolerance of its tests
    "gemm": ("M N K", "1e-2"),
    "gemm_bias_gelu": ("M N K", "1e-2"),
    "softmax": ("M N", "1e-2"),
    "transpose": ("M N", "0"),
}


def extent(largest):
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice([1, 1, 2, 3])
    if kind == 1:
        return rng.choice([p for p in PRIMES if p <= largest])
    if kind == 2:
        return 8 * rng.randint(1, largest // 8)
    if kind == 3:
        return 64 * rng.randint(1, max(1, largest // 64))
    return rng.randint(1, largest)


folder.mkdir(parents=True, exist_ok=True)
for name, (dims, tolerance) in DIMS.items():
    text = (examples / f"{name}.tile").read_text()
    program = TEST.sub("", text)
    tests = []
    for _ in range(count):
        largest = 2000 if name == "softmax" else 300
        values = {dim: extent(largest if dim != "M" or name != "softmax" else 20) for dim in dims.split()}
        bindings = ", ".join(f"{dim} = {value}" for dim, value in values.items())
        tests.append(f"test {name} ({bindings}) tolerance {tolerance};\n")
    (folder / f"random_{name}.tile").write_text(program + "".join(tests))
