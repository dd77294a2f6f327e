"""Each term of docs/reference/glossary.md occurs in the file that the glossary names for it.

Case, hyphens, underscores, line breaks and comment signs do not count: `order barrier` is found in order_barriers and in
OrderBarrier. A row with several terms (`phase, parity`) needs all of them.

Usage: glossary.py SOURCE_DIR
"""

import pathlib
import re
import sys

LEAST = 50


def folded(text):
    return re.sub(r"[\s_\-/*]+", "", text.lower())


root = pathlib.Path(sys.argv[1])
rows = re.findall(r"^\| (?!term )([^|]+) \| [^|]+ \| `([^`|]+)` \|$", (root / "docs/reference/glossary.md").read_text(), re.M)
problems = [] if len(rows) >= LEAST else [f"{len(rows)} terms, fewer than {LEAST}"]
names = [terms.lower() for terms, _ in rows]
problems += [f"{b} stands after {a}" for a, b in zip(names, names[1:]) if folded(a) > folded(b)]
for terms, path in rows:
    if not (root / path).is_file():
        problems.append(f"{terms}: there is no {path}")
        continue
    text = folded((root / path).read_text())
    problems += [f"{term}: not in {path}" for term in terms.split(", ") if folded(term) not in text]
print("\n".join(problems) or f"{len(rows)} terms, each in its file")
sys.exit(1 if problems else 0)
