"""What the tests of random programs share: their options, the loop over seeds, runs of tilec, and programs on a device."""
import argparse
import collections
import concurrent.futures
import hashlib
import itertools
import os
import pathlib
import re
import subprocess
import time


def seed_of_tests():
    """Of `./dev test`: the commit's, or --seed."""
    text = os.environ.get("TILEC_TEST_SEED", "1")
    return int(text) if text.isdigit() else int(hashlib.sha256(text.encode()).hexdigest()[:7], 16) * 1000


def parser(doc, count, seed=1, **target):
    """target: of --target, as add_argument takes it."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("tilec", type=lambda text: pathlib.Path(text).resolve())
    made.add_argument("--count", type=int, default=count)
    made.add_argument("--minutes", type=float, help="as many as there is time for, in place of --count")
    made.add_argument("--seed", type=int, default=seed)
    made.add_argument("--target", **(target or {"default": "sm_90a"}))
    made.add_argument("-j", "--jobs", type=int, default=1)
    return made


def results(options, check, step=1):
    """(seed, check(options, seed)) in the order of the seeds, each the `step`-th."""
    until, end, waiting = time.monotonic() + (options.minutes or 0) * 60, options.seed + options.count, collections.deque()
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for seed in itertools.count(options.seed, step):
            if time.monotonic() >= until if options.minutes else seed >= end:
                options.count = seed - options.seed if options.minutes else options.count   # for what is said at the end
                break
            waiting.append((seed, pool.submit(check, options, seed)))
            if len(waiting) == 4 * options.jobs:
                seed, found = waiting.popleft()
                yield seed, found.result()
        for seed, found in waiting:
            yield seed, found.result()


def seeds_text(options):
    return f"seeds {options.seed} to {options.seed + options.count - 1}"


def tilec(options, *words, **more):
    """The finished process; `said` is all that it printed."""
    done = subprocess.run([str(options.tilec), *map(str, words)], capture_output=True, text=True, **more)
    done.said = done.stdout + done.stderr
    return done


def emulated(options, path, *words, **more):
    return tilec(options, "test", "--repro-dir=none", f"--target={options.target}", *words, path, **more)


# ---- batches: files of programs, whose code goes to the folder `cubin` ----

def compiled(options, path):
    """Whether ptxas takes the batch."""
    done = emulated(options, path, "--device=gpu", f"--compile-only={path.parent / 'cubin'}")
    if done.returncode:
        print(f"{path}: exit {done.returncode}\n{done.said[-3000:]}", flush=True)
    return done.returncode == 0


def on_device(options):
    counts = collections.Counter()
    for path in sorted(options.compiled.glob("*.tile")):
        done = tilec(options, "test", "--device=gpu", f"--compiled={options.compiled / 'cubin'}", path)
        counts.update(ok=len(re.findall(r"^ok ", done.said, re.M)), failed=len(re.findall(r"^FAIL |error\[", done.said, re.M)))
        if done.returncode:
            print(f"{path}: exit {done.returncode}\n{done.said[-4000:]}", flush=True)
    print(f"on the device: {counts['ok']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] or not counts["ok"] else 0
