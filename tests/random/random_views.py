#!/usr/bin/env python3
"""Random views of shared tiles as operands of products.

    random_views.py TILEC [--count 60] [--seed 1] [--target sm_90a]

A tile of two to four dims is seen as a matrix: its dims are split into digits, permuted, one of them taken at an index or with
a step, and joined. Each program is compared with its reference as written and after all passes, in a pipeline or before a product. The compiler
accepts each of them: the digits of the matrix are digits of the tile.
"""
import math
import pathlib
import random
import sys
import tempfile

import driver

TYPES = [("f16", "f32"), ("bf16", "f32"), ("i8", "i32"), ("f32", "f32")]
COLUMNS = 16


class Matrix:
    """Rows x columns as digits of a tile: (extent, number of the matrix's dim or None for what is taken at an index)."""

    def __init__(self, draw, rows, columns):
        split = lambda extent, most: self.split(draw, extent, most)
        digits = [(e, 0) for e in split(rows, 2)] + [(e, 1) for e in split(columns, 2)]   # slowest first, of each dim
        if draw.random() < 0.5:
            digits.append((draw.choice([2, 3]), None))
        self.digits, self.order = digits, draw.sample(range(len(digits)), len(digits))   # as they lie in the tile
        self.index = draw.randrange(3)
        cuts = sorted(draw.sample(range(1, len(digits)), min(len(digits) - 1, draw.randint(1, 3))))
        self.dims = [self.order[a:b] for a, b in zip([0] + cuts, cuts + [len(digits)])]
        self.shape = [math.prod(digits[d][0] for d in dim) for dim in self.dims]

    @staticmethod
    def split(draw, extent, most):
        pieces = []
        while len(pieces) + 1 < most and extent > 2 and draw.random() < 0.6:
            pieces.append(draw.choice([e for e in range(2, extent) if extent % e == 0]))
            extent //= pieces[-1]
        return pieces + [extent]

    def taken(self):
        return self.index % next((e for e, of in self.digits if of is None), 1)

    def view(self, name, rows, columns):
        """The matrix, of digits that are permuted into its order."""
        numbers = [self.order.index(d) for d in range(len(self.digits))]
        text = f"reshape({name}, {', '.join(str(self.digits[d][0]) for d in self.order)})"
        if numbers != sorted(numbers):
            text = f"permute({text}, {', '.join(map(str, numbers))})"
        if self.digits[-1][1] is None:
            text = f"{text}[{', '.join([':'] * (len(self.digits) - 1))}, {self.taken()}]"
        return f"reshape({text}, {rows}, {columns})"

    def place(self, row, column):
        """The tile's indices of an element, as text."""
        values, left = {}, [row, column]
        for d in reversed(range(len(self.digits))):
            extent, of = self.digits[d]
            if of is None:
                values[d] = str(self.taken())
                continue
            first = next(i for i, digit in enumerate(self.digits) if digit[1] == of) == d
            values[d] = f"({left[of]})" if first else f"({left[of]}) % {extent}"
            left[of] = f"({left[of]}) / {extent}"
        texts = []
        for dim in self.dims:
            text = "0"
            for d in dim:
                text = f"({text}) * {self.digits[d][0]} + {values[d]}"
            texts.append(text)
        return ", ".join(texts)


def program(seed):
    draw = random.Random(seed)
    element, sum_type = draw.choice(TYPES)
    m, k = draw.choice([16, 32, 64]), draw.choice([16, 32, 64])
    a, b = Matrix(draw, m, k), Matrix(draw, k, COLUMNS)
    dims = lambda matrix: ", ".join(map(str, matrix.shape))
    zeros = lambda matrix: ", ".join("0" for _ in matrix.shape)
    transposed = draw.random() < 0.3   # of the second one, [n, k]
    b = Matrix(draw, COLUMNS, k) if transposed else b
    right = b.view("u", COLUMNS, k) + ".T" if transposed else b.view("u", k, COLUMNS)
    where = b.place("j", "k") if transposed else b.place("k", "j")
    loop = "pipelined (n in N, stages = 2)" if draw.random() < 0.6 else "for (n in N)"
    name = f"v{seed}"
    fills = "\n".join(f"    for (n in N, {', '.join(f'i{d} in {e}' for d, e in enumerate(matrix.shape))}) "
                      f"{x}[n, {', '.join(f'i{d}' for d in range(len(matrix.shape)))}] = "
                      f"({' + '.join(f'i{d} * {7 + 3 * d}' for d in range(len(matrix.shape)))} + n) % 5 - 2;"
                      for x, matrix in (("x", a), ("w", b)))
    return f"""kernel {name}(x: {element}[N, {dims(a)}], w: {element}[N, {dims(b)}], y: out {sum_type}[{m}, {COLUMNS}]) {{
    grid (g in 1) threads 64 {{
        shared t: {element}[{dims(a)}], u: {element}[{dims(b)}];
        fragment sum: {sum_type}[{m}, {COLUMNS}];
        fill(sum, 0);
        {loop} {{
            copy(x[n, {zeros(a)}], t);
            copy(w[n, {zeros(b)}], u);
            gemm({a.view("t", m, k)}, {right}, sum);
        }}
        copy(sum, y);
    }}
}}
reference {name} {{
    for (i in {m}, j in {COLUMNS}) {{
        var s: f64 = 0;
        for (n in N, k in {k}) s += f64(x[n, {a.place("i", "k")}]) * f64(w[n, {where}]);
        y[i, j] = {sum_type}(s);
    }}
}}
test {name} (N = 3) {{
{fills}
}} tolerance 0;
"""


def check(options, seed):
    """What is wrong; ''."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "view.tile"
        path.write_text(program(seed))
        done = driver.emulated(options, path, "--emulate-each", "--roundtrip-each")
    fine = done.returncode == 0 and "\n1 passed" in "\n" + done.stdout
    return "" if fine else f"exit {done.returncode}\n{done.said[-2500:]}\n{program(seed)}"


def main():
    options = driver.parser(__doc__, 60).parse_args()
    right = bad = 0
    for seed, wrong in driver.results(options, check):
        right, bad = right + (not wrong), bad + bool(wrong)
        if wrong:
            print(f"seed {seed}: {wrong}", flush=True)
    print(f"{driver.seeds_text(options)}: {right} right, {bad} wrong")
    return 1 if bad or not right else 0


if __name__ == "__main__":
    sys.exit(main())
