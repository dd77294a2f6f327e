"""Data flows one way: no folder includes or calls one that comes after it. And no machine's paths stand in the product.

    support < layout < target < ir < { frontend, passes, emulator, codegen } < runtime < tools

Folders in braces do not know each other. LLVM is seen by codegen only (runtime may use its BLAKE3). The tools are a thin
client: the public header, runtime and support. Headers are the map: each source has its own, or a
comment of one in its folder names it.

Usage: arch.py SOURCE_DIR BUILD_DIR [--sanitized]   (sanitized binaries name their sources, and may)
"""

import fnmatch
import pathlib
import re
import subprocess
import sys

LEVELS = [["support"], ["layout"], ["target"], ["ir"], ["frontend", "passes", "emulator", "codegen"], ["runtime"]]
MAY_USE = {}
below = []
for level in LEVELS:
    for folder in level:
        MAY_USE[folder] = set(below) | {folder}
    below += level
MAY_USE["runtime"].add("tilec")
MAY_USE["tools"] = {"tools", "tilec", "runtime", "support"}
LLVM = {"codegen": r"llvm-c/", "runtime": r"llvm-c/blake3\.h"}

source, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
problems = []


def check_includes(folder):
    """Include edges of a folder's sources, generated ones aside (they include what their grammar includes)."""
    for path in sorted((source / folder).rglob("*")):
        if path.suffix not in {".c", ".h", ".l", ".y", ".def"}:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            place = f"{path.relative_to(source)}:{number}"
            if found := re.match(r'\s*#\s*include\s*"([^"]+)"', line):
                target = found[1].split("/")[0]
                if "/" not in found[1] and not (path.parent / found[1]).exists():
                    continue   # generated beside its user
                if ".." in found[1] or "/" not in found[1]:
                    problems.append(f'{place}: write #include "folder/file.h", from the root')
                elif target not in MAY_USE[folder]:
                    problems.append(f"{place}: {folder} may not include {found[1]}")
            if found := re.match(r"\s*#\s*include\s*[<\"]((llvm|clang)[^>\"]*)", line):
                if not re.match(LLVM.get(folder, r"(?!)"), found[1]):
                    problems.append(f"{place}: {folder} may not include {found[1]}")


def symbols(folder):
    """(defined, undefined) external names of a folder's library; None when it is not built."""
    library = build / folder / f"libtilec_{folder}.a"
    if not library.exists():
        return None
    listing = subprocess.run(["nm", "-P", str(library)], capture_output=True, text=True, check=True).stdout
    names = [line.split() for line in listing.splitlines() if len(line.split()) >= 2]
    defined = {name[0] for name in names if name[1] in "TDBRVW"}
    return defined, {name[0] for name in names if name[1] == "U"}


def check_calls():
    """Call edges: what a library leaves undefined may be defined only by a folder that it may use."""
    known = {folder: found for folder in MAY_USE if folder != "tools" and (found := symbols(folder))}
    owner = {name: folder for folder, (defined, _) in known.items() for name in defined}
    for folder, (defined, undefined) in known.items():
        for name in sorted(undefined - defined):
            if name in owner and owner[name] not in MAY_USE[folder]:
                problems.append(f"{folder} may not use {name} of {owner[name]}")
            if name.startswith("LLVM") and folder not in LLVM:
                problems.append(f"{folder} may not use {name} of LLVM")


def check_paths():
    """The sources name no machine's folders, the binaries not the one that they were built in."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=source, capture_output=True, text=True)
    for name in filter(None, files.stdout.split("\0")):
        path = source / name
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if re.search(r"(?<![\w./])/(home|root|work|mnt|Users)/\w", line):
                problems.append(f"{name}:{number}: a path of some machine: {line.strip()[:80]}")
    for name in ["tilec", "libtilec.so", "libtilec.a"]:
        path = build / name
        if path.exists() and "--sanitized" not in sys.argv:
            data = path.read_bytes()
            for folder in {str(source), str(build)}:
                if (at := data.find((folder + "/").encode())) >= 0:
                    problems.append(f"{name} contains {data[at:at + 100].split(bytes(1))[0].decode(errors='replace')}")


def check_maps():
    """Each source has a header, or stands in a comment of one of its folder or the folder above; `cmd_*` names several."""
    for path in sorted(path for folder in MAY_USE for path in (source / folder).rglob("*.c") if not path.with_suffix(".h").exists()):
        headers = [header for folder in (path.parent, path.parent.parent) for header in folder.glob("*.[hd]*") if header.is_file()]
        comments = "\n".join(found for header in headers for found in re.findall(r"//.*", header.read_text(errors="replace")))
        if not any(fnmatch.fnmatch(path.stem, name) for name in set(re.findall(r"[\w*]*\w[\w*]*", comments))):
            problems.append(f"{path.relative_to(source)}: no header of its folder says what it does")


for folder in MAY_USE:
    check_includes(folder)
check_maps()
check_calls()
check_paths()
print("\n".join(problems) or "every edge points down, every source is on a map, no machine paths")
sys.exit(1 if problems else 0)
