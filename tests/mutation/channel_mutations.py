#!/usr/bin/env python3
"""Each acquire, commit, receive, release, enter and leave of a program with channels is needed: without it the program is
refused or the emulator reports it, with a place in the program.

The text is what the frontend prints: one form, without blocks. Each statement is deleted in turn.

    channel_mutations.py TILEC FILE...     exit 0: each deletion was noticed
"""
import pathlib
import re
import subprocess
import sys
import tempfile

STATEMENT = re.compile(r"^ *(?:let \w+ = (?:acquire|receive)|commit|release|enter|leave)\(\w+\);\n", re.M)
# What a deletion is reported as: an unknown handle, a broken rule of the verifier, or a run that ends in one of these.
NOTICED = {"T0201", "T0418", "T0701", "T0702", "T0705", "T0742", "T0743"}


def codes(tilec, path, *args):
    """The codes of a run, with the lines that they name."""
    run = subprocess.run([tilec, *args, str(path)], capture_output=True, text=True)
    return run.returncode, re.findall(r"\.tile:(\d+):\d+: error\[(T\d+)\]", run.stderr)


def main(tilec, *files):
    unnoticed = count = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "program.tile")
        for file in files:
            source = pathlib.Path(file).read_text()
            tests = "".join(re.findall(r"^reference \w+ \{.*?\n\}\n|^reference [^\n]*\}\n|^test [^\n]*;\n", source, re.M | re.S))
            printed = subprocess.run([tilec, "opt", "--passes=none", file], capture_output=True, text=True, check=True).stdout
            if "\nreference " not in printed:
                printed += tests
            path.write_text(printed)
            status, found = codes(tilec, path, "test", "--passes=none", "--target=sm_90a")
            assert status == 0, f"{file} fails as it is: {found}"
            for statement in STATEMENT.finditer(printed):
                count += 1
                path.write_text(printed[:statement.start()] + printed[statement.end():])
                status, found = codes(tilec, path, "test", "--passes=none", "--target=sm_90a")
                if status and any(code in NOTICED for _, code in found):
                    continue
                unnoticed += 1
                print(f"{file}: not noticed without {statement[0].strip()}: {found}")
    print(f"{count} deletions, {unnoticed} not noticed")
    return 1 if unnoticed or not count else 0


sys.exit(main(*sys.argv[1:]))
