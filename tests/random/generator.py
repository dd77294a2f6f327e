"""Random programs over the whole language, valid by construction.

Program(seed).text() is kernels, perhaps a program of them, and a test without a reference: what the outputs are says the interpreter
of the manual (tests/oracle). A production adds statements; its weight is that of the profile. Buffers carry a bound: they hold whole
numbers up to it, for which every order of summation and each contraction gives the same bits. Those without a bound hold any bits, and are
computed with under ieee(), where the manual fixes each result.
"""
import math
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import programs  # noqa: E402
import channels  # noqa: E402
from programs import FLOATS, FP8, INTEGERS, NUMBERS  # noqa: E402

BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "e4m3": 4, "e5m2": 3}   # of the significand
LIMIT = {**{t: 2 ** bits for t, bits in BITS.items()}, "bool": 1,
         **{t: 2 ** (int(t[1:]) - (t[0] == "i")) - 1 for t in INTEGERS}}
EXACT_SUM, EXACT_BYTES = 2 ** 23, 2 ** 13   # below these, tensor cores sum whole numbers exactly (docs/reference/numerics.md); 8-bit floats
SMALL = 8          # bound of what is brought back near 0
MOST_ELEMENTS = 1500   # that a program computes, about
NAMES = ["i", "j", "k"]
PRELUDE = """fn hashed(n: i64) -> u32 {
    var h: u32 = u32(n) * 2654435761;
    h = (h ^ (h >> 15)) * 2246822519;
    return h ^ (h >> 13);
}
"""


def hashed(n):
    """The same for the interpreter, which is slow."""
    h = n * 2654435761 & 0xffffffff
    h = (h ^ h >> 15) * 2246822519 & 0xffffffff
    return h ^ h >> 13


PROFILES = {   # production -> weight; `threads` and so on are those of the kernel
    "all": {"elementwise": 6, "any_bits": 2, "copy": 4, "region": 2, "gather": 1, "input": 2, "reduce": 2, "scan": 1, "gemm": 1.5,
            "fill": 1, "loop": 2, "branch": 1, "scalar": 1, "while_loop": 0.5, "moved": 0.7, "within": 0.5, "function": 0.7, "macro": 0.7, "atomics": 0.7, "effect": 0.3,
            "asynchronous": 0.7, "lanes": 0.4, "tuned": 0.5, "chosen": 0.5},
    "tiles": {"elementwise": 5, "copy": 4, "region": 2, "input": 2, "reduce": 2, "scan": 1, "gemm": 1, "loop": 2, "branch": 1,
              "scalar": 1},
    "lanes": {"lanes": 1},
    "products": {"products": 1},
    "channels": {"elementwise": 3, "copy": 2, "input": 1, "reduce": 1, "scan": 0.5, "loop": 0.5, "branch": 0.5},
    "loops": {"loop": 4, "while_loop": 1, "branch": 2, "input": 1, "elementwise": 2, "reduce": 1, "asynchronous": 1, "gemm": 1, "scalar": 2, "copy": 1},
}


class Buffer:
    """name: scope type[shape]; whole numbers up to `bound`, or any bits (None)."""

    def __init__(self, name, scope, type_, shape, bound):
        self.name, self.scope, self.type, self.shape, self.bound = name, scope, type_, tuple(shape), bound


class Tensor:
    """A parameter; dims as they are written, and their values."""

    def __init__(self, name, mode, type_, dims, extents, bound, strides=None):
        self.name, self.mode, self.type, self.dims, self.extents = name, mode, type_, dims, extents
        self.bound, self.strides = bound, strides


class Kernel:
    """What has been written of one; `uses` are its parameters."""

    def __init__(self, name):
        self.name, self.lines, self.depth, self.uses, self.scalars, self.tunables = name, [], 2, [], [], []


