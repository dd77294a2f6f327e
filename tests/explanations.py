#!/usr/bin/env python3
"""Every diagnostic has a page docs/reference/diagnostics/TNNNN.md, which `tilec explain` prints, and what the page says happens.

A page has blocks of tilec or of shell commands. One marked `fails` raises the code; the next one, of the same kind, succeeds
without it. A tilec block is built, or goes to the command that the mark names: "tile fails test --seed=3". A page without such
a block says "Raised by:" and which fault raises the code; a test mentions that code (tests/lit/diagnostics, or `// covers TNNNN`).

Usage: explanations.py TILEC SOURCE_DIR [--only REGEX] [-j JOBS]
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import tempfile

BUILD = ["build", "--emit=ptx", "--target=sm_90a", "-o", "/dev/null", "-R"]
COMMANDS = ("build", "test", "run", "opt", "bench", "tune")
BLOCK = re.compile(r"^```(tile|sh)( fails)?([^\n]*)\n(.*?)^```$", re.M | re.S)

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("tilec", type=pathlib.Path)
options.add_argument("source", type=pathlib.Path)
options.add_argument("--only", default="", metavar="REGEX", help="codes to check")
options.add_argument("-j", type=int, default=os.cpu_count(), metavar="JOBS")
options = options.parse_args()


def command_of(kind, words, text):
    if kind == "sh":
        return ["sh", "-c", text]
    if words[:1] and words[0] in COMMANDS:
        return ["tilec", words[0], "program.tile", *words[1:]]
    return ["tilec", *BUILD, "program.tile", *words]


def run(kind, words, text):
    """The exit code and all output of a block, run in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "tile":
            pathlib.Path(folder, "program.tile").write_text(text)
        environment = dict(os.environ, HOME=folder, PATH=f"{options.tilec.resolve().parent}:{os.environ['PATH']}",
                           TILEC_REPRO_DIR="none", CUDA_VISIBLE_DEVICES="")
        done = subprocess.run(command_of(kind, words, text), cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
        return done.returncode, done.stdout.decode(errors="replace")


def check_failing(code, severity, result):
    status, output = result
    if f"[{code}]" not in output:
        return f"the failing block does not raise it\n{output}"
    if severity == "ERROR" and status == 0:
        return f"the failing block ends with 0\n{output}"
    return None


def check_fixed(code, _, result):
    status, output = result
    if f"[{code}]" in output or status != 0:
        return f"the fixed block ends with {status}\n{output}"
    return None


def check_blocks(code, severity, text):
    blocks = BLOCK.findall(text)
    if not any(fails for _, fails, _, _ in blocks) and not re.search(r"^Raised by: ", text, re.M):
        yield "no block fails, and no line says 'Raised by:'"
    last, words = None, []
    for kind, fails, mark, program in blocks:
        if fails:
            if last == "tile":
                yield "a failing block is not followed by a fixed one"
            last, words = kind, shlex.split(mark)
        elif last != kind:
            yield "a fixed block does not follow a failing one"
        else:
            last = None
        yield (check_failing if fails else check_fixed)(code, severity, run(kind, words, program))
    if last == "tile":
        yield "the last failing block is not followed by a fixed one"


def check_page(code, severity, tested):
    path = options.source / f"docs/reference/diagnostics/{code}.md"
    if not path.exists():
        return ["there is no page"]
    text = path.read_text()
    problems = [] if re.match(rf"# {code}: \S", text) else [f"the title is not '# {code}: ...'"]
    if not BLOCK.search(text) and code not in tested:
        problems.append("no program and no test raises it")
    return problems + [problem for problem in check_blocks(code, severity, text) if problem]


def tested_codes():
    lit = (options.source / "tests/lit/diagnostics").rglob("*.t*")
    mentioned = [code for path in lit for code in re.findall(r"T\d{4}", path.read_text(errors="replace"))]
    units = (options.source / "tests").rglob("test_*.c")
    return set(mentioned + [code for path in units for code in re.findall(r"// covers (T\d{4})", path.read_text())])


table = (options.source / "support/diagnostics.def").read_text()
rows = {f"T{int(number):04d}": severity for number, severity in re.findall(r"^DIAG\(\w+,\s*(\d+),\s*(\w+),", table, re.M)}
chosen = {code: severity for code, severity in rows.items() if re.search(options.only, code)}
failures = [f"{path.name}: no row of support/diagnostics.def" for path in (options.source / "docs/reference/diagnostics").glob("*.md")
            if path.stem not in rows]
tested = tested_codes()
with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
    for code, problems in zip(chosen, pool.map(lambda row: check_page(*row, tested), chosen.items())):
        failures += [f"{code}: {problem}" for problem in problems]
print("\n".join(failures))
print(f"{len(chosen)} of {len(rows)} diagnostics, {len(failures)} problems")
raise SystemExit(1 if failures or not chosen else 0)
