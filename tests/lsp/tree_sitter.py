"""The tree-sitter grammar of editors/tree-sitter takes what tilec takes, and refuses what tilec refuses.

Usage: tree_sitter.py SOURCE_DIR TILEC GENERATOR. GENERATOR may be missing: then src/ is not compared with what the grammar generates.
Ends with 77 where there is no libtree-sitter.
"""

import ctypes
import filecmp
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, TILEC = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
FOLDER = SOURCE / "editors/tree-sitter"
DAMAGED = 500   # programs with one token too many, too few or another
# tree-sitter has no reserved words: these are names for it wherever they are no keywords (`let if = 1`, `x: kernel[8]`), so damage does not
# put them anywhere.
RESERVED = set(b"const assume grid shared fragment local var let for unroll vectorized parallel pipelined while if else break return thread in "
               b"async cluster consume cost fn import inout kernel layout macro ordered out persistent produce program raster readers reference "
               b"regs role scratch slots step strides test threads tolerance tune when".split())
TOKEN = re.compile(rb'"[^"\n]*"|//[^\n]*|\w+|<<=|>>=|[-+*/%&|^=<>!]=|<<|>>|&&|\|\||\.\.|\+:|->|\S')


def check_generated(generator):
    """src/ is what the grammar generates."""
    with tempfile.TemporaryDirectory() as folder:
        grammar = "grammar.js" if shutil.which("node") else "src/grammar.json"
        shutil.copy(FOLDER / grammar, folder)
        subprocess.run([generator, "generate", "--no-bindings", pathlib.Path(grammar).name], cwd=folder, check=True)
        for made in (p for p in pathlib.Path(folder, "src").rglob("*") if p.is_file()):
            name = made.relative_to(folder)
            assert filecmp.cmp(made, FOLDER / name, shallow=False), f"editors/tree-sitter/{name}: make it anew by `./dev grammar`"


class Node(ctypes.Structure):
    _fields_ = [("context", ctypes.c_uint32 * 4), ("id", ctypes.c_void_p), ("tree", ctypes.c_void_p)]


class Capture(ctypes.Structure):
    _fields_ = [("node", Node), ("index", ctypes.c_uint32)]


class Match(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint32), ("pattern", ctypes.c_uint16), ("count", ctypes.c_uint16), ("captures", ctypes.POINTER(Capture))]


