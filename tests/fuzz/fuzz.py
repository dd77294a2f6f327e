#!/usr/bin/env python3
"""Runs libFuzzer's fuzzers for a number of inputs, and says how many edges the last fifth of them found.

    cmake --preset fuzz && cmake --build --preset fuzz --target fuzzers tilec
    tests/fuzz/fuzz.py build/fuzz layout record

The first corpus is what tests/fuzz/corpus keeps and the tree's own programs. It grows in build/fuzz/corpus/NAME, and the number
of its edges in NAME.tsv, so a second call continues. Seeds that --minutes left no time for wait in build/fuzz/seeds/NAME.
Findings, those among the seeds too, are written to build/fuzz/findings/NAME:
mend them, then keep each input (made small with `fuzz_NAME -minimize_crash=1 FILE`) in tests/fuzz/inputs/fuzz_NAME.
"""
import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

STARTED = time.monotonic()
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LONGEST = {"source": 1500, "compile": 1500, "emulate": 3000, "layout": 400, "artefact": 5000, "record": 2000, "npy": 400,
           "api": 300, "message": 1200}
FEW, MANY = 10_000, 1_000_000   # inputs that go through the whole pipeline, and that are parsed
INTERRUPTED = 72   # libFuzzer's exit code
GRACE = 10   # seconds that a fuzzer has to end by itself before it is killed
FEWEST = 64   # seeds of one merge
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


def plan_format():
    header = (ROOT / "runtime" / "plan" / "plan.h").read_text()
    return re.search(r"MANIFEST_FORMAT = (\d+)", header)[1].encode()


def current(plan):
    """The format's number is checked first: a plan that was kept when it was another one would be refused at once."""
    return re.sub(rb'("manifest"\s*:\s*)\d+', rb"\g<1>" + plan_format(), plan, count=1)


def compact(plan):
    return json.dumps(json.loads(plan), separators=(",", ":")).encode()


