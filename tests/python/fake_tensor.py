"""Tensors without a framework: an object with __dlpack__, of host memory or of a device that is not there."""
import ctypes

CPU, CUDA = 1, 2
CODES = {"f32": (2, 32), "f64": (2, 64), "f16": (2, 16), "bf16": (4, 16), "i32": (0, 32), "i64": (0, 64)}


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("index", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


capsule = ctypes.pythonapi.PyCapsule_New
capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Tensor:
    """`versioned`: the form of DLPack 1.0, else the older one, whose __dlpack__ knows no max_version."""

    def __init__(self, shape, type_name="f32", kind=CUDA, index=0, data=0x10000, versioned=True, read_only=False):
        self.place, self.versioned, self.streams = (kind, index), versioned, []
        self.shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        code, bits = CODES[type_name]
        tensor = DLTensor(data, kind, index, len(shape), code, bits, 1, self.shape, None, 0)
        self.managed = ManagedVersioned(1, 1, None, None, int(read_only), tensor) if versioned else Managed(tensor, None, None)

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, stream=None, **keywords):
        if keywords and not self.versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        return capsule(ctypes.addressof(self.managed), b"dltensor_versioned" if self.versioned else b"dltensor", None)
