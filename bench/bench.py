#!/usr/bin/env python3
"""Speed on this GPU beside PyTorch (cuBLAS) and Triton, in one process: needs PyTorch and Triton, and the artefacts of
build.sh; no compiler.

    bench.py [--cubins bench/out] [--out FOLDER] [--only vector_add,softmax,rmsnorm,transpose,gemm] [--rounds 30] [--quick]

Random data; outputs are poisoned and checked against a reference in higher precision before anything is timed. A row is the
median of rounds in which all candidates take turns (measure.py). Prints a table; writes bench.json and bench.svg.
"""
import argparse
import dataclasses
import functools
import json
import pathlib
import re
import sys

import torch
import triton

import chart
import cubins
import measure
import peers

BF16 = torch.bfloat16


@dataclasses.dataclass
class Case:
    """One row: what is computed, how much work it is, and by whom. Candidates: name -> launch."""
    bench: str
    shape: str
    unit: str            # GB/s or TFLOP/s
    work: float          # bytes or operations of one launch
    candidates: dict
    settings: dict       # name -> which of its settings was chosen


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def poisoned(*shape, dtype=torch.float32):
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype)


def check(name, launch, out, want, tolerance):
    """Runs a candidate on a poisoned output; relative error in norm, by slices to save memory."""
    out.fill_(float("nan"))
    launch()
    torch.cuda.synchronize()
    error = scale = 0.0
    for got, right in zip(out.split(max(1, out.shape[0] // 8)), want.split(max(1, out.shape[0] // 8))):
        error += (got.double() - right.double()).square().sum().item()
        scale += right.double().square().sum().item()
    error = (error / scale) ** 0.5
    if not error <= tolerance:   # NaN too
        raise SystemExit(f"{name}: wrong result, relative error {error:.2e}")


def fastest(make, settings):
    """The launch of the best setting, and the setting. A setting that does not run is left out."""
    best = None
    for setting in settings:
        try:
            launch = make(*setting)
            milliseconds = measure.quick(launch)
        except Exception as error:   # a peer's compiler may refuse a setting
            print(f"note: {setting}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
            continue
        if best is None or milliseconds < best[0]:
            best = (milliseconds, launch, setting)
    if best is None:
        raise SystemExit("no setting runs: is bench/out complete (build.sh)?")
    return best[1], "x".join(map(str, best[2]))


class Ours:
    """Artefacts of build.sh by the start of their names."""

    def __init__(self, folder):
        self.folder = folder

    @functools.cache
    def artefact(self, name):
        return cubins.Artefact(self.folder / f"{name}.cubin", self.folder / f"{name}.json")

    def settings(self, kernel, *fixed):
        """Names of the artefacts of a kernel: kernel, then -NAME=VALUE parts, among which are the fixed ones."""
        names = sorted(path.stem for path in self.folder.glob("*.cubin"))
        return [name for name in names if name.split("-")[0] == kernel and all(f"-{f}" in name + "-" for f in fixed)]

    def launch(self, name, arguments):
        return self.artefact(name).kernel(name.split("-")[0]).bind(arguments)

    def fastest(self, kernel, arguments, *fixed):
        return fastest(lambda name: self.launch(name, arguments), [(name,) for name in self.settings(kernel, *fixed)])


def finish(case, ours, triton_best, torch_launch, out, want, tolerance):
    case.candidates["tilec"], case.settings["tilec"] = ours
    case.candidates["triton"], case.settings["triton"] = triton_best
    for name, launch in case.candidates.items():
        check(f"{case.bench} {case.shape} {name}", launch, out, want, tolerance)
    name, launch = torch_launch
    case.candidates[name], case.settings[name] = launch, ""
    return case


# ---- the benchmarks ----

def vector_add(ours, quick):
    for n in [1 << 24, 1 << 28, (1 << 28) + 1][:1 if quick else None]:
        x, y, z = random(n), random(n), poisoned(n)
        tuned = fastest(lambda *s: peers.add(x, y, z, *s), [(b, w) for b in (1024, 2048, 4096) for w in (4, 8)])
        yield finish(Case("vector_add", str(n), "GB/s", 12 * n, {}, {}), ours.fastest("vector_add", [x, y, z]), tuned,
                     ("torch", lambda: torch.add(x, y, out=z)), z, x.double() + y.double(), 1e-6)


ROWS = [(131072, 1024), (32768, 4096), (16384, 8192)]


def softmax(ours, quick):
    for m, n in ROWS[:1 if quick else None]:
        x, y = random(m, n, dtype=BF16), poisoned(m, n, dtype=BF16)
        tuned = fastest(lambda w: peers.softmax(x, y, w), [(w,) for w in (2, 4, 8, 16)])
        yield finish(Case("softmax", f"{m}x{n}", "GB/s", 4 * m * n, {}, {}),
                     ours.fastest("softmax", [x, y], f"N={n}-"), tuned,
                     ("torch", lambda: torch.softmax(x, -1)), y, torch.softmax(x.float(), -1), 1e-2)


def rmsnorm(ours, quick):
    for m, n in ROWS[:1 if quick else None]:
        x, w, y = random(m, n, dtype=BF16), random(n, dtype=BF16), poisoned(m, n, dtype=BF16)
        want = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)) * w.float()
        tuned = fastest(lambda warps: peers.rmsnorm(x, w, y, 1e-6, warps), [(w,) for w in (2, 4, 8, 16)])
        yield finish(Case("rmsnorm", f"{m}x{n}", "GB/s", 4 * m * n + 2 * n, {}, {}),
                     ours.fastest("rmsnorm", [x, w, y, 1e-6], f"N={n}-"), tuned,
                     ("torch", lambda: torch.nn.functional.rms_norm(x, (n,), w, 1e-6)), y, want, 1e-2)


def transpose(ours, quick):
    for m, n in [(8192, 8192), (16384, 16384), (10007, 12289)][:1 if quick else None]:
        x, y = random(m, n), poisoned(n, m)
        tuned = fastest(lambda *s: peers.transpose(x, y, *s), [(t, w) for t in (32, 64, 128) for w in (4, 8)])
        yield finish(Case("transpose", f"{m}x{n}", "GB/s", 8 * m * n, {}, {}), ours.fastest("transpose", [x, y]), tuned,
                     ("torch", lambda: y.copy_(x.t())), y, x.t(), 0)


TILES = [(128, 256, 64, 3, 8), (128, 128, 64, 3, 8), (128, 128, 64, 4, 4), (128, 64, 64, 4, 4), (64, 64, 64, 4, 4)]


PROBLEMS = [(n, n, n) for n in (512, 1024, 2048, 4096, 8192, 16384)] + [
    (4096, 14336, 4096), (8192, 8192, 1024), (16, 8192, 8192), (64, 8192, 8192), (128, 8192, 8192)]


def gemm(ours, quick):
    for m, n, k in PROBLEMS[:2 if quick else None]:
        a, b, c = random(m, k, dtype=BF16), random(n, k, dtype=BF16), poisoned(m, n, dtype=BF16)
        tuned = fastest(lambda *s: peers.matmul(a, b, c, *s), TILES)
        yield finish(Case("gemm", f"{m}x{n}x{k}", "TFLOP/s", 2 * m * n * k, {}, {}), ours.fastest("gemm", [a, b, c]), tuned,
                     ("cublas", lambda: torch.matmul(a, b.t(), out=c)), c, a.float() @ b.float().t(), 1e-2)


BENCHES = {bench.__name__: bench for bench in (vector_add, softmax, rmsnorm, transpose, gemm)}


# ---- rows ----

def row_of(case, rounds):
    times = measure.compare({name: [launch] for name, launch in case.candidates.items()}, rounds)
    scale = 1e6 if case.unit == "GB/s" else 1e9
    row = {"bench": case.bench, "shape": case.shape, "unit": case.unit, "candidates": {}}
    for name, samples in times.items():
        speed = measure.spread([case.work / t / scale for t in samples])
        row["candidates"][name] = dataclasses.asdict(speed) | {"setting": case.settings[name], "milliseconds": samples}
    # Where cuBLAS takes part it is the peer to compare with; Triton's figure is there for orientation.
    rivals = ["cublas"] if "cublas" in times else [name for name in times if name != "tilec"]
    best = max(rivals, key=lambda name: row["candidates"][name]["median"])
    ratio = measure.spread([peer / own for peer, own in zip(times[best], times["tilec"])])
    return row | {"best_peer": best, "ratio": dataclasses.asdict(ratio)}


def line_of(row):
    cells = [f"{name} {c['median']:.0f} [{c['low']:.0f}, {c['high']:.0f}]" for name, c in row["candidates"].items()]
    ratio = row["ratio"]
    return (f"{row['bench']:11} {row['shape']:15} {row['unit']:8} {ratio['median']:.3f} "
            f"[{ratio['low']:.3f}, {ratio['high']:.3f}] of {row['best_peer']:7} {'   '.join(cells)}"
            f"   ({row['candidates']['tilec']['setting']})")


def markdown(rows):
    """The table of docs/performance.md."""
    lines = ["| kernel | shape | unit | tilec | peers | of the best peer (95 % interval) |", "|---|---|---|---|---|---|"]
    for row in rows:
        others = ", ".join(f"{name} {c['median']:.0f}" for name, c in row["candidates"].items() if name != "tilec")
        ratio = row["ratio"]
        lines.append(f"| {row['bench']} | {row['shape']} | {row['unit']} | {row['candidates']['tilec']['median']:.0f} | {others} | "
                     f"**{ratio['median']:.3f}** ({ratio['low']:.3f} to {ratio['high']:.3f}) of {row['best_peer']} |")
    return "\n".join(lines) + "\n"


def device():
    properties = torch.cuda.get_device_properties(0)
    return {"gpu": properties.name, "multiprocessors": properties.multi_processor_count, "torch": torch.__version__,
            "triton": triton.__version__, "cuda": torch.version.cuda}


def main():
    here = pathlib.Path(__file__).parent
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--cubins", type=pathlib.Path, default=here / "out")
    arguments.add_argument("--out", type=pathlib.Path, default=here / "out")
    arguments.add_argument("--only", default=",".join(BENCHES))
    arguments.add_argument("--rounds", type=int, default=30)
    arguments.add_argument("--quick", action="store_true", help="few shapes: does it run at all")
    options = arguments.parse_args()

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    ours, rows = Ours(options.cubins), []
    print("  ".join(f"{key} {value}" for key, value in device().items()))
    options.out.mkdir(parents=True, exist_ok=True)
    for name in re.split(",", options.only):
        for case in BENCHES[name](ours, options.quick):
            rows.append(row_of(case, options.rounds))
            print(line_of(rows[-1]), flush=True)
            case.candidates.clear()   # its buffers
            torch.cuda.empty_cache()
            (options.out / "bench.json").write_text(json.dumps({"device": device(), "rows": rows}, indent=1) + "\n")
    (options.out / "bench.svg").write_text(chart.draw(rows, f"{device()['gpu']}: tilec over its best peer"))
    (options.out / "bench.md").write_text(markdown(rows))


if __name__ == "__main__":
    main()
