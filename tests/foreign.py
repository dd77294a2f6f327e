#!/usr/bin/env python3
"""What programmers of other languages write is refused by one error, whose note says how it is written here, and whose fix, where
an edit does, makes it so.

Usage: foreign.py TILEC foreign.txt [--only REGEX]

The cases of foreign.txt are blocks of lines, between empty lines:

    - y[b]++;                 a statement in a grid over b, with x: f32[N] and y: out f32[N]; `-file` instead: a whole file
    + y[b] += 1;              the same after the fixes, which compiles
    = write y[b] += 1         a part of the note

Lines of one kind after each other are lines of one text.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

BODY = "kernel k(x: f32[N], y: out f32[N]) {\n    grid (b in N) threads 32 {\n%s\n    }\n}\n"


def cases(text):
    for block in re.split(r"\n\s*\n", text.strip()):
        case = {"-": [], "+": [], "=": [], "file": block.startswith("-file")}
        for line in block.splitlines():
            if not line.startswith("#"):
                case[line[0]].append(re.sub(r"^.(file)? ?", "", line))
        if case["-"]:
            yield case


def diagnostics(tilec, text):
    """Of a program, as JSON; None: it compiles."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "program.tile")
        path.write_text(text)
        done = subprocess.run([tilec, "opt", "--passes=", "--diagnostics=json", path], capture_output=True, text=True, check=False)
    return [json.loads(line) for line in done.stderr.splitlines()] if done.returncode else None


def mended(text, fixes):
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    edits = [(starts[fix["line"] - 1] + fix["column"] - 1, starts[fix["end_line"] - 1] + fix["end_column"] - 1, fix["text"]) for fix in fixes]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def faults(tilec, case):
    whole = (lambda lines: "\n".join(lines) + "\n") if case["file"] else (lambda lines: BODY % "\n".join(lines))
    wrong = whole(case["-"])
    found = diagnostics(tilec, wrong)
    if found is None:
        yield "it compiles"
        return
    errors = [one for one in found if one["severity"] == "error"]
    if len(errors) != 1:
        yield "errors: " + "; ".join(one["message"] for one in errors)
    notes = [note for one in errors for note in one["notes"]]
    if case["="] and not any("\n".join(case["="]) in note for note in notes):
        yield f"notes: {notes}"
    fixed = mended(wrong, [fix for one in errors for fix in one["fixes"]])
    wanted = whole(case["+"]) if case["+"] else wrong
    if fixed != wanted:
        yield f"mended: {fixed}"
    elif case["+"] and diagnostics(tilec, wanted) is not None:
        yield "what is mended does not compile: " + "; ".join(one["message"] for one in diagnostics(tilec, wanted))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tilec")
    parser.add_argument("cases", type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose wrong text matches")
    options = parser.parse_args()
    count = failed = 0
    for case in cases(options.cases.read_text()):
        if not re.search(options.only, "\n".join(case["-"])):
            continue
        count += 1
        wrong = list(faults(options.tilec, case))
        failed += bool(wrong)
        if wrong:
            print("\n".join(case["-"]), *wrong, sep="\n    ")
    print(f"{count} cases, {failed} failed")
    return 1 if failed or not count else 0


sys.exit(main())
