#!/usr/bin/env python3
"""What is linked into the program and the libraries has its notice in licenses/, and packages have the notices: licences.py BUILD [PACKAGE ...]

The first line of a notice names the libraries that it is of. What is linked is read from the commands of the build, which has to be one that links
statically; PACKAGE is a wheel, an archive or a package for Debian. Without any, what `cmake --install` writes, and the copyright file of Debian's packages, are looked at.
"""
import fnmatch
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINKED = ("tilec", "libtilec.o", "libtilec-launch.o", "python/tilec/_tilec.abi3.so")
STATIC = {"-static-libstdc++": "libstdc++", "-static-libgcc": "libgcc"}


def linked(build):
    """Names of the static libraries of others in what is linked."""
    text, out = (build / "build.ninja").read_text(), set()
    for target in LINKED:
        block = re.search(rf"^build {re.escape(target)}[ :|].*?(?=\n\n)", text, re.M | re.S)
        for word in block.group().split() if block else ():
            archive = re.fullmatch(r"/\S*/(lib[^/\s]+)\.a", word)
            if archive and build not in pathlib.Path(word).parents:
                out.add(archive.group(1))
            elif word.startswith("-lLLVM"):   # archives of llvm-config
                out.add("lib" + word[2:])
            elif word in STATIC:
                out.add(STATIC[word])
    return out


def notices():
    """By file: (patterns of libraries, text)."""
    out = {}
    for path in sorted((ROOT / "licenses").glob("*.txt")):
        first, _, text = path.read_text().partition("\n")
        assert first.startswith("Libraries: "), f"{path}: its first line does not name libraries"
        out[path.name] = first.split()[1:], text
    return out


def contents(package):
    """The text files of a package."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            return [wheel.read(name).decode() for name in wheel.namelist() if ".dist-info/licenses/" in name]
    if package.suffix == ".deb":
        made = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE, check=True).stdout
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            file.write(made)
            file.flush()
            return contents(pathlib.Path(file.name))
    if package.name == "copyright":
        return [package.read_text()]
    if package.is_dir():
        return [path.read_text() for path in (package / "share/doc").rglob("*.txt")]
    with tarfile.open(package) as archive:
        return [archive.extractfile(item).read().decode() for item in archive
                if item.isfile() and "share/doc/" in item.name and item.name.endswith((".txt", "/copyright"))]


def flat(text):
    """Without what the form of a copyright file adds."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip() not in ("", "."))


def faults(build, packages):
    known, libraries = notices(), linked(build)
    for library in sorted(libraries):
        if not any(fnmatch.fnmatchcase(library, pattern) for patterns, _ in known.values() for pattern in patterns):
            yield f"{library} is linked, and licenses/ has no notice of it"
    for name, (patterns, _) in known.items():
        if not any(fnmatch.filter(libraries, pattern) for pattern in patterns):
            yield f"licenses/{name} is of nothing that is linked"
    if '"licenses/*.txt"' not in (ROOT / "pyproject.toml").read_text():
        yield "pyproject.toml: the wheel lacks licenses/"
    for package in packages:
        texts = flat("\n".join(contents(package)))
        for name, (_, text) in known.items():
            if flat(text) not in texts:
                yield f"{package} lacks the notice {name}"


def main():
    build, packages = pathlib.Path(sys.argv[1]).resolve(), [pathlib.Path(name) for name in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as folder:
        if not packages:
            subprocess.run(["cmake", "--install", build, "--prefix", folder, "--component", "licences"], check=True, stdout=subprocess.DEVNULL)
            packages = [pathlib.Path(folder), build / "package/copyright"]
        found = list(faults(build, packages))
    print("\n".join(found) or f"{len(linked(build))} libraries, {len(notices())} notices")
    sys.exit(bool(found))


main()
