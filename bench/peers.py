"""The same kernels in Triton, in the plainest wording that is fast; bench.py picks the best of a few launch settings."""
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(z + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


def add(x, y, z, block, warps):
    n = x.numel()
    return lambda: add_kernel[(triton.cdiv(n, block),)](x, y, z, n, BLOCK=block, num_warps=warps)


@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row + at, at < columns, -float("inf")).to(tl.float32)
    v = tl.exp(v - tl.max(v, 0))
    tl.store(y + row + at, (v / tl.sum(v, 0)).to(y.dtype.element_ty), at < columns)


def softmax(x, y, warps):
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    return lambda: softmax_kernel[(rows,)](x, y, columns, BLOCK=block, num_warps=warps)


@triton.jit
def rmsnorm_kernel(x, w, y, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row + at, inside, 0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, 0) / columns + eps)
    weight = tl.load(w + at, inside, 0.0).to(tl.float32)
    tl.store(y + row + at, (v * scale * weight).to(y.dtype.element_ty), inside)


def rmsnorm(x, w, y, eps, warps):
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    return lambda: rmsnorm_kernel[(rows,)](x, w, y, columns, eps, BLOCK=block, num_warps=warps)


@triton.jit
def transpose_kernel(x, y, rows, columns, TILE: tl.constexpr):
    i = (tl.program_id(0) * TILE + tl.arange(0, TILE)).to(tl.int64)
    j = (tl.program_id(1) * TILE + tl.arange(0, TILE)).to(tl.int64)
    v = tl.load(x + i[:, None] * columns + j[None, :], (i < rows)[:, None] & (j < columns)[None, :])
    tl.store(y + j[:, None] * rows + i[None, :], tl.trans(v), (j < columns)[:, None] & (i < rows)[None, :])


def transpose(x, y, tile, warps):
    rows, columns = x.shape
    grid = (triton.cdiv(rows, tile), triton.cdiv(columns, tile))
    return lambda: transpose_kernel[grid](x, y, rows, columns, TILE=tile, num_warps=warps)


@triton.jit
def matmul_kernel(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    # C = A B^T; blocks in supergroups of GROUP rows.
    block = tl.program_id(0)
    rows, columns = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = block // (GROUP * columns)
    height = min(rows - group * GROUP, GROUP)
    bm = group * GROUP + block % height
    bn = block % (GROUP * columns) // height
    i, j, kk = bm * BM + tl.arange(0, BM), bn * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(k, BK)):
        at = step * BK + kk
        x = tl.load(a + (i % m)[:, None] * k + at[None, :], at[None, :] < k, 0.0)
        y = tl.load(b + (j % n)[:, None] * k + at[None, :], at[None, :] < k, 0.0)
        acc = tl.dot(x, y.T, acc)
    tl.store(c + i[:, None] * n + j[None, :], acc.to(c.dtype.element_ty), (i < m)[:, None] & (j < n)[None, :])


def matmul(a, b, c, bm, bn, bk, stages, warps):
    (m, k), n = a.shape, b.shape[0]
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
    return lambda: matmul_kernel[grid](a, b, c, m, n, k, BM=bm, BN=bn, BK=bk, GROUP=8, num_stages=stages, num_warps=warps)
