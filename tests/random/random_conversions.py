#!/usr/bin/env python3
"""Random conversions of fragments between two layouts: right on the emulator, by the cheapest way, with the cost that is printed.

    random_conversions.py TILEC [--count 2000] [--seed 1] [--target sm_90a] [--profile odd]    checks of the list below
    random_conversions.py TILEC --write FOLDER [--count 300]                   the programs and their code, through ptxas
    random_conversions.py TILEC-GPU --compiled FOLDER                          runs those on the device

Elements of 8 to 64 bits, 32 to 512 threads, extents that are powers of two and others, replicas, few or many bits exchanged. Profile
`odd`: no extents that are powers of two alone; odd digits of tile and threads in any places, which may differ.
What is checked comes from enumeration of lanes and values, by a model of its own (nothing here asks `tilec layout`):

    results     each element has its value (tilec test)
    way         what each thread has moves within threads; of what is within warps both ways are compared, and the cheaper is taken
    wavefronts  words of shared memory by bank, phase by phase, are as many as the remark says, for the first and the last warp
    optimum     no way through shared memory has fewer wavefronts than that (see `optimum`), where both sides have the digits of a
                tile and none that is odd stands in lanes; else no fewer than a way by simple layouts has (see `simple_ways`)
"""
import collections
import itertools
import math
import pathlib
import random
import re
import sys
import tempfile
import types

import driver

TYPES = {"i8": 8, "u8": 8, "i16": 16, "f16": 16, "bf16": 16, "i32": 32, "f32": 32, "i64": 64, "f64": 64}
LANES, BANKS, WORD, WIDEST = 32, 32, 4, 16
MATRICES = ("ldmatrix", "stmatrix")
MOST_BYTES, MOST_VALUES = 48 * 1024, 64


# ---- layouts: digits (extent, stride, output), fastest first, of threads and of values ----

def factors(extent):
    """2 x 2 x ..., then what is odd."""
    found = []
    while extent % 2 == 0:
        found.append(2)
        extent //= 2
    return found + ([extent] if extent > 1 else [])


class Layout:

    def __init__(self, threads, values):
        self.threads, self.values = threads, values

    def text(self):
        halves = [[], []]
        for digits in (self.threads, self.values):
            digits = digits or [(1, 0, 0)]
            halves[0].append("(" + ",".join(str(e) for e, _, _ in digits) + ")")
            halves[1].append("(" + ",".join(f"{s}@{o}" if s else "0" for _, s, o in digits) + ")")
        return f"({','.join(halves[0])}):({','.join(halves[1])})"

    def at(self, thread, value):
        place = [0, 0]
        for number, digits in ((thread, self.threads), (value, self.values)):
            for extent, stride, out in digits:
                place[out] += number % extent * stride
                number //= extent
        return tuple(place)

    def count(self, which):
        return math.prod(e for e, _, _ in (self.threads if which == 0 else self.values))


