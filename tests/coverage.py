#!/usr/bin/env python3
"""Which branches the tests take: `./dev coverage` builds with counters, runs the tests, and writes docs/notebook/coverage.md.

    coverage.py [--only REGEX]     clears the counts and runs the steps of tiers 0 and 1, without those in LEFT_OUT, and ALSO;
                                   with --only adds those steps to the counts there are, and prints what is uncovered
    coverage.py --show REGEX       prints what is uncovered in the files that match, by the counts there are
    coverage.py --report           writes the page by the counts there are

A branch is an outcome, true or false, of a condition in the source (of `if`, `?:`, a loop, an operand of `&&` or `||`), or
a case of a switch. In a macro it counts once, in a header too, wherever it is used. Left out by pattern: conditions inside
EXPECT and assert, what leads to fail_internal alone, constant conditions, the implicit default of a switch (over an enum
the compiler demands all cases), and what flex and bison write.
"""
import argparse
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "coverage"
PAGE = ROOT / "docs" / "notebook" / "coverage.md"
FOLDERS = ["layout", "passes", "ir", "emulator", "codegen", "runtime", "frontend"]
# Steps that run no compiler, those that refuse memory to this count's own library, and those that repeat others' compiles.
LEFT_OUT = ("arch$|words|glossary|commit_subjects|program_coverage|lint_|install$|planted_faults|any_allocation|"
            "mutations|spills_|attention_mla|fp8_roles|test_conflicts|portable$")
ALSO = "^coverage/launcher_full$"   # of tier 2: launchers of kernels with tensor maps
EXPECTED = re.compile(r"\b(?:EXPECT|assert)\(")
INTERNAL = re.compile(r"\s*(?:\)|:)?\s*(?:\{\s*|break;\s*\}\s*)?fail_internal\(")
CONSTANT = re.compile(r"(?:true|false|\d+)$")


# --- The source. ---

def line_starts(text):
    return [0] + [at + 1 for at, char in enumerate(text) if char == "\n"]


def closing(text, at):
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    for end in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return end + 1
    return len(text)


class Source:
    def __init__(self, path):
        self.text = (ROOT / path).read_text()
        self.starts = line_starts(self.text)
        self.expected = [(match.start(), closing(self.text, match.end() - 1)) for match in EXPECTED.finditer(self.text)]

    def at(self, line, column):
        if line > len(self.starts):
            sys.exit("the sources have changed since they were built: ./dev coverage builds them")
        return self.starts[line - 1] + column - 1

    def is_case(self, begin):
        return re.match(r"(?:case|default)\b", self.text[begin:begin + 8]) is not None

    def is_left_out(self, begin, end):
        implicit_default = self.text[:begin].endswith("switch (")
        return (implicit_default or CONSTANT.match(self.text[begin:end]) or INTERNAL.match(self.text, end)
                or any(first <= begin < last for first, last in self.expected))


# --- The counts. ---

