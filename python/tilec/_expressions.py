"""Expressions of declarations: `(D / 2)`, `ceildiv(N, 64)`, each operation in parentheses."""
import functools
import re

_TOKEN = re.compile(r"\s*(0[xX][0-9a-fA-F.]+(?:[pP][-+]?\d+)?|[0-9][\w.]*(?:(?<=[eE])[-+]\d+)?|\w+|&&|\|\||<<|>>|[=!<>]=|\S)")
_OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "%": lambda a, b: a - b * _divide(a, b),
    "/": lambda a, b: _divide(a, b), "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "&&": lambda a, b: a and b, "||": lambda a, b: a or b}
_FUNCTIONS = {"ceildiv": lambda a, b: (a + b - 1) // b, "min": min, "max": max, "abs": abs}


def _divide(a, b):
    """Of integers toward zero; of dims, which are not negative, that is `//`, which symbolic ones have too."""
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    return -(-a // b) if type(a) is int and a < 0 else a // b


def _number(text):
    if re.search(r"[pP]", text):
        return float.fromhex(text)
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


class _Parser:
    def __init__(self, text):
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    def take(self):
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def expression(self):
        token = self.take()
        if token == "(":
            return self.operation()
        if token[:1].isdigit():
            value = _number(token)
            return lambda names: value
        if token in ("true", "false"):
            return lambda names: token == "true"
        if self.peek() == "(":
            return self.call(token)
        return lambda names: names[token]

    def call(self, name):
        self.take()
        operands = []
        while self.peek() not in (")", ""):
            operands.append(self.expression())
            if self.peek() == ",":
                self.take()
        self.take()
        return lambda names: _FUNCTIONS[name](*(operand(names) for operand in operands))

    def operation(self):
        if self.peek() in ("-", "!", "~"):
            sign, a = self.take(), self.expression()
            self.take()
            return {"-": lambda names: -a(names), "!": lambda names: not a(names), "~": lambda names: ~a(names)}[sign]
        a, operator, b = self.expression(), self.take(), self.expression()
        if operator == "?":
            self.take()
            c = self.expression()
            self.take()
            return lambda names: b(names) if a(names) else c(names)
        self.take()
        return lambda names: _OPERATORS[operator](a(names), b(names))


@functools.lru_cache(maxsize=None)
def parse(text):
    """A function of a mapping of names to numbers. It raises KeyError for a name that the mapping lacks."""
    return _Parser(text).expression()
