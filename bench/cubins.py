"""Launches artefacts of tilec from Python through libtilec (a copy named `libtilec-launch.so`), so that what is measured is
what `tilec_launch` does: variants, tensor maps, programs of several kernels, workspace.

    kernel = Artefact("out/gemm.cubin").kernel("gemm")
    launch = kernel.bind([a, b, c])      # torch tensors and numbers, in the order of the parameters
    launch()                             # on torch's current stream

The library is looked for in the artefact's folder, then where TILEC_LAUNCH says.
"""
import ctypes
import functools
import json
import os
import pathlib

import torch

MAX_RANK = 8
TENSOR, INTEGER, REAL = range(3)
TYPES = {torch.bool: 1, torch.int8: 2, torch.int16: 3, torch.int32: 4, torch.int64: 5, torch.uint8: 6, torch.uint16: 7,
         torch.uint32: 8, torch.uint64: 9, torch.float16: 10, torch.bfloat16: 11, torch.float32: 12, torch.float64: 13,
         torch.float8_e4m3fn: 14, torch.float8_e5m2: 15}   # TilecType


class _Arg(ctypes.Structure):   # TilecArg (include/tilec/tilec.h)
    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_int), ("type", ctypes.c_int), ("device", ctypes.c_int),
                ("rank", ctypes.c_int), ("data", ctypes.c_void_p),
                ("shape", ctypes.c_int64 * MAX_RANK), ("strides", ctypes.c_int64 * MAX_RANK),
                ("integer", ctypes.c_int64), ("real", ctypes.c_double)]


class _Launch(ctypes.Structure):   # TilecLaunch
    _fields_ = [("size", ctypes.c_size_t), ("stream", ctypes.c_void_p), ("workspace", ctypes.c_void_p),
                ("workspace_size", ctypes.c_size_t), ("zeroed", ctypes.c_void_p), ("zeroed_size", ctypes.c_size_t)]   # a part of it


class _Selection(ctypes.Structure):   # TilecSelection
    _fields_ = [("size", ctypes.c_size_t), ("launches", ctypes.c_int), ("variant", ctypes.c_int), ("symbol", ctypes.c_char_p),
                ("grid", ctypes.c_int64), ("threads", ctypes.c_int), ("shared_bytes", ctypes.c_int64), ("workspace", ctypes.c_int64),
                ("microseconds", ctypes.c_double)]


@functools.cache
def _library(folder):
    path = pathlib.Path(os.environ.get("TILEC_LAUNCH", folder / "libtilec-launch.so"))
    library = ctypes.CDLL(str(path))
    for name in ("manifest", "find"):
        getattr(library, f"tilec_artefact_{name}").restype = ctypes.c_void_p
    library.tilec_diagnostics_text.restype = ctypes.c_char_p
    return library


def _check(library, status, diagnostics):
    text = library.tilec_diagnostics_text(diagnostics).decode().strip()
    library.tilec_diagnostics_destroy(diagnostics)
    if status != 0:
        raise RuntimeError(text or f"tilec: status {status}")


def _argument(value):
    if isinstance(value, torch.Tensor):
        pad = [0] * (MAX_RANK - value.dim())
        return _Arg(ctypes.sizeof(_Arg), TENSOR, TYPES[value.dtype], value.device.index or 0, value.dim(), value.data_ptr(),
                    (ctypes.c_int64 * MAX_RANK)(*value.shape, *pad),
                    (ctypes.c_int64 * MAX_RANK)(*value.stride(), *pad))
    size = ctypes.sizeof(_Arg)
    return _Arg(size, INTEGER, integer=value) if isinstance(value, int) else _Arg(size, REAL, real=value)


class Artefact:
    def __init__(self, cubin):
        cubin = pathlib.Path(cubin)
        self.launcher = library = _library(cubin.parent)
        torch.zeros(1, device="cuda")   # makes the device's context current, into which the code is loaded
        image, diagnostics = cubin.read_bytes(), ctypes.c_void_p()
        context, self.artefact, self.module = (ctypes.c_void_p() for _ in range(3))
        _check(library, library.tilec_context_create(None, ctypes.byref(context)), None)
        _check(library, library.tilec_artefact_open(context, image, ctypes.c_size_t(len(image)), ctypes.byref(self.artefact),
                                                    ctypes.byref(diagnostics)), diagnostics)
        _check(library, library.tilec_load(self.artefact, ctypes.byref(self.module), ctypes.byref(diagnostics)), diagnostics)
        manifest = ctypes.string_at(library.tilec_artefact_manifest(self.artefact))
        self.entries = {entry["name"]: entry for entry in json.loads(manifest)["entries"]}

    def kernel(self, name):
        return Kernel(self, name)


class Kernel:
    """A kernel or a program; `entry` is the manifest's (docs/reference/launch-plan.md)."""

    def __init__(self, artefact, name):
        self.artefact, self.entry = artefact, artefact.entries[name]
        self.handle = ctypes.c_void_p(artefact.launcher.tilec_artefact_find(artefact.artefact, name.encode()))

    def bind(self, arguments):
        """A function that launches with these arguments on torch's current stream. Workspace is allocated once, here."""
        library, module = self.artefact.launcher, self.artefact.module
        count, diagnostics = ctypes.c_size_t(len(arguments)), ctypes.c_void_p()
        args = (_Arg * len(arguments))(*map(_argument, arguments))
        memory = {}   # `zeroed` is zero, and each launch leaves it so: it is cleared here, once
        for name, allocate in (("workspace", torch.empty), ("zeroed", torch.zeros)):
            need = ctypes.c_size_t()
            ask = getattr(library, f"tilec_{name}_size")
            _check(library, ask(module, self.handle, args, count, ctypes.byref(need), ctypes.byref(diagnostics)), diagnostics)
            memory[name] = allocate(max(need.value, 1), dtype=torch.uint8, device="cuda")
            memory[name + "_size"] = need.value
        options = _Launch(size=ctypes.sizeof(_Launch), **{k: v if isinstance(v, int) else v.data_ptr() for k, v in memory.items()})

        def launch():
            options.stream = torch.cuda.current_stream().cuda_stream
            _check(library, library.tilec_launch(module, self.handle, args, count, ctypes.byref(options),
                                                 ctypes.byref(diagnostics)), diagnostics)

        launch.keep = (arguments, memory)
        launch.variant = self._variant(args)
        return launch

    def _variant(self, args):
        """What a launch with these arguments takes: "gemm__3 BM=64 BN=128 BK=64 STAGES=8 [2, 1]"."""
        library, artefact, diagnostics = self.artefact.launcher, self.artefact, ctypes.c_void_p()
        selection = _Selection(size=ctypes.sizeof(_Selection))
        multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        _check(library, library.tilec_select(artefact.artefact, self.handle, args, ctypes.c_size_t(len(args)), multiprocessors,
                                             ctypes.byref(selection), ctypes.byref(diagnostics)), diagnostics)
        symbol = (selection.symbol or b"").decode()
        tuned, names = {}, []   # a list has the names of the variant before
        for variant in (v for entry in artefact.entries.values() for v in entry["variants"] if isinstance(v, dict)):
            values = variant.get("tuned", {})
            names = list(values) if isinstance(values, dict) else names
            if variant.get("symbol") == symbol:
                tuned = values if isinstance(values, dict) else dict(zip(names, values))
        chosen = self.entry["variants"][selection.variant]   # a list: the variant before, in that cluster
        cluster = chosen if isinstance(chosen, list) else chosen.get("cluster")
        return " ".join([symbol, *(f"{name}={value}" for name, value in tuned.items()), *([str(cluster)] if cluster else [])])
