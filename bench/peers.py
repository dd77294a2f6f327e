"""The same kernels in Triton, in the plainest wording that is fast; bench.py takes the best of a few launch settings.

Kernels of rows come in two forms: a tile of whole rows in registers (ROWS of BLOCK columns), and, for rows too long for that, one
that reads a row in steps of BLOCK columns (ROWS is 0 among the settings).
"""
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def add_kernel(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(z + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


def add(x, y, z, block, warps):
    n = x.numel()
    return lambda: add_kernel[(triton.cdiv(n, block),)](x, y, z, n, BLOCK=block, num_warps=warps)


LONG = 16384   # columns from which rows are read in steps


def row_settings(columns):
    """(rows of a block or 0, columns of a step, warps)"""
    if columns > LONG:
        return [(0, 4096, 8), (0, 8192, 16), (0, 16384, 32)]
    block = triton.next_power_of_2(columns)
    fits = [(rows, warps) for rows in (1, 4, 16, 64) for warps in (2, 4, 8, 16) if 1024 <= rows * block // warps * 2 <= 2048]
    return [(rows, block, warps) for rows, warps in fits] or [(1, block, 4), (1, block, 16)]


@triton.jit
def softmax_kernel(x, y, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (at < columns)[None, :]
    place = row[:, None] * columns + at[None, :]
    v = tl.load(x + place, inside, -float("inf")).to(tl.float32)
    v = tl.exp(v - tl.max(v, 1)[:, None])
    tl.store(y + place, (v / tl.sum(v, 1)[:, None]).to(y.dtype.element_ty), inside)


@triton.jit
def softmax_steps_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    most = -1e30
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(0, columns, BLOCK):
        v = tl.load(x + row + step + at, step + at < columns, -float("inf")).to(tl.float32)
        new = tl.maximum(most, tl.max(v, 0))
        total = total * tl.exp(most - new) + tl.exp(v - new)
        most = new
    scale = 1 / tl.sum(total, 0)
    for step in range(0, columns, BLOCK):
        v = tl.load(x + row + step + at, step + at < columns, 0.0).to(tl.float32)
        tl.store(y + row + step + at, (tl.exp(v - most) * scale).to(y.dtype.element_ty), step + at < columns)


def softmax(x, y, rows, block, warps):
    m, n = x.shape
    if rows == 0:
        return lambda: softmax_steps_kernel[(m,)](x, y, n, BLOCK=block, num_warps=warps)
    return lambda: softmax_kernel[(triton.cdiv(m, rows),)](x, y, m, n, ROWS=rows, BLOCK=block, num_warps=warps)


@triton.jit
def norm_kernel(x, w, b, y, rows, columns, eps, CENTER: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # CENTER: layer norm with weight and bias; else RMS norm with weight.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (at < columns)[None, :]
    place = row[:, None] * columns + at[None, :]
    v = tl.load(x + place, inside, 0.0).to(tl.float32)
    if CENTER:
        v = tl.where(inside, v - (tl.sum(v, 1) / columns)[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(v * v, 1) / columns + eps)
    result = v * scale[:, None] * tl.load(w + at, at < columns, 0.0).to(tl.float32)[None, :]
    if CENTER:
        result += tl.load(b + at, at < columns, 0.0).to(tl.float32)[None, :]
    tl.store(y + place, result.to(y.dtype.element_ty), inside)


@triton.jit
def norm_steps_kernel(x, w, b, y, columns, eps, CENTER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for step in range(0, columns, BLOCK):
        v = tl.load(x + row + step + at, step + at < columns, 0.0).to(tl.float32)
        sums += v
        squares += v * v
    mean = tl.sum(sums, 0) / columns if CENTER else 0.0
    scale = tl.rsqrt(tl.sum(squares, 0) / columns - mean * mean + eps)
    for step in range(0, columns, BLOCK):
        inside = step + at < columns
        v = tl.load(x + row + step + at, inside, 0.0).to(tl.float32)
        result = (v - mean) * scale * tl.load(w + step + at, inside, 0.0).to(tl.float32)
        if CENTER:
            result += tl.load(b + step + at, inside, 0.0).to(tl.float32)
        tl.store(y + row + step + at, result.to(y.dtype.element_ty), inside)


def norm(x, w, b, y, eps, rows, block, warps):
    """b: None for RMS norm."""
    (m, n), center = x.shape, b is not None
    b = b if center else w
    if rows == 0:
        return lambda: norm_steps_kernel[(m,)](x, w, b, y, n, eps, CENTER=center, BLOCK=block, num_warps=warps)
    grid = (triton.cdiv(m, rows),)
    return lambda: norm_kernel[grid](x, w, b, y, m, n, eps, CENTER=center, ROWS=rows, BLOCK=block, num_warps=warps)


@triton.jit
def sum_kernel(x, y, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for step in range(0, columns, BLOCK):
        inside = (row < rows)[:, None] & (step + at < columns)[None, :]
        total += tl.load(x + row[:, None] * columns + step + at[None, :], inside, 0.0).to(tl.float32)
    tl.store(y + row, tl.sum(total, 1).to(y.dtype.element_ty), row < rows)


def row_sum(x, y, rows, block, warps):
    (m, n), rows = x.shape, max(rows, 1)
    return lambda: sum_kernel[(triton.cdiv(m, rows),)](x, y, m, n, ROWS=rows, BLOCK=block, num_warps=warps)


@triton.jit
def cumulative_sum_kernel(x, y, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, BLOCK)
    before = tl.zeros((ROWS,), tl.float32)
    for step in range(0, columns, BLOCK):
        inside = (row < rows)[:, None] & (step + at < columns)[None, :]
        place = row[:, None] * columns + step + at[None, :]
        value = tl.load(x + place, inside, 0.0).to(tl.float32)
        sums = tl.cumsum(value, 1) + before[:, None]
        tl.store(y + place, sums.to(y.dtype.element_ty), inside)
        before = tl.sum(tl.where(at == BLOCK - 1, sums, 0.0), 1)   # a sum kept in the loop breaks Triton's compiler


def cumulative_sum(x, y, rows, block, warps):
    (m, n), rows = x.shape, max(rows, 1)
    return lambda: cumulative_sum_kernel[(triton.cdiv(m, rows),)](x, y, m, n, ROWS=rows, BLOCK=block, num_warps=warps)


@triton.jit
def cross_entropy_kernel(x, target, loss, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, BLOCK)
    most = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for step in range(0, columns, BLOCK):
        inside = (row < rows)[:, None] & (step + at < columns)[None, :]
        v = tl.load(x + row[:, None] * columns + step + at[None, :], inside, -float("inf")).to(tl.float32)
        new = tl.maximum(most, tl.max(v, 1))
        total = total * tl.exp(most - new) + tl.sum(tl.exp(v - new[:, None]), 1)
        most = new
    log = most + tl.log(total)
    mark = tl.load(target + row, row < rows, 0)
    right = tl.load(x + row * columns + mark, row < rows, 0.0).to(tl.float32)
    tl.store(loss + row, log - right, row < rows)


def cross_entropy(x, target, loss, rows, block, warps):
    (m, n), rows = x.shape, max(rows, 1)
    grid = (triton.cdiv(m, rows),)
    return lambda: cross_entropy_kernel[grid](x, target, loss, m, n, ROWS=rows, BLOCK=block, num_warps=warps)


@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n), at < n)


def copy(x, y, block, warps):
    n = x.numel()
    return lambda: copy_kernel[(triton.cdiv(n, block),)](x, y, n, BLOCK=block, num_warps=warps)


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


@triton.jit
def matmul_scaled_kernel(a, b, scale_a, scale_b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # C = A B^T of e4m3; a scale for each 1 x BK of A, stored [k / BK, m], and each BN x BK of B.
    bm, bn = tl.program_id(0), tl.program_id(1)
    i, j, kk = bm * BM + tl.arange(0, BM), bn * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(k // BK):
        x = tl.load(a + i[:, None] * k + (step * BK + kk)[None, :])
        y = tl.load(b + j[:, None] * k + (step * BK + kk)[None, :])
        scale = tl.load(scale_a + step * m + i) * tl.load(scale_b + bn * (k // BK) + step)
        acc += tl.dot(x, y.T) * scale[:, None]
    tl.store(c + i[:, None] * n + j[None, :], acc.to(c.dtype.element_ty))


def matmul_scaled(a, b, scale_a, scale_b, c, bm, bn, stages, warps):
    """bn and the steps of k are the scales' 128; sizes are multiples of the tiles."""
    (m, k), n = a.shape, b.shape[0]
    return lambda: matmul_scaled_kernel[(m // bm, n // bn)](a, b, scale_a, scale_b, c, m, n, k, BM=bm, BN=bn, BK=128,
                                                            num_stages=stages, num_warps=warps)


@triton.jit
def matmul_weights_kernel(a, w, scale, c, m, n, k, FOUR: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # C = A W^T. FOUR: two weights of 4 bits a byte, k's j and j + 64 of each 128, a scale for each 128; else e4m3, a scale a row.
    bm, bn = tl.program_id(0), tl.program_id(1)
    i, j = bm * BM + tl.arange(0, BM), bn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(k // BK):
        if FOUR:
            half = tl.arange(0, BK // 2)
            at = a + i[:, None] * k + (step * BK + half)[None, :]
            low = tl.load(at, (i < m)[:, None], 0.0)
            high = tl.load(at + BK // 2, (i < m)[:, None], 0.0)
            pair = tl.load(w + j[:, None] * (k // 2) + (step * (BK // 2) + half)[None, :])
            piece = tl.dot(low, ((pair & 15).to(tl.bfloat16) - 8).T)
            piece = tl.dot(high, ((pair >> 4).to(tl.bfloat16) - 8).T, piece)
            acc += piece * tl.load(scale + step * n + j).to(tl.float32)[None, :]
        else:
            kk = step * BK + tl.arange(0, BK)
            x = tl.load(a + i[:, None] * k + kk[None, :], (i < m)[:, None], 0.0)
            y = tl.load(w + j[:, None] * k + kk[None, :])
            acc = tl.dot(x, y.to(tl.bfloat16).T, acc)
    if not FOUR:
        acc *= tl.load(scale + j)[None, :]
    tl.store(c + i[:, None] * n + j[None, :], acc.to(c.dtype.element_ty), (i < m)[:, None])


def matmul_weights(a, w, scale, c, bm, bn, bk, stages, warps):
    """n and k are multiples of the tile."""
    (m, k), n = a.shape, c.shape[1]
    grid = (triton.cdiv(m, bm), n // bn)
    return lambda: matmul_weights_kernel[grid](a, w, scale, c, m, n, k, FOUR=w.dtype == torch.uint8, BM=bm, BN=bn, BK=bk,
                                               num_stages=stages, num_warps=warps)


@triton.jit
def attention_kernel(q, k, v, o, length, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    # Tensor maps of [B * H * S, D]; blocks of BM queries, the longest first; scale is to base 2. S is a multiple of BM and BN.
    blocks = length // BM
    m = blocks - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)
    head = tl.program_id(1) * length
    queries = q.load([head + m * BM, 0])
    acc = tl.zeros((BM, D), tl.float32)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    free = m * BM // BN * BN if CAUSAL else length
    for n in range(0, free, BN):
        s = tl.dot(queries, k.load([head + n, 0]).T) * scale
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(top - new)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), v.load([head + n, 0]), acc * alpha[:, None])
        top = new
    if CAUSAL:
        for n in range(free, (m + 1) * BM, BN):
            s = tl.dot(queries, k.load([head + n, 0]).T) * scale
            seen = m * BM + tl.arange(0, BM)[:, None] >= n + tl.arange(0, BN)[None, :]
            s = tl.where(seen, s, -1e30)
            new = tl.maximum(top, tl.max(s, 1))
            p = tl.exp2(s - new[:, None])
            alpha = tl.exp2(top - new)
            total = total * alpha + tl.sum(p, 1)
            acc = tl.dot(p.to(tl.bfloat16), v.load([head + n, 0]), acc * alpha[:, None])
            top = new
    o.store([head + m * BM, 0], (acc / total[:, None]).to(tl.bfloat16))


def attention(q, k, v, o, causal, bm, bn, warps, stages):
    b, h, s, d = q.shape
    maps = [TensorDescriptor.from_tensor(x.view(-1, d), [rows, d]) for x, rows in ((q, bm), (k, bn), (v, bn), (o, bm))]
    scale = d ** -0.5 * 1.4426950408889634
    return lambda: attention_kernel[(s // bm, b * h)](*maps, s, scale, D=d, BM=bm, BN=bn, CAUSAL=causal, num_warps=warps,
                                                      num_stages=stages)


@triton.jit
def family_steps(acc, total, top, queries, k, v, at, begin, column, first, last, length, scale, cap, window, BN: tl.constexpr,
                 MASK: tl.constexpr, CAUSAL: tl.constexpr, CAP: tl.constexpr):
    for n in range(first, last, BN):
        s = tl.dot(queries, k.load([begin + n, column]).T) * scale
        if CAP:   # scale is 2 / cap * log2(e): cap * tanh(x) = cap * (1 - 2 / (e^2x + 1)), to base 2
            s = cap - 2 * cap / (tl.exp2(s) + 1)
        if MASK:
            key = n + tl.arange(0, BN)[None, :]
            seen = key < length
            if CAUSAL:
                seen = seen & (key <= at[:, None]) & (key + window > at[:, None])
            s = tl.where(seen, s, -1e30)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(top - new)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), v.load([begin + n, column]), acc * alpha[:, None])
        top = new
    return acc, total, top


@triton.jit
def family_kernel(q, k, v, o, starts, longest, scale, cap, window, row, D: tl.constexpr, GROUP: tl.constexpr, BM: tl.constexpr,
                  BN: tl.constexpr, CAUSAL: tl.constexpr, CAP: tl.constexpr):
    # Tensor maps of [tokens, heads * D], sequences one behind the other; blocks of BM queries, the last ones first.
    m = tl.cdiv(longest, BM) - 1 - tl.program_id(2)
    head, begin = tl.program_id(0), tl.load(starts + tl.program_id(1))
    length = tl.load(starts + tl.program_id(1) + 1) - begin
    if m * BM < length:
        queries = q.load([begin + m * BM, head * D])
        at = m * BM + tl.arange(0, BM)
        acc = tl.zeros((BM, D), tl.float32)
        top = tl.full((BM,), -1e30, tl.float32)
        total = tl.zeros((BM,), tl.float32)
        first, near, plain, last = 0, 0, length // BN * BN, length
        if CAUSAL:
            first = tl.maximum(m * BM - window + 1, 0) // BN * BN
            plain, last = m * BM // BN * BN, tl.minimum(length, (m + 1) * BM)
            near = tl.minimum(tl.maximum(tl.cdiv(tl.maximum(m * BM + BM - window, 0), BN) * BN, first), plain)
            acc, total, top = family_steps(acc, total, top, queries, k, v, at, begin, head // GROUP * D, first, near, length, scale, cap,
                                           window, BN, True, CAUSAL, CAP)
        acc, total, top = family_steps(acc, total, top, queries, k, v, at, begin, head // GROUP * D, near, plain, length, scale, cap,
                                       window, BN, False, CAUSAL, CAP)
        acc, total, top = family_steps(acc, total, top, queries, k, v, at, begin, head // GROUP * D, plain, last, length, scale, cap, window,
                                       BN, True, CAUSAL, CAP)
        place = (begin + at).to(tl.int64)[:, None] * row + head * D + tl.arange(0, D)[None, :]
        tl.store(o + place, (acc / total[:, None]).to(tl.bfloat16), (at < length)[:, None])


def family(q, k, v, o, starts, longest, causal, window, cap, bm, bn, warps, stages):
    """q, k, v, o: [tokens, heads, d], sequence b from starts[b] on; window: keys that a query sees (causal only), cap: 0 for none."""
    (tokens, h, d), g = q.shape, k.shape[1]
    maps = [TensorDescriptor.from_tensor(x.view(tokens, -1), [rows, d]) for x, rows in ((q, bm), (k, bn), (v, bn))]
    log2e = 1.4426950408889634
    scale = d ** -0.5 * log2e * (2 / cap if cap else 1)
    return lambda: family_kernel[(h, len(starts) - 1, triton.cdiv(longest, bm))](
        *maps, o, starts, longest, scale, cap * log2e, window, h * d, D=d, GROUP=h // g, BM=bm, BN=bn, CAUSAL=causal, CAP=cap > 0,
        num_warps=warps, num_stages=stages)


@triton.jit
def latent_kernel(q, c, table, length, piece, lse, width, scale, R: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                  SPLITS: tl.constexpr, PAGE: tl.constexpr):
    split, b = tl.program_id(0), tl.program_id(2)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    near, far, key = tl.arange(0, 512), 512 + tl.arange(0, 64), tl.arange(0, BN)
    here = row < R
    line = (b * R + row).to(tl.int64)
    keys = tl.load(length + b)
    share = tl.cdiv(tl.cdiv(keys, BN), SPLITS) * BN
    first, last = split * share, tl.minimum(keys, (split + 1) * share)
    q0 = tl.load(q + line[:, None] * 576 + near[None, :], here[:, None], 0.0)
    q1 = tl.load(q + line[:, None] * 576 + far[None, :], here[:, None], 0.0)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, 512), tl.float32)
    for at in range(first, last, BN):
        page = tl.load(table + b * width + at // PAGE).to(tl.int64)
        place = (page * PAGE + at % PAGE + key) * 576
        inside = at + key < last
        k0 = tl.load(c + place[:, None] + near[None, :], inside[:, None], 0.0)
        k1 = tl.load(c + place[:, None] + far[None, :], inside[:, None], 0.0)
        s = tl.dot(q0, tl.trans(k0)) + tl.dot(q1, tl.trans(k1))
        s = tl.where(inside[None, :], s * scale, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(top - new)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(k0.dtype), k0, acc * alpha[:, None])
        top = new
    slot = line * SPLITS + split
    tl.store(piece + slot[:, None] * 512 + near[None, :], acc / tl.maximum(total, 1e-30)[:, None], here[:, None])
    tl.store(lse + slot, tl.where(total > 0, top + tl.log2(total), -1e30), here)


@triton.jit
def latent_combine_kernel(piece, lse, o, SPLITS: tl.constexpr):
    line = tl.program_id(0).to(tl.int64)
    split, column = tl.arange(0, SPLITS), tl.arange(0, 512)
    w = tl.load(lse + line * SPLITS + split)
    w = tl.exp2(w - tl.max(w, 0))
    x = tl.load(piece + (line * SPLITS + split)[:, None] * 512 + column[None, :])
    tl.store(o + line * 512 + column, (tl.sum(x * w[:, None], 0) / tl.sum(w, 0)).to(o.dtype.element_ty))


def latent(q, c, table, length, o, scale, page, bm, bn, warps, stages, splits):
    """q [B, 1, R, 576], c [pages, page, 1, 576], bn keys of a page at a time."""
    b, _, r, _ = q.shape
    piece = torch.empty(b * r, splits, 512, device="cuda")
    lse = torch.empty(b * r, splits, device="cuda")

    def launch():
        latent_kernel[(splits, triton.cdiv(r, bm), b)](q, c, table, length, piece, lse, table.shape[1], scale * 1.44269504, R=r,
                                                       BM=bm, BN=bn, SPLITS=splits, PAGE=page, num_warps=warps, num_stages=stages)
        latent_combine_kernel[(b * r,)](piece, lse, o, SPLITS=splits, num_warps=4)
    return launch
