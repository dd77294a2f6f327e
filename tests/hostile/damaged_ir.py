#!/usr/bin/env python3
"""Programs as passes print them, damaged: bytes, words and lines changed, dropped, doubled or moved. tilec compiles what comes
out, or says what is wrong with it; it does not crash, hang, or call itself broken.

    damaged_ir.py TILEC SOURCE [--rounds 300] [--seed 1] [-j JOBS] [--keep FOLDER]
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

PROGRAMS = [("vector_add", "sm_80", []), ("softmax", "sm_90a", ["N=4096"]), ("transpose", "sm_90a", []), ("gemm", "sm_80", []),
            ("gemm", "sm_90a", ["BM=128", "BN=128", "BK=64", "STAGES=3"]), ("cumulative_sum", "sm_90a", []), ("attention", "sm_90a", ["D=64"]),
            ("gemm_split_k", "sm_80", []), ("histogram", "sm_80", []), ("layer_norm", "sm_90a", [])]
LIMIT_S = 300
PIECES = ["0", "-1", "1", "32", "64", "128", "9223372036854775807", "1e30", "true", "inf", '""', "(", ")", "{", "}", "[", "]", ";", "thread", "warp",
          "shared", "fragment", "local", "f32", "bf16", "mbarrier", "tensormap", "break;", "async", '"((4,8),(2,2)):((2@1,1@0),(1@1,8@0))"', "layout \"(64):(1)\"", "role r threads 128 { }", "unroll (u in 4)",
          "for (q in 3)", "parallel (q in 128)", "if (true)", "while (false) { }", "let q = 1;", "var q: i64 = 2;", "grid (b in 1) threads 128 { }", "regs(acc)[0]", "acc", "As", "t"]
WORD = re.compile(r'"[^"]*"|@?\w+|[^\s\w]')
NUMBER = re.compile(r"\b\d+\b")


BUFFER = re.compile(r"\b(\w+): (?:in |out |inout )?(?:\w+)\[([^\]]*)\]")
OP = re.compile(r'^OP\(\w+, "(\w+)", (.*?),\s+(?:"(?:[^"\\]|\\.)*"\s*)+,\s+(.*?)\)$(?=\n(?:$|/|O|#))', re.M | re.S)
OPERAND = re.compile(r"OPERAND\((\w+), (\w+)([^)]*)\)")
ATTR = re.compile(r'^ATTR\(\w+, "(\w+)", "([isne*]*)"', re.M)
MECHANISM = re.compile(r'^VIA\(\w+, "(\w+)"', re.M)
operations, attributes, mechanisms = [], [], []   # of the tables: (name, [(operand, access, flags)]), (name, pattern), name


def read_tables(source):
    for name, _, operands in OP.findall((source / "ir/ops.def").read_text()):
        operations.append((name, OPERAND.findall(operands) or ([("src", "READ", ""), ("dst", "WRITE", "")] if "_OPERANDS" in operands else [])))
    attributes.extend(ATTR.findall((source / "ir/attrs.def").read_text()))
    mechanisms.extend(MECHANISM.findall((source / "ir/via.def").read_text()))
    if len(operations) < 80 or len(attributes) < 20 or len(mechanisms) < 8:
        sys.exit("damaged_ir: the tables have another form")


def some_place(text, rng):
    """An element of a buffer of the text."""
    buffers = BUFFER.findall(text)
    if not buffers:
        return "x[0]"
    name, shape = rng.choice(buffers)
    return f"{name}[{', '.join(rng.choice(['0', '0', '1', '8']) for _ in shape.split(','))}]" if rng.randrange(4) else name


def some_call(text, rng):
    name, operands = rng.choice(operations)
    given = []
    for operand, access, flags in operands:
        if "OPTIONAL" in flags and rng.randrange(2):
            continue
        value = rng.choice(["0", "1", "8", "64", "true"]) if access == "VALUE" else some_place(text, rng)
        if access == "NAME" and rng.randrange(2):
            value = rng.choice(["read", "relaxed", "device", "k128", "mn32", "m64n64k16_f32_bf16", "m16n8k16_f32_bf16"])
        given.append(f"{operand} = {value}" if "NAMED" in flags else value)
    return f"{name}({', '.join(given)})" + rng.choice([";", ";", ""])


def some_attribute(rng):
    name, pattern = rng.choice(attributes)
    made = {"i": lambda: rng.choice(["0", "1", "4", "128", "-8"]), "s": lambda: '"64,8"', "n": lambda: rng.choice(mechanisms), "e": lambda: "1"}
    return f"@{name}" + (f"({', '.join(made[letter]() for letter in pattern if letter != '*')})" if pattern else "")


def some_piece(text, rng):
    kind = rng.randrange(4)
    return rng.choice(PIECES) if kind < 2 else some_call(text, rng) if kind == 2 else some_attribute(rng)


def damage(text, rng):
    kind = rng.randrange(8)
    words = list(WORD.finditer(text))
    one, other = rng.choice(words), rng.choice(words)
    if kind == 0:   # a number becomes another
        numbers = list(NUMBER.finditer(text))
        n = rng.choice(numbers)
        value = rng.choice([0, 1, 2, 3, 7, int(n[0]) + 1, int(n[0]) - 1, int(n[0]) * 2, int(n[0]) // 2, 1 << 31, 1 << 62, rng.choice(numbers)[0]])
        return text[:n.start()] + str(value) + text[n.end():]
    if kind == 1:
        return text[:one.start()] + text[one.end():]
    if kind == 2:
        return text[:one.start()] + some_piece(text, rng) + " " + text[one.start():]
    if kind == 3:
        return text[:one.start()] + some_piece(text, rng) + text[one.end():]
    if kind == 4:
        return text[:one.start()] + other[0] + text[one.end():]
    lines = text.split("\n")
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    if kind == 5:
        del lines[at]
    elif kind == 6:
        lines.insert(to, lines[at])
    else:
        lines[at], lines[to] = lines[to], lines[at]
    return "\n".join(lines)


def stages(tilec, examples, folder):
    """The texts of all stages that differ, with their target."""
    out = []
    for name, target, defines in PROGRAMS:
        to = folder / f"{name}_{target}"
        words = [tilec, "opt", f"{examples}/{name}.tile", f"--target={target}", f"--dump-dir={to}", "-o", os.devnull]
        for define in defines:
            words += ["-D", define]
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
        texts = {path.read_text(): path.name for path in sorted(to.glob("*.tile"))}
        out += [(f"{name} {target} {path}", target, re.sub(r"^(test|reference)\b.*?^}\n|^test [^\n]*\n", "", text, flags=re.M | re.S))
                for text, path in texts.items()]
    return out


def attempt(job):
    tilec, folder, index, name, target, text = job
    path = folder / f"damaged{index}.tile"
    path.write_text(text)
    try:
        done = subprocess.run([tilec, "build", str(path), f"--target={target}", "--emit=ptx", "-o", os.devnull], capture_output=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return path, f"{name}: takes too long"
    told = done.stderr.decode("utf-8", "replace")
    if done.returncode not in (0, 1, 2, 3, 4) or "Sanitizer" in told or "runtime error:" in told:
        return path, f"{name}: exit {done.returncode}: {told[:700]}"
    if done.returncode and "error[T" not in told:
        return path, f"{name}: exit {done.returncode} and not a word"
    path.unlink()
    return path, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tilec", type=os.path.abspath)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    read_tables(arguments.source)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.keep or temporary)
        folder.mkdir(exist_ok=True)
        texts = stages(arguments.tilec, arguments.source / "examples", folder)
        rng = random.Random(arguments.seed)
        jobs = []
        for i in range(arguments.rounds):
            name, target, text = rng.choice(texts)
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                text = damage(text, rng)
            jobs.append((arguments.tilec, folder, i, name, target, text))
        wrong = 0
        with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
            for path, trouble in pool.map(attempt, jobs):
                wrong += trouble is not None
                if trouble:
                    print(f"{path.name}: {trouble}", flush=True)
        print(f"{len(texts)} texts, {len(jobs)} damaged, {wrong} wrong")
    return 1 if wrong else 0


sys.exit(main())
