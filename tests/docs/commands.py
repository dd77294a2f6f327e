#!/usr/bin/env python3
"""Runs the commands that the pages of docs/ show, and compares what they print with what the pages show.

    ```console                 lines that begin with `$ ` are commands, the others what they print
    ```console fails           the last command fails
    ```console needs a GPU     is not run

In an output `...` stands for any text of a line, or, alone on a line, for any lines. A command without an output must succeed, and may print.
A page's commands run in one folder, with copies of the .tile files of the page's folder, and examples/. A block ```tile NAME.tile writes that
file. Any other ```tile block of a lesson is a piece of a .tile file of its folder, so that text and file agree.
A command of tilec stands in such blocks and in no others.

Usage: commands.py TILEC SOURCE_DIR [PAGE...]
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

tilec, root = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
FREE = ("docs/notebook/", "docs/reference/diagnostics/", "docs/reference/cli.md")   # what was so then; explanations.py; a table of options
BLOCK = re.compile(r"^```(\w+)? ?([^\n]*)\n(.*?)^```$", re.M | re.S)
problems = []


def pattern(lines):
    """A regular expression for the lines of an output."""
    text = ""
    for line in lines:
        text += r"(?:.*\n)*?" if line.strip() == "..." else ".*".join(re.escape(piece) for piece in line.split("...")) + r"\n"
    return re.compile(text + r"\Z")


def commands_of(body):
    """(command, lines of output) of a block."""
    found = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def run_block(place, words, body, folder):
    if "needs a GPU" in words:
        return 0
    commands = commands_of(body)
    environment = {**os.environ, "PATH": f"{tilec.parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    for number, (command, expected) in enumerate(commands, 1):
        result = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        may_fail = words == "fails" and number == len(commands)
        if (result.returncode != 0) != may_fail:
            problems.append(f"{place}: `{command}` ends with {result.returncode}\n{result.stdout}")
        elif expected and not pattern(expected).match(result.stdout if result.stdout.endswith("\n") else result.stdout + "\n"):
            problems.append(f"{place}: `{command}` prints\n{result.stdout}")
    return len(commands)


def folded(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


def within(piece, whole):
    return any(whole[at:at + len(piece)] == piece for at in range(len(whole) - len(piece) + 1))


def check_page(name):
    text, count = (root / name).read_text(), 0
    files = sorted((root / name).parent.glob("*.tile"))
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            shutil.copy(file, folder)
        os.symlink(root / "examples", pathlib.Path(folder) / "examples")
        for match in BLOCK.finditer(text):
            place = f"{name}:{text.count(chr(10), 0, match.start()) + 1}"
            language, words, body = match.groups()
            if language == "console":
                count += run_block(place, words, body, folder)
            elif language == "tile" and words.endswith(".tile"):
                (pathlib.Path(folder) / words).write_text(body)
            elif language == "tile" and "/tutorial/" in name and not any(within(folded(body), folded(file.read_text())) for file in files):
                problems.append(f"{place}: no .tile file of the folder has these lines")
            elif language != "layout" and re.search(r"^(\$ )?tilec ", body, re.M):
                problems.append(f"{place}: commands stand in a block of `console`")
    outside = BLOCK.sub("", text)
    problems.extend(f"{name}: commands stand in a block of `console`: {line}" for line in re.findall(r"^    (?:\$ tilec |tilec (?:build|test|run|bench|tune|opt|layout|docs) ).*", outside, re.M))
    return count


pages = sys.argv[3:] or [os.path.relpath(path, root) for path in sorted((root / "docs").rglob("*.md"))]
counts = [check_page(name) for name in pages if not name.startswith(FREE)]
print("\n".join(problems) or f"{sum(counts)} commands of {len(counts)} pages")
sys.exit(1 if problems else 0)
