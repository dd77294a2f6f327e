"""Draws faults of C sources and writes sources that hold all of those drawn.

A source is read as tokens; operands are found by the precedence of operators. What does not compile after all (a constant
that has to be one, arguments of two types) is dropped by `draw`, which asks the compiler.
"""
import random
import re
from dataclasses import dataclass

TOKEN = re.compile(r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:\\\n|[^\n])*)
                      |(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
                      |(?P<number>(?:0x[0-9a-fA-F]+|\d[\w.]*))
                      |(?P<name>[A-Za-z_]\w*)
                      |(?P<op>->|\+\+|--|<<=|>>=|<=|>=|==|!=|&&|\|\||<<|>>|[-+*/%&|^]=|\.\.\.|.)""", re.X | re.S | re.M)
LEVELS = [("*", "/", "%"), ("+", "-"), ("<<", ">>"), ("<", "<=", ">", ">="), ("==", "!="), ("&",), ("^",), ("|",), ("&&",), ("||",)]
PRECEDENCE = {op: len(LEVELS) - level for level, ops in enumerate(LEVELS) for op in ops}   # the tightest have the highest
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
STOPS = ASSIGNMENTS | {"?", ":", ";", ",", "{", "}", "return", "case", "else"}
OPEN, CLOSE = "([{", ")]}"
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
SWAPPED = {"-", "/", "%", "<<"}
COMMUTATIVE = {"e_add", "e_mul", "e_min", "e_max", "e_and", "e_or", "e_eq", "e_ne", "expr_equal", "larger", "smaller", "same_place",
               "same_owners", "same_walk", "e_both", "e_xor", "layout_equal", "common_multiple", "strcmp"}
KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "else", "do", "case", "goto", "break", "continue"}


@dataclass
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass
class Fault:
    kind: str
    what: str      # for people
    start: int     # what it reads, in the source
    end: int
    edits: list    # (place, text to insert, text that goes)
    line: int = 0
    id: int = 0


def tokens_of(text):
    return [Token(m.lastgroup, m.group(), m.start(), m.end()) for m in TOKEN.finditer(text) if m.lastgroup != "skip"]


class Source:
    """The sites of one file. `#` in the text of an edit is the number of the fault."""

    def __init__(self, text, enumerators):
        self.text, self.enumerators = text, enumerators
        self.tokens = tokens_of(text)
        self.match_brackets()
        self.faults, self.type_checks = [], {}   # the second: for a swap of arguments, edits that fail where their types differ
        for first, last in self.bodies():
            self.is_bool = self.returns_bool(first)
            i = first
            while i < last:   # a fault of an assertion is none of the pass
                i = self.partner[i + 1] if self.at(i) in ("EXPECT", "assert") else i
                self.visit(i)
                i += 1

    def match_brackets(self):
        self.partner, open_ = {}, []
        for i, token in enumerate(self.tokens):
            if token.kind == "op" and token.text in OPEN:
                open_.append(i)
            elif token.kind == "op" and token.text in CLOSE:
                j = open_.pop()
                self.partner[i], self.partner[j] = j, i

    def at(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def bodies(self):
        """From the first token within a function to its last brace."""
        i = 0
        while i < len(self.tokens):
            if self.at(i) in OPEN and self.tokens[i].kind == "op":
                end = self.partner[i]
                if self.at(i) == "{" and self.at(i - 1) == ")":
                    yield i + 1, end
                i = end
            i += 1

    def returns_bool(self, first):
        return self.at(self.partner[first - 2] - 2) == "bool"

    # --- What there is in a body. ---

    def visit(self, i):
        token = self.tokens[i]
        if token.kind == "number":
            self.constant(i)
        elif token.kind == "op" and token.text in PRECEDENCE and self.is_binary(i):
            self.operator(i)
        elif token.text == "if":
            self.condition(i)
        elif token.text == "return" and self.is_bool:
            self.result(i)
        elif token.text == "break" and self.at(i + 1) == ";":
            self.add("break", "continue for break", i, i, [(token.start, "if (fault(#, 1)) continue; else ", "")])
        elif token.kind == "name":
            self.enumerator(i)
            self.statement(i)
            self.arguments(i)

    def add(self, kind, what, first, last, edits):
        self.faults.append(Fault(kind, what, self.tokens[first].start, self.tokens[last].end, edits))

    def span(self, first, last):
        return " ".join(self.text[self.tokens[first].start:self.tokens[last].end].split())

    def around(self, first, last, before, after):
        return [(self.tokens[first].start, before, ""), (self.tokens[last].end, after, "")]

    def is_binary(self, i):
        before = self.tokens[i - 1]
        return before.kind in ("number", "text") or before.text in (")", "]") or (before.kind == "name" and before.text not in KEYWORDS)

    def operand(self, i, step):
        """The last token of an operator's operand on one side."""
        level, j = PRECEDENCE[self.at(i)], i + step
        while True:
            if j in self.partner and (self.partner[j] - j) * step > 0:
                j = self.partner[j]
            elif self.ends_operand(j, level, step):
                return j - step
            j += step

    def ends_operand(self, j, level, step):
        text = self.at(j)
        if text in STOPS or text in OPEN or text in CLOSE:
            return True
        if text not in PRECEDENCE or not self.is_binary(j):
            return False
        return PRECEDENCE[text] < level or (step > 0 and PRECEDENCE[text] == level)

    def operator(self, i):
        text, first, last = self.at(i), self.operand(i, -1), self.operand(i, 1)
        if text in ("&&", "||"):
            other = "||" if text == "&&" else "&&"
            chosen = "l# != f# ? !!(" if text == "&&" else "l# == f# ? !!("
            edits = self.binary(i, first, last, "_Bool l# = !!(", f"); _Bool f# = fault(#, 1); {chosen}",
                                ") : f#; })" if text == "&&" else ") : !f#; })")
            self.add("logic", f"{other} for {text}", first, last, edits)
        elif text in COMPARISONS:
            self.values(i, first, last, "comparison", f"l# {text} r#", f"l# {COMPARISONS[text]} r#", f"{COMPARISONS[text]} for {text}")
        elif text in SWAPPED:
            self.values(i, first, last, "operands", f"l# {text} r#", f"r# {text} l#", f"operands of {text} swapped")
        elif text == "+":
            self.values(i, first, last, "operands", "l# + r#", "l# - r#", "- for +")

    def binary(self, i, first, last, left, between, right):
        operator = self.tokens[i]
        return [(self.tokens[first].start, "({ " + left, ""), (operator.start, between, operator.text), (self.tokens[last].end, right, "")]

    def values(self, i, first, last, kind, right, wrong, what):
        differs = "1" if self.at(i) in "/%<<" else f"({right}) != ({wrong})"   # what may trap is not tried
        end = f"); fault(#, {differs}) ? {wrong} : {right}; }})"
        edits = self.binary(i, first, last, "__auto_type l# = (", "); __auto_type r# = (", end)
        self.add(kind, f"{what}: {self.span(first, last)}", first, last, edits)

    def constant(self, i):
        text = self.at(i)
        if not re.fullmatch(r"\d+|0x[0-9a-fA-F]+", text) or self.at(i - 1) == "case" or (self.at(i - 1), self.at(i + 1)) == ("{", "}"):
            return
        for sign in "+-":
            self.add("constant", f"{text} {sign} 1 for {text}", i, i, self.around(i, i, f"(fault(#, 1) ? {text} {sign} 1 : ", ")"))

    def enumerator(self, i):
        if self.at(i - 1) == "[" and "_MAX_" in self.at(i):
            return   # the length of an array, which may be longer
        other = self.enumerators.get(self.at(i))
        if other and self.at(i - 1) not in ("case", "."):
            self.add("enumerator", f"{other} for {self.at(i)}", i, i, self.around(i, i, f"(fault(#, 1) ? {other} : ", ")"))

    def condition(self, i):
        first, last = i + 2, self.partner[i + 1] - 1
        self.add("condition", f"negated: {self.span(first, last)}", first, last, self.around(first, last, "!!(", ") != fault(#, 1)"))

    def result(self, i):
        last = self.end_of_expression(i)
        if last > i:
            self.add("result", f"negated: {self.span(i, last)}", i + 1, last, self.around(i + 1, last, "!!(", ") != fault(#, 1)"))

    def end_of_expression(self, i):
        while self.at(i + 1) not in (";", ")", "]", "}"):
            i = self.partner.get(i + 1, i + 1)
        return i

    def statement(self, i):
        """A call or an assignment that stands alone."""
        if self.at(i - 1) not in (";", "{", "}", ")", "else") or self.at(i) in KEYWORDS or self.at(i).startswith("FOR_EACH"):
            return
        if self.at(i - 1) == ")" and not self.is_head(self.partner[i - 1]):
            return
        j = i
        while self.at(j + 1) in (".", "->", "[", "(") or self.tokens[j + 1].kind == "name" and self.at(j) in (".", "->"):
            j = self.partner.get(j + 1, j + 1)
        last = j
        if self.at(j + 1) in ASSIGNMENTS:
            last = self.end_of_expression(j)
        elif self.at(j) != ")":
            return
        if self.at(last + 1) != ";":
            return
        edits = self.around(i, last, "(void)(fault(#, 1) ? (void)0 : (void)(", "))")
        self.add("statement", f"left out: {self.span(i, last)}", i, last, edits)

    def is_head(self, open_):
        return self.at(open_ - 1) in ("if", "for", "while") or self.at(open_ - 1).startswith("FOR_EACH") or self.at(open_ - 1) == "VEC_EACH"

    def arguments(self, i):
        """Two neighbours of a call; the compiler says whether their types are one."""
        if self.at(i + 1) != "(" or self.at(i) in KEYWORDS | COMMUTATIVE or self.at(i).isupper():
            return
        ends, j, close = [i + 1], i + 2, self.partner[i + 1]
        while j < close:
            if self.at(j) == ",":
                ends.append(j)
            j = self.partner.get(j, j) + 1 if self.at(j) in OPEN else j + 1
        ends.append(close)
        for a, b, c in zip(ends, ends[1:], ends[2:]):
            self.swap(a + 1, b - 1, b + 1, c - 1)

    def swap(self, a, b, c, d):
        if b < a or d < c:
            return
        one, two = self.span(a, b), self.span(c, d)
        if one == two:
            return
        edits = self.around(a, b, f"(fault(#, 1) ? ({two}) : (", "))") + self.around(c, d, f"(fault(#, 1) ? ({one}) : (", "))")
        same = f"({{ _Static_assert(__builtin_types_compatible_p(__typeof__({one}), __typeof__({two})), \"fault #\"); "
        self.type_checks[len(self.faults)] = self.around(a, b, same, "; })")
        self.add("arguments", f"swapped: {one} and {two}", a, d, edits)


def enumerators_of(texts):
    """Each constant of the enums in headers and its neighbour."""
    found = {}
    for text in texts:
        for body in re.findall(r"\benum\b[^;{}()]*\{([^{}]*)\}", re.sub(r"//[^\n]*|/\*.*?\*/|^#.*?$", "", text, flags=re.S | re.M)):
            names = [m.group(1) for item in body.split(",") if (m := re.match(r"\s*([A-Z][A-Z0-9_]+)\s*(=|$)", item))]
            found |= {name: names[(i + 1) % len(names)] for i, name in enumerate(names) if len(names) > 1}
    return found


# --- Drawing, and writing. ---

def clash(a, b):
    """Two faults nest or are apart; a swap of arguments writes them twice and holds no other."""
    if a.end <= b.start or b.end <= a.start:
        return False
    nested = a.start <= b.start and b.end <= a.end and (a.start, a.end) != (b.start, b.end)
    nests = b.start <= a.start and a.end <= b.end and (a.start, a.end) != (b.start, b.end)
    return not (nested or nests) or "arguments" in (a.kind, b.kind)


def order(faults, random_):
    """All faults of a file: each kind has the same chance, and within a kind each place."""
    kinds = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    for list_ in kinds.values():
        random_.shuffle(list_)
    while kinds:
        kind = random_.choice(sorted(kinds))
        yield kinds[kind].pop()
        if not kinds[kind]:
            del kinds[kind]


def choose(faults, count, refused, random_):
    chosen = []
    for fault in order(faults, random_):
        if len(chosen) < count and id(fault) not in refused and not any(clash(fault, other) for other in chosen):
            chosen.append(fault)
    return chosen


def rewritten(text, faults):
    """The source with all of the faults; its lines stay where they are."""
    inserts = []
    for fault in faults:
        for place, new, old in fault.edits:
            closes = place == fault.end and not old
            # At one place what closes comes first, the inner one before the outer; then what opens, the outer one first.
            rank = (0, -fault.start) if closes else (1, -fault.end)
            inserts.append((place, rank, new.replace("#", str(fault.id)), len(old)))
    out, at = [], 0
    for place, _, new, old in sorted(inserts, key=lambda insert: insert[:2]):
        out += [text[at:place], new]
        at = place + old
    return "".join(out) + text[at:]


def without_unlike_swaps(source, compile_):
    """Leaves out the swaps of arguments whose types differ: one compilation with a check of each."""
    checks = []
    for number, edits in source.type_checks.items():
        fault = source.faults[number]
        end = edits[-1][0]
        checks.append(Fault("check", "", fault.start, end, edits, id=number))
    said = compile_(rewritten(source.text, checks))
    unlike = {int(n) for n in re.findall(r'failed: "fault (\d+)"', said)}
    lines = error_lines(re.sub(r"[^\n]*static assertion failed[^\n]*", "", said))
    unlike |= {check.id for check in checks if line_of(source.text, check.start) in lines}
    source.faults = [fault for number, fault in enumerate(source.faults) if number not in unlike]


def error_lines(said):
    return {int(line) for line in re.findall(r":(\d+):\d+: error:", said)}


def line_of(text, place):
    return text.count("\n", 0, place) + 1


def draw(source, count, compile_, seed):
    """So many faults that compile together."""
    refused = set()
    while True:
        chosen = choose(source.faults, count, refused, random.Random(seed))
        for number, fault in enumerate(chosen):
            fault.id, fault.line = number + 1, line_of(source.text, fault.start)
        lines = error_lines(compile_(rewritten(source.text, chosen)))
        if not lines:
            return chosen
        bad = [f for f in chosen if any(f.line <= line <= line_of(source.text, f.end) for line in lines)]
        refused |= {id(fault) for fault in bad or chosen}
