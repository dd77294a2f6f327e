#!/usr/bin/env python3
"""Compares the emulator with a naive scalar interpreter on random kernels, bit for bit where the manual fixes the bits.

    oracle.py TILEC [--count 200] [--seed 1] [--keep FOLDER]

Each kernel runs on the emulator as it is written (tile stage) and after all passes (thread stage), on the same tensors.
A kernel that differs is kept, with its tensors, and the command is printed that runs it again.

    oracle.py TILEC --compile-only FOLDER --target sm_90a --count 500     here: FOLDER/SEED.cubin
    oracle.py TILEC-GPU --compiled FOLDER --count 500                     on the machine with the device
"""
import argparse
import functools
import math
import multiprocessing
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

import interpreter
import language
import programs
import values

DESCR = {"bool": "|b1", "i8": "|i1", "i16": "<i2", "i32": "<i4", "i64": "<i8", "u8": "|u1", "u16": "<u2", "u32": "<u4",
         "u64": "<u8", "f16": "<f2", "bf16": "<V2", "f32": "<f4", "f64": "<f8", "e4m3": "|V1", "e5m2": "|V1"}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 127.5, -128.5, 255.0, 256.0, 448.0, 464.0, 480.0, 57344.0, 61440.0,
           65504.0, 65520.0, 1e-8, 2.0 ** -24, 2.0 ** -149, 2.0 ** -10, 3.4e38, 1e300, 2147483647.0, -2147483648.0,
           4294967295.0, 9.3e18, math.inf, -math.inf, math.nan]


def write_npy(path, buffer):
    header = f"{{'descr': '{DESCR[buffer.type]}', 'fortran_order': False, 'shape': ({''.join(f'{e},' for e in buffer.shape)}), }}"
    header = header.ljust(117 if len(header) < 117 else len(header) + 63 - (len(header) + 10) % 64) + "\n"
    data = b"".join(values.encode(v, buffer.type) for v in buffer.cells)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def read_npy(path, type_):
    data = path.read_bytes()
    data = data[10 + struct.unpack("<H", data[8:10])[0]:]
    size = values.BYTES[type_]
    return [values.decode(data[i:i + size], type_) for i in range(0, len(data), size)]


def random_value(generator, type_):
    if generator.random() < 0.25 and type_ != "bool":
        return values.convert(generator.choice([s for s in SPECIAL if not math.isnan(s) or values.is_float(type_)]), "f64", type_)
    return values.decode(bytes(generator.choice([0, 1]) if type_ == "bool" else generator.randrange(256)
                               for _ in range(values.BYTES[type_])), type_)


def contents(generator, tensor):
    count = math.prod(tensor.shape)
    if isinstance(tensor.data, int):
        return [tensor.data]
    if tensor.data == "poison":
        return [values.convert(1, "i64", tensor.type)] * count
    if tensor.data == "bits":
        return [random_value(generator, tensor.type) for _ in range(count)]
    if tensor.data == "spread":
        return [generator.choice([-1, 1]) * values.round_exact(2.0 ** generator.uniform(-20, 8), tensor.type) for _ in range(count)]
    low = 0 if tensor.type[0] == "u" else -4
    return [values.convert(generator.randint(low, 4), "i64", tensor.type) for _ in range(count)]


def equal(got, want, type_):
    if want is values.ANY:
        return True
    if isinstance(want, values.Near):
        return math.isfinite(got) and abs(got - want.value) <= want.error * abs(want.value) + want.floor
    if isinstance(want, float) and math.isnan(want):
        return math.isnan(got)
    return values.encode(got, type_) == values.encode(want, type_)


