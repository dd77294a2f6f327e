#!/usr/bin/env python3
"""Finds dead links: every relative link of a page names a file that is there, and a heading or anchor that is in it.
Code, comments and messages that mention `docs/...` name files that are there, too. Every page of docs/ is reached from
docs/index.md or README.md. Pages that people write, the notebook and the diagnostics left out, have at most WORDS words; an essay of docs/design has
at most ESSAY, and a page of the notebook, which is tables, at most PROSE outside of tables and code.

Usage: links.py SOURCE_DIR
"""

import os
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(sys.argv[1]).resolve()
names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
HISTORY = ("CHANGELOG.md", "tests/golden/", "tests/docs/links.py", "tests/arch/words_test.py")   # what was so then; made-up names
WORDS, ESSAY, PROSE = 25000, 2000, 2800
problems = []


def without_code(text):
    """The text with blocks of code, indented ones too, and quoted code blanked; lines are kept."""
    text = re.sub(r"^(```+).*?^\1$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    text = re.sub(r"^    .*$", "", text, flags=re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(path):
    """Names of headings as GitHub and MkDocs make them, and explicit ones."""
    text = path.read_text()
    plain = re.sub(r"^(```+).*?^\1$", "", text, flags=re.M | re.S)
    found = set(re.findall(r'<a name="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.*)$", plain, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.add(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading).strip()))
    return found


def check_page(name):
    reached = set()
    text = without_code((root / name).read_text())
    for match in re.finditer(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = match[1].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = root / os.path.normpath(os.path.join(os.path.dirname(name), target)) if target else root / name
        line = text.count("\n", 0, match.start()) + 1
        if not path.exists():
            problems.append(f"{name}:{line}: there is no {match[1]}")
        elif anchor and (path.suffix != ".md" or anchor not in anchors(path)):
            problems.append(f"{name}:{line}: {target or name} has no heading '{anchor}'")
        else:
            reached.add(os.path.relpath(path, root))
    return reached


def check_mentions(name):
    try:
        text = (root / name).read_text()
    except UnicodeDecodeError:
        return
    for match in re.finditer(r"(?<![\w/.<-])docs/[\w./-]*\w", text):
        if not (root / match[0]).exists() and "NNNN" not in match[0]:
            problems.append(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: there is no {match[0]}")


def words_of(text):
    """Words with a letter or a digit; signs of tables and of code are none."""
    return sum(1 for word in text.split() if re.search(r"\w", word))


def prose(text):
    return words_of("\n".join(line for line in without_code(text).splitlines() if not line.startswith("|")))


def written_words():
    """Words of the pages that people write."""
    written = [name for name in names if re.match(r"docs/(?!notebook/|reference/diagnostics/).*\.md$", name) and (root / name).is_file()]
    texts = [text for name in written if "; do not edit" not in (text := (root / name).read_text()) and "<!-- Made by" not in text]
    return sum(map(words_of, texts))


links = {name: check_page(name) for name in names if name.endswith(".md") and (root / name).is_file()}
for name in names:
    if not name.startswith(HISTORY) and (root / name).is_file():
        check_mentions(name)
seen, todo = set(), ["README.md", "docs/index.md"]
while todo:
    name = todo.pop()
    if name not in seen:
        seen.add(name)
        todo += links.get(name, ())
        if (root / name).is_dir():   # a link to a folder reaches its pages
            todo += [page for page in links if os.path.dirname(page) == name]
problems += [f"{name}: no page links to it" for name in links if name.startswith("docs/") and name not in seen]
if (words := written_words()) > WORDS:
    problems.append(f"docs/ has {words} words outside of the notebook, more than {WORDS}: measurements belong there, and what is said twice goes")
for folder, most, count in (("docs/design/", ESSAY, words_of), ("docs/notebook/", PROSE, prose)):
    for name in (name for name in links if name.startswith(folder)):
        if (found := count((root / name).read_text())) > most:
            problems.append(f"{name} has {found} words, more than {most}")
print("\n".join(problems) or f"{len(links)} pages without dead links, {words} words outside of the notebook")
sys.exit(1 if problems else 0)
