"""Numbers of the language: types, rounding, conversion, arithmetic. From docs/reference/language.md, "Numbers", alone.

A value is a Python int, bool or float; floats of every type are held as Python floats, which are f64. ANY stands for a
result that the manual leaves open (a NaN converted to an integer, a shift by the width or more), Near for one that it
gives to within some ulp.
"""
import math
import struct
from fractions import Fraction

INTEGERS = {f"{sign}{bits}": (sign == "i", bits) for sign in "iu" for bits in (8, 16, 32, 64)}

# significand bits with the hidden one, least exponent of a normal number, largest finite value
FLOATS = {
    "f64": (53, -1022, float.fromhex("0x1.fffffffffffffp1023")),
    "f32": (24, -126, float.fromhex("0x1.fffffep127")),
    "f16": (11, -14, 65504.0),
    "bf16": (8, -126, float.fromhex("0x1.fep127")),
    "e5m2": (3, -14, 57344.0),
    "e4m3": (4, -6, 448.0),
}
FP8 = ("e4m3", "e5m2")
BYTES = {"bool": 1, "e4m3": 1, "e5m2": 1, "f16": 2, "bf16": 2, "f32": 4, "f64": 8,
         **{name: bits // 8 for name, (_, bits) in INTEGERS.items()}}


class Any:
    """A result that the manual does not fix."""

    def __repr__(self):
        return "ANY"


ANY = Any()


class Near:
    """A float within `error` (relative, and absolute near 0) of `value`."""

    def __init__(self, value, error, floor=0.0):
        self.value, self.error, self.floor = value, error, floor

    def __repr__(self):
        return f"{self.value!r} +- {self.error:g}"


def is_float(name):
    return name in FLOATS


def is_integer(name):
    return name in INTEGERS


def wrap(value, name):
    """The low bits of an integer, as a value of the type."""
    signed, bits = INTEGERS[name]
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def round_exact(value, name):
    """A Fraction, int or float to the nearest value of the float type, ties to even; overflow gives infinity."""
    if isinstance(value, float):
        return value if name == "f64" else round_float(value, name)
    if isinstance(value, int) and abs(value) <= 1 << 53:   # an f64 too
        return float(value) if name == "f64" else round_float(float(value), name)
    value = Fraction(value)
    if value == 0:
        return 0.0
    digits, least, largest = FLOATS[name]
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, least) - digits + 1)
    steps = round(magnitude / unit)   # of a Fraction: ties to even
    rounded = steps * unit
    if rounded > Fraction(largest) and name not in FP8:
        return math.inf if value > 0 else -math.inf
    result = float(rounded) if rounded <= Fraction(FLOATS["f64"][2]) else math.inf
    return -result if value < 0 else result


def round_float(value, name):
    """The same of an f64: scaling by a power of two is exact, and Python rounds ties to even."""
    if value == 0 or not math.isfinite(value):
        return value
    digits, least, largest = FLOATS[name]
    if abs(value) >= 2 * largest:
        return value if name in FP8 else math.copysign(math.inf, value)
    unit = max(math.frexp(value)[1] - 1, least) - digits + 1
    rounded = math.ldexp(float(round(math.ldexp(value, -unit))), unit)
    if abs(rounded) > largest and name not in FP8:
        return math.copysign(math.inf, value)
    return rounded if rounded else math.copysign(0.0, value)


def convert(value, source, target):
    """T(x): what a store or a cast makes of a value. docs/reference/language.md, "Numbers"."""
    if source == target or value is ANY:
        return value
    if isinstance(value, Near):
        digits = FLOATS[target][0] if is_float(target) else None
        if target in FP8 or digits is None:
            return ANY
        return Near(value.value, value.error + 2.0 ** (1 - digits), value.floor + 2.0 ** (FLOATS[target][1] - digits))
    if target == "bool":
        return value != 0
    if source == "bool":
        value = int(value)
    if is_integer(target):
        return integer_of(value, target)
    if isinstance(value, float) and math.isnan(value):
        return value
    if target in FP8:
        return saturated(value, target)
    return round_exact(value, target)


def integer_of(value, target):
    if not isinstance(value, float):
        return wrap(value, target)
    if math.isnan(value):
        return ANY
    signed, bits = INTEGERS[target]
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(math.trunc(value), low), high)


def saturated(value, target):
    largest = FLOATS[target][2]
    if not (isinstance(value, float) and math.isinf(value)):
        rounded = round_exact(value, target)
        if abs(rounded) <= largest:
            return rounded if rounded else math.copysign(rounded, value)
    return math.copysign(largest, value)


# ---- arithmetic ----

def finite(*values):
    return all(not isinstance(v, float) or math.isfinite(v) for v in values)


