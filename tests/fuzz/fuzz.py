#!/usr/bin/env python3
"""Runs one of libFuzzer's fuzzers for a number of inputs, and says whether the last fifth of them found a new edge.

    cmake --preset fuzz && cmake --build --preset fuzz --target fuzzers tilec
    tests/fuzz/fuzz.py build/fuzz layout --runs 1000000

The corpus is kept in build/fuzz/corpus/NAME, so a second call continues. A finding is written to build/fuzz/findings/NAME:
mend it, then keep the input (made small with `fuzz_NAME -minimize_crash=1 FILE`) in tests/fuzz/inputs/fuzz_NAME.
"""
import argparse
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LONGEST = {"source": 6000, "compile": 6000, "emulate": 6000, "layout": 400, "artefact": 8000, "record": 2000, "npy": 400,
           "api": 300, "message": 600}
PROGRAMS = ["examples/*.tile", "tests/programs/*.tile", "tests/lit/**/*.tile"]


def files(*patterns):
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            yield path.read_bytes()


def stages(tilec):
    """Small programs after each pass."""
    for target in ["sm_80", "sm_90a"]:
        for path in sorted(ROOT.glob("tests/programs/*.tile")):
            if path.stat().st_size > 3000:
                continue
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run([tilec, "opt", f"--target={target}", f"--dump-dir={folder}", path],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
                for dump in sorted(pathlib.Path(folder).glob("*.tile")):
                    yield dump.read_bytes()


def texts(tilec):
    yield from files(*PROGRAMS)
    yield from stages(tilec)


def compile_seeds(tilec):
    for number, text in enumerate(sorted(set(texts(tilec)))):
        yield bytes([number % 12]) + text


def layout_seeds(tilec):
    for text in files("tests/golden/*.tsv", "tests/golden/*.jsonl"):
        for line in text.splitlines()[::40]:
            yield b"\0" + line
    for text in files("docs/layouts*.md", "docs/layouts/*", "tests/golden/*.calc", "tests/lit/cli/*layout*"):
        for line in re.findall(rb"tilec layout '([^']+)'|\{\{(.+?)\}\}|^([a-z_A-Z]+\(.*\))$", text, re.M):
            yield b"\1" + b"".join(line)
            yield b"\2{{" + b"".join(line) + b"}}"
    for line in subprocess.run([tilec, "layout", "--help"], capture_output=True, check=False).stdout.splitlines():
        yield b"\1" + line.strip().split(b"  ")[0]


def artefact_seeds(tilec):
    source = (ROOT / "tests/fake_cuda/artefact.h").read_text()
    plan = source[source.index("static const char plan_text"):source.index("static inline")]
    yield re.sub(r'\\"', '"', "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', plan))).encode()
    for path in sorted(ROOT.glob("tests/programs/*.tile")) + sorted(ROOT.glob("examples/*.tile")):
        for target in ["sm_80", "sm_90a"]:
            built = subprocess.run([tilec, "build", f"--target={target}", "--emit=manifest", "-o", "-", path],
                                   capture_output=True, check=False)
            if built.returncode == 0:
                yield built.stdout


def record_seeds(tilec):
    entry = {"kernel": "gemm", "text": "8c1f00", "target": "sm_90a", "device": "NVIDIA H200", "shape": {"M": 4096, "K": 64},
             "tuned": {"BM": 128, "stages": 4}, "us": 171.2, "us_low": 170.93, "us_high": 171.61, "tilec": "0.1.0"}
    line = json.dumps(entry).encode()
    yield line + b"\n" + line.replace(b"4096", b"128") + b"\n"
    yield from files("examples/*.tune", "tests/**/*.tune")


def npy_seeds(tilec):
    for number, kind in enumerate(["<f4", "<f8", "<f2", "<i8", "<i4", "<i2", "|i1", "|u1", "|b1", "<V2", "<u2", "|V1", ">f4"]):
        for fortran in [False, True]:
            header = f"{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': (3, 2), }}".encode()
            header += b" " * (-(len(header) + 11) % 64) + b"\n"
            for version in [b"\1\0" + struct.pack("<H", len(header)), b"\2\0" + struct.pack("<I", len(header))]:
                yield bytes([number]) + b"\x93NUMPY" + version + header + bytes(range(48))


def random_seeds(tilec):
    for number in range(64):
        yield bytes((number * 37 + i * i * 11 + i) % 256 for i in range(40))


SEEDS = {"source": texts, "compile": compile_seeds, "emulate": texts, "layout": layout_seeds, "artefact": artefact_seeds,
         "record": record_seeds, "npy": npy_seeds, "api": random_seeds, "message": random_seeds}


def make_corpus(build, name):
    corpus = build / "corpus" / name
    if corpus.exists():
        return corpus
    seeds = {seed for seed in SEEDS[name](build / "tilec") if len(seed) <= LONGEST[name]}
    corpus.mkdir(parents=True)
    for number, seed in enumerate(sorted(seeds)):
        (corpus / f"seed{number:05d}").write_bytes(seed)
    return corpus


def command(build, options, corpus):
    findings = build / "findings" / options.name
    findings.mkdir(parents=True, exist_ok=True)
    return [build / "tests" / f"fuzz_{options.name}", f"-runs={options.runs}", f"-max_len={LONGEST[options.name]}",
            f"-seed={options.seed}", "-timeout=25", "-rss_limit_mb=4096", "-print_final_stats=1", "-len_control=0",
            f"-max_total_time={int(options.minutes * 60)}", f"-artifact_prefix={findings}/", corpus]


def report(name, growth, runs):
    """growth: (inputs so far, edges so far), as they grew."""
    before = max((edges for at, edges in growth if at <= runs * 0.8), default=0)
    edges = max((edges for _, edges in growth), default=0)
    print(f"{name}: {runs} inputs, {edges} edges, {edges - before} of them found in the last fifth")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("name", choices=sorted(SEEDS))
    parser.add_argument("--runs", type=int, default=10000)
    parser.add_argument("--minutes", type=float, default=0, help="at most; 0: no limit")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    build = options.build.resolve()
    corpus = make_corpus(build, options.name)
    environment = dict(os.environ, LD_LIBRARY_PATH=str(build / "tests" / "fake_cuda"), FAKE_CUDA_LOG="/dev/null",
                       TILEC_COMPILER=str(build / "tilec"),                       ASAN_OPTIONS="allocator_may_return_null=1:detect_leaks=1")
    growth, runs, last = [], 0, []
    with subprocess.Popen([str(word) for word in command(build, options, corpus)], stderr=subprocess.PIPE,
                          stdout=subprocess.DEVNULL, env=environment, errors="replace") as process:
        for line in process.stderr:
            last = (last + [line])[-60:]
            at = re.match(r"#(\d+)\s.*cov: (\d+)", line)
            if at:
                runs = int(at[1])
                growth.append((runs, int(at[2])))
    if process.returncode != 0:
        sys.stdout.write("".join(last))
        print(f"{options.name}: a finding after {runs} inputs")
        return 1
    report(options.name, growth, runs)
    return 0


sys.exit(main())
