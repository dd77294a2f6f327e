#!/usr/bin/env python3
"""Bad input to the command, systematically: whatever it is, tilec answers with an exit code of its own and, unless that is 0,
with a diagnostic; it does not crash, hang or call itself broken.

    hostile.py TILEC OPTIONS.DEF [--only REGEX] [--every 1] [-j JOBS] [--verbose]

--every N takes each N-th case of them all.

A case is a name, the command's words, and what else there is: standard input, environment, how the output is checked. Exit codes:
1 the source, 2 the command line, 3 the environment, 4 the target, 5 the device. A case names those that it may have.
"""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SMALL = """kernel add(x: f32[N], y: f32[N], z: out f32[N], by: f32) {
    tune BLOCK in {256, 128};
    grid (b in ceildiv(N, BLOCK)) threads 128 {
        parallel (i in BLOCK) z[b * BLOCK + i] = x[b * BLOCK + i] + by * y[b * BLOCK + i];
    }
}
reference add { for (i in N) z[i] = x[i] + by * y[i]; }
test add(N = 300, by = 2.0) tolerance 1e-5;
"""
LIMIT_S = 300   # for a sanitized build on a busy machine; else nothing here takes a second


@dataclasses.dataclass
class Case:
    name: str
    words: list
    codes: tuple = (1, 2, 3, 4)
    stdin: bytes = b""
    environment: dict = dataclasses.field(default_factory=dict)


# ---- the option table ----

VALUES = ["", " ", "-", "--", "-1", "0", "00", "1", "99999999999999999999", "9223372036854775807", "-9223372036854775808", "0x10", "1.5",
          "1e9", "nan", "=", "a=", "=1", "N=", "N=1", "BLOCK=0", "BLOCK=-1", "BLOCK=1e99", "BLOCK=99999999999999999999", "BLOCK=128,128",
          "BLOCK=[", ",", ",,", "sm_80,", "sm_80,sm_80", "all", "none", "%s%n%d", "\xff\xfe", "\t\n", "ä", "x" * 5000, "/", "/dev/full",
          "/dev/null", ".", "/proc/nowhere/x", "'", "\\", "$(true)", "*"]
ROW = re.compile(r'^OPTION\((\w+), "([a-z-]+)", (?:0|\'(.)\'), (NULL|"[^"]*"), ([A-Z |]+),', re.M)
NEEDS_DEVICE = {"bench", "tune"}   # end with 3 where there is none, with whatever comes before


def option_cases(table, file):
    for name, text, letter, argument, commands in ROW.findall(table):
        all_commands = "build test run opt".split() if commands == "ALL" else [c.strip().lower() for c in commands.split("|")]
        command = all_commands[0]
        operands = [] if command == "doctor" else [file] + (["N=5", "by=1"] if command in NEEDS_DEVICE | {"run"} else [])
        any_code = (0, 1, 2, 3, 4)
        for other in all_commands:
            yield Case(f"{other} --{text} at the end", [other] + ([file] if other != "doctor" else []) + [f"--{text}"],
                       (2,) if argument != "NULL" else any_code)
        if argument == "NULL":
            yield Case(f"--{text}=yes", [command] + operands + [f"--{text}=yes"], (2,))
            yield Case(f"--{text} twice", [command] + operands + [f"--{text}", f"--{text}"], any_code)
            continue
        for value in VALUES:
            yield Case(f"{command} --{text}={value[:30]!r}", [command] + operands + [f"--{text}={value}"], any_code)
        yield Case(f"--{text} twice", [command] + operands + [f"--{text}=1", f"--{text}", "2"], any_code)
        if letter:
            yield Case(f"-{letter} glued", [command] + operands + [f"-{letter}=="], any_code)


# ---- commands and operands ----

