#!/usr/bin/env python3
"""Clients of the library, built with all warnings as errors, and run: clients.py BUILD INCLUDE [--sanitized]

C99 and C11, C++11 to C++20, by each compiler that is there; Rust where there is rustc; Python by ctypes. Each compiles or runs a kernel on
the host and looks at what fails.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wundef", "-Wcast-qual", "-Werror"]
C_WARNINGS = ["-Wstrict-prototypes", "-Wmissing-prototypes", "-Wc++-compat"]
CXX_WARNINGS = ["-Wold-style-cast", "-Wuseless-cast", "-Wzero-as-null-pointer-constant"]   # the header is old style where it must

parser = argparse.ArgumentParser()
parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("include", type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("--sanitized", action="store_true")
options = parser.parse_args()
environment = {**os.environ, "LD_LIBRARY_PATH": str(options.build)}


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def compilers(*names):
    return [path for name in names if (path := shutil.which(name))]


def known_warnings(compiler, source, warnings):
    """Those that this compiler has."""
    return [w for w in warnings if subprocess.run([compiler, "-Werror", w, "-x", source, "-fsyntax-only", os.devnull], capture_output=True).returncode == 0]


def native(folder, compiler, language, standard, source, warnings):
    out = folder / f"{pathlib.Path(compiler).name}-{standard}-{source.stem}"
    sanitize = ["-fsanitize=address,undefined"] if options.sanitized else []
    run(compiler, f"-std={standard}", *known_warnings(compiler, language, WARNINGS + warnings), *sanitize, "-I", options.include, source, "-o", out,
        f"-L{options.build}", "-ltilec")
    return out


def c_and_cxx(folder):
    for compiler in compilers("gcc", "clang") if not options.sanitized else compilers("gcc"):
        for standard in ("c99", "c11"):
            run(native(folder, compiler, "c", standard, HERE / "client.c", C_WARNINGS))
            yield f"{standard} by {compiler}"
    for compiler in compilers("g++", "clang++") if not options.sanitized else compilers("g++"):
        for standard in ("c++11", "c++17", "c++20"):
            run(native(folder, compiler, "c++", standard, HERE / "client.cpp", CXX_WARNINGS))
            yield f"{standard} by {compiler}"


def rust(folder):
    rustc = shutil.which("rustc")
    if not rustc or options.sanitized or subprocess.run([rustc, "--version"], capture_output=True).returncode != 0:
        return
    run(rustc, "--edition=2021", "-L", options.build, HERE / "client.rs", "-o", folder / "rust")
    run(folder / "rust")
    yield "Rust"


def python(folder):
    if options.sanitized:   # whose run time has to be loaded first
        return
    sizes = run(native(folder, compilers("gcc", "cc", "clang")[0], "c", "c99", HERE / "sizes.c", C_WARNINGS))
    run(sys.executable, "-W", "error", HERE / "client.py", options.build / "libtilec.so", sizes)
    yield "Python"


with tempfile.TemporaryDirectory() as folder:
    for make in (c_and_cxx, rust, python):
        for name in make(pathlib.Path(folder)):
            print("ok ", name)
