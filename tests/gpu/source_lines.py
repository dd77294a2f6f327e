#!/usr/bin/env python3
"""Nsight Compute shows instructions at the lines of the `.tile` source that they were made of.

    source_lines.py prepare TILEC FOLDER               an example and its code, which can then travel
    source_lines.py run TILEC-GPU FOLDER [--ncu ncu]   prints the lines that it shows with instructions executed; 2: it cannot be run

Each line of the kernel that is a statement with arithmetic or a copy has to be among them.
"""
import argparse
import csv
import pathlib
import shutil
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/softmax.tile"
STATEMENTS = ("copy(x[b * ROWS, 0], v);", "reduce_max(v, top, axis = 1);", "reduce_sum(e, sum, axis = 1);", "y[b * ROWS + i, j] =")


def prepare(options):
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / EXAMPLE.name
    shutil.copy(EXAMPLE, path)
    subprocess.run([options.tilec, "test", "--device=gpu", "--target=sm_90a", f"--compile-only={options.folder / 'cubin'}", path], check=True)
    return 0


def shown_lines(text):
    """The lines of the source page behind which instructions were executed; None: there is no such page."""
    rows = list(csv.reader(line for line in text.split("\n") if line.startswith('"')))
    head = next((row for row in rows if row[:2] == ["Line No", "Source"]), None)
    if head is None or "Instructions Executed" not in head:
        return None
    count = head.index("Instructions Executed")
    return [row[1].strip() for row in rows if len(row) == len(head) and row[0].isdigit() and row[count].isdigit() and int(row[count]) > 0]


def run(options):
    command = [options.ncu, "--section", "SourceCounters", "--import-source", "yes", "--source-folders", options.folder, "--launch-count", "1",
               "--csv", "--page", "source", "--print-source", "cuda,sass", options.tilec, "test", "--device=gpu", f"--compiled={options.folder / 'cubin'}",
               options.folder / EXAMPLE.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=options.folder)
    except FileNotFoundError:
        print(f"no {options.ncu}")
        return 2
    shown = shown_lines(done.stdout)
    if shown is None:
        print(f"Nsight Compute shows no source:\n{(done.stdout + done.stderr)[-3000:]}")
        return 2
    print("\n".join(shown))
    missing = [text for text in STATEMENTS if not any(text in line for line in shown)]
    print(f"{len(shown)} lines with instructions; missing: {', '.join(missing) or 'none'}")
    return 1 if missing else 0


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("what", choices=["prepare", "run"])
parser.add_argument("tilec", type=lambda text: pathlib.Path(text).resolve())
parser.add_argument("folder", type=lambda text: pathlib.Path(text).resolve())
parser.add_argument("--ncu", default="ncu")
options = parser.parse_args()
sys.exit((prepare if options.what == "prepare" else run)(options))
