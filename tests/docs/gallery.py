#!/usr/bin/env python3
"""docs/reference/gallery.md from examples/: gallery.py TILEC SOURCE_DIR [--check | --check-text | --text]

A row for each example: the formula that its first comment begins with, its speed by docs/notebook/performance.md, its lines of code, and the
instructions that its PTX has on each of a few architectures. --check compares with the page; --check-text leaves the instructions out, which takes
no compiler; --text keeps those of the page and adds those of new examples.
An example opens with three lines: what it computes, `// Shapes: ...`, `// To change: ...`.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

tilec, root, mode = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), (sys.argv[3:] or [""])[0]
PAGE = root / "docs/reference/gallery.md"
SPEEDS = root / "docs/notebook/performance.md"
DEVICE = "H200"   # the section of SPEEDS
KERNELS = {"gemm_thin": "gemm", "gemm_between": "gemm", "sum_rows": "sum", "embedding_gradient": "embedding"}   # of an example with another name
TARGETS = ["sm_80", "sm_90a", "sm_100a", "sm_120a"]
INSTRUCTIONS = [("wgmma", r"wgmma\.mma_async"), ("TMA", r"cp\.(reduce\.)?async\.bulk"), ("mma.sync", r"mma\.sync"), ("cp.async", r"cp\.async\.c[ag]")]
GROUPS = [("Matrix products", r"gemm"), ("Attention", r"attention|rotary|paged"), ("Convolutions", r"convolution"),
          ("Normalisations and losses", r"norm|softmax|cross_entropy"), ("Others", r"")]
HEAD = f"""# Gallery

Made from `examples/` by `tests/docs/gallery.py`; do not edit. Each example has a reference and tests: `tilec test examples/gemm.tile`.
{DEVICE}: the highest speed of the shapes measured, and the least and the most of the best peer ([all figures](../notebook/performance.md)).
Lines: of the file without comments, blank lines, reference and tests. The last columns: instructions in the PTX of any variant.
"""


def lines_of_code(text):
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"^reference .*?^}|^reference [^\n]*}$", "", text, flags=re.M | re.S)
    text = re.sub(r"^test .*?;$(?!\n    )", "", text, flags=re.M | re.S)
    return sum(1 for line in text.splitlines() if line.strip())


def speeds():
    """Of each example that was measured: its highest speed, and the range of its ratios to the best peer."""
    section = re.search(rf"^## {DEVICE}$.*?(?=^## )", SPEEDS.read_text(), re.M | re.S)[0]
    rows = re.findall(r"^\| (\w+) \| [^|]+ \| (\S+/s) \| ([\d.]+) \| [^|]* \| [^|]* \| ([\d.]+) \[", section, re.M)
    measured = {}
    for kernel, unit, speed, ratio in rows:
        measured.setdefault(KERNELS.get(kernel, kernel), []).append((float(speed), unit, ratio))
    cells = {}
    for name, found in measured.items():
        speed, unit, _ = max(found)
        ratios = sorted((ratio for *_, ratio in found), key=float)
        cells[name] = f"{speed:g} {unit}; {ratios[0]}" + (f" to {ratios[-1]}" if len(ratios) > 1 else "")
    return cells


def opening(path):
    """The formula; problems of the opening lines are printed."""
    first, second, third = path.read_text().split("\n")[:3]
    wanted = [(first, "// "), (second, "// Shapes: "), (third, "// To change: ")]
    for number, (line, start) in enumerate(wanted, 1):
        if not line.startswith(start):
            problems.append(f"{path.name}:{number}: an example opens with what it computes, `// Shapes:` and `// To change:`")
    return first[3:].rstrip(".").replace("|", "\\|")


def instructions(path, target):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.ptx"
        run = subprocess.run([tilec, "build", str(path), f"--target={target}", "--emit=ptx", "--record=none", "-o", str(out)],
                             capture_output=True, text=True)
        if run.returncode:
            return "does not fit" if run.returncode == 4 or "error[T06" in run.stderr or "error[T05" in run.stderr else f"? {run.stderr[:200]}"
        ptx = out.read_text()
        return ", ".join(name for name, pattern in INSTRUCTIONS if re.search(pattern, ptx)) or "loads, stores"


problems = []
examples = sorted((root / "examples").glob("*.tile"))
measured = speeds()
texts = {path: (opening(path), measured.get(path.stem, "-"), lines_of_code(path.read_text())) for path in examples}
if mode == "--check-text":
    old = dict(re.findall(r"^\| \[(\w+)\]\([^)]*\) \| (.*? \| .*? \| \d+) \|", PAGE.read_text(), re.M))
    new = {path.stem: " | ".join(map(str, cells)) for path, cells in texts.items()}
    problems += [f"{name}: the page says '{old.get(name)}', the example '{row}'" for name, row in new.items() if old.get(name) != row]
    problems += [f"{name}: there is no such example" for name in old if name not in new]
else:
    jobs = [(path, target) for path in examples for target in TARGETS]
    rows = dict(re.findall(r"^\| \[(\w+)\]\([^)]*\) \| .*? \| .*? \| \d+ \| (.*) \|$", PAGE.read_text(), re.M)) if mode == "--text" else {}
    found = {(path, target): cell for path in examples if path.stem in rows for target, cell in zip(TARGETS, rows[path.stem].split(" | "))}
    jobs = [job for job in jobs if job not in found]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found.update(zip(jobs, pool.map(lambda job: instructions(*job), jobs)))
    page, left = HEAD, list(examples)
    for title, pattern in GROUPS:
        chosen = [path for path in left if re.search(pattern, path.stem)]
        left = [path for path in left if path not in chosen]
        page += f"\n## {title}\n\n| example | computes | {DEVICE} | lines | {' | '.join(TARGETS)} |\n|---|---|---|---|{'---|' * len(TARGETS)}\n"
        for path in chosen:
            page += f"| [{path.stem}](../../examples/{path.name}) | {' | '.join(map(str, texts[path]))} | {' | '.join(found[path, target] for target in TARGETS)} |\n"
    if mode != "--check":
        PAGE.write_text(page)
    elif PAGE.read_text() != page:
        problems.append("docs/reference/gallery.md is not what tests/docs/gallery.py makes")
print("\n".join(problems) or f"{len(examples)} examples")
sys.exit(1 if problems else 0)