class Check:

    def __init__(self, tilec, folder, seed):
        self.tilec, self.folder, self.seed = tilec, folder, seed
        program = programs.Program(seed)
        generator = random.Random(f"data {seed}")
        self.tensors = program.tensors
        self.text = program.text()
        self.initial = {t.name: contents(generator, t) for t in program.tensors}
        self.source = folder / "program.tile"
        self.source.write_text(self.text)
        for t in program.tensors:
            write_npy(folder / f"{t.name}.npy", interpreter.Buffer(t.type, t.shape, "global", self.initial[t.name]))

    def expected(self):
        items = language.parse(self.text)
        kernel = next(item for item in items if item.kind == "kernel")
        arguments = {t.name: interpreter.Buffer(t.type, t.shape, "global", list(self.initial[t.name])) for t in self.tensors}
        interpreter.run(items, kernel, arguments)
        return {name: buffer.cells for name, buffer in arguments.items()}

    def command(self, source, *options):
        tensors = [f"{t.name}={t.name}.npy" for t in self.tensors]
        saves = [f"--save={t.name}={t.name}.out.npy" for t in self.tensors if t.mode]
        return [str(self.tilec), "run", source, *tensors, *saves, *options]

    def problem(self, source, want, *options):
        run = subprocess.run(self.command(source, *options), cwd=self.folder, capture_output=True, text=True)
        if run.returncode:
            return (run.stdout + run.stderr).strip()
        for t in self.tensors:
            if not t.mode:
                continue
            for at, (got, expected) in enumerate(zip(read_npy(self.folder / f"{t.name}.out.npy", t.type), want[t.name])):
                if not equal(got, expected, t.type):
                    return f"{t.name}: {t.type}, element {at}: the emulator has {got!r}, the manual says {expected!r}"
        return None

    def compile(self, target, cubin):
        """None, or (step, problem)."""
        build = subprocess.run([str(self.tilec), "build", "program.tile", f"--target={target}", "-o", str(cubin)],
                               cwd=self.folder, capture_output=True, text=True)
        return ("build", build.stdout + build.stderr) if build.returncode else None

    def run_compiled(self, cubin):
        """None, or (stage, problem)."""
        problem = self.problem("program.tile", self.expected(), "--device=gpu", f"--artefact={cubin}")
        return ("device", problem) if problem else None

    def run(self):
        """None, or (stage, problem)."""
        want = self.expected()
        problem = self.problem("program.tile", want)
        if problem:
            return "tile stage", problem
        target = random.Random(self.seed).choice(["sm_80", "sm_90a", "sm_120a"])
        lowered = subprocess.run([str(self.tilec), "opt", "program.tile", f"--target={target}", "-o", "lowered.tile"],
                                 cwd=self.folder, capture_output=True, text=True)
        if lowered.returncode:
            return f"passes for {target}", lowered.stdout + lowered.stderr
        problem = self.problem("lowered.tile", want)
        return (f"after all passes for {target}", problem) if problem else None


def check_seed(options, seed):
    """The text to print of a kernel that differs; None: it agrees, or is outside of the interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        check = Check(options.tilec.resolve(), pathlib.Path(folder), seed)
        try:
            if options.compile_only:
                found = check.compile(options.target, options.compile_only.resolve() / f"{seed}.cubin")
            elif options.compiled:
                found = check.run_compiled(options.compiled.resolve() / f"{seed}.cubin")
            else:
                found = check.run()
        except interpreter.Unsupported:
            return None
        if not found:
            return None
        text = f"seed {seed}, {found[0]}: {found[1]}\n{check.text}"
        if options.keep:
            shutil.copytree(folder, options.keep / str(seed), dirs_exist_ok=True)
            text += f"cd {options.keep / str(seed)} && {' '.join(check.command('program.tile'))}\n"
        return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tilec", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for kernels that differ")
    parser.add_argument("--compile-only", type=pathlib.Path, help="compiles into this folder and runs nothing")
    parser.add_argument("--compiled", type=pathlib.Path, help="runs the kernels of this folder on the device")
    parser.add_argument("--target", default="sm_90a", help="of --compile-only")
    options = parser.parse_args()
    if options.compile_only:
        options.compile_only.mkdir(parents=True, exist_ok=True)
    failures = 0
    with multiprocessing.Pool(options.jobs) as pool:
        seeds = range(options.seed, options.seed + options.count)
        for text in pool.imap(functools.partial(check_seed, options), seeds):
            if text:
                failures += 1
                print(text, flush=True)
    print(f"{options.count} kernels, {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
