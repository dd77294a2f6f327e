"""The grammar of docs/reference/language.md, "Grammar", as a recursive-descent parser, and its printer. It shares nothing with frontend/."""
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
CHANNEL_BLOCKS = ("produce", "consume", "ordered")


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
            if not self.accept("in"):
                return f"{name}: type"
            self.expect("{")
            return f"{name}: type in {{{', '.join(self.several(self.name, '}'))}}}"
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
        if word in CHANNEL_BLOCKS and self.peek(2) == "{":
            handler = self.channel_block
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
        return self.several(self.iter, ")")

    def stmt_grid(self, _):
        iters = self.iters()
        self.expect("threads")
        threads = self.expression()
        cluster, raster, persistent = [], None, False
        while self.peek() != "{":
            word = self.name()
            if word == "cluster":
                self.expect("(")
                cluster = self.several(self.expression, ")")
            elif word == "raster":
                raster = self.expression()
            persistent |= word == "persistent"
        return Node("grid", iters=iters, threads=threads, cluster=cluster, raster=raster, persistent=persistent,
                    body=self.block())

    def loop(self, word):
        self.expect("(")
        heads = self.several(self.iter, ")")
        return Node("loop", word=word, iters=[h for h in heads if h.kind == "iter"],
                    options=[h for h in heads if h.kind == "option"], body=self.body())

    def stmt_role(self, _):
        name, iter_ = self.name(), None
        if self.accept("["):
            iter_ = self.iter()
            self.expect("]")
        self.expect("threads")
        threads = self.expression()
        if self.accept("regs"):
            self.expression()
        return Node("role", name=name, iter=iter_, threads=threads, body=self.block())

    def tile(self):
        name = self.name()
        self.expect(":")
        return self.typed_tile(name)

    def typed_tile(self, name):
        type_ = self.name()
        return Node("tile", name=name, type=type_, dims=self.several(self.expression, "]") if self.accept("[") else None)

    def stmt_channel(self, _):
        """One tile is named as the channel."""
        name, tiles = self.name(), []
        if self.accept("("):
            tiles = self.several(self.tile, ")")
        elif self.accept(":"):
            tiles = [self.typed_tile(name)]
        slots = self.expression() if self.accept("slots") else None
        readers = self.expression() if self.accept("readers") else None
        self.expect(";")
        return Node("channel", name=name, tiles=tiles, slots=slots, readers=readers)

    def channel_block(self, word):
        return Node("channel_block", word=word, channel=self.name(), body=self.block())

    def stmt_thread(self, _):
        return Node("thread", iters=self.iters(), body=self.block())

    def stmt_async(self, _):
        stmt = self.store_or_call()
        stmt.asynchronous = True
        return stmt

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
            return Node("do", call=place, asynchronous=False)
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


# ---- the printer: text of a Node, which parses to the same; attributes and layouts are not kept ----

def listed(nodes):
    return ", ".join(map(text, nodes))


def text(node):
    return globals()["text_" + node.kind](node)


def text_literal(node):
    return {"inf": "inf", "nan": "nan"}.get(str(node.value), node.value.hex() if isinstance(node.value, float) else str(node.value))


def text_bool(node):
    return str(node.value).lower()


def text_name(node):
    return node.name


def text_string(node):
    return node.text


def text_index(node):
    return f"{text(node.base)}[{listed(node.indices)}]"


def text_whole(node):
    return ":"


def text_extent(node):
    return f"{text(node.start)} +: {text(node.count)}"


def text_view(node):
    return f"{text(node.base)}.{node.name}"


def text_choose(node):
    return f"({text(node.condition)} ? {text(node.yes)} : {text(node.no)})"


def text_binary(node):
    return f"({text(node.a)} {node.op} {text(node.b)})"


def text_unary(node):
    return f"({node.op}{text(node.a)})"


def text_call(node):
    return f"{node.name}({', '.join((f'{name} = ' if name else '') + text(arg) for name, arg in node.args)})"


def text_block(node):
    return "{\n" + body(node.body) + "}\n"


def body(stmts):
    return "".join(map(text, stmts))