def artefact_seeds(tilec):
    header = (ROOT / "tests/fake_cuda/artefact.h").read_text()
    plan = header[header.index("static const char plan_text"):header.index("static inline")]
    plan = plan.replace('TEN(TEN(COPY_BACK ","))', "").replace("COPY_BACK", re.search('COPY_BACK (".*")', header)[1])
    yield compact("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', plan)).replace('\\"', '"'))
    for path in sorted(ROOT.glob("tests/programs/*.tile")):
        for target in ["sm_80", "sm_90a"]:
            built = subprocess.run([tilec, "build", f"--target={target}", "--emit=manifest", "-o", "-", path],
                                   capture_output=True, check=False)
            if built.returncode == 0:
                yield compact(built.stdout)


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


def kept_seeds(name):
    if not kept(name).exists():
        return
    with tarfile.open(kept(name)) as archive:
        for member in archive:
            seed = archive.extractfile(member).read()
            yield current(seed) if name == "artefact" else seed


def write_seeds(build, name, waiting, until):
    """Each by the hash of its bytes. What there was no time for is made by the next call."""
    cut = waiting.with_suffix(".cut")
    waiting.mkdir(parents=True, exist_ok=True)
    cut.touch()
    for seeds in [kept_seeds(name), SEEDS[name](compiler(build))]:
        for seed in seeds:
            if len(seed) <= LONGEST[name]:
                (waiting / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
            if time.monotonic() >= until:
                return
    cut.unlink()


def merge_seeds(build, name, options, corpus, seeds, until):
    with tempfile.TemporaryDirectory(dir=build) as share:
        for seed in seeds:
            os.link(seed, pathlib.Path(share) / seed.name)
        done = merge(build, name, options, until, corpus, share)
    for seed in seeds if done else []:
        seed.unlink()


def make_corpus(build, name, options, until):
    """Merges the seeds by shares as large as the corpus has become: merging runs the corpus again."""
    corpus, waiting = build / "corpus" / name, build / "seeds" / name
    if not corpus.exists() or waiting.with_suffix(".cut").exists():
        write_seeds(build, name, waiting, until)
    corpus.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        while (seeds := sorted(waiting.glob("*"))) and time.monotonic() < until:
            share = max(FEWEST, len(list(corpus.iterdir())))
            shares = [seeds[number * share:(number + 1) * share] for number in range(options.jobs)]
            list(pool.map(lambda some: merge_seeds(build, name, options, corpus, some, until), shares))
    if seeds:
        print(f"{name}: {len(seeds)} seeds wait for the next call in {waiting}")
    return corpus


def limits(build, name, options):
    """What a finding is, and where it is written: for merging too, whose inputs may be the first to fail."""
    findings = build / "findings" / name
    findings.mkdir(parents=True, exist_ok=True)
    return [f"-max_len={LONGEST[name]}", f"-timeout={options.hang}", f"-report_slow_units={options.hang}", "-rss_limit_mb=4096",
            f"-artifact_prefix={findings}/"]


def merge(build, name, options, until, into, *folders):
    """Adds those of the inputs to `into` that reach what the others do not. False: no time was left."""
    words = [build / "tests" / f"fuzz_{name}", "-merge=1", *limits(build, name, options), into, *folders]
    status, lines = call(words, build, options, until)
    text = "".join(lines)
    if status not in (0, None):
        sys.exit(f"{text}{name}: merging ended with status {status}")
    return status == 0


def keep(build, name, options, corpus, until):
    kept(name).parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as few:
        if not merge(build, name, options, until, few, corpus):
            sys.exit(f"{name}: no time was left to merge the corpus")
        with tarfile.open(kept(name), "w:xz") as archive:
            for path in sorted(pathlib.Path(few).iterdir()):
                member = tarfile.TarInfo(path.name)   # of no owner and no time
                member.size = path.stat().st_size
                archive.addfile(member, path.open("rb"))


def command(build, name, options, corpus, until):
    runs = options.runs or (FEW if name in ["api", "compile", "emulate"] else MANY)
    seconds = max(1, int(until - time.monotonic()) - GRACE) if options.minutes else 0
    return [build / "tests" / f"fuzz_{name}", f"-fork={options.jobs}", "-ignore_crashes=1", f"-runs={runs}",
            f"-seed={options.seed}", "-len_control=0", "-entropic=0",   # entropic: a third of the time
            f"-max_total_time={seconds}", *limits(build, name, options), corpus]


def environment(build, options, folder):
    leaks = int(not options.no_leaks)
    return dict(os.environ, TMPDIR=folder, LD_LIBRARY_PATH=str(build / "tests" / "fake_cuda"), FAKE_CUDA_LOG="/dev/null",
                TILEC_COMPILER=str(compiler(build)), ASAN_OPTIONS=f"allocator_may_return_null=1:detect_leaks={leaks}")


def end(process):
    """With the processes that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def call(words, build, options, until, see=lambda line: None):
    """Its status, None where it was ended at `until`, and the last lines of its text."""
    last, ended = [], threading.Event()
    with tempfile.TemporaryDirectory(dir=build) as folder, \
            subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, errors="replace",
                             env=environment(build, options, folder), start_new_session=True) as process:
        timer = threading.Timer(min(max(0, until - time.monotonic()), threading.TIMEOUT_MAX),
                                lambda: (ended.set(), end(process)))
        timer.daemon = True
        timer.start()
        try:
            for line in process.stderr:
                last = (last + [line])[-60:]
                see(line)
            process.wait()
        finally:
            timer.cancel()
            end(process)
    return None if ended.is_set() else process.returncode, last


def run(words, build, options, until, growth):
    """Appends (inputs so far, edges so far) as they grow. Inputs of the corpus do not count. Returns the end of its text."""
    start = growth[-1][0] if growth else 0

    def see(line):
        at = re.match(r"#(\d+):\s+cov: (\d+)", line)
        if at:
            growth.append((start + int(at[1]), int(at[2])))

    status, last = call(words, build, options, until, see)
    return status, "".join(last)


def report(name, growth):
    runs = growth[-1][0]
    before = max((edges for at, edges in growth if at <= runs * 0.8), default=0)
    edges = max(edges for _, edges in growth)
    print(f"{name}: {runs} inputs, {before} edges after 80 % of them, {edges} at the end: {edges - before} in the last fifth")


def fuzz(name, options, until):
    """False: there are findings, or the fuzzer failed. The corpus takes at most half of the time."""
    build = options.build.resolve()
    now = time.monotonic()
    corpus = make_corpus(build, name, options, until if options.keep else now + (until - now) / 2)
    if options.keep:
        keep(build, name, options, corpus, until)
    else:
        status, text = go_on(build, name, options, corpus, until)
        if status not in (0, None, INTERRUPTED):
            print(f"{text}{name}: status {status}")
    findings = sorted((build / "findings" / name).iterdir())
    print(f"{name}: {len(findings)} findings in {build / 'findings' / name}", *(f"  {path.name}" for path in findings), sep="\n")
    return not findings and (options.keep or status in (0, None, INTERRUPTED))


def go_on(build, name, options, corpus, until):
    so_far = corpus.with_suffix(".tsv")
    growth = [tuple(map(int, line.split())) for line in so_far.read_text().splitlines()] if so_far.exists() else []
    before = len(growth)
    try:
        status, text = run(command(build, name, options, corpus, until), build, options, until, growth)
    finally:   # an interrupted run counts too
        so_far.write_text("".join(f"{inputs}\t{edges}\n" for inputs, edges in growth))
    if len(growth) == before:
        print(f"{name}: no time was left for new inputs")
    if growth:
        report(name, growth)
    return status, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("names", nargs="+", choices=sorted(SEEDS))
    parser.add_argument("--runs", type=int, help=f"inputs; default: {FEW} for api, compile and emulate, {MANY} for the others")
    parser.add_argument("--minutes", type=float, default=0, help="at most, of the corpus and all fuzzers; 0: no limit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share a corpus")
    parser.add_argument("--no-leaks", action="store_true", help="where LeakSanitizer cannot run")
    parser.add_argument("--hang", type=int, default=25, help="seconds of one input that are a finding")
    parser.add_argument("--keep", action="store_true", help="write few inputs that reach what the corpus does to the tree")
    options = parser.parse_args()
    end_of_all = STARTED + options.minutes * 60 if options.minutes else math.inf
    good = True
    for number, name in enumerate(options.names):
        now = time.monotonic()
        good &= fuzz(name, options, now + (end_of_all - now) / (len(options.names) - number))
    sys.exit(not good)


main()
