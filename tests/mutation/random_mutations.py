#!/usr/bin/env python3
"""Random programs after the last pass, with one synchronising statement deleted or moved: the emulator names the kernel's place, or the
change is harmless in all orders.

    random_mutations.py TILEC [--seed 1] [--count 20 | --minutes 2] [--target sm_80 | sm_90a] [-j 1] [-v]

A program is one of tests/random, lowered; each variant that takes its arguments is tried by itself. A statement is deleted; it is moved
before the next one in front of it, and behind the next one that follows, which synchronises too or touches memory that is written.
Each mutant runs with several arguments: those of the program, other extents, and one multiprocessor (a persistent block has all tiles).

noticed     by kind and place: a race, a missing wait, a deadlock in the kernel that was changed. A wrong result alone is not enough,
            nor is a time-out
ordered     redundant for these arguments: nothing was reported, and under several seeds of the emulator (orders of threads, and of when
            copies land) the outputs are those of the interpreter (tests/oracle). Races are found by happens-before, which is the same
            in all orders; the seeds are what would show that it misses one
unreached   no thread executes the statement for any of the arguments
refused     the mutant is no program: a name is used before it is declared
unnoticed   a problem: an output differs or a program does not end where nothing was reported
"""
import collections
import itertools
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / folder) for folder in ("random", "oracle")]
import driver  # noqa: E402
import generator  # noqa: E402
import random_programs  # noqa: E402
from sync_mutations import KERNEL, SYNC, TEST  # noqa: E402

OUTCOMES = ["noticed", "ordered", "unreached", "refused", "unnoticed"]
TARGETS = ["sm_80", "sm_90a"]
SEEDS = [2, 3, 4]   # of the emulator, besides its own
# Of what is missing between two accesses or waits: races, reads of what is not there yet, deadlocks, phases, fences.
KINDS = {"T0701", "T0702", "T0704", "T0705", "T0708", "T0709", "T0723", "T0724", "T0725", "T0726", "T0727", "T0729", "T0730", "T0733", "T0734",
         "T0736", "T0737", "T0740", "T0745"}
ERROR = re.compile(r"^[^\n]*?:(\d+):\d+: (?:\S* )*?error\[(T\d+)\]", re.M)
CODE = re.compile(r"error\[(T\d+)\]")
BUFFER = re.compile(r"\bshared (\w+):|[(,]\s*(\w+): (?:out|inout) \w+\[")   # whose accesses need an order
INDENT = re.compile(r" *")


# ---- mutants ----

def indent(line):
    return INDENT.match(line).end()


def siblings(lines, at):
    """(first, last) lines of the statements of the block that line `at` is a statement of."""
    depth, first = indent(lines[at]), at
    while indent(lines[first - 1]) >= depth:
        first -= 1
    found, line = [], first
    while indent(lines[line]) >= depth:
        last = line
        while indent(lines[last + 1]) > depth or lines[last + 1][depth:depth + 1] == "}" and indent(lines[last + 1]) == depth:
            last += 1
        found.append((line, last))
        line = last + 1
    return found


def is_change(text, own, buffers):
    """Whether something of the statement can tell on which side of it `own` is executed."""
    others = any(match[1] != own for match in SYNC.finditer(text))
    return others or any(name in buffers for name in re.findall(r"\b(\w+)\[", text))


def moved(lines, at, own, step, buffers):
    """The lines with `at` on the other side of the next statement in that direction that matters; None: its block has none."""
    block = siblings(lines, at)
    place = next(i for i, (first, last) in enumerate(block) if first <= at <= last)
    if block[place] != (at, at):
        return None
    rest, others = lines[:at] + lines[at + 1:], block[place + 1:] if step > 0 else block[:place][::-1]
    for first, last in others:
        if is_change("\n".join(lines[first:last + 1]), own, buffers):
            to = last if step > 0 else first
            return "\n".join(rest[:to] + [lines[at]] + rest[to:])
    return None


def mutants(text, kernel):
    """(operation, what, mutant, a text that fails where the statement is executed) of each synchronising statement of a kernel."""
    lines, buffers = text.split("\n"), {a or b for a, b in BUFFER.findall(kernel.group(0))}
    for match in SYNC.finditer(text, kernel.start(), kernel.end()):
        at = text.count("\n", 0, match.start())
        before, after, title = text[:match.start()], text[match.end():], f"line {at + 1}: {match.group(0)}"
        changes = [("deleted", before + "{}" + after), ("moved", moved(lines, at, match[1], -1, buffers)),
                   ("moved", moved(lines, at, match[1], 1, buffers))]
        for what, mutant in changes:
            if mutant:
                yield f"{match[1]} {what}", f"{title} {what}", mutant, before + "assert(false);" + after


# ---- programs ----

def other_extents(text, number):
    """The program with number(value) for the dims of its test, but for those of what it has to write whole."""
    head = re.search(r"^test \w+ \(([^)]*)\)", text, re.M)
    kept = set(re.findall(r"\w+", " ".join(re.findall(r": out \w+\[([^]]*)\]", text))))
    other = [(name, int(value) if name in kept or name[0] != "D" else number(int(value)))
             for name, value in re.findall(r"(\w+) = (\d+)", head[1])]
    return text[:head.start(1)] + ", ".join(f"{name} = {value}" for name, value in other) + text[head.end(1):]


