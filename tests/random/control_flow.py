#!/usr/bin/env python3
"""Random control flow: lanes of a warp against a scalar loop.

    control_flow.py TILEC [--count 200] [--seed 1] [-- ARGUMENTS]      ARGUMENTS go to `tilec test`

Each program is one body of nested ifs, loops, breaks and lazy conditions over integers. A kernel runs it in 64 threads,
which diverge and meet again; the reference runs it for one t after the other, with nothing to diverge. Both must agree,
before any pass and after all.
"""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

PER_FILE = 20
PROGRAM = """kernel k{n}(N: i64, y: out i64[64, 2]) {{
  grid (b in 1) threads 64 {{
    shared q: i64[64, 8];
    thread (t in 64) {{
{body}
    }}
  }}
}}
reference k{n} {{
  local q: i64[64, 8];
  var total: i64 = 0;   // keeps the loop serial
  for (t in 64) {{
{body}
      total += 1;
  }}
}}
test k{n} (N = 5) tolerance 0;
"""
BEGIN = "for (z in 8) q[t, z] = z * 3 - t;\nvar m1: i64 = t;\nvar m2: i64 = 3;"
END = "y[t, 0] = m1;\ny[t, 1] = m2 + q[t, t & 7];"


class Generator:
    def __init__(self, rng):
        self.rng, self.names, self.lines = rng, 0, []

    def name(self):
        self.names += 1
        return f"v{self.names}"

    def emit(self, indent, text):
        self.lines.append("  " * indent + text)

    def expr(self, depth, names):
        rng = self.rng
        if depth == 0 or rng.random() < 0.3:
            return rng.choice(names) if rng.random() < 0.6 else f"i64({rng.randint(-5, 9)})"
        a, b, kind = self.expr(depth - 1, names), self.expr(depth - 1, names), rng.random()
        if kind < 0.5:
            return f"({a} {rng.choice('+-*&|^')} {b})"
        if kind < 0.6:
            return f"({a} {rng.choice('/%')} {rng.randint(1, 7)})"
        if kind < 0.7:
            return f"min({a}, {b})"
        if kind < 0.78:
            return f"({a} >> {rng.randint(0, 5)})"
        if kind < 0.86:
            return f"q[t, {a} & 7]"
        return f"({self.condition(depth - 1, names)} ? {self.expr(depth - 1, names)} : {b})"

    def condition(self, depth, names):
        if depth > 0 and self.rng.random() < 0.3:
            return f"({self.condition(depth - 1, names)} {self.rng.choice(['&&', '||'])} {self.condition(depth - 1, names)})"
        compare = self.rng.choice(["<", "<=", "==", "!=", ">"])
        return f"({self.expr(depth, names)} {compare} {self.expr(depth, names)})"

    def block(self, indent, names, mutable, depth, in_loop):
        names, mutable = list(names), list(mutable)
        for _ in range(self.rng.randint(1, 5)):
            self.statement(indent, names, mutable, depth, in_loop)

    def statement(self, indent, names, mutable, depth, in_loop):
        rng, kind, name = self.rng, self.rng.random(), self.name()
        if kind < 0.15:
            self.emit(indent, f"let {name} = {self.expr(2, names)};")
            names.append(name)
        elif kind < 0.25:
            self.emit(indent, f"var {name}: i64 = {self.expr(2, names)};")
            names.append(name)
            mutable.append(name)
        elif kind < 0.5:
            self.emit(indent, f"{rng.choice(mutable)} = {self.expr(2, names)};")
        elif kind < 0.58:
            self.emit(indent, f"q[t, {self.expr(1, names)} & 7] = {self.expr(2, names)};")
        elif kind < 0.76 and depth > 0:
            self.emit(indent, f"if ({self.condition(1, names)}) {{")
            self.block(indent + 1, names, mutable, depth - 1, in_loop)
            if rng.random() < 0.5:
                self.emit(indent, "} else {")
                self.block(indent + 1, names, mutable, depth - 1, in_loop)
            self.emit(indent, "}")
        elif kind < 0.88 and depth > 0:
            end = rng.randint(0, 5) if rng.random() < 0.5 else f"({self.expr(1, names)} & 7)"
            begin = f"{rng.randint(-2, 2)} .. " if rng.random() < 0.3 else ""
            self.emit(indent, f"for ({name} in {begin}{end}) {{")
            self.block(indent + 1, names + [name], mutable, depth - 1, True)
            self.emit(indent, "}")
        elif kind < 0.93 and depth > 0:
            self.emit(indent, f"var {name}: i64 = 0;")
            self.emit(indent, f"while ({name} < 6 && {self.condition(1, names)}) {{")
            self.emit(indent + 1, f"{name} = {name} + 1;")
            self.block(indent + 1, names + [name], mutable, depth - 1, True)
            self.emit(indent, "}")
        elif in_loop:
            self.emit(indent, f"if ({self.condition(1, names)}) break;")


def program(n, seed):
    generator = Generator(random.Random(seed))
    for line in BEGIN.split("\n"):
        generator.emit(3, line)
    names, mutable = ["t", "m1", "m2", "N"], ["m1", "m2"]
    for _ in range(6):
        generator.statement(3, names, mutable, 3, False)
    for line in END.split("\n"):
        generator.emit(3, line)
    return PROGRAM.format(n=n, body="\n".join(generator.lines))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tilec")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    ours, _, theirs = " ".join(sys.argv[1:]).partition(" -- ")
    args = parser.parse_args(ours.split())
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, args.count, PER_FILE):
            path = pathlib.Path(folder) / f"control{first}.tile"
            numbers = range(first, min(first + PER_FILE, args.count))
            path.write_text("\n".join(program(n, args.seed * 1000003 + n) for n in numbers))
            run = subprocess.run([args.tilec, "test", *theirs.split(), str(path)], capture_output=True, text=True)
            if run.returncode:
                failed += 1
                print(run.stdout[-4000:], run.stderr[-4000:], path.read_text(), sep="\n")
    print(f"{args.count} programs, {failed} files with failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
