"""Kernels bound by memory: the peers are PyTorch, what torch.compile makes, Triton, and plain copies of as many bytes."""
import torch
import torch.nn.functional as F

import peers
from table import BF16, UNCHECKED, Choice, Own, Problem, bench, poisoned, random

ROWS = [(1048576, 128), (131072, 1024), (32768, 4096), (16384, 8192), (512, 262144)]
LONG = [(2048, 65536), (1024, 131072), (512, 262144)]
KEPT = ROWS[:-1] + LONG + [(4 * m, n) for m, n in LONG]   # read and written; the last without much start and end
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


@bench("rows", "GB/s", KEPT)
def softmax(m, n):
    """bf16"""
    x, y = random(m, n), poisoned(m, n)
    return problem(4 * m * n, y, torch.softmax(x.float(), -1), [Own("softmax", [x, y], N=n), Own("softmax_long", [x, y])],
                   lambda x: torch.softmax(x, -1), [x], Choice(peers.softmax, peers.row_settings(n), x, y))


@bench("rows", "GB/s", KEPT)
def rmsnorm(m, n):
    """bf16, with weight"""
    x, w, y = random(m, n), random(n), poisoned(m, n)
    want = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPS) * w.float()
    return problem(4 * m * n + 2 * n, y, want, [Own("rmsnorm", [x, w, y, EPS], N=n)],
                   lambda x, w: F.rms_norm(x, (n,), w, EPS), [x, w],
                   Choice(peers.norm, peers.row_settings(n), x, w, None, y, EPS))


@bench("rows", "GB/s", KEPT)
def layer_norm(m, n):
    """bf16, with weight and bias"""
    x, w, b, y = random(m, n), random(n), random(n), poisoned(m, n)
    return problem(4 * m * n + 4 * n, y, F.layer_norm(x.float(), (n,), w.float(), b.float(), EPS),
                   [Own("layer_norm", [x, w, b, y, EPS], N=n)], lambda x, w, b: F.layer_norm(x, (n,), w, b, EPS), [x, w, b],
                   Choice(peers.norm, peers.row_settings(n), x, w, b, y, EPS))


@bench("rows", "GB/s", ROWS)
def sum_rows(m, n):
    """f32"""
    x, y = random(m, n, dtype=torch.float32), poisoned(m, dtype=torch.float32)
    return problem(4 * m * n + 4 * m, y, x.double().sum(-1), [Own("sum_rows", [x, y], N=n)],
                   lambda x: x.sum(-1), [x], Choice(peers.row_sum, peers.row_settings(n), x, y), 1e-5)


@bench("rows", "GB/s", ROWS + [(1, 1 << 27)])
def cumulative_sum(m, n):
    """f32, along rows"""
    x, y = random(m, n, dtype=torch.float32), poisoned(m, n, dtype=torch.float32)
    ours = [Own("cumulative_sum_long", [x, y])]
    if n <= ROWS[-1][1]:
        ours.insert(0, Own("cumulative_sum", [x, y], N=n))
    return problem(8 * m * n, y, x.double().cumsum(-1), ours, lambda x: x.cumsum(-1), [x],
                   Choice(peers.cumulative_sum, peers.row_settings(n) if m > 1 else [], x, y), 1e-4)


@bench("rows", "GB/s", ROWS)
def cross_entropy(m, n):
    """bf16 logits, i64 targets, losses in f32"""
    x, target = random(m, n), torch.randint(n, (m,), device="cuda")
    loss = poisoned(m, dtype=torch.float32)
    return problem(2 * m * n + 12 * m, loss, F.cross_entropy(x.float(), target, reduction="none"),
                   [Own("cross_entropy", [x, target, loss], N=n)],
                   lambda x, t: F.cross_entropy(x.float(), t, reduction="none"), [x, target],
                   Choice(peers.cross_entropy, peers.row_settings(n), x, target, loss), 1e-3)


