"""Arrays of NumPy on the emulator: types, strides, outputs, against NumPy itself."""
import os
import pathlib
import unittest
import warnings

import numpy as np

import tilec

SOURCE = pathlib.Path(os.environ["TILEC_TEST_SOURCE"])
COPY = """
kernel copied[E: type](x: E[M, N] strides [sm, sn], y: out E[M, N]) {
    grid (i in M) threads 32 { parallel (j in N) y[i, j] = x[i, j]; }
}
kernel doubled[E: type](x: inout E[N]) { grid (i in N) threads 32 { thread (t in 1) { x[i] = x[i] + x[i]; } } }
kernel both(x: f32[M, N], s: f32, sum: out f32[M], most: out i32[1]) {
    grid (i in M) threads 32 {
        thread (t in 1) {
            var total: f32 = 0;
            for (j in N) total += x[i, j] * s;
            sum[i] = total;
            if (i == 0) most[0] = i32(N);
        }
    }
}
kernel row_sums[E: type](x: E[..B, N], y: out E[..B]) {
    grid (b in B) threads 32 {
        thread (t in 1) {
            var total: E = x[b, 0];
            for (j in 1 .. N) total = total + x[b, j];
            y[b] = total;
        }
    }
}
kernel packed[E: type](x: E[M, N], y: out E[m in M, n in N] layout [m / 4, n, m % 4]) {
    assume(M % 4 == 0);
    grid (i in M) threads 32 { thread (t in 1) { for (j in N) y[i, j] = x[i, j]; } }
}
kernel speaks(x: f32[N]) { grid (i in 1) threads 32 { thread (t in 1) { print("x is", x[0]); } } }
kernel scalar[E: type](x: E[N], a: E, y: out E[N]) { grid (i in N) threads 32 { thread (t in 1) { y[i] = x[i] * a; } } }
"""
TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


