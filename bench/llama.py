#!/usr/bin/env python3
"""A block of a Llama-class model whose kernels are examples/, through tilec.torch: RMS norm, QKV, rotary, attention with a paged cache, SwiGLU MLP.

The weights of queries, keys and values are one tensor, as a server loads them, so that three products are one.

    PYTHONPATH=build/release/python python3 bench/llama.py --small                       # tiny shapes, also on the CPU: is it right?
    PYTHONPATH=DIR python3 bench/llama.py --decode 1,16,64 --prefill 2048,8192           # 8B shapes on a device: right, and how fast

Each row: the block in bf16 against the same block in f32 by PyTorch (relative error in norm), then its time against PyTorch's bf16 block through
torch.compile (max-autotune), whose cache is dense: as CUDA graphs, taking turns in ABBA order (measure.py). `plain` is the block as model files have
it, with a projection each for queries, keys and values; `fused` has one product for the three, as ours. A wrong row is the exit status 1.
"""
import argparse
import dataclasses
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

import tilec.torch

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
BF16, F32, I32 = torch.bfloat16, torch.float32, torch.int32
# gemm_swiglu's tile for up to 16 rows of the 8B shapes on Hopper, tuned as its peer is: 128 of them are one wave (docs/notebook/performance.md).
FEW_ROWS = {"BM": 64, "BN": 112, "BK": 64, "STAGES": 5, "namespace": "tilec_few_rows"}
TOLERANCE = 2e-2   # of bf16 through a block of nine kernels


@dataclasses.dataclass
class Shape:
    hidden: int = 4096
    heads: int = 32
    groups: int = 8          # of heads that share keys and values
    head_dim: int = 128
    intermediate: int = 14336
    page: int = 64
    eps: float = 1e-5
    base: float = 500000.0   # of rotary angles


SMALL = Shape(hidden=256, heads=4, groups=2, head_dim=64, intermediate=96, page=16)


def causal_attention(rows):
    """Of so many queries: up to 2,048 there are too few tiles for the large ones of the schedule by hand (1.05 of its time, above it 0.93 to 0.97)."""
    return "attention" if rows <= 2048 else "attention_roles"