# An operation of f64 that is then rounded to f32 or less is as if rounded once: 53 bits are more than 2 * 24 + 1 (Figueroa, 1995).

def float_sum(a, b, name):
    return round_exact(a + b, name)


def float_product(a, b, name):
    return round_exact(a * b, name)


def float_quotient(a, b, name):
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return round_exact(a / b, name)


def float_fma(a, b, c, name):
    if not finite(a, b, c):
        return a * b + c if not finite(a, b) else c   # a finite product does not change an infinity or NaN
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total:
        return round_exact(total, name)
    zero = math.copysign(1.0, a) * math.copysign(1.0, b) * 0.0
    return zero + c if a == 0 or b == 0 or c == 0 else 0.0


def square_root(x, name):
    if math.isnan(x) or x < 0:
        return math.nan
    if x == 0 or math.isinf(x):
        return x
    # f64's root, mended to the nearest of the type by comparing squares exactly
    digits = FLOATS[name][0]
    value = Fraction(x)
    shift = 2 * (digits + 4) - (value.numerator.bit_length() - value.denominator.bit_length())
    shift += shift % 2
    scaled = value * Fraction(2) ** shift
    whole = math.isqrt(scaled.numerator // scaled.denominator)
    sticky = whole * whole != scaled
    return round_exact(Fraction(2 * whole + sticky, 2) / Fraction(2) ** (shift // 2), name)


def int_quotient(a, b):
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def lesser(a, b):
    return _pick(a, b, lambda x, y: x < y, -1.0)


def greater(a, b):
    return _pick(a, b, lambda x, y: x > y, 1.0)


def _pick(a, b, first, sign):
    """min or max: a NaN loses; of zeros of both signs the one with `sign` is taken, as PTX does."""
    if isinstance(a, float) and math.isnan(a):
        return b
    if isinstance(b, float) and math.isnan(b):
        return a
    if isinstance(a, float) and a == 0 and b == 0:
        return a if math.copysign(1.0, a) == sign else b
    return a if first(a, b) else b


# ---- bits ----

def encode(value, name):
    """The bytes of a value in memory, little endian."""
    if name == "bool":
        return bytes([int(value)])
    if is_integer(name):
        return int(value & ((1 << INTEGERS[name][1]) - 1)).to_bytes(BYTES[name], "little")
    if name == "f64":
        return struct.pack("<d", value)
    if name == "f32":
        return struct.pack("<f", value)
    return small_bits(value, name).to_bytes(BYTES[name], "little")


def shape_of(name):
    """Bits of a small float: (exponent, mantissa, bias)."""
    return {"f16": (5, 10, 15), "bf16": (8, 7, 127), "e5m2": (5, 2, 15), "e4m3": (4, 3, 7)}[name]


def small_bits(value, name):
    exponent_bits, mantissa_bits, bias = shape_of(name)
    sign = 1 if math.copysign(1.0, value) < 0 else 0
    top = sign << (exponent_bits + mantissa_bits)
    if math.isnan(value):
        return top | ((1 << (exponent_bits + mantissa_bits)) - 1)
    if math.isinf(value):
        return top | (((1 << exponent_bits) - 1) << mantissa_bits)
    if value == 0:
        return top
    fraction, exponent = math.frexp(abs(value))   # fraction in [0.5, 1)
    exponent = max(exponent - 1, 1 - bias)
    mantissa = Fraction(abs(value)) / Fraction(2) ** (exponent - mantissa_bits)
    assert mantissa.denominator == 1, (value, name)
    mantissa = int(mantissa)
    field = exponent + bias if mantissa >> mantissa_bits else 0
    return top | (field << mantissa_bits) | (mantissa & ((1 << mantissa_bits) - 1))


def decode(data, name):
    if name == "bool":
        return data[0] != 0
    if is_integer(name):
        return int.from_bytes(data, "little", signed=INTEGERS[name][0])
    if name == "f64":
        return struct.unpack("<d", data)[0]
    if name == "f32":
        return struct.unpack("<f", data)[0]
    bits = int.from_bytes(data, "little")
    exponent_bits, mantissa_bits, bias = shape_of(name)
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) else 1.0
    field = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    if name == "e4m3" and field == 15 and mantissa == 7:
        return math.nan
    if name != "e4m3" and field == (1 << exponent_bits) - 1:
        return math.nan if mantissa else sign * math.inf
    whole = mantissa | (1 << mantissa_bits if field else 0)
    return sign * math.ldexp(whole, max(field, 1) - bias - mantissa_bits)


def bitcast(value, source, target):
    if value is ANY or isinstance(value, Near) or (isinstance(value, float) and math.isnan(value)):
        return ANY
    return decode(encode(value, source), target)