def counted():
    """What llvm-cov says of the compiler and the library."""
    merged = BUILD / "counts.profdata"
    subprocess.run(["llvm-profdata-14", "merge", "-sparse", *map(str, BUILD.glob("counts/*.profraw")), "-o", merged], check=True)
    done = subprocess.run(["llvm-cov-14", "export", BUILD / "tilec", "-object", BUILD / "libtilec.so", f"-instr-profile={merged}",
                           "-skip-expansions"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["data"][0]


def place(name):
    """A file of ours by its name in this repository, else None. The compiler names it from there, llvm-cov from the build's folder."""
    name = name.removeprefix("build/coverage/")
    return name if name.split("/")[0] in FOLDERS and (ROOT / name).exists() and name.endswith((".c", ".h", ".def")) else None


def branches_of(data):
    """{file: {(begin, end): [function, times true, times false]}}"""
    found = collections.defaultdict(dict)
    for function in data["functions"]:
        for line, column, last, last_column, yes, no, file, *_ in function["branches"]:
            if name := place(function["filenames"][file]):
                key = (line, column, last, last_column)
                entry = found[name].setdefault(key, [function["name"].split(":")[-1], 0, 0])
                entry[1] += yes
                entry[2] += no
    return found


class Branches:
    """The outcomes of a file: how many, how many taken, and the others as (function, line)."""

    def __init__(self, name, found):
        self.total, self.uncovered = 0, []
        source = Source(name)
        for (line, column, last, last_column), (function, yes, no) in sorted(found.items()):
            begin, end = source.at(line, column), source.at(last, last_column)
            if source.is_left_out(begin, end):
                continue
            outcomes = [yes] if source.is_case(begin) else [yes, no]
            self.total += len(outcomes)
            self.uncovered += [(function, line, source.text[begin:end], way) for way, count in zip(("true", "false"), outcomes) if not count]

    @property
    def taken(self):
        return self.total - len(self.uncovered)


def read_counts():
    """({file: Branches}, {folder: (lines, lines run)})"""
    data = counted()
    lines = {folder: [0, 0] for folder in FOLDERS}
    for file in data["files"]:
        if name := place(file["filename"]):
            summary = file["summary"]["lines"]
            lines[name.split("/")[0]][0] += summary["count"]
            lines[name.split("/")[0]][1] += summary["covered"]
    return {name: Branches(name, found) for name, found in branches_of(data).items()}, lines


# --- What to say. ---

def percent(some, whole):
    return f"{100 * some / whole:.1f} %" if whole else "-"


def table(files, lines):
    rows = ["| folder | branches | taken | | lines run |", "|---|---:|---:|---:|---:|"]
    for folder in FOLDERS:
        own = [file for name, file in files.items() if name.split("/")[0] == folder]
        total, taken = sum(file.total for file in own), sum(file.taken for file in own)
        rows.append(f"| `{folder}` | {total:,} | {taken:,} | {percent(taken, total)} | {percent(lines[folder][1], lines[folder][0])} |")
    return "\n".join(rows)


def ranges(numbers):
    """1, 2, 3, 7: 1-3 7; lines that are next to each other but for one are one range."""
    out = []
    for number in sorted(set(numbers)):
        if out and number <= out[-1][1] + 2:
            out[-1][1] = number
        else:
            out.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in out)


def row(name, file):
    places = collections.defaultdict(list)
    for function, line, *_ in file.uncovered:
        places[function].append(line)
    cells = ", ".join(f"{function} {ranges(numbers)}" for function, numbers in places.items())
    return f"| `{name}` | {len(file.uncovered)} of {file.total} | {cells} |"


def page(files, lines):
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    rows = [row(name, file) for name, file in sorted(files.items()) if file.uncovered]
    return f"""# Coverage

Generated by `./dev coverage` on top of {head}: branches that the tests of tiers 0 and 1, and `launcher_full`, take. What counts as a branch, which
steps run, and what is left out, says `tests/coverage.py`.

{table(files, lines)}

## Not taken

Functions, with the lines of conditions of which one outcome never happens.

| file | branches | where |
|---|---:|---|
""" + "\n".join(rows) + "\n"


def show(files, pattern):
    for name, file in sorted(files.items()):
        if re.search(pattern, name):
            for function, line, text, way in file.uncovered:
                print(f"{name}:{line}: {function}: {' '.join(text.split())[:90]}: never {way}")


# --- The whole. ---

def run_tests(only):
    command = [sys.executable, ROOT / "tests" / "run.py", "default", "--builds", "coverage", "--no-cache", "--seed", "1",
               "--without", LEFT_OUT, *(["--only", only] if only else [])]
    return subprocess.run(command, check=False).returncode


def main():
    parser = argparse.ArgumentParser(prog="./dev coverage", description="Count the branches that the tests take.")
    parser.add_argument("--only", metavar="REGEX", help="run these steps, and add what they take to the counts")
    parser.add_argument("--show", metavar="REGEX", help="run nothing; print what is not taken in the files that match")
    parser.add_argument("--report", action="store_true", help="run nothing; write the page by the counts there are")
    options = parser.parse_args()
    status = 0
    if not options.show and not options.report:
        if not options.only:
            shutil.rmtree(BUILD / "counts", ignore_errors=True)
        status = run_tests(options.only)
        if not options.only:
            status = run_tests(ALSO) or status
    files, lines = read_counts()
    if options.show:
        show(files, options.show)
    elif not options.only:
        PAGE.write_text(page(files, lines))
    print(table(files, lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
