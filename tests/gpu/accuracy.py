#!/usr/bin/env python3
"""The largest errors of approximate f32 operations on the device, against what target/approximations.def promises.

    tilec build tests/gpu/accuracy.tile --target=sm_90a -o accuracy.cubin      here
    accuracy.py TILEC-GPU accuracy.cubin [--count 16777216] [--seed 1]         on the machine with the device; needs numpy

Operands are random bits, so all exponents are equally frequent, and normal numbers. Exit 1 if a bound does not hold.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXACT = {
    "quotient": ("DIV", lambda x, d: x / d), "root": ("SQRT", lambda x, _: numpy.sqrt(x)),
    "inverse_root": ("RSQRT", lambda x, _: 1 / numpy.sqrt(x)), "power": ("EXP2", lambda x, _: numpy.exp2(x)),
    "natural_power": ("EXP", lambda x, _: numpy.exp(x)), "logarithm": ("LOG2", lambda x, _: numpy.log2(x)),
    "natural": ("LOG", lambda x, _: numpy.log(x)), "tangent": ("TANH", lambda x, _: numpy.tanh(x)),
    "sine": ("SIN", lambda x, _: numpy.sin(x)), "cosine": ("COS", lambda x, _: numpy.cos(x)),
}


def promises():
    rows = re.findall(r"^APPROXIMATION\((\w+), ([^,]+), ([^,]+), ([^,]+), ([^,]+),", (ROOT / "target/approximations.def").read_text(), re.M)
    number = lambda text: float.fromhex(text.strip()) if "x" in text else float(text)
    return {name: tuple(map(number, bounds)) for name, *bounds in rows}


def operands(generator, count):
    bits = generator.integers(0, 2 ** 32, count, dtype=numpy.uint32).view(numpy.float32)
    near = (generator.standard_normal(count) * numpy.exp2(generator.integers(-8, 8, count))).astype(numpy.float32)
    return numpy.where(generator.random(count) < 0.5, bits, near)


def units(exact):
    _, exponent = numpy.frexp(exact)
    return numpy.ldexp(1.0, numpy.maximum(exponent, -125) - 24)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tilec", type=pathlib.Path)
    parser.add_argument("cubin", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=1 << 24)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    generator = numpy.random.default_rng(options.seed)
    x, d = operands(generator, options.count), operands(generator, options.count)
    powers = numpy.ldexp(numpy.float32(1), generator.integers(-126, 127, options.count)).astype(numpy.float32)
    d = numpy.where(generator.random(options.count) < 0.1, powers, d)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        numpy.save(folder / "x.npy", x)
        numpy.save(folder / "d.npy", d)
        zeros = [f"{name}=zeros[{options.count}]" for name in EXACT]
        saves = [f"--save={name}={folder / name}.npy" for name in EXACT]
        subprocess.run([str(options.tilec.resolve()), "run", str(ROOT / "tests/gpu/accuracy.tile"), f"x={folder}/x.npy",
                        f"d={folder}/d.npy", *zeros, *saves, "--device=gpu", f"--artefact={options.cubin.resolve()}"], check=True)
        print("| operation | largest error, ulp | operand | of subnormal results, ulp | relative | absolute | results beyond the bound |")
        print("|---|---|---|---|---|---|---|")
        for name, (op, compute) in EXACT.items():
            with numpy.errstate(all="ignore"):
                exact = compute(x.astype(numpy.float64), d.astype(numpy.float64))
                got = numpy.load(folder / f"{name}.npy").astype(numpy.float64)
                rounded = exact.astype(numpy.float32)
                finite = numpy.isfinite(exact) & numpy.isfinite(rounded) & (exact != 0)
                wrong_class = (numpy.isnan(exact) != numpy.isnan(got)) | (numpy.isfinite(rounded) != numpy.isfinite(got))
                error = numpy.where(finite, numpy.abs(got - exact), 0)
                ulps, relative = error / units(exact), error / numpy.abs(exact)
            if op in ("SIN", "COS"):
                finite &= numpy.abs(x) <= 2.0 ** 45
                wrong_class &= numpy.abs(x) <= 2.0 ** 45
            least = 2.0 ** -125 if op == "EXP" else 2.0 ** -126   # exp2 flushes; the product before it is rounded
            normal = finite & (numpy.abs(exact) >= least) & (numpy.abs(x) >= 2.0 ** -126) & (numpy.abs(d) >= 2.0 ** -126)
            bound = promises()[op]
            share = bound[1] * (1 + numpy.abs(x) / 3) if op == "EXP" else bound[1]
            allowed = (ulps <= bound[0]) | (relative <= share) | ((numpy.abs(x) > 1) & (error <= bound[2]))
            if bound[3]:
                allowed &= numpy.abs(got) <= bound[3]
            if op == "DIV":
                allowed &= (numpy.abs(numpy.frexp(d)[0]) != 0.5) | (got == rounded)   # by a power of two: exact
            worst = numpy.argmax(numpy.where(normal, ulps, 0))
            small = numpy.max(numpy.where(finite & ~normal, ulps, 0))
            beyond = int(numpy.sum(normal & ~allowed)) + int(numpy.sum(wrong_class))
            failed |= beyond > 0
            largest = lambda values: numpy.max(numpy.where(normal, values, 0))
            print(f"| {op} | {ulps[worst]:.3g} | {x[worst]!r} | {small:.3g} | {largest(relative):.3g} | {largest(error):.3g} | {beyond} |")
    return 1 if failed else 0


sys.exit(main())
