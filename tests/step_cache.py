"""Which steps are known to pass: a step's key is a hash of all that it reads.

That is its command and environment, each file that these name (an executable by its content, a .tile file with its imports, a
folder with all files in it), for a lit test the file itself, those that it names, and the executables of its build; what a
test reads besides, CMake declares (REQUIRED_FILES). Tools of the system count by name, size and date. Only passes are kept.

Executables are the same wherever and whenever they are built: no paths and dates are in them, only the version, and a commit, which does
not count.
"""
import hashlib
import os
import pathlib
import re
import shutil
import time

FORMAT = "1"   # another one makes all that was kept unknown
DAYS = 60      # a pass that was not asked for so long is forgotten
COMMIT = re.compile(rb"commit:[0-9a-f]{12}")   # cmake/Commit.cmake
IMPORT = re.compile(r'^\s*import "([^"]+)"', re.M)
PLACES = re.compile(r"%(examples|programs|S|bin)((?:/[\w.-]+)*)")   # of a lit test
PATHS = re.compile(r"/[^\s'\"$;&|]+")
TOOLS = ["lit-22", "ptxas", "nvlink", "python3", "bash", "/usr/lib/llvm-22/bin/FileCheck", "/usr/lib/llvm-22/lib/libLLVM.so"]


class Cache:
    def __init__(self, folder, root):
        self.root, self.file, self.known, self.hashes = root, folder / "passes.tsv", {}, {}
        folder.mkdir(parents=True, exist_ok=True)
        self.read()
        self.tools = [tool_identity(tool) for tool in TOOLS]

    def read(self):
        """The passes there are; the file is written again without old ones when half of it is old."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        for line in lines:
            key, day, name = line.split("\t")
            self.known[key] = (int(day), name)
        fresh = {key: row for key, row in self.known.items() if row[0] > today() - DAYS}
        if len(lines) > 2 * len(fresh) + 1000:
            new = self.file.with_suffix(f".{os.getpid()}")
            new.write_text("".join(f"{key}\t{day}\t{name}\n" for key, (day, name) in fresh.items()))
            new.replace(self.file)
        self.known = fresh

    def has(self, key):
        if key not in self.known:
            return False
        day, name = self.known[key]
        if day < today():
            self.add(key, name)
        return True

    def add(self, key, name):
        self.known[key] = (today(), name)
        with self.file.open("a") as file:
            file.write(f"{key}\t{today()}\t{name}\n")

    def key(self, step):
        """None for a step whose input is not known."""
        if not step.cached:
            return None
        sum_ = hashlib.sha256()
        for text in [FORMAT, step.name, *self.tools, *step.command, *(f"{k}={v}" for k, v in sorted(step.environment.items()))]:
            sum_.update(self.relative(text).encode() + b"\0")
        for path in sorted(self.inputs(step)):
            sum_.update(f"{self.relative(str(path))}\0{self.hash(path)}\0".encode())
        return sum_.hexdigest()

    def relative(self, text):
        return text.replace(str(self.root), "")

    def hash(self, path):
        if path not in self.hashes:
            self.hashes[path] = hashlib.sha256(COMMIT.sub(b"", path.read_bytes())).hexdigest() if path.is_file() else "none"
        return self.hashes[path]

    # --- What a step reads. ---

    def inputs(self, step):
        found = set()
        if step.command:
            for text in step.command + list(step.environment.values()):
                for word in {text, *PATHS.findall(text)}:
                    self.add_path(found, pathlib.Path(word))
        else:
            self.add_lit(found, step)
        for path in step.declared:
            self.add_path(found, pathlib.Path(path))
        return found

    def add_lit(self, found, step):
        build = self.root / "build" / step.build
        path = self.root / "tests" / "lit" / step.name.split("/", 1)[1]
        self.add_path(found, path)
        for name in ("lit.cfg.py", "exits.sh"):
            self.add_path(found, self.root / "tests" / "lit" / name)
        for name in ("tilec", "tilec-gpu", "libtilec.so", "tests/fake_cuda/libcuda.so.1"):
            self.add_path(found, build / name)
        places = {"examples": self.root / "examples", "programs": self.root / "tests" / "programs", "S": path.parent, "bin": build}
        for place, rest in PLACES.findall(path.read_text(errors="replace")):
            if place != "bin" or rest:
                self.add_path(found, pathlib.Path(os.path.normpath(f"{places[place]}{rest}")))

    def add_path(self, found, path):
        """A file of this repository or its builds, with its imports; a folder of sources, with all that is in it."""
        if path in found or not path.is_absolute() or not path.is_relative_to(self.root):
            return
        if path.is_dir():
            if not path.is_relative_to(self.root / "build"):
                found.update(sources(path))
            elif (library := path / "libcuda.so.1").exists():   # a folder of LD_LIBRARY_PATH
                found.add(library)
            return
        found.add(path)   # also where there is none: it may come
        if path.suffix in (".tile", ".test") and path.is_file():
            for name in IMPORT.findall(path.read_text(errors="replace")):
                self.add_path(found, pathlib.Path(os.path.normpath(path.parent / name)))
        if path.suffix == ".py":
            found.update(path.parent.glob("*.py"))


def sources(folder):
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in ("build", "out", "__pycache__") and not name.startswith(".")]
        yield from (pathlib.Path(here) / name for name in files if not name.endswith(".pyc"))


def tool_identity(name):
    path = shutil.which(name) or name
    try:
        found = os.stat(path)
        return f"{name} {found.st_size} {found.st_mtime_ns}"
    except OSError:
        return f"{name} none"


def today():
    return int(time.time() // 86400)
