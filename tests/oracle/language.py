"""The grammar of docs/language.md, "Grammar", as a recursive-descent parser. It shares nothing with frontend/."""
import re

TOKEN = re.compile(r"""\s+|//[^\n]*
    |(?P<number>0x[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?(?:p[+-]?\d+)?|\d+(?:\.(?!\.)\d*)?(?:e[+-]?\d+)?)
    |(?P<name>[A-Za-z_]\w*) |(?P<string>"(?:\\.|[^"\\])*")
    |(?P<sign><<=|>>=|\.\.|\+:|->|&&|\|\||==|!=|<=|>=|<<|>>|\+=|-=|\*=|/=|%=|&=|\|=|\^=|[-+*/%&|^~!<>=?:;,.@(){}\[\]])
    |(?P<bad>.)""", re.X)

LEVELS = [("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"), ("+", "-"),
          ("*", "/", "%")]
LOOPS = ("for", "unroll", "vectorized", "parallel", "pipelined")
MODES = ("out", "inout", "shared", "fragment", "local")


class Node:
    """A piece of syntax: a kind and its fields."""

    def __init__(self, kind, **fields):
        self.kind = kind
        self.__dict__.update(fields)

    def __repr__(self):
        return f"{self.kind}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items() if k != 'kind')})"


def tokens(text):
    found = []
    for match in TOKEN.finditer(text):
        if match.lastgroup == "bad":
            raise SyntaxError(f"byte {match[0]!r}")
        if match.lastgroup:
            found.append((match.lastgroup, match[0]))
    return found + [("end", "")]


