"""Every algorithm that cublasLt's heuristic lists for a matrix product (ctypes; nothing to compile).

cuBLAS is column-major: a row-major C = A B is computed as C^T = B^T A^T, so that its first operand is our B.
"""
import ctypes
import functools

import torch

WORKSPACE = 64 << 20
LISTED = 32
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77   # cublasComputeType_t
TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14, torch.float8_e4m3fn: 28}   # cudaDataType_t
TRANSA, TRANSB, FAST_ACCUM = 3, 4, 25   # cublasLtMatmulDescAttributes_t
MAX_WORKSPACE_BYTES = 1   # cublasLtMatmulPreferenceAttributes_t


class _Result(ctypes.Structure):   # cublasLtMatmulHeuristicResult_t
    _fields_ = [("algo", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
                ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


@functools.cache
def _library():
    torch.zeros(1, device="cuda") @ torch.zeros(1, device="cuda")   # PyTorch loads its cuBLAS
    return ctypes.CDLL("libcublasLt.so.13" if torch.version.cuda.startswith("13") else "libcublasLt.so.12")


@functools.cache
def _handle():
    handle = ctypes.c_void_p()
    _call("cublasLtCreate", ctypes.byref(handle))
    return handle


@functools.cache
def _workspace():
    return torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")


def _call(name, *arguments):
    status = getattr(_library(), name)(*arguments)
    if status != 0:
        raise RuntimeError(f"{name}: status {status}")


def _layout(tensor):
    """A row-major matrix, stored densely, is a column-major one of the transposed shape."""
    rows, columns = tensor.shape
    layout = ctypes.c_void_p()
    _call("cublasLtMatrixLayoutCreate", ctypes.byref(layout), TYPES[tensor.dtype], ctypes.c_uint64(columns),
          ctypes.c_uint64(rows), ctypes.c_int64(columns))
    return layout


def _set(function, object, attribute, value):
    _call(function, object, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))


class Product:
    """C = op(A) op(B), all stored densely row by row; transposed_a: A is stored [K, M], transposed_b: B is stored [N, K]."""

    def __init__(self, a, b, c, transposed_a=False, transposed_b=True, fast=False):
        self.tensors = a, b, c
        self.description = ctypes.c_void_p()
        compute = COMPUTE_32F_FAST_TF32 if a.dtype == torch.float32 else COMPUTE_32F
        _call("cublasLtMatmulDescCreate", ctypes.byref(self.description), compute, TYPES[torch.float32])
        for attribute, on in ((TRANSA, transposed_b), (TRANSB, transposed_a)):
            _set("cublasLtMatmulDescSetAttribute", self.description, attribute, ctypes.c_int32(int(on)))
        if fast:
            _set("cublasLtMatmulDescSetAttribute", self.description, FAST_ACCUM, ctypes.c_int8(1))
        self.layouts = [_layout(tensor) for tensor in (b, a, c)]
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)

    def algorithms(self):
        preference, found = ctypes.c_void_p(), ctypes.c_int()
        results = (_Result * LISTED)()
        first, second, out = self.layouts
        _call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        _set("cublasLtMatmulPreferenceSetAttribute", preference, MAX_WORKSPACE_BYTES, ctypes.c_size_t(WORKSPACE))
        _call("cublasLtMatmulAlgoGetHeuristic", _handle(), self.description, first, second, out, out, preference, LISTED,
              results, ctypes.byref(found))
        return [result for result in results[:found.value] if result.state == 0]

    def launch(self, result):
        a, b, c = self.tensors
        first, second, out = self.layouts
        pointer = lambda tensor: ctypes.c_void_p(tensor.data_ptr())

        def launch():
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            _call("cublasLtMatmul", _handle(), self.description, ctypes.byref(self.one), pointer(b), first, pointer(a),
                  second, ctypes.byref(self.zero), pointer(c), out, pointer(c), out, ctypes.byref(result.algo),
                  pointer(_workspace()), ctypes.c_size_t(WORKSPACE), stream)
        return launch


class Best:
    """A peer (table.Choice's interface): the algorithms that the heuristic lists, the first ones first."""

    def __init__(self, *arguments, **options):
        self.product = Product(*arguments, **options)

    def launches(self):
        for number, result in enumerate(self.product.algorithms()):
            yield f"algorithm {number}", self.product.launch(result)