class Program(programs.Expressions, channels.Channels):
    closed = True
    Buffer = Buffer

    def __init__(self, seed, profile="all", name="f"):
        super().__init__(seed)
        self.weights, self.title = PROFILES[profile], name
        self.with_channels = profile == "channels" or (profile == "all" and random.Random(f"channels {seed}").random() < 0.15)
        self.items, self.tensors, self.dims, self.tunables, self.kernels = [], [], {}, {}, []
        for _ in range(self.pick([1, 1, 1, 1, 2, 3]) if profile == "all" else 1):
            self.make_kernel()

    # ---- names and lines ----
    def add(self, line):
        self.kernel.lines.append("    " * self.kernel.depth + line)
        if self.in_role and self.barriers and (line[-1] in ";{" or line.startswith("parallel")) and not line.startswith(("shared", "fragment", "thread", "role", "barrier", "async")):
            self.add("barrier();")

    def dim(self, value):
        """A number, or a dim or scalar that the test binds to it."""
        if self.chance(0.5):
            return str(value)
        return self.bind(value)

    def bind(self, value):
        name = self.name("D")
        self.dims[name] = value
        self.kernel.scalars.append(name)
        return name

    def tensor(self, type_, extents, bound, mode="", dims=None):
        dims = dims or [self.dim(e) for e in extents]
        strides = None
        if len(dims) > 1 and self.chance(0.12):
            step = self.name("ld")
            self.dims[step] = math.prod(extents[1:]) + self.pick([0, 1, 8])
            strides = [step] + [str(math.prod(extents[d + 1:])) for d in range(1, len(dims))]
        dims = [self.bind(0) if d == "0" else d for d in dims]
        tensor = Tensor(self.name("T"), mode, type_, dims, list(extents), bound, strides)
        self.tensors.append(tensor)
        self.kernel.uses.append((tensor, mode))
        return tensor

    def buffer(self, type_=None, shape=None, scope=None, bound=SMALL, declare=True):
        scope, type_ = scope or self.pick(["shared", "fragment"]), type_ or self.type()
        shape = shape or self.shape()
        here = Buffer(self.name("sh" if scope == "shared" else "fr"), scope, type_, shape, bound)
        if declare:
            self.add(f"{scope} {here.name}: {type_}[{listed(shape)}];")
        self.buffers.append(here)
        return here

    def type(self):
        return self.pick(INTEGERS + FLOATS * 3 + FP8 + ["f32", "i32", "bool"])

    def extent(self):
        return self.pick([1, 2, 3, 4, 5, 7, 8, 8, 12, 16, 16, 16, 24, 32, 33])

    def shape(self):
        shape = [self.extent() for _ in range(self.pick([1, 2, 2, 2, 2, 3]))]
        while math.prod(shape) > 600:
            shape[self.random.randrange(len(shape))] = self.pick([1, 2, 4, 5])
        return tuple(shape)

    def some(self, accept=lambda b: True):
        fitting = [b for b in self.buffers if accept(b)]
        return self.pick(fitting) if fitting else None

    def spend(self, elements):
        self.spent += elements * self.repeats * self.blocks

    # ---- values ----
    def small(self, type_, text):
        """Of a whole number: one near 0."""
        if type_ == "bool":
            return f"bool({text})"
        return f"{type_}({'u32' if type_[0] == 'u' else 'i32'}({text}) % {SMALL + 1})" if type_ not in FP8 else f"{type_}(i32({text}) % 8)"

    def limit(self, type_):
        return LIMIT[type_]

    def fit(self, type_, text, bound, limit=None):
        limit = min(limit or LIMIT[type_], LIMIT[type_])
        return (text, bound) if bound <= limit else (self.small(type_, text), min(SMALL, limit))

    def cast(self, text, source, bound, type_):
        """A whole number in another type."""
        if source == type_:
            return text, bound
        if source[0] == "i" and type_[0] == "u" and type_ in INTEGERS:
            return f"{type_}({text})", LIMIT[type_]   # wraps
        if bound > LIMIT[type_] and (type_ not in INTEGERS or source not in INTEGERS):
            return self.small(type_, text), min(SMALL, LIMIT[type_])
        return f"{type_}({text})", min(bound, LIMIT[type_])

    def linear(self, its, shape):
        return " + ".join(f"{v} * {self.pick([1, 1, 3, 7])}" for v in its) or "0"

    def index_of(self, extent, its, shape, used, fragment):
        """An index below `extent` in a loop; None: there is none that a fragment takes."""
        fitting = [v for v, e in zip(its, shape) if (e == extent if fragment else e <= extent) and v not in used]
        if fragment:
            if fitting and self.chance(0.85):
                used.add(found := self.pick(fitting))
                return found
            return str(self.random.randrange(extent)) if extent <= 8 or not fitting else None
        kind = self.random.random()
        if fitting and kind < 0.6:
            used.add(found := self.pick(fitting))
            room = extent - shape[its.index(found)]
            return f"{found} + {self.random.randint(0, room)}" if room and self.chance(0.5) else (
                f"{extent - 1} - {found}" if self.chance(0.2) else found)
        if kind < 0.7:
            by = self.some(lambda b: b.scope == "shared" and b.type in INTEGERS and b.type[0] == "u" and b.bound is not None)
            if by and len(by.shape) == 1 and its and by.shape[0] >= shape[0]:
                return f"i64({by.name}[{its[0]}]) % {extent}" if by.type != "u64" else f"i64({by.name}[{its[0]}] % {extent})"
        if kind < 0.85 and its:
            return f"({self.linear(its, shape)}) % {extent}"
        return str(self.random.randrange(extent))

    def element(self, here, its, shape):
        used = set()
        indices = [self.index_of(e, its, shape, used, here.scope == "fragment") for e in here.shape]
        return None if None in indices else f"{here.name}[{', '.join(indices)}]"

    def whole_leaf(self, type_, its, shape):
        kind = self.random.random()
        if kind < 0.65 and self.buffers:
            here = self.some(lambda b: b.bound is not None)
            text = here and self.element(here, its, shape)
            if text:
                return self.cast(text, here.type, min(here.bound, LIMIT[here.type]), type_)
        if kind < 0.75 and self.variables:
            name, source, bound = self.pick(self.variables)
            return self.cast(name, source, bound, type_)
        if kind < 0.85 and its and type_ != "bool":
            at = self.random.randrange(len(its))
            return self.cast(its[at], "i64", shape[at], type_)
        if kind < 0.9 and self.scalar_names and type_ != "bool":
            return self.cast(self.pick(self.scalar_names), "i64", 64, type_)
        value = self.random.randint(0, min(5, LIMIT[type_]))
        return (self.pick(["true", "false"]) if type_ == "bool" else f"{type_}({value})"), value

    def whole(self, type_, its, shape, depth=2):
        """(expression of whole numbers of the type, their bound)."""
        if depth == 0 or self.chance(0.15):
            return self.whole_leaf(type_, its, shape)
        kind = self.random.random()
        if type_ == "bool":
            return self.comparison_of(its, shape, depth - 1), 1
        (a, x), (b, y) = self.whole(type_, its, shape, depth - 1), self.whole(type_, its, shape, depth - 1)
        if kind < 0.12:
            return f"({self.comparison_of(its, shape, depth - 1)} ? {a} : {b})", max(x, y)
        if kind < 0.24:
            return f"{self.pick(['min', 'max'])}({a}, {b})", max(x, y)
        if kind < 0.3 and self.functions:
            name, takes, gives = self.pick(self.functions)
            given, _ = self.fit(takes, *self.cast(a, type_, x, takes), SMALL)
            return self.cast(f"{name}({given})", gives, 2 * SMALL + 3, type_)
        if kind < 0.42 and type_ in INTEGERS:
            return f"({a} {self.pick('&|^')} {b})", LIMIT[type_]
        if kind < 0.5 and type_ in INTEGERS:
            return f"({a} {self.pick('/%')} {type_}({self.random.randint(1, 7)}))", x
        if kind < 0.56 and type_ in INTEGERS:
            # by an iterator: passes find amounts that are constant, also outside the width
            by = f"{self.pick(its)} + {self.random.randint(-1, 64)}" if its and self.chance(0.4) else self.random.randint(0, 5)
            return f"({a} {self.pick(['<<', '>>'])} {by})", LIMIT[type_]
        if kind < 0.62 and type_[0] != "u":
            return (f"abs({a})" if kind < 0.59 or type_ in FP8 else f"(-{a})"), LIMIT[type_] if type_ in INTEGERS else x
        if kind < 0.68 and type_ in FLOATS:
            call = self.pick(["floor", "ceil", "round", "relu"])
            return (f"{call}({a})", x) if type_ in ("f32", "f64") else (f"{type_}({call}({a}))", x)
        op = self.pick("++-*") if type_[0] != "u" else self.pick("++*")
        bound = x * y if op == "*" else x + y
        if type_ in INTEGERS:
            return f"({a} {op} {b})", min(bound, LIMIT[type_]) if type_[0] != "u" else LIMIT[type_]
        if bound > LIMIT[type_]:
            (a, x), (b, y) = self.fit(type_, a, x, 3 if type_ in FP8 else SMALL), self.fit(type_, b, y, 1)
            bound = max(x * y, x + y)
        return self.fit(type_, f"{type_}({a} {op} {b})" if BITS[type_] < 24 else f"({a} {op} {b})", bound)

    def comparison_of(self, its, shape, depth=1):
        kind = self.random.random()
        if its and kind < 0.4:
            return f"{self.pick(its)} {self.pick(['<', '>=', '==', '!='])} {self.random.randint(0, max(shape))}"
        if its and kind < 0.55:
            return f"({self.linear(its, shape)}) % {self.pick([2, 3, 4, 8])} == {self.pick([0, 1])}"
        if kind < 0.65 and depth > 0:
            return f"({self.comparison_of(its, shape, depth - 1)} {self.pick(['&&', '||'])} {self.comparison_of(its, shape, depth - 1)})"
        type_ = self.pick(["i32", "i64", "f32", "i16", "u8", "f16"])
        a, b = self.whole(type_, its, shape, max(depth, 0))[0], self.whole(type_, its, shape, 0)[0]
        return f"({a} {self.pick(['<', '<=', '==', '!=', '>', '>='])} {b})"

    def leaf(self, type_, shape, names):
        """Of an expression of any bits (programs.Expressions)."""
        here = self.some(lambda b: b.type == type_)
        text = here and self.chance(0.7) and self.element(here, names, shape)
        if text:
            return text
        if self.chance(0.5) or not names:
            return self.pick(["true", "false"]) if type_ == "bool" else self.literal(type_)
        return f"{self.tensor(type_, shape, None, dims=list(map(str, shape))).name}[{', '.join(names)}]"

    def value(self, here, its, shape, depth=2):
        """What may be stored into the buffer."""
        if here.bound is None:
            # a comparison by itself is no number: ieee takes none
            return f"ieee({self.expression(here.type, depth, shape, its)})" if here.type != "bool" else self.comparison_of(its, shape)
        return self.fit(here.type, *self.whole(here.type, its, shape, depth), here.bound)[0]

    # ---- kernels ----
    def make_kernel(self):
        self.kernel = Kernel(f"{self.title}_{len(self.kernels)}")
        self.kernels.append(self.kernel)
        self.buffers, self.variables, self.functions, self.scalar_names = [], [], [], []
        self.spent, self.repeats, self.blocks, self.in_role = 0, 1, 1, False
        self.threads = self.pick([32, 64, 128, 128, 256, 96])
        self.grid = [(name, self.pick([1, 1, 2, 3])) for name in self.pick([["g"], ["g"], ["g", "h"]])]
        self.grid = self.grid if self.chance(0.6) else [("g", 1)]
        self.blocks = math.prod(e for _, e in self.grid)
        self.scalar_names = [n for n, _ in self.grid]
        self.cluster = self.chance(0.06) and "exchange" or ""
        extents = [self.dim(e) for _, e in self.grid]
        if self.cluster:
            self.grid, extents, self.blocks, self.scalar_names = [("g", 4)], ["4"], 4, ["g"]
        if list(self.weights) == ["lanes"]:
            self.lanes()
        elif list(self.weights) == ["products"]:
            self.cluster = ""
            extents = self.products()
        elif self.with_channels and not self.cluster:
            self.channels()
        elif not self.cluster and self.chance(0.1) and len(self.weights) > 10:
            self.roles()
        elif not self.cluster and self.chance(0.05) and len(self.weights) > 10:
            extents = self.products()
        else:
            self.straight()
        options = self.pick([" persistent", " raster 2", " persistent raster 2", "", "", "", "", ""]) if not self.cluster else " cluster (2)"
        iters = ", ".join(f"{n} in {e}" for (n, _), e in zip(self.grid, extents))
        claim = "@claim(dynamic) " if not self.cluster and "persistent" not in options and self.chance(0.15) else ""
        self.kernel.head = f"    {claim}grid ({iters}) threads {self.threads}{options} {{"

    def straight(self):
        for _ in range(2):
            self.input()
        for _ in range(self.random.randint(3, 9)):
            self.statement()
        if self.cluster:
            self.exchange()
        for here in self.random.sample(self.buffers, min(3, len(self.buffers))):
            self.output(here)

    def statement(self):
        if self.spent > MOST_ELEMENTS:
            return
        names = list(self.weights)
        getattr(self, self.random.choices(names, [self.weights[n] for n in names])[0])()

    def nested(self, least=1, most=3):
        """Statements of a block of their own: their buffers end with it."""
        buffers, variables = list(self.buffers), list(self.variables)
        self.kernel.depth += 1
        for _ in range(self.random.randint(least, most)):
            self.statement()
        self.kernel.depth -= 1
        self.buffers, self.variables = buffers, variables

    # ---- productions: tiles to and from memory ----
    def source_of(self, type_, shape, bound):
        """(tensor, its corner) of a tile that may lie beyond the edges."""
        before = [t for k in self.kernels[:-1] for t, mode in k.uses if mode and t.type == type_ and len(t.extents) == len(shape)
                  and (t.bound is None) == (bound is None)]
        if before and self.chance(0.5):
            tensor = self.pick(before)
            if tensor not in [t for t, _ in self.kernel.uses]:
                self.kernel.uses.append((tensor, ""))
                return tensor, ["0"] * len(shape)
        lead = self.chance(0.25)
        extents = [max(1, e + self.pick([0, 0, -1, 3, 5, -e // 2, 8])) for e in shape]
        extents = ([self.grid[0][1]] if lead else []) + extents
        if self.chance(0.03):
            extents[-1] = 0
        tensor = self.tensor(type_, extents, bound)
        corner = ["g"] if lead else []
        for e, d in zip(extents[lead:], tensor.dims[lead:]):
            corner.append(self.pick(["0", "0", "0", "-2", "3", "8", f"g * {max(1, e // 2)}"] + ([] if d.isdigit() else [f"{d} - 2"])))
        return tensor, corner

    def input(self):
        any_bits = self.chance(0.25)
        here = self.buffer(bound=None if any_bits else SMALL)
        here.bound = here.bound and min(here.bound, LIMIT[here.type])
        tensor, corner = self.source_of(here.type, here.shape, here.bound)
        if tensor.bound is not None and tensor.bound > (here.bound or 0):
            here.bound = tensor.bound
        extra = len(tensor.dims) - len(here.shape)
        if self.chance(0.2) and not extra:
            m = self.bind(self.random.randint(0, here.shape[0] + 2))
            rest = [f"{c} +: {e}" for c, e in zip(corner[1:], here.shape[1:])]
            corner = [f"{corner[0]} +: {m if self.chance(0.7) else f'clip({m})'}"] + rest
        self.add(f"copy({tensor.name}[{', '.join(corner)}], {here.name});")
        self.spend(math.prod(here.shape))
        return here

    def gather(self):
        """Rows by an index that may be outside, in the form that pipelines too."""
        here = self.buffer(scope="shared", shape=(self.pick([4, 8, 16]), self.pick([8, 16, 32])))
        here.bound = min(SMALL, LIMIT[here.type])
        rows = self.pick([5, 8, 20])
        tensor = self.tensor(here.type, [rows, here.shape[1]], here.bound)
        where = self.tensor(self.pick(["i32", "i64", "i16"]), [here.shape[0]], SMALL, dims=[str(here.shape[0])])
        index = self.pick(["{0}[i]", "{0}[i] + 3", "i64({0}[i]) * 2"]).format(where.name)
        value = f"{tensor.name}[{index}, j]"
        if self.chance(0.3):
            value = f"{where.name}[i] > 0 ? {value} : {'false' if here.type == 'bool' else '0'}"
        self.add(f"parallel (i in {here.shape[0]}, j in {here.shape[1]}) {here.name}[i, j] = {value};")
        self.spend(math.prod(here.shape))

    def asynchronous(self):
        here = self.buffer(scope="shared", shape=(self.pick([4, 8, 16]), self.pick([8, 16, 32])), bound=SMALL)
        here.bound = min(SMALL, LIMIT[here.type])
        tensor, corner = self.source_of(here.type, here.shape, here.bound)
        here.bound = max(here.bound, tensor.bound)
        self.add(f"async copy({tensor.name}[{', '.join(corner)}], {here.name});")
        hidden, self.buffers = here, [b for b in self.buffers if b is not here]
        if self.chance(0.6):
            self.elementwise()
        self.buffers.append(hidden)
        self.add(f"await({here.name});")

    def output(self, here):
        """The buffer, as far as a tensor has room; each block has its own place."""
        lead = [e for _, e in self.grid] if self.blocks > 1 or self.chance(0.1) else []
        exact = self.chance(0.4)
        extents = lead + [max(1, e + (0 if exact else self.pick([0, 0, -1, 4]))) for e in here.shape]
        tensor = self.tensor(here.type, extents, here.bound, "out" if extents[len(lead):] == list(here.shape) else "inout")
        names = [n for n, _ in self.grid][:len(lead)]
        if self.chance(0.7) or len(here.shape) > 3:
            self.add(f"copy({here.name}, {tensor.name}[{', '.join(names + ['0'] * len(here.shape))}]);")
        else:
            its = NAMES[:len(here.shape)]
            loops = ", ".join(f"{v} in {e}" for v, e in zip(its, here.shape))
            self.add(f"parallel ({loops}) {tensor.name}[{', '.join(names + its)}] = {here.name}[{', '.join(its)}];")

    # ---- productions: tile operations ----
    def head(self, its, shape):
        order = list(zip(its, shape))
        if self.chance(0.3):
            self.random.shuffle(order)
        return ", ".join(f"{v} in {e}" for v, e in order)

    def elementwise(self, any_bits=False):
        """A parallel loop; an iteration may come back to what it has written."""
        fresh = not self.buffers or self.chance(0.5)
        here = self.some(lambda b: any_bits == (b.bound is None)) if not fresh else None
        fresh = here is None
        if fresh:
            here = self.buffer(bound=None if any_bits else SMALL)
            here.bound = None if any_bits else min(self.pick([SMALL, 100, 2 ** 20]), LIMIT[here.type])
        its, shape, at = NAMES[:len(here.shape)], list(here.shape), NAMES[:len(here.shape)]
        for d, e in enumerate(here.shape):
            if not fresh and here.scope == "shared" and e > 2 and self.chance(0.25):
                shape[d] = self.random.randrange(1, e)
                at[d] = f"{its[d]} + {self.random.randint(0, e - shape[d])}"
        own = f"{here.name}[{', '.join(at)}]"
        all_buffers, self.buffers = self.buffers, [b for b in self.buffers if b is not here]
        lines = self.body(here, own, its, shape, fresh)
        twin = self.some(lambda b: b.shape == here.shape and b.bound is not None and here.bound is not None)
        if twin and twin.name + "[" not in "".join(lines) and at == its and self.chance(0.2):
            lines.append(f"{twin.name}[{', '.join(its)}] = "
                         f"{self.fit(twin.type, *self.cast(own, here.type, here.bound, twin.type), twin.bound)[0]};")
        self.buffers = all_buffers
        self.add(f"parallel ({self.head(its, shape)}) {{ {' '.join(lines)} }}")
        self.spend(math.prod(shape) * len(lines))

    def body(self, here, own, its, shape, fresh):
        lines, variables = [], list(self.variables)
        if self.chance(0.3) and here.bound is not None:
            name, type_ = self.name("x"), self.pick([here.type, self.type()])
            text, bound = self.whole(type_, its, shape)
            lines.append(f"let {name} = {text};" if self.chance(0.6) else f"var {name}: {type_} = {text};")
            if BITS.get(type_, 99) >= 24:   # the value of a let of f16 may be that of f32
                self.variables.append((name, type_, bound))
        value = self.value(here, its, shape)
        if not fresh and here.bound is not None and here.type != "bool" and self.chance(0.4):
            value = self.fit(here.type, f"({own} + {value})", 2 * LIMIT[here.type], here.bound)[0]
        lines.append(f"{own} = {value};")
        if not fresh and self.chance(0.4):
            lines[-1] = f"if ({self.comparison_of(its, shape)}) {{ {lines[-1]} }}"
            if self.chance(0.3):
                lines[-1] += f" else {{ {own} = {self.value(here, its, shape)}; }}"
        self.variables = variables
        return lines

    def any_bits(self):
        self.elementwise(any_bits=True)

    def converted_bound(self, source, type_):
        """Of a copy to another type; 0: its values would not be whole numbers that both hold."""
        if source.bound is None:
            return None if type_ == source.type or (type_ in FLOATS + FP8 and source.type in FLOATS) else 0
        return LIMIT[type_] if type_ in INTEGERS and source.type in INTEGERS else source.bound if source.bound <= LIMIT[type_] else 0

    def copy(self):
        source = self.some()
        if not source:
            return
        type_ = self.pick([source.type, source.type, self.type()])
        bound = self.converted_bound(source, type_)
        if bound == 0 or (type_ == "bool") != (source.type == "bool"):
            type_, bound = source.type, source.bound
        transposed = len(source.shape) > 1 and self.chance(0.35)
        shape = source.shape[:-2] + source.shape[:-3:-1] if transposed else source.shape
        old = self.some(lambda b: b.shape == shape and b is not source and b.type == type_
                        and (b.bound is None if bound is None else b.bound is None or b.bound >= bound))
        if old and old.bound is None and bound is not None:
            old = None
        there = old if old and self.chance(0.4) else self.buffer(type_, shape, bound=bound)
        form = self.pick(["transpose({}, {});", "copy({}.T, {});"]) if transposed else "copy({}, {});"
        self.add(form.format(source.name, there.name))
        self.spend(math.prod(shape))

    def region(self):
        """A slice, or as many rows as a dim says, of either side."""
        source = self.some(lambda b: b.scope == "shared")
        if not source:
            return
        if self.chance(0.5):
            shape = tuple(self.random.randint(1, e) for e in source.shape)
            at = [self.random.randint(0, e - x) for e, x in zip(source.shape, shape)]
            there = self.buffer(source.type, shape, bound=source.bound)
            where = ", ".join(":" if x == e else f"{o} +: {x}" for o, x, e in zip(at, shape, source.shape))
            self.add(f"copy({source.name}[{where}], {there.name});")
            if self.chance(0.3) and source.bound is not None:
                self.add(f"fill({source.name}[{where}], {'true' if source.type == 'bool' else self.random.randint(0, 1)});")
        else:
            rows = self.bind(self.random.randint(0, source.shape[0] + 2))
            rows = f"min({rows}, {source.shape[0]})"
            there = self.buffer(source.type, source.shape, bound=source.bound)
            where = ", ".join([f"0 +: {rows}"] + [f"0 +: {e}" for e in source.shape[1:]])
            self.add(f"fill({there.name}, {'true' if source.type == 'bool' else 1});")
            first = self.chance(0.5)
            self.add(f"copy({source.name}[{where}], {there.name});" if first else f"copy({source.name}, {there.name}[{where}]);")
        self.spend(math.prod(source.shape))

    def moved(self):
        """From tensor to tensor, or a transposed one to a tile."""
        type_ = self.type()
        bound, rows, columns = min(SMALL, LIMIT[type_]), self.extent(), self.extent()
        tensor = self.tensor(type_, [columns, rows + self.pick([0, 0, 3])], bound)
        if self.chance(0.5):
            there = self.buffer(type_, (rows, columns), bound=bound)
            self.add(f"copy({tensor.name}{self.pick(['[0, 0].T', f'[0 +: {columns}, 0 +: {rows}].T'])}, {there.name});")
        elif not self.in_role and self.kernel.depth == 2:
            lead = [n for n, _ in self.grid]
            result = self.tensor(type_, [e for _, e in self.grid] + [columns, rows], bound, "out", None)
            at = "".join(f"{n}, " for n in lead)
            self.add(f"copy({tensor.name}[0 +: {columns}, 0 +: {rows}], {result.name}[{at}0 +: {columns}, 0 +: {rows}]);" if not lead else
                     f"copy({tensor.name}[0 +: {columns}, 0 +: {rows}], {result.name}[{at}:, :]);")
        self.spend(rows * columns)

    def within(self):
        """A tile moves within itself: sources are read before the destination is written."""
        here = self.some(lambda b: b.scope == "shared" and len(b.shape) == 2 and b.shape[0] > 1)
        if not here:
            return
        rows, columns = here.shape
        if rows == columns and self.chance(0.5):
            self.add(f"transpose({here.name}, {here.name});")
        else:
            size = self.random.randint(1, rows - 1)
            a, b = self.random.randint(0, rows - size), self.random.randint(0, rows - size)
            self.add(f"copy({here.name}[{a} +: {size}, :], {here.name}[{b} +: {size}, :]);")
        self.spend(rows * columns)

    def fill(self):
        here = self.buffer()
        here.bound = min(SMALL, LIMIT[here.type])
        value = "true" if here.type == "bool" else self.random.randint(0, min(here.bound, 5))
        if self.scalar_names and here.type != "bool" and self.chance(0.3):
            self.buffers.remove(here)
            value = self.fit(here.type, *self.whole(here.type, [], []), here.bound)[0]
            self.buffers.append(here)
        self.add(f"fill({here.name}, {value});")

    def view(self, here):
        """(text, shape) of an operand: a buffer as it is, transposed, or the first rows and columns of it."""
        text, shape = here.name, tuple(here.shape)
        if self.chance(0.15) and min(shape) > 1:
            shape = tuple(self.random.randint(1, e) for e in shape)
            text += "[" + ", ".join(f"0 +: {e}" for e in shape) + "]"
        if len(shape) > 1 and self.chance(0.25):
            text, shape = text + ".T", shape[:-2] + (shape[-1], shape[-2])
        return text, shape

    def result(self, type_, shape, bound):
        """(text, buffer) of a new destination of the shape: it may be one transposed."""
        transposed = len(shape) > 1 and self.chance(0.2)
        here = self.buffer(type_, tuple(shape[:-2]) + (shape[-1], shape[-2]) if transposed else shape, bound=bound)
        return here.name + (".T" if transposed else ""), here

    def reduce(self):
        op = self.pick(["sum", "sum", "max", "min", "prod", "any", "all"])
        types = {"any": ["bool"], "all": ["bool"], "prod": ["i32", "i64", "u16", "u32"]}.get(op, INTEGERS + FLOATS)
        source = self.some(lambda b: b.type in types and (op in ("max", "min") or b.bound is not None))
        if not source:
            return
        text, shape = self.view(source)
        axis = self.random.randrange(len(shape))
        bound = source.bound
        if op in ("sum", "prod"):
            bound = LIMIT[source.type] if source.type in INTEGERS else source.bound * (shape[axis] + 1)
            if bound > LIMIT[source.type]:
                return
        rest = shape[:axis] + shape[axis + 1:] or (1,)
        old = self.some(lambda b: b.shape == rest and b.type == source.type and b is not source and
                        (b.bound is None) == (bound is None) and (bound is None or bound <= b.bound or op == "sum" and b.bound + bound <= LIMIT[b.type]))
        accumulate = old is not None and self.chance(0.5)
        to, there = (old.name, old) if accumulate else self.result(source.type, rest, bound)
        self.add(f"reduce_{op}({text}, {to}, axis = {axis}{', accumulate = true' if accumulate else ''});")
        self.spend(math.prod(source.shape))
        if accumulate and op == "sum" and source.type not in INTEGERS:
            self.keep_small(there)

    def keep_small(self, here):
        its = NAMES[:len(here.shape)]
        own = f"{here.name}[{', '.join(its)}]"
        self.add(f"parallel ({self.head(its, here.shape)}) {own} = {self.small(here.type, own)};")

    def scan(self):
        op = self.pick(["sum", "max"])
        types = ["i32", "i64", "u32", "u64", "i16", "f32", "f64"]
        source = self.some(lambda b: b.type in types and b.bound is not None)
        if not source:
            return
        text, shape = self.view(source)
        axis = self.random.randrange(len(shape))
        bound = source.bound if op == "max" else LIMIT[source.type] if source.type in INTEGERS else source.bound * shape[axis]
        if bound > LIMIT[source.type]:
            return
        in_place = bound <= source.bound and self.chance(0.4)
        to = text if in_place else self.result(source.type, shape, bound)[0]
        self.add(f"scan_{op}({text}, {to}, axis = {axis});")
        self.spend(math.prod(source.shape) * 2)

    def operand(self, type_, rows, columns):
        """(text, bound) of a factor: a buffer as it is, its transposition, or a new one."""
        for shape, form in (((rows, columns), "{}"), ((columns, rows), "{}.T")):
            old = self.some(lambda b: b.shape == shape and b.type == type_ and b.bound is not None and b.bound <= 64 and
                            (form == "{}" or b.scope == "shared"))
            if old and self.chance(0.6):
                return form.format(old.name), old.bound
        transposed = self.chance(0.4)
        here = self.buffer(type_, (columns, rows) if transposed else (rows, columns), "shared" if transposed else None,
                           bound=min(SMALL, LIMIT[type_]))
        if self.chance(0.6):
            tensor = self.tensor(type_, list(here.shape), here.bound)
            self.add(f"copy({tensor.name}[0, 0], {here.name});")
        else:
            self.buffers.remove(here)
            self.add(f"parallel (i in {here.shape[0]}, j in {here.shape[1]}) {here.name}[i, j] = "
                     f"{self.value(here, ['i', 'j'], here.shape, 1)};")
            self.buffers.append(here)
        return here.name + (".T" if transposed else ""), here.bound

    def product_types(self):
        return self.pick([("f16", "f16", "f32"), ("f16", "f16", "f32"), ("bf16", "bf16", "f32"), ("f32", "f32", "f32"), ("f64", "f64", "f64"),
                          ("i8", "i8", "i32"), ("u8", "u8", "i32"), ("e4m3", "e4m3", "f32"), ("e5m2", "e4m3", "f32"),
                          ("f16", "e4m3", "f32"), ("i32", "i32", "i32"), ("f16", "f16", "f16")])

    def gemm(self):
        a_type, b_type, type_ = self.product_types()
        m, n, k = (self.pick([8, 16, 16, 32, 20, 7] + [64] * self.chance(0.1)) for _ in range(3))
        (a, x), (b, y) = self.operand(a_type, m, k), self.operand(b_type, k, n)
        bound = LIMIT[type_] if type_ in INTEGERS else x * y * k + SMALL
        if bound > min(LIMIT[type_], EXACT_BYTES if {a_type, b_type} <= {"e4m3", "e5m2"} else EXACT_SUM if type_ == "f32" else LIMIT[type_]):
            return
        transposed = self.chance(0.2)
        acc = self.buffer(type_, (n, m) if transposed else (m, n), "fragment", bound=bound)
        self.add(f"fill({acc.name}, {self.random.randint(0, 2)});")
        tf32 = ", precision = tf32" if a_type == b_type == "f32" and x <= 1024 and y <= 1024 and self.chance(0.5) else ""
        self.add(f"gemm({a}, {b}, {acc.name}{'.T' if transposed else ''}"
                 f"{self.pick(['', '', ', accumulate = false'])}{tf32});")
        self.spend(m * n * k // 16)

    # ---- productions: control ----
    def trips(self, most):
        count = self.random.randint(0, most)
        kind = self.random.random()
        if kind < 0.4:
            return str(count), count
        here = self.some(lambda b: b.scope == "shared" and b.type in INTEGERS and b.bound is not None)
        if kind < 0.6 and here:   # by what memory holds
            name = self.name("n")
            self.add(f"let {name} = i64({here.name}[{', '.join('0' for _ in here.shape)}]) & 3;")
            return name, 3
        if kind < 0.75:
            lens = self.tensor("i64", [self.grid[0][1]], None, dims=[str(self.grid[0][1])])
            lens.bound = 4
            return f"{lens.name}[g]", 4
        return self.bind(count), count

    def loop(self):
        """A loop, pipelined or not, that may bring a tile each time."""
        if self.kernel.depth > 4:
            return
        name, (trips, count) = self.name("n"), self.trips(5)
        kind = self.pick(["for", "for", "pipelined", "pipelined", "unroll"] if trips.isdigit() else ["for", "pipelined"])
        begin = f"{self.random.randint(-2, 2)} .. " if self.chance(0.15) and kind == "for" else ""
        self.add(f"{kind} ({name} in {begin}{trips}{f', stages = {self.random.randint(1, 4)}' if kind == 'pipelined' else ''}) {{")
        repeats, buffers, variables = self.repeats, list(self.buffers), list(self.variables)
        self.repeats *= max(count, 1)
        self.scalar_names.append(name)
        self.kernel.depth += 1
        if self.chance(0.7) and not begin:
            self.loaded(name, buffers)
        self.kernel.depth -= 1
        self.nested()
        if kind == "for" and self.chance(0.15):
            self.add(f"    if ({name} > 2) break;")
        self.scalar_names.remove(name)
        self.repeats, self.buffers, self.variables = repeats, buffers, variables
        self.add("}")

    def while_loop(self):
        """As long as a variable of the block says."""
        if self.kernel.depth > 3:
            return
        name, count = self.name("left"), self.random.randint(0, 4)
        self.add(f"var {name}: i64 = {self.bind(count)};")
        self.add(f"while ({name} > 0{self.pick(['', f' && {self.comparison_of([], [])}'])}) {{")
        repeats, self.repeats = self.repeats, self.repeats * max(count, 1)
        self.add(f"    {name} -= 1;")
        self.scalar_names.append(name)
        self.nested(1, 2)
        self.scalar_names.remove(name)
        self.repeats = repeats
        self.add("}")

    def loaded(self, name, outer):
        """A tile of a row of tiles, and its use."""
        rows, columns, type_ = self.pick([4, 8, 16, 32]), self.pick([8, 16, 32]), self.type()
        bound = min(SMALL, LIMIT[type_])
        tensor = self.tensor(type_, [self.pick([1, rows, rows * 3, rows * 2 - 1]), self.pick([columns, columns, columns - 1, columns + 8])], bound)
        here = self.buffer(type_, (rows, columns), "shared", bound=bound)
        self.add(f"copy({tensor.name}[{name} * {rows}, 0], {here.name});")
        self.spend(rows * columns)
        there = next((b for b in outer if b.shape == here.shape and b.bound is not None and b.type != "bool"), None)
        if there and type_ != "bool":
            added = self.cast(f"{here.name}[i, j]", type_, bound, there.type)[0]
            self.add(f"parallel (i in {rows}, j in {columns}) {there.name}[i, j] = "
                     f"{self.fit(there.type, f'({there.name}[i, j] + {added})', 2 * LIMIT[there.type], there.bound)[0]};")

    def branch(self):
        if self.kernel.depth > 4:
            return
        here = self.some(lambda b: b.bound is not None and b.type != "bool")
        if here and self.chance(0.5):
            condition = f"{here.name}[{', '.join('0' for _ in here.shape)}] > {here.type}(1)"
        else:
            condition = self.pick([f"{self.bind(self.random.randint(0, 2))} == 1", "g == 0", self.comparison_of([], [])])
        self.add(f"if ({condition}) {{")
        self.nested(1, 2)
        if self.chance(0.4):
            self.add("} else {")
            self.nested(1, 2)
        self.add("}")

    def scalar(self):
        """Scalars of the block: an element that all see, a variable, a store that happens once for the block."""
        kind, type_ = self.random.random(), self.pick(["i32", "i64", "f32", "u32", "i16", "u8"])
        if kind < 0.5 or not self.variables:
            text, bound = self.fit(type_, *self.whole(type_, [], []), 100)
            name = self.name("s")
            if kind < 0.25:
                self.add(f"let {name} = {text};")
                self.variables.append((name, type_, bound))
            else:
                self.add(f"var {name}: {type_} = {text};")
                self.variables.append((name, type_, 100))
            return
        here = self.some(lambda b: b.scope == "shared" and b.bound is not None)
        if here:
            place = f"{here.name}[{', '.join(str(self.random.randrange(e)) for e in here.shape)}]"
            self.add(f"{place} = {self.fit(here.type, *self.whole(here.type, [], []), here.bound)[0]};")

    def chosen(self):
        """A store of one iteration of each row, which no other thread of the row repeats; all read it."""
        type_, shape = self.pick(["f32", "i32", "f16", "i64", "u8"]), (self.pick([1, 4, 8, 16]), self.pick([3, 4, 8]))
        here = self.buffer(type_, shape[:1], "shared", bound=min(100, LIMIT[type_]))
        self.add(f"fill({here.name}, 1);")
        self.buffers.remove(here)
        which = self.pick([self.bind(self.random.randint(0, shape[1])), f"i % {shape[1]}", self.pick(self.scalar_names)])
        self.add(f"parallel (i in {shape[0]}, j in {shape[1]}) if (j == {which}) {here.name}[i] = {self.value(here, ['i', 'j'], shape)};")
        there = self.buffer(type_, shape, bound=here.bound)
        self.add(f"parallel (i in {shape[0]}, j in {shape[1]}) {there.name}[i, j] = {here.name}[i];")
        self.buffers.append(here)
        self.spend(math.prod(shape) * 2)

    def function(self):
        takes, gives = self.pick(["i32", "i64", "f32", "f64", "f16", "i8"]), self.pick(["i32", "f32", "i64", "f64"])
        name = self.name("fn")
        self.items.append(f"fn {name}_{self.title}(x: {takes}) -> {gives} {{\n    if (x > {self.pick([0, 1])}) return x;\n"
                          f"    let y = {self.pick(['x + x', 'max(x, 1)', 'x * 2', 'x - 3', 'abs(x)'])};\n    return y;\n}}")
        self.functions.append((f"{name}_{self.title}", takes, gives))

    def macro(self):
        """Of a buffer and a scalar, called for buffers of its type."""
        here = self.some(lambda b: len(b.shape) == 2 and b.bound is not None and b.type != "bool")
        if not here:
            return
        name = f"{self.name('macro')}_{self.title}"
        step = self.fit(here.type, f"(b[i, j] + {here.type}(c))", 2 * LIMIT[here.type], here.bound)[0]
        self.items.append(f"macro {name}(b: {self.pick([here.scope + ' ', ''])}{here.type}[R, C], c: i32) {{\n    const last = R - 1;\n"
                          f"    parallel (i in R, j in C) b[i, j] = {'i == last ? b[i, j] : ' if self.chance(0.4) else ''}{step};\n}}")
        for b in [b for b in self.buffers if len(b.shape) == 2 and b.type == here.type and b.bound == here.bound and b.scope == here.scope][:2]:
            self.add(f"{name}({b.name}, {self.random.randint(0, 3)});")
            self.spend(math.prod(b.shape))

    def atomics(self):
        """Iterations of all blocks meet at few elements, in any order: operations that commute."""
        count, bins = self.pick([7, 16, 32, 40]), self.random.randint(1, 5)
        op = self.pick(["add", "add", "max", "min", "and", "or", "xor", "inc"])
        type_ = "u32" if op == "inc" else self.pick(["i32", "u32", "i64", "u64"] if op != "add" else ["i32", "u32", "u64", "f32", "f64"])
        if self.repeats * count * self.blocks * SMALL > 2 ** 22:
            return
        shared = op == "add" and self.chance(0.3) and type_ in ("i32", "u32", "f32")
        if shared:
            place = self.buffer(type_, (bins,), "shared", bound=2 ** 24)
            self.add(f"fill({place.name}, 0);")
        else:
            place = self.tensor(type_, [bins], None, "inout", [str(bins)])
            place.bound = SMALL
        text = "3" if op == "inc" else self.fit(type_, *self.whole(type_, ["i"], [count]), SMALL)[0]
        if type_ in ("f32", "f64") and place.name + "[" in text:
            text = f"{type_}(1)"
        if shared and place.name + "[" in text:
            text = f"{type_}(i)"
        index = self.pick([f"i % {bins}", "0"] if shared else [f"i % {bins}", "i", "i - 2", "i / 3"])
        guard = f"if ({self.comparison_of(['i'], [count])}) " if self.chance(0.3) else ""
        if shared and place.name + "[" in guard:
            guard = ""
        self.add(f"parallel (i in {count}) {guard}atomic_{op}({place.name}[{index}], {text});")
        self.spend(count)

    def effect(self):
        """An atomic of the block, whose old value all threads see."""
        if self.blocks > 1 or self.in_role:
            return
        type_ = self.pick(["i32", "u32", "i64"])
        place = self.tensor(type_, [2], None, "inout", ["2"])
        place.bound = SMALL
        name = self.name("old")
        self.add(f"let {name} = atomic_{self.pick(['add', 'max', 'exch'])}({place.name}[{self.random.randint(0, 1)}], {type_}({self.random.randint(0, 3)}));")
        self.variables.append((name, type_, LIMIT[type_]))

    def tuned(self):
        """A loop over slices as high as a tunable says, which changes speed only."""
        if self.kernel.depth > 2 or self.in_role:
            return
        rows = self.pick([8, 12, 16, 24])
        tune = self.name("TUNE")
        candidates = self.random.sample([e for e in (2, 4, 8, 16) if rows % e == 0 or e < rows], 2)
        self.kernel.tunables.append(f"{tune} in {{{listed(candidates)}}}")
        self.tunables[tune] = candidates
        type_, columns = self.pick(["f32", "i32", "f16", "bf16"]), self.pick([8, 16])
        tensor = self.tensor(type_, [rows, columns], SMALL)
        result = self.tensor(type_, [e for _, e in self.grid] + [rows, columns], SMALL, "inout")
        slice_, count = self.name("sh"), self.pick([str(rows), tensor.dims[0]])
        self.add(f"{self.pick(['for', 'pipelined'])} (n in ceildiv({count}, {tune})) {{")
        self.add(f"    shared {slice_}: {type_}[{tune}, {columns}];")
        self.add(f"    copy({tensor.name}[n * {tune}, 0], {slice_});")
        self.add(f"    parallel (i in {tune}, j in {columns}) {slice_}[i, j] = {slice_}[i, j] + {self.random.randint(0, 3)};")
        self.add(f"    copy({slice_}, {result.name}[{', '.join([n for n, _ in self.grid] + [f'n * {tune}', '0'])}]);")
        self.add("}")
        result.bound = SMALL + 3
        self.spend(rows * columns * 2)

    # ---- kernels of another form ----
    def exchange(self):
        """Blocks of a cluster read each other's shared memory."""
        here = self.buffer(self.pick(["i32", "f32", "i64"]), (self.pick([4, 8, 16]),), "shared", bound=100)
        self.buffers.remove(here)
        self.add(f"parallel (i in {here.shape[0]}) {here.name}[i] = {self.value(here, ['i'], here.shape)};")
        there = self.buffer(here.type, here.shape, bound=200)
        self.buffers.append(here)
        self.add("cluster_barrier();")
        self.add(f"parallel (i in {here.shape[0]}) {there.name}[i] = {here.name}[i] + peer({here.name}[{self.pick(['i', f'{here.shape[0] - 1} - i'])}], "
                 f"{self.pick(['1 - cluster_rank()', '0', '1'])});")
        self.add("cluster_barrier();")

    def products(self):
        """Tiles of a product in a pipelined loop, with an epilogue: what real kernels are, and what is warp-specialized."""
        a_type, b_type, type_ = self.pick([("f16", "f16", "f32"), ("bf16", "bf16", "f32"), ("bf16", "bf16", "f32"), ("e4m3", "e4m3", "f32"),
                                           ("i8", "i8", "i32"), ("f32", "f32", "f32")])
        bm, bn, bk = self.pick([64, 64, 128, 32]), self.pick([16, 32, 64, 24]), self.pick([32, 64])
        m, n, k = (self.pick([tile, tile - 1, tile + 8, 8, 1]) for tile in (bm, bn, bk * self.pick([1, 2, 3])))
        rows, columns, depth = self.bind(m), self.bind(n), self.bind(k)
        self.threads, self.grid = self.pick([128, 128, 256]), [("g", -(-m // bm)), ("h", -(-n // bn))]
        operands = []
        for type_of, lines, tile, corner, extent in ((a_type, rows, bm, f"g * {bm}", m), (b_type, columns, bn, f"h * {bn}", n)):
            along = self.chance(0.6)   # k is the last dim
            order = lambda pair: pair if along else pair[::-1]
            tensor = self.tensor(type_of, order([extent, k]), 4, dims=order([lines, depth]))
            shape, more = order([tile, bk]), self.pick([0, 0, 0, 1, 5, 8])   # columns that nothing reads: rows begin off vectors
            here = self.buffer(type_of, [shape[0], shape[1] + more], "shared", bound=4)
            text = f"{here.name}[:, 0 +: {shape[1]}]" if more else here.name
            operands.append((text, f"copy({tensor.name}[{', '.join(order([corner, f'n * {bk}']))}], {text});", along))
        acc = self.buffer(type_, (bm, bn), "fragment", bound=LIMIT[type_] if type_ == "i32" else 16 * k)
        how = ", accumulate = n > 0" if self.chance(0.3) else ""
        if not how:
            self.add(f"fill({acc.name}, 0);")
        how += ", precision = tf32" if a_type == "f32" and self.chance(0.7) else ""
        self.add(f"pipelined (n in ceildiv({depth}, {bk}), stages = {self.random.randint(1, 4)}) {{")
        (a, load_a, a_along), (b, load_b, b_along) = operands
        self.add(f"    {load_a}")
        self.add(f"    {load_b}")
        self.add(f"    gemm({a}{'' if a_along else '.T'}, {b}{'.T' if b_along else ''}, {acc.name}{how});")
        self.add("}")
        self.buffers = [acc]
        if self.chance(0.5):
            self.keep_small(acc)
        stored = type_ if acc.bound > 256 and type_ != "i32" else self.pick([type_, "f32", "bf16"] if type_ != "i32" else ["i32", "i64"])
        result = self.tensor(stored, [m, n], None, "out", dims=[rows, columns])
        self.add(f"copy({acc.name}, {result.name}[g * {bm}, h * {bn}]);")
        return [f"ceildiv({rows}, {bm})", f"ceildiv({columns}, {bn})"]

    def roles(self):
        """Roles side by side, or a producer and a consumer with a ring of tiles between them."""
        self.in_role, self.barriers = True, self.chance(0.3)
        if self.chance(0.5):
            return self.ring()
        sizes = [self.pick([32, 64, 128]) for _ in range(2)]
        self.threads = sum(sizes)
        for size in sizes:
            self.buffers, self.variables = [], []
            self.add(f"role {self.name('r')} threads {size} {{")
            self.kernel.depth += 1
            self.straight()
            self.kernel.depth -= 1
            self.add("}")
        return None

    def ring(self):
        makes, uses, slots = self.pick([32, 64, 128]), self.pick([32, 64, 128]), self.random.randint(1, 3)
        self.threads = makes + uses
        type_, rows, columns = self.pick(["f16", "f32", "i32", "bf16", "i8"]), self.pick([4, 8, 16]), self.pick([8, 16, 32])
        trips, count = self.trips(5)
        tensor = self.tensor(type_, [max(1, count * rows - self.random.randint(0, 3)), columns], SMALL)
        tiles, full, empty = self.name("sh"), self.name("full"), self.name("empty")
        self.add(f"shared {tiles}: {type_}[{slots}, {rows}, {columns}], {full}: mbarrier[{slots}], {empty}: mbarrier[{slots}];")
        self.add(f"thread (t in {self.threads}) {{ if (t == 0) {{ for (s in {slots}) {{ mbarrier_init({full}[s], {makes}); "
                 f"mbarrier_init({empty}[s], {uses}); }} fence_mbarrier_init(); }} barrier(); }}")
        self.in_role = False
        self.add(f"role load threads {makes} {{ for (n in {trips}) {{ let slot = n % {slots};")
        self.add(f"    thread (t in {makes}) {{ mbarrier_wait({empty}[slot], (n / {slots} + 1) % 2); }}")
        self.add(f"    copy({tensor.name}[n * {rows}, 0], {tiles}[slot, :, :]);")
        self.add(f"    thread (t in {makes}) {{ mbarrier_arrive({full}[slot]); }}")
        self.add("} }")
        self.add(f"role use threads {uses} {{")
        self.kernel.depth, self.in_role = self.kernel.depth + 1, True
        total = self.buffer("f32" if type_ != "i32" else "i32", (rows, columns), bound=100)
        self.add(f"fill({total.name}, 0);")
        self.add(f"for (n in {trips}) {{ let slot = n % {slots};")
        self.add(f"    thread (t in {uses}) {{ mbarrier_wait({full}[slot], n / {slots} % 2); }}")
        self.add(f"    parallel (i in {rows}, j in {columns}) {total.name}[i, j] = {total.name}[i, j] + {tiles}[slot, {self.pick(['i', f'{rows - 1} - i'])}, j];")
        self.add(f"    thread (t in {uses}) {{ mbarrier_arrive({empty}[slot]); }}")
        self.add("}")
        self.straight()
        self.output(total)
        self.kernel.depth -= 1
        self.add("}")

    def lanes(self):
        """Divergent control flow of threads over integers: nested ifs, loops, breaks, lazy conditions."""
        if self.kernel.depth > 2 or self.in_role or self.spent > MOST_ELEMENTS / 3:
            return
        count = self.threads
        here = self.buffer("i64", (count, 8), "shared", bound=LIMIT["i64"])
        self.buffers.remove(here)
        flow = Lanes(self, here.name, count)
        self.add(f"thread (t in {count}) {{")
        flow.write()
        self.add("}")
        self.spend(count * 60)
        self.buffers.append(here)
        if len(self.weights) == 1:
            self.output(here)

    # ---- the whole text ----
    def bind_list(self):
        return ", ".join(f"{n} = {v}" for n, v in self.dims.items())

    def filling(self, tensor):
        its = [f"i{d}" for d in range(len(tensor.dims))]
        loops = ", ".join(f"{v} in {d}" for v, d in zip(its, tensor.dims))
        at, place = " + ".join(f"{v} * {self.pick([1, 3, 5, 7, 11])}" for v in its), f"{tensor.name}[{', '.join(its)}]"
        flat = its[0]
        for v, d in zip(its[1:], tensor.extents[1:]):
            flat = f"({flat} * {d} + {v})"
        key, type_ = self.random.randrange(10 ** 6), tensor.type
        if type_ == "bool":
            value = f"({at}) % {self.pick([2, 3, 5])} == 0"
        elif tensor.bound is not None:
            size = min(tensor.bound, 4)
            value = f"{type_}(({at} + {self.random.randrange(9)}) % {size + 1 + (size if type_[0] != 'u' else 0)}{f' - {size}' if type_[0] != 'u' else ''})"
        else:
            value = {8: f"u8(hashed({flat} + {key}))", 16: f"u16(hashed({flat} + {key}))", 32: f"hashed({flat} + {key})",
                     64: f"(u64(hashed({flat} + {key})) << 32 | u64(hashed({flat} + {key + 99991})))"}[programs.WIDTH[type_]]
            value = f"bitcast({type_}, {value})"
            if type_ in FLOATS + FP8:
                value = f"hashed({flat} + {key + 7}) % 3 == 0 ? {type_}(({at}) % 9 - 4) : {value}"
        return f"    for ({loops}) {place} = {value};"

    def parameters(self, uses, scalars):
        text = [f"{t.name}: {mode + ' ' if mode else ''}{t.type}[{', '.join(t.dims)}]"
                + (f" strides [{', '.join(t.strides)}]" if t.strides else "") for t, mode in uses]
        known = {d for t, _ in uses for d in t.dims}
        return ", ".join(text + [f"{s}: i64" for s in scalars if s not in known])

    def kernel_text(self, kernel):
        """Its parameters are what it uses; dims that no shape of its own gives are scalars."""
        named = {d for t, _ in kernel.uses for d in t.dims + (t.strides or []) if not d.isdigit()}
        scalars = [s for s in dict.fromkeys(kernel.scalars) if s not in named]
        kernel.uses = list({t.name: (t, m) for t, m in sorted(kernel.uses, key=lambda u: bool(u[1]))}.values())
        tune = f"    tune {', '.join(kernel.tunables)};\n" if kernel.tunables else ""
        title = kernel.name if len(self.kernels) > 1 else self.title
        kernel.call = ", ".join([t.name for t, _ in kernel.uses] + scalars)
        return (f"kernel {title}({self.parameters(kernel.uses, scalars)}) {{\n{tune}{kernel.head}\n" + "\n".join(kernel.lines) +
                "\n    }\n}\n")

    def launching(self):
        """A program of several kernels."""
        modes = {}
        for t, mode in [use for k in self.kernels for use in k.uses]:
            modes[t.name] = (t, modes.get(t.name, (t, ""))[1] or mode)
        scalars = dict.fromkeys(s for k in self.kernels for s in k.scalars)
        calls = "\n".join(f"    {k.name}({k.call});" for k in self.kernels)
        return f"program {self.title}({self.parameters(list(modes.values()), scalars)}) {{\n{calls}\n}}\n"

    def text(self):
        kernels = "\n".join(map(self.kernel_text, self.kernels))
        whole = self.launching() if len(self.kernels) > 1 else ""
        fills = "\n".join(self.filling(t) for t in self.tensors if t.mode != "out")
        return ("\n".join([PRELUDE] + self.items) + f"\n{kernels}\n{whole}"
                f"test {self.title} ({self.bind_list()}) {{\n{fills}\n}} tolerance 0;\n")


class Lanes:
    """The body of a thread region, over integers of the thread and a row of its own."""

    def __init__(self, program, row, count):
        self.program, self.row, self.random = program, row, program.random

    def emit(self, text):
        self.program.add(text)

    def write(self):
        self.program.kernel.depth += 1
        for line in (f"for (z in 8) {self.row}[t, z] = z * 3 - t;", "var m1: i64 = t;", "var m2: i64 = 3;"):
            self.emit(line)
        names, variables = ["t", "m1", "m2"] + [s for s in self.program.scalar_names], ["m1", "m2"]
        for _ in range(5):
            self.statement(names, variables, 3, False)
        self.emit(f"{self.row}[t, 0] = m1;")
        self.emit(f"{self.row}[t, 1] = m2 + {self.row}[t, t & 7];")
        self.program.kernel.depth -= 1

    def value(self, depth, names):
        if depth == 0 or self.random.random() < 0.3:
            return self.random.choice(names) if self.random.random() < 0.6 else f"i64({self.random.randint(-5, 9)})"
        kind = self.random.random()
        if kind < 0.15:
            return f"{self.row}[t, {self.value(depth - 1, names)} & 7]"
        if kind < 0.25:
            return f"({self.condition(depth - 1, names)} ? {self.value(depth - 1, names)} : {self.value(depth - 1, names)})"
        return self.program.integer("i64", lambda type_: self.value(depth - 1, names) if type_ == "i64" else
                                    f"{type_}({self.value(depth - 1, names)})")

    def condition(self, depth, names):
        if depth > 0 and self.random.random() < 0.3:
            return f"({self.condition(depth - 1, names)} {self.random.choice(['&&', '||'])} {self.condition(depth - 1, names)})"
        return f"({self.value(depth, names)} {self.random.choice(['<', '<=', '==', '!=', '>'])} {self.value(depth, names)})"

    def block(self, names, variables, depth, in_loop):
        names, variables = list(names), list(variables)
        self.program.kernel.depth += 1
        for _ in range(self.random.randint(1, 4)):
            self.statement(names, variables, depth, in_loop)
        self.program.kernel.depth -= 1

    def statement(self, names, variables, depth, in_loop):
        kind, name = self.random.random(), self.program.name("v")
        if kind < 0.15:
            self.emit(f"let {name} = {self.value(2, names)};")
            names.append(name)
        elif kind < 0.25:
            self.emit(f"var {name}: i64 = {self.value(2, names)};")
            names.append(name)
            variables.append(name)
        elif kind < 0.5:
            self.emit(f"{self.random.choice(variables)} = {self.value(2, names)};")
        elif kind < 0.58:
            self.emit(f"{self.row}[t, {self.value(1, names)} & 7] = {self.value(2, names)};")
        elif kind < 0.76 and depth > 0:
            self.emit(f"if ({self.condition(1, names)}) {{")
            self.block(names, variables, depth - 1, in_loop)
            if self.random.random() < 0.5:
                self.emit("} else {")
                self.block(names, variables, depth - 1, in_loop)
            self.emit("}")
        elif kind < 0.88 and depth > 0:
            end = self.random.randint(0, 5) if self.random.random() < 0.5 else f"({self.value(1, names)} & 7)"
            begin = f"{self.random.randint(-2, 2)} .. " if self.random.random() < 0.3 else ""
            self.emit(f"for ({name} in {begin}{end}) {{")
            self.block(names + [name], variables, depth - 1, True)
            self.emit("}")
        elif kind < 0.93 and depth > 0:
            self.emit(f"var {name}: i64 = 0;")
            self.emit(f"while ({name} < 6 && {self.condition(1, names)}) {{")
            self.emit(f"    {name} = {name} + 1;")
            self.block(names + [name], variables, depth - 1, True)
            self.emit("}")
        elif in_loop:
            self.emit(f"if ({self.condition(1, names)}) break;")


def listed(numbers):
    return ", ".join(map(str, numbers))
