"""Matrix products with something more: epilogues, scales, groups, weights of few bits."""
import torch
import torch.nn.functional as F

import cublaslt
import peers
from rows import compiled
from table import BF16, FLOAT8, Choice, Own, Problem, bench, poisoned, random

F16 = torch.float16
LARGE = [(4096, 4096, 4096), (8192, 8192, 8192)]
LAYER = [(2048, 2048, 2048), (8192, 8192, 2048), (16384, 4096, 4096)]
THIN = [(16, 8192, 8192), (64, 8192, 8192), (256, 8192, 8192)]
GROUP = 128   # weights that share a scale along k


def problem(m, n, k, out, want, ours, eager, arguments, others=(), tolerance=1e-2):
    """`eager`: a function of PyTorch, whose matrix products are cuBLAS's; inductor fuses the rest of it."""
    named = {"torch": lambda: eager(*arguments), "inductor": compiled(eager, *arguments)}
    return Problem(work=2 * m * n * k, out=out, want=want, ours=ours, peers=named | dict(others), tolerance=tolerance)


@bench("fused", "TFLOP/s", LAYER)
def gemm_bias_gelu(m, n, k):
    """f16, C = gelu(A B + bias), B stored [K, N]"""
    a, b, bias, c = random(m, k, dtype=F16), random(k, n, dtype=F16), random(n, dtype=torch.float32), poisoned(m, n, dtype=F16)
    b *= k ** -0.5
    half = bias.half()
    want = F.gelu(a.float() @ b.float() + bias, approximate="tanh")
    return problem(m, n, k, c, want, [Own("gemm_bias_gelu", [a, b, bias, c])],
                   lambda a, b: F.gelu(torch.addmm(half, a, b), approximate="tanh"), [a, b],
                   {"cublaslt epilogue": lambda: torch._addmm_activation(half, a, b, use_gelu=True)})


@bench("fused", "TFLOP/s", LAYER)
def gemm_residual(m, n, k):
    """bf16, C = A B^T + bias + R"""
    a, b, bias, r, c = random(m, k), random(n, k), random(n, dtype=torch.float32), random(m, n), poisoned(m, n)
    return problem(m, n, k, c, a.float() @ b.float().t() + bias + r.float(), [Own("gemm_residual", [a, b, bias, r, c])],
                   lambda a, b, r: (a @ b.t() + bias + r).to(BF16), [a, b, r])


