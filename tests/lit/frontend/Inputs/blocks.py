"""Every code block of docs/reference/language.md compiles, every word of the language is in it or in a page made from ir/*.def, and calls in
its tables name operands as ops.def does.

A block opens with ```tile and says what it is:

    ```tile                a whole file; its tests pass on the emulator
    ```tile grid           statements of a grid, put into the kernel below
    ```tile kernel         statements of a kernel, before and with its grid
    ```tile error T0201    a whole file, or (with `grid` after the code) statements, that are refused with this code

Usage: blocks.py LANGUAGE.MD SOURCE_DIR
"""

import pathlib
import re
import subprocess
import sys
import tempfile

GRID = """kernel example(A: f16[M, K], B: f16[K, N], x: f32[M, N], y: out f32[M, N], idx: i32[M], n: i32, s: f32) {
    grid (i in ceildiv(M, 64), j in ceildiv(N, 64)) threads 128 {
        shared As: f16[64, 32], Bs: f16[32, 64], tile: f32[64, 64];
        fragment acc: f32[64, 64], v: f32[64, 64], row: f32[64];
%s
    }
}
"""
KERNEL = """kernel example(A: f16[M, K], x: f32[M, N], y: out f32[M, N]) {
%s
}
"""


def run(command, path, *args):
    return subprocess.run(["tilec", command, *args, str(path)], capture_output=True, text=True)


def check(kind, body, path):
    """What is wrong with a block, or None."""
    words = kind.split()
    if "grid" in words:
        body = GRID % body
    if "kernel" in words:
        body = KERNEL % body
    path.write_text(body)
    result = run("opt", path, "--passes=")
    if "error" in words:
        code = words[words.index("error") + 1]
        return None if result.returncode == 1 and f"error[{code}]" in result.stderr else result.stderr or "it compiles"
    if result.returncode != 0:
        return result.stderr
    if re.search(r"^test ", body, re.M):
        result = run("test", path)
        if result.returncode != 0:
            return result.stdout + result.stderr
    return None


def words_of_the_language(source):
    for table, pattern in [("types", r'^TYPE\(\w+, "(\w+)"'), ("ops", r'^OP\(\w+, "(\w+)"'), ("attrs", r'^ATTR\(\w+, "(\w+)"')]:
        sign = "@" if table == "attrs" else ""
        yield from (sign + word for word in re.findall(pattern, (source / f"ir/{table}.def").read_text(), re.M))
    yield from re.findall(r"^([a-z]+)\s+KEEP\(", (source / "frontend/lang.l").read_text(), re.M)


def operands(source):
    """The operands of each op: (name, access) of ops.def."""
    text = re.sub(r"//[^\n]*|\\\n", "", (source / "ir/ops.def").read_text())
    macros = dict(re.findall(r"^#define (\w+_OPERANDS)(.*)$", text, re.M))
    for name, row in re.findall(r'^OP\(\w+, "(\w+)"(.*?)(?=^OP\(|^#|\Z)', text, re.M | re.S):
        row += "".join(body for macro, body in macros.items() if macro in row)
        yield name, re.findall(r"OPERAND\((\w+), (\w+)", row)


def wrong_signatures(text, source):
    """Calls in tables whose arguments are not the op's operands in order. (A word stands for an operand that is one.)"""
    table = dict(operands(source))
    for cell in re.findall(r"^\| (`.*?) \|", text, re.M):
        for name, arguments in re.findall(r"`(\w+)\(([^()`]*)\)`", cell):
            given = [a.split("=")[0].strip(' ".') for a in re.split(r", (?:c0|\.\.\.)", arguments)[0].split(",") if a]
            for argument, operand in zip(given, table.get(name, [])):
                if argument != operand[0] and operand[1] != "NAME":
                    yield f"{name}: '{argument}' is operand '{operand[0]}' in ops.def"


def main():
    text = pathlib.Path(sys.argv[1]).read_text()
    bad = 0
    blocks = [(m.group(1), m.group(2), text.count("\n", 0, m.start()) + 1)
              for m in re.finditer(r"^```tile ?([^\n]*)\n(.*?)^```$", text, re.M | re.S)]
    with tempfile.TemporaryDirectory() as folder:
        for kind, body, line in blocks:
            wrong = check(kind, body, pathlib.Path(folder) / f"line{line}.tile")
            if wrong:
                bad += 1
                print(f"line {line}: {wrong}")
    tables = "".join((pathlib.Path(sys.argv[1]).parent / name).read_text() for name in ("operations.md", "attributes.md"))
    for word in words_of_the_language(pathlib.Path(sys.argv[2])):
        if not re.search(rf"(?<!\w){word}\b", text + tables):
            bad += 1
            print(f"'{word}' is not described")
    for wrong in wrong_signatures(text, pathlib.Path(sys.argv[2])):
        bad += 1
        print(wrong)
    print(f"{len(blocks)} blocks, {bad} wrong")
    return 1 if bad or not blocks else 0


sys.exit(main())