class Grammar:
    """libtree-sitter with the generated parser."""

    def __init__(self, folder):
        try:
            self.lib = ctypes.CDLL("libtree-sitter.so.0")
        except OSError:
            print("no libtree-sitter: ./dev setup installs it")
            sys.exit(77)
        parser = pathlib.Path(folder) / "tile.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-I", FOLDER / "src", FOLDER / "src/parser.c", "-o", parser], check=True)
        self.language = self.function("tree_sitter_tile", ctypes.c_void_p, library=ctypes.CDLL(str(parser)))()
        self.parser = self.function("ts_parser_new", ctypes.c_void_p)()
        assert self.function("ts_parser_set_language", ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)(self.parser, self.language)

    def function(self, name, result, *arguments, library=None):
        found = getattr(library or self.lib, name)
        found.restype, found.argtypes = result, arguments
        return found

    def root(self, text):
        parse = self.function("ts_parser_parse_string", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32)
        return self.function("ts_tree_root_node", Node, ctypes.c_void_p)(parse(self.parser, None, text, len(text)))

    def takes(self, text):
        return not self.function("ts_node_has_error", ctypes.c_bool, Node)(self.root(text))

    def captures(self, query_text, text):
        """What the patterns of a query find in a text: (capture's name, text) in order."""
        at, error = ctypes.c_uint32(), ctypes.c_int()
        query = self.function("ts_query_new", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_void_p,
                              ctypes.c_void_p)(self.language, query_text, len(query_text), ctypes.byref(at), ctypes.byref(error))
        assert query, f"highlights.scm: error {error.value} at byte {at.value}"
        cursor = self.function("ts_query_cursor_new", ctypes.c_void_p)()
        self.function("ts_query_cursor_exec", None, ctypes.c_void_p, ctypes.c_void_p, Node)(cursor, query, self.root(text))
        start, end = (self.function(name, ctypes.c_uint32, Node) for name in ("ts_node_start_byte", "ts_node_end_byte"))
        name_of = self.function("ts_query_capture_name_for_id", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
        following = self.function("ts_query_cursor_next_capture", ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        match, index, found, length = Match(), ctypes.c_uint32(), [], ctypes.c_uint32()
        while following(cursor, ctypes.byref(match), ctypes.byref(index)):
            capture = match.captures[index.value]
            piece = text[start(capture.node):end(capture.node)]
            found.append((name_of(query, capture.index, ctypes.byref(length)).decode(), piece.decode()))
        return found


def tilec_takes(path):
    ran = subprocess.run([TILEC, "fmt", "--check", "--diagnostics=json", path], capture_output=True, text=True)
    return '"severity":"error"' not in ran.stdout + ran.stderr


def programs():
    names = subprocess.run(["git", "ls-files", "*.tile"], cwd=SOURCE, capture_output=True, text=True, check=True).stdout
    return [SOURCE / name for name in names.split()]


def damaged(text, draw):
    """The text with a token removed, repeated, or replaced by another of its tokens."""
    tokens = [m for m in TOKEN.finditer(text) if not m[0].startswith(b"//")]
    token, other = draw.choice(tokens), draw.choice([m[0] for m in tokens if m[0] not in RESERVED])
    new = draw.choice((b"", token[0] + b" " + token[0], other))
    return text[:token.start()] + b" " + new + b" " + text[token.end():]


def check_tree(grammar):
    files = programs()
    assert len(files) > 200
    for path in files:
        assert tilec_takes(path) and grammar.takes(path.read_bytes()), path
    lowered = subprocess.run([TILEC, "opt", SOURCE / "examples/gemm.tile", "--target=sm_90a"], capture_output=True, check=True).stdout
    assert b"@" in lowered and grammar.takes(lowered)   # what passes write


def check_damaged(grammar, folder):
    draw, files = random.Random(1), [p for p in programs() if p.stat().st_size < 6000 and re.search(rb"(?m)^kernel", p.read_bytes())]
    path, refused = pathlib.Path(folder) / "damaged.tile", 0
    for _ in range(DAMAGED):
        text = damaged(draw.choice(files).read_bytes(), draw)
        path.write_bytes(text)
        taken = tilec_takes(path)
        refused += not taken
        assert grammar.takes(text) == taken, f"tilec {'takes' if taken else 'refuses'} this\n{text.decode()}"
    assert DAMAGED / 2 < refused < DAMAGED


PROGRAM = b"""// Twice.
kernel twice(x: f32[N], out: out f32[N] @alias(x)) {
    tune BLOCK in {32};
    grid (b in ceildiv(N, BLOCK)) threads 32 {
        channel rows: f32[BLOCK] slots 2;
        produce rows { copy(x[b * BLOCK], rows); }
        if (true) out[b] = 1.;
    }
}
"""
COLORS = [("comment", "// Twice."), ("keyword", "kernel"), ("function", "twice"), ("variable.parameter", "out"), ("keyword", "out"), ("type", "f32"),
          ("attribute", "alias"), ("constant", "BLOCK"), ("number", "32"), ("function.call", "ceildiv"), ("label", "rows"), ("keyword", "slots"),
          ("keyword.conditional", "if"), ("variable", "out"), ("number", "1."), ("operator", "*")]


def check_highlights(grammar):
    """The query's captures stand where they should; it names every word and operator of the grammar."""
    query = (FOLDER / "queries/highlights.scm").read_bytes()
    found = grammar.captures(query, PROGRAM)
    for color in COLORS:
        assert color in found, (color, found)
    words = set(re.findall(r'"type": "STRING",\s*"value": "([^"]+)"', (FOLDER / "src/grammar.json").read_text()))
    rules = json.loads((SOURCE / "editors/vscode/syntaxes/tile.tmLanguage.json").read_text())["patterns"]
    keywords = next(rule["match"] for rule in rules if rule["name"].startswith("keyword"))
    assert words >= set(re.search(r"\((.*)\)", keywords)[1].split("|")), "grammar.js lacks a word of the language"
    missing = words - set(re.findall(r'"([^"]+)"', query.decode()))
    assert not missing, f"highlights.scm has no color for {missing}"


def main():
    generator = shutil.which(sys.argv[3])
    if generator:
        check_generated(generator)
    else:
        print("no tree-sitter: ./dev grammar fetches it")
    with tempfile.TemporaryDirectory() as folder:
        grammar = Grammar(folder)
        check_tree(grammar)
        check_damaged(grammar, folder)
    check_highlights(grammar)


main()
