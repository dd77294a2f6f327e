#!/usr/bin/env python3
"""What generated code computes, without a device: expressions of constants, which LLVM folds, against the interpreter of the manual.

    folded_code.py TILEC [--count 40] [--seed 1] [--keep FOLDER]

The emulator's last stage is the thread-level IR. Between it and PTX codegen writes conversions, divisions, packed pairs and arrays of
registers in its own way (docs/notebook/reliability.md), and LLVM rewrites them. Each kernel keeps constants in `local` arrays, where no
pass of ours looks, and stores expressions of them. Where only operations are left that LLVM knows, it has folded them: the PTX stores
a number. What it left to the machine (approximations, 8-bit conversions of the hardware) is counted, and not compared. All stores
are compared on the emulator, too.
"""
import collections
import pathlib
import random
import re
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import driver  # noqa: E402
import interpreter  # noqa: E402
import language  # noqa: E402
import programs  # noqa: E402
import random_programs  # noqa: E402
import values  # noqa: E402
from programs import FLOATS, FP8, NUMBERS  # noqa: E402

TARGETS = ["sm_80", "sm_89", "sm_90a", "sm_120a"]
OUTPUTS = 24   # of a kernel
SLOTS = 4      # of an array
SPECIAL = ["0.0", "-0.0", "1.0", "-1.0", "0.5", "2.5", "-3.5", "0.1", "448.0", "464.5", "-57345.0", "65519.0", "65520.0", "0x1p-14",
           "0x1p-24", "0x1.8p-25", "0x1p-133", "16777217.0", "1e-8", "3e38", "2147483648.0", "-9.3e18", "1e300", "inf", "-inf", "nan"]


class Kernel(programs.Expressions):
    closed = True

    def __init__(self, seed):
        super().__init__(seed)
        self.arrays, self.outputs = {}, []
        for _ in range(OUTPUTS):
            type_ = self.pick(NUMBERS + ["bool"])
            value = self.expression(type_, self.random.randint(1, 3), [1], ["t"])
            self.outputs.append((type_, f"ieee({value})" if type_ != "bool" else value))

    def integer(self, type_, more):
        """With what random programs have not: quotients rounded up of any size, abs of unsigned numbers, a b + c."""
        if self.chance(0.85):
            return super().integer(type_, more)
        most, kind, a = 2 ** (programs.WIDTH[type_] - 1) - 1, self.random.random(), more(type_)
        if kind < 0.4:
            a = a if type_[0] == "u" else f"max({a}, {type_}(0))"
            return f"ceildiv({a}, {type_}({self.pick([1, 2, 3, 100, most, most - 1])}))"
        return f"abs({a})" if kind < 0.7 else f"fma({a}, {more(type_)}, {more(type_)})"

    def leaf(self, type_, shape, names):
        if type_ not in self.arrays:
            self.arrays[type_] = [self.constant(type_) for _ in range(SLOTS)]
        return f"a_{type_}[{self.random.randrange(SLOTS)}]"

    def constant(self, type_):
        if type_ == "bool":
            return self.pick(["true", "false"])
        if type_ in FLOATS + FP8:
            text = self.pick(SPECIAL + [repr(self.random.uniform(-300, 300)) for _ in range(8)])
            return f"{type_}(f64({text}))"
        bits = programs.WIDTH[type_]
        value = self.pick([self.random.getrandbits(bits), self.random.getrandbits(min(bits, 8)), 0, 1, (1 << bits) - 1, 1 << bits - 1])
        return f"{type_}({value if value < 1 << 63 else value - (1 << 64)})"

    def text(self):
        params = ", ".join(f"y{i}: out {type_}[1]" for i, (type_, _) in enumerate(self.outputs))
        arrays = "\n".join(f"            local a_{t}: {t}[{SLOTS}];\n" + "\n".join(f"            a_{t}[{i}] = {v};" for i, v in enumerate(all_))
                           for t, all_ in self.arrays.items())
        stores = "\n".join(f"            y{i}[0] = {value};" for i, (_, value) in enumerate(self.outputs))
        return (f"kernel f({params}) {{\n    grid (g in 1) threads 32 {{\n        thread (t in 1) {{\n{arrays}\n{stores}\n"
                f"        }}\n    }}\n}}\ntest f () tolerance 0;\n")