class Conversion:
    """A pair of layouts of one tile."""

    def __init__(self, seed, profile="any"):
        self.seed = seed
        self.odd = profile == "odd"
        r = self.random = random.Random(f"conversion {seed} odd" if self.odd else f"conversion {seed}")
        self.type = r.choice(list(TYPES))
        self.bytes = TYPES[self.type] // 8
        self.binary = not self.odd and r.random() < 0.65
        while True:
            if self.odd:
                self.draw_odd()
            else:
                self.draw()
            warps, size = self.count // LANES, math.prod(self.shape)
            fits = all(warps % p or size % p == 0 for p in (3, 5)) or self.odd and r.random() < 0.1
            if fits and self.count <= size <= self.count * MOST_VALUES and size * self.bytes <= MOST_BYTES:
                break
        self.source = self.spread(None)
        self.destination = self.spread(self.order)

    def draw(self):
        r = self.random
        warps = r.choice([1, 1, 2, 2, 4, 4, 8, 16] if self.binary or r.random() < 0.7 else [3, 5, 6, 12])
        self.count = LANES * warps
        self.shape = [2 ** r.randint(0, 7), 2 ** r.randint(2, 8)]
        if not self.binary:
            self.shape[r.randrange(2)] *= r.choice([3, 3, 5, 7])

    def draw_odd(self):
        r = self.random
        self.count = LANES * r.choice([1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 12, 12, 15])
        factors_of = r.choice([[1, 3], [3, 1], [1, 5], [7, 1], [3, 3], [3, 5], [1, 9], [9, 1], [15, 1]])
        self.shape = [2 ** r.randint(0, 6) * factors_of[0], 2 ** r.randint(1, 7) * factors_of[1]]

    def spread(self, before):
        """Digits of both dims in an order: those of the threads first. Few exchanges of the order before, or another one."""
        r = self.random
        digits = []
        for dim in range(2):
            stride = 1
            extents = factors(self.shape[dim])
            if r.random() < 0.2:
                r.shuffle(extents)   # the odd digit is not the slowest one
            if before and not (self.odd and r.random() < 0.15):
                extents = [e for e, _, o in sorted(before, key=lambda d: d[1]) if o == dim]
            for extent in extents:
                digits.append((extent, stride, dim))
                stride *= extent
        odd_threads = [p for p in (3, 5, 7, 9, 15) if self.count % p == 0]
        if before and r.random() < 0.6 and set(digits) == {d for d in before if d[1]}:
            order = list(before)
            for _ in range(r.randint(1, 4)):
                i, j = r.randrange(len(order)), r.randrange(len(order))
                order[i], order[j] = order[j], order[i]
        else:
            order = digits
            r.shuffle(order)
            if r.random() < 0.4:   # what lies together along the second dim comes first among the values
                order.sort(key=lambda d: not (d[2] == 1 and d[1] < 16 // self.bytes) or r.random() < 0.2, reverse=True)
        if self.odd and r.random() < 0.7:   # lanes are bits
            twos = [d for d in order if d[0] == 2][:5]
            order = twos + [d for d in order if d not in twos]
        threads, values, left = [], [], self.count
        for digit in order:
            takes = left % digit[0] == 0 and (digit[0] == 2 and left % 2 == 0 or digit[0] in odd_threads)
            if takes:
                threads.append(digit)
                left //= digit[0]
            else:
                values.append(digit)
        for extent in factors(left) if left > 1 else []:   # replicas
            threads.insert(r.randint(5, len(threads)) if self.odd and len(threads) > 5 else len(threads), (extent, 0, 0))
        self.order = threads + values if left == 1 else order
        return Layout(threads, values)

    def name(self):
        return f"c{self.seed}"

    def text(self, store="copy(w, y);"):
        shape = ", ".join(map(str, self.shape))
        most = 97 if self.bytes == 1 else 251 if self.bytes == 2 else 65521
        value = f"(i * {self.shape[1]} + j) * 7 % {most}"
        return f"""kernel {self.name()}(x: {self.type}[{shape}], y: out {self.type}[{shape}]) {{
    grid (b in 1) threads {self.count} {{
        fragment v: {self.type}[{shape}] layout "{self.source.text()}";
        fragment w: {self.type}[{shape}] layout "{self.destination.text()}";
        copy(x, v);
        copy(v, w);
        {store}
    }}
}}
reference {self.name()} {{ for (i in {self.shape[0]}, j in {self.shape[1]}) y[i, j] = x[i, j]; }}
test {self.name()} () {{ for (i in {self.shape[0]}, j in {self.shape[1]}) x[i, j] = {value}; }} tolerance 0;
"""


# ---- places in shared memory, from the text of a layout ----

class Memory:
    """`Sw<B,M,S> o shape:strides` or `linear([..],[..])` of a tile of two dims, to one offset of elements."""

    def __init__(self, text, element_bytes):
        self.swizzle, self.bits, self.bytes = None, None, element_bytes
        found = re.fullmatch(r"Sw<(\d+),(\d+),(\d+)> o (.*)", text)
        if found:
            self.swizzle = tuple(map(int, found.groups()[:3]))
            text = found.group(4)
        if text.startswith("linear("):
            self.bits = self.inputs(text[7:-1])
            return
        shape, strides = (self.nested(half) for half in text.split(":"))
        self.dims = [[(e, s if len(s) == 2 else (s[0], 0)) for e, s in zip(*dim)] for dim in zip(shape, strides)]
        self.ranges = [1] * (1 + max(out for digits in self.dims for _, (_, out) in digits))
        for (extent,), (stride, out) in (digit for digits in self.dims for digit in digits):
            self.ranges[out] += (extent - 1) * stride

    @staticmethod
    def inputs(text):
        """Of each dim its digits: (extent, images)."""
        dims, several = [], False
        for token in re.findall(r"[()]|\[[^]]*\](?::\d+)?", text):
            if token in "()":
                several = token == "("
                dims += [[]] if several else []
                continue
            images, _, extent = token[1:].replace("]", "").partition(":")
            images = [int(n) for n in images.split(",") if n]
            dims += [] if several else [[]]
            dims[-1].append((int(extent or 2 ** len(images)), images))
        return dims

    @staticmethod
    def nested(text):
        """Of each dim its digits; `n@o` as (n, o)."""
        as_tuples = re.sub(r"(\d+)@(\d+)", r"'\1@\2'", text)
        halves = eval(as_tuples, {"__builtins__": {}})   # nested tuples of numbers and texts
        number = lambda leaf: tuple(map(int, leaf.split("@"))) if isinstance(leaf, str) else (leaf,)
        return [[number(leaf) for leaf in (dim if isinstance(dim, tuple) else (dim,))] for dim in halves]

    def offset(self, at):
        if self.bits:
            place = 0
            for x, digits in zip(at, self.bits):
                for extent, images in digits:
                    for bit, image in enumerate(images):
                        place ^= image if x % extent >> bit & 1 else 0
                    x //= extent
            return place
        outs = [0] * len(self.ranges)
        for x, digits in zip(at, self.dims):
            for d, ((extent,), (stride, out)) in enumerate(digits):
                outs[out] += (x if d == len(digits) - 1 else x % extent) * stride
                x //= extent
        if self.swizzle:
            b, m, s = self.swizzle
            byte = outs[-1] * self.bytes
            byte ^= (byte >> (m + s) & (2 ** b - 1)) << m
            outs[-1] = byte // self.bytes
        place = 0
        for value, extent in zip(outs, self.ranges):
            place = place * extent + value
        return place


def wavefronts_of_phase(addresses, size):
    """The most words that one bank has to give."""
    banks = collections.defaultdict(set)
    for address in addresses:
        for word in range(address // WORD, (address + size - 1) // WORD + 1):
            banks[word % BANKS].add(word)
    return max((len(words) for words in banks.values()), default=0)


def vectors(held, width):
    """By place: the values that lie there together, in order. None where the thread does not have all."""
    values = {place: value for place, value in held.items()}
    return {p: tuple(values.get(p + e) for e in range(width)) for p in {p - p % width for p in held}}


def widest(elements, most):
    """All threads have their elements in such vectors, of the same values in the same order."""
    def fits(width):
        of = [set(vectors(held, width).values()) for held in elements if held]
        return all(each == of[0] and not any(None in vector for vector in each) for each in of)

    return max(width for width in (16, 8, 4, 2, 1) if width <= most and (width == 1 or fits(width)))


def places_of(layout, memory, thread, store):
    """Place -> value of what the thread accesses: of replicas the first one stores."""
    weight = 1
    for extent, stride, _ in layout.threads:
        if store and not stride and thread // weight % extent:
            return {}
        weight *= extent
    return {memory.offset(layout.at(thread, v)): v for v in range(layout.count(1))}


def wavefronts(layout, memory, first, store, matrix):
    """Of the warp whose first thread is `first`, over all its accesses."""
    size = memory.bytes
    elements = [places_of(layout, memory, first + lane, store) for lane in range(LANES)]
    if matrix:
        return matrix_wavefronts(layout, elements, size)
    warps = [places_of(layout, memory, LANES << w, store) for w in range((layout.count(0) // LANES).bit_length() - 1)]
    width = widest(elements + warps, WIDEST // size)
    accesses = collections.defaultdict(dict)   # by the value: the lanes' vectors
    for lane, held in enumerate(elements):
        for place, value in held.items():
            accesses[value][lane] = place - place % width
    distinct = {tuple(sorted(access.items())) for access in accesses.values()}
    phase = max(1, min(LANES, BANKS * WORD // max(width * size, WORD)))
    return sum(wavefronts_of_phase([place * size for lane, place in access if begin <= lane < begin + phase], width * size)
               for access in distinct for begin in range(0, LANES, phase))


def loop_wavefronts(layout, memory, store, vector):
    """Of all warps: a loop moves so many values in order at once, or halves of them, where they lie together in order."""
    size = memory.bytes
    threads = [{value: place for place, value in places_of(layout, memory, thread, store).items()}
               for thread in range(layout.count(0))]

    def fits(width):
        return all(held[v] % width == v % width == 0 or held[v] == held[v - v % width] + v % width and held[v - v % width] % width == 0
                   for held in threads for v in held)

    width = vector
    while width > 1 and not fits(width):
        width //= 2
    phase = max(1, min(LANES, BANKS * WORD // max(width * size, WORD)))
    return sum(wavefronts_of_phase([held[value] * size for held in threads[begin:begin + phase] if held], width * size)
               for value in range(0, layout.count(1), width) for begin in range(0, len(threads), phase))


def byte_matrix_wavefronts(layout, elements, row):
    """Of ldmatrix_bytes: lane l gives the row that lane l / 4 % 4 has with the values of l % 4, by the two first value bits that
    lead to other rows. Eight lanes are a phase."""
    at = [{value: place for place, value in held.items()} for held in elements]
    starts = lambda lane, value: at[lane][value] - at[lane][value] % row
    weights = [math.prod(e for e, _, _ in layout.values[:d]) for d in range(len(layout.values))]
    weights = [w for w, (e, s, _) in zip(weights, layout.values) if e % 2 == 0 and starts(0, w) != starts(0, 0)][:2]
    phases = set()
    for value in at[0]:
        base = value - sum(w for w in weights if value // w % 2)
        for half in (0, 2):
            phases.add(frozenset(starts(half + lane, base + a * weights[0] + b * weights[1])
                                 for lane in (0, 1) for a in (0, 1) for b in (0, 1)))
    assert all(len(rows) == 8 for rows in phases), "a phase has eight rows"
    return sum(wavefronts_of_phase(rows, WIDEST) for rows in phases)


def matrix_wavefronts(layout, elements, size):
    """Each matrix has eight rows of 16 bytes. A value of all lanes lies in eight rows, or transposed in four: then the first
    value bit that leads to other rows names the other four."""
    row = WIDEST // size
    rows_of = collections.defaultdict(set)
    for held in elements:
        for place, value in held.items():
            rows_of[value].add(place - place % row)
    partner = {value: value for value in rows_of}
    if size == 1 and len(rows_of[0]) == 4:
        return byte_matrix_wavefronts(layout, elements, row)
    if any(len(rows) == 4 for rows in rows_of.values()):
        weights = [math.prod(e for e, _, _ in layout.values[:d]) for d in range(len(layout.values))]
        weight = next(w for w, (e, s, _) in zip(weights, layout.values) if e % 2 == 0 and rows_of[w] != rows_of[0])
        partner = {value: value + weight if value // weight % 2 == 0 else value - weight for value in rows_of}
    matrices = {frozenset(rows_of[value] | rows_of[partner[value]]) for value in rows_of}
    assert all(len(rows) == 8 for rows in matrices), "a matrix has eight rows"
    return sum(wavefronts_of_phase([place * size for place in rows], WIDEST) for rows in matrices)


# ---- the optimum ----

def matrix_rows(conversion, side):
    """Rows of 16 bytes that `side` moves by matrices, as bits of the tile in their order."""
    lanes = [(s, o) for _, s, o in side.threads[:5]]
    values = {(s, o) for _, s, o in side.values}
    own = int(math.log2(WORD // conversion.bytes))
    for first in itertools.permutations(values, own):
        yield list(first) + lanes[:2]
    if conversion.bytes == 2:
        yield lanes[2:]
    if conversion.bytes == 1:
        yield from (lanes[2:] + [value] for value in values)


def next_to_rows(conversion, row, other, cost):
    """The fewest wavefronts of `other` by vectors: a prefix of the row. The row takes its banks in every phase; if the lanes of a
    phase need more than the banks that are left, they conflict."""
    held = {(s, o) for _, s, o in other.values}
    most = next((n for n, bit in enumerate(row) if bit not in held), len(row))

    def of(width):
        words = max(0, width + int(math.log2(conversion.bytes / WORD)))
        active = {(s, o) for _, s, o in other.threads[:5 - words] if s}
        return cost(width) * 2 ** max(0, len(active | set(row)) - int(math.log2(BANKS * WORD // conversion.bytes)))

    return min(of(width) for width in range(most + 1))


def quotient(conversion):
    """Both sides on bits, without the odd digits that both have, and how often each repeats its accesses. None: the sides have other
    digits than each other, or odd ones in lanes."""
    sides = [conversion.source, conversion.destination]
    digits = [{d for d in side.threads + side.values if d[1]} for side in sides]
    odd = [d for d in digits[0] if d[0] % 2]
    in_lanes = any(e % 2 and math.prod(d[0] for d in side.threads[:n]) % LANES for side in sides for n, (e, _, _) in
                   enumerate(side.threads))
    if digits[0] != digits[1] or in_lanes:
        return None
    divided = lambda s, o: s // math.prod(e for e, below, out in odd if out == o and below < s)
    bits = lambda half: [(e, divided(s, o), o) for e, s, o in half if e == 2]
    return types.SimpleNamespace(bytes=conversion.bytes, times=[math.prod(e for e, _, _ in side.values if e % 2) for side in sides],
                                 source=Layout(bits(sides[0].threads), bits(sides[0].values)),
                                 destination=Layout(bits(sides[1].threads), bits(sides[1].values)))


def same_odd_places(conversion):
    """The odd digits, copies too, stand at the same places of threads, or in values, on both sides."""
    places = []
    for side in (conversion.source, conversion.destination):
        digits = {d for d in side.threads + side.values if d[1]}
        weights = [(math.prod(d[0] for d in side.threads[:n]), d[0], d[1]) for n, d in enumerate(side.threads) if d[0] % 2]
        places.append((digits, weights, {d for d in side.values if d[0] % 2}))
    return places[0] == places[1]


def optimum(conversion, matrices):
    """Of a quotient. No way has fewer wavefronts than each side by itself, without conflicts, with the widest vectors that both have.

    The first bits of a place are those of the wider vector; those of the narrower vector are a prefix, which both sides hold in registers.
    So of the widths a and b the smaller is within the common registers. An access of w bytes by 32 lanes takes max(1, w / 4) wavefronts.
    Matrices, of the sides in `matrices`, move 128 bytes a wavefront."""
    sides = [conversion.source, conversion.destination]
    registers = [{(s, o) for _, s, o in side.values} for side in sides]
    common, most = len(registers[0] & registers[1]), int(math.log2(WIDEST // conversion.bytes))
    counts = [len(r) for r in registers]

    def cost(side, width):
        return conversion.times[side] * 2 ** (counts[side] - width) * max(1, 2 ** width * conversion.bytes // WORD)

    best = min(cost(0, a) + cost(1, b) for a in range(min(most, counts[0]) + 1)
               for b in range(min(most, counts[1]) + 1) if min(a, b) <= common)
    whole = [t * max(1, 2 ** n * LANES * conversion.bytes // (BANKS * WORD)) for t, n in zip(conversion.times, counts)]
    if len(matrices) == 2:
        return min(best, sum(whole))
    for side in matrices:
        for row in matrix_rows(conversion, sides[side]):
            best = min(best, whole[side] + next_to_rows(conversion, row, sides[1 - side], lambda width: cost(1 - side, width)))
    return best


class InOrder:
    """A place in memory for each element, in an order of them."""

    def __init__(self, elements, element_bytes):
        self.places, self.bytes = {}, element_bytes
        for element in elements:
            self.places.setdefault(element, len(self.places))

    def offset(self, at):
        return self.places[at]


def simple_ways(conversion):
    """Wavefronts of all warps, by loops over elements: row-major, and threads side by side for each value of a side."""
    sides = [conversion.source, conversion.destination]
    orders = [[side.at(t, v) for v in range(side.count(1)) for t in range(side.count(0))] for side in sides]
    for order in [sorted(orders[0]), *orders]:
        memory = InOrder(order, conversion.bytes)
        yield sum(loop_wavefronts(side, memory, store, 1) for side, store in zip(sides, (True, False)))


# ---- what tilec did ----

def decisions(options, path):
    """By kernel: (way, layout of the scratch or None, (store, load) mechanisms, vectors of these, note)."""
    done = driver.tilec(options, "opt", "-R", f"--target={options.target}", "--stop-after=swizzle-allocation", "--repro-dir=none", path)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    lines = path.read_text().split("\n")
    kernel_of, name = {}, None
    for number, line in enumerate(lines, 1):
        name = line[7:line.index("(")] if line.startswith("kernel ") else name
        kernel_of[number] = name
    notes, at = {}, None
    for line in done.stderr.split("\n"):
        found = re.search(r":(\d+):\d+: remark\[(T\d+)\]", line)
        if found:
            at = kernel_of[int(found.group(1))] if found.group(2) == "T0531" else None
        elif at and "= note: from " in line:
            notes.setdefault(at, line.split("= note: ", 1)[1])
    found = {}
    for block in re.split(r"(?m)^(?=@|kernel )", done.stdout):
        head = re.search(r"kernel (\w+)\(", block)
        if not head or head.group(1) in found:
            continue
        shared = re.search(r'shared v_1: (\w+)\[[^]]*\] layout "([^"]*)"', block)
        store = re.search(r"^(.*) copy\(v, v_1\);", block, re.M)
        load = re.search(r"^(.*) copy\(v_1, w\);", block, re.M)
        direct = re.search(r"^(.*)copy\(v, w\);", block, re.M)
        vector = lambda m: int((m and re.search(r"@vector\((\d+)\)", m.group(1)) or [0, 1])[1])
        via = lambda m: re.search(r"@via\((\w+)\)", m.group(1)).group(1) if m and "@via" in m.group(1) else "loop"
        way = "shared" if shared else "shuffle" if direct and via(direct) == "shuffle" else "threads"
        found[head.group(1)] = (way, shared and shared.group(2), (via(store), via(load)), (vector(store), vector(load)), notes.get(head.group(1), ""))
    return found


def within(conversion, group):
    """Whether each group of threads has what it needs."""
    a, b = conversion.source, conversion.destination
    for first in range(0, conversion.count, group):
        has = {a.at(t, v) for t in range(first, first + group) for v in range(a.count(1))}
        if any(b.at(t, v) not in has for t in range(first, first + group) for v in range(b.count(1))):
            return False
    return True


def problems(conversion, decision, target, counts):
    way, layout, mechanisms, vectors_taken, note = decision
    common = quotient(conversion)
    if within(conversion, 1):
        counts["within threads"] += 1
        if way == "shared":
            yield "goes through shared memory, and each thread has what it needs"
        return
    clocks = [int(n) for n in re.findall(r"(?:, |: )(\d+)(?: clocks|\)$)", note)]
    counts[way] += 1
    if len(clocks) == 2 and clocks[0] > clocks[1]:
        yield f"takes the dearer way: {note}"
    if way == "shared" and within(conversion, LANES) and len(clocks) < 2:
        counts["shared: not compared with shuffles"] += 1
        if same_odd_places(conversion):
            yield f"is not compared with shuffles: {note}"
    if not clocks:
        yield f"a way without a price: {note}"
    if way != "shared":
        return
    memory = Memory(layout, conversion.bytes)
    sides = [(conversion.source, True, mechanisms[0]), (conversion.destination, False, mechanisms[1])]
    printed = re.search(r"(\d+) wavefronts of shared memory (a warp|in all)", note)
    if printed.group(2) == "in all":
        counts["shared: by loops"] += 1
        got = [loop_wavefronts(side, memory, store, vector) for (side, store, _), vector in zip(sides, vectors_taken)]
        if common:
            yield f"by loops, and both sides have the same digits: {note}"
        if sum(got) != int(printed.group(1)):
            yield f"{got} wavefronts and not {printed.group(1)}: {note} {layout} {vectors_taken}"
        simple = min(simple_ways(conversion))
        if sum(got) > simple:
            yield f"{got} wavefronts, and {simple} in a simple layout: {note} {layout}"
        return
    counts["shared: " + " and ".join(mechanisms)] += 1
    warps = {0, conversion.count - LANES}
    got = [[wavefronts(side, memory, first, store, via in MATRICES) for side, store, via in sides] for first in warps]
    most = max(map(sum, got))
    if most != int(printed.group(1)):
        yield f"{most} wavefronts {got} and not {printed.group(1)}: {note} {layout} {mechanisms}"
    if common:
        best = optimum(common, [i for i in range(2) if mechanisms[i] in MATRICES])
        counts["shared, with an optimum"] += 1
        if int(printed.group(1)) > best:
            yield f"{printed.group(1)} wavefronts, {best} are possible: {note} {layout} {mechanisms}"


# ---- all of them, in batches ----

def batch_of(options, first):
    return [Conversion(seed, options.profile) for seed in range(first, min(first + options.batch, options.seed + options.count))]


def check(options, first):
    """(counts, problems)"""
    counts, batch = collections.Counter(), batch_of(options, first)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "conversions.tile"
        path.write_text("\n".join(c.text() for c in batch))
        done = driver.emulated(options, path)
        counts["right"] = len(re.findall(r"^ok ", done.said, re.M))
        if done.returncode or counts["right"] != len(batch):
            return counts, [f"seeds {first} to {batch[-1].seed}: exit {done.returncode}\n{done.said[-3000:]}"]
        found = decisions(options, path)
    return counts, [f"seed {conversion.seed}: {problem}\n{conversion.text()}" for conversion in batch
                    for problem in problems(conversion, found[conversion.name()], options.target, counts)]


def check_all(options):
    counts, bad = collections.Counter(), 0
    for _, (found, wrong) in driver.results(options, check, options.batch):
        counts.update(found)
        bad += len(wrong)
        print("".join(f"{text}\n" for text in wrong), end="", flush=True)
    print(f"{driver.seeds_text(options)}: " + ", ".join(f"{n} {k}" for k, n in sorted(counts.items())))
    print(f"{bad} problems")
    return 1 if bad or not counts["right"] else 0


def write_batch(options, first):
    path = options.write / f"conversions_{first:05d}.tile"
    path.write_text("\n".join(c.text() for c in batch_of(options, first)))
    return driver.compiled(options, path)


def write(options):
    options.write.mkdir(parents=True, exist_ok=True)
    failed = sum(not done for _, done in driver.results(options, write_batch, options.batch))
    print(f"{options.count} conversions, {failed} batches that do not compile")
    return 1 if failed else 0


def main():
    parser = driver.parser(__doc__, 2000)
    parser.add_argument("--batch", type=int, default=25)
    parser.add_argument("--profile", choices=["any", "odd"], default="any")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--compiled", type=pathlib.Path)
    options = parser.parse_args()
    return (write if options.write else driver.on_device if options.compiled else check_all)(options)


if __name__ == "__main__":
    sys.exit(main())