def command_cases(file):
    for words in ([], [""], [" "], ["-"], ["--"], ["---"], ["-x"], ["-ov"], ["--no-such"], ["nonsense"], ["\xff"], ["build"],
                  ["build", ""], ["build", file, file], ["build", "--", "-x"], ["test"], ["test", ""], ["run"], ["run", file, "N"],
                  ["run", file, "N="], ["run", file, "=5"], ["run", file, "N=5", "N=6"], ["run", file, "N=-1"],
                  ["run", file, "N=99999999999999999999"], ["run", file, "N=9223372036854775807", "by=1"], ["run", file, "N=1e30"],
                  ["run", file, "N=5", "by=x"], ["run", file, "x=/dev/null"], ["run", file, "x=/proc/nowhere.npy"], ["run", file, "x=/"],
                  ["run", file, f"x={file}"], ["run", file, "q=1"], ["bench"], ["tune"], ["opt"], ["opt", file, "--passes=,"],
                  ["opt", file, "--passes=none,none"], ["explain"], ["explain", ""], ["explain", "T"], ["explain", "T99999999999"],
                  ["explain", "-1"], ["docs"], ["docs", ""], ["docs", "x"], ["docs", "cli", "man"], ["layout"], ["layout", ""],
                  ["layout", "("], ["layout", "compose"], ["layout", "show", "((((", "x"], ["layout", "show", "9" * 400], ["help", "nonsense"],
                  ["targets", "x"], ["doctor", "x"], ["passes", "x"]):
        yield Case("tilec " + " ".join(repr(w[:40]) for w in words), words, (0, 1, 2, 3))


# ---- sources ----

def nested(opening, closing, count=100_000):
    return f"kernel f(x: out f32[4]) {{ grid (b in 1) threads 32 {{ x[0] = {opening * count}1{closing * count}; }} }}"


def statements(opening, closing, count=2_000):
    return f"kernel f(x: out f32[4]) {{ grid (b in 1) threads 32 {{ {opening * count} x[0] = 1; {closing * count} }} }}"


def doubling(count):
    """Bodies that are written out `count` times over if a step of the compiler repeats what is nested, or named before, twice."""
    deep = lambda opening, seed, closing: f"y[i] = {opening * count}{seed}{closing * count};"
    lets = lambda each, use: "let a0 = i; " + " ".join(f"let a{k + 1} = {each.format(f'a{k}')};" for k in range(count)) + f" {use.format(f'a{count}')}"
    yield "gathers", deep("x[", "i", "]")
    yield "indices of stores", f"y[{'x[' * count}i{']' * count}] = 1;"
    yield "indices of atomics", f"atomic_add(y[{'x[' * count}i{']' * count}], 1);"
    yield "choices by loads", deep("(", "x[i]", " > 2 ? x[i] : 3)")
    yield "choices by indices", deep("i32(", "i", " > 2 ? i : 3)")
    yield "choices of indices", deep("x[", "i", " > 2 ? i : 3]")
    yield "comparisons", deep("i32(", "x[i]", " > 2)")
    yield "remainders", deep("i32(", "(i * N)", " % (N + i))")
    yield "bounds", deep("min(i32(i), max(3, ", "x[i]", "))")
    yield "lets that are squared", lets("{0} * {0} + 1", "y[i] = x[{0}];")
    yield "lets that are bounded", lets("min({0}, N - {0})", "y[i] = x[{0}];")
    yield "lets that choose", lets("{0} > 2 ? {0} + 1 : {0} - 3", "y[i] = x[{0}];")
    yield "lets of conditions", lets("({0} > 3 && i > 2) || ({0} < 2 && i < 100) ? 1 : 0", "if ({0} > 0) y[i] = 1;")
    yield "a condition of a while", f"var r: i32 = 3; while ({'x[' * count}r{']' * count} > 2) r -= 1; y[i] = r;"


def long(count):
    """Expressions of so many terms, each a node over all before it."""
    term = lambda k: f"(i * {k + 3}) / {k % 7 + 2} % {k % 11 + 5}"
    terms = " + ".join(map(term, range(count)))
    yield "loads", f"y[i] = x[{terms}];"
    yield "stores", f"y[{terms}] = 1;"
    yield "atomics", f"atomic_add(y[{terms}], 1);"
    yield "comparisons", f"if ({terms} > N) y[i] = 1;"
    yield "conditions", f"if ({' && '.join(f'{term(k)} > x[i]' for k in range(count))}) y[i] = 1;"
    yield "unknowns", "y[i] = x[" + " + ".join(f"(i * {k + 3}) / (N + {k % 7 + 2}) % {k % 11 + 5}" for k in range(count)) + "];"
    yield "bits", "y[i] = x[" + " ^ ".join(map(term, range(count))) + "];"
    yield "sums of loads", "y[i] = " + " + ".join(f"x[{term(k)}]" for k in range(count)) + ";"
    yield "lets", "let a0 = i; " + " ".join(f"let a{k + 1} = a{k} + {term(k)};" for k in range(count)) + f" y[i] = x[a{count}];"


