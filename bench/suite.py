#!/usr/bin/env python3
"""Speed at random problems (problems.py): the geometric mean of the ratios to the best peer, and where it loses.

    python3 bench/suite.py gemm --artefacts > lines               # what it needs; ARTEFACTS=lines bench/build.sh TILEC sm_90a FOLDER
    python3 bench/suite.py gemm --set validation --shard 1/4 --budget 500 --cubins FOLDER      # on the device
    python3 bench/suite.py --report bench/out/suite-gemm-*.json   # of several shards, anywhere

Measures as bench.py does (README.md): random data, poisoned outputs, ABBA, both sides of a ratio in the same call.
"""
import argparse
import dataclasses
import json
import math
import pathlib
import sys
import time

import problems

HERE = pathlib.Path(__file__).parent
PRODUCTS = ("gemm", "gemm_f16", "gemm_tf32", "gemm_fp8")
PEERS = dict.fromkeys(PRODUCTS, ["cublaslt"]) | {"rows": ["inductor", "triton"], "attention": ["cudnn", "flash"]}
SECONDS = dict.fromkeys(PRODUCTS, 2.5) | {"rows": 5, "attention": 4}   # that a problem takes


def parse():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("kind", nargs="?", choices=problems.KINDS)
    arguments.add_argument("--set", default="fitting", choices=("fitting", "validation"))
    arguments.add_argument("--seed", help="of the problems, in the place of the set's; for validation where there is no git")
    arguments.add_argument("--count", type=int, default=500)
    arguments.add_argument("--shard", default="1/1", metavar="I/N", help="one of N equal shares of the problems")
    arguments.add_argument("--shapes", help="in the place of random ones: 128x1024x8192,...")
    arguments.add_argument("--budget", type=float, default=math.inf, help="seconds: problems that would not fit are left out")
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--peers", type=lambda text: text.split(","), help="only these peers")
    arguments.add_argument("--cubins", type=pathlib.Path, default=HERE / "out")
    arguments.add_argument("--baseline", action="append", default=[], type=pathlib.Path, metavar="FOLDER",
                           help="artefacts of another version: a peer in each row, by the folder's name")
    arguments.add_argument("--out", type=pathlib.Path, default=HERE / "out")
    arguments.add_argument("--list", action="store_true", help="the problems")
    arguments.add_argument("--artefacts", action="store_true", help="the lines for build.sh that the problems need")
    arguments.add_argument("--alone", action="store_true", help="products: an artefact for each problem, compiled for it alone (`--for`)")
    arguments.add_argument("--report", nargs="+", type=pathlib.Path, metavar="FILE", help="figures of the rows in these files")
    arguments.add_argument("-v", "--verbose", action="store_true", help="how long each step takes")
    options = arguments.parse_args()
    if not options.kind and not options.report:
        arguments.error("which kind?")
    if options.alone and options.kind not in PRODUCTS:
        arguments.error("--alone is for products")
    options.shard = tuple(map(int, options.shard.split("/")))
    if not 1 <= options.shard[0] <= options.shard[1]:
        arguments.error("--shard is I/N, with I from 1 to N")
    return options


def chosen(options):
    if options.shapes:
        like = problems.problem(options.kind, "given", 0)
        return [(number, dataclasses.replace(like, stratum="given", shape=tuple(map(int, text.split("x")))))
                for number, text in enumerate(options.shapes.split(","))]
    options.seed = options.seed or problems.seed_of(options.set)
    return problems.problems(options.kind, options.seed, options.count, options.shard)