def arguments(text, rng):
    """Test and reference, of the program's arguments and of others."""
    others = (lambda value: rng.choice([value, value + 1, 2 * value + 1, 3, 9]), lambda value: rng.choice([6, 7]))
    for source in (text, *(other_extents(text, number) for number in others)):
        try:
            yield generator.PRELUDE + random_programs.references(source) + source[source.index("\ntest "):]
        except (random_programs.Open, random_programs.interpreter.Unsupported, random_programs.interpreter.Fault, SyntaxError):
            pass


def alone(text, kernel):
    """The text without the other variants of the kernel."""
    for other in reversed(list(KERNEL.finditer(text))):
        if other["name"] == kernel["name"] and other.start() != kernel.start():
            text = text[:other.start()] + text[other.end():]
    return text


class Trial:
    """One lowered program: `tails` are its arguments."""

    def __init__(self, options, folder, target):
        self.options, self.path, self.target, self.counts, self.problems = options, pathlib.Path(folder) / "program.tile", target, collections.Counter(), []

    def emulate(self, text, seed=1):
        self.path.write_text(text)
        command = [str(self.options.tilec), "test", "--passes=none", "--repro-dir=none", f"--target={self.target}", f"--seed={seed}", str(self.path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        except subprocess.TimeoutExpired:
            return None, "it does not end"
        return done.returncode, done.stdout + done.stderr

    def lowered(self, text):
        self.path.write_text(text + "reference f {}\n")
        done = subprocess.run([str(self.options.tilec), "opt", "--repro-dir=none", f"--target={self.target}", str(self.path)], capture_output=True, text=True)
        return "".join(TEST.sub("", done.stdout).split("reference f { }")) if done.returncode == 0 else None

    def inputs(self, text, tails):
        """(text, arguments) that pass as they are: those of the program, and with one multiprocessor."""
        texts = [(lambda t: t), (lambda t: re.sub(r"\bsms\(\)", "1", t))]
        return [(change, tail) for tail in tails for change in texts[:1 + ("sms()" in text)] if self.emulate(change(text) + tail)[0] == 0]

    def judged(self, mutant, inputs, lines):
        """noticed, refused, ordered or unnoticed; and what was said."""
        for change, tail in inputs:
            code, said = self.emulate(change(mutant) + tail)
            if code == 1 and any(kind in KINDS and int(line) in lines for line, kind in ERROR.findall(said)):
                return "noticed", CODE.findall(said)[0]
            if code != 0:
                refused = code is not None and "FAIL" not in said and not set(CODE.findall(said)) & KINDS
                return ("refused" if refused else "unnoticed"), said[-1500:]
        for seed, (change, tail) in itertools.product(SEEDS, inputs):
            code, said = self.emulate(change(mutant) + tail, seed)
            if code != 0:
                return "unnoticed", f"seed {seed}: {said[-1500:]}"
        return "ordered", ""

    def is_reached(self, probe, inputs):
        return any("T0706" in self.emulate(change(probe) + tail)[1] for change, tail in inputs)

    def attempt(self, operation, title, mutant, probe, inputs, lines):
        how, said = self.judged(mutant, inputs, lines)
        if how == "ordered" and not self.is_reached(probe, inputs):
            how = "unreached"
        self.counts[(how, operation)] += 1
        if how == "unnoticed":
            self.problems.append(f"{title}: {said}")
        if self.options.v:
            print(f"{title}: {how} {said if how == 'noticed' else ''}", flush=True)

    def kernel(self, text, name, tails, title):
        kernel = next(k for k in KERNEL.finditer(text) if k["name"] == name)
        inputs = self.inputs(text, tails)
        lines = range(text.count("\n", 0, kernel.start()) + 1, text.count("\n", 0, kernel.end()) + 2)
        for operation, what, mutant, probe in mutants(text, kernel) if inputs else ():
            self.attempt(operation, f"{title} {name} {what}", mutant, probe, inputs, lines)


def check(options, seed):
    """(counts, problems) of a program."""
    rng = random.Random(f"mutations {seed}")
    text = generator.Program(seed).text()
    target = options.target or rng.choice(TARGETS if "cluster (" not in text else TARGETS[1:])
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(options, folder, target)
        whole = trial.lowered(text)
        tails = list(arguments(text, rng)) if whole else []
        for kernel in KERNEL.finditer(whole) if tails else ():
            trial.kernel(alone(whole, kernel), kernel["name"], tails, f"seed {seed} {target}")
    return trial.counts, trial.problems


# ---- all ----

def summary(counts):
    for how in OUTCOMES:
        kinds = collections.Counter({kind: number for (outcome, kind), number in counts.items() if outcome == how})
        if kinds:
            print(f"{sum(kinds.values())} {how}: " + ", ".join(f"{number} {kind}" for kind, number in kinds.most_common()))


def main():
    parser = driver.parser(__doc__, 20, driver.seed_of_tests(), choices=TARGETS, help="default: by the seed")
    parser.add_argument("-v", action="store_true", help="says for each mutant what came of it")
    options = parser.parse_args()
    counts, problems = collections.Counter(), []
    for _, (found, wrong) in driver.results(options, check):
        counts.update(found)
        problems += wrong
    print("\n".join(problems))
    summary(counts)
    print(f"{driver.seeds_text(options)}: {sum(counts.values())} mutants, {len(problems)} problems")
    return 1 if problems or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
