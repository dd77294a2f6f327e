#!/usr/bin/env python3
"""Tests of the Python package: run.py BUILD TEST [--needs MODULE ...] runs TEST.py of this folder with the first Python that has the modules.

Those asked: TILEC_TEST_PYTHON alone, where it is set; else that of the virtual environment .deps/python, the one that runs this, Debian's. Exit 77, with
the reason: none has them.
"""
import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

parser = argparse.ArgumentParser()
parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("test")
parser.add_argument("--needs", nargs="*", default=[])
options = parser.parse_args()
own = os.environ.get("TILEC_TEST_PYTHON")
candidates = [own] if own else [str(ROOT / ".deps/python/bin/python"), sys.executable, "/usr/bin/python3"]
find = f"import importlib.util as u, sys; sys.exit(any(u.find_spec(name) is None for name in {options.needs!r}))"
for python in candidates:
    if os.access(python, os.X_OK) and subprocess.run([python, "-c", find], capture_output=True).returncode == 0:
        break
else:
    print(f"skipped: no Python here has {' and '.join(options.needs)}; asked were {', '.join(candidates)}")
    sys.exit(77)
environment = {**os.environ, "PYTHONPATH": f"{options.build}/python", "PYTHONDONTWRITEBYTECODE": "1",
               "TILEC_TEST_BUILD": str(options.build), "TILEC_TEST_SOURCE": str(ROOT)}
if options.test == "test_package":   # a driver that only takes notes
    environment |= {"LD_LIBRARY_PATH": f"{options.build}/tests/fake_cuda", "FAKE_CUDA_PARAMS": "1"}
sys.exit(subprocess.run([python, "-W", "error::ResourceWarning", str(HERE / f"{options.test}.py")], env=environment).returncode)
