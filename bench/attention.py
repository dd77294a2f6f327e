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
    for pieces in zip(*(x.split(max(1, CHUNK // s ** 2)) for x in heads)):
        pieces = [x.float() for x in pieces]
        scores = pieces[0] @ pieces[1].transpose(1, 2) * scale
        lse = (scores.masked_fill_(mask, float("-inf")) if causal else scores).logsumexp(-1)
        weights = scores.sub_(lse[:, :, None]).exp_()
        out = weights @ pieces[2]
        if grad is None:
            results.append((out.to(BF16), lse))
            continue
        inner = weights * (pieces[3] @ pieces[2].transpose(1, 2) - (out * pieces[3]).sum(-1, keepdim=True)) * scale
        results.append(((inner @ pieces[1]).to(BF16), (inner.transpose(1, 2) @ pieces[0]).to(BF16),
                        (weights.transpose(1, 2) @ pieces[3]).to(BF16)))
    return tuple(torch.cat(pieces).view(q.shape[:3] + pieces[0].shape[2:]) for pieces in zip(*results))


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
    family = function == "attention_family"
    need = library.attention_family_workspace if family else library.attention_workspace
    need.restype = ctypes.c_longlong
    need = need(ctypes.byref(call), *([] if family else [int(function == "attention_backward")]))
    if need < 0:
        raise RuntimeError("the extra peer does not serve this")
    workspace = torch.empty(max(need, 256), dtype=torch.uint8, device="cuda")
    call.workspace, call.workspace_bytes = workspace.data_ptr(), workspace.numel()

    def launch():
        call.stream = torch.cuda.current_stream().cuda_stream
        status = getattr(library, function + "_forward" * family)(ctypes.byref(call))
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
    """forward in e4m3, compared with our own bf16 kernels"""
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


# ---- groups of heads, windows, soft caps, sinks; sequences one behind the other ----


class FamilyCall(ctypes.Structure):   # AttentionFamilyCall (extra_peer.h)
    _fields_ = ([(name, ctypes.c_void_p) for name in ("q", "k", "v", "o", "lse", "workspace")] +
                [("workspace_bytes", ctypes.c_longlong)] +
                [(name, ctypes.c_int) for name in ("batch", "heads", "kv_heads", "queries", "keys", "head_dim", "causal", "window")] +
                [("scale", ctypes.c_float), ("cap", ctypes.c_float), ("starts", ctypes.c_void_p), ("longest", ctypes.c_int),
                 ("tokens", ctypes.c_int)] +
                [(name, ctypes.c_longlong) for name in ("q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row")] +
                [("stream", ctypes.c_void_p)])


class Family:
    """What all of it is given: heads of d, in groups; sequences of these lengths, [token, head, d] in memory. window 0: all keys."""

    def __init__(self, lengths, heads, groups, d=128, causal=True, window=0, cap=0.0, sinks=False):
        self.lengths, self.heads, self.groups, self.d, self.causal = lengths, heads, groups, d, causal
        self.tokens, self.longest, self.scale = sum(lengths), max(lengths), d ** -0.5
        self.window, self.cap, self.equal = window or self.longest, cap, len(set(lengths)) == 1
        self.q, self.k, self.v = random(self.tokens, heads, d), random(self.tokens, groups, d), random(self.tokens, groups, d)
        self.sink = torch.randn(heads, device="cuda") if sinks else None
        self.starts = torch.tensor([sum(lengths[:b]) for b in range(len(lengths) + 1)], dtype=torch.int32, device="cuda")

    def pairs(self):
        """Of a query and a key that it sees."""
        if not self.causal:
            return sum(n * n for n in self.lengths)
        return sum(n * (n + 1) // 2 - max(n - self.window, 0) * (max(n - self.window, 0) + 1) // 2 for n in self.lengths)

    def work(self):
        return 4 * self.heads * self.d * self.pairs()

    def shown(self, x):
        """As [B, H, S, D], or [H, tokens, D] of unlike lengths: a view."""
        return x.view(len(self.lengths), self.longest, -1, self.d).transpose(1, 2) if self.equal else x.transpose(0, 1)

    def seen(self, query, key):
        near = (key <= query) & (key + self.window > query)
        return near if self.causal else key == key

    def reference(self):
        """In f32, a head of a sequence at a time."""
        out = torch.empty(self.tokens, self.heads, self.d, device="cuda", dtype=BF16)
        begin = 0
        for n in self.lengths:
            at, rows = torch.arange(n, device="cuda"), slice(begin, begin + n)
            hidden = ~self.seen(at[:, None], at[None])
            for h in range(self.heads):
                g = h // (self.heads // self.groups)
                s = self.q[rows, h].float() @ self.k[rows, g].float().t() * self.scale
                if self.cap:
                    s = self.cap * torch.tanh(s / self.cap)
                s.masked_fill_(hidden, float("-inf"))
                lse = s.logsumexp(-1)
                if self.sink is not None:
                    lse = torch.logaddexp(lse, self.sink[h])
                out[rows, h] = (s.sub_(lse[:, None]).exp_() @ self.v[rows, g].float()).to(BF16)
            begin += n
        return self.shown(out)


def family_extra(library, f):
    o = torch.full_like(f.q, float("nan"))
    lse = torch.empty(f.tokens * f.heads, device="cuda")
    b, s = len(f.lengths), f.longest
    strides = {f"{name}_{piece}": x.stride(dim) for name, x in (("q", f.q), ("k", f.k)) for piece, dim in (("row", 0), ("head", 1))}
    strides |= {} if not f.equal else {"q_batch": s * f.q.stride(0), "k_batch": s * f.k.stride(0)}
    call = FamilyCall(q=f.q.data_ptr(), k=f.k.data_ptr(), v=f.v.data_ptr(), o=o.data_ptr(), lse=lse.data_ptr(), batch=b, heads=f.heads,
                      kv_heads=f.groups, queries=s, keys=s, head_dim=f.d, causal=f.causal, window=f.window if f.window < s else 0,
                      scale=f.scale, cap=f.cap, starts=f.starts.data_ptr(), longest=s, tokens=f.tokens, **strides)
    if f.equal and (f.causal or f.cap):
        call.starts = None
    return _run(library, "attention_family", call, [f, o, lse], f.shown(o))


def flex(f):
    """PyTorch's flex_attention, compiled: of sequences of unlike lengths one, with a mask of documents."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    q, k, v = [f.shown(x) if f.equal else f.shown(x)[None] for x in (f.q, f.k, f.v)]
    document = torch.repeat_interleave(torch.arange(len(f.lengths), device="cuda"), torch.tensor(f.lengths, device="cuda"))
    gap = (lambda b, h, i, j: f.seen(i, j)) if f.equal else (lambda b, h, i, j: (document[i] == document[j]) & f.seen(i, j))
    mask = create_block_mask(gap, None, None, q.shape[2], q.shape[2])

    def capped(s, b, h, i, j):
        return f.cap * torch.tanh(s / f.cap)

    def work(q, k, v):
        pieces = flex_attention(q, k, v, score_mod=capped if f.cap else None, block_mask=mask, enable_gqa=f.heads > f.groups,
                               return_lse=f.sink is not None)
        return pieces if f.sink is None else (pieces[0] * torch.sigmoid(pieces[1] - f.sink[:, None])[..., None]).to(BF16)
    torch._dynamo.reset()
    run = torch.compile(work, dynamic=False)
    return (lambda: run(q, k, v)) if f.equal else lambda: run(q, k, v)[0]


def family_cudnn(f):
    q, k, v = map(f.shown, (f.q, f.k, f.v))

    def launch():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, is_causal=f.causal, enable_gqa=f.heads > f.groups)
    return launch


def family_triton(f, *setting):
    o = torch.full_like(f.q, float("nan"))
    run = peers.family(f.q, f.k, f.v, o, f.starts, f.longest, f.causal, f.window, f.cap, *setting)

    def launch():
        run()
        return f.shown(o)
    return launch


def family_peers(f):
    found = {"flex": Choice(flex, [()], f)}
    if f.equal and f.window >= f.longest and not f.cap and f.sink is None:
        found["cudnn"] = Choice(family_cudnn, [()], f)
    if f.sink is None:
        found["triton"] = Choice(family_triton, TRITON[f.d], f)
        for name, library in EXTRA.items():
            if hasattr(library, "attention_family_forward"):
                found[name] = Choice(family_extra, [()], library, f)
    return found


def family_label(b, s, g, window, cap, sinks):
    pieces = [f"{b}x{s}", f"{g} of 16 heads"] + [f"window {window}"] * (window > 0) + ["soft cap"] * (cap > 0) + ["sinks"] * sinks
    return ", ".join(pieces)


@bench("family", "TFLOP/s", [(4, 4096, 16, 0, 0.0, False), (4, 4096, 4, 0, 0.0, False), (4, 4096, 4, 0, 20.0, False),
                             (4, 4096, 4, 0, 0.0, True), (1, 16384, 4, 512, 0.0, False), (1, 16384, 4, 1024, 0.0, False),
                             (1, 16384, 4, 4096, 0.0, False), (4, 4096, 4, 1024, 20.0, False)], label=family_label)
def attention_window(b, s, g, window, cap, sinks):
    """causal, 16 heads of 128 with keys and values of g, windows, soft cap, sinks; what counts is pairs that see each other"""
    f = Family([s] * b, 16, g, window=window, cap=cap, sinks=sinks)
    q, k, v = (f.shown(x).contiguous() for x in (f.q, f.k, f.v))
    o = torch.full_like(q, float("nan"))
    sink = f.sink if sinks else torch.zeros(16, device="cuda")
    return Problem(work=f.work(), out=o, want=f.reference(), tolerance=2e-2, peers=family_peers(f), keep=f,
                   ours=[Own("attention_window", [q, k, v, sink, o, f.scale, cap or 1.0, f.window], D=128, SOFT_CAP=cap > 0, SINKS=sinks)])


MIXED = [4096, 300, 2500, 5000, 17, 1200, 3271]


@bench("family", "TFLOP/s", [(lengths, causal) for causal in (True, False) for lengths in ((4096,) * 4, tuple(MIXED), (512,) * 32)],
       label=lambda lengths, causal: f"{'causal' if causal else 'full'}, {len(lengths)} of {min(lengths)} to {max(lengths)}")
def attention_varlen(lengths, causal):
    """sequences one behind the other, 16 heads of 128 with keys and values of 4"""
    f = Family(list(lengths), 16, 4, causal=causal)
    o = torch.full_like(f.q, float("nan"))
    q, k, v, heads_first = (x.transpose(0, 1) for x in (f.q, f.k, f.v, o))
    return Problem(work=f.work(), out=f.shown(o), want=f.reference(), tolerance=2e-2, peers=family_peers(f), keep=f,
                   ours=[Own("attention_varlen", [q, k, v, f.starts, f.starts, heads_first, f.longest, f.scale], D=128, CAUSAL=causal)])


# ---- decoding ----

PAGE = 64


class Sequences:
    """Sequences of s tokens, or `mixed`: of 1 to 2 s, and about as many in all. Their pages lie in random order."""

    def __init__(self, b, s, mixed):
        pieces = torch.rand(b, generator=torch.Generator().manual_seed(b)) if mixed else torch.ones(b)
        self.lengths = (pieces * (s / pieces.mean())).clamp(min=1).to(torch.int32).tolist()
        self.tokens, self.longest = sum(self.lengths), max(self.lengths)
        used = [-(-n // PAGE) for n in self.lengths]
        self.pages = sum(used)
        self.table = torch.zeros(b, max(used), dtype=torch.int32)
        order = torch.randperm(self.pages).to(torch.int32)
        for row, piece in zip(self.table, order.split(used)):
            row[:len(piece)] = piece
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
    work = 2 * sequences.tokens * d
    others = {}
    if not mixed:   # without pages
        keys = torch.stack([c.to(BF16) for c in tokens])
        others["torch"] = lambda: ((q[:, 0] @ keys.transpose(1, 2) * scale).softmax(-1) @ keys[:, :, :e]).view(b, 1, r, e)
    splits = [n for n in (1, 4, 16, 64) if b * ceil(r / 64) * n < 1024 and n * 256 <= s]
    others["triton"] = Choice(peers.latent, [(*LATENT[r], n) for n in splits[-2:]], q, cache, sequences.table, sequences.length, o,
                              scale, PAGE)
    return Problem(work=work, out=o, want=want.view(b, 1, r, e), tolerance=2e-2, peers=others | copies(work),
                   ours=[Own("attention_mla", [q, cache, sequences.table, sequences.length, o, sequences.longest, scale],
                             D=d, E=e, PAGE=PAGE)])
