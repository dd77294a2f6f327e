#!/usr/bin/env python3
"""Random programs of tile operations, against scalar loops.

    tile_programs.py TILEC [--count 100] [--seed 1] [-- ARGUMENTS]      ARGUMENTS go to `tilec test`

Each is one block that copies, computes, reduces, scans and multiplies tiles of odd shapes and all types, within loops and ifs of
unknown lengths and conditions. The reference says the same element by element. Values stay small integers, which all types
hold, so that both agree exactly, before any pass and after all.
"""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

INTEGERS = ['i32', 'i64', 'i16', 'u8', 'i8', 'u32']
FLOATS = ['f32', 'f16', 'bf16', 'f32']

class Program:

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.names = 0
        self.kernel = []
        self.reference = []
        self.depth = 2
        self.buffers = []
        self.params = []
        self.tests = {}
        self.threads = self.rng.choice([32, 64, 128, 128, 256, 96])

    def name(self, p):
        self.names += 1
        return f'{p}{self.names}'

    def in_kernel(self, line):
        """A line of the kernel."""
        self.kernel.append('    ' * self.depth + line)

    def in_reference(self, line):
        """A line of the reference."""
        self.reference.append('    ' * self.depth + line)

    def in_both(self, line):
        self.in_kernel(line)
        self.in_reference(line)

    def extent(self):
        return self.rng.choice([1, 2, 3, 4, 5, 7, 8, 8, 12, 16, 16, 16, 24, 32, 32, 33, 40, 48, 64])

    def type(self):
        return self.rng.choice(INTEGERS + FLOATS + FLOATS)

    def small(self, t, e):
        """The value e of type t, brought near 0."""
        if t in FLOATS:
            return f'{t}(i32({e}) % 9)'
        return f'{t}(i32({e}) % 9)' if t[0] == 'i' else f'{t}(u32({e}) % 9)'

    def converted(self, e, frm, to):
        """The value in another type."""
        return f'{to}({e})' if frm != to else e

    def new(self, scope=None, typ=None, shape=None):
        """A buffer: (name, scope, type, shape)."""
        scope = scope or self.rng.choice(['shared', 'fragment'])
        typ = typ or self.type()
        shape = shape or tuple((self.extent() for _ in range(self.rng.choice([1, 2, 2, 2, 2, 3]))))
        while len(shape) == 3 and shape[0] * shape[1] * shape[2] > 4096:
            shape = (self.rng.choice([1, 2, 3, 4]),) + tuple((self.extent() for _ in range(2)))
        n = self.name('sh' if scope == 'shared' else 'fr')
        self.in_kernel(f"{scope} {n}: {typ}[{', '.join(map(str, shape))}];")
        self.in_reference(f"local {n}: {typ}[{', '.join(map(str, shape))}];")
        b = (n, scope, typ, shape)
        self.buffers.append(b)
        return b

    def loops(self, shape, names):
        return ', '.join((f'{v} in {e}' for v, e in zip(names, shape)))

    def tensor(self, typ, shape, mode=''):
        """A tensor parameter."""
        n = self.name('T')
        self.params.append((n, mode, typ, shape))
        return n
    IT = ['i', 'j', 'k']

    def input(self):
        """A tile of a tensor, which may lie beyond its edges."""
        """global tensor of dynamic dims, copied into a new buffer."""
        b = self.new()
        n, scope, typ, shape = b
        rk = len(shape)
        it = self.IT[:rk]
        ext = [max(1, e + self.rng.choice([0, 0, -1, 3, 5, -e // 2, 8])) for e in shape]
        dyn = [self.dim(e) if self.rng.random() < 0.5 else str(e) for e in ext]
        T = self.tensor(typ, dyn)
        off = [self.rng.choice(['0', '0', '0', '-2', '3', '8']) if d.isdigit() else self.rng.choice(['0', '0', '1', f'{d} - 2', '-1', '8']) for d in dyn]
        self.in_kernel(f"copy({T}[{', '.join(off)}], {n});")
        cond = ' && '.join((f'{o} + {v} >= 0 && {o} + {v} < {d}' for o, v, d in zip(off, it, dyn)))
        self.in_reference(f"for ({self.loops(shape, it)}) {{ if ({cond}) {n}[{', '.join(it)}] = {T}[{', '.join((f'{o} + {v}' for o, v in zip(off, it)))}]; else {n}[{', '.join(it)}] = 0; }}")
        return b

    def dim(self, v):
        """A dim or scalar that the test binds."""
        n = self.name('D')
        self.tests[n] = v
        return n

    def pick(self, pred=lambda b: True):
        c = [b for b in self.buffers if pred(b)]
        return self.rng.choice(c) if c else None

    def linear(self, its, shape):
        return ' + '.join((f'{v} * {self.rng.choice([1, 1, 3, 7])}' for v in its))

    def element(self, src, its, shape, dst_scope):
        """An element of the buffer that an iteration may read; None: of a fragment there is none."""
        """an index into src valid for loop `its` of `shape`; None if not possible."""
        n, scope, typ, sh = src
        idx = []
        used = set()
        for e in sh:
            opts = [v for v, x in zip(its, shape) if x <= e and v not in used]
            if scope == 'fragment':
                o2 = [v for v, x in zip(its, shape) if x == e and v not in used]
                if self.rng.random() < 0.2 or not o2:
                    idx.append(str(self.rng.randrange(e))) if e <= 8 or not o2 else idx.append(self.rng.choice(o2))
                else:
                    idx.append(self.rng.choice(o2))
                if idx[-1] in its:
                    used.add(idx[-1])
                continue
            k = self.rng.random()
            if opts and k < 0.6:
                v = self.rng.choice(opts)
                x = shape[its.index(v)]
                used.add(v)
                if e > x and self.rng.random() < 0.5:
                    idx.append(f'{v} + {self.rng.randrange(e - x + 1)}')
                elif self.rng.random() < 0.2:
                    idx.append(f'{e - 1} - {v}')
                else:
                    idx.append(v)
            elif k < 0.85:
                idx.append(f'({self.linear(its, shape)}) % {e}' if its else '0')
            else:
                idx.append(str(self.rng.randrange(e)))
        if scope == 'fragment' and len(set((i for i in idx if i in its))) < len([i for i in idx if i in its]):
            return None
        return f"{n}[{', '.join(idx)}]"

    def expression(self, its, shape, want, depth=2):
        """A small value of the type."""
        """expression of type want, small."""
        if depth == 0 or self.rng.random() < 0.2:
            b = self.pick()
            if b and self.rng.random() < 0.8:
                e = self.element(b, its, shape, None)
                if e:
                    return self.small(want, self.converted(e, b[2], want)) if self.rng.random() < 0.9 else self.converted(e, b[2], want)
            return f'{want}({self.linear(its, shape)}) % 5' if want not in FLOATS and its else f'{want}({self.rng.randrange(5)})'
        k = self.rng.random()
        a, b = (self.expression(its, shape, want, depth - 1), self.expression(its, shape, want, depth - 1))
        if k < 0.5:
            return self.small(want, f"({a} {self.rng.choice('+-*')} {b})") if want[0] != 'u' else self.small(want, f"({a} {self.rng.choice('+*')} {b})")
        if k < 0.7:
            return f"{self.rng.choice(['min', 'max'])}({a}, {b})"
        return f'({self.condition(its, shape)} ? {a} : {b})'

    def condition(self, its, shape):
        k = self.rng.random()
        if its and k < 0.5:
            return f"{self.rng.choice(its)} {self.rng.choice(['<', '>=', '=='])} {self.rng.randrange(max(shape) + 1)}"
        if its and k < 0.75:
            return f"({self.linear(its, shape)}) {self.rng.choice(['%', '/'])} {self.rng.choice([2, 3, 4, 8])} == {self.rng.choice([0, 1])}"
        b = self.pick()
        e = b and self.element(b, its, shape, None)
        return f'{e} > 1' if e else 'true'

    def parallel(self):
        """A parallel loop; an iteration may come back to what it has written."""
        dst = self.pick() if self.buffers and self.rng.random() < 0.5 else self.new()
        n, scope, typ, shape = dst
        its = self.IT[:len(shape)]
        save = self.buffers
        self.buffers = [b for b in self.buffers if b[0] != n]
        lines = []
        sub = list(shape)
        at = list(its)
        loopshape = list(shape)
        begins = [''] * len(shape)
        fresh = dst not in save or dst is save[-1]
        for d in range(len(shape)):
            if not fresh and scope == 'shared' and (self.rng.random() < 0.25) and (shape[d] > 2):
                loopshape[d] = self.rng.randrange(1, shape[d])
                o = self.rng.randrange(shape[d] - loopshape[d] + 1)
                at[d] = f'{its[d]} + {o}'
        own = f"{n}[{', '.join(at)}]"
        if self.rng.random() < 0.3:
            v = self.name('x')
            lines.append(f'let {v} = {self.expression(its, loopshape, typ)};')
            e = self.expression(its, loopshape, typ)
            val = self.small(typ, f'({e} + {v})')
        else:
            val = self.expression(its, loopshape, typ)
        if not fresh and self.rng.random() < 0.4:
            val = self.small(typ, f'({own} + {val})')
        st = f'{own} = {val};'
        if not fresh and self.rng.random() < 0.4:
            st = f'if ({self.condition(its, loopshape)}) {st}'
            if self.rng.random() < 0.3:
                st += f' else {own} = {self.expression(its, loopshape, typ)};'
        lines.append(st)
        if self.rng.random() < 0.2:
            o = [b for b in self.buffers if b[3] == shape and b[0] != n]
            if o and loopshape == list(shape) and (at == list(its)):
                b = self.rng.choice(o)
                lines.append(f"{b[0]}[{', '.join(its)}] = {self.small(b[2], self.converted(own, typ, b[2]))};")
                if any((b[0] + '[' in l for l in lines[:-1])):
                    lines.pop()
        self.buffers = save
        body = ' '.join(lines)
        perm = list(range(len(its)))
        if self.rng.random() < 0.3:
            self.rng.shuffle(perm)
        hdr = ', '.join((f'{its[p]} in {loopshape[p]}' for p in perm))
        self.in_kernel(f'parallel ({hdr}) {{ {body} }}')
        self.in_reference(f'for ({hdr}) {{ {body} }}')

    def copy(self):
        """A copy to another buffer: whole, turned, of a part, or clipped."""
        src = self.pick()
        if not src:
            return
        n, scope, typ, shape = src
        its = self.IT[:len(shape)]
        k = self.rng.random()
        if len(shape) == 2 and k < 0.3:
            dst = self.new(shape=(shape[1], shape[0]))
            self.in_kernel(self.rng.choice([f'transpose({n}, {dst[0]});', f'copy({n}.T, {dst[0]});']))
            self.in_reference(f'for ({self.loops(shape, its)}) {dst[0]}[j, i] = {n}[i, j];')
            return
        if k < 0.5 and scope == 'shared':
            sub = tuple((self.rng.randrange(1, e + 1) for e in shape))
            off = [self.rng.randrange(e - x + 1) for e, x in zip(shape, sub)]
            dst = self.new(shape=sub)
            self.in_kernel(f"copy({n}[{', '.join((f'{o} +: {x}' for o, x in zip(off, sub)))}], {dst[0]});")
            self.in_reference(f"for ({self.loops(sub, its)}) {dst[0]}[{', '.join(its)}] = {n}[{', '.join((f'{v} + {o}' for v, o in zip(its, off)))}];")
            return
        if k < 0.65:
            d = [self.dim(self.rng.randrange(0, e + 3)) for e in shape[:1]]
            m = self.rng.choice(['min(%s, %d)' % (d[0], shape[0])])
            dst = self.new(shape=shape)
            self.in_kernel(f'fill({dst[0]}, 1);')
            self.in_reference(f"for ({self.loops(shape, its)}) {dst[0]}[{', '.join(its)}] = 1;")
            reg = ', '.join([f'0 +: {m}'] + [f'0 +: {e}' for e in shape[1:]])
            if self.rng.random() < 0.5:
                self.in_kernel(f'copy({n}[{reg}], {dst[0]});')
                self.in_reference(f"for ({self.loops(shape, its)}) {dst[0]}[{', '.join(its)}] = i < {m} ? {n}[{', '.join(its)}] : 0;")
            else:
                self.in_kernel(f'copy({n}, {dst[0]}[{reg}]);')
                self.in_reference(f"for ({self.loops(shape, its)}) if (i < {m}) {dst[0]}[{', '.join(its)}] = {n}[{', '.join(its)}];")
            return
        o = [b for b in self.buffers if b[3] == shape and b[0] != n]
        dst = self.rng.choice(o) if o and self.rng.random() < 0.4 else self.new(shape=shape)
        self.in_kernel(f'copy({n}, {dst[0]});')
        self.in_reference(f"for ({self.loops(shape, its)}) {dst[0]}[{', '.join(its)}] = {n}[{', '.join(its)}];")

    def reduce(self):
        src = self.pick(lambda b: b[2] not in ('u8', 'i8', 'f16', 'bf16'))
        if not src:
            return
        n, scope, typ, shape = src
        ax = self.rng.randrange(len(shape))
        rest = tuple((e for d, e in enumerate(shape) if d != ax)) or (1,)
        op = self.rng.choice(['sum', 'max', 'min'])
        o = [b for b in self.buffers if b[3] == rest and b[2] == typ and (b[0] != n)]
        acc = bool(o) and self.rng.random() < 0.5
        dst = self.rng.choice(o) if acc else self.new(typ=typ, shape=rest)
        its = self.IT[:len(shape)]
        oi = [v for d, v in enumerate(its) if d != ax] or ['0']
        self.in_kernel(f"reduce_{op}({n}, {dst[0]}, axis = {ax}{(', accumulate = true' if acc else '')});")
        first = '' if acc else f"{dst[0]}[{', '.join(oi)}] = {n}[{', '.join((its[d] if d != ax else '0' for d in range(len(its))))}];"
        rng = ', '.join((f'{v} in {shape[d]}' for d, v in enumerate(its) if d != ax))
        D = f"{dst[0]}[{', '.join(oi)}]"
        E = f"{n}[{', '.join(its)}]"
        upd = f'{D} = {D} + {E};' if op == 'sum' else f'{D} = {op}({D}, {E});'
        a = its[ax]
        body = f'{first} for ({a} in {(0 if acc else 1)} .. {shape[ax]}) {upd}'
        self.in_reference(f'for ({rng}) {{ {body} }}' if rng else f'{{ {body} }}')
        if op == 'sum':
            self.keep_small(dst)

    def keep_small(self, b):
        """Sums grow; other values do not."""
        n, scope, typ, shape = b
        its = self.IT[:len(shape)]
        st = f"{n}[{', '.join(its)}] = {self.small(typ, f'{n}[' + ', '.join(its) + ']')};"
        self.in_kernel(f'parallel ({self.loops(shape, its)}) {st}')
        self.in_reference(f'for ({self.loops(shape, its)}) {st}')

    def scan(self):
        src = self.pick(lambda b: b[2] in ('i32', 'i64', 'f32'))
        if not src:
            return
        n, scope, typ, shape = src
        ax = self.rng.randrange(len(shape))
        op = self.rng.choice(['sum', 'max'])
        dst = src if self.rng.random() < 0.3 else self.new(typ=typ, shape=shape)
        its = self.IT[:len(shape)]
        self.in_kernel(f'scan_{op}({n}, {dst[0]}, axis = {ax});')
        E = ', '.join(its)
        P = ', '.join((f'{v} - 1' if d == ax else v for d, v in enumerate(its)))
        upd = f'{dst[0]}[{P}] + {n}[{E}]' if op == 'sum' else f'max({dst[0]}[{P}], {n}[{E}])'
        order = [d for d in range(len(its)) if d != ax] + [ax]
        self.in_reference(f"for ({', '.join((f'{its[d]} in {shape[d]}' for d in order))}) {dst[0]}[{E}] = {its[ax]} > 0 ? {upd} : {n}[{E}];")
        if op == 'sum':
            self.keep_small(dst)

    def gemm(self):
        """A product of operands as they are, or made for it."""
        m, n, k = (self.rng.choice([8, 16, 16, 32, 48, 64, 20]) for _ in range(3))
        t = self.rng.choice(['f16', 'bf16', 'f32', 'f16'])

        def operand(x, y):
            c = [b for b in self.buffers if b[3] == (x, y) and b[2] == t]
            if c and self.rng.random() < 0.7:
                return (self.rng.choice(c)[0], False)
            c = [b for b in self.buffers if b[3] == (y, x) and b[2] == t and (b[1] == 'shared')]
            if c and self.rng.random() < 0.5:
                return (self.rng.choice(c)[0], True)
            tr = self.rng.random() < 0.4
            sc = 'shared' if tr else self.rng.choice(['shared', 'shared', 'fragment'])
            b = self.new(scope=sc, typ=t, shape=(y, x) if tr else (x, y))
            src = self.pick(lambda q: q[1] == 'shared' and len(q[3]) == 2)
            its = self.IT[:2]
            if src:
                e = self.element(src, its, b[3], None)
                st = f'{b[0]}[i, j] = {self.small(t, self.converted(e, src[2], t))};'
                if b[0] + '[' in e:
                    st = f'{b[0]}[i, j] = {t}((i + j) % 3);'
            else:
                st = f'{b[0]}[i, j] = {t}((i * 3 + j) % 5);'
            self.in_kernel(f'parallel ({self.loops(b[3], its)}) {st}')
            self.in_reference(f'for ({self.loops(b[3], its)}) {st}')
            return (b[0], tr)
        a, at = operand(m, k)
        b, bt = operand(k, n)
        c = self.new(scope='fragment', typ='f32', shape=(m, n))
        self.in_kernel(f'fill({c[0]}, 1);')
        self.in_reference(f'for (i in {m}, j in {n}) {c[0]}[i, j] = 1;')
        self.in_kernel(f"gemm({a}{('.T' if at else '')}, {b}{('.T' if bt else '')}, {c[0]});")
        A = f'{a}[k, i]' if at else f'{a}[i, k]'
        B = f'{b}[j, k]' if bt else f'{b}[k, j]'
        self.in_reference(f'for (i in {m}, j in {n}, k in {k}) {c[0]}[i, j] = {c[0]}[i, j] + f32({A}) * f32({B});')
        self.keep_small(c)

    def loop(self):
        """A loop, pipelined or not, that may bring a tile each time."""
        if self.depth > 4:
            return
        v = self.name('n')
        trips = self.rng.choice([str(self.rng.randrange(0, 5)), self.dim(self.rng.randrange(0, 7))])
        kind = self.rng.choice(['for', 'for', 'pipelined'])
        src = None
        if kind == 'pipelined':
            self.in_kernel(f'pipelined ({v} in {trips}, stages = {self.rng.choice([1, 2, 3])}) {{')
        else:
            self.in_kernel(f'for ({v} in {trips}) {{')
        self.in_reference(f'for ({v} in {trips}) {{')
        self.depth += 1
        save = list(self.buffers)
        if self.rng.random() < 0.7:
            cols = self.rng.choice([8, 16, 32, 24, 64])
            rows = self.rng.choice([4, 8, 16, 32])
            t = self.type()
            d = self.dim(self.rng.choice([1, rows, rows * 3, rows * 2 - 1]))
            c = self.rng.choice([str(cols), self.dim(self.rng.choice([cols, cols - 1, cols + 8]))])
            T = self.tensor(t, [d, c])
            key = len(self.kernel)
            b = self.new(scope='shared', typ=t, shape=(rows, cols))
            self.in_kernel(f'copy({T}[{v} * {rows}, 0], {b[0]});')
            self.in_reference(f'for (i in {rows}, j in {cols}) {{ if ({v} * {rows} + i < {d} && j < {c}) {b[0]}[i, j] = {T}[{v} * {rows} + i, j]; else {b[0]}[i, j] = 0; }}')
            o = [x for x in save if x[3] == (rows, cols)]
            if o:
                x = self.rng.choice(o)
                st = f"{x[0]}[i, j] = {self.small(x[2], f'({x[0]}[i, j] + ' + self.small(x[2], self.converted(b[0] + '[i, j]', t, x[2])) + ')')};"
                self.in_kernel(f'parallel (i in {rows}, j in {cols}) {st}')
                self.in_reference(f'for (i in {rows}, j in {cols}) {st}')
        for _ in range(self.rng.randrange(1, 4)):
            self.statement()
        if kind == 'for' and self.rng.random() < 0.15:
            self.in_both(f'if ({v} > 2) break;')
        self.depth -= 1
        self.in_both('}')
        self.buffers = save

    def branch(self):
        """An if of the block."""
        if self.depth > 4:
            return
        d = self.dim(self.rng.randrange(0, 3))
        save = list(self.buffers)
        b = self.pick(lambda b: b[1] == 'shared')
        c = f'{d} == 1' if self.rng.random() < 0.6 or not b else f"{b[0]}[{', '.join(('0' for _ in b[3]))}] > 1"
        self.in_both(f'if ({c}) {{')
        self.depth += 1
        for _ in range(self.rng.randrange(1, 3)):
            self.statement()
        self.depth -= 1
        self.buffers = list(save)
        if self.rng.random() < 0.4:
            self.in_both('} else {')
            self.depth += 1
            for _ in range(self.rng.randrange(1, 3)):
                self.statement()
            self.depth -= 1
            self.buffers = save
        self.in_both('}')

    def scalar(self):
        """An element that the block reads, and perhaps stores."""
        b = self.pick()
        if not b:
            return
        v = self.name('v')
        ix = ', '.join((str(self.rng.randrange(e)) for e in b[3]))
        self.in_both(f'let {v} = {b[0]}[{ix}];')
        d = self.pick(lambda q: q[1] == 'shared')
        if d and self.rng.random() < 0.6:
            ix = ', '.join((str(self.rng.randrange(e)) for e in d[3]))
            self.in_both(f'{d[0]}[{ix}] = {self.converted(v, b[2], d[2])};')
        elif d:
            its = self.IT[:len(d[3])]
            E = ', '.join(its)
            st = f"{d[0]}[{E}] = {self.small(d[2], f'({d[0]}[{E}] + ' + self.converted(v, b[2], d[2]) + ')')};"
            self.in_kernel(f'parallel ({self.loops(d[3], its)}) {st}')
            self.in_reference(f'for ({self.loops(d[3], its)}) {st}')

    def output(self, b, grid=None):
        """The buffer, as far as a tensor has room."""
        n, scope, typ, shape = b
        its = self.IT[:len(shape)]
        dyn = [self.dim(max(1, e + self.rng.choice([0, 0, -1, 4]))) if self.rng.random() < 0.4 else str(e) for e in shape]
        k = self.rng.random()
        T = self.tensor(typ, dyn, 'inout ')
        E = ', '.join(its)
        self.in_kernel(f"copy({n}, {T}[{', '.join(('0' for _ in shape))}]);" if k < 0.7 else f'parallel ({self.loops(shape, its)}) {T}[{E}] = {n}[{E}];')
        self.in_reference(f"for ({self.loops(shape, its)}) {{ if ({' && '.join((f'{v} < {d}' for v, d in zip(its, dyn)))}) {T}[{E}] = {n}[{E}]; }}")

    def statement(self):
        f = self.rng.choices([self.input, self.parallel, self.copy, self.reduce, self.scan, self.gemm, self.loop, self.branch, self.scalar], [2, 5, 4, 2, 1, 1, 2, 1, 1])[0]
        f()

    def program(self, n):
        for _ in range(2):
            self.input()
        for _ in range(self.rng.randrange(3, 9)):
            self.statement()
        for b in self.rng.sample(self.buffers, min(3, len(self.buffers))):
            self.output(b)
        ps = ', '.join((f"{n}: {m}{t}[{', '.join(sh)}]" for n, m, t, sh in self.params))
        fills = []
        for nm, m, t, sh in self.params:
            its = self.IT[:len(sh)]
            fills.append(f"for ({self.loops(sh, its)}) {nm}[{', '.join(its)}] = {t}(({' + '.join((f'{v} * {self.rng.choice([1, 3, 5, 7])}' for v in its))} + {self.rng.randrange(9)}) % {self.rng.choice([5, 7, 9])});")
        bound = set((d for _, _, _, sh in self.params for d in sh))
        free = [d for d in self.tests if d not in bound]
        ps += ''.join((f', {d}: i64' for d in free))
        bind = ', '.join((f'{d} = {v}' for d, v in self.tests.items()))
        return f'kernel k{n}({ps}) {{\n    grid (b in 1) threads {self.threads} {{\n' + '\n'.join(self.kernel) + '\n    }\n}\n' + f'reference k{n} {{\n' + '\n'.join(self.reference) + '\n}\n' + f'test k{n} ({bind}) {{ ' + '\n'.join(fills) + ' } tolerance 0;\n'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tilec")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    ours, _, theirs = " ".join(sys.argv[1:]).partition(" -- ")
    args = parser.parse_args(ours.split())
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for n in range(args.count):
            path = pathlib.Path(folder) / f"tiles{n}.tile"
            path.write_text(Program(args.seed * 1000003 + n).program(n))
            run = subprocess.run([args.tilec, "test", *theirs.split(), str(path)], capture_output=True, text=True)
            if run.returncode:
                failed += 1
                print(run.stdout[-2000:], run.stderr[-2000:], path.read_text(), sep="\n")
    print(f"{args.count} programs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
