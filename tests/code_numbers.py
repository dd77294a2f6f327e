#!/usr/bin/env python3
"""Measures the shape of the product code: code_numbers.py [TREE]      (needs universal-ctags)

Function length, file length, comments, assertions, width, parameters. Figures to compare between versions, not limits.
Product code is the C of all folders but tests, bench and examples.
"""
import pathlib
import re
import subprocess
import sys

FOLDERS = ["support", "layout", "target", "ir", "frontend", "passes", "emulator", "codegen", "runtime", "tools", "include"]
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)
ASSERTION = re.compile(r"\b(EXPECT|assert|_Static_assert|static_assert)\(")

tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
files = sorted(path for folder in FOLDERS for path in (tree / folder).rglob("*") if path.suffix in {".c", ".h", ".def", ".l", ".y"})
sources = [path for path in files if path.suffix in {".c", ".h"}]
lines = {path: path.read_text().splitlines() for path in files}


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def functions():
    """(path, first line, last line, is static, parameters) of every function."""
    listing = subprocess.run(["ctags", "--kinds-C=f", "--fields=+neS", "-f", "-", "--language-force=C", *map(str, sources)],
                             capture_output=True, text=True, check=True).stdout
    found = []
    for row in listing.splitlines():
        fields = row.split("\t")
        extra = dict(field.split(":", 1) for field in fields[3:] if ":" in field)
        if "end" in extra:
            inside = extra.get("signature", "()").strip()[1:-1]
            count = 0 if inside in ("", "void") else inside.count(",") + 1
            path, first = pathlib.Path(fields[1]), int(extra["line"])
            found.append((path, first, int(extra["end"]), "static" in lines[path][first - 1], count))
    return found


def comment_lines(path):
    text = "\n".join(lines[path])
    return sum(found[0].count("\n") + 1 for found in TOKEN.finditer(text) if found[0][0] == "/")


def main():
    every = functions()
    lengths = [last - first + 1 for _, first, last, _, _ in every]
    total = sum(map(len, lines.values()))
    code = [line for path in files for line in lines[path]]
    widths = [len(line) for line in code]
    above = sum(first >= 2 and lines[path][first - 2].lstrip().startswith("//") for path, first, *_ in every)
    assertions = sum(len(ASSERTION.findall(line)) for line in code)
    passes = [line for path in files if tree / "passes" in path.parents for line in lines[path]]
    params = [count for *_, count in every]
    print(f"files {len(files)}, lines {total}")
    print(f"functions {len(every)}; median {percentile(lengths, .5)}, p90 {percentile(lengths, .9)}, p95 {percentile(lengths, .95)}, "
          f"p99 {percentile(lengths, .99)}, longest {max(lengths)}")
    print(f"functions of at most 20 lines {100 * sum(n <= 20 for n in lengths) / len(lengths):.1f} %, "
          f"of at most 60 {100 * sum(n <= 60 for n in lengths) / len(lengths):.2f} %")
    print(f"file median {percentile([len(lines[path]) for path in files], .5)}, longest {max(len(lines[path]) for path in files)}")
    print(f"comments {100 * sum(map(comment_lines, files)) / total:.1f} % of lines; functions with a comment above "
          f"{100 * above / len(every):.0f} %")
    print(f"width p99 {percentile(widths, .99)}, widest {max(widths)}, lines over 120 {sum(width > 120 for width in widths)}")
    print(f"assertions per 1000 lines {1000 * assertions / total:.1f}, in passes "
          f"{1000 * sum(len(ASSERTION.findall(line)) for line in passes) / max(1, len(passes)):.1f}")
    print(f"static functions {100 * sum(static for *_, static, _ in every) / len(every):.0f} %")
    print(f"parameters: mean {sum(params) / len(params):.2f}, six or more {sum(n >= 6 for n in params)}, "
          f"eight or more {sum(n >= 8 for n in params)}, most {max(params)}")


main()
