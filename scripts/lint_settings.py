#!/usr/bin/env python3
"""Checks that docs/settings.md lists every FARGPU_* variable that the product reads.

Names are the string literals "FARGPU_..." of client/, server/, common/ and sim/. A variable of the
page that no file of the tree mentions is an error, too.
"""

import re
import sys

from lint_files import ROOT, tracked

PAGE = "docs/settings.md"
LITERAL = re.compile(r'"(FARGPU_[A-Z0-9_]+)"')
ROW = re.compile(r"^\| (`FARGPU_[^|]*?) \|", re.M)
NAME = re.compile(r"FARGPU_[A-Z0-9_]+")


def rows(page):
    """The variables that have a row."""
    return {name for cell in ROW.findall(page) for name in NAME.findall(cell)}


def problems(page, sources, others):
    """`sources`, `others`: name -> text; those whose literals need a row, and all other files."""
    listed = rows(page)
    wrong = [
        f"{file}: {PAGE} has no row for {name}"
        for file, text in sources.items()
        for name in dict.fromkeys(LITERAL.findall(text))
        if name not in listed
    ]
    read = {name for text in (*sources.values(), *others.values()) for name in NAME.findall(text)}
    wrong += [f"{PAGE}: nothing reads {name}" for name in sorted(listed - read)]
    return wrong


def main():
    folders = ("client/", "server/", "common/", "sim/")
    texts = {}
    for name in tracked("*.cc", "*.h", "*.py", "scripts/*", ".ci/*"):
        try:
            texts[name] = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            pass
    sources = {
        name: text
        for name, text in texts.items()
        if name.startswith(folders) and name.endswith((".cc", ".h"))
    }
    others = {name: text for name, text in texts.items() if name not in sources}
    wrong = problems((ROOT / PAGE).read_text(encoding="utf-8"), sources, others)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
