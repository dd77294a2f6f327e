"""Attention, bf16, [B, H, S, D], 16384 tokens of 2048 features (16 heads of 128): forward and backward."""
import ctypes
import functools
from math import ceil

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import peers
from rows import copies
from table import BF16, FLOAT8, Choice, Own, Problem, bench, poisoned, random

TOKENS, WIDTH = 16384, 2048
CHUNK = 1 << 29   # elements of a matrix of scores of the reference
SHAPES = [(d, causal, s) for d in (128, 64, 256) for causal in (False, True) for s in (1024, 4096, 16384)]
EXTRA = {}   # name -> library, from bench.py's --extra


class Call(ctypes.Structure):   # AttentionCall (extra_peer.h)
    _fields_ = ([(name, ctypes.c_void_p) for name in ("q", "k", "v", "o", "lse", "d_o", "dq", "dk", "dv", "workspace")] +
                [("workspace_bytes", ctypes.c_longlong)] +
                [(name, ctypes.c_int) for name in ("batch", "heads", "length", "head_dim", "causal")] +
                [("scale", ctypes.c_float)] +
                [(name, ctypes.c_longlong) for name in ("stride_batch", "stride_head", "stride_row")] +
                [("stream", ctypes.c_void_p)])


class Inputs:
    def __init__(self, d, causal, s, row_major=False):
        """row_major: [B, S, H, D] in memory (seen as [B, H, S, D])."""
        self.d, self.causal, self.s = d, causal, s
        self.b, self.h = TOKENS // s, WIDTH // d
        self.scale = d ** -0.5
        self.row_major = row_major

    def like(self, tensor):
        """The same values in this layout."""
        return tensor.transpose(1, 2).contiguous().transpose(1, 2) if self.row_major else tensor

    def work(self):
        return 4 * self.b * self.h * self.s ** 2 * self.d / (2 if self.causal else 1)


def label(d, causal, s):
    return f"d{d} {'causal' if causal else 'full'} {s}"


def reference(q, k, v, causal, scale, grad=None):
    """In f32, some heads at a time: the output and the logarithms of the rows' sums, or with `grad` the gradients of q, k and v."""
    s = q.shape[2]
    heads = [x.reshape(-1, s, x.shape[3]) for x in (q, k, v) + ((grad,) if grad is not None else ())]
    mask = torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1) if causal else None
    results = []
    for parts in zip(*(x.split(max(1, CHUNK // s ** 2)) for x in heads)):
        parts = [x.float() for x in parts]
        scores = parts[0] @ parts[1].transpose(1, 2) * scale
        lse = (scores.masked_fill_(mask, float("-inf")) if causal else scores).logsumexp(-1)
        weights = scores.sub_(lse[:, :, None]).exp_()
        out = weights @ parts[2]
        if grad is None:
            results.append((out.to(BF16), lse))
            continue
        inner = weights * (parts[3] @ parts[2].transpose(1, 2) - (out * parts[3]).sum(-1, keepdim=True)) * scale
        results.append(((inner @ parts[1]).to(BF16), (inner.transpose(1, 2) @ parts[0]).to(BF16),
                        (weights.transpose(1, 2) @ parts[3]).to(BF16)))
    return tuple(torch.cat(parts).view(q.shape[:3] + parts[0].shape[2:]) for parts in zip(*results))


# ---- peers ----

LAYOUTS = [("bhsd",), ("bshd",)]   # a peer may prefer the heads of a token side by side


def sdpa(inputs, q, k, v, layout):
    inputs = Inputs(inputs.d, inputs.causal, inputs.s, layout == "bshd")
    q, k, v = map(inputs.like, (q, k, v))

    def launch():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=inputs.causal)
    return launch


def sdpa_backward(inputs, q, k, v, grad, layout):
    inputs = Inputs(inputs.d, inputs.causal, inputs.s, layout == "bshd")
    q, k, v, grad = [inputs.like(x).detach() for x in (q, k, v, grad)]
    for x in (q, k, v):
        x.requires_grad_()
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=inputs.causal)
    return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)


def _call_of(inputs, q, k, v, o, grads=()):
    """The structure of an extra peer's call, and what it points to."""
    lse = torch.empty(inputs.b, inputs.h, inputs.s, device="cuda")
    call = Call(q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), o=o.data_ptr(), lse=lse.data_ptr(), batch=inputs.b,
                heads=inputs.h, length=inputs.s, head_dim=inputs.d, causal=inputs.causal, scale=inputs.scale,
                stride_batch=q.stride(0), stride_head=q.stride(1), stride_row=q.stride(2))
    for name, tensor in zip(("d_o", "dq", "dk", "dv"), grads):
        setattr(call, name, tensor.data_ptr())
    return call, [q, k, v, o, lse, *grads]


