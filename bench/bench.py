#!/usr/bin/env python3
"""Speed on this GPU relative to cuBLAS, cuDNN, PyTorch and Triton, in one process.

Needs PyTorch and Triton, and the artefacts of build.sh; no compiler. bench/README.md says how it measures and how
a benchmark is added. Prints a table; writes bench.json, bench.md and bench.svg.
"""
import argparse
import ctypes
import dataclasses
import faulthandler
import functools
import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import time

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")   # a pool of processes takes longer to start than it saves

import torch
import triton

import attention
import chart
import convolution  # noqa: F401 (its rows)
import cubins
import cublaslt
import fused      # noqa: F401 (its rows)
import gemm       # noqa: F401
import layers     # noqa: F401
import measure
import rows       # noqa: F401
from table import BENCHES, UNCHECKED, Own, description

# ---- results are right ----


def _pieces(tensors):
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def _is_result(value):
    """Or a launcher's own object, which says nothing."""
    return isinstance(value, torch.Tensor) or (isinstance(value, (tuple, list)) and all(map(_is_result, value)))


def error_of(got, want):
    """Relative error in norm, by slices to save memory; NaN stays NaN."""
    error = scale = 0.0
    for a, b in zip(_pieces(got), _pieces(want), strict=True):
        for left, right in zip(a.split(max(1, a.shape[0] // 8)), b.split(max(1, b.shape[0] // 8))):
            error += (left.double() - right.double()).square().sum().item()
            scale += right.double().square().sum().item()
    return (error / scale) ** 0.5


def right(problem, launch):
    """Runs a candidate on poisoned outputs. The relative error, NaN when something was not written."""
    if problem.prepare:
        problem.prepare()
    else:
        for out in _pieces(problem.out):
            out.fill_(float("nan"))
    result = launch()
    torch.cuda.synchronize()
    return 0.0 if result is UNCHECKED else error_of(result if _is_result(result) else problem.out, problem.want)


# ---- candidates ----


def note(text):
    print("note: " + str(text).splitlines()[0][:150] if str(text) else "note: ?", file=sys.stderr, flush=True)


def stage(what, since=[time.monotonic()]):
    """With -v: how long it took since the last stage."""
    now = time.monotonic()
    if verbose:
        print(f"  {now - since[0]:6.2f} s  {what}", file=sys.stderr, flush=True)
    since[0] = now


verbose = False


def runnable(pairs):
    """Of (setting, make): those that run. A peer's compiler may refuse a setting, a kernel of ours a shape."""
    for setting, make in pairs:
        try:
            launch = make()
            launch()
            torch.cuda.synchronize()
        except Exception as error:
            note(f"{setting}: {error}")
            continue
        yield setting, launch


def best(settings):
    """The fastest of (setting, launch)."""
    if not settings:
        return None
    return settings[measure.best_of([launch for _, launch in settings])] if len(settings) > 1 else settings[0]


def launches(value):
    return value.launches() if hasattr(value, "launches") else [("", value)]


def peer(name, value, artefacts):
    if isinstance(value, Own):
        return best(list(runnable(artefacts.of(value))))
    try:
        pairs = list(launches(value))
    except Exception as error:
        note(f"{name}: {error}")
        return None
    return best(list(runnable((setting, lambda launch=launch: launch) for setting, launch in pairs)))


class Artefacts:
    """The artefacts in a folder, opened by `module`: cubins.py of the version that made them."""

    def __init__(self, folder, module=cubins):
        self.folder, self.module = folder, module
        self.names = sorted(path.stem for path in folder.glob("*.cubin"))

    @classmethod
    def of_baseline(cls, folder):
        specification = importlib.util.spec_from_file_location("baseline_cubins", folder / "cubins.py")
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        return cls(folder, module)

    @functools.cache
    def artefact(self, name):
        return self.module.Artefact(self.folder / f"{name}.cubin")

    def of(self, own):
        """(name, how to make its launch), the program as it stands first."""
        names = [name for name in self.names if name.split("-")[0] == own.kernel and own.fixed <= set(name.split("-")[1:])]
        for name in sorted(names, key=lambda name: name.count("-")):
            yield name, lambda name=name: self.artefact(name).kernel(own.kernel).bind(own.arguments)


def ours(artefacts, problem, title, label="tilec"):
    """`label`: the first program as it stands; `label`*: the fastest of all programs and settings, when that is another."""
    found, plain = [], None
    for number, own in enumerate(problem.ours):
        for name, launch in runnable(artefacts.of(own)):
            if not right(problem, launch) <= problem.tolerance:
                note(f"{title}: {name}: WRONG RESULT")
                wrong.append(f"{title} {name}")
                continue
            found.append((name, launch))
            if number == 0 and set(name.split("-")[1:]) == own.fixed:
                plain = found[-1]
    fastest = best(found)
    candidates = {} if plain is None else {label: plain}
    return candidates if fastest in (None, plain) else candidates | {f"{label}*": fastest}


wrong = []   # what gave wrong results or none: the exit status says so


def candidates(problem, artefacts, title, only, baselines):
    """name -> (setting, launch)."""
    chosen = ours(artefacts, problem, title)
    stage("tilec")
    for name, folder in baselines.items():
        chosen |= ours(folder, problem, title, name)
        stage(name)
    for name, value in problem.peers.items():
        if only and name not in only:
            continue
        found = peer(name, value, artefacts)
        stage(name)
        if found is None:
            continue
        error = right(problem, found[1])
        if error <= problem.tolerance:
            chosen[name] = found
        else:
            note(f"{title}: {name} {found[0]}: relative error {error:.1e}")
            wrong.append(f"{title} {name}")
    return chosen


# ---- rows ----


def spread_dict(samples):
    return dataclasses.asdict(measure.spread(samples))


def row_of(entry, shape, artefacts, options, baselines):
    title = f"{entry.name} {entry.label(*shape)}"
    stage(title)
    problem = entry.make(*shape)
    stage("operands and reference")
    chosen = candidates(problem, artefacts, title, options.peers, baselines)
    times = measure.compare({name: [launch] for name, (_, launch) in chosen.items()}, options.rounds)
    stage("rounds")
    if {"tilec", "tilec*"} <= set(times) and measure.spread(times["tilec*"]).median >= measure.spread(times["tilec"]).median:
        del times["tilec*"]   # the rough times that it was chosen by were wrong
    scale = 1e6 if entry.unit == "GB/s" else 1e9
    row = {"bench": entry.name, "group": entry.group, "shape": entry.label(*shape), "unit": entry.unit, "candidates": {}}
    for name, samples in times.items():
        row["candidates"][name] = spread_dict([problem.work / t / scale for t in samples]) | {
            "setting": chosen[name][0], "milliseconds": samples}
        if hasattr(chosen[name][1], "variant"):
            row["candidates"][name]["variant"] = chosen[name][1].variant
    return row | compared(row, entry.rivals, baselines)


def compared(row, rivals, baselines):
    """best_peer, and `ratios`: ours -> peer -> the spread of peer's time over our time."""
    all_times = {name: c["milliseconds"] for name, c in row["candidates"].items()}
    others = [name for name in all_times if not name.startswith("tilec")]
    present = [name for name in others if name.rstrip("*") not in baselines]
    eligible = [name for name in present if name in rivals] or present or others
    speed = lambda name: row["candidates"][name]["median"]
    ratios = {own: {name: spread_dict([theirs / mine for theirs, mine in zip(all_times[name], all_times[own])])
                    for name in others} for own in all_times if own.startswith("tilec")}
    return {"best_peer": max(eligible, key=speed, default=None), "ratios": ratios}


def ratio_text(row, own):
    ratio = row["ratios"].get(own, {}).get(row["best_peer"])
    return f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]" if ratio else "-"


def line_of(row):
    cells = []
    for name, c in row["candidates"].items():
        against = "".join(f" {own} {r[name]['median']:.3f}" for own, r in row["ratios"].items() if name in r)
        setting = f" ({c['setting'].partition('-')[2] or c['setting']})" if name == "tilec*" else ""
        cells.append(f"{name} {c['median']:.0f}{setting}" + (f" [{against.strip()}]" if against else ""))
    own = "tilec" if "tilec" in row["ratios"] else "tilec*"
    start = f"{row['bench']:14} {row['shape']:16} {row['unit']:7} {ratio_text(row, own):22} of {row['best_peer']}: "
    return start + "  ".join(cells)


def markdown(table):
    """The table of docs/notebook/performance.md."""
    lines = ["| kernel | shape | unit | tilec | tilec* | peers | tilec of the best peer (95 %) | tilec* of it |",
             "|---|---|---|---|---|---|---|---|"]
    for row in table:
        speeds = {name: f"{c['median']:.0f}" for name, c in row["candidates"].items()}
        others = ", ".join(f"{name} {speed}" for name, speed in speeds.items() if not name.startswith("tilec"))
        own = f"{speeds.get('tilec', '-')} | {speeds.get('tilec*', '-')}"
        lines.append(f"| {row['bench']} | {row['shape']} | {row['unit']} | {own} | {others} | "
                     f"{ratio_text(row, 'tilec')} of {row['best_peer']} | {ratio_text(row, 'tilec*')} |")
    return "\n".join(lines) + "\n"


def means(table):
    """Geometric means of the ratios, by benchmark and peer. Where no setting was better, tilec* is tilec."""
    lines = []
    for name in dict.fromkeys(row["bench"] for row in table):
        mine = [row for row in table if row["bench"] == name and row["ratios"]]
        for rival in dict.fromkeys(peer for row in mine for peer in row["candidates"] if not peer.startswith("tilec")):
            cells = []
            for own, other in (("tilec", "tilec"), ("tilec*", "tilec")):
                ratios = [(row["ratios"].get(own) or row["ratios"].get(other, {})).get(rival) for row in mine]
                logs = [math.log(ratio["median"]) for ratio in ratios if ratio]
                if logs:
                    cells.append(f"{own} {math.exp(sum(logs) / len(logs)):.3f} over {len(logs)}")
            lines.append(f"{name:14} geometric mean of {rival:9} {', '.join(cells)}")
    return "\n".join(lines)


LOSS = 0.99   # of a baseline's speed: a row fails where the interval's upper end is below it in two calls


def losses(table, name):
    """The rows that are slower than this baseline, programs as they stand."""
    found = [(row["ratios"]["tilec"][name], row) for row in table if name in row["ratios"].get("tilec", {})]
    slower = [f"  {row['bench']} {row['shape']}: {r['median']:.3f} [{r['low']:.3f}, {r['high']:.3f}]" for r, row in found if r["high"] < LOSS]
    return "\n".join([f"{len(found)} rows against {name}, {len(slower)} slower:", *slower])


def device():
    properties = torch.cuda.get_device_properties(0)
    return {"gpu": properties.name, "multiprocessors": properties.multi_processor_count, "torch": torch.__version__,
            "triton": triton.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}


# ---- the command ----


def parse():
    here = pathlib.Path(__file__).parent
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--cubins", type=pathlib.Path, default=here / "out", help="what build.sh made")
    arguments.add_argument("--out", type=pathlib.Path, default=here / "out")
    arguments.add_argument("--only", default="", help="groups or benchmarks, separated by commas")
    arguments.add_argument("--match", default="", help="regular expression over 'benchmark shape'")
    arguments.add_argument("--peers", type=lambda text: text.split(","), default=[], help="only these peers")
    arguments.add_argument("--baseline", action="append", default=[], type=pathlib.Path, metavar="FOLDER",
                           help="artefacts of another version (build.sh --from): a peer in each row, by the folder's name")
    arguments.add_argument("--extra", action="append", default=[], metavar="NAME=LIBRARY",
                           help="an attention library as a further peer (extra_peer.h)")
    arguments.add_argument("--rounds", type=int, default=25)
    arguments.add_argument("--budget", type=float, default=math.inf, help="seconds: rows that would not fit are left out")
    arguments.add_argument("--warm", type=int, default=0, metavar="N", help="first compile what the peers compile, in N processes")
    arguments.add_argument("--shard", default="", help=argparse.SUPPRESS)   # I/N: such a process
    arguments.add_argument("-v", "--verbose", action="store_true", help="how long each step takes")
    arguments.add_argument("--list", action="store_true", help="what there is, and how long it takes")
    return arguments.parse_args()


# Seconds that a row takes in addition to its rounds (operands, reference, choosing, the peers' compilers), seen on an H200.
SECONDS = {"gemm": 2, "orders": 1.5, "fp8": 1.5, "fused": 4, "weights": 4, "dense": 2.5, "attention": 2.5, "backward": 4, "attention_fp8": 3, "family": 9, "decode": 3, "layers": 3, "rows": 2.5,
           "more_rows": 2.5}


def chosen_rows(options):
    names = [name for name in options.only.split(",") if name]
    unknown = set(names) - set(BENCHES) - {entry.group for entry in BENCHES.values()}
    if unknown:
        raise SystemExit(f"no group or benchmark: {', '.join(sorted(unknown))} (see --list)")
    return [(entry, shape) for entry in BENCHES.values() for shape in entry.shapes
            if (not names or entry.name in names or entry.group in names) and
            re.search(options.match, f"{entry.name} {entry.label(*shape)}")]


def show(plan):
    for group in dict.fromkeys(entry.group for entry, _ in plan):
        mine = [(entry, shape) for entry, shape in plan if entry.group == group]
        print(f"{group}: {len(mine)} rows, about {len(mine) * SECONDS.get(group, 4):.0f} s")
        for entry in dict.fromkeys(entry.name for entry, _ in mine):
            shapes = ", ".join(e.label(*shape) for e, shape in mine if e.name == entry)
            print(f"  {entry}: {description(BENCHES[entry])}: {shapes}")


def compile_peers(plan, options):
    """One of the processes of --warm: runs each setting once, so that the compilers' caches have it."""
    number, count = map(int, options.shard.split("/"))
    for entry, shape in plan[number::count]:
        peers = entry.make(*shape).peers
        for value in peers.values():
            if not isinstance(value, (cublaslt.Best, Own)):
                list(runnable((setting, lambda launch=launch: launch) for setting, launch in launches(value)))
        torch.cuda.empty_cache()


def warm(count):
    command = [sys.executable, __file__, *sys.argv[1:], "--shard"]
    children = [subprocess.Popen([*command, f"{number}/{count}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for number in range(count)]
    for child in children:
        child.wait()


def run(plan, options):
    artefacts, table, left, start = Artefacts(options.cubins), [], [], time.monotonic()
    baselines = {folder.name: Artefacts.of_baseline(folder) for folder in options.baseline}
    options.out.mkdir(parents=True, exist_ok=True)
    for entry, shape in plan:
        before = time.monotonic()
        if before - start + SECONDS.get(entry.group, 4) > options.budget:
            left.append(f"{entry.name} {entry.label(*shape)}")
            continue
        try:
            row = row_of(entry, shape, artefacts, options, baselines)
        except Exception as error:   # one row's failure does not take the others along
            note(f"{entry.name} {entry.label(*shape)}: {type(error).__name__}: {error}")
            wrong.append(f"{entry.name} {entry.label(*shape)} (no result)")
            continue
        finally:
            torch.cuda.empty_cache()
        if row["candidates"]:
            table.append(row)
            print(f"{line_of(row)}  {time.monotonic() - before:.1f} s", flush=True)
            (options.out / "bench.json").write_text(json.dumps({"device": device(), "rows": table}, indent=1) + "\n")
    return table, left


def main():
    global verbose
    options = parse()
    verbose = options.verbose
    if verbose:
        faulthandler.dump_traceback_later(60, repeat=True)   # where it is stuck
    attention.EXTRA.update((text.partition("=")[0], ctypes.CDLL(text.partition("=")[2])) for text in options.extra)
    plan = chosen_rows(options)
    if options.list:
        return show(plan)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    if options.warm and not options.shard:
        warm(options.warm)
    torch.cuda.set_stream(measure.stream())
    if options.shard:
        return compile_peers(plan, options)
    stage("start")
    print("  ".join(f"{key} {value}" for key, value in device().items()), flush=True)
    table, left = run(plan, options)
    print(means(table))
    for folder in options.baseline:
        print(losses(table, folder.name))
    if left:
        print("left out for want of time:", "; ".join(left))
    (options.out / "bench.svg").write_text(chart.draw(table, f"{device()['gpu']}: tilec over its best peer"))
    (options.out / "bench.md").write_text(markdown(table))
    if wrong:
        print("WRONG RESULTS:", "; ".join(wrong))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