def pipeline(count):
    tiles = "".join(f"shared t{i}: f32[16];\n" for i in range(count))
    steps = "".join(f"copy(x[k * 16], t{i}); parallel (i in 16) y[i] += t{i}[i];\n" for i in range(count))
    return f"kernel f(x: f32[N], y: out f32[16]) {{ grid (b in 1) threads 32 {{ {tiles} pipelined (k in N / 16, stages = 2) {{ {steps} }} }} }}"


def conversions(count):
    each = ("fragment a{0}: f32[32, 32], b{0}: f32[32]; copy(x[{0} * 32, 0], a{0}); reduce_sum(a{0}, b{0}, axis = 0);\n"
            "parallel (i in 32, j in 32) a{0}[i, j] *= b{0}[i]; copy(a{0}, y[{0} * 32, 0]);\n")
    return f"kernel f(x: f32[N, 32], y: out f32[N, 32]) {{ grid (b in 1) threads 32 {{ {''.join(map(each.format, range(count)))} }} }}"


def sources():
    small = SMALL.encode()
    yield "empty", b"", (1,)
    yield "blanks", b" \n\t\r\n", (1,)
    yield "comment", b"// nothing", (1,)
    yield "CRLF", small.replace(b"\n", b"\r\n"), (0,)
    yield "CR", small.replace(b"\n", b"\r"), (0, 1)
    yield "byte order mark", b"\xef\xbb\xbf" + small, (0, 1)
    yield "UTF-16", SMALL.encode("utf-16"), (1,)
    yield "NUL first", b"\0" + small, (1,)
    yield "NUL within", small.replace(b"grid", b"gr\0id"), (1,)
    yield "NUL last", small + b"\0", (1,)
    yield "not UTF-8", small.replace(b"grid", b"gr\xffid"), (1,)
    yield "not UTF-8 in a comment", b"// \xff\xfe\n" + small, (0, 1)
    yield "half a character", small + b"// \xe2\x82", (0, 1)
    yield "no newline at the end", small.rstrip(), (0,)
    yield "one long line", b"// " + b"x" * 10_000_000 + b"\n" + small, (0,)
    yield "one long line with an error", b"x" * 1_000_000 + b" ?" + small.replace(b"\n", b" "), (1,)
    yield "many lines", b"\n" * 1_000_000 + b"?", (1,)
    yield "many errors", b"?;\n" * 100_000, (1,)
    yield "a long name", small.replace(b"add", b"a" * 100_000), (0, 1)
    yield "a long number", small.replace(b"256", b"2" * 100_000), (1,)
    yield "a long string", b'import "' + b"x" * 100_000 + b'";', (1, 3)
    yield "an open comment", small + b"/*", (1,)
    yield "an open string", b'import "x', (1,)
    yield "importing itself", b'import "case.tile";\n' + small, (0, 1)
    yield "importing a folder", b'import "/";\n' + small, (1, 3)
    yield "importing a device", b'import "/dev/zero";\n' + small, (1, 3)
    for name, opening, closing in (("parentheses", "(", ")"), ("minus", "- ", ""), ("not", "!", ""), ("sums", "1 + (", ")"),
                                   ("choices", "1 > 0 ? 1 : ", ""), ("calls", "exp(", ")"), ("casts", "f32(", ")"), ("indices", "x[", "]"),
                                   ("a long sum", "1 + ", ""), ("a long product", "x[0] * ", "")):
        yield f"deep {name}", nested(opening, closing).encode(), (0, 1)
    for name, opening, closing in (("blocks", "{", "}"), ("ifs", "if (true) {", "}"), ("elses", "if (b > 1) { } else ", ""),
                                   ("loops", "for (i in 1) {", "}"), ("loops without braces", "for (i in 1) ", ""),
                                   ("statements", "x[1] = 2;", ""), ("lets", "let y = 1; {", "}"), ("attributes", "@stages(2) ", "")):
        yield f"deep {name}", statements(opening, closing).encode(), (0, 1)
    for name, body in doubling(30):
        yield f"doubling {name}", f"kernel f(x: i32[N], y: inout i32[N]) {{ grid (b in 1) threads 128 {{ parallel (i in 128) {{ {body} }} }} }}".encode(), (0,)
    for name, body in long(800):
        yield f"long {name}", f"kernel f(x: i32[N], y: inout i32[N]) {{ grid (b in 1) threads 128 {{ parallel (i in 128) {{ {body} }} }} }}".encode(), (0,)
    yield "many stores", statements("x[1] = 2;", "", 10_000).encode(), (0, 1)
    yield "many shared tiles", statements("".join(f"shared t{i}: f32[4]; fill(t{i}, 1); copy(t{i}, x);\n" for i in range(200)), "", 1).encode(), (0, 1)
    yield "many tiles in a pipeline", pipeline(400).encode(), (0, 1)
    yield "many conversions", conversions(200).encode(), (0, 1)
    yield "many parameters", ("kernel f(" + ", ".join(f"x{i}: f32[N]" for i in range(20_000)) + ") { }").encode(), (1,)
    yield "many dims", ("kernel f(x: f32[" + ", ".join("1" for i in range(10_000)) + "]) { }").encode(), (1,)
    yield "many tunables", small.replace(b"{256, 128}", b"{" + b", ".join(b"%d" % i for i in range(1, 20_000)) + b"}"), (0, 1, 4)
    yield "unknown braces", b"}" * 100_000, (1,)
    numbers = ("0", "-1", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "99999999999999999999999", "1 / 0", "1 % 0",
               "-9223372036854775807 - 1", "1 << 63", "1 << 64", "1 << -1", "9223372036854775807 + 1", "4294967296", "2147483648", "0.5",
               "true", "N", "inf", "1e999", "ceildiv(1, 0)", "0x1p9999", "-(-9223372036854775807 - 1)", "(-9223372036854775807 - 1) / -1",
               "(-9223372036854775807 - 1) % -1", "9223372036854775807 * 9223372036854775807")
    places = {"tune": ("{256, 128}", "{%s}"), "threads": ("threads 128", "threads %s"), "grid": ("ceildiv(N, BLOCK)", "%s"),
              "extent": ("i in BLOCK", "i in %s"), "shape": ("x: f32[N]", "x: f32[%s]"), "test": ("N = 300", "N = %s"),
              "index": ("z[b * BLOCK + i]", "z[%s]"), "stages": ("parallel (", "pipelined (k in 4, stages = %s) { } parallel ("),
              "const": ("kernel", "const C = %s; kernel"), "shared": ("parallel", "shared s: f32[%s]; parallel"),
              "fragment": ("parallel", "fragment s: f32[%s]; parallel"), "local": ("parallel", "local s: f32[%s]; parallel"),
              "layout": ("parallel", 'shared s: f32[32] layout "(%s):(1)"; parallel'), "cluster": ("threads", "cluster (%s) threads"),
              "persistent": ("threads", "persistent %s threads"), "resident": ("grid", "@min_blocks(%s) grid"),
              "raster": ("threads", "raster %s threads"), "tolerance": (");\n", ") tolerance %s;\n")}
    for place, (what, form) in places.items():
        for number in numbers:
            text = SMALL.replace(what, form % number, 1) if place != "tolerance" else SMALL.replace("1e-5", number)
            yield f"{place} = {number}", text.encode(), (0, 1, 3, 4)


