"""The compile cache on disk, which all processes of a user share. `TILEC_CACHE` names its folder, or `off`."""
from __future__ import annotations

from ._program import program


def _run(action):
    import subprocess   # which takes longer to import than all else here
    done = subprocess.run([program(), "cache", action], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def path() -> str | None:
    """Its folder; None: it is off."""
    text = _run("path").strip()
    return None if text == "off" else text


def stat() -> dict:
    """What is in it: {"folder", "entries", "size"}; {} where it is off."""
    rows = dict(line.split(None, 1) for line in _run("stat").splitlines() if " " in line)
    if "entries" in rows:
        rows["entries"] = int(rows["entries"])
    return rows


def verify() -> int:
    """Deletes damaged entries; returns their number."""
    rows = dict(line.split(None, 1) for line in _run("verify").splitlines() if " " in line)
    return int(rows.get("damaged", "0").split(",")[0])


def clear() -> None:
    """Deletes all entries."""
    _run("clear")
