#!/usr/bin/env python3
"""Random programs over the whole language, each compared at every stage with the interpreter of the manual (tests/oracle).

    random_programs.py TILEC [--count 100 | --minutes 5] [--seed 1] [--profile all] [--jobs 1] [--checks stages,targets,passes,rewrites]
    random_programs.py TILEC --check FILE [--checks ...] [--target ...]      one program: a file with kernels and a test, as it prints
    random_programs.py TILEC --write FOLDER [--count 2000] [--batch 25]      batches of programs and their code, through ptxas
    random_programs.py TILEC-GPU --compiled FOLDER                           runs those on the device

Checks of a program: all stages and texts on the emulator for one target (stages); after all passes for another one, with other
tunables (targets); without some passes (passes); another source of the same meaning (rewrites). A program that differs is kept (--keep),
made small by `tilec reduce`, and printed with its seed. Program N + 1 comes after N; --seed goes on anywhere.
"""
import collections
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import driver
import generator
import interpreter
import language
import rewrites
import values

TARGETS = ["sm_80", "sm_90a", "sm_120a", "sm_100a"]
CHECKS = ["stages", "targets", "passes", "rewrites"]
PASSES = pathlib.Path(__file__).resolve().parents[2] / "passes/passes.def"
PIPELINE = [name.replace("_", "-") for name in re.findall(r"^STEP\((\w+)\)", PASSES.read_text(), re.M)]
OPTIONAL = ["simplify", "swap-operands", "plan", "lazy-rescale", "warp-specialize", "software-pipeline", "hoist-guards", "peel-loops",
            "partial-reductions", "vectorize", "unroll", "hoist-divisions", "hoist-indices"]
CODE = re.compile(r"error\[(T\d+)\]")


class Open(Exception):
    """The manual leaves a result open."""


# ---- what the outputs are ----

def literal(value, type_):
    if value is values.ANY or isinstance(value, values.Near):
        raise Open
    if type_ == "bool":
        return str(bool(value)).lower()
    if isinstance(value, float):
        if type_ == "e5m2" and abs(value) == float("inf"):   # a conversion would saturate
            return f"bitcast(e5m2, u8({values.encode(value, type_)[0]}))"
        return f"f64({value.hex()})" if abs(value) < float("inf") else str(value)
    if value > 2 ** 63 - 1:
        return f"{type_}({value - 2 ** 64})"
    return str(value) if value > -2 ** 63 else f"(-{2 ** 63 - 1} - 1)"


def reference(name, buffers, before):
    """Stores of each element that is not as it was."""
    lines = []
    for buffer_name, buffer in buffers.items():
        places = interpreter.coordinates(buffer.shape)
        for place, value, old in zip(places, buffer.cells, before[buffer_name]):
            if value is None:
                raise interpreter.Fault(f"{buffer_name} is not written")
            if old is None or value is values.ANY or values.encode(value, buffer.type) != values.encode(old, buffer.type):
                lines.append(f"{buffer_name}[{', '.join(map(str, place))}] = {literal(value, buffer.type)};")
    return f"reference {name} {{\n" + "\n".join(lines) + "\n}\n"


def references(text):
    """Of each test, by the interpreter."""
    items = language.parse(text)
    found = []
    for test in (item for item in items if item.kind == "test"):
        machine = interpreter.Interpreter(items, {})
        machine.natives["hashed"] = generator.hashed
        func, arguments = interpreter.case(items, test, machine)
        written = {p.name: arguments[p.name] for p in func.params if p.mode}
        before = {name: list(buffer.cells) for name, buffer in written.items()}
        machine.launch(func, arguments)
        found.append(reference(test.name, written, before))
    return "\n".join(found)


# ---- one program ----

