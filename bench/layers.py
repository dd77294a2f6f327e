"""Layers of models other than attention over all keys: state-space scans, gated linear attention, the gated delta
rule, mixtures of experts, block-sparse attention. Peers are public Triton kernels, where their packages are installed
(README.md names them)."""
import importlib

import torch
import torch.nn.functional as F

from table import BF16, Choice, Own, Problem, bench, poisoned, random


def public(*peers):
    """(name, module, make, settings, *arguments): those whose module is there. make(module, *arguments, *setting) gives
    a launch."""
    found = {}
    for name, module, make, settings, *arguments in peers:
        try:
            module = importlib.import_module(module)
        except ImportError:
            continue
        found[name] = Choice(make, settings, module, *arguments)
    return found


def chunked(q, k, v, decay, scale=1.0, beta=None, rows=64):
    """S = a S + k v^T, o = scale * S^T q in f32, `rows` at a time; decay [B, L, H] is log a, or [B, L, H, N] for each
    row of S. With beta [B, L, H] the delta rule: S = a (1 - beta k k^T) S + beta k v^T. q, k [B, L, H, N], v [B, L, H, P]."""
    b, length, h, n = k.shape
    out = torch.empty(b, length, h, v.shape[-1], device=v.device)
    state = torch.zeros(b, h, n, v.shape[-1], device=v.device)
    decay = decay if decay.dim() == 4 else decay[..., None]
    for first in range(0, length, rows):
        here = slice(first, first + rows)
        qs, ks, vs, gate = (x[:, here].transpose(1, 2).float() for x in (q, k, v, decay))
        sums = gate.cumsum(2)
        if gate.shape[-1] == 1:
            between = (sums - sums.transpose(2, 3)).tril().exp().tril()
            scores, inner = (x @ ks.transpose(2, 3) * between for x in (qs, ks))
        else:   # counted from the middle, so that neither factor overflows
            middle = sums[:, :, sums.shape[2] // 2, None]
            scores = ((qs * (sums - middle).exp()) @ (ks * (middle - sums).exp()).transpose(2, 3)).tril()
        if beta is not None:
            scale_of = beta[:, here].transpose(1, 2)[..., None].float()
            system = torch.eye(ks.shape[2], device=v.device) + scale_of * inner.tril(-1)
            vs = torch.linalg.solve_triangular(system, scale_of * (vs - (ks * sums.exp()) @ state), upper=False)
        out[:, here] = (scale * (scores @ vs + (qs * sums.exp()) @ state)).transpose(1, 2)
        end = sums[:, :, -1:]
        state = end.exp().transpose(2, 3) * state + (ks * (end - sums).exp()).transpose(2, 3) @ vs
    return out


def recurrence(b, length, h, n, p):
    """Operations of the recurrence itself: a state's update and what is read of it."""
    return 4 * b * length * h * n * p


# ---- scans ----


def mamba(module, x, dt, a, k, q, chunk):
    """What mamba_chunk_scan_combined runs, without autograd: sums, states, passing, Q K^T, scan."""
    return lambda: module._mamba_chunk_scan_combined_fwd(x, dt, a, k[:, :, None], q[:, :, None], chunk)[0]


@bench("layers", "TFLOP/s", [(1, 2048, 80), (1, 8192, 80), (8, 2048, 80), (1, 16384, 128), (1, 8192, 24)])
def mamba2_ssd(b, length, h, n=128, p=64):
    """heads of 64, states of 128, one group (batch, tokens, heads)"""
    x, k, q, y = random(b, length, h, p), random(b, length, n), random(b, length, n), poisoned(b, length, h, p)
    dt = F.softplus(torch.randn(b, length, h, device="cuda") - 4)
    a = -torch.rand(h, device="cuda") * 15 - 1
    heads = (b, length, h, n)
    return Problem(work=recurrence(b, length, h, n, p), out=y, tolerance=2e-2,
                   want=chunked(q[:, :, None].expand(heads), k[:, :, None].expand(heads), x * dt[..., None], dt * a),
                   ours=[Own("mamba2_ssd", [x, dt, a, k, q, y], N=n, P=p)],
                   peers=public(("mamba_ssm", "mamba_ssm.ops.triton.ssd_combined", mamba, [(128,), (256,)], x, dt, a, k, q)))


def unit(*shape):
    """Rows of norm 1."""
    return F.normalize(torch.randn(*shape, device="cuda"), dim=-1).to(BF16)


def fla_delta(module, q, k, v, decay, beta, scale):
    return lambda: module.chunk_gated_delta_rule(q, k, v, decay, beta, scale)[0]


@bench("layers", "TFLOP/s", [(1, 2048, 16, 32), (1, 8192, 16, 32), (1, 16384, 16, 32), (8, 2048, 16, 16)])
def gated_delta_rule(b, length, g, h, n=128, p=128):
    """states of 128x128 (batch, tokens, heads of queries and keys, heads of values)"""
    q, k, v, o = random(b, length, g, n), unit(b, length, g, n), random(b, length, h, p), poisoned(b, length, h, p)
    decay = F.logsigmoid(torch.randn(b, length, h, device="cuda") + 3)
    beta = torch.rand(b, length, h, device="cuda")
    scale = n ** -0.5
    wide = [x.repeat_interleave(h // g, 2) for x in (q, k)]
    return Problem(work=1.5 * recurrence(b, length, h, n, p), out=o, want=chunked(*wide, v, decay, scale, beta), tolerance=2e-2,
                   ours=[Own("gated_delta_rule", [q, k, v, decay, beta, o, scale], N=n, P=p, GROUP=h // g)],
                   peers=public(("fla", "fla.ops.gated_delta_rule", fla_delta, [()], q, k, v, decay, beta, scale)))


def fla_gla(module, q, k, v, gates, scale):
    return lambda: module.chunk_gla(q, k, v, gates, scale)[0]


@bench("layers", "TFLOP/s", [(1, 8192, 16), (8, 2048, 16)])
def gated_linear_attention(b, length, h, n=128, p=128):
    """states of 128x128, a gate for each of their rows (batch, tokens, heads)"""
    q, k, v, o = random(b, length, h, n), random(b, length, h, n), random(b, length, h, p), poisoned(b, length, h, p)
    gates = F.logsigmoid(torch.randn(b, length, h, n, device="cuda")) / 16
    scale = n ** -0.5
    return Problem(work=recurrence(b, length, h, n, p), out=o, want=chunked(q, k, v, gates, scale), tolerance=2e-2,
                   ours=[Own("gated_linear_attention", [q, k, v, gates, o, scale], N=n, P=p)],
                   peers=public(("fla", "fla.ops.gla", fla_gla, [()], q, k, v, gates, scale)))


# ---- mixtures of experts ----


def sorted_slots(expert, experts, block):
    """Slots (token * K + one of its K experts) by expert, each expert's filled up to `block` with the number of no slot;
    and the expert of each block."""
    slots = expert.numel()
    count = torch.bincount(expert.flatten(), minlength=experts)
    blocks = (count + block - 1) // block
    rows = torch.full((int(blocks.sum()) * block,), slots, dtype=torch.int32, device=expert.device)
    order = expert.flatten().argsort(stable=True)
    begin, first = (blocks.cumsum(0) - blocks) * block, count.cumsum(0) - count
    of = expert.flatten()[order]
    rows[begin[of] + torch.arange(slots, device=expert.device) - first[of]] = order.to(torch.int32)
    return rows, torch.repeat_interleave(torch.arange(experts, dtype=torch.int32, device=expert.device), blocks)


def sglang_moe(module, x, gate, up, down, expert, weight, bm, bn, bk, group, warps, stages, fused, tma):
    """invoke_fused_moe_kernel twice and the sum, as fused_experts calls them; fused: SwiGLU in the first one's
    epilogue."""
    import triton.language as tl
    (t, d), (experts, f, _), k = x.shape, gate.shape, expert.shape[1]
    both = torch.stack((gate, up), 2).view(experts, 2 * f, d) if fused else torch.cat((gate, up), 1)
    rows, blocks = sorted_slots(expert, experts, bm)
    padded = torch.tensor([rows.numel()], dtype=torch.int32, device=x.device)
    config = {"BLOCK_SIZE_M": bm, "BLOCK_SIZE_N": bn, "BLOCK_SIZE_K": bk, "GROUP_SIZE_M": group, "num_warps": warps, "num_stages": stages}
    wide, hidden = torch.empty(t * k, 2 * f, device=x.device, dtype=BF16), torch.empty(t * k, f, device=x.device, dtype=BF16)
    pieces, y = torch.empty(t, k, d, device=x.device, dtype=BF16), torch.empty_like(x)
    expert = expert.to(torch.int32)

    def product(a, b, c, weighted, of, **more):
        module.invoke_fused_moe_kernel(a, b, None, c, None, None, None, weight, expert, rows, blocks, padded, weighted, of, config,
                                       compute_type=tl.bfloat16, use_fp8_w8a8=False, use_int8_w8a8=False, use_int8_w8a16=False,
                                       use_int4_w4a16=False, per_channel_quant=False, filter_expert=False, **more)

    def launch():
        product(x, both, hidden if fused else wide, False, k, fuse_swiglu=fused, b_use_tma=tma)
        if not fused:
            module.act_and_mul_triton(wide, hidden, config)
        product(hidden, down, pieces, True, 1, b_use_tma=False)
        module.moe_sum_reduce_triton(pieces, y, 1.0)
        return y
    return launch


FEW = [(16, 64, 256, 1, 4, 2), (16, 128, 128, 1, 4, 4), (16, 128, 256, 16, 4, 2)]
SOME = [(64, 128, 64, 1, 4, 3), (32, 256, 128, 16, 4, 2), (64, 128, 128, 1, 8, 4)]
MANY = [(128, 256, 64, 16, 8, 4), (128, 128, 64, 16, 8, 4)]   # of its tuned settings for an H200


def moe_label(tokens, experts, k, d, f):
    return f"{tokens} tokens, {k} of {experts}, {d}x{f}"


@bench("layers", "TFLOP/s", [(t, *layer) for layer in ((128, 8, 2048, 768), (8, 2, 4096, 14336)) for t in (16, 512, 4096)], label=moe_label)
def moe(t, experts, k, d, f):
    """routed, sorted by expert beforehand: products, SwiGLU, weighted sum"""
    x, y = random(t, d), poisoned(t, d)
    gate, up, down = (random(experts, *shape) * (shape[1] ** -0.5) for shape in ((f, d), (f, d), (d, f)))
    weight, expert = torch.rand(t, experts, device="cuda").topk(k)
    weight = (weight / weight.sum(-1, keepdim=True)).contiguous()
    want = torch.zeros(t, d, device="cuda")
    for e in range(experts):
        token, slot = (expert == e).nonzero(as_tuple=True)
        a = x[token].float()
        h = F.silu(a @ gate[e].float().t()) * (a @ up[e].float().t())
        want.index_add_(0, token, (h @ down[e].float().t()) * weight[token, slot, None])
    settings = FEW if t * k < 4 * experts else SOME if t * k < 64 * experts else MANY
    blocks = [16, 64, 128]
    blocks.sort(key=lambda block: block != (16 if t * k < 16 * experts else 64 if t * k < 128 * experts else 128))

    def own(block):
        return Own("moe", [x, gate, up, down, *sorted_slots(expert, experts, block), weight.flatten(), y, k], K=k, ROWS=block)
    return Problem(work=6 * t * k * d * f, out=y, want=want, tolerance=2e-2, ours=[own(block) for block in blocks],
                   peers=public(("sglang", "sglang.kernels.ops.moe.fused_moe_triton_kernels", sglang_moe,
                                 [(*setting, fused, False) for setting in settings for fused in (False, True)],
                                 x, gate, up, down, expert, weight)))


# ---- block-sparse attention ----

QUERIES = 128   # of a row of the list of blocks


def flex_sparse(flex, q, k, v, lists, counts, block, causal, bm, bn, warps, stages):
    """PyTorch's flex_attention, compiled: blocks of which all is seen, and with `causal` those at the diagonal with a
    mask."""
    def ordered(mask):   # numbers of the chosen blocks first
        return mask.sum(-1).to(torch.int32), mask.to(torch.int32).argsort(dim=-1, descending=True, stable=True).to(torch.int32)
    h, rows, _ = lists.shape
    chosen = torch.zeros(h, rows, k.shape[2] // block + 1, dtype=torch.bool, device=q.device)
    chosen.scatter_(2, torch.where(torch.arange(lists.shape[2], device=q.device) < counts[..., None], lists, k.shape[2] // block).long(), True)
    chosen = chosen[None, :, :, :-1]
    at = torch.arange(chosen.shape[-1], device=q.device) * block
    free = (at + block - 1 <= torch.arange(rows, device=q.device)[:, None] * QUERIES) if causal else torch.ones_like(chosen)
    whole, edge = ordered(chosen & free), ordered(chosen & ~free)
    mask = flex.BlockMask.from_kv_blocks(*edge, *whole, BLOCK_SIZE=(QUERIES, block), seq_lengths=(q.shape[2], k.shape[2]),
                                         mask_mod=(lambda b, h, i, j: j <= i) if causal else None)
    options = {"BLOCK_M": bm, "BLOCK_N": bn, "num_warps": warps, "num_stages": stages}
    torch._dynamo.reset()
    run = torch.compile(lambda q, k, v: flex.flex_attention(q, k, v, block_mask=mask, kernel_options=options), dynamic=False)
    return lambda: run(q, k, v)


def sglang_sparse(module, q, k, v, lists, bm, bn, warps, stages):
    """Its kernel over a table of as many blocks for each row of queries."""
    (b, h, length, d), rows, count = q.shape, lists.shape[1], lists.shape[2]
    o, lse = torch.empty_like(q), torch.empty(b, h, length, device=q.device)
    table = lists[None].repeat(b, 1, 1, 1)
    return lambda: (module._attn_fwd[(rows, b * h)](q, k, v, d ** -0.5, count, table, lse, o, length, rows, d, bm, bn,
                                                    num_warps=warps, num_stages=stages), o)[1]


def sparse_label(length, block, density, causal):
    return f"{length}, blocks of {block}, {density:g}{', causal' if causal else ''}"


@bench("layers", "TFLOP/s", [(8192, 64, 0.25, False), (8192, 128, 0.5, False), (32768, 64, 0.1, False), (32768, 128, 0.1, False),
                             (16384, 64, 0.25, True), (16384, 128, 0.25, True)], label=sparse_label)
def attention_sparse(length, block, density, causal, h=16, d=128):
    """16 heads of 128; for each head and 128 queries a random share of the blocks of keys"""
    q, k, v = (random(1, h, length, d) for _ in range(3))
    o = torch.full_like(q, float("nan"))
    rows, columns = length // QUERIES, length // block
    order = torch.rand(h, rows, columns, device="cuda")
    allowed = torch.full((rows,), columns, device="cuda")
    if causal:   # the blocks at the diagonal always, of those before them a share
        allowed = (torch.arange(rows, device="cuda") + 1) * (QUERIES // block)
        column = torch.arange(columns, device="cuda")
        order += 2.0 * (column < allowed[:, None]) + 2.0 * ((column < allowed[:, None]) & (column >= allowed[:, None] - QUERIES // block))
    counts = (allowed * density).ceil().clamp(min=QUERIES // block if causal else 1).to(torch.int32)
    lists = order.argsort(-1, descending=True)[..., :int(counts.max())].contiguous()
    counts = counts.expand(h, rows).contiguous()
    chosen = torch.zeros(h, rows, columns + 1, dtype=torch.bool, device="cuda")
    chosen.scatter_(2, torch.where(torch.arange(lists.shape[2], device="cuda") < counts[..., None], lists, columns), True)
    at, want, pairs = torch.arange(length, device="cuda"), torch.empty_like(q), 0
    for i in range(h):
        seen = chosen[i, :, :-1].repeat_interleave(QUERIES, 0).repeat_interleave(block, 1)
        if causal:
            seen &= at <= at[:, None]
        pairs += int(seen.sum())
        scores = q[0, i].float() @ k[0, i].float().t() * d ** -0.5
        want[0, i] = scores.masked_fill_(~seen, float("-inf")).softmax(-1) @ v[0, i].float()
        del scores, seen
    lists = lists.to(torch.int32)
    tiles = [(128, block, 8, 3), (128, 64, 4, 3), (128, block, 8, 2)]
    found = [("flex", "torch.nn.attention.flex_attention", flex_sparse, list(dict.fromkeys(tiles)), q, k, v, lists, counts, block, causal)]
    if not causal:
        found.append(("sglang", "sglang.kernels.ops.diffusion.attention.sparse_linear_attn_triton", sglang_sparse,
                      [(128, block, 8, 3), (128, block, 4, 3), (128, block, 8, 2)], q, k, v, lists))
    return Problem(work=4 * pairs * d, out=o, want=want, tolerance=2e-2, peers=public(*found),
                   ours=[Own("attention_sparse", [q, k, v, lists, counts, o, d ** -0.5], D=d, CAUSAL=causal, BLOCK=block)])
