"""The package without any framework: sources, errors, tensors by __dlpack__, launches on a driver that only takes notes."""
import copy
import ctypes
import inspect
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import tilec
from fake_tensor import CPU, Tensor

SOURCE = pathlib.Path(os.environ["TILEC_TEST_SOURCE"])
SCALE = """
const HALF = 32;
kernel scale[D, NEGATE, E: type](x: E[M, D], y: out E[M, D]) {
    grid (m in M) threads 64 {
        fragment v: f32[D];
        copy(x[m, 0], v);
        if (NEGATE == 1) parallel (j in D) v[j] = -v[j];
        copy(v, y[m, 0]);
    }
}
kernel shapes(x: f32[M, N], s: f32, n: i64, y: out f32[ceildiv(N, 4), 2 * HALF], z: out f32[(M + n) % 7, N / 2]) {
    grid (m in 1) threads 32 { thread (t in 1) { y[0, 0] = x[0, 0] * s; z[0, 0] = f32(n); } }
}
"""
TWICE = """
kernel twice(x: f32[N], y: out f32[N]) when (N % 4 == 0 && aligned(x, 16)) {
    grid (b in N / 4) threads 32 { parallel (i in 4) y[b * 4 + i] = 2 * x[b * 4 + i]; }
}
kernel twice(x: f32[N], y: out f32[N]) {
    grid (b in N) threads 32 { // here
        thread (t in 1) { y[b] = 2 * x[b]; } }
}
"""


def floats(*values):
    data = (ctypes.c_float * len(values))(*values)
    return data, Tensor((len(values),), "f32", CPU, 0, ctypes.addressof(data))


class Load(unittest.TestCase):
    def test_file(self):
        source = tilec.load(SOURCE / "examples/gemm.tile")
        self.assertEqual(list(source), ["gemm"])
        self.assertEqual([p.name for p in source["gemm"].params], ["A", "B", "C"])
        with self.assertRaises(KeyError):
            source["hmm"]
        with self.assertRaises(FileNotFoundError):
            tilec.load("/nowhere/x.tile")

    def test_every_example_declares_its_kernels(self):
        for path in sorted((SOURCE / "examples").glob("*.tile")):
            for kernel in tilec.load(path).values():
                for p in kernel.params:
                    self.assertTrue(p.mode is None or p.mode in ("in", "out", "inout"), (path, p.name))
                    self.assertNotIn("?", "".join(p.shape or ()), (path, p.name))

    def test_errors_have_code_place_and_text(self):
        with self.assertRaises(tilec.Error) as caught:
            tilec.load(source="kernel f(x: f32[N]) {\n  }}", name="a.tile")
        first = caught.exception.diagnostics[0]
        self.assertEqual((first.code, first.severity, first.file, first.line, first.column), ("T0101", "error", "a.tile", 2, 4))
        self.assertIn("a.tile:2:4: error[T0101]", str(caught.exception))
        self.assertEqual(caught.exception.status, 1)

    def test_values_have_to_be_known(self):
        with self.assertRaisesRegex(TypeError, "no compile-time name, tunable or const 'BN'"):
            tilec.load(source=SCALE, BN=3)
        with self.assertRaises(TypeError):
            tilec.load()

    def test_version(self):
        self.assertRegex(tilec.__version__, r"^\d+\.\d+\.\d+$")

    def test_import_is_fast_and_loads_nothing_large(self):
        code = ("import sys, time; t = time.process_time(); import tilec; t = time.process_time() - t;"
                "print(t, *(m for m in ('torch', 'numpy', 'subprocess') if m in sys.modules))")
        runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() for _ in range(5)]
        self.assertEqual({tuple(run[1:]) for run in runs}, {()})
        self.assertLess(min(float(run[0]) for run in runs), 0.1)


