"""The description for Compiler Explorer (editors/compiler-explorer) is true: its command lines, options and output formats.

Usage: compiler_explorer.py SOURCE_DIR TILEC
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE, TILEC = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
FOLDER = SOURCE / "editors/compiler-explorer"
PROGRAM = (SOURCE / "docs/tutorial/03_softmax.tile").read_text()
README = (FOLDER / "README.md").read_text()
PROPERTIES = dict(line.split("=", 1) for line in (FOLDER / "tile.defaults.properties").read_text().splitlines()
                  if "=" in line and not line.startswith("#"))
# As Compiler Explorer reads them: asm-parser-ptx.ts, asm-parser.ts, utils.ts.
FILE, LOC, OWN = r'^\s*\.file\s+(\d+)\s+"([^"]+)"', r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)", r"<stdin>|^-$|example\.[^/]+$|<source>"
MESSAGE = r"^\s*<source>[(:](\d+)(:?,?(\d+):?)?[):]*\s*(.*)"


def run(folder, arguments):
    return subprocess.run([TILEC, *arguments], cwd=folder, capture_output=True, text=True)


def class_options():
    """The command line of tilec.ts with the options of the properties."""
    found = re.search(r"return \[('build'.*?), outputFilename\];", (FOLDER / "tilec.ts").read_text())
    return re.findall(r"'([^']*)'", found[1]) + ["output.ptx"] + PROPERTIES["compiler.tilec.options"].split() + ["example.tile"]


def check_commands(folder):
    """Each command of the page works; the first compile is that of the class."""
    commands = [c.split()[1:] for c in re.findall(r"^\| `(tilec [^`]*)`", README, re.M)]
    assert class_options() == commands[1], (class_options(), commands[1])
    for command in commands:
        ran = run(folder, command)
        assert ran.returncode == 0, (command, ran.stderr)
    tool = [PROPERTIES["tools.tilectest.options"], "example.tile"]
    assert tool in commands
    assert re.match(PROPERTIES["versionRe"], run(folder, [PROPERTIES["versionFlag"]]).stdout.splitlines()[0], re.I)


def compiled(folder):
    for path in folder.glob("output.*"):
        path.unlink()
    assert run(folder, class_options()).returncode == 0
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def check_outputs(folder):
    """The files that the page lists and no others, in the forms that the parsers read; the same bytes again."""
    made = compiled(folder)
    listed = set(re.findall(r"^\| `(output\.[^`]*)`", README, re.M))
    assert listed == set(made) - {"example.tile"}, (listed, set(made))
    assert made == compiled(folder)
    files = dict(re.findall(FILE, made["output.ptx"], re.M))
    assert any(re.search(OWN, name) for name in files.values()), files
    lines = {int(line) for file, line, _ in re.findall(LOC, made["output.ptx"], re.M) if re.search(OWN, files[file])}
    wanted = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if re.search(r"\b(copy|reduce_\w+|parallel)\b", line.split("//")[0])}
    wanted = {n for n in wanted if n < PROGRAM[:PROGRAM.index("\nreference")].count("\n")}
    assert wanted and wanted <= lines <= set(range(PROGRAM.count("\n") + 2)), (wanted, lines)
    assert "kernel softmax" in made["output.tile"] and "define" in made["output.ll"] and "fragment" in made["output.layouts.txt"]


def check_messages(folder):
    (folder / "example.tile").write_text(PROGRAM.replace("copy(", "copi(", 1))
    ran = run(folder, [argument if argument != "example.tile" else str(folder / "example.tile") for argument in class_options()])
    message = re.match(MESSAGE, ran.stderr.splitlines()[0].replace(str(folder / "example.tile"), "<source>"))
    line = PROGRAM[:PROGRAM.index("copy(")].count("\n") + 1
    assert ran.returncode == 1 and message and int(message[1]) == line and message[4].startswith("error[T0202]"), ran.stderr
    assert run(folder, ["build", "--no-such-option", "example.tile"]).returncode == 2


def check_mode():
    """The words that the editor colors are those of the language."""
    rules = {rule["name"]: rule["match"] for rule in json.loads((SOURCE / "editors/vscode/syntaxes/tile.tmLanguage.json").read_text())["patterns"]}
    mode = (FOLDER / "tile-mode.ts").read_text()
    for name, rule in (("keywords", "keyword.control.tile"), ("types", "storage.type.tile")):
        words = re.findall(r"'(\w+)'", re.search(name + r": \[(.*?)\]", mode, re.S)[1])
        assert words == re.search(r"\((.*)\)", rules[rule])[1].split("|"), name


def main():
    check_mode()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        (folder / "example.tile").write_text(PROGRAM)
        check_commands(folder)
        check_outputs(folder)
        check_messages(folder)


main()