@bench("fused", "TFLOP/s", [(m, n, 2 * k) for m, n, k in LAYER], label=lambda m, n, k: f"{m}x{n}x{k // 2}")
def gemm_swiglu(m, n, k):
    """bf16, C = silu(A G^T) * (A U^T)"""
    a, g, u, c = random(m, k // 2), random(n, k // 2), random(n, k // 2), poisoned(m, n)
    g *= (k // 2) ** -0.5
    both = torch.cat((g, u))

    def eager(a):
        gate, up = (a @ both.t()).chunk(2, -1)
        return F.silu(gate) * up
    want = F.silu(a.float() @ g.float().t()) * (a.float() @ u.float().t())
    return problem(m, n, k, c, want, [Own("gemm_swiglu", [a, g, u, c])], eager, [a], tolerance=2e-2)


@bench("fused", "TFLOP/s", [(128, 128, 16384), (512, 512, 16384), (1024, 1024, 8192)])
def gemm_split_k(m, n, k):
    """f16, C = A B^T: few tiles, long k"""
    a, b, c = random(m, k, dtype=F16), random(n, k, dtype=F16), poisoned(m, n, dtype=F16)
    a *= k ** -0.5
    return problem(m, n, k, c, a.float() @ b.float().t(), [Own("gemm_split_k", [a, b, c])], lambda a, b: a @ b.t(), [a, b])


@bench("fused", "TFLOP/s", [(1536, 1536, 8192), (3072, 3072, 4096), (1920, 1920, 6144), (1792, 1920, 6144)])
def gemm_stream_k(m, n, k):
    """bf16, C = A B^T: tiles that do not fill the last wave"""
    a, b, c = random(m, k), random(n, k), poisoned(m, n)
    return problem(m, n, k, c, a.float() @ b.float().t(), [Own("gemm_stream_k", [a, b, c])], lambda a, b: a @ b.t(), [a, b])


@bench("fused", "TFLOP/s", [(8192, 4096, 4096), (16384, 4096, 7168)])
def gemm_grouped(m, n, k, groups=8):
    """bf16, groups of rows with a matrix each (experts), of uneven sizes"""
    a, b, c = random(m, k), random(groups, n, k), poisoned(m, n)
    cuts = torch.randperm(m // 8 - 1)[:groups - 1].sort().values * 8 + 8
    offsets = torch.tensor([0, *cuts.tolist(), m], dtype=torch.int32, device="cuda")
    bounds = offsets.tolist()
    want = torch.cat([a[i:j].float() @ b[g].float().t() for g, (i, j) in enumerate(zip(bounds, bounds[1:]))])
    ends, right = offsets[1:].contiguous(), b.transpose(1, 2)

    def one_by_one():
        for g, (i, j) in enumerate(zip(bounds, bounds[1:])):
            torch.matmul(a[i:j], right[g], out=c[i:j])
    return Problem(work=2 * m * n * k, out=c, want=want, ours=[Own("gemm_grouped", [a, b, offsets, c])],
                   peers={"grouped_mm": lambda: torch._grouped_mm(a, right, offs=ends, out_dtype=BF16), "cublas": one_by_one})


@bench("fused", "TFLOP/s", LARGE)
def gemm_fp8_blocks(m, n, k):
    """e4m3, a scale for each 1 x 128 of A and 128 x 128 of B"""
    a, b, c = random(m, k, dtype=FLOAT8), random(n, k, dtype=FLOAT8), poisoned(m, n)
    steps, blocks = k // GROUP, n // GROUP
    scale_a = torch.rand(steps, m, device="cuda") + 0.5
    scale_b = torch.rand(blocks, steps, device="cuda") + 0.5
    wide_a = a.float().view(m, steps, GROUP) * scale_a.t()[:, :, None]
    wide_b = b.float().view(blocks, GROUP, steps, GROUP) * scale_b[:, None, :, None]
    want = wide_a.view(m, k) @ wide_b.view(n, k).t()
    settings = [(128, 128, 3, 4), (128, 128, 4, 8), (64, 128, 4, 4)]
    scaled = {"cublaslt": lambda: F.scaled_mm(
        a, b.t(), scale_a.t(), F.ScalingType.BlockWise1x128, scale_b.t(), F.ScalingType.BlockWise128x128, output_dtype=BF16)}
    return Problem(work=2 * m * n * k, out=c, want=want, ours=[Own("gemm_fp8_blocks", [a, b, scale_a, scale_b, c])],
                   peers={"triton": Choice(peers.matmul_scaled, settings, a, b, scale_a, scale_b, c)} | scaled)


WEIGHTS = [(16, 64, 128, 4, 4), (16, 128, 128, 4, 4), (64, 64, 128, 4, 4), (64, 128, 128, 3, 8), (128, 128, 128, 3, 8)]


ROWS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096)
DENSE = [(m, 8192, 8192) for m in ROWS] + [(m, n, k) for n, k in ((14336, 4096), (4096, 14336), (4096, 4096), (5120, 5120))
                                           for m in (16, 64, 256, 2048)]


# Output, result, arguments of the kernel, the weights as 16-bit floats.
def by_rows(m, n, k):
    a, w, scale, c = random(m, k), random(n, k, dtype=FLOAT8), torch.rand(n, device="cuda") + 0.5, poisoned(m, n)
    wide = w.float() * scale[:, None]
    return c, a.float() @ wide.t(), [a, w, scale, c], wide.to(BF16)


def unpacked(packed, scale, dtype):   # byte j of a group: the k's j and j + 64
    n, k = packed.shape[0], packed.shape[1] * 2
    pieces = packed.view(n, k // GROUP, GROUP // 2)
    both = torch.cat((pieces & 15, pieces >> 4), -1).to(dtype) - 8
    return (both * scale.t()[:, :, None].to(dtype)).view(n, k)


def by_groups(m, n, k):
    a, c = random(m, k), poisoned(m, n)
    packed = torch.randint(256, (n, k // 2), device="cuda", dtype=torch.uint8)
    scale = (torch.rand(k // GROUP, n, device="cuda") + 0.5).to(BF16)
    wide = unpacked(packed, scale, torch.float32)
    return c, a.float() @ wide.t(), [a, packed, scale, c], wide.to(BF16)


@bench("weights", "TFLOP/s", THIN)
def gemm_w8(m, n, k):
    """bf16 by e4m3 weights, a scale for each row of them"""
    c, want, arguments, _ = by_rows(m, n, k)
    a, w, scale, _ = arguments
    return problem(m, n, k, c, want, [Own("gemm_w8", arguments)],
                   lambda a, w: ((a @ w.to(BF16).t()) * scale).to(BF16), [a, w],
                   {"triton": Choice(peers.matmul_weights, WEIGHTS, a, w, scale, c)})


@bench("weights", "TFLOP/s", THIN)
def gemm_w4(m, n, k):
    """bf16 by 4-bit weights, a scale for each 128 of a row of them"""
    c, want, arguments, _ = by_groups(m, n, k)
    a, packed, scale, _ = arguments
    return problem(m, n, k, c, want, [Own("gemm_w4", arguments)],
                   lambda a, packed: a @ unpacked(packed, scale, BF16).t(), [a, packed],
                   {"triton": Choice(peers.matmul_weights, WEIGHTS, a, packed, scale, c)})


def _rows(kernel, make):
    @bench("dense", "TFLOP/s", DENSE, name=f"{kernel}_rows")
    def rows(m, n, k):
        """weights of few bits against the product by the same weights as bf16, from one row to many"""
        c, want, arguments, wide = make(m, n, k)
        return Problem(work=2 * m * n * k, out=c, want=want, ours=[Own(kernel, arguments)],
                       peers={"dense": cublaslt.Best(arguments[0], wide, c)}, keep=wide)


_rows("gemm_w8", by_rows)
_rows("gemm_w4", by_groups)