def source_cases(folder):
    for i, (name, text, codes) in enumerate(sources()):
        path = folder / f"source{i}" / "case.tile"
        path.parent.mkdir()
        path.write_bytes(text)
        yield Case(f"source: {name}", ["build", str(path), "--emit=ptx", "-o", os.devnull], codes)
        if len(text) < 10_000 and not re.search(r"= (2147483648|4294967296|9223372036854775807)$", name):   # would run long, as asked
            yield Case(f"test: {name}", ["test", str(path)], codes)


def stdin_cases(file):
    yield Case("standard input", ["build", "-", "--emit=ptx", "-o", "-"], (0,), stdin=SMALL.encode())
    yield Case("empty standard input", ["build", "-", "--emit=ptx"], (1,))
    yield Case("bytes on standard input", ["test", "-"], (1,), stdin=bytes(range(256)) * 100)
    yield Case("an endless file", ["build", "/dev/zero", "--emit=ptx"], (1, 3))


# ---- files and folders ----

def file_cases(folder, file):
    loop = folder / "loop.tile"
    loop.symlink_to(loop)
    (folder / "folder.tile").mkdir()
    for name in ("/proc/nowhere/x.tile", str(folder), str(folder / "folder.tile"), str(loop), "/proc/self/mem", "x" * 5000 + ".tile",
                 "/dev/null", file + "/x"):
        for command in ("build", "test", "opt", "run", "bench", "tune"):
            folders = (2,) if name.startswith(str(folder)) and name != str(loop) and command == "test" else ()   # without a file
            yield Case(f"{command} {name[-30:]}", [command, name], (1, 3, *folders))
    pipe = str(folder / "pipe")
    os.mkfifo(pipe)
    for words in (["build", pipe], ["test", pipe], ["opt", pipe], ["run", pipe], ["fmt", pipe], ["bench", pipe], ["tune", pipe], ["run", file, f"x={pipe}"],
                  ["run", file, "N=5", "by=1", "-o", f"z={pipe}"], ["build", file, f"--record={pipe}", "--emit=ptx", "-o", os.devnull],
                  ["layout", f"--expand={pipe}"], ["build", "/proc/kmsg"], ["build", "/dev/tty"], ["build", file, f"--import-root={pipe}"]):
        yield Case("a named pipe: " + " ".join(words)[-60:], words, (0, 1, 2, 3))
    for emit in ("ptx", "tile", "manifest", "header"):
        yield Case(f"--emit={emit} to a named pipe", ["build", file, f"--emit={emit}", "-o", pipe], (3,))
    for emit in ("tile", "llvm", "ptx", "cubin", "sass", "manifest", "header", "layouts"):
        for name in ("/dev/full", str(folder), "/proc/nowhere/x", file + "/x", "", "x" * 5000):
            folders = (0,) if name == str(folder) else ()   # the file gets its usual name there
            yield Case(f"--emit={emit} -o {name[-30:]!r}", ["build", file, f"--emit={emit}", "-o", name], (2, 3, *folders))
    yield Case("two products, /dev/full", ["build", file, "--emit=ptx,tile", "-o", "/dev/full/x"], (3,))
    for option in ("--dump-dir=/dev/full", "--dump-dir=/proc/none", f"--dump-dir={file}", "--dump-dir="):
        yield Case(option[-40:], ["opt", file, option, "-o", os.devnull], (2, 3))
    for option in ("/dev/null", "/proc/nowhere", file, ""):
        yield Case(f"--compile-only={option[-20:]}", ["test", file, "--device=gpu", f"--compile-only={option}", "--target=sm_80"], (2, 3))
        yield Case(f"--compiled={option[-20:]}", ["test", file, "--device=gpu", f"--compiled={option}", "--target=sm_80"], (1, 2, 3))
    for option in ("z=/dev/full", "z=/proc/nowhere/z.npy", f"z={folder}", "z=", "=z", "z", "q=/tmp/q.npy", "x=/dev/full"):
        yield Case(f"run -o {option[-20:]}", ["run", file, "N=5", "by=1", "-o", option], (0, 1, 2, 3))


