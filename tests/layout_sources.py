#!/usr/bin/env python3
"""Each command in docs/notebook/layout-sources.md prints what the page says.

    layout_sources.py TILEC SOURCE_DIR

Rows are `| claim | command | prints | note |`; of what ends with ` ...` the beginning is compared; several lines are joined by ` ; `.
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys

FEWEST = 100   # rows with a command, so that a page which is not understood fails


def cell(text):
    return text.strip().replace("\\|", "|").strip("`")


def rows(page):
    for line in page.splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) == 6 and cells[2].strip().startswith("`") and cells[3].strip().startswith("`") and "---" not in line:
            if cell(cells[2]) != "tilec layout":
                yield cell(cells[2]), cell(cells[3])


def wrong(row):
    command, wanted = row
    done = subprocess.run([sys.argv[1], "layout", command], capture_output=True, text=True)
    printed = " ; ".join((done.stdout + done.stderr).strip().split("\n"))
    same = printed.startswith(wanted.removesuffix("...").rstrip()) if wanted.endswith("...") else printed == wanted
    return None if same else f"{command}\n    prints {printed}\n    not    {wanted}"


page = (pathlib.Path(sys.argv[2]) / "docs/notebook/layout-sources.md").read_text()
found = list(rows(page))
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    errors = list(filter(None, pool.map(wrong, found)))
if errors or len(found) < FEWEST:
    sys.exit("\n".join(errors) or f"the page has {len(found)} rows with commands")
print(f"{len(found)} commands print what the page says")
