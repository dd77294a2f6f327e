#!/usr/bin/env python3
"""Compares the PTX of all examples and programs between two trees: it is the same, but for names.

    compare_ptx.py [--from TREE] [--to TREE] [--targets sm_80,sm_90a,sm_100a,sm_120a] [--only REGEX] [-j N] [--keep FOLDER]

TREE is a checkout with a release build in build/release. Default: --from is the baseline (bench/tree.sh makes it),
--to this tree. Each tree compiles its own sources, so that the sources may follow a change of the language. A file that
git sees as renamed is compared with what it was. What --from compiles to is kept in its build folder for the next time. Names of kernels and parameters, comments and source places are left out of
the comparison. A file that one tree refuses must be refused by the other with the same diagnostics' codes.

Exit 1 when a file differs; its first differing line is printed.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["examples", "tests/programs", "tests/programs/emulated"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tree = lambda text: pathlib.Path(text).resolve()   # tilec runs in it
    parser.add_argument("--from", dest="old", type=tree)
    parser.add_argument("--to", dest="new", type=tree, default=HERE)
    parser.add_argument("--targets", default="sm_80,sm_90a,sm_100a,sm_120a")
    parser.add_argument("--only", default=".")
    parser.add_argument("-j", dest="jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=pathlib.Path, help="where the normalised PTX of both sides goes")
    return parser.parse_args()


def sources(tree):
    return [f"{folder}/{path.name}" for folder in FOLDERS for path in sorted((tree / folder).glob("*.tile"))]


def renames(old, new):
    """{new name: old name} of the files that git sees as renamed between the two trees."""
    commit = subprocess.run(["git", "-C", old, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    listing = subprocess.run(["git", "-C", new, "diff", "-M", "--name-status", "--diff-filter=R", commit, "--", *FOLDERS],
                             capture_output=True, text=True, check=True).stdout
    return {fields[2]: fields[1] for line in listing.splitlines() if len(fields := line.split("\t")) == 3}


def normalised(text):
    """The PTX without comments, with its kernels numbered in the place of their names."""
    text = re.sub(r"//[^\n]*", "", text)
    names = re.findall(r"\.entry\s+([\w$]+)", text)
    for index, name in sorted(enumerate(names), key=lambda item: -len(item[1])):
        text = re.sub(rf"(?<![\w$]){re.escape(name)}(?=_param_\d+\b|(?![\w$]))", f"kernel{index}", text)
    return "\n".join(line for line in (line.rstrip() for line in text.splitlines()) if line)


def compiled(tree, name, target):
    """(PTX, codes of the errors that refused it)."""
    with tempfile.NamedTemporaryFile(suffix=".ptx") as out:
        done = subprocess.run([tree / "build/release/tilec", "build", name, "--emit=ptx", "--no-lines", f"--target={target}",
                               "--record=none", "-o", out.name], cwd=tree, capture_output=True, text=True)
        if done.returncode:
            return None, (done.returncode, sorted(set(re.findall(r"error\[(T\d+)\]", done.stderr))))
        return normalised(pathlib.Path(out.name).read_text()), None


def remembered(tree, name, target):
    """compiled(), kept in the tree's build folder under the hash of its compiler and the sources."""
    path = tree / "build/ptx" / state(tree) / target / (name.replace("/", "-") + ".json")
    if path.exists():
        return tuple(json.loads(path.read_text()))
    ptx, refused = compiled(tree, name, target)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([ptx, list(refused) if refused else None]))
    return ptx, refused


@functools.cache
def state(tree):
    found = hashlib.sha256((tree / "build/release/tilec").read_bytes())
    for folder in FOLDERS:
        for path in sorted((tree / folder).rglob("*.tile")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def difference(old, new):
    for number, (a, b) in enumerate(zip(old.splitlines(), new.splitlines()), 1):
        if a != b:
            return f"line {number}:\n    - {a.strip()}\n    + {b.strip()}"
    return f"{len(old.splitlines())} lines, then {len(new.splitlines())}"


def compare(case):
    name, was, target = case
    old, old_refused = remembered(options.old, was, target)
    new, new_refused = compiled(options.new, name, target)
    if options.keep:
        for side, text in (("from", old), ("to", new)):
            path = options.keep / side / target / (pathlib.Path(name).stem + ".ptx")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text or "")
    if old_refused or new_refused:
        same = old_refused and new_refused and list(old_refused) == list(new_refused)
        return None if same else f"refused: {old_refused}, then {new_refused}"
    return None if old == new else difference(old, new)


def main():
    old, new = set(sources(options.old)), set(sources(options.new))
    moved = renames(options.old, options.new)
    names = [name for name in sorted(new) if re.search(options.only, name)]
    added = [name for name in names if moved.get(name, name) not in old]
    gone = [name for name in sorted(old - new - set(moved.values())) if re.search(options.only, name)]
    cases = [(name, moved.get(name, name), target) for name in names if name not in added
             for target in options.targets.split(",")]
    state(options.old)
    differ = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for (name, _, target), problem in zip(cases, pool.map(compare, cases)):
            if problem:
                differ += 1
                print(f"{name} {target}: {problem}", flush=True)
    for name in gone:
        print(f"{name}: gone")
    if added:
        print(f"new, not compared: {' '.join(added)}")
    print(f"{len(cases) - differ} of {len(cases)} the same, but for names")
    return 1 if differ or gone or not cases else 0


options = arguments()
if not options.old:
    options.old = pathlib.Path(subprocess.run([HERE / "bench/tree.sh"], stdout=subprocess.PIPE, text=True,
                                              check=True).stdout.strip())
sys.exit(main())
