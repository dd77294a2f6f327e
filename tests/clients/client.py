"""A client in Python, by ctypes: client.py LIBTILEC SIZES, where SIZES is what sizes.c prints of the header."""
import ctypes
import json
import sys
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p


class Arg(Structure):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("type", c_int), ("device", c_int), ("rank", c_int), ("data", c_void_p),
                ("shape", c_int64 * 8), ("strides", c_int64 * 8), ("integer", c_int64), ("real", c_double)]


class Define(Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class CompileOptions(Structure):
    _fields_ = [("size", c_size_t), ("target", c_char_p), ("defines", POINTER(Define)), ("define_count", c_size_t), ("optimize", c_int),
                ("no_lines", c_bool), ("no_assemble", c_bool), ("only", c_char_p), ("ptxas", c_char_p), ("record", c_char_p),
                ("compiler", c_char_p), ("time_limit", c_int64), ("memory_limit", c_int64), ("import_root", c_char_p),
                ("repro_dir", c_char_p), ("cancelled", c_void_p), ("cancelled_user", c_void_p), ("cache", c_char_p), ("remarks", c_bool),
                ("threads", c_int), ("progress", c_void_p), ("progress_user", c_void_p),
                ("declarations", c_bool), ("print_after", c_char_p), ("layouts", c_char_p),
                ("log", c_void_p), ("log_user", c_void_p), ("pdl", c_bool), ("multiprocessors", c_int),
                ("independent", c_char_p), ("dump", c_void_p), ("dump_user", c_void_p)]


class Emulation(Structure):
    _fields_ = [("size", c_size_t), ("seed", c_uint64), ("max_steps", c_int64)]


class Diagnostic(Structure):
    _fields_ = [("size", c_size_t), ("code", c_int), ("severity", c_int), ("file", c_char_p), ("line", c_int), ("column", c_int),
                ("end_line", c_int), ("end_column", c_int), ("message", c_char_p), ("remedy", c_char_p)]


STRUCTURES = {"TilecArg": Arg, "TilecDefine": Define, "TilecCompileOptions": CompileOptions, "TilecEmulation": Emulation,
              "TilecDiagnostic": Diagnostic}
SOURCE = b"""kernel add(x: f32[N], y: f32[N], z: out f32[N]) {
    grid (b in N) threads 32 { thread (t in 1) { z[b] = x[b] + y[b]; } }
}"""
F32 = 12


def with_size(structure):
    return structure(size=ctypes.sizeof(structure))


def main(path, sizes):
    for name, size in json.loads(sizes).items():
        assert ctypes.sizeof(STRUCTURES[name]) == size, f"{name} has {size} bytes in the header"
    library = ctypes.CDLL(path)
    library.tilec_tensor.restype = Arg
    library.tilec_tensor.argtypes = [c_int, c_void_p, c_int, POINTER(c_int64)]
    library.tilec_diagnostics_get.restype = c_bool
    library.tilec_diagnostics_get.argtypes = [c_void_p, c_size_t, POINTER(Diagnostic)]
    library.tilec_emulate.argtypes = [c_void_p, c_char_p, c_char_p, c_size_t, POINTER(CompileOptions), c_char_p, POINTER(Arg), c_size_t,
                                      POINTER(Emulation), POINTER(c_void_p)]
    library.tilec_diagnostics_destroy.argtypes = library.tilec_context_destroy.argtypes = [c_void_p]
    context, said = c_void_p(), c_void_p()
    assert library.tilec_context_create(None, byref(context)) == 0
    x, y, z = (ctypes.c_float * 4)(1, 2, 3, 4), (ctypes.c_float * 4)(*[10] * 4), (ctypes.c_float * 4)()
    args = (Arg * 3)(*(library.tilec_tensor(F32, ctypes.addressof(data), 1, byref(c_int64(4))) for data in (x, y, z)))
    options, emulation = with_size(CompileOptions), with_size(Emulation)
    emulate = lambda kernel: library.tilec_emulate(context, b"add.tile", SOURCE, len(SOURCE), byref(options), kernel, args, 3,
                                                   byref(emulation), byref(said))
    assert emulate(b"add") == 0 and list(z) == [11, 12, 13, 14]
    assert emulate(b"subtract") == 1
    first = with_size(Diagnostic)
    assert library.tilec_diagnostics_get(said, 0, byref(first)) and first.code == 903 and b"subtract" in first.message
    library.tilec_diagnostics_destroy(said)
    library.tilec_context_destroy(context)


main(*sys.argv[1:])