def _run(library, function, call, keep, result):
    library.attention_workspace.restype = ctypes.c_longlong
    need = library.attention_workspace(ctypes.byref(call), int(function == "attention_backward"))
    if need < 0:
        raise RuntimeError("the extra peer does not serve this")
    workspace = torch.empty(max(need, 256), dtype=torch.uint8, device="cuda")
    call.workspace, call.workspace_bytes = workspace.data_ptr(), workspace.numel()

    def launch():
        call.stream = torch.cuda.current_stream().cuda_stream
        status = getattr(library, function)(ctypes.byref(call))
        if status != 0:
            raise RuntimeError(f"{function}: status {status}")
        return result
    launch.keep = keep, workspace
    return launch


def extra(library, inputs, q, k, v, layout):
    inputs = Inputs(inputs.d, inputs.causal, inputs.s, layout == "bshd")
    q, k, v = map(inputs.like, (q, k, v))
    o = torch.full_like(q, float("nan"))
    return _run(library, "attention_forward", *_call_of(inputs, q, k, v, o), o)


def extra_backward(library, inputs, q, k, v, grad, layout):
    inputs = Inputs(inputs.d, inputs.causal, inputs.s, layout == "bshd")
    q, k, v, grad = map(inputs.like, (q, k, v, grad))
    o, results = torch.empty_like(q), [torch.full_like(q, float("nan")) for _ in range(3)]
    call, keep = _call_of(inputs, q, k, v, o, [grad, *results])
    _run(library, "attention_forward", call, keep, o)()
    return _run(library, "attention_backward", call, keep, tuple(results))


# ---- rows ----

TRITON = {64: [(128, 64, 4, 3), (128, 128, 8, 3)], 128: [(128, 64, 8, 3), (128, 128, 8, 2)], 256: [(128, 64, 8, 2)]}


def _operands(inputs, count):
    return [random(inputs.b, inputs.h, inputs.s, inputs.d) for _ in range(count)]


@bench("attention", "TFLOP/s", SHAPES, label=label)
def attention(d, causal, s):
    """forward"""
    inputs = Inputs(d, causal, s)
    q, k, v = _operands(inputs, 3)
    o = torch.full_like(q, float("nan"))
    others = {name: Choice(functools.partial(extra, library), LAYOUTS, inputs, q, k, v) for name, library in EXTRA.items()}
    fixed = {"D": d, "CAUSAL": causal}
    return Problem(work=inputs.work(), out=o, want=reference(q, k, v, causal, inputs.scale)[0],
                   ours=[Own(kernel, [q, k, v, o, inputs.scale], **fixed) for kernel in ("attention", "attention_lazy", "attention_roles")],
                   peers={"cudnn": Choice(sdpa, LAYOUTS, inputs, q, k, v),
                          "triton": Choice(peers.attention, TRITON[d], q, k, v, o, causal)} | others)


@bench("backward", "TFLOP/s", SHAPES, label=label)
def attention_backward(d, causal, s):
    """backward: dQ, dK and dV, with what the forward pass keeps"""
    inputs = Inputs(d, causal, s)
    q, k, v, grad = _operands(inputs, 4)
    others = {name: Choice(functools.partial(extra_backward, library), LAYOUTS, inputs, q, k, v, grad)
              for name, library in EXTRA.items()}
    o, lse = reference(q, k, v, causal, inputs.scale)
    out = tuple(torch.full_like(q, float("nan")) for _ in range(3))
    return Problem(work=2.5 * inputs.work(), out=out, want=reference(q, k, v, causal, inputs.scale, grad),
                   ours=[Own("attention_backward", [q, k, v, o, lse, grad, *out, inputs.scale], D=d, CAUSAL=causal)],
                   peers={"cudnn": Choice(sdpa_backward, LAYOUTS, inputs, q, k, v, grad)} | others, tolerance=2e-2)


@bench("attention_fp8", "TFLOP/s", SHAPES, ("tilec bf16",), label)
def attention_fp8(d, causal, s):
    """forward, e4m3, beside our own in bf16"""
    inputs = Inputs(d, causal, s)
    q, k, v = [x.to(FLOAT8) for x in _operands(inputs, 3)]
    one = torch.ones(inputs.b, inputs.h, device="cuda")
    wide = [x.to(BF16) for x in (q, k, v)]
    o = torch.full_like(wide[0], float("nan"))
    return Problem(work=inputs.work(), out=o, want=reference(*wide, causal, inputs.scale)[0], tolerance=6e-2,
                   ours=[Own(kernel, [q, k, v, one, one, one, o, inputs.scale], D=d, CAUSAL=causal)
                         for kernel in ("attention_fp8", "attention_fp8_roles")],
                   peers={"tilec bf16": Own("attention", [*wide, o, inputs.scale], D=d, CAUSAL=causal),
                          "cudnn bf16": Choice(sdpa, LAYOUTS, inputs, *wide)})


# ---- decoding ----

PAGE = 64