class Check:

    def __init__(self, options, seed, text, tunables=()):
        self.options, self.random, self.text = options, random.Random(f"check {seed}"), text
        self.tunables = dict(tunables)
        self.possible = [t for t in TARGETS if t != "sm_80" or "cluster (" not in text]
        self.target = options.target or self.random.choice(self.possible[:-1] * 3 + self.possible[-1:])

    def run(self, path, *given):
        """None, or (kind, what it says): differs, refused."""
        try:
            done = driver.tilec(self.options, "test", "--repro-dir=none", *given, path, timeout=self.options.timeout)
        except subprocess.TimeoutExpired:
            return "differs", "it does not end"
        if done.returncode == 0:
            return None
        codes = CODE.findall(done.said)
        wrong = done.returncode not in (1, 4) or not codes or any(c in WRONG or c.startswith("T07") for c in codes)
        return ("differs" if wrong else "refused"), f"{' '.join(given)}: exit {done.returncode}\n{done.said[-3000:]}"

    def stages(self, path, _):
        return self.run(path, "--emulate-each", "--roundtrip-each", "--verify-each", f"--target={self.target}")

    def targets(self, path, _):
        others = [t for t in self.possible if t != self.target]
        tuned = [f"-D{name}={self.random.choice(candidates)}" for name, candidates in self.tunables.items()]
        return self.run(path, f"--target={self.random.choice(others)}", f"--seed={self.random.randint(2, 99)}", *tuned)

    def passes(self, path, _):
        left_out = set(self.random.sample(OPTIONAL, self.random.randint(1, 3)))
        left_out.update(["plan"] if "warp-specialize" in left_out else [])   # which relies on the roles that are decided
        passes = [p for p in PIPELINE if p not in left_out]
        return self.run(path, f"--target={self.target}", f"--passes={','.join(passes)}")

    def rewrites(self, path, wanted):
        text = rewrites.rewritten(self.text, self.random)
        path = path.with_name("rewritten.tile")
        path.write_text(text + wanted)
        return self.run(path, f"--target={self.target}")

    def all(self, folder):
        """(kind, check, text): ok, open, invalid, refused or differs."""
        try:
            wanted = references(self.text)
        except Open:
            return "open", "", ""
        except interpreter.Unsupported as problem:
            return "open", "", str(problem)
        except (interpreter.Fault, SyntaxError) as problem:
            return "invalid", "", repr(problem)
        path = pathlib.Path(folder) / "program.tile"
        path.write_text(self.text + wanted)
        for check in self.options.checks:
            found = getattr(self, check)(path, wanted)
            if found:
                return found[0], check, found[1]
        return "ok", "", ""


# codes below T07xx that are a failure of tilec or of the comparison; T0714: no variant takes the arguments
WRONG = {"T0503", "T0504", "T0505", "T0506", "T0509"}


def check_seed(options, seed):
    program = generator.Program(seed, options.profile)
    text = program.text()
    check = Check(options, seed, text, program.tunables)
    with tempfile.TemporaryDirectory() as folder:
        kind, name, said = check.all(folder)
    return seed, kind, name, said, text, check.target


def reduced(options, path, name, target, said):
    """It fails after the same pass and by the same diagnostics: a barrier less is another failure."""
    same = [f"--match={match}" for match in dict.fromkeys(["^differs"] + re.findall(r"after pass '[a-z-]+'", said) + CODE.findall(said))]
    command = [str(options.tilec), "reduce", str(path), *same, "--timeout=60", "-j", "1", "--", sys.executable,
               __file__, str(options.tilec), "--check", "{}", "--checks", name, "--target", target]
    try:
        subprocess.run(command, capture_output=True, timeout=options.reduce_s)
    except subprocess.TimeoutExpired:
        pass
    small = path.with_suffix(".reduced.tile")
    return small.read_text() if small.exists() else ""