class Arguments(unittest.TestCase):
    def test_emulator_reads_dlpack(self):
        add = tilec.load(SOURCE / "examples/vector_add.tile")["vector_add"]
        x, dx = floats(1, 2, 3)
        y, dy = floats(10, 20, 30)
        z, dz = floats(0, 0, 0)
        self.assertIsNone(add(dx, dy, dz))
        self.assertEqual(list(z), [11, 22, 33])
        self.assertIsNone(add(x=dx, y=dy, z=dz))
        with self.assertRaisesRegex(TypeError, "pass them"):   # there is no library to make one
            add(dx, dy)
        with self.assertRaisesRegex(TypeError, "takes 2, or 3 with its outputs, not 1"):
            add(dx)
        with self.assertRaisesRegex(TypeError, "needs __dlpack__"):
            add(dx, 3, dz)
        with self.assertRaisesRegex(TypeError, "'WIDTH'"):
            add(dx, dy, dz, WIDTH=1)

    def test_older_dlpack_and_read_only(self):
        add = tilec.load(SOURCE / "examples/vector_add.tile")["vector_add"]
        x, dx = floats(1, 2)
        old = Tensor((2,), "f32", CPU, 0, ctypes.addressof(x), versioned=False)
        z, dz = floats(0, 0)
        add(dx, old, dz)
        self.assertEqual(list(z), [2, 4])
        with self.assertRaisesRegex(ValueError, "'z' is written, and this tensor is read-only"):
            add(dx, dx, Tensor((2,), "f32", CPU, 0, ctypes.addressof(z), read_only=True))

    def test_wrong_type_and_shape(self):
        add = tilec.load(SOURCE / "examples/vector_add.tile")["vector_add"]
        x, dx = floats(1, 2)
        for wrong, code in ((Tensor((2,), "f64", CPU, 0, ctypes.addressof(x)), "T0929"), (floats(1, 2, 3)[1], "T0906")):
            with self.assertRaises(tilec.Error) as caught:
                add(dx, wrong, dx)
            self.assertEqual(caught.exception.diagnostics[0].code, code)

    def test_compile_time_names(self):
        scale = tilec.load(source=SCALE)["scale"]
        data = (ctypes.c_float * 96)(*range(96))
        out = (ctypes.c_float * 96)()
        x, y = (Tensor((2, 48), "f32", CPU, 0, ctypes.addressof(d)) for d in (data, out))
        scale(x, y, NEGATE=1)
        self.assertEqual(list(out), [-i for i in range(96)])
        scale.bind(NEGATE=0)(x, y)
        self.assertEqual(list(out), list(range(96)))
        with self.assertRaisesRegex(TypeError, "NEGATE does not follow from the arguments"):
            scale(x, y)

    def test_copies(self):
        kernel = tilec.load(source=SCALE, pdl=True, independent=["x"])["scale"].bind(NEGATE=1)
        again = pickle.loads(pickle.dumps(kernel))
        self.assertIs(copy.deepcopy([kernel])[0], kernel)
        self.assertEqual((again.name, again.values, again.source.text, again.source.pdl, again.source.independent),
                         ("scale", {"NEGATE": 1}, kernel.source.text, True, "x"))
        data, _ = floats(*range(48))
        out, _ = floats(*[0] * 48)
        rows = [Tensor((1, 48), "f32", CPU, 0, ctypes.addressof(d)) for d in (data, out)]
        again(*rows)
        self.assertEqual(list(out), [-i for i in range(48)])

    def test_signature(self):
        source = tilec.load(source="kernel f(x: f32[N], y: out f32[N], lambda: i32) { grid (i in 1) threads 32 { thread (t in 1) { y[0] = x[0]; } } }")
        self.assertEqual(str(inspect.signature(source["f"])), "(x: 'f32[N]', y: 'f32[N]' = None, *, lambda_: 'i32', stream=None, **values)")
        self.assertEqual(str(inspect.signature(tilec.load(source=SCALE)["scale"])), "(x: 'E[M, D]', y: 'E[M, D]' = None, *, stream=None, **values)")
        self.assertEqual(source["f"].__name__, "f")
        self.assertTrue(callable(tilec.Kernel) and inspect.signature(tilec.Kernel))

    def test_shapes_of_outputs(self):
        from tilec._kernels import Bound
        kernel = tilec.load(source=SCALE)["shapes"]
        bound = Bound(kernel, {"x": Tensor((5, 9), "f32", CPU, 0, 64), "s": 0.5, "n": 10})
        self.assertEqual([bound.shape_of(p) for p in kernel.params[3:]], [(3, 64), (1, 4)])
        bound = Bound(kernel.bind(HALF=7), {"x": Tensor((5, 9), "f32", CPU, 0, 64), "s": 0.5, "n": 10})
        self.assertEqual(bound.shape_of(kernel.params[3]), (3, 14))

    def test_emulator_reports_races(self):
        text = "kernel f(x: out f32[N]) { grid (b in 2) threads 32 { thread (t in 1) { x[0] = f32(b); } } }"
        x, dx = floats(0)
        with self.assertRaises(tilec.Error) as caught:
            tilec.emulate(tilec.load(source=text, name="race.tile")["f"], dx)
        self.assertRegex(caught.exception.diagnostics[0].code, "T07..")
        self.assertEqual(caught.exception.diagnostics[0].file, "race.tile")

    def test_fork(self):
        add = tilec.load(SOURCE / "examples/vector_add.tile")["vector_add"]
        _, dx = floats(1, 2)
        add(dx, dx, floats(0, 0)[1])
        child = os.fork()
        if child == 0:
            z, dz = floats(0, 0)
            try:
                add(dx, dx, dz)
            finally:
                os._exit(list(z) != [2, 4])
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        add(dx, dx, floats(0, 0)[1])


