"""Every diagnostic has a test that provokes it.

A row of support/diagnostics.def counts as tested when a file under tests/lit/diagnostics/ mentions its code (T0123). A
few cannot be provoked from outside (out of memory, a device that fails): a unit test that does it says
`// covers T0123`.

Usage: diag_coverage.py SOURCE_DIR
"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
table = (root / "support/diagnostics.def").read_text()
rows = [(f"T{int(number):04d}", name) for name, number in re.findall(r"^DIAG\((\w+),\s*(\d+),", table, re.M)]

tested = set()
for path in (root / "tests/lit/diagnostics").rglob("*"):
    if path.is_file():
        tested |= set(re.findall(r"T\d{4}", path.read_text(errors="replace")))
for path in (root / "tests").rglob("test_*.c"):
    tested |= set(re.findall(r"// covers (T\d{4})", path.read_text()))

missing = [row for row in rows if row[0] not in tested]
for code, name in missing:
    print(f"no test provokes {code} ({name})")
unknown = tested - {code for code, _ in rows} - {"T9999"}   # T9999 stands for a code that does not exist
for code in sorted(unknown):
    print(f"a test mentions {code}, which is not in the table")
print(f"{len(rows) - len(missing)} of {len(rows)} diagnostics are tested")
sys.exit(1 if missing or unknown or not rows else 0)
