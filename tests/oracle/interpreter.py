"""A naive scalar interpreter of kernels of the tile stage: the meaning of docs/reference/language.md, one element at a time.

run(items, kernel, arguments) executes a kernel or program in place on tensors (Buffer) and scalars; case(items, test) makes those of
a test. There is no parallelism, no layout and no time: parallel loops, threads and grids run in order, an asynchronous copy at
once. Roles and the blocks of a cluster run until they wait for each other; a channel counts what was committed and released. What
the manual leaves open becomes values.ANY or values.Near.
"""
import math
import operator
import threading
from fractions import Fraction

import values
from language import Node
from values import ANY, Near, convert, is_float, is_integer

COMPARISONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_, "^": operator.xor}
UNSET = None   # an element before its first write


class Fault(Exception):
    """The program breaks a rule of the manual."""


class Unsupported(Exception):
    """Outside of this interpreter."""


class Break(Exception):
    pass


class Return(Exception):
    pass


class Buffer:

    def __init__(self, type_, shape, scope, cells=None):
        self.type, self.shape, self.scope = type_, list(shape), scope
        self.cells = cells if cells is not None else [UNSET] * math.prod(shape)

    def place(self, indices):
        """Position of an element; None: outside of a global tensor."""
        position = 0
        for index, extent in zip(indices, self.shape):
            if not 0 <= index < extent:
                if self.scope != "global":
                    raise Fault(f"index {index} outside {extent}")
                return None
            position = position * extent + index
        return position

    def read(self, indices):
        position = self.place(indices)
        if position is None:
            return False if self.type == "bool" else 0.0 if is_float(self.type) else 0
        value = self.cells[position]
        if value is UNSET:
            raise Fault("read before written")
        return value

    def write(self, indices, value):
        position = self.place(indices)
        if position is not None:
            self.cells[position] = value


class Variable:

    def __init__(self, type_, value):
        self.type, self.value = type_, value


class Region:
    """A part of a buffer: for each of its own dims the buffer's dim, where it starts, extent (None: the other side's)
    and limit (reads beyond are 0); `fixed` has the other dims' indices."""

    def __init__(self, buffer, fixed, dims):
        self.buffer, self.fixed, self.dims = buffer, fixed, dims

    def shape(self, other=None):
        return [other[d] if dim[2] is None and other is not None else dim[2] for d, dim in enumerate(self.dims)]

    def indices(self, at):
        if not self.fixed and len(self.dims) == len(self.buffer.shape) and all(dim[3] is None for dim in self.dims):
            return [dim[1] + index for index, dim in zip(at, self.dims)]
        found = dict(self.fixed)
        for index, (dim, start, _, limit) in zip(at, self.dims):
            if limit is not None and index >= limit:
                return None
            found[dim] = start + index
        return [found[d] for d in range(len(self.buffer.shape))]

    def read(self, at):
        indices = self.indices(at)
        if indices is None:
            return False if self.buffer.type == "bool" else 0.0 if is_float(self.buffer.type) else 0
        return self.buffer.read(indices)

    def write(self, at, value):
        indices = self.indices(at)
        if indices is not None:
            self.buffer.write(indices, value)


def coordinates(shape):
    """All index tuples of a shape, the last index fastest."""
    if not shape:
        yield ()
        return
    for first in range(shape[0]):
        for rest in coordinates(shape[1:]):
            yield (first,) + rest


def common(a, b):
    """The type of an arithmetic operation; None: both are untyped."""
    if a is None or b is None:
        return a or b
    if a == b:
        return a
    if is_float(a) and is_float(b):
        if "f64" in (a, b):
            return "f64"
        return a if values.BYTES[a] > values.BYTES[b] else b if values.BYTES[b] > values.BYTES[a] else "f32"
    if is_float(a) or is_float(b):
        return a if is_float(a) else b
    if a == "bool" or b == "bool" or a[0] != b[0]:
        raise Fault(f"{a} with {b}")
    return a if values.BYTES[a] >= values.BYTES[b] else b


def computed(type_):
    """Floats below f32 compute in f32."""
    return "f32" if is_float(type_) and values.BYTES[type_] < 4 else type_


def settle(value, type_):
    """What an untyped value is by itself."""
    if type_ is not None:
        return value, type_
    if isinstance(value, float):
        return values.round_exact(value, "f32"), "f32"
    return value, "i64"


def adopt(value, type_, other):
    """An untyped operand with a typed one: (value, type)."""
    if type_ is not None or other is None:
        return value, type_
    if isinstance(value, float):
        target = "f64" if other == "f64" else "f32"
        return values.round_exact(value, target), target
    if other == "bool":
        raise Fault("a number with a bool")
    return convert(value, "i64", other), other


