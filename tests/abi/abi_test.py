#!/usr/bin/env python3
"""abi.py finds what breaks a program, and nothing else: abi_test.py SOURCE"""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CHANGES = [   # (what, pattern, replacement, breaks)
    ("a field at the end", r"\} TilecCompileOptions;", "int more; } TilecCompileOptions;", False),
    ("a function more", r"TILEC_API TilecArg tilec_real", "TILEC_API int tilec_more(void);\nTILEC_API TilecArg tilec_real", False),
    ("a number at the end", r"TILEC_E5M2\n", "TILEC_E5M2, TILEC_E3M4\n", False),
    ("a number before others", r"    TILEC_I8,", "    TILEC_I4, TILEC_I8,", True),
    ("a field before others", r"    const TilecDefine \*defines;", "    int before;\n    const TilecDefine *defines;", True),
    ("a function less", r"TILEC_API TilecArg tilec_real\(double value\);", "", True),
    ("another parameter", r"tilec_integer\(int64_t value\)", "tilec_integer(int32_t value)", True),
    ("another field", r"    int optimize;", "    long optimize;", True)]

header = (pathlib.Path(sys.argv[1]) / "include/tilec/tilec.h").read_text()
for what, pattern, replacement, breaks in CHANGES:
    with tempfile.TemporaryDirectory() as folder:
        changed = re.sub(pattern, replacement, header)
        assert changed != header, what
        there = pathlib.Path(folder) / "include/tilec"
        there.mkdir(parents=True)
        (there / "tilec.h").write_text(changed)
        code = subprocess.run([sys.executable, HERE / "abi.py", folder], capture_output=True).returncode
        if code == 77:
            print("skipped: abidw is missing (package abigail-tools)")
            sys.exit(77)
        if code != int(breaks):
            sys.exit(f"{what}: exit {code}")
        print("ok ", what)
