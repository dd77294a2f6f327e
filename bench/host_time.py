#!/usr/bin/env python3
"""Host time of a call in Python, in us: kernels of tilec, operators of tilec.torch, and PyTorch's own. PYTHONPATH=DIR python3 bench/host_time.py

The kernels are small, and each sample ends before the stream is full, so that the host waits for nothing. Medians of 50 samples.
"""
import json
import pathlib
import statistics
import time

import torch

import tilec.torch

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
CALLS, SAMPLES = 200, 50


def host_time(call):
    for _ in range(20):
        call()
    samples = []
    for _ in range(SAMPLES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        samples.append((time.perf_counter() - start) / CALLS)
    torch.cuda.synchronize()
    return round(1e6 * statistics.median(samples), 2)


def main():
    torch.set_grad_enabled(False)
    x, y, z = (torch.randn(1024, device="cuda") for _ in range(3))
    a, b, c = (torch.randn(64, 64, device="cuda").bfloat16() for _ in range(3))
    add, gemm = (tilec.load(EXAMPLES / f"{name}.tile")[name] for name in ("vector_add", "gemm"))
    ops = tilec.torch.load(EXAMPLES / "vector_add.tile") | tilec.torch.load(EXAMPLES / "gemm.tile")
    rows = {"add: k(x, y, z)": lambda: add(x, y, z), "add: z = k(x, y)": lambda: add(x, y), "add: torch.ops": lambda: ops["vector_add"].overload(x, y),
            "add: torch.add(out=)": lambda: torch.add(x, y, out=z), "add: torch.add": lambda: torch.add(x, y),
            "gemm: k(a, b, c)": lambda: gemm(a, b, c), "gemm: torch.ops": lambda: ops["gemm"].overload(a, b),
            "gemm: torch.mm(out=)": lambda: torch.mm(a, b.t(), out=c)}
    for name, call in rows.items():
        print(json.dumps({"call": name, "us": host_time(call)}), flush=True)


if __name__ == "__main__":
    main()
