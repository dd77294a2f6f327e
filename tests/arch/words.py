#!/usr/bin/env python3
"""Holds the project's old private words out: words.py SOURCE_DIR

The field has a term for each (docs/reference/glossary.md). They may not stand as a part of an identifier (split at `_` and at humps),
in a file's name, a pass, an attribute, an operation, an option, a heading or a diagnostic. In prose a few of them are ordinary
English; those that never were are held out of prose, too.
"""
import pathlib
import re
import subprocess
import sys

# old word -> the field's term
WORDS = {
    "turn": "wave, order barrier, transpose, operand swap", "turns": "waves", "turned": "transposed, swapped",
    "turning": "transposing", "part": "slice, partial, piece", "parts": "slices, partials, pieces",
    "parted": "warp-specialized, split", "parting": "role builder", "unparted": "@no_specialize",
    "apart": "split-K workspace, rank stride", "raw": "untransposed, verbatim",
    "once": "single use, evict first", "together": "cooperative, concurrent", "points": "tiles", 
    "orient": "swap operands", "oriented": "operands swapped", "spare": "lazy rescale",
    "spares": "saves", "sparing": "saving", "boxwise": "epilogue sub-tile", "unswitch": "hoist guards",
    "unswitched": "hoisted", "defer": "partial reductions", "deferred": "partial", "materialize": "stage through shared",
    "materialized": "staged", "lives": "lifetimes, live ranges", "served": "prune variants",
    "filler": "producer emitter", "memo": "launch cache", "answers": "reference cache", "polls": "livelock",
    "ringed": "multi-buffered",
}
PROSE = ["parted", "unparted", "boxwise", "unswitch", "unswitched", "part together", "spare factors"]
DECODE = ["nobody", "whoever", "beside", "by way of"]   # not old words: prose that a reader has to decode
PLAIN = re.compile(r"\.(h|def|md)$|^(?!tests/|bench/|examples/).*\.c$")   # where it is held out: the product and its documents
FOREIGN = {"pthread_once", "pthread_once_t", "PTHREAD_ONCE_INIT", "RawDescriptionHelpFormatter"}   # names that others gave
SENTENCE = 4   # a name of so many words is a sentence, as tests have: prose
CODE = {".c", ".h", ".def", ".l", ".y", ".py", ".sh", ".cmake"}
C_CODE = {".c", ".h", ".def", ".l", ".y", ".tile"}   # comments as in C
PREFIX = re.compile(r"(?:// *)?([A-Z][A-Z0-9_-]*):(.*)")   # of FileCheck, or RUN
LEFT_OUT = ("CHANGELOG.md", "tests/arch/words.py", "LICENSE", "tests/golden")

source = pathlib.Path(sys.argv[1])
problems = []


def humps(name):
    return [hump.lower() for hump in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]


def report(place, word, kind):
    problems.append(f"{place}: '{word}' in {kind}; the field says: {WORDS.get(word, 'see docs/reference/glossary.md')}")


def check_name(place, name, kind):
    if name not in FOREIGN and len(humps(name)) < SENTENCE:
        for word in set(humps(name)) & set(WORDS):
            report(place, word, f"{kind} '{name}'")


def code_of(text, suffix):
    """The text with strings and comments blanked, lines kept."""
    if suffix in C_CODE:
        pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/|^\s*#\s*pragma[^\n]*'
    else:
        pattern = r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*'
    return re.sub(pattern, lambda found: "\n" * found[0].count("\n"), text, flags=re.S | re.M)


def check_code(name, text, suffix):
    for number, line in enumerate(code_of(text, suffix).splitlines(), 1):
        for found in re.finditer(r"[A-Za-z_]\w*", line):
            check_name(f"{name}:{number}", found[0], "the identifier")


def check_test(name, text):
    """A program, or a lit test: its programs (behind `//--- NAME.tile`), FileCheck's prefixes, and what RUN lines name."""
    inner, program = name, []
    for line in text.splitlines():
        program.append("")
        if found := re.match(r"//--- (\S+)", line):
            inner = program[-1] = found[1]
        elif found := PREFIX.match(line):
            program[-1] = found[1] + (found[2] if found[1] == "RUN" else "")
        elif inner.endswith(".tile"):
            program[-1] = line
    check_code(name, "\n".join(program), ".tile")


def check_document(name, text):
    """The programs in a page."""
    inside, program = False, []
    for line in text.splitlines():
        inside = line == "```tile" or inside and line != "```"
        program.append(line if inside else "")
    check_code(name, "\n".join(program), ".tile")


def check_tables(name, text):
    """Names of passes, attributes, operations, options, diagnostics: the strings of the tables."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r'(PASS|ATTR|OP|OPTION|COMMAND)\(\w+, "([\w-]+)"', line):
            for word in set(re.split(r"[_-]", found[2])) & set(WORDS):
                report(f"{name}:{number}", word, f"the name '{found[2]}'")
        if found := re.match(r'DIAG\(\w+, \d+, \w+, (.*)\)', line):
            for word in PROSE + DECODE + ["turn", "turns", "turned", "apart", "raw", "points"]:
                if re.search(rf"\b{word}\b", found[1]):
                    report(f"{name}:{number}", word, "a diagnostic")


def check_prose(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        if name.endswith(".md") and line.startswith("#"):
            for word in set(re.findall(r"[a-z]+", line.lower())) & set(WORDS):
                report(f"{name}:{number}", word, "a heading")
        held_out = PROSE + (DECODE if PLAIN.search(name) else [])
        for word in held_out:
            if re.search(rf"\b{word}\b", line, re.I):
                report(f"{name}:{number}", word, "prose")


for name in subprocess.run(["git", "ls-files"], cwd=source, capture_output=True, text=True, check=True).stdout.splitlines():
    path = source / name
    if name.startswith(LEFT_OUT) or not path.is_file():
        continue
    check_name(name, path.stem.replace("-", "_"), "the file name")
    text = path.read_text(errors="replace")
    if path.suffix in CODE or not path.suffix and text.startswith("#!"):
        check_code(name, text, path.suffix)
    if path.suffix in {".tile", ".test"}:
        check_test(name, text)
    if path.suffix == ".md":
        check_document(name, text)
    if path.suffix == ".def":
        check_tables(name, text)
    if path.suffix in C_CODE | {".md"}:
        check_prose(name, text)
print("\n".join(problems) or "none of the old words")
sys.exit(1 if problems else 0)