def kernels(shape, rows):
    tuned = rows <= 16 and torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
    causal = causal_attention(rows)
    load = lambda file, **options: tilec.torch.load(EXAMPLES / f"{file}.tile", pdl=True, **options)
    return {**load("rmsnorm", only=["rmsnorm"], independent=["w"]), **load("gemm", independent=["B"]),
            **load("rotary_append", independent=["cosine", "sine", "position", "slot"]),
            **load("gemm_residual", independent=["B"]), **load("gemm_swiglu", independent=["G", "U"], **(FEW_ROWS if tuned else {})),
            **load("attention_paged", only=["attention_paged"], independent=["table", "length"]),
            **load(causal, only=[causal], CAUSAL=True, GROUP=shape.heads // shape.groups, namespace="tilec_causal")}


def weights(shape, device):
    s = shape
    sizes = {"q": (s.heads * s.head_dim, s.hidden), "k": (s.groups * s.head_dim, s.hidden), "v": (s.groups * s.head_dim, s.hidden),
             "o": (s.hidden, s.heads * s.head_dim), "gate": (s.intermediate, s.hidden), "up": (s.intermediate, s.hidden),
             "down": (s.hidden, s.intermediate)}
    made = {name: (torch.randn(size, device=device) / math.sqrt(size[1])).to(BF16) for name, size in sizes.items()}
    made["qkv"] = torch.cat([made[name] for name in "qkv"])
    made |= {name: (1 + 0.1 * torch.randn(s.hidden, device=device)).to(BF16) for name in ("norm1", "norm2")}
    return made


def angles(shape, positions, device):
    rates = shape.base ** (-torch.arange(0, shape.head_dim, 2, device=device, dtype=F32) / shape.head_dim)
    at = torch.arange(positions, device=device, dtype=F32)[:, None] * rates
    return at.cos(), at.sin()


class Case:
    """Tokens, and the cache that they find: `past` tokens of each sequence. Decode: a token of each; prefill: all of one."""

    def __init__(self, shape, batch, past, tokens, device):
        self.shape, self.batch, self.past, self.tokens, self.device = shape, batch, past, tokens, device
        s, total = shape, past + tokens
        width = -(-total // s.page)
        pages = batch * width
        self.w = weights(s, device)
        self.x = torch.randn(batch * tokens, s.hidden, device=device).to(BF16)
        self.cosine, self.sine = angles(s, total, device)
        self.table = torch.randperm(pages, device=device).to(I32).reshape(batch, width)
        self.keys = torch.randn(pages, s.page, s.groups, s.head_dim, device=device).to(BF16)
        self.values = torch.randn_like(self.keys)
        self.length = torch.full((batch,), total, dtype=I32, device=device)
        self.position = torch.arange(past, total, device=device, dtype=I32).repeat(batch)
        place = self.position.long().reshape(batch, tokens)
        self.slot = (self.table.long().gather(1, place // s.page) * s.page + place % s.page).reshape(-1).to(I32)
        self.no_bias = torch.zeros(s.hidden, device=device)

    def dense(self, cache):
        """[batch, group, token, dim] of a paged cache, with room for what comes."""
        rows = cache[self.table.long()].flatten(1, 2)[:, :self.past + self.tokens]
        return rows.transpose(1, 2).contiguous()


class Ours:
    """The block on tilec's kernels."""

    def __init__(self, case):
        self.case, self.k = case, kernels(case.shape, case.batch * case.tokens)
        self.keys, self.values = case.keys.clone(), case.values.clone()

    def attention(self, q, k, v):
        c, s = self.case, self.case.shape
        scale = s.head_dim ** -0.5
        if c.tokens > 1:
            heads_first = (t.transpose(0, 1)[None] for t in (q, k, v))
            out = self.k[causal_attention(c.tokens)](*heads_first, scale)
            return out[0].transpose(0, 1).reshape(c.tokens, -1)
        q = q.unflatten(1, (s.groups, -1))
        out = self.k["attention_paged"](q, self.keys, self.values, c.table, c.length, c.past + 1, scale)
        return out.reshape(c.batch, -1)

    def __call__(self, x):
        c, s, w, k = self.case, self.case.shape, self.case.w, self.k
        heads = k["gemm"](k["rmsnorm"](x, w["norm1"], s.eps), w["qkv"]).view(x.shape[0], -1, s.head_dim)
        rotated = k["rotary_append"](heads, c.cosine, c.sine, c.position, c.slot, self.keys, self.values)
        a = self.attention(rotated[:, :s.heads], rotated[:, s.heads:], heads[:, -s.groups:])
        x = k["gemm_residual"](a, w["o"], c.no_bias, x)
        h = k["gemm_swiglu"](k["rmsnorm"](x, w["norm2"], s.eps), w["gate"], w["up"])
        return k["gemm_residual"](h, w["down"], c.no_bias, x)


class Eager(torch.nn.Module):
    """The block by PyTorch, in one type; its cache is dense. With `fused` the three projections are one product, as in ours."""

    def __init__(self, case, dtype, fused=False):
        super().__init__()
        self.case, self.fused = case, fused
        self.w = {name: t.to(dtype) for name, t in case.w.items()}
        self.keys, self.values = (case.dense(cache).to(dtype) for cache in (case.keys, case.values))

    def rotated(self, x):
        c = self.case
        cosine, sine = (t[c.position.long()][:, None] for t in (c.cosine, c.sine))
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(x.dtype)

    def forward(self, x):
        c, s, w = self.case, self.case.shape, self.w
        h = F.rms_norm(x, (s.hidden,), w["norm1"], s.eps)
        if self.fused:
            query, key, value = F.linear(h, w["qkv"]).view(x.shape[0], -1, s.head_dim).split([s.heads, s.groups, s.groups], 1)
        else:
            query, key, value = (F.linear(h, w[name]).view(x.shape[0], -1, s.head_dim) for name in "qkv")
        query, key = self.rotated(query), self.rotated(key)
        query, key, value = (t.reshape(c.batch, c.tokens, -1, s.head_dim).transpose(1, 2) for t in (query, key, value))
        self.keys[:, :, c.past:], self.values[:, :, c.past:] = key, value
        a = F.scaled_dot_product_attention(query, self.keys, self.values, is_causal=c.tokens > 1, enable_gqa=True)
        x = x + F.linear(a.transpose(1, 2).reshape(x.shape[0], -1), w["o"])
        h = F.rms_norm(x, (s.hidden,), w["norm2"], s.eps)
        return x + F.linear(F.silu(F.linear(h, w["gate"])) * F.linear(h, w["up"]), w["down"])


def error_of(got, want):
    return ((got.float() - want).norm() / want.norm()).item()


def errors(case, ours):
    """Of the block's result, and of the keys and values that it appended."""
    reference = Eager(case, F32)
    with torch.no_grad():
        want, got = reference(case.x.float()), ours(case.x)
    caches = zip((ours.keys, ours.values), (reference.keys, reference.values))
    return [error_of(got, want), *(error_of(case.dense(mine), theirs) for mine, theirs in caches)]


def times(case, ours, rounds):
    """ms of ours and of torch.compile, of the plain block and of one whose three projections are one product; the ratio of each to ours,
    with its interval."""
    import measure
    torch.compiler.reset()   # or the cases before count for Dynamo's limit of recompilations
    compiled = {name: torch.compile(Eager(case, BF16, fused), mode="max-autotune-no-cudagraphs", fullgraph=True)
                for name, fused in (("plain", False), ("fused", True))}
    with torch.no_grad():
        took = measure.compare({"tilec": [lambda: ours(case.x)]} | {name: [lambda f=f: f(case.x)] for name, f in compiled.items()}, rounds)
    row = {"tilec_ms": measure.spread(took["tilec"]).median}
    for name in compiled:
        ratio = measure.spread([theirs / mine for theirs, mine in zip(took[name], took["tilec"])])
        row |= {f"{name}_ms": measure.spread(took[name]).median, f"of_{name}": [ratio.median, ratio.low, ratio.high]}
    return row


def cases(options, device):
    if options.small:
        yield "decode batch 3", Case(SMALL, 3, 37, 1, device)
        yield "prefill 21", Case(SMALL, 1, 0, 21, device)
        return
    for batch in options.decode:
        yield f"decode batch {batch}, {options.past} tokens before", Case(Shape(), batch, options.past, 1, device)
    for tokens in options.prefill:
        yield f"prefill {tokens}", Case(Shape(), 1, 0, tokens, device)


def main():
    numbers = lambda text: [int(word) for word in text.split(",") if word]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tiny shapes; without a device on the emulator")
    parser.add_argument("--decode", type=numbers, default=[1, 16, 64], help="batches")
    parser.add_argument("--prefill", type=numbers, default=[2048, 8192], help="tokens")
    parser.add_argument("--past", type=int, default=2047, help="tokens in the cache before a decoding step")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--no-times", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    right = True
    for name, case in cases(options, device):
        ours = Ours(case)
        row = {"case": name, "errors": [round(e, 5) for e in errors(case, ours)]}
        row["right"] = max(row["errors"]) <= TOLERANCE
        right &= row["right"]
        if device == "cuda" and row["right"] and not options.no_times:
            row |= times(case, ours, options.rounds)
        print(json.dumps(row), flush=True)
    sys.exit(not right)


if __name__ == "__main__":
    main()
