#!/usr/bin/env python3
"""Predicted clocks of layout conversions of two builds of tilec: none more, and the sum less.

    conversion_cycles.py OLD NEW [--targets sm_80,sm_90a] [--all] [FILE...]     default: all examples

Conversions are what lowering needs between layouts: shuffles (`@clocks`), copies from and to scratch in shared memory (`@scratch`), and the
bank conflicts of all other statements, which are what the layout of a shared tile does not convert well. A wavefront takes a clock of a
multiprocessor: accesses by their width, and the conflicts that are printed (`@conflicts`, of at most 8 steps). Statements in loops
count once. A store to a tensor that only one of the two stages is another way to store, and a kernel or variant that only one has is left away.
"""
import argparse
import math
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BYTES = {"f64": 8, "i64": 8, "u64": 8, "f32": 4, "i32": 4, "u32": 4, "f16": 2, "bf16": 2, "i16": 2, "u16": 2}
STEPS = 8   # whose conflicts are counted


def threads_and_values(layout):
    """Of "((4,8),(2,2)):(...)": 32 and 4."""
    shape = layout.split(":")[0]
    depth, halves, text = 0, [], ""
    for c in shape[1:-1]:
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            halves.append(text)
            text = ""
        else:
            text += c
    return [math.prod(map(int, re.findall(r"\d+", half))) for half in halves + [text]]


def wavefronts(line, scratch, fragments):
    """Of all warps, for a copy from or to scratch; of another statement its conflicts."""
    lost = int((re.search(r"@conflicts\((\d+)\)", line) or [0, 0])[1])
    copy = re.search(r"\b(?:copy|transpose)\((\w+)(?:\.T)?(?:\[[^]]*\])?, (\w+)", line)
    tiles = [name for name in copy.groups() if name in scratch] if copy else []
    if not tiles or "@via(tma" in line:
        return lost
    found = re.search(r'@map\("([^"]*)"\)', line)
    other = [name for name in copy.groups() if name in fragments]
    layout = found.group(1) if found else fragments[other[0]] if other else None
    if not layout:
        return lost
    size = BYTES.get(scratch[tiles[0]], 1)
    threads, values = threads_and_values(layout)
    vector = int((re.search(r"@vector\((\d+)\)", line) or [0, 1])[1])
    if re.search(r"@via\((ldmatrix|stmatrix|linear)\)", line):
        vector = max(1, 4 // size)
    steps = max(1, values // vector)
    conflicts = lost * max(1, steps // STEPS)
    return threads // 32 * (steps * max(1, vector * size // 4) + conflicts)


def stages(block):
    """Scratch that a store to a tensor goes through."""
    return set(re.findall(r"shared (stage\w*):.*@scratch", block))


def variants(tilec, target, path):
    """Of each kernel, by name: the text of each variant, by its tunables, threads and cluster, and its number among those with the same."""
    done = subprocess.run([str(tilec), "opt", f"--target={target}", "--stop-after=swizzle-allocation", str(path)],
                          capture_output=True, text=True)
    found, tuned = {}, ""
    for block in re.split(r"(?m)^(?=@|kernel )", done.stdout):
        head = re.search(r"^kernel (\w+)\(", block)
        if not head:
            tuned = block
            continue
        known = found.setdefault(head.group(1), {})
        key = (re.findall(r"@tuned\(([^)]*)\)", tuned), (re.search(r"^    .*\bgrid \(.*?\)(?: threads.*)? \{", block, re.M) or [""])[0].split(" threads ")[-1])
        known[str(key), sum(str(key) == other for other, _ in known)] = block
        tuned = ""
    return found


def clocks_of(block, left_out):
    scratch = {name: type_ for name, type_ in re.findall(r"shared (\w+): (\w+)\[.*@scratch", block) if name not in left_out}
    fragments = dict(re.findall(r'fragment (\w+): \w+\[[^]]*\] layout "([^"]*)"', block))
    clocks = 0
    for line in block.split("\n"):
        shuffle = re.search(r"@via\(shuffle\).*@clocks\((\d+)\)|@clocks\((\d+)\).*@via\(shuffle\)", line)
        clocks += int(shuffle.group(1) or shuffle.group(2)) if shuffle else wavefronts(line, scratch, fragments)
    return clocks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--targets", type=lambda text: text.split(","), default=["sm_80", "sm_90a"])
    parser.add_argument("--all", action="store_true", help="print kernels that are equal, too")
    options = parser.parse_args()
    sums, more = [0, 0], 0
    for target in options.targets:
        for path in options.files or sorted((ROOT / "examples").glob("*.tile")):
            old, new = (variants(tilec, target, path) for tilec in (options.old, options.new))
            for name in sorted(set(old) & set(new)):
                before = now = 0
                for key in set(old[name]) & set(new[name]):
                    one, other = old[name][key], new[name][key]
                    left_out = stages(one) ^ stages(other)
                    before, now = before + clocks_of(one, left_out), now + clocks_of(other, left_out)
                sums = [sums[0] + before, sums[1] + now]
                more += now > before
                if before != now or options.all:
                    print(f"{target} {path.name} {name}: {before} -> {now} clocks{'   MORE' if now > before else ''}")
    print(f"{sums[0]} -> {sums[1]} clocks, {more} kernels with more")
    return 1 if more or sums[1] > sums[0] else 0


if __name__ == "__main__":
    sys.exit(main())
