"""GEMM kernels drawn at random: shape, operand orders, element types, tile, stages, clusters, persistent grids, threads; some with
sums of 8-bit products in f32, some with weights of 8 and 4 bits that are converted in registers.

Usage: random_gemm.py FOLDER [COUNT [SEED]]    writes FOLDER/random_gemm_<n>.tile: COUNT (200) kernels, 25 a file, a test each

The files run anywhere: `tilec test FOLDER/*.tile` on the emulator, tests/gpu/run.sh on a device.
"""

import pathlib
import random
import sys

KERNELS_A_FILE = 25
MOST_SHARED = 110_000   # bytes of the ring; what the store is staged in comes on top
TYPES = {   # elements -> what they may be added up and stored as
    "bf16": [("f32", "bf16"), ("f32", "f32")],
    "f16": [("f32", "f16"), ("f32", "f32")],
    "e4m3": [("f32", "bf16"), ("f32", "f32")],
    "e5m2": [("f32", "f16")],
    "i8": [("i32", "i32")],
    "f32": [("f32", "f32")],
}
TOLERANCE = {"bf16": "1e-2", "f16": "1e-2", "f32": "2e-3", "i32": "0"}


def extent(rng, tile):
    """Of a dim: odd, below a tile, multiples of what copies want, a few tiles."""
    return rng.choice([rng.randint(1, 3 * tile), 8 * rng.randint(1, max(1, 3 * tile // 8)), tile * rng.randint(1, 3),
                       rng.choice([1, 7, 31, 61, 97, 127, 131, 191, 257])])


def kernel(rng, name):
    elements = rng.choice(["bf16"] * 5 + ["f16"] * 3 + ["e4m3", "e5m2", "i8", "f32"])
    sums, results = rng.choice(TYPES[elements])
    bytes_each = {"e4m3": 1, "e5m2": 1, "i8": 1, "f32": 4}.get(elements, 2)
    bm, bn = rng.choice([64, 64, 128, 128, 32]), 8 * rng.choice([4, 8, 8, 16, 3, 5, 12, 20, 25])
    bk = rng.choice([32, 64, 64, 128]) // bytes_each * 2
    bk = max(16, min(bk, 128))
    while (bm + bn) * bk * bytes_each > 40000 or (bm * bn) // 256 > 100:
        bn = max(8, bn // 2 // 8 * 8)
    transposed_a, transposed_b = rng.random() < 0.3, rng.random() < 0.5
    options = rng.choice(["", "", " persistent"]) + rng.choice(["", "", " cluster (2, 1)"]) + rng.choice(["", "", " raster 4"])
    threads, stages = rng.choice([128, 256, 256]), rng.choice([1, 2, 2, 3, 4])
    while stages > 1 and (bm + bn) * bk * bytes_each * stages > MOST_SHARED:
        stages -= 1
    a_shape, a_tile, a_at, a = ("K, M", (bk, bm), "k * %d, bm * %d" % (bk, bm), "As.T") if transposed_a else (
        "M, K", (bm, bk), "bm * %d, k * %d" % (bm, bk), "As")
    b_shape, b_tile, b_at, b = ("N, K", (bn, bk), "bn * %d, k * %d" % (bn, bk), "Bs.T") if transposed_b else (
        "K, N", (bk, bn), "k * %d, bn * %d" % (bk, bn), "Bs")
    precision = ", precision = tf32" if elements == "f32" and rng.random() < 0.7 else ""
    tolerance = "1e-2" if precision else TOLERANCE[results]
    m, n, k = extent(rng, bm), extent(rng, bn), extent(rng, bk)
    a_of, b_of = ("A[k, m]" if transposed_a else "A[m, k]"), ("B[n, k]" if transposed_b else "B[k, n]")
    fill = "" if elements != "i8" else """ {
    for (m in M, k in K) %s = i8((m * 7 + k * 3) %% 255 - 127);
    for (n in N, k in K) %s = i8((n * 13 + k * 5) %% 17 - 8);
}""" % (a_of, b_of)
    return f"""kernel {name}(A: {elements}[{a_shape}], B: {elements}[{b_shape}], C: out {results}[M, N]) {{
    grid (bm in ceildiv(M, {bm}), bn in ceildiv(N, {bn})) threads {threads}{options} {{
        shared   As: {elements}[{a_tile[0]}, {a_tile[1]}], Bs: {elements}[{b_tile[0]}, {b_tile[1]}];
        fragment acc: {sums}[{bm}, {bn}];

        fill(acc, 0);
        pipelined (k in ceildiv(K, {bk}), stages = {stages}) {{
            copy(A[{a_at}], As);
            copy(B[{b_at}], Bs);
            gemm({a}, {b}, acc{precision});
        }}
        copy(acc, C[bm * {bm}, bn * {bn}]);
    }}
}}

reference {name} {{
    for (m in M, n in N) {{
        var sum: f64 = 0;
        for (k in K) sum += f64({a_of}) * {b_of};
        C[m, n] = {"i32(sum)" if results == "i32" else "sum"};
    }}
}}

test {name} (M = {m}, N = {n}, K = {k}){fill} tolerance {tolerance};
"""


def options_of(rng):
    return rng.choice(["", "", " persistent"]) + rng.choice(["", " raster 4"])


def promoted(rng, name):
    """Products of 8-bit floats, added up in f32 apart from the tensor cores, with a scale for each row or without."""
    elements = rng.choice(["e4m3", "e4m3", "e5m2"])
    bm, bn, bk = rng.choice([64, 128, 128, 192]), 8 * rng.choice([4, 8, 12, 16, 20]), rng.choice([64, 128])
    stages, threads = rng.choice([1, 2, 3, 4]), rng.choice([128, 256])
    while bm * bn // threads > 64:
        bn = max(8, bn // 2 // 8 * 8)
    m, n, k = extent(rng, bm), extent(rng, bn), extent(rng, bk)
    scaled = rng.random() < 0.5
    read = f"parallel (i in {bm}) s[i] = scale[k, bm * {bm} + i];" if scaled else ""
    by, of = (" * s[i]", f" * scale[k / {bk}, m]") if scaled else ("", "")
    return f"""kernel {name}(A: {elements}[M, K], B: {elements}[N, K], scale: f32[ceildiv(K, {bk}), M], C: out f32[M, N]) {{
    grid (bm in ceildiv(M, {bm}), bn in ceildiv(N, {bn})) threads {threads}{options_of(rng)} {{
        shared   As: {elements}[{bm}, {bk}], Bs: {elements}[{bn}, {bk}];
        fragment acc: f32[{bm}, {bn}], part: f32[{bm}, {bn}], s: f32[{bm}];

        fill(acc, 0);
        fill(s, 1);
        pipelined (k in ceildiv(K, {bk}), stages = {stages}) {{
            copy(A[bm * {bm}, k * {bk}], As);
            copy(B[bn * {bn}, k * {bk}], Bs);
            {read}
            gemm(As, Bs.T, part, accumulate = false);
            parallel (i in {bm}, j in {bn}) acc[i, j] += part[i, j]{by};
        }}
        copy(acc, C[bm * {bm}, bn * {bn}]);
    }}
}}

reference {name} {{
    for (m in M, n in N) {{
        var sum: f64 = 0;
        for (k in K) sum += f64(A[m, k]) * B[n, k]{of};
        C[m, n] = sum;
    }}
}}

test {name} (M = {m}, N = {n}, K = {k}) tolerance 1e-2;
"""


def weights(rng, name):
    """16-bit activations by weights of 8 or 4 bits, which are the left operand, in registers: C = A W^T. A byte of 4-bit weights
    has those of two k, half of the step away."""
    elements, kind = rng.choice(["bf16", "bf16", "f16"]), rng.choice(["e4m3", "e5m2", "u8", "u8"])
    bm, bn, half = rng.choice([8, 16, 16, 32, 64, 128]), rng.choice([64, 64, 128]), rng.choice([32, 64])
    stages, threads, zero = rng.choice([1, 2, 3, 4]), rng.choice([128, 256]), rng.choice([0, 7, 8])
    step = 2 * half
    m, n, k = extent(rng, bm), extent(rng, bn), extent(rng, step)
    four = kind == "u8"
    columns, width = (f"ceildiv(K, {step}) * {half}", half) if four else ("K", step)
    scaled = four and rng.random() < 0.5
    by, of = (" * s[n]", f" * scale[k / {step}, n]") if scaled else ("", "")
    low, high = (f"(f32(Ws[n, j] & 15) - {zero}){by}", f"(f32(Ws[n, j] >> 4) - {zero}){by}") if four else (
        "Ws[n, j]", f"Ws[n, j + {half}]")
    value = f"""let byte = W[n, k / {step} * {half} + k % {half}];
            let weight = f64(k % {step} < {half} ? byte % 16 : byte / 16) - {zero};""" if four else "let weight = f64(W[n, k]);"
    fill = f" {{ for (n in N, b in {-(-k // step) * half}) W[n, b] = (n * 37 + b * 101) % 256; }}" if four else ""
    return f"""kernel {name}(A: {elements}[M, K], W: {kind}[N, {columns}], scale: {elements}[ceildiv(K, {step}), N], C: out f32[M, N]) {{
    grid (bn in ceildiv(N, {bn}), bm in ceildiv(M, {bm})) threads {threads}{options_of(rng)} {{
        shared   A0: {elements}[{bm}, {half}], A1: {elements}[{bm}, {half}], Ws: {kind}[{bn}, {width}];
        fragment w0: {elements}[{bn}, {half}], w1: {elements}[{bn}, {half}], s: {elements}[{bn}], acc: f32[{bn}, {bm}];

        fill(acc, 0);
        pipelined (k in ceildiv(K, {step}), stages = {stages}) {{
            copy(W[bn * {bn}, k * {width}], Ws);
            copy(A[bm * {bm}, k * {step}], A0);
            copy(A[bm * {bm}, k * {step} + {half}], A1);
            parallel (n in {bn}) s[n] = scale[k, bn * {bn} + n];
            parallel (n in {bn}, j in {half}) w0[n, j] = {low};
            gemm(w0, A0.T, acc);
            parallel (n in {bn}, j in {half}) w1[n, j] = {high};
            gemm(w1, A1.T, acc);
        }}
        transpose(acc, C[bm * {bm}, bn * {bn}]);
    }}
}}

reference {name} {{
    for (m in M, n in N) {{
        var sum: f64 = 0;
        for (k in K) {{
            {value}
            sum += A[m, k] * weight{of};
        }}
        C[m, n] = sum;
    }}
}}

test {name} (M = {m}, N = {n}, K = {k}){fill} tolerance 2e-2;
"""


def one(rng, i):
    return (promoted if i % 8 == 3 else weights if i % 8 == 7 else kernel)(rng, f"gemm_{i}")


def main():
    folder = pathlib.Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    folder.mkdir(parents=True, exist_ok=True)
    kernels = [one(rng, i) for i in range(count)]
    for first in range(0, count, KERNELS_A_FILE):
        text = "\n".join(kernels[first:first + KERNELS_A_FILE])
        (folder / f"random_gemm_{first // KERNELS_A_FILE}.tile").write_text(text)


main()
