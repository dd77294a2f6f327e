#!/usr/bin/env python3
"""The compile cache, by processes of the command line: cache.py TILEC EXAMPLES [--processes 64] [--kills 1000] [--only REGEX]

    one compile       many processes ask for one new key at the same time: one compiles, all write the same bytes
    kills             processes are killed at random moments: no entry is wrong or damaged, no lock stays, others go on
    full disk         a file system without room (a small tmpfs, or a limit on file sizes): results are right, no entry is damaged
    read-only         a folder that cannot be written, with entries and without
    damage            entries with changed bytes, cut short, exchanged: the result is right, and the entry whole again
    said again        what a compile said is said again, in each form
    looking inside    options that show how a result comes about compile, and store nothing
    limit             the folder stays within TILEC_CACHE_SIZE
    settings          off, folders that cannot be, `tilec cache`

Where this machine allows no mounts, a full disk is a limit on the size of files, and a read-only folder one of /proc.
"""
import argparse
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

NAME = re.compile(r"[0-9a-f]{64}")


class Place:
    """A folder with a cache, sources, and an assembler that counts its runs."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.cache = self.folder / "cache"
        self.log = self.folder / "log"
        self.ptxas = self.folder / "ptxas"

    def environment(self, **more):
        return {**os.environ, "TILEC_CACHE": str(self.cache), "TILEC_REPRO_DIR": "none", **more}

    def command(self, source, *words, output="-"):
        return [str(options.tilec), "build", str(source), "--record=none", "-o", str(output), *words]

    def build(self, source, *words, environment=None, **more):
        """(exit code, standard output, standard error) of a build."""
        done = subprocess.run(self.command(source, *words), capture_output=True, env=environment or self.environment(), timeout=600, **more)
        return done.returncode, done.stdout, done.stderr

    def entries(self):
        return {path.name: path for path in self.cache.iterdir() if NAME.fullmatch(path.name)} if self.cache.exists() else {}

    def largest(self):
        """The entries of compiles: those that stand for programs have a hash alone."""
        return [path for path in self.entries().values() if path.stat().st_size > 1000]

    def verify(self):
        done = subprocess.run([options.tilec, "cache", "verify"], capture_output=True, text=True, env=self.environment(), check=True)
        damaged = re.search(r"damaged  (\d+)", done.stdout)
        expect(damaged and damaged[1] == "0", f"damaged entries: {done.stdout}")

    def counting_assembler(self):
        real = shutil.which("ptxas", path=os.pathsep.join([os.environ["PATH"], "/usr/local/cuda/bin"]))
        if not real:
            return []
        self.ptxas.write_text(f'#!/bin/sh\necho >> {self.log}\nexec {real} "$@"\n')
        self.ptxas.chmod(0o700)
        return [f"--ptxas={self.ptxas}"]

    def assembled(self):
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


def expect(condition, text):
    if not condition:
        raise SystemExit(f"{current}: {text}")


def variant(place, number):
    """Sources that differ, so that each is a key of its own."""
    path = place.folder / f"v{number}.tile"
    if not path.exists():
        path.write_text(f"// {number}\n" + (options.examples / "vector_add.tile").read_text())
    return path


def ptx_of(place, source, **more):
    code, out, err = place.build(source, "--emit=ptx", **more)
    expect(code == 0, f"exit {code}: {err.decode()}")
    return out


def uncached(place, source, *words):
    code, out, err = place.build(source, *words, environment=place.environment(TILEC_CACHE="off"))
    expect(code == 0, f"exit {code}: {err.decode()}")
    return out, err


# --- The cases. ---

def one_compile(place):
    words = place.counting_assembler() or ["--emit=ptx"]
    source = options.examples / ("softmax.tile" if options.processes > 32 else "vector_add.tile")
    words += ["-D", "N=1024"] if source.stem == "softmax" else []
    outputs = [place.folder / f"out{i}" for i in range(options.processes)]
    children = [subprocess.Popen(place.command(source, *words, output=path), env=place.environment()) for path in outputs]
    codes = [child.wait(timeout=600) for child in children]
    expect(not any(codes), f"exit codes {codes}")
    expect(len({path.read_bytes() for path in outputs}) == 1, "outputs differ")
    expect(not place.ptxas.exists() or place.assembled() == 1, f"{place.assembled()} compiles")
    expect(len(place.largest()) == 1, f"{len(place.largest())} entries")
    expected, _ = uncached(place, source, *words)
    expect(outputs[0].read_bytes() == expected, "the cache has another result")


def kills(place):
    draw = random.Random(options.seed)
    expected = {number: uncached(place, variant(place, number), "--emit=ptx")[0] for number in range(4)}
    start = time.perf_counter()
    ptx_of(place, variant(place, "first"))
    usual = time.perf_counter() - start
    for number in range(options.kills):
        source = variant(place, number % 4)
        if draw.random() < 0.5:   # else it may be a hit
            for path in place.largest():
                path.unlink()
        children = [subprocess.Popen(place.command(source, "--emit=ptx"), env=place.environment(), stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL) for _ in range(draw.randint(1, 3))]
        time.sleep(draw.random() * 1.5 * usual)
        for child in children:
            child.kill()
        for child in children:
            child.wait()
        if number % 10 == 0:
            place.verify()
            expect(ptx_of(place, source) == expected[number % 4], f"another result after {number} kills")
    place.verify()
    for number in range(4):
        expect(ptx_of(place, variant(place, number)) == expected[number], "another result at the end")
    for path in place.cache.glob(".new.*"):   # what they left is deleted, when it is old
        os.utime(path, (1, 1))
    ptx_of(place, variant(place, "last"))
    expect(not list(place.cache.glob(".new.*")), "unfinished files stay")


def in_mount(place, size, script):
    """Runs a shell script with a file system of `size` as the cache, where this machine allows it."""
    place.cache.mkdir(exist_ok=True)
    mounted = f"mount -t tmpfs -o size={size} tmpfs {place.cache} && "
    tried = subprocess.run(["unshare", "-rm", "sh", "-c", mounted + "true"], capture_output=True)
    if tried.returncode != 0:
        return False
    done = subprocess.run(["unshare", "-rm", "sh", "-c", mounted + script], capture_output=True, text=True, env=place.environment())
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stdout} {done.stderr}")
    return True


def limited(size):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)   # writes fail
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return limit


def full_disk(place):
    source, out = variant(place, 0), place.folder / "out"
    expected, _ = uncached(place, source, "--emit=ptx")
    (place.folder / "expected").write_bytes(expected)
    for size in range(0, len(expected) * 3, 997):   # each write fails at some size
        expect(ptx_of(place, source, preexec_fn=limited(size)) == expected, f"another result with files of {size} bytes")
        for path in place.largest():
            path.unlink()
    place.verify()
    shutil.rmtree(place.cache)
    build = f"{' '.join(place.command(source, '--emit=ptx', output=out))} && cmp {out} {place.folder}/expected"
    for size in ("4k", "8k", "16k", "64k"):
        script = f"set -e; for i in 1 2 3; do {build}; done; {options.tilec} cache verify | grep -q 'damaged  0'; ! ls -A {place.cache} | grep -q new"
        in_mount(place, size, script)


def read_only(place):
    source, out = variant(place, 0), place.folder / "out"
    expected, _ = uncached(place, source, "--emit=ptx")
    (place.folder / "expected").write_bytes(expected)
    build = f"{' '.join(place.command(source, '--emit=ptx', output=out))} && cmp {out} {place.folder}/expected"
    remount = f"mount -o remount,ro {place.cache}"
    in_mount(place, "4m", f"set -e; {remount}; {build}; {build}")
    in_mount(place, "4m", f"set -e; {build}; {remount}; {build}; {build}")
    damage = f"for f in {place.cache}/*; do [ -s $f ] && printf damage | dd of=$f bs=1 seek=60 conv=notrunc status=none; done"
    in_mount(place, "4m", f"set -e; {build}; {damage}; {remount}; {build}; {build}")
    environment = place.environment(TILEC_CACHE="/proc/no-such-folder")   # which no user can make
    for _ in range(2):
        expect(ptx_of(place, source, environment=environment) == expected, "another result")


def damage(place):
    draw = random.Random(options.seed)
    source = variant(place, 0)
    expected = ptx_of(place, source)
    other = ptx_of(place, variant(place, 1))
    for number in range(30):
        for path in list(place.entries().values()):
            data = bytearray(path.read_bytes())
            kind = draw.randrange(4)
            if kind == 0:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del data[draw.randrange(len(data)):]
            elif kind == 2:
                data += bytes(draw.randrange(1, 100))
            else:
                data = bytearray(draw.choice(list(place.entries().values())).read_bytes())
            path.write_bytes(data)
        expect(ptx_of(place, source) == expected, f"another result after damage {number}")
        expect(ptx_of(place, variant(place, 1)) == other, f"another result after damage {number}")
    place.verify()


WARNED = """import "one.tile";
kernel fold(x: f32[M], y: out f32[W]) {
    grid (b in ONE) threads 1 { thread (t in 1) { for (i in M) y[i % W] = x[i]; } }
}
"""


def said_again(place):
    source = place.folder / "warned.tile"
    source.write_text(WARNED)
    (place.folder / "one.tile").write_text("const ONE = 1;\n")
    for words in ([], ["--diagnostics=json"], ["--color=always"], ["-R"], ["--target=sm_80,sm_90a"]):
        words = ["build", str(source), "--record=none", "--emit=ptx", "-o", str(place.folder / "said.ptx"), *words]
        def run(environment):
            return subprocess.run([str(options.tilec), *words], capture_output=True, env=environment, check=True).stderr
        said = run(place.environment(TILEC_CACHE="off"))
        expect(b"T0805" in said, "the warning is missing")
        for _ in range(2):
            expect((again := run(place.environment())) == said, f"{words}: said {again.decode()}\nin the place of {said.decode()}")
    before = len(place.largest())
    (place.folder / "one.tile").write_text("const ONE = 2;\n")
    expect(ptx_of(place, source) == uncached(place, source, "--emit=ptx")[0], "a changed import is not seen")
    expect(len(place.largest()) == before, "an entry is kept for an import that has changed")
    (place.folder / "one.tile").unlink()
    expect(place.build(source, "--emit=ptx")[0] == 1, "a missing import is not seen")


def looking_inside(place):
    source = variant(place, 0)
    plain = ptx_of(place, source)
    entries = place.entries()
    for words in (["-v"], ["--print-after=select"], ["--print-changed"], ["--time-passes"], ["--verify-each"],
                  [f"--dump-dir={place.folder}/dump"], ["--print-before=all"]):
        for _ in range(2):
            code, out, err = place.build(source, "--emit=ptx", *words)
            expect(code == 0 and out == plain, f"{words}: exit {code}")
            shown = err or list((place.folder / "dump").glob("*")) or words == ["--verify-each"]
            expect(shown, f"{words} shows nothing")
    for kind in ("tile", "llvm", "layouts"):
        expect(place.build(source, f"--emit={kind}")[0] == 0, f"--emit={kind}")
    expect(place.entries().keys() == entries.keys(), "something was stored")


def limit(place):
    environment = place.environment(TILEC_CACHE_SIZE="1")
    sources = [place.folder / f"many{number}.tile" for number in range(100 if options.kills >= 1000 else 20)]
    for number, source in enumerate(sources):   # of some 80 kB each
        source.write_text(f"// {number}\n" + "".join(
            f"kernel zero{k}(x: out f32[N]) {{ grid (b in N) threads 32 {{ x[b] = 0; }} }}\n" for k in range(100)))
    for source in sources:
        ptx_of(place, source, environment=environment)
        used = set(place.largest())
        ptx_of(place, sources[0], environment=environment)   # a hit each time, so it stays
        expect(set(place.largest()) == used, "the entry that is used most is gone")
        size = sum(path.stat().st_size for path in place.cache.iterdir())
        expect(size <= 1 << 20, f"{size} bytes")
    expect(size > 1 << 19 and 2 < len(place.largest()) < len(sources), f"{len(place.largest())} entries of {size} bytes are kept")
    place.verify()


def settings(place):
    def cache(word, **more):
        done = subprocess.run([options.tilec, "cache", word], capture_output=True, text=True, env=place.environment(**more))
        return done.returncode, done.stdout
    expect(cache("path") == (0, f"{place.cache}\n"), "path")
    expect(cache("path", TILEC_CACHE="off") == (0, "off\n"), "off")
    expect(cache("path", TILEC_CACHE="", XDG_CACHE_HOME="/x") == (0, "/x/tilec\n"), "XDG_CACHE_HOME")
    expect(cache("nothing")[0] == 2, "a word that is none")
    expect("entries  0" in cache("stat")[1], "stat of an empty folder")
    ptx_of(place, variant(place, 0))
    expect(re.search(r"entries  [1-9]", cache("stat")[1]), "stat")
    expect(cache("clear") == (0, ""), "clear")
    expect("entries  0" in cache("stat")[1], "stat of a cleared folder")
    for folder in ("/dev/null", "/dev/full/x", str(variant(place, 0)), "relative", "x" * 5000):
        environment = place.environment(TILEC_CACHE=folder)
        for _ in range(2):
            code, out, _ = place.build(variant(place, 0), "--emit=ptx", environment=environment, cwd=place.folder)
            expect(code == 0 and out, f"TILEC_CACHE={folder[:20]}: exit {code}")


CASES = [one_compile, kills, full_disk, read_only, damage, said_again, looking_inside, limit, settings]

parser = argparse.ArgumentParser()
parser.add_argument("tilec", type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("examples", type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("--processes", type=int, default=64)
parser.add_argument("--kills", type=int, default=1000)
parser.add_argument("--seed", default=os.environ.get("TILEC_TEST_SEED", "1"))
parser.add_argument("--only", default="")
options = parser.parse_args()
for case in CASES:
    current = case.__name__.replace("_", " ")
    if not re.search(options.only, current):
        continue
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        case(Place(folder))
        print(f"{current:16} {time.perf_counter() - started:6.1f} s", flush=True)
