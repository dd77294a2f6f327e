"""The extension of editors/vscode: its parts fit together, the package has them, and it works against an editor's API.

Usage: packages.py SOURCE_DIR TILEC
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

SOURCE, TILEC = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
FOLDER = SOURCE / "editors/vscode"


def check_grammar():
    """The grammar is the one that the tables give; its patterns color a text as the scanner takes it."""
    text = (FOLDER / "syntaxes/tile.tmLanguage.json").read_text()
    made = subprocess.run([TILEC, "docs", "textmate"], capture_output=True, text=True, check=True).stdout
    assert text == made, "editors/vscode/syntaxes/tile.tmLanguage.json: make it anew by `tilec docs textmate`"
    rules = [(rule["name"], re.compile(re.sub(r"\(\?<=\\b\(\?:([^)]*)\) \)", r"", rule["match"])))
             for rule in json.loads(text)["patterns"]]
    for word, name in (("kernel", "keyword"), ("bf16", "storage"), ("copy(", "support"), ("// x", "comment"),
                       ('"a\\"b"', "string"), ("@via", "entity"), ("0x1p-3", "constant"), ("1.5e3", "constant")):
        first = next(n for n, pattern in rules if pattern.match(word) and (name == "entity" or not n.startswith("entity.name")))
        assert first.startswith(name), (word, first)


def check_package(folder):
    out = pathlib.Path(folder) / "tile.vsix"
    subprocess.run([sys.executable, FOLDER / "package.py", out], check=True)
    first = out.read_bytes()
    subprocess.run([sys.executable, FOLDER / "package.py", out], check=True)
    assert first == out.read_bytes(), "two packages of one tree differ"
    with zipfile.ZipFile(out) as archive:
        archive.extractall(folder)
    package = json.loads((pathlib.Path(folder) / "extension/package.json").read_text())
    named = [package["main"]] + [g["path"] for g in package["contributes"]["grammars"]]
    named += [l["configuration"] for l in package["contributes"]["languages"]]
    for name in named:
        assert (pathlib.Path(folder) / "extension" / name).is_file(), name
    return pathlib.Path(folder) / "extension"


def main():
    check_grammar()
    with tempfile.TemporaryDirectory() as folder:
        extension = check_package(folder)
        node = shutil.which("node")
        if node:
            subprocess.run([node, SOURCE / "tests/lsp/extension_test.js", extension, TILEC], check=True, timeout=120)
        else:
            print("there is no node: the package was not run")


main()
