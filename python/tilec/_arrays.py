"""Arrays of other libraries: a new one like another."""
import sys

_NUMPY = {"bool": "bool_", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
          "u32": "uint32", "u64": "uint64", "f16": "float16", "f32": "float32", "f64": "float64"}
_ML_DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
_TORCH = {**_NUMPY, **_ML_DTYPES, "bool": "bool"}


def is_torch(array):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def torch_type(name):
    return getattr(sys.modules["torch"], _TORCH[name])


def numpy_type(name):
    """The dtype of a type of the language; those that NumPy lacks are of the package ml_dtypes."""
    numpy = sys.modules["numpy"]
    if name in _NUMPY:
        return getattr(numpy, _NUMPY[name])
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"NumPy has no {name}: install the package ml_dtypes, or pass tensors of PyTorch") from None
    return getattr(ml_dtypes, _ML_DTYPES[name])


def empty(like, shape, type_name):
    """An array of the library and on the device of `like`."""
    if is_torch(like):
        return sys.modules["torch"].empty(shape, dtype=torch_type(type_name), device=like.device)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(like, (numpy.ndarray, numpy.generic)):
        return numpy.empty(shape, dtype=numpy_type(type_name))
    space = getattr(like, "__array_namespace__", None)
    if space is None:
        raise TypeError(f"outputs cannot be made like a {type(like).__name__}: pass them")
    space = space()
    return space.empty(shape, dtype=getattr(space, _TORCH[type_name]), device=like.device)