def attention_any():
    """The benchmark that bench.py lacks: other numbers of queries and keys, one query."""
    import attention
    import torch
    from table import Own, Problem, bench, poisoned, random
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def peer(backend, causal, q, k, v):
        def launch():
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=k.shape[1] != q.shape[1])
        return launch

    def reference(q, k, v, causal, scale):
        """In f32, some heads at a time."""
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device="cuda").triu(1) if causal else None
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        heads = [x.reshape(-1, x.shape[2], x.shape[3]) for x in (q, k, v)]
        out = torch.empty_like(heads[0])
        count = max(1, attention.CHUNK // (q.shape[2] * k.shape[2]))
        for i in range(0, out.shape[0], count):
            a, b, c = (x[i:i + count].float() for x in heads)
            scores = a @ b.transpose(1, 2) * scale
            out[i:i + count] = (scores.masked_fill_(mask, float("-inf")) if causal else scores).softmax(-1) @ c
        return out.view(q.shape)

    @bench("suite", "TFLOP/s", [])
    def attention_any(b, h, kv, queries, keys, d, causal, rows):
        """bf16, [B, H, S, D] or, with `rows`, [B, S, H, D] in memory"""
        causal, rows = bool(causal), bool(rows)   # numbers in --shapes

        def made(fill, heads, length):
            return fill(b, length, heads, d).transpose(1, 2) if rows else fill(b, heads, length, d)

        q, o, k, v = made(random, h, queries), made(poisoned, h, queries), made(random, kv, keys), made(random, kv, keys)
        return Problem(work=4 * b * h * queries * keys * d / (2 if causal else 1), out=o, want=reference(q, k, v, causal, d ** -0.5),
                       ours=[Own("attention", [q, k, v, o, d ** -0.5], D=d, CAUSAL=causal, GROUP=h // kv)],
                       peers={"cudnn": peer(SDPBackend.CUDNN_ATTENTION, causal, q, k, v),
                              "flash": peer(SDPBackend.FLASH_ATTENTION, causal, q, k, v)})


def alone(folder, setting):
    """The artefacts that were compiled for one problem, by the names that they have without it."""
    import bench

    class Alone(bench.Artefacts):
        def __init__(self):
            super().__init__(folder)
            self.names = [name.removesuffix(f"-{setting}") for name in self.names if name.endswith(f"-{setting}")]

        def artefact(self, name):
            return super().artefact(f"{name}-{setting}")

    return Alone()


def run(options, plan):
    import bench
    import measure
    import torch
    from table import BENCHES
    attention_any()
    bench.verbose = options.verbose
    options.peers = options.peers or PEERS[options.kind]
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.cuda.set_stream(measure.stream())
    artefacts = bench.Artefacts(options.cubins)
    baselines = {folder.name: bench.Artefacts.of_baseline(folder) for folder in options.baseline}
    options.out.mkdir(parents=True, exist_ok=True)
    name = "shapes" if options.shapes else f"{options.set}-{options.shard[0]}of{options.shard[1]}"
    name += "-alone" if options.alone else ""
    file = options.out / f"suite-{options.kind}-{name}.json"
    table, start, left = [], time.monotonic(), 0
    for number, problem in plan:
        if time.monotonic() - start + SECONDS[options.kind] > options.budget:
            left += 1
            continue
        row = {}
        if options.alone:
            artefacts = alone(options.cubins, problems.launch(problem))
        try:
            row = bench.row_of(BENCHES[problem.bench], problem.shape, artefacts, options, baselines)
        except Exception as error:   # one problem's failure does not take the others along
            bench.note(f"{problem}: {type(error).__name__}: {error}")
        torch.cuda.empty_cache()
        row |= {"number": number, "problem": str(problem), "stratum": problem.stratum}
        for candidate in row.get("candidates", {}).values():
            candidate.pop("milliseconds", None)   # 500 problems are to fit into a small file
        table.append(row)
        if row.get("ratios"):
            print(bench.line_of(row), row["candidates"].get("tilec", {}).get("variant", ""), flush=True)
        file.write_text(json.dumps({"device": bench.device(), "kind": options.kind, "seed": options.seed, "count": options.count,
                                    "rows": table}) + "\n")
    for folder in baselines:
        print(bench.losses([row for row in table if row.get("ratios")], folder))
    if left:
        print(f"left out for want of time: {left} of {len(plan)}")
    if bench.wrong:
        print("WRONG RESULTS:", "; ".join(bench.wrong))
    return table, 1 if bench.wrong else 0


def read(files):
    """The rows of shards of one sample."""
    shards = [json.loads(file.read_text()) for file in files]
    if len({(shard["kind"], shard["seed"]) for shard in shards}) != 1:
        raise SystemExit("the files are of several samples")
    rows = {row["number"]: row for shard in shards for row in shard["rows"]}
    return list(rows.values())


def main():
    options, status = parse(), 0
    if options.report:
        rows = read(options.report)
    else:
        plan = chosen(options)
        if options.list or options.artefacts:
            print("\n".join(problems.artefacts((p for _, p in plan), options.alone) if options.artefacts else
                            [f"{number:4} {p.stratum:16} {p}" for number, p in plan]))
            return 0
        rows, status = run(options, plan)
    print("\n".join(problems.report(rows)))
    return status


if __name__ == "__main__":
    sys.exit(main())
