#!/usr/bin/env python3
"""The compiler runs every function of layout/ outside of the calculator's folder when it compiles the examples.

    layout_coverage.py SOURCE_DIR BUILD_DIR [--list]      (a release build by Ninja; --list prints all counts)

The sources of layout/ are compiled anew with counters and linked in the place of those of the build; then the examples go through
all passes for each target, printed and read back after each, and their layouts are drawn. Left out are functions that only say why something is refused (ERROR_PATHS).
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

TARGETS = ["sm_80", "sm_90a", "sm_120a"]
ERROR_PATHS = {"refuse", "layout_refuse", "make_printable", "unexpected", "too_large"}


def do(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{command if isinstance(command, str) else ' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


def counted_compiler(source, build, root):
    """A tilec whose layout/ counts."""
    objects = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.parent != source / "layout" or "tilec_layout.dir" not in entry["command"]:
            continue
        words = [word for word in shlex.split(entry["command"]) if not re.match(r"-O|-flto|-Werror", word) and word != "ccache"]
        words[words.index("-o") + 1] = str(root / (path.stem + ".o"))
        do(words + ["-O0", "--coverage"], cwd=entry["directory"])
        objects.append(root / (path.stem + ".o"))
    link = do(["ninja", "-t", "commands", "tilec"], cwd=build).splitlines()[-1]
    tilec = root / "tilec"
    link = re.sub(r"-o tilec\b", f"-o {tilec} {' '.join(map(str, objects))} --coverage", link)   # before the library of the same
    do(["bash", "-c", link], cwd=build)
    return tilec, objects


def counts(objects, root):
    """{(file, function): times}"""
    found = {}
    for path in objects:
        if not path.with_suffix(".gcda").exists():
            sys.exit(f"layout_coverage: nothing ran in {path.stem}.c")
        for file in json.loads(do(["gcov", "--json-format", "--stdout", path], cwd=root))["files"]:
            name = pathlib.Path(file["file"]).name
            if "layout/" in file["file"] and "support/" not in file["file"]:
                for function in file["functions"]:
                    key = name, function["name"]
                    found[key] = found.get(key, 0) + function["execution_count"]
    return found


def main():
    source, build = (pathlib.Path(arg).resolve() for arg in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        tilec, objects = counted_compiler(source, build, root)
        (root / "out").mkdir()
        environment = {**os.environ, "TILEC_CACHE": "off"}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda job: subprocess.run([tilec, "build", job[1], f"--target={job[0]}", "--roundtrip-each", "--emit=tile,layouts", "-o", root / "out" / f"{job[0]}.{job[1].stem}"],
                                                     env=environment, capture_output=True, cwd=source),
                          [(target, path) for target in TARGETS for path in sorted((source / "examples").glob("*.tile"))]))
        found = counts(objects, root)
    if "--list" in sys.argv:
        for (file, function), times in sorted(found.items()):
            print(f"{times:12}  {file}  {function}")
    unused = [f"{file}: {function}" for (file, function), times in sorted(found.items())
              if not times and function not in ERROR_PATHS]
    if unused:
        sys.exit("no example runs these functions of layout/; what only the calculator uses is in layout/calculator:\n" + "\n".join(unused))
    print(f"{len(found)} functions of layout/ run")


main()
