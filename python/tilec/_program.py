"""The programs that belong to the library: `tilec`, which compiles, and NVIDIA's assembler."""
import functools
import os
import shutil
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ASSEMBLERS = ("nvidia/cu13/bin/ptxas", "nvidia/cuda_nvcc/bin/ptxas", "triton/backends/nvidia/bin/ptxas")


def program():
    """The path of the program `tilec`, as the library finds it."""
    for path in (os.environ.get("TILEC_COMPILER"), os.path.join(_HERE, "tilec"), shutil.which("tilec")):
        if path and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("the program `tilec` is not next to the package, not on PATH, and not named by TILEC_COMPILER")


@functools.lru_cache(maxsize=None)
def assembler():
    """ptxas of an installed package, where there is no other; None: the library finds one."""
    if shutil.which("ptxas") or os.path.exists("/usr/local/cuda/bin/ptxas"):
        return None
    for folder in sys.path:
        for path in _ASSEMBLERS:
            path = os.path.join(folder, path)
            if os.access(path, os.X_OK):
                return path
    return None


def main():
    """The command line."""
    path = program()
    ptxas = assembler()
    if ptxas:
        os.environ["PATH"] = os.environ.get("PATH", "") + os.pathsep + os.path.dirname(ptxas)
    os.execv(path, [path, *sys.argv[1:]])
