#!/usr/bin/env python3
"""The Python package in Debian 11, with its glibc 2.31 and its Python 3.9: bullseye.py BUILD SOURCE [--wheel FILE]

debootstrap makes the root once, .deps/bullseye. The package of BUILD is copied into it, or the wheel installed there. Then there: the
import and its time, the command, code for a device (a cubin too, where a ptxas is here), the tests of the emulator against NumPy.
Exit 77: no debootstrap or no packages for it, or this machine does not let its caller mount.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

MOST_BYTES = 25 * 10**6
IMPORT_SECONDS = 0.1
CHECK = f"""
import subprocess, sys, time
start = time.process_time()   # of the processor: other work does not count
import tilec
seconds = time.process_time() - start
assert "numpy" not in sys.modules
assert seconds < {IMPORT_SECONDS}, f"the import takes {{seconds}} s"
made = tilec.load("/tilec/examples/gemm.tile")["gemm"].compile("sm_90a", assemble=len(sys.argv) > 1)
assert ".target sm_90a" in made.ptx and (made.cubin is not None or len(sys.argv) == 1)
print(f"import in {{1000 * seconds:.0f}} ms;", "cubin" if made.cubin else "PTX")
"""

parser = argparse.ArgumentParser()
parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("source", type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("--wheel", type=pathlib.Path)
options = parser.parse_args()
root = options.source / ".deps/bullseye"


def run(*command, **more):
    done = subprocess.run([shutil.which(str(command[0])), *map(str, command[1:])], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit {done.returncode}\n{done.stdout}")
    return done.stdout


def inside(*command):
    environment = {"PATH": "/usr/sbin:/usr/bin:/bin:/tilec/bin", "PYTHONPATH": "/tilec", "TILEC_CACHE": "off",
                   "TILEC_TEST_SOURCE": "/tilec", "PYTHONDONTWRITEBYTECODE": "1"}
    mounted = f"mount -t proc proc {root}/proc && exec chroot {root} \"$@\""   # ptxas reads and writes /dev/fd
    return run("unshare", "--mount", "sh", "-c", mounted, "sh", *command, env=environment)


def make_root():
    if (root / "made").exists():
        return
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(exist_ok=True)
    made = subprocess.run(["debootstrap", "--variant=minbase", "--include=python3-minimal,python3-numpy,python3-pip", "bullseye", root],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode != 0:
        print(f"skipped: debootstrap cannot make a root of Debian 11 here\n{made.stdout[-2000:]}")
        sys.exit(77)
    if not (root / "dev/fd").exists():
        (root / "dev/fd").symlink_to("/proc/self/fd")
    (root / "made").touch()


def assembler():
    """The first ptxas of PATH, or of a toolkit, that is a program: a script that calls one elsewhere does not work in the root."""
    folders = [*map(pathlib.Path, os.environ["PATH"].split(os.pathsep)), *sorted(pathlib.Path("/usr/local").glob("cuda*/bin"))]
    for path in (folder / "ptxas" for folder in folders):
        if os.access(path, os.X_OK) and path.read_bytes()[:4] == b"\x7fELF":
            return path
    return None


def fill(folder):
    """The package, examples and tests, as /tilec of the root."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if options.wheel:
        assert options.wheel.stat().st_size <= MOST_BYTES, f"the wheel has {options.wheel.stat().st_size} bytes"
        shutil.copy(options.wheel, folder)
        inside("python3", "-m", "pip", "install", "--no-deps", "--no-index", "--target=/tilec", f"/tilec/{options.wheel.name}")
    else:
        run("cmake", "--install", options.build, "--component", "python", "--prefix", folder, "--strip")
    for name in ("examples", "tests/python"):
        shutil.copytree(options.source / name, folder / name)
    (folder / "check.py").write_text(CHECK)
    ptxas = assembler()
    (folder / "bin").mkdir(exist_ok=True)
    if ptxas:
        shutil.copy(ptxas, folder / "bin/ptxas")
    return ["with ptxas"] if ptxas else []


if not shutil.which("debootstrap") or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
    print("skipped: debootstrap is missing, or mounts are not allowed")
    sys.exit(77)
make_root()
words = fill(root / "tilec")
print(inside("python3", "/tilec/check.py", *words), end="")
print(inside("python3", "-m", "tilec", "test", "/tilec/examples/softmax.tile"), end="")
print(inside("python3", "/tilec/tests/python/test_numpy.py"), end="")
