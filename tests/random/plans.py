#!/usr/bin/env python3
"""The plan of a kernel depends on its dataflow, not on its text: the same for sources of the same meaning.

    plans.py TILEC SOURCE_DIR [--count 20] [--seed 1] [--only REGEX] [--target sm_90a] [--keep FOLDER]

Of each family an example is rewritten --count times: other names of buffers, statements in another order where they share nothing,
lets for parts of indices, lets in place, blocks, branches and operands exchanged. What `plan` writes on the grid of each variant (order,
claims, groups, or why there are none), which variants there are, with their tunables, and the mechanisms and hints that `select`
leaves have to be the same. Exit 1 where they are not; the first difference is printed, and the source kept in --keep.
"""
import argparse
import collections
import copy
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import language
import rewrites
from language import Node

# example -> values of its names
FAMILIES = {
    "gemm": [], "gemm_bias_gelu": [], "gemm_swiglu": [], "gemm_grouped": [], "gemm_fp8": [], "gemm_i8": [], "gemm_w4": [], "gemm_w8": [],
    "attention": ["D=128"], "attention_varlen": ["D=128"], "attention_fp8": ["D=128"], "moe": ["K=2"], "mamba2_ssd": ["N=64", "P=64"],
    "gated_delta_rule": ["N=64", "P=64"],
}
DECISION = re.compile(r"@via\(\w+\)|@stages\(\d+\)|stages = \d+|evict_first|let start\b")


# (example, rewrite) -> what is not mended.
KNOWN = {("gemm_swiglu", 7): "a copy between two products of a step makes consumers cooperate, where ping-pong is taken else"}


class Rewriter(rewrites.Rewriter):
    """Those rewrites that leave the dataflow as it is, and the loops."""

    def __init__(self, items, random):
        super().__init__(items, random)
        self.rewrites = [self.inlined, self.expanded, self.inverted, self.exchanged, self.braces, self.named]

    def braces(self, stmts, at):
        return None if stmts[at].kind == "block" else self.wrapped(stmts, at)

    def named(self, stmts, at):
        """A sum or product in an index as a let before the statement."""
        stmt = stmts[at]
        if stmt.kind not in ("do", "store") or rewrites.has_effect(stmt):
            return None
        places = [(n, i) for n in rewrites.nodes(stmt) if n.kind == "index" for i, e in enumerate(n.indices)
                  if isinstance(e, Node) and e.kind == "binary" and e.op in "+*" and not rewrites.has(e, "index")]
        if not places:
            return None
        place, i = self.random.choice(places)
        let = Node("let", name=self.name("named"), value=place.indices[i])
        place.indices = [*place.indices[:i], rewrites.name_of(let.name), *place.indices[i + 1:]]
        return [stmt], [let, stmt]


def rewritten(items, rng):
    items = copy.deepcopy(items)
    for item in items:
        if item.kind != "kernel":
            continue
        rewriter = Rewriter(items, rng)
        if rng.random() < 0.5:
            rewriter.renamed(item)
        rewriter.shapes = {d.name: d for d in rewrites.nodes(item) if d.kind == "decl"}
        rewriter.block(item.body, rng.choice([0.1, 0.3, 0.6]))
        rewriter.commuted(item)
    return language.body(items)


def dump(path, defines, step):
    words = [word for define in defines for word in ("-D", define)]
    done = subprocess.run([options.tilec, "opt", f"--target={options.target}", f"--stop-after={step}", *words, path], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"{path}: {done.stderr[:2000]}")
    return re.split(r"\n(?=(?:@[^\n]*\n)?(?:kernel|program) )", done.stdout)


def plan(path, defines):
    """What is decided, a line each."""
    lines = []
    for kernel in dump(path, defines, "plan"):
        lines += re.findall(r"^(?:@tuned.*|kernel \w+|program \w+)", kernel, re.M)
        lines += [grid.strip() or "(nothing)" for grid in re.findall(r"^ *((?:@\w+(?:\([^()]*\))? )*)grid \(", kernel, re.M)]
    for kernel in dump(path, defines, "select"):
        counts = collections.Counter(DECISION.findall(kernel))
        lines.append(" ".join(f"{what}: {count}" for what, count in sorted(counts.items())))
    return lines


def check(name, defines, folder):
    """How many rewrites have another plan, those in KNOWN apart."""
    source = (options.source / "examples" / f"{name}.tile").read_text()
    items = [item for item in language.parse(source) if item.kind in ("kernel", "const", "macro", "fn")]
    path = folder / f"{name}.tile"
    path.write_text(language.body(items))
    want, differ, exempt = plan(path, defines), 0, 0
    for number in range(options.seed, options.seed + options.count):
        path = folder / f"{name}-{number}.tile"
        path.write_text(rewritten(items, random.Random(f"{name} {number}")))
        found = plan(path, defines)
        if found == want:
            continue
        known = KNOWN.get((name, number))
        if known:
            print(f"{name}, rewrite {number}: {known}", flush=True)
            exempt += 1
            continue
        differ += 1
        first = next(((a, b) for a, b in zip(want, found) if a != b), (f"{len(want)} lines", f"{len(found)} lines"))
        print(f"{name}, rewrite {number}: {path}\n    - {first[0]}\n    + {first[1]}", flush=True)
    print(f"{name}: {options.count - differ - exempt} of {options.count} have the same plan, {len(want)} decisions", flush=True)
    return differ


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tilec", type=lambda text: pathlib.Path(text).resolve())
parser.add_argument("source", type=pathlib.Path)
parser.add_argument("--count", type=int, default=20)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--only", default="")
parser.add_argument("--target", default="sm_90a")
parser.add_argument("--keep", type=pathlib.Path)
options = parser.parse_args()
chosen = {name: defines for name, defines in FAMILIES.items() if re.search(options.only, name)}
with tempfile.TemporaryDirectory() as place:
    folder = options.keep or pathlib.Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    bad = sum(check(name, defines, folder) for name, defines in chosen.items())
sys.exit(1 if bad or not chosen else 0)