class Parser:

    def __init__(self, text):
        self.tokens = tokens(text)
        self.at = 0

    # ---- tokens ----
    def peek(self, ahead=0):
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][1]

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, text):
        if self.peek() == text and self.tokens[self.at][0] != "string":
            self.at += 1
            return True
        return False

    def expect(self, text):
        if not self.accept(text):
            raise SyntaxError(f"expected {text!r}, found {self.tokens[self.at:self.at + 5]}")

    def name(self):
        kind, text = self.next()
        if kind != "name":
            raise SyntaxError(f"expected a name, found {text!r}")
        return text

    def several(self, one, close):
        """one { "," one } close"""
        items = []
        while not self.accept(close):
            items.append(one())
            if not self.accept(","):
                self.expect(close)
                break
        return items

    # ---- items ----
    def file(self):
        items = []
        while self.tokens[self.at][0] != "end":
            self.attributes()
            items.append(self.item())
        return items

    def attributes(self):
        found = {}
        while self.accept("@"):
            name = self.name()
            found[name] = self.several(self.argument, ")") if self.accept("(") else []
        return found

    def item(self):
        word = self.name()
        if word in ("kernel", "program"):
            name = self.name()
            names = self.several(self.compile_name, "]") if self.accept("[") else []
            self.expect("(")
            params = self.several(self.param, ")")
            when = None
            if self.accept("when"):
                self.expect("(")
                when = self.expression()
                self.expect(")")
            return Node(word, name=name, names=names, params=params, when=when, body=self.block())
        if word in ("fn", "macro"):
            name = self.name()
            self.expect("(")
            params = self.several(self.param, ")")
            result = self.name() if word == "fn" and (self.expect("->") or True) else None
            return Node(word, name=name, params=params, result=result, body=self.block())
        if word == "reference":
            return Node(word, name=self.name(), body=self.block())
        if word == "const":
            return self.const()
        if word == "test":
            name = self.name()
            self.expect("(")
            bindings = self.several(self.argument, ")")
            fill = self.block() if self.peek() == "{" else None
            self.expect("tolerance")
            tolerance = self.expression()
            self.expect(";")
            return Node(word, name=name, bindings=bindings, fill=fill, tolerance=tolerance)
        raise SyntaxError(f"item {word!r}")

    def compile_name(self):
        name = self.name()
        if self.accept(":"):
            self.expect("type")
        return name

    def param(self):
        name = self.name()
        self.expect(":")
        mode = self.name() if self.peek() in MODES else ""
        type_ = self.name()
        dims = self.several(self.expression, "]") if self.accept("[") else None
        strides = None
        if self.accept("strides"):
            self.expect("[")
            strides = self.several(self.expression, "]")
        self.attributes()
        return Node("param", name=name, mode=mode, type=type_, dims=dims, strides=strides)

    # ---- statements ----
    def block(self):
        self.expect("{")
        body = []
        while not self.accept("}"):
            body.append(self.statement())
        return body

    def body(self):
        return self.block() if self.peek() == "{" else [self.statement()]

    def const(self):
        name = self.name()
        self.expect("=")
        value = self.expression()
        self.expect(";")
        return Node("const", name=name, value=value)

    def statement(self):
        self.attributes()
        word = self.peek()
        if word == "{":
            return Node("block", body=self.block())
        handler = getattr(self, "stmt_" + word, None) if self.tokens[self.at][0] == "name" else None
        if word in LOOPS:
            handler = self.loop
        if word in ("shared", "fragment", "local", "scratch"):
            handler = self.declarations
        if word in ("role", "thread", "async"):
            raise SyntaxError(f"{word} belongs to the thread stage")
        if handler and self.peek(1) not in ("=", "+=", "["):
            self.next()
            return handler(word)
        return self.store_or_call()

    def stmt_const(self, _):
        return self.const()

    def stmt_tune(self, _):
        def one():
            name = self.name()
            self.expect("in")
            self.expect("{")
            return name, self.several(self.expression, "}")
        return Node("tune", tunables=self.several(one, ";"))

    def stmt_assume(self, _):
        self.expect("(")
        condition = self.expression()
        self.expect(")")
        self.expect(";")
        return Node("assume", condition=condition)

    def declarations(self, scope):
        def one():
            name = self.name()
            self.expect(":")
            type_ = self.name()
            self.expect("[")
            dims = self.several(self.expression, "]")
            if self.accept("layout"):
                self.next()
            self.attributes()
            return Node("decl", scope=scope, name=name, type=type_, dims=dims)
        return Node("decls", decls=self.several(one, ";"))

    def iter(self):
        name = self.name()
        if self.accept("="):
            return Node("option", name=name, value=self.expression())
        self.expect("in")
        begin, end, step = None, self.expression(), None
        if self.accept(".."):
            begin, end = end, self.expression()
        if self.accept("step"):
            step = self.expression()
        return Node("iter", name=name, begin=begin, end=end, step=step)

    def iters(self):
        self.expect("(")
        return [found for found in self.several(self.iter, ")") if found.kind == "iter"]

    def stmt_grid(self, _):
        iters = self.iters()
        self.expect("threads")
        threads = self.expression()
        cluster = []
        while self.peek() != "{":
            word = self.name()
            if word == "cluster":
                self.expect("(")
                cluster = self.several(self.expression, ")")
            elif word == "raster" and not self.accept("hilbert"):
                self.expression()
        return Node("grid", iters=iters, threads=threads, cluster=cluster, body=self.block())

    def loop(self, word):
        return Node("loop", word=word, iters=self.iters(), body=self.body())

    def stmt_let(self, _):
        name = self.name()
        self.expect("=")
        value = self.expression()
        self.expect(";")
        return Node("let", name=name, value=value)

    def stmt_var(self, _):
        name = self.name()
        self.expect(":")
        type_ = self.name()
        value = self.expression() if self.accept("=") else None
        self.expect(";")
        return Node("var", name=name, type=type_, value=value)

    def condition(self):
        self.expect("(")
        condition = self.expression()
        self.expect(")")
        return condition

    def stmt_while(self, _):
        return Node("while", condition=self.condition(), body=self.body())

    def stmt_if(self, _):
        condition, yes = self.condition(), self.body()
        return Node("if", condition=condition, yes=yes, no=self.body() if self.accept("else") else [])

    def stmt_break(self, _):
        self.expect(";")
        return Node("break")

    def stmt_return(self, _):
        value = self.expression()
        self.expect(";")
        return Node("return", value=value)

    def store_or_call(self):
        place = self.postfix()
        kind, sign = self.next()
        if sign == ";":
            return Node("do", call=place)
        if not sign.endswith("="):
            raise SyntaxError(f"after a place: {sign!r}")
        value = self.expression()
        self.expect(";")
        if sign != "=":
            value = Node("binary", op=sign[:-1], a=place, b=value)
        return Node("store", place=place, value=value)

    # ---- expressions ----
    def expression(self):
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        yes = self.expression()
        self.expect(":")
        return Node("choose", condition=condition, yes=yes, no=self.expression())

    def binary(self, level):
        if level == len(LEVELS):
            return self.prefix()
        left = self.binary(level + 1)
        while self.peek() in LEVELS[level]:
            op = self.next()[1]
            left = Node("binary", op=op, a=left, b=self.binary(level + 1))
        return left

    def prefix(self):
        if self.peek() in ("-", "!", "~"):
            return Node("unary", op=self.next()[1], a=self.prefix())
        return self.postfix()

    def postfix(self):
        node = self.primary()
        while True:
            if self.accept("["):
                node = Node("index", base=node, indices=self.several(self.index, "]"))
            elif self.peek() == "." and self.tokens[self.at + 1][0] == "name":
                self.next()
                node = Node("view", base=node, name=self.name())
            else:
                return node

    def index(self):
        if self.accept(":"):
            return Node("whole")
        start = self.expression()
        return Node("extent", start=start, count=self.expression()) if self.accept("+:") else start

    def argument(self):
        if self.tokens[self.at][0] == "name" and self.peek(1) == "=":
            name = self.name()
            self.expect("=")
            return name, self.expression()
        if self.tokens[self.at][0] == "string":
            return None, Node("string", text=self.next()[1])
        return None, self.expression()

    def primary(self):
        kind, text = self.next()
        if text == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        if kind == "number":
            is_float = "x" not in text and re.search(r"[.e]", text) or "p" in text
            value = float.fromhex(text) if "p" in text else float(text) if is_float else int(text, 0)
            return Node("literal", value=value)
        if kind == "name":
            if text in ("inf", "nan"):
                return Node("literal", value=float(text))
            if text in ("true", "false"):
                return Node("bool", value=text == "true")
            if self.accept("("):
                return Node("call", name=text, args=self.several(self.argument, ")"))
            return Node("name", name=text)
        raise SyntaxError(f"expression begins with {text!r}")


def parse(text):
    return Parser(text).file()