class Sequences:
    """Sequences of s tokens, or `mixed`: of 1 to 2 s, and about as many in all. Their pages lie in random order."""

    def __init__(self, b, s, mixed):
        parts = torch.rand(b, generator=torch.Generator().manual_seed(b)) if mixed else torch.ones(b)
        self.lengths = (parts * (s / parts.mean())).clamp(min=1).to(torch.int32).tolist()
        self.tokens, self.longest = sum(self.lengths), max(self.lengths)
        used = [-(-n // PAGE) for n in self.lengths]
        self.pages = sum(used)
        self.table = torch.zeros(b, max(used), dtype=torch.int32)
        order = torch.randperm(self.pages).to(torch.int32)
        for row, part in zip(self.table, order.split(used)):
            row[:len(part)] = part
        self.table, self.length = self.table.cuda(), torch.tensor(self.lengths, dtype=torch.int32).cuda()

    def of(self, cache, i):
        """Of sequence i, [tokens, ...]."""
        return cache[self.table[i].long()].flatten(0, 1)[:self.lengths[i]]


LATENT = {16: (16, 64, 4, 2), 64: (64, 64, 8, 1), 128: (64, 64, 8, 1)}


def mixture(mixed):
    return ", mixed lengths" if mixed else ""


@bench("decode", "GB/s", [(64, 8, 4, 128, 4096, False), (64, 8, 4, 128, 4096, True), (128, 8, 4, 128, 1024, True),
                          (1, 8, 8, 128, 131072, False)],
       label=lambda b, g, r, d, s, mixed: f"{b}x{s}{mixture(mixed)}, {g}x{r} heads of {d}")
def attention_paged(b, g, r, d, s, mixed):
    """one query a sequence, R heads share keys and values, pages of 64"""
    scale, sequences = d ** -0.5, Sequences(b, s, mixed)
    keys, values, q = random(sequences.pages, PAGE, g, d), random(sequences.pages, PAGE, g, d), random(b, g, r, d)
    o = torch.full_like(q, float("nan"))
    want = []
    for i in range(b):
        k, v = sequences.of(keys, i).float(), sequences.of(values, i).float()
        want.append(torch.einsum("grs,sgd->grd", torch.einsum("grd,sgd->grs", q[i].float() * scale, k).softmax(-1), v))
    work = 4 * sequences.tokens * g * d
    others = {}
    if not mixed:   # without pages
        k, v = (torch.stack([sequences.of(x, i) for i in range(b)]).transpose(1, 2) for x in (keys, values))
        others["torch"] = lambda: F.scaled_dot_product_attention(q.reshape(b, g * r, 1, d), k, v, enable_gqa=True).view(b, g, r, d)
    return Problem(work=work, out=o, want=torch.stack(want), tolerance=2e-2, peers=others | copies(work),
                   ours=[Own("attention_paged", [q, keys, values, sequences.table, sequences.length, o, sequences.longest, scale],
                             D=d, PAGE=PAGE)])


@bench("decode", "GB/s", [(64, 16, 8192, False), (128, 16, 4096, True), (16, 16, 8192, False), (1, 16, 131072, False),
                          (64, 64, 8192, False), (128, 64, 4096, True), (64, 128, 8192, False), (128, 128, 4096, True)],
       label=lambda b, r, s, mixed: f"{b}x{s}{mixture(mixed)}, {r} heads")
def attention_mla(b, r, s, mixed, d=576, e=512):
    """latent attention: 576 numbers a token are the keys of all heads, the first 512 the values"""
    scale, sequences = 192 ** -0.5, Sequences(b, s, mixed)
    cache, q = random(sequences.pages, PAGE, 1, d), random(b, 1, r, d)
    o = torch.full((b, 1, r, e), float("nan"), device="cuda", dtype=BF16)
    tokens = [sequences.of(cache, i)[:, 0].float() for i in range(b)]
    want = torch.stack([(q[i, 0].float() @ c.t() * scale).softmax(-1) @ c[:, :e] for i, c in enumerate(tokens)])
    tickets = torch.zeros(1, ceil(r / 64), b, 8, device="cuda", dtype=torch.int32)   # which each launch leaves as they are
    work = 2 * sequences.tokens * d
    others = {}
    if not mixed:   # without pages
        keys = torch.stack([c.to(BF16) for c in tokens])
        others["torch"] = lambda: ((q[:, 0] @ keys.transpose(1, 2) * scale).softmax(-1) @ keys[:, :, :e]).view(b, 1, r, e)
    splits = [n for n in (1, 4, 16, 64) if b * ceil(r / 64) * n < 1024 and n * 256 <= s]
    others["triton"] = Choice(peers.latent, [(*LATENT[r], n) for n in splits[-2:]], q, cache, sequences.table, sequences.length, o,
                              scale, PAGE)
    return Problem(work=work, out=o, want=want.view(b, 1, r, e), tolerance=2e-2, peers=others | copies(work),
                   ours=[Own("attention_mla", [q, cache, sequences.table, sequences.length, o, tickets, sequences.longest, scale],
                             D=d, E=e, PAGE=PAGE)])
