"""Operators of PyTorch: ten examples against PyTorch, by opcheck, and compiled as one graph with dynamic shapes.

On the CPU, or with TILEC_TEST_DEVICE=cuda on a device, where streams and graphs are tested too.
"""
import copy
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.nn.functional as F
from torch import library

import tilec.torch

EXAMPLES = pathlib.Path(os.environ["TILEC_TEST_SOURCE"]) / "examples"
DEVICE = os.environ.get("TILEC_TEST_DEVICE", "cpu")
torch.set_default_device(DEVICE)
BF16, F16, F32, I32, I64 = torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64


def example(name, **options):
    return tilec.torch.load(EXAMPLES / f"{name}.tile", **options)


def randn(*shape, dtype=BF16):
    return torch.randn(shape).to(dtype)


def rotary_reference(x, cosine, sine, position):
    half = x.shape[2] // 2
    a, b = x.float()[..., :half], x.float()[..., half:]
    c, s = cosine[position.long()][:, None], sine[position.long()][:, None]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def attention_reference(q, k, v, scale):
    scores = q.float() @ k.float().transpose(-1, -2) * scale
    return scores.softmax(-1) @ v.float(), scores.logsumexp(-1)


def gemm_bias_gelu_reference(a, b, bias):
    return F.gelu(a.float() @ b.float() + bias, approximate="tanh")


def quantize_reference(x, residual, w, eps):
    h = residual.float() + x.float()
    y = F.rms_norm(h.to(BF16).float(), h.shape[-1:], w.float(), eps)
    scale = y.abs().amax(-1) / 127
    return torch.round(y / scale[:, None]), scale


