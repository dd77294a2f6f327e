"""The block of bench/llama.py on the emulator, at tiny shapes: eager, and compiled as one graph."""
import os
import pathlib
import sys
import unittest

import torch

sys.path.insert(0, str(pathlib.Path(os.environ["TILEC_TEST_SOURCE"]) / "bench"))
import llama


class Block(unittest.TestCase):
    def check(self, case, wrap):
        torch.manual_seed(0)
        ours = llama.Ours(case)
        run = wrap(ours)
        run.keys, run.values = ours.keys, ours.values
        self.assertLess(max(llama.errors(case, run)), llama.TOLERANCE)

    def test_decode(self):
        self.check(llama.Case(llama.SMALL, 3, 37, 1, "cpu"), lambda ours: ours)

    def test_prefill(self):
        self.check(llama.Case(llama.SMALL, 1, 0, 21, "cpu"), lambda ours: ours)

    def test_compiled(self):
        def compiled(ours):
            graph = torch.compile(ours.__call__, fullgraph=True, backend="aot_eager")
            return type("Run", (), {"__call__": lambda self, x: graph(x)})()
        self.check(llama.Case(llama.SMALL, 2, 15, 1, "cpu"), compiled)


if __name__ == "__main__":
    unittest.main()
