#!/usr/bin/env python3
"""words.py finds an old word wherever one may stand: words_test.py WORDS_PY"""
import pathlib
import subprocess
import sys
import tempfile

FILES = {   # a file, and the lines of it that words.py has to report
    "unit.c": ("int turn_count;   // in turn\nint count;\n", [1]),
    "examples/role.tile": ("// parts, in turn\nrole turn threads 128 {}\nkernel add_parts(x: f32[N]) {}\n", [2, 3]),
    "tests/lit/prefix.tile": ("// RUN: tilec %s --only=apart | FileCheck %s\n// PARTS: one\n// CHECK: once more\nkernel k() {}\n", [1, 2]),
    "tests/lit/split.test": ("Once more:\nRUN: tilec %t/k.tile\n//--- k.tile\nlet raw = 1;\n//--- polls.tile\n//--- k.txt\nraw\n", [4, 5]),
    "ir/prose.c": ("// It stands beside\nint count;   // nobody reads it\n", [1, 2]),
    "tests/unit/prose.c": ("// It stands beside\n", []),
    "docs/page.md": ("It turns a part.\n```tile\nlet part = 1;\n```\nlet part = 1;\n## In turn\n", [3, 6]),
    "docs/parts.md": ("", [None]),
    "dev": ("#!/usr/bin/env bash\n# in turn\nturns=1\n", [3]),
    "ir/table.def": ('OP(X, "load_once", 1)\nDIAG(Y, 1, ERROR, "it lies apart")\n', [1, 2]),
}

with tempfile.TemporaryDirectory() as folder:
    for name, (text, _) in FILES.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    found = subprocess.run([sys.executable, sys.argv[1], folder], capture_output=True, text=True)
reported = {line.split(": ")[0] for line in found.stdout.splitlines()}
expected = {f"{name}:{line}" if line else name for name, (_, lines) in FILES.items() for line in lines}
print(found.stdout, found.stderr, sep="")
for place in sorted(reported ^ expected):
    print(f"{place}: {'not reported' if place in expected else 'reported without reason'}")
sys.exit(reported != expected)
