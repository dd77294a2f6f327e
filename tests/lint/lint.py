#!/usr/bin/env python3
"""clang-tidy or cppcheck says nothing about the sources of a folder.

    lint.py clang-tidy|cppcheck BUILD_DIR FOLDER      exit 77: the tool is not installed

The checks are in .clang-tidy and cppcheck.txt, with the reasons why others are off. BUILD_DIR has compile_commands.json.
"""
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CPPCHECK = ["--enable=warning,performance,portability", "--std=c11", "--language=c", "-D_GNU_SOURCE", '-DTILEC_VERSION="0"', "--quiet",
            "--inline-suppr", f"--suppressions-list={HERE / 'cppcheck.txt'}",
            "--error-exitcode=1"]
CLANG_TIDY = ["--quiet", "--extra-arg=-Wno-unknown-warning-option"]   # the commands are gcc's


def main():
    tool, build, folder = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
    if not shutil.which(tool):
        print(f"no {tool}")
        return 77
    files = sorted(map(str, folder.rglob("*.c")))
    if tool == "cppcheck":
        command = [tool, *CPPCHECK, f"-I{ROOT}", f"-I{ROOT / 'include'}", *files]
    else:
        command = [tool, *CLANG_TIDY, "-p", str(build), *files]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr if done.returncode else "", f"{tool}: {len(files)} files", sep="\n")
    return 1 if done.returncode or not files else 0


if __name__ == "__main__":
    sys.exit(main())
