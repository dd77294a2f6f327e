"""Matrix products. The letters of an order say how A and B are stored: N as in A[M, K] B[K, N], T transposed."""
import torch

import cublaslt
import peers
from table import BF16, FLOAT8, Choice, Own, Problem, bench, poisoned, random

CUBES = [(n, n, n) for n in (512, 1024, 2048, 4096, 8192, 16384)]
RIVALS = ("cublaslt", "cublas")
TILES = [(128, 256, 64, 3, 8), (128, 128, 64, 4, 4), (64, 64, 64, 4, 4)]


def _stored(rows, columns, transposed, dtype=BF16):
    return random(columns, rows, dtype=dtype) if transposed else random(rows, columns, dtype=dtype)


def product(order, kernel, m, n, k):
    ta, tb = order[0] == "t", order[1] == "t"
    a, b, c = _stored(m, k, ta), _stored(k, n, tb), poisoned(m, n)
    left, right = a.t() if ta else a, b.t() if tb else b
    others = {"triton": Choice(peers.matmul, TILES, a, b, c)} if order == "nt" else {}
    return Problem(work=2 * m * n * k, out=c, want=left.float() @ right.float(), ours=[Own(kernel, [a, b, c])],
                   peers={"cublas": lambda: torch.matmul(left, right, out=c),
                          "cublaslt": cublaslt.Best(a, b, c, ta, tb)} | others)


@bench("gemm", "TFLOP/s", CUBES + [(4096, 14336, 4096), (8192, 8192, 1024)], RIVALS)
def gemm(m, n, k):
    """bf16, C = A B^T"""
    return product("nt", "gemm", m, n, k)


@bench("gemm", "TFLOP/s", [(m, 8192, 8192) for m in (16, 64, 128)], RIVALS)
def gemm_thin(m, n, k):
    """the same with few rows"""
    return product("nt", "gemm", m, n, k)


@bench("gemm", "TFLOP/s", [(n, n, n) for n in (1536, 3072, 6144)], RIVALS)
def gemm_between(m, n, k):
    """the same at sizes that powers of two do not tell about"""
    return product("nt", "gemm", m, n, k)


def _order(order):
    @bench("orders", "TFLOP/s", CUBES, RIVALS, name=f"gemm_{order}")
    def make(m, n, k):
        """bf16, the other operand orders"""
        return product(order, f"gemm_{order}", m, n, k)


for order in ("nn", "tn", "tt"):
    _order(order)


def _typed(name, dtype, **fixed):
    @bench("types", "TFLOP/s", [], RIVALS, name=name)
    def make(m, n, k):
        """f16, f32 in tf32: C = A B^T, for suite.py"""
        a, b, c = random(m, k, dtype=dtype), random(n, k, dtype=dtype), poisoned(m, n, dtype=dtype)
        return Problem(work=2 * m * n * k, out=c, want=a.float() @ b.float().t(),
                       ours=[Own("gemm", [a, b, c], **fixed)],
                       peers={"cublaslt": cublaslt.Best(a, b, c, False, True)})


_typed("gemm_f16", torch.float16, E="f16")
_typed("gemm_tf32", torch.float32, E="f32")


def _fp8(fast):
    @bench("fp8", "TFLOP/s", [(4096, 4096, 4096), (8192, 8192, 8192)], RIVALS, name="gemm_fp8" if fast else "gemm_fp8_exact")
    def make(m, n, k):
        """e4m3, C = A B^T in bf16; exact: sums leave the tensor cores' 14 bits in time"""
        a, b, c = random(m, k, dtype=FLOAT8), random(n, k, dtype=FLOAT8), poisoned(m, n)
        one = torch.ones((), device="cuda")
        kernel = "gemm_fp8" if fast else "gemm_fp8_exact"
        return Problem(work=2 * m * n * k, out=c, want=a.float() @ b.float().t(),
                       ours=[Own(kernel, [a, b, 1.0, 1.0, c])], tolerance=2e-2,
                       peers={"cublas": lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=BF16, use_fast_accum=fast),
                              "cublaslt": cublaslt.Best(a, b, c, False, True, fast=fast)})


for fast in (True, False):
    _fp8(fast)