class Numpy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = tilec.load(source=COPY)
        cls.random = np.random.default_rng(0)

    def test_types_and_strides(self):
        for name in TYPES:
            x = self.random.integers(0, 2 if name == "bool" else 100, (6, 8)).astype(name)
            for view in (x, x[::2, 1::3], x.T, x[:, :1], np.broadcast_to(x[0], (3, 8))):
                got = self.source["copied"](view)
                self.assertEqual(got.dtype, view.dtype)
                np.testing.assert_array_equal(got, view)

    def test_types_that_are_not_there(self):
        with self.assertRaisesRegex(TypeError, "tilec has no type for the elements of 'x'"):
            self.source["copied"](np.zeros((2, 3), dtype="complex64"))
        kernel = tilec.load(source="kernel k[E: type in {f16, f32}](x: E[N], y: out E[N]) { grid (i in N) threads 32 { y[i] = x[i]; } }")["k"]
        np.testing.assert_array_equal(kernel(np.ones(5, "f2")), np.ones(5))
        with self.assertRaisesRegex(tilec.Error, "is not one of f16, f32"):
            kernel(np.ones(5, "f8"))

    def test_leading_dims(self):
        for shape in ((7,), (3, 7), (2, 3, 7), (1, 2, 3, 7)):
            x = self.random.integers(0, 100, shape).astype("i4")
            got = self.source["row_sums"](x)
            self.assertEqual(got.shape, shape[:-1])
            np.testing.assert_array_equal(got, x.sum(-1))
        x = np.arange(40, dtype="i4").reshape(2, 4, 5)
        with self.assertRaises(tilec.Error):
            self.source["row_sums"](x[:, :3])   # its leading dims are not one in memory

    def test_layout_of_a_tensor(self):
        x = self.random.random((8, 5), dtype="f4")
        got = self.source["packed"](x)
        np.testing.assert_array_equal(got, x.reshape(2, 4, 5).transpose(0, 2, 1))

    def test_in_place(self):
        x = np.arange(12, dtype="f4")
        self.assertIsNone(self.source["doubled"](x[:5]))
        np.testing.assert_array_equal(x, np.arange(12) * np.where(np.arange(12) < 5, 2, 1))
        with self.assertRaises(tilec.Error):   # the kernel takes a dense tensor
            self.source["doubled"](x[::2])
        x.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            self.source["doubled"](x)

    def test_outputs_and_scalars(self):
        x = self.random.random((5, 7), dtype="f4")
        for s in (2, np.float32(2), np.int64(2), True + 1):
            total, most = self.source["both"](x, s)
            np.testing.assert_allclose(total, 2 * x.sum(1), rtol=1e-5)
            self.assertEqual(most.tolist(), [7])
        mine = np.empty(5, "f4")
        most = self.source["both"](x, 2, sum=mine)
        np.testing.assert_allclose(mine, 2 * x.sum(1), rtol=1e-5)
        with self.assertRaises(TypeError):
            self.source["both"](x, "2")

    def test_scalar_of_a_compile_time_type(self):
        big, big_a = np.array([1], "i8"), np.int64(2**62 + 1)   # no float on the way
        self.assertEqual(self.source["scalar"](big, big_a).tolist(), [int(big_a)])
        np.testing.assert_array_equal(self.source["scalar"](np.arange(4, dtype="i4"), 3), 3 * np.arange(4))
        np.testing.assert_array_equal(self.source["scalar"](np.arange(4, dtype="f4"), 0.5), np.arange(4) / 2)

    def test_refused(self):
        add = tilec.load(SOURCE / "examples/vector_add.tile")["vector_add"]
        x = np.ones(4, "f4")
        with self.assertRaisesRegex(ValueError, "swapped bytes"):
            add(x.astype(">f4"), x)
        with self.assertRaisesRegex(ValueError, "no multiples"):
            add(np.zeros(4, dtype=[("a", "f4"), ("b", "i2")])["a"], x)
        for wrong in (x.astype("f8"), x.astype("c8"), x[:3], x.reshape(2, 2), np.zeros(4, dtype=[("a", "f4")])):
            with self.assertRaises(tilec.Error):
                add(x, wrong)
        with self.assertRaises(tilec.Error) as caught:   # z overlaps x
            add(x[:3], x[:3], x[1:])
        self.assertEqual(caught.exception.diagnostics[0].code, "T0928")

    def test_positions_and_keywords(self):
        both, x = self.source["both"], self.random.random((5, 7), dtype="f4")
        for args, keywords in (((x, 2), {}), ((x,), {"s": 2}), ((), {"x": x, "s": 2})):
            np.testing.assert_allclose(both(*args, **keywords)[0], 2 * x.sum(1), rtol=1e-5)
        most = np.zeros(1, "i4")
        np.testing.assert_allclose(both(x, s=2, most=most), 2 * x.sum(1), rtol=1e-5)
        self.assertEqual(most.tolist(), [7])
        kept = x.copy()
        for args, keywords in (((x, 2), {"x": x}), ((x, 2, np.empty(5, "f4")), {"sum": np.empty(5, "f4")})):
            with self.assertRaisesRegex(TypeError, "more than one value for '(x|sum)'"):
                both(*args, **keywords)
        with self.assertRaisesRegex(TypeError, "takes 2, or 4 with its outputs, not 1"):
            both(x)
        np.testing.assert_array_equal(x, kept)
        with self.assertRaisesRegex(TypeError, "'x' is a tensor, not <class 'list'>"):
            both([1.0], 2)
        with self.assertRaisesRegex(TypeError, "'s' is a number, not <class 'str'>"):
            both(x, "2")

    def test_scalars_in_range(self):
        text = """kernel f(a: i64, b: u64, stream: i32, x: out i64[2]) {
            grid (i in 1) threads 32 { thread (t in 1) { x[0] = a + i64(stream); x[1] = i64(b >> 1); } } }"""
        f = tilec.load(source=text)["f"]
        x = np.zeros(2, "i8")
        f(2**62, 2**64 - 1, stream=5, x=x)   # a parameter of that name, not the stream of the launch
        self.assertEqual(x.tolist(), [2**62 + 5, 2**63 - 1])
        for a, b in ((2**63, 0), (-2**63 - 1, 0), (0, 2**64), (2**200, 0)):
            with self.assertRaises(OverflowError):
                f(a, b, 0, x)
        with self.assertRaisesRegex(TypeError, "'a' is an integer, not <class 'float'>"):
            f(0.5, 0, 0, x)
        self.assertEqual(x.tolist(), [2**62 + 5, 2**63 - 1])

    def test_bools(self):
        """A bool is none but what is one: a text or a float is a mistake."""
        f = tilec.load(source="kernel f(x: i32[1], c: bool, y: out i32[1]) { grid (i in 1) threads 32 { thread (t in 1) { y[0] = c ? x[0] : 0; } } }")["f"]
        x = np.array([7], "i4")
        for value, want in ((True, 7), (False, 0), (1, 7), (0, 0), (np.bool_(True), 7), (np.bool_(False), 0), (np.int8(1), 7)):
            self.assertEqual(f(x, value).tolist(), [want])
        for wrong in ("x", 1.0, None, [1], np.float32(1)):
            with self.assertRaisesRegex(TypeError, "'c' is a bool, not"):
                f(x, wrong)
        with self.assertRaises(tilec.Error) as caught:
            f(x, 2)
        self.assertEqual(caught.exception.diagnostics[0].code, "T0935")

    def test_compile_time_values(self):
        """Numbers of NumPy are numbers, in calls, in bind and in load."""
        class One(int):
            def __repr__(self):
                return "one"
        text = "const C = 1; kernel f(x: f32[1], y: out f32[1]) { grid (i in 1) threads 32 { thread (t in 1) { y[0] = x[0] * f32(C); } } }"
        f, x = tilec.load(source=text)["f"], np.array([2], "f4")
        for value, want in ((np.float64(1.5), 3), (np.float32(1.5), 3), (np.int64(3), 6), (1.5, 3), (One(1), 2), ("1 + 1", 4), (np.array(3), 6)):
            self.assertEqual(f(x, C=value).tolist(), [want])
            self.assertEqual(f.bind(C=value)(x).tolist(), [want])
            self.assertEqual(tilec.load(source=text, C=value)["f"](x).tolist(), [want])
        for wrong in ([1], None, 1j):
            with self.assertRaisesRegex(TypeError, "'C' is a number, a bool or a text"):
                f(x, C=wrong)
            with self.assertRaisesRegex(TypeError, "'C' is a number, a bool or a text"):
                tilec.load(source=text, C=wrong)

    def test_stream_is_a_number(self):
        add, x = tilec.load(SOURCE / "examples/vector_add.tile")["vector_add"], np.ones(4, "f4")
        np.testing.assert_array_equal(add(x, x, stream=0), x + x)   # the emulator has none
        with self.assertRaises(TypeError):
            add(x, x, stream="s")

    def test_bf16_needs_ml_dtypes(self):
        kernel = tilec.load(source="kernel f(x: f32[N], y: out bf16[N]) { grid (i in N) threads 32 { thread (t in 1) { y[i] = x[i]; } } }")["f"]
        x = np.arange(5, dtype="f4")
        try:
            import ml_dtypes
        except ImportError:
            with self.assertRaisesRegex(TypeError, "ml_dtypes"):
                kernel(x)
        else:
            got = kernel(x)
            self.assertEqual(got.dtype, ml_dtypes.bfloat16)
            np.testing.assert_array_equal(got.astype("f4"), x)

    def test_prints(self):
        import contextlib
        import io
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.source["speaks"](np.array([1.5], "f4"))
        self.assertIn("x is 1.5", out.getvalue())

    def test_examples(self):
        examples = {name: tilec.load(SOURCE / f"examples/{name}.tile")[name] for name in ("vector_add", "sum", "gemm_bias_gelu", "histogram")
                    if (SOURCE / f"examples/{name}.tile").exists()}
        x, y = self.random.random((2, 1000), dtype="f4")
        np.testing.assert_array_equal(examples["vector_add"](x, y), x + y)
        a, b = (self.random.standard_normal((40, 40)).astype("f2") for _ in range(2))
        bias = self.random.standard_normal(40).astype("f4")
        h = a.astype("f4") @ b.astype("f4") + bias
        want = h / 2 * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h ** 3)))
        np.testing.assert_allclose(examples["gemm_bias_gelu"](a, b, bias).astype("f4"), want, atol=5e-2)

    def test_warnings_of_the_compiler(self):
        text = "kernel f(x: out f32[N]) { grid (i in N) threads 32 { thread (t in 1) { x[i] = 1; } } }"
        with warnings.catch_warnings():
            warnings.simplefilter("error", tilec.CompileWarning)
            tilec.load(source=text)["f"](np.empty(3, "f4"))


if __name__ == "__main__":
    unittest.main()
