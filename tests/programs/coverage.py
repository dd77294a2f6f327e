#!/usr/bin/env python3
"""Every construct of the language has a program that uses it: checks the table of README.md, and that every operation,
type and word that the compiler knows occurs in a program (here or in examples/).

    coverage.py ROOT        prints what is missing; exit 1 when something is
"""
import pathlib
import re
import sys


def squeeze(text):
    return re.sub(r"\s+", " ", text)


def source(path):
    """A program's text without comments, blanks squeezed."""
    return squeeze(re.sub(r"//[^\n]*", "", path.read_text()))


def table(readme):
    """(construct, text, program) of each row."""
    row = re.compile(r"^\| (.+?) \| `(.+)` \| (\S+) \|$")
    return [m.groups() for line in readme.read_text().splitlines() if (m := row.match(line))]


def names_of(path, pattern):
    return re.findall(pattern, path.read_text(), re.M) if path.exists() else []


def missing_words(root, text):
    """What the op table, the type table and the scanner know and no program uses."""
    ops = names_of(root / "ir/ops.def", r'^OP\(\w+, "(\w+)"')
    types = names_of(root / "ir/types.def", r'^TYPE\(\w+, "(\w+)"')
    words = names_of(root / "frontend/lang.l", r"^([a-z]+)\s+KEEP\(")
    yield from (f"operation {op}" for op in ops if not re.search(rf"\b{op} ?\(", text))
    yield from (f"type {name}" for name in types if not re.search(rf"[:(,=] ?(?:\w+ )?{name}\b", text))
    yield from (f"word {word}" for word in words if not re.search(rf"\b{word}\b", text))


def main():
    root = pathlib.Path(sys.argv[1])
    here = root / "tests/programs"
    problems = []
    for construct, token, program in table(here / "README.md"):
        path = here / program
        if not path.exists():
            problems.append(f"{construct}: there is no {program}")
        elif squeeze(token) not in source(path):
            problems.append(f"{construct}: `{token}` is not in {program}")
    programs = sorted(here.rglob("*.tile")) + sorted((here.parent / "gpu").glob("*.tile")) + sorted((root / "examples").glob("*.tile"))
    problems += [f"no program uses {what}" for what in missing_words(root, " ".join(map(source, programs)))]
    listed = {program for _, _, program in table(here / "README.md")}
    for path in programs:
        name = str(path.relative_to(here)) if path.is_relative_to(here) else None
        if name and not name.startswith("lib/") and name not in listed:
            problems.append(f"{name} shows nothing that the table lists")
    print("\n".join(problems) or f"{len(table(here / 'README.md'))} constructs, {len(programs)} programs")
    return 1 if problems else 0


sys.exit(main())