class Examples(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()

    def check(self, op, reference, args, tolerance=2e-2, keywords={}, other_args=None):
        """Against the reference; opcheck; compiled, for the second shapes without another compile."""
        self.same(op(*args, **keywords), reference(*args), tolerance)
        library.opcheck(op.overload, args, keywords)
        compiled = torch.compile(lambda *a: op(*a, **keywords), fullgraph=True, dynamic=True, backend="aot_eager")
        self.same(compiled(*args), reference(*args), tolerance)
        if other_args:
            with torch.compiler.set_stance("fail_on_recompile"):
                self.same(compiled(*other_args), reference(*other_args), tolerance)

    def same(self, got, want, tolerance):
        got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
        self.assertEqual(len(got), len(want))
        for g, w in zip(got, want):
            self.assertEqual(g.shape, w.shape)
            torch.testing.assert_close(g.float(), w.float(), rtol=tolerance, atol=tolerance)

    def test_vector_add(self):
        self.check(example("vector_add").vector_add, torch.add, (randn(100, dtype=F32), randn(100, dtype=F32)), 0,
                   other_args=(randn(37, dtype=F32), randn(37, dtype=F32)))

    def test_rmsnorm(self):
        op = example("rmsnorm", only=["rmsnorm"]).rmsnorm
        reference = lambda x, w, eps: F.rms_norm(x.float(), w.shape, w.float(), eps)
        self.check(op, reference, (randn(5, 64), randn(64), 1e-6), other_args=(randn(3, 40), randn(40), 1e-6))

    def test_softmax(self):
        self.check(example("softmax", only=["softmax"]).softmax, lambda x: x.float().softmax(-1), (randn(4, 61),), other_args=(randn(2, 30),))

    def test_layer_norm(self):
        op = example("layer_norm", only=["layer_norm"]).layer_norm
        reference = lambda x, w, bias, eps: F.layer_norm(x.float(), w.shape, w.float(), bias.float(), eps)
        self.check(op, reference, (randn(3, 48), randn(48), randn(48), 1e-5))

    def test_gemm_bias_gelu(self):
        args = lambda m, n, k: (randn(m, k, dtype=F16), randn(k, n, dtype=F16), randn(n, dtype=F32))
        self.check(example("gemm_bias_gelu").gemm_bias_gelu, gemm_bias_gelu_reference, args(20, 24, 16), other_args=args(9, 17, 25))

    def test_gemm_swiglu(self):
        reference = lambda a, g, u: F.silu(a.float() @ g.float().T) * (a.float() @ u.float().T)
        self.check(example("gemm_swiglu").gemm_swiglu, reference, (randn(10, 24), randn(20, 24), randn(20, 24)), 5e-2)

    def test_rotary(self):
        args = lambda t, h, d, p: (randn(t, h, d), randn(p, d // 2, dtype=F32), randn(p, d // 2, dtype=F32), torch.randint(0, p, (t,), dtype=I32))
        self.check(example("rotary").rotary, rotary_reference, args(3, 4, 20, 9), other_args=args(5, 2, 34, 11))

    def test_views_of_one_product(self):
        """Queries, keys and values as columns of one tensor: taken as they are; what does not fit is copied."""
        tokens, heads, groups, d = 5, 4, 2, 16
        qkv = randn(tokens, (heads + 2 * groups) * d)
        q, k, v = (columns.view(tokens, -1, d) for columns in qkv.split([heads * d, groups * d, groups * d], -1))
        angles = randn(9, d // 2, dtype=F32), randn(9, d // 2, dtype=F32), torch.randint(0, 9, (tokens,), dtype=I32)
        rotary, append = example("rotary").rotary, example("paged_append").paged_append
        slot, cache = torch.arange(tokens, dtype=I32) + 2, torch.zeros(2, 3, 8, groups, d, dtype=BF16)
        copies, contiguous = [], torch.Tensor.contiguous
        torch.Tensor.contiguous = lambda x, *rest, **more: copies.append(x) or contiguous(x, *rest, **more)
        try:
            rotated = rotary(q, *angles)   # dense rows alone: a copy
            self.assertEqual(len(copies), 1)
            append(k, v, slot, cache[0], cache[1])
            self.assertEqual(len(copies), 1)
            self.same(rotary(q.transpose(0, 1).contiguous().transpose(0, 1), *angles), rotated, 0)
            self.same(rotary(q.flip(2).transpose(1, 2).contiguous().transpose(1, 2).flip(2), *angles), rotated, 0)
            self.assertGreater(len(copies), 2)
        finally:
            torch.Tensor.contiguous = contiguous
        self.same(rotated, rotary_reference(q, *angles), 2e-2)
        self.same(cache[0].view(-1, groups, d)[2:2 + tokens], k, 0)
        self.same(cache[1].view(-1, groups, d)[2:2 + tokens], v, 0)

    def test_cross_entropy(self):
        reference = lambda x, target: F.cross_entropy(x.float(), target, reduction="none")
        self.check(example("cross_entropy").cross_entropy, reference, (randn(6, 50), torch.randint(0, 50, (6,), dtype=I64)))

    def test_top_k(self):
        x = torch.randperm(200).reshape(4, 50).to(BF16)
        reference = lambda x: tuple(torch.topk(x, 5, -1))
        self.check(example("top_k").top_k, reference, (x,), 0, {"K": 5})

    def test_embedding_and_its_gradient(self):
        op = example("embedding", gradients={"embedding": "embedding_gradient"}).embedding
        index, table = torch.randint(0, 5, (9,), dtype=I32), randn(5, 16).requires_grad_()
        self.check(op, lambda i, t: t[i.long()], (index, table))
        want, = torch.autograd.grad((table.float()[index.long()] ** 2).sum(), table)
        got, = torch.autograd.grad((op(index, table).float() ** 2).sum(), table)
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)

    def test_attention_and_its_gradient(self):
        op = example("attention_backward", gradients={"attention_forward": "attention_backward"},
                     only=["attention_forward", "attention_backward"]).attention_forward
        q, k, v = (randn(1, 1, s, 64).requires_grad_() for s in (10, 20, 20))
        self.same(op(q, k, v, 0.125)[0], attention_reference(q, k, v, 0.125)[0], 3e-2)
        library.opcheck(op.overload, (q, k, v, 0.125), test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))
        weight = torch.randn(1, 1, 10, 64)
        loss = lambda out: (out.float() * weight).sum()
        want = torch.autograd.grad(loss(attention_reference(q, k, v, 0.125)[0]), (q, k, v))
        for run in (op, torch.compile(op, fullgraph=True, backend="aot_eager")):
            self.same(torch.autograd.grad(loss(run(q, k, v, 0.125)[0]), (q, k, v)), want, 5e-2)
        self.assertFalse(op(q, k, v, 0.125)[1].requires_grad)

    def test_in_place(self):
        op = example("add_rmsnorm_quantize").add_rmsnorm_quantize
        x, residual, w = randn(3, 40), randn(3, 40), randn(40)
        want, want_scale = quantize_reference(x, residual, w, 1e-6)
        changed = residual.clone()
        y, scale = op(x, changed, w, 1e-6, LIMIT=127, Q="i8")
        self.assertEqual(y.dtype, torch.int8)
        torch.testing.assert_close(changed.float(), (x.float() + residual.float()), rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(y.float() * scale.reshape(3, -1), want * want_scale[:, None], rtol=5e-2, atol=5e-2)
        library.opcheck(op.overload, (x, residual.clone(), w, 1e-6), {"LIMIT": 127, "Q": "i8"})


class Operators(unittest.TestCase):
    def test_schema(self):
        op = example("gemm_bias_gelu").gemm_bias_gelu
        self.assertEqual(op.schema, "(Tensor A, Tensor B, Tensor bias) -> Tensor")
        self.assertEqual(example("top_k").top_k.schema, "(Tensor x, *, SymInt K) -> (Tensor, Tensor)")
        self.assertIs(example("gemm_bias_gelu").gemm_bias_gelu, op)   # the same source again
        with self.assertRaisesRegex(ValueError, "another source"):
            tilec.torch.load(source="kernel top_k(x: f32[N], y: out f32[N]) { grid (i in N) threads 32 { y[i] = x[i]; } }")
        other = tilec.torch.load(source="kernel top_k(x: f32[N], y: out f32[N]) { grid (i in N) threads 32 { y[i] = x[i]; } }",
                                 namespace="tilec_test_other")
        x = torch.randn(5)
        torch.testing.assert_close(other.top_k(x), x)

    def test_strides(self):
        op = example("vector_add").vector_add
        x = torch.randn(20)[::2]
        torch.testing.assert_close(op(x, x), x + x)

    def test_errors(self):
        op = example("vector_add").vector_add
        with self.assertRaises(tilec.Error) as caught:
            op(torch.randn(4), torch.randn(4, dtype=torch.float64))
        self.assertEqual(caught.exception.diagnostics[0].code, "T0929")
        with self.assertRaisesRegex(RuntimeError, "dim 0 of 'y' is N"):
            torch.compile(lambda x, y: op(x, y), fullgraph=True, backend="eager")(torch.randn(4), torch.randn(5))
        with self.assertRaisesRegex(NotImplementedError, "vector_add_backward"):
            op(torch.randn(4, requires_grad=True), torch.randn(4)).sum().backward()

    def test_gradient_of_the_same_file(self):
        text = """
        kernel square[E: type](x: E[N], s: f32, y: out E[N]) { grid (i in N) threads 32 { thread (t in 1) { y[i] = x[i] * x[i] * s; } } }
        kernel square_backward[E: type](x: E[N], s: f32, dy: E[N], dx: out E[N]) {
            grid (i in N) threads 32 { thread (t in 1) { dx[i] = 2 * x[i] * s * dy[i]; } }
        }"""
        op = tilec.torch.load(source=text, namespace="tilec_test_square").square
        x = torch.randn(9, dtype=F32, requires_grad=True)
        library.opcheck(op.overload, (x, 1.5))
        for run in (op, torch.compile(op, fullgraph=True, dynamic=True, backend="aot_eager")):
            got, = torch.autograd.grad(run(x, 1.5).sin().sum(), x)
            want, = torch.autograd.grad((x * x * 1.5).sin().sum(), x)
            torch.testing.assert_close(got, want)

    def test_print_and_assert(self):
        """What a kernel prints, and what it asserts, with its place: of the emulator by tilec, of a device by its driver."""
        script = f"""
import tilec, torch
kernel = tilec.load(source='kernel speaks(x: i32[N]) {{ grid (i in 1) threads 32 {{ thread (t in 1) {{ '
                    'print("x is", x[0]); assert(x[0] == 3, "x has to be 3"); }} }} }}', name="speaks.tile")["speaks"]
for value in (3, 5):
    try:
        kernel(torch.full((4,), value, dtype=torch.int32, device="{DEVICE}"))
        if "{DEVICE}" == "cuda":
            torch.cuda.synchronize()
    except (tilec.Error, RuntimeError) as error:
        print("raised:", value, error, flush=True)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
        self.assertIn("x is 3", done.stdout)
        self.assertIn("x is 5", done.stdout)
        self.assertIn("raised: 5", done.stdout)
        self.assertNotIn("raised: 3", done.stdout)
        self.assertIn("x has to be 3", done.stdout + done.stderr)
        self.assertIn("speaks.tile:1", done.stdout + done.stderr)

    def test_models_are_copied_and_pickled(self):
        """With the operators that they hold: in a process that has not registered them, too."""
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.add, self.k = example("vector_add").vector_add, top_k.top_k

            def forward(self, x):
                return self.k(self.add(x, x).to(BF16)[None], K=3)

        top_k, x = example("top_k"), torch.arange(9.0)
        model = Model()
        self.assertIs(copy.deepcopy(model).add, model.add)
        self.assertIs(pickle.loads(pickle.dumps(model.k)), model.k)
        done = subprocess.run([sys.executable, "-c", "import pickle, sys, torch; op = pickle.load(sys.stdin.buffer); "
                               f"torch.set_default_device('{DEVICE}'); print(op.name, op(torch.ones(2), torch.ones(2)).tolist())"],
                              input=pickle.dumps(model.add), stdout=subprocess.PIPE, timeout=600)
        self.assertEqual(done.stdout, b"vector_add [2.0, 2.0]\n")
        for got, want in zip(copy.deepcopy(model)(x), model(x)):
            torch.testing.assert_close(got, want)

    def test_an_import_is_that_of_the_folder(self):
        text = 'import "c.tile"; kernel imported(x: f32[N], y: out f32[N]) { grid (i in N) threads 32 { thread (t in 1) { y[i] = x[i] * C; } } }'
        with tempfile.TemporaryDirectory() as folder:
            for number in (2, 3):
                here = pathlib.Path(folder, str(number))
                here.mkdir()
                (here / "f.tile").write_text(text)
                (here / "c.tile").write_text(f"const C = {number}.0;")
                op = tilec.torch.load(here / "f.tile", namespace=f"folder_{number}").imported
                self.assertEqual(op(torch.ones(1)).tolist(), [number])
            with self.assertRaisesRegex(ValueError, "another source"):
                tilec.torch.load(here / "f.tile", namespace="folder_2")

    def test_names_have_to_be_there(self):
        for given in ({"only": ["nothing"]}, {"gradients": {"nothing": "vector_add"}}, {"gradients": {"vector_add": "nothing"}}):
            with self.assertRaisesRegex(ValueError, "no kernel 'nothing'; it has vector_add"):
                example("vector_add", **given)

    def test_u64(self):
        text = "kernel of_u64(x: i64[N], s: u64, y: out i64[N]) { grid (i in N) threads 32 { thread (t in 1) { y[i] = x[i] + i64(s); } } }"
        self.assertEqual(tilec.torch.load(source=text).of_u64(torch.arange(2), 7).tolist(), [7, 8])

    def test_autograd_hears_of_changes(self):
        """Old values that a gradient needs are an error, not a wrong gradient."""
        text = """kernel grown(x: f32[N], sum: inout f32[N], y: out f32[N]) {
            grid (i in N) threads 32 { thread (t in 1) { sum[i] = sum[i] + x[i]; y[i] = x[i]; } } }"""
        grown = tilec.torch.load(source=text).grown
        w, x = torch.ones(3, requires_grad=True), torch.ones(3)
        z = w * 1
        square = (z * z).sum()
        with self.assertRaisesRegex(NotImplementedError, "changes 'sum', which requires a gradient"):
            grown(x, z)
        grown(x, z.detach())
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            square.backward()
        with self.assertRaisesRegex(NotImplementedError, "grown has no gradient"):
            grown(w, x).sum().backward()
        with torch.no_grad():
            grown(x, z)
            self.assertFalse(grown(w, x).requires_grad)
        library.opcheck(grown.overload, (x, x.clone()))
        compiled = torch.compile(lambda x, sum: grown(x, sum) + sum, fullgraph=True, backend="aot_eager")
        self.assertEqual(compiled(torch.ones(3), torch.ones(3)).tolist(), [3, 3, 3])

    def test_negative_bit(self):
        """Memory that is to be read with the other sign is refused by kernels, and resolved by operators."""
        add, negated = tilec.load(EXAMPLES / "vector_add.tile")["vector_add"], torch._neg_view(torch.ones(3))
        with self.assertRaisesRegex(ValueError, "'x' has the negative bit"):
            add(negated, torch.ones(3))
        self.assertEqual(example("vector_add").vector_add(negated, torch.ones(3)).tolist(), [0, 0, 0])

    def test_plain_kernels_take_tensors_of_torch(self):
        add = tilec.load(EXAMPLES / "vector_add.tile")["vector_add"]
        x, y = torch.randn(2, 30)
        torch.testing.assert_close(add(x, y), x + y)
        out = torch.empty(30)
        self.assertIsNone(add(x, y, out))
        torch.testing.assert_close(out, x + y)
        torch.testing.assert_close(add(x, y.requires_grad_()), x + y)


@unittest.skipUnless(DEVICE == "cuda", "needs a device: TILEC_TEST_DEVICE=cuda")
class OnDevice(unittest.TestCase):
    def test_graph(self):
        """Replays see new inputs; scratch is of the graph."""
        op = example("rmsnorm", only=["rmsnorm"]).rmsnorm
        x, w = randn(64, 4096), randn(4096)
        op(x, w, 1e-6)   # loads the code
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = op(x, w, 1e-6)
        for _ in range(3):
            x.copy_(randn(64, 4096))
            graph.replay()
            torch.testing.assert_close(y.float(), F.rms_norm(x.float(), w.shape, w.float(), 1e-6), rtol=2e-2, atol=2e-2)

    def test_stream(self):
        """The kernel is behind what its stream does, not behind another one."""
        op, stream = example("vector_add").vector_add, torch.cuda.Stream()
        x, y = randn(1 << 20, dtype=F32), randn(1 << 20, dtype=F32)
        op(x, y)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
            z = op(x, y)
            self.assertFalse(stream.query())
        stream.synchronize()
        torch.testing.assert_close(z, x + y)

    def test_wrong_type(self):
        add = tilec.load(EXAMPLES / "vector_add.tile")["vector_add"]
        x = randn(64, dtype=F32)
        add(x, x)
        for wrong, code in ((x.double(), "T0929"), (x.cpu(), "T0931"), (x[:63], "T0906")):
            with self.assertRaises(tilec.Error) as caught:
                add(x, wrong, torch.empty_like(x))
            self.assertEqual(caught.exception.diagnostics[0].code, code)


if __name__ == "__main__":
    unittest.main()