# ---- what the PTX stores ----

PARAM = re.compile(r"ld\.param\.b64\s+(%rd\d+), \[f_param_(\d+)\];")
MOVE = re.compile(r"mov\.b(?:16|32|64)\s+(%\w+), (-?\w+);")
STORE = re.compile(r"st\.global\.b(\d+)\s+\[(%rd\d+)\], (-?[%\w]+);")


def bits_of(text, width):
    if text.startswith(("0f", "0d")):
        return int(text[2:], 16)
    return int(text, 0) & (1 << width) - 1


def stored(ptx):
    """{output: bits}, and the number of stores that are no constants."""
    params, moves, found, left = {}, {}, {}, 0
    for line in ptx.splitlines():
        if match := PARAM.search(line):
            params[match[1]] = int(match[2])
        elif match := MOVE.search(line):
            moves[match[1]] = match[2]
        elif match := STORE.search(line):
            width, value = int(match[1]), moves.get(match[3], match[3])
            if value.startswith("%"):
                left += 1
            else:
                found[params[match[2]]] = bits_of(value, width)
    return found, left


def same(bits, want, type_):
    got = values.decode(struct.pack("<Q", bits)[:values.BYTES[type_]], type_)
    if isinstance(want, float) and want != want:
        return got != got
    return values.encode(got, type_) == values.encode(want, type_)


def wanted(text):
    items = language.parse(text)
    test = next(item for item in items if item.kind == "test")
    machine = interpreter.Interpreter(items, {})
    func, arguments = interpreter.case(items, test, machine)
    machine.launch(func, arguments)
    return [arguments[p.name].cells[0] for p in func.params]


def check(options, seed):
    """(counts, what differs, as lines)"""
    kernel, counts, lines = Kernel(seed), collections.Counter(), []
    text = kernel.text()
    try:
        want = wanted(text)
    except interpreter.Unsupported:
        return {"open": 1}, []
    closed = not any(w is values.ANY or isinstance(w, values.Near) for w in want)
    target = options.target or random.Random(f"target {seed}").choice(TARGETS)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "folded.tile"
        path.write_text(text + (random_programs.references(text) if closed else ""))
        done = driver.tilec(options, "build", "--emit=ptx", f"--target={target}", path, "-o", "-")
        emulated = driver.tilec(options, "test", "--repro-dir=none", f"--target={target}", path) if closed else done
    if done.returncode:
        return {}, [f"exit {done.returncode}: {done.stderr[-2000:]}"]
    if emulated.returncode:
        lines.append(f"{target}, on the emulator: {emulated.said[-1500:]}")
    found, left = stored(done.stdout)
    counts.update(folded=len(found), left=left)
    for at, bits in sorted(found.items()):
        type_, value = kernel.outputs[at]
        if want[at] is values.ANY or isinstance(want[at], values.Near):
            counts["open"] += 1
        elif not same(bits, want[at], type_):
            lines.append(f"{target}: {type_} y{at} = {value}: the code stores {bits:#x}, the manual says {want[at]!r}")
    return counts, lines


def main():
    parser = driver.parser(__doc__, 40, choices=TARGETS, help="default: by the seed")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path("folded-code"))
    options = parser.parse_args()
    counts, failed = collections.Counter(), 0
    for seed, (found, lines) in driver.results(options, check):
        counts.update(found)
        if not lines:
            continue
        failed += 1
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / f"{seed}.tile").write_text(Kernel(seed).text())
        print(f"seed {seed}: {options.keep / f'{seed}.tile'}\n    " + "\n    ".join(lines), flush=True)
    print(f"{driver.seeds_text(options)}: {counts['folded']} stores folded, {counts['left']} left to the machine, "
          f"{counts['open']} open, {failed} kernels differ")
    few = counts["folded"] < 8 * options.count   # the test would look at little
    return 1 if failed or few else 0


if __name__ == "__main__":
    sys.exit(main())
