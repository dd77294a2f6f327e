#!/usr/bin/env python3
"""Random shapes (odd, prime, 1, smaller than a tile, just beside a tile's edge) for four examples.

    random_shapes.py write FOLDER EXAMPLES [--count 200] [--seed 1]        writes .tile files of about 10 tests each
    random_shapes.py test TILEC EXAMPLES [--count 200] [-j JOBS] [...]      writes them and runs `tilec test` on each
                     [-- ARGUMENTS]                                        e.g. -- --device=gpu --target=sm_90a

The list is the same everywhere for one seed; a smaller count is a sample of the larger list.
"""
import argparse
import concurrent.futures
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

IMPORT = re.compile(r'^import "(.*)";', re.M)
TEST = re.compile(r"^test\b[^{;]*(\{.*?^\}[^;]*)?;\n?", re.M | re.S)
PRIMES = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 53, 61, 67, 79, 97, 101, 127, 131, 151, 191, 211, 257, 293]
EDGES = [8, 16, 24, 32, 48, 63, 64, 65, 72, 96, 120, 127, 128, 129, 136, 160, 192, 200, 248, 256]
LISTED = 200   # length of the whole list


def extent(rng, limit):
    kind = rng.randrange(10)
    if kind == 0:
        return 1
    if kind <= 3:
        return rng.choice([p for p in PRIMES if p <= limit])
    if kind <= 6:
        return rng.choice([e for e in EDGES if e <= limit])
    if kind == 7:
        return rng.randint(1, 15)
    return 2 * rng.randint(0, (limit - 1) // 2) + 1


def gemm(rng):
    return f"(M = {extent(rng, 260)}, N = {extent(rng, 300)}, K = {extent(rng, 300)}) tolerance 2e-2;"


def gemm_of_types(rng):
    return gemm(rng).replace(")", f", E = {rng.choice(('bf16', 'f16', 'f32'))})")


def softmax(rng):
    return f"(M = {extent(rng, 9)}, N = {rng.choice([extent(rng, 300), rng.randint(1, 5000)])}) tolerance 1e-2;"


def transpose(rng):
    return f"(M = {extent(rng, 300)}, N = {extent(rng, 300)}) tolerance 0;"


KINDS = [("gemm", gemm_of_types), ("gemm_bias_gelu", gemm), ("softmax", softmax), ("transpose", transpose)]


def shapes(seed, count):
    """The first `count` of the list, as (example, test line)."""
    rng = random.Random(seed)
    listed = []
    while len(listed) < LISTED:
        name, make = KINDS[len(listed) % len(KINDS)]
        row = (name, f"test {name} {make(rng)}")
        if row not in listed:
            listed.append(row)
    return listed[:count]


def write(folder, examples, seed, count, a_file=10):
    """Files of `a_file` tests, one example each. The paths."""
    paths = []
    rows = shapes(seed, count)
    for name, _ in KINDS:
        source = TEST.sub("", (examples / f"{name}.tile").read_text())
        for imported in IMPORT.findall(source):
            shutil.copy(examples / imported, folder)
        tests = [test for example, test in rows if example == name]
        for first in range(0, len(tests), a_file):
            path = folder / f"random_{name}_{first // a_file:02d}.tile"
            path.write_text(source.rstrip() + "\n\n" + "\n".join(tests[first:first + a_file]) + "\n")
            paths.append(path)
    return paths


def run(tilec, arguments, path):
    start = time.monotonic()
    done = subprocess.run([tilec, "test", *arguments, str(path)], capture_output=True, text=True)
    return path, done.returncode, done.stdout + done.stderr, time.monotonic() - start


def test(options, arguments):
    failures = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        paths = write(pathlib.Path(folder), options.examples, options.seed, options.count, max(1, options.count // 20))
        for path, code, output, seconds in pool.map(lambda path: run(options.tilec, arguments, path), paths):
            if code != 0:
                failures += 1
                print(f"{path.name}: exit {code}, {seconds:.1f} s\n{output[-1500:]}")
    print(f"{options.count} shapes, {failures} of {len(paths)} files failed")
    return 1 if failures else 0


def main():
    words = sys.argv[1:]
    arguments = words[words.index("--") + 1:] if "--" in words else []
    words = words[:words.index("--")] if "--" in words else words
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    writing, testing = commands.add_parser("write"), commands.add_parser("test")
    writing.add_argument("folder", type=pathlib.Path)
    testing.add_argument("tilec")
    testing.add_argument("-j", type=int, default=2)
    for command, count in ((writing, LISTED), (testing, LISTED)):
        command.add_argument("examples", type=pathlib.Path)
        command.add_argument("--count", type=int, default=count)
        command.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(words)
    if options.command == "test":
        return test(options, arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    print("\n".join(map(str, write(options.folder, options.examples, options.seed, options.count))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
