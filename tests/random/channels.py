"""Random kernels with channels (docs/reference/language.md, Channels): a piece of generator.Program.

Roles stand in the order in which they hand tiles on, and each trip fills and empties the same slots in all of them, at most as many as
a channel has; so no program waits for itself: a wait leads to an earlier role of the same trip, or to an earlier trip.
"""
import math


class Channel:
    """`tiles`: (name, type, shape, bound), shape None for a scalar; `each`: productions of one trip; `when`: of which trips."""

    def __init__(self, name, tiles, slots, each, when):
        self.name, self.tiles, self.slots, self.each, self.when = name, tiles, slots, each, when
        self.filled_by, self.read_by = [], []

    def declared(self):
        one = len(self.tiles) == 1 and self.tiles[0][0] == self.name
        texts = [f"{name}: {type_}" + (f"[{', '.join(map(str, shape))}]" if shape else "") for name, type_, shape, _ in self.tiles]
        return f"channel {texts[0] if one else self.name + ' (' + ', '.join(texts) + ')'} slots {self.slots};"


class Channels:

    def channels(self):
        self.in_role = True   # what follows the roles stands nowhere
        self.barriers = False
        self.pick([self.handed_on] * 5 + [self.ahead, self.ahead, self.alternating, self.dealt])()

    # ---- what a slot has, and how it is filled and read ----
    def channel(self, columns=None):
        name, tiles = self.name("ch"), []
        for _ in range(self.pick([1, 1, 2, 3])):
            type_ = self.pick(["f16", "f32", "f32", "i32", "bf16", "i8", "u8", "i64", "e4m3", "f64", "u16"])
            tiles.append((self.name("t"), type_, self.slot_shape(), min(8, self.limit(type_))))
        if self.chance(0.3):
            tiles.append((self.name("t"), self.pick(["i32", "i64", "f32", "u8"]), None, 8))
        if len(tiles) == 1 and self.chance(0.6):
            tiles = [(name,) + tiles[0][1:]]
        slots = self.random.randint(1, 4)
        when = self.pick(["", "", "", "n % 2 == 0", "n > 0", "n != 1"])
        return Channel(name, tiles, slots, self.pick([1, 1, 2]) if slots > 1 else 1, when)

    def slot_shape(self):
        return self.pick([(8, 16), (16, 16), (4, 32), (16, 64), (64,), (32,), (7,), (5, 3), (33, 8), (1, 128), (2, 4, 8)])

    def field(self, channel, tile, handle):
        return (handle if tile[0] == channel.name else f"{handle}.{tile[0]}") if handle else tile[0]

    def fields(self, channel, handle):
        """Tiles of a slot as buffers of the generator."""
        return [self.Buffer(self.field(channel, t, handle), "shared", *t[1:]) for t in channel.tiles if t[2]]

    def filled(self, channel, handle, known):
        """Each element of the slot is written; `known` may be read."""
        known = list(known)
        for tile in channel.tiles:
            name, (_, type_, shape, bound) = self.field(channel, tile, handle), tile
            if shape is None:
                self.add(f"{name} = {self.fit(type_, *self.cast('n', 'i64', 8, type_), bound)[0]};")
                continue
            here = self.Buffer(name, "shared", type_, shape, bound)
            kind, its = self.random.random(), ["i", "j", "k"][:len(shape)]
            if kind < 0.5:
                rows = self.pick([1, shape[0], shape[0] * 3, shape[0] * 2 - 1])
                tensor = self.tensor(type_, [rows] + [e + self.pick([0, 0, 8, -1 if e > 1 else 0]) for e in shape[1:]], bound)
                corner = [self.pick([f"n * {shape[0]}", f"n * {shape[0]}", "0"])] + ["0"] * (len(shape) - 1)
                self.add(f"copy({tensor.name}[{', '.join(corner)}], {name});")
                if self.chance(0.2):   # the group may read what it has written
                    own = f"{name}[{', '.join(its)}]"
                    self.add(f"parallel ({self.head(its, shape)}) {own} = {self.fit(type_, f'({own} + {own})', 2 * bound, bound)[0]};")
            elif kind < 0.6:
                self.add(f"fill({name}, {self.random.randint(0, min(5, bound))});")
            else:
                self.buffers, kept = known, self.buffers
                value = self.value(here, its, shape)
                self.buffers = kept
                self.add(f"parallel ({self.head(its, shape)}) {name}[{', '.join(its)}] = {value};")
            if self.chance(0.3):
                known.append(here)
            self.spend(math.prod(shape))

    def used(self, channel, handle, totals):
        """Each tile goes into a total of its shape."""
        for tile in channel.tiles:
            name, (_, type_, shape, bound) = self.field(channel, tile, handle), tile
            total = totals[tile[0]]
            its = ["i", "j", "k"][:len(total.shape)]
            place = ", ".join(its)
            own = f"{total.name}[{place}]"
            kind = self.random.random()
            if shape is None:
                self.add(f"parallel ({self.head(its, total.shape)}) {own} = "
                         f"{self.fit(total.type, f'({own} + {self.cast(name, type_, bound, total.type)[0]})', 99, 50)[0]};")
            elif kind < 0.25:
                seen = self.buffer(type_, shape, "fragment", bound=bound)
                self.buffers.remove(seen)
                self.add(f"copy({name}, {seen.name});")
                self.later.append(f"parallel ({self.head(its, shape)}) {own} = "
                                  f"{self.added(total, own, f'{seen.name}[{place}]', type_, bound)};")
            elif kind < 0.4 and type_ in ("i32", "i64", "f32") and len(shape) == 2:
                sums = self.buffer(type_, shape[:1], "fragment", bound=bound * shape[1])
                self.buffers.remove(sums)
                self.add(f"reduce_{self.pick(['sum', 'max'])}({name}, {sums.name}, axis = 1);")
                self.add(f"parallel ({self.head(its, shape)}) {own} = {self.added(total, own, f'{sums.name}[i]', type_, sums.bound)};")
            else:
                at = ", ".join(self.pick([v, v, f"{e - 1} - {v}"]) for v, e in zip(its, shape))
                self.add(f"parallel ({self.head(its, shape)}) {own} = "
                         f"{self.added(total, own, f'{name}[{at}]', type_, bound)};")
            self.spend(math.prod(total.shape))

    def added(self, total, own, value, type_, bound):
        return self.fit(total.type, f"({own} * {total.type}(2) + {self.cast(value, type_, bound, total.type)[0]})", 999, 50)[0]

    def totals_of(self, channels):
        """A fragment for each tile, which begins as 0."""
        totals = {}
        for tile in (t for c in channels for t in c.tiles):
            here = self.buffer(self.pick(["i32", "f32", "i64"]) if tile[1][0] != "u" else "u32", tile[2] or (self.pick([1, 4, 32]),), "fragment", bound=50)
            self.add(f"fill({here.name}, 0);")
            totals[tile[0]] = here
        return totals

    # ---- lives of slots ----
    def produced(self, channel, known):
        if self.chance(0.5):
            self.add(f"produce {channel.name} {{")
            self.deeper(lambda: self.filled(channel, "", known))
            self.add("}")
            return
        handle = self.name("hf")
        self.add(f"let {handle} = acquire({channel.name});")
        self.filled(channel, handle, known)
        self.add(f"commit({handle});")

    def consumed(self, channel, totals, ends):
        """With a handle, the release may come later: it goes to `ends`."""
        if self.chance(0.5):
            self.add(f"consume {channel.name} {{")
            self.deeper(lambda: (self.used(channel, "", totals), self.catch_up()))
            self.add("}")
            return
        handle = self.name("hu")
        self.add(f"let {handle} = receive({channel.name});")
        self.used(channel, handle, totals)
        end = f"release({handle});"
        if ends is not None and self.chance(0.5):
            ends.append(end)
        else:
            self.add(end)

    def catch_up(self):
        """What is left to do with copies of tiles, before their block ends."""
        while self.later:
            self.add(self.later.pop())

    def deeper(self, write):
        self.kernel.depth += 1
        write()
        self.kernel.depth -= 1

    def trip(self, channel, write, ends):
        """What happens to the channel in one trip: under its condition, so often."""
        if channel.when:
            self.add(f"if ({channel.when}) {{")
            self.kernel.depth += 1
        if channel.each > 1 and self.chance(0.5):
            self.add(f"for (q in {channel.each}) {{")
            self.deeper(lambda: (write(None), self.catch_up()))
            self.add("}")
        else:
            for _ in range(channel.each):
                write(ends if not channel.when else None)
        if channel.when:
            self.catch_up()
            self.kernel.depth -= 1
            self.add("}")

    # ---- kernels ----
    def handed_on(self):
        """Roles that hand tiles to later ones; two may fill a slot together or read all of it. Sections in their order."""
        count = self.random.randint(2, 4)
        sizes = [self.pick([32, 32, 64, 128, 96]) for _ in range(count)]
        trips, most = self.trips(4)
        self.repeats = max(most, 1)
        channels = [self.channel() for _ in range(self.random.randint(1, 3))]
        for channel in channels:
            first = self.random.randrange(count - 1)
            channel.read_by = sorted(self.random.sample(range(first + 1, count), self.pick([1, 1, min(2, count - 1 - first)])))
            channel.filled_by = [first]
            if len(channel.tiles) > 1 and first and self.chance(0.4):
                channel.filled_by = [first - 1, first]
            self.add(channel.declared())
        filling = {number for channel in channels for number in channel.filled_by}
        members = [self.members(size, number not in filling) for number, size in enumerate(sizes)]
        self.threads = sum(size * count for size, count in zip(sizes, members))
        section = self.chance(0.25) and self.name("order")
        if section:
            log = self.tensor("i64", [e for _, e in self.grid], 8, "inout")
            self.section, self.log = section, f"{log.name}[{', '.join(n for n, _ in self.grid)}]"
            self.add(f"channel {section};")
        for role, size in enumerate(sizes):
            self.array(size, members[role], lambda index: self.role(role, channels, trips, section, index))

    # ---- arrays of roles: their members write what no other one writes, as the blocks of a grid do ----
    def members(self, size, legal):
        return self.pick([1, 1, 2, 3 if size <= 64 else 2]) if legal else 1

    def array(self, size, members, write):
        """A role, or so many with one text, whose index is in scope."""
        grid, blocks, index = self.grid, self.blocks, self.name("g")
        self.buffers, self.variables, self.later = [], [], []
        self.add(f"role {self.name('r')}{f'[{index} in {members}]' if members > 1 else ''} threads {size} {{")
        if members > 1:
            self.grid, self.blocks = grid + [(index, members)], blocks * members
            self.scalar_names.append(index)
        self.deeper(lambda: write(index if members > 1 else "0"))
        if members > 1:
            self.scalar_names.remove(index)
        self.grid, self.blocks = grid, blocks
        self.add("}")

    def role(self, number, channels, trips, section, index):
        reads = [c for c in channels if number in c.read_by]
        fills = [c for c in channels if number in c.filled_by]
        totals = self.totals_of(reads)
        self.add(f"for (n in {trips}) {{")
        self.kernel.depth += 1
        self.scalar_names.append("n")
        ends, steps = [], [("read", c) for c in reads] + [("fill", c) for c in fills]
        if section:
            steps.append(("section", None))
        self.random.shuffle(steps)
        for what, channel in steps:
            if what == "section":
                self.add(f"ordered {section} {{ {self.log} = ({self.log} * 3 + {number + 1} + n + {index}) % 1000; }}" if self.chance(0.7) else
                         f"enter({section}); {self.log} = ({self.log} * 5 + {number}) % 1000; leave({section});")
            elif what == "read":
                self.trip(channel, lambda ends: self.consumed(channel, totals, ends), ends)
            else:
                field = Channel(channel.name, channel.tiles, channel.slots, channel.each, channel.when)
                if len(channel.filled_by) > 1:
                    at = channel.filled_by.index(number)
                    field.tiles = channel.tiles[at::2]
                self.trip(channel, lambda _: self.produced(field, list(totals.values())), None)
            if self.later and self.chance(0.5):
                self.add(self.later.pop())
        self.random.shuffle(ends)
        for line in ends:
            self.add(line)
        self.catch_up()
        self.scalar_names.remove("n")
        self.kernel.depth -= 1
        self.add("}")
        if reads and self.chance(0.5):
            self.statement()
        for total in totals.values():
            self.output(total)

    def ahead(self):
        """A group's own slots: filled some trips before they are read. The group is a role or the block."""
        alone = self.chance(0.5)
        self.in_role = alone
        channel = self.channel()
        channel.each, channel.when = 1, ""
        trips = self.bind(self.random.randint(0, 5))
        self.repeats = 5
        if alone:
            sizes = [self.pick([32, 64, 128]), self.pick([32, 64])]
            self.threads = sum(sizes)
            self.add(f"role {self.name('r')} threads {sizes[0]} {{")
            self.kernel.depth += 1
        else:
            self.input()
        self.later = []
        self.add(channel.declared())
        totals = self.totals_of([channel])
        before = self.random.randint(1, channel.slots)
        self.add(f"for (n in {before}) if (n < {trips}) {{")
        self.deeper(lambda: self.produced(channel, []))
        self.add("}")
        self.add(f"for (m in {trips}) {{")
        self.kernel.depth += 1
        self.scalar_names.append("m")
        self.consumed(channel, totals, None)
        self.catch_up()
        if not alone and self.chance(0.5):
            self.nested(1, 1)
        self.add(f"let n = m + {before};")
        self.add(f"if (n < {trips}) {{")
        self.deeper(lambda: self.produced(channel, []))
        self.add("}")
        self.scalar_names.remove("m")
        self.kernel.depth -= 1
        self.add("}")
        if not alone:
            for _ in range(self.random.randint(0, 3)):
                self.statement()
        for here in list(totals.values()):
            self.output(here)
        if alone:
            self.kernel.depth -= 1
            self.add("}")
            self.buffers, self.variables = [], []
            self.add(f"role {self.name('r')} threads {sizes[1]} {{")
            self.deeper(self.straight)
            self.add("}")

    def alternating(self):
        """Two groups receive in turn, behind each other by sections, and skip what the other takes."""
        load, use = self.pick([32, 64]), self.pick([32, 64, 128])
        self.threads = load + 2 * use
        channel, sections, pairs = self.channel(), self.name("order"), self.bind(self.random.randint(0, 3))
        channel.each, channel.when = 1, ""
        self.add(channel.declared()[:-1] + " readers 1;")
        self.add(f"channel {sections};")
        self.repeats = 6
        self.later = []
        self.add(f"role {self.name('r')} threads {load} {{ for (n in {pairs} * 2) {{")
        self.deeper(lambda: self.produced(channel, []))
        self.add("} }")
        if self.chance(0.5):
            self.array(use, 2, lambda half: self.half(channel, sections, pairs, f"skip({channel.name}, {half});"))
            return
        for half in range(2):
            self.array(use, 1, lambda _: self.half(channel, sections, pairs, f"skip({channel.name}, 1);" if half else ""))

    def half(self, channel, sections, pairs, skip):
        totals = self.totals_of([channel])
        if skip:
            self.add(skip)
        self.add(f"for (n in {pairs}) {{")
        self.kernel.depth += 1
        early, ends = self.chance(0.5), []
        self.add(f"enter({sections});")
        self.consumed(channel, totals, ends)
        if early:
            self.add(f"leave({sections});")
        for line in self.later + ends + ([] if early else [f"leave({sections});"]):
            self.add(line)
        self.later = []
        self.add(f"skip({channel.name}, 1);")
        self.kernel.depth -= 1
        self.add("}")
        for total in totals.values():
            self.output(total)

    def dealt(self):
        """One role deals out numbers, as many as memory says, and an end; each of the others takes all."""
        sizes = [32] + [self.pick([32, 64]) for _ in range(self.random.randint(1, 2))]
        members = [self.members(size, True) for size in sizes[1:]]
        self.threads = sizes[0] + sum(size * count for size, count in zip(sizes[1:], members))
        ring, count = self.name("ch"), self.random.randint(1, 9)
        given = self.tensor("i32", [count], 4)
        type_ = self.pick(["i32", "i64", "i16"])
        self.add(f"channel {ring}: {type_} slots {self.random.randint(1, 3)};")
        self.add(f"role {self.name('r')} threads 32 {{")
        self.add(f"    for (n in {given.dims[0]}) if ({given.name}[n] > {self.pick([0, 1])}) send({ring}, {type_}(n));")
        self.add(f"    send({ring}, -1);")
        self.add("}")
        for size, count in zip(sizes[1:], members):
            self.array(size, count, lambda _: self.taken(ring, type_, given))

    def taken(self, ring, type_, given):
        total = self.buffer("i64", (self.pick([1, 16, 40]),), "fragment", bound=2 ** 40)
        self.add(f"fill({total.name}, 1);")
        self.add(f"var at: {type_} = take({ring});")
        self.add("while (at >= 0) {")
        self.add(f"    parallel (i in {total.shape[0]}) {total.name}[i] = ({total.name}[i] * 3 + i + {given.name}[at] + at) % 1000;")
        self.add(f"    at = take({ring});")
        self.add("}")
        self.output(total)
