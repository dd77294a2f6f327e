"""Products by every wgmma instruction that the passes choose: all element types, the left operand in shared memory and in registers,
operands contiguous along k and, for 16 bits, along m and n, every number of columns.

Usage: wgmma_shapes.py FOLDER [COLUMNS...]   writes FOLDER/wgmma_<types>.tile, a kernel for each way and a test for each number of
                                             columns (all, or these)
       wgmma_shapes.py --check TILEC FOLDER  whether each kernel has its instruction, for sm_90a

The files run anywhere: `tilec test FOLDER/*.tile` on the emulator, tests/gpu/run.sh on a device.
"""

import pathlib
import re
import subprocess
import sys

TYPES = {   # name -> elements, sums, k of a tile and of an instruction, the instruction's name of them, tolerance
    "f16": ("f16", "f16", "f32", 64, 16, "f32_f16", 2e-5),
    "bf16": ("bf16", "bf16", "f32", 64, 16, "f32_bf16", 2e-5),
    "tf32": ("f32", "f32", "f32", 32, 8, "f32_tf32", 2e-3),
    "e4m3": ("e4m3", "e4m3", "f32", 128, 32, "f32_e4m3", 2e-3),
    "e5m2": ("e5m2", "e5m2", "f32", 128, 32, "f32_e5m2", 2e-3),
    "e4m3_e5m2": ("e4m3", "e5m2", "f32", 128, 32, "f32_e4m3_e5m2", 2e-3),
    "e5m2_e4m3": ("e5m2", "e4m3", "f32", 128, 32, "f32_e5m2_e4m3", 2e-3),
    "i8": ("i8", "i8", "i32", 128, 32, "i32_i8", 0),
    "u8_i8": ("u8", "i8", "i32", 128, 32, "i32_u8_i8", 0),
}
WIDE = [8 * i for i in range(1, 33)]
INTEGER = [8, 16, 24] + [16 * i for i in range(2, 17)]


def ways(name):
    """Of a: registers, along k, along m; of b: along k, along n."""
    if name in ("f16", "bf16"):
        return [(a, b) for a in ("r", "k", "m") for b in ("k", "n")]
    return [("r", "k"), ("k", "k")]


def columns_of(name, way):
    return INTEGER if TYPES[name][2] == "i32" else WIDE


def kernel(name, way, columns):
    a_type, b_type, sums, bk, _, _, tolerance = TYPES[name]
    a, b = way
    called = f"{name}_{a}{b}"
    a_shape, a_tile, a_at, a_of = ("K, M", f"{bk}, 64", f"k * {bk}, i * 64", "A[k, m]") if a == "m" else (
        "M, K", f"64, {bk}", f"i * 64, k * {bk}", "A[m, k]")
    b_shape, b_tile, b_at, b_of = ("K, N", f"{bk}, BN", f"k * {bk}, j * BN", "B[k, n]") if b == "n" else (
        "N, K", f"BN, {bk}", f"j * BN, k * {bk}", "B[n, k]")
    left = {"r": "left", "k": "As", "m": "As.T"}[a]
    in_registers = f"\n        fragment left: {a_type}[64, {bk}];" if a == "r" else ""
    move = f"\n            parallel (r in 64, c in {bk}) left[r, c] = As[r, c];" if a == "r" else ""
    precision = ", precision = tf32" if name == "tf32" else ""
    fill = "" if sums != "i32" else f""" {{
    for (m in M, k in K) {a_of} = {a_type}((m * 7 + k * 3) % {"251" if a_type == "u8" else "255 - 127"});
    for (n in N, k in K) {b_of} = i8((n * 13 + k * 5) % 17 - 8);
}}"""
    tests = "".join(f"test {called} (M = 72, N = {n + 16}, K = {bk + bk // 2}, BN = {n}){fill} tolerance {tolerance:g};\n"
                    for n in columns)
    return f"""kernel {called}[BN](A: {a_type}[{a_shape}], B: {b_type}[{b_shape}], C: out {sums}[M, N]) {{
    grid (i in ceildiv(M, 64), j in ceildiv(N, BN)) threads 128 {{
        shared   As: {a_type}[{a_tile}], Bs: {b_type}[{b_tile}];
        fragment acc: {sums}[64, BN];{in_registers}

        fill(acc, 0);
        pipelined (k in ceildiv(K, {bk}), stages = 2) {{
            copy(A[{a_at}], As);
            copy(B[{b_at}], Bs);{move}
            gemm({left}, {"Bs" if b == "n" else "Bs.T"}, acc{precision});
        }}
        copy(acc, C[i * 64, j * BN]);
    }}
}}
reference {called} {{
    for (m in M, n in N) {{
        var sum: f64 = 0;
        for (k in K) sum += f64({a_of}) * f64({b_of});
        C[m, n] = {"i32(sum)" if sums == "i32" else "sum"};
    }}
}}
{tests}"""


def write(folder, columns):
    folder.mkdir(parents=True, exist_ok=True)
    for name in TYPES:
        pieces = []
        for way in ways(name):
            wanted = [n for n in columns_of(name, way) if not columns or n in columns]
            if wanted:
                pieces.append(kernel(name, way, wanted))
        (folder / f"wgmma_{name}.tile").write_text("\n".join(pieces))


def check(tilec, folder):
    missing = 0
    for path in sorted(folder.glob("wgmma_*.tile")):
        name = path.stem.removeprefix("wgmma_")
        text = subprocess.run([tilec, "opt", "--target=sm_90a", path], capture_output=True, text=True, check=True).stdout
        found = set()
        for one in re.split(r"^(?=kernel )", text, flags=re.M):
            called = re.match(r"kernel (\w+)", one)
            for n, left in re.findall(r"wgmma\(m64n(\d+)k%d_%s, (\w+)\[" % TYPES[name][4:6], one):
                found.add((called[1], n, left.startswith("left")))
        for called, n in re.findall(r"^test (\w+) \(.*BN = (\d+)\)", path.read_text(), flags=re.M):
            if (called, n, called.startswith(name + "_r")) not in found:
                print(f"{called}: no wgmma of {n} columns")
                missing += 1
    return missing


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        sys.exit(check(sys.argv[2], pathlib.Path(sys.argv[3])) != 0)
    write(pathlib.Path(sys.argv[1]), [int(n) for n in sys.argv[2:]])
