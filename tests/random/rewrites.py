"""Other sources of the same meaning: rewritten(text, random) applies some of them to the kernels of a program.

Each rewrite takes a statement in its list and gives statements in its place, or None where it does not apply. What it may assume is
checked on the syntax alone (names written, effects), so that no rewrite changes what the manual says.
"""
import copy
import sys

from language import Node, body, parse, text

EFFECTS = ("atomic_", "peer", "mbarrier_", "cluster_", "load", "store", "acquire", "commit", "receive", "release", "send", "take", "skip",
           "enter", "leave")
ORDERED = ("break", "return", "role", "thread", "grid", "decls", "const", "let", "var", "channel", "channel_block")   # stays where it is


def nodes(tree):
    """All Nodes within one, or within a list."""
    if isinstance(tree, Node):
        yield tree
        for value in tree.__dict__.values():
            yield from nodes(value)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from nodes(item)


def names(tree):
    return {n.name for n in nodes(tree) if n.kind == "name"}


def declared(tree):
    found = {n.name for n in nodes(tree) if n.kind in ("let", "var", "const", "iter", "decl")}
    return found


def written(tree):
    """Names that are stored to, and all operands of tile operations and macros."""
    found = set()
    for n in nodes(tree):
        if n.kind == "store":
            found |= names(n.place if n.place.kind == "name" else n.place.base)
        if n.kind == "do":
            found |= names([arg for _, arg in n.call.args])
        if n.kind == "call" and n.name.startswith("atomic_"):
            found |= names(n.args[0][1].base)
    return found


def has_effect(tree):
    return any(n.kind == "call" and n.name.startswith(EFFECTS) for n in nodes(tree))


def has(tree, *kinds):
    return any(n.kind in kinds for n in nodes(tree))


def breaks(stmts):
    """Whether a break leaves the loop around these."""
    for stmt in stmts:
        if stmt.kind == "break" or (stmt.kind == "if" and (breaks(stmt.yes) or breaks(stmt.no))) or (
                stmt.kind == "block" and breaks(stmt.body)):
            return True
    return False


def replaced(tree, name, value):
    """A copy with a name replaced by an expression."""
    if isinstance(tree, Node):
        if tree.kind == "name" and tree.name == name:
            return copy.deepcopy(value)
        return Node(**{key: replaced(field, name, value) for key, field in tree.__dict__.items()})
    if isinstance(tree, list):
        return [replaced(item, name, value) for item in tree]
    return tuple(replaced(item, name, value) for item in tree) if isinstance(tree, tuple) else tree


def number(value):
    return Node("literal", value=value) if value >= 0 else Node("unary", op="-", a=Node("literal", value=-value))


def typed(value):
    return Node("call", name="i64", args=[(None, number(value))])


def name_of(text_):
    return Node("name", name=text_)


def one_loop(stmt, words):
    return stmt.kind == "loop" and stmt.word in words and len(stmt.iters) == 1 and not stmt.iters[0].step


def is_parallel(stmt):
    return stmt.kind == "loop" and stmt.word == "parallel"


def pointwise(loops):
    """Parallel loops whose statements store, and access what any of them writes only at their own element."""
    its = [i.name for i in loops[0].iters]
    tree = [loop.body for loop in loops]
    if has_effect(tree) or any(n.kind == "do" or n.kind in ORDERED and n.kind != "let" for n in nodes(tree)):
        return False
    changed = {}
    for n in nodes(tree):
        if n.kind == "store":
            if n.place.kind != "index" or n.place.base.kind != "name":
                return False
            changed[n.place.base.name] = n.place.indices
    if any([i.kind == "name" and i.name for i in at if isinstance(i, Node)] != its for at in changed.values()):
        return False
    inside = {id(n.base) for n in nodes(tree) if n.kind == "index" and n.base.kind == "name" and n.base.name in changed and
              [i.kind == "name" and i.name for i in n.indices if isinstance(i, Node)] == its}
    return all(id(n) in inside for n in nodes(tree) if n.kind == "name" and n.name in changed)


def always(value):
    """The operands that are computed whatever the others are, and by themselves as there: not of `ieee`."""
    yield value
    if value.kind == "binary" and value.op not in ("&&", "||"):
        yield from always(value.a)
        yield from always(value.b)
    if value.kind == "unary":
        yield from always(value.a)
    if value.kind == "call" and value.name != "ieee":
        for _, arg in value.args:
            if isinstance(arg, Node):
                yield from always(arg)


