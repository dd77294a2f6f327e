#!/usr/bin/env python3
"""Every example at one large size on this GPU, against PyTorch: the artefacts of build.sh, poisoned outputs, random data.

    check.py [--cubins bench/out]       prints the relative error (in norm) of each; exit 1 when one is too large
"""
import argparse
import pathlib
import sys

import torch

import cubins

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def random(*shape, dtype=F32):
    return torch.randn(*shape, device="cuda", dtype=F32).to(dtype)


def poisoned(*shape, dtype=F32):
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype)


def attention(causal):
    q, k, v = (random(2, 8, 4096, 128, dtype=BF16) for _ in range(3))
    o, scale = poisoned(2, 8, 4096, 128, dtype=BF16), 128 ** -0.5
    want = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal, scale=scale)
    return [q, k, v, o, scale], o, want


def center_columns():
    wide, y = random(1024, 70000), poisoned(1024, 65537)
    x = wide[:, :65537]
    return [x, y], y, x.double() - x.double().mean(0)


def gemm(m, n, k):
    a, b, c = random(m, k, dtype=BF16), random(n, k, dtype=BF16), poisoned(m, n, dtype=BF16)
    return [a, b, c], c, a.double() @ b.double().t()


def gemm_bias_gelu(m, n, k):
    a, b, bias, c = random(m, k, dtype=F16) / 16, random(k, n, dtype=F16), random(n), poisoned(m, n, dtype=F16)
    return [a, b, bias, c], c, torch.nn.functional.gelu(a.double() @ b.double() + bias.double(), approximate="tanh")


def gemm_split_k(m, n, k):
    a, b, c = random(m, k, dtype=F16) / 16, random(n, k, dtype=F16), poisoned(m, n, dtype=F16)
    return [a, b, c], c, a.double() @ b.double().t()


def rmsnorm():
    x, w, y = random(16385, 4096, dtype=BF16), random(4096, dtype=BF16), poisoned(16385, 4096, dtype=BF16)
    return [x, w, y, 1e-6], y, x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + 1e-6) * w.double()


def softmax():
    x, y = random(16385, 4096, dtype=BF16), poisoned(16385, 4096, dtype=BF16)
    return [x, y], y, torch.softmax(x.double(), -1)


def transpose():
    x, y = random(10007, 12289), poisoned(12289, 10007)
    return [x, y], y, x.t().double()


def vector_add():
    x, y, z = random(100000007), random(100000007), poisoned(100000007)
    return [x, y, z], z, (x + y).double()


CHECKS = [   # title, artefact, case, tolerance
    ("attention", "attention-D=128-CAUSAL=false", lambda: attention(False), 1e-2),
    ("attention, causal", "attention-D=128-CAUSAL=true", lambda: attention(True), 1e-2),
    ("center_columns", "center_columns-M=1024", center_columns, 1e-4),
    ("gemm, K = 4096", "gemm", lambda: gemm(4096, 4096, 4096), 1e-2),
    ("gemm, K = 4097", "gemm", lambda: gemm(2049, 4095, 4097), 1e-2),
    ("gemm_bias_gelu", "gemm_bias_gelu", lambda: gemm_bias_gelu(4096, 4096, 4096), 1e-2),
    ("gemm_bias_gelu, odd", "gemm_bias_gelu", lambda: gemm_bias_gelu(2047, 3001, 1025), 1e-2),
    ("gemm_split_k", "gemm_split_k", lambda: gemm_split_k(512, 512, 65536), 1e-2),
    ("gemm_split_k, odd", "gemm_split_k", lambda: gemm_split_k(333, 255, 50001), 1e-2),
    ("rmsnorm", "rmsnorm-N=4096-ROWS=1", rmsnorm, 1e-2),
    ("softmax", "softmax-N=4096", softmax, 1e-2),
    ("transpose", "transpose", transpose, 0),
    ("vector_add", "vector_add", vector_add, 0),
]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--cubins", type=pathlib.Path, default=pathlib.Path(__file__).parent / "out")
    options = arguments.parse_args()
    torch.manual_seed(1)
    failures = 0
    for title, artefact, case, tolerance in CHECKS:
        try:
            given, out, want = case()
            loaded = cubins.Artefact(options.cubins / f"{artefact}.cubin", options.cubins / f"{artefact}.json")
            launch = loaded.kernel(artefact.split("-")[0]).bind(given)
            launch()
            torch.cuda.synchronize()
            error = ((out.double() - want.double()).norm() / want.double().norm()).item()
            text = f"relative error {error:.2e} (at most {tolerance:g})"
        except Exception as problem:   # the next example can still be checked, unless the device is lost
            error, text = float("nan"), str(problem)
        good = error <= tolerance   # not so for NaN
        failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {title:22} {text}", flush=True)
        torch.cuda.empty_cache()
    return 1 if failures else 0


sys.exit(main())
