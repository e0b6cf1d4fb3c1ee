#!/usr/bin/env python3
"""Checks that the pages of the tree name what exists.

In every Markdown file: a relative link leads to a file or folder of the tree, its anchor to a
heading there; `a/path/in/backticks` and a path in a block of commands, if it begins with a folder
of the tree, is in the tree. In every other text: a page of docs/ that is named by its path exists.
"""

import fnmatch
import pathlib
import posixpath
import re
import sys

from lint_files import ROOT, tracked

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.+*<>-]+(?:/[\w.+*<>-]+)+/?")
PAGE = re.compile(r"(?<![\w/])docs/[\w/.-]+\.md")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.M)
ANCHOR = re.compile(r'<a id="([^"]+)"')
BLOCK = re.compile(r"^( {4}|```).*$", re.M)


def slug(heading):
    """The anchor that GitHub gives to a heading."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def anchors(text):
    """Every anchor of a page; equal headings are numbered."""
    found, seen = set(ANCHOR.findall(text)), {}
    for heading in HEADING.findall(text):
        name = slug(heading)
        number = seen[name] = seen.get(name, -1) + 1
        found.add(f"{name}-{number}" if number else name)
    return found


def everything(files):
    """The files and every folder above them."""
    return {
        name for file in files for name in [file, *map(str, pathlib.PurePosixPath(file).parents)]
    }


def exists(path, names):
    """Whether `path` is there: with `*` and `<...>` for any text, or without its extension."""
    if "*" in path or "<" in path:
        pattern = re.sub(r"<[^>]*>", "*", path)
        return any(fnmatch.fnmatchcase(name, pattern) for name in names)
    return path in names or any(name.startswith(path + ".") for name in names)


def link_problems(page, text, pages, names):
    """One line per link of `page` that leads nowhere. `pages`: name -> text of every page."""
    wrong = []
    for target in LINK.findall(CODE.sub("", BLOCK.sub("", text))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if path not in names:
            wrong.append(f"{page}: the link {target} leads to no file of the tree")
        elif anchor and path in pages and anchor not in anchors(pages[path]):
            wrong.append(f"{page}: the link {target} leads to no heading of {path}")
    return wrong


def path_problems(page, text, names):
    """One line per path of `page`, in backticks or in a block, that is not in its folder."""
    folders = {name.split("/")[0] for name in names if "/" in name}
    wrong = []
    for quoted in CODE.findall(text) + [block[0] for block in BLOCK.finditer(text)]:
        for word in quoted.split():
            word = word.partition(":")[0]
            if PATH.fullmatch(word) and word.split("/")[0] in folders:
                if not exists(word.rstrip("/"), names):
                    wrong.append(f"{page}: `{word}` is not in the tree")
    return wrong


def mention_problems(file, text, names):
    """One line per page that `file` names and that is not there."""
    return [f"{file}: {page} is not there" for page in PAGE.findall(text) if page not in names]


def main():
    files = tracked()
    names = everything(files)
    texts = {}
    for name in files:
        try:
            texts[name] = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            pass  # a picture, a corpus
    pages = {name: text for name, text in texts.items() if name.endswith(".md")}
    wrong = []
    for name, text in texts.items():
        if name in pages:
            wrong += link_problems(name, text, pages, names) + path_problems(name, text, names)
        elif not name.startswith("tests/lint/"):
            wrong += mention_problems(name, text, names)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
