#!/usr/bin/env python3
"""Hand-written Hopper GEMMs on a GPU: right at awkward shapes, and how fast beside cuBLAS (torch.matmul) in one run.

    hopper_gemm.py FOLDER [--sizes 4096,8192,4096x14336x4096] [--rounds 15]

FOLDER holds NAME.cubin of one kernel NAME each (C = A B^T, bf16) and libtilec-launch.so. Needs PyTorch, no compiler. Every kernel is
checked in a process of its own, so that a fault or a deadlock of one does not end the others.
"""
import argparse
import os
import pathlib
import signal
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

# M, N, K: ragged in all dims; one and two steps of K with more tiles than multiprocessors (finds ring and parity bugs);
# fewer tiles than multiprocessors; tiles that do not divide.
SHAPES = [(1000, 1032, 520), (300, 264, 136), (4097, 1288, 72), (3000, 4104, 264), (4096, 4096, 64), (5000, 3000, 128),
          (64, 8, 8), (128, 256, 4096), (2048, 2048, 2048), (4096, 4096, 4096)]


def operands(m, n, k):
    return [torch.randn(*shape, device="cuda").to(torch.bfloat16) for shape in ((m, k), (n, k))]


def sampled_error(a, b, c):
    """The largest error of a sample of rows and columns, relative to the product's size, against f64."""
    rows = torch.randint(0, a.shape[0], (64,), device="cuda")
    columns = torch.randint(0, b.shape[0], (64,), device="cuda")
    want = a[rows].double() @ b[columns].double().t()
    return ((c[rows][:, columns].double() - want).abs() / (want.abs() + want.square().mean().sqrt())).max().item()


def check(folder, name):
    import cubins
    kernel = cubins.Artefact(folder / f"{name}.cubin").kernel(name)
    for m, n, k in SHAPES:
        a, b = operands(m, n, k)
        c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
        launch = kernel.bind([a, b, c])
        launch()
        torch.cuda.synchronize()
        first = c.clone()
        peer = torch.matmul(a, b.t())
        differ, error = (first != peer).sum().item(), sampled_error(a, b, first)
        changed = 0
        for _ in range(20):   # the same bits again and again
            c.fill_(float("nan"))
            launch()
            changed += (c != first).sum().item()
        good = error <= 2e-3 * 4 and not torch.isnan(first).any() and changed == 0
        print(f"{name:20} {m}x{n}x{k}: {'ok' if good else 'WRONG'}, error {error:.1e}, {differ} bits differ from cuBLAS"
              f"{f', {changed} changed' if changed else ''}", flush=True)
        if not good:
            wrong = (first.float() - peer.float()).abs() > 0.05 * peer.float().abs().mean()
            print("   wrong rows/columns from", wrong.nonzero()[:3].tolist(), "count", wrong.sum().item())
            return False
    return True


def times(folder, names, sizes, rounds):
    import cubins
    import measure
    kernels = {name: cubins.Artefact(folder / f"{name}.cubin").kernel(name) for name in names}
    for m, n, k in sizes:
        # Several sets of buffers, so that small problems do not find their operands in the L2 cache.
        count = max(1, min(8, (1 << 27) // (m * k + n * k + m * n)))
        sets = [(*operands(m, n, k), torch.empty((m, n), device="cuda", dtype=torch.bfloat16)) for _ in range(count)]
        candidates = {"cublas": [lambda a=a, b=b, c=c: torch.matmul(a, b.t(), out=c) for a, b, c in sets]}
        for name, kernel in kernels.items():
            candidates[name] = [kernel.bind(list(buffers)) for buffers in sets]
        samples = measure.compare(candidates, rounds)
        for name, own in samples.items():
            speed = measure.spread([2 * m * n * k / t / 1e9 for t in own])
            ratio = measure.spread([peer / t for peer, t in zip(samples["cublas"], own)])
            print(f"{m}x{n}x{k}: {name:20} {speed.median:6.1f} TFLOP/s   {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]",
                  flush=True)


def in_child(work, seconds):
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() is not False else 1)
        except Exception as error:
            print("   ", str(error)[:300], flush=True)
        os._exit(1)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(seconds)
    status = os.waitpid(child, 0)[1]
    signal.alarm(0)
    return status == 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--sizes", default="4096,8192")
    arguments.add_argument("--rounds", type=int, default=15)
    options = arguments.parse_args()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    names = sorted(path.stem for path in options.folder.glob("*.cubin"))
    good = [name for name in names if in_child(lambda: check(options.folder, name), 20)]
    print("not right:", [name for name in names if name not in good], flush=True)
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes.split(",")]   # N or MxNxK
    sizes = [size * 3 if len(size) == 1 else size for size in sizes]
    in_child(lambda: times(options.folder, good, sizes, options.rounds), 120)
    return 0 if good == names else 1


if __name__ == "__main__":
    sys.exit(main())
