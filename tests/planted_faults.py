#!/usr/bin/env python3
"""A fault in the compiler is found although the cache knows its steps to pass.

    planted_faults.py SOURCE_DIR BUILD_DIR      (a release build by Ninja)

The tests run by tests/run.py in a copy of the tree with a cache of its own: they pass, then are known to pass. Then, in the place
of the copy's compiler, one with a fault (one of the sources compiled with a change, and linked): the step runs, and fails,
and again. With the true compiler it is known to pass again. The same for a fault in an input, and for a step that is there
in lit.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

# (text of one source, what it becomes, the step that has to find it)
FAULTS = [("if (sync_has(sync, SYNC_BARRIER)) push_call(", "if (!sync_has(sync, SYNC_BARRIER)) push_call(", step)
          for step in ("release/program_transpose", "release/passes/insert-sync.tile")]
FAULTS.append(("    mapper->changed = true;\n    clone_iterations(arena, stmt, out);", "    clone_iterations(arena, stmt, out);", "release/program_replicas"))   # T0511: a pass that hides its change
INPUT = ("examples/transpose.tile", "y[j, i] = x[i, j];", "y[j, i] = x[i, j] + 1;")


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


class Copy:
    """Of the tests and of the build, as far as the steps need them; the compiler is the true one until it is replaced."""

    def __init__(self, source, build, root):
        self.source, self.build, self.root = source, build, root
        self.tilec = root / "build/release/tilec"
        for folder in ("examples", "tests"):
            shutil.copytree(source / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for path in [*build.rglob("CTestTestfile.cmake"), build / "tests/lit/lit.site.cfg.py"]:
            to = self.tilec.parent / path.relative_to(build)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(path.read_text().replace(str(build), str(self.tilec.parent)).replace(str(source), str(root)))
        self.restore()

    def restore(self):
        shutil.copy2(self.build / "tilec", self.tilec)

    def plant(self, old, new):
        """Replaces the compiler by one with a fault."""
        path = self.source_with(old)
        changed = self.root / path.name
        changed.write_text(path.read_text().replace(old, new))
        (entry,) = [e for e in json.loads((self.build / "compile_commands.json").read_text()) if e["file"] == str(path)]
        words = shlex.split(entry["command"])
        words[words.index("-o") + 1] = str(self.root / "fault.o")
        words[words.index(str(path))] = str(changed)
        self.do(words)
        link = run(["ninja", "-t", "commands", "tilec"], cwd=self.build).stdout.splitlines()[-1]
        link = re.sub(r"-o tilec\b", f"-o {self.tilec} {self.root / 'fault.o'}", link)   # before the library that has the true one
        self.do(["bash", "-c", link])

    def source_with(self, text):
        listed = run(["git", "ls-files", "*.c"], cwd=self.source).stdout.split()
        (path,) = [self.source / name for name in listed if (self.source / name).read_text().count(text) == 1]
        return path

    def do(self, words):
        done = run(words, cwd=self.build)
        if done.returncode:
            sys.exit(f"{' '.join(words)}\n{done.stderr[-2000:]}")

    def test(self, step):
        """What the driver says of a step: "ran" or "known" and "passed" or "failed"."""
        done = run([sys.executable, str(self.root / "tests/run.py"), "--builds=release", "--only", f"^{re.escape(step)}$"], env=ENVIRONMENT)
        line = done.stdout.splitlines()[-1] if done.stdout else ""
        if line == "1 passed, 0 failed" and done.returncode == 0:
            return "known to pass" if "known to pass" in done.stdout else "passes"
        return "fails" if line == "0 passed, 1 failed" and done.returncode == 1 else f"{done.stdout}{done.stderr}"


ENVIRONMENT = {**os.environ, "GIT_DIR": "/nowhere"}   # the copy is no repository
problems = []


def expect(copy, step, told, when):
    found = copy.test(step)
    if found != told:
        problems.append(f"{step}, {when}: {found}\n    and should: {told}")


def main():
    source, build = map(pathlib.Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(source, build, pathlib.Path(folder))
        for old, new, step in FAULTS:
            expect(copy, step, "passes", "at first")
            expect(copy, step, "known to pass", "again")
            copy.plant(old, new)
            expect(copy, step, "fails", f"with `{new}`")
            expect(copy, step, "fails", "with the fault, again")
            copy.restore()
            expect(copy, step, "known to pass", "with the true compiler")
        name, old, new = INPUT
        path = copy.root / name
        path.write_text(path.read_text().replace(old, new))
        expect(copy, f"release/program_{path.stem}", "fails", "with a fault in the example")
    print("\n".join(problems) or f"{len(FAULTS)} faults and a changed input were found")
    return 1 if problems else 0


sys.exit(main())
