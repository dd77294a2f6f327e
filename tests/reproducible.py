#!/usr/bin/env python3
"""What people install is equal byte by byte, in whatever folder and at whatever time it is built: reproducible.py SOURCE [-j N] [--wheel PIP]

The tracked files are copied to two folders with names of different lengths, with other times, and built there, without a compiler cache; packages for
Debian, what `cmake --install` gives (the portable program, libraries, manual pages), the files of the wheel, and with `--wheel` the wheels that this pip makes,
are compared. Takes some ten minutes of CPU. Exit 77: no git, or no cpack.
"""
import argparse
import filecmp
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DTILEC_TESTS=OFF", "-DCMAKE_INSTALL_PREFIX=/usr", "-DCMAKE_C_COMPILER_LAUNCHER=", "-DCMAKE_CXX_COMPILER_LAUNCHER="]


def run(*command, **keywords):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **keywords)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}")
    return done.stdout


def copy(source, folder, time):
    for name in run("git", "ls-files", "-z", cwd=source).split("\0"):
        if name and (source / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, folder / name)
            os.utime(folder / name, (time, time))


def build(folder, products, options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CMAKE_")}
    environment |= {"SOURCE_DATE_EPOCH": "1700000000", "CCACHE_DISABLE": "1"}
    out = folder / "out"
    if options.wheel:   # first, in the same folder: what it compiles is not compiled again
        run(options.wheel, "wheel", "--no-deps", "-w", products, "-C", f"build-dir={out}", folder, env=environment)
    run("cmake", "-G", "Ninja", "-S", folder, "-B", out, *OPTIONS, env=environment)
    run("cmake", "--build", out, "-j", options.jobs, env=environment)
    run("cpack", "-G", "DEB", "-B", products, cwd=out, env=environment)
    shutil.rmtree(products / "_CPack_Packages")
    run("cmake", "--install", out, "--component", "python", "--strip", "--prefix", products / "python", env=environment)
    run("cmake", "--install", out, "--strip", "--prefix", products / "installed", env=environment)


def differing(a, b):
    names = [{str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()} for top in (a, b)]
    both = sorted(names[0] & names[1])
    assert len(both) > 10, both
    _, differ, errors = filecmp.cmpfiles(a, b, both, shallow=False)
    return sorted(names[0] ^ names[1]) + differ + errors, both


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("-j", dest="jobs", default="2")
    parser.add_argument("--wheel", metavar="PIP", help="default: that of `./dev package`, if it has run here")
    options = parser.parse_args()
    pip = options.source.resolve() / ".deps/package/bin/pip"
    options.wheel = options.wheel or (pip if pip.exists() else None)
    if not shutil.which("cpack") or subprocess.run(["git", "-C", options.source, "rev-parse"], capture_output=True).returncode:
        print("skipped: no git, or no cpack")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as top:
        trees = {"a": 1_000_000_000, "another/folder": 1_500_000_000}   # and the times of their files
        products = [pathlib.Path(top, "products", str(i)) for i in range(len(trees))]
        for name, time in trees.items():
            copy(options.source, pathlib.Path(top, name), time)
        for name, made in zip(trees, products):
            made.mkdir(parents=True)
            build(pathlib.Path(top, name), made, options)
            shutil.rmtree(pathlib.Path(top, name))
        differ, both = differing(*products)
    print("\n".join(f"{name} differs" for name in differ) or f"{len(both)} files are equal")
    sys.exit(bool(differ))


main()
