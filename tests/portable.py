#!/usr/bin/env python3
"""What people get runs with glibc 2.31 and later, and needs no other library: portable.py BUILD

Looks at the versions of the symbols and at the libraries that the programs and libraries ask for. tests/bullseye.py runs them there.
Exit 77: this build is not linked so (TILEC_PORTABLE).
"""
import pathlib
import re
import subprocess
import sys

FILES = ["tilec", "tilec-gpu", "libtilec.so", "libtilec-launch.so", "python/tilec/_tilec.abi3.so"]
NEWEST = (2, 31)
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}


def problems(path):
    text = subprocess.run(["objdump", "-T", "-p", path], capture_output=True, text=True, check=True).stdout
    for version, name in re.findall(r"\*UND\*.*GLIBC_([0-9.]+)\)?\s+(\S+)", text):
        if tuple(map(int, version.split("."))) > NEWEST:
            yield f"{name} is of glibc {version}"
    for name in re.findall(r"NEEDED\s+(\S+)", text):
        if name not in LIBRARIES:
            yield f"it needs {name}"
    if re.search(r"^\s*RELR\b", text, re.M):
        yield "its relocations are packed, which glibc reads since 2.36"


build = pathlib.Path(sys.argv[1])
if not re.search(r"^TILEC_PORTABLE:\w+=ON$", (build / "CMakeCache.txt").read_text(), re.M):
    print("skipped: TILEC_PORTABLE is off")
    sys.exit(77)
found = [f"{name}: {problem}" for name in FILES if (build / name).exists() for problem in problems(build / name)]
print("\n".join(found) or "ok")
sys.exit(bool(found))