@bench("more_rows", "GB/s", [(16384, 32, 128), (16384, 128, 64)])
def rotary(t, h, d):
    """bf16 [T, H, D], the halves of a head turned"""
    x, y = random(t, h, d), poisoned(t, h, d)
    angle = torch.rand(t, d // 2, device="cuda") * 6
    cosine, sine = angle.cos(), angle.sin()
    position = torch.arange(t, dtype=torch.int32, device="cuda")

    def eager(x, cosine, sine, position):
        c, s = cosine[position][:, None], sine[position][:, None]
        left, right = x.float().chunk(2, -1)
        return torch.cat((left * c - right * s, right * c + left * s), -1).to(BF16)
    arguments = [x, cosine, sine, position]
    work = 4 * x.numel() + 4 * t * d
    launches = {"torch": lambda: eager(*arguments), "inductor": compiled(eager, *arguments)}
    return Problem(work=work, out=y, want=eager(*arguments).float(), ours=[Own("rotary", [*arguments, y], D=d)],
                   peers=launches | copies(work))


@bench("more_rows", "GB/s", [(65536, 4096, 32000)], label=lambda m, d, v: f"{m}x{d} of {v}")
def embedding(m, d, v):
    """bf16 rows of a table by index"""
    table, y = random(v, d), poisoned(m, d)
    index = torch.randint(v, (m,), device="cuda", dtype=torch.int32)
    work = 4 * m * d + 4 * m
    eager = lambda index, table: F.embedding(index, table)
    return Problem(work=work, out=y, want=table[index.long()].float(), ours=[Own("embedding", [index, table, y], D=d)],
                   peers={"torch": lambda: eager(index, table), "inductor": compiled(eager, index, table)} | copies(work))


@bench("more_rows", "GB/s", [(65536, 4096, 32000)], label=lambda m, d, v: f"{m}x{d} of {v}")
def embedding_gradient(m, d, v):
    """bf16 rows added to those of an f32 table by index; bytes: each row once, each row of the table that takes part twice"""
    dy, table = random(m, d), torch.zeros(v, d, device="cuda")
    index = torch.randint(v, (m,), device="cuda", dtype=torch.int32)
    work = 2 * m * d + 4 * m + 8 * d * index.unique().numel()
    add = lambda table, index, dy: table.index_add_(0, index, dy.float())
    prepare = lambda: table.zero_()
    want = add(table.clone(), index, dy)
    return Problem(work=work, out=table, want=want, ours=[Own("embedding_gradient", [index, dy, table], D=d)],
                   peers={"torch": lambda: add(table, index, dy), "inductor": compiled(add, table, index, dy)} | copies(work),
                   prepare=prepare)


@bench("more_rows", "GB/s", [(1 << 28, 256), (1 << 28, 4096)], label=lambda n, b: f"{n}, {b} bins")
def histogram(n, b):
    """i32, counts in i32"""
    x, count = torch.randint(b, (n,), device="cuda", dtype=torch.int32), torch.zeros(b, device="cuda", dtype=torch.int32)
    want = torch.bincount(x, minlength=b)
    peers = {"torch": lambda: torch.bincount(x, minlength=b), "triton": lambda: torch.histc(x, b, 0, b - 1)}
    return Problem(work=4 * n, out=count, want=want, ours=[Own("histogram", [x, count], B=b)], peers=peers | copies(4 * n),
                   prepare=lambda: count.zero_())


@bench("more_rows", "GB/s", [(65536, 64, 8), (65536, 256, 8), (16384, 1024, 4)], label=lambda m, n, k: f"{m}x{n}, {k}")
def top_k(m, n, k):
    """bf16, the k largest of each row and where they stand"""
    x = random(m, n)
    value, index = poisoned(m, k), torch.empty(m, k, dtype=torch.int32, device="cuda")
    work = 2 * m * n + 6 * m * k
    eager = lambda x: torch.topk(x, k, -1)
    values = lambda launch: lambda: launch()[0]   # of equal elements any is right
    return Problem(work=work, out=value, want=torch.topk(x.double(), k, -1)[0],
                   ours=[Own("top_k", [x, value, index], N=n, K=k)],
                   peers={"torch": values(lambda: eager(x)), "inductor": values(compiled(eager, x))} | copies(work))


@bench("more_rows", "GB/s", [(131072, 1024), (32768, 4096)])
def layer_norm_backward(m, n):
    """bf16, sums of columns in f32"""
    x, dy, w = random(m, n), random(m, n), random(n)
    dx, dw, db = poisoned(m, n), poisoned(n, dtype=torch.float32), poisoned(n, dtype=torch.float32)
    mean = x.float().mean(-1)
    rstd = torch.rsqrt(x.float().var(-1, unbiased=False) + EPS)
    normal = (x.float() - mean[:, None]) * rstd[:, None]
    g = dy.float() * w.float()
    want_x = (g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True)) * rstd[:, None]
    want = (want_x, (dy.float() * normal).double().sum(0), dy.double().sum(0))
    eager = lambda dy, x, mean, rstd, w: torch.ops.aten.native_layer_norm_backward(
        dy, x, [n], mean[:, None], rstd[:, None], w, torch.zeros_like(w), [True, True, True])
    arguments, work = [dy, x, mean, rstd, w], 6 * m * n
    return Problem(work=work, out=(dx, dw, db), want=want,
                   ours=[Own("layer_norm_backward", [dy, x, w, mean, rstd, dx, dw, db], N=n)],
                   peers={"torch": lambda: eager(*arguments), "inductor": compiled(eager, *arguments)} | copies(work))


@bench("more_rows", "GB/s", [(131072, 1024), (32768, 4096), (16384, 8192)])
def add_rmsnorm_quantize(m, n):
    """bf16 to e4m3 with a scale for each row; x is 0, so that the residual stays what it is over many launches"""
    x, residual, w = torch.zeros(m, n, device="cuda", dtype=BF16), random(m, n), random(n)
    y, scale = torch.empty(m, n, device="cuda", dtype=torch.float8_e4m3fn), poisoned(m, dtype=torch.float32)

    def eager(x, residual, w):
        v = x.float() + residual.float()
        residual.copy_(v)
        v = v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPS) * w.float()
        top = v.abs().amax(-1)
        return (v * (448 / top)[:, None]).to(torch.float8_e4m3fn), top / 448
    want = eager(x, residual, w)
    work = 7 * m * n + 4 * m
    return Problem(work=work, out=(y, scale), want=want,
                   ours=[Own("add_rmsnorm_quantize", [x, residual, w, y, scale, EPS, 448], N=n, LIMIT=448, Q="e4m3")],
                   peers={"torch": lambda: eager(x, residual, w), "inductor": compiled(eager, x, residual, w)} | copies(work))
