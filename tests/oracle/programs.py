"""Random kernels of the tile stage for the oracle: a few independent operations, each with tensors of its own.

Elementwise expressions see any bits (NaN, infinities, subnormals) and stand under ieee(), where the manual fixes each
result. Sums and products of floats see small integers, for which every order of summation gives the same bits.
"""
import random

INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
FLOATS = ["f16", "bf16", "f32", "f64"]
FP8 = ["e4m3", "e5m2"]
NEAR = ['exp', 'exp2', 'log', 'log2', 'tanh', 'sqrt', 'rsqrt', 'sin', 'cos']   # of f32, to within the manual's bounds
NUMBERS = INTEGERS + FLOATS + FP8
WIDTH = {"bool": 8, "i8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "i16": 16, "u16": 16, "f16": 16, "bf16": 16, "i32": 32,
         "u32": 32, "f32": 32, "i64": 64, "u64": 64, "f64": 64}


class Tensor:
    """A parameter. data: "bits" (anything), "small" (integers from -4 to 4), "spread" (floats of
    many magnitudes), "poison" (zeros that must be overwritten)."""

    def __init__(self, name, mode, type_, shape, data):
        self.name, self.mode, self.type, self.shape, self.data = name, mode, type_, shape, data


class Expressions:
    """Expressions of an exact type, whose leaves a subclass gives: leaf(type, shape, names) of an element for indices `names`.

    Where `closed`, no result is left open by the manual: a NaN becomes no integer, and its bits are not looked at."""
    closed = False

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = 0

    def pick(self, choices):
        return self.random.choice(choices)

    def chance(self, p):
        return self.random.random() < p

    def name(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def literal(self, type_):
        if type_ in FLOATS + FP8:
            return f"{type_}({self.pick(['0.0', '1.0', '-2.5', '0.1', '65519.0', '1e-8', '3e38', '-0.0', '448.0', '0x1p-14'])})"
        low, high = (0, 2 ** WIDTH[type_] - 1) if type_[0] == "u" else (-2 ** (WIDTH[type_] - 1), 2 ** (WIDTH[type_] - 1) - 1)
        value = self.pick([0, 1, 2, 3, 7, high, high - 1, high // 2, low])
        return f"{type_}({min(value, 2 ** 63 - 1)})" if value >= 0 else f"{type_}(-{-value - 1} - 1)"

    def expression(self, type_, depth, shape, names):
        if depth == 0 or self.chance(0.1):
            return self.leaf(type_, shape, names)
        more = lambda t: self.expression(t, depth - 1, shape, names)
        k = self.random.random()
        if k < 0.2:
            source = self.pick(NUMBERS + ["bool"])
            return f"{type_}({self.number(source, more(source)) if type_ in INTEGERS else more(source)})"
        if k < 0.27 and type_ != "bool":
            same = [t for t in NUMBERS if WIDTH[t] == WIDTH[type_] and t != type_]
            source = self.pick(same)
            return f"bitcast({type_}, {self.number(source, more(source))})"
        if k < 0.35:
            return f"({self.condition(depth - 1, shape, names)} ? {more(type_)} : {more(type_)})"
        if type_ == "bool":
            return self.condition(depth - 1, shape, names)
        if type_ in INTEGERS:
            return self.integer(type_, more)
        if type_ in ("f32", "f64"):
            return self.float(type_, more)
        return f"{type_}({self.float('f32', lambda t: more(self.pick([t, type_]) if type_ not in FP8 else t))})"

    def number(self, type_, value):
        """The value, without NaN where that is wanted: max takes the other operand."""
        lowest = {"e4m3": "-448.0", "e5m2": "-57344.0", "f16": "-65504.0"}.get(type_, "-3e38")
        return f"{type_}(max({value}, {lowest}))" if self.closed and type_ in FLOATS + FP8 else value

    def integer(self, type_, more):
        k = self.random.random()
        a = more(type_)
        if k < 0.35:
            narrow = [t for t in INTEGERS if t[0] == type_[0] and WIDTH[t] <= WIDTH[type_]]
            return f"({a} {self.pick('+-*&|^')} {more(self.pick(narrow))})"
        if k < 0.5:
            return f"({a} {self.pick(['<<', '>>'])} {self.random.randrange(WIDTH[type_])})"
        if k < 0.65:
            return f"({a} {self.pick('/%')} {type_}({self.pick([1, 2, 3, 5, 7, 10, 127])}))"
        if k < 0.8:
            return f"{self.pick(['min', 'max'])}({a}, {more(type_)})"
        if k < 0.9:
            return f"({self.pick('-~')}{a})" if type_[0] == "i" else f"(~{a})"
        return f"abs({a})" if type_[0] == "i" else f"({a} + 1)"

    def float(self, type_, more):
        k = self.random.random()
        a = more(type_)
        if k < 0.4:
            return f"({a} {self.pick('+-*/')} {more(type_)})"
        if k < 0.5:
            return f"{self.pick(['min', 'max'])}({a}, {more(type_)})"
        if k < 0.6:
            return f"fma({a}, {more(type_)}, {more(type_)})"
        if k < 0.85:
            return f"{self.pick(['abs', 'floor', 'ceil', 'round', 'sqrt', 'relu'])}({a})"
        if k < 0.92:
            return f"({a} {self.pick('+*-')} {self.pick(['2', '0.5', '3'])})"
        return f"(-{a})"

    def condition(self, depth, shape, names):
        type_ = self.pick(NUMBERS)
        if self.chance(0.2):
            first, second = self.comparison(type_, depth, shape, names), self.comparison(type_, depth, shape, names)
            return f"({first} {self.pick(['&&', '||'])} {second})"
        return self.comparison(type_, depth, shape, names)

    def comparison(self, type_, depth, shape, names):
        a, b = (self.expression(type_, max(depth - 1, 0), shape, names) for _ in range(2))
        return f"({a} {self.pick(['==', '!=', '<', '<=', '>', '>='])} {b})"


class Program(Expressions):

    def __init__(self, seed):
        super().__init__(seed)
        self.tensors, self.lines, self.items = [], [], []
        self.threads = self.pick([32, 64, 96, 128])
        steps = [self.elementwise, self.elementwise, self.elementwise, self.approximate, self.copy, self.copy, self.clipped, self.product,
                 self.reduction, self.scan, self.atomics, self.control, self.function, self.filled]
        for _ in range(self.random.randint(1, 4)):
            self.pick(steps)()

    # ---- pieces ----
    def extent(self, most=12):
        return self.pick([e for e in (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 32) if e <= most])

    def tensor(self, mode, type_, shape, data):
        tensor = Tensor(self.name("t"), mode, type_, shape, data)
        self.tensors.append(tensor)
        return tensor.name

    def input(self, type_, shape, data="bits"):
        return self.tensor("", type_, shape, data)

    def output(self, type_, shape):
        return self.tensor("out", type_, shape, "poison")

    def add(self, line):
        self.lines.append(line)

    def buffer(self, type_, shape, scope=None):
        name = self.name("b")
        self.add(f"{scope or self.pick(['shared', 'fragment'])} {name}: {type_}[{', '.join(map(str, shape))}];")
        return name

    def text(self):
        params = ", ".join(f"{t.name}: {t.mode} {t.type}[{', '.join(map(str, t.shape))}]" for t in self.tensors)
        body = "\n".join("        " + line for line in self.lines)
        return "\n".join(self.items) + f"""
kernel f({params}) {{
    grid (g in 1) threads {self.threads} {{
{body}
    }}
}}
"""

    def leaf(self, type_, shape, names):
        if self.chance(0.15):
            return self.literal(type_)
        if type_ in ("i64", "i32") and self.chance(0.1):
            return f"{type_}({self.pick(names)})"
        mine = [t for t in self.tensors if t.data == "bits" and t.type == type_ and t.shape == shape and not t.mode]
        name = self.pick(mine).name if mine and self.chance(0.7) else self.input(type_, shape)
        shifted = [f"{n} + {self.pick([-1, 1, 2])}" if self.chance(0.1) else n for n in names]
        return f"{name}[{', '.join(shifted)}]"

    # ---- steps ----
    def loop(self, shape):
        names = ["i", "j", "k"][:len(shape)]
        order = list(zip(names, shape))
        if self.chance(0.2):
            self.random.shuffle(order)
        return names, ", ".join(f"{n} in {e}" for n, e in order)

    def elementwise(self):
        shape = [self.extent() for _ in range(self.pick([1, 2, 2, 3]))]
        type_ = self.pick(NUMBERS + ["bool"])
        names, header = self.loop(shape)
        value = self.expression(type_, self.random.randint(1, 4), shape, names)
        value = f"ieee({value})" if type_ != "bool" else value
        self.add(f"parallel ({header}) {self.output(type_, shape)}[{', '.join(names)}] = {value};")

    def approximate(self):
        """A function or quotient of f32 by itself: the manual gives it to within some ulp."""
        shape = [self.extent() for _ in range(self.pick([1, 2]))]
        names, header = self.loop(shape)
        at = f"[{', '.join(names)}]"
        x, y = (self.input("f32", shape, self.pick(["spread", "spread", "bits"])) for _ in range(2))
        value = f"{x}{at} / {y}{at}" if self.chance(0.2) else f"{self.pick(NEAR)}({x}{at})"
        self.add(f"parallel ({header}) {self.output('f32', shape)}{at} = {value};")

    def copy(self):
        """A chain of copies with conversions, one perhaps transposed."""
        shape = [self.extent(17) for _ in range(self.pick([1, 2, 2, 2, 3]))]
        type_ = self.pick(NUMBERS + ["bool"])
        source = self.input(type_, [max(1, e + self.pick([0, 0, -1, 3])) for e in shape])
        corner = ", ".join(str(self.pick([0, 0, 1, -1, 2])) for _ in shape)
        here = self.buffer(self.pick([type_, self.pick(NUMBERS)]), shape)
        self.add(f"copy({source}[{corner}], {here});")
        for _ in range(self.random.randint(0, 2)):
            if len(shape) >= 2 and self.chance(0.4):
                shape = shape[:-2] + [shape[-1], shape[-2]]
                next_ = self.buffer(self.pick(NUMBERS), shape)
                self.add(self.pick([f"transpose({here}, {next_});", f"copy({here}.T, {next_});"]))
            else:
                next_ = self.buffer(self.pick(NUMBERS), shape)
                self.add(f"copy({here}, {next_});")
            here = next_
        self.add(f"copy({here}, {self.output(self.pick(NUMBERS), shape)}[{', '.join('0' for _ in shape)}]);")

    def clipped(self):
        """Regions whose extent is no constant, and parts of buffers."""
        rows, columns = self.extent(17), self.extent(17)
        type_ = self.pick(NUMBERS)
        source, limit = self.input(type_, [rows, columns]), self.tensor("", "i64", [1], self.random.randint(0, rows + 2))
        here = self.buffer(type_, [rows, columns])
        self.add(f"copy({source}[0 +: {limit}[0], 0 +: {columns}], {here});")
        slice_ = self.random.randint(1, rows), self.random.randint(1, columns)
        at = self.random.randint(0, rows - slice_[0]), self.random.randint(0, columns - slice_[1])
        shared = self.buffer(type_, [rows, columns], "shared")
        self.add(f"copy({here}, {shared});")
        self.add(f"fill({shared}[{at[0]} +: {slice_[0]}, {at[1]} +: {slice_[1]}], {self.pick(['0', '1', '3'])});")
        self.add(f"copy({shared}[{at[0]} +: {slice_[0]}, :], {self.output(type_, [slice_[0], columns])});")
        self.add(f"copy({shared}, {self.tensor('inout', type_, [rows, columns], 'small')}"
                 f"[0 +: {limit}[0], 0 +: {columns}]);")

    def filled(self):
        shape = [self.extent() for _ in range(self.pick([1, 2]))]
        type_ = self.pick(NUMBERS)
        here = self.buffer(type_, shape)
        self.add(f"fill({here}, {self.literal(self.pick([type_, self.pick(NUMBERS)]))});")
        self.add(f"copy({here}, {self.output(type_, shape)});")

    def small(self, type_, shape, scope=None):
        """A buffer of small integers."""
        here = self.buffer(type_, shape, scope)
        self.add(f"copy({self.input(type_, shape, 'small')}[{', '.join('0' for _ in shape)}], {here});")
        return here

    def product(self):
        m, n, k = self.extent(17), self.extent(17), self.extent(17)
        pairs = [("f16", "f16", "f32"), ("bf16", "bf16", "f32"), ("f32", "f32", "f32"), ("f64", "f64", "f64"),
                 ("i8", "i8", "i32"), ("u8", "u8", "i32"), ("e4m3", "e4m3", "f32"), ("e5m2", "e4m3", "f32"),
                 ("i8", "i8", "f32"), ("f16", "e4m3", "f32"), ("i32", "i32", "i32"), ("f16", "f16", "f16")]
        a_type, b_type, type_ = self.pick(pairs)
        a_transposed, b_transposed = self.chance(0.4), self.chance(0.4)
        a = self.small(a_type, [k, m] if a_transposed else [m, k], "shared") + (".T" if a_transposed else "")
        b = self.small(b_type, [n, k] if b_transposed else [k, n], "shared") + (".T" if b_transposed else "")
        acc = self.buffer(type_, [m, n], "fragment")
        self.add(f"fill({acc}, {self.pick([0, 1, 2])});")
        accumulate = self.pick(["", "", ", accumulate = false"])
        for _ in range(self.random.randint(1, 2)):
            self.add(f"gemm({a}, {b}, {acc}{accumulate});")
        self.add(f"copy({acc}, {self.output(type_, [m, n])});")

    def reduction(self):
        shape = [self.extent(17) for _ in range(self.pick([1, 2, 2, 3]))]
        op = self.pick(["sum", "max", "min", "prod", "any", "all"])
        type_ = self.pick({"any": ["bool"], "all": ["bool"], "prod": ["i32", "i64", "u16"]}.get(
            op, INTEGERS + FLOATS))
        here = self.small(type_, shape)
        axis = self.random.randrange(len(shape))
        rest = shape[:axis] + shape[axis + 1:] or [1]
        there = self.buffer(type_, rest)
        accumulate = self.chance(0.4)
        if accumulate:
            self.add(f"fill({there}, {'true' if type_ == 'bool' else self.pick([0, 1, 3])});")
        self.add(f"reduce_{op}({here}, {there}, axis = {axis}{', accumulate = true' if accumulate else ''});")
        self.add(f"copy({there}, {self.output(type_, rest)});")

    def scan(self):
        shape = [self.extent(17) for _ in range(self.pick([1, 2, 3]))]
        type_ = self.pick(["i32", "i64", "f32", "f64", "u32", "i16"])
        here = self.small(type_, shape)
        there = here if self.chance(0.3) else self.buffer(type_, shape)
        self.add(f"scan_{self.pick(['sum', 'max'])}({here}, {there}, axis = {self.random.randrange(len(shape))});")
        self.add(f"copy({there}, {self.output(type_, shape)});")

    def atomics(self):
        """Many iterations meet at few elements, in any order: operations that commute."""
        count, bins = self.extent(32), self.extent(5)
        op = self.pick(["add", "max", "min", "and", "or", "xor", "inc"])
        type_ = "u32" if op == "inc" else self.pick(["i32", "u32", "i64", "u64"] if op not in ("add",) else
                                                    ["i32", "u32", "u64", "f32", "f64"])
        place = self.tensor("inout", type_, [bins], "small")
        source = self.input(type_, [count], "small")
        value = "3" if op == "inc" else f"{source}[i]"
        index = self.pick([f"i % {bins}", "i", "i - 2", "i / 3"])
        self.add(f"parallel (i in {count}) atomic_{op}({place}[{index}], {value});")

    def control(self):
        """Loops, branches and variables of the CTA, in order."""
        count = self.extent(17)
        type_ = self.pick(INTEGERS + ["f32", "f16"])
        source, result, var = self.input(type_, [count], "small"), self.output(type_, [count]), self.name("v")
        self.add(f"var {var}: {type_} = {self.pick([0, 1, 5])};")
        self.add(f"for (i in {self.pick(['', '1 .. ', '0 .. '])}{count}{self.pick(['', ' step 2', ' step 3'])}) {{")
        self.add(f"    if ({source}[i] {self.pick(['>', '<', '==', '!='])} {self.pick([0, 1, 2])}) {var} "
                 f"{self.pick(['+=', '-=', '='])} {source}[i]; else {var} += {self.pick([1, 2])};")
        if self.chance(0.4):
            self.add(f"    if ({var} > {self.pick([3, 9])}) break;")
        self.add(f"    {result}[i] = {var};")
        self.add("}")
        self.add(f"while ({var} > {self.pick([1, 2, 4])}) {var} /= 2;")
        self.add(f"{self.output(type_, [1])}[0] = {var};")

    def function(self):
        """A fn with several returns, and a macro that calls it."""
        type_ = self.pick(INTEGERS + ["f32", "f64", "f16"])
        fn, macro = self.name("fn"), self.name("macro")
        self.items.append(f"fn {fn}(x: {type_}, y: {self.pick([type_, 'f32', 'i64'])}) -> {self.pick([type_, 'f32', 'i32'])} {{\n"
                          f"    if (x > {self.pick([0, 1])}) return y;\n    return {self.pick(['x', 'max(x, 1)', 'x * 2'])};\n}}")
        self.items.append(f"macro {macro}(b: {type_}[R, C], c: {type_}) {{\n"
                          f"    parallel (i in R, j in C) b[i, j] = {fn}(b[i, j], {self.pick(['c', 'i', '3'])});\n}}")
        shape = [self.extent(), self.extent()]
        here = self.small(type_, shape)
        self.add(f"{macro}({here}, {self.pick(['2', '1'])});")
        self.add(f"copy({here}, {self.output(type_, shape)});")
