#!/usr/bin/env python3
"""Runs the tests of ctest and lit: `./dev test` builds what they need and calls this. tests/README.md says what runs when.

A step is one test in one build: release/program_gemm, debug/passes/unroll.tile. Its tier comes from its label in CMake
(release:0 debug:1), for lit from LIT_TIERS; a step that takes longer than its tier allows moves to the next. A step that
passed is not run again until something that it read has changed: step_cache.py.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field

import step_cache

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMES = ROOT / "tests" / "times.tsv"
TIERS = {"quick": 0, "default": 1, "full": 2}
LIT_TIERS = {"release": 0, "debug": 1, "coverage": 0}
LIMITS = {0: 2.0, 1: 20.0}   # the most CPU seconds of a step in a tier; a longer one belongs to the next
LIT_TIMEOUT = 1200
LIT_BATCH = 6.0              # CPU seconds of the lit tests that share a process
UNMEASURED = 1.0             # CPU seconds, in a release build
SANITIZED = 5                # times as long, where only the release step was measured
NOT_BUILT = ["sh", "-c", "echo not built; false"]
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"
KNOWN_PROPERTIES = {"LABELS", "ENVIRONMENT", "TIMEOUT", "WORKING_DIRECTORY", "PROCESSORS", "COST", "REQUIRED_FILES",
                    "SKIP_RETURN_CODE"}


@dataclass
class Step:
    name: str
    build: str
    tier: int
    command: list = field(default_factory=list)   # empty: a lit test
    lit_path: str = ""
    folder: pathlib.Path = ROOT
    environment: dict = field(default_factory=dict)
    timeout: float = LIT_TIMEOUT
    skip_code: int = None
    declared: list = field(default_factory=list)   # REQUIRED_FILES: what it reads besides the files of its command
    cached: bool = True
    pinned: bool = False    # stays in its tier, however long it takes
    new_seeds: bool = False   # programs that nobody ran before
    seconds: float = None   # of CPU, when last measured
    estimate: float = UNMEASURED
    key: str = None


@dataclass
class Result:
    step: Step
    outcome: str
    seconds: float = 0
    output: str = ""
    from_cache: bool = False


# --- What there is to run. ---

def ctest_steps(build, seed):
    """The tests that ctest knows of a build."""
    folder = ROOT / "build" / build
    listed = subprocess.run(["ctest", "--test-dir", str(folder), "--show-only=json-v1"], capture_output=True, text=True, check=True)
    for test in json.loads(listed.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test["properties"]}
        if unknown := set(properties) - KNOWN_PROPERTIES:
            sys.exit(f"{test['name']}: tests/run.py does not know the property {unknown.pop()}")
        labels = properties.get("LABELS", [])
        tiers = dict(label.split(":") for label in labels if re.fullmatch(r"(release|debug):[0-2]", label))
        if not tiers:
            sys.exit(f"{test['name']} has no tier: see tilec_tier in tests/CMakeLists.txt")
        if build == "coverage":   # tests/coverage.py: what runs in either
            tiers[build] = min(tiers.values())
        if build not in tiers:
            continue
        environment = dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))
        if {"seeded", "new_seeds"} & set(labels):
            environment["TILEC_TEST_SEED"] = seed
        skip = properties.get("SKIP_RETURN_CODE")
        yield Step(f"{build}/{test['name']}", build, int(tiers[build]), test.get("command", NOT_BUILT), "",
                   pathlib.Path(properties.get("WORKING_DIRECTORY", folder)), environment, properties.get("TIMEOUT", 1500), skip,
                   properties.get("REQUIRED_FILES", []), "uncached" not in labels, bool({"seeded", "new_seeds"} & set(labels)),
                   "new_seeds" in labels)


def lit_steps(build):
    suite = ROOT / "build" / build / "tests" / "lit"
    listed = subprocess.run(["lit-22", "--show-tests", str(suite)], capture_output=True, text=True, check=True)
    for name in re.findall(r"^  tilec :: (\S+)$", listed.stdout, re.M):
        yield Step(f"{build}/{name}", build, LIT_TIERS[build], lit_path=f"{suite}/{name}")


def read_times():
    lines = TIMES.read_text().splitlines() if TIMES.exists() else []
    return {name: float(seconds) for name, seconds in (line.split("\t") for line in lines if not line.startswith("#"))}


def write_times(measured, steps, builds):
    """The measured times in place of the old ones; steps of these builds that are no more are dropped."""
    known = {step.name for step in steps}
    times = {name: seconds for name, seconds in read_times().items() if name in known or name.split("/")[0] not in builds} | measured
    TIMES.write_text("# CPU seconds of each step; refreshed by ./dev test full --times\n"
                     + "".join(f"{name}\t{times[name]:.1f}\n" for name in sorted(times)))


def all_steps(builds, seed):
    steps = [step for build in builds for make in (lambda: ctest_steps(build, seed), lambda: lit_steps(build)) for step in make()]
    times = read_times()
    for step in steps:
        step.seconds = step.estimate = times.get(step.name)
        if step.seconds is None:
            in_release = times.get(f"release/{step.name.split('/', 1)[1]}", UNMEASURED)
            step.estimate = in_release * (SANITIZED if step.build == "debug" else 1)
        while not step.pinned and step.tier in LIMITS and step.estimate > LIMITS[step.tier]:
            step.tier += 1
    return steps


# --- Which of them. ---

def shard(steps, number, count):
    """The longest first, each to the shard with the least: the same on every machine."""
    load, chosen = [0.0] * count, []
    for step in longest_first(steps):
        least = load.index(min(load))
        load[least] += step.estimate
        if least == number - 1:
            chosen.append(step)
    return chosen


def longest_first(steps):
    return sorted(steps, key=lambda step: (-step.estimate, step.name))


def jobs_of(steps):
    """Lists of steps: lit tests of one build share a process, up to LIT_BATCH seconds of them."""
    jobs, open_batch = [], {}
    for step in steps:
        if step.command:
            jobs.append([step])
            continue
        batch = open_batch.get((step.build, step.tier))
        if not batch or sum(one.estimate for one in batch) + step.estimate > LIT_BATCH:
            batch = open_batch[step.build, step.tier] = []
            jobs.append(batch)
        batch.append(step)
    return jobs


# --- Running them. ---

class Runner:
    def __init__(self, options, start):
        self.options = options
        self.deadline = start + options.budget * 60 if options.budget else None
        self.lock, self.running, self.stopped = threading.Lock(), set(), False
        self.cpu = self.wall = 0.0
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="tilec-tests"))

    def process(self, command, folder, environment, timeout):
        """(status, output, CPU seconds, wall seconds) of a command; status None when its time ran out."""
        started = time.monotonic()
        with tempfile.TemporaryFile(dir=self.scratch) as output:
            child = subprocess.Popen(command, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                     stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            with self.lock:
                self.running.add(child.pid)
            late = threading.Event()
            timer = threading.Timer(timeout, lambda: (late.set(), kill(child.pid)))
            timer.start()
            _, status, usage = os.wait4(child.pid, 0)
            timer.cancel()
            with self.lock:
                self.running.discard(child.pid)
            child.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            text = output.read().decode(errors="replace")
        cpu, wall = usage.ru_utime + usage.ru_stime, time.monotonic() - started
        with self.lock:
            self.cpu, self.wall = self.cpu + cpu, self.wall + wall
        return None if late.is_set() else child.returncode, text, cpu, wall

    def stop(self):
        with self.lock:
            self.stopped = True
            for pid in self.running:
                kill(pid)

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, job):
        """The results of a job's steps."""
        timeout, optional = max(step.timeout for step in job), self.deadline and job[0].tier == 2
        if self.stopped:
            return [Result(step, NOT_RUN) for step in job]
        if optional:
            slowdown = max(1.0, self.wall / self.cpu) if self.cpu > 10 else 1.5
            if sum(step.estimate for step in job) * slowdown * 1.3 > self.left():
                return [Result(step, NOT_RUN) for step in job]
            timeout = min(timeout, self.left())
        results = self.run_ctest(job[0], timeout) if job[0].command else self.run_lit(job, timeout)
        if self.stopped or (optional and self.left() <= 0):
            results = [Result(r.step, NOT_RUN) if r.outcome == FAILED else r for r in results]
        return results

    def run_ctest(self, step, timeout):
        status, output, cpu, _ = self.process(step.command, step.folder, step.environment, timeout)
        if status is None:
            return [Result(step, FAILED, cpu, f"{output}\nstopped after {timeout:.0f} s")]
        if status != 0 and status == step.skip_code:
            return [Result(step, SKIPPED, cpu, output)]
        return [Result(step, PASSED if status == 0 else FAILED, cpu, output + (f"\nexit status {status}" if status else ""))]

    def run_lit(self, job, timeout):
        report = self.scratch / f"{job[0].name.replace('/', '.')}.json"
        command = ["lit-22", "-q", "-j", "1", "--no-progress-bar", "--skip-test-time-recording", "-o", str(report)]
        _, output, cpu, wall = self.process(command + [step.lit_path for step in job], ROOT, {}, timeout)
        tests = json.loads(report.read_text())["tests"] if report.exists() else []
        found = {test["name"].removeprefix("tilec :: "): test for test in tests}
        results = []
        for step in job:
            test = found.get(step.name.split("/", 1)[1], {"code": "no result", "elapsed": 0, "output": output})
            outcome = {"PASS": PASSED, "XFAIL": PASSED, "UNSUPPORTED": SKIPPED}.get(test["code"], FAILED)
            results.append(Result(step, outcome, (test["elapsed"] or 0) * cpu / wall, test["output"]))
        return results