def text_const(node):
    return f"const {node.name} = {text(node.value)};\n"


def text_tune(node):
    return "tune " + ", ".join(f"{name} in {{{listed(values)}}}" for name, values in node.tunables) + ";\n"


def text_assume(node):
    return f"assume({text(node.condition)});\n"


def text_decl(node):
    return f"{node.name}: {node.type}[{listed(node.dims)}]"


def text_decls(node):
    return f"{node.decls[0].scope} {listed(node.decls)};\n"


def text_iter(node):
    begin = f"{text(node.begin)} .. " if node.begin else ""
    return f"{node.name} in {begin}{text(node.end)}" + (f" step {text(node.step)}" if node.step else "")


def text_option(node):
    return f"{node.name} = {text(node.value)}"


def text_grid(node):
    options = f" cluster ({listed(node.cluster)})" if node.cluster else ""
    options += (" persistent" if node.persistent else "") + (f" raster {text(node.raster)}" if node.raster else "")
    return f"grid ({listed(node.iters)}) threads {text(node.threads)}{options} {{\n{body(node.body)}}}\n"


def text_loop(node):
    return f"{node.word} ({listed(node.iters + node.options)}) {{\n{body(node.body)}}}\n"


def text_thread(node):
    return f"thread ({listed(node.iters)}) {{\n{body(node.body)}}}\n"


def text_role(node):
    iter_ = f"[{text(node.iter)}]" if node.iter else ""
    return f"role {node.name}{iter_} threads {text(node.threads)} {{\n{body(node.body)}}}\n"


def text_tile(node):
    return f"{node.name}: {node.type}" + (f"[{listed(node.dims)}]" if node.dims is not None else "")


def text_channel(node):
    alone = len(node.tiles) == 1 and node.tiles[0].name == node.name
    tiles = text(node.tiles[0])[len(node.name):] if alone else f" ({listed(node.tiles)})" if node.tiles else ""
    slots = f" slots {text(node.slots)}" if node.slots else ""
    return f"channel {node.name}{tiles}{slots}" + (f" readers {text(node.readers)}" if node.readers else "") + ";\n"


def text_channel_block(node):
    return f"{node.word} {node.channel} {{\n{body(node.body)}}}\n"


def text_let(node):
    return f"let {node.name} = {text(node.value)};\n"


def text_var(node):
    return f"var {node.name}: {node.type}" + (f" = {text(node.value)}" if node.value else "") + ";\n"


def text_while(node):
    return f"while ({text(node.condition)}) {{\n{body(node.body)}}}\n"


def text_if(node):
    return f"if ({text(node.condition)}) {{\n{body(node.yes)}}}" + (f" else {{\n{body(node.no)}}}" if node.no else "") + "\n"


def text_break(node):
    return "break;\n"


def text_return(node):
    return f"return {text(node.value)};\n"


def text_do(node):
    return ("async " if node.asynchronous else "") + text(node.call) + ";\n"


def text_store(node):
    return f"{text(node.place)} = {text(node.value)};\n"


def text_param(node):
    dims = f"[{listed(node.dims)}]" if node.dims is not None else ""
    strides = f" strides [{listed(node.strides)}]" if node.strides else ""
    return f"{node.name}: {node.mode + ' ' if node.mode else ''}{node.type}{dims}{strides}"


def text_kernel(node):
    when = f" when ({text(node.when)})" if node.when else ""
    names = f"[{', '.join(node.names)}]" if node.names else ""
    return f"{node.kind} {node.name}{names}({listed(node.params)}){when} {{\n{body(node.body)}}}\n"


text_program = text_kernel


def text_fn(node):
    return f"fn {node.name}({listed(node.params)}) -> {node.result} {{\n{body(node.body)}}}\n"


def text_macro(node):
    return f"macro {node.name}({listed(node.params)}) {{\n{body(node.body)}}}\n"


def text_test(node):
    given = ", ".join(f"{name} = {text(value)}" for name, value in node.bindings)
    return f"test {node.name} ({given}) {{\n{body(node.fill or [])}}} tolerance {text(node.tolerance)};\n"
