#!/usr/bin/env python3
"""abi.py finds what breaks a program, and nothing else: abi_test.py SOURCE"""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
HEADER, MAP = "include/tilec/tilec.h", "cmake/libtilec.map"
MORE = (HEADER, r"TILEC_API TilecArg tilec_real", "TILEC_API int tilec_more(void);\nTILEC_API TilecArg tilec_real")
LESS = (HEADER, r"TILEC_API TilecArg tilec_real\(double value\);", "")
CHANGES = [   # what, breaks, edits: file, pattern, replacement
    ("a field at the end", False, (HEADER, r"\} TilecCompileOptions;", "int more; } TilecCompileOptions;")),
    ("a function more", False, MORE, (MAP, r"\Z", "TILEC_1.1 { global: tilec_more; } TILEC_1.0;\n")),
    ("a function more without a version", True, MORE),
    ("a number at the end", False, (HEADER, r"TILEC_E5M2\n", "TILEC_E5M2, TILEC_E3M4\n")),
    ("a number before others", True, (HEADER, r"    TILEC_I8,", "    TILEC_I4, TILEC_I8,")),
    ("a field before others", True, (HEADER, r"    const TilecDefine \*defines;", "    int before;\n    const TilecDefine *defines;")),
    ("a function less", True, LESS, (MAP, " tilec_real;", "")),
    ("a function less that has a version", True, LESS),
    ("another version of a function", True, (MAP, " tilec_real;", ""), (MAP, r"\Z", "TILEC_1.1 { global: tilec_real; } TILEC_1.0;\n")),
    ("another parameter", True, (HEADER, r"tilec_integer\(int64_t value\)", "tilec_integer(int32_t value)")),
    ("another field", True, (HEADER, r"    int optimize;", "    long optimize;"))]

source = pathlib.Path(sys.argv[1])
for what, breaks, *edits in CHANGES:
    with tempfile.TemporaryDirectory() as folder:
        texts = {name: (source / name).read_text() for name in (HEADER, MAP)}
        for name, pattern, replacement in edits:
            changed = re.sub(pattern, replacement, texts[name])
            assert changed != texts[name], what
            texts[name] = changed
        for name, text in texts.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True)
            path.write_text(text)
        code = subprocess.run([sys.executable, HERE / "abi.py", folder], capture_output=True).returncode
        if code == 77:
            print("skipped: abidw is missing (package abigail-tools)")
            sys.exit(77)
        if code != int(breaks):
            sys.exit(f"{what}: exit {code}")
        print("ok ", what)
