#!/usr/bin/env python3
"""Debian's packages of a build, by lintian: packages.py BUILD

That the release build has zlib, zstd and SQLite in it, and its libraries in lib, is no fault here: what people get is of the preset `package`, by `./dev package`.
Exit 77: lintian or dpkg-dev is missing.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

build = pathlib.Path(sys.argv[1]).resolve()
options = sys.argv[2:] or ["--suppress-tags", "embedded-library,pkg-config-unavailable-for-cross-compilation"]
if not shutil.which("lintian") or not shutil.which("dpkg-shlibdeps"):
    print("skipped: lintian or dpkg-dev is missing")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    made = subprocess.run(["cpack", "-G", "DEB", "-B", folder], cwd=build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    packages = sorted(pathlib.Path(folder).glob("*.deb"))
    if made.returncode != 0 or len(packages) != 4:
        sys.exit(f"{made.stdout}\n{len(packages)} packages")
    said = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", *options, *packages],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(said.stdout or "ok")
    sys.exit(said.returncode)
