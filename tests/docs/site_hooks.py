"""What the site needs besides the pages (mkdocs.yml): an index of the diagnostics, files outside of docs/ that pages link to, blocks of code
whose first line says more than their language."""

import os
import pathlib
import re
import shutil

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LEXERS = {"tile": "rust", "layout": "text"}   # that look like the language
linked = set()


def on_files(files, config):
    folder = ROOT / "docs/reference/diagnostics"
    rows = [f"| [{path.stem}]({path.name}) | {path.read_text().splitlines()[0].split(': ', 1)[1]} |" for path in sorted(folder.glob("T*.md"))]
    text = "# Diagnostics\n\n`tilec explain CODE` prints a page.\n\n| code | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"
    files.append(File.generated(config, "reference/diagnostics/index.md", content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    here = os.path.dirname(page.file.src_uri)

    def link(match):
        target, hash_, anchor = match[1].partition("#")
        if re.match(r"[a-z]+:", target) or not target:
            return match[0]
        path = os.path.normpath(os.path.join("docs", here, target))
        if path == "docs/reference/diagnostics":
            return f"]({target}/index.md)"
        if path.startswith("docs/"):
            return match[0]
        if (ROOT / path).is_dir():
            return "](" + os.path.relpath("index.md", here or ".") + ")"
        linked.add(path)
        return f"](site:{path})"

    pieces = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    for at, piece in enumerate(pieces):
        if at % 2:
            pieces[at] = re.sub(r"^```(\w+)[^\n]*", lambda m: "```" + LEXERS.get(m[1], m[1]), piece, count=1)
        else:
            pieces[at] = re.sub(r"\]\(([^)\s]+)\)", link, piece)
    return "".join(pieces)


def on_page_content(html, page, config, files):
    up = "../" * page.url.count("/")
    return re.sub(r'href="site:([^"]+)"', lambda m: f'href="{up}files/{m[1]}.txt"', html)


def on_post_build(config):
    for path in sorted(linked):
        to = pathlib.Path(config.site_dir) / "files" / (path + ".txt")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, to)
