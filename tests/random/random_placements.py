#!/usr/bin/env python3
"""Random programs in which layouts that are given meet: the compiler converts where enumeration finds that it costs least.

    random_placements.py TILEC [--count 40] [--seed 1] [--target sm_90a] [--verbose]

A program has two or three fragments whose layouts are given, and two to four between them without: loops over tiles, with
casts, some in a serial loop. For all of these, each combination of three layouts is written into the source; the compiler's own choice
must not have more clocks of conversions (`@clocks`, times the iterations around) than the best of all. Loops are long, so that none is
worth running for two layouts, and no layout of a tile replicates: conversions are the whole difference.
"""
import itertools
import pathlib
import random
import re
import sys
import tempfile

import driver

N = 16
# Of a tile [16, 16] over 64 threads: those of an accumulator, of rows in memory, of columns.
TILES = ["((4,8,2),(2,2)):((2@1,1@0,8@1),(1@1,8@0))", "((4,16),4):((4@1,1@0),1@1)", "((16,4),4):((1@0,4@1),1@1)"]


def long(value):
    text = f"-abs({value})"
    for _ in range(8):
        text = f"exp2({text})"
    return text


class Program:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.given = [("a%d" % i, layout) for i, layout in enumerate(self.rng.sample(TILES, self.rng.choice((2, 2, 3))))]
        self.free = []   # (name, type)
        self.statements = []
        for i in range(self.rng.randint(2, 4)):
            self.add_free(i)
        self.finish()

    def value(self, name):
        return f"f32({name}[i, j])"

    def add_free(self, i):
        names = [name for name, _ in self.given] + [free[0] for free in self.free]
        name, type_ = f"t{i}", self.rng.choice(("f32", "f32", "bf16"))
        operands = self.rng.sample(names, min(len(names), self.rng.choice((1, 1, 2))))
        if self.free and self.rng.random() < 0.7 and self.free[-1][0] not in operands:
            operands[0] = self.free[-1][0]
        terms = " + ".join(self.value(operand) for operand in operands)
        self.free.append((name, type_))
        self.statements.append((f"parallel (i in {N}, j in {N}) {name}[i, j] = {type_}({long(terms)});", False))

    def finish(self):
        """Given fragments take what there is, once or in a loop."""
        for name, _ in self.free:
            if name != self.free[-1][0] and self.rng.random() < 0.5:
                continue
            target = self.rng.choice(self.given)[0]
            self.statements.append((f"parallel (i in {N}, j in {N}) {target}[i, j] = {target}[i, j] * 0.5 + {self.value(name)};",
                                    self.rng.random() < 0.3))

    def body(self, layouts):
        lines = [f'fragment {name}: f32[{N}, {N}] layout "{layout}";' for name, layout in self.given]
        for (name, type_), layout in zip(self.free, layouts or [None] * len(self.free)):
            text = f' layout "{layout}"' if layout else ""
            lines.append(f"fragment {name}: {type_}[{N}, {N}]{text};")
        lines += [f"parallel (i in {N}, j in {N}) {name}[i, j] = {long(f'x[{i}, i, j]')};" for i, (name, _) in enumerate(self.given)]
        lines += [f"for (k in 3) {text}" if looped else text for text, looped in self.statements]
        return lines + [f"copy({name}, y[{i}, :, :]);" for i, (name, _) in enumerate(self.given)]

    def kernel(self, name, layouts):
        body = "\n        ".join(self.body(layouts))
        tensor = f"f32[{len(self.given)}, {N}, {N}]"
        return f"kernel {name}(x: {tensor}, y: out {tensor}) {{\n    grid (b in 1) threads 64 {{\n        {body}\n    }}\n}}\n"

    def choices(self):
        return list(itertools.product(TILES, repeat=len(self.free)))


def clocks(text):
    """Of all conversions of a kernel, times the iterations of the loops around."""
    total, times = 0, [1]
    for line in text.split("\n"):
        if "}" in line and line.strip().startswith("}"):
            times.pop()
        found = re.search(r"@clocks\((\d+)\)", line)
        trips = re.search(r"\bfor \(k in (\d+)\)", line)
        around = int(trips.group(1)) if trips else 1
        total += int(found.group(1)) * times[-1] * around if found else 0
        if line.rstrip().endswith("{") or re.search(r"\{\s*//", line):
            times.append(times[-1] * around)
    return total


def compiled(options, source):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "program.tile"
        path.write_text(source)
        done = driver.tilec(options, "opt", f"--target={options.target}", "--stop-after=stage-through-shared", path)
    if done.returncode:
        raise RuntimeError(done.stderr)
    costs = {}
    for block in re.split(r"(?m)^(?=@fallback|kernel )", done.stdout):
        head = re.search(r"^kernel (\w+)\(", block, re.M)
        if head and "@fallback" not in block:
            costs[head.group(1)] = clocks(block)
    return costs


def check(options, seed):
    """(the compiler's clocks, the best, text)"""
    program = Program(seed)
    choices = program.choices()
    source = program.kernel("own", None) + "".join(program.kernel(f"given_{i}", layouts) for i, layouts in enumerate(choices))
    costs = compiled(options, source)
    own = costs.pop("own")
    name = min(costs, key=costs.get)
    text = f"seed {seed}: {own} clocks, best of {len(choices)}: {costs[name]}, worst {max(costs.values())}"
    return own, costs[name], text + (f"\n{program.kernel('own', None)} {choices[int(name.split('_')[1])]}" if own > costs[name] else "")


def main():
    parser = driver.parser(__doc__, 40)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    best_of_all = worse = sums = 0
    for _, (own, best, text) in driver.results(options, check):
        sums, best_of_all, worse = sums + own, best_of_all + best, worse + (own > best)
        if options.verbose or own > best:
            print(text, flush=True)
    print(f"{driver.seeds_text(options)}, {sums} clocks of conversions; the best of all choices {best_of_all}; worse in {worse}")
    return 1 if worse or not sums else 0


if __name__ == "__main__":
    sys.exit(main())
