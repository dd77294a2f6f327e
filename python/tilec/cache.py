"""The compile cache on disk, which all processes of a user share. `TILEC_CACHE` names its folder, or `off`."""
from __future__ import annotations

import json

from ._program import program


def _run(action):
    """What the command says; {}: the cache is off."""
    import subprocess   # which takes longer to import than all else here
    done = subprocess.run([program(), "cache", action, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(done.stderr.strip() or done.stdout.strip())
    said = json.loads(done.stdout)
    return {} if said["folder"] == "off" else said


def path() -> str | None:
    """Its folder; None: it is off."""
    return _run("path").get("folder")


def stat() -> dict:
    """What is in it: {"folder", "entries", "bytes", "limit_bytes"}; {} where it is off."""
    return _run("stat")


def verify() -> int:
    """Deletes damaged entries; returns their number."""
    return _run("verify").get("damaged", 0)


def clear() -> None:
    """Deletes all entries."""
    _run("clear")