def npy_cases(folder, file):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }"
    good = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.ljust(117) + b"\n" + bytes(20)
    bad = {"empty": b"", "good": good, "short": good[:-1], "long": good + b"x", "no header": good[:10], "version": good[:6] + b"\x09" + good[7:],
           "header size": good[:8] + b"\xff\xff" + good[10:], "type": good.replace(b"<f4", b">f8"), "object": good.replace(b"<f4", b"|O"),
           "order": good.replace(b"False", b"True "), "negative": good.replace(b"(5,)", b"(-5,"), "huge": good.replace(b"(5,), }", b"(99999999999999999999,), }")[:148],
           "overflow": good.replace(b"(5,), }  ", b"(4294967296,4294967296,4294967296),}")[:148], "no shape": good.replace(b"shape", b"shope")}
    for name, data in bad.items():
        path = folder / f"{name}.npy"
        path.write_bytes(data)
        yield Case(f"npy: {name}", ["run", file, f"x={path}", "by=1"], (0, 1, 3))
    for cut in range(0, len(good), 9):
        path = folder / f"cut{cut}.npy"
        path.write_bytes(good[:cut])
        yield Case(f"npy cut at {cut}", ["run", file, f"x={path}", "by=1"], (1, 3))


# ---- tuning records ----

ROW_OF_RECORD = ('{"kernel": "add", "text": "0", "target": "sm_80", "device": "d", "shape": {"N": 1}, "tuned": {"BLOCK": 128}, '
                 '"us": 1, "us_low": 1, "us_high": 1}\n')