class Devices(unittest.TestCase):
    """Devices 0 and 1 of the driver of tests/fake_cuda."""

    def setUp(self):
        self.add = tilec.load(SOURCE / "examples/vector_add.tile")["vector_add"]

    def test_launch(self):
        x, y, z = (Tensor((64,), data=0x1000 * i) for i in (1, 2, 3))
        self.add(x, y, z)
        self.add(x, y, z)
        self.assertEqual(x.streams[-1], 1)   # the default stream
        self.add(x, y, z, stream=0x77)
        self.assertEqual(x.streams[-1], 0x77)

    def test_wrong_tensors(self):
        good = Tensor((64,))
        self.add(Tensor((64,), data=0x1000), Tensor((64,), data=0x2000), Tensor((64,), data=0x3000))
        for wrong, code in ((Tensor((64,), "f64", data=0x9000), "T0929"), (Tensor((64,), index=1, data=0x9000), "T0931"),
                            (Tensor((64,), kind=CPU, data=0x9000), "T0931"), (Tensor((64,), data=0), "T0930"),
                            (Tensor((63,), data=0x9000), "T0906")):
            with self.assertRaises(tilec.Error) as caught:
                self.add(good, wrong, Tensor((64,), data=0x3000))
            self.assertEqual(caught.exception.diagnostics[0].code, code)

    def test_another_device(self):
        x, y, z = (Tensor((64,), index=1, data=0x1000 * i) for i in (1, 2, 3))
        self.add(x, y, z)
        self.add(x, y, z)

    def test_a_specialization_for_each_value(self):
        scale = tilec.load(source=SCALE)["scale"].bind(NEGATE=1)
        for type_name in ("f32", "bf16"):
            for width in (32, 48, 32):
                scale(Tensor((4, width), type_name, data=0x1000), Tensor((4, width), type_name, data=0x20000))
        with self.assertRaises(tilec.Error):   # y is of another type than x
            scale(Tensor((4, 32), "f32", data=0x1000), Tensor((4, 32), "bf16", data=0x20000))

    def test_host_time(self):
        """Most of it here is these tensors' __dlpack__, in Python; bench/ has that of PyTorch's."""
        x, y, z = (Tensor((64,), data=0x1000 * i) for i in (1, 2, 3))
        self.add(x, y, z)
        start = time.perf_counter()
        for _ in range(2000):
            self.add(x, y, z)
        self.assertLess((time.perf_counter() - start) / 2000, 1e-3)