def kill(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


# --- What to say. ---

class Report:
    def __init__(self):
        self.results, self.live, self.said = [], sys.stdout.isatty(), time.monotonic()

    def add(self, result, total):
        self.results.append(result)
        if result.outcome == FAILED:
            self.say(f"FAILED {result.step.name}\n{result.output.strip()[-20000:]}\n"
                     f"       alone: ./dev test --only '^{re.escape(result.step.name)}$'")
        elif self.live:
            print(f"\r\033[K[{len(self.results)}/{total}] {result.step.name}", end="", flush=True)
        elif time.monotonic() > self.said + 60:   # a log shows that it goes on
            self.said = time.monotonic()
            self.say(f"    [{len(self.results)}/{total}]")

    def say(self, text):
        print(("\r\033[K" if self.live else "") + text, flush=True)

    def count(self, outcome):
        return sum(result.outcome == outcome for result in self.results)

    def finish(self, wall, cpu, seed):
        for build in ("release", "debug"):
            own = [r for r in self.results if r.step.build == build and r.outcome != NOT_RUN]
            if own:
                known = sum(r.from_cache for r in own)
                self.say(f"    {build:8} {len(own):4} steps" + (f", {known} of them known to pass (cache)" if known else ""))
        if missed := self.count(NOT_RUN):
            self.say(f"    {missed} steps of tier 2 had no time; seed {seed}")
        self.say(f"    {wall:.0f} s, {cpu:.0f} s of CPU")
        others = "".join(f", {self.count(outcome)} {outcome}" for outcome in (SKIPPED, NOT_RUN) if self.count(outcome))
        print(f"{self.count(PASSED)} passed, {self.count(FAILED)} failed{others}")


def list_steps(steps):
    for step in sorted(steps, key=lambda step: (step.tier, step.name)):
        print(f"{step.tier}  {f'~{step.estimate:.1f}' if step.seconds is None else f'{step.seconds:.1f}':>6}  {step.name}")
    for tier in sorted({step.tier for step in steps}):
        own = [step for step in steps if step.tier == tier]
        print(f"tier {tier}: {len(own)} steps, {sum(step.estimate for step in own):.0f} s of CPU")


# --- The whole. ---

def read_options():
    parser = argparse.ArgumentParser(prog="./dev test", description="Run the tests.")
    parser.add_argument("tier", nargs="?", choices=TIERS, default="default", help="quick: a minute; full: everything")
    parser.add_argument("--list", action="store_true", help="say each step's tier and CPU seconds, and run none")
    parser.add_argument("--only", metavar="REGEX", help="the steps of any tier whose name matches")
    parser.add_argument("--without", metavar="REGEX", help="but not the steps whose name matches")
    parser.add_argument("--shard", metavar="I/N", help="one of N equal shares of the steps")
    parser.add_argument("--budget", type=float, metavar="MINUTES",
                        help="with full: what of tier 2 fits, chosen by the seed, without random programs of new seeds; from the start of ./dev")
    parser.add_argument("--seed", default=head(), help="chooses the samples; the commit when not given")
    parser.add_argument("--no-cache", action="store_true", help="run the steps that are known to pass, too")
    parser.add_argument("--times", action="store_true", help="write what was measured to tests/times.tsv")
    parser.add_argument("-j", type=int, default=len(os.sched_getaffinity(0)), metavar="JOBS")
    parser.add_argument("--builds", default="release,debug", help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / "build" / "test-cache", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, default=0, help=argparse.SUPPRESS)   # seconds that ./dev took before
    options = parser.parse_args()
    if options.shard and not re.fullmatch(r"[1-9]\d*/[1-9]\d*", options.shard):
        parser.error("--shard: write I/N")
    return options


def head():
    """The commit, or 1 where there is no repository."""
    done = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "1"


def choose(steps, options):
    chosen = [step for step in steps if step.tier <= TIERS[options.tier]]
    if options.only:
        chosen = [step for step in steps if re.search(options.only, step.name)]
    if options.without:
        chosen = [step for step in chosen if not re.search(options.without, step.name)]
    if options.shard:
        chosen = shard(chosen, *map(int, options.shard.split("/")))
    chosen = longest_first(chosen)
    if options.budget:   # a gate: first what has to run, then tier 2 in an order of the seed's, without new seeds: tests/README.md
        more = [step for step in chosen if step.tier == 2 and not step.new_seeds]
        random.Random(options.seed).shuffle(more)
        chosen = [step for step in chosen if step.tier < 2] + more
    return chosen


def run_all(steps, options, start):
    runner, report = Runner(options, start), Report()
    cache = step_cache.Cache(options.cache, ROOT)
    waiting = []
    for step in steps:
        step.key = cache.key(step)
        if step.key and not options.no_cache and cache.has(step.key):
            report.add(Result(step, PASSED, from_cache=True), len(steps))
        else:
            waiting.append(step)
    pool = concurrent.futures.ThreadPoolExecutor(options.j)
    try:
        for future in concurrent.futures.as_completed([pool.submit(runner.run, job) for job in jobs_of(waiting)]):
            for result in future.result():
                report.add(result, len(steps))
                if result.outcome == PASSED and result.step.key:
                    cache.add(result.step.key, result.step.name)
    except KeyboardInterrupt:
        runner.stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        shutil.rmtree(runner.scratch, ignore_errors=True)
    report.finish(time.monotonic() - start, runner.cpu, options.seed)
    return report


def main():
    options = read_options()
    start = time.monotonic() - options.started
    os.environ["XDG_CACHE_HOME"] = str(ROOT / "build" / "test-home")   # not the user's
    os.environ["TILEC_CACHE"] = "off"   # tests compile
    builds = options.builds.split(",")
    missing = [build for build in builds if not (ROOT / "build" / build / "CTestTestfile.cmake").exists()]
    if missing and (not options.list or missing == builds):
        sys.exit(f"not built: {', '.join(missing)}; `./dev build {missing[0]}` does, or name others: --builds release")
    steps = all_steps([build for build in builds if build not in missing], options.seed)
    chosen = choose(steps, options)
    if options.list:
        list_steps(steps if options.tier == "default" and not options.only and not options.shard else chosen)
        return 0
    if not chosen:
        sys.exit("no such test")
    report = run_all(chosen, options, start)
    if options.times:
        measured = {r.step.name: r.seconds for r in report.results if r.outcome == PASSED and not r.from_cache}
        write_times(measured, steps, builds)
    return 1 if report.count(FAILED) else 0


if __name__ == "__main__":
    sys.exit(main())
