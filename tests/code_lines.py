#!/usr/bin/env python3
"""Counts lines of C code, without comments and blank lines: code_lines.py FOLDER... [--most N]

Prints each folder's subfolders and their sum. With --most, exit 1 when the sum is larger: `passes/` has a budget.
"""
import argparse
import pathlib
import re
import sys

TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)


def code_lines(path):
    """Lines of a file that hold code. Strings stay, so that `//` in one is no comment."""
    text = TOKEN.sub(lambda found: found[0] if found[0][0] in "\"'" else "\n" * found[0].count("\n"), path.read_text())
    return sum(1 for line in text.splitlines() if line.strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--most", type=int)
    parser.add_argument("--except", dest="left_out", action="append", default=[], help="a subfolder that does not count")
    options = parser.parse_args()
    counts = {}
    for folder in options.folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in {".c", ".h", ".def", ".l", ".y"} and not any(
                    str(path).startswith(left_out) for left_out in options.left_out):
                counts[str(path.parent)] = counts.get(str(path.parent), 0) + code_lines(path)
    for folder, count in counts.items():
        print(f"{count:7} {folder}")
    total = sum(counts.values())
    print(f"{total:7} in all")
    return 1 if options.most is not None and total > options.most else 0


sys.exit(main())
