#!/usr/bin/env python3
"""Builds the site of docs/ (mkdocs.yml), with warnings as errors, and looks at it: every relative link and every #anchor of its pages leads somewhere.

Usage: site.py SOURCE_DIR [FOLDER]. Ends with 77 where there is no mkdocs: neither in .deps/docs (./dev docs makes it) nor on PATH.
"""

import html.parser
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

root = pathlib.Path(sys.argv[1]).resolve()
own = root / ".deps/docs/bin/mkdocs"
mkdocs = str(own) if own.exists() else shutil.which("mkdocs")
if not mkdocs:
    print("no mkdocs: ./dev docs installs it")
    sys.exit(77)


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.names.update(filter(None, (attributes.get("id"), attributes.get("name"))))
        self.links += [attributes[key] for key in ("href", "src") if attributes.get(key)]


def problems(site):
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    for path, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(url.path))) if url.path else path
            if target.is_dir():
                target = target / "index.html"
            name = urllib.parse.unquote(url.fragment)
            if not target.exists():
                yield f"{path.relative_to(site)}: there is no {link}"
            elif name and target in pages and name not in pages[target].names and not name.startswith("__"):
                yield f"{path.relative_to(site)}: {link} has no such heading"


with tempfile.TemporaryDirectory() as folder:
    site = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else folder).resolve()
    built = subprocess.run([mkdocs, "build", "--strict", "--quiet", "--clean", "--site-dir", str(site)], cwd=root,
                           env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    found = [built.stdout + built.stderr] if built.returncode else list(problems(site))
    print("\n".join(found) or f"{sum(1 for _ in site.rglob('*.html'))} pages, no dead links")
sys.exit(1 if found else 0)