def record_cases(folder, file):
    texts = [ROW_OF_RECORD[:i] for i in range(0, len(ROW_OF_RECORD), 5)]
    for key in re.findall(r'"(\w+)":', ROW_OF_RECORD):
        for value in ("null", "true", "-1", "1e999", '""', '"\\ud800"', "[]", "{}", "[" * 5000, "99999999999999999999", '"\\u0000"'):
            texts.append(re.sub(rf'"{key}": ("[^"]*"|\{{[^}}]*\}}|[\d.]+)', lambda m: f'"{key}": {value}', ROW_OF_RECORD, count=1))
        texts.append(re.sub(rf'"{key}": ("[^"]*"|\{{[^}}]*\}}|[\d.]+)(, )?', "", ROW_OF_RECORD, count=1))
    texts += ["", "\n", "x", "\0", "\xff", "[]", "{}", "null", ROW_OF_RECORD * 2, ROW_OF_RECORD.replace("add", "other"), ROW_OF_RECORD + "x",
              ROW_OF_RECORD.replace("BLOCK", "OTHER"), ROW_OF_RECORD.replace("128", "7"), ROW_OF_RECORD.replace('"us"', '"more": {}, "us"'),
              "{" * 100_000, "[" * 100_000, '{"a":' * 100_000, '"' + "x" * 1_000_000]
    for i, text in enumerate(texts):
        path = folder / f"{i}.tune"
        path.write_bytes(text.encode("latin-1"))
        yield Case(f"record: {text[:60]!r}", ["build", file, "--target=sm_80", f"--record={path}", "--emit=manifest", "-o", os.devnull], (0, 1, 3))


# ---- the assembler ----

FAKES = {
    "fails": ("exit 1", (3,)), "says nothing": ("exit 0", (3,)), "talks": ("head -c 3000000 /dev/zero | tr '\\0' x; exit 1", (3,)),
    "talks, ends well": ("echo error: rubbish; echo done", (3,)), "empties": (": >$out", (3,)), "speaks bytes": ("head -c 5000 /dev/urandom; exit 7", (3,)),
    "mistake": ("echo 'ptxas input, line 9; error : Unknown modifier'; exit 255", (70,)),
    "dies": ("kill -SEGV $$", (3,)), "bytes": ("head -c 1000 /dev/zero >$out", (3,)), "an ELF's head": ("printf '\\177ELF' >$out", (3,)),
    "odd messages": ("printf 'ptxas info : Compiling entry function \\nspill stores bytes 9999999999999999999999 registers'; exit 1", (3,)),
    "does not know options": ("echo \"ptxas fatal : Unknown option 'x'\"; exit 1", (3,)),
    "never reads": ("exec >&- 2>&-; exit 255", (3,)),
}   # 70: it names a mistake in the PTX, and that is tilec's (T0812)


def assembler_cases(folder, file):
    for name, (script, codes) in FAKES.items():
        path = folder / f"ptxas {name}"
        path.write_text("#!/bin/sh\nout=; for a; do [ \"$o\" = -o ] && out=$a; o=$a; done\n" + script + "\n")
        path.chmod(0o755)
        yield Case(f"ptxas {name}", ["build", file, f"--ptxas={path}", "-o", str(folder / "out.cubin")], codes)
        yield Case(f"doctor, ptxas {name}", ["doctor", f"--ptxas={path}"], (0, 3))
    plain = folder / "not executable"
    plain.write_text("x")
    binary = folder / "no format"
    binary.write_bytes(b"\0\1\2\3")
    binary.chmod(0o755)
    for path in ("", "/proc/nowhere/ptxas", str(folder), str(plain), str(binary), "/dev/null", "x" * 5000):
        yield Case(f"--ptxas={path[-20:]!r}", ["build", file, f"--ptxas={path}", "-o", str(folder / "out.cubin")], (2, 3))
    nowhere = {"PATH": "", "CUDA_HOME": "/proc/nowhere", "CUDA_PATH": "", "LD_LIBRARY_PATH": ""}
    yield Case("no ptxas", ["build", file, "-o", str(folder / "out.cubin")], (0, 3), environment=nowhere)
    yield Case("no PATH", ["doctor"], (0, 3), environment=nowhere)
    yield Case("a long PATH", ["doctor"], (0, 3), environment={"PATH": "/x:" * 20_000 + ":::", "CUDA_HOME": "x" * 5000})
    for variable in ("TILEC_RECORD", "NO_COLOR", "CUDA_HOME"):
        for value in ("", "/", "\xff", "x" * 5000):
            yield Case(f"{variable}={value[:9]!r}", ["build", file, "--emit=ptx", "-o", os.devnull], (0, 1, 2, 3), environment={variable: value})


