#!/usr/bin/env python3
"""Subjects of the commits since the baseline's tag (bench/BASELINE) have at most 72 characters.

    commit_subjects.py SOURCE_DIR      exit 77: the history does not reach back to the tag
"""
import pathlib
import subprocess
import sys

MOST = 72
root = pathlib.Path(sys.argv[1])
tag, base = (root / "bench/BASELINE").read_text().split()


def git(*words):
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)


if git("merge-base", "--is-ancestor", base, "HEAD").returncode:
    print(f"no history back to {tag}: nothing to check")
    sys.exit(77)
subjects = git("log", "--no-merges", "--format=%H %s", f"{base}..HEAD").stdout.splitlines()
long = [line for line in subjects if len(line.split(" ", 1)[1]) > MOST]
print("\n".join(f"more than {MOST} characters: {line[:7]}{line[40:]}" for line in long) or f"{len(subjects)} subjects since {tag}")
sys.exit(1 if long else 0)
