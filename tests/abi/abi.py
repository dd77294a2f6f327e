#!/usr/bin/env python3
"""The binary interface is that of the last release, but for what a minor version may add: abi.py SOURCE [--write]

docs/design/launch.md says what that is: functions, fields at the end of structures, numbers at the end of enumerations. Each function has a
version in cmake/libtilec.map, and one that the last release had keeps it. What the header
declares is compiled into an object whose debug information has each function as a variable, so that neither the library nor how it was
built matters. libabigail (abidw) describes it; tilec.json has what the last release had. Its abidiff cannot tell a field at the end from a field
that changed, so they are compared here. --write makes tilec.json anew: at a release, or where CHANGELOG.md names a break.
Exit 77: abidw (abigail-tools) is not installed.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
KNOWN = HERE / "tilec.json"


def symbol_versions(source):
    """Of each function the node of cmake/libtilec.map that has it."""
    text = re.sub("#.*", "", (source / "cmake/libtilec.map").read_text())
    return {name: node for node, inside in re.findall(r"(TILEC_[\d.]+)\s*\{(.*?)\}", text, re.S) for name in re.findall(r"\btilec_\w+", inside)}


def described(source, folder):
    """The description by abidw of what the header declares."""
    header = (source / "include/tilec/tilec.h").read_text()
    functions = sorted(set(re.findall(r"^TILEC_API[^(]*?\b(tilec_\w+)\(", header, re.M)))
    if set(functions) != set(symbol_versions(source)):
        sys.exit(f"the header and cmake/libtilec.map differ in {sorted(set(functions) ^ set(symbol_versions(source)))}")
    text = "#include <tilec/tilec.h>\n" + "".join(f"extern __typeof__({name}) *abi_{name};\n__typeof__({name}) *abi_{name};\n" for name in functions)
    (folder / "abi.c").write_text(text)
    subprocess.run(["cc", "-g", "-shared", "-fPIC", f"-I{source}/include", folder / "abi.c", "-o", folder / "abi.so"], check=True)
    out = folder / "tilec.abi"
    subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file", out, folder / "abi.so"], check=True)
    return out


class Description:
    """Of abidw: the types of functions, the fields of structures with their places, the numbers of enumerations."""

    def __init__(self, path):
        root = ElementTree.parse(path).getroot()
        self.types = {e.get("id"): e for e in root.iter() if e.get("id")}
        variables = {e.get("name", ""): e for e in root.iter("var-decl")}
        self.interface = {
            "functions": {name[4:]: self.spelled(e.get("type-id")) for name, e in variables.items() if name.startswith("abi_tilec_")},
            "structures": {e.get("name"): [self.field(f) for f in e.iter("data-member")] for e in root.iter("class-decl")},
            "enumerations": {e.get("name"): [f"{n.get('name')} = {n.get('value')}" for n in e.iter("enumerator")] for e in root.iter("enum-decl")}}

    def field(self, member):
        declared = member.find("var-decl")
        return f"{member.get('layout-offset-in-bits')}: {self.spelled(declared.get('type-id'))} {declared.get('name')}"

    def spelled(self, identity):
        e = self.types[identity]
        inner = self.spelled(e.get("type-id")) if e.get("type-id") and e.tag != "typedef-decl" else ""
        if e.tag == "pointer-type-def":
            return inner + "*"
        if e.tag == "qualified-type-def":
            return inner + " const" * (e.get("const") == "yes")
        if e.tag == "array-type-def":
            return inner + "".join(f"[{r.get('length')}]" for r in e.iter("subrange"))
        if e.tag == "function-type":
            return f"{self.spelled(e.find('return').get('type-id'))} ({', '.join(self.spelled(p.get('type-id')) for p in e.iter('parameter'))})"
        return e.get("name")


def breaks(old, new):
    """What a program that was built against `old` cannot take."""
    for name, kind in old["functions"].items():
        if new["functions"].get(name) != kind:
            yield f"{name} is {new['functions'].get(name, 'gone')}; it was {kind}"
    for name, version in old["versions"].items():
        if name in new["versions"] and new["versions"][name] != version:
            yield f"{name} has the version {new['versions'][name]}; it had {version}"
    for what in ("structures", "enumerations"):
        for name, before in old[what].items():
            now = new[what].get(name, [])
            if now[:len(before)] != before:
                yield f"{name} is {now}; it began with {before}"


def main(source, *options):
    if not shutil.which("abidw"):
        print("skipped: abidw is missing (package abigail-tools)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(source).resolve()
        interface = Description(described(source, pathlib.Path(folder))).interface | {"versions": symbol_versions(source)}
    if "--write" in options:
        KNOWN.write_text(json.dumps(interface, indent=1, sort_keys=True) + "\n")
        return
    found = list(breaks(json.loads(KNOWN.read_text()), interface))
    if found:
        sys.exit("a program that was built against the last release (tests/abi/tilec.json) may break:\n" + "\n".join(found))


main(*sys.argv[1:])
