#!/usr/bin/env python3
"""The programs of a folder under compute-sanitizer: memcheck, racecheck, initcheck and synccheck, side by side.

Usage: sanitize.py FOLDER [OPTIONS] [PROGRAM...]     FOLDER as made by `run.sh prepare`; programs: all but the random ones
    --jobs N        so many at a time (default: the processors this process may use)
    --timeout S     of a run (default 120)
    --budget S      starts no run, and ends those under way, after so many seconds (default: none)
    --record FILE   what is done, a line of JSON a run (default FOLDER/sanitize.jsonl): a further call goes on with the rest, and takes
                    the slowest first by it
    --tools A,B     some of the tools
    --again         forgets what did not come out clean or known, and runs it again

A run is one file under one tool, or one of its kernels and programs where the file is slow. The last line has the counts; exit status
1 where something was found or took too long, 2 where runs are left.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

TOOLS = ["racecheck", "memcheck", "initcheck", "synccheck"]   # the slowest first
# These files are run kernel by kernel, and come first where no record says how long a run takes.
SLOW = ["attention_mla", "cumulative_sum", "scans", "gemm_stream_k", "gemm_types", "gemm_orders", "sum", "softmax", "rmsnorm", "splits",
        "softmax_long", "names_and_blocks", "layer_norm_backward", "layer_norm", "attention_fp8_roles"]
# What comes of these and is no error of theirs: README.md says why.
KNOWN = {("initcheck", "attention_mla"): ("found", "timed out")} | {
    ("synccheck", name): ("failed",) for name in ("softmax", "rmsnorm", "layer_norm")}
FOUND = 9   # exit status of a run in which the tool found something


def runs_of(folder, programs, tools):
    names = programs or sorted(path.stem for path in (folder / "src").glob("*.tile") if not path.stem.startswith("random_"))
    for name in names:
        text = (folder / "src" / f"{name}.tile").read_text()
        for kernel in dict.fromkeys(re.findall(r"^test (\w+) ?\(", text, re.M)) if name in SLOW else [""]:
            for tool in tools:
                yield tool, name, kernel


def read_record(path, again):
    done = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        run = json.loads(line)
        done[run["tool"], run["program"], run["kernel"]] = run
    return {key: run for key, run in done.items() if not again or verdict(run) in ("clean", "known")}


def verdict(run):
    if run["code"] == 0:
        return "clean"
    what = {FOUND: "found", 124: "timed out"}.get(run["code"], "failed")
    return "known" if what in KNOWN.get((run["tool"], run["program"]), ()) else what


class Sanitizer:
    def __init__(self, options):
        self.options, self.start = options, time.monotonic()
        self.record = pathlib.Path(options.record or options.folder / "sanitize.jsonl")
        self.done = read_record(self.record, options.again)

    def order(self, run):
        slow = SLOW.index(run[1]) if run[1] in SLOW else len(SLOW)
        seconds = max((old["seconds"] for key, old in self.done.items() if key[1:] == run[1:]), default=0)
        return (-seconds, slow, TOOLS.index(run[0]))

    def one(self, run):
        tool, program, kernel = run
        left = self.options.budget - (time.monotonic() - self.start) if self.options.budget else self.options.timeout
        if left <= 1:
            return
        folder, began = self.options.folder, time.monotonic()
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20",
                   str(folder / "tilec-gpu"), "test", "--device=gpu", "--no-guards", f"--compiled={folder / 'cubin'}",
                   *([f"--only={kernel}"] if kernel else []), str(folder / "src" / f"{program}.tile")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   start_new_session=True)
        try:
            log, code = process.communicate(timeout=min(left, self.options.timeout))[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)   # with what it runs
            process.wait()
            if left < self.options.timeout:
                return   # the budget's end, not the run's fault
            code, log = 124, ""
        lines = log.splitlines()
        told = "\n".join([line for line in lines if line.startswith("=========") == (code == FOUND)][:12])
        self.note({"tool": tool, "program": program, "kernel": kernel, "code": code,
                   "seconds": round(time.monotonic() - began, 1)}, told)

    def note(self, run, told):
        self.done[run["tool"], run["program"], run["kernel"]] = run
        with self.record.open("a") as file:   # one write a line: threads do not mix
            file.write(json.dumps(run) + "\n")
        what = verdict(run)
        if what != "clean":
            head = f"{what}: {run['tool']} {run['program']}.tile {run['kernel']}, {run['seconds']} s"
            print("\n".join([head] if what == "known" or not told else [head, told]), flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition('Usage: ')[2])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--budget", type=float, default=0)
    parser.add_argument("--record")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--again", action="store_true")
    sanitizer = Sanitizer(options := parser.parse_intermixed_args())
    wanted = list(runs_of(options.folder, options.programs, options.tools.split(",")))
    todo = sorted((run for run in wanted if run not in sanitizer.done), key=sanitizer.order)
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(sanitizer.one, todo))
    done = [sanitizer.done[run] for run in wanted if run in sanitizer.done]
    counts = {what: sum(verdict(run) == what for run in done) for what in ("clean", "known", "found", "failed", "timed out")}
    print(f"sanitizer: {len(done)} of {len(wanted)} runs: " + ", ".join(f"{n} {what}" for what, n in counts.items()) +
          f"; {time.monotonic() - sanitizer.start:.0f} s")
    return 1 if len(done) > counts["clean"] + counts["known"] else 2 if len(done) < len(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
