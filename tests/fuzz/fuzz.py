#!/usr/bin/env python3
"""Runs libFuzzer's fuzzers for a number of inputs, and says how many edges the last fifth of them found.

    cmake --preset fuzz && cmake --build --preset fuzz --target fuzzers tilec
    tests/fuzz/fuzz.py build/fuzz layout record

The first corpus is what tests/fuzz/corpus keeps and the tree's own programs. It grows in build/fuzz/corpus/NAME, and the number
of its edges in NAME.tsv, so a second call continues. Findings are written to build/fuzz/findings/NAME:
mend them, then keep each input (made small with `fuzz_NAME -minimize_crash=1 FILE`) in tests/fuzz/inputs/fuzz_NAME.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

STARTED = time.monotonic()
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LONGEST = {"source": 1500, "compile": 1500, "emulate": 3000, "layout": 400, "artefact": 5000, "record": 2000, "npy": 400,
           "api": 300, "message": 1200}
FEW, MANY = 10_000, 1_000_000   # inputs that go through the whole pipeline, and that are parsed
INTERRUPTED = 72   # libFuzzer's exit code
PROGRAMS = ["examples/*.tile", "tests/programs/*.tile", "tests/lit/**/*.tile"]
DECLARATIONS = re.compile(rb"^(?=[a-z])", re.M)   # each begins a line


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


def programs(tilec):
    yield from files(*PROGRAMS)
    yield from stages(tilec)


def texts(tilec):
    """Short programs, and the declarations of all, each alone: the shorter the inputs, the more can be tried."""
    for text in programs(tilec):
        yield text
        yield from DECLARATIONS.split(text)


def compile_seeds(tilec):
    for number, text in enumerate(sorted(set(texts(tilec)))):
        yield bytes([number % 12]) + text


def layout_seeds(tilec):
    for text in files("tests/golden/*.tsv", "tests/golden/*.jsonl"):
        for line in text.splitlines()[::40]:
            yield b"\0" + line
    for text in files("docs/reference/layout-calculator.md", "docs/reference/layouts/*", "tests/golden/*.calc", "tests/lit/cli/*layout*"):
        for line in re.findall(rb"tilec layout '([^']+)'|\{\{(.+?)\}\}|^([a-z_A-Z]+\(.*\))$", text, re.M):
            yield b"\1" + b"".join(line)
            yield b"\2{{" + b"".join(line) + b"}}"
    for line in subprocess.run([tilec, "layout", "--help"], capture_output=True, check=False).stdout.splitlines():
        yield b"\1" + line.strip().split(b"  ")[0]


def artefact_seeds(tilec):
    source = (ROOT / "tests/fake_cuda/artefact.h").read_text()
    plan = source[source.index("static const char plan_text"):source.index("static inline")]
    yield re.sub(r'\\"', '"', "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', plan))).encode()
    for path in sorted(ROOT.glob("tests/programs/*.tile")):
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


def field(value):
    return struct.pack("<q", -1) if value is None else struct.pack("<q", len(value)) + value + b"\0"


def numbers(*values):
    return struct.pack(f"<{len(values)}q", *values)


def message_seeds(tilec):
    """As runtime/worker/message.c writes them."""
    for texts_given in range(2, 9):
        texts_of = [b"x.tile", b"/", b"sm_80", b"k", b"ptxas", b"tune", b"r", b"i"][:texts_given] + [None] * (8 - texts_given)
        for defines in [[], [b"N", b"4"], [b"N", b"", b"BM", b"64"]]:
            yield (b"\1" + field(b"kernel") + field(b"\1" * 128) + b"".join(map(field, texts_of)) + numbers(2, 1, 0, 1 << 30) +
                   numbers(len(defines) // 2) + b"".join(map(field, defines)))
    for cubin in [None, b"\x7fELF"]:
        for places in range(3):
            diagnostics = numbers(201, 2, 1, 2, 1, 9) + field(b"x.tile") + field(b"unknown") + field(b"")
            yield (b"\0" + numbers(places) + field(b".ptx") + field(b"{}") + field(cubin) + field(b"text") + field(b"[]") +
                   numbers(places) + diagnostics * places)


SEEDS = {"source": texts, "compile": compile_seeds, "emulate": programs, "layout": layout_seeds, "artefact": artefact_seeds,
         "record": record_seeds, "npy": npy_seeds, "api": random_seeds, "message": message_seeds}


def compiler(build):
    """For what needs no sanitizers, which are slow: seeds, and the process behind the API (`compile` runs its code)."""
    release = build.parent / "release" / "tilec"
    return release if release.exists() else build / "tilec"


def kept(name):
    """Inputs of earlier runs, few for what they reach."""
    return ROOT / "tests" / "fuzz" / "corpus" / f"{name}.tar.xz"


def make_corpus(build, name, options):
    corpus = build / "corpus" / name
    if corpus.exists():
        return corpus
    seeds = {seed for seed in SEEDS[name](compiler(build)) if len(seed) <= LONGEST[name]}
    if kept(name).exists():
        with tarfile.open(kept(name)) as archive:
            seeds |= {archive.extractfile(member).read() for member in archive}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        shares = [pathlib.Path(folder) / f"{number}" for number in range(options.jobs)]
        for share in shares:
            share.mkdir()
        for number, seed in enumerate(sorted(seeds)):
            (shares[number % options.jobs] / f"seed{number:05d}").write_bytes(seed)
        corpus.mkdir(parents=True)
        list(pool.map(lambda share: merge(build, name, options, corpus, share), shares))
    return corpus


def merge(build, name, options, into, *folders):
    """Those of the inputs that reach what the others do not."""
    subprocess.run([build / "tests" / f"fuzz_{name}", "-merge=1", f"-max_len={LONGEST[name]}", into, *folders],
                   env=environment(build, options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def keep(build, name, options, corpus):
    kept(name).parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as few, tarfile.open(kept(name), "w:xz") as archive:
        merge(build, name, options, few, corpus)
        for path in sorted(pathlib.Path(few).iterdir()):
            member = tarfile.TarInfo(path.name)   # of no owner and no time
            member.size = path.stat().st_size
            archive.addfile(member, path.open("rb"))


def seconds_left(options):
    """Of the minutes given, the making of the corpus included."""
    return max(1, int(options.minutes * 60 - time.monotonic() + STARTED)) if options.minutes else 0


def command(build, name, options, corpus):
    findings = build / "findings" / name
    findings.mkdir(parents=True, exist_ok=True)
    runs = options.runs or (FEW if name in ["api", "compile", "emulate"] else MANY)
    return [build / "tests" / f"fuzz_{name}", f"-fork={options.jobs}", "-ignore_crashes=1", f"-runs={runs}",
            f"-max_len={LONGEST[name]}", f"-seed={options.seed}", f"-timeout={options.hang}", "-rss_limit_mb=4096",
            "-len_control=0", "-entropic=0",   # entropic: a third of the time
            f"-max_total_time={seconds_left(options)}", f"-artifact_prefix={findings}/", corpus]


def environment(build, options):
    leaks = int(not options.no_leaks)
    return dict(os.environ, LD_LIBRARY_PATH=str(build / "tests" / "fake_cuda"), FAKE_CUDA_LOG="/dev/null",
                TILEC_COMPILER=str(compiler(build)), ASAN_OPTIONS=f"allocator_may_return_null=1:detect_leaks={leaks}")


def run(words, environ, growth):
    """Appends (inputs so far, edges so far) as they grow. Inputs of the corpus do not count. Returns the end of its text."""
    start, last = growth[-1][0] if growth else 0, []
    with subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environ,
                          errors="replace") as process:
        for line in process.stderr:
            last = (last + [line])[-60:]
            at = re.match(r"#(\d+):\s+cov: (\d+)", line)
            if at:
                growth.append((start + int(at[1]), int(at[2])))
    return process.returncode, "".join(last)


def report(name, growth):
    runs = growth[-1][0]
    before = max((edges for at, edges in growth if at <= runs * 0.8), default=0)
    edges = max(edges for _, edges in growth)
    print(f"{name}: {runs} inputs, {before} edges after 80 % of them, {edges} at the end: {edges - before} in the last fifth")


def fuzz(name, options):
    build = options.build.resolve()
    corpus = make_corpus(build, name, options)
    if options.keep:
        return keep(build, name, options, corpus)
    so_far = corpus.with_suffix(".tsv")
    growth = [tuple(map(int, line.split())) for line in so_far.read_text().splitlines()] if so_far.exists() else []
    try:
        status, text = run(command(build, name, options, corpus), environment(build, options), growth)
    finally:   # an interrupted run counts too
        so_far.write_text("".join(f"{inputs}\t{edges}\n" for inputs, edges in growth))
    if growth:
        report(name, growth)
    findings = list((build / "findings" / name).iterdir())
    if findings or status not in (0, INTERRUPTED):
        sys.exit(f"{text}{name}: status {status}, {len(findings)} findings")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("names", nargs="+", choices=sorted(SEEDS))
    parser.add_argument("--runs", type=int, help=f"inputs; default: {FEW} for api, compile and emulate, {MANY} for the others")
    parser.add_argument("--minutes", type=float, default=0, help="at most; 0: no limit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share a corpus")
    parser.add_argument("--no-leaks", action="store_true", help="where LeakSanitizer cannot run")
    parser.add_argument("--hang", type=int, default=25, help="seconds of one input that are a finding")
    parser.add_argument("--keep", action="store_true", help="write few inputs that reach what the corpus does to the tree")
    options = parser.parse_args()
    for name in options.names:
        fuzz(name, options)


main()