def regrouped(index):
    if isinstance(index, Node) and index.kind == "binary" and index.op == "+" and index.a.kind == "binary" and index.a.op == "+":
        return Node("binary", op="+", a=index.a.a, b=Node("binary", op="+", a=index.a.b, b=index.b))
    return index


class Rewriter:

    def __init__(self, items, random):
        self.items, self.random, self.fresh = items, random, 0
        self.macros = {item.name: item for item in items if item.kind == "macro"}
        self.shapes = {d.name: d for item in items for d in nodes(item.body if hasattr(item, "body") else []) if d.kind == "decl"}
        self.tensors = {}
        self.rewrites = [self.copied, self.guarded, self.in_pieces, self.unrolled, self.split, self.inlined, self.expanded, self.inverted, self.by_elements, self.exchanged, self.wrapped,
                         self.other_loop, self.fissioned, self.fused, self.temporary, self.handed]

    def name(self, prefix):
        self.fresh += 1
        return f"{prefix}_{self.fresh}"

    def block(self, stmts, chance):
        """The list with some statements rewritten, inner ones too."""
        at = 0
        while at < len(stmts):
            for field in ("body", "yes", "no"):
                inner = getattr(stmts[at], field, None)
                if isinstance(inner, list) and stmts[at].kind not in ("thread", "role"):
                    self.block(inner, chance)
                elif isinstance(inner, list) and stmts[at].kind == "role":
                    self.block(inner, chance)
            if self.random.random() < chance:
                rewrite = self.random.choice(self.rewrites)
                new = rewrite(stmts, at)
                if new is not None:
                    stmts[at:at + len(new[0])] = new[1]
            at += 1

    def unrolled(self, stmts, at):
        """A loop of few iterations by hand."""
        stmt = stmts[at]
        if not one_loop(stmt, ("for", "pipelined", "unroll")) or stmt.iters[0].end.kind != "literal" or breaks(stmt.body):
            return None
        if stmt.iters[0].begin is not None or stmt.iters[0].end.value > 4:
            return None
        return [stmt], [Node("block", body=replaced(stmt.body, stmt.iters[0].name, typed(k))) for k in range(stmt.iters[0].end.value)]

    def split(self, stmts, at, same=False):
        """A loop as two, of one kind or not."""
        stmt = stmts[at]
        if not one_loop(stmt, ("for", "pipelined")) or breaks(stmt.body) or stmt.iters[0].begin is not None:
            return None
        end, middle = self.name("end"), self.name("middle")
        first, second = copy.deepcopy(stmt), copy.deepcopy(stmt)
        first.iters[0].end = name_of(middle)
        second.iters[0].begin, second.iters[0].end = name_of(middle), name_of(end)
        bound = Node("call", name="i64", args=[(None, stmt.iters[0].end)])
        number_ = self.random.randint(0, 3)
        cut = self.random.choice([Node("call", name="min", args=[(None, name_of(end)), (None, typed(number_))]),
                                  Node("binary", op="/", a=name_of(end), b=number(number_ + 1))])
        if second.word == "pipelined" and not same:
            second.word, second.options = "for", []
        return [stmt], [Node("let", name=end, value=bound), Node("let", name=middle, value=cut), first, second]

    def cut(self, stmts, at):
        return self.split(stmts, at, same=True)

    def inlined(self, stmts, at):
        """A let in place of its name, where nothing that it reads changes."""
        stmt, rest = stmts[at], stmts[at + 1:]
        if stmt.kind != "let" or has_effect(stmt) or stmt.value.kind == "literal" or names(stmt.value) & written(rest):
            return None
        if (names(stmt.value) & declared(rest)) or stmt.name in declared(rest) or text(stmt.value).count("?") > 2:
            return None
        return [stmt] + rest, replaced(rest, stmt.name, stmt.value)

    def expanded(self, stmts, at):
        """A macro's statements in place of its call."""
        stmt = stmts[at]
        if stmt.kind != "do" or stmt.call.name not in self.macros:
            return None
        macro, inner = self.macros[stmt.call.name], []
        expansion = copy.deepcopy(macro.body)
        for param, (_, arg) in zip(macro.params, stmt.call.args):
            if param.dims is None:
                if arg.kind == "name":
                    return None
                inner.append(Node("var", name=param.name, type=param.type, value=arg))
                continue
            expansion = replaced(expansion, param.name, arg)
            for dim, extent in zip(param.dims, self.shapes[arg.name].dims):
                expansion = replaced(expansion, dim.name, extent)
        return [stmt], [Node("block", body=inner + expansion)]

    def inverted(self, stmts, at):
        """if (!c) with the branches exchanged."""
        stmt = stmts[at]
        if stmt.kind != "if" or not stmt.no:
            return None
        return [stmt], [Node("if", condition=Node("unary", op="!", a=stmt.condition), yes=stmt.no, no=stmt.yes)]

    def by_elements(self, stmts, at):
        """copy, transpose and fill of whole buffers as loops over elements."""
        stmt = stmts[at]
        if stmt.kind != "do" or stmt.asynchronous or stmt.call.name not in ("copy", "transpose", "fill"):
            return None
        args = [arg for _, arg in stmt.call.args]
        if any(arg.kind != "name" or arg.name not in self.shapes for arg in args[:1 if stmt.call.name == "fill" else 2]):
            return None
        there = args[0] if stmt.call.name == "fill" else args[1]
        if stmt.call.name != "fill" and args[0].name == there.name:
            return None   # reads all of it before it writes; iterations of a loop do not
        decl = self.shapes[there.name]
        its = [f"e{d}" for d in range(len(decl.dims))]
        at_ = list(map(name_of, its))
        if stmt.call.name == "fill":
            if has_effect(args[1]):
                return None
            value = args[1]
        else:
            order = at_[:-2] + at_[-1:] + at_[-2:-1] if stmt.call.name == "transpose" else at_
            value = Node("index", base=args[0], indices=order)
        store = Node("store", place=Node("index", base=there, indices=at_), value=value)
        iters = [Node("iter", name=n, begin=None, end=copy.deepcopy(e), step=None) for n, e in zip(its, decl.dims)]
        return [stmt], [Node("loop", word="parallel", iters=iters, options=[], body=[store])]

    def tensor_copy(self, stmt):
        """A copy between a place in a tensor, by plain indices, and a whole tile: the place, its tensor, the tile, whether it loads."""
        if stmt.kind != "do" or stmt.asynchronous or stmt.call.name != "copy" or len(stmt.call.args) != 2:
            return None
        source, target = (arg for _, arg in stmt.call.args)
        loads = source.kind == "index"
        place, tile = (source, target) if loads else (target, source)
        if place.kind != "index" or place.base.kind != "name" or tile.kind != "name" or has_effect(place) or has(place, "whole", "extent"):
            return None
        tensor, decl = self.tensors.get(place.base.name), self.shapes.get(tile.name)
        if not tensor or not decl or len(tensor.dims) != len(place.indices) or len(decl.dims) > len(tensor.dims):
            return None
        if decl.scope != ("shared" if loads else "fragment") or has(place.indices, "index") or any(d.kind != "name" for d in tensor.dims):
            return None
        return place, tensor, decl, loads

    def copy_loop(self, stmt, guarded):
        found = self.tensor_copy(stmt)
        if not found:
            return None
        place, tensor, decl, loads = found
        its = [self.name("at") for _ in decl.dims]
        first = len(tensor.dims) - len(its)
        sums = [Node("binary", op="+", a=a, b=name_of(i)) for a, i in zip(copy.deepcopy(place.indices[first:]), its)]
        element = Node("index", base=place.base, indices=[*copy.deepcopy(place.indices[:first]), *sums])
        own = Node("index", base=name_of(decl.name), indices=list(map(name_of, its)))
        value = element if loads else own
        stmt = Node("store", place=own if loads else element, value=value)
        if guarded:
            inside = [Node("binary", op="<", a=copy.deepcopy(s), b=copy.deepcopy(d)) for s, d in zip(sums, tensor.dims[first:])]
            self.random.shuffle(inside)
            condition = inside[0]
            for other in inside[1:]:
                condition = Node("binary", op="&&", a=condition, b=other)
            zero = Node("store", place=copy.deepcopy(stmt.place), value=number(0))
            if loads and self.random.random() < 0.5:
                stmt.value = Node("choose", condition=condition, yes=value, no=number(0))
            else:
                stmt = Node("if", condition=condition, yes=[stmt], no=[zero] if loads else [])
        iters = [Node("iter", name=n, begin=None, end=copy.deepcopy(e), step=None) for n, e in zip(its, decl.dims)]
        return Node("loop", word="parallel", iters=iters, options=[], body=[stmt])

    def copied(self, stmts, at):
        """A copy between a tensor and a tile as a loop over the elements."""
        loop = self.copy_loop(stmts[at], False)
        return loop and ([stmts[at]], [loop])

    def guarded(self, stmts, at):
        """The same under the condition that the tensor has the element."""
        loop = self.copy_loop(stmts[at], True)
        return loop and ([stmts[at]], [loop])

    def is_even(self, extent):
        """A literal, or a name of the file or of a tunable, with no odd value."""
        if extent.kind == "literal":
            return extent.value % 2 == 0
        given = [(c.name, [c.value]) for c in nodes(self.items) if c.kind == "const"]
        given += [tunable for c in nodes(self.items) if c.kind == "tune" for tunable in c.tunables]
        values = [value for name, each in given if extent.kind == "name" and name == extent.name for value in each]
        return bool(values) and all(v.kind == "literal" and v.value % 2 == 0 for v in values)

    def in_pieces(self, stmts, at):
        """A copy to a tile as two, of half of its rows or columns each; one behind the other, or in a loop."""
        found = self.tensor_copy(stmts[at])
        if not found or not found[3]:
            return None
        place, tensor, decl, _ = found
        along = self.random.randrange(len(decl.dims))
        if not self.is_even(decl.dims[along]):
            return None
        half = Node("binary", op="/", a=copy.deepcopy(decl.dims[along]), b=number(2))

        def piece(which):
            first = Node("binary", op="*", a=which, b=copy.deepcopy(half))
            there, own = copy.deepcopy(place), [Node("whole") for _ in decl.dims]
            start = len(there.indices) - len(own) + along
            there.indices[start] = Node("binary", op="+", a=there.indices[start], b=first)
            own[along] = Node("extent", start=copy.deepcopy(first), count=copy.deepcopy(half))
            target = Node("index", base=name_of(decl.name), indices=own)
            return Node("do", call=Node("call", name="copy", args=[(None, there), (None, target)]), asynchronous=False)
        if self.random.random() < 0.5:
            return [stmts[at]], [piece(typed(0)), piece(typed(1))]
        name = self.name("piece")
        iters = [Node("iter", name=name, begin=None, end=number(2), step=None)]
        return [stmts[at]], [Node("loop", word="unroll", iters=iters, options=[], body=[piece(name_of(name))])]

    def exchanged(self, stmts, at):
        """Two statements that share no name that either writes."""
        if at + 1 >= len(stmts):
            return None
        a, b = stmts[at], stmts[at + 1]
        if a.kind in ORDERED or b.kind in ORDERED or has_effect([a, b]) or has([a, b], "break") or self.waits(a) or self.waits(b):
            return None
        if written(a) & (names(b) | written(b)) or written(b) & names(a):
            return None
        return [a, b], [b, a]

    def waits(self, stmt):
        return any(n.kind == "do" and (n.asynchronous or n.call.name in ("await", "barrier", "print")) for n in nodes(stmt))

    def wrapped(self, stmts, at):
        """A block, or a condition that always holds."""
        stmt = stmts[at]
        ends = stmt.kind == "do" and has_effect(stmt)   # a handle ends in the block that began it
        if stmt.kind in ORDERED or stmt.kind == "tune" or ends:
            return None
        return [stmt], [Node("block", body=[stmt])]

    def other_loop(self, stmts, at):
        """pipelined as for, and back; other stages."""
        stmt = stmts[at]
        if not one_loop(stmt, ("for", "pipelined")) or breaks(stmt.body) or stmt.iters[0].begin is not None:
            return None
        new = copy.deepcopy(stmt)
        new.word = self.random.choice(["for", "pipelined"])
        new.options = [Node("option", name="stages", value=number(self.random.randint(1, 4)))] if new.word == "pipelined" else []
        return [stmt], [new]

    def fissioned(self, stmts, at):
        """A parallel loop of several statements as two."""
        stmt = stmts[at]
        if not is_parallel(stmt) or len(stmt.body) < 2 or not pointwise([stmt]):
            return None
        cut = self.random.randint(1, len(stmt.body) - 1)
        if declared(stmt.body[:cut]) & names(stmt.body[cut:]):
            return None
        first, second = (Node("loop", word="parallel", iters=copy.deepcopy(stmt.iters), options=copy.deepcopy(stmt.options), body=body_)
                         for body_ in (stmt.body[:cut], stmt.body[cut:]))
        return [stmt], [first, second]

    def fused(self, stmts, at):
        """Two parallel loops over the same elements as one."""
        if at + 1 >= len(stmts) or not (is_parallel(stmts[at]) and is_parallel(stmts[at + 1])):
            return None
        a, b = stmts[at], copy.deepcopy(stmts[at + 1])
        if len(a.iters) != len(b.iters) or declared(a.body) & (declared(b.body) | names(b.body)):
            return None
        for i, j in zip(a.iters, b.iters):
            if j.name != i.name and (i.name in names(b) or i.name in declared(b)):
                return None
            b.body = replaced(b.body, j.name, name_of(i.name))
        if not pointwise([a, Node("loop", word="parallel", iters=a.iters, options=[], body=b.body)]):
            return None
        if [(text(i.end), i.begin, i.step) for i in a.iters] != [(text(j.end), j.begin, j.step) for j in b.iters]:
            return None
        return [a, stmts[at + 1]], [Node("loop", word="parallel", iters=a.iters, options=[], body=a.body + b.body)]

    def temporary(self, stmts, at):
        """A name for an operand of a stored value."""
        stmt = stmts[at]
        if stmt.kind != "store" or stmt.place.kind != "index" or has_effect(stmt):
            return None
        found = [n for n in always(stmt.value) if n.kind == "binary" and n.op in "+-*/" and has(n, "index") and n is not stmt.value]
        if not found:
            return None
        value = self.random.choice(found)
        let = Node("let", name=self.name("term"), value=copy.deepcopy(value))
        value.__dict__ = name_of(let.name).__dict__
        return [stmt], [let, stmt]

    def handed(self, stmts, at):
        """An operand of a stored value in a fragment, from a loop of its own."""
        stmt = stmts[at]
        if not is_parallel(stmt) or len(stmt.body) != 1 or stmt.body[0].kind != "store" or not pointwise([stmt]):
            return None
        store = stmt.body[0]
        target = self.shapes.get(store.place.base.name)
        found = [n for n in always(store.value) if n.kind == "binary" and n.op in "+-*/" and has(n, "index") and n is not store.value]
        if not found or target is None or target.scope != "fragment" or target.type != "f32":
            return None
        value = self.random.choice(found)
        name = self.name("held")
        place = Node("index", base=name_of(name), indices=[name_of(i.name) for i in stmt.iters])
        first = Node("loop", word="parallel", iters=copy.deepcopy(stmt.iters), options=[],
                     body=[Node("store", place=copy.deepcopy(place), value=copy.deepcopy(value))])
        decl = Node("decl", scope="fragment", name=name, type="f32", dims=[copy.deepcopy(i.end) for i in stmt.iters])
        value.__dict__ = place.__dict__
        return [stmt], [Node("decls", scope="fragment", decls=[decl]), first, stmt]

    # ---- everywhere ----
    MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}

    def commuted(self, tree):
        """Operands of + * & | ^ == != < <= > >= min max the other way round; c ? a : b as !c ? b : a; a + b + c as a + (b + c) in indices."""
        for n in nodes(tree):
            if n.kind == "binary" and n.op in ("+", "*", "&", "|", "^", "==", "!=") and self.random.random() < 0.3 and not has_effect(n):
                n.a, n.b = n.b, n.a
            if n.kind == "binary" and n.op in self.MIRRORED and self.random.random() < 0.3 and not has_effect(n):
                n.op, n.a, n.b = self.MIRRORED[n.op], n.b, n.a
            if n.kind == "choose" and self.random.random() < 0.2 and not has_effect(n):
                n.condition, n.yes, n.no = Node("unary", op="!", a=n.condition), n.no, n.yes
            if n.kind == "index" and self.random.random() < 0.3 and not has_effect(n):
                n.indices = [regrouped(i) for i in n.indices]
            if n.kind == "call" and n.name in ("min", "max") and self.random.random() < 0.3:
                n.args = n.args[::-1]

    def renamed(self, tree):
        old = {d.name for d in nodes(tree) if d.kind == "decl"}
        for n in nodes(tree):
            if n.kind in ("name", "decl") and n.name in old:
                n.name += "_r"
        self.shapes = {d.name: d for d in nodes(tree) if d.kind == "decl"}

    def regrid(self, kernel):
        for n in nodes(kernel):
            if n.kind == "grid" and not n.cluster:
                n.persistent = self.random.random() < 0.3
                n.raster = number(self.random.randint(1, 3)) if len(n.iters) > 1 and self.random.random() < 0.3 else None


def rewritten(source, random):
    """The kernels of a program with rewrites; the test stays."""
    sys.setrecursionlimit(10000)
    items = parse(source)
    for item in items:
        if item.kind != "kernel":
            continue
        rewriter = Rewriter(items, random)
        if random.random() < 0.5:
            rewriter.renamed(item)
        rewriter.shapes = {d.name: d for d in nodes(item) if d.kind == "decl"}
        rewriter.tensors = {p.name: p for p in item.params if p.dims}
        rewriter.block(item.body, random.choice([0.1, 0.3, 0.6]))
        rewriter.commuted(item)
        rewriter.regrid(item)
    return body(items)
