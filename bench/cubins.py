"""Launches artefacts of tilec from Python, with nothing but the CUDA driver: a cubin and its manifest.

    kernel = Artefact("out/gemm.cubin", "out/gemm.json").kernel("gemm")
    launch = kernel.bind([a, b, c])      # torch tensors and numbers, in the order of the parameters
    launch()                             # on torch's current stream

What `libtilec` does at the launch of a kernel (not of a program), in small: the first variant whose condition and shapes hold for the arguments is taken. The
manifest's expressions are text of the tile language over the names of dims and scalars.
"""
import ctypes
import json
import re

import torch

# ---- the driver ----

_cuda = ctypes.CDLL("libcuda.so.1")
MAX_DYNAMIC_SHARED = 8   # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def _call(name, *arguments):
    status = getattr(_cuda, name)(*arguments)
    if status != 0:
        text = ctypes.c_char_p()
        _cuda.cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"{name}: {text.value.decode() if text.value else status}")


# ---- expressions of the manifest ----

_TOKEN = re.compile(r"\s*(\d+\.?\d*(?:[eE][-+]?\d+)?|\w+|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^!~?:(),])")
_BINARY = [("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
           ("*", "/", "%")]


def _truncated(a, b):
    return a / b if isinstance(a, float) or isinstance(b, float) else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


_OPERATORS = {
    "||": lambda a, b: bool(a) or bool(b), "&&": lambda a, b: bool(a) and bool(b),
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "&": lambda a, b: a & b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b, "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b,
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": _truncated, "%": lambda a, b: a - b * _truncated(a, b),
}


class _Evaluator:
    """Recursive descent that computes as it goes."""

    def __init__(self, text, names):
        self.tokens = _TOKEN.findall(text)
        self.names = names
        self.at = 0

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, *tokens):
        if self.at < len(self.tokens) and self.tokens[self.at] in tokens:
            return self.next()
        return None

    def expression(self):
        value = self.binary(0)
        if not self.accept("?"):
            return value
        yes = self.expression()
        self.accept(":")
        no = self.expression()
        return yes if value else no

    def binary(self, level):
        if level == len(_BINARY):
            return self.unary()
        value = self.binary(level + 1)
        while operator := self.accept(*_BINARY[level]):
            value = _OPERATORS[operator](value, self.binary(level + 1))
        return value

    def unary(self):
        if self.accept("-"):
            return -self.unary()
        if self.accept("!"):
            return not self.unary()
        if self.accept("~"):
            return ~self.unary()
        return self.primary()

    def primary(self):
        token = self.next()
        if token == "(":
            value = self.expression()
            self.accept(")")
            return value
        if token[0].isdigit():
            return float(token) if re.search(r"[.eE]", token) and not token.startswith("0x") else int(token, 0)
        if self.accept("("):
            arguments = []
            while not self.accept(")"):
                arguments.append(self.expression())
                self.accept(",")
            return self.function(token, arguments)
        return {"true": True, "false": False}.get(token, self.names.get(token))

    def function(self, name, arguments):
        if name == "ceildiv":
            return -(-arguments[0] // arguments[1])
        if name == "sms":
            return torch.cuda.get_device_properties(0).multi_processor_count
        return {"min": min, "max": max, "abs": abs, "i64": int, "i32": int, "bool": bool}[name](*arguments)


def evaluate(text, names):
    return _Evaluator(text, names).expression()


# ---- artefacts ----

_SCALARS = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
            "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "bool": ctypes.c_bool}


# ---- tensor maps ----

_MAP_TYPES = {"i32": 3, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "e4m3": 0, "e5m2": 0, "i8": 0, "u8": 0, "u32": 2,
              "i16": 1, "u16": 1, "u64": 4}   # CUtensorMapDataType
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTE_256 = 3


def _tensor_map(row, element, tensor):
    """The 128 bytes that a kernel takes by value: aligned to 64. (docs/manifest.md, "Tensor maps")"""
    storage = (ctypes.c_uint8 * (128 + 64))()
    address = (ctypes.addressof(storage) + 63) // 64 * 64
    rank = len(row["box"])
    strides = [tensor.stride(d) * tensor.element_size() for d in range(rank)]
    _call("cuTensorMapEncodeTiled", ctypes.c_void_p(address), _MAP_TYPES[element], rank,
          ctypes.c_void_p(tensor.data_ptr()), (ctypes.c_uint64 * rank)(*reversed(tensor.shape)),
          (ctypes.c_uint64 * rank)(*reversed(strides[:-1])), (ctypes.c_uint32 * rank)(*row["box"]),
          (ctypes.c_uint32 * rank)(*[1] * rank), 0, _SWIZZLES[row["swizzle"]], _PROMOTE_256, 0)
    return storage, address


class Artefact:
    def __init__(self, cubin, manifest):
        with open(manifest) as file:
            self.entries = {entry["name"]: entry for entry in json.load(file)["entries"]}
        with open(cubin, "rb") as file:
            image = file.read()
        torch.zeros(1, device="cuda")   # makes the device's context current
        self.module = ctypes.c_void_p()
        _call("cuModuleLoadData", ctypes.byref(self.module), image)

    def kernel(self, name):
        return Kernel(self, self.entries[name])


def _bind_names(variant, arguments):
    """Names and values of a launch, or None where the shapes do not fit this variant."""
    names, checks = {}, []
    for param, value in zip(variant["params"], arguments):
        if "shape" not in param:
            names[param["name"]] = value
            continue
        names[param["name"] + "_address"] = value.data_ptr()
        dense = [1] * value.dim()
        for d in range(value.dim() - 2, -1, -1):
            dense[d] = dense[d + 1] * value.shape[d + 1]
        pairs = list(zip(param["shape"], value.shape)) + list(zip(param.get("strides", dense), value.stride()))
        for text, actual in pairs:
            if isinstance(text, str) and text.isidentifier() and text not in names:
                names[text] = actual
            else:
                checks.append((text, actual))
    fits = all((evaluate(text, names) if isinstance(text, str) else text) == actual for text, actual in checks)
    return names if fits else None


class Kernel:
    def __init__(self, artefact, entry):
        self.artefact, self.entry = artefact, entry

    def bind(self, arguments):
        """A function that launches with these arguments; its `variant` is the manifest's row."""
        for variant in self.entry["variants"]:
            names = _bind_names(variant, arguments)
            if names is not None and ("when" not in variant or evaluate(variant["when"], names)):
                return self._launcher(variant, names, arguments)
        raise ValueError(f"no variant of {self.entry['name']} fits these arguments")

    def _launcher(self, variant, names, arguments):
        for step in variant.get("steps", []):
            value = evaluate(step["value"], names)
            if step["do"] == "assume" and not value:
                raise ValueError(f"{self.entry['name']} assumes {step['value']}")
            if step["do"] == "let":
                names[step["name"]] = value
        function = ctypes.c_void_p()
        _call("cuModuleGetFunction", ctypes.byref(function), self.artefact.module, variant["symbol"].encode())
        _call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, variant["shared_bytes"])
        values = [ctypes.c_uint64(value.data_ptr()) if "shape" in param else _SCALARS[param["type"]](value)
                  for param, value in zip(variant["params"], arguments)]
        addresses = [ctypes.addressof(value) for value in values]
        params = {param["name"]: (param, value) for param, value in zip(variant["params"], arguments)}
        for row in variant.get("maps", []):   # in order of their places among the parameters
            param, tensor = params[row["tensor"]]
            storage, address = _tensor_map(row, param["type"], tensor)
            values.append(storage)
            addresses.insert(row["at"], address)
        dims = [ctypes.c_int64(names[name]) for name in variant["dims"]]
        values += dims
        addresses += [ctypes.addressof(value) for value in dims]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        grid, threads, shared = evaluate(variant["grid"], names), variant["threads"], variant["shared_bytes"]

        def launch():
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            _call("cuLaunchKernel", function, grid, 1, 1, threads, 1, 1, shared, stream, pointers, None)

        launch.variant = variant
        launch.keep = (values, arguments, self.artefact)
        return launch
