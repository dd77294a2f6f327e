"""Kernels bound by memory: the peers are PyTorch, what torch.compile makes, Triton, and plain copies of as many bytes."""
import torch
import torch.nn.functional as F

import peers
from table import BF16, UNCHECKED, Choice, Own, Problem, bench, poisoned, random

ROWS = [(1048576, 128), (131072, 1024), (32768, 4096), (16384, 8192), (512, 262144)]
EPS = 1e-5


def compiled(function, *arguments):
    """What torch.compile makes of it, for these shapes alone."""
    torch._dynamo.reset()
    fast = torch.compile(function, dynamic=False)
    return lambda: fast(*arguments)


def _unchecked(launch):
    def run():
        launch()
        return UNCHECKED
    return run


def copies(work):
    """Read and write `work` bytes in all: what the device can do."""
    source = torch.empty(int(work) // 8, device="cuda").normal_()
    target = torch.empty_like(source)
    return {"memcpy": _unchecked(lambda: target.copy_(source)),
            "copy": Choice(lambda *setting: _unchecked(peers.copy(source, target, *setting)), [(2048, 8), (4096, 8)])}


def problem(work, out, want, ours, eager, arguments, triton_peer, tolerance=1e-2):
    """The usual peers: `eager` is a function of PyTorch over `arguments`."""
    others = {"torch": lambda: eager(*arguments), "inductor": compiled(eager, *arguments), "triton": triton_peer}
    return Problem(work=work, out=out, want=want, ours=ours, peers=others | copies(work), tolerance=tolerance)


@bench("rows", "GB/s", [(1 << 24,), (1 << 28,), ((1 << 28) + 1,)])
def vector_add(n):
    """f32"""
    x, y, z = random(n, dtype=torch.float32), random(n, dtype=torch.float32), poisoned(n, dtype=torch.float32)
    settings = [(b, w) for b in (1024, 2048, 4096) for w in (4, 8)]
    return problem(12 * n, z, x.double() + y.double(), [Own("vector_add", [x, y, z])], torch.add, [x, y],
                   Choice(peers.add, settings, x, y, z), 1e-6)


@bench("rows", "GB/s", [(8192, 8192), (16384, 16384), (10007, 12289)])
def transpose(m, n):
    """f32"""
    x, y = random(m, n, dtype=torch.float32), poisoned(n, m, dtype=torch.float32)
    settings = [(t, w) for t in (32, 64, 128) for w in (4, 8)]
    return problem(8 * m * n, y, x.t(), [Own("transpose", [x, y])], lambda x: x.t().contiguous(), [x],
                   Choice(peers.transpose, settings, x, y), 0)


@bench("rows", "GB/s", ROWS)
def softmax(m, n):
    """bf16"""
    x, y = random(m, n), poisoned(m, n)
    return problem(4 * m * n, y, torch.softmax(x.float(), -1), [Own("softmax", [x, y], N=n)],
                   lambda x: torch.softmax(x, -1), [x], Choice(peers.softmax, peers.row_settings(n), x, y))


@bench("rows", "GB/s", ROWS)
def rmsnorm(m, n):
    """bf16, with weight"""
    x, w, y = random(m, n), random(n), poisoned(m, n)
    want = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPS) * w.float()
    return problem(4 * m * n + 2 * n, y, want, [Own("rmsnorm", [x, w, y, EPS], N=n)],
                   lambda x, w: F.rms_norm(x, (n,), w, EPS), [x, w],
                   Choice(peers.norm, peers.row_settings(n), x, w, None, y, EPS))


@bench("rows", "GB/s", ROWS)
def layer_norm(m, n):
    """bf16, with weight and bias"""
    x, w, b, y = random(m, n), random(n), random(n), poisoned(m, n)
    return problem(4 * m * n + 4 * n, y, F.layer_norm(x.float(), (n,), w.float(), b.float(), EPS),
                   [Own("layer_norm", [x, w, b, y, EPS], N=n)], lambda x, w, b: F.layer_norm(x, (n,), w, b, EPS), [x, w, b],
                   Choice(peers.norm, peers.row_settings(n), x, w, b, y, EPS))


@bench("rows", "GB/s", ROWS)
def row_sum(m, n):
    """bf16 rows, sums in f32"""
    x, y = random(m, n), poisoned(m, dtype=torch.float32)
    return problem(2 * m * n + 4 * m, y, x.double().sum(-1), [Own("row_sum", [x, y], N=n)],
                   lambda x: x.sum(-1, dtype=torch.float32), [x], Choice(peers.row_sum, peers.row_settings(n), x, y), 1e-5)


@bench("rows", "GB/s", ROWS)
def cross_entropy(m, n):
    """bf16 logits, i64 targets, losses in f32"""
    x, target = random(m, n), torch.randint(n, (m,), device="cuda")
    loss = poisoned(m, dtype=torch.float32)
    return problem(2 * m * n + 12 * m, loss, F.cross_entropy(x.float(), target, reduction="none"),
                   [Own("cross_entropy", [x, target, loss], N=n)],
                   lambda x, t: F.cross_entropy(x.float(), t, reduction="none"), [x, target],
                   Choice(peers.cross_entropy, peers.row_settings(n), x, target, loss), 1e-3)
