"""tilec compiles `.tile` kernels and runs them on tensors.

    >>> import tilec
    >>> gemm = tilec.load("gemm.tile")["gemm"]
    >>> c = gemm(a, b)          # or gemm(a, b, c): tensors of PyTorch, NumPy, or anything that has __dlpack__

Tensors on a CUDA device are used there; tensors of the CPU run on the emulator. A failure raises `tilec.Error`, with the
diagnostics as `error.diagnostics`: code, place, message, remedy. `tilec.torch` makes operators of PyTorch from a source.

The import needs neither PyTorch nor NumPy nor a driver.
"""
import os as _os

from . import cache
from . import _tilec
from ._kernels import CompileWarning, Kernel, Selection, Source, emulate, load, select
from ._tilec import Diagnostic, Error

__version__ = _tilec.version
__all__ = ["CompileWarning", "Diagnostic", "Error", "Kernel", "Selection", "Source", "cache", "emulate", "load", "select"]

_os.register_at_fork(after_in_child=_tilec.forked)