class OneLaunch(unittest.TestCase):
    """Code that is compiled for one launch, in an empty cache."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.environ["TILEC_CACHE"] = folder.name
        self.addCleanup(os.environ.pop, "TILEC_CACHE")

    def twice(self, n, x=0x1000, y=0x20000):
        return Tensor((n,), data=x), Tensor((n,), data=y)

    def test_a_launch_is_compiled_alone(self):
        """Launches of its kind take that code; when another one comes all is compiled, in a thread, and serves any."""
        twice = tilec.load(source=TWICE)["twice"]
        with self.assertLogs("tilec", "INFO") as log:
            twice(*self.twice(64))
            twice(*self.twice(64, x=0x51000))
        self.assertEqual(len(log.output), 1)
        self.assertRegex(log.output[0], r"^INFO:tilec:<source> for sm_\w+: compiled, \d+ ms$")
        (whole,) = twice._wholes.values()
        self.assertIsNone(whole.thread)
        with self.assertLogs("tilec", "INFO") as log:
            twice(*self.twice(63))
            while not whole.get():
                pass
            before = len(log.output)
            for n in (62, 128, 65):
                twice(*self.twice(n, x=0x1004))
        self.assertLessEqual(before, 2)
        self.assertEqual(len(log.output), before)

    def test_all_that_is_kept_serves_a_launch(self):
        twice = tilec.load(source=TWICE + "// kept")["twice"]
        twice.compile(tilec._tilec.device(0)[0])
        twice(*self.twice(64))
        self.assertEqual(twice._wholes, {})

    def test_what_does_not_compile_as_a_whole(self):
        """The launch that is served has its result; the next one says it."""
        broken = tilec.load(source=TWICE.replace("// here", "shared s: f32[1000000]; fill(s, 0); y[b] = s[0];"))["twice"]
        broken(*self.twice(64))
        with self.assertRaises(tilec.Error):
            for n in range(68, 4000, 4):
                broken(*self.twice(n))

    def test_a_fork_leaves_the_thread(self):
        twice = tilec.load(source=TWICE + "// forked")["twice"]
        twice(*self.twice(64))
        (whole,) = twice._wholes.values()
        whole.thread = threading.Thread(target=str)   # as one of the parent looks in a child: not alive, nothing made
        while not whole.get():
            pass
        twice(*self.twice(62))


class Selecting(unittest.TestCase):
    def test_select(self):
        gemm = tilec.load(SOURCE / "examples/gemm.tile")["gemm"]
        a, b, c = (Tensor(shape, "bf16", CPU, data=0x1000 * i) for i, shape in enumerate(((512, 64), (256, 64), (512, 256)), 1))
        chosen = tilec.select(gemm, a, b, c, target="sm_80", multiprocessors=108, BM=64, BN=64, BK=64, STAGES=3)
        self.assertEqual((chosen.grid, chosen.launches, chosen.microseconds), (8 * 4, 1, 0))
        predicted = [tilec.select(gemm, *(Tensor((n, n), "bf16", CPU, data=0x10000000 * i) for i in (1, 2, 3)), BN=128, BK=64, STAGES=4).microseconds
                     for n in (1024, 4096)]
        self.assertTrue(0 < 10 * predicted[0] < predicted[1] < 1000, predicted)
        with self.assertRaises(tilec.Error):
            tilec.select(gemm, a, b, Tensor((512, 255), "bf16", CPU, data=0x9000), target="sm_80", BM=64, BN=64, BK=64, STAGES=3)


class Cache(unittest.TestCase):
    def test_compile_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            code = ("import sys, tilec; k = tilec.load(sys.argv[1])['vector_add'];"
                    "sys.stdout.buffer.write(k.compile('sm_80', assemble=False).ptx.encode())")
            run = lambda: subprocess.run([sys.executable, "-c", code, str(SOURCE / "examples/vector_add.tile")], capture_output=True,
                                         check=True, env={**os.environ, "TILEC_CACHE": folder}).stdout
            self.assertEqual(run(), run())
            os.environ["TILEC_CACHE"] = folder
            try:
                self.assertEqual(tilec.cache.path(), folder)
                entries = tilec.cache.stat()["entries"]
                self.assertGreaterEqual(entries, 2)
                self.assertGreater(tilec.cache.stat()["bytes"], 0)
                self.assertEqual(tilec.cache.stat()["folder"], folder)
                self.assertEqual(tilec.cache.verify(), 0)
                tilec.cache.clear()
                self.assertLess(tilec.cache.stat()["entries"], entries)
                os.environ["TILEC_CACHE"] = "off"
                self.assertIsNone(tilec.cache.path())
                self.assertEqual((tilec.cache.stat(), tilec.cache.verify()), ({}, 0))
            finally:
                del os.environ["TILEC_CACHE"]

    def test_listing_and_layouts(self):
        kernel = tilec.load(SOURCE / "examples/vector_add.tile")["vector_add"]
        shown = kernel.compile("sm_80", assemble=False, print_after="lower-tile-op", layouts="text")
        self.assertIn("// after lower-tile-op (vector_add", shown.listing)
        self.assertIn("vector_add", shown.layouts)
        plain = kernel.compile("sm_80", assemble=False)
        self.assertEqual((plain.listing, plain.layouts), ("", ""))
        for wrong in ({"print_after": "no-such-pass"}, {"layouts": "pdf"}):
            with self.assertRaises(tilec.Error):
                kernel.compile("sm_80", assemble=False, **wrong)

    def test_command_line(self):
        done = subprocess.run([sys.executable, "-m", "tilec", "--version"], capture_output=True, text=True)
        self.assertIn(tilec.__version__, done.stdout)


if __name__ == "__main__":
    unittest.main()