# ---- artefacts ----

def artefact_cases(tilec, folder, file):
    cubin = folder / "add.cubin"
    done = subprocess.run([tilec, "build", file, "--target=sm_80", "-o", str(cubin)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the artefact to damage does not compile: {done.stderr}")
    data = cubin.read_bytes()
    cuts = [data[:i] for i in (0, 1, 4, 63, 64, 65, len(data) // 2, len(data) - 1)]
    offset = data.find(b'"entries"')
    changed = [data[:at] + b"\xff" * 8 + data[at + 8:] for at in list(range(16, 64, 8)) + [offset, offset + 40] +
               list(range(len(data) - 512, len(data), 64))]
    changed += [data.replace(b'"threads": 128', value) for value in (b'"threads": -12', b'"threads": 9e9', b'"threads": nul')]
    for i, bad in enumerate(cuts + changed):
        path = folder / f"bad{i}.cubin"
        path.write_bytes(bad)
        for command in ("run", "bench"):
            words = [command, file, "N=5", "by=1", f"--artefact={path}"] + (["--device=gpu"] if command == "run" else [])
            yield Case(f"{command}, artefact {i}", words, (1, 3))


def cases(arguments, folder):
    file = str(folder / "small.tile")
    pathlib.Path(file).write_text(SMALL)
    yield from option_cases(pathlib.Path(arguments.options).read_text(), file)
    yield from command_cases(file)
    for make in (source_cases, stdin_cases, file_cases, npy_cases, record_cases, assembler_cases):
        piece = folder / make.__name__
        piece.mkdir()
        yield from make(piece, file) if make not in (source_cases, stdin_cases) else make(piece if make is source_cases else file)
    piece = folder / "artefacts"
    piece.mkdir()
    yield from artefact_cases(arguments.tilec, piece, file)


def check(tilec, folder, case):
    """What is wrong, or None."""
    environment = {**os.environ, **case.environment}
    try:
        words = [w.encode("latin-1", "replace") if any(ord(c) in (0xff, 0xfe) for c in w) else w for w in case.words]
        done = subprocess.run([tilec] + words, input=case.stdin, capture_output=True, timeout=LIMIT_S, env=environment, cwd=folder)
    except subprocess.TimeoutExpired:
        return "takes too long"
    told = done.stderr.decode("utf-8", "replace")
    if done.returncode not in case.codes:
        return f"exit {done.returncode}, not one of {case.codes}: {told[-1500:]}"
    if "AddressSanitizer" in told or "runtime error:" in told or "LeakSanitizer" in told:
        return told[-3000:]
    if done.returncode and not re.search(r"(error|warning)\[T\d{4}\]|FAIL|layout: |Exit codes", told + done.stdout.decode("utf-8", "replace")):
        return f"exit {done.returncode} without a diagnostic: {told[-500:]!r}"
    if len(told) > 200_000:
        return f"says {len(told)} characters"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tilec", type=os.path.abspath)
    parser.add_argument("options")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hostile"))
    (folder / "work").mkdir()
    wrong = 0
    try:
        chosen = [case for case in cases(arguments, folder) if re.search(arguments.only, case.name)][::arguments.every]
        with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
            for case, trouble in zip(chosen, pool.map(lambda c: check(arguments.tilec, folder / "work", c), chosen)):
                wrong += trouble is not None
                if trouble or arguments.verbose:
                    print(f"{case.name}: {trouble or 'ok'}", flush=True)
        print(f"{len(chosen)} cases, {wrong} wrong")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong or not chosen else 0


sys.exit(main())
