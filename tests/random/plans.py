#!/usr/bin/env python3
"""The plan of a kernel depends on its dataflow, not on its text: the same for sources of the same meaning.

    plans.py TILEC SOURCE_DIR [--count 20] [--seed 1] [--only REGEX] [--target sm_90a] [--keep FOLDER]

Of each family an example is rewritten --count times: other names of buffers, statements in another order where they share nothing,
lets and fragments for terms of indices and values, lets in place, blocks, branches and operands exchanged, parallel loops split and fused, serial
loops in two, copies as loops over elements, under the tensor's bounds or not, and in pieces. What `plan` writes on the grid of each variant (order,
claims, groups, or why there are none), which variants there are, with their tunables, and the mechanisms and hints that `select`
leaves have to be the same. Exit 1 where they are not; the first difference is printed, and the source kept in --keep.
"""
import collections
import copy
import functools
import pathlib
import random
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import driver
import language
import rewrites
from language import Node

# example -> values of its names
FAMILIES = {
    "gemm": ["E=bf16"], "gemm_bias_gelu": [], "gemm_swiglu": [], "gemm_grouped": [], "gemm_fp8": [], "gemm_i8": [], "gemm_w4": [], "gemm_w8": [],
    "attention": ["D=128", "attention_pieces.BM=64", "attention_pieces.STEPS=3"],
    "attention_varlen": ["D=128", "attend.BM=128"], "attention_fp8": ["D=128"], "moe": ["K=2"],
    "mamba2_ssd": ["N=64", "P=64", "ROWS=64"], "gated_delta_rule": ["N=64", "P=64", "COLUMNS=64"],
}
DECISION = re.compile(r"@via\(\w+\)|@stages\(\d+\)|stages = \d+|evict_first|let start\b")


class Rewriter(rewrites.Rewriter):
    """Those rewrites that leave the dataflow as it is."""

    def __init__(self, items, random):
        super().__init__(items, random)
        self.rewrites = [self.inlined, self.expanded, self.inverted, self.exchanged, self.braces, self.named, self.fissioned,
                         self.fused, self.temporary, self.handed, self.copied, self.guarded, self.in_pieces]

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
        rewriter.tensors = {p.name: p for p in item.params if p.dims}
        rewriter.block(item.body, rng.choice([0.1, 0.3, 0.6]))
        rewriter.rewrites = [rewriter.cut]
        rewriter.block(item.body, rng.choice([0, 0.5]))
        rewriter.commuted(item)
    return language.body(items)


def dump(options, path, defines, step):
    words = [word for define in defines for word in ("-D", define)]
    done = driver.tilec(options, "opt", f"--target={options.target}", f"--stop-after={step}", *words, path)
    if done.returncode:
        sys.exit(f"{path}: {done.stderr[:2000]}")
    return re.split(r"\n(?=(?:@[^\n]*\n)?(?:kernel|program) )", done.stdout)


def plan(options, path, defines):
    """What is decided, a line each."""
    lines = []
    for kernel in dump(options, path, defines, "plan"):
        lines += re.findall(r"^(?:@tuned.*|kernel \w+|program \w+)", kernel, re.M)
        lines += [grid.strip() or "(nothing)" for grid in re.findall(r"^ *((?:@\w+(?:\([^()]*\))? )*)grid \(", kernel, re.M)]
    for kernel in dump(options, path, defines, "select"):
        counts = collections.Counter(DECISION.findall(kernel))
        lines.append(" ".join(f"{what}: {count}" for what, count in sorted(counts.items())))
    return lines


def items_of(options, name):
    source = (options.source / "examples" / f"{name}.tile").read_text()
    source = re.sub(r"^import .*\n", "", source, flags=re.MULTILINE)   # variants of it, in no need of rewrites
    return [item for item in language.parse(source) if item.kind in ("kernel", "const", "macro", "fn")]


def compared(name, want, options, number):
    """The first difference of a rewrite's plan from the one that is wanted; ''."""
    path = options.keep / f"{name}-{number}.tile"
    path.write_text(rewritten(items_of(options, name), random.Random(f"{name} {number}")))
    found = plan(options, path, FAMILIES[name])
    first = next(((a, b) for a, b in zip(want, found) if a != b), (f"{len(want)} lines", f"{len(found)} lines"))
    return "" if found == want else f"{path}\n    - {first[0]}\n    + {first[1]}"


def check(options, name):
    """How many rewrites have another plan."""
    path = options.keep / f"{name}.tile"
    path.write_text(language.body(items_of(options, name)))
    want = plan(options, path, FAMILIES[name])
    differ = {number: found for number, found in driver.results(options, functools.partial(compared, name, want)) if found}
    for number, found in differ.items():
        print(f"{name}, rewrite {number}: {found}", flush=True)
    print(f"{name}: {options.count - len(differ)} of {options.count} have the same plan, {len(want)} decisions", flush=True)
    return len(differ)


def main():
    parser = driver.parser(__doc__, 20)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        options.keep = options.keep or pathlib.Path(place)
        options.keep.mkdir(parents=True, exist_ok=True)
        wrong = [check(options, name) for name in FAMILIES if re.search(options.only, name)]
    return 1 if sum(wrong) or not wrong else 0


if __name__ == "__main__":
    sys.exit(main())