def report(options, found):
    """The program and all that was said about it are kept; the lines with an error are printed."""
    seed, kind, name, said, text, target = found
    options.keep.mkdir(parents=True, exist_ok=True)
    path = options.keep / f"{seed}.tile"
    path.write_text(text)
    path.with_suffix(".txt").write_text(f"{kind}, check {name}, target {target}: {said}\n")
    errors = [re.sub(r" \(\w+ = [^)]*\)", "", line)[:300] for line in said.splitlines() if "error[" in line or line.startswith("FAIL")]
    print(f"seed {seed} {kind}, check {name}, target {target}: " + "\n    ".join(errors[:4] or [said[-400:]]) + f"\n{path}", flush=True)
    if kind == "differs" and options.reduce_s:
        print(reduced(options, path, name, target, said), flush=True)


def many(options):
    counts, refusals, started, failed = collections.Counter(), collections.Counter(), time.monotonic(), []
    for seed, found in driver.results(options, check_seed):
        counts[found[1]] += 1
        wrong = found[1] in ("differs", "invalid")
        failed += [seed] * wrong
        if found[1] == "refused":
            refusals.update(set(CODE.findall(found[3])))
        if wrong or (found[1] == "refused" and options.verbose):
            report(options, found)
    if refusals:
        print("refused by: " + ", ".join(f"{code} {n}" for code, n in refusals.most_common()))
    print(f"{driver.seeds_text(options)}, {time.monotonic() - started:.0f} s: " + ", ".join(f"{n} {k}" for k, n in sorted(counts.items())) +
          (f"; failed: {','.join(map(str, failed))}" if failed else ""))
    return 1 if failed or not counts else 0


def one(options):
    check = Check(options, options.seed, options.check.read_text())
    with tempfile.TemporaryDirectory() as folder:
        kind, name, said = check.all(folder)
    print(f"{kind} {name} {said}")
    return 0 if kind == "ok" else 1


def accepted(options, seed, folder):
    """A program and its reference, if tilec takes it for the target."""
    program = generator.Program(seed, options.profile, f"f{seed}")
    check = Check(options, seed, program.text())
    try:
        wanted = references(check.text)
    except (Open, interpreter.Unsupported, interpreter.Fault):
        return None
    path = pathlib.Path(folder) / "program.tile"
    path.write_text(check.text + wanted)
    found = check.run(path, f"--target={options.target}") if options.target in check.possible else ("refused", "")
    return None if found else check.text.removeprefix(generator.PRELUDE) + wanted


def write(options):
    """Batches of programs that tilec accepts for the target."""
    options.write.mkdir(parents=True, exist_ok=True)
    options.target = options.target or "sm_90a"
    batch, seed, count, failed = [], options.seed, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        while count < options.count:
            text = accepted(options, seed, folder)
            seed += 1
            if not text:
                continue
            batch.append(text)
            count += 1
            if len(batch) == options.batch or count == options.count:
                path = options.write / f"random_{options.target}_{(count - 1) // options.batch:04d}.tile"
                path.write_text(generator.PRELUDE + "\n".join(batch))
                failed += not driver.compiled(options, path)
                batch = []
    print(f"seeds {options.seed} to {seed - 1}: {count} programs, {failed} batches that do not compile")
    return 1 if failed else 0


def main():
    parser = driver.parser(__doc__, 100, driver.seed_of_tests(), choices=TARGETS, help="of the check of all stages; default: by the seed")
    parser.add_argument("--profile", choices=list(generator.PROFILES), default="all")
    parser.add_argument("--checks", type=lambda text: text.split(","), default=CHECKS)
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path("random-programs"), help="folder for programs that differ")
    parser.add_argument("--timeout", type=int, default=300, help="seconds of one check")
    parser.add_argument("--reduce-s", type=int, default=600, help="seconds to make a program small; 0: does not")
    parser.add_argument("--verbose", action="store_true", help="prints refused programs too")
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--compiled", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=25)
    options = parser.parse_args()
    how = one if options.check else write if options.write else driver.on_device if options.compiled else many
    return how(options)


if __name__ == "__main__":
    sys.exit(main())
