#!/usr/bin/env python3
"""Faults of the passes are noticed by the tests: single ones, drawn evenly over the sources of the passes.

    faults.py SOURCE_DIR BUILD_DIR [--seed S] [--count N] [-j JOBS]      (a release build by Ninja)

A copy of the tree is built once, with all faults of a draw in it (draw.py); the variable TILEC_FAULT plants one of them. Each
step of tests/run.py runs first with none, and notes which faults it reaches and where these make a difference (fault.c). Then
each fault is planted, and the steps in which it differs run, the shortest first, until one fails. README.md says what the answer means.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading

import draw

HEADERS = ("support", "layout", "target", "ir", "passes")
MEMORY = 8 << 30         # bytes of a process; a fault may ask for all there is
PATIENCE = (5, 10)       # seconds, and times as long as without the fault, until a step has failed: of CPU, so that load fails none
DEADLOCK = 1200          # seconds of a step that waits for nothing
BATCH = 8                # steps of lit in one process
NO_ANSWER = {"release/own_", "release/any_"}   # steps about memory, which notice every change of the number of requests


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


# --- The copy. ---

class Copy:
    def __init__(self, source, build, root):
        self.source, self.root = source, root
        self.commands = {e["file"]: e for e in json.loads((build / "compile_commands.json").read_text())}

    def take(self, *folders):
        """Files of the tree, as they are now."""
        for name in run(["git", "ls-files", "-co", "--exclude-standard", *folders], cwd=self.source).stdout.splitlines():
            if (self.source / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.source / name, self.root / name)
        if (self.source / ".deps").exists() and not (self.root / ".deps").exists():
            (self.root / ".deps").symlink_to(self.source / ".deps")

    def check(self, name, text):
        """What the compiler says of another text of a source."""
        entry = self.commands[str(self.source / name)]
        words = shlex.split(entry["command"])
        words = words[:words.index("-o")] + ["-w", "-Werror=incompatible-pointer-types", "-Werror=int-conversion", "-fsyntax-only"]
        return run(words + ["-x", "c", "-"], input=headed(text, ""), cwd=entry["directory"]).stderr

    def plant(self, name, text):
        (self.root / name).write_text(headed(text, "3"))   # 3: like a header of the system, of which there are no warnings

    def make(self):
        shutil.copy2(self.root / "tests/faults/fault.c", self.root / "passes/fault.c")
        for command in (["cmake", "--preset", "release"],
                        ["cmake", "--build", "--preset", "release", "-j", str(len(os.sched_getaffinity(0)))]):
            done = run(command, cwd=self.root)
            if done.returncode:
                sys.exit(f"{' '.join(command)}\n{(done.stdout + done.stderr)[-3000:]}")


def headed(text, flags):
    return f'#include "tests/faults/fault.h"\n# 1 "fault.c" {flags}\n' + text


def names_of(source):
    return sorted(str(path.relative_to(source)) for path in (source / "passes").rglob("*.c"))


def draw_all(copy, count, seed, pool):
    """The faults, numbered from 1, in the sources of the copy."""
    texts = [path.read_text() for folder in HEADERS for path in (copy.source / folder).rglob("*.[hc]")]
    enumerators, names = draw.enumerators_of(texts), names_of(copy.source)
    more = set(random.Random(seed).sample(names, count % len(names)))

    def draw_of(name):
        source = draw.Source((copy.source / name).read_text(), enumerators)
        draw.without_unlike_swaps(source, lambda text: copy.check(name, text))
        size = count // len(names) + (name in more)
        return name, source, draw.draw(source, size, lambda text: copy.check(name, text), f"{seed} {name}") if size else []

    found = []
    for name, source, faults in pool.map(draw_of, names):
        for fault in faults:
            found.append({"id": len(found) + 1, "file": name, "line": fault.line, "kind": fault.kind, "what": fault.what})
            fault.id = len(found)
        copy.plant(name, draw.rewritten(source.text, faults))
    return found


# --- The steps. ---

class Steps:
    """The steps of the copy, run one by one."""

    def __init__(self, root, longest):
        sys.path.insert(0, str(root / "tests"))
        import run as driver
        self.driver = driver
        self.runner = driver.Runner(argparse.Namespace(budget=None), 0)
        steps = self.listed(root / "steps.json")
        self.steps = {s.name: s for s in steps if s.cached and s.tier < 2 and s.estimate <= longest
                      and not any(s.name.startswith(name) for name in NO_ANSWER)}
        os.environ["XDG_CACHE_HOME"] = str(root / "build" / "test-home")
        os.environ["TILEC_CACHE"] = "off"

    def listed(self, file):
        """As the build says, or as a file does, where there is no build."""
        if not file.exists():
            file.write_text(json.dumps([dataclasses.asdict(step) for step in self.driver.all_steps(["release"], "1")], default=str))
        return [self.driver.Step(**step) for step in json.loads(file.read_text())]

    def run(self, names, environment, limit=1200):
        """(the first that fails, the CPU seconds of all until then): of one step, or of several of lit. The limit is that of a process."""
        step, limited = self.steps[names[0]], ["prlimit", f"--cpu={limit:.0f}"]
        if step.command:
            status, _, cpu, _ = self.runner.process(limited + step.command, step.folder, {**step.environment, **environment}, DEADLOCK)
            return None if status is not None and status in (0, step.skip_code) else names[0], cpu
        command = [*limited, "lit-22", "-q", "-j", "1", "--max-failures=1", "--no-progress-bar", "--skip-test-time-recording"]
        command += [self.steps[name].lit_path for name in names]
        status, said, cpu, _ = self.runner.process(command, self.driver.ROOT, environment, DEADLOCK)
        failed = re.search(r"tilec :: (\S+)", said)
        return None if status == 0 else f"release/{failed.group(1)}" if failed else names[0], cpu

    def batches(self, names):
        """Neighbours that lit runs go into one process: it takes longer to start than a test."""
        batch = []
        for name in names:
            if batch and (self.steps[name].command or self.steps[batch[0]].command or len(batch) == BATCH):
                yield batch
                batch = []
            batch.append(name)
        if batch:
            yield batch


class Ledger:
    """Lines of JSON in a file: what a run that was stopped had found is there for the next."""

    def __init__(self, path):
        self.lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.lock, self.file = threading.Lock(), path.open("a")

    def add(self, *line):
        with self.lock:
            self.lines.append(line)
            print(json.dumps(line), file=self.file, flush=True)


class Trial:
    """Of the faults in a copy that is built."""

    def __init__(self, root, steps, faults):
        self.root, self.steps, self.faults = root, steps, faults
        self.recorded = Ledger(root / "recorded.jsonl")   # (step, its CPU seconds, or None if it fails without a fault; 1 or 3 for each fault)
        self.tried = Ledger(root / "tried.jsonl")         # (fault, step, whether it passes)
        (root / "logs").mkdir(exist_ok=True)

    def record(self, name):
        log = self.root / "logs" / name.replace("/", "=")
        log.write_bytes(bytes(len(self.faults) + 1))
        failed, cpu = self.steps.run([name], {"TILEC_FAULT_LOG": str(log)})
        self.recorded.add(name, None if failed else cpu, {i: seen for i, seen in enumerate(log.read_bytes()) if seen})

    def record_all(self, pool):
        known = {line[0] for line in self.recorded.lines}
        list(pool.map(self.record, [name for name in self.steps.steps if name not in known]))
        lines = [line for line in self.recorded.lines if line[0] in self.steps.steps]
        self.seconds = {name: seconds for name, seconds, _ in lines}
        self.seen = {name: {int(i): byte for i, byte in seen.items()} for name, seconds, seen in lines if seconds is not None}
        self.known = {(number, name): passes for number, name, passes in self.tried.lines}
        self.fail_anyway = sorted(set(self.seconds) - set(self.seen))

    def first_failure(self, number, names):
        """Of these steps, with the fault planted. Those of a batch that fails are not known to pass, since one of them stops it."""
        for batch in self.steps.batches([name for name in names if (number, name) not in self.known]):
            limit = PATIENCE[0] + PATIENCE[1] * max(self.seconds[name] for name in batch)
            failed, _ = self.steps.run(batch, {"TILEC_FAULT": str(number)}, limit)
            for name in [failed] if failed else batch:
                self.tried.add(number, name, not failed)
            if failed:
                return failed

    def judge(self, fault):
        """The fault with the step that failed, or why there is none."""
        number, about = fault["id"], pathlib.Path(fault["file"]).stem.replace("_", "-")
        reached = [name for name, seen in self.seen.items() if number in seen]
        differs = [name for name in reached if self.seen[name][number] > 1]
        differs.sort(key=lambda name: (about not in name, self.seconds[name]))   # tests of the pass itself first
        before = [name for name in differs if not self.known.get((number, name), True)]
        noticed = before[0] if before else self.first_failure(number, differs)
        why = "not reached" if not reached else "never differs" if not differs else f"{len(differs)} steps pass"
        return fault | {"noticed": noticed, "why": None if noticed else why}


def told(fault):
    return f"{fault['file']}:{fault['line']}\t{fault['what']}\t{fault['why']}"


def read_options():
    parser = argparse.ArgumentParser(description="Faults of the passes are noticed by the tests.")
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seed", default=os.environ.get("TILEC_TEST_SEED", "1"))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--least", type=float, default=0.9, help="the share that has to be noticed")
    parser.add_argument("--longest", type=float, default=20, help="CPU seconds of a step; longer ones are left out")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the copy: a run that was stopped goes on; tests are taken anew")
    parser.add_argument("--build-only", action="store_true", help="fill the folder of --keep, and stop")
    parser.add_argument("--built", action="store_true", help="the folder of --keep is filled: there are no sources and no compiler")
    parser.add_argument("-j", type=int, default=1)
    return parser.parse_args()


def prepare(options, root, pool):
    copy, file = Copy(options.source.resolve(), options.build.resolve(), root), root / "faults.json"
    root.mkdir(exist_ok=True)
    (root / "steps.json").unlink(missing_ok=True)
    if not file.exists():
        copy.take(".")
        faults = draw_all(copy, options.count, options.seed, pool)
        file.write_text(json.dumps(faults, indent=1))
    copy.take("tests", "examples")
    copy.make()
    Steps(root, options.longest)


def find(options, root, pool):
    if not options.built:
        prepare(options, root, pool)
    if options.build_only:
        sys.exit()
    faults = json.loads((root / "faults.json").read_text())
    trial = Trial(root, Steps(root, options.longest), faults)
    trial.record_all(pool)
    print(f"{len(faults)} faults, {len(trial.seen)} steps; these fail without a fault: {' '.join(trial.fail_anyway) or 'none'}", flush=True)
    return list(pool.map(trial.judge, faults))


def main():
    options = read_options()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        results = find(options, options.keep.resolve() if options.keep else pathlib.Path(folder), pool)
    noticed = sum(bool(fault["noticed"]) for fault in results)
    print("\n".join(told(fault) for fault in results if not fault["noticed"]))
    print(f"{noticed} of {len(results)} faults noticed, seed {options.seed}")
    return 0 if noticed >= options.least * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