class Interpreter:

    def __init__(self, items, defines):
        self.fns = {item.name: item for item in items if item.kind == "fn"}
        self.macros = {item.name: item for item in items if item.kind == "macro"}
        self.kernels = {item.name: item for item in items if item.kind == "kernel"}
        self.waiting, self.stopped = threading.Condition(), False
        self.clusters = 0
        self.handlers = {name[6:]: getattr(self, name) for name in dir(self) if name.startswith("value_")}
        self.natives = {}   # functions of a prelude that are known
        self.file = {}
        self.defines = defines
        self.ieee = 0
        for item in items:
            if item.kind == "const":
                self.file[item.name] = Variable(*reversed(self.value(item.value, [self.file])))
                if item.name in defines:
                    self.file[item.name] = Variable(None, defines[item.name])

    # ---- names ----
    def find(self, name, scopes):
        for scope in reversed(scopes):
            if name in scope:
                return scope[name]
        raise Fault(f"no name {name}")

    def buffer(self, node, scopes):
        found = self.find(node.name, scopes) if node.kind == "name" else self.field(node, scopes) if node.kind == "view" else None
        if isinstance(found, Handle):
            found = found.only()
        return found if isinstance(found, Buffer) else None

    def field(self, node, scopes):
        """What a handle's field is: a Buffer or a Variable."""
        handle = self.find(node.base.name, scopes) if node.base.kind == "name" else None
        if not isinstance(handle, Handle) or node.name not in handle.fields:
            raise Fault(f"no field {node.name}")
        return handle.fields[node.name]

    # ---- expressions: (value, type); type None: untyped ----
    def value(self, node, scopes):
        return self.handlers[node.kind](node, scopes)

    def typed(self, node, scopes, type_):
        value, source = self.value(node, scopes)
        value, source = settle(value, source) if source is None and not is_float(type_) else (value, source)
        if source is None:
            return convert(value, "f64" if isinstance(value, float) else "i64", type_)
        return convert(value, source, type_)

    def integer(self, node, scopes):
        value, type_ = self.value(node, scopes)
        if value is ANY or isinstance(value, (float, Near)):
            raise Fault("an index must be an integer")
        return int(value)

    def truth(self, node, scopes):
        value, type_ = self.value(node, scopes)
        if type_ != "bool":
            raise Fault("a condition must be bool")
        if value is ANY:
            raise Unsupported("a condition that the manual leaves open")
        return value

    def value_literal(self, node, scopes):
        return node.value, None

    def value_bool(self, node, scopes):
        return node.value, "bool"

    def value_name(self, node, scopes):
        found = self.find(node.name, scopes)
        if isinstance(found, Handle):
            found = found.only()
        if isinstance(found, Buffer):
            raise Fault(f"{node.name} is a buffer")
        return read_variable(found) if isinstance(found, Field) else (found.value, found.type)

    def value_view(self, node, scopes):
        return read_variable(self.field(node, scopes))

    def value_index(self, node, scopes):
        buffer = self.buffer(node.base, scopes)
        if buffer is None or len(node.indices) != len(buffer.shape):
            raise Fault("not an element")
        return buffer.read([self.integer(i, scopes) for i in node.indices]), buffer.type

    def value_choose(self, node, scopes):
        """Only one arm is evaluated, but both give the type."""
        if not hasattr(node, "type"):   # names have one type wherever it stands
            node.type = self.type_of(node, scopes)
        type_ = node.type
        condition, _ = self.value(node.condition, scopes)
        if condition is ANY:
            return ANY, type_
        value, source = adopt(*self.value(node.yes if condition else node.no, scopes), type_)
        return (value, None) if type_ is None else (convert(value, source, type_), type_)

    def type_of(self, node, scopes):
        """The type alone, without effects."""
        kind = node.kind
        if kind == "literal":
            return None
        if kind == "bool" or (kind == "binary" and node.op in ("==", "!=", "<", "<=", ">", ">=", "&&", "||")):
            return "bool"
        if kind == "name":
            return self.find(node.name, scopes).type
        if kind == "index":
            return self.buffer(node.base, scopes).type
        if kind == "view":
            return self.field(node, scopes).type
        if kind == "binary" and node.op in ("<<", ">>"):
            return self.type_of(node.a, scopes)
        if kind == "binary":
            type_ = common(self.type_of(node.a, scopes), self.type_of(node.b, scopes))
            return type_ and computed(type_)
        if kind == "unary":
            type_ = self.type_of(node.a, scopes)
            return "bool" if node.op == "!" else type_ and computed(type_)
        if kind == "choose":
            return common(self.type_of(node.yes, scopes), self.type_of(node.no, scopes))
        if kind == "call":
            return self.type_of_call(node, scopes)
        raise Unsupported(kind)

    def type_of_call(self, node, scopes):
        if node.name in values.BYTES:
            return node.name
        if node.name == "bitcast":
            return node.args[0][1].name
        if node.name in self.fns:
            return self.fns[node.name].result
        if node.name.startswith("atomic_"):
            return self.type_of(node.args[0][1], scopes)
        if node.name == "take":
            return self.find(node.args[0][1].name, scopes).tiles[0].type
        type_ = None
        for _, arg in node.args:
            type_ = common(type_, self.type_of(arg, scopes))
        if node.name == "ieee":
            return type_
        if node.name in ("abs", "min", "max", "relu", "fma", "ceildiv"):
            return type_ and computed(type_)
        return computed(type_) if type_ and is_float(type_) else "f32"

    def value_unary(self, node, scopes):
        value, type_ = self.value(node.a, scopes)
        if value is ANY:
            return ANY, type_ and computed(type_)
        if node.op == "!":
            return not value, "bool"
        if isinstance(value, Near):
            return Near(-value.value, value.error, value.floor), computed(type_)
        if node.op == "~":
            return values.wrap(~value, type_ or "i64"), type_
        if type_ is None:
            return -value, None
        return (values.wrap(-value, type_), type_) if is_integer(type_) else (-value, computed(type_))

    def value_binary(self, node, scopes):
        op = node.op
        if op in ("&&", "||"):
            first, _ = self.value(node.a, scopes)
            return (self.value(node.b, scopes)[0] if first is not ANY and first == (op == "&&") else first), "bool"
        a, a_type = self.value(node.a, scopes)
        b, b_type = self.value(node.b, scopes)
        if op in ("<<", ">>"):
            return self.shift(op, a, a_type, b)
        type_ = a_type or b_type
        if op in ARITHMETIC and type(a) is type(b) is int and b_type in (None, type_) and type_ in (None, *values.INTEGERS):
            return values.wrap(ARITHMETIC[op](a, b), type_ or "i64"), type_
        if a_type != b_type:
            a, a_type = adopt(a, a_type, b_type)
            b, b_type = adopt(b, b_type, a_type)
        type_ = common(a_type, b_type)
        if type_ is None:
            if isinstance(a, float) or isinstance(b, float):
                return self.untyped(op, a, b)
            a_type = b_type = "i64"
        operation = computed(type_ or "i64")
        if a_type != operation:
            a = convert(a, a_type, operation)
        if b_type != operation:
            b = convert(b, b_type, operation)
        if op in ("==", "!=", "<", "<=", ">", ">="):
            return self.compare(op, a, b), "bool"
        if a is ANY or b is ANY or isinstance(a, Near) or isinstance(b, Near):
            return ANY, operation
        result = self.float_binary(op, a, b, operation) if is_float(operation) else self.int_binary(op, a, b, operation)
        return result, operation if type_ else None

    def untyped(self, op, a, b):
        a, b = float(a), float(b)
        if op in ("==", "!=", "<", "<=", ">", ">="):
            return self.compare(op, a, b), "bool"
        return self.float_binary(op, a, b, "f64"), None

    def shift(self, op, a, type_, b):
        name = type_ or "i64"
        if a is ANY or b is ANY or not 0 <= b < values.INTEGERS[name][1]:
            return ANY, type_
        return values.wrap(a << b if op == "<<" else a >> b, name), type_

    def compare(self, op, a, b):
        if a is ANY or b is ANY or isinstance(a, Near) or isinstance(b, Near):
            return ANY
        return COMPARISONS[op](a, b)

    def int_binary(self, op, a, b, name):
        if name == "bool":
            if op not in "&|^":
                raise Fault(f"{op} of bool")
            return {"&": a and b, "|": a or b, "^": a != b}[op]
        if op in "/%":
            if b == 0:
                raise Fault("division by zero")
            quotient = values.int_quotient(a, b)
            if values.wrap(quotient, name) != quotient:
                return ANY
            return quotient if op == "/" else a - quotient * b
        return values.wrap(ARITHMETIC[op](a, b), name)

    def float_binary(self, op, a, b, name):
        if op == "+":
            return values.float_sum(a, b, name)
        if op == "-":
            return values.float_sum(a, -b, name)
        if op == "*":
            return values.float_product(a, b, name)
        if op == "/":
            quotient = values.float_quotient(a, b, name)
            return quotient if self.ieee or name == "f64" else self.near(quotient, 4, name)   # 2^-22 is at most 4 ulp
        raise Fault(f"{op} of floats")

    def near(self, value, ulps, name):
        if not math.isfinite(value) or value == 0:
            return value   # exact
        digits, least, _ = values.FLOATS[name]
        return Near(value, ulps * 2.0 ** (1 - digits), 2.0 ** least)

    # ---- calls ----
    def value_call(self, node, scopes):
        name = node.name
        if name in values.BYTES:
            return self.typed_call(node, scopes, name), name
        if name == "bitcast":
            target = node.args[0][1].name
            value, type_ = settle(*self.value(node.args[1][1], scopes))
            return values.bitcast(value, type_, target), target
        if name == "ieee":
            self.ieee += 1
            value, type_ = self.value(node.args[0][1], scopes)
            self.ieee -= 1
            copied = type_ in values.FP8 and isinstance(value, float) and math.isinf(value)   # or computed with?
            return (ANY if copied else value), type_
        if name in self.natives:
            return self.natives[name](self.integer(node.args[0][1], scopes)), self.fns[name].result
        if name in self.fns:
            return self.call_fn(self.fns[name], node, scopes)
        if name.startswith("atomic_"):
            return self.atomic(node, scopes)
        if name == "take":
            return self.call_take(node, scopes)
        if name == "sms":
            raise Unsupported(name)
        if name == "cluster_rank":
            return self.find("%cluster", scopes).rank, "i64"
        if name == "peer":
            place, rank = node.args[0][1], self.integer(node.args[1][1], scopes)
            buffer = self.find("%cluster", scopes).shared[rank][place.base.name]
            return buffer.read([self.integer(i, scopes) for i in place.indices]), buffer.type
        return self.math(name, [self.value(arg, scopes) for _, arg in node.args])

    def typed_call(self, node, scopes, type_):
        value, source = self.value(node.args[0][1], scopes)
        if source is None:
            source = "f64" if isinstance(value, float) else "i64"
            if source == "f64" and not is_float(type_):
                value, source = settle(value, None)
        return convert(value, source, type_)

    def math(self, name, args):
        type_ = None
        for _, arg_type in args:
            type_ = common(type_, arg_type)
        if name not in ("min", "max", "abs", "ceildiv", "relu", "fma") and not (type_ and is_float(type_)):
            args = [(values.round_exact(convert(v, t or "i64", "f32"), "f32") if not isinstance(v, float) else v, "f32")
                    for v, t in args]
            type_ = "f32"
        operation = computed(type_ or ("f32" if any(isinstance(v, float) for v, _ in args) else "i64"))
        operands = []
        for value, arg_type in args:
            value, arg_type = adopt(value, arg_type, operation)
            operands.append(convert(value, arg_type, operation))
        if any(v is ANY or isinstance(v, Near) for v in operands):
            return ANY, operation
        return getattr(self, "math_" + name)(operation, *operands), operation if type_ else None

    def math_min(self, name, a, b):
        return values.lesser(a, b)

    def math_max(self, name, a, b):
        return values.greater(a, b)

    def math_abs(self, name, x):
        return values.wrap(abs(x), name) if is_integer(name) else abs(x)

    def math_ceildiv(self, name, a, b):
        return values.wrap(-(-a // b), name)

    def math_fma(self, name, a, b, c):
        return values.wrap(a * b + c, name) if is_integer(name) else values.float_fma(a, b, c, name)

    def math_relu(self, name, x):
        if isinstance(x, float) and math.isnan(x):
            return x
        return x if x > 0 else (0.0 if is_float(name) else 0)

    def whole(self, x, how):
        return x if not math.isfinite(x) else math.copysign(float(how(Fraction(x))), x)

    def math_floor(self, name, x):
        return self.whole(x, math.floor)

    def math_ceil(self, name, x):
        return self.whole(x, math.ceil)

    def math_round(self, name, x):
        return self.whole(x, round)

    def math_sqrt(self, name, x):
        root = values.square_root(x, name)
        return root if self.ieee or name == "f64" else self.near(root, 2, name)

    def math_exp2(self, name, x):
        return self.open(name, lambda: math.exp2(x) if hasattr(math, "exp2") else 2.0 ** x, 4)

    def math_log2(self, name, x):
        return self.open(name, lambda: math.log2(x), 2) if x > 0 else ANY

    def open(self, name, compute, ulps):
        """A function that the manual gives to within some ulp of f32; of other types it promises nothing."""
        if name != "f32":
            return ANY
        try:
            value = compute()
        except (ValueError, OverflowError):
            return ANY
        return self.near(value, ulps, name) if abs(value) <= values.FLOATS[name][2] else ANY

    def math_tanh(self, name, x):
        return Near(math.tanh(x), 2.0 ** -11, 2.0 ** -126) if name == "f32" and math.isfinite(x) else ANY

    def math_exp(self, name, x):
        return self.open(name, lambda: math.exp(x), 2 * (1 + abs(x) / 3))   # 2^-22 is 2 units of 2^-23

    def math_log(self, name, x):
        return self.open(name, lambda: math.log(x), 2) if x > 0 else ANY

    def math_rsqrt(self, name, x):
        return self.open(name, lambda: 1 / math.sqrt(x), 2) if x > 0 else ANY

    def math_sin(self, name, x):
        return self.wave(name, math.sin, x)

    def math_cos(self, name, x):
        return self.wave(name, math.cos, x)

    def wave(self, name, function, x):
        if abs(x) <= 1:
            return self.open(name, lambda: function(x), 2)
        return Near(function(x), 0.0, 2.0 ** -23) if name == "f32" and abs(x) <= 2.0 ** 45 else ANY

    def call_fn(self, fn, node, scopes):
        scope = {}
        for param, (_, arg) in zip(fn.params, node.args):
            scope[param.name] = Variable(param.type, self.typed(arg, scopes, param.type))
        try:
            self.block(fn.body, [self.file, scope])
        except Return as result:
            value, source = result.args
            if source is None:
                source = "f64" if isinstance(value, float) else "i64"
            return convert(value, source, fn.result), fn.result
        raise Fault("no return")

    def atomic(self, node, scopes):
        place = node.args[0][1]
        buffer = self.buffer(place.base, scopes)
        indices = [self.integer(i, scopes) for i in place.indices]
        given = [self.typed(arg, scopes, buffer.type) for _, arg in node.args[1:]]
        old = buffer.read(indices)
        if old is ANY or any(v is ANY for v in given):
            raise Unsupported("an atomic of an open value")
        buffer.write(indices, self.atomic_result(node.name[7:], old, given, buffer.type))
        return old, buffer.type

    def atomic_result(self, op, old, given, type_):
        v = given[0]
        if op == "add":
            return self.float_binary("+", old, v, type_) if is_float(type_) else values.wrap(old + v, type_)
        if op in ("max", "min"):
            return values.greater(old, v) if op == "max" else values.lesser(old, v)
        if op in ("and", "or", "xor"):
            return {"and": old & v, "or": old | v, "xor": old ^ v}[op]
        if op == "inc":
            bits = values.INTEGERS[type_][1]
            plain = lambda x: x & ((1 << bits) - 1)
            return 0 if plain(old) >= plain(v) else values.wrap(old + 1, type_)
        if op == "cas":
            return given[1] if old == v else old
        if op == "exch":
            return v
        raise Unsupported(op)

    # ---- statements ----
    def block(self, body, scopes):
        scopes = scopes + [{}]
        for stmt in body:
            self.statement(stmt, scopes)

    def statement(self, stmt, scopes):
        getattr(self, "do_" + stmt.kind)(stmt, scopes)

    def do_block(self, stmt, scopes):
        self.block(stmt.body, scopes)

    def do_const(self, stmt, scopes):
        value, type_ = self.value(stmt.value, scopes)
        scopes[-1][stmt.name] = Variable(type_, value)

    def do_tune(self, stmt, scopes):
        for name, candidates in stmt.tunables:
            value = self.defines[name] if name in self.defines else self.value(candidates[0], scopes)[0]
            scopes[-1][name] = Variable(None, value)

    def do_assume(self, stmt, scopes):
        if not self.truth(stmt.condition, scopes):
            raise Fault("an assumption does not hold")

    def do_decls(self, stmt, scopes):
        for decl in stmt.decls:
            shape = [self.integer(dim, scopes) for dim in decl.dims]
            scopes[-1][decl.name] = buffer = Buffer(decl.type, shape, decl.scope)
            if decl.scope == "shared" and self.clusters:
                cluster = self.find("%cluster", scopes)
                cluster.shared[cluster.rank][decl.name] = buffer

    def do_let(self, stmt, scopes):
        call = stmt.value.kind == "call" and stmt.value.name
        if call in ("acquire", "receive"):
            scopes[-1][stmt.name] = self.begin(call, stmt.value.args[0][1].name, scopes)
            return
        value, type_ = settle(*self.value(stmt.value, scopes))
        scopes[-1][stmt.name] = Variable(type_, value)

    def do_var(self, stmt, scopes):
        value = convert(0, "i64", stmt.type) if stmt.value is None else self.typed(stmt.value, scopes, stmt.type)
        scopes[-1][stmt.name] = Variable(stmt.type, value)

    def do_store(self, stmt, scopes):
        if stmt.place.kind in ("name", "view"):
            variable = self.find(stmt.place.name, scopes) if stmt.place.kind == "name" else self.field(stmt.place, scopes)
            if isinstance(variable, Handle):
                variable = variable.only()
            variable.value = self.typed(stmt.value, scopes, variable.type)
            return
        buffer = self.buffer(stmt.place.base, scopes)
        indices = [self.integer(i, scopes) for i in stmt.place.indices]
        if len(indices) != len(buffer.shape):
            raise Fault("not an element")
        buffer.write(indices, self.typed(stmt.value, scopes, buffer.type))

    def do_if(self, stmt, scopes):
        self.block(stmt.yes if self.truth(stmt.condition, scopes) else stmt.no, scopes)

    def do_while(self, stmt, scopes):
        try:
            while self.truth(stmt.condition, scopes):
                self.block(stmt.body, scopes)
        except Break:
            pass

    def do_break(self, stmt, scopes):
        raise Break

    def do_return(self, stmt, scopes):
        raise Return(*self.value(stmt.value, scopes))

    def do_loop(self, stmt, scopes):
        try:
            self.iterate(stmt.iters, stmt.body, scopes)
        except Break:
            pass

    def iterate(self, iters, body, scopes):
        if not iters:
            self.block(body, scopes)
            return
        first = iters[0]
        begin = self.integer(first.begin, scopes) if first.begin else 0
        step = self.integer(first.step, scopes) if first.step else 1
        for value in range(begin, self.integer(first.end, scopes), step):
            self.iterate(iters[1:], body, scopes + [{first.name: Variable("i64", value)}])

    def do_thread(self, stmt, scopes):
        """Threads run in order, from one barrier of the region to the next."""
        phases = [[]]
        for inner in stmt.body:
            if inner.kind == "do" and inner.call.name == "barrier":
                phases.append([])
            else:
                phases[-1].append(inner)
        own = [scopes + [{stmt.iters[0].name: Variable("i64", t)}, {}] for t in range(self.integer(stmt.iters[0].end, scopes))]
        for phase in phases:
            for scope in own:
                for inner in phase:
                    self.statement(inner, scope)

    # ---- blocks, clusters, roles ----
    def do_grid(self, stmt, scopes):
        extents = [self.integer(i.end, scopes) for i in stmt.iters]
        sizes = [self.integer(size, scopes) for size in stmt.cluster] + [1] * (len(extents) - len(stmt.cluster))
        if any(extent % size for extent, size in zip(extents, sizes)):
            raise Fault("the grid is no multiple of its clusters")
        for base in coordinates([extent // size for extent, size in zip(extents[::-1], sizes[::-1])]):
            places = [[b * size + i for b, size, i in zip(base[::-1], sizes, inner[::-1])] for inner in coordinates(sizes[::-1])]
            names = [{i.name: Variable("i64", at) for i, at in zip(stmt.iters, place)} for place in places]
            if len(places) == 1:
                self.cta(stmt.body, scopes + names)
                continue
            shared, meeting = [{} for _ in places], [0]
            for rank, scope in enumerate(names):
                scope["%cluster"] = Cluster(rank, shared, meeting)
            self.clusters += 1
            self.concurrently([lambda scope=scope: self.cta(stmt.body, scopes + [scope]) for scope in names])
            self.clusters -= 1

    def cta(self, body, scopes):
        """Roles, which stand last, run concurrently. A group is (its number, what it runs)."""
        groups = []
        for role in (stmt for stmt in body if stmt.kind == "role"):
            count = self.integer(role.iter.end, scopes) if role.iter else 1
            groups += [(role, {role.iter.name: Variable("i64", k)} if role.iter else {}) for k in range(count)]
        scopes = scopes + [{"%groups": [role.body for role, _ in groups] or [body], "%group": 0}]
        for stmt in body:
            if stmt.kind != "role":
                self.statement(stmt, scopes)
        if groups:
            self.concurrently([lambda k=k, role=role, names=names: self.block(role.body, scopes + [names | {"%group": k}])
                               for k, (role, names) in enumerate(groups)])

    def concurrently(self, jobs):
        """Threads of which one runs at a time, until it waits."""
        problems, ended = [], []

        def run_job(job):
            with self.waiting:
                try:
                    job()
                except Exception as problem:
                    problems.append(problem)
                    self.stopped = True
                ended.append(job)
                self.waiting.notify_all()

        with self.waiting:
            for job in jobs:
                threading.Thread(target=run_job, args=[job], daemon=True).start()
            self.waiting.wait_for(lambda: len(ended) == len(jobs))
        if problems:
            raise problems[0]

    def until(self, condition):
        with self.waiting:
            if not self.waiting.wait_for(lambda: self.stopped or condition(), timeout=60) or self.stopped:
                raise Fault("it waits for what does not come")

    def tell(self):
        """What somebody may wait for has changed."""
        with self.waiting:
            self.waiting.notify_all()

    # ---- channels ----
    def do_channel(self, stmt, scopes):
        groups = self.find("%groups", scopes)
        filling = [k for k, body in enumerate(groups) if uses(body, stmt.name, ("acquire", "produce", "send"))]
        reading = [k for k, body in enumerate(groups) if uses(body, stmt.name, ("receive", "consume", "take"))]
        ordered = [k for k, body in enumerate(groups) if uses(body, stmt.name, ("enter", "ordered"))]
        readers = self.integer(stmt.readers, scopes) if stmt.readers else len(reading)
        slots = self.integer(stmt.slots, scopes) if stmt.slots else 0
        shapes = [tile.dims and [self.integer(dim, scopes) for dim in tile.dims] for tile in stmt.tiles]
        scopes[-1][stmt.name] = Channel(stmt.tiles, shapes, slots, len(filling), readers, ordered)

    def begin(self, word, name, scopes):
        """A handle of the group's next slot, once it is free or full."""
        channel, group = self.find(name, scopes), self.find("%group", scopes)
        number = channel.next(word, group)
        if word == "acquire":
            self.until(lambda: number < channel.slots or channel.freed(number - channel.slots))
        else:
            self.until(lambda: channel.full(number))
        return Handle(channel, number, channel.slot(number, fresh=word == "acquire"))

    def end(self, word, handle):
        counts = handle.channel.committed if word == "commit" else handle.channel.released
        counts[handle.number] = counts.get(handle.number, 0) + 1
        self.tell()

    def op_commit(self, args, named, scopes):
        self.end("commit", self.find(args[0].name, scopes))

    def op_release(self, args, named, scopes):
        self.end("release", self.find(args[0].name, scopes))

    def op_send(self, args, named, scopes):
        handle = self.begin("acquire", args[0].name, scopes)
        field = handle.only()
        field.value = self.typed(args[1], scopes, field.type)
        self.end("commit", handle)

    def call_take(self, node, scopes):
        handle = self.begin("receive", node.args[0][1].name, scopes)
        found = read_variable(handle.only())
        self.end("release", handle)
        return found

    def op_skip(self, args, named, scopes):
        channel, group = self.find(args[0].name, scopes), self.find("%group", scopes)
        for _ in range(self.integer(args[1], scopes)):
            channel.next("receive", group)

    def op_enter(self, args, named, scopes):
        channel, group = self.find(args[0].name, scopes), self.find("%group", scopes)
        place = channel.next("enter", group) * len(channel.ordered) + channel.ordered.index(group)
        self.until(lambda: channel.passed == place)

    def op_leave(self, args, named, scopes):
        self.find(args[0].name, scopes).passed += 1
        self.tell()

    def do_channel_block(self, stmt, scopes):
        """A block in which the names of the tiles are the slot's."""
        name = Node("name", name=stmt.channel)
        if stmt.word == "ordered":
            self.op_enter([name], {}, scopes)
            self.block(stmt.body, scopes)
            self.op_leave([name], {}, scopes)
            return
        handle = self.begin("acquire" if stmt.word == "produce" else "receive", stmt.channel, scopes)
        self.block(stmt.body, scopes + [handle.fields])
        self.end("commit" if stmt.word == "produce" else "release", handle)

    def barrier_of(self, node, scopes):
        buffer = self.buffer(node.base, scopes)
        return buffer, buffer.place([self.integer(i, scopes) for i in node.indices])

    def op_mbarrier_init(self, args, named, scopes):
        buffer, at = self.barrier_of(args[0], scopes)
        buffer.cells[at] = Mbarrier(self.integer(args[1], scopes))

    def op_mbarrier_arrive(self, args, named, scopes):
        buffer, at = self.barrier_of(args[0], scopes)
        buffer.cells[at].arrive(self.integer(args[1], scopes) if len(args) > 1 else 1)
        self.tell()

    def op_mbarrier_wait(self, args, named, scopes):
        buffer, at = self.barrier_of(args[0], scopes)
        parity = self.integer(args[1], scopes)
        self.until(lambda: buffer.cells[at].phase % 2 != parity)

    def op_cluster_barrier(self, args, named, scopes):
        cluster = self.find("%cluster", scopes)
        cluster.meeting[0] += 1
        wanted = -(-cluster.meeting[0] // len(cluster.shared)) * len(cluster.shared)
        self.tell()
        self.until(lambda: cluster.meeting[0] >= wanted)

    def op_fence_mbarrier_init(self, args, named, scopes):
        pass

    op_await = op_barrier = op_fence_mbarrier_init

    def do_do(self, stmt, scopes):
        call = stmt.call
        if call.kind != "call":
            raise Fault("no statement")
        if call.name in self.macros:
            self.expand(self.macros[call.name], call, scopes)
        elif call.name in self.kernels:
            self.call_kernel(self.kernels[call.name], call, scopes)
        elif hasattr(self, "op_" + call.name):
            named = {name: arg for name, arg in call.args if name}
            plain = [arg for name, arg in call.args if not name]
            getattr(self, "op_" + call.name)(plain, named, scopes)
        else:
            self.value(call, scopes)

    def expand(self, macro, call, scopes):
        scope = {}
        for param, (_, arg) in zip(macro.params, call.args):
            if param.dims is None:
                found = self.find(arg.name, scopes) if arg.kind == "name" else None
                by_reference = isinstance(found, Variable) and found.type == param.type
                scope[param.name] = found if by_reference else Variable(param.type, self.typed(arg, scopes, param.type))
                continue
            buffer = self.buffer(arg, scopes)
            if buffer is None:
                raise Unsupported("a macro's operand")
            scope[param.name] = buffer
            for dim, extent in zip(param.dims, buffer.shape):
                if dim.kind == "name" and dim.name not in scope and dim.name not in self.file:
                    scope[dim.name] = Variable(None, extent)
        self.block(macro.body, [self.file, scope])

    # ---- regions and tile operations ----
    def region(self, node, scopes):
        """(Region, transposed)."""
        if node.kind == "view" and node.name == "T":
            region, transposed = self.region(node.base, scopes)
            return region, not transposed
        whole = node.kind != "index"
        buffer = self.buffer(node if whole else node.base, scopes)
        if buffer is None:
            raise Fault("not a buffer")
        rank = len(buffer.shape)
        if whole:
            return Region(buffer, {}, [(d, 0, extent, None) for d, extent in enumerate(buffer.shape)]), False
        explicit = any(i.kind in ("whole", "extent") for i in node.indices)
        fixed, dims = {}, []
        for d in range(rank):
            index = node.indices[d] if d < len(node.indices) else None
            if index is None or index.kind == "whole":
                dims.append((d, 0, buffer.shape[d], None))
            elif index.kind == "extent":
                clipped = index.count.kind == "call" and index.count.name == "clip"
                count, type_ = self.value(index.count.args[0][1] if clipped else index.count, scopes)
                type_ = "i64" if clipped else type_
                start = self.integer(index.start, scopes)
                dims.append((d, start, count, None) if type_ is None else (d, start, None, count))
            elif explicit:
                fixed[d] = self.integer(index, scopes)
            else:
                dims.append((d, self.integer(index, scopes), None, None))
        return Region(buffer, fixed, dims), False

    def aligned(self, region, rank):
        """Leading indices beyond the other side's rank drop their dim."""
        while len(region.dims) > rank and region.dims[0][2] is None:
            dim, start = region.dims[0][:2]
            region.fixed[dim] = start
            region.dims = region.dims[1:]

    def sides(self, a, b, scopes):
        """Two operands of one shape: (Region, its transposition), the same, shape."""
        (src, src_t), (dst, dst_t) = self.region(a, scopes), self.region(b, scopes)
        for region, other in ((src, dst), (dst, src)):
            if any(dim[2] is not None for dim in other.dims) or len(other.dims) < len(region.dims):
                self.aligned(region, len(other.dims))
        order = lambda shape, transposed: shape[:-2] + [shape[-1], shape[-2]] if transposed and shape else shape
        src_shape = order(src.shape(), src_t)
        dst_shape = order(dst.shape(), dst_t)
        shape = [s if s is not None else d for s, d in zip(src_shape, dst_shape)]
        if len(src_shape) != len(dst_shape) or None in shape or any(
                d not in (None, e) for d, e in zip(dst_shape, shape)):
            raise Fault(f"shapes differ: {src_shape}, {dst_shape}")
        return (src, src_t), (dst, dst_t), shape

    def at(self, transposed, point):
        return point[:-2] + (point[-1], point[-2]) if transposed else point

    def move(self, src, dst, shape):
        """Reads everything, then writes: what the manual says of operands that overlap is checked elsewhere."""
        found = [(point, src[0].read(self.at(src[1], point))) for point in coordinates(shape)]
        for point, value in found:
            dst[0].write(self.at(dst[1], point), convert(value, src[0].buffer.type, dst[0].buffer.type))

    def op_copy(self, args, named, scopes):
        self.move(*self.sides(args[0], args[1], scopes))

    def op_transpose(self, args, named, scopes):
        src, transposed = self.region(args[0], scopes)
        dst, dst_transposed = self.region(args[1], scopes)
        if any(d[2] is None for d in src.dims) or any(d[2] is None for d in dst.dims):
            raise Unsupported("transpose of a corner")
        self.move((src, not transposed), (dst, dst_transposed), self.transposed_shape(dst, dst_transposed))

    def transposed_shape(self, region, transposed):
        shape = region.shape()
        return shape[:-2] + [shape[-1], shape[-2]] if transposed else shape

    def op_fill(self, args, named, scopes):
        region, transposed = self.region(args[0], scopes)
        value = self.typed(args[1], scopes, region.buffer.type)
        for point in coordinates(region.shape()):
            region.write(point, value)

    def flag(self, named, name, scopes, default):
        return self.truth(named[name], scopes) if name in named else default

    def op_gemm(self, args, named, scopes):
        a, b, acc = (self.region(arg, scopes) for arg in args)
        (m, k), n = self.transposed_shape(*a), self.transposed_shape(*b)[1]
        keep = self.flag(named, "accumulate", scopes, True)
        type_ = acc[0].buffer.type
        rows = [[a[0].read(self.at(a[1], (i, q))) for q in range(k)] for i in range(m)]
        columns = [[b[0].read(self.at(b[1], (q, j))) for q in range(k)] for j in range(n)]
        for i in range(m):
            for j in range(n):
                terms = list(zip(rows[i], columns[j]))
                first = acc[0].read(self.at(acc[1], (i, j))) if keep else 0
                acc[0].write(self.at(acc[1], (i, j)), self.dot(first, terms, type_))

    def dot(self, first, terms, type_):
        """Where the exact sum is a value of the type, every order of summation that stays exact gives it."""
        everything = [first] + [v for pair in terms for v in pair]
        if any(v is ANY or isinstance(v, Near) or (isinstance(v, float) and not math.isfinite(v)) for v in everything):
            return ANY
        if all(-1 << 20 < v < 1 << 20 and v == int(v) for v in everything):
            total = int(first + sum(x * y for x, y in terms))   # exact as f64 too
        else:
            total = Fraction(first) + sum(Fraction(x) * Fraction(y) for x, y in terms)
        if is_integer(type_):
            return values.wrap(int(total), type_)
        return values.round_exact(total, type_)

    def reduce(self, args, named, scopes, combine):
        (src, src_t), (dst, dst_t) = self.region(args[0], scopes), self.region(args[1], scopes)
        axis = self.integer(named["axis"], scopes)
        keep = self.flag(named, "accumulate", scopes, False)
        shape, results = self.transposed_shape(src, src_t), {}
        if len(dst.dims) == len(src.dims) and len(shape) > 1:
            raise Unsupported("partial results")
        for point in coordinates(shape):
            at = point[:axis] + point[axis + 1:] or (0,)
            value = convert(src.read(self.at(src_t, point)), src.buffer.type, dst.buffer.type)
            results.setdefault(at, []).append(value)
        for at, terms in results.items():
            place = self.at(dst_t, at)
            if keep:
                terms = [dst.read(place)] + terms
            dst.write(place, self.combined(terms, dst.buffer.type, combine))

    def combined(self, terms, type_, combine):
        if any(v is ANY or isinstance(v, Near) for v in terms):
            return ANY
        result = terms[0]
        for value in terms[1:]:
            result = combine(result, value, type_)
        return result

    def total(self, a, b, type_):
        return values.float_sum(a, b, type_) if is_float(type_) else values.wrap(a + b, type_)

    def product(self, a, b, type_):
        return values.float_product(a, b, type_) if is_float(type_) else values.wrap(a * b, type_)

    def op_reduce_sum(self, *operands):
        self.reduce(*operands, self.total)

    def op_reduce_prod(self, *operands):
        self.reduce(*operands, self.product)

    def op_reduce_max(self, *operands):
        self.reduce(*operands, lambda a, b, _: values.greater(a, b))

    def op_reduce_min(self, *operands):
        self.reduce(*operands, lambda a, b, _: values.lesser(a, b))

    def op_reduce_any(self, *operands):
        self.reduce(*operands, lambda a, b, _: a or b)

    def op_reduce_all(self, *operands):
        self.reduce(*operands, lambda a, b, _: a and b)

    def scan(self, args, named, scopes, combine):
        (src, src_t), (dst, dst_t) = self.region(args[0], scopes), self.region(args[1], scopes)
        axis = self.integer(named["axis"], scopes)
        shape = self.transposed_shape(src, src_t)
        found = {point: convert(src.read(self.at(src_t, point)), src.buffer.type, dst.buffer.type) for point in coordinates(shape)}
        for point in coordinates(shape):
            line = [found[point[:axis] + (i,) + point[axis + 1:]] for i in range(point[axis] + 1)]
            dst.write(self.at(dst_t, point), self.combined(line, dst.buffer.type, combine))

    def op_scan_sum(self, *operands):
        self.scan(*operands, self.total)

    def op_scan_max(self, *operands):
        self.scan(*operands, lambda a, b, _: values.greater(a, b))

    # ---- launches ----
    def launch(self, func, arguments):
        """Arguments by name: Buffers, numbers; also strides, tunables and dims that no shape gives."""
        scope = {}
        for param in func.params:
            if param.dims is None:
                scope[param.name] = Variable(param.type, arguments[param.name])
                continue
            scope[param.name] = given = arguments[param.name]
            for dim, extent in zip(param.dims, given.shape):
                if dim.kind == "name" and dim.name not in scope and dim.name not in self.file:
                    scope[dim.name] = Variable("i64", extent)
            for stride in param.strides or []:
                if stride.kind == "name" and stride.name in arguments:
                    scope[stride.name] = Variable("i64", arguments[stride.name])
        self.defines = {name: value for name, value in arguments.items() if name not in scope} | self.defines
        self.block(func.body, [self.file, scope])

    def call_kernel(self, kernel, call, scopes):
        arguments = {}
        for place, (name, arg) in enumerate(call.args):
            param = next(p for p in kernel.params if p.name == name) if name else kernel.params[place]
            buffer = self.buffer(arg, scopes) if param.dims is not None else None
            arguments[param.name] = buffer or self.typed(arg, scopes, param.type)
        self.launch(kernel, arguments)

    def op_print(self, args, named, scopes):
        pass

    def op_assert(self, args, named, scopes):
        if not self.truth(args[0], scopes):
            raise Fault("an assertion does not hold")


class Cluster:
    """A block of a cluster: its rank, the shared buffers of all blocks by name, and how often blocks came to a barrier."""

    def __init__(self, rank, shared, meeting):
        self.rank, self.shared, self.meeting = rank, shared, meeting


class Field(Variable):
    """A scalar of a slot."""


def read_variable(variable):
    if variable.value is UNSET:
        raise Fault("read before written")
    return variable.value, variable.type


def uses(tree, channel, words):
    """Whether one of the words stands there with the channel."""
    if isinstance(tree, Node):
        here = (tree.kind == "channel_block" and tree.word in words and tree.channel == channel) or (
            tree.kind == "call" and tree.name in words and getattr(tree.args[0][1], "name", "") == channel)
        return here or uses(list(tree.__dict__.values()), channel, words)
    return isinstance(tree, (list, tuple)) and any(uses(item, channel, words) for item in tree)


class Channel:
    """A ring of slots: production p lies in slot p mod `slots`. `ordered`: the groups that pass sections."""

    def __init__(self, tiles, shapes, slots, fillers, readers, ordered):
        self.tiles, self.shapes, self.slots, self.fillers, self.readers, self.ordered = tiles, shapes, slots, fillers, readers, ordered
        self.committed, self.released, self.contents, self.begun, self.passed = {}, {}, {}, {}, 0

    def next(self, word, group):
        number = self.begun.get((word, group), 0)
        self.begun[word, group] = number + 1
        return number

    def full(self, number):
        return self.committed.get(number, 0) == self.fillers

    def freed(self, number):
        return self.released.get(number, 0) == self.readers

    def slot(self, number, fresh):
        """Its fields by name; the first group that acquires it finds nothing there."""
        if fresh and number not in self.contents:
            self.contents.pop(number - self.slots, None)
            self.contents[number] = {tile.name: Field(tile.type, UNSET) if shape is None else Buffer(tile.type, shape, "shared")
                                     for tile, shape in zip(self.tiles, self.shapes)}
        return self.contents[number]


class Handle:

    def __init__(self, channel, number, fields):
        self.channel, self.number, self.fields = channel, number, fields

    def only(self):
        if len(self.fields) != 1:
            raise Fault("a handle of several tiles")
        return next(iter(self.fields.values()))


class Mbarrier:

    def __init__(self, count):
        self.count = self.pending = count
        self.phase = 0

    def arrive(self, count):
        self.pending -= count
        if self.pending == 0:
            self.pending = self.count
            self.phase += 1


def run(items, kernel, arguments, defines=None):
    """Executes `kernel` (a Node) in place on arguments: name -> Buffer, or a number. Dims follow from the shapes."""
    Interpreter(items, defines or {}).launch(kernel, arguments)


def case(items, test, interpreter=None):
    """(kernel or program, its arguments): as `run` wants them, filled."""
    interpreter = interpreter or Interpreter(items, {})
    func = next(item for item in items if item.kind in ("kernel", "program") and item.name == test.name)
    given = {name: settle(*interpreter.value(value, [interpreter.file])) for name, value in test.bindings}
    scope = {name: Variable(type_, value) for name, (value, type_) in given.items()}
    arguments = {name: value for name, (value, _) in given.items()}
    for param in func.params:
        if param.dims is None:
            scope[param.name] = Variable(param.type, convert(*given[param.name], param.type))
    for param in func.params:
        if param.dims is not None:
            shape = [interpreter.integer(dim, [interpreter.file, scope]) for dim in param.dims]
            arguments[param.name] = scope[param.name] = Buffer(param.type, shape, "global")
    interpreter.block(test.fill or [], [interpreter.file, scope])
    return func, arguments
